//! The learner: stepped through the window, asked for refits, given candidates to judge.

mod actions;
mod due;
mod early;
mod endings;
#[cfg(feature = "faults")]
mod faults;
mod follow;
mod heads_change;
mod models;
mod policy;
mod rebuild;
mod rejection;
mod removal;
mod world;

use crate::improve::Acting;
use crate::math::drift::Finding;
use crate::math::kernel::Hyperparameters;
use crate::math::posterior::SolveError;
use crate::model::{Counts, Model, PolicyChange, Score};
use crate::refit::{self, Candidate, RefitJob, RefitReport, RefitTrigger};
use crate::settings::{Settings, VarianceKind};
use crate::snapshot::Snapshot;
use crate::warning::{Warning, WarningSettings};
use crate::watch::{Alarm, DriftSensitivity};
use crate::window::Window;
use crate::world::Live;
use actions::ActionRows;
pub use actions::INPUT_ROWS_MAX;
use early::Early;
pub use endings::ENDINGS_MAX;
#[cfg(feature = "faults")]
pub use faults::{FAULT, FAULT_TAKING};
use follow::Following;
pub use follow::{COPIES_MAX, KEPT_MAX};
pub use heads_change::{HeadsChange, LabelPart};
use policy::Policies;
pub use rejection::Rejection;
pub use removal::Residue;
use serde::{Deserialize, Serialize};

/// Rows that a candidate may be behind and still be caught up at once, between two batches: this bounds the learner's
/// pause at adoption.
const TAIL_ROWS: u64 = 64;
/// Rounds of catching up elsewhere. A stream that is faster than that is not waited for: the candidate leaves out the rows it
/// has missed, as if they had been lost, and its chains are cut there.
const CATCH_UP_ROUNDS: u32 = 6;
/// A round that leaves more than this share of the rows that the candidate was behind is the last: another would leave no fewer.
const GAINS_NOTHING: f64 = 0.8;
/// A candidate with this much less evidence is still no worse: the rebuild itself is worth having, nats.
const EVIDENCE_SLACK: f64 = 0.5;
/// Rows scored by both models before the score has a say.
const SCORED_ROWS_MIN: u64 = 32;
/// A candidate may predict new rows this much worse, nats per row, before it is refused.
const SCORE_SLACK: f64 = 0.1;
/// What a learner reports of a step or a verdict, for the daemon to log and publish.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// There is a first, data-driven model.
    FirstModel,
    /// The dictionary has reached its cap; states it cannot explain are counted from now on.
    DictionaryFull,
    /// The errors are no longer what they were.
    Drift(Alarm),
    /// A return is foretold to fall too low, or is so no longer.
    Warning(Warning),
    /// A fork with the rows from offset `from` on learns beside the model.
    Forked {
        /// Offset of its first row.
        from: u64,
        /// Offset at which it was made.
        at: u64,
    },
    /// The fork, or what a refit made of its rows, is the model now.
    Swapped {
        /// Offset of its first row.
        from: u64,
        /// Offset at which it took over.
        at: u64,
        /// Name of the model before, where it was set aside.
        kept: Option<String>,
    },
    /// The fork learns no more: the model foretells no worse.
    Dismissed {
        /// Offset of the fork's first row.
        from: u64,
        /// Offset at which it ended.
        at: u64,
    },
    /// A model that had been set aside fits again, and is the model now.
    Returned {
        /// Its name.
        name: String,
        /// Offset behind the last row it had learned.
        until: u64,
        /// Offset at which it took over.
        at: u64,
        /// Name of the model before, where it was set aside.
        kept: Option<String>,
    },
    /// Another policy acts.
    NewPolicy {
        /// From the row at this offset on.
        offset: u64,
        /// Its name, if it has one.
        policy: Option<String>,
    },
}

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
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
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
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// Too few rows so far.
    #[error("no model yet: {rows} of {needed} rows have arrived")]
    NotReady {
        /// Rows learned.
        rows: u64,
        /// Rows needed for a first model.
        needed: u64,
    },
    /// The system cannot be solved.
    #[error("{0}")]
    Solve(SolveError),
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
    /// What answers until there is a model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    early: Option<Early>,
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
    asked: RefitsAsked,
    full_reported: bool,
    /// Refits that have ended.
    refits: u64,
    #[serde(default)]
    following: Following,
    #[serde(default)]
    policies: Policies,
    /// Rows of a critic of action values; none for values of states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    action_rows: Option<Box<ActionRows>>,
    /// The weights that choose actions, from the first improvement on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    acting: Option<Acting>,
    /// Offset behind the last row that the last improvement swept over.
    #[serde(default, skip_serializing_if = "is_zero")]
    improved_at: u64,
    /// Names of the heads that were added at run time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    added: Vec<String>,
    /// Whether a refit selected kernel and dictionary. A missing value means yes, unless this is the first model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    selected: Option<bool>,
}

