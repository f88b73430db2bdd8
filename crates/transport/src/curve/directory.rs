//! The place of the unix sockets through which encrypted connections go.

use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

/// A directory that only our own user may enter, removed with what is in it when this is dropped.
///
/// A process that is killed leaves its directory behind; the next one to start removes it. Whose is still in use shows by a
/// lock, since numbers of processes mean nothing where containers share the place.
#[derive(Debug)]
pub(in super::super) struct PrivateDirectory {
    path: PathBuf,
    _lock: fs::File,
}

/// What the names of private directories begin with, and nothing else: data directories are not to be taken for them.
const PRIVATE_PREFIX: &str = "criticd-io-";
/// The file in them that is locked as long as they are used.
const PRIVATE_LOCK: &str = "io.lock";

impl PrivateDirectory {
    /// Create one among the system's temporary files.
    ///
    /// # Errors
    /// Also if its path is too long for sockets in it.
    pub(in super::super) fn create() -> io::Result<Self> {
        Self::create_in(&std::env::temp_dir())
    }

    fn create_in(place: &Path) -> io::Result<Self> {
        remove_abandoned(place);
        loop {
            let random = RandomState::new().hash_one(());
            let path = place.join(format!("{PRIVATE_PREFIX}{:x}-{random:016x}", std::process::id()));
            SocketAddr::from_pathname(socket_in(&path, u64::MAX))?;
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => {
                    // Under its name only once it is locked, so that no other process takes the directory for abandoned.
                    let making = path.join("making");
                    let lock = fs::File::create_new(&making)?;
                    lock.lock()?;
                    fs::rename(making, path.join(PRIVATE_LOCK))?;
                    return Ok(Self { path, _lock: lock });
                }
                // It belongs to another process.
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    pub(in super::super) fn path(&self) -> &Path {
        &self.path
    }
}

/// Where libzmq listens for a connection.
pub(super) fn socket_in(directory: &Path, connection: u64) -> PathBuf {
    directory.join(format!("curve-{connection}"))
}

impl Drop for PrivateDirectory {
    fn drop(&mut self) {
        // An abandoned directory holds only unused sockets.
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// Remove private directories in `place` whose processes have ended. What cannot be removed is left: it belongs to others.
fn remove_abandoned(place: &Path) {
    let entries = fs::read_dir(place).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(PRIVATE_PREFIX)) {
        let Ok(lock) = fs::File::open(entry.path().join(PRIVATE_LOCK)) else { continue };
        if lock.try_lock().is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn private_directories_are_removed_once_nobody_uses_them() {
        let place = tempfile::tempdir().unwrap();
        let directory = |name: &str| {
            let path = place.path().join(name);
            fs::create_dir(&path).unwrap();
            path
        };
        let (used, abandoned) = (directory("criticd-io-1-1"), directory("criticd-io-1-2"));
        let (made, other) = (directory("criticd-io-2-1"), directory("criticd-data"));
        let lock = fs::File::create_new(used.join(PRIVATE_LOCK)).unwrap();
        lock.lock().unwrap();
        for path in [&abandoned, &other] {
            fs::write(path.join(PRIVATE_LOCK), "").unwrap();
        }
        fs::write(abandoned.join("ingest"), "").unwrap();
        remove_abandoned(place.path());
        assert_eq!([&used, &abandoned, &made, &other].map(|path| path.exists()), [true, false, true, true]);
        drop(lock);
        remove_abandoned(place.path());
        assert!(!used.exists());
        remove_abandoned(&place.path().join("nowhere"));
    }

    #[test]
    fn a_directory_has_room_for_the_names_of_sockets_or_is_not_made() {
        let place = tempfile::tempdir().unwrap();
        let long = place.path().join("x".repeat(100));
        fs::create_dir(&long).unwrap();
        assert_eq!(PrivateDirectory::create_in(&long).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        assert_eq!(fs::read_dir(&long).unwrap().count(), 0);
        let directory = PrivateDirectory::create_in(place.path()).unwrap();
        let path = directory.path().to_owned();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
        drop(directory);
        assert!(!path.exists());
    }
}
