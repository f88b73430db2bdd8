//! Sets of labels: values for rows that are there already, which clients send under a name for heads to learn from.
//!
//! A set grows piece by piece until a head learns from it; from there on it stays as it is, and goes with the last such head.

use crate::learner::labels::{LABEL_BYTES, Labels, Unfit};
use crate::learner::removal::Offsets;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::HashSet;
use std::sync::Arc;

pub use crate::learner::LabelPart;

/// Bytes of all labels at most: a million of them.
pub const LABEL_BYTES_MAX: usize = LABEL_BYTES << 20;
/// Sets at most.
pub const LABEL_SETS_MAX: usize = 16;

/// All sets, in the order in which they were begun.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct LabelSets(Vec<LabelSet>);

#[derive(Clone, Debug, Serialize, Deserialize)]
struct LabelSet {
    name: String,
    #[serde(serialize_with = "written", deserialize_with = "read")]
    labels: Arc<Labels>,
    /// Whether a head learns from it.
    used: bool,
}

fn written<S: Serializer>(labels: &Arc<Labels>, to: S) -> Result<S::Ok, S::Error> {
    labels.serialize(to)
}

fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Arc<Labels>, D::Error> {
    Labels::deserialize(from).map(Arc::new)
}

/// Why a piece of labels cannot be taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// A head learns from the set.
    #[error("heads learn from these labels: send others under another name")]
    Used,
    /// The piece begins elsewhere than behind the labels of the set that are here; their number.
    #[error("{0} labels of this name are here: go on `from` there, or begin again from 0")]
    Elsewhere(usize),
    /// There would be more labels than there may be.
    #[error("there are at most {} labels: remove heads that learn from some", LABEL_BYTES_MAX / LABEL_BYTES)]
    Bytes,
    /// There may be no more sets, and heads learn from all.
    #[error("heads learn from {LABEL_SETS_MAX} sets of labels already, and there are no more")]
    Sets,
    /// A label that cannot be.
    #[error("{0}")]
    Unfit(Unfit),
}

impl LabelSets {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The labels of this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Labels>> {
        self.0.iter().find(|set| set.name == name).map(|set| &set.labels)
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.0.iter().map(|set| set.labels.bytes()).sum()
    }

