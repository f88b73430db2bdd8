//! Errors of rows by models that have not learned them, in closed form, and hyperparameters that make them small.
//!
//! One solution gives the errors of all n models that lack one row each. They are exact for the features and the ridge at hand: the
//! dictionary is chosen by states alone, so that leaving a row out changes no element that the others have chosen.

use super::{BatchError, CANDIDATES, Given};
use crate::allowance::{self, Allowance};
use crate::math::dense::{Matrix, Op, Singular, View, axpy, dot, product, solve_general};
use crate::math::dictionary::{Dictionary, StoppingRule};
use crate::math::evidence::KeepGoing;
use crate::math::kernel::{Hyperparameters, Metric, NoiseModel};
use crate::math::posterior::SolveError;

/// 1 - h at or below which a row alone decides what is predicted for it.
const ALONE: f64 = 1e-12;
/// Rounds of [`Given::nearest_by_leave_one_out`], and factors of the ridge, of all lengthscales, and of one.
const SEARCH_ROUNDS: usize = 3;
const RIDGES: [f64; 4] = [0.3, 3.0, 0.1, 10.0];
const LENGTHS: [f64; 4] = [0.7, 1.4, 0.5, 2.0];
const LENGTH: [f64; 2] = [0.6, 1.7];
/// Numbers of the features of all rows, above which their errors are not worked out: they stand in memory.
const NUMBERS_MAX: usize = 10_000_000;
/// Least ridge in the unit of the kernel.
const RIDGE_MIN: f64 = 1e-9;

/// Errors of rows by solutions that lack them.
#[derive(Clone, Debug)]
pub struct LeftOut {
    /// (n, H) target less prediction.
    pub errors: Matrix,
    /// h (n,): how much of its own prediction each row decides, 0 to 1 in a regression.
    pub leverages: Vec<f64>,
}

/// ```text
/// w = (sum_i l_i d_i' + ridge I)^-1 sum_i l_i y_i'
/// y_i - d_i'w_without_i = (y_i - d_i'w) / (1 - h_i)        h_i = d_i' (sum_i l_i d_i' + ridge I)^-1 l_i
/// ```
/// docs/mathematics.md (E16), for `left` l (m, n), `right` d (m, n) and `targets` y (n, H). O(n m^2). An error is infinite where a row
/// alone decides what is predicted for it.
///
/// # Errors
/// If there is no solution.
pub fn leave_one_out(left: View<'_>, right: View<'_>, targets: &Matrix, ridge: f64) -> Result<LeftOut, Singular> {
    let (m, n) = (left.rows(), left.cols());
    let mut system = product(left, Op::Plain, right, Op::Transposed);
    (0..m).for_each(|j| *system.at_mut(j, j) += ridge);
    let both = {
        let mut columns = Vec::with_capacity(m * (n + targets.cols()));
        (0..n).for_each(|i| columns.extend_from_slice(left.col(i)));
        let response = product(left, Op::Plain, targets.view(), Op::Plain);
        (0..targets.cols()).for_each(|h| columns.extend_from_slice(response.col(h)));
        solve_general(&system, &Matrix::from_columns(m, n + targets.cols(), columns))?
    };
    let leverages: Vec<f64> = (0..n).map(|i| dot(right.col(i), both.col(i))).collect();
    let mut errors = targets.clone();
    for h in 0..targets.cols() {
        for (i, error) in errors.col_mut(h).iter_mut().enumerate() {
            let without = 1.0 - leverages[i];
            let within = *error - dot(right.col(i), both.col(n + h));
            *error = if without.abs() > ALONE { within / without } else { f64::INFINITY };
        }
    }
    Ok(LeftOut { errors, leverages })
}

/// Leave-one-out errors of the rows of a table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LeaveOneOut {
    /// Root mean square, in the unit of the targets; rows count as their weights say.
    pub error: f64,
    /// Its square over the variance of the targets; a constant has 1.
    pub relative: f64,
    /// Largest share of its own prediction that a row decides.
    pub leverage_max: f64,
    /// Whether it is a regression on targets; else they are rewards, explained by the difference of two values.
    pub is_regression: bool,
}

/// Hyperparameters that leave-one-out errors have chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Nearest {
    /// Kernel and noise, their scale by the evidence.
    pub hyperparameters: Hyperparameters,
    /// Mean squared error over the variance of the targets: of the start, and of these.
    pub relative: (f64, f64),
    /// Kernels and ridges that were compared.
    pub tried: usize,
}

