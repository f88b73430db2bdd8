//! Agents that learn to act from nothing, without a daemon: how many episodes they need.
//!
//! `cargo run --release -p criticd-learner --example acting -- swingup --seeds 10 --episodes 30 [--stop 1]`
//!
//! One line for each seed: when the goal was reached, and the return of every episode. The last line says on how many seeds the
//! goal was reached, and when. `--stop 1` ends a seed there. After each episode the learner takes its rows in, and selects a kernel or improves if that is due.

use criticd_learner::KindSetting;
use criticd_learner::act::{Actor, Exploration, Question};
use criticd_learner::action::{ActionSpace, ActionValue, Successor, Trace};
use criticd_learner::math::embedding::StateKind;
use criticd_learner::random::{mix, uniform};
use criticd_learner::refit;
use criticd_learner::snapshot::Evaluator;
use criticd_learner::transition::{Batch, BatchParts};
use criticd_learner::window::Window;
use criticd_learner::{DriftSensitivity, Lambda, Learner, Settings, Verdict};
use criticd_sim::tasks::{CartPole, DeepSea, MountainCar, Swingup, Task};
use std::collections::HashMap;
use std::error::Error;
use std::time::Instant;

type Outcome<T> = Result<T, Box<dyn Error>>;

/// The measurement, and how the agent learns.
struct Plan {
    task: String,
    goal: f64,
    seeds: u64,
    first_seed: u64,
    episodes: u64,
    explore: String,
    settings: Settings,
    verbose: bool,
    /// End a seed when it has reached the goal.
    stop: bool,
}

impl Plan {
    /// First episode by which the goal was reached.
    fn reached(&self, returns: &[f64], bad: &[bool]) -> Option<usize> {
        if self.goal.is_nan() { solved(bad) } else { reached(returns, self.goal) }
    }
}

fn plan() -> Outcome<Plan> {
    let mut words = std::env::args().skip(1);
    let task = words.next().ok_or("swingup, cartpole, mountain_car or deep_sea:N")?;
    let mut said: HashMap<String, String> = HashMap::new();
    while let Some(word) = words.next() {
        let name = word.strip_prefix("--").ok_or("an option begins with --")?.to_owned();
        said.insert(name, words.next().ok_or("an option has a value")?);
    }
    let sea = task.starts_with("deep_sea");
    let explore = said.remove("explore").unwrap_or_else(|| if sea { "greedy" } else { "epsilon_greedy" }.into());
    let mut number = |name: &str, default: f64| -> Outcome<f64> {
        said.remove(name).map_or(Ok(default), |text| Ok(text.parse::<f64>()?))
    };
    let (discount, episodes, goal) = match task.as_str() {
        "swingup" => (0.97, 30.0, -200.0),
        "cartpole" => (0.995, 100.0, 475.0),
        "mountain_car" => (0.99, 25.0, -180.0),
        _ => (0.99, 200.0, f64::NAN),
    };
    let space = new_task(&task, 0)?.0.space();
    let kinds = if sea { vec![StateKind::Category; 2] } else { Vec::new() };
    // An episode of the sea is short, its cells have nothing in common, and no return is above 1.
    let (elements, improve_rows, prior_mean) = if sea { (600.0, 10.0, 1.0) } else { (300.0, 20.0, 0.0) };
    let settings = Settings {
        discount: number("discount", discount)?,
        dictionary_max: number("dictionary-max", elements)? as usize,
        refit_first_rows: number("first-refit", 128.0)? as u64,
        refit_growth: number("growth", 1.5)?,
        refit_budget_s: number("budget", 5.0)?,
        improve_rows: number("improve-rows", improve_rows)? as u64,
        prior_mean: number("prior-mean", prior_mean)?,
        action_value: Some(ActionValue { space, successor: Successor::Improve, trace: Trace::OnPolicy }),
        lambda: Lambda::Fixed(0.0),
        state_kinds: KindSetting::known(&kinds),
        drift_sensitivity: DriftSensitivity::Off,
        ..Settings::default()
    };
    let plan = Plan {
        goal,
        seeds: number("seeds", 10.0)? as u64,
        first_seed: number("first-seed", 0.0)? as u64,
        episodes: number("episodes", episodes)? as u64,
        verbose: number("verbose", 0.0)? > 0.0,
        stop: number("stop", 0.0)? > 0.0,
        explore,
        settings,
        task,
    };
    match said.keys().next() {
        Some(unknown) => Err(format!("--{unknown} is no option").into()),
        None => Ok(plan),
    }
}

