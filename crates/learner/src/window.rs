//! The last rows of the stream, raw, kept for the next refit; all critics share one window.

use crate::labels::Labels;
use crate::offsets::Offsets;
use crate::transition::{ACTION_NUMBERS_MAX, Batch, Rows};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Rows per segment: the unit of eviction and of copying on write.
pub const SEGMENT_ROWS: usize = 4096;

/// The rows with offsets `start()..end()`, but for those that were taken back. Cloning shares the rows: a refit reads a clone while the
/// stream goes on.
#[derive(Clone, Debug)]
pub struct Window {
    dim: usize,
    rewards_per_row: usize,
    /// Numbers in an action, once a row has brought one; then whether a row has brought a time.
    actions_per_row: usize,
    keeps_times: bool,
    /// Labels of rows, a column for each set.
    labels: Vec<Arc<Labels>>,
    rows_max: u64,
    segments: VecDeque<Arc<Rows>>,
    start: u64,
    end: u64,
    /// Rows from this offset on are not forgotten, however many there are.
    held_from: u64,
    /// Offsets among these whose rows were taken back.
    holes: Offsets,
}

/// A window as files have it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WrittenWindow {
    start: u64,
    held_from: u64,
    rows: Rows,
    #[serde(default, skip_serializing_if = "Offsets::is_empty")]
    holes: Offsets,
}

impl WrittenWindow {
    /// The window, which holds at least `rows_max` rows. Its rows have no labels yet.
    ///
    /// # Errors
    /// If its columns have several lengths.
    pub fn window(self, rows_max: usize) -> Result<Window, &'static str> {
        let Self { start, held_from, rows, holes } = self;
        if !rows.is_consistent() || !holes.are_consistent(start) {
            return Err("rows of several lengths");
        }
        let mut window = Window::starting_at(rows.dim, rows.rewards_per_row, rows_max, start);
        window.hold(start);
        let mut from = 0;
        for hole in holes.ranges() {
            let to = rows.len().min(from + (hole.start - window.end) as usize);
            window.extend(&rows, from..to);
            window.skip(hole.end - hole.start);
            from = to;
        }
        window.extend(&rows, from..rows.len());
        window.hold(held_from);
        Ok(window)
    }
}

impl Window {
    /// An empty window that holds at least `rows_max` rows of states (D,) and rewards (H,) before it forgets the oldest,
    /// a segment at a time.
    pub fn new(dim: usize, rewards_per_row: usize, rows_max: usize) -> Self {
        let (rows_max, segments) = (rows_max as u64, VecDeque::new());
        Self {
            dim,
            rewards_per_row,
            actions_per_row: 0,
            keeps_times: false,
            labels: Vec::new(),
            rows_max,
            segments,
            start: 0,
            end: 0,
            held_from: u64::MAX,
            holes: Offsets::default(),
        }
    }

    /// These rows, the first of which has offset 0.
    pub fn of(rows: &Rows) -> Self {
        let mut window = Self::new(rows.dim, rows.rewards_per_row, rows.len());
        window.extend(rows, 0..rows.len());
        window
    }

    /// An empty window whose first row will have offset `start`.
    pub fn starting_at(dim: usize, rewards_per_row: usize, rows_max: usize, start: u64) -> Self {
        Self { start, end: start, ..Self::new(dim, rewards_per_row, rows_max) }
    }

    /// Keep all rows from offset `from` on until they are learned. The caller that pushes bounds their number.
    pub fn hold(&mut self, from: u64) {
        self.held_from = from;
    }

    /// State dimension D.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Rewards per row H.
    pub fn rewards_per_row(&self) -> usize {
        self.rewards_per_row
    }

    /// Numbers in an action; 0 while no row has brought one.
    pub fn actions_per_row(&self) -> usize {
        self.actions_per_row
    }

    /// Bytes that one row takes.
    pub fn bytes_per_row(&self) -> usize {
        Rows::bytes_per_row(self.dim, self.rewards_per_row) + self.bytes_of_extras()
    }

    fn bytes_of_extras(&self) -> usize {
        size_of::<f64>() * (self.actions_per_row + self.labels.len())
    }

    /// Offset of the oldest row.
    pub fn start(&self) -> u64 {
        self.start
    }