/// Equations of the rows, one for each: l (m, n), d (m, n), y (n, H), weights (n,), and the ridge in the unit of the features.
struct Equations {
    ridge: f64,
    left: Matrix,
    right: Matrix,
    targets: Matrix,
    weights: Vec<f64>,
}

impl Given<'_> {
    /// Whether no row has a future: a regression of the rewards.
    pub fn is_regression(&self) -> bool {
        let ends = |i: usize| self.rows.terminated[i] || self.rows.discount(i, self.settings.discount) == 0.0;
        self.hyperparameters.noise == NoiseModel::Correlated && (0..self.rows.len()).all(ends)
    }

    /// Leave-one-out errors through this dictionary, of values about this level (H,), none for 0: of a regression, and with lambda 0 of rewards by the differences of values that they
    /// are of. None where a row stands in the equations of others: lambda above 0, importance ratios, rows that are forgotten, and
    /// successors that are mixtures; and where rows times elements are more than ten million.
    ///
    /// # Errors
    /// No solution.
    pub fn leave_one_out(&self, dictionary: &Dictionary, level: &[f64]) -> Result<Option<LeaveOneOut>, BatchError> {
        self.about(level, |given| match given.equations(dictionary) {
            Some(of) => Ok(Some(given.errors_of(&of)?.0)),
            None => Ok(None),
        })
    }

    fn equations(&self, dictionary: &Dictionary) -> Option<Equations> {
        let (rows, settings) = (self.rows, self.settings);
        let is_regression = self.is_regression();
        let weights: Vec<f64> = (0..rows.len()).map(|i| rows.ratio(i, settings.ratio_max())).collect();
        let stand_alone = is_regression || self.lambda == 0.0 && weights.iter().all(|&weight| weight == 1.0);
        let white = self.hyperparameters.noise == NoiseModel::White;
        let too_many = rows.len().saturating_mul(dictionary.len()) > NUMBERS_MAX;
        if too_many || !stand_alone || white || settings.forgetting.is_some() || settings.mixes_successors() {
            return None;
        }
        let features = |states: &[f64]| {
            dictionary.features(&dictionary.kernel().project(rows.dim, &self.inputs.normalise(states)))
        };
        let mut left = features(&rows.states);
        let mut right = left.clone();
        if !is_regression {
            let next = features(&rows.next_states);
            for i in (0..rows.len()).filter(|&i| !rows.terminated[i]) {
                axpy(right.col_mut(i), -rows.discount(i, settings.discount), next.col(i));
            }
        }
        for (i, weight) in weights.iter().enumerate().filter(|(_, weight)| **weight != 1.0) {
            left.col_mut(i).iter_mut().for_each(|value| *value *= weight);
        }
        let paid = settings.rewards.iter().flat_map(|&column| (0..rows.len()).map(move |i| rows.reward(i)[column]));
        let targets = Matrix::from_columns(rows.len(), settings.rewards.len(), paid.collect());
        // The dictionary may be of the same kernel in another scale.
        let unit = dictionary.kernel().signal_variance / self.hyperparameters.kernel.signal_variance;
        Some(Equations { ridge: unit * self.hyperparameters.noise_variance, left, right, targets, weights })
    }

    /// The errors, and the scale of a kernel of 1 and of its noise that the evidence prefers for the ridge at hand.
    fn errors_of(&self, of: &Equations) -> Result<(LeaveOneOut, f64), BatchError> {
        let found = leave_one_out(of.left.view(), of.right.view(), &of.targets, of.ridge)
            .map_err(|e| BatchError::Solve(SolveError::from(e)))?;
        let (mut squares, mut spread, mut explained) = (0.0, 0.0, 0.0);
        let (all, heads): (f64, _) = (of.weights.iter().sum(), of.targets.cols());
        for h in 0..heads {
            let (y, errors) = (of.targets.col(h), found.errors.col(h));
            let mean = dot(&of.weights, y) / all;
            for (i, weight) in of.weights.iter().enumerate() {
                squares += weight * errors[i].powi(2);
                spread += weight * (y[i] - mean).powi(2);
                explained += weight * y[i] * errors[i] * (1.0 - found.leverages[i]);
            }
        }
        let counted = (of.weights.iter().filter(|weight| **weight > 0.0).count() * heads) as f64;
        let loo = LeaveOneOut {
            error: (squares / (all * heads as f64)).sqrt(),
            relative: squares / spread,
            leverage_max: found.leverages.iter().copied().fold(0.0, f64::max),
            is_regression: self.is_regression(),
        };
        // y'(K + ridge / W)^-1 y = sum w y (y - prediction) / ridge.
        Ok((loo, explained / (of.ridge * counted)))
    }

    /// Hyperparameters near those at hand that make the leave-one-out errors of a regression least: the ridge, all lengthscales, and each
    /// alone, one after the other, in up to three rounds until `allowance` is used up. Each kernel has a dictionary of its own, of at most
    /// `max` elements and until there is `enough`. The evidence then gives scale and noise. None where it is no regression.
    ///
    /// # Errors
    /// Stopped; no solution at the start.
    pub fn nearest_by_leave_one_out(
        &self,
        enough: impl Fn(&Hyperparameters) -> StoppingRule,
        max: usize,
        (keep_going, allowance): (KeepGoing<'_>, &Allowance),
    ) -> Result<Option<Nearest>, BatchError> {
        if !self.is_regression() {
            return Ok(None);
        }
        let level = self.settings.level_of(self.rows);
        let judge = |hyperparameters: &Hyperparameters| -> Result<Option<(LeaveOneOut, f64)>, BatchError> {
            let given = Given { hyperparameters, ..*self };
            let dictionary = given.select(enough(hyperparameters), max, keep_going)?.dictionary;
            let (rows, elements, dim) = (self.rows.len(), dictionary.len(), self.inputs.dim());
            allowance.spend(allowance::pivots(rows.min(CANDIDATES), elements, dim));
            allowance.spend(allowance::pass(rows, elements, dim, self.settings) + allowance::solution(elements));
            given.about(&level, |given| given.equations(&dictionary).map(|of| given.errors_of(&of)).transpose())
        };
        let Some((first, mut scale)) = judge(self.hyperparameters)? else { return Ok(None) };
        let (mut best, mut hyperparameters, mut tried) = (first.relative, self.hyperparameters.clone(), 1);
        for _ in 0..SEARCH_ROUNDS {
            let before = best;
            for change in changes(&hyperparameters.kernel.metric) {
                if !keep_going() {
                    return Err(BatchError::Stopped);
                }
                if !allowance.left() {
                    break;
                }
                let other = change.of(&hyperparameters);
                tried += 1;
                // Without a solution there is nothing to be preferred.
                if let Ok(Some((found, of))) = judge(&other)
                    && found.relative < best
                {
                    (best, scale, hyperparameters) = (found.relative, of, other);
                }
            }
            if best == before {
                break;
            }
        }
        if scale.is_normal() && scale > 0.0 {
            hyperparameters.kernel = hyperparameters.kernel.scaled(scale);
            hyperparameters.noise_variance *= scale;
        }
        Ok(Some(Nearest { hyperparameters, relative: (first.relative, best), tried }))
    }
}

