//! Tables of transitions on disk: CSV, JSONL, NPZ, Parquet and HDF5 (Minari, D4RL) in, [`Rows`] for learners and
//! [`Batch`]es for the wire out. The name's ending tells the format.
//!
//! # Columns
//! CSV has them in its first line, in any order; so has Parquet. k counts from 0 without a gap.
//!
//! | column | |
//! | --- | --- |
//! | `stream` | whose experience the row is, 1 to 256 bytes; left out: all rows are of stream `default` |
//! | `state_k` | required |
//! | `next_state_k` | the true successor; left out: see below |
//! | `reward`, or `reward_k` | required |
//! | `action`, or `action_k` | optional |
//! | `terminated` | `true`, `false`, `1`, `0` (any case); empty, or left out beside `truncated`: false. If both are missing, [`Reading`] says |
//! | `truncated` | the same, but left out: false |
//! | `done` | an end of which [`Reading`] says whether it terminated or truncated |
//! | `discount` | in \[0, 1\]; left out or empty: the critic's own |
//! | `time` | seconds; only heads that look seconds ahead learn from it |
//! | `seq` | position in the stream, rising; a step other than one starts a new chain; left out or empty: one more than before |
//! | `session` | the run of the producer; another one starts a new chain and may count `seq` from 0 again |
//! | `offset`, `received` | of `criticd export`: the row's position in the journal, Unix seconds when it came; skipped |
//! | `starts_chain` | true: the row does not continue the one before it in its stream, as if `seq` left a number out; left out or empty: false |
//! | `policy` | name of the policy that acted, 1 to 256 bytes; left out or empty: the policy of the row before |
//! | `behavior_prob` | above 0: probability or density under which the action was taken |
//! | `target_prob` | from 0: the same under the policy that is judged |
//! | `next_action`, or `next_action_k` | the action that this policy takes in the next state, as long as `action` |
//! | `next_action_probs_k` | its probabilities of discrete actions in the next state, which sum to 1 |
//!
//! The last four may be left out, or be empty in any row; a row has all its `next_action_k` or none, and all its
//! `next_action_probs_k` or none.
//!
//! Columns whose names start with `_` or `info_` are skipped. Any other name is an error, unless an option names the column or other
//! programs write it (`roles.rs`), so that a misspelt `terminated` does not quietly teach that episodes never end.
//!
//! JSONL has one object on each line, under the same names, or with lists as on the wire: `state`, `next_state`, `action`,
//! `reward`, `next_action`, `next_action_probs`. What has a default may be left out of any line; `v` is skipped.
//!
//! NPZ has arrays `states` (n, D), `next_states` (n, D), `actions` (n,) or (n, A), `rewards` (n,) or (n, H),
//! `terminated`, `truncated`, `done`, `discounts`, `streams` (texts or numbers), `times`, `sessions` (as `streams`), `seqs`, `offsets`, `received`,
//! `starts_chain`, `policies` (as `streams`),
//! `behavior_probs`, `target_probs` (n,), `next_actions` as `actions`, `next_action_probs` (n, C), of f4, f8, integers or
//! bool. `states` (n + 1, D) without `next_states` is a piece of one trajectory: only its last row may terminate or be
//! truncated. NaN stands for an empty cell where a cell may be empty.
//!
//! A Minari dataset is a directory; its file `data/main_data.hdf5` has a group for each episode. They are read in the order of their attribute `id` into the stream
//! `default`, and no chain goes from one to the next. D4RL files have flat arrays: `observations`, `rewards`,
//! `terminals`, and `next_observations` or `timeouts` or both. Other arrays of these two are left alone. Rows are counted
//! from 0 in arrays and Parquet, lines from 1.
//!
//! A LeRobot dataset is a directory as well. Its Parquet files under `data` are read in the order of their names, as one table;
//! `meta/info.json` names the numbers of its columns.
//!
//! # Rows without a successor
//! A terminated row needs none (its successor has value 0 whatever it is) and gets its own state as a placeholder. With
//! `next_state_k` columns only terminated rows may leave these cells empty. Without them, the next row of the same stream
//! is the successor, and a row gives only its state, as successor of the row before, if
//! - it is the last one of its stream,
//! - or `seq` or `starts_chain` says that the next row does not follow it,
//! - or it is truncated: the row after it starts elsewhere. The row before it, if there is one, becomes the truncated one.
//!
//! Such a row is no transition; its reward, action and discount are not used and may be empty.

mod alike;
mod annotations;
mod arrays;
mod breaks;
mod build;
mod category;
mod cell;
mod codes;
mod columns;
mod composed;
mod condition;
mod contradictions;
mod csv;
mod export;
mod extras;
mod fingerprint;
mod gaps;
#[cfg(feature = "hdf5")]
mod hdf5;
mod job;
mod jsonl;
mod judge;
mod jumps;
mod kept;
mod labels;
mod large;
mod lerobot;
mod look;
mod mapping;
mod moment;
mod names;
mod npz;
mod one_hot;
mod order;
#[cfg(feature = "parquet")]
mod parquet;
mod roles;
mod row;
mod runs;
mod schema;
mod sidecar;
mod text;

pub use self::columns::{Categories, Columns, Missing, Summary, Understood};
pub use self::export::{Placed, RowColumns, RowWriter};
pub use self::fingerprint::{fingerprint, fingerprint_as};
pub use self::kept::columns_at;
pub use self::large::LargeTable;
pub use self::lerobot::{ENDS, Info};
pub use self::look::{Guess, Look, Looked, guess};
pub use self::mapping::Mapping;
pub use self::sidecar::{Values, write_columns};
use build::Builder;
use criticd_learner::action::{ActionColumns, Column as ActionColumn};
use criticd_learner::transition::{Batch, BatchParts, Names, Rows, state_name};
use extras::{Extras, Wide};
use flate2 as _;
use job::{Column, Job, Want};
use order::FilePlace;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

