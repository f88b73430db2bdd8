//! A critic that is learned again from the whole retained journal, beside the daemon that goes on: a job in, a critic out.
//!
//! First model selection chooses kernel, lambda, ridge and dictionary from the window, as a refit does. Then a critic with these,
//! which has learned nothing, learns every retained row, group by group, as it would have live. The rows that arrive meanwhile
//! are learned from the journal too ([`Rebuilt::follow`]), until so few are missing that the core can add them between two groups.
//!
//! What comes out is recorded as a whole, as an adopted model is: no replay does this again.
//!
//! Heads that came late need less: they learn the rows of the critic's model ([`RebuiltHeads`]), and the critic stays as it is.

mod late_heads;

pub use late_heads::RebuiltHeads;

use super::recovery::recorded_skips;
use crate::journal::store::{Storage, for_each_group};
use crate::journal::{Record, SkippedRows, StoredGroup};
use crate::learner::heads::{Demands, Head};
use crate::learner::model::{LateHeads, Model};
use crate::learner::refit::{self, RefitError, RefitTrigger};
use crate::learner::window::Window;
use crate::learner::{Learner, Settings};
use crate::panics;
use crate::state::removals::Removals;
use crate::transition::{Batch, Invalid};
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows that the model which selection begins with is made of.
const HEAD_ROWS: u64 = 4096;
/// Rows that the window of a rebuild holds at least: those that the critic has learned already need not stay.
pub(super) const WINDOW_ROWS: usize = 4096;
/// Times that a rebuild begins again without rows on which the critic has failed.
const ATTEMPTS: usize = 16;

/// How far a rebuild is, for those who wait.
#[derive(Debug, Default)]
pub struct RebuildProgress {
    rows: AtomicU64,
    of: AtomicU64,
}

impl RebuildProgress {
    /// Rows learned, rows there are.
    pub fn get(&self) -> (u64, u64) {
        (self.rows.load(Ordering::Relaxed), self.of.load(Ordering::Relaxed))
    }

    /// There are the rows from offset `first` on to the last one in the journal.
    fn expect(&self, storage: &mut dyn Storage, first: u64) -> Result<(), Ended> {
        if let Some((_, last)) = storage.bounds()?
            && let Some(head) = storage.headers(last, 1)?.first()
        {
            self.of.store(head.end().saturating_sub(first), Ordering::Relaxed);
        }
        Ok(())
    }
}

/// What a rebuild needs.
#[derive(Clone, Debug)]
pub struct RebuildJob {
    /// Settings of the critic.
    pub settings: Settings,
    /// Names of the state variables.
    pub names: Option<Vec<String>>,
    /// Its kernel, dictionary and lambda stay, if it is there; else a model is selected. It has learned nothing.
    pub like: Option<Box<Model>>,
    /// Heads that came late, before the first row of the critic's model. If the journal has its rows, they alone are learned.
    pub late: Option<Box<LateHeads>>,
    /// The retained rows that refits see.
    pub window: Window,
    /// Rows that were taken back, which it does not learn.
    pub removals: Removals,
    /// Where it says how far it is.
    pub progress: Arc<RebuildProgress>,
}

/// A rebuild that goes on.
#[derive(Debug)]
pub enum Rebuilt {
    /// Of the whole critic.
    Critic(Box<RebuiltCritic>),
    /// Of heads that came late.
    Heads(Box<RebuiltHeads>),
}

/// A critic that is learned again.
#[derive(Debug)]
pub struct RebuiltCritic {
    /// The critic.
    pub learner: Learner,
    /// Offset of the first row that it was offered.
    pub first_row: u64,
    /// Times that it has followed the journal.
    pub rounds: u32,
    /// Heads that it leaves out, since a row lacks what they ask for, each with the reason.
    pub unlearnable: Vec<(Head, String)>,
    window: Window,
    /// Number of the group that is read next.
    next: u64,
    /// The demands of its heads on a row.
    demands: Demands,
    /// Rows that it leaves out.
    left_out: Vec<SkippedRows>,
    /// Name of the policy that the last rows of each stream were of, where they named one.
    policies: HashMap<u32, String>,
    removals: Removals,
    progress: Arc<RebuildProgress>,
}

