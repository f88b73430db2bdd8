//! `criticd compact`.

use super::Failure;
use super::client::DaemonPlace;
use super::output::{Spinner, in_file, print};
use crate::daemon::{self, StartError, replace, survey};
use crate::journal::store::SqliteStorage;
use std::fs::File;
use std::path::Path;

/// Give the room of forgotten rows back to the file system
///
/// The journal's file does not shrink by itself: new rows use the room of those that were forgotten. The daemon must be stopped;
/// while one runs, the command only says how much would come back. It takes as much room again as the rows that are kept, until
/// it is done. An interruption is no harm.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd compact                                              how much would come back\n  criticd stop && criticd compact && criticd serve\n  criticd compact /var/lib/criticd"
)]
pub(crate) struct Compact {
    #[command(flatten)]
    place: DaemonPlace,
}

impl Compact {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let directory = &self.place.directory()?;
        if !survey::holds_journal(directory) {
            return Err(in_file(directory, "a directory without a journal"));
        }
        let shown = directory.display();
        if daemon::owner(directory).is_some() {
            let (bytes, free) = SqliteStorage::open_beside(directory)?.size()?;
            return print(&format!(
                "{shown}: {free} of {bytes} bytes would come back, and new rows use them meanwhile.\n\
                 Next: criticd stop {shown}, and run the same command again.\n"
            ));
        }
        let _lock = stopped(directory)?;
        refuse_unfinished(directory)?;
        let mut storage = SqliteStorage::open(directory)?;
        let (before, free) = storage.size()?;
        if free == 0 {
            return print(&format!("{shown}: the journal has {before} bytes, all of them in use\n"));
        }
        let progress = Spinner::start("compacting");
        let compacted = storage.compact().and_then(|()| storage.size());
        drop(progress);
        let (after, _) = compacted.map_err(|e| in_file(directory, e))?;
        print(&format!("{shown}: {} bytes came back; the journal has {after} bytes\n", before.saturating_sub(after)))
    }
}

/// The lock of a directory in which no daemon runs.
pub(super) fn stopped(directory: &Path) -> Result<File, Failure> {
    daemon::lock(directory).map_err(|e| match e {
        StartError::Locked { .. } => {
            let shown = directory.display();
            in_file(directory, format!("a daemon runs here; `criticd stop {shown}` ends it"))
        }
        other => other.into(),
    })
}

/// Refuse a directory in which a repair, reset or restore was interrupted.
pub(super) fn refuse_unfinished(directory: &Path) -> Result<(), Failure> {
    match replace::interrupted(directory).map_err(|e| in_file(directory, e))? {
        Some(what) => Err(StartError::Unfinished { path: directory.to_owned(), what }.into()),
        None => Ok(()),
    }
}
