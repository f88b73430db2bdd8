//! A state of before, as it was: the newest checkpoint before it, and the groups from there on, applied again. It is bit for bit what the
//! daemon had then, since groups determine it.

use super::recovery::{
    RecoverError, check_end, check_group, first_needed, group_of, has_holes, recorded_reaches, recorded_skips,
    usable_among,
};
use crate::config::Config;
use crate::http::Relearn;
use crate::journal::checkpoint::{Checkpoint, Checkpoints, Directory};
use crate::journal::store::{GroupHeader, SqliteStorage, Storage, StoreError, for_each_group};
use crate::journal::{Corruption, StoredGroup};
use crate::snapshot::Snapshot;
use crate::state::State;
use crate::state::record::Mark;
pub use crate::wire::Moment;
use parking_lot::{Mutex, MutexGuard};
use std::sync::Arc;
use std::time::Duration;

/// Why there is no such state.
#[derive(Debug, thiserror::Error)]
pub enum AsOfError {
    /// The journal cannot be read.
    #[error("{0}")]
    Recover(RecoverError),
    /// Groups that led there are forgotten: the first that can be told of is at this offset.
    #[error("the rows that led there are forgotten; the first moment that works is offset {0}")]
    Forgotten(u64),
    /// Rows that led there were erased.
    #[error("rows that led there were erased: nobody can tell what was answered then")]
    Erased,
    /// It lies before the first row.
    #[error("nothing had been stored by then")]
    Before,
    /// It lies behind the last row; the number of rows stored.
    #[error("it lies ahead: {0} rows are stored so far")]
    Ahead(u64),
}

impl From<RecoverError> for AsOfError {
    fn from(e: RecoverError) -> Self {
        Self::Recover(e)
    }
}

impl From<StoreError> for AsOfError {
    fn from(e: StoreError) -> Self {
        Self::Recover(e.into())
    }
}

/// The state behind the last group that was stored by then; a moment within a group is not one that there was. `progress` is called with
/// the rows that were learned again and those that are to be, and says whether to go on.
///
/// # Errors
/// If it cannot be told any more, or `progress` stops it.
pub fn as_of(
    storage: &mut dyn Storage,
    checkpoints: &dyn Checkpoints,
    window_rows: usize,
    moment: Moment,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<State, AsOfError> {
    let wanted = group_then(storage, moment)?;
    state_behind(storage, checkpoints, window_rows, wanted, progress)
}

/// The model that a critic of `state` had, by its number, with the names of its rewards.
///
/// # Errors
/// Why it had none.
pub fn model_then(state: &State, critic: usize) -> Result<Snapshot, String> {
    let learner = &state.critics()[critic];
    let said = state.configured().and_then(|configured| configured.reward_names.as_deref());
    let reward_names = || Config::reward_names(said.unwrap_or_default(), learner.settings());
    let found = if state.is_halted(critic) {
        Err("had failed by then, and answered as at an earlier moment".to_owned())
    } else if learner.model().is_none() {
        Err("had no model then".to_owned())
    } else {
        learner.snapshot(true).map_err(|e| format!("cannot be told: {e}"))
    };
    let found = found.map(|snapshot| Snapshot { reward_names: reward_names(), ..snapshot });
    found.map_err(|why| format!("critic \"{}\" {why}", learner.settings().name))
}

/// One past is learned again at a time: each takes as much memory as the critics and their window.
static TURN: Mutex<()> = Mutex::new(());
/// How often who waits for its turn is asked whether it is still wanted.
const WAIT: Duration = Duration::from_millis(50);

/// Wait for the turn to learn a past again, which ends when the guard is dropped.
///
/// # Errors
/// `Stopped`, once `keep_going` says so.
pub(super) fn turn(keep_going: &mut dyn FnMut() -> bool) -> Result<MutexGuard<'static, ()>, RecoverError> {
    loop {
        if let Some(turn) = TURN.try_lock_for(WAIT) {
            return Ok(turn);
        }
        if !keep_going() {
            return Err(RecoverError::Stopped);
        }
    }
}

/// How the dashboard learns models of before again.
pub(super) fn relearn(config: &Config) -> Relearn {
    let (directory, window_rows) = (config.data_dir.clone(), config.window_rows);
    Relearn(Arc::new(move |offset, progress| {
        let _turn = turn(&mut || progress(0, 0)).map_err(|e| e.to_string())?;
        let mut storage = SqliteStorage::open_beside(&directory).map_err(|e| e.to_string())?;
        let checkpoints = Directory::new(&directory);
        let state = as_of(&mut storage, &checkpoints, window_rows, Moment::Offset(offset), progress);
        let state = state.map_err(|e| e.to_string())?;
        let names = state.critics().iter().map(|learner| learner.settings().name.clone());
        Ok(names.enumerate().map(|(critic, name)| (name, model_then(&state, critic))).collect())
    }))
}

/// Number of the last group that was stored by then; 0 if the journal has none that was.
pub(super) fn group_then(storage: &mut dyn Storage, moment: Moment) -> Result<u64, AsOfError> {
    let (first, last) = storage.bounds()?.ok_or(AsOfError::Before)?;
    let found = match moment {
        Moment::Offset(offset) => {
            let stored = storage.headers(last, 1)?.first().map_or(0, GroupHeader::end);
            if offset > stored {
                return Err(AsOfError::Ahead(stored));
            }
            group_before(storage, offset)?
        }
        Moment::Time(time) => group_at(storage, (first, last), time)?,
    };
    Ok(found.unwrap_or(0))
}

/// Offset behind the last row that was stored by then.
pub(super) fn end_then(storage: &mut dyn Storage, moment: Moment) -> Result<u64, AsOfError> {
    let group = group_then(storage, moment)?;
    Ok(storage.headers(group, 1)?.first().filter(|head| head.id == group).map_or(0, GroupHeader::end))
}

