//! The log evidence of the data under a kernel, and its gradient: exact, and through a dictionary.
//!
//! ```text
//! d = J V + noise,   noise ~ N(0, sigma0^2 I)       d (n, H): returns (J picks nodes) or rewards (J takes differences)
//! Q = J K J' + sigma0^2 I
//! log p(d) = sum over the H columns of  -1/2 log|Q| - 1/2 d' Q^-1 d - n/2 log 2 pi              [JS09, eq. 16]
//! ```
//! With correlated noise on closed chains this is the evidence of regressing returns on states,
//! docs/mathematics.md (M3): row i observes V at node i. With white noise row i observes V(x_i) - gamma_i V(x'_i).
//! Everything below serves both.
//!
//! # Gradient (docs/mathematics.md (E2), (E3))
//! Both evidences have the form dL = sum_ij w_ij dk(x_i, x_j), and differ only in the weights w. With k0 the kernel without
//! its bias, k1 = -2 dk/dr^2 (for a Gaussian profile that is k0 again; finite at zero for both) and
//! T = sum_ij w_ij k1_ij (x_i - x_j)(x_i - x_j)',
//! ```text
//! dL/dlog v0 = sum w k0,    dL/dlog b = b sum w,    dL/dlog a_d = -1/2 a_d T_dd,    dL/df_j = -T f_j
//! ```
//! so that one pass over the weights gives all D relevances and all factors: T comes from row sums and one product.
//! Where state variables are not real, x is what they are [embedded](super::embedding) in; a relevance then takes the diagonal
//! entries of all its coordinates, or for a category twice the weights of the pairs that it keeps apart.
//! For the exact evidence w = 1/2 J' (alpha alpha' - H Q^-1) J, alpha = Q^-1 d  (\[JS09, eq. 17\]).
//!
//! Parameters stand in one order everywhere: [`parameter_names`].

use super::dense::{self, Cholesky, Matrix, NotPositiveDefinite, Op, PanelInverses, Scratch, Singular, View, dot, sum};
use super::embedding::{Embedding, Place};
use super::kernel::{Hyperparameters, Kernel, Metric, Points};
use super::profiled::profiled;
use super::vector::ARCH;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;
use std::borrow::Cow;
use std::fmt;

/// Asked now and then, from any thread, whether to go on; `false` ends the computation with [`EvidenceError::Stopped`].
pub type KeepGoing<'a> = &'a (dyn Fn() -> bool + Sync);

/// Rows of one block of the sparse evidence.
const BLOCK: usize = 256;
/// Blocks of the sparse evidence that are worked on beside each other, if there are threads: each takes memory of its own.
const LANES: usize = 4;

/// Columns of weights that are multiplied with the states while they are at hand.
const COLUMNS: usize = 32;

/// Why there is no evidence at this point.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum EvidenceError {
    /// The caller's stop flag was up.
    Stopped,
    /// A covariance matrix is not positive definite to working precision.
    NotPositiveDefinite(NotPositiveDefinite),
    /// The system for the values at the cuts is singular.
    Singular(Singular),
    /// The value or the gradient overflows.
    NotFinite,
}

impl fmt::Display for EvidenceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped => write!(f, "stopped by the caller"),
            Self::NotPositiveDefinite(e) => write!(f, "no evidence: {e}"),
            Self::Singular(e) => write!(f, "no values at the cuts: {e}"),
            Self::NotFinite => write!(f, "the log evidence is not finite"),
        }
    }
}

impl std::error::Error for EvidenceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotPositiveDefinite(e) => Some(e),
            Self::Singular(e) => Some(e),
            Self::Stopped | Self::NotFinite => None,
        }
    }
}

impl From<NotPositiveDefinite> for EvidenceError {
    fn from(e: NotPositiveDefinite) -> Self {
        Self::NotPositiveDefinite(e)
    }
}

impl From<Singular> for EvidenceError {
    fn from(e: Singular) -> Self {
        Self::Singular(e)
    }
}

/// One row of white noise: V(node) - discount V(successor), or V(node) where the successor is absorbing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Index of the state among the nodes.
    pub node: usize,
    /// Index of the successor among the nodes, and the discount in \[0, 1\].
    pub successor: Option<(usize, f64)>,
}

/// What the evidence is of: points, linear functionals of V at them, and the numbers observed.
#[derive(Clone, Debug)]
pub struct Problem {
    dim: usize,
    nodes: Vec<f64>,
    differences: Option<Vec<Difference>>,
    observed: Matrix,
    /// Least noise variance of each column relative to its variance, where each has its best noise and scale.
    profiled: Option<f64>,
}

impl Problem {
    /// Correlated noise with closed chains: `targets` (n, H) are the returns of `states` (n, D), row-major, in the
    /// coordinates of the kernel.
    ///
    /// # Panics
    /// If the lengths disagree or D is 0.
    pub fn correlated(dim: usize, states: Vec<f64>, targets: Matrix) -> Self {
        assert!(dim > 0 && states.len() == targets.rows() * dim, "one target for each state");
        Self { dim, nodes: states, differences: None, observed: targets, profiled: None }
    }

    /// White noise: `rewards` (n, H) observe `differences` (n,) between `nodes` (N, D), row-major, in the coordinates
    /// of the kernel. [`differences`](super::returns::differences) makes the latter two from rows.
    ///
    /// # Panics
    /// If the lengths disagree, D is 0, or a difference names a node that is not there.
    pub fn white(dim: usize, nodes: Vec<f64>, differences: Vec<Difference>, rewards: Matrix) -> Self {
        assert!(dim > 0 && nodes.len().is_multiple_of(dim), "nodes are not whole rows");
        assert_eq!(differences.len(), rewards.rows(), "one reward for each difference");
        let len = nodes.len() / dim;
        let inside = |d: &Difference| d.node < len && d.successor.is_none_or(|(s, _)| s < len);
        assert!(differences.iter().all(inside), "a difference names a node that is not there");
        Self { dim, nodes, differences: Some(differences), observed: rewards, profiled: None }
    }

    /// The same, with the exact evidence of each column at the noise and scale that suit it best: the kernel is then judged by its
    /// shape alone. The noise variance of a column stays at or above `floor` times its variance. For correlated noise.
    pub fn profiled(self, floor: f64) -> Self {
        Self { profiled: Some(floor), ..self }
    }

    /// Number of observed rows n.
    pub fn rows(&self) -> usize {
        self.observed.rows()
    }

    /// State dimension D.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The observed numbers (n, H).
    pub fn observed(&self) -> &Matrix {
        &self.observed
    }

    /// The nodes (N, D), row-major.
    pub fn nodes(&self) -> &[f64] {
        &self.nodes
    }

    /// Replace the observed numbers (n, H): the targets moved.
    ///
    /// # Panics
    /// If the number of rows changes.
    pub fn set_observed(&mut self, observed: Matrix) {
        assert_eq!(observed.rows(), self.observed.rows(), "as many targets as before");
        self.observed = observed;
    }

    fn node(&self, row: usize) -> &[f64] {
        let node = self.differences.as_ref().map_or(row, |d| d[row].node);
        &self.nodes[node * self.dim..(node + 1) * self.dim]
    }

    /// The successor's state and the discount, where row i observes a difference.
    fn successor(&self, row: usize) -> Option<(&[f64], f64)> {
        let (node, discount) = self.differences.as_ref()?[row].successor?;
        Some((&self.nodes[node * self.dim..(node + 1) * self.dim], discount))
    }

