//! The heads of a model: which it has, and when their noise, scale and predictions are renewed.

use super::Model;
use crate::heads::{Bank, Head};
use crate::math::kernel::NoiseModel;
use crate::math::posterior::SolveError;
use std::collections::HashMap;

impl Model {
    /// Begin with the heads of the settings. White noise, which has no returns, knows none.
    pub(super) fn start_heads(&mut self) {
        if !self.settings.heads.is_empty() && self.noise == NoiseModel::Correlated {
            let (heads, half_life) = (self.settings.heads.clone(), self.settings.forgetting);
            let grows = !self.basis.dictionary.is_full();
            self.heads = Some(Box::new(Bank::new(heads, self.basis.len(), half_life, self.weights.scale, grows)));
        }
    }

    /// What it has learned for its heads; none where it has none.
    pub fn heads(&self) -> Option<&Bank> {
        self.heads.as_deref()
    }

    /// Choose noise and scale of each head that does not name its own, from what has been learned so far.
    ///
    /// # Errors
    /// If a system cannot be solved; the scales are then as they were.
    pub fn tune_heads(&mut self) -> Result<(), SolveError> {
        let running = self.running();
        let (diagonal, floor) = (self.basis.kernel().diagonal(), self.settings.noise_floor);
        if let Some(heads) = &mut self.heads {
            heads.tune(&running, diagonal, floor, self.statistics.rows)?;
        }
        Ok(())
    }

    /// Tune heads where there are twice as many rows as when that was done last, since noise and scale settle and it costs many
    /// solutions, and renew the weights whose predictions are verified. Where no system can be solved all stays as it is.
    pub(super) fn refresh_heads(&mut self) {
        let rows = self.statistics.rows;
        let Some(heads) = &self.heads else { return };
        let done = if heads.tuning_is_due(rows) {
            self.tune_heads()
        } else if heads.foresight_is_due(rows) {
            self.foresee_heads()
        } else {
            return;
        };
        self.counts.failed_refreshes += u64::from(done.is_err());
    }

    /// Let the weights of now predict the returns that are verified.
    fn foresee_heads(&mut self) -> Result<(), SolveError> {
        let running = self.running();
        match &mut self.heads {
            Some(heads) => heads.foresee(&running, self.statistics.rows),
            None => Ok(()),
        }
    }

    /// The same model that knows no heads.
    pub(crate) fn without_heads(self) -> Self {
        Self { heads: None, ..self }
    }

    /// Log evidence of each head, nats; empty where there is none.
    ///
    /// # Errors
    /// If a system cannot be solved.
    pub fn head_evidence(&self) -> Result<Vec<f64>, SolveError> {
        let Some(heads) = &self.heads else { return Ok(Vec::new()) };
        Ok(heads.log_evidence(&heads.solve(&self.running())?))
    }

    /// Forget the heads that are not among those `wanted`.
    pub(crate) fn let_heads_go(&mut self, wanted: &[Head]) {
        let wanted: HashMap<&str, &Head> = wanted.iter().map(|head| (head.name.as_str(), head)).collect();
        let stays = |head: &Head| wanted.get(head.name.as_str()).is_some_and(|other| *other == head);
        if self.settings.heads.iter().all(stays) {
            return;
        }
        self.settings.heads.retain(stays);
        let bank = self.heads.take().map(|mut bank| {
            bank.retain(stays);
            bank
        });
        self.heads = bank.filter(|bank| !bank.heads().is_empty());
    }

    /// Learn these heads from the first row on, each with noise and scale of the one of its name, if there is one.
    ///
    /// # Panics
    /// If rows have been learned already.
    pub(crate) fn want_heads(&mut self, heads: &[Head]) {
        assert_eq!(self.statistics.rows, 0, "rows were learned without these heads");
        let before = self.heads.take();
        self.settings.heads = heads.to_vec();
        self.start_heads();
        if let (Some(heads), Some(known)) = (&mut self.heads, &before) {
            heads.take_scales(known);
        }
    }
}
