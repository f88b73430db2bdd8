//! Weights, variance and evidence from [`Statistics`]: one linear system of the dictionary's size.
//!
//! Statistics are kept in the units of a base kernel k_1. The model's kernel is k = s k_1 and its noise variance
//! sigma0^2 = s ratio: the mean depends on ratio alone, so s and ratio can be re-estimated without touching S.
//! ```text
//! (S - B + ratio I) u = p                         fixed point of bootstrapped targets, V = phi' u          (P2)
//! Var u = s ratio (S + ratio I)^-1               targets taken as given                                   (V2)
//! -2 log p = n log s + (n - m) log ratio + log|A| + (q - p' A^-1 p) / (s ratio) + n log 2 pi,   A = S + ratio I   (E7)
//! ```
//! Numbers refer to `docs/mathematics.md`, which writes kappa for ratio.
//! Where rows are forgotten S, B, p and q are kept `unit` times as large ([`super::forgetting`]). With a ratio that is also
//! `unit` times as large, u and Var u are the same, and the evidence but for its n, which is the effective number of rows, and for
//! m log unit. It is then the evidence under the likelihood in which each row has its weight for an exponent: no probability of
//! the rows.

mod arrivals;
mod cached;

pub use arrivals::Arrivals;

use super::dense::{
    Cholesky, Matrix, NotPositiveDefinite, Op, Scratch, Sides, Singular, Tridiagonal, ViewMut, axpy, dot, multiply,
    rank_k, solve_and_invert, solve_general, solve_general_into, solve_lower, solve_lower_transposed, tight,
    turn_and_multiply,
};
use super::dictionary::Dictionary;
use super::golden::golden_section;
use super::kernel::Kernel;
use super::raw;
use super::statistics::{Running, Statistics};
use cached::CachedSolves;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;

/// Bounds of s: out of the way of any data (a base kernel made before the first reward has a variance of 1e-12, one that a refit
/// has chosen a variance of 1 whatever the rewards are), but far from overflow and underflow.
pub(crate) const SIGNAL_MIN: f64 = 1e-200;
pub(crate) const SIGNAL_MAX: f64 = 1e50;

/// Overall scale of the model relative to its base kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// s: the model's kernel is s times the base kernel; positive.
    pub signal: f64,
    /// ratio = sigma0^2 / s; positive.
    pub ratio: f64,
}

impl Default for Scale {
    fn default() -> Self {
        Self::of_noise(1.0)
    }
}

impl Scale {
    /// The base kernel as it is, with this noise variance.
    pub fn of_noise(noise_variance: f64) -> Self {
        Self { signal: 1.0, ratio: noise_variance }
    }

    /// sigma0^2 = s ratio, reward^2.
    pub fn noise_variance(&self) -> f64 {
        self.signal * self.ratio
    }
}

/// Why there is no posterior.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SolveError {
    /// S + ratio I is not positive definite.
    #[error("no posterior: {0}")]
    NotPositiveDefinite(#[from] NotPositiveDefinite),
    /// The fixed point of bootstrapped targets does not exist.
    #[error("no fixed point of bootstrapped targets: {0}")]
    Singular(#[from] Singular),
}

/// The posterior at one moment.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Posterior {
    scale: Scale,
    rows: u64,
    /// What the statistics behind it were kept in, where rows are forgotten.
    #[serde(default)]
    aged: Option<Aged>,
    #[serde(serialize_with = "tight")]
    feature_weights: Matrix,
    /// Where rows are followed nothing asks for it from one refresh to the next, and there is none.
    system: Cholesky,
    /// M^-1 (m, m) where rows are followed and gained one by one; empty elsewhere.
    #[serde(default, serialize_with = "tight")]
    inverse: Matrix,
    /// alpha and beta (m,): M^-1 lacks alpha beta', which the next row that is gained adds in passing.
    #[serde(default, with = "raw")]
    owed_left: Vec<f64>,
    #[serde(default, with = "raw")]
    owed_right: Vec<f64>,
    #[serde(serialize_with = "tight")]
    response: Matrix,
    #[serde(with = "raw")]
    energy: Vec<f64>,
    #[serde(with = "raw")]
    mean_target: Vec<f64>,
    /// Rows that it has gained one by one since the factor, or M^-1, was made of the whole matrix.
    #[serde(default)]
    gained: u64,
    #[serde(default)]
    images: Option<CachedSolves>,
    /// Whether targets are kept, so that there is an evidence.
    #[serde(default = "yes")]
    has_evidence: bool,
}

