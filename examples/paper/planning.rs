//! Tasks to plan in, rows of them, and what a policy earns there.

use criticd::learner::action::{ActionSpace, ActionValue, Successor, Trace, first_largest};
use criticd::learner::improve::Improvement;
use criticd::learner::model::Model;
use criticd::learner::random::{mix, uniform};
use criticd::learner::{Lambda, Settings, VarianceKind};
use criticd::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd::sim::tasks::{CartPole, MountainCar, Outcome, Quadrocopter, Swingup, Task};
use criticd::snapshot::{Ask, Inputs, Snapshot};
use criticd::transition::Rows;
use criticd::world::{Basis, Transitions};
use std::error::Error;
use std::f64::consts::PI;
use std::time::Instant;

/// Places that returns are counted from.
pub(crate) const STARTS: usize = 20;
/// Share of the signal variance below which nothing is left of any state.
const TOLERANCE: f64 = 1e-6;
/// Steps of a chain of rows, at most.
const CHAIN: u64 = 10;

/// A task under way, and the state it is in.
pub(crate) type Begun = (Box<dyn Task>, Vec<f64>);

/// The actions (k,) of a policy in states (k, D), by their numbers or what a box has of one number.
pub(crate) type Policy<'a> = &'a mut dyn FnMut(&[f64]) -> Vec<f64>;

/// A task, and what is chosen for it by hand.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    pub(crate) discount: f64,
    /// Steps that a return has, at most.
    pub(crate) steps: usize,
    /// Lengthscale of each number of the state, and of the action.
    pub(crate) lengths: Vec<f64>,
    pub(crate) action_length: f64,
    /// The task in a state drawn from wherever chains begin, and in one from where returns are counted.
    pub(crate) anywhere: fn(u64) -> Begun,
    pub(crate) start: fn(u64) -> Begun,
    /// The reward of a state and an action.
    pub(crate) reward: fn(&[f64], f64) -> f64,
    /// The action of a policy by hand.
    pub(crate) policy: fn(&[f64]) -> f64,
}

fn between(low: f64, high: f64, seed: u64, what: u64) -> f64 {
    low + (high - low) * uniform(mix(&[seed, what]))
}

/// Numbers within these on both sides of 0.
fn within<const N: usize>(limits: [f64; N], seed: u64) -> [f64; N] {
    std::array::from_fn(|d| between(-limits[d], limits[d], seed, d as u64))
}

fn swingup(seed: u64) -> Begun {
    let (task, state) = Swingup::at(between(-PI, PI, seed, 0), between(-8.0, 8.0, seed, 1));
    (Box::new(task), state)
}

fn car(seed: u64) -> Begun {
    let (task, state) = MountainCar::at(between(-1.2, 0.5, seed, 0), between(-0.07, 0.07, seed, 1));
    (Box::new(task), state)
}

fn pole(seed: u64) -> Begun {
    let (task, state) = CartPole::at(within([2.4, 2.0, 0.2, 2.0], seed));
    (Box::new(task), state)
}

fn quadrocopter(seed: u64) -> Begun {
    let (task, state) = Quadrocopter::at(within([2.5, 2.5, 2.0, 2.0, 0.3], seed), seed);
    (Box::new(task), state)
}

fn begun<T: Task + Default + 'static>(seed: u64) -> Begun {
    let mut task = T::default();
    let state = task.start(seed);
    (Box::new(task), state)
}

/// Lean or climb, whichever acceleration is further from what brings it back.
fn hover(x: &[f64]) -> f64 {
    let [aside, upwards] = [0, 1].map(|d| -x[d] - 1.5 * x[d + 2]);
    match (aside.abs() > upwards.abs(), aside.abs().max(upwards.abs()) > 0.15) {
        (_, false) => 0.0,
        (true, _) => {
            if aside < 0.0 {
                1.0
            } else {
                2.0
            }
        }
        (false, _) => {
            if upwards < 0.0 {
                3.0
            } else {
                4.0
            }
        }
    }
}

