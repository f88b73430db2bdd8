//! The columns of a table, understood: which there are, whether they go together, and what they leave open.

use super::columns::{Categories, Missing, Understood};
use super::condition::Condition;
use super::extras::{Extras, Wide};
use super::gaps::REMEDY;
use super::job::{Column, Job, Want};
use super::roles::{Reckoned, Roles};
use super::{Done, Fault, Format, Reading};
use std::collections::HashSet;

/// The columns of a table, understood.
pub(super) struct Schema {
    pub(super) format: Format,
    pub(super) want: Want,
    pub(super) names: Vec<String>,
    pub(super) columns: Vec<Column>,
    /// State dimension D.
    pub(super) dim: usize,
    /// Whether rows have successors of their own.
    pub(super) has_next: bool,
    /// The columns of the rows' extras, without rows.
    pub(super) extras: Extras,
    /// Rewards per row H.
    pub(super) rewards_per_row: usize,
    /// Rewards that are sums; empty where columns hold them.
    pub(super) sums: Vec<Reckoned>,
    /// How many columns these sums are over.
    pub(super) terms: usize,
    /// Of each column the condition that makes a flag of it.
    pub(super) conditions: Vec<Option<Condition>>,
    /// Names of the columns that are watched.
    pub(super) watched: Vec<String>,
    /// What to do with rows that lack a number.
    pub(super) missing: Missing,
    /// The texts of state variables that are known beforehand.
    pub(super) categories: Categories,
    /// Whether rows come in pieces, so that they cannot be sorted.
    pub(super) in_pieces: bool,
    /// Whether rows are told apart by a number, so that several may have one time.
    pub(super) numbered: bool,
    pub(super) understood: Understood,
}

impl Schema {
    /// `columns` with their names, in the order in which rows will give their cells.
    ///
    /// # Errors
    /// If one is missing or there twice, or vectors of different lengths do not go together.
    pub(super) fn new(job: &Job<'_>, columns: Vec<(String, Column)>, roles: Roles) -> Result<Self, Fault> {
        let (names, columns): (Vec<String>, Vec<Column>) = columns.into_iter().unzip();
        let (format, want) = (job.format, job.want);
        let mut before = HashSet::with_capacity(columns.len());
        for (k, column) in columns.iter().enumerate() {
            if *column != Column::Skipped && !before.insert(*column) {
                let message = "appears twice (reward and reward_0 are the same, so are action and action_0, next_action \
                               and next_action_0); drop one";
                return Err(Fault::column(&names[k], message));
            }
        }
        let extras = Extras::default();
        let Roles { sums, understood, placed, conditions, watched, .. } = roles;
        let condition = |(name, column): (&String, &Column)| {
            conditions.iter().find(|condition| column.is_end() && condition.text == *name).cloned()
        };
        let conditions = names.iter().zip(&columns).map(condition).collect();
        let missing = job.missing();
        let numbered = placed || columns.contains(&Column::Seq);
        let terms = sums.iter().flat_map(|sum| &sum.terms).map(|(_, term)| term + 1).max().unwrap_or(0);
        let mut schema = Self {
            format,
            want,
            names,
            columns,
            dim: 0,
            has_next: false,
            extras,
            rewards_per_row: 0,
            sums,
            terms,
            conditions,
            watched,
            missing,
            categories: job.columns.categories.clone(),
            in_pieces: job.pieces.is_some(),
            numbered,
            understood,
        };
        if matches!(want, Want::Look | Want::Keep) {
            return Ok(schema);
        }
        schema.dim = schema.width("state", |c| if let Column::State(k) = c { Some(k) } else { None })?;
        let next = schema.width("next_state", |c| if let Column::NextState(k) = c { Some(k) } else { None })?;
        schema.extras = schema.extras()?;
        schema.rewards_per_row = schema.width("reward", |c| if let Column::Reward(k) = c { Some(k) } else { None })?;
        if !schema.sums.is_empty() {
            schema.rewards_per_row = schema.sums.len();
        }
        schema.has_next = next > 0;
        if want == Want::States {
            let foreign = |c: &Column| !matches!(c, Column::State(_) | Column::Skipped);
            if let Some(k) = schema.columns.iter().position(foreign) {
                let all = if format.has_arrays() { "the array states" } else { "the columns state_0, state_1, ..." };
                return Err(Fault::column(
                    &schema.names[k],
                    format!("a table of states has {all} alone; drop this one"),
                ));
            }
        }
        if schema.dim == 0 {
            let message = "missing; a state has at least one coordinate (name its columns with --state)";
            return Err(Fault::column(format.name(Column::State(0)), message));
        }
        schema.check_lengths(next)?;
        if let Want::Transitions(reading) = want {
            if schema.rewards_per_row == 0 {
                let message = "missing; a transition has at least one reward (name its column, such as --reward=-cost)";
                return Err(Fault::column(format.name(Column::Reward(0)), message));
            }
            schema.check_ends(reading)?;
        }
        Ok(schema)
    }

    /// Whether there is a number or a list for each coordinate of states; `next`: for each of successors.
    fn check_lengths(&self, next: usize) -> Result<(), Fault> {
        let (dim, listed) = (self.dim, self.categories.0.len());
        // A table without actions may be read by the lists of one that has them.
        let fits = listed == dim || listed == dim + 1;
        // Beside states alone the lists are a model's, and how many numbers that takes is said by whoever reads them.
        if listed > 0 && !fits && self.want != Want::States {
            let message = format!(
                "there are {listed} lists, and {dim} state variables; give one for each, [] for one of numbers, and behind them one \
                 for an action of texts"
            );
            return Err(Fault::column("categories", message));
        }
        if self.has_next && next != dim {
            let column = match self.format {
                Format::Csv | Format::Parquet => format!("next_state_{}", next.min(dim)),
                format => format.name(Column::NextState(0)).to_owned(),
            };
            let message = format!("states have {dim} coordinates, successors {next}; they must agree");
            return Err(Fault::column(column, message));
        }
        Ok(())
    }

