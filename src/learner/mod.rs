//! The pure state machine: rows in, a model out; no clock, thread, socket, file, log or entropy.
//!
//! A [`Learner`] is stepped through the shared [`Window`]: `step` learns what has arrived, `refit_due` says when model
//! selection is wanted, `refit_job` hands out what it needs, and `consider` judges what came back and adopts it between
//! two steps. Whatever decides a result is a function of offsets and settings, so the same rows and the same candidates
//! give the same models.

pub mod batch;
pub mod model;
mod policy;
mod referee;
pub mod refit;
mod report;
mod search;
pub mod verification;
pub mod window;

use crate::math::embedding::StateKind;
use crate::math::kernel::{Hyperparameters, NoiseModel, Profile};
use crate::math::posterior::SolveError;
use crate::snapshot::Snapshot;
use model::{Counts, Model, Score};
pub use policy::OnNewPolicy;
use policy::Policies;
use refit::{Candidate, RefitJob, RefitReason, RefitReport};
use serde::{Deserialize, Serialize};
use std::fmt;
use window::Window;

/// Rows that a candidate may be behind and still be caught up at once, between two batches: this bounds the learner's
/// pause at adoption.
const TAIL_ROWS: u64 = 64;
/// Rounds of catching up elsewhere. A stream that is faster than that is not waited for: the candidate leaves out the rows it
/// has missed, as if they had been lost, and its chains are cut there.
const CATCH_UP_ROUNDS: u32 = 6;
/// A candidate with this much less evidence is still no worse: the rebuild itself is worth having, nats.
const EVIDENCE_SLACK: f64 = 0.5;
/// Rows scored by both models before the score has a say.
const SCORED_ROWS_MIN: u64 = 32;
/// A candidate may predict new rows this much worse, nats per row, before it is refused.
const SCORE_SLACK: f64 = 0.1;
/// Share of rows that found the dictionary full, since the last refit ended, that asks for another.
const FULL_SHARE: f64 = 0.02;

/// Which covariance a critic's model selection uses \[JS09, section 5.2\].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum KernelKind {
    /// One lengthscale for all state variables.
    Isotropic,
    /// One relevance per state variable.
    #[default]
    Ard,
    /// Relevances and this many directions, or as many as the evidence asks for.
    Factor(Option<usize>),
    /// Whichever of these has the most evidence, state variables that do not matter removed.
    Auto,
}

/// Which evidence model selection goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SelectBy {
    /// The exact one on [`Settings::evidence_rows`] rows; where there are more, the bound of all rows has the last word.
    #[default]
    Auto,
    /// The exact one alone.
    Exact,
    /// The variational bound of all rows, already where structures are compared.
    Sparse,
}

/// How far returns are followed before the value of a successor takes over.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub enum Lambda {
    /// [`LAMBDA_START`] until the first refit, then what model selection chooses.
    #[default]
    Auto,
    /// This one, in \[0, 1\]: 0 looks one transition ahead, 1 to the end of the chain.
    Fixed(f64),
}

/// lambda of a model that nothing has been selected for yet.
pub const LAMBDA_START: f64 = 0.8;

/// What model selection goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum SelectionKind {
    /// Held-out lambda-returns: kernel, lambda and ridge together.
    #[default]
    Returns,
    /// The evidence alone, with lambda = 1 unless one is given: the method of \[JS09\].
    Evidence,
}

/// Whose variance of V is published: docs/mathematics.md (V2), (V4), (V5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum VarianceKind {
    /// From the TD errors of single rows: right for any noise, however chains are cut, as long as the state is all that matters.
    #[default]
    Rows,
    /// As the model states it: the noise of the returns within one chain is independent.
    Model,
    /// Chain-clustered sandwich: returns of one chain share their noise.
    Clustered,
}

