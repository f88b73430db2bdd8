//! The last rows and the returns that followed them.

use super::trajectories::Tails;
use crate::hindsight::Rewards;
use crate::learner::window::Window;
use crate::transition::Rows;
use std::collections::{HashMap, VecDeque};

/// Rows kept, and the bytes that they may take about.
const ROWS_MAX: usize = 20_000;
const BYTES: usize = 8 << 20;
/// Rows kept of states of any dimension.
const ROWS_MIN: usize = 256;

/// Seconds for which it is known when rows came.
const TIMED_S: f64 = 900.0;

/// Rows that came together: from offset `from` up to `to`, between two Unix times.
#[derive(Clone, Copy, Debug)]
struct Notice {
    from: u64,
    to: u64,
    since: f64,
    until: f64,
}

/// Rows of the last seconds or minutes, in the order of the stream of rows.
#[derive(Debug, Default)]
pub(super) struct Recent {
    rows: Option<Rows>,
    /// Offset behind the last of them.
    end: u64,
    /// Names of the streams that sent something last, by number.
    names: HashMap<u32, String>,
    /// The last minutes of each stream.
    tails: Tails,
    /// When rows came, where that is known; oldest first.
    notices: VecDeque<Notice>,
}

impl Recent {
    /// No rows yet; the tails of streams will have the returns of these critics.
    pub(super) fn new(critics: &[Rewards]) -> Self {
        Self { tails: Tails::new(critics), ..Self::default() }
    }

    /// Keep the new rows of `window` for which there is room, the last ones. They have come by the Unix time `now`.
    pub(super) fn take(&mut self, window: &Window, names: &[(u32, String)], now: f64) {
        self.names.clear();
        self.names.extend(names.iter().cloned());
        if self.end < window.start() {
            self.tails.cut();
        }
        let first = self.end.max(window.start());
        if let Some(since) = self.tails.take(window, first, names, now).filter(|_| first < window.end()) {
            self.notices.push_back(Notice { from: first, to: window.end(), since, until: now });
        }
        while self.notices.front().is_some_and(|notice| notice.until < now - TIMED_S) {
            self.notices.pop_front();
        }
        let most = (BYTES / Rows::bytes_per_row(window.dim(), window.rewards_per_row())).clamp(ROWS_MIN, ROWS_MAX);
        let alike = |rows: &Rows| (rows.dim, rows.rewards_per_row) == (window.dim(), window.rewards_per_row());
        if self.end < window.start() || !self.rows.as_ref().is_some_and(alike) {
            // Rows are missing: what followed those before is unknown.
            self.rows = None;
        }
        let from = self.end.max(window.start()).max(window.end().saturating_sub(most as u64));
        if from > self.end {
            self.rows = None;
        }
        for (rows, range, _) in window.since(from) {
            self.rows.get_or_insert_with(|| rows.without_rows()).extend(rows, range);
        }
        self.end = window.end();
        // Half is forgotten at a time, so that a row is moved once on average.
        if let Some(rows) = self.rows.as_mut().filter(|rows| rows.len() > 2 * most) {
            let mut kept = rows.without_rows();
            kept.extend(rows, rows.len() - most..rows.len());
            *rows = kept;
        }
    }

    /// The rows, once there are any.
    pub(super) fn rows(&self) -> Option<&Rows> {
        self.rows.as_ref()
    }

    /// Offset behind the last row.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Offset of row i.
    pub(super) fn offset(&self, i: usize) -> u64 {
        self.end - (self.rows.as_ref().map_or(0, Rows::len) - i) as u64
    }

    /// The Unix time at which the row of this offset came, about: the rows of a notice are spread over the time since the
    /// notice before.
    pub(super) fn time(&self, offset: u64) -> Option<f64> {
        let notice = self.notices.get(self.notices.partition_point(|notice| notice.to <= offset))?;
        let share = (offset.checked_sub(notice.from)? + 1) as f64 / (notice.to - notice.from) as f64;
        Some(notice.since + (notice.until - notice.since) * share)
    }

    /// The last minutes of each stream.
    pub(super) fn tails(&self) -> &Tails {
        &self.tails
    }

    #[cfg(test)]
    pub(super) fn tails_mut(&mut self) -> &mut Tails {
        &mut self.tails
    }

    /// Name of a stream, if it has a tail or is one of those that sent something last.
    pub(super) fn name(&self, stream: u32) -> Option<&str> {
        let known = self.names.get(&stream).map(String::as_str);
        known.or_else(|| self.tails.of(stream)?.name.as_deref())
    }

    /// Number of the stream of this name.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        let known = self.names.iter().find(|(_, known)| *known == name).map(|(number, _)| *number);
        known.or_else(|| self.tails.number(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hindsight::{Followed, followed};
    use crate::monitor::testing::{Row, push};

    fn row(stream: u32, starts: bool, reward: f64, terminated: bool) -> Row {
        Row { stream, starts, state: 0.0, reward, terminated }
    }

    #[test]
    fn returns_are_those_of_each_stream_and_known_only_where_enough_followed() {
        let mut window = Window::new(1, 1, 1000);
        // Two streams, interleaved: stream 0 terminates, begins again and is cut by a new chain; stream 1 goes on.
        let rows = [
            row(0, true, 1.0, false),
            row(1, true, 8.0, false),
            row(0, false, 2.0, true),
            row(0, true, 5.0, false),
            row(0, true, 7.0, false),
            row(1, false, 4.0, false),
        ];
        rows.iter().for_each(|row| push(&mut window, row));
        let mut recent = Recent::default();
        recent.take(&window, &[(0, "a".into()), (1, "b".into())], 1.0);
        let found = followed(recent.rows().unwrap(), 0, 0.5);
        let known: Vec<Option<f64>> = found.iter().map(|f| f.known(|_| 100.0)).collect();
        assert_eq!(known, [Some(2.0), None, Some(2.0), None, None, None]);
        assert_eq!(found[1], Followed::new(10.0, 0.25, 5));
        assert_eq!(found[3], Followed::new(5.0, 0.5, 3));
        assert_eq!((recent.offset(0), recent.offset(5), recent.number("b")), (0, 5, Some(1)));

        // Seven rows later what is left of stream 1 counts for less than a hundredth.
        (0..5).for_each(|_| push(&mut window, &row(1, false, 0.0, false)));
        recent.take(&window, &[], 2.0);
        let first = followed(recent.rows().unwrap(), 0, 0.5)[1];
        assert_eq!((first.known(|tail| tail as f64), first.tail()), (Some(10.0 + 10.0 / 128.0), Some(10)));
    }

    #[test]
    fn rows_are_kept_in_bounded_memory_and_gaps_begin_anew() {
        let mut recent = Recent::default();
        let mut window = Window::new(1, 1, 100_000);
        for round in 0..30 {
            (0..4096).for_each(|_| push(&mut window, &row(0, false, f64::from(round), false)));
            recent.take(&window.from_offset(recent.end()), &[], f64::from(round));
            let rows = recent.rows().unwrap();
            assert!(rows.len() <= 2 * ROWS_MAX && rows.reward(rows.len() - 1)[0] == f64::from(round));
        }
        assert!(recent.rows().unwrap().len() >= ROWS_MAX);
        let mut later = Window::starting_at(1, 1, 100, 1_000_000);
        push(&mut later, &row(0, false, 9.0, false));
        recent.take(&later, &[], 30.0);
        assert_eq!((recent.rows().unwrap().len(), recent.offset(0)), (1, 1_000_000));
    }
}
