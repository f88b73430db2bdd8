//! Some of many rows.

use std::ops::Range;

/// At most `count` numbers of `range`, one from each of `count` equal parts, in their order. Where in its part a number lies
/// follows no period: every twentieth row would always be the same step of episodes of twenty rows.
pub fn scattered(range: Range<u64>, count: usize) -> impl Iterator<Item = u64> {
    let length = range.end.saturating_sub(range.start);
    let count = (count as u64).min(length);
    (0..count).map(move |k| {
        let (from, to) = (range.start + k * length / count, range.start + (k + 1) * length / count);
        // Fibonacci hashing: the high bits of a multiple of 2^64 over the golden ratio.
        from + (from.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32) % (to - from)
    })
}