/// What one critic learns and how. Plain data; `config` fills it in and checks it. What a file from before a setting does not
/// say was as the paper has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default = "Settings::paper")]
pub struct Settings {
    /// Name of the critic, 1..=64 bytes of `[A-Za-z0-9_-]`.
    pub name: String,
    /// Discount in [0, 1] of rows that carry none.
    pub discount: f64,
    /// Reward columns that it learns (one value function each, one kernel for all), distinct, at least one.
    pub rewards: Vec<usize>,
    /// Covariance.
    pub kernel: KernelKind,
    /// How covariance falls with distance.
    pub profile: Profile,
    /// What each state variable is (D,); empty if all are real. Of another length than states are, they cannot be used: the
    /// first model then takes all for real, and refits fail and say why ([`Settings::check_dim`]).
    pub state_kinds: Vec<StateKind>,
    /// Noise model.
    pub noise: NoiseModel,
    /// Published variance.
    pub variance: VarianceKind,
    /// How far returns are followed. White noise has no use for it.
    pub lambda: Lambda,
    /// Largest importance ratio, positive: what `target_prob / behavior_prob` of a row is clipped at.
    pub rho_max: f64,
    /// Half-life in rows, positive: a row so many rows old, those of all streams counted, counts half. Infinite where nothing
    /// is forgotten.
    pub forgetting: f64,
    /// What becomes of what was learned when another policy begins to act.
    pub on_new_policy: OnNewPolicy,
    /// With [`OnNewPolicy::Discount`]: how often a row counts that counted once before, above 0 and at most 1.
    pub policy_discount: f64,
    /// With [`OnNewPolicy::Keep`]: most models that are kept beside that of the policy that acts.
    pub policies_kept: usize,
    /// What model selection goes by. White noise is always selected by evidence.
    pub selection: SelectionKind,
    /// ICD tolerance on the squared residual, relative to v0, in (0, 1).
    pub tolerance: f64,
    /// Largest dictionary, at least 1.
    pub dictionary_max: usize,
    /// Recent rows kept with their features, from which a new dictionary element is backfilled.
    pub backfill_rows: usize,
    /// Rows between two refreshes of the weights that score incoming rows; also the largest block learned at once.
    pub refresh_rows: usize,
    /// Re-estimate noise and scale from the statistics at refreshes.
    pub tune_noise: bool,
    /// Smallest noise variance relative to the variance of the targets; lower only for deterministic streams.
    pub noise_floor: f64,
    /// Rows before there is a first, data-driven model.
    pub warmup_rows: usize,
    /// Rows at which the first refit is due; 0 leaves refits to those who ask for one.
    pub refit_first_rows: u64,
    /// Factor by which the rows grow from one refit to the next, at least 1.
    pub refit_growth: f64,
    /// Most rows between two refits.
    pub refit_rows_max: u64,
    /// Drop of the prequential score, nats per transition, against its best since adoption, that asks for a refit;
    /// 0 switches this off.
    pub refit_score_drop: f64,
    /// Which evidence decides.
    pub evidence: SelectBy,
    /// Rows that the exact evidence is computed on.
    pub evidence_rows: usize,
    /// Starts of the optimiser.
    pub starts: usize,
    /// Most seconds of processor time that one refit should take on each of its threads; its search may use
    /// [`refit::SEARCH_SHARE`] of them.
    pub refit_budget_s: f64,
    /// Seed of everything random in refits.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: "default".into(),
            discount: 0.99,
            rewards: vec![0],
            kernel: KernelKind::default(),
            profile: Profile::Matern52,
            state_kinds: Vec::new(),
            noise: NoiseModel::default(),
            variance: VarianceKind::default(),
            lambda: Lambda::default(),
            rho_max: f64::INFINITY,
            forgetting: f64::INFINITY,
            on_new_policy: OnNewPolicy::default(),
            policy_discount: 0.1,
            policies_kept: 4,
            selection: SelectionKind::default(),
            tolerance: 1e-3,
            dictionary_max: 300,
            backfill_rows: 1024,
            refresh_rows: 256,
            tune_noise: true,
            noise_floor: 1e-3,
            warmup_rows: 32,
            refit_first_rows: 512,
            refit_growth: 2.0,
            refit_rows_max: 50_000,
            refit_score_drop: 1.0,
            evidence: SelectBy::Auto,
            evidence_rows: 1000,
            starts: 4,
            refit_budget_s: 20.0,
            seed: 0,
        }
    }
}

impl Settings {
    /// The method of \[JS09\]: lambda = 1, the evidence alone, the variance as the model states it.
    pub fn paper() -> Self {
        Self {
            variance: VarianceKind::Model,
            lambda: Lambda::Fixed(1.0),
            selection: SelectionKind::Evidence,
            profile: Profile::Gaussian,
            ..Self::default()
        }
    }

