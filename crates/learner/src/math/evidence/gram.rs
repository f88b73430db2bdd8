//! Kernel values between many states, and the covariance of what is observed at them.

use super::problem::{Difference, Problem};
use crate::math::dense::Matrix;
use crate::math::kernel::{Hyperparameters, Kernel, Points};

/// Projected states, both ways: to be compared with one point, and to be that point.
pub(in crate::math) struct Projected {
    pub(in crate::math) points: Points,
    pub(in crate::math) rows: Vec<f64>,
}

impl Projected {
    /// `states` (n, D), row-major, as `kernel` projects them.
    pub(in crate::math) fn new(kernel: &Kernel, dim: usize, states: &[f64]) -> Self {
        let rows = kernel.project(dim, states);
        Self { points: Points::new(kernel.projected_dim(dim), &rows), rows }
    }

    pub(in crate::math) fn len(&self) -> usize {
        self.points.len()
    }

    /// out\[i\] = v0 profile(|x_i - y_j|^2) for the points x from `first` on and point j of `other`.
    pub(in crate::math) fn signal(&self, kernel: &Kernel, first: usize, other: &Projected, j: usize, out: &mut [f64]) {
        self.covariances(kernel, first, other, j, 0.0, out);
    }

    /// out\[i\] = -2 dk/dr^2 for the same points.
    pub(super) fn slopes(&self, kernel: &Kernel, first: usize, other: &Projected, j: usize, out: &mut [f64]) {
        let width = other.rows.len() / other.len();
        self.points.slopes(kernel, first, &other.rows[j * width..(j + 1) * width], out);
    }

    /// The signal with `level` added.
    pub(super) fn covariances(
        &self,
        kernel: &Kernel,
        first: usize,
        other: &Projected,
        j: usize,
        level: f64,
        out: &mut [f64],
    ) {
        let width = other.rows.len() / other.len();
        self.points.covariances(kernel, first, &other.rows[j * width..(j + 1) * width], level, out);
    }
}

/// Q = J (K0 + b) J' + sigma0^2 I (n, n), lower triangle, from the Gram matrix of the signal at the nodes.
pub(in crate::math) fn covariance(problem: &Problem, hyper: &Hyperparameters) -> Matrix {
    let (mut signal, mut out) = (Matrix::default(), Matrix::default());
    signal_gram_into(&hyper.kernel, problem, &mut signal);
    covariance_into(&signal, problem, hyper, &mut out);
    out
}

/// [`covariance`] from the Gram matrix of the signal (lower triangle; for differences both).
pub(super) fn covariance_into(signal: &Matrix, problem: &Problem, hyper: &Hyperparameters, out: &mut Matrix) {
    let (n, bias) = (problem.rows(), hyper.kernel.bias_variance);
    out.resize(n, n);
    for j in 0..n {
        let column = &mut out.col_mut(j)[j..];
        match &problem.differences {
            None => {
                for (value, signal) in column.iter_mut().zip(&signal.col(j)[j..]) {
                    *value = signal + bias;
                }
            }
            Some(differences) => {
                let Difference { node, factor, successor: next } = differences[j];
                let at = signal.col(node);
                for (value, d) in column.iter_mut().zip(&differences[j..]) {
                    let apply = |k: &[f64]| d.factor * k[d.node] - d.successor.map_or(0.0, |(s, g)| g * k[s]);
                    let level = |factor: f64, d: Option<(usize, f64)>| factor - d.map_or(0.0, |(_, g)| g);
                    *value = factor * apply(at) - next.map_or(0.0, |(s, g)| g * apply(signal.col(s)))
                        + bias * level(factor, next) * level(d.factor, d.successor);
                }
            }
        }
        column[0] += hyper.noise_variance;
    }
}

/// The Gram matrix of the signal v0 C at the nodes (N, N), of the columns too, whose variances go with v0: the lower triangle, and
/// for differences both.
pub(super) fn signal_gram_into(kernel: &Kernel, problem: &Problem, out: &mut Matrix) {
    let points = Projected::new(kernel, problem.dim, &problem.nodes);
    out.resize(points.len(), points.len());
    for j in 0..points.len() {
        points.signal(kernel, j, &points, j, &mut out.col_mut(j)[j..]);
    }
    if !kernel.columns.is_empty() {
        let width = kernel.projected_dim(problem.dim);
        let point = |i: usize| &points.rows[i * width..(i + 1) * width];
        for j in 0..points.len() {
            for i in j..points.len() {
                *out.at_mut(i, j) += kernel.of_columns(point(i), point(j));
            }
        }
    }
    if problem.differences.is_some() {
        out.mirror_lower();
    }
}

/// k0 and k1 between two states.
pub(super) fn signal_and_slope(kernel: &Kernel, x: &[f64], y: &[f64]) -> (f64, f64) {
    let (x, y) = (kernel.project(x.len(), x), kernel.project(y.len(), y));
    (kernel.eval(&x, &y) - kernel.bias_variance, kernel.slope(&x, &y))
}
