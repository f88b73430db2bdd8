//! Simulators whose true values are known: for the demo, the examples and the tests.
//!
//! Each is a fixed policy in a small environment, started from an explicit seed; the same seed gives the same numbers on
//! every platform up to rounding of the mathematics library. An episode that ends is followed by the next one.

pub mod gridworld;
pub mod linear;
pub mod pendulum;
pub mod tasks;
pub mod throw;
pub mod walk;

use criticd_learner::transition::{Batch, BatchParts};

/// One transition of a simulator.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// Number of the transition in its run, from 0; lost transitions leave a gap.
    pub seq: u64,
    /// (D,), before the step.
    pub state: Vec<f64>,
    /// What the policy did; each simulator says what it means.
    pub action: f64,
    /// For this step.
    pub reward: f64,
    /// (D,), the true successor, also where the episode ends.
    pub next_state: Vec<f64>,
    /// Whether the successor is absorbing.
    pub terminated: bool,
    /// Whether the episode was cut off by its step limit.
    pub truncated: bool,
}

/// `steps`, in order, as messages of one stream and session; lost transitions split them.
///
/// # Panics
/// If a name is too long for the wire or the steps come from different simulators.
pub fn batches(stream: &str, session: &str, steps: &[Step]) -> Vec<Batch> {
    steps.chunk_by(|a, b| a.seq + 1 == b.seq).map(|run| batch(stream, session, run)).collect()
}

fn batch(stream: &str, session: &str, run: &[Step]) -> Batch {
    let parts = BatchParts {
        stream: stream.to_owned(),
        session: session.to_owned(),
        seq: Some(run[0].seq),
        dim: run[0].state.len(),
        rewards_per_row: 1,
        states: run.iter().flat_map(|s| s.state.iter().copied()).collect(),
        next_states: Some(run.iter().flat_map(|s| s.next_state.iter().copied()).collect()),
        rewards: run.iter().map(|s| s.reward).collect(),
        terminated: Some(run.iter().map(|s| s.terminated).collect()),
        truncated: Some(run.iter().map(|s| s.truncated).collect()),
        actions: Some(run.iter().map(|s| s.action).collect()),
        ..BatchParts::default()
    };
    Batch::new(parts).expect("simulators make valid transitions of one dimension")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_travel_as_messages_split_at_lost_rows() {
        let mut walk = walk::Walk::new(3, Some(10), 0.2);
        let steps: Vec<Step> = (0..100).map(|_| walk.step()).collect();
        let messages = batches("robot", "run", &steps);
        let gaps = steps.windows(2).filter(|w| w[0].seq + 1 < w[1].seq).count();
        assert!(gaps > 5);
        assert_eq!(messages.len(), gaps + 1);
        assert_eq!(messages.iter().map(Batch::len).sum::<usize>(), 100);
        assert_eq!((messages[1].stream(), messages[1].session()), ("robot", "run"));
        let first = &steps[messages[0].len()];
        assert_eq!((messages[1].seq(), messages[1].state(0)), (Some(first.seq), &first.state[..]));
        assert_eq!(messages[1].truncated(0), first.truncated);
    }
}
