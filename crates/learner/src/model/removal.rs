//! Rows that are taken out of a model, and rows that count less from here on.

use super::Model;
use super::errors::Gathered;
use super::learned::Learned;
use super::pass::PassScratch;
use crate::removal::{LearnedChains, Offsets, Placed, Touched};
use crate::settings::VarianceKind;

/// What was done to take rows out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Rows of the chains that were taken out whole.
    pub subtracted: usize,
    /// Those of them that were learned again.
    pub put_back: usize,
    /// Chains that were taken out.
    pub chains: usize,
}

/// Why rows cannot be taken out of a model. It is then as it was, and to be rebuilt from the rows that stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unremovable {
    /// It is not known which rows it has learned, or which features counted in them.
    #[error("it is not known what the model has learned of these rows: rebuild it")]
    Unknown,
    /// The rows that were given are not the whole chains that it has learned.
    #[error("rows of the chains that the model has learned are missing: rebuild it")]
    Incomplete,
}

impl Model {
    /// Take rows out: from here on the sums, the running chains, the weights and the heads are those of a model that has never learned
    /// them, up to rounding, docs/mathematics.md (S12).
    /// ```text
    /// sums <- sums - sums(chains that hold a removed row) + sums(what stays of these)
    /// ```
    /// Both sums are learned from zero, with the features of then. `rows` are as [`Touched::new`] asks for them; those among them that
    /// the model has not learned do no harm. Dictionary, kernel, lambda, noise and scales stay, and so does the scatter of scores, which
    /// cannot be taken apart: [`Model::revisit`] makes it of the rows that stay. What is known of single rows begins anew: recent rows
    /// for new elements, trackers, the watch, scores, and what was verified. Costs as much as to learn the rows of these chains, twice
    /// at most.
    ///
    /// # Errors
    /// If the model does not know its rows, or those given are not whole chains. It is then as it was.
    pub fn remove(&mut self, rows: &Placed, removed: &Offsets) -> Result<Removed, Unremovable> {
        if self.basis.learned.is_none() && !removed.is_empty() {
            return Err(Unremovable::Unknown);
        }
        let rows = self.those_learned(rows);
        let (known, given) =
            (self.basis.learned.as_ref(), rows.offsets.iter().filter(|&&of| removed.contains(of)).count());
        if known.is_some_and(|known| known.count_of(removed) != given as u64) {
            return Err(Unremovable::Incomplete);
        }
        let touched = Touched::new(&rows, removed);
        if touched.is_empty() {
            return Ok(Removed::default());
        }
        let taken = self.taken_out(&touched)?;
        let branch = self.branch.as_ref().map(|branch| branch.taken_out(&touched)).transpose()?;
        self.put_in_place(&taken, &touched, removed);
        if let (Some(branch), Some(taken)) = (&mut self.branch, &branch) {
            branch.put_in_place(taken, &touched, removed);
        }
        let (subtracted, put_back) = (touched.rows_subtracted(), touched.rows_put_back());
        Ok(Removed { subtracted, put_back, chains: touched.chains() })
    }

    /// Models that have learned the chains that are touched: whole, and what stays of them.
    fn taken_out(&self, touched: &Touched) -> Result<[Self; 2], Unremovable> {
        let mut whole = self.learned_again(&touched.whole)?;
        let mut kept = self.learned_again(&touched.kept)?;
        for &stream in &touched.whole.running {
            let theirs = whole.running_slot(stream).map(|slot| whole.streams.chains[slot].rows);
            match self.running_slot(stream) {
                // All chains were cut since.
                None => {
                    whole.end_chain_of(stream);
                    kept.end_chain_of(stream);
                }
                Some(slot) if Some(self.streams.chains[slot].rows) != theirs => return Err(Unremovable::Incomplete),
                Some(_) => (),
            }
        }
        if whole.statistics.rows > self.statistics.rows {
            return Err(Unremovable::Incomplete);
        }
        Ok([whole, kept])
    }

    /// One with the features of this one that has learned these rows alone, with as many of them as counted then.
    fn learned_again(&self, part: &LearnedChains) -> Result<Self, Unremovable> {
        let known = self.basis.learned.as_ref().ok_or(Unremovable::Unknown)?;
        let mut of = self.emptied_for_pieces();
        let Placed { rows, offsets } = &part.rows;
        let most = if self.statistics.forgets() { 1 } else { self.settings.refresh_rows.max(1) };
        let mut closings = part.closings.iter().copied().peekable();
        let (mut start, mut work) = (0, PassScratch::default());
        while start < rows.len() {
            let first = offsets[start];
            while let Some((at, stream)) = closings.next_if(|closing| closing.0 <= first) {
                of.basis.count(known.features_at(at));
                of.end_chain_of(stream);
            }
            let stop = closings.peek().map_or(u64::MAX, |closing| closing.0).min(known.next_change(first));
            let last = rows.len().min(start + most);
            let end = (start + 1..last).find(|&i| offsets[i] >= stop).unwrap_or(last);
            if self.statistics.follows_rows && first >= known.followed_from() {
                of.pass().follow_rows();
            }
            of.basis.count(known.features_at(first));
            of.pass().learn(rows, start..end, first, &mut work);
            start = end;
        }
        for (at, stream) in closings {
            of.basis.count(known.features_at(at));
            of.end_chain_of(stream);
        }
        of.basis.count(usize::MAX);
        if self.statistics.follows_rows {
            of.pass().follow_rows();
        }
        if let Some(newest) = self.statistics.newest() {
            of.pass().age(newest);
            of.heads.iter_mut().for_each(|heads| heads.age(newest));
        }
        Ok(of)
    }

