//! What is in a data directory, without a daemon: for `criticd inspect`, and for `criticd repair`, which mends it.

use super::recovery::{RecoverError, check_end, check_group, foreign, known_owners, usable_checkpoints};
use super::replace::{self, Moves};
use super::tombstones::TOMBSTONES;
use crate::journal::checkpoint::{Checkpoint, Checkpoints, Directory};
use crate::journal::store::{DATABASE, MARK, Mark, SqliteStorage, Storage, StoreError};
use crate::journal::thresholds::thresholds;
use crate::journal::{ADOPTED, GroupWriter, Record, SKIPPED, StoredGroup};
use std::fs;
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
    /// Whether a newer version of the program wrote what cannot be read, which then is no damage.
    pub newer: bool,
    /// Number of the group that is damaged or does not follow on the one before, if that is the fault.
    pub damaged: Option<u64>,
    /// Whether the journal has forgotten its beginning, and no checkpoint can be used.
    pub headless: bool,
}

impl Survey {
    /// Acknowledged rows that would be lost if the journal were cut behind its last good group, as far as anybody knows.
    pub fn rows_lost(&self) -> u64 {
        self.rows_known().saturating_sub(self.end.offset)
    }

    /// Acknowledged rows, as far as anybody knows.
    pub fn rows_known(&self) -> u64 {
        let seen = self.checkpoints.iter().map(|checkpoint| checkpoint.offset).max();
        self.known.map_or(0, |known| known.offset).max(seen.unwrap_or(0)).max(self.end.offset)
    }

    /// The newest checkpoint that can be read, of those that the journal shows to be its own if there are any.
    pub fn newest_checkpoint(&self) -> Option<&CheckpointFound> {
        let sound = || self.checkpoints.iter().filter(|checkpoint| checkpoint.fault.is_none());
        sound().find(|checkpoint| checkpoint.proven).or_else(|| sound().next())
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
    /// Whether the journal shows that it is its own.
    pub proven: bool,
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
    let mut survey = Survey {
        groups: 0,
        offsets: (0, 0),
        bytes: 0,
        times: None,
        adopted: 0,
        skipped: 0,
        known,
        end: Mark::default(),
        checkpoints: look_at_all(&mut storage, &checkpoints),
        fault: None,
        newer: false,
        damaged: None,
        headless: false,
    };
    let groups = good_groups(&mut storage, 0, |group, time, _| {
        survey.times = Some((survey.times.map_or(time, |(first, _)| first), time));
        if survey.groups == 0 {
            survey.offsets.0 = group.first_offset;
        }
        survey.groups += 1;
        survey.offsets.1 = group.end();
        survey.bytes += group.body.len() as u64;
        survey.adopted += u64::from(group.kinds & ADOPTED != 0);
        survey.skipped += u64::from(group.kinds & SKIPPED != 0);
        survey.end = group.mark();
        true
    });
    let verdict = groups.and_then(|()| {
        let end = check_end(&mut storage)?;
        let (usable, faults) = usable_checkpoints(&mut storage, &checkpoints, end)?;
        match storage.bounds()? {
            Some((first, _)) if usable.is_empty() && first != 1 => Err(RecoverError::NoCheckpoint { first, faults }),
            _ => Ok(()),
        }
    });
    let fault = verdict.err();
    survey.headless = matches!(fault, Some(RecoverError::NoCheckpoint { .. }));
    survey.newer = fault.as_ref().is_some_and(RecoverError::is_newer);
    survey.damaged = match fault {
        _ if survey.newer => None,
        Some(RecoverError::Damaged { group, .. } | RecoverError::Broken { group, .. }) => Some(group),
        _ => None,
    };
    survey.fault = fault.map(|e| e.to_string());
    Ok(survey)
}

fn look_at_all(storage: &mut dyn Storage, checkpoints: &Directory) -> Vec<CheckpointFound> {
    let (mut found, mut read) = (Vec::new(), Vec::new());
    for group in checkpoints.list().unwrap_or_default() {
        let bytes = checkpoints.read(group);
        let length = bytes.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let decoded = bytes.map_err(|e| e.to_string()).and_then(|b| Checkpoint::decode(&b).map_err(|e| e.to_string()));
        let (offset, fault) = match &decoded {
            Ok(checkpoint) => (checkpoint.offset, None),
            Err(why) => (0, Some(why.clone())),
        };
        found.push(CheckpointFound { group, offset, bytes: length, fault, proven: false });
        read.extend(decoded);
    }
    let mut owners = known_owners(storage, read).into_iter();
    for found in found.iter_mut().filter(|found| found.fault.is_none()) {
        // A journal that cannot be read there does not show whose it is.
        match owners.next().and_then(|(_, own)| own.unwrap_or(None)) {
            Some(false) => (found.offset, found.fault) = (0, Some(foreign(found.group))),
            own => found.proven = own.is_some(),
        }
    }
    found
}

/// Visit the groups from number `from` on, or from the oldest if that is forgotten, with their times and records, as long as each
/// is whole and follows on the one before. It ends where `visit` returns false.
pub(super) fn good_groups(
    storage: &mut dyn Storage,
    from: u64,
    mut visit: impl FnMut(&StoredGroup, f64, Vec<Record>) -> bool,
) -> Result<(), RecoverError> {
    let mut previous: Option<StoredGroup> = None;
    loop {
        let next = previous.as_ref().map_or(from, |group| group.id + 1);
        // Where the database itself is damaged the groups before that can still be read one by one.
        let groups = storage.read(next, thresholds().piece_bytes).or_else(|_| storage.read(next, 1))?;
        if groups.is_empty() {
            return Ok(());
        }
        for group in groups {
            check_group(&group, previous.as_ref(), group.id)?;
            let (id, offset) = (group.id, group.first_offset);
            let damaged = |damage| RecoverError::Damaged { group: id, offset, damage };
            let (time, records) = group.decode().map_err(damaged)?;
            if !visit(&group, time, records) {
                return Ok(());
            }
            previous = Some(StoredGroup { body: Vec::new(), ..group });
        }
    }
}

/// How a directory in which no daemon starts is mended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mend {
    /// Keep the groups up to the last good one, and the checkpoints that have seen no more.
    Cut,
    /// Leave this group out with those before it: a checkpoint has seen them, and has all that was learned from them.
    Skip(u64),
    /// Go on from the newest checkpoint that can be read, without the rows of the journal.
    FromCheckpoint,
}

