//! What rows say of their state variables before anything is selected: scales, constants, copies, outliers.

use crate::diagnostics::Diagnostic;
use crate::math::dense::{Matrix, Op, product};
use crate::math::embedding::StateKind;
use crate::math::kernel::{Hyperparameters, Metric};
use crate::snapshot::Inputs;
use crate::transition::{Rows, name_of_state};

/// If 1 % of the rows inflates the standard deviation by more than this factor, the others give the scale.
const OUTLYING_STATES: f64 = 20.0;
/// Standard deviation of a state variable below which it has no scale: slopes of V would be beyond what numbers can be.
const SMALLEST_SCALE: f64 = 1e-290;
/// Correlation of two state variables above which the evidence can hardly tell them apart.
const CORRELATED: f64 = 0.99;
/// State variables that differ by less, in standard deviations, are copies: 32-bit numbers agree to that.
const COPY: f64 = 1e-5;
/// Rows that correlations and quantiles are taken from.
const SAMPLE: usize = 4096;

/// Dependence of the state variables on each other in the rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Dependence {
    pub(super) constant: Vec<usize>,
    /// Each copy with what it is a copy of, possibly in another unit or of the other sign.
    pub(super) copies: Vec<(usize, usize)>,
    /// Those that vary by less than [`SMALLEST_SCALE`].
    tiny: Vec<usize>,
    /// Pairs that move together, with their correlation.
    correlated: Vec<(usize, usize, f64)>,
    /// State variables with values far outside of all others.
    outlying: Vec<usize>,
}

impl Dependence {
    /// Of the states of `rows`, normalised by `inputs`. Only variables of one kind can be copies of each other, and only real ones
    /// have outliers or move together.
    pub(super) fn new(rows: &Rows, inputs: &Inputs, kinds: &[StateKind]) -> Self {
        let (dim, n) = (rows.dim, rows.len());
        let kind = |d: usize| kinds.get(d).copied().unwrap_or_default();
        let mut out = Self::default();
        for d in 0..dim {
            if (1..n).all(|i| rows.state(i)[d] == rows.state(0)[d]) {
                out.constant.push(d);
            } else if (1..n).all(|i| (rows.state(i)[d] - rows.state(0)[d]).abs() < SMALLEST_SCALE) {
                out.tiny.push(d);
            } else if kind(d) == StateKind::Real && scale_of(rows, d).2 {
                out.outlying.push(d);
            }
        }
        let sample: Vec<f64> = sampled(n).flat_map(|i| inputs.normalise(rows.state(i))).collect();
        let mut z = Matrix::from_rows(sample.len() / dim, dim, &sample);
        for d in 0..dim {
            let column = z.col_mut(d);
            let mean = column.iter().sum::<f64>() / column.len() as f64;
            column.iter_mut().for_each(|v| *v -= mean);
            let norm = column.iter().map(|v| v * v).sum::<f64>().sqrt();
            column.iter_mut().for_each(|v| *v /= norm.max(f64::MIN_POSITIVE));
        }
        let correlation = product(z.view(), Op::Transposed, z.view(), Op::Plain);
        let state = |i: usize, d: usize| (rows.state(i)[d] - inputs.shift[d]) / inputs.scale[d];
        for d in 0..dim {
            for e in 0..d {
                let (c, gone) = (correlation.at(d, e), |k| out.copies.iter().any(|&(copy, _)| copy == k));
                if c.abs() < CORRELATED || gone(d) || gone(e) || kind(d) != kind(e) {
                    continue;
                }
                let sign = c.signum();
                if (0..n).all(|i| (state(i, d) - sign * state(i, e)).abs() <= COPY * (1.0 + state(i, e).abs())) {
                    out.copies.push((d, e));
                } else if kind(d) == StateKind::Real {
                    out.correlated.push((e, d, c));
                }
            }
        }
        out
    }

    /// State variable `d` with its copies, or what it is a copy of and the other copies of that.
    pub(super) fn duplicates_of(&self, d: usize) -> Vec<usize> {
        let first = self.copies.iter().find(|&&(copy, _)| copy == d).map_or(d, |&(_, of)| of);
        std::iter::once(first)
            .chain(self.copies.iter().filter(|&&(_, of)| of == first).map(|&(copy, _)| copy))
            .collect()
    }

