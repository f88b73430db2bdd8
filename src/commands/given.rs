//! Files that `fit` and `score` have in common, tables and hyperparameters, and numbers on the command line.

use super::Failure;
use super::output::{ReadProgress, columns, facts, in_file, note, number, print, print_json};
use crate::learner::{Lambda, Settings};
use crate::math::embedding::StateKind;
use crate::math::kernel::{Hyperparameters, Metric};
use crate::math::returns::{chains, cuts};
use crate::snapshot::{Inputs, Snapshot};
use crate::table::{
    self, AssumeTerminated, Categories, Columns, ENDS, Info, Mapping, Missing, Reading, Summary, Table, TableError,
    Values,
};
pub(super) use crate::transition::without_unit;
use crate::transition::{Rows, name_of_state, state_name};
use crate::wire::{decode_snapshot, hyperparameters_from_str};
use clap::builder::{PossibleValuesParser, TypedValueParser};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Most rows that exact evidence is computed on: it takes n^3 time and three (white noise: five) n x n matrices.
pub(super) const EXACT_ROWS_MAX: usize = 5_000;

/// Why a table with texts in the state is refused beside a model that has no codes for them, and what to do.
pub(super) const NO_CODES: &str = "the model has no codes for them; write its numbers, or list the texts in the order of its \
                                   codes in a file for --columns";

/// Names in a sentence, at most.
const NAMES: usize = 12;

/// A table, and what to make of it where it does not say everything.
#[derive(Debug, clap::Args)]
pub(super) struct TableOptions {
    /// Transitions: a file whose name ends in .csv, .jsonl, .npz, .hdf5 (Minari, D4RL, d3rlpy) or .parquet, or the folder of a LeRobot
    /// dataset
    #[arg(value_name = "TABLE")]
    pub(super) table: PathBuf,
    #[command(flatten)]
    reading: ReadingOptions,
    /// Print how the table is read, and stop
    #[arg(long)]
    pub(super) dry_run: bool,
}

/// What to make of a table where it does not say everything.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct ReadingOptions {
    #[command(flatten)]
    columns: ColumnOptions,
    /// Where episodes terminate, for a table that does not say so; without this option such a table is refused
    #[arg(long, value_name = "WHERE")]
    assume_terminated: Option<Assume>,
    /// Meaning of `done`, for a table that marks the ends of episodes with this column or array only
    #[arg(long, value_name = "MEANING")]
    done: Option<Done>,
    /// What to do with rows that contradict each other: two of one episode and time, or one behind the end of its episode
    #[arg(long, value_name = "HOW", default_value = "refuse")]
    order: Contradicting,
    /// Whether rows have nothing to do with each other.
    #[arg(skip)]
    independent: bool,
    /// Where options and file say nothing: as a model says.
    #[arg(skip)]
    known: Option<Box<Mapping>>,
}

/// Demonstrations that all reach their goal.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct Countdown {
    /// Learn the time until the end, for a LeRobot dataset whose episodes all reach their goal: the value is minus the seconds that
    /// remain. Same as --assume-terminated last --discount 1 and, at 20 rows in a second, --reward=-0.05
    #[arg(long, conflicts_with_all = [
        "reward", "discount", "assume_terminated", "terminated", "truncated", "done_column", "done", "discount_column"
    ])]
    remaining_time: bool,
}

impl Countdown {
    /// Read the table so, if that is asked for: the discount then.
    pub(super) fn apply(self, table: &mut TableOptions) -> Result<Option<f64>, Failure> {
        if !self.remaining_time {
            return Ok(None);
        }
        table.count_down().map(|()| Some(1.0))
    }
}