    /// out (N, q) -> J out (n, q).
    pub(super) fn observe(&self, values: Matrix) -> Matrix {
        let Some(differences) = &self.differences else { return values };
        let mut out = Matrix::zeros(self.rows(), values.cols());
        for j in 0..values.cols() {
            let column = values.col(j);
            for (value, d) in out.col_mut(j).iter_mut().zip(differences) {
                *value = column[d.node] - d.successor.map_or(0.0, |(s, g)| g * column[s]);
            }
        }
        out
    }
}

/// A log evidence and its parts, summed over the H columns: value = -complexity - fit - n H / 2 log 2 pi - trace_gap.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The log evidence, nats: higher is better.
    pub value: f64,
    /// H/2 log|Q|.
    pub complexity: f64,
    /// 1/2 sum over columns of d' Q^-1 d. At an optimum that is interior in (v0, b, sigma0^2) it is n H / 2 exactly.
    pub fit: f64,
    /// What the variational bound pays for what the dictionary leaves out, H trace / (2 sigma0^2), nats; 0 for the
    /// exact evidence. It is reported, though not paid, for [`Sparse::Dtc`] too. Above 5 nats the dictionary is
    /// too small to select a model with.
    pub trace_gap: f64,
    /// Number of observed numbers n H.
    pub observations: usize,
    /// Derivative with respect to the parameters, in the order of [`parameter_names`]; empty if it was not asked for.
    pub gradient: Vec<f64>,
}

impl Evidence {
    /// fit / (n H / 2): exactly 1 at an optimum interior in (v0, b, sigma0^2); far less means that a floor is active.
    pub fn fit_ratio(&self) -> f64 {
        self.fit / (0.5 * self.observations as f64)
    }

    pub(super) fn checked(self) -> Result<Self, EvidenceError> {
        let finite = self.value.is_finite() && self.gradient.iter().all(|g| g.is_finite());
        if finite { Ok(self) } else { Err(EvidenceError::NotFinite) }
    }
}

/// Which sparse evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sparse {
    /// The variational bound \[T09\]: never above the exact evidence.
    Vfe,
    /// The evidence of the projected process (DTC) alone, without the trace term: it can over-fit.
    Dtc,
}

/// Names of the parameters, in the order in which gradients and vectors of parameters hold them.
pub fn parameter_names(metric: &Metric, dim: usize) -> Vec<String> {
    let mut names: Vec<String> =
        ["log_signal_variance", "log_bias_variance", "log_noise_variance"].map(String::from).to_vec();
    match metric {
        Metric::Isotropic(_) => names.push("log_relevance".into()),
        Metric::Ard(_) | Metric::Factor { .. } => names.extend((0..dim).map(|i| format!("log_relevance[{i}]"))),
    }
    for j in 0..metric.factors().len() {
        names.extend((0..dim).map(|i| format!("factors[{j}][{i}]")));
    }
    names
}

/// The parameters of `hyper` as one vector, in the order of [`parameter_names`]. A variance or relevance of exactly 0
/// becomes negative infinity, and [`from_parameters`] takes it back.
pub fn to_parameters(hyper: &Hyperparameters) -> Vec<f64> {
    let kernel = &hyper.kernel;
    let mut out = vec![kernel.signal_variance.ln(), kernel.bias_variance.ln(), hyper.noise_variance.ln()];
    match &kernel.metric {
        Metric::Isotropic(h) => out.push(h.ln()),
        Metric::Ard(a) => out.extend(a.iter().map(|a| a.ln())),
        Metric::Factor { relevance, factors } => {
            out.extend(relevance.iter().map(|a| a.ln()));
            out.extend(factors.iter().flatten());
        }
    }
    out
}

/// Hyperparameters of the structure of `like` (kind and size of the metric, noise model) with these `parameters`.
///
/// # Panics
/// If there is another number of parameters.
pub fn from_parameters(like: &Hyperparameters, parameters: &[f64]) -> Hyperparameters {
    let exp = |slice: &[f64]| slice.iter().map(|v| v.exp()).collect::<Vec<f64>>();
    let shape = &parameters[3..];
    let metric = match &like.kernel.metric {
        Metric::Isotropic(_) => {
            assert_eq!(shape.len(), 1, "one relevance");
            Metric::Isotropic(shape[0].exp())
        }
        Metric::Ard(a) => {
            assert_eq!(shape.len(), a.len(), "one relevance for each coordinate");
            Metric::Ard(exp(shape))
        }
        Metric::Factor { relevance, factors } => {
            let dim = relevance.len();
            assert_eq!(shape.len(), dim * (1 + factors.len()), "relevances and factors of the same dimension");
            let factors = shape[dim..].chunks_exact(dim).map(<[f64]>::to_vec).collect();
            Metric::Factor { relevance: exp(&shape[..dim]), factors }
        }
    };
    let (signal_variance, bias_variance) = (parameters[0].exp(), parameters[1].exp());
    let kernel = Kernel { signal_variance, bias_variance, metric, ..like.kernel.clone() };
    Hyperparameters { kernel, noise: like.noise, noise_variance: parameters[2].exp() }
}

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
        let complexity = 0.5 * columns * dense::log_determinant(system);
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

/// Q = J (K0 + b) J' + sigma0^2 I (n, n), lower triangle, from the Gram matrix of the signal at the nodes.
pub(super) fn covariance(problem: &Problem, hyper: &Hyperparameters) -> Matrix {
    let (mut signal, mut out) = (Matrix::default(), Matrix::default());
    signal_gram_into(&hyper.kernel, problem, &mut signal);
    covariance_into(&signal, problem, hyper, &mut out);
    out
}

/// The same from the Gram matrix of the signal (lower triangle; for differences both).
fn covariance_into(signal: &Matrix, problem: &Problem, hyper: &Hyperparameters, out: &mut Matrix) {
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
                let (at, next) = (signal.col(differences[j].node), differences[j].successor);
                for (value, d) in column.iter_mut().zip(&differences[j..]) {
                    let apply = |k: &[f64]| k[d.node] - d.successor.map_or(0.0, |(s, g)| g * k[s]);
                    let level = |d: Option<(usize, f64)>| 1.0 - d.map_or(0.0, |(_, g)| g);
                    *value = apply(at) - next.map_or(0.0, |(s, g)| g * apply(signal.col(s)))
                        + bias * level(next) * level(d.successor);
                }
            }
        }
        column[0] += hyper.noise_variance;
    }
}

/// The Gram matrix of the signal v0 C at the nodes (N, N): the lower triangle, and for differences both.
pub(super) fn signal_gram_into(kernel: &Kernel, problem: &Problem, out: &mut Matrix) {
    let points = Projected::new(kernel, problem.dim, &problem.nodes);
    out.resize(points.len(), points.len());
    for j in 0..points.len() {
        points.signal(kernel, j, &points, j, &mut out.col_mut(j)[j..]);
    }
    if problem.differences.is_some() {
        out.mirror_lower();
    }
}

/// J' W J (N, N), lower triangle (in fact both), from W (n, n).
fn backward(weights: &Matrix, differences: &[Difference], nodes: usize) -> Matrix {
    let n = differences.len();
    let mut half = Matrix::zeros(n, nodes);
    for (j, d) in differences.iter().enumerate() {
        dense::axpy(half.col_mut(d.node), 1.0, weights.col(j));
        if let Some((s, g)) = d.successor {
            dense::axpy(half.col_mut(s), -g, weights.col(j));
        }
    }
    let mut out = Matrix::zeros(nodes, nodes);
    for c in 0..nodes {
        let (from, to) = (half.col(c), out.col_mut(c));
        for (value, d) in from.iter().zip(differences) {
            to[d.node] += value;
            if let Some((s, g)) = d.successor {
                to[s] -= g * value;
            }
        }
    }
    out
}