/// How a rebuild ended, as the thread that ran it says.
#[derive(Debug)]
pub struct RebuildDone {
    /// Name of the critic.
    pub critic: String,
    /// The critic, or why there is none.
    pub result: Result<Box<Rebuilt>, String>,
    /// Seconds since it was started; of following, since that was.
    pub seconds: f64,
}

/// Why a pass over the journal ended before its end.
enum Ended {
    Failed(String),
    /// The critic has failed on these rows.
    Panicked(SkippedRows),
    /// A row lacks what these heads ask for.
    Unlearnable {
        heads: Vec<Head>,
        why: String,
    },
    /// The journal does not have all rows any more.
    Incomplete,
}

impl Ended {
    /// `batch`, whose first row is that at `offset`, lacks what some of these heads ask for.
    fn unlearnable(fault: &Invalid, offset: u64, heads: &[Head], batch: &Batch) -> Self {
        let row = offset + fault.index.unwrap_or(0) as u64;
        let lacks = |head: &&Head| Demands::of([*head]).check(batch).is_err();
        Self::Unlearnable {
            heads: heads.iter().filter(lacks).cloned().collect(),
            why: format!("row {row} cannot be learned: `{}` {}", fault.field, fault.message),
        }
    }
}

impl<E: std::fmt::Display> From<E> for Ended {
    fn from(e: E) -> Self {
        Self::Failed(e.to_string())
    }
}

impl RebuildJob {
    /// Learn what `storage` retains: the late heads alone where that is possible, else the whole critic. `keep_going` is asked between
    /// groups, and by the search, as in [`refit::run`].
    ///
    /// # Errors
    /// Why there is no result: stopped, or the journal cannot be read, or the critic fails on its rows.
    pub fn run(&self, storage: &mut dyn Storage, keep_going: &(dyn Fn() -> bool + Sync)) -> Result<Rebuilt, String> {
        if let Some(late) = &self.late {
            if let Some(heads) = RebuiltHeads::learn(self, late, storage, keep_going)? {
                return Ok(Rebuilt::Heads(Box::new(heads)));
            }
            let (critic, first) = (&self.settings.name, late.first_row());
            log::info!(
                "event=late_heads_given_up critic={critic} why=\"the journal lacks rows of the model\" first_row={first}"
            );
        }
        self.learn_critic(storage, keep_going).map(|critic| Rebuilt::Critic(Box::new(critic)))
    }

    fn learn_critic(
        &self,
        storage: &mut dyn Storage,
        keep_going: &(dyn Fn() -> bool + Sync),
    ) -> Result<RebuiltCritic, String> {
        let (first_group, _) = storage.bounds().map_err(|e| e.to_string())?.ok_or("the journal is empty")?;
        let heads = storage.headers(first_group, 1).map_err(|e| e.to_string())?;
        let first_row = heads.first().map_or(0, |head| head.first_offset);
        let critic = &self.settings.name;
        let mut left_out = recorded_skips(storage, first_group - 1, &mut || keep_going()).map_err(|e| e.to_string())?;
        left_out.retain(|rows| rows.critic == *critic);
        let mut beginning = self.select(first_row, keep_going)?;
        let (mut unlearnable, mut attempts) = (Vec::new(), 0);
        while attempts <= ATTEMPTS {
            let start = beginning.learned();
            let mut rebuilt = RebuiltCritic {
                learner: beginning.clone(),
                first_row,
                rounds: 0,
                unlearnable: unlearnable.clone(),
                window: empty_like(&self.window, start),
                next: first_group,
                demands: Demands::of(&beginning.settings().heads),
                left_out: left_out.clone(),
                policies: HashMap::new(),
                removals: self.removals.clone(),
                progress: Arc::clone(&self.progress),
            };
            match rebuilt.read(storage, keep_going) {
                Ok(()) => return Ok(rebuilt),
                Err(Ended::Failed(why)) => return Err(why),
                Err(Ended::Incomplete) => return Err("the journal has lost rows".to_owned()),
                Err(Ended::Panicked(rows)) if rows.from >= rows.to => return Err(rows.why),
                Err(Ended::Panicked(rows)) => {
                    left_out.push(rows);
                    attempts += 1;
                }
                Err(Ended::Unlearnable { heads, why }) => {
                    let mut settings = beginning.settings().clone();
                    settings.heads.retain(|head| !heads.contains(head));
                    beginning.set_settings(settings);
                    unlearnable.extend(heads.into_iter().map(|head| (head, why.clone())));
                }
            }
        }
        Err(left_out.pop().map_or_else(String::new, |rows| rows.why))
    }