impl Survey {
    /// The checkpoint that has seen group `group`, and can be read.
    pub fn checkpoint_behind(&self, group: u64) -> Option<&CheckpointFound> {
        self.newest_checkpoint().filter(|checkpoint| checkpoint.group >= group)
    }
}

/// Mend a directory after `survey` has found what is wrong. What was there goes to a directory of its own, whose path is
/// returned: nothing is deleted. An interruption is finished by [`replace::finish`].
///
/// # Errors
/// If this way is not open, or files cannot be written or moved. The old files are then still where they were, or in that
/// directory.
pub fn mend(directory: &Path, survey: &Survey, how: Mend, unix: u64) -> Result<PathBuf, StoreError> {
    let in_file = |path: &Path| {
        let path = path.to_owned();
        move |source| StoreError::File { path, source }
    };
    let fresh = replace::stage(directory, replace::REPAIRED).map_err(in_file(directory))?;
    make_anew(directory, &fresh, survey, how, unix).inspect_err(|_| drop(fs::remove_dir_all(&fresh)))?;
    replace::sync(&fresh).map_err(in_file(&fresh))?;
    let useless = |checkpoint: &&CheckpointFound| match how {
        Mend::Cut => checkpoint.group > survey.end.id || checkpoint.fault.is_some(),
        Mend::Skip(group) => checkpoint.group < group || checkpoint.fault.is_some(),
        Mend::FromCheckpoint => survey.newest_checkpoint() != Some(*checkpoint),
    };
    let names = [DATABASE.to_owned(), format!("{DATABASE}-wal"), format!("{DATABASE}-shm"), MARK.to_owned()];
    let useless = survey.checkpoints.iter().filter(useless);
    let plan = Moves {
        aside: free_name(directory, &format!("damaged-{unix}")),
        set_aside: names.into_iter().chain(useless.map(|found| Directory::name(found.group))).collect(),
        fresh: Some(replace::REPAIRED.to_owned()),
        installing: false,
    };
    replace::carry_out(directory, &plan).map_err(in_file(directory))
}

