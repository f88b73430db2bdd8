//! Many predictions from one stream: sums that all of them share, that the heads of one discount share, and that each has for
//! itself.
//!
//! A head is a sequence of cumulants r and one of discounts g. Heads whose rows have the same weights w share S ([`Gram`]),
//! those that also have the same g share the traces and B ([`Group`]), and p and q are a column for each of them,
//! docs/mathematics.md (H1) to (H3):
//! ```text
//! S <- S + w phi phi'        z <- g z + w phi    d <- g^2 d + w    e <- g e + w        P <- P + z r'
//! c <- g c;   q <- q + 2 r c + r^2 d;   t <- t + r e;   c <- c + r d
//! ```
//! g is the discount of the row before in the chain. Chains that are cut are closed like a critic's ([`BootstrapTerms`]), each
//! head with its own weights. With w = 1 and one head this is [`super::statistics::Statistics::absorb`].

mod sums;

use super::dense::{
    Accuracy, Matrix, Op, Scratch, Singular, View, ViewMut, axpy, dot, gain_targets, multiply, product, rank_k,
    solve_in_place, symmetric_eigen,
};
use super::posterior::Scale;
use super::raw;
use super::statistics::{BootstrapTerms, Chain, Cut, Running};
use super::transient;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::f64::consts::PI;

/// Cuts that B, E and h gain together: one alone would move all of h through the processor.
pub(crate) const CUTS_TOGETHER: usize = 32;
/// Rows that P gains together at least. A row alone would move all of P through the processor.
pub(crate) const TOGETHER: usize = 64;

/// What heads share whose rows have the same weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gram {
    /// S (m, m), lower triangle.
    matrix: Matrix,
    /// n: rows of positive weight; where rows are forgotten, each as often as it is remembered.
    rows: f64,
    /// Sum of log w over these rows.
    log_weights: f64,
}

impl Gram {
    /// No rows, for m features.
    pub fn new(m: usize) -> Self {
        Self { matrix: Matrix::zeros(m, m), rows: 0.0, log_weights: 0.0 }
    }

    /// S (m, m), lower triangle.
    pub fn matrix(&self) -> &Matrix {
        &self.matrix
    }

    /// n, as kept.
    pub fn rows(&self) -> f64 {
        self.rows
    }

    /// S <- S + Phi Phi' for features (m, n), each times the root of its weight.
    pub fn absorb(&mut self, features: View<'_>) {
        rank_k(self.matrix.view_mut(), 1.0, features, Op::Plain);
    }

    /// Count a row of this weight, remembered so often.
    pub fn count(&mut self, weight: f64, remembered: f64) {
        if weight > 0.0 {
            self.rows += remembered;
            self.log_weights += remembered * weight.ln();
        }
    }

    /// Eigenvalues and eigenvectors of S.
    ///
    /// # Errors
    /// If S is not finite.
    pub fn spectrum(&self) -> Result<Spectrum, Singular> {
        let (values, vectors) = symmetric_eigen(&self.matrix)?;
        Ok(Spectrum { values: values.into_iter().map(|v| v.max(0.0)).collect(), vectors })
    }

    /// One more feature; `cross` (m + 1,) is the last row of S.
    pub(crate) fn grow(&mut self, cross: &[f64]) {
        let m = self.matrix.rows();
        self.matrix.resize(m + 1, m + 1);
        cross.iter().enumerate().for_each(|(j, &value)| *self.matrix.at_mut(m, j) = value);
    }

    fn scale(&mut self, factor: f64) {
        scale(&mut self.matrix, factor);
        self.rows *= factor;
        self.log_weights *= factor;
    }

    fn combine(&mut self, other: &Self, sign: f64) {
        add(&mut self.matrix, &other.matrix, sign);
        self.rows += sign * other.rows;
        self.log_weights += sign * other.log_weights;
    }
}

/// S = Q Lambda Q'.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Spectrum {
    /// Lambda (m,), ascending, not negative.
    pub values: Vec<f64>,
    /// Q (m, m).
    pub vectors: Matrix,
}

