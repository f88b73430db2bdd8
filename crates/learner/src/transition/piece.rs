//! A part of a batch.

use super::{Batch, BatchParts};
use std::ops::Range;

impl Batch {
    /// Some of its rows, as a batch of their own.
    ///
    /// # Panics
    /// If these are none, or not all of them are there.
    #[must_use]
    pub fn piece(&self, range: Range<usize>) -> Self {
        assert!(!range.is_empty(), "a batch has at least one row");
        fn part<T: Clone>(column: &[T], len: usize, range: &Range<usize>) -> Vec<T> {
            let width = column.len() / len;
            column[range.start * width..range.end * width].to_vec()
        }
        let (of, len) = (&self.parts, self.len);
        let numbers = |column: &Option<Vec<f64>>| column.as_ref().map(|column| part(column, len, &range));
        let flags = |column: &Option<Vec<bool>>| column.as_ref().map(|column| part(column, len, &range));
        let parts = BatchParts {
            stream: of.stream.clone(),
            session: of.session.clone(),
            seq: of.seq.map(|seq| seq + range.start as u64),
            dim: of.dim,
            rewards_per_row: of.rewards_per_row,
            names: of.names.clone(),
            states: part(&of.states, len, &range),
            next_states: numbers(&of.next_states),
            rewards: part(&of.rewards, len, &range),
            terminated: flags(&of.terminated),
            truncated: flags(&of.truncated),
            discounts: numbers(&of.discounts),
            actions: numbers(&of.actions),
            times: numbers(&of.times),
            behavior_probs: numbers(&of.behavior_probs),
            target_probs: numbers(&of.target_probs),
            policy: of.policy.clone(),
            next_actions: numbers(&of.next_actions),
            next_action_probs: numbers(&of.next_action_probs),
            single: of.single,
        };
        Self { parts, len: range.len() }
    }
}