    /// Diagnostics of the state variables.
    pub(super) fn diagnostics(&self, inputs: &Inputs) -> Vec<Diagnostic> {
        let correlated = clusters(&self.correlated).into_iter().map(|(variables, correlation)| {
            Diagnostic::Correlated { variables: variables.iter().map(|&d| name(inputs, d)).collect(), correlation }
        });
        let outlying = self.outlying.iter().map(|&d| Diagnostic::OutlyingStates { variable: name(inputs, d) });
        let tiny =
            self.tiny.iter().map(|&d| Diagnostic::TinyStates { variable: name(inputs, d), limit: SMALLEST_SCALE });
        correlated.chain(tiny).chain(outlying).collect()
    }

    /// Whether one lengthscale for all counts copies twice.
    pub(super) fn counted_twice(&self, hyperparameters: &Hyperparameters) -> Option<Diagnostic> {
        let isotropic = matches!(hyperparameters.kernel.metric, Metric::Isotropic(_));
        (isotropic && !self.copies.is_empty()).then_some(Diagnostic::CopiesCountedTwice)
    }

    /// State variables that can say nothing beside the others.
    pub(super) fn left_out(&self) -> Vec<usize> {
        let still = self.constant.iter().chain(&self.tiny).copied();
        let mut out: Vec<usize> = still.chain(self.copies.iter().map(|&(d, _)| d)).collect();
        out.sort_unstable();
        out
    }
}

/// Shift and scale of state variable `d`, and whether outliers decided how they were taken: mean and standard deviation over the
/// rows, or, where the outermost hundredth has blown those up, median and the spread of the others. A variable that is constant most
/// of the time and then moves has no outliers: its quartiles may coincide, and its standard deviation is the scale of the movement. A
/// constant keeps its unit, and so does what varies by less than [`SMALLEST_SCALE`].
pub(super) fn scale_of(rows: &Rows, d: usize) -> (f64, f64, bool) {
    let n = rows.len().max(1) as f64;
    let column = || rows.states.iter().skip(d).step_by(rows.dim);
    let mean = column().sum::<f64>() / n;
    // Squares of small numbers would be 0: they are taken in a unit of their own, a power of two, which rounds nothing off.
    let unit = power_of_two(column().fold(0.0, |most: f64, x| most.max((x - mean).abs())));
    let square = |x: &f64| ((x - mean) / unit) * ((x - mean) / unit);
    let deviation = unit * (column().map(square).sum::<f64>() / n).sqrt();
    // What is left of a constant after subtracting its mean is rounding, not a scale.
    if deviation <= (1e-12 * mean.abs()).max(SMALLEST_SCALE) {
        return (mean, 1.0, false);
    }
    let mut sample: Vec<f64> = sampled(rows.len()).map(|i| rows.state(i)[d]).collect();
    let (median, inner) = median_and_inner_deviation(&mut sample);
    if inner > 1e-12 * median.abs() && deviation > OUTLYING_STATES * inner {
        (median, inner, true)
    } else {
        (mean, deviation, false)
    }
}

/// About [`SAMPLE`] row numbers, evenly spaced.
pub(super) fn sampled(rows: usize) -> impl Iterator<Item = usize> {
    (0..rows).step_by(rows.div_ceil(SAMPLE).max(1))
}

/// Median of some numbers, and a standard deviation without the lowest and the highest hundredth: without two at either end at
/// least.
fn median_and_inner_deviation(values: &mut [f64]) -> (f64, f64) {
    values.sort_unstable_by(f64::total_cmp);
    let last = values.len() - 1;
    let out = ((0.01 * last as f64).ceil() as usize).max(2).min(last / 4);
    // The quantiles at 1 % and 99 % of a normal distribution are 4.653 standard deviations apart.
    (values[last / 2], (values[last - out] - values[out]) / 4.653)
}

/// The power of two next to a magnitude, 1 for 0.
fn power_of_two(magnitude: f64) -> f64 {
    if magnitude > 0.0 { 2f64.powi((magnitude.log2().round() as i32).max(f64::MIN_EXP)) } else { 1.0 }
}

