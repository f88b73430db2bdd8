//! The past that the page shows, in a file, so that a restart keeps it: time lines, marks and pairs of the calibration.
//!
//! The model does not depend on it. The file is written once a minute and at a stop, more seldom where it is large, and not at
//! all while rows cannot be stored. A file that cannot be read is ignored, with a line in the log.

use super::looking_back::Relearn;
use super::time_series::KeptHistory;
use crate::monitor::{KeptPairs, Marks};
use crate::packed;
use crate::sealed::Seal;
use crate::whole_file;
use serde::{Deserialize, Serialize};
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Its name in the data directory.
const NAME: &str = "history";
const SEAL: Seal = Seal { kind: b"criticd history\n", version: 1 };
/// Time between two writes, for each begun [`SLICE`] bytes of the file.
const EVERY: Duration = Duration::from_secs(60);
const SLICE: usize = 1 << 20;
/// A larger file was not written by this program.
const BYTES_MAX: u64 = 256 << 20;

/// Where the past is kept.
#[derive(Debug)]
pub struct Shelf {
    /// The data directory.
    pub directory: PathBuf,
    /// The lock of that directory, shared with its other users: it is free when the last of them has written.
    pub lock: File,
    /// How models of before are learned again.
    pub relearn: Relearn,
}

/// The past that a restart keeps.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Past {
    pub(super) history: KeptHistory,
    pub(super) marks: Marks,
    /// Of each critic.
    pub(super) calibrations: Vec<KeptPairs>,
}

/// The file.
#[derive(Debug)]
pub(super) struct PastFile {
    shelf: Shelf,
    /// When it is written next.
    due: Instant,
    /// Whether the last write failed.
    failing: bool,
    /// Messages that earlier runs refused.
    pub(super) refused: f64,
}

impl PastFile {
    pub(super) fn new(shelf: Shelf) -> Self {
        Self { shelf, due: Instant::now() + EVERY, failing: false, refused: 0.0 }
    }

    /// The past in the file; none if the file is missing or cannot be read.
    pub(super) fn read(&self) -> Option<Past> {
        let path = self.shelf.directory.join(NAME);
        match read(&path) {
            Ok(past) => past,
            Err(why) => {
                log::warn!("event=history_ignored file={path:?} why={:?}", why.to_string());
                None
            }
        }
    }

    /// The data directory.
    pub(super) fn directory(&self) -> &std::path::Path {
        &self.shelf.directory
    }

    /// Whether it is time to write.
    pub(super) fn is_due(&self) -> bool {
        Instant::now() >= self.due
    }

    /// Replace the file. A failed write leaves the older file.
    pub(super) fn write(&mut self, past: &Past) {
        let bytes = SEAL.close(|out| rmp_serde::encode::write_named(out, past).expect("plain data into memory"));
        self.due = Instant::now() + EVERY * u32::try_from(bytes.len().div_ceil(SLICE)).unwrap_or(u32::MAX);
        let directory = &self.shelf.directory;
        let (path, part) = (directory.join(NAME), directory.join("history.new"));
        let written = whole_file::write(&path, &part, 0o600, &bytes);
        if let Err(e) = &written {
            // The partial file takes room that rows may need.
            drop(fs::remove_file(&part));
            if !self.failing {
                log::warn!("event=history_unwritten file={path:?} why={:?}", e.to_string());
            }
        }
        self.failing = written.is_err();
    }
}

fn read(path: &std::path::Path) -> Result<Option<Past>, Box<dyn std::error::Error>> {
    let length = match fs::metadata(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        found => found?.len(),
    };
    if length > BYTES_MAX {
        return Err("it is too large".into());
    }
    Ok(Some(packed::read(SEAL.open(&fs::read(path)?)?)?))
}

#[cfg(test)]
mod tests {
    use super::super::time_series::History;
    use super::*;

    fn file(directory: &tempfile::TempDir) -> PastFile {
        let lock = File::create(directory.path().join("lock")).unwrap();
        let relearn = Relearn(std::sync::Arc::new(|_, _| Err("nothing is here".to_owned())));
        PastFile::new(Shelf { directory: directory.path().to_owned(), lock, relearn })
    }

    /// The past of a run of `seconds`.
    fn past(seconds: u64) -> Past {
        let mut history = History::new(vec!["time".into(), "rate".into()]);
        (0..seconds).for_each(|k| history.push(&[1e9 + k as f64, f64::NAN]));
        Past { history: history.keep(), marks: Marks::default(), calibrations: Vec::new() }
    }

    /// Of how many seconds there is a past.
    fn seconds(file: &PastFile) -> usize {
        let mut history = History::new(vec!["time".into(), "rate".into()]);
        history.resume(&file.read().expect("a past").history, 2e9, &[]);
        // Behind the last row stands a gap.
        history.to_json(0..1)["time"].as_array().map_or(0, Vec::len) - 1
    }

    #[test]
    fn it_is_there_whole_or_ignored() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = file(&directory);
        assert!(file.read().is_none() && !file.is_due());
        file.write(&past(7));
        assert_eq!(seconds(&file), 7);
        let path = directory.path().join(NAME);
        let bytes = fs::read(&path).unwrap();
        for (at, k) in [(0, 1), (SEAL.kind.len(), 200), (bytes.len() - 1, 1)] {
            let mut changed = bytes.clone();
            changed[at] ^= k;
            fs::write(&path, changed).unwrap();
            assert!(file.read().is_none(), "byte {at}");
        }
        let other = SEAL.close(|out| rmp_serde::encode::write_named(out, &["other"]).unwrap());
        fs::write(&path, other).unwrap();
        assert!(file.read().is_none(), "a right checksum around something else");
        fs::write(&path, Seal { version: 2, ..SEAL }.close(|_| {})).unwrap();
        assert!(file.read().is_none(), "of a newer version");
        file.write(&past(8));
        assert_eq!(seconds(&file), 8);
    }

    #[test]
    fn a_disk_that_takes_nothing_keeps_the_file_before() {
        let directory = tempfile::tempdir().unwrap();
        let mut file = file(&directory);
        file.write(&past(1));
        let part = directory.path().join("history.new");
        fs::create_dir(&part).unwrap();
        file.write(&past(2));
        assert!(file.failing && seconds(&file) == 1);
        fs::remove_dir(&part).unwrap();
        file.write(&past(3));
        assert!(!file.failing && seconds(&file) == 3);
    }
}