    /// lambda before anything has been selected.
    pub fn first_lambda(&self) -> f64 {
        match self.lambda {
            _ if self.noise == NoiseModel::White => 1.0,
            Lambda::Fixed(lambda) => lambda,
            Lambda::Auto if self.selection == SelectionKind::Evidence => 1.0,
            Lambda::Auto => LAMBDA_START,
        }
    }

    /// Whether refits select by held-out returns.
    pub fn selects_by_returns(&self) -> bool {
        self.selection == SelectionKind::Returns && self.noise == NoiseModel::Correlated
    }

    /// Whether a learner can work with them. What the configuration says has been checked more closely; this is for what a
    /// file says.
    pub fn are_sound(&self) -> bool {
        let positive = |value: f64| value.is_finite() && value > 0.0;
        let sound = |kind: &StateKind| !matches!(kind, StateKind::Periodic(period) if !positive(*period));
        (0.0..=1.0).contains(&self.discount)
            && !self.rewards.is_empty()
            && self.state_kinds.iter().all(sound)
            && positive(self.tolerance)
            && !matches!(self.lambda, Lambda::Fixed(lambda) if !(0.0..=1.0).contains(&lambda))
            && self.rho_max > 0.0
            && self.forgetting > 0.0
            && self.policy_discount > 0.0
            && self.policy_discount <= 1.0
            && (1..=20_000).contains(&self.dictionary_max)
            && self.backfill_rows <= 1_000_000
            && (1..=65_536).contains(&self.refresh_rows)
            && positive(self.noise_floor)
            && (2..=1_000_000).contains(&self.warmup_rows)
            && self.refit_growth.is_finite()
            && self.refit_growth >= 1.0
            && self.refit_score_drop.is_finite()
            && self.evidence_rows >= 2
            && self.starts >= 1
            && positive(self.refit_budget_s)
    }

    /// Whether they fit states (`dim`,).
    ///
    /// # Errors
    /// What does not, in words that name the setting.
    pub fn check_dim(&self, dim: usize) -> Result<(), String> {
        match self.state_kinds.len() {
            0 => Ok(()),
            kinds if kinds == dim => Ok(()),
            kinds => Err(format!("state_kinds is for {kinds} state variables, states have {dim}")),
        }
    }

    /// What each variable of states (`dim`,) is; empty for all real.
    pub fn kinds(&self, dim: usize) -> &[StateKind] {
        if self.state_kinds.len() == dim { &self.state_kinds } else { &[] }
    }
}

/// What a learner reports of a step or a verdict, for the daemon to log and publish.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// There is a first, data-driven model.
    FirstModel,
    /// The dictionary has reached its cap; states it cannot explain are counted from now on.
    DictionaryFull,
    /// Another policy acts.
    NewPolicy {
        /// From the row at this offset on.
        offset: u64,
        /// Its name, if it has one.
        policy: Option<String>,
    },
}

/// Why a candidate was turned down.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Rejection {
    /// It has less evidence on the same rows.
    LessEvidence {
        /// Of the present model, nats.
        before: f64,
        /// Of the candidate, nats.
        after: f64,
    },
    /// It predicts the rows that arrived meanwhile worse.
    WorseScore {
        /// Of the present model, nats per row.
        before: f64,
        /// Of the candidate, nats per row.
        after: f64,
        /// Rows scored.
        rows: u64,
    },
    /// Its system could not be solved.
    NoPosterior,
    /// It was selected for rows of a policy that acts no more.
    OtherPolicy,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LessEvidence { before, after } => {
                write!(f, "less evidence on the same rows: {after:.1} against {before:.1} nats")
            }
            Self::WorseScore { before, after, rows } => write!(
                f,
                "predicts the {rows} rows scored meanwhile worse: {after:.3} against {before:.3} nats per row"
            ),
            Self::NoPosterior => write!(f, "its system could not be solved"),
            Self::OtherPolicy => write!(f, "another policy acts than the one that it was selected for"),
        }
    }
}

impl std::error::Error for Rejection {}

