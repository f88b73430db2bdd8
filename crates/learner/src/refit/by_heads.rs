//! Selection where a critic has heads: heads and rewards choose one kernel together, then the critic's returns choose lambda and ridge.

use super::Prepared;
use super::error::RefitError;
use super::first_guess::{initial_hyperparameters, rescaled};
use super::head_kernel::{Chosen, HeadSelection, HeadsAsked, at_unit_scale, median};
use super::job::Candidate;
use super::rebuild::{look_again, plausible, rebuild, rebuild_for, report_of_rebuilt};
use super::referee::{self, Choice, Question, SelectionReport};
use super::report::{HeldBound, RefitReport, SplitReport, rebuilt_diagnostics};
use super::rule::RefitRule;
use super::search::EvidenceKind;
use super::split::{self, Attempt, Beside, Split};
use crate::allowance;
use crate::batch::Given;
use crate::heads::Head;
use crate::math::evidence::{Best, profiled_bests};
use crate::math::kernel::{Hyperparameters, Kernel};
use crate::model::Model;
use crate::settings::Settings;

/// Lambda and ridge of the critic under the kernel of the heads.
struct Own {
    lambda: f64,
    /// sigma0^2 / v0.
    ridge: f64,
    /// The kernel that was given, or the same beside linear columns.
    kernel: Kernel,
    /// How held-out returns chose them, if they did.
    selection: Option<SelectionReport>,
}

/// The kernels that heads have chosen.
struct Kernels {
    /// Of the values, with the signal variance 1.
    found: Hyperparameters,
    structure: String,
    /// The critic's settings, with the heads that share this kernel.
    settings: Settings,
    /// Heads that have a kernel of their own, if there are any.
    apart: Option<Apart>,
    /// Median ratio of noise to scale of the heads that share the kernel, where that is known of more heads than chose it.
    ratio: Option<f64>,
    split: Option<SplitReport>,
    /// Evidence of the kernels in force and of those found, where two are in force and the settings allow them.
    beside: Option<Beside>,
}

/// Heads that have a kernel of their own.
struct Apart {
    settings: Settings,
    /// With the signal variance 1; the noise is the median head's.
    hyperparameters: Hyperparameters,
}

