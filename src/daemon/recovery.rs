//! From the journal and its checkpoints back to the state that was.
//!
//! The newest checkpoint that can be read is taken, the rows before it that the window holds are read, and every group
//! behind it is applied as it was when it happened: rows are pushed and the learners stepped group by group, recorded
//! models adopted again, settings changed where they changed. Nothing is optimised and nothing depends on the clock, so
//! that the result is the same bit for bit as that of the run that wrote the journal.
//!
//! What cannot be true is refused: see [`RecoverError`]. Nothing is changed here but in memory.

use super::core::panic_message;
use super::streams::Streams;
use crate::journal::checkpoint::{Checkpoint, CheckpointError, Checkpoints};
use crate::journal::store::{Mark, Storage, StoreError, for_each_group};
use crate::journal::{Configured, Damage, QUARANTINED, Quarantined, Record, StoredGroup};
use crate::learner::window::Window;
use crate::learner::{Learner, Settings};
use crate::transition::Rows;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Times that a start tries again without rows on which a learner has failed.
const ATTEMPTS: usize = 16;

/// Why the journal is not used as it is. Each says what is wrong; `criticd inspect` shows more, `criticd repair` mends.
#[derive(Debug)]
#[non_exhaustive]
pub enum RecoverError {
    /// The journal cannot be read.
    Store(StoreError),
    /// It ends before what is known to have been durable: rows that were acknowledged are missing.
    Shortened {
        /// What is known.
        known: Mark,
        /// Where it ends: number of the last group, offset behind it; none if it is empty.
        end: Option<(u64, u64)>,
    },
    /// A group is damaged.
    Damaged {
        /// Its number.
        group: u64,
        /// Offset of its first row, as far as that can be known.
        offset: u64,
        /// What is wrong with it.
        damage: Damage,
    },
    /// A group does not follow on the one before.
    Broken {
        /// Its number.
        group: u64,
        /// Offset behind the group before.
        offset: u64,
        /// What does not fit.
        why: String,
    },
    /// A checkpoint has seen groups that the journal does not have.
    CheckpointAhead {
        /// Number of the last group that the checkpoint has seen.
        checkpoint: u64,
        /// Offset behind it.
        offset: u64,
        /// Number of the last group of the journal; 0 if it is empty.
        journal: u64,
    },
    /// A checkpoint belongs to another journal.
    CheckpointForeign {
        /// Number of the last group that it has seen.
        checkpoint: u64,
    },
    /// A checkpoint is of a newer version of the program.
    CheckpointNewer {
        /// Number of the last group that it has seen.
        checkpoint: u64,
        /// What it says.
        error: CheckpointError,
    },
    /// The journal has forgotten its beginning, and there is no checkpoint to start from.
    NoCheckpoint {
        /// Number of the oldest group that is there.
        first: u64,
        /// What is wrong with the checkpoints that are there.
        faults: Vec<String>,
    },
    /// The checkpoints cannot be read.
    Checkpoints(std::io::Error),
    /// The settings contradict what has been recorded.
    Settings(String),
    /// A learner fails on more and more rows: this is no single bad batch.
    Learner(Quarantined),
}

impl fmt::Display for RecoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(e) => write!(f, "the journal cannot be read: {e}"),
            Self::Shortened { known, end: Some((id, offset)) } => write!(
                f,
                "the journal ends with group {id} at offset {offset}, but group {} at offset {} was durable: {} \
                 acknowledged rows are missing",
                known.id,
                known.offset,
                known.offset.saturating_sub(*offset)
            ),
            Self::Shortened { known, end: None } => write!(
                f,
                "the journal is empty, but group {} at offset {} was durable: {} acknowledged rows are missing",
                known.id, known.offset, known.offset
            ),
            Self::Damaged { group, offset, damage } => {
                write!(f, "group {group} of the journal, at offset {offset}, cannot be used: {damage}")
            }
            Self::Broken { group, offset, why } => {
                write!(f, "group {group} of the journal, at offset {offset}, does not follow on the one before: {why}")
            }
            Self::CheckpointAhead { checkpoint, offset, journal } => write!(
                f,
                "a checkpoint has seen {offset} rows in {checkpoint} groups, but the journal ends with group {journal}"
            ),
            Self::CheckpointForeign { checkpoint } => {
                write!(f, "the checkpoint behind group {checkpoint} belongs to another journal")
            }
            Self::CheckpointNewer { checkpoint, error } => {
                write!(f, "the checkpoint behind group {checkpoint} cannot be used: {error}")
            }
            Self::NoCheckpoint { first, faults } => {
                write!(f, "the journal begins with group {first}, and there is no checkpoint to start from")?;
                faults.iter().try_for_each(|fault| write!(f, "; {fault}"))
            }
            Self::Checkpoints(e) => write!(f, "the checkpoints cannot be read: {e}"),
            Self::Settings(why) => f.write_str(why),
            Self::Learner(Quarantined { critic, from, to, why }) => {
                write!(f, "critic {critic:?} fails on rows {from} to {to} and on others before them: {why}")
            }
        }
    }
}