/// The refit that has been asked for, and the one that runs.
#[derive(Clone, Debug, Default)]
struct RefitsAsked {
    requested: bool,
    /// Score of the present model when the running refit was started, and why it was.
    score_at_job: Option<(Score, RefitTrigger)>,
    /// Changes of policy since then.
    policies: Vec<PolicyChange>,
}

impl RefitsAsked {
    /// Another model than the one so far is what the running refit is compared with.
    fn restart_score(&mut self) {
        self.score_at_job = self.score_at_job.map(|(_, trigger)| (Score::default(), trigger));
    }
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// An adoption as it is recorded, with the model itself, so that a replay need not select it again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Adoption {
    generation: u64,
    refits: u64,
    /// The change that the refit found among its rows, if it did: the model was made of those since.
    #[serde(default)]
    alarm: Option<Alarm>,
    model: Box<Model>,
    /// The weights that choose actions, if the refit improved them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    acting: Option<Acting>,
    /// Offset behind the last row that the sweeps saw, if there were any; none in records of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    swept_through: Option<u64>,
    /// Offset behind the last row that the selection saw; none in records of before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    selected_through: Option<u64>,
    /// Whether nothing was selected: the next selection is due as it was.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    improves_alone: bool,
    /// The model of the transition, if the refit has made one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    world: Option<Box<Live>>,
}

impl Adoption {
    /// Whether the parts agree, which a file may contradict.
    pub fn is_consistent(&self) -> bool {
        let m = self.model.dictionary().len();
        let (dim, width) = (self.model.inputs().dim(), self.model.settings().action_width());
        self.model.is_consistent()
            && self.acting.as_ref().is_none_or(|acting| acting.is_consistent(m))
            && self.world.as_ref().is_none_or(|world| world.is_consistent(dim, width, None))
    }
}

impl Learner {
    /// A critic that has seen nothing. `names` name the state variables.
    pub fn new(settings: Settings, names: Option<Vec<String>>) -> Self {
        Self::starting_at(settings, names, 0)
    }

    /// A critic that has seen nothing and learns rows as they are: of action values, rows between inputs of Q
    /// ([`crate::action::ActionValue::rows`]). `names` name the numbers of a state, or of an input.
    pub fn of_inputs(settings: Settings, names: Option<Vec<String>>) -> Self {
        let mut learner = Self {
            next_refit: u64::MAX,
            settings,
            names,
            model: None,
            early: None,
            first_row: 0,
            learned: 0,
            generation: 0,
            refit_ended_at: 0,
            no_room_before: 0,
            asked: RefitsAsked::default(),
            full_reported: false,
            refits: 0,
            following: Following::default(),
            policies: Policies::default(),
            action_rows: None,
            acting: None,
            improved_at: 0,
            added: Vec::new(),
            selected: None,
        };
        learner.settle_warnings();
        learner.schedule();
        learner
    }

    /// A critic that learns from the rows from offset `first_row` on, at which there are rows already.
    pub fn starting_at(settings: Settings, names: Option<Vec<String>>, first_row: u64) -> Self {
        if settings.action_value.is_some() {
            let action_rows = Some(Box::new(ActionRows::starting_at(first_row)));
            return Self { action_rows, ..Self::of_inputs(settings, names) };
        }
        Self { first_row, learned: first_row, ..Self::of_inputs(settings, names) }
    }

