//! The bytes of rows that were taken back, out of the files of a data directory in which no daemon runs.
//!
//! They are in the journal, in models that it recorded before critics were learned again, in checkpoints, in models that were set aside,
//! in messages that were refused, and in what the dashboard keeps. The store never overwrites a page in place, so that the journal is
//! written anew: holes take the place of the rows, and the end of a refit that of each recorded model. Then the new files take the place
//! of the old ones ([`replace`]), and the old ones are deleted. An interruption at any moment is no harm: [`erase`] goes on from there.

use super::archive::{ArchiveError, in_file};
use super::recovery::{RecoverError, check_end, is_foreign, origin};
use super::replace::{self, Moves};
use super::survey::good_groups;
use super::tombstones;
use crate::journal::checkpoint::{Checkpoint, Checkpoints as _, Directory};
use crate::journal::store::{DATABASE, MARK, Mark, SqliteStorage, Storage as _};
use crate::journal::{GroupWriter, Record, StoredGroup};
use crate::learner::LabelPart;
use crate::learner::removal::{Offsets, Selector};
use crate::state::record::{Group, Origin};
use crate::state::removals::{self, Removals};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How directories begin that hold what is about to be deleted.
const ERASING: &str = "erasing-";
/// Directory of the files that are to take the place of the old ones.
const ERASED: &str = "erased.new";

/// What was erased.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Erased {
    /// Rows of which the journal has holes by now.
    pub rows: u64,
    /// Recorded models that are gone.
    pub models: u64,
    /// Streams whose names are.
    pub names: u64,
}

fn damaged(why: impl ToString) -> ArchiveError {
    ArchiveError::Damaged(why.to_string())
}

/// Delete what an erasure has set aside. One that was interrupted before its files were in place is finished first.
///
/// # Errors
/// If files cannot be moved or deleted.
pub fn sweep(directory: &Path) -> io::Result<bool> {
    if replace::pending(directory)?.is_some_and(|plan| plan.aside.starts_with(ERASING)) {
        replace::finish(directory)?;
    }
    if replace::pending(directory)?.is_some() {
        return Ok(false);
    }
    let mut swept = false;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(ERASING) {
            fs::remove_dir_all(entry.path())?;
            swept = true;
        }
    }
    if swept {
        replace::sync(directory)?;
    }
    Ok(swept)
}

/// Erase the rows that were taken back from the data in `directory`, of which the caller has the lock; with `forget_names` also the names
/// of streams, and of their sessions and policies, that lost rows and have none left. `progress` is called with the offset reached and
/// that of the end.
///
/// # Errors
/// If critics have something of these rows yet, the newest checkpoint is not at the end, or files cannot be read or written. All is then
/// as it was, or [`sweep`] goes on.
pub fn erase(directory: &Path, forget_names: bool, progress: &mut dyn FnMut(u64, u64)) -> Result<Erased, ArchiveError> {
    sweep(directory).map_err(in_file(directory))?;
    let mut storage = SqliteStorage::open(directory)?;
    let end = check_end(&mut storage).map_err(damaged)?;
    let mut checkpoint = newest(directory, &mut storage, end)?;
    if checkpoint.removals.is_empty() {
        return Ok(Erased::default());
    }
    if let Some(critic) = influenced(&checkpoint) {
        return Err(ArchiveError::Empty(critic));
    }
    let names = match forget_names {
        true => forget(&mut checkpoint, &mut storage, end)?,
        false => HashMap::new(),
    };
    let removals = &checkpoint.removals;
    if let Some(origin) = checkpoint.origin {
        let listed = tombstones::listed(directory, origin, &mut storage).map_err(in_file(directory))?;
        tombstones::note(directory, origin, removals, &listed).map_err(in_file(directory))?;
    }
    let part = replace::stage(directory, ERASED).map_err(in_file(directory))?;
    let (erased, crc, origin) = copy(&mut storage, &part, (removals, &names), end, progress)?;
    checkpoint.removals.note_erasure();
    let kept = Checkpoint { crc, origin: origin.or(checkpoint.origin), ..checkpoint };
    Directory::new(&part).write(kept.group, &kept.encode()).map_err(in_file(&part))?;
    drop(fs::remove_file(part.join(format!("{DATABASE}-shm"))));
    replace::sync(&part).map_err(in_file(&part))?;
    drop(storage);
    let plan = Moves {
        aside: format!("{ERASING}{}", end.id),
        set_aside: entries(directory).map_err(in_file(directory))?,
        fresh: Some(ERASED.to_owned()),
        installing: false,
    };
    replace::carry_out(directory, &plan).map_err(in_file(directory))?;
    sweep(directory).map_err(in_file(directory))?;
    Ok(erased)
}

