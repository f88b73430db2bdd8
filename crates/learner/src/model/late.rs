//! Heads that come late: they learn the rows of a model as if they had been there from its first row.
//!
//! A model keeps its history: where it began, with which elements, and where rows were left out. [`LateHeads`] is a second model that
//! begins there and learns the same rows for the new heads alone: no weights, no errors, no sums of the critic. It admits the same
//! states at the same rows, so that each element counts from the same row on. What it has gathered then becomes a part of the first
//! model, all else of which stays as it is.

use super::Model;
use crate::heads::{Head, tuning_is_due};
use crate::math::posterior::Scale;
use crate::removal::Offsets;
use crate::window::Window;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Gaps that are remembered at most. A model with more has no known history.
const GAPS_MAX: usize = 64;
/// Tunings that are remembered, the last ones. There are only more where rows are forgotten: all that counted at those before is then
/// forgotten, and a head only keeps the ratio that it had if no other gains a nat.
const TUNINGS_MAX: usize = u64::BITS as usize;

/// How a model came to what it is, as far as that decides what a head has learned.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct History {
    /// Offset of the first row.
    first: u64,
    /// Offset behind the last row.
    end: u64,
    /// Elements that the dictionary began with.
    elements: usize,
    /// Rows that were learned while the dictionary could not grow.
    closed: u64,
    /// Scale that heads began with.
    scale: Scale,
    /// Where chains were cut although no row says so: offsets of the rows left out there, of which there may be none.
    gaps: Vec<Range<u64>>,
    /// Rows at which noise and scale of heads are chosen, ascending.
    tunings: Vec<u64>,
}

impl History {
    fn of(offset: u64, elements: usize, scale: Scale) -> Self {
        // No room is made while rows are learned.
        let (gaps, tunings) = (Vec::new(), Vec::with_capacity(TUNINGS_MAX));
        Self { first: offset, end: offset, elements, closed: 0, scale, gaps, tunings }
    }

    /// Rows from `offset` on are about to be learned. Whether that is known to follow.
    fn reach(&mut self, offset: u64) -> bool {
        if let Some(gap) = self.gaps.last_mut().filter(|gap| gap.end == self.end && gap.end < offset) {
            (gap.end, self.end) = (offset, offset);
        }
        self.end == offset
    }

    fn cut(&mut self) -> bool {
        self.gaps.push(self.end..self.end);
        self.gaps.len() <= GAPS_MAX
    }

    /// Noise and scale of heads are chosen at this many rows.
    pub(super) fn tune(&mut self, rows: u64) {
        if self.tunings.last().is_none_or(|&last| last < rows) {
            if self.tunings.len() == TUNINGS_MAX {
                self.tunings.remove(0);
            }
            self.tunings.push(rows);
        }
    }

    /// Whether noise and scale of heads, if there were any, would be chosen at a refresh after `rows` rows.
    pub(super) fn tuning_is_due(&self, rows: u64, half_life: Option<f64>) -> bool {
        tuning_is_due(self.tunings.last().copied().unwrap_or(0), rows, half_life)
    }

    /// Whether all rows with these offsets have been learned, and none behind them.
    pub(super) fn has_all(&self, offsets: &Range<u64>) -> bool {
        let left_out = |gap: &Range<u64>| gap.start.max(offsets.start) < gap.end.min(offsets.end);
        self.first <= offsets.start && self.end == offsets.end && !self.gaps.iter().any(left_out)
    }

    /// Whether both have learned the same rows with the same elements.
    fn is_that_of(&self, other: &Self) -> bool {
        let rows = |of: &Self| (of.first, of.end, of.elements, of.closed);
        rows(self) == rows(other) && self.gaps == other.gaps
    }
}

/// Why late heads cannot become a part of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unlike {
    /// The model has learned other rows.
    #[error("the model and its late heads have learned other rows")]
    Rows,
    /// The model has other elements.
    #[error("the model and its late heads have learned other dictionary states")]
    Dictionary,
    /// The model knows other streams, or other chains run.
    #[error("the model and its late heads have learned other chains")]
    Chains,
}

/// Heads that learn the rows of a model once more.
#[derive(Clone, Debug)]
pub struct LateHeads {
    heads: Vec<Head>,
    /// Of the heads alone, and without them before the first row: they take memory from there on.
    model: Box<Model>,
    /// What is to be done again.
    past: History,
    /// Gaps of it that have been passed.
    gaps: usize,
    /// Residual above which a state is admitted once the dictionary may grow.
    tolerance: f64,
    learned: u64,
}

