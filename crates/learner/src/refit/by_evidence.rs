//! Selection by the evidence: rounds of targets, ascent and rebuild, since bootstrapped targets move with the model.

use super::climb::Climb;
use super::error::RefitError;
use super::first_guess::{moments, rescaled};
use super::job::Candidate;
use super::rebuild::{look_again, plausible, rebuild_for, report_of_rebuilt};
use super::report::{AscentReport, Circumstances, DictionaryReport, HeldBound, RefitReport, evidence_diagnostics};
use super::rule::RefitRule;
use super::search::{Data, EvidenceKind, Found, Search, Structure, StructureReport};
use super::{CATCH_UP_ROWS, Prepared, look};
use crate::batch::Given;
use crate::math::dense::Matrix;
use crate::math::evidence::KeepGoing;
use crate::math::kernel::{Hyperparameters, NoiseModel};
use crate::math::optimise::{ActiveBound, Ascent};
use crate::math::returns::Returns;
use crate::model::Model;
use crate::settings::{KernelKind, SelectBy};
use crate::snapshot::{Ask, Snapshot};

/// Place of the noise among the parameters.
const NOISE: usize = 2;
/// Rounds of targets, ascent, rebuild: bootstrapped targets move with the model.
const TARGET_ROUNDS: usize = 3;
/// Stop iterating when the targets move by less than this many standard deviations of the targets.
const TARGETS_MOVED: f64 = 0.05;
/// Also require that the targets move by less than this many standard deviations of the noise: errors in the targets are noise
/// to the evidence, and decide the selection where there is little other noise.
const TARGETS_MOVED_NOISE: f64 = 0.1;

/// Select structure and hyperparameters by the evidence, and rebuild under them.
pub(super) fn select(prepared: Prepared<'_>) -> Result<Candidate, RefitError> {
    let Prepared { job, rows, inputs, dependence, keep_going, allowance } = prepared;
    let settings = &job.settings;
    let left_out = dependence.left_out();
    let returns = Returns::new(rows, &settings.rewards, settings.discount);
    look(keep_going)?;
    let cut_states = returns.cut_states(rows);
    let mut targets = returns.targets(&values_at(&job.current, &cut_states, keep_going)?);
    let present = &rescaled(&job.current.hyperparameters, &job.current.inputs, inputs);
    let (mut best, mut tried, mut number) = (None, Tried::default(), 1);
    let mut rule = RefitRule::of(settings, allowance);
    loop {
        let data = Data {
            rows,
            inputs,
            targets: &targets,
            left_out: &left_out,
            room: job.room(),
            seed: job.seed,
            profiled: None,
            linear: 0.0,
        };
        let search = &Search::new(settings, &data)?;
        let round = Round { prepared, search, present, number };
        let found = round.ascend(best.take(), &mut tried)?;
        let hyperparameters = &found.hyperparameters();
        let (lambda, first) = (settings.first_lambda(), job.numbered_from());
        let given = Given { settings, rows, inputs, hyperparameters, lambda, first };
        let mut model = rebuild_for(job, &given, hyperparameters.noise_variance, &mut rule, keep_going)?;
        let snapshot = model.value_snapshot(false)?;
        let moved = returns.targets(&values_at(&snapshot, &cut_states, keep_going)?);
        let shift = distance_in_deviations(&targets, &moved);
        if shift > targets_settled(hyperparameters, &moved) && number < TARGET_ROUNDS && allowance.left() {
            (targets, best) = (moved, Some(found));
            number += 1;
            continue;
        }
        plausible(&snapshot, rows, settings)?;
        look_again(&mut model, rows, first, keep_going);
        // Asked only by the search so far: what the rebuild has used up since has not ended it.
        let out_of_time = allowance.has_ended();
        let report = round.report(&found, (&model, rule.report()), &targets, tried, out_of_time)?;
        // Evidence that is only reported ends without an error.
        look(keep_going)?;
        return Ok(job.candidate(model, report));
    }
}

/// What all rounds have tried.
#[derive(Default)]
struct Tried {
    structures: Vec<StructureReport>,
    ascents: Vec<AscentReport>,
    evaluations: usize,
}

/// A search under the targets of one round.
struct Round<'a> {
    prepared: Prepared<'a>,
    search: &'a Search,
    /// The present hyperparameters, in the coordinates of the round.
    present: &'a Hyperparameters,
    /// From 1.
    number: usize,
}