/// The sparse log evidence with its gradient, the dictionary (m, D) (row-major, in the coordinates of the kernel) held
/// where it is.
///
/// ```text
/// K_mm + jitter v0 I = L L',  phi_i = L^-1 (functional i of k_m),  S = sum phi phi',  A = S + sigma0^2 I,
/// p = sum phi d,  q = sum d^2
/// log p = -1/2 [(n - m) log sigma0^2 + log|A| + (q - p' A^-1 p) / sigma0^2 + n log 2 pi]              (E6)
///         - 1/(2 sigma0^2) sum_i (k(i, i) - phi_i' phi_i)                                 [T09]   (E9)
/// ```
/// Numbers are those of `docs/mathematics.md`; (E10) is the gradient.
/// O(n m^2) time in blocks of rows, O(m^2) memory besides the problem. `jitter` is relative to v0; 0 for none. Give it
/// 1e-6 where the dictionary stays while lengthscales grow, or K_mm becomes singular.
///
/// # Errors
/// Stopped (asked once every four blocks); not positive definite; not finite.
///
/// # Panics
/// If the dictionary is empty or not a whole number of rows.
pub fn sparse(
    problem: &Problem,
    hyper: &Hyperparameters,
    dictionary: &[f64],
    kind: Sparse,
    jitter: f64,
    keep_going: KeepGoing<'_>,
) -> Result<Evidence, EvidenceError> {
    sparse_with(problem, hyper, dictionary, kind, jitter, true, keep_going)
}

/// The sparse log evidence alone, at about a third of the price of [`sparse`].
///
/// # Errors
/// Stopped (asked once every four blocks); not positive definite; not finite.
///
/// # Panics
/// If the dictionary is empty or not a whole number of rows.
pub fn sparse_value(
    problem: &Problem,
    hyper: &Hyperparameters,
    dictionary: &[f64],
    kind: Sparse,
    jitter: f64,
    keep_going: KeepGoing<'_>,
) -> Result<Evidence, EvidenceError> {
    sparse_with(problem, hyper, dictionary, kind, jitter, false, keep_going)
}

fn sparse_with(
    problem: &Problem,
    hyper: &Hyperparameters,
    dictionary: &[f64],
    kind: Sparse,
    jitter: f64,
    gradient: bool,
    keep_going: KeepGoing<'_>,
) -> Result<Evidence, EvidenceError> {
    let (n, columns, noise) = (problem.rows(), problem.observed.cols(), hyper.noise_variance);
    let (kernel, hs) = (&hyper.kernel, columns as f64);
    go(keep_going)?;
    let basis = Projected::new(kernel, problem.dim, dictionary);
    let m = basis.len();
    assert!(m > 0, "a dictionary has at least one element");
    let mut signal = Matrix::zeros(m, m);
    let mut gram = Matrix::zeros(m, m);
    for j in 0..m {
        basis.signal(kernel, j, &basis, j, &mut signal.col_mut(j)[j..]);
        for (value, signal) in gram.col_mut(j)[j..].iter_mut().zip(&signal.col(j)[j..]) {
            *value = signal + kernel.bias_variance;
        }
        *gram.at_mut(j, j) += jitter * kernel.signal_variance;
    }
    let factor = Cholesky::new(gram)?;
    let factor = factor.factor();

    let inverses = PanelInverses::of(factor);
    let mut lanes: Vec<PartialSums> =
        (0..LANES.min(n.div_ceil(BLOCK))).map(|_| PartialSums::new(problem, kernel, dictionary)).collect();
    over_blocks(&mut lanes, n, keep_going, |lane, start, len| {
        lane.prior += lane.block.fill(problem, kernel, &basis, (start, len), false);
        let PartialSums { block, products, s, p, .. } = lane;
        products.renew(m, BLOCK);
        let values = block.values.block_mut(0, 0, m, len);
        inverses.solve_lower(factor.view(), values, products.block_mut(0, 0, m, len));
        let phi = products.block(0, 0, m, len);
        dense::rank_k(s.view_mut(), 1.0, phi, Op::Plain);
        let observed = problem.observed.block(start, 0, len, columns);
        dense::multiply(p.view_mut(), true, 1.0, phi, Op::Plain, observed, Op::Plain);
    })?;
    let (mut s, mut p, mut prior) = (Matrix::zeros(m, m), Matrix::zeros(m, columns), 0.0);
    for lane in &lanes {
        add(&mut s, &lane.s);
        add(&mut p, &lane.p);
        prior += lane.prior;
    }
    let trace = prior - (0..m).map(|i| s.at(i, i)).sum::<f64>();
    let mut system = s.clone();
    for i in 0..m {
        *system.at_mut(i, i) += noise;
    }
    let system = Cholesky::new(system)?;
    let mut weights = p.clone();
    dense::solve_lower(system.factor().view(), weights.view_mut());
    let energy = square(&problem.observed) - square(&weights);
    let complexity = 0.5 * hs * ((n as f64 - m as f64) * noise.ln() + system.log_determinant());
    let fit = 0.5 * energy / noise;
    let trace_gap = 0.5 * hs * trace / noise;
    let paid = if kind == Sparse::Vfe { 1.0 } else { 0.0 };
    let mut out = Evidence {
        value: -complexity - fit - gaussian_constant(problem) - paid * trace_gap,
        complexity,
        fit,
        trace_gap,
        observations: n * columns,
        gradient: Vec::new(),
    };
    if !gradient {
        return out.checked();
    }

    // With u = A^-1 p and C = paid H / sigma0^2 I - H A^-1 - u u' / sigma0^2, the weights of dk are
    //   of functional i against the dictionary      L^-T (C phi_i + u d_i' / sigma0^2)
    //   within the dictionary                       1/2 L^-T (H I - sigma0^2 H A^-1 - u u' - paid H S / sigma0^2) L^-1
    //   of functional i with itself                 -paid H / (2 sigma0^2)
    dense::solve_lower_transposed(system.factor().view(), weights.view_mut());
    let inverse = system.inverse_lower();
    let mut inner = Matrix::zeros(m, m);
    let mut cross = Matrix::zeros(m, m);
    for j in 0..m {
        for i in j..m {
            let outer: f64 = (0..columns).map(|h| weights.at(i, h) * weights.at(j, h)).sum();
            let unit = if i == j { 1.0 } else { 0.0 };
            let inverse = hs * inverse.at(i, j);
            *cross.at_mut(i, j) = paid * hs / noise * unit - inverse - outer / noise;
            *inner.at_mut(i, j) = 0.5 * (hs * unit - noise * inverse - outer - paid * hs / noise * s.at(i, j));
        }
    }
    cross.mirror_lower();
    inner.mirror_lower();
    // L^-T C L^-1 and L^-T u once, so that a block's weights are one product with its kernel values.
    congruence(factor, &mut cross);
    let mut along = weights.clone();
    dense::solve_lower_transposed(factor.view(), along.view_mut());
    over_blocks(&mut lanes, n, keep_going, |lane, start, len| {
        lane.block.fill(problem, kernel, &basis, (start, len), true);
        let PartialSums { block, pull, sides, products, .. } = lane;
        let values = block.values.block(0, 0, m, len);
        let observed = problem.observed.block(start, 0, len, columns);
        products.renew(m, BLOCK);
        let mut product = products.block_mut(0, 0, m, len);
        dense::multiply(product.reborrow(), false, 1.0, cross.view(), Op::Plain, values, Op::Plain);
        dense::multiply(product, true, 1.0 / noise, along.view(), Op::Plain, observed, Op::Transposed);
        sides.add(pull, problem, start, len, products, block);
        for row in start..start + len {
            pull.own(kernel, problem.node(row), problem.successor(row), -0.5 * paid * hs / noise);
        }
    })?;
    let embedding = kernel.embedding(problem.dim);
    let mut pull = GradientAccumulator::new(embedding.clone());
    let mut sides = CrossWeights::new(embedding, dictionary);
    for lane in &lanes {
        pull.merge(&lane.pull);
        sides.merge(&lane.sides);
    }
    drop(lanes);
    sides.finish(&mut pull);
    congruence(factor, &mut inner);
    pull.signal += jitter * kernel.signal_variance * (0..m).map(|i| inner.at(i, i)).sum::<f64>();
    pull.symmetric(&mut inner, 1.0, |_, _| (), &signal, &Nodes::new(kernel, problem.dim, dictionary));
    let inverse_trace: f64 = (0..m).map(|i| inverse.at(i, i)).sum();
    let along_noise = -0.5 * hs * (n as f64 - m as f64) - 0.5 * noise * hs * inverse_trace + fit
        - 0.5 * square(&weights)
        + paid * trace_gap;
    out.gradient = pull.gradient(kernel, along_noise);
    out.checked()
}

