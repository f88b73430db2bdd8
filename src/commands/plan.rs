//! `criticd plan`.

use super::Failure;
use super::actions::input_names;
use super::given::{self, TABLES, TableOptions};
use super::output::{Progress, facts, in_file, note, number, output, print, print_json};
use super::world::reward::Reward;
use super::world::{AskedOptions, Given, Modelled};
use crate::learner::Settings;
use crate::learner::action::first_largest;
use crate::math::dense::Matrix;
use crate::snapshot::{Ask, Snapshot};
use crate::wire::{ArrayForm, encode_snapshot};
use crate::world::{Evaluation, Plan as Found, Planning, Table, UNSUPPORTED_ABOVE, UNSUPPORTED_MAX, WorldError};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// States of rows, at most, at which a known reward is put into the model that is written, and this is compared with the plan.
const STATES_MAX: usize = 1000;
/// Ridge of the least squares by which a known reward is put into it.
const RIDGE: f64 = 1e-3;
/// Share of the states in which the written model may prefer another action than the plan before that is told.
const ALIKE_MIN: f64 = 0.9;
/// Values as near as this part of their range are equal.
const EQUAL: f64 = 0.01;

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
    Known(Reward),
    /// The reward of the rows.
    Observed(String),
}

impl Wanted {
    /// Its number among the rewards of a row, where it is one.
    fn observed(&self) -> Option<usize> {
        match self {
            Self::Known(_) => None,
            Self::Observed(_) => Some(0),
        }
    }

    /// Its values at the entries of a table of `inputs`.
    fn at(&self, of: &Modelled, inputs: &[f64], table: &Table) -> Vec<f64> {
        match self {
            Self::Known(reward) => known(reward, of, inputs),
            Self::Observed(_) => table.rewards().col(0).to_vec(),
        }
    }

    fn text(&self) -> &str {
        match self {
            Self::Known(reward) => &reward.text,
            Self::Observed(text) => text,
        }
    }
}

/// A known reward at inputs of Q.
fn known(reward: &Reward, of: &Modelled, inputs: &[f64]) -> Vec<f64> {
    let dim = of.rows.dim;
    let value = |input: &[f64]| {
        let (state, action) = input.split_at(dim);
        reward.value(&[state, &of.space.action_of(action)].concat())
    };
    inputs.chunks_exact(dim + of.space.width()).map(value).collect()
}

