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
    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }
}
