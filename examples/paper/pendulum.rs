//! The paper's section 6.1: swing-up of a pendulum under its optimal policy.
//!
//! The paper does not say what a step costs, how long it lasts, what is discounted, where episodes start and in which
//! coordinates it works. Two sets of choices are tried, of those with uniformly random starts: [`FORMULATIONS`].

use super::{Data, Scaling, Search, Selected, gram, mean_square_error, spectrum};
use criticd::math::dense::{Matrix, symmetric_eigen};
use criticd::math::dictionary;
use criticd::math::evidence::to_parameters;
use criticd::math::kernel::Metric;
use criticd::math::optimise::Bounds;
use criticd::sim::pendulum::{TORQUE_MAX, integrate, reward};
use criticd::transition::Rows;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::f64::consts::{PI, TAU};

/// Fastest that the pendulum can turn, rad/s: it is held back there.
pub(crate) const SPEED_MAX: f64 = 7.0;
/// Nodes of the grid of fitted value iteration along each axis.
pub(crate) const NODES: usize = 400;
/// Places along each axis at which values are compared.
pub(crate) const PLACES: usize = 50;
/// The paper's tolerance of incomplete Cholesky decomposition, value^2.
pub(crate) const TOLERANCE: f64 = 0.1;

const DISCOUNT: f64 = 0.99;
/// Least transitions of a sample: the episode under way then is completed.
const TRANSITIONS: usize = 1000;
const TORQUES: [f64; 5] = [-TORQUE_MAX, -0.5 * TORQUE_MAX, 0.0, 0.5 * TORQUE_MAX, TORQUE_MAX];
/// b, held where the paper's optima have it.
const BIAS: f64 = 0.1;

/// What the paper's text leaves open.
pub(crate) struct Formulation {
    /// For file names.
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    /// Duration of a step, s.
    pub(crate) step: f64,
    /// Whether coordinates are standardised over the sample; else they are divided by pi and by [`SPEED_MAX`].
    standardised: bool,
    /// Least noise variance, value^2.
    noise_floor: f64,
}

pub(crate) const FORMULATIONS: [Formulation; 2] = [
    Formulation {
        name: "closest",
        title: "closest in magnitude: steps of 0.04 s, standardised coordinates, sigma0^2 at least 0.05",
        step: 0.04,
        standardised: true,
        noise_floor: 0.05,
    },
    Formulation {
        name: "ordered",
        title: "full ordering: steps of 0.05 s, coordinates in [-1, 1], sigma0^2 at least 1e-5",
        step: 0.05,
        standardised: false,
        noise_floor: 1e-5,
    },
];

/// The optimal value function on a grid, and the policy that is greedy in it.
pub(crate) struct Optimal {
    step: f64,
    /// (speed, angle): angles k 2 pi / NODES - pi, speeds from -SPEED_MAX to SPEED_MAX.
    pub(crate) values: Vec<f64>,
    /// Sweeps over the grid until nothing changed by more than 1e-7.
    pub(crate) sweeps: usize,
}

/// Where a value is read off the grid: the lower left node and the shares of the way to the next.
#[derive(Clone, Copy)]
struct Place {
    angle: u32,
    speed: u32,
    right: f32,
    up: f32,
}

impl Place {
    fn of([phi, speed]: [f64; 2]) -> Self {
        let across = (phi + PI).rem_euclid(TAU) / TAU * NODES as f64;
        let up = (speed + SPEED_MAX) / (2.0 * SPEED_MAX) * (NODES - 1) as f64;
        let (angle, row) = ((across as usize).min(NODES - 1), (up as usize).min(NODES - 2));
        let shares = [across - angle as f64, up - row as f64].map(|v| v as f32);
        Self { angle: angle as u32, speed: row as u32, right: shares[0], up: shares[1] }
    }

