//! Incomplete Cholesky decomposition: which states span the value function, and the features they give.
//!
//! With K_mm = L L' the features phi(x) = L^-1 k_m(x) reproduce the sparse kernel, k~(x, x') = phi(x)' phi(x'), and
//! delta^2(x) = k(x, x) - phi(x)' phi(x) is what the dictionary cannot explain of x. A state whose residual exceeds
//! the tolerance may be admitted: L gains the row (phi(x)', delta), phi one coordinate
//! ```text
//! phi_new(x_i) = (k(x, x_i) - phi(x)' phi(x_i)) / delta                                   [JS09, section 4.2], [FS01]
//! ```
//! Where the kernel has [columns](super::columns), their coefficients stand before the elements: phi begins with sqrt(s_j) f_j(x),
//! which leaves delta^2 what it is, since columns are exact.
//! `docs/mathematics.md`, (D1) to (D6).
//! Online, states are tested once, in arrival order; in batch, the largest residual goes first.

use super::dense::{Matrix, Op, PanelInverses, View, ViewMut, axpy, dot, multiply, solve_lower};
use super::evidence::KeepGoing;
use super::kernel::{Kernel, Points};
use super::raw;
use serde::{Deserialize, Serialize};

/// A dictionary and the Cholesky factor of its Gram matrix.
///
/// Invariants: every pivot of `factor` that belongs to an element exceeds `tolerance` when squared, so no state enters twice;
/// `len() <= max`; the rows of columns are 0 but for the diagonal, and so are the columns of elements there.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(from = "WrittenDictionary")]
pub struct Dictionary {
    kernel: Kernel,
    dim: usize,
    tolerance: f64,
    /// Most features: columns and elements together.
    max: usize,
    #[serde(with = "raw")]
    basis: Vec<f64>,
    /// The elements as the kernel projects them.
    #[serde(skip)]
    points: Points,
    factor: Matrix,
    /// Of the factor's diagonal blocks: every state that is looked at is solved with them.
    #[serde(skip)]
    inverses: PanelInverses,
}

/// What a dictionary is read from.
#[derive(Deserialize)]
struct WrittenDictionary {
    kernel: Kernel,
    dim: usize,
    tolerance: f64,
    max: usize,
    #[serde(with = "raw")]
    basis: Vec<f64>,
    factor: Matrix,
}

impl From<WrittenDictionary> for Dictionary {
    fn from(written: WrittenDictionary) -> Self {
        let WrittenDictionary { kernel, dim, tolerance, max, basis, factor } = written;
        // What does not fit is left empty: `is_consistent` refuses it.
        let fits = dim > 0
            && basis.len().is_multiple_of(dim)
            && kernel.metric.relevance(dim).len() == dim
            && kernel.metric.factors().iter().all(|along| along.len() == dim)
            && kernel.columns.iter().all(|column| column.is_of(dim, &kernel.kinds));
        let rows = if fits { kernel.project(dim, &basis) } else { Vec::new() };
        let points = Points::new(kernel.projected_dim(dim), &rows);
        let inverses =
            if factor.rows() == factor.cols() { PanelInverses::of(&factor) } else { PanelInverses::default() };
        Self { kernel, dim, tolerance, max, basis, points, factor, inverses }
    }
}

/// A state that was admitted: what others need to give it its coordinate.
#[derive(Clone, Debug)]
pub struct Admitted {
    /// Projected coordinates of the new element.
    pub point: Vec<f64>,
    /// Its features with respect to the elements before it (m,).
    pub features: Vec<f64>,
    /// Square root of its residual: the new pivot of L.
    pub delta: f64,
}

impl Admitted {
    /// The new coordinate of a functional with features `features` (m,) and kernel value `covariance` with the element.
    pub fn coordinate(&self, covariance: f64, features: &[f64]) -> f64 {
        (covariance - dot(&self.features, features)) / self.delta
    }
}

impl Dictionary {
    /// A dictionary without elements over states (D,) that admits residuals above `tolerance` (absolute, value^2, positive) until
    /// it holds `max` elements. The columns of the kernel are there already.
    pub fn new(kernel: Kernel, dim: usize, tolerance: f64, max: usize) -> Self {
        assert!(tolerance > 0.0, "a tolerance is positive: pivots are divided by");
        let max = max + kernel.columns();
        let mut factor = Matrix::with_capacity(max.min(4096), max.min(4096));
        factor.resize(kernel.columns(), kernel.columns());
        for (j, column) in kernel.columns.iter().enumerate() {
            *factor.at_mut(j, j) = column.variance.sqrt();
        }
        let points = Points::new(kernel.projected_dim(dim), &[]);
        let inverses = if factor.rows() > 0 { PanelInverses::of(&factor) } else { PanelInverses::default() };
        Self { kernel, dim, tolerance, max, basis: Vec::new(), points, factor, inverses }
    }

