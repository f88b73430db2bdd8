//! The model of hyperparameters that have been selected: dictionary, posterior and a look at how it errs.

use super::CATCH_UP_ROWS;
use super::error::RefitError;
use super::job::RefitJob;
use super::report::{RefitReport, variables};
use super::rule::RefitRule;
use super::screening::Dependence;
use super::search::{EvidenceKind, enough};
use crate::allowance::{self, Allowance};
use crate::batch::{self, BatchError, Given};
use crate::math::dense::Matrix;
use crate::math::evidence::KeepGoing;
use crate::math::inflation::horizon;
use crate::math::kernel::{Hyperparameters, Metric, Points};
use crate::math::returns::greatest_weight;
use crate::model::Model;
use crate::settings::{Settings, effective_tolerance};
use crate::snapshot::Snapshot;
use crate::transition::Rows;

/// Passes of a rebuild: a dictionary that has grown in one of them is passed over again with what it has become.
const PASSES: usize = 3;

/// What a report says of the rebuilt model and its `hyperparameters`; how they were found is left out. `support` is the evidence
/// lost without each state variable, where there was time to find out, and which evidence that is of.
pub(super) fn report_of_rebuilt(
    job: &RefitJob,
    rows: &Rows,
    model: &Model,
    hyperparameters: &Hyperparameters,
    dependence: &Dependence,
    support: Option<(Vec<Option<f64>>, EvidenceKind)>,
) -> Result<RefitReport, RefitError> {
    let (dictionary, inputs, metric) = (model.dictionary(), model.inputs(), &hyperparameters.kernel.metric);
    let rewards = job.settings.rewards.len() as f64;
    let factor = matches!(metric, Metric::Factor { .. });
    Ok(RefitReport {
        trigger: job.trigger,
        rows: rows.len() as u64,
        rows_effective: effective_rows(model),
        evidence: EvidenceKind::Exact,
        evidence_rows: 0,
        structure: metric.kind().to_owned(),
        evidence_before: None,
        evidence_after: None,
        evidence_loss: None,
        fit_ratio: None,
        evaluations: 0,
        structures: Vec::new(),
        active_bounds: Vec::new(),
        out_of_time: false,
        dictionary_size: dictionary.elements_len(),
        dictionary: None,
        trace_gap: model.solve()?.trace_gap(model.statistics()) * rewards,
        tolerance: dictionary.tolerance() / dictionary.kernel().diagonal(),
        rows_left_out: 0,
        hidden: None,
        variables: variables(hyperparameters, inputs, dependence, support.as_ref().map(|(s, _)| &s[..])),
        directions: if factor { metric.directions(inputs.dim()) } else { Vec::new() },
        evidence_drop_by: support.map(|(_, by)| by),
        findings: Vec::new(),
        ascents: Vec::new(),
        heads: None,
        split: None,
        selection: None,
        trial: None,
        improvement: None,
        world: None,
    })
}

/// Effective number of rows, where rows are forgotten.
fn effective_rows(model: &Model) -> Option<f64> {
    model.statistics().forgets().then(|| model.statistics().effective_rows())
}

/// TD errors under the final weights: scatter and spread are made of them. No score, since no row was predicted before it was
/// learned.
pub(super) fn look_again(model: &mut Model, rows: &Rows, first: u64, keep_going: KeepGoing<'_>) {
    let parts = (0..rows.len()).step_by(CATCH_UP_ROWS).map(|from| from..rows.len().min(from + CATCH_UP_ROWS));
    model.revisit(parts.take_while(|_| keep_going()).map(|part| {
        let offset = first + part.start as u64;
        (rows, part, offset)
    }));
    if keep_going() {
        // Where a system has no solution its deviations come from single rows.
        let _ = model.look_at_pieces(rows, first);
    }
    model.reset_score();
}

/// The model of hyperparameters that held-out returns have selected.
pub(super) fn selected_model(
    job: &RefitJob,
    chosen: &Given<'_>,
    rule: &mut RefitRule<'_>,
    keep_going: KeepGoing<'_>,
) -> Result<Model, RefitError> {
    let mut model = rebuild_for(job, chosen, chosen.hyperparameters.noise_variance, rule, keep_going)?;
    model.match_scale()?;
    plausible(&model.value_snapshot(false)?, chosen.rows, &job.settings)?;
    look_again(&mut model, chosen.rows, chosen.first, keep_going);
    Ok(model)
}