/// Select a kernel by the sum of the evidences of heads and rewards, each at its best noise and scale (docs/mathematics.md (H9)), and
/// rebuild under it. Rewards whose returns do not vary have no say. Heads that are worth a kernel of their own (H14) get that, in a
/// branch of the model (H17).
///
/// # Errors
/// [`super::Lack::DifferentHeads`] where no head varies, so that only the rewards can choose.
pub(super) fn select(prepared: Prepared<'_>) -> Result<Candidate, RefitError> {
    let Prepared { job, rows, inputs, dependence, keep_going, allowance } = prepared;
    let settings = &job.settings;
    let mut rule = RefitRule::of(settings, allowance);
    let present = &at_unit_scale(&rescaled(&job.current.hyperparameters, &job.current.inputs, inputs));
    let left_out = &dependence.left_out();
    let also = &second_in_force(prepared).into_iter().collect::<Vec<_>>();
    let asked = HeadsAsked { settings, rows, inputs, present, also, left_out, rewards_suffice: false, seed: job.seed };
    let chosen = asked.choose(keep_going, allowance)?;
    let Kernel { signal_variance: unit, .. } = chosen.found.hyperparameters().kernel;
    allowance.spend(allowance::exact(&chosen.search.problem, false));
    let shared = profiled_bests(&chosen.search.problem, &chosen.found.hyperparameters().kernel, keep_going)?;
    let in_force = also.first().map(|second| [present.clone(), second.clone()]);
    // A report says that a period was found: kernels that take the variable for something else do not stay.
    let in_force = in_force.filter(|both| both.iter().all(|of| job.is_of_kinds(&of.kernel)));
    let kernels = kernels(prepared, (&chosen, &shared), in_force)?;
    let found = kernels.found.clone();
    let ratios: Vec<f64> = if kernels.apart.is_some() {
        let bests = profiled_bests(&chosen.search.problem, &found.kernel, keep_going)?;
        bests.iter().map(|best| best.ratio).collect()
    } else {
        shared.iter().map(|best| best.ratio / unit).collect()
    };
    let own = own(prepared, &chosen, &found.kernel, &ratios)?;
    let out_of_time = allowance.has_ended();
    let (lambda, first) = (own.lambda, job.numbered_from());
    // The dictionary is fine enough for half of the heads, and for the critic.
    let noise = own.ridge.min(kernels.ratio.unwrap_or_else(|| median(ratios)));
    let hyperparameters = &Hyperparameters { noise_variance: own.ridge, kernel: own.kernel, ..found };
    let given = Given { settings: &kernels.settings, rows, inputs, hyperparameters, lambda, first };
    let mut model = rebuild_for(job, &given, noise, &mut rule, keep_going)?;
    if chosen.rewards == 0 {
        // Nothing tells the scale of the values: take the first model's.
        model.set_signal(initial_hyperparameters(rows, settings, None).1.kernel.signal_variance);
    } else if own.selection.is_some() {
        model.match_scale()?;
    } else {
        model.tune_scale()?;
    }
    plausible(&model.value_snapshot(false)?, rows, settings)?;
    look_again(&mut model, rows, first, keep_going);
    if let Some(Apart { settings, hyperparameters }) = &kernels.apart {
        let given = Given { settings, rows, inputs, hyperparameters, lambda: 1.0, first };
        model.set_branch(rebuild(job, &given, keep_going, allowance)?);
    }
    let evidence_before = match kernels.beside {
        Some(Beside { before, .. }) => Some(before),
        None => chosen.search.value(EvidenceKind::Exact, present, keep_going, allowance).ok().map(|e| e.value),
    };
    let report = report(prepared, &model, (chosen, kernels))?;
    let (selection, dictionary) = (own.selection, rule.report());
    let mut report = RefitReport { evidence_before, out_of_time, selection, dictionary, ..report };
    report.findings = rebuilt_diagnostics(&report, &model.hyperparameters(), inputs, dependence, job.room());
    if !keep_going() {
        return Err(RefitError::Stopped);
    }
    Ok(job.candidate(model, report))
}

/// The second kernel of the present model, at unit scale, if a head that is still wanted has it.
fn second_in_force(Prepared { job, inputs, .. }: Prepared<'_>) -> Option<Hyperparameters> {
    let second = job.second.as_ref().filter(|second| job.settings.heads.iter().any(|head| second.is_of(head)))?;
    Some(at_unit_scale(&rescaled(&second.hyperparameters, &job.current.inputs, inputs)))
}

/// The kernel that all heads share, each at its best there, or two where that pays and the settings allow it. Without a budget to find out
/// it remains as it is: with two kernels `in_force` these may stay, else all heads share one.
fn kernels(
    prepared: Prepared<'_>,
    (chosen, bests): (&Chosen, &[Best]),
    in_force: Option<[Hyperparameters; 2]>,
) -> Result<Kernels, RefitError> {
    let Prepared { job, rows, inputs, dependence, keep_going, allowance } = prepared;
    let one = Kernels {
        found: at_unit_scale(&chosen.found.hyperparameters()),
        structure: chosen.found.structure.name.clone(),
        settings: job.settings.clone(),
        apart: None,
        ratio: None,
        split: None,
        beside: None,
    };
    if !job.settings.heads_split || in_force.is_none() && !allowance.left() {
        return Ok(one);
    }
    let shared = HeadSelection::of(&chosen.found, &chosen.search, inputs, chosen.heads, bests);
    let settings = Settings { seed: job.seed, ..job.settings.clone() };
    let left_out = dependence.left_out();
    let asked = split::SplitAsked::new(&settings, rows, &shared, &left_out).beside(in_force);
    let (attempt, beside) = asked.attempt(keep_going, allowance)?;
    let Split { kernels: [first, second], second: numbers, ratios, gain } = match attempt {
        Attempt::Together(gain) => return Ok(Kernels { split: Some(SplitReport { gain, heads: 0 }), beside, ..one }),
        Attempt::Split(split) => *split,
    };
    let heads = |apart: bool| -> Vec<Head> {
        let heads = job.settings.heads.iter().enumerate();
        heads.filter(|(h, _)| numbers.binary_search(h).is_ok() == apart).map(|(_, head)| head.clone()).collect()
    };
    let noise_variance = ratios[1];
    Ok(Kernels {
        found: at_unit_scale(&first.hyperparameters),
        structure: first.structure,
        settings: Settings { heads: heads(false), ..job.settings.clone() },
        apart: Some(Apart {
            settings: job.settings.of_heads_alone(heads(true)),
            hyperparameters: Hyperparameters { noise_variance, ..at_unit_scale(&second.hyperparameters) },
        }),
        ratio: Some(ratios[0]),
        split: Some(SplitReport { gain, heads: numbers.len() }),
        beside,
    })
}

