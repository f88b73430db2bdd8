//! How well a model of the transition plans, beside Q fitted to the same rows:
//! `cargo run --release -p criticd-learner --example what_if -- [swingup | mountain_car] [--seeds 3] [--rows 4000] [--elements 300]
//! [--states 150] [--noise 0.01] [--widths 1] [--action-widths 1] [--discount D]`. Widths multiply the lengthscales.
//!
//! Rows are of random actions in chains of ten steps that begin anywhere. Kernels are the same for both and chosen by hand. One line for
//! each seed: the mean return (a car's are steps, negative) from 20 starts by fitted Q, by the plan for the reward that rows tell, by the
//! plan for the reward as an expression, and by the projected model; how often an action was preferred that rows do not support; the
//! mean value of a controller (the pendulum's damps, the car's pushes where it goes) by the model and in the task; and
//! the time in milliseconds of sums and solution, of the table, of the plan and of fitted Q.

use criticd_learner::action::{ActionSpace, ActionValue, Successor, Trace, first_largest};
use criticd_learner::improve::Improvement;
use criticd_learner::math::dense::Matrix;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::model::Model;
use criticd_learner::random::{mix, uniform};
use criticd_learner::snapshot::{Ask, Inputs};
use criticd_learner::transition::Rows;
use criticd_learner::world::{
    Basis, Dynamics, LOST_MAX, Plan, Planning, Table, Transitions, UNSUPPORTED_ABOVE, World, WorldError,
};
use criticd_learner::{Lambda, Settings, VarianceKind};
use criticd_sim::tasks::{MountainCar, Outcome, Swingup, Task};
use std::collections::HashMap;
use std::error::Error;
use std::f64::consts::PI;
use std::time::Instant;

const STARTS: usize = 20;
const CHAIN: u64 = 10;
/// Steps after which nothing is left of a discounted reward.
const HORIZON: i32 = 2000;

/// A task under way, and the state it is in.
type Begun = (Box<dyn Task>, Vec<f64>);

/// What the command line says.
#[derive(Clone, Copy)]
struct Size {
    rows: usize,
    /// Elements of D and of C at most.
    elements: (usize, usize),
    noise_variance: f64,
}

/// A task, and what is chosen for it by hand.
struct Setting {
    name: &'static str,
    discount: f64,
    steps: usize,
    /// Lengthscale of each number of the state, and of the action.
    lengths: Vec<f64>,
    action_length: f64,
    /// The task in a state drawn from wherever chains begin, and in one from where returns are counted.
    anywhere: fn(u64) -> Begun,
    start: fn(u64) -> Begun,
    /// The reward of a state and an action.
    reward: fn(&[f64], f64) -> f64,
    /// The action of a policy to be judged.
    policy: fn(&[f64]) -> f64,
}

fn between(low: f64, high: f64, seed: u64, what: u64) -> f64 {
    low + (high - low) * uniform(mix(&[seed, what]))
}

fn swingup(seed: u64) -> Begun {
    let (task, state) = Swingup::at(between(-PI, PI, seed, 0), between(-8.0, 8.0, seed, 1));
    (Box::new(task), state)
}

fn car(seed: u64) -> Begun {
    let (task, state) = MountainCar::at(between(-1.2, 0.5, seed, 0), between(-0.07, 0.07, seed, 1));
    (Box::new(task), state)
}

fn begun<T: Task + Default + 'static>(seed: u64) -> Begun {
    let mut task = T::default();
    let state = task.start(seed);
    (Box::new(task), state)
}

fn settings() -> [Setting; 2] {
    [
        Setting {
            name: "swingup",
            discount: 0.98,
            steps: Swingup::STEPS as usize,
            lengths: vec![0.8, 0.8, 3.0],
            action_length: 8.0,
            anywhere: swingup,
            start: begun::<Swingup>,
            reward: |x, torque| -(x[1].atan2(x[0]).powi(2) + 0.1 * x[2] * x[2] + 0.001 * torque * torque),
            policy: |x| (-x[2]).clamp(-2.0, 2.0),
        },
        Setting {
            name: "mountain_car",
            discount: 0.99,
            steps: 500,
            lengths: vec![0.25, 0.02],
            action_length: 2.0,
            anywhere: car,
            start: begun::<MountainCar>,
            reward: |_, _| -1.0,
            policy: |x| if x[1] < 0.0 { 0.0 } else { 2.0 },
        },
    ]
}

