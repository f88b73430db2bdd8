//! The snapshots that queries, the dashboard and publications are answered from.

use crate::snapshot::{Evaluator, Snapshot};
use crate::wire::{ErrorCode, WireError};
use parking_lot::RwLock;
use std::sync::Arc;

/// The snapshots that queries are answered from, laid out for that: one slot per critic, replaced whole.
#[derive(Debug, Default)]
pub struct Board {
    slots: Vec<(String, RwLock<Option<Arc<Evaluator>>>)>,
}

impl Board {
    pub(crate) fn new(names: impl Iterator<Item = String>) -> Self {
        Self { slots: names.map(|name| (name, RwLock::new(None))).collect() }
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
        self.slots[critic].1.read().as_ref().map(|evaluator| Arc::clone(evaluator.snapshot()))
    }

    /// What evaluates it.
    pub fn evaluator(&self, critic: usize) -> Option<Arc<Evaluator>> {
        self.slots[critic].1.read().clone()
    }

    /// Replace it.
    pub(crate) fn set(&self, critic: usize, snapshot: Snapshot) {
        // Laid out here, once, and not by the first who asks: that one would wait for it.
        let evaluator = Arc::new(Evaluator::new(snapshot));
        // The old one is dropped after the lock is given back.
        let old = self.slots[critic].1.write().replace(evaluator);
        drop(old);
    }
}
