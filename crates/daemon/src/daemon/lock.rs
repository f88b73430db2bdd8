//! The lock of a data directory: one daemon at a time.

use super::as_of::relearn;
use super::endpoints_file::EndpointsFile;
use super::{StartError, erase, replace, starting};
use crate::config::{Config, ConfigParts};
use crate::http::Shelf;
use crate::whole_file::{forbids_writing, not_through_links};
use std::fs::{DirBuilder, File, Metadata, OpenOptions, TryLockError};
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant};

/// File name of the lock.
const FILE: &str = "lock";
/// [`owner`] holds the lock for an instant, and so do several of them in turn: only a lock that is held for longer is a daemon's.
const GLANCES: Duration = Duration::from_millis(250);
/// Interval of the attempts meanwhile.
const PAUSE: Duration = Duration::from_millis(5);

/// Create the data directory if there is none, and take it for this process: its lock, and the place of `endpoints.json`.
pub(super) fn claim(directory: &Path) -> Result<(File, EndpointsFile), StartError> {
    let failed = |source| StartError::DataDir { path: directory.to_owned(), source };
    if directory.is_relative() && directory == ConfigParts::default().data_dir {
        let path = directory.display();
        log::warn!(
            "event=relative_data_dir path={path} why=\"neither XDG_STATE_HOME nor HOME is set\" hint=\"set data_dir\""
        );
    }
    DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
    let lock = lock(directory)?;
    erase::sweep(directory).map_err(failed)?;
    if let Some(what) = replace::interrupted(directory).map_err(failed)? {
        return Err(StartError::Unfinished { path: directory.to_owned(), what });
    }
    mention_open_directory(directory);
    // Left by a start that was killed.
    drop(std::fs::remove_file(directory.join(starting::FILE)));
    let endpoints_file = EndpointsFile::new(directory);
    endpoints_file.clear().map_err(failed)?;
    Ok((lock, endpoints_file))
}

/// Say so if others may write to the data directory: they may put anything in the place of its files.
fn mention_open_directory(directory: &Path) {
    let mode = std::fs::metadata(directory).map_or(0, |found| found.mode() & 0o7777);
    if mode & 0o022 != 0 {
        log::warn!(
            "event=data_dir_open path={:?} mode={mode:04o} why=\"others may write to it\" hint=\"chmod 700\"",
            directory.display()
        );
    }
}

/// The place for the dashboard's past; none without a journal. It has a share of the `lock` of the data directory.
pub(super) fn shelf(config: &Config, lock: &File) -> Result<Option<Shelf>, StartError> {
    if !config.journal {
        return Ok(None);
    }
    let path = config.data_dir.join(FILE);
    let lock = lock.try_clone().map_err(|source| StartError::DataDir { path, source })?;
    Ok(Some(Shelf { directory: config.data_dir.clone(), lock, relearn: relearn(config) }))
}

/// Lock `directory`. The lock goes with the process, however that ends. The file has the number of the process that has taken
/// the lock last.
///
/// # Errors
/// If another process has the lock, or the file cannot be made.
pub fn lock(directory: &Path) -> Result<File, StartError> {
    let path = directory.join(FILE);
    let mut open = OpenOptions::new();
    let open = not_through_links(open.write(true).create(true).truncate(false).mode(0o600));
    // A lock that is there can be taken where nothing can be written.
    let file =
        open.open(&path).or_else(|e| if forbids_writing(&e) { File::open(&path).map_err(|_| e) } else { Err(e) });
    let file = file.map_err(|source| StartError::DataDir { path: path.clone(), source })?;
    let started = Instant::now();
    let taken = loop {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) if started.elapsed() < GLANCES => std::thread::sleep(PAUSE),
            taken => break taken,
        }
    };
    match taken {
        Ok(()) => {
            let number = format!("{}\n", std::process::id());
            // On a full disk the lock holds without the number.
            drop(file.write_all_at(number.as_bytes(), 0).and_then(|()| file.set_len(number.len() as u64)));
            Ok(file)
        }
        Err(TryLockError::WouldBlock) => {
            Err(StartError::Locked { path: directory.to_owned(), process: owner(directory).flatten() })
        }
        Err(TryLockError::Error(source)) => Err(StartError::DataDir { path, source }),
    }
}

/// Whether a process has the lock of `directory`, and which, if it can be seen from here: its number counts only if the process
/// has the file open, since numbers are used again and mean other processes in another container.
pub fn owner(directory: &Path) -> Option<Option<u32>> {
    let path = directory.join(FILE);
    let file = File::open(&path).ok()?;
    // Shared: two that look at a time do not take each other for a daemon. A daemon that starts meanwhile tries again.
    if file.try_lock_shared().is_ok() {
        return None;
    }
    let identity = |file: Metadata| (file.dev(), file.ino());
    let of_lock = file.metadata().ok().map(identity);
    let number = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
    Some(number.filter(|number: &u32| {
        let descriptors = std::fs::read_dir(format!("/proc/{number}/fd")).into_iter().flatten().flatten();
        let mut files = descriptors.filter_map(|entry| std::fs::metadata(entry.path()).ok());
        of_lock.is_some() && files.any(|file| Some(identity(file)) == of_lock)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::thread;

    #[test]
    fn a_glance_at_the_lock_keeps_no_daemon_from_starting() {
        let directory = tempfile::tempdir().unwrap();
        drop(lock(directory.path()).unwrap());
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..500).for_each(|_| assert_eq!(owner(directory.path()), None, "no daemon runs")));
            }
        });
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    owner(directory.path());
                    // Looks are short and rare, like the looks of a command: one that lost the processor would refuse every start.
                    thread::sleep(Duration::from_millis(1));
                }
            });
            let refused = (0..100).filter(|_| lock(directory.path()).is_err()).count();
            over.store(true, Ordering::Relaxed);
            assert_eq!(refused, 0, "starts were refused");
        });
        let held = lock(directory.path()).unwrap();
        assert_eq!(owner(directory.path()), Some(Some(std::process::id())));
        assert!(matches!(lock(directory.path()), Err(StartError::Locked { .. })));
        drop(held);
    }
}
