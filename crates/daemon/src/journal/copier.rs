//! The thread that copies the log into the database, so that no append waits for that.

use crossbeam_channel::{Sender, bounded};
use parking_lot::Mutex;
use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// How long one who writes, or copies the log, waits for others that have it.
pub(super) const BUSY: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub(super) struct Copier {
    path: PathBuf,
    thread: Option<(Sender<()>, JoinHandle<()>)>,
    failure: Arc<Mutex<Option<rusqlite::Error>>>,
}

impl Copier {
    /// Of the database at `path`, which has no links.
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, thread: None, failure: Arc::default() }
    }

    /// Copy the log, unless that is being done.
    pub(super) fn start(&mut self) {
        if self.thread.is_none() {
            let (path, failure) = (self.path.clone(), Arc::clone(&self.failure));
            let (sender, receiver) = bounded(1);
            let copy = move || {
                for () in receiver {
                    if let Err(e) = copy_log(&path) {
                        *failure.lock() = Some(e);
                    }
                }
            };
            // Without a thread the log grows, and is copied when the daemon starts again.
            let thread = std::thread::Builder::new().name("journal".into()).spawn(copy);
            self.thread = thread.ok().map(|thread| (sender, thread));
        }
        if let Some((sender, _)) = &self.thread {
            // One that waits is enough.
            let _ = sender.try_send(());
        }
    }

    /// Wait until the log is not being copied any more.
    pub(super) fn finish(&mut self) {
        if let Some((sender, thread)) = self.thread.take() {
            drop(sender);
            // If it panicked it has said so.
            drop(thread.join());
        }
    }

    /// Why the log could not be copied, if it could not; asked once.
    pub(super) fn failure(&self) -> Option<rusqlite::Error> {
        self.failure.lock().take()
    }
}

impl Drop for Copier {
    fn drop(&mut self) {
        self.finish();
    }
}

/// Copy the log into the database: first what is there while others go on writing, then, while they wait for a moment, the
/// little that came meanwhile, so that the log begins anew.
pub(super) fn copy_log(path: &Path) -> rusqlite::Result<()> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let database = Connection::open_with_flags(path, flags)?;
    database.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    database.busy_timeout(BUSY)?;
    database.query_row("PRAGMA wal_checkpoint(PASSIVE)", [], |_| Ok(()))?;
    database.query_row("PRAGMA wal_checkpoint(RESTART)", [], |_| Ok(()))
}