/// Sums of the heads of one discount sequence and one weighting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Chains by slot.
    chains: Vec<Chain>,
    /// P (m, H), but for the rows that wait.
    response: Matrix,
    #[serde(default)]
    waiting: Waiting,
    /// q (H,).
    #[serde(with = "raw")]
    energy: Vec<f64>,
    /// t (H,).
    #[serde(with = "raw")]
    target_sum: Vec<f64>,
    /// What chains add that were cut, but for the cuts that wait.
    closed: BootstrapTerms,
    #[serde(default)]
    cuts: WaitingCuts,
}

/// Rows whose part of P waits for others, fewer than [`TOGETHER`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Waiting {
    /// Traces (m, n), by columns.
    #[serde(with = "raw")]
    traces: Vec<f64>,
    /// Rewards (H, n), by columns.
    #[serde(with = "raw")]
    rewards: Vec<f64>,
}

impl Waiting {
    /// P <- P + Z R'.
    fn add_to(&self, response: &mut Matrix) {
        let rows = self.rewards.len() / response.cols().max(1);
        if rows > 0 {
            let traces = View::from_columns(response.rows(), rows, &self.traces);
            let rewards = View::from_columns(response.cols(), rows, &self.rewards);
            multiply(response.view_mut(), true, 1.0, traces, Op::Plain, rewards, Op::Transposed);
        }
    }
}

/// Cuts whose part of B, E and h waits for others, fewer than [`CUTS_TOGETHER`]; a and the number of chains have theirs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct WaitingCuts {
    /// g z (m, n), by columns.
    #[serde(with = "raw")]
    traces: Vec<f64>,
    /// phi of what closed the chain (m, n), by columns.
    #[serde(with = "raw")]
    features: Vec<f64>,
    /// g c (H, n), by columns.
    #[serde(with = "raw")]
    targets: Vec<f64>,
    /// g times the root of d (n,).
    #[serde(with = "raw")]
    roots: Vec<f64>,
}

impl WaitingCuts {
    fn len(&self) -> usize {
        self.roots.len()
    }

    fn push(&mut self, chain: &Chain, features: &[f64]) {
        let (gamma, room) = (chain.discount, CUTS_TOGETHER - self.len());
        self.traces.reserve(room * features.len());
        self.features.reserve(room * features.len());
        self.targets.reserve(room * chain.weighted_target.len());
        self.traces.extend(chain.trace.iter().map(|z| gamma * z));
        self.features.extend_from_slice(features);
        self.targets.extend(chain.weighted_target.iter().map(|c| gamma * c));
        self.roots.push(gamma * chain.weight_energy.sqrt());
    }

    fn clear(&mut self) {
        let Self { traces, features, targets, roots } = self;
        [traces, features, targets, roots].into_iter().for_each(Vec::clear);
    }

    /// g z (m, n).
    fn traces(&self) -> View<'_> {
        View::from_columns(self.traces.len() / self.len().max(1), self.len(), &self.traces)
    }

    /// phi (m, n).
    fn features(&self) -> View<'_> {
        View::from_columns(self.features.len() / self.len().max(1), self.len(), &self.features)
    }

    /// Add them to `closed`. The features are weighted for that: they are good for nothing then.
    fn add_to(&mut self, closed: &mut BootstrapTerms) {
        if self.len() == 0 {
            return;
        }
        let targets = View::from_columns(closed.response.cols(), self.len(), &self.targets);
        let coupling = closed.coupling.view_mut();
        multiply(coupling, true, 1.0, self.traces(), Op::Plain, self.features(), Op::Transposed);
        multiply(closed.response.view_mut(), true, 1.0, self.features(), Op::Plain, targets, Op::Transposed);
        let m = closed.sum.len();
        for (features, root) in self.features.chunks_exact_mut(m.max(1)).zip(&self.roots) {
            features.iter_mut().for_each(|phi| *phi *= root);
        }
        rank_k(closed.energy.view_mut(), 1.0, self.features(), Op::Plain);
    }
}

/// Targets of one head at given weights, chains closed by the values these give: what its evidence depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Targets {
    /// Sum of w y^2.
    pub energy: f64,
    /// Sum of w y.
    pub sum: f64,
}

impl Group {
    /// Nothing absorbed, for m features and H heads.
    pub fn new(m: usize, heads: usize) -> Self {
        Self {
            chains: Vec::new(),
            response: Matrix::zeros(m, heads),
            waiting: Waiting::default(),
            energy: vec![0.0; heads],
            target_sum: vec![0.0; heads],
            closed: BootstrapTerms::new(m, heads, m),
            cuts: WaitingCuts::default(),
        }
    }