/// Rows of random actions, with (x, a) as inputs.
struct Seen {
    inputs: Vec<f64>,
    states: Vec<f64>,
    successors: Vec<f64>,
    rewards: Vec<f64>,
    terminated: Vec<bool>,
}

fn gather(of: &Setting, rows: usize, space: &ActionSpace, seed: u64) -> Seen {
    let empty = Vec::new;
    let mut seen =
        Seen { inputs: empty(), states: empty(), successors: empty(), rewards: empty(), terminated: Vec::new() };
    for chain in 0.. {
        let (mut task, mut state) = (of.anywhere)(mix(&[seed, chain]));
        for step in 0..CHAIN {
            if seen.terminated.len() == rows {
                return seen;
            }
            let draw = mix(&[seed, chain, step]);
            let action = match space {
                ActionSpace::Discrete(count) => (uniform(draw) * *count as f64).floor(),
                ActionSpace::Box { low, high } => between(low[0], high[0], draw, 0),
            };
            let Outcome { state: next, reward, terminated, .. } = task.step(&[action]);
            seen.inputs.extend_from_slice(&state);
            space.append(&[action], &mut seen.inputs).expect("an action of the space");
            seen.states.extend_from_slice(&state);
            seen.successors.extend_from_slice(&next);
            seen.rewards.push(reward);
            seen.terminated.push(terminated);
            if terminated {
                break;
            }
            state = next;
        }
    }
    seen
}

/// Mean return from the starts of the policy that prefers, in states (k, D), the first of the largest of the values (k, A).
fn returns(of: &Setting, space: &ActionSpace, q: &mut dyn FnMut(&[f64]) -> Vec<f64>) -> f64 {
    let mut all: Vec<_> = (0..STARTS as u64).map(|start| (of.start)(mix(&[99, start]))).collect();
    let candidates = space.candidates();
    let width = space.width();
    let (mut earned, mut open) = (0.0, vec![true; STARTS]);
    for _ in 0..of.steps {
        let running: Vec<usize> = (0..STARTS).filter(|&k| open[k]).collect();
        let states: Vec<f64> = running.iter().flat_map(|&k| all[k].1.clone()).collect();
        let values = q(&states);
        for (&k, q) in running.iter().zip(values.chunks_exact(candidates.len() / width)) {
            let best = first_largest(q) * width;
            let action = space.action_of(&candidates[best..best + width]);
            let found = all[k].0.step(&action);
            earned += found.reward;
            open[k] = !found.terminated;
            all[k].1 = found.state;
        }
    }
    earned / STARTS as f64
}

/// Kernel over states, and over states with actions; both with a large constant.
fn kernels(of: &Setting, width: usize) -> (Kernel, Kernel) {
    let relevance: Vec<f64> = of.lengths.iter().map(|length| 1.0 / (length * length)).collect();
    let action = std::iter::repeat_n(1.0 / (of.action_length * of.action_length), width);
    let with_action = relevance.iter().copied().chain(action).collect();
    (Kernel::gaussian(1.0, 10.0, Metric::Ard(relevance)), Kernel::gaussian(1.0, 10.0, Metric::Ard(with_action)))
}

/// Q by sweeps over the rows: its return, and the milliseconds that it took.
fn fitted(
    of: &Setting,
    space: &ActionSpace,
    seen: &Seen,
    before: &Basis,
    noise_variance: f64,
) -> Result<(f64, f64), Box<dyn Error>> {
    let value = ActionValue { space: space.clone(), successor: Successor::Improve, trace: Trace::OnPolicy };
    let (dim, n) = (before.dim(), seen.terminated.len());
    let mut rows = Rows::new(dim, 1);
    rows.states.clone_from(&seen.inputs);
    let pairs = seen.successors.chunks_exact(of.lengths.len()).zip(seen.inputs.chunks_exact(dim));
    pairs.for_each(|(next, input)| rows.next_states.extend(next.iter().chain(&input[of.lengths.len()..])));
    rows.rewards.clone_from(&seen.rewards);
    rows.terminated.clone_from(&seen.terminated);
    (rows.discounts, rows.ratios, rows.streams) = (vec![f64::NAN; n], vec![1.0; n], vec![0; n]);
    (rows.truncated, rows.starts_chain) = (vec![false; n], vec![true; n]);
    let settings = Settings {
        action_value: Some(value),
        discount: of.discount,
        lambda: Lambda::Fixed(0.0),
        estimate_scale: false,
        variance: VarianceKind::Model,
        ..Settings::default()
    };
    let kernel = before.dictionary().kernel().clone();
    let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance };
    let mut dictionary = before.dictionary().clone();
    dictionary.close();
    let began = Instant::now();
    let mut model = Model::with_dictionary(settings, before.inputs().clone(), &hyperparameters, dictionary);
    model.learn(&rows, 0..n, 0);
    let found = Improvement { model: &model, rows: &rows, space, before: None, copies: 0, seed: 1 }.run(&|| true)?;
    let took = began.elapsed().as_secs_f64() * 1e3;
    let mut snapshot = model.snapshot(false)?;
    found.act_by(&mut snapshot);
    let (candidates, width) = (space.candidates(), space.width());
    let earned = returns(of, space, &mut |states| {
        let of = |x: &[f64]| -> Vec<f64> { candidates.chunks_exact(width).flat_map(|a| [x, a].concat()).collect() };
        let inputs: Vec<f64> = states.chunks_exact(dim - width).flat_map(of).collect();
        snapshot.evaluate(&inputs, Ask::MEAN).expect("inputs of the model").mean.as_slice().to_vec()
    });
    Ok((earned, took))
}

