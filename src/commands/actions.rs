//! Values of actions on the command line: what is learned of them, and files of states with actions.

use super::Failure;
use super::given::{TableOptions, listed, read_states_as, within, without_unit, word};
use super::output::{in_file, note};
use crate::learner::Lambda;
use crate::learner::action::{ActionColumns, ActionSpace, ActionValue, CHOICES_MAX, Successor, Trace};
use crate::math::embedding::StateKind;
use crate::table::{Categories, Columns, Table};
use crate::transition::{Rows, state_name};
use crate::wire;
use serde_json::{Value, json};
use std::path::Path;

/// Options of action values.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Values of actions")]
pub(super) struct ActionOptions {
    /// Input of a value: state, or state_action (the action of each transition is then part of the input)
    #[arg(long, value_name = "WHAT", default_value = "state")]
    inputs: InputsChoice,
    /// The actions there are: discrete:N (whole numbers from 0, or N texts, in a column action) or box (the numbers of action or
    /// action_0, action_1, ...)
    #[arg(long, value_name = "KIND", value_parser = action_kind)]
    actions: Option<ActionKind>,
    /// Whose action follows a transition: sarsa (the next one's of the episode: the policy that acted), next_action or
    /// expected (next_action_0.. or next_action_probs_0.. of the transition: the policy that is judged) or improve (the best
    /// one, lambda is then 0) [default: sarsa]
    #[arg(long, value_name = "WHOSE", value_parser = word(&Successor::ALL, Successor::name))]
    successor: Option<Successor>,
    /// How much of a lambda-return continues after an action: on_policy (all), retrace (at most all, by the ratio of
    /// target_prob to behavior_prob), importance (that ratio) or tree (target_prob) [default: on_policy with sarsa,
    /// else retrace]
    #[arg(long, value_name = "HOW", value_parser = word(&Trace::ALL, Trace::name))]
    trace: Option<Trace>,
    /// Prior mean of Q: Q of actions that no transition resembles, optimistic if it is at least the largest return
    #[arg(long, value_name = "MEAN", default_value_t = 0.0, allow_negative_numbers = true, value_parser = prior_mean)]
    pub(super) prior_mean: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum InputsChoice {
    State,
    StateAction,
}

/// The actions there are, as they are named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ActionKind {
    Discrete(usize),
    Box,
}

/// `discrete:N` or `box` on the command line.
pub(super) fn action_kind(text: &str) -> Result<ActionKind, String> {
    if text == "box" {
        return Ok(ActionKind::Box);
    }
    let count = text.strip_prefix("discrete:").and_then(|count| count.parse().ok());
    match count.filter(|count| (1..=CHOICES_MAX).contains(count)) {
        Some(count) => Ok(ActionKind::Discrete(count)),
        None => Err(format!("box, or discrete:N with N from 1 to {CHOICES_MAX}")),
    }
}

fn prior_mean(text: &str) -> Result<f64, String> {
    within(text, |v| v.abs() <= 1e9, "a prior mean lies from -1e9 to 1e9")
}

impl ActionKind {
    /// The actions of a table with these columns, whose actions are these texts, if they are texts.
    pub(super) fn space(self, columns: &ActionColumns, texts: &[String]) -> Result<ActionSpace, Failure> {
        let width = columns.actions.width;
        match self {
            _ if width == 0 => {
                Err(Failure::usage("--actions: the table has no column action or action_0, see --action"))
            }
            Self::Discrete(count) if width == 1 && [0, count].contains(&texts.len()) => {
                Ok(ActionSpace::Discrete(count))
            }
            _ if !texts.is_empty() => {
                let (count, texts) = (texts.len(), listed(texts));
                Err(Failure::usage(format!(
                    "--actions: the table has {count} ({texts}): say discrete:{count}. An action that no row takes needs a name: list all of \
                     them in a file for --columns (categories)"
                )))
            }
            Self::Box => Ok(ActionSpace::around(&columns.actions.values, width)),
            Self::Discrete(_) => {
                let message = format!("--actions discrete: the actions of the table have {width} numbers, not one");
                Err(Failure::usage(message))
            }
        }
    }
}

impl ActionOptions {
    /// Whether values of actions are asked for.
    pub(super) fn values_actions(&self) -> bool {
        self.inputs == InputsChoice::StateAction
    }

    /// What they ask for, of a table with these columns and these texts of actions; none for values of states.
    pub(super) fn action_value(
        &self,
        columns: &ActionColumns,
        texts: &[String],
    ) -> Result<Option<ActionValue>, Failure> {
        if self.inputs == InputsChoice::State {
            let given = [
                ("--actions", self.actions.is_some()),
                ("--successor", self.successor.is_some()),
                ("--trace", self.trace.is_some()),
                ("--prior-mean", self.prior_mean != 0.0),
            ];
            return match given.iter().find(|(_, given)| *given) {
                Some((option, _)) => Err(Failure::usage(format!("{option} needs --inputs state_action"))),
                None => Ok(None),
            };
        }
        let Some(kind) = self.actions else {
            return Err(Failure::usage("--inputs state_action needs --actions discrete:N or --actions box"));
        };
        let space = kind.space(columns, texts)?;
        let successor = self.successor.unwrap_or(Successor::Sarsa);
        check_successor(successor, &space, columns)?;
        Ok(Some(ActionValue { space, successor, trace: self.chosen_trace(successor, columns)? }))
    }

