//! A reward about the level of its values, docs/mathematics.md (B1).

/// Differences this much smaller than what they are of are rounding, and count as 0: rewards that are all the same stay so.
const ROUNDING: f64 = 16.0 * f64::EPSILON;

/// `reward` about the level `mu` of values: `follows` is the discount of its transition, 0 where it terminates.
pub(crate) fn about(reward: f64, mu: f64, follows: f64) -> f64 {
    let taken = mu * (1.0 - follows);
    let left = reward - taken;
    if left.abs() <= ROUNDING * taken.abs() { 0.0 } else { left }
}

/// `reward` about the mean of its state, `here`, and of its successor, `following`: discounted, and 0 where it terminates.
pub(crate) fn about_both(reward: f64, here: f64, following: f64) -> f64 {
    let left = reward - (here - following);
    if left.abs() <= ROUNDING * (here.abs() + following.abs()) { 0.0 } else { left }
}
