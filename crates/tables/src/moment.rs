//! Times as tables write them, to the last digit.

use super::cell::Cell;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time as JiffTime};
use jiff::tz::TimeZone;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};

/// A place in the order of an episode: a whole number and what is above it. One double would make equal what is a few
/// nanoseconds apart, half a century after 1970.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Moment {
    whole: i64,
    rest: f64,
}

/// What a cell of times says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Time {
    pub(super) moment: Moment,
    pub(super) seconds: f64,
    /// Whether it is written as a date.
    pub(super) calendar: bool,
}

impl Hash for Moment {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.whole.hash(state);
        // Both zeros are equal.
        (self.rest + 0.0).to_bits().hash(state);
    }
}

impl PartialOrd for Moment {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        let rests = self.rest.partial_cmp(&other.rest)?;
        Some(self.whole.cmp(&other.whole).then(rests))
    }
}

impl Moment {
    /// Nothing is before it, after it or equal to it.
    pub(super) const NONE: Self = Self { whole: 0, rest: f64::NAN };

    pub(super) fn of(value: f64) -> Self {
        let whole = value.floor() as i64;
        Self { whole, rest: value - whole as f64 }
    }

    /// Of digits, with a point or without one: all of them count.
    fn of_digits(text: &str) -> Option<Self> {
        let (negative, digits) = text.strip_prefix('-').map_or((false, text), |digits| (true, digits));
        let (whole, rest) = digits.split_once('.').unwrap_or((digits, "0"));
        let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        if !all_digits(whole) || !all_digits(rest) {
            return None;
        }
        let (whole, rest): (i64, f64) = (whole.parse().ok()?, format!("0.{rest}").parse().ok()?);
        Some(match (negative, rest > 0.0) {
            (false, _) => Self { whole, rest },
            (true, false) => Self { whole: -whole, rest },
            (true, true) => Self { whole: -whole - 1, rest: 1.0 - rest },
        })
    }

    pub(super) fn is_none(self) -> bool {
        self.rest.is_nan()
    }

    /// Whether it is at least `from`.
    pub(super) fn is_absolute(self, from: i64) -> bool {
        !self.is_none() && self.whole >= from
    }

    /// As people write it; `calendar`: as a date.
    pub(super) fn said(self, calendar: bool) -> String {
        let date = Timestamp::new(self.whole, (1e9 * self.rest).round() as i32).ok().filter(|_| calendar);
        match date {
            Some(date) => date.to_string(),
            None if self.rest == 0.0 => self.whole.to_string(),
            None => (self.whole as f64 + self.rest).to_string(),
        }
    }
}

/// A time, in seconds or in whatever the numbers of its column are: only their order counts.
pub(super) fn time(cell: Cell<'_>) -> Result<Time, String> {
    let number = |seconds: f64, moment| Time { moment, seconds, calendar: false };
    let found = match cell {
        Cell::Number(value) if value.is_finite() => Some(number(value, Moment::of(value))),
        Cell::Whole(value) => {
            let whole = value.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
            Some(number(value as f64, Moment { whole, rest: 0.0 }))
        }
        Cell::Written(text) | Cell::Text(text) => match text.parse().ok().filter(|v: &f64| v.is_finite()) {
            Some(value) => Some(number(value, Moment::of_digits(text).unwrap_or(Moment::of(value)))),
            None => iso_8601(text).or_else(|| as_people_write(text)).or_else(|| duration(text)),
        },
        _ => None,
    };
    found.ok_or_else(|| match cell {
        Cell::Empty | Cell::Written("") | Cell::Text("") => {
            "empty; a time is needed here: if the row is no step, such as a sum below the table, leave it out".to_owned()
        }
        Cell::Written(text) | Cell::Text(text) if text.split('/').count() == 3 => format!(
            "{cell} may have the day or the month in front; write 2026-01-31T12:00:00. In Python: pandas.to_datetime(column, \
             format=\"%m/%d/%Y %I:%M:%S %p\") or format=\"%d/%m/%Y %H:%M:%S\""
        ),
        _ => format!("{cell} is no time; write a number, or 2026-01-31T12:00:00"),
    })
}

/// A moment of that many nanoseconds since 1970, or since the beginning of a run.
fn of_nanoseconds(nanoseconds: i128, calendar: bool) -> Time {
    let rest = nanoseconds.rem_euclid(1_000_000_000) as f64 / 1e9;
    let moment = Moment { whole: nanoseconds.div_euclid(1_000_000_000) as i64, rest };
    Time { moment, seconds: nanoseconds as f64 / 1e9, calendar }
}

