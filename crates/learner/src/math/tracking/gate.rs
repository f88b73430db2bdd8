//! How far the mixture is let in.

use serde::{Deserialize, Serialize};

/// Blocks below which it stays shut, and below which it does where the stream goes on.
const BLOCKS_MIN: u64 = 8;
const BLOCKS_OF_ONE_CHAIN: u64 = 1;
/// Standard errors of the mean gain, squared, that are held against it.
const DOUBT: f64 = 0.25;
const DOUBT_OF_ONE_CHAIN: f64 = 0.0625;
/// Horizons in a block.
const HORIZONS: f64 = 2.0;

/// The gain of the mixture over the base on rows that came later, and what it says, docs/mathematics.md (L8):
/// ```text
/// d = (base - y)^2 - (mixture - y)^2        c_i = mean of d over block i of 2 horizons - mu
/// var = (sum w_i^2 c_i^2 + 2 max(0, sum w_i w_(i-1) c_i c_(i-1))) / (sum w_i)^2        mu = sum w_i d_i / sum w_i
/// G = max(0, 1 - doubt var / mu^2)   where mu > 0, from 8 blocks on; else 0
/// ```
/// w_i halve with each half-life. G is what shrinking the gain to what is sure of it comes to. Where a stream goes on, what is gained on
/// its next rows is gained on the world: it is doubted less, from the first block on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Gate {
    /// Rows of a block, and what a block counts of the one behind it.
    block: f64,
    decay: f64,
    /// Rows of the present block, and the sum of d over them.
    rows: f64,
    gain: f64,
    /// Blocks so far, and the mean of d over the last.
    blocks: u64,
    last: f64,
    /// Sums of w, w d; of w^2, w^2 d, w^2 d^2; of w w', w w' (d + d'), w w' d d' of neighbours.
    singles: [f64; 2],
    squares: [f64; 3],
    neighbours: [f64; 3],
    opening: f64,
    /// Whether the stream goes on.
    #[serde(default)]
    goes_on: bool,
}

impl Gate {
    /// Of errors that halve in weight with this many rows, and returns of `horizon` rows, of a stream that `goes_on` or has ends. It is shut.
    pub fn new(half_life: f64, horizon: f64, goes_on: bool) -> Self {
        let block = (HORIZONS * horizon).ceil();
        Self { block, decay: (-block / half_life).exp2(), goes_on, ..Self::default() }
    }

    /// Remember nothing.
    pub fn forget(&mut self) {
        *self = Self { block: self.block, decay: self.decay, goes_on: self.goes_on, ..Self::default() };
    }

    /// G, in [0, 1]: 0 where it is shut, and 1 after one block of a stream that goes on, whose variance is not known.
    pub fn opening(&self) -> f64 {
        self.opening
    }

    /// Blocks so far.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    /// d of a row that stands for `stride` rows.
    pub fn absorb(&mut self, gain: f64, stride: f64) {
        self.gain += gain * stride;
        self.rows += stride;
        if self.rows < self.block {
            return;
        }
        let mean = self.gain / self.block;
        (self.gain, self.rows) = (0.0, 0.0);
        let (f, last) = (self.decay, self.last);
        let neighbours = if self.blocks > 0 { [f, f * (mean + last), f * mean * last] } else { [0.0; 3] };
        gain_sums(&mut self.singles, f, [1.0, mean]);
        gain_sums(&mut self.squares, f * f, [1.0, mean, mean * mean]);
        gain_sums(&mut self.neighbours, f * f, neighbours);
        self.blocks += 1;
        self.last = mean;
        self.opening = self.found();
    }

    /// G of the sums.
    fn found(&self) -> f64 {
        let (least, doubt) = if self.goes_on { (BLOCKS_OF_ONE_CHAIN, DOUBT_OF_ONE_CHAIN) } else { (BLOCKS_MIN, DOUBT) };
        let [weight, sum] = self.singles;
        let mu = sum / weight;
        if self.blocks < least || mu <= 0.0 {
            return 0.0;
        }
        let about = |[ones, sums, products]: [f64; 3], each: f64| products - each * mu * sums + mu * mu * ones;
        let squares = about(self.squares, 2.0).max(0.0);
        let neighbours = about(self.neighbours, 1.0).max(0.0);
        let variance = (squares + 2.0 * neighbours) / (weight * weight);
        let opening = 1.0 - doubt * variance / (mu * mu);
        // What is not a number is shut.
        if opening > 0.0 { opening } else { 0.0 }
    }

    /// Whether what was read from a file can be worked with, of a stream that goes on or has ends.
    pub(crate) fn is_consistent(&self, goes_on: bool) -> bool {
        self.goes_on == goes_on
            && self.block >= 1.0
            && (0.0..1.0).contains(&self.decay)
            && (0.0..=1.0).contains(&self.opening)
    }
}

/// sums <- f sums + terms.
fn gain_sums<const N: usize>(sums: &mut [f64; N], f: f64, terms: [f64; N]) {
    sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum = f * *sum + term);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// G by the formula over all blocks at once.
    fn direct(means: &[f64], decay: f64) -> f64 {
        let weights: Vec<f64> = (0..means.len()).rev().map(|age| decay.powi(age as i32)).collect();
        let total: f64 = weights.iter().sum();
        let mu = weights.iter().zip(means).map(|(w, d)| w * d).sum::<f64>() / total;
        let c: Vec<f64> = means.iter().map(|d| d - mu).collect();
        let squares: f64 = weights.iter().zip(&c).map(|(w, c)| w * w * c * c).sum();
        let pairs = |i: usize| weights[i] * weights[i - 1] * c[i] * c[i - 1];
        let neighbours: f64 = (1..c.len()).map(pairs).sum();
        let variance = (squares + 2.0 * neighbours.max(0.0)) / (total * total);
        if means.len() < 8 || mu <= 0.0 { 0.0 } else { (1.0 - 0.25 * variance / (mu * mu)).max(0.0) }
    }

    #[test]
    fn sums_row_by_row_are_the_formula_over_all_blocks() {
        let mut gate = Gate::new(60.0, 2.5, false);
        let (mut means, mut state, mut seen) = (Vec::new(), 1_u64, 0);
        for row in 0..2000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let gain = (state >> 40) as f64 / (1u64 << 24) as f64 - if row < 700 { 0.3 } else { 0.55 };
            if row % 5 == 0 {
                means.push(0.0);
            }
            *means.last_mut().unwrap() += gain / 5.0;
            gate.absorb(gain, 1.0);
            if row % 5 == 4 {
                let expected = direct(&means, (-5.0f64 / 60.0).exp2());
                assert!((gate.opening() - expected).abs() < 1e-9, "{row}: {} {expected}", gate.opening());
                seen += u32::from(expected > 0.0);
            }
        }
        assert_eq!(gate.blocks(), 400);
        assert!((50..350).contains(&seen), "open for {seen} blocks");
    }

    #[test]
    fn it_is_shut_before_eight_blocks_and_to_a_mixture_that_is_worse() {
        let opened = |gain: f64, rows: usize| {
            let mut gate = Gate::new(1e3, 1.0, false);
            (0..rows).for_each(|_| gate.absorb(gain, 1.0));
            gate.opening()
        };
        assert_eq!(opened(1.0, 15), 0.0);
        assert!(opened(1.0, 16) > 0.99);
        assert_eq!(opened(-1.0, 500), 0.0);
        assert_eq!(opened(0.0, 500), 0.0);
        assert_eq!(opened(f64::NAN, 500), 0.0);
    }
}
