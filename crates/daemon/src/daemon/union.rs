//! One journal of the rows of several, in a new data directory: a daemon that starts there learns them all again.

use super::archive::{ArchiveError, check_vacant, configured, in_file};
use super::recovery::recorded_removals;
use super::replace;
use super::survey::good_groups;
use crate::journal::GroupWriter;
use crate::journal::store::{SqliteStorage, Storage as _};
use crate::state::record::{Configured, Group, Mark, Record, TakenRows};
use crate::state::removals::Removals;
use crate::state::streams::{StreamLimits, Streams};
use crate::transition::Batch;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

/// Rows of a journal that are in memory at a time, about.
const ROWS_READ: usize = 1 << 16;
/// Rows of a group that is written, and bytes, about.
const GROUP_ROWS: u64 = 4096;
const GROUP_BYTES: usize = 1 << 20;
/// Streams are never forgotten here.
const LIMITS: StreamLimits = StreamLimits { max: u32::MAX as usize, idle_rows: u64::MAX };

/// What was put together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct United {
    /// Rows.
    pub rows: u64,
    /// Streams.
    pub streams: usize,
    /// Whether rows are in the order of their times; else the rows of each directory stand behind the rows of the one before.
    pub by_time: bool,
    /// Whether the directories had different settings, of which the first directory's were taken.
    pub settings_differ: bool,
    /// Requests that announced a policy, changed heads or asked an advisor: they are not taken over.
    pub left_out: u64,
}

/// A journal that is read in order.
struct UnionSource {
    storage: SqliteStorage,
    directory: PathBuf,
    /// What is put before the names of its streams.
    prefix: String,
    next: u64,
    last: u64,
    waiting: VecDeque<(f64, TakenRows)>,
    left_out: u64,
    /// Rows that were taken back.
    removals: Removals,
}

impl UnionSource {
    fn open(directory: &Path, prefix: String) -> Result<(Self, Option<Configured>), ArchiveError> {
        let mut storage = SqliteStorage::open_beside(directory)?;
        let Some((first, last)) = storage.bounds()? else {
            return Err(ArchiveError::Damaged(format!("{}: the journal has no rows", directory.display())));
        };
        let settings = configured(&mut storage, directory, first)?;
        let mut removals = Removals::default();
        let place = directory.display();
        recorded_removals(&mut storage, &mut removals).map_err(|e| ArchiveError::Damaged(format!("{place}: {e}")))?;
        let (directory, waiting) = (directory.to_owned(), VecDeque::new());
        Ok((Self { storage, directory, prefix, next: first, last, waiting, left_out: 0, removals }, settings))
    }

    /// Read on until rows wait, or there are none.
    fn fill(&mut self) -> Result<(), ArchiveError> {
        while self.waiting.is_empty() && self.next <= self.last {
            let (next, last) = (self.next, self.last);
            let (mut read, mut rows) = (next - 1, 0);
            let (waiting, left_out, removals) = (&mut self.waiting, &mut self.left_out, &self.removals);
            let found = good_groups(&mut self.storage, next, |group, time, records| {
                let group_of = Group { end: group.mark(), first_offset: group.first_offset, time, records };
                for record in removals.clean(group_of).records {
                    match record {
                        Record::Rows(taken) => {
                            rows += taken.batch.len();
                            waiting.push_back((time, taken));
                        }
                        Record::NewPolicy(_) | Record::Heads(_) | Record::Advice(_) => *left_out += 1,
                        _ => {}
                    }
                }
                read = group.id;
                rows < ROWS_READ && group.id < last
            });
            let place = self.directory.display();
            found.map_err(|e| ArchiveError::Damaged(format!("{place}: {e}")))?;
            if read < next {
                return Err(ArchiveError::Damaged(format!(
                    "{place}: the journal ends at group {read} instead of {last}"
                )));
            }
            self.next = read + 1;
        }
        Ok(())
    }

    fn take(&mut self) -> Result<Option<(f64, TakenRows)>, ArchiveError> {
        self.fill()?;
        Ok(self.waiting.pop_front())
    }

