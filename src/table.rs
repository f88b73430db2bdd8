//! Tables of transitions on disk: CSV files in, [`Rows`] for learners and [`Batch`]es for the wire out.
//!
//! # Columns
//! The first line names them; their order is free. k counts from 0 without a gap.
//!
//! | column | |
//! | --- | --- |
//! | `stream` | whose experience the row is, 1 to 256 bytes; left out: all rows are of stream `default` |
//! | `state_k` | required |
//! | `next_state_k` | the true successor; left out: see below |
//! | `reward`, or `reward_k` | required |
//! | `action`, or `action_k` | optional |
//! | `terminated`, `truncated` | `true`, `false`, `1`, `0` (any case); left out or empty: false |
//! | `discount` | in \[0, 1\]; left out or empty: the critic's own |
//! | `time` | Unix seconds; nothing is learned from it, it is checked and dropped |
//! | `seq` | position in the stream, rising; a step other than one starts a new chain |
//!
//! Columns whose names start with `_` or `info_` are skipped. Any other name is an error, so that a misspelt `terminated`
//! does not quietly teach that episodes never end.
//!
//! # Rows without a successor
//! A terminated row needs none (its successor has value 0 whatever it is) and gets its own state as a placeholder. With
//! `next_state_k` columns only terminated rows may leave these cells empty. Without them, the next row of the same stream
//! is the successor, and a row gives only its state, as successor of the row before, if
//! - it is the last one of its stream,
//! - or `seq` says that the next row does not follow it,
//! - or it is truncated: the row after it starts elsewhere. The row before it, if there is one, becomes the truncated one.
//!
//! Such a row is no transition; its reward, action and discount are not used and may be empty.

use crate::transition::{Batch, BatchParts, MAGNITUDE_MAX, Rows};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Why a table cannot be read or written.
#[derive(Debug)]
pub struct TableError {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub fault: Fault,
}

/// What is wrong with a table.
#[derive(Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The file cannot be opened or written.
    Io(io::Error),
    /// The text is not CSV: bytes that are no UTF-8, rows of different lengths, a failure while reading.
    Csv(csv::Error),
    /// The file is of a kind that cannot be read.
    Extension,
    /// A column is missing, double or unknown.
    Column {
        /// Its name.
        column: String,
        /// What to do about it.
        message: String,
    },
    /// One cell is wrong.
    Cell {
        /// Line of the file, counted from 1.
        line: u64,
        /// Name of the column.
        column: String,
        /// What to do about it.
        message: String,
    },
    /// There is no row, or no transition in the rows there are.
    Empty,
}

impl std::fmt::Display for TableError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.path.display())?;
        match &self.fault {
            Fault::Io(e) => write!(f, ": {e}"),
            Fault::Csv(e) => write!(f, ": {e}"),
            Fault::Extension => match self.path.extension().and_then(OsStr::to_str) {
                Some(e @ ("npz" | "parquet" | "hdf5" | "h5")) => {
                    write!(f, ": .{e} tables are not supported yet; convert it to CSV")
                }
                _ => f.write_str(": not a table that can be read; its name must end in .csv"),
            },
            Fault::Column { column, message } => write!(f, ", column {column}: {message}"),
            Fault::Cell { line, column, message } => write!(f, ", line {line}, column {column}: {message}"),
            Fault::Empty => f.write_str(": the table holds no transition"),
        }
    }
}

impl std::error::Error for TableError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.fault {
            Fault::Io(e) => Some(e),
            Fault::Csv(e) => Some(e),
            _ => None,
        }
    }
}

impl From<csv::Error> for Fault {
    fn from(e: csv::Error) -> Self {
        Self::Csv(e)
    }
}

/// Transitions of a file, checked: every number is finite and in range, every row has a successor.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    rows: Rows,
    streams: Vec<String>,
    seqs: Vec<u64>,
    actions: Vec<f64>,
    actions_per_row: usize,
}

impl Table {
    /// Read a CSV file.
    ///
    /// # Errors
    /// The first fault found, with its line and column and what to do about it.
    pub fn read(path: &Path) -> Result<Self, TableError> {
        read_csv(path).map_err(|fault| TableError { path: path.to_owned(), fault })
    }

    /// The transitions in file order. Streams are numbered in order of appearance; `starts_chain` is set unless the row
    /// continues the one before it in its stream: that one neither terminated nor truncated, `seq`, if there is one, rose
    /// by one, and its successor equals this row's state exactly.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The transitions, without the rest.
    pub fn into_rows(self) -> Rows {
        self.rows
    }

    /// Names of the streams, in order of appearance: `streams()[k]` is stream k of [`Rows::streams`].
    pub fn streams(&self) -> &[String] {
        &self.streams
    }

    /// State dimension D.
    pub fn dim(&self) -> usize {
        self.rows.dim
    }

    /// Rewards per row H.
    pub fn rewards_per_row(&self) -> usize {
        self.rows.rewards_per_row
    }

