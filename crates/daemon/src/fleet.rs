//! Learners of different streams that are one: what each has summed up, as files and messages have it, and one model of all.
//!
//! Sums of one epoch add ([`Model::epoch`]). Whoever learns in an epoch begins with its empty model ([`Epoch`]) and says what it has
//! summed up of which streams ([`Told`]); a file has both ([`FleetPart`]), under a key of its own beside the value function.

use crate::learner::merge::{Coordinator, Message, MessageVerdict};
use crate::learner::model::{MergeError, Model, Sums};
use crate::packed;
use crate::sealed::Seal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Key of a MODEL file under which a [`FleetPart`] lies.
pub const SUMS: &str = "sums";

const PART: Seal = Seal { kind: b"criticd sums\n", version: 1 };
const EPOCH: Seal = Seal { kind: b"criticd epoch\n", version: 1 };
const MESSAGE: Seal = Seal { kind: b"criticd message\n", version: 1 };
const COORDINATOR: Seal = Seal { kind: b"criticd coordinator\n", version: 1 };

fn close(seal: Seal, what: &impl Serialize) -> Vec<u8> {
    seal.close(|out| rmp_serde::encode::write_named(out, what).expect("plain data into memory"))
}

fn open<T: DeserializeOwned>(seal: Seal, bytes: &[u8]) -> Result<T, String> {
    let body = seal.open(bytes).map_err(|e| e.to_string())?;
    packed::read(body).map_err(|e| e.to_string())
}

/// What every learner of an epoch begins with.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Epoch(Model);

impl Epoch {
    /// That in which `model` learns.
    pub fn of(model: &Model) -> Self {
        Self(model.of_epoch())
    }

    /// The model that has learned nothing.
    pub fn model(&self) -> &Model {
        &self.0
    }

    /// A fingerprint of it.
    pub fn number(&self) -> u64 {
        self.0.epoch()
    }

    /// The model of all these sums, added up in this order. The scale of values is found anew, since all rows know it best.
    ///
    /// # Errors
    /// If sums are of another shape, or rows are forgotten.
    pub fn merged<'a>(&self, told: impl IntoIterator<Item = &'a Told>) -> Result<Model, MergeError> {
        let mut empty = self.0.clone();
        if empty.statistics().follows_rows {
            let settings = crate::learner::Settings { estimate_scale: true, ..empty.settings().clone() };
            empty.set_settings(&settings);
        }
        empty.merged(told.into_iter().map(|told| &told.sums))
    }

    /// It as a file.
    pub fn written(&self) -> Vec<u8> {
        close(EPOCH, self)
    }

    /// What [`Epoch::written`] wrote.
    ///
    /// # Errors
    /// Why the bytes are none.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let epoch: Self = open(EPOCH, bytes)?;
        if epoch.0.is_consistent() { Ok(epoch) } else { Err("its parts do not fit each other".into()) }
    }
}

/// What a learner has summed up, and of what.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Told {
    /// Its streams, each with the sequence number of the next row.
    pub streams: BTreeMap<String, u64>,
    /// Of their rows.
    pub sums: Sums,
}

impl Told {
    /// Rows in it.
    pub fn rows(&self) -> u64 {
        self.sums.statistics.rows
    }
}

/// A learner that others can be added to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FleetPart {
    /// In which it has learned.
    pub epoch: Epoch,
    /// What it has learned.
    pub told: Told,
}

/// Why learners cannot be put together. A number names a part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unmergeable {
    /// There are none.
    #[error("there is nothing to merge")]
    Nothing,
    /// Two are of different epochs.
    #[error("parts {} and {} differ in their {what}", .parts.0, .parts.1)]
    Epochs {
        /// Which.
        parts: (usize, usize),
        /// What they differ in.
        what: &'static str,
    },
    /// A stream is in two of them: its rows might count twice.
    #[error("stream {name:?} is in parts {} and {}", .parts.0, .parts.1)]
    Stream {
        /// Its name.
        name: String,
        /// Which.
        parts: (usize, usize),
    },
    /// Their sums cannot be added.
    #[error("{0}")]
    Sums(MergeError),
}