    fn read(self, values: &[f64]) -> f64 {
        let (left, low) = (self.angle as usize, self.speed as usize * NODES);
        // Angles go round.
        let next = if left + 1 == NODES { 0 } else { left + 1 };
        let (s, t) = (f64::from(self.right), f64::from(self.up));
        let row = |at: usize| values[at + left] + s * (values[at + next] - values[at + left]);
        let (below, above) = (row(low), row(low + NODES));
        below + t * (above - below)
    }
}

impl Optimal {
    /// Fitted value iteration. Between two searches for the best torque the torques found are evaluated in twenty cheap
    /// sweeps (modified policy iteration): the fixed point is the same.
    pub(crate) fn solve(step: f64) -> Self {
        let state = |k: usize| {
            let speed = SPEED_MAX * (2.0 * (k / NODES) as f64 / (NODES - 1) as f64 - 1.0);
            [(k % NODES) as f64 * TAU / NODES as f64 - PI, speed]
        };
        let nodes: Vec<usize> = (0..NODES * NODES).filter(|&k| !on_top(state(k))).collect();
        let costs: Vec<f64> = nodes.iter().map(|&k| reward(state(k))).collect();
        // None where the step ends the episode: what follows is worth 0.
        let successors: Vec<[Option<Place>; TORQUES.len()]> = nodes
            .iter()
            .map(|&k| {
                TORQUES.map(|torque| {
                    let next = turn(state(k), torque, step);
                    (!on_top(next)).then(|| Place::of(next))
                })
            })
            .collect();
        let mut values = vec![0.0; NODES * NODES];
        let mut next = values.clone();
        let mut best = vec![0; nodes.len()];
        let read = |values: &[f64], place: &Option<Place>| DISCOUNT * place.map_or(0.0, |p| p.read(values));
        for sweep in 0.. {
            let mut change: f64 = 0.0;
            for (i, &k) in nodes.iter().enumerate() {
                if sweep % 20 == 0 {
                    let ahead = successors[i].each_ref().map(|place| read(&values, place));
                    best[i] = (0..ahead.len()).max_by(|&a, &b| ahead[a].total_cmp(&ahead[b])).expect("torques");
                    next[k] = costs[i] + ahead[best[i]];
                } else {
                    next[k] = costs[i] + read(&values, &successors[i][best[i]]);
                }
                change = change.max((next[k] - values[k]).abs());
            }
            std::mem::swap(&mut values, &mut next);
            if sweep % 20 == 0 && change < 1e-7 {
                return Self { step, values, sweeps: sweep };
            }
        }
        unreachable!("a discounted iteration converges")
    }

    /// The optimal value of `state`: 0 where the episode has ended.
    pub(crate) fn value(&self, state: [f64; 2]) -> f64 {
        if on_top(state) { 0.0 } else { Place::of(state).read(&self.values) }
    }

    /// Where the best torque leads.
    fn act(&self, state: [f64; 2]) -> [f64; 2] {
        let ahead = TORQUES.map(|torque| turn(state, torque, self.step));
        ahead.into_iter().max_by(|a, b| self.value(*a).total_cmp(&self.value(*b))).expect("torques")
    }
}

fn turn(state: [f64; 2], torque: f64, step: f64) -> [f64; 2] {
    let [phi, speed] = integrate(state, torque, step);
    [phi, speed.clamp(-SPEED_MAX, SPEED_MAX)]
}

/// Where episodes end.
fn on_top([phi, speed]: [f64; 2]) -> bool {
    phi.abs() < 0.2 && speed.abs() < 0.5
}

/// One seed in one formulation.
pub(crate) struct Run {
    /// States in which a step was taken, in rad and rad/s.
    pub(crate) states: Vec<[f64; 2]>,
    pub(crate) data: Data,
    pub(crate) scaling: Scaling,
    /// Completed episodes.
    pub(crate) episodes: usize,
    /// Mean squared difference between the returns of the sample and the optimal value: value iteration interpolates, so
    /// neither is its policy quite the best nor its value quite its policy's.
    pub(crate) returns_error: f64,
    /// (I), (II), (III).
    pub(crate) models: [Model; 3],
}

