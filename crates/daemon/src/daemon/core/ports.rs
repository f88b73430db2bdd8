//! What goes into the core and comes out of it.

use super::caller::{Asker, Caller};
pub use crate::clock::Now;
use crate::daemon::rebuild::{RebuildJob, Rebuilt};
use crate::daemon::removal::RemovalJob;
use crate::daemon::what_if::WhatIfJob;
use crate::journal::checkpoint::Checkpoint;
use crate::learner::allowance::Allowance;
use crate::learner::model::Model;
use crate::learner::refit::{Candidate, RefitJob};
use crate::learner::window::Window;
use crate::transport::{Publication, Reply};
use crate::wire::{self, DatedEvent, Op, Origin, Status, WireError};
use bytes::Bytes;
use std::sync::{Arc, OnceLock};

/// Bytes that are kept of a message that was refused.
pub(super) const REFUSED_BYTES: usize = 4096;

/// A request that only the core can answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Who asked.
    pub caller: Caller,
    /// What is asked.
    pub op: Op,
}

/// A request that waits for the core as it came: it takes no more memory than its message.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "one at a time is on its way; few are kept")]
pub enum Asked {
    /// The message of an `append`.
    Append(Bytes),
    /// An `append` that is refused already: the core counts it, and answers.
    Refused(Box<RefusedAppend>),
    /// Anything else.
    Op(Op),
}

/// An `append` that was refused before its rows were read.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedAppend {
    /// Why.
    pub error: WireError,
    /// Whose rows it holds.
    pub origin: Origin,
    /// The message, or its beginning.
    pub start: Vec<u8>,
}

impl RefusedAppend {
    /// The message `payload` was refused.
    pub fn new(error: WireError, origin: Origin, payload: &[u8]) -> Self {
        Self { error, origin, start: payload[..payload.len().min(REFUSED_BYTES)].to_vec() }
    }

    /// Bytes that it takes while it waits.
    pub fn bytes(&self) -> usize {
        /// Names of stream and session, and the sentence of the error, at most.
        const WORDS: usize = 1024;
        size_of::<Self>() + self.start.len() + WORDS
    }
}

/// Something for the threads around the core to do.
#[derive(Debug)]
pub enum Output {
    /// Answer a peer.
    Reply(Reply),
    /// Publish; dropped if the publisher's queue is full, a later one replaces it.
    Publish(Publication),
    /// Publish under `status`, and show to those who watch.
    Status(Arc<Status>),
    /// Publish under `event.<kind>`, and show to those who watch.
    Event(Box<DatedEvent>),
    /// Select a model.
    Refit {
        /// Index of the critic.
        critic: usize,
        /// What it needs.
        job: Box<RefitJob>,
        /// What its search may spend, once it has begun.
        spent: Arc<OnceLock<Allowance>>,
    },
    /// Let a candidate learn what arrived since it was fitted.
    CatchUp {
        /// Index of the critic.
        critic: usize,
        /// The candidate.
        candidate: Box<Candidate>,
        /// The retained rows.
        window: Window,
    },
    /// Learn a critic again from the journal.
    Rebuild(Box<RebuildJob>),
    /// Let a rebuilt critic learn what was stored since.
    FollowRebuild(Box<Rebuilt>),
    /// Look for rows that are to be taken back.
    Remove(Box<RemovalJob>),
    /// Answer a question to a model of the transition.
    WhatIf(Asker, Box<WhatIfJob>),
    /// Drop this elsewhere: it is large.
    Garbage(Box<Model>),
    /// Encode and write a checkpoint.
    Checkpoint(Box<Checkpoint>),
}

/// How a refit ended, as the thread that ran it says.
#[derive(Debug)]
pub struct RefitDone {
    /// Index of the critic.
    pub critic: usize,
    /// The candidate, or why there is none.
    pub result: Result<Candidate, String>,
    /// Seconds since it was started; of catching up, since that was.
    pub seconds: f64,
}

/// This has happened.
pub(super) fn event(event: wire::Event, now: Now) -> Output {
    Output::Event(Box::new(DatedEvent { time: now.unix, event }))
}

/// An event as subscribers get it.
pub fn publication(event: &DatedEvent) -> Publication {
    let (topic, payload) = wire::encode_event(event);
    Publication { topic, payload: payload.into() }
}
