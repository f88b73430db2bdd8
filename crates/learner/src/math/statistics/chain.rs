//! Running sums of one chain.

use crate::math::raw;
use serde::{Deserialize, Serialize};

/// What the weights in a trace may sum up to. Ratios of probabilities have the mean 1, so that the sum reaches this in a chain of n
/// rows with a probability of at most n over this (docs/mathematics.md (S13)).
const REACH_MAX: f64 = 1e12;

/// c of docs/mathematics.md (S13): how much of a trace flows into a row of this weight, where weights that sum up to `flowing` would.
/// It is `offered`, lambda rho for V, or 0 where the sum would exceed what ratios of probabilities come to.
pub fn carry(offered: f64, weight: f64, flowing: f64) -> f64 {
    if flowing * offered + weight > REACH_MAX { 0.0 } else { offered }
}

/// Entries of a chain's trace that are allocated at once.
pub const TRACE_STEP: usize = 64;

/// Running sums of one chain: all zero at its start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// z (m,): discounted sum of features.
    #[serde(with = "raw")]
    pub trace: Vec<f64>,
    /// c (H,): sum over the chain's rows of weight times target so far.
    #[serde(with = "raw")]
    pub weighted_target: Vec<f64>,
    /// d: sum of squared weights.
    pub weight_energy: f64,
    /// e: sum of weights.
    pub weight_sum: f64,
    /// Discount of the transition just taken.
    pub discount: f64,
    /// Rows absorbed.
    pub rows: u64,
    /// Sum of the weights in z, as if nothing were forgotten; 0 where rows are not followed.
    #[serde(default)]
    pub reach: f64,
    /// C (m,): what the values behind its rows add to c, where targets of rows that are followed are kept; empty elsewhere.
    #[serde(default, with = "raw", skip_serializing_if = "<[f64]>::is_empty")]
    pub value_trace: Vec<f64>,
}

impl Chain {
    /// c of the next row, of this weight ([`carry`]).
    pub fn carry(&self, offered: f64, weight: f64) -> f64 {
        carry(offered, weight, self.discount * self.reach)
    }

    /// A chain that has not started, for m features and H rewards.
    pub fn new(features: usize, rewards: usize) -> Self {
        Self { trace: vec![0.0; features], weighted_target: vec![0.0; rewards], ..Self::default() }
    }

    /// Append an entry to z, for one more feature. There is a chain for each stream: memory that grew by doubling would take up
    /// to twice what they need.
    pub fn extend(&mut self, entry: f64) {
        if self.trace.len() == self.trace.capacity() {
            self.trace.reserve_exact(TRACE_STEP);
        }
        self.trace.push(entry);
    }

    /// Back to the start, keeping the memory.
    pub fn reset(&mut self) {
        self.trace.fill(0.0);
        self.weighted_target.fill(0.0);
        self.value_trace.fill(0.0);
        (self.weight_energy, self.weight_sum, self.discount, self.rows, self.reach) = (0.0, 0.0, 0.0, 0, 0.0);
    }

    /// Let every row so far count `factor` times as much.
    pub fn scale(&mut self, factor: f64) {
        let Self { trace, weighted_target, value_trace, weight_energy, weight_sum, .. } = self;
        let sums = trace.iter_mut().chain(weighted_target).chain(value_trace).chain([weight_energy, weight_sum]);
        sums.for_each(|sum| *sum *= factor);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_that_grows_has_room_for_one_step_at_most() {
        let mut chain = Chain::new(10, 1);
        for k in 10..1000 {
            chain.extend(k as f64);
            assert!(chain.trace.capacity() <= k + TRACE_STEP, "room for {} entries at {k}", chain.trace.capacity());
        }
        assert_eq!((chain.trace.len(), chain.trace[9], chain.trace[999]), (1000, 0.0, 999.0));
    }
}
