//! Removals: who asked for one, what was found, and what is decided. One is worked on at a time.

use super::Core;
use super::caller::{Caller, check_room};
use super::ports::{Now, Output, event};
use crate::daemon::bounds::RECORD_BYTES_MAX;
use crate::daemon::ledger::Ledger;
use crate::daemon::removal::{FoundRows, RemovalFound, RemovalJob};
use crate::journal::store::Storage;
use crate::learner::Learner;
use crate::learner::removal::{Offsets, Selector};
use crate::panics;
use crate::state::record::{Origin, Record};
use crate::state::removals::{Influence, Removal, Removals};
use crate::wire::status::{InfluenceStatus, JournalStatus, RemovalStatus};
use crate::wire::{self, ErrorCode, Event, RemoveRequest, WireError};
use serde_json::{Value, json};
use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Requests that may wait.
const WAITERS_MAX: usize = 16;
/// Ranges that an answer names.
const RANGES_TOLD: usize = 100;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct RemovalDesk {
    /// The first one is worked on.
    waiting: VecDeque<(RemoveRequest, Option<Caller>)>,
    running: bool,
    returned: Option<Result<Box<FoundRows>, String>>,
    /// The answer to the one that is being stored.
    storing: Option<(Option<Caller>, Value)>,
}

impl RemovalDesk {
    /// Peers have left: nobody waits for the answer. What they asked for is done all the same, unless it only tells.
    pub(super) fn forget(&mut self, gone: &HashSet<u64>) {
        let has_left = |caller: &Caller| gone.contains(&caller.peer.connection);
        self.waiting.iter_mut().for_each(|(_, caller)| drop(caller.take_if(|caller| has_left(caller))));
        self.storing.iter_mut().for_each(|(caller, _)| drop(caller.take_if(|caller| has_left(caller))));
    }
}

impl Core {
    /// Take rows back, or say which these would be. The caller gets the answer when that is found, or stored.
    pub(super) fn remove(&mut self, request: RemoveRequest, caller: &Caller) -> Result<(), WireError> {
        if self.ledger.is_none() {
            let message = "there is no journal to take rows from: `journal` is off in the settings";
            return Err(WireError::new(ErrorCode::NotReady, message));
        }
        if !request.dry_run {
            self.check_removable()?;
        }
        if self.state.shape().is_none() {
            return Err(WireError::new(ErrorCode::NotReady, "there are no rows yet"));
        }
        let waiting = self.rebuilds.removals.waiting.iter().filter_map(|(_, caller)| caller.as_ref());
        check_room(caller, WAITERS_MAX, waiting)?;
        self.rebuilds.removals.waiting.push_back((request, Some(caller.clone())));
        Ok(())
    }

    /// Where the journal begins, once there was a group.
    pub fn origin(&self) -> Option<Origin> {
        self.ledger.as_ref().and_then(|_| self.state.origin())
    }

    /// The journal itself, to be read.
    pub(in crate::daemon) fn journal(&mut self) -> Option<&mut dyn Storage> {
        self.ledger.as_mut().map(Ledger::storage)
    }

    /// Offset of the first row that the journal has.
    pub fn first_offset(&self) -> u64 {
        self.ledger.as_ref().and_then(Ledger::first_offset).unwrap_or_else(|| self.offset())
    }

    /// Rows that were taken back.
    pub fn removals(&self) -> &Removals {
        self.state.removals()
    }

    /// Take rows back here and now, before anybody has asked anything. `find` looks for them.
    ///
    /// # Errors
    /// If they cannot be found, or the journal cannot be written.
    pub fn take_back(
        &mut self,
        offsets: &Offsets,
        reason: &str,
        now: Now,
        find: &mut dyn FnMut(&RemovalJob) -> RemovalFound,
    ) -> Result<(), String> {
        let selectors = offsets.ranges().iter().cloned().map(Selector::Offsets).collect();
        let reason = Some(reason.to_owned());
        let request = RemoveRequest { selectors, dry_run: false, boundary: false, by: None, reason };
        self.rebuilds.removals.waiting.push_back((request, None));
        loop {
            self.step(now);
            if let Some(why) = self.read_only() {
                return Err(why.to_owned());
            }
            let task = self.out.iter().position(|output| matches!(output, Output::Remove(_)));
            let Some(Output::Remove(job)) = task.map(|task| self.out.swap_remove(task)) else { return Ok(()) };
            self.removal_found(Ok(find(&job)?));
        }
    }

    /// What was to be found has been, or has not.
    pub fn removal_found(&mut self, found: Result<Box<FoundRows>, String>) {
        self.rebuilds.removals.returned = Some(found);
    }

