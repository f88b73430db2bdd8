//! Why a model of the transition gives no answer.

use crate::math::dense::{NotPositiveDefinite, Singular};

/// Why a model of the transition gives no answer, and what to do about it.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WorldError {
    /// A column has another length than it must have.
    #[error("{what}: {found} numbers, not {expected}")]
    Size {
        /// Name of the column.
        what: &'static str,
        /// Its numbers.
        found: usize,
        /// How many there must be.
        expected: usize,
    },
    /// The kernel over successors has columns: what they add to V is no sum over states.
    #[error("the kernel over successors has columns; give it none (linear_columns)")]
    Columns,
    /// Two worlds have different dictionaries.
    #[error("the two models have different dictionaries; build one of them from rows anew")]
    Different,
    /// No row that anything followed has been learned.
    #[error("no row that anything followed has been learned; send rows that do not terminate")]
    Empty,
    /// Fewer complete rows than kernels can be chosen by.
    #[error("{rows} rows are complete, and kernels are chosen by {least} or more; send more rows")]
    Few {
        /// How many there are.
        rows: usize,
        /// How many are needed.
        least: usize,
    },
    /// Under no kernel the errors of predictions for held-out rows are finite numbers.
    #[error(
        "no kernel predicts held-out rows by finite numbers, or nothing differs in them; send chains of several rows"
    )]
    Unpredicted,
    /// A ridge that is not positive.
    #[error("noise_variance: {0} is not positive")]
    Ridge(f64),
    /// A discount outside \[0, 1).
    #[error("discount: {0} is not from 0 to below 1")]
    Discount(f64),
    /// Probabilities of a state that are negative or do not sum to 1.
    #[error("probabilities of state {state} must not be negative and sum to 1, not to {sum}")]
    Probabilities {
        /// Number of the state.
        state: usize,
        /// Their sum.
        sum: f64,
    },
    /// C expresses too little of the successors.
    #[error(
        "{elements} states express too little of the successors ({lost:.3} is lost, at most {max} may be); allow more \
         of them, a smaller tolerance, or longer lengthscales of the kernel"
    )]
    Lost {
        /// [`World::lost`](super::World::lost).
        lost: f64,
        /// The most that is allowed.
        max: f64,
        /// Elements of C.
        elements: usize,
    },
    /// The lossy set has more elements than are allowed.
    #[error(
        "more than {elements} states are needed for all successors to be within a squared distance of {distance} of their hull; \
         allow more of them or a larger distance"
    )]
    Uncovered {
        /// Elements of C, at most.
        elements: usize,
        /// The squared distance, over the signal variance.
        distance: f64,
    },
    /// No candidate of a pursuit explains enough.
    #[error("no candidate explains more than {0} of where rows lead; ask for less")]
    Unexplained(f64),
    /// Mass grows faster than the discount shrinks it: the linear system has a solution, and it is no value.
    #[error(
        "the model makes mass of nothing: spectral radius {radius:.4} times discount {discount} is not below 1; give \
         it more states or rows, or a larger constant in both kernels"
    )]
    Unstable {
        /// Spectral radius of M.
        radius: f64,
        /// The discount.
        discount: f64,
    },
    /// Bounds of values that do not contain 0, where nothing follows.
    #[error("bounds: from {low} to {high} must contain 0, the value of a terminal state")]
    Bounds {
        /// The least.
        low: f64,
        /// The largest.
        high: f64,
    },
    /// Too much of the answer lies where no row was.
    #[error(
        "{:.0} % of the answer lies where no row was, at most {:.0} % may; let the agent go there",
        100.0 * .share,
        100.0 * .max
    )]
    Unsupported {
        /// Share of the mass, from 0 to 1.
        share: f64,
        /// The most that is allowed.
        max: f64,
    },
    /// A known reward that is not finite in a state that rows or elements have.
    #[error("the reward is {0} in a state that rows have")]
    Reward(f64),
    /// Stopped before the end.
    #[error("stopped before the end")]
    Stopped,
    /// The budget ended, and none of the kernels that were tried will do.
    #[error("the budget ended, and none of {tried} kernels tried will do; raise refit_budget_s")]
    OutOfTime {
        /// How many were.
        tried: usize,
    },
    /// A is not positive definite.
    #[error(transparent)]
    NotPositiveDefinite(#[from] NotPositiveDefinite),
    /// A system of equations has no solution.
    #[error(transparent)]
    Singular(#[from] Singular),
}
