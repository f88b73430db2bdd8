//! Models of the transition on the command line: what plans, courses and second opinions have in common.

use super::Failure;
use super::actions::{ActionKind, action_kind};
use super::given::{self, TableOptions, plural, without_unit};
use super::output::{in_file, number};
use crate::learner::action::{ActionColumns, ActionSpace};
use crate::learner::allowance::Allowance;
use crate::learner::off_policy::{count, first_rows, folds};
use crate::math::embedding::StateKind;
use crate::math::returns::chains;
use crate::table::{Categories, Table};
use crate::transition::{Rows, state_name};
use crate::world::{
    Chained, Choice, Choosing, Dynamics, Expression, Known, LOST_MAX, Names, Normal, Part, Reach, Transitions, World,
};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Groups of episodes, of which one is held out; and of pieces, where there are few episodes.
const GROUPS: usize = 5;
const PIECES: usize = 20;
/// Starts of held-out chains, at most.
const STARTS_MAX: usize = 400;

/// Options of a model of the transition.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Model of the transition")]
pub(super) struct WorldOptions {
    /// States with actions that the model is made of, at most; more of them cost time and make it better
    #[arg(long, value_name = "N", default_value_t = 300, value_parser = given::at_least_one)]
    model_elements: usize,
    /// States that it expresses successors in, at most
    #[arg(long, value_name = "N", default_value_t = 150, value_parser = given::at_least_one)]
    model_successors: usize,
}

/// The options that `plan` and `rollout` share.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct AskedOptions {
    /// The actions there are: discrete:N (whole numbers from 0, or N texts, in a column action) or box (the numbers of action or action_0,
    /// action_1, ...)
    #[arg(long, value_name = "KIND", value_parser = action_kind)]
    pub(super) actions: Option<ActionKind>,
    #[command(flatten)]
    pub(super) world: WorldOptions,
    /// Seed of everything random
    #[arg(long, value_name = "S", default_value_t = 0)]
    pub(super) seed: u64,
    /// The critic of the daemon, where one is asked [default: the first]
    #[arg(long, value_name = "NAME")]
    pub(super) critic: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    pub(super) json: bool,
}

impl AskedOptions {
    /// # Errors
    /// An option is for a daemon.
    pub(super) fn check_no_daemon(&self) -> Result<(), Failure> {
        match &self.critic {
            Some(_) => {
                Err(Failure::usage("--critic is for a TABLE that is a daemon: its endpoint, or its data directory"))
            }
            None => Ok(()),
        }
    }
}

/// How long a daemon may take for a plan or a course.
pub(super) const LIVE_PATIENCE: Duration = Duration::from_secs(60);

/// What an answer of a daemon is made of, for people.
pub(super) fn live_facts(document: &Value) -> Vec<(String, String)> {
    let model = &document["model"];
    let of = |key: &str| model[key].as_f64().unwrap_or(0.0);
    let elements = format!(
        "{} states with actions, {} states of successors ({:.3} of them is lost)",
        model["elements"],
        model["successors"],
        of("lost")
    );
    let transitions = plural(of("transitions") as usize, "transition");
    vec![
        ("model of".to_owned(), format!("{transitions}, generation {}", document["generation"])),
        ("elements".to_owned(), elements),
        ("held-out error".to_owned(), format!("{:.3} of the variance, up to 8 steps ahead", of("loss"))),
    ]
}

/// The texts of a list.
pub(super) fn texts(list: &Value) -> Vec<String> {
    list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
}

/// A model of the transition, and the rows that it has learned.
pub(super) struct Modelled {
    pub(super) table: TableRows,
    /// (n,) the row that continues each.
    pub(super) follows: Vec<Option<usize>>,
    /// (n, D + A), row-major.
    inputs: Vec<f64>,
    /// (n,) whether a row is held out where something is compared.
    held: Vec<bool>,
    normal: Normal,
    pub(super) choice: Choice,
    elements: (usize, usize),
    world: World,
    pub(super) dynamics: Dynamics,
    /// (m,) the row whose successor each element of C is.
    pub(super) places: Vec<usize>,
}

/// What the rows of a table say, before anything is learned.
pub(super) struct TableRows {
    pub(super) rows: Rows,
    pub(super) columns: ActionColumns,
    pub(super) space: ActionSpace,
    /// What the state variables are called, with their units.
    pub(super) names: Vec<String>,
    /// The texts of state variables, and behind them of actions.
    pub(super) categories: Categories,
    /// (n,) episode of each row.
    pub(super) episodes: Vec<u32>,
}

