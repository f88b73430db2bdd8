//! What a start with some settings does to the critics of a data directory, known before it does it. Nothing is changed here, and no
//! row is learned.

use super::core::{change, contradiction};
use super::recovery::{KeepGoing, OnTheWay, RecoverError, Watched, check_end, for_each_record, is_foreign};
use crate::config::Config;
use crate::journal::checkpoint::{CheckpointError, Checkpoints, Noted};
use crate::journal::store::Storage;
use crate::journal::thresholds::thresholds;
use crate::journal::{CONFIGURED, ROWS, Record};
use crate::state::goes_on;
use crate::state::record::{Configured, Mark};

/// What becomes of a critic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// Its model is set aside, and it is learned again from the journal: which settings have changed, and how.
    LearnedAgain(String),
    /// It was not there before. It is learned from the journal.
    New,
    /// It is no longer in the settings: its model is set aside.
    Dropped,
}

/// What a start will do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Why it will be refused, if it will be: what the rows contradict.
    pub refusal: Option<String>,
    /// Names of critics that do not simply go on, each with what becomes of it.
    pub critics: Vec<(String, Fate)>,
    /// Rows that the journal retains, and that are learned again.
    pub rows: u64,
}

impl Outlook {
    /// Of a directory with this journal and these checkpoints. A directory in which nothing was recorded has nothing to lose.
    ///
    /// # Errors
    /// If the journal or its checkpoints cannot be used.
    pub fn of(storage: &mut dyn Storage, checkpoints: &dyn Checkpoints, config: &Config) -> Result<Self, RecoverError> {
        Self::of_watched(storage, checkpoints, config, &mut |_, _| OnTheWay::Continue)
    }

    /// The same; `watched` is asked now and then what to do.
    ///
    /// # Errors
    /// The same, and if `watched` stops it.
    pub fn of_watched(
        storage: &mut dyn Storage,
        checkpoints: &dyn Checkpoints,
        config: &Config,
        watched: Watched<'_>,
    ) -> Result<Self, RecoverError> {
        let end = check_end(storage)?;
        let Some((first, _)) = storage.bounds()? else {
            let refusal = config.clone().with_means_of(&[]).err().map(|e| e.to_string());
            return Ok(Self { refusal, ..Self::default() });
        };
        let start = storage.headers(first, 1)?.first().map_or(end.offset, |head| head.first_offset);
        let rows = end.offset - start;
        let mut keep_going = || watched(0, rows) != OnTheWay::Stop;
        // What the newest checkpoint has seen need not be looked through.
        let noted = newest(storage, checkpoints, end)?;
        let behind = noted.as_ref().map_or(first - 1, |noted| noted.group.max(first - 1));
        let (mut known, mut shape) = noted.map(|noted| (noted.configured, noted.shape)).unwrap_or_default();
        if shape.is_none() {
            shape = first_shape(storage, first, &mut keep_going)?;
        }
        for_each_record(storage, behind, CONFIGURED, &mut keep_going, &mut |_, record| {
            if let Record::Configured(configured) = record {
                known = Some(configured);
            }
            Ok(())
        })?;
        let config = match config.clone().with_means_of(known.as_ref().map_or(&[], |known| &known.critics)) {
            Ok(config) => config,
            Err(e) => return Ok(Self { refusal: Some(e.to_string()), rows, ..Self::default() }),
        };
        let refusal = shape.and_then(|shape| contradiction(&config, shape));
        let critics = known.map(|known| fates(&known, &config)).unwrap_or_default();
        Ok(Self { refusal, critics, rows })
    }

    /// Log which models will be set aside, while there is time to stop the daemon.
    pub(super) fn log(&self) {
        for (critic, fate) in &self.critics {
            let what = match fate {
                Fate::LearnedAgain(change) => change,
                Fate::Dropped => "the critic is no longer in the settings",
                Fate::New => continue,
            };
            log::warn!(
                "event=settings_replace_model critic={critic} change={what:?} rows={} hint=\"the journal is read first, then the \
                 old model is set aside; to keep it, stop the daemon now and take the change back\"",
                self.rows
            );
        }
    }
}

/// What the newest checkpoint of this journal that can be read says of settings and rows; none if there is none.
fn newest(storage: &mut dyn Storage, checkpoints: &dyn Checkpoints, end: Mark) -> Result<Option<Noted>, RecoverError> {
    for group in checkpoints.list().map_err(RecoverError::Checkpoints)? {
        let noted = checkpoints.read(group).map_err(CheckpointError::File).and_then(|bytes| Noted::of(&bytes));
        match noted {
            Ok(noted) if noted.group != group || group > end.id || is_foreign(storage, group, noted.crc)? => {}
            Ok(noted) => return Ok(Some(noted)),
            Err(error @ CheckpointError::Newer { .. }) => {
                return Err(RecoverError::CheckpointNewer { checkpoint: group, error });
            }
            _ => {}
        }
    }
    Ok(None)
}

/// Numbers of a state and rewards of a row, of the first rows behind group number `first`; none if there are no rows.
fn first_shape(
    storage: &mut dyn Storage,
    first: u64,
    keep_going: KeepGoing<'_>,
) -> Result<Option<(usize, usize)>, RecoverError> {
    let mut next = first;
    loop {
        let headers = storage.headers(next, thresholds().headers)?;
        let Some(last) = headers.last() else { return Ok(None) };
        next = last.id + 1;
        if !keep_going() {
            return Err(RecoverError::Stopped);
        }
        let Some(head) = headers.iter().find(|head| head.kinds & ROWS != 0) else { continue };
        let damaged = |damage| RecoverError::Damaged { group: head.id, offset: head.first_offset, damage };
        let Some(group) = storage.read(head.id, 1)?.into_iter().next() else { return Ok(None) };
        let (_, records) = group.decode().map_err(damaged)?;
        return Ok(records.iter().find_map(|record| match record {
            Record::Rows(taken) => Some((taken.batch.dim(), taken.batch.rewards_per_row())),
            _ => None,
        }));
    }
}

/// What becomes of the critics that were recorded, and of new ones.
fn fates(known: &Configured, config: &Config) -> Vec<(String, Fate)> {
    let mut fates = Vec::new();
    for old in &known.critics {
        match config.critics.iter().find(|new| new.name == old.name) {
            None => fates.push((old.name.clone(), Fate::Dropped)),
            Some(new) if !goes_on(old, new) => fates.push((old.name.clone(), Fate::LearnedAgain(change(old, new)))),
            Some(_) => {}
        }
    }
    let is_new = |name: &str| known.critics.iter().all(|old| old.name != name);
    let new = config.critics.iter().filter(|critic| is_new(&critic.name));
    fates.extend(new.map(|critic| (critic.name.clone(), Fate::New)));
    fates
}
