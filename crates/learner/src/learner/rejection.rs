//! Why a candidate was turned down.

use crate::refit::TrialReport;

/// Why a candidate was turned down.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// It has less evidence on the same rows.
    #[error("less evidence on the same rows: {after:.1} against {before:.1} nats")]
    LessEvidence {
        /// Of the present model, nats.
        before: f64,
        /// Of the candidate, nats.
        after: f64,
    },
    /// It predicts the rows that arrived meanwhile worse.
    #[error("predicts the {rows} rows scored meanwhile worse: {after:.3} against {before:.3} nats per row")]
    WorseScore {
        /// Of the present model, nats per row.
        before: f64,
        /// Of the candidate, nats per row.
        after: f64,
        /// Rows scored.
        rows: u64,
    },
    /// It errs more on rows that chose neither it nor the present model.
    #[error(
        "worse on {} rows that chose neither model: it errs {:.2e} more, the standard error is {:.1e}",
        .0.rows,
        -.0.gain,
        .0.standard_error
    )]
    ErrsMore(TrialReport),
    /// Its system could not be solved.
    #[error("its system could not be solved")]
    NoPosterior,
    /// It has learned rows that were taken back meanwhile.
    #[error("made of rows that were taken back meanwhile")]
    RowsRemoved,
    /// It was made of rows from before the world changed.
    #[error("made of rows from {from} on, while the world changed at {changed_at}")]
    Outdated {
        /// Offset of its first row.
        from: u64,
        /// Offset of the first row of the world as it is.
        changed_at: u64,
    },
    /// It was made of rows of another policy than the one that acts, which has a model of its own.
    #[error(
        "made of rows of another policy than the one that acts from row {changed_at} on{}, which has a model of its \
         own",
        .policy.as_ref().map(|policy| format!(", {policy:?}")).unwrap_or_default()
    )]
    OtherPolicy {
        /// Offset of the first row under the policy that acts.
        changed_at: u64,
        /// Its name, if it has one.
        policy: Option<String>,
    },
}
