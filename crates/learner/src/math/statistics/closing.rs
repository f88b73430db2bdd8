//! What chains add that are closed by the value of their last successor: those that were cut, and those that still run.

use super::chain::Chain;
use crate::math::dense::{Matrix, Op, View, ViewMut, axpy, dot, multiply, rank_k};
use crate::math::raw;
use serde::{Deserialize, Serialize};

/// Chains that are closed together: one product for all of them costs far less than one after the other, and their columns still
/// fit into the processor's cache.
pub(crate) const CLOSED_TOGETHER: usize = 256;

/// Coefficients of what chains closed by a bootstrapped value add (documentation of [`super`]).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BootstrapTerms {
    /// B (m, m), not symmetric.
    pub coupling: Matrix,
    /// h (m, H).
    pub response: Matrix,
    /// E (m, m), lower triangle.
    pub energy: Matrix,
    /// a (m,).
    #[serde(with = "raw")]
    pub sum: Vec<f64>,
    /// Number of chains closed this way.
    pub chains: u64,
}

/// The closing of one chain, as it enters [`BootstrapTerms`].
#[derive(Clone, Copy, Debug)]
pub struct Cut<'a> {
    /// The chain just before it is closed.
    pub chain: &'a Chain,
    /// phi(x_cut) (m,).
    pub features: &'a [f64],
}

impl BootstrapTerms {
    pub(crate) fn new(m: usize, rewards: usize, capacity: usize) -> Self {
        let grown = |cols| {
            let mut matrix = Matrix::with_capacity(capacity, if cols == 0 { capacity } else { cols });
            matrix.resize(m, if cols == 0 { m } else { cols });
            matrix
        };
        Self { coupling: grown(0), response: grown(rewards), energy: grown(0), sum: vec![0.0; m], chains: 0 }
    }

    /// Add the closing of one chain, docs/mathematics.md (S5). O(m^2).
    pub fn add(&mut self, cut: Cut<'_>) {
        let (chain, phi) = (cut.chain, cut.features);
        let gamma = chain.discount;
        for (j, &value) in phi.iter().enumerate() {
            axpy(self.coupling.col_mut(j), gamma * value, &chain.trace);
        }
        self.add_bracket(chain, phi);
        axpy(&mut self.sum, gamma * chain.weight_sum, phi);
        self.chains += 1;
    }

    /// What the bracket b (m,) that follows a chain adds to squared targets, and to nothing else: for g = gamma b, and C where the
    /// chain has it,
    /// ```text
    /// h <- h + c g;   E <- E + C g' + g C' + d g g'                                             docs/mathematics.md (S14)
    /// ```
    pub(super) fn add_bracket(&mut self, chain: &Chain, bracket: &[f64]) {
        let gamma = chain.discount;
        for (j, &value) in bracket.iter().enumerate() {
            let scale = gamma * gamma * chain.weight_energy * value;
            axpy(&mut self.energy.col_mut(j)[j..], scale, &bracket[j..]);
        }
        for (j, &value) in chain.value_trace.iter().enumerate() {
            let column = &mut self.energy.col_mut(j)[j..];
            axpy(column, chain.discount * bracket[j], &chain.value_trace[j..]);
            axpy(column, chain.discount * value, &bracket[j..]);
        }
        for (h, &c) in chain.weighted_target.iter().enumerate() {
            axpy(self.response.col_mut(h), gamma * c, bracket);
        }
    }

