//! `--warm-start TABLE`: a table of transitions is learned before live rows are taken in.
//!
//! Its rows go the way of all rows: the core numbers, stores and learns them, refits are due when they are due. A thread
//! reads the table piece by piece and hands batches over through a bounded queue, which the core's thread empties instead
//! of ingest. Meanwhile queries are answered, appends get `overloaded`, and messages on ingest wait.
//!
//! The table's stream `default` becomes `warm-start`, its stream NAME `warm-start/NAME`. Their session is the table's
//! fingerprint, and rows keep the numbers that they have in the table: after an interruption the table is read again from
//! its beginning, and what is known already is a duplicate. The file `warm-start.json` in the data directory says which
//! table it was, and, once all of it is durable, up to which offset: the same table is then left alone, another refused.

use super::core::Core;
use crate::config::Config;
use crate::learner::KindSetting;
use crate::math::embedding::StateKind;
use crate::table::{self, Columns, Fault, LargeTable, Reading, TableError};
use crate::telemetry::Heartbeat;
use crate::transition::Batch;
use crate::whole_file;
use crate::wire::WireError;
use crossbeam_channel::{Receiver, Sender, bounded, never};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

/// Name of the stream, and prefix of the others' names.
const STREAM: &str = "warm-start";
/// File in the data directory that remembers the table.
const MARKER: &str = "warm-start.json";
/// Version of that file.
const MARKER_VERSION: u32 = 1;
/// Rows of one batch, at most.
const BATCH_ROWS: usize = 256;
/// Batches that may wait for the core.
const BATCHES: usize = 32;
/// Longest name of a stream, bytes.
const NAME_MAX: usize = 256;

/// A table to be learned first.
#[derive(Clone, Debug, PartialEq)]
pub struct WarmStart {
    /// The file, or the directory of a Minari dataset.
    pub table: PathBuf,
    /// What to make of it where it does not say everything.
    pub reading: Reading,
    /// Which columns hold what.
    pub columns: Columns,
}

/// Why a table is not learned. Nothing of it has been.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WarmStartError {
    /// It cannot be read.
    #[error("--warm-start: {0}")]
    Table(#[source] TableError),
    /// The start was stopped while the table was checked.
    #[error("--warm-start: the start was stopped before the table was checked")]
    Stopped,
    /// Another table, or the same under another reading, was learned or begun here before.
    #[error(
        "--warm-start: {known} with {rows} transitions {} in {data_dir} before, and this is another table, or the same \
         read in another way; leave --warm-start out to go on, give that table again, add this one with `criticd \
         replay`, or start anew with another --data-dir",
        if *.complete { "was learned" } else { "has been begun" }
    )]
    Other {
        /// The data directory.
        data_dir: PathBuf,
        /// Which table that was.
        known: PathBuf,
        /// Its transitions.
        rows: u64,
        /// Whether all of them were learned.
        complete: bool,
    },
    /// Another producer uses the name of one of its streams.
    #[error(
        "--warm-start: stream {stream:?} is there already, and its rows are not of this table; start anew with another \
         --data-dir, or add the table with `criticd replay`"
    )]
    Taken {
        /// That name.
        stream: String,
    },
    /// Its rows do not fit the settings, or the rows that are there.
    #[error("--warm-start: {table}: {}; use a table of the same shape, or another --data-dir", .fault.message)]
    Shape {
        /// The file.
        table: PathBuf,
        /// What does not fit.
        fault: WireError,
    },
    /// A state variable holds texts, and some critic takes its numbers for a line.
    #[error(
        "--warm-start: {table}: state variable {variable} holds texts, which are a category: write so for each critic, \
         state_kinds = [..., \"category\", ...]"
    )]
    Texts {
        /// The file.
        table: PathBuf,
        /// Which variable, from 0.
        variable: usize,
    },
    /// A stream's name is too long to stand behind `warm-start/`.
    #[error(
        "--warm-start: the name of stream {stream:?} is too long: with \"{STREAM}/\" before it, it may have {NAME_MAX} \
         bytes; rename it in the table"
    )]
    Name {
        /// The name.
        stream: String,
    },
    /// What was learned before cannot be looked up or written down.
    #[error("--warm-start: {path} cannot be read or written: {source}; see whether it is yours")]
    Marker {
        /// The file that says so.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// How far a warm start is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Transitions of the table that have been taken in, now or before.
    pub rows: u64,
    /// Transitions of the table.
    pub of: u64,
    /// Whether it is over.
    pub done: bool,
    /// Why it cannot go on: the daemon should be stopped. A start with the same table goes on where it was.
    pub failure: Option<String>,
}

