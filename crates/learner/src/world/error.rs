//! Why a model of the transition gives no answer.

use crate::math::dense::{NotPositiveDefinite, Singular};
use std::fmt;

/// Why a model of the transition gives no answer, and what to do about it.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum WorldError {
    /// A column has another length than it must have.
    Size {
        /// Name of the column.
        what: &'static str,
        /// Its numbers.
        found: usize,
        /// How many there must be.
        expected: usize,
    },
    /// The kernel over successors has columns: what they add to V is no sum over states.
    Columns,
    /// Two worlds have different dictionaries.
    Different,
    /// No row that anything followed has been learned.
    Empty,
    /// Fewer complete rows than kernels can be chosen by.
    Few {
        /// How many there are.
        rows: usize,
        /// How many are needed.
        least: usize,
    },
    /// Under no kernel the errors of predictions for held-out rows are finite numbers.
    Unpredicted,
    /// A ridge that is not positive.
    Ridge(f64),
    /// A discount outside \[0, 1).
    Discount(f64),
    /// Probabilities of a state that are negative or do not sum to 1.
    Probabilities {
        /// Number of the state.
        state: usize,
        /// Their sum.
        sum: f64,
    },
    /// C expresses too little of the successors.
    Lost {
        /// [`World::lost`](super::World::lost).
        lost: f64,
        /// The most that is allowed.
        max: f64,
        /// Elements of C.
        elements: usize,
    },
    /// Mass grows faster than the discount shrinks it: the linear system has a solution, and it is no value.
    Unstable {
        /// Spectral radius of M.
        radius: f64,
        /// The discount.
        discount: f64,
    },
    /// Bounds of values that do not contain 0, where nothing follows.
    Bounds {
        /// The least.
        low: f64,
        /// The largest.
        high: f64,
    },
    /// Too much of the answer lies where no row was.
    Unsupported {
        /// Share of the mass, from 0 to 1.
        share: f64,
        /// The most that is allowed.
        max: f64,
    },
    /// A known reward that is not finite in a state that rows or elements have.
    Reward(f64),
    /// Stopped before the end.
    Stopped,
    /// The budget ended, and none of the kernels that were tried will do.
    OutOfTime {
        /// How many were.
        tried: usize,
    },
    /// A is not positive definite.
    NotPositiveDefinite(NotPositiveDefinite),
    /// A system of equations has no solution.
    Singular(Singular),
}

impl fmt::Display for WorldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Size { what, found, expected } => write!(f, "{what}: {found} numbers, not {expected}"),
            Self::Columns => write!(f, "the kernel over successors has columns; give it none (linear_columns)"),
            Self::Different => {
                write!(f, "the two models have different dictionaries; build one of them from rows anew")
            }
            Self::Empty => write!(f, "no row that anything followed has been learned; send rows that do not terminate"),
            Self::Few { rows, least } => {
                write!(f, "{rows} rows are complete, and kernels are chosen by {least} or more; send more rows")
            }
            Self::Unpredicted => f.write_str(
                "no kernel predicts held-out rows by finite numbers, or nothing differs in them; send chains of several rows",
            ),
            Self::Ridge(ridge) => write!(f, "noise_variance: {ridge} is not positive"),
            Self::Discount(discount) => write!(f, "discount: {discount} is not from 0 to below 1"),
            Self::Probabilities { state, sum } => {
                write!(f, "probabilities of state {state} must not be negative and sum to 1, not to {sum}")
            }
            Self::Lost { lost, max, elements } => write!(
                f,
                "{elements} states express too little of the successors ({lost:.3} is lost, at most {max} may be); \
                 allow more of them or lengthen the kernel's lengthscales"
            ),
            Self::Unstable { radius, discount } => write!(
                f,
                "the model makes mass of nothing: spectral radius {radius:.4} times discount {discount} is not below 1; \
                 give it more states or rows, or a larger constant in both kernels"
            ),
            Self::Bounds { low, high } => {
                write!(f, "bounds: from {low} to {high} must contain 0, the value of a terminal state")
            }
            Self::Unsupported { share, max } => write!(
                f,
                "{:.0} % of the answer lies where no row was, at most {:.0} % may; let the agent go there",
                100.0 * share,
                100.0 * max
            ),
            Self::Reward(reward) => write!(f, "the reward is {reward} in a state that rows have"),
            Self::Stopped => f.write_str("stopped before the end"),
            Self::OutOfTime { tried } => {
                write!(f, "the budget ended, and none of {tried} kernels tried will do; raise refit_budget_s")
            }
            Self::NotPositiveDefinite(error) => error.fmt(f),
            Self::Singular(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for WorldError {}

impl From<NotPositiveDefinite> for WorldError {
    fn from(error: NotPositiveDefinite) -> Self {
        Self::NotPositiveDefinite(error)
    }
}

impl From<Singular> for WorldError {
    fn from(error: Singular) -> Self {
        Self::Singular(error)
    }
}
