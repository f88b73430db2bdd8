//! `criticd act`.

use super::Failure;
use super::client::{Connection, daemon_named, with_critic};
use super::given::{categories, read_states_as, within, without_unit, write_texts};
use super::inspect::{names, read_model};
use super::output::{columns, in_file, number, print, print_json};
use crate::learner::act::{Actor, Exploration, Question};
use crate::snapshot::Evaluator;
use crate::table::{Categories, Columns};
use crate::transition::state_name;
use crate::wire::Status;
use serde_json::{Value, json};
use std::path::PathBuf;

/// States that one request to a daemon has.
const STATES_PER_REQUEST: usize = 256;
/// What a decision has, by its keys in a reply of the daemon.
const KEYS: [&str; 6] = ["actions", "mean", "std", "probability", "unknown", "decision_id"];

/// Choose an action in each state of a file, by a model of action values or by a running daemon
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd act q.model states.csv\n  criticd act tcp://127.0.0.1:5751 states.csv --exploration epsilon_greedy --epsilon 0.1 --seed 7\n  criticd act q.model states.csv --exploration ucb --beta 2 --json\n\nStates are read as by `criticd value`, without actions. A decision is a function of the model, the seed, the episode and the\nstep: --step is the first state's, and each further state is one step later. std is the deviation of Q, probability that\nwith which the step's own randomness takes this action: send it with the transition as behavior_prob.\nWhere actions have names, --json has these as action_names beside the numbers in actions."
)]
pub(crate) struct Act {
    /// A model of action values, as `fit` writes it; or the control endpoint of a running daemon
    #[arg(value_name = "MODEL")]
    model: PathBuf,
    /// A table of states, see below
    #[arg(value_name = "STATES")]
    states: PathBuf,
    /// How to choose: greedy, epsilon_greedy, softmax, ucb or thompson
    #[arg(long, value_name = "HOW", default_value = "greedy")]
    exploration: ExplorationChoice,
    /// Probability of a random action, with epsilon_greedy
    #[arg(long, value_name = "P", default_value_t = 0.1, value_parser = share)]
    epsilon: f64,
    /// Temperature of softmax, in the unit of a return
    #[arg(long, value_name = "T", default_value_t = 1.0, value_parser = super::given::positive)]
    temperature: f64,
    /// Deviations that ucb adds
    #[arg(long, value_name = "B", default_value_t = 1.0, value_parser = not_negative)]
    beta: f64,
    /// Seed of everything random
    #[arg(long, value_name = "S", default_value_t = 0)]
    seed: u64,
    /// Number of the episode
    #[arg(long, value_name = "N", default_value_t = 0)]
    episode: u64,
    /// Number of the first state's step
    #[arg(long, value_name = "N", default_value_t = 0)]
    step: u64,
    /// Deviation of Q above which a state is marked as unknown
    #[arg(long, value_name = "STD", value_parser = super::given::positive)]
    unknown_above: Option<f64>,
    /// The critic of the daemon that decides [default: the first]
    #[arg(long, value_name = "NAME")]
    critic: Option<String>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
#[value(rename_all = "snake_case")]
enum ExplorationChoice {
    Greedy,
    EpsilonGreedy,
    Softmax,
    Ucb,
    Thompson,
}

/// Decisions, and the words for what they are about.
struct Decided {
    /// By [`KEYS`], one entry for each state.
    found: Value,
    states: Vec<f64>,
    /// Names of the state variables.
    names: Vec<String>,
    /// Names of the discrete actions; empty where they have none.
    actions: Vec<String>,
    /// The texts of state variables.
    categories: Categories,
}

impl Act {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let decided = match daemon_named(&self.model) {
            Some(endpoint) => self.by_daemon(&endpoint)?,
            None => self.by_model()?,
        };
        if self.json { print_json(&decided.document()) } else { print(&decided.text()) }
    }

    fn exploration(&self) -> Exploration {
        match self.exploration {
            ExplorationChoice::Greedy => Exploration::Greedy,
            ExplorationChoice::EpsilonGreedy => Exploration::EpsilonGreedy(self.epsilon),
            ExplorationChoice::Softmax => Exploration::Softmax(self.temperature),
            ExplorationChoice::Ucb => Exploration::Ucb(self.beta),
            ExplorationChoice::Thompson => Exploration::Thompson,
        }
    }

    fn by_model(&self) -> Result<Decided, Failure> {
        if self.critic.is_some() {
            return Err(Failure::usage("--critic is for a MODEL that is the endpoint of a daemon"));
        }
        let snapshot = read_model(&self.model)?;
        let dim = snapshot.state_dim();
        let mut names = names(&snapshot);
        let coordinates = names.split_off(dim);
        let actions = coordinates.iter().filter_map(|name| name.strip_prefix("action=").map(str::to_owned)).collect();
        let known = names.iter().map(|name| without_unit(name).to_owned()).collect();
        let categories = categories(&snapshot, &self.model)?;
        let columns = Columns { names: known, categories: categories.clone(), ..Columns::default() };
        let states = read_states_as(&self.states, &columns, dim, "model")?;
        let actor = Actor::new(Evaluator::new(snapshot)).map_err(|e| in_file(&self.model, e))?;
        let mut found = json!({});
        for (i, state) in states.chunks_exact(dim).enumerate() {
            let question = Question {
                state,
                exploration: self.exploration(),
                seed: self.seed,
                episode: self.episode,
                step: self.step + i as u64,
                candidates: None,
                unknown_above: self.unknown_above,
            };
            let decision = actor.act(&question)?;
            let action = &decision.action;
            let values = [
                match action[..] {
                    [number] if actor.space().choices() > 0 => json!(number as u64),
                    [number] => json!(number),
                    _ => json!(action),
                },
                json!(decision.mean),
                json!(decision.deviation),
                json!(decision.probability),
                json!(decision.unknown),
                json!(decision.id),
            ];
            KEYS.iter().zip(values).for_each(|(key, value)| push(&mut found, key, value));
        }
        Ok(Decided { found, states, names, actions, categories })
    }

