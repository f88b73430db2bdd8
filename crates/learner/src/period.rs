//! The period of a state variable that comes back to the same after an unknown way, by evidence.
//!
//! Returns are a Gaussian process over the states, with a kernel that is periodic in the variable. Of each period on a grid of
//! frequencies, whose neighbours are a tenth of a turn apart over all the data, and of a few lengthscales and noises, the marginal
//! likelihood is worked out with the best scale:
//! ```text
//! log p = -n/2 log(y'K^-1 y / n) - 1/2 log|K|        K = k(X, X) + noise I
//! ```
//! Multiples of the period fit as well, and share less between turns: their evidence is lower.

use crate::math::dense::{Cholesky, Matrix, Scratch, dot};
use crate::math::embedding::StateKind;
use crate::math::golden::golden_section;
use crate::math::kernel::{Kernel, Metric, Points};
use crate::math::returns::chains;
use crate::transition::Rows;

/// States that the evidence is of, at most.
const STATES_MAX: usize = 200;
/// Frequencies of the grid: up to a tenth of this number of turns over all the data.
const FREQUENCIES: usize = 400;
/// Turns between neighbours, over all the data.
const STEP: f64 = 0.1;
/// Fewest turns over all the data that show a period.
const TURNS_MIN: f64 = 1.5;
const RELEVANCES: [f64; 2] = [0.5, 2.0];
const NOISES: [f64; 2] = [0.03, 0.3];
/// Steps of the search between neighbours of the best.
const REFINED: usize = 16;
/// Nats by which a period must be likelier than none.
const GAIN_MIN: f64 = 3.0;

/// The period of state variable `d` of `rows`, in its unit, where returns of the first reward at `discount` show one: they must go
/// through it one and a half times or more. Variables of `kinds` are what these say.
pub fn period(rows: &Rows, d: usize, kinds: &[StateKind], discount: f64) -> Option<f64> {
    let places: Vec<usize> = (0..rows.len()).step_by(rows.len().div_ceil(STATES_MAX).max(1)).collect();
    let column = |d: usize| places.iter().map(|&i| rows.state(i)[d]).collect::<Vec<f64>>();
    let (least, most) =
        column(d).iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), x| (low.min(*x), high.max(*x)));
    let range = most - least;
    if !(range > 0.0 && range.is_finite()) {
        return None;
    }
    let returns = returns(rows, discount);
    let targets = standard(&places.iter().map(|&i| returns[i]).collect::<Vec<f64>>())?;
    let mut scaled: Vec<Vec<f64>> = (0..rows.dim)
        .map(|other| {
            let real = kinds.get(other).copied().unwrap_or_default() == StateKind::Real;
            if other == d || !real {
                column(other)
            } else {
                standard(&column(other)).unwrap_or_else(|| vec![0.0; places.len()])
            }
        })
        .collect();
    let states = |columns: &[Vec<f64>]| -> Vec<f64> {
        (0..places.len()).flat_map(|i| columns.iter().map(move |column| column[i])).collect()
    };
    let evidence = |states: &[f64], kind: StateKind| {
        let mut all = kinds.to_vec();
        all.resize(rows.dim, StateKind::Real);
        all[d] = kind;
        let each = RELEVANCES.iter().flat_map(|relevance| NOISES.iter().map(move |noise| (*relevance, *noise)));
        each.filter_map(|(relevance, noise)| {
            let mut relevances = vec![1.0; rows.dim];
            relevances[d] = relevance;
            log_evidence(&Kernel::gaussian(1.0, 0.0, Metric::Ard(relevances)).with_kinds(&all), states, &targets, noise)
        })
        .fold(f64::NEG_INFINITY, f64::max)
    };
    let at = states(&scaled);
    let of_frequency = |turns: f64| evidence(&at, StateKind::Periodic(range / turns));
    let first = (TURNS_MIN / STEP) as usize;
    let grid = (first..first + FREQUENCIES).map(|k| k as f64 * STEP);
    let (turns, best) = grid
        .map(|turns| (turns, of_frequency(turns)))
        .fold((0.0, f64::NEG_INFINITY), |a, b| if b.1 > a.1 { b } else { a });
    scaled[d] = standard(&scaled[d])?;
    let without = evidence(&states(&scaled), StateKind::Real);
    (best > without + GAIN_MIN).then(|| range / golden_section(turns - STEP, turns + STEP, REFINED, of_frequency))
}