    /// Whether the parts agree, which a file may contradict.
    pub fn is_consistent(&self) -> bool {
        let model = self.model.as_ref().is_none_or(|model| model.is_consistent());
        let early = self.early.as_ref().is_none_or(|early| self.model.is_none() && early.model.is_consistent());
        model
            && early
            && self.following.is_consistent()
            && self.policies.is_consistent()
            && self.settings.are_valid()
            && self.first_row <= self.learned
            && self.action_rows.as_ref().is_none_or(|rows| rows.is_consistent(&self.settings))
            && self.acting.as_ref().is_none_or(|acting| {
                self.model.as_ref().is_some_and(|model| acting.is_consistent(model.dictionary().len()))
            })
            && self.model.is_some() == (self.generation > 0)
    }

    /// Offset of the first row that it may still have to see: behind the last one learned, but for those that a fork would
    /// begin with.
    pub fn replay_from(&self) -> u64 {
        if self.action_rows.is_some() {
            return self.learned();
        }
        if self.model.is_some() { self.looks_back_to() } else { self.first_row }
    }

    /// Offset from which on it looks at rows of the window again when the world changes.
    pub fn looks_back_to(&self) -> u64 {
        self.following.kept_from().unwrap_or(self.learned)
    }

    /// Offset of the first row of the world and the policy as they are, as far as is known: refits leave out those before.
    pub fn changed_at(&self) -> u64 {
        match self.following.changed_at() {
            0 => 0,
            changed_at => self.arrival(changed_at),
        }
    }

    /// Whether a fork is learning beside the model.
    pub fn is_forked(&self) -> bool {
        self.following.is_forked()
    }

    /// Names of the models that were set aside, the longest ago first, each with the offset behind the last row it learned.
    pub fn kept_models(&self) -> impl Iterator<Item = (&str, u64)> {
        self.following.kept()
    }

    /// Bytes held besides the present model, for reports of memory.
    pub fn bytes_beside_model(&self) -> usize {
        self.following.bytes()
    }

    /// The most that errors have to say at present, and of which reward; alarms are due when its level exceeds the threshold.
    pub fn drift(&self) -> Option<(usize, Finding)> {
        self.model.as_ref()?.watch()?.finding()
    }

    /// Whether the errors have been watched for long enough that an alarm is possible.
    pub fn watches(&self) -> bool {
        self.model.as_ref().and_then(|model| model.watch()).is_some_and(|watch| watch.speaks())
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
        self.following.let_heads_go(&settings.heads);
        let head = |of: &Settings, alarm: &WarningSettings| {
            of.heads.iter().find(|head| Some(&head.name) == alarm.head.as_ref()).cloned()
        };
        let stays = |alarm: &WarningSettings| {
            settings.alarms.contains(alarm) && head(&settings, alarm) == head(&self.settings, alarm)
        };
        self.following.keep_warnings(self.learned, stays);
        let schedule = |s: &Settings| (s.refit_first_rows, s.refit_growth, s.refit_rows_max);
        let rescheduled = schedule(&settings) != schedule(&self.settings);
        self.settings = settings;
        self.let_world_go();
        self.settle_warnings();
        if self.settings.drift_sensitivity == DriftSensitivity::Off {
            self.following.end();
            self.model.iter_mut().for_each(|model| model.stop_watch());
        }
        if rescheduled {
            self.schedule();
        }
    }

    /// The present model; before the first one what answers in its place, if something does.
    pub fn model(&self) -> Option<&Model> {
        self.model.as_deref().or(self.early.as_ref().map(|early| &*early.model))
    }

    /// Rows learned so far, as far as it is known what follows them: the offset behind the last.
    pub fn learned(&self) -> u64 {
        self.arrived(self.learned)
    }

    /// 0 before the first model, 1 for the data-driven one, then one more with each adoption.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Offset at which the next refit by row count is due; none if they are switched off.
    pub fn next_refit(&self) -> Option<u64> {
        (self.next_refit != u64::MAX).then(|| self.arrival(self.next_refit))
    }

