//! The last minutes of each stream, thinned: a stop stands for some rows of a stream that follow each other.
//!
//! ```text
//! R = r_i + gamma_i r_(i+1) + ...,   F = gamma_i gamma_(i+1) ...      over the rows of a stop
//! G_k = R_k + F_k G_(k+1)                                             returns, however many rows a stop stands for
//! ```
//! A stop never goes beyond the end of a chain. A row has the time at which it came: the rows of one notice are spread over the
//! second before it.

use crate::hindsight::{Followed, Rewards, weight};
use crate::learner::window::Window;
use crate::transition::Rows;
use std::collections::{HashMap, VecDeque};

/// Streams whose tails are kept; beyond them one that has been silent for [`SILENT_S`] makes room for another.
const STREAMS: usize = 32;
const MAKES_ROOM_S: f64 = 60.0;
/// Seconds without rows after which a stream is silent.
const SILENT_S: f64 = 10.0;
/// Stops of a stream, and the bytes that the stops of all streams may take about.
const STOPS: usize = 4096;
const STOPS_MIN: usize = 64;
const BYTES: usize = 16 << 20;
/// Seconds that a tail reaches back.
const REACH_S: f64 = 900.0;
/// Seconds over which the rows of a notice are spread.
const NOTICE_S: f64 = 1.0;
/// Different pairs of discount and reward column whose returns are followed.
const SUMS: usize = 16;

/// Rows of a stream that follow each other.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct TrajectoryRows {
    /// Offsets of its first row and of its last one.
    pub(super) first: u64,
    pub(super) last: u64,
    /// Unix seconds at which its first row came, about.
    pub(super) time: f64,
    pub(super) rows: u32,
    /// (D,) of the first row.
    pub(super) state: Vec<f64>,
    /// (D,) successor of the last row.
    pub(super) next: Vec<f64>,
    /// (H,) sums of its rewards, not discounted.
    pub(super) rewards: Vec<f64>,
    /// R and F of each pair of discount and reward column. F is not a number, or infinite, where an importance ratio is not 1.
    pub(super) sums: Vec<[f64; 2]>,
    pub(super) starts: bool,
    pub(super) terminated: bool,
    pub(super) truncated: bool,
}

impl TrajectoryRows {
    fn ends(&self) -> bool {
        self.terminated || self.truncated
    }

    /// Go on with the stop that follows.
    fn join(&mut self, later: Self) {
        (self.last, self.next) = (later.last, later.next);
        self.rows += later.rows;
        self.rewards.iter_mut().zip(&later.rewards).for_each(|(sum, reward)| *sum += reward);
        for (own, [gathered, weight]) in self.sums.iter_mut().zip(later.sums) {
            *own = [own[0] + own[1] * gathered, own[1] * weight];
        }
        (self.terminated, self.truncated) = (later.terminated, later.truncated);
    }

    /// Go on with row i, without memory of its own.
    fn extend(&mut self, rows: &Rows, i: usize, offset: u64, kinds: &[ReturnKind]) {
        self.last = offset;
        self.next.copy_from_slice(rows.next_state(i));
        self.rows += 1;
        self.rewards.iter_mut().zip(rows.reward(i)).for_each(|(sum, reward)| *sum += reward);
        for (own, kind) in self.sums.iter_mut().zip(kinds) {
            let [gathered, weight] = kind.of(rows, i);
            *own = [own[0] + own[1] * gathered, own[1] * weight];
        }
        (self.terminated, self.truncated) = (rows.terminated[i], rows.truncated[i]);
    }
}

/// What a return is made of.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ReturnKind {
    discount: f64,
    column: usize,
}

impl ReturnKind {
    /// Reward of row i, and weight of what follows it.
    fn of(self, rows: &Rows, i: usize) -> [f64; 2] {
        [rows.reward(i)[self.column], weight(rows, i, self.discount)]
    }
}

/// The tail of one stream.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// None until a list of streams has named it.
    pub(super) name: Option<String>,
    /// Oldest first.
    pub(super) stops: VecDeque<TrajectoryRows>,
    /// Rows of a stop.
    every: u32,
    /// Unix seconds of its last row, about.
    pub(super) heard: f64,
    /// (D,) where it is now: the successor of its last row.
    pub(super) newest: Vec<f64>,
    /// Whether rows came before its first stop whose time is not known.
    pub(super) untimed: bool,
    /// Whether rows are missing before the next one.
    broken: bool,
}