    /// The critic that learns the rows: with what model selection finds in the window, if there is any.
    fn select(&self, first_row: u64, keep_going: &(dyn Fn() -> bool + Sync)) -> Result<Learner, String> {
        let (settings, names) = (&self.settings, &self.names);
        if let Some(model) = &self.like {
            return Ok(Learner::with_kernel_of(settings.clone(), names.clone(), first_row, model));
        }
        let plain = || Learner::starting_at(settings.clone(), names.clone(), first_row);
        // The window has no actions: a model of action values is selected when the rows are there.
        if settings.action_value.is_some() {
            return Ok(plain());
        }
        if settings.refit_first_rows == 0 || (self.window.len() as u64) < settings.refit_first_rows {
            return Ok(plain());
        }
        let select = || {
            let head = self.window.from_offset(self.window.end().saturating_sub(HEAD_ROWS));
            let mut stopgap = Learner::starting_at(settings.clone(), names.clone(), head.start());
            stopgap.step(&head);
            let job = stopgap.refit_job(&self.window, RefitTrigger::Requested).map_err(|e| e.to_string());
            job.map(|job| refit::run(&job, keep_going))
        };
        let found = catch_unwind(AssertUnwindSafe(select));
        match found.map_err(|panic| panics::message(&*panic)).and_then(|found| found) {
            Ok(Ok(candidate)) => {
                // Rows of a world that is no more are left out, as by a refit.
                let first_row = candidate.alarm.as_ref().map_or(first_row, |_| candidate.from.max(first_row));
                Ok(Learner::with_kernel_of(settings.clone(), names.clone(), first_row, &candidate.model))
            }
            Ok(Err(RefitError::Stopped)) => Err(RefitError::Stopped.to_string()),
            // Without a selection it learns with what the first rows suggest.
            Ok(Err(_)) | Err(_) => Ok(plain()),
        }
    }
}

impl Rebuilt {
    /// Name of the critic.
    pub fn critic(&self) -> &str {
        match self {
            Self::Critic(rebuilt) => &rebuilt.learner.settings().name,
            Self::Heads(rebuilt) => &rebuilt.critic,
        }
    }

    /// Heads that are left out, since a row lacks what they ask for, each with the reason.
    pub fn unlearnable(&self) -> &[(Head, String)] {
        match self {
            Self::Critic(rebuilt) => &rebuilt.unlearnable,
            Self::Heads(rebuilt) => &rebuilt.unlearnable,
        }
    }

    /// Learn what has been stored since.
    ///
    /// # Errors
    /// Why that is not possible.
    pub fn follow(&mut self, storage: &mut dyn Storage, keep_going: &(dyn Fn() -> bool + Sync)) -> Result<(), String> {
        let followed = match self {
            Self::Critic(rebuilt) => rebuilt.follow(storage, keep_going),
            Self::Heads(rebuilt) => rebuilt.follow(storage, keep_going),
        };
        followed.map_err(|ended| match ended {
            Ended::Failed(why) | Ended::Unlearnable { why, .. } => why,
            Ended::Panicked(rows) => format!("it fails on rows {} to {}: {}", rows.from, rows.to, rows.why),
            Ended::Incomplete => "the journal has lost rows that its model has learned".to_owned(),
        })
    }
}

impl RebuiltCritic {
    fn follow(&mut self, storage: &mut dyn Storage, keep_going: &(dyn Fn() -> bool + Sync)) -> Result<(), Ended> {
        self.rounds += 1;
        self.read(storage, keep_going)
    }

    /// Read the groups from `next` on to the last one there is.
    fn read(&mut self, storage: &mut dyn Storage, keep_going: &(dyn Fn() -> bool + Sync)) -> Result<(), Ended> {
        self.progress.expect(storage, self.first_row)?;
        for_each_read(storage, self.next, keep_going, &mut |group| self.take(group))
    }