/// One covariance.
pub(crate) struct Model {
    pub(crate) selected: Selected,
    /// Mean squared error of the value in the states of the sample.
    pub(crate) on_samples: f64,
    /// And at [`places`].
    pub(crate) on_grid: f64,
    /// Residuals of incomplete Cholesky decomposition at its successive choices, value^2, falling; and the choices.
    pub(crate) residuals: Vec<f64>,
    pub(crate) pivots: Vec<usize>,
}

/// The centres of a grid over the state space.
pub(crate) fn places(count: usize) -> Vec<[f64; 2]> {
    let centre = |k: usize, half: f64| half * (2.0 * (k as f64 + 0.5) / count as f64 - 1.0);
    (0..count * count).map(|k| [centre(k % count, PI), centre(k / count, SPEED_MAX)]).collect()
}

/// Eigenvalues s_1 >= s_2 of Omega and the direction u_1, of which the second entry is positive.
pub(crate) fn principal(metric: &Metric) -> ([f64; 2], [f64; 2]) {
    let mut omega = Matrix::zeros(2, 2);
    for (d, a) in metric.relevance(2).into_iter().enumerate() {
        *omega.at_mut(d, d) += a;
    }
    for f in metric.factors() {
        for (i, j) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
            *omega.at_mut(i, j) += f[i] * f[j];
        }
    }
    let (values, vectors) = symmetric_eigen(&omega).expect("relevances are finite");
    let sign = vectors.at(1, 1).signum();
    ([values[1], values[0]], [sign * vectors.at(0, 1), sign * vectors.at(1, 1)])
}

/// Errors ||K - K~||_F after 0, 1, 2, ... choices.
pub(crate) fn approximation_errors(run: &Run, model: &Model) -> Vec<f64> {
    let mut rest = gram(&model.selected.hyper.kernel, 2, &run.data.rows.states);
    let n = rest.rows();
    let norm = |m: &Matrix| (0..n).map(|j| m.col(j).iter().map(|v| v * v).sum::<f64>()).sum::<f64>().sqrt();
    let mut out = vec![norm(&rest)];
    for &pivot in &model.pivots {
        let scale = 1.0 / rest.at(pivot, pivot).sqrt();
        let column: Vec<f64> = rest.col(pivot).iter().map(|v| v * scale).collect();
        for (j, c) in column.iter().enumerate() {
            rest.col_mut(j).iter_mut().zip(&column).for_each(|(r, v)| *r -= c * v);
        }
        out.push(norm(&rest));
    }
    out
}

/// Eigenvalues of K, greatest first.
pub(crate) fn eigenvalues(run: &Run, model: &Model) -> Vec<f64> {
    spectrum(&gram(&model.selected.hyper.kernel, 2, &run.data.rows.states))
}

