//! Labels: values that rows were given after they had come, from which heads learn.
//!
//! Labels name rows by their offsets in the stream. A window puts them beside its rows, in a column for each set, so that whatever is
//! made of the rows has them too. A row without a label has NaN there.

use crate::offsets::Offsets;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::Arc;

/// Largest magnitude of a label, as of a reward.
pub const LABEL_MAX: f64 = 1e9;
/// Bytes that a label takes.
pub const LABEL_BYTES: usize = size_of::<u64>() + size_of::<f64>();

/// A set of labels: of each row that has one its offset and its value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Labels {
    /// Rising.
    offsets: Vec<u64>,
    #[serde(with = "crate::math::raw")]
    values: Vec<f64>,
    /// What [`Labels::id`] is made from.
    mixed: u64,
}

impl Labels {
    /// Number of labels.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// Bytes held.
    pub fn bytes(&self) -> usize {
        self.len() * LABEL_BYTES
    }

    /// Offset behind the last labelled row, 0 if there is none.
    pub fn end(&self) -> u64 {
        self.offsets.last().map_or(0, |last| last + 1)
    }

    /// By which these labels are known: sets with other labels have other numbers. It has 53 bits, which every client can read.
    pub fn id(&self) -> u64 {
        self.mixed >> 11
    }

    /// Put labels behind those there are.
    ///
    /// # Errors
    /// The first one that cannot be: rows rise, values are finite, and each row has one. Nothing changes then.
    pub fn extend(&mut self, offsets: &[u64], values: &[f64]) -> Result<(), Unfit> {
        Self::check(self.end(), offsets, values)?;
        for (&offset, &value) in offsets.iter().zip(values) {
            self.mixed = mix(mix(self.mixed ^ offset) ^ value.to_bits());
        }
        self.offsets.extend_from_slice(offsets);
        self.values.extend_from_slice(values);
        Ok(())
    }

    /// The labels of all but these rows, under the same number.
    #[must_use]
    pub fn without(&self, removed: &Offsets) -> Self {
        let kept = || self.offsets.iter().zip(&self.values).filter(|(offset, _)| !removed.contains(**offset));
        let (offsets, values) =
            (kept().map(|(&offset, _)| offset).collect(), kept().map(|(_, &value)| value).collect());
        Self { offsets, values, mixed: self.mixed }
    }

    /// Whether labels may stand behind one that ends at `end`.
    ///
    /// # Errors
    /// The first that may not.
    pub fn check(end: u64, offsets: &[u64], values: &[f64]) -> Result<(), Unfit> {
        if offsets.len() != values.len() {
            return Err(Unfit::Lengths(offsets.len(), values.len()));
        }
        let mut least = end;
        for (i, (&offset, &value)) in offsets.iter().zip(values).enumerate() {
            if offset < least || offset == u64::MAX {
                return Err(Unfit::Order(i));
            }
            if value.is_nan() || value.abs() > LABEL_MAX {
                return Err(Unfit::Value(i));
            }
            least = offset + 1;
        }
        Ok(())
    }

    /// Whether the parts fit each other, which a file may contradict.
    pub fn is_consistent(&self) -> bool {
        Self::check(0, &self.offsets, &self.values).is_ok()
    }

    /// The labels of the rows with these offsets, into `out`, NaN where there is none.
    fn put(&self, rows: Range<u64>, out: &mut [f64]) {
        out.fill(f64::NAN);
        let first = self.offsets.partition_point(|&offset| offset < rows.start);
        for (&offset, &value) in self.offsets[first..].iter().zip(&self.values[first..]) {
            if offset >= rows.end {
                break;
            }
            out[(offset - rows.start) as usize] = value;
        }
    }
}

/// Why labels cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Offsets and values differ in number: how many there are of each.
    #[error("there are {0} offsets and {1} values")]
    Lengths(usize, usize),
    /// The offset of this number is not above those before it.
    #[error("offset number {0} is not above those before it")]
    Order(usize),
    /// The value of this number is not finite, or too large.
    #[error("value number {0} is not a number between -1e9 and 1e9")]
    Value(usize),
}