    /// Number of heads H.
    pub fn heads(&self) -> usize {
        self.energy.len()
    }

    /// p of each head (m, H), bootstrapped values left out.
    pub fn response(&self) -> Cow<'_, Matrix> {
        if self.waiting.rewards.is_empty() {
            return Cow::Borrowed(&self.response);
        }
        let mut response = self.response.clone();
        self.waiting.add_to(&mut response);
        Cow::Owned(response)
    }

    /// Let P gain the rows that wait, and B, E and h the cuts.
    pub(crate) fn settle(&mut self) {
        self.settle_rows();
        self.settle_cuts();
    }

    fn settle_rows(&mut self) {
        self.waiting.add_to(&mut self.response);
        self.waiting.traces.clear();
        self.waiting.rewards.clear();
    }

    fn settle_cuts(&mut self) {
        self.cuts.add_to(&mut self.closed);
        self.cuts.clear();
    }

    /// q of each head (H,), bootstrapped values left out.
    pub fn energy(&self) -> &[f64] {
        &self.energy
    }

    /// What chains add that were cut.
    pub fn closed(&self) -> Cow<'_, BootstrapTerms> {
        if self.cuts.len() == 0 {
            return Cow::Borrowed(&self.closed);
        }
        let mut closed = self.closed.clone();
        self.cuts.clone().add_to(&mut closed);
        Cow::Owned(closed)
    }

    /// The chain in `slot`, which is made if there is none.
    pub fn chain_mut(&mut self, slot: usize) -> &mut Chain {
        while self.chains.len() <= slot {
            self.chains.push(Chain::new(self.response.rows(), self.energy.len()));
        }
        &mut self.chains[slot]
    }

    /// Chains by slot.
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// Absorb a row of the chain in `slot`, all but P and t, whose trace goes into `trace` (m,); gives e. `features` is phi (m,),
    /// `rewards` r (H,), `decay` the discount of the row before it.
    ///
    /// # Panics
    /// If lengths differ, or there is no such chain.
    pub fn absorb(
        &mut self,
        slot: usize,
        decay: f64,
        weight: f64,
        features: &[f64],
        rewards: &[f64],
        trace: &mut [f64],
    ) -> f64 {
        let chain = &mut self.chains[slot];
        for ((z, phi), out) in chain.trace.iter_mut().zip(features).zip(trace) {
            *z = decay * *z + weight * phi;
            *out = *z;
        }
        let d = decay * decay * chain.weight_energy + weight;
        let e = decay * chain.weight_sum + weight;
        (chain.weight_energy, chain.weight_sum) = (d, e);
        gain_targets(&mut self.energy, &mut chain.weighted_target, rewards, decay, d);
        chain.rows += 1;
        e
    }

    /// P <- P + Z R' and t <- t + R e for the traces Z (m, n), rewards R (H, n) and sums of weights e (n,) of a block of rows. Short
    /// blocks wait for others.
    pub fn absorb_response(&mut self, traces: View<'_>, rewards: View<'_>, weight_sums: &[f64]) {
        if rewards.cols() >= TOGETHER {
            self.settle_rows();
            multiply(self.response.view_mut(), true, 1.0, traces, Op::Plain, rewards, Op::Transposed);
        } else {
            for k in 0..rewards.cols() {
                self.waiting.traces.extend_from_slice(traces.col(k));
                self.waiting.rewards.extend_from_slice(rewards.col(k));
            }
            if self.waiting.rewards.len() >= TOGETHER * self.energy.len() {
                self.settle_rows();
            }
        }
        let sums = View::column(weight_sums);
        multiply(ViewMut::column(&mut self.target_sum), true, 1.0, rewards, Op::Plain, sums, Op::Plain);
    }

    /// Close the chain in `slot`, whose last row has the discount that the chain carries, with the value at features (m,).
    pub fn cut(&mut self, slot: usize, features: &[f64]) {
        let chain = &mut self.chains[slot];
        self.cuts.push(chain, features);
        axpy(&mut self.closed.sum, chain.discount * chain.weight_sum, features);
        self.closed.chains += 1;
        chain.reset();
        if self.cuts.len() >= CUTS_TOGETHER {
            self.settle_cuts();
        }
    }

    /// Keep these columns alone.
    pub(crate) fn select(&mut self, which: &[usize]) {
        self.settle();
        let vector = |of: &[f64]| which.iter().map(|&c| of[c]).collect::<Vec<f64>>();
        self.response = columns(&self.response, which);
        self.closed.response = columns(&self.closed.response, which);
        (self.energy, self.target_sum) = (vector(&self.energy), vector(&self.target_sum));
        self.chains.iter_mut().for_each(|chain| chain.weighted_target = vector(&chain.weighted_target));
    }

    /// Take in the heads of `other`, which have learned the same rows with the same features: columns behind those there are.
    pub(crate) fn join(&mut self, mut other: Self) {
        self.settle();
        other.settle();
        self.response = beside(&self.response, &other.response);
        self.closed.response = beside(&self.closed.response, &other.closed.response);
        self.energy.append(&mut other.energy);
        self.target_sum.append(&mut other.target_sum);
        for (chain, other) in self.chains.iter_mut().zip(&mut other.chains) {
            chain.weighted_target.append(&mut other.weighted_target);
        }
    }

    /// End all chains without a trace of them.
    pub fn drop_chains(&mut self) {
        self.chains.clear();
    }

    /// The chains that run, closed where they stand: `model` has the features of their last successors.
    pub fn running(&self, model: &Running) -> Running {
        let runs = |slot: usize| self.chains.get(slot).is_some_and(|chain| chain.rows > 0);
        let (m, slots) = (self.response.rows(), model.slots());
        let chosen: Vec<usize> = (0..slots.len()).filter(|&k| runs(slots[k] as usize)).collect();
        let of = |&k: &usize| (slots[k] as usize, &self.chains[slots[k] as usize]);
        if Running::is_summed(m, chosen.len()) {
            let cut = |&k: &usize| (slots[k] as usize, Cut { chain: of(&k).1, features: model.features.col(k) });
            return Running::summed(m, self.heads(), chosen.iter().map(cut), true);
        }
        let mut running = Running::default();
        running.features = Matrix::zeros(m, chosen.len());
        for (to, &from) in chosen.iter().enumerate() {
            running.features.col_mut(to).copy_from_slice(model.features.col(from));
        }
        running.close(chosen.iter().map(of), self.heads(), true);
        running
    }

    /// Let every row so far count `factor` times as often.
    pub fn scale(&mut self, factor: f64) {
        self.settle();
        self.chains.iter_mut().for_each(|chain| chain.scale(factor));
        scale(&mut self.response, factor);
        self.energy.iter_mut().chain(&mut self.target_sum).for_each(|v| *v *= factor);
        self.closed.scale(factor);
    }

    /// One more feature, which nothing absorbed so far has. Chains lack their coordinate until [`Group::finish_newest`].
    pub(crate) fn grow(&mut self) {
        self.settle();
        let m = self.response.rows() + 1;
        self.response.resize(m, self.heads());
        self.closed.grow();
    }

    /// The newest coordinate in what one closed chain added, whose last successor has features (m,) before it and `value` in it;
    /// `trace` is the chain's there, docs/mathematics.md (G4).
    pub(crate) fn close_newest(&mut self, chain: &Chain, features: &[f64], value: f64, trace: f64) {
        let (m, gamma, closed) = (features.len(), chain.discount, &mut self.closed);
        let energy = gamma * gamma * chain.weight_energy;
        for (j, feature) in features.iter().enumerate() {
            *closed.coupling.at_mut(m, j) += gamma * trace * feature;
            *closed.energy.at_mut(m, j) += energy * value * feature;
        }
        axpy(&mut closed.coupling.col_mut(m)[..m], gamma * value, &chain.trace);
        *closed.coupling.at_mut(m, m) += gamma * trace * value;
        *closed.energy.at_mut(m, m) += energy * value * value;
        for (h, &c) in chain.weighted_target.iter().enumerate() {
            *closed.response.at_mut(m, h) += gamma * c * value;
        }
        closed.sum[m] += gamma * chain.weight_sum * value;
    }

    /// The newest entry of p of each head (H,), and of the traces of running chains, by slot.
    pub(crate) fn finish_newest(&mut self, response: &[f64], traces: &[f64]) {
        let m = self.response.rows() - 1;
        response.iter().enumerate().for_each(|(h, &p)| *self.response.at_mut(m, h) = p);
        for (chain, &trace) in self.chains.iter_mut().zip(traces) {
            // A slot whose last chain has ended holds a stale trace; its next chain starts at zero.
            chain.extend(if chain.rows > 0 { trace } else { 0.0 });
        }
    }

    fn combine(&mut self, other: &Self, sign: f64) {
        self.settle();
        add(&mut self.response, &other.response(), sign);
        axpy(&mut self.energy, sign, &other.energy);
        axpy(&mut self.target_sum, sign, &other.target_sum);
        self.closed.merge(&other.closed(), sign);
    }

    /// Whether a cut chain, or one of `running`, takes the value of its last successor.
    fn bootstraps(&self, running: &Running) -> bool {
        self.closed.chains > 0 || running.chains() > 0
    }

    /// u (m, n): weights of the heads `which` (n,), each at its own ridge (n,), in the unit of `gram`, docs/mathematics.md (H4).
    /// ```text
    /// (S - B + ridge_h I) u_h = p_h
    /// ```
    /// One LU decomposition for each ridge in use, of this `accuracy`; where nothing is bootstrapped the spectrum of S serves all
    /// of them. A head that cannot be solved for has a column of NaN and takes no other along: its system is singular to working
    /// precision, or its sums have overflowed.
    pub fn solve(
        &self,
        gram: &Gram,
        spectrum: &Spectrum,
        running: &Running,
        ridges: &[f64],
        which: &[usize],
        accuracy: Accuracy,
    ) -> Matrix {
        let mut out = if self.bootstraps(running) {
            self.solve_systems(gram, running, ridges, which, accuracy)
        } else {
            self.solve_by(spectrum, ridges, which)
        };
        for (k, &h) in which.iter().enumerate() {
            let u = out.col_mut(k);
            if !(self.energy[h].is_finite() && self.target_sum[h].is_finite() && u.iter().all(|u| u.is_finite())) {
                u.fill(f64::NAN);
            }
        }
        out
    }

    /// As [`Group::solve`], where nothing is bootstrapped.
    fn solve_by(&self, spectrum: &Spectrum, ridges: &[f64], which: &[usize]) -> Matrix {
        let mut out = self.responses(which);
        let mut images = transient::product(spectrum.vectors.view(), Op::Transposed, out.view(), Op::Plain);
        for (k, &ridge) in ridges.iter().enumerate() {
            let values = spectrum.values.iter();
            images.col_mut(k).iter_mut().zip(values).for_each(|(b, value)| *b /= value + ridge);
        }
        multiply(out.view_mut(), false, 1.0, spectrum.vectors.view(), Op::Plain, images.view(), Op::Plain);
        out
    }

    /// As [`Group::solve`], one LU decomposition for each ridge.
    fn solve_systems(
        &self,
        gram: &Gram,
        running: &Running,
        ridges: &[f64],
        which: &[usize],
        accuracy: Accuracy,
    ) -> Matrix {
        let m = self.response.rows();
        let mut system = gram.matrix.clone();
        system.mirror_lower();
        add(&mut system, &self.closed.coupling, -1.0);
        if self.cuts.len() > 0 {
            let (traces, features) = (self.cuts.traces(), self.cuts.features());
            multiply(system.view_mut(), true, -1.0, traces, Op::Plain, features, Op::Transposed);
        }
        running.subtract_coupling(&mut system);
        // Heads of one ridge side by side, solved where they stand, and then put back into their order.
        let mut order: Vec<usize> = (0..ridges.len()).collect();
        order.sort_by(|&a, &b| ridges[a].total_cmp(&ridges[b]));
        let mut out = self.responses(&order.iter().map(|&k| which[k]).collect::<Vec<_>>());
        let (diagonal, mut scratch): (Vec<f64>, _) = ((0..m).map(|i| system.at(i, i)).collect(), Scratch::default());
        let mut first = 0;
        for alike in order.chunk_by(|&a, &b| ridges[a].to_bits() == ridges[b].to_bits()) {
            (0..m).for_each(|i| *system.at_mut(i, i) = diagonal[i] + ridges[alike[0]]);
            let end = first + alike.len();
            if solve_in_place(&system, out.block_mut(0, first, m, alike.len()), accuracy, &mut scratch).is_err() {
                (first..end).for_each(|k| out.col_mut(k).fill(f64::NAN));
            }
            first = end;
        }
        put_in_order(&mut out, order);
        out
    }

    /// p of the heads `which` (m, n), bootstrapped values left out.
    fn responses(&self, which: &[usize]) -> Matrix {
        let mut out = transient::zeros(self.response.rows(), which.len());
        which.iter().enumerate().for_each(|(k, &h)| out.col_mut(k).copy_from_slice(self.response.col(h)));
        let (heads, rows) = (self.heads(), self.waiting.rewards.len() / self.heads().max(1));
        if rows > 0 {
            let rewards = self.waiting.rewards.chunks_exact(heads).flat_map(|row| which.iter().map(|&h| row[h]));
            let rewards = Matrix::from_columns(which.len(), rows, rewards.collect());
            let traces = View::from_columns(out.rows(), rows, &self.waiting.traces);
            multiply(out.view_mut(), true, 1.0, traces, Op::Plain, rewards.view(), Op::Transposed);
        }
        out
    }

    /// Targets of the heads `which` (n,), chains closed by what their weights u (m, n) give.
    pub fn targets(&self, running: &Running, u: &Matrix, which: &[usize]) -> Vec<Targets> {
        // E u of all heads at once: for one alone all of E would move through the processor.
        let closed = Some(&self.closed).filter(|closed| closed.chains > 0).into_iter().chain(running.sums());
        let closed: Vec<(&BootstrapTerms, Matrix)> = closed
            .map(|closed| {
                let mut energies = closed.energy.clone();
                energies.mirror_lower();
                (closed, transient::product(energies.view(), Op::Plain, u.view(), Op::Plain))
            })
            .collect();
        // Without cuts there is nothing to turn.
        let values = match self.cuts.len() {
            0 => Matrix::zeros(0, u.cols()),
            _ => product(self.cuts.features(), Op::Transposed, u.view(), Op::Plain),
        };
        let of = |(k, &h): (usize, &usize)| {
            let (mut energy, mut sum, u) = (self.energy[h], self.target_sum[h], u.col(k));
            for (closed, image) in &closed {
                energy += 2.0 * dot(closed.response.col(h), u) + dot(image.col(k), u);
                sum += dot(&closed.sum, u);
            }
            for (cut, (root, value)) in self.cuts.roots.iter().zip(values.col(k)).enumerate() {
                energy += value * (2.0 * self.cuts.targets[cut * self.heads() + h] + root * root * value);
            }
            let (more, total) = running.targets(u, h);
            Targets { energy: energy + more, sum: sum + total }
        };
        which.iter().enumerate().map(of).collect()
    }

    /// Q'(p + B u) of the heads `which` (m, n), u (m, n): what their targets come to in the coordinates of the spectrum.
    pub fn images(&self, spectrum: &Spectrum, running: &Running, u: &Matrix, which: &[usize]) -> Matrix {
        let mut closed = self.responses(which);
        if self.closed.chains > 0 {
            multiply(closed.view_mut(), true, 1.0, self.closed.coupling.view(), Op::Plain, u.view(), Op::Plain);
        }
        if self.cuts.len() > 0 {
            let values = product(self.cuts.features(), Op::Transposed, u.view(), Op::Plain);
            multiply(closed.view_mut(), true, 1.0, self.cuts.traces(), Op::Plain, values.view(), Op::Plain);
        }
        if let Some(sums) = running.sums() {
            multiply(closed.view_mut(), true, 1.0, sums.coupling.view(), Op::Plain, u.view(), Op::Plain);
        } else if running.chains() > 0 {
            let values = product(running.features.view(), Op::Transposed, u.view(), Op::Plain);
            multiply(closed.view_mut(), true, 1.0, running.traces(), Op::Plain, values.view(), Op::Plain);
        }
        transient::product(spectrum.vectors.view(), Op::Transposed, closed.view(), Op::Plain)
    }

    /// Whether its parts are of sizes that fit m features and H heads.
    pub(crate) fn is_consistent(&self, m: usize, heads: usize) -> bool {
        let shape = |matrix: &Matrix, cols| (matrix.rows(), matrix.cols()) == (m, cols);
        shape(&self.response, heads)
            && self.waiting.rewards.len().is_multiple_of(heads.max(1))
            && self.waiting.traces.len() == m * (self.waiting.rewards.len() / heads.max(1))
            && (self.energy.len(), self.target_sum.len()) == (heads, heads)
            && (self.cuts.traces.len(), self.cuts.features.len()) == (m * self.cuts.len(), m * self.cuts.len())
            && self.cuts.targets.len() == heads * self.cuts.len()
            && self.closed.is_consistent(m, heads)
            && self.chains.iter().all(|chain| chain.trace.len() == m && chain.weighted_target.len() == heads)
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        let chain = self.response.rows() + self.heads() + 4;
        let (rows, cuts) = (&self.waiting, &self.cuts);
        let waiting = [&rows.traces, &rows.rewards, &cuts.traces, &cuts.features, &cuts.targets];
        let waiting = waiting.iter().map(|of| size_of_val(&of[..])).sum::<usize>();
        self.response.bytes()
            + waiting
            + self.closed.bytes()
            + size_of::<f64>() * (self.chains.len() * chain + 2 * self.heads())
    }
}

