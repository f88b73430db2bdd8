//! An 11 x 11 gridworld of which only one coordinate matters \[JS09, 6.2\].
//!
//! Every step costs 1 and goes one column towards x = 6 and one row up or down with equal probability, as far as the walls
//! allow. A state with x = 6 ends the episode: reward 0, and the next one starts in a random state. Hence at discount 1
//! the value is -|x - 6|, whatever y.

use super::Step;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Columns and rows are numbered from 1 to this.
pub const SIZE: i32 = 11;
/// The column that ends an episode.
pub const GOAL: i32 = 6;

/// The gridworld under its policy. State: (x, y). Action: the move in x, 0 in the last step of an episode.
#[derive(Clone, Debug)]
pub struct Gridworld {
    rng: ChaCha8Rng,
    cell: [i32; 2],
    seq: u64,
}

impl Gridworld {
    /// A run from `seed`.
    pub fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let cell = random_cell(&mut rng);
        Self { rng, cell, seq: 0 }
    }

    /// Take one step. The one out of x = 6 is terminated: it leads to the absorbing state (written as the state itself),
    /// not to the cell where the next episode starts.
    pub fn step(&mut self) -> Step {
        let [x, y] = self.cell;
        let direction = (GOAL - x).signum();
        let terminated = direction == 0;
        let next = if terminated {
            self.cell
        } else {
            let sideways = if self.rng.random::<bool>() { 1 } else { -1 };
            [x + direction, (y + sideways).clamp(1, SIZE)]
        };
        let step = Step {
            seq: self.seq,
            state: self.cell.map(f64::from).to_vec(),
            action: f64::from(direction),
            reward: if terminated { 0.0 } else { -1.0 },
            next_state: next.map(f64::from).to_vec(),
            terminated,
            truncated: false,
        };
        self.seq += 1;
        self.cell = if terminated { random_cell(&mut self.rng) } else { next };
        step
    }
}

/// True value in column `x`: minus the discounted number of steps to x = 6.
pub fn true_value(x: i32, discount: f64) -> f64 {
    -(0..(x - GOAL).abs()).map(|k| discount.powi(k)).sum::<f64>()
}

fn random_cell(rng: &mut ChaCha8Rng) -> [i32; 2] {
    [rng.random_range(1..=SIZE), rng.random_range(1..=SIZE)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(seed: u64) -> Vec<Step> {
        let mut grid = Gridworld::new(seed);
        (0..10_000).map(|_| grid.step()).collect()
    }

    #[test]
    fn the_seed_decides_everything() {
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2));
    }

    #[test]
    fn returns_equal_true_values() {
        let (steps, discount) = (run(3), 0.9);
        let last = steps.iter().rposition(|s| s.terminated).unwrap();
        let mut value = 0.0;
        for step in steps[..=last].iter().rev() {
            value = step.reward + if step.terminated { 0.0 } else { discount * value };
            assert!((value - true_value(step.state[0] as i32, discount)).abs() < 1e-12);
        }
        assert_eq!((true_value(1, 1.0), true_value(6, 1.0), true_value(8, 1.0)), (-5.0, 0.0, -2.0));
    }

    #[test]
    fn only_the_goal_ends_an_episode() {
        for pair in run(4).windows(2) {
            assert_eq!(pair[0].terminated, pair[0].state[0] == f64::from(GOAL));
            assert!(pair[0].terminated || pair[0].next_state == pair[1].state);
            assert!(pair[1].state.iter().all(|v| (1.0..=f64::from(SIZE)).contains(v)));
        }
        let cells: std::collections::HashSet<Vec<i32>> =
            run(5).iter().map(|s| s.state.iter().map(|&v| v as i32).collect()).collect();
        assert_eq!(cells.len(), 121, "all cells are visited");
    }
}
