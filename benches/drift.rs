//! How soon a change of the world is noticed, what the values are worth after it, and how often there is an alarm without a
//! change: streams whose world changes at a known row, beside a learner without detector and one that begins at the change.
//!
//! `cargo bench --bench drift`, or one of `changes`, `stationary` and `starts` behind `--`, and `--seeds N`, `--rows N`. What it
//! prints stands in `docs/drift.md`.

use criticd::learner::model::Model;
use criticd::learner::window::Window;
use criticd::learner::{DriftSensitivity, Event, Learner, Settings, Verdict, refit};
use criticd::math::kernel::Hyperparameters;
use criticd::snapshot::{Ask, Snapshot};
use criticd::transition::Rows;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::BTreeMap;
use std::f64::consts::PI;

/// Rows before the change.
const BEFORE: u64 = 30_000;
/// Rows after it.
const AFTER: u64 = 30_000;
/// Rows of which the one refit is made.
const REFIT_AT: u64 = 8_192;
/// Rows after the change at which values are judged.
const JUDGED_AT: [u64; 5] = [500, 1000, 2000, 4000, 16_000];
/// Half-lives of the models that forget, rows.
const HALF_LIVES: [f64; 3] = [1000.0, 4000.0, 16_000.0];
/// Times its noise by which a stream is made to raise an alarm for nothing, and the rows that this lasts.
const NOISE: f64 = 8.0;
const NOISE_ROWS: u64 = 512;
/// Rows that a burst of noise lasts.
const BURST_ROWS: u64 = 1500;
/// Rows learned at a time.
const GROUP: u64 = 100;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// 19 states, noisy rewards, cut every 100 rows.
    Walk,
    /// A pendulum whose torque and speed are noisy, cut every 200 rows.
    NoisyPendulum,
    /// Gymnasium's Pendulum-v1 under a swing-up by energy with noise.
    GymPendulum,
    /// Four slow variables and a hidden one; never cut.
    Hidden,
}

const KINDS: [Kind; 4] = [Kind::Walk, Kind::NoisyPendulum, Kind::GymPendulum, Kind::Hidden];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Policy,
    Sign,
    Dynamics,
    Offset,
    Slow,
    /// Four times the noise for a while, then as before: an alarm that should change nothing.
    Burst,
    /// Much more noise for a shorter while: an alarm for nothing.
    Noise,
}

/// What may change about a world.
#[derive(Clone, Copy, Debug)]
struct Laws {
    right: f64,
    gravity: f64,
    gains: (f64, f64, f64),
    offset: f64,
    reward: f64,
    noise: f64,
}

impl Laws {
    const BEFORE: Self =
        Self { right: 0.5, gravity: 9.81, gains: (18.0, 4.0, 1.0), offset: 0.0, reward: 1.0, noise: 1.0 };

    /// Rows after a change.
    fn after(kind: Kind, change: Change, rows: u64) -> Self {
        let (before, ramp) = (Self::BEFORE, (rows as f64 / 20_000.0).min(1.0));
        match (kind, change) {
            (_, Change::Noise) => Self { noise: if rows < NOISE_ROWS { NOISE } else { 1.0 }, ..before },
            (_, Change::Burst) => Self { noise: if rows < BURST_ROWS { 4.0 } else { 1.0 }, ..before },
            (_, Change::Sign) => Self { reward: -1.0, ..before },
            (Kind::Hidden, Change::Offset) => Self { offset: 0.5, ..before },
            (_, Change::Offset) => Self { offset: 0.15, ..before },
            (Kind::Walk, Change::Policy) => Self { right: 0.7, ..before },
            (Kind::Walk, Change::Dynamics) => Self { right: 0.57, ..before },
            (Kind::Walk, Change::Slow) => Self { right: 0.5 + 0.2 * ramp, ..before },
            (Kind::Hidden, Change::Slow) => Self { reward: 1.0 + 0.6 * ramp, ..before },
            (Kind::Hidden, _) => Self { reward: 1.4, ..before },
            (_, Change::Policy) => Self { gains: (14.0, 2.0, 0.5), ..before },
            (_, Change::Dynamics) => Self { gravity: 11.0, ..before },
            (_, Change::Slow) => Self { gravity: 9.81 + 2.38 * ramp, ..before },
        }
    }

