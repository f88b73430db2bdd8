//! `criticd reset`.

use super::client::DaemonPlace;
use super::output::{in_file, moment, print};
use super::{Failure, compact::stopped};
use crate::daemon::{replace, survey};
use std::time::{SystemTime, UNIX_EPOCH};

/// Set the data of a stopped daemon aside, so that the next start has none
///
/// Journal, checkpoints and quarantine move to a directory within the data directory, named after the time. The command deletes
/// nothing, and says how to go back.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  criticd reset\n  criticd stop /var/lib/criticd && criticd reset /var/lib/criticd")]
pub(crate) struct Reset {
    #[command(flatten)]
    place: DaemonPlace,
}

impl Reset {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let directory = &self.place.directory()?;
        if !directory.is_dir() {
            return Err(in_file(directory, "there is no such directory"));
        }
        let _lock = stopped(directory)?;
        replace::finish(directory).and_then(|_| replace::discard(directory)).map_err(|e| in_file(directory, e))?;
        if !survey::holds_journal(directory) {
            return print(&format!("{}: nothing to set aside\n", directory.display()));
        }
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
        let time: String = moment(unix).chars().filter(char::is_ascii_digit).collect();
        let name = format!("before-{}-{}", &time[..8], &time[8..]);
        let aside = survey::set_aside(directory, &name).map_err(|e| in_file(directory, e))?;
        let (directory, aside) = (directory.display(), aside.display());
        print(&format!(
            "The data is in {aside}. A daemon that starts in {directory} has no data.\n\
             To go back: stop that daemon, `criticd reset {directory}`, and `mv {aside}/* {directory}/`.\n"
        ))
    }
}
