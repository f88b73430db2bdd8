//! Where a function of one number is largest.

/// The middle of what `sections` golden sections leave of the range from `low` to `high`: the place where `of` is largest, to
/// 0.62^`sections` of the range, if it has one hump there. `of` is asked once a section.
pub(crate) fn golden_section(mut low: f64, mut high: f64, sections: usize, of: impl Fn(f64) -> f64) -> f64 {
    let golden = 0.5 * (5f64.sqrt() - 1.0);
    let inner = |low: f64, high: f64| (high - golden * (high - low), low + golden * (high - low));
    let (left, right) = inner(low, high);
    let (mut at_left, mut at_right) = (of(left), of(right));
    for _ in 0..sections {
        if at_left >= at_right {
            high = inner(low, high).1;
            (at_right, at_left) = (at_left, of(inner(low, high).0));
        } else {
            low = inner(low, high).0;
            (at_left, at_right) = (at_right, of(inner(low, high).1));
        }
    }
    0.5 * (low + high)
}
