//! Evidence of one kernel for many heads, each at the noise and scale that suit it best.
//!
//! With K the Gram matrix of the base kernel, K = Q Lambda Q', and b = Q' y of one head, docs/mathematics.md (H9), (H10):
//! ```text
//! max over s, ratio of -1/2 [n log s + sum_j log(Lambda_j + ratio) + sum_j b_j^2 / (Lambda_j + ratio) / s + n log 2 pi]
//! s = 1/n sum_j b_j^2 / (Lambda_j + ratio)
//! ```
//! The maximum within makes the sum over heads independent of the unit of each. Its derivative is that at the maximum:
//! dL = 1/2 tr(W dK), W = sum_h alpha_h alpha_h' / s_h - Q diag(sum_h 1 / (Lambda + ratio_h)) Q'.

use super::gradient::{GradientAccumulator, Nodes};
use super::gram::signal_gram_into;
use super::problem::Problem;
use super::{Evidence, EvidenceError, KeepGoing, go};
use crate::math::dense::{Matrix, Op, product, rank_k, symmetric_eigen};
use crate::math::golden::golden_section;
use crate::math::kernel::Kernel;
use std::f64::consts::PI;

/// Ratios of the grid, relative to k(x, x): two to the powers from minus this to this.
const GRID: i32 = 20;
/// Steps of the golden section within the best cell of the grid.
const SECTIONS: usize = 24;

/// Noise and scale of one head, and what its evidence comes to.
#[derive(Clone, Copy, Debug)]
pub struct Best {
    /// Scale of the kernel's variances, positive.
    pub signal: f64,
    /// Noise variance over that scale, in the unit of the kernel, positive.
    pub ratio: f64,
    /// Log evidence, nats.
    pub value: f64,
}

/// The sum of ln(value + ratio): of eight at a time one logarithm, which costs as much as twenty products, where their product is a
/// number of full precision.
fn log_determinant(values: &[f64], ratio: f64) -> f64 {
    let of_eight = |eight: &[f64]| {
        let product: f64 = eight.iter().map(|value| value + ratio).product();
        if product.is_normal() { product.ln() } else { eight.iter().map(|value| (value + ratio).ln()).sum() }
    };
    values.chunks(8).map(of_eight).sum()
}

/// The spectrum of K, and squares b^2 (n,) of one head.
struct HeadSpectrum<'a> {
    values: &'a [f64],
    squares: &'a [f64],
    /// Least noise variance.
    floor: f64,
}

impl HeadSpectrum<'_> {
    fn at(&self, log_ratio: f64) -> Best {
        let (n, ratio) = (self.squares.len() as f64, log_ratio.exp());
        let fit: f64 = self.squares.iter().zip(self.values).map(|(square, value)| square / (value + ratio)).sum();
        let determinant = log_determinant(self.values, ratio);
        let signal = (fit / n).max(self.floor / ratio);
        let value = -0.5 * (n * signal.ln() + determinant + fit / signal + n * (2.0 * PI).ln());
        Best { signal, ratio, value }
    }

    /// A step of Newton's towards the place where the evidence at the best scale has no slope in the log ratio x, r = e^x:
    /// ```text
    /// n log F + D,  F = sum s / (v + r),  D = sum log(v + r)
    /// ```
    /// None where the floor sets the scale, or the evidence is not concave.
    fn towards_root(&self, x: f64) -> Option<f64> {
        let (n, ratio) = (self.squares.len() as f64, x.exp());
        let (mut fit, mut of_fit, mut of_logs) = (0.0, [0.0; 2], [0.0; 2]);
        for (square, value) in self.squares.iter().zip(self.values) {
            let share = ratio / (value + ratio);
            let term = square / (value + ratio);
            fit += term;
            of_fit = [of_fit[0] - term * share, of_fit[1] - term * share * (1.0 - 2.0 * share)];
            of_logs = [of_logs[0] + share, of_logs[1] + share * (1.0 - share)];
        }
        let slope = n * of_fit[0] / fit + of_logs[0];
        let curvature = n * (of_fit[1] / fit - (of_fit[0] / fit).powi(2)) + of_logs[1];
        (fit / n > self.floor / ratio && curvature > 0.0).then_some(x - slope / curvature)
    }

    fn best(&self, diagonal: f64) -> Best {
        let grid = |k: i32| diagonal.ln() + f64::from(k) * std::f64::consts::LN_2;
        let score = |x: f64| {
            let value = self.at(x).value;
            if value.is_nan() { f64::NEG_INFINITY } else { value }
        };
        let top = (-GRID..=GRID).max_by(|&a, &b| score(grid(a)).total_cmp(&score(grid(b)))).unwrap_or(0);
        // The sections end where rounding decides; the root of the slope does not depend on that.
        let middle = golden_section(grid(top - 1), grid(top + 1), SECTIONS, score);
        let root = (0..2).try_fold(middle, |x, _| self.towards_root(x)).filter(|x| (x - middle).abs() < 1e-3);
        let found = self.at(root.unwrap_or(middle));
        if found.value >= score(grid(top)) { found } else { self.at(grid(top)) }
    }
}

