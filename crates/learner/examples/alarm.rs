//! Alarms before failures, on ten streams with planted failures and drift: the share of false alarms, hits and lead time, beside a
//! threshold on V that is chosen on the first half of the stream.
//!
//! `cargo run --release -p criticd-learner --example alarm -- [--share 0.01] [--rows 100000] [--seed 1]`
//!
//! A walk or a noisy pendulum gets a fault now and then: a further variable, the heat, rises over some thirty rows, then the failure
//! costs 20. Some failures come without heat, and some heat passes without a failure. What drifts is named in each line. The alarm asks
//! whether the discounted return falls below a value between the values of rows before failures and of the others. All figures
//! are of the second half: `false` is the share of rows with the alarm on among those whose return stayed above, over the
//! stated share; `hits` the share of failures with the alarm on at some row of the 60 before; `lead` the mean number of rows
//! from the first of these to the failure.

use criticd_learner::random::{mix, uniform};
use criticd_learner::snapshot::{Ask, Evaluator};
use criticd_learner::transition::Rows;
use criticd_learner::warning::Warner;
use criticd_learner::window::Window;
use criticd_learner::{Event, Learner, Settings, Verdict, WarningSettings, refit};
use criticd_sim::{Step, pendulum::Pendulum, walk::Walk};
use std::error::Error;

const DISCOUNT: f64 = 0.95;
/// Rows learned at once; values of a threshold on V come from the model before them.
const GROUP: usize = 64;
/// Rows before a failure in which an alarm counts as its own.
const WINDOW: usize = 60;
const RISE: f64 = 30.0;
const COST: f64 = 20.0;

/// What drifts over a stream.
#[derive(Clone, Copy, Debug)]
enum Drift {
    Nothing,
    /// The level of rewards falls, in a ramp.
    Level,
    /// It jumps at three quarters of the stream.
    Jump,
    /// It swings.
    Season,
    /// Rewards scatter three times as much in the end.
    Noise,
    /// The sensor of the heat gains a bias.
    Bias,
    /// More and more heat passes without a failure.
    Harmless,
    /// Failures become four times as frequent.
    Faults,
    /// They become twice as dear.
    Cost,
    /// The heat rises three times as fast in the end.
    Sudden,
}

const STREAMS: [(bool, Drift); 10] = [
    (true, Drift::Nothing),
    (true, Drift::Level),
    (true, Drift::Noise),
    (true, Drift::Bias),
    (true, Drift::Harmless),
    (false, Drift::Jump),
    (false, Drift::Season),
    (false, Drift::Faults),
    (false, Drift::Cost),
    (false, Drift::Sudden),
];

/// A fault under way: its heat, how fast that rises, and whether a failure ends it.
#[derive(Clone, Copy)]
struct Fault {
    heat: f64,
    rate: f64,
    fails: bool,
}

struct World {
    walk: Option<Walk>,
    pendulum: Pendulum,
    drift: Drift,
    fault: Option<Fault>,
    seed: u64,
    row: u64,
    draws: u64,
}

impl World {
    fn new(walks: bool, drift: Drift, seed: u64) -> Self {
        let walk = walks.then(|| Walk::new(seed, None, 0.0));
        Self { walk, pendulum: Pendulum::new(seed, 0.3), drift, fault: None, seed, row: 0, draws: 0 }
    }

    fn draw(&mut self) -> f64 {
        self.draws += 1;
        uniform(mix(&[self.seed, self.draws]))
    }

    fn noise(&mut self) -> f64 {
        (0..4).map(|_| self.draw()).sum::<f64>() - 2.0
    }

