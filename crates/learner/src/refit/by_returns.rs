//! Selection by held-out returns.

use super::Prepared;
use super::bends::bent;
use super::error::RefitError;
use super::first_guess::rescaled;
use super::job::Candidate;
use super::rebuild::{report_of_rebuilt, selected_model};
use super::referee::{self, Choice, Question};
use super::report::{AscentReport, RefitReport, rebuilt_diagnostics};
use super::rule::RefitRule;
use super::search::{EvidenceKind, Structure};
use super::trial;
use crate::batch::Given;
use crate::math::optimise::Ascent;
use crate::transition::Rows;

/// Select by held-out returns, then rebuild under what was chosen.
pub(super) fn select(prepared: Prepared<'_>) -> Result<Candidate, RefitError> {
    let Prepared { job, rows, inputs, dependence, keep_going, allowance } = prepared;
    let settings = &job.settings;
    let left_out = dependence.left_out();
    let present = rescaled(&job.current.hyperparameters, &job.current.inputs, inputs);
    let bent = bent(rows, inputs, settings, &left_out);
    let mut choosing = Rows::new(rows.dim, rows.rewards_per_row);
    choosing.extend(rows, 0..trial::choosing(job, rows.len()));
    let question = Question {
        settings,
        rows: &choosing,
        inputs,
        kinds: &settings.kinds(rows.dim),
        bent: bent.as_deref(),
        left_out: &left_out,
        // The data-driven first model is a stopgap: nothing has been selected for it. A kernel that takes a variable for something else
        // than the settings say by now does not compete either.
        present: (job.current.generation > 1 && job.is_of_kinds(&present.kernel))
            .then_some((&present, job.current.lambda)),
        kernel: None,
        lambda: settings.lambda.fixed(),
        room: job.room(),
        seed: job.seed,
    };
    let mut ascents = Vec::new();
    let mut note = |round: usize, structure: &Structure, rows: usize, found: &[Ascent]| {
        ascents.extend(AscentReport::of(round, structure, inputs.dim(), rows, found));
    };
    let Choice { hyperparameters, lambda, report: selection, found, structures } =
        referee::choose(&question, &mut note, keep_going, allowance)?;
    let out_of_time = allowance.has_ended();
    let chosen =
        Given { settings, rows, inputs, hyperparameters: &hyperparameters, lambda, first: job.numbered_from() };
    let mut rule = RefitRule::of(settings, allowance);
    let model = selected_model(job, &chosen, &mut rule, keep_going)?;
    let alike = |d: usize| dependence.duplicates_of(d);
    let support = found.as_ref().and_then(|(search, found)| {
        search.support(EvidenceKind::Exact, &found.hyperparameters(), &alike, keep_going, allowance)
    });
    let hyperparameters = model.hyperparameters();
    let evaluations = ascents.iter().map(|a| a.ascent.evaluations).sum();
    let rebuilt = report_of_rebuilt(job, rows, &model, &hyperparameters, dependence, support)?;
    let (selection, dictionary) = (Some(selection), rule.report());
    let mut report = RefitReport { evaluations, structures, out_of_time, ascents, selection, dictionary, ..rebuilt };
    if let Some((search, found)) = &found {
        report.evidence_rows = search.rows(EvidenceKind::Exact);
        report.structure.clone_from(&found.structure.name);
    }
    report.trial = trial::held(job, &model, rows, keep_going)?;
    report.findings = rebuilt_diagnostics(&report, &hyperparameters, inputs, dependence, job.room());
    if !keep_going() {
        return Err(RefitError::Stopped);
    }
    Ok(job.candidate(model, report))
}