    /// One with the features of this one that has learned nothing, sums up rows and chains, and does nothing else.
    fn emptied_for_pieces(&self) -> Self {
        let settings = crate::Settings { variance: VarianceKind::Model, heads: Vec::new(), ..self.settings.clone() };
        let mut of = self.closed_without_rows(settings);
        of.basis.learned = None;
        if self.statistics.keeps_targets() {
            of.statistics.keep_targets();
        }
        of.heads = self.heads.as_ref().map(|heads| Box::new(heads.emptied()));
        of
    }

    /// Slot of a stream whose chain runs.
    fn running_slot(&self, stream: u32) -> Option<usize> {
        let slot = self.streams.slot_of.get(stream as usize).map(|&slot| slot as usize)?;
        self.streams.chains.get(slot).filter(|chain| chain.rows > 0).map(|_| slot)
    }

    /// End the chain of a stream, if one runs, with the value of its last successor.
    fn end_chain_of(&mut self, stream: u32) {
        if let Some(slot) = self.running_slot(stream) {
            self.end_chains(&[slot], &[slot], &mut Gathered::default());
        }
    }

    /// Take out what the first of `taken` has summed up, and put in what the second has.
    fn put_in_place(&mut self, [whole, kept]: &[Self; 2], touched: &Touched, removed: &Offsets) {
        self.basis.learned.iter_mut().for_each(|learned| learned.remove(removed));
        let none_is_left = self.basis.learned.as_ref().is_some_and(|learned| learned.offsets().is_empty());
        self.statistics.subtract(&whole.statistics);
        self.statistics.merge(&kept.statistics);
        self.statistics.clear_rounding();
        if let (Some(heads), Some(out), Some(back)) = (&mut self.heads, &whole.heads, &kept.heads) {
            heads.combine(out, -1.0);
            heads.combine(back, 1.0);
            heads.forget_rows(none_is_left);
        }
        for &stream in &touched.whole.running {
            let Some(slot) = self.running_slot(stream) else { continue };
            let stays = kept.running_slot(stream);
            match stays {
                Some(from) => self.streams.chains[slot].clone_from(&kept.streams.chains[from]),
                None => self.streams.chains[slot].reset(),
            }
            if let Some(heads) = &mut self.heads {
                heads.take_chain(slot, kept.heads.as_deref().zip(stays));
            }
        }
        self.forget_single_rows();
    }

    /// What is known of single rows begins anew, and weights are solved for.
    fn forget_single_rows(&mut self) {
        self.history = None;
        self.keep_rows();
        for slot in &mut self.streams.slots {
            slot.pending.clear();
            slot.cluster.scores.fill(0.0);
            slot.cluster.rows = 0;
        }
        self.tracking = self.emptied_tracking();
        if self.errors.watch.is_some() {
            self.start_watch();
        }
        self.weights.tuned.rows = self.weights.tuned.rows.min(self.statistics.rows);
        self.weights.arrivals.miss();
        self.weights.posterior = None;
        self.work = None;
        self.refresh();
        self.reset_score();
    }

    /// What tracks a stream that goes on begins anew: its steps may have seen rows that the sums have not.
    pub(crate) fn forget_steps(&mut self) {
        if self.goes_on() {
            self.tracking = self.emptied_tracking();
        }
    }

    /// The rows among these that it has learned, as far as it knows: behind one that it has not a chain starts.
    pub(crate) fn those_learned(&self, rows: &Placed) -> Placed {
        self.basis.learned.as_ref().map_or_else(|| rows.clone(), |learned| rows.learned(learned.offsets()))
    }

    /// Whether it has learned a row with one of these offsets, or may have.
    pub(crate) fn has_learned_any(&self, offsets: &Offsets) -> bool {
        self.basis.learned.as_ref().is_none_or(|learned| learned.offsets().meets(offsets))
    }

    /// Offset of the row that each of its features (m,) counts from: 0 in all rows before, in traces and in what closes chains. None where
    /// that is not known.
    pub fn since(&self) -> Option<&[u64]> {
        self.basis.learned.as_ref().map(Learned::since)
    }

    /// Keep the sums of squared targets of rows that are followed, too ([`crate::math::statistics::Statistics::keep_targets`]).
    ///
    /// # Panics
    /// If rows have been learned, or the dictionary may grow.
    pub fn keep_targets(&mut self) {
        assert!(self.statistics.rows == 0 && self.basis.dictionary.is_full(), "targets are kept from the first row on");
        self.statistics.keep_targets();
    }

    /// Let the rows so far count `factor` times as often, above 0 and at most 1; chains end, as at a cut.
    pub fn discount(&mut self, factor: f64) {
        self.cut_running_chains();
        (self.history, self.basis.learned) = (None, None);
        self.statistics.discount(factor);
        if let Some(heads) = &mut self.heads {
            heads.discount(factor);
        }
        self.recent.discount(factor);
        self.errors.scatter.scale(factor, &mut self.streams.slots);
        self.weights.tuned.rows = self.weights.tuned.rows.min(self.statistics.rows);
        self.weights.arrivals.miss();
        self.weights.posterior = None;
        self.branch.iter_mut().for_each(|branch| branch.discount(factor));
        self.refresh();
        self.reset_score();
    }
}
