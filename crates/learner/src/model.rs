//! One model: hyperparameters, dictionary, statistics and running chains, and how rows change them.

mod basis;
mod branch;
mod deviation;
mod errors;
mod foretold;
mod head_bank;
mod held_out;
mod late;
mod learned;
mod level;
mod merge;
mod nodes;
mod out_of_fold;
mod pass;
mod pieces;
mod policy;
mod published;
mod removal;
mod returns;
mod rule;
mod scoring;
mod sleep;
mod streams;
mod tracked;
mod warned;
mod weights;
mod written;

pub use late::{LateHeads, Unlike};
pub use merge::{HeadSums, MergeError, Sums};
pub use pass::Counts;
pub use policy::{Made, PolicyChange, PolicyChanges};
pub use removal::{Removed, Unremovable};
pub use scoring::Score;

use crate::heads::Bank;
use crate::math::backfill::BackfillBuffer;
use crate::math::dense::Matrix;
use crate::math::dictionary::Dictionary;
use crate::math::inflation::Inflation;
use crate::math::kernel::{Hyperparameters, NoiseModel};
use crate::math::mixture::Mixtures;
use crate::math::posterior::{Posterior, Scale, SolveError};
use crate::math::spread::Spreading;
use crate::math::statistics::{CLOSED_TOGETHER, Chain, Cut, Running, Statistics};
use crate::settings::{Settings, effective_tolerance, rows_of_its_own};
use crate::snapshot::{Actions, Inputs, Snapshot, Tracked};
use crate::tracking::Tracking;
use crate::transition::Rows;
use crate::watch::{Alarm, Watch};
use basis::Basis;
use errors::{Errors, Gathered, Scatter};
use late::History;
use level::Level;
use nodes::Nodes;
use pass::{ChainEnd, Pass, PassScratch, refresh_interval};
use returns::Returns;
use rule::Rule;
use scoring::Prequential;
use serde::Deserialize;
use std::ops::Range;
use streams::Streams;
use tracked::Mixed;
use warned::Hearers;
use weights::{Tuning, Weights};

/// Rows, and rows for each feature, that weights rest on before their errors are watched.
const SETTLED_ROWS: u64 = 1024;
const SETTLED_ROWS_PER_FEATURE: u64 = 10;
/// Effective parameters for each row above which the errors of fitted rows do not tell what is normal.
const FITTED_SHARE_MAX: f64 = 0.05;

