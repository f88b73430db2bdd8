//! One model: hyperparameters, dictionary, statistics and running chains, and how rows change them.

use super::contest::Foretold;
use super::verification::{Pace, Verification, Verified};
use super::watch::{Alarm, Watch, Watched};
use super::{Settings, VarianceKind};
use crate::action::ActionValue;
use crate::heads::{Bank, Block};
use crate::math::backfill::{BackfillBuffer, Crossing, Observed, difference_residual};
use crate::math::dense::{Matrix, Op, SINGLY, View, ViewMut, axpy, dot, multiply, rank_k, solve_lower};
use crate::math::dictionary::Dictionary;
use crate::math::kernel::{Hyperparameters, Kernel, NoiseModel};
use crate::math::mixture::Mixtures;
use crate::math::posterior::{Arrivals, Posterior, Scale, SolveError, SolveWork, add_scores};
use crate::math::spread::{Spread, Spreading};
use crate::math::statistics::{Boundaries, Chain, Followed, Running, Statistics, WAITING_MAX};
use crate::snapshot::{Actions, Inputs, ReturnSpread, Snapshot};
use crate::transition::Rows;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;
use std::ops::Range;

/// Rows from the beginning of the stream of which every one is scored; later it is one in [`SCORE_STRIDE`].
const SCORE_ALL_BEFORE: u64 = 2048;
/// A score needs two triangular solves more, so it is sampled: by offset, so that it does not depend on batching.
const SCORE_STRIDE: u64 = 8;
/// Scored rows over which the recent score is averaged.
const SCORE_MEMORY: f64 = 256.0;
/// One row's score is bounded below, so that a single outlier does not drown a thousand rows, nats.
const SCORE_WORST: f64 = -50.0;
/// Rows below which noise and scale are left alone.
const TUNE_ROWS_MIN: u64 = 64;
/// Relative change of noise and scale below which a tuning has found what was there.
const TUNE_STEADY: f64 = 0.05;
/// Such tunings in a row that count: rows grow by 1/2^this from one to the next at first, and twice as much after each of them.
const TUNE_STEADY_MAX: u32 = 3;
/// Rows, and rows for each feature, that weights rest on before their errors are watched.
const SETTLED_ROWS: u64 = 1024;
const SETTLED_ROWS_PER_FEATURE: u64 = 10;
/// Rows, and rows for each feature, that a model may replace another with.
const OWN_ROWS: u64 = 1000;
const OWN_ROWS_PER_FEATURE: u64 = 4;
/// Effective parameters for each row above which the errors of fitted rows do not tell what is normal.
const FITTED_SHARE_MAX: f64 = 0.05;

/// Running sums of one cluster of rows whose returns share their noise (docs/mathematics.md (V5)).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Cluster {
    /// Sum of trace times TD error (m, H).
    scores: Matrix,
    rows: u64,
}

/// What is known of one stream besides its [`Chain`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Slot {
    /// Normalised successor of the last row, while the chain runs.
    #[serde(with = "crate::math::raw")]
    next_state: Vec<f64>,
    cluster: Cluster,
    /// r - V(x) of the last row under the weights of then (H,): its TD error but for the value of its successor.
    #[serde(default, with = "crate::math::raw")]
    pending: Vec<f64>,
    /// Number of that row, as the ring of recent rows counts.
    #[serde(default)]
    row: u64,
}

/// Log density of rewards before they are learned, under the weights of the last refresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Sum over scored rows, nats.
    pub sum: f64,
    /// Scored rows.
    pub rows: u64,
    /// Average over about the last `SCORE_MEMORY` scored rows, nats per row.
    pub recent: f64,
    /// Best that `recent` has been since it covered its whole memory.
    pub best: f64,
}

impl Score {
    /// Nats per scored row; none before the first.
    pub fn mean(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.sum / self.rows as f64)
    }

    /// Score of the rows since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self { sum: self.sum - earlier.sum, rows: self.rows - earlier.rows, ..*self }
    }

    fn add(&mut self, value: f64) {
        let value = if value.is_nan() { SCORE_WORST } else { value.max(SCORE_WORST) };
        self.sum += value;
        self.rows += 1;
        self.recent += (value - self.recent) / (self.rows as f64).min(SCORE_MEMORY);
        if self.rows as f64 == SCORE_MEMORY {
            self.best = self.recent;
        } else if self.rows as f64 > SCORE_MEMORY {
            self.best = self.best.max(self.recent);
        }
    }

    /// How far the recent score has fallen below its best, nats per row; 0 until there is enough to compare.
    pub fn drop(&self) -> f64 {
        if self.rows as f64 > SCORE_MEMORY { self.best - self.recent } else { 0.0 }
    }
}

/// Events counted since the model was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// States above the tolerance that found the dictionary full.
    pub novel_when_full: u64,
    /// Refreshes of the weights.
    pub refreshes: u64,
    /// Refreshes that had no solution: the weights before them stayed.
    pub failed_refreshes: u64,
    /// Chains cut by a time limit, a gap or a new session.
    pub cuts: u64,
    /// Chains that reached a terminal state.
    pub terminations: u64,
}

/// Hyperparameters with everything learned under them. Written and read back it goes on bit for bit as it would have.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Model {
    settings: Settings,
    inputs: Inputs,
    noise: NoiseModel,
    /// Kernel of the dictionary; the model's own is `scale.signal` times it.
    scale: Scale,
    dictionary: Dictionary,
    statistics: Statistics,
    recent: BackfillBuffer,
    chains: Vec<Chain>,
    slots: Vec<Slot>,
    /// Slot of each stream number; `u32::MAX` where it has none.
    slot_of_stream: Vec<u32>,
    scatter: Option<Matrix>,
    /// Scores that the scatter lacks yet (m, count): many at once cost less.
    #[serde(default, serialize_with = "crate::math::dense::tight")]
    waiting_scores: Matrix,
    /// lambda of the recursion.
    #[serde(default = "one")]
    lambda: f64,
    /// Mean square of the TD errors of rows that were scored lately, where rows are followed; 0 before the first.
    #[serde(default)]
    td_square: f64,
    /// How returns scatter about V, as of the last pass over all rows.
    #[serde(default)]
    spread: Option<Spread>,
    /// Cov u / s as snapshots state it (m, m), of the same pass: verification has no time to make it of the rows since.
    #[serde(default)]
    value_covariance: Option<Matrix>,
    /// Returns against what was predicted of them, where there is a spread.
    #[serde(default)]
    verification: Verification,
    posterior: Option<Posterior>,
    /// Rows since then that the posterior may gain, where rows are followed.
    #[serde(default = "Model::unknown_arrivals")]
    arrivals: Arrivals,
    rows_since_refresh: u64,
    rows_at_tuning: u64,
    features_at_tuning: usize,
    /// Tunings in a row that moved noise and scale by less than [`TUNE_STEADY`].
    #[serde(default)]
    steady_tunings: u32,
    score: Score,
    counts: Counts,
    /// What it has learned for its heads; none if it has no heads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    heads: Option<Box<Bank>>,
    /// Detector of drift in its errors; none if drift detection is off.
    #[serde(default)]
    watch: Option<Box<Watch>>,
    /// What it states of rows before it learns them, where somebody asks.
    #[serde(skip)]
    foretold: Option<Foretold>,
    /// Taken out while it is worked with; a pointer, since there is much of it.
    #[serde(skip)]
    work: Option<Box<Work>>,
}

fn one() -> f64 {
    1.0
}

/// Scratch of one block, kept between blocks so that learning does not allocate.
#[derive(Clone, Debug, Default)]
struct Work {
    states: Vec<f64>,
    points: Vec<f64>,
    /// Row of the block that each node belongs to.
    node_rows: Vec<usize>,
    features: Matrix,
    /// Scratch of features.
    covariances: Matrix,
    mixtures: Mixtures,
    residuals: Vec<f64>,
    /// Whether what the block's rows observe stands in `observed`, and not in `features`.
    observed_apart: bool,
    observed: Matrix,
    nodes: Vec<RowNodes>,
    rewards: Vec<f64>,
    coordinate: Vec<f64>,
    last_row: Vec<u32>,
    scored: Scored,
    gathered: Gathered,
    /// The running chains at the last refresh, and their last successors.
    running: Running,
    running_states: Vec<f64>,
    /// States of the block's scored successors.
    successors: Vec<f64>,
    solve: SolveWork,
    /// The posterior before the present one, whose memory the next one takes.
    spare: Posterior,
}

/// What the rows of a block come to besides S and p, gathered as columns so that each is one product.
#[derive(Clone, Debug, Default)]
struct Gathered {
    /// What they add to B, where rows are followed.
    boundaries: Boundaries,
    /// Traces times TD errors, averaged over rewards (m, count): one column for each row whose successor is known.
    scores: Matrix,
    scored: usize,
    /// What a pass over all rows gathers for the spread of returns.
    spreading: Option<Spreading>,
    /// Offset of the row that is looked at.
    offset: u64,
    /// Whether the rows have been learned already, and only their errors are looked at.
    revisits: bool,
}

impl Gathered {
    /// Nothing yet, with room for `count` columns of m numbers.
    fn clear(&mut self, m: usize, count: usize, boundaries: bool, scores: bool) {
        self.boundaries.clear(m, if boundaries { count } else { 0 });
        self.scores.renew(m, if scores { count } else { 0 });
        self.scored = 0;
    }

    /// Gather a score; its TD error, averaged over rewards.
    fn score(&mut self, trace: &[f64], errors: &[f64]) -> f64 {
        let square = errors.iter().map(|e| e * e).sum::<f64>() / errors.len() as f64;
        let size = square.sqrt();
        for (to, z) in self.scores.col_mut(self.scored).iter_mut().zip(trace) {
            *to = size * z;
        }
        self.scored += 1;
        size
    }

