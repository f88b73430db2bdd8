//! Tasks for a learner that acts: an agent starts with no knowledge of them, and chooses every action.
//!
//! Equations, limits and rewards are as in the environments of the same name in Gymnasium and bsuite, where there is one, so that
//! results can be put beside results of other agents. Everything random is a function of the seed with which an episode starts.

use criticd_learner::action::ActionSpace;
use criticd_learner::random::{mix, normal, uniform};
use std::f64::consts::PI;

/// The outcome of a step of a task.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// State behind the step (D,).
    pub state: Vec<f64>,
    /// For the step.
    pub reward: f64,
    /// Whether the state is absorbing.
    pub terminated: bool,
    /// Whether the step limit cuts the episode here.
    pub truncated: bool,
}

/// An environment with states and actions.
pub trait Task {
    /// Its name, as on the command line.
    fn name(&self) -> &'static str;
    /// Names of the state's numbers.
    fn state_names(&self) -> &'static [&'static str];
    /// The actions there are.
    fn space(&self) -> ActionSpace;
    /// Begin an episode. The state that it starts in.
    fn start(&mut self, seed: u64) -> Vec<f64>;
    /// Take one step of the episode. Of a discrete action the first number counts; the numbers of a box are limited to it.
    fn step(&mut self, action: &[f64]) -> Outcome;
}

/// Uniform in \[low, high) by number `what` of an episode's seed.
fn between(low: f64, high: f64, seed: u64, what: u64) -> f64 {
    low + (high - low) * uniform(mix(&[seed, what]))
}

/// Swing-up of a pendulum by a motor too weak to lift it at once: `Pendulum-v1`.
///
/// ```text
/// phi'' = 3 g / (2 l) sin phi + 3 u / (m l^2)     g = 10, m = l = 1, |u| <= 2, |phi'| <= 8, steps of 0.05 s
/// reward = -(phi^2 + 0.1 phi'^2 + 0.001 u^2)      at the state that the step leaves, phi from upright in \[-pi, pi)
/// ```
/// State: (cos phi, sin phi, phi'). An episode has 200 steps and is then truncated.
#[derive(Clone, Debug, Default)]
pub struct Swingup {
    angle: f64,
    speed: f64,
    steps: u32,
}

impl Swingup {
    /// Steps of an episode.
    pub const STEPS: u32 = 200;

    /// An episode that begins at `angle`, rad from upright, and `speed`, rad/s within 8; and its state.
    pub fn at(angle: f64, speed: f64) -> (Self, Vec<f64>) {
        let task = Self { angle, speed, steps: 0 };
        let state = task.state();
        (task, state)
    }

    fn state(&self) -> Vec<f64> {
        vec![self.angle.cos(), self.angle.sin(), self.speed]
    }
}

impl Task for Swingup {
    fn name(&self) -> &'static str {
        "swingup"
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["cos", "sin", "speed"]
    }

    fn space(&self) -> ActionSpace {
        ActionSpace::Box { low: vec![-2.0], high: vec![2.0] }
    }

    fn start(&mut self, seed: u64) -> Vec<f64> {
        *self = Self { angle: between(-PI, PI, seed, 0), speed: between(-1.0, 1.0, seed, 1), steps: 0 };
        self.state()
    }

    fn step(&mut self, action: &[f64]) -> Outcome {
        let torque = action[0].clamp(-2.0, 2.0);
        let angle = (self.angle + PI).rem_euclid(2.0 * PI) - PI;
        let reward = -(angle * angle + 0.1 * self.speed * self.speed + 0.001 * torque * torque);
        self.speed = (self.speed + (15.0 * self.angle.sin() + 3.0 * torque) * 0.05).clamp(-8.0, 8.0);
        self.angle += self.speed * 0.05;
        self.steps += 1;
        Outcome { state: self.state(), reward, terminated: false, truncated: self.steps == Self::STEPS }
    }
}

/// A pole balanced on a cart that is pushed left (0) or right (1): `CartPole-v1`.
///
/// State: (x in m, x' in m/s, theta in rad, theta' in rad/s). Each step of 0.02 s pays 1. An episode terminates where the cart
/// is further than 2.4 m from the middle or the pole leans by more than 12 degrees, and is truncated after 500 steps.
#[derive(Clone, Debug, Default)]
pub struct CartPole {
    state: [f64; 4],
    steps: u32,
}

impl CartPole {
    /// Steps of an episode at most.
    pub const STEPS: u32 = 500;

    /// An episode that begins in `state`, within 2.4 m and 12 degrees; and its state.
    pub fn at(state: [f64; 4]) -> (Self, Vec<f64>) {
        (Self { state, steps: 0 }, state.to_vec())
    }
}

