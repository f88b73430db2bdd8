//! The journal as the core writes it: one group after the other, what to do when that fails, when a checkpoint is due, and
//! what may be forgotten.

use super::recovery::{KnownCheckpoint, Recovered, first_needed};
use crate::clock::Now;
use crate::journal::checkpoint::Checkpoints;
use crate::journal::retention::{LedgerSettings, SyncMode};
use crate::journal::store::{GroupHeader, Mark, Storage, StoreError};
use crate::journal::thresholds::thresholds;
use crate::journal::{GroupWriter, StoredGroup};
use crate::wire::status::{CheckpointStatus, JournalStatus};
use std::sync::Arc;

/// Between two tries to write again, seconds.
const RETRY_S: f64 = 1.0;

/// A checkpoint that was written, or was not.
#[derive(Debug)]
pub struct CheckpointDone {
    /// Number of the last group that it has seen.
    pub group: u64,
    /// Offset behind it.
    pub offset: u64,
    /// Offset of the oldest row that a start from it needs.
    pub replay_from: u64,
    /// Bytes of its file, or why there is none.
    pub result: Result<u64, String>,
    /// Seconds that encoding and writing took.
    pub seconds: f64,
}

/// What has been written, and what is to be.
#[derive(Debug)]
pub struct Ledger {
    storage: Box<dyn Storage>,
    checkpoints: Arc<dyn Checkpoints>,
    settings: LedgerSettings,
    /// The last group that was written.
    end: Mark,
    /// The last group that was synced.
    durable: Mark,
    synced_at: f64,
    last_sync_s: f64,
    /// The oldest group; none while there is none.
    first: Option<GroupHeader>,
    bytes: u64,
    /// The group that could not be written.
    stuck: Option<StoredGroup>,
    failure: Option<String>,
    retry_at: f64,
    failures: u64,
    /// The checkpoint that was started last: group, offset.
    started: (u64, u64),
    writing: bool,
    /// Checkpoints that are there, the newest first: offset, number of the oldest group that a start from it needs.
    kept: Vec<(u64, u64)>,
    last_checkpoint: Option<CheckpointStatus>,
    /// When the newest one was written, Unix seconds.
    checkpoint_time: Option<f64>,
    checkpoint_failures: u64,
    /// Why the last one could not be written, if it could not.
    checkpoint_failure: Option<String>,
}

impl Ledger {
    /// Go on behind what was recovered. If the journal cannot be written, that is a failure as any other: [`Ledger::retry`].
    ///
    /// # Errors
    /// If the journal cannot be read.
    pub fn new(
        mut storage: Box<dyn Storage>,
        checkpoints: Arc<dyn Checkpoints>,
        settings: LedgerSettings,
        recovered: &Recovered,
        now: Now,
    ) -> Result<Self, StoreError> {
        let mut kept = Vec::new();
        for &KnownCheckpoint { group, offset, replay_from, .. } in &recovered.checkpoints {
            kept.push((offset, first_needed(storage.as_mut(), group, replay_from)?));
        }
        let (mut bytes, mut next) = (0, 0);
        let first = storage.bounds()?.map(|(first, _)| first);
        let head = match first {
            Some(first) => storage.headers(first, 1)?.pop(),
            None => None,
        };
        loop {
            let headers = storage.headers(next, thresholds().headers)?;
            bytes += headers.iter().map(|head| head.bytes).sum::<u64>();
            let Some(last) = headers.last() else { break };
            next = last.id + 1;
        }
        // What a start finds is written once more before it is built upon: a sync before the start may have failed.
        let written = storage.reopen().and_then(|()| storage.set_mark(recovered.state.end()));
        let newest = recovered.checkpoints.first().map_or((0, 0), |newest| (newest.group, newest.offset));
        let mut ledger = Self {
            storage,
            checkpoints,
            settings,
            end: recovered.state.end(),
            durable: recovered.state.end(),
            synced_at: 0.0,
            last_sync_s: 0.0,
            first: head,
            bytes,
            stuck: None,
            failure: None,
            retry_at: 0.0,
            failures: 0,
            started: newest,
            writing: false,
            kept,
            last_checkpoint: None,
            checkpoint_time: recovered.checkpoints.first().map(|newest| newest.time),
            checkpoint_failures: 0,
            checkpoint_failure: None,
        };
        if let Err(e) = written {
            ledger.failed(&e, now);
        }
        Ok(ledger)
    }

    /// The last group that was written, and the offset behind it.
    pub fn end(&self) -> Mark {
        self.end
    }

    /// Offset of the first row that is retained; none if no group is.
    pub fn first_offset(&self) -> Option<u64> {
        self.first.map(|head| head.first_offset)
    }

    /// Why nothing can be written, if that is so.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// Where checkpoints go.
    pub fn checkpoints(&self) -> Arc<dyn Checkpoints> {
        Arc::clone(&self.checkpoints)
    }

    /// Bytes of unfinished commits that were cut off.
    pub fn torn_bytes(&self) -> u64 {
        self.storage.torn_bytes()
    }

