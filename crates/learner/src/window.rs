//! The last rows of the stream, raw, kept for the next refit; all critics share one window.

use crate::labels::Labels;
use crate::transition::{ACTION_NUMBERS_MAX, Batch, Rows};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// Rows per segment: the unit of eviction and of copying on write.
pub const SEGMENT_ROWS: usize = 4096;

/// The rows with offsets `start()..end()`. Cloning shares the rows: a refit reads a clone while the stream goes on.
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
}

/// A window as files have it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Written {
    start: u64,
    held_from: u64,
    rows: Rows,
}

impl Written {
    /// The window, which holds at least `rows_max` rows. Its rows have no labels yet.
    ///
    /// # Errors
    /// If its columns have several lengths.
    pub fn window(self, rows_max: usize) -> Result<Window, &'static str> {
        let Self { start, held_from, rows } = self;
        if !rows.is_consistent() {
            return Err("rows of several lengths");
        }
        let mut window = Window::starting_at(rows.dim, rows.rewards_per_row, rows_max, start);
        window.hold(start);
        window.extend(&rows, 0..rows.len());
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
        }
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
        (self.end - self.start) as usize
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.end == self.start
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

    /// Whether so many further rows may make it forget some.
    pub(crate) fn is_about_to_forget(&self, count: usize) -> bool {
        let begins_a_segment = self.end.is_multiple_of(SEGMENT_ROWS as u64) || count > self.room();
        begins_a_segment && self.len() as u64 + count as u64 >= self.rows_max
    }

    /// Keep actions of so many numbers, up to [`ACTION_NUMBERS_MAX`], and times, from here on, where rows bring some.
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
            let rows = Arc::make_mut(segment);
            let count = rows.len();
            rows.labels.set(&sets, start, count);
            rows.labels.reserve_all(SEGMENT_ROWS);
            start += count as u64;
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
        rows.labels.set(&self.labels, self.end, 0);
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
            while let Some(oldest) = self.segments.front().map(|segment| segment.len() as u64)
                && self.end - self.start >= self.rows_max + SEGMENT_ROWS as u64
                && self.start + oldest <= self.held_from
            {
                self.segments.pop_front();
                self.start += oldest;
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
        let mut first = self.start;
        self.segments.iter().filter_map(move |segment| {
            let (start, end) = (first, first + segment.len() as u64);
            first = end;
            (end > from).then(|| {
                let skipped = from.saturating_sub(start) as usize;
                (&**segment, skipped..segment.len(), start + skipped as u64)
            })
        })
    }

    /// A window that shares the rows from offset `from` on, and some before it; all rows if some of those asked for have
    /// been forgotten.
    pub fn from_offset(&self, from: u64) -> Self {
        let labels = self.labels.clone();
        let mut shared = Self { segments: VecDeque::new(), labels, start: self.end, ..*self };
        for segment in self.segments.iter().rev() {
            if shared.start <= from {
                break;
            }
            shared.segments.push_front(Arc::clone(segment));
            shared.start -= segment.len() as u64;
        }
        shared
    }

    /// As files have it.
    pub fn written(&self) -> Written {
        let mut rows = self.flatten();
        if rows.carries.iter().all(|&carry| carry == 1.0) {
            rows.carries = Vec::new();
        }
        Written { start: self.start, held_from: self.held_from, rows }
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
