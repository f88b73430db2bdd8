//! Rebuilds: which critic is learned again from the journal, what came back, who waits for it. What is decided here is recorded
//! before it holds.

use super::caller::{Caller, check_room};
use super::ports::{Now, Output, event};
use super::removals::RemovalDesk;
use crate::daemon::bounds::RECORD_BYTES_MAX;
use crate::daemon::rebuild::{RebuildDone, RebuildJob, RebuildProgress, Rebuilt, RebuiltCritic, RebuiltHeads};
use crate::daemon::what_if::UnderWay;
use crate::learner::Learner;
use crate::learner::heads::Head;
use crate::panics;
use crate::state::State;
use crate::state::record::Record;
use crate::wire::status::RebuildStatus;
use crate::wire::{self, Event, RefitOutcome, WireError};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Rows that may be missing and are learned by the core, between two groups.
const TAIL_ROWS: u64 = 256;
/// The same for late heads, which learn faster.
const HEADS_TAIL_ROWS: u64 = 1024;
/// Rounds of following the journal. After these the rows that are missing still are left out, as if they had been lost; late heads,
/// which must have the rows of their model, give up, and the critic is learned again.
const CATCH_UP_ROUNDS: u32 = 8;
/// Requests that may wait.
const WAITERS_MAX: usize = 64;

/// A rebuild that was asked for.
#[derive(Debug)]
struct WantedRebuild {
    critic: String,
    /// Whether a model is selected, or the present kernel and dictionary stay.
    selects: bool,
    /// Whether the critic is learned again as a whole, and not its missing heads alone.
    whole: bool,
    waiting: Vec<Caller>,
}

/// A rebuild that runs.
#[derive(Debug)]
struct RunningRebuild {
    critic: String,
    /// Whether it selects a model, or keeps the hyperparameters of the critic's generation.
    selects: bool,
    generation: u64,
    progress: Arc<RebuildProgress>,
    /// How often rows had been taken back when it began.
    removals: u64,
}

/// What a rebuild has come to that is being stored.
#[derive(Debug)]
struct Adopting {
    critic: String,
    rows: u64,
    unlearnable: Vec<(Head, String)>,
}

/// The rebuilds of all critics. One runs at a time.
#[derive(Debug, Default)]
pub(super) struct RebuildDesk {
    /// In the order in which they run.
    wanted: Vec<WantedRebuild>,
    /// The one that runs; it stays among those that are wanted until it is over.
    running: Option<RunningRebuild>,
    returned: Option<RebuildDone>,
    adopting: Option<Adopting>,
    /// Rows that are taken back, whereupon critics are rebuilt.
    pub(super) removals: RemovalDesk,
    seconds: f64,
    /// Of each critic whose last rebuild failed, why.
    failures: Vec<(String, String)>,
    /// Of each critic the heads that its rows cannot teach.
    unlearnable: Vec<(String, Head)>,
    /// Who asks a model of the transition.
    pub(super) questions: UnderWay,
}

impl RebuildDesk {
    /// A critic is to be rebuilt; `caller` is answered when that is over.
    ///
    /// # Errors
    /// `overloaded`, if too many wait.
    pub(super) fn want(&mut self, critic: &str, caller: Option<Caller>) -> Result<(), WireError> {
        if let Some(caller) = &caller {
            check_room(caller, WAITERS_MAX, self.wanted.iter().flat_map(|wanted| &wanted.waiting))?;
        }
        match self.wanted.iter_mut().find(|wanted| wanted.critic == critic) {
            Some(wanted) => {
                (wanted.selects, wanted.whole) = (true, true);
                wanted.waiting.extend(caller);
            }
            None => self.push(critic, true, caller),
        }
        Ok(())
    }

    /// Peers have left: they wait no more.
    pub(super) fn forget(&mut self, gone: &HashSet<u64>) {
        for wanted in &mut self.wanted {
            wanted.waiting.retain(|caller| !gone.contains(&caller.peer.connection));
        }
        gone.iter().for_each(|&connection| self.questions.leave(connection));
    }

    /// A critic may lack heads: it is to be rebuilt with them, under the kernel and the dictionary that it has.
    pub(super) fn want_heads(&mut self, learner: &Learner) {
        let critic = &learner.settings().name;
        if self.lacks_heads(learner) && !self.wanted.iter().any(|wanted| wanted.critic == *critic) {
            self.push(critic, false, None);
        }
    }

    /// Whether a critic lacks heads that a rebuild would give it.
    fn lacks_heads(&self, learner: &Learner) -> bool {
        let missing = learner.names_of_missing_heads();
        let critic = &learner.settings().name;
        let cannot = |name: &String| {
            let mut of_critic = self.unlearnable.iter().filter(|(of, _)| of == critic);
            of_critic.any(|(_, head)| head.name == *name && learner.settings().heads.contains(head))
        };
        missing.iter().any(|name| !cannot(name))
    }