/// Whether a file is a pipe or the like, which can be read once.
pub fn is_pipe(path: &Path) -> bool {
    path.exists() && !path.is_file() && !path.is_dir()
}

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
    Csv(::csv::Error),
    /// One line cannot be understood (JSONL).
    Line {
        /// Line of the file, counted from 1.
        line: u64,
        /// What is wrong with it.
        message: String,
    },
    /// The file is not what its name says, or damaged, or holds something else than transitions.
    Content(String),
    /// The file is of a kind that cannot be read.
    Extension,
    /// A column, a key or an array is missing, double, unknown or of the wrong kind.
    Column {
        /// Its name.
        column: String,
        /// What to do about it.
        message: String,
    },
    /// One cell is wrong.
    Cell {
        /// Line of the file, counted from 1, or in binary formats row, counted from 0.
        row: u64,
        /// Name of the column, key or array.
        column: String,
        /// What to do about it.
        message: String,
    },
    /// There is no row, or no transition in the rows there are.
    Empty,
    /// The progress callback stopped the reading.
    Stopped,
}

impl Fault {
    fn column(column: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Column { column: column.into(), message: message.into() }
    }
}

impl std::fmt::Display for TableError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.path.display())?;
        let of_folder = || lerobot::is_dataset(&self.path).then_some(Format::Parquet);
        let format = Format::of(&self.path).or_else(of_folder).unwrap_or(Format::Csv);
        let (row, column) = format.words();
        match &self.fault {
            Fault::Io(e) => write!(f, ": {e}"),
            Fault::Csv(e) => write!(f, ": {e}"),
            Fault::Line { line, message } => write!(f, ", line {line}: {message}"),
            Fault::Content(message) => write!(f, ": {message}"),
            Fault::Extension => f.write_str(
                ": not a table that can be read; its name must end in .csv, .tsv, .txt, .jsonl, .npz, .parquet or .hdf5, or say \
                 what it is: --format csv",
            ),
            Fault::Column { column: name, message } => write!(f, ", {column} {name}: {message}"),
            Fault::Cell { row: at, column: name, message } => write!(f, ", {row} {at}, {column} {name}: {message}"),
            Fault::Empty => f.write_str(": the table holds no transition"),
            Fault::Stopped => f.write_str(": it was not read to its end"),
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

impl From<::csv::Error> for Fault {
    fn from(e: ::csv::Error) -> Self {
        Self::Csv(e)
    }
}

/// Of a directory that the package datasets has written.
const DATASETS: &str = "a directory of the package datasets; write it as a file. In Python, with a row for each step: \
                        datasets.load_from_disk(\"OLD\").to_parquet(\"NEW.parquet\"). Of imitation, with a row for each trajectory: \
                        steps = imitation.data.rollout.flatten_trajectories_with_rew(imitation.data.serialize.load_with_rewards(\"OLD\")); \
                        numpy.savez(\"NEW.npz\", obs=steps.obs, acts=steps.acts, rews=steps.rews, next_obs=steps.next_obs, \
                        terminated=steps.dones)";

/// How names of texts end that may be tables beside CSV's own; only to be read.
const TEXTS: [&str; 4] = ["tsv", "tab", "txt", "dat"];

/// A format of tables, told by the name of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Csv,
    Jsonl,
    Npz,
    Parquet,
    Hdf5,
}

impl Format {
    /// The format of a file that is to be read: `said`, or as its name tells.
    fn to_read(path: &Path, said: Option<&str>) -> Result<Self, Fault> {
        if let Some(said) = said {
            return Self::of_extension(said).ok_or_else(|| {
                Fault::column("format", format!("there is no {said:?}, only csv, jsonl, npz, parquet and hdf5"))
            });
        }
        let of_datasets = |path: &Path| ["dataset_info.json", "dataset_dict.json"].map(|name| path.join(name));
        if lerobot::is_dataset(path) {
            return Ok(Self::Parquet);
        }
        let text = || path.extension().is_some_and(|of| TEXTS.iter().any(|text| of.eq_ignore_ascii_case(text)));
        let of_name = Self::of(path).filter(|_| !path.is_dir());
        of_name.or_else(|| text().then_some(Self::Csv)).ok_or_else(|| match path.is_dir() {
            true if of_datasets(path).iter().any(|file| file.is_file()) => Fault::Content(DATASETS.to_owned()),
            true => Fault::Content(text::otherwise(path).unwrap_or_else(|| {
                "a directory, but no LeRobot dataset (meta/info.json) and no Minari dataset in HDF5 (data/main_data.hdf5); name the \
                 file, or let Minari write the dataset with data_format=\"hdf5\""
                    .to_owned()
            })),
            false => text::otherwise(path).map_or(Fault::Extension, Fault::Content),
        })
    }

    fn of(path: &Path) -> Option<Self> {
        Self::of_extension(path.extension().and_then(OsStr::to_str)?)
    }

    fn of_extension(extension: &str) -> Option<Self> {
        Some(match extension.to_ascii_lowercase().as_str() {
            "csv" => Self::Csv,
            "jsonl" | "ndjson" | "json" => Self::Jsonl,
            "npz" => Self::Npz,
            "parquet" => Self::Parquet,
            "hdf5" | "h5" => Self::Hdf5,
            _ => return None,
        })
    }