impl std::error::Error for RecoverError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(e) => Some(e),
            Self::Damaged { damage, .. } => Some(damage),
            Self::CheckpointNewer { error, .. } => Some(error),
            Self::Checkpoints(e) => Some(e),
            _ => None,
        }
    }
}

impl From<StoreError> for RecoverError {
    fn from(e: StoreError) -> Self {
        Self::Store(e)
    }
}

/// The state that was.
#[derive(Debug)]
pub struct Recovered {
    /// Last group, offset behind it; all zero for an empty journal.
    pub end: Mark,
    /// Rows for refits, and how long a state is; none before the first row.
    pub window: Option<Window>,
    /// Where the streams stand.
    pub streams: Streams,
    /// Settings as they were; none for an empty journal.
    pub configured: Option<Configured>,
    /// The critics, in the order of their settings.
    pub learners: Vec<Learner>,
    /// Rows on which learners failed only now: still to be recorded.
    pub quarantined: Vec<Quarantined>,
    /// Checkpoints that can be read, the newest first: group, oldest row needed.
    pub checkpoints: Vec<(u64, u64)>,
    /// Offset of the checkpoint that was started from; none if it was the beginning.
    pub from_checkpoint: Option<u64>,
    /// Rows learned again.
    pub rows_replayed: u64,
    /// Groups read.
    pub groups_read: u64,
    /// What was wrong with checkpoints that were passed over.
    pub faults: Vec<String>,
}

/// How far a recovery has got: rows done, rows to do.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Read everything back.
///
/// # Errors
/// If what is there cannot be all that was acknowledged.
pub fn recover(
    storage: &mut dyn Storage,
    checkpoints: &dyn Checkpoints,
    window_rows: usize,
    progress: Progress<'_>,
) -> Result<Recovered, RecoverError> {
    let end = check_end(storage)?;
    let (usable, faults) = usable_checkpoints(checkpoints, end)?;
    if let Some(newest) = usable.first() {
        same_journal(storage, newest)?;
    }
    let readable: Vec<(u64, u64)> = usable.iter().map(|c| (c.group, c.needs_from)).collect();
    let start = usable.into_iter().next();
    let Some((first, _)) = storage.bounds()? else {
        return Ok(Replay::new(None, window_rows).finish(end, readable, faults));
    };
    if start.is_none() && first != 1 {
        return Err(RecoverError::NoCheckpoint { first, faults });
    }
    let mut left_out = recorded_quarantine(storage, start.as_ref().map_or(0, |c| c.group))?;
    let mut new = Vec::new();
    loop {
        let from = match &start {
            Some(checkpoint) => group_of(storage, checkpoint.needs_from)?.min(checkpoint.group + 1),
            None => 1,
        };
        let mut replay = Replay::new(start.clone(), window_rows);
        replay.left_out = left_out.clone();
        let mut previous: Option<StoredGroup> = None;
        for_each_group(storage, from, |group| {
            check_group(&group, previous.as_ref(), from)?;
            replay.apply(&group)?;
            progress(replay.rows_replayed, end.offset - replay.started_at);
            let body = Vec::new();
            previous = Some(StoredGroup { body, ..group });
            Ok::<(), RecoverError>(())
        })?;
        let last = previous.map_or(0, |group| group.id);
        if last != end.id {
            let why = format!("groups {} to {} are missing", last + 1, end.id);
            return Err(RecoverError::Broken { group: end.id, offset: end.offset, why });
        }
        match replay.panicked.take() {
            // A learner that fails on its rows would fail on them again: the others are learned without them.
            Some(panicked) if new.len() == ATTEMPTS => return Err(RecoverError::Learner(panicked)),
            Some(panicked) => {
                left_out.push(panicked.clone());
                new.push(panicked);
            }
            None => {
                return Ok(Recovered { quarantined: new, ..replay.finish(end, readable, faults) });
            }
        }
    }
}