    fn changes(kind: Kind) -> &'static [Change] {
        match kind {
            Kind::Hidden => &[Change::Dynamics, Change::Sign, Change::Offset, Change::Slow, Change::Burst],
            Kind::Walk => {
                use Change::{Burst, Dynamics, Noise, Offset, Policy, Sign, Slow};
                &[Policy, Sign, Dynamics, Offset, Slow, Burst, Noise]
            }
            _ => &[Change::Policy, Change::Sign, Change::Dynamics, Change::Offset, Change::Slow],
        }
    }
}

#[derive(Clone, Debug)]
struct World {
    kind: Kind,
    rng: ChaCha8Rng,
    /// Position of the walk; angle and speed; the four variables, the hidden one and the log variance of the noise.
    at: Vec<f64>,
    step: u64,
    starts: bool,
}

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    let (u, v): (f64, f64) = (rng.random::<f64>(), rng.random::<f64>());
    (-2.0 * (1.0 - u).ln()).sqrt() * (2.0 * PI * v).cos()
}

fn wrapped(angle: f64) -> f64 {
    (angle + PI).rem_euclid(2.0 * PI) - PI
}

impl World {
    fn new(kind: Kind, seed: u64) -> Self {
        let mut world = Self { kind, rng: ChaCha8Rng::seed_from_u64(seed), at: Vec::new(), step: 0, starts: true };
        world.reset();
        world
    }

    fn dim(&self) -> usize {
        match self.kind {
            Kind::Walk => 1,
            Kind::Hidden => 4,
            _ => 3,
        }
    }

    fn discount(&self) -> f64 {
        if self.kind == Kind::Hidden { 0.9 } else { 0.95 }
    }

    fn reset(&mut self) {
        let rng = &mut self.rng;
        self.at = match self.kind {
            Kind::Walk => vec![rng.random_range(0..19) as f64],
            Kind::Hidden => vec![0.0; 6],
            _ => vec![rng.random_range(-PI..PI), rng.random_range(-1.0..1.0)],
        };
        (self.step, self.starts) = (0, true);
    }

    fn observe(&self, laws: &Laws) -> Vec<f64> {
        match self.kind {
            Kind::Walk => vec![self.at[0] / 9.0 - 1.0 + laws.offset],
            Kind::Hidden => vec![self.at[0] + laws.offset, self.at[1], self.at[2], self.at[3]],
            _ => vec![self.at[0].cos() + laws.offset, self.at[0].sin(), self.at[1]],
        }
    }

    /// One step; its reward.
    fn advance(&mut self, laws: &Laws) -> f64 {
        let rng = &mut self.rng;
        match self.kind {
            Kind::Walk => {
                let reward = laws.reward * (self.at[0] / 9.0 - 1.0) + 0.3 * laws.noise * normal(rng);
                let step = if rng.random::<f64>() < laws.right { 1.0 } else { -1.0 };
                self.at[0] = (self.at[0] + step).clamp(0.0, 18.0);
                reward
            }
            Kind::NoisyPendulum => {
                let [angle, speed] = [self.at[0], self.at[1]];
                let (p, d, e) = laws.gains;
                let energy = 0.5 * speed * speed + 9.81 * (angle.cos() - 1.0);
                let torque = if angle.abs() < 0.7 { -p * angle - d * speed } else { -e * energy * speed.signum() };
                let torque = torque.clamp(-5.0, 5.0) + normal(rng);
                let reward = -laws.reward * (angle * angle + 0.1 * speed * speed + 0.01 * torque * torque);
                for _ in 0..2 {
                    self.at[1] += 0.025 * (laws.gravity * self.at[0].sin() + torque - 0.1 * self.at[1]);
                    self.at[0] += 0.025 * self.at[1];
                }
                self.at[1] = self.at[1].clamp(-8.0, 8.0) + 0.05 * normal(rng);
                self.at[0] = wrapped(self.at[0]);
                reward
            }
            Kind::GymPendulum => {
                let [angle, speed] = [self.at[0], self.at[1]];
                let (p, d, e) = laws.gains;
                let energy = speed * speed / 6.0 + 5.0 * (angle.cos() - 1.0);
                let torque = if angle.abs() < 0.5 { -p * angle - d * speed } else { -e * energy * speed.signum() };
                let torque = (torque + 0.3 * normal(rng)).clamp(-2.0, 2.0);
                let reward = -laws.reward * (angle * angle + 0.1 * speed * speed + 0.001 * torque * torque);
                let gravity = 10.0 * laws.gravity / 9.81;
                let speed = (speed + 0.05 * (1.5 * gravity * angle.sin() + 3.0 * torque)).clamp(-8.0, 8.0);
                self.at = vec![wrapped(angle + 0.05 * speed), speed];
                reward
            }
            Kind::Hidden => {
                let x = &self.at;
                let clean = (x[0] + x[1]).tanh() + 0.5 * x[2] * x[3] + 0.5 * x[4];
                let reward = laws.reward * clean + 0.3 * laws.noise * (0.5 * x[5]).exp() * normal(rng);
                for (x, tau) in self.at.iter_mut().zip([20.0_f64, 60.0, 200.0, 600.0, 2000.0, 2000.0]) {
                    *x += -*x / tau + (2.0 / tau).sqrt() * normal(rng);
                }
                reward
            }
        }
    }

