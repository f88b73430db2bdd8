//! Weights, variance and evidence from [`Statistics`]: one linear system of the dictionary's size.
//!
//! Statistics are kept in the units of a base kernel k_1. The model's kernel is k = s k_1 and its noise variance
//! sigma0^2 = s lambda: the mean depends on lambda alone, so s and lambda can be re-estimated without touching S.
//! ```text
//! (S - B + lambda I) u = p                         fixed point of bootstrapped targets, V = phi' u
//! Var u = s lambda (S + lambda I)^-1               targets taken as given
//! -2 log p = n log s + (n - m) log lambda + log|A| + (q - p' A^-1 p) / (s lambda) + n log 2 pi,    A = S + lambda I
//! ```

use super::dense::{
    Cholesky, Matrix, NotPositiveDefinite, Op, Singular, dot, multiply, product, rank_k, solve_general, solve_lower,
    solve_lower_transposed, symmetric_eigen,
};
use super::dictionary::Dictionary;
use super::raw;
use super::statistics::{Closing, Statistics};
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;
use std::fmt;

/// Bounds of s: out of the way of any data (a base kernel made before the first reward has a variance of 1e-12), but far
/// from overflow.
const SIGNAL_MIN: f64 = 1e-50;
const SIGNAL_MAX: f64 = 1e50;

/// Overall scale of the model relative to its base kernel.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scale {
    /// s: the model's kernel is s times the base kernel; positive.
    pub signal: f64,
    /// lambda = sigma0^2 / s; positive.
    pub ratio: f64,
}

impl Scale {
    /// The base kernel as it is, with this noise variance.
    pub fn of_noise(noise_variance: f64) -> Self {
        Self { signal: 1.0, ratio: noise_variance }
    }

    /// sigma0^2 = s lambda, reward^2.
    pub fn noise_variance(&self) -> f64 {
        self.signal * self.ratio
    }
}

/// Why there is no posterior.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum SolveError {
    /// S + lambda I is not positive definite.
    NotPositiveDefinite(NotPositiveDefinite),
    /// The fixed point of bootstrapped targets does not exist.
    Singular(Singular),
}

impl fmt::Display for SolveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPositiveDefinite(e) => write!(f, "no posterior: {e}"),
            Self::Singular(e) => write!(f, "no fixed point of bootstrapped targets: {e}"),
        }
    }
}

impl std::error::Error for SolveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::NotPositiveDefinite(e) => Some(e),
            Self::Singular(e) => Some(e),
        }
    }
}

impl From<NotPositiveDefinite> for SolveError {
    fn from(e: NotPositiveDefinite) -> Self {
        Self::NotPositiveDefinite(e)
    }
}

impl From<Singular> for SolveError {
    fn from(e: Singular) -> Self {
        Self::Singular(e)
    }
}

/// The posterior at one moment; immutable.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Posterior {
    scale: Scale,
    rows: u64,
    feature_weights: Matrix,
    system: Cholesky,
    response: Matrix,
    #[serde(with = "raw")]
    energy: Vec<f64>,
    #[serde(with = "raw")]
    mean_target: Vec<f64>,
}

impl Posterior {
    /// Solve for the weights with every cut chain at its fixed point. `closing` holds the closings of [`Statistics::closed`]
    /// and of chains that are still running. O(m^3).
    ///
    /// # Errors
    /// If S + lambda I is not positive definite to working precision, or the fixed point does not exist.
    pub fn solve(statistics: &Statistics, closing: &Closing, scale: Scale) -> Result<Self, SolveError> {
        let m = statistics.features();
        let mut a = statistics.gram.clone();
        for i in 0..m {
            *a.at_mut(i, i) += scale.ratio;
        }
        let system = Cholesky::new(a.clone())?;
        let feature_weights = if closing.chains == 0 {
            let u = system.solve(statistics.response.clone());
            if !u.is_finite() {
                return Err(Singular { size: m }.into());
            }
            u
        } else {
            a.mirror_lower();
            for j in 0..m {
                let b = closing.coupling.col(j);
                a.col_mut(j).iter_mut().zip(b).for_each(|(a, b)| *a -= b);
            }
            solve_general(&a, &statistics.response)?
        };
        let mut response = statistics.response.clone();
        let (b, u) = (closing.coupling.view(), feature_weights.view());
        multiply(response.view_mut(), true, 1.0, b, Op::Plain, u, Op::Plain);
        let energy = statistics.target_energy(closing, &feature_weights);
        let n = statistics.rows.max(1) as f64;
        let mean_target = statistics.target_total(closing, &feature_weights).iter().map(|t| t / n).collect();
        Ok(Self { scale, rows: statistics.rows, feature_weights, system, response, energy, mean_target })
    }