/// What is to become of a candidate.
#[derive(Debug)]
pub enum Judgement {
    /// It is too far behind: catch it up elsewhere, then ask again.
    Behind(Candidate),
    /// It is better.
    Adopt {
        /// What [`Learner::adopt`] takes.
        adoption: Adoption,
        /// How it was found.
        report: RefitReport,
        /// Scores of the present and of the new model on rows that neither was fitted to, nats per row.
        scores: Option<(f64, f64)>,
    },
    /// It is not.
    Reject {
        /// How it was found.
        report: RefitReport,
        /// Why not.
        why: Rejection,
    },
}

/// What became of a candidate.
#[derive(Debug)]
pub enum Verdict {
    /// It is too far behind: catch it up elsewhere, then ask again.
    Behind(Candidate),
    /// It is the model now; the old one is handed out so that it can be dropped elsewhere.
    Adopted {
        /// How it was found.
        report: RefitReport,
        /// Scores of the old and of the new model on rows that neither was fitted to, nats per row.
        scores: Option<(f64, f64)>,
        /// The model before.
        old: Option<Box<Model>>,
    },
    /// The present model stays.
    Rejected {
        /// How it was found.
        report: RefitReport,
        /// Why not.
        why: Rejection,
    },
}

/// Why there is no snapshot.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Too few rows so far.
    NotReady {
        /// Rows learned.
        rows: u64,
        /// Rows needed for a first model.
        needed: u64,
    },
    /// The system cannot be solved.
    Solve(SolveError),
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotReady { rows, needed } => write!(f, "no model yet: {rows} of {needed} rows have arrived"),
            Self::Solve(e) => write!(f, "{e}"),
        }
    }
}

impl std::error::Error for SnapshotError {}

impl From<SolveError> for SnapshotError {
    fn from(e: SolveError) -> Self {
        Self::Solve(e)
    }
}

#[cfg(test)]
thread_local! {
    /// A learner with this seed that has learned so many rows panics at its next step.
    pub(crate) static FAULT: std::cell::Cell<Option<(u64, u64)>> = const { std::cell::Cell::new(None) };
}

/// One critic: its model, and when to look for a better one.
///
/// Written and read back it goes on bit for bit as it would have, but for a refit that was running or asked for: that one
/// is simply due again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Learner {
    settings: Settings,
    names: Option<Vec<String>>,
    model: Option<Box<Model>>,
    /// Offset of the first row that it learns from.
    first_row: u64,
    /// Rows learned: the offset behind the last.
    learned: u64,
    generation: u64,
    /// Offset at which the next refit by row count is due.
    next_refit: u64,
    /// Offset at which the last refit ended, by adoption or not.
    refit_ended_at: u64,
    /// States that the present model had found no room for by then: only later ones ask for another refit.
    #[serde(default)]
    no_room_before: u64,
    #[serde(skip)]
    requested: bool,
    full_reported: bool,
    /// Score of the present model when the running refit was started.
    #[serde(skip)]
    score_at_job: Option<Score>,
    /// Refits that have ended.
    refits: u64,
    #[serde(default)]
    policies: Policies,
}

/// An adoption as it is recorded: with the model itself, so that nobody has to find it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Adoption {
    generation: u64,
    refits: u64,
    model: Box<Model>,
}

impl Adoption {
    /// Whether what was read from a file is of one piece.
    pub fn holds_together(&self) -> bool {
        self.model.holds_together()
    }
}

impl Learner {
    /// A critic that has seen nothing. `names` are those of the state variables.
    pub fn new(settings: Settings, names: Option<Vec<String>>) -> Self {
        let mut learner = Self {
            next_refit: u64::MAX,
            settings,
            names,
            model: None,
            first_row: 0,
            learned: 0,
            generation: 0,
            refit_ended_at: 0,
            no_room_before: 0,
            requested: false,
            full_reported: false,
            score_at_job: None,
            refits: 0,
            policies: Policies::default(),
        };
        learner.schedule();
        learner
    }

    /// A critic that learns from the rows from offset `first_row` on, at which there are rows already.
    pub fn starting_at(settings: Settings, names: Option<Vec<String>>, first_row: u64) -> Self {
        Self { first_row, learned: first_row, ..Self::new(settings, names) }
    }

    /// Whether what was read from a file is of one piece.
    pub fn holds_together(&self) -> bool {
        let model = self.model.as_ref().is_none_or(|model| model.holds_together());
        model
            && self.policies.holds_together()
            && self.settings.are_sound()
            && self.first_row <= self.learned
            && self.model.is_some() == (self.generation > 0)
    }

