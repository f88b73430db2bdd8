//! Improvement: Q of acting as well as is known, by sweeps over rows that are at hand (fitted Q iteration).
//! ```text
//! y_t = r_t + gamma_t clip(max_a Q(x'_t, a), low, high);   u = (S + ridge I)^-1 Phi' y          docs/mathematics.md (A4)
//! ```
//! S and its factor are those of the model that has learned the rows, so that a sweep costs O(n m C) for C actions. Rows of old
//! policies are as good as new ones, since each sweep asks anew which action is best. The clip is not optional: without it the
//! sweeps of a kernel that overshoots between its data do not stay bounded.

use crate::action::{ActionSpace, first_largest};
use crate::batch::BatchError;
use crate::math::dense::{Cholesky, Matrix, Op, View, multiply, product, solve_lower};
use crate::math::evidence::KeepGoing;
use crate::math::kernel::Points;
use crate::math::posterior::Scale;
use crate::model::Model;
use crate::random::{mix, normal};
use crate::snapshot::{Ask, Evaluator, Snapshot};
use crate::transition::Rows;
use std::collections::VecDeque;
use std::ops::Range;

/// Rows whose kernel values are worked out at once.
const BLOCK: usize = 256;
/// Kernel values that are kept from one sweep to the next; where there are more they are worked out again.
const KEPT_MAX: usize = 1 << 25;
/// Sweeps at most, and where rewards reach as far as this discount carries them.
const SWEEPS: usize = 40;
const SWEEPS_FAR: usize = 100;
const FAR: f64 = 0.99;
/// Mean change of the maxima, in parts of their range, below which a sweep is the last.
const SETTLED: f64 = 3e-4;
/// Fits whose mean acts where sweeps do not come to rest: the last ones, which they swing about.
const FITS: usize = 5;

/// What is to be improved, and on which rows.
#[derive(Clone, Copy, Debug)]
pub struct Improvement<'a> {
    /// It has learned the rows with all weights equal; its dictionary, S, scale and noise are used, and none of its weights.
    pub model: &'a Model,
    /// Rows between inputs of Q, as [`crate::action::ActionValue::rows`] makes them.
    pub rows: &'a Rows,
    /// The actions there are.
    pub space: &'a ActionSpace,
    /// Q before, whose maxima the first sweep starts from; 0 without one.
    pub before: Option<&'a Evaluator>,
    /// Randomised copies of Q that are improved beside it.
    pub copies: usize,
    /// Seed of what they differ by.
    pub seed: u64,
}

/// Q as the sweeps have left it.
#[derive(Clone, Debug)]
pub struct Improved {
    /// Kernel weights (m, 1 + copies) in the units of a snapshot: those of Q, and of each copy.
    pub weights: Matrix,
    /// The rows, with the action that Q prefers as that of each successor.
    pub rows: Rows,
    /// Sweeps made.
    pub sweeps: usize,
    /// Mean change of the maxima in the last sweep, in parts of their range.
    pub change: f64,
    /// Share of the rows whose successor's value was clipped in the last sweep, from 0 to 1.
    pub clipped: f64,
}

impl Improved {
    /// Let `snapshot`, of a model that follows the preferred actions, act by these weights.
    ///
    /// # Panics
    /// If its dictionary has another size.
    pub fn act_by(&self, snapshot: &mut Snapshot) {
        let (weights, m) = (self.weights.to_nalgebra(), snapshot.dictionary.nrows());
        assert_eq!(weights.nrows(), m, "weights of the same dictionary");
        snapshot.weights = weights.columns(0, 1).into_owned();
        if let Some(actions) = &mut snapshot.actions {
            actions.copies = weights.columns(1, weights.ncols() - 1).into_owned();
        }
    }

    /// Whether the last sweep changed next to nothing.
    pub fn settled(&self) -> bool {
        self.change < SETTLED
    }
}

impl ActionSpace {
    /// Actions (C, width), row-major, among which the best is looked for: all discrete ones; of one number nine from end to end;
    /// of more the corners of the box (up to four numbers), its centre and sixteen points for each number spread evenly.
    pub fn candidates(&self) -> Vec<f64> {
        match self {
            Self::Discrete(count) => {
                (0..count * count).map(|k| if k / count == k % count { 1.0 } else { 0.0 }).collect()
            }
            Self::Box { low, high } if low.len() == 1 => {
                (0..9).map(|k| low[0] + (high[0] - low[0]) * f64::from(k) / 8.0).collect()
            }
            Self::Box { low, high } => {
                let width = low.len();
                let corners = if width <= 4 { 1 << width } else { 0 };
                let mut out = Vec::with_capacity((corners + 1 + 16 * width) * width);
                for corner in 0..corners {
                    out.extend((0..width).map(|d| if corner >> d & 1 == 1 { high[d] } else { low[d] }));
                }
                // The first point of the sequence is the centre.
                for k in 0..=16 * width {
                    out.extend((0..width).map(|d| low[d] + (high[d] - low[d]) * evenly(k, d, width)));
                }
                out
            }
        }
    }
}

