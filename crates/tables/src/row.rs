//! What the cells of one row say.

use super::category::Coder;
use super::contradictions::End;
use super::extras::Extras;
use super::job::{Column, Want};
use super::{Done, Reading};
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
    /// Which numbers the texts of states and actions are.
    pub(super) coder: Coder,
}

impl Said {
    /// Whether the row terminates, and whether it is truncated.
    pub(super) fn ends(&self, want: Want) -> (bool, bool) {
        if matches!(want, Want::States | Want::Transitions(Reading { independent: true, .. })) {
            return (true, false);
        }
        let (mut terminated, mut truncated) = (self.terminated, self.truncated);
        match want {
            Want::Transitions(Reading { done: Some(Done::Terminated), .. }) => terminated |= self.done,
            Want::Transitions(Reading { done: Some(Done::Truncated), .. }) => truncated |= self.done,
            _ => {}
        }
        terminated |= self.itself && !truncated;
        truncated |= (self.otherwise && !terminated) || self.last;
        (terminated, truncated)
    }
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