    /// What a row and a column are called.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Csv => ("line", "column"),
            Self::Jsonl => ("line", "key"),
            Self::Npz | Self::Hdf5 => ("row", "array"),
            Self::Parquet => ("row", "column"),
        }
    }

    fn has_arrays(self) -> bool {
        matches!(self, Self::Npz | Self::Hdf5)
    }

    /// What a column is called that is not there.
    fn name(self, column: Column) -> &'static str {
        match (self, column) {
            (Self::Csv | Self::Parquet, Column::State(_)) => "state_0",
            (Self::Jsonl, Column::State(_)) => "state",
            (Self::Jsonl, Column::NextState(_)) => "next_state",
            (Self::Npz, Column::State(_)) => "states",
            (Self::Npz, Column::NextState(_)) => "next_states",
            (Self::Hdf5, Column::State(_)) => "observations",
            (Self::Hdf5, Column::NextState(_)) => "next_observations",
            (Self::Npz | Self::Hdf5, Column::Reward(_)) => "rewards",
            (_, Column::Reward(_)) => "reward",
            (Self::Hdf5, Column::Terminated) => "terminals or terminations",
            _ => "terminated",
        }
    }

    fn read(self, path: &Path, job: &mut Job<'_>) -> Result<Builder, Fault> {
        match self {
            Self::Csv => csv::read(path, job),
            Self::Jsonl => jsonl::read(path, job),
            Self::Npz => npz::read(path, job),
            #[cfg(feature = "parquet")]
            Self::Parquet => parquet::read(path, job),
            #[cfg(feature = "hdf5")]
            Self::Hdf5 => hdf5::read(path, job),
            #[cfg(not(feature = "parquet"))]
            Self::Parquet => Err(not_built("Parquet", "parquet")),
            #[cfg(not(feature = "hdf5"))]
            Self::Hdf5 => Err(not_built("HDF5", "hdf5")),
        }
    }
}

#[cfg(not(all(feature = "parquet", feature = "hdf5")))]
fn not_built(name: &str, feature: &str) -> Fault {
    Fault::Content(format!(
        "this criticd was built without {name}; install one with it (cargo install --profile dist --path . --features {feature}), \
         or convert the file to NPZ or CSV"
    ))
}

/// What to make of a table that does not say everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Reading {
    /// Where episodes terminate if the table does not say; none: such a table is refused.
    pub assume_terminated: Option<AssumeTerminated>,
    /// What a column `done` means; none: a table with one is refused.
    pub done: Option<Done>,
    /// Whether rows have nothing to do with each other, so that each ends where it stands: the rows of a regression.
    pub independent: bool,
    /// Whether every row is a step, in the order of the file: also one that has the episode and time of another, or follows the
    /// end of its episode. Else exact copies are left out, and what contradicts itself is refused.
    pub keep_all: bool,
}

/// Where episodes terminate in a table that does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AssumeTerminated {
    /// Nowhere.
    Never,
    /// In the last row of every piece, unless that was truncated. A piece ends where its stream ends, `seq` leaves a
    /// number out, the next row of the stream starts a chain (`starts_chain`), or elsewhere than in the successor given.
    Last,
}

/// What the end of an episode is that is only called `done`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Done {
    /// Nothing of value can follow.
    Terminated,
    /// It was cut off from outside.
    Truncated,
}

/// How far a table is read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Progress {
    /// Rows so far.
    pub rows: u64,
    /// Part of the work that is done, in \[0, 1\].
    pub fraction: f64,
}

/// Transitions of a file, checked: every number is finite and in range, every row has a successor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Table {
    rows: Rows,
    streams: Vec<String>,
    /// Names of the policies, in order of appearance.
    policies: Vec<String>,
    seqs: Vec<u64>,
    extras: Extras,
    places: Vec<FilePlace>,
    /// Of each row its episode, a number of `episode_names`, and its number in it.
    episodes: Vec<u32>,
    frames: Vec<u64>,
    /// Empty where no column names episodes: they are chains then, and have numbers.
    episode_names: Vec<String>,
    /// Rows of the file.
    read: usize,
    /// Rows of the file that are copies of others, and are not here.
    copies: usize,
    /// Those that lack a number, and are not here.
    dropped: usize,
    /// What there is to tell of the order of the rows.
    told: Vec<String>,
    categories: Categories,
    understood: Understood,
}

impl Table {
    /// Read a file whose name ends in `.csv`, `.jsonl`, `.npz`, `.hdf5` (or `.h5`) or `.parquet`; the last two if the
    /// features of these names were built. `progress` hears now and then how far that is.
    ///
    /// # Errors
    /// The first fault found, with its row and column and what to do about it.
    pub fn read(path: &Path, reading: Reading, progress: &mut dyn FnMut(Progress)) -> Result<Self, TableError> {
        Self::read_as(path, reading, &Columns::default(), progress)
    }

    /// As [`Table::read`], for a table whose columns have other names.
    ///
    /// # Errors
    /// As there; among them a column that is named and not in the file.
    pub fn read_as(
        path: &Path,
        reading: Reading,
        columns: &Columns,
        progress: &mut dyn FnMut(Progress),
    ) -> Result<Self, TableError> {
        let path = &locate(path);
        read(path, Want::Transitions(reading), columns, progress)
            .and_then(Builder::into_table)
            .map_err(|fault| TableError { path: path.to_owned(), fault })
    }

    /// What was understood of the file.
    pub fn understood(&self) -> &Understood {
        &self.understood
    }

    /// What is odd about the order of the rows, and what was done about it: a sentence each.
    pub fn told(&self) -> &[String] {
        &self.told
    }

