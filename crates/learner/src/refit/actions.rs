//! Refits of action values that follow another policy than the one that acted.
//!
//! The returns of the acting policies select the kernel: the values of two policies vary over the same lengths, and other policies
//! have no returns. A learner that improves has acted by many policies, whose returns contradict each other unless episodes
//! terminate. Where none does, the evidence of a sweep's targets selects its kernel. The refit then learns the wanted policy's value
//! under that kernel. For improvement the sweeps come in between, and the adopted model follows the actions that they prefer
//! (docs/mathematics.md (A4)).

use super::apart::{is_table, tell_apart};
use super::error::RefitError;
use super::first_guess::initial_hyperparameters;
use super::job::{Candidate, RefitJob};
use super::rebuild::{look_again, rebuild, report_of_rebuilt};
use super::report::{ImprovementReport, RefitReport, RefitTrigger};
use super::screening::Dependence;
use super::{GAP_TOO_LARGE, check, look, select_since_changes};
use crate::action::{ActionValue, Successor};
use crate::allowance::Allowance;
use crate::batch::{BatchError, Given};
use crate::diagnostics::Diagnostic;
use crate::improve::{Acting, COPIES, Improved, Improvement, regression, sample};
use crate::math::evidence::KeepGoing;
use crate::math::kernel::Hyperparameters;
use crate::model::Model;
use crate::settings::{Lambda, SelectionKind, Settings};
use crate::snapshot::{Evaluator, Inputs};
use crate::transition::Rows;
use crate::watch::DriftSensitivity;
use crate::window::Window;

/// Rows that improvement sweeps over, and those that select its kernel.
const IMPROVED_ROWS: usize = 6000;
const SELECTION_ROWS: usize = 2000;
/// Least noise of a kernel for improvement, in parts of its signal variance: the error of the dictionary adds to the noise of
/// deterministic rewards.
const NOISE_MIN: f64 = 1e-3;

/// A kernel, and the report of the search that found it.
struct ChosenKernel {
    inputs: Inputs,
    hyperparameters: Hyperparameters,
    report: Option<RefitReport>,
}

/// Select for the policy that acted, unless the job is an improvement alone; then learn the wanted policy's value.
pub(super) fn run(
    job: &RefitJob,
    of: &ActionValue,
    keep_going: KeepGoing<'_>,
    allowance: &Allowance,
) -> Result<Candidate, RefitError> {
    let (window, mut rows) = (job.rows(), job.endings.clone());
    check(&window, &job.settings)?;
    let improves = of.successor == Successor::Improve;
    // Rows kept from earlier have lost their neighbours: each is a chain of its own.
    let endings = rows.len();
    if rows.is_empty() {
        rows = window;
    } else {
        rows.extend(&window, 0..window.len());
    }
    let some = |max: usize| (improves && rows.len() > max).then(|| sample(&rows, endings, max, job.settings.seed));
    let chosen = if job.trigger == RefitTrigger::Improvement {
        let current = &job.current;
        ChosenKernel { inputs: current.inputs.clone(), hyperparameters: current.hyperparameters.clone(), report: None }
    } else {
        let by_returns = !improves || rows.terminated.contains(&true);
        let targets = || some(SELECTION_ROWS).unwrap_or_else(|| rows.clone());
        if improves && is_table(&job.settings, rows.dim) {
            of_table(job, of, (&targets(), &rows), keep_going, allowance)?
        } else {
            let regressed = if by_returns { None } else { Some(targets()) };
            select(job, of, regressed.as_ref(), &rows, keep_going, allowance)?
        }
    };
    let rows = some(IMPROVED_ROWS).unwrap_or(rows);
    look(keep_going)?;
    let settings = Settings { estimate_scale: false, ..job.settings.clone() };
    let lambda = settings.first_lambda();
    let given = Given {
        settings: &settings,
        rows: &rows,
        inputs: &chosen.inputs,
        hyperparameters: &chosen.hyperparameters,
        lambda,
        first: job.numbered_from(),
    };
    let mut model = rebuild(job, &given, keep_going, allowance)?;
    if of.successor != Successor::Improve {
        look_again(&mut model, &rows, given.first, keep_going);
        let report = report(job, &rows, &model, chosen)?;
        return finished(job, model, report, None, keep_going);
    }
    let improved = improve(job, of, &rows, &model, keep_going)?;
    let given = Given { rows: &improved.rows, first: 0, ..given };
    let mut dictionary = model.dictionary().clone();
    dictionary.close();
    let mut model = given.model(dictionary, keep_going).map_err(stopped)?;
    look_again(&mut model, &improved.rows, given.first, keep_going);
    let mut report = report(job, &rows, &model, chosen)?;
    report.improvement = Some(ImprovementReport {
        sweeps: improved.sweeps,
        settled: improved.settled(),
        change: improved.change,
        clipped: improved.clipped,
    });
    finished(job, model, report, Some(improved.acting), keep_going)
}

fn stopped(_: BatchError) -> RefitError {
    RefitError::Stopped
}

fn finished(
    job: &RefitJob,
    model: Model,
    report: RefitReport,
    acting: Option<Acting>,
    keep_going: KeepGoing<'_>,
) -> Result<Candidate, RefitError> {
    look(keep_going)?;
    let swept_through = acting.is_some().then(|| job.window.end());
    Ok(Candidate { acting, swept_through, ..job.candidate(model, report) })
}

