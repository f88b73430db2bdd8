//! Offsets of the rows that were taken back, in a file beside the data. Where a backup of before takes the place of the data, the next
//! start takes these rows back once more. The file has no content of rows, and no names.

use super::as_of::{Moment, end_then};
use super::core::{Core, Now};
use super::removal::{find, first_offset};
use crate::journal::store::Storage;
use crate::learner::removal::Offsets;
use crate::state::record::Origin;
use crate::state::removals::Removals;
use crate::whole_file;
use serde::{Deserialize, Serialize};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Name of the file.
pub const TOMBSTONES: &str = "tombstones.json";
/// Pause after the file could not be written.
const RETRY: Duration = Duration::from_secs(60);
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
    /// Oldest first.
    removals: Vec<RemovedThen>,
}

/// Rows that were taken back together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct RemovedThen {
    /// Unix seconds. Rows that were stored later at these offsets are others.
    time: f64,
    /// Where they were.
    offsets: Offsets,
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
        let is_consistent = |journal: &OfJournal| journal.removals.iter().all(|then| then.offsets.are_consistent(0));
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

    /// What was taken back from the journal that begins there.
    fn of(&self, origin: Origin) -> &[RemovedThen] {
        let own = self.journals.iter().find(|journal| (journal.begun - origin.time).abs() < SAME);
        own.map_or(&[], |journal| &journal.removals)
    }

    /// Add what was taken back by some time from the journal that begins then, but for what is listed with that time or a later one. Other
    /// rows may have come to offsets that were listed before: where a backup took the place of the data.
    fn add(&mut self, begun: f64, time: f64, removed: &Offsets) {
        let known = self.journals.iter().position(|journal| (journal.begun - begun).abs() < SAME);
        let at = known.unwrap_or_else(|| {
            self.journals.push(OfJournal { begun, removals: Vec::new() });
            self.journals.len() - 1
        });
        let removals = &mut self.journals[at].removals;
        let later = removals.iter().filter(|then| then.time >= time);
        let offsets = later.fold(removed.clone(), |new, then| new.without(&then.offsets));
        if !offsets.is_empty() {
            removals.push(RemovedThen { time, offsets });
            removals.sort_by(|a, b| a.time.total_cmp(&b.time));
        }
    }

    /// Add all of `others`.
    pub fn join(&mut self, others: &Self) {
        for journal in &others.journals {
            journal.removals.iter().for_each(|then| self.add(journal.begun, then.time, &then.offsets));
        }
    }
}

/// Rows of a journal that the list of a directory has. Rows that were stored at these offsets after their removal are others.
///
/// # Errors
/// If the list or the journal cannot be read.
pub fn listed(directory: &Path, origin: Origin, journal: &mut dyn Storage) -> io::Result<Offsets> {
    let all = Tombstones::read(directory)?;
    let (mut found, mut end) = (Offsets::default(), 0);
    for RemovedThen { time, offsets } in all.of(origin) {
        // The later, the further.
        if offsets.ranges().last().is_some_and(|last| last.end > end) {
            let forgotten = first_offset(journal).map_err(|e| io::Error::other(e.to_string()))?;
            let then = end_then(journal, Moment::Time(*time)).map_err(|e| io::Error::other(e.to_string()))?;
            end = then.max(forgotten);
        }
        found.join(&offsets.within(&(0..end)));
    }
    Ok(found)
}

/// Note in a directory what was taken back from the journal that begins there, but for the rows that are `noted`.
///
/// # Errors
/// If the file cannot be read or written.
pub fn note(directory: &Path, origin: Origin, removals: &Removals, noted: &Offsets) -> io::Result<()> {
    let mut all = Tombstones::read(directory)?;
    let time = removals.told().last().map_or(origin.time, |last| last.time);
    all.add(origin.time, time, &removals.offsets().without(noted));
    all.write(directory)
}

/// Keeps the file of a running daemon in step with its journal.
#[derive(Debug)]
pub(super) struct Keeper {
    directory: PathBuf,
    /// Removals that the file has, and their rows.
    noted: u64,
    offsets: Offsets,
    /// When the file could not be written last.
    failed: Option<Instant>,
}

impl Keeper {
    /// With a file that lists these rows of the journal.
    pub(super) fn new(directory: &Path, offsets: Offsets) -> Self {
        Self { directory: directory.to_owned(), noted: 0, offsets, failed: None }
    }

    /// Note removals that the file lacks. One that cannot be written is tried again later.
    pub(super) fn keep(&mut self, core: &Core) {
        let count = core.removals().count();
        if self.noted == count || self.failed.is_some_and(|failed| failed.elapsed() < RETRY) {
            return;
        }
        let written = match core.origin() {
            Some(origin) => note(&self.directory, origin, core.removals(), &self.offsets).map_err(|e| e.to_string()),
            None => Err("the journal does not say where it begins".to_owned()),
        };
        match written {
            Ok(()) => {
                (self.noted, self.failed) = (count, None);
                self.offsets = core.removals().offsets().clone();
            }
            Err(why) => {
                let path = self.directory.join(TOMBSTONES);
                if self.failed.replace(Instant::now()).is_none() {
                    log::warn!("event=tombstones_unwritten path={} why={why:?}", path.display());
                }
            }
        }
    }
}