    /// Whether its parts are of sizes that fit at most m features (others may have been admitted since) and H rewards.
    pub(crate) fn holds_together(&self, m: usize, rewards: usize) -> bool {
        let known = self.feature_weights.rows();
        let factor = self.system.factor();
        known <= m
            && self.feature_weights.cols() == rewards
            && (factor.rows(), factor.cols()) == (known, known)
            && (self.response.rows(), self.response.cols()) == (known, rewards)
            && (self.energy.len(), self.mean_target.len()) == (rewards, rewards)
    }

    /// u (m, H): V(x) = phi(x)' u.
    pub fn feature_weights(&self) -> &Matrix {
        &self.feature_weights
    }

    /// The scale it was solved with.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// Factor of A = S + lambda I (m, m).
    pub fn system(&self) -> &Cholesky {
        &self.system
    }

    /// Rows behind it.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Variance of the (bootstrapped) targets about their mean, averaged over rewards, reward^2.
    pub fn target_variance(&self) -> f64 {
        let n = self.rows.max(1) as f64;
        let each = self.energy.iter().zip(&self.mean_target).map(|(q, mean)| (q / n - mean * mean).max(0.0));
        each.sum::<f64>() / self.energy.len() as f64
    }

    /// Log evidence of the rows behind it, summed over rewards, nats (module documentation). With the targets of cut chains
    /// taken as given this is the sparse ("DTC") evidence.
    pub fn log_evidence(&self) -> f64 {
        let (n, m) = (self.rows as f64, self.feature_weights.rows() as f64);
        let Scale { signal, ratio } = self.scale;
        let fixed = n * signal.ln() + (n - m) * ratio.ln() + self.system.log_determinant() + n * (2.0 * PI).ln();
        let mut image = self.response.clone();
        solve_lower(self.system.factor().view(), image.view_mut());
        (0..self.energy.len())
            .map(|h| {
                let quadratic = (self.energy[h] - dot(image.col(h), image.col(h))) / (signal * ratio);
                -0.5 * (fixed + quadratic)
            })
            .sum()
    }

    /// What the variational bound \[T09\] subtracts from the evidence: trace(K - K~) / (2 sigma0^2) per reward, nats. Above
    /// some 5 nats the dictionary is too small to select a model with.
    pub fn trace_gap(&self, statistics: &Statistics) -> f64 {
        let explained: f64 = (0..statistics.features()).map(|i| statistics.gram.at(i, i)).sum();
        ((statistics.prior_trace - explained) / (2.0 * self.scale.ratio)).max(0.0)
    }

    /// C (m, m): Var V(x) = k(x, x) - k_m(x)' C k_m(x), the projected process of \[JS09, eq. 15\], in units of the model's
    /// kernel k = s k_1.
    /// ```text
    /// C = L^-T (I - Cov u) L^-1 / s        Cov u = lambda A^-1                                 (the model's own)
    ///                                      Cov u = A^-1 (M / s + lambda^2 I) A^-1              (chain-clustered)
    /// ```
    /// `scatter` is M (m, m), lower triangle, the sum over clusters of score times its transpose, in base units.
    pub fn variance_matrix(&self, dictionary: &Dictionary, scatter: Option<&Matrix>) -> Matrix {
        let m = self.feature_weights.rows();
        let Scale { signal, ratio } = self.scale;
        let covariance = match scatter {
            None => {
                let mut inverse = self.system.inverse();
                for j in 0..m {
                    inverse.col_mut(j).iter_mut().for_each(|v| *v *= ratio);
                }
                inverse
            }
            Some(scatter) => {
                let mut middle = scatter.clone();
                middle.mirror_lower();
                for j in 0..m {
                    middle.col_mut(j).iter_mut().for_each(|v| *v /= signal);
                    *middle.at_mut(j, j) += ratio * ratio;
                }
                let right = self.system.solve(middle).transpose();
                self.system.solve(right)
            }
        };
        let mut reduced = Matrix::identity(m);
        for j in 0..m {
            reduced.col_mut(j).iter_mut().zip(covariance.col(j)).for_each(|(r, c)| *r -= c);
        }
        // L^-T R L^-1 by two solves: first the columns, then, R being symmetric, the columns of the transpose.
        solve_lower_transposed(dictionary.factor().view(), reduced.view_mut());
        let mut out = reduced.transpose();
        solve_lower_transposed(dictionary.factor().view(), out.view_mut());
        for j in 0..m {
            for i in j..m {
                let mean = 0.5 * (out.at(i, j) + out.at(j, i)) / signal;
                *out.at_mut(i, j) = mean;
                *out.at_mut(j, i) = mean;
            }
        }
        out
    }