pub(super) fn go(keep_going: KeepGoing<'_>) -> Result<(), EvidenceError> {
    if keep_going() { Ok(()) } else { Err(EvidenceError::Stopped) }
}

fn square(a: &Matrix) -> f64 {
    (0..a.cols()).map(|h| dot(a.col(h), a.col(h))).sum()
}

fn gaussian_constant(problem: &Problem) -> f64 {
    0.5 * (problem.rows() * problem.observed.cols()) as f64 * (2.0 * std::f64::consts::PI).ln()
}

/// Projected states, both ways: to be compared with one point, and to be that point.
pub(super) struct Projected {
    pub(super) points: Points,
    pub(super) rows: Vec<f64>,
}

impl Projected {
    /// `states` (n, D), row-major, as `kernel` projects them.
    pub(super) fn new(kernel: &Kernel, dim: usize, states: &[f64]) -> Self {
        let rows = kernel.project(dim, states);
        Self { points: Points::new(kernel.projected_dim(dim), &rows), rows }
    }

    pub(super) fn len(&self) -> usize {
        self.points.len()
    }

    /// out\[i\] = v0 profile(|x_i - y_j|^2) for the points x from `first` on and point j of `other`.
    pub(super) fn signal(&self, kernel: &Kernel, first: usize, other: &Projected, j: usize, out: &mut [f64]) {
        self.covariances(kernel, first, other, j, 0.0, out);
    }

    /// out\[i\] = -2 dk/dr^2 for the same points.
    fn slopes(&self, kernel: &Kernel, first: usize, other: &Projected, j: usize, out: &mut [f64]) {
        let width = other.rows.len() / other.len();
        self.points.slopes(kernel, first, &other.rows[j * width..(j + 1) * width], out);
    }

    /// The signal with `level` added.
    fn covariances(&self, kernel: &Kernel, first: usize, other: &Projected, j: usize, level: f64, out: &mut [f64]) {
        let width = other.rows.len() / other.len();
        self.points.covariances(kernel, first, &other.rows[j * width..(j + 1) * width], level, out);
    }
}

/// What the gradient along the metric needs to know of points that are all compared with one another.
pub(super) struct Nodes<'a> {
    kernel: &'a Kernel,
    /// Embedded coordinates (N, E), row-major.
    coordinates: Cow<'a, [f64]>,
    /// Values of each category (C, N).
    categories: Vec<Vec<f64>>,
    /// The same states projected, where the profile's slope is not the profile.
    projected: Option<Projected>,
}

impl<'a> Nodes<'a> {
    pub(super) fn new(kernel: &'a Kernel, dim: usize, states: &'a [f64]) -> Self {
        let embedding = kernel.embedding(dim);
        let projected = (!kernel.profile.is_its_slope()).then(|| Projected::new(kernel, dim, states));
        let categories = embedding.all_categories(states);
        Self { kernel, coordinates: embedding.all_coordinates(states), categories, projected }
    }

    /// k1 of point j and those from number `first` on, in `memory`; none if that is k0.
    fn slopes<'b>(&self, first: usize, j: usize, memory: &'b mut [f64]) -> Option<&'b [f64]> {
        let projected = self.projected.as_ref()?;
        let out = &mut memory[first..];
        projected.slopes(self.kernel, first, projected, j, out);
        Some(out)
    }
}

/// Partial sums over every L-th block of rows, with scratch for one block. Partials are reduced in a fixed order, so the result
/// does not depend on the number of threads.
struct PartialSums {
    block: Block,
    /// Sum of phi phi' (m, m), lower triangle.
    s: Matrix,
    /// Sum of phi d' (m, H).
    p: Matrix,
    /// Sum of prior variances.
    prior: f64,
    /// Features of a block, then its weights against the dictionary (m, B).
    products: Matrix,
    pull: GradientAccumulator,
    sides: CrossWeights,
}

impl PartialSums {
    fn new(problem: &Problem, kernel: &Kernel, dictionary: &[f64]) -> Self {
        let m = dictionary.len() / problem.dim;
        let embedding = kernel.embedding(problem.dim);
        Self {
            block: Block::new(m, kernel.bias_variance, problem.differences.is_some()),
            s: Matrix::zeros(m, m),
            p: Matrix::zeros(m, problem.observed.cols()),
            prior: 0.0,
            products: Matrix::default(),
            pull: GradientAccumulator::new(embedding.clone()),
            sides: CrossWeights::new(embedding, dictionary),
        }
    }
}

/// Deal the blocks of `n` rows out to the lanes, one each at a time; `work` is told the first row and the number of rows. The
/// lanes work beside each other where the caller runs in a pool of threads. No other pool is ever asked for.
fn over_blocks(
    lanes: &mut [PartialSums],
    n: usize,
    keep_going: KeepGoing<'_>,
    work: impl Fn(&mut PartialSums, usize, usize) + Sync,
) -> Result<(), EvidenceError> {
    let pooled = rayon::current_thread_index().is_some();
    for first in (0..n).step_by(BLOCK * lanes.len().max(1)) {
        go(keep_going)?;
        let one = |(k, lane): (usize, &mut PartialSums)| {
            let start = first + k * BLOCK;
            if start < n {
                work(lane, start, BLOCK.min(n - start));
            }
        };
        if pooled {
            lanes.par_iter_mut().enumerate().for_each(one);
        } else {
            lanes.iter_mut().enumerate().for_each(one);
        }
    }
    Ok(())
}

/// a <- a + b.
fn add(a: &mut Matrix, b: &Matrix) {
    (0..a.cols()).for_each(|j| dense::axpy(a.col_mut(j), 1.0, b.col(j)));
}

/// x <- l^-T x l^-1 for a symmetric x.
fn congruence(l: &Matrix, x: &mut Matrix) {
    dense::solve_lower_transposed(l.view(), x.view_mut());
    *x = x.transpose();
    dense::solve_lower_transposed(l.view(), x.view_mut());
}

