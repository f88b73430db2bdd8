//! Sufficient statistics of GPTD in the basis phi, and the traces that carry returns forward.
//!
//! Correlated noise: GPTD is Gaussian-process regression of (bootstrapped) returns on states, so one kernel row, one
//! symmetric rank-one update and two vector updates per transition suffice. White noise is the same with the features
//! g = phi(x) - gamma phi(x') and every row a chain of its own.
//!
//! A chain that is cut is closed with the value V(x_cut) = phi(x_cut)' u of its last successor. Everything that depends on
//! that value is linear or quadratic in u, so it is kept as coefficients ([`BootstrapTerms`]) and no value is ever frozen in,
//! (S4) and (S5) of `docs/mathematics.md`, which derives every sum that is kept here:
//! ```text
//! p(u) = p + B u        q(u) = q + 2 h' u + u' E u        sum of targets = t + a' u
//! B = sum gamma z phi'  h = sum gamma c phi   E = sum gamma^2 d phi phi'   a = sum gamma e phi       over the cuts
//! ```
//!
//! # lambda and ratios
//! With lambda below 1 every row is a cut with weight 1 - lambda, and with importance ratios rho the whole transition is
//! weighted. Both are one recursion, of which the above is the case lambda = rho = 1, docs/mathematics.md (S7), (S8):
//! ```text
//! z <- gamma c z + rho phi       S <- S + rho phi phi'       p <- p + z r        c = lambda rho
//! B <- B + gamma z psi' - gamma z c phi'       with z before the row, psi the features of the successor before it
//! ```
//! Targets are then what the model itself makes of its rows, and their evidence is not kept ([`Statistics::follows_rows`]).
//!
//! # Weights
//! A row may count w times: phi phi', the trace and d, e gain w times as much, and nothing else changes. Where rows are forgotten
//! w grows with the offset, and all sums and traces are kept in a unit that grows with it ([`super::forgetting`]).

mod chain;
mod closing;

pub use chain::{Chain, TRACE_STEP, carry};
pub(crate) use closing::CLOSED_TOGETHER;
pub use closing::{BootstrapTerms, Cut, Running};

use super::dense::{Matrix, Op, View, add_outer, axpy, dot, multiply, rank_k, tight};
use super::forgetting::Forgetting;
use super::raw;
use super::vector::{add_square, trace_step};
use closing::add_matrix;
use serde::{Deserialize, Serialize};

/// What rows and cuts of a block add to B where every row is followed ([`Statistics::follows_rows`]): gathered as columns, so
/// that it is one product.
/// ```text
/// B <- B + Z G'       Z = (gamma z, ...)       G = (psi - c phi, ...), or (psi, ...) for a chain that ends there
/// ```
#[derive(Clone, Debug, Default)]
pub struct Boundaries {
    traces: Matrix,
    brackets: Matrix,
    used: usize,
}

impl Boundaries {
    /// None yet, of m features, with room for `count`; the memory is kept.
    pub fn clear(&mut self, m: usize, count: usize) {
        self.used = 0;
        self.traces.renew(m, count);
        self.brackets.renew(m, count);
    }

    /// gamma z and psi - c phi of the last one (m,).
    pub fn last(&self) -> Option<(&[f64], &[f64])> {
        let k = self.used.checked_sub(1)?;
        Some((self.traces.col(k), self.brackets.col(k)))
    }

    /// Z and G.
    fn columns(&self) -> (View<'_>, View<'_>) {
        let m = self.traces.rows();
        (self.traces.block(0, 0, m, self.used), self.brackets.block(0, 0, m, self.used))
    }

    fn push(&mut self, chain: &Chain, psi: &[f64], carry: f64, phi: &[f64]) {
        let k = self.used;
        for (to, z) in self.traces.col_mut(k).iter_mut().zip(&chain.trace) {
            *to = chain.discount * z;
        }
        for ((to, psi), phi) in self.brackets.col_mut(k).iter_mut().zip(psi).zip(phi) {
            *to = psi - carry * phi;
        }
        self.used += 1;
    }

    /// End the chain with the value of its last successor, whose features are `psi` (m,).
    pub fn close(&mut self, chain: &Chain, psi: &[f64]) {
        self.push(chain, psi, 0.0, psi);
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.traces.bytes() + self.brackets.bytes()
    }
}

/// Columns from which on those that wait are added up.
pub const WAITING_MAX: usize = 32;

