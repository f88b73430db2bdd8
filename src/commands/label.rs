//! `criticd label`.

mod parts;
mod scores;

use super::Failure;
use super::dictionary::DictionaryOptions;
use super::fit::{Fit, mention_constants};
use super::given::{self, Countdown, TableOptions, plural, without_unit};
use super::held_out::{self, Like, ValueOrder};
use super::inspect::read_model;
use super::output::{Spinner, in_file, note, output, print, print_json};
use crate::learner::{Settings, VarianceKind};
use crate::math::embedding::StateKind;
use crate::math::kernel::NoiseModel;
use crate::table::{Info, Table, TableError, Values, is_pipe, write_columns};
use crate::transition::{Rows, name_of_state};
use crate::whole_file::OutputFile;
use crate::wire::{ArrayForm, encode_snapshot};
use clap::Parser as _;
use parts::{LabelledGroup, Parts};
use serde_json::{Value, json};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Write value, advantage, return and TD error of every transition of a table to another file
///
/// A model that has not learned from an episode labels it: the command deals the episodes into groups and labels each group
/// with a model of the others. The others also select kernel, noise and lambda of that model, unless --model gives them.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd label runs.parquet --out labels.parquet\n  criticd label walk.csv --model walk.model --out labels.csv\n  criticd label log.csv --state x,battery --reward=-cost --episode mission --terminated failed --out labels.npz\n  criticd label pick_cube/ --remaining-time --keep task_index --out scores.parquet\n\nColumns: episode (as the table calls it, else numbered from 0), frame (frame_index of the table, else the row's number in its\nepisode, from 0), value, std (standard deviation of the value), return (discounted, up to the end of the episode;\na cut episode ends in the value of its last state), advantage (return - value), td_error (reward + discount * value of\nthe next state - value), known (share of the signal's prior variance that the data removed).\nremaining_time_s is there with --remaining-time.\nWith several rewards there is value_0, value_1, ... Rows that only give the next state of the previous row have no labels.\n\nA group that is labelled is stored beside the output: the same command goes on from there after a kill. Parquet labels of a\nLeRobot dataset have index, episode_index and frame_index, and describe their columns, as LeRobot proposes it for scores."
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
    #[command(flatten)]
    countdown: Countdown,
    /// Discount of transitions without one of their own [default: the model's, else `fit`'s]
    #[arg(long, value_name = "G", value_parser = given::discount)]
    discount: Option<f64>,
    #[command(flatten)]
    dictionary: DictionaryOptions,
    /// Seed of the groups and of the search
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Work of each search: what one core does in about these seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60.0, value_parser = given::positive)]
    budget: f64,
    /// Write these columns of the table beside the labels; without names, states and rewards
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',', num_args = 0..=1)]
    keep: Option<Vec<String>>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

/// Columns of labels, with several rewards numbered.
const LABELS: [&str; 9] =
    ["episode", "frame", "value", "advantage", "return", "td_error", "std", "known", "remaining_time_s"];

