//! The demos that act: from nothing to solved, one episode after the other.
//!
//! The agent is a client like any other. It asks the daemon for its newest model of Q, acts by it for an episode, and sends the
//! rows. Then it waits until the daemon has improved on them.

use super::place::DemoDaemon;
use super::report::grouped;
use super::{CONNECT, Failure};
use crate::client::{ClientError, Requester};
use crate::config::Config;
use crate::learner::act::{Actor, Exploration, Question};
use crate::learner::action::{ActionValue, Successor, Trace};
use crate::learner::random::{mix, uniform};
use crate::learner::{DriftSensitivity, Lambda, Settings};
use crate::picture::{Axis, Figure, Heatmap, Panel};
use crate::sim::tasks::{CartPole, Swingup, Task};
use crate::snapshot::{Evaluator, Snapshot};
use crate::transition::{Batch, BatchParts};
use crate::whole_file::OwnDirectory;
use serde_json::{Value, json};
use std::f64::consts::PI;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long the daemon may take to improve after an episode.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often the agent looks whether it has.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);
/// Episodes whose mean return says whether the task is solved.
const MEAN_OF: usize = 10;
/// Cells of a picture.
const COLUMNS: usize = 90;
const CELLS_DOWN: usize = 75;
/// Longest bar of a return.
const BAR: usize = 40;

/// The task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acted {
    Swingup,
    Cartpole,
}

/// The result of a demo.
pub(super) struct DemoResult {
    task: Acted,
    /// Return of each episode.
    returns: Vec<f64>,
    rows: u64,
    seconds: f64,
    snapshot: Snapshot,
}

impl Acted {
    fn task(self) -> Box<dyn Task> {
        match self {
            Self::Swingup => Box::new(Swingup::default()),
            Self::Cartpole => Box::new(CartPole::default()),
        }
    }

    fn discount(self) -> f64 {
        match self {
            Self::Swingup => 0.97,
            Self::Cartpole => 0.995,
        }
    }

    /// Mean return at which the task counts as solved, and the range of returns that bars show.
    fn goal(self) -> (f64, [f64; 2]) {
        match self {
            Self::Swingup => (-200.0, [-1700.0, 0.0]),
            Self::Cartpole => (475.0, [0.0, 500.0]),
        }
    }

    /// Episodes without a solution after which the demo ends.
    fn episodes_max(self) -> usize {
        match self {
            Self::Swingup => 60,
            Self::Cartpole => 100,
        }
    }

    /// File of the picture, if none is named.
    pub(super) fn picture(self) -> PathBuf {
        format!("criticd-demo-{}.png", self.task().name()).into()
    }

    /// Axes of the picture.
    fn plane(self) -> (Axis, Axis) {
        match self {
            Self::Swingup => {
                (Axis::angle("angle φ [rad], 0 is upright", -PI, PI), Axis::new("speed φ' [rad/s]", -8.0, 8.0))
            }
            Self::Cartpole => (Axis::new("angle [rad]", -0.2, 0.2), Axis::new("turning [rad/s]", -2.0, 2.0)),
        }
    }

    /// The state at a point of it.
    fn state(self, [x, y]: [f64; 2]) -> Vec<f64> {
        match self {
            Self::Swingup => vec![x.cos(), x.sin(), y],
            Self::Cartpole => vec![0.0, 0.0, x, y],
        }
    }
}

/// Settings of the daemon: an agent's rows are few, so the daemon refits and improves early and often.
fn config(task: &dyn Task, of: Acted, directory: &Path, set: Vec<String>) -> Result<Config, Failure> {
    let names: Vec<String> = task.state_names().iter().map(ToString::to_string).collect();
    let critic = Settings {
        discount: of.discount(),
        action_value: Some(ActionValue { space: task.space(), successor: Successor::Improve, trace: Trace::OnPolicy }),
        lambda: Lambda::Fixed(0.0),
        drift_sensitivity: DriftSensitivity::Off,
        improve_rows: 20,
        dictionary_max: 300,
        refit_first_rows: 128,
        refit_growth: 1.5,
        refit_budget_s: 3.0,
        ..Settings::default()
    };
    super::with_options(super::parts(directory, names, critic), directory, set)
}

/// A daemon of its own for the task.
pub(super) fn place(of: Acted, set: Vec<String>) -> Result<DemoDaemon, Failure> {
    let directory = OwnDirectory::within(&std::env::temp_dir())?;
    let config = config(&*of.task(), of, directory.path(), set)?;
    DemoDaemon::start(config, directory)
}

