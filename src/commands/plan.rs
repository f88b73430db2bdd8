//! `criticd plan`.

use super::Failure;
use super::actions::input_names;
use super::given::{self, TABLES, TableOptions};
use super::output::{Progress, facts, in_file, note, number, output, print, print_json};
use super::world::{AskedOptions, Given, Modelled, expression};
use crate::learner::Settings;
use crate::snapshot::Snapshot;
use crate::wire::{ArrayForm, encode_snapshot};
use crate::world::{Expression, Names, Planned, Wanted as Reward, WorldError};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// Plan for a reward that need never have been observed: what would the robot do for it?
///
/// From the rows of a table the command learns where actions lead, then the best values of actions for the reward, and writes them as
/// a model like those of `fit`: `act`, `value`, `plot` and `export --onnx` take it. Kernels are chosen by how well held-out chains are
/// predicted.
#[derive(Debug, clap::Args)]
#[command(
    mut_arg("actions", |actions| actions.required_unless_present("dry_run")),
    after_help = format!(
        "Examples:\n  criticd plan log.csv --actions box --reward='-abs(angle) - 0.01*torque^2' --out q.model\n  criticd plan log.csv --actions discrete:3 --out q.model               for the reward that the rows have\n  criticd plan log.csv --actions discrete:2 --reward='(x > 0.7) - 0.1*(action > 0)' --discount 0.95 --out q.model --json\n  criticd act q.model states.csv\n\nThe reward of --reward is an expression of state variables and actions, by the names of their columns, or state_0, state[0], action, action_0, action[0]; or a column of the table, or a sum of columns. An expression is known exactly, also where it jumps; a column is learned from the rows. There are + - * /, numbers, ^2, abs(), min(), max(), < and > (1 where that holds, else 0).\n\nActions that no row supports in a state are valued at the least that the reward allows. The command refuses a plan of which more than a fifth lies where no row was.\n\n{TABLES}"
    )
)]
pub(crate) struct Plan {
    #[command(flatten)]
    table: TableOptions,
    /// Write the values of actions here (MessagePack, as `fit` writes it)
    #[arg(long, value_name = "MODEL", required_unless_present = "dry_run")]
    out: Option<PathBuf>,
    /// Discount, below 1
    #[arg(long, value_name = "G", default_value_t = Settings::default().discount, value_parser = discount)]
    discount: f64,
    #[command(flatten)]
    asked: AskedOptions,
}

/// A discount below 1 on the command line.
pub(super) fn discount(text: &str) -> Result<f64, String> {
    given::within(text, |v| (0.0..1.0).contains(&v), "a discount of 0 or more, below 1")
}

/// The reward that is planned for.
enum Wanted {
    /// An expression, known everywhere.
    Known(Expression),
    /// The reward of the rows.
    Observed(String),
}

impl Wanted {
    fn text(&self) -> &str {
        match self {
            Self::Known(reward) => &reward.text,
            Self::Observed(text) => text,
        }
    }
}

/// What was found.
struct Outcome {
    wanted: Wanted,
    of: Modelled,
    planned: Planned,
}

impl Plan {
    pub(crate) fn run(mut self) -> Result<(), Failure> {
        if self.table.dry(self.asked.json)? {
            return Ok(());
        }
        let inputs: Vec<&Path> = self.table.files().collect();
        let out = output(self.out.as_deref().unwrap_or(Path::new("")), &inputs)?;
        let (given, wanted) = self.read()?;
        let progress = Progress::start("learning where actions lead");
        let of = self.asked.world.learn(&self.table.table, given, (true, false), self.asked.seed)?;
        let mut outcome = self.plan(of, wanted)?;
        self.call(&mut outcome)?;
        out.write(&encode_snapshot(&outcome.planned.snapshot, ArrayForm::Tensor, true))?;
        drop(progress);
        self.print(&outcome)
    }