/// The kernel that `rows` select by their returns, or, if `regressed`, by the targets of a sweep.
fn select(
    job: &RefitJob,
    of: &ActionValue,
    regressed: Option<&Rows>,
    rows: &Rows,
    keep_going: KeepGoing<'_>,
    allowance: &Allowance,
) -> Result<ChosenKernel, RefitError> {
    let (rows, settings) = match regressed {
        Some(rows) => next_targets(job, of, rows),
        // The value of another policy has a lambda of its own.
        None => (of.acted(rows), Settings { lambda: Lambda::Auto, ..on_policy(job, of) }),
    };
    let asked = RefitJob { settings, from: 0, about: None, ..job.asked_of(Window::of(&rows)) };
    let Candidate { model, mut report, .. } = select_since_changes(&asked, false, 0, keep_going, allowance)?;
    report.trigger = job.trigger;
    let mut hyperparameters = model.hyperparameters();
    job.settings.leave_constant_to_prior_mean(&mut hyperparameters.kernel);
    if of.successor == Successor::Improve {
        keep_noise(&mut hyperparameters);
        tell_apart(&mut hyperparameters.kernel, &job.settings, rows.dim);
    }
    Ok(ChosenKernel { inputs: model.inputs().clone(), hyperparameters, report: Some(report) })
}

/// Let the noise be at least [`NOISE_MIN`].
fn keep_noise(hyperparameters: &mut Hyperparameters) {
    let least = NOISE_MIN * hyperparameters.kernel.signal_variance;
    hyperparameters.noise_variance = hyperparameters.noise_variance.max(least);
}

/// The settings of the job for the policy that acted.
fn on_policy(job: &RefitJob, of: &ActionValue) -> Settings {
    let action_value = Some(of.on_policy());
    Settings { action_value, drift_sensitivity: DriftSensitivity::Off, ..job.settings.clone() }
}

/// The regression that the next sweep would be, and settings for it.
fn next_targets(job: &RefitJob, of: &ActionValue, rows: &Rows) -> (Rows, Settings) {
    let before = Evaluator::new(job.current.clone());
    let rows = regression(rows, &job.settings, &of.space, &before);
    let (lambda, selection) = (Lambda::Fixed(1.0), SelectionKind::Evidence);
    (rows, Settings { discount: 0.0, lambda, selection, ..on_policy(job, of) })
}

/// The kernel of a table, whose cells have nothing in common: evidence chooses signal and noise alone, by the targets of a sweep over
/// `regressed`, some of `rows`.
fn of_table(
    job: &RefitJob,
    of: &ActionValue,
    (regressed, rows): (&Rows, &Rows),
    keep_going: KeepGoing<'_>,
    allowance: &Allowance,
) -> Result<ChosenKernel, RefitError> {
    let (inputs, guess) = initial_hyperparameters(&of.acted(rows), &job.settings, job.names.clone());
    let (rows, settings) = next_targets(job, of, regressed);
    let settings = &Settings { estimate_scale: true, ..settings };
    let given = Given { settings, rows: &rows, inputs: &inputs, hyperparameters: &guess, lambda: 1.0, first: 0 };
    let mut hyperparameters = rebuild(job, &given, keep_going, allowance)?.hyperparameters();
    keep_noise(&mut hyperparameters);
    Ok(ChosenKernel { inputs, hyperparameters, report: None })
}

/// Sweeps over the rows, from the maxima of the present Q.
fn improve(
    job: &RefitJob,
    of: &ActionValue,
    rows: &Rows,
    model: &Model,
    keep_going: KeepGoing<'_>,
) -> Result<Improved, RefitError> {
    let before = Evaluator::new(job.current.clone());
    let space = &of.space;
    // Not the job's: a copy is the same draw in all improvements.
    let seed = job.settings.seed;
    let improvement = Improvement { model, rows, space, before: Some(&before), copies: COPIES, seed };
    improvement.run(keep_going).map_err(|e| match e {
        BatchError::Solve(e) => RefitError::Solve(e),
        _ => RefitError::Stopped,
    })
}

/// The report of the model and of the search for its kernel.
fn report(job: &RefitJob, rows: &Rows, model: &Model, chosen: ChosenKernel) -> Result<RefitReport, RefitError> {
    let inputs = model.inputs();
    let dependence = Dependence::new(rows, inputs, &job.settings.kinds(rows.dim));
    let rebuilt = report_of_rebuilt(job, rows, model, &chosen.hyperparameters, &dependence, None)?;
    let mut report = match chosen.report {
        None => rebuilt,
        Some(found) => RefitReport {
            rows: rebuilt.rows,
            dictionary_size: rebuilt.dictionary_size,
            trace_gap: rebuilt.trace_gap,
            tolerance: rebuilt.tolerance,
            ..found
        },
    };
    let (nats, elements) = (report.trace_gap, report.dictionary_size);
    let is_gap = |finding: &Diagnostic| matches!(finding, Diagnostic::TraceGap { .. });
    report.findings.retain(|finding| !is_gap(finding));
    if nats > GAP_TOO_LARGE {
        let full = elements * 10 >= job.room() * 9;
        report.findings.push(Diagnostic::TraceGap { elements, nats, full });
    }
    Ok(report)
}