/// About their mean, in parts of their deviation; none where they are all the same.
fn standard(values: &[f64]) -> Option<Vec<f64>> {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let deviation = (values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n).sqrt();
    (deviation > 0.0 && deviation.is_finite()).then(|| values.iter().map(|v| (v - mean) / deviation).collect())
}

/// (n,) discounted rewards up to the end of each chain.
fn returns(rows: &Rows, discount: f64) -> Vec<f64> {
    let follows = chains(rows);
    let mut out: Vec<f64> = (0..rows.len()).map(|i| rows.reward(i)[0]).collect();
    for i in (0..rows.len()).rev() {
        out[i] += follows[i].map_or(0.0, |next| rows.discount(i, discount) * out[next]);
    }
    out
}

/// Up to a constant, with the best scale. None where the matrix has no factor.
fn log_evidence(kernel: &Kernel, states: &[f64], targets: &[f64], noise: f64) -> Option<f64> {
    let (n, dim) = (targets.len(), states.len() / targets.len());
    let points = kernel.project(dim, states);
    let mut covariance = Matrix::zeros(n, n);
    kernel.block(&Points::new(kernel.projected_dim(dim), &points), &points, &mut covariance.view_mut());
    let mut factor = Cholesky::default();
    factor.renew(&covariance, noise, &mut Scratch::default()).ok()?;
    let solved = factor.solve(Matrix::from_columns(n, 1, targets.to_vec()));
    let scale = dot(solved.col(0), targets) / n as f64;
    let logs: f64 = (0..n).map(|i| factor.factor().at(i, i).ln()).sum();
    Some(-0.5 * n as f64 * scale.ln() - logs).filter(|found| found.is_finite())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::{mix, normal, uniform};

    /// A wheel that turns by random steps; what it earns depends on where it stands, with this period.
    fn wheel(period: f64, turns: f64, seed: u64) -> Rows {
        let mut rows = Rows::new(2, 1);
        for i in 0..600u64 {
            let x = turns * period * uniform(mix(&[seed, i, 0]));
            rows.states.extend([x, normal(mix(&[seed, i, 1]))]);
            rows.next_states.extend([x, 0.0]);
            let phase = std::f64::consts::TAU * x / period;
            rows.rewards.push(phase.cos() + 0.5 * (2.0 * phase).sin() + 0.3 * normal(mix(&[seed, i, 2])));
            rows.discounts.push(f64::NAN);
            rows.ratios.push(1.0);
            rows.streams.push(0);
            rows.terminated.push(false);
            rows.truncated.push(false);
            rows.starts_chain.push(true);
        }
        rows
    }

    #[test]
    fn the_period_of_a_wheel_is_found_within_two_percent() {
        for (seed, (truth, turns)) in [(6.2, 3.0), (0.8, 12.0), (360.0, 5.5), (2.5, 30.0)].into_iter().enumerate() {
            let found = period(&wheel(truth, turns, seed as u64), 0, &[], 0.9).expect("a period");
            assert!((found / truth - 1.0).abs() < 0.02, "{found} for {truth} over {turns} turns");
        }
    }

    #[test]
    fn what_does_not_come_back_has_no_period() {
        let mut rows = wheel(1.0, 6.0, 9);
        // It earns the more the further it is.
        for i in 0..rows.rewards.len() {
            rows.rewards[i] = rows.states[2 * i] + 0.3 * normal(mix(&[i as u64]));
        }
        assert_eq!(period(&rows, 0, &[], 0.9), None);
        rows.states.iter_mut().step_by(2).for_each(|x| *x = 1.0);
        assert_eq!(period(&rows, 0, &[], 0.9), None, "it never moves");
    }
}