    /// Offset of the first row that it still has to see.
    pub fn needs_from(&self) -> u64 {
        if self.model.is_some() { self.learned } else { self.first_row }
    }

    /// What it learns and how.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Take over settings that may change at run time.
    pub fn set_settings(&mut self, settings: Settings) {
        if let Some(model) = &mut self.model {
            model.set_settings(&settings);
        }
        let schedule = |s: &Settings| (s.refit_first_rows, s.refit_growth, s.refit_rows_max);
        let rescheduled = schedule(&settings) != schedule(&self.settings);
        self.settings = settings;
        if rescheduled {
            self.schedule();
        }
    }

    /// Take over the names of the state variables; the present model keeps those that it has.
    pub fn set_names(&mut self, names: Option<Vec<String>>) {
        self.names = names;
    }

    /// The present model, once there is one.
    pub fn model(&self) -> Option<&Model> {
        self.model.as_deref()
    }

    /// Rows learned so far: the offset behind the last.
    pub fn learned(&self) -> u64 {
        self.learned
    }

    /// 0 before the first model, 1 for the data-driven one, then one more with each adoption.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Offset at which the next refit by row count is due; none if they are switched off.
    pub fn next_refit(&self) -> Option<u64> {
        (self.next_refit != u64::MAX).then_some(self.next_refit)
    }

    /// Whether a refit has been handed out and not yet come back.
    pub fn refit_running(&self) -> bool {
        self.score_at_job.is_some()
    }

    /// Learn the rows of `window` that have arrived since the last step.
    ///
    /// # Panics
    /// If the window has forgotten rows that were not learned.
    pub fn step(&mut self, window: &Window) -> Vec<Event> {
        #[cfg(test)]
        assert_ne!(FAULT.get(), Some((self.settings.seed, self.learned)), "a fault made on purpose");
        let mut events = Vec::new();
        self.learn_up_to(window, window.end(), &mut events);
        let full = self.model.as_ref().is_some_and(|model| model.counts().novel_when_full > 0);
        if full && !self.full_reported {
            self.full_reported = true;
            events.push(Event::DictionaryFull);
        }
        events
    }

    /// Learn the rows of `window` before offset `end`.
    fn learn_rows(&mut self, window: &Window, end: u64, events: &mut Vec<Event>) {
        let Some(model) = &mut self.model else { return self.begin(window, end, events) };
        for (rows, range, offset) in window.since(self.learned) {
            let count = range.len().min(end.saturating_sub(offset) as usize);
            model.learn(rows, range.start..range.start + count, offset);
        }
        self.learned = end;
    }

    /// Make the first model, once there are rows enough.
    fn begin(&mut self, window: &Window, end: u64, events: &mut Vec<Event>) {
        self.learned = end;
        // Counted in rows received, so that a model appears at the same row however rows were batched.
        if end - self.first_row < self.settings.warmup_rows as u64 {
            return;
        }
        let first = self.first_row.max(window.start());
        let (rows, count) = (window.flatten_since(first), (end - first) as usize);
        let mut head = crate::transition::Rows::new(rows.dim, rows.rewards_per_row);
        head.extend(&rows, 0..self.settings.warmup_rows.min(count));
        let (inputs, guess) = refit::first_guess(&head, &self.settings, self.names.clone());
        let mut model = Model::new(self.settings.clone(), inputs, &guess);
        // The rows of the warm-up first, so that refreshes fall due at the same rows however rows were batched.
        let known = head.len();
        model.learn(&rows, 0..known, first);
        model.refresh();
        model.learn(&rows, known..count, first + known as u64);
        self.model = Some(Box::new(model));
        self.generation = 1;
        events.push(Event::FirstModel);
    }

    /// Leave out the rows before offset `offset` that have not been learned, as if they had been lost: chains are cut there.
    pub fn skip_to(&mut self, offset: u64) {
        match &mut self.model {
            Some(model) => model.cut_running_chains(),
            None => self.first_row = offset,
        }
        self.learned = offset;
    }