/// What a head says of its own scale: its evidence chooses the rest.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Named {
    /// Nothing.
    Nothing,
    /// Its noise variance.
    Noise(f64),
    /// Its kernel over the base kernel.
    Signal(f64),
}

/// What the evidence of a head is made of besides its scale: n, log weights and targets, where rows are forgotten in the unit that
/// statistics are kept in.
#[derive(Clone, Copy, Debug)]
pub struct Observed<'a> {
    gram: &'a Gram,
    spectrum: &'a Spectrum,
    unit: f64,
}

impl<'a> Observed<'a> {
    /// Of these rows. `unit` is the weight of the newest row, 1 where nothing is forgotten.
    pub fn new(gram: &'a Gram, spectrum: &'a Spectrum, unit: f64) -> Self {
        Self { gram, spectrum, unit }
    }

    /// n.
    pub fn rows(&self) -> f64 {
        self.gram.rows / self.unit
    }

    /// Log evidence of a head whose targets have this `energy`, and whose images are b (m,), docs/mathematics.md (H5).
    /// ```text
    /// -1/2 [n log s + (n - m) log ratio - sum log w + log|S + ratio I| + (q - b'(Lambda + ratio I)^-1 b) / (s ratio) + n log 2 pi]
    /// ```
    /// `log_determinant` comes from [`Observed::log_determinant`] at the ratio.
    pub fn log_evidence(&self, targets: Targets, images: &[f64], scale: Scale, log_determinant: f64) -> f64 {
        let (n, m, ridge) = (self.rows(), images.len() as f64, self.unit * scale.ratio);
        let explained: f64 = images.iter().zip(&self.spectrum.values).map(|(b, v)| b * b / (v + ridge)).sum();
        let residual = (targets.energy - explained) / self.unit;
        let fixed = (n - m) * scale.ratio.ln() + log_determinant;
        self.value(fixed, n, residual, scale)
    }