    /// The texts of the state variables that hold texts, and behind them the texts of actions; the rows have their codes.
    pub fn categories(&self) -> &Categories {
        &self.categories
    }

    /// The actions in the order of their codes, where they are texts; else nothing.
    pub fn action_texts(&self) -> &[String] {
        self.categories.of(self.rows.dim)
    }

    /// The state variables that hold texts.
    pub fn texts(&self) -> impl Iterator<Item = usize> {
        (0..self.rows.dim).filter(|&d| !self.categories.of(d).is_empty())
    }

    /// Of each row its episode: those that a column names, else chains, both numbered in order of appearance.
    pub fn episodes(&self) -> &[u32] {
        &self.episodes
    }

    /// What the file calls its episodes; empty where no column names them.
    pub fn episode_names(&self) -> &[String] {
        &self.episode_names
    }

    /// Where row i stands in the file: its line from 1, or in binary formats its row from 0.
    ///
    /// # Panics
    /// If there are fewer rows.
    pub fn place(&self, i: usize) -> u64 {
        self.places[i].line
    }

    /// Of each row its number in its episode, from 0 or as the file has it.
    pub fn frames(&self) -> &[u64] {
        &self.frames
    }

    /// How much there is, how episodes end, and from where to where numbers go.
    pub fn summary(&self) -> Summary {
        let rows = &self.rows;
        let episodes = self.episodes.iter().max().map_or(0, |&last| last as usize + 1);
        let mut ends = [0; 3];
        // Backwards: whether the next row of a stream starts a chain, or there is none.
        let mut over = vec![true; self.streams.len()];
        for i in (0..rows.len()).rev() {
            let over = std::mem::replace(&mut over[rows.streams[i] as usize], rows.starts_chain[i]);
            match () {
                () if rows.terminated[i] => ends[0] += 1,
                () if rows.truncated[i] => ends[1] += 1,
                () if over => ends[2] += 1,
                () => {}
            }
        }
        Summary {
            rows: self.read,
            copies: self.copies,
            dropped: self.dropped,
            transitions: rows.len(),
            episodes,
            ends,
            states: ranges(&rows.states, rows.dim),
            rewards: ranges(&rows.rewards, rows.rewards_per_row),
            actions: ranges(&self.extras.actions.values, self.extras.actions.width),
        }
    }

    /// That chains begin inside episodes, if some do; what episodes and rows are called.
    fn say_breaks(&self, episode: &str, row: &str) -> Option<String> {
        let mut before: Vec<Option<u32>> = vec![None; self.streams.len()];
        let inside = |&i: &usize| {
            let episode = self.episodes[i];
            before[self.rows.streams[i] as usize].replace(episode) == Some(episode) && self.rows.starts_chain[i]
        };
        let breaks: Vec<usize> = (0..self.rows.len()).filter(inside).collect();
        let first = *breaks.iter().min_by_key(|&&i| self.places[i].line)?;
        let (times, line) = (breaks.len(), self.places[first].line);
        let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
        let name = &self.episode_names[self.episodes[first] as usize];
        Some(format!(
            "episodes are cut {times} inside: a row does not lead to the one behind it; the first: {row} {line}, {episode} {name}"
        ))
    }

    /// Take chains for episodes.
    fn number_chains(&mut self) {
        let mut current: Vec<(u32, u64)> = vec![(0, 0); self.streams.len()];
        let mut next = 0;
        self.episodes = Vec::with_capacity(self.rows.len());
        self.frames = Vec::with_capacity(self.rows.len());
        for i in 0..self.rows.len() {
            let current = &mut current[self.rows.streams[i] as usize];
            if self.rows.starts_chain[i] {
                *current = (next, 0);
                next += 1;
            }
            self.episodes.push(current.0);
            self.frames.push(current.1);
            current.1 += 1;
        }
    }

    /// The transitions in file order. Streams are numbered in order of appearance; `starts_chain` is set unless the row
    /// continues the one before it in its stream: that one neither terminated nor truncated, `seq`, if there is one, rose
    /// by one, its successor equals this row's state exactly, and no column `starts_chain` says otherwise.
    pub fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The transitions with their actions and times, without the rest.
    pub fn into_rows(self) -> Rows {
        let Self { mut rows, extras, .. } = self;
        (rows.actions_per_row, rows.actions) = (extras.actions.width, extras.actions.values);
        (rows.keeps_times, rows.times) = (extras.times.width > 0, extras.times.values);
        rows
    }

    /// Names of the streams, in order of appearance: `streams()[k]` is stream k of [`Rows::streams`].
    pub fn streams(&self) -> &[String] {
        &self.streams
    }

    /// Names of the policies that rows name, in order of appearance.
    pub fn policies(&self) -> &[String] {
        &self.policies
    }

    /// Number of the policy that acted in each row (n,): the one that the row names, else the policy of the row before in the file;
    /// before the first name, that one. Empty where no row names one.
    pub fn policy_of_rows(&self) -> Vec<usize> {
        let mut present = (0..self.rows.len()).find_map(|i| self.extras.policy(i));
        let number = |i| {
            present = self.extras.policy(i).or(present);
            present
        };
        (0..self.rows.len()).map_while(number).collect()
    }

