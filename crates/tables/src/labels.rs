//! Further reward columns, and labels, for a table that has been read.

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

    /// Put labels beside the rows, which they name by their numbers from 0: heads of these labels learn from them.
    pub fn add_labels(&mut self, labels: &Labels) {
        let count = self.rows.len();
        self.rows.labels.add(labels, count);
    }
}
