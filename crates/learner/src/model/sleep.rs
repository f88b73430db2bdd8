//! A model that is set aside: it keeps what it has learned, and nothing of single rows.

use super::Model;
use super::errors::Gathered;
use super::streams::Streams;
use super::weights::unknown_arrivals;
use crate::math::backfill::BackfillBuffer;
use crate::math::dense::Matrix;
use crate::math::statistics::CLOSED_TOGETHER;

impl Model {
    /// Freeze for archiving: end chains, keep statistics and the monitor as it was before its last alarm; returns the weights (m, H).
    /// None if it never had any.
    pub(crate) fn sleep(&mut self) -> Option<Matrix> {
        self.cut_running_chains();
        self.history = None;
        self.errors.scatter.flush();
        let weights = self.weights.posterior.take()?.feature_weights().clone();
        self.drop_rows();
        self.errors.watch = self.errors.watch.take().and_then(|watch| watch.into_healthy());
        Some(weights)
    }

    /// Give up all that is known of single rows, whose chains have ended.
    fn drop_rows(&mut self) {
        self.history = None;
        self.recent = BackfillBuffer::new(0, 1, 0, self.basis.width(), self.settings.rewards.len());
        self.streams = Streams::default();
        if let Some(heads) = &mut self.heads {
            heads.drop_chains();
        }
        self.returns.verification.forget();
        self.tracking = self.emptied_tracking();
        self.weights.arrivals = unknown_arrivals();
        self.work = None;
        self.branch.iter_mut().for_each(|branch| branch.drop_rows());
    }

    /// What [`Model::sleep`] would leave of it now, but for its watch, and its weights (m, H); it goes on itself. None before it
    /// has any. O(m^2), and as much for each running chain.
    pub(crate) fn asleep(&mut self) -> Option<(Self, Matrix)> {
        let width = self.basis.width();
        // What a sleeping model does not have need not be copied.
        let nothing = BackfillBuffer::new(0, 1, 0, width, self.settings.rewards.len());
        let recent = std::mem::replace(&mut self.recent, nothing);
        let (work, watch) = (self.work.take(), self.errors.watch.take());
        let tracking = self.tracking.take();
        let streams = std::mem::take(&mut self.streams);
        let mut copy = self.clone();
        (self.recent, self.work, self.errors.watch) = (recent, work, watch);
        (self.streams, self.tracking) = (streams, tracking);
        copy.tracking = self.emptied_tracking();
        copy.end_copies(&self.streams);
        let weights = copy.sleep()?;
        Some((copy, weights))
    }

    /// End the running chains of `streams` here, as if they were its own, and leave them as they are. There may be many: copies of
    /// all of them at once would be most of what this takes.
    fn end_copies(&mut self, streams: &Streams) {
        let slots: Vec<usize> = streams.running().map(|(slot, _)| slot).collect();
        let mut gathered = Gathered::default();
        for slots in slots.chunks(CLOSED_TOGETHER) {
            self.streams.chains = slots.iter().map(|&slot| streams.chains[slot].clone()).collect();
            self.streams.slots = slots.iter().map(|&slot| streams.slots[slot].clone()).collect();
            let places: Vec<usize> = (0..slots.len()).collect();
            self.end_chains(&places, slots, &mut gathered);
        }
    }

    /// Go on after [`Model::sleep`].
    pub(crate) fn wake(&mut self) {
        self.keep_rows();
        self.refresh();
    }

    /// Keep recent rows from here on.
    pub(super) fn keep_rows(&mut self) {
        let (room, settings) = (self.basis.dictionary.max(), &self.settings);
        let width = self.basis.width();
        self.recent =
            BackfillBuffer::new(settings.backfill_rows, settings.refresh_rows, room, width, settings.rewards.len());
        if self.statistics.forgets() {
            self.recent.forget();
        }
        if self.errors.scatter.takes_rows() {
            self.recent.keep_scores(room);
        }
        if self.statistics.follows_rows {
            self.recent.follow_rows(room);
        }
        self.branch.iter_mut().for_each(|branch| branch.keep_rows());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::heads::{Cumulant, Head, Rate};
    use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
    use crate::settings::Settings;
    use crate::snapshot::Inputs;
    use crate::transition::Rows;

    #[test]
    fn a_sleeping_copy_is_the_model_put_to_sleep_and_leaves_it_as_it_was() {
        let (kernel, dim) = (Kernel::gaussian(3.0, 1.0, Metric::Ard(vec![4.0, 2.0])), 2);
        let hyper = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.2 };
        let mut rows = Rows::new(dim, 1);
        for i in 0..3000_u32 {
            let (stream, at) = (i % 600, [(f64::from(i) * 0.7).sin(), (f64::from(i) * 1.3).sin()]);
            rows.states.extend_from_slice(&at);
            rows.next_states.extend_from_slice(&[at[1], at[0]]);
            rows.rewards.push(at[0]);
            rows.discounts.push(f64::NAN);
            rows.ratios.push(1.0);
            rows.streams.push(stream);
            rows.terminated.push(false);
            // Some chains have ended, so that the others do not stand beside one another.
            rows.truncated.push(stream % 7 == 0);
            rows.starts_chain.push(true);
        }
        let heads = vec![Head::new("head", Cumulant::Reward(0), Rate::Discount(0.5))];
        for base in [Settings::default(), Settings::paper()] {
            let settings = Settings { dictionary_max: 30, heads: heads.clone(), ..base };
            let mut model = Model::new(settings, Inputs::identity(dim), &hyper);
            model.learn(&rows, 0..rows.len(), 0);
            assert!(model.running_chains() > CLOSED_TOGETHER);
            let before = rmp_serde::to_vec_named(&model).unwrap();
            let (mut copy, weights) = model.asleep().unwrap();
            assert!(rmp_serde::to_vec_named(&model).unwrap() == before);
            let mut slept = model.clone();
            assert_eq!(slept.sleep().unwrap(), weights);
            // The copy is without a watch.
            (copy.errors.watch, slept.errors.watch) = (None, None);
            assert!(rmp_serde::to_vec_named(&copy).unwrap() == rmp_serde::to_vec_named(&slept).unwrap());
        }
    }
}