    /// Actions (n, A), row-major, if the table has any.
    pub fn actions(&self) -> Option<&[f64]> {
        (self.actions_per_row > 0).then_some(&self.actions)
    }

    /// The rows in file order as messages of the producer's run `session`: each batch is a run of consecutive rows of one
    /// stream with at most `rows_max` rows. Rows are numbered by the column `seq`, or, without it, from 0 in each stream.
    ///
    /// # Panics
    /// If `rows_max` is 0 or `session` longer than 256 bytes.
    pub fn batches<'a>(&'a self, session: &'a str, rows_max: usize) -> impl Iterator<Item = Batch> + 'a {
        assert!(rows_max > 0, "a batch has at least one row");
        let mut start = 0;
        std::iter::from_fn(move || {
            if start == self.rows.len() {
                return None;
            }
            let mut end = start + 1;
            while end < self.rows.len() && end - start < rows_max && self.same_message(end - 1, end) {
                end += 1;
            }
            let range = start..end;
            start = end;
            Some(self.batch(session, range))
        })
    }

    /// Whether two neighbouring rows can travel in one batch.
    fn same_message(&self, i: usize, j: usize) -> bool {
        self.rows.streams[i] == self.rows.streams[j]
            && self.seqs[i] + 1 == self.seqs[j]
            && self.rows.discounts[i].is_nan() == self.rows.discounts[j].is_nan()
    }

    fn batch(&self, session: &str, range: std::ops::Range<usize>) -> Batch {
        let (rows, start) = (&self.rows, range.start);
        let matrix = |values: &[f64], width: usize| values[range.start * width..range.end * width].to_vec();
        let parts = BatchParts {
            stream: self.streams[rows.streams[start] as usize].clone(),
            session: session.to_owned(),
            seq: Some(self.seqs[start]),
            dim: rows.dim,
            rewards_per_row: rows.rewards_per_row,
            states: matrix(&rows.states, rows.dim),
            next_states: Some(matrix(&rows.next_states, rows.dim)),
            rewards: matrix(&rows.rewards, rows.rewards_per_row),
            terminated: Some(rows.terminated[range.clone()].to_vec()),
            truncated: Some(rows.truncated[range.clone()].to_vec()),
            discounts: (!rows.discounts[start].is_nan()).then(|| rows.discounts[range.clone()].to_vec()),
            actions: (self.actions_per_row > 0).then(|| matrix(&self.actions, self.actions_per_row)),
            times: None,
            single: false,
        };
        Batch::new(parts).expect("rows were checked when they were read")
    }
}

/// Read a table of states: columns `state_0`, `state_1`, ... and no others (those that start with `_` or `info_` are
/// skipped). Gives the states (n, D), row-major, and D.
///
/// # Errors
/// The first fault found, with its line and column and what to do about it.
pub fn read_states(path: &Path) -> Result<(Vec<f64>, usize), TableError> {
    read_states_csv(path).map_err(|fault| TableError { path: path.to_owned(), fault })
}

fn read_states_csv(path: &Path) -> Result<(Vec<f64>, usize), Fault> {
    let mut reader = open(path)?;
    let header = Header::read(&mut reader)?;
    let foreign = |c: &Column| !matches!(c, Column::State(_) | Column::Skipped);
    if let Some(k) = header.columns.iter().position(foreign) {
        let message = "a table of states has the columns state_0, state_1, ... alone; drop this one";
        return Err(header.fault(k, message));
    }
    let mut states = Vec::new();
    let mut record = csv::StringRecord::new();
    let mut row = vec![0.0; header.dim];
    while reader.read_record(&mut record)? {
        let line = record.position().map_or(0, csv::Position::line);
        for (k, cell) in record.iter().enumerate() {
            if let Column::State(i) = header.columns[k] {
                row[i] = number(cell, MAGNITUDE_MAX).map_err(|message| header.cell(line, k, message))?;
            }
        }
        states.extend_from_slice(&row);
    }
    if states.is_empty() { Err(Fault::Empty) } else { Ok((states, header.dim)) }
}

fn open(path: &Path) -> Result<csv::Reader<File>, Fault> {
    if !path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv")) {
        return Err(Fault::Extension);
    }
    let file = File::open(path).map_err(Fault::Io)?;
    Ok(csv::ReaderBuilder::new().trim(csv::Trim::All).buffer_capacity(1 << 16).from_reader(file))
}

/// What one column holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Column {
    Stream,
    State(usize),
    NextState(usize),
    Action(usize),
    Reward(usize),
    Terminated,
    Truncated,
    Discount,
    Time,
    Seq,
    Skipped,
}

