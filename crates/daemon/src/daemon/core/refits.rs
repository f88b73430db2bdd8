//! Refits: which runs, what came back, who waits for it. What is decided here is recorded before it holds.

use super::caller::{Caller, check_room};
use super::ports::{Now, Output, RefitDone, event};
use crate::learner::allowance::Allowance;
use crate::learner::refit::{Candidate, RefitReport, RefitTrigger};
use crate::learner::{Judgement, Learner};
use crate::panics;
use crate::state::State;
use crate::state::record::Record;
use crate::wire::status::{LastRefit, PauseStatus, RefitFound, RefitStatus};
use crate::wire::{self, Event, RefitOutcome, WireError};
use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

/// Adoption pauses remembered for the percentiles of `status`.
const PAUSES: usize = 1024;
/// Requests for a refit that may wait for one critic.
const WAITERS_MAX: usize = 64;
/// Largest model that is adopted where adoptions are recorded: the database takes values of less than a gigabyte. A dictionary of
/// about 4000 elements comes near it.
const MODEL_BYTES_MAX: usize = 768 << 20;

/// Seconds after its first model at which a critic has its first selection, if fewer rows than the settings ask for have come.
const FIRST_WAIT: f64 = 1.0;

/// What has become of the refits of a critic.
#[derive(Debug, Default)]
struct RefitCounts {
    started: u64,
    adopted: u64,
    rejected: u64,
    failed: u64,
}

/// The refits of one critic.
#[derive(Debug, Default)]
struct Desk {
    counts: RefitCounts,
    /// Since when there is a model for which nothing has been selected, as far as this run of the daemon knows, seconds.
    unselected_since: Option<f64>,
    /// Seconds that the running refit has taken so far.
    seconds: f64,
    /// How the last one ended; none before that.
    last: Option<LastRefit>,
    /// Held-out error that the model in use was selected with, if this run of the daemon has selected it by that.
    held_out_error: Option<f64>,
    /// Why the last refit that made a model has made none of the transition, if this run of the daemon knows.
    no_world: Option<String>,
    /// Seconds that the learner stood still for each adoption, the newest last.
    pauses: VecDeque<f64>,
    /// Those who wait for the next refit.
    waiting: Vec<Caller>,
    /// Those who wait for the running one.
    waiting_for_running: Vec<Caller>,
    /// Callers that get the outcome once answers come from the adopted model.
    waiting_for_answers: Vec<Caller>,
}

/// An adoption that is being stored.
#[derive(Debug)]
struct Adopting {
    critic: usize,
    report: RefitReport,
    /// Scores of the model before and of this one.
    scores: Option<(f64, f64)>,
}

/// The refits of all critics. One runs at a time.
#[derive(Debug)]
pub(super) struct RefitDesk {
    desks: Vec<Desk>,
    /// Whether models are recorded, which bounds their size.
    recorded: bool,
    busy: bool,
    /// The critic that it is of, or that the last one was of.
    running: usize,
    /// What its search may spend, once it has begun.
    spent: Arc<OnceLock<Allowance>>,
    /// Whether that critic has been rebuilt since it was started.
    outdated: bool,
    returned: Option<RefitDone>,
    adopting: Option<Adopting>,
}

impl RefitDesk {
    /// No refit has run of any of `critics` critics. `recorded` says whether there is a journal.
    pub(super) fn new(critics: usize, recorded: bool) -> Self {
        let desks = (0..critics).map(|_| Desk::default()).collect();
        let running = critics.saturating_sub(1);
        let spent = Arc::default();
        Self { desks, recorded, busy: false, running, spent, outdated: false, returned: None, adopting: None }
    }

    /// A refit has come back; [`RefitDesk::judge`] looks at it.
    pub(super) fn take_result(&mut self, done: RefitDone) {
        self.returned = Some(done);
    }

    /// A critic has been rebuilt: what is being selected for the model before is of no use.
    pub(super) fn rebuilt(&mut self, critic: usize) {
        self.outdated |= self.busy && self.running == critic;
    }

    /// Whether somebody waits for the next refit of a critic.
    pub(super) fn is_waited_for(&self, critic: usize) -> bool {
        !self.desks[critic].waiting.is_empty()
    }

    /// The critic whose adoption is being stored.
    pub(super) fn adopting(&self) -> Option<usize> {
        self.adopting.as_ref().map(|adopting| adopting.critic)
    }

