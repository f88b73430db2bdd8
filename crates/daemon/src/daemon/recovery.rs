//! From the journal and its checkpoints back to the state that was: read, apply.
//!
//! The newest checkpoint that can be read is taken, the rows before it that the window holds are read, and every group
//! behind it is applied, as the daemon that wrote it applied it ([`State::apply`]).
//!
//! What cannot be true is refused: see [`RecoverError`]. Nothing is changed here but in memory.

use crate::journal::checkpoint::{Checkpoint, CheckpointError, Checkpoints, Directory, KEPT};
use crate::journal::store::{GroupHeader, Mark, Storage, StoreError, for_each_group};
use crate::journal::thresholds::thresholds;
use crate::journal::{CONFIGURED, Corruption, HOLE, REBUILT, REMOVED, Record, SKIPPED, SkippedRows, StoredGroup};
use crate::learner::Learner;
use crate::state::State;
use crate::state::record::Origin;
use crate::state::removals::Removals;

/// Times that a start tries again without rows on which a critic has failed. A critic that fails once more is given up.
const ATTEMPTS: usize = 16;

/// What to do with data that a newer version of the program wrote. No repair is offered: nothing is damaged.
pub const NEWER_REMEDY: &str = "A newer criticd wrote this: install the newer criticd, or restore a backup";

/// Why the journal is not used as it is. Each says what is wrong; `criticd inspect` shows more, `criticd repair` mends.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecoverError {
    /// The journal cannot be read.
    #[error("the journal cannot be read: {0}")]
    Store(#[from] StoreError),
    /// It ends before what is known to have been durable: rows that were acknowledged are missing.
    #[error(
        "{}, but group {} at offset {} was durable: {} acknowledged rows are missing",
        .end.map_or_else(
            || "the journal is empty".to_owned(),
            |(id, offset)| format!("the journal ends with group {id} at offset {offset}")
        ),
        .known.id,
        .known.offset,
        .known.offset.saturating_sub(.end.map_or(0, |(_, offset)| offset))
    )]
    Shortened {
        /// What is known.
        known: Mark,
        /// Where it ends: number of the last group, offset behind it; none if it is empty.
        end: Option<(u64, u64)>,
    },
    /// A group is damaged.
    #[error("group {group} of the journal, at offset {offset}, cannot be used: {damage}")]
    Damaged {
        /// Its number.
        group: u64,
        /// Offset of its first row, as far as that can be known.
        offset: u64,
        /// What is wrong with it.
        #[source]
        damage: Corruption,
    },
    /// A group does not follow on the one before.
    #[error("group {group} of the journal, at offset {offset}, does not follow on the one before: {why}")]
    Broken {
        /// Its number.
        group: u64,
        /// Offset behind the group before.
        offset: u64,
        /// What does not fit.
        why: String,
    },
    /// A checkpoint has seen groups that the journal does not have.
    #[error(
        "a checkpoint has seen {offset} rows in {checkpoint} groups, but the journal ends with group {journal}; if {} \
         was copied here from another data directory, move it away",
        Directory::name(*.checkpoint)
    )]
    CheckpointAhead {
        /// Number of the last group that the checkpoint has seen.
        checkpoint: u64,
        /// Offset behind it.
        offset: u64,
        /// Number of the last group of the journal; 0 if it is empty.
        journal: u64,
    },
    /// A checkpoint is of a newer version of the program.
    #[error("the checkpoint behind group {checkpoint} cannot be used: {error}")]
    CheckpointNewer {
        /// Number of the last group that it has seen.
        checkpoint: u64,
        /// What it says.
        #[source]
        error: CheckpointError,
    },
    /// The journal has forgotten its beginning, and there is no checkpoint to start from.
    #[error(
        "the journal begins with group {first}, and there is no checkpoint to start from{}",
        .faults.iter().map(|fault| format!("; {fault}")).collect::<String>()
    )]
    NoCheckpoint {
        /// Number of the oldest group that is there.
        first: u64,
        /// What is wrong with the checkpoints that are there.
        faults: Vec<String>,
    },
    /// The checkpoints cannot be read.
    #[error("the checkpoints cannot be read: {0}")]
    Checkpoints(#[source] std::io::Error),
    /// The settings contradict what has been recorded.
    #[error("{0}")]
    Settings(String),
    /// The start was stopped before the journal was read.
    #[error("the start was stopped before the journal was read")]
    Stopped,
}

