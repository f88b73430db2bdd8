//! What leaves a data directory and comes back: its rows, and a copy of all that a daemon needs to continue.
//!
//! Groups are read beside a running daemon, a few at a time, so that no append waits for a reader. Each group is checked
//! before it is used, also in a backup.

use super::recovery::{RecoverError, for_each_record, group_of, known_owners, recorded_removals};
use super::replace::{self, Moves};
use super::survey::{Survey, good_groups, survey};
use super::tombstones::{TOMBSTONES, Tombstones};
use crate::journal::checkpoint::{Checkpoint, Checkpoints as _, Directory};
use crate::journal::store::{DATABASE, GroupHeader, Mark, SqliteStorage, Storage as _, StoreError, read_mark};
use crate::journal::{CONFIGURED, Group, Record, TakenRows};
use crate::learner::Settings;
use crate::state::removals::Removals;
use crate::table::{Placed, RowColumns, RowWriter, TableError};
use crate::transition::Rows;
use crate::whole_file;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// File of a backup that says what is in it.
pub const MANIFEST: &str = "backup.json";
/// The table that was learned first, so that it is not learned again.
const WARM_START: &str = "warm-start.json";
/// Times that a backup begins again because the daemon has dropped what it was about to copy.
const ATTEMPTS: usize = 5;

/// Why rows or a directory could not be copied.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The journal cannot be read, or the copy not be written.
    #[error("{0}")]
    Store(StoreError),
    /// The table cannot be written.
    #[error("{0}")]
    Table(TableError),
    /// Rows that do not fit into one table.
    #[error("{0}")]
    Columns(String),
    /// A file cannot be read or written.
    #[error("{path}: {error}")]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// What is to be copied is damaged.
    #[error("{0}")]
    Damaged(String),
    /// There is something already where the copy is to go.
    #[error("{0} is there already, and is not empty; choose another directory")]
    Occupied(PathBuf),
    /// There is nothing to copy.
    #[error("{0}")]
    Empty(&'static str),
}

impl From<StoreError> for ArchiveError {
    fn from(e: StoreError) -> Self {
        Self::Store(e)
    }
}

impl From<TableError> for ArchiveError {
    fn from(e: TableError) -> Self {
        Self::Table(e)
    }
}

pub(super) fn in_file(path: &Path) -> impl Fn(io::Error) -> ArchiveError + use<> {
    let path = path.to_owned();
    move |error| ArchiveError::File { path: path.clone(), error }
}

/// Which rows are taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenRows {
    /// Of streams with these names; empty: of all.
    pub streams: Vec<String>,
    /// From this offset on.
    pub from: u64,
    /// Before this offset.
    pub to: u64,
}

impl ChosenRows {
    /// The rows of `taken` that are wanted, the first of which has offset `offset`.
    fn of(&self, taken: &TakenRows, offset: u64) -> std::ops::Range<usize> {
        let rows = taken.batch.len();
        if !self.streams.is_empty() && !self.streams.iter().any(|name| name == taken.batch.stream()) {
            return 0..0;
        }
        let within = |bound: u64| usize::try_from(bound.saturating_sub(offset)).unwrap_or(usize::MAX).min(rows);
        let range = within(self.from)..within(self.to);
        if range.is_empty() { 0..0 } else { range }
    }
}

/// What was written of a journal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Exported {
    /// Rows in the table.
    pub rows: u64,
    /// Offsets of the first row of the journal, and behind the last one that can be read.
    pub journal: (u64, u64),
    /// Why what lies behind that could not be read; none if everything was.
    pub fault: Option<String>,
    /// Acknowledged rows behind the last one that can be read, as far as known.
    pub missing: u64,
}