    fn push(&mut self, critic: &str, selects: bool, caller: Option<Caller>) {
        let (critic, waiting) = (critic.to_owned(), caller.into_iter().collect());
        self.wanted.push(WantedRebuild { critic, selects, whole: selects, waiting });
    }

    /// Whether a critic is about to be learned again with a new selection.
    pub(super) fn selects(&self, critic: &str) -> bool {
        self.wanted.iter().any(|wanted| wanted.critic == critic && wanted.selects)
    }

    /// Share of the rows that the rebuild of a critic has learned, 0 if none runs.
    pub(super) fn share(&self, critic: &str) -> f64 {
        match &self.running {
            Some(running) if running.critic == critic => {
                let (rows, of) = running.progress.get();
                (rows as f64 / of.max(1) as f64).min(1.0)
            }
            _ => 0.0,
        }
    }

    /// A rebuild has come back; [`RebuildDesk::judge`] looks at it.
    pub(super) fn take_result(&mut self, done: RebuildDone) {
        self.returned = Some(done);
    }

    /// Start the next one, if one is wanted and none runs.
    pub(super) fn start(&mut self, state: &State, now: Now, out: &mut Vec<Output>) {
        let Some(window) = state.window() else { return };
        if self.running.is_some() || self.adopting.is_some() {
            return;
        }
        let of = |wanted: &WantedRebuild| {
            let learner = state.critics().iter().find(|learner| learner.settings().name == wanted.critic);
            learner.expect("only critics are wanted")
        };
        // Heads may have been removed meanwhile, or a refit has learned them.
        while let Some(wanted) = self.wanted.first().filter(|wanted| !wanted.selects && !self.lacks_heads(of(wanted))) {
            self.not_needed(of(wanted), out);
        }
        // Where all rows were taken back a critic that is learned again has none.
        let can_run = |wanted: &&WantedRebuild| wanted.selects || !window.is_empty();
        let Some(wanted) = self.wanted.iter().find(can_run) else { return };
        let (critic, learner) = (wanted.critic.clone(), of(wanted));
        let mut settings = learner.settings().clone();
        let cannot = |head: &Head| self.unlearnable.iter().any(|(of, other)| *of == critic && other == head);
        let late = if wanted.whole { None } else { learner.late_heads(cannot) }.map(Box::new);
        if late.is_none() && !wanted.whole {
            log::info!("event=late_heads_given_up critic={critic} why=\"the past of the model is not known\"");
        }
        settings.heads.retain(|head| !cannot(head));
        // The data-driven first model is a stopgap, which nothing was selected for.
        let selected = learner.model().filter(|_| learner.is_selected() && !wanted.selects);
        let like = selected.map(|model| Box::new(model.emptied()));
        let progress: Arc<RebuildProgress> = Arc::default();
        let names = state.configured().and_then(|configured| configured.names.clone());
        let (window, known) = (window.clone(), Arc::clone(&progress));
        let removals = state.removals().clone();
        let count = removals.count();
        let job = RebuildJob { settings, names, like, late, window, removals, progress: known };
        log::info!("event=rebuild_started critic={critic} rows={}", state.end().offset);
        out.push(event(Event::RebuildStarted { critic: critic.clone() }, now));
        let (selects, generation) = (wanted.selects, learner.generation());
        (self.running, self.seconds) =
            (Some(RunningRebuild { critic, selects, generation, progress, removals: count }), 0.0);
        out.push(Output::Rebuild(Box::new(job)));
    }

    /// Judge what has come back, if it has. Returns what is to be recorded. `window_rows` are those that a start finds again.
    pub(super) fn judge(
        &mut self,
        state: &State,
        window_rows: usize,
        now: Now,
        out: &mut Vec<Output>,
    ) -> Option<Record> {
        let RebuildDone { critic, result, seconds } = self.returned.take()?;
        self.seconds += seconds;
        let before = state.critics().iter().find(|learner| learner.settings().name == critic);
        let before = before.expect("critics change at a start alone");
        let selects = self.wanted.iter().any(|wanted| wanted.critic == critic && wanted.selects);
        if !selects && !self.lacks_heads(before) {
            self.running = None;
            self.not_needed(before, out);
            return None;
        }
        // With the kernel of before it would undo what was adopted meanwhile. It begins again.
        // So it would with rows that were taken back meanwhile.
        let outdated = |run: &mut RunningRebuild| {
            run.removals != state.removals().count()
                || !run.selects && (selects || run.generation != before.generation())
        };
        if self.running.take_if(outdated).is_some() {
            log::info!("event=rebuild_outdated critic={critic} generation={}", before.generation());
            return None;
        }
        let of_heads = |rebuilt: Box<Rebuilt>| self.some_head(rebuilt, before, selects);
        let rebuilt = result.and_then(|rebuilt| small_enough(rebuilt, before)).and_then(of_heads);
        match rebuilt.map(|rebuilt| *rebuilt) {
            Ok(Rebuilt::Critic(rebuilt)) => self.judge_critic(rebuilt, state, before, window_rows, (now, out)),
            Ok(Rebuilt::Heads(rebuilt)) => self.judge_heads(rebuilt, state, before, (now, out)),
            Err(why) => {
                self.failed(before, why, now, out);
                None
            }
        }
    }