    fn by_daemon(&self, endpoint: &str) -> Result<Decided, Failure> {
        let connection = Connection::to(endpoint);
        let mut requester = connection.connect()?;
        let status = Status::from_json(&requester.ask("status", json!({}), connection.timeout())?)?;
        let Some(dim) = status.state_dim.map(|dim| dim as usize) else {
            return Err(Failure::usage(format!("{endpoint} has no rows yet")));
        };
        let critic = self.critic.as_deref();
        let of = status.critics.iter().find(|found| critic.is_none_or(|name| found.name == name));
        let actions = of.and_then(|found| found.actions.as_ref()).map(|of| of.names.clone()).unwrap_or_default();
        let states = read_states_as(&self.states, &Columns::default(), dim, "daemon's models")?;
        let mut found = json!({});
        for (k, part) in states.chunks(STATES_PER_REQUEST * dim).enumerate() {
            let rows: Vec<&[f64]> = part.chunks_exact(dim).collect();
            let first = self.step + (k * STATES_PER_REQUEST) as u64;
            let steps: Vec<u64> = (0..rows.len() as u64).map(|i| first + i).collect();
            let mut fields = json!({
                "states": rows,
                "seed": self.seed,
                "episodes": vec![self.episode; rows.len()],
                "steps": steps,
                "arrays": "list",
            });
            self.put_exploration(&mut fields);
            let reply = requester.ask("act", with_critic(fields, critic), connection.timeout())?;
            for (key, i) in KEYS.iter().flat_map(|key| (0..rows.len()).map(move |i| (key, i))) {
                push(&mut found, key, reply[key][i].clone());
            }
        }
        let names = (0..dim).map(state_name).collect();
        Ok(Decided { found, states, names, actions, categories: Categories::default() })
    }

    fn put_exploration(&self, fields: &mut Value) {
        let (word, number) = match self.exploration() {
            Exploration::Greedy => ("greedy", None),
            Exploration::EpsilonGreedy(epsilon) => ("epsilon_greedy", Some(("epsilon", epsilon))),
            Exploration::Softmax(temperature) => ("softmax", Some(("temperature", temperature))),
            Exploration::Ucb(beta) => ("ucb", Some(("beta", beta))),
            Exploration::Thompson => ("thompson", None),
        };
        fields["exploration"] = json!(word);
        if let Some((key, value)) = number {
            fields[key] = json!(value);
        }
        if let Some(limit) = self.unknown_above {
            fields["unknown_above"] = json!(limit);
        }
    }
}

/// Append a value to the list under a key.
fn push(found: &mut Value, key: &str, value: Value) {
    if let Value::Object(found) = found {
        let list = found.entry(key).or_insert_with(|| json!([]));
        list.as_array_mut().into_iter().for_each(|list| list.push(value.clone()));
    }
}

impl Decided {
    /// What an action is called, if it has a name.
    fn name(&self, action: &Value) -> Option<&String> {
        self.actions.get(action.as_f64()? as usize)
    }

    /// By [`KEYS`]; and where actions have names, these too.
    fn document(&self) -> Value {
        let mut document = self.found.clone();
        if !self.actions.is_empty() {
            let names: Vec<_> = self.found["actions"].as_array().into_iter().flatten().map(|a| self.name(a)).collect();
            document["action_names"] = json!(names);
        }
        document
    }

    fn text(&self) -> String {
        let shown = |value: &Value| value.as_f64().map_or_else(|| "-".to_owned(), number);
        let action = |value: &Value| match value {
            Value::Array(numbers) => numbers.iter().map(shown).collect::<Vec<_>>().join(" "),
            one => self.name(one).cloned().unwrap_or_else(|| shown(one)),
        };
        let unknown = self.found["unknown"].as_array().is_some_and(|flags| flags.contains(&json!(true)));
        let mut titles: Vec<&str> = self.names.iter().map(String::as_str).collect();
        titles.extend(["action", "Q", "std", "probability"]);
        titles.extend(unknown.then_some(""));
        let row = |(i, state): (usize, &[f64])| -> Vec<String> {
            let of = |key: &str| &self.found[key][i];
            let mut row: Vec<String> = state.iter().copied().map(number).collect();
            row.push(action(of("actions")));
            row.extend(["mean", "std", "probability"].map(|key| shown(of(key))));
            row.extend(unknown.then(|| if of("unknown") == &json!(true) { "unknown".into() } else { String::new() }));
            row
        };
        let mut rows: Vec<Vec<String>> = self.states.chunks_exact(self.names.len()).enumerate().map(row).collect();
        write_texts(&mut rows, &self.states, self.names.len(), &self.categories);
        columns(&titles, &rows)
    }
}

fn share(text: &str) -> Result<f64, String> {
    within(text, |v| (0.0..=1.0).contains(&v), "lies in [0, 1]")
}

fn not_negative(text: &str) -> Result<f64, String> {
    within(text, |v| v >= 0.0 && v.is_finite(), "must not be negative")
}