impl RecoverError {
    /// Whether a newer version of the program wrote what cannot be used.
    pub fn is_newer(&self) -> bool {
        matches!(
            self,
            Self::Store(StoreError::Newer { .. })
                | Self::Damaged { damage: Corruption::Newer { .. }, .. }
                | Self::CheckpointNewer { .. }
        )
    }
}

/// The state that was, and how it was found.
#[derive(Debug)]
pub struct Recovered {
    /// The state.
    pub state: State,
    /// Rows on which learners failed only now: still to be recorded.
    pub skipped: Vec<SkippedRows>,
    /// Checkpoints that can be read, the newest first.
    pub checkpoints: Vec<KnownCheckpoint>,
    /// Offset of the checkpoint that was started from; none if it was the beginning.
    pub from_checkpoint: Option<u64>,
    /// Rows learned again.
    pub rows_replayed: u64,
    /// Groups read.
    pub groups_read: u64,
    /// What was wrong with checkpoints that were passed over, and what the start lacks for want of one.
    pub faults: Vec<String>,
}

/// A checkpoint that can be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KnownCheckpoint {
    /// Number of the last group that it has seen.
    pub group: u64,
    /// Offset behind it.
    pub offset: u64,
    /// Offset of the oldest row that a start from it needs.
    pub replay_from: u64,
    /// Unix seconds when it was made.
    pub time: f64,
}

impl KnownCheckpoint {
    fn of(checkpoint: &Checkpoint) -> Self {
        let Checkpoint { group, offset, replay_from, time, .. } = *checkpoint;
        Self { group, offset, replay_from, time }
    }
}

/// What a recovery does after a group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum OnTheWay {
    /// It goes on.
    Continue,
    /// It writes a checkpoint, made at this Unix time in seconds, if that is possible there; then it goes on.
    Checkpoint(f64),
    /// It ends with [`RecoverError::Stopped`].
    Stop,
}

/// How far a recovery has got: rows done, rows to do.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

/// Whether to go on, asked now and then.
pub(super) type KeepGoing<'a> = &'a mut dyn FnMut() -> bool;

/// The same, with an answer.
pub type Watched<'a> = &'a mut dyn FnMut(u64, u64) -> OnTheWay;

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
    let mut watched = |rows, of| {
        progress(rows, of);
        OnTheWay::Continue
    };
    recover_watched(storage, checkpoints, window_rows, &mut watched)
}

/// Read everything back; `watched` is asked after each group what to do.
///
/// # Errors
/// If what is there cannot be all that was acknowledged, or `watched` stops it.
pub fn recover_watched(
    storage: &mut dyn Storage,
    checkpoints: &dyn Checkpoints,
    window_rows: usize,
    watched: Watched<'_>,
) -> Result<Recovered, RecoverError> {
    read_back(storage, checkpoints, window_rows, None, watched)
}

/// Read one critic back, and let the others alone. None if that takes more than `rows_max` rows, or several times that number
/// where it fails again and again.
///
/// # Errors
/// Why it cannot be.
pub(super) fn recover_critic(
    storage: &mut dyn Storage,
    checkpoints: &dyn Checkpoints,
    window_rows: usize,
    critic: &str,
    rows_max: u64,
) -> Result<Option<Learner>, String> {
    /// Rows of all attempts, for each of those that one may take.
    const TIMES: u64 = 4;
    let (mut all, mut before) = (0, 0);
    let watched: Watched<'_> = &mut |rows, of| {
        all += if rows < before { rows } else { rows - before };
        before = rows;
        if of > rows_max || all > TIMES * rows_max { OnTheWay::Stop } else { OnTheWay::Continue }
    };
    let recovered = match read_back(storage, checkpoints, window_rows, Some(critic), watched) {
        Err(RecoverError::Stopped) => return Ok(None),
        found => found.map_err(|e| e.to_string())?,
    };
    if let Some(halted) = recovered.state.halted().iter().find(|halted| halted.critic == critic) {
        return Err(halted.why.clone());
    }
    if let Some(more) = recovered.skipped.first() {
        return Err(format!("it fails on rows {} to {} as well", more.from, more.to));
    }
    let found = recovered.state.critics().iter().find(|learner| learner.settings().name == critic);
    found.cloned().map(Some).ok_or_else(|| "it is not in the journal".into())
}

