//! Records, and the groups in which they are stored and applied.

use crate::learner::removal::{Offsets, Selector};
use crate::learner::suggest::AdvisorSettings;
use crate::learner::{Adoption, HeadsChange, Learner, Settings};
use crate::transition::Batch;
use serde::{Deserialize, Serialize};

/// A place in the journal: the end of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// Number of the group; 0 before the first one.
    pub id: u64,
    /// Offset behind its last row.
    pub offset: u64,
    /// Its checksum.
    pub crc: u32,
}

/// Where a journal begins, which tells it from others.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Origin {
    /// Checksum of its first group.
    pub crc: u32,
    /// Unix seconds of that group.
    pub time: f64,
}

/// Records that were stored together. They are applied in their order; then the critics learn the group's rows.
#[derive(Clone, Debug)]
pub struct Group {
    /// Its end.
    pub end: Mark,
    /// Offset of its first row, or the next row's offset if it has none.
    pub first_offset: u64,
    /// Unix seconds when its first row was received; of a group without rows, when it was stored.
    pub time: f64,
    /// What happened.
    pub records: Vec<Record>,
}

/// One thing that happened.
#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "rows are the common case")]
pub enum Record {
    /// New rows of one stream.
    Rows(TakenRows),
    /// A critic adopts a model.
    Adopted {
        /// Its name.
        critic: String,
        /// The model.
        adoption: Adoption,
    },
    /// A refit of a critic ended without an adoption, which moves the next one.
    RefitEnded {
        /// Its name.
        critic: String,
    },
    /// A critic leaves rows out.
    Skipped(SkippedRows),
    /// From here on critics have these settings.
    Configured(Configured),
    /// From some row on another policy acts.
    NewPolicy(NewPolicy),
    /// Heads of a critic go, and others come.
    Heads(HeadsChange),
    /// A critic that was learned again from the retained rows takes the place of the one of its name.
    Rebuilt(Box<Learner>),
    /// A request to an advisor.
    Advice(Advice),
    /// Rows are taken back.
    Removed(RemovedRows),
    /// In this place there was this number of rows, which were taken back.
    Hole(u64),
}

/// Rows that are taken back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RemovedRows {
    /// Their offsets.
    pub offsets: Offsets,
    /// Offsets of rows behind them that begin chains, since those before them are gone.
    pub starts: Offsets,
    /// Numbers of the streams whose last rows are gone: their next ones begin chains.
    pub ended: Vec<u32>,
    /// Numbers of all streams that have lost rows.
    pub streams: Vec<u32>,
    /// What was asked for.
    pub selectors: Vec<Selector>,
    /// Who asked, in their own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, in their own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl RemovedRows {
    /// A row of a stream stays at `offset`, behind those that are gone: it begins a chain if it is the stream's first one since.
    pub fn go_on(&mut self, stream: u32, offset: u64) {
        if let Some(place) = self.ended.iter().position(|&ended| ended == stream) {
            self.ended.remove(place);
            self.starts.insert(offset..offset + 1);
        }
    }
}

/// A request to an advisor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// Name of the advisor.
    pub advisor: String,
    /// The request.
    pub request: AdviceRequest,
}

/// A request that changes an advisor. One that it refuses changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum AdviceRequest {
    /// Decide.
    Suggest {
        /// For this context (D,).
        context: Vec<f64>,
    },
    /// Learn the cost of a decision.
    Report {
        /// Number of the decision.
        decision_id: u64,
        /// Its cost, from 0 on.
        cost: f64,
    },
}

/// An announced change of policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewPolicy {
    /// Name of the critic that is concerned; none for all.
    pub critic: Option<String>,
    /// Name of the policy, 1..=256 bytes, if it has one.
    pub policy: Option<String>,
    /// Offset of the first row under it: rows of the same group may come before.
    pub offset: u64,
}

/// Rows as they were received, with what was made of them.
#[derive(Clone, Debug, PartialEq)]
pub struct TakenRows {
    /// Number of their stream.
    pub stream: u32,
    /// Whether each starts a new chain.
    pub starts_chain: Vec<bool>,
    /// The rows.
    pub batch: Batch,
}

/// Rows on which a learner failed: it goes on without them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedRows {
    /// Name of the critic.
    pub critic: String,
    /// Offset of the first row that is left out.
    pub from: u64,
    /// Offset behind the last.
    pub to: u64,
    /// What the learner said.
    pub why: String,
}

/// Settings of all critics and advisors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Configured {
    /// In their order.
    pub critics: Vec<Settings>,
    /// Names of the state variables.
    pub names: Option<Vec<String>>,
    /// Names of the rewards of a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reward_names: Option<Vec<String>>,
    /// Names of the discrete actions, or of the numbers of an action, as rows have brought them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action_names: Option<Vec<String>>,
    /// Offset of the first row that a new critic learns.
    pub from: u64,
    /// Settings of the advisors, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advisors: Vec<AdvisorSettings>,
}

impl Configured {
    /// Whether it records these settings, wherever new critics begin. Mean functions are the same where they say the same, but a start looks
    /// for what a file said by its path: it has to be recorded as well.
    pub(crate) fn says(&self, wanted: &Self) -> bool {
        let forms = |of: &Self| -> Vec<_> {
            of.critics.iter().map(|critic| critic.mean.as_ref().map(|mean| mean.form().clone())).collect()
        };
        Self { from: wanted.from, ..self.clone() } == *wanted && forms(self) == forms(wanted)
    }
}
