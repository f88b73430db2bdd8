//! What a search may spend: a count of work, and no clock.
//!
//! A search that ended by a clock would end elsewhere on a slower machine, or beside other work, with another model. This budget is a
//! number of products, so that what a search finds is a function of rows, settings and seed. Work is counted where it is done, by what
//! it takes in theory, and weighed by what it takes on a processor. Whether anything is left is asked only where one thread decides:
//! before branches that run beside each other, never within them.

use crate::math::evidence::Problem;
use crate::settings::Settings;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Products of numbers, each added to a sum, that one second of a budget stands for: what one core of a server of 2021 does of a search
/// in a second, as an average over searches of several shapes.
pub const PRODUCTS_PER_SECOND: f64 = 2e10;
/// What one covariance takes beside a product for each coordinate.
const COVARIANCE: f64 = 40.0;
/// What a product takes whose factors come from memory one after the other.
const STREAMED: f64 = 8.0;
/// Products of the eigenvectors of a symmetric matrix, over the cube of its rows.
const EIGENVECTORS: f64 = 6.5;
/// The same of a reduction to three diagonals.
const TRIDIAGONAL: f64 = 3.0;
/// Products of the search for the best noise and scale of one column, for each row.
const BEST: f64 = 6e4;
/// What learning a row takes beside its features.
const ROW: f64 = 4e4;
/// What an evaluation of the evidence takes, however few its rows are.
const EVALUATION: f64 = 2e5;

/// What is left of a budget.
#[derive(Debug)]
pub struct Allowance {
    most: u64,
    spent: AtomicU64,
    ended: AtomicBool,
}

impl Allowance {
    /// This number of products.
    pub fn of_products(products: u64) -> Self {
        Self { most: products, spent: AtomicU64::new(0), ended: AtomicBool::new(false) }
    }

    /// As many products as one core takes about this time for.
    ///
    /// # Panics
    /// If the number is negative, or none.
    pub fn of_seconds(seconds: f64) -> Self {
        assert!(seconds >= 0.0, "a budget of {seconds} s");
        Self::of_products((PRODUCTS_PER_SECOND * seconds) as u64)
    }

    /// No end.
    pub fn unlimited() -> Self {
        Self::of_products(u64::MAX)
    }

    /// Nothing, so that a search does only what it must.
    pub fn none() -> Self {
        Self::of_products(0)
    }

    /// Count work. The sum does not depend on the order in which threads add to it.
    pub(crate) fn spend(&self, products: f64) {
        let add = |spent: u64| Some(spent.saturating_add(products as u64));
        let _ = self.spent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }

    /// Products counted so far.
    pub fn spent(&self) -> u64 {
        self.spent.load(Ordering::Relaxed)
    }

    /// Share of it that is spent, 0 to 1.
    pub fn share_spent(&self) -> f64 {
        (self.spent() as f64 / self.most.max(1) as f64).min(1.0)
    }

    pub(crate) fn rest(&self) -> u64 {
        self.most.saturating_sub(self.spent())
    }

    /// Whether anything is left. If not, the budget has ended what asks.
    pub fn left(&self) -> bool {
        let left = self.rest() > 0;
        if !left {
            self.end();
        }
        left
    }

    /// Whether this number of products is left. What can do without them asks this: the budget has not ended it.
    pub(crate) fn affords(&self, products: f64) -> bool {
        products <= self.rest() as f64
    }

    /// Of `count` tasks of at most `most` steps, a step taking `each` products: how many may run beside each other now, and how many
    /// steps each of these may take. Those go first for all of whose steps something is left: a task that is cut short leads to little. None
    /// where nothing is left for one step.
    pub(crate) fn share(&self, count: usize, most: usize, each: f64) -> (usize, usize) {
        let steps = (self.rest() as f64 / each) as usize;
        if steps >= count.saturating_mul(most) {
            return (count, most);
        }
        if steps >= most { (steps / most, most) } else { (steps.min(1), steps) }
    }

    /// Note that the budget has ended something.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    /// Whether the budget has ended something.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }
}

/// Products of the covariances of `pairs` of states with `dim` coordinates.
pub(crate) fn covariances(pairs: f64, dim: usize) -> f64 {
    pairs * (COVARIANCE + dim as f64)
}

