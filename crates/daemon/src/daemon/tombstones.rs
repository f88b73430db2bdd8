//! Offsets of the rows that were taken back, in a file beside the data. Where a backup of before takes the place of the data, the next
//! start takes these rows back once more. The file has no content of rows, and no names.

use super::core::{Core, Now};
use super::removal::{RemovalFound, RemovalJob};
use crate::learner::removal::Offsets;
use crate::state::record::Origin;
use crate::whole_file;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Name of the file.
pub const TOMBSTONES: &str = "tombstones.json";
/// Version of the file.
const VERSION: u32 = 1;
/// Times of two journals that differ by less are the same, seconds: the file has decimal numbers.
const SAME: f64 = 1e-3;

/// What was taken back from each journal that was in a directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tombstones {
    version: u32,
    journals: Vec<OfJournal>,
}

/// What was taken back from a journal.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct OfJournal {
    /// Unix seconds of its first group, which tells it from others.
    begun: f64,
    /// Offsets.
    removed: Offsets,
}

impl Tombstones {
    /// The list of a directory; an empty one where there is no file.
    ///
    /// # Errors
    /// If the file cannot be read, or a newer version has written it.
    pub fn read(directory: &Path) -> io::Result<Self> {
        let bytes = match fs::read(directory.join(TOMBSTONES)) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            read => read?,
        };
        let read: Self = serde_json::from_slice(&bytes)?;
        let is_consistent = |journal: &OfJournal| journal.removed.are_consistent(0);
        let fault = match read.version {
            0 | VERSION if read.journals.iter().all(is_consistent) => return Ok(read),
            0 | VERSION => "its ranges do not ascend",
            _ => "a newer criticd has written it",
        };
        Err(io::Error::new(io::ErrorKind::InvalidData, fault))
    }

    /// Write them into a directory.
    ///
    /// # Errors
    /// If the disk refuses.
    pub fn write(&self, directory: &Path) -> io::Result<()> {
        let text = serde_json::to_vec(&Self { version: VERSION, journals: self.journals.clone() })?;
        whole_file::write(&directory.join(TOMBSTONES), &directory.join("tombstones.new"), 0o600, &text)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.journals.is_empty()
    }

    /// Offsets that were taken back from the journal that begins there.
    fn of(&self, origin: Origin) -> Offsets {
        let own = self.journals.iter().find(|journal| (journal.begun - origin.time).abs() < SAME);
        own.map(|journal| journal.removed.clone()).unwrap_or_default()
    }

    /// Add what was taken back from the journal that begins then.
    fn add(&mut self, begun: f64, removed: &Offsets) {
        match self.journals.iter_mut().find(|journal| (journal.begun - begun).abs() < SAME) {
            Some(journal) => journal.removed.join(removed),
            None => self.journals.push(OfJournal { begun, removed: removed.clone() }),
        }
    }

    /// Add all of `others`.
    pub fn join(&mut self, others: &Self) {
        others.journals.iter().for_each(|journal| self.add(journal.begun, &journal.removed));
    }
}

/// Note in a directory what was taken back from the journal that begins there.
///
/// # Errors
/// If the file cannot be read or written.
pub fn note(directory: &Path, origin: Origin, removed: &Offsets) -> io::Result<()> {
    let mut all = Tombstones::read(directory)?;
    all.add(origin.time, removed);
    all.write(directory)
}

/// Keeps the file of a running daemon in step with its journal.
#[derive(Debug)]
pub(super) struct Keeper {
    directory: PathBuf,
    /// Removals that the file has; none once it could not be written.
    noted: Option<u64>,
}

impl Keeper {
    pub(super) fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), noted: Some(0) }
    }

    /// Note removals that the file lacks.
    pub(super) fn keep(&mut self, core: &Core) {
        let (Some(origin), count) = (core.origin(), core.removals().count()) else { return };
        if self.noted.is_none_or(|noted| noted == count) {
            return;
        }
        let written = note(&self.directory, origin, core.removals().offsets());
        self.noted = written.is_ok().then_some(count);
        if let Err(e) = written {
            let path = self.directory.join(TOMBSTONES);
            log::warn!("event=tombstones_unwritten path={} why={:?}", path.display(), e.to_string());
        }
    }
}

/// Take rows back that the file names and the data still have, before anybody asks. `find` looks for them.
///
/// # Errors
/// Why that cannot be.
pub(super) fn honour(
    directory: &Path,
    core: &mut Core,
    now: Now,
    find: &mut dyn FnMut(&RemovalJob) -> RemovalFound,
) -> Result<(), String> {
    let Some(origin) = core.origin() else { return Ok(()) };
    let listed = Tombstones::read(directory).map_err(|e| e.to_string())?.of(origin);
    let missing = listed.within(&(core.first_offset()..core.offset())).without(core.removals().offsets());
    if missing.is_empty() {
        return Ok(());
    }
    log::warn!("event=rows_removed_again rows={} why=\"the data are older than {TOMBSTONES}\"", missing.count());
    core.take_back(&missing, &format!("the data were older than {TOMBSTONES}"), now, find)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_back_is_noted_for_each_journal() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Tombstones::read(directory.path()).unwrap().is_empty());
        let at = |time| Origin { crc: 7, time };
        for (time, range) in [(1.7e9 + 0.123_456_789, 3..5), (5.0, 0..9), (1.7e9 + 0.123_456_789, 4..8)] {
            note(directory.path(), at(time), &Offsets::from(range)).unwrap();
        }
        let mut read = Tombstones::read(directory.path()).unwrap();
        // The erasure of a first group changes its checksum.
        let of = |read: &Tombstones, time| read.of(Origin { crc: 8, time });
        let found = [1.7e9 + 0.123_456_789, 5.0, 6.0].map(|time| of(&read, time));
        assert_eq!(found, [Offsets::from(3..8), Offsets::from(0..9), Offsets::default()]);
        let mut others = Tombstones::default();
        others.add(5.0, &Offsets::from(20..21));
        read.join(&others);
        assert_eq!(of(&read, 5.0), [0..9, 20..21].into_iter().collect());
        for bad in [
            r#"{"version": 9, "journals": []}"#,
            r#"{"version": 1, "journals": [{"begun": 1, "removed": [{"start": 9, "end": 3}]}]}"#,
            "{",
        ] {
            fs::write(directory.path().join(TOMBSTONES), bad).unwrap();
            assert!(Tombstones::read(directory.path()).is_err(), "{bad}");
        }
    }
}