/// What was found.
struct Outcome {
    wanted: Wanted,
    of: Modelled,
    found: Found,
    /// Under the actions that are preferred; none where the system has no values.
    evaluation: Option<Evaluation>,
    /// Mean over the starts of the best action's value, and its deviation.
    value: f64,
    error: Option<f64>,
    /// Share of the mass from the starts that no row supports.
    unsupported: Option<f64>,
    /// Share of states in which the written model prefers the plan's action, or one as good.
    alike: f64,
    doubts: Vec<String>,
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
        let (snapshot, outcome) = self.plan(of, wanted)?;
        out.write(&encode_snapshot(&snapshot, ArrayForm::Tensor, true))?;
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
        if let Some(reward) = Reward::parse("--reward", &text, &given.names, (Some(&given.space), &called))? {
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

    /// The plan, and the model that is written.
    fn plan(&self, of: Modelled, wanted: Wanted) -> Result<(Snapshot, Outcome), Failure> {
        let fault = |e: WorldError| in_file(&self.table.table, e);
        let dynamics = &of.dynamics;
        let candidates = of.space.candidates();
        let with = |states: &[f64]| pairs(states, of.rows.dim, &candidates, of.space.width());
        let choices = candidates.len() / of.space.width();
        let at_states = with(&dynamics.after().states());
        let at_c = dynamics.entries(&at_states, choices).map_err(fault)?;
        let rewards = wanted.at(&of, &at_states, &at_c);
        if let Some(wrong) = rewards.iter().find(|reward| !reward.is_finite()) {
            return Err(Failure::usage(format!("--reward: is {wrong} in a state of the table")));
        }
        let planning = Planning {
            rewards: &rewards,
            discount: self.discount,
            bounds: None,
            unsupported_above: Some(UNSUPPORTED_ABOVE),
        };
        let found = at_c.plan(&planning).map_err(fault)?;
        let greedy = Found::policy(choices, &found.action_values(&at_c, &rewards).map_err(fault)?);
        let starts = of.starts();
        let from = with(&of.states_of(&starts));
        let at_starts = dynamics.entries(&from, choices).map_err(fault)?;
        let q = found.action_values(&at_starts, &wanted.at(&of, &from, &at_starts)).map_err(fault)?;
        let (first, n) = (Found::policy(choices, &q), starts.len() as f64);
        let value = q.iter().zip(&first).map(|(q, p)| q * p).sum::<f64>() / n;
        let column = Matrix::from_columns(rewards.len(), 1, rewards.clone());
        let mut doubts = Vec::new();
        let evaluation = match at_c.evaluate(&greedy, &column, self.discount) {
            Ok(evaluation) => Some(evaluation),
            Err(why @ WorldError::Unstable { .. }) => {
                doubts.push(format!("{why}; the plan stands within its bounds, and the model has no deviations"));
                None
            }
            Err(why) => return Err(fault(why)),
        };
        let mut unsupported = None;
        if let Some(evaluation) = &evaluation {
            doubts.extend(Modelled::doubt(evaluation));
            let limits = (UNSUPPORTED_ABOVE, UNSUPPORTED_MAX);
            unsupported = Some(at_c.support(&greedy, (&at_starts, &first), self.discount, limits).map_err(fault)?);
        }
        if !found.settled() {
            doubts.push(format!("the sweeps did not come to rest (change {:.1e}): doubt the values", found.change));
        }
        let (snapshot, error) = self.snapshot(&of, &wanted, &found, evaluation.as_ref(), (&at_starts, &first))?;
        let alike = alike(&of, &wanted, &found, &snapshot).map_err(fault)?;
        if alike < ALIKE_MIN {
            doubts.push(format!(
                "the written model prefers the plan's action in {:.0} % of the states: the reward jumps, or actions hardly differ; \
                 more --model-elements mend the first",
                100.0 * alike
            ));
        }
        let outcome = Outcome { wanted, of, found, evaluation, value, error, unsupported, alike, doubts };
        Ok((snapshot, outcome))
    }

    /// The values of actions as they are written, and the deviation of the value at the starts.
    fn snapshot(
        &self,
        of: &Modelled,
        wanted: &Wanted,
        found: &Found,
        evaluation: Option<&Evaluation>,
        (at_starts, first): (&Table, &[f64]),
    ) -> Result<(Snapshot, Option<f64>), Failure> {
        let fault = |e: WorldError| in_file(&self.table.table, e);
        let dynamics = &of.dynamics;
        let mut weights = dynamics.weights(&found.values, self.discount, wanted.observed());
        if let Wanted::Known(reward) = wanted {
            let inputs = supported(of, &some(of))?;
            let added = dynamics.nearest(&inputs, &known(reward, of, &inputs), RIDGE).map_err(fault)?;
            weights.iter_mut().zip(added).for_each(|(weight, more)| *weight += more);
        }
        let range = found.bounds.1 - found.bounds.0;
        let ridge = of.choice.widths.ridge;
        let mut error = None;
        let spread = match evaluation {
            Some(evaluation) => {
                // Noise over signal is the ridge; without noise something is left open all the same.
                let prior = |square: f64| (square / ridge).max((1e-6 * range).powi(2)).max(f64::MIN_POSITIVE);
                let observed = wanted.observed();
                let (signal, covariance) =
                    evaluation.covariance(dynamics, &of.transitions(), (0, observed), prior).map_err(fault)?;
                let pooled: Vec<f64> = first.iter().map(|p| p / at_starts.states() as f64).collect();
                let at = (&at_starts.pooled(), &pooled[..]);
                let mut deviation = evaluation.deviation(dynamics, at, 0, observed).map_err(fault)?;
                deviation.add(&of.transitions());
                error = Some(deviation.variance(signal)[0].sqrt());
                Some((signal, covariance))
            }
            None => None,
        };
        let spread = spread.as_ref().map(|(signal, covariance)| (*signal, covariance));
        let mut snapshot = dynamics.snapshot(&of.space, &weights, spread, self.discount);
        snapshot.inputs.names =
            input_names(Some(of.names.clone()), of.rows.dim, &of.space, of.categories.of(of.rows.dim));
        snapshot.reward_names = vec![wanted.text().chars().take(64).collect()];
        let rows = of.rows.len() as u64;
        let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |d| d.as_secs_f64());
        let table = self.table.mapping()?.to_text();
        Ok((Snapshot { offset: rows, transitions: rows, time, table, ..snapshot }, error))
    }