    /// Keep the rows for which `keep` is set. Where the row before in its stream goes, a row starts a chain; episodes are numbered
    /// from 0 again where no column names them.
    pub fn keep(&mut self, keep: impl Fn(usize) -> bool) {
        let mut rows = Rows::new(self.rows.dim, self.rows.rewards_per_row);
        let (mut extras, mut before) = (self.extras.without_rows(), vec![false; self.streams.len()]);
        let kept: Vec<usize> = (0..self.rows.len()).filter(|&i| keep(i)).collect();
        let mut next = kept.iter().copied().peekable();
        for i in 0..self.rows.len() {
            let stays = next.next_if_eq(&i).is_some();
            let followed = std::mem::replace(&mut before[self.rows.streams[i] as usize], stays);
            if stays {
                rows.extend(&self.rows, i..i + 1);
                *rows.starts_chain.last_mut().expect("a row was appended") |= !followed;
                extras.push_from(&self.extras, i);
            }
        }
        (self.rows, self.extras) = (rows, extras);
        self.seqs = kept.iter().map(|&i| self.seqs[i]).collect();
        self.places = kept.iter().map(|&i| self.places[i]).collect();
        if self.episode_names.is_empty() {
            return self.number_chains();
        }
        self.episodes = kept.iter().map(|&i| self.episodes[i]).collect();
        self.frames = kept.iter().map(|&i| self.frames[i]).collect();
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
        (self.extras.actions.width > 0).then_some(&self.extras.actions.values)
    }

    /// What the rows say of actions.
    pub fn action_columns(&self) -> ActionColumns {
        let column = |wide: &Wide| ActionColumn { width: wide.width, values: wide.values.clone() };
        let Extras { actions, behavior_probs, target_probs, next_actions, next_action_probs, .. } = &self.extras;
        ActionColumns {
            actions: column(actions),
            behavior_probs: column(behavior_probs),
            target_probs: column(target_probs),
            next_actions: column(next_actions),
            next_action_probs: column(next_action_probs),
        }
    }

    /// The rows in file order as messages of the producer's run `session`: each batch is a run of consecutive rows of one
    /// stream with at most `rows_max` rows, which all have the same optional columns. Rows are numbered by the column `seq`,
    /// or, without it, from 0 in each stream; before each row that the column `starts_chain` marks one number more is left
    /// out, since that starts a chain in a daemon.
    ///
    /// # Panics
    /// If `rows_max` is 0 or `session` longer than 256 bytes.
    pub fn batches<'a>(&'a self, session: &'a str, rows_max: usize) -> impl Iterator<Item = Batch> + 'a {
        self.batches_named(&str::to_owned, session, rows_max)
    }

    /// As [`Table::batches`], with streams called what `name` makes of their names.
    fn batches_named<'a>(
        &'a self,
        name: &'a dyn Fn(&str) -> String,
        session: &'a str,
        rows_max: usize,
    ) -> impl Iterator<Item = Batch> + 'a {
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
            Some(self.batch(name, session, range))
        })
    }

    /// What its state variables are called (D,), with their units in brackets, if that is known.
    pub fn names_with_units(&self) -> Option<Vec<String>> {
        let (names, units) = (&self.understood.names, &self.understood.units);
        let numbered = || units.as_ref().map(|units| (0..units.len()).map(state_name).collect());
        let names: Vec<String> = names.clone().or_else(numbered)?;
        let unit = |d: usize| units.as_ref().and_then(|units| units.get(d)).filter(|unit| !unit.is_empty());
        let label = |(d, name): (usize, String)| match unit(d) {
            Some(unit) => format!("{name} [{unit}]"),
            None => name,
        };
        Some(names.into_iter().enumerate().map(label).collect())
    }

    /// What its numbers are called, as far as that is known.
    fn names(&self) -> Names {
        let rewards = self.understood.reward_names.clone();
        let rewards = rewards.filter(|names| names.len() == self.rows.rewards_per_row);
        let texts = self.action_texts();
        let actions = if texts.is_empty() { self.understood.action_names.clone() } else { Some(texts.to_vec()) };
        let names = Names { states: self.names_with_units(), rewards, actions };
        if names.check_actions(self.extras.actions.width).is_ok() { names } else { Names { actions: None, ..names } }
    }

    /// Whether two neighbouring rows can travel in one batch.
    fn same_message(&self, i: usize, j: usize) -> bool {
        self.rows.streams[i] == self.rows.streams[j]
            && self.seqs[i] + 1 == self.seqs[j]
            && self.rows.discounts[i].is_nan() == self.rows.discounts[j].is_nan()
            && self.extras.alike(i, j)
    }

    fn batch(&self, name: &dyn Fn(&str) -> String, session: &str, range: std::ops::Range<usize>) -> Batch {
        let (rows, start) = (&self.rows, range.start);
        let matrix = |values: &[f64], width: usize| values[range.start * width..range.end * width].to_vec();
        let parts = BatchParts {
            stream: name(&self.streams[rows.streams[start] as usize]),
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
            actions: self.extras.actions.part(&range),
            times: self.extras.times.part(&range),
            behavior_probs: self.extras.behavior_probs.part(&range),
            target_probs: self.extras.target_probs.part(&range),
            next_actions: self.extras.next_actions.part(&range),
            next_action_probs: self.extras.next_action_probs.part(&range),
            policy: self.extras.policy(start).map(|number| self.policies[number].clone()),
            names: if start == 0 { self.names() } else { Names::default() },
            ..BatchParts::default()
        };
        Batch::new(parts).expect("rows were checked when they were read")
    }
}

/// Read a table of states: columns `state_0`, `state_1`, ... or the array `states` and no others (those that start with
/// `_` or `info_` are skipped); of HDF5 the observations. Gives the states (n, D), row-major, and D.
///
/// # Errors
/// The first fault found, with its row and column and what to do about it.
pub fn read_states(path: &Path, progress: &mut dyn FnMut(Progress)) -> Result<(Vec<f64>, usize), TableError> {
    read_states_as(path, &Columns::default(), progress)
}

