//! Further reward columns, or fewer, weights and labels, for a table that has been read.

use super::Table;
use criticd_learner::labels::Labels;

impl Table {
    /// The `seq` of row i as the file has it, or, in a file without one, the number of the row in its stream from 0.
    pub fn seq(&self, i: usize) -> u64 {
        self.places[i].seq
    }

    /// Add a reward column (n,) behind the others; its number.
    ///
    /// # Panics
    /// If there is not one value for each row.
    pub fn add_reward(&mut self, values: &[f64]) -> usize {
        let rows = &mut self.rows;
        assert_eq!(values.len(), rows.len(), "one value for each row");
        let before = rows.rewards_per_row;
        let widened =
            rows.rewards.chunks(before).zip(values).flat_map(|(row, value)| row.iter().chain([value])).copied();
        (rows.rewards, rows.rewards_per_row) = (widened.collect(), before + 1);
        before
    }

    /// Take the last reward of every row away (n,).
    ///
    /// # Panics
    /// If rows have one reward.
    pub fn take_last_reward(&mut self) -> Vec<f64> {
        let rows = &mut self.rows;
        let kept = rows.rewards_per_row - 1;
        assert!(kept > 0, "a reward is left");
        let taken = rows.rewards.chunks(kept + 1).map(|row| row[kept]).collect();
        rows.rewards = rows.rewards.chunks(kept + 1).flat_map(|row| &row[..kept]).copied().collect();
        rows.rewards_per_row = kept;
        taken
    }

    /// Let rows count so often (n,), in the place of their importance ratios.
    ///
    /// # Panics
    /// If there is not one for each row.
    pub fn set_ratios(&mut self, ratios: Vec<f64>) {
        assert_eq!(ratios.len(), self.rows.len(), "one ratio for each row");
        self.rows.ratios = ratios;
    }

    /// Put labels beside the rows, which they name by their numbers from 0: heads of these labels learn from them.
    pub fn add_labels(&mut self, labels: &Labels) {
        let count = self.rows.len();
        self.rows.labels.add(labels, count);
    }
}
