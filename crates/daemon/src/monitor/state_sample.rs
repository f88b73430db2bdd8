//! A sample of the states that were visited last, and of the actions taken there.

use super::number;
use crate::hindsight::{At, action_of, scattered};
use crate::learner::window::Window;
use crate::snapshot::Snapshot;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// States kept, and how many are taken each time rows come.
const STATES: usize = 2048;
const STATES_EACH: usize = 64;

/// A state (D,) and the action (A,) taken there; empty where rows have none.
#[derive(Debug)]
struct VisitedPlace {
    state: Vec<f64>,
    action: Vec<f64>,
}

/// The states, newest last.
#[derive(Debug, Default)]
pub(crate) struct Visited {
    states: VecDeque<VisitedPlace>,
    /// Offset behind the last row that was looked at.
    seen: u64,
}

impl Visited {
    /// Take some of the new rows of `window`, spread over them.
    pub(crate) fn take(&mut self, window: &Window) {
        let from = self.seen.max(window.start());
        self.seen = window.end();
        let mut wanted = scattered(from..window.end(), STATES_EACH).peekable();
        for (rows, range, first) in window.since(from) {
            while let Some(offset) = wanted.next_if(|offset| *offset < first + range.len() as u64) {
                if self.states.len() == STATES {
                    self.states.pop_front();
                }
                let i = range.start + (offset - first) as usize;
                self.states.push_back(VisitedPlace { state: rows.state(i).to_vec(), action: rows.action(i).to_vec() });
            }
        }
    }

    /// States of `dim` numbers, newest first.
    pub(crate) fn of_dim(&self, dim: usize) -> Vec<&[f64]> {
        self.states.iter().rev().map(|place| place.state.as_slice()).filter(|state| state.len() == dim).collect()
    }

    /// Where a model's values are asked for, newest first: the states, and for values of actions the actions taken there as well.
    pub(crate) fn places<'a>(&'a self, model: &Snapshot) -> Vec<At<'a>> {
        let dim = model.state_dim();
        let places = self.states.iter().rev().filter(|place| place.state.len() == dim);
        match &model.actions {
            None => places.map(|place| At { state: &place.state, action: None }).collect(),
            Some(of) => {
                let with_action = |place: &'a VisitedPlace| {
                    Some(At { state: &place.state, action: Some(action_of(&of.space, &place.action)?) })
                };
                places.filter_map(with_action).collect()
            }
        }
    }

    /// Where they lie: nearly all, and the middle, of each state variable.
    pub(crate) fn spread(&self) -> Value {
        let dim = self.states.back().map_or(0, |place| place.state.len());
        let mut quantiles = [Vec::new(), Vec::new(), Vec::new()];
        for axis in 0..dim {
            let mut values: Vec<f64> = self.states.iter().map(|place| place.state[axis]).collect();
            for (out, q) in quantiles.iter_mut().zip([0.005, 0.5, 0.995]) {
                let place = ((values.len() - 1) as f64 * q).round() as usize;
                out.push(number(*values.select_nth_unstable_by(place, f64::total_cmp).1));
            }
        }
        let [low, median, high] = quantiles;
        json!({"low": low, "median": median, "high": high})
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Row, push};
    use super::*;

    #[test]
    fn states_of_all_steps_are_taken_whatever_the_length_of_episodes() {
        let mut window = Window::new(1, 1, 100_000);
        let (mut visited, mut steps) = (Visited::default(), 0u32);
        for rows in [1280, 30, 640, 6400] {
            for _ in 0..rows {
                let step = steps % 20;
                let row =
                    Row { stream: 0, starts: step == 0, state: f64::from(step), reward: 0.0, terminated: step == 19 };
                push(&mut window, &row);
                steps += 1;
            }
            visited.take(&window);
        }
        let states = visited.of_dim(1);
        assert_eq!(states.len(), 3 * STATES_EACH + 30);
        let of = |step: u32| states.iter().filter(|state| state[0] == f64::from(step)).count();
        assert!((0..20).all(|step| (2..30).contains(&of(step))), "{:?}", (0..20).map(of).collect::<Vec<_>>());
        assert_eq!(scattered(5..9, 10).collect::<Vec<u64>>(), [5, 6, 7, 8]);
        assert_eq!(scattered(9..9, 10).count(), 0);
    }
}