    /// The rows, and the reward that is planned for.
    fn read(&mut self) -> Result<(Given, Wanted), Failure> {
        let Some(text) = self.table.take_reward() else {
            let given = self.given()?;
            if given.rows.rewards_per_row > 1 {
                return Err(in_file(
                    &self.table.table,
                    "a plan is for one reward, the table has several: see --reward",
                ));
            }
            return Ok((given, Wanted::Observed("the reward of the rows".to_owned())));
        };
        // A known reward needs none of the rows.
        self.table.set_reward("0");
        let given = self.given()?;
        let called = self.table.action_names()?;
        let names = Names { states: &given.names, space: Some(&given.space), actions: &called };
        if let Some(reward) = expression("--reward", &text, &names)? {
            self.table.take_reward();
            return Ok((given, Wanted::Known(reward)));
        }
        self.table.set_reward(&text);
        Ok((self.given()?, Wanted::Observed(text)))
    }

    /// The rows. The codes of their texts are the model's.
    fn given(&mut self) -> Result<Given, Failure> {
        let table = self.table.read()?;
        self.table.take_categories(table.categories());
        Given::of(&self.table, table, self.asked.actions, Some(self.discount))
    }

    fn plan(&self, of: Modelled, wanted: Wanted) -> Result<Outcome, Failure> {
        let known = of.known();
        let starts = of.states_of(&of.starts());
        let value = |numbers: &[f64]| match &wanted {
            Wanted::Known(reward) => reward.value(numbers),
            Wanted::Observed(_) => 0.0,
        };
        let reward = match &wanted {
            Wanted::Known(_) => Reward::Known(&value),
            Wanted::Observed(_) => Reward::Observed(0),
        };
        let planned = known.plan(reward, self.discount, &starts).map_err(|e| match e {
            WorldError::Reward(_) => Failure::usage(format!("--reward: {e}")),
            e => in_file(&self.table.table, e),
        })?;
        Ok(Outcome { wanted, of, planned })
    }

    /// Let the model that is written say what its numbers are.
    fn call(&self, Outcome { wanted, of, planned }: &mut Outcome) -> Result<(), Failure> {
        let snapshot: &mut Snapshot = &mut planned.snapshot;
        snapshot.inputs.names =
            input_names(Some(of.names.clone()), of.rows.dim, &of.space, of.categories.of(of.rows.dim));
        snapshot.reward_names = vec![wanted.text().chars().take(64).collect()];
        (snapshot.offset, snapshot.transitions) = (of.rows.len() as u64, of.rows.len() as u64);
        snapshot.time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        snapshot.table = self.table.mapping()?.to_text();
        Ok(())
    }

    fn print(&self, outcome: &Outcome) -> Result<(), Failure> {
        let Outcome { wanted, of, planned } = outcome;
        let Planned { plan, value, error, radius, unsupported, alike, doubts, .. } = planned;
        doubts.iter().for_each(|doubt| note(doubt));
        if self.asked.json {
            return print_json(&json!({
                "reward": wanted.text(),
                "known": matches!(wanted, Wanted::Known(_)),
                "discount": self.discount,
                "value": value,
                "error": error,
                "bounds": [plan.bounds.0, plan.bounds.1],
                "sweeps": plan.sweeps,
                "settled": plan.settled(),
                "clipped": plan.clipped,
                "radius": radius,
                "unsupported": unsupported,
                "alike": alike,
                "warnings": doubts,
                "model": of.document(),
            }));
        }
        let deviation = error.map_or_else(String::new, |error| format!(" +- {}", number(error)));
        let share =
            |share: &Option<f64>| share.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", 100.0 * share));
        let mut lines = vec![(
            "planned for".to_owned(),
            match wanted {
                Wanted::Known(_) => format!("{} (known everywhere)", wanted.text()),
                Wanted::Observed(_) => format!("{} (learned from the rows)", wanted.text()),
            },
        )];
        lines.extend(of.facts());
        lines.extend([
            ("value at the starts".to_owned(), format!("{}{deviation}, discount {}", number(*value), self.discount)),
            (
                "sweeps".to_owned(),
                format!("{}, {} of {} values at a bound", plan.sweeps, plan.clipped, plan.values.len()),
            ),
            ("without support".to_owned(), format!("{} of what follows from the starts", share(unsupported))),
            (
                "the written model".to_owned(),
                format!("prefers the plan's action in {:.0} % of the states", 100.0 * alike),
            ),
        ]);
        let out = self.out.as_deref().unwrap_or(Path::new("")).display().to_string();
        print(&format!("{}\nNext: criticd act {out} STATES.csv\n", facts(&lines)))
    }
}