fn read_back(
    storage: &mut dyn Storage,
    checkpoints: &dyn Checkpoints,
    window_rows: usize,
    critic: Option<&str>,
    watched: Watched<'_>,
) -> Result<Recovered, RecoverError> {
    let end = check_end(storage)?;
    let durable = storage.mark()?.unwrap_or_default();
    let (usable, faults) = usable_checkpoints(storage, checkpoints, end)?;
    let readable: Vec<KnownCheckpoint> = usable.iter().map(KnownCheckpoint::of).collect();
    let start = usable.into_iter().next();
    let from_checkpoint = start.as_ref().map(|checkpoint| checkpoint.offset);
    let mut recovered = Recovered {
        state: State::new(window_rows),
        skipped: Vec::new(),
        checkpoints: readable,
        from_checkpoint,
        rows_replayed: 0,
        groups_read: 0,
        faults,
    };
    let Some((first, _)) = storage.bounds()? else { return Ok(recovered) };
    if start.is_none() && first != 1 {
        return Err(RecoverError::NoCheckpoint { first, faults: recovered.faults });
    }
    if start.is_none() && has_holes(storage)? {
        recovered.faults.push(
            "rows were erased from the journal, and with them the models that it had recorded, and no checkpoint has them: critics are \
             learned anew from the rows that stay, and `criticd rebuild` selects their models again"
                .to_owned(),
        );
    }
    let behind = start.as_ref().map_or(0, |checkpoint| checkpoint.group);
    let rows = end.offset - from_checkpoint.unwrap_or(0);
    let keep_going: KeepGoing<'_> = &mut || watched(0, rows) != OnTheWay::Stop;
    let recorded = recorded_skips(storage, behind, keep_going)?;
    let reaches = recorded_reaches(storage, behind, keep_going)?;
    let from = match &start {
        Some(checkpoint) => {
            let offset = reaches.iter().map(|&(_, offset)| offset).fold(checkpoint.replay_from, u64::min);
            first_needed(storage, checkpoint.group, offset)?
        }
        None => 1,
    };
    let keep = critic.is_none().then_some((checkpoints, durable.id));
    let mut given_up: Vec<String> = Vec::new();
    loop {
        let mut state = match &start {
            Some(checkpoint) => checkpoint.clone().into_state(window_rows),
            None => State::new(window_rows),
        };
        if state.origin().is_none() && state.end().id > 0 {
            // Checkpoints of former versions do not say it.
            state = state.with_origin(origin(storage)?);
        }
        state.skip(recorded.iter().chain(&recovered.skipped).cloned().collect());
        state.reach_back(reaches.clone());
        critic.into_iter().for_each(|critic| state.only(critic));
        let replay = Replay { end, given_up: &given_up, keep };
        let failed = replay.run(storage, from, state, &mut recovered, watched)?;
        if failed.is_empty() {
            recovered.state.skip(Vec::new());
            recovered.state.reach_back(Vec::new());
            return Ok(recovered);
        }
        // A learner that fails on its rows would fail on them again: it is learned without them.
        for rows in failed {
            if recovered.skipped.iter().filter(|skipped| skipped.critic == rows.critic).count() < ATTEMPTS {
                recovered.skipped.push(rows);
            } else {
                // This is no single bad batch.
                recovered.skipped.retain(|skipped| skipped.critic != rows.critic);
                given_up.push(rows.critic);
            }
        }
    }
}

/// How the groups behind a checkpoint are applied.
struct Replay<'a> {
    /// The end of the journal.
    end: Mark,
    /// Critics that are not tried again: where they fail they stay halted.
    given_up: &'a [String],
    /// Where checkpoints on the way go, and the number of the last group that is known to be durable.
    keep: Option<(&'a dyn Checkpoints, u64)>,
}

