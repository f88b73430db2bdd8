//! The exact evidence: one factorisation of the covariance of all rows.

use super::gradient::{GradientAccumulator, Nodes};
use super::gram::{covariance_into, signal_gram_into};
use super::problem::{Difference, Problem};
use super::profiled::profiled;
use super::{Evidence, EvidenceError, KeepGoing, gaussian_constant, go, square};
use crate::math::dense::{self, Matrix, Scratch};
use crate::math::kernel::Hyperparameters;

/// The exact log evidence with its gradient. O(n^3) time, three n x n matrices (white noise: six).
///
/// `hyper.noise` is not read: the problem holds the noise model.
///
/// # Errors
/// Stopped; not positive definite; not finite.
pub fn exact(problem: &Problem, hyper: &Hyperparameters, keep_going: KeepGoing<'_>) -> Result<Evidence, EvidenceError> {
    Evaluator::default().exact(problem, hyper, keep_going)
}

/// The exact log evidence alone, at about a third of the price of [`exact`].
///
/// # Errors
/// Stopped; not positive definite; not finite.
pub fn exact_value(
    problem: &Problem,
    hyper: &Hyperparameters,
    keep_going: KeepGoing<'_>,
) -> Result<Evidence, EvidenceError> {
    Evaluator::default().exact_with(problem, hyper, false, keep_going)
}

/// The memory of exact evaluations, kept from one to the next: an optimisation asks for dozens, and memory of this size is
/// given back to the system and fetched anew, page by page, in between.
#[derive(Clone, Debug, Default)]
pub struct Evaluator {
    /// Gram matrix of the signal (N, N).
    signal: Matrix,
    /// Q, then its factor, then its inverse (n, n), lower triangles.
    system: Matrix,
    /// Inverse of the factor (n, n), lower triangle.
    half: Matrix,
    scratch: Scratch,
}

impl Evaluator {
    /// [`exact`](fn@exact), in the memory of the evaluations before.
    ///
    /// # Errors
    /// As there.
    pub fn exact(
        &mut self,
        problem: &Problem,
        hyper: &Hyperparameters,
        keep_going: KeepGoing<'_>,
    ) -> Result<Evidence, EvidenceError> {
        self.exact_with(problem, hyper, true, keep_going)
    }

    fn exact_with(
        &mut self,
        problem: &Problem,
        hyper: &Hyperparameters,
        gradient: bool,
        keep_going: KeepGoing<'_>,
    ) -> Result<Evidence, EvidenceError> {
        if let Some(floor) = problem.profiled {
            return profiled(problem, &hyper.kernel, floor, gradient, keep_going);
        }
        let Self { signal, system, half, scratch } = self;
        let (n, columns, noise) = (problem.rows(), problem.observed.cols() as f64, hyper.noise_variance);
        go(keep_going)?;
        signal_gram_into(&hyper.kernel, problem, signal);
        covariance_into(signal, problem, hyper, system);
        dense::factorise(system, scratch)?;
        go(keep_going)?;
        let mut alpha = problem.observed.clone();
        dense::solve_lower(system.view(), alpha.view_mut());
        let fit = 0.5 * square(&alpha);
        let complexity = columns * (0.5 * dense::log_determinant(system) - problem.log_factors());
        let mut out = Evidence {
            value: -complexity - fit - gaussian_constant(problem),
            complexity,
            fit,
            trace_gap: 0.0,
            observations: n * problem.observed.cols(),
            gradient: Vec::new(),
        };
        if gradient {
            dense::solve_lower_transposed(system.view(), alpha.view_mut());
            dense::invert(system, half);
            go(keep_going)?;
            // w = -H/2 (Q^-1 - alpha alpha' / H), lower triangle.
            let scale = -0.5 * columns;
            let trace = scale * (0..n).map(|i| system.at(i, i)).sum::<f64>() + 0.5 * square(&alpha);
            let weights = |j: usize, column: &mut [f64]| {
                for h in 0..alpha.cols() {
                    dense::axpy(column, -alpha.at(j, h) / columns, &alpha.col(h)[j..]);
                }
            };
            let mut pull = GradientAccumulator::new(hyper.kernel.embedding(problem.dim));
            let nodes = Nodes::new(&hyper.kernel, problem.dim, &problem.nodes);
            match &problem.differences {
                None => pull.symmetric(system, scale, weights, signal, &nodes),
                Some(differences) => {
                    (0..n).for_each(|j| weights(j, &mut system.col_mut(j)[j..]));
                    system.mirror_lower();
                    let mut pulled = backward(system, differences, problem.nodes.len() / problem.dim);
                    pull.symmetric(&mut pulled, scale, |_, _| (), signal, &nodes);
                }
            }
            out.gradient = pull.gradient(&hyper.kernel, noise * trace);
        }
        out.checked()
    }
}

/// J' W J (N, N), lower triangle (in fact both), from W (n, n).
fn backward(weights: &Matrix, differences: &[Difference], nodes: usize) -> Matrix {
    let n = differences.len();
    let mut half = Matrix::zeros(n, nodes);
    for (j, d) in differences.iter().enumerate() {
        dense::axpy(half.col_mut(d.node), d.factor, weights.col(j));
        if let Some((s, g)) = d.successor {
            dense::axpy(half.col_mut(s), -g, weights.col(j));
        }
    }
    let mut out = Matrix::zeros(nodes, nodes);
    for c in 0..nodes {
        let (from, to) = (half.col(c), out.col_mut(c));
        for (value, d) in from.iter().zip(differences) {
            to[d.node] += d.factor * value;
            if let Some((s, g)) = d.successor {
                to[s] -= g * value;
            }
        }
    }
    out
}
