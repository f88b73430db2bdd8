//! A sign of hidden state: V learned from single rewards against V learned from whole returns.
//!
//! Where the state says all there is to know of what follows, both are the same but for chance. Where it does not, the value of the next
//! state, which a target of lambda 0 leans on, leaves out what the return still contains. So the two differ by more than copies of the
//! rows make them scatter:
//! ```text
//! sum c_i phi_i (R_i - (phi_i - d_i phi(e_i))' u) = ridge u         lambda 0: R = r, e = x', d = gamma
//!                                                                   lambda 1: R = return, e = the state behind the chain, d = gamma^k
//! ratio = mean over states of (V_0 - V_1)^2 / mean of its variance over copies with weights c ~ Poisson(1) of pieces of chains
//! ```

use crate::math::dense::{Matrix, Op, View, axpy, dot, multiply, solve_general};
use crate::math::dictionary::{Dictionary, select};
use crate::math::kernel::NoiseModel;
use crate::math::returns::chains;
use crate::model::Model;
use crate::random::{mix, uniform};
use crate::transition::Rows;

/// Copies of the rows.
const COPIES: usize = 12;
/// Rows of a piece of a chain, which a copy weights as one.
const PIECE: usize = 50;
/// The newest rows that are looked at, at most; features, and states that the two are compared in.
pub(crate) const ROWS_MAX: usize = 4000;
const FEATURES_MAX: usize = 120;
const STATES_MAX: usize = 200;
/// Of the signal variance: what the elements may leave of a state.
const TOLERANCE: f64 = 1e-4;

/// Ratio above which the state hides something, with [`CHAINS_MIN`] chains or more.
pub const RATIO_MAX: f64 = 4.0;
/// Chains below which the ratio is no sign of anything.
pub const CHAINS_MIN: usize = 100;

/// How far V of lambda 0 and V of lambda 1 are apart.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sign {
    /// Mean squared difference over what chance makes of it: about 1 where the state says all.
    pub ratio: f64,
    /// Chains looked at.
    pub chains: usize,
}

impl Sign {
    /// Whether what follows depends on more than the state.
    pub fn is_hidden(&self) -> bool {
        self.ratio > RATIO_MAX && self.chains >= CHAINS_MIN
    }
}

/// What a row is a target of: its reward or return, and what is behind it.
struct Targets {
    /// (n,).
    rewards: Vec<f64>,
    /// (n,) factor on the value behind, and the row whose successor that is.
    factors: Vec<f64>,
    behind: Vec<usize>,
}

/// Compare V of the first reward by kernel and ridge of `model`, which has learned `rows`. `seed` decides the copies. None where no row
/// continues another one, all rewards are the same, or a system has no solution; of values of actions, of rows that are forgotten, of
/// white noise and without a future.
pub fn sign(model: &Model, rows: &Rows, seed: u64) -> Option<Sign> {
    let settings = model.settings();
    let follows = settings.noise == NoiseModel::Correlated && settings.discount > 0.0;
    if !follows || settings.action_value.is_some() || settings.forgetting.is_some() {
        return None;
    }
    let first = rows.len().saturating_sub(ROWS_MAX);
    let rows = &crate::off_policy::part(&model.about_level(rows), |i| i >= first);
    let follows = chains(rows);
    if follows.iter().all(Option::is_none) {
        return None;
    }
    let unit = pieces(&follows);
    let (dictionary, dim) = (elements(model, rows), rows.dim);
    let features = |states: &[f64]| {
        let places = dictionary.kernel().project(dim, &model.inputs().normalise(states));
        dictionary.features(&places)
    };
    let (own, next) = (features(&rows.states), features(&rows.next_states));
    let ridge = model.solve().ok()?.scale().ratio;
    let every = rows.len().div_ceil(STATES_MAX).max(1);
    let difference = |weights: &dyn Fn(usize) -> f64| -> Option<Vec<f64>> {
        let mut both = Vec::new();
        for targets in [single(model, rows), whole(model, rows, &follows)] {
            both.push(solve(&own, &next, &targets, weights, ridge)?);
        }
        let apart: Vec<f64> = both[0].iter().zip(&both[1]).map(|(a, b)| a - b).collect();
        Some((0..rows.len()).step_by(every).map(|i| dot(own.col(i), &apart)).collect())
    };
    let found = difference(&|_| 1.0)?;
    let mut copies = Vec::with_capacity(COPIES);
    for copy in 0..COPIES as u64 {
        copies.push(difference(&|i| poisson(uniform(mix(&[seed, copy, unit[i] as u64]))))?);
    }
    let variance = |i: usize| {
        let mean = copies.iter().map(|of| of[i]).sum::<f64>() / COPIES as f64;
        copies.iter().map(|of| (of[i] - mean).powi(2)).sum::<f64>() / (COPIES as f64 - 1.0)
    };
    let chance: f64 = (0..found.len()).map(variance).sum();
    let ratio = dot(&found, &found) / chance;
    let chains = follows.iter().filter(|next| next.is_none()).count();
    ratio.is_finite().then_some(Sign { ratio, chains })
}