impl LateHeads {
    /// The heads.
    pub fn heads(&self) -> &[Head] {
        &self.heads
    }

    /// Offset of the first row that they learn.
    pub fn first_row(&self) -> u64 {
        self.past.first
    }

    /// Offset behind the last row that they have learned.
    pub fn learned(&self) -> u64 {
        self.learned
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.model.bytes()
    }

    /// The same without some heads.
    ///
    /// # Panics
    /// If rows have been learned already.
    #[must_use]
    pub fn without(mut self, heads: &[Head]) -> Self {
        assert_eq!(self.model.statistics.rows, 0, "rows were learned with these heads");
        self.heads.retain(|head| !heads.contains(head));
        self
    }

    /// Learn the rows of `window` that have not been learned, up to before offset `end`.
    ///
    /// # Panics
    /// If the window has forgotten some of them.
    pub fn learn(&mut self, window: &Window, end: u64) {
        if self.model.statistics.rows == 0 {
            self.model.want_heads(&self.heads);
        }
        while self.learned < end {
            if let Some(gap) = self.past.gaps.get(self.gaps).filter(|gap| gap.start == self.learned).cloned() {
                self.model.cut_running_chains();
                (self.gaps, self.learned) = (self.gaps + 1, gap.end);
                continue;
            }
            let stop = self.past.gaps.get(self.gaps).map_or(end, |gap| gap.start.min(end));
            for (rows, range, offset) in window.since(self.learned) {
                let count = stop.saturating_sub(offset).min(range.len() as u64) as usize;
                let mut at = 0;
                while at < count {
                    let block = self.next_block(count - at);
                    let from = range.start + at;
                    self.model.learn_block(rows, from..from + block, offset + at as u64);
                    at += block;
                    self.settle();
                }
            }
            self.learned = stop;
        }
    }

    /// Rows of the next block, `most` at most: it ends where noise and scale are chosen and where the dictionary begins to grow.
    fn next_block(&self, most: usize) -> usize {
        let rows = self.model.statistics.rows;
        let next = self.past.tunings.iter().copied().chain([self.past.closed]).filter(|&at| at > rows).min();
        let due = next.map_or(u64::MAX, |at| at - rows);
        most.min(self.model.settings.refresh_rows).min(usize::try_from(due).unwrap_or(usize::MAX))
    }

    /// A block has been learned.
    fn settle(&mut self) {
        let rows = self.model.statistics.rows;
        if rows == self.past.closed {
            self.model.set_tolerance(self.tolerance);
        }
        let behind = self.past.tunings.last().is_none_or(|&last| rows > last);
        let follows = behind && self.model.settings.estimate_scale;
        let (history, half_life) = (self.model.history.as_ref(), self.model.settings.forgetting);
        if self.past.tunings.contains(&rows) || (follows && history.is_some_and(|of| of.tuning_is_due(rows, half_life)))
        {
            self.model.choose_scales();
        }
    }
}

impl Model {
    /// Rows from `offset` on, `count` of them, are about to be learned.
    pub(super) fn note_rows(&mut self, offset: u64, count: usize) {
        self.basis.learned.take_if(|learned| !learned.note(offset, count));
        if self.statistics.rows == 0 {
            self.history = Some(History::of(offset, self.basis.len(), self.weights.scale));
        }
        if let Some(history) = &mut self.history {
            if history.reach(offset) {
                history.end += count as u64;
            } else {
                self.history = None;
            }
        }
    }

    /// Offset of the first row that it has learned; none before that, and where it is not known how it came to what it is.
    pub fn first_row(&self) -> Option<u64> {
        self.history.as_ref().map(|history| history.first)
    }

    /// The same where heads that come late can learn its rows, up to before offset `learned`: the offset of their first row.
    pub fn first_row_of_late_heads(&self, learned: u64) -> Option<u64> {
        self.history.as_ref().filter(|history| history.end == learned).map(|history| history.first)
    }

    /// All running chains are about to be cut although no row says so.
    pub(super) fn note_cut(&mut self) {
        if self.statistics.rows > 0 && self.history.as_mut().is_some_and(|history| !history.cut()) {
            self.history = None;
        }
    }