/// K = Q Lambda Q' of one kernel, and what the columns of a problem are along Q.
struct Spectrum {
    /// K without its constant part.
    signal: Matrix,
    /// Lambda (n,).
    values: Vec<f64>,
    /// Q (n, n).
    vectors: Matrix,
    /// Q' Y (n, H).
    images: Matrix,
}

impl Spectrum {
    fn new(problem: &Problem, kernel: &Kernel, keep_going: KeepGoing<'_>) -> Result<Self, EvidenceError> {
        go(keep_going)?;
        let n = problem.rows();
        let mut signal = Matrix::default();
        signal_gram_into(kernel, problem, &mut signal);
        let mut gram = signal.clone();
        for j in 0..n {
            gram.col_mut(j)[j..].iter_mut().for_each(|value| *value += kernel.bias_variance);
        }
        let (values, vectors) = symmetric_eigen(&gram)?;
        let values: Vec<f64> = values.into_iter().map(|value| value.max(0.0)).collect();
        go(keep_going)?;
        let images = product(vectors.view(), Op::Transposed, problem.observed().view(), Op::Plain);
        Ok(Self { signal, values, vectors, images })
    }

    /// Noise and scale that suit column `h` of the problem best.
    fn best(&self, problem: &Problem, h: usize, diagonal: f64, floor: f64) -> Best {
        let (n, observed) = (problem.rows() as f64, problem.observed().col(h));
        let mean = observed.iter().sum::<f64>() / n;
        let variance = observed.iter().map(|y| (y - mean) * (y - mean)).sum::<f64>() / n;
        let squares: Vec<f64> = self.images.col(h).iter().map(|b| b * b).collect();
        let floor = (floor * variance).max(f64::MIN_POSITIVE);
        HeadSpectrum { values: &self.values, squares: &squares, floor }.best(diagonal)
    }
}

/// -1/2 tr(W dK) by the parameters of `kernel`, W in `weights`, K without its constant part in `signal`.
fn pull(problem: &Problem, kernel: &Kernel, signal: &Matrix, weights: &mut Matrix) -> Vec<f64> {
    let mut pull = GradientAccumulator::new(kernel.embedding(problem.dim()));
    let nodes = Nodes::new(kernel, problem.dim(), problem.nodes());
    pull.symmetric(weights, -0.5, |_, _| (), signal, &nodes);
    pull.gradient(kernel, 0.0)
}