/// "28-Mar-2026 22:00:00" of MATLAB, "28.03.2026 22:00:00" and "2026/03/28 22:00:00"; seconds and the time of day may be left out.
fn as_people_write(text: &str) -> Option<Time> {
    const DAYS: [&str; 3] = ["%d-%b-%Y", "%d.%m.%Y", "%Y/%m/%d"];
    let of = |day: &str, clock: &str| DateTime::strptime(format!("{day}{clock}"), text).ok();
    let on = |day: &&str| of(day, " %H:%M:%S%.f").or_else(|| of(day, " %H:%M"));
    let date = |day: &&str| Some(Date::strptime(day, text).ok()?.to_datetime(JiffTime::midnight()));
    let found = DAYS.iter().find_map(on).or_else(|| DAYS.iter().find_map(date))?;
    Some(of_nanoseconds(found.to_zoned(TimeZone::UTC).ok()?.timestamp().as_nanosecond(), true))
}

/// "0:01:30.5", and "1 days 00:01:30" of pandas: how long it has been.
fn duration(text: &str) -> Option<Time> {
    let (days, clock) = match text.split_once(" day") {
        Some((days, clock)) => (days.parse::<i128>().ok()?, clock.trim_start_matches(['s', ',', ' '])),
        None => (0, text),
    };
    let mut parts = clock.split(':');
    let (hours, minutes, seconds) = (parts.next()?, parts.next()?, parts.next()?);
    let count = |part: &str| part.parse::<u32>().ok().map(i128::from);
    let (seconds, rest) = seconds.split_once('.').unwrap_or((seconds, "0"));
    if parts.next().is_some() || rest.len() > 9 || days.abs() > 1 << 32 {
        return None;
    }
    let rest = count(rest)? * 10_i128.pow(9 - rest.len() as u32);
    let seconds = ((days * 24 + count(hours)?) * 60 + count(minutes)?) * 60 + count(seconds)?;
    Some(of_nanoseconds(seconds * 1_000_000_000 + rest, false))
}

/// The time of "2026-01-31T12:00:00.5+01:00" or "2026-01-31 12:00:00 UTC"; the time of day, its fraction and its zone may be left out.
fn iso_8601(text: &str) -> Option<Time> {
    let text = text.strip_suffix(" UTC").or_else(|| text.strip_suffix(" GMT")).unwrap_or(text);
    let with_zone = || text.parse::<Timestamp>().ok();
    let in_utc = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
    let stamp = with_zone().or_else(|| in_utc().map(|zoned| zoned.timestamp()))?;
    let seconds = stamp.as_duration().as_secs_f64();
    Some(Time { seconds, ..of_nanoseconds(stamp.as_nanosecond(), true) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_numbers_or_as_iso_8601_writes_them() {
        for (text, expected) in [
            ("1.5", 1.5),
            ("-2e3", -2000.0),
            ("1970-01-01", 0.0),
            ("1970-01-02T00:00:01", 86_401.0),
            ("2000-03-01 00:00:00.25Z", 951_868_800.25),
            ("2000-03-01 00:00:00.25 UTC", 951_868_800.25),
            ("2024-02-29T12:30:00+01:30", 1_709_204_400.0),
            ("2024-02-29T12:30-02", 1_709_217_000.0),
            ("02-Jan-1970 00:00:01", 86_401.0),
            ("02.01.1970 00:00:01.5", 86_401.5),
            ("2.1.1970 00:01", 86_460.0),
            ("02.01.1970", 86_400.0),
            ("1970/01/02 00:00:01", 86_401.0),
            ("0:01:30.25", 90.25),
            ("1 days 00:00:01.000000", 86_401.0),
            ("1 day, 0:00:01", 86_401.0),
        ] {
            assert_eq!(time(Cell::Written(text)).unwrap().seconds, expected, "{text}");
        }
        for text in
            ["", "nan", "noon", "2024-13-01", "2024-01-01T1", "2024-01-01x10:00:00", "2024-01-01T10:00:00+x", "é"]
        {
            assert!(time(Cell::Written(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn times_a_nanosecond_apart_are_in_order_and_are_said_as_they_were_written() {
        for [before, after] in [
            ["1700000000.123456788", "1700000000.123456789"],
            ["1700000000123456788", "1700000000123456789"],
            ["-0.000000002", "-0.000000001"],
            ["-1.25", "-1"],
            ["2024-10-27T02:00:00.000000001Z", "2024-10-27T02:00:00.000000002Z"],
        ] {
            let of = |text| time(Cell::Written(text)).unwrap().moment;
            assert!(of(before) < of(after) && of(before) == of(before), "{before}");
        }
        let said = |text| time(Cell::Written(text)).map(|time| time.moment.said(time.calendar)).unwrap();
        assert_eq!(["3", "-1.5", "0.25"].map(said), ["3", "-1.5", "0.25"]);
        assert_eq!(said("2024-10-27T02:00+01"), "2024-10-27T01:00:00Z");
        let of = |value| time(Cell::Number(value)).unwrap().moment;
        assert!(of(-0.5) < of(-0.25) && of(1e300) > of(1e200) && of(-1e300) < of(-1e200));
        assert!(Moment::NONE != Moment::NONE && Moment::NONE.partial_cmp(&of(0.0)).is_none());
    }
}