/// Write the rows of the journal in `directory` into a table. A damaged journal is read up to its damage, unless
/// `chosen.from` lies behind it. `progress` is called with the offset reached and the end's offset.
///
/// # Errors
/// If there is no journal, no chosen row, or the table cannot be written.
pub fn export(
    directory: &Path,
    chosen: &ChosenRows,
    out: &Path,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Exported, ArchiveError> {
    let known = read_mark(directory).unwrap_or(None).unwrap_or_default();
    let mut storage = SqliteStorage::open_beside(directory)?;
    let Some((first, last)) = storage.bounds()? else { return Err(ArchiveError::Empty("the journal has no rows")) };
    let from = if chosen.from == 0 { first } else { group_of(&mut storage, chosen.from)? };
    let (mut columns, mut exported, mut wrong) = (RowColumns::default(), Exported::default(), None);
    let (mut groups, mut end) = (None, 0);
    let read = visit(&mut storage, from, last, &mut end, &mut |id, offset, _, taken| {
        let (first, _) = groups.get_or_insert((id, id));
        groups = Some((*first, id));
        if exported.journal.1 == 0 {
            exported.journal = (offset, offset);
        }
        exported.journal.1 = offset + taken.batch.len() as u64;
        if !chosen.of(taken, offset).is_empty() {
            wrong = columns.include(&taken.batch).err();
        }
        progress(exported.journal.1 / 2, known.offset.max(exported.journal.1));
        wrong.is_none() && exported.journal.1 < chosen.to
    });
    if let Some(why) = wrong {
        return Err(ArchiveError::Columns(why));
    }
    exported.fault = read.err().map(|e| e.to_string());
    exported.journal.1 = exported.journal.1.max(end);
    exported.missing = known.offset.min(chosen.to).saturating_sub(exported.journal.1);
    if exported.fault.is_none() && exported.missing > 0 {
        exported.fault = Some("the journal ends before rows that were acknowledged".to_owned());
    }
    let Some((first, last)) = groups.filter(|_| columns != RowColumns::default()) else {
        let why = exported.fault.map_or("no row of the journal is chosen", |_| "no row of the journal can be read");
        return Err(ArchiveError::Empty(why));
    };
    let mut writer = RowWriter::create(out, &columns)?;
    let (mut failed, end) = (None, exported.journal.1);
    let again = visit(&mut storage, first, last, &mut 0, &mut |_, offset, received, taken| {
        for i in chosen.of(taken, offset) {
            let placed = Placed { offset: offset + i as u64, received, starts_chain: taken.starts_chain[i] };
            if let Err(e) = writer.push(&taken.batch, i, &placed) {
                failed = Some(e);
                return false;
            }
        }
        progress((end + offset) / 2, end);
        true
    });
    if let Some(e) = failed {
        return Err(e.into());
    }
    again.map_err(|e| ArchiveError::Damaged(e.to_string()))?;
    exported.rows = writer.finish()?;
    Ok(exported)
}

/// The newest rows of a journal.
#[derive(Clone, Debug, Default)]
pub struct Newest {
    /// Oldest first. The first one of each stream starts a chain.
    pub rows: Rows,
    /// Names of the streams, by their numbers in `rows`.
    pub streams: Vec<String>,
    /// Offset of the first of them.
    pub first: u64,
    /// The critics that learn from them, as far as it is known.
    pub critics: Vec<Settings>,
}

/// The newest `most` rows of the journal in `directory`. A damaged journal is an error.
///
/// # Errors
/// If there is no journal, or it cannot be read.
pub fn newest(directory: &Path, most: u64) -> Result<Newest, ArchiveError> {
    let mut storage = SqliteStorage::open_beside(directory)?;
    let Some((first, last)) = storage.bounds()? else { return Err(ArchiveError::Empty("the journal has no rows")) };
    let end = storage.headers(last, 1)?.first().map_or(0, GroupHeader::end);
    let mut removals = Removals::default();
    recorded_removals(&mut storage, &mut removals).map_err(|e| ArchiveError::Damaged(e.to_string()))?;
    let start = removals.offsets().back_from(end, most);
    let from = group_of(&mut storage, start)?;
    let mut newest = Newest { first: end, critics: critics(&mut storage, directory, first)?, ..Newest::default() };
    let mut numbers: HashMap<u32, u32> = HashMap::new();
    let mut alike = true;
    let read =
        visit(&mut storage, from, last, &mut 0, &mut |_, offset, _, TakenRows { stream, starts_chain, batch }| {
            if newest.streams.is_empty() {
                newest.rows = Rows::new(batch.dim(), batch.rewards_per_row());
            }
            alike = (batch.dim(), batch.rewards_per_row()) == (newest.rows.dim, newest.rows.rewards_per_row);
            let skipped = usize::try_from(start.saturating_sub(offset)).unwrap_or(usize::MAX);
            let known = if alike { batch.len() } else { 0 };
            for (i, &starts) in starts_chain.iter().enumerate().take(known).skip(skipped) {
                newest.first = newest.first.min(offset + i as u64);
                let is_new = !numbers.contains_key(stream);
                let number = *numbers.entry(*stream).or_insert(newest.streams.len() as u32);
                if is_new {
                    newest.streams.push(batch.stream().to_owned());
                }
                newest.rows.push(number, is_new || starts, batch, i);
            }
            alike
        });
    read.map_err(|e| ArchiveError::Damaged(e.to_string()))?;
    if !alike {
        return Err(ArchiveError::Columns("its newest rows have states or rewards of different lengths".to_owned()));
    }
    Ok(newest)
}

/// The settings of the critics at the end of the journal; none where they are not known any more.
fn critics(storage: &mut SqliteStorage, directory: &Path, first: u64) -> Result<Vec<Settings>, ArchiveError> {
    Ok(configured(storage, directory, first)?.map_or_else(Vec::new, |configured| configured.critics))
}

/// All settings at the end of the journal.
pub(super) fn configured(
    storage: &mut SqliteStorage,
    directory: &Path,
    first: u64,
) -> Result<Option<crate::state::record::Configured>, ArchiveError> {
    let mut configured = None;
    let read = for_each_record(storage, first - 1, CONFIGURED, &mut || true, &mut |_, record| {
        if let Record::Configured(newer) = record {
            configured = Some(newer);
        }
        Ok(())
    });
    read.map_err(|e| ArchiveError::Damaged(e.to_string()))?;
    if configured.is_none() {
        // The group that has them is forgotten; a checkpoint has seen it.
        let checkpoints = own(readable_checkpoints(directory)?, storage)?;
        configured = checkpoints.into_iter().find_map(|(checkpoint, _)| checkpoint.configured);
    }
    Ok(configured)
}

/// Visit the rows of groups `from` to `last` in order: number of the group, offset of the first row, Unix seconds when they
/// were stored. It ends where `take` returns false. `end` is the offset behind the last group that was read.
fn visit(
    storage: &mut SqliteStorage,
    from: u64,
    last: u64,
    end: &mut u64,
    take: &mut dyn FnMut(u64, u64, f64, &TakenRows) -> bool,
) -> Result<(), RecoverError> {
    // What is behind damage takes nothing back that can be read.
    let mut removals = Removals::default();
    drop(recorded_removals(storage, &mut removals));
    good_groups(storage, from, |group, time, records| {
        *end = group.end();
        let mut offset = group.first_offset;
        let records = removals.clean(Group { end: group.mark(), first_offset: offset, time, records }).records;
        for record in records {
            match record {
                Record::Rows(taken) => {
                    if !take(group.id, offset, time, &taken) {
                        return false;
                    }
                    offset += taken.batch.len() as u64;
                }
                Record::Hole(rows) => offset += rows,
                _ => {}
            }
        }
        group.id < last
    })
}

/// What a backup has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Version of this file: 1.
    pub version: u32,
    /// Version of the program that made it.
    pub program: String,
    /// Unix seconds when it was begun.
    pub time: f64,
    /// Offset of its first row.
    pub first_offset: u64,
    /// Offset behind its last row: every row that was acknowledged before the backup began lies before it.
    pub offset: u64,
    /// Number of its last group.
    pub group: u64,
    /// Checksum of that group, which follows from all groups.
    pub crc: u32,
    /// Groups behind which there are checkpoints, newest first.
    pub checkpoints: Vec<u64>,
}