pub(crate) fn settings() -> [Setting; 4] {
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
        Setting {
            name: "cart_pole",
            discount: 0.98,
            steps: CartPole::STEPS as usize,
            lengths: vec![2.0, 2.0, 0.2, 2.0],
            action_length: 2.0,
            anywhere: pole,
            start: begun::<CartPole>,
            reward: |_, _| 1.0,
            policy: |x| if 0.05 * x[0] + 0.1 * x[1] + x[2] + 0.2 * x[3] < 0.0 { 0.0 } else { 1.0 },
        },
        Setting {
            name: "quadrocopter",
            discount: 0.97,
            steps: Quadrocopter::STEPS as usize,
            lengths: vec![3.0, 3.0, 4.0, 4.0, 0.8],
            action_length: 2.0,
            anywhere: quadrocopter,
            start: begun::<Quadrocopter>,
            reward: |x, _| (-x[0] * x[0] - x[1] * x[1]).exp(),
            policy: hover,
        },
    ]
}

impl Setting {
    /// The actions there are.
    pub(crate) fn space(&self) -> ActionSpace {
        (self.start)(0).0.space()
    }

    /// The task in each of the states that returns are counted from.
    pub(crate) fn starts(&self) -> Vec<Begun> {
        (0..STARTS as u64).map(|start| (self.start)(mix(&[99, start]))).collect()
    }

    /// Kernel over states, and over states with actions, there with all lengthscales of the state times `bandwidth`; both with a large
    /// constant.
    pub(crate) fn kernels(&self, width: usize, bandwidth: f64) -> (Kernel, Kernel) {
        let relevance = |by: f64| self.lengths.iter().map(move |length| 1.0 / (by * length * by * length));
        let action = std::iter::repeat_n(1.0 / (self.action_length * self.action_length), width);
        let with_action = relevance(bandwidth).chain(action).collect();
        let of = |relevance| Kernel::gaussian(1.0, 10.0, Metric::Ard(relevance));
        (of(relevance(1.0).collect()), of(with_action))
    }

    /// The reward (n A,) in states (n, D) with each action of `space`.
    pub(crate) fn known(&self, space: &ActionSpace, states: &[f64]) -> Vec<f64> {
        let actions = numbers(space);
        let of = |x: &[f64]| -> Vec<f64> { actions.iter().map(|a| (self.reward)(x, *a)).collect() };
        states.chunks_exact(self.lengths.len()).flat_map(of).collect()
    }

    /// Mean return from the starts of a policy.
    pub(crate) fn returns(&self, act: Policy<'_>) -> f64 {
        let mut all = self.starts();
        let (mut earned, mut open) = (0.0, vec![true; STARTS]);
        for _ in 0..self.steps {
            let running: Vec<usize> = (0..STARTS).filter(|&k| open[k]).collect();
            if running.is_empty() {
                break;
            }
            let states: Vec<f64> = running.iter().flat_map(|&k| all[k].1.clone()).collect();
            for (&k, action) in running.iter().zip(act(&states)) {
                let found = all[k].0.step(&[action]);
                earned += found.reward;
                open[k] = !found.terminated;
                all[k].1 = found.state;
            }
        }
        earned / STARTS as f64
    }
}

/// What the candidates among the actions are called: their numbers, or what a box has of one number.
pub(crate) fn numbers(space: &ActionSpace) -> Vec<f64> {
    space.candidates().chunks_exact(space.width()).map(|a| space.action_of(a)[0]).collect()
}

/// The first of the actions with the largest of the values (k A,), in each of k states.
pub(crate) fn preferred(space: &ActionSpace, values: &[f64]) -> Vec<f64> {
    let actions = numbers(space);
    values.chunks_exact(actions.len()).map(|q| actions[first_largest(q)]).collect()
}

/// Inputs (n A, D + width) of states (n, D) with each candidate.
pub(crate) fn asked(space: &ActionSpace, states: &[f64], dim: usize) -> Vec<f64> {
    let (candidates, width) = (space.candidates(), space.width());
    let of = |x: &[f64]| -> Vec<f64> { candidates.chunks_exact(width).flat_map(|a| [x, a].concat()).collect() };
    states.chunks_exact(dim).flat_map(of).collect()
}

/// Rows in chains that begin anywhere, with (x, a) as inputs.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) inputs: Vec<f64>,
    pub(crate) successors: Vec<f64>,
    pub(crate) rewards: Vec<f64>,
    pub(crate) terminated: Vec<bool>,
    /// Number of the chain of each row.
    pub(crate) chains: Vec<u64>,
}