    /// Add the closings of many chains: [`BootstrapTerms::add`] of each, up to rounding. h, E and a are left out unless `targets` are
    /// asked for. O(m^2) a chain, in products of `CLOSED_TOGETHER` chains.
    pub fn add_all<'a>(&mut self, cuts: impl Iterator<Item = Cut<'a>>, targets: bool) {
        let (m, rewards) = (self.sum.len(), self.response.cols());
        let room = cuts.size_hint().1.map_or(CLOSED_TOGETHER, |most| most.min(CLOSED_TOGETHER));
        let (mut features, mut traces) = (Matrix::zeros(m, room), Matrix::zeros(m, room));
        let mut response = Matrix::zeros(room, if targets { rewards } else { 0 });
        let (mut roots, mut sums) = (Vec::with_capacity(room), Vec::with_capacity(room));
        let mut cuts = cuts.peekable();
        while cuts.peek().is_some() {
            roots.clear();
            sums.clear();
            for (k, Cut { chain, features: phi }) in cuts.by_ref().take(CLOSED_TOGETHER).enumerate() {
                let gamma = chain.discount;
                features.col_mut(k).copy_from_slice(phi);
                traces.col_mut(k).iter_mut().zip(&chain.trace).for_each(|(to, z)| *to = gamma * z);
                roots.push(gamma * chain.weight_energy.sqrt());
                sums.push(gamma * chain.weight_sum);
                let c = chain.weighted_target.iter().enumerate().take(response.cols());
                c.for_each(|(h, c)| *response.at_mut(k, h) = gamma * c);
            }
            let count = sums.len();
            let (f, z) = (features.block(0, 0, m, count), traces.block(0, 0, m, count));
            multiply(self.coupling.view_mut(), true, 1.0, z, Op::Plain, f, Op::Transposed);
            self.chains += count as u64;
            if targets {
                let c = response.block(0, 0, count, rewards);
                multiply(self.response.view_mut(), true, 1.0, f, Op::Plain, c, Op::Plain);
                let e = View::column(&sums);
                multiply(ViewMut::column(&mut self.sum), true, 1.0, f, Op::Plain, e, Op::Plain);
                for (k, root) in roots.iter().enumerate() {
                    features.col_mut(k).iter_mut().for_each(|phi| *phi *= root);
                }
                rank_k(self.energy.view_mut(), 1.0, features.block(0, 0, m, count), Op::Plain);
            }
        }
    }

    /// Add what these chains, closed by weights u (m,), add to the sum of squared targets of reward column h and to their sum.
    pub(super) fn add_targets(&self, u: &[f64], h: usize, energy: &mut f64, total: &mut f64) {
        *energy += 2.0 * dot(self.response.col(h), u);
        for j in 0..u.len() {
            let column = &self.energy.col(j)[j..];
            *energy += u[j] * (2.0 * dot(column, &u[j..]) - column[0] * u[j]);
        }
        *total += dot(&self.sum, u);
    }

    pub(in crate::math) fn grow(&mut self) {
        let m = self.sum.len() + 1;
        self.coupling.resize(m, m);
        self.energy.resize(m, m);
        self.response.resize(m, self.response.cols());
        self.sum.push(0.0);
    }

    /// Let all chains count `factor` times as often.
    pub(crate) fn scale(&mut self, factor: f64) {
        let Self { coupling, response, energy, sum, .. } = self;
        for matrix in [coupling, response, energy] {
            (0..matrix.cols()).for_each(|j| matrix.col_mut(j).iter_mut().for_each(|v| *v *= factor));
        }
        sum.iter_mut().for_each(|v| *v *= factor);
    }

    /// Whether its parts are of sizes that fit m features and H rewards.
    pub(crate) fn is_consistent(&self, m: usize, rewards: usize) -> bool {
        let shape = |matrix: &Matrix, cols| (matrix.rows(), matrix.cols()) == (m, cols);
        shape(&self.coupling, m) && shape(&self.response, rewards) && shape(&self.energy, m) && self.sum.len() == m
    }

    /// Bytes held, for reports of memory.
    pub(in crate::math) fn bytes(&self) -> usize {
        self.coupling.bytes() + self.response.bytes() + self.energy.bytes() + size_of::<f64>() * self.sum.len()
    }

    /// Add the terms of other chains (`sign` 1), or take them out again (-1).
    ///
    /// # Panics
    /// If dimensions differ.
    pub fn merge(&mut self, other: &Self, sign: f64) {
        add_matrix(&mut self.coupling, &other.coupling, sign);
        add_matrix(&mut self.response, &other.response, sign);
        add_matrix(&mut self.energy, &other.energy, sign);
        axpy(&mut self.sum, sign, &other.sum);
        self.chains =
            if sign.is_sign_positive() { self.chains + other.chains } else { self.chains.saturating_sub(other.chains) };
    }
}

/// What chains that still run would add to [`BootstrapTerms`], were they closed where they stand, docs/mathematics.md (S10). Of up
/// to m chains it is of low rank, and kept as columns, one for each chain:
/// ```text
/// B = Z F'        h = F C        E = F diag(w) F'        a = F e        F = (phi(x_cut), ...), Z = (gamma z, ...)
/// ```
/// Of more chains the columns would be larger than the sums, which are kept instead.
#[derive(Clone, Debug, Default)]
pub struct Running {
    /// F (m, c): features of the chains' last successors. Not kept with sums that were made without it (`Running::summed`).
    pub features: Matrix,
    /// Z (m, c): discounted traces.
    traces: Matrix,
    /// C (c, H).
    response: Matrix,
    /// w (c,).
    energy: Vec<f64>,
    /// e (c,).
    sum: Vec<f64>,
    /// Where each chain is kept (c,).
    slots: Vec<u32>,
    /// B, h, E and a, in place of Z, C, w and e.
    sums: Option<Box<BootstrapTerms>>,
}