    /// Kinds of the inputs (`dim`,): the state variables' kinds, and real ones for actions; none where all are real.
    pub(super) fn kinds(&self, states: &[StateKind], dim: usize) -> Vec<StateKind> {
        let mut kinds = states.to_vec();
        if self.inputs == InputsChoice::StateAction && !kinds.is_empty() && kinds.len() < dim {
            kinds.resize(dim, StateKind::Real);
        }
        kinds
    }

    /// Whether values are of another policy than the one that acted.
    pub(super) fn leaves_chain(&self) -> bool {
        self.inputs == InputsChoice::StateAction
            && self.successor.is_some_and(|successor| successor != Successor::Sarsa)
    }

    fn chosen_trace(&self, successor: Successor, columns: &ActionColumns) -> Result<Trace, Failure> {
        let has = |column: &crate::learner::action::Column| column.width > 0;
        let (behavior, target) = (has(&columns.behavior_probs), has(&columns.target_probs));
        let missing = match self.trace {
            Some(Trace::Tree) if !target => Some("target_prob"),
            Some(Trace::Retrace | Trace::Importance) if !behavior => Some("behavior_prob"),
            Some(Trace::Retrace | Trace::Importance) if !target => Some("target_prob"),
            _ => None,
        };
        if let (Some(column), Some(trace)) = (missing, self.trace) {
            let name = trace.name();
            note(&format!("--trace {name}: the table has no column {column}, so that rho is 1 in every row"));
        }
        Ok(match self.trace {
            Some(trace) => trace,
            None if successor == Successor::Sarsa => Trace::OnPolicy,
            None => Trace::Retrace,
        })
    }

    /// lambda of what is learned, where `asked` is the one asked for: 0 for improvement, and for another policy where nothing
    /// says how likely it takes the actions of the table.
    pub(super) fn lambda(
        &self,
        of: &ActionValue,
        columns: &ActionColumns,
        asked: Option<Lambda>,
    ) -> Result<Option<Lambda>, Failure> {
        let unknown = columns.behavior_probs.width == 0 || columns.target_probs.width == 0;
        let reason = match of.successor {
            Successor::Improve => "--successor improve",
            Successor::NextAction | Successor::Expected if self.trace.is_none() && unknown => {
                "another policy whose target_prob and behavior_prob are not in the table, and no --trace"
            }
            _ => return Ok(asked),
        };
        match asked {
            None | Some(Lambda::Auto) => Ok(Some(Lambda::Fixed(0.0))),
            Some(Lambda::Fixed(0.0)) => Ok(asked),
            Some(Lambda::Fixed(lambda)) => Err(Failure::usage(format!("--lambda {lambda}: with {reason} lambda is 0"))),
        }
    }
}

/// Refuse a successor that the table does not name.
fn check_successor(successor: Successor, space: &ActionSpace, columns: &ActionColumns) -> Result<(), Failure> {
    let missing = match successor {
        Successor::NextAction if columns.next_actions.width == 0 => "next_action: the table has no column next_action",
        Successor::Expected if space.choices() == 0 => "expected is for discrete actions: name a next_action",
        Successor::Expected if columns.next_action_probs.width == 0 => {
            "expected: the table has no columns next_action_probs_0, ..."
        }
        _ => return Ok(()),
    };
    Err(Failure::usage(format!("--successor {missing}")))
}

/// Names of the inputs of Q, from the state variables' names (D,), if they have any, and from texts that discrete actions are.
pub(super) fn input_names(
    names: Option<Vec<String>>,
    dim: usize,
    space: &ActionSpace,
    texts: &[String],
) -> Option<Vec<String>> {
    let names = names.unwrap_or_else(|| (0..dim).map(state_name).collect());
    let own = space.names().into_iter().enumerate();
    let named = own.map(|(a, own)| texts.get(a).map_or(own, |text| format!("action={text}")));
    Some(names.into_iter().chain(named).collect())
}

/// Names of the columns in which states and actions are read and shown.
pub(super) fn shown_names(names: &[String], space: &ActionSpace) -> Vec<String> {
    let states = names[..names.len() - space.width()].iter().cloned();
    states.chain(numbered("action", space.numbers())).collect()
}

/// "action", or "action_0", "action_1", ...
fn numbered(name: &str, count: usize) -> Vec<String> {
    if count == 1 { vec![name.to_owned()] } else { (0..count).map(|k| format!("{name}_{k}")).collect() }
}

/// Inputs of Q as people read them: states (n, D) with the numbers of their actions.
pub(super) fn shown(inputs: &[f64], dim: usize, space: &ActionSpace) -> Vec<f64> {
    let mut out = Vec::new();
    for input in inputs.chunks_exact(dim) {
        let (state, action) = input.split_at(dim - space.width());
        out.extend_from_slice(state);
        out.extend(space.action_of(action));
    }
    out
}

