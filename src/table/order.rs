//! Episodes that a column names, and the order of rows within them.

use super::cell::Cell;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use std::collections::HashMap;

/// Where a row stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Line or row of the file.
    pub(super) line: u64,
    /// Its `seq` as the file has it, or, in a file without one, its number in its stream from 0.
    pub(super) seq: u64,
}

/// Which episode each row belongs to, and where it stands there.
#[derive(Debug, Default)]
pub(super) struct Order {
    /// Whether there is a column that names episodes.
    pub(super) named: bool,
    /// Whether rows are not kept, so that nothing is kept of each of them.
    in_pieces: bool,
    ids: HashMap<(u32, String), u32>,
    pub(super) names: Vec<String>,
    /// Of each stream the last row: its episode, time and frame.
    last: Vec<Option<(u32, f64, f64)>>,
    /// Whether rows must be sorted.
    pub(super) disordered: bool,
    /// Of each row its episode.
    pub(super) episodes: Vec<u32>,
    /// Of each row what it is sorted by within its episode; NaN: the order of the file.
    times: Vec<f64>,
    /// Of each row its number in its episode.
    pub(super) frames: Vec<u64>,
    /// Rows of each episode so far.
    counts: Vec<u64>,
    /// Of each row whether it does not continue the one before it in its episode.
    pub(super) opens: Vec<bool>,
    // What the columns say of the next row.
    pub(super) key: String,
    pub(super) time: f64,
    pub(super) frame: f64,
}

impl Order {
    pub(super) fn new(named: bool, in_pieces: bool) -> Self {
        Self { named, in_pieces, time: f64::NAN, frame: f64::NAN, ..Self::default() }
    }

    /// Take a row of a stream in; whether it starts a chain, by what it says itself (`opens`) or by episode, time or frame.
    pub(super) fn take(&mut self, stream: u32, opens: bool) -> bool {
        let id = match self.named {
            true => {
                let next = self.names.len() as u32;
                let id = *self.ids.entry((stream, self.key.clone())).or_insert(next);
                if id == next {
                    self.names.push(self.key.clone());
                    self.counts.push(0);
                }
                id
            }
            false => 0,
        };
        if self.last.len() <= stream as usize {
            self.last.resize(stream as usize + 1, None);
        }
        let before = self.last[stream as usize].replace((id, self.time, self.frame));
        let mut starts = opens;
        if let Some((episode, time, frame)) = before {
            let same = episode == id;
            let falls = self.time < time || (self.time.is_nan() && self.frame <= frame);
            let skips = self.frame - frame > 1.0;
            // An episode that comes again, or whose rows are mixed up.
            self.disordered |= self.named && ((!same && self.counts[id as usize] > 0) || (same && falls));
            starts |= !same || falls || skips;
        }
        if self.named {
            let count = &mut self.counts[id as usize];
            *count += 1;
            if !self.in_pieces {
                self.episodes.push(id);
                self.frames.push(if self.frame.is_nan() { *count - 1 } else { self.frame as u64 });
                self.times.push(if self.time.is_nan() { self.frame } else { self.time });
                self.opens.push(opens || before.is_some_and(|(e, _, frame)| e == id && self.frame - frame > 1.0));
            }
        }
        starts
    }

    /// The order in which rows should be: episodes as they first appear, in each by time, else as in the file.
    pub(super) fn sorted(&self) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.episodes.len()).collect();
        let by_time =
            |i: usize, j: usize| self.times[i].partial_cmp(&self.times[j]).unwrap_or(std::cmp::Ordering::Equal);
        order.sort_by(|&i, &j| self.episodes[i].cmp(&self.episodes[j]).then_with(|| by_time(i, j)));
        order
    }

    /// Put the rows into this order.
    pub(super) fn permute(&mut self, order: &[usize]) {
        self.episodes = order.iter().map(|&i| self.episodes[i]).collect();
        self.times = order.iter().map(|&i| self.times[i]).collect();
        self.frames = order.iter().map(|&i| self.frames[i]).collect();
        self.opens = order.iter().map(|&i| self.opens[i]).collect();
    }
}

/// The name of an episode: a text or a whole number.
pub(super) fn episode(cell: Cell<'_>, key: &mut String) -> Result<(), String> {
    key.clear();
    match cell {
        Cell::Written("") | Cell::Text("") | Cell::Empty => {
            return Err("empty; every row belongs to an episode".to_owned());
        }
        Cell::Written(text) | Cell::Text(text) => key.push_str(text),
        Cell::Whole(value) => key.push_str(&value.to_string()),
        Cell::Number(value) if value.fract() == 0.0 && value.abs() < 9e15 => key.push_str(&format!("{value:.0}")),
        Cell::Number(_) | Cell::Flag(_) => {
            return Err(format!("{cell} names no episode; a text or a whole number does"));
        }
    }
    Ok(())
}

/// A time, in seconds or in whatever the numbers of its column are: only their order counts.
pub(super) fn moment(cell: Cell<'_>) -> Result<f64, String> {
    let wrong = || format!("{cell} is no time; write a number, or 2026-01-31T12:00:00");
    match cell {
        Cell::Number(value) if value.is_finite() => Ok(value),
        Cell::Whole(value) => Ok(value as f64),
        Cell::Written(text) | Cell::Text(text) => {
            let number = text.parse().ok().filter(|v: &f64| v.is_finite());
            number.or_else(|| iso_8601(text)).ok_or_else(wrong)
        }
        _ => Err(wrong()),
    }
}

/// Seconds since 1970 of "2026-01-31T12:00:00.5+01:00"; the time of day, its fraction and its zone may be left out.
fn iso_8601(text: &str) -> Option<f64> {
    let with_zone = || text.parse::<Timestamp>().ok();
    let in_utc = || text.parse::<DateTime>().ok()?.to_zoned(TimeZone::UTC).ok();
    let moment = with_zone().or_else(|| in_utc().map(|zoned| zoned.timestamp()))?;
    Some(moment.as_duration().as_secs_f64())
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
            ("2024-02-29T12:30:00+01:30", 1_709_204_400.0),
            ("2024-02-29T12:30-02", 1_709_217_000.0),
        ] {
            assert_eq!(moment(Cell::Written(text)), Ok(expected), "{text}");
        }
        for text in
            ["", "nan", "noon", "2024-13-01", "2024-01-01T1", "2024-01-01x10:00:00", "2024-01-01T10:00:00+x", "é"]
        {
            assert!(moment(Cell::Written(text)).is_err(), "{text}");
        }
    }
}