/// [`Boundaries`] that are not in B yet, since many at once cost less than one after the other.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct WaitingBoundaries {
    /// Z (m, count).
    #[serde(serialize_with = "tight")]
    traces: Matrix,
    /// G (m, count).
    #[serde(serialize_with = "tight")]
    brackets: Matrix,
}

impl WaitingBoundaries {
    fn count(&self) -> usize {
        self.traces.cols()
    }

    fn resize(&mut self, m: usize, count: usize) {
        self.traces.resize(m, count);
        self.brackets.resize(m, count);
    }

    fn extend(&mut self, m: usize, boundaries: &Boundaries) {
        let from = self.count();
        self.resize(m, from + boundaries.used);
        for k in 0..boundaries.used {
            self.traces.col_mut(from + k).copy_from_slice(boundaries.traces.col(k));
            self.brackets.col_mut(from + k).copy_from_slice(boundaries.brackets.col(k));
        }
    }
}

/// A row as the recursion with lambda and ratios takes it.
#[derive(Clone, Copy, Debug)]
pub struct Followed<'a> {
    /// phi (m,).
    pub features: &'a [f64],
    /// psi (m,): features of what the row before it in its chain led to. Not read where it starts one.
    pub successor: &'a [f64],
    /// Rewards (H,).
    pub rewards: &'a [f64],
    /// rho, clipped, not negative.
    pub ratio: f64,
    /// How often the row counts, as statistics keep it: 1 where nothing is forgotten ([`Statistics::weight_at`]).
    pub weight: f64,
    /// c = lambda rho: how much of the trace flows into the row ([`Chain::carry`]).
    pub carry: f64,
    /// Discount of the transition.
    pub discount: f64,
}

/// S, p, q and what cuts add: everything the posterior and its evidence depend on.
///
/// S only gains positive semidefinite terms. Statistics of disjoint pieces of stream with one dictionary add
/// ([`Statistics::merge`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Statistics {
    /// Rows absorbed n.
    pub rows: u64,
    /// S (m, m), lower triangle.
    pub gram: Matrix,
    /// p (m, H).
    pub response: Matrix,
    /// q (H,).
    #[serde(with = "raw")]
    pub energy: Vec<f64>,
    /// t (H,): sum of the targets, bootstrapped values left out.
    #[serde(with = "raw")]
    pub target_sum: Vec<f64>,
    /// Sum over rows of the prior variance of what was observed, trace(K), in units of the base kernel.
    pub prior_trace: f64,
    /// What closed chains add once u is known.
    pub closed: BootstrapTerms,
    /// Whether rows come with lambda below 1 or with ratios. Then q, t, h, E and a stand still: there is no evidence.
    #[serde(default)]
    pub follows_rows: bool,
    /// Sum of rho phi (m,), where rows are followed; empty where they are not.
    #[serde(default, with = "raw")]
    pub feature_sum: Vec<f64>,
    /// Sum of rho, where rows are followed.
    #[serde(default)]
    pub weight: f64,
    /// What B lacks yet.
    #[serde(default)]
    waiting: WaitingBoundaries,
    /// How much rows count, where they are forgotten.
    #[serde(default)]
    forgetting: Option<Forgetting>,
    /// Whether q, h and E are kept where rows are followed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    keeps_targets: bool,
}

impl Statistics {
    /// Nothing absorbed, for m features (room for `capacity`) and H rewards.
    pub fn new(m: usize, rewards: usize, capacity: usize) -> Self {
        let capacity = capacity.max(m);
        let closed = BootstrapTerms::new(m, rewards, capacity);
        let (gram, response) = (closed.energy.clone(), closed.response.clone());
        Self {
            rows: 0,
            gram,
            response,
            energy: vec![0.0; rewards],
            target_sum: vec![0.0; rewards],
            prior_trace: 0.0,
            closed,
            follows_rows: false,
            feature_sum: Vec::new(),
            weight: 0.0,
            waiting: WaitingBoundaries::default(),
            forgetting: None,
            keeps_targets: false,
        }
    }

    /// Rows are forgotten from here on, with this half-life in rows; none for never.
    ///
    /// # Panics
    /// If rows have been absorbed already.
    pub fn forget(&mut self, half_life: Option<f64>) {
        assert_eq!(self.rows, 0, "rows have been absorbed with another weight");
        self.forgetting = half_life.map(Forgetting::new);
    }

    /// Whether rows are forgotten.
    pub fn forgets(&self) -> bool {
        self.forgetting.is_some()
    }

