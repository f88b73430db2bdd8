//! Which rows a model has learned, and from which on each of its features counts: what is to be known to take rows out of it again.

use crate::removal::Offsets;
use serde::{Deserialize, Serialize};

/// Gaps between rows that are remembered at most. A model with more does not know its rows.
const GAPS_MAX: u32 = 1 << 18;

/// Rows learned, and since which each feature has counted: it is 0 in rows before.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Learned {
    /// Offset of the first row that each feature counts from (m,), ascending.
    since: Vec<u64>,
    /// Offsets of the rows.
    offsets: Offsets,
    /// Times that rows were left out.
    gaps: u32,
    /// Offset of the first row that was followed ([`crate::math::statistics::Statistics::follows_rows`]), where rows are.
    followed_from: u64,
}

impl Learned {
    /// No rows, for m features.
    pub(super) fn new(features: usize) -> Self {
        Self { since: vec![0; features], offsets: Offsets::default(), gaps: 0, followed_from: 0 }
    }

    /// Offset of the first row that each feature counts from (m,).
    pub(super) fn since(&self) -> &[u64] {
        &self.since
    }

    /// Offsets of the rows.
    pub(super) fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    /// Rows from `offset` on, `count` of them, are learned. Whether they can be remembered.
    pub(super) fn note(&mut self, offset: u64, count: usize) -> bool {
        let before = self.offsets.ranges().len();
        self.offsets.insert(offset..offset + count as u64);
        self.gaps += u32::from(self.offsets.ranges().len() > before);
        self.gaps <= GAPS_MAX
    }

    /// One more feature counts, from the row on that was learned `before` rows before the one at `offset`.
    pub(super) fn admit(&mut self, offset: u64, mut before: u64) {
        let mut from = offset;
        for range in self.offsets.ranges().iter().rev().filter(|range| range.start < offset) {
            let here = offset.min(range.end) - range.start;
            from = offset.min(range.end) - before.min(here);
            before -= before.min(here);
            if before == 0 {
                break;
            }
        }
        let last = self.since.last().copied().unwrap_or(0);
        self.since.push(from.max(last));
    }

    /// Rows are followed from this offset on.
    pub(super) fn follow_from(&mut self, offset: u64) {
        self.followed_from = offset;
    }

    /// Offset of the first row that was followed, where rows are.
    pub(super) fn followed_from(&self) -> u64 {
        self.followed_from
    }

    /// Features that count in the row of this offset.
    pub(super) fn features_at(&self, offset: u64) -> usize {
        self.since.partition_point(|&since| since <= offset)
    }

    /// The first offset behind this one from which on rows are learned otherwise: with more features, or followed.
    pub(super) fn next_change(&self, offset: u64) -> u64 {
        let feature = self.since.get(self.features_at(offset)).copied().unwrap_or(u64::MAX);
        if self.followed_from > offset { feature.min(self.followed_from) } else { feature }
    }

    /// How many rows with these offsets were learned.
    pub(super) fn count_of(&self, offsets: &Offsets) -> u64 {
        self.offsets.count() - self.offsets.without(offsets).count()
    }

    /// Offsets are larger by `count` than was said.
    pub(super) fn shift(&mut self, count: u64) {
        self.offsets.shift(count);
        let all = self.since.iter_mut().chain([&mut self.followed_from]);
        all.filter(|offset| **offset > 0).for_each(|offset| *offset += count);
    }

    /// Rows were elsewhere: `at` says where, with `holes` between them.
    pub(super) fn spread(&mut self, at: impl Fn(u64) -> u64, holes: &Offsets) {
        let spread = |range: &std::ops::Range<u64>| Offsets::from(range.start..at(range.end - 1) + 1);
        let all: Vec<Offsets> = self.offsets.ranges().iter().map(spread).collect();
        self.offsets = all.iter().flat_map(|offsets| offsets.without(holes).ranges().to_vec()).collect();
        let all = self.since.iter_mut().chain([&mut self.followed_from]);
        all.filter(|offset| **offset > 0).for_each(|offset| *offset = at(*offset));
    }

    /// Rows are removed: they have not been learned.
    pub(super) fn remove(&mut self, removed: &Offsets) {
        self.offsets = self.offsets.without(removed);
    }

    /// Whether it fits m features.
    pub(super) fn is_consistent(&self, features: usize) -> bool {
        self.since.len() == features && self.since.is_sorted()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feature_counts_from_a_row_that_was_learned() {
        let mut learned = Learned::new(2);
        assert!(learned.note(5, 3) && learned.note(20, 2));
        // Rows 5, 6, 7, 20, 21, of which the last is being learned.
        for (before, since) in [(9, 5), (4, 5), (3, 6), (1, 20), (0, 21)] {
            let mut learned = learned.clone();
            learned.admit(21, before);
            assert_eq!((learned.features_at(since), learned.next_change(4)), (3, since), "{before} rows before");
            assert_eq!(learned.features_at(since - 1), 2);
            assert_eq!(learned.next_change(since), u64::MAX);
        }
    }
}
