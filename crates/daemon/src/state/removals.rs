//! Rows that were taken back: where they were, who asked for it, and since when critics are without their influence.

use super::record::{Group, Record, RemovedRows, TakenRows};
use crate::learner::Learner;
use crate::learner::removal::{Offsets, Selector};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::ops::Range;

/// Removals kept, the last ones.
const TOLD: usize = 64;

/// All removals so far.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Removals {
    /// Offsets of all rows that were taken back.
    offsets: Offsets,
    /// Offsets of the rows that begin chains since then.
    starts: Offsets,
    /// How often rows were taken back.
    count: u64,
    /// The last ones.
    told: Vec<Removal>,
    /// Offsets of rows whose bytes were erased, and the first removals, of which there are none left.
    #[serde(default, skip_serializing_if = "Offsets::is_empty")]
    erased: Offsets,
    #[serde(default, skip_serializing_if = "is_zero")]
    erased_count: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// One removal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Removal {
    /// Offset behind the last row when it was done.
    pub offset: u64,
    /// Unix seconds then.
    pub time: f64,
    /// Rows that were taken back.
    pub rows: u64,
    /// Who asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What was asked for.
    pub selectors: Vec<Selector>,
    /// Of each critic that had learned some of these rows, what became of it.
    pub critics: Vec<Influence>,
}

/// What a critic has of rows that were taken back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Influence {
    /// Name of the critic.
    pub critic: String,
    /// Its generation right behind the removal.
    pub generation: u64,
    /// Whether its sums were without the rows from there on; if not, it is stale until it is free.
    pub subtracted: bool,
    /// The first generation without any influence of theirs, and the offset at which it took over.
    pub free: Option<(u64, u64)>,
}

impl Removals {
    /// Whether nothing was taken back.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How often rows were taken back.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Offsets of all rows that were taken back.
    pub fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    /// The last removals, oldest first.
    pub fn told(&self) -> &[Removal] {
        &self.told
    }

    /// Take rows back.
    pub(crate) fn note(&mut self, removed: &RemovedRows, offset: u64, time: f64) {
        self.count += 1;
        self.offsets.join(&removed.offsets);
        self.starts.join(&removed.starts);
        if self.told.len() == TOLD {
            self.told.remove(0);
        }
        if removed.offsets.without(&self.erased).is_empty() {
            // The journal was written anew after it.
            self.erased_count = self.count;
        }
        let RemovedRows { offsets, selectors, by, reason, .. } = removed.clone();
        let rows = offsets.count();
        self.told.push(Removal { offset, time, rows, by, reason, selectors, critics: Vec::new() });
    }

    /// The journal has a hole there, since rows were erased.
    pub(super) fn note_hole(&mut self, offsets: Range<u64>) {
        self.erased.insert(offsets);
    }

    /// All rows that were taken back so far have been erased.
    pub(crate) fn note_erasure(&mut self) {
        self.erased.join(&self.offsets);
        self.erased_count = self.count;
    }

    /// Rows from an offset on that were taken back and not erased, and when the first removal was that is not erased, Unix seconds.
    pub fn unerased(&self, from: u64) -> Option<(u64, f64)> {
        let rows = self.offsets.without(&self.erased).count_within(&(from..u64::MAX));
        let waiting = self.count.saturating_sub(self.erased_count) as usize;
        let since = self.told.get(self.told.len().saturating_sub(waiting)).map_or(0.0, |first| first.time);
        (rows > 0).then_some((rows, since))
    }

    /// A critic had learned some of the rows that were taken back last.
    pub(super) fn concerns(&mut self, learner: &Learner) {
        let Some(last) = self.told.last_mut() else { return };
        let (critic, generation) = (learner.settings().name.clone(), learner.generation());
        last.critics.retain(|influence| influence.critic != critic);
        last.critics.push(Influence { critic, generation, subtracted: !learner.is_stale(), free: None });
    }

