//! Solves that are kept from one posterior to the next.

use crate::math::dense::{Cholesky, Matrix, solve_lower, solve_lower_transposed, tight};
use crate::math::statistics::{Running, Statistics};
use serde::{Deserialize, Serialize};

/// Cached solves from which the weights are assembled by a low-rank (Woodbury) correction for the running chains.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct CachedSolves {
    /// A^-1 p, and A^-1 (gamma z) of each running chain (m, H + c).
    #[serde(serialize_with = "tight")]
    pub(super) columns: Matrix,
    /// Slots of those chains (c,).
    pub(super) slots: Vec<u32>,
}

impl CachedSolves {
    /// Solve for p and for each running chain's trace.
    pub(super) fn solve(&mut self, system: &Cholesky, statistics: &Statistics, running: &Running) {
        let (m, rewards, chains) = (statistics.features(), statistics.rewards(), running.chains());
        let columns = &mut self.columns;
        columns.resize(m, rewards + chains);
        (0..rewards).for_each(|h| columns.col_mut(h).copy_from_slice(statistics.response.col(h)));
        (0..chains).for_each(|k| columns.col_mut(rewards + k).copy_from_slice(running.traces().col(k)));
        solve_lower(system.factor().view(), columns.view_mut());
        solve_lower_transposed(system.factor().view(), columns.view_mut());
        self.slots.clear();
        self.slots.extend_from_slice(running.slots());
    }

    /// The column of the chain in `slot`, which is zero for one that has only begun.
    pub(super) fn column_of(&mut self, slot: u32, rewards: usize) -> usize {
        let known = self.slots.iter().position(|&other| other == slot);
        rewards
            + known.unwrap_or_else(|| {
                self.slots.push(slot);
                self.columns.resize(self.columns.rows(), rewards + self.slots.len());
                self.slots.len() - 1
            })
    }

    /// Put the columns in the order of `running`, and leave out the columns of chains that have ended.
    pub(super) fn arrange(&mut self, running: &Running, rewards: usize) {
        for (k, &slot) in running.slots().iter().enumerate() {
            let at = self.column_of(slot, rewards);
            if at != rewards + k {
                let (here, there) = self.columns.two_columns_mut(at, rewards + k);
                here.swap_with_slice(there);
                self.slots.swap(at - rewards, k);
            }
        }
        self.slots.truncate(running.chains());
        self.columns.resize(self.columns.rows(), rewards + running.chains());
    }
}