/// One step of a search.
#[derive(Clone, Copy, Debug)]
enum MetricChange {
    Ridge(f64),
    All(f64),
    /// Of the variable of this number.
    One(usize, f64),
}

/// Those that a metric allows.
fn changes(metric: &Metric) -> Vec<MetricChange> {
    let each = if let Metric::Ard(relevance) = metric { relevance.len() } else { 0 };
    let one = |d: usize| LENGTH.map(|by| MetricChange::One(d, by));
    let relevant = (0..each).filter(|&d| each > 1 && metric.matrix(each).at(d, d) > 0.0);
    RIDGES
        .map(MetricChange::Ridge)
        .into_iter()
        .chain(LENGTHS.map(MetricChange::All))
        .chain(relevant.flat_map(one))
        .collect()
}

impl MetricChange {
    fn of(self, from: &Hyperparameters) -> Hyperparameters {
        let mut to = from.clone();
        match self {
            Self::Ridge(by) => {
                let least = RIDGE_MIN * from.kernel.signal_variance;
                to.noise_variance = (by * from.noise_variance).max(least);
            }
            Self::All(by) => match &mut to.kernel.metric {
                Metric::Isotropic(h) => *h /= by * by,
                Metric::Ard(relevance) => relevance.iter_mut().for_each(|a| *a /= by * by),
                Metric::Factor { factors, relevance } => {
                    factors.iter_mut().flatten().for_each(|factor| *factor /= by);
                    relevance.iter_mut().for_each(|a| *a /= by * by);
                }
            },
            Self::One(d, by) => {
                if let Metric::Ard(relevance) = &mut to.kernel.metric {
                    relevance[d] /= by * by;
                }
            }
        }
        to
    }
}