impl TableRows {
    /// Of a table with these actions; without a `kind` there is one action, and the model is of the policy that acted. `discount`
    /// is the one that counts, if one does.
    pub(super) fn of(
        options: &TableOptions,
        table: Table,
        kind: Option<ActionKind>,
        discount: Option<f64>,
    ) -> Result<Self, Failure> {
        let table = if kind.is_some() { options.with_actions(table)? } else { table };
        let categories = table.categories().clone();
        let (names, episodes, columns) = (table.names_with_units(), table.episodes().to_vec(), table.action_columns());
        let space = match kind {
            Some(kind) => kind.space(&columns, table.action_texts())?,
            None => ActionSpace::Box { low: vec![0.0], high: vec![0.0] },
        };
        let rows = table.into_rows();
        let names = names.unwrap_or_else(|| (0..rows.dim).map(state_name).collect());
        let given = Self { rows, columns, space, names, categories, episodes };
        discount.iter().try_for_each(|discount| given.check_discounts(&options.table, *discount))?;
        Ok(given)
    }

    /// Refuse rows with another discount than the one that counts.
    pub(super) fn check_discounts(&self, path: &Path, discount: f64) -> Result<(), Failure> {
        match self.rows.discounts.iter().find(|own| !own.is_nan() && **own != discount) {
            None => Ok(()),
            Some(own) => {
                let message = format!(
                    "a row has the discount {own}: a model of the transition knows one, {discount} (--discount); put an \
                     underscore before the name of the column to have it skipped"
                );
                Err(in_file(path, message))
            }
        }
    }

    /// (n, D + A): states with their actions.
    fn inputs(&self, path: &Path, acted: bool) -> Result<Vec<f64>, Failure> {
        let mut out = Vec::with_capacity(self.rows.len() * (self.rows.dim + self.space.width()));
        for i in 0..self.rows.len() {
            out.extend_from_slice(self.rows.state(i));
            let missing = || in_file(path, format!("transition {}, action: missing, the model needs it", i + 1));
            let action = if acted { self.columns.actions.row(i).ok_or_else(missing)? } else { &[0.0] };
            let appended = self.space.append(action, &mut out);
            appended.map_err(|message| in_file(path, format!("transition {}, action: {message}", i + 1)))?;
        }
        Ok(out)
    }
}

impl WorldOptions {
    /// Choose kernels by held-out chains, and learn all rows. With `answered` the states that successors are expressed in are states of
    /// rows, in which a policy may have been asked. `acted` says whether actions count.
    pub(super) fn learn(
        &self,
        path: &Path,
        table: TableRows,
        (acted, answered): (bool, bool),
        seed: u64,
    ) -> Result<Modelled, Failure> {
        let inputs = table.inputs(path, acted)?;
        let TableRows { ref rows, ref space, ref categories, ref episodes, .. } = table;
        let (follows, held) = (chains(rows), held(rows, episodes, seed));
        let normal = Normal::of(&inputs, rows.dim, space, &categories.kinds(rows.dim));
        let elements = (self.model_elements, self.model_successors);
        let transitions = Transitions {
            inputs: &inputs,
            successors: &rows.next_states,
            rewards: &rows.rewards,
            terminated: &rows.terminated,
        };
        let of = Chained { rows: transitions, follows: &follows };
        let allowance = &Allowance::unlimited();
        let choosing = Choosing { of, held: &held, space, elements, seed, keep_going: &|| true, allowance };
        let choice = choosing.choose(&normal).map_err(|e| in_file(path, e))?;
        let usable = |i: usize| !answered || follows[i].is_some();
        let learned = choice.widths.learn(&normal, &transitions, elements, &usable);
        let (world, places) = learned.map_err(|e| in_file(path, e))?;
        let dynamics = world.solve(choice.widths.ridge, LOST_MAX).map_err(|e| in_file(path, e))?;
        Ok(Modelled { table, follows, inputs, held, normal, choice, elements, world, dynamics, places })
    }
}

/// What an option says over these names; none where it names something else.
///
/// # Errors
/// It is not of the grammar.
pub(super) fn expression(option: &str, text: &str, names: &Names<'_>) -> Result<Option<Expression>, Failure> {
    Expression::parse(text, names).map_err(|why| Failure::usage(format!("{option} {why}")))
}

/// Which rows are held out: a fifth of the episodes, or where there are few, of pieces of the table.
fn held(rows: &Rows, episodes: &[u32], seed: u64) -> Vec<bool> {
    if count(episodes) >= GROUPS {
        return folds(episodes, GROUPS, seed).into_iter().map(|group| group == 0).collect();
    }
    let piece = rows.len().div_ceil(PIECES).max(1);
    (0..rows.len()).map(|i| i / piece % GROUPS == GROUPS - 1).collect()
}