    /// log|S + ratio I|: the same for all heads of one ratio.
    pub fn log_determinant(&self, ratio: f64) -> f64 {
        self.spectrum.values.iter().map(|v| (v / self.unit + ratio).ln()).sum()
    }

    /// `of_ratio` is (n - m) log ratio + log|S + ratio I|.
    fn value(&self, of_ratio: f64, n: f64, residual: f64, scale: Scale) -> f64 {
        let fixed = n * scale.signal.ln() + of_ratio - self.gram.log_weights / self.unit;
        -0.5 * (fixed + residual / (scale.signal * scale.ratio) + n * (2.0 * PI).ln())
    }

    /// Of each head the log evidence at every ratio of a grid (K, H), each with the best s that its part `named` (H,) leaves, and
    /// these s (K, H): one product, docs/mathematics.md (H6).
    /// ```text
    /// s = (q - b'(Lambda + ratio I)^-1 b) / (n ratio)
    /// ```
    /// A noise variance that is not named stays at or above `floor` times the variance of the head's targets. Where a head has no
    /// targets but zeros its column is minus infinity. The images are squared where they stand.
    pub fn profile(
        &self,
        targets: &[Targets],
        images: Matrix,
        ratios: &[f64],
        floor: f64,
        named: &[Named],
    ) -> (Matrix, Matrix) {
        let (n, m, mut squares) = (self.rows(), images.rows(), images);
        (0..squares.cols()).for_each(|h| squares.col_mut(h).iter_mut().for_each(|b| *b *= *b));
        let mut inverses = Matrix::zeros(m, ratios.len());
        for (k, &ratio) in ratios.iter().enumerate() {
            let values = &self.spectrum.values;
            inverses.col_mut(k).iter_mut().zip(values).for_each(|(i, v)| *i = 1.0 / (v + self.unit * ratio));
        }
        let explained = product(inverses.view(), Op::Transposed, squares.view(), Op::Plain);
        let of_ratio = |&ratio: &f64| (n - m as f64) * ratio.ln() + self.log_determinant(ratio);
        let of_ratios: Vec<f64> = ratios.iter().map(of_ratio).collect();
        let mut values = Matrix::zeros(ratios.len(), targets.len());
        let mut signals = values.clone();
        for (h, of) in targets.iter().enumerate() {
            let (energy, mean) = (of.energy / self.unit, of.sum / self.unit / n.max(1.0));
            let least = (floor * (energy / n.max(1.0) - mean * mean)).max(f64::MIN_POSITIVE);
            for (k, &ratio) in ratios.iter().enumerate() {
                let residual = (energy - explained.at(k, h) / self.unit).max(0.0);
                let signal = match named[h] {
                    Named::Nothing => (residual / n).max(least) / ratio,
                    Named::Noise(variance) => variance / ratio,
                    Named::Signal(signal) => signal,
                };
                let scale = Scale { signal, ratio };
                let value = self.value(of_ratios[k], n, residual, scale);
                let allowed = !matches!(named[h], Named::Signal(_)) || signal * ratio >= least;
                let counts = energy > f64::MIN_POSITIVE && value.is_finite() && allowed;
                *values.at_mut(k, h) = if counts { value } else { f64::NEG_INFINITY };
                *signals.at_mut(k, h) = scale.signal;
            }
        }
        (values, signals)
    }
}