/// Kernel values of a block of rows against the dictionary.
struct Block {
    /// v0 C between dictionary (rows) and the states of the block's rows (columns); empty unless rows are differences, since
    /// otherwise `values` are that and the bias.
    signal: Matrix,
    /// The same for their successors.
    next: Matrix,
    /// The functionals of k_m.
    values: Matrix,
    /// k1 between dictionary and states, and for their successors; empty while they are not asked for or are k0.
    slopes: Matrix,
    next_slopes: Matrix,
    /// The kernel's b.
    bias: f64,
}

impl Block {
    fn new(m: usize, bias: f64, differences: bool) -> Self {
        let width = if differences { BLOCK } else { 0 };
        let (signal, next, values) = (Matrix::zeros(m, width), Matrix::zeros(m, width), Matrix::zeros(m, BLOCK));
        Self { signal, next, values, slopes: Matrix::default(), next_slopes: Matrix::default(), bias }
    }

    /// Fill in rows `start..start + len`, slopes if these are wanted; gives the sum of their prior variances.
    fn fill<'a>(
        &mut self,
        problem: &'a Problem,
        kernel: &Kernel,
        basis: &Projected,
        (start, len): (usize, usize),
        slopes: bool,
    ) -> f64 {
        let gather = |state: &dyn Fn(usize) -> Option<&'a [f64]>| {
            // A row without a successor keeps its place; what stands there is not read.
            let states: Vec<f64> =
                (0..len).flat_map(|i| state(start + i).unwrap_or(problem.node(start + i)).iter().copied()).collect();
            Projected::new(kernel, problem.dim, &states)
        };
        let points = gather(&|row| Some(problem.node(row)));
        let next = (self.next.cols() > 0).then(|| gather(&|row| problem.successor(row).map(|(state, _)| state)));
        if slopes && !kernel.profile.is_its_slope() {
            self.slopes.renew(basis.len(), BLOCK);
            (0..len).for_each(|i| basis.slopes(kernel, 0, &points, i, self.slopes.col_mut(i)));
            if let Some(next) = &next {
                self.next_slopes.renew(basis.len(), BLOCK);
                (0..len).for_each(|i| basis.slopes(kernel, 0, next, i, self.next_slopes.col_mut(i)));
            }
        }
        let (mut prior, bias) = (0.0, self.bias);
        if next.is_none() {
            (0..len).for_each(|i| basis.covariances(kernel, 0, &points, i, bias, self.values.col_mut(i)));
            return len as f64 * kernel.diagonal();
        }
        for i in 0..len {
            basis.signal(kernel, 0, &points, i, self.signal.col_mut(i));
            for (feature, signal) in self.values.col_mut(i).iter_mut().zip(self.signal.col(i)) {
                *feature = signal + bias;
            }
            prior += kernel.diagonal();
            if let (Some(next), Some((state, discount))) = (&next, problem.successor(start + i)) {
                basis.signal(kernel, 0, next, i, self.next.col_mut(i));
                for (feature, signal) in self.values.col_mut(i).iter_mut().zip(self.next.col(i)) {
                    *feature -= discount * (signal + bias);
                }
                let (own, _) = signal_and_slope(kernel, problem.node(start + i), state);
                prior += discount * discount * kernel.diagonal() - 2.0 * discount * (own + bias);
            }
        }
        prior
    }
}

/// k0 and k1 between two states.
fn signal_and_slope(kernel: &Kernel, x: &[f64], y: &[f64]) -> (f64, f64) {
    let (x, y) = (kernel.project(x.len(), x), kernel.project(y.len(), y));
    (kernel.eval(&x, &y) - kernel.bias_variance, kernel.slope(&x, &y))
}

/// Sums of weights times derivatives of the kernel: what a gradient is assembled from.
pub(super) struct GradientAccumulator {
    /// sum w k0.
    signal: f64,
    /// sum w.
    bias: f64,
    /// T = sum w k1 (x - x')(x - x')' (E, E), row-major, in embedded coordinates.
    spread: Vec<f64>,
    /// sum of w k1 over pairs of which a category differs (C,).
    apart: Vec<f64>,
    /// E.
    dim: usize,
    embedding: Embedding,
}

impl GradientAccumulator {
    pub(super) fn new(embedding: Embedding) -> Self {
        let (dim, categories) = (embedding.width(), embedding.categories());
        Self { signal: 0.0, bias: 0.0, spread: vec![0.0; dim * dim], apart: vec![0.0; categories], dim, embedding }
    }

    /// spread += weight (a b' + b a') / 2
    fn outer(&mut self, weight: f64, a: &[f64], b: &[f64]) {
        let dim = self.dim;
        for d in 0..dim {
            for e in 0..dim {
                self.spread[d * dim + e] += 0.5 * weight * (a[d] * b[e] + b[d] * a[e]);
            }
        }
    }

    /// spread += scale (a' b + b' a) / 2 for a and b (n, E).
    fn outer_all(&mut self, scale: f64, a: View<'_>, b: View<'_>) {
        let product = dense::product(a, Op::Transposed, b, Op::Plain);
        for d in 0..self.dim {
            for e in 0..self.dim {
                self.spread[d * self.dim + e] += 0.5 * scale * (product.at(d, e) + product.at(e, d));
            }
        }
    }

    /// What another has gathered, too.
    fn merge(&mut self, other: &Self) {
        self.signal += other.signal;
        self.bias += other.bias;
        dense::axpy(&mut self.spread, 1.0, &other.spread);
        dense::axpy(&mut self.apart, 1.0, &other.apart);
    }

    /// All ordered pairs of `nodes` (N,), with signal (N, N) and symmetric weights, `scale` times what `prepare` makes of what
    /// stands in column j of `weights` from the diagonal down (lower triangles). Nothing of use is left there.
    ///
    /// ```text
    /// T = 2 X' R X - 2 X' M X,   M = w .* k1 off the diagonal (a pair of equal points adds nothing),  R its row sums
    /// ```
    pub(super) fn symmetric(
        &mut self,
        weights: &mut Matrix,
        scale: f64,
        prepare: impl Fn(usize, &mut [f64]),
        signal: &Matrix,
        nodes: &Nodes<'_>,
    ) {
        let (dim, n) = (self.dim, weights.rows());
        let mut x = Matrix::from_rows(n, dim, &nodes.coordinates);
        for d in 0..dim {
            let mean = sum(x.col(d)) / n as f64;
            x.col_mut(d).iter_mut().for_each(|v| *v -= mean);
        }
        let (mut sums, mut memory) = (vec![0.0; n], vec![0.0; n]);
        // P = M' X, M without the triangle that mirrors it.
        let mut products = Matrix::zeros(n, dim);
        for first in (0..n).step_by(COLUMNS) {
            let width = COLUMNS.min(n - first);
            for j in first..first + width {
                let (above, column) = weights.col_mut(j).split_at_mut(j);
                prepare(j, column);
                let signal = &signal.col(j)[j..];
                let (diagonal, below) = column.split_first_mut().expect("the column has its diagonal");
                let (own, others) = sums[j..].split_first_mut().expect("the column has its diagonal");
                let slopes = nodes.slopes(j + 1, j, &mut memory);
                let weighed = weigh(below, scale, &signal[1..], 0.0, slopes, others);
                *own += weighed.slope;
                self.bias += scale * *diagonal + 2.0 * weighed.weight;
                self.signal += scale * *diagonal * signal[0] + 2.0 * weighed.signal;
                for (apart, values) in self.apart.iter_mut().zip(&nodes.categories) {
                    *apart += 2.0 * sum_where_different(below, &values[j + 1..], values[j]);
                }
                *diagonal = 0.0;
                above[first..].fill(0.0);
            }
            let (m, x) = (weights.block(first, first, n - first, width), x.block(first, 0, n - first, dim));
            let out = products.block_mut(first, 0, width, dim);
            dense::multiply(out, false, 1.0, m, Op::Transposed, x, Op::Plain);
        }
        self.outer_all(-4.0, products.view(), x.view());
        for d in 0..dim {
            for (scaled, (x, sum)) in products.col_mut(d).iter_mut().zip(x.col(d).iter().zip(&sums)) {
                *scaled = x * sum;
            }
        }
        self.outer_all(2.0, products.view(), x.view());
    }

