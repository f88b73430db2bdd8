//! The snapshots that queries, the dashboard and publications are answered from.

use crate::config::Config;
use crate::learner::Settings;
use crate::learner::act::Actor;
use crate::snapshot::{Evaluator, Snapshot};
use crate::state::removals::Removals;
use crate::wire::status::TrustStatus;
use crate::wire::{ErrorCode, WireError};
use parking_lot::RwLock;
use std::sync::{Arc, OnceLock};

/// Heads that are not ready to answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LearningHeads {
    /// Their names.
    pub names: Vec<String>,
    /// Share of the rows that they have learned, 0 to 1.
    pub share: f64,
}

/// The snapshots that queries are answered from, laid out for that: one slot per critic, replaced whole. Beside them the shape
/// of rows, which clients have to know before there is a model.
#[derive(Debug, Default)]
pub struct Board {
    slots: Vec<(String, RwLock<Option<Slot>>)>,
    /// Of each critic.
    learning: Vec<RwLock<Arc<LearningHeads>>>,
    /// Of each critic.
    judged: Vec<RwLock<Judged>>,
    shape: OnceLock<(usize, usize)>,
    /// Of state variables, rewards and actions.
    names: RwLock<[Vec<String>; 3]>,
    removals: RwLock<Arc<Removals>>,
}

/// What the monitor has found of a critic.
#[derive(Clone, Debug, Default)]
pub struct Judged {
    /// Whether to believe its rewards' values, and the generation that was judged; 0 before there is a model.
    pub trust: Vec<TrustStatus>,
    /// See there.
    pub trusted: u64,
    /// Shares of the variance of its first value, and the generation of which they are.
    pub shares: Vec<Option<f64>>,
    /// See there.
    pub generation: u64,
}

/// A snapshot, laid out.
#[derive(Debug)]
struct Slot {
    evaluator: Arc<Evaluator>,
    /// Where it is the value of actions.
    actor: Option<Arc<Actor>>,
}

impl Board {
    pub(crate) fn new(names: impl Iterator<Item = String>) -> Self {
        let slots: Vec<_> = names.map(|name| (name, RwLock::new(None))).collect();
        let judged = slots.iter().map(|_| RwLock::default()).collect();
        Self { learning: slots.iter().map(|_| RwLock::default()).collect(), judged, slots, ..Self::default() }
    }

    /// State dimension D and rewards H of a row, once a row has come.
    pub fn shape(&self) -> Option<(usize, usize)> {
        self.shape.get().copied()
    }

    /// Set the shape of rows, which does not change afterwards.
    pub(crate) fn settle(&self, shape: (usize, usize)) {
        self.shape.get_or_init(|| shape);
    }

    /// What state variables, the rewards of a row and actions are called; nothing where that is not known.
    pub fn names(&self) -> [Vec<String>; 3] {
        self.names.read().clone()
    }

    /// What a critic's rewards are called.
    pub(crate) fn reward_names(&self, critic: &Settings) -> Vec<String> {
        Config::reward_names(&self.names.read()[1], critic)
    }

    /// Replace the names.
    pub(crate) fn set_names(&self, names: [&[String]; 3]) {
        if self.names.read().each_ref().map(Vec::as_slice) != names {
            *self.names.write() = names.map(<[String]>::to_vec);
        }
    }

    /// Rows that were taken back.
    pub fn removals(&self) -> Arc<Removals> {
        Arc::clone(&self.removals.read())
    }

    /// Replace them.
    pub(crate) fn set_removals(&self, removals: Removals) {
        *self.removals.write() = Arc::new(removals);
    }

    /// Index of the critic called `name`; the first one if no name is given.
    ///
    /// # Errors
    /// `unknown_critic`, with those there are.
    pub fn critic(&self, name: Option<&str>) -> Result<usize, WireError> {
        let Some(name) = name else { return Ok(0) };
        self.slots.iter().position(|(known, _)| known == name).ok_or_else(|| {
            let known: Vec<&str> = self.slots.iter().map(|(known, _)| known.as_str()).collect();
            let message = format!("there is no critic \"{name}\"; there is {}", known.join(", "));
            WireError::of(ErrorCode::UnknownCritic, "critic", message)
        })
    }

    /// The present snapshot of a critic, if it has one.
    pub fn get(&self, critic: usize) -> Option<Arc<Snapshot>> {
        self.slots[critic].1.read().as_ref().map(|slot| Arc::clone(slot.evaluator.snapshot()))
    }

    /// What evaluates it.
    pub fn evaluator(&self, critic: usize) -> Option<Arc<Evaluator>> {
        self.slots[critic].1.read().as_ref().map(|slot| Arc::clone(&slot.evaluator))
    }

    /// The actor that decides by the critic's model; none for values of states.
    pub fn actor(&self, critic: usize) -> Option<Arc<Actor>> {
        self.slots[critic].1.read().as_ref().and_then(|slot| slot.actor.clone())
    }

    /// The heads of a critic that are not ready to answer.
    pub fn learning(&self, critic: usize) -> Arc<LearningHeads> {
        Arc::clone(&self.learning[critic].read())
    }

    /// Replace the heads of a critic that are not ready.
    pub(crate) fn set_learning(&self, critic: usize, learning: LearningHeads) {
        if **self.learning[critic].read() != learning {
            *self.learning[critic].write() = Arc::new(learning);
        }
    }

    /// What the monitor has found of a critic last.
    pub fn judged(&self, critic: usize) -> Judged {
        self.judged[critic].read().clone()
    }

    /// Replace whether to believe the values of its rewards under this generation.
    pub(crate) fn set_trust(&self, critic: usize, generation: u64, trust: Vec<TrustStatus>) {
        let mut judged = self.judged[critic].write();
        (judged.trust, judged.trusted) = (trust, generation);
    }

    /// Replace the shares of its variables.
    pub(crate) fn set_shares(&self, critic: usize, generation: u64, shares: Vec<Option<f64>>) {
        let mut judged = self.judged[critic].write();
        (judged.shares, judged.generation) = (shares, generation);
    }

    /// Replace it.
    pub(crate) fn set(&self, critic: usize, snapshot: Snapshot) {
        // Laid out here, once, and not by the first who asks: that one would wait for it.
        let evaluator = Arc::new(Evaluator::new(snapshot));
        let actor = Actor::new(Arc::clone(&evaluator)).ok().map(Arc::new);
        // The old one is dropped after the lock is given back.
        let old = self.slots[critic].1.write().replace(Slot { evaluator, actor });
        drop(old);
    }
}