/// Inputs of Q (n, `dim`) from a file of states with actions: columns `said` of the state, those called `names`, or
/// state_0, ...; and action, or action_0, .... A file with `dim` state variables alone has inputs as they are.
pub(super) fn read_inputs(
    path: &Path,
    said: &[String],
    names: &[String],
    (dim, known): (usize, &Categories),
    space: &ActionSpace,
) -> Result<Vec<f64>, Failure> {
    let width = dim - space.width();
    let numbered_states = |form: fn(usize) -> String| (0..width).map(form).collect::<Vec<_>>();
    let mut states = vec![numbered_states(state_name), numbered_states(|d| format!("state[{d}]"))];
    states.insert(0, names.iter().take(width).map(|name| without_unit(name).to_owned()).collect());
    if !said.is_empty() {
        states = vec![said.to_vec()];
    }
    let of_action = |form: fn(usize) -> String| (0..space.numbers()).map(form).collect::<Vec<_>>();
    let mut actions = vec![of_action(|d| format!("action_{d}")), of_action(|d| format!("action[{d}]"))];
    if space.numbers() == 1 {
        actions.insert(0, vec!["action".to_owned()]);
    }
    let mut first = None;
    for states in states.iter().filter(|states| states.len() == width) {
        for actions in &actions {
            let state = [&states[..], &actions[..]].concat();
            let columns = Columns { categories: known.widened(state.len()), state, ..Columns::default() };
            match read_states_as(path, &columns, width + space.numbers(), "model") {
                Ok(found) => return joined(path, &found, width, space),
                Err(failure) => _ = first.get_or_insert(failure),
            }
        }
    }
    let whole = Columns { state: if said.is_empty() { Vec::new() } else { said.to_vec() }, ..Columns::default() };
    read_states_as(path, &whole, dim, "model").map_err(|failure| first.unwrap_or(failure))
}

/// The numbers of actions behind their states (n, `width` + A) as coordinates.
fn joined(path: &Path, found: &[f64], width: usize, space: &ActionSpace) -> Result<Vec<f64>, Failure> {
    let mut out = Vec::new();
    for (i, row) in found.chunks_exact(width + space.numbers()).enumerate() {
        out.extend_from_slice(&row[..width]);
        let appended = space.append(&row[width..], &mut out);
        appended.map_err(|message| in_file(path, format!("row {}, action: {message}", i + 1)))?;
    }
    Ok(out)
}

/// The transitions of a table as they are learned.
pub(super) struct LearnedTable {
    /// Between states, or between inputs of Q.
    pub(super) rows: Rows,
    /// (n,) episode of each.
    pub(super) episodes: Vec<u32>,
    /// What the numbers of a state, or of an input, are called.
    pub(super) names: Option<Vec<String>>,
    /// Where it is the value of actions.
    pub(super) of_actions: Option<OfActions>,
}

/// What a value of actions is learned by.
pub(super) struct OfActions {
    pub(super) of: ActionValue,
    pub(super) columns: ActionColumns,
    /// The same transitions followed by the policy that acted, where that is not what is learned: a kernel is selected by them.
    pub(super) acted: Option<Rows>,
}

impl OfActions {
    /// What is learned, into what `fit --json` prints.
    pub(super) fn describe(&self, document: &mut Value) {
        document["actions"] = wire::action_space_to_json(&self.of.space);
        document["successor"] = json!(self.of.successor);
        document["trace"] = json!(self.of.trace);
    }
}

impl LearnedTable {
    /// What `options` make of a table, which was read as `of_table` says; `rho_max` clips its ratios if there is such a limit.
    pub(super) fn of(
        options: &ActionOptions,
        of_table: &TableOptions,
        table: Table,
        rho_max: Option<f64>,
    ) -> Result<Self, Failure> {
        let path = &of_table.table;
        let table = if options.inputs == InputsChoice::State { table } else { of_table.with_actions(table)? };
        let (names, episodes, columns) = (table.names_with_units(), table.episodes().to_vec(), table.action_columns());
        let texts = table.action_texts().to_vec();
        let rows = table.into_rows();
        let Some(of) = options.action_value(&columns, &texts)? else {
            return Ok(Self { rows, episodes, names, of_actions: None });
        };
        let between = |of: &ActionValue| of.rows(&rows, &columns, rho_max).map_err(|e| in_file(path, e));
        let learned = between(&of)?;
        if learned.rows.is_empty() {
            let message =
                "no transition has another one of its episode behind it, terminates, or names the next action";
            return Err(in_file(path, message));
        }
        let acted = if of == of.on_policy() { None } else { Some(between(&of.on_policy())?.rows) };
        Ok(Self {
            episodes: learned.kept.iter().map(|&i| episodes[i]).collect(),
            rows: learned.rows,
            names: input_names(names, rows.dim, &of.space, &texts),
            of_actions: Some(OfActions { of, columns, acted }),
        })
    }
}