    /// The prior variance of one functional: k(x, x), or k(x, x) + g^2 k(x', x') - 2 g k(x, x').
    fn own(&mut self, kernel: &Kernel, state: &[f64], successor: Option<(&[f64], f64)>, weight: f64) {
        self.signal += weight * kernel.signal_variance;
        self.bias += weight;
        if let Some((next, g)) = successor {
            let (between, slope) = signal_and_slope(kernel, state, next);
            self.signal += weight * (g * g * kernel.signal_variance - 2.0 * g * between);
            self.bias += weight * (1.0 - g) * (1.0 - g) - weight;
            let weight = -2.0 * g * weight * slope;
            let (mut a, mut b) = (Vec::new(), Vec::new());
            let (a, b) = (self.embedding.coordinates(state, &mut a), self.embedding.coordinates(next, &mut b));
            let step: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
            self.outer(weight, &step, &step);
            for (apart, d) in self.apart.iter_mut().zip(self.embedding.category_variables()) {
                *apart += if state[d] == next[d] { 0.0 } else { weight };
            }
        }
    }

    /// The gradient; `noise` is the derivative with respect to log sigma0^2.
    pub(super) fn gradient(&self, kernel: &Kernel, noise: f64) -> Vec<f64> {
        let dim = self.dim;
        let diagonal = |e: usize| self.spread[e * dim + e];
        // sum w k1 times the squared distance in one state variable.
        let squares = self.embedding.places().iter().map(|place| match *place {
            Place::Line(e) => diagonal(e),
            Place::Circle(e, _) => diagonal(e) + diagonal(e + 1),
            Place::Category(c) => 2.0 * self.apart[c],
        });
        let mut out = vec![self.signal, kernel.bias_variance * self.bias, noise];
        match &kernel.metric {
            Metric::Isotropic(h) => out.push(-0.5 * h * squares.sum::<f64>()),
            Metric::Ard(a) | Metric::Factor { relevance: a, .. } => {
                out.extend(a.iter().zip(squares).map(|(a, square)| -0.5 * a * square));
            }
        }
        // Directions go along real variables.
        let lines = || {
            self.embedding.places().iter().enumerate().filter_map(|(d, place)| match *place {
                Place::Line(e) => Some((d, e)),
                _ => None,
            })
        };
        for factor in kernel.metric.factors() {
            let first = out.len();
            out.resize(first + factor.len(), 0.0);
            for (d, e) in lines() {
                out[first + d] = -lines().map(|(other, f)| self.spread[e * dim + f] * factor[other]).sum::<f64>();
            }
        }
        out
    }
}

/// The sum of those w whose value is not `value`.
fn sum_where_different(w: &[f64], values: &[f64], value: f64) -> f64 {
    w.iter().zip(values).map(|(w, v)| if *v == value { 0.0 } else { *w }).sum()
}

/// Sums over weights, before the last of which they were multiplied.
struct Weighed {
    /// sum w.
    weight: f64,
    /// sum w k0.
    signal: f64,
    /// sum w k1.
    slope: f64,
}

/// w <- scale w .* k1, and sums <- sums + that; gives the sums of scale w, alone and times k0 and k1. k0 is k - level; k1 are
/// the `slopes`, or k0 where there are none. Bits depend on the machine's registers.
fn weigh(w: &mut [f64], scale: f64, k: &[f64], level: f64, slopes: Option<&[f64]>, sums: &mut [f64]) -> Weighed {
    assert!(w.len() == k.len() && w.len() == sums.len(), "vectors of different lengths");
    let Some(slopes) = slopes else {
        let (weight, signal) = ARCH.dispatch(Weigh { w, scale, k, level, sums });
        return Weighed { weight, signal, slope: signal };
    };
    assert_eq!(w.len(), slopes.len(), "vectors of different lengths");
    let signal = scale * ARCH.dispatch(WeightedSum { w, k, level });
    let (weight, slope) = ARCH.dispatch(Weigh { w, scale, k: slopes, level: 0.0, sums });
    Weighed { weight, signal, slope }
}

/// sum w (k - level).
struct WeightedSum<'a> {
    w: &'a [f64],
    k: &'a [f64],
    level: f64,
}

impl WithSimd for WeightedSum<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let (wide_w, rest_w) = S::as_simd_f64s(self.w);
        let (wide_k, rest_k) = S::as_simd_f64s(self.k);
        let (level, mut sum) = (simd.splat_f64s(self.level), simd.splat_f64s(0.0));
        for (w, k) in wide_w.iter().zip(wide_k) {
            sum = simd.mul_add_e_f64s(*w, simd.sub_f64s(*k, level), sum);
        }
        let rest: f64 = rest_w.iter().zip(rest_k).map(|(w, k)| w * (k - self.level)).sum();
        simd.reduce_sum_f64s(sum) + rest
    }
}

/// w <- scale w .* (k - level), and sums <- sums + that; gives scale times the sum of w before, and the sum of w after.
struct Weigh<'a> {
    w: &'a mut [f64],
    scale: f64,
    k: &'a [f64],
    level: f64,
    sums: &'a mut [f64],
}

impl WithSimd for Weigh<'_> {
    type Output = (f64, f64);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (f64, f64) {
        let (wide_w, rest_w) = S::as_mut_simd_f64s(self.w);
        let (wide_k, rest_k) = S::as_simd_f64s(self.k);
        let (wide_sums, rest_sums) = S::as_mut_simd_f64s(self.sums);
        let (scale, level) = (simd.splat_f64s(self.scale), simd.splat_f64s(self.level));
        let (mut before, mut after) = (simd.splat_f64s(0.0), simd.splat_f64s(0.0));
        for ((w, k), sum) in wide_w.iter_mut().zip(wide_k).zip(wide_sums) {
            before = simd.add_f64s(before, *w);
            *w = simd.mul_f64s(*w, simd.mul_f64s(scale, simd.sub_f64s(*k, level)));
            after = simd.add_f64s(after, *w);
            *sum = simd.add_f64s(*sum, *w);
        }
        let (mut before, mut after) = (simd.reduce_sum_f64s(before), simd.reduce_sum_f64s(after));
        for ((w, k), sum) in rest_w.iter_mut().zip(rest_k).zip(rest_sums) {
            before += *w;
            *w *= self.scale * (k - self.level);
            after += *w;
            *sum += *w;
        }
        (self.scale * before, after)
    }
}

/// The kernel between the dictionary and one side of a block's functionals: k0 is `values` (m, B) less `level`, k1 `slopes`,
/// or k0 where those are empty.
struct Side<'a> {
    values: &'a Matrix,
    level: f64,
    slopes: &'a Matrix,
}

