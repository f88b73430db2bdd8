//! Improvement: Q of the best policy that the kept rows support, by sweeps over them (fitted Q iteration).
//! ```text
//! y_t = r_t + gamma_t clip(max_a Q(x'_t, a), low, high);   u = (S + ridge I)^-1 Phi' y          docs/mathematics.md (A4)
//! ```
//! S and its factor belong to the model that has learned the rows, so that a sweep costs O(n m C) for C actions. Rows of old
//! policies are as good as new ones, since each sweep takes the best action again. The clip is not optional: without it the
//! sweeps of a kernel that overshoots between its data do not stay bounded.

use crate::action::{ActionSpace, first_largest};
use crate::batch::BatchError;
use crate::math::dense::{Cholesky, Matrix, Op, View, dot, multiply, product, solve_lower};
use crate::math::evidence::KeepGoing;
use crate::math::inflation::horizon;
use crate::math::kernel::Points;
use crate::model::Model;
use crate::random::{mix, normal};
use crate::settings::Settings;
use crate::snapshot::{Ask, Evaluator, Snapshot};
use crate::transition::Rows;
use nalgebra::DMatrix;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;

/// Rows whose kernel values are worked out at once.
const BLOCK: usize = 256;
/// Kernel values that are kept from one sweep to the next; where there are more they are worked out again.
const KEPT_MAX: usize = 1 << 25;
/// Most sweeps below the discount [`FAR_DISCOUNT`].
const SWEEPS: usize = 40;
/// Most sweeps from that discount on, which carries rewards farther.
const SWEEPS_FAR: usize = 100;
/// Discount from which on rewards reach far.
const FAR_DISCOUNT: f64 = 0.99;
/// Mean change of the maxima, in parts of their range, below which a sweep is the last.
const SETTLED: f64 = 3e-4;
/// Fits whose mean acts where sweeps do not come to rest: the last ones, which they swing about.
const FITS: usize = 5;
/// Randomised copies of Q that a critic keeps.
pub const COPIES: usize = 8;

/// Rows before a terminal one that are kept where not all rows are.
const BEFORE_END: usize = 60;

/// What is to be improved, and on which rows.
#[derive(Clone, Copy, Debug)]
pub struct Improvement<'a> {
    /// It has learned the rows with all weights equal; its dictionary, S, scale and noise are used, and none of its weights.
    pub model: &'a Model,
    /// Rows between inputs of Q, as [`crate::action::ActionValue::rows`] makes them.
    pub rows: &'a Rows,
    /// The actions there are.
    pub space: &'a ActionSpace,
    /// Q before: the first sweep starts from its maxima and its copies' maxima, from 0 without it.
    pub before: Option<&'a Evaluator>,
    /// Randomised copies of Q that are improved beside it.
    pub copies: usize,
    /// Seed of what they differ by. With the same seed a copy has the same noise at the same rows, whatever others there are.
    pub seed: u64,
}

/// Kernel weights that choose actions: of Q after the sweeps, and of its copies, in the units of the model's dictionary, so
/// that a change of its scale does not change them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Acting {
    /// (m, 1 + copies).
    weights: Matrix,
}

impl Acting {
    /// (m, 1 + copies), Q first.
    pub fn weights(&self) -> &Matrix {
        &self.weights
    }

    /// Whether the weights fit a dictionary of m elements, which a file may contradict.
    pub fn is_consistent(&self, m: usize) -> bool {
        self.weights.cols() >= 1 && self.weights.rows() <= m && self.weights.is_finite()
    }

    /// Let `snapshot`, of the model whose scale is `signal`, act by these weights; elements that its dictionary has gained since
    /// have none.
    pub fn act(&self, signal: f64, snapshot: &mut Snapshot) {
        let (m, known) = (snapshot.features(), self.weights.rows());
        let weight = |i: usize, h: usize| if i < known { self.weights.at(i, h) / signal } else { 0.0 };
        snapshot.weights = DMatrix::from_fn(m, 1, |i, _| weight(i, 0));
        if let Some(actions) = &mut snapshot.actions {
            actions.copies = DMatrix::from_fn(m, self.weights.cols() - 1, |i, h| weight(i, 1 + h));
        }
    }
}