    fn bytes(&self) -> usize {
        self.boundaries.bytes() + self.scores.bytes()
    }
}

/// Scratch of the rows of a block that are scored.
#[derive(Clone, Debug, Default)]
struct Scored {
    rows: Vec<ScoredRow>,
    /// phi(x') of successors that are no node of the block.
    next: Matrix,
    next_points: Vec<f64>,
    /// phi(x) - gamma phi(x'), a column for each.
    difference: Matrix,
    /// The features of the last refresh solved with its system.
    solved: Matrix,
}

/// A row of the block that is scored.
#[derive(Clone, Copy, Debug)]
struct ScoredRow {
    /// Position in the block.
    k: usize,
    /// Discount, or 0 at a terminal state.
    discount: f64,
    next: Successor,
}

/// Where the features of a scored row's successor are.
#[derive(Clone, Copy, Debug)]
enum Successor {
    None,
    /// Node of the block.
    Node(usize),
    /// Column of [`Scored::next`].
    Extra(usize),
}

/// Where a row's states stand among the nodes of its block.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowNodes {
    pub(crate) slot: usize,
    /// Successor of the chain that a gap before this row cuts.
    pub(crate) gap: Option<usize>,
    /// What the row before it in its chain led to, where rows are followed and that is another state than its own.
    before: Option<usize>,
    pub(crate) state: usize,
    /// Next state, where it is needed: white noise, or a chain cut after this row.
    pub(crate) next: Option<usize>,
}

impl Work {
    /// Bytes held, for reports of memory.
    fn bytes(&self) -> usize {
        self.features.bytes()
            + self.covariances.bytes()
            + self.mixtures.bytes()
            + self.observed.bytes()
            + self.gathered.bytes()
    }

    /// Features of what the block's rows observe (m, rows).
    fn observed(&self) -> &Matrix {
        if self.observed_apart { &self.observed } else { &self.features }
    }
}

impl Model {
    /// A model that has learned nothing, with an empty dictionary.
    ///
    /// The tolerance is [`effective_tolerance`]: the sparse model means something only while what it discards is small against the
    /// noise (docs/mathematics.md (D5)).
    pub fn new(settings: Settings, inputs: Inputs, hyperparameters: &Hyperparameters) -> Self {
        let tolerance = effective_tolerance(&settings, hyperparameters);
        let dictionary =
            Dictionary::new(hyperparameters.kernel.clone(), inputs.dim(), tolerance, settings.dictionary_max);
        Self::with_dictionary(settings, inputs, hyperparameters, dictionary)
    }

    /// A model that has learned nothing, with this dictionary.
    pub fn with_dictionary(
        settings: Settings,
        inputs: Inputs,
        hyperparameters: &Hyperparameters,
        dictionary: Dictionary,
    ) -> Self {
        let (m, rewards) = (dictionary.len(), settings.rewards.len());
        let room = dictionary.max();
        let width = hyperparameters.kernel.projected_dim(inputs.dim());
        let scattered = settings.variance != VarianceKind::Model && hyperparameters.noise == NoiseModel::Correlated;
        let lambda = settings.first_lambda();
        let mut model = Self {
            inputs,
            noise: hyperparameters.noise,
            scale: Scale::of_noise(hyperparameters.noise_variance),
            statistics: Statistics::new(m, rewards, room),
            recent: BackfillBuffer::new(settings.backfill_rows, settings.refresh_rows, room, width, rewards),
            lambda: 1.0,
            td_square: 0.0,
            spread: None,
            value_covariance: None,
            verification: Verification::default(),
            chains: Vec::new(),
            slots: Vec::new(),
            slot_of_stream: Vec::new(),
            scatter: scattered.then(|| Matrix::zeros(m, m)),
            waiting_scores: Matrix::default(),
            posterior: None,
            arrivals: Self::unknown_arrivals(),
            rows_since_refresh: 0,
            rows_at_tuning: 0,
            features_at_tuning: 0,
            steady_tunings: 0,
            score: Score::default(),
            counts: Counts::default(),
            heads: None,
            watch: None,
            foretold: None,
            work: None,
            dictionary,
            settings,
        };
        model.start_heads();
        model.statistics.forget(model.settings.forgetting);
        if model.statistics.forgets() {
            model.recent.forget();
        }
        if model.scatters_rows() {
            model.recent.keep_scores(room);
        }
        model.set_lambda(lambda);
        model
    }

    /// Begin with the heads of the settings. White noise, which has no returns, knows none.
    fn start_heads(&mut self) {
        if !self.settings.heads.is_empty() && self.noise == NoiseModel::Correlated {
            let (heads, half_life) = (self.settings.heads.clone(), self.settings.forgetting);
            let grows = !self.dictionary.is_full();
            self.heads = Some(Box::new(Bank::new(heads, self.dictionary.len(), half_life, self.scale, grows)));
        }
    }

    /// What it has learned for its heads; none where it has none.
    pub fn heads(&self) -> Option<&Bank> {
        self.heads.as_deref()
    }

    /// Choose noise and scale of each head that does not name its own, from what has been learned so far.
    ///
    /// # Errors
    /// If a system cannot be solved; the scales are then as they were.
    pub fn tune_heads(&mut self) -> Result<(), SolveError> {
        let running = self.running();
        let (diagonal, floor) = (self.dictionary.kernel().diagonal(), self.settings.noise_floor);
        if let Some(heads) = &mut self.heads {
            heads.tune(&running, diagonal, floor)?;
        }
        Ok(())
    }

    /// Log evidence of each head, nats; empty where there is none.
    ///
    /// # Errors
    /// If a system cannot be solved.
    pub fn head_evidence(&self) -> Result<Vec<f64>, SolveError> {
        let Some(heads) = &self.heads else { return Ok(Vec::new()) };
        Ok(heads.log_evidence(&heads.solve(&self.running())?))
    }

    /// A model with the inputs, kernel, dictionary, lambda, scale and noise of this one that has learned nothing: for rows
    /// from another world than the ones before. How returns scatter about V is taken over as noise is; what verification has
    /// found is not.
    pub fn emptied(&self) -> Self {
        let hyperparameters = Hyperparameters {
            kernel: self.dictionary.kernel().clone(),
            noise: self.noise,
            noise_variance: self.scale.noise_variance(),
        };
        let (settings, inputs, dictionary) = (self.settings.clone(), self.inputs.clone(), self.dictionary.clone());
        let mut empty = Self::with_dictionary(settings, inputs, &hyperparameters, dictionary);
        empty.set_lambda(self.lambda);
        (empty.scale, empty.spread) = (self.scale, self.spread.clone());
        empty
    }

    /// Learn with this lambda, in \[0, 1\]. White noise has no use for one.
    ///
    /// # Panics
    /// If rows have been learned already.
    pub fn set_lambda(&mut self, lambda: f64) {
        assert_eq!(self.recent.end(), 0, "rows were learned with another lambda");
        if self.noise == NoiseModel::White {
            return;
        }
        self.lambda = lambda;
        // Where held-out returns choose the ridge, no evidence of returns may tune it, at lambda = 1 either.
        let leaves_chain = self.settings.action_value.as_ref().is_some_and(ActionValue::leaves_chain);
        if lambda < 1.0 || self.settings.selects_by_returns() || leaves_chain {
            self.follow_rows();
        }
    }

    /// Arrivals of a model that has no solution yet, or whose file does not tell.
    fn unknown_arrivals() -> Arrivals {
        let mut arrivals = Arrivals::default();
        arrivals.miss();
        arrivals
    }

    /// Rows up to which a solution gains those since the last one, where rows are followed; 0 where refreshes are too rare, and
    /// where rows are forgotten, since each then moves all of M.
    fn updates_followed(&self) -> usize {
        let most = Posterior::max_incremental_rows(self.dictionary.len());
        let followed = self.statistics.follows_rows && !self.statistics.forgets();
        if followed && self.refresh_interval() <= most as u64 { most } else { 0 }
    }

    /// lambda of its recursion.
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// From here on every row adds to B.
    fn follow_rows(&mut self) {
        self.statistics.follow_rows();
        self.recent.follow_rows(self.dictionary.max());
    }

    /// Importance ratio of row i, clipped; 1 under white noise, whose differences no trace runs through.
    fn ratio(&self, rows: &Rows, i: usize) -> f64 {
        if self.noise == NoiseModel::White { 1.0 } else { rows.ratios[i].min(self.settings.rho_max) }
    }

    /// c of row i: how much of the trace flows into it.
    fn carry(&self, rows: &Rows, i: usize) -> f64 {
        if self.noise == NoiseModel::White { 1.0 } else { self.lambda * rows.carry(i, self.settings.rho_max) }
    }

    /// Whether everything has the size that everything else expects: what is read from a file is asked this, since a model
    /// that does not hold together would panic at some later row.
    pub fn is_consistent(&self) -> bool {
        let (m, rewards, dim) = (self.dictionary.len(), self.settings.rewards.len(), self.inputs.dim());
        let slots = self.slots.len();
        self.settings.are_valid()
            && self.dictionary.is_consistent(dim)
            && self.inputs.scale.len() == dim
            && self.statistics.is_consistent(m, rewards)
            && self.steady_tunings <= TUNE_STEADY_MAX
            && (0.0..=1.0).contains(&self.lambda)
            && (self.lambda == 1.0 || self.statistics.follows_rows)
            && self.spread.as_ref().is_none_or(|spread| spread.is_consistent(m, rewards))
            && self.value_covariance.as_ref().is_none_or(|cov| cov.rows() == cov.cols() && cov.rows() <= m)
            && self.verification.is_consistent(rewards, slots)
            && (!self.recent.is_settled() || self.dictionary.is_full())
            && self.recent.is_consistent(m, self.dictionary.kernel().projected_dim(dim), rewards, slots)
            && self.chains.len() == slots
            && self.chains.iter().all(|chain| chain.trace.len() == m && chain.weighted_target.len() == rewards)
            && self.slot_of_stream.iter().all(|&slot| slot == u32::MAX || (slot as usize) < slots)
            && self.scatter.as_ref().is_none_or(|scatter| (scatter.rows(), scatter.cols()) == (m, m))
            && (self.waiting_scores.cols() == 0 || self.waiting_scores.rows() == m)
            && self.slots.iter().zip(&self.chains).all(|(slot, chain)| {
                let cluster = &slot.cluster;
                let scores = (cluster.scores.rows(), cluster.scores.cols()) == (m, rewards);
                (slot.pending.len() == rewards || slot.pending.is_empty())
                    && (slot.next_state.len() == dim || (chain.rows == 0 && slot.next_state.is_empty()))
                    && (!self.clusters() || scores)
            })
            && self.posterior.as_ref().is_none_or(|posterior| posterior.is_consistent(m, rewards))
            && self.arrivals.is_consistent(m, rewards)
            && self.heads.as_ref().is_none_or(|heads| heads.is_consistent(m, slots, dim))
            && self.watch.as_ref().is_none_or(|watch| watch.is_consistent(rewards, dim, slots))
    }

