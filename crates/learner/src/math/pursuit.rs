//! Greedy selection of features: each time the candidate that explains most of returns, of TD errors, or of Bellman residuals.
//!
//! [`by_returns`] chooses elements of a dictionary by orthogonal least squares on returns, docs/mathematics.md (D7), (D8);
//! [`by_fixed_point`] is OMP-TD and [`by_residual`] OMP-BRM, (D9), (D10) \[PP12\]: C. Painter-Wakefield, R. Parr, *Greedy Algorithms for
//! Sparse Reinforcement Learning*, ICML 2012. Incomplete Cholesky ([`super::dictionary`]) uses states alone; these also
//! use returns or rewards. [`by_targets`] chooses columns for many targets at once.

mod vectors;

pub use vectors::{Pursued, Pursuit, by_targets};

use super::dense::{Matrix, Op, Scratch, Singular, View, ViewMut, axpy, dot, multiply, product};
use super::dense::{solve_general, solve_general_into};
use super::evidence::KeepGoing;
use super::kernel::{Kernel, Points};

/// Residual variance relative to k(x, x) below which a candidate is spanned by the elements chosen so far.
const SPANNED: f64 = 1e-9;
/// All columns, over the single columns whose products take as long as the product with all of them at once.
const PRODUCTS: usize = 10;

/// The regression that elements should explain: rows and their returns.
#[derive(Clone, Copy, Debug)]
pub struct Regression<'a> {
    /// Covariance.
    pub kernel: &'a Kernel,
    /// State dimension D.
    pub dim: usize,
    /// (n, D), row-major.
    pub states: &'a [f64],
    /// y (n, H), each head in a unit of its own, such as its root mean square: s of (D7) is 1.
    pub targets: &'a Matrix,
    /// Noise variance over scale, positive, in the unit of the kernel.
    pub ratio: f64,
}

/// Choose up to `max` of `candidates` (c, D) one after the other, those numbered `first` before any other: each time the one that
/// adds most to what ridge regression of the targets explains, docs/mathematics.md (D7), (D8).
/// ```text
/// gain_j = sum_h (f_j' P y_h)^2 / (ratio + f_j' P f_j),   P = I - Phi (Phi'Phi + ratio I)^-1 Phi'
/// ```
/// f_j (n,) is the coordinate that candidate j would give the rows. Gives the numbers in the order of choice. None if `keep_going`,
/// asked before every choice, says so. O(n c (max + H)) for each choice at most.
///
/// # Panics
/// If a number in `first` is out of range.
pub fn by_returns(
    of: &Regression<'_>,
    candidates: &[f64],
    first: &[usize],
    max: usize,
    keep_going: KeepGoing<'_>,
) -> Option<Vec<usize>> {
    let mut pursuit = ByReturns::new(of, candidates);
    for &candidate in first.iter().take(max) {
        pursuit.take(candidate);
    }
    while pursuit.chosen.len() < max {
        if !keep_going() {
            return None;
        }
        let Some(best) = pursuit.best() else { break };
        pursuit.take(best);
    }
    Some(pursuit.chosen)
}

/// Sums of [`by_returns`], brought along from choice to choice.
struct ByReturns<'a> {
    of: &'a Regression<'a>,
    /// k(x_i, c_j) less the part that the chosen elements explain (n, c).
    rows: Matrix,
    /// k(c_i, c_j), the same (c, c).
    own: Matrix,
    /// P y (n, H).
    residuals: Matrix,
    /// Columns w with P = I - sum w w' (n, chosen), those of the kernel's columns first.
    projector: Matrix,
    /// w' of `rows` (chosen, c).
    projected: Matrix,
    /// Sums of squares of `rows` (c,).
    energies: Vec<f64>,
    chosen: Vec<usize>,
    /// Which candidates are neither chosen nor spanned: nothing is brought along of the others.
    left: Vec<bool>,
}

impl<'a> ByReturns<'a> {
    fn new(of: &'a Regression<'a>, candidates: &[f64]) -> Self {
        let (kernel, dim) = (of.kernel, of.dim);
        let (n, count) = (of.states.len() / dim, candidates.len() / dim);
        let elements = kernel.project(dim, candidates);
        let block = |states: &[f64], len: usize| {
            let mut out = Matrix::zeros(len, count);
            kernel.block(&Points::new(kernel.projected_dim(dim), states), &elements, &mut out.view_mut());
            out
        };
        let places = kernel.project(dim, of.states);
        let rows = block(&places, n);
        let mut out = Self {
            of,
            energies: (0..count).map(|j| dot(rows.col(j), rows.col(j))).collect(),
            rows,
            own: block(&elements, count),
            residuals: of.targets.clone(),
            projector: Matrix::zeros(n, 0),
            projected: Matrix::zeros(0, count),
            chosen: Vec::new(),
            left: vec![true; count],
        };
        // What the columns of the kernel explain needs no element.
        let width = kernel.projected_dim(dim);
        for (j, column) in kernel.columns.iter().enumerate() {
            let values = places.chunks_exact(width).map(|point| point[width - kernel.columns() + j]);
            let feature: Vec<f64> = values.map(|value| column.variance.sqrt() * value).collect();
            out.absorb(&feature, &vec![0.0; count]);
        }
        out
    }