    /// Exactly these elements (m, D), row-major, whatever their residuals, as long as K_mm is positive definite.
    ///
    /// # Errors
    /// The index of the first element that those before it span to working precision.
    pub fn from_elements(kernel: Kernel, dim: usize, elements: &[f64]) -> Result<Self, usize> {
        // A residual is a difference of numbers of the size of k(x, x): below this it is rounding.
        let smallest = kernel.diagonal() * 64.0 * f64::EPSILON;
        let mut out = Self::new(kernel, dim, smallest, elements.len() / dim);
        for (i, state) in elements.chunks_exact(dim).enumerate() {
            let features = out.features(&out.kernel.project(dim, state));
            let residual = out.residual(features.col(0));
            if residual <= smallest {
                return Err(i);
            }
            out.admit(state, features.col(0));
        }
        Ok(out)
    }

    /// Admit the states numbered `chosen` of `states` (n, D), row-major, in that order. A state that the elements before it express to within
    /// the tolerance is left out. Returns the numbers of the admitted states.
    pub fn admit_chosen(&mut self, states: &[f64], chosen: &[usize]) -> Vec<usize> {
        let admit = |&k: &usize| {
            let state = &states[k * self.dim..(k + 1) * self.dim];
            let features = self.features(&self.kernel.project(self.dim, state));
            let is_new = self.residual(features.col(0)) > self.tolerance;
            if is_new {
                self.admit(state, features.col(0));
            }
            is_new
        };
        chosen.iter().copied().filter(admit).collect()
    }

    /// What makes the first `count` features, all columns among them, with the tolerance and the cap of all.
    pub(crate) fn first(&self, count: usize) -> Self {
        let Self { kernel, dim, tolerance, max, basis, factor, .. } = self.clone();
        let mut first = Matrix::with_capacity(max.min(4096), max.min(4096));
        first.resize(count, count);
        (0..count).for_each(|j| first.col_mut(j).copy_from_slice(&factor.col(j)[..count]));
        let basis = basis[..(count - kernel.columns()) * dim].to_vec();
        WrittenDictionary { kernel, dim, tolerance, max, basis, factor: first }.into()
    }

    /// Whether its parts are of sizes that fit each other and states (`dim`,).
    pub(crate) fn is_consistent(&self, dim: usize) -> bool {
        let m = self.factor.rows();
        self.dim == dim
            && dim > 0
            && self.kernel.is_of(dim)
            && self.factor.cols() == m
            && m >= self.kernel.columns()
            && self.basis.len() == self.elements_len() * dim
            && self.points.len() == self.elements_len()
            && m <= self.max
            && self.tolerance > 0.0
    }

    /// Number of features m: columns and elements.
    pub fn len(&self) -> usize {
        self.factor.rows()
    }

    /// Number of columns q, which come first.
    pub fn columns(&self) -> usize {
        self.kernel.columns()
    }

    /// Number of elements, m - q.
    pub fn elements_len(&self) -> usize {
        self.len() - self.columns()
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.elements_len() == 0
    }

    /// Whether the cap is reached.
    pub fn is_full(&self) -> bool {
        self.len() >= self.max
    }

    /// Most features that it may make.
    pub fn max(&self) -> usize {
        self.max
    }

    /// Change the cap; elements that are in stay.
    pub fn set_max(&mut self, elements: usize) {
        self.max = (elements + self.columns()).max(self.len());
    }

    /// Admit nothing any more.
    pub fn close(&mut self) {
        self.max = self.len();
    }

    /// Admit residuals above `tolerance` (value^2, positive) from now on.
    pub fn set_tolerance(&mut self, tolerance: f64) {
        assert!(tolerance > 0.0, "a tolerance is positive: pivots are divided by");
        self.tolerance = tolerance;
    }

    /// Residual above which a state is admitted, value^2.
    pub fn tolerance(&self) -> f64 {
        self.tolerance
    }

    /// The covariance function.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// State dimension D.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Elements (m, D), row-major, in the coordinates of the kernel.
    pub fn elements(&self) -> &[f64] {
        &self.basis
    }

    /// L (m, m), lower triangular.
    pub fn factor(&self) -> &Matrix {
        &self.factor
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.factor.bytes() + self.inverses.bytes() + self.points.bytes() + size_of_val(&self.basis[..])
    }

    /// out (m, n) <- phi of n projected states, row-major. `covariances` is scratch.
    ///
    /// # Panics
    /// If `out` is not (m, n).
    pub fn features_into(&self, projected: &[f64], covariances: &mut Matrix, mut out: ViewMut<'_>) {
        if self.inverses.are_worth_it(out.cols()) {
            covariances.renew(self.len(), out.cols());
            self.kernel.rows(&self.points, projected, &mut covariances.view_mut());
            self.inverses.solve_lower(self.factor.view(), covariances.view_mut(), out);
        } else {
            self.kernel.rows(&self.points, projected, &mut out);
            solve_lower(self.factor.view(), out);
        }
    }

