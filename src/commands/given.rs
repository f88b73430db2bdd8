//! Files that `fit` and `score` have in common: tables, hyperparameters, dictionaries.

use super::Failure;
use super::output::{ReadProgress, in_file};
use criticd::learner::batch::{Given, Selection};
use criticd::learner::model::effective_tolerance;
use criticd::learner::{Lambda, Settings};
use criticd::math::dictionary::Dictionary;
use criticd::math::dictionary::Enough;
use criticd::math::kernel::{Hyperparameters, Metric};
use criticd::math::returns::{chains, cuts};
use criticd::snapshot::Inputs;
use criticd::table::{AssumeTerminated, Reading, Table, TableError, read_states};
use criticd::transition::Rows;
use criticd::wire::hyperparameters_from_str;
use std::path::{Path, PathBuf};

/// Most rows that exact evidence is computed on: it takes n^3 time and three (white noise: five) n x n matrices.
pub(super) const EXACT_ROWS_MAX: usize = 5_000;

/// Where the dictionary comes from.
#[derive(Debug, clap::Args)]
pub(super) struct DictionaryOptions {
    /// Take these states as the dictionary: a table with the columns state_0, state_1, ... alone
    #[arg(long, value_name = "STATES")]
    pub(super) dictionary: Option<PathBuf>,
    /// Residual up to which a state needs no place in the dictionary, relative to v0 + b of the hyperparameters given;
    /// where `fit` selects a model, relative to v0 [default: 1e-3 of v0, or a tenth of the noise variance if that is
    /// smaller]
    #[arg(long, value_name = "T", value_parser = tolerance)]
    pub(super) tolerance: Option<f64>,
    /// Largest dictionary
    #[arg(long, value_name = "M", default_value_t = 300, value_parser = at_least_one)]
    pub(super) dictionary_max: usize,
}

/// A dictionary, and how it was selected if it was.
pub(super) struct Chosen {
    pub(super) dictionary: Dictionary,
    pub(super) selected: Option<(Selection, f64)>,
}

impl DictionaryOptions {
    /// The dictionary of the file, or one by pivoted ICD over the nodes of the table.
    pub(super) fn choose(&self, given: &Given<'_>) -> Result<Chosen, Failure> {
        if let Some(path) = &self.dictionary {
            return Ok(Chosen { dictionary: read_dictionary(path, given)?, selected: None });
        }
        let diagonal = given.hyperparameters.kernel.diagonal();
        let tolerance = match self.tolerance {
            Some(relative) => relative * diagonal,
            None => effective_tolerance(given.settings, given.hyperparameters),
        };
        let selection = given.select(Enough { tolerance, trace: 0.0 }, self.dictionary_max, &|| true)?;
        Ok(Chosen { dictionary: selection.dictionary.clone(), selected: Some((selection, tolerance / diagonal)) })
    }
}

/// A table, and what to make of it where it does not say everything.
#[derive(Debug, clap::Args)]
pub(super) struct TableOptions {
    /// Transitions: a file whose name ends in .csv, .jsonl, .npz, .hdf5 (Minari, D4RL) or .parquet
    #[arg(value_name = "TABLE")]
    pub(super) table: PathBuf,
    #[command(flatten)]
    reading: ReadingOptions,
}