/// Act and learn until the task is solved, for at most `seconds` if there is such a limit; `say` gets a line for each episode.
pub(super) fn run(
    of: Acted,
    place: &DemoDaemon,
    seconds: Option<u64>,
    interrupted: &AtomicBool,
    say: &dyn Fn(&str),
) -> Result<DemoResult, Failure> {
    let mut requester = Requester::connect(&place.endpoints.control.to_string(), CONNECT)?;
    let mut task = of.task();
    let (started, mut returns, mut rows): (_, Vec<f64>, u64) = (Instant::now(), Vec::new(), 0);
    let goes_on = || !interrupted.load(Ordering::Relaxed) && seconds.is_none_or(|s| started.elapsed().as_secs() < s);
    while returns.len() < of.episodes_max() && goes_on() {
        let actor = actor(&mut requester, &place.critic)?;
        let batch = episode(&mut *task, actor.as_ref(), returns.len() as u64, rows)?;
        rows += batch.len() as u64;
        returns.push((0..batch.len()).map(|i| batch.reward(i)[0]).sum());
        let sent = requester.post_append(&batch)?;
        requester.reply(sent, PATIENCE)?;
        wait(&mut requester, rows)?;
        say(&line(of, &returns, started.elapsed()));
        if returns.len() >= MEAN_OF && mean(&returns) >= of.goal().0 {
            break;
        }
    }
    let Some(snapshot) = newest(&mut requester, &place.critic)? else {
        return Err(Failure::usage(format!("{rows} rows are too few for a first model: let it act for longer")));
    };
    Ok(DemoResult { task: of, returns, rows, seconds: started.elapsed().as_secs_f64(), snapshot })
}

/// The newest model; none before the first.
fn newest(requester: &mut Requester, critic: &str) -> Result<Option<Snapshot>, Failure> {
    match requester.snapshot(Some(critic), CONNECT) {
        Ok(snapshot) => Ok(Some(snapshot)),
        Err(ClientError::Refused(refusal)) if refusal.code == "not_ready" => Ok(None),
        Err(e) => Err(e.into()),
    }
}

fn actor(requester: &mut Requester, critic: &str) -> Result<Option<Actor>, Failure> {
    let found = newest(requester, critic)?.map(|snapshot| Actor::new(Evaluator::new(snapshot)));
    found.transpose().map_err(|e| Failure::new(e.to_string()))
}

/// One episode: without an actor at random.
fn episode(task: &mut dyn Task, actor: Option<&Actor>, number: u64, first_seq: u64) -> Result<Batch, Failure> {
    let space = task.space();
    let (candidates, width) = (space.candidates(), space.width());
    // From 0.1 to 0.01 within 25 episodes.
    let exploration = Exploration::EpsilonGreedy(0.1 - 0.09 * (number as f64 / 25.0).min(1.0));
    let mut state = task.start(mix(&[number, 77]));
    let mut parts = BatchParts {
        stream: "agent".into(),
        session: "demo".into(),
        seq: Some(first_seq),
        dim: state.len(),
        rewards_per_row: 1,
        ..BatchParts::default()
    };
    let (mut next, mut actions, mut terminated, mut truncated) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    loop {
        let step = parts.rewards.len() as u64;
        let action = match actor {
            Some(actor) => {
                let question = Question {
                    state: &state,
                    exploration,
                    seed: 0,
                    episode: number,
                    step,
                    candidates: None,
                    unknown_above: None,
                };
                actor.act(&question).map_err(|e| Failure::new(e.to_string()))?.action
            }
            None => {
                let at = (uniform(mix(&[number, step])) * (candidates.len() / width) as f64) as usize;
                space.action_of(&candidates[at * width..(at + 1) * width])
            }
        };
        let found = task.step(&action);
        parts.states.extend(state);
        parts.rewards.push(found.reward);
        actions.extend(action);
        next.extend_from_slice(&found.state);
        terminated.push(found.terminated);
        truncated.push(found.truncated);
        state = found.state;
        if found.terminated || found.truncated {
            break;
        }
    }
    (parts.next_states, parts.actions) = (Some(next), Some(actions));
    (parts.terminated, parts.truncated) = (Some(terminated), Some(truncated));
    Batch::new(parts).map_err(|e| Failure::new(e.to_string()))
}