impl Column {
    fn parse(name: &str) -> Option<Self> {
        let numbered = |prefix: &str| {
            let digits = name.strip_prefix(prefix)?;
            // No sign, no leading zeros: `state_00` next to `state_0` would be a trap.
            let k: usize = digits.parse().ok()?;
            (k.to_string() == digits).then_some(k)
        };
        Some(match name {
            "stream" => Self::Stream,
            "action" => Self::Action(0),
            "reward" => Self::Reward(0),
            "terminated" => Self::Terminated,
            "truncated" => Self::Truncated,
            "discount" => Self::Discount,
            "time" => Self::Time,
            "seq" => Self::Seq,
            _ if name.starts_with('_') || name.starts_with("info_") => Self::Skipped,
            _ => numbered("state_")
                .map(Self::State)
                .or_else(|| numbered("next_state_").map(Self::NextState))
                .or_else(|| numbered("action_").map(Self::Action))
                .or_else(|| numbered("reward_").map(Self::Reward))?,
        })
    }
}

/// What to do about a column that is not known.
fn hint(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    if Column::parse(&lower).is_some() {
        return format!("not known; write it in lower case: {lower}");
    }
    match lower.as_str() {
        "" => "a column needs a name".to_owned(),
        _ if lower.contains([';', '\t']) => "not known; columns are separated by commas".to_owned(),
        "state" | "next_state" => format!("not known; number it: {lower}_0"),
        "done" => {
            "not known; say which end it is: terminated (absorbing) or truncated (cut off from outside)".to_owned()
        }
        "rewards" | "actions" | "discounts" | "states" | "next_states" | "times" | "streams" => {
            "not known; names of columns are singular".to_owned()
        }
        _ => "not known; put an underscore before its name to have it skipped. Known are stream, state_0.., \
              next_state_0.., action or action_0.., reward or reward_0.., terminated, truncated, discount, time, seq"
            .to_owned(),
    }
}

/// The first line of a table, understood.
struct Header {
    names: Vec<String>,
    columns: Vec<Column>,
    dim: usize,
    has_next: bool,
    actions_per_row: usize,
    rewards_per_row: usize,
}

impl Header {
    fn read(reader: &mut csv::Reader<File>) -> Result<Self, Fault> {
        let names: Vec<String> =
            reader.headers()?.iter().map(|name| name.trim_start_matches('\u{feff}').to_owned()).collect();
        if names.is_empty() {
            return Err(Fault::Empty);
        }
        let mut columns = Vec::with_capacity(names.len());
        for name in &names {
            let Some(column) = Column::parse(name) else {
                return Err(Fault::Column { column: name.clone(), message: hint(name) });
            };
            if column != Column::Skipped && columns.contains(&column) {
                let message = "appears twice (reward and reward_0 are the same, so are action and action_0); drop one";
                return Err(Fault::Column { column: name.clone(), message: message.to_owned() });
            }
            columns.push(column);
        }
        let mut header = Self { names, columns, dim: 0, has_next: false, actions_per_row: 0, rewards_per_row: 0 };
        header.dim = header.width("state", |c| if let Column::State(k) = c { Some(k) } else { None })?;
        let next = header.width("next_state", |c| if let Column::NextState(k) = c { Some(k) } else { None })?;
        header.actions_per_row = header.width("action", |c| if let Column::Action(k) = c { Some(k) } else { None })?;
        header.rewards_per_row = header.width("reward", |c| if let Column::Reward(k) = c { Some(k) } else { None })?;
        header.has_next = next > 0;
        if header.dim == 0 {
            return Err(missing("state_0", "missing; a state has at least one coordinate"));
        }
        if header.has_next && next != header.dim {
            let column = format!("next_state_{}", next.min(header.dim));
            let message = format!("states have {} coordinates, successors {next}; they must agree", header.dim);
            return Err(missing(&column, &message));
        }
        Ok(header)
    }

    /// Number of columns of one group, whose numbers must count from 0 without a gap.
    fn width(&self, group: &str, index: impl Fn(Column) -> Option<usize>) -> Result<usize, Fault> {
        let mut indices: Vec<usize> = self.columns.iter().filter_map(|&c| index(c)).collect();
        indices.sort_unstable();
        match indices.iter().enumerate().find(|(k, index)| *k != **index) {
            Some((k, _)) => Err(missing(&format!("{group}_{k}"), "missing; columns are numbered from 0 without a gap")),
            None => Ok(indices.len()),
        }
    }

    fn fault(&self, k: usize, message: &str) -> Fault {
        Fault::Column { column: self.names[k].clone(), message: message.to_owned() }
    }

    fn cell(&self, line: u64, k: usize, message: String) -> Fault {
        Fault::Cell { line, column: self.names[k].clone(), message }
    }

    /// Name of the first column of a kind that is there.
    fn name_of(&self, column: Column) -> String {
        self.columns.iter().position(|&c| c == column).map_or_else(String::new, |k| self.names[k].clone())
    }
}

fn missing(column: &str, message: &str) -> Fault {
    Fault::Column { column: column.to_owned(), message: message.to_owned() }
}