    /// Dictionary size m.
    pub fn dictionary(&self) -> &Dictionary {
        &self.dictionary
    }

    /// The statistics, closings of running chains left out.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Normalisation of states.
    pub fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// Prequential score since the model was made.
    pub fn score(&self) -> Score {
        self.score
    }

    /// What happened since the model was made.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Chains running now.
    pub fn running_chains(&self) -> usize {
        self.chains.iter().filter(|chain| chain.rows > 0).count()
    }

    /// The settings it learns by.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Take over settings that may change at run time: whether noise is tuned, and all that concerns refits.
    pub fn set_settings(&mut self, settings: &Settings) {
        let kept = self.settings.clone();
        self.settings = Settings {
            backfill_rows: kept.backfill_rows,
            refresh_rows: kept.refresh_rows,
            dictionary_max: kept.dictionary_max,
            rewards: kept.rewards,
            discount: kept.discount,
            variance: kept.variance,
            lambda: kept.lambda,
            rho_max: kept.rho_max,
            forgetting: kept.forgetting,
            action_value: kept.action_value,
            heads: kept.heads,
            ..settings.clone()
        };
    }

    /// Hyperparameters as tuned so far, in normalised coordinates.
    pub fn hyperparameters(&self) -> Hyperparameters {
        let base = self.dictionary.kernel();
        Hyperparameters {
            kernel: Kernel {
                signal_variance: self.scale.signal * base.signal_variance,
                bias_variance: self.scale.signal * base.bias_variance,
                ..base.clone()
            },
            noise: self.noise,
            noise_variance: self.scale.noise_variance(),
        }
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        let m = self.dictionary.len();
        let chain = m + self.settings.rewards.len() + self.inputs.dim() + 8;
        self.statistics.bytes()
            + self.recent.bytes()
            + self.verification.bytes()
            + self.value_covariance.as_ref().map_or(0, Matrix::bytes)
            + self.dictionary.bytes()
            + self.work.as_ref().map_or(0, |work| work.bytes())
            + self.posterior.as_ref().map_or(0, Posterior::bytes)
            + self.arrivals.bytes()
            + self.waiting_scores.bytes()
            + self.watch.as_ref().map_or(0, |watch| watch.bytes())
            + self.heads.as_ref().map_or(0, |heads| heads.bytes())
            + self.chains.len() * chain * size_of::<f64>()
    }

    /// Learn as [`Model::learn`] does, and say what was stated of the rows before: into `foretold`, which is emptied first.
    pub(super) fn learn_and_foretell(
        &mut self,
        rows: &Rows,
        range: Range<usize>,
        offset: u64,
        foretold: &mut Foretold,
    ) {
        foretold.values.clear();
        self.foretold = Some(std::mem::take(foretold));
        self.learn(rows, range, offset);
        *foretold = self.foretold.take().expect("put in above");
    }

    /// Learn rows `range` of `rows`; `offset` is the stream offset of `range.start`. With a full dictionary nothing is
    /// allocated (tests/allocations.rs) but for a new stream, where noise and scale are tuned, at refreshes with more running
    /// chains than elements, and where their number passes a quarter of the elements.
    pub fn learn(&mut self, rows: &Rows, range: Range<usize>, offset: u64) {
        let mut start = range.start;
        while start < range.end {
            // Blocks end where refreshes fall due, so that results do not depend on how rows were batched. Rows that are
            // forgotten are promised to give the same bits, too, so that each is a block of its own.
            let due = self.rows_until_refresh() as usize;
            let most = if self.statistics.forgets() { 1 } else { self.settings.refresh_rows };
            let end = range.end.min(start + due.min(most));
            self.learn_block(rows, start..end, offset + (start - range.start) as u64);
            self.rows_since_refresh += (end - start) as u64;
            if self.rows_since_refresh >= self.refresh_interval() {
                self.refresh();
            }
            start = end;
        }
    }

    /// Rows that can be learned before the next refresh, which costs O(m^3).
    pub fn rows_to_refresh(&self) -> u64 {
        self.rows_until_refresh() - 1
    }

    /// Rows up to the one that is followed by the next refresh, at least 1.
    pub fn rows_until_refresh(&self) -> u64 {
        self.refresh_interval().saturating_sub(self.rows_since_refresh).max(1)
    }

    /// Whether the last row that it learned was followed by a refresh.
    pub fn has_just_refreshed(&self) -> bool {
        self.rows_since_refresh == 0
    }

    /// Rows between refreshes: a refresh evaluates every running chain's successor, so with many streams it is rarer.
    fn refresh_interval(&self) -> u64 {
        (self.settings.refresh_rows as u64).max(self.chains.len() as u64)
    }

    fn learn_block(&mut self, rows: &Rows, block: Range<usize>, offset: u64) {
        let weighted = |i: usize| self.ratio(rows, i) != 1.0 || self.carry(rows, i) != self.lambda;
        if !self.statistics.follows_rows && block.clone().any(weighted) {
            self.follow_rows();
        }
        self.age(offset);
        let mut work = self.work.take().unwrap_or_default();
        self.collect_nodes(rows, block.clone(), &mut work);
        self.compute_features(&mut work);
        self.admit_novel(&mut work);
        self.observe(rows, block.clone(), &mut work);
        self.score_rows(rows, block.clone(), offset, &mut work);
        if let Some(heads) = &mut self.heads {
            let (nodes, features) = (&work.nodes, &work.features);
            let ring = (self.recent.span().start, self.recent.cuts().count());
            heads.learn(&Block { rows, range: block.clone(), offset, nodes, features, ring });
        }
        self.absorb(rows, block, offset, &mut work);
        self.work = Some(work);
        if self.dictionary.is_full() && !self.recent.is_settled() {
            // From here on the rows since the last refresh are of use, where its factor may gain them, and no others.
            let few = Posterior::max_incremental_rows(self.dictionary.len());
            let gains =
                !self.statistics.follows_rows && !self.statistics.forgets() && self.settings.refresh_rows <= few;
            self.recent.freeze_dictionary(if gains { few } else { 0 });
            if let Some(heads) = &mut self.heads {
                heads.settle();
            }
        }
    }

    /// The row at `offset` is about to be learned: where that brings the statistics to another unit, bring all that is made of
    /// weights along.
    fn age(&mut self, offset: u64) {
        let Some(factor) = self.statistics.advance(offset) else { return };
        self.scale_scores(factor);
        self.chains.iter_mut().for_each(|chain| chain.scale(factor));
        self.recent.scale(factor);
    }

    /// The states of the block whose features are needed, in arrival order.
    fn collect_nodes(&mut self, rows: &Rows, block: Range<usize>, work: &mut Work) {
        work.states.clear();
        work.node_rows.clear();
        work.nodes.clear();
        let (dim, white) = (self.inputs.dim(), self.noise == NoiseModel::White);
        let mut count = 0;
        let mut add = |work: &mut Work, row: usize| {
            work.node_rows.push(row);
            count += 1;
            count - 1
        };
        work.last_row.clear();
        work.last_row.resize(self.chains.len(), u32::MAX);
        for (k, i) in block.clone().enumerate() {
            let slot = self.slot(rows.streams[i]);
            if work.last_row.len() <= slot {
                work.last_row.resize(slot + 1, u32::MAX);
            }
            // The row before it in its stream, if that left a chain running: in this block, or earlier.
            let led_from = match work.last_row[slot] {
                u32::MAX => (self.chains[slot].rows > 0).then_some(None),
                last => {
                    Some(block.start + last as usize).filter(|&j| !rows.terminated[j] && !rows.truncated[j]).map(Some)
                }
            };
            let (starts, mut gap, mut before) = (rows.starts_chain[i], None, None);
            if let Some(last) = led_from.filter(|_| !white)
                && (starts
                    || (self.statistics.follows_rows && !self.begins_there(rows, i, slot, last, &mut work.states)))
            {
                match last {
                    None => work.states.extend_from_slice(&self.slots[slot].next_state),
                    Some(j) => self.inputs.normalise_into(rows.next_state(j), &mut work.states),
                }
                let node = Some(add(work, k));
                if starts { gap = node } else { before = node }
            }
            work.last_row[slot] = k as u32;
            self.inputs.normalise_into(rows.state(i), &mut work.states);
            let state = add(work, k);
            let needs_next = if white { !rows.terminated[i] } else { rows.truncated[i] && !rows.terminated[i] };
            let next = needs_next.then(|| {
                self.inputs.normalise_into(rows.next_state(i), &mut work.states);
                add(work, k)
            });
            work.nodes.push(RowNodes { slot, gap, before, state, next });
        }
        debug_assert_eq!(work.states.len(), work.node_rows.len() * dim);
    }