/// Copy the data directory of a daemon, running or not, to the new directory `out`: the checkpoints, then the journal up to its
/// end at this moment, and the note about the table that was learned first. `unix` is the time, `progress` as in [`export`].
///
/// # Errors
/// If `out` is there and not empty, the journal is damaged, or something cannot be written. Then there is no `out`.
pub fn backup(
    directory: &Path,
    out: &Path,
    unix: f64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Manifest, ArchiveError> {
    check_vacant(out)?;
    let name = out.file_name().ok_or(ArchiveError::Empty("the backup needs the name of a directory"))?;
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let part_name = format!(".{}.part", name.to_string_lossy());
    let mut attempt = 0;
    loop {
        attempt += 1;
        let part = replace::stage(parent, &part_name).map_err(in_file(parent))?;
        let copied = copy(directory, &part, unix, progress);
        match copied {
            // The daemon drops old rows as new ones come; those that are left are copied.
            Err(ArchiveError::Damaged(_)) if attempt < ATTEMPTS && is_running(directory) => {}
            Err(e) => {
                drop(fs::remove_dir_all(&part));
                return Err(e);
            }
            Ok(manifest) => {
                fs::rename(&part, out).map_err(in_file(out))?;
                replace::sync(parent).map_err(in_file(parent))?;
                return Ok(manifest);
            }
        }
    }
}

fn is_running(directory: &Path) -> bool {
    super::owner(directory).is_some()
}

pub(super) fn check_vacant(path: &Path) -> Result<(), ArchiveError> {
    match fs::read_dir(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(in_file(path)(e)),
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(ArchiveError::Occupied(path.to_owned())),
        },
    }
}