/// As [`read_states`], of columns with other names. Those that `columns.state` names are taken, or those called as
/// `columns.names` if all of them are there, and what else is in the file is left alone.
///
/// # Errors
/// As there; among them a column that is named and not in the file.
pub fn read_states_as(
    path: &Path,
    columns: &Columns,
    progress: &mut dyn FnMut(Progress),
) -> Result<(Vec<f64>, usize), TableError> {
    let path = &locate(path);
    read(path, Want::States, columns, progress)
        .and_then(Builder::into_states)
        .map_err(|fault| TableError { path: path.to_owned(), fault })
}

/// Look at what the columns of a file hold, for which nothing needs to be known of it but its `format`, where its name does not tell that.
///
/// # Errors
/// If the file cannot be read.
pub fn look(path: &Path, format: Option<&str>, progress: &mut dyn FnMut(Progress)) -> Result<Looked, TableError> {
    let (path, columns) = (&locate(path), Columns { format: format.map(str::to_owned), ..Columns::default() });
    read(path, Want::Look, &columns, progress)
        .and_then(Builder::into_looks)
        .map_err(|fault| TableError { path: path.to_owned(), fault })
}

fn read(path: &Path, want: Want, columns: &Columns, progress: &mut dyn FnMut(Progress)) -> Result<Builder, Fault> {
    let format = Format::to_read(path, columns.format.as_deref())?;
    let progress = &mut |done| {
        progress(done);
        true
    };
    let columns = &lerobot::understood(path, columns, want)?;
    format.read(path, &mut Job { format, want, columns, progress, pieces: None })
}

/// From where to where each of `width` numbers goes.
fn ranges(values: &[f64], width: usize) -> Vec<[f64; 2]> {
    let mut ranges = vec![[f64::INFINITY, f64::NEG_INFINITY]; width];
    for row in values.chunks_exact(width.max(1)) {
        for (range, value) in ranges.iter_mut().zip(row) {
            *range = [range[0].min(*value), range[1].max(*value)];
        }
    }
    ranges
}