    /// Start to look for rows, or decide what was found. Everything that was received before has been stored and learned.
    pub(super) fn act_on_removals(&mut self, now: Now) {
        // What was found may reach behind the rows that have been learned, but not behind those that were stored.
        let reaches = |found: &Result<Box<FoundRows>, String>| found.as_ref().map_or(0, |found| found.end);
        let ahead = self.rebuilds.removals.returned.as_ref().map_or(0, reaches) > self.state.end().offset;
        if ahead || self.intake.has_decisions() {
            return;
        }
        match self.take_found().map(|found| found.and_then(|found| self.complete(found))) {
            Some(Ok(Some(found))) => self.answer_removal(*found, now),
            Some(Err(why)) => self.refuse_removal(&WireError::new(ErrorCode::Internal, why)),
            // The journal went on without the window: once more. Or nothing was looked for.
            Some(Ok(None)) | None => {}
        }
        if self.rebuilds.removals.storing.is_none() {
            self.look_for_rows();
        }
    }

    /// While nothing can be stored: say all the same which rows would be taken back, and refuse to take some.
    pub fn act_unstorable(&mut self, now: Now) {
        match self.take_found() {
            Some(Ok(found)) => self.answer_removal(*found, now),
            Some(Err(why)) => self.refuse_removal(&WireError::new(ErrorCode::Internal, why)),
            None => {}
        }
        let takes =
            |desk: &RemovalDesk| !desk.running && desk.waiting.front().is_some_and(|(request, _)| !request.dry_run);
        while takes(&self.rebuilds.removals)
            && let Err(error) = self.check_removable()
        {
            self.refuse_removal(&error);
        }
        self.look_for_rows();
    }

    /// What was looked for last, once it has been found or has not.
    fn take_found(&mut self) -> Option<Result<Box<FoundRows>, String>> {
        let found = self.rebuilds.removals.returned.take()?;
        self.rebuilds.removals.running = false;
        Some(found)
    }

    /// Refuse the first request that waits.
    fn refuse_removal(&mut self, error: &WireError) {
        let (_, caller) = self.rebuilds.removals.waiting.pop_front().expect("it was asked for");
        self.out.extend(caller.map(|caller| Output::Reply(caller.refuse(error))));
    }

    /// Why no rows can be taken back now, if that is so.
    fn check_removable(&self) -> Result<(), WireError> {
        let Some(why) = self.read_only() else { return Ok(()) };
        let message = format!(
            "no row can be taken back while nothing can be stored. Mend the cause, such as a full disk, and ask again: {why}"
        );
        Err(WireError::new(ErrorCode::ReadOnly, message))
    }

    /// Begin with the first request that waits, if there is one and none is worked on.
    fn look_for_rows(&mut self) {
        let Some((request, _)) = self.rebuilds.removals.waiting.front() else { return };
        if self.rebuilds.removals.running {
            return;
        }
        self.rebuilds.removals.running = true;
        self.out.push(Output::Remove(Box::new(RemovalJob {
            selectors: request.selectors.clone(),
            end: self.state.end().offset,
            removals: self.state.removals().clone(),
            shape: self.state.shape().expect("there are rows"),
            chains: !request.dry_run,
            boundary: request.boundary,
        })));
    }

    /// `found` with the rows that came meanwhile: they are not taken back, and belong to chains. None where the window lacks some.
    fn complete(&self, mut found: Box<FoundRows>) -> Result<Option<Box<FoundRows>>, String> {
        let window = self.state.window().ok_or("there are no rows")?;
        if window.start() > found.end {
            return Ok(None);
        }
        for (rows, range, first) in window.since(found.end) {
            range.zip(first..).for_each(|(i, offset)| found.removed.go_on(rows.streams[i], offset));
        }
        if let Some(rows) = &mut found.rows {
            rows.join(window, found.end);
        }
        Ok(Some(found))
    }