impl Replay<'_> {
    /// Apply the groups from number `from` on to `state`, which becomes the state of `recovered`. Returns the rows on which critics
    /// have failed that are to be tried again, if any did; what is behind them is not applied.
    fn run(
        &self,
        storage: &mut dyn Storage,
        from: u64,
        mut state: State,
        recovered: &mut Recovered,
        watched: Watched<'_>,
    ) -> Result<Vec<SkippedRows>, RecoverError> {
        let (started, end) = (state.end(), self.end);
        let mut failed: Vec<SkippedRows> = Vec::new();
        let mut previous: Option<StoredGroup> = None;
        (recovered.rows_replayed, recovered.groups_read) = (0, 0);
        for_each_group(storage, from, |stored| {
            check_group(&stored, previous.as_ref(), from)?;
            let damaged = |damage| RecoverError::Damaged { group: stored.id, offset: stored.first_offset, damage };
            let group = stored.group().map_err(damaged)?;
            recovered.groups_read += 1;
            let unfit = |why| damaged(Corruption::Unreadable(why));
            if stored.id <= started.id {
                state.refill(&group).map_err(unfit)?;
            } else if failed.is_empty() {
                failed = state.apply(group).map_err(unfit)?.failed;
                // Without new rows it would fail again.
                failed.retain(|rows| rows.from < rows.to && !self.given_up.contains(&rows.critic));
                recovered.rows_replayed += stored.rows;
            }
            match watched(recovered.rows_replayed, end.offset - started.offset) {
                OnTheWay::Continue => {}
                OnTheWay::Checkpoint(unix) if failed.is_empty() => self.checkpoint(&state, unix, recovered),
                OnTheWay::Checkpoint(_) => {}
                OnTheWay::Stop => return Err(RecoverError::Stopped),
            }
            previous = Some(StoredGroup { body: Vec::new(), ..stored });
            Ok::<(), RecoverError>(())
        })?;
        let last = previous.map_or(0, |group| group.id);
        if last != end.id {
            let why = format!("groups {} to {} are missing", last + 1, end.id);
            return Err(RecoverError::Broken { group: end.id, offset: end.offset, why });
        }
        recovered.state = state;
        Ok(failed)
    }

    /// Write a checkpoint of `state`, so that a start that is stopped begins there. It may know no more than what is durable, and
    /// nothing that is still to be recorded.
    fn checkpoint(&self, state: &State, unix: f64, recovered: &mut Recovered) {
        let Some((checkpoints, durable)) = self.keep else { return };
        let known = recovered.checkpoints.first().map_or(0, |checkpoint| checkpoint.group);
        if state.end().id <= known || state.end().id > durable || !recovered.skipped.is_empty() {
            return;
        }
        let checkpoint = Checkpoint::of(state, unix);
        match checkpoints.write(checkpoint.group, &checkpoint.encode()) {
            Ok(()) => {
                recovered.checkpoints.insert(0, KnownCheckpoint::of(&checkpoint));
                recovered.checkpoints.truncate(KEPT);
            }
            Err(e) => recovered.faults.push(format!("no checkpoint could be written on the way: {e}")),
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
    Ok(last.mark())
}

/// The checkpoints of this journal that can be read, newest first, and what is wrong with the others.
pub(super) fn usable_checkpoints(
    storage: &mut dyn Storage,
    checkpoints: &dyn Checkpoints,
    end: Mark,
) -> Result<(Vec<Checkpoint>, Vec<String>), RecoverError> {
    let groups = checkpoints.list().map_err(RecoverError::Checkpoints)?;
    usable_among(storage, checkpoints, groups, end)
}

/// The same of the checkpoints behind these groups alone.
pub(super) fn usable_among(
    storage: &mut dyn Storage,
    checkpoints: &dyn Checkpoints,
    groups: Vec<u64>,
    end: Mark,
) -> Result<(Vec<Checkpoint>, Vec<String>), RecoverError> {
    let (mut found, mut faults) = (Vec::new(), Vec::new());
    for group in groups {
        let read = checkpoints.read(group).map_err(CheckpointError::File).and_then(|bytes| Checkpoint::decode(&bytes));
        match read {
            Ok(checkpoint) if checkpoint.group <= end.id && checkpoint.group != group => {
                faults.push(format!("the checkpoint behind group {group} is one behind another"));
            }
            Ok(checkpoint) => found.push(checkpoint),
            Err(error @ CheckpointError::Newer { .. }) => {
                return Err(RecoverError::CheckpointNewer { checkpoint: group, error });
            }
            // One that was not even finished may be newer than the journal: it says nothing.
            Err(error) => faults.push(format!("the checkpoint behind group {group} cannot be used: {error}")),
        }
    }
    let mut usable = Vec::new();
    for (checkpoint, own) in known_owners(storage, found) {
        let Checkpoint { group, offset, .. } = checkpoint;
        match own? {
            Some(false) => faults.push(foreign(group)),
            _ if group > end.id => {
                return Err(RecoverError::CheckpointAhead { checkpoint: group, offset, journal: end.id });
            }
            _ => usable.push(checkpoint),
        }
    }
    Ok((usable, faults))
}

/// Whether a checkpoint is the journal's own; none if nothing shows it.
pub(super) type Own = Result<Option<bool>, StoreError>;

/// Of each checkpoint whether it is the journal's own. Of one that is ahead of the journal the beginning shows it, which the first group or
/// an own checkpoint says.
pub(super) fn known_owners(storage: &mut dyn Storage, checkpoints: Vec<Checkpoint>) -> Vec<(Checkpoint, Own)> {
    let owner = |checkpoint: Checkpoint| {
        let own = is_own(storage, checkpoint.group, checkpoint.crc);
        (checkpoint, own)
    };
    let mut owners: Vec<(Checkpoint, Own)> = checkpoints.into_iter().map(owner).collect();
    if !owners.iter().any(|(_, own)| matches!(own, Ok(None))) {
        return owners;
    }
    let said = owners.iter().find_map(|(checkpoint, own)| checkpoint.origin.filter(|_| matches!(own, Ok(Some(true)))));
    let Some(origin) = origin(storage).ok().flatten().or(said) else { return owners };
    for (checkpoint, own) in &mut owners {
        if matches!(own, Ok(None)) && checkpoint.origin.is_some_and(|other| other != origin) {
            *own = Ok(Some(false));
        }
    }
    owners
}

/// Where the journal begins, as long as its first group is there.
pub(super) fn origin(storage: &mut dyn Storage) -> Result<Option<Origin>, StoreError> {
    let first = storage.read(1, 1)?.pop().filter(|group| group.id == 1);
    Ok(first.and_then(|group| group.group().ok()).map(|group| Origin { crc: group.end.crc, time: group.time }))
}

/// Whether the journal shows that a checkpoint behind number `group`, which had this checksum, is not its own.
pub(super) fn is_foreign(storage: &mut dyn Storage, group: u64, crc: u32) -> Result<bool, StoreError> {
    Ok(is_own(storage, group, crc)? == Some(false))
}

/// Whether a checkpoint behind number `group`, which had this checksum, is the journal's own. One that ends before that group does
/// not show it.
pub(super) fn is_own(storage: &mut dyn Storage, group: u64, crc: u32) -> Result<Option<bool>, StoreError> {
    // The group may have been forgotten, the ones behind it not.
    Ok(storage.read(group, 1)?.first().and_then(|found| match found.id {
        id if id == group && found.crc == crc => Some(true),
        id if id == group => found.check().is_ok().then_some(false),
        id => Some(id == group + 1 && found.previous_crc == crc),
    }))
}

/// What is wrong with a checkpoint that belongs to another journal.
pub(super) fn foreign(group: u64) -> String {
    format!("{} belongs to another journal: move it out of the data directory", Directory::name(group))
}

/// Number of the first group that a start needs from a checkpoint behind `group` whose rows are replayed from `offset` on. Groups without rows
/// begin at the same offset as those that follow them.
pub(super) fn first_needed(storage: &mut dyn Storage, group: u64, offset: u64) -> Result<u64, StoreError> {
    Ok(group_of(storage, offset)?.min(group + 1))
}

/// Number of the group that holds the row at `offset`, or of the first group there is if that is behind it.
pub(super) fn group_of(storage: &mut dyn Storage, offset: u64) -> Result<u64, StoreError> {
    let Some((mut low, mut high)) = storage.bounds()? else { return Ok(0) };
    // The last group that begins at or before the offset, by halving: numbers have no gaps.
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match storage.headers(middle, 1)?.first() {
            Some(head) if head.first_offset <= offset => low = middle,
            _ => high = middle - 1,
        }
    }
    Ok(low)
}