impl FleetPart {
    /// What `model` has learned of `streams`.
    pub fn of(model: &Model, streams: BTreeMap<String, u64>) -> Self {
        Self { epoch: Epoch::of(model), told: Told { streams, sums: model.sums() } }
    }

    /// It as a file.
    pub fn written(&self) -> Vec<u8> {
        close(PART, self)
    }

    /// What [`FleetPart::written`] wrote.
    ///
    /// # Errors
    /// Why the bytes are none.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let part: Self = open(PART, bytes)?;
        let fits = part.epoch.0.is_consistent() && part.epoch.merged([&part.told]).is_ok();
        if fits { Ok(part) } else { Err("its parts do not fit each other".into()) }
    }
}

/// One learner of what all have learned, and the model of it. They are added up in the order of the names of their first streams, so
/// that their own order changes no bit.
///
/// # Errors
/// If they are of different epochs, or a stream is in two of them.
pub fn merge(parts: &[FleetPart]) -> Result<(FleetPart, Model), Unmergeable> {
    let (first, others) = parts.split_first().ok_or(Unmergeable::Nothing)?;
    for (k, other) in others.iter().enumerate() {
        if let Some(what) = first.epoch.0.epoch_differs(&other.epoch.0) {
            return Err(Unmergeable::Epochs { parts: (0, k + 1), what });
        }
    }
    let mut owners: BTreeMap<&str, usize> = BTreeMap::new();
    for (k, part) in parts.iter().enumerate() {
        for name in part.told.streams.keys() {
            if let Some(before) = owners.insert(name, k) {
                return Err(Unmergeable::Stream { name: name.clone(), parts: (before, k) });
            }
        }
    }
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&k| parts[k].told.streams.keys().next());
    let epoch = parts[order[0]].epoch.clone();
    let merged = epoch.merged(order.iter().map(|&k| &parts[k].told)).map_err(Unmergeable::Sums)?;
    let streams = parts.iter().flat_map(|part| part.told.streams.clone()).collect();
    Ok((FleetPart { epoch, told: Told { streams, sums: merged.sums() } }, merged))
}

/// A message of a worker as bytes.
pub fn encode_message(message: &Message<Told>) -> Vec<u8> {
    close(MESSAGE, message)
}

/// What [`encode_message`] wrote.
///
/// # Errors
/// Why the bytes are none.
pub fn decode_message(bytes: &[u8]) -> Result<Message<Told>, String> {
    open(MESSAGE, bytes)
}

/// Who holds the newest message of each worker, and makes one model of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Gathered {
    epoch: Epoch,
    held: Coordinator<Told>,
}

impl Gathered {
    /// Without messages, in this epoch.
    pub fn new(epoch: Epoch) -> Self {
        Self { held: Coordinator::new(epoch.number()), epoch }
    }

    /// The epoch.
    pub fn epoch(&self) -> &Epoch {
        &self.epoch
    }

    /// The messages held.
    pub fn held(&self) -> &Coordinator<Told> {
        &self.held
    }

    /// Take a message, or drop it: [`Coordinator::take`].
    ///
    /// # Errors
    /// If its sums do not fit the epoch that it names.
    pub fn take(&mut self, message: Message<Told>) -> Result<MessageVerdict, MergeError> {
        if message.epoch == self.held.epoch() {
            self.epoch.merged([&message.sums])?;
        }
        Ok(self.held.take(message))
    }

    /// Forget what a worker has said: [`Coordinator::dismiss`].
    pub fn dismiss(&mut self, worker: u32) -> bool {
        self.held.dismiss(worker).is_some()
    }

    /// The model of all that is held.
    ///
    /// # Errors
    /// If sums cannot be added.
    pub fn merged(&self) -> Result<Model, MergeError> {
        self.epoch.merged(self.held.sums())
    }

    /// It as a file.
    pub fn written(&self) -> Vec<u8> {
        close(COORDINATOR, self)
    }

    /// What [`Gathered::written`] wrote.
    ///
    /// # Errors
    /// Why the bytes are none.
    pub fn read(bytes: &[u8]) -> Result<Self, String> {
        let gathered: Self = open(COORDINATOR, bytes)?;
        if gathered.merged().is_ok() { Ok(gathered) } else { Err("its parts do not fit each other".into()) }
    }
}
