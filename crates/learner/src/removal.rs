//! Rows that are taken back: which these are, and what of their chains stays.
//!
//! A model is a sum over chains. It loses rows by losing every chain that holds one of them, whole, and learning again what stays of
//! these chains ([`crate::model::Model::remove`]): the piece before a hole is closed by the value of its last successor, the first row
//! behind the hole starts a chain. Offsets stay: removed rows leave holes, and nothing is numbered anew.

pub use crate::offsets::Offsets;
use crate::transition::{ACTION_NUMBERS_MAX, Batch, Rows};
use crate::window::Window;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Some rows, by what is known of all of them. Several are one union.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Selector {
    /// All rows of a stream.
    Stream(String),
    /// All rows of one session of a stream.
    Session {
        /// Name of the stream.
        stream: String,
        /// Name of the session.
        session: String,
    },
    /// Rows with these offsets.
    Offsets(Range<u64>),
    /// Rows whose own time, in seconds, lies in this range. Rows without a time are not among them.
    Times(Range<f64>),
}

/// What selectors ask of a row.
#[derive(Clone, Copy, Debug)]
pub struct RowPlace<'a> {
    /// Offset.
    pub offset: u64,
    /// Name of its stream.
    pub stream: &'a str,
    /// Name of its session, "" where it has none.
    pub session: &'a str,
    /// Its own time in seconds; none where the producer gave none.
    pub time: Option<f64>,
}

impl Selector {
    /// Whether the row is one of these.
    pub fn selects(&self, row: &RowPlace<'_>) -> bool {
        match self {
            Self::Stream(stream) => stream == row.stream,
            Self::Session { stream, session } => stream == row.stream && session == row.session,
            Self::Offsets(range) => range.contains(&row.offset),
            Self::Times(range) => row.time.is_some_and(|time| range.contains(&time)),
        }
    }
}

/// The rows that selectors name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolved {
    /// Their offsets.
    pub offsets: Offsets,
    /// Rows that no selector names and that have no time, where some selector asks for times.
    pub without_time: u64,
}

/// The rows that `selectors` name among `rows`. That is done once: rows that come later are not among them.
pub fn resolve<'a>(selectors: &[Selector], rows: impl IntoIterator<Item = RowPlace<'a>>) -> Resolved {
    let asks_for_times = selectors.iter().any(|selector| matches!(selector, Selector::Times(_)));
    let mut found = Resolved::default();
    for row in rows {
        if selectors.iter().any(|selector| selector.selects(&row)) {
            found.offsets.insert(row.offset..row.offset + 1);
        } else if asks_for_times && row.time.is_none() {
            found.without_time += 1;
        }
    }
    found
}

/// Rows in the order of their offsets, of which some may lie between.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Placed {
    /// The rows.
    pub rows: Rows,
    /// Offset of each, ascending (n,).
    pub offsets: Vec<u64>,
}

impl Placed {
    /// These rows, the first of which has offset `first`, and which follow one another.
    pub fn from_offset(rows: Rows, first: u64) -> Self {
        let offsets = (first..first + rows.len() as u64).collect();
        Self { rows, offsets }
    }

    /// None yet, of states (D,) and rewards (H,).
    pub fn new(dim: usize, rewards_per_row: usize) -> Self {
        Self { rows: Rows::new(dim, rewards_per_row), offsets: Vec::new() }
    }

    /// Put rows of a batch behind these: those of `range`, of stream number `stream`, the first of which has offset `first`.
    ///
    /// # Panics
    /// If they have other dimensions, or lie before the last of these.
    pub fn push(&mut self, stream: u32, starts_chain: &[bool], batch: &Batch, range: Range<usize>, first: u64) {
        assert!(self.offsets.last().is_none_or(|&last| last < first), "rows in the order of their offsets");
        self.rows.widen(batch.action(0).map_or(0, <[f64]>::len).min(ACTION_NUMBERS_MAX), batch.time(0).is_some());
        self.offsets.extend(first..first + range.len() as u64);
        self.rows.extend_from_batch(stream, starts_chain, batch, range);
    }

    /// Put the rows of a window from offset `from` on behind these, and give all of them the labels that the window has.
    pub fn join(&mut self, window: &Window, from: u64) {
        for (rows, range, first) in window.since(from) {
            self.rows.widen(rows.actions_per_row, rows.keeps_times);
            self.offsets.extend(first..first + range.len() as u64);
            self.rows.extend(rows, range);
        }
        let offsets: Offsets = self.offsets.iter().map(|&offset| offset..offset + 1).collect();
        self.rows.labels.set(&[], &offsets, self.offsets.len());
        self.rows.labels.set(window.labels(), &offsets, self.offsets.len());
    }

    /// Number of rows n.
    pub fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// The same without the rows that are removed: the next row of the stream of each of them starts a chain.
    ///
    /// # Panics
    /// If there is not one offset for each row.
    #[must_use]
    pub fn without(&self, removed: &Offsets) -> Self {
        self.only(|i| !removed.contains(self.offsets[i]), true)
    }

    /// Rows that follow one another, piece by piece, each with the offset of its first row.
    pub fn pieces(&self) -> impl Iterator<Item = (&Rows, Range<usize>, u64)> {
        let mut from = 0;
        std::iter::from_fn(move || {
            let first = *self.offsets.get(from)?;
            let follows = |&i: &usize| self.offsets[i] == first + (i - from) as u64;
            let end = (from + 1..self.len()).find(|i| !follows(i)).unwrap_or(self.len());
            let piece = (&self.rows, from..end, first);
            from = end;
            Some(piece)
        })
    }

    /// Those that were learned: behind one that was not a chain starts.
    pub(crate) fn learned(&self, learned: &Offsets) -> Self {
        self.only(|i| learned.contains(self.offsets[i]), true)
    }

