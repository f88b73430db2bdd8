//! What is in a data directory, without a daemon: for `criticd inspect`, and for `criticd repair`, which cuts the journal where
//! it is still good.

use super::recovery::{RecoverError, check_end, check_group, same_journal, usable_checkpoints};
use crate::journal::checkpoint::{Checkpoint, Checkpoints, Directory};
use crate::journal::store::{DATABASE, MARK, Mark, SqliteStorage, Storage, StoreError};
use crate::journal::{ADOPTED, SKIPPED, StoredGroup};
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// What is in a data directory.
#[derive(Clone, Debug, PartialEq)]
pub struct Survey {
    /// Good groups, from the oldest on.
    pub groups: u64,
    /// Offsets of the first row in them, and behind the last.
    pub offsets: (u64, u64),
    /// Bytes of their records.
    pub bytes: u64,
    /// Unix seconds of the oldest and the newest of them; none if there are none.
    pub times: Option<(f64, f64)>,
    /// Models adopted in them.
    pub adopted: u64,
    /// Groups of them that record rows left out by a learner.
    pub skipped: u64,
    /// How far the journal is known to have been durable; none if nothing says so.
    pub known: Option<Mark>,
    /// The last good group.
    pub end: Mark,
    /// The checkpoints, newest first.
    pub checkpoints: Vec<CheckpointFound>,
    /// Why a daemon would not start here; none if it would.
    pub fault: Option<String>,
}

impl Survey {
    /// Acknowledged rows that would be lost if the journal were cut behind its last good group, as far as anybody knows.
    pub fn rows_lost(&self) -> u64 {
        let seen = self.checkpoints.iter().map(|checkpoint| checkpoint.offset).max();
        let known = self.known.map_or(0, |known| known.offset).max(seen.unwrap_or(0));
        known.saturating_sub(self.end.offset)
    }
}

/// A checkpoint of a data directory.
#[derive(Clone, Debug, PartialEq)]
pub struct CheckpointFound {
    /// Number of the last group that it has seen.
    pub group: u64,
    /// Offset behind it; 0 if it cannot be read.
    pub offset: u64,
    /// Bytes of its file.
    pub bytes: u64,
    /// What is wrong with it.
    pub fault: Option<String>,
}

/// Whether a daemon has kept anything in `directory`.
pub fn holds_journal(directory: &Path) -> bool {
    directory.join(DATABASE).exists() || Directory::new(directory).list().is_ok_and(|list| !list.is_empty())
}

/// Look at everything in `directory`, which no daemon may be using.
///
/// # Errors
/// If there is no journal, or it cannot be opened at all.
pub fn survey(directory: &Path) -> Result<Survey, StoreError> {
    let path = directory.join(DATABASE);
    let checkpoints = Directory::new(directory);
    if !holds_journal(directory) {
        let source = io::Error::new(io::ErrorKind::NotFound, "there is no journal here");
        return Err(StoreError::File { path, source });
    }
    let mut storage = SqliteStorage::open(directory)?;
    let known = storage.mark().unwrap_or(None);
    let found = checkpoints.list().unwrap_or_default().into_iter().map(|group| look_at(&checkpoints, group));
    let mut survey = Survey {
        groups: 0,
        offsets: (0, 0),
        bytes: 0,
        times: None,
        adopted: 0,
        skipped: 0,
        known,
        end: Mark::default(),
        checkpoints: found.collect(),
        fault: None,
    };
    let groups = good_groups(&mut storage, |group| {
        let time = group.decode().map_or(0.0, |(time, _)| time);
        survey.times = Some((survey.times.map_or(time, |(first, _)| first), time));
        if survey.groups == 0 {
            survey.offsets.0 = group.first_offset;
        }
        survey.groups += 1;
        survey.offsets.1 = group.end();
        survey.bytes += group.body.len() as u64;
        survey.adopted += u64::from(group.kinds & ADOPTED != 0);
        survey.skipped += u64::from(group.kinds & SKIPPED != 0);
        survey.end = Mark { id: group.id, offset: group.end(), crc: group.crc };
        Ok(())
    });
    let verdict = groups.and_then(|()| {
        let end = check_end(&mut storage)?;
        let (usable, faults) = usable_checkpoints(&checkpoints, end)?;
        match (usable.first(), storage.bounds()?) {
            (Some(newest), _) => same_journal(&mut storage, newest),
            (None, Some((first, _))) if first != 1 => Err(RecoverError::NoCheckpoint { first, faults }),
            _ => Ok(()),
        }
    });
    survey.fault = verdict.err().map(|e| e.to_string());
    Ok(survey)
}

