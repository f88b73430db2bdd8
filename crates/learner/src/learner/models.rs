//! The models that a critic or a record of it holds, for those who write it down.

use super::{Adoption, Learner};
use crate::model::Model;

impl Learner {
    /// Every model that it holds.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        self.model.as_deref().into_iter().chain(self.following.models()).chain(self.policies.models())
    }

    /// Take over the names of the state variables, and names of actions from the settings; a model keeps those that it has.
    pub fn set_names(&mut self, names: Option<Vec<String>>) {
        // Once rows have come, its own have the actions' names behind them.
        let both = self.action_rows.as_ref().is_some_and(|rows| rows.has_begun());
        let own = self.names.take().filter(|_| both);
        let names = names.or(own.map(|mut own| {
            own.truncate(own.len().saturating_sub(self.settings.action_width()));
            own
        }));
        self.names = match names {
            Some(names) if self.action_rows.is_some() => {
                let dim = names.len();
                Some(self.settings.input_names(Some(names), dim))
            }
            names => names,
        };
        self.name_models();
    }

    /// Give its names to the models that have none.
    pub(super) fn name_models(&mut self) {
        let Some(names) = &self.names else { return };
        let early = self.early.as_mut().map(|early| &mut early.model);
        let answering = self.model.iter_mut().chain(early).chain(self.policies.before_mut());
        answering.for_each(|model| model.name(names));
    }

    /// Whether it knows of policies.
    pub fn knows_policies(&self) -> bool {
        !self.policies.is_empty()
    }
}

impl Adoption {
    /// The adoption of a model that others have selected, before any row.
    pub fn given(model: Box<Model>, generation: u64) -> Self {
        Self {
            generation,
            refits: generation,
            alarm: None,
            model,
            acting: None,
            swept_through: None,
            selected_through: None,
            improves_alone: false,
            world: None,
        }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }
}