impl Seen {
    /// Add chains until there are `rows`: of random actions, or if there is a policy every second chain of its actions.
    pub(crate) fn gather(&mut self, of: &Setting, rows: usize, seed: u64, mut policy: Option<Policy<'_>>) {
        let space = of.space();
        for chain in self.chains.last().map_or(0, |last| last + 1).. {
            let (mut task, mut state) = (of.anywhere)(mix(&[seed, chain]));
            for step in 0..CHAIN {
                if self.terminated.len() == rows {
                    return;
                }
                let draw = mix(&[seed, chain, step]);
                let action = match (&mut policy, &space) {
                    (Some(act), _) if chain % 2 == 1 => act(&state)[0],
                    (_, ActionSpace::Discrete(count)) => (uniform(draw) * *count as f64).floor(),
                    (_, ActionSpace::Box { low, high }) => between(low[0], high[0], draw, 0),
                };
                let Outcome { state: next, reward, terminated, .. } = task.step(&[action]);
                self.rewards.push(reward);
                self.inputs.extend_from_slice(&state);
                space.append(&[action], &mut self.inputs).expect("an action of the space");
                self.successors.extend_from_slice(&next);
                self.terminated.push(terminated);
                self.chains.push(chain);
                if terminated {
                    break;
                }
                state = next;
            }
        }
    }

    pub(crate) fn rows(&self) -> Transitions<'_> {
        let Self { inputs, successors, rewards, terminated, .. } = self;
        Transitions { inputs, successors, rewards, terminated }
    }

    /// The successors (n, D) of rows that did not terminate.
    pub(crate) fn followed(&self) -> Vec<f64> {
        let dim = self.successors.len() / self.terminated.len();
        let pairs = self.successors.chunks_exact(dim).zip(&self.terminated);
        pairs.filter(|(_, ends)| !**ends).flat_map(|(next, _)| next.to_vec()).collect()
    }
}

/// Q by sweeps over rows.
pub(crate) struct Fitted {
    snapshot: Snapshot,
    space: ActionSpace,
    dim: usize,
    /// Milliseconds that it took.
    pub(crate) took: f64,
}

impl Fitted {
    /// In the features of `before`.
    pub(crate) fn of(of: &Setting, seen: &Seen, before: &Basis, noise_variance: f64) -> Result<Self, Box<dyn Error>> {
        let space = of.space();
        let value = ActionValue { space: space.clone(), successor: Successor::Improve, trace: Trace::OnPolicy };
        let (inputs, dim, n) = (before.dim(), of.lengths.len(), seen.terminated.len());
        let mut rows = Rows::new(inputs, 1);
        rows.states.clone_from(&seen.inputs);
        let pairs = seen.successors.chunks_exact(dim).zip(seen.inputs.chunks_exact(inputs));
        pairs.for_each(|(next, input)| rows.next_states.extend(next.iter().chain(&input[dim..])));
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
        let improvement = Improvement { model: &model, rows: &rows, space: &space, before: None, copies: 0, seed: 1 };
        let found = improvement.run(&|| true)?;
        let took = began.elapsed().as_secs_f64() * 1e3;
        let mut snapshot = model.snapshot(false)?;
        found.act_by(&mut snapshot);
        Ok(Self { snapshot, space, dim, took })
    }

    /// Q (k A,) in states (k, D).
    pub(crate) fn values(&self, states: &[f64]) -> Vec<f64> {
        let inputs = asked(&self.space, states, self.dim);
        self.snapshot.evaluate(&inputs, Ask::MEAN).expect("inputs of the model").mean.as_slice().to_vec()
    }
}

/// D of at most `max` of the inputs of rows, by pivots.
pub(crate) fn by_pivots(seen: &Seen, kernel: &Kernel, max: usize) -> Basis {
    let dim = seen.inputs.len() / seen.terminated.len();
    Basis::pivots(Inputs::identity(dim), kernel, &seen.inputs, TOLERANCE, max).0
}

/// C of at most `max` of these states (n, `dim`), by pivots.
pub(crate) fn successors_by_pivots(states: &[f64], dim: usize, kernel: &Kernel, max: usize) -> Basis {
    Basis::pivots(Inputs::identity(dim), kernel, states, TOLERANCE, max).0
}
