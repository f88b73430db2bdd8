//! Rows that have arrived since a solution, where rows are followed.

use crate::math::dense::{Matrix, axpy, tight};
use crate::math::raw;
use crate::math::statistics::{Followed, Running};
use serde::{Deserialize, Serialize};

/// Rows since the weights were last solved for, as M^-1 gains them where rows are followed. With running chains closed where
/// they stand a row changes M by one term, whether it starts a chain, goes on with one or ends it; a gap changes
/// nothing, docs/mathematics.md (P7):
/// ```text
/// M <- M + e (phi - gamma psi)'       p <- p + e r       e the trace after the row, psi what it led to, 0 at a terminal state
/// ```
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Arrivals {
    /// e (m, rows).
    #[serde(serialize_with = "tight")]
    pub(super) traces: Matrix,
    /// phi - gamma psi, or phi until psi is known (m, rows).
    #[serde(serialize_with = "tight")]
    pub(super) differences: Matrix,
    /// Rewards, row after row.
    #[serde(with = "raw")]
    pub(super) rewards: Vec<f64>,
    /// gamma of each row.
    #[serde(with = "raw")]
    discounts: Vec<f64>,
    /// Slot of each row whose psi is not known; `u32::MAX` where it is.
    pub(super) slots: Vec<u32>,
    /// Whether there were rows that are not here: only a solution from the beginning has them.
    pub(super) missed: bool,
}

impl Arrivals {
    /// None since a solution.
    pub fn clear(&mut self) {
        self.empty();
        self.missed = false;
    }

    /// What has changed since the last solution is more than these rows.
    pub fn miss(&mut self) {
        self.empty();
        self.missed = true;
    }

    fn empty(&mut self) {
        self.traces.resize(0, 0);
        self.differences.resize(0, 0);
        self.rewards.clear();
        self.discounts.clear();
        self.slots.clear();
    }

    /// A row of the chain in `slot`, whose trace after it is `trace` (m,); more than `most` are not kept.
    pub fn push(&mut self, slot: usize, trace: &[f64], row: Followed<'_>, most: usize) {
        let (m, k) = (trace.len(), self.slots.len());
        if self.missed || k >= most {
            return self.miss();
        }
        self.traces.resize(m, k + 1);
        self.differences.resize(m, k + 1);
        self.traces.col_mut(k).copy_from_slice(trace);
        self.differences.col_mut(k).copy_from_slice(row.features);
        self.rewards.extend_from_slice(row.rewards);
        self.discounts.push(row.discount);
        self.slots.push(slot as u32);
    }

    /// The last row of `slot`, if it is here, led to a state of features `successor` (m,), or terminated (none).
    pub fn settle(&mut self, slot: usize, successor: Option<&[f64]>) {
        if let Some(k) = self.slots.iter().position(|&open| open == slot as u32) {
            if let Some(successor) = successor {
                axpy(self.differences.col_mut(k), -self.discounts[k], successor);
            }
            self.slots[k] = u32::MAX;
        }
    }

    /// Settle what still runs as `running` has it.
    pub fn settle_running(&mut self, running: &Running) {
        for (k, &slot) in running.slots().iter().enumerate() {
            self.settle(slot as usize, Some(running.features.col(k)));
        }
    }

    /// Whether its parts are of sizes that fit m features and H rewards.
    pub(crate) fn is_consistent(&self, m: usize, rewards: usize) -> bool {
        let rows = self.slots.len();
        let shape = |matrix: &Matrix| matrix.cols() == rows && (rows == 0 || matrix.rows() == m);
        shape(&self.traces)
            && shape(&self.differences)
            && (self.rewards.len(), self.discounts.len()) == (rows * rewards, rows)
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.traces.bytes() + self.differences.bytes()
    }
}