/// The task; for deep sea also a second copy, which records the bad episodes.
fn new_task(name: &str, seed: u64) -> Outcome<(Box<dyn Task>, Option<DeepSea>)> {
    Ok(match name {
        "swingup" => (Box::new(Swingup::default()), None),
        "cartpole" => (Box::new(CartPole::default()), None),
        "mountain_car" => (Box::new(MountainCar::default()), None),
        _ => {
            let size = name.strip_prefix("deep_sea:").ok_or("there is no such task")?.parse()?;
            (Box::new(DeepSea::new(size, seed)), Some(DeepSea::new(size, seed)))
        }
    })
}

/// A learner, and the actor of its newest model.
struct Agent<'a> {
    plan: &'a Plan,
    seed: u64,
    space: ActionSpace,
    learner: Learner,
    /// Critics of action values keep their rows themselves.
    window: Window,
    actor: Option<Actor>,
    rows: u64,
}

impl<'a> Agent<'a> {
    fn new(plan: &'a Plan, task: &dyn Task, seed: u64) -> Self {
        let settings = Settings { seed, ..plan.settings.clone() };
        let names = task.state_names().iter().map(ToString::to_string).collect();
        let window = Window::new(task.state_names().len(), 1, 1);
        let learner = Learner::new(settings, Some(names));
        Self { plan, seed, space: task.space(), learner, window, actor: None, rows: 0 }
    }

    fn exploration(&self, episode: u64) -> Exploration {
        match self.plan.explore.as_str() {
            "thompson" => Exploration::Thompson,
            "greedy" => Exploration::Greedy,
            "ucb" => Exploration::Ucb(1.0),
            // From 0.1 to 0.01 within 25 episodes.
            _ => Exploration::EpsilonGreedy(0.1 - 0.09 * (episode as f64 / 25.0).min(1.0)),
        }
    }

    fn act(&self, state: &[f64], episode: u64, step: u64) -> Outcome<Vec<f64>> {
        let seed = self.seed;
        let Some(actor) = &self.actor else {
            let (candidates, width) = (self.space.candidates(), self.space.width());
            let at = (uniform(mix(&[seed, episode, step])) * (candidates.len() / width) as f64) as usize;
            return Ok(self.space.action_of(&candidates[at * width..(at + 1) * width]));
        };
        let exploration = self.exploration(episode);
        let question = Question { state, exploration, seed, episode, step, candidates: None, unknown_above: None };
        Ok(actor.act(&question)?.action)
    }

    /// Take the rows of an episode in, and do all that is due.
    fn learn(&mut self, episode: BatchParts) -> Outcome<()> {
        let batch = Batch::new(episode)?;
        let mut starts = vec![false; batch.len()];
        starts[0] = true;
        self.learner.take(0, &starts, &batch, self.rows);
        self.rows += batch.len() as u64;
        self.learner.step(&self.window);
        while let Some(trigger) = self.learner.refit_due() {
            let job = self.learner.refit_job(&self.window, trigger)?;
            let started = Instant::now();
            let found = refit::run(&job, &|| true);
            let verdict = match found {
                Ok(candidate) => self.learner.try_adopt(candidate, &self.window),
                Err(error) => {
                    if self.plan.verbose {
                        eprintln!("  {error}");
                    }
                    self.learner.refit_failed();
                    break;
                }
            };
            if self.plan.verbose {
                self.say(&verdict, started.elapsed().as_secs_f64());
            }
        }
        if self.learner.model().is_some() {
            let snapshot = self.learner.snapshot(self.plan.explore == "ucb")?;
            self.actor = Some(Actor::new(Evaluator::new(snapshot))?);
        }
        Ok(())
    }