/// Which columns hold what.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Columns of the table")]
pub(super) struct ColumnOptions {
    /// How to read the table: a model that was fitted to one like it, or a TOML file: state = ["x", "battery"], reward = "-cost", episode = "mission", ...
    #[arg(long, value_name = "FILE")]
    columns: Option<PathBuf>,
    /// The state variables, in order; other columns are then ignored unless an option names them
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    state: Vec<String>,
    /// The state variables of the next state; without this option the next row of the episode gives the next state
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    next_state: Vec<String>,
    /// Prefix of the columns of the next state [default: next_, if there are such columns]
    #[arg(long, value_name = "PREFIX")]
    next_prefix: Option<String>,
    /// The numbers of the action
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    action: Vec<String>,
    /// The reward: a column, or a sum such as -cost or reward-0.1*energy
    #[arg(long, value_name = "SUM", value_delimiter = ',', allow_hyphen_values = true)]
    reward: Vec<String>,
    /// Number or name of the episode: a new one begins where it changes
    #[arg(long, value_name = "COLUMN")]
    episode: Option<String>,
    /// Numbers or times that order the rows of an episode
    #[arg(long, value_name = "COLUMN")]
    time: Option<String>,
    /// True where the episode is over and no reward can follow: a column of flags, or a condition: 'outcome == arrived', 'soc < 5'
    #[arg(long, value_name = "COLUMN")]
    terminated: Option<String>,
    /// True where the episode was cut off from outside: a column of flags, or a condition
    #[arg(long, value_name = "COLUMN")]
    truncated: Option<String>,
    /// True where the episode ended; --done gives the meaning
    #[arg(long, value_name = "COLUMN")]
    done_column: Option<String>,
    /// Discount of each row
    #[arg(long, value_name = "COLUMN")]
    discount_column: Option<String>,
    /// Rows that lack a number of the state or the reward
    #[arg(long, value_name = "HOW")]
    missing: Option<Absent>,
    /// Format of a table whose name does not tell it: csv, jsonl, npz, parquet or hdf5
    #[arg(long, value_name = "FORMAT")]
    format: Option<String>,
    /// Columns to ignore
    #[arg(long, value_name = "COLUMNS", value_delimiter = ',')]
    ignore: Vec<String>,
    /// Names of the state variables [default: their columns' names]
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    names: Vec<String>,
    /// Their units, shown beside their names
    #[arg(long, value_name = "UNITS", value_delimiter = ',')]
    units: Vec<String>,
    /// The texts of the state variables that hold texts.
    #[arg(skip)]
    categories: Categories,
}

impl TableOptions {
    /// Read the table as a model's table was, where no option says otherwise.
    pub(super) fn as_that_of(&mut self, mapping: Mapping) {
        self.reading.known = Some(Box::new(mapping));
    }

    /// Which code each text has, from a table that was read or a model.
    pub(super) fn take_categories(&mut self, categories: &Categories) {
        self.reading.columns.categories = categories.clone();
    }

    /// Which code each text has, as far as the user or a model says.
    pub(super) fn categories(&self) -> Result<Categories, Failure> {
        Ok(self.reading.columns()?.categories)
    }

    /// The table, whose texts have the codes of a model in file `path`.
    pub(super) fn read_like(&mut self, model: &Snapshot, path: &Path) -> Result<Table, Failure> {
        self.take_categories(&categories(model, path)?);
        let table = self.read()?;
        self.refuse_new_texts(&table, NO_CODES)?;
        Ok(table)
    }

    /// Refuse texts whose codes neither the user says nor a model.
    pub(super) fn refuse_new_texts(&self, table: &Table, why: &str) -> Result<(), Failure> {
        let (known, found) = (self.categories()?, table.categories());
        match (0..found.0.len()).find(|&d| known.of(d) != found.of(d)) {
            None => Ok(()),
            Some(d) => Err(holds_texts(&self.table, table, d, why)),
        }
    }

    /// The table, where actions are needed: without the rows that have none, if an option says what to do about what is missing.
    pub(super) fn with_actions(&self, mut table: Table) -> Result<Table, Failure> {
        let actions = table.action_columns().actions;
        let lacks: Vec<u64> =
            (0..table.rows().len()).filter(|&i| actions.row(i).is_none()).map(|i| table.place(i)).collect();
        // Where no row has one, whoever needs it says so.
        let Some(first) = lacks.iter().min().filter(|_| lacks.len() < table.rows().len()) else { return Ok(table) };
        let what = format!("{} without an action; the first: line or row {first}", plural(lacks.len(), "row"));
        if self.reading.columns()?.missing == Missing::Refuse {
            return Err(in_file(&self.table, format!("{what}. --missing drop leaves such rows out")));
        }
        note(&format!("{}: left out: {what}", self.table.display()));
        table.keep(|i| actions.row(i).is_some());
        Ok(table)
    }

    /// How the table is read, for the model that is made of it.
    pub(super) fn mapping(&self) -> Result<Mapping, Failure> {
        Ok(Mapping { columns: self.reading.columns()?, reading: self.reading.reading() })
    }