/// The finaliser of splitmix64: a bijection that spreads every bit.
fn mix(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Columns of labels beside rows: of each set its number, and a value for each row.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LabelColumns(Vec<LabelColumn>);

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct LabelColumn {
    id: u64,
    /// (n,), NaN where a row has none.
    #[serde(with = "crate::math::raw")]
    values: Vec<f64>,
}

impl LabelColumn {
    /// Of `rows` rows with these offsets.
    fn of_pieces(set: &Labels, offsets: &Offsets, rows: usize) -> Self {
        let (mut values, mut at) = (vec![f64::NAN; rows], 0);
        for piece in offsets.ranges() {
            let end = at + (piece.end - piece.start) as usize;
            set.put(piece.clone(), &mut values[at..end]);
            at = end;
        }
        Self { id: set.id(), values }
    }

    /// Of `rows` rows from offset `start` on.
    fn of(set: &Labels, start: u64, rows: usize) -> Self {
        let mut values = vec![f64::NAN; rows];
        set.put(start..start + rows as u64, &mut values);
        Self { id: set.id(), values }
    }
}

/// Bit for bit: columns whose rows lack the same labels are equal, though NaN is not.
impl PartialEq for LabelColumn {
    fn eq(&self, other: &Self) -> bool {
        let bits = |value: &f64| value.to_bits();
        self.id == other.id && self.values.iter().map(bits).eq(other.values.iter().map(bits))
    }
}

impl LabelColumns {
    /// The label that row i has in set `id`.
    pub fn get(&self, id: u64, i: usize) -> Option<f64> {
        let column = self.0.iter().find(|column| column.id == id)?;
        column.values.get(i).copied().filter(|value| !value.is_nan())
    }

    /// Whether there are none: the common case.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same sets, for other rows, of which there are none yet.
    pub(crate) fn blank(&self) -> Self {
        Self(self.0.iter().map(|column| LabelColumn { id: column.id, values: Vec::new() }).collect())
    }

    /// Let there be `rows` rows: new ones have no labels.
    pub(crate) fn pad(&mut self, rows: usize) {
        self.0.iter_mut().for_each(|column| column.values.resize(rows, f64::NAN));
    }

    /// Append those that `other` has of its rows `range`, as far as the sets are these.
    pub(crate) fn extend(&mut self, other: &Self, range: Range<usize>) {
        for column in &mut self.0 {
            match other.0.iter().find(|of| of.id == column.id) {
                Some(of) => column.values.extend_from_slice(&of.values[range.clone()]),
                None => column.values.resize(column.values.len() + range.len(), f64::NAN),
            }
        }
    }

    /// Take the sets that are not here from `other`, which has the same rows.
    pub(crate) fn join(&mut self, other: Self) {
        for column in other.0 {
            if self.0.iter().all(|of| of.id != column.id) {
                self.0.push(column);
            }
        }
    }

    /// Add a column of this set, of `rows` rows from offset 0 on.
    pub fn add(&mut self, set: &Labels, rows: usize) {
        if self.0.iter().all(|column| column.id != set.id()) {
            self.0.push(LabelColumn::of(set, 0, rows));
        }
    }

    /// Keep exactly the columns of `sets`, of `rows` rows with these offsets.
    pub(crate) fn set(&mut self, sets: &[Arc<Labels>], offsets: &Offsets, rows: usize) {
        let mut before = std::mem::take(&mut self.0);
        for set in sets {
            let known = before.iter().position(|column| column.id == set.id());
            self.0.push(match known {
                Some(known) => before.swap_remove(known),
                None => LabelColumn::of_pieces(set, offsets, rows),
            });
        }
    }

    /// Put the labels of the rows from number `first` on, the first of which has offset `start`, beside them.
    pub(crate) fn fill(&mut self, sets: &[Arc<Labels>], first: usize, start: u64) {
        for (column, set) in self.0.iter_mut().zip(sets) {
            let out = &mut column.values[first..];
            let rows = start..start + out.len() as u64;
            set.put(rows, out);
        }
    }

    pub(crate) fn reserve_all(&mut self, rows: usize) {
        for LabelColumn { values, .. } in &mut self.0 {
            values.reserve_exact(rows.saturating_sub(values.len()));
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.iter_mut().for_each(|column| column.values.clear());
    }

    pub(crate) fn is_consistent(&self, rows: usize) -> bool {
        self.0.iter().all(|column| column.values.len() == rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_rise_and_are_finite() {
        let mut labels = Labels::default();
        labels.extend(&[2, 5], &[1.0, 2.0]).unwrap();
        let before = labels.clone();
        for (offsets, values, fault) in [
            (&[5][..], &[0.0][..], Unfit::Order(0)),
            (&[6, 6], &[0.0, 0.0], Unfit::Order(1)),
            (&[6, 7], &[0.0, f64::NAN], Unfit::Value(1)),
            (&[6, 7], &[0.0], Unfit::Lengths(2, 1)),
            (&[u64::MAX], &[0.0], Unfit::Order(0)),
        ] {
            assert_eq!(labels.extend(offsets, values), Err(fault));
        }
        assert_eq!(labels, before);
        labels.extend(&[6], &[3.0]).unwrap();
        assert_eq!((labels.len(), labels.end()), (3, 7));
        assert_ne!(labels.id(), before.id());
        let mut at_once = Labels::default();
        at_once.extend(&[2, 5, 6], &[1.0, 2.0, 3.0]).unwrap();
        assert_eq!(at_once.id(), labels.id(), "however many pieces they came in");
        assert!(at_once.id() < 1 << 53);
    }

    #[test]
    fn columns_follow_their_rows() {
        let mut labels = Labels::default();
        labels.extend(&[2, 5], &[1.0, 2.0]).unwrap();
        let sets = [Arc::new(labels)];
        let id = sets[0].id();
        let mut columns = LabelColumns::default();
        columns.set(&sets, &(1..4).into(), 3);
        columns.pad(6);
        columns.fill(&sets, 3, 4);
        let found: Vec<Option<f64>> = (0..7).map(|i| columns.get(id, i)).collect();
        assert_eq!(found, [None, Some(1.0), None, None, Some(2.0), None, None]);
        let mut part = columns.blank();
        part.extend(&columns, 4..6);
        part.extend(&LabelColumns::default(), 0..1);
        assert_eq!((part.get(id, 0), part.get(id, 1), part.get(id, 2)), (Some(2.0), None, None));
        assert!(part.is_consistent(3));
        let mut other = LabelColumns::default();
        other.join(part.clone());
        assert_eq!(other, part);
        columns.set(&[], &Offsets::default(), 6);
        assert!(columns.is_empty() && columns.get(id, 1).is_none());
        (0..2).for_each(|_| columns.add(&sets[0], 3));
        assert_eq!((columns.0.len(), columns.get(id, 2), columns.get(id, 1)), (1, Some(1.0), None));
    }
}
