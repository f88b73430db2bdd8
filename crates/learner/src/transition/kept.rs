//! What rows keep of actions and times.

use super::{Batch, MAGNITUDE_MAX, Rows};
use std::ops::Range;

/// Numbers of an action that are kept at most: what rows take must not depend on the longest one that ever came.
pub const ACTION_NUMBERS_MAX: usize = 64;

/// Append the first `width` numbers of an action, with NaN for those that it does not have, or that are beyond
/// [`MAGNITUDE_MAX`].
pub(super) fn put_action(to: &mut Vec<f64>, action: &[f64], width: usize) {
    let kept = &action[..action.len().min(width)];
    to.extend(kept.iter().map(|&number| if number.abs() <= MAGNITUDE_MAX { number } else { f64::NAN }));
    to.extend(std::iter::repeat_n(f64::NAN, width - kept.len()));
}

impl Rows {
    /// Keep actions (A,) and times of the rows to come; those so far have none, but for what was kept already.
    pub(crate) fn widen(&mut self, actions_per_row: usize, times: bool) {
        if actions_per_row > self.actions_per_row {
            let mut wider = Vec::with_capacity(self.len() * actions_per_row);
            (0..self.len()).for_each(|i| put_action(&mut wider, self.action(i), actions_per_row));
            (self.actions, self.actions_per_row) = (wider, actions_per_row);
        }
        if times && !self.keeps_times {
            self.keeps_times = true;
            self.times.resize(self.len(), f64::NAN);
        }
    }

    /// Append rows `range` of `batch`'s actions and times, where they are kept.
    pub(super) fn extend_kept(&mut self, batch: &Batch, range: Range<usize>) {
        for i in range {
            let width = self.actions_per_row;
            put_action(&mut self.actions, batch.action(i).unwrap_or_default(), width);
            if self.keeps_times {
                self.times.push(batch.time(i).unwrap_or(f64::NAN));
            }
        }
    }
}
