//! Rows that are taken back from a critic.

use super::{Event, Learner};
use crate::model::{Model, Removed, Unremovable};
use crate::removal::{Offsets, Placed};
use serde::{Deserialize, Serialize};

/// What is left of rows that were taken back, until a refit of the rows that stay has been adopted: dictionary and hyperparameters were
/// selected with them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Residue {
    /// Their offsets.
    offsets: Offsets,
    /// Generations that came of taking rows back.
    pub(super) generations: u64,
    /// Whether the scatter of scores has these rows yet.
    pub(super) variance_stale: bool,
}

impl Residue {
    /// Offsets of the rows; empty where nothing is left of any.
    pub fn offsets(&self) -> &Offsets {
        &self.offsets
    }

    /// Whether the deviation of V has these rows yet ([`Learner::renew_variance`]).
    pub fn variance_is_stale(&self) -> bool {
        self.variance_stale
    }

    pub(super) fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Learner {
    /// Take rows back. The sums, weights and heads of the model are those of one that has never learned them
    /// ([`crate::model::Model::remove`]), and its generation is the next one. Scores, trackers, the watch and what was verified begin
    /// anew; what steps along a stream that goes on does so even where the model has learned none of these rows, since it may have been a
    /// fork of one that has. Forks and models set aside that have learned one of these rows are dropped, and a refit is asked for, since dictionary and
    /// hyperparameters stay until one has been adopted. A candidate that has learned one of these rows is not ([`super::Rejection`]).
    ///
    /// `rows` are as [`crate::removal::Touched::new`] asks for them, up to the last one learned. The window is the caller's: from here on
    /// it must lack these rows.
    ///
    /// # Errors
    /// If the rows cannot be taken out of the model's sums. It goes on as it was and is stale ([`Learner::is_stale`]) until the refit; all
    /// else is done. A critic of action values keeps rows of its own: its model is stale, too.
    pub fn remove(&mut self, rows: &Placed, removed: &Offsets) -> Result<Removed, Unremovable> {
        if removed.is_empty() {
            return Ok(Removed::default());
        }
        self.following.residue.offsets.join(removed);
        // It is made anew of the rows that stay.
        self.early = None;
        self.drop_removed();
        // A fork steps on from where its model has come to by rows that the fork has not learned.
        self.model.iter_mut().chain(self.following.forked()).for_each(|model| model.forget_steps());
        let selected = self.is_selected();
        let done = match &mut self.model {
            _ if self.action_rows.is_some() => Err(Unremovable::Unknown),
            Some(model) => model.remove(rows, removed),
            None => Ok(Removed::default()),
        };
        if done.as_ref().is_ok_and(|done| done.subtracted > 0) {
            (self.generation, self.following.residue.generations) =
                (self.generation + 1, self.following.residue.generations + 1);
            self.set_selected(selected);
            self.following.residue.variance_stale = true;
        }
        if self.model.is_some() {
            self.asked.requested = true;
            self.improved_at = 0;
        } else if self.action_rows.is_none() {
            // It has learned nothing, and the window lacks them.
            self.following.residue = Residue::default();
        }
        done
    }

    /// Whether the model's sums, or the rows that a critic of action values keeps, still hold rows that were taken back.
    pub fn is_stale(&self) -> bool {
        let offsets = &self.following.residue.offsets;
        match &self.model {
            _ if offsets.is_empty() => false,
            Some(model) => model.has_learned_any(offsets),
            None => self.has_rows_of_its_own(),
        }
    }

    /// What is left of rows that were taken back.
    pub fn residue(&self) -> &Residue {
        &self.following.residue
    }

    /// Make the scatter of scores, which says how much V may err, of these rows under the weights of now: of all that the model has
    /// learned and that are still there. Takes as long as to learn them.
    pub fn renew_variance(&mut self, rows: &Placed) {
        if let Some(model) = &mut self.model {
            let learned = model.those_learned(rows);
            model.revisit(learned.pieces());
            self.following.residue.variance_stale = false;
        }
    }

    /// Drop the models beside the present one that have learned rows that were taken back.
    pub(super) fn drop_removed(&mut self) {
        let residue = std::mem::take(&mut self.following.residue);
        if !residue.offsets.is_empty() {
            let stays = |model: &Model| !model.has_learned_any(&residue.offsets);
            if let Some(from) = self.following.drop_models(stays) {
                self.following.events.push(Event::Dismissed { from, at: self.learned });
            }
            self.policies.drop_models(stays);
        }
        self.following.residue = residue;
    }

    /// A refit of the rows that stay is the model.
    pub(super) fn clear_residue(&mut self) {
        self.drop_removed();
        self.following.residue = Residue::default();
    }

    /// The generation, were there none that came of taking rows back.
    pub(super) fn generation_adopted(&self) -> u64 {
        self.generation - self.following.residue.generations
    }

    /// Whether so few rows are left that no selection would be made of them.
    pub(super) fn lacks_rows(&self) -> bool {
        let rows = self.model.as_ref().map_or(0, |model| model.statistics().rows);
        self.following.residue.generations > 0 && rows < self.settings.refit_first_rows
    }
}
