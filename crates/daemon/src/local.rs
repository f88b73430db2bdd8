//! A critic in a program of one's own: rows in, values out, models selected beside that. No socket, no journal.
//!
//! It takes rows as the daemon takes them and learns them as the daemon does, through [`State::apply`]: the same rows in the same
//! groups, and refits at the same rows, give the same model, bit for bit. A refit has threads of its own while it runs. They work
//! on copies, so that a process that forks has a whole critic in the child, which starts the refit again.

use crate::config::Config;
use crate::daemon::core::intake::Intake;
use crate::fleet::{Epoch, FleetPart, SUMS, Told};
use crate::journal::checkpoint::Checkpoint;
use crate::learner::refit::{Candidate, RefitJob};
use crate::learner::window::{Window, WrittenWindow};
use crate::learner::{Adoption, Judgement, Learner, Settings, SnapshotError};
use crate::packed;
use crate::refit_work::{self, RefitWork};
use crate::sealed::Seal;
use crate::snapshot::{Evaluator, Snapshot};
use crate::state::State;
use crate::state::record::{Configured, Group, Mark, Record};
use crate::transition::{Batch, BatchParts};
use crate::wire::{ErrorCode, WireError, bytes_of};
use crossbeam_channel::{Receiver, TryRecvError, bounded};
use rayon::ThreadPoolBuilder;
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};
use std::{fmt, mem, process, thread};

const SEAL: Seal = Seal { kind: b"criticd learner\n", version: 1 };

/// Key of a MODEL file under which a whole learner lies, as Python writes it.
pub const LEARNER: &str = "learner";

/// What a MODEL file says of how its model was learned, by its sums or the whole learner; none if it has neither.
///
/// # Errors
/// Why what it has cannot be used.
pub fn part_of_model(bytes: &[u8]) -> Result<Option<FleetPart>, String> {
    if let Some(sums) = bytes_of(bytes, SUMS) {
        return FleetPart::read(sums).map(Some);
    }
    bytes_of(bytes, LEARNER).map(|learner| Critic::read(learner)?.part()).transpose()
}

/// How a refit has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RefitEnd {
    /// Its model is the critic's now.
    Adopted {
        /// Of the critic from here on.
        generation: u64,
    },
    /// The model before stays.
    Rejected {
        /// Why.
        why: String,
    },
}

/// One critic, of the first `[[critic]]` of its settings. See the module.
#[derive(Debug)]
pub struct Critic {
    config: Arc<Config>,
    state: State,
    intake: Intake,
    refit: Option<Refit>,
    /// Of the last refit that has ended.
    outcome: Option<RefitEnd>,
    /// What evaluates the newest model, once it has been asked for, and whether with its variance, which it may lack.
    evaluator: Option<(Evaluator, bool)>,
}

/// A critic as files have it.
#[derive(Serialize, Deserialize)]
struct KeptCritic {
    settings: String,
    state: Checkpoint,
    rows: Option<WrittenWindow>,
}

impl Critic {
    /// A critic that has seen nothing.
    pub fn new(config: Config) -> Self {
        let mut state = State::new(config.window_rows);
        let critics = config.critics[..1].to_vec();
        let configured = Configured { critics, names: config.state_names.clone(), from: 0, ..Configured::default() };
        let end = Mark { id: 1, ..Mark::default() };
        let group = Group { end, first_offset: 0, time: now(), records: vec![Record::Configured(configured)] };
        state.apply(group).expect("settings can be the first record");
        Self::of(config, state)
    }

    fn of(config: Config, state: State) -> Self {
        let config = Arc::new(config);
        let intake = Intake::new(Arc::clone(&config), &state);
        Self { config, state, intake, refit: None, outcome: None, evaluator: None }
    }

    /// What learns: its settings, its counts, its model.
    pub fn learner(&self) -> &Learner {
        &self.state.critics()[0]
    }

    /// Memory for the next batch.
    pub fn memory(&mut self) -> BatchParts {
        self.intake.memory()
    }