fn yes() -> bool {
    true
}

/// Statistics that forget, as they stood.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Aged {
    /// [`Statistics::unit`].
    unit: f64,
    /// [`Statistics::effective_rows`].
    rows: f64,
}

impl Aged {
    fn of(statistics: &Statistics) -> Option<Self> {
        statistics.forgets().then(|| Self { unit: statistics.unit(), rows: statistics.effective_rows() })
    }
}

/// A row that a posterior gains.
#[derive(Clone, Copy, Debug)]
pub struct RowUpdate<'a> {
    /// Features of what it observed, phi (m,).
    pub features: &'a [f64],
    /// Rewards (H,).
    pub rewards: &'a [f64],
    /// Number of its chain's slot.
    pub slot: u32,
    /// Discount gamma of the transition; 0 at a terminal state, and where every row is a chain of its own. A chain that is cut
    /// keeps it: it shows in [`super::statistics::BootstrapTerms::chains`].
    pub discount: f64,
}

/// Rank-one updates before a full solution, so that rounding errors do not accumulate.
const GAINED_MAX: u64 = 256;
/// Making it anew costs as much as gaining m over this many rows.
const GAINED_COST: usize = 16;
/// Share of what it was that the determinant of M keeps at least where a row is gained.
const KEPT_MIN: f64 = 1e-8;

/// What solving needs besides its result, kept so that one solve after the other allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct SolveWork {
    /// Whether a solution leaves M^-1 where rows are followed, for later ones to gain rows with.
    pub inverts: bool,
    scratch: Scratch,
    /// A - B where it is a full matrix.
    system: Matrix,
    /// A^-1 phi, or M^-1 e, of a row that is gained (m,).
    row: Vec<f64>,
    /// M^-T d of a row that is gained (m,).
    left: Vec<f64>,
    /// I - F' A^-1 Z and F' A^-1 p.
    small: Matrix,
    small_rhs: Matrix,
    small_solution: Matrix,
}

impl Posterior {
    /// Solve for the weights with every cut chain, and the chains of `running`, at their fixed point. O(m^3).
    ///
    /// # Errors
    /// If S + ratio I is not positive definite to working precision, or the fixed point does not exist.
    pub fn solve(statistics: &Statistics, running: &Running, scale: Scale) -> Result<Self, SolveError> {
        let mut out = Self::default();
        out.solve_again(statistics, running, scale, &mut SolveWork::default())?;
        Ok(out)
    }

    /// These weights u (m, H) of features at this scale, which were solved for elsewhere: they predict, and that is all.
    pub(crate) fn of_weights(feature_weights: Matrix, scale: Scale) -> Self {
        Self { scale, feature_weights, has_evidence: false, ..Self::default() }
    }

    /// Replace this by the result of [`Posterior::solve`], reusing its memory.
    ///
    /// # Errors
    /// As [`Posterior::solve`]; `self` is then invalid.
    pub fn solve_again(
        &mut self,
        statistics: &Statistics,
        running: &Running,
        scale: Scale,
        work: &mut SolveWork,
    ) -> Result<(), SolveError> {
        (self.scale, self.gained, self.aged) = (scale, 0, Aged::of(statistics));
        if statistics.follows_rows {
            self.system = Cholesky::default();
        } else {
            self.system.renew(&statistics.gram, self.ridge(), &mut work.scratch)?;
        }
        self.solve_weights(statistics, running, work)
    }

    /// ratio in the unit in which statistics are kept.
    pub fn ridge(&self) -> f64 {
        self.aged.map_or(self.scale.ratio, |aged| aged.unit * self.scale.ratio)
    }

    /// n: rows, or the effective number of them.
    fn count(&self) -> f64 {
        self.aged.map_or(self.rows as f64, |aged| aged.rows)
    }

