//! Whether a new model is better than the present one, on rows that neither was chosen by.
//!
//! The last rows of a refit are left out of its choice of kernel, lambda and ridge. Both models have learned these rows by the time
//! they are compared, so that their sums are taken out of both again. Targets are lambda-returns of the mean of the two, so that what
//! they get wrong is wrong for both. This is docs/mathematics.md (R9).

use super::error::RefitError;
use super::job::RefitJob;
use super::look;
use super::report::TrialReport;
use crate::contest::Foretold;
use crate::math::evidence::KeepGoing;
use crate::math::parts::sum_with_error;
use crate::math::returns::chains;
use crate::model::Model;
use crate::settings::Settings;
use crate::transition::Rows;
use std::ops::Range;

/// One over the share of the rows that are left out of the choice.
const SHARE: usize = 4;
/// Most rows of a trial.
const ROWS_MAX: usize = 20_000;
/// Fewer rows tell nothing.
const ROWS_MIN: usize = 32;
/// Lambdas of the targets: short ones follow the errors of the two models, long ones are noisy.
const LAMBDAS: [f64; 3] = [0.8, 0.95, 1.0];
/// Parts of the trial's rows, one after the other, over which its standard error is taken, at most and at least.
const PARTS_MAX: usize = 40;
const PARTS_MIN: usize = 8;
/// Rows of a part, unless that leaves too few parts.
const PART_ROWS: usize = 50;

/// Number of the rows, out of `rows`, that may choose: those behind them are left to a trial, if there is to be one.
pub(super) fn choosing(job: &RefitJob, rows: usize) -> usize {
    let tried = (rows / SHARE).min(ROWS_MAX);
    if job.present.is_some() && tried >= ROWS_MIN { rows - tried } else { rows }
}

/// Compare `new` with the present model of the job on the last of `rows`, which are all rows of the job. None where there is no
/// present model to compare with, where it has not learned all of them, and where there are too few.
///
/// # Errors
/// Stopped.
pub(super) fn held(
    job: &RefitJob,
    new: &Model,
    rows: &Rows,
    keep_going: KeepGoing<'_>,
) -> Result<Option<TrialReport>, RefitError> {
    let Some(present) = &job.present else { return Ok(None) };
    let tried = choosing(job, rows.len())..rows.len();
    if tried.is_empty() {
        return Ok(None);
    }
    let offset = job.offset_of(job.numbered_from() + tried.start as u64);
    let of = |model: &Model| model.foretell_held_out(rows, tried.clone(), offset, keep_going);
    let both = of(present).and_then(|before| Some((before, of(new)?)));
    look(keep_going)?;
    let compared = both.and_then(|(before, after)| compare(&job.settings, rows, &tried, &before, &after));
    Ok(compared.map(|(gain, standard_error)| TrialReport { rows: tried.len(), gain, standard_error }))
}

/// How much less `after` errs than `before` on rows `tried`, against the lambda-returns of their mean, and the standard error of that.
fn compare(
    settings: &Settings,
    rows: &Rows,
    tried: &Range<usize>,
    before: &Foretold,
    after: &Foretold,
) -> Option<(f64, f64)> {
    let (count, columns) = (tried.len(), settings.rewards.len());
    let parts = (count / PART_ROWS).clamp(PARTS_MIN, PARTS_MAX);
    let weight: Vec<f64> = tried.clone().map(|i| rows.ratio(i, settings.ratio_max())).collect();
    let total = weight.iter().sum::<f64>();
    let (successor, mut gains) = (chains(rows), vec![0.0; parts]);
    for h in 0..columns {
        for lambda in LAMBDAS {
            let targets = targets(settings, rows, (tried, &successor), (lambda, h), before, after);
            let scale = variance(&targets, &weight) * total * (columns * LAMBDAS.len()) as f64;
            for (k, y) in targets.iter().enumerate() {
                let error = |of: &Foretold| (of.values[k * columns + h][0] - y).powi(2);
                gains[k * parts / count] += weight[k] * (error(before) - error(after)) / scale;
            }
        }
    }
    let (gain, standard_error) = sum_with_error(&gains);
    (gain.is_finite() && standard_error.is_finite()).then_some((gain, standard_error))
}

/// Lambda-returns of reward `h` for rows `tried`, of the mean of what two models state. Ratios shorten them where they are below 1.
/// `successor` is what [`chains`] gave.
fn targets(
    settings: &Settings,
    rows: &Rows,
    (tried, successor): (&Range<usize>, &[Option<usize>]),
    (lambda, h): (f64, usize),
    before: &Foretold,
    after: &Foretold,
) -> Vec<f64> {
    let columns = settings.rewards.len();
    let mean = |k: usize, next: usize| {
        let at = k * columns + h;
        0.5 * (before.values[at][next] + after.values[at][next])
    };
    let mut y = vec![0.0; tried.len()];
    for k in (0..tried.len()).rev() {
        let i = tried.start + k;
        let discount = rows.follows(i, settings.discount);
        // What follows a row of the trial is one of the trial, since those are the last.
        let follows = successor[i].map_or(0.0, |j| {
            let next = j - tried.start;
            lambda * rows.ratio(j, settings.ratio_max()).min(1.0) * (y[next] - mean(next, 0))
        });
        y[k] = rows.reward(i)[settings.rewards[h]] + discount * (mean(k, 1) + follows);
    }
    y
}

/// Variance of targets, as weighted; positive.
fn variance(targets: &[f64], weight: &[f64]) -> f64 {
    let total = weight.iter().sum::<f64>().max(f64::MIN_POSITIVE);
    let mean = targets.iter().zip(weight).map(|(y, w)| w * y).sum::<f64>() / total;
    let variance = targets.iter().zip(weight).map(|(y, w)| w * (y - mean).powi(2)).sum::<f64>() / total;
    variance.max(1e-20 * mean * mean).max(f64::MIN_POSITIVE)
}