    /// Its first rows again.
    fn rewind(&mut self) -> Result<(), ArchiveError> {
        self.waiting.clear();
        self.left_out = 0;
        (self.next, self.last) = self.storage.bounds()?.unwrap_or((self.next, self.last));
        Ok(())
    }

    /// Time of the first row that waits, and the name of its stream.
    fn head(&mut self) -> Result<Option<(f64, String)>, ArchiveError> {
        self.fill()?;
        let head = |(_, taken): &(f64, TakenRows)| {
            let name = format!("{}{}", self.prefix, taken.batch.stream());
            (taken.batch.time(0).unwrap_or(f64::NEG_INFINITY), name)
        };
        Ok(self.waiting.front().map(head))
    }
}

/// Write the rows of the journals in `directories` into a new data directory `out`, with the settings of the first. The batches of one
/// journal stay in their order. Where every row has a time, the batch comes first whose first row does, whatever the order of
/// `directories`; else the rows of each stand behind the rows of the one before. Rows that were taken back are left out. With
/// `prefixes`, one for each, streams are called that and what they were called.
///
/// # Errors
/// If a stream is in two of them, states or rewards are of different lengths, a journal is damaged, or `out` is not empty.
pub fn unite(directories: &[PathBuf], prefixes: &[String], out: &Path, unix: f64) -> Result<United, ArchiveError> {
    check_vacant(out)?;
    let mut united = United { by_time: true, ..United::default() };
    let (mut sources, mut settings) = (Vec::new(), Vec::new());
    for (directory, prefix) in directories.iter().zip(prefixes) {
        let (source, found) = UnionSource::open(directory, prefix.clone())?;
        sources.push(source);
        settings.push(found);
    }
    united.settings_differ = settings.iter().any(|other| critics_of(other) != critics_of(&settings[0]));
    survey(&mut sources, &mut united)?;
    let name = out.file_name().ok_or(ArchiveError::Empty("the result needs the name of a directory"))?;
    let parent = out.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let part = replace::stage(parent, &format!(".{}.part", name.to_string_lossy())).map_err(in_file(parent))?;
    let settings = settings.into_iter().next().flatten();
    let written = write(&mut sources, settings, &part, unix, &mut united);
    written.inspect_err(|_| drop(fs::remove_dir_all(&part)))?;
    fs::rename(&part, out).map_err(in_file(out))?;
    replace::sync(parent).map_err(in_file(parent))?;
    Ok(united)
}

fn critics_of(settings: &Option<Configured>) -> Option<&[crate::learner::Settings]> {
    settings.as_ref().map(|configured| &configured.critics[..])
}

/// See whether all rows fit together.
fn survey(sources: &mut [UnionSource], united: &mut United) -> Result<(), ArchiveError> {
    let mut owners: BTreeMap<String, usize> = BTreeMap::new();
    let mut shape = None;
    for k in 0..sources.len() {
        while let Some((_, taken)) = sources[k].take()? {
            let batch = &taken.batch;
            let found = (batch.dim(), batch.rewards_per_row());
            if *shape.get_or_insert(found) != found {
                let ((dim, rewards), place) = (found, sources[k].directory.display());
                return Err(ArchiveError::Columns(format!(
                    "{place}: rows have {dim} state variables and {rewards} rewards, others have another number of them"
                )));
            }
            united.by_time &= (0..batch.len()).all(|i| batch.time(i).is_some());
            let name = format!("{}{}", sources[k].prefix, batch.stream());
            let before = *owners.entry(name).or_insert(k);
            if before != k {
                return Err(ArchiveError::Columns(format!(
                    "stream {:?} is in {} and in {}, so that its rows might count twice; --rename-streams puts the name of its \
                     directory before the name of each stream",
                    batch.stream(),
                    sources[before].directory.display(),
                    sources[k].directory.display()
                )));
            }
        }
        united.left_out += sources[k].left_out;
        sources[k].rewind()?;
    }
    united.streams = owners.len();
    Ok(())
}