/// Hyperparameters with everything learned under them. Written and read back it goes on bit for bit as it would have.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "written::Written<'static>")]
pub struct Model {
    settings: Settings,
    noise: NoiseModel,
    /// lambda of the recursion.
    lambda: f64,
    level: Level,
    basis: Basis,
    statistics: Statistics,
    recent: BackfillBuffer,
    streams: Streams,
    weights: Weights,
    errors: Errors,
    returns: Returns,
    /// How much wider than its scatter says the deviation of V is; none where no refit has looked.
    inflation: Option<Inflation>,
    prequential: Prequential,
    counts: Counts,
    /// What it has learned for its heads; none if it has no heads.
    heads: Option<Box<Bank>>,
    /// Of heads alone, whose kernel is another one: it learns each row beside this one. None where all heads share the kernel.
    branch: Option<Box<Model>>,
    /// What tracks the stream beside it; none before the first refit, and where nothing is tracked.
    tracking: Option<Box<Tracking>>,
    /// What it has learned in which order; none before its first row, and where that is not known.
    history: Option<History>,
    /// Who hears of rows while it learns them.
    hearers: Hearers,
    /// Taken out while it is worked with; a pointer, since there is much of it.
    work: Option<Box<PassScratch>>,
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
        let (m, rewards, room) = (dictionary.len(), settings.rewards.len(), dictionary.max());
        let noise = hyperparameters.noise;
        let basis = Basis::new(inputs, dictionary, &settings);
        let width = basis.width();
        let lambda = settings.first_lambda();
        let mut model = Self {
            noise,
            lambda: 1.0,
            level: Level::default(),
            statistics: Statistics::new(m, rewards, room),
            recent: BackfillBuffer::new(settings.backfill_rows, settings.refresh_rows, room, width, rewards),
            streams: Streams::default(),
            weights: Weights::new(Scale::of_noise(hyperparameters.noise_variance)),
            errors: Errors { scatter: Scatter::new(settings.variance, noise, m), watch: None },
            returns: Returns::default(),
            inflation: None,
            prequential: Prequential::default(),
            counts: Counts::default(),
            heads: None,
            branch: None,
            tracking: None,
            history: None,
            hearers: Hearers::default(),
            work: None,
            basis,
            settings,
        };
        model.start_heads();
        model.statistics.forget(model.settings.forgetting);
        if model.statistics.forgets() {
            model.recent.forget();
        }
        if model.errors.scatter.takes_rows() {
            model.recent.keep_scores(room);
        }
        model.set_lambda(lambda);
        model
    }

    /// A model with the inputs, kernel, dictionary, lambda, scale and noise of this one that has learned nothing: for rows
    /// from another world than the ones before. How returns scatter about V is taken over as noise is; what verification has
    /// found is not.
    pub fn emptied(&self) -> Self {
        let Basis { inputs, dictionary, .. } = self.basis.clone();
        let mut empty = self.with_dictionary_of_its_kernel(self.settings.clone(), inputs, dictionary);
        empty.set_lambda(self.lambda);
        (empty.weights.scale, empty.returns.spread) = (self.weights.scale, self.returns.spread.clone());
        // The horizon stays; what pieces of rows said is of rows that are not among its own.
        empty.inflation = self.inflation.map(|of| Inflation::of_horizon(of.horizon));
        empty.level = self.level.clone();
        if let (Some(heads), Some(known)) = (&mut empty.heads, &self.heads) {
            heads.take_scales(known);
        }
        empty.branch = self.branch.as_ref().map(|branch| Box::new(branch.emptied()));
        empty.tracking = self.emptied_tracking();
        empty
    }

    /// Call so its inputs that have no names, or are called by their numbers alone.
    pub fn name(&mut self, names: &[String]) {
        if names.len() == self.basis.inputs.dim() {
            let own = self.basis.inputs.names.get_or_insert_with(|| names.to_vec());
            self.settings.name_numbered(own, names);
            self.branch.iter_mut().for_each(|branch| branch.name(names));
        }
    }

    /// Whether some of its heads have a kernel of their own.
    pub fn has_branch(&self) -> bool {
        self.branch.is_some()
    }

    /// A model that has learned nothing, with the base kernel and the noise of this one.
    fn with_dictionary_of_its_kernel(&self, settings: Settings, inputs: Inputs, dictionary: Dictionary) -> Self {
        let noise_variance = self.weights.scale.noise_variance();
        let kernel = self.basis.kernel().clone();
        let hyperparameters = Hyperparameters { kernel, noise: self.noise, noise_variance };
        Self::with_dictionary(settings, inputs, &hyperparameters, dictionary)
    }

    /// One with the features, the lambda and the level of this one that has learned nothing, and whose dictionary grows no more.
    fn closed_without_rows(&self, settings: Settings) -> Self {
        let mut dictionary = self.basis.dictionary.clone();
        dictionary.close();
        let mut out = self.with_dictionary_of_its_kernel(settings, self.basis.inputs.clone(), dictionary);
        out.set_lambda(self.lambda);
        out.level = self.level.clone();
        out
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
        if lambda < 1.0 || self.settings.selects_by_returns() || self.settings.leaves_chain() {
            self.pass().follow_rows();
        }
    }

    /// Scale of its values: its kernel over the dictionary's.
    pub(crate) fn signal(&self) -> f64 {
        self.weights.scale.signal
    }

    /// lambda of its recursion.
    pub fn lambda(&self) -> f64 {
        self.lambda
    }

    /// How rows enter the sums.
    fn rule(&self) -> Rule<'_> {
        Rule { settings: &self.settings, noise: self.noise, lambda: self.lambda, level: &self.level.about }
    }

    /// The parts that rows change.
    fn pass(&mut self) -> Pass<'_> {
        Pass {
            rule: Rule { settings: &self.settings, noise: self.noise, lambda: self.lambda, level: &self.level.about },
            basis: &mut self.basis,
            statistics: &mut self.statistics,
            recent: &mut self.recent,
            streams: &mut self.streams,
            weights: &mut self.weights,
            errors: &mut self.errors,
            returns: &mut self.returns,
            prequential: &mut self.prequential,
            counts: &mut self.counts,
            heads: self.heads.as_deref_mut(),
            tracking: self.tracking.as_deref_mut(),
            foretold: self.hearers.foretold.as_mut(),
            // Before anything is known of a scale, nothing is known of what falls too low.
            warnings: self.hearers.warnings.as_deref_mut().filter(|_| !self.level.unscaled),
        }
    }

    /// Rows between refreshes: a refresh evaluates every running chain's successor, so with many streams it is rarer.
    fn refresh_interval(&self) -> u64 {
        refresh_interval(&self.settings, self.streams.len())
    }

    /// Whether everything has the size that everything else expects: what is read from a file is asked this, since a model
    /// that does not hold together would panic at some later row.
    pub fn is_consistent(&self) -> bool {
        let (m, rewards, dim) = (self.basis.len(), self.settings.rewards.len(), self.basis.dim());
        let (slots, Scatter { sum: scatter, waiting, .. }) = (self.streams.len(), &self.errors.scatter);
        self.settings.are_valid()
            && self.basis.dictionary.is_consistent(dim)
            && self.basis.inputs.scale.len() == dim
            && self.statistics.is_consistent(m, rewards)
            && self.weights.tuned.is_consistent()
            && (0.0..=1.0).contains(&self.lambda)
            && [0, rewards].contains(&self.level.about.len())
            && self.level.about.iter().all(|mu| mu.is_finite())
            && (self.lambda == 1.0 || self.statistics.follows_rows)
            && self.returns.is_consistent(m, rewards, dim, slots)
            && self.inflation.as_ref().is_none_or(Inflation::is_consistent)
            && (!self.recent.is_settled() || self.basis.dictionary.is_full())
            && self.recent.is_consistent(m, self.basis.width(), rewards, slots)
            && self.streams.is_consistent(m, rewards, dim, self.errors.scatter.clusters())
            && scatter.as_ref().is_none_or(|scatter| (scatter.rows(), scatter.cols()) == (m, m))
            && (waiting.cols() == 0 || waiting.rows() == m)
            && self.weights.posterior.as_ref().is_none_or(|posterior| posterior.is_consistent(m, rewards))
            && self.weights.arrivals.is_consistent(m, rewards)
            && self.heads.as_ref().is_none_or(|heads| heads.is_consistent(m, slots, dim))
            && self.basis.learned.as_ref().is_none_or(|learned| learned.is_consistent(m))
            && self.is_branch_consistent()
            && self.tracking.as_ref().is_none_or(|tracking| tracking.is_consistent(m, rewards, slots))
            && self.errors.watch.as_ref().is_none_or(|watch| watch.is_consistent(rewards, dim, slots))
    }

    /// Dictionary size m.
    pub fn dictionary(&self) -> &Dictionary {
        &self.basis.dictionary
    }

    /// The statistics, closings of running chains left out.
    pub fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// Normalisation of states.
    pub fn inputs(&self) -> &Inputs {
        &self.basis.inputs
    }

    /// Prequential score since the model was made.
    pub fn score(&self) -> Score {
        self.prequential.score
    }

    /// What happened since the model was made.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Chains running now.
    pub fn running_chains(&self) -> usize {
        self.streams.running().count()
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
            mean: kept.mean,
            about_mean: kept.about_mean,
            action_names: kept.action_names,
            heads: kept.heads,
            heads_alone: kept.heads_alone,
            ..settings.clone()
        };
        if let Some(branch) = &mut self.branch {
            branch.set_settings(&settings.of_heads_alone(settings.heads.clone()));
        }
        self.let_heads_go(&settings.heads);
    }

    /// Hyperparameters as tuned so far, in normalised coordinates.
    pub fn hyperparameters(&self) -> Hyperparameters {
        let base = self.basis.kernel();
        Hyperparameters {
            kernel: base.scaled(self.weights.scale.signal),
            noise: self.noise,
            noise_variance: self.weights.scale.noise_variance(),
        }
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        let chain = self.basis.len() + self.settings.rewards.len() + self.basis.dim() + 8;
        self.statistics.bytes()
            + self.recent.bytes()
            + self.returns.bytes()
            + self.basis.dictionary.bytes()
            + self.work.as_ref().map_or(0, |work| work.nodes.bytes() + work.gathered.bytes())
            + self.weights.bytes()
            + self.errors.scatter.waiting.bytes()
            + self.errors.watch.as_ref().map_or(0, |watch| watch.bytes())
            + self.heads.as_ref().map_or(0, |heads| heads.bytes())
            + self.branch.as_ref().map_or(0, |branch| branch.bytes())
            + self.tracking.as_ref().map_or(0, |tracking| tracking.bytes())
            + self.streams.len() * chain * size_of::<f64>()
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
            self.weights.rows_since_refresh += (end - start) as u64;
            if self.weights.rows_since_refresh >= self.refresh_interval() {
                self.refresh();
            }
            start = end;
        }
    }

    /// Learn rows none of which is followed by a refresh but the last.
    fn learn_block(&mut self, rows: &Rows, block: Range<usize>, offset: u64) {
        self.note_rows(offset, block.len());
        self.foretell_ahead(rows, block.clone());
        let mut work = self.work.take().unwrap_or_default();
        self.pass().learn(rows, block.clone(), offset, &mut work);
        self.work = Some(work);
        if self.level.unscaled {
            self.find_scale(rows, block.clone());
        }
        if let Some(branch) = &mut self.branch {
            branch.hearers.warnings = self.hearers.warnings.take();
            branch.learn_block(rows, block, offset);
            self.hearers.warnings = branch.hearers.warnings.take();
        }
    }

    /// Rows that can be learned before the next refresh, which costs O(m^3).
    pub fn rows_to_refresh(&self) -> u64 {
        self.rows_until_refresh() - 1
    }

    /// Rows up to the one that is followed by the next refresh, at least 1.
    pub fn rows_until_refresh(&self) -> u64 {
        self.refresh_interval().saturating_sub(self.weights.rows_since_refresh).max(1)
    }

    /// Whether the last row that it learned was followed by a refresh.
    pub fn has_just_refreshed(&self) -> bool {
        self.weights.rows_since_refresh == 0
    }

    /// End all running chains with the value of their last successors: rows of every stream are missing from here on.
    pub fn cut_running_chains(&mut self) {
        self.note_cut();
        self.branch.iter_mut().for_each(|branch| branch.cut_running_chains());
        let slots: Vec<usize> = self.streams.running().map(|(slot, _)| slot).collect();
        let mut gathered = Gathered::default();
        slots.chunks(CLOSED_TOGETHER).for_each(|slots| self.end_chains(slots, slots, &mut gathered));
    }

    /// End the chains in `slots`, which run. The heads know them by the numbers in `of_heads`, one for each.
    fn end_chains(&mut self, slots: &[usize], of_heads: &[usize], gathered: &mut Gathered) {
        let (follows, scatters) = (self.statistics.follows_rows, self.errors.scatter.takes_rows());
        let (m, dim, width) = (self.basis.len(), self.basis.dim(), self.basis.width());
        let states: Vec<f64> = slots.iter().flat_map(|&slot| self.streams.slots[slot].next_state.clone()).collect();
        let points = self.basis.kernel().project(dim, &states);
        let features = self.basis.features(&states);
        gathered.clear(m, slots.len(), follows, scatters);
        for (k, (&slot, &of_heads)) in slots.iter().zip(of_heads).enumerate() {
            if let Some(heads) = &mut self.heads {
                heads.cut(of_heads, features.col(k));
            }
            let (end, features) = (self.recent.end(), features.col(k));
            let (state, point) = (&states[k * dim..(k + 1) * dim], &points[k * width..(k + 1) * width]);
            self.pass().leave_chain(slot, end, ChainEnd { state, point, features }, gathered);
        }
        self.pass().absorb_gathered(gathered);
        if !follows {
            let chains = &self.streams.chains;
            let cut = |(k, &slot): (usize, &usize)| Cut { chain: &chains[slot], features: features.col(k) };
            self.statistics.cut_all(slots.iter().enumerate().map(cut));
        }
        slots.iter().for_each(|&slot| self.streams.chains[slot].reset());
    }

    /// The running chains as they would be closed now, valued at their last successors. `points` and the rest are scratch.
    fn close_running(
        &self,
        running: &mut Running,
        states: &mut Vec<f64>,
        points: &mut Vec<f64>,
        covariances: &mut Matrix,
    ) {
        let Self { basis, streams, .. } = self;
        states.clear();
        streams.running().for_each(|(slot, _)| states.extend_from_slice(&streams.slots[slot].next_state));
        points.clear();
        basis.kernel().project_into(basis.dim(), states, points);
        running.features.resize(basis.len(), states.len() / basis.dim());
        basis.many_features_into(states, points, covariances, &mut Mixtures::default(), &mut running.features);
        let targets = !self.statistics.follows_rows;
        running.close(streams.running(), self.settings.rewards.len(), targets);
    }

    /// The posterior of everything learned so far, at the present noise and scale.
    ///
    /// # Errors
    /// If the system cannot be solved; the model is as it was.
    pub fn solve(&self) -> Result<Posterior, SolveError> {
        Posterior::solve(&self.statistics, &self.running(), self.weights.scale)
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
        self.weights.rows_since_refresh = 0;
        self.counts.refreshes += 1;
        if !self.settings.heads_alone {
            let mut work = self.work.take().unwrap_or_default();
            self.resolve(&mut work);
            // Of a few chains it is kept from refresh to refresh, of more it would be most of what they take.
            if work.running.chains() > self.basis.len() {
                (work.running, work.running_states, work.nodes.points) = Default::default();
            }
            self.work = Some(work);
        }
        self.refresh_heads();
        self.branch.iter_mut().for_each(|branch| branch.refresh());
    }

    fn resolve(&mut self, work: &mut PassScratch) {
        let PassScratch { nodes: Nodes { points, covariances, .. }, running, running_states, solve, spare, .. } = work;
        solve.inverts = self.pass().gains() > 0;
        self.close_running(running, running_states, points, covariances);
        let tuning = Tuning {
            wanted: self.settings.estimate_scale && !self.settings.leaves_chain(),
            noise_floor: self.settings.noise_floor,
            kernel: self.basis.kernel(),
        };
        if !self.weights.resolve(&self.statistics, &self.recent, running, tuning, solve, spare) {
            self.counts.failed_refreshes += 1;
        }
        self.renew_value_covariance_tuned(running);
        self.correct_trackers();
    }

    /// The posterior of the last refresh that had one.
    pub fn posterior(&self) -> Option<&Posterior> {
        self.weights.posterior.as_ref()
    }

    /// Whether the last refresh found a posterior.
    pub fn is_sound(&self) -> bool {
        self.weights.posterior.is_some()
    }

    /// Forget the score, and what verification has found: they are counted from an adoption on.
    pub fn reset_score(&mut self) {
        self.prequential.score = Score::default();
        self.returns.verification.forget();
    }

    /// Begin to watch the errors, once the weights rest on enough rows.
    pub fn start_watch(&mut self) {
        if self.settings.drift_sensitivity.threshold().is_some() {
            let wait = SETTLED_ROWS.max(SETTLED_ROWS_PER_FEATURE * self.basis.len() as u64);
            let wait = wait.saturating_sub(self.statistics.rows);
            self.errors.watch = Some(Box::new(Watch::new(self.settings.rewards.len(), self.basis.dim(), wait)));
        }
    }

    /// Watch nothing any more.
    pub fn stop_watch(&mut self) {
        self.errors.watch = None;
    }

    /// What watches the errors, if anything does.
    pub(super) fn watch(&self) -> Option<&Watch> {
        self.errors.watch.as_deref()
    }

    /// Take what watches the errors of `other`, which is this model at another moment.
    pub(super) fn take_watch_of(&mut self, other: &mut Self) {
        self.errors.watch = other.errors.watch.take();
    }

    /// The alarms since they were last asked for.
    pub fn take_alarms(&mut self) -> Vec<Alarm> {
        self.errors.watch.as_mut().map(|watch| watch.take_alarms()).unwrap_or_default()
    }

    /// The last change among the rows up to before offset `end` that the watch has found, where enough rows have come since
    /// for a model of their own: then it is taken, and else left for [`Model::take_alarms`].
    pub(super) fn last_change(&mut self, end: u64) -> Option<Alarm> {
        let enough = rows_of_its_own(self.basis.len());
        let watch = self.errors.watch.as_mut()?;
        watch.take_alarm(|alarm| alarm.is_general() && alarm.finding.since + enough <= end)
    }

    /// The watch that a pass over rows the weights were fitted to begins with: their errors are too small by about the share
    /// of a row that each effective parameter takes, and where that is much nothing is to be learned from them.
    fn watch_of_fitted_rows(&self) -> Option<Box<Watch>> {
        self.settings.drift_sensitivity.threshold()?;
        let (rows, effective) = (self.statistics.rows, self.weights.effective_parameters(&self.statistics)?);
        let share = effective / rows.max(1) as f64;
        let mut watch = Watch::new(self.settings.rewards.len(), self.basis.dim(), 0);
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
        let (m, rewards) = (self.basis.len(), self.settings.rewards.len());
        // Heads have no errors of their own to look at, and are most of a model that has many.
        let (heads, branch, tracking) = (self.heads.take(), self.branch.take(), self.tracking.take());
        let mut shadow = self.clone();
        (self.heads, self.branch, self.tracking) = (heads, branch, tracking);
        shadow.errors.scatter.clear(m);
        shadow.streams.chains.iter_mut().for_each(Chain::reset);
        for slot in &mut shadow.streams.slots {
            slot.cluster.scores.fill(0.0);
            slot.cluster.rows = 0;
            slot.pending.clear();
        }
        shadow.errors.watch = self.watch_of_fitted_rows();
        let mut work = shadow.work.take().unwrap_or_default();
        work.gathered.revisits = true;
        work.gathered.spreading = Some(Spreading::new(m, rewards));
        for (rows, range, offset) in rows {
            let mut start = range.start;
            while start < range.end {
                let block = start..range.end.min(start + self.settings.refresh_rows);
                let offset = offset + (start - range.start) as u64;
                shadow.pass().learn_again(rows, block.clone(), offset, &mut work);
                start = block.end;
            }
        }
        // Chains that end here although no row says so, as where their last rows were taken out.
        let ended = |&slot: &usize| self.streams.chains.get(slot).is_some_and(|chain| chain.rows == 0);
        let ended: Vec<usize> = shadow.streams.running().map(|(slot, _)| slot).filter(ended).collect();
        if !ended.is_empty() {
            shadow.end_chains(&ended, &ended, &mut work.gathered);
        }
        shadow.errors.scatter.flush();
        self.errors = shadow.errors;
        match &mut self.errors.watch {
            Some(watch) => watch.inflate(1.0),
            None => self.start_watch(),
        }
        for (slot, done) in self.streams.slots.iter_mut().zip(shadow.streams.slots) {
            (slot.cluster, slot.pending) = (done.cluster, done.pending);
        }
        let spreading = work.gathered.spreading.take().expect("put in above");
        let noise = self.weights.scale.noise_variance();
        // Where the variance of returns cannot be solved for, they are published without it.
        self.returns.spread = spreading.solve(noise, self.basis.kernel().signal_variance).ok();
        self.renew_value_covariance();
    }

    /// Take the scale that the weights ask for ([`Posterior::matched_scale`]): hyperparameters chosen by held-out returns have none.
    ///
    /// # Errors
    /// If the system cannot be solved.
    pub fn match_scale(&mut self) -> Result<(), SolveError> {
        if self.statistics.follows_rows {
            self.weights.scale = self.solve()?.matched_scale(&self.statistics, self.basis.kernel());
        } else {
            let scale = self.solve()?.tuned_scale(&self.statistics, self.settings.noise_floor);
            self.weights.scale.signal = scale.signal;
        }
        self.weights.posterior = None;
        self.refresh();
        Ok(())
    }

    /// Take noise and scale that maximise the evidence of the returns; where rows are followed, the scale alone ([`Model::match_scale`]).
    ///
    /// # Errors
    /// If the system cannot be solved.
    pub(crate) fn tune_scale(&mut self) -> Result<(), SolveError> {
        if self.statistics.follows_rows {
            return self.match_scale();
        }
        self.weights.scale = self.solve()?.tuned_scale(&self.statistics, self.settings.noise_floor);
        self.weights.posterior = None;
        self.refresh();
        Ok(())
    }

    /// Take this scale of the kernel, positive; the noise stays in proportion to it.
    pub(crate) fn set_signal(&mut self, signal: f64) {
        self.weights.scale.signal = signal;
        self.weights.posterior = None;
        self.refresh();
    }

    /// Admit states whose residual exceeds `tolerance` (value^2, positive) from here on.
    pub fn set_tolerance(&mut self, tolerance: f64) {
        self.note_tolerance(tolerance);
        self.basis.dictionary.set_tolerance(tolerance);
    }

    /// [`Model::snapshot`] without heads, with the running chains as they were closed; where it `follows` the stream, with what tracks
    /// it mixed in.
    fn closed_snapshot(&self, running: &Running, variance: bool, follows: bool) -> Result<Snapshot, SolveError> {
        let posterior = Posterior::solve(&self.statistics, running, self.weights.scale)?;
        let Scale { signal, .. } = self.weights.scale;
        let base = self.in_kernel_values(posterior.feature_weights());
        if !base.is_finite() {
            return Err(crate::math::dense::Singular { size: self.basis.len() }.into());
        }
        let mixed = if follows { self.mixed(&posterior) } else { None };
        let variance = if variance && !self.level.unscaled {
            let covariance = self.published_covariance(&posterior, running, mixed.as_ref())?;
            Some(posterior.variance_matrix(&self.basis.dictionary, &covariance).to_nalgebra())
        } else {
            None
        };
        let (weights, tracked) = match mixed {
            Some(Mixed { weights, openings, .. }) => {
                let gate = openings.iter().map(|of| of.gate).collect();
                let half_life = openings.iter().map(|of| of.half_life().unwrap_or(0.0)).collect();
                (weights.to_nalgebra(), Some(Tracked { base: base.to_nalgebra(), gate, half_life }))
            }
            None => (base.to_nalgebra(), None),
        };
        let (elements, dim) = (self.basis.dictionary.elements_len(), self.basis.dim());
        let mut snapshot = Snapshot {
            critic: self.settings.name.clone(),
            generation: 0,
            revision: 0,
            offset: 0,
            transitions: self.statistics.rows,
            time: 0.0,
            discount: self.settings.discount,
            hyperparameters: self.hyperparameters(),
            inputs: self.basis.inputs.clone(),
            dictionary: nalgebra::DMatrix::from_row_slice(elements, dim, self.basis.dictionary.elements()),
            weights,
            variance,
            log_evidence: posterior.log_evidence(),
            score: self.prequential.score.mean(),
            lambda: self.lambda,
            returns: self
                .returns
                .publish(&self.basis.dictionary, signal, self.settings.rewards.len())
                .filter(|_| !self.level.unscaled),
            level: self.level().to_vec(),
            mean: None,
            provisional: false,
            actions: self.settings.action_value.as_ref().map(|of| Actions::of(of.space.clone())),
            heads: None,
            branch: None,
            tracked,
            reward_names: Vec::new(),
            table: None,
        };
        self.settings.mean.iter().for_each(|mean| mean.add_to(&mut snapshot));
        Ok(snapshot)
    }
}
