//! Groups of episodes that are labelled already, in files beside the one that is to be: a command that was killed goes on from them.

use super::super::Failure;
use super::super::output::in_file;
use crate::packed;
use crate::sealed::Seal;
use crate::whole_file;
use serde::{Deserialize, Serialize};
use siphasher::sip128::{Hasher128 as _, SipHasher13};
use std::fs::{self, File, TryLockError};
use std::hash::Hasher as _;
use std::io::{ErrorKind, Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};

const SEAL: Seal = Seal { kind: b"criticd labels\n", version: 1 };
/// The file that says what the parts are of.
const WORK: &str = "work.json";

/// What is known of the rows of a group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct LabelledGroup {
    /// Fingerprint of the model that says it.
    pub(super) model: String,
    /// (H, k) values, returns and temporal-difference errors of the group's k rows.
    pub(super) values: Vec<Vec<f64>>,
    pub(super) returns: Vec<Vec<f64>>,
    pub(super) errors: Vec<Vec<f64>>,
    /// (k,)
    pub(super) deviations: Vec<f64>,
    pub(super) known: Vec<f64>,
}

/// A folder with the groups that are done. Whoever has it is the only one who works there.
pub(super) struct Parts {
    folder: PathBuf,
    _work: File,
}

impl Parts {
    /// The parts of the file `out`, if this program made them of this `work`; others are removed.
    pub(super) fn open(out: &Path, work: &str) -> Result<Self, Failure> {
        // Two builds of one version may come to other values. The link leads to a file that was replaced meanwhile, too.
        let program = fs::read("/proc/self/exe").map(|bytes| print(&bytes)).unwrap_or_default();
        let work = serde_json::json!({"build": program, "work": work}).to_string();
        let name = out.file_name().unwrap_or_default().to_string_lossy();
        let folder = out.with_file_name(format!(".{name}.parts"));
        let refused = |e| in_file(&folder, e);
        fs::create_dir_all(&folder).map_err(refused)?;
        let path = folder.join(WORK);
        let mut file =
            File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(refused)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => {
                let message = "another process is labelling into this file; wait for it, or name another --out";
                return Err(in_file(out, message));
            }
            // A file system without locks keeps nobody out.
            Err(TryLockError::Error(e)) if e.kind() == ErrorKind::Unsupported => {}
            locked => locked.map_err(|e| in_file(&folder, e))?,
        }
        let mut before = String::new();
        // What is no text was not written here.
        if file.read_to_string(&mut before).is_err() || before != work {
            for entry in fs::read_dir(&folder).map_err(refused)?.flatten().filter(|entry| entry.file_name() != WORK) {
                fs::remove_file(entry.path()).map_err(refused)?;
            }
            file.rewind().and_then(|()| file.set_len(0)).map_err(refused)?;
            file.write_all(work.as_bytes()).and_then(|()| file.sync_all()).map_err(refused)?;
        }
        Ok(Self { folder, _work: file })
    }

    fn path(&self, group: usize) -> PathBuf {
        self.folder.join(format!("group-{group:04}"))
    }

    /// Group number `group`, of `rows` rows, if it is done. What is damaged is not.
    pub(super) fn get(&self, group: usize, rows: usize) -> Option<LabelledGroup> {
        let bytes = fs::read(self.path(group)).ok()?;
        let group: LabelledGroup = packed::read(SEAL.open(&bytes).ok()?).ok()?;
        (group.known.len() == rows).then_some(group)
    }

    /// Keep a group that is done.
    pub(super) fn put(&self, number: usize, group: &LabelledGroup) -> Result<(), Failure> {
        let bytes = SEAL.close(|out| rmp_serde::encode::write_named(out, group).expect("plain data into memory"));
        let path = self.path(number);
        whole_file::write(&path, &path.with_extension("new"), 0o666, &bytes).map_err(|e| in_file(&path, e))
    }

    /// All of it is in the file now.
    pub(super) fn remove(self) -> Result<(), Failure> {
        fs::remove_dir_all(&self.folder).map_err(|e| in_file(&self.folder, e))
    }
}

/// A fingerprint of bytes: 32 hexadecimal digits.
pub(super) fn print(bytes: &[u8]) -> String {
    let mut hasher = SipHasher13::new();
    hasher.write(bytes);
    format!("{:032x}", hasher.finish128().as_u128())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(value: f64) -> LabelledGroup {
        let one = vec![vec![value, f64::NAN]];
        let known = vec![0.5, 0.25];
        LabelledGroup {
            model: "m".into(),
            values: one.clone(),
            returns: one.clone(),
            errors: one,
            deviations: known.clone(),
            known,
        }
    }

    #[test]
    fn groups_of_the_same_work_are_found_again() {
        let directory = tempfile::tempdir().unwrap();
        let out = directory.path().join("labels.csv");
        let parts = Parts::open(&out, "a").unwrap();
        assert!(parts.get(0, 2).is_none());
        parts.put(0, &group(1.5)).unwrap();
        parts.put(1, &group(2.5)).unwrap();
        assert!(Parts::open(&out, "a").is_err_and(|failure| failure.message.contains("another process")));
        drop(parts);
        let parts = Parts::open(&out, "a").unwrap();
        assert_eq!((parts.get(0, 2).unwrap().values[0][0], parts.get(0, 3)), (1.5, None));
        let mut bytes = fs::read(parts.path(1)).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        fs::write(parts.path(1), bytes).unwrap();
        assert_eq!(parts.get(1, 2), None, "a damaged one is labelled again");
        drop(parts);
        let parts = Parts::open(&out, "b").unwrap();
        assert_eq!(parts.get(0, 2), None, "of another work");
        parts.remove().unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }
}