    /// A fingerprint of the table, and of how it is read.
    pub(super) fn fingerprint(&self) -> Result<String, Failure> {
        let (reading, columns) = (self.reading.reading(), self.reading.columns()?);
        Ok(table::fingerprint_as(&self.table, reading, &columns, &mut || true)?)
    }

    /// The columns called `names` as they lie in the file, at the rows of its `table`.
    pub(super) fn columns_of(&self, table: &Table, names: &[String]) -> Result<Vec<(String, Values)>, Failure> {
        let places: Vec<u64> = (0..table.rows().len()).map(|i| table.place(i)).collect();
        let mut shown = ReadProgress::start(&self.table);
        let read = table::columns_at(&self.table, &self.reading.columns()?, names, &places, &mut |p| shown.show(p));
        shown.finish(places.len() as u64);
        Ok(read?)
    }

    /// The files that are read: none of them may be written.
    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        std::iter::once(&self.table).chain(&self.reading.columns.columns).map(PathBuf::as_path)
    }
}

impl ColumnOptions {
    /// What the options say, and where they do not, the file.
    pub(super) fn columns(&self) -> Result<Columns, Failure> {
        let said = self.clone();
        let said = Columns {
            state: said.state,
            next_state: said.next_state,
            next_prefix: said.next_prefix,
            action: said.action,
            reward: said.reward,
            episode: said.episode,
            time: said.time,
            terminated: said.terminated,
            truncated: said.truncated,
            done: said.done_column,
            discount: said.discount_column,
            ignore: said.ignore,
            names: said.names,
            units: said.units,
            missing: said.missing.map_or(Missing::Refuse, Absent::meant),
            format: said.format,
            categories: said.categories,
        };
        Ok(match &self.columns {
            Some(path) => said.or(read_columns(path)?),
            None => said,
        })
    }
}

/// A file that says which columns hold what: TOML, or a model that was made of a table.
pub(super) fn read_columns(path: &Path) -> Result<Columns, Failure> {
    let bytes = std::fs::read(path).map_err(|e| in_file(path, e))?;
    if let Ok(model) = decode_snapshot(&bytes) {
        let known = mapping(&model, path)?;
        return known.map(|mapping| mapping.columns).ok_or_else(|| {
            in_file(path, "this model does not say how its table was read: name the columns, or give a file in TOML")
        });
    }
    let text = String::from_utf8(bytes).map_err(|e| in_file(path, e))?;
    Columns::from_toml(&text).map_err(|e| in_file(path, e))
}

/// Refuse a table whose states have texts.
pub(super) fn refuse_texts(path: &Path, table: &Table, why: &str) -> Result<(), Failure> {
    match table.texts().next() {
        None => Ok(()),
        Some(d) => Err(holds_texts(path, table, d, why)),
    }
}

/// That a variable holds texts, or the action behind the state, and why these are refused.
fn holds_texts(path: &Path, table: &Table, d: usize, why: &str) -> Failure {
    in_file(path, format!("{} holds texts: {why}", name_of(table, d)))
}

/// What a state variable of a table is called, or the action behind them.
pub(super) fn name_of(table: &Table, d: usize) -> String {
    let own = || if d < table.dim() { state_name(d) } else { "action".to_owned() };
    table.names_with_units().and_then(|names| names.get(d).cloned()).unwrap_or_else(own)
}

/// The state variables of a table that hold texts, and what they are called.
pub(super) fn texts(table: &Table) -> Vec<(usize, String)> {
    table.texts().map(|d| (d, name_of(table, d))).collect()
}

/// The texts of the state variables of a model that hold texts, and behind them the texts of its actions.
pub(super) fn categories(model: &Snapshot, path: &Path) -> Result<Categories, Failure> {
    Ok(mapping(model, path)?.map(|mapping| mapping.columns.categories).unwrap_or_default())
}

/// Put texts in the place of codes: into rows of cells, of which the first are states (n, D).
pub(super) fn write_texts(rows: &mut [Vec<String>], states: &[f64], dim: usize, categories: &Categories) {
    for (row, state) in rows.iter_mut().zip(states.chunks_exact(dim)) {
        for (d, &code) in state.iter().enumerate() {
            if let Some(text) = categories.text(d, code) {
                text.clone_into(&mut row[d]);
            }
        }
    }
}

