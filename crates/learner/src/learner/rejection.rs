//! Why a candidate was turned down.

use crate::refit::TrialReport;
use std::fmt;

/// Why a candidate was turned down.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Rejection {
    /// It has less evidence on the same rows.
    LessEvidence {
        /// Of the present model, nats.
        before: f64,
        /// Of the candidate, nats.
        after: f64,
    },
    /// It predicts the rows that arrived meanwhile worse.
    WorseScore {
        /// Of the present model, nats per row.
        before: f64,
        /// Of the candidate, nats per row.
        after: f64,
        /// Rows scored.
        rows: u64,
    },
    /// It errs more on rows that chose neither it nor the present model.
    ErrsMore(TrialReport),
    /// Its system could not be solved.
    NoPosterior,
    /// It has learned rows that were taken back meanwhile.
    RowsRemoved,
    /// It was made of rows from before the world changed.
    Outdated {
        /// Offset of its first row.
        from: u64,
        /// Offset of the first row of the world as it is.
        changed_at: u64,
    },
    /// It was made of rows of another policy than the one that acts, which has a model of its own.
    OtherPolicy {
        /// Offset of the first row under the policy that acts.
        changed_at: u64,
        /// Its name, if it has one.
        policy: Option<String>,
    },
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LessEvidence { before, after } => {
                write!(f, "less evidence on the same rows: {after:.1} against {before:.1} nats")
            }
            Self::WorseScore { before, after, rows } => write!(
                f,
                "predicts the {rows} rows scored meanwhile worse: {after:.3} against {before:.3} nats per row"
            ),
            Self::ErrsMore(TrialReport { rows, gain, standard_error }) => write!(
                f,
                "worse on {rows} rows that chose neither model: it errs {:.2e} more, the standard error is \
                 {standard_error:.1e}",
                -gain
            ),
            Self::NoPosterior => write!(f, "its system could not be solved"),
            Self::RowsRemoved => write!(f, "made of rows that were taken back meanwhile"),
            Self::Outdated { from, changed_at } => {
                write!(f, "made of rows from {from} on, while the world changed at {changed_at}")
            }
            Self::OtherPolicy { changed_at, policy } => {
                write!(f, "made of rows of another policy than the one that acts from row {changed_at} on")?;
                policy.as_ref().map_or(Ok(()), |policy| write!(f, ", {policy:?}"))?;
                write!(f, ", which has a model of its own")
            }
        }
    }
}

impl std::error::Error for Rejection {}
