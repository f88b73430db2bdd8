//! Weights of rows by age: a row that is k rows old counts f^k times, the prior keeps its weight.
//!
//! Nothing is multiplied at each row. Statistics are kept in a unit in which the row at the reference offset counts once, and
//! later ones more; the reference moves at fixed multiples of offsets, so that the bits do not depend on how rows were batched:
//! ```text
//! w(o) = f^-(o - reference)       unit = w(newest)       S = S_kept / unit, and B, p, q, n alike       docs/mathematics.md (W2)
//! (S - B + ratio I) u = p         is        (S_kept - B_kept + unit ratio I) u = p_kept                           (W3)
//! ```

use serde::{Deserialize, Serialize};

/// Rows between two references at most.
const SPAN_MAX: f64 = 4096.0;
/// Half-lives between two references at most: the largest weight is two to this power.
const HALF_LIVES_MAX: f64 = 64.0;

/// Which rows count how much.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Forgetting {
    /// Rows after which a row counts half; positive.
    half_life: f64,
    /// Offset of the row that counts once in what is kept.
    reference: u64,
    /// Offset of the newest row.
    newest: u64,
    /// Sum of the weights of the rows absorbed, as it is kept.
    weight: f64,
}

impl Forgetting {
    /// With this half-life in rows, positive.
    pub fn new(half_life: f64) -> Self {
        Self { half_life, reference: 0, newest: 0, weight: 0.0 }
    }

    /// Rows after which a row counts half.
    pub(crate) fn half_life(&self) -> f64 {
        self.half_life
    }

    /// Rows between two references: a power of two.
    fn span(&self) -> u64 {
        let rows = (HALF_LIVES_MAX * self.half_life).clamp(1.0, SPAN_MAX) as u64;
        1 << rows.ilog2()
    }

    /// f to the power of `rows`, which may be negative.
    fn power(&self, rows: f64) -> f64 {
        (-rows / self.half_life).exp2()
    }

    /// w of the row at `offset`, as it is kept.
    pub fn weight(&self, offset: u64) -> f64 {
        if offset >= self.reference {
            self.power(-((offset - self.reference) as f64))
        } else {
            self.power((self.reference - offset) as f64)
        }
    }

    /// w of the newest row: stored sums = unit x true sums.
    pub fn unit(&self) -> f64 {
        self.weight(self.newest)
    }

    /// Effective number of rows, at most f / (1 - f) + 1.
    pub fn rows(&self) -> f64 {
        self.weight / self.unit()
    }

    /// The row at `offset` has come. Where that moves the reference, what everything that is kept is to be multiplied by.
    pub(crate) fn advance(&mut self, offset: u64) -> Option<f64> {
        self.newest = self.newest.max(offset);
        let reference = self.newest - self.newest % self.span();
        self.refer_to(reference)
    }

    /// A row of this weight has been absorbed.
    pub(super) fn count(&mut self, weight: f64) {
        self.weight += weight;
    }

    /// The rows so far count `factor` times as often.
    pub(super) fn discount(&mut self, factor: f64) {
        self.weight *= factor;
    }

    fn refer_to(&mut self, reference: u64) -> Option<f64> {
        if reference <= self.reference {
            return None;
        }
        let factor = self.power((reference - self.reference) as f64);
        self.reference = reference;
        self.weight *= factor;
        Some(factor)
    }

    /// What sums kept with `other` are to be multiplied by to be added to those kept with this one, which knows rows as new.
    ///
    /// # Panics
    /// If half-lives differ.
    pub(super) fn from(&self, other: &Self) -> f64 {
        assert_eq!(self.half_life.to_bits(), other.half_life.to_bits(), "statistics that forget alike");
        self.weight(other.reference)
    }

    /// Sum of the weights of `other`'s rows, to be added with this sign.
    pub(super) fn combine(&mut self, other: &Self, sign: f64) {
        self.weight += sign * self.from(other) * other.weight;
    }

    /// Offset of the newest row.
    pub(super) fn newest(&self) -> u64 {
        self.newest
    }

    /// Whether what was read from a file can be worked with.
    pub(crate) fn is_consistent(&self) -> bool {
        self.half_life.is_finite() && self.half_life > 0.0 && self.reference <= self.newest && self.weight >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_counts_half_after_a_half_life_wherever_the_reference_is() {
        for half_life in [0.01, 1.0, 10.3, 500.0, 1e6] {
            let mut forgetting = Forgetting::new(half_life);
            let mut direct = 0.0;
            for offset in 0..9000u64 {
                forgetting.advance(offset);
                forgetting.count(forgetting.weight(offset));
                direct = direct * (-1.0 / half_life).exp2() + 1.0;
                assert!((forgetting.rows() / direct - 1.0).abs() < 1e-9, "{half_life} {offset}");
                assert!(forgetting.unit() <= 2f64.powi(64), "{half_life} {offset}");
            }
        }
    }

    #[test]
    fn rows_that_are_missing_age_what_came_before() {
        let mut forgetting = Forgetting::new(100.0);
        forgetting.advance(3);
        forgetting.count(forgetting.weight(3));
        forgetting.advance(30_003);
        assert!((forgetting.rows() / 2f64.powi(-300) - 1.0).abs() < 1e-12);
    }
}