    /// Leave a single file, so that other tools can open the journal.
    ///
    /// # Errors
    /// What went wrong; the journal is whole all the same.
    pub fn compact(&mut self) -> Result<(), String> {
        self.storage.reopen().map_err(|e| e.to_string())
    }

    /// The journal itself, to be read.
    pub(super) fn storage(&mut self) -> &mut dyn Storage {
        self.storage.as_mut()
    }

    /// Write a group of the time `time`, Unix seconds; with [`SyncMode::Always`] it is durable then. `clock` tells the seconds
    /// since the start.
    ///
    /// Returns whether that was done. If not, the group is kept, and [`Ledger::retry`] tries again: nothing else may be written
    /// meanwhile.
    pub fn commit(&mut self, writer: GroupWriter, time: f64, now: Now, clock: &dyn Fn() -> f64) -> bool {
        assert!(self.stuck.is_none(), "one group after the other");
        let Mark { id, offset, crc } = self.end;
        let group = writer.finish(id + 1, offset, crc, time);
        let started = clock();
        let done = self.append(&group);
        let ended = clock();
        match done {
            Ok(()) => {
                self.written(&group, ended);
                self.last_sync_s = ended - started;
                true
            }
            Err(e) => {
                self.stuck = Some(group);
                self.failed(&e, now);
                false
            }
        }
    }

    /// Keep a group that could not be written yet, for [`Ledger::retry`]. Returns where it will end.
    pub fn hold_back(&mut self, writer: GroupWriter, time: f64) -> Mark {
        assert!(self.failure.is_some(), "otherwise it is written");
        let Mark { id, offset, crc } = self.end;
        self.stuck.get_or_insert_with(|| writer.finish(id + 1, offset, crc, time)).mark()
    }

    fn append(&mut self, group: &StoredGroup) -> Result<(), StoreError> {
        let truncate_before = self.truncate_before(group)?;
        self.storage.append(group, truncate_before, self.settings.sync == SyncMode::Always)
    }

    fn written(&mut self, group: &StoredGroup, uptime: f64) {
        self.end = group.mark();
        self.bytes += group.body.len() as u64;
        if self.first.is_none() {
            let bytes = group.body.len() as u64;
            let StoredGroup { id, first_offset, rows, kinds, .. } = *group;
            self.first = Some(GroupHeader { id, first_offset, rows, kinds, bytes });
        }
        if self.settings.sync == SyncMode::Always {
            self.synced(uptime);
        }
    }

    fn synced(&mut self, uptime: f64) {
        self.durable = self.end;
        self.synced_at = uptime;
        // It says what is durable already: that it cannot be written loses nothing but the notice of a loss.
        if let Err(e) = self.storage.set_mark(self.durable) {
            log::warn!("event=mark_failed why={:?}", e.to_string());
        }
    }

    fn failed(&mut self, error: &StoreError, now: Now) {
        self.failures += 1;
        if self.failure.is_none() {
            log::error!("event=read_only offset={} why={:?}", self.end.offset, error.to_string());
        }
        self.failure = Some(error.to_string());
        self.retry_at = now.uptime + RETRY_S;
    }

    /// Number below which groups may be dropped with the next commit: oldest first, while there are more rows or bytes than are
    /// kept, and never what a start from one of the checkpoints needs.
    fn truncate_before(&mut self, group: &StoredGroup) -> Result<u64, StoreError> {
        const GROUPS_AT_ONCE: usize = 8;
        let LedgerSettings { rows_max, bytes_max, .. } = self.settings;
        let needed = match self.kept.iter().map(|&(_, oldest)| oldest).min() {
            Some(needed) => needed,
            None => return Ok(0),
        };
        let Some(first) = self.first else { return Ok(0) };
        let excess = |first_offset: u64, bytes: u64| {
            group.end() - first_offset > rows_max || bytes + group.body.len() as u64 > bytes_max
        };
        if first.id >= needed || !excess(first.first_offset, self.bytes) {
            return Ok(0);
        }
        let mut below = first.id;
        for head in self.storage.headers(first.id, GROUPS_AT_ONCE)? {
            if head.id >= needed || !excess(head.first_offset, self.bytes) {
                break;
            }
            below = head.id + 1;
            self.bytes -= head.bytes;
        }
        self.first = self.storage.headers(below, 1)?.pop();
        Ok(below)
    }

    /// Whether it is time to try to write again.
    pub fn retry_due(&self, now: Now) -> bool {
        self.failure.is_some() && now.uptime >= self.retry_at
    }

    /// Open everything again, make sure that all that was acknowledged is there, and write what could not be written. Returns
    /// whether that was done.
    pub fn retry(&mut self, now: Now) -> bool {
        match self.try_again() {
            Ok(()) => {
                log::info!("event=writable offset={} failures={}", self.end.offset, self.failures);
                self.failure = None;
                self.synced(now.uptime);
                true
            }
            Err(e) => {
                self.failed(&e, now);
                false
            }
        }
    }

