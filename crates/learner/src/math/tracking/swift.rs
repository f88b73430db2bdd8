//! Trackers that step along temporal differences, with a step size of its own for each column, learned from the rows.
//!
//! Sums of rows that fade ([`Sums`](super::Sums)) know a change of the world only once rows from before it have faded. A step follows it at
//! once, and its size grows where errors go on in one direction. It is SwiftTD [Javed, Sharifnassab, Sutton 2024], true online
//! TD(lambda) [van Seijen et al. 2016] whose steps follow the gradient of the squared error, docs/mathematics.md (L10).

use super::inner;
use crate::math::raw;
use serde::{Deserialize, Serialize};
use std::f64::consts::{LN_2, LN_10};

/// Traces of the learners of one reward.
pub const LAMBDAS: [f64; 3] = [0.8, 0.95, 0.99];
/// Chains that they follow: the first ones. A stream that goes on is one.
pub const CHAINS_MAX: usize = 8;
/// Logarithms of the step sizes: at first, least and most.
const LOG_FIRST: f64 = -3.0 * LN_10;
const LOG_LEAST: f64 = -10.0 * LN_10;
const LOG_MOST: f64 = -LN_10;
/// Share of its own error that no row may take away more than.
const SHARE_MAX: f64 = 0.1;
/// Logarithm of what step sizes are multiplied by where a row would.
const SHRINK: f64 = -1.000_500_333_583_534e-3;
/// How fast step sizes follow their gradient, and what keeps it finite.
const META: f64 = 1e-3;
const FLOOR: f64 = 1e-8;
/// No weight of a value in its unit is as large: steps that lead there begin anew.
const WEIGHT_MAX: f64 = 1e12;

/// The unit of columns and rewards in which steps are of these sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Units {
    /// What each column of phi (q,) is multiplied by.
    #[serde(with = "raw")]
    pub columns: Vec<f64>,
    /// What the rewards (H,) are divided by, reward unit, positive.
    #[serde(with = "raw")]
    pub rewards: Vec<f64>,
}

/// A learner of one reward with one lambda.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Swift {
    lambda: f64,
    unit: f64,
    #[serde(with = "raw")]
    scales: Vec<f64>,
    /// w (q,), of columns and rewards in their units.
    #[serde(with = "raw")]
    weights: Vec<f64>,
    /// beta (q,): logarithms of the step sizes.
    #[serde(with = "raw")]
    logs: Vec<f64>,
    #[serde(skip)]
    sizes: Sizes,
    /// Derivatives (q,) of each weight with respect to its own beta: now, a row ago, and as they will be.
    #[serde(with = "raw")]
    slopes: Vec<f64>,
    #[serde(with = "raw")]
    slopes_before: Vec<f64>,
    #[serde(with = "raw")]
    slopes_next: Vec<f64>,
    /// Share of its own error that the newest row may take away.
    rate: f64,
    /// Of the first slots.
    chains: Vec<Passage>,
}

/// The step sizes exp beta (q,), so that a row takes one exponential of each; empty where beta has just been read.
#[derive(Clone, Debug, Default)]
struct Sizes(Vec<f64>);

impl Sizes {
    fn of(&mut self, logs: &[f64]) -> &mut [f64] {
        if self.0.len() != logs.len() {
            self.0 = logs.iter().map(|log| log.exp()).collect();
        }
        &mut self.0
    }
}

impl PartialEq for Sizes {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Where a chain is, and what it has left behind it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Passage {
    running: bool,
    /// Columns (q,) of the present state in their unit, and by how much the chain's own last step moved its value.
    #[serde(with = "raw")]
    columns: Vec<f64>,
    moved: f64,
    /// Last change of the weights, trace, what the present state brought into it, and the derivatives of both traces (q,) each.
    #[serde(with = "raw")]
    change: Vec<f64>,
    #[serde(with = "raw")]
    trace: Vec<f64>,
    #[serde(with = "raw")]
    entered: Vec<f64>,
    #[serde(with = "raw")]
    slopes_trace: Vec<f64>,
    #[serde(with = "raw")]
    trace_slopes: Vec<f64>,
}

impl Passage {
    /// Before its first row, for q columns.
    fn begin(&mut self, q: usize) {
        let Self { running, columns, moved, change, trace, entered, slopes_trace, trace_slopes } = self;
        (*running, *moved) = (false, 0.0);
        for part in [columns, change, trace, entered, slopes_trace, trace_slopes] {
            part.clear();
            part.resize(q, 0.0);
        }
    }
}

impl Swift {
    /// That knows nothing, of columns with these `scales` (q,) and a reward with this `unit`.
    pub fn new(lambda: f64, scales: &[f64], unit: f64) -> Self {
        let q = scales.len();
        let zeros = || vec![0.0; q];
        Self {
            lambda,
            unit,
            scales: scales.to_vec(),
            weights: zeros(),
            logs: vec![LOG_FIRST; q],
            sizes: Sizes::default(),
            slopes: zeros(),
            slopes_before: zeros(),
            slopes_next: zeros(),
            rate: 0.0,
            chains: Vec::new(),
        }
    }

