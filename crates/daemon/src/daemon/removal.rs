//! Rows that are to be taken back: which these are, and the rows of their chains, read from the journal beside the daemon.
//!
//! Selectors are resolved once, against the rows that are stored when the work begins. A critic can subtract rows only with the
//! rest of their chains ([`crate::learner::Learner::remove`]); these are read here, so that the core is not kept by that.

use super::recovery::group_of;
use crate::journal::Record;
use crate::journal::store::{GroupHeader, SqliteStorage, Storage, StoreError};
use crate::learner::removal::{Offsets, Placed, RowPlace, Selector};
use crate::panics;
use crate::state::record::{Group, RemovedRows, TakenRows};
use crate::state::removals::Removals;
use crate::transition::Rows;
use crossbeam_channel::{Receiver, Sender};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Bytes of the rows of touched chains at most. Of more nothing is subtracted: critics are stale until they are learned again.
const CHAINS_BYTES: usize = 1 << 30;
/// Rows of them at most: the core subtracts them, and stands still meanwhile.
const CHAINS_ROWS: usize = 1 << 18;
/// Rows that may be missing behind those that were read: the core has them in its window.
const TAIL_ROWS: u64 = 1024;
/// Times that rows are read which came while others were.
const ROUNDS: usize = 16;
/// Ranges of offsets that one removal may have.
const RANGES_MAX: usize = 1 << 20;
/// Streams that a report names.
const STREAMS_TOLD: usize = 100;

/// What is to be found.
#[derive(Clone, Debug)]
pub struct RemovalJob {
    /// What rows it is about.
    pub selectors: Vec<Selector>,
    /// Rows from this offset on are not.
    pub end: u64,
    /// Rows that were taken back before.
    pub removals: Removals,
    /// State dimension and rewards of a row.
    pub shape: (usize, usize),
    /// Whether the rows of their chains are wanted.
    pub chains: bool,
    /// Whether the rows go too whose next state is the state of one of these.
    pub boundary: bool,
}

/// What was found.
#[derive(Clone, Debug, Default)]
pub struct FoundRows {
    /// The rows. Who asked, and why, is for the caller to say.
    pub removed: RemovedRows,
    /// Rows of each stream, by its name: of the first streams.
    pub streams: BTreeMap<String, u64>,
    /// Chains that hold one of them, and the rows of these chains.
    pub chains: u64,
    /// See there.
    pub chain_rows: u64,
    /// Rows without a time, where a selector asks for times.
    pub without_time: u64,
    /// Offsets that were asked for and that the journal has no more.
    pub forgotten: u64,
    /// Rows that stay and whose next state is the state of a row that goes.
    pub boundary: u64,
    /// The rows of the chains, and what closes them; none where they were not asked for, or are too many.
    pub rows: Option<Placed>,
    /// Offset behind the last row that was read. Rows from the end of the job on are not taken back.
    pub end: u64,
}

/// How the search ended.
pub type RemovalFound = Result<Box<FoundRows>, String>;

/// A chain that is gone through.
#[derive(Debug)]
struct Chain {
    first: u64,
    last: u64,
    rows: u64,
    touched: bool,
}

/// What is known of a stream.
#[derive(Debug, Default)]
struct RemovalStream {
    chain: Option<Chain>,
    /// Rows that are read again: those of touched chains, and the first of the next chain.
    wanted: Offsets,
    /// Whether the last row is taken, and whether the one behind it is to be read.
    behind: bool,
    next_wanted: bool,
    taken: bool,
}

impl RemovalStream {
    /// The chain is over. Returns it, if a row of it is taken.
    fn end(&mut self) -> Option<Chain> {
        let chain = self.chain.take().filter(|chain| chain.touched)?;
        self.wanted.insert(chain.first..chain.last + 1);
        self.next_wanted = true;
        Some(chain)
    }
}