/// A finite number of bounded magnitude, or what is wrong with it.
fn number(cell: &str, limit: f64) -> Result<f64, String> {
    let value: f64 = cell.parse().map_err(|_| match cell {
        "" => "empty; a number is needed here".to_owned(),
        _ => format!("{cell:?} is not a number"),
    })?;
    if !value.is_finite() {
        return Err(format!("{cell} is not a finite number; drop the row or repair it"));
    }
    if value.abs() > limit {
        return Err(format!("{value:e} is beyond {limit:e} in magnitude; rescale the column"));
    }
    Ok(value)
}

fn flag(cell: &str) -> Result<bool, String> {
    match cell {
        "" | "0" => Ok(false),
        "1" => Ok(true),
        _ if cell.eq_ignore_ascii_case("false") => Ok(false),
        _ if cell.eq_ignore_ascii_case("true") => Ok(true),
        _ => Err(format!("{cell:?} is not a flag; write true, false, 1 or 0")),
    }
}

/// The rows of a file before their successors are known.
struct Raw {
    /// As in the file; `next_states` is filled only if the file gives it. Cells that may be empty hold NaN there.
    rows: Rows,
    actions: Vec<f64>,
    seqs: Vec<u64>,
    lines: Vec<u64>,
    streams: Vec<String>,
}

fn read_csv(path: &Path) -> Result<Table, Fault> {
    let mut reader = open(path)?;
    let header = Header::read(&mut reader)?;
    if header.rewards_per_row == 0 {
        return Err(missing("reward", "missing; a transition has at least one reward"));
    }
    let raw = read_rows(&mut reader, &header)?;
    let mut table = with_successors(raw, &header)?;
    if table.rows.is_empty() {
        return Err(Fault::Empty);
    }
    mark_chains(&mut table.rows, &table.seqs, table.streams.len());
    Ok(table)
}

fn read_rows(reader: &mut csv::Reader<File>, header: &Header) -> Result<Raw, Fault> {
    let (d, h, a) = (header.dim, header.rewards_per_row, header.actions_per_row);
    let mut raw =
        Raw { rows: Rows::new(d, h), actions: Vec::new(), seqs: Vec::new(), lines: Vec::new(), streams: Vec::new() };
    let has_seq = header.columns.contains(&Column::Seq);
    let mut ids: HashMap<String, u32> = HashMap::new();
    let mut last_seq: Vec<Option<u64>> = Vec::new();
    let (mut state, mut next, mut reward, mut action) = (vec![0.0; d], vec![0.0; d], vec![0.0; h], vec![0.0; a]);
    let mut record = csv::StringRecord::new();
    while reader.read_record(&mut record)? {
        let line = record.position().map_or(0, csv::Position::line);
        let (mut terminated, mut truncated, mut discount, mut seq) = (false, false, f64::NAN, 0);
        let mut stream = "default";
        for (k, cell) in record.iter().enumerate() {
            let wrong = |message: String| header.cell(line, k, message);
            // NaN stands for an empty cell until it is known whether the row needs it.
            let optional = |limit: f64| if cell.is_empty() { Ok(f64::NAN) } else { number(cell, limit) };
            match header.columns[k] {
                Column::Stream if cell.is_empty() || cell.len() > 256 => {
                    return Err(wrong(format!("a stream's name has 1 to 256 bytes, this one has {}", cell.len())));
                }
                Column::Stream => stream = cell,
                Column::State(i) => state[i] = number(cell, MAGNITUDE_MAX).map_err(wrong)?,
                Column::NextState(i) => next[i] = optional(MAGNITUDE_MAX).map_err(wrong)?,
                Column::Reward(i) => reward[i] = optional(MAGNITUDE_MAX).map_err(wrong)?,
                Column::Action(i) => action[i] = optional(f64::MAX).map_err(wrong)?,
                Column::Terminated => terminated = flag(cell).map_err(wrong)?,
                Column::Truncated => truncated = flag(cell).map_err(wrong)?,
                Column::Discount => {
                    discount = optional(f64::MAX).map_err(wrong)?;
                    if !discount.is_nan() && !(0.0..=1.0).contains(&discount) {
                        return Err(wrong(format!("a discount lies in [0, 1], this one is {discount}")));
                    }
                }
                Column::Time => drop(optional(f64::MAX).map_err(wrong)?),
                Column::Seq => {
                    seq = cell.parse().map_err(|_| wrong(format!("{cell:?} is not a whole number from 0 up")))?;
                    if seq == u64::MAX {
                        return Err(wrong(format!("{seq} is too large")));
                    }
                }
                Column::Skipped => {}
            }
        }
        let id = match ids.get(stream) {
            Some(&id) => id,
            None => {
                let id = u32::try_from(raw.streams.len()).expect("fewer than 2^32 streams");
                ids.insert(stream.to_owned(), id);
                raw.streams.push(stream.to_owned());
                last_seq.push(None);
                id
            }
        };
        let before = &mut last_seq[id as usize];
        match *before {
            Some(last) if has_seq && seq <= last => {
                let message = format!(
                    "must rise within a stream, {seq} follows {last}; give another run another stream name, or drop seq"
                );
                return Err(Fault::Cell { line, column: "seq".to_owned(), message });
            }
            Some(last) if !has_seq => seq = last + 1,
            _ => {}
        }
        *before = Some(seq);
        raw.rows.states.extend_from_slice(&state);
        if header.has_next {
            if terminated && next.iter().all(|v| v.is_nan()) {
                next.copy_from_slice(&state);
            }
            if let Some(i) = next.iter().position(|v| v.is_nan()) {
                let column = header.name_of(Column::NextState(i));
                let message = "empty; only terminated rows may leave all of their successor out".to_owned();
                return Err(Fault::Cell { line, column, message });
            }
            raw.rows.next_states.extend_from_slice(&next);
        }
        raw.rows.rewards.extend_from_slice(&reward);
        raw.rows.discounts.push(discount);
        raw.rows.streams.push(id);
        raw.rows.terminated.push(terminated);
        raw.rows.truncated.push(truncated);
        raw.rows.starts_chain.push(false);
        raw.actions.extend_from_slice(&action);
        raw.seqs.push(seq);
        raw.lines.push(line);
    }
    Ok(raw)
}