/// The checkpoint at the end of the journal.
fn newest(directory: &Path, storage: &mut SqliteStorage, end: Mark) -> Result<Checkpoint, ArchiveError> {
    let read = Directory::new(directory).read(end.id).ok().and_then(|bytes| Checkpoint::decode(&bytes).ok());
    match read.filter(|checkpoint| checkpoint.group == end.id) {
        Some(checkpoint) if !is_foreign(storage, checkpoint.group, checkpoint.crc)? => Ok(checkpoint),
        _ => Err(ArchiveError::Empty("there is no checkpoint at the end of the journal: start the daemon and stop it")),
    }
}

/// Why rows cannot be erased yet, if a critic has something of them.
fn influenced(checkpoint: &Checkpoint) -> Option<&'static str> {
    if !checkpoint.halted.is_empty() {
        return Some(
            "a critic has failed, and may have something of the rows: let `criticd rebuild` learn it again, or take it out of the settings",
        );
    }
    let owes = checkpoint.learners.iter().any(|learner| !learner.residue().offsets().is_empty());
    let told = checkpoint.removals.told().iter().flat_map(|removal| &removal.critics);
    let known = |name: &str| checkpoint.learners.iter().any(|learner| learner.settings().name == name);
    let waits = told.clone().any(|critic| critic.free.is_none() && known(&critic.critic));
    (owes || waits)
        .then_some("a critic has something of the rows yet: start the daemon and wait until it has been learned again")
}