/// Everything that is summed for many heads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadStatistics {
    /// One for each weighting.
    pub grams: Vec<Gram>,
    /// One for each discount sequence and weighting.
    pub groups: Vec<Group>,
}

impl HeadStatistics {
    /// Let every row so far count `factor` times as often.
    pub fn scale(&mut self, factor: f64) {
        self.grams.iter_mut().for_each(|gram| gram.scale(factor));
        self.groups.iter_mut().for_each(|group| group.scale(factor));
    }

    /// Add the statistics of other rows with the same heads and dictionary (`sign` 1), or take them out again (-1): the rest is as if
    /// these rows had never been there. Running chains are left as they are.
    pub fn combine(&mut self, other: &Self, sign: f64) {
        self.grams.iter_mut().zip(&other.grams).for_each(|(to, from)| to.combine(from, sign));
        self.groups.iter_mut().zip(&other.groups).for_each(|(to, from)| to.combine(from, sign));
    }
}

fn scale(matrix: &mut Matrix, factor: f64) {
    (0..matrix.cols()).for_each(|j| matrix.col_mut(j).iter_mut().for_each(|v| *v *= factor));
}

/// These columns.
fn columns(of: &Matrix, which: &[usize]) -> Matrix {
    let mut values = Vec::with_capacity(of.rows() * which.len());
    which.iter().for_each(|&c| values.extend_from_slice(of.col(c)));
    Matrix::from_columns(of.rows(), which.len(), values)
}

/// Let column k become column number `order[k]`, for a permutation of all columns.
fn put_in_order(matrix: &mut Matrix, mut order: Vec<usize>) {
    for k in 0..order.len() {
        while order[k] != k {
            let to = order[k];
            let (here, there) = matrix.two_columns_mut(k, to);
            here.swap_with_slice(there);
            order.swap(k, to);
        }
    }
}

/// The columns of both.
fn beside(left: &Matrix, right: &Matrix) -> Matrix {
    let cols = left.cols() + right.cols();
    let mut values = Vec::with_capacity(left.rows() * cols);
    for of in [left, right] {
        (0..of.cols()).for_each(|j| values.extend_from_slice(of.col(j)));
    }
    Matrix::from_columns(left.rows(), cols, values)
}

fn add(to: &mut Matrix, from: &Matrix, sign: f64) {
    assert_eq!((to.rows(), to.cols()), (from.rows(), from.cols()), "statistics of one dictionary");
    (0..to.cols()).for_each(|j| axpy(to.col_mut(j), sign, from.col(j)));
}