    /// Whether row i begins in the state that the row before it in its chain led to: row `last`, or one of an earlier block.
    /// `scratch` ends as it was.
    fn begins_there(&self, rows: &Rows, i: usize, slot: usize, last: Option<usize>, scratch: &mut Vec<f64>) -> bool {
        if let Some(last) = last {
            return rows.next_state(last) == rows.state(i);
        }
        let from = scratch.len();
        self.inputs.normalise_into(rows.state(i), scratch);
        let same = scratch[from..] == self.slots[slot].next_state;
        scratch.truncate(from);
        same
    }

    fn slot(&mut self, stream: u32) -> usize {
        let stream = stream as usize;
        if stream >= self.slot_of_stream.len() {
            self.slot_of_stream.resize(stream + 1, u32::MAX);
        }
        if self.slot_of_stream[stream] == u32::MAX {
            self.slot_of_stream[stream] = self.chains.len() as u32;
            let (m, rewards) = (self.dictionary.len(), self.settings.rewards.len());
            self.chains.push(Chain::new(m, rewards));
            let mut slot = Slot::default();
            if self.clusters() {
                slot.cluster = Cluster { scores: Matrix::zeros(m, rewards), rows: 0 };
            }
            self.slots.push(slot);
        }
        self.slot_of_stream[stream] as usize
    }

    /// Whether scores are summed over clusters of rows before they are squared.
    fn clusters(&self) -> bool {
        self.scatter.is_some() && self.settings.variance == VarianceKind::Clustered
    }

    /// Whether scores are those of single rows.
    fn scatters_rows(&self) -> bool {
        self.scatter.is_some() && self.settings.variance == VarianceKind::Rows
    }

    fn compute_features(&self, work: &mut Work) {
        work.points.clear();
        self.dictionary.kernel().project_into(self.inputs.dim(), &work.states, &mut work.points);
        let nodes = work.node_rows.len();
        if work.features.rows() == 0 && work.features.cols() == 0 {
            work.features = Matrix::with_capacity(self.dictionary.max(), 2 * self.settings.refresh_rows);
        }
        work.features.resize(self.dictionary.len(), nodes);
        if !self.recall_features(work) {
            let Work { states, points, covariances, mixtures, features, .. } = work;
            self.features_into(states, points, covariances, mixtures, features.view_mut());
        }
        work.residuals.clear();
        work.residuals.extend((0..nodes).map(|k| self.dictionary.residual(work.features.col(k))));
    }

    /// out (m, n) <- features of normalised `states` (n, D), whose `points` are projected already; successors may be
    /// distributions over actions.
    fn features_into(
        &self,
        states: &[f64],
        points: &[f64],
        covariances: &mut Matrix,
        mixtures: &mut Mixtures,
        out: ViewMut<'_>,
    ) {
        if self.settings.mixes_successors() {
            mixtures.features_into(&self.dictionary, self.settings.choices(), states, out);
        } else {
            self.dictionary.features_into(points, covariances, out);
        }
    }

    /// [`Model::features_into`] in a matrix of its own (m, n).
    fn features(&self, states: &[f64], points: &[f64]) -> Matrix {
        let mut out = Matrix::zeros(self.dictionary.len(), states.len() / self.inputs.dim());
        self.features_into(states, points, &mut Matrix::default(), &mut Mixtures::default(), out.view_mut());
        out
    }

    /// Take the features of a few nodes from the last refresh, if it has looked at all of them: a row begins where the one before
    /// it in its stream has ended. They are the same bits, as columns so few are worked out one by one.
    fn recall_features(&self, work: &mut Work) -> bool {
        let Work { states, running, running_states, features, .. } = work;
        let (dim, nodes) = (self.inputs.dim(), features.cols());
        if nodes > SINGLY || running.chains() > SINGLY || running.features.rows() != self.dictionary.len() {
            return false;
        }
        let mut states = states.chunks_exact(dim).enumerate();
        states.all(|(node, state)| {
            let known = running_states.chunks_exact(dim).position(|known| known == state);
            known.inspect(|&k| features.col_mut(node).copy_from_slice(running.features.col(k))).is_some()
        })
    }

    /// Admit the block's novel states in arrival order; each gives every other node, the recent rows and the running chains
    /// their new coordinate.
    fn admit_novel(&mut self, work: &mut Work) {
        for node in 0..work.node_rows.len() {
            // Backfill knows no successor that is a distribution: with these a dictionary is chosen from all rows at once.
            if self.settings.mixes_successors() || work.residuals[node] <= self.dictionary.tolerance() {
                continue;
            }
            if self.dictionary.is_full() {
                self.counts.novel_when_full += 1;
                continue;
            }
            let (m, dim) = (self.dictionary.len(), self.inputs.dim());
            if self.dictionary.residual(work.features.col(node)) <= self.dictionary.tolerance() {
                continue; // the running residual had lost its last digits
            }
            let state = &work.states[node * dim..(node + 1) * dim];
            let admitted = self.dictionary.admit(state, work.features.col(node));
            self.statistics.grow();
            self.arrivals.miss();
            self.flush_scores();
            let row = self.recent.end() + work.node_rows[node] as u64;
            let from = row.saturating_sub(self.recent.keep());
            if let Some(scatter) = &mut self.scatter {
                scatter.resize(m + 1, m + 1);
            }
            let (statistics, chains) = (&mut self.statistics, &mut self.chains);
            self.recent.backfill(from, &admitted, &self.dictionary, statistics, chains, self.scatter.as_mut());
            if let Some(heads) = &mut self.heads {
                heads.grow(from, &self.recent);
            }
            if self.clusters()
                && let Some(scatter) = &mut self.scatter
            {
                // The scores so far lack the coordinate: it gets what independent noise would have given it.
                for j in 0..=m {
                    *scatter.at_mut(m, j) =
                        self.scale.noise_variance() * self.statistics.unit() * self.statistics.gram.at(m, j);
                }
                for slot in &mut self.slots {
                    slot.cluster.scores.resize(m + 1, self.settings.rewards.len());
                }
            }
            if let Some(spread) = &mut self.spread {
                spread.grow();
            }
            let nodes = work.node_rows.len();
            work.coordinate.clear();
            work.coordinate.resize(nodes, 0.0);
            self.dictionary.kernel().column(&work.points, &admitted.point, &mut work.coordinate);
            let (out, l) = (ViewMut::column(&mut work.coordinate), View::column(&admitted.features));
            multiply(out, true, -1.0, work.features.view(), Op::Transposed, l, Op::Plain);
            work.features.resize(m + 1, nodes);
            for (k, value) in work.coordinate.iter().enumerate() {
                let value = value / admitted.delta;
                work.residuals[k] = (work.residuals[k] - value * value).max(0.0);
                // Rows of this block that are older than the backfill reaches keep the zero, as they would elsewhere.
                let reached = self.recent.end() + work.node_rows[k] as u64 >= from;
                *work.features.at_mut(m, k) = if reached { value } else { 0.0 };
            }
            work.residuals[node] = 0.0;
        }
    }

    /// Features of what each row observes: phi(x), or phi(x) - gamma phi(x') under white noise. Where the block's nodes are
    /// its rows' states and nothing else they are that already.
    fn observe(&self, rows: &Rows, block: Range<usize>, work: &mut Work) {
        let m = self.dictionary.len();
        work.observed_apart = self.noise == NoiseModel::White || work.node_rows.len() != block.len();
        if !work.observed_apart {
            return;
        }
        if work.observed.rows() == 0 && work.observed.cols() == 0 {
            work.observed = Matrix::with_capacity(self.dictionary.max(), self.settings.refresh_rows);
        }
        work.observed.resize(m, block.len());
        for (k, i) in block.enumerate() {
            let nodes = work.nodes[k];
            work.observed.col_mut(k).copy_from_slice(work.features.col(nodes.state));
            if self.noise == NoiseModel::White
                && let Some(next) = nodes.next
            {
                let gamma = rows.discount(i, self.settings.discount);
                axpy(work.observed.col_mut(k), -gamma, work.features.col(next));
            }
        }
    }

