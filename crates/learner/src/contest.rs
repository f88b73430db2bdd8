//! Which of two models that learn the same rows foretells better.
//!
//! Where the values of the policy that acts are learned, returns decide. Both models state a value of each row before they learn
//! it, V_old and V_new. The return G that came says by how much the new one was nearer, and a trace of the differences of a chain
//! gathers that one TD error at a time ((C5) of `docs/mathematics.md`):
//! ```text
//! 1/2 sum [(G - V_old)^2 - (G - V_new)^2] = sum_t d_t (G_t - V_t) = sum_t c_t (r_t + gamma_t V_t+1 - V_t)
//! d = V_new - V_old        V = (V_old + V_new) / 2        c_t = d_t + gamma_t-1 c_t-1
//! ```
//! At a cut V of the last successor closes the return. Unlike TD errors, returns do not depend on either model but through
//! that.
//!
//! Where the values of another policy are learned (`next_action`, `expected`), rows hold no returns of it: returns of the acting
//! policy change with that policy, and a model may be right about the other one all the while. Then the TD errors towards the
//! successor psi of the judged policy decide, of inputs z ((C7)):
//! ```text
//! q_t = d(z_t) - gamma_t d(psi_t) = delta_old - delta_new        gain = h_t (delta_old - q_t / 2)
//! h_t = mean over earlier rows s of (k(z_s, z_t) - b) q_s
//! ```
//! Given z, delta_old has the mean q if the new model is right, and 0 if the old one is, whatever inputs the acting policy visits.
//! The row's own q does not take the place of h: it shares the chance of the successor with delta, and so would favour the flatter
//! model. Nor does d: it is largest where the judged policy goes, and the rows are elsewhere.
//!
//! Rewards count in units of the spread of their errors. Sums of blocks of rows are remembered for about 1 000 rows, since both
//! models learn.

use crate::math::dense::{Matrix, axpy, dot};
use crate::settings::Settings;
use crate::transition::Rows;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Rows whose gains are one sum: neighbours share most of their returns.
const BLOCK_ROWS: u64 = 64;
/// Blocks that are remembered.
const MEMORY: f64 = 16.0;
/// Blocks below which nothing is concluded.
const BLOCKS_MIN: u64 = 5;
/// Largest q that counts, spreads of the errors: the values of a fork with few rows may be beyond all bounds.
const APART_MAX: f64 = 4.0;

/// Values of some rows as a model states them before it learns them.
#[derive(Clone, Debug, Default)]
pub(super) struct Foretold {
    /// Of the state of each row, and of its successor, for each reward in turn. Where returns decide, the successor counts where its
    /// chain is cut there, and need not be known elsewhere.
    pub values: Vec<[f64; 2]>,
    /// Features of the states, piece by piece (m, rows of the piece); none where returns decide.
    pub features: Vec<Matrix>,
    /// b of the kernel that the features are of.
    pub constant: f64,
}

impl Foretold {
    /// Of no rows.
    pub(super) fn clear(&mut self) {
        self.values.clear();
        self.features.clear();
    }

    /// Append the TD errors of the rows it is of, in reward columns `columns`, to each column's; `discount` is of rows that
    /// carry none.
    pub(super) fn errors(
        &self,
        rows: &Rows,
        range: Range<usize>,
        columns: &[usize],
        discount: f64,
        errors: &mut [Vec<f64>],
    ) {
        for (i, values) in range.zip(self.values.chunks_exact(columns.len())) {
            let gamma = rows.follows(i, discount);
            for ((errors, &column), [value, next]) in errors.iter_mut().zip(columns).zip(values) {
                errors.push(rows.reward(i)[column] + gamma * next - value);
            }
        }
    }
}

/// A row whose successor's value is not known yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Open {
    /// c, 0 while no chain runs.
    trace: f64,
    /// r - V.
    error: f64,
    discount: f64,
}

/// What numbers of earlier rows say of a row, the more the more alike their inputs are.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Smoothed {
    /// Sums of weights, of numbers, and of features times numbers (m,).
    weight: f64,
    sum: f64,
    #[serde(with = "crate::math::raw")]
    by_feature: Vec<f64>,
}

impl Smoothed {
    /// Mean of numbers times the kernel, less its constant b, between their inputs and one with these features.
    fn at(&self, features: &[f64], constant: f64) -> f64 {
        if self.weight == 0.0 {
            return 0.0;
        }
        // A dictionary that grows adds features behind those that it had.
        let known = self.by_feature.len().min(features.len());
        (dot(&features[..known], &self.by_feature[..known]) - constant * self.sum) / self.weight
    }