/// Give every row its successor, drop those that have none, and check what the remaining ones need.
fn with_successors(mut raw: Raw, header: &Header) -> Result<Table, Fault> {
    let (h, a, n) = (header.rewards_per_row, header.actions_per_row, raw.rows.len());
    let mut keep = vec![true; n];
    if !header.has_next {
        let mut next_states = raw.rows.states.clone();
        let mut following: Vec<Option<usize>> = vec![None; raw.streams.len()];
        // Backwards, so that the next row of a stream is at hand.
        for i in (0..n).rev() {
            let after = following[raw.rows.streams[i] as usize].replace(i);
            let after = after.filter(|&j| raw.seqs[i] + 1 == raw.seqs[j]);
            if raw.rows.terminated[i] {
                continue;
            }
            match after.filter(|_| !raw.rows.truncated[i]) {
                Some(j) => {
                    let d = header.dim;
                    next_states[i * d..(i + 1) * d].copy_from_slice(raw.rows.state(j));
                    // A truncated row without a successor hands its flag on to the row that leads to it.
                    raw.rows.truncated[i] = raw.rows.truncated[j] && !keep[j];
                }
                None => keep[i] = false,
            }
        }
        raw.rows.next_states = next_states;
    }
    for i in (0..n).filter(|&i| keep[i]) {
        let empty = |column: Column| Fault::Cell {
            line: raw.lines[i],
            column: header.name_of(column),
            message: "empty; only a row that is no transition may leave it out".to_owned(),
        };
        if let Some(k) = raw.rows.reward(i).iter().position(|v| v.is_nan()) {
            return Err(empty(Column::Reward(k)));
        }
        if let Some(k) = raw.actions[i * a..(i + 1) * a].iter().position(|v| v.is_nan()) {
            return Err(empty(Column::Action(k)));
        }
    }
    let Raw { rows, actions, seqs, streams, .. } = raw;
    if keep.iter().all(|&k| k) {
        return Ok(Table { rows, streams, seqs, actions, actions_per_row: a });
    }
    let mut table =
        Table { rows: Rows::new(header.dim, h), streams, seqs: Vec::new(), actions: Vec::new(), actions_per_row: a };
    for i in (0..n).filter(|&i| keep[i]) {
        table.rows.extend(&rows, i..i + 1);
        table.seqs.push(seqs[i]);
        table.actions.extend_from_slice(&actions[i * a..(i + 1) * a]);
    }
    Ok(table)
}

/// Mark the rows that do not continue the one before them in their stream.
fn mark_chains(rows: &mut Rows, seqs: &[u64], streams: usize) {
    let mut last: Vec<Option<usize>> = vec![None; streams];
    for i in 0..rows.len() {
        let before = last[rows.streams[i] as usize].replace(i);
        rows.starts_chain[i] = !before.is_some_and(|b| {
            !rows.terminated[b] && !rows.truncated[b] && seqs[b] + 1 == seqs[i] && rows.next_state(b) == rows.state(i)
        });
    }
}

/// Writes a table that [`Table::read`] reads back to the same rows. The session of a batch is not written.
pub struct TableWriter {
    path: PathBuf,
    writer: csv::Writer<File>,
    /// Of the first batch: D, H, A, whether there are discounts, whether there are sequence numbers.
    shape: Option<(usize, usize, usize, bool, bool)>,
}

impl TableWriter {
    /// Create the file, or empty it.
    ///
    /// # Errors
    /// If the name does not end in `.csv` or the file cannot be created.
    pub fn create(path: &Path) -> Result<Self, TableError> {
        let wrong = |fault| TableError { path: path.to_owned(), fault };
        if !path.extension().is_some_and(|e| e.eq_ignore_ascii_case("csv")) {
            return Err(wrong(Fault::Extension));
        }
        let file = File::create(path).map_err(|e| wrong(Fault::Io(e)))?;
        Ok(Self { path: path.to_owned(), writer: csv::Writer::from_writer(file), shape: None })
    }