/// What the settings leave to the critic's own returns, `ratios` being noise to scale of the heads that chose.
fn own(prepared: Prepared<'_>, chosen: &Chosen, kernel: &Kernel, ratios: &[f64]) -> Result<Own, RefitError> {
    let Prepared { job, rows, inputs, dependence, keep_going, allowance } = prepared;
    let settings = &job.settings;
    // A kernel in force may have columns from before: the returns choose them anew, and without such a choice there are none.
    let kernel = &Kernel { bias_variance: kernel.constant_variance(), columns: Vec::new(), ..kernel.clone() };
    let of_rewards = if chosen.rewards == 0 { ratios } else { &ratios[..chosen.rewards] };
    if chosen.rewards == 0 || !settings.selects_by_returns() {
        let (lambda, ridge) = (settings.first_lambda(), median(of_rewards.to_vec()));
        return Ok(Own { lambda, ridge, kernel: kernel.clone(), selection: None });
    }
    let question = Question {
        settings,
        rows,
        inputs,
        kinds: &settings.kinds(rows.dim),
        bent: None,
        left_out: &dependence.left_out(),
        present: None,
        kernel: Some(&kernel.metric),
        lambda: settings.lambda.fixed(),
        room: job.room(),
        seed: job.seed,
    };
    let choice = referee::choose(&question, &mut |_, _, _, _| {}, keep_going, allowance)?;
    let Choice {
        hyperparameters: Hyperparameters { kernel: with_columns, noise_variance: ridge, .. },
        lambda,
        report,
        ..
    } = choice;
    // The ridge is for values beside the columns, where these were chosen.
    let kernel = if with_columns.columns() > 0 { with_columns } else { kernel.clone() };
    Ok(Own { lambda, ridge, kernel, selection: Some(report) })
}

/// What is to be said of the search and of the rebuilt model.
fn report(
    prepared: Prepared<'_>,
    model: &Model,
    (chosen, kernels): (Chosen, Kernels),
) -> Result<RefitReport, RefitError> {
    let Prepared { job, rows, inputs, dependence, keep_going, allowance } = prepared;
    let Chosen { search, found, heads, structures, ascents, .. } = chosen;
    let alike = |d: usize| dependence.duplicates_of(d);
    let support = || search.support(EvidenceKind::Exact, &found.hyperparameters(), &alike, keep_going, allowance);
    // The evidence is of all heads, and says nothing of a kernel for some of them.
    let support = if kernels.apart.is_none() { support() } else { None };
    Ok(RefitReport {
        evidence_rows: search.rows(EvidenceKind::Exact),
        structure: kernels.structure,
        split: kernels.split,
        evidence_after: Some(kernels.beside.map_or(found.ascent.log_evidence, |of| of.after)),
        evaluations: ascents.iter().map(|a| a.ascent.evaluations).sum(),
        structures,
        active_bounds: HeldBound::of(&found, inputs.dim()),
        ascents,
        heads: Some(heads),
        ..report_of_rebuilt(job, rows, model, &model.hyperparameters(), dependence, support)?
    })
}
