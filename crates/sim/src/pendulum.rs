//! Swing-up of a pendulum whose motor is too weak to lift it at once \[JS09, 6.1\].
//!
//! ```text
//! phi'' = g sin(phi) - mu phi' + u      |u| <= 5 N m, g = 9.81 / s^2, mu = 0.01 / s, mass and length 1
//! reward = -0.05 (phi^2 + 0.2 phi'^2)   for each step of 0.05 s, at the state that the step leaves
//! ```
//! phi is the angle from upright in [-pi, pi), so the bottom lies at both ends of the axis. Holding the pendulum against
//! gravity at 90 degrees would take 9.81 N m: it has to gather energy in swings. An episode starts anywhere in the state
//! space, terminates once the pendulum stands nearly still near the top, and is truncated after [`STEPS_MAX`] steps.
//!
//! The paper leaves reward, step and start distribution open and uses the optimal policy; ours is a rule of two parts:
//! drive the energy to the level of standing upright, and hold with a linear controller once that can succeed.

use super::Step;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::f64::consts::PI;

/// Largest torque of the motor, N m.
pub const TORQUE_MAX: f64 = 5.0;
/// Largest speed at the start of an episode, rad/s.
pub const SPEED_MAX: f64 = 8.0;
/// Duration of a step, s; the torque is constant within it.
pub const STEP_S: f64 = 0.05;
/// Steps after which an episode is truncated.
pub const STEPS_MAX: u32 = 60;

const GRAVITY: f64 = 9.81;
const FRICTION: f64 = 0.01;
const SUBSTEPS: u32 = 5;

/// The pendulum under its policy. State: (phi in rad, phi' in rad/s). Action: torque in N m.
#[derive(Clone, Debug)]
pub struct Pendulum {
    rng: ChaCha8Rng,
    noise: f64,
    state: [f64; 2],
    steps: u32,
    seq: u64,
}

impl Pendulum {
    /// A run from `seed`. The policy's torque is disturbed by up to `noise` N m either way (uniform), then limited;
    /// 0 makes everything after the start of an episode deterministic.
    ///
    /// # Panics
    /// If `noise` is negative or not finite.
    pub fn new(seed: u64, noise: f64) -> Self {
        assert!(noise >= 0.0 && noise.is_finite(), "noise is a torque of at least 0 N m");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let state = start(&mut rng);
        Self { rng, noise, state, steps: 0, seq: 0 }
    }

    /// Take one step; where it ends the episode, the next one starts at once.
    pub fn step(&mut self) -> Step {
        let state = self.state;
        let (torque, next) = advance(state, self.noise, &mut self.rng);
        self.steps += 1;
        let terminated = at_rest_on_top(next);
        let truncated = !terminated && self.steps == STEPS_MAX;
        let step = Step {
            seq: self.seq,
            state: state.to_vec(),
            action: torque,
            reward: reward(state),
            next_state: next.to_vec(),
            terminated,
            truncated,
        };
        self.seq += 1;
        self.state = next;
        if terminated || truncated {
            self.state = start(&mut self.rng);
            self.steps = 0;
        }
        step
    }

    /// Discounted return of one fresh run of the same policy from `state`, to its end whatever the step limit: a sample
    /// of the value there, and without noise the value itself. `seed` decides the noise; this run is not touched.
    /// Followed for at most 100 000 steps, or until what is left weighs less than 1e-9.
    ///
    /// # Panics
    /// If `discount` is not in [0, 1].
    pub fn rollout_return(&self, state: [f64; 2], discount: f64, seed: u64) -> f64 {
        assert!((0.0..=1.0).contains(&discount), "a discount lies in [0, 1]");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (mut state, mut total, mut weight) = ([wrap(state[0]), state[1]], 0.0, 1.0);
        for _ in 0..100_000 {
            total += weight * reward(state);
            state = advance(state, self.noise, &mut rng).1;
            weight *= discount;
            if at_rest_on_top(state) || weight < 1e-9 {
                break;
            }
        }
        total
    }
}

fn start(rng: &mut ChaCha8Rng) -> [f64; 2] {
    loop {
        let state = [rng.random_range(-PI..PI), rng.random_range(-SPEED_MAX..SPEED_MAX)];
        if !at_rest_on_top(state) {
            return state;
        }
    }
}

/// Torque and next state.
fn advance(state: [f64; 2], noise: f64, rng: &mut ChaCha8Rng) -> (f64, [f64; 2]) {
    let disturbance = noise * rng.random_range(-1.0..1.0);
    let torque = (policy(state) + disturbance).clamp(-TORQUE_MAX, TORQUE_MAX);
    (torque, integrate(state, torque, STEP_S))
}

/// Reward of a step that leaves this state.
pub fn reward([phi, speed]: [f64; 2]) -> f64 {
    -0.05 * (phi * phi + 0.2 * speed * speed)
}

/// The terminal region: within 6 degrees of upright and slower than 0.5 rad/s.
fn at_rest_on_top([phi, speed]: [f64; 2]) -> bool {
    phi.abs() < 0.1 && speed.abs() < 0.5
}

/// Energy of a unit mass on a unit rod, J; upright and at rest it is [`GRAVITY`].
fn energy([phi, speed]: [f64; 2]) -> f64 {
    0.5 * speed * speed + GRAVITY * phi.cos()
}