/// Elements of the model's dictionary, or where these are many, fewer over the same states.
fn elements(model: &Model, rows: &Rows) -> Dictionary {
    let dictionary = model.dictionary();
    if dictionary.len() <= FEATURES_MAX {
        return dictionary.clone();
    }
    let kernel = dictionary.kernel();
    let states = model.inputs().normalise(&rows.states);
    select(kernel, rows.dim, &states, TOLERANCE * kernel.signal_variance, FEATURES_MAX).0
}

/// (n,) number of the piece of a chain that each row belongs to.
fn pieces(follows: &[Option<usize>]) -> Vec<usize> {
    let mut place: Vec<Option<(usize, usize)>> = vec![None; follows.len()];
    let mut count = 0;
    for i in 0..follows.len() {
        let (unit, at) = place[i].unwrap_or_else(|| {
            count += 1;
            (count - 1, 0)
        });
        place[i] = Some((unit, at));
        if let Some(next) = follows[i] {
            place[next] = if at + 1 < PIECE { Some((unit, at + 1)) } else { None };
        }
    }
    place.into_iter().map(|place| place.map_or(0, |(unit, _)| unit)).collect()
}

fn single(model: &Model, rows: &Rows) -> Targets {
    let settings = model.settings();
    let factor = |i: usize| rows.follows(i, settings.discount);
    Targets {
        rewards: (0..rows.len()).map(|i| rows.reward(i)[settings.rewards[0]]).collect(),
        factors: (0..rows.len()).map(factor).collect(),
        behind: (0..rows.len()).collect(),
    }
}

fn whole(model: &Model, rows: &Rows, follows: &[Option<usize>]) -> Targets {
    let mut out = single(model, rows);
    for i in (0..rows.len()).rev() {
        if let Some(next) = follows[i] {
            out.rewards[i] += out.factors[i] * out.rewards[next];
            out.factors[i] *= out.factors[next];
            out.behind[i] = out.behind[next];
        }
    }
    out
}

/// u (m,) of rows with these weights.
fn solve(
    own: &Matrix,
    next: &Matrix,
    targets: &Targets,
    weights: &dyn Fn(usize) -> f64,
    ridge: f64,
) -> Option<Vec<f64>> {
    let m = own.rows();
    let (mut weighted, mut differences) = (own.clone(), own.clone());
    for i in 0..own.cols() {
        let weight = weights(i);
        weighted.col_mut(i).iter_mut().for_each(|value| *value *= weight);
        axpy(differences.col_mut(i), -targets.factors[i], next.col(targets.behind[i]));
    }
    let mut system = Matrix::identity(m);
    (0..m).for_each(|j| *system.at_mut(j, j) = ridge);
    multiply(system.view_mut(), true, 1.0, weighted.view(), Op::Plain, differences.view(), Op::Transposed);
    let mut right = Matrix::zeros(m, 1);
    multiply(right.view_mut(), false, 1.0, weighted.view(), Op::Plain, View::column(&targets.rewards), Op::Plain);
    Some(solve_general(&system, &right).ok()?.col(0).to_vec())
}

/// A number of the distribution Poisson(1) from a uniform one.
fn poisson(uniform: f64) -> f64 {
    let (mut count, mut share) = (0.0, (-1.0f64).exp());
    let mut sum = share;
    while uniform > sum && count < 20.0 {
        count += 1.0;
        share /= count;
        sum += share;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_are_one_on_the_average_and_pieces_end() {
        let n = 20_000u64;
        let draws: Vec<f64> = (0..n).map(|k| poisson(uniform(mix(&[k])))).collect();
        let mean = draws.iter().sum::<f64>() / n as f64;
        let variance = draws.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
        assert!((mean - 1.0).abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
        let follows: Vec<Option<usize>> = (0..130).map(|i| (i != 119 && i != 129).then_some(i + 1)).collect();
        let found = pieces(&follows);
        assert_eq!(
            [found[0], found[49], found[50], found[100], found[119], found[120], found[129]],
            [0, 0, 1, 2, 2, 3, 3]
        );
    }
}
