//! `criticd plan`.

use super::Failure;
use super::actions::input_names;
use super::client::{Connection, daemon_named, with_critic};
use super::given::{self, TABLES, TableOptions};
use super::output::{Spinner, facts, in_file, note, number, output, print, print_json};
use super::world::{AskedOptions, LIVE_PATIENCE, Modelled, TableRows, expression, live_facts, texts};
use crate::learner::Settings;
use crate::learner::heads::{Columns, Head, Operand};
use crate::snapshot::Snapshot;
use crate::wire::{ArrayForm, bytes_of, encode_snapshot, head_list_from_str, heads_from_list, plan_to_json, to_json};
use crate::world::{Known, Names, Planned, Rewarded, WorldError};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Plan for a reward that need never have been observed: what would the robot do for it?
///
/// From the rows of a table the command learns where actions lead, then the best values of actions for the reward, and writes them as
/// a model as `fit` does: `act`, `value`, `plot` and `export --onnx` take it. Kernels are chosen by how well held-out chains are
/// predicted.
#[derive(Debug, clap::Args)]
#[command(
    after_help = format!(
        "Examples:\n  criticd plan log.csv --actions box --reward='-abs(angle) - 0.01*torque^2' --out q.model\n  criticd plan log.csv --actions discrete:3 --out q.model               for the reward that the rows have\n  criticd plan log.csv --actions discrete:2 --reward='(x > 0.7) - 0.1*(action > 0)' --discount 0.95 --out q.model --json\n  criticd act q.model states.csv\n\nThe reward of --reward is an expression of state variables and actions, by the names of their columns, or state_0, state[0], action, action_0, action[0]; or a column of the table, or a sum of columns. An expression is known exactly, also where it jumps; a column is learned from the rows. Or it is the name of a head, of the file of --heads or of the daemon: the reward is then what that head sums. There are + - * /, numbers, ^2, abs(), min(), max(), < and > (1 where that holds, else 0).\n\nActions that no row supports in a state are valued at the least that the reward allows. The command refuses a plan of which more than a fifth lies where no row was.\n\n{TABLES}"
    )
)]
pub(crate) struct PlanCommand {
    #[command(flatten)]
    table: TableOptions,
    /// Write the values of actions here (MessagePack, as `fit` writes it)
    #[arg(long, value_name = "MODEL", required_unless_present = "dry_run")]
    out: Option<PathBuf>,
    /// Discount, below 1 [default: 0.99, or the critic's of a daemon]
    #[arg(long, value_name = "G", value_parser = discount)]
    discount: Option<f64>,
    /// Heads as `fit` reads them: JSON, or TOML with [[heads]]. --reward may name one, and the reward is what that head sums
    #[arg(long, value_name = "FILE", requires = "reward")]
    heads: Option<PathBuf>,
    /// Plan by a model that is projected on the convex hull of its successors: it always comes to rest, also where the model makes
    /// mass of nothing. It has no values: what is printed and written is what the plan is worth by the model as it is
    #[arg(long, help_heading = "Model of the transition")]
    project: bool,
    #[command(flatten)]
    asked: AskedOptions,
}

/// A discount below 1 on the command line.
pub(super) fn discount(text: &str) -> Result<f64, String> {
    given::within(text, |v| (0.0..1.0).contains(&v), "a discount of 0 or more, below 1")
}

/// The reward that is planned for, and how it was asked for.
struct Wanted {
    text: String,
    of: Rewarded,
}

impl Wanted {
    fn new(text: &str, of: Rewarded) -> Self {
        Self { text: text.to_owned(), of }
    }
}

/// What was found.
struct PlanOutcome {
    wanted: Wanted,
    of: Modelled,
    planned: Planned,
}