    /// Adopt a model. One move of one value: whoever holds a snapshot keeps all of the old model, which is handed out so that it
    /// can be dropped elsewhere.
    pub fn adopt(&mut self, adoption: Adoption) -> Option<Box<Model>> {
        let old = self.model.replace(adoption.model);
        (self.generation, self.refits) = (adoption.generation, adoption.refits);
        self.score_at_job = None;
        self.refit_ended_at = self.learned;
        self.no_room_before = self.counts().novel_when_full;
        self.full_reported = false;
        self.schedule();
        old
    }

    /// Ask for a refit at the next opportunity.
    pub fn request_refit(&mut self) {
        self.requested = true;
    }

    /// Whether a refit should start now, and why. Never while one is running, nor before there is a model.
    pub fn refit_due(&self) -> Option<RefitReason> {
        let model = self.model.as_ref()?;
        if self.refit_running() {
            return None;
        }
        if self.requested {
            return Some(RefitReason::Requested);
        }
        if self.settings.refit_first_rows == 0 {
            return None;
        }
        let since = self.learned - self.refit_ended_at.min(self.learned);
        if self.learned >= self.next_refit {
            Some(RefitReason::Rows)
        } else if since < self.settings.refit_first_rows {
            None
        } else if self.settings.refit_score_drop > 0.0 && model.score().drop() > self.settings.refit_score_drop {
            Some(RefitReason::ScoreDrop)
        } else if model.counts().novel_when_full.saturating_sub(self.no_room_before) as f64
            > FULL_SHARE * since as f64 + 64.0
            && since > self.settings.refit_rows_max / 8
        {
            Some(RefitReason::DictionaryFull)
        } else {
            None
        }
    }

    /// What a refit needs. From here on one is running, until [`Learner::adopt`] or [`Learner::refit_failed`].
    ///
    /// # Errors
    /// If there is no value function to start from. Then [`Learner::refit_failed`] makes the next one due later.
    pub fn refit_job(&mut self, window: &Window, reason: RefitReason) -> Result<RefitJob, SnapshotError> {
        self.requested = false;
        let current = self.snapshot(false)?;
        self.score_at_job = self.model.as_ref().map(|model| model.score());
        Ok(RefitJob {
            settings: self.settings.clone(),
            window: window.clone(),
            current,
            names: self.names.clone(),
            reason,
            dictionary_share: refit::DICTIONARY_SHARE,
            from: self.policies.changed_at,
            changes: self.policies.changes,
            seed: self.settings.seed.wrapping_add(self.refits + 1),
        })
    }

    /// The running refit found nothing: the present model stays, the next refit is due later.
    pub fn refit_failed(&mut self) {
        self.score_at_job = None;
        self.refits += 1;
        self.refit_ended_at = self.learned;
        self.no_room_before = self.counts().novel_when_full;
        self.schedule();
    }

    /// When the next refit by row count is due, counted from the end of the last one.
    fn schedule(&mut self) {
        let Settings { refit_first_rows: first, refit_growth, refit_rows_max, .. } = self.settings;
        // Rows of the policy that acts: those before have no say.
        let known = self.refit_ended_at.saturating_sub(self.policies.changed_at);
        let growth = (known as f64 * (refit_growth - 1.0)) as u64;
        let rows = growth.clamp(first, refit_rows_max.max(first));
        self.next_refit = if first == 0 { u64::MAX } else { self.refit_ended_at + rows };
    }

    /// Judge a candidate and adopt it if it is no worse: [`Learner::judge`], then [`Learner::adopt`] or
    /// [`Learner::refit_failed`].
    ///
    /// Rows of `window` that have not been learned yet are learned first, as by [`Learner::step`], so that both models are
    /// judged on the same ones.
    ///
    /// # Panics
    /// If the window has forgotten rows that were not learned.
    pub fn consider(&mut self, candidate: Candidate, window: &Window) -> Verdict {
        if self.model.is_some() {
            self.learn_up_to(window, window.end(), &mut Vec::new());
        }
        match self.judge(candidate, window) {
            Judgement::Behind(candidate) => Verdict::Behind(candidate),
            Judgement::Adopt { adoption, report, scores } => {
                let old = self.adopt(adoption);
                Verdict::Adopted { report, scores, old }
            }
            Judgement::Reject { report, why } => {
                self.refit_failed();
                Verdict::Rejected { report, why }
            }
        }
    }

