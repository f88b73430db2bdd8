//! Which of two models that learn the same rows foretells returns better.
//!
//! Both state a value of each row before they learn it, V_old and V_new. The return G that came says by how much the new one
//! was nearer, and a trace of the differences of a chain gathers that one TD error at a time
//! ((C5) of `docs/mathematics.md`):
//! ```text
//! 1/2 sum [(G - V_old)^2 - (G - V_new)^2] = sum_t d_t (G_t - V_t) = sum_t c_t (r_t + gamma_t V_t+1 - V_t)
//! d = V_new - V_old        V = (V_old + V_new) / 2        c_t = d_t + gamma_t-1 c_t-1
//! ```
//! At a cut V of the last successor closes the return. Unlike TD errors, returns do not depend on either model but through
//! that. Rewards count in units of the spread of their errors. Sums of blocks of rows are remembered for about 1 000 rows,
//! since both models learn.

use crate::transition::Rows;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Rows whose gains are one sum: neighbours share most of their returns.
const BLOCK_ROWS: u64 = 64;
/// Blocks that are remembered.
const MEMORY: f64 = 16.0;
/// Blocks below which nothing is concluded.
const BLOCKS_MIN: u64 = 5;

/// Values of some rows as a model states them before it learns them.
#[derive(Clone, Debug, Default)]
pub(super) struct Foretold {
    /// Of the state of each row, and of its successor (which counts where its chain is cut there), for each reward in turn.
    pub values: Vec<[f64; 2]>,
}

impl Foretold {
    /// Append the TD errors of the rows it is of, of reward columns `columns`, to those of each; `discount` is of rows that
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
            let gamma = if rows.terminated[i] { 0.0 } else { rows.discount(i, discount) };
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
}

impl Contest {
    /// Nothing found yet; `spreads` are those of the errors of each reward (H,), reward.
    pub(super) fn new(spreads: &[f64]) -> Self {
        let per_spread = spreads.iter().map(|s| if *s > 0.0 { 1.0 / s } else { 1.0 }).collect();
        let (open, block, filled, blocks) = (Vec::new(), 0.0, 0, 0);
        Self { per_spread, open, block, filled, blocks, weight: 0.0, sum: 0.0, squares: 0.0 }
    }

    /// Rows `range`, of whose reward columns those in `columns` count, and what both models made of them. `discount` is of rows
    /// that carry none.
    pub(super) fn take(
        &mut self,
        rows: &Rows,
        range: Range<usize>,
        columns: &[usize],
        discount: f64,
        old: &Foretold,
        new: &Foretold,
    ) {
        let rewards = columns.len();
        for (k, i) in range.enumerate() {
            let first = rows.streams[i] as usize * rewards;
            if self.open.len() < first + rewards {
                self.open.resize(first + rewards, Open::default());
            }
            let gamma = if rows.terminated[i] { 0.0 } else { rows.discount(i, discount) };
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
            && [self.block, self.weight, self.sum, self.squares].iter().all(|v| v.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

    fn constant(value: f64, count: usize) -> Foretold {
        Foretold { values: vec![[value, value]; count] }
    }

    #[test]
    fn whoever_is_nearer_to_the_returns_leads() {
        let rows = rows(2000, 1);
        for (old, new, leads) in [(0.0, 10.0, true), (10.0, 0.0, false), (12.0, 9.0, true), (9.5, 30.0, false)] {
            let mut contest = Contest::new(&[0.3]);
            contest.take(&rows, 0..2000, &[0], 0.9, &constant(old, 2000), &constant(new, 2000));
            let lead = contest.lead().unwrap();
            assert!(if leads { lead > 4.0 } else { lead < -4.0 }, "{old} against {new}: {lead}");
        }
    }

    #[test]
    fn the_sum_is_that_of_squared_errors_of_returns() {
        let (count, gamma) = (BLOCK_ROWS as usize, 0.8);
        let mut rows = rows(count, 2);
        (rows.streams, rows.starts_chain) = (vec![0; count], vec![false; count]);
        rows.truncated = (0..count).map(|i| i + 1 == count).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(3);
        let mut foretold = || Foretold { values: (0..count).map(|_| [rng.random(), rng.random()]).collect() };
        let (old, new) = (foretold(), foretold());
        let mut contest = Contest::new(&[1.0]);
        contest.take(&rows, 0..count, &[0], gamma, &old, &new);
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
        let [mut whole, mut pieces] = [Contest::new(&[1.0]), Contest::new(&[1.0])];
        whole.take(&rows, 0..1000, &[0], 0.9, &old, &new);
        for from in (0..1000).step_by(7) {
            let to = (from + 7).min(1000);
            let part = |of: &Foretold| Foretold { values: of.values[from..to].to_vec() };
            pieces.take(&rows, from..to, &[0], 0.9, &part(&old), &part(&new));
        }
        assert_eq!(whole, pieces);
        assert!(whole.is_consistent(1));
    }
}
