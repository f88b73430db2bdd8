//! Whether the rows since a change of the world predict each other better alone than with those before it.
//!
//! Both ways are compared as kernels are: each fold of the rows since the change is predicted by the others, once with and once
//! without the rows before. Kernel, lambda and ridge are the same. Targets are lambda-returns of the mean of the two, so that what
//! they get wrong is wrong for both. This is docs/mathematics.md (R8).

use super::folds::{self, each};
use super::pieces::{FOLDS, Pieces, Source};
use super::{CANDIDATES, DECIDING, ELEMENTS, ROWS_MAX, ROWS_OF_MANY_REWARDS, TOLERANCE};
use crate::allowance::Allowance;
use crate::math::dense::Matrix;
use crate::math::dictionary::{Dictionary, StoppingRule, pivoted_cholesky};
use crate::math::evidence::KeepGoing;
use crate::math::kernel::{Hyperparameters, Kernel};
use crate::math::parts::sum_with_error;
use crate::settings::Settings;
use crate::snapshot::Inputs;
use crate::transition::Rows;
use std::ops::Range;

/// Standard errors by which the rows since must do better alone: more rows are better where nothing has changed.
const CLEAR: f64 = 2.0;

/// What is asked.
pub(crate) struct Change<'a> {
    pub(crate) settings: &'a Settings,
    /// All rows.
    pub(crate) rows: &'a Rows,
    /// Number of the first row since the change.
    pub(crate) from: usize,
    /// Normalisation that the hyperparameters refer to.
    pub(crate) inputs: &'a Inputs,
    pub(crate) hyperparameters: &'a Hyperparameters,
    pub(crate) lambda: f64,
    /// Most elements of the dictionary.
    pub(crate) room: usize,
    pub(crate) seed: u64,
}

impl Change<'_> {
    /// Whether the rows since do better alone, by more than chance. None if stopped.
    pub(crate) fn stands_alone(&self, keep_going: KeepGoing<'_>, allowance: &Allowance) -> Option<bool> {
        let pieces = self.pieces();
        let dictionary = self.dictionary(&pieces, keep_going)?;
        // Solved twice: with the rows before and without.
        allowance.spend(2.0 * folds::products(&pieces, dictionary.len(), 1, 1));
        // Pieces of a fold stand in the order of their first rows.
        let split = |fold: &Range<usize>| {
            let since = |&node: &usize| pieces.row[node].is_some_and(|row| row >= self.from);
            fold.clone().find(since).unwrap_or(fold.end)
        };
        let since: Vec<Range<usize>> = pieces.folds.iter().map(|fold| split(fold)..fold.end).collect();
        let before = pieces.folds.iter().map(|fold| fold.start..split(fold));
        let parts: Vec<Range<usize>> = since.iter().cloned().chain(before).collect();
        let lambdas = [self.lambda];
        let sums = each(parts.len(), |k| folds::sums(&pieces, parts[k].clone(), &dictionary, &lambdas, keep_going));
        let sums: Vec<folds::NodeSums> = sums.into_iter().collect::<Option<_>>()?;
        let values = |sums: &[folds::NodeSums]| {
            let ratio = [self.hyperparameters.noise_variance / self.hyperparameters.kernel.signal_variance];
            let mut values = Matrix::zeros(pieces.nodes(), pieces.columns());
            for (fold, nodes) in since.iter().enumerate() {
                let weights = folds::weights(sums, fold, &ratio);
                let found = folds::values(&pieces, nodes.clone(), &dictionary, &weights, keep_going)?;
                for h in 0..pieces.columns() {
                    let column = &found[h * nodes.len()..(h + 1) * nodes.len()];
                    let to = &mut values.col_mut(h)[nodes.clone()];
                    to.iter_mut().zip(column).for_each(|(to, &value)| *to = f64::from(value));
                }
            }
            Some(values)
        };
        let (together, alone) = (values(&sums)?, values(&sums[..FOLDS])?);
        Some(self.gain(&pieces, &together, &alone).is_some_and(|(gain, error)| gain > CLEAR * error))
    }

    /// All rows in pieces, of which none goes across the change.
    fn pieces(&self) -> Pieces {
        let mut rows = self.rows.clone();
        let mut met = vec![false; rows.streams.iter().max().map_or(0, |&last| last as usize + 1)];
        for i in self.from..rows.len() {
            let first = !std::mem::replace(&mut met[rows.streams[i] as usize], true);
            rows.starts_chain[i] |= first;
        }
        let columns = &self.settings.rewards;
        Pieces::new(&Source {
            rows: &rows,
            rewards: columns,
            discount: self.settings.discount,
            ratio_max: self.settings.ratio_max(),
            inputs: self.inputs,
            rows_max: (ROWS_MAX / columns.len()).max(ROWS_OF_MANY_REWARDS),
            seed: self.seed,
        })
    }

    fn dictionary(&self, pieces: &Pieces, keep_going: KeepGoing<'_>) -> Option<Dictionary> {
        let kernel = &self.hyperparameters.kernel;
        let kernel = Kernel { signal_variance: 1.0, ..kernel.scaled(1.0 / kernel.signal_variance) };
        let chosen = pieces.sample(CANDIDATES, self.seed ^ 0xd1c7);
        let dim = pieces.dim;
        let states: Vec<f64> =
            chosen.iter().flat_map(|&node| &pieces.states[node * dim..(node + 1) * dim]).copied().collect();
        let enough = StoppingRule { tolerance: TOLERANCE, trace: 0.0 };
        let room = self.room.clamp(1, ELEMENTS);
        Some(pivoted_cholesky(&kernel, dim, &states, enough, room, keep_going)?.0)
    }

    /// How much less the rows since err where they are alone, in all, and the standard error of that over pieces. None if either
    /// way gives no numbers.
    fn gain(&self, pieces: &Pieces, together: &Matrix, alone: &Matrix) -> Option<(f64, f64)> {
        let since = |piece: &&Range<usize>| pieces.row[piece.start].is_some_and(|row| row >= self.from);
        let since: Vec<&Range<usize>> = pieces.pieces.iter().filter(since).collect();
        let mut gains = vec![0.0; since.len()];
        for h in 0..pieces.columns() {
            let (a, b) = (together.col(h), alone.col(h));
            let middle: Vec<f64> = a.iter().zip(b).map(|(a, b)| 0.5 * (a + b)).collect();
            for l in DECIDING {
                let targets = pieces.returns(l, h, &middle);
                let scale = spread(&targets, &pieces.weight, &since);
                for (gain, piece) in gains.iter_mut().zip(&since) {
                    let error = |values: &[f64], node: usize| (values[node] - targets[node]).powi(2);
                    let more = |node: usize| pieces.weight[node] * (error(a, node) - error(b, node));
                    *gain += (*piece).clone().map(more).sum::<f64>() / scale;
                }
            }
        }
        let (sum, error) = sum_with_error(&gains);
        (error.is_finite() && sum.is_finite()).then_some((sum, error))
    }
}