/// What the core's thread tells.
#[derive(Debug)]
pub(super) struct WarmStartProgress {
    rows: AtomicU64,
    of: u64,
    end: Mutex<(bool, Option<String>)>,
}

impl WarmStartProgress {
    pub(super) fn progress(&self) -> Progress {
        let (done, failure) = self.end.lock().clone();
        Progress { rows: self.rows.load(Ordering::Relaxed), of: self.of, done, failure }
    }
}

/// Which table was learned, as the data directory remembers it.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Marker {
    version: u32,
    table: PathBuf,
    fingerprint: String,
    rows: u64,
    /// Offset behind its last row; none while that is not stored.
    end: Option<u64>,
}

impl Marker {
    fn read(path: &Path) -> io::Result<Option<Self>> {
        let text = match std::fs::read_to_string(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            other => other?,
        };
        let invalid = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let marker: Self = serde_json::from_str(&text).map_err(|e| invalid(e.to_string()))?;
        if marker.version != MARKER_VERSION {
            return Err(invalid(format!("it has version {}, this program knows {MARKER_VERSION}", marker.version)));
        }
        Ok(Some(marker))
    }

    /// Whole or not at all, and durable.
    fn write(&self, path: &Path) -> io::Result<()> {
        let text = serde_json::to_string_pretty(self)? + "\n";
        whole_file::write(path, &path.with_extension("json.new"), 0o600, text.as_bytes())
    }
}

/// What a stream of the table is called here.
fn stream_name(name: &str) -> String {
    if name == "default" { STREAM.to_owned() } else { format!("{STREAM}/{name}") }
}

/// A table that has been checked and is to be learned.
#[derive(Debug)]
pub(super) struct WarmStartPlan {
    table: LargeTable,
    session: String,
    /// None where nothing is kept.
    marker: Option<(PathBuf, Marker)>,
}

/// Check the table as far as that is possible before anything is learned; none if it has been learned already. `progress` says
/// whether to go on.
///
/// # Errors
/// See [`WarmStartError`].
pub(super) fn plan(
    warm: &WarmStart,
    config: &Config,
    core: &Core,
    progress: &mut dyn FnMut(table::Progress) -> bool,
) -> Result<Option<WarmStartPlan>, WarmStartError> {
    let unread = |error: TableError| match error.fault {
        Fault::Stopped => WarmStartError::Stopped,
        _ => WarmStartError::Table(error),
    };
    let mut keep_going = || progress(table::Progress { rows: 0, fraction: 0.0 });
    let session = table::fingerprint_as(&warm.table, warm.reading, &warm.columns, &mut keep_going).map_err(unread)?;
    let path = config.data_dir.join(MARKER);
    let failed = |source| WarmStartError::Marker { path: path.clone(), source };
    // Without a journal nothing outlives the daemon, and where no row is stored nothing has been learned.
    let kept = config.journal && core.offset() > 0;
    let known = if kept { Marker::read(&path).map_err(failed)? } else { None };
    if let Some(Marker { table, fingerprint, rows, end, .. }) = known {
        let complete = end.is_some_and(|end| core.offset() >= end);
        if fingerprint != session {
            let (data_dir, known) = (config.data_dir.clone(), table);
            return Err(WarmStartError::Other { data_dir, known, rows, complete });
        }
        if complete {
            log::info!("event=warm_start_known table={:?} rows={rows}", warm.table.display());
            return Ok(None);
        }
    }
    let table = LargeTable::check_as(&warm.table, warm.reading, &warm.columns, progress);
    let table = table.map_err(unread)?;
    let texts = (0..table.dim()).find(|&d| {
        let known = |kinds: &[KindSetting]| kinds.get(d) == Some(&KindSetting::Known(StateKind::Category));
        !warm.columns.categories.of(d).is_empty() && !config.critics.iter().all(|critic| known(&critic.state_kinds))
    });
    if let Some(variable) = texts {
        return Err(WarmStartError::Texts { table: warm.table.clone(), variable });
    }
    core.check_shape(table.dim(), table.rewards_per_row())
        .map_err(|fault| WarmStartError::Shape { table: warm.table.clone(), fault })?;
    for name in table.streams() {
        let stream = stream_name(name);
        if stream.len() > NAME_MAX {
            return Err(WarmStartError::Name { stream: name.clone() });
        }
        if core.session(&stream).is_some_and(|known| known != session) {
            return Err(WarmStartError::Taken { stream });
        }
    }
    let marker = if config.journal {
        let absolute = std::path::absolute(&warm.table).unwrap_or_else(|_| warm.table.clone());
        let (version, fingerprint, rows) = (MARKER_VERSION, session.clone(), table.rows());
        let marker = Marker { version, table: absolute, fingerprint, rows, end: None };
        marker.write(&path).map_err(failed)?;
        Some((path, marker))
    } else {
        None
    };
    Ok(Some(WarmStartPlan { table, session, marker }))
}

