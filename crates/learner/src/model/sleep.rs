//! A model that is set aside: it keeps what it has learned, and nothing of single rows.

use super::Model;
use super::streams::Streams;
use super::weights::unknown_arrivals;
use crate::math::backfill::BackfillBuffer;
use crate::math::dense::Matrix;

impl Model {
    /// End all chains, keep what was learned and the watch as it was before its last alarm, and give up all else: the weights
    /// (m, H) that it had. None if it never had any.
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
        self.weights.arrivals = unknown_arrivals();
        self.work = None;
        self.branch.iter_mut().for_each(|branch| branch.drop_rows());
    }

    /// What [`Model::sleep`] would leave of it now, but for its watch, and its weights (m, H); it goes on itself. None before it
    /// has any. O(m^2).
    pub(crate) fn asleep(&mut self) -> Option<(Self, Matrix)> {
        let width = self.basis.width();
        // What a sleeping model does not have need not be copied.
        let nothing = BackfillBuffer::new(0, 1, 0, width, self.settings.rewards.len());
        let recent = std::mem::replace(&mut self.recent, nothing);
        let (work, watch) = (self.work.take(), self.errors.watch.take());
        let mut copy = self.clone();
        (self.recent, self.work, self.errors.watch) = (recent, work, watch);
        let weights = copy.sleep()?;
        Some((copy, weights))
    }

    /// Go on after [`Model::sleep`].
    pub(crate) fn wake(&mut self) {
        self.keep_rows();
        self.refresh();
    }

    /// Keep recent rows from here on.
    fn keep_rows(&mut self) {
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
