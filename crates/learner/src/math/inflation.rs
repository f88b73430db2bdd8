//! How much less is known of V than the scores of single rows say: few horizons, and noise that outlasts a row.
//!
//! The scatter of scores takes TD errors for independent of each other, and their number for large. Where a state hides something
//! they are not, and where the rows hold few horizons a common error of all values stays unseen. Both show in pieces of chains:
//! ```text
//! h   = 1 / (1 - mean of gamma)                               horizon; gamma is 0 where a row terminates                (I1)
//! s_j = -f' (M - A_j)^-1 b_j                                  change of the mean of V without piece j of h rows         (I2)
//! L   = (K - 1) / K sum (s_j - mean s)^2,   l = f' M^-1 W M^-T f,   E = max(0, L - l)        where n / h <= 120          (I3)
//! q_j = b_j' Q b_j,   r_j = sum_j delta^2 e' Q e,   Q = M^-T S M^-1,   R = sum q / sum r     pieces of 4 h, 20 at least  (I4)
//! v  <- max(R v, v + E) t^2,   t = t_(.95, max(1, n / (4 h))) / 1.6449                                                    (I5)
//! ```
//! A_j = sum e (phi - gamma phi')' and b_j = sum e delta over the rows of a piece, e their traces, f the mean of phi, S its second
//! moment, W the scatter of scores, M the system. R counts only where R - 1 exceeds two standard errors. Numbers refer to
//! `docs/mathematics.md`.

use serde::{Deserialize, Serialize};
use std::f64::consts::FRAC_PI_2;

/// Horizons above which the level is known well enough.
pub const LEVEL_HORIZONS: f64 = 120.0;
/// Pieces of the level at most: neighbours are taken together where short chains make more.
pub const LEVEL_PIECES: usize = 240;
/// Pieces from which on their scatter says something.
const PIECES_MIN: usize = 20;
/// Horizons of a piece of (I4).
pub const PIECE_HORIZONS: f64 = 4.0;
/// The quantile at 95 % of a normal variable.
const NORMAL: f64 = 1.6449;
/// Degrees of freedom above which t is a normal variable's to a thousandth.
const NORMAL_FROM: f64 = 2000.0;
/// Steps of the integral that gives t.
const STEPS: usize = 2000;

/// What a refit has found of one model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Inflation {
    /// R of (I4), at least 1.
    pub ratio: f64,
    /// E of (I3), value^2, at `rows` rows.
    pub level: f64,
    /// n, the (effective) number of rows that it was found on, positive.
    pub rows: f64,
    /// h of (I1), rows.
    pub horizon: f64,
}

/// What becomes of a variance v of V: `factor` v + `level`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Widened {
    /// Positive.
    pub factor: f64,
    /// Value^2.
    pub level: f64,
}

impl Inflation {
    /// The inflation of a model of which no pieces were looked at: t alone.
    pub fn of_horizon(horizon: f64) -> Self {
        Self { ratio: 1.0, level: 0.0, rows: 1.0, horizon }
    }

    /// (I5) where the model has learned `rows` rows by now and v is `mean` (value^2) on average over them: the larger of the two is
    /// the larger on average, and the same one at every state. The variance of the level falls like every other.
    pub fn now(&self, rows: f64, mean: f64) -> Widened {
        let square = quantile_ratio(rows / (PIECE_HORIZONS * self.horizon)).powi(2);
        let level = self.level * (self.rows / rows.max(1.0)).min(1.0);
        if self.ratio * mean > mean + level {
            Widened { factor: self.ratio * square, level: 0.0 }
        } else {
            Widened { factor: square, level: level * square }
        }
    }

    /// Whether these are numbers that a refit may have found.
    pub fn is_consistent(&self) -> bool {
        let Self { ratio, level, rows, horizon } = *self;
        ratio >= 1.0
            && level >= 0.0
            && rows > 0.0
            && horizon >= 1.0
            && [ratio, level, rows, horizon].iter().all(|x| x.is_finite())
    }
}

/// h of (I1): the rows that a return is made of, at least 1, where this is the discount of the mean row, 0 where one terminates. A
/// discount of 1 knows no horizon: it is then `otherwise`.
pub fn horizon(discount: f64, otherwise: f64) -> f64 {
    if discount < 1.0 { 1.0 / (1.0 - discount) } else { otherwise }
}

/// (I3): what pieces whose changes of the level are `changes` (K,) leave above `known`, value^2.
pub fn excess_level(changes: &[f64], known: f64) -> f64 {
    let count = changes.len() as f64;
    if changes.len() < 2 {
        return 0.0;
    }
    let mean = changes.iter().sum::<f64>() / count;
    let scatter = changes.iter().map(|s| (s - mean).powi(2)).sum::<f64>() * (count - 1.0) / count;
    let excess = scatter - known;
    if excess.is_finite() { excess.max(0.0) } else { 0.0 }
}