    /// Whether a refit has been handed out and not yet come back.
    pub fn refit_running(&self) -> bool {
        self.asked.score_at_job.is_some()
    }

    /// Learn the rows of `window` that have arrived since the last step.
    ///
    /// # Panics
    /// If the window has forgotten rows that were not learned.
    pub fn step(&mut self, window: &Window) -> Vec<Event> {
        #[cfg(feature = "faults")]
        if let Some((seed, at)) = FAULT.get().filter(|&(seed, _)| seed == self.settings.seed) {
            assert!(at != self.learned && at != u64::MAX, "a fault made on purpose in the learner with seed {seed}");
        }
        let mut events = if self.action_rows.is_some() {
            self.step_actions()
        } else {
            let mut events = Vec::new();
            self.learn_up_to(window, window.end(), &mut events);
            events
        };
        let full = self.model.as_ref().is_some_and(|model| model.counts().novel_when_full > 0);
        if full && !self.full_reported {
            self.full_reported = true;
            events.push(Event::DictionaryFull);
        }
        events
    }

    /// Learn the rows of `window` before offset `end`, and report what came of it.
    fn learn_rows(&mut self, window: &Window, end: u64, events: &mut Vec<Event>) {
        if self.model.is_none() {
            self.begin(window, end, events);
        }
        self.begin_watch();
        self.learn(window, end);
        events.append(&mut self.following.events);
    }

    /// Make the first model from the rows of the warm-up, once there are enough before offset `end`.
    fn begin(&mut self, window: &Window, end: u64, events: &mut Vec<Event>) {
        self.learned = end;
        let first = self.first_row.max(window.start());
        let there = window.count(first..end);
        // Counted in rows received, so that a model appears at the same row however rows were batched.
        if there + (first - self.first_row) < self.settings.warmup_rows as u64 {
            self.answer_early(window, end);
            return;
        }
        // Without those behind them, so that refreshes fall due at the same rows however rows were batched.
        let known = (self.settings.warmup_rows as u64).min(there);
        let mut guess = self.guess(self.settings.clone(), &window.flatten_since(first), known as usize, first);
        guess.learned_between(first, first, window.holes());
        self.model = Some(Box::new(guess));
        (self.early, self.learned) = (None, window.behind(first, known));
        self.generation = 1;
        events.push(Event::FirstModel);
    }

    /// Watch the errors of a model that has been selected, or that will stay without that: a stopgap's errors shrink.
    fn begin_watch(&mut self) {
        let stays = self.generation_adopted() > 1 || self.settings.refit_first_rows == 0;
        if let Some(model) = self.model.as_mut().filter(|model| stays && model.watch().is_none()) {
            model.start_watch();
        }
    }

    /// Leave out the rows before offset `offset` that have not been learned, as if they had been lost: chains are cut there.
    pub fn skip_to(&mut self, offset: u64) {
        let offset = self.skip_actions(offset).unwrap_or(offset);
        match &mut self.model {
            Some(model) => model.cut_running_chains(),
            None => (self.first_row, self.early) = (offset, None),
        }
        self.following.skip_to(offset);
        self.learned = offset;
    }

    /// Adopt a model by one move of one value. Holders of a snapshot keep all of the old model, which is returned so that it
    /// can be dropped elsewhere, unless it is kept for a world that may come back.
    pub fn adopt(&mut self, adoption: Adoption) -> Option<Box<Model>> {
        let old = self.install(adoption.model, adoption.alarm);
        self.name_models();
        self.clear_residue();
        // An improvement selects nothing.
        let selected = !adoption.improves_alone || self.is_selected();
        (self.generation, self.refits) = (adoption.generation, adoption.refits);
        self.set_selected(selected);
        self.acting = adoption.acting;
        self.take_world(adoption.world);
        // Only where it counts, so that older checkpoints are as today's.
        // Rows that came while it swept are still to be swept over. Older records do not say which.
        let swept_through = adoption.swept_through.unwrap_or(self.learned).min(self.learned);
        self.improved_at = if self.settings.improves() { swept_through } else { 0 };
        self.asked.score_at_job = None;
        (self.no_room_before, self.full_reported) = (self.counts().novel_when_full, false);
        if !adoption.improves_alone {
            self.refit_ended_at = self.learned;
            match adoption.selected_through {
                Some(through) => self.schedule_after_selection(through.min(self.learned)),
                None => self.schedule(),
            }
        }
        old
    }