/// Whether rows of the journal were erased.
pub(super) fn has_holes(storage: &mut dyn Storage) -> Result<bool, StoreError> {
    let mut next = 1;
    loop {
        let heads = storage.headers(next, thresholds().headers)?;
        let Some(last) = heads.last() else { return Ok(false) };
        next = last.id + 1;
        if heads.iter().any(|head| head.kinds & HOLE != 0) {
            return Ok(true);
        }
    }
}

/// Rows that critics leave out, as the groups behind number `behind` record.
pub(super) fn recorded_skips(
    storage: &mut dyn Storage,
    behind: u64,
    keep_going: KeepGoing<'_>,
) -> Result<Vec<SkippedRows>, RecoverError> {
    let mut found = Vec::new();
    for_each_record(storage, behind, SKIPPED, keep_going, &mut |head, record| {
        let Record::Skipped(skipped) = record else { return Ok(()) };
        // A learner can have failed only on what was there.
        if skipped.to > head.first_offset {
            return Err(format!("it leaves out rows up to {}, which come after it", skipped.to));
        }
        found.push(skipped);
        Ok(())
    })?;
    Ok(found)
}

/// Numbers of groups behind number `behind`, each with the offset of a row before it that a critic learns from there on: one that
/// was rebuilt lacks some rows, and one that begins again with new settings learns the last ones at once.
pub(super) fn recorded_reaches(
    storage: &mut dyn Storage,
    behind: u64,
    keep_going: KeepGoing<'_>,
) -> Result<Vec<(u64, u64)>, RecoverError> {
    let mut found = Vec::new();
    for_each_record(storage, behind, REBUILT | CONFIGURED, keep_going, &mut |head, record| {
        match record {
            Record::Rebuilt(learner) => found.push((head.id, learner.replay_from())),
            Record::Configured(configured) => found.push((head.id, configured.from)),
            _ => {}
        }
        Ok(())
    })?;
    Ok(found)
}

