//! `criticd repair`.

use super::Failure;
use super::inspect::{describe_directory, survey_directory};
use super::output::{in_file, print};
use criticd::daemon::{self, survey};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

/// Truncate a damaged journal after its last good group
///
/// Without --yes the command only prints what would be lost. With --yes it copies the good part of the journal and moves the
/// old files to a directory beside them; it deletes nothing. It also moves checkpoints that cover rows after the cut.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd repair --truncate /var/lib/criticd\n  criticd repair --truncate /var/lib/criticd --yes"
)]
pub(crate) struct Repair {
    /// The data directory of a stopped daemon
    #[arg(long, value_name = "DATA_DIR")]
    truncate: PathBuf,
    /// Truncate the journal
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
            0 => "As far as known, this loses no row.".to_owned(),
            lost => format!("This loses {lost} acknowledged rows."),
        };
        let cut = format!(
            "The journal is good up to offset {} (group {}) and is truncated there. {what}",
            found.end.offset, found.end.id
        );
        if !self.yes {
            return print(&format!("{}\n{cut}\nNext: run the same command with --yes.\n", describe_directory(&found)));
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let aside = survey::truncate(directory, &found, unix).map_err(|e| in_file(directory, e))?;
        let cut = cut.replace("is truncated there", "has been truncated there").replace("this loses", "this lost");
        let cut = cut.replace("This loses", "This lost");
        print(&format!("{cut}\nThe old files are in {}.\n", aside.display()))
    }
}
