//! What several of the tests need.

pub(crate) mod broken;
pub(crate) mod daemon;
pub(crate) mod harness;
pub(crate) mod http;
pub(crate) mod killed;
pub(crate) mod program;
pub(crate) mod refits;
pub(crate) mod worlds;
pub(crate) mod zmtp;

use std::thread;
use std::time::{Duration, Instant};

/// Far longer than anything takes, even on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);
/// The same, for settings.
pub(crate) const PATIENCE_MS: u64 = 1000 * PATIENCE.as_secs();
/// Between two looks at something that is waited for.
const PAUSE: Duration = Duration::from_millis(2);

/// Ask until there is an answer. Where there is none in the end, the last reason for that is told.
pub(crate) fn wait_or<T>(mut ask: impl FnMut() -> Result<T, String>) -> T {
    let start = Instant::now();
    loop {
        match ask() {
            Ok(found) => return found,
            Err(why) => assert!(start.elapsed() < PATIENCE, "waited too long for: {why}"),
        }
        thread::sleep(PAUSE);
    }
}

/// Ask until there is an answer.
pub(crate) fn wait<T>(what: &str, mut ask: impl FnMut() -> Option<T>) -> T {
    wait_or(|| ask().ok_or_else(|| what.to_owned()))
}

/// Wait until `condition` holds.
pub(crate) fn until(what: &str, mut condition: impl FnMut() -> bool) {
    wait(what, || condition().then_some(()));
}

/// The number that an environment variable asks for.
pub(crate) fn asked(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|e| panic!("{variable}={text}: {e}")))
}