/// Put the action that `weights` (m,) of the dictionary of `model` prefer into each successor of `rows`.
pub(crate) fn prefer(model: &Model, space: &ActionSpace, weights: &[f64], rows: &mut Rows) {
    let (candidates, dim, width) = (space.candidates(), rows.dim, space.width());
    let choices = candidates.len() / width;
    for from in (0..rows.len()).step_by(BLOCK) {
        let block = from..rows.len().min(from + BLOCK);
        let values = covariances(model, &successors(rows, block.clone(), &candidates, width));
        for (k, i) in block.enumerate() {
            let of = |c: usize| dot(&values.col(k * choices + c)[..weights.len()], weights);
            let values: Vec<f64> = (0..choices).map(of).collect();
            let best = first_largest(&values) * width;
            rows.next_states[(i + 1) * dim - width..(i + 1) * dim].copy_from_slice(&candidates[best..best + width]);
        }
    }
}

/// Inputs (k C, D) of the successors of a block of `rows` with each of the candidates (C, `width`).
fn successors(rows: &Rows, block: Range<usize>, candidates: &[f64], width: usize) -> Vec<f64> {
    let dim = rows.dim;
    let mut out = Vec::with_capacity(block.len() * candidates.len() / width * dim);
    for i in block {
        for action in candidates.chunks_exact(width) {
            out.extend_from_slice(&rows.next_state(i)[..dim - width]);
            out.extend_from_slice(action);
        }
    }
    out
}

/// Kernel rows (m, n) of inputs (n, D) under `model`.
fn covariances(model: &Model, inputs: &[f64]) -> Matrix {
    let (dictionary, dim) = (model.dictionary(), model.inputs().dim());
    let kernel = dictionary.kernel();
    let basis = Points::new(kernel.projected_dim(dim), &kernel.project(dim, dictionary.elements()));
    let points = kernel.project(dim, &model.inputs().normalise(inputs));
    let mut out = Matrix::zeros(dictionary.len(), inputs.len() / dim);
    kernel.rows(&basis, &points, &mut out.view_mut());
    out
}

/// Q as the sweeps have left it.
#[derive(Clone, Debug)]
pub struct Improved {
    /// The weights that choose actions.
    pub acting: Acting,
    /// Scale of the model that has learned the rows.
    signal: f64,
    /// The rows, each successor with the action that Q prefers.
    pub rows: Rows,
    /// Sweeps made.
    pub sweeps: usize,
    /// Mean change of the maxima in the last sweep, in parts of their range.
    pub change: f64,
    /// Share of the rows whose successor's value was clipped in the last sweep, from 0 to 1.
    pub clipped: f64,
}

impl Improved {
    /// Let `snapshot`, of a model that follows the preferred actions and has the scale of the one that was improved, act by these
    /// weights.
    pub fn act_by(&self, snapshot: &mut Snapshot) {
        self.acting.act(self.signal, snapshot);
    }

    /// Whether the last sweep hardly changed any value.
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

