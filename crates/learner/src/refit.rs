//! Model selection: a [`RefitJob`] in, a [`Candidate`] or a reason why not out; one pure function with a stop flag.

mod actions;
mod apart;
mod bends;
mod by_evidence;
mod by_heads;
mod by_returns;
mod climb;
pub mod elements;
mod error;
mod first_guess;
pub mod head_kernel;
mod job;
mod periods;
mod rebuild;
mod referee;
mod report;
mod rule;
mod screening;
mod search;
pub mod split;
mod trial;

pub use error::{DeadEnd, Lack, RefitError};
pub(crate) use first_guess::first_hyperparameters;
pub use first_guess::initial_hyperparameters;
pub use job::{Candidate, RefitJob, SecondKernel};
pub use referee::{CandidateReport, LambdaReport, SelectionReport};
pub use report::{
    AscentReport, Compared, DictionaryReport, HeldBound, ImprovementReport, RefitReport, RefitTrigger, SplitReport,
    TrialReport, VariableReport, Verdict,
};
pub use search::{EvidenceKind, StructureReport};

use crate::allowance::{self, Allowance};
use crate::diagnostics::Diagnostic;
use crate::hidden;
use crate::math::evidence::KeepGoing;
use crate::model::Model;
use crate::settings::{Settings, rows_of_its_own};
use crate::snapshot::{Inputs, Snapshot};
use crate::transition::Rows;
use crate::watch::Alarm;
use report::GAP_TOO_LARGE;
use screening::Dependence;

/// Fewer rows than this say nothing about five hyperparameters.
const ROWS_MIN: usize = 16;
/// Rows that are learned or evaluated between two looks at the stop flag.
const CATCH_UP_ROWS: usize = 512;
/// Share of the cap that batch selection may fill in a running learner: the rest is for what is new before the next refit.
pub(super) const DICTIONARY_SHARE: f64 = 0.9;
/// Share of a refit's budget that its search may use: the rest is for rebuilding dictionary and posterior.
pub const SEARCH_SHARE: f64 = 0.7;
/// Share of that budget that the choice of the kernels of a model of the transition may use, beside the search.
const WORLD_SHARE: f64 = 0.3;
/// Share of the rows since a change whose streams were there before: with fewer, other streams have come, and no world has changed.
const SAME_STREAMS: f64 = 0.5;
/// Changes that a selection follows, one after the other.
const CHANGES_MAX: u32 = 3;

/// What is selected for, and what its rows say before anything is selected.
#[derive(Clone, Copy)]
struct Prepared<'a> {
    job: &'a RefitJob,
    rows: &'a Rows,
    inputs: &'a Inputs,
    dependence: &'a Dependence,
    keep_going: KeepGoing<'a>,
    allowance: &'a Allowance,
}

/// Select a model on the window and rebuild everything under it. Where the world has changed among the rows, and those since
/// predict each other better without the ones before, a model is selected on them alone.
///
/// `keep_going` is the stop flag: once false, the answer is [`RefitError::Stopped`]. The search has [`SEARCH_SHARE`] of the budget of
/// the settings, a count of work: once it is used up, ascents end where they are and the best point so far is used. Called in a pool of
/// threads, it uses them, and gives the same bits with any number of them.
///
/// # Errors
/// Any reason for which the present model should stay.
pub fn run(job: &RefitJob, keep_going: KeepGoing<'_>) -> Result<Candidate, RefitError> {
    run_within(job, keep_going, &job.allowance())
}

/// As [`run`], with another budget for the search.
///
/// # Errors
/// As [`run`].
pub fn run_within(job: &RefitJob, keep_going: KeepGoing<'_>, allowance: &Allowance) -> Result<Candidate, RefitError> {
    let (job, said) = &job.with_periods(keep_going, allowance);
    look(keep_going)?;
    let mut candidate = run_centred(job, keep_going, allowance)?;
    candidate.report.findings.splice(0..0, said.iter().cloned());
    let newest = candidate.from.max(job.window.end().saturating_sub(hidden::ROWS_MAX as u64));
    candidate.report.hidden = hidden::sign(&candidate.model, &job.window.flatten_since(newest), job.seed);
    look(keep_going)?;
    candidate.learn_world(job, keep_going)?;
    Ok(candidate)
}