/// The end of the journal, if it is at or behind everything that is known to be durable.
pub(super) fn check_end(storage: &mut dyn Storage) -> Result<Mark, RecoverError> {
    let known = storage.mark()?.unwrap_or_default();
    let last = match storage.bounds()? {
        Some((_, last)) => storage.read(last, 1)?.pop(),
        None => None,
    };
    let Some(last) = last else {
        if known.id > 0 {
            return Err(RecoverError::Shortened { known, end: None });
        }
        return Ok(Mark::default());
    };
    last.check().map_err(|damage| RecoverError::Damaged { group: last.id, offset: last.first_offset, damage })?;
    if last.id < known.id {
        return Err(RecoverError::Shortened { known, end: Some((last.id, last.end())) });
    }
    if known.id > 0
        && let Some(marked) = storage.read(known.id, 1)?.first()
        && (marked.id, marked.crc) != (known.id, known.crc)
    {
        let why = "it is not the group that is known to have been durable".to_owned();
        return Err(RecoverError::Broken { group: known.id, offset: known.offset, why });
    }
    Ok(Mark { id: last.id, offset: last.end(), crc: last.crc })
}

/// The checkpoints that can be read, newest first, and what is wrong with the others.
pub(super) fn usable_checkpoints(
    checkpoints: &dyn Checkpoints,
    end: Mark,
) -> Result<(Vec<Checkpoint>, Vec<String>), RecoverError> {
    let (mut usable, mut faults) = (Vec::new(), Vec::new());
    for group in checkpoints.list().map_err(RecoverError::Checkpoints)? {
        let read = checkpoints.read(group).map_err(CheckpointError::File).and_then(|bytes| Checkpoint::decode(&bytes));
        match read {
            Ok(checkpoint) if checkpoint.group > end.id => {
                let Checkpoint { group: checkpoint, offset, .. } = checkpoint;
                return Err(RecoverError::CheckpointAhead { checkpoint, offset, journal: end.id });
            }
            Ok(checkpoint) if checkpoint.group == group => usable.push(checkpoint),
            Ok(_) => faults.push(format!("the checkpoint behind group {group} is one behind another")),
            Err(error @ CheckpointError::Newer { .. }) => {
                return Err(RecoverError::CheckpointNewer { checkpoint: group, error });
            }
            // One that was not even finished may be newer than the journal: it says nothing.
            Err(error) => faults.push(format!("the checkpoint behind group {group} cannot be used: {error}")),
        }
    }
    Ok((usable, faults))
}

pub(super) fn same_journal(storage: &mut dyn Storage, checkpoint: &Checkpoint) -> Result<(), RecoverError> {
    // The group may have been forgotten, the ones behind it not.
    let Some(group) = storage.read(checkpoint.group, 1)?.into_iter().next() else {
        return Err(RecoverError::CheckpointForeign { checkpoint: checkpoint.group });
    };
    let same = if group.id == checkpoint.group {
        group.crc == checkpoint.crc
    } else {
        group.id == checkpoint.group + 1 && group.previous_crc == checkpoint.crc
    };
    if same { Ok(()) } else { Err(RecoverError::CheckpointForeign { checkpoint: checkpoint.group }) }
}

/// Number of the group that holds the row at `offset`, or of the first group there is if that is behind it.
pub(super) fn group_of(storage: &mut dyn Storage, offset: u64) -> Result<u64, StoreError> {
    let Some((mut low, mut high)) = storage.bounds()? else { return Ok(0) };
    // The last group that begins at or before the offset, by halving: numbers have no gaps.
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match storage.heads(middle, 1)?.first() {
            Some(head) if head.first_offset <= offset => low = middle,
            _ => high = middle - 1,
        }
    }
    Ok(low)
}