    fn say(&self, verdict: &Verdict, seconds: f64) {
        let Verdict::Adopted { report, .. } = verdict else { return eprintln!("  not adopted") };
        let sweeps = report.improvement.as_ref().map_or(0, |found| found.sweeps);
        let (elements, gap, trigger) = (report.dictionary_size, report.trace_gap, report.trigger.name());
        eprintln!(
            "  {trigger}: {} rows, {elements} elements, gap {gap:.1}, {sweeps} sweeps, {seconds:.1} s",
            self.rows
        );
        if let Some(h) = self.learner.hyperparameters().filter(|_| trigger != "improvement") {
            eprintln!("    {:?} noise {:.4}", h.kernel, h.noise_variance);
        }
    }
}

/// Returns of all episodes; for deep sea also the bad episodes.
fn run(plan: &Plan, seed: u64) -> Outcome<(Vec<f64>, Vec<bool>)> {
    let (mut task, mut sea) = new_task(&plan.task, seed)?;
    let mut agent = Agent::new(plan, &*task, seed);
    let (mut returns, mut bad) = (Vec::new(), Vec::new());
    for episode in 0..plan.episodes {
        let begins = mix(&[seed, episode, 77]);
        let mut state = task.start(begins);
        if let Some(sea) = &mut sea {
            sea.start(begins);
        }
        let mut parts =
            BatchParts { stream: "agent".into(), dim: state.len(), rewards_per_row: 1, ..BatchParts::default() };
        let (mut next, mut actions) = (Vec::new(), Vec::new());
        let (terminated, truncated) = loop {
            let action = agent.act(&state, episode, parts.rewards.len() as u64)?;
            let found = task.step(&action);
            if let Some(sea) = &mut sea {
                sea.step(&action);
            }
            parts.states.extend(state);
            parts.rewards.push(found.reward);
            actions.extend(action);
            next.extend_from_slice(&found.state);
            if found.terminated || found.truncated {
                break (found.terminated, found.truncated);
            }
            state = found.state;
        };
        let steps = parts.rewards.len();
        let at_end = |flag: bool| Some((1..=steps).map(|step| flag && step == steps).collect());
        (parts.terminated, parts.truncated) = (at_end(terminated), at_end(truncated));
        (parts.next_states, parts.actions) = (Some(next), Some(actions));
        returns.push(parts.rewards.iter().sum::<f64>());
        bad.push(sea.as_ref().is_some_and(DeepSea::is_bad));
        if plan.verbose {
            eprintln!("episode {episode}: {:.1}", returns[episode as usize]);
        }
        if plan.stop && plan.reached(&returns, &bad).is_some() {
            break;
        }
        agent.learn(parts)?;
    }
    Ok((returns, bad))
}

/// First episode (from 1) at which the mean of the last ten returns reaches `goal`.
fn reached(returns: &[f64], goal: f64) -> Option<usize> {
    (10..=returns.len()).find(|&k| returns[k - 10..k].iter().sum::<f64>() / 10.0 >= goal)
}

/// First episode by which fewer than nine of ten were bad.
fn solved(bad: &[bool]) -> Option<usize> {
    let mut count = 0;
    bad.iter().enumerate().find_map(|(k, &b)| {
        count += usize::from(b);
        ((count as f64) < 0.9 * (k + 1) as f64).then_some(k + 1)
    })
}

fn main() -> Outcome<()> {
    let plan = plan()?;
    let mut all = Vec::new();
    for seed in plan.first_seed..plan.first_seed + plan.seeds {
        let started = Instant::now();
        let (returns, bad) = run(&plan, seed)?;
        let found = plan.reached(&returns, &bad);
        let last = &returns[returns.len().saturating_sub(30)..];
        let worst = last.iter().copied().fold(f64::INFINITY, f64::min);
        let shown: Vec<String> = returns.iter().map(|r| format!("{r:.0}")).collect();
        println!(
            "seed {seed}: reached {found:?}, worst of the last 30 {worst:.0}, {:.0} s: {}",
            started.elapsed().as_secs_f64(),
            shown.join(" ")
        );
        all.push(found);
    }
    let mut when: Vec<usize> = all.iter().flatten().copied().collect();
    when.sort_unstable();
    println!("{}: reached on {} of {}, at {when:?}", plan.task, when.len(), all.len());
    Ok(())
}
