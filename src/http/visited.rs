//! A sample of the states that were visited last.

use super::history::number;
use crate::learner::window::Window;
use serde_json::{Value, json};
use std::collections::VecDeque;

/// States kept, and how many are taken each time rows come.
const STATES: usize = 2048;
const STATES_EACH: usize = 64;

/// The states, newest last.
#[derive(Debug, Default)]
pub(super) struct Visited {
    states: VecDeque<Vec<f64>>,
    /// Offset behind the last row that was looked at.
    seen: u64,
}

impl Visited {
    /// Take some of the new rows of `window`, evenly spread over them.
    pub(super) fn take(&mut self, window: &Window) {
        let from = self.seen.max(window.start());
        self.seen = window.end();
        let step = (window.end() - from).div_ceil(STATES_EACH as u64).max(1);
        for (rows, range, first) in window.since(from) {
            let skipped = (first - from).next_multiple_of(step) - (first - from);
            for i in (range.start + skipped as usize..range.end).step_by(step as usize) {
                if self.states.len() == STATES {
                    self.states.pop_front();
                }
                self.states.push_back(rows.state(i).to_vec());
            }
        }
    }

    /// States of `dim` numbers, newest first.
    pub(super) fn of_dim(&self, dim: usize) -> Vec<&[f64]> {
        self.states.iter().rev().map(Vec::as_slice).filter(|state| state.len() == dim).collect()
    }

    /// Where they lie: nearly all, and the middle, of each state variable.
    pub(super) fn spread(&self) -> Value {
        let dim = self.states.back().map_or(0, Vec::len);
        let mut quantiles = [Vec::new(), Vec::new(), Vec::new()];
        for axis in 0..dim {
            let mut values: Vec<f64> = self.states.iter().map(|state| state[axis]).collect();
            for (out, q) in quantiles.iter_mut().zip([0.005, 0.5, 0.995]) {
                let place = ((values.len() - 1) as f64 * q).round() as usize;
                out.push(number(*values.select_nth_unstable_by(place, f64::total_cmp).1));
            }
        }
        let [low, median, high] = quantiles;
        json!({"low": low, "median": median, "high": high})
    }
}
