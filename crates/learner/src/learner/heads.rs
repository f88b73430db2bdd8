//! Changes of a critic's heads while it learns.
//!
//! The settings list the wanted heads. A model learns the heads that are wanted at its first row. A head that is added later is
//! missing until a refit or a rebuild makes a model that learns it from all its rows.

use super::Learner;
use crate::heads::Head;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// A change of a critic's heads at run time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeadsChange {
    /// Name of the critic.
    pub critic: String,
    /// Names of the heads to remove.
    pub remove: Vec<String>,
    /// Heads to add afterwards.
    pub add: Vec<Head>,
}

impl Learner {
    /// Remove heads, then add others. A name that exists already keeps its head.
    pub fn change_heads(&mut self, remove: &[String], add: Vec<Head>) {
        let gone: HashSet<&str> = remove.iter().map(String::as_str).collect();
        let mut settings = self.settings.clone();
        settings.heads.retain(|head| !gone.contains(head.name.as_str()));
        self.added.retain(|name| !gone.contains(name.as_str()));
        let known: HashSet<String> = settings.heads.iter().map(|head| head.name.clone()).collect();
        for head in add {
            if !known.contains(&head.name) {
                self.added.push(head.name.clone());
                settings.heads.push(head);
            }
        }
        self.set_settings(settings);
    }

    /// Names of the heads that were added at run time and are not in the configuration.
    pub fn added_heads(&self) -> &[String] {
        &self.added
    }

    /// With heads that were added at run time, `names` among those of the settings.
    pub fn with_added_heads(self, names: &[String]) -> Self {
        let known: HashSet<&str> = self.settings.heads.iter().map(|head| head.name.as_str()).collect();
        let added = names.iter().filter(|name| known.contains(name.as_str())).cloned().collect();
        Self { added, ..self }
    }

    /// Number of the heads that are wanted and that the model, if there is one, has not learned.
    pub fn missing_heads(&self) -> usize {
        let learned = |model: &crate::model::Model| model.heads().map_or(0, |bank| bank.heads().len());
        self.model.as_ref().map_or(0, |model| self.settings.heads.len().saturating_sub(learned(model)))
    }

    /// Names of these.
    pub fn names_of_missing_heads(&self) -> Vec<String> {
        if self.missing_heads() == 0 {
            return Vec::new();
        }
        let bank = self.model.as_ref().and_then(|model| model.heads());
        let learned: HashSet<&str> = bank.iter().flat_map(|bank| bank.heads()).map(|head| head.name.as_str()).collect();
        let missing = self.settings.heads.iter().filter(|head| !learned.contains(head.name.as_str()));
        missing.map(|head| head.name.clone()).collect()
    }
}
