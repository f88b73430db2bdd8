//! The dense posterior of V, O(n^3): the oracle of the tests, and what small problems are fitted with.

use super::dense::{self, Cholesky, Matrix, Op, dot};
use super::evidence::{EvidenceError, KeepGoing, Problem, Projected, covariance};
use super::kernel::{Hyperparameters, Kernel};
use super::returns::Returns;

/// V given everything observed:
/// ```text
/// mean(x) = (J k(x))' Q^-1 d,    variance(x) = k(x, x) - (J k(x))' Q^-1 J k(x),    Q = J K J' + sigma0^2 I
/// ```
/// for both noise models (\[JS09, eq. 9 and 10\]; with correlated noise after closing the chains).
#[derive(Clone, Debug)]
pub struct ExactPosterior<'a> {
    problem: &'a Problem,
    kernel: Kernel,
    cholesky: Cholesky,
    /// Q^-1 d (n, H).
    alpha: Matrix,
}

impl<'a> ExactPosterior<'a> {
    /// Factor Q for `problem` under `hyper` (whose noise model is not read: it is in the problem).
    ///
    /// # Errors
    /// Stopped; not positive definite.
    pub fn new(
        problem: &'a Problem,
        hyper: &Hyperparameters,
        keep_going: KeepGoing<'_>,
    ) -> Result<Self, EvidenceError> {
        if !keep_going() {
            return Err(EvidenceError::Stopped);
        }
        let kernel = hyper.kernel.clone();
        let cholesky = Cholesky::new(covariance(problem, hyper))?;
        let alpha = cholesky.solve(problem.observed().clone());
        Ok(Self { problem, kernel, cholesky, alpha })
    }

    /// Mean of V at `states` (q, D), row-major, in the coordinates of the kernel: (q, H).
    pub fn mean(&self, states: &[f64]) -> Matrix {
        dense::product(self.cross(states).view(), Op::Transposed, self.alpha.view(), Op::Plain)
    }

    /// Variance of V at `states` (q, D), row-major: (q,), the same for every reward column.
    pub fn variance(&self, states: &[f64]) -> Vec<f64> {
        let mut cross = self.cross(states);
        dense::solve_lower(self.cholesky.factor().view(), cross.view_mut());
        (0..cross.cols()).map(|j| self.kernel.diagonal() - dot(cross.col(j), cross.col(j))).collect()
    }

    /// J k(X, x) (n, q).
    fn cross(&self, states: &[f64]) -> Matrix {
        let nodes = Projected::new(&self.kernel, self.problem.dim(), self.problem.nodes());
        let query = Projected::new(&self.kernel, self.problem.dim(), states);
        let mut out = Matrix::zeros(nodes.len(), query.len());
        for j in 0..query.len() {
            nodes.signal(&self.kernel, 0, &query, j, out.col_mut(j));
            out.col_mut(j).iter_mut().for_each(|v| *v += self.kernel.bias_variance);
        }
        self.problem.observe(out)
    }
}

/// Targets that close every cut chain with the posterior mean that they themselves lead to, and that mean at the cuts.
#[derive(Clone, Debug)]
pub struct FixedPoint {
    /// y (n, H).
    pub targets: Matrix,
    /// V at the successors of the cuts (C, H).
    pub cut_values: Matrix,
}

/// Solve y = open + W v, v = k(x_cut, X) (K + sigma0^2 I)^-1 y for v, one linear system over the C cuts:
/// ```text
/// (I - R W) v = R open,    R = k(x_cut, X) (K + sigma0^2 I)^-1                              docs/mathematics.md (E8)
/// ```
/// `states` (n, D) and `cut_states` (C, D) are row-major, in the coordinates of the kernel. O(n^3 + C^3).
///
/// # Errors
/// Stopped; not positive definite; singular (a chain whose return feeds on nothing but itself, undiscounted).
///
/// # Panics
/// If the lengths disagree.
pub fn exact_fixed_point(
    dim: usize,
    states: Vec<f64>,
    cut_states: &[f64],
    returns: &Returns,
    hyper: &Hyperparameters,
    keep_going: KeepGoing<'_>,
) -> Result<FixedPoint, EvidenceError> {
    let count = returns.cuts.len();
    assert_eq!(cut_states.len(), count * dim, "one state for each cut");
    if count == 0 {
        return Ok(FixedPoint { targets: returns.open.clone(), cut_values: Matrix::zeros(0, returns.open.cols()) });
    }
    let problem = Problem::correlated(dim, states, returns.open.clone());
    let posterior = ExactPosterior::new(&problem, hyper, keep_going)?;
    let right = posterior.mean(cut_states);
    // (K + sigma0^2 I)^-1 k(X, x_cut), of which R is the transpose.
    let smoother = posterior.cholesky.solve(posterior.cross(cut_states));
    let mut system = Matrix::identity(count);
    for (i, cut) in returns.cut_of.iter().enumerate() {
        if let Some(cut) = *cut {
            for c in 0..count {
                *system.at_mut(c, cut) -= smoother.at(i, c) * returns.weight[i];
            }
        }
    }
    let cut_values = dense::solve_general(&system, &right)?;
    Ok(FixedPoint { targets: returns.targets(&cut_values), cut_values })
}