fn is_parquet(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("parquet"))
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
    /// Of each reward how values go with time; none where episodes are too short.
    orders: Vec<Option<ValueOrder>>,
    /// Fingerprint of the model of each group.
    models: Vec<String>,
    /// Groups that were there already.
    resumed: usize,
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
        let asked = self.countdown.apply(&mut self.table)?;
        self.discount = asked.or(self.discount);
        if let Some(path) = &self.model {
            let model = read_model(path)?;
            self.discount = self.discount.or(Some(model.discount));
            given::mapping(&model, path)?.into_iter().for_each(|mapping| self.table.as_that_of(mapping));
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
        // What comes through a pipe cannot be told from what came before, and is there once.
        let again = !is_pipe(&self.table.table);
        if !again && self.keep.as_ref().is_some_and(|names| !names.is_empty()) {
            let message = "--keep COLUMNS reads the table once more, which a pipe cannot be: write the table to a file first, or \
                           keep states and rewards alone: --keep";
            return Err(Failure::usage(message));
        }
        let info = Info::read(&self.table.table)?;
        let place = output(out, &self.inputs(info.is_some()).iter().map(PathBuf::as_path).collect::<Vec<_>>())?;
        let table = self.table.read()?;
        let count = held_out::count(table.episodes());
        if count < 2 {
            let message = "all rows are of one episode, and whoever labels it must not have learned from it; --episode \
                           says which column tells episodes apart";
            return Err(in_file(&self.table.table, message));
        }
        // What is wrong with them is said before the work begins.
        let kept = self.kept(&table, info.is_some() && is_parquet(out))?;
        let work = self.work(again)?;
        let parts = place.file().filter(|_| again).map(|file| Parts::open(file, &work.to_string())).transpose()?;
        let progress = Spinner::start("labelling");
        let labels = self.labels(&table, &self.likeness(&table)?, count, parts.as_ref())?;
        drop(progress);
        let names = self.write(&place, out, (&table, info.as_ref()), kept, work, &labels)?;
        parts.map_or(Ok(()), Parts::remove)?;
        let (rows, folds, resumed) = (table.rows().len(), self.folds.min(count), labels.resumed);
        let orders = labels.orders.iter().map(Option::as_ref);
        if self.json {
            let mut orders: Vec<Value> = orders.map(ValueOrder::document).collect();
            let order = if orders.len() == 1 { orders.swap_remove(0) } else { json!(orders) };
            return print_json(&json!({
                "rows": rows, "episodes": count, "folds": folds, "resumed": resumed, "columns": names, "value_order": order,
            }));
        }
        let several = labels.orders.len() > 1;
        let which = |h: usize| if several { format!("reward {h}: ") } else { String::new() };
        let along = orders.enumerate().filter_map(|(h, order)| Some(order?.text(&which(h), "episode")));
        print(&format!(
            "{}: {} of {}, each labelled by a model that has not learned from its episode ({folds} groups)\n{}",
            out.display(),
            plural(rows, "row"),
            plural(count, "episode"),
            along.collect::<String>()
        ))
    }

    /// The files that are read. Scores of a dataset may lie in its folder.
    fn inputs(&self, dataset: bool) -> Vec<PathBuf> {
        let within = |file: &Path| match dataset && file == self.table.table {
            true => vec![file.join("data"), file.join("meta")],
            false => vec![file.to_owned()],
        };
        self.table.files().chain(self.model.as_deref()).flat_map(within).collect()
    }

    /// Whether values are minus the seconds until the end: here, or where the model was learned, that was asked for.
    fn counts_down(&self, table: &Table, info: &Info) -> bool {
        let rows = table.rows();
        let step = info.fps.map(|fps| -1.0 / fps);
        let all = rows.rewards_per_row == 1 && rows.rewards.iter().all(|&reward| Some(reward) == step);
        all && self.discount == Some(1.0)
    }

    /// The columns to be written beside the labels.
    fn kept(&self, table: &Table, scores: bool) -> Result<Vec<(String, Values)>, Failure> {
        let kept = match &self.keep {
            None => Vec::new(),
            Some(names) if names.is_empty() => rows_themselves(table),
            Some(names) => self.table.columns_of(table, names)?,
        };
        for (name, values) in &kept {
            let base =
                name.rsplit_once('_').filter(|(_, k)| k.parse::<usize>().is_ok()).map_or(&name[..], |(base, _)| base);
            if LABELS.contains(&base) {
                return Err(Failure::usage(format!(
                    "--keep {name}: the labels have a column of this name; rename the table's"
                )));
            }
            if scores && matches!(values, Values::Texts(_)) {
                let message = "holds texts, and scores of a LeRobot dataset are numbers and flags; keep another column, or write a .csv";
                return Err(Failure::usage(format!("--keep {name}: {message}")));
            }
        }
        Ok(kept)
    }

    /// What the labels are made of: the same labels come of the same. `again`: whether the table can be read once more.
    fn work(&self, again: bool) -> Result<Value, Failure> {
        let print = |path: &Path| std::fs::read(path).map(|bytes| parts::print(&bytes)).map_err(|e| in_file(path, e));
        Ok(json!({
            "program": concat!("criticd ", env!("CARGO_PKG_VERSION")),
            "table": again.then(|| self.table.fingerprint()).transpose()?,
            "model": self.model.as_deref().map(print).transpose()?,
            "dictionary": self.dictionary.dictionary.as_deref().map(print).transpose()?,
            "options": format!(
                "{:?}, --folds {}, --seed {}, --budget {}, --discount {:?}",
                self.dictionary, self.folds, self.seed, self.budget, self.discount
            ),
        }))
    }

    /// Write the file; the names of its columns.
    fn write(
        &self,
        place: &OutputFile,
        out: &Path,
        (table, info): (&Table, Option<&Info>),
        kept: Vec<(String, Values)>,
        work: Value,
        labels: &Labels,
    ) -> Result<Vec<String>, Failure> {
        let mut columns = keys(table);
        columns.extend(kept);
        let numbers = |(name, numbers): &(String, Vec<f64>)| (name.clone(), Values::Numbers(numbers.clone()));
        columns.extend(labels.columns.iter().map(numbers));
        if info.is_some_and(|info| self.counts_down(table, info)) {
            let remaining = labels.columns[0].1.iter().map(|value| -value).collect();
            columns.push(("remaining_time_s".to_owned(), Values::Numbers(remaining)));
        }
        let mut provenance = work;
        provenance["models"] = json!(labels.models);
        let (columns, about) = match info.filter(|_| is_parquet(out)) {
            Some(info) => scores::of_dataset(&self.table, info, table, columns, &provenance)?,
            None => (columns, scores::about(&provenance)),
        };
        let names: Vec<String> = columns.iter().map(|(name, _)| name.clone()).collect();
        place.make(|part| write_columns(part, &columns, &about).map_err(|e| named(e, out)))?;
        Ok(names)
    }

    /// Where kernel, noise and lambda come from.
    fn likeness(&self, table: &Table) -> Result<Likeness, Failure> {
        let rows = table.rows();
        if let Some(path) = &self.model {
            let model = read_model(path)?;
            if model.dim() != rows.dim {
                let message = format!("its states have {} numbers, the table's {}", model.dim(), rows.dim);
                return Err(in_file(path, message));
            }
            // Codes of categories are as good in any order, since every group learns its own elements.
            let kinds = &model.hyperparameters.kernel.kinds;
            if self.table.categories()?.is_empty() && !kinds.contains(&StateKind::Category) {
                given::refuse_texts(&self.table.table, table, given::NO_CODES)?;
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
        let mut fit = FitAlone::try_parse_from(words)?.fit;
        fit.take_categories(table)?;
        Ok(Likeness::Selected(Box::new(fit), table.names_with_units()))
    }

    fn labels(
        &self,
        table: &Table,
        likeness: &Likeness,
        count: usize,
        parts: Option<&Parts>,
    ) -> Result<Labels, Failure> {
        let rows: &Rows = table.rows();
        let (n, heads) = (rows.len(), rows.rewards_per_row);
        let folds = self.folds.min(count);
        let group = held_out::folds(table.episodes(), folds, self.seed);
        let empty = || vec![vec![f64::NAN; n]; heads];
        let (mut values, mut returns, mut errors) = (empty(), empty(), empty());
        let (mut deviations, mut known) = (vec![f64::NAN; n], vec![f64::NAN; n]);
        let places = |fold: usize| (0..n).filter(|&i| group[i] == fold).collect::<Vec<usize>>();
        let there: Vec<Option<LabelledGroup>> =
            (0..folds).map(|fold| parts.and_then(|parts| parts.get(fold, places(fold).len()))).collect();
        let resumed = there.iter().flatten().count();
        if resumed > 0 {
            note(&format!("{resumed} of {folds} groups of episodes are labelled already: going on with the others"));
        }
        let mut models = Vec::new();
        for (fold, there) in there.into_iter().enumerate() {
            let found = match there {
                Some(found) => found,
                None => {
                    let found = self.group(rows, &|i| group[i] == fold, likeness)?;
                    parts.map_or(Ok(()), |parts| parts.put(fold, &found))?;
                    found
                }
            };
            for (k, &i) in places(fold).iter().enumerate() {
                for h in 0..heads {
                    values[h][i] = found.values[h][k];
                    (returns[h][i], errors[h][i]) = (found.returns[h][k], found.errors[h][k]);
                }
                (deviations[i], known[i]) = (found.deviations[k], found.known[k]);
            }
            models.push(found.model);
        }
        let orders = (0..heads).map(|h| ValueOrder::of(&values[h], rows, table.episodes(), h)).collect();
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
        Ok(Labels { columns, orders, models, resumed })
    }

    /// Label the rows that are `held` by a model of the others.
    fn group(&self, rows: &Rows, held: &dyn Fn(usize) -> bool, likeness: &Likeness) -> Result<LabelledGroup, Failure> {
        let learned = held_out::part(rows, |i| !held(i));
        let held = held_out::part(rows, held);
        let model = likeness.of(&learned, |like| held_out::relearn(like, &learned, &self.dictionary))?;
        let seen = held_out::see(&model, &held)?;
        let (heads, k) = (rows.rewards_per_row, held.len());
        let unknown = || vec![f64::NAN; k];
        Ok(LabelledGroup {
            model: parts::print(&encode_snapshot(&model, ArrayForm::Tensor, true)),
            values: (0..heads).map(|h| seen.found.mean.column(h).iter().copied().collect()).collect(),
            returns: seen.returns,
            errors: seen.errors,
            deviations: seen
                .found
                .variance
                .map_or_else(unknown, |variance| variance.iter().map(|v| v.sqrt()).collect()),
            known: seen.found.known.unwrap_or_else(unknown),
        })
    }
}

/// States and rewards of the rows, a column for each number.
fn rows_themselves(table: &Table) -> Vec<(String, Values)> {
    let rows = table.rows();
    let (dim, heads) = (rows.dim, rows.rewards_per_row);
    let names = table.names_with_units();
    let name = |d: usize| without_unit(&name_of_state(names.as_deref(), d)).to_owned();
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