/// One thing that the reading thread hands over.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "rows are the common case")]
pub(super) enum WarmStartInput {
    Rows(Batch),
    /// There are no more.
    Last,
    Fault(String),
}

/// The core's end of a warm start. Live rows are taken in when it is gone.
#[derive(Debug)]
pub(super) struct Feeding {
    pub(super) queue: Receiver<WarmStartInput>,
    told: Arc<WarmStartProgress>,
    marker: Option<(PathBuf, Marker)>,
    pulse: Arc<Heartbeat>,
    ended: bool,
}

impl WarmStartPlan {
    /// Start reading; the thread ends with the table, or when the core does not take any more.
    ///
    /// # Errors
    /// If there is no thread to be had.
    pub(super) fn start(self, pulse: Arc<Heartbeat>) -> io::Result<(Feeding, Arc<WarmStartProgress>, JoinHandle<()>)> {
        let Self { table, session, marker } = self;
        let (sender, queue) = bounded(BATCHES);
        let told = Arc::new(WarmStartProgress { rows: AtomicU64::new(0), of: table.rows(), end: Mutex::default() });
        log::info!("event=warm_start rows={} streams={}", table.rows(), table.streams().len());
        table.told().iter().for_each(|told| log::warn!("event=warm_start_order what={told:?}"));
        let thread = std::thread::Builder::new().name("warm-start".into());
        let thread = thread.spawn(move || read(&table, &session, &sender))?;
        pulse.set_warming(true);
        Ok((Feeding { queue, told: Arc::clone(&told), marker, pulse, ended: false }, told, thread))
    }
}

fn read(table: &LargeTable, session: &str, queue: &Sender<WarmStartInput>) {
    let mut take = |batch| queue.send(WarmStartInput::Rows(batch)).is_ok();
    let last = match table.for_each_batch(&stream_name, session, BATCH_ROWS, &mut take) {
        Ok(()) => WarmStartInput::Last,
        Err(e) => WarmStartInput::Fault(e.to_string()),
    };
    // A core that has ended has no use for it.
    drop(queue.send(last));
}

impl Feeding {
    /// Note the rows of the table that have been taken in, new ones or duplicates.
    pub(super) fn took(&self, rows: usize) {
        self.told.rows.fetch_add(rows as u64, Ordering::Relaxed);
    }

    /// All rows have been taken in.
    pub(super) fn end(&mut self) {
        self.ended = true;
        self.queue = never();
    }

    /// Whether all rows have been taken in.
    pub(super) fn ended(&self) -> bool {
        self.ended
    }

    /// It cannot go on.
    pub(super) fn fail(&mut self, why: &str) {
        log::error!("event=warm_start_failed why={why:?}");
        self.queue = never();
        self.told.end.lock().1 = Some(format!("--warm-start: {why}"));
    }

    /// All rows are durable, and `offset` is behind the last of them.
    pub(super) fn complete(self, offset: u64) {
        let (_, of) = self.rows();
        if let Some((path, marker)) = &self.marker
            && let Err(e) = (Marker { end: Some(offset), ..marker.clone() }).write(path)
        {
            // The next start reads the table again and finds every row known.
            log::warn!("event=warm_start_unmarked path={:?} why={:?}", path.display(), e.to_string());
        }
        log::info!("event=warm_started rows={of} offset={offset}");
        self.pulse.set_warming(false);
        self.told.end.lock().0 = true;
    }

    /// Rows taken in and rows of the table, for `status`.
    pub(super) fn rows(&self) -> (u64, u64) {
        (self.told.rows.load(Ordering::Relaxed), self.told.of)
    }
}