/// Products of a choice of `elements` among `states` by pivoted incomplete Cholesky.
pub(crate) fn pivots(states: usize, elements: usize, dim: usize) -> f64 {
    let (n, m) = (states as f64, elements as f64);
    covariances(n * m, dim) + 0.5 * STREAMED * n * m * m
}

/// Products of a model of these `elements` that learns `rows`, with the rewards and heads of `settings`.
pub(crate) fn pass(rows: usize, elements: usize, dim: usize, settings: &Settings) -> f64 {
    let (n, m, columns) = (rows as f64, elements as f64, (settings.rewards.len() + settings.heads.len()) as f64);
    ROW * n + 2.0 * covariances(n * m, dim) + 4.0 * n * m * m + columns * m * (n + m)
}

/// Products of a solution of `elements` equations.
pub(crate) fn solution(elements: usize) -> f64 {
    (elements as f64).powi(3)
}

/// Products of the exact evidence of a problem, with its gradient or without.
pub(crate) fn exact(problem: &Problem, gradient: bool) -> f64 {
    let (n, nodes) = (problem.rows() as f64, (problem.nodes().len() / problem.dim()) as f64);
    let gram = covariances(0.5 * nodes * nodes, problem.dim());
    let (value, slopes) = if problem.is_profiled() {
        (EIGENVECTORS * n.powi(3) + BEST * n * problem.observed().cols() as f64, 2.0)
    } else {
        (n.powi(3) / 6.0, 1.0 / 3.0)
    };
    EVALUATION + gram + value + if gradient { slopes * n.powi(3) + gram } else { 0.0 }
}

/// Products of the gradients of all columns of a problem, each at its best noise and scale.
pub(crate) fn exact_of_each(problem: &Problem) -> f64 {
    let (n, columns) = (problem.rows() as f64, problem.observed().cols() as f64);
    exact(problem, false) + columns * (n.powi(3) + covariances(0.5 * n * n, problem.dim()))
}

/// Products of the largest evidence of `rows` over ridges.
pub(crate) fn over_ridges(rows: usize, dim: usize) -> f64 {
    let n = rows as f64;
    covariances(n * n, dim) + TRIDIAGONAL * n.powi(3)
}

/// Products of the evidence of a problem through a dictionary, with its gradient or without.
pub(crate) fn bound(problem: &Problem, elements: usize, gradient: bool) -> f64 {
    let (n, m) = (problem.rows() as f64, elements as f64);
    let value = covariances(n * m, problem.dim()) + n * m * m + solution(elements);
    if gradient { 3.0 * value } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_shared_among_those_who_come_first() {
        let left = |products: u64| Allowance::of_products(products);
        assert_eq!(left(800).share(8, 10, 10.0), (8, 10), "enough for all");
        assert_eq!(left(799).share(8, 10, 10.0), (7, 10), "what these leave is for the last one");
        assert_eq!(left(799).share(2, 80, 10.0), (1, 79));
        assert_eq!(left(190).share(8, 80, 10.0), (1, 19));
        assert_eq!(left(10).share(8, 80, 10.0), (1, 1));
        assert_eq!(left(9).share(8, 80, 10.0), (0, 0));
        assert_eq!(Allowance::unlimited().share(8, 80, 10.0), (8, 80));
    }

    #[test]
    fn it_ends_with_the_last_product_and_says_so() {
        let allowance = Allowance::of_products(100);
        allowance.spend(60.0);
        assert!(allowance.left() && allowance.affords(40.0) && !allowance.affords(41.0) && !allowance.has_ended());
        allowance.spend(40.0);
        assert!(!allowance.affords(1.0) && !allowance.has_ended(), "nobody was ended");
        assert!(!allowance.left() && allowance.has_ended() && allowance.share_spent() == 1.0);
        allowance.spend(40.0);
        assert_eq!(
            (allowance.share_spent(), Allowance::unlimited().share_spent(), Allowance::none().share_spent()),
            (1.0, 0.0, 0.0)
        );
        assert_eq!(Allowance::of_seconds(0.5).most, (0.5 * PRODUCTS_PER_SECOND) as u64);
        assert!(Allowance::of_seconds(f64::MAX).affords(1e18));
    }
}