    /// Let `caller` wait for the next refit of a critic.
    ///
    /// # Errors
    /// `overloaded`, if too many do.
    pub(super) fn wait(&mut self, critic: usize, caller: Caller) -> Result<(), WireError> {
        let desk = &mut self.desks[critic];
        let waiting = desk.waiting.iter().chain(&desk.waiting_for_running).chain(&desk.waiting_for_answers);
        check_room(&caller, WAITERS_MAX, waiting)?;
        desk.waiting.push(caller);
        Ok(())
    }

    /// Peers have left: they wait no more.
    pub(super) fn forget(&mut self, gone: &HashSet<u64>) {
        for desk in &mut self.desks {
            for waiting in [&mut desk.waiting, &mut desk.waiting_for_running, &mut desk.waiting_for_answers] {
                waiting.retain(|caller| !gone.contains(&caller.peer.connection));
            }
        }
    }

    /// Start a refit, if one is due and none runs: requested ones first, critics in turn. Returns the records to store.
    /// A critic that has something of rows that were taken back waits where `held` says so: what is selected now would have it, too.
    pub(super) fn start(
        &mut self,
        state: &mut State,
        held: &dyn Fn(&str) -> bool,
        now: Now,
        out: &mut Vec<Output>,
    ) -> Option<Record> {
        let rows = state.window()?.len();
        if self.busy {
            return None;
        }
        let waited: Vec<bool> =
            self.desks.iter_mut().zip(state.critics()).map(|(desk, learner)| desk.has_waited(learner, now)).collect();
        let due = |critic: usize| {
            let learner = state.critics().get(critic).filter(|_| !state.is_halted(critic))?;
            if !learner.residue().offsets().is_empty() && held(&learner.settings().name) {
                return None;
            }
            learner.refit_due().or_else(|| waited[critic].then_some(RefitTrigger::Rows))
        };
        let critics = self.desks.len();
        let mut turns = (1..=critics).map(|k| (self.running + k) % critics);
        let asked = turns.clone().find(|&critic| !self.desks[critic].waiting.is_empty() && due(critic).is_some());
        let critic = asked.or_else(|| turns.find(|&critic| due(critic).is_some()))?;
        let reason = due(critic)?;
        let desk = &mut self.desks[critic];
        desk.waiting_for_running.append(&mut desk.waiting);
        // A bug costs this refit.
        let job = catch_unwind(AssertUnwindSafe(|| state.refit_job(critic, reason).map_err(|e| e.to_string())));
        match job.unwrap_or_else(|panic| Err(panics::message(&*panic))) {
            Ok(job) => {
                desk.counts.started += 1;
                (self.busy, self.running, self.outdated) = (true, critic, false);
                self.spent = Arc::default();
                out.push(started(&state.critics()[critic], reason, rows, now));
                out.push(Output::Refit { critic, job: Box::new(job), spent: Arc::clone(&self.spent) });
                None
            }
            Err(why) => Some(self.failed(critic, &state.critics()[critic], &why, now, out)),
        }
    }

    /// Judge the refit that has come back, if one has. Everything that was received before has been stored and learned. Returns
    /// what is to be recorded.
    pub(super) fn judge(
        &mut self,
        state: &State,
        given_up: &[Option<String>],
        now: Now,
        out: &mut Vec<Output>,
    ) -> Option<Record> {
        // A critic that is halted is about to be rebuilt, or is given up.
        let ready = |done: &mut RefitDone| !state.is_halted(done.critic) || given_up[done.critic].is_some();
        let RefitDone { critic, result, seconds } = self.returned.take_if(ready)?;
        let learner = &state.critics()[critic];
        if let Some(why) = &given_up[critic] {
            // The waiting callers get the outcome, and the thread is free for other critics.
            self.busy = false;
            self.reject(critic, learner, why, None, now, out);
            return None;
        }
        self.desks[critic].seconds += seconds;
        if std::mem::take(&mut self.outdated) {
            self.busy = false;
            if learner.is_refit_requested() {
                // It is made again, and those who asked for it wait for that one.
                let Desk { waiting, waiting_for_running, .. } = &mut self.desks[critic];
                waiting.splice(0..0, waiting_for_running.drain(..));
            }
            self.reject(critic, learner, "the critic was rebuilt meanwhile", None, now, out);
            return None;
        }
        let candidate = match result.and_then(|candidate| self.small_enough(candidate)) {
            Ok(candidate) => candidate,
            Err(why) => return Some(self.failed(critic, learner, &why, now, out)),
        };
        let window = state.window().expect("a refit ran on rows");
        // A bug costs this candidate.
        let judgement = match catch_unwind(AssertUnwindSafe(|| learner.judge(candidate, window))) {
            Ok(judgement) => judgement,
            Err(panic) => return Some(self.failed(critic, learner, &panics::message(&*panic), now, out)),
        };
        let name = learner.settings().name.clone();
        match judgement {
            Judgement::Behind(candidate) => {
                let window = learner.rows(window).clone();
                out.push(Output::CatchUp { critic, candidate: Box::new(candidate), window });
                None
            }
            Judgement::Adopt { adoption, report, scores } => {
                self.busy = false;
                self.adopting = Some(Adopting { critic, report, scores });
                Some(Record::Adopted { critic: name, adoption })
            }
            Judgement::Reject { report, why } => {
                self.busy = false;
                self.desks[critic].counts.rejected += 1;
                self.reject(critic, learner, &why.to_string(), Some(&report), now, out);
                Some(Record::RefitEnded { critic: name })
            }
        }
    }