impl RemovalJob {
    /// Find the rows. `keep_going` is asked now and then.
    ///
    /// # Errors
    /// Why there is nothing to be said.
    pub fn run(&self, storage: &mut dyn Storage, keep_going: &dyn Fn() -> bool) -> Result<FoundRows, String> {
        let mut found = FoundRows { end: self.end, ..FoundRows::default() };
        let mut streams: HashMap<u32, RemovalStream> = HashMap::new();
        let first = first_offset(storage).map_err(|e| e.to_string())?;
        let all = 0..self.end;
        self.read(storage, all.clone(), keep_going, &mut |taken, offset| {
            self.look(taken, offset, &mut streams, &mut found);
        })?;
        for (&number, stream) in &mut streams {
            let over = stream.end();
            found.note(over.as_ref());
            if stream.behind {
                found.removed.ended.push(number);
            }
            if stream.taken {
                found.removed.streams.push(number);
            }
        }
        found.removed.ended.sort_unstable();
        found.removed.streams.sort_unstable();
        found.removed.starts = found.removed.starts.without(&found.removed.offsets);
        if found.removed.offsets.ranges().len() > RANGES_MAX {
            return Err(format!("these rows lie in more than {RANGES_MAX} pieces: select fewer of them"));
        }
        let asked: Offsets = self
            .selectors
            .iter()
            .filter_map(|selector| if let Selector::Offsets(range) = selector { Some(range.clone()) } else { None })
            .collect();
        found.forgotten = asked.count_within(&(0..first));
        found.removed.selectors.clone_from(&self.selectors);
        if self.chains && !found.removed.offsets.is_empty() {
            let mut rows = Some(Placed::new(self.shape.0, self.shape.1));
            self.read(storage, all, keep_going, &mut |taken, offset| gather(taken, offset, &streams, &mut rows))?;
            found.rows = rows;
        }
        for _ in 0..ROUNDS {
            let end = end_offset(storage).map_err(|e| e.to_string())?;
            if end.saturating_sub(found.end) <= TAIL_ROWS {
                break;
            }
            self.read(storage, found.end..end, keep_going, &mut |taken, offset| found.follow(taken, offset))?;
            found.end = end;
        }
        Ok(found)
    }

    /// Visit the groups that begin with these offsets, and the one that holds the first, without rows that were taken back before.
    fn read(
        &self,
        storage: &mut dyn Storage,
        offsets: Range<u64>,
        keep_going: &dyn Fn() -> bool,
        visit: &mut dyn FnMut(&TakenRows, u64),
    ) -> Result<(), String> {
        let mut next = group_of(storage, offsets.start).map_err(|e| e.to_string())?;
        loop {
            let groups = storage.read(next, super::bounds::JOURNAL_PIECE).map_err(|e| e.to_string())?;
            let Some(last) = groups.last() else { return Ok(()) };
            next = last.id + 1;
            if !keep_going() {
                return Err("the daemon stops".into());
            }
            for stored in groups {
                if stored.first_offset >= offsets.end {
                    return Ok(());
                }
                let group: Group = self.removals.clean(stored.group().map_err(|e| e.to_string())?);
                let mut offset = group.first_offset;
                for record in &group.records {
                    match record {
                        Record::Rows(taken) => {
                            visit(taken, offset);
                            offset += taken.batch.len() as u64;
                        }
                        Record::Hole(rows) => offset += rows,
                        _ => {}
                    }
                }
            }
        }
    }

    /// Look at some rows: which are meant, and where chains begin and end.
    fn look(&self, taken: &TakenRows, first: u64, streams: &mut HashMap<u32, RemovalStream>, found: &mut FoundRows) {
        let (batch, stream) = (&taken.batch, streams.entry(taken.stream).or_default());
        let asks_for_times = self.selectors.iter().any(|selector| matches!(selector, Selector::Times(_)));
        for (i, offset) in (0..batch.len()).zip(first..self.end) {
            let place = RowPlace { offset, stream: batch.stream(), session: batch.session(), time: batch.time(i) };
            let meant = self.selectors.iter().any(|selector| selector.selects(&place));
            found.without_time += u64::from(asks_for_times && !meant && place.time.is_none());
            if taken.starts_chain[i] {
                let over = stream.end();
                found.note(over.as_ref());
            }
            if std::mem::take(&mut stream.next_wanted) {
                stream.wanted.insert(offset..offset + 1);
            }
            let chain = stream.chain.get_or_insert(Chain { first: offset, last: offset, rows: 0, touched: false });
            let before = (meant && !stream.behind && chain.rows > 0).then_some(chain.last);
            (chain.last, chain.rows, chain.touched) = (offset, chain.rows + 1, chain.touched | meant);
            found.boundary += u64::from(before.is_some() && !self.boundary);
            before.filter(|_| self.boundary).into_iter().for_each(|before| found.take(before, batch.stream()));
            if meant {
                stream.taken = true;
                found.take(offset, batch.stream());
            } else if stream.behind {
                found.removed.starts.insert(offset..offset + 1);
            }
            stream.behind = meant;
            if batch.terminated(i) || batch.truncated(i) {
                let over = stream.end();
                found.note(over.as_ref());
            }
        }
    }
}

