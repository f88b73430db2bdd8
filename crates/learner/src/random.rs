//! Randomness that is a function of what it is for: no generator is kept, so that the same numbers come out wherever, whenever
//! and in whichever order they are asked for, in Rust and in Python.

use std::f64::consts::TAU;

/// One number from several: SplitMix64 of each in turn.
pub fn mix(parts: &[u64]) -> u64 {
    parts.iter().fold(0, |state, &part| scramble(state ^ scramble(part)))
}

/// SplitMix64 \[Steele, Lea, Flood, *Fast Splittable Pseudorandom Number Generators*, OOPSLA 2014\].
fn scramble(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Uniform in \[0, 1), of 53 bits of `hash`.
pub fn uniform(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1u64 << 53) as f64
}

/// Standard normal.
pub fn normal(hash: u64) -> f64 {
    // Above 0, so that its logarithm is finite.
    let radius = (-2.0 * (1.0 - uniform(hash)).ln()).sqrt();
    radius * (TAU * uniform(scramble(hash))).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_every_implementation() {
        assert_eq!(mix(&[]), 0);
        assert_eq!(scramble(0), 0xe220_a839_7b1d_cdaf, "SplitMix64 of the seed 0 begins with this");
        assert_ne!(mix(&[1, 2]), mix(&[2, 1]));
        assert_eq!((uniform(0), uniform(u64::MAX)), (0.0, 1.0 - f64::EPSILON / 2.0));
    }

    #[test]
    fn normal_numbers_have_mean_zero_and_variance_one() {
        let n = 20_000u64;
        let drawn: Vec<f64> = (0..n).map(|k| normal(mix(&[7, k]))).collect();
        let mean = drawn.iter().sum::<f64>() / n as f64;
        let variance = drawn.iter().map(|x| x * x).sum::<f64>() / n as f64;
        assert!(mean.abs() < 0.03 && (variance - 1.0).abs() < 0.05, "{mean} {variance}");
    }
}