    /// Learn rows, all of them or none. A refit that has ended is adopted before that, and one that is due then is started.
    ///
    /// # Errors
    /// The field at fault, as the daemon says it; `internal` where the learner has failed, which is a bug.
    pub fn learn(&mut self, batch: Batch) -> Result<(), WireError> {
        self.settle();
        self.check()?;
        self.intake.take(batch, false, now())?;
        self.apply();
        self.start_if_due();
        self.check()
    }

    /// Whether rows could be learned, which changes nothing.
    ///
    /// # Errors
    /// As [`Critic::learn`].
    pub fn check_rows(&self, batch: &Batch) -> Result<(), WireError> {
        self.check()?;
        self.intake.check(batch)
    }

    /// Learn in this epoch from the first row on. `generation` is 2 at least, since the model was selected.
    ///
    /// # Errors
    /// If rows have been learned, or the epoch is of another kind of critic.
    pub fn begin(&mut self, epoch: &Epoch, generation: u64) -> Result<(), String> {
        if self.state.end().offset > 0 {
            return Err("rows have been learned already: an epoch begins before the first one".into());
        }
        let (ours, theirs) = (self.learner().settings(), epoch.model().settings());
        if (&ours.rewards, ours.discount) != (&theirs.rewards, theirs.discount) {
            return Err("the epoch is of a critic with other rewards or another discount".into());
        }
        let adoption = Adoption::given(Box::new(epoch.model().clone()), generation.max(2));
        let critic = ours.name.clone();
        self.intake.decide(Record::Adopted { critic, adoption });
        self.apply();
        Ok(())
    }

    /// What it has summed up; none before its first model.
    pub fn told(&self) -> Option<Told> {
        let positions = self.state.streams().positions();
        let streams = positions.into_iter().map(|(name, position)| (name, position.next_seq)).collect();
        Some(Told { streams, sums: self.learner().model()?.sums() })
    }

    /// What others can be added to.
    ///
    /// # Errors
    /// If it has no model yet, or models of several policies or worlds.
    pub fn part(&self) -> Result<FleetPart, String> {
        let told = self.told().ok_or("it has learned too few rows for a model")?;
        let mut models = self.learner().models();
        let model = models.next().ok_or("it has learned too few rows for a model")?;
        if models.next().is_some() {
            return Err("it holds models of several policies or worlds, whose sums do not add".into());
        }
        Ok(FleetPart { epoch: Epoch::of(model), told })
    }

    fn check(&self) -> Result<(), WireError> {
        let failed = |why: &str| {
            WireError::new(ErrorCode::Internal, format!("the learner has failed, please report this: {why}"))
        };
        self.state.why_halted(0).map_or(Ok(()), |why| Err(failed(why)))
    }

    /// Apply what has been taken in and decided.
    fn apply(&mut self) {
        let Some(mut group) = self.intake.close(now()) else { return };
        group.end.id = self.state.end().id + 1;
        let applied = self.state.apply(group).expect("what the intake has taken in follows on what was before");
        self.intake.reuse_rows(applied.rows);
        self.evaluator = None;
    }

    /// Ask for a refit with the rows so far. It starts at once, or behind the one that runs.
    ///
    /// # Errors
    /// `not_ready` before the first model.
    pub fn request_refit(&mut self) -> Result<(), WireError> {
        self.settle();
        self.check()?;
        let learner = self.learner();
        if learner.generation() == 0 {
            let needed = learner.settings().warmup_rows as u64;
            return Err(not_ready(&SnapshotError::NotReady { rows: learner.learned(), needed }));
        }
        self.state.request_refit(0);
        self.start_if_due();
        Ok(())
    }

    /// Whether a refit runs, or has been asked for.
    pub fn is_refitting(&self) -> bool {
        self.refit.is_some() || self.learner().is_refit_requested()
    }

    /// What closes when the refit that runs, if one does, has ended: [`Critic::settle`] then adopts its model.
    pub fn refit_end(&self) -> Option<Receiver<()>> {
        self.refit.as_ref().map(|refit| refit.end.clone())
    }

