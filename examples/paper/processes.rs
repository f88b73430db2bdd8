//! The Gaussian process and its use for temporal differences (TD), beside the document's formulas written out in dense algebra.
//!
//! The document has no data and no numbers of its own, so both are made here.

use super::{GO, gram, spectrum};
use criticd::learner::random::{mix, normal};
use criticd::math::dense::{Cholesky, Matrix};
use criticd::math::embedding::StateKind;
use criticd::math::evidence::{self, Difference, Problem};
use criticd::math::exact::ExactPosterior;
use criticd::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd::math::optimise::{self, Bounds, Budget};
use nalgebra::{DMatrix, DVector};
use std::f64::consts::{PI, TAU};

/// tau of the squared-exponential kernel: a lengthscale of 0.14.
const TAU_OF_KERNEL: f64 = 0.02;
/// Standard deviation of the noise.
const NOISE: f64 = 0.1;
const DISCOUNT: f64 = 0.9;
/// States of the episode.
const STATES: usize = 21;

/// A posterior at the places of the pictures, and how far the document's formula is from it.
pub(crate) struct Posterior {
    pub(crate) x: Vec<f64>,
    pub(crate) y: Vec<f64>,
    pub(crate) mean: Vec<f64>,
    pub(crate) std: Vec<f64>,
    /// Largest difference of mean and variance.
    pub(crate) differs: f64,
}

pub(crate) struct Processes {
    /// Places of the pictures.
    pub(crate) at: Vec<f64>,
    /// Functions drawn from the prior.
    pub(crate) drawn: Vec<Vec<f64>>,
    pub(crate) exact: Posterior,
    pub(crate) noisy: Posterior,
    pub(crate) td: Posterior,
    /// log p(y | theta) of the noisy points by the document's formula, and ours less its constant.
    pub(crate) evidence: [f64; 2],
    /// (tau, sigma^2, log p) as given and where log p is largest.
    pub(crate) selected: [[f64; 3]; 2],
    /// Smallest eigenvalue of the periodic kernel at 20 places as the document prints it, with its sine squared, and of ours; and how
    /// far the last two are apart.
    pub(crate) periodic: [f64; 4],
}

/// The function that is looked for.
pub(crate) fn wave(x: f64) -> f64 {
    (TAU * x).sin()
}

pub(crate) fn run() -> Processes {
    let at: Vec<f64> = (0..=200).map(|i| f64::from(i) / 200.0).collect();
    let noise = |k: usize| NOISE * normal(mix(&[3, k as u64]));
    let few: Vec<f64> = [0.05, 0.2, 0.3, 0.55, 0.7].to_vec();
    let many: Vec<f64> = (0..15).map(|i| 0.05 + 0.045 * f64::from(i)).collect();
    let seen: Vec<f64> = many.iter().enumerate().map(|(k, &x)| wave(x) + noise(k)).collect();
    let regression = |x: &[f64], y: Vec<f64>, noise_variance: f64| {
        let problem = Problem::correlated(1, x.to_vec(), Matrix::from_columns(x.len(), 1, y));
        posterior(&problem, x, &DMatrix::identity(x.len(), x.len()), noise_variance, &at)
    };
    let exact = regression(&few, few.iter().map(|&x| wave(x)).collect(), 0.0);
    let noisy = regression(&many, seen.clone(), NOISE * NOISE);
    let (evidence, selected) = select(&many, &seen);
    Processes {
        drawn: (0..4).map(|seed| drawn(&at, seed)).collect(),
        td: episode(&at, noise),
        exact,
        noisy,
        evidence,
        selected,
        periodic: periodic(),
        at,
    }
}

fn kernel(tau: f64) -> Kernel {
    Kernel::gaussian(1.0, 0.0, Metric::Isotropic(1.0 / tau))
}

fn hyperparameters(tau: f64, noise_variance: f64) -> Hyperparameters {
    Hyperparameters { kernel: kernel(tau), noise: NoiseModel::White, noise_variance }
}

/// exp(-(x - x')^2 / (2 tau)), as the document has it.
fn k(x: f64, other: f64) -> f64 {
    (-(x - other).powi(2) / (2.0 * TAU_OF_KERNEL)).exp()
}

/// A function of the prior at `at`: a root of K times normal numbers.
fn drawn(at: &[f64], seed: u64) -> Vec<f64> {
    let mut covariance = gram(&kernel(TAU_OF_KERNEL), 1, at);
    // K has no rank to spare for this number of places.
    (0..at.len()).for_each(|i| *covariance.at_mut(i, i) += 1e-8);
    let root = Cholesky::new(covariance).expect("the jitter makes it definite");
    let z: Vec<f64> = (0..at.len() as u64).map(|k| normal(mix(&[seed, k]))).collect();
    (0..at.len()).map(|i| (0..=i).map(|j| root.factor().at(i, j) * z[j]).sum()).collect()
}

