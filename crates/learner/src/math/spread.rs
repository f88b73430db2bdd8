//! How returns scatter about V: a second value function, for the variance of the return.
//!
//! The variance of a return obeys a Bellman equation of its own: its reward is the squared TD error, its discount gamma^2. It is
//! solved in the features of V, around a level that one constant gives:
//! ```text
//! M(x) = gives delta^2 + gamma^2 M(x') on average         M = c + phi' v                                  (T1)
//! c = sum e delta^2 / sum e (1 - gamma^2)                  e <- gamma^2 lambda rho e + rho                 (T2)
//! (sum z (phi - gamma^2 phi')' + ridge I) v = sum z (delta^2 - c (1 - gamma^2))                      (T3)
//! z <- gamma^2 lambda rho z + rho phi
//! ```
//! gamma is 0 where a row terminates, rho is the importance ratio. Numbers refer to `docs/mathematics.md`.

use super::dense::{Matrix, Op, Singular, axpy, dot, multiply, solve_general};
use super::raw;
use serde::{Deserialize, Serialize};

/// Ridge of the second system, in units of the base kernel's v0: it holds the variance at its level where rows say little.
const RIDGE: f64 = 3.0;
/// Smallest variance of the return, as a share of the level.
const FLOOR: f64 = 0.05;
/// Rows that are gathered before they are multiplied.
const COLUMNS: usize = 256;

/// The variance of the return about V, in features of the base kernel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// c (H,), reward^2.
    #[serde(with = "raw")]
    pub level: Vec<f64>,
    /// v (m, H).
    pub weights: Matrix,
}

impl Spread {
    /// Smallest variance of the return (H,), reward^2, positive.
    pub fn floor(&self) -> Vec<f64> {
        self.level.iter().map(|level| (FLOOR * level).max(f64::MIN_POSITIVE)).collect()
    }

    /// Variance of the return of head `h` where the features are phi (m,), reward^2, positive.
    pub fn variance(&self, h: usize, features: &[f64]) -> f64 {
        let floor = (FLOOR * self.level[h]).max(f64::MIN_POSITIVE);
        (self.level[h] + dot(features, self.weights.col(h))).max(floor)
    }

    /// One more feature, which the variance does not depend on.
    pub fn grow(&mut self) {
        self.weights.resize(self.weights.rows() + 1, self.weights.cols());
    }

    /// Whether its parts fit m features and H rewards.
    pub(crate) fn is_consistent(&self, m: usize, rewards: usize) -> bool {
        self.level.len() == rewards && (self.weights.rows(), self.weights.cols()) == (m, rewards)
    }
}

/// Running sums of one chain.
#[derive(Clone, Debug, Default)]
struct Trail {
    /// z (m,).
    trace: Vec<f64>,
    /// e.
    sum: f64,
    /// phi of the last row (m,).
    features: Vec<f64>,
}

/// A pass over rows that gathers what [`Spread`] is solved from.
#[derive(Clone, Debug)]
pub struct Spreading {
    trails: Vec<Trail>,
    /// sum z (phi - gamma^2 phi')' (m, m).
    system: Matrix,
    /// sum z delta^2 (m, H).
    squares: Matrix,
    /// sum z (1 - gamma^2) (m,).
    level: Vec<f64>,
    /// sum e delta^2 (H,) and sum e (1 - gamma^2).
    totals: Vec<f64>,
    lost: f64,
    /// z and phi - gamma^2 phi' of rows that are still to be multiplied.
    left: Matrix,
    right: Matrix,
    gathered: usize,
}

impl Spreading {
    /// Nothing gathered, for m features and H rewards.
    pub fn new(m: usize, rewards: usize) -> Self {
        Self {
            trails: Vec::new(),
            system: Matrix::zeros(m, m),
            squares: Matrix::zeros(m, rewards),
            level: vec![0.0; m],
            totals: vec![0.0; rewards],
            lost: 0.0,
            left: Matrix::zeros(m, COLUMNS),
            right: Matrix::zeros(m, COLUMNS),
            gathered: 0,
        }
    }

    /// A row with features phi (m,) arrives in the chain of `slot`: `discount` is the discount of the row before it, 0 where it
    /// starts the chain; `carry` how much of a trace flows into it, `ratio` its weight.
    pub fn arrive(&mut self, slot: usize, features: &[f64], discount: f64, carry: f64, ratio: f64) {
        if self.trails.len() <= slot {
            self.trails.resize_with(slot + 1, Trail::default);
        }
        let trail = &mut self.trails[slot];
        let decay = discount * discount * carry;
        trail.trace.resize(features.len(), 0.0);
        for (z, phi) in trail.trace.iter_mut().zip(features) {
            *z = decay * *z + ratio * phi;
        }
        trail.sum = decay * trail.sum + ratio;
        trail.features.clear();
        trail.features.extend_from_slice(features);
    }

    /// The last row of `slot` is known to have led to a state of features `successor` (m,) with `discount`, or to have
    /// terminated (none), with these TD errors (H,).
    pub fn settle(&mut self, slot: usize, successor: Option<&[f64]>, discount: f64, errors: &[f64]) {
        let trail = &self.trails[slot];
        let square = if successor.is_some() { discount * discount } else { 0.0 };
        let k = self.gathered;
        self.left.col_mut(k).copy_from_slice(&trail.trace);
        self.right.col_mut(k).copy_from_slice(&trail.features);
        if let Some(successor) = successor {
            axpy(self.right.col_mut(k), -square, successor);
        }
        for (h, error) in errors.iter().enumerate() {
            axpy(self.squares.col_mut(h), error * error, &trail.trace);
            self.totals[h] += trail.sum * error * error;
        }
        axpy(&mut self.level, 1.0 - square, &trail.trace);
        self.lost += trail.sum * (1.0 - square);
        self.gathered += 1;
        if self.gathered == COLUMNS {
            self.flush();
        }
    }

    /// The chain of `slot` has ended.
    pub fn end(&mut self, slot: usize) {
        if let Some(trail) = self.trails.get_mut(slot) {
            trail.trace.fill(0.0);
            trail.sum = 0.0;
        }
    }

    fn flush(&mut self) {
        let (m, count) = (self.level.len(), self.gathered);
        let (left, right) = (self.left.block(0, 0, m, count), self.right.block(0, 0, m, count));
        multiply(self.system.view_mut(), true, 1.0, left, Op::Plain, right, Op::Transposed);
        self.gathered = 0;
    }

    /// The variance of the return; `otherwise` is its level where nothing is ever discounted and no row terminates,
    /// `signal_variance` v0 of the base kernel.
    ///
    /// # Errors
    /// If the system is singular.
    pub fn solve(mut self, otherwise: f64, signal_variance: f64) -> Result<Spread, Singular> {
        self.flush();
        let (m, rewards) = (self.level.len(), self.totals.len());
        let level: Vec<f64> = self
            .totals
            .iter()
            .map(|total| if self.lost > 0.0 { total / self.lost } else { otherwise })
            .map(|level| if level.is_finite() && level > 0.0 { level } else { otherwise.max(f64::MIN_POSITIVE) })
            .collect();
        let mut right = self.squares;
        for (h, level) in level.iter().enumerate() {
            axpy(right.col_mut(h), -level, &self.level);
        }
        for j in 0..m {
            *self.system.at_mut(j, j) += RIDGE * signal_variance;
        }
        let weights = if m == 0 { Matrix::zeros(0, rewards) } else { solve_general(&self.system, &right)? };
        Ok(Spread { level, weights })
    }
}