    /// Log density of sampled rewards under the weights of the last refresh:
    /// ```text
    /// r ~ N(g' u, Var(V(x) - gamma V(x')) + noise),   noise = sigma0^2 (1 + gamma^2) correlated, sigma0^2 white
    /// ```
    /// This is docs/mathematics.md (Q1).
    fn score_rows(&mut self, rows: &Rows, block: Range<usize>, offset: u64, work: &mut Work) {
        let Some(posterior) = &self.posterior else { return };
        self.collect_scored(rows, block.clone(), offset, work);
        let (kernel, dim, m) = (self.dictionary.kernel(), self.inputs.dim(), self.dictionary.len());
        let width = kernel.projected_dim(dim);
        let Scored { rows: scored, next, next_points, difference, solved } = &mut work.scored;
        next_points.clear();
        kernel.project_into(dim, &work.successors, next_points);
        next.resize(m, work.successors.len() / dim);
        let (covariances, mixtures) = (&mut work.covariances, &mut work.mixtures);
        self.features_into(&work.successors, next_points, covariances, mixtures, next.view_mut());
        let follows = self.statistics.follows_rows;
        // Features admitted since the refresh have their prior variance of one.
        let known = posterior.feature_weights().rows();
        difference.resize(m, scored.len());
        solved.resize(known, if follows { 0 } else { scored.len() });
        for (c, row) in scored.iter().enumerate() {
            let column = difference.col_mut(c);
            column.copy_from_slice(work.features.col(work.nodes[row.k].state));
            match row.next {
                Successor::None => {}
                Successor::Node(node) => axpy(column, -row.discount, work.features.col(node)),
                Successor::Extra(extra) => axpy(column, -row.discount, next.col(extra)),
            }
            if !follows {
                solved.col_mut(c).copy_from_slice(&column[..known]);
            }
        }
        if !follows {
            solve_lower(posterior.system().factor().view(), solved.view_mut());
        }
        let (Scale { signal, ratio }, ridge) = (posterior.scale(), posterior.ridge());
        for (c, row) in scored.iter().enumerate() {
            let (gamma, difference) = (row.discount, difference.col(c));
            let place = |node: usize| node * width..(node + 1) * width;
            let prior = || {
                let at = &work.points[place(work.nodes[row.k].state)];
                let next = match row.next {
                    Successor::None => return kernel.diagonal(),
                    Successor::Node(node) => &work.points[place(node)],
                    Successor::Extra(extra) => &next_points[place(extra)],
                };
                (1.0 + gamma * gamma) * kernel.diagonal() - 2.0 * gamma * kernel.eval(at, next)
            };
            let noise = match self.noise {
                NoiseModel::Correlated => signal * ratio * (1.0 + gamma * gamma),
                NoiseModel::White => signal * ratio,
            };
            let variance = if !follows {
                let (solved, new) = (solved.col(c), &difference[known..]);
                let left = difference_residual(prior(), difference);
                signal * (left + ridge * dot(solved, solved) + dot(new, new)) + noise
            } else if self.td_square > 0.0 {
                // sigma0^2 is a ridge here; how large TD errors are the rows before tell.
                self.td_square
            } else {
                signal * prior() + noise
            };
            let (mut log_density, mut square) = (0.0, 0.0);
            for (h, &column) in self.settings.rewards.iter().enumerate() {
                let mean = dot(&difference[..known], posterior.feature_weights().col(h));
                let error = rows.reward(block.start + row.k)[column] - mean;
                log_density -= 0.5 * ((2.0 * PI * variance).ln() + error * error / variance);
                square += error * error / self.settings.rewards.len() as f64;
            }
            self.score.add(log_density);
            if follows && square.is_finite() {
                let memory = (self.score.rows as f64).min(SCORE_MEMORY);
                self.td_square += (square - self.td_square) / memory;
            }
        }
    }

    /// Which rows of the block are scored, and the states of those successors that the block has no features of.
    fn collect_scored(&self, rows: &Rows, block: Range<usize>, offset: u64, work: &mut Work) {
        work.scored.rows.clear();
        work.successors.clear();
        let mut extra = 0;
        for (k, i) in block.clone().enumerate() {
            let at = offset + k as u64;
            if at >= SCORE_ALL_BEFORE && !at.is_multiple_of(SCORE_STRIDE) {
                continue;
            }
            let discount = if rows.terminated[i] { 0.0 } else { rows.discount(i, self.settings.discount) };
            let next = if discount == 0.0 {
                Successor::None
            } else if let Some(node) = work.nodes[k].next {
                Successor::Node(node)
            } else if i + 1 < block.end && rows.state(i + 1) == rows.next_state(i) {
                // The stream's next row starts where this one ends.
                Successor::Node(work.nodes[k + 1].state)
            } else {
                self.inputs.normalise_into(rows.next_state(i), &mut work.successors);
                extra += 1;
                Successor::Extra(extra - 1)
            };
            work.scored.rows.push(ScoredRow { k, discount, next });
        }
    }

    fn absorb(&mut self, rows: &Rows, block: Range<usize>, offset: u64, work: &mut Work) {
        let white = self.noise == NoiseModel::White;
        let width = self.dictionary.kernel().projected_dim(self.inputs.dim());
        let point = |node: usize| node * width..(node + 1) * width;
        let diagonal = self.dictionary.kernel().diagonal();
        let (gains, unit) = (self.updates_followed(), self.statistics.unit());
        let mut prior_trace = 0.0;
        let mut rewards = std::mem::take(&mut work.rewards);
        let mut gathered = std::mem::take(&mut work.gathered);
        // A row may end the chain before it, continue one and be the last of its own.
        gathered.clear(self.dictionary.len(), 2 * block.len(), self.statistics.follows_rows, self.scatters_rows());
        let asks = !white && self.asks_for_errors(&gathered);
        // At lambda = 1, with the variance of the model, nothing waits for a row's successor.
        let settles = asks || self.statistics.follows_rows;
        let dim = self.inputs.dim();
        for (k, i) in block.clone().enumerate() {
            let nodes = work.nodes[k];
            let slot = nodes.slot;
            gathered.offset = offset + k as u64;
            if let Some(watch) = &mut self.watch {
                watch.visit(&work.states[nodes.state * dim..(nodes.state + 1) * dim], gathered.offset);
            }
            rewards.clear();
            rewards.extend(self.settings.rewards.iter().map(|&column| rows.reward(i)[column]));
            let discount = rows.discount(i, self.settings.discount);
            if let Some(node) = nodes.gap {
                let row = self.recent.end();
                self.close_chain(slot, row, work.features.col(node), &work.points[point(node)], &mut gathered);
            }
            let (ratio, decay) = (self.ratio(rows, i), self.chains[slot].discount);
            let carry = self.chains[slot].carry(self.carry(rows, i), ratio);
            let weight = self.statistics.weight_at(offset + k as u64);
            let features = work.features.col(nodes.state);
            let continues = self.chains[slot].rows > 0;
            if continues && settles {
                self.settle_row(slot, Some(work.features.col(nodes.before.unwrap_or(nodes.state))), &mut gathered);
            }
            let crossing = self.statistics.follows_rows.then(|| {
                let successor = work.features.col(nodes.before.unwrap_or(nodes.state));
                let row = Followed { features, successor, rewards: &rewards, ratio, weight, carry, discount };
                self.statistics.follow(&mut self.chains[slot], row, &mut gathered.boundaries);
                if !gathered.revisits {
                    self.arrivals.push(slot, &self.chains[slot].trace, row, gains);
                }
                let boundary = gathered.boundaries.last().filter(|_| continues);
                Crossing { carry, boundary, successor: nodes.before.map(|node| &work.points[point(node)]) }
            });
            if crossing.is_none() {
                self.statistics.absorb(&mut self.chains[slot], work.observed().col(k), &rewards, discount, weight);
            }
            if asks {
                self.expect_successor(slot, features, &rewards);
            }
            if let Some(foretold) = &mut self.foretold {
                let (posterior, cut) = (self.posterior.as_ref(), nodes.next.filter(|_| rows.truncated[i]));
                let next = |h| cut.map_or(0.0, |node| value(posterior, work.features.col(node), h));
                foretold.values.extend((0..rewards.len()).map(|h| [value(posterior, features, h), next(h)]));
            }
            if !gathered.revisits {
                let left = if rows.terminated[i] { 0.0 } else { discount };
                let row = Verified { slot, rewards: &rewards, discount: left, ratio };
                self.verify_row(row, features);
            }
            if let Some(spreading) = &mut gathered.spreading {
                spreading.arrive(slot, features, if continues { decay } else { 0.0 }, carry, ratio * weight / unit);
            }
            let mut observed = Observed {
                features: work.observed().col(k),
                point: &work.points[point(nodes.state)],
                next_point: &[],
                weight: 0.0,
                rewards: &rewards,
                slot,
                decay,
                discount: if white || rows.terminated[i] { 0.0 } else { discount },
                share: ratio * weight,
                crossing,
            };
            prior_trace += ratio * weight * diagonal;
            if white && let Some(next) = nodes.next {
                observed.next_point = &work.points[point(next)];
                observed.weight = discount;
                let covariance = self.dictionary.kernel().eval(observed.point, observed.next_point);
                prior_trace += weight * (discount * discount * diagonal - 2.0 * discount * covariance);
            }
            if !gathered.revisits {
                self.recent.push(observed);
            }
            if white {
                self.watch_difference(slot, work.observed().col(k), &rewards, gathered.offset);
                // Every row is a chain of its own.
                self.chains[slot].reset();
                self.counts.terminations += u64::from(rows.terminated[i]);
                self.counts.cuts += u64::from(rows.truncated[i] && !rows.terminated[i]);
            } else if rows.terminated[i] {
                self.counts.terminations += 1;
                self.settle_row(slot, None, &mut gathered);
                self.chains[slot].reset();
                self.end_of_chain(slot, &mut gathered);
            } else if let Some(node) = nodes.next {
                let row = self.recent.end() - u64::from(!gathered.revisits);
                self.close_chain(slot, row, work.features.col(node), &work.points[point(node)], &mut gathered);
            } else {
                let next_state = &mut self.slots[slot].next_state;
                next_state.clear();
                self.inputs.normalise_into(rows.next_state(i), next_state);
            }
        }
        work.rewards = rewards;
        self.absorb_gathered(&gathered);
        work.gathered = gathered;
        if !work.gathered.revisits {
            if self.statistics.follows_rows || self.statistics.forgets() {
                self.weigh_observed(rows, block, offset, work);
            }
            self.statistics.absorb_gram(work.observed().view(), prior_trace);
        }
    }

    /// phi sqrt(w rho) instead of phi, where weights and ratios are not one.
    fn weigh_observed(&self, rows: &Rows, block: Range<usize>, offset: u64, work: &mut Work) {
        for (k, i) in block.enumerate() {
            let share = self.ratio(rows, i) * self.statistics.weight_at(offset + k as u64);
            if share != 1.0 {
                let observed = if work.observed_apart { &mut work.observed } else { &mut work.features };
                observed.col_mut(k).iter_mut().for_each(|phi| *phi *= share.sqrt());
            }
        }
    }

    /// End the chain in `slot`, cut behind or (by a gap) before row number `row`, with the value at `point`.
    fn close_chain(&mut self, slot: usize, row: u64, features: &[f64], point: &[f64], gathered: &mut Gathered) {
        self.counts.cuts += 1;
        self.settle_row(slot, Some(features), gathered);
        self.end_of_chain(slot, gathered);
        if gathered.revisits {
            self.chains[slot].reset();
            return;
        }
        self.verification.cut(slot, |h| value(self.posterior.as_ref(), features, h));
        self.recent.push_cut(slot, row, &self.chains[slot], features, point);
        if self.statistics.follows_rows {
            gathered.boundaries.close(&self.chains[slot], features);
            self.statistics.closed.chains += 1;
            self.chains[slot].reset();
        } else {
            self.statistics.cut(&mut self.chains[slot], features);
        }
    }