/// Pairs that have a variable in common, put together: the variables of each cluster, and its least correlation in size.
fn clusters(pairs: &[(usize, usize, f64)]) -> Vec<(Vec<usize>, f64)> {
    let mut out: Vec<(Vec<usize>, f64)> = Vec::new();
    for &(a, b, correlation) in pairs {
        let (linked, mut apart): (Vec<_>, Vec<_>) =
            out.into_iter().partition(|(variables, _)| variables.contains(&a) || variables.contains(&b));
        let mut joined = (vec![a, b], correlation);
        for (variables, least) in linked {
            joined.0.extend(variables);
            let size = joined.1.abs().min(least.abs());
            joined.1 = size;
        }
        joined.0.sort_unstable();
        joined.0.dedup();
        apart.push(joined);
        out = apart;
    }
    out
}

/// Name of state variable `d`.
pub(super) fn name(inputs: &Inputs, d: usize) -> String {
    name_of_state(inputs.names.as_deref(), d)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale(values: impl Iterator<Item = f64>) -> (f64, f64, bool) {
        let mut rows = Rows::new(1, 1);
        rows.states = values.collect();
        rows.streams = vec![0; rows.states.len()];
        scale_of(&rows, 0)
    }

    fn spread(k: u32) -> f64 {
        (f64::from(k) * 0.618_033_988_749_895).fract() - 0.5
    }

    #[test]
    fn what_moves_together_is_said_once() {
        let pairs = [(0, 3, -0.99), (1, 2, 0.96), (5, 6, 0.98), (6, 7, -0.97), (2, 4, 0.99), (5, 7, 0.995)];
        let found = clusters(&pairs);
        assert_eq!(found, [(vec![0, 3], -0.99), (vec![1, 2, 4], 0.96), (vec![5, 6, 7], 0.97)]);
    }

    #[test]
    fn what_mostly_stands_still_is_scaled_by_its_standard_deviation() {
        // The cosine of a pendulum that is balanced most of the time.
        let cosine = (0..2000).map(|k| if k % 6 == 0 { 2.0 * spread(k) } else { 1.0 - 1e-4 * spread(k).abs() });
        let (_, deviation, outlying) = scale(cosine);
        assert!(!outlying && deviation > 0.3, "{deviation}");
        // A light that is on in one row of forty.
        let (mean, deviation, outlying) = scale((0..2000).map(|k| f64::from(u32::from(k % 40 == 0))));
        assert!(!outlying && (mean - 0.025).abs() < 1e-12 && (deviation - 0.156).abs() < 1e-3);
    }

    #[test]
    fn a_few_values_far_out_do_not_scale_the_others() {
        for n in [40, 500, 2000, 20_000] {
            let far = |k: u32| if k == 17 || k == n / 2 { 6e6 } else { spread(k) };
            let (median, deviation, outlying) = scale((0..n).map(far));
            assert!(outlying && median.abs() < 0.1 && (0.15..0.35).contains(&deviation), "{n}: {median} {deviation}");
            let (_, deviation, outlying) = scale((0..n).map(spread));
            assert!(!outlying && (deviation - 0.2887).abs() < 0.02, "{n}: {deviation}");
        }
    }

    #[test]
    fn the_unit_of_a_state_does_not_matter() {
        let (mean, deviation, _) = scale((0..2000).map(spread));
        for exponent in [-960, -500, 29] {
            let unit = 2f64.powi(exponent);
            let found = scale((0..2000).map(|k| unit * spread(k)));
            assert_eq!(found, (unit * mean, unit * deviation, false), "2^{exponent}");
        }
    }

    #[test]
    fn few_rows_and_constants_have_a_scale() {
        assert_eq!(scale([3.0; 5].into_iter()), (3.0, 1.0, false));
        assert_eq!(scale([1.0, 3.0].into_iter()), (2.0, 1.0, false));
        assert_eq!(scale([1e-300, 3e-300].into_iter()).1, 1.0, "too small to be a scale");
        assert!(!scale([0.0, 1.0, 2.0, 4.0, 1.0].into_iter()).2);
    }
}