/// Accelerations (x'', theta'') of cart and pole under a force: cart 1 kg, pole 0.1 kg, 1 m long.
fn cart_pole([_, _, theta, omega]: [f64; 4], force: f64) -> (f64, f64) {
    let (mass, pole, half) = (1.1, 0.05, 0.5);
    let (sin, cos) = theta.sin_cos();
    let along = (force + pole * omega * omega * sin) / mass;
    let turning = (9.8 * sin - cos * along) / (half * (4.0 / 3.0 - 0.1 * cos * cos / mass));
    (along - pole * turning * cos / mass, turning)
}

impl Task for CartPole {
    fn name(&self) -> &'static str {
        "cartpole"
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["position", "velocity", "angle", "turning"]
    }

    fn space(&self) -> ActionSpace {
        ActionSpace::Discrete(2)
    }

    fn start(&mut self, seed: u64) -> Vec<f64> {
        *self = Self { state: [0, 1, 2, 3].map(|d| between(-0.05, 0.05, seed, d)), steps: 0 };
        self.state.to_vec()
    }

    fn step(&mut self, action: &[f64]) -> Outcome {
        let (push, turning) = cart_pole(self.state, if action[0] == 1.0 { 10.0 } else { -10.0 });
        let [x, v, theta, omega] = self.state;
        self.state = [x + 0.02 * v, v + 0.02 * push, theta + 0.02 * omega, omega + 0.02 * turning];
        self.steps += 1;
        let terminated = self.state[0].abs() > 2.4 || self.state[2].abs() > 12.0f64.to_radians();
        let truncated = !terminated && self.steps == Self::STEPS;
        Outcome { state: self.state.to_vec(), reward: 1.0, terminated, truncated }
    }
}

/// A car in a valley whose motor is too weak for the hill: `MountainCar-v0` with the 1 000 steps of bsuite.
///
/// State: (position, velocity). Actions: 0 back, 1 none, 2 forward. Each step costs 1; the top of the hill terminates.
#[derive(Clone, Debug, Default)]
pub struct MountainCar {
    position: f64,
    speed: f64,
    steps: u32,
}

impl MountainCar {
    /// An episode that begins at `position`, from -1.2 to 0.5, and `speed`, within 0.07; and its state.
    pub fn at(position: f64, speed: f64) -> (Self, Vec<f64>) {
        (Self { position, speed, steps: 0 }, vec![position, speed])
    }
}

impl Task for MountainCar {
    fn name(&self) -> &'static str {
        "mountain_car"
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["position", "velocity"]
    }

    fn space(&self) -> ActionSpace {
        ActionSpace::Discrete(3)
    }

    fn start(&mut self, seed: u64) -> Vec<f64> {
        *self = Self { position: between(-0.6, -0.4, seed, 0), speed: 0.0, steps: 0 };
        vec![self.position, self.speed]
    }

    fn step(&mut self, action: &[f64]) -> Outcome {
        self.speed += (action[0] - 1.0) * 0.001 - 0.0025 * (3.0 * self.position).cos();
        self.speed = self.speed.clamp(-0.07, 0.07);
        self.position = (self.position + self.speed).clamp(-1.2, 0.6);
        if self.position == -1.2 {
            self.speed = self.speed.max(0.0);
        }
        self.steps += 1;
        let terminated = self.position >= 0.5;
        let truncated = !terminated && self.steps == 1000;
        Outcome { state: vec![self.position, self.speed], reward: -1.0, terminated, truncated }
    }
}

/// A quadrocopter that is to hover at the middle of a hall, in gusts. It moves in a vertical plane, and an autopilot holds its attitude.
///
/// ```text
/// x'' = (g + c) sin t - 0.3 x' + w      z'' = (g + c) cos t - g - 0.3 z' + w'      t' = (u - t) / 0.15 s      g = 9.81, steps of 0.1 s
/// reward = exp(-x^2 - z^2)              at the state that the step leaves, m from the middle
/// ```
/// w and w' are independent and normal, of 0.5 m/s^2, in every step. Actions: 0 hover (u = c = 0), 1 and 2 lean left and right (u = -0.3,
/// 0.3 rad), 3 and 4 sink and climb (c = -3, 3 m/s^2). State: (x, z in m, x', z' in m/s, t in rad). An episode terminates where the
/// quadrocopter is further than 3 m from the middle in x or z, and is truncated after 100 steps.
#[derive(Clone, Debug, Default)]
pub struct Quadrocopter {
    state: [f64; 5],
    /// Of the gusts.
    seed: u64,
    steps: u32,
}

