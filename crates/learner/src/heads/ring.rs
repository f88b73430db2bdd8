//! Recent rows of heads, from which a new element of the dictionary gets its part of their sums.

use crate::math::backfill::BackfillBuffer;
use crate::math::statistics::Chain;
use crate::transition::Rows;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// Recent rows, numbered as the model's ring does, and chains cut among them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Ring {
    /// Number of the first row.
    pub(super) first: u64,
    pub(super) rows: Rows,
    /// Offset of each row in the stream.
    pub(super) offsets: Vec<u64>,
    pub(super) slots: Vec<u32>,
    /// How often each row counts beside its weight, where rows have been discounted.
    #[serde(with = "crate::math::raw")]
    pub(super) shares: Vec<f64>,
    /// Discount of the row before it in its chain, of each row and group, 0 where it starts a chain.
    #[serde(with = "crate::math::raw")]
    pub(super) decays: Vec<f64>,
    pub(super) cuts: VecDeque<CutChains>,
    /// Chains of one group alone that ended before a row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) parted: Vec<Parted>,
}

/// A chain of one group that ended before a row which does not count for it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Parted {
    /// Number of the group.
    pub(super) group: usize,
    /// Number of the row.
    pub(super) row: u64,
    pub(super) slot: usize,
    /// The chain just before.
    pub(super) chain: Chain,
    /// Features (m,) of the row's state.
    #[serde(with = "crate::math::raw")]
    pub(super) features: Vec<f64>,
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
            self.begin_at(start, self.cuts.len(), groups);
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

    /// Rows that come from here on have this many rewards, the first of those so far.
    pub(super) fn keep_rewards(&mut self, count: usize) {
        let before = std::mem::replace(&mut self.rows.rewards_per_row, count);
        if before > count {
            self.rows.rewards = self.rows.rewards.chunks_exact(before).flat_map(|row| &row[..count]).copied().collect();
        }
    }

    /// Sums are kept in another unit from here on, `factor` times as large.
    pub(super) fn scale(&mut self, factor: f64) {
        self.cuts.iter_mut().flat_map(|cut| &mut cut.chains).for_each(|chain| chain.scale(factor));
        self.parted.iter_mut().for_each(|parted| parted.chain.scale(factor));
    }

    /// Let all rows so far count `factor` times as often.
    pub(super) fn discount(&mut self, factor: f64) {
        self.scale(factor);
        self.shares.iter_mut().for_each(|share| *share *= factor);
    }

    /// Make room for the discounts of one more row in `groups` groups: where they begin.
    pub(super) fn push_decays(&mut self, groups: usize) -> usize {
        let from = self.decays.len();
        self.decays.resize(from + groups, 0.0);
        from
    }

    pub(super) fn set_decay(&mut self, place: usize, decay: f64) {
        self.decays[place] = decay;
    }

    /// Forget the groups of which nothing stays, and of each other one all heads but the columns that do.
    pub(super) fn select(&mut self, stay: &[Option<Vec<usize>>]) {
        let mut of_group = stay.iter().map(Option::is_some).cycle();
        self.decays.retain(|_| of_group.next().expect("it goes round"));
        for cut in &mut self.cuts {
            for (chain, columns) in cut.chains.iter_mut().zip(stay) {
                if let Some(columns) = columns.as_ref().filter(|columns| columns.len() < chain.weighted_target.len()) {
                    chain.weighted_target = columns.iter().map(|&c| chain.weighted_target[c]).collect();
                }
            }
            let mut of_group = stay.iter().map(Option::is_some);
            cut.chains.retain(|_| of_group.next().unwrap_or(false));
        }
        self.parted.retain(|parted| stay[parted.group].is_some());
        for Parted { group, chain, .. } in &mut self.parted {
            let columns = stay[*group].as_ref().expect("the others are gone");
            chain.weighted_target = columns.iter().map(|&c| chain.weighted_target[c]).collect();
            *group = stay[..*group].iter().flatten().count();
        }
    }

    /// This ring, of `groups` groups, with the columns that `other` has of the same rows: the columns of its group k are in the
    /// group
    /// `places[k]` of both, behind those there are. Rows and cuts that either has forgotten are.
    pub(super) fn joined(mut self, mut other: Self, groups: usize, places: &[usize]) -> Self {
        let (first, cuts) = (self.first.max(other.first), self.cuts.len().min(other.cuts.len()));
        self.begin_at(first, cuts, groups);
        other.begin_at(first, cuts, places.len());
        let new: Vec<usize> = (0..places.len()).filter(|&k| places[k] >= groups).collect();
        let of_row = |row: usize| {
            let theirs = &other.decays[row * places.len()..];
            let own = &self.decays[row * groups..][..groups];
            own.iter().copied().chain(new.iter().map(|&k| theirs[k])).collect::<Vec<f64>>()
        };
        self.decays = (0..self.rows.len()).flat_map(of_row).collect();
        for (cut, theirs) in self.cuts.iter_mut().zip(other.cuts) {
            for (chain, &place) in theirs.chains.into_iter().zip(places) {
                match cut.chains.get_mut(place) {
                    Some(own) => own.weighted_target.extend(chain.weighted_target),
                    None => cut.chains.push(chain),
                }
            }
        }
        for theirs in other.parted {
            let group = places[theirs.group];
            let at = (group, theirs.row, theirs.slot);
            match self.parted.iter_mut().find(|own| (own.group, own.row, own.slot) == at) {
                Some(own) => own.chain.weighted_target.extend(theirs.chain.weighted_target),
                None => self.parted.push(Parted { group, ..theirs }),
            }
        }
        self.rows.labels.join(other.rows.labels);
        self
    }

    /// Forget the rows before number `first`, and all but the last `cuts` cuts.
    fn begin_at(&mut self, first: u64, cuts: usize, groups: usize) {
        self.cuts.drain(..self.cuts.len() - cuts);
        let stale = (first - self.first) as usize;
        let mut kept = self.rows.without_rows();
        kept.extend(&self.rows, stale..self.rows.len());
        (self.rows, self.first) = (kept, first);
        self.offsets.drain(..stale);
        self.slots.drain(..stale);
        self.shares.drain(..stale);
        self.decays.drain(..stale * groups);
        self.parted.retain(|parted| parted.row >= first);
    }

    /// Give the chains that ended in one group the newest coordinate, as far as [`super::bank::Bank::grow`] has not, and forget those
    /// before rows that `recent` has forgotten.
    pub(super) fn grow_parted(&mut self, recent: &BackfillBuffer) {
        let span = recent.span();
        self.parted.retain(|parted| parted.row >= span.start);
        for Parted { row, chain, features, .. } in &mut self.parted {
            let phi = recent.features_of(*row);
            features.push(phi[phi.len() - 1]);
            chain.trace.resize(features.len(), 0.0);
        }
    }

    /// Number of cuts.
    pub(super) fn cuts(&self) -> usize {
        self.cuts.len()
    }

    /// Note what the chain of group number `g` was at cut number `number`, which then is the number of its next cut: groups
    /// take the same cuts one after the other.
    pub(super) fn cut_in_group(&mut self, g: usize, chain: Chain, features: &[f64], number: &mut usize) {
        if g == 0 {
            self.cuts.push_back(CutChains { chains: Vec::new(), features: features.to_vec() });
        }
        self.cuts[*number].chains.push(chain);
        *number += 1;
    }

    /// Bytes held, for reports of memory.
    pub(super) fn bytes(&self) -> usize {
        let row = Rows::bytes_per_row(self.rows.dim, self.rows.rewards_per_row) + 8 * (self.rows.actions_per_row + 2);
        let cut = |cut: &CutChains| {
            let chain = |chain: &Chain| chain.trace.len() + chain.weighted_target.len();
            8 * (cut.features.len() + cut.chains.iter().map(chain).sum::<usize>())
        };
        self.rows.len() * row + 8 * self.decays.len() + self.cuts.iter().map(cut).sum::<usize>()
    }
}