impl Round<'_> {
    /// The best structure with its hyperparameters; `before` is the best of the round before.
    fn ascend(&self, before: Option<Found>, tried: &mut Tried) -> Result<Found, RefitError> {
        let Self { prepared, search, present, number } = *self;
        let Prepared { job, inputs, keep_going, allowance, .. } = prepared;
        let (settings, Tried { structures, ascents, evaluations }) = (&job.settings, tried);
        let mut note = |structure: &Structure, rows, found: &[Ascent]| {
            ascents.extend(AscentReport::of(number, structure, inputs.dim(), rows, found));
        };
        let by = match settings.evidence {
            SelectBy::Sparse if search.has_bound() => EvidenceKind::Sparse,
            _ => before.as_ref().map_or(EvidenceKind::Exact, |found| found.by),
        };
        let mut climb = Climb { search, present, also: &[], by, note: &mut note, keep_going, allowance };
        let found = match before {
            // Targets that have moved a little do not ask for another structure.
            Some(found) => climb.again(found)?,
            None => climb.select(settings.kernel, structures)?,
        };
        let found = climb.refine_on_all_rows(found, settings.kernel == KernelKind::Auto)?;
        *evaluations += found.ascent.evaluations;
        Ok(found)
    }

    /// What is to be said of the last round, whose targets were `targets` (n, H), of the rebuilt model and its dictionary.
    fn report(
        &self,
        found: &Found,
        (model, dictionary): (&Model, Option<DictionaryReport>),
        targets: &Matrix,
        tried: Tried,
        out_of_time: bool,
    ) -> Result<RefitReport, RefitError> {
        let Self { prepared, search, present, .. } = *self;
        let Prepared { job, rows, inputs, dependence, keep_going, allowance } = prepared;
        let hyperparameters = &found.hyperparameters();
        let active = &found.ascent.active;
        let relevances = found.structure.relevances();
        let held = |test: &dyn Fn(&ActiveBound) -> bool| active.iter().any(test);
        let reached = search.value(found.by, hyperparameters, keep_going, allowance)?;
        let alike = |d: usize| dependence.duplicates_of(d);
        let support = search.support(found.by, hyperparameters, &alike, keep_going, allowance);
        let mut report = RefitReport {
            evidence: found.by,
            evidence_rows: search.rows(found.by),
            structure: found.structure.name.clone(),
            evidence_before: search.value(found.by, present, keep_going, allowance).ok().map(|e| e.value),
            evidence_after: Some(reached.value),
            evidence_loss: found.evidence_loss,
            fit_ratio: Some(reached.fit_ratio()),
            evaluations: tried.evaluations,
            structures: tried.structures,
            active_bounds: HeldBound::of(found, inputs.dim()),
            out_of_time,
            ascents: tried.ascents,
            dictionary,
            ..report_of_rebuilt(job, rows, model, hyperparameters, dependence, support)?
        };
        let circumstances = Circumstances {
            hyperparameters,
            inputs,
            dependence,
            targets,
            noise_at_floor: held(&|b| b.parameter == NOISE && !b.upper),
            finest: held(&|b| relevances.contains(&b.parameter) && b.upper),
            directions_asked: match job.settings.kernel {
                KernelKind::Factor(directions) => directions.unwrap_or(1),
                _ => 0,
            },
            bound_wanted: search.has_bound(),
            dictionary_max: job.room(),
        };
        report.findings = evidence_diagnostics(&report, &circumstances);
        Ok(report)
    }
}

/// Values (k, H) of `snapshot` at states (k, D), row-major, 512 at a time: every row may end in a cut.
fn values_at(snapshot: &Snapshot, states: &[f64], keep_going: KeepGoing<'_>) -> Result<Matrix, RefitError> {
    let dim = snapshot.dim();
    let mut out = Matrix::zeros(states.len() / dim, snapshot.weights.ncols());
    for (block, states) in states.chunks(CATCH_UP_ROWS * dim).enumerate() {
        if !keep_going() {
            return Err(RefitError::Stopped);
        }
        match snapshot.evaluate(states, Ask::MEAN) {
            Ok(found) => {
                for (h, column) in found.mean.column_iter().enumerate() {
                    let from = block * CATCH_UP_ROWS;
                    out.col_mut(h)[from..from + column.len()].copy_from_slice(column.as_slice());
                }
            }
            // States of the window have been checked when they came in.
            Err(e) => unreachable!("a retained state cannot be evaluated: {e}"),
        }
    }
    Ok(out)
}

/// Root mean square change of the targets in units of their standard deviation.
fn distance_in_deviations(before: &Matrix, after: &Matrix) -> f64 {
    let count = (before.rows() * before.cols()).max(1) as f64;
    let mut square = 0.0;
    for h in 0..before.cols() {
        square += before.col(h).iter().zip(after.col(h)).map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
    }
    let (_, variance) = moments(after);
    if square == 0.0 { 0.0 } else { (square / count / variance.max(f64::MIN_POSITIVE)).sqrt() }
}

/// How far targets may move, in their standard deviations, without asking for another round.
fn targets_settled(hyperparameters: &Hyperparameters, targets: &Matrix) -> f64 {
    match hyperparameters.noise {
        NoiseModel::White => TARGETS_MOVED,
        NoiseModel::Correlated => {
            let (_, variance) = moments(targets);
            let noise = (hyperparameters.noise_variance / variance.max(f64::MIN_POSITIVE)).sqrt();
            TARGETS_MOVED.min(TARGETS_MOVED_NOISE * noise)
        }
    }
}