    fn take(&mut self, group: StoredGroup) -> Result<(), Ended> {
        let mut offset = group.first_offset;
        let (from, end) = (self.learner.learned(), group.end());
        let is_left_out = self.left_out.iter().any(|rows| (rows.from, rows.to) == (from, end));
        for record in self.removals.clean(group.group()?).records {
            match record {
                Record::Hole(rows) => {
                    self.leave_hole(offset, rows);
                    offset += rows;
                }
                Record::Rows(taken) => {
                    let rows = taken.batch.len() as u64;
                    self.note_policy(taken.stream, taken.batch.policy(), offset);
                    if offset + rows > self.learner.learned() {
                        self.demands.check(&taken.batch).map_err(|fault| {
                            Ended::unlearnable(&fault, offset, &self.learner.settings().heads, &taken.batch)
                        })?;
                        self.go_to(offset);
                        self.window.extend_from_batch(taken.stream, &taken.starts_chain, &taken.batch);
                        if !is_left_out {
                            let (learner, batch) = (&mut self.learner, &taken.batch);
                            let take = || learner.take(taken.stream, &taken.starts_chain, batch, offset);
                            catch_unwind(AssertUnwindSafe(take)).map_err(|panic| {
                                let (critic, why) = (self.name(), panics::message(&*panic));
                                Ended::Panicked(SkippedRows { critic, from, to: end, why })
                            })?;
                        }
                    }
                    offset += rows;
                }
                Record::NewPolicy(change)
                    if change.critic.as_ref().is_none_or(|name| *name == self.name())
                        && change.offset >= self.learner.learned() =>
                {
                    self.learner.new_policy(change.offset, change.policy.as_deref());
                }
                _ => {}
            }
        }
        self.next = group.id + 1;
        self.learn()?;
        self.progress.rows.store(self.learner.learned().saturating_sub(self.first_row), Ordering::Relaxed);
        Ok(())
    }

    /// The next row is that at `offset`.
    fn go_to(&mut self, offset: u64) {
        if self.window.end() != offset {
            // Groups that the journal has forgotten meanwhile.
            self.window = empty_like(&self.window, offset);
            if offset > self.learner.learned() {
                self.learner.skip_to(offset);
            }
        }
    }

    /// `rows` rows from `offset` on were taken back.
    fn leave_hole(&mut self, offset: u64, rows: u64) {
        if offset + rows > self.learner.learned() {
            self.go_to(offset);
            self.window.skip(rows);
        }
    }

    fn name(&self) -> String {
        self.learner.settings().name.clone()
    }

    /// Rows say that they are of a policy where those before them, of their stream, did not.
    fn note_policy(&mut self, stream: u32, policy: Option<&str>, offset: u64) {
        let Some(policy) = policy else { return };
        let before = self.policies.insert(stream, policy.to_owned());
        if before.as_deref() != Some(policy) && offset >= self.learner.learned() {
            self.learner.policy_of_rows(offset, stream, policy);
        }
    }

    /// Learn the rows that are in the window and new.
    fn learn(&mut self) -> Result<(), Ended> {
        let (from, to) = (self.learner.learned(), self.window.end());
        if to <= from {
            return Ok(());
        }
        if self.left_out.iter().any(|rows| (rows.from, rows.to) == (from, to)) {
            self.learner.skip_to(to);
        } else {
            let (learner, window) = (&mut self.learner, &self.window);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(learner.step(window)))) {
                let (critic, why) = (self.name(), panics::message(&*panic));
                return Err(Ended::Panicked(SkippedRows { critic, from, to, why }));
            }
        }
        self.window.hold(self.learner.replay_from());
        Ok(())
    }
}

/// A window of such rows, from offset `start` on, which forgets none before they are learned.
fn empty_like(window: &Window, start: u64) -> Window {
    let mut empty = Window::starting_at(window.dim(), window.rewards_per_row(), WINDOW_ROWS, start);
    empty.set_labels(window.labels().to_vec());
    empty.hold(start);
    empty
}

/// [`for_each_group`] with errors of either kind, until it is to stop.
fn for_each_read(
    storage: &mut dyn Storage,
    from: u64,
    keep_going: &(dyn Fn() -> bool + Sync),
    visit: &mut dyn FnMut(StoredGroup) -> Result<(), Ended>,
) -> Result<(), Ended> {
    for_each_group(storage, from, &mut |group| {
        if !keep_going() {
            return Err(Ended::Failed(RefitError::Stopped.to_string()));
        }
        visit(group)
    })
}