    /// Append one row.
    fn push(&mut self, laws: &Laws, rows: &mut Rows) {
        let starts = std::mem::take(&mut self.starts);
        rows.states.extend(self.observe(laws));
        rows.rewards.push(self.advance(laws));
        rows.next_states.extend(self.observe(laws));
        self.step += 1;
        let limit = match self.kind {
            Kind::Walk => 100,
            Kind::Hidden => u64::MAX,
            _ => 200,
        };
        let truncated = self.step == limit;
        if truncated {
            self.reset();
        }
        rows.discounts.push(f64::NAN);
        rows.ratios.push(1.0);
        rows.streams.push(0);
        rows.terminated.push(false);
        rows.truncated.push(truncated);
        rows.starts_chain.push(starts);
    }

    fn rows(&mut self, count: u64, laws: impl Fn(u64) -> Laws) -> Rows {
        let mut rows = Rows::new(self.dim(), 1);
        (0..count).for_each(|k| self.push(&laws(k), &mut rows));
        rows
    }
}

/// States and their true values under some laws.
struct Truth {
    states: Vec<f64>,
    values: Vec<f64>,
}

impl Truth {
    /// Solved for on the walk; elsewhere the mean of rollouts from states that the stream visits. None where the state hides
    /// something.
    fn of(kind: Kind, laws: &Laws, seed: u64) -> Option<Self> {
        let (states, rollouts, steps) = match kind {
            Kind::Walk => ((0..19).map(|s| vec![f64::from(s)]).collect(), 0, 0),
            Kind::Hidden => return None,
            _ => (visited(kind, laws, seed), 60, 120),
        };
        let mut world = World::new(kind, seed + 1);
        let discount = world.discount();
        let mut truth = Self { states: Vec::new(), values: Vec::new() };
        for state in &states {
            world.at.clone_from(state);
            truth.states.extend(world.observe(laws));
            let mut total = 0.0;
            for _ in 0..rollouts {
                world.at.clone_from(state);
                let mut weight = 1.0;
                for _ in 0..steps {
                    total += weight * world.advance(laws);
                    weight *= discount;
                }
            }
            truth.values.push(total / f64::from(rollouts.max(1)));
        }
        if kind == Kind::Walk {
            for _ in 0..2000 {
                let v = truth.values.clone();
                for s in 0..19 {
                    let reward = laws.reward * (s as f64 / 9.0 - 1.0);
                    let next = laws.right * v[(s + 1).min(18)] + (1.0 - laws.right) * v[s.saturating_sub(1)];
                    truth.values[s] = reward + discount * next;
                }
            }
        }
        Some(truth)
    }

    /// Root mean square error over the deviation of the true values.
    fn error(&self, snapshot: &Snapshot) -> f64 {
        let found = snapshot.evaluate(&self.states, Ask::MEAN).expect("states of the right length").mean;
        let n = self.values.len() as f64;
        let mean = self.values.iter().sum::<f64>() / n;
        let square = |at: &dyn Fn(usize) -> f64| (0..self.values.len()).map(|i| at(i) * at(i)).sum::<f64>() / n;
        (square(&|i| found[(i, 0)] - self.values[i]) / square(&|i| self.values[i] - mean)).sqrt()
    }
}

fn visited(kind: Kind, laws: &Laws, seed: u64) -> Vec<Vec<f64>> {
    let mut world = World::new(kind, seed);
    let mut scratch = Rows::new(world.dim(), 1);
    let mut states = Vec::new();
    for k in 0..150 * 97 {
        world.push(laws, &mut scratch);
        if k % 97 == 96 {
            states.push(world.at.clone());
        }
    }
    states
}