    /// A critic has nothing of any removed row from here on.
    pub(super) fn is_free(&mut self, learner: &Learner) {
        let of = |influence: &&mut Influence| influence.critic == learner.settings().name && influence.free.is_none();
        let critics = self.told.iter_mut().flat_map(|removal| &mut removal.critics);
        critics.filter(of).for_each(|influence| influence.free = Some((learner.generation(), learner.learned())));
    }

    /// Forget names of streams where the last removals tell of them, and the words that came with each: they may have names, too.
    pub(crate) fn forget_names(&mut self, names: &HashMap<String, String>) {
        for Removal { by, reason, selectors, .. } in &mut self.told {
            forget_names(names, selectors);
            (*by, *reason) = (None, None);
        }
    }

    /// A group as it is without the rows that were taken back: holes are in their places.
    pub fn clean(&self, group: Group) -> Group {
        let span = Offsets::from(group.first_offset..group.end.offset);
        if !self.offsets.meets(&span) && !self.starts.meets(&span) {
            return group;
        }
        let (mut offset, mut records) = (group.first_offset, Vec::with_capacity(group.records.len()));
        for record in group.records {
            match record {
                Record::Rows(taken) => {
                    let end = offset + taken.batch.len() as u64;
                    self.clean_rows(taken, offset, &mut records);
                    offset = end;
                }
                Record::Hole(rows) => {
                    offset += rows;
                    records.push(Record::Hole(rows));
                }
                other => records.push(other),
            }
        }
        Group { records, ..group }
    }

    fn clean_rows(&self, mut taken: TakenRows, first: u64, records: &mut Vec<Record>) {
        let end = first + taken.batch.len() as u64;
        for (starts, offset) in taken.starts_chain.iter_mut().zip(first..) {
            *starts |= self.starts.contains(offset);
        }
        let kept = self.offsets.between(first..end);
        if kept.count() == end - first {
            records.push(Record::Rows(taken));
            return;
        }
        let mut at = first;
        for range in kept.ranges() {
            if range.start > at {
                records.push(Record::Hole(range.start - at));
            }
            let part = (range.start - first) as usize..(range.end - first) as usize;
            records.push(Record::Rows(TakenRows {
                stream: taken.stream,
                starts_chain: taken.starts_chain[part.clone()].to_vec(),
                batch: taken.batch.piece(part),
            }));
            at = range.end;
        }
        if at < end {
            records.push(Record::Hole(end - at));
        }
    }
}

/// Replace names of streams by others in what was asked for.
pub(crate) fn forget_names(names: &HashMap<String, String>, selectors: &mut [Selector]) {
    for selector in selectors {
        let (Selector::Stream(stream) | Selector::Session { stream, .. }) = selector else { continue };
        if let Some(other) = names.get(stream) {
            *selector = Selector::Stream(other.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_wait_for_their_erasure_until_they_are_erased_or_forgotten() {
        let removed = |offsets: Range<u64>| RemovedRows { offsets: Offsets::from(offsets), ..RemovedRows::default() };
        let mut removals = Removals::default();
        assert_eq!(removals.unerased(0), None);
        removals.note(&removed(3..5), 9, 10.0);
        removals.note(&removed(6..9), 12, 11.0);
        assert_eq!((removals.unerased(0), removals.unerased(8)), (Some((5, 10.0)), Some((1, 10.0))));
        removals.note_erasure();
        assert_eq!(removals.unerased(0), None);
        removals.note(&removed(20..25), 30, 12.0);
        assert_eq!((removals.unerased(0), removals.unerased(25)), (Some((5, 12.0)), None));
        // The journal that was written anew is read from its first group on.
        let mut again = Removals::default();
        again.note_hole(3..5);
        again.note_hole(6..9);
        again.note(&removed(3..5), 9, 10.0);
        again.note(&removed(6..9), 12, 11.0);
        again.note(&removed(20..25), 30, 12.0);
        assert_eq!(again, removals);
    }
}