    /// What a refit needs. From here on one is running, until [`Learner::adopt`] or [`Learner::refit_failed`].
    ///
    /// # Errors
    /// If there is no value function to start from. Then [`Learner::refit_failed`] makes the next one due later.
    pub fn refit_job(&mut self, window: &Window, trigger: RefitTrigger) -> Result<RefitJob, SnapshotError> {
        self.asked.requested = false;
        let current = self.snapshot_of(false, Model::value_snapshot)?;
        self.asked.score_at_job = self.model.as_ref().map(|model| (model.score(), trigger));
        self.asked.policies.clear();
        Ok(RefitJob {
            settings: self.settings.clone(),
            window: self.rows(window).clone(),
            current,
            present: self.model.as_ref().filter(|_| self.tries()).map(|model| Box::new(model.summed())),
            second: self.model.as_ref().and_then(|model| refit::SecondKernel::of(model)),
            names: self.names.clone(),
            endings: self.endings(),
            about: None,
            trigger,
            dictionary_share: refit::DICTIONARY_SHARE,
            from: self.selects_from(self.rows(window).end()),
            world_from: self.action_rows.as_ref().and_then(|rows| rows.world.as_ref()).map_or(0, |world| world.first()),
            seed: self.settings.seed.wrapping_add(self.refits + 1),
        })
    }