fn settings(world: &World, sensitivity: DriftSensitivity) -> Settings {
    Settings {
        discount: world.discount(),
        dictionary_max: 80,
        refit_first_rows: 0,
        refit_score_drop: 0.0,
        refit_budget_s: 2.0,
        drift_sensitivity: sensitivity,
        ..Settings::default()
    }
}

/// A critic and its rows.
#[derive(Clone)]
struct Run {
    learner: Learner,
    window: Window,
}

impl Run {
    fn new(world: &World, settings: Settings) -> Self {
        Self { learner: Learner::new(settings, None), window: Window::new(world.dim(), 1, 20_000) }
    }

    fn learn(&mut self, rows: &Rows, range: std::ops::Range<usize>) -> Vec<Event> {
        self.window.extend(rows, range);
        let events = self.learner.step(&self.window);
        self.window.hold(self.learner.looks_back_to());
        events
    }

    fn learn_all(&mut self, rows: &Rows) -> Vec<Event> {
        let starts = (0..rows.len()).step_by(GROUP as usize);
        starts.flat_map(|from| self.learn(rows, from..rows.len().min(from + GROUP as usize))).collect()
    }

    /// Select a model now.
    fn refit(&mut self) {
        let reason = self.learner.refit_due().expect("it is due, or was asked for");
        let job = self.learner.refit_job(&self.window, reason).expect("there is a model");
        let found = refit::run(&job, &|| true);
        let Ok(mut candidate) = found else { return self.learner.refit_failed() };
        loop {
            match self.learner.try_adopt(candidate, &self.window) {
                Verdict::Behind(behind) => candidate = behind,
                _ => return,
            }
            candidate.catch_up(&self.window, &|| true).expect("it never asks to stop");
        }
    }
}

fn alarms(events: &[Event]) -> Vec<u64> {
    events.iter().filter_map(|event| if let Event::Drift(alarm) = event { Some(alarm.offset) } else { None }).collect()
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    if n == 0 { f64::NAN } else { 0.5 * (values[(n - 1) / 2] + values[n / 2]) }
}

fn medians(rows: &[Vec<f64>]) -> String {
    let columns = rows.iter().map(Vec::len).min().unwrap_or(0);
    let median_of = |k: usize| median(&mut rows.iter().map(|row| row[k]).collect::<Vec<_>>());
    (0..columns).map(|k| format!("{:.3}", median_of(k))).collect::<Vec<_>>().join(" | ")
}

/// The kernel, dictionary and lambda of a model, whose rows count half after `half_life` more of them; none learned yet.
fn forgetful(model: &Model, half_life: f64) -> Model {
    let (found, kernel) = (model.hyperparameters(), model.dictionary().kernel().clone());
    // The dictionary's kernel is without the factor that tuning has found since.
    let noise_variance = found.noise_variance * kernel.signal_variance / found.kernel.signal_variance;
    let settings =
        Settings { forgetting: Some(half_life), drift_sensitivity: DriftSensitivity::Off, ..model.settings().clone() };
    let given = Hyperparameters { kernel, noise_variance, ..found };
    let mut forgetful = Model::with_dictionary(settings, model.inputs().clone(), &given, model.dictionary().clone());
    forgetful.set_lambda(model.lambda());
    forgetful
}

/// A learner that has been in the same world for [`BEFORE`] rows, with a model selected at [`REFIT_AT`], that world, and models
/// that forget, one for each of [`HALF_LIVES`].
fn settled(kind: Kind, seed: u64) -> (Run, World, Vec<Model>) {
    let mut world = World::new(kind, 1000 + seed);
    let mut run = Run::new(&world, settings(&world, DriftSensitivity::Normal));
    let rows = world.rows(REFIT_AT, |_| Laws::BEFORE);
    run.learn_all(&rows);
    run.learner.request_refit();
    run.refit();
    let rows = world.rows(BEFORE - REFIT_AT, |_| Laws::BEFORE);
    let model = run.learner.model().expect("a model");
    let mut forgetful: Vec<Model> = HALF_LIVES.iter().map(|&rows| forgetful(model, rows)).collect();
    forgetful.iter_mut().for_each(|model| model.learn(&rows, 0..rows.len(), REFIT_AT));
    let events = run.learn_all(&rows);
    if !events.is_empty() {
        println!("before any change: {events:?}");
    }
    (run, world, forgetful)
}