/// The model and what its plans are made of.
struct Planner<'a> {
    of: &'a Setting,
    space: &'a ActionSpace,
    dynamics: &'a Dynamics,
    candidates: Vec<f64>,
}

impl Planner<'_> {
    /// The reward as an expression at states (n, D) with each action.
    fn known(&self, states: &[f64]) -> Vec<f64> {
        let actions: Vec<f64> =
            self.candidates.chunks_exact(self.space.width()).map(|a| self.space.action_of(a)[0]).collect();
        let of = |x: &[f64]| -> Vec<f64> { actions.iter().map(|a| (self.of.reward)(x, *a)).collect() };
        states.chunks_exact(self.of.lengths.len()).flat_map(of).collect()
    }

    /// Probabilities (n, A) of the policy to be judged at states (n, D), of the two candidates that its action lies between.
    fn judged(&self, states: &[f64]) -> Vec<f64> {
        let actions: Vec<f64> =
            self.candidates.chunks_exact(self.space.width()).map(|a| self.space.action_of(a)[0]).collect();
        let gap = actions[1] - actions[0];
        let of = |x: &[f64]| -> Vec<f64> {
            let action = (self.of.policy)(x);
            actions.iter().map(|a| (1.0 - (a - action).abs() / gap).max(0.0)).collect()
        };
        states.chunks_exact(self.of.lengths.len()).flat_map(of).collect()
    }

    /// Mean discounted return of the policy to be judged from the starts: by the model, and in the task.
    /// Not a number where the model refuses.
    fn judge(&self, at_c: &Table) -> Result<(f64, f64), Box<dyn Error>> {
        let mut all: Vec<_> = (0..STARTS as u64).map(|start| (self.of.start)(mix(&[99, start]))).collect();
        let states: Vec<f64> = all.iter().flat_map(|(_, state)| state.clone()).collect();
        let at = self.dynamics.table(&states, &self.candidates)?;
        let policy = self.judged(&self.dynamics.after().states());
        let value = match at_c.evaluate(&policy, at_c.rewards(), self.of.discount) {
            Ok(found) => {
                let q = found.action_values(&at, at.rewards())?;
                q.col(0).iter().zip(self.judged(&states)).map(|(q, p)| q * p).sum()
            }
            Err(WorldError::Unstable { .. }) => f64::NAN,
            Err(error) => return Err(error.into()),
        };
        let mut earned = 0.0;
        for (task, state) in &mut all {
            for step in 0..HORIZON {
                let found = task.step(&[(self.of.policy)(state)]);
                earned += self.of.discount.powi(step) * found.reward;
                *state = found.state;
                if found.terminated {
                    break;
                }
            }
        }
        Ok((value / STARTS as f64, earned / STARTS as f64))
    }

    /// Plan on the table of C: the return, the share of unsupported actions that were preferred, and the milliseconds.
    fn run(&self, at_c: &Table, known: bool, hull: Option<&Matrix>) -> Result<(f64, f64, f64), Box<dyn Error>> {
        let states = self.dynamics.after().states();
        let rewards = if known { self.known(&states) } else { at_c.rewards().col(0).to_vec() };
        let planning = Planning {
            rewards: &rewards,
            discount: self.of.discount,
            bounds: None,
            unsupported_above: Some(UNSUPPORTED_ABOVE),
        };
        let began = Instant::now();
        let plan = at_c.plan(&planning)?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        let (mut far, mut all) = (0.0, 0.0);
        let earned = returns(self.of, self.space, &mut |states| {
            let at = self.dynamics.table(states, &self.candidates).expect("states of the task");
            let at = hull.map_or_else(|| at.clone(), |hull| at.projected(hull));
            let rewards = if known { self.known(states) } else { at.rewards().col(0).to_vec() };
            let q = plan.action_values(&at, &rewards).expect("as many rewards as entries");
            far += at.unsupported_share(UNSUPPORTED_ABOVE, Some(&Plan::policy(at.actions(), &q)));
            all += 1.0;
            q
        });
        Ok((earned, far / all, took))
    }
}