fn copy(
    directory: &Path,
    part: &Path,
    unix: f64,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Manifest, ArchiveError> {
    // First, so that no checkpoint has seen more than the journal that is copied after them.
    let checkpoints = readable_checkpoints(directory)?;
    let mut storage = SqliteStorage::open_beside(directory)?;
    let checkpoints = own(checkpoints, &mut storage)?;
    let (first, last) =
        storage.bounds()?.ok_or(ArchiveError::Empty("the journal is empty: there is nothing to back up"))?;
    let mut ends = (u64::MAX, Mark::default());
    let mut copy = SqliteStorage::open(part)?;
    let of = storage.headers(last, 1)?.first().map_or(0, GroupHeader::end);
    let mut failed = None;
    let read = good_groups(&mut storage, first, |group, _, _| {
        failed = copy.append(group, 0, false).err();
        ends = (ends.0.min(group.first_offset), group.mark());
        progress(group.end(), of);
        failed.is_none() && group.id < last
    });
    if let Some(e) = failed {
        return Err(e.into());
    }
    read.map_err(|e| ArchiveError::Damaged(e.to_string()))?;
    let (first_offset, end) = ends;
    if end.id < last {
        return Err(ArchiveError::Damaged(format!("the journal ends at group {} instead of {last}", end.id)));
    }
    let needed = checkpoints.first().map(|(checkpoint, _)| checkpoint.replay_from);
    if first > 1 && needed.is_none_or(|needed| needed < first_offset) {
        return Err(ArchiveError::Damaged("rows that the newest checkpoint needs are gone".to_owned()));
    }
    copy.sync()?;
    copy.set_mark(end)?;
    copy.reopen()?;
    drop(copy);
    let fresh = Directory::new(part);
    // The oldest first: more than two are never kept.
    for (checkpoint, bytes) in checkpoints.iter().rev() {
        fresh.write(checkpoint.group, bytes).map_err(in_file(part))?;
    }
    match fs::read(directory.join(WARM_START)) {
        Ok(bytes) => write_file(part, WARM_START, &bytes)?,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(in_file(&directory.join(WARM_START))(e)),
    }
    let tombstones = Tombstones::read(directory).map_err(in_file(&directory.join(TOMBSTONES)))?;
    if !tombstones.is_empty() {
        tombstones.write(part).map_err(in_file(part))?;
    }
    let manifest = Manifest {
        version: 1,
        program: env!("CARGO_PKG_VERSION").to_owned(),
        time: unix,
        first_offset,
        offset: end.offset,
        group: end.id,
        crc: end.crc,
        checkpoints: checkpoints.iter().map(|(checkpoint, _)| checkpoint.group).collect(),
    };
    let text = serde_json::to_vec_pretty(&manifest).map_err(|e| in_file(part)(e.into()))?;
    write_file(part, MANIFEST, &text)?;
    Ok(manifest)
}

fn write_file(directory: &Path, name: &str, bytes: &[u8]) -> Result<(), ArchiveError> {
    let path = directory.join(name);
    whole_file::write(&path, &directory.join(format!("{name}.new")), 0o600, bytes).map_err(in_file(&path))
}

/// A checkpoint, and the bytes of its file.
type Read = (Checkpoint, Vec<u8>);

/// The checkpoints that are not of another journal.
fn own(checkpoints: Vec<Read>, storage: &mut SqliteStorage) -> Result<Vec<Read>, ArchiveError> {
    let (checkpoints, bytes): (Vec<_>, Vec<_>) = checkpoints.into_iter().unzip();
    let mut kept = Vec::new();
    for ((checkpoint, own), bytes) in known_owners(storage, checkpoints).into_iter().zip(bytes) {
        if own? != Some(false) {
            kept.push((checkpoint, bytes));
        }
    }
    Ok(kept)
}

/// The checkpoints that can be read, newest first. A daemon may drop one meanwhile, for a newer one.
fn readable_checkpoints(directory: &Path) -> Result<Vec<Read>, ArchiveError> {
    let files = Directory::new(directory);
    let listed = files.list().map_err(in_file(directory))?;
    let read = |group| {
        let bytes = files.read(group).ok()?;
        Some((Checkpoint::decode(&bytes).ok()?, bytes))
    };
    Ok(listed.into_iter().filter_map(read).collect())
}

/// The manifest of a backup, after its journal and checkpoints were read and found to be what it says.
///
/// # Errors
/// What differs.
pub fn verify(backup: &Path) -> Result<(Manifest, Survey), ArchiveError> {
    let path = backup.join(MANIFEST);
    let bytes = fs::read(&path).map_err(in_file(&path))?;
    let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|e| in_file(&path)(e.into()))?;
    if manifest.version > 1 {
        let why = format!("{}: made by a newer criticd ({})", path.display(), manifest.program);
        return Err(ArchiveError::Damaged(why));
    }
    let found = survey(backup)?;
    let end = Mark { id: manifest.group, offset: manifest.offset, crc: manifest.crc };
    match &found.fault {
        Some(why) => Err(ArchiveError::Damaged(why.clone())),
        None if found.end != end => {
            let why = format!("its journal ends at offset {}, and {MANIFEST} says {}", found.end.offset, end.offset);
            Err(ArchiveError::Damaged(why))
        }
        None => Ok((manifest, found)),
    }
}