    /// Say what was found, or take it back.
    fn answer_removal(&mut self, found: FoundRows, now: Now) {
        let (request, caller) = self.rebuilds.removals.waiting.pop_front().expect("it was asked for");
        let mut answer = told(&found, request.dry_run);
        if request.dry_run || found.removed.offsets.is_empty() {
            let critics: Vec<Value> = self.state.critics().iter().map(|learner| outlook(learner, &found)).collect();
            answer["critics"] = critics.into();
            self.out.extend(caller.map(|caller| Output::Reply(caller.reply(&wire::Reply::Remove(&answer)))));
            return;
        }
        if let Err(error) = self.check_removable() {
            self.out.extend(caller.map(|caller| Output::Reply(caller.refuse(&error))));
            return;
        }
        let FoundRows { mut removed, rows, .. } = found;
        (removed.by, removed.reason) = (request.by, request.reason);
        let (mut records, mut room) = (Vec::new(), RECORD_BYTES_MAX);
        for (index, learner) in self.state.critics().iter().enumerate() {
            let subtracted = rows.as_ref().filter(|_| !self.state.is_halted(index)).map(|rows| {
                let mut learner = learner.clone();
                // A bug leaves it stale.
                let taken = catch_unwind(AssertUnwindSafe(|| learner.remove(rows, &removed.offsets)));
                let taken = taken.map_err(|panic| panics::message(&*panic));
                (taken.and_then(|taken| taken.map_err(|why| why.to_string())), learner)
            });
            let name = &learner.settings().name;
            match subtracted {
                Some((Ok(taken), learner)) if learner.bytes() <= room => {
                    if taken.subtracted > 0 {
                        room -= learner.bytes();
                        records.push(Record::Rebuilt(Box::new(learner)));
                    }
                }
                Some((Err(why), _)) => log::warn!("event=critic_stale critic={name} why={why:?}"),
                Some(_) => log::warn!("event=critic_stale critic={name} why=\"it is too large for the journal\""),
                None => log::warn!("event=critic_stale critic={name} why=\"the rows of its chains are too many\""),
            }
        }
        self.intake.lose(&removed.streams, &removed.ended);
        let (by, reason) = (removed.by.clone(), removed.reason.clone());
        self.out.push(event(Event::Removed { rows: removed.offsets.count(), by, reason }, now));
        self.intake.decide(Record::Removed(removed));
        records.into_iter().for_each(|record| self.intake.decide(record));
        self.rebuilds.removals.storing = Some((caller, answer));
    }

    /// Rows that were taken back are so by now: answer, and have the critics learned again.
    pub(super) fn removal_applied(&mut self) {
        let Some((caller, mut answer)) = self.rebuilds.removals.storing.take() else { return };
        let Some(last) = self.state.removals().told().last() else { return };
        answer["offset"] = last.offset.into();
        answer["critics"] = last.critics.iter().map(told_of_critic).collect();
        log::info!("event=rows_removed rows={} offset={}", last.rows, last.offset);
        self.out.extend(caller.map(|caller| Output::Reply(caller.reply(&wire::Reply::Remove(&answer)))));
        self.publisher.board().set_removals(self.state.removals().clone());
        self.publisher.request_refresh();
        self.rebuild_influenced();
    }

    /// Critics that have something of rows that were taken back are learned again.
    pub(super) fn rebuild_influenced(&mut self) {
        for learner in self.state.critics() {
            if !learner.residue().offsets().is_empty() {
                // None of them has a caller, so that there is always room.
                drop(self.rebuilds.want(&learner.settings().name, None));
            }
        }
    }

    /// What `status` says of the journal.
    pub(super) fn journal_status(&self) -> Option<JournalStatus> {
        let journal = self.ledger.as_ref()?.status();
        let (rows, since) = self.state.removals().unerased(journal.first_offset).unzip();
        Some(JournalStatus { unerased_rows: rows.unwrap_or(0), unerased_since: since, ..journal })
    }

    /// What it says of rows that were taken back.
    pub(super) fn removals_status(&self) -> Vec<RemovalStatus> {
        self.state.removals().told().iter().rev().map(status).collect()
    }
}

fn status(removal: &Removal) -> RemovalStatus {
    let of = |influence: &Influence| InfluenceStatus {
        critic: influence.critic.clone(),
        generation: influence.generation,
        subtracted: influence.subtracted,
        free_generation: influence.free.map(|(generation, _)| generation),
        free_offset: influence.free.map(|(_, offset)| offset),
    };
    RemovalStatus {
        offset: removal.offset,
        time: removal.time,
        rows: removal.rows,
        by: removal.by.clone(),
        reason: removal.reason.clone(),
        critics: removal.critics.iter().map(of).collect(),
    }
}

fn told_of_critic(influence: &Influence) -> Value {
    json!({"critic": influence.critic, "generation": influence.generation, "subtracted": influence.subtracted})
}

/// What a critic would do.
fn outlook(learner: &Learner, found: &FoundRows) -> Value {
    let concerned = found.removed.offsets.ranges().first().is_some_and(|first| first.start < learner.learned());
    let subtracts = !learner.has_rows_of_its_own() && learner.model().is_none_or(|model| model.since().is_some());
    let critic = &learner.settings().name;
    json!({"critic": critic, "generation": learner.generation(), "subtracted": !concerned || subtracts})
}

/// What was found, in the words of the protocol.
fn told(found: &FoundRows, dry_run: bool) -> Value {
    let ranges = found.removed.offsets.ranges();
    let shown: Vec<[u64; 2]> = ranges.iter().take(RANGES_TOLD).map(|range| [range.start, range.end]).collect();
    json!({
        "dry_run": dry_run,
        "offset": found.end,
        "rows": found.removed.offsets.count(),
        "ranges": shown,
        "ranges_count": ranges.len(),
        "streams": found.streams,
        "chains": found.chains,
        "rows_of_chains": found.chain_rows,
        "without_time": found.without_time,
        "forgotten": found.forgotten,
        "boundary": found.boundary,
    })
}