    /// Number C of these actions.
    pub fn candidate_count(&self) -> usize {
        self.candidates().len() / self.width()
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
struct KernelBlock {
    own: Matrix,
    next: Matrix,
}

/// What all sweeps have in common.
struct Common {
    bounds: Bounds,
    system: Cholesky,
    /// The kernel values of all blocks, where there is room for them.
    kept: Option<Vec<KernelBlock>>,
    /// What the copies differ by where s^2 of (A5) is 1 (m, copies): of the noise in their targets, and of their priors.
    noise: Matrix,
    prior: Matrix,
}

/// A hash of each of the inputs (n, `dim`) and of how many equal ones come before it: equal rows have noises of their own, and which
/// of them has which does not matter to the sum over rows.
fn seeds(seed: u64, inputs: &[f64], dim: usize) -> Vec<u64> {
    let mut seen: HashMap<u64, u64> = HashMap::new();
    let of = |input: &[f64]| {
        let hash = input.iter().fold(seed, |hash, number| mix(&[hash, number.to_bits()]));
        let count = seen.entry(hash).or_insert(0);
        *count += 1;
        mix(&[hash, *count])
    };
    inputs.chunks_exact(dim).map(of).collect()
}

/// Standard normal numbers (n, `copies`) of `seeds` (n,).
fn hashed(seeds: &[u64], copies: usize) -> Matrix {
    let mut out = Matrix::zeros(seeds.len(), copies);
    for h in 0..copies {
        out.col_mut(h).iter_mut().zip(seeds).for_each(|(z, seed)| *z = normal(mix(&[h as u64 + 1, *seed])));
    }
    out
}

impl Improvement<'_> {
    /// Sweep until the maxima of Q and of its copies hardly change, at most 40 times (100 where a discount is 0.99 or more).
    ///
    /// # Errors
    /// Stopped; or the model's system cannot be solved.
    pub fn run(&self, keep_going: KeepGoing<'_>) -> Result<Improved, BatchError> {
        let posterior = self.model.solve()?;
        let system = posterior.factor(self.model.statistics())?;
        let scale = posterior.scale();
        let sweeps_max =
            if discount_max(self.rows, self.model.settings()) >= FAR_DISCOUNT { SWEEPS_FAR } else { SWEEPS };
        let kept = self.keep(keep_going)?;
        let common = Common {
            bounds: Bounds::of(self.rows, self.model.settings()),
            system,
            noise: self.noise(&kept, keep_going)?,
            prior: self.prior(scale.ratio),
            kept,
        };
        let mut maxima = self.maxima_before();
        let mut fits: VecDeque<Matrix> = VecDeque::with_capacity(FITS);
        let (mut sweeps, mut change, mut clipped) = (0, f64::INFINITY, 0.0);
        while sweeps < sweeps_max && change >= SETTLED {
            let fit = self.fit(&maxima, &common, keep_going)?;
            let (found, share) = self.maxima(&fit, common.bounds, &common.kept, keep_going)?;
            (change, clipped) = (mean_change(&maxima, &found), share);
            maxima = found;
            if fits.len() == FITS {
                fits.pop_front();
            }
            fits.push_back(fit);
            sweeps += 1;
        }
        // Where sweeps have come to rest those before the last are only on the way there.
        let weights = if change < SETTLED { fits[fits.len() - 1].clone() } else { mean(&fits) };
        let rows = self.with_preferred(&weights, &common.kept, keep_going)?;
        Ok(Improved { acting: Acting { weights }, signal: scale.signal, rows, sweeps, change, clipped })
    }

    /// Q and its copies.
    fn columns(&self) -> usize {
        1 + self.copies
    }

    fn reward(&self, i: usize) -> f64 {
        self.rows.reward(i)[self.model.settings().rewards[0]]
    }

    fn blocks(&self) -> impl Iterator<Item = Range<usize>> {
        let n = self.rows.len();
        (0..n).step_by(BLOCK).map(move |from| from..n.min(from + BLOCK))
    }

    /// Inputs (k C, D) of the successors of a block of rows with each candidate.
    fn successors(&self, block: Range<usize>, candidates: &[f64]) -> Vec<f64> {
        successors(self.rows, block, candidates, self.space.width())
    }

    fn covariances(&self, inputs: &[f64]) -> Matrix {
        covariances(self.model, inputs)
    }

    fn block(&self, block: Range<usize>, candidates: &[f64]) -> KernelBlock {
        let dim = self.rows.dim;
        KernelBlock {
            own: self.covariances(&self.rows.states[block.start * dim..block.end * dim]),
            next: self.covariances(&self.successors(block, candidates)),
        }
    }

    /// The kernel values of all blocks, where there is room for them.
    fn keep(&self, keep_going: KeepGoing<'_>) -> Result<Option<Vec<KernelBlock>>, BatchError> {
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
        kept: &Option<Vec<KernelBlock>>,
        keep_going: KeepGoing<'_>,
        mut seen: impl FnMut(Range<usize>, &KernelBlock),
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

    /// Maxima (n, columns) before the first sweep: of Q, and of each copy its own, where there was such a copy. From Q's maxima the
    /// noise of a copy would travel no further than the sweeps that Q itself still needs.
    fn maxima_before(&self) -> Matrix {
        let mut out = Matrix::zeros(self.rows.len(), self.columns());
        let Some(before) = self.before else { return out };
        let known = largest(&with_copies(before.snapshot()), self.rows, self.space);
        for h in 0..out.cols() {
            out.col_mut(h).copy_from_slice(known.col(if h < known.cols() { h } else { 0 }));
        }
        out
    }

    /// Noise in the targets of each copy where s^2 is 1, as Phi' xi (m, copies): a hash of the seed, the copy and the row.
    fn noise(&self, kept: &Option<Vec<KernelBlock>>, keep_going: KeepGoing<'_>) -> Result<Matrix, BatchError> {
        let dictionary = self.model.dictionary();
        let seeds = seeds(self.seed, &self.rows.states, self.rows.dim);
        let mut out = Matrix::zeros(dictionary.len(), self.copies);
        self.visit(kept, keep_going, |block, values| {
            let xi = hashed(&seeds[block], self.copies);
            multiply(out.view_mut(), true, 1.0, values.own.view(), Op::Plain, xi.view(), Op::Plain);
        })?;
        solve_lower(dictionary.factor().view(), out.view_mut());
        Ok(out)
    }

    /// Draws from the prior, as ridge u0 (m, copies) where s^2 is 1: hashes of the seed, the copy and the column or element behind
    /// the feature.
    fn prior(&self, ratio: f64) -> Matrix {
        let dictionary = self.model.dictionary();
        let columns = (0..dictionary.columns() as u64).map(|j| mix(&[!self.seed, j]));
        let elements = seeds(!self.seed, dictionary.elements(), self.rows.dim);
        let mut out = hashed(&columns.chain(elements).collect::<Vec<_>>(), self.copies);
        for h in 0..self.copies {
            out.col_mut(h).iter_mut().for_each(|draw| *draw *= ratio.sqrt());
        }
        out
    }

    /// Kernel weights (m, columns) of the ridge regression of what `maxima` (n, columns) make of the rows. A copy's targets have
    /// noise of their own, and so has its prior (A5):
    /// ```text
    /// (S + ridge I) u = Phi' (y + xi) + ridge u0        xi ~ N(0, s^2 I), u0 ~ N(0, s^2 / ridge I)
    /// s^2 = (y'y - u' Phi' y) / n                       of Q itself
    /// ```
    /// The noise of the model is the scatter of the returns of all policies so far: copies with so much of it never agree on what
    /// the rows have shown.
    fn fit(&self, maxima: &Matrix, common: &Common, keep_going: KeepGoing<'_>) -> Result<Matrix, BatchError> {
        let bounds = common.bounds;
        let (dictionary, columns) = (self.model.dictionary(), self.columns());
        let m = dictionary.len();
        let own_discount = self.model.settings().discount;
        let mut response = Matrix::zeros(m, columns);
        let mut squares = 0.0;
        self.visit(&common.kept, keep_going, |block, values| {
            let mut targets = Matrix::zeros(block.len(), columns);
            for h in 0..columns {
                for (k, i) in block.clone().enumerate() {
                    let next = if self.rows.terminated[i] { 0.0 } else { bounds.clip(maxima.at(i, h)) };
                    *targets.at_mut(k, h) = self.reward(i) + self.rows.discount(i, own_discount) * next;
                }
            }
            squares += dot(targets.col(0), targets.col(0));
            multiply(response.view_mut(), true, 1.0, values.own.view(), Op::Plain, targets.view(), Op::Plain);
        })?;
        solve_lower(dictionary.factor().view(), response.view_mut());
        let explained =
            dot(response.col(0), common.system.solve(Matrix::from_columns(m, 1, response.col(0).to_vec())).col(0));
        let noise = ((squares - explained).max(0.0) / self.rows.len().max(1) as f64).sqrt();
        for h in 1..columns {
            for (p, (xi, prior)) in
                response.col_mut(h).iter_mut().zip(common.noise.col(h - 1).iter().zip(common.prior.col(h - 1)))
            {
                *p += noise * (xi + prior);
            }
        }
        Ok(dictionary.kernel_weights(&common.system.solve(response)))
    }

    /// The largest Q of each successor (n, columns), 0 behind a terminal row, and the share of rows where that is clipped.
    fn maxima(
        &self,
        weights: &Matrix,
        bounds: Bounds,
        kept: &Option<Vec<KernelBlock>>,
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

    /// The rows, each successor with the action that `weights` (m, columns) prefer.
    fn with_preferred(
        &self,
        weights: &Matrix,
        kept: &Option<Vec<KernelBlock>>,
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

/// The largest discount behind a row.
fn discount_max(rows: &Rows, settings: &Settings) -> f64 {
    (0..rows.len()).map(|i| rows.discount(i, settings.discount)).fold(0.0, f64::max)
}

/// The value functions of `q` and of its randomised copies, Q first.
fn with_copies(q: &Snapshot) -> Evaluator {
    let copies = q.actions.as_ref().map_or(0, |actions| actions.copies.ncols());
    let weight = |i: usize, h: usize| match (&q.actions, h) {
        (Some(actions), 1..) => actions.copies[(i, h - 1)],
        _ => q.weights[(i, 0)],
    };
    let weights = DMatrix::from_fn(q.weights.nrows(), 1 + copies, weight);
    let level = q.level.iter().copied().cycle().take(1 + copies).collect();
    Evaluator::new(Snapshot { weights, level, variance: None, returns: None, ..q.clone() })
}

/// The largest value of each successor (n, H) by each of the value functions, 0 behind a terminal row.
fn largest(q: &Evaluator, rows: &Rows, space: &ActionSpace) -> Matrix {
    let (candidates, width) = (space.candidates(), space.width());
    let choices = candidates.len() / width;
    let mut out = Matrix::zeros(rows.len(), q.snapshot().weights.ncols());
    for from in (0..rows.len()).step_by(BLOCK) {
        let block = from..rows.len().min(from + BLOCK);
        let inputs = successors(rows, block.clone(), &candidates, width);
        // States of rows have been checked when they came in.
        let Ok(found) = q.evaluate(&inputs, Ask::MEAN) else { continue };
        for h in 0..out.cols() {
            let values = found.mean.column(h);
            for i in block.clone().filter(|&i| !rows.terminated[i]) {
                let at = (i - from) * choices;
                *out.at_mut(i, h) = (at..at + choices).map(|k| values[k]).fold(f64::NEG_INFINITY, f64::max);
            }
        }
    }
    out
}

/// The regression that the next sweep would be, as rows: targets of (A4) as rewards, and nothing behind them.
pub(crate) fn regression(rows: &Rows, settings: &Settings, space: &ActionSpace, q: &Evaluator) -> Rows {
    let (bounds, largest) = (Bounds::of(rows, settings), largest(q, rows, space));
    let mut out = rows.clone();
    for i in 0..rows.len() {
        let next = bounds.clip(largest.at(i, 0));
        let follows = if rows.terminated[i] { 0.0 } else { rows.discount(i, settings.discount) * next };
        out.rewards[i * rows.rewards_per_row + settings.rewards[0]] += follows;
        out.discounts[i] = 0.0;
    }
    out
}

/// At most `max` rows to improve on, in their order. First, up to half of them where there are others: the rows that end episodes,
/// then, by chance, the last [`BEFORE_END`] of episodes that terminated and the other `endings`, which come first among `rows`, since
/// few rows show outcomes to avoid or to reach. Then others by chance. All count alike, so that rows near the end of an episode
/// have more than their share. Each is a chain of its own.
pub(crate) fn sample(rows: &Rows, endings: usize, max: usize, seed: u64) -> Rows {
    let mut order: Vec<(EndKind, u64, usize)> =
        kinds(rows, endings).into_iter().enumerate().map(|(i, kind)| (kind, mix(&[seed, i as u64]), i)).collect();
    order.sort_unstable();
    let near = order.partition_point(|&(kind, ..)| kind < EndKind::Other);
    let first = near.min((max / 2).max(max.saturating_sub(order.len() - near)));
    let others = near..order.len().min(near + max - first);
    let mut kept: Vec<usize> = order[..first].iter().chain(&order[others]).map(|&(_, _, i)| i).collect();
    kept.sort_unstable();
    let mut out = rows.without_rows();
    kept.into_iter().for_each(|i| out.extend(rows, i..i + 1));
    out.starts_chain.fill(true);
    out.truncated.iter_mut().zip(&out.terminated).for_each(|(cut, ends)| *cut = !ends);
    out
}

/// What a row shows of the end of its episode; the first are kept longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum EndKind {
    /// The end itself: the row terminates.
    End,
    /// What led there.
    LedThere,
    Other,
}

/// The kind of each row (n,); the first `endings` were kept for the ends of episodes.
fn kinds(rows: &Rows, endings: usize) -> Vec<EndKind> {
    let mut kinds = vec![EndKind::Other; rows.len()];
    // Rows from here to the terminal row of the episode, by stream.
    let mut to_end: HashMap<u32, usize> = HashMap::new();
    for i in (0..rows.len()).rev() {
        let steps = to_end.entry(rows.streams[i]).or_insert(usize::MAX);
        if rows.terminated[i] {
            *steps = 0;
        } else if rows.truncated[i] {
            *steps = usize::MAX;
        }
        kinds[i] = match *steps {
            0 => EndKind::End,
            1..BEFORE_END => EndKind::LedThere,
            _ if i < endings => EndKind::LedThere,
            _ => EndKind::Other,
        };
        *steps = if rows.starts_chain[i] { usize::MAX } else { steps.saturating_add(1) };
    }
    kinds
}

impl Bounds {
    /// r_min / (1 - gamma) to r_max / (1 - gamma), and 0 where a row terminates. Where nothing is discounted a value adds up at
    /// most one reward for each row. Values are about the prior mean, which is within the bounds: a value that
    /// no row has lowered yet stays.
    fn of(rows: &Rows, settings: &Settings) -> Self {
        let horizon = horizon(discount_max(rows, settings), f64::INFINITY).min(rows.len().max(1) as f64);
        let (mean, reward) = (settings.prior_mean, settings.rewards[0]);
        let ends = if rows.terminated.contains(&true) { 0.0 } else { f64::NAN };
        let raw = |i: usize| {
            let taken = settings.about_prior_mean(0.0, rows.discount(i, settings.discount), rows.terminated[i]);
            horizon * (rows.reward(i)[reward] - taken)
        };
        let values = || (0..rows.len()).map(raw);
        let among = |value: f64| if mean == 0.0 { f64::NAN } else { value };
        Self {
            low: values().fold(f64::INFINITY, f64::min).min(ends).min(among(mean)) - mean,
            high: values().fold(f64::NEG_INFINITY, f64::max).max(ends).max(among(mean)) - mean,
        }
    }

    fn clip(self, value: f64) -> f64 {
        value.clamp(self.low, self.high)
    }
}

fn look(keep_going: KeepGoing<'_>) -> Result<(), BatchError> {
    if keep_going() { Ok(()) } else { Err(BatchError::Stopped) }
}

/// Mean |change| of the maxima of Q or of a copy, whichever is largest, in parts of the range of the new ones; 0 where neither varies.
fn mean_change(before: &Matrix, after: &Matrix) -> f64 {
    let of = |h: usize| {
        let (before, after) = (before.col(h), after.col(h));
        let ends = after.iter().fold([f64::INFINITY, f64::NEG_INFINITY], |[l, h], v| [l.min(*v), h.max(*v)]);
        let moved = before.iter().zip(after).map(|(b, a)| (b - a).abs()).sum::<f64>() / before.len().max(1) as f64;
        let range = ends[1] - ends[0];
        if moved == 0.0 { 0.0 } else { moved / range.max(f64::MIN_POSITIVE) }
    };
    (0..after.cols()).map(of).fold(0.0, f64::max)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Episodes of `lengths` rows of one state variable and two actions; the first ones terminate.
    fn episodes(lengths: &[usize], terminated: usize) -> Rows {
        let mut rows = Rows::new(3, 1);
        for (k, &length) in lengths.iter().enumerate() {
            for step in 0..length {
                let last = step + 1 == length;
                let x = rows.len() as f64;
                rows.states.extend([x, 1.0, 0.0]);
                rows.next_states.extend([x + 1.0, 1.0, 0.0]);
                rows.rewards.push(1.0);
                rows.discounts.push(f64::NAN);
                rows.ratios.push(1.0);
                rows.streams.push(0);
                rows.terminated.push(last && k < terminated);
                rows.truncated.push(last && k >= terminated);
                rows.starts_chain.push(step == 0);
            }
        }
        rows
    }

    #[test]
    fn a_row_has_the_same_noise_among_others_and_equal_rows_have_their_own() {
        let rows = episodes(&[4], 0);
        let all = seeds(3, &rows.states, rows.dim);
        assert_eq!(seeds(3, &rows.states[rows.dim..], rows.dim), all[1..]);
        let twice = seeds(3, &[rows.states.clone(), rows.states.clone()].concat(), rows.dim);
        assert_eq!(twice[..4], all);
        assert!(twice[4..].iter().all(|seed| !all.contains(seed)));
        assert!(seeds(4, &rows.states, rows.dim).iter().all(|seed| !all.contains(seed)));
    }

    #[test]
    fn rows_before_terminal_ones_are_kept_first() {
        let rows = episodes(&[100, 500, 400], 1);
        let kept = sample(&rows, 0, 130, 7);
        assert_eq!(kept.len(), 130);
        let places: Vec<usize> = (0..kept.len()).map(|i| kept.state(i)[0] as usize).collect();
        assert!((40..100).all(|place| places.contains(&place)), "the last 60 of the episode that terminated");
        assert!(places.windows(2).all(|w| w[0] < w[1]) && places.iter().any(|&place| place >= 600));
        assert!(kept.starts_chain.iter().all(|&starts| starts), "each is a chain of its own");
        let (ended, cut) =
            (kept.terminated.iter().filter(|&&t| t).count(), kept.truncated.iter().filter(|&&t| t).count());
        assert_eq!((ended, cut), (1, 129));
        assert_eq!(sample(&rows, 0, 130, 7).states, kept.states, "the same rows again");
        // Half of the places are the others' where there are more rows near ends than that.
        let half = sample(&rows, 0, 80, 7);
        let near = (0..80).filter(|&i| (40.0..100.0).contains(&half.state(i)[0])).count();
        assert_eq!((half.len(), near, half.terminated.iter().filter(|&&t| t).count()), (80, 40, 1));
        // Rows that were kept for how episodes end come before all others.
        let first = sample(&rows, 20, 170, 7);
        assert!((0..20).all(|i| first.state(i)[0] as usize == i));
        // Without others they have all places.
        assert_eq!(sample(&episodes(&[50, 50], 2), 0, 80, 7).len(), 80);
    }

    #[test]
    fn all_of_an_episode_is_swept_over_however_many_have_terminated() {
        let (count, length, max) = (200, 200, 6000);
        let kept = sample(&episodes(&[length; 200], count), 0, max, 7);
        assert_eq!((kept.len(), kept.terminated.iter().filter(|&&ends| ends).count()), (max, count));
        let mut by_phase = [0; 10];
        (0..max).for_each(|i| by_phase[kept.state(i)[0] as usize % length / 20] += 1);
        assert_eq!(by_phase[7..].iter().sum::<usize>(), max / 2, "the last 60 of each");
        assert!(by_phase.iter().all(|&rows| rows > 300), "{by_phase:?}");
    }
}
