//! Episodes that a column names, and the order of rows within them.

use super::alike::Alike;
use super::cell::Cell;
use super::contradictions::{End, Sight};
use super::moment::Moment;
use std::cmp::Ordering;
use std::collections::HashMap;

/// Where a row stands in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilePlace {
    /// Line or row of the file.
    pub(super) line: u64,
    /// Its `seq` as the file has it, or, in a file without one, its number in its stream from 0.
    pub(super) seq: u64,
}

/// What the columns say of where the next row stands.
#[derive(Debug)]
pub(super) struct Next {
    /// Name of its episode.
    pub(super) key: String,
    pub(super) time: Moment,
    pub(super) frame: f64,
    /// A time that rows are not sorted by.
    pub(super) clock: Moment,
}

/// Which episode each row belongs to, and where it stands there.
#[derive(Debug)]
pub(super) struct Order {
    /// Whether there is a column that names episodes.
    pub(super) named: bool,
    /// Whether rows are not kept, so that nothing is kept of each of them.
    in_pieces: bool,
    ids: HashMap<(u32, String), u32>,
    pub(super) names: Vec<String>,
    pub(super) alike: Alike,
    /// Of each stream the last row: its episode, time and frame.
    last: Vec<Option<(u32, Moment, f64)>>,
    /// Whether rows must be sorted.
    pub(super) disordered: bool,
    /// Of each row its episode.
    pub(super) episodes: Vec<u32>,
    /// Of each row what it is sorted by within its episode, if by anything, and told apart by.
    moments: Vec<Moment>,
    /// Of each row a hash of what is learned from it.
    prints: Vec<u64>,
    /// Of each row its number in its episode.
    pub(super) frames: Vec<u64>,
    /// Rows of each episode so far.
    counts: Vec<u64>,
    /// Of each row whether it does not continue the one before it in its episode.
    pub(super) opens: Vec<bool>,
    pub(super) next: Next,
}

impl Default for Next {
    fn default() -> Self {
        Self { key: String::new(), time: Moment::NONE, frame: f64::NAN, clock: Moment::NONE }
    }
}

impl Next {
    /// What tells the row apart from the others of its episode.
    pub(super) fn moment(&self) -> Moment {
        match () {
            () if !self.time.is_none() => self.time,
            () if !self.frame.is_nan() => Moment::of(self.frame),
            () => self.clock,
        }
    }
}

impl Order {
    pub(super) fn new(named: bool, in_pieces: bool) -> Self {
        Self {
            named,
            in_pieces,
            ids: HashMap::new(),
            names: Vec::new(),
            alike: Alike::default(),
            last: Vec::new(),
            disordered: false,
            episodes: Vec::new(),
            moments: Vec::new(),
            prints: Vec::new(),
            frames: Vec::new(),
            counts: Vec::new(),
            opens: Vec::new(),
            next: Next::default(),
        }
    }

    /// Number of the next row's episode, which stands at `line`; 0 where none is named.
    pub(super) fn episode(&mut self, stream: u32, line: u64) -> u32 {
        if !self.named {
            return 0;
        }
        let next = self.names.len() as u32;
        let id = *self.ids.entry((stream, self.next.key.clone())).or_insert(next);
        if id == next {
            self.alike.see(stream, &self.next.key, line);
            self.names.push(self.next.key.clone());
            self.counts.push(0);
        }
        id
    }

    /// Take a row of a stream in; whether it starts a chain, by what it says itself or by episode, time or frame.
    pub(super) fn take(&mut self, stream: u32, row: &Sight) -> bool {
        let Next { time, frame, .. } = self.next;
        if self.last.len() <= stream as usize {
            self.last.resize(stream as usize + 1, None);
        }
        let before = self.last[stream as usize].replace((row.episode, time, frame));
        let (mut starts, mut skips) = (row.opens, false);
        if let Some((episode, time_before, frame_before)) = before {
            let same = episode == row.episode;
            let falls = time < time_before || (time.is_none() && frame < frame_before);
            skips = frame - frame_before > 1.0;
            // An episode that comes again, or whose rows are mixed up.
            let again = !same && self.named && self.counts[row.episode as usize] > 0;
            self.disordered |= self.named && (again || (same && falls));
            starts |= !same || falls || skips;
            skips &= same;
        }
        if self.named {
            self.counts[row.episode as usize] += 1;
            if !self.in_pieces {
                self.keep(row, skips);
            }
        }
        starts
    }

    fn keep(&mut self, row: &Sight, skips: bool) {
        let number = self.counts[row.episode as usize] - 1;
        self.episodes.push(row.episode);
        self.frames.push(if self.next.frame.is_nan() { number } else { self.next.frame as u64 });
        self.moments.push(row.moment);
        self.prints.push(row.print);
        self.opens.push(row.opens || skips);
    }

    /// What was seen of row i, at `line`, with this end, and whether it gives its state alone.
    pub(super) fn sight(&self, i: usize, line: u64, end: Option<End>, bare: bool) -> Sight {
        Sight {
            line,
            episode: self.episodes[i],
            moment: self.moments[i],
            print: self.prints[i],
            end,
            bare,
            opens: self.opens[i],
        }
    }

    /// The order in which rows should be: episodes as they first appear, in each by time or frame, else as in the file.
    pub(super) fn sorted(&self) -> Vec<usize> {
        let sorts = !self.next.time.is_none() || !self.next.frame.is_nan();
        let by_time = |i: usize, j: usize| match sorts {
            true => self.moments[i].partial_cmp(&self.moments[j]).unwrap_or(Ordering::Equal),
            false => Ordering::Equal,
        };
        let mut order: Vec<usize> = (0..self.episodes.len()).collect();
        order.sort_by(|&i, &j| self.episodes[i].cmp(&self.episodes[j]).then_with(|| by_time(i, j)));
        order
    }

    /// Put the rows into this order, and number them in their episodes where no column does.
    pub(super) fn permute(&mut self, order: &[usize]) {
        self.episodes = order.iter().map(|&i| self.episodes[i]).collect();
        self.moments = order.iter().map(|&i| self.moments[i]).collect();
        self.prints = order.iter().map(|&i| self.prints[i]).collect();
        self.frames = order.iter().map(|&i| self.frames[i]).collect();
        self.opens = order.iter().map(|&i| self.opens[i]).collect();
        if self.next.frame.is_nan() {
            let mut counts = vec![0; self.names.len()];
            let number = |&episode: &u32| {
                counts[episode as usize] += 1;
                counts[episode as usize] - 1
            };
            self.frames = self.episodes.iter().map(number).collect();
        }
    }
}

/// The name of an episode: a text or a whole number.
pub(super) fn episode(cell: Cell<'_>, key: &mut String) -> Result<(), String> {
    key.clear();
    match cell {
        Cell::Written("") | Cell::Text("") | Cell::Empty => {
            return Err("empty; every row belongs to an episode".to_owned());
        }
        Cell::Written(text) | Cell::Ambiguous(text) | Cell::Text(text) => key.push_str(text),
        Cell::Whole(value) => key.push_str(&value.to_string()),
        Cell::Number(value) if value.fract() == 0.0 && value.abs() < 9e15 => key.push_str(&format!("{value:.0}")),
        Cell::Number(_) | Cell::Flag(_) => {
            return Err(format!("{cell} names no episode; a text or a whole number does"));
        }
    }
    Ok(())
}
