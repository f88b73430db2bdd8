//! The evidence through a dictionary: sums over blocks of rows, one factorisation of the dictionary's size.

use super::gradient::{GradientAccumulator, Nodes, Weighed, sum_where_different, weigh};
use super::gram::{Projected, signal_and_slope};
use super::problem::Problem;
use super::{Evidence, EvidenceError, KeepGoing, Sparse, gaussian_constant, go, square};
use crate::math::dense::{self, Cholesky, Matrix, Op, PanelInverses};
use crate::math::embedding::Embedding;
use crate::math::kernel::{Hyperparameters, Kernel};
use rayon::prelude::*;

/// Rows of one block of the sparse evidence.
const BLOCK: usize = 256;

/// Blocks of the sparse evidence that are worked on beside each other, if there are threads: each takes memory of its own.
const LANES: usize = 4;

/// What the evidence goes through.
#[derive(Clone, Copy, Debug)]
pub struct Through<'a> {
    /// Elements (m, D), row-major, in the coordinates of the kernel.
    pub dictionary: &'a [f64],
    /// Which of the sparse evidences.
    pub kind: Sparse,
    /// What is added to the diagonal of K_mm, relative to v0; 0 for none. Give it 1e-6 where the dictionary stays while lengthscales
    /// grow, or K_mm becomes singular.
    pub jitter: f64,
}

/// The sparse log evidence with its gradient, the dictionary held where it is.
///
/// ```text
/// K_mm + jitter v0 I = L L',  phi_i = L^-1 (functional i of k_m),  S = sum phi phi',  A = S + sigma0^2 I,
/// p = sum phi d,  q = sum d^2
/// log p = -1/2 [(n - m) log sigma0^2 + log|A| + (q - p' A^-1 p) / sigma0^2 + n log 2 pi]              (E6)
///         - 1/(2 sigma0^2) sum_i (k(i, i) - phi_i' phi_i)                                 [T09]   (E9)
/// ```
/// Numbers refer to `docs/mathematics.md`; (E10) is the gradient.
/// O(n m^2) time in blocks of rows, O(m^2) memory besides the problem.
///
/// # Errors
/// Stopped (asked once every four blocks); not positive definite; not finite.
///
/// # Panics
/// If the dictionary is empty or not a whole number of rows.
pub fn sparse(
    problem: &Problem,
    hyper: &Hyperparameters,
    through: Through<'_>,
    keep_going: KeepGoing<'_>,
) -> Result<Evidence, EvidenceError> {
    Bound::new(problem, hyper, through, keep_going)?.with_gradient()
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
    through: Through<'_>,
    keep_going: KeepGoing<'_>,
) -> Result<Evidence, EvidenceError> {
    Bound::new(problem, hyper, through, keep_going)?.without_gradient()
}

/// A dictionary under one kernel, and the problem that it is to explain.
struct Bound<'a> {
    problem: &'a Problem,
    hyper: &'a Hyperparameters,
    /// (m, D).
    dictionary: &'a [f64],
    /// The same, projected.
    basis: Projected,
    /// v0 C of the dictionary (m, m), lower triangle.
    signal: Matrix,
    /// L.
    factor: Cholesky,
    /// What is added to the diagonal of K_mm.
    jitter: f64,
    /// 1 where the trace gap is paid, else 0.
    paid: f64,
    keep_going: KeepGoing<'a>,
}

/// What the value leaves for the gradient.
struct Solved {
    /// S (m, m), lower triangle.
    s: Matrix,
    /// Factor of A.
    system: Cholesky,
    /// That factor's inverse times p (m, H).
    half: Matrix,
}

impl<'a> Bound<'a> {
    fn new(
        problem: &'a Problem,
        hyper: &'a Hyperparameters,
        Through { dictionary, kind, jitter }: Through<'a>,
        keep_going: KeepGoing<'a>,
    ) -> Result<Self, EvidenceError> {
        go(keep_going)?;
        let kernel = &hyper.kernel;
        let basis = Projected::new(kernel, problem.dim, dictionary);
        let (m, jitter) = (basis.len(), jitter * kernel.signal_variance);
        assert!(m > 0, "a dictionary has at least one element");
        let mut signal = Matrix::zeros(m, m);
        let mut gram = Matrix::zeros(m, m);
        for j in 0..m {
            basis.signal(kernel, j, &basis, j, &mut signal.col_mut(j)[j..]);
            for (value, signal) in gram.col_mut(j)[j..].iter_mut().zip(&signal.col(j)[j..]) {
                *value = signal + kernel.bias_variance;
            }
            *gram.at_mut(j, j) += jitter;
        }
        let factor = Cholesky::new(gram)?;
        let paid = if kind == Sparse::Vfe { 1.0 } else { 0.0 };
        Ok(Self { problem, hyper, dictionary, basis, signal, factor, jitter, paid, keep_going })
    }