impl Running {
    /// Take over `chains`, each with the number of its slot, one for each column of `Running::features`, of `rewards` reward
    /// columns each. Sums lack h, E and a unless `targets` are asked for.
    pub fn close<'a>(&mut self, chains: impl Iterator<Item = (usize, &'a Chain)>, rewards: usize, targets: bool) {
        let (m, count) = (self.features.rows(), self.features.cols());
        if Self::is_summed(m, count) {
            let features = std::mem::take(&mut self.features);
            let cuts = chains.enumerate().map(|(k, (slot, chain))| (slot, Cut { chain, features: features.col(k) }));
            *self = Self::summed(m, rewards, cuts, targets);
            self.features = features;
        } else {
            self.close_columns(chains, rewards);
        }
        assert_eq!(self.chains(), count, "one column of features for each chain");
    }

    fn close_columns<'a>(&mut self, chains: impl Iterator<Item = (usize, &'a Chain)>, rewards: usize) {
        let (m, count) = (self.features.rows(), self.features.cols());
        self.sums = None;
        self.traces.resize(m, count);
        self.response.resize(count, rewards);
        self.energy.clear();
        self.sum.clear();
        self.slots.clear();
        for (k, (slot, chain)) in chains.enumerate() {
            self.slots.push(slot as u32);
            let gamma = chain.discount;
            for (to, z) in self.traces.col_mut(k).iter_mut().zip(&chain.trace) {
                *to = gamma * z;
            }
            for (h, c) in chain.weighted_target.iter().enumerate() {
                *self.response.at_mut(k, h) = gamma * c;
            }
            self.energy.push(gamma * gamma * chain.weight_energy);
            self.sum.push(gamma * chain.weight_sum);
        }
    }

    /// Whether `chains` chains are kept as sums over m features.
    pub(in crate::math) fn is_summed(m: usize, chains: usize) -> bool {
        chains > m
    }

    /// The sums of `cuts`, each with the number of its slot, over m features and `rewards` reward columns, without F. They lack h, E
    /// and a unless `targets` are asked for.
    pub(in crate::math) fn summed<'a>(
        m: usize,
        rewards: usize,
        cuts: impl Iterator<Item = (usize, Cut<'a>)>,
        targets: bool,
    ) -> Self {
        let (mut sums, mut slots) = (BootstrapTerms::new(m, rewards, m), Vec::new());
        let cuts = cuts.map(|(slot, cut)| {
            slots.push(slot as u32);
            cut
        });
        sums.add_all(cuts, targets);
        Self { slots, sums: Some(Box::new(sums)), ..Self::default() }
    }

    /// Number of chains c.
    pub fn chains(&self) -> usize {
        self.slots.len()
    }

    /// Where each chain is kept (c,).
    pub(crate) fn slots(&self) -> &[u32] {
        &self.slots
    }

    /// B, h, E and a, where these are kept in place of columns.
    pub(in crate::math) fn sums(&self) -> Option<&BootstrapTerms> {
        self.sums.as_deref()
    }

    /// What the columns add to the sum of squared targets of reward column h and to their sum, closed by weights u (m,).
    pub(in crate::math) fn targets(&self, u: &[f64], h: usize) -> (f64, f64) {
        let (mut energy, mut total) = (0.0, 0.0);
        self.add_targets(u, h, &mut energy, &mut total);
        (energy, total)
    }

    /// Add that.
    pub(super) fn add_targets(&self, u: &[f64], h: usize, energy: &mut f64, total: &mut f64) {
        for k in 0..self.sum.len() {
            let value = dot(self.features.col(k), u);
            *energy += (2.0 * self.response.at(k, h) + self.energy[k] * value) * value;
            *total += self.sum[k] * value;
        }
    }

    /// Z (m, c); nothing where there are sums.
    pub(in crate::math) fn traces(&self) -> View<'_> {
        self.traces.view()
    }

    /// out <- out - Z F'.
    pub(in crate::math) fn subtract_coupling(&self, out: &mut Matrix) {
        if let Some(sums) = &self.sums {
            add_matrix(out, &sums.coupling, -1.0);
        } else if self.chains() > 0 {
            multiply(out.view_mut(), true, -1.0, self.traces(), Op::Plain, self.features.view(), Op::Transposed);
        }
    }
}

/// to <- to + sign from.
pub(super) fn add_matrix(to: &mut Matrix, from: &Matrix, sign: f64) {
    assert_eq!((to.rows(), to.cols()), (from.rows(), from.cols()), "statistics of one dictionary");
    for j in 0..to.cols() {
        axpy(to.col_mut(j), sign, from.col(j));
    }
}