/// As [`run`], without a model of the transition.
fn run_centred(job: &RefitJob, keep_going: KeepGoing<'_>, allowance: &Allowance) -> Result<Candidate, RefitError> {
    if !job.settings.centred && job.settings.mean.is_none() {
        return run_about(job, keep_going, allowance);
    }
    let rows = job.all_rows();
    let (level, lacks_scale) = (job.settings.level_of(&rows), job.settings.lacks_scale(&rows));
    drop(rows);
    let mut candidate = run_about(&job.about(&level), keep_going, allowance)?;
    candidate.model.set_level(level, &job.settings, job.window.rewards_per_row());
    if lacks_scale {
        candidate.model.lack_scale();
    }
    Ok(candidate)
}

/// As [`run`], with values learned as they are.
fn run_about(job: &RefitJob, keep_going: KeepGoing<'_>, allowance: &Allowance) -> Result<Candidate, RefitError> {
    if let Some(of) = job.settings.action_value.as_ref().filter(|of| of.leaves_chain()) {
        return actions::run(job, of, keep_going, allowance);
    }
    // The errors of a stopgap have not been watched, so that these rows are seen for the first time.
    let unseen = job.current.generation <= 1;
    select_since_changes(job, unseen, CHANGES_MAX, keep_going, allowance)
}

/// As [`run`], following at most `most` changes; changes among rows that are `unseen` are looked for in passing as well.
fn select_since_changes(
    job: &RefitJob,
    unseen: bool,
    most: u32,
    keep_going: KeepGoing<'_>,
    allowance: &Allowance,
) -> Result<Candidate, RefitError> {
    let mut candidate = select(job, keep_going, allowance)?;
    let mut change = candidate.model.last_change(job.window.end());
    if let Some(alarm) = &mut change {
        (alarm.offset, alarm.finding.since) = (job.offset_of(alarm.offset), job.offset_of(alarm.finding.since));
    }
    if change.is_none() && unseen && most > 0 {
        let (rows, elements) = (job.window.len(), candidate.model.dictionary().len());
        allowance.spend(allowance::pass(rows, elements, job.window.dim(), &Settings::default()));
        change = change_in_passing(job, &candidate.model, keep_going)?;
    }
    let Some(alarm) = change.filter(|_| most > 0) else { return Ok(candidate) };
    if let Some(ignored) = stays_with_all(job, &candidate.model, alarm.finding.since, keep_going, allowance)? {
        candidate.report.findings.push(ignored);
        return Ok(candidate);
    }
    // What all rows have chosen is there to be compared with, and to be taken where the budget does not suffice for more.
    let current = Snapshot { generation: job.current.generation.max(2), ..candidate.model.value_snapshot(false)? };
    let second = SecondKernel::of(&candidate.model);
    let since = RefitJob { from: alarm.finding.since, current, second, ..job.asked_of(job.window.clone()) };
    match select_since_changes(&since, unseen, most - 1, keep_going, allowance) {
        Ok(found) => {
            let alarm = found.alarm.unwrap_or(alarm);
            Ok(Candidate { alarm: Some(alarm), ..found })
        }
        Err(RefitError::Stopped) => Err(RefitError::Stopped),
        Err(_) => Ok(candidate),
    }
}