/// Sample, and select each of the three covariances.
pub(crate) fn run(formulation: &Formulation, optimal: &Optimal, seed: u64) -> Run {
    let sample = Sample::new(optimal, seed);
    let scaling = if formulation.standardised {
        Scaling::standard(sample.states.as_flattened())
    } else {
        Scaling { shift: [0.0; 2], scale: [PI, SPEED_MAX] }
    };
    let episodes = sample.rows.terminated.iter().filter(|t| **t).count();
    let everywhere: Vec<[f64; 2]> = sample.rows.states.as_chunks().0.to_vec();
    let rows = Rows {
        states: scaling.of(&sample.rows.states),
        next_states: scaling.of(&sample.rows.next_states),
        ..sample.rows
    };
    let data = Data::new(rows, DISCOUNT);
    let search = |relevances: usize, entries: usize, starts: Vec<Vec<f64>>| {
        let mut lower = [1e-2, BIAS, formulation.noise_floor].map(f64::ln).to_vec();
        let mut upper = [1e4, BIAS, 1e2].map(f64::ln).to_vec();
        lower.extend(vec![1e-5f64.ln(); relevances]);
        upper.extend(vec![1e3f64.ln(); relevances]);
        lower.extend(vec![-30.0; entries]);
        upper.extend(vec![30.0; entries]);
        Search { bounds: Bounds { lower, upper }, starts, random: 4, stride: 2, seed }
    };
    let isotropic = data.select(&Metric::Isotropic(1.0), &search(1, 0, Vec::new()));
    let ard = data.select(&Metric::Ard(vec![1.0; 2]), &search(2, 0, Vec::new()));
    // From the optimum of ARD, a short or long direction along either diagonal. None at all would be a saddle.
    let from_ard = [0.1, 1.0, -0.1, -1.0].map(|length: f64| {
        let mut start = to_parameters(&ard.hyper);
        let a = ard.hyper.kernel.metric.relevance(2);
        start.extend([length.abs() * a[0].sqrt(), length * a[1].sqrt()]);
        start
    });
    let factor = Metric::Factor { relevance: vec![1.0; 2], factors: vec![vec![1.0; 2]] };
    let factor = data.select(&factor, &search(2, 2, from_ard.to_vec()));
    let truth = |at: &[[f64; 2]]| at.iter().map(|x| optimal.value(*x)).collect::<Vec<_>>();
    let grid = places(PLACES);
    let (true_samples, true_grid) = (truth(&sample.states), truth(&grid));
    let returns = isotropic.problem.observed().col(0);
    let returns_error = mean_square_error(returns, &truth(&everywhere));
    let models = [isotropic, ard, factor].map(|selected| {
        let posterior = selected.posterior();
        let error = |at: &[[f64; 2]], truth: &[f64]| {
            mean_square_error(posterior.mean(&scaling.of(at.as_flattened())).col(0), truth)
        };
        let (on_samples, on_grid) = (error(&sample.states, &true_samples), error(&grid, &true_grid));
        let (_, chosen) = dictionary::select(&selected.hyper.kernel, 2, &data.rows.states, 1e-4, data.rows.len());
        Model { on_samples, on_grid, residuals: chosen.residuals, pivots: chosen.indices, selected }
    });
    Run { states: sample.states, data, scaling, episodes, returns_error, models }
}

/// States chosen until none is explained worse than `tolerance`.
pub(crate) fn chosen(model: &Model, tolerance: f64) -> usize {
    model.residuals.partition_point(|r| *r > tolerance)
}

/// Transitions under the optimal policy, in rad and rad/s.
struct Sample {
    states: Vec<[f64; 2]>,
    rows: Rows,
}

impl Sample {
    /// The terminal state of each episode is a row of its own, with reward 0: the paper's transition out of it. The last
    /// episode too is completed, so that all models are given the same returns.
    fn new(optimal: &Optimal, seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut out = Self { states: Vec::new(), rows: Rows::new(2, 1) };
        while out.states.len() < TRANSITIONS {
            let mut state = [rng.random_range(-PI..PI), rng.random_range(-SPEED_MAX..SPEED_MAX)];
            let mut starts = true;
            while !on_top(state) {
                let next = optimal.act(state);
                out.states.push(state);
                out.push(state, next, reward(state), false, starts);
                (state, starts) = (next, false);
            }
            if !starts {
                out.push(state, state, 0.0, true, false);
            }
        }
        out
    }

    fn push(&mut self, state: [f64; 2], next: [f64; 2], reward: f64, terminated: bool, starts_chain: bool) {
        let rows = &mut self.rows;
        rows.states.extend(state);
        rows.next_states.extend(next);
        rows.rewards.push(reward);
        rows.discounts.push(f64::NAN);
        rows.ratios.push(1.0);
        rows.streams.push(0);
        rows.terminated.push(terminated);
        rows.truncated.push(false);
        rows.starts_chain.push(starts_chain);
    }
}
