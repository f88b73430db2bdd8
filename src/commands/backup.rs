//! `criticd backup` and `criticd restore`.

use super::Failure;
use super::client::DaemonPlace;
use super::output::{Spinner, in_file, moment, print};
use crate::daemon::survey::holds_journal;
use crate::daemon::{archive, lock};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Copy what a daemon has learned to a new directory, while it runs
///
/// The backup has every row that was acknowledged before the command began, each checked, and the newest checkpoints.
/// It is there as a whole or not at all. Quarantine and settings are not in it.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd backup --out /backup/criticd-monday\n  criticd backup /var/lib/criticd --out /backup/criticd-monday\n  criticd restore /backup/criticd-monday /var/lib/criticd"
)]
pub(crate) struct Backup {
    #[command(flatten)]
    place: DaemonPlace,
    /// Directory to make
    #[arg(long, value_name = "BACKUP")]
    out: PathBuf,
}

impl Backup {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let directory = self.place.directory()?;
        if !holds_journal(&directory) {
            return Err(in_file(&directory, "a directory without a journal"));
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let progress = Spinner::start("copying");
        let copied = archive::backup(&directory, &self.out, unix, &mut |done, of| progress.advance(done, of));
        drop(progress);
        let manifest = copied.map_err(|e| in_file(&directory, e))?;
        let out = self.out.display();
        print(&format!(
            "{out}: rows {} to {}, {} checkpoints\nNext: criticd restore {out} DATA_DIR puts it into an empty directory.\n",
            manifest.first_offset,
            manifest.offset,
            manifest.checkpoints.len()
        ))
    }
}

/// Put a backup into an empty data directory
///
/// The command verifies every group and checkpoint before any of them is in place. A directory that is not empty is refused:
/// `criticd reset` sets its files aside.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd restore /backup/criticd-monday /var/lib/criticd\n  criticd stop && criticd reset /var/lib/criticd && criticd restore /backup/criticd-monday /var/lib/criticd"
)]
pub(crate) struct Restore {
    /// Directory that `criticd backup` made
    #[arg(value_name = "BACKUP")]
    backup: PathBuf,
    /// Data directory, empty or not there yet
    #[arg(value_name = "DATA_DIR")]
    directory: PathBuf,
}

impl Restore {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let Self { backup, directory } = &self;
        let _lock = if directory.is_dir() { Some(lock(directory)?) } else { None };
        let progress = Spinner::start("restoring");
        let restored = archive::restore(backup, directory);
        drop(progress);
        let manifest = restored.map_err(|e| in_file(backup, e))?;
        let directory = directory.display();
        print(&format!(
            "{directory}: rows {} to {}, as of {}\nNext: criticd serve --data-dir {directory} continues from there.\n",
            manifest.first_offset,
            manifest.offset,
            moment(manifest.time)
        ))
    }
}