/// Make the journal that takes the place of the damaged one, in the directory `fresh`.
fn make_anew(directory: &Path, fresh: &Path, survey: &Survey, how: Mend, unix: u64) -> Result<(), StoreError> {
    let mut new = SqliteStorage::open(fresh)?;
    let end = match how {
        Mend::Cut => copy_groups(directory, &mut new, 0)?,
        Mend::Skip(group) => copy_groups(directory, &mut new, group + 1)?,
        Mend::FromCheckpoint => begin_behind(directory, survey, &mut new, unix)?,
    };
    let complete = match how {
        Mend::Cut => end == survey.end,
        Mend::Skip(group) => survey.checkpoint_behind(group).is_some_and(|checkpoint| checkpoint.group <= end.id),
        Mend::FromCheckpoint => true,
    };
    if !complete {
        return Err(StoreError::IncompleteCopy);
    }
    new.sync()?;
    if end != Mark::default() {
        new.set_mark(end)?;
    }
    new.reopen()?;
    drop(new);
    drop(fs::remove_file(fresh.join(format!("{DATABASE}-shm"))));
    Ok(())
}

/// `name`, or with a number behind it if that is taken.
fn free_name(directory: &Path, name: &str) -> String {
    let taken = |name: &String| directory.join(name).exists();
    let numbered = (2..).map(|k: u32| format!("{name}-{k}"));
    std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken(name)).expect("there are enough numbers")
}

/// Copy the good groups from number `from` on. Returns where they end.
fn copy_groups(directory: &Path, new: &mut SqliteStorage, from: u64) -> Result<Mark, StoreError> {
    let mut old = SqliteStorage::open(directory)?;
    let (mut end, mut failed) = (Mark::default(), None);
    // It ends where the survey found an end, with that error or without one.
    let copied = good_groups(&mut old, from, |group, _, _| {
        failed = new.append(group, 0, false).err();
        end = group.mark();
        failed.is_none()
    });
    match (failed, copied) {
        (Some(e), _) | (None, Err(RecoverError::Store(e @ StoreError::File { .. }))) => Err(e),
        _ => Ok(end),
    }
}

/// A journal of one group without records, which follows on the newest checkpoint.
fn begin_behind(directory: &Path, survey: &Survey, new: &mut SqliteStorage, unix: u64) -> Result<Mark, StoreError> {
    let found = survey.newest_checkpoint().ok_or(StoreError::IncompleteCopy)?;
    let path = Directory::new(directory).file(found.group);
    let bytes = fs::read(&path).map_err(|source| StoreError::File { path: path.clone(), source })?;
    let Ok(Checkpoint { group, crc, offset, .. }) = Checkpoint::decode(&bytes) else {
        return Err(StoreError::IncompleteCopy);
    };
    let first = GroupWriter::default().finish(group + 1, offset, crc, unix as f64);
    new.append(&first, 0, false)?;
    Ok(first.mark())
}

/// Move everything that a daemon keeps in `directory` into a directory of its own beside it, whose path is returned. Directories,
/// among them the ones made by earlier calls, stay.
///
/// # Errors
/// If something cannot be moved; [`replace::finish`] goes on with it.
pub fn set_aside(directory: &Path, name: &str) -> io::Result<PathBuf> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let stays = [replace::PLAN, "lock", TOMBSTONES].iter().any(|name| entry.file_name() == *name)
            || entry.file_type()?.is_dir();
        if !stays {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    let plan = Moves { aside: free_name(directory, name), set_aside: names, fresh: None, installing: false };
    replace::carry_out(directory, &plan)
}
