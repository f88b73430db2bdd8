//! Offsets of rows, as ranges.

use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Offsets of rows, as ascending ranges that neither overlap nor touch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Offsets(Vec<Range<u64>>);

impl Offsets {
    /// The ranges, ascending.
    pub fn ranges(&self) -> &[Range<u64>] {
        &self.0
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// How many offsets these are.
    pub fn count(&self) -> u64 {
        self.0.iter().map(|range| range.end - range.start).sum()
    }

    /// Whether this offset is one of them. O(log ranges).
    pub fn contains(&self, offset: u64) -> bool {
        let behind = self.0.partition_point(|range| range.start <= offset);
        behind > 0 && offset < self.0[behind - 1].end
    }

    /// How many of them lie within a range.
    pub fn count_within(&self, range: &Range<u64>) -> u64 {
        let first = self.0.partition_point(|other| other.end <= range.start);
        let within = self.0[first..].iter().take_while(|other| other.start < range.end);
        within.map(|other| other.end.min(range.end) - other.start.max(range.start)).sum()
    }

    /// The first range that ends behind an offset.
    pub fn first_behind(&self, offset: u64) -> Option<&Range<u64>> {
        self.0.get(self.0.partition_point(|range| range.end <= offset))
    }

    /// Offset from which on, before `end`, there are `count` that are not among them, or 0.
    pub fn back_from(&self, end: u64, count: u64) -> u64 {
        let mut from = end.saturating_sub(count);
        for range in self.0.iter().rev().filter(|range| range.start < end) {
            if range.end <= from {
                break;
            }
            from = from.saturating_sub(range.end.min(end) - range.start);
        }
        from
    }

    /// The offsets that lie within a range.
    #[must_use]
    pub fn within(&self, range: &Range<u64>) -> Self {
        self.0.iter().map(|other| other.start.max(range.start)..other.end.min(range.end)).collect()
    }

    /// The offsets of `range` that are not among them.
    #[must_use]
    pub fn between(&self, range: Range<u64>) -> Self {
        Self::from(range).without(self)
    }

    /// Forget those before an offset.
    pub(crate) fn forget_before(&mut self, offset: u64) {
        self.0.retain_mut(|range| {
            range.start = range.start.max(offset);
            range.start < range.end
        });
    }

    /// Whether they ascend from `start` on, which a file may contradict.
    pub fn are_consistent(&self, start: u64) -> bool {
        let mut end = start;
        self.0.iter().all(|range| range.start >= std::mem::replace(&mut end, range.end) && range.start < range.end)
    }

    /// Offset behind the last of `number - first` rows, where these rows begin at `first` and are at none of
    /// these offsets.
    pub fn stretched(&self, first: u64, number: u64) -> u64 {
        let mut offset = number;
        for range in self.0.iter().filter(|range| range.end > first) {
            let from = range.start.max(first);
            // A row that would be at the hole is behind it; the end of the rows before it is before it.
            if from >= offset {
                break;
            }
            offset += range.end - from;
        }
        offset
    }

    /// Add a range; an empty one adds nothing. Right behind all others that is done without allocating.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        if let Some(last) = self.0.last_mut().filter(|last| (last.start..=last.end).contains(&range.start)) {
            last.end = last.end.max(range.end);
            return;
        }
        let first = self.0.partition_point(|other| other.end < range.start);
        let behind = self.0.partition_point(|other| other.start <= range.end);
        let joined =
            self.0[first..behind].iter().fold(range, |all, other| all.start.min(other.start)..all.end.max(other.end));
        self.0.splice(first..behind, [joined]);
    }

    /// Add all of `others`. O(n log n) of the ranges of both.
    pub fn join(&mut self, others: &Self) {
        let mut all = [&self.0[..], &others.0[..]].concat();
        // Each range is then added behind all others.
        all.sort_by_key(|range| range.start);
        *self = all.into_iter().collect();
    }

    /// Let each be larger by `count`.
    pub(crate) fn shift(&mut self, count: u64) {
        self.0.iter_mut().for_each(|range| *range = range.start + count..range.end + count);
    }

    /// Whether some of them are among `others`.
    pub fn meets(&self, others: &Self) -> bool {
        if self.0.len() > others.0.len() {
            return others.meets(self);
        }
        self.0.iter().any(|range| {
            let first = others.0.partition_point(|other| other.end <= range.start);
            others.0.get(first).is_some_and(|other| other.start < range.end)
        })
    }

    /// The ones that are not among `others`.
    #[must_use]
    pub fn without(&self, others: &Self) -> Self {
        let mut left = Vec::with_capacity(self.0.len());
        for range in &self.0 {
            let mut from = range.start;
            for other in &others.0[others.0.partition_point(|other| other.end <= from)..] {
                if other.start >= range.end {
                    break;
                }
                left.push(from..other.start);
                from = from.max(other.end);
            }
            left.push(from..range.end);
        }
        left.retain(|range| range.start < range.end);
        Self(left)
    }
}

impl From<Range<u64>> for Offsets {
    fn from(range: Range<u64>) -> Self {
        std::iter::once(range).collect()
    }
}

impl FromIterator<Range<u64>> for Offsets {
    fn from_iter<I: IntoIterator<Item = Range<u64>>>(ranges: I) -> Self {
        let mut all = Self::default();
        ranges.into_iter().for_each(|range| all.insert(range));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn joined_they_are_those_of_both(both in proptest::collection::vec((0_u64..60, 1_u64..9, any::<bool>()), 0..12)) {
            let of = |side: bool| both.iter().filter(|piece| piece.2 == side).map(|&(start, len, _)| start..start + len).collect::<Offsets>();
            let (mut joined, other) = (of(true), of(false));
            joined.join(&other);
            prop_assert!((0..70).all(|offset| joined.contains(offset) == (of(true).contains(offset) || other.contains(offset))));
            prop_assert_eq!(joined, both.iter().map(|&(start, len, _)| start..start + len).collect::<Offsets>());
        }

        #[test]
        fn holes_are_counted_and_passed_over(pieces in proptest::collection::vec((0_u64..60, 1_u64..9), 0..8), from in 0_u64..60, count in 0_u64..40) {
            let holes: Offsets = pieces.iter().map(|&(start, len)| start..start + len).collect();
            prop_assert!(holes.are_consistent(0));
            let kept = |range: Range<u64>| range.filter(|&offset| !holes.contains(offset)).count() as u64;
            let all = from..from + count;
            prop_assert_eq!(holes.count_within(&all), count - kept(all.clone()));
            prop_assert_eq!(holes.between(all.clone()).count(), kept(all));
            let end = holes.stretched(from, from + count);
            prop_assert_eq!(kept(from..end), count);
            prop_assert!(count == 0 || !holes.contains(end - 1), "it ends with a row");
            let start = holes.back_from(100, count);
            prop_assert!(kept(start..100) == count || start == 0 && kept(0..100) <= count);
            let mut later = holes.clone();
            later.forget_before(from);
            prop_assert_eq!(later.between(from..100), holes.between(from..100));
            prop_assert!(later.ranges().iter().all(|range| range.start >= from));
            let next = holes.first_behind(from).map(|range| range.end > from);
            prop_assert!(next.unwrap_or(true) && holes.contains(from) == holes.first_behind(from).is_some_and(|range| range.start <= from));
        }
    }
}