    /// Judge a critic that was learned again.
    fn judge_critic(
        &mut self,
        mut rebuilt: Box<RebuiltCritic>,
        state: &State,
        before: &Learner,
        window_rows: usize,
        (now, out): (Now, &mut Vec<Output>),
    ) -> Option<Record> {
        let end = state.end().offset;
        // A window that has been made larger, or whose journal is shorter, has fewer rows than it may.
        let kept = state.window().map_or(end, |window| window.start());
        let from = end.saturating_sub(window_rows as u64).max(kept);
        let missing = end.saturating_sub(rebuilt.learner.learned());
        // The window has no actions: a critic of action values is complete, or leaves rows out.
        let most = if rebuilt.learner.has_rows_of_its_own() { 0 } else { TAIL_ROWS.min(end - from) };
        if missing > most && rebuilt.rounds < CATCH_UP_ROUNDS {
            out.push(Output::FollowRebuild(Box::new(Rebuilt::Critic(rebuilt))));
            return None;
        }
        let RebuiltCritic { learner, first_row, unlearnable, .. } = &mut *rebuilt;
        let unlearnable = std::mem::take(unlearnable);
        let finish = || {
            if missing > most {
                learner.skip_to(end);
            }
            learner.set_settings(before.settings().clone());
            learner.succeed(before, *first_row, from);
        };
        // A bug costs this rebuild.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(finish)) {
            self.failed(before, panics::message(&*panic), now, out);
            return None;
        }
        let rows = end - *first_row;
        if rebuilt.learner.replay_from() < from && !before.residue().offsets().is_empty() {
            // The rebuilt critic has no model, and the present model holds rows that were taken back.
            rebuilt.learner.skip_to(from);
        }
        if rebuilt.learner.replay_from() < from {
            self.failed(before, "it has learned too few rows for a model".to_owned(), now, out);
            return None;
        }
        self.running = None;
        self.adopting = Some(Adopting { critic: before.settings().name.clone(), rows, unlearnable });
        Some(Record::Rebuilt(Box::new(rebuilt.learner)))
    }

    /// Judge heads that came late: the critic as it is, with them, is recorded.
    fn judge_heads(
        &mut self,
        mut rebuilt: Box<RebuiltHeads>,
        state: &State,
        before: &Learner,
        (now, out): (Now, &mut Vec<Output>),
    ) -> Option<Record> {
        let critic = before.settings().name.clone();
        let (end, learned) = (state.end().offset, rebuilt.heads.learned());
        let window = state.window().filter(|window| window.start() <= learned && end - learned <= HEADS_TAIL_ROWS);
        if window.is_none() && rebuilt.rounds < CATCH_UP_ROUNDS {
            out.push(Output::FollowRebuild(Box::new(Rebuilt::Heads(rebuilt))));
            return None;
        }
        self.running = None;
        let rows = end - rebuilt.heads.first_row();
        let unlearnable = std::mem::take(&mut rebuilt.unlearnable);
        let finish = || {
            let Some(window) = window else { return Err("the stream is faster than they are".to_owned()) };
            let mut late = rebuilt.heads;
            late.learn(window, end);
            let mut learner = before.clone();
            learner.take_late_heads(late).map_err(|unlike| unlike.to_string())?;
            Ok(learner)
        };
        match catch_unwind(AssertUnwindSafe(finish)) {
            Ok(Ok(learner)) => {
                self.adopting = Some(Adopting { critic, rows, unlearnable });
                Some(Record::Rebuilt(Box::new(learner)))
            }
            Ok(Err(why)) => {
                log::info!("event=late_heads_given_up critic={critic} why={why:?}");
                let wanted = self.wanted.iter_mut().find(|wanted| wanted.critic == critic);
                wanted.into_iter().for_each(|wanted| wanted.whole = true);
                None
            }
            // A bug costs this rebuild.
            Err(panic) => {
                self.failed(before, panics::message(&*panic), now, out);
                None
            }
        }
    }

    /// A critic that was rebuilt for its heads has one of them at least.
    fn some_head(&mut self, rebuilt: Box<Rebuilt>, before: &Learner, selects: bool) -> Result<Box<Rebuilt>, String> {
        let critic = &before.settings().name;
        for (head, _) in rebuilt.unlearnable() {
            let known = (critic.clone(), head.clone());
            if !self.unlearnable.contains(&known) {
                self.unlearnable.push(known);
            }
        }
        match rebuilt.unlearnable().first() {
            Some((_, why)) if !selects && !self.lacks_heads(before) => Err(why.clone()),
            _ => Ok(rebuilt),
        }
    }

    /// The heads that a critic was rebuilt for are there, or are wanted no more: a refit was faster, and its model stays.
    fn not_needed(&mut self, before: &Learner, out: &mut Vec<Output>) {
        let (critic, generation) = (before.settings().name.clone(), before.generation());
        log::info!("event=rebuild_not_needed critic={critic} generation={generation}");
        let reason = "the model in use has all heads".to_owned();
        self.over(&critic, &RefitOutcome::Rejected { generation, reason }, out);
    }

    fn failed(&mut self, before: &Learner, why: String, now: Now, out: &mut Vec<Output>) {
        let (critic, generation) = (before.settings().name.clone(), before.generation());
        log::warn!("event=rebuild_failed critic={critic} why={why:?}");
        out.push(event(Event::RebuildFailed { critic: critic.clone(), reason: why.clone() }, now));
        self.running = None;
        let outcome = RefitOutcome::Rejected { generation, reason: why.clone() };
        self.over(&critic, &outcome, out);
        self.failures.push((critic, why));
    }

    fn over(&mut self, critic: &str, outcome: &RefitOutcome, out: &mut Vec<Output>) {
        self.failures.retain(|(failed, _)| failed != critic);
        let reply = wire::Reply::Refit(outcome);
        for wanted in self.wanted.extract_if(.., |wanted| wanted.critic == critic) {
            out.extend(wanted.waiting.iter().map(|caller| Output::Reply(caller.reply(&reply))));
        }
    }

    /// What was to be stored has been applied to `state`. Returns the critic that has been rebuilt, if one was.
    pub(super) fn applied(&mut self, state: &State, now: Now, out: &mut Vec<Output>) -> Option<usize> {
        let Adopting { critic, rows, unlearnable } = self.adopting.take()?;
        let index = state.critics().iter().position(|learner| learner.settings().name == critic)?;
        let learner = &state.critics()[index];
        let (generation, offset, seconds) = (learner.generation(), learner.learned(), self.seconds);
        log::info!(
            "event=rebuilt critic={critic} generation={generation} offset={offset} rows={rows} seconds={seconds:.2}"
        );
        out.push(event(Event::Rebuilt { critic: critic.clone(), generation, offset, rows, seconds }, now));
        self.over(&critic, &RefitOutcome::Adopted { generation }, out);
        if let Some((head, why)) = unlearnable.first() {
            log::warn!(
                "event=heads_not_learned critic={critic} heads={} first={:?} why={why:?}",
                unlearnable.len(),
                head.name
            );
            self.failures.push((critic.clone(), format!("it goes on without head {}: {why}", head.name)));
        }
        Some(index)
    }

    /// What `status` says of the rebuild of a critic; none if none is wanted and the last one did not fail.
    pub(super) fn status(&self, critic: &str) -> Option<RebuildStatus> {
        let (rows, of) = match &self.running {
            Some(running) if running.critic == critic => running.progress.get(),
            _ => (0, 0),
        };
        let failed = self.failures.iter().find(|(failed, _)| failed == critic).map(|(_, why)| why.clone());
        let is_wanted = self.wanted.iter().any(|wanted| wanted.critic == critic);
        (is_wanted || failed.is_some()).then_some(RebuildStatus { rows, of, failed })
    }
}

/// The record of what has been rebuilt has room in the journal.
fn small_enough(rebuilt: Box<Rebuilt>, before: &Learner) -> Result<Box<Rebuilt>, String> {
    let bytes = match &*rebuilt {
        Rebuilt::Critic(rebuilt) => rebuilt.learner.bytes(),
        Rebuilt::Heads(rebuilt) => before.bytes() + rebuilt.heads.bytes(),
    };
    if bytes > RECORD_BYTES_MAX {
        Err(format!("a critic of {bytes} bytes is too large for the journal"))
    } else {
        Ok(rebuilt)
    }
}