    /// End all running chains with the value of their last successors: rows of every stream are missing from here on.
    pub fn cut_running_chains(&mut self) {
        let mut gathered = Gathered::default();
        let (follows, scatters) = (self.statistics.follows_rows, self.scatters_rows());
        gathered.clear(self.dictionary.len(), self.chains.len(), follows, scatters);
        for slot in 0..self.chains.len() {
            if self.chains[slot].rows > 0 {
                let point = self.dictionary.kernel().project(self.inputs.dim(), &self.slots[slot].next_state);
                let features = self.features(&self.slots[slot].next_state, &point);
                if let Some(heads) = &mut self.heads {
                    heads.cut(slot, features.col(0));
                }
                self.close_chain(slot, self.recent.end(), features.col(0), &point, &mut gathered);
            }
        }
        self.absorb_gathered(&gathered);
    }

    /// Let the rows so far count `factor` times as often, above 0 and at most 1; chains end, as at a cut.
    pub fn discount(&mut self, factor: f64) {
        self.cut_running_chains();
        self.statistics.discount(factor);
        if let Some(heads) = &mut self.heads {
            heads.discount(factor);
        }
        self.recent.discount(factor);
        self.scale_scores(factor);
        self.rows_at_tuning = self.rows_at_tuning.min(self.statistics.rows);
        self.arrivals.miss();
        self.posterior = None;
        self.refresh();
        self.reset_score();
    }

    /// Scale the sums of scores, those of pieces of chains by `factor` and their squares with them.
    fn scale_scores(&mut self, factor: f64) {
        let scale = |matrix: &mut Matrix, factor: f64| {
            (0..matrix.cols()).for_each(|j| matrix.col_mut(j).iter_mut().for_each(|v| *v *= factor));
        };
        self.flush_scores();
        if let Some(scatter) = &mut self.scatter {
            scale(scatter, factor * factor);
        }
        self.slots.iter_mut().for_each(|slot| scale(&mut slot.cluster.scores, factor));
    }

    /// What a block has gathered goes into B and into the scatter of scores, where refreshes are frequent some rows later.
    fn absorb_gathered(&mut self, gathered: &Gathered) {
        // Many at once cost less; where there are blocks of many rows these need not wait.
        let wait = self.updates_followed() > 0 || self.statistics.forgets();
        if !gathered.revisits {
            self.statistics.absorb_boundaries(&gathered.boundaries, wait);
        }
        if wait {
            let (m, from) = (gathered.scores.rows(), self.waiting_scores.cols());
            self.waiting_scores.resize(m, from + gathered.scored);
            for k in 0..gathered.scored {
                self.waiting_scores.col_mut(from + k).copy_from_slice(gathered.scores.col(k));
            }
        }
        if !wait || self.waiting_scores.cols() >= WAITING_MAX {
            self.flush_scores();
        }
        if let Some(scatter) = &mut self.scatter
            && !wait
            && gathered.scored > 0
        {
            let scores = gathered.scores.block(0, 0, gathered.scores.rows(), gathered.scored);
            rank_k(scatter.view_mut(), 1.0, scores, Op::Plain);
        }
    }

    /// Scores that wait go into their scatter.
    fn flush_scores(&mut self) {
        if self.waiting_scores.cols() > 0 {
            if let Some(scatter) = &mut self.scatter {
                rank_k(scatter.view_mut(), 1.0, self.waiting_scores.view(), Op::Plain);
            }
            self.waiting_scores.resize(0, 0);
        }
    }

    /// Whether anything is made of TD errors: a scatter, or the spread of returns.
    fn asks_for_errors(&self, gathered: &Gathered) -> bool {
        self.scatter.is_some() || gathered.spreading.is_some() || self.watch.is_some()
    }

    /// A row has arrived in `slot`: its TD error lacks the value of its successor.
    fn expect_successor(&mut self, slot: usize, features: &[f64], rewards: &[f64]) {
        let (posterior, Slot { pending, row, .. }) = (self.posterior.as_ref(), &mut self.slots[slot]);
        *row = self.recent.end();
        pending.clear();
        pending.extend(rewards.iter().enumerate().map(|(h, r)| r - value(posterior, features, h)));
    }

    /// A row has arrived whose features are phi (m,): returns that are followed gain its reward, and now and then its own is
    /// followed from here on.
    fn verify_row(&mut self, row: Verified<'_>, features: &[f64]) {
        let (Some(spread), Some(covariance), Some(posterior)) = (&self.spread, &self.value_covariance, &self.posterior)
        else {
            return;
        };
        let value = |h| value(Some(posterior), features, h);
        self.verification.arrive(row.slot, value);
        let pace = Pace::new(self.settings.discount, posterior.feature_weights().rows());
        if self.verification.is_due(pace, row.ratio) {
            let diagonal = self.dictionary.kernel().diagonal();
            let variance = value_variance(posterior.scale().signal, diagonal, covariance, features);
            let predicted = |h| (value(h), (variance + spread.variance(h, features)).sqrt());
            self.verification.start(row.slot, (0..row.rewards.len()).map(predicted));
        }
        self.verification.take(row, pace);
    }

    /// The last row of `slot` is known to have led to a state of features `successor` (m,), or to have terminated (none): its
    /// score is the trace times its TD error under the weights of the last refresh.
    fn settle_row(&mut self, slot: usize, successor: Option<&[f64]>, gathered: &mut Gathered) {
        let (chain, posterior) = (&self.chains[slot], self.posterior.as_ref());
        let (scatters_rows, clusters) = (self.scatters_rows(), self.clusters());
        if !gathered.revisits {
            self.arrivals.settle(slot, successor);
        }
        if self.slots[slot].pending.is_empty() || !self.asks_for_errors(gathered) {
            return;
        }
        let discount = if successor.is_some() { chain.discount } else { 0.0 };
        let Slot { pending: errors, cluster, row, .. } = &mut self.slots[slot];
        if let Some(successor) = successor {
            errors.iter_mut().enumerate().for_each(|(h, e)| *e += discount * value(posterior, successor, h));
        }
        if let (Some(watch), Some(threshold)) = (&mut self.watch, self.settings.drift_sensitivity.threshold()) {
            let row = Watched { slot, errors, offset: gathered.offset, threshold };
            watch.observe(&row, |slot| stream_of(&self.slot_of_stream, slot));
        }
        if scatters_rows {
            let size = gathered.score(&chain.trace, errors);
            if !gathered.revisits {
                self.recent.note_score(*row, &chain.trace, size);
            }
        } else if clusters {
            errors.iter().enumerate().for_each(|(h, &e)| axpy(cluster.scores.col_mut(h), e, &chain.trace));
            cluster.rows += 1;
        }
        if let Some(spreading) = &mut gathered.spreading {
            spreading.settle(slot, successor, discount, errors);
        }
        let full = cluster.rows >= cluster_rows(discount);
        errors.clear();
        if clusters && full {
            self.flush_cluster(slot);
        }
    }

    /// The error of a row under white noise, whose features (m,) are those of its difference.
    fn watch_difference(&mut self, slot: usize, features: &[f64], rewards: &[f64], offset: u64) {
        let (Some(watch), Some(threshold)) = (&mut self.watch, self.settings.drift_sensitivity.threshold()) else {
            return;
        };
        let posterior = self.posterior.as_ref();
        let errors = &mut self.slots[slot].pending;
        errors.clear();
        errors.extend(rewards.iter().enumerate().map(|(h, r)| r - value(posterior, features, h)));
        let row = Watched { slot, errors, offset, threshold };
        watch.observe(&row, |slot| stream_of(&self.slot_of_stream, slot));
        self.slots[slot].pending.clear();
    }

    fn end_of_chain(&mut self, slot: usize, gathered: &mut Gathered) {
        if let Some(spreading) = &mut gathered.spreading {
            spreading.end(slot);
        }
        if self.clusters() {
            self.flush_cluster(slot);
        }
    }

    /// Square the scores of a cluster of rows.
    fn flush_cluster(&mut self, slot: usize) {
        let cluster = &mut self.slots[slot].cluster;
        if let Some(scatter) = &mut self.scatter
            && cluster.rows > 0
        {
            add_scores(scatter, &cluster.scores);
            cluster.scores.fill(0.0);
            cluster.rows = 0;
        }
    }

    /// The running chains as they would be closed now, valued at their last successors.
    fn close_running(
        &self,
        running: &mut Running,
        states: &mut Vec<f64>,
        points: &mut Vec<f64>,
        covariances: &mut Matrix,
    ) {
        let chains = || self.chains.iter().enumerate().filter(|(_, chain)| chain.rows > 0);
        states.clear();
        chains().for_each(|(slot, _)| states.extend_from_slice(&self.slots[slot].next_state));
        points.clear();
        self.dictionary.kernel().project_into(self.inputs.dim(), states, points);
        running.features.resize(self.dictionary.len(), states.len() / self.inputs.dim());
        self.features_into(states, points, covariances, &mut Mixtures::default(), running.features.view_mut());
        running.close(chains(), self.settings.rewards.len());
    }

    /// The posterior of everything learned so far, at the present noise and scale.
    ///
    /// # Errors
    /// If the system cannot be solved; the model is as it was.
    pub fn solve(&self) -> Result<Posterior, SolveError> {
        Posterior::solve(&self.statistics, &self.running(), self.scale)
    }

    /// The running chains as they stand.
    fn running(&self) -> Running {
        let mut running = Running::default();
        self.close_running(&mut running, &mut Vec::new(), &mut Vec::new(), &mut Matrix::default());
        running
    }

