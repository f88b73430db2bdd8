//! `criticd label`.

use super::Failure;
use super::dictionary::DictionaryOptions;
use super::fit::{Fit, mention_constants};
use super::given::{self, TableOptions, plural, without_unit};
use super::held_out::{self, Like};
use super::inspect::read_model;
use super::output::{Progress, in_file, output, print, print_json};
use clap::Parser as _;
use criticd::learner::{Settings, VarianceKind};
use criticd::math::kernel::NoiseModel;
use criticd::table::{Table, TableError, Values, write_columns};
use criticd::transition::Rows;
use serde_json::json;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Write value, advantage, return and TD error of every transition of a table to another file
///
/// A model that has not learned from an episode labels it: the command deals the episodes into groups and labels each group
/// with a model of the others. The others also select kernel, noise and lambda of that model, unless --model gives them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd label runs.parquet --out labels.parquet\n  criticd label walk.csv --model walk.msgpack --out labels.csv\n  criticd label log.csv --state x,battery --reward=-cost --episode mission --terminated failed --out labels.npz\n\nColumns: episode (as the table calls it, else numbered from 0), frame (frame_index of the table, else the row's number in its\nepisode, from 0), value, std (standard deviation of the value), return (discounted, up to the end of the episode;\na cut episode ends in the value of its last state), advantage (return - value), td_error (reward + discount * value of\nthe next state - value), known (share of the prior variance that the data removed).\nWith several rewards there is value_0, value_1, ... Rows that only give the next state of the previous row have no labels."
)]
pub(crate) struct Label {
    #[command(flatten)]
    table: TableOptions,
    /// Output file: .parquet, .csv or .npz
    #[arg(long, value_name = "LABELS", required_unless_present = "dry_run")]
    out: Option<PathBuf>,
    /// Take kernel, noise, lambda and discount from this model of `fit` [default: select them]
    #[arg(long, value_name = "MODEL")]
    model: Option<PathBuf>,
    /// Groups of episodes, each labelled by a model of the others
    #[arg(long, value_name = "K", default_value_t = 5, value_parser = given::at_least_one)]
    folds: usize,
    /// Discount of transitions without one of their own [default: that of the model, else that of `fit`]
    #[arg(long, value_name = "G", value_parser = given::discount)]
    discount: Option<f64>,
    #[command(flatten)]
    dictionary: DictionaryOptions,
    /// Seed of the groups and of the search
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Processor time of the search on each of its threads
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = given::positive)]
    budget: f64,
    /// Write states and rewards of the rows beside their labels
    #[arg(long)]
    keep: bool,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// The options of `fit`, to be read by themselves.
#[derive(Debug, clap::Parser)]
pub(super) struct FitAlone {
    #[command(flatten)]
    pub(super) fit: Fit,
}

/// Labels of all rows of a table.
struct Labels {
    /// One name for each reward, then (n,) numbers.
    columns: Vec<(String, Vec<f64>)>,
}

/// Where kernel, noise and lambda come from.
enum Likeness {
    /// From a model.
    Given(Box<Like>),
    /// From the rows that are learned, by the search of `fit`; with the names of the variables.
    Selected(Box<Fit>, Option<Vec<String>>),
}

impl Likeness {
    /// What `learn` makes of them, for a model of these rows.
    fn of<T>(&self, learned: &Rows, learn: impl FnOnce(&Like) -> Result<T, Failure>) -> Result<T, Failure> {
        match self {
            Self::Given(like) => learn(like),
            Self::Selected(fit, names) => {
                let fitted = fit.search(learned, fit.settings(learned)?, names.clone())?;
                learn(&Like::of(&fitted.model))
            }
        }
    }
}