/// Take rows back that the file names and the data still have, before anybody asks; until `stop` is set. Returns who goes on with the file.
///
/// # Errors
/// Why that cannot be.
pub(super) fn honour(directory: &Path, core: &mut Core, now: Now, stop: &AtomicBool) -> Result<Keeper, String> {
    let offsets = match core.origin().zip(core.journal()) {
        Some((origin, journal)) => listed(directory, origin, journal).map_err(|e| e.to_string())?,
        None => Offsets::default(),
    };
    let missing = offsets.within(&(core.first_offset()..core.offset())).without(core.removals().offsets());
    if !missing.is_empty() {
        log::warn!("event=rows_removed_again rows={} why=\"the data are older than {TOMBSTONES}\"", missing.count());
        core.take_back(&missing, &format!("the data were older than {TOMBSTONES}"), now, &mut |job| {
            find(directory, job, stop)
        })?;
    }
    Ok(Keeper::new(directory, offsets))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::GroupWriter;
    use crate::journal::memory::MemoryStorage;
    use crate::state::record::RemovedRows;

    #[test]
    fn what_was_taken_back_is_noted_for_each_journal() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Tombstones::read(directory.path()).unwrap().is_empty());
        let mut all = Tombstones::default();
        for (begun, time, range) in
            [(1.7e9 + 0.123_456_789, 20.0, 3..5), (5.0, 6.0, 0..9), (1.7e9 + 0.123_456_789, 30.0, 4..8)]
        {
            all.add(begun, time, &Offsets::from(range));
        }
        all.write(directory.path()).unwrap();
        let mut read = Tombstones::read(directory.path()).unwrap();
        // The erasure of a first group changes its checksum.
        let of = |read: &Tombstones, time| -> Vec<(f64, Offsets)> {
            read.of(Origin { crc: 8, time }).iter().map(|then| (then.time, then.offsets.clone())).collect()
        };
        let offsets = |range: std::ops::Range<u64>| Offsets::from(range);
        assert_eq!(of(&read, 1.7e9 + 0.123_456_789), [(20.0, offsets(3..5)), (30.0, offsets(4..8))]);
        assert_eq!((of(&read, 5.0), of(&read, 6.0)), (vec![(6.0, offsets(0..9))], Vec::new()));
        let mut others = Tombstones::default();
        others.add(5.0, 3.0, &offsets(2..21));
        read.join(&others);
        assert_eq!(of(&read, 5.0), [(3.0, offsets(9..21)), (6.0, offsets(0..9))]);
        // What is known already is not listed twice, in whatever order it comes.
        read.join(&others);
        read.join(&read.clone());
        assert_eq!(of(&read, 5.0), [(3.0, offsets(9..21)), (6.0, offsets(0..9))]);
        for bad in [
            r#"{"version": 9, "journals": []}"#,
            r#"{"version": 1, "journals": [{"begun": 1, "removals": [{"time": 2, "offsets": [{"start": 9, "end": 3}]}]}]}"#,
            "{",
        ] {
            fs::write(directory.path().join(TOMBSTONES), bad).unwrap();
            assert!(Tombstones::read(directory.path()).is_err(), "{bad}");
        }
    }

    #[test]
    fn other_rows_at_offsets_that_were_taken_back_before_are_listed_too() {
        let directory = tempfile::tempdir().unwrap();
        let origin = Origin { crc: 8, time: 5.0 };
        let removed = |offsets: std::ops::Range<u64>, time| {
            let mut removals = Removals::default();
            removals.note(&RemovedRows { offsets: Offsets::from(offsets), ..RemovedRows::default() }, 100, time);
            removals
        };
        let listed = || -> Vec<(f64, Offsets)> {
            let all = Tombstones::read(directory.path()).unwrap();
            all.of(origin).iter().map(|then| (then.time, then.offsets.clone())).collect()
        };
        let none = Offsets::default();
        note(directory.path(), origin, &removed(60..90, 10.0), &none).unwrap();
        // A backup of 60 rows has taken the place of the data, and others have come since.
        let others = removed(70..75, 20.0);
        note(directory.path(), origin, &others, &none).unwrap();
        let both = [(10.0, Offsets::from(60..90)), (20.0, Offsets::from(70..75))];
        assert_eq!(listed(), both);
        note(directory.path(), origin, &others, others.offsets()).unwrap();
        assert_eq!(listed(), both);
        // Of the rows of another journal the list has what was stored when they were taken back, and what is forgotten.
        let of_journal = |forgotten: u64, times: &[f64]| {
            let mut journal = MemoryStorage::default();
            for (i, &time) in times.iter().enumerate() {
                let mut group = GroupWriter::default();
                group.hole(20);
                let stored = group.finish(i as u64 + 1, forgotten + 20 * i as u64, 0, time);
                journal.append(&stored, 0, true).unwrap();
            }
            super::listed(directory.path(), origin, &mut journal).unwrap()
        };
        assert_eq!(of_journal(0, &[5.0, 6.0, 7.0, 8.0, 9.0]), Offsets::from(60..90));
        assert_eq!(of_journal(0, &[5.0, 6.0, 7.0, 8.0, 11.0]), Offsets::from(60..80));
        assert_eq!(of_journal(0, &[5.0, 6.0, 7.0, 11.0, 21.0]), Offsets::from(70..75));
        let two: Offsets = [60..65, 70..75].into_iter().collect();
        assert_eq!(of_journal(65, &[11.0, 21.0]), two);
    }
}
