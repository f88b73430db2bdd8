//! A random walk over 19 states that separates estimators: noisy, endless, and cut as streams are cut.
//!
//! From state s = 1..=19 it goes to s - 1 or s + 1 with equal probability; where that would leave the row it stays. Leaving
//! state s pays (s - 10) / 9, from -1 to 1. Nothing ever terminates; a time limit and lost frames cut the chains.

use super::Step;
use nalgebra::{DMatrix, DVector};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Number of states.
pub const STATES: usize = 19;

/// The walk. State: one coordinate, (s - 10) / 9. Action: the move that was drawn, -1 or 1.
#[derive(Clone, Debug)]
pub struct Walk {
    rng: ChaCha8Rng,
    time_limit: Option<u32>,
    lost: f64,
    position: usize,
    steps: u32,
    seq: u64,
}

impl Walk {
    /// A run from `seed`. After `time_limit` steps, if there is one, it is truncated and restarts in a random state. Each
    /// step is lost with probability `lost`: it happens, but is not reported.
    ///
    /// # Panics
    /// If the limit is 0 or `lost` is not in [0, 1).
    pub fn new(seed: u64, time_limit: Option<u32>, lost: f64) -> Self {
        assert!(time_limit != Some(0), "an episode has at least one step");
        assert!((0.0..1.0).contains(&lost), "the fraction lost lies in [0, 1)");
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let position = rng.random_range(0..STATES);
        Self { rng, time_limit, lost, position, steps: 0, seq: 0 }
    }

    /// Take steps until one is not lost.
    pub fn step(&mut self) -> Step {
        loop {
            let step = self.advance();
            if self.lost == 0.0 || self.rng.random::<f64>() >= self.lost {
                return step;
            }
        }
    }

    fn advance(&mut self) -> Step {
        let right = self.rng.random::<bool>();
        let next = neighbour(self.position, right);
        self.steps += 1;
        let truncated = self.time_limit == Some(self.steps);
        let step = Step {
            seq: self.seq,
            state: vec![coordinate(self.position)],
            action: if right { 1.0 } else { -1.0 },
            reward: coordinate(self.position),
            next_state: vec![coordinate(next)],
            terminated: false,
            truncated,
        };
        self.seq += 1;
        self.position = next;
        if truncated {
            self.position = self.rng.random_range(0..STATES);
            self.steps = 0;
        }
        step
    }
}

/// Coordinates of all states, in order: from -1 to 1.
pub fn states() -> [f64; STATES] {
    std::array::from_fn(coordinate)
}

/// True values of all states, in order: the solution of V = r + discount P V.
///
/// # Panics
/// If `discount` is not in [0, 1).
pub fn true_values(discount: f64) -> DVector<f64> {
    assert!((0.0..1.0).contains(&discount), "values of an endless walk need a discount in [0, 1)");
    let mut system = DMatrix::identity(STATES, STATES);
    for s in 0..STATES {
        for right in [false, true] {
            system[(s, neighbour(s, right))] -= 0.5 * discount;
        }
    }
    let rewards = DVector::from_iterator(STATES, states());
    system.lu().solve(&rewards).expect("I - discount P is diagonally dominant")
}

/// Coordinate of, and reward for leaving, the state at `position` (counted from 0).
fn coordinate(position: usize) -> f64 {
    (position as f64 - 9.0) / 9.0
}

fn neighbour(position: usize, right: bool) -> usize {
    if right { (position + 1).min(STATES - 1) } else { position.saturating_sub(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(mut walk: Walk, steps: usize) -> Vec<Step> {
        (0..steps).map(|_| walk.step()).collect()
    }

    #[test]
    fn the_seed_decides_everything() {
        assert_eq!(run(Walk::new(1, Some(10), 0.1), 300), run(Walk::new(1, Some(10), 0.1), 300));
        assert_ne!(run(Walk::new(1, Some(10), 0.1), 300), run(Walk::new(2, Some(10), 0.1), 300));
    }

    #[test]
    fn a_plain_walk_is_one_chain() {
        let steps = run(Walk::new(1, None, 0.0), 2000);
        for pair in steps.windows(2) {
            assert_eq!(pair[0].seq + 1, pair[1].seq);
            assert_eq!(pair[0].next_state, pair[1].state);
            assert!(!pair[0].terminated && !pair[0].truncated);
            assert!(pair[0].state[0].abs() <= 1.0);
        }
    }

    #[test]
    fn limits_truncate_and_losses_leave_gaps() {
        let steps = run(Walk::new(1, Some(40), 0.05), 4000);
        let made = steps.last().unwrap().seq + 1;
        let lost = (made - 4000) as f64 / made as f64;
        assert!((lost - 0.05).abs() < 0.02, "lost {lost}");
        for step in &steps {
            assert_eq!(step.truncated, step.seq % 40 == 39);
        }
    }

    #[test]
    fn true_values_solve_the_equation_and_match_returns() {
        let (discount, values) = (0.95, true_values(0.95));
        for s in 0..STATES {
            let ahead = 0.5 * (values[neighbour(s, false)] + values[neighbour(s, true)]);
            assert!((values[s] - coordinate(s) - discount * ahead).abs() < 1e-12);
            assert!((values[s] + values[STATES - 1 - s]).abs() < 1e-12, "antisymmetric");
        }
        // Average discounted return over a long run, by state.
        let steps = run(Walk::new(5, None, 0.0), 200_000);
        let (mut value, mut sums, mut counts) = (0.0, [0.0; STATES], [0.0; STATES]);
        for step in steps.iter().rev() {
            value = step.reward + discount * value;
            let s = (step.state[0] * 9.0 + 9.0).round() as usize;
            sums[s] += value;
            counts[s] += 1.0;
        }
        for s in 0..STATES {
            assert!((sums[s] / counts[s] - values[s]).abs() < 0.5, "state {s}: {} {}", sums[s] / counts[s], values[s]);
        }
    }
}