    /// Rows that were learned without their offsets in the stream are those from offset `first` on.
    pub(crate) fn began_at(&mut self, first: u64) {
        if self.history.is_none() {
            self.basis.learned = None;
        }
        if let Some(history) = &mut self.history {
            let moved = first - history.first;
            self.basis.learned.iter_mut().for_each(|learned| learned.shift(moved));
            (history.first, history.end) = (first, history.end + moved);
            history.gaps.iter_mut().for_each(|gap| *gap = gap.start + moved..gap.end + moved);
        }
    }

    /// Rows that were learned as if they followed one another from offset `numbered` on are those from `first` on that are at no `holes`.
    pub(crate) fn learned_between(&mut self, numbered: u64, first: u64, holes: &Offsets) {
        if holes.first_behind(first).is_some() {
            self.history = None;
            let at = |offset: u64| holes.stretched(first, offset + 1 - (numbered - first)) - 1;
            self.basis.learned.iter_mut().for_each(|learned| learned.spread(at, holes));
        }
        self.branch.iter_mut().for_each(|branch| branch.learned_between(numbered, first, holes));
    }

    /// States are about to be admitted by another tolerance. A history knows no other change than the first from none to some.
    pub(super) fn note_tolerance(&mut self, tolerance: f64) {
        let (rows, before) = (self.statistics.rows, self.basis.dictionary.tolerance());
        if rows > 0 && tolerance != before {
            self.history = self.history.take().filter(|history| before == f64::INFINITY && history.closed == 0);
            self.history.iter_mut().for_each(|history| history.closed = rows);
        }
    }

    /// `heads` before the first row that this model has learned, up to before offset `learned`; none where it is not known how it came
    /// to what it is.
    pub(crate) fn late_heads(&self, heads: Vec<Head>, learned: u64) -> Option<LateHeads> {
        let past = self.history.clone().filter(|history| history.end == learned)?;
        let settings = self.settings.of_heads_alone(Vec::new());
        let mut dictionary = self.basis.dictionary.first(past.elements);
        let tolerance = dictionary.tolerance();
        if past.closed > 0 {
            dictionary.set_tolerance(f64::INFINITY);
        }
        let inputs = self.basis.inputs.clone();
        let mut model = self.with_dictionary_of_its_kernel(settings, inputs, dictionary);
        model.weights.scale = past.scale;
        let learned = past.first;
        let heads = self.about().map_or_else(|| heads.clone(), |about| about.heads(&heads));
        Some(LateHeads { heads, model: Box::new(model), past, gaps: 0, tolerance, learned })
    }

    /// Choose noise and scale of the heads, as far as they do not name them. Where a system cannot be solved all stays as it is.
    fn choose_scales(&mut self) {
        let running = self.running();
        let (diagonal, floor, rows) = (self.basis.kernel().typical(), self.settings.noise_floor, self.statistics.rows);
        if let Some(heads) = &mut self.heads {
            // As in a refresh: without a solution the scales of before stay.
            drop(heads.choose_scales(&running, diagonal, floor, rows, |_| {}));
        }
        if let Some(history) = &mut self.history {
            history.tune(rows);
        }
    }

    /// Take heads that have learned the rows of this model as a part of it, those that are `wanted`. Nothing changes but that.
    ///
    /// # Errors
    /// If they have learned other rows, or with other elements. The model is then as it was.
    pub(crate) fn take_late(&mut self, late: LateHeads, wanted: &[Head]) -> Result<(), Unlike> {
        let mut theirs = *late.model;
        let alike = self.history.as_ref().zip(theirs.history.as_ref()).is_some_and(|(of, other)| of.is_that_of(other));
        if !alike || self.statistics.rows != theirs.statistics.rows {
            return Err(Unlike::Rows);
        }
        if self.basis.dictionary.elements() != theirs.basis.dictionary.elements() {
            return Err(Unlike::Dictionary);
        }
        let running = |model: &Self| model.streams.running().map(|(slot, _)| slot).collect::<Vec<_>>();
        let ring = |model: &Self| (model.recent.is_settled(), model.recent.cuts().count());
        let same_streams = self.streams.slot_of == theirs.streams.slot_of && running(self) == running(&theirs);
        if !same_streams || ring(self) != ring(&theirs) || self.recent.end() != theirs.recent.end() {
            return Err(Unlike::Chains);
        }
        theirs.let_heads_go(wanted);
        let Some(bank) = theirs.heads else { return Ok(()) };
        self.settings.heads.extend_from_slice(bank.heads());
        match &mut self.heads {
            Some(heads) => heads.join(*bank),
            None => self.heads = Some(bank),
        }
        Ok(())
    }
}