    /// Append the rows of a batch; the first one decides the columns.
    ///
    /// # Errors
    /// If writing fails.
    ///
    /// # Panics
    /// If the batch has other columns than the first one.
    pub fn append(&mut self, batch: &Batch) -> Result<(), TableError> {
        let actions = batch.action(0).map_or(0, <[f64]>::len);
        let shape = (batch.dim(), batch.rewards_per_row(), actions, batch.discount(0).is_some(), batch.seq().is_some());
        let written = match self.shape.replace(shape) {
            None => self.writer.write_record(columns(shape)),
            Some(first) => {
                assert_eq!(first, shape, "every batch of a table has the same columns");
                Ok(())
            }
        };
        written.and_then(|()| self.append_rows(batch)).map_err(|e| self.fault(Fault::Csv(e)))
    }

    fn append_rows(&mut self, batch: &Batch) -> csv::Result<()> {
        for i in 0..batch.len() {
            self.writer.write_field(batch.stream())?;
            let numbers = batch.state(i).iter().chain(batch.next_state(i));
            for value in numbers.chain(batch.action(i).unwrap_or(&[])).chain(batch.reward(i)) {
                self.writer.write_field(value.to_string())?;
            }
            self.writer.write_field(batch.terminated(i).to_string())?;
            self.writer.write_field(batch.truncated(i).to_string())?;
            if let Some(discount) = batch.discount(i) {
                self.writer.write_field(discount.to_string())?;
            }
            if let Some(seq) = batch.seq() {
                self.writer.write_field((seq + i as u64).to_string())?;
            }
            self.writer.write_record(None::<&[u8]>)?;
        }
        Ok(())
    }

    /// Write what is still buffered.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> Result<(), TableError> {
        self.writer.flush().map_err(|e| self.fault(Fault::Io(e)))
    }

    fn fault(&self, fault: Fault) -> TableError {
        TableError { path: self.path.clone(), fault }
    }
}