    /// Recompute the weights that score incoming rows. Re-estimate noise and scale too if the dictionary grew, or if rows grew
    /// by 1/8 since the last estimate; that step doubles after each estimate that changed little. A failed solve leaves the last
    /// weights in place (their factor may have been updated).
    pub fn refresh(&mut self) {
        self.rows_since_refresh = 0;
        self.counts.refreshes += 1;
        let mut work = self.work.take().unwrap_or_default();
        self.refresh_with(&mut work);
        self.work = Some(work);
    }

    fn refresh_with(&mut self, work: &mut Work) {
        self.resolve(work);
        // Of a few chains it is kept from refresh to refresh, of more it would be most of what they take.
        if work.running.chains() > self.dictionary.len() {
            (work.running, work.running_states, work.points) = Default::default();
        }
    }

    fn resolve(&mut self, work: &mut Work) {
        let Work { running, running_states, points, covariances, solve, spare, .. } = work;
        solve.inverts = self.updates_followed() > 0;
        self.close_running(running, running_states, points, covariances);
        let (rows, features) = (self.statistics.rows, self.dictionary.len());
        // Rows that are forgotten are replaced by others long before rows in all have grown by their share.
        let known = self.rows_at_tuning.min(self.statistics.effective_rows() as u64);
        let due = self.rows_at_tuning.saturating_add(known >> (TUNE_STEADY_MAX - self.steady_tunings));
        let tunes =
            self.settings.estimate_scale && rows >= TUNE_ROWS_MIN && (rows > due || features > self.features_at_tuning);
        // Few new rows: update incrementally. Otherwise solve afresh. Tuning may fail and updating consumes the old posterior, so
        // tuning never updates.
        let (statistics, scale, arrivals) = (&self.statistics, self.scale, &mut self.arrivals);
        arrivals.settle_running(running);
        let gained = self.posterior.as_mut().filter(|_| !tunes).is_some_and(|before| {
            if before.can_update_followed(arrivals, statistics, scale) {
                return spare.update_followed(before, arrivals, statistics, solve).is_ok();
            }
            let can = !statistics.follows_rows && before.can_update(statistics, scale);
            let rows = can.then(|| self.recent.last(rows - before.rows())).flatten();
            rows.is_some_and(|rows| spare.update(before, rows, statistics, running, solve).is_ok())
        });
        // After a failed update only a full solution helps.
        if !gained {
            arrivals.miss();
        }
        if !gained && spare.solve_again(statistics, running, scale, solve).is_err() {
            self.counts.failed_refreshes += 1;
            return;
        }
        if tunes {
            let before = self.scale;
            self.scale = if self.statistics.follows_rows {
                spare.matched_scale(&self.statistics, self.dictionary.kernel().bias_variance)
            } else {
                spare.tuned_scale(&self.statistics, self.settings.noise_floor)
            };
            let near = |a: f64, b: f64| (a - b).abs() <= TUNE_STEADY * b;
            // Where there was nothing to estimate from nothing has been found.
            let steady = self.scale != before
                && features == self.features_at_tuning
                && near(self.scale.signal, before.signal)
                && near(self.scale.noise_variance(), before.noise_variance());
            self.steady_tunings = if steady { TUNE_STEADY_MAX.min(self.steady_tunings + 1) } else { 0 };
            let tuned = spare.solve_again(&self.statistics, running, self.scale, solve);
            if tuned.is_err() {
                self.counts.failed_refreshes += 1;
                (self.scale, self.steady_tunings) = (before, 0);
                if spare.solve_again(&self.statistics, running, before, solve).is_err() {
                    return;
                }
            }
            (self.rows_at_tuning, self.features_at_tuning) = (rows, features);
        }
        self.arrivals.clear();
        std::mem::swap(self.posterior.get_or_insert_default(), spare);
    }

    /// The posterior of the last refresh that had one.
    pub fn posterior(&self) -> Option<&Posterior> {
        self.posterior.as_ref()
    }

    /// Whether the last refresh found a posterior.
    pub fn is_sound(&self) -> bool {
        self.posterior.is_some()
    }

    /// Forget the score, and what verification has found: they are counted from an adoption on.
    pub fn reset_score(&mut self) {
        self.score = Score::default();
        self.verification.forget();
    }

    /// End all chains, keep what was learned and the watch as it was before its last alarm, and give up all else: the weights
    /// (m, H) that it had. None if it never had any.
    pub(super) fn sleep(&mut self) -> Option<Matrix> {
        self.cut_running_chains();
        self.flush_scores();
        let weights = self.posterior.take()?.feature_weights().clone();
        let width = self.dictionary.kernel().projected_dim(self.inputs.dim());
        self.recent = BackfillBuffer::new(0, 1, 0, width, self.settings.rewards.len());
        (self.chains, self.slots, self.slot_of_stream) = Default::default();
        if let Some(heads) = &mut self.heads {
            heads.drop_chains();
        }
        self.verification.forget();
        self.arrivals = Self::unknown_arrivals();
        self.watch = self.watch.take().and_then(|watch| watch.into_healthy());
        self.work = None;
        Some(weights)
    }

    /// What [`Model::sleep`] would leave of it now, but for its watch, and its weights (m, H); it goes on itself. None before it
    /// has any. O(m^2).
    pub(super) fn asleep(&mut self) -> Option<(Self, Matrix)> {
        let width = self.dictionary.kernel().projected_dim(self.inputs.dim());
        // What a sleeping model does not have need not be copied.
        let nothing = BackfillBuffer::new(0, 1, 0, width, self.settings.rewards.len());
        let recent = std::mem::replace(&mut self.recent, nothing);
        let (work, watch) = (self.work.take(), self.watch.take());
        let mut copy = self.clone();
        (self.recent, self.work, self.watch) = (recent, work, watch);
        let weights = copy.sleep()?;
        Some((copy, weights))
    }

    /// Take what watches the errors of `other`, which is this model at another moment.
    pub(super) fn take_watch_of(&mut self, other: &mut Self) {
        self.watch = other.watch.take();
    }

    /// Go on after [`Model::sleep`].
    pub(super) fn wake(&mut self) {
        let (room, settings) = (self.dictionary.max(), &self.settings);
        let width = self.dictionary.kernel().projected_dim(self.inputs.dim());
        self.recent =
            BackfillBuffer::new(settings.backfill_rows, settings.refresh_rows, room, width, settings.rewards.len());
        if self.statistics.forgets() {
            self.recent.forget();
        }
        if self.scatters_rows() {
            self.recent.keep_scores(room);
        }
        if self.statistics.follows_rows {
            self.recent.follow_rows(room);
        }
        self.refresh();
    }

    /// Append what weights (m, H) state of rows `range` and their successors.
    pub(super) fn foretell(&self, rows: &Rows, range: Range<usize>, weights: &Matrix, foretold: &mut Foretold) {
        let features = |states: &[f64]| {
            let states = self.inputs.normalise(states);
            self.features(&states, &self.dictionary.kernel().project(self.inputs.dim(), &states))
        };
        let states = |of: &[f64]| features(&of[range.start * rows.dim..range.end * rows.dim]);
        let (here, next) = (states(&rows.states), states(&rows.next_states));
        for k in 0..range.len() {
            foretold.values.extend((0..weights.cols()).map(|h| {
                let u = weights.col(h);
                [&here, &next].map(|features| dot(&features.col(k)[..u.len()], u))
            }));
        }
    }

    /// Begin to watch the errors, once the weights rest on enough rows.
    pub fn start_watch(&mut self) {
        if self.settings.drift_sensitivity.threshold().is_some() {
            let wait = SETTLED_ROWS.max(SETTLED_ROWS_PER_FEATURE * self.dictionary.len() as u64);
            let wait = wait.saturating_sub(self.statistics.rows);
            self.watch = Some(Box::new(Watch::new(self.settings.rewards.len(), self.inputs.dim(), wait)));
        }
    }

    /// Watch nothing any more.
    pub fn stop_watch(&mut self) {
        self.watch = None;
    }

    /// What watches the errors, if anything does.
    pub(super) fn watch(&self) -> Option<&Watch> {
        self.watch.as_deref()
    }

    /// The alarms since they were last asked for.
    pub fn take_alarms(&mut self) -> Vec<Alarm> {
        self.watch.as_mut().map(|watch| watch.take_alarms()).unwrap_or_default()
    }

    /// The last change among the rows up to before offset `end` that the watch has found, where enough rows have come since
    /// for a model of their own: then it is taken, and else left to whoever asks for alarms.
    pub(super) fn last_change(&mut self, end: u64) -> Option<Alarm> {
        let enough = rows_of_its_own(self.dictionary.len());
        let watch = self.watch.as_mut()?;
        watch.take_alarm(|alarm| alarm.is_general() && alarm.finding.since + enough <= end)
    }

    /// The watch that a pass over rows the weights were fitted to begins with: their errors are too small by about the share
    /// of a row that each effective parameter takes, and where that is much nothing is to be learned from them.
    fn watch_of_fitted_rows(&self) -> Option<Box<Watch>> {
        self.settings.drift_sensitivity.threshold()?;
        let (rows, m) = (self.statistics.rows, self.dictionary.len());
        let inverse = self.posterior.as_ref()?.factor(&self.statistics).ok()?.inverse_lower();
        let effective = m as f64 - self.scale.ratio * (0..m).map(|i| inverse.at(i, i)).sum::<f64>();
        let share = effective / rows.max(1) as f64;
        let mut watch = Watch::new(self.settings.rewards.len(), self.inputs.dim(), 0);
        watch.inflate(1.0 + share);
        (share < FITTED_SHARE_MAX).then(|| Box::new(watch))
    }