    /// delta^2 of a candidate.
    fn unexplained(&self, candidate: usize) -> f64 {
        self.own.at(candidate, candidate)
    }

    /// The candidate with the largest gain, the first of equals; none if all are chosen or spanned.
    fn best(&self) -> Option<usize> {
        let count = self.left.len();
        let correlations = product(self.rows.view(), Op::Transposed, self.residuals.view(), Op::Plain);
        let smallest = SPANNED * self.of.kernel.diagonal();
        let mut best: Option<(usize, f64)> = None;
        for j in (0..count).filter(|&j| self.left[j] && self.unexplained(j) > smallest) {
            let energy = self.energies[j] - dot(self.projected.col(j), self.projected.col(j));
            let explained: f64 = (0..correlations.cols()).map(|h| correlations.at(j, h).powi(2)).sum();
            // Numerator and denominator each with the factor delta^2 that makes a coordinate of the column.
            let gain = explained / (self.of.ratio * self.unexplained(j) + energy.max(0.0));
            if best.is_none_or(|(_, most)| gain > most) {
                best = Some((j, gain));
            }
        }
        best.map(|(j, _)| j)
    }

    /// Make a candidate an element, unless those before it span it.
    fn take(&mut self, candidate: usize) {
        if !std::mem::replace(&mut self.left[candidate], false) {
            return;
        }
        let residual = self.unexplained(candidate);
        if residual <= SPANNED * self.of.kernel.diagonal() {
            return;
        }
        let delta = residual.sqrt();
        let scaled = |column: &[f64]| column.iter().map(|v| v / delta).collect::<Vec<f64>>();
        let (feature, others) = (scaled(self.rows.col(candidate)), scaled(self.own.col(candidate)));
        self.absorb(&feature, &others);
        self.chosen.push(candidate);
    }

    /// The rows have one more feature (n,), which the candidates have `others` (c,) of.
    fn absorb(&mut self, feature: &[f64], others: &[f64]) {
        // w = P f / sqrt(ratio + f'P f).
        let (mut w, before) = (feature.to_vec(), self.projector.cols());
        if before > 0 {
            let along = product(self.projector.view(), Op::Transposed, View::column(feature), Op::Plain);
            let out = ViewMut::column(&mut w);
            multiply(out, true, -1.0, self.projector.view(), Op::Plain, along.view(), Op::Plain);
        }
        let norm = (self.of.ratio + dot(&w, feature)).sqrt();
        w.iter_mut().for_each(|value| *value /= norm);
        for h in 0..self.residuals.cols() {
            // P loses w w'.
            let along = dot(&w, self.of.targets.col(h));
            axpy(self.residuals.col_mut(h), -along, &w);
        }
        let along: Vec<f64> = (0..before).map(|t| dot(self.projector.col(t), feature)).collect();
        let mut projected = Matrix::zeros(before + 1, self.left.len());
        for (j, &value) in others.iter().enumerate().filter(|&(j, _)| self.left[j]) {
            axpy(self.own.col_mut(j), -value, others);
            // All that is wanted of a column of rows, while it is at hand.
            let column = self.rows.col_mut(j);
            axpy(column, -value, feature);
            self.energies[j] = dot(column, column);
            // The rows of `projected` follow the columns that they are products with.
            let to = projected.col_mut(j);
            to[..before].copy_from_slice(self.projected.col(j));
            axpy(&mut to[..before], -value, &along);
            to[before] = dot(&w, column);
        }
        self.projected = projected;
        self.projector.resize(feature.len(), before + 1);
        self.projector.col_mut(before).copy_from_slice(&w);
    }
}

/// Features of rows and of their next states, for selections that look one row ahead.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    /// Phi (n, c): of the states.
    pub now: &'a Matrix,
    /// gamma Phi' (n, c): of the next states, discounted; 0 where a row terminates.
    pub next: &'a Matrix,
    /// R (n, H).
    pub rewards: &'a Matrix,
    /// Added to the diagonal of Phi'(Phi - gamma Phi'), not negative.
    pub ridge: f64,
    /// Root mean square correlation at or below which nothing more is chosen, not negative.
    pub enough: f64,
}