    fn small_enough(&self, candidate: Candidate) -> Result<Candidate, String> {
        let bytes = candidate.model.bytes();
        if self.recorded && bytes > MODEL_BYTES_MAX {
            return Err(format!("a model of {bytes} bytes is too large for the journal"));
        }
        Ok(candidate)
    }

    /// A refit has found nothing.
    fn failed(&mut self, critic: usize, learner: &Learner, why: &str, now: Now, out: &mut Vec<Output>) -> Record {
        self.busy = false;
        self.desks[critic].counts.failed += 1;
        self.reject(critic, learner, why, None, now, out);
        Record::RefitEnded { critic: learner.settings().name.clone() }
    }

    /// What was to be stored has been applied to `state`. Returns whether a model was adopted.
    pub(super) fn applied(&mut self, state: &State, now: Now, out: &mut Vec<Output>) -> bool {
        let Some(Adopting { critic, report, scores }) = self.adopting.take() else { return false };
        let (desk, learner) = (&mut self.desks[critic], &state.critics()[critic]);
        desk.counts.adopted += 1;
        desk.held_out_error = report.selection.as_ref().map(|selection| selection.score);
        if let Some(world) = &report.world {
            desk.no_world = world.as_ref().err().map(ToString::to_string);
            desk.no_world.iter().for_each(|why| {
                log::warn!("event=no_model_of_transition critic={} why={why:?}", learner.settings().name);
            });
        }
        let outcome = LastRefit {
            score_before: scores.map(|(before, _)| before),
            score_after: scores.map(|(_, after)| after),
            ..desk.outcome(LastRefit::ADOPTED, learner, Some(&report))
        };
        let nats = |evidence: Option<f64>| evidence.map_or("none".into(), |e| format!("{e:.1}"));
        log::info!(
            "event=adopted critic={} generation={} offset={} lambda={} evidence={} evidence_before={} dictionary={} seconds={:.2}",
            learner.settings().name,
            learner.generation(),
            learner.learned(),
            learner.model().map_or(1.0, |model| model.lambda()),
            nats(report.evidence_after),
            nats(report.evidence_before),
            report.dictionary_size,
            desk.seconds
        );
        desk.seconds = 0.0;
        out.push(event(Event::Adopted(Box::new(outcome.clone())), now));
        desk.last = Some(outcome);
        desk.waiting_for_answers.append(&mut desk.waiting_for_running);
        true
    }

    fn reject(
        &mut self,
        critic: usize,
        learner: &Learner,
        why: &str,
        report: Option<&RefitReport>,
        now: Now,
        out: &mut Vec<Output>,
    ) {
        let desk = &mut self.desks[critic];
        let (name, generation) = (&learner.settings().name, learner.generation());
        log::info!(
            "event=refit_rejected critic={name} generation={generation} offset={} why={why:?}",
            learner.learned()
        );
        let outcome = LastRefit { reason: Some(why.to_owned()), ..desk.outcome(LastRefit::REJECTED, learner, report) };
        desk.seconds = 0.0;
        let rejected = RefitOutcome::Rejected { generation, reason: why.to_owned() };
        answer(&mut desk.waiting_for_running, &rejected, out);
        out.push(event(Event::RefitRejected(Box::new(outcome.clone())), now));
        desk.last = Some(outcome);
    }

    /// Answers now come from `generation` of a critic: reply to the callers that wait for it.
    pub(super) fn answers_come_from(&mut self, critic: usize, generation: u64, out: &mut Vec<Output>) {
        answer(&mut self.desks[critic].waiting_for_answers, &RefitOutcome::Adopted { generation }, out);
    }