    /// How the last refit ended that was adopted or rejected.
    pub fn outcome(&self) -> Option<&RefitEnd> {
        self.outcome.as_ref()
    }

    fn start_if_due(&mut self) {
        if self.refit.is_some() {
            return;
        }
        let Some(trigger) = self.learner().refit_due() else { return };
        match self.state.refit_job(0, trigger) {
            Ok(job) => self.start(Arc::new(job), None),
            Err(why) => self.end_refit(why.to_string()),
        }
    }

    fn start(&mut self, job: Arc<RefitJob>, behind: Option<Box<Candidate>>) {
        let window = behind.as_ref().and(self.state.window()).map(|window| self.learner().rows(window).clone());
        match Refit::start(job, behind.zip(window), refit_work::threads(self.config.refit_threads)) {
            Ok(refit) => self.refit = Some(refit),
            Err(why) => self.end_refit(format!("there is no thread for it: {why}")),
        }
    }

    /// Adopt the model of a refit that has ended, if it is better. In a process that has been forked since the refit was started,
    /// start it again.
    pub fn settle(&mut self) {
        let Some(refit) = self.refit.take_if(|refit| refit.is_lost() || refit.has_ended()) else { return };
        if refit.is_lost() {
            let job = Arc::clone(&refit.job);
            // Its thread belongs to another process.
            mem::forget(refit);
            return self.start(job, None);
        }
        let job = Arc::clone(&refit.job);
        match (refit.candidate(), self.state.window()) {
            (Ok(candidate), Some(window)) => match self.learner().judge(candidate, window) {
                Judgement::Behind(candidate) => self.start(job, Some(Box::new(candidate))),
                Judgement::Reject { why, .. } => self.end_refit(why.to_string()),
                Judgement::Adopt { adoption, .. } => {
                    let critic = self.learner().settings().name.clone();
                    self.intake.decide(Record::Adopted { critic, adoption });
                    self.apply();
                    self.outcome = Some(RefitEnd::Adopted { generation: self.learner().generation() });
                    self.start_if_due();
                }
            },
            (Err(why), _) => self.end_refit(why),
            (_, None) => unreachable!("a refit ran on rows"),
        }
    }

    fn end_refit(&mut self, why: String) {
        self.intake.decide(Record::RefitEnded { critic: self.learner().settings().name.clone() });
        self.apply();
        self.outcome = Some(RefitEnd::Rejected { why });
        self.start_if_due();
    }

    /// The value function as it is now, a refit that has ended adopted, with its variance if that is asked for.
    ///
    /// # Errors
    /// `not_ready` before the first model, `internal` if the system cannot be solved.
    pub fn snapshot(&mut self, variance: bool) -> Result<&Arc<Snapshot>, WireError> {
        self.evaluator(variance).map(Evaluator::snapshot)
    }

    /// What evaluates it.
    ///
    /// # Errors
    /// As [`Critic::snapshot`].
    pub fn evaluator(&mut self, variance: bool) -> Result<&Evaluator, WireError> {
        self.settle();
        self.check()?;
        if !self.evaluator.as_ref().is_some_and(|&(_, asked)| asked || !variance) {
            let learner = self.learner();
            let snapshot = learner.snapshot(variance).map_err(|e| not_ready(&e))?;
            let said = self.state.configured().and_then(|configured| configured.reward_names.as_deref());
            let reward_names = Config::reward_names(self.config.names_of_rewards(said), learner.settings());
            // Each row makes another model: its number tells them apart.
            let snapshot = Snapshot { revision: snapshot.offset, time: now(), reward_names, ..snapshot };
            self.evaluator = Some((Evaluator::new(snapshot), variance));
        }
        Ok(&self.evaluator.as_ref().expect("made above").0)
    }