/// Dictionary by pivoted ICD, then a pass over all rows, then noise and scale from the statistics.
pub(super) fn rebuild(
    job: &RefitJob,
    given: &Given<'_>,
    keep_going: KeepGoing<'_>,
    allowance: &Allowance,
) -> Result<Model, RefitError> {
    rebuild_for(job, given, given.hyperparameters.noise_variance, &mut RefitRule::icd(allowance), keep_going)
}

/// As [`rebuild`], with a dictionary by this rule that is fine enough for targets with this noise variance.
pub(super) fn rebuild_for(
    job: &RefitJob,
    given: &Given<'_>,
    noise_variance: f64,
    rule: &mut RefitRule<'_>,
    keep_going: KeepGoing<'_>,
) -> Result<Model, RefitError> {
    // Where nothing is forgotten offsets decide only which rows are scored, and no score is made of these.
    let first = if given.settings.forgetting.is_some() { given.first } else { 0 };
    let (began_at, given) = (given.first, Given { first, ..*given });
    let Given { settings, hyperparameters, .. } = given;
    let noise_variance = noise_variance / greatest_weight(given.rows, settings.weighted);
    let hyperparameters = &Hyperparameters { noise_variance, ..hyperparameters.clone() };
    // What the dictionary leaves out of all rows together must stay small against the noise, so with more rows it has to
    // be finer: the tolerance of the settings is an upper bound.
    let tolerance = effective_tolerance(settings, hyperparameters);
    let enough = enough(hyperparameters, settings.rewards.len());
    let stopped = |_: BatchError| RefitError::Stopped;
    let selection = given.select(enough, job.room(), keep_going).map_err(stopped)?;
    let (rows, dim, allowance) = (given.rows.len(), given.inputs.dim(), rule.allowance);
    allowance.spend(allowance::pivots(rows.min(batch::CANDIDATES), selection.dictionary.len(), dim));
    let by_rule = rule.dictionary(&given, &selection, (enough, job.room()), keep_going)?;
    let mut dictionary = by_rule.unwrap_or(selection.dictionary);
    let mut size = dictionary.len();
    let finest = selection.residuals.last().copied().unwrap_or(tolerance);
    dictionary.set_tolerance(tolerance.min(finest.max(enough.tolerance)));
    dictionary.set_max(settings.dictionary_max);
    let mut model = given.tracked_model(dictionary, keep_going).map_err(stopped)?;
    allowance.spend(allowance::pass(rows, model.dictionary().len(), dim, settings));
    for pass in 1..PASSES {
        // An element that a pass admits knows only the rows of the ring before it.
        let (grown, last) = (model.dictionary().len() > size, pass + 1 == PASSES);
        if !grown {
            break;
        }
        let mut dictionary = model.dictionary().clone();
        size = dictionary.len();
        // The last pass admits no state, so that its model is its own fixed point. A cap would do that too, but would
        // let go of the rows that backfill needs, and elements are admitted again afterwards.
        let tolerance = dictionary.tolerance();
        if last {
            dictionary.set_tolerance(f64::INFINITY);
        }
        model = given.tracked_model(dictionary, keep_going).map_err(stopped)?;
        allowance.spend(allowance::pass(rows, size, dim, settings));
        model.set_tolerance(tolerance);
    }
    model.began_at(began_at);
    Ok(model)
}

/// Values cannot exceed what rewards and discounts add up to. A fixed point of bootstrapped targets that does is an artefact of
/// too little data.
pub(super) fn plausible(snapshot: &Snapshot, rows: &Rows, settings: &Settings) -> Result<(), RefitError> {
    let largest = (0..rows.len())
        .flat_map(|i| settings.rewards.iter().map(move |&h| rows.reward(i)[h].abs()))
        .fold(0.0, f64::max);
    // Rows may carry discounts of their own, above the critic's.
    let discount = (0..rows.len()).map(|i| rows.discount(i, settings.discount)).fold(0.0, f64::max);
    let horizon = horizon(discount, rows.len() as f64);
    // Twice: a Gaussian process overshoots at the rim of its data.
    let bound = 2.0 * largest * horizon.min(1e9);
    let kernel = &snapshot.hyperparameters.kernel;
    let (m, elements, dim) = (snapshot.weights.nrows(), snapshot.dictionary.nrows(), snapshot.dim());
    let points = kernel.project(dim, snapshot.dictionary.transpose().as_slice());
    let mut rows = Matrix::zeros(m, elements);
    kernel.rows(&Points::new(kernel.projected_dim(dim), &points), &points, &mut rows.view_mut());
    let values = rows.to_nalgebra().tr_mul(&snapshot.weights);
    let value = values.amax();
    if value.is_finite() && value <= bound { Ok(()) } else { Err(RefitError::Wild { value, bound }) }
}