impl Tail {
    fn add(&mut self, rows: &Rows, i: usize, (offset, time): (u64, f64), kinds: &[ReturnKind]) {
        let starts = rows.starts_chain[i] || self.broken || self.stops.back().is_none_or(TrajectoryRows::ends);
        self.broken = false;
        if let Some(last) = self.stops.back_mut().filter(|last| !starts && last.rows < self.every) {
            last.extend(rows, i, offset, kinds);
            return;
        }
        self.stops.push_back(TrajectoryRows {
            first: offset,
            last: offset,
            time,
            rows: 1,
            state: rows.state(i).to_vec(),
            next: rows.next_state(i).to_vec(),
            rewards: rows.reward(i).to_vec(),
            sums: kinds.iter().map(|kind| kind.of(rows, i)).collect(),
            starts,
            terminated: rows.terminated[i],
            truncated: rows.truncated[i],
        });
    }

    /// Forget what is too old, and stand for more rows with each stop where there are more stops than `most`.
    fn thin(&mut self, most: usize, now: f64) {
        while self.stops.front().is_some_and(|stop| stop.time < now - REACH_S) {
            self.stops.pop_front();
        }
        if self.stops.len() < most / 4 {
            self.every = (self.every / 2).max(1);
        }
        while self.stops.len() > most {
            self.every *= 2;
            let before = std::mem::take(&mut self.stops);
            let count = before.len();
            for stop in before {
                match self.stops.back_mut() {
                    Some(last) if !stop.starts && last.rows + stop.rows <= self.every => last.join(stop),
                    _ => self.stops.push_back(stop),
                }
            }
            if self.stops.len() > count / 4 * 3 {
                self.skip();
            }
        }
    }

    /// Forget every other chain but the last, where chains are so short that their stops cannot be joined.
    fn skip(&mut self) {
        let mut later = self.stops.iter().filter(|stop| stop.starts).count();
        self.stops.retain(|stop| {
            later -= usize::from(stop.starts);
            later % 2 == 0
        });
    }

    /// Rows per second over the last `seconds`, as far as they are known; none where that are fewer than two.
    pub(super) fn rate(&self, seconds: f64) -> Option<f64> {
        let last = self.stops.back()?;
        let first = self.stops.partition_point(|stop| stop.time < last.time - seconds);
        let rows: u32 = self.stops.range(first..self.stops.len() - 1).map(|stop| stop.rows).sum();
        let lasted = last.time - self.stops[first].time;
        (lasted > 0.0).then(|| f64::from(rows) / lasted)
    }

    /// What followed each stop under pair number `sum`.
    pub(super) fn followed(&self, sum: usize) -> Vec<Followed> {
        let mut later: Option<Followed> = None;
        let mut out: Vec<Followed> = Vec::with_capacity(self.stops.len());
        for (k, stop) in self.stops.iter().enumerate().rev() {
            let [gathered, weight] = stop.sums[sum];
            let followed = match later.filter(|_| !stop.ends()) {
                Some(later) => later.behind(gathered, weight),
                None => Followed::new(gathered, weight, k),
            };
            later = (!stop.starts).then_some(followed);
            out.push(followed);
        }
        out.reverse();
        out
    }
}

/// The tails of all streams.
#[derive(Debug, Default)]
pub(super) struct Tails {
    kinds: Vec<ReturnKind>,
    /// By the number of the stream.
    by_stream: HashMap<u32, Tail>,
    /// Numbers of a state; 0 before the first row.
    dim: usize,
    /// Unix seconds of the last notice of rows; none before the first.
    heard: Option<f64>,
}