impl Label {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        if let Some(path) = &self.model
            && let Some(mapping) = given::mapping(&read_model(path)?, path)?
        {
            self.table.as_that_of(mapping);
        }
        if self.table.dry(self.json)? {
            return Ok(());
        }
        let Some(out) = &self.out else { return Err(Failure::usage("--out names the file for the labels")) };
        if self.folds < 2 {
            return Err(Failure::usage("--folds must be at least 2: the others label a group"));
        }
        if !out.extension().is_some_and(|e| ["csv", "npz", "parquet"].iter().any(|known| e.eq_ignore_ascii_case(known)))
        {
            return Err(Failure::usage(format!("--out {}: must end in .parquet, .csv or .npz", out.display())));
        }
        let inputs: Vec<&Path> = self.table.files().chain(self.model.as_deref()).collect();
        let place = output(out, &inputs)?;
        let table = self.table.read()?;
        let count = held_out::count(table.episodes());
        if count < 2 {
            let message = "all rows are of one episode, and whoever labels it must not have learned from it; --episode \
                           says which column tells episodes apart";
            return Err(in_file(&self.table.table, message));
        }
        let progress = Progress::start("labelling");
        let labels = self.labels(&table, &self.likeness(&table)?, count)?;
        let mut columns = keys(&table);
        if self.keep {
            columns.extend(rows_themselves(&table));
        }
        columns.extend(labels.columns.into_iter().map(|(name, numbers)| (name, Values::Numbers(numbers))));
        place.make(|part| write_columns(part, &columns).map_err(|e| named(e, out)))?;
        drop(progress);
        let (rows, folds) = (table.rows().len(), self.folds.min(count));
        if self.json {
            let names: Vec<&str> = columns.iter().map(|(name, _)| name.as_str()).collect();
            return print_json(&json!({"rows": rows, "episodes": count, "folds": folds, "columns": names}));
        }
        print(&format!(
            "{}: {} of {}, each labelled by a model that has not learned from its episode ({folds} groups)\n",
            out.display(),
            plural(rows, "row"),
            plural(count, "episode")
        ))
    }

    /// Where kernel, noise and lambda come from.
    fn likeness(&self, table: &Table) -> Result<Likeness, Failure> {
        let rows = table.rows();
        if let Some(path) = &self.model {
            let model = read_model(path)?;
            if model.dim() != rows.dim {
                let message = format!("its states have {} numbers, those of the table {}", model.dim(), rows.dim);
                return Err(in_file(path, message));
            }
            let variance = match model.hyperparameters.noise {
                NoiseModel::Correlated => VarianceKind::Rows,
                NoiseModel::White => VarianceKind::Model,
            };
            let settings = Settings {
                variance,
                dictionary_max: self.dictionary.dictionary_max,
                ..given::settings(rows, self.discount.unwrap_or(model.discount))
            };
            let (inputs, hyperparameters, lambda) = (model.inputs, model.hyperparameters, model.lambda);
            return Ok(Likeness::Given(Box::new(Like { settings, inputs, hyperparameters, lambda })));
        }
        mention_constants(rows, table.names_with_units().as_deref());
        let word = |text: String| OsString::from(text);
        let mut words = vec!["fit".into(), self.table.table.clone().into_os_string(), "--out".into(), "unused".into()];
        words.extend([word("--seed".into()), word(self.seed.to_string()), word("--budget".into())]);
        words.extend([word(self.budget.to_string()), word("--dictionary-max".into())]);
        words.push(word(self.dictionary.dictionary_max.to_string()));
        // Every row gets its labels, those before a change as well.
        words.extend([word("--drift-sensitivity".into()), word("off".into())]);
        if let Some(discount) = self.discount {
            words.extend([word("--discount".into()), word(discount.to_string())]);
        }
        Ok(Likeness::Selected(Box::new(FitAlone::try_parse_from(words)?.fit), table.names_with_units()))
    }

    fn labels(&self, table: &Table, likeness: &Likeness, count: usize) -> Result<Labels, Failure> {
        let rows: &Rows = table.rows();
        let (n, heads) = (rows.len(), rows.rewards_per_row);
        let folds = self.folds.min(count);
        let group = held_out::folds(table.episodes(), folds, self.seed);
        let empty = || vec![vec![f64::NAN; n]; heads];
        let (mut values, mut returns, mut errors) = (empty(), empty(), empty());
        let (mut deviations, mut known) = (vec![f64::NAN; n], vec![f64::NAN; n]);
        for fold in 0..folds {
            let learned = held_out::part(rows, |i| group[i] != fold);
            let places: Vec<usize> = (0..n).filter(|&i| group[i] == fold).collect();
            let held = held_out::part(rows, |i| group[i] == fold);
            let model = likeness.of(&learned, |like| held_out::relearn(like, &learned, &self.dictionary))?;
            let seen = held_out::see(&model, &held)?;
            for (k, &i) in places.iter().enumerate() {
                for h in 0..heads {
                    values[h][i] = seen.found.mean[(k, h)];
                    (returns[h][i], errors[h][i]) = (seen.returns[h][k], seen.errors[h][k]);
                }
                deviations[i] = seen.found.variance.as_ref().map_or(f64::NAN, |variance| variance[k].sqrt());
                known[i] = seen.found.known.as_ref().map_or(f64::NAN, |known| known[k]);
            }
        }
        let advantages: Vec<Vec<f64>> =
            (0..heads).map(|h| returns[h].iter().zip(&values[h]).map(|(y, v)| y - v).collect()).collect();
        let mut columns = Vec::new();
        let mut each = |what: &str, numbers: Vec<Vec<f64>>| {
            for (h, numbers) in numbers.into_iter().enumerate() {
                columns.push((if heads == 1 { what.to_owned() } else { format!("{what}_{h}") }, numbers));
            }
        };
        each("value", values);
        each("advantage", advantages);
        each("return", returns);
        each("td_error", errors);
        columns.push(("std".to_owned(), deviations));
        columns.push(("known".to_owned(), known));
        Ok(Labels { columns })
    }
}

