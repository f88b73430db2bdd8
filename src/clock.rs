//! What time it is: seconds since the start, and Unix seconds for people.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A moment: both clocks at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// Seconds since the daemon started; never goes back.
    pub uptime: f64,
    /// Unix seconds, for people.
    pub unix: f64,
}

/// Both clocks, read together.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    started: Instant,
}

impl Clock {
    /// Its uptime begins now.
    pub fn start() -> Self {
        Self { started: Instant::now() }
    }

    /// The present moment.
    pub fn now(&self) -> Now {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        Now { uptime: self.started.elapsed().as_secs_f64(), unix }
    }
}