fn recorded_quarantine(storage: &mut dyn Storage, behind: u64) -> Result<Vec<Quarantined>, RecoverError> {
    const AT_ONCE: usize = 1024;
    let (mut found, mut next) = (Vec::new(), behind + 1);
    loop {
        let heads = storage.heads(next, AT_ONCE)?;
        let Some(last) = heads.last() else { return Ok(found) };
        next = last.id + 1;
        for head in heads.iter().filter(|head| head.kinds & QUARANTINED != 0) {
            for group in storage.read(head.id, 1)? {
                let damaged = |damage| RecoverError::Damaged { group: head.id, offset: head.first_offset, damage };
                let (_, records) = group.decode().map_err(damaged)?;
                for record in records {
                    let Record::Quarantined(quarantined) = record else { continue };
                    // A learner can have failed only on what was there.
                    if quarantined.to > head.first_offset {
                        let why = format!("it leaves out rows up to {}, which come after it", quarantined.to);
                        return Err(damaged(Damage::Unreadable(why)));
                    }
                    found.push(quarantined);
                }
            }
        }
    }
}

/// Check a group by itself and as the successor of `previous`; the first one read is number `from`.
pub(super) fn check_group(group: &StoredGroup, previous: Option<&StoredGroup>, from: u64) -> Result<(), RecoverError> {
    let id = previous.map_or(from, |previous| previous.id + 1);
    let offset = previous.map_or(group.first_offset, StoredGroup::end);
    group.check().map_err(|damage| RecoverError::Damaged { group: id, offset, damage })?;
    let broken = |why: String| Err(RecoverError::Broken { group: id, offset, why });
    if group.id != id {
        return broken(format!("groups {id} to {} are missing", group.id - 1));
    }
    if group.first_offset != offset {
        return broken(format!("it begins at offset {}", group.first_offset));
    }
    match previous {
        Some(previous) if previous.crc != group.previous_crc => broken("it follows on another group".into()),
        None if group.id == 1 && group.previous_crc != 0 => broken("it is the first, and follows on another".into()),
        _ => Ok(()),
    }
}

/// Whether a critic with settings `new` can go on with what it learned with `old`.
fn goes_on(old: &Settings, new: &Settings) -> bool {
    let meaning = |s: &Settings| {
        (
            s.discount.to_bits(),
            s.rewards.clone(),
            s.noise,
            s.variance,
            s.lambda,
            s.rho_max.to_bits(),
            s.forgetting.to_bits(),
            s.state_kinds.clone(),
        )
    };
    meaning(old) == meaning(new)
}

/// The critics after a change of settings: those that can go on do, the others begin anew with the rows from
/// `configured.from` on.
pub(super) fn configure(learners: Vec<Learner>, configured: &Configured) -> Vec<Learner> {
    let mut old = learners;
    let next = |settings: &Settings| {
        let known = old
            .iter()
            .position(|learner| learner.settings().name == settings.name && goes_on(learner.settings(), settings));
        match known {
            Some(index) => {
                let mut learner = old.swap_remove(index);
                learner.set_settings(settings.clone());
                learner.set_names(configured.names.clone());
                learner
            }
            None => Learner::starting_at(settings.clone(), configured.names.clone(), configured.from),
        }
    };
    configured.critics.iter().map(next).collect()
}

struct Replay {
    window_rows: usize,
    window: Option<Window>,
    streams: Streams,
    configured: Option<Configured>,
    learners: Vec<Learner>,
    /// Groups up to this number only fill the window.
    seen: u64,
    started_at: u64,
    from_checkpoint: Option<u64>,
    left_out: Vec<Quarantined>,
    panicked: Option<Quarantined>,
    rows_replayed: u64,
    groups_read: u64,
}

impl Replay {
    fn new(start: Option<Checkpoint>, window_rows: usize) -> Self {
        let mut replay = Self {
            window_rows,
            window: None,
            streams: Streams::new(),
            configured: None,
            learners: Vec::new(),
            seen: 0,
            started_at: 0,
            from_checkpoint: None,
            left_out: Vec::new(),
            panicked: None,
            rows_replayed: 0,
            groups_read: 0,
        };
        if let Some(checkpoint) = start {
            let Checkpoint { group, offset, streams, configured, learners, shape, .. } = checkpoint;
            (replay.seen, replay.started_at, replay.from_checkpoint) = (group, offset, Some(offset));
            (replay.streams, replay.configured, replay.learners) = (streams, configured, learners);
            // If no row before the checkpoint is read the window begins there.
            replay.window = shape.map(|(dim, rewards)| Window::starting_at(dim, rewards, window_rows, offset));
        }
        replay
    }