impl Tails {
    /// No rows yet; returns will be of these critics.
    pub(super) fn new(critics: &[Rewards]) -> Self {
        let mut kinds: Vec<ReturnKind> = Vec::new();
        for rewards in critics {
            for &column in &rewards.columns {
                let kind = ReturnKind { discount: rewards.discount, column };
                if kinds.len() < SUMS && !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
        }
        Self { kinds, ..Self::default() }
    }

    /// Number of the pair of this discount and reward column, if its returns are followed.
    pub(super) fn sum(&self, discount: f64, column: usize) -> Option<usize> {
        self.kinds.iter().position(|kind| *kind == ReturnKind { discount, column })
    }

    /// Take in the rows of `window` from offset `from` on, which have come by the Unix time `now`. Nothing says when the rows
    /// of the first notice came: a start hands over rows of an earlier run. Otherwise this is the Unix time from which on they
    /// came, about.
    pub(super) fn take(&mut self, window: &Window, from: u64, names: &[(u32, String)], now: f64) -> Option<f64> {
        if self.dim != window.dim() {
            self.by_stream.clear();
            self.dim = window.dim();
        }
        let since = self.heard.map(|heard| heard.max(now - NOTICE_S));
        self.heard = Some(now);
        let count = (window.end() - from).max(1) as f64;
        let kinds = std::mem::take(&mut self.kinds);
        for (rows, range, first) in window.since(from) {
            for i in range.clone() {
                let offset = first + (i - range.start) as u64;
                let Some(tail) = self.tail(rows.streams[i], now) else { continue };
                tail.heard = now;
                tail.newest.clear();
                tail.newest.extend_from_slice(rows.next_state(i));
                let Some(since) = since else {
                    tail.untimed = true;
                    continue;
                };
                let time = since + (now - since) * ((offset - from) as f64 + 1.0) / count;
                tail.add(rows, i, (offset, time), &kinds);
            }
        }
        self.kinds = kinds;
        for (number, name) in names {
            if let Some(tail) = self.by_stream.get_mut(number).filter(|tail| tail.name.is_none()) {
                tail.name = Some(name.clone());
            }
        }
        let each = size_of::<TrajectoryRows>()
            + size_of::<f64>() * (2 * self.dim + window.rewards_per_row() + 2 * self.kinds.len());
        let most = (BYTES / each / self.by_stream.len().max(1)).clamp(STOPS_MIN, STOPS);
        self.by_stream.values_mut().for_each(|tail| tail.thin(most, now));
        since
    }

    /// The tail of a stream, a new one where there is room for it.
    fn tail(&mut self, stream: u32, now: f64) -> Option<&mut Tail> {
        if !self.by_stream.contains_key(&stream) && self.by_stream.len() >= STREAMS {
            let (&oldest, tail) = self.by_stream.iter().min_by(|a, b| a.1.heard.total_cmp(&b.1.heard))?;
            if now - tail.heard < MAKES_ROOM_S {
                return None;
            }
            self.by_stream.remove(&oldest);
        }
        Some(self.by_stream.entry(stream).or_insert_with(|| Tail { every: 1, ..Tail::default() }))
    }

    /// Rows are missing before the next ones.
    pub(super) fn cut(&mut self) {
        self.by_stream.values_mut().for_each(|tail| tail.broken = true);
    }

    /// The tail of a stream.
    pub(super) fn of(&self, stream: u32) -> Option<&Tail> {
        self.by_stream.get(&stream)
    }

    /// Number of the stream of this name, if it has a tail.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        self.by_stream.iter().find(|(_, tail)| tail.name.as_deref() == Some(name)).map(|(number, _)| *number)
    }

    /// The tails that have names, in the order of these.
    pub(super) fn named(&self) -> Vec<(&str, &Tail)> {
        let mut out: Vec<(&str, &Tail)> =
            self.by_stream.values().filter_map(|tail| Some((tail.name.as_deref()?, tail))).collect();
        out.sort_by_key(|(name, _)| *name);
        out
    }

    /// Whether a tail has had no rows for a while, though others had.
    pub(super) fn is_silent(&self, tail: &Tail) -> bool {
        self.heard.is_some_and(|heard| heard - tail.heard > SILENT_S)
    }
}

#[cfg(test)]
mod tests {
    use super::super::row_buffer::Recent;
    use super::*;
    use crate::hindsight::followed;
    use crate::monitor::testing::{Row, push};

    const HALF: f64 = 0.5;

    fn rewards() -> Vec<Rewards> {
        vec![Rewards { discount: HALF, columns: vec![0], successor: None }]
    }

    fn row(stream: u32, starts: bool, reward: f64, terminated: bool) -> Row {
        Row { stream, starts, state: reward, reward, terminated }
    }