    /// Offset behind the newest row: rows ever pushed.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// Rows held.
    pub fn len(&self) -> usize {
        self.count(self.start..self.end) as usize
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Offsets of rows that were taken back, as far as rows before or behind them are held.
    pub fn holes(&self) -> &Offsets {
        &self.holes
    }

    /// Rows held with these offsets.
    pub fn count(&self, offsets: Range<u64>) -> u64 {
        let within = offsets.start.max(self.start)..offsets.end.min(self.end);
        if within.is_empty() { 0 } else { within.end - within.start - self.holes.count_within(&within) }
    }

    /// Offset behind the first `count` rows from offset `from` on, which has that many.
    pub fn behind(&self, from: u64, count: u64) -> u64 {
        self.holes.stretched(from, from + count)
    }

    /// Most bytes that a window of `rows_max` rows of states (D,) and rewards (H,) takes.
    pub fn bytes_max(dim: usize, rewards_per_row: usize, rows_max: usize) -> usize {
        (rows_max.next_multiple_of(SEGMENT_ROWS) + SEGMENT_ROWS) * Rows::bytes_per_row(dim, rewards_per_row)
    }

    /// Bytes that the rows take.
    pub fn bytes(&self) -> usize {
        self.segments.len() * SEGMENT_ROWS * self.bytes_per_row()
    }

    /// Append row i of `batch` as a row of stream number `stream`.
    ///
    /// # Panics
    /// If the batch has other dimensions.
    pub fn push(&mut self, stream: u32, starts_chain: bool, batch: &Batch, i: usize) {
        self.widen(batch.action(i).map_or(0, <[f64]>::len), batch.time(i).is_some());
        self.last_mut().push(stream, starts_chain, batch, i);
        self.label_last(1);
        self.end += 1;
    }

    /// Append the rows of `batch` as rows of stream number `stream`, with one of `starts_chain` for each.
    ///
    /// # Panics
    /// If they have other dimensions, or there is another number of flags.
    pub fn extend_from_batch(&mut self, stream: u32, starts_chain: &[bool], batch: &Batch) {
        let mut from = 0;
        self.widen(batch.action(0).map_or(0, <[f64]>::len), batch.time(0).is_some());
        while from < batch.len() {
            let to = batch.len().min(from + self.room());
            self.last_mut().extend_from_batch(stream, &starts_chain[from..to], batch, from..to);
            self.label_last(to - from);
            self.end += (to - from) as u64;
            from = to;
        }
    }

    /// Append rows `range` of `rows`.
    ///
    /// # Panics
    /// If they have other dimensions.
    pub fn extend(&mut self, rows: &Rows, range: Range<usize>) {
        let mut from = range.start;
        self.widen(rows.actions_per_row, rows.keeps_times);
        while from < range.end {
            let to = range.end.min(from + self.room());
            self.last_mut().extend(rows, from..to);
            self.end += (to - from) as u64;
            from = to;
        }
    }

    /// Whether `count` further rows may make it forget some.
    pub(crate) fn is_about_to_forget(&self, count: usize) -> bool {
        let begins_a_segment = self.end.is_multiple_of(SEGMENT_ROWS as u64) || count > self.room();
        begins_a_segment && self.end - self.start + count as u64 >= self.rows_max
    }

    /// Go on behind `count` rows that were taken back before they came here.
    pub fn skip(&mut self, count: u64) {
        let end = self.end + count;
        self.holes.insert(self.end..end);
        while self.end < end {
            let room = self.room() as u64;
            self.last_mut();
            self.end = end.min(self.end + room);
        }
    }

    /// Take rows back. Those with the offsets `starts` begin chains from here on.
    pub fn remove(&mut self, offsets: &Offsets, starts: &Offsets) {
        let mut start = self.start;
        for segment in &mut self.segments {
            let span = start..self.end.min((start / SEGMENT_ROWS as u64 + 1) * SEGMENT_ROWS as u64);
            start = span.end;
            if !offsets.meets(&span.clone().into()) && !starts.meets(&span.clone().into()) {
                continue;
            }
            let there: Vec<u64> = span.filter(|&offset| !self.holes.contains(offset)).collect();
            let kept: Vec<usize> = (0..there.len()).filter(|&i| !offsets.contains(there[i])).collect();
            let mut rows = segment.only(&kept);
            for (flag, &i) in rows.starts_chain.iter_mut().zip(&kept) {
                *flag |= starts.contains(there[i]);
            }
            *segment = Arc::new(rows);
        }
        let here = Offsets::from(self.start..self.end);
        self.holes.join(&offsets.without(&offsets.without(&here)));
    }

    /// Keep actions of `actions` numbers, up to [`ACTION_NUMBERS_MAX`], and times, from here on, where rows bring some.
    fn widen(&mut self, actions: usize, times: bool) {
        let width = self.actions_per_row.max(actions.min(ACTION_NUMBERS_MAX));
        if (width, self.keeps_times || times) != (self.actions_per_row, self.keeps_times) {
            (self.actions_per_row, self.keeps_times) = (width, self.keeps_times || times);
            for segment in &mut self.segments {
                Arc::make_mut(segment).widen(width, self.keeps_times);
            }
        }
    }

    /// Give the rows of `sets`, those here and those to come, their labels, and forget all others.
    pub fn set_labels(&mut self, sets: Vec<Arc<Labels>>) {
        let known = self.labels.iter().map(|set| set.id());
        if known.eq(sets.iter().map(|set| set.id())) {
            return;
        }
        let mut start = self.start;
        for segment in &mut self.segments {
            let end = self.end.min((start / SEGMENT_ROWS as u64 + 1) * SEGMENT_ROWS as u64);
            let rows = Arc::make_mut(segment);
            let count = rows.len();
            rows.labels.set(&sets, &self.holes.between(start..end), count);
            rows.labels.reserve_all(SEGMENT_ROWS);
            start = end;
        }
        self.labels = sets;
    }

    /// The labels that rows get.
    pub fn labels(&self) -> &[Arc<Labels>] {
        &self.labels
    }

    /// The last `count` rows, the first of which is that at the end so far, have just been put in: give them their labels.
    fn label_last(&mut self, count: usize) {
        if self.labels.is_empty() {
            return;
        }
        let last = Arc::make_mut(self.segments.back_mut().expect("rows have been put in"));
        let first = last.len() - count;
        last.labels.fill(&self.labels, first, self.end);
    }

    /// No rows yet, with the columns that are kept.
    fn blank(&self) -> Rows {
        let mut rows = Rows::new(self.dim, self.rewards_per_row);
        rows.widen(self.actions_per_row, self.keeps_times);
        rows.labels.set(&self.labels, &Offsets::default(), 0);
        rows
    }

    /// Rows that the last segment, or the next one if that is full, has room for.
    fn room(&self) -> usize {
        SEGMENT_ROWS - (self.end % SEGMENT_ROWS as u64) as usize
    }

    fn last_mut(&mut self) -> &mut Rows {
        // Segments begin at multiples of their size, wherever the window began: rows of two segments are learned one after the
        // other, so that where they end decides the last bits of a model.
        if self.segments.is_empty() || self.end.is_multiple_of(SEGMENT_ROWS as u64) {
            let rows = SEGMENT_ROWS as u64;
            while self.segments.front().is_some()
                && self.end - self.start >= self.rows_max + rows
                && (self.start / rows + 1) * rows <= self.held_from
            {
                self.segments.pop_front();
                self.start = (self.start / rows + 1) * rows;
                self.holes.forget_before(self.start);
            }
            self.segments.push_back(Arc::new(self.blank()));
        }
        // Copies the segment once if a refit still reads it.
        let last = Arc::make_mut(self.segments.back_mut().expect("one has just been made sure of"));
        last.reserve_all(SEGMENT_ROWS);
        last
    }

    /// The rows from offset `from` on, piece by piece, each with the offset of its first row.
    ///
    /// # Panics
    /// If rows from `from` on have been forgotten.
    pub fn since(&self, from: u64) -> impl Iterator<Item = (&Rows, Range<usize>, u64)> {
        assert!(from >= self.start, "rows before offset {} have been forgotten", self.start);
        let (mut segments, mut next) = (self.segments.iter(), self.start);
        // The segment that is gone through, how far, and the offsets from there to its end.
        let (mut rows, mut at, mut span) = (None, 0, self.start..self.start);
        std::iter::from_fn(move || {
            loop {
                if span.is_empty() {
                    rows = Some(&**segments.next()?);
                    (at, span) = (0, next..self.end.min((next / SEGMENT_ROWS as u64 + 1) * SEGMENT_ROWS as u64));
                    next = span.end;
                    continue;
                }
                let hole = self.holes.first_behind(span.start);
                if let Some(hole) = hole.filter(|hole| hole.start <= span.start) {
                    span.start = hole.end.min(span.end);
                    continue;
                }
                let end = hole.map_or(span.end, |hole| hole.start.min(span.end));
                let (offset, first) = (span.start, at);
                (span.start, at) = (end, at + (end - offset) as usize);
                if end > from {
                    let skipped = from.saturating_sub(offset);
                    return Some((rows?, first + skipped as usize..at, offset + skipped));
                }
            }
        })
    }

    /// A window that shares the rows from offset `from` on, and some before it; all rows if some of those asked for have
    /// been forgotten.
    pub fn from_offset(&self, from: u64) -> Self {
        let (labels, mut holes) = (self.labels.clone(), self.holes.clone());
        let first = (from.min(self.end) / SEGMENT_ROWS as u64 * SEGMENT_ROWS as u64).max(self.start);
        let start = if from >= self.end { self.end } else { first };
        let rows = SEGMENT_ROWS as u64;
        let spared = if start == self.start { 0 } else { (start.div_ceil(rows) - self.start / rows) as usize };
        holes.forget_before(start);
        let segments = self.segments.iter().skip(spared).cloned().collect();
        Self { segments, labels, start, holes, ..*self }
    }

    /// As files have it.
    pub fn written(&self) -> WrittenWindow {
        let mut rows = self.flatten();
        if rows.carries.iter().all(|&carry| carry == 1.0) {
            rows.carries = Vec::new();
        }
        WrittenWindow { start: self.start, held_from: self.held_from, rows, holes: self.holes.clone() }
    }

    /// All rows in one piece.
    pub fn flatten(&self) -> Rows {
        self.flatten_since(self.start)
    }

    /// The rows from offset `from` on in one piece.
    ///
    /// # Panics
    /// If rows from `from` on have been forgotten.
    pub fn flatten_since(&self, from: u64) -> Rows {
        let mut out = self.blank();
        for (rows, range, _) in self.since(from) {
            out.extend(rows, range);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transition::BatchParts;

    fn batch(value: f64) -> Batch {
        Batch::new(BatchParts {
            stream: "s".into(),
            dim: 1,
            rewards_per_row: 1,
            states: vec![value, value + 1.0],
            rewards: vec![value],
            ..BatchParts::default()
        })
        .unwrap()
    }

    #[test]
    fn forgets_the_oldest_and_keeps_at_least_what_was_asked() {
        let mut window = Window::new(1, 1, 5000);
        for i in 0..30_000 {
            window.push(0, false, &batch(f64::from(i)), 0);
            assert!(window.len() >= 5000.min(i as usize + 1) && window.len() <= 5000 + 2 * SEGMENT_ROWS);
        }
        assert_eq!(window.end(), 30_000);
        let mut expected = window.start();
        for (rows, range, offset) in window.since(window.start()) {
            assert_eq!(offset, expected);
            assert_eq!(rows.state(range.start)[0], offset as f64);
            expected += range.len() as u64;
        }
        assert_eq!(expected, 30_000);
        let (rows, range, offset) = window.since(29_999).last().unwrap();
        assert_eq!((range.len(), offset, rows.state(range.start)[0]), (1, 29_999, 29_999.0));
        assert_eq!(window.since(30_000).count(), 0);
        assert_eq!(window.flatten().len(), window.len());
    }

    #[test]
    fn the_end_of_a_window_can_be_shared() {
        let mut window = Window::new(1, 1, 5000);
        (0..20_000).for_each(|i| window.push(0, false, &batch(f64::from(i)), 0));
        for from in [0, window.start(), 15_000, 19_999, 20_000] {
            let shared = window.from_offset(from);
            assert_eq!(shared.end(), 20_000);
            assert!(shared.start() <= from.max(window.start()), "{from}: {}", shared.start());
            assert!(shared.len() < SEGMENT_ROWS + 20_000 - from.max(window.start()) as usize, "{from}");
            let first = from.max(window.start());
            assert_eq!(shared.since(first).map(|(_, range, _)| range.len()).sum::<usize>(), 20_000 - first as usize);
        }
    }

    /// Value of the state of each row, with its offset.
    fn told(window: &Window, from: u64) -> Vec<(u64, f64)> {
        let row = |(rows, range, first): (&Rows, Range<usize>, u64)| {
            let told: Vec<(u64, f64)> = (first..).zip(range.map(|i| rows.state(i)[0])).collect();
            told
        };
        window.since(from).flat_map(row).collect()
    }

    #[test]
    fn rows_that_are_taken_back_leave_holes_wherever_they_were() {
        let removed: Offsets = [10..11, 4000..4200, 8192..12_288, 19_990..20_000].into_iter().collect();
        let kept: Vec<(u64, f64)> =
            removed.between(0..20_100).ranges().iter().cloned().flatten().map(|i| (i, i as f64)).collect();
        let (mut labels, mut early) = (Labels::default(), Window::starting_at(1, 1, 30_000, 0));
        labels.extend(&[9, 10, 4200, 20_050], &[1.0, 2.0, 3.0, 4.0]).unwrap();
        let labels = vec![Arc::new(labels)];
        let push = |window: &mut Window, i: u64| window.push(0, false, &batch(i as f64), 0);
        // Taken back when they were there, and left out as they came.
        let mut late = early.clone();
        (0..20_000).for_each(|i| push(&mut late, i));
        late.remove(&removed, &[11..12, 4200..4201].into_iter().collect());
        (20_000..20_100).for_each(|i| push(&mut late, i));
        let mut i = 0;
        while i < 20_100 {
            match removed.first_behind(i).filter(|hole| hole.start <= i) {
                Some(hole) => {
                    early.skip(hole.end - i);
                    i = hole.end;
                }
                None => {
                    push(&mut early, i);
                    i += 1;
                }
            }
        }
        for window in [&mut late, &mut early] {
            window.set_labels(labels.clone());
            assert_eq!((window.start(), window.end(), window.len()), (0, 20_100, kept.len()));
            for from in [0, 10, 11, 4100, 8192, 12_288, 19_995, 20_050, 20_100] {
                let behind: Vec<(u64, f64)> = kept.iter().filter(|(offset, _)| *offset >= from).copied().collect();
                assert_eq!(told(window, from), behind, "from {from}");
                assert_eq!(told(&window.from_offset(from), from), behind, "shared from {from}");
                assert_eq!(
                    (window.count(from..30_000), window.flatten_since(from).len()),
                    (behind.len() as u64, behind.len())
                );
            }
            let rows = window.flatten();
            let id = labels[0].id();
            let labelled: Vec<usize> = (0..rows.len()).filter(|&i| rows.labels.get(id, i).is_some()).collect();
            let expected = [9, 4200, 20_050].map(|offset| kept.iter().position(|row| row.0 == offset).unwrap());
            assert_eq!(labelled, expected);
            assert_eq!(window.behind(5, 10), 16);
            let again = window.written().window(30_000).unwrap();
            assert_eq!((told(&again, 0), again.holes()), (kept.clone(), &removed));
        }
        let starts = |window: &Window| window.flatten().starts_chain.iter().filter(|&&starts| starts).count();
        assert_eq!((starts(&late), starts(&early)), (2, 0));
        // Those that are forgotten are forgotten with the rows around them.
        let mut small = Window::new(1, 1, 5000);
        (0..5000).for_each(|i| push(&mut small, i));
        small.remove(&Offsets::from(100..200), &Offsets::default());
        (5000..30_000).for_each(|i| push(&mut small, i));
        assert!(small.holes().is_empty() && small.len() >= 5000);
    }

    #[test]
    fn actions_and_times_are_kept_from_the_row_that_brings_them() {
        let with = |time: f64| {
            let parts =
                BatchParts { actions: Some(vec![0.5, -0.5]), times: Some(vec![time]), ..batch(1.0).into_parts() };
            Batch::new(parts).unwrap()
        };
        let mut window = Window::new(1, 1, 10_000);
        (0..5000).for_each(|i| window.push(0, false, &batch(f64::from(i)), 0));
        let narrow = window.bytes_per_row();
        window.push(0, false, &with(7.0), 0);
        window.extend_from_batch(0, &[false], &batch(2.0));
        let rows = window.flatten();
        assert_eq!((rows.actions_per_row, rows.actions.len(), rows.times.len()), (2, 2 * 5002, 5002));
        assert_eq!((rows.action(5000), rows.times[5000]), (&[0.5, -0.5][..], 7.0));
        assert!([0, 4999, 5001].iter().all(|&i| rows.times[i].is_nan() && rows.action(i)[1].is_nan()));
        assert_eq!(window.bytes_per_row(), narrow + 16);
    }

    #[test]
    fn a_clone_does_not_see_what_comes_later() {
        let mut window = Window::new(1, 1, 10);
        window.push(0, true, &batch(1.0), 0);
        let clone = window.clone();
        window.push(0, false, &batch(2.0), 0);
        assert_eq!((clone.len(), clone.flatten().len(), window.flatten().len()), (1, 1, 2));
    }
}
