//! The faults that an error reply reports.

use criticd_learner::transition::{Invalid, InvalidCode};
use std::fmt::Display;

criticd_learner::named! {
    /// What kind of fault an error reply reports.
    pub enum ErrorCode {
        /// Not one MessagePack map with string keys.
        Malformed = "malformed",
        /// `v` is not 1.
        UnsupportedVersion = "unsupported_version",
        /// No such `op`.
        UnknownOp = "unknown_op",
        /// No such critic.
        UnknownCritic = "unknown_critic",
        /// A required field is not there.
        MissingField = "missing_field",
        /// A field has another type than it must have.
        WrongType = "wrong_type",
        /// A field has another number of axes or of rows than it must have.
        WrongShape = "wrong_shape",
        /// States or rewards are of another length than those before them.
        WrongDimension = "wrong_dimension",
        /// A number is NaN or infinite.
        NotFinite = "not_finite",
        /// A number, a length or a flag is outside what is allowed.
        OutOfRange = "out_of_range",
        /// Rows between the last known one and this one are missing; `expected_seq` says where to go on.
        SequenceGap = "sequence_gap",
        /// The same `seq` came before with other content.
        Conflict = "conflict",
        /// A newer session of the stream exists.
        Fenced = "fenced",
        /// More bytes or rows than one message may hold.
        TooLarge = "too_large",
        /// The daemon may know no more streams.
        TooManyStreams = "too_many_streams",
        /// Try again after `retry_after_ms`.
        Overloaded = "overloaded",
        /// There is no model yet, or recovery still runs.
        NotReady = "not_ready",
        /// Nothing is accepted any more, queries are still answered.
        ReadOnly = "read_only",
        /// The peer may not do this.
        Unauthorised = "unauthorised",
        /// A fault of the daemon's own.
        Internal = "internal",
    }
}

impl ErrorCode {
    /// Whether rows that are refused with it are still to come: their sender has but to send them again, later or from
    /// `expected_seq` on. With any other code they are lost unless somebody mends something.
    pub fn is_passing(self) -> bool {
        matches!(self, Self::SequenceGap | Self::Overloaded | Self::NotReady | Self::ReadOnly)
    }
}

/// A field and a row at fault, as they stand behind a code.
pub(super) fn place(field: Option<&str>, index: Option<impl Display>) -> String {
    let field = field.map(|field| format!(" {field}")).unwrap_or_default();
    field + &index.map(|index| format!(" (row {index})")).unwrap_or_default()
}

/// Why a message is refused: the `error` map of a reply.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}{}: {message}", .code.name(), place(*.field, *.index))]
pub struct WireError {
    /// Kind of fault.
    pub code: ErrorCode,
    /// A sentence for people.
    pub message: String,
    /// Field at fault, by its name on the wire; parts of nested maps as `kernel.relevance`.
    pub field: Option<&'static str>,
    /// Row at fault, where one row is.
    pub index: Option<usize>,
    /// With `sequence_gap`: the `seq` that would have been right.
    pub expected_seq: Option<u64>,
    /// With `overloaded`: how long to wait.
    pub retry_after_ms: Option<u64>,
}

impl WireError {
    /// A fault of the whole message.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), field: None, index: None, expected_seq: None, retry_after_ms: None }
    }

    /// A fault of one field.
    pub fn of(code: ErrorCode, field: &'static str, message: impl Into<String>) -> Self {
        Self { field: Some(field), ..Self::new(code, message) }
    }

    /// The same fault, in row `index`.
    pub fn at(self, index: usize) -> Self {
        Self { index: Some(index), ..self }
    }

    /// States of `found` numbers came where states have `expected`, which the setting of this name says; no name where rows do.
    pub fn other_dimension(field: &'static str, (expected, setting): (usize, &str), found: usize) -> Self {
        let why = if setting.is_empty() { String::new() } else { format!(" (setting {setting})") };
        let message = format!("states have {expected} numbers here{why}, these have {found}");
        Self::of(ErrorCode::WrongDimension, field, message)
    }

    /// Rows are missing before the one that came.
    pub fn sequence_gap(expected_seq: u64) -> Self {
        let error = Self::of(ErrorCode::SequenceGap, "seq", format!("the next row must have seq {expected_seq}"));
        Self { expected_seq: Some(expected_seq), ..error }
    }

    /// The daemon has no room just now.
    pub fn overloaded(retry_after_ms: u64) -> Self {
        let error = Self::new(ErrorCode::Overloaded, format!("no room now, try again in {retry_after_ms} ms"));
        Self { retry_after_ms: Some(retry_after_ms), ..error }
    }

    pub(super) fn malformed(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Malformed, message)
    }

    pub(super) fn missing(field: &'static str) -> Self {
        Self::of(ErrorCode::MissingField, field, format!("`{field}` is required"))
    }
}

impl From<Invalid> for WireError {
    fn from(fault: Invalid) -> Self {
        let code = match fault.code {
            InvalidCode::MissingField => ErrorCode::MissingField,
            InvalidCode::WrongType => ErrorCode::WrongType,
            InvalidCode::WrongShape => ErrorCode::WrongShape,
            InvalidCode::WrongDimension => ErrorCode::WrongDimension,
            InvalidCode::NotFinite => ErrorCode::NotFinite,
            InvalidCode::OutOfRange => ErrorCode::OutOfRange,
        };
        Self { index: fault.index, ..Self::of(code, fault.field, fault.message) }
    }
}
