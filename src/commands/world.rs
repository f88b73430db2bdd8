//! Models of the transition on the command line: what plans, courses and second opinions have in common.

use super::Failure;
use super::actions::{ActionKind, action_kind};
use super::dictionary::tolerance;
use super::given::{self, TableOptions, plural, without_unit};
use super::output::{in_file, number};
use crate::learner::action::{ActionColumns, ActionSpace};
use crate::learner::allowance::Allowance;
use crate::learner::off_policy::{count, first_rows, folds};
use crate::math::embedding::StateKind;
use crate::math::pursuit::Pursuit;
use crate::math::returns::chains;
use crate::table::{Categories, Table};
use crate::transition::{Rows, state_name};
use crate::world::{
    Chained, Choice, Choosing, ChosenElements, Dynamics, ElementRule, Expression, Known, LOST_MAX, Names, Normal, Part,
    Pursuing, Reach, Transitions, World, WorldError,
};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Groups of episodes, of which one is held out; and of pieces, where there are few episodes.
const GROUPS: usize = 5;
const PIECES: usize = 20;
/// Starts of held-out chains, at most.
const STARTS_MAX: usize = 400;

/// Elements of D and of C unless other numbers are given, and rows among which a pursuit chooses.
const ELEMENTS_MAX: (usize, usize) = (300, 150);
const CANDIDATES: usize = 400;
/// Squared distance of a lossy set unless another is given.
const DISTANCE: f64 = 0.1;

/// Options of a model of the transition.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Model of the transition")]
pub(super) struct WorldOptions {
    /// States with actions that the model is made of, at most; more of them cost time and make it better [default: 300]
    #[arg(long, value_name = "N", value_parser = given::at_least_one)]
    model_elements: Option<usize>,
    /// How they are chosen where more than that would be needed: pivots (pivoted incomplete Cholesky: they cover the rows), or a
    /// matching pursuit by what explains where rows lead: mp (weights stay), backfit (least squares after each choice), ols (by what
    /// the chosen ones do not span) [default: pivots]
    #[arg(long, value_name = "RULE")]
    model_elements_by: Option<ElementsBy>,
    /// Of a pursuit: rows that it chooses among, drawn at random [default: 400, or --model-elements if that is more]
    #[arg(long, value_name = "N", value_parser = given::at_least_one)]
    model_candidates: Option<usize>,
    /// Of a pursuit: choose no more where none explains more than this share of where rows lead [default: 0]
    #[arg(long, value_name = "SHARE", value_parser = gain)]
    model_gain: Option<f64>,
    /// States that it expresses successors in, at most [default: 150]
    #[arg(long, value_name = "N", value_parser = given::at_least_one)]
    model_successors: Option<usize>,
    /// How they are chosen: pivots, or lossy (one row after the other, each whose successor's squared distance from the convex hull of
    /// those before is above --model-tolerance; refused where --model-successors do not suffice) [default: pivots]
    #[arg(long, value_name = "RULE")]
    model_successors_by: Option<SuccessorsBy>,
    /// Squared distance that is near enough, in parts of the kernel's variance: of what is no pivot from what pivots express, or with
    /// lossy of a successor from the hull [default: 1e-6, with lossy 0.1]
    #[arg(long, value_name = "T", value_parser = tolerance)]
    model_tolerance: Option<f64>,
}

/// A share on the command line that all of something is not.
fn gain(text: &str) -> Result<f64, String> {
    given::within(text, |v| (0.0..1.0).contains(&v), "a share of 0 or more, below 1")
}

/// Values of --model-elements-by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum ElementsBy {
    Pivots,
    Mp,
    Backfit,
    Ols,
}

impl ElementsBy {
    fn pursuit(self) -> Option<Pursuit> {
        match self {
            Self::Pivots => None,
            Self::Mp => Some(Pursuit::Matching),
            Self::Backfit => Some(Pursuit::Backfitting),
            Self::Ols => Some(Pursuit::Orthogonal),
        }
    }
}

