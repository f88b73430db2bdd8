//! What happens in a daemon, as one type: the core makes events, `event.<kind>` and the page carry them, and clients read them.
//!
//! Keys may be added: a reader skips a key that it does not know. `None` travels as nil. `proto/events.md` is made from these types;
//! after a change `CRITICD_WRITE=1 cargo test --release -p criticd-protocol wire::status` writes it again.

use super::status::{DriftAlarm, LastRefit};
use super::{ErrorCode, WireError};
#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// An event, and when it happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DatedEvent {
    /// Unix seconds.
    pub time: f64,
    /// What happened.
    #[serde(flatten)]
    pub event: Event,
}

/// Something that happened. `critic` is the name of the critic to which it happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A refit has begun.
    RefitStarted {
        /// Name of the critic.
        critic: String,
        /// Why it was started.
        trigger: String,
        /// Rows that it looks at.
        rows: u64,
        /// Number of the model in use.
        generation: u64,
        /// Rows learned.
        offset: u64,
    },
    /// The model of a refit took over.
    Adopted(Box<LastRefit>),
    /// The model before stays, or the refit failed.
    RefitRejected(Box<LastRefit>),
    /// The dictionary has as many states as it may have.
    DictionaryFull {
        /// Name of the critic.
        critic: String,
        /// Its states.
        size: u64,
        /// Number of the model in use.
        generation: u64,
    },
    /// Messages were refused since the last such event.
    Rejected(RejectedMessages),
    /// A checkpoint was written.
    Checkpoint {
        /// Rows that it covers.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// Seconds that it took.
        seconds: f64,
    },
    /// A critic failed on some rows and goes on without them.
    RowsSkipped {
        /// Name of the critic.
        critic: String,
        /// Offset of the first of them.
        from: u64,
        /// Offset behind the last of them.
        to: u64,
        /// Why.
        reason: String,
    },
    /// A critic has stopped learning.
    CriticFailed {
        /// Name of the critic.
        critic: String,
        /// Why.
        reason: String,
    },
    /// A critic is being learned again from the journal.
    RebuildStarted {
        /// Name of the critic.
        critic: String,
    },
    /// A critic was learned again from the journal.
    Rebuilt {
        /// Name of the critic.
        critic: String,
        /// Number of its model now.
        generation: u64,
        /// Rows learned when it took over.
        offset: u64,
        /// Rows of the journal that it has learned.
        rows: u64,
        /// Seconds that it took.
        seconds: f64,
    },
    /// A critic could not be learned again.
    RebuildFailed {
        /// Name of the critic.
        critic: String,
        /// Why.
        reason: String,
    },
    /// Rows were taken back.
    Removed {
        /// How many.
        rows: u64,
        /// Who asked, in their own words; nil where they did not say.
        by: Option<String>,
        /// Why, in their own words; nil where they did not say.
        reason: Option<String>,
    },
    /// Another policy acts.
    NewPolicy {
        /// Name of the critic.
        critic: String,
        /// Its first row.
        offset: u64,
        /// Its name; nil if it has none.
        policy: Option<String>,
        /// Number of the model in use.
        generation: u64,
    },
    /// The errors of a critic have changed.
    Drift(DriftAlarm),
    /// A second model learns beside the first.
    Forked {
        /// Name of the critic.
        critic: String,
        /// The row at which it happened.
        offset: u64,
        /// Offset of its first row.
        from: u64,
    },
    /// The second model has taken over.
    Swapped {
        /// Name of the critic.
        critic: String,
        /// The row at which it happened.
        offset: u64,
        /// Offset of its first row.
        from: u64,
        /// Name of the kept old model; nil where it was not kept.
        kept: Option<String>,
        /// Number of the model that answers now.
        generation: u64,
    },
    /// The second model predicted returns no better and was dropped.
    Dismissed {
        /// Name of the critic.
        critic: String,
        /// The row at which it happened.
        offset: u64,
        /// Offset of its first row.
        from: u64,
    },
    /// A kept model has taken over again.
    Returned {
        /// Name of the critic.
        critic: String,
        /// The row at which it happened.
        offset: u64,
        /// Name of that model.
        model: String,
        /// The row after the last one that it had learned.
        until: u64,
        /// Name of the kept old model; nil where it was not kept.
        kept: Option<String>,
        /// Number of the model that answers now.
        generation: u64,
    },
    /// With the setting `alarm`: the return from a row on will probably fall below what was set.
    Alarm(ForetoldFall),
    /// That is over, or the chain has ended.
    AlarmEnded(ForetoldFall),
}