/// The first change that shows in the errors of rows before they are learned, if enough rows have come since for a model of
/// their own. A model of two worlds may err alike in both.
fn change_in_passing(job: &RefitJob, model: &Model, keep_going: KeepGoing<'_>) -> Result<Option<Alarm>, RefitError> {
    let mut passing = model.emptied().without_heads();
    passing.start_watch();
    if passing.watch().is_none() {
        return Ok(None);
    }
    let enough = rows_of_its_own(model.dictionary().len());
    for (rows, range, offset) in job.window.since(job.first()) {
        let rows = &*job.seen(rows);
        for start in range.clone().step_by(CATCH_UP_ROWS) {
            if !keep_going() {
                return Err(RefitError::Stopped);
            }
            let part = start..range.end.min(start + CATCH_UP_ROWS);
            passing.learn(rows, part, offset + (start - range.start) as u64);
            if let Some(alarm) = passing.take_alarms().into_iter().find(Alarm::is_general) {
                return Ok(Some(alarm).filter(|alarm| alarm.finding.since + enough <= job.window.end()));
            }
        }
    }
    Ok(None)
}

/// Why the rows before offset `since` still count, although the errors have changed there; none if they do not.
fn stays_with_all(
    job: &RefitJob,
    model: &Model,
    since: u64,
    keep_going: KeepGoing<'_>,
    allowance: &Allowance,
) -> Result<Option<Diagnostic>, RefitError> {
    let rows = job.rows();
    let from = job.window.count(job.first()..since) as usize;
    let (before, after) = rows.streams.split_at(from);
    let known: std::collections::HashSet<u32> = before.iter().copied().collect();
    let same = after.iter().filter(|stream| known.contains(stream)).count();
    if (same as f64) < SAME_STREAMS * after.len() as f64 {
        return Ok(Some(Diagnostic::ChangeIgnored { since, other_streams: true }));
    }
    let change = referee::Change {
        settings: &job.settings,
        rows: &rows,
        from,
        inputs: model.inputs(),
        hyperparameters: &model.hyperparameters(),
        lambda: model.lambda(),
        room: job.room(),
        seed: job.seed,
    };
    let alone = change.stands_alone(keep_going, allowance).ok_or(RefitError::Stopped)?;
    Ok((!alone).then_some(Diagnostic::ChangeIgnored { since, other_streams: false }))
}

/// Select a model on the rows of the job, whatever may have changed among them.
fn select(job: &RefitJob, keep_going: KeepGoing<'_>, allowance: &Allowance) -> Result<Candidate, RefitError> {
    let settings = &job.settings;
    let rows = job.rows();
    check(&rows, settings)?;
    look(keep_going)?;
    let inputs = first_guess::normalisation(&rows, settings, job.names.clone());
    look(keep_going)?;
    let dependence = Dependence::new(&rows, &inputs, &settings.kinds(rows.dim));
    look(keep_going)?;
    let prepared = Prepared { job, rows: &rows, inputs: &inputs, dependence: &dependence, keep_going, allowance };
    if settings.learns_heads() {
        match by_heads::select(prepared) {
            // Then rewards choose alone.
            Err(RefitError::NotEnough(Lack::DifferentHeads)) => {}
            found => return found,
        }
    }
    if settings.selects_by_returns() { by_returns::select(prepared) } else { by_evidence::select(prepared) }
}

/// Whether the rows say enough, and the settings are for such rows.
fn check(rows: &Rows, settings: &Settings) -> Result<(), RefitError> {
    if rows.len() < ROWS_MIN {
        return Err(RefitError::NotEnough(Lack::Rows { rows: rows.len(), least: ROWS_MIN }));
    }
    if (1..rows.len()).all(|i| rows.state(i) == rows.state(0)) {
        return Err(RefitError::NotEnough(Lack::States));
    }
    let positive = rows.ratios.iter().filter(|&&ratio| ratio > 0.0).count();
    if positive < ROWS_MIN {
        return Err(RefitError::NotEnough(Lack::PositiveRatios { positive, rows: rows.len(), least: ROWS_MIN }));
    }
    settings.check_dim(rows.dim).map_err(RefitError::Settings)
}

/// Whether the stop flag is down.
fn look(keep_going: KeepGoing<'_>) -> Result<(), RefitError> {
    if keep_going() { Ok(()) } else { Err(RefitError::Stopped) }
}
