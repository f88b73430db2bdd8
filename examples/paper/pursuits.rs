//! OMP-TD and OMP-BRM: the notes' counterexample, Tropp's condition, random sparse chains and a chain with decoys.

use super::GO;
use criticd::learner::random::{mix, normal, uniform};
use criticd::math::dense::{Matrix, Op, product, solve_general};
use criticd::math::pursuit::{Candidates, by_fixed_point, by_residual, recovery_coefficient};

/// Correlation at or below which nothing more is chosen: beta = 0 up to rounding.
const ENOUGH: f64 = 1e-9;
/// States and features of a random chain, and its discount.
const CHAIN_STATES: usize = 30;
const CHAIN_FEATURES: usize = 20;
const CHAIN_DISCOUNT: f64 = 0.9;

/// States with their features, what follows, and rewards.
pub(crate) struct World {
    /// Phi (n, k).
    features: Matrix,
    /// gamma P Phi (n, k).
    next: Matrix,
    /// R (n, 1).
    pub(crate) rewards: Matrix,
    /// Features that V* consists of.
    pub(crate) needed: Vec<usize>,
}

/// What both pursuits do in a world.
pub(crate) struct Outcome {
    /// Largest sum of magnitudes of Tropp's condition, which holds below 1.
    pub(crate) coefficient: f64,
    /// In the order of choice, from 0.
    pub(crate) by_td: Vec<usize>,
    pub(crate) by_brm: Vec<usize>,
}

impl World {
    /// `decoys` copies of the first state of the notes, all of which lead to the second; then a row of four. One feature for each state.
    pub(crate) fn notes(discount: f64, decoys: usize) -> Self {
        let n = decoys + 4;
        let mut next = Matrix::zeros(n, n);
        (0..n - 1).for_each(|i| *next.at_mut(i, if i < decoys { decoys } else { i + 1 }) = discount);
        let first = -discount - discount.powi(2) - discount.powi(3);
        let reward = |i: usize| {
            if i < decoys {
                first
            } else if i < n - 1 {
                1.0
            } else {
                0.0
            }
        };
        let rewards = Matrix::from_columns(n, 1, (0..n).map(reward).collect());
        Self { features: Matrix::identity(n), next, rewards, needed: (decoys..decoys + 3).collect() }
    }

    /// A chain of random features, in which each state leads to three at random, and whose value needs `sparsity` of the features.
    pub(crate) fn random(sparsity: usize, seed: u64) -> Self {
        let (n, k) = (CHAIN_STATES, CHAIN_FEATURES);
        let drawn = |what: u64, i: usize| mix(&[seed, sparsity as u64, what, i as u64]);
        let features = Matrix::from_columns(n, k, (0..n * k).map(|i| normal(drawn(0, i))).collect());
        let mut leads = Matrix::zeros(n, n);
        for i in 0..3 * n {
            let to = (uniform(drawn(1, i)) * n as f64) as usize;
            *leads.at_mut(i / 3, to) += CHAIN_DISCOUNT / 3.0;
        }
        let next = product(leads.view(), Op::Plain, features.view(), Op::Plain);
        let mut needed: Vec<usize> = (0..k).collect();
        needed.sort_by_key(|&j| drawn(2, j));
        needed.truncate(sparsity);
        let mut rewards = Matrix::zeros(n, 1);
        for &j in &needed {
            let weight = 1.0 + uniform(drawn(3, j));
            (0..n).for_each(|i| *rewards.at_mut(i, 0) += weight * (features.at(i, j) - next.at(i, j)));
        }
        needed.sort_unstable();
        Self { features, next, rewards, needed }
    }

    /// V* (n,) where features are those of the notes, one for each state: (I - gamma P)^-1 R.
    pub(crate) fn value(&self) -> Vec<f64> {
        solve_general(&self.differences(), &self.rewards).expect("discounted").col(0).to_vec()
    }

    /// X = Phi - gamma P Phi.
    fn differences(&self) -> Matrix {
        let mut out = self.features.clone();
        (0..out.cols()).for_each(|j| out.col_mut(j).iter_mut().zip(self.next.col(j)).for_each(|(a, b)| *a -= b));
        out
    }

    /// |Phi'R| and |X'R|: what the pursuits choose their first feature by.
    pub(crate) fn first_correlations(&self) -> [Vec<f64>; 2] {
        [&self.features, &self.differences()].map(|of| {
            let found = product(of.view(), Op::Transposed, self.rewards.view(), Op::Plain);
            found.col(0).iter().map(|c| c.abs()).collect()
        })
    }

    /// The coefficient of Tropp's condition.
    pub(crate) fn coefficient(&self) -> f64 {
        recovery_coefficient(self.differences().view(), &self.needed)
            .expect("features that do not depend on each other")
    }

    /// Both pursuits.
    pub(crate) fn pursue(&self) -> Outcome {
        let of =
            Candidates { now: &self.features, next: &self.next, rewards: &self.rewards, ridge: 0.0, enough: ENOUGH };
        let most = self.features.cols();
        let by_td = by_fixed_point(&of, most, GO).ok().flatten().unwrap_or_default();
        let by_brm = by_residual(&of, most, GO).ok().flatten().unwrap_or_default();
        Outcome { coefficient: self.coefficient(), by_td, by_brm }
    }
}

impl Outcome {
    /// Whether a pursuit has chosen what is needed, in as many steps.
    pub(crate) fn finds(chosen: &[usize], needed: &[usize]) -> bool {
        let mut sorted = chosen.to_vec();
        sorted.sort_unstable();
        sorted == needed
    }
}

/// Where `holds` of the discount turns from false to true, in (0, 1).
pub(crate) fn turning(holds: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        if holds(middle) { high = middle } else { low = middle }
    }
    high
}
