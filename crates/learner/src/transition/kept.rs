//! What rows keep of actions.

use super::MAGNITUDE_MAX;

/// Numbers of an action that are kept at most: what rows take must not depend on the longest one that ever came.
pub const ACTION_NUMBERS_MAX: usize = 64;

/// Append the first `width` numbers of an action, with NaN for those that it does not have, or that are beyond
/// [`MAGNITUDE_MAX`].
pub(super) fn put_action(to: &mut Vec<f64>, action: &[f64], width: usize) {
    let kept = &action[..action.len().min(width)];
    to.extend(kept.iter().map(|&number| if number.abs() <= MAGNITUDE_MAX { number } else { f64::NAN }));
    to.extend(std::iter::repeat_n(f64::NAN, width - kept.len()));
}