    /// The number of a row whose input has these features; those before it count less from here on.
    fn take(&mut self, features: &[f64], number: f64) {
        let keep = 1.0 - 1.0 / (BLOCK_ROWS as f64 * MEMORY);
        self.weight = keep * self.weight + 1.0;
        self.sum = keep * self.sum + number;
        self.by_feature.resize(self.by_feature.len().max(features.len()), 0.0);
        self.by_feature.iter_mut().for_each(|sum| *sum *= keep);
        axpy(&mut self.by_feature[..features.len()], number, features);
    }

    fn is_finite(&self) -> bool {
        [self.weight, self.sum].iter().chain(&self.by_feature).all(|v| v.is_finite())
    }
}

/// What has been found so far.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Contest {
    /// 1 / spread of the errors of each reward.
    per_spread: Vec<f64>,
    /// Of each stream's number and reward.
    open: Vec<Open>,
    block: f64,
    filled: u64,
    blocks: u64,
    /// Weight, sum and sum of squares of the blocks remembered.
    weight: f64,
    sum: f64,
    squares: f64,
    /// q of each reward; none where returns decide.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    apart: Vec<Smoothed>,
}

impl Contest {
    /// Nothing found yet; `spreads` are the errors' spreads, of each reward (H,), in its unit.
    pub(super) fn new(spreads: &[f64]) -> Self {
        let per_spread = spreads.iter().map(|s| if *s > 0.0 { 1.0 / s } else { 1.0 }).collect();
        let (open, block, filled, blocks) = (Vec::new(), 0.0, 0, 0);
        Self { per_spread, open, block, filled, blocks, weight: 0.0, sum: 0.0, squares: 0.0, apart: Vec::new() }
    }

    /// Rows `range` of a critic with these settings, and what both models made of them.
    pub(super) fn take(
        &mut self,
        settings: &Settings,
        rows: &Rows,
        range: Range<usize>,
        old: &Foretold,
        new: &Foretold,
    ) {
        if settings.leaves_chain() {
            self.take_errors(settings, rows, range, old, new);
        } else {
            self.take_returns(settings, rows, range, old, new);
        }
    }

    /// The same where a policy is judged that need not be the one that acts.
    fn take_errors(&mut self, settings: &Settings, rows: &Rows, range: Range<usize>, old: &Foretold, new: &Foretold) {
        let rewards = settings.rewards.len();
        debug_assert_eq!(old.features.iter().map(Matrix::cols).sum::<usize>(), range.len(), "features of each row");
        if self.apart.is_empty() {
            // A checkpoint of an earlier version may hold a contest that returns decided.
            *self = Self { per_spread: std::mem::take(&mut self.per_spread), ..Self::new(&[]) };
        }
        self.apart.resize_with(rewards, Smoothed::default);
        let constant = old.constant;
        let features = old.features.iter().flat_map(|piece| (0..piece.cols()).map(move |k| piece.col(k)));
        for (k, (i, features)) in range.zip(features).enumerate() {
            let gamma = rows.follows(i, settings.discount);
            for (h, &column) in settings.rewards.iter().enumerate() {
                let ([old, old_next], [new, new_next]) = (old.values[k * rewards + h], new.values[k * rewards + h]);
                let scale = self.per_spread[h];
                let error = scale * (rows.reward(i)[column] + gamma * old_next - old);
                let apart = scale * (new - old - gamma * (new_next - old_next));
                let apart = if apart.is_nan() { 0.0 } else { apart.clamp(-APART_MAX, APART_MAX) };
                self.block += self.apart[h].at(features, constant) * (error - 0.5 * apart);
                self.apart[h].take(features, apart);
            }
            self.end_row();
        }
    }

    /// The same where the policy that acts is the one whose values are learned.
    fn take_returns(&mut self, settings: &Settings, rows: &Rows, range: Range<usize>, old: &Foretold, new: &Foretold) {
        let (columns, discount) = (&settings.rewards, settings.discount);
        let rewards = columns.len();
        for (k, i) in range.enumerate() {
            let first = rows.streams[i] as usize * rewards;
            if self.open.len() < first + rewards {
                self.open.resize(first + rewards, Open::default());
            }
            let gamma = rows.follows(i, discount);
            for (h, &column) in columns.iter().enumerate() {
                let ([old, old_next], [new, new_next]) = (old.values[k * rewards + h], new.values[k * rewards + h]);
                let scale = self.per_spread[h];
                let (value, next) = (0.5 * scale * (old + new), 0.5 * scale * (old_next + new_next));
                let open = &mut self.open[first + h];
                // The row before, in the same chain: this state is what it led to, or after a gap the nearest there is.
                self.block += open.trace * (open.error + open.discount * value);
                let carried =
                    if rows.starts_chain[i] || rows.ratios[i] != 1.0 { 0.0 } else { open.discount * open.trace };
                let trace = carried + if rows.ratios[i] == 1.0 { scale * (new - old) } else { 0.0 };
                let error = scale * rows.reward(i)[column] - value;
                if rows.terminated[i] || rows.truncated[i] {
                    self.block += trace * (error + gamma * next);
                    *open = Open::default();
                } else {
                    *open = Open { trace, error, discount: gamma };
                }
            }
            self.end_row();
        }
    }