/// The posterior of V from `observed` = H V + noise, H (n, N) over `nodes`.
fn posterior(problem: &Problem, nodes: &[f64], h: &DMatrix<f64>, noise_variance: f64, at: &[f64]) -> Posterior {
    let hyper = hyperparameters(TAU_OF_KERNEL, noise_variance);
    let of = ExactPosterior::new(problem, &hyper, GO).expect("the places lie apart");
    let (mean, variance) = (of.mean(at).col(0).to_vec(), of.variance(at));
    // K H' (H K H' + sigma^2 I)^-1 r, and the variance.
    let n = h.nrows();
    let full = DMatrix::from_fn(nodes.len(), nodes.len(), |i, j| k(nodes[i], nodes[j]));
    let system = h * full * h.transpose() + noise_variance * DMatrix::identity(n, n);
    let inverse = system.try_inverse().expect("as above");
    let observed = DVector::from_column_slice(problem.observed().col(0));
    let mut differs: f64 = 0.0;
    for (i, &x) in at.iter().enumerate() {
        let row = h * DVector::from_iterator(nodes.len(), nodes.iter().map(|&node| k(x, node)));
        let (m, v) = (row.dot(&(&inverse * &observed)), k(x, x) - row.dot(&(&inverse * &row)));
        differs = differs.max((m - mean[i]).abs()).max((v - variance[i]).abs());
    }
    let std = variance.iter().map(|v| v.max(0.0).sqrt()).collect();
    Posterior { x: nodes.to_vec(), y: problem.observed().col(0).to_vec(), mean, std, differs }
}

/// An episode from 0 to 1 in equal steps, whose rewards are V(s) - gamma V(s') + noise with V the wave.
fn episode(at: &[f64], noise: impl Fn(usize) -> f64) -> Posterior {
    let states: Vec<f64> = (0..STATES).map(|t| t as f64 / (STATES - 1) as f64).collect();
    let reward = |t: usize| wave(states[t]) - DISCOUNT * wave(states[t + 1]) + noise(100 + t);
    let n = STATES - 1;
    let step = |t: usize| Difference { node: t, factor: 1.0, successor: Some((t + 1, DISCOUNT)) };
    let rewards = Matrix::from_columns(n, 1, (0..n).map(reward).collect());
    let problem = Problem::white(1, states.clone(), (0..n).map(step).collect(), rewards);
    let h = DMatrix::from_fn(n, STATES, |t, s| {
        if s == t {
            1.0
        } else if s == t + 1 {
            -DISCOUNT
        } else {
            0.0
        }
    });
    posterior(&problem, &states, &h, NOISE * NOISE, at)
}

/// The marginal likelihood of these points, and its maximum over tau and sigma^2.
fn select(x: &[f64], y: &[f64]) -> ([f64; 2], [[f64; 3]; 2]) {
    let n = x.len();
    let problem = Problem::correlated(1, x.to_vec(), Matrix::from_columns(n, 1, y.to_vec()));
    let given = hyperparameters(TAU_OF_KERNEL, NOISE * NOISE);
    let found = evidence::exact_value(&problem, &given, GO).expect("noise makes it definite");
    let noise = |i: usize, j: usize| if i == j { NOISE * NOISE } else { 0.0 };
    let system = DMatrix::from_fn(n, n, |i, j| k(x[i], x[j]) + noise(i, j));
    let y = DVector::from_column_slice(y);
    let half = system.clone().cholesky().expect("as above").l();
    let log_determinant = 2.0 * half.diagonal().map(f64::ln).sum();
    let formula = -0.5 * (y.dot(&(system.try_inverse().expect("as above") * &y)) + log_determinant);
    // Signal and constant stay as they are.
    let [low, high] = [[1e-4, 1e-4], [1.0, 1.0]].map(|[noise, relevance]: [f64; 2]| {
        vec![0.0, f64::NEG_INFINITY, noise.ln(), if noise < 1.0 { relevance.ln() } else { 1e4f64.ln() }]
    });
    let objective =
        |p: &[f64]| evidence::exact(&problem, &evidence::from_parameters(&given, p), GO).map(|e| (e.value, e.gradient));
    let start = vec![0.0, f64::NEG_INFINITY, (NOISE * NOISE).ln(), (1.0 / TAU_OF_KERNEL).ln()];
    let bounds = Bounds { lower: low, upper: high };
    let best = optimise::maximise(objective, &[start], &bounds, &[], Budget::new(200, GO)).swap_remove(0);
    let constant = 0.5 * n as f64 * TAU.ln();
    let there = [(-best.parameters[3]).exp(), best.parameters[2].exp(), best.log_evidence + constant];
    let ours = found.value + constant;
    ([formula, ours], [[TAU_OF_KERNEL, NOISE * NOISE, ours], there])
}

/// sigma exp(-2 / l sin(|x - x'| / p)) as printed, with sigma = l = p = 1, over two turns.
fn periodic() -> [f64; 4] {
    let places: Vec<f64> = (0..20).map(|i| TAU * f64::from(i) / 20.0).collect();
    let matrix = |of: &dyn Fn(f64) -> f64| {
        let value = |k: usize| of((places[k / 20] - places[k % 20]).abs());
        Matrix::from_columns(20, 20, (0..400).map(value).collect())
    };
    let printed = matrix(&|d| (-2.0 * d.sin()).exp());
    let squared = matrix(&|d| (-2.0 * d.sin().powi(2)).exp());
    let kernel = Kernel::gaussian(1.0, 0.0, Metric::Isotropic(1.0)).with_kinds(&[StateKind::Periodic(PI)]);
    let mut ours = gram(&kernel, 1, &places);
    ours.mirror_lower();
    let apart =
        (0..20).flat_map(|j| squared.col(j).iter().zip(ours.col(j)).map(|(a, b)| (a - b).abs()).collect::<Vec<_>>());
    let apart = apart.fold(0.0, f64::max);
    let smallest = |matrix: &Matrix| spectrum(matrix).last().copied().expect("twenty of them");
    [smallest(&printed), smallest(&squared), smallest(&ours), apart]
}