    /// The same as statistics are kept, and never 0.
    fn kept_count(&self) -> f64 {
        self.aged.map_or(self.rows.max(1) as f64, |aged| (aged.unit * aged.rows).max(f64::MIN_POSITIVE))
    }

    /// What the statistics behind it are kept in.
    fn unit(&self) -> f64 {
        self.aged.map_or(1.0, |aged| aged.unit)
    }

    /// Rows up to which a posterior of m features gains them one by one: to make it anew would cost more.
    pub fn max_incremental_rows(features: usize) -> usize {
        features / GAINED_COST
    }

    /// Whether [`Posterior::update`] can make this the posterior of `statistics` at this scale, and is worth it. Where rows are
    /// forgotten each moves all of A, so that nothing can be gained.
    pub fn can_update(&self, statistics: &Statistics, scale: Scale) -> bool {
        self.scale == scale
            && !statistics.forgets()
            && self.system.factor().rows() == statistics.features()
            && statistics.rows.checked_sub(self.rows).is_some_and(|rows| self.gains_so_many(rows))
    }

    fn gains_so_many(&self, rows: u64) -> bool {
        let most = Self::max_incremental_rows(self.feature_weights.rows()) as u64;
        rows > 0 && rows <= most && self.gained.saturating_add(rows) <= GAINED_MAX
    }

    /// Whether [`Posterior::update_followed`] can make this the posterior of `statistics` at this scale, and is worth it.
    pub fn can_update_followed(&self, arrivals: &Arrivals, statistics: &Statistics, scale: Scale) -> bool {
        self.scale == scale
            && statistics.follows_rows
            && !statistics.forgets()
            && self.inverse.rows() == statistics.features()
            && !arrivals.missed
            && self.gains_so_many(arrivals.slots.len() as u64)
    }

    /// [`Posterior::update`] where rows are followed: M^-1 gains `arrivals`, all of them settled, one by one, O(m^2) each.
    /// ```text
    /// k = M^-1 e,   v = M^-T d,   D = 1 + d'k;       u <- u + k (r - d'u) / D       M^-1 <- M^-1 - k v' / D   (P7)
    /// ```
    ///
    /// # Errors
    /// If M becomes singular, or nearly; `before` then keeps its weights, and nothing more can be gained from it.
    pub fn update_followed(
        &mut self,
        before: &mut Self,
        arrivals: &Arrivals,
        statistics: &Statistics,
        work: &mut SolveWork,
    ) -> Result<(), SolveError> {
        let (m, rewards) = (statistics.features(), statistics.rewards());
        (self.scale, self.gained, self.aged) = (before.scale, before.gained, None);
        self.images = None;
        self.system = Cholesky::default();
        std::mem::swap(&mut self.inverse, &mut before.inverse);
        std::mem::swap(&mut self.owed_left, &mut before.owed_left);
        std::mem::swap(&mut self.owed_right, &mut before.owed_right);
        before.inverse.resize(0, 0);
        self.feature_weights.assign(&before.feature_weights);
        let SolveWork { row: k, left: v, .. } = work;
        k.resize(m, 0.0);
        v.resize(m, 0.0);
        for i in 0..arrivals.slots.len() {
            let (e, d) = (arrivals.traces.col(i), arrivals.differences.col(i));
            let sides = Sides { alpha: &self.owed_left, beta: &self.owed_right, x: e, y: d };
            turn_and_multiply(self.inverse.view_mut(), sides, k, v);
            let kept = 1.0 + dot(d, k);
            if kept.is_nan() || kept.abs() < KEPT_MIN || kept.is_infinite() {
                return Err(Singular { size: m }.into());
            }
            for (h, r) in arrivals.rewards[i * rewards..(i + 1) * rewards].iter().enumerate() {
                let u = self.feature_weights.col_mut(h);
                let error = r - dot(d, u);
                axpy(u, error / kept, k);
            }
            std::mem::swap(&mut self.owed_left, k);
            std::mem::swap(&mut self.owed_right, v);
            self.owed_right.iter_mut().for_each(|v| *v /= -kept);
            self.gained += 1;
        }
        if !self.feature_weights.is_finite() {
            return Err(Singular { size: m }.into());
        }
        self.account(statistics, &Running::default());
        Ok(())
    }

