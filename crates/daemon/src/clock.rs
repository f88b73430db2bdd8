//! What time it is: seconds since the start, and Unix seconds for people.

use jiff::Timestamp;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A moment: both clocks at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Now {
    /// Seconds since the daemon started; never goes back.
    pub uptime: f64,
    /// Unix seconds, for people.
    pub unix: f64,
}

/// Date and time in UTC, to the millisecond; none after the year 9999, which a clock that is far out may say.
pub fn date_and_time(time: SystemTime) -> Option<String> {
    Timestamp::try_from(time).ok().map(|time| format!("{time:.3}"))
}

/// Whether HTTP has a date for this time: from 1970 to 9999.
pub fn has_http_date(time: SystemTime) -> bool {
    Timestamp::try_from(time).is_ok_and(|time| time >= Timestamp::UNIX_EPOCH)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn dates_end_with_the_year_9999_and_those_of_http_begin_with_1970() {
        let seconds = |seconds: u64| Duration::from_secs(seconds);
        let last = UNIX_EPOCH + seconds(253_402_200_000);
        for (time, has) in [
            (UNIX_EPOCH, true),
            (UNIX_EPOCH - seconds(1), false),
            (UNIX_EPOCH - seconds(400 * 86_400), false),
            (last, true),
            (last + seconds(1_000_000), false),
        ] {
            assert_eq!(has_http_date(time), has, "{time:?}");
        }
        assert_eq!(date_and_time(UNIX_EPOCH - seconds(1)).as_deref(), Some("1969-12-31T23:59:59.000Z"));
        assert_eq!(date_and_time(last + seconds(1_000_000)), None);
    }
}