/// What to make of a table where it does not say everything.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct ReadingOptions {
    /// Where episodes terminate if the table does not say; without this such a table is refused
    #[arg(long, value_name = "WHERE")]
    assume_terminated: Option<Assume>,
    /// What it means that an episode is done, in a table that only says so (a column or array `done`)
    #[arg(long, value_name = "MEANING")]
    done: Option<Done>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Assume {
    /// Nowhere: no state is absorbing
    Never,
    /// In the last row of every piece, unless that was truncated
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Done {
    /// Nothing of value can follow
    Terminated,
    /// It was cut off from outside: what follows keeps its value
    Truncated,
}

impl ReadingOptions {
    pub(super) fn given(&self) -> bool {
        self.assume_terminated.is_some() || self.done.is_some()
    }

    pub(super) fn reading(&self) -> Reading {
        Reading {
            assume_terminated: self.assume_terminated.map(|assume| match assume {
                Assume::Never => AssumeTerminated::Never,
                Assume::Last => AssumeTerminated::Last,
            }),
            done: self.done.map(|done| match done {
                Done::Terminated => criticd::table::Done::Terminated,
                Done::Truncated => criticd::table::Done::Truncated,
            }),
        }
    }
}

impl TableOptions {
    pub(super) fn read(&self) -> Result<Table, TableError> {
        let mut shown = ReadProgress::start(&self.table);
        let table = Table::read(&self.table, self.reading.reading(), &mut |progress| shown.show(progress))?;
        shown.finish(table.rows().len() as u64);
        Ok(table)
    }

    pub(super) fn read_rows(&self) -> Result<Rows, TableError> {
        self.read().map(Table::into_rows)
    }
}

/// What `--help` says about tables.
pub(super) const TABLES: &str = "A table holds one transition in each row: CSV or Parquet with the columns state_0, \
state_1, ..., reward, terminated, and where there are such next_state_0.., truncated, stream, discount, seq, starts_chain, \
behavior_prob, target_prob, next_action_0.., next_action_probs_0..; JSONL with \
the same keys; NPZ with arrays states, next_states, rewards, terminated, ...; Minari and D4RL files as they are. \
proto/README.md has them all.";

/// Settings under which everything is as given: all rewards, nothing tuned or selected.
pub(super) fn settings(rows: &Rows, discount: f64) -> Settings {
    Settings { discount, rewards: (0..rows.rewards_per_row).collect(), tune_noise: false, ..Settings::paper() }
}

/// A lambda on the command line, or `auto`.
pub(super) fn lambda(text: &str) -> Result<Lambda, String> {
    match text {
        "auto" => Ok(Lambda::Auto),
        _ => within(text, |v| (0.0..=1.0).contains(&v), "lambda lies in [0, 1], or is auto").map(Lambda::Fixed),
    }
}

/// A factor of forgetting on the command line, as the half-life in rows that it means.
pub(super) fn forgetting(text: &str) -> Result<f64, String> {
    if text == "off" {
        return Ok(f64::INFINITY);
    }
    let factor = within(text, |v| v > 0.0 && v <= 1.0, "a factor above 0, at most 1, or off")?;
    Ok(if factor < 1.0 { -1.0 / factor.log2() } else { f64::INFINITY })
}

/// A positive number on the command line, `inf` among them.
pub(super) fn limit(text: &str) -> Result<f64, String> {
    within(text, |v| v > 0.0, "must be positive, or inf")
}

/// "1 state", "2 states".
pub(super) fn plural(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// "500 transitions, 12 chains cut" and the like.
pub(super) fn extent(rows: &Rows) -> String {
    let cut = cuts(rows, &chains(rows)).len();
    format!("{}, {} cut or still running", plural(rows.len(), "transition"), plural(cut, "chain"))
}

/// Refuse what would not fit into memory, or into a day.
pub(super) fn check_exact(rows: &Rows) -> Result<(), Failure> {
    if rows.len() > EXACT_ROWS_MAX {
        let message = format!(
            "the exact evidence of {} transitions is too much: it is computed up to {EXACT_ROWS_MAX}; use --evidence sparse",
            rows.len()
        );
        return Err(Failure::new(message));
    }
    Ok(())
}

/// Hyperparameters from a file, for states (`dim`,): in raw coordinates unless the file says otherwise.
/// Those files may name a lambda as well.
pub(super) fn read_hyperparameters(path: &Path, dim: usize) -> Result<(Hyperparameters, Inputs, Option<f64>), Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| in_file(path, e))?;
    let file = hyperparameters_from_str(&text).map_err(|e| in_file(path, e))?;
    let inputs = file.inputs.unwrap_or_else(|| Inputs::identity(dim));
    let relevances = match &file.hyperparameters.kernel.metric {
        Metric::Isotropic(_) => dim,
        Metric::Ard(relevance) | Metric::Factor { relevance, .. } => relevance.len(),
    };
    let kinds = file.hyperparameters.kernel.kinds.len();
    let kinds = if kinds == 0 { dim } else { kinds };
    for (what, found) in [("inputs", inputs.dim()), ("kernel.relevance", relevances), ("kernel.kinds", kinds)] {
        if found != dim {
            return Err(in_file(path, format!("{what} is for {found} state variables, the table has {dim}")));
        }
    }
    Ok((file.hyperparameters, inputs, file.lambda))
}

/// The states of a file, which must have `dim` columns.
pub(super) fn read_states_of(path: &Path, dim: usize, whose: &str) -> Result<Vec<f64>, Failure> {
    let mut shown = ReadProgress::start(path);
    let (states, found) = read_states(path, &mut |progress| shown.show(progress))?;
    shown.finish((states.len() / found) as u64);
    if found != dim {
        return Err(in_file(path, format!("states have {found} numbers, those of the {whose} have {dim}")));
    }
    Ok(states)
}

/// The states of a file as a dictionary.
pub(super) fn read_dictionary(path: &Path, given: &Given<'_>) -> Result<Dictionary, Failure> {
    let dim = given.inputs.dim();
    let states = given.inputs.normalise(&read_states_of(path, dim, "table")?);
    Dictionary::from_elements(given.hyperparameters.kernel.clone(), dim, &states).map_err(|i| {
        let message = format!("state {} is a copy of, or spanned by, those before it; leave it out", i + 1);
        in_file(path, message)
    })
}

/// A discount on the command line.
pub(super) fn discount(text: &str) -> Result<f64, String> {
    within(text, |v| (0.0..=1.0).contains(&v), "a discount lies in [0, 1]")
}

/// A positive number on the command line.
pub(super) fn positive(text: &str) -> Result<f64, String> {
    within(text, |v| v > 0.0 && v.is_finite(), "must be positive")
}

/// A number of threads on the command line, as `refit_threads` has it.
pub(super) fn threads(text: &str) -> Result<usize, String> {
    let count = at_least_one(text)?;
    if count <= 256 { Ok(count) } else { Err("must be at most 256".into()) }
}

/// A count on the command line.
pub(super) fn at_least_one(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) => Err("must be at least 1".into()),
        Ok(count) => Ok(count),
        Err(_) => Err("not a whole number".into()),
    }
}

fn tolerance(text: &str) -> Result<f64, String> {
    within(text, |v| (1e-13..1.0).contains(&v), "a tolerance lies in [1e-13, 1): below that rounding decides")
}

fn within(text: &str, good: impl Fn(f64) -> bool, message: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if good(value) { Ok(value) } else { Err(message.into()) }
}