/// The sum over the columns of `problem` of the evidence of each at its best noise and scale, in which the noise variance stays
/// at or above `floor` times the variance of the column. Only the shape of `kernel` and the ratio of its two variances matter.
/// With the gradient O(n^2 (n + H)).
///
/// # Errors
/// Stopped; not finite.
pub(super) fn profiled(
    problem: &Problem,
    kernel: &Kernel,
    floor: f64,
    gradient: bool,
    keep_going: KeepGoing<'_>,
) -> Result<Evidence, EvidenceError> {
    let (n, heads) = (problem.rows(), problem.observed().cols());
    let mut spectrum = Spectrum::new(problem, kernel, keep_going)?;
    let (mut value, mut fit) = (0.0, 0.0);
    let mut sums = vec![0.0; n];
    for h in 0..heads {
        let best = spectrum.best(problem, h, kernel.diagonal(), floor);
        value += best.value;
        for ((b, sum), value) in spectrum.images.col_mut(h).iter_mut().zip(&mut sums).zip(&spectrum.values) {
            fit += 0.5 * *b * *b / (value + best.ratio) / best.signal;
            *b /= (value + best.ratio) * best.signal.sqrt();
            *sum += 1.0 / (value + best.ratio);
        }
    }
    let constant = 0.5 * (n * heads) as f64 * (2.0 * PI).ln();
    let mut out = Evidence {
        value,
        complexity: -value - fit - constant,
        fit,
        trace_gap: 0.0,
        observations: n * heads,
        gradient: Vec::new(),
    };
    if gradient {
        let Spectrum { signal, vectors, images, .. } = spectrum;
        let alpha = product(vectors.view(), Op::Plain, images.view(), Op::Plain);
        let mut scaled = vectors;
        for (j, sum) in sums.iter().enumerate() {
            scaled.col_mut(j).iter_mut().for_each(|q| *q *= sum.sqrt());
        }
        let mut weights = Matrix::zeros(n, n);
        rank_k(weights.view_mut(), 1.0, scaled.view(), Op::Plain);
        rank_k(weights.view_mut(), -1.0, alpha.view(), Op::Plain);
        go(keep_going)?;
        out.gradient = pull(problem, kernel, &signal, &mut weights);
    }
    out.checked()
}

/// Each column (H,) at its best noise and scale; the sum of their evidences is `profiled`. O(n^2 (n + H)).
///
/// # Errors
/// As there.
///
/// # Panics
/// If the problem is not one of profiled evidence.
pub fn profiled_bests(
    problem: &Problem,
    kernel: &Kernel,
    keep_going: KeepGoing<'_>,
) -> Result<Vec<Best>, EvidenceError> {
    let floor = problem.profiled.expect("a problem of profiled evidence");
    let spectrum = Spectrum::new(problem, kernel, keep_going)?;
    Ok((0..problem.observed().cols()).map(|h| spectrum.best(problem, h, kernel.diagonal(), floor)).collect())
}

/// The gradient of the evidence of each column by the parameters of `kernel`: as `profiled` one by one. O(n^3 H).
///
/// # Errors
/// As there.
///
/// # Panics
/// If the problem is not one of profiled evidence.
pub fn profiled_gradients(
    problem: &Problem,
    kernel: &Kernel,
    keep_going: KeepGoing<'_>,
) -> Result<Vec<Vec<f64>>, EvidenceError> {
    let floor = problem.profiled.expect("a problem of profiled evidence");
    let spectrum = Spectrum::new(problem, kernel, keep_going)?;
    let n = problem.rows();
    let of = |h: usize| {
        go(keep_going)?;
        let Best { signal, ratio, .. } = spectrum.best(problem, h, kernel.diagonal(), floor);
        let mut scaled = spectrum.vectors.clone();
        let mut image = Matrix::zeros(n, 1);
        for (j, value) in spectrum.values.iter().enumerate() {
            scaled.col_mut(j).iter_mut().for_each(|q| *q /= (value + ratio).sqrt());
            *image.at_mut(j, 0) = spectrum.images.at(j, h) / ((value + ratio) * signal.sqrt());
        }
        let alpha = product(spectrum.vectors.view(), Op::Plain, image.view(), Op::Plain);
        let mut weights = Matrix::zeros(n, n);
        rank_k(weights.view_mut(), 1.0, scaled.view(), Op::Plain);
        rank_k(weights.view_mut(), -1.0, alpha.view(), Op::Plain);
        Ok(pull(problem, kernel, &spectrum.signal, &mut weights))
    };
    (0..problem.observed().cols()).map(of).collect()
}