    /// The same, which has seen no chain begin.
    pub fn between_chains(&self) -> Self {
        Self { chains: Vec::new(), ..self.clone() }
    }

    /// The same that knows nothing.
    fn emptied(&self) -> Self {
        Self::new(self.lambda, &self.scales, self.unit)
    }

    /// What its columns (q,) are multiplied by.
    pub fn scales(&self) -> &[f64] {
        &self.scales
    }

    /// What its reward is divided by.
    pub fn unit(&self) -> f64 {
        self.unit
    }

    /// c (q,) <- what it makes of phi is c'phi, reward unit.
    pub fn coefficients_into(&self, out: &mut [f64]) {
        for ((out, w), scale) in out.iter_mut().zip(&self.weights).zip(&self.scales) {
            *out = self.unit * w * scale;
        }
    }

    /// Rows after which half of a change of the values has been followed, as the newest row stepped:
    /// ```text
    /// log 2 (1 - gamma lambda) / (rate (1 - gamma))
    /// ```
    /// None before the first row.
    pub fn half_life(&self, discount: f64) -> Option<f64> {
        let rows = LN_2 * (1.0 - discount * self.lambda) / (self.rate * (1.0 - discount));
        rows.is_finite().then_some(rows)
    }

    /// A row has arrived in `slot`, whose state has the explicit features phi (q,).
    pub fn arrive(&mut self, slot: usize, phi: &[f64]) {
        if slot >= CHAINS_MAX {
            return;
        }
        let q = self.weights.len();
        if self.chains.len() <= slot {
            let mut unknown = Passage::default();
            unknown.begin(q);
            self.chains.resize(slot + 1, unknown);
        }
        if !self.chains[slot].running {
            self.enter(slot, phi);
        }
    }

    /// The newest row of `slot` earned `reward` and led to a state with the explicit features phi (q,), or to nothing.
    pub fn settle(&mut self, slot: usize, reward: f64, discount: f64, next: Option<&[f64]>) {
        let Some(chain) = self.chains.get(slot).filter(|chain| chain.running) else { return };
        // Of the weights before the chain's own last step, and after the steps of other chains: these would come back as errors.
        let value = inner(&self.weights, &chain.columns) - chain.moved;
        let promised = next.map_or(0.0, |phi| {
            phi.iter().zip(&self.scales).zip(&self.weights).map(|((phi, scale), w)| phi * scale * w).sum()
        });
        self.step(slot, reward / self.unit + discount * promised - value, discount);
        match next {
            Some(phi) => self.enter(slot, phi),
            None => self.end(slot),
        }
        let sound = |w: &f64| w.abs() < WEIGHT_MAX;
        if !(self.weights.iter().all(sound) && self.logs.iter().all(|log| log.is_finite())) {
            *self = self.emptied();
        }
    }

    /// The chain of `slot` is over.
    pub fn end(&mut self, slot: usize) {
        let q = self.weights.len();
        if let Some(chain) = self.chains.get_mut(slot) {
            chain.begin(q);
        }
    }

    /// Weights, step sizes and traces after a row with this TD error.
    fn step(&mut self, slot: usize, error: f64, discount: f64) {
        let Self { weights, logs, sizes, slopes, slopes_before, slopes_next, chains, lambda, .. } = self;
        let (sizes, chain) = (sizes.of(logs), &mut chains[slot]);
        let (moved, fade) = (chain.moved, discount * *lambda);
        for j in 0..weights.len() {
            let late = chain.entered[j] * moved;
            chain.change[j] = error * chain.trace[j] - late;
            weights[j] += chain.change[j];
            logs[j] += META / (sizes[j] + FLOOR) * (error - moved) * chain.slopes_trace[j];
            logs[j] = logs[j].clamp(LOG_LEAST, LOG_MOST);
            sizes[j] = logs[j].exp();
            slopes_before[j] = slopes[j];
            slopes[j] = slopes_next[j] + error * chain.trace_slopes[j] - late;
            slopes_next[j] = slopes[j];
            chain.trace[j] *= fade;
            chain.slopes_trace[j] *= fade;
            chain.trace_slopes[j] *= fade;
        }
    }