/// Wait until `rows` rows are learned and nothing is due.
fn wait(requester: &mut Requester, rows: u64) -> Result<(), Failure> {
    let started = Instant::now();
    let mut quiet = 0;
    // Twice, so that answers come from the model that was adopted last.
    while quiet < 2 && started.elapsed() < PATIENCE {
        let status = requester.status(CONNECT)?;
        let rests = status
            .critics
            .first()
            .is_some_and(|critic| critic.learned >= rows && !critic.refit.running && !critic.refit.due);
        quiet = if rests { quiet + 1 } else { 0 };
        std::thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}

/// Mean of the last returns.
fn mean(returns: &[f64]) -> f64 {
    let last = &returns[returns.len().saturating_sub(MEAN_OF)..];
    last.iter().sum::<f64>() / last.len() as f64
}

/// A line about the last episode.
fn line(of: Acted, returns: &[f64], elapsed: Duration) -> String {
    let (_, [low, high]) = of.goal();
    let last = returns[returns.len() - 1];
    let share = ((last - low) / (high - low)).clamp(0.0, 1.0);
    format!(
        "episode {:>3}  {:6.1} s  return {last:8.1}  mean of {:>2} {:8.1}  {}",
        returns.len(),
        elapsed.as_secs_f64(),
        returns.len().min(MEAN_OF),
        mean(returns),
        "█".repeat((share * BAR as f64).round() as usize)
    )
}

impl DemoResult {
    /// When the mean return reached the goal: number of the episode.
    fn solved(&self) -> Option<usize> {
        let goal = self.task.goal().0;
        (MEAN_OF..=self.returns.len()).find(|&k| mean(&self.returns[..k]) >= goal)
    }

    pub(super) fn json(&self) -> Value {
        json!({
            "world": self.task.task().name(),
            "episodes": self.returns.len(),
            "solved_after": self.solved(),
            "returns": self.returns,
            "rows": self.rows,
            "seconds": self.seconds,
            "discount": self.snapshot.discount,
            "generation": self.snapshot.generation,
            "dictionary": self.snapshot.dictionary.nrows(),
        })
    }

    /// What was shown, in one sentence.
    pub(super) fn sentence(&self) -> String {
        let name = self.task.task().name();
        let (goal, _) = self.task.goal();
        let (rows, episodes) = (grouped(self.rows), self.returns.len());
        match self.solved() {
            Some(k) => format!(
                "From nothing but {rows} rows of its own, the agent solved {name} in {k} episodes: the last {MEAN_OF} returned {:.0} on \
                 average, where {goal:.0} are asked for.",
                mean(&self.returns[..k])
            ),
            None => format!(
                "In {rows} rows and {episodes} episodes of its own the agent has not solved {name}: the last {} returned {:.0} on \
                 average, where {goal:.0} are asked for.",
                episodes.min(MEAN_OF),
                mean(&self.returns)
            ),
        }
    }

    pub(super) fn text(&self) -> String {
        let (name, dictionary) = (self.task.task().name(), self.snapshot.dictionary.nrows());
        let (seconds, generation) = (self.seconds, self.snapshot.generation);
        format!(
            "\n{name}: {seconds:.0} s, model {generation} with {dictionary} states and actions in its dictionary\n{}\n",
            self.sentence()
        )
    }

    /// The largest Q, and the action that has it, over two of the state's variables.
    pub(super) fn figure(&self) -> Result<Figure, Failure> {
        let refused = |e: crate::transition::Invalid| Failure::new(e.to_string());
        let actor = Actor::new(Evaluator::new(self.snapshot.clone())).map_err(refused)?;
        let (x, y) = self.task.plane();
        let (mut values, mut actions) = (Vec::new(), Vec::new());
        for at in Heatmap::centres(&x, &y, COLUMNS, CELLS_DOWN) {
            let question = Question {
                state: &self.task.state(at),
                exploration: Exploration::Greedy,
                seed: 0,
                episode: 0,
                step: 0,
                candidates: None,
                unknown_above: None,
            };
            let decision = actor.act(&question).map_err(refused)?;
            values.push(decision.mean);
            actions.push(decision.action[0]);
        }
        let value = Heatmap::new("Largest Q", x, y, COLUMNS, values, "discounted sum of rewards");
        let (x, y) = self.task.plane();
        let mut action = Heatmap::new("Action chosen", x, y, COLUMNS, actions, self.action_label());
        action.smooth = false;
        Ok(Figure { panels: vec![Panel::Heatmap(value), Panel::Heatmap(action)] })
    }

    fn action_label(&self) -> &'static str {
        match self.task {
            Acted::Swingup => "torque [N m]",
            Acted::Cartpole => "0: push left, 1: push right",
        }
    }
}
