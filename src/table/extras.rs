//! What rows of a table carry beyond [`Rows`](crate::transition::Rows): nothing is learned from it yet but the ratio of two
//! policies' probabilities, and all of it is sent on.

use std::ops::Range;

/// Numbers of each row, as many in each; NaN all of them where a row has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Wide {
    /// Numbers per row; 0: the table has no such column.
    pub(super) width: usize,
    /// (n, width), row-major.
    pub(super) values: Vec<f64>,
}

impl Wide {
    pub(super) fn new(width: usize) -> Self {
        Self { width, values: Vec::new() }
    }

    pub(super) fn row(&self, i: usize) -> &[f64] {
        &self.values[i * self.width..(i + 1) * self.width]
    }

    /// Whether row i has its numbers.
    fn given(&self, i: usize) -> bool {
        self.row(i).first().is_some_and(|value| !value.is_nan())
    }

    /// Rows `range`, if they have their numbers: all of them or none.
    pub(super) fn part(&self, range: &Range<usize>) -> Option<Vec<f64>> {
        self.given(range.start).then(|| self.values[range.start * self.width..range.end * self.width].to_vec())
    }
}

/// Columns by their names on the wire, each as long as the table.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Extras {
    pub(super) actions: Wide,
    /// (n, 1).
    pub(super) behavior_probs: Wide,
    /// (n, 1).
    pub(super) target_probs: Wide,
    pub(super) next_actions: Wide,
    pub(super) next_action_probs: Wide,
    /// (n, 1) seconds. Not sent on: learning asks for them only where a head looks so many seconds ahead.
    pub(super) times: Wide,
}

impl Extras {
    /// The same columns without rows.
    pub(super) fn without_rows(&self) -> Self {
        let empty = |column: &Wide| Wide::new(column.width);
        Self {
            actions: empty(&self.actions),
            behavior_probs: empty(&self.behavior_probs),
            target_probs: empty(&self.target_probs),
            next_actions: empty(&self.next_actions),
            next_action_probs: empty(&self.next_action_probs),
            times: empty(&self.times),
        }
    }

    fn columns(&self) -> [&Wide; 6] {
        let Self { actions, behavior_probs, target_probs, next_actions, next_action_probs, times } = self;
        [actions, behavior_probs, target_probs, next_actions, next_action_probs, times]
    }

    pub(super) fn columns_mut(&mut self) -> [&mut Wide; 6] {
        [
            &mut self.actions,
            &mut self.behavior_probs,
            &mut self.target_probs,
            &mut self.next_actions,
            &mut self.next_action_probs,
            &mut self.times,
        ]
    }

    /// Append row i of `other`, which has the same columns.
    pub(super) fn push_from(&mut self, other: &Self, i: usize) {
        for (column, from) in self.columns_mut().into_iter().zip(other.columns()) {
            column.values.extend_from_slice(from.row(i));
        }
    }

    /// Whether rows i and j have the same of it, so that they can travel together.
    pub(super) fn alike(&self, i: usize, j: usize) -> bool {
        let sent = self.columns().into_iter().filter(|&column| !std::ptr::eq(column, &self.times));
        sent.into_iter().all(|column| column.given(i) == column.given(j))
    }
}
