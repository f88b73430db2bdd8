//! Some rows of many.

use super::Transitions;

/// Rows of some numbers, as columns of their own.
#[derive(Clone, Debug, Default)]
pub struct Part {
    pub(super) inputs: Vec<f64>,
    pub(super) successors: Vec<f64>,
    pub(super) rewards: Vec<f64>,
    pub(super) terminated: Vec<bool>,
}

impl Part {
    /// The rows of these numbers.
    pub fn of(rows: &Transitions<'_>, numbers: &[usize]) -> Self {
        let n = rows.terminated.len();
        let take = |from: &[f64]| -> Vec<f64> {
            let width = from.len() / n.max(1);
            numbers.iter().flat_map(|&i| from[i * width..(i + 1) * width].to_vec()).collect()
        };
        Self {
            inputs: take(rows.inputs),
            successors: take(rows.successors),
            rewards: take(rows.rewards),
            terminated: numbers.iter().map(|&i| rows.terminated[i]).collect(),
        }
    }

    /// Let go of all rows, and keep the memory.
    pub(super) fn clear(&mut self) {
        [&mut self.inputs, &mut self.successors, &mut self.rewards].into_iter().for_each(Vec::clear);
        self.terminated.clear();
    }

    /// As the model learns them.
    pub fn rows(&self) -> Transitions<'_> {
        let Self { inputs, successors, rewards, terminated } = self;
        Transitions { inputs, successors, rewards, terminated }
    }
}