    /// The next row at `share` of the stream, and whether it fails.
    fn step(&mut self, share: f64) -> (Step, f64, bool) {
        let mut step = match &mut self.walk {
            Some(walk) => walk.step(),
            None => self.pendulum.step(),
        };
        let of = |drift: fn(&Drift) -> bool| if drift(&self.drift) { share } else { 0.0 };
        let [level, noise, bias, harmless] = [
            of(|d| matches!(d, Drift::Level)),
            of(|d| matches!(d, Drift::Noise)),
            of(|d| matches!(d, Drift::Bias)),
            of(|d| matches!(d, Drift::Harmless)),
        ];
        let [faults, cost, sudden] =
            [of(|d| matches!(d, Drift::Faults)), of(|d| matches!(d, Drift::Cost)), of(|d| matches!(d, Drift::Sudden))];
        let moved = match self.drift {
            Drift::Jump if share > 0.75 => -0.15,
            Drift::Season => 0.15 * (12.0 * std::f64::consts::PI * share).sin(),
            _ => -0.2 * level,
        };
        if self.fault.is_none() && self.draw() < 0.003 * (1.0 + 3.0 * faults) {
            let fails = self.draw() >= 0.2 + 0.5 * harmless;
            let sudden_one = fails && self.draw() < 0.15;
            let rate = (1.0 + 2.0 * sudden) * (0.7 + 0.6 * self.draw()) / RISE;
            self.fault = Some(Fault { heat: if sudden_one { 1.0 } else { 0.0 }, rate, fails });
        }
        let heat = self.fault.map_or(0.0, |fault| if fault.heat >= 1.0 { 0.0 } else { fault.heat });
        let heat = heat + 0.4 * bias + 0.1 * self.noise();
        step.reward = 0.3 * step.reward / if self.walk.is_some() { 1.0 } else { 8.0 } + moved;
        step.reward += (0.5 + noise) * self.noise();
        let mut failed = false;
        if let Some(fault) = &mut self.fault {
            fault.heat += fault.rate;
            if fault.heat >= 1.0 {
                failed = fault.fails;
                self.fault = None;
            }
        }
        if failed {
            step.reward -= COST * (1.0 + cost);
        }
        self.row += 1;
        (step, heat, failed)
    }
}

/// What is known of a stream in the end.
#[derive(Default)]
struct Told {
    rewards: Vec<f64>,
    failed: Vec<bool>,
    values: Vec<f64>,
    on: Vec<bool>,
}

fn run(world: &mut World, rows: usize, alarm: WarningSettings, seed: u64) -> Result<(Told, Warner), Box<dyn Error>> {
    let settings = Settings {
        discount: DISCOUNT,
        dictionary_max: 80,
        refit_first_rows: 2048,
        refit_growth: 4.0,
        refit_budget_s: 5.0,
        alarms: vec![alarm],
        seed,
        ..Settings::default()
    };
    let (mut told, mut learner, mut window) = (Told::default(), Learner::new(settings, None), None::<Window>);
    let mut events = Vec::new();
    let mut next = world.step(0.0);
    for group in 0..rows / GROUP {
        let mut batch = None::<Rows>;
        for _ in 0..GROUP {
            let share = told.rewards.len() as f64 / rows as f64;
            let (step, heat, failed) = std::mem::replace(&mut next, world.step(share));
            let mut state = step.state.clone();
            state.push(heat);
            // Where an episode of the simulator ends the next one follows, as if the world did that.
            let mut after = next.0.state.clone();
            after.push(next.1);
            let batch = batch.get_or_insert_with(|| Rows::new(state.len(), 1));
            batch.states.extend(&state);
            batch.next_states.extend(&after);
            batch.rewards.push(step.reward);
            batch.discounts.push(f64::NAN);
            batch.ratios.push(1.0);
            batch.streams.push(0);
            batch.terminated.push(false);
            batch.truncated.push(false);
            batch.starts_chain.push(told.rewards.is_empty());
            told.rewards.push(step.reward);
            told.failed.push(failed);
        }
        let batch = batch.expect("rows");
        match learner.snapshot(false) {
            Ok(snapshot) => {
                let mean = Evaluator::new(snapshot).evaluate(&batch.states, Ask::MEAN)?.mean;
                told.values.extend(mean.iter());
            }
            Err(_) => told.values.extend(std::iter::repeat_n(f64::NAN, GROUP)),
        }
        let window = window.get_or_insert_with(|| Window::new(batch.dim, 1, 50_000));
        window.extend(&batch, 0..batch.len());
        events.extend(learner.step(window));
        if learner.refit_due().is_some() && group > 0 {
            let trigger = learner.refit_due().expect("due");
            let job = learner.refit_job(window, trigger).map_err(|e| e.to_string())?;
            match refit::run(&job, &|| true) {
                Ok(candidate) => {
                    if let Verdict::Behind(_) = learner.try_adopt(candidate, window) {
                        return Err("nothing came meanwhile".into());
                    }
                }
                Err(_) => learner.refit_failed(),
            }
        }
    }
    told.on = vec![false; told.rewards.len()];
    let mut since = None;
    for event in events {
        if let Event::Warning(warning) = event {
            match (warning.raised, since.take()) {
                (true, _) => since = Some(warning.offset as usize),
                (false, Some(since)) => told.on[since..warning.offset as usize].fill(true),
                (false, None) => {}
            }
        }
    }
    since.into_iter().for_each(|since: usize| told.on[since..].fill(true));
    let warner = learner.warnings().and_then(|warnings| warnings.iter().next()).expect("an alarm").clone();
    Ok((told, warner))
}