/// Variance of the targets over some pieces, as weighted; positive.
fn spread(targets: &[f64], weight: &[f64], pieces: &[&Range<usize>]) -> f64 {
    let nodes = || pieces.iter().flat_map(|piece| (*piece).clone());
    let total = nodes().map(|node| weight[node]).sum::<f64>().max(f64::MIN_POSITIVE);
    let mean = nodes().map(|node| weight[node] * targets[node]).sum::<f64>() / total;
    let variance = nodes().map(|node| weight[node] * (targets[node] - mean).powi(2)).sum::<f64>() / total;
    variance.max(1e-20 * mean * mean).max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::kernel::{Metric, NoiseModel};
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    /// A walk between -1 and 1, cut every 40 rows, whose reward is the position, times `after` from the row at 2 000 on.
    fn walk(after: f64, seed: u64) -> Rows {
        let (mut rng, mut rows, mut x) = (ChaCha8Rng::seed_from_u64(seed), Rows::new(1, 1), 0.0_f64);
        for i in 0..4000 {
            let sign = if i < 2000 { 1.0 } else { after };
            let next = (x + 0.4 * (rng.random::<f64>() - 0.5)).clamp(-1.0, 1.0);
            rows.states.push(x);
            rows.next_states.push(next);
            rows.rewards.push(sign * x + rng.random::<f64>() - 0.5);
            rows.discounts.push(f64::NAN);
            rows.ratios.push(1.0);
            rows.streams.push(0);
            rows.starts_chain.push(i % 40 == 0);
            rows.terminated.push(false);
            rows.truncated.push(i % 40 == 39);
            x = if i % 40 == 39 { 2.0 * rng.random::<f64>() - 1.0 } else { next };
        }
        rows
    }

    fn stands_alone(rows: &Rows, from: usize, goes_on: bool) -> Option<bool> {
        let settings = Settings { discount: 0.8, ..Settings::default() };
        let kernel = Kernel::gaussian(1.0, 10.0, Metric::Isotropic(4.0));
        let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.3 };
        let (settings, inputs, hyperparameters) = (&settings, &Inputs::identity(1), &hyperparameters);
        let change = Change { settings, rows, from, inputs, hyperparameters, lambda: 0.8, room: 50, seed: 1 };
        change.stands_alone(&|| goes_on, &Allowance::unlimited())
    }

    #[test]
    fn rows_before_a_change_are_left_out_where_they_mislead() {
        for seed in 0..5 {
            let (turned, same) = (walk(-1.0, seed), walk(1.0, seed));
            assert_eq!(stands_alone(&turned, 2000, true), Some(true), "seed {seed}: the sign has turned");
            assert_eq!(stands_alone(&same, 2000, true), Some(false), "seed {seed}: nothing has changed");
            assert_eq!(stands_alone(&turned, 3980, true), Some(false), "seed {seed}: one piece tells nothing");
            assert_eq!(stands_alone(&turned, 2000, false), None, "seed {seed}: stopped");
        }
    }
}
