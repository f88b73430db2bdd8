//! Many predictions from one stream: sums that all of them share, that those of one discount share, and that each has for itself.
//!
//! A head is a sequence of cumulants r and one of discounts g. Heads whose rows have the same weights w share S ([`Gram`]),
//! those that also have the same g share the traces and B ([`Group`]), and p and q are a column for each of them,
//! docs/mathematics.md (H1) to (H3):
//! ```text
//! S <- S + w phi phi'        z <- g z + w phi    d <- g^2 d + w    e <- g e + w        P <- P + z r'
//! c <- g c;   q <- q + 2 r c + r^2 d;   t <- t + r e;   c <- c + r d
//! ```
//! g is the discount of the row before in the chain. Chains that are cut are closed as those of a critic are ([`BootstrapTerms`]), each
//! head with its own weights. With w = 1 and one head this is [`super::statistics::Statistics::absorb`].

use super::dense::{
    Matrix, Op, Singular, View, ViewMut, axpy, dot, multiply, product, rank_k, solve_general, symmetric_eigen,
};
use super::posterior::{Scale, SolveError};
use super::raw;
use super::statistics::{BootstrapTerms, Chain, Cut, Running};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::f64::consts::PI;

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
    /// What chains add that were cut.
    closed: BootstrapTerms,
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

    /// Let P gain the rows that wait.
    fn settle(&mut self) {
        self.waiting.add_to(&mut self.response);
        self.waiting.traces.clear();
        self.waiting.rewards.clear();
    }

    /// q of each head (H,), bootstrapped values left out.
    pub fn energy(&self) -> &[f64] {
        &self.energy
    }

    /// What chains add that were cut.
    pub fn closed(&self) -> &BootstrapTerms {
        &self.closed
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
        for ((q, c), &r) in self.energy.iter_mut().zip(&mut chain.weighted_target).zip(rewards) {
            let (before, gained) = (decay * *c, r * d);
            *q += r * (2.0 * before + gained);
            *c = before + gained;
        }
        chain.rows += 1;
        e
    }

    /// P <- P + Z R' and t <- t + R e for the traces Z (m, n), rewards R (H, n) and sums of weights e (n,) of a block of rows. Short
    /// blocks wait for others.
    pub fn absorb_response(&mut self, traces: View<'_>, rewards: View<'_>, weight_sums: &[f64]) {
        if rewards.cols() >= TOGETHER {
            self.settle();
            multiply(self.response.view_mut(), true, 1.0, traces, Op::Plain, rewards, Op::Transposed);
        } else {
            for k in 0..rewards.cols() {
                self.waiting.traces.extend_from_slice(traces.col(k));
                self.waiting.rewards.extend_from_slice(rewards.col(k));
            }
            if self.waiting.rewards.len() >= TOGETHER * self.energy.len() {
                self.settle();
            }
        }
        let sums = View::column(weight_sums);
        multiply(ViewMut::column(&mut self.target_sum), true, 1.0, rewards, Op::Plain, sums, Op::Plain);
    }

    /// Close the chain in `slot`, whose last row has the discount that the chain carries, with the value at features (m,).
    pub fn cut(&mut self, slot: usize, features: &[f64]) {
        let chain = &mut self.chains[slot];
        self.closed.add(Cut { chain, features });
        chain.reset();
    }

    /// Keep these columns alone.
    pub(crate) fn select(&mut self, columns: &[usize]) {
        self.settle();
        let matrix = |of: &Matrix| {
            let values = columns.iter().flat_map(|&c| of.col(c).iter().copied()).collect();
            Matrix::from_columns(of.rows(), columns.len(), values)
        };
        let vector = |of: &[f64]| columns.iter().map(|&c| of[c]).collect::<Vec<f64>>();
        (self.response, self.closed.response) = (matrix(&self.response), matrix(&self.closed.response));
        (self.energy, self.target_sum) = (vector(&self.energy), vector(&self.target_sum));
        self.chains.iter_mut().for_each(|chain| chain.weighted_target = vector(&chain.weighted_target));
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
        let mut running = Running::default();
        running.features = Matrix::zeros(m, chosen.len());
        for (to, &from) in chosen.iter().enumerate() {
            running.features.col_mut(to).copy_from_slice(model.features.col(from));
        }
        let of = |&k: &usize| (slots[k] as usize, &self.chains[slots[k] as usize]);
        running.close(chosen.iter().map(of), self.heads());
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
    /// `trace` is that of the chain there, docs/mathematics.md (G4).
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
        self.closed.merge(&other.closed, sign);
    }

    /// Whether a cut chain, or one of `running`, takes the value of its last successor.
    fn bootstraps(&self, running: &Running) -> bool {
        self.closed.chains > 0 || running.chains() > 0
    }

    /// u (m, H): weights of each head at its own ridge (H,), in the unit of `gram`, docs/mathematics.md (H4).
    /// ```text
    /// (S - B + ridge_h I) u_h = p_h
    /// ```
    /// One LU decomposition for each ridge in use; where nothing is bootstrapped the spectrum of S serves all of them.
    ///
    /// # Errors
    /// If a system is singular to working precision.
    pub fn solve(
        &self,
        gram: &Gram,
        spectrum: &Spectrum,
        running: &Running,
        ridges: &[f64],
    ) -> Result<Matrix, SolveError> {
        let (m, response) = (self.response.rows(), self.response());
        if !self.bootstraps(running) {
            let mut images = product(spectrum.vectors.view(), Op::Transposed, response.view(), Op::Plain);
            for (h, &ridge) in ridges.iter().enumerate() {
                let values = spectrum.values.iter();
                images.col_mut(h).iter_mut().zip(values).for_each(|(b, value)| *b /= value + ridge);
            }
            let u = product(spectrum.vectors.view(), Op::Plain, images.view(), Op::Plain);
            return if u.is_finite() { Ok(u) } else { Err(Singular { size: m }.into()) };
        }
        let mut base = gram.matrix.clone();
        base.mirror_lower();
        add(&mut base, &self.closed.coupling, -1.0);
        if running.chains() > 0 {
            let (z, f) = (running.traces(), running.features.view());
            multiply(base.view_mut(), true, -1.0, z, Op::Plain, f, Op::Transposed);
        }
        let mut order: Vec<usize> = (0..ridges.len()).collect();
        order.sort_by(|&a, &b| ridges[a].total_cmp(&ridges[b]));
        let mut out = Matrix::zeros(m, ridges.len());
        for heads in order.chunk_by(|&a, &b| ridges[a].to_bits() == ridges[b].to_bits()) {
            let mut system = base.clone();
            (0..m).for_each(|i| *system.at_mut(i, i) += ridges[heads[0]]);
            let mut right = Matrix::zeros(m, heads.len());
            for (k, &h) in heads.iter().enumerate() {
                right.col_mut(k).copy_from_slice(response.col(h));
            }
            let found = solve_general(&system, &right)?;
            for (k, &h) in heads.iter().enumerate() {
                out.col_mut(h).copy_from_slice(found.col(k));
            }
        }
        Ok(out)
    }

    /// Targets of head h, chains closed by what its weights u (m,) give.
    pub fn targets(&self, running: &Running, u: &[f64], h: usize) -> Targets {
        let (mut energy, mut sum) = (self.energy[h], self.target_sum[h]);
        if self.closed.chains > 0 {
            energy += 2.0 * dot(self.closed.response.col(h), u);
            for j in 0..u.len() {
                let column = &self.closed.energy.col(j)[j..];
                energy += u[j] * (2.0 * dot(column, &u[j..]) - column[0] * u[j]);
            }
            sum += dot(&self.closed.sum, u);
        }
        let (more, total) = running.targets(u, h);
        Targets { energy: energy + more, sum: sum + total }
    }

    /// Q'(p + B u) of each head (m, H): what its targets come to in the coordinates of the spectrum.
    pub fn images(&self, spectrum: &Spectrum, running: &Running, u: &Matrix) -> Matrix {
        let mut closed = self.response().into_owned();
        if self.closed.chains > 0 {
            multiply(closed.view_mut(), true, 1.0, self.closed.coupling.view(), Op::Plain, u.view(), Op::Plain);
        }
        if running.chains() > 0 {
            let values = product(running.features.view(), Op::Transposed, u.view(), Op::Plain);
            multiply(closed.view_mut(), true, 1.0, running.traces(), Op::Plain, values.view(), Op::Plain);
        }
        product(spectrum.vectors.view(), Op::Transposed, closed.view(), Op::Plain)
    }

    /// Whether its parts are of sizes that fit m features and H heads.
    pub(crate) fn is_consistent(&self, m: usize, heads: usize) -> bool {
        let shape = |matrix: &Matrix, cols| (matrix.rows(), matrix.cols()) == (m, cols);
        shape(&self.response, heads)
            && self.waiting.rewards.len().is_multiple_of(heads.max(1))
            && self.waiting.traces.len() == m * (self.waiting.rewards.len() / heads.max(1))
            && (self.energy.len(), self.target_sum.len()) == (heads, heads)
            && self.closed.is_consistent(m, heads)
            && self.chains.iter().all(|chain| chain.trace.len() == m && chain.weighted_target.len() == heads)
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        let chain = self.response.rows() + self.heads() + 4;
        let waiting = size_of_val(&self.waiting.traces[..]) + size_of_val(&self.waiting.rewards[..]);
        self.response.bytes()
            + waiting
            + self.closed.bytes()
            + size_of::<f64>() * (self.chains.len() * chain + 2 * self.heads())
    }
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
    pub fn log_evidence(&self, targets: Targets, images: &[f64], scale: Scale) -> f64 {
        let (n, m, ridge) = (self.rows(), images.len() as f64, self.unit * scale.ratio);
        let explained: f64 = images.iter().zip(&self.spectrum.values).map(|(b, v)| b * b / (v + ridge)).sum();
        let residual = (targets.energy - explained) / self.unit;
        self.value(self.log_determinant(scale.ratio), n, m, residual, scale)
    }

    /// log|S + ratio I|.
    fn log_determinant(&self, ratio: f64) -> f64 {
        self.spectrum.values.iter().map(|v| (v / self.unit + ratio).ln()).sum()
    }

    fn value(&self, log_determinant: f64, n: f64, m: f64, residual: f64, scale: Scale) -> f64 {
        let fixed = n * scale.signal.ln() + (n - m) * scale.ratio.ln() - self.gram.log_weights / self.unit;
        -0.5 * (fixed + log_determinant + residual / (scale.signal * scale.ratio) + n * (2.0 * PI).ln())
    }

    /// Of each head the log evidence at every ratio of a grid (K, H), each with the best s, and these s (K, H): one product,
    /// docs/mathematics.md (H6).
    /// ```text
    /// s = (q - b'(Lambda + ratio I)^-1 b) / (n ratio)
    /// ```
    /// The noise variance stays at or above `floor` times the variance of the head's targets. Where a head has no targets but
    /// zeros its column is minus infinity.
    pub fn profile(&self, targets: &[Targets], images: &Matrix, ratios: &[f64], floor: f64) -> (Matrix, Matrix) {
        let (n, m) = (self.rows(), images.rows());
        let mut squares = images.clone();
        (0..squares.cols()).for_each(|h| squares.col_mut(h).iter_mut().for_each(|b| *b *= *b));
        let mut inverses = Matrix::zeros(m, ratios.len());
        for (k, &ratio) in ratios.iter().enumerate() {
            let values = &self.spectrum.values;
            inverses.col_mut(k).iter_mut().zip(values).for_each(|(i, v)| *i = 1.0 / (v + self.unit * ratio));
        }
        let explained = product(inverses.view(), Op::Transposed, squares.view(), Op::Plain);
        let determinants: Vec<f64> = ratios.iter().map(|&ratio| self.log_determinant(ratio)).collect();
        let mut values = Matrix::zeros(ratios.len(), targets.len());
        let mut signals = values.clone();
        for (h, of) in targets.iter().enumerate() {
            let (energy, mean) = (of.energy / self.unit, of.sum / self.unit / n.max(1.0));
            let least = (floor * (energy / n.max(1.0) - mean * mean)).max(f64::MIN_POSITIVE);
            for (k, &ratio) in ratios.iter().enumerate() {
                let residual = (energy - explained.at(k, h) / self.unit).max(0.0);
                let scale = Scale { signal: (residual / n).max(least) / ratio, ratio };
                let value = self.value(determinants[k], n, m as f64, residual, scale);
                let counts = energy > f64::MIN_POSITIVE && value.is_finite();
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

fn add(to: &mut Matrix, from: &Matrix, sign: f64) {
    assert_eq!((to.rows(), to.cols()), (from.rows(), from.cols()), "statistics of one dictionary");
    (0..to.cols()).for_each(|j| axpy(to.col_mut(j), sign, from.col(j)));
}
