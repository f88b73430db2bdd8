//! Heads that have a kernel of their own, docs/mathematics.md (H17): a second model of these alone, which learns each row beside the first.

use super::Model;
use crate::heads::{Bank, Head};
use crate::math::dictionary::Dictionary;
use crate::math::kernel::Hyperparameters;
use crate::math::posterior::SolveError;
use crate::snapshot::Snapshot;
use nalgebra::DMatrix;

impl Model {
    /// The model of the heads that have a kernel of their own; none where all share one.
    pub fn branch(&self) -> Option<&Self> {
        self.branch.as_deref()
    }

    /// What it has learned for its heads, kernel by kernel: first for those that share the kernel of the values.
    pub fn banks(&self) -> impl Iterator<Item = &Bank> {
        self.heads.as_deref().into_iter().chain(self.branch.iter().filter_map(|branch| branch.heads.as_deref()))
    }

    /// All heads that it has learned, in the order of their banks.
    pub fn all_heads(&self) -> impl Iterator<Item = &Head> {
        self.banks().flat_map(Bank::heads)
    }

    /// The same with further `heads`, which have a kernel and a dictionary of their own.
    ///
    /// # Panics
    /// If rows have been learned already.
    #[must_use]
    pub fn with_branch(mut self, heads: Vec<Head>, hyperparameters: &Hyperparameters, dictionary: Dictionary) -> Self {
        assert_eq!(self.statistics.rows, 0, "rows were learned without these heads");
        let (settings, inputs) = (self.settings.of_heads_alone(heads), self.basis.inputs.clone());
        self.set_branch(Self::with_dictionary(settings, inputs, hyperparameters, dictionary));
        self
    }

    /// Let the heads of `branch` have the kernel of that model, which learns nothing else and has learned the same rows.
    pub(crate) fn set_branch(&mut self, branch: Self) {
        self.branch = Some(Box::new(branch));
    }

    /// Whether a head has a kernel of its own.
    pub(super) fn is_apart(&self, head: &Head) -> bool {
        self.branch.as_ref().is_some_and(|branch| branch.settings.heads.contains(head))
    }

    /// Whether the heads that have a kernel of their own fit the model that the file has them in.
    pub(super) fn is_branch_consistent(&self) -> bool {
        self.branch.as_ref().is_none_or(|branch| {
            !self.settings.heads_alone
                && branch.settings.heads_alone
                && branch.heads.is_some()
                && branch.basis.dim() == self.basis.dim()
                && branch.is_consistent()
        })
    }

    /// The heads that have a kernel of their own, as a part of the snapshot `of` this model.
    pub(super) fn published_branch(&self, variance: bool, of: &Snapshot) -> Option<Result<Box<Snapshot>, SolveError>> {
        let branch = self.branch.as_ref()?;
        let heads = branch.published_heads(&branch.running(), variance)?;
        let (m, elements, dim) = (branch.basis.len(), branch.basis.dictionary.elements_len(), branch.basis.dim());
        let with = |heads| Snapshot {
            critic: of.critic.clone(),
            hyperparameters: branch.hyperparameters(),
            inputs: branch.basis.inputs.clone(),
            dictionary: DMatrix::from_row_slice(elements, dim, branch.basis.dictionary.elements()),
            weights: DMatrix::zeros(m, 0),
            variance: None,
            log_evidence: None,
            score: None,
            returns: None,
            actions: None,
            level: Vec::new(),
            mean: None,
            heads: Some(heads),
            branch: None,
            tracked: None,
            reward_names: Vec::new(),
            table: None,
            ..*of
        };
        Some(heads.map(|heads| Box::new(with(heads))))
    }
}