    /// Whether a piece can be taken.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self, part: &LabelPart) -> Result<(), NotTaken> {
        let known = self.0.iter().find(|set| set.name == part.name);
        if known.is_some_and(|set| set.used) {
            return Err(NotTaken::Used);
        }
        let before = known.map_or(0, |set| set.labels.len());
        let begins = part.from == 0;
        if !begins && part.from != before as u64 {
            return Err(NotTaken::Elsewhere(before));
        }
        let end = known.filter(|_| !begins).map_or(0, |set| set.labels.end());
        Labels::check(end, &part.offsets, &part.values).map_err(NotTaken::Unfit)?;
        if known.is_none() && self.0.len() >= LABEL_SETS_MAX && self.0.iter().all(|set| set.used) {
            return Err(NotTaken::Sets);
        }
        let replaced = if begins { before * LABEL_BYTES } else { 0 };
        // Sets that no head learns from yet make room.
        let others = self.0.iter().filter(|set| set.used || (!begins && set.name != part.name));
        let kept: usize = others.map(|set| set.labels.bytes()).sum::<usize>() + before * LABEL_BYTES - replaced;
        if kept + part.offsets.len() * LABEL_BYTES > LABEL_BYTES_MAX {
            return Err(NotTaken::Bytes);
        }
        Ok(())
    }

    /// Forget the labels of these rows.
    pub fn remove(&mut self, rows: &Offsets) {
        self.0.iter_mut().for_each(|set| set.labels = Arc::new(set.labels.without(rows)));
    }

    /// Append a piece; one at position 0 replaces the set. Where there is no room for a new set, sets that no head learns from go,
    /// the oldest first.
    ///
    /// # Errors
    /// As [`LabelSets::check`]. Nothing changes then.
    pub fn take(&mut self, part: &LabelPart) -> Result<(), NotTaken> {
        self.check(part)?;
        if part.from == 0 {
            self.0.retain(|set| set.name != part.name);
            let bytes = part.offsets.len() * LABEL_BYTES;
            while self.0.len() >= LABEL_SETS_MAX || self.bytes() + bytes > LABEL_BYTES_MAX {
                let Some(oldest) = self.0.iter().position(|set| !set.used) else { break };
                self.0.remove(oldest);
            }
            self.0.push(LabelSet { name: part.name.clone(), labels: Arc::default(), used: false });
        }
        let set = self.0.iter_mut().find(|set| set.name == part.name).expect("it has been begun");
        Arc::make_mut(&mut set.labels).extend(&part.offsets, &part.values).map_err(NotTaken::Unfit)
    }

    /// Heads learn from the sets with these numbers: the others from which some have learned go.
    pub fn settle(&mut self, learned: &HashSet<u64>) {
        self.0.retain_mut(|set| {
            let before = std::mem::replace(&mut set.used, learned.contains(&set.labels.id()));
            set.used || !before
        });
    }

    /// The sets that heads learn from.
    pub fn used(&self) -> Vec<Arc<Labels>> {
        self.0.iter().filter(|set| set.used).map(|set| Arc::clone(&set.labels)).collect()
    }

    /// Whether the parts fit each other, which a file may contradict.
    pub fn is_consistent(&self) -> bool {
        let names: HashSet<&str> = self.0.iter().map(|set| set.name.as_str()).collect();
        names.len() == self.0.len() && self.0.iter().all(|set| set.labels.is_consistent())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, from: u64, offsets: std::ops::Range<u64>) -> LabelPart {
        let values = offsets.clone().map(|offset| offset as f64 / 1e7).collect();
        LabelPart { name: name.into(), from, offsets: offsets.collect(), values }
    }

    #[test]
    fn a_set_grows_until_a_head_learns_from_it() {
        let mut sets = LabelSets::default();
        sets.take(&part("a", 0, 3..10)).unwrap();
        assert_eq!(sets.take(&part("a", 3, 10..20)), Err(NotTaken::Elsewhere(7)));
        assert_eq!(sets.take(&part("a", 7, 5..6)), Err(NotTaken::Unfit(Unfit::Order(0))));
        sets.take(&part("a", 7, 10..20)).unwrap();
        let id = sets.get("a").unwrap().id();
        assert!(sets.used().is_empty());
        sets.settle(&HashSet::from([id]));
        assert_eq!(sets.used().len(), 1);
        assert_eq!(sets.take(&part("a", 0, 0..1)), Err(NotTaken::Used));
        assert_eq!(sets.take(&part("a", 17, 20..21)), Err(NotTaken::Used));
        sets.take(&part("b", 0, 0..5)).unwrap();
        sets.take(&part("b", 0, 0..2)).unwrap();
        assert_eq!(sets.get("b").unwrap().len(), 2, "begun again");
        sets.settle(&HashSet::new());
        assert!(sets.get("a").is_none() && sets.get("b").is_some());
    }

    #[test]
    fn what_is_bounded_makes_room_or_is_refused() {
        let most = (LABEL_BYTES_MAX / LABEL_BYTES) as u64;
        let mut sets = LabelSets::default();
        assert_eq!(sets.check(&part("a", 0, 0..most + 1)), Err(NotTaken::Bytes));
        sets.take(&part("a", 0, 0..most)).unwrap();
        assert_eq!(sets.check(&part("a", most, most..most + 1)), Err(NotTaken::Bytes));
        // No head learns from it.
        sets.take(&part("b", 0, 0..1)).unwrap();
        assert!(sets.get("a").is_none());
        let mut ids = HashSet::new();
        for k in 0..LABEL_SETS_MAX as u64 {
            sets.take(&part(&format!("set {k}"), 0, k..k + 10)).unwrap();
            ids.insert(sets.get(&format!("set {k}")).unwrap().id());
        }
        assert!(sets.get("b").is_none());
        sets.settle(&ids);
        assert_eq!(sets.take(&part("c", 0, 0..1)), Err(NotTaken::Sets));
        assert!(sets.bytes() <= LABEL_BYTES_MAX && sets.is_consistent());
    }
}
