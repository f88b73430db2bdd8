//! Why a refit ends without a candidate, as data: the programs around the learner put it into words.

use crate::math::evidence::EvidenceError;
use crate::math::posterior::SolveError;
use crate::settings::KindsMismatch;
use std::fmt;

/// Why there is no candidate: the present model stays.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RefitError {
    /// The stop flag went up.
    Stopped,
    /// There is not enough information in the rows.
    NotEnough(Lack),
    /// The settings are not for such rows.
    Settings(KindsMismatch),
    /// No ascent got anywhere.
    NoAscent(DeadEnd),
    /// The rebuilt model has no posterior.
    Solve(SolveError),
    /// The rebuilt model predicts values that the rewards cannot add up to.
    Wild {
        /// Largest magnitude predicted at a dictionary element.
        value: f64,
        /// Largest that rewards and discount allow.
        bound: f64,
    },
}

/// What rows lack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lack {
    /// Rows.
    Rows {
        /// How many there are.
        rows: usize,
        /// How many are needed.
        least: usize,
    },
    /// States: all rows start in the same one.
    States,
    /// Rows that the policy to be evaluated could have taken.
    PositiveRatios {
        /// Rows with a ratio above 0.
        positive: usize,
        /// Rows in all.
        rows: usize,
        /// How many with such a ratio are needed.
        least: usize,
    },
    /// Finite returns.
    FiniteReturns,
    /// Returns that differ.
    DifferentReturns,
    /// Heads that differ from state to state.
    DifferentHeads,
}

/// Where a search for hyperparameters ended.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum DeadEnd {
    /// There is no evidence at the point found.
    Evidence(EvidenceError),
    /// There is no evidence at any start.
    Starts,
    /// No kernel predicts finite numbers.
    Kernels,
    /// Too few rows have a weight.
    Rows(usize),
}

impl fmt::Display for RefitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Solve(e) => e.fmt(f),
            other => write!(f, "{other:?}"),
        }
    }
}

impl std::error::Error for RefitError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Solve(e) => Some(e),
            Self::NoAscent(DeadEnd::Evidence(e)) => Some(e),
            _ => None,
        }
    }
}

impl From<SolveError> for RefitError {
    fn from(e: SolveError) -> Self {
        Self::Solve(e)
    }
}

impl From<EvidenceError> for RefitError {
    fn from(e: EvidenceError) -> Self {
        match e {
            EvidenceError::Stopped => Self::Stopped,
            other => Self::NoAscent(DeadEnd::Evidence(other)),
        }
    }
}
