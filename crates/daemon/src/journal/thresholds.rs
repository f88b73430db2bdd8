//! Amounts at which the journal goes another way. ARCHITECTURE.md lists them. Tests make them small, so that a few rows go every way.

use std::sync::atomic::{AtomicBool, Ordering};

/// The amounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Bytes appended after which the log is copied into the database.
    pub log_bytes: u64,
    /// Bytes of groups that are read at a time.
    pub piece_bytes: u64,
    /// Headers of groups that are read at a time.
    pub headers: usize,
}

const USUAL: Thresholds = Thresholds { log_bytes: 8 << 20, piece_bytes: 4 << 20, headers: 1024 };
const SMALL: Thresholds = Thresholds { log_bytes: 32 << 10, piece_bytes: 32 << 10, headers: 3 };

static IS_SMALL: AtomicBool = AtomicBool::new(false);

/// The thresholds of this process.
pub fn thresholds() -> Thresholds {
    if IS_SMALL.load(Ordering::Relaxed) { SMALL } else { USUAL }
}

/// Let this process have small ones: no result depends on them. `criticd --small-thresholds` does so, for tests.
pub fn make_small() {
    IS_SMALL.store(true, Ordering::Relaxed);
}
