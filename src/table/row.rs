//! What the cells of one row say.

use super::contradictions::End;
use super::extras::Extras;
use super::job::Column;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// What the cells of one row say, beside its numbers.
#[derive(Default)]
pub(super) struct Said {
    /// Whether a column names the stream.
    pub(super) named: bool,
    pub(super) terminated: bool,
    pub(super) truncated: bool,
    pub(super) done: bool,
    pub(super) itself: bool,
    pub(super) otherwise: bool,
    pub(super) absorbing: bool,
    pub(super) last: bool,
    pub(super) starts_chain: bool,
    pub(super) discount: f64,
    pub(super) seq: Option<u64>,
    /// Which of the needed numbers is missing, the first one.
    pub(super) lacks: Option<Column>,
}

/// What the cells of one row say; the memory of the row before is used again.
pub(super) struct OneRow {
    pub(super) state: Vec<f64>,
    pub(super) next: Vec<f64>,
    pub(super) reward: Vec<f64>,
    /// As a table of one row.
    pub(super) extra: Extras,
    /// Of sums.
    pub(super) terms: Vec<f64>,
    /// What the columns that are watched hold, as hashes.
    pub(super) watched: Vec<u64>,
    /// Of its stream.
    pub(super) name: String,
    /// Of its policy.
    pub(super) policy: String,
    /// Of the run that it is of.
    pub(super) session: String,
}

impl OneRow {
    /// A hash of what is learned from it: equal ones are of copies.
    pub(super) fn print(&self, has_next: bool, end: Option<End>, said: &Said) -> u64 {
        let mut hasher = DefaultHasher::new();
        let next = if has_next { &self.next[..] } else { &[] };
        let extras = self.extra.columns().into_iter().flat_map(|column| &column.values);
        for value in self.state.iter().chain(next).chain(&self.reward).chain([&said.discount]).chain(extras) {
            // The two zeros are equal.
            (value + 0.0).to_bits().hash(&mut hasher);
        }
        (end.map(|end| end == End::Terminated), said.absorbing).hash(&mut hasher);
        hasher.finish()
    }
}