    /// All of it, for [`Critic::read`]. A refit that runs is not kept: it is due again there.
    pub fn written(&self) -> Vec<u8> {
        let kept = KeptCritic {
            settings: self.config.print(),
            state: Checkpoint::of(&self.state, now()),
            rows: self.state.window().map(Window::written),
        };
        SEAL.close(|out| rmp_serde::encode::write_named(out, &kept).expect("plain data into memory"))
    }

    /// The critic that [`Critic::written`] wrote. It goes on bit for bit.
    ///
    /// # Errors
    /// Why the bytes are none.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let kept: KeptCritic = SEAL
            .open(bytes)
            .map_err(|e| e.to_string())
            .and_then(|body| packed::read(body).map_err(|e| e.to_string()))?;
        let checkpoint = kept.state.checked().map_err(|e| e.to_string())?;
        let known: Vec<Settings> = checkpoint.learners.iter().map(|critic| critic.settings().clone()).collect();
        let config = Config::from_toml_of(&kept.settings, &known).map_err(|e| e.to_string())?;
        let state = checkpoint.into_state(config.window_rows);
        let state = match kept.rows {
            None => state,
            Some(rows) => state.with_window(rows.window(config.window_rows)?),
        };
        let ends = state.window().map_or(0, Window::end) == state.end().offset;
        if !ends || state.critics().len() != 1 {
            return Err("its parts do not fit each other".into());
        }
        Ok(Self::of(config, state))
    }

    /// End the refit that runs, if one does, and its threads.
    pub fn close(&mut self) {
        if self.refit.take().is_some() {
            self.intake.decide(Record::RefitEnded { critic: self.learner().settings().name.clone() });
            self.apply();
            self.outcome = Some(RefitEnd::Rejected { why: "it was ended".into() });
        }
    }
}

fn not_ready(why: &SnapshotError) -> WireError {
    let code = if matches!(why, SnapshotError::NotReady { .. }) { ErrorCode::NotReady } else { ErrorCode::Internal };
    WireError::new(code, why.to_string())
}

fn now() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since: Duration| since.as_secs_f64())
}

/// A refit that runs, on threads that end with it.
struct Refit {
    job: Arc<RefitJob>,
    /// The process that it runs in.
    process: u32,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<Candidate, String>>>,
    /// Disconnected when it has ended.
    end: Receiver<()>,
}

impl Refit {
    /// Run `job`; or let the candidate that is `behind` catch up with a window.
    fn start(job: Arc<RefitJob>, behind: Option<(Box<Candidate>, Window)>, threads: usize) -> std::io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (alive, end) = bounded(0);
        let (task, asked) = (Arc::clone(&job), Arc::clone(&stop));
        let work = move || {
            let _alive = alive;
            let spent = OnceLock::new();
            let work = match &behind {
                None => RefitWork::Run(&task, &spent),
                Some((candidate, window)) => RefitWork::CatchUp(candidate.clone(), window),
            };
            if threads == 1 {
                return refit_work::perform(work, None, &asked);
            }
            // Scoped, so that no thread is left when this one ends.
            let pool = ThreadPoolBuilder::new().num_threads(threads);
            let done = pool.build_scoped(|thread| thread.run(), |pool| refit_work::perform(work, Some(pool), &asked));
            done.unwrap_or_else(|why| Err(format!("there are no threads for it: {why}")))
        };
        let thread = Some(thread::Builder::new().name("criticd-refit".into()).spawn(work)?);
        Ok(Self { job, process: process::id(), stop, thread, end })
    }

    fn is_lost(&self) -> bool {
        self.process != process::id()
    }

    fn has_ended(&self) -> bool {
        self.end.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// What it has found.
    fn candidate(mut self) -> Result<Candidate, String> {
        let thread = self.thread.take().expect("joined once");
        thread.join().unwrap_or_else(|_| Err("the refit panicked".to_owned()))
    }
}

impl Drop for Refit {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else { return };
        if self.is_lost() {
            mem::forget(thread);
        } else {
            drop(thread.join());
        }
    }
}

impl fmt::Debug for Refit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refit").field("trigger", &self.job.trigger).finish_non_exhaustive()
    }
}
