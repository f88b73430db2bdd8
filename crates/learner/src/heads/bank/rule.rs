//! What the heads of one group are paid, and how it is discounted.

use crate::heads::{Continuation, Rate};
use crate::verification::expected_length;
use serde::{Deserialize, Serialize};

/// Heads whose rows have one sequence of discounts and weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Rule {
    pub(super) rate: Rate,
    pub(super) continuation: Continuation,
    /// Number of its weighting.
    pub(super) gram: usize,
    /// Of each of its heads the number of its cumulant, what it pays at an end, its level, and the number of the head.
    pub(super) columns: Vec<RuleColumn>,
    /// Continuation of the last row of each slot.
    #[serde(with = "crate::math::raw")]
    pub(super) kept: Vec<f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct RuleColumn {
    pub(super) signal: usize,
    pub(super) terminal_reward: f64,
    pub(super) head: usize,
    #[serde(default, skip_serializing_if = "crate::heads::is_zero")]
    pub(super) level: f64,
}

impl RuleColumn {
    /// What its head earns with a row whose cumulant is `signal` and after which a share `kept` goes on.
    pub(super) fn earned(&self, signal: f64, kept: f64) -> f64 {
        signal + (1.0 - kept) * self.terminal_reward
    }
}

impl Rule {
    /// Whether its heads are paid the signals, all of them in their order, and nothing at an end: then there is nothing to copy.
    pub(super) fn pays_all_signals(&self, signals: usize) -> bool {
        let own = |(k, column): (usize, &RuleColumn)| {
            column.signal == k && column.terminal_reward == 0.0 && column.level == 0.0
        };
        self.columns.len() == signals && self.columns.iter().enumerate().all(own)
    }

    /// What the head in `column` is paid, about its level, with a row whose cumulant is `signal` and after which a share `kept` goes on.
    pub(super) fn paid(&self, column: &RuleColumn, signal: f64, kept: f64) -> f64 {
        self.rate.about(column.earned(signal, kept), column.level, kept)
    }

    /// Rows that a return takes by its discount, 0 if only times tell.
    pub(super) fn length(&self) -> u64 {
        match (self.rate, &self.continuation) {
            (Rate::Discount(discount), Continuation::Constant(share)) => expected_length(discount * share) as u64,
            (Rate::Discount(discount), _) => expected_length(discount) as u64,
            (Rate::Timescale(_), _) => 0,
        }
    }
}