/// Errors of one learner at [`JUDGED_AT`].
fn judged(truth: Option<&Truth>, at: u64, snapshot: impl Fn() -> Snapshot, errors: &mut Vec<f64>) {
    if let Some(truth) = truth
        && JUDGED_AT.contains(&at)
    {
        errors.push(truth.error(&snapshot()));
    }
}

#[derive(Default)]
struct Found {
    delays: Vec<f64>,
    missed: usize,
    again: usize,
    since: Vec<f64>,
    swapped: Vec<f64>,
    ours: Vec<Vec<f64>>,
    /// Without a detector.
    without: Vec<Vec<f64>>,
    /// The same kernel and dictionary, begun at the change.
    fresh: Vec<Vec<f64>>,
    /// With each of [`HALF_LIVES`].
    forgetful: [Vec<Vec<f64>>; HALF_LIVES.len()],
    before: Vec<f64>,
    /// Of those that forget, before the change.
    before_forgetful: [Vec<f64>; HALF_LIVES.len()],
}

fn one_change(kind: Kind, change: Change, seed: u64, settled: &(Run, World, Vec<Model>), found: &mut Found) {
    let (mut run, mut world, mut forgetful) = settled.clone();
    let mut without = run.clone();
    let off = settings(&world, DriftSensitivity::Off);
    without.learner.set_settings(off);
    let mut fresh: Model = run.learner.model().expect("a model").emptied();
    let rows = world.rows(AFTER, |k| Laws::after(kind, change, k));
    let truth = Truth::of(kind, &Laws::after(kind, change, AFTER), seed).filter(|_| change != Change::Slow);
    let old = Truth::of(kind, &Laws::BEFORE, seed);
    found.before.extend(old.as_ref().map(|truth| truth.error(&run.learner.snapshot(false).expect("a posterior"))));
    for (model, before) in forgetful.iter().zip(&mut found.before_forgetful) {
        before.extend(old.as_ref().map(|truth| truth.error(&model.snapshot(false).expect("a posterior"))));
    }
    let mut errors_forgetful = [const { Vec::new() }; HALF_LIVES.len()];
    let (mut errors, mut errors_without, mut errors_fresh, mut events) = (vec![], vec![], vec![], vec![]);
    for from in (0..AFTER).step_by(GROUP as usize) {
        let range = from as usize..(from + GROUP) as usize;
        events.extend(run.learn(&rows, range.clone()));
        if from < JUDGED_AT[JUDGED_AT.len() - 1] {
            without.learn(&rows, range.clone());
            forgetful.iter_mut().for_each(|model| model.learn(&rows, range.clone(), BEFORE + from));
            fresh.learn(&rows, range, from);
        }
        let (at, truth) = (from + GROUP, truth.as_ref());
        judged(truth, at, || run.learner.snapshot(false).expect("a posterior"), &mut errors);
        judged(truth, at, || without.learner.snapshot(false).expect("a posterior"), &mut errors_without);
        judged(truth, at, || fresh.snapshot(false).expect("a posterior"), &mut errors_fresh);
        for (model, errors) in forgetful.iter().zip(&mut errors_forgetful) {
            judged(truth, at, || model.snapshot(false).expect("a posterior"), errors);
        }
    }
    let alarmed = alarms(&events);
    if std::env::args().any(|argument| argument == "--each") {
        println!("{kind:?} {change:?} seed {seed}: {events:?}\n    {errors:.3?} fresh {errors_fresh:.3?}");
    }
    match alarmed.first() {
        Some(at) => found.delays.push((at - BEFORE) as f64),
        None => found.missed += 1,
    }
    found.again += alarmed.len().saturating_sub(1);
    for event in &events {
        match event {
            Event::Drift(alarm) => found.since.push(alarm.finding.since as f64 - BEFORE as f64),
            Event::Swapped { at, .. } => found.swapped.push((at - BEFORE) as f64),
            _ => {}
        }
    }
    found.ours.push(errors);
    found.without.push(errors_without);
    found.fresh.push(errors_fresh);
    found.forgetful.iter_mut().zip(errors_forgetful).for_each(|(all, errors)| all.push(errors));
}

