//! The models that a critic or a record of it holds, for those who write it down.

use super::{Adoption, Learner};
use crate::model::Model;

impl Learner {
    /// Every model that it holds.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        self.model.as_deref().into_iter().chain(self.following.models()).chain(self.policies.models())
    }

    /// Whether it knows of policies.
    pub fn knows_policies(&self) -> bool {
        !self.policies.is_empty()
    }
}

impl Adoption {
    /// That of a model that others have selected, before any row.
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
        }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }
}