/// Share of false alarms, share of failures hit, and mean lead, of the rows from `from` on.
fn judge(on: &[bool], told: &Told, returns: &[f64], below: f64, from: usize) -> (f64, f64, f64) {
    let known = from..returns.len() - 200;
    let stayed: Vec<usize> = known.clone().filter(|&t| returns[t] >= below).collect();
    let share = stayed.iter().filter(|&&t| on[t]).count() as f64 / stayed.len() as f64;
    let failures: Vec<usize> = known.filter(|&t| told.failed[t]).collect();
    let leads: Vec<f64> = failures
        .iter()
        .filter_map(|&t| (t.saturating_sub(WINDOW)..=t).find(|&s| on[s]).map(|s| (t - s) as f64))
        .collect();
    let lead = leads.iter().sum::<f64>() / leads.len().max(1) as f64;
    (share, leads.len() as f64 / failures.len() as f64, lead)
}

fn number(name: &str, otherwise: f64) -> Result<f64, Box<dyn Error>> {
    let args: Vec<String> = std::env::args().collect();
    let place = args.iter().position(|arg| arg == name);
    Ok(place.and_then(|k| args.get(k + 1)).map(|text| text.parse()).transpose()?.unwrap_or(otherwise))
}

fn main() -> Result<(), Box<dyn Error>> {
    let (share, rows) = (number("--share", 0.01)?, number("--rows", 100_000.0)? as usize);
    let seed = number("--seed", 1.0)? as u64;
    println!(
        "stream              | false  hits  lead | threshold: false  hits  lead | raised  hits  false  fell  missed  lead"
    );
    for (k, &(walks, drift)) in STREAMS.iter().enumerate() {
        let mut world = World::new(walks, drift, mix(&[seed, k as u64]));
        let below = if walks { -8.0 } else { -9.0 };
        let alarm = WarningSettings { head: None, below, false_alarms: share };
        let (told, warner) = run(&mut world, rows, alarm, seed)?;
        let mut returns = told.rewards.clone();
        for t in (0..returns.len() - 1).rev() {
            returns[t] += DISCOUNT * returns[t + 1];
        }
        let half = returns.len() / 2;
        let mut values: Vec<f64> = (4096..half).filter(|&t| returns[t] >= below).map(|t| told.values[t]).collect();
        values.sort_by(f64::total_cmp);
        let threshold = values[(share * values.len() as f64) as usize];
        let fixed: Vec<bool> = told.values.iter().map(|&value| value < threshold).collect();
        let [ours, theirs] = [&told.on, &fixed].map(|on| judge(on, &told, &returns, below, half));
        let record = warner.record();
        let name = format!("{} {drift:?}", if walks { "walk" } else { "pendulum" });
        println!(
            "{name:19} | {:5.2} {:5.2} {:5.1} | {:16.2} {:5.2} {:5.1} | {:6} {:5} {:6} {:5} {:7} {:5.1}",
            ours.0 / share,
            ours.1,
            ours.2,
            theirs.0 / share,
            theirs.1,
            theirs.2,
            record.raised,
            record.hits,
            record.mistaken,
            record.fell,
            record.missed,
            record.lead_rows
        );
    }
    Ok(())
}