/// Features that a pursuit has chosen one after the other.
#[derive(Clone, Debug, Default)]
pub struct ChosenFeatures {
    /// One for each, in the order of choice.
    pub steps: Vec<PursuitStep>,
    /// w (k, H): what they weigh in the end.
    pub weights: Matrix,
    /// Root mean square of what is left of the rewards, R + gamma Phi' w - Phi w.
    pub error: f64,
    /// Largest correlation of a feature that was not chosen; 0 if all were.
    pub left: f64,
}

/// One choice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PursuitStep {
    /// Number of the feature.
    pub feature: usize,
    /// c: its correlation with what was left before.
    pub correlation: f64,
    /// Root mean square of what was left before.
    pub error: f64,
}

/// Which equation a pursuit solves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Equation {
    /// The fixed point: OMP-TD, [`by_fixed_point`].
    FixedPoint,
    /// The least Bellman residual: OMP-BRM, [`by_residual`].
    Residual,
}

/// At most `max` features, by the correlation that the equation asks for; none if `keep_going` says so.
///
/// # Errors
/// If the equation of the features chosen has no solution.
pub fn pursue(
    of: &Candidates<'_>,
    by: Equation,
    max: usize,
    keep_going: KeepGoing<'_>,
) -> Result<Option<ChosenFeatures>, Singular> {
    let right = differences(of);
    let left = if by == Equation::Residual { right.view() } else { of.now.view() };
    greedy(of, (left, &right), max, keep_going)
}

/// OMP-TD: the feature whose correlation with the TD errors is largest joins, and the weights of those chosen become the fixed point
/// again, docs/mathematics.md (D9). At most `max` of them, in the order of choice, the first of equals.
/// ```text
/// c = |Phi'(R + gamma Phi' w - Phi w)| / n        w = (Phi_I'(Phi_I - gamma Phi_I') + ridge I)^-1 Phi_I' R
/// ```
/// None if `keep_going` says so.
///
/// # Errors
/// If a fixed point does not exist.
pub fn by_fixed_point(
    of: &Candidates<'_>,
    max: usize,
    keep_going: KeepGoing<'_>,
) -> Result<Option<Vec<usize>>, Singular> {
    Ok(pursue(of, Equation::FixedPoint, max, keep_going)?.map(ChosenFeatures::features))
}

/// OMP-BRM: orthogonal matching pursuit of the rewards by the columns Phi - gamma Phi', whose weights minimise the Bellman residual,
/// docs/mathematics.md (D10). At most `max` of them, in the order of choice, the first of equals.
/// ```text
/// c = |X'(R - X w)| / n        w = (X_I'X_I + ridge I)^-1 X_I' R        X = Phi - gamma Phi'
/// ```
/// None if `keep_going` says so.
///
/// # Errors
/// If a least-squares solution does not exist.
pub fn by_residual(of: &Candidates<'_>, max: usize, keep_going: KeepGoing<'_>) -> Result<Option<Vec<usize>>, Singular> {
    Ok(pursue(of, Equation::Residual, max, keep_going)?.map(ChosenFeatures::features))
}

impl ChosenFeatures {
    /// Their numbers, in the order of choice.
    pub fn features(self) -> Vec<usize> {
        self.steps.into_iter().map(|step| step.feature).collect()
    }
}

/// Divide each feature by its root mean square over the rows, here and in the next states, and give what they were divided by (c,): 1
/// where it is 0 everywhere. Correlations are then in the unit of the rewards.
pub fn to_unit_norm(now: &mut Matrix, next: &mut Matrix) -> Vec<f64> {
    let (n, count) = (now.rows().max(1) as f64, now.cols());
    let mut scale = |j: usize| {
        let norm = (dot(now.col(j), now.col(j)) / n).sqrt();
        let norm = if norm.is_normal() { norm } else { 1.0 };
        [now.col_mut(j), next.col_mut(j)].into_iter().flatten().for_each(|value| *value /= norm);
        norm
    };
    (0..count).map(&mut scale).collect()
}

/// X = Phi - gamma Phi' (n, c).
pub fn differences(of: &Candidates<'_>) -> Matrix {
    let mut out = Matrix::zeros(of.now.rows(), of.now.cols());
    for j in 0..out.cols() {
        out.col_mut(j).copy_from_slice(of.now.col(j));
        axpy(out.col_mut(j), -1.0, of.next.col(j));
    }
    out
}