    #[test]
    fn returns_are_those_of_all_rows_however_many_a_stop_stands_for() {
        let mut window = Window::new(1, 1, 100_000);
        let mut recent = Recent::new(&rewards());
        recent.take(&window, &[], 0.0);
        // Chains of 40 rows, some of which terminate.
        for i in 0..4000u32 {
            push(&mut window, &row(0, i % 40 == 0, f64::from(i * 7919 % 97), i % 80 == 79));
        }
        recent.take(&window, &[(0, "a".into())], 1.0);
        let exact: HashMap<u64, Option<f64>> = followed(recent.rows().unwrap(), 0, HALF)
            .iter()
            .enumerate()
            .map(|(i, followed)| (recent.offset(i), followed.known(|_| 3.0)))
            .collect();
        let mut known = 0;
        let tails = recent.tails_mut();
        for most in [4000, 900, 300, 80] {
            tails.by_stream.get_mut(&0).unwrap().thin(most, 1.0);
            let tail = tails.of(0).unwrap();
            assert!(tail.stops.len() <= most && tail.stops.len() > most / 5, "{} of {most}", tail.stops.len());
            for (stop, followed) in tail.stops.iter().zip(tail.followed(0)) {
                let (found, expected) = (followed.known(|_| 3.0), exact[&stop.first]);
                // The return of a chain that is cut is unknown in its last rows.
                assert_eq!(found.is_some(), expected.is_some(), "{stop:?}");
                if let (Some(found), Some(expected)) = (found, expected) {
                    assert!((found - expected).abs() < 1e-9, "{found} {expected}");
                    known += 1;
                }
            }
        }
        assert!(known > 1000);
    }

    #[test]
    fn rows_have_the_times_at_which_they_came_but_for_those_of_before() {
        let (mut tails, mut window) = (Tails::new(&rewards()), Window::new(1, 1, 1000));
        (0..10).for_each(|i| push(&mut window, &row(0, i == 0, 1.0, false)));
        tails.take(&window, 0, &[(0, "a".into())], 100.0);
        assert_eq!((tails.of(0).unwrap().stops.len(), &tails.of(0).unwrap().newest), (0, &vec![1.0]));
        (0..4).for_each(|_| push(&mut window, &row(0, false, 2.0, false)));
        tails.take(&window, 10, &[], 107.0);
        let times: Vec<f64> = tails.of(0).unwrap().stops.iter().map(|stop| stop.time).collect();
        assert_eq!(times, [106.25, 106.5, 106.75, 107.0]);
        push(&mut window, &row(1, true, 3.0, false));
        tails.take(&window, 14, &[(1, "b".into())], 118.0);
        let names: Vec<(&str, bool)> =
            tails.named().iter().map(|(name, tail)| (*name, tails.is_silent(tail))).collect();
        assert_eq!(names, [("a", true), ("b", false)]);
        // What is older than a quarter of an hour goes.
        push(&mut window, &row(0, false, 2.0, false));
        tails.take(&window, 15, &[], 107.0 + REACH_S);
        assert_eq!(tails.of(0).unwrap().stops.len(), 2);
    }

    #[test]
    fn many_streams_keep_their_tails_and_memory_is_bounded() {
        let (mut tails, mut window) = (Tails::new(&rewards()), Window::new(1, 1, 1_000_000));
        let mut from = 0;
        for second in 0..40 {
            for i in 0..8000u32 {
                // Forty streams, of which the last eight find no room.
                push(&mut window, &row(i % 40, second == 0 && i < 40, 1.0, i % 4000 >= 3960));
            }
            tails.take(&window.from_offset(from), from, &[], f64::from(second));
            from = window.end();
        }
        assert_eq!(tails.by_stream.len(), STREAMS);
        assert!((0..32).all(|stream| tails.of(stream).is_some_and(|tail| tail.stops.len() <= STOPS)));
        let tail = tails.of(0).unwrap();
        assert!(tail.stops.front().unwrap().time < 3.0 && tail.stops.back().unwrap().time > 38.0, "all of it");
        // A silent stream makes room.
        push(&mut window, &row(39, true, 1.0, false));
        tails.take(&window.from_offset(from), from, &[], 200.0);
        assert!(tails.of(39).is_some() && tails.by_stream.len() == STREAMS);
    }
}