/// The journal that gives the next batch.
fn next_source(sources: &mut [UnionSource], by_time: bool) -> Result<Option<usize>, ArchiveError> {
    let mut best: Option<(f64, String, usize)> = None;
    for (k, source) in sources.iter_mut().enumerate() {
        let Some((time, name)) = source.head()? else { continue };
        let sooner = |best: &(f64, String, usize)| by_time && (time, &name) < (best.0, &best.1);
        if best.as_ref().is_none_or(sooner) {
            best = Some((time, name, k));
        }
    }
    Ok(best.map(|(_, _, k)| k))
}

fn write(
    sources: &mut [UnionSource],
    settings: Option<Configured>,
    part: &Path,
    unix: f64,
    united: &mut United,
) -> Result<(), ArchiveError> {
    let mut journal =
        Writer { storage: SqliteStorage::open(part)?, end: Mark::default(), group: Vec::new(), size: (0, 0) };
    if let Some(configured) = settings {
        journal.group.push(Record::Configured(Configured { from: 0, ..configured }));
        journal.close(unix)?;
    }
    let (mut streams, mut numbers) = (Streams::new(), HashMap::new());
    while let Some(k) = next_source(sources, united.by_time)? {
        let Some((time, taken)) = sources[k].take()? else { break };
        let mut batch = renamed(taken.batch, &sources[k].prefix)?;
        // What is behind a hole does not go on from what is before it, even where the states say so.
        if taken.starts_chain[0] && batch.seq().is_none() && !sources[k].removals.offsets().is_empty() {
            let mut parts = batch.into_parts();
            parts.seq = numbers.get(&parts.stream).map(|next| next + 1);
            batch = Batch::new(parts).expect("rows were checked when they were stored");
        }
        let offset = journal.end.offset + journal.size.0;
        let admission =
            streams.admit(&batch, false, offset, LIMITS).map_err(|e| ArchiveError::Damaged(e.to_string()))?;
        let mut starts_chain = Vec::with_capacity(batch.len());
        streams.commit(&batch, &admission, offset, time, |starts, _| starts_chain.push(starts));
        numbers.insert(batch.stream().to_owned(), admission.next_seq);
        journal.push(TakenRows { stream: admission.number, starts_chain, batch }, time)?;
    }
    journal.close(unix)?;
    united.rows = journal.end.offset;
    let Writer { mut storage, end, .. } = journal;
    storage.sync()?;
    storage.set_mark(end)?;
    Ok(storage.reopen()?)
}

fn renamed(batch: Batch, prefix: &str) -> Result<Batch, ArchiveError> {
    if prefix.is_empty() {
        return Ok(batch);
    }
    let mut parts = batch.into_parts();
    parts.stream.insert_str(0, prefix);
    Batch::new(parts)
        .map_err(|e| ArchiveError::Columns(format!("{}: {}; give its directory a shorter name", e.field, e.message)))
}

/// A journal in the making.
struct Writer {
    storage: SqliteStorage,
    end: Mark,
    group: Vec<Record>,
    /// Rows and bytes of the group.
    size: (u64, usize),
}

impl Writer {
    fn push(&mut self, taken: TakenRows, time: f64) -> Result<(), ArchiveError> {
        self.size = (self.size.0 + taken.batch.len() as u64, self.size.1 + taken.batch.bytes());
        self.group.push(Record::Rows(taken));
        if self.size.0 >= GROUP_ROWS || self.size.1 >= GROUP_BYTES { self.close(time) } else { Ok(()) }
    }

    fn close(&mut self, time: f64) -> Result<(), ArchiveError> {
        if self.group.is_empty() {
            return Ok(());
        }
        let records = std::mem::take(&mut self.group);
        let group = Group { end: Mark::default(), first_offset: self.end.offset, time, records };
        let stored = GroupWriter::of(&group).finish(self.end.id + 1, self.end.offset, self.end.crc, time);
        self.storage.append(&stored, 0, false)?;
        (self.end, self.size) = (stored.mark(), (0, 0));
        Ok(())
    }
}