    /// phi of n projected states, row-major, as a new matrix (m, n).
    pub fn features(&self, projected: &[f64]) -> Matrix {
        let mut out = Matrix::zeros(self.len(), projected.len() / self.kernel.projected_dim(self.dim));
        self.features_into(projected, &mut Matrix::default(), out.view_mut());
        out
    }

    /// delta^2 of a state with features `features` (m,); never negative.
    pub fn residual(&self, features: &[f64]) -> f64 {
        let spanned = &features[self.columns()..];
        (self.kernel.diagonal() - dot(spanned, spanned)).max(0.0)
    }

    /// Make `state` (D,) with features `features` (m,) an element.
    ///
    /// # Panics
    /// If its residual does not exceed the tolerance or the dictionary is full: callers test first.
    pub fn admit(&mut self, state: &[f64], features: &[f64]) -> Admitted {
        let residual = self.residual(features);
        assert!(residual > self.tolerance, "a state is admitted only above the tolerance");
        assert!(!self.is_full(), "the dictionary is full");
        let (m, delta) = (self.len(), residual.sqrt());
        let point = self.kernel.project(self.dim, state);
        self.basis.extend_from_slice(state);
        self.points.push(&point);
        self.factor.resize(m + 1, m + 1);
        // What an element stands for is V without the columns, and has nothing in common with their coefficients.
        let mut features = features.to_vec();
        features[..self.columns()].fill(0.0);
        for (j, &value) in features.iter().enumerate() {
            *self.factor.at_mut(m, j) = value;
        }
        *self.factor.at_mut(m, m) = delta;
        self.inverses.grow(&self.factor);
        Admitted { point, features, delta }
    }

    /// Weights of kernel values from weights of features: w = L^-T u, for u (m, H).
    pub fn kernel_weights(&self, feature_weights: &Matrix) -> Matrix {
        let mut out = feature_weights.clone();
        super::dense::solve_lower_transposed(self.factor.view(), out.view_mut());
        out
    }
}

/// Batch selection: what pivoted incomplete Cholesky chose, in order.
#[derive(Clone, Debug)]
pub struct Pivots {
    /// Indices into the states given.
    pub indices: Vec<usize>,
    /// Residual of each at the moment it was chosen, value^2.
    pub residuals: Vec<f64>,
    /// Sum of the residuals of all states after the last choice, value^2.
    pub trace: f64,
    /// Whether states above the tolerance were left when the cap was reached.
    pub capped: bool,
}

/// When batch selection ends, besides at the cap.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoppingRule {
    /// No residual exceeds this, value^2, positive.
    pub tolerance: f64,
    /// The residuals of all states together do not exceed this, value^2; 0 to go by the tolerance alone.
    pub trace: f64,
}

/// Pivoted incomplete Cholesky of the kernel matrix of `states` (n, D), row-major: largest residual first, the earliest
/// of equals, until no residual exceeds `tolerance` (absolute, value^2) or `max` are chosen. O(n m^2) time, O(n m) memory.
pub fn select(kernel: &Kernel, dim: usize, states: &[f64], tolerance: f64, max: usize) -> (Dictionary, Pivots) {
    let selected = pivoted_cholesky(kernel, dim, states, StoppingRule { tolerance, trace: 0.0 }, max, &|| true);
    selected.expect("nobody has stopped it")
}