impl Modelled {
    /// The rows as the model learns them.
    pub(super) fn transitions(&self) -> Transitions<'_> {
        Transitions {
            inputs: &self.inputs,
            successors: &self.table.rows.next_states,
            rewards: &self.table.rows.rewards,
            terminated: &self.table.rows.terminated,
        }
    }

    /// The model beside all rows.
    pub(super) fn known(&self) -> Known<'_> {
        Known {
            dynamics: &self.dynamics,
            space: &self.table.space,
            rows: self.transitions(),
            errors: (self.transitions(), 1.0),
        }
    }

    /// Whether any row ends.
    pub(super) fn ends(&self) -> bool {
        self.table.rows.terminated.contains(&true)
    }

    /// First row of each episode.
    pub(super) fn starts(&self) -> Vec<usize> {
        first_rows(&self.table.episodes)
    }

    /// States (k, D) of rows.
    pub(super) fn states_of(&self, places: &[usize]) -> Vec<f64> {
        places.iter().flat_map(|&i| self.table.rows.state(i).to_vec()).collect()
    }

    /// The rows in which a policy has been asked about the elements of C.
    ///
    /// # Panics
    /// If the model was not learned so.
    pub(super) fn answered(&self) -> Vec<usize> {
        self.places.iter().map(|&i| self.follows[i].expect("a row that another one continues")).collect()
    }

    /// How predictions of `count` functions of the state, 1 to `steps` steps ahead, do for held-out chains by a model of the others.
    pub(super) fn reach(
        &self,
        path: &Path,
        functions: &dyn Fn(&[f64]) -> Vec<f64>,
        (count, steps): (usize, usize),
    ) -> Result<Reach, Failure> {
        let (out, others): (Vec<usize>, Vec<usize>) = (0..self.table.rows.len()).partition(|&i| self.held[i]);
        let transitions = self.transitions();
        let part = Part::of(&transitions, &others);
        let learned = self.choice.widths.learn(&self.normal, &part.rows(), self.elements, &|_| true);
        let solved = learned.and_then(|(world, _)| world.solve(self.choice.widths.ridge, LOST_MAX));
        let dynamics = solved.map_err(|e| in_file(path, e))?;
        let starts: Vec<usize> = out.iter().copied().step_by(out.len().div_ceil(STARTS_MAX).max(1)).collect();
        let ahead = dynamics.ahead(&Chained { rows: transitions, follows: &self.follows }, &starts, functions, steps);
        Ok(Reach::new(ahead, count))
    }

    /// What it is made of, for people.
    pub(super) fn facts(&self) -> Vec<(String, String)> {
        let widths = &self.choice.widths;
        let lengths = widths.states.iter().zip(&self.normal.states.scale).zip(&self.table.names);
        let length = |(d, ((length, scale), name)): (usize, ((&f64, &f64), &String))| {
            let is_category = self.normal.kinds.get(d) == Some(&StateKind::Category);
            let length = if is_category { "category".to_owned() } else { number(length * scale) };
            format!("{} {length}", without_unit(name))
        };
        let lengths: Vec<String> = lengths.enumerate().map(length).collect();
        vec![
            (
                "model of".to_owned(),
                format!(
                    "{}, {}",
                    plural(self.table.rows.len(), "transition"),
                    plural(count(&self.table.episodes), "episode")
                ),
            ),
            (
                "elements".to_owned(),
                format!(
                    "{} states with actions, {} states of successors ({:.3} of them is lost)",
                    self.dynamics.before().len(),
                    self.dynamics.after().len(),
                    self.world.lost().unwrap_or(0.0)
                ),
            ),
            ("lengthscales".to_owned(), given::listed(&lengths)),
            ("held-out error".to_owned(), format!("{:.3} of the variance, up to 8 steps ahead", self.choice.loss)),
        ]
    }

    /// The same for programs.
    pub(super) fn document(&self) -> Value {
        let widths = &self.choice.widths;
        let lengths: Vec<f64> = widths.states.iter().zip(&self.normal.states.scale).map(|(l, s)| l * s).collect();
        json!({
            "transitions": self.table.rows.len(),
            "episodes": count(&self.table.episodes),
            "elements": self.dynamics.before().len(),
            "successors": self.dynamics.after().len(),
            "lost": self.world.lost(),
            "lengthscales": lengths,
            "names": self.table.names,
            "ratio": widths.ratio,
            "action_lengthscale": widths.action,
            "noise_variance": widths.ridge,
            "loss": self.choice.loss,
            "kernels_compared": self.choice.tried,
        })
    }
}
