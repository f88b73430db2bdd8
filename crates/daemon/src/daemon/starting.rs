//! A long start. The daemon reports its progress to the log, to systemd and to `criticd status`, and it stops on SIGTERM or SIGINT.

use super::systemd::notify as notify_systemd;
use crate::whole_file::not_through_links;
use sd_notify::NotifyState;
use serde_json::json;
use std::fs::OpenOptions;
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two reports to the log and to systemd, which waits longer each time.
const REPORT: Duration = Duration::from_secs(5);
const EXTENSION_US: u32 = 60_000_000;
/// File of the data directory that says how far a start is that reads the journal, and how often it does.
pub(super) const FILE: &str = "starting.json";
const SAID: Duration = Duration::from_secs(1);

/// What tells of a start.
pub(super) struct Report<'a> {
    file: PathBuf,
    stop: &'a AtomicBool,
    /// When the log and systemd hear of it next.
    due: Instant,
    /// When the file was written last.
    written: Option<Instant>,
}

impl<'a> Report<'a> {
    pub(super) fn new(directory: &Path, stop: &'a AtomicBool) -> Self {
        // The first report comes early: systemd may be impatient.
        Self { file: directory.join(FILE), stop, due: Instant::now() + SAID, written: None }
    }

    /// Note the rows of the journal that have been learned again. Says whether to go on.
    pub(super) fn recovering(&mut self, rows: u64, of: u64) -> bool {
        if self.written.is_none_or(|at| at.elapsed() >= SAID) {
            self.written = Some(Instant::now());
            // Only for those who look.
            drop(self.write(&json!({"rows": rows, "of": of}).to_string()));
        }
        if self.is_due() {
            log::info!("event=recovering rows={rows} of={of}");
            tell(&format!("learning the journal again: {rows} of {of} rows"));
        }
        !self.stop.load(Ordering::Relaxed)
    }

    /// The journal has been read.
    pub(super) fn recovered(&self) {
        drop(std::fs::remove_file(&self.file));
    }

    /// This share of the table that is learned first has been checked. Says whether to go on.
    pub(super) fn checking(&mut self, share: f64) -> bool {
        if self.is_due() {
            let percent = (100.0 * share) as u64;
            log::info!("event=warm_start_checking percent={percent}");
            tell(&format!("checking the table of --warm-start: {percent} %"));
        }
        !self.stop.load(Ordering::Relaxed)
    }

    fn is_due(&mut self) -> bool {
        let is_due = Instant::now() >= self.due;
        if is_due {
            self.due = Instant::now() + REPORT;
        }
        is_due
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let mut open = OpenOptions::new();
        let open = not_through_links(open.write(true).create(true).truncate(true).mode(0o600));
        open.open(&self.file)?.write_all(text.as_bytes())
    }
}

fn tell(status: &str) {
    notify_systemd(&[NotifyState::ExtendTimeoutUsec(EXTENSION_US), NotifyState::Status(status)]);
}

/// Rows learned again and rows to learn, of a daemon that starts and reads the journal in `directory`, if one does.
pub fn starting(directory: &Path) -> Option<(u64, u64)> {
    let text = std::fs::read_to_string(directory.join(FILE)).ok()?;
    let said: serde_json::Value = serde_json::from_str(&text).ok()?;
    Some((said["rows"].as_u64()?, said["of"].as_u64()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn a_start_says_how_far_it_is_to_its_owner_and_ends_when_told() {
        let directory = tempfile::tempdir().unwrap();
        let stop = AtomicBool::new(false);
        let mut report = Report::new(directory.path(), &stop);
        assert!(report.recovering(3, 10) && report.checking(0.5));
        assert_eq!(starting(directory.path()), Some((3, 10)));
        let mode = std::fs::metadata(directory.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        stop.store(true, Ordering::Relaxed);
        assert!(!report.recovering(4, 10) && !report.checking(0.6));
        report.recovered();
        assert_eq!(starting(directory.path()), None);
    }
}
