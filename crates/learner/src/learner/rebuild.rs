//! A critic that is learned again from rows that it has not seen, or has seen with other settings.

use super::Learner;
use crate::model::Model;
use crate::settings::Settings;

impl Learner {
    /// A critic that has learned nothing yet, with the kernel, dictionary, lambda and noise that were selected for `model`, scaled as
    /// its inputs are ([`Model::emptied`]). It learns the rows from offset `first_row` on.
    pub fn with_kernel_of(settings: Settings, names: Option<Vec<String>>, first_row: u64, model: &Model) -> Self {
        let mut empty = model.emptied();
        empty.set_settings(&settings);
        let learner = Self::starting_at(settings, names, first_row);
        // Of a second generation: the first is a stopgap, which nothing was selected for.
        Self { model: Some(Box::new(empty)), generation: 2, ..learner }
    }

    /// Offset of the first row that it learns from.
    pub fn first_row(&self) -> u64 {
        self.first_row
    }

    /// Bytes of its models, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.model.as_ref().map_or(0, |model| model.bytes()) + self.bytes_beside_model() + self.kept_bytes()
    }

    /// Take the place of `before`, a critic with the same settings: its generation is the next one, with a model the rows from
    /// `first_row` on count as learned from, and the next refit is due as after one that ends now. Rows before offset `from` may be missing from
    /// here on.
    pub fn succeed(&mut self, before: &Self, first_row: u64, from: u64) {
        self.generation = if self.model.is_some() { before.generation + 1 } else { 0 };
        self.refits = before.refits + 1;
        if self.model.is_some() {
            self.first_row = first_row.min(self.learned);
        }
        self.refit_ended_at = self.learned;
        self.no_room_before = self.counts().novel_when_full;
        self.schedule();
        self.following.look_back_to(from);
    }
}