/// Coordinate d of point k of the sequence 1/2 + k / g^(d + 1) mod 1, g the root of g^(D + 1) = g + 1: points of D numbers in
/// \[0, 1) that lie evenly however many there are.
fn evenly(k: usize, d: usize, dim: usize) -> f64 {
    let root = (0..64).fold(1.5f64, |g, _| (1.0 + g).powf(1.0 / (dim as f64 + 1.0)));
    (0.5 + k as f64 * root.powi(-(d as i32 + 1))).fract()
}

/// Values of successors that rewards and discounts allow.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    low: f64,
    high: f64,
}

/// Kernel values (m, k) of the inputs of a block of rows, and of all candidates of their successors (m, k C).
struct Block {
    own: Matrix,
    next: Matrix,
}

impl Improvement<'_> {
    /// Sweep until the maxima hardly change, at most 40 times (100 where a discount is 0.99 or more).
    ///
    /// # Errors
    /// Stopped; or the model's system cannot be solved.
    pub fn run(&self, keep_going: KeepGoing<'_>) -> Result<Improved, BatchError> {
        let posterior = self.model.solve()?;
        let system = posterior.factor(self.model.statistics())?;
        let scale = posterior.scale();
        let bounds = self.bounds();
        let sweeps_max = if self.discount_max() >= FAR { SWEEPS_FAR } else { SWEEPS };
        let kept = self.keep(keep_going)?;
        let mut maxima = self.maxima_before();
        let mut fits: VecDeque<Matrix> = VecDeque::with_capacity(FITS);
        let (mut sweeps, mut change, mut clipped) = (0, f64::INFINITY, 0.0);
        while sweeps < sweeps_max && change >= SETTLED {
            let fit = self.fit(&maxima, bounds, &system, scale, &kept, keep_going)?;
            let (found, share) = self.maxima(&fit, bounds, &kept, keep_going)?;
            (change, clipped) = (mean_change(&maxima, &found), share);
            maxima = found;
            if fits.len() == FITS {
                fits.pop_front();
            }
            fits.push_back(fit);
            sweeps += 1;
        }
        // Where sweeps have come to rest those before the last are only on the way there.
        let mut weights = if change < SETTLED { fits[fits.len() - 1].clone() } else { mean(&fits) };
        let rows = self.with_preferred(&weights, &kept, keep_going)?;
        for h in 0..weights.cols() {
            // Q = k_m'w in units of the model's kernel, which is `signal` times that of the dictionary.
            weights.col_mut(h).iter_mut().for_each(|w| *w /= scale.signal);
        }
        Ok(Improved { weights, rows, sweeps, change, clipped })
    }

    /// Q and its copies.
    fn columns(&self) -> usize {
        1 + self.copies
    }

    fn discount_max(&self) -> f64 {
        let own = self.model.settings().discount;
        (0..self.rows.len()).map(|i| self.rows.discount(i, own)).fold(0.0, f64::max)
    }

    fn reward(&self, i: usize) -> f64 {
        self.rows.reward(i)[self.model.settings().rewards[0]]
    }

    /// r_min / (1 - gamma) to r_max / (1 - gamma), and 0 where a row terminates. Where nothing is discounted a value adds up at
    /// most as many rewards as there are rows.
    fn bounds(&self) -> Bounds {
        let horizon = (1.0 / (1.0 - self.discount_max())).min(self.rows.len().max(1) as f64);
        let ends = if self.rows.terminated.contains(&true) { 0.0 } else { f64::NAN };
        let rewards = || (0..self.rows.len()).map(|i| horizon * self.reward(i));
        Bounds {
            low: rewards().fold(f64::INFINITY, f64::min).min(ends),
            high: rewards().fold(f64::NEG_INFINITY, f64::max).max(ends),
        }
    }

    fn blocks(&self) -> impl Iterator<Item = Range<usize>> {
        let n = self.rows.len();
        (0..n).step_by(BLOCK).map(move |from| from..n.min(from + BLOCK))
    }

    /// Inputs (k C, D) of the successors of a block of rows with each candidate.
    fn successors(&self, block: Range<usize>, candidates: &[f64]) -> Vec<f64> {
        let (dim, width) = (self.rows.dim, self.space.width());
        let mut out = Vec::with_capacity(block.len() * candidates.len() / width * dim);
        for i in block {
            for action in candidates.chunks_exact(width) {
                out.extend_from_slice(&self.rows.next_state(i)[..dim - width]);
                out.extend_from_slice(action);
            }
        }
        out
    }

    fn covariances(&self, inputs: &[f64]) -> Matrix {
        let (dictionary, dim) = (self.model.dictionary(), self.rows.dim);
        let kernel = dictionary.kernel();
        let basis = Points::new(kernel.projected_dim(dim), &kernel.project(dim, dictionary.elements()));
        let points = kernel.project(dim, &self.model.inputs().normalise(inputs));
        let mut out = Matrix::zeros(dictionary.len(), inputs.len() / dim);
        kernel.block(&basis, &points, &mut out.view_mut());
        out
    }

    fn block(&self, block: Range<usize>, candidates: &[f64]) -> Block {
        let dim = self.rows.dim;
        Block {
            own: self.covariances(&self.rows.states[block.start * dim..block.end * dim]),
            next: self.covariances(&self.successors(block, candidates)),
        }
    }

    /// The kernel values of all blocks, where there is room for them.
    fn keep(&self, keep_going: KeepGoing<'_>) -> Result<Option<Vec<Block>>, BatchError> {
        let candidates = self.space.candidates();
        let choices = candidates.len() / self.space.width();
        let numbers = self.model.dictionary().len() * self.rows.len() * (1 + choices);
        if numbers > KEPT_MAX {
            return Ok(None);
        }
        let each = self.blocks().map(|block| look(keep_going).map(|()| self.block(block, &candidates)));
        each.collect::<Result<Vec<_>, _>>().map(Some)
    }

    /// `seen` with the kernel values of each block of rows.
    fn visit(
        &self,
        kept: &Option<Vec<Block>>,
        keep_going: KeepGoing<'_>,
        mut seen: impl FnMut(Range<usize>, &Block),
    ) -> Result<(), BatchError> {
        let candidates = self.space.candidates();
        for (k, block) in self.blocks().enumerate() {
            look(keep_going)?;
            match kept {
                Some(kept) => seen(block, &kept[k]),
                None => seen(block.clone(), &self.block(block, &candidates)),
            }
        }
        Ok(())
    }

    /// Maxima (n, columns) of Q before the first sweep.
    fn maxima_before(&self) -> Matrix {
        let mut out = Matrix::zeros(self.rows.len(), self.columns());
        let Some(before) = self.before else { return out };
        let candidates = self.space.candidates();
        let choices = candidates.len() / self.space.width();
        for block in self.blocks() {
            let inputs = self.successors(block.clone(), &candidates);
            // States of rows have been checked when they came in.
            let Ok(found) = before.evaluate(&inputs, Ask::MEAN) else { continue };
            let values = found.mean.column(0);
            for i in block.clone().filter(|&i| !self.rows.terminated[i]) {
                let from = (i - block.start) * choices;
                let best = (from..from + choices).map(|k| values[k]).fold(f64::NEG_INFINITY, f64::max);
                (0..out.cols()).for_each(|h| *out.at_mut(i, h) = best);
            }
        }
        out
    }

    /// Kernel weights (m, columns) of the ridge regression of what `maxima` (n, columns) make of the rows. A copy's targets have
    /// noise of their own, and so has its prior (A5):
    /// ```text
    /// (S + ridge I) u = Phi' (y + xi) + ridge u0        xi ~ N(0, sigma0^2 I), u0 from the prior
    /// ```
    fn fit(
        &self,
        maxima: &Matrix,
        bounds: Bounds,
        system: &Cholesky,
        scale: Scale,
        kept: &Option<Vec<Block>>,
        keep_going: KeepGoing<'_>,
    ) -> Result<Matrix, BatchError> {
        let (dictionary, columns) = (self.model.dictionary(), self.columns());
        let m = dictionary.len();
        let own_discount = self.model.settings().discount;
        let (noise, prior) = (scale.noise_variance().sqrt(), scale.signal.sqrt());
        let mut response = Matrix::zeros(m, columns);
        self.visit(kept, keep_going, |block, values| {
            let mut targets = Matrix::zeros(block.len(), columns);
            for h in 0..columns {
                for (k, i) in block.clone().enumerate() {
                    let next = if self.rows.terminated[i] { 0.0 } else { bounds.clip(maxima.at(i, h)) };
                    let xi = if h == 0 { 0.0 } else { noise * normal(mix(&[self.seed, h as u64, i as u64])) };
                    *targets.at_mut(k, h) = self.reward(i) + self.rows.discount(i, own_discount) * next + xi;
                }
            }
            multiply(response.view_mut(), true, 1.0, values.own.view(), Op::Plain, targets.view(), Op::Plain);
        })?;
        solve_lower(dictionary.factor().view(), response.view_mut());
        for h in 1..columns {
            for (j, p) in response.col_mut(h).iter_mut().enumerate() {
                *p += scale.ratio * prior * normal(mix(&[self.seed, h as u64, u64::MAX - j as u64]));
            }
        }
        Ok(dictionary.kernel_weights(&system.solve(response)))
    }

    /// The largest Q of each successor (n, columns), 0 behind a terminal row, and the share of rows where that is clipped.
    fn maxima(
        &self,
        weights: &Matrix,
        bounds: Bounds,
        kept: &Option<Vec<Block>>,
        keep_going: KeepGoing<'_>,
    ) -> Result<(Matrix, f64), BatchError> {
        let mut out = Matrix::zeros(self.rows.len(), weights.cols());
        let mut clipped = 0;
        self.visit(kept, keep_going, |block, values| {
            let found = product(values.next.view(), Op::Transposed, weights.view(), Op::Plain);
            let choices = found.rows() / block.len();
            for (k, i) in block.enumerate().filter(|&(_, i)| !self.rows.terminated[i]) {
                for h in 0..weights.cols() {
                    let values = &found.col(h)[k * choices..(k + 1) * choices];
                    *out.at_mut(i, h) = values[first_largest(values)];
                }
                clipped += usize::from(bounds.clip(out.at(i, 0)) != out.at(i, 0));
            }
        })?;
        Ok((out, clipped as f64 / self.rows.len().max(1) as f64))
    }

    /// The rows with the action that `weights` (m, columns) prefer as that of each successor.
    fn with_preferred(
        &self,
        weights: &Matrix,
        kept: &Option<Vec<Block>>,
        keep_going: KeepGoing<'_>,
    ) -> Result<Rows, BatchError> {
        let (candidates, width, dim) = (self.space.candidates(), self.space.width(), self.rows.dim);
        let mut rows = self.rows.clone();
        self.visit(kept, keep_going, |block, values| {
            let q = View::column(weights.col(0));
            let found = product(values.next.view(), Op::Transposed, q, Op::Plain);
            let choices = found.rows() / block.len();
            for (k, i) in block.enumerate() {
                let best = first_largest(&found.col(0)[k * choices..(k + 1) * choices]);
                rows.next_states[(i + 1) * dim - width..(i + 1) * dim]
                    .copy_from_slice(&candidates[best * width..(best + 1) * width]);
            }
        })?;
        Ok(rows)
    }
}