    /// Noise and scale that maximise the log evidence at these targets: for each lambda the best s has a closed form, and
    /// lambda is searched on a line, O(m) per point after one eigen-decomposition of S.
    ///
    /// sigma0^2 stays at or above `noise_floor` times the variance of the targets. Where there is nothing to estimate from
    /// (targets all zero, a decomposition that fails) the scale stays as it is.
    pub fn tuned_scale(&self, statistics: &Statistics, noise_floor: f64) -> Scale {
        let total: f64 = self.energy.iter().sum();
        let rewards = self.energy.len() as f64;
        let n = self.rows as f64;
        if n < 1.0 || total.is_nan() || total <= f64::MIN_POSITIVE || !total.is_finite() {
            return self.scale;
        }
        let Ok((mut eigenvalues, vectors)) = symmetric_eigen(&statistics.gram) else { return self.scale };
        eigenvalues.iter_mut().for_each(|e| *e = e.max(0.0));
        let images = product(vectors.view(), Op::Transposed, self.response.view(), Op::Plain);
        let power: Vec<f64> =
            (0..eigenvalues.len()).map(|j| (0..images.cols()).map(|h| images.at(j, h).powi(2)).sum()).collect();
        let floor = (noise_floor * self.target_variance()).max(f64::MIN_POSITIVE);
        let candidate = |log_ratio: f64| -> (f64, Scale) {
            let ratio = log_ratio.exp();
            let explained: f64 = power.iter().zip(&eigenvalues).map(|(t, e)| t / (e + ratio)).sum();
            let residual = (total - explained).max(0.0);
            let noise = (residual / (n * rewards)).max(floor);
            let signal = (noise / ratio).clamp(SIGNAL_MIN, SIGNAL_MAX);
            let log_determinant: f64 = eigenvalues.iter().map(|e| (e + ratio).ln()).sum();
            let m = eigenvalues.len() as f64;
            let fixed = n * signal.ln() + (n - m) * log_ratio + log_determinant;
            let value = -0.5 * (rewards * fixed + residual / (signal * ratio));
            // A clamped s may push the noise below its floor: such a point is not allowed.
            let allowed = signal * ratio >= floor * (1.0 - 1e-9);
            (if allowed && value.is_finite() { value } else { f64::NEG_INFINITY }, Scale { signal, ratio })
        };
        // Evidence in log lambda may have more than one hump: a grid first, then a golden section within its best cell.
        let centre = self.scale.ratio.ln();
        let grid = |k: i32| centre + 0.5 * f64::from(k);
        let best = (-30..=30)
            .map(|k| (candidate(grid(k)).0, k))
            .fold((f64::NEG_INFINITY, 0), |best, next| if next.0 > best.0 { next } else { best });
        if best.0 == f64::NEG_INFINITY {
            return self.scale;
        }
        let (mut low, mut high) = (grid(best.1 - 1), grid(best.1 + 1));
        let golden = 0.5 * (5f64.sqrt() - 1.0);
        for _ in 0..40 {
            let (left, right) = (high - golden * (high - low), low + golden * (high - low));
            if candidate(left).0 >= candidate(right).0 {
                high = right;
            } else {
                low = left;
            }
        }
        let (value, scale) = candidate(0.5 * (low + high));
        if value >= best.0 { scale } else { candidate(grid(best.1)).1 }
    }
}

/// M <- M + s s' for the scores s (m, H) of one cluster of rows, averaged over rewards; lower triangle.
pub fn add_scores(scatter: &mut Matrix, scores: &Matrix) {
    rank_k(scatter.view_mut(), 1.0 / scores.cols() as f64, scores.view(), Op::Plain);
}