fn policy([phi, speed]: [f64; 2]) -> f64 {
    // Near the top, linear feedback: critically damped with natural frequency 3 rad/s. It takes over where the torque that
    // it asks for is within the motor's means, which is a band along the pendulum's own way up.
    let hold = -(GRAVITY + 9.0) * phi - 6.0 * speed;
    if phi.abs() < 0.5 && hold.abs() < 1.5 * TORQUE_MAX {
        return hold;
    }
    // Elsewhere torque along the motion adds energy, against it takes energy away. At rest either way will do.
    let direction = if speed < 0.0 { -1.0 } else { 1.0 };
    (5.0 * (GRAVITY - energy([phi, speed]))).clamp(-TORQUE_MAX, TORQUE_MAX) * direction
}

/// Where `torque`, N m, held for `duration` s leads: classical Runge-Kutta in short substeps. Any angle will do; the one
/// given back lies in [-pi, pi).
pub fn integrate(mut state: [f64; 2], torque: f64, duration: f64) -> [f64; 2] {
    let rate = |[phi, speed]: [f64; 2]| [speed, GRAVITY * phi.sin() - FRICTION * speed + torque];
    let dt = duration / f64::from(SUBSTEPS);
    for _ in 0..SUBSTEPS {
        let along = |k: [f64; 2], t: f64| [state[0] + t * k[0], state[1] + t * k[1]];
        let k1 = rate(state);
        let k2 = rate(along(k1, dt / 2.0));
        let k3 = rate(along(k2, dt / 2.0));
        let k4 = rate(along(k3, dt));
        state = std::array::from_fn(|i| state[i] + dt / 6.0 * (k1[i] + 2.0 * k2[i] + 2.0 * k3[i] + k4[i]));
    }
    [wrap(state[0]), state[1]]
}

/// The same angle in [-pi, pi).
fn wrap(phi: f64) -> f64 {
    let turned = (phi + PI).rem_euclid(2.0 * PI) - PI;
    // Rounding may give pi itself for an angle a hair below -pi.
    if turned < PI { turned } else { -PI }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_decides_everything() {
        let run = |seed| {
            let mut pendulum = Pendulum::new(seed, 0.5);
            (0..500).map(|_| pendulum.step()).collect::<Vec<_>>()
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn without_torque_only_friction_takes_energy() {
        for start in [[3.0, 0.0], [-1.0, 2.0], [0.1, -6.0]] {
            let mut state = start;
            for _ in 0..100 {
                let next = integrate(state, 0.0, STEP_S);
                // dE/dt = -mu phi'^2, and phi' changes by less than (g + ..) dt within a step.
                let fastest = state[1].abs().max(next[1].abs()) + GRAVITY * STEP_S;
                let lost = energy(state) - energy(next);
                assert!(lost > -1e-6 && lost < FRICTION * fastest * fastest * STEP_S + 1e-6, "{state:?} lost {lost}");
                state = next;
            }
        }
    }

    #[test]
    fn the_motor_is_too_weak_to_lift_it_at_once() {
        // Pushed steadily from the bottom, it stays below the horizontal.
        let mut state = [-PI, 0.0];
        for _ in 0..400 {
            state = integrate(state, TORQUE_MAX, STEP_S);
            assert!(state[0].abs() > PI / 2.0, "{state:?}");
        }
    }

    #[test]
    fn the_policy_reaches_the_top_from_everywhere() {
        let mut longest = 0;
        for noise in [0.0, 1.0] {
            let mut rng = ChaCha8Rng::seed_from_u64(0);
            for i in 0..=40 {
                for j in 0..=40 {
                    let mut state =
                        [wrap(-PI + 2.0 * PI * f64::from(i) / 40.0), SPEED_MAX * (f64::from(j) / 20.0 - 1.0)];
                    let start = state;
                    let mut steps = 0;
                    while !at_rest_on_top(state) {
                        state = advance(state, noise, &mut rng).1;
                        steps += 1;
                        assert!(steps < 300, "from {start:?} with noise {noise} it has come to {state:?} only");
                    }
                    longest = longest.max(steps);
                }
            }
        }
        assert!(longest > 40, "some starts need swings, the longest took {longest} steps");
    }

    #[test]
    fn episodes_end_and_start_anew() {
        let mut pendulum = Pendulum::new(7, 0.2);
        let steps: Vec<Step> = (0..5000).map(|_| pendulum.step()).collect();
        for (k, pair) in steps.windows(2).enumerate() {
            assert_eq!(pair[0].seq, k as u64);
            let ended = pair[0].terminated || pair[0].truncated;
            assert_eq!(ended, pair[0].next_state != pair[1].state, "row {k}");
            assert!(pair[0].action.abs() <= TORQUE_MAX && pair[0].reward <= 0.0);
            assert!(pair[0].state[0].abs() <= PI);
        }
        let episodes = steps.iter().filter(|s| s.terminated).count();
        assert!((50..250).contains(&episodes), "{episodes} episodes");
        let spread = |i: usize, limit: f64| {
            steps.iter().any(|s| s.state[i] < -limit) && steps.iter().any(|s| s.state[i] > limit)
        };
        assert!(spread(0, 3.0) && spread(1, 7.0));
    }

    #[test]
    fn a_rollout_without_noise_agrees_with_the_run() {
        let mut pendulum = Pendulum::new(11, 0.0);
        let (mut expected, mut weight) = (0.0, 1.0);
        let first = pendulum.step();
        let from = [first.state[0], first.state[1]];
        let mut step = first;
        loop {
            expected += weight * step.reward;
            weight *= 0.99;
            assert!(!step.truncated, "choose another seed");
            if step.terminated {
                break;
            }
            step = pendulum.step();
        }
        assert!((pendulum.rollout_return(from, 0.99, 0) - expected).abs() < 1e-12);
    }
}