/// Put a backup into `directory`, which is empty or not there. The copy is verified before any of it is in place.
///
/// # Errors
/// If the directory is not empty, the backup is damaged, or something cannot be written.
pub fn restore(backup: &Path, directory: &Path) -> Result<Manifest, ArchiveError> {
    check_empty(directory)?;
    let path = backup.join(MANIFEST);
    if !path.exists() {
        let why = format!("{} is no backup of criticd: it has no {MANIFEST}", backup.display());
        return Err(ArchiveError::Damaged(why));
    }
    {
        use std::os::unix::fs::DirBuilderExt as _;
        fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(in_file(directory))?;
    }
    let fresh = replace::stage(directory, replace::RESTORED).map_err(in_file(directory))?;
    let copied = copy_back(backup, &fresh).and_then(|()| verify(&fresh));
    let (manifest, _) = copied.inspect_err(|_| drop(fs::remove_dir_all(&fresh)))?;
    drop(fs::remove_file(fresh.join(format!("{DATABASE}-shm"))));
    // A later restart is no restore: the note would only say what was true.
    fs::remove_file(fresh.join(MANIFEST)).map_err(in_file(&fresh))?;
    join_tombstones(directory, &fresh)?;
    replace::sync(&fresh).map_err(in_file(&fresh))?;
    let plan = Moves { fresh: Some(replace::RESTORED.to_owned()), ..Moves::default() };
    replace::carry_out(directory, &plan).map_err(in_file(directory))?;
    Ok(manifest)
}

/// Rows that were taken back since the backup was made are so in what is restored.
fn join_tombstones(directory: &Path, fresh: &Path) -> Result<(), ArchiveError> {
    let read = |from: &Path| Tombstones::read(from).map_err(in_file(&from.join(TOMBSTONES)));
    let (mut all, later) = (read(fresh)?, read(directory)?);
    if later.is_empty() {
        return Ok(());
    }
    all.join(&later);
    all.write(fresh).map_err(in_file(fresh))
}

/// Whether a backup may come into `directory`.
fn check_empty(directory: &Path) -> Result<(), ArchiveError> {
    // What was set aside here stays beside what comes.
    let stays = |name: &str| ["before-", "damaged-"].iter().any(|start| name.starts_with(start));
    let vacant = |name: &str, is_directory: bool| {
        [replace::RESTORED, "lock", TOMBSTONES, "tombstones.new"].contains(&name) || (is_directory && stays(name))
    };
    match fs::read_dir(directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {}
        Err(e) => return Err(in_file(directory)(e)),
        Ok(entries) => {
            for entry in entries {
                let entry = entry.map_err(in_file(directory))?;
                let is_directory = entry.file_type().map_err(in_file(directory))?.is_dir();
                if !vacant(&entry.file_name().to_string_lossy(), is_directory) {
                    return Err(ArchiveError::Occupied(directory.to_owned()));
                }
            }
        }
    }
    Ok(())
}

/// Copy the files of a backup into the directory `fresh`, and to the disk.
fn copy_back(backup: &Path, fresh: &Path) -> Result<(), ArchiveError> {
    for entry in fs::read_dir(backup).map_err(in_file(backup))? {
        let entry = entry.map_err(in_file(backup))?;
        let (name, to) = (entry.file_name(), fresh.join(entry.file_name()));
        // The index of a log belongs to those who have it open.
        if name.to_str() == Some(&format!("{DATABASE}-shm")) {
            continue;
        }
        if !entry.file_type().is_ok_and(|kind| kind.is_file()) {
            return Err(ArchiveError::Damaged(format!(
                "{} is no file, and a backup holds files alone",
                entry.path().display()
            )));
        }
        fs::copy(entry.path(), &to).map_err(in_file(&entry.path()))?;
        fs::File::open(&to).and_then(|file| file.sync_all()).map_err(in_file(&to))?;
    }
    Ok(())
}