/// Weights between single points and the dictionary, gathered block by block.
struct CrossWeights {
    /// Mean of the dictionary (E,), taken off everywhere: T does not move, cancellation is less.
    mean: Vec<f64>,
    /// Dictionary (m, E), embedded and centred.
    basis: Matrix,
    /// Values of each category in the dictionary (C, m).
    categories: Vec<Vec<f64>>,
    /// For each element, the sum of its weights times k1.
    sums: Vec<f64>,
    /// For each element, the sum of its weights times k1 times the other's state (m, E).
    states: Matrix,
    /// Weights of one block that still have another use (m, B).
    spare: Matrix,
    /// The other states of the block (B, E), centred, and the same times the sums of their weights times k1.
    others: Matrix,
    scaled: Matrix,
    embedding: Embedding,
    /// One of them, embedded.
    coordinates: Vec<f64>,
}

impl CrossWeights {
    fn new(embedding: Embedding, dictionary: &[f64]) -> Self {
        let (dim, m) = (embedding.width(), dictionary.len() / embedding.places().len());
        let mut basis = Matrix::from_rows(m, dim, &embedding.all_coordinates(dictionary));
        let mean: Vec<f64> = (0..dim).map(|d| basis.col(d).iter().sum::<f64>() / m as f64).collect();
        for (d, mean) in mean.iter().enumerate() {
            basis.col_mut(d).iter_mut().for_each(|v| *v -= mean);
        }
        let (states, others) = (Matrix::zeros(m, dim), Matrix::zeros(BLOCK, dim));
        Self {
            mean,
            basis,
            categories: embedding.all_categories(dictionary),
            sums: vec![0.0; m],
            states,
            spare: Matrix::default(),
            scaled: others.clone(),
            others,
            embedding,
            coordinates: Vec::new(),
        }
    }

    /// `weights` (m, B) of `len` rows from `start` on against the dictionary, whose kernel values are in `block`. What is left
    /// of the weights means nothing.
    fn add(
        &mut self,
        pull: &mut GradientAccumulator,
        problem: &Problem,
        start: usize,
        len: usize,
        weights: &mut Matrix,
        block: &Block,
    ) {
        let state = |i: usize| Some((problem.node(start + i), 1.0));
        if problem.differences.is_none() {
            let side = Side { values: &block.values, level: block.bias, slopes: &block.slopes };
            self.add_side(pull, len, state, weights, side);
            return;
        }
        let mut spare = std::mem::take(&mut self.spare);
        spare.assign(weights);
        let successor = |i: usize| problem.successor(start + i).map(|(state, discount)| (state, -discount));
        let side = Side { values: &block.next, level: 0.0, slopes: &block.next_slopes };
        self.add_side(pull, len, successor, &mut spare, side);
        self.spare = spare;
        let side = Side { values: &block.signal, level: 0.0, slopes: &block.slopes };
        self.add_side(pull, len, state, weights, side);
    }

    /// One side of the functionals. `other` gives each column's state and a factor for its weights; a column without a state
    /// does not count.
    /// ```text
    /// sum_j M_j (x - z_j)(x - z_j)',  of which  sum_j M_j x x'  is added here and the rest, for all rows at once, in `finish`
    /// ```
    fn add_side<'a>(
        &mut self,
        pull: &mut GradientAccumulator,
        len: usize,
        other: impl Fn(usize) -> Option<(&'a [f64], f64)>,
        weights: &mut Matrix,
        side: Side<'_>,
    ) {
        let dim = self.mean.len();
        for i in 0..len {
            let (weighed, coordinates) = match other(i) {
                Some((state, scale)) => {
                    let slopes = (side.slopes.cols() > 0).then(|| side.slopes.col(i));
                    let (w, k) = (weights.col_mut(i), side.values.col(i));
                    let weighed = weigh(w, scale, k, side.level, slopes, &mut self.sums);
                    let values = self.categories.iter().zip(self.embedding.category_variables());
                    for (apart, (values, d)) in pull.apart.iter_mut().zip(values) {
                        *apart += sum_where_different(weights.col(i), values, state[d]);
                    }
                    (weighed, self.embedding.coordinates(state, &mut self.coordinates))
                }
                None => {
                    weights.col_mut(i).fill(0.0);
                    (Weighed { weight: 0.0, signal: 0.0, slope: 0.0 }, &self.mean[..])
                }
            };
            pull.bias += weighed.weight;
            pull.signal += weighed.signal;
            for (d, (x, mean)) in coordinates.iter().zip(&self.mean).enumerate() {
                *self.others.at_mut(i, d) = x - mean;
                *self.scaled.at_mut(i, d) = weighed.slope * (x - mean);
            }
        }
        let (m, others) = (self.sums.len(), self.others.block(0, 0, len, dim));
        pull.outer_all(1.0, self.scaled.block(0, 0, len, dim), others);
        dense::multiply(self.states.view_mut(), true, 1.0, weights.block(0, 0, m, len), Op::Plain, others, Op::Plain);
    }

    /// What another has gathered about the same dictionary, too.
    fn merge(&mut self, other: &Self) {
        dense::axpy(&mut self.sums, 1.0, &other.sums);
        add(&mut self.states, &other.states);
    }