    /// Scratch and sums of each lane, empty.
    fn lanes(&self) -> Vec<PartialSums> {
        let count = LANES.min(self.problem.rows().div_ceil(BLOCK));
        (0..count).map(|_| PartialSums::new(self.problem, &self.hyper.kernel, self.dictionary)).collect()
    }

    /// S, p and the sum of prior variances.
    fn sums(&self, lanes: &mut [PartialSums]) -> Result<(Matrix, Matrix, f64), EvidenceError> {
        let Self { problem, basis, .. } = self;
        let (kernel, factor) = (&self.hyper.kernel, self.factor.factor());
        let (n, m, columns) = (problem.rows(), basis.len(), problem.observed.cols());
        let inverses = PanelInverses::of(factor);
        over_blocks(lanes, n, self.keep_going, |lane, start, len| {
            lane.prior += lane.block.fill(problem, kernel, basis, (start, len), false);
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
        for lane in lanes {
            add(&mut s, &lane.s);
            add(&mut p, &lane.p);
            prior += lane.prior;
        }
        Ok((s, p, prior))
    }

    fn without_gradient(&self) -> Result<Evidence, EvidenceError> {
        let (found, _) = self.value(&mut self.lanes())?;
        found.checked()
    }

    fn with_gradient(&self) -> Result<Evidence, EvidenceError> {
        let mut lanes = self.lanes();
        let (mut found, solved) = self.value(&mut lanes)?;
        found.gradient = self.gradient(&found, solved, lanes)?;
        found.checked()
    }

    /// (E6) and (E9), without the gradient.
    fn value(&self, lanes: &mut [PartialSums]) -> Result<(Evidence, Solved), EvidenceError> {
        let (s, mut half, prior) = self.sums(lanes)?;
        let (n, m, columns) = (self.problem.rows(), self.basis.len(), self.problem.observed.cols());
        let (noise, hs) = (self.hyper.noise_variance, columns as f64);
        let trace = prior - (0..m).map(|i| s.at(i, i)).sum::<f64>();
        let mut system = s.clone();
        for i in 0..m {
            *system.at_mut(i, i) += noise;
        }
        let system = Cholesky::new(system)?;
        dense::solve_lower(system.factor().view(), half.view_mut());
        let energy = square(&self.problem.observed) - square(&half);
        let complexity =
            hs * (0.5 * ((n as f64 - m as f64) * noise.ln() + system.log_determinant()) - self.problem.log_factors());
        let fit = 0.5 * energy / noise;
        let trace_gap = 0.5 * hs * trace / noise;
        let evidence = Evidence {
            value: -complexity - fit - gaussian_constant(self.problem) - self.paid * trace_gap,
            complexity,
            fit,
            trace_gap,
            observations: n * columns,
            gradient: Vec::new(),
        };
        Ok((evidence, Solved { s, system, half }))
    }

    /// (E10), from the value. The lanes have memory to work in.
    fn gradient(
        &self,
        found: &Evidence,
        solved: Solved,
        mut lanes: Vec<PartialSums>,
    ) -> Result<Vec<f64>, EvidenceError> {
        let Self { problem, basis, paid, .. } = self;
        let (n, m, columns) = (problem.rows(), basis.len(), problem.observed.cols());
        let (kernel, noise, hs) = (&self.hyper.kernel, self.hyper.noise_variance, columns as f64);
        let factor = self.factor.factor();
        let Solved { s, system, half: mut weights } = solved;
        dense::solve_lower_transposed(system.factor().view(), weights.view_mut());
        let inverse = system.inverse_lower();
        let (mut cross, mut inner) = self.weights(&s, &inverse, &weights);
        // L^-T C L^-1 and L^-T u once, so that a block's weights are one product with its kernel values.
        congruence(factor, &mut cross);
        let mut along = weights.clone();
        dense::solve_lower_transposed(factor.view(), along.view_mut());
        over_blocks(&mut lanes, n, self.keep_going, |lane, start, len| {
            lane.block.fill(problem, kernel, basis, (start, len), true);
            let PartialSums { block, pull, sides, products, .. } = lane;
            let values = block.values.block(0, 0, m, len);
            let observed = problem.observed.block(start, 0, len, columns);
            products.renew(m, BLOCK);
            let mut product = products.block_mut(0, 0, m, len);
            dense::multiply(product.reborrow(), false, 1.0, cross.view(), Op::Plain, values, Op::Plain);
            dense::multiply(product, true, 1.0 / noise, along.view(), Op::Plain, observed, Op::Transposed);
            sides.add(pull, problem, start, len, products, block);
            for row in start..start + len {
                let state = (problem.node(row), problem.factor(row));
                pull.own(kernel, state, problem.successor(row), -0.5 * paid * hs / noise);
            }
        })?;
        let embedding = kernel.embedding(problem.dim);
        let mut pull = GradientAccumulator::new(embedding.clone());
        let mut sides = CrossWeights::new(embedding, self.dictionary);
        for lane in &lanes {
            pull.merge(&lane.pull);
            sides.merge(&lane.sides);
        }
        drop(lanes);
        sides.finish(&mut pull);
        congruence(factor, &mut inner);
        pull.signal += self.jitter * (0..m).map(|i| inner.at(i, i)).sum::<f64>();
        let nodes = Nodes::new(kernel, problem.dim, self.dictionary);
        pull.symmetric(&mut inner, 1.0, |_, _| (), &self.signal, &nodes);
        let inverse_trace: f64 = (0..m).map(|i| inverse.at(i, i)).sum();
        let along_noise = -0.5 * hs * (n as f64 - m as f64) - 0.5 * noise * hs * inverse_trace + found.fit
            - 0.5 * square(&weights)
            + paid * found.trace_gap;
        Ok(pull.gradient(kernel, along_noise))
    }

    /// C (m, m), and the weights within the dictionary without their L, from S, A^-1 (lower triangles) and u = A^-1 p (m, H).
    /// With C = paid H / sigma0^2 I - H A^-1 - u u' / sigma0^2, the weights of dk are
    /// ```text
    /// of functional i against the dictionary      L^-T (C phi_i + u d_i' / sigma0^2)
    /// within the dictionary                       1/2 L^-T (H I - sigma0^2 H A^-1 - u u' - paid H S / sigma0^2) L^-1
    /// of functional i with itself                 -paid H / (2 sigma0^2)
    /// ```
    fn weights(&self, s: &Matrix, inverse: &Matrix, u: &Matrix) -> (Matrix, Matrix) {
        let (m, columns) = (s.rows(), u.cols());
        let (noise, hs, paid) = (self.hyper.noise_variance, columns as f64, self.paid);
        let (mut cross, mut inner) = (Matrix::zeros(m, m), Matrix::zeros(m, m));
        for j in 0..m {
            for i in j..m {
                let outer: f64 = (0..columns).map(|h| u.at(i, h) * u.at(j, h)).sum();
                let unit = if i == j { 1.0 } else { 0.0 };
                let inverse = hs * inverse.at(i, j);
                *cross.at_mut(i, j) = paid * hs / noise * unit - inverse - outer / noise;
                *inner.at_mut(i, j) = 0.5 * (hs * unit - noise * inverse - outer - paid * hs / noise * s.at(i, j));
            }
        }
        cross.mirror_lower();
        inner.mirror_lower();
        (cross, inner)
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

/// Deal the blocks of `n` rows out to the lanes, one each at a time; `work` gets the first row and the number of rows. The
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
            // A row without a successor keeps its place; the sums do not read it.
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
            let factor = problem.factor(start + i);
            basis.signal(kernel, 0, &points, i, self.signal.col_mut(i));
            for (feature, signal) in self.values.col_mut(i).iter_mut().zip(self.signal.col(i)) {
                *feature = factor * (signal + bias);
            }
            prior += factor * factor * kernel.diagonal();
            if let (Some(next), Some((state, discount))) = (&next, problem.successor(start + i)) {
                basis.signal(kernel, 0, next, i, self.next.col_mut(i));
                for (feature, signal) in self.values.col_mut(i).iter_mut().zip(self.next.col(i)) {
                    *feature -= discount * (signal + bias);
                }
                let (own, _) = signal_and_slope(kernel, problem.node(start + i), state);
                prior += discount * discount * kernel.diagonal() - 2.0 * factor * discount * (own + bias);
            }
        }
        prior
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

    /// `weights` (m, B) of `len` rows from `start` on against the dictionary, whose kernel values are in `block`. It uses
    /// the weights up.
    fn add(
        &mut self,
        pull: &mut GradientAccumulator,
        problem: &Problem,
        start: usize,
        len: usize,
        weights: &mut Matrix,
        block: &Block,
    ) {
        let state = |i: usize| Some((problem.node(start + i), problem.factor(start + i)));
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