    /// Offset of the newest row, where rows are forgotten.
    pub(crate) fn newest(&self) -> Option<u64> {
        self.forgetting.map(|forgetting| forgetting.newest())
    }

    /// How often the row at `offset` counts, as sums are kept.
    pub fn weight_at(&self, offset: u64) -> f64 {
        self.forgetting.map_or(1.0, |forgetting| forgetting.weight(offset))
    }

    /// Stored sums = unit x true sums; the unit is the newest row's weight, 1 where nothing is forgotten.
    pub fn unit(&self) -> f64 {
        self.forgetting.map_or(1.0, |forgetting| forgetting.unit())
    }

    /// Effective number of rows: the sum of their weights by age.
    pub fn effective_rows(&self) -> f64 {
        self.forgetting.map_or(self.rows as f64, |forgetting| forgetting.rows())
    }

    /// The row at `offset` is about to be absorbed. Where all sums have been brought to another unit, traces and whatever else
    /// was made of weights are to be multiplied by the factor that is returned.
    pub fn advance(&mut self, offset: u64) -> Option<f64> {
        let factor = self.forgetting.as_mut()?.advance(offset)?;
        self.scale(factor);
        Some(factor)
    }

    /// Let every row so far count `factor` times as often, running chains left out. The number of rows is rounded.
    pub fn discount(&mut self, factor: f64) {
        self.scale(factor);
        self.rows = (self.rows as f64 * factor).round() as u64;
        if let Some(forgetting) = &mut self.forgetting {
            forgetting.discount(factor);
        }
    }

    fn scale(&mut self, factor: f64) {
        self.flush();
        let BootstrapTerms { coupling, response, energy, sum, .. } = &mut self.closed;
        for matrix in [&mut self.gram, &mut self.response, coupling, response, energy] {
            (0..matrix.cols()).for_each(|j| matrix.col_mut(j).iter_mut().for_each(|v| *v *= factor));
        }
        let vectors = [&mut self.energy, &mut self.target_sum, &mut self.feature_sum, sum];
        vectors.into_iter().flatten().for_each(|v| *v *= factor);
        self.prior_trace *= factor;
        self.weight *= factor;
    }

    /// Rows come with lambda below 1 or with ratios from here on.
    pub fn follow_rows(&mut self) {
        if !self.follows_rows {
            self.follows_rows = true;
            self.feature_sum = vec![0.0; self.features()];
        }
    }

    /// Keep q, h and E where rows are followed, too, from here on, docs/mathematics.md (S14). A row then costs three rank-one updates
    /// more. The dictionary must not grow: a new element lacks what these sums have of the rows before it.
    pub fn keep_targets(&mut self) {
        self.keeps_targets = true;
    }

    /// Whether they are kept there.
    pub fn keeps_targets(&self) -> bool {
        self.keeps_targets
    }

    /// Whether its parts are of sizes that fit m features and H rewards.
    pub(crate) fn is_consistent(&self, m: usize, rewards: usize) -> bool {
        let shape = |matrix: &Matrix, cols| (matrix.rows(), matrix.cols()) == (m, cols);
        let closed = &self.closed;
        shape(&self.gram, m)
            && shape(&self.response, rewards)
            && (self.energy.len(), self.target_sum.len()) == (rewards, rewards)
            && shape(&closed.coupling, m)
            && shape(&closed.response, rewards)
            && shape(&closed.energy, m)
            && closed.sum.len() == m
            && (self.waiting.count(), self.waiting.brackets.rows())
                == (self.waiting.brackets.cols(), self.waiting.traces.rows())
            && (self.waiting.count() == 0 || self.waiting.traces.rows() == m)
            && self.feature_sum.len() == if self.follows_rows { m } else { 0 }
            && self.forgetting.is_none_or(|forgetting| forgetting.is_consistent())
    }

    /// Number of features m.
    pub fn features(&self) -> usize {
        self.gram.rows()
    }

    /// Rewards per row H.
    pub fn rewards(&self) -> usize {
        self.energy.len()
    }

