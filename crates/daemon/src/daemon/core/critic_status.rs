//! What `status` says of one critic.

use super::{Core, alarms, head_changes, status};
use crate::board::Judged;
use crate::wire::status::CriticStatus;

impl Core {
    /// Of critic `index`.
    pub(super) fn critic_status(&self, index: usize) -> CriticStatus {
        let learner = &self.state.critics()[index];
        let (revision, failed_snapshots, shown) = self.publisher.published(index);
        // What a panic has left of a model is not to be looked into.
        let halted = self.state.is_halted(index);
        let model = || status::of_model(learner, shown, self.drift[index].status(learner));
        let Judged { trust, trusted, shares, generation } = self.publisher.board().judged(index);
        // What is known of a model from before the last adoption says nothing of the present one.
        let trust = if trusted == learner.generation() { trust } else { Vec::new() };
        let shares = if generation == learner.generation() { shares } else { Vec::new() };
        CriticStatus {
            failed: self.given_up[index].clone(),
            refit: self.refits.status(index, learner),
            rebuild: self.rebuilds.status(&learner.settings().name),
            held_out_error: self.refits.held_out_error(index),
            adoption_pause_ms: self.refits.pauses(index),
            heads: head_changes::status(learner, self.publisher.board().get(index).as_deref()),
            reward_names: self.publisher.board().reward_names(learner.settings()),
            alarms: alarms::status(learner, self.state.streams()),
            trust,
            shares,
            model: if halted { None } else { model() },
            ..status::of_learner(learner, revision, failed_snapshots, self.refits.no_world(index))
        }
    }
}