/// Both pursuits: `left` (n, c) are the columns that errors are correlated with and that the equations of w are multiplied by, `right` X.
fn greedy(
    of: &Candidates<'_>,
    (left, right): (View<'_>, &Matrix),
    max: usize,
    keep_going: KeepGoing<'_>,
) -> Result<Option<ChosenFeatures>, Singular> {
    let (rows, count) = (of.now.rows(), of.now.cols());
    let response = product(left, Op::Transposed, of.rewards.view(), Op::Plain);
    // Where a good part may be chosen, one product of matrices takes less than the products with one column each. It is no larger than the
    // columns.
    let all =
        (count <= rows && max >= count / PRODUCTS).then(|| product(left, Op::Transposed, right.view(), Op::Plain));
    let mut found = ChosenFeatures { error: root_mean_square(of.rewards), ..ChosenFeatures::default() };
    let (mut chosen, mut open): (Vec<usize>, _) = (Vec::new(), vec![true; count]);
    // left' X of the chosen columns, and these: each choice adds one.
    let (mut images, mut columns) = (Matrix::zeros(count, 0), Matrix::zeros(rows, 0));
    let (mut correlations, mut errors) = (response.clone(), Matrix::default());
    let (mut system, mut target, mut scratch) = (Matrix::default(), Matrix::default(), Scratch::default());
    loop {
        let strength = |j: usize| -> f64 {
            let sum: f64 = (0..correlations.cols()).map(|h| correlations.at(j, h).powi(2)).sum();
            sum.sqrt() / rows as f64
        };
        let strengths = (0..count).filter(|&j| open[j]).map(|j| (j, strength(j)));
        let best = strengths.reduce(|best, next| if next.1 <= best.1 { best } else { next });
        found.left = best.map_or(0.0, |(_, strength)| strength);
        let best = best.filter(|&(_, strength)| strength > of.enough && chosen.len() < max);
        let Some((feature, correlation)) = best else { return Ok(Some(found)) };
        if !keep_going() {
            return Ok(None);
        }
        found.steps.push(PursuitStep { feature, correlation, error: found.error });
        let k = chosen.len();
        chosen.push(feature);
        open[feature] = false;
        images.resize(count, k + 1);
        match &all {
            Some(all) => images.col_mut(k).copy_from_slice(all.col(feature)),
            None => {
                let out = ViewMut::column(images.col_mut(k));
                multiply(out, false, 1.0, left, Op::Transposed, View::column(right.col(feature)), Op::Plain);
            }
        }
        columns.resize(rows, k + 1);
        columns.col_mut(k).copy_from_slice(right.col(feature));
        system.renew(k + 1, k + 1);
        target.renew(k + 1, response.cols());
        for (a, &i) in chosen.iter().enumerate() {
            (0..=k).for_each(|b| *system.at_mut(a, b) = images.at(i, b));
            *system.at_mut(a, a) += of.ridge;
            (0..response.cols()).for_each(|h| *target.at_mut(a, h) = response.at(i, h));
        }
        solve_general_into(&system, &target, &mut found.weights, &mut scratch)?;
        let weights = found.weights.view();
        correlations.assign(&response);
        multiply(correlations.view_mut(), true, -1.0, images.view(), Op::Plain, weights, Op::Plain);
        errors.assign(of.rewards);
        multiply(errors.view_mut(), true, -1.0, columns.view(), Op::Plain, weights, Op::Plain);
        found.error = root_mean_square(&errors);
    }
}

fn root_mean_square(of: &Matrix) -> f64 {
    let squares: f64 = (0..of.cols()).map(|h| dot(of.col(h), of.col(h))).sum();
    (squares / (of.rows() * of.cols()).max(1) as f64).sqrt()
}

/// Exact recovery coefficient of the columns numbered `chosen` of X (n, c): the largest sum of magnitudes of a least-squares
/// representation of another column by these. Below 1, orthogonal matching pursuit finds them whenever they suffice, docs/mathematics.md (D11).
///
/// # Errors
/// If the chosen columns depend on one another.
///
/// # Panics
/// If a number is out of range.
pub fn recovery_coefficient(columns: View<'_>, chosen: &[usize]) -> Result<f64, Singular> {
    let n = columns.rows();
    let mut own = Matrix::zeros(n, chosen.len());
    chosen.iter().enumerate().for_each(|(k, &j)| own.col_mut(k).copy_from_slice(columns.col(j)));
    let gram = product(own.view(), Op::Transposed, own.view(), Op::Plain);
    let images = product(own.view(), Op::Transposed, columns, Op::Plain);
    let weights = solve_general(&gram, &images)?;
    let others = (0..columns.cols()).filter(|j| !chosen.contains(j));
    Ok(others.map(|j| weights.col(j).iter().map(|w| w.abs()).sum()).fold(0.0, f64::max))
}