fn measure(of: &Setting, size: Size, seed: u64) -> Result<(), Box<dyn Error>> {
    let space = (of.start)(0).0.space();
    let seen = gather(of, size.rows, &space, seed);
    let (states, inputs) = (of.lengths.len(), of.lengths.len() + space.width());
    let (over_states, over_inputs) = kernels(of, space.width());
    let (d, m) = size.elements;
    let (before, _) = Basis::pivots(Inputs::identity(inputs), &over_inputs, &seen.inputs, 1e-6, d);
    let (after, _) = Basis::pivots(Inputs::identity(states), &over_states, &seen.successors, 1e-6, m);
    let (fitted, fitting) = fitted(of, &space, &seen, &before, size.noise_variance)?;
    let began = Instant::now();
    let mut world = World::new(before, after, 1)?;
    let Seen { inputs, successors, rewards, terminated, .. } = &seen;
    world.learn(&Transitions { inputs, successors, rewards, terminated })?;
    let dynamics = world.solve(size.noise_variance, LOST_MAX)?;
    let learning = began.elapsed().as_secs_f64() * 1e3;
    let candidates = space.candidates();
    let began = Instant::now();
    let at_c = dynamics.table(&dynamics.after().states(), &candidates)?;
    let tabled = began.elapsed().as_secs_f64() * 1e3;
    let planner = Planner { of, space: &space, dynamics: &dynamics, candidates };
    let (observed, far, took) = planner.run(&at_c, false, None)?;
    let (known, ..) = planner.run(&at_c, true, None)?;
    let hull = dynamics.hull();
    let (projected, ..) = planner.run(&at_c.projected(&hull), false, Some(&hull))?;
    let (judged, truth) = planner.judge(&at_c)?;
    let (d, m) = (dynamics.before().len(), dynamics.after().len());
    println!(
        "{:12} {seed:4} {d:4} {m:4} {:6.3} {fitted:8.1} {observed:8.1} {known:8.1} {projected:8.1} {:5.1} % {judged:7.2} {truth:7.2} {learning:7.0} {tabled:6.0} {took:6.1} {fitting:7.0}",
        of.name,
        world.lost().unwrap_or(0.0),
        100.0 * far,
    );
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let (mut task, mut said) = (None, HashMap::new());
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.strip_prefix("--") {
            Some(name) => {
                _ = said.insert(name.to_owned(), words.next().ok_or("an option has a value")?.parse::<f64>()?)
            }
            None => task = Some(word),
        }
    }
    let mut number = |name: &str, or: f64| said.remove(name).unwrap_or(or);
    let (seeds, longer, alike) = (number("seeds", 3.0) as u64, number("widths", 1.0), number("action-widths", 1.0));
    let discount = number("discount", f64::NAN);
    let size = Size {
        rows: number("rows", 4000.0) as usize,
        elements: (number("elements", 300.0) as usize, number("states", 150.0) as usize),
        noise_variance: number("noise", 1e-2),
    };
    if let Some(name) = said.keys().next() {
        return Err(format!("there is no option --{name}").into());
    }
    println!(
        "task         seed    d    m   lost   fitted     plan    known  project    far   value    true     fit  table   plan  fitted"
    );
    for mut of in settings().into_iter().filter(|of| task.as_ref().is_none_or(|task| task == of.name)) {
        of.lengths.iter_mut().for_each(|length| *length *= longer);
        of.action_length *= alike;
        of.discount = if discount.is_nan() { of.discount } else { discount };
        for seed in 0..seeds {
            measure(&of, size, seed)?;
        }
    }
    Ok(())
}