    /// A critic has failed: reply to the callers that wait for its refits.
    pub(super) fn give_up(&mut self, critic: usize, generation: u64, why: &str, out: &mut Vec<Output>) {
        let outcome = RefitOutcome::Rejected { generation, reason: why.to_owned() };
        let desk = &mut self.desks[critic];
        for waiting in [&mut desk.waiting, &mut desk.waiting_for_running, &mut desk.waiting_for_answers] {
            answer(waiting, &outcome, out);
        }
    }

    /// The learner stood still for `seconds` for an adoption.
    pub(super) fn paused(&mut self, critic: usize, seconds: f64) {
        let pauses = &mut self.desks[critic].pauses;
        if pauses.len() == PAUSES {
            pauses.pop_front();
        }
        pauses.push_back(seconds);
    }

    /// What `status` says of the refits of a critic.
    pub(super) fn status(&self, critic: usize, learner: &Learner) -> RefitStatus {
        let Desk { counts, last, .. } = &self.desks[critic];
        RefitStatus {
            running: learner.refit_running(),
            spent: self.spent.get().filter(|_| self.busy && self.running == critic).map(Allowance::share_spent),
            due: learner.refit_due().is_some(),
            next_at: learner.next_refit(),
            started: counts.started,
            adopted: counts.adopted,
            rejected: counts.rejected,
            failed: counts.failed,
            last: last.clone(),
        }
    }

    /// Error of held-out returns that the model in use of a critic was adopted with, if they chose it.
    pub(super) fn held_out_error(&self, critic: usize) -> Option<f64> {
        self.desks[critic].held_out_error
    }

    /// Why the last refit of a critic that made a model has made none of the transition.
    pub(super) fn no_world(&self, critic: usize) -> Option<&str> {
        self.desks[critic].no_world.as_deref()
    }

    /// For how long the last adoptions of a critic held up the learner.
    pub(super) fn pauses(&self, critic: usize) -> PauseStatus {
        let pauses = &self.desks[critic].pauses;
        let mut pauses: Vec<f64> = pauses.iter().copied().collect();
        pauses.sort_by(f64::total_cmp);
        let quantile =
            |q: f64| (!pauses.is_empty()).then(|| 1000.0 * pauses[((pauses.len() - 1) as f64 * q).round() as usize]);
        PauseStatus { count: pauses.len() as u64, p50: quantile(0.5), p99: quantile(0.99), max: quantile(1.0) }
    }
}

impl Desk {
    /// Whether a first selection is made although fewer rows have come than the settings ask for: the values until then are a guess.
    fn has_waited(&mut self, learner: &Learner, now: Now) -> bool {
        if !learner.may_select_early() {
            self.unselected_since = None;
            return false;
        }
        now.uptime - *self.unselected_since.get_or_insert(now.uptime) >= FIRST_WAIT
    }

    /// How the refit ended whose `report` this is, if it found something.
    fn outcome(&self, outcome: &str, learner: &Learner, report: Option<&RefitReport>) -> LastRefit {
        LastRefit {
            outcome: outcome.to_owned(),
            critic: learner.settings().name.clone(),
            generation: learner.generation(),
            offset: report.map(|_| learner.learned()),
            seconds: report.map(|_| self.seconds),
            found: report.map(RefitFound::from),
            ..LastRefit::default()
        }
    }
}

fn started(learner: &Learner, trigger: RefitTrigger, rows: usize, now: Now) -> Output {
    let (name, trigger, generation) = (&learner.settings().name, trigger.name(), learner.generation());
    log::info!("event=refit_started critic={name} trigger={trigger} rows={rows} generation={generation}");
    let (critic, trigger, offset) = (name.clone(), trigger.to_owned(), learner.learned());
    event(Event::RefitStarted { critic, trigger, rows: rows as u64, generation, offset }, now)
}

/// Reply with the outcome to all callers that wait for a refit.
fn answer(waiting: &mut Vec<Caller>, outcome: &RefitOutcome, out: &mut Vec<Output>) {
    out.extend(waiting.drain(..).map(|caller| Output::Reply(caller.reply(&wire::Reply::Refit(outcome)))));
}

#[cfg(test)]
mod tests {
    use super::super::intake::learned;
    use super::*;
    use crate::learner::refit;
    use crate::state::record::{Group, Mark};
    use crate::transport::Peer;
    use crate::wire::{ArrayForm, Id};

    const NOW: Now = Now { uptime: 1.0, unix: 1e9 };

    fn caller() -> Caller {
        caller_of(1)
    }

    fn caller_of(connection: u64) -> Caller {
        Caller { peer: Peer { connection, delimiter: false }, id: Id::nil(), form: ArrayForm::List }
    }

