//! The states that averages, medians and shares are taken over.

use super::came::JOURNAL_ROWS_MAX;
use crate::commands::Failure;
use crate::commands::given::{plural, read_states_as};
use crate::commands::output::in_file;
use crate::daemon::archive;
use crate::daemon::survey::holds_journal;
use crate::learner::off_policy::shuffled;
use crate::snapshot::Snapshot;
use crate::table::Columns;
use std::path::Path;

/// Visited states that are kept.
const KEPT: usize = 2048;
/// Fixes which of them are kept: the same file gives the same picture.
const SEED: u64 = 1;

/// States as the model's variables have them.
pub(super) struct States {
    /// (n, D), in no order.
    all: Vec<Vec<f64>>,
    /// Whether they were visited; otherwise they are the dictionary's.
    pub(super) visited: bool,
}

impl States {
    /// The states of the dictionary (m, D), unit of the states.
    pub(super) fn of_dictionary(dictionary: &[Vec<f64>]) -> Self {
        Self { all: dictionary.to_vec(), visited: false }
    }

    /// The states of a table, or of the newest rows of a data directory.
    pub(super) fn read(path: &Path, columns: &Columns, snapshot: &Snapshot) -> Result<Self, Failure> {
        if snapshot.actions.is_some() {
            return Err(Failure::usage("--visited takes states, and this model has values of actions"));
        }
        let dim = snapshot.state_dim();
        let states: Vec<Vec<f64>> = if path.is_dir() && holds_journal(path) {
            let found = archive::newest(path, JOURNAL_ROWS_MAX).map_err(|e| in_file(path, e))?.rows;
            if !found.is_empty() && found.dim != dim {
                let other = found.dim;
                return Err(in_file(path, format!("states have {other} numbers, states of the model have {dim}")));
            }
            found.states.chunks_exact(dim).map(<[f64]>::to_vec).collect()
        } else {
            let found = read_states_as(path, columns, dim, "model")?;
            found.chunks_exact(dim).map(<[f64]>::to_vec).collect()
        };
        if states.is_empty() {
            return Err(in_file(path, "there is no state"));
        }
        Ok(Self::sample(states))
    }

    /// Some of these at random: evenly spaced ones would always be the same step of episodes of one length.
    fn sample(states: Vec<Vec<f64>>) -> Self {
        let order = shuffled(states.len(), SEED);
        Self { all: order.into_iter().take(KEPT).map(|k| states[k].clone()).collect(), visited: true }
    }

    pub(super) fn all(&self) -> &[Vec<f64>] {
        &self.all
    }

    /// At most `most` of them, spread over all.
    pub(super) fn some(&self, most: usize) -> impl Iterator<Item = &Vec<f64>> {
        let count = self.all.len().min(most);
        (0..count).map(move |k| &self.all[k * self.all.len() / count])
    }

    /// "64 visited states", where at most `most` are taken.
    pub(super) fn counted(&self, most: usize) -> String {
        let count = self.all.len().min(most);
        if self.visited {
            plural(count, "visited state")
        } else {
            format!("{} of the dictionary", plural(count, "state"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_of_all_steps_are_taken_whatever_the_length_of_episodes() {
        let steps = States::sample((0..40_000).map(|k| vec![f64::from(k % 20)]).collect());
        assert_eq!((steps.all().len(), steps.counted(64).as_str()), (KEPT, "64 visited states"));
        let of = |step: i32| steps.some(64).filter(|state| state[0] == f64::from(step)).count();
        assert!((0..20).filter(|step| of(*step) > 0).count() > 15);
        let kept = States::of_dictionary(&[vec![1.0]]);
        assert_eq!((kept.counted(64).as_str(), kept.some(9).count()), ("1 state of the dictionary", 1));
    }
}