/// Values of --model-successors-by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum SuccessorsBy {
    Pivots,
    Lossy,
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
    /// An option is for a daemon, or options of the model do not go together.
    pub(super) fn check_no_daemon(&self) -> Result<(), Failure> {
        match &self.critic {
            Some(_) => {
                Err(Failure::usage("--critic is for a TABLE that is a daemon: its endpoint, or its data directory"))
            }
            None => self.world.rule(self.seed).map(drop),
        }
    }

    /// # Errors
    /// An option is for a table.
    pub(super) fn check_no_table(&self, dry_run: bool) -> Result<(), Failure> {
        if dry_run || self.actions.is_some() {
            return Err(Failure::usage("--dry-run and --actions are for a table: a daemon knows its rows and actions"));
        }
        match self.world.first_given() {
            Some(option) => Err(Failure::usage(format!(
                "{option} is for a table: a daemon has a model already, of pivots, as many as dictionary_max allows"
            ))),
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
    rule: ElementRule,
    chosen: ChosenElements,
    world: World,
    pub(super) dynamics: Dynamics,
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
    /// The first of them that was given.
    pub(super) fn first_given(&self) -> Option<&'static str> {
        let given = [
            ("--model-elements", self.model_elements.is_some()),
            ("--model-elements-by", self.model_elements_by.is_some()),
            ("--model-candidates", self.model_candidates.is_some()),
            ("--model-gain", self.model_gain.is_some()),
            ("--model-successors", self.model_successors.is_some()),
            ("--model-successors-by", self.model_successors_by.is_some()),
            ("--model-tolerance", self.model_tolerance.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(option, _)| option)
    }

    /// How elements are chosen.
    ///
    /// # Errors
    /// Options that do not go together.
    pub(super) fn rule(&self, seed: u64) -> Result<ElementRule, Failure> {
        let most = (self.model_elements.unwrap_or(ELEMENTS_MAX.0), self.model_successors.unwrap_or(ELEMENTS_MAX.1));
        let candidates = self.model_candidates.unwrap_or(CANDIDATES.max(most.0));
        let pursuit = self.model_elements_by.and_then(ElementsBy::pursuit);
        let of_pursuit =
            [("--model-candidates", self.model_candidates.is_some()), ("--model-gain", self.model_gain.is_some())];
        if let (None, Some((option, _))) = (pursuit, of_pursuit.iter().find(|(_, given)| *given)) {
            return Err(Failure::usage(format!(
                "{option} is of a pursuit: add --model-elements-by ols, mp or backfit"
            )));
        }
        if candidates < most.0 {
            return Err(Failure::usage(format!(
                "--model-candidates: among {candidates} rows there are no {} elements; draw more, or lower --model-elements",
                most.0
            )));
        }
        let by = |by| Pursuing { by, candidates, enough: self.model_gain.unwrap_or(0.0), seed };
        let mut rule = ElementRule { pursuit: pursuit.map(by), ..ElementRule::pivots(most) };
        if self.model_successors_by == Some(SuccessorsBy::Lossy) {
            rule.lossy = Some(self.model_tolerance.unwrap_or(DISTANCE));
        } else if let Some(tolerance) = self.model_tolerance {
            rule.tolerance = tolerance;
        }
        Ok(rule)
    }

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
        let rule = self.rule(seed)?;
        let transitions = Transitions {
            inputs: &inputs,
            successors: &rows.next_states,
            rewards: &rows.rewards,
            terminated: &rows.terminated,
        };
        let of = Chained { rows: transitions, follows: &follows };
        let allowance = &Allowance::unlimited();
        let choosing = Choosing { of, held: &held, space, elements: &rule, seed, keep_going: &|| true, allowance };
        let choice = choosing.choose(&normal).map_err(|e| fault(path, e))?;
        let usable = |i: usize| !answered || follows[i].is_some();
        let learned = choice.widths.learn(&normal, &transitions, &rule, &usable);
        let (world, chosen) = learned.map_err(|e| fault(path, e))?;
        let dynamics = world.solve(choice.widths.ridge, LOST_MAX).map_err(|e| fault(path, e))?;
        Ok(Modelled { table, follows, inputs, held, normal, choice, rule, chosen, world, dynamics })
    }
}

/// Why there is no model of a table, with the options that help.
fn fault(path: &Path, why: WorldError) -> Failure {
    let options = match why {
        WorldError::Lost { .. } | WorldError::Uncovered { .. } => "--model-successors, --model-tolerance",
        WorldError::Unexplained(_) => "--model-gain",
        why => return in_file(path, why),
    };
    in_file(path, format!("{options}: {why}"))
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
        self.chosen.places.iter().map(|&i| self.follows[i].expect("a row that another one continues")).collect()
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
        let learned = self.choice.widths.learn(&self.normal, &part.rows(), &self.rule, &|_| true);
        let solved = learned.and_then(|(world, _)| world.solve(self.choice.widths.ridge, LOST_MAX));
        let dynamics = solved.map_err(|e| fault(path, e))?;
        let starts: Vec<usize> = out.iter().copied().step_by(out.len().div_ceil(STARTS_MAX).max(1)).collect();
        let ahead = dynamics.ahead(&Chained { rows: transitions, follows: &self.follows }, &starts, functions, steps);
        Ok(Reach::new(ahead, count))
    }

    /// How its elements were chosen: D, and C.
    fn rules(&self) -> (&'static str, &'static str) {
        let pursuing = self.rule.pursuit.as_ref().filter(|_| self.chosen.pursued);
        let after = if self.rule.lossy.is_some() { "lossy" } else { "pivots" };
        (pursuing.map_or("pivots", |of| of.by.name()), after)
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
        let (before, after) = self.rules();
        let unneeded =
            if self.rule.pursuit.is_some() && !self.chosen.pursued { ", which express all rows" } else { "" };
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
                    "{} states with actions ({before}{unneeded}), {} states of successors ({after}; {:.3} of them is lost)",
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
            "elements_by": self.rules().0,
            "successors": self.dynamics.after().len(),
            "successors_by": self.rules().1,
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