    fn try_again(&mut self) -> Result<(), StoreError> {
        // Closing a file that was deleted would delete what is in it.
        self.storage.check_in_place()?;
        self.storage.reopen()?;
        let last = match self.storage.bounds()? {
            Some((_, last)) => self.storage.read(last, 1)?.pop().map(|group| (group.id, group.crc)),
            None => None,
        };
        let stuck = self.stuck.as_ref().map(|group| (group.id, group.crc));
        let before = (self.end.id > 0).then_some((self.end.id, self.end.crc));
        // A commit that failed may have gone through all the same.
        let is_there = last.is_some() && last == stuck;
        if !is_there && last != before {
            return Err(StoreError::AcknowledgedMissing);
        }
        if let Some(group) = &self.stuck {
            if !is_there {
                self.storage.append(group, 0, true)?;
            }
            let group = self.stuck.take().expect("it is there");
            self.written(&group, self.synced_at);
        }
        Ok(())
    }

    /// Look whether the files are still where they were: once a second. What was written to a file that was deleted is kept by
    /// this process alone, so nothing more is taken in.
    pub fn check_in_place(&mut self, now: Now) {
        if self.failure.is_none()
            && let Err(e) = self.storage.check_in_place()
        {
            self.failed(&e, now);
        }
    }

    /// Make durable what has been written, if it is time.
    pub fn sync_if_due(&mut self, now: Now, clock: &dyn Fn() -> f64) {
        if let SyncMode::Interval(milliseconds) = self.settings.sync
            && now.uptime - self.synced_at >= milliseconds as f64 / 1000.0
        {
            self.sync(now, clock);
        }
    }

    /// Make durable what has been written. Returns whether it is.
    pub fn sync(&mut self, now: Now, clock: &dyn Fn() -> f64) -> bool {
        if self.failure.is_some() {
            return false;
        }
        if self.durable == self.end {
            return true;
        }
        let started = clock();
        match self.storage.sync() {
            Ok(()) => {
                let ended = clock();
                self.last_sync_s = ended - started;
                self.synced(ended);
                true
            }
            Err(e) => {
                self.failed(&e, now);
                false
            }
        }
    }

    /// Whether enough rows have come since the last checkpoint.
    pub fn checkpoint_due(&self) -> bool {
        !self.writing && self.end.offset >= self.started.1 + self.settings.checkpoint_rows
    }

    /// Whether a checkpoint is being written.
    pub fn checkpoint_running(&self) -> bool {
        self.writing
    }

    /// Offset of the newest checkpoint, if nothing has happened since. None after one that could not be written: that is no
    /// checkpoint, and the next request, or the end, tries again.
    pub fn checkpoint_is_fresh(&self) -> Option<u64> {
        let written = !self.writing && self.checkpoint_failure.is_none() && !self.kept.is_empty();
        (written && self.started.0 == self.end.id).then_some(self.started.1)
    }

    /// A checkpoint behind the last group is being written from here on.
    pub fn checkpoint_started(&mut self) {
        self.started = (self.end.id, self.end.offset);
        self.writing = true;
    }

    /// It was written, or was not.
    pub fn checkpoint_done(&mut self, done: &CheckpointDone, now: Now) {
        self.writing = false;
        match &done.result {
            Ok(bytes) => {
                log::info!("event=checkpoint offset={} bytes={bytes} seconds={:.3}", done.offset, done.seconds);
                let oldest = first_needed(self.storage.as_mut(), self.started.0, done.replay_from);
                // If that cannot be read now nothing is forgotten.
                self.kept.insert(0, (done.offset, oldest.unwrap_or(0)));
                self.kept.truncate(crate::journal::checkpoint::KEPT);
                let CheckpointDone { offset, seconds, .. } = *done;
                (self.checkpoint_time, self.checkpoint_failure) = (Some(now.unix), None);
                self.last_checkpoint = Some(CheckpointStatus { offset, bytes: *bytes, seconds, time: now.unix });
            }
            Err(why) => {
                log::warn!("event=checkpoint_failed offset={} why={why:?}", done.offset);
                self.checkpoint_failures += 1;
                self.checkpoint_failure = Some(why.clone());
            }
        }
    }

    /// For `status`, without what was taken back.
    pub fn status(&self) -> JournalStatus {
        let first_offset = self.first.map_or(self.end.offset, |head| head.first_offset);
        JournalStatus {
            sync: self.settings.sync.to_string(),
            rows: self.end.offset - first_offset,
            bytes: self.bytes,
            groups: self.first.map_or(0, |head| self.end.id + 1 - head.id),
            first_offset,
            durable_offset: self.durable.offset,
            last_sync_s: self.last_sync_s,
            failures: self.failures,
            checkpoint: self.last_checkpoint.clone(),
            checkpoint_offset: self.kept.first().map(|&(offset, _)| offset),
            checkpoint_time: self.checkpoint_time,
            checkpoint_failures: self.checkpoint_failures,
            checkpoint_failure: self.checkpoint_failure.clone(),
            ..JournalStatus::default()
        }
    }
}