    fn finish(&self, pull: &mut GradientAccumulator) {
        let dim = self.mean.len();
        for (j, sum) in self.sums.iter().enumerate() {
            let z: Vec<f64> = (0..dim).map(|d| self.basis.at(j, d)).collect();
            let states: Vec<f64> = (0..dim).map(|d| self.states.at(j, d)).collect();
            pull.outer(*sum, &z, &z);
            pull.outer(-2.0, &states, &z);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::embedding::StateKind;
    use crate::math::kernel::{NoiseModel, Profile};
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const GO: KeepGoing<'static> = &|| true;

    /// A random problem: some nodes, differences among them (or none), H columns, and a model of one of the three kinds.
    fn problems() -> impl Strategy<Value = (Problem, Hyperparameters, Vec<f64>)> {
        let all = [StateKind::Real, StateKind::Periodic(1.7), StateKind::Category];
        let shapes = (0usize..3, any::<bool>(), any::<bool>(), any::<bool>(), 0usize..3);
        (1usize..4, 3usize..12, 1usize..3, shapes).prop_flat_map(move |(dim, n, columns, shape)| {
            let (kind, white, matern, mixed, shift) = shape;
            let numbers = |len: usize| proptest::collection::vec(-2.0f64..2.0, len);
            let shape = [1, dim, 2 * dim][kind];
            (numbers(n * dim), numbers(n * columns), numbers(3 + shape), numbers(2 * dim)).prop_map(
                move |(mut states, observed, mut parameters, mut dictionary)| {
                    for (k, x) in states.iter_mut().chain(&mut dictionary).enumerate() {
                        // Categories: a few values, so that some are equal.
                        if mixed && all[(k % dim + shift) % 3] == StateKind::Category {
                            *x = x.round();
                        }
                    }
                    parameters.iter_mut().for_each(|p| *p *= 0.7);
                    let metric = match kind {
                        0 => Metric::Isotropic(1.0),
                        1 => Metric::Ard(vec![1.0; dim]),
                        _ => Metric::Factor { relevance: vec![1.0; dim], factors: vec![vec![0.0; dim]] },
                    };
                    let noise = if white { NoiseModel::White } else { NoiseModel::Correlated };
                    let kinds: Vec<StateKind> =
                        (0..dim).map(|d| all[(d + shift) % 3]).take(if mixed { dim } else { 0 }).collect();
                    let profile = if matern { Profile::Matern52 } else { Profile::Gaussian };
                    let like = Hyperparameters {
                        kernel: Kernel::gaussian(1.0, 1.0, metric).with_profile(profile).with_kinds(&kinds),
                        noise,
                        noise_variance: 1.0,
                    };
                    let observed = Matrix::from_columns(n, columns, observed);
                    let problem = if white {
                        let differences = (0..n)
                            .map(|i| Difference { node: i, successor: (i % 3 != 2).then_some(((i + 1) % n, 0.9)) })
                            .collect();
                        Problem::white(dim, states, differences, observed)
                    } else {
                        Problem::correlated(dim, states, observed)
                    };
                    (problem, from_parameters(&like, &parameters), dictionary)
                },
            )
        })
    }

    fn central_differences(
        hyper: &Hyperparameters,
        gradient: &[f64],
        value: impl Fn(&Hyperparameters) -> f64,
    ) -> Result<(), TestCaseError> {
        let theta = to_parameters(hyper);
        prop_assert_eq!(theta.len(), gradient.len());
        let scale = gradient.iter().fold(1.0f64, |s, g| s.max(g.abs()));
        for k in 0..theta.len() {
            let step = |h: f64| {
                let mut theta = theta.clone();
                theta[k] += h;
                value(&from_parameters(hyper, &theta))
            };
            // Fourth order: the error of the differences stays below that of rounding.
            let h = 1e-3;
            let slope = (8.0 * (step(h) - step(-h)) - (step(2.0 * h) - step(-2.0 * h))) / (12.0 * h);
            prop_assert!((slope - gradient[k]).abs() < 1e-7 * scale, "{}: {} against {}", k, gradient[k], slope);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 384,
            rng_seed: RngSeed::Fixed(0),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn gradients_equal_central_differences((problem, hyper, dictionary) in problems()) {
            let found = exact(&problem, &hyper, GO).unwrap();
            central_differences(&hyper, &found.gradient, |h| exact_value(&problem, h, GO).unwrap().value)?;
            for (kind, jitter) in [(Sparse::Vfe, 1e-6), (Sparse::Dtc, 1e-2)] {
                let found = sparse(&problem, &hyper, &dictionary, kind, jitter, GO).unwrap();
                let value = |h: &Hyperparameters| {
                    sparse_value(&problem, h, &dictionary, kind, jitter, GO).unwrap().value
                };
                central_differences(&hyper, &found.gradient, value)?;
            }
        }

        #[test]
        fn a_dictionary_of_every_point_gives_the_exact_evidence((problem, hyper, _) in problems()) {
            let full = exact(&problem, &hyper, GO).unwrap();
            let mut dictionary: Vec<f64> = Vec::new();
            for node in problem.nodes().chunks_exact(problem.dim()) {
                // A state twice would be a pivot of nothing but rounding.
                if !dictionary.chunks_exact(problem.dim()).any(|known| known == node) {
                    dictionary.extend(node);
                }
            }
            if let Ok(found) = sparse(&problem, &hyper, &dictionary, Sparse::Vfe, 0.0, GO) {
                prop_assert!((found.value - full.value).abs() < 1e-5 * full.value.abs().max(1.0));
            }
        }

        #[test]
        fn the_bound_is_a_bound((problem, hyper, dictionary) in problems()) {
            let full = exact_value(&problem, &hyper, GO).unwrap();
            let bound = sparse_value(&problem, &hyper, &dictionary, Sparse::Vfe, 1e-9, GO).unwrap();
            prop_assert!(bound.value <= full.value + 1e-6 * full.value.abs().max(1.0));
            prop_assert!(bound.trace_gap >= -1e-6);
        }
    }

    fn small() -> (Problem, Hyperparameters) {
        let states = (0..600).map(|i| (f64::from(i) * 0.618_033_988_749_895).fract() * 6.0).collect();
        let y = (0..600).map(|i| (f64::from(i) * 0.618_033_988_749_895).fract().sin()).collect();
        let kernel = Kernel::gaussian(1.0, 0.5, Metric::Isotropic(2.0));
        let hyper = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.1 };
        (Problem::correlated(1, states, Matrix::from_columns(600, 1, y)), hyper)
    }

    #[test]
    fn stops_when_told_and_says_what_failed() {
        let (problem, mut hyper) = small();
        let dictionary: Vec<f64> = problem.nodes()[..20].to_vec();
        let calls = AtomicUsize::new(0);
        let count = || calls.fetch_add(1, Ordering::Relaxed) < 2;
        let stopped = sparse(&problem, &hyper, &dictionary, Sparse::Vfe, 1e-6, &count);
        assert_eq!(stopped, Err(EvidenceError::Stopped));
        assert_eq!(exact(&problem, &hyper, &|| false), Err(EvidenceError::Stopped));
        let twice = [&dictionary[..], &dictionary[..]].concat();
        let failed = sparse(&problem, &hyper, &twice, Sparse::Vfe, 0.0, GO);
        assert!(matches!(failed, Err(EvidenceError::NotPositiveDefinite(_))), "{failed:?}");
        hyper.noise_variance = f64::NAN;
        assert!(exact(&problem, &hyper, GO).is_err());
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        let states: Vec<f64> = (0..4 * 3000).map(|i| (f64::from(i) * 0.618_033_988_749_895).fract() * 3.0).collect();
        let observed = states.chunks_exact(4).map(|x| x[0].sin() * x[1]).collect();
        let dictionary = states[..4 * 70].to_vec();
        let problem = Problem::correlated(4, states, Matrix::from_columns(3000, 1, observed));
        let (_, mut hyper) = small();
        hyper.kernel.metric = Metric::Ard(vec![1.0, 0.5, 0.2, 0.1]);
        let evaluate = || sparse(&problem, &hyper, &dictionary, Sparse::Vfe, 1e-6, GO).unwrap();
        let alone = evaluate();
        for threads in [1, 2, 4] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(evaluate), alone, "{threads} threads");
        }
    }

    #[test]
    fn memory_kept_from_other_problems_changes_no_bit() {
        let (problem, hyper) = small();
        let observed = Matrix::from_columns(50, 1, problem.observed().col(0)[..50].to_vec());
        let few = Problem::correlated(1, problem.nodes()[..50].to_vec(), observed);
        let mut evaluator = Evaluator::default();
        for problem in [&few, &problem, &few] {
            assert_eq!(evaluator.exact(problem, &hyper, GO), exact(problem, &hyper, GO));
        }
    }

    #[test]
    fn at_the_best_overall_scale_the_fit_is_half_the_observations() {
        // Scaling (v0, b, sigma0^2) together by s: value = -n/2 log s - fit / s + const, best at s = fit / (n / 2).
        let (problem, mut hyper) = small();
        let scale = exact_value(&problem, &hyper, GO).unwrap().fit_ratio();
        hyper.kernel.signal_variance *= scale;
        hyper.kernel.bias_variance *= scale;
        hyper.noise_variance *= scale;
        let found = exact(&problem, &hyper, GO).unwrap();
        assert!((found.fit_ratio() - 1.0).abs() < 1e-9);
        assert!(found.gradient[..3].iter().sum::<f64>().abs() < 1e-6);
    }

    #[test]
    fn parameters_round_trip_and_are_named() {
        let metric = Metric::Factor { relevance: vec![1.0, 0.0], factors: vec![vec![0.5, -0.5]] };
        let kernel = Kernel::gaussian(2.0, 0.0, metric);
        let hyper = Hyperparameters { kernel, noise: NoiseModel::White, noise_variance: 1.0 };
        assert_eq!(from_parameters(&hyper, &to_parameters(&hyper)), hyper);
        let names = parameter_names(&hyper.kernel.metric, 2);
        assert_eq!(names[3..], ["log_relevance[0]", "log_relevance[1]", "factors[0][0]", "factors[0][1]"]);
        assert_eq!(parameter_names(&Metric::Isotropic(1.0), 5)[3..], ["log_relevance"]);
    }
}