fn columns((d, h, a, discount, seq): (usize, usize, usize, bool, bool)) -> Vec<String> {
    let group = |name: &'static str, n: usize, bare: bool| {
        (0..n).map(move |k| if bare && n == 1 { name.to_owned() } else { format!("{name}_{k}") })
    };
    let mut names = vec!["stream".to_owned()];
    names.extend(group("state", d, false).chain(group("next_state", d, false)));
    names.extend(group("action", a, true).chain(group("reward", h, true)));
    names.extend(["terminated", "truncated"].map(str::to_owned));
    names.extend(discount.then(|| "discount".to_owned()));
    names.extend(seq.then(|| "seq".to_owned()));
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    fn read(text: &str) -> Result<Table, TableError> {
        let (_directory, path) = file("table.csv", text);
        Table::read(&path)
    }

    fn message(text: &str) -> String {
        let full = read(text).unwrap_err().to_string();
        full.split_once("table.csv").unwrap().1.to_owned()
    }

    #[test]
    fn reads_every_column_in_any_order() {
        let table = read(
            "reward_1,reward_0,state_1,state_0,next_state_0,next_state_1,stream,action,terminated,truncated,discount,\
             time,seq,_note,info_lap\n\
             10,1,0.5,-1,-2,0.25,a,3,False,0,0.9,1700000000,5,hello,\n\
             20,2, 0.25,-2,,,a,4,TRUE,,,,6,,\n",
        )
        .unwrap();
        let rows = table.rows();
        assert_eq!((table.dim(), table.rewards_per_row(), table.streams()), (2, 2, &["a".to_owned()][..]));
        assert_eq!(
            (rows.state(0), rows.next_state(0), rows.reward(0)),
            (&[-1.0, 0.5][..], &[-2.0, 0.25][..], &[1.0, 10.0][..])
        );
        assert_eq!(rows.next_state(1), rows.state(1), "a terminated row needs no successor");
        assert_eq!(rows.terminated, [false, true]);
        assert_eq!(rows.starts_chain, [true, false]);
        assert_eq!((rows.discounts[0], rows.discounts[1].is_nan()), (0.9, true));
        assert_eq!(table.actions(), Some(&[3.0, 4.0][..]));
        let batches: Vec<Batch> = table.batches("s", 100).collect();
        assert_eq!(batches.len(), 2, "the critic's discount and a row's own cannot share a message");
        assert_eq!((batches[1].seq(), batches[1].discount(0), batches[1].action(0)), (Some(6), None, Some(&[4.0][..])));
    }

    #[test]
    fn chains_break_at_ends_gaps_jumps_and_between_streams() {
        let table = read(
            "stream,state_0,next_state_0,reward,terminated,truncated,seq\n\
             a,0,1,0,0,0,0\n\
             b,0,1,0,0,0,7\n\
             a,1,2,0,0,1,1\n\
             b,1,2,0,0,0,8\n\
             a,2,3,0,1,0,2\n\
             a,3,4,0,0,0,3\n\
             a,4,5,0,0,0,5\n\
             a,5.5,6,0,0,0,6\n\
             b,2,3,0,0,0,9\n",
        )
        .unwrap();
        assert_eq!(table.rows().starts_chain, [true, true, false, false, true, true, true, true, false]);
        assert_eq!(table.rows().streams, [0, 1, 0, 1, 0, 0, 0, 0, 1]);
        let lengths: Vec<usize> = table.batches("", 2).map(|b| b.len()).collect();
        assert_eq!(lengths, [1, 1, 1, 1, 2, 2, 1]);
    }

    #[test]
    fn the_next_row_of_the_stream_is_the_successor() {
        // Stream a: 0 -> 1 -> 2 (truncated there), then 10 -> 11 -> end, then 20 alone. Stream b runs in between.
        let table = read(
            "stream,state_0,reward,terminated,truncated\n\
             a,0,1,0,0\nb,100,9,0,0\na,1,2,0,0\na,2,,0,1\na,10,3,0,0\nb,101,,0,0\na,11,4,1,0\na,20,,0,0\n",
        )
        .unwrap();
        let rows = table.rows();
        assert_eq!(rows.states, [0.0, 100.0, 1.0, 10.0, 11.0]);
        assert_eq!(rows.next_states, [1.0, 101.0, 2.0, 11.0, 11.0]);
        assert_eq!(rows.rewards, [1.0, 9.0, 2.0, 3.0, 4.0]);
        assert_eq!(rows.truncated, [false, false, true, false, false]);
        assert_eq!(rows.terminated, [false, false, false, false, true]);
        assert_eq!(rows.starts_chain, [true, true, false, true, false]);
    }

    #[test]
    fn a_gap_in_seq_hides_the_successor() {
        let table = read("state_0,reward,seq\n0,1,0\n1,2,1\n5,3,5\n6,,6\n").unwrap();
        assert_eq!((&table.rows().states[..], &table.rows().next_states[..]), (&[0.0, 5.0][..], &[1.0, 6.0][..]));
        assert_eq!(table.rows().starts_chain, [true, true]);
        assert_eq!(table.streams(), ["default"]);
    }

    #[test]
    fn faults_name_line_and_column_and_say_what_to_do() {
        assert_eq!(message("state_0,reward\n1,2\n1,x\n2,1\n"), ", line 3, column reward: \"x\" is not a number");
        assert_eq!(
            message("state_0,reward\n1,\n2,1\n"),
            ", line 2, column reward: empty; only a row that is no transition may leave it out"
        );
        assert!(message("state_0,next_state_0,reward\n1,,3\n").contains("line 2, column next_state_0: empty"));
        assert!(message("state_0,next_state_0,reward\n1,nan,3\n").contains("not a finite number"));
        assert!(message("state_0,next_state_0,reward\n1,2e9,3\n").contains("rescale"));
        assert!(message("state_0,reward,terminated\n1,2,maybe\n").contains("line 2, column terminated"));
        assert!(message("state_0,reward,discount\n1,2,1.5\n").contains("lies in [0, 1]"));
        assert!(message("state_0,reward,seq\n1,2,3\n1,2,3\n").contains("line 3, column seq: must rise"));
        assert!(message("state_0,reward,stream\n1,2,\n").contains("column stream"));
        assert!(message("state_0,reward,done\n").contains("terminated (absorbing) or truncated"));
        assert!(message("state_0,reward,value\n").contains("underscore"));
        assert!(message("State_0,reward\n").contains("state_0"));
        assert!(message("state_0;reward\n").contains("separated by commas"));
        assert!(message("state,reward\n").contains("state_0"));
        assert!(message("state_0,state_2,reward\n").contains("column state_1: missing"));
        assert!(message("state_0,next_state_0,next_state_1,reward\n").contains("must agree"));
        assert!(message("state_0,reward,reward_0\n").contains("appears twice"));
        assert!(message("state_0\n1\n").contains("column reward: missing"));
        assert!(message("reward\n1\n").contains("column state_0: missing"));
        assert!(message("state_0,reward\n1,2,3\n").contains("line: 2"));
        assert!(message("state_0,reward\n1,2\n").contains("holds no transition"));
        assert!(message("").contains("holds no transition"));
        for (name, words) in [("t.npz", "not supported yet"), ("t.parquet", "convert it to CSV"), ("t.txt", ".csv")] {
            let (_directory, path) = file(name, "");
            assert!(Table::read(&path).unwrap_err().to_string().contains(words));
        }
        let absent = Table::read(Path::new("absent.csv")).unwrap_err();
        assert!(matches!(absent.fault, Fault::Io(_)) && absent.to_string().starts_with("absent.csv: "));
    }

    #[test]
    fn tables_of_states_hold_states_alone() {
        let (_directory, path) = file("states.csv", "\u{feff}state_1,state_0,_k\n1,2,a\n3,4,b\n");
        assert_eq!(read_states(&path).unwrap(), (vec![2.0, 1.0, 4.0, 3.0], 2));
        let (_directory, path) = file("states.csv", "state_0,reward\n1,2\n");
        assert!(read_states(&path).unwrap_err().to_string().contains("column reward: a table of states"));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let parts = BatchParts {
            stream: "robot, left".into(),
            seq: Some(3),
            dim: 2,
            rewards_per_row: 2,
            states: vec![0.1, 1e-300, 1.0 / 3.0, -5e8, 2.0, 3.0],
            rewards: vec![0.5, 1.0, -0.5, 2.0],
            actions: Some(vec![1.0, 2.0]),
            discounts: Some(vec![0.5, 1.0]),
            truncated: Some(vec![false, true]),
            ..BatchParts::default()
        };
        let batch = Batch::new(parts).unwrap();
        let (_directory, path) = file("table.csv", "");
        let mut writer = TableWriter::create(&path).unwrap();
        writer.append(&batch).unwrap();
        writer.finish().unwrap();
        let back: Vec<Batch> = Table::read(&path).unwrap().batches("", 10).collect();
        assert_eq!(back.len(), 1);
        assert_eq!((back[0].stream(), back[0].seq()), (batch.stream(), batch.seq()));
        assert!((0..2).all(|i| back[0].fingerprint(i) == batch.fingerprint(i)));
    }

    /// Two streams of a simulator, in pieces of up to five rows, the second with lost rows.
    fn simulated() -> Vec<Batch> {
        use crate::sim::{batches, walk::Walk};
        let (mut left, mut right) = (Walk::new(1, Some(12), 0.0), Walk::new(2, None, 0.1));
        let pieces = (0..40).flat_map(|_| {
            let steps = |walk: &mut Walk| (0..5).map(|_| walk.step()).collect::<Vec<_>>();
            let (a, b) = (steps(&mut left), steps(&mut right));
            batches("left", "", &a).into_iter().chain(batches("right", "", &b))
        });
        pieces.collect()
    }

    #[test]
    fn a_table_is_replayed_as_it_was_recorded() {
        let recorded = simulated();
        let (_directory, path) = file("table.csv", "");
        let mut writer = TableWriter::create(&path).unwrap();
        recorded.iter().for_each(|batch| writer.append(batch).unwrap());
        writer.finish().unwrap();
        let table = Table::read(&path).unwrap();
        let content = |batch: &Batch| {
            (0..batch.len())
                .map(|i| (batch.stream().to_owned(), batch.seq().unwrap() + i as u64, batch.fingerprint(i)))
                .collect::<Vec<_>>()
        };
        let replayed: Vec<_> =
            table.batches("", 3).inspect(|b| assert!(b.len() <= 3)).flat_map(|b| content(&b)).collect();
        assert_eq!(replayed, recorded.iter().flat_map(content).collect::<Vec<_>>());
        // The left stream is cut by its limit of 12 steps, the right one where rows are lost.
        let rows = table.rows();
        let chains = |stream| (0..rows.len()).filter(|&i| rows.streams[i] == stream && rows.starts_chain[i]).count();
        let right: Vec<u64> = replayed.iter().filter(|row| row.0 == "right").map(|row| row.1).collect();
        let gaps = right.windows(2).filter(|w| w[0] + 1 != w[1]).count();
        assert!(gaps > 5);
        assert_eq!((chains(0), chains(1)), (200_usize.div_ceil(12), 1 + gaps));
    }

    #[test]
    fn successors_are_found_again_when_they_are_left_out() {
        let recorded = simulated();
        let mut text = "stream,state_0,action,reward,truncated,seq\n".to_owned();
        let mut expected = Vec::new();
        for batch in &recorded {
            for i in 0..batch.len() {
                let (state, action, reward) = (batch.state(i)[0], batch.action(i).unwrap()[0], batch.reward(i)[0]);
                let (stream, truncated, seq) = (batch.stream(), batch.truncated(i), batch.seq().unwrap() + i as u64);
                text += &format!("{stream},{state},{action},{reward},{truncated},{seq}\n");
                expected.push((stream, seq, batch.fingerprint(i), batch.next_state(i)[0], truncated));
            }
        }
        let table = read(&text).unwrap();
        let mut kept = 0;
        for batch in table.batches("", 1) {
            let row = expected.iter().find(|e| e.0 == batch.stream() && Some(e.1) == batch.seq()).unwrap();
            assert_eq!(batch.next_state(0)[0], row.3, "{row:?}");
            assert!(!row.4, "a truncated row has no successor in the table");
            kept += 1;
        }
        let gaps = |stream| {
            let seqs: Vec<u64> = expected.iter().filter(|e| e.0 == stream).map(|e| e.1).collect();
            seqs.windows(2).filter(|w| w[0] + 1 != w[1]).count()
        };
        let truncated = expected.iter().filter(|e| e.4).count();
        assert_eq!(kept, expected.len() - truncated - gaps("right") - 2, "the last row of each stream goes too");
        assert_eq!(table.rows().truncated.iter().filter(|&&t| t).count(), truncated);
    }
}
