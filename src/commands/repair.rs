//! `criticd repair`.

use super::Failure;
use super::inspect::{describe_directory, survey_directory};
use super::output::{in_file, print};
use criticd::daemon::{self, survey};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Cut a damaged journal where it is still good
///
/// Without --yes this only says what would be lost. With it the good part of the journal is copied, and the old files are moved
/// to a directory beside them: nothing is deleted. Checkpoints that have seen more than what is left are moved, too.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd repair --truncate /var/lib/criticd\n  criticd repair --truncate /var/lib/criticd --yes"
)]
pub(crate) struct Repair {
    /// The data directory of a daemon that does not run
    #[arg(long, value_name = "DATA_DIR")]
    truncate: PathBuf,
    /// Do it
    #[arg(long)]
    yes: bool,
}

impl Repair {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let directory = &self.truncate;
        if !survey::holds_journal(directory) {
            return Err(in_file(directory, "a directory without a journal"));
        }
        let _lock = daemon::lock(directory)?;
        let found = survey_directory(directory)?;
        if found.fault.is_none() {
            return print(&format!("{}\nThere is nothing to repair.\n", describe_directory(&found)));
        }
        let lost = found.rows_lost();
        let what = match lost {
            0 => "No row is known to be lost by that.".to_owned(),
            lost => format!("{lost} rows that were acknowledged are lost by that."),
        };
        let cut = format!(
            "The journal is good up to offset {} (group {}) and would be cut there. {what}",
            found.end.offset, found.end.id
        );
        if !self.yes {
            return print(&format!("{}\n{cut}\nNext: the same with --yes does it.\n", describe_directory(&found)));
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let aside = survey::truncate(directory, &found, unix).map_err(|e| in_file(directory, e))?;
        let cut = cut
            .replace("would be cut", "has been cut")
            .replace("are lost", "were lost")
            .replace("is known to be", "is known to have been");
        print(&format!("{cut}\nWhat was there before is in {}.\n", aside.display()))
    }
}