    fn apply(&mut self, group: &StoredGroup) -> Result<(), RecoverError> {
        let damaged = |damage| RecoverError::Damaged { group: group.id, offset: group.first_offset, damage };
        let (time, records) = group.decode().map_err(damaged)?;
        self.groups_read += 1;
        let learn = group.id > self.seen;
        let mut offset = group.first_offset;
        if let Some(window) = &mut self.window {
            let learned = self.learners.iter().map(Learner::needs_from).min();
            window.hold(if learn { learned.unwrap_or(u64::MAX) } else { 0 });
        }
        for record in records {
            let applied = match record {
                Record::Rows(taken) => {
                    let batch = &taken.batch;
                    let shape = (batch.dim(), batch.rewards_per_row());
                    if self.window.as_ref().is_none_or(|window| window.end() != offset) {
                        let window = Window::starting_at(shape.0, shape.1, self.window_rows, offset);
                        self.window = Some(window);
                    }
                    let window = self.window.as_mut().expect("it has just been made sure of");
                    if (window.dim(), window.rewards_per_row()) != shape {
                        Err("rows of another shape than those before".into())
                    } else {
                        let mut rows = Rows::new(shape.0, shape.1);
                        for (i, &starts) in taken.starts_chain.iter().enumerate() {
                            rows.push(taken.stream, starts, batch, i);
                        }
                        window.extend(&rows, 0..rows.len());
                        let first = offset;
                        offset += batch.len() as u64;
                        if learn {
                            self.rows_replayed += batch.len() as u64;
                            self.streams.replay(batch, taken.stream, &taken.starts_chain, first, time).map(drop)
                        } else {
                            Ok(())
                        }
                    }
                }
                _ if !learn => Ok(()),
                Record::Adopted { critic, adoption } => {
                    let learner = self.learners.iter_mut().find(|learner| learner.settings().name == critic);
                    match learner {
                        Some(learner) => learner.adopt_again(adoption).map_err(str::to_owned),
                        None => Err(format!("a model of {critic:?}, which is no critic")),
                    }
                }
                Record::RefitEnded { critic } => {
                    let learner = self.learners.iter_mut().find(|learner| learner.settings().name == critic);
                    learner
                        .map(Learner::refit_failed)
                        .ok_or_else(|| format!("a refit of {critic:?}, which is no critic"))
                }
                // Known from the start on.
                Record::Quarantined(_) => Ok(()),
                Record::NewPolicy(_) => Ok(()),
                Record::Configured(configured) => {
                    self.learners = configure(std::mem::take(&mut self.learners), &configured);
                    self.configured = Some(configured);
                    Ok(())
                }
            };
            applied.map_err(|why| damaged(Damage::Unreadable(why)))?;
        }
        self.streams.settle();
        if learn && self.panicked.is_none() {
            self.step(group);
        }
        Ok(())
    }

    /// Step the learners as they were stepped when this group had been committed.
    fn step(&mut self, group: &StoredGroup) {
        let Some(window) = &self.window else { return };
        for learner in &mut self.learners {
            let name = &learner.settings().name;
            let excluded = |q: &&Quarantined| q.critic == *name && q.from < group.end() && q.to > group.first_offset;
            if let Some(excluded) = self.left_out.iter().find(excluded) {
                learner.skip_to(excluded.to.min(group.end()));
                continue;
            }
            let name = name.clone();
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(learner.step(window)))) {
                let (from, to) = (group.first_offset, group.end());
                self.panicked = Some(Quarantined { critic: name, from, to, why: panic_message(&panic) });
                return;
            }
        }
    }

    fn finish(self, end: Mark, checkpoints: Vec<(u64, u64)>, faults: Vec<String>) -> Recovered {
        Recovered {
            end,
            window: self.window,
            streams: self.streams,
            configured: self.configured,
            learners: self.learners,
            quarantined: Vec::new(),
            checkpoints,
            from_checkpoint: self.from_checkpoint,
            rows_replayed: self.rows_replayed,
            groups_read: self.groups_read,
            faults,
        }
    }
}
