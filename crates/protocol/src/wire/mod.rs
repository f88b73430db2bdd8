//! Protocol version 1: MessagePack in, domain types out, and back. No sockets; `proto/README.md` is the contract.
//!
//! ```text
//! bytes --reader--> spans of the known keys --tensor, v1--> BatchParts --Batch::new--> Batch
//! ```
//! Messages come from anybody, so decoding is flat and bounded. One pass checks that the bytes are one whole
//! MessagePack map and notes where the values of known keys lie; a second reads those that the message needs. Every
//! claimed length is compared with the bytes that are left before anything is allocated, nesting is limited, and what
//! decoding allocates stays below twenty times the message (a list of one-byte integers, whose successors are copied).

mod act;
mod actions;
mod bodies;
mod checks;
mod encode;
mod error;
mod evaluate;
pub mod events;
mod heads;
mod hello;
mod model;
pub mod reader;
mod refit_report;
mod reply_reader;
pub mod status;
mod suggest;
mod tensor;
mod v1;
mod values;
mod wording;
mod world;

pub use act::{ActRequest, Given};
pub use actions::action_space_to_json;
pub use encode::{
    RefitOutcome, RefusedRows, Reply, StreamPosition, bytes_of, encode_announcement, encode_append, encode_error,
    encode_event, encode_ingest, encode_policy_request, encode_reply, encode_request, encode_snapshot, encode_status,
    encode_values, encode_weights, to_json, with_bytes, with_head, with_run,
};
pub use error::{ErrorCode, WireError};
pub use evaluate::{Answers, EVALUATED_MAX, EvaluateRequest, RetainedRows, Span, findings_to_json};
pub use events::{DatedEvent, Event};
pub use heads::{
    HeadAnswers, HeadForm, ListedHead, UNKNOWN_LABELS, VerdictForm, head_list_from_str, heads_from_list, heads_from_str,
};
pub use hello::Greeting;
pub use model::{
    HyperparameterFile, decode_snapshot, decode_weights, hyperparameters_from_str, hyperparameters_to_json,
};
pub use refit_report::refit_report_to_json;
pub use reply_reader::{PolicyReply, Refusal, ReplyHead, decode_policy_reply, decode_reply};
pub use status::Status;
pub use v1::{
    Draft, Origin, decode_append_into, decode_ingest, decode_ingest_into, decode_request, origin, peek, read_request,
};
pub use wording::{diagnostic, held_bound, hidden_state, kinds_mismatch, lack, refit_error, relevance};
pub use world::{PlanRequest, PolicyAsked, RolloutRequest, STEPS_MAX, course_to_json, plan_to_json};

use crate::rights::{Right, Rights};
use criticd_learner::LabelPart;
use criticd_learner::removal::Selector;
use criticd_learner::snapshot::Ask;
use criticd_learner::transition::Batch;

/// The protocol's version, the value of `v` in every message.
pub const VERSION: u64 = 1;

/// Bytes of one page of a snapshot's encoding; the last page may be shorter.
pub const PAGE_BYTES: usize = 512 << 10;
/// Streams in one reply to `streams`: names and sessions of full length keep it below 600 KiB.
pub const STREAMS_PER_PAGE: usize = 1024;
/// Heads in one reply to `heads`: with names of full length it stays below 600 KiB.
pub const HEADS_PER_PAGE: usize = 1024;
/// Critics that one `value` request may name.
pub const ANSWERING_MAX: usize = 64;
/// Longest `id` of a request, in bytes of MessagePack.
pub const ID_BYTES_MAX: usize = 256;

/// How much one message may hold; more is `too_large`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of a message, at least 1024.
    pub message_bytes_max: usize,
    /// Rows of a batch, at least 1.
    pub rows_per_batch_max: usize,
    /// States in one `value` request, at least 1. The default keeps mean and variance of one reward within 1 MiB.
    pub query_rows_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { message_bytes_max: 1 << 20, rows_per_batch_max: 4096, query_rows_max: 1 << 16 }
    }
}

/// A request's `id`: one MessagePack value of any kind, kept as the bytes that came and echoed as such.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Id(Vec<u8>);

impl Id {
    /// The id of a request that has none, or none that can be read.
    pub fn nil() -> Self {
        Self(vec![0xc0])
    }

    /// The encoded value.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// How tensors are written in a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ArrayForm {
    /// The map that Python's `msgpack-numpy` writes, `<f8`.
    #[default]
    Tensor,
    /// Nested arrays of numbers.
    List,
}

/// What a peer asks on the control socket.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Echoed in the reply.
    pub id: Id,
    /// How the reply's tensors are to be written.
    pub arrays: ArrayForm,
    /// What is asked.
    pub op: Op,
}

/// The critics that answer a `value` request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answering {
    /// One alone; the first one if none is named.
    One(Option<String>),
    /// Each of these, 1 to [`ANSWERING_MAX`] different names, in this order.
    Each(Vec<String>),
}

