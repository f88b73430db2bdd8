//! Sums of several learners under one coordinator.
//!
//! Each worker learns the rows of its own streams and now and then says what it has summed up so far, as a whole: messages that come
//! late, twice or not at all do no harm. The coordinator holds the newest message of each worker and adds them up in the order of the
//! workers' numbers, so that the same messages give the same bits in whatever order they came ([`crate::model::Model::merged`]).

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How far a worker has come; what is larger is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Version {
    /// Rises when the worker has lost its journal.
    pub incarnation: u64,
    /// Removals that it has applied: fewer rows are newer then.
    pub removals: u64,
    /// Offset behind its last row.
    pub offset: u64,
}

/// All that a worker has summed up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Message<S> {
    /// Of what the sums are ([`crate::model::Model::epoch`]).
    pub epoch: u64,
    /// Number of the worker.
    pub worker: u32,
    /// How far it has come.
    pub version: Version,
    /// What it has summed up.
    pub sums: S,
}

/// What a coordinator makes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageVerdict {
    /// It takes the place of the worker's message before.
    Accepted,
    /// It is of another epoch than the present one.
    WrongEpoch {
        /// The present one.
        present: u64,
    },
    /// It is not newer than the message that is held.
    NotNewer {
        /// Version of that message.
        held: Version,
    },
}

impl fmt::Display for MessageVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Accepted => "accepted",
            Self::WrongEpoch { .. } => "wrong epoch",
            Self::NotNewer { .. } => "not newer",
        })
    }
}

/// The newest message of each worker, of one epoch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Coordinator<S> {
    epoch: u64,
    held: BTreeMap<u32, (Version, S)>,
}

impl<S> Coordinator<S> {
    /// Without messages, in this epoch.
    pub fn new(epoch: u64) -> Self {
        Self { epoch, held: BTreeMap::new() }
    }

    /// The present epoch.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Take a message if it is of the present epoch and newer than the one held of its worker; else drop it.
    pub fn take(&mut self, message: Message<S>) -> MessageVerdict {
        let Message { epoch, worker, version, sums } = message;
        if epoch != self.epoch {
            return MessageVerdict::WrongEpoch { present: self.epoch };
        }
        match self.version(worker) {
            Some(held) if version <= held => MessageVerdict::NotNewer { held },
            _ => {
                self.held.insert(worker, (version, sums));
                MessageVerdict::Accepted
            }
        }
    }

    /// Version of the message that is held of a worker.
    pub fn version(&self, worker: u32) -> Option<Version> {
        self.held.get(&worker).map(|&(version, _)| version)
    }

    /// Numbers of the workers that have said something, ascending, with the version and the sums held of each.
    pub fn held(&self) -> impl Iterator<Item = (u32, Version, &S)> {
        self.held.iter().map(|(&worker, (version, sums))| (worker, *version, sums))
    }

    /// What is to be added up, in this order.
    pub fn sums(&self) -> impl Iterator<Item = &S> {
        self.held.values().map(|(_, sums)| sums)
    }

    /// Forget what a worker has said, whose rows others learn from here on: both together would count them twice.
    pub fn dismiss(&mut self, worker: u32) -> Option<S> {
        self.held.remove(&worker).map(|(_, sums)| sums)
    }
}