impl Bounds {
    fn clip(self, value: f64) -> f64 {
        value.clamp(self.low, self.high)
    }
}

fn look(keep_going: KeepGoing<'_>) -> Result<(), BatchError> {
    if keep_going() { Ok(()) } else { Err(BatchError::Stopped) }
}

/// Mean |change| of the maxima of Q itself, in parts of the range of the new ones; 0 where neither varies.
fn mean_change(before: &Matrix, after: &Matrix) -> f64 {
    let (before, after) = (before.col(0), after.col(0));
    let ends = after.iter().fold([f64::INFINITY, f64::NEG_INFINITY], |[l, h], v| [l.min(*v), h.max(*v)]);
    let moved = before.iter().zip(after).map(|(b, a)| (b - a).abs()).sum::<f64>() / before.len().max(1) as f64;
    let range = ends[1] - ends[0];
    if moved == 0.0 { 0.0 } else { moved / range.max(f64::MIN_POSITIVE) }
}

fn mean(fits: &VecDeque<Matrix>) -> Matrix {
    let mut out = Matrix::zeros(fits[0].rows(), fits[0].cols());
    for fit in fits {
        for h in 0..out.cols() {
            crate::math::dense::axpy(out.col_mut(h), 1.0 / fits.len() as f64, fit.col(h));
        }
    }
    out
}