    /// Few running chains are a correction of low rank to the factor that is there; otherwise there is a system of its own.
    fn is_correction(statistics: &Statistics, running: &Running) -> bool {
        !statistics.follows_rows && statistics.closed.chains == 0 && 4 * running.chains() <= statistics.features()
    }

    /// Update the posterior `before` by the last `rows`, with one rank-one update of its factor per row. Equal to
    /// [`Posterior::solve`] on all rows, up to rounding. Takes `before`'s factor and cached solves. O(m^2) a row if no chain was
    /// cut.
    ///
    /// # Errors
    /// As [`Posterior::solve`]; `before` then keeps its weights, but its factor can no longer be updated.
    pub fn update<'a>(
        &mut self,
        before: &mut Self,
        rows: impl Iterator<Item = RowUpdate<'a>>,
        statistics: &Statistics,
        running: &Running,
        work: &mut SolveWork,
    ) -> Result<(), SolveError> {
        (self.scale, self.gained, self.aged) = (before.scale, before.gained, None);
        std::mem::swap(&mut self.system, &mut before.system);
        std::mem::swap(&mut self.images, &mut before.images);
        let gained = self.absorb(rows, &mut work.row).and_then(|()| match &mut self.images {
            Some(images) if Self::is_correction(statistics, running) => {
                images.arrange(running, statistics.rewards());
                self.correct(running, work)?;
                self.account(statistics, running);
                Ok(())
            }
            _ => self.solve_weights(statistics, running, work),
        });
        if gained.is_err() {
            std::mem::swap(&mut self.system, &mut before.system);
            (before.gained, before.images) = (GAINED_MAX, None);
        }
        gained
    }

    /// ```text
    /// k = A^-1 phi, A with the row;   v <- v - (phi' v) k for every image v of before;   then, for the row's chain and p,
    /// A^-1 z <- its image + k,        A^-1 p <- its image + r A^-1 z                   docs/mathematics.md (P5), (P6)
    /// ```
    fn absorb<'a>(&mut self, rows: impl Iterator<Item = RowUpdate<'a>>, k: &mut Vec<f64>) -> Result<(), SolveError> {
        for row in rows {
            k.clear();
            k.extend_from_slice(row.features);
            self.system.add_rank_one(k)?;
            self.gained += 1;
            let Some(images) = &mut self.images else { continue };
            solve_lower_transposed(self.system.factor().view(), ViewMut::column(k));
            let chain = images.column_of(row.slot, row.rewards.len());
            let columns = &mut images.columns;
            for j in 0..columns.cols() {
                let along = dot(row.features, columns.col(j));
                axpy(columns.col_mut(j), -along, k);
            }
            axpy(columns.col_mut(chain), 1.0, k);
            for (h, &r) in row.rewards.iter().enumerate() {
                let (response, trace) = columns.two_columns_mut(h, chain);
                axpy(response, r, trace);
            }
            columns.col_mut(chain).iter_mut().for_each(|z| *z *= row.discount);
        }
        Ok(())
    }

    /// The weights that the factor gives, and what follows from them.
    fn solve_weights(
        &mut self,
        statistics: &Statistics,
        running: &Running,
        work: &mut SolveWork,
    ) -> Result<(), SolveError> {
        if Self::is_correction(statistics, running) {
            let images = self.images.get_or_insert_default();
            images.solve(&self.system, statistics, running);
            self.correct(running, work)?;
        } else {
            self.images = None;
            self.solve_whole(statistics, running, work)?;
        }
        self.account(statistics, running);
        Ok(())
    }

    /// What else is asked of a posterior whose weights are known.
    fn account(&mut self, statistics: &Statistics, running: &Running) {
        self.rows = statistics.rows;
        self.has_evidence = !statistics.follows_rows;
        if statistics.follows_rows {
            return;
        }
        statistics.closed_response(running, &self.feature_weights, &mut self.response);
        let n = self.kept_count();
        self.energy.clear();
        self.mean_target.clear();
        for h in 0..statistics.rewards() {
            let (energy, total) = statistics.closed_targets(running, &self.feature_weights, h);
            self.energy.push(energy);
            self.mean_target.push(total / n);
        }
    }

    /// u = A^-1 p + A^-1 Z (I - F' A^-1 Z)^-1 F' A^-1 p: the weights where B = Z F', from the images of p and Z.   (P4)
    fn correct(&mut self, running: &Running, work: &mut SolveWork) -> Result<(), Singular> {
        let CachedSolves { columns, .. } = self.images.as_ref().expect("made or asked before");
        let (m, chains) = (columns.rows(), running.chains());
        let rewards = columns.cols() - chains;
        let u = &mut self.feature_weights;
        u.resize(m, rewards);
        (0..rewards).for_each(|h| u.col_mut(h).copy_from_slice(columns.col(h)));
        if chains == 1 {
            let (f, z) = (running.features.col(0), columns.col(rewards));
            let rest = 1.0 - dot(f, z);
            (0..rewards).for_each(|h| axpy(u.col_mut(h), dot(f, columns.col(h)) / rest, z));
        } else if chains > 1 {
            let (f, z) = (running.features.view(), columns.block(0, rewards, m, chains));
            work.small.resize(chains, chains);
            multiply(work.small.view_mut(), false, -1.0, f, Op::Transposed, z, Op::Plain);
            (0..chains).for_each(|k| *work.small.at_mut(k, k) += 1.0);
            work.small_rhs.resize(chains, rewards);
            let first = columns.block(0, 0, m, rewards);
            multiply(work.small_rhs.view_mut(), false, 1.0, f, Op::Transposed, first, Op::Plain);
            solve_general_into(&work.small, &work.small_rhs, &mut work.small_solution, &mut work.scratch)
                .map_err(|Singular { .. }| Singular { size: m })?;
            multiply(u.view_mut(), true, 1.0, z, Op::Plain, work.small_solution.view(), Op::Plain);
        }
        if u.is_finite() { Ok(()) } else { Err(Singular { size: m }) }
    }

    /// (A - B) u = p with B as a matrix.
    fn solve_whole(
        &mut self,
        statistics: &Statistics,
        running: &Running,
        work: &mut SolveWork,
    ) -> Result<(), Singular> {
        whole_system(statistics, running, self.ridge(), &mut work.system);
        self.inverse.resize(0, 0);
        let owed = if statistics.follows_rows && work.inverts { statistics.features() } else { 0 };
        for part in [&mut self.owed_left, &mut self.owed_right] {
            part.clear();
            part.resize(owed, 0.0);
        }
        let inverse = (statistics.follows_rows && work.inverts).then_some(&mut self.inverse);
        solve_and_invert(&work.system, &statistics.response, &mut self.feature_weights, inverse, &mut work.scratch)
    }

    /// Whether its parts are of sizes that fit at most m features (others may have been admitted since) and H rewards.
    pub(crate) fn is_consistent(&self, m: usize, rewards: usize) -> bool {
        let known = self.feature_weights.rows();
        let factor = self.system.factor();
        known <= m
            && self.feature_weights.cols() == rewards
            && ((factor.rows(), factor.cols()) == (known, known)
                || (!self.has_evidence && (factor.rows(), factor.cols()) == (0, 0)))
            && [(0, 0), (known, known)].contains(&(self.inverse.rows(), self.inverse.cols()))
            && (self.inverse.rows() == 0 || (self.owed_left.len(), self.owed_right.len()) == (known, known))
            && (!self.has_evidence
                || (self.response.rows(), self.response.cols()) == (known, rewards)
                    && (self.energy.len(), self.mean_target.len()) == (rewards, rewards))
            && self.images.as_ref().is_none_or(|images| {
                (images.columns.rows(), images.columns.cols()) == (known, rewards + images.slots.len())
            })
    }

    /// u (m, H): V(x) = phi(x)' u.
    pub fn feature_weights(&self) -> &Matrix {
        &self.feature_weights
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        let vectors = self.feature_weights.bytes() + self.response.bytes();
        let images = self.images.as_ref().map_or(0, |images| images.columns.bytes());
        self.system.factor().bytes() + self.inverse.bytes() + vectors + images
    }

    /// The scale it was solved with.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Factor of A = S + ratio I (m, m), as statistics are kept; empty where rows are followed, for which [`Posterior::factor`] makes it.
    pub fn system(&self) -> &Cholesky {
        &self.system
    }

    /// Factor of A = S + ratio I (m, m), from the statistics behind this posterior. O(m^3).
    ///
    /// # Errors
    /// If A is not positive definite to working precision.
    pub fn factor(&self, statistics: &Statistics) -> Result<Cholesky, SolveError> {
        let mut factor = Cholesky::default();
        factor.renew(&statistics.gram, self.ridge(), &mut Scratch::default())?;
        Ok(factor)
    }

    /// Rows behind it.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Rows that it has gained one by one since the factor of A, or M^-1, was made of the whole matrix.
    pub fn gained(&self) -> u64 {
        self.gained
    }

    /// Variance of the (bootstrapped) targets about their mean, averaged over rewards, reward^2. Of no use where rows are
    /// followed.
    pub fn target_variance(&self) -> f64 {
        let n = self.kept_count();
        let each = self.energy.iter().zip(&self.mean_target).map(|(q, mean)| (q / n - mean * mean).max(0.0));
        each.sum::<f64>() / self.energy.len() as f64
    }

    /// Log evidence of the rows behind it, summed over rewards, nats (module documentation). With the targets of cut chains
    /// taken as given this is the sparse ("DTC") evidence. None where rows are followed: such targets are the model's own.
    pub fn log_evidence(&self) -> Option<f64> {
        if !self.has_evidence {
            return None;
        }
        let (n, m) = (self.count(), self.feature_weights.rows() as f64);
        let Scale { signal, ratio } = self.scale;
        let log_determinant = self.system.log_determinant() - m * self.unit().ln();
        let fixed = n * signal.ln() + (n - m) * ratio.ln() + log_determinant + n * (2.0 * PI).ln();
        let mut image = self.response.clone();
        solve_lower(self.system.factor().view(), image.view_mut());
        let each = (0..self.energy.len()).map(|h| {
            let quadratic = (self.energy[h] - dot(image.col(h), image.col(h))) / (signal * self.ridge());
            -0.5 * (fixed + quadratic)
        });
        Some(each.sum())
    }

    /// The part of [`Posterior::log_evidence`] that the targets cost, (q - p' A^-1 p) / (2 s ratio), summed over rewards, nats.
    /// None where rows are followed.
    pub fn misfit(&self) -> Option<f64> {
        if !self.has_evidence {
            return None;
        }
        let mut image = self.response.clone();
        solve_lower(self.system.factor().view(), image.view_mut());
        let left = |h: usize| self.energy[h] - dot(image.col(h), image.col(h));
        Some((0..self.energy.len()).map(left).sum::<f64>() / (2.0 * self.scale.signal * self.ridge()))
    }

    /// What the variational bound \[T09\] subtracts from the evidence: trace(K - K~) / (2 sigma0^2) per reward, nats. Above
    /// some 5 nats the dictionary is too small to select a model with.
    pub fn trace_gap(&self, statistics: &Statistics) -> f64 {
        let explained: f64 = (0..statistics.features()).map(|i| statistics.gram.at(i, i)).sum();
        ((statistics.prior_trace - explained) / (2.0 * self.ridge())).max(0.0)
    }

    /// Cov u / s as the model states it (m, m): ratio A^-1, targets taken as given.
    ///
    /// # Errors
    /// If A is not positive definite to working precision.
    pub fn covariance(&self, statistics: &Statistics) -> Result<Matrix, SolveError> {
        let mut inverse = if self.has_evidence { self.system.inverse() } else { self.factor(statistics)?.inverse() };
        for j in 0..inverse.cols() {
            inverse.col_mut(j).iter_mut().for_each(|v| *v *= self.ridge());
        }
        Ok(inverse)
    }

    /// Cov u / s from the scatter of scores (m, m), which grants that the value at cuts is uncertain too:
    /// ```text
    /// Cov u / s = M^-1 (W / s + ratio^2 I) M^-T,     M = S - B + ratio I                     docs/mathematics.md (V3)
    /// ```
    /// `scatter` is W (m, m), lower triangle: the sum over rows, or over clusters of rows, of score times its transpose; kept
    /// unit^2 times as large where rows are forgotten.
    ///
    /// # Errors
    /// If M is singular.
    pub fn sandwich(&self, statistics: &Statistics, running: &Running, scatter: &Matrix) -> Result<Matrix, Singular> {
        let (signal, ratio) = (self.scale.signal, self.ridge());
        let mut middle = scatter.clone();
        middle.mirror_lower();
        for j in 0..middle.cols() {
            middle.col_mut(j).iter_mut().for_each(|v| *v /= signal);
            *middle.at_mut(j, j) += ratio * ratio;
        }
        let system = self.whole_system(statistics, running);
        let right = solve_general(&system, &middle)?.transpose();
        solve_general(&system, &right)
    }

    /// M (m, m), the system that gives the weights, as `statistics` are kept.
    pub fn whole_system(&self, statistics: &Statistics, running: &Running) -> Matrix {
        let mut system = Matrix::default();
        whole_system(statistics, running, self.ridge(), &mut system);
        system
    }

    /// C (m, m): Var V(x) = k(x, x) - k_m(x)' C k_m(x), the projected process of \[JS09, eq. 15\], in units of the model's
    /// kernel k = s k_1.
    /// ```text
    /// C = L^-T (I - Cov u / s) L^-1 / s                                                       docs/mathematics.md (V8)
    /// ```
    /// `covariance` is Cov u / s (m, m).
    pub fn variance_matrix(&self, dictionary: &Dictionary, covariance: &Matrix) -> Matrix {
        let m = self.feature_weights.rows();
        let signal = self.scale.signal;
        let mut reduced = Matrix::identity(m);
        for j in 0..m {
            reduced.col_mut(j).iter_mut().zip(covariance.col(j)).for_each(|(r, c)| *r -= c);
        }
        // L^-T R L^-1 by two solves: first the columns, then, R being symmetric, the columns of the transpose.
        solve_lower_transposed(dictionary.factor().view(), reduced.view_mut());
        let mut out = reduced.transpose();
        solve_lower_transposed(dictionary.factor().view(), out.view_mut());
        for j in 0..m {
            for i in j..m {
                let mean = 0.5 * (out.at(i, j) + out.at(j, i)) / signal;
                *out.at_mut(i, j) = mean;
                *out.at_mut(j, i) = mean;
            }
        }
        out
    }

    /// The scale at which the weights are as large as their prior says, where rows are followed: s such that the weights less
    /// what the constant of the kernel takes have their expected size. ratio stays.
    /// ```text
    /// s = (u'u - mean(V)^2 / b) / tr(S (S + ratio I)^-1)                               docs/mathematics.md (N5), (N6)
    /// ```
    /// `kernel` is the base kernel; b its constant. Where that is a column, its own u_j^2 is taken off instead. Averaged over rewards. Where there is nothing to estimate from the scale
    /// stays as it is.
    pub fn matched_scale(&self, statistics: &Statistics, kernel: &Kernel) -> Scale {
        let (bias, column) = (kernel.bias_variance, kernel.columns.iter().position(|c| c.function.is_constant()));
        let (m, rewards) = (self.feature_weights.rows(), self.feature_weights.cols().max(1) as f64);
        let mut size = 0.0;
        for h in 0..self.feature_weights.cols() {
            let u = self.feature_weights.col(h);
            let mean = dot(&statistics.feature_sum, u) / statistics.weight.max(f64::MIN_POSITIVE);
            let constant = match column {
                Some(j) => u[j] * u[j],
                None if bias > 0.0 => mean * mean / bias,
                None => 0.0,
            };
            // A constant that takes nearly all leaves rounding.
            size += (dot(u, u) - constant).max(1e-6 * dot(u, u)) / rewards;
        }
        let Ok(factor) = self.factor(statistics) else { return self.scale };
        let inverse = factor.inverse_lower();
        let effective = m as f64 - self.ridge() * (0..m).map(|i| inverse.at(i, i)).sum::<f64>();
        let signal = size / effective;
        if signal.is_finite() && signal > 0.0 && effective > 0.0 {
            Scale { signal: signal.clamp(SIGNAL_MIN, SIGNAL_MAX), ..self.scale }
        } else {
            self.scale
        }
    }

    /// Noise and scale that maximise the log evidence at these targets: for each ratio the best s has a closed form, and
    /// ratio is searched on a line, O(m) per point after S has been made tridiagonal once, docs/mathematics.md
    /// (N1) to (N4).
    ///
    /// sigma0^2 stays at or above `noise_floor` times the variance of the targets. Where there is nothing to estimate from
    /// (targets all zero, a decomposition that fails) the scale stays as it is.
    pub fn tuned_scale(&self, statistics: &Statistics, noise_floor: f64) -> Scale {
        // Everything as statistics are kept, noise and ratio among it; s is the same.
        let total: f64 = self.energy.iter().sum();
        let rewards = self.energy.len() as f64;
        let (n, unit) = (self.count(), self.unit());
        if n < 1.0 || total.is_nan() || total <= f64::MIN_POSITIVE || !total.is_finite() {
            return self.scale;
        }
        let mut images = self.response.clone();
        let Ok(reduced) = Tridiagonal::reduce(&statistics.gram, &mut images) else { return self.scale };
        let m = statistics.features() as f64;
        let floor = (noise_floor * unit * self.target_variance()).max(f64::MIN_POSITIVE);
        let candidate = |log_ratio: f64| -> (f64, Scale) {
            let ratio = log_ratio.exp();
            let Some((log_determinant, explained)) = reduced.with_ridge(ratio, &images) else {
                return (f64::NEG_INFINITY, self.scale);
            };
            let residual = (total - explained).max(0.0);
            let noise = (residual / (n * rewards)).max(floor);
            let signal = (noise / ratio).clamp(SIGNAL_MIN, SIGNAL_MAX);
            let fixed = n * signal.ln() + (n - m) * log_ratio + log_determinant;
            let value = -0.5 * (rewards * fixed + residual / (signal * ratio));
            // A clamped s may push the noise below its floor: such a point is not allowed.
            let allowed = signal * ratio >= floor * (1.0 - 1e-9);
            let scale = Scale { signal, ratio: ratio / unit };
            (if allowed && value.is_finite() { value } else { f64::NEG_INFINITY }, scale)
        };
        // Evidence in log ratio may have more than one hump: a grid first, then a golden section within its best cell.
        let centre = self.ridge().ln();
        let grid = |k: i32| centre + 0.5 * f64::from(k);
        let best = (-30..=30)
            .map(|k| (candidate(grid(k)).0, k))
            .fold((f64::NEG_INFINITY, 0), |best, next| if next.0 > best.0 { next } else { best });
        if best.0 == f64::NEG_INFINITY {
            return self.scale;
        }
        let top = golden_section(grid(best.1 - 1), grid(best.1 + 1), 40, |x| candidate(x).0);
        let (value, scale) = candidate(top);
        if value >= best.0 { scale } else { candidate(grid(best.1)).1 }
    }
}

/// M = S - B + ratio I (m, m), the running chains closed where they stand: docs/mathematics.md (P2), (S10).
fn whole_system(statistics: &Statistics, running: &Running, ratio: f64, out: &mut Matrix) {
    out.assign(&statistics.gram);
    out.mirror_lower();
    for j in 0..statistics.features() {
        *out.at_mut(j, j) += ratio;
    }
    statistics.add_coupling(out, -1.0);
    running.subtract_coupling(out);
}

/// M <- M + s s' for the scores s (m, H) of one cluster of rows, averaged over rewards; lower triangle.
pub fn add_scores(scatter: &mut Matrix, scores: &Matrix) {
    rank_k(scatter.view_mut(), 1.0 / scores.cols() as f64, scores.view(), Op::Plain);
}