impl Quadrocopter {
    /// Steps of an episode at most.
    pub const STEPS: u32 = 100;
    /// How far the walls are from the middle, m.
    const WALL: f64 = 3.0;

    /// An episode that begins in `state`, within 3 m of the middle, with the gusts of `seed`; and its state.
    pub fn at(state: [f64; 5], seed: u64) -> (Self, Vec<f64>) {
        (Self { state, seed, steps: 0 }, state.to_vec())
    }

    fn gust(&self, axis: u64) -> f64 {
        0.5 * normal(mix(&[self.seed, axis, u64::from(self.steps)]))
    }
}

impl Task for Quadrocopter {
    fn name(&self) -> &'static str {
        "quadrocopter"
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["across", "up", "speed_across", "speed_up", "tilt"]
    }

    fn space(&self) -> ActionSpace {
        ActionSpace::Discrete(5)
    }

    fn start(&mut self, seed: u64) -> Vec<f64> {
        let [x, z] = [0, 1].map(|d| between(-1.5, 1.5, seed, d));
        *self = Self { state: [x, z, 0.0, 0.0, 0.0], seed, steps: 0 };
        self.state.to_vec()
    }

    fn step(&mut self, action: &[f64]) -> Outcome {
        let (gravity, duration) = (9.81, 0.1);
        let (command, climb) = match action[0] as u32 {
            1 => (-0.3, 0.0),
            2 => (0.3, 0.0),
            3 => (0.0, -3.0),
            4 => (0.0, 3.0),
            _ => (0.0, 0.0),
        };
        let [mut x, mut z, mut across, mut up, mut tilt] = self.state;
        let reward = (-x * x - z * z).exp();
        tilt += duration * (command - tilt) / 0.15;
        let (sin, cos) = tilt.sin_cos();
        across += duration * ((gravity + climb) * sin - 0.3 * across + self.gust(2));
        up += duration * ((gravity + climb) * cos - gravity - 0.3 * up + self.gust(3));
        x += duration * across;
        z += duration * up;
        self.state = [x, z, across, up, tilt];
        self.steps += 1;
        let terminated = x.abs().max(z.abs()) > Self::WALL;
        let truncated = !terminated && self.steps == Self::STEPS;
        Outcome { state: self.state.to_vec(), reward, terminated, truncated }
    }
}

/// An N by N grid in which a diver sinks one row a step, and finds the treasure only by going right in every one of them:
/// `deep_sea` of bsuite. Which action goes right differs from cell to cell. Going right costs 0.01 / N, the treasure is worth 1.
///
/// State: (row, column). Deciding by chance finds the treasure once in 2^N episodes.
#[derive(Clone, Debug)]
pub struct DeepSea {
    size: usize,
    /// Which action goes right in each cell (N, N).
    right: Vec<bool>,
    row: usize,
    column: usize,
    left_path: bool,
}

impl DeepSea {
    /// A grid of `size` rows and columns, at least 1; `seed` decides which action goes right in each cell.
    pub fn new(size: usize, seed: u64) -> Self {
        assert!(size > 0, "a grid has cells");
        let right = (0..size * size).map(|cell| uniform(mix(&[seed, cell as u64])) < 0.5).collect();
        Self { size, right, row: 0, column: 0, left_path: false }
    }

    /// Whether this episode has left the only path to the treasure: bsuite calls such an episode bad.
    pub fn is_bad(&self) -> bool {
        self.left_path
    }

    fn state(&self) -> Vec<f64> {
        vec![self.row as f64, self.column as f64]
    }
}

