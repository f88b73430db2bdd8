//! What rows of a table carry beyond [`Rows`](criticd_learner::transition::Rows): a critic learns the ratio of two policies'
//! probabilities and which policy acted, and all of it is sent on.

use std::ops::Range;

/// Numbers of each row, equally many in each; NaN all of them where a row has none.
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
    /// (n, 1) seconds; heads that look seconds ahead learn from them.
    pub(super) times: Wide,
    /// (n, 1): number of the policy that acted, in the order of their names.
    pub(super) policies: Wide,
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
            policies: empty(&self.policies),
        }
    }

    pub(super) fn columns(&self) -> [&Wide; 7] {
        let Self { actions, behavior_probs, target_probs, next_actions, next_action_probs, times, policies } = self;
        [actions, behavior_probs, target_probs, next_actions, next_action_probs, times, policies]
    }

    pub(super) fn columns_mut(&mut self) -> [&mut Wide; 7] {
        [
            &mut self.actions,
            &mut self.behavior_probs,
            &mut self.target_probs,
            &mut self.next_actions,
            &mut self.next_action_probs,
            &mut self.times,
            &mut self.policies,
        ]
    }

    /// Append row i of `other`, which has the same columns.
    pub(super) fn push_from(&mut self, other: &Self, i: usize) {
        for (column, from) in self.columns_mut().into_iter().zip(other.columns()) {
            column.values.extend_from_slice(from.row(i));
        }
    }

    /// Number of the policy of row i, if the row names one.
    pub(super) fn policy(&self, i: usize) -> Option<usize> {
        self.policies.given(i).then(|| self.policies.row(i)[0] as usize)
    }

    /// Whether rows i and j have the same columns and policy, so that they can travel together.
    pub(super) fn alike(&self, i: usize, j: usize) -> bool {
        self.columns().into_iter().all(|column| column.given(i) == column.given(j)) && self.policy(i) == self.policy(j)
    }
}
