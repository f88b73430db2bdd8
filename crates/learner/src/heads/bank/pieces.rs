//! Heads whose sums are taken apart by chains and put together again.

use super::{Bank, Clock, HeadStatistics, Ring, Running};
use crate::math::forgetting::Forgetting;
use crate::math::statistics::BootstrapTerms;

impl Bank {
    /// The same heads at the same scales, which have learned nothing and will not grow.
    pub(crate) fn emptied(&self) -> Self {
        let mut rules = self.rules.clone();
        rules.iter_mut().for_each(|rule| rule.kept.clear());
        Self {
            heads: self.heads.clone(),
            signals: self.signals.clone(),
            weightings: self.weightings.clone(),
            rules,
            statistics: self.statistics.emptied(),
            forgetting: self.forgetting.map(|of| Forgetting::new(of.half_life())),
            clocks: Vec::new(),
            scales: self.scales.clone(),
            tuned_at: self.tuned_at,
            ring: None,
            verified: Default::default(),
            work: Default::default(),
        }
    }

    /// Keep sums in the unit in which the row at `offset` would be learned.
    pub(crate) fn age(&mut self, offset: u64) {
        if let Some(factor) = self.forgetting.as_mut().and_then(|forgetting| forgetting.advance(offset)) {
            self.statistics.scale(factor);
            self.ring.iter_mut().for_each(|ring| ring.scale(factor));
        }
    }

    /// Put the chain that `other` has in its slot into `slot`; none for one that does not run.
    pub(crate) fn take_chain(&mut self, slot: usize, other: Option<(&Self, usize)>) {
        for (g, rule) in self.rules.iter_mut().enumerate() {
            let taken = other.and_then(|(of, slot)| of.statistics.groups[g].chains().get(slot));
            let chain = self.statistics.groups[g].chain_mut(slot);
            match taken {
                Some(taken) => chain.clone_from(taken),
                None => chain.reset(),
            }
            let kept = other.and_then(|(of, slot)| of.rules[g].kept.get(slot));
            if let Some(to) = rule.kept.get_mut(slot) {
                *to = kept.copied().unwrap_or(0.0);
            }
        }
        if let Some(clock) = self.clocks.get_mut(slot) {
            *clock =
                other.and_then(|(of, slot)| of.clocks.get(slot).copied()).unwrap_or(Clock { running: false, ..*clock });
        }
    }

    /// Rows have been taken out, if `none_is_left` all of them: recent ones and what was verified are not known any more.
    pub(crate) fn forget_rows(&mut self, none_is_left: bool) {
        self.statistics.clear_rounding(none_is_left);
        self.ring = self.ring.take().map(|_| Ring::default());
        self.verified.forget();
    }

    /// Sums without the chains that run, and what closing these adds to each group; `running` are the model's.
    pub(crate) fn sums(&self, running: &Running) -> (HeadStatistics, Vec<BootstrapTerms>) {
        (self.statistics.settled(), self.statistics.closings(running))
    }

    /// Add what such heads have summed up elsewhere; false, and nothing is changed, where these are other heads.
    #[must_use]
    pub(crate) fn add(&mut self, statistics: &HeadStatistics, closings: &[BootstrapTerms]) -> bool {
        let alike = self.statistics.is_alike(statistics) && closings.len() == self.statistics.groups.len();
        if alike {
            self.statistics.combine(statistics, 1.0);
            self.statistics.close(closings);
        }
        alike
    }
}