    fn print(&self, outcome: &Outcome) -> Result<(), Failure> {
        outcome.doubts.iter().for_each(|doubt| note(doubt));
        let Outcome { wanted, of, found, evaluation, value, error, unsupported, alike, .. } = outcome;
        if self.asked.json {
            return print_json(&json!({
                "reward": wanted.text(),
                "known": wanted.observed().is_none(),
                "discount": self.discount,
                "value": value,
                "error": error,
                "bounds": [found.bounds.0, found.bounds.1],
                "sweeps": found.sweeps,
                "settled": found.settled(),
                "clipped": found.clipped,
                "radius": evaluation.as_ref().map(Evaluation::radius),
                "unsupported": unsupported,
                "alike": alike,
                "warnings": outcome.doubts,
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
                format!("{}, {} of {} values at a bound", found.sweeps, found.clipped, found.values.len()),
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

/// Inputs of Q: each state with each candidate.
fn pairs(states: &[f64], dim: usize, candidates: &[f64], width: usize) -> Vec<f64> {
    let of = |state: &[f64]| candidates.chunks_exact(width).flat_map(|action| [state, action].concat()).collect();
    states.chunks_exact(dim).flat_map(|state: &[f64]| -> Vec<f64> { of(state) }).collect()
}

/// Numbers of some rows, spread over all of them.
fn some(of: &Modelled) -> Vec<usize> {
    let n = of.rows.len();
    (0..n).step_by(n.div_ceil(STATES_MAX).max(1)).collect()
}

/// The states of rows with all candidates that rows support there.
fn supported(of: &Modelled, places: &[usize]) -> Result<Vec<f64>, Failure> {
    let (candidates, width, dim) = (of.space.candidates(), of.space.width(), of.rows.dim);
    let inputs = pairs(&of.states_of(places), dim, &candidates, width);
    let table = of.dynamics.entries(&inputs, candidates.len() / width)?;
    let far: Vec<bool> = table.unsupported(UNSUPPORTED_ABOVE).collect();
    let kept = inputs.chunks_exact(dim + width).zip(&far).filter(|(_, far)| !**far);
    let kept: Vec<f64> = kept.flat_map(|(input, _)| input.to_vec()).collect();
    Ok(if kept.is_empty() { inputs } else { kept })
}

/// Share of the states of rows in which the written model prefers an action that is as good by the plan.
fn alike(of: &Modelled, wanted: &Wanted, found: &Found, snapshot: &Snapshot) -> Result<f64, WorldError> {
    let (candidates, width) = (of.space.candidates(), of.space.width());
    let choices = candidates.len() / width;
    let inputs = pairs(&of.states_of(&some(of)), of.rows.dim, &candidates, width);
    let table = of.dynamics.entries(&inputs, choices)?;
    let planned = found.action_values(&table, &wanted.at(of, &inputs, &table))?;
    let Ok(written) = snapshot.evaluate(&inputs, Ask::MEAN) else { return Ok(0.0) };
    let (mut same, mut all) = (0.0, 0.0);
    for (planned, written) in planned.chunks_exact(choices).zip(written.mean.as_slice().chunks_exact(choices)) {
        let best = planned[first_largest(planned)];
        let least = planned.iter().copied().fold(best, f64::min);
        same += f64::from(u8::from(best - planned[first_largest(written)] <= EQUAL * (best - least)));
        all += 1.0;
    }
    Ok(same / all)
}
