//! `criticd stop`.

use super::Failure;
use super::client::DaemonPlace;
use super::output::{Spinner, in_file, print};
use crate::daemon;
use rustix::process::{Pid, Signal, kill_process};
use std::time::{Duration, Instant};

/// Interval of the check whether it has ended.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// End a daemon on this machine, and wait until it has ended
///
/// The daemon stores and learns the rows that it has received, writes a checkpoint and ends, as on SIGTERM.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd stop\n  criticd stop /var/lib/criticd\n  criticd stop tcp://127.0.0.1:5751 --timeout 300"
)]
pub(crate) struct Stop {
    #[command(flatten)]
    place: DaemonPlace,
    /// Seconds to wait for its end
    #[arg(long, value_name = "S", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86400))]
    timeout: u64,
}

impl Stop {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let directory = &self.place.directory()?;
        let Some(process) = daemon::owner(directory) else {
            return Err(in_file(directory, "no daemon runs here"));
        };
        let Some(number) = process else {
            let why = "a daemon of another user or in a container runs here; run the command as that user, or there";
            return Err(in_file(directory, why));
        };
        let pid = i32::try_from(number).ok().and_then(Pid::from_raw).ok_or_else(|| Failure::new("no such process"))?;
        kill_process(pid, Signal::TERM).map_err(|e| Failure::new(format!("process {number} cannot be ended: {e}")))?;
        let (started, timeout) = (Instant::now(), Duration::from_secs(self.timeout));
        let progress = Spinner::start("waiting for the daemon to end");
        while daemon::owner(directory).is_some() {
            if started.elapsed() > timeout {
                let seconds = self.timeout;
                return Err(in_file(
                    directory,
                    format!("process {number} has not ended within {seconds} s; it may yet"),
                ));
            }
            std::thread::sleep(LOOK_INTERVAL);
        }
        drop(progress);
        let seconds = started.elapsed().as_secs_f64();
        print(&format!("{}: process {number} has ended, after {seconds:.1} s\n", directory.display()))
    }
}