/// States and rewards of the rows, a column for each number.
fn rows_themselves(table: &Table) -> Vec<(String, Values)> {
    let rows = table.rows();
    let (dim, heads) = (rows.dim, rows.rewards_per_row);
    let names = table.names_with_units();
    let name =
        |d: usize| names.as_ref().map_or_else(|| format!("state_{d}"), |names| without_unit(&names[d]).to_owned());
    let column = |values: &[f64], width: usize, k: usize| {
        Values::Numbers(values.chunks_exact(width).map(|row| row[k]).collect())
    };
    let states = (0..dim).map(|d| (name(d), column(&rows.states, dim, d)));
    let reward = |h: usize| if heads == 1 { "reward".to_owned() } else { format!("reward_{h}") };
    let rewards = (0..heads).map(|h| (reward(h), column(&rows.rewards, heads, h)));
    states.chain(rewards).collect()
}

/// A fault of a table that is to become the file `path`.
pub(super) fn named(fault: TableError, path: &Path) -> Failure {
    TableError { path: path.to_owned(), ..fault }.into()
}

/// Which row each label is of: episode and frame.
fn keys(table: &Table) -> Vec<(String, Values)> {
    let names = table.episode_names();
    let numbers: Option<Vec<i64>> = names.iter().map(|name| name.parse().ok()).collect();
    let of_row = table.episodes().iter().map(|&episode| episode as usize);
    let episodes = match numbers {
        _ if names.is_empty() => Values::Whole(of_row.map(|episode| episode as i64).collect()),
        Some(numbers) => Values::Whole(of_row.map(|episode| numbers[episode]).collect()),
        None => Values::Texts(of_row.map(|episode| names[episode].clone()).collect()),
    };
    let frames = table.frames().iter().map(|&frame| frame as i64).collect();
    vec![("episode".to_owned(), episodes), ("frame".to_owned(), Values::Whole(frames))]
}