impl Task for DeepSea {
    fn name(&self) -> &'static str {
        "deep_sea"
    }

    fn state_names(&self) -> &'static [&'static str] {
        &["row", "column"]
    }

    fn space(&self) -> ActionSpace {
        ActionSpace::Discrete(2)
    }

    fn start(&mut self, _seed: u64) -> Vec<f64> {
        (self.row, self.column, self.left_path) = (0, 0, false);
        self.state()
    }

    fn step(&mut self, action: &[f64]) -> Outcome {
        let right = (action[0] == 1.0) == self.right[self.row * self.size + self.column];
        let mut reward = 0.0;
        if right {
            if self.column == self.size - 1 {
                reward += 1.0;
            }
            reward -= 0.01 / self.size as f64;
            self.column = (self.column + 1).min(self.size - 1);
        } else {
            self.left_path |= self.row == self.column;
            self.column = self.column.saturating_sub(1);
        }
        self.row += 1;
        Outcome { state: self.state(), reward, terminated: self.row == self.size, truncated: false }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// States (of the pendulum behind the reward) of Gymnasium 1.4 after two steps from the states below.
    const CARTPOLE: [[f64; 4]; 2] =
        [[0.096, -0.005_625_066, 0.056, 0.023_495_852], [0.095_887_499, -0.201_503_531, 0.056_469_917, 0.333_308_359]];
    const PENDULUM: [[f64; 4]; 2] = [
        [-4.02725, -0.434_562_382, 0.900_641_735, 0.406_973_07],
        [-4.102_371_390, -0.469_456_424, 0.882_955_642, 0.782_454_371],
    ];
    const MOUNTAIN_CAR: [[f64; 2]; 2] = [[-0.489_176_843, 0.010_823_157], [-0.479_611_392, 0.009_565_451]];

    #[test]
    fn steps_are_those_of_gymnasium() {
        let close = |found: &[f64], expected: &[f64]| {
            assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?} {expected:?}");
        };
        let mut pole = CartPole { state: [0.1, -0.2, 0.05, 0.3], steps: 0 };
        close(&pole.step(&[1.0]).state, &CARTPOLE[0]);
        close(&pole.step(&[0.0]).state, &CARTPOLE[1]);
        let mut pendulum = Swingup { angle: 2.0, speed: -0.5, steps: 0 };
        let first = pendulum.step(&[1.5]);
        close(&[first.reward], &[PENDULUM[0][0]]);
        close(&first.state, &PENDULUM[0][1..]);
        let second = pendulum.step(&[-3.0]);
        close(&[second.reward], &[PENDULUM[1][0]]);
        close(&second.state, &PENDULUM[1][1..]);
        let mut car = MountainCar { position: -0.5, speed: 0.01, steps: 0 };
        close(&car.step(&[2.0]).state, &MOUNTAIN_CAR[0]);
        close(&car.step(&[0.0]).state, &MOUNTAIN_CAR[1]);
    }

    #[test]
    fn episodes_end_as_they_do_there() {
        let mut pole = CartPole::default();
        pole.start(1);
        let steps = (1..).find(|_| pole.step(&[1.0]).terminated);
        assert!(steps.is_some_and(|steps| (8..12).contains(&steps)), "{steps:?}");
        let mut pendulum = Swingup::default();
        pendulum.start(1);
        assert!((1..Swingup::STEPS).all(|_| !pendulum.step(&[0.0]).truncated) && pendulum.step(&[0.0]).truncated);
    }

    #[test]
    fn a_quadrocopter_leans_to_go_aside_and_hovers_for_its_reward() {
        let mean = |action: f64| {
            let mut sums = [0.0; 5];
            for seed in 0..400 {
                let (mut task, _) = Quadrocopter::at([0.5, 0.0, 0.0, 0.0, 0.0], seed);
                let first = task.step(&[action]);
                assert!((first.reward - (-0.25f64).exp()).abs() < 1e-15 && !first.terminated);
                sums.iter_mut().zip(first.state).for_each(|(sum, value)| *sum += value / 400.0);
            }
            sums
        };
        let [hover, left, right, sink, climb] = [0.0, 1.0, 2.0, 3.0, 4.0].map(mean);
        // The same gusts whatever is done: 3 m/s^2 for 0.1 s, and what a tilt of 0.2 rad makes of gravity.
        assert!((climb[3] - hover[3] - 0.3).abs() < 1e-12 && (sink[3] - hover[3] + 0.3).abs() < 1e-12);
        assert!((right[2] - hover[2] - 0.981 * 0.2f64.sin()).abs() < 1e-12 && (left[4] + 0.2).abs() < 1e-12);
        assert!(hover[2].abs() < 0.01 && hover[3].abs() < 0.01, "{hover:?}");
        let (mut task, _) = Quadrocopter::at([2.9, 0.0, 2.0, 0.0, 0.0], 1);
        assert!(task.step(&[0.0]).terminated);
    }

    #[test]
    fn the_treasure_is_at_the_end_of_one_path() {
        let mut sea = DeepSea::new(6, 3);
        sea.start(0);
        let mut earned = 0.0;
        for row in 0..6 {
            let action = f64::from(u8::from(sea.right[row * 6 + row]));
            let found = sea.step(&[action]);
            earned += found.reward;
            assert_eq!((found.terminated, sea.is_bad()), (row == 5, false));
        }
        assert!((earned - 0.99).abs() < 1e-12, "{earned}");
        sea.start(1);
        let wrong = f64::from(u8::from(!sea.right[0]));
        assert_eq!((sea.step(&[wrong]).state, sea.is_bad()), (vec![1.0, 0.0], true));
    }
}