    fn end_row(&mut self) {
        self.filled += 1;
        if self.filled == BLOCK_ROWS {
            let keep = 1.0 - 1.0 / MEMORY;
            let gain = if self.block.is_finite() { self.block } else { 0.0 };
            self.weight = keep * self.weight + 1.0;
            self.sum = keep * self.sum + gain;
            self.squares = keep * self.squares + gain * gain;
            self.blocks += 1;
            (self.block, self.filled) = (0.0, 0);
        }
    }

    /// Mean gain of a block in units of its standard error: positive where the new model is nearer. None while too little
    /// is known.
    pub(super) fn lead(&self) -> Option<f64> {
        if self.blocks < BLOCKS_MIN {
            return None;
        }
        let mean = self.sum / self.weight;
        let variance = (self.squares / self.weight - mean * mean).max(f64::MIN_POSITIVE);
        Some(mean / (variance / (self.weight - 1.0)).sqrt())
    }

    /// Whether its parts fit each other and H rewards.
    pub(super) fn is_consistent(&self, rewards: usize) -> bool {
        self.per_spread.len() == rewards
            && self.open.len().is_multiple_of(rewards.max(1))
            && self.filled < BLOCK_ROWS
            && [0, rewards].contains(&self.apart.len())
            && self.apart.iter().all(Smoothed::is_finite)
            && [self.block, self.weight, self.sum, self.squares].iter().all(|v| v.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{ActionSpace, ActionValue, Successor, Trace};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// Rows of two streams, with ends and time limits, whose rewards are noise about 1; what is foretold is constant.
    fn rows(count: usize, seed: u64) -> Rows {
        let (mut rng, mut rows) = (ChaCha8Rng::seed_from_u64(seed), Rows::new(1, 1));
        let mut starts = [true; 2];
        for i in 0..count {
            let ends = rng.random::<f64>();
            rows.states.push(0.0);
            rows.next_states.push(0.0);
            rows.rewards.push(1.0 + rng.random::<f64>() - 0.5);
            rows.discounts.push(f64::NAN);
            rows.ratios.push(1.0);
            rows.streams.push((i % 2) as u32);
            rows.starts_chain.push(std::mem::replace(&mut starts[i % 2], ends < 0.02));
            rows.terminated.push(false);
            rows.truncated.push(ends < 0.02);
        }
        rows
    }

    /// Settings of a critic of the policy that acts.
    fn acting(discount: f64) -> Settings {
        Settings { discount, ..Settings::default() }
    }

    /// And of one that judges another policy.
    fn judging(discount: f64) -> Settings {
        let of =
            ActionValue { space: ActionSpace::Discrete(2), successor: Successor::NextAction, trace: Trace::Retrace };
        Settings { action_value: Some(of), ..acting(discount) }
    }

    /// Of rows whose inputs are all alike.
    fn foretold(values: Vec<[f64; 2]>) -> Foretold {
        let features = vec![Matrix::from_columns(1, values.len(), vec![1.0; values.len()])];
        Foretold { values, features, constant: 0.0 }
    }

    fn constant(value: f64, count: usize) -> Foretold {
        foretold(vec![[value, value]; count])
    }

    fn lead(settings: &Settings, rows: &Rows, old: &Foretold, new: &Foretold) -> f64 {
        let mut contest = Contest::new(&[0.3]);
        contest.take(settings, rows, 0..rows.len(), old, new);
        contest.lead().unwrap()
    }

    #[test]
    fn whoever_is_nearer_to_the_returns_leads() {
        let rows = rows(2000, 1);
        for (old, new, leads) in [(0.0, 10.0, true), (10.0, 0.0, false), (12.0, 9.0, true), (9.5, 30.0, false)] {
            let lead = lead(&acting(0.9), &rows, &constant(old, 2000), &constant(new, 2000));
            assert!(if leads { lead > 4.0 } else { lead < -4.0 }, "{old} against {new}: {lead}");
        }
    }

    #[test]
    fn of_another_policy_rewards_decide_wherever_the_acting_one_goes() {
        let (count, gamma) = (2000, 0.8);
        // The judged policy takes the first of two actions, the acting one takes it in one row of five. The first has come to earn
        // -1 instead of 1, the second 4 instead of 3.
        let first = |i: usize| i.is_multiple_of(5);
        let mut rows = rows(count, 5);
        (0..count).for_each(|i| rows.rewards[i] += if first(i) { -2.0 } else { 3.0 });
        let model = |earns: [f64; 2]| {
            let next = earns[0] / (1.0 - gamma);
            let value = |i: usize| earns[usize::from(!first(i))] + gamma * next;
            let inputs = (0..count).flat_map(|i| if first(i) { [1.0, 0.0] } else { [0.0, 1.0] }).collect();
            let features = vec![Matrix::from_columns(2, count, inputs)];
            Foretold { features, ..foretold((0..count).map(|i| [value(i), next]).collect()) }
        };
        let (before, now) = (model([1.0, 3.0]), model([-1.0, 4.0]));
        let right = lead(&judging(gamma), &rows, &before, &now);
        assert!(right > 4.0, "{right}");
        let wrong = lead(&judging(gamma), &rows, &now, &before);
        assert!(wrong < -4.0, "{wrong}");
        // The acting policy earns 3 a row, which the values before are nearer to.
        let by_returns = lead(&acting(gamma), &rows, &before, &now);
        assert!(by_returns < -4.0, "{by_returns}");
    }

    #[test]
    fn the_flatter_of_two_models_that_are_right_does_not_lead() {
        let (count, gamma) = (2000, 0.9);
        let (mut rng, mut rows) = (ChaCha8Rng::seed_from_u64(7), rows(count, 6));
        rows.rewards.iter_mut().for_each(|reward| *reward -= 1.0);
        // By chance a row leads to a good state or to a bad one, which one of the two models knows.
        let steep = foretold((0..count).map(|_| [0.0, if rng.random::<f64>() < 0.5 { 2.0 } else { -2.0 }]).collect());
        let found = lead(&judging(gamma), &rows, &steep, &constant(0.0, count));
        assert!(found.abs() < 4.0, "{found}");
        let squares: f64 = (0..count).map(|i| (rows.rewards[i] + gamma * steep.values[i][1]).powi(2)).sum();
        let flat: f64 = rows.rewards.iter().map(|reward| reward * reward).sum();
        assert!(squares > 10.0 * flat, "squared errors would say otherwise: {squares} {flat}");
    }

    #[test]
    fn the_sum_is_that_of_squared_errors_of_returns() {
        let (count, gamma) = (BLOCK_ROWS as usize, 0.8);
        let mut rows = rows(count, 2);
        (rows.streams, rows.starts_chain) = (vec![0; count], vec![false; count]);
        rows.truncated = (0..count).map(|i| i + 1 == count).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut any = || foretold((0..count).map(|_| [rng.random(), rng.random()]).collect());
        let (old, new) = (any(), any());
        let mut contest = Contest::new(&[1.0]);
        contest.take(&acting(gamma), &rows, 0..count, &old, &new);
        let (mut expected, mut target) = (0.0, 0.0);
        for i in (0..count).rev() {
            let middle = 0.5 * (old.values[i][1] + new.values[i][1]);
            target = rows.rewards[i] + gamma * if i + 1 == count { middle } else { target };
            expected += 0.5 * ((target - old.values[i][0]).powi(2) - (target - new.values[i][0]).powi(2));
        }
        assert!((contest.sum - expected).abs() < 1e-9, "{} {expected}", contest.sum);
    }

    #[test]
    fn rows_may_come_in_any_pieces() {
        let rows = rows(1000, 4);
        let (old, new) = (constant(3.0, 1000), constant(8.0, 1000));
        for settings in [acting(0.9), judging(0.9)] {
            let [mut whole, mut pieces] = [Contest::new(&[1.0]), Contest::new(&[1.0])];
            whole.take(&settings, &rows, 0..1000, &old, &new);
            for from in (0..1000).step_by(7) {
                let to = (from + 7).min(1000);
                let part = |of: &Foretold| foretold(of.values[from..to].to_vec());
                pieces.take(&settings, &rows, from..to, &part(&old), &part(&new));
            }
            assert_eq!(whole, pieces);
            assert!(whole.is_consistent(1));
        }
    }
}