/// Write the journal anew into `part`. Returns what is missing there, the checksum of the last group, and where it begins.
fn copy(
    storage: &mut SqliteStorage,
    part: &Path,
    (removals, names): (&Removals, &HashMap<String, String>),
    end: Mark,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<(Erased, u32, Option<Origin>), ArchiveError> {
    let (first, _) = storage.bounds()?.ok_or(ArchiveError::Empty("the journal is empty"))?;
    let mut fresh = SqliteStorage::open(part)?;
    let mut erased = Erased { names: names.len() as u64, ..Erased::default() };
    let (mut last, mut failed) = (None::<Mark>, None);
    let read: Result<(), RecoverError> = good_groups(storage, first, |stored, time, records| {
        let group = Group { end: stored.mark(), first_offset: stored.first_offset, time, records };
        let previous = last.map_or(stored.previous_crc, |mark| mark.crc);
        let written = without(stored, group, (removals, names), previous, &mut erased);
        failed = fresh.append(&written, 0, false).err();
        last = Some(written.mark());
        progress(stored.end(), end.offset);
        failed.is_none()
    });
    if let Some(e) = failed {
        return Err(e.into());
    }
    read.map_err(damaged)?;
    let last = last.filter(|last| last.id == end.id).ok_or_else(|| damaged("the journal ends before its end"))?;
    fresh.sync()?;
    fresh.set_mark(last)?;
    fresh.reopen()?;
    Ok((erased, last.crc, origin(&mut fresh)?))
}

/// Forget in the checkpoint the names of streams that lost rows and have none left. Returns the names that they have now.
fn forget(
    checkpoint: &mut Checkpoint,
    storage: &mut SqliteStorage,
    end: Mark,
) -> Result<HashMap<String, String>, ArchiveError> {
    let (first, _) = storage.bounds()?.ok_or(ArchiveError::Empty("the journal is empty"))?;
    let (mut lost, mut kept, mut asked) = (BTreeSet::new(), HashSet::new(), HashSet::new());
    let read = good_groups(storage, first, |stored, _, records| {
        let group = Group { end: stored.mark(), first_offset: stored.first_offset, time: 0.0, records };
        for record in checkpoint.removals.clean(group).records {
            match record {
                Record::Removed(removed) => {
                    lost.extend(removed.streams);
                    asked.extend(removed.selectors.into_iter().filter_map(|selector| match selector {
                        Selector::Stream(name) => Some(name),
                        _ => None,
                    }));
                }
                Record::Rows(taken) => drop(kept.insert(taken.stream)),
                _ => {}
            }
        }
        stored.id < end.id
    });
    read.map_err(damaged)?;
    let mut names = HashMap::new();
    // Where retention has dropped rows it may have dropped the others of a stream.
    let is_whole = |name: &str| first == 1 || asked.contains(name);
    for number in lost.into_iter().filter(|number| !kept.contains(number)) {
        if !checkpoint.streams.name(number).is_some_and(is_whole) {
            continue;
        }
        if let Some(former) = checkpoint.streams.forget_name(number) {
            names.insert(former, checkpoint.streams.name(number).unwrap_or_default().to_owned());
        }
    }
    if !names.is_empty() {
        checkpoint.removals.forget_names(&names);
    }
    Ok(names)
}

/// A group without rows that were taken back, without models and without these names, behind one with this checksum.
fn without(
    stored: &StoredGroup,
    group: Group,
    (removals, names): (&Removals, &HashMap<String, String>),
    previous: u32,
    erased: &mut Erased,
) -> StoredGroup {
    let rows = |group: &Group| {
        let of = |record: &Record| if let Record::Rows(taken) = record { taken.batch.len() as u64 } else { 0 };
        group.records.iter().map(of).sum::<u64>()
    };
    let before = rows(&group);
    let mut group = removals.clean(group);
    let gone = before - rows(&group);
    let mut changed = gone > 0;
    erased.rows += gone;
    for record in &mut group.records {
        let critic = match record {
            Record::Adopted { critic, .. } => critic.clone(),
            Record::Rebuilt(learner) => learner.settings().name.clone(),
            Record::Removed(removed) if !names.is_empty() => {
                removals::forget_names(names, &mut removed.selectors);
                (removed.by, removed.reason, changed) = (None, None, true);
                continue;
            }
            Record::Heads(change) => {
                changed |= change.labels.as_mut().is_some_and(|labels| unlabel(labels, removals.offsets()));
                continue;
            }
            _ => continue,
        };
        *record = Record::RefitEnded { critic };
        (erased.models, changed) = (erased.models + 1, true);
    }
    match changed {
        true => GroupWriter::of(&group).finish(stored.id, stored.first_offset, previous, group.time),
        false => StoredGroup { previous_crc: previous, ..stored.clone() }.sealed(),
    }
}

/// Take the labels of rows out. Whether there were some.
fn unlabel(labels: &mut LabelPart, removed: &Offsets) -> bool {
    let kept: Vec<bool> = labels.offsets.iter().map(|&offset| !removed.contains(offset)).collect();
    let mut of_values = kept.iter();
    labels.values.retain(|_| of_values.next().is_some_and(|&kept| kept));
    let mut of_offsets = kept.iter();
    labels.offsets.retain(|_| of_offsets.next().is_some_and(|&kept| kept));
    kept.contains(&false)
}

/// The entries of a data directory that hold rows, or what was made of them.
fn entries(directory: &Path) -> io::Result<Vec<String>> {
    const WHOLE: [&str; 4] = ["set-aside", "history", "history.models", "history.new"];
    const BEGINNINGS: [&str; 3] = ["checkpoint-", "quarantine.sqlite", DATABASE];
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let holds = WHOLE.contains(&name.as_str()) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning));
        if holds || name.starts_with(MARK) {
            found.push(name);
        }
    }
    Ok(found)
}

/// Directories beside the data that were set aside by hand or by a repair: they hold rows, too.
pub fn others(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    let kept = |name: &str| ["before-", "damaged-"].iter().any(|beginning| name.starts_with(beginning));
    entries.flatten().filter(|entry| kept(&entry.file_name().to_string_lossy())).map(|entry| entry.path()).collect()
}