    /// Absorb one transition of a running chain, all but S.
    /// ```text
    /// z <- gamma z + w phi;   p <- p + z r                                           docs/mathematics.md (S1), (S3)
    /// c <- gamma c;  d <- gamma^2 d + w;  e <- gamma e + w;  q <- q + 2 r c + r^2 d;  c <- c + r d;  t <- t + r e
    /// ```
    /// The second line is (S4). On chains that terminate the first gives \[JS09, eq. 12\].
    /// gamma is the discount of the transition before this one, `discount` this one's. phi is `features` (m,), r
    /// `rewards` (H,), w `weight`, 1 where nothing is forgotten. Cost O(m H), no allocation.
    ///
    /// # Panics
    /// If lengths differ or there is no reward: that is a bug in the caller.
    pub fn absorb(&mut self, chain: &mut Chain, features: &[f64], rewards: &[f64], discount: f64, weight: f64) {
        assert_eq!(features.len(), self.features(), "features are as long as the dictionary");
        assert_eq!(rewards.len(), self.rewards(), "one reward for each column");
        let gamma = chain.discount;
        let weighted = weight != 1.0;
        if weighted {
            for (z, phi) in chain.trace.iter_mut().zip(features) {
                *z = gamma * *z + weight * phi;
            }
        } else {
            trace_step(&mut chain.trace, gamma, features, self.response.col_mut(0), rewards[0]);
        }
        chain.weight_energy = gamma * gamma * chain.weight_energy + weight;
        chain.weight_sum = gamma * chain.weight_sum + weight;
        for (h, &r) in rewards.iter().enumerate() {
            if h > 0 || weighted {
                axpy(self.response.col_mut(h), r, &chain.trace);
            }
            let c = gamma * chain.weighted_target[h];
            self.energy[h] += 2.0 * r * c + r * r * chain.weight_energy;
            self.target_sum[h] += r * chain.weight_sum;
            chain.weighted_target[h] = c + r * chain.weight_energy;
        }
        chain.discount = discount;
        chain.rows += 1;
        self.count(weight);
    }

    fn count(&mut self, weight: f64) {
        self.rows += 1;
        if let Some(forgetting) = &mut self.forgetting {
            forgetting.count(weight);
        }
    }

    /// Absorb one transition of a running chain where rows are followed, all but S; what it adds to B goes into `boundaries`.
    /// ```text
    /// z <- gamma c z + w rho phi;   p <- p + z r;   B <- B + gamma z (psi - c phi)'       docs/mathematics.md (S7)
    /// ```
    /// gamma is the discount of the transition before this one, z that before it where it stands in B. A row of ratio 0 counts
    /// in no sum, and nothing before it reaches beyond it. Cost O(m H), no allocation.
    ///
    /// # Panics
    /// If lengths differ or there is no reward: that is a bug in the caller.
    pub fn follow(&mut self, chain: &mut Chain, row: Followed<'_>, boundaries: &mut Boundaries) {
        assert_eq!(row.features.len(), self.features(), "features are as long as the dictionary");
        assert_eq!(row.rewards.len(), self.rewards(), "one reward for each column");
        if chain.rows > 0 {
            boundaries.push(chain, row.successor, row.carry, row.features);
        }
        if self.keeps_targets {
            self.follow_targets(chain, &row, boundaries);
        }
        let (decay, share) = (chain.discount * row.carry, row.weight * row.ratio);
        for (z, phi) in chain.trace.iter_mut().zip(row.features) {
            *z = decay * *z + share * phi;
        }
        for (h, &r) in row.rewards.iter().enumerate() {
            axpy(self.response.col_mut(h), r, &chain.trace);
        }
        axpy(&mut self.feature_sum, share, row.features);
        self.weight += share;
        chain.reach = decay * chain.reach + row.ratio;
        chain.discount = row.discount;
        chain.rows += 1;
        if row.ratio > 0.0 {
            self.count(row.weight);
        }
    }

    /// What the row adds to squared targets where it is followed; the bracket before it is the last of `boundaries`.
    /// ```text
    /// C <- gamma c_t (C + d g);   c <- gamma c_t c;   d <- (gamma c_t)^2 d                      docs/mathematics.md (S14)
    /// d <- d + w rho;   q <- q + 2 r c + r^2 d;   h <- h + r C;   c <- c + r d
    /// ```
    fn follow_targets(&mut self, chain: &mut Chain, row: &Followed<'_>, boundaries: &Boundaries) {
        chain.value_trace.resize(row.features.len(), 0.0);
        if chain.rows > 0 {
            let (_, bracket) = boundaries.last().expect("a row that continues its chain has pushed one");
            self.closed.add_bracket(chain, bracket);
            axpy(&mut chain.value_trace, chain.discount * chain.weight_energy, bracket);
        }
        let decay = chain.discount * row.carry;
        chain.value_trace.iter_mut().chain(&mut chain.weighted_target).for_each(|sum| *sum *= decay);
        chain.weight_energy = decay * decay * chain.weight_energy + row.weight * row.ratio;
        for (h, &r) in row.rewards.iter().enumerate() {
            let c = chain.weighted_target[h];
            self.energy[h] += 2.0 * r * c + r * r * chain.weight_energy;
            axpy(self.closed.response.col_mut(h), r, &chain.value_trace);
            chain.weighted_target[h] = c + r * chain.weight_energy;
        }
    }