    /// Judge a candidate and adopt it if it is no worse: [`Learner::judge`], then [`Learner::adopt`] or
    /// [`Learner::refit_failed`].
    ///
    /// Rows of `window` that have not been learned yet are learned first, as by [`Learner::step`], so that both models are
    /// judged on the same ones.
    ///
    /// # Panics
    /// If the window has forgotten rows that were not learned.
    pub fn try_adopt(&mut self, candidate: Candidate, window: &Window) -> Verdict {
        if self.action_rows.is_some() {
            self.following.events = self.step_actions();
        } else if self.model.is_some() {
            let mut events = Vec::new();
            self.learn_up_to(window, window.end(), &mut events);
            self.following.events = events;
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
        let window = self.rows(window);
        assert_eq!(self.learned, window.end(), "both models are judged on the same rows");
        let removed = self.residue().offsets();
        if !removed.is_empty() && candidate.model.has_learned_any(removed) {
            return Judgement::Reject { report: candidate.report, why: Rejection::RowsRemoved };
        }
        if let Some(why) = self.outdated(&candidate) {
            return Judgement::Reject { report: candidate.report, why };
        }
        candidate.policies.list.clone_from(&self.asked.policies);
        // A refresh in the tail would cost more than all its rows, but where refreshes are frequent there is no tail without one.
        let behind = self.learned - candidate.through;
        let catches_up = candidate.rounds == 0
            || candidate.rounds < CATCH_UP_ROUNDS && behind as f64 <= GAINS_NOTHING * candidate.was_behind as f64;
        let solves = candidate.lacks_policy();
        if (solves || behind > TAIL_ROWS.min(candidate.model.rows_to_refresh())) && catches_up {
            return Judgement::Behind(candidate);
        }
        candidate.skip_to(self.learned.saturating_sub(TAIL_ROWS));
        candidate.take_tail(window);
        let report = candidate.report.clone();
        if let Some(why) = self.rejection(&candidate) {
            return Judgement::Reject { report, why };
        }
        let scores = self.compared_scores(&candidate).map(|(before, after, _)| (before, after));
        let Candidate { mut model, alarm, acting, swept_through, selected_through, world, .. } = candidate;
        model.set_settings(&self.settings);
        model.reset_score();
        let improves_alone = report.trigger == RefitTrigger::Improvement;
        let (generation, refits) = (self.generation + 1, self.refits + 1);
        let selected_through = Some(selected_through);
        let adoption = Adoption {
            generation,
            refits,
            alarm,
            model,
            acting,
            swept_through,
            selected_through,
            improves_alone,
            world,
        };
        Judgement::Adopt { adoption, report, scores }
    }

    /// Whether a new model is tried beside the present one on rows that chose neither: where the latter was selected, and is of the
    /// policy that acts.
    fn tries(&self) -> bool {
        self.generation_adopted() > 1 && self.settings.selects_by_returns() && !self.settings.leaves_chain()
    }

    fn rejection(&self, candidate: &Candidate) -> Option<Rejection> {
        // The data-driven first model is only a stopgap: any fitted model replaces it.
        let stopgap = self.generation_adopted() <= 1;
        if !candidate.model.is_sound() {
            return Some(Rejection::NoPosterior);
        }
        if self.supplies_missing_heads(&candidate.model) {
            // The present model cannot answer what is asked of it, and the candidate can.
            return None;
        }
        if self.settings.leaves_chain() {
            // It follows another policy, or a better one, than the model that it would be compared with.
            return None;
        }
        let RefitReport { heads, evidence_before: before, evidence_after: after, .. } = candidate.report;
        if candidate.report.selection.is_some() && heads.is_none() {
            return candidate.report.trial.filter(|trial| trial.gain < 0.0).map(Rejection::ErrsMore);
        }
        let after = after.unwrap_or(f64::NEG_INFINITY);
        if !after.is_finite() {
            return Some(Rejection::LessEvidence { before: before.unwrap_or(f64::NEG_INFINITY), after });
        }
        if let Some(before) = before.filter(|before| !stopgap && after < before - EVIDENCE_SLACK) {
            return Some(Rejection::LessEvidence { before, after });
        }
        // The score is of the critic's rewards alone: the evidence of heads counts them too.
        if let Some((before, after, rows)) = self.compared_scores(candidate)
            && !stopgap
            && heads.is_none()
            && after < before - SCORE_SLACK
        {
            return Some(Rejection::WorseScore { before, after, rows });
        }
        None
    }

    /// Scores of the present model and of the candidate on rows that arrived after the candidate was fitted.
    fn compared_scores(&self, candidate: &Candidate) -> Option<(f64, f64, u64)> {
        let present = self.model.as_ref()?.score().since(&self.asked.score_at_job?.0);
        let theirs = candidate.score();
        let enough = present.rows >= SCORED_ROWS_MIN && theirs.rows >= SCORED_ROWS_MIN;
        enough.then(|| (present.sum / present.rows as f64, theirs.sum / theirs.rows as f64, present.rows))
    }

    /// The value function as it is now, with what tracks the stream where its gate is open. `revision` and `time` are the caller's.
    ///
    /// # Errors
    /// Before the first model, or if the system cannot be solved: then the last snapshot is still the best there is.
    pub fn snapshot(&self, variance: bool) -> Result<Snapshot, SnapshotError> {
        self.snapshot_of(variance, Model::following_snapshot).map(|snapshot| self.with_prior_mean(snapshot))
    }

    fn snapshot_of(
        &self,
        variance: bool,
        take: fn(&Model, bool) -> Result<Snapshot, SolveError>,
    ) -> Result<Snapshot, SnapshotError> {
        let needed = if self.settings.action_value.is_some() { self.settings.warmup_rows as u64 } else { 1 };
        let (model, generation) = self.answering().ok_or(SnapshotError::NotReady { rows: self.learned, needed })?;
        let taken = take(model, variance).map_err(SnapshotError::Solve)?;
        let mut snapshot = Snapshot { generation, offset: self.learned(), ..taken };
        if let Some(acting) = &self.acting {
            acting.act(model.signal(), &mut snapshot);
        }
        // No refit has checked yet what the data support: until then the prior's deviation is the honest one.
        // Improvements make generations, and select nothing.
        let selected = self.generation_adopted() > 1 && (!self.settings.improves() || self.is_selected());
        let settled = selected && !self.lacks_rows()
            || self.settings.refit_first_rows == 0
            || self.settings.variance == VarianceKind::Model;
        snapshot.provisional = self.early.is_some() || !settled;
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