    /// Numbers of an action A; 0 where rows have none.
    pub(super) fn action_numbers(&self) -> usize {
        self.extras.actions.width.max(self.extras.next_actions.width)
    }

    /// The columns of the rows' extras, without rows.
    fn extras(&self) -> Result<Extras, Fault> {
        let logarithm = self.columns.contains(&Column::BehaviorLogProb);
        let one = |column| Wide::new(usize::from(self.columns.contains(&column)));
        let extras = Extras {
            actions: Wide::new(self.width("action", |c| if let Column::Action(k) = c { Some(k) } else { None })?),
            behavior_probs: one(if logarithm { Column::BehaviorLogProb } else { Column::BehaviorProb }),
            target_probs: one(Column::TargetProb),
            policies: one(Column::Policy),
            next_actions: Wide::new(
                self.width("next_action", |c| if let Column::NextAction(k) = c { Some(k) } else { None })?,
            ),
            next_action_probs: Wide::new(
                self.width("next_action_probs", |c| if let Column::NextActionProb(k) = c { Some(k) } else { None })?,
            ),
            times: Wide::new(usize::from(self.columns.iter().any(|c| matches!(c, Column::Time | Column::Order)))),
        };
        let (action, next) = (extras.actions.width, extras.next_actions.width);
        if action > 0 && next > 0 && action != next {
            let message = format!("actions have {action} numbers, next actions {next}; they must agree");
            return Err(Fault::column(self.name_of(Column::NextAction(0)), message));
        }
        Ok(extras)
    }

    /// Whether it is known where episodes terminate, once and not twice.
    fn check_ends(&self, reading: Reading) -> Result<(), Fault> {
        if reading.independent {
            return Ok(());
        }
        let position = |column| self.columns.iter().position(|&c| c == column);
        let done = position(Column::Done).map(|k| &self.names[k]);
        let told = match reading.done {
            Some(Done::Truncated) => Column::Truncated,
            Some(Done::Terminated) | None => Column::Terminated,
        };
        let twice = position(told).map(|k| &self.names[k]);
        match (done, reading.done, twice) {
            (Some(done), Some(_), Some(twice)) => {
                Err(Fault::column(done, format!("{twice} has the same information; omit --done, and this column too")))
            }
            (Some(done), None, Some(twice)) => {
                let message = format!("{twice} already marks where episodes terminate; omit this column");
                Err(Fault::column(done, message))
            }
            (Some(done), None, None) => {
                let message = "says that an episode ended, not how; say it: --done terminated (nothing of value can \
                               follow) or --done truncated (cut off from outside)";
                Err(Fault::column(done, message))
            }
            (None, Some(_), _) => Err(Fault::column("done", "missing; --done is for tables that have it")),
            (Some(_), Some(_), None) => Ok(()),
            (None, None, Some(_)) => Ok(()),
            (None, None, None) if reading.assume_terminated.is_some() => Ok(()),
            (None, None, None) if self.has_ends() => Ok(()),
            // A program that records truncations would have recorded terminations.
            (None, None, None) if position(Column::Truncated).is_some() => Ok(()),
            (None, None, None) => {
                let message = "missing, so nothing says where episodes terminate; say what to assume: \
                               --assume-terminated never (no state is absorbing) or --assume-terminated last (the last \
                               row of every piece ends in an absorbing state, unless it was truncated)";
                Err(Fault::column(self.format.name(Column::Terminated), message))
            }
        }
    }

    /// Whether some column says where episodes terminate.
    pub(super) fn has_ends(&self) -> bool {
        let says = |column: &Column| {
            matches!(
                column,
                Column::Terminated | Column::Done | Column::EndedItself | Column::EndedOtherwise | Column::Absorbing
            )
        };
        self.columns.iter().any(says)
    }

    /// The word for a cell that says nothing.
    pub(super) fn blank(&self) -> &'static str {
        match self.format {
            Format::Csv => "empty",
            Format::Jsonl => "missing or null",
            Format::Parquet => "null",
            Format::Npz | Format::Hdf5 => "NaN",
        }
    }

    /// What to do about a state that lacks a number.
    pub(super) fn unstated(&self) -> String {
        match self.want {
            Want::States | Want::Look | Want::Keep => "empty; a number is needed here".to_owned(),
            Want::Transitions(_) => format!("empty; a number is needed here, or a word on rows without one: {REMEDY}"),
        }
    }

    /// Number of columns of one group, whose numbers must count from 0 without a gap.
    fn width(&self, group: &str, index: impl Fn(Column) -> Option<usize>) -> Result<usize, Fault> {
        let mut indices: Vec<usize> = self.columns.iter().filter_map(|&c| index(c)).collect();
        indices.sort_unstable();
        match indices.iter().enumerate().find(|(k, index)| *k != **index) {
            Some((k, _)) => {
                let message = "missing; columns are numbered from 0 without a gap";
                Err(Fault::column(format!("{group}_{k}"), message))
            }
            None => Ok(indices.len()),
        }
    }

    /// Name of the column of a kind, if it is there.
    pub(super) fn name_of(&self, column: Column) -> String {
        let reckoned = if matches!(column, Column::Reward(_)) { self.sums.get(column.number()) } else { None };
        let found = self.columns.iter().position(|&c| c == column).map(|k| self.names[k].clone());
        found.or(reckoned.map(|sum| sum.text.clone())).unwrap_or_default()
    }
}
