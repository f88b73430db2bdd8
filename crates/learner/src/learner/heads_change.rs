//! Changes of a critic's heads while it learns.
//!
//! The settings list the wanted heads. A model learns the heads that are wanted at its first row. A head that is added later is
//! missing until it has learned the rows of the model as well ([`LateHeads`]), or a refit or a rebuild makes a model with it.

use super::Learner;
use crate::heads::Head;
use crate::model::{LateHeads, Model, Unlike};
use crate::refit::RefitTrigger;
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
    /// Labels to keep for heads to come.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<LabelPart>,
}

/// A piece of a set of labels.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LabelPart {
    /// Name of the set.
    pub name: String,
    /// Labels of the set before these; 0 begins it.
    pub from: u64,
    /// Of each labelled row its offset, rising.
    pub offsets: Vec<u64>,
    /// The labels.
    #[serde(with = "crate::math::raw")]
    pub values: Vec<f64>,
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

    /// With the heads `names` of the settings as heads that were added at run time.
    pub fn with_added_heads(self, names: &[String]) -> Self {
        let known: HashSet<&str> = self.settings.heads.iter().map(|head| head.name.as_str()).collect();
        let added = names.iter().filter(|name| known.contains(name.as_str())).cloned().collect();
        Self { added, ..self }
    }

    /// Number of the heads that are wanted and that the model, if there is one, has not learned.
    pub fn missing_heads(&self) -> usize {
        self.model.as_ref().map_or(0, |model| self.settings.heads.len().saturating_sub(model.all_heads().count()))
    }

    /// Names of these.
    pub fn names_of_missing_heads(&self) -> Vec<String> {
        if self.missing_heads() == 0 {
            return Vec::new();
        }
        let learned = self.model.iter().flat_map(|model| model.all_heads());
        let learned: HashSet<&str> = learned.map(|head| head.name.as_str()).collect();
        let missing = self.settings.heads.iter().filter(|head| !learned.contains(head.name.as_str()));
        missing.map(|head| head.name.clone()).collect()
    }

    /// Whether another model has learned some of these.
    pub(super) fn supplies_missing_heads(&self, other: &Model) -> bool {
        let missing = self.missing();
        !missing.is_empty() && other.all_heads().any(|head| missing.contains(&head.name))
    }

    /// The heads that are wanted and that the model has not learned, but for those that `cannot` be, before the model's first row;
    /// none where it is not known how the model came to what it is, as for one of an earlier version.
    pub fn late_heads(&self, cannot: impl Fn(&Head) -> bool) -> Option<LateHeads> {
        let mut heads = self.wanted_and_missing();
        heads.retain(|head| !cannot(head));
        self.model.as_ref()?.late_heads(heads, self.learned)
    }

    /// Take heads that have learned the rows of the model as a part of it, as far as they are still wanted. All else stays as it is,
    /// but that a refit which runs has ended, since its model may lack them. What made it due makes another one due.
    ///
    /// # Errors
    /// If they have learned other rows than the model, or with other elements. Nothing changes then.
    pub fn take_late_heads(&mut self, late: LateHeads) -> Result<(), Unlike> {
        let wanted = self.wanted_and_missing();
        self.model.as_mut().ok_or(Unlike::Rows)?.take_late(late, &wanted)?;
        let ended = self.asked.score_at_job.take();
        self.asked.requested |= ended.is_some_and(|(_, trigger)| trigger == RefitTrigger::Requested);
        Ok(())
    }

    fn missing(&self) -> HashSet<String> {
        self.names_of_missing_heads().into_iter().collect()
    }

    fn wanted_and_missing(&self) -> Vec<Head> {
        let missing = self.missing();
        self.settings.heads.iter().filter(|head| missing.contains(&head.name)).cloned().collect()
    }
}