/// (I4): R of the squares of pieces, `whole` q_j beside `single` r_j (K,).
pub fn ratio_of_pieces(whole: &[f64], single: &[f64]) -> f64 {
    let total = single.iter().sum::<f64>();
    if whole.len() < PIECES_MIN || total <= 0.0 {
        return 1.0;
    }
    let ratio = whole.iter().sum::<f64>() / total;
    let error = whole.iter().zip(single).map(|(q, r)| (q - ratio * r).powi(2)).sum::<f64>().sqrt() / total;
    if ratio.is_finite() && ratio - 1.0 > 2.0 * error { ratio } else { 1.0 }
}

/// Quantile at 95 % of Student's t with these degrees of freedom, at least 1, over a normal variable's.
///
/// With t = sqrt(nu) tan a its density is cos(a)^(nu - 1) over (-pi / 2, pi / 2): the integral up to the quantile is nine tenths of
/// that over the half.
pub fn quantile_ratio(freedom: f64) -> f64 {
    let freedom = freedom.max(1.0);
    if !freedom.is_finite() || freedom > NORMAL_FROM {
        return 1.0;
    }
    // Nearly all of the integral lies within some 1 / sqrt(nu) of 0: the nodes crowd there, at the squares of equal steps.
    let angle = |k: f64| FRAC_PI_2 * (k / STEPS as f64).powi(2);
    let density = |k: f64| angle(k).cos().max(0.0).powf(freedom - 1.0) * k;
    let mut sums = Vec::with_capacity(STEPS + 1);
    let mut sum = 0.0;
    sums.push(sum);
    for k in 0..STEPS {
        let k = k as f64;
        sum += (density(k) + 4.0 * density(k + 0.5) + density(k + 1.0)) / 6.0;
        sums.push(sum);
    }
    let wanted = 0.9 * sum;
    let above = sums.partition_point(|&sum| sum < wanted).clamp(1, STEPS);
    let (low, high) = (sums[above - 1], sums[above]);
    let place = (above - 1) as f64 + (wanted - low) / (high - low);
    (freedom.sqrt() * angle(place).tan() / NORMAL).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quantiles_are_those_of_students_t() {
        // Printed tables: t at 95 % with 1, 2, 5, 10, 50, 200 and 1000 degrees of freedom.
        let known = [
            (1.0, 6.3138),
            (2.0, 2.9200),
            (5.0, 2.0150),
            (10.0, 1.8125),
            (50.0, 1.6759),
            (200.0, 1.6525),
            (1000.0, 1.6464),
        ];
        for (freedom, t) in known {
            let found = quantile_ratio(freedom) * NORMAL;
            assert!((found - t).abs() < 2e-4 * t, "{freedom}: {found}, in tables {t}");
        }
        assert_eq!((quantile_ratio(0.1), quantile_ratio(1e9)), (quantile_ratio(1.0), 1.0));
        assert!(quantile_ratio(2.5) > quantile_ratio(2.6));
    }

    #[test]
    fn horizons_end_where_rows_do() {
        assert_eq!([0.9, 0.95].map(|discount| horizon(discount, 1e4).round()), [10.0, 20.0]);
        assert_eq!((horizon(0.0, 1e4), horizon(1.0, 700.0)), (1.0, 700.0));
    }

    #[test]
    fn the_larger_of_the_two_counts_and_the_level_fades_with_rows() {
        let of = |ratio, level| Inflation { ratio, level, rows: 1000.0, horizon: 1.0 };
        let widened = of(3.0, 1.0).now(1e6, 1.0);
        assert_eq!((widened.factor, widened.level), (3.0, 0.0));
        assert_eq!(of(1.5, 1.0).now(1000.0, 1.0).level, quantile_ratio(250.0).powi(2));
        assert_eq!(of(1.0, 1.0).now(1e5, 1.0).level, 0.01);
        assert_eq!(of(1.0, 0.0).now(1e5, 1.0), Widened { factor: 1.0, level: 0.0 });
    }

    #[test]
    fn few_pieces_and_chance_leave_the_ratio_at_one() {
        assert_eq!(ratio_of_pieces(&[4.0; 19], &[1.0; 19]), 1.0);
        assert_eq!(ratio_of_pieces(&[4.0; 20], &[1.0; 20]), 4.0);
        let one_loud: Vec<f64> = (0..20).map(|k| if k == 0 { 61.0 } else { 1.0 }).collect();
        assert_eq!(ratio_of_pieces(&one_loud, &[1.0; 20]), 1.0);
        assert_eq!((excess_level(&[3.0], 0.0), excess_level(&[1.0, -1.0], 2.0)), (0.0, 0.0));
        assert_eq!(excess_level(&[1.0, -1.0], 0.5), 0.5);
    }
}