impl FoundRows {
    /// A row goes.
    fn take(&mut self, offset: u64, stream: &str) {
        self.removed.offsets.insert(offset..offset + 1);
        if self.streams.len() < STREAMS_TOLD || self.streams.contains_key(stream) {
            *self.streams.entry(stream.to_owned()).or_default() += 1;
        }
    }

    fn note(&mut self, chain: Option<&Chain>) {
        if let Some(chain) = chain {
            self.chains += 1;
            self.chain_rows += chain.rows;
        }
    }

    /// Rows that came meanwhile, as far as they lie behind those that were read: they are not taken back, and belong to chains.
    fn follow(&mut self, taken: &TakenRows, first: u64) {
        let known = self.end.saturating_sub(first) as usize;
        if known >= taken.batch.len() {
            return;
        }
        let from = first + known as u64;
        self.removed.go_on(taken.stream, from);
        if let Some(rows) = &mut self.rows {
            let numbers = known..taken.batch.len();
            rows.push(taken.stream, &taken.starts_chain[numbers.clone()], &taken.batch, numbers, from);
        }
        bound(&mut self.rows);
    }
}

/// Of too many rows there are none.
fn bound(rows: &mut Option<Placed>) {
    let bytes = |all: &Placed| all.len() * Rows::bytes_per_row(all.rows.dim, all.rows.rewards_per_row);
    drop(rows.take_if(|all| all.len() > CHAINS_ROWS || bytes(all) > CHAINS_BYTES));
}

/// Put those of some rows that are wanted behind `rows`, of which there are none any more where they are too many.
fn gather(taken: &TakenRows, first: u64, streams: &HashMap<u32, RemovalStream>, rows: &mut Option<Placed>) {
    let Some(stream) = streams.get(&taken.stream) else { return };
    let (wanted, end) = (&stream.wanted, first + taken.batch.len() as u64);
    let mut at = first;
    while let Some(range) = wanted.first_behind(at).filter(|range| at < end && range.start < end) {
        let Some(all) = rows else { return };
        let part = range.start.max(at)..range.end.min(end);
        at = part.end;
        let numbers = (part.start - first) as usize..(part.end - first) as usize;
        // Rows between the last chain and this one are not there.
        let mut starts = taken.starts_chain[numbers.clone()].to_vec();
        starts[0] |= part.start == range.start;
        all.push(taken.stream, &starts, &taken.batch, numbers, part.start);
        bound(rows);
    }
}

/// Offset of the first row that the journal has.
pub(super) fn first_offset(storage: &mut dyn Storage) -> Result<u64, StoreError> {
    let Some((first, _)) = storage.bounds()? else { return Ok(0) };
    Ok(storage.headers(first, 1)?.first().map_or(0, |head| head.first_offset))
}

fn end_offset(storage: &mut dyn Storage) -> Result<u64, StoreError> {
    let Some((_, last)) = storage.bounds()? else { return Ok(0) };
    Ok(storage.headers(last, 1)?.first().map_or(0, GroupHeader::end))
}

/// Look in the journal of a directory, until `stop` is set.
///
/// # Errors
/// Why nothing was found. A bug costs this answer, not the daemon.
pub(super) fn find(directory: &Path, job: &RemovalJob, stop: &AtomicBool) -> RemovalFound {
    let work = || {
        let mut storage = SqliteStorage::open_beside(directory).map_err(|e| e.to_string())?;
        job.run(&mut storage, &|| !stop.load(Ordering::Relaxed)).map(Box::new)
    };
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panics::message(&*panic)))
}

/// The thread that looks for rows that are to be taken back.
pub(super) struct RemovalThread {
    /// Where the journal is.
    pub(super) directory: PathBuf,
    pub(super) tasks: Receiver<Box<RemovalJob>>,
    pub(super) done: Sender<RemovalFound>,
    pub(super) stop: Arc<AtomicBool>,
}

impl RemovalThread {
    /// Until the core has ended.
    pub(super) fn run(self) {
        for job in &self.tasks {
            drop(self.done.send(find(&self.directory, &job, &self.stop)));
        }
    }
}
