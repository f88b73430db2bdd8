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
        empty.want_heads(&settings.heads);
        let learner = Self::starting_at(settings, names, first_row);
        // Of a second generation: the first is a stopgap, which nothing was selected for.
        Self { model: Some(Box::new(empty)), generation: 2, ..learner }
    }

    /// Whether kernel and dictionary of its model were selected, and are no stopgap.
    pub fn is_selected(&self) -> bool {
        self.selected.unwrap_or(self.generation > 1)
    }

    /// Set whether it was selected. Older checkpoints say nothing, and are as today's where the generation tells.
    pub(super) fn set_selected(&mut self, selected: bool) {
        self.selected = (selected != (self.generation > 1)).then_some(selected);
    }

    /// Offset of the first row that it learns from.
    pub fn first_row(&self) -> u64 {
        self.first_arrived().unwrap_or(self.first_row)
    }

    /// Whether it keeps its rows itself: it cannot learn other rows from a window.
    pub fn has_rows_of_its_own(&self) -> bool {
        self.first_arrived().is_some()
    }

    /// Bytes of its models, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.model.as_ref().map_or(0, |model| model.bytes())
            + self.bytes_beside_model()
            + self.kept_bytes()
            + self.action_row_bytes()
    }

    /// Take the place of `before`, a critic with the same settings: its generation is the next one, with a model the rows from
    /// `first_row` on count as learned from, and the next refit is due as after one that ends now. Rows before offset `from` may be missing from
    /// here on.
    pub fn succeed(&mut self, before: &Self, first_row: u64, from: u64) {
        let selected = self.is_selected();
        self.generation = if self.model.is_some() { before.generation + 1 } else { 0 };
        self.refits = before.refits + 1;
        self.added.clone_from(&before.added);
        self.set_selected(selected);
        self.refit_ended_at = self.learned;
        self.no_room_before = self.counts().novel_when_full;
        if self.has_rows_of_its_own() {
            self.offered_from(first_row);
            // Its kernel is what the first rows suggest.
            self.refit_ended_at = self.learned.saturating_sub(self.settings.refit_first_rows);
            self.schedule_after(0);
            return;
        }
        if self.model.is_some() {
            self.first_row = first_row.min(self.learned);
        }
        self.schedule();
        self.following.look_back_to(from);
    }
}
