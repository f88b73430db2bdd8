//! What a model knows of each stream: its chain, where that stands, and the error of its last row.

use crate::math::dense::Matrix;
use crate::math::statistics::Chain;
use serde::{Deserialize, Serialize};

/// Running sums of one cluster of rows whose returns share their noise (docs/mathematics.md (V5)).
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Cluster {
    /// Sum of trace times TD error (m, H).
    pub(super) scores: Matrix,
    pub(super) rows: u64,
}

/// What is known of one stream besides its [`Chain`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Slot {
    /// Normalised successor of the last row, while the chain runs.
    #[serde(with = "crate::math::raw")]
    pub(super) next_state: Vec<f64>,
    pub(super) cluster: Cluster,
    /// r - V(x) of the last row under the weights of then (H,): its TD error but for the value of its successor.
    #[serde(default, with = "crate::math::raw")]
    pub(super) pending: Vec<f64>,
    /// Number of that row, as the ring of recent rows counts.
    #[serde(default)]
    pub(super) row: u64,
}

/// A slot for each stream that has been seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Streams {
    pub(super) chains: Vec<Chain>,
    /// One for each chain.
    pub(super) slots: Vec<Slot>,
    /// Slot of each stream number; `u32::MAX` where it has none.
    pub(super) slot_of: Vec<u32>,
}

impl Streams {
    /// Number of slots.
    pub(super) fn len(&self) -> usize {
        self.chains.len()
    }

    /// Slot of a stream: a new one, for m features and `rewards` rewards, if it has none yet.
    pub(super) fn slot(&mut self, stream: u32, m: usize, rewards: usize, clusters: bool) -> usize {
        let stream = stream as usize;
        if stream >= self.slot_of.len() {
            self.slot_of.resize(stream + 1, u32::MAX);
        }
        if self.slot_of[stream] == u32::MAX {
            self.slot_of[stream] = self.chains.len() as u32;
            self.chains.push(Chain::new(m, rewards));
            let mut slot = Slot::default();
            if clusters {
                slot.cluster = Cluster { scores: Matrix::zeros(m, rewards), rows: 0 };
            }
            self.slots.push(slot);
        }
        self.slot_of[stream] as usize
    }

    /// Slots whose chains run, with these.
    pub(super) fn running(&self) -> impl Iterator<Item = (usize, &Chain)> {
        self.chains.iter().enumerate().filter(|(_, chain)| chain.rows > 0)
    }

    /// Whether all have sizes that fit m features, `rewards` rewards and states (dim,).
    pub(super) fn is_consistent(&self, m: usize, rewards: usize, dim: usize, clusters: bool) -> bool {
        let slots = self.slots.len();
        self.chains.len() == slots
            && self.chains.iter().all(|chain| chain.trace.len() == m && chain.weighted_target.len() == rewards)
            && self.slot_of.iter().all(|&slot| slot == u32::MAX || (slot as usize) < slots)
            && self.slots.iter().zip(&self.chains).all(|(slot, chain)| {
                let cluster = &slot.cluster;
                let scores = (cluster.scores.rows(), cluster.scores.cols()) == (m, rewards);
                (slot.pending.len() == rewards || slot.pending.is_empty())
                    && (slot.next_state.len() == dim || (chain.rows == 0 && slot.next_state.is_empty()))
                    && (!clusters || scores)
            })
    }
}

/// Number of the stream in `slot`.
pub(super) fn stream_of(slot_of: &[u32], slot: usize) -> u32 {
    slot_of.iter().position(|&of| of == slot as u32).map_or(u32::MAX, |stream| stream as u32)
}