/// How the table was read that the model of file `path` was made of, if the model says so.
pub(super) fn mapping(model: &Snapshot, path: &Path) -> Result<Option<Mapping>, Failure> {
    let read = |text: &String| Mapping::from_text(text).map_err(|e| in_file(path, format!("its table: {e}")));
    model.table.as_ref().map(read).transpose()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Absent {
    /// Refuse the table
    Refuse,
    /// Leave these rows out; chains are cut there
    Drop,
    /// Repeat the last number of the variable in the episode; without a reward, leave the row out
    Hold,
}

impl Absent {
    fn meant(self) -> Missing {
        match self {
            Self::Refuse => Missing::Refuse,
            Self::Drop => Missing::Drop,
            Self::Hold => Missing::Hold,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Assume {
    /// Nowhere: no state is absorbing
    Never,
    /// In the last row of every piece, unless it is truncated
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Done {
    /// The episode is over, and no reward can follow
    Terminated,
    /// The episode was cut off from outside: the next state keeps its value
    Truncated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Contradicting {
    /// Refuse the table; exact copies of rows are left out, and counted
    Refuse,
    /// Take every row as a step, in the order of the file
    Keep,
}

impl ReadingOptions {
    pub(super) fn given(&self) -> bool {
        let columns = self.columns.columns.is_some() || self.columns.columns().is_ok_and(|columns| !columns.is_empty());
        self.assume_terminated.is_some() || self.done.is_some() || self.order == Contradicting::Keep || columns
    }

    pub(super) fn columns(&self) -> Result<Columns, Failure> {
        let said = self.columns.columns()?;
        Ok(match &self.known {
            Some(known) if self.columns.columns.is_none() => said.or(known.columns.clone()),
            _ => said,
        })
    }

    pub(super) fn reading(&self) -> Reading {
        // A model in the place of the file with the columns says this too; what is wrong with that file is said elsewhere.
        let model = self.columns.columns.as_ref().and_then(|path| decode_snapshot(&std::fs::read(path).ok()?).ok());
        let said = model.and_then(|model| Mapping::from_text(model.table.as_ref()?).ok());
        let known = said.or_else(|| self.known.as_deref().cloned()).map(|mapping| mapping.reading).unwrap_or_default();
        let assumed = self.assume_terminated.map(|assume| match assume {
            Assume::Never => AssumeTerminated::Never,
            Assume::Last => AssumeTerminated::Last,
        });
        let done = self.done.map(|done| match done {
            Done::Terminated => crate::table::Done::Terminated,
            Done::Truncated => crate::table::Done::Truncated,
        });
        Reading {
            assume_terminated: assumed.or(known.assume_terminated),
            done: done.or(known.done),
            independent: self.independent || known.independent,
            keep_all: self.order == Contradicting::Keep || known.keep_all,
        }
    }
}

impl TableOptions {
    /// Take rows for pairs of a state and the number in column `target`, which have nothing to do with each other. Column `beside`
    /// is read as a second reward.
    pub(super) fn regress_on(&mut self, target: &str, beside: Option<&str>) {
        self.reading.independent = true;
        self.reading.columns.reward = std::iter::once(target).chain(beside).map(str::to_owned).collect();
    }

    /// Take the column beside the target for none of the model's.
    pub(super) fn leave_beside_target(&mut self, column: &str) {
        self.reading.columns.reward.truncate(1);
        self.reading.columns.ignore.push(column.to_owned());
    }

    /// Take time for the reward: minus the seconds of a row, up to the last row of each episode, which terminates.
    pub(super) fn count_down(&mut self) -> Result<(), Failure> {
        let fps = Info::read(&self.table)?.and_then(|info| info.fps).filter(|fps| *fps > 0.0).ok_or_else(|| {
            Failure::usage(format!(
                "--remaining-time: {} does not say how many rows make a second, as a folder of LeRobot does; with 20 of them say \
                 --reward=-0.05 --assume-terminated last --discount 1",
                self.table.display()
            ))
        })?;
        if let Some(path) = &self.reading.columns.columns {
            let Columns { reward, terminated, truncated, done, discount, .. } = read_columns(path)?;
            let one = [("terminated", terminated), ("truncated", truncated), ("done", done), ("discount", discount)];
            // The file may be a model that was learned so: the reward is a number then.
            let reward = reward.into_iter().find(|sum| sum.parse::<f64>().is_err());
            let named = one.into_iter().chain([("reward", reward)]).find(|(_, column)| column.is_some());
            if let Some((key, _)) = named {
                return Err(Failure::usage(format!(
                    "--remaining-time cannot be used with {key} in {}: the reward is minus the time, and the last row of each \
                     episode terminates. Give it a file without this key",
                    path.display()
                )));
            }
        }
        self.reading.columns.reward = vec![format!("-{}", 1.0 / fps)];
        self.reading.columns.ignore.extend(ENDS.map(str::to_owned));
        self.reading.assume_terminated = Some(Assume::Last);
        Ok(())
    }

    /// The reward of the options.
    pub(super) fn reward(&self) -> Option<String> {
        let said = &self.reading.columns.reward;
        (!said.is_empty()).then(|| said.join(","))
    }

    /// The reward of the options, which they have no longer.
    pub(super) fn take_reward(&mut self) -> Option<String> {
        let said = std::mem::take(&mut self.reading.columns.reward);
        (!said.is_empty()).then(|| said.join(","))
    }

    /// Take this column, or sum of columns, as the reward.
    pub(super) fn set_reward(&mut self, text: &str) {
        self.reading.columns.reward = vec![text.to_owned()];
    }

    /// What the options call the numbers of an action; nothing where they do not.
    pub(super) fn action_names(&self) -> Result<Vec<String>, Failure> {
        Ok(self.reading.columns()?.action)
    }

    /// Read further columns, or sums of them, behind the reward, as if they were rewards.
    pub(super) fn beside_reward(&mut self, more: &[String]) -> Result<(), Failure> {
        let mut reward = self.reading.columns()?.reward;
        if reward.is_empty() {
            let arrays = self
                .table
                .extension()
                .is_some_and(|of| ["npz", "hdf5", "h5"].iter().any(|a| of.eq_ignore_ascii_case(a)));
            reward.push(if arrays { "rewards" } else { "reward" }.to_owned());
        }
        if let [_, _, ..] = reward[..] {
            return Err(Failure::usage("--reward: targets are of one reward; name that one"));
        }
        reward.extend_from_slice(more);
        self.reading.columns.reward = reward;
        Ok(())
    }

    /// The table. Where its columns have names that are not ours, what was understood goes to standard error.
    pub(super) fn read(&self) -> Result<Table, Failure> {
        let columns = self.reading.columns()?;
        let mut shown = ReadProgress::start(&self.table);
        let reading = self.reading.reading();
        let table = Table::read_as(&self.table, reading, &columns, &mut |progress| shown.show(progress))?;
        shown.finish(table.rows().len() as u64);
        if self.dry_run {
            return Ok(table);
        }
        if table.understood().foreign {
            let said = self.said(&table).into_iter().map(|(what, text)| format!("{what}: {text}"));
            note(&format!("{}: {}", self.table.display(), said.collect::<Vec<_>>().join("; ")));
        }
        table.told().iter().for_each(|told| note(&format!("{}: {told}", self.table.display())));
        Ok(table)
    }

    /// What the rewards are called: the columns or sums that the options name them by; nothing where those say no more than "reward".
    pub(super) fn reward_names(&self) -> Result<Vec<String>, Failure> {
        Ok(self.reading.columns()?.reward_names().unwrap_or_default())
    }

    /// With --dry-run: print what is understood; whether that was asked for.
    pub(super) fn dry(&self, json: bool) -> Result<bool, Failure> {
        if !self.dry_run {
            return Ok(false);
        }
        let table = self.read()?;
        let (summary, said) = (table.summary(), self.said(&table));
        let names = table.names_with_units();
        if json {
            let [terminated, truncated, cut] = summary.ends;
            let document = json!({
                "columns": said.into_iter().map(|(what, text)| (what, json!(text))).collect::<serde_json::Map<_, _>>(),
                "ignored": table.understood().ignored,
                "names": names,
                "rows": summary.rows,
                "transitions": summary.transitions,
                "copies": summary.copies,
                "dropped": summary.dropped,
                "told": table.told(),
                "categories": table.categories().0,
                "episodes": summary.episodes,
                "ends": {"terminated": terminated, "truncated": truncated, "cut": cut},
                "ranges": {"state": summary.states, "action": summary.actions, "reward": summary.rewards},
            });
            print_json(&document)?;
        } else {
            print(&self.explained(&table, &summary, said, &names))?;
        }
        Ok(true)
    }

    /// Which column is what, in words.
    fn said(&self, table: &Table) -> Vec<(String, String)> {
        let understood = table.understood();
        let mut said: Vec<(String, String)> =
            understood.roles.iter().map(|(what, text)| ((*what).to_owned(), text.clone())).collect();
        let ends = |(what, _): &(String, String)| matches!(what.as_str(), "terminated" | "done" | "terminal state");
        if !said.iter().any(ends) {
            let text = match self.reading.reading().assume_terminated {
                Some(AssumeTerminated::Last) => "in the last row of every episode (--assume-terminated)",
                Some(AssumeTerminated::Never) => "nowhere (--assume-terminated)",
                None => "nowhere: only truncated is recorded",
            };
            said.push(("terminated".to_owned(), text.to_owned()));
        }
        if !understood.ignored.is_empty() {
            said.push(("left alone".to_owned(), listed(&understood.ignored)));
        }
        said
    }

    fn explained(
        &self,
        table: &Table,
        summary: &Summary,
        said: Vec<(String, String)>,
        names: &Option<Vec<String>>,
    ) -> String {
        let only = match summary.rows - summary.copies - summary.dropped - summary.transitions {
            0 => String::new(),
            1 => " (1 gives only its state, as successor of the row before it)".to_owned(),
            dropped => format!(" ({dropped} give only their states, as successors of the rows before them)"),
        };
        let [terminated, truncated, cut] = summary.ends;
        let named = if table.episode_names().is_empty() { " (rows that follow each other)" } else { "" };
        let mut lines = vec![
            (
                "table".to_owned(),
                format!(
                    "{}: {} of {}{only}",
                    self.table.display(),
                    plural(summary.transitions, "transition"),
                    plural(summary.rows, "row")
                ),
            ),
            (
                "episodes".to_owned(),
                format!("{}{named}; ends: {terminated} terminated, {truncated} truncated, {cut} cut", summary.episodes),
            ),
        ];
        lines.extend(table.told().iter().map(|told| ("note".to_owned(), told.clone())));
        lines.extend(said);
        let mut rows = Vec::new();
        let mut range = |name: String, [low, high]: [f64; 2]| rows.push(vec![name, number(low), number(high)]);
        for (d, ends) in summary.states.iter().enumerate() {
            range(name_of_state(names.as_deref(), d), *ends);
        }
        for (what, ranges) in [("action", &summary.actions), ("reward", &summary.rewards)] {
            for (k, ends) in ranges.iter().enumerate() {
                range(if ranges.len() == 1 { what.to_owned() } else { format!("{what}_{k}") }, *ends);
            }
        }
        format!("{}\n{}", facts(&lines), columns(&["", "from", "to"], &rows))
    }
}

/// The unit of a variable or reward whose name has one behind it, in brackets with a space before them: " [J]"; else nothing.
pub(super) fn unit_of(name: &str) -> &str {
    &name[without_unit(name).len()..]
}

/// The unit that all rewards of these names have, with a space before it: " J"; else nothing.
pub(super) fn common_unit(names: &[String]) -> String {
    let units: Vec<&str> = names.iter().map(|name| unit_of(name)).collect();
    match units.first() {
        Some(unit) if !unit.is_empty() && units.iter().all(|other| other == unit) => plain_unit(unit),
        _ => String::new(),
    }
}

/// " J" of the unit " [J]", as it stands behind a number.
pub(super) fn plain_unit(unit: &str) -> String {
    unit.replace(['[', ']'], "")
}

/// What a value is an expectation of.
pub(super) fn sum(discount: f64) -> &'static str {
    if discount < 1.0 { "discounted sum" } else { "sum" }
}

/// What `--help` says about tables.
pub(super) const TABLES: &str = "A table holds one transition in each row: CSV or Parquet with the columns state_0, \
state_1, ..., reward, terminated, and where there are such next_state_0.., truncated, stream, policy, discount, seq, starts_chain, \
behavior_prob, target_prob, next_action_0.., next_action_probs_0..; JSONL with \
the same keys; NPZ with arrays states, next_states, rewards, terminated, ...; files of Minari, D4RL, d3rlpy, LeRobot, \
RLDS and of replay buffers as they are. proto/README.md has them all.\n\nOther columns: name them, such as --state x,y,battery \
--reward=-cost --episode mission --terminated failed, or write that into a file for --columns. --dry-run shows what is \
understood. A reward is a sum of columns times numbers; obs[2] is one number of a list.";

/// Settings under which everything is as given: all rewards, nothing tuned or selected.
pub(super) fn settings(rows: &Rows, discount: f64) -> Settings {
    Settings { discount, rewards: (0..rows.rewards_per_row).collect(), estimate_scale: false, ..Settings::paper() }
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

/// A limit of the command line as settings have it: none if it is infinite.
pub(super) fn most(limit: f64) -> Option<f64> {
    Some(limit).filter(|limit| limit.is_finite())
}

/// Names in a sentence: the first dozen, and how many others there are.
pub(super) fn listed<T: AsRef<str>>(names: &[T]) -> String {
    let shown: Vec<&str> = names.iter().take(NAMES).map(AsRef::as_ref).collect();
    match names.len().saturating_sub(NAMES) {
        0 => shown.join(", "),
        more => format!("{} and {}", shown.join(", "), plural(more, "other")),
    }
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

/// Hyperparameters from a file, for states (`dim`,): in raw coordinates unless the file says otherwise; and `texts`, which variables hold
/// texts and what they are called. Those files may name a lambda as well, and say that values are learned about a level.
pub(super) fn read_hyperparameters(
    path: &Path,
    dim: usize,
    texts: &[(usize, String)],
) -> Result<(Hyperparameters, Inputs, Option<f64>, bool), Failure> {
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
    let is_category = |d: usize| file.hyperparameters.kernel.kind_of(d) == StateKind::Category;
    if let Some((_, name)) = texts.iter().find(|(d, _)| !is_category(*d)) {
        let message = format!("kernel.kinds: {name} holds texts, which are a category: say \"category\" for it");
        return Err(in_file(path, message));
    }
    Ok((file.hyperparameters, inputs, file.lambda, file.centred))
}

/// The states of a file, which must have `dim` columns.
pub(super) fn read_states_of(path: &Path, dim: usize, whose: &str) -> Result<Vec<f64>, Failure> {
    read_states_as(path, &Columns::default(), dim, whose)
}

/// As [`read_states_of`], of columns with other names.
pub(super) fn read_states_as(path: &Path, columns: &Columns, dim: usize, whose: &str) -> Result<Vec<f64>, Failure> {
    Ok(states_as(path, columns, dim, whose)?)
}

/// The same, with what is wrong.
pub(super) fn states_as(path: &Path, columns: &Columns, dim: usize, whose: &str) -> Result<Vec<f64>, TableError> {
    let mut shown = ReadProgress::start(path);
    let (states, found) = table::read_states_as(path, columns, &mut |progress| shown.show(progress))?;
    shown.finish((states.len() / found) as u64);
    if found != dim {
        let message = format!("states have {found} numbers, states of the {whose} have {dim}");
        return Err(TableError { path: path.to_owned(), fault: table::Fault::Content(message) });
    }
    Ok(states)
}

/// A discount on the command line.
pub(super) fn discount(text: &str) -> Result<f64, String> {
    within(text, |v| (0.0..=1.0).contains(&v), "a discount lies in [0, 1]")
}

/// A share of the episodes on the command line.
pub(super) fn share(text: &str) -> Result<f64, String> {
    within(text, |v| (0.0..=0.5).contains(&v), "a share lies in [0, 0.5]")
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

/// One of `all` on the command line, by its name.
pub(super) fn word<T: Copy + Send + Sync>(
    all: &'static [T],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let of =
        move |word: String| all.iter().copied().find(|&of| name(of) == word).expect("clap lets no other word through");
    PossibleValuesParser::new(all.iter().map(|&of| name(of))).map(of)
}

pub(super) fn within(text: &str, good: impl Fn(f64) -> bool, message: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if good(value) { Ok(value) } else { Err(message.into()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_of_names_are_folded() {
        let names: Vec<String> = (0..299).map(|k| format!("x{k}")).collect();
        assert_eq!(listed(&names[..2]), "x0, x1");
        assert_eq!(listed(&names[..12]).matches(", ").count(), 11);
        assert!(listed(&names).ends_with("x11 and 287 others"), "{}", listed(&names));
    }

    #[test]
    fn a_unit_stands_behind_numbers_where_all_rewards_have_it() {
        let unit = |names: &[&str]| common_unit(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
        assert_eq!((unit(&["energy [J]"]), unit(&["energy [J]", "loss [J]"])), (" J".into(), " J".into()));
        assert_eq!((unit(&["energy [J]", "comfort"]), unit(&["comfort"]), unit(&[])), Default::default());
    }
}