/// Messages that were refused since the last such event.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct RejectedMessages {
    /// How many.
    pub messages: u64,
    /// Name of the error code of the last one.
    pub code: String,
    /// What was wrong with it, a sentence.
    pub message: String,
    /// Its field at fault; nil where none is.
    pub field: Option<String>,
    /// Its row at fault; nil where none is.
    pub index: Option<u64>,
    /// Messages since the start, by the name of their error code.
    pub by_code: BTreeMap<String, u64>,
    /// Whose they were, at most 64.
    pub streams: Vec<RejectedStream>,
}

/// Messages of one session that were refused for one reason.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct RejectedStream {
    /// Name of the stream; nil if it could not be read.
    pub stream: Option<String>,
    /// Session of its producer; nil if it could not be read.
    pub session: Option<String>,
    /// Name of the error code.
    pub code: String,
    /// How many.
    pub messages: u64,
    /// Their rows, as far as they could be read.
    pub rows: u64,
    /// `seq` of the first row; nil where it has none.
    pub seq: Option<u64>,
    /// What was wrong with the first of them, a sentence.
    pub message: String,
}

/// A return that is foretold to fall too low, or is so no longer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct ForetoldFall {
    /// Name of the critic.
    pub critic: String,
    /// Name of the head; nil for the critic's first reward.
    pub head: Option<String>,
    /// Name of the stream.
    pub stream: String,
    /// The row that raises or ends the alarm.
    pub offset: u64,
    /// The row that raised it.
    pub since: u64,
    /// What is predicted at the row; nil where the chain has ended.
    pub value: Option<f64>,
    /// What the return is foretold to fall below.
    pub below: f64,
}

impl Event {
    /// Name of the critic to which it happened; none where it happened to all.
    pub fn critic(&self) -> Option<&str> {
        match self {
            Self::Rejected(_) | Self::Checkpoint { .. } | Self::Removed { .. } => None,
            Self::Adopted(refit) | Self::RefitRejected(refit) => Some(&refit.critic),
            Self::Drift(alarm) => Some(&alarm.critic),
            Self::Alarm(fall) | Self::AlarmEnded(fall) => Some(&fall.critic),
            Self::RefitStarted { critic, .. }
            | Self::DictionaryFull { critic, .. }
            | Self::RowsSkipped { critic, .. }
            | Self::CriticFailed { critic, .. }
            | Self::RebuildStarted { critic }
            | Self::Rebuilt { critic, .. }
            | Self::RebuildFailed { critic, .. }
            | Self::NewPolicy { critic, .. }
            | Self::Forked { critic, .. }
            | Self::Swapped { critic, .. }
            | Self::Dismissed { critic, .. }
            | Self::Returned { critic, .. } => Some(critic),
        }
    }
}

impl DatedEvent {
    /// Read a publication under `event.<kind>`; what else it holds is skipped.
    ///
    /// # Errors
    /// `malformed` with the reason, if the kind is not known, or if a key holds something else than `proto/events.md` says.
    pub fn from_json(message: &Value) -> Result<Self, WireError> {
        Self::deserialize(message).map_err(|e| WireError::new(ErrorCode::Malformed, format!("the event: {e}")))
    }

    /// Its kind, and its other keys but the time; a number that is not finite is null.
    pub(super) fn parts(&self) -> (String, Map<String, Value>) {
        let Ok(Value::Object(mut details)) = serde_json::to_value(&self.event) else { unreachable!("plain data") };
        let Some(Value::String(kind)) = details.remove("event") else { unreachable!("its tag") };
        (kind, details)
    }
}