/// A moment of the past.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Moment {
    /// When this number of rows had been stored.
    Offset(u64),
    /// At this time, Unix seconds.
    Time(f64),
}

/// Heads that a request names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadNames {
    /// Every head there is.
    All,
    /// These.
    These(Vec<String>),
}

/// The operations of the control socket.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "rows are the common case")]
pub enum Op {
    /// Learn these rows, all or none; the batch carries a `seq`.
    Append(Batch),
    /// Mean of V at some states, and what else is asked for.
    Value {
        /// (rows, dim), row-major; not yet checked for finiteness, which [`criticd_learner::snapshot::Snapshot::evaluate`] does.
        states: Vec<f64>,
        /// Number of states, at least 1.
        rows: usize,
        /// Numbers per state, at least 1.
        dim: usize,
        /// Who answers.
        critics: Answering,
        /// What is wanted beside the mean.
        ask: Ask,
        /// Answer only when the models have learned this many rows.
        min_offset: Option<u64>,
        /// The action of each state, or several of one state, where values are of actions.
        actions: Option<Given>,
        /// Heads that answer besides, of the one critic that does.
        heads: Option<HeadNames>,
        /// Answer as then.
        as_of: Option<Moment>,
    },
    /// Decisions in some states.
    Act(ActRequest),
    /// A page of the rows that the journal retains.
    Rows(Span),
    /// Judge another policy by such rows.
    Evaluate(EvaluateRequest),
    /// The whole model.
    Snapshot {
        /// Which critic; the first one if none is named.
        critic: Option<String>,
        /// Whether the variance matrix is wanted.
        variance: bool,
        /// Which page of its encoding, from 0; the model itself if left out.
        page: Option<u64>,
        /// Revision that the pages before came from; the present one if left out.
        revision: Option<u64>,
        /// The value function of this head, in one piece, in place of the critic's.
        head: Option<String>,
        /// The model as it was then.
        as_of: Option<Moment>,
    },
    /// Everything the daemon knows about itself.
    Status,
    /// Where streams stand.
    Streams {
        /// The streams of these names, at most [`STREAMS_PER_PAGE`]; all, page by page, if left out.
        names: Option<Vec<String>>,
        /// Where the page begins, as the page before said; 0 for the first.
        from: u64,
    },
    /// Start a refit now.
    Refit {
        /// Which critic; the first one if none is named.
        critic: Option<String>,
        /// Answer only when the refit was adopted or rejected.
        wait: bool,
    },
    /// From the next row on another policy acts.
    NewPolicy {
        /// For which critic; for all if none is named.
        critic: Option<String>,
        /// Its name, 1..=256 bytes, if it has one.
        policy: Option<String>,
    },
    /// List the heads of a critic.
    Heads {
        /// Of which critic; of the first one if none is named.
        critic: Option<String>,
        /// Only the heads of these names; all, page by page, if left out.
        names: Option<Vec<String>>,
        /// Number of the first one, as the page before said; 0 for the first.
        from: u64,
    },
    /// Remove heads and add others.
    ChangeHeads {
        /// Which critic; the first one if none is named.
        critic: Option<String>,
        /// Heads to add.
        add: Vec<HeadForm>,
        /// Names of heads to remove first.
        remove: Vec<String>,
        /// Labels to keep.
        labels: Option<LabelPart>,
    },
    /// Decide for a context.
    Suggest {
        /// Which advisor; the first one if none is named.
        advisor: Option<String>,
        /// (D,), not yet checked.
        context: Vec<f64>,
    },
    /// Learn the cost of a decision.
    Report {
        /// Which advisor; the first one if none is named.
        advisor: Option<String>,
        /// Number of the decision.
        decision_id: u64,
        /// Its cost, not yet checked.
        cost: f64,
    },
    /// Learn a critic again from the whole journal.
    Rebuild {
        /// Which critic; the first one if none is named.
        critic: Option<String>,
        /// Answer only when it has taken over, or has failed.
        wait: bool,
    },
    /// Take rows back.
    Remove(RemoveRequest),
    /// Plan for a reward by the model of the transition.
    Plan(PlanRequest),
    /// Predict a course by it.
    Rollout(RolloutRequest),
    /// Write a checkpoint now.
    Checkpoint,
    /// Are you there?
    Ping,
    /// What do you speak, and how much of it at a time?
    Hello,
}

/// What rows are to be taken back.
#[derive(Clone, Debug, PartialEq)]
pub struct RemoveRequest {
    /// Rows that one of these selects.
    pub selectors: Vec<Selector>,
    /// Whether it is only to be said which these are.
    pub dry_run: bool,
    /// Whether the rows go too whose next state is the state of one of these.
    pub boundary: bool,
    /// Who asks, at most 1024 bytes.
    pub by: Option<String>,
    /// Why, at most 1024 bytes.
    pub reason: Option<String>,
}

