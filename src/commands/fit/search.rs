//! What `fit` asks model selection, and what it makes of the answer.

use super::super::held_out;
use super::super::output::{in_file, number};
use super::choices::SelectionChoice;
use super::stages::noted;
use super::{Failure, Fit, Fitted, WHITE_LAMBDA, constants, finish};
use crate::learner::allowance::Allowance;
use crate::learner::batch::Given;
use crate::learner::refit::{self, RefitError, RefitJob, RefitTrigger};
use crate::learner::window::Window;
use crate::learner::{DictionaryBy, DriftSensitivity, Lambda, Learner, SelectBy, Settings};
use crate::math::kernel::NoiseModel;
use crate::transition::Rows;
use crate::wire;

/// Rows of the data-driven model where the search takes nothing of it.
const GUESSED: usize = 1000;

impl Fit {
    /// Model selection, by the code that the daemon runs in the background.
    pub(in super::super) fn search(
        &self,
        rows: &Rows,
        settings: Settings,
        names: Option<Vec<String>>,
    ) -> Result<Fitted, Failure> {
        if constants(rows).len() == rows.dim {
            let message = "every transition starts in the same state, so values cannot differ";
            return Err(in_file(&self.table.table, message));
        }
        let noise = self.noise.unwrap_or_default();
        self.check_noise(noise, rows)?;
        let defaults = Settings::default();
        // Rows of actions may be copies that follow another policy than the one that acted.
        let drift_sensitivity = match self.drift_sensitivity {
            _ if settings.action_value.is_some() || !settings.heads.is_empty() => DriftSensitivity::Off,
            // Rows that count little err more than others, whatever the world does.
            _ if self.weights.column().is_some() => DriftSensitivity::Off,
            asked => asked.unwrap_or(defaults.drift_sensitivity),
        };
        let settings = Settings {
            kernel: self.kernel.unwrap_or(defaults.kernel),
            noise,
            tolerance: self.dictionary.tolerance.unwrap_or(defaults.tolerance),
            // The rules are compared below, without a budget and all of them.
            dictionary_by: Some(DictionaryBy::Icd),
            // Rows that are followed take their scale from their weights: here the evidence of the weighted rows has selected it.
            estimate_scale: self.weights.column().is_none(),
            centred: true,
            lambda: self.lambda.unwrap_or_default(),
            selection: self.selection.map_or(defaults.selection, SelectionChoice::kind),
            noise_floor: self.noise_floor,
            refit_first_rows: 0,
            evidence: self.evidence,
            evidence_rows: if self.evidence == SelectBy::Exact { rows.len() } else { self.evidence_rows },
            refit_budget_s: self.budget,
            seed: self.seed,
            drift_sensitivity,
            ..settings
        };
        let job = self.question(rows, &settings, names)?;
        let allowance = &Allowance::of_seconds(self.budget);
        let threads = self.threads();
        let pool = (threads > 1).then(|| rayon::ThreadPoolBuilder::new().num_threads(threads).build()).transpose()?;
        let run = || refit::run_within(&job, &|| noted(allowance), allowance);
        let candidate = pool.as_ref().map_or_else(run, |pool| pool.install(run));
        let candidate = candidate.map_err(|e| match e {
            RefitError::NotEnough(what) => {
                in_file(&self.table.table, format!("cannot select a model: {}", wire::lack(what)))
            }
            other => self.unsolved(rows, wire::refit_error(&other)),
        })?;
        let (mut model, change) = (*candidate.model, candidate.alarm);
        let since = change.as_ref().map_or(0, |change| change.finding.since);
        let nearest = self.by_leave_one_out(&mut model, rows, (&settings, since), allowance)?;
        let mut compared = Vec::new();
        let asked = self.dictionary.is_asked_for();
        if asked || self.dictionary.is_open(model.dictionary().len()) && allowance.left() {
            let (first, rows) = (since, &held_out::part(rows, |i| i as u64 >= since));
            let (inputs, hyperparameters, lambda) = (model.inputs().clone(), model.hyperparameters(), model.lambda());
            let hyperparameters = &hyperparameters;
            let given = Given { settings: &settings, rows, inputs: &inputs, hyperparameters, lambda, first };
            let chosen = self.dictionary.choose_best(&given)?;
            // The selected model has a dictionary by ICD.
            if asked || chosen.selected.is_none() {
                model = given.model(chosen.dictionary, &|| true)?;
                finish(&mut model, rows);
            }
            compared = chosen.compared;
        }
        Ok(Fitted { report: Some(candidate.report), compared, change, nearest, ..Fitted::of(model) })
    }

    /// What the search is asked. The data-driven model that others start from is made from all rows; one by returns takes nothing of it.
    fn question(&self, rows: &Rows, settings: &Settings, names: Option<Vec<String>>) -> Result<RefitJob, Failure> {
        let is_read = !settings.selects_by_returns() || !settings.heads.is_empty() || settings.action_value.is_some();
        let every = if is_read { 1 } else { rows.len().div_ceil(GUESSED) };
        let guessed = held_out::part(rows, |i| i % every == 0);
        let mut learner = Learner::of_inputs(Settings { warmup_rows: guessed.len(), ..settings.clone() }, names);
        learner.step(&Window::of(&guessed));
        let mut job =
            learner.refit_job(&Window::of(rows), RefitTrigger::Requested).map_err(|e| self.unsolved(rows, e))?;
        (job.settings.warmup_rows, job.dictionary_share) = (settings.warmup_rows, 1.0);
        Ok(job)
    }

    /// A failure to solve for values, and what may be behind it.
    pub(super) fn unsolved(&self, rows: &Rows, why: impl std::fmt::Display) -> Failure {
        let largest = rows.ratios.iter().copied().fold(0.0, f64::max).min(self.rho_max);
        if largest <= 1.0 {
            return in_file(&self.table.table, why);
        }
        let hint = format!("importance ratios of up to {} may be the reason, --rho-max clips them", number(largest));
        in_file(&self.table.table, format!("{why}; {hint}"))
    }

    /// What white noise cannot make use of.
    pub(super) fn check_noise(&self, noise: NoiseModel, rows: &Rows) -> Result<(), Failure> {
        if noise != NoiseModel::White {
            return Ok(());
        }
        if matches!(self.lambda, Some(Lambda::Fixed(lambda)) if lambda < 1.0) {
            return Err(Failure::usage(WHITE_LAMBDA));
        }
        if rows.ratios.iter().any(|&ratio| ratio != 1.0) {
            let message = "behavior_prob and target_prob weight the rows, which white noise cannot; put an underscore before \
                           the name of one of the two to have it skipped";
            return Err(in_file(&self.table.table, message));
        }
        Ok(())
    }
}