    /// Judge a candidate, after it has been caught up if little is missing. Nothing changes here.
    ///
    /// # Panics
    /// If the window has forgotten rows that the candidate lacks, or holds rows that were not learned.
    pub fn judge(&self, mut candidate: Candidate, window: &Window) -> Judgement {
        assert_eq!(self.learned, window.end(), "both models are judged on the same rows");
        if candidate.changes != self.policies.changes {
            return Judgement::Reject { report: candidate.report, why: Rejection::OtherPolicy };
        }
        // A refresh in the tail would cost more than all its rows, but where refreshes are frequent there is no tail without one.
        let behind = self.learned - candidate.through;
        if behind > TAIL_ROWS.min(candidate.model.rows_to_refresh()) && candidate.rounds < CATCH_UP_ROUNDS {
            return Judgement::Behind(candidate);
        }
        candidate.skip_to(self.learned.saturating_sub(TAIL_ROWS));
        candidate.take_tail(window);
        let report = candidate.report.clone();
        if let Some(why) = self.objection(&candidate) {
            return Judgement::Reject { report, why };
        }
        let scores = self.compared_scores(&candidate).map(|(before, after, _)| (before, after));
        let mut model = candidate.model;
        model.set_settings(&self.settings);
        model.reset_score();
        let adoption = Adoption { generation: self.generation + 1, refits: self.refits + 1, model };
        Judgement::Adopt { adoption, report, scores }
    }

    fn objection(&self, candidate: &Candidate) -> Option<Rejection> {
        // The data-driven first model is only a stopgap: any fitted model replaces it.
        let stopgap = self.generation <= 1;
        if !candidate.model.is_sound() {
            return Some(Rejection::NoPosterior);
        }
        if candidate.report.selection.is_some() {
            // It was compared with the present model on held-out returns before it was rebuilt.
            return None;
        }
        let RefitReport { evidence_before: before, evidence_after: after, .. } = candidate.report;
        let after = after.unwrap_or(f64::NEG_INFINITY);
        if !after.is_finite() {
            return Some(Rejection::LessEvidence { before: before.unwrap_or(f64::NEG_INFINITY), after });
        }
        if let Some(before) = before.filter(|before| !stopgap && after < before - EVIDENCE_SLACK) {
            return Some(Rejection::LessEvidence { before, after });
        }
        if let Some((before, after, rows)) = self.compared_scores(candidate)
            && !stopgap
            && after < before - SCORE_SLACK
        {
            return Some(Rejection::WorseScore { before, after, rows });
        }
        None
    }

    /// Scores of the present model and of the candidate on rows that arrived after the candidate was fitted.
    fn compared_scores(&self, candidate: &Candidate) -> Option<(f64, f64, u64)> {
        let present = self.model.as_ref()?.score().since(&self.score_at_job?);
        let theirs = candidate.score();
        let enough = present.rows >= SCORED_ROWS_MIN && theirs.rows >= SCORED_ROWS_MIN;
        enough.then(|| (present.sum / present.rows as f64, theirs.sum / theirs.rows as f64, present.rows))
    }

    /// The value function as it is now. `revision` and `time` are the caller's.
    ///
    /// # Errors
    /// Before the first model, or if the system cannot be solved: then the last snapshot is still the best there is.
    pub fn snapshot(&self, variance: bool) -> Result<Snapshot, SnapshotError> {
        let needed = self.settings.warmup_rows as u64;
        let model = self.model.as_ref().ok_or(SnapshotError::NotReady { rows: self.learned, needed })?;
        let mut snapshot = Snapshot { generation: self.generation, offset: self.learned, ..model.snapshot(variance)? };
        // Nobody has looked yet at what the data support: until then the prior's deviation is the honest one.
        snapshot.provisional =
            self.generation <= 1 && self.settings.refit_first_rows > 0 && self.settings.variance != VarianceKind::Model;
        if let Some(variance) = snapshot.variance.as_mut().filter(|_| snapshot.provisional) {
            variance.fill(0.0);
        }
        Ok(snapshot)
    }

    /// Hyperparameters as tuned so far.
    pub fn hyperparameters(&self) -> Option<Hyperparameters> {
        self.model.as_ref().map(|model| model.hyperparameters())
    }

    /// What happened under the present model.
    pub fn counts(&self) -> Counts {
        self.model.as_ref().map(|model| model.counts()).unwrap_or_default()
    }
}