    /// A chain that is followed is closed with the value at features (m,): what that adds to squared targets, where these are kept.
    pub fn close_targets(&mut self, chain: &Chain, features: &[f64]) {
        if self.keeps_targets {
            self.closed.add_bracket(chain, features);
        }
    }

    /// B <- B + Z G'; where they may `wait`, when there are [`WAITING_MAX`] of them.
    pub fn absorb_boundaries(&mut self, boundaries: &Boundaries, wait: bool) {
        let m = self.features();
        if wait {
            self.waiting.extend(m, boundaries);
        }
        if !wait || self.waiting.count() >= WAITING_MAX {
            self.flush();
        }
        if !wait && boundaries.used > 0 {
            let (z, g) = boundaries.columns();
            add_products(&mut self.closed.coupling, 1.0, z, g);
        }
    }

    /// What waits goes into B.
    pub fn flush(&mut self) {
        if self.waiting.count() > 0 {
            let WaitingBoundaries { traces, brackets } = &self.waiting;
            add_products(&mut self.closed.coupling, 1.0, traces.view(), brackets.view());
            self.waiting.resize(0, 0);
        }
    }

    /// B (m, m), with what waits.
    pub fn coupling(&self) -> Matrix {
        let mut out = Matrix::zeros(self.features(), self.features());
        self.add_coupling(&mut out, 1.0);
        out
    }

    /// out <- out + sign B, with what waits.
    pub(super) fn add_coupling(&self, out: &mut Matrix, sign: f64) {
        add_matrix(out, &self.closed.coupling, sign);
        if self.waiting.count() > 0 {
            add_products(out, sign, self.waiting.traces.view(), self.waiting.brackets.view());
        }
    }

    /// S <- S + Phi Phi' for the features (m, k) of rows whose other terms go through [`Statistics::absorb`], each times the root
    /// of its weight; `prior_trace` is the weighted sum of their prior variances.
    pub fn absorb_gram(&mut self, features: View<'_>, prior_trace: f64) {
        self.prior_trace += prior_trace;
        if features.cols() == 1 {
            add_square(self.gram.view_mut(), features.col(0));
        } else {
            rank_k(self.gram.view_mut(), 1.0, features, Op::Plain);
        }
    }

