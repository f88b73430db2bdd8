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

    /// Choose noise and scale of each head, as far as it does not name them, from what has been learned so far.
    ///
    /// # Errors
    /// If a system cannot be solved; the scales are then as they were.
    pub fn tune_heads(&mut self) -> Result<(), SolveError> {
        let branch = self.branch.as_mut().map_or(Ok(()), |branch| branch.tune_heads());
        self.tune_own_heads().and(branch)
    }

    fn tune_own_heads(&mut self) -> Result<(), SolveError> {
        let running = self.running();
        let (diagonal, floor) = (self.basis.kernel().typical(), self.settings.noise_floor);
        if let Some(heads) = &mut self.heads {
            heads.tune(&running, diagonal, floor, self.statistics.rows)?;
        }
        if let Some(history) = &mut self.history {
            history.tune(self.statistics.rows);
        }
        Ok(())
    }

    /// Tune heads where the settings estimate scales and there are enough more rows than when that was done last, or enough of those
    /// have been forgotten, since noise and scale settle and it costs many solutions, and renew the weights whose predictions are
    /// verified. Where no system can be solved, nothing is verified until the next success.
    pub(super) fn refresh_heads(&mut self) {
        let (rows, tunes, half_life) = (self.statistics.rows, self.settings.estimate_scale, self.settings.forgetting);
        let Some(heads) = &self.heads else {
            // Heads that come late are tuned where they would have been.
            self.history
                .iter_mut()
                .filter(|history| tunes && history.tuning_is_due(rows, half_life))
                .for_each(|history| history.tune(rows));
            return;
        };
        let done = if tunes && heads.tuning_is_due(rows) {
            self.tune_own_heads()
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
            Some(heads) => heads.renew_forecast(&running, self.statistics.rows),
            None => Ok(()),
        }
    }

    /// The same model that knows no heads.
    pub(crate) fn without_heads(self) -> Self {
        Self { heads: None, branch: None, tracking: None, ..self }
    }

    /// Log evidence of each of [`Model::all_heads`], nats.
    ///
    /// # Errors
    /// If a system cannot be solved.
    pub fn head_evidence(&self) -> Result<Vec<f64>, SolveError> {
        let mut evidence = match &self.heads {
            Some(heads) => heads.log_evidence(&heads.solve(&self.running())?),
            None => Vec::new(),
        };
        if let Some(branch) = &self.branch {
            evidence.extend(branch.head_evidence()?);
        }
        Ok(evidence)
    }

    /// Forget the heads that are not among those `wanted`.
    pub(crate) fn let_heads_go(&mut self, wanted: &[Head]) {
        self.branch.iter_mut().for_each(|branch| branch.let_heads_go(wanted));
        self.branch.take_if(|branch| branch.heads.is_none());
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

    /// Learn these heads from the first row on, each with noise and scale of the one of its name, if there is one, and under the kernel
    /// of that one.
    ///
    /// # Panics
    /// If rows have been learned already.
    pub(crate) fn want_heads(&mut self, heads: &[Head]) {
        assert_eq!(self.statistics.rows, 0, "rows were learned without these heads");
        if let Some(branch) = &mut self.branch {
            branch.let_heads_go(heads);
        }
        self.branch.take_if(|branch| branch.heads.is_none());
        let before = self.heads.take();
        let shared: Vec<Head> = heads.iter().filter(|head| !self.is_apart(head)).cloned().collect();
        self.settings.heads = self.about().map_or_else(|| shared.clone(), |about| about.heads(&shared));
        self.start_heads();
        if let (Some(heads), Some(known)) = (&mut self.heads, &before) {
            heads.take_scales(known);
        }
    }
}