/// Note the rows that the groups of a journal take back. Rows that a record takes back are forgotten before it is.
///
/// # Errors
/// If the journal cannot be read. What was found before stays noted.
pub(super) fn recorded_removals(storage: &mut dyn Storage, found: &mut Removals) -> Result<(), RecoverError> {
    let first = storage.bounds()?.map_or(1, |(first, _)| first);
    for_each_record(storage, first - 1, REMOVED, &mut || true, &mut |head, record| {
        if let Record::Removed(removed) = record {
            found.note(&removed, head.first_offset, 0.0);
        }
        Ok(())
    })
}

/// Visit all groups after `behind` with a record of `kinds`; polls `keep_going`.
pub(super) fn for_each_record(
    storage: &mut dyn Storage,
    behind: u64,
    kinds: u32,
    keep_going: KeepGoing<'_>,
    visit: &mut dyn FnMut(&GroupHeader, Record) -> Result<(), String>,
) -> Result<(), RecoverError> {
    let mut next = behind + 1;
    loop {
        let headers = storage.headers(next, thresholds().headers)?;
        let Some(last) = headers.last() else { return Ok(()) };
        next = last.id + 1;
        if !keep_going() {
            return Err(RecoverError::Stopped);
        }
        for head in headers.iter().filter(|head| head.kinds & kinds != 0) {
            if !keep_going() {
                return Err(RecoverError::Stopped);
            }
            for group in storage.read(head.id, 1)? {
                let damaged = |damage| RecoverError::Damaged { group: head.id, offset: head.first_offset, damage };
                let (_, records) = group.decode().map_err(damaged)?;
                for record in records {
                    visit(head, record).map_err(|why| damaged(Corruption::Unreadable(why)))?;
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