/// The state behind group number `wanted`; see [`as_of`].
pub(super) fn state_behind(
    storage: &mut dyn Storage,
    checkpoints: &dyn Checkpoints,
    window_rows: usize,
    wanted: u64,
    progress: &mut dyn FnMut(u64, u64) -> bool,
) -> Result<State, AsOfError> {
    let end = check_end(storage)?;
    let (first, _) = storage.bounds()?.ok_or(AsOfError::Before)?;
    let mut groups = checkpoints.list().map_err(RecoverError::Checkpoints)?;
    // One that a daemon writes meanwhile may lie behind `end`.
    groups.retain(|&group| group <= end.id);
    let start = first_usable(storage, checkpoints, groups.iter().copied().filter(|&group| group <= wanted), end)?;
    if start.is_none() && first != 1 {
        let oldest = first_usable(storage, checkpoints, groups.into_iter().rev(), end)?;
        return Err(AsOfError::Forgotten(oldest.map_or(end.offset, |checkpoint| checkpoint.offset)));
    }
    if wanted == 0 {
        return Err(AsOfError::Before);
    }
    // With the rows go the models that were recorded.
    if start.is_none() && has_holes(storage)? {
        return Err(AsOfError::Erased);
    }
    let behind = start.as_ref().map_or(0, |checkpoint| checkpoint.group);
    let skips = recorded_skips(storage, behind, &mut || progress(0, 0))?;
    let mut reaches = recorded_reaches(storage, behind, &mut || progress(0, 0))?;
    reaches.retain(|&(group, _)| group <= wanted);
    let (from, mut state) = match start {
        Some(checkpoint) => {
            let offset = reaches.iter().map(|&(_, offset)| offset).fold(checkpoint.replay_from, u64::min);
            (first_needed(storage, checkpoint.group, offset)?, checkpoint.into_state(window_rows))
        }
        None => (1, State::new(window_rows)),
    };
    state.skip(skips);
    state.reach_back(reaches);
    let rows = storage.headers(wanted, 1)?.first().map_or(0, GroupHeader::end);
    let (started, mut previous) = (state.end(), None::<StoredGroup>);
    let applied = for_each_group(storage, from, |stored| {
        if stored.id > wanted {
            return Err(Stop::There);
        }
        check_group(&stored, previous.as_ref(), from)?;
        let unfit = |why| RecoverError::Damaged {
            group: stored.id,
            offset: stored.first_offset,
            damage: Corruption::Unreadable(why),
        };
        let group = stored.group().map_err(|damage| RecoverError::Damaged {
            group: stored.id,
            offset: stored.first_offset,
            damage,
        })?;
        if stored.id <= started.id {
            state.refill(&group).map_err(unfit)?;
        } else {
            drop(state.apply(group).map_err(unfit)?);
        }
        if !progress(stored.end().saturating_sub(started.offset), rows.saturating_sub(started.offset)) {
            return Err(RecoverError::Stopped.into());
        }
        previous = Some(StoredGroup { body: Vec::new(), ..stored });
        Ok(())
    });
    match applied {
        Ok(()) | Err(Stop::There) => Ok(state),
        // The daemon has dropped meanwhile what it was about to read.
        Err(Stop::Failed(_)) if storage.bounds()?.is_some_and(|(first, _)| first > from) => {
            let groups = checkpoints.list().map_err(RecoverError::Checkpoints)?.into_iter().rev();
            let oldest = first_usable(storage, checkpoints, groups.filter(|&group| group <= end.id), end)?;
            Err(AsOfError::Forgotten(oldest.map_or(end.offset, |checkpoint| checkpoint.offset)))
        }
        Err(Stop::Failed(e)) => Err(e),
    }
}

/// The first of the checkpoints behind these groups that can be used. No two of them are in memory at a time.
fn first_usable(
    storage: &mut dyn Storage,
    checkpoints: &dyn Checkpoints,
    groups: impl Iterator<Item = u64>,
    end: Mark,
) -> Result<Option<Checkpoint>, AsOfError> {
    for group in groups {
        let (usable, _) = usable_among(storage, checkpoints, vec![group], end)?;
        if let Some(checkpoint) = usable.into_iter().next() {
            return Ok(Some(checkpoint));
        }
    }
    Ok(None)
}

/// Why no further group is read.
enum Stop {
    There,
    Failed(AsOfError),
}

impl From<RecoverError> for Stop {
    fn from(e: RecoverError) -> Self {
        Self::Failed(e.into())
    }
}

impl From<StoreError> for Stop {
    fn from(e: StoreError) -> Self {
        Self::Failed(RecoverError::from(e).into())
    }
}

/// Number of the last group that ends at or before an offset.
fn group_before(storage: &mut dyn Storage, offset: u64) -> Result<Option<u64>, AsOfError> {
    // The last that begins there or before; it may end behind.
    let mut group = group_of(storage, offset)?;
    while group > 0 {
        match storage.headers(group, 1)?.first() {
            Some(head) if head.id == group && head.end() <= offset => return Ok(Some(group)),
            Some(head) if head.id == group => group -= 1,
            _ => return Ok(None),
        }
    }
    Ok(None)
}

/// Number of the last group that was stored at or before a time, by halving.
fn group_at(storage: &mut dyn Storage, (first, last): (u64, u64), time: f64) -> Result<Option<u64>, AsOfError> {
    let (mut low, mut high) = (first, last + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let stored = storage.read(middle, 1)?;
        let group = stored.first().filter(|group| group.id == middle).and_then(|group| group.group().ok());
        match group {
            Some(group) if group.time <= time => low = middle + 1,
            _ => high = middle,
        }
    }
    Ok((low > first).then(|| low - 1))
}