fn changes(seeds: u64, kinds: &[Kind]) {
    for &kind in kinds {
        let mut all: BTreeMap<usize, Found> = BTreeMap::new();
        let mut size = 0;
        for seed in 0..seeds {
            let settled = settled(kind, seed);
            size = settled.0.learner.model().expect("a model").dictionary().len();
            for (k, &change) in Laws::changes(kind).iter().enumerate() {
                one_change(kind, change, seed, &settled, all.entry(k).or_default());
            }
        }
        println!("\n{kind:?}, {seeds} seeds, m = {size}: errors at {JUDGED_AT:?} rows after the change");
        for (k, mut found) in all {
            let worst = found.delays.iter().copied().fold(f64::NAN, f64::max);
            println!(
                "{:?}: delay median {} worst {worst}, missed {}, further alarms {}, since {:+}, swapped {}; before {:.3}",
                Laws::changes(kind)[k],
                median(&mut found.delays),
                found.missed,
                found.again,
                median(&mut found.since),
                median(&mut found.swapped),
                median(&mut found.before),
            );
            for (name, errors) in [("with", &found.ours), ("without", &found.without), ("fresh", &found.fresh)] {
                println!("    {name:8} {}", medians(errors));
            }
            let half_lives = HALF_LIVES.iter().zip(&found.forgetful).zip(&mut found.before_forgetful);
            for ((rows, errors), before) in half_lives {
                println!("    half-life {rows:6} {}; before {:.3}", medians(errors), median(before));
            }
        }
    }
}

/// Alarms where nothing changes.
fn stationary(rows: u64, seeds: u64, kinds: &[Kind]) {
    for (&kind, seed) in kinds.iter().flat_map(|kind| (0..seeds).map(move |seed| (kind, seed))) {
        let (mut run, mut world, _) = settled(kind, 500 + seed);
        let (mut events, mut highest) = (Vec::new(), 0.0f64);
        for _ in 0..rows / 10_000 {
            let rows = world.rows(10_000, |_| Laws::BEFORE);
            events.extend(run.learn_all(&rows));
            highest = highest.max(run.learner.drift().map_or(0.0, |(_, found)| found.level));
        }
        println!(
            "{kind:?} seed {seed}: {} rows, alarms {:?}, highest level seen {highest:.1}",
            BEFORE + rows,
            alarms(&events)
        );
        for event in &events {
            println!("    {event:?}");
        }
    }
}

/// Alarms of learners as users have them: refits fall due by rows, the first models are poor.
fn starts(rows: u64, seeds: u64, kinds: &[Kind]) {
    for (&kind, seed) in kinds.iter().flat_map(|kind| (0..seeds).map(move |seed| (kind, seed))) {
        let mut world = World::new(kind, 2000 + seed);
        let defaults =
            Settings { discount: world.discount(), dictionary_max: 80, refit_budget_s: 2.0, ..Settings::default() };
        let mut run = Run::new(&world, defaults);
        let mut events = Vec::new();
        for _ in 0..rows / GROUP {
            let rows = world.rows(GROUP, |_| Laws::BEFORE);
            events.extend(run.learn_all(&rows));
            if run.learner.refit_due().is_some() {
                run.refit();
            }
        }
        println!(
            "{kind:?} seed {seed}: {rows} rows from the first on, generation {}, alarms {:?}",
            run.learner.generation(),
            alarms(&events)
        );
        for event in events.iter().filter(|event| !matches!(event, Event::FirstModel | Event::DictionaryFull)) {
            println!("    {event:?}");
        }
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str, default: u64| {
        let place = arguments.iter().position(|argument| argument == name);
        place.and_then(|k| arguments.get(k + 1)).map_or(default, |text| text.parse().expect("a number"))
    };
    let test = arguments.iter().any(|argument| argument == "--test");
    let wants = |what: &str| {
        let named = ["changes", "stationary", "starts"].iter().any(|name| arguments.iter().any(|a| a == name));
        arguments.iter().any(|argument| argument == what) || !named
    };
    let asked: Vec<Kind> = KINDS.into_iter().filter(|k| arguments.contains(&format!("{k:?}"))).collect();
    let kinds = if test {
        &KINDS[..1]
    } else if asked.is_empty() {
        &KINDS[..]
    } else {
        &asked[..]
    };
    if wants("changes") {
        changes(number("--seeds", if test { 1 } else { 20 }), kinds);
    }
    if wants("stationary") {
        let rows = number("--rows", if test { 10_000 } else { 1_250_000 });
        stationary(rows, number("--seeds", if test { 1 } else { 2 }), kinds);
    }
    if wants("starts") {
        starts(number("--rows", if test { 5_000 } else { 70_000 }), number("--seeds", if test { 1 } else { 3 }), kinds);
    }
}