#[cfg(test)]
mod tests {
    use crate::math::dense::Matrix;
    use crate::math::evidence::{Evaluator, Problem, exact_value, from_parameters, to_parameters};
    use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Profile};

    const FLOOR: f64 = 1e-3;

    fn hyperparameters() -> Hyperparameters {
        let kernel = Kernel::gaussian(1.3, 0.4, Metric::Ard(vec![0.8, 2.5])).with_profile(Profile::Matern52);
        Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.2 }
    }

    /// 40 states of two variables, and three columns: smooth, in another unit and noisy, noise alone.
    fn problem(unit: f64) -> Problem {
        let states: Vec<f64> = (0..80).map(|i| ((7 * i * i + 3 * i) % 41) as f64 / 20.0 - 1.0).collect();
        let noise = |i: usize| ((13 * i * i + 5 * i) % 29) as f64 / 29.0 - 0.5;
        let mut targets = Matrix::zeros(40, 3);
        for i in 0..40 {
            let (x, y) = (states[2 * i], states[2 * i + 1]);
            *targets.at_mut(i, 0) = x.sin() + 0.1 * noise(i);
            *targets.at_mut(i, 1) = unit * (x * y + noise(3 * i));
            *targets.at_mut(i, 2) = noise(2 * i + 1);
        }
        Problem::correlated(2, states, targets).profiled(FLOOR)
    }

    fn value(problem: &Problem, hyper: &Hyperparameters) -> f64 {
        exact_value(problem, hyper, &|| true).unwrap().value
    }

    #[test]
    fn each_head_is_at_its_best_noise_and_scale() {
        let (profiled, hyper) = (problem(1.0), hyperparameters());
        let mut sum = 0.0;
        for h in 0..3 {
            let column = Matrix::from_columns(40, 1, profiled.observed().col(h).to_vec());
            let mean = column.col(0).iter().sum::<f64>() / 40.0;
            let variance = column.col(0).iter().map(|y| (y - mean) * (y - mean)).sum::<f64>() / 40.0;
            let one = Problem::correlated(2, profiled.nodes().to_vec(), column);
            let mut best = f64::NEG_INFINITY;
            // A fine grid over noise and scale of the exact evidence.
            for (signal, noise) in (-60..60).flat_map(|s| (-100..40).map(move |n| (s, n))) {
                let signal = (0.1 * f64::from(signal)).exp();
                let like = hyperparameters();
                let kernel = Kernel {
                    signal_variance: signal * like.kernel.signal_variance,
                    bias_variance: signal * like.kernel.bias_variance,
                    ..like.kernel
                };
                let noise_variance = (0.1 * f64::from(noise)).exp();
                if noise_variance >= FLOOR * variance {
                    best = f64::max(best, value(&one, &Hyperparameters { kernel, noise_variance, ..like }));
                }
            }
            sum += best;
        }
        let found = value(&profiled, &hyper);
        assert!(found > sum - 1e-9 && found < sum + 0.5, "{found} {sum}");
    }

    #[test]
    fn units_of_heads_do_not_matter_to_the_kernel() {
        let of = |unit: f64| Evaluator::default().exact(&problem(unit), &hyperparameters(), &|| true).unwrap();
        let (one, kilo) = (of(1.0), of(1000.0));
        assert!((one.value - kilo.value - 40.0 * 1000f64.ln()).abs() < 1e-6);
        for (a, b) in one.gradient.iter().zip(&kilo.gradient) {
            assert!((a - b).abs() < 1e-6, "{a} {b}");
        }
    }

    #[test]
    fn the_gradient_is_that_at_the_maximum_within() {
        let (problem, hyper) = (problem(10.0), hyperparameters());
        let found = Evaluator::default().exact(&problem, &hyper, &|| true).unwrap();
        let x = to_parameters(&hyper);
        for (i, gradient) in found.gradient.iter().enumerate() {
            let at = |step: f64| {
                let mut x = x.clone();
                x[i] += step;
                value(&problem, &from_parameters(&hyper, &x))
            };
            let difference = (at(1e-4) - at(-1e-4)) / 2e-4;
            assert!((difference - gradient).abs() < 1e-3 * (1.0 + gradient.abs()), "{i}: {gradient} {difference}");
        }
        // The gradient of the sum is the sum of the columns' gradients, and so are the values.
        let (bests, each) = (
            super::profiled_bests(&problem, &hyper.kernel, &|| true).unwrap(),
            super::profiled_gradients(&problem, &hyper.kernel, &|| true).unwrap(),
        );
        assert!((bests.iter().map(|best| best.value).sum::<f64>() - found.value).abs() < 1e-9 * found.value.abs());
        for (i, gradient) in found.gradient.iter().enumerate() {
            let sum: f64 = each.iter().map(|of| of[i]).sum();
            assert!((sum - gradient).abs() < 1e-9 * (1.0 + gradient.abs()), "{i}: {sum} {gradient}");
        }
        // Noise is each head's own, and a common factor of both variances means nothing.
        assert_eq!(found.gradient[2], 0.0);
        assert!((found.gradient[0] + found.gradient[1]).abs() < 1e-3);
    }
}