impl Op {
    /// Which operation it is.
    pub fn kind(&self) -> OpKind {
        match self {
            Self::Append(_) => OpKind::Append,
            Self::Value { .. } => OpKind::Value,
            Self::Act(_) => OpKind::Act,
            Self::Rows(_) => OpKind::Rows,
            Self::Evaluate(_) => OpKind::Evaluate,
            Self::Snapshot { .. } => OpKind::Snapshot,
            Self::Status => OpKind::Status,
            Self::Streams { .. } => OpKind::Streams,
            Self::Refit { .. } => OpKind::Refit,
            Self::NewPolicy { .. } => OpKind::NewPolicy,
            Self::Heads { .. } => OpKind::Heads,
            Self::ChangeHeads { .. } => OpKind::ChangeHeads,
            Self::Suggest { .. } => OpKind::Suggest,
            Self::Report { .. } => OpKind::Report,
            Self::Rebuild { .. } => OpKind::Rebuild,
            Self::Remove(_) => OpKind::Remove,
            Self::Plan(_) => OpKind::Plan,
            Self::Rollout(_) => OpKind::Rollout,
            Self::Checkpoint => OpKind::Checkpoint,
            Self::Ping => OpKind::Ping,
            Self::Hello => OpKind::Hello,
        }
    }
}

criticd_learner::named! {
    /// The operations by name: enough to know who may ask for them.
    pub enum OpKind {
        /// [`Op::Append`].
        Append = "append",
        /// [`Op::Value`].
        Value = "value",
        /// [`Op::Act`].
        Act = "act",
        /// [`Op::Rows`].
        Rows = "rows",
        /// [`Op::Evaluate`].
        Evaluate = "evaluate",
        /// [`Op::Snapshot`].
        Snapshot = "snapshot",
        /// [`Op::Status`].
        Status = "status",
        /// [`Op::Streams`].
        Streams = "streams",
        /// [`Op::Refit`].
        Refit = "refit",
        /// [`Op::NewPolicy`].
        NewPolicy = "new_policy",
        /// [`Op::Heads`].
        Heads = "heads",
        /// [`Op::ChangeHeads`].
        ChangeHeads = "change_heads",
        /// [`Op::Suggest`].
        Suggest = "suggest",
        /// [`Op::Report`].
        Report = "report",
        /// [`Op::Rebuild`].
        Rebuild = "rebuild",
        /// [`Op::Remove`].
        Remove = "remove",
        /// [`Op::Plan`].
        Plan = "plan",
        /// [`Op::Rollout`].
        Rollout = "rollout",
        /// [`Op::Checkpoint`].
        Checkpoint = "checkpoint",
        /// [`Op::Ping`].
        Ping = "ping",
        /// [`Op::Hello`].
        Hello = "hello",
    }
}

impl OpKind {
    /// The one of this name on the wire, if there is one. `optimise` is the former name of `refit`.
    pub fn named(name: &[u8]) -> Option<Self> {
        let name = if name == b"optimise" { b"refit" } else { name };
        Self::ALL.into_iter().find(|kind| kind.name().as_bytes() == name)
    }

    /// The rights of which a peer needs one. The right to append includes the requests that a producer needs to find
    /// its place again.
    pub fn needs(self) -> &'static [Right] {
        match self {
            Self::Append | Self::Suggest | Self::Report => &[Right::Append],
            Self::NewPolicy => &[Right::Append, Right::Administer],
            Self::Value
            | Self::Act
            | Self::Rows
            | Self::Evaluate
            | Self::Plan
            | Self::Rollout
            | Self::Snapshot
            | Self::Status
            | Self::Heads => &[Right::Query],
            Self::Streams | Self::Ping | Self::Hello => &[Right::Query, Right::Append],
            Self::Refit | Self::Rebuild | Self::Remove | Self::Checkpoint | Self::ChangeHeads => &[Right::Administer],
        }
    }

    /// Whether a peer with these rights may ask for it.
    ///
    /// # Errors
    /// `unauthorised` if it may not.
    pub fn permitted(self, rights: Rights) -> Result<(), WireError> {
        if rights.has_any(self.needs()) {
            return Ok(());
        }
        let needed = self.needs().iter().map(|right| right.name()).collect::<Vec<_>>().join(" or ");
        let message = format!("`{}` needs the right to {needed}; this peer may: {rights}", self.name());
        Err(WireError::of(ErrorCode::Unauthorised, "op", message))
    }
}

/// A request that is refused before anybody acted on it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{error}")]
pub struct RequestError {
    /// The request's id if it was readable, else nil.
    pub id: Id,
    /// What is wrong.
    #[source]
    pub error: WireError,
}

/// What a peer sent, cut and escaped for an error message.
fn excerpt(text: &str) -> String {
    let cut: String = text.chars().take(40).collect();
    if cut.len() < text.len() { format!("{cut:?}...") } else { format!("{cut:?}") }
}