/// [`select`], ending as soon as either of `enough` is reached, but not before there is an element. None if `keep_going`, asked before every choice, says so.
pub fn pivoted_cholesky(
    kernel: &Kernel,
    dim: usize,
    states: &[f64],
    enough: StoppingRule,
    max: usize,
    keep_going: KeepGoing<'_>,
) -> Option<(Dictionary, Pivots)> {
    let tolerance = enough.tolerance;
    let mut dictionary = Dictionary::new(kernel.clone(), dim, tolerance, max);
    let points = Points::new(kernel.projected_dim(dim), &kernel.project(dim, states));
    let n = states.len() / dim;
    let mut residuals = vec![kernel.diagonal(); n];
    // Column j holds coordinate j of every state's features, so that a coordinate is one matrix-vector product.
    // Features of the columns stay 0: an element has none.
    let columns = dictionary.columns();
    let mut coordinates = Matrix::with_capacity(n, max.min(n) + columns);
    coordinates.resize(n, columns);
    let mut pivots = Pivots { indices: Vec::new(), residuals: Vec::new(), trace: 0.0, capped: false };
    let mut row = Vec::new();
    let mut next = vec![0.0; n];
    loop {
        if !keep_going() {
            return None;
        }
        // The first of the largest: ties go to the state that came first.
        let best = (0..n).fold(None, |best: Option<usize>, i| match best {
            Some(b) if residuals[i] <= residuals[b] => best,
            _ => Some(i),
        });
        let Some(pivot) = best.filter(|&i| residuals[i] > tolerance) else { break };
        if !dictionary.is_empty() && residuals.iter().sum::<f64>() <= enough.trace {
            break;
        }
        if dictionary.is_full() {
            pivots.capped = true;
            break;
        }
        let m = dictionary.len();
        row.clear();
        row.extend((0..m).map(|j| coordinates.at(pivot, j)));
        // The running residual has lost digits by subtraction; the pivot is recomputed where it is divided by.
        if dictionary.residual(&row) <= tolerance {
            residuals[pivot] = 0.0;
            continue;
        }
        pivots.indices.push(pivot);
        pivots.residuals.push(dictionary.residual(&row));
        let admitted = dictionary.admit(&states[pivot * dim..(pivot + 1) * dim], &row);
        kernel.block(&points, &admitted.point, &mut ViewMut::column(&mut next));
        multiply(ViewMut::column(&mut next), true, -1.0, coordinates.view(), Op::Plain, View::column(&row), Op::Plain);
        coordinates.resize(n, m + 1);
        axpy(coordinates.col_mut(m), 1.0 / admitted.delta, &next);
        for (residual, c) in residuals.iter_mut().zip(coordinates.col(m)) {
            *residual = (*residual - c * c).max(0.0);
        }
        residuals[pivot] = 0.0;
    }
    pivots.trace = residuals.iter().sum();
    Some((dictionary, pivots))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::dense::product;
    use crate::math::kernel::Metric;

    fn kernel() -> Kernel {
        Kernel::gaussian(2.0, 0.3, Metric::Ard(vec![1.5, 0.4]))
    }

    fn states(n: usize) -> Vec<f64> {
        (0..2 * n).map(|k| 4.0 * ((k as f64 + 1.0) * 0.618_033_988_749_895).fract() - 2.0).collect()
    }

    fn gram(dictionary: &Dictionary) -> Matrix {
        let k = dictionary.kernel();
        let rows = k.project(2, dictionary.elements());
        let m = dictionary.len();
        let mut out = Matrix::zeros(m, m);
        k.block(&Points::new(2, &rows), &rows, &mut out.view_mut());
        out
    }

    #[test]
    fn factor_is_that_of_the_gram_matrix() {
        for (dictionary, _) in [select(&kernel(), 2, &states(60), 1e-4, 40), select(&kernel(), 2, &states(9), 1e-9, 9)]
        {
            let l = dictionary.factor();
            let back = product(l.view(), Op::Plain, l.view(), Op::Transposed);
            assert!((back.to_nalgebra() - gram(&dictionary).to_nalgebra()).amax() < 1e-12);
        }
    }

    #[test]
    fn a_dictionary_of_everything_reproduces_the_kernel() {
        let x = states(9);
        let all = Dictionary::from_elements(kernel(), 2, &x).unwrap();
        let phi = all.features(&kernel().project(2, &x));
        let sparse = product(phi.view(), Op::Transposed, phi.view(), Op::Plain);
        assert!((sparse.to_nalgebra() - gram(&all).to_nalgebra()).amax() < 1e-11);
        assert!(Dictionary::from_elements(kernel(), 2, &[1.0, 2.0, 1.0, 2.0]).is_err_and(|i| i == 1));
    }

    #[test]
    fn no_state_is_left_above_the_tolerance() {
        let x = states(200);
        let (dictionary, pivots) = select(&kernel(), 2, &x, 1e-3, 200);
        assert!(!pivots.capped && dictionary.len() < 200);
        let phi = dictionary.features(&kernel().project(2, &x));
        let residuals: Vec<f64> = (0..200).map(|i| dictionary.residual(phi.col(i))).collect();
        assert!(residuals.iter().all(|&r| r <= 1e-3 + 1e-12));
        assert!((residuals.iter().sum::<f64>() - pivots.trace).abs() < 1e-9);
        assert!(pivots.residuals.windows(2).all(|w| w[1] <= w[0] + 1e-12));
        let (small, pivots) = select(&kernel(), 2, &x, 1e-3, 5);
        assert!(pivots.capped && small.len() == 5);
    }

    #[test]
    fn copies_of_one_state_are_one_element() {
        let x: Vec<f64> = (0..50).flat_map(|_| [0.3, -0.7]).collect();
        let (dictionary, pivots) = select(&kernel(), 2, &x, 1e-9, 50);
        assert_eq!(dictionary.len(), 1);
        assert!(pivots.trace < 1e-12);
    }
}