fn look_at(checkpoints: &Directory, group: u64) -> CheckpointFound {
    let bytes = checkpoints.read(group);
    let length = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
    let read = bytes.map_err(|e| e.to_string()).and_then(|b| Checkpoint::decode(&b).map_err(|e| e.to_string()));
    match read {
        Ok(checkpoint) => CheckpointFound { group, offset: checkpoint.offset, bytes: length, fault: None },
        Err(fault) => CheckpointFound { group, offset: 0, bytes: length, fault: Some(fault) },
    }
}

/// Visit the groups from the oldest on, as long as each is whole and follows on the one before.
fn good_groups(
    storage: &mut dyn Storage,
    mut visit: impl FnMut(&StoredGroup) -> Result<(), StoreError>,
) -> Result<(), RecoverError> {
    /// Bytes that are held at a time.
    const PIECE: u64 = 4 << 20;
    let Some((first, _)) = storage.bounds()? else { return Ok(()) };
    let mut previous: Option<StoredGroup> = None;
    loop {
        let next = previous.as_ref().map_or(first, |group| group.id + 1);
        // Where the database itself is damaged the groups before that can still be read one by one.
        let groups = storage.read(next, PIECE).or_else(|_| storage.read(next, 1))?;
        if groups.is_empty() {
            return Ok(());
        }
        for group in groups {
            check_group(&group, previous.as_ref(), first)?;
            let (id, offset) = (group.id, group.first_offset);
            group.decode().map_err(|damage| RecoverError::Damaged { group: id, offset, damage })?;
            visit(&group)?;
            previous = Some(StoredGroup { body: Vec::new(), ..group });
        }
    }
}

/// Cut the journal behind its last good group, after `survey` has found where that is. What was there before goes to a
/// directory of its own, whose path is returned: nothing is deleted.
///
/// # Errors
/// If files cannot be written or moved. The old journal is then still where it was, or in that directory.
pub fn truncate(directory: &Path, survey: &Survey, unix: u64) -> Result<PathBuf, StoreError> {
    let in_file = |path: &Path| {
        let path = path.to_owned();
        move |source| StoreError::File { path, source }
    };
    let fresh = directory.join("repaired.new");
    if fresh.exists() {
        fs::remove_dir_all(&fresh).map_err(in_file(&fresh))?;
    }
    fs::create_dir(&fresh).map_err(in_file(&fresh))?;
    {
        let mut old = SqliteStorage::open(directory)?;
        let mut new = SqliteStorage::open(&fresh)?;
        // It ends where the survey found an end, with that error or without one.
        let copied = good_groups(&mut old, |group| new.append(group, 0, false));
        if let Err(RecoverError::Store(e @ StoreError::File { .. })) = copied {
            return Err(e);
        }
        new.sync()?;
        let end = new.bounds()?.map_or(0, |(_, last)| last);
        if end != survey.end.id {
            return Err(StoreError::IncompleteCopy);
        }
        new.set_mark(survey.end)?;
        new.reopen()?;
    }
    let aside = directory.join(format!("damaged-{unix}"));
    fs::create_dir(&aside).map_err(in_file(&aside))?;
    let set_aside = |name: &str| match fs::rename(directory.join(name), aside.join(name)) {
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(in_file(&directory.join(name))(e)),
        _ => Ok(()),
    };
    let log = format!("{DATABASE}-wal");
    for name in [DATABASE, &log, MARK] {
        set_aside(name)?;
    }
    let checkpoints = Directory::new(directory);
    for checkpoint in survey.checkpoints.iter().filter(|c| c.group > survey.end.id || c.fault.is_some()) {
        let file = checkpoints.file(checkpoint.group);
        set_aside(file.file_name().and_then(|name| name.to_str()).unwrap_or_default())?;
    }
    for name in [DATABASE, &log, MARK] {
        match fs::rename(fresh.join(name), directory.join(name)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(in_file(&fresh.join(name))(e)),
            _ => {}
        }
    }
    fs::remove_dir_all(&fresh).map_err(in_file(&fresh))?;
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(in_file(directory))?;
    Ok(aside)
}