/// The file that holds the table: of a Minari dataset, which is a directory, its data.
fn locate(path: &Path) -> PathBuf {
    let inside = ["data/main_data.hdf5", "main_data.hdf5"].map(|name| path.join(name));
    let found = inside.into_iter().find(|file| path.is_dir() && file.is_file());
    found.unwrap_or_else(|| path.to_owned())
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

    const NEVER: Reading =
        Reading { assume_terminated: Some(AssumeTerminated::Never), done: None, independent: false, keep_all: false };

    fn open(path: &Path, reading: Reading) -> Result<Table, TableError> {
        Table::read(path, reading, &mut |_| {})
    }

    fn read(text: &str) -> Result<Table, TableError> {
        let (_directory, path) = file("table.csv", text);
        open(&path, NEVER)
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
    fn a_row_that_starts_a_chain_cuts_the_one_before_it() {
        // With successors nothing is lost but the link.
        let table = read(
            "stream,state_0,next_state_0,reward,starts_chain\n\
             a,0,1,0,1\nb,7,8,0,\na,1,2,0,0\na,2,3,0,true\na,3,4,0,\nb,8,9,0,0\n",
        )
        .unwrap();
        assert_eq!(table.rows().starts_chain, [true, true, false, true, false, false]);
        let seqs: Vec<u64> = table.batches("", 1).map(|batch| batch.seq().unwrap()).collect();
        assert_eq!(seqs, [0, 0, 1, 3, 4, 1]);
        // Without, the row before it only lends its state, as before a gap.
        let table = read("state_0,reward,starts_chain\n0,1,0\n1,2,0\n2,3,0\n2,4,1\n3,,0\n").unwrap();
        assert_eq!((&table.rows().states[..], &table.rows().next_states[..]), (&[0., 1., 2.][..], &[1., 2., 3.][..]));
        assert_eq!(table.rows().rewards, [1.0, 2.0, 4.0]);
        assert_eq!(table.rows().starts_chain, [true, false, true]);
        // Next to seq, which the file counts without it.
        let table = read("state_0,reward,seq,starts_chain\n0,1,3,0\n1,2,4,1\n2,3,5,1\n3,,6,0\n").unwrap();
        assert_eq!((table.rows().len(), &table.rows().starts_chain[..]), (1, &[true][..]));
        let largest = u64::MAX - 1;
        let text = format!("state_0,next_state_0,reward,seq,starts_chain\n0,1,0,0,0\n1,2,0,{largest},1\n");
        assert!(message(&text).contains("line 3, column seq: 18446744073709551614 is too large"));
        assert!(message("state_0,reward,starts_chain\n1,2,maybe\n").contains("line 2, column starts_chain"));
    }

    #[test]
    fn faults_of_policies_name_line_and_column() {
        let of = |columns: &str, cells: &str| message(&format!("state_0,reward,{columns}\n0,1{cells}\n1,1{cells}\n"));
        assert!(of("behavior_prob", ",0").contains(", line 2, column behavior_prob: an action that was taken"));
        assert!(of("behavior_prob", ",x").contains("line 2, column behavior_prob: \"x\" is not a number"));
        assert!(
            of("target_prob", ",-1").contains("line 2, column target_prob: a probability or density is at least 0")
        );
        assert!(of("target_prob", ",inf").contains("line 2, column target_prob: inf is not a finite number"));
        assert!(of("target_prob,behavior_prob", ",1,1e-12").contains("line 2, column target_prob: the ratio"));
        let two = "next_action_0,next_action_1";
        assert!(of(two, ",1,").contains("line 2, column next_action_1: empty; a row has all of these numbers or none"));
        assert!(of("action,next_action_0,next_action_1", ",1,1,1").contains("column next_action_0: actions have 1"));
        assert!(of("next_action_1", ",1").contains("column next_action_0: missing"));
        let two = "next_action_probs_0,next_action_probs_1";
        assert!(
            of(two, ",0.5,0.75").contains("line 2, column next_action_probs_0: the probabilities of a row sum to 1")
        );
        assert!(of(two, ",0,1.5").contains("line 2, column next_action_probs_1: a probability lies in [0, 1]"));
        assert!(of(two, ",,1").contains("line 2, column next_action_probs_0: empty; a row has all"));
        assert!(of("next_action_probs", ",1").contains("number it: next_action_probs_0"));
        assert!(of("behavior_probs", ",1").contains("names are singular here"));
        let (_directory, path) =
            file("t.jsonl", "{\"state\": [1], \"reward\": 1, \"next_action_probs\": [0.5, 0.25]}\n");
        let said = open(&path, NEVER).unwrap_err().to_string();
        assert!(said.contains("line 1, key next_action_probs[0]: the probabilities of a row sum to 1"), "{said}");
    }

    #[test]
    fn faults_name_line_and_column_and_say_what_to_do() {
        assert_eq!(message("state_0,reward\n1,2\n1,x\n2,1\n"), ", line 3, column reward: \"x\" is not a number");
        assert_eq!(
            message("state_0,reward\n1,\n2,1\n"),
            ", line 2, column reward: empty; only a row that gives just its state may omit it, or say --missing drop to leave such rows out"
        );
        assert!(message("state_0,next_state_0,reward\n1,,3\n").contains("line 2, column next_state_0: empty"));
        assert!(message("state_0,next_state_0,reward\n1,nan,3\n").contains("not a finite number"));
        assert!(message("state_0,next_state_0,reward\n1,2e9,3\n").contains("rescale"));
        assert!(message("state_0,reward,terminated\n1,2,maybe\n").contains("line 2, column terminated"));
        assert!(message("state_0,reward,discount\n1,2,1.5\n").contains("lies in [0, 1]"));
        assert!(message("state_0,reward,seq\n1,2,3\n1,4,3\n").contains("line 3, column seq: must rise"));
        assert!(message("state_0,reward,stream\n1,2,\n").contains("column stream"));
        assert!(message("state_0,reward,done\n").contains("--done terminated"));
        assert!(message("state_0,reward,value\n").contains("underscore"));
        assert!(message("State_0,reward\n").contains("state_0"));
        assert!(message("state_0 reward\n1 2\n").contains("holds no transition"));
        assert!(message("state,reward\n").contains("state_0"));
        assert!(message("state_0,state_2,reward\n").contains("column state_1: missing"));
        assert!(message("state_0,next_state_0,next_state_1,reward\n").contains("must agree"));
        assert!(message("state_0,reward,reward_0\n").contains("appears twice"));
        assert!(message("state_0\n1\n").contains("column reward: missing"));
        assert!(message("reward\n1\n").contains("column state_0: missing"));
        assert!(message("state_0,reward\n1,2,3\n").contains(", line 2: has 3 cells, the first line has 2"));
        assert!(message("state_0,reward\n1,2\n").contains("holds no transition"));
        assert!(message("").contains("holds no transition"));
        let (_directory, path) = file("t.old", "");
        assert!(open(&path, NEVER).unwrap_err().to_string().contains("must end in .csv"));
        let absent = open(Path::new("absent.csv"), NEVER).unwrap_err();
        assert!(matches!(absent.fault, Fault::Io(_)) && absent.to_string().starts_with("absent.csv: "));
    }

    #[test]
    fn tables_of_states_hold_states_alone() {
        let (_directory, path) = file("states.csv", "\u{feff}state_1,state_0,_k\n1,2,a\n3,4,b\n");
        assert_eq!(read_states(&path, &mut |_| {}).unwrap(), (vec![2.0, 1.0, 4.0, 3.0], 2));
        let (_directory, path) = file("states.csv", "state_0,reward\n1,2\n");
        assert!(read_states(&path, &mut |_| {}).unwrap_err().to_string().contains("column reward: a table of states"));
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
            behavior_probs: Some(vec![0.1, 1e-300]),
            target_probs: Some(vec![1.0 / 3.0, 0.0]),
            next_actions: Some(vec![2.0, 0.5]),
            next_action_probs: Some(vec![0.1, 0.2, 0.7, 1.0, 0.0, 0.0]),
            ..BatchParts::default()
        };
        let batch = Batch::new(parts).unwrap();
        let (_directory, path) = file("table.csv", "");
        write(&path, std::slice::from_ref(&batch));
        let back: Vec<Batch> = open(&path, NEVER).unwrap().batches("", 10).collect();
        assert_eq!(back.len(), 1);
        assert_eq!((back[0].stream(), back[0].seq()), (batch.stream(), batch.seq()));
        assert!((0..2).all(|i| back[0].fingerprint(i) == batch.fingerprint(i)));
    }

    /// Write these batches as `criticd export` writes the rows of a journal.
    fn write(path: &Path, batches: &[Batch]) {
        let mut columns = RowColumns::default();
        batches.iter().for_each(|batch| columns.include(batch).unwrap());
        let mut writer = RowWriter::create(path, &columns).unwrap();
        for (batch, i) in batches.iter().flat_map(|batch| (0..batch.len()).map(move |i| (batch, i))) {
            writer.push(batch, i, &Placed { offset: 0, received: 0.0, starts_chain: false }).unwrap();
        }
        writer.finish().unwrap();
    }

    /// Two streams of a simulator, in pieces of up to five rows, the second with lost rows.
    fn simulated() -> Vec<Batch> {
        use criticd_sim::{batches, walk::Walk};
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
        write(&path, &recorded);
        let table = open(&path, NEVER).unwrap();
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

    /// Rows in the order in which they are handed over.
    fn handed_over(batches: &mut dyn Iterator<Item = Batch>) -> Vec<(String, u64, u64)> {
        batches
            .flat_map(|b| {
                let row = |i| (b.stream().to_owned(), b.seq().unwrap() + i as u64, b.fingerprint(i));
                (0..b.len()).map(row).collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn a_large_table_gives_the_rows_that_a_table_gives() {
        // Streams that begin, pause and end anywhere, of which some pause for longer than a piece; ends and gaps.
        let mut text = [String::new(), String::new(), String::new()];
        text[0] += "stream,state_0,next_state_0,reward,terminated,truncated,seq\n";
        text[1] += "stream,state_0,reward,terminated,truncated,seq\n";
        text[2] += "stream,state_0,reward,truncated,seq\n";
        let mut seqs = [0; 7];
        for i in 0..60_000_u64 {
            // The last stream has a row at the beginning and one at the end.
            let mixed = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
            let stream = if i == 5 || i == 50_000 { 6 } else { (mixed % 3 + i / 15_000) as usize % 6 };
            let seq = &mut seqs[stream];
            *seq += if mixed.is_multiple_of(97) { 2 } else { 1 };
            let (at, ends) = (*seq as f64 / 8.0, mixed % 101);
            let (terminated, truncated) = (u8::from(ends == 0), u8::from(ends == 1));
            text[0] += &format!("s{stream},{at},{},{i},{terminated},{truncated},{seq}\n", at + 0.125);
            text[1] += &format!("s{stream},{at},{i},{terminated},{truncated},{seq}\n");
            text[2] += &format!("s{stream},{at},{i},{truncated},{seq}\n");
        }
        const LAST: Reading = Reading {
            assume_terminated: Some(AssumeTerminated::Last),
            done: None,
            independent: false,
            keep_all: false,
        };
        for (text, reading) in [(&text[0], NEVER), (&text[1], NEVER), (&text[2], NEVER), (&text[2], LAST)] {
            let (_directory, path) = file("table.csv", text);
            let whole = open(&path, reading).unwrap();
            let large = LargeTable::check(&path, reading, &mut |_| {}).unwrap();
            assert_eq!((large.rows(), large.streams()), (whole.rows().len() as u64, whole.streams()));
            assert_eq!((large.dim(), large.rewards_per_row()), (1, 1));
            let mut batches = Vec::new();
            let name = |stream: &str| format!("{stream}!");
            let mut take = |batch: Batch| {
                assert!(batch.stream().ends_with('!') && batch.session() == "run" && batch.len() <= 5);
                batches.push(batch);
                true
            };
            large.for_each_batch(&name, "run", 5, &mut take).unwrap();
            let mut expected = handed_over(&mut whole.batches("", 5));
            expected.iter_mut().for_each(|row| row.0.push('!'));
            assert!(handed_over(&mut batches.into_iter()) == expected);
            let mut left = 10;
            let mut few = |_| {
                left -= 1;
                left > 0
            };
            large.for_each_batch(&name, "run", 5, &mut few).unwrap();
            assert_eq!(left, 0);
            // Another program writes to the file meanwhile.
            std::fs::write(&path, text.replace("s1,", "s0,")).unwrap();
            let refused = large.for_each_batch(&name, "run", 5, &mut |_| true).unwrap_err().to_string();
            assert!(refused.contains("changed") || refused.contains("must rise"), "{refused}");
        }
    }

    #[test]
    fn a_large_table_finds_the_faults_that_a_table_finds() {
        let rows = |fault: &str| {
            let sound = (0..20_000).map(|i| format!("{i},1,0,0\n")).collect::<String>();
            format!("state_0,reward,terminated,truncated\n{sound}{fault}\n20001,1,0,0\n20002,1,0,0\n")
        };
        for (text, words) in [
            (rows("20000,x,0,0"), ", line 20002, column reward: \"x\" is not a number"),
            (rows("20000,,0,0"), ", line 20002, column reward: empty; only a row that gives just its state"),
            ("state_0,reward,terminated\n1,2,0\n".to_owned(), ": the table holds no transition"),
        ] {
            let (_directory, path) = file("table.csv", &text);
            let found = LargeTable::check(&path, NEVER, &mut |_| {}).unwrap_err().to_string();
            assert!(found.contains(words), "{found}");
            assert_eq!(found, open(&path, NEVER).unwrap_err().to_string());
        }
    }

    #[test]
    fn fingerprints_tell_tables_and_readings_apart() {
        let (_directory, path) = file("table.csv", "state_0,reward\n1,2\n2,3\n");
        let of = |reading| fingerprint(&path, reading).unwrap();
        let before = of(NEVER);
        assert_eq!((before.len(), &of(NEVER)), (32, &before));
        assert_ne!(of(Reading::default()), before);
        assert_ne!(of(Reading { done: Some(Done::Truncated), ..NEVER }), before);
        std::fs::write(&path, "state_0,reward\n1,2\n2,4\n").unwrap();
        assert_ne!(of(NEVER), before);
        assert!(matches!(fingerprint(Path::new("absent.csv"), NEVER).unwrap_err().fault, Fault::Io(_)));
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