    fn replies(out: &[Output]) -> usize {
        out.iter().filter(|output| matches!(output, Output::Reply(_))).count()
    }

    fn apply(state: &mut State, record: Record) {
        let (id, offset) = (state.end().id + 1, state.end().offset);
        let end = Mark { id, offset, crc: 0 };
        state.apply(Group { end, first_offset: offset, time: 1e9, records: vec![record] }).unwrap();
    }

    #[test]
    fn a_refit_is_decided_stored_and_then_told() {
        let (_, mut state) = learned(400);
        let (mut desk, mut out) = (RefitDesk::new(1, true), Vec::new());
        desk.wait(0, caller()).unwrap();
        state.request_refit(0);
        assert!(desk.start(&mut state, &|_| false, NOW, &mut out).is_none(), "nothing is decided by a start");
        let Some(Output::Refit { job, .. }) = out.pop() else { panic!("a job") };
        state.request_refit(0);
        assert!(desk.start(&mut state, &|_| false, NOW, &mut out).is_none() && out.len() == 1, "one runs at a time");
        let result = refit::run(&job, &|| true).map_err(|e| e.to_string());
        desk.take_result(RefitDone { critic: 0, result, seconds: 0.5 });
        let before = rmp_serde::to_vec_named(state.critics()).unwrap();
        let record = desk.judge(&state, &[None], NOW, &mut out).unwrap();
        assert!(rmp_serde::to_vec_named(state.critics()).unwrap() == before, "a judgement changes nothing");
        assert!(matches!(record, Record::Adopted { .. }) && desk.adopting() == Some(0));
        apply(&mut state, record);
        assert!(desk.applied(&state, NOW, &mut out) && state.critics()[0].generation() == 2);
        assert_eq!(replies(&out), 0, "no answer comes from the new model yet");
        desk.answers_come_from(0, 2, &mut out);
        assert_eq!(replies(&out), 1);
        assert!(!desk.applied(&state, NOW, &mut out), "told once");
    }

    #[test]
    fn few_rows_get_a_first_selection_after_a_second_and_fewer_wait_for_more() {
        for (rows, selects) in [(50, false), (100, true)] {
            let (_, mut state) = learned(rows);
            let (mut desk, mut out) = (RefitDesk::new(1, true), Vec::new());
            for (uptime, starts) in [(10.0, false), (10.9, false), (11.0, selects)] {
                assert!(desk.start(&mut state, &|_| false, Now { uptime, ..NOW }, &mut out).is_none());
                let started = out.iter().any(|output| matches!(output, Output::Refit { .. }));
                assert_eq!(started, starts, "{rows} rows after {uptime} s");
            }
        }
    }

    #[test]
    fn a_refit_that_fails_is_recorded_and_one_of_a_critic_given_up_is_not() {
        let (_, state) = learned(100);
        let (mut desk, mut out) = (RefitDesk::new(1, true), Vec::new());
        let failed = || RefitDone { critic: 0, result: Err("it found nothing".into()), seconds: 0.0 };
        desk.take_result(failed());
        let record = desk.judge(&state, &[None], NOW, &mut out);
        assert!(matches!(record, Some(Record::RefitEnded { critic }) if critic == "default"));
        desk.take_result(failed());
        assert!(desk.judge(&state, &[Some("a bug".into())], NOW, &mut out).is_none());
        let told = desk.status(0, &state.critics()[0]);
        let last = told.last.unwrap();
        assert_eq!((told.failed, last.reason.as_deref()), (1, Some("a bug")));
    }

    #[test]
    fn so_many_wait_and_all_are_told_when_a_critic_is_given_up() {
        let (mut desk, mut out) = (RefitDesk::new(2, true), Vec::new());
        let waited = (0..9).map(|_| desk.wait(1, caller_of(100)).is_ok()).collect::<Vec<bool>>();
        assert_eq!(waited.iter().position(|ok| !ok), Some(8), "one peer leaves places for others");
        desk.forget(&HashSet::from([100]));
        let waited = (0..=WAITERS_MAX as u64).map(|k| desk.wait(1, caller_of(k)).is_ok()).collect::<Vec<bool>>();
        assert_eq!(waited.iter().position(|ok| !ok), Some(WAITERS_MAX), "the places of a peer that has left are free");
        assert!(desk.wait(0, caller()).is_ok(), "others wait for another critic");
        desk.give_up(1, 3, "a bug", &mut out);
        assert_eq!(replies(&out), WAITERS_MAX);
    }
}