    /// The chain comes to a state with the explicit features phi (q,).
    fn enter(&mut self, slot: usize, phi: &[f64]) {
        let Self { logs, sizes, slopes, slopes_before, slopes_next, chains, scales, .. } = self;
        let (sizes, chain) = (sizes.of(logs), &mut chains[slot]);
        chain.columns.clear();
        chain.columns.extend(phi.iter().zip(scales.iter()).map(|(phi, scale)| phi * scale));
        let columns = &chain.columns;
        let rate: f64 = sizes.iter().zip(columns).map(|(size, x)| size * x * x).sum();
        let held = inner(&chain.trace, columns);
        chain.moved = inner(&chain.change, columns);
        let share = if rate > SHARE_MAX { SHARE_MAX / rate } else { 1.0 };
        for (j, &x) in columns.iter().enumerate() {
            let entered = share * sizes[j] * x;
            chain.entered[j] = entered;
            let old = chain.trace[j];
            chain.trace[j] = old + entered * (1.0 - held);
            chain.slopes_trace[j] += slopes_before[j] * x;
            chain.trace_slopes[j] += entered * (1.0 - held - chain.trace_slopes[j] * x);
            let kept = slopes_before[j] * x * (chain.trace[j] - entered) + slopes[j] * entered * x;
            slopes_next[j] = slopes[j] - kept;
            if rate > SHARE_MAX {
                (slopes[j], slopes_before[j], slopes_next[j], chain.trace_slopes[j]) = (0.0, 0.0, 0.0, 0.0);
                logs[j] += SHRINK * x * x;
                sizes[j] = logs[j].exp();
            }
        }
        self.rate = rate.min(SHARE_MAX);
        chain.running = true;
    }

    /// Whether its parts fit q columns.
    pub(crate) fn is_consistent(&self, q: usize) -> bool {
        let own = [&self.scales, &self.weights, &self.logs, &self.slopes, &self.slopes_before, &self.slopes_next];
        (0.0..=1.0).contains(&self.lambda)
            && self.unit > 0.0
            && own.iter().all(|part| part.len() == q)
            && self.chains.len() <= CHAINS_MAX
            && self.chains.iter().all(|chain| {
                let Passage { columns, change, trace, entered, slopes_trace, trace_slopes, .. } = chain;
                [columns, change, trace, entered, slopes_trace, trace_slopes].iter().all(|part| part.len() == q)
            })
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        size_of::<f64>() * self.weights.len() * (7 + 6 * self.chains.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two states in turn, with the rewards 1 and -1 and the discount 0.5: V = 2/3 and -2/3.
    #[test]
    fn the_values_of_two_states_in_turn_are_learned_in_any_unit() {
        for unit in [1.0, 50.0] {
            for lambda in LAMBDAS {
                let mut swift = Swift::new(lambda, &[2.0, 0.5], unit);
                let states = [[0.5, 0.0], [0.0, 2.0]];
                for row in 0..40_000 {
                    swift.arrive(0, &states[row % 2]);
                    let reward = if row % 2 == 0 { unit } else { -unit };
                    swift.settle(0, reward, 0.5, Some(&states[(row + 1) % 2]));
                }
                let mut c = [0.0; 2];
                swift.coefficients_into(&mut c);
                let values = states.map(|phi| inner(&c, &phi) / unit);
                assert!((values[0] - 2.0 / 3.0).abs() < 1e-3 && (values[1] + 2.0 / 3.0).abs() < 1e-3, "{values:?}");
                assert!(swift.half_life(0.5).unwrap() > 1.0 && swift.is_consistent(2) && !swift.is_consistent(3));
            }
        }
    }

    /// What one chain moves is no error of another: eight that take turns stay as bounded as one.
    #[test]
    fn chains_that_take_turns_do_not_drive_each_other() {
        use rand::{RngExt, SeedableRng};
        for (discount, lambda) in [0.9, 0.99].into_iter().flat_map(|g| LAMBDAS.map(|lambda| (g, lambda))) {
            let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(3);
            let mut swift = Swift::new(lambda, &[1.0, 0.3], 1.0);
            let mut at = [0.0_f64; CHAINS_MAX];
            let (mut worst, mut c) = (0.0_f64, [0.0; 2]);
            for row in 0..20_000 {
                let slot = row % CHAINS_MAX;
                swift.arrive(slot, &[1.0, at[slot]]);
                let reward = at[slot] + 2.0 * rng.random::<f64>() - 1.0;
                at[slot] = 0.95 * at[slot] + 0.5 * (2.0 * rng.random::<f64>() - 1.0);
                swift.settle(slot, reward, discount, Some(&[1.0, at[slot]]));
                swift.coefficients_into(&mut c);
                worst = worst.max(c[0].abs()).max(c[1].abs());
            }
            // One chain comes to 210, and what drives itself passes a million.
            assert!(worst < 3000.0, "gamma {discount}, lambda {lambda}: {worst}");
        }
    }

    #[test]
    fn numbers_that_overflow_begin_anew() {
        let mut swift = Swift::new(0.8, &[1.0], 1.0);
        for _ in 0..10 {
            swift.arrive(0, &[1.0]);
            swift.settle(0, f64::MAX, 0.9, Some(&[f64::MAX]));
        }
        let mut c = [1.0];
        swift.coefficients_into(&mut c);
        assert!(c[0].is_finite());
        // Chains beyond those that it follows leave it as it is.
        let before = swift.clone();
        swift.arrive(CHAINS_MAX, &[1.0]);
        swift.settle(CHAINS_MAX, 1.0, 0.9, None);
        assert_eq!(swift, before);
    }
}