impl PlanCommand {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        if let Some(endpoint) = daemon_named(&self.table.table) {
            return self.live(&endpoint);
        }
        self.asked.check_no_daemon()?;
        if self.asked.actions.is_none() && !self.table.dry_run {
            return Err(Failure::usage("--actions: say which actions there are, box or discrete:N"));
        }
        if self.table.dry(self.asked.json)? {
            return Ok(());
        }
        let inputs: Vec<&Path> = self.table.files().chain(self.heads.as_deref()).collect();
        let out = output(self.out.as_deref().unwrap_or(Path::new("")), &inputs)?;
        let (given, wanted) = self.read()?;
        let progress = Spinner::start("learning where actions lead");
        let of = self.asked.world.learn(&self.table.table, given, (true, false), self.asked.seed)?;
        let mut outcome = self.plan(of, wanted)?;
        self.call(&mut outcome)?;
        out.write(&encode_snapshot(&outcome.planned.snapshot, ArrayForm::Tensor, true))?;
        drop(progress);
        self.print(&outcome)
    }

    fn discount(&self) -> f64 {
        self.discount.unwrap_or(Settings::default().discount)
    }

    /// Ask a daemon.
    fn live(&self, endpoint: &str) -> Result<(), Failure> {
        self.asked.check_no_table(self.table.dry_run)?;
        if self.heads.is_some() {
            return Err(Failure::usage("--heads is for a table: a daemon knows its heads"));
        }
        if self.project {
            return Err(Failure::usage("--project is for a table: a daemon plans by its model as it is"));
        }
        let out = output(self.out.as_deref().unwrap_or(Path::new("")), &[])?;
        let mut fields = json!({});
        if let Some(reward) = self.table.reward() {
            fields["reward"] = json!(reward);
        }
        if let Some(discount) = self.discount {
            fields["discount"] = json!(discount);
        }
        let (connection, critic) = (Connection::to(endpoint), self.asked.critic.as_deref());
        let mut requester = connection.connect()?;
        let posted = requester.post("plan", with_critic(fields, critic))?;
        let reply = requester.reply(posted, LIVE_PATIENCE)?;
        let lacking = || Failure::usage(format!("{endpoint} answered without a plan"));
        out.write(bytes_of(&reply, "plan").ok_or_else(lacking)?)?;
        let mut document = to_json(&reply)?;
        if let Value::Object(map) = &mut document {
            map.retain(|key, _| !["v", "id", "ok", "plan"].contains(&key.as_str()));
        }
        self.tell(&document, live_facts(&document))
    }

    /// The rows, and the reward that is planned for.
    fn read(&mut self) -> Result<(TableRows, Wanted), Failure> {
        let Some(text) = self.table.take_reward() else {
            let given = self.given()?;
            if given.rows.rewards_per_row > 1 {
                return Err(in_file(
                    &self.table.table,
                    "a plan is for one reward, the table has several: see --reward",
                ));
            }
            return Ok((given, Wanted::new("the reward of the rows", Rewarded::Observed(0))));
        };
        if let Some(head) = self.head(&text)? {
            return self.summed(head);
        }
        // A known reward needs none of the rows.
        self.table.set_reward("0");
        let given = self.given()?;
        let called = self.table.action_names()?;
        let names = Names { states: &given.names, space: Some(&given.space), actions: &called };
        if let Some(reward) = expression("--reward", &text, &names)? {
            self.table.take_reward();
            return Ok((given, Wanted::new(&text, Rewarded::Known(reward))));
        }
        self.table.set_reward(&text);
        Ok((self.given()?, Wanted::new(&text, Rewarded::Observed(0))))
    }

    /// The head of the file `--heads` that has this name.
    fn head(&self, name: &str) -> Result<Option<Head>, Failure> {
        let Some(path) = &self.heads else { return Ok(None) };
        let text = std::fs::read_to_string(path).map_err(|e| in_file(path, e))?;
        let list = head_list_from_str(&text).and_then(|list| heads_from_list(list, self.discount()));
        Ok(list.map_err(|e| in_file(path, e))?.into_iter().find(|head| head.name == name))
    }

    /// The rows, and what a head sums as their reward: known everywhere where state and action say it, else learned from each row.
    fn summed(&mut self, Head { name, cumulant, .. }: Head) -> Result<(TableRows, Wanted), Failure> {
        if !cumulant.places().any(|place| matches!(place, Operand::Reward(_))) {
            self.table.set_reward("0");
        }
        let mut given = self.given()?;
        self.table.take_reward();
        let (states, rewards) = (given.rows.dim, given.rows.rewards_per_row);
        let columns = Columns { states, rewards, actions: given.space.numbers() };
        let wrong = |why| Failure::usage(format!("--reward: head {name}: {why}"));
        cumulant.check(columns).map_err(wrong)?;
        if cumulant.is_of_state_and_action() {
            return Ok((given, Wanted::new(&name, Rewarded::Summed(cumulant, states))));
        }
        let (rows, actions) = (&given.rows, &given.columns.actions);
        let of = |i: usize| {
            let number = |place| match place {
                Operand::State(index) => rows.state(i)[index],
                Operand::NextState(index) => rows.next_state(i)[index],
                Operand::Action(index) => actions.row(i).map_or(f64::NAN, |action| action[index]),
                Operand::Reward(column) => rows.reward(i)[column],
            };
            cumulant.by(&number).unwrap_or(f64::NAN)
        };
        let summed: Vec<f64> = (0..rows.len()).map(of).collect();
        if let Some(i) = summed.iter().position(|value| !value.is_finite()) {
            let message = format!("transition {}, head {name}: sums {} there", i + 1, summed[i]);
            return Err(in_file(&self.table.table, message));
        }
        (given.rows.rewards, given.rows.rewards_per_row) = (summed, 1);
        Ok((given, Wanted::new(&name, Rewarded::Observed(0))))
    }

    /// The rows. The codes of their texts are the model's.
    fn given(&mut self) -> Result<TableRows, Failure> {
        let table = self.table.read()?;
        self.table.take_categories(table.categories());
        TableRows::of(&self.table, table, self.asked.actions, Some(self.discount()))
    }

    fn plan(&self, of: Modelled, wanted: Wanted) -> Result<PlanOutcome, Failure> {
        let known = of.known();
        let starts = of.states_of(&of.starts());
        let value = |numbers: &[f64]| wanted.of.value(numbers);
        let plan = if self.project { Known::plan_on_hull } else { Known::plan };
        let planned = plan(&known, wanted.of.wanted(&value), self.discount(), &starts).map_err(|e| match e {
            WorldError::Reward(_) => Failure::usage(format!("--reward: {e}")),
            e => in_file(&self.table.table, e),
        })?;
        Ok(PlanOutcome { wanted, of, planned })
    }

    /// Let the model that is written say what its numbers are.
    fn call(&self, PlanOutcome { wanted, of, planned }: &mut PlanOutcome) -> Result<(), Failure> {
        let snapshot: &mut Snapshot = &mut planned.snapshot;
        snapshot.inputs.names = input_names(
            Some(of.table.names.clone()),
            of.table.rows.dim,
            &of.table.space,
            of.table.categories.of(of.table.rows.dim),
        );
        let none = if planned.value.is_none() { " (ranks of actions, no values)" } else { "" };
        snapshot.reward_names = vec![wanted.text.chars().take(64 - none.len()).collect::<String>() + none];
        (snapshot.offset, snapshot.transitions) = (of.table.rows.len() as u64, of.table.rows.len() as u64);
        snapshot.time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        snapshot.table = self.table.mapping()?.to_text();
        Ok(())
    }

    fn print(&self, PlanOutcome { wanted, of, planned }: &PlanOutcome) -> Result<(), Failure> {
        let mut document = plan_to_json(planned, (&wanted.text, wanted.of.is_known()), self.discount());
        document["projected"] = json!(self.project);
        document["model"] = of.document();
        self.tell(&document, of.facts())
    }

    /// Print what was found, and what it was made of.
    fn tell(&self, document: &Value, of: Vec<(String, String)>) -> Result<(), Failure> {
        texts(&document["warnings"]).iter().for_each(|doubt| note(doubt));
        if self.asked.json {
            return print_json(document);
        }
        let told = |key: &str| document[key].as_f64();
        let deviation = told("error").map_or_else(String::new, |error| format!(" +- {}", number(error)));
        let known = if document["known"] == true { "known everywhere" } else { "learned from the rows" };
        let reward = document["reward"].as_str().unwrap_or_default();
        let projected = if self.project { ", of this plan by the model that is not projected" } else { "" };
        let value = told("value").map_or_else(
            || "none: the projected model has no values, and the model as it is has none of this plan".to_owned(),
            |value| format!("{}{deviation}, discount {}{projected}", number(value), document["discount"]),
        );
        let alike = 100.0 * told("alike").unwrap_or(0.0);
        let unsupported = told("unsupported").map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        let clipped = format!("{} of {} values at a bound", document["clipped"], document["model"]["successors"]);
        let mut lines = vec![("planned for".to_owned(), format!("{reward} ({known})"))];
        lines.extend(of);
        lines.extend([
            ("value at the starts".to_owned(), value),
            ("sweeps".to_owned(), format!("{}, {clipped}", document["sweeps"])),
            ("without support".to_owned(), format!("{unsupported} of what follows from the starts")),
            ("the written model".to_owned(), format!("prefers the plan's action in {alike:.0} % of the states")),
        ]);
        let out = self.out.as_deref().unwrap_or(Path::new("")).display().to_string();
        print(&format!("{}\nNext: criticd act {out} STATES.csv\n", facts(&lines)))
    }
}