    /// The rows whose numbers are `wanted`; if those that are left out are `holes`, the next row of the stream of each starts a chain.
    fn only(&self, wanted: impl Fn(usize) -> bool, holes: bool) -> Self {
        assert_eq!(self.offsets.len(), self.rows.len(), "one offset for each row");
        let numbers: Vec<usize> = (0..self.len()).filter(|&i| wanted(i)).collect();
        let mut rows = self.rows.only(&numbers);
        if holes {
            let mut behind_hole = PerStream::new(false);
            let mut next = 0;
            for i in 0..self.len() {
                let hole = behind_hole.of(self.rows.streams[i]);
                if numbers.get(next) == Some(&i) {
                    rows.starts_chain[next] |= std::mem::take(hole);
                    next += 1;
                } else {
                    *hole = true;
                }
            }
        }
        Self { rows, offsets: numbers.into_iter().map(|i| self.offsets[i]).collect() }
    }

    /// Number of its chain of each row (n,), in the order of their first rows: chains are what rows of one stream, one behind the other,
    /// make up until one of them terminates, is truncated, or starts another.
    pub fn chains(&self) -> Vec<usize> {
        let (mut chains, mut count) = (Vec::with_capacity(self.len()), 0);
        let mut running = PerStream::new(None);
        for (i, &stream) in self.rows.streams.iter().enumerate() {
            let runs = running.of(stream);
            let chain = runs.filter(|_| !self.rows.starts_chain[i]).unwrap_or_else(|| {
                count += 1;
                count - 1
            });
            *runs = Some(chain).filter(|_| !self.ends(i));
            chains.push(chain);
        }
        chains
    }

    /// Whether row i says that its chain ends with it.
    fn ends(&self, i: usize) -> bool {
        self.rows.terminated[i] || self.rows.truncated[i]
    }
}

/// A value for each stream, by its number.
struct PerStream<T> {
    values: Vec<T>,
    first: T,
}

impl<T: Clone> PerStream<T> {
    fn new(first: T) -> Self {
        Self { values: Vec::new(), first }
    }

    fn of(&mut self, stream: u32) -> &mut T {
        let stream = stream as usize;
        if self.values.len() <= stream {
            self.values.resize(stream + 1, self.first.clone());
        }
        &mut self.values[stream]
    }
}

/// Some chains among the rows of a stream, learned as these rows were.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LearnedChains {
    pub(crate) rows: Placed,
    /// Streams whose chain is closed before the row of this offset, which is not among the rows; ascending.
    pub(crate) closings: Vec<(u64, u32)>,
    /// Streams whose chain runs behind the last row, in the order of their numbers.
    pub(crate) running: Vec<u32>,
}

impl LearnedChains {
    /// The rows of `all` whose numbers are `wanted`, whole chains.
    fn new(all: &Placed, wanted: impl Fn(usize) -> bool) -> Self {
        let (mut closings, mut open) = (Vec::new(), PerStream::new(false));
        for (i, &stream) in all.rows.streams.iter().enumerate() {
            let open = open.of(stream);
            if wanted(i) {
                *open = !all.ends(i);
            } else if std::mem::take(open) {
                closings.push((all.offsets[i], stream));
            }
        }
        let running = (0..).zip(&open.values).filter(|&(_, &open)| open).map(|(stream, _)| stream).collect();
        Self { rows: all.only(wanted, false), closings, running }
    }
}

/// The chains that hold a removed row, and what of them stays.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Touched {
    pub(crate) whole: LearnedChains,
    pub(crate) kept: LearnedChains,
}

impl Touched {
    /// The chains of `rows` that hold a row of `removed`. `rows` are those that a model has learned, without any that were removed
    /// before ([`Placed::without`]): all rows of each stream that has a removed one, from the beginning of the chain of the first of
    /// these on, up to the last row learned. Rows of other streams do no harm.
    ///
    /// # Panics
    /// If there is not one offset for each row.
    pub fn new(rows: &Placed, removed: &Offsets) -> Self {
        let chains = rows.chains();
        let mut touched = vec![false; chains.iter().max().map_or(0, |last| last + 1)];
        let mut last = PerStream::new(None);
        for (i, (&chain, &offset)) in chains.iter().zip(&rows.offsets).enumerate() {
            touched[chain] |= removed.contains(offset);
            *last.of(rows.rows.streams[i]) = Some(offset);
        }
        let whole = LearnedChains::new(rows, |i| touched[chains[i]]);
        let rest = rows.without(removed);
        let chain_of = |offset| chains[rows.offsets.partition_point(|&other| other < offset)];
        let mut kept = LearnedChains::new(&rest, |i| touched[chain_of(rest.offsets[i])]);
        // A chain whose last rows are gone does not go on: the next row of its stream continues another one.
        let is_last = |&stream: &u32| !last.of(stream).is_some_and(|offset| removed.contains(offset));
        let (running, ended): (Vec<u32>, Vec<u32>) = kept.running.drain(..).partition(is_last);
        kept.running = running;
        kept.closings.extend(ended.into_iter().map(|stream| (u64::MAX, stream)));
        Self { whole, kept }
    }

    /// Whether no chain is touched.
    pub fn is_empty(&self) -> bool {
        self.whole.rows.is_empty()
    }

    /// Rows of the chains that are taken out.
    pub fn rows_subtracted(&self) -> usize {
        self.whole.rows.len()
    }

    /// Those of them that are learned again.
    pub fn rows_put_back(&self) -> usize {
        self.kept.rows.len()
    }

    /// Chains that are taken out.
    pub fn chains(&self) -> usize {
        self.whole.rows.chains().iter().max().map_or(0, |last| last + 1)
    }
}