    /// Close many chains as [`Statistics::cut`] closes one, up to rounding. The caller resets them.
    pub fn cut_all<'a>(&mut self, cuts: impl Iterator<Item = Cut<'a>>) {
        self.closed.add_all(cuts, true);
    }

    /// Close a chain that was cut off, with the value of its last successor, whose features are `features` (m,).
    pub fn cut(&mut self, chain: &mut Chain, features: &[f64]) {
        self.closed.add(Cut { chain, features });
        chain.reset();
    }

    /// One more feature, which nothing absorbed so far has: predictions do not move, docs/mathematics.md (G1).
    pub fn grow(&mut self) {
        assert!(
            !(self.keeps_targets && self.follows_rows),
            "a dictionary that grows keeps no targets of rows followed"
        );
        self.flush();
        let m = self.features() + 1;
        self.gram.resize(m, m);
        self.response.resize(m, self.rewards());
        if self.follows_rows {
            self.feature_sum.push(0.0);
        }
        self.closed.grow();
    }

    /// Add the statistics of another piece of stream with the same dictionary: the sum is as of one learner,
    /// docs/mathematics.md (S12). Where rows are forgotten this piece must have come as far as the other ([`Statistics::advance`]).
    ///
    /// # Panics
    /// If dimensions or half-lives differ, or the other has newer rows where rows are forgotten.
    pub fn merge(&mut self, other: &Self) {
        self.combine(other, 1.0);
        self.rows += other.rows;
    }

    /// Take the statistics of a piece of stream out again: the rest is as if that piece had never been seen.
    ///
    /// # Panics
    /// If dimensions or half-lives differ, `other` holds more rows, or newer ones where rows are forgotten.
    pub fn subtract(&mut self, other: &Self) {
        self.combine(other, -1.0);
        self.rows = self.rows.checked_sub(other.rows).expect("a piece is not larger than the whole");
    }

    /// Let sums be 0 that nothing is left of: all of them without a row, and B, h, E and a without a row that adds to them.
    pub fn clear_rounding(&mut self) {
        let (m, rewards) = (self.features(), self.rewards());
        if self.rows == 0 {
            let Self { follows_rows, keeps_targets, mut forgetting, .. } = *self;
            forgetting.iter_mut().for_each(|forgetting| forgetting.discount(0.0));
            let feature_sum = vec![0.0; self.feature_sum.len()];
            *self = Self { follows_rows, keeps_targets, forgetting, feature_sum, ..Self::new(m, rewards, m) };
        } else if self.closed.chains == 0 && !self.follows_rows {
            self.closed = BootstrapTerms::new(m, rewards, m);
        }
    }

    fn combine(&mut self, other: &Self, sign: f64) {
        assert_eq!(self.follows_rows, other.follows_rows, "statistics of one recursion");
        let sign = match (&mut self.forgetting, &other.forgetting) {
            (Some(ours), Some(theirs)) => {
                assert!(ours.newest() >= theirs.newest(), "the other piece is not newer");
                ours.combine(theirs, sign);
                sign * ours.from(theirs)
            }
            (None, None) => sign,
            _ => panic!("statistics that forget alike"),
        };
        axpy(&mut self.feature_sum, sign, &other.feature_sum);
        self.weight += sign * other.weight;
        add_matrix(&mut self.gram, &other.gram, sign);
        add_matrix(&mut self.response, &other.response, sign);
        axpy(&mut self.energy, sign, &other.energy);
        axpy(&mut self.target_sum, sign, &other.target_sum);
        self.prior_trace += sign * other.prior_trace;
        self.flush();
        self.closed.merge(&other.closed, sign);
        if other.waiting.count() > 0 {
            let WaitingBoundaries { traces, brackets } = &other.waiting;
            add_products(&mut self.closed.coupling, sign, traces.view(), brackets.view());
        }
    }

    /// p + B u (m, H): the sum of z y, every cut chain and each chain of `running` closed by the value that u (m, H) gives.
    pub(super) fn closed_response(&self, running: &Running, u: &Matrix, out: &mut Matrix) {
        out.assign(&self.response);
        if self.closed.chains > 0 {
            let b = self.closed.coupling.view();
            multiply(out.view_mut(), true, 1.0, b, Op::Plain, u.view(), Op::Plain);
        }
        if let Some(sums) = running.sums() {
            return multiply(out.view_mut(), true, 1.0, sums.coupling.view(), Op::Plain, u.view(), Op::Plain);
        }
        for h in 0..self.rewards() {
            for k in 0..running.chains() {
                let value = dot(running.features.col(k), u.col(h));
                axpy(out.col_mut(h), value, running.traces().col(k));
            }
        }
    }

    /// Sum of squared targets of reward column h and their sum at weights u (m, H), every cut chain and each chain of `running`
    /// closed by the value that u gives, as sums are kept ([`Statistics::unit`]).
    pub fn closed_targets(&self, running: &Running, u: &Matrix, h: usize) -> (f64, f64) {
        let (u, closed) = (u.col(h), &self.closed);
        let (mut energy, mut total) = (self.energy[h], self.target_sum[h]);
        if closed.chains > 0 {
            closed.add_targets(u, h, &mut energy, &mut total);
        }
        if let Some(sums) = running.sums() {
            sums.add_targets(u, h, &mut energy, &mut total);
        }
        running.add_targets(u, h, &mut energy, &mut total);
        (energy, total)
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.gram.bytes()
            + self.response.bytes()
            + self.closed.coupling.bytes()
            + self.closed.energy.bytes()
            + self.closed.response.bytes()
            + self.waiting.traces.bytes()
            + self.waiting.brackets.bytes()
    }
}

/// to <- to + alpha Z G'.
fn add_products(to: &mut Matrix, alpha: f64, z: View<'_>, g: View<'_>) {
    if z.cols() == 1 {
        add_outer(to.view_mut(), alpha, z.col(0), g.col(0));
    } else {
        multiply(to.view_mut(), true, alpha, z, Op::Plain, g, Op::Transposed);
    }
}
