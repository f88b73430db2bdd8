//! What a new element of the dictionary adds to the statistics of heads: its coordinate of recent rows, and all that is made of
//! these, as [`BackfillBuffer::backfill`] has it for the critic, docs/mathematics.md (G2), (G4).

use super::bank::Bank;
use crate::math::backfill::BackfillBuffer;
use crate::math::dense::axpy;
use crate::math::statistics::Chain;
use crate::transition::Rows;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// BackfillBuffer rows, numbered as the model's ring does, and chains cut among them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ring {
    /// Number of the first row.
    first: u64,
    rows: Rows,
    /// Offset of each row in the stream.
    offsets: Vec<u64>,
    slots: Vec<u32>,
    /// How often each row counts beside its weight, where rows have been discounted.
    #[serde(with = "crate::math::raw")]
    shares: Vec<f64>,
    /// Discount of the row before it in its chain, of each row and group, 0 where it starts a chain.
    #[serde(with = "crate::math::raw")]
    decays: Vec<f64>,
    cuts: VecDeque<CutChains>,
}

/// A cut, of the chain in one slot.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct CutChains {
    /// Of each group the chain just before.
    pub(super) chains: Vec<Chain>,
    /// Features (m,) of what closed it.
    #[serde(with = "crate::math::raw")]
    pub(super) features: Vec<f64>,
}

impl Ring {
    /// Forget what the model's ring, which begins at row `start` and knows `cuts` cuts, has forgotten.
    pub(super) fn prune(&mut self, start: u64, cuts: usize, groups: usize) {
        while self.cuts.len() > cuts {
            self.cuts.pop_front();
        }
        let stale = start.saturating_sub(self.first) as usize;
        // Moved together when half of it is stale, so that each row is moved about once.
        if stale > 0 && 2 * stale >= self.rows.len() {
            let mut kept = self.rows.without_rows();
            kept.extend(&self.rows, stale..self.rows.len());
            self.rows = kept;
            self.offsets.drain(..stale);
            self.slots.drain(..stale);
            self.shares.drain(..stale);
            self.decays.drain(..stale * groups);
            self.first = start;
        }
    }

    /// Remember row i of `rows`.
    pub(super) fn push(&mut self, rows: &Rows, i: usize, offset: u64, slot: usize) {
        if self.rows.is_empty() {
            self.rows = rows.without_rows();
        }
        self.rows.extend(rows, i..i + 1);
        self.offsets.push(offset);
        self.slots.push(slot as u32);
        self.shares.push(1.0);
    }

    /// Sums are kept in another unit from here on, `factor` times as large.
    pub(super) fn scale(&mut self, factor: f64) {
        self.cuts.iter_mut().flat_map(|cut| &mut cut.chains).for_each(|chain| chain.scale(factor));
    }

    /// Let all rows so far count `factor` times as often.
    pub(super) fn discount(&mut self, factor: f64) {
        self.scale(factor);
        self.shares.iter_mut().for_each(|share| *share *= factor);
    }

    /// Make room for the discounts of one more row in so many groups: where they begin.
    pub(super) fn push_decays(&mut self, groups: usize) -> usize {
        let from = self.decays.len();
        self.decays.resize(from + groups, 0.0);
        from
    }

    pub(super) fn set_decay(&mut self, place: usize, decay: f64) {
        self.decays[place] = decay;
    }

    /// Number of cuts.
    pub(super) fn cuts(&self) -> usize {
        self.cuts.len()
    }

    /// Note what the chain of group number `g` was at cut number `number`, which then is that of its next cut: groups take the same
    /// cuts one after the other.
    pub(super) fn cut_in_group(&mut self, g: usize, chain: Chain, features: &[f64], number: &mut usize) {
        if g == 0 {
            self.cuts.push_back(CutChains { chains: Vec::new(), features: features.to_vec() });
        }
        self.cuts[*number].chains.push(chain);
        *number += 1;
    }

    /// Bytes held, for reports of memory.
    pub(super) fn bytes(&self) -> usize {
        let row = Rows::bytes_per_row(self.rows.dim, self.rows.rewards_per_row) + 8 * (self.rows.actions_per_row + 3);
        let cut = |cut: &CutChains| {
            let chain = |chain: &Chain| chain.trace.len() + chain.weighted_target.len();
            8 * (cut.features.len() + cut.chains.iter().map(chain).sum::<usize>())
        };
        self.rows.len() * row + 8 * self.decays.len() + self.cuts.iter().map(cut).sum::<usize>()
    }
}

impl Bank {
    /// Give the newest element its rows and columns in all sums. `recent` has its coordinate of each row and cut already; rows from
    /// number `from` on count. O(rows (m + H) + cuts m) for each group.
    pub(crate) fn grow(&mut self, from: u64, recent: &BackfillBuffer) {
        let Some(mut ring) = self.ring.take() else { return };
        let span = recent.span();
        let from = from.clamp(span.start, span.end).max(ring.first);
        ring.prune(span.start, recent.cuts().count(), self.group_count());
        for g in 0..self.statistics.grams.len() {
            let mut cross = vec![0.0; recent.features_of_newest() + 1];
            for row in from..span.end {
                let k = (row - ring.first) as usize;
                let (weight, remembered) = self.weight(g, &ring.rows, k, ring.offsets[k]);
                let phi = recent.features_of(row);
                axpy(&mut cross, weight * remembered * ring.shares[k] * phi[phi.len() - 1], phi);
            }
            self.statistics.grams[g].grow(&cross);
        }
        for g in 0..self.group_count() {
            self.grow_group(g, from, recent, &mut ring);
        }
        for (cut, (_, _, _, value)) in ring.cuts.iter_mut().zip(recent.cuts()) {
            cut.features.push(value);
        }
        self.ring = Some(ring);
    }

    fn grow_group(&mut self, g: usize, from: u64, recent: &BackfillBuffer, ring: &mut Ring) {
        let groups = self.group_count();
        self.statistics.groups[g].grow();
        let slots = ring.slots.iter().copied().max().map_or(0, |slot| slot as usize + 1);
        let mut traces = vec![0.0; slots.max(self.statistics.groups[g].chains().len())];
        let mut sums = vec![0.0; self.statistics.groups[g].heads()];
        let mut rewards = vec![0.0; sums.len()];
        let mut pending = recent.cuts().zip(0..).peekable();
        for row in from..=recent.span().end {
            let due = |cut: &((u64, u64, usize, f64), usize)| cut.0.0 <= row || row == recent.span().end;
            while let Some(((_, at, slot, value), number)) = pending.next_if(due) {
                let CutChains { chains, features } = &mut ring.cuts[number];
                if let Some(chain) = chains.get_mut(g) {
                    if at >= from {
                        self.statistics.groups[g].close_newest(chain, features, value, traces[slot]);
                    }
                    chain.trace.push(traces[slot]);
                }
                traces[slot] = 0.0;
            }
            if row == recent.span().end {
                break;
            }
            let k = (row - ring.first) as usize;
            let slot = ring.slots[k] as usize;
            let phi = recent.features_of(row);
            let (weight, remembered) = self.weight(self.weighting_of(g), &ring.rows, k, ring.offsets[k]);
            let share = weight * remembered * ring.shares[k];
            traces[slot] = ring.decays[k * groups + g] * traces[slot] + share * phi[phi.len() - 1];
            self.rewards_of(g, &ring.rows, k, &mut rewards);
            axpy(&mut sums, traces[slot], &rewards);
        }
        self.statistics.groups[g].finish_newest(&sums, &traces);
    }
}