    /// Look at `rows` again with the weights as they are now: the scatter of scores and the spread of returns are made of their
    /// TD errors, and the pass that built the statistics had no weights, or poor ones. What is normal for these errors is
    /// learned from them too, and whether the world changed among them. With each piece comes the offset of its first row, as
    /// it was learned.
    pub fn revisit<'a>(&mut self, rows: impl Iterator<Item = (&'a Rows, Range<usize>, u64)>) {
        if self.noise == NoiseModel::White {
            self.start_watch();
            return;
        }
        let (m, rewards) = (self.dictionary.len(), self.settings.rewards.len());
        let mut shadow = self.clone();
        shadow.scatter = shadow.scatter.map(|_| Matrix::zeros(m, m));
        shadow.waiting_scores.resize(0, 0);
        shadow.chains.iter_mut().for_each(Chain::reset);
        for slot in &mut shadow.slots {
            slot.cluster.scores.fill(0.0);
            slot.cluster.rows = 0;
            slot.pending.clear();
        }
        shadow.watch = self.watch_of_fitted_rows();
        let mut work = shadow.work.take().unwrap_or_default();
        work.gathered.revisits = true;
        work.gathered.spreading = Some(Spreading::new(m, rewards));
        for (rows, range, offset) in rows {
            let mut start = range.start;
            while start < range.end {
                let block = start..range.end.min(start + self.settings.refresh_rows);
                let offset = offset + (start - range.start) as u64;
                shadow.collect_nodes(rows, block.clone(), &mut work);
                shadow.compute_features(&mut work);
                shadow.observe(rows, block.clone(), &mut work);
                shadow.absorb(rows, block.clone(), offset, &mut work);
                start = block.end;
            }
        }
        shadow.flush_scores();
        self.watch = shadow.watch;
        match &mut self.watch {
            Some(watch) => watch.inflate(1.0),
            None => self.start_watch(),
        }
        self.scatter = shadow.scatter;
        self.waiting_scores.resize(0, 0);
        for (slot, done) in self.slots.iter_mut().zip(shadow.slots) {
            (slot.cluster, slot.pending) = (done.cluster, done.pending);
        }
        let spreading = work.gathered.spreading.take().expect("put in above");
        let noise = self.scale.noise_variance();
        // Where the variance of returns cannot be solved for, they are published without it.
        self.spread = spreading.solve(noise, self.dictionary.kernel().signal_variance).ok();
        self.value_covariance = self.solve().and_then(|posterior| self.covariance(&posterior, &self.running())).ok();
    }

    /// Scatter of the scores so far and of those that wait for their successors, valued as `posterior` does.
    fn scatter_with_running(&self, posterior: &Posterior, running: &Running) -> Option<Matrix> {
        let mut scatter = self.scatter.clone()?;
        if self.waiting_scores.cols() > 0 {
            rank_k(scatter.view_mut(), 1.0, self.waiting_scores.view(), Op::Plain);
        }
        let u = posterior.feature_weights();
        for (k, (chain, slot)) in self.chains.iter().zip(&self.slots).filter(|(chain, _)| chain.rows > 0).enumerate() {
            let error = |(h, e): (usize, &f64)| e + chain.discount * dot(running.features.col(k), u.col(h));
            let errors: Vec<f64> = slot.pending.iter().enumerate().map(error).collect();
            let mut scores = if self.clusters() {
                slot.cluster.scores.clone()
            } else {
                Matrix::zeros(scatter.rows(), self.settings.rewards.len())
            };
            errors.iter().enumerate().for_each(|(h, &e)| axpy(scores.col_mut(h), e, &chain.trace));
            add_scores(&mut scatter, &scores);
        }
        Some(scatter)
    }

    /// Cov u / s as the settings ask for it.
    fn covariance(&self, posterior: &Posterior, running: &Running) -> Result<Matrix, SolveError> {
        match self.scatter_with_running(posterior, running) {
            Some(scatter) => Ok(posterior.sandwich(&self.statistics, running, &scatter)?),
            None => posterior.covariance(&self.statistics),
        }
    }

    fn return_spread(&self, spread: &Spread) -> ReturnSpread {
        let mut weights = self.dictionary.kernel_weights(&spread.weights);
        for h in 0..weights.cols() {
            weights.col_mut(h).iter_mut().for_each(|w| *w /= self.scale.signal);
        }
        ReturnSpread {
            level: spread.level.clone(),
            weights: weights.to_nalgebra(),
            floor: spread.floor(),
            factor: self.verification.factor(self.settings.rewards.len()),
            pairs: self.verification.pairs(self.settings.rewards.len()),
            coverage: self.verification.coverage(self.settings.rewards.len()),
        }
    }

    /// Take the scale that the weights ask for ([`Posterior::matched_scale`]): hyperparameters chosen by held-out returns have none.
    ///
    /// # Errors
    /// If the system cannot be solved.
    pub fn match_scale(&mut self) -> Result<(), SolveError> {
        if self.statistics.follows_rows {
            self.scale = self.solve()?.matched_scale(&self.statistics, self.dictionary.kernel().bias_variance);
        } else {
            let scale = self.solve()?.tuned_scale(&self.statistics, self.settings.noise_floor);
            self.scale.signal = scale.signal;
        }
        self.posterior = None;
        self.refresh();
        Ok(())
    }

    /// Admit states whose residual exceeds `tolerance` (value^2, positive) from here on.
    pub fn set_tolerance(&mut self, tolerance: f64) {
        self.dictionary.set_tolerance(tolerance);
    }

    /// The value function as everybody may evaluate it. `generation`, `revision`, `offset` and `time` are the caller's.
    ///
    /// # Errors
    /// If the system cannot be solved or the weights are not finite.
    pub fn snapshot(&self, variance: bool) -> Result<Snapshot, SolveError> {
        let running = self.running();
        let posterior = Posterior::solve(&self.statistics, &running, self.scale)?;
        let Scale { signal, .. } = self.scale;
        let mut weights = self.dictionary.kernel_weights(posterior.feature_weights());
        for h in 0..weights.cols() {
            // V = k_m' w in units of the model's kernel s k_1.
            weights.col_mut(h).iter_mut().for_each(|w| *w /= signal);
        }
        if !weights.is_finite() {
            return Err(crate::math::dense::Singular { size: self.dictionary.len() }.into());
        }
        let variance = if variance {
            let covariance = self.covariance(&posterior, &running)?;
            Some(posterior.variance_matrix(&self.dictionary, &covariance).to_nalgebra())
        } else {
            None
        };
        let heads = match &self.heads {
            None => None,
            Some(heads) => Some(heads.publish(&heads.solve(&running)?, &self.dictionary, signal, variance.is_some())),
        };
        let (m, dim) = (self.dictionary.len(), self.inputs.dim());
        Ok(Snapshot {
            critic: self.settings.name.clone(),
            generation: 0,
            revision: 0,
            offset: 0,
            transitions: self.statistics.rows,
            time: 0.0,
            discount: self.settings.discount,
            hyperparameters: self.hyperparameters(),
            inputs: self.inputs.clone(),
            dictionary: nalgebra::DMatrix::from_row_slice(m, dim, self.dictionary.elements()),
            weights: weights.to_nalgebra(),
            variance,
            log_evidence: posterior.log_evidence(),
            score: self.score.mean(),
            lambda: self.lambda,
            returns: self.spread.as_ref().map(|spread| self.return_spread(spread)),
            provisional: false,
            actions: self.settings.action_value.as_ref().map(|of| Actions::of(of.space.clone())),
            heads,
        })
    }
}

/// Rows that a model of m features needs for itself.
pub(super) fn rows_of_its_own(m: usize) -> u64 {
    OWN_ROWS.max(OWN_ROWS_PER_FEATURE * m as u64)
}

/// Number of the stream in `slot`.
fn stream_of(slot_of_stream: &[u32], slot: usize) -> u32 {
    slot_of_stream.iter().position(|&of| of == slot as u32).map_or(u32::MAX, |stream| stream as u32)
}

/// Value under the weights of the last refresh; features admitted since weigh nothing.
fn value(posterior: Option<&Posterior>, features: &[f64], h: usize) -> f64 {
    posterior.map_or(0.0, |posterior| {
        let u = posterior.feature_weights().col(h);
        dot(&features[..u.len()], u)
    })
}

/// Var V at features phi (m,): `diagonal` is that of the base kernel, `covariance` Cov u / s of the features there were when it
/// was made; those admitted since have their prior variance. O(m^2).
fn value_variance(signal: f64, diagonal: f64, covariance: &Matrix, features: &[f64]) -> f64 {
    let known = &features[..covariance.cols()];
    let learned: f64 = known.iter().enumerate().map(|(j, phi)| phi * dot(covariance.col(j), known)).sum();
    signal * (difference_residual(diagonal, known) + learned.max(0.0))
}

/// Rows of one cluster: a few effective horizons, beyond which returns hardly share noise.
fn cluster_rows(discount: f64) -> u64 {
    if discount < 1.0 { (4.0 / (1.0 - discount)).clamp(8.0, 10_000.0) as u64 } else { 1000 }
}

/// Finest tolerance relative to v0 that is chosen without being asked for. Kernel weights and the matrix C have entries of
/// up to one over it, so that a finer one would cost whoever evaluates a snapshot the digits that two implementations agree on.
pub const TOLERANCE_MIN: f64 = 1e-6;

/// ICD tolerance, value^2: the setting's share of v0, or a tenth of the noise if that is smaller, but not below
/// [`TOLERANCE_MIN`] unless the setting is. The constant b is one direction, which one element explains: it has no say.
pub fn effective_tolerance(settings: &Settings, hyperparameters: &Hyperparameters) -> f64 {
    let signal = hyperparameters.kernel.signal_variance;
    let asked = settings.tolerance * signal;
    asked.min(0.1 * hyperparameters.noise_variance).max(asked.min(TOLERANCE_MIN * signal))
}
