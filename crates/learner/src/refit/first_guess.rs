//! Normalisation of states, and hyperparameters before anything has been selected.

use super::apart::tell_apart;
use super::screening::scale_of;
use crate::level::about_level;
use crate::math::dense::Matrix;
use crate::math::embedding::StateKind;
use crate::math::kernel::{Hyperparameters, Kernel, Metric};
use crate::math::returns::{Returns, regression_weights};
use crate::mean::Mean;
use crate::settings::{KernelKind, Settings};
use crate::snapshot::Inputs;
use crate::transition::Rows;

/// Least variance of values relative to the square of their mean.
const FLOOR: f64 = 1e-6;
/// Relevance of each discrete action before the first selection: two of them correlate by 0.9.
const CHOICE_RELEVANCE: f64 = 0.1;

/// [`initial_hyperparameters`] of values about the mean of the settings, or `level` (H,), none for 0.
pub(crate) fn first_hyperparameters(
    rows: &Rows,
    settings: &Settings,
    level: &[f64],
    names: Option<Vec<String>>,
) -> (Inputs, Hyperparameters) {
    let Some((about, rows)) = about_level(settings, rows, level) else {
        return initial_hyperparameters(rows, settings, names);
    };
    let (inputs, mut found) = initial_hyperparameters(&rows, &about, names);
    if about.earns_nothing(&rows) {
        // Rewards that are all the same tell how large they are.
        let of_mean = |mean: &Mean| mean.values(&rows.states, rows.dim);
        let sizes = settings.mean.as_ref().map_or_else(|| level.to_vec(), of_mean);
        let least = FLOOR * sizes.iter().map(|mu| mu * mu).sum::<f64>() / sizes.len() as f64;
        // A level is not 0, and a mean may be.
        let least = if settings.mean.is_some() { least.max(1e-12) } else { least };
        let by = least / found.kernel.signal_variance;
        (found.kernel, found.noise_variance) = (found.kernel.scaled(by), found.noise_variance * by);
    }
    (inputs, found)
}

/// A data-driven model for the time before the first refit: scales from the rows, relevances of one lengthscale per
/// square root of D.
pub fn initial_hyperparameters(
    rows: &Rows,
    settings: &Settings,
    names: Option<Vec<String>>,
) -> (Inputs, Hyperparameters) {
    let kinds = settings.kinds(rows.dim);
    let inputs = normalisation(rows, settings, names);
    let returns = Returns::new(rows, &settings.rewards, settings.discount);
    let rewards = settings.rewards.len();
    // Cut chains are closed by what an average row collects: a first pass to learn it, a second to use it.
    let open = returns.targets(&Matrix::zeros(returns.cuts.len(), rewards));
    let mut closed = Matrix::zeros(returns.cuts.len(), rewards);
    for h in 0..rewards {
        let mean = open.col(h).iter().sum::<f64>() / rows.len().max(1) as f64;
        closed.col_mut(h).fill(mean);
    }
    let weights = regression_weights(rows, settings.weighted);
    let (square_of_mean, variance) = weighted_moments(&returns.targets(&closed), weights);
    let floor = (FLOOR * square_of_mean).max(1e-12);
    let variance = if settings.lacks_scale(rows) { 1.0 } else { variance.max(floor) };
    let dim = inputs.dim();
    let metric = match settings.kernel {
        KernelKind::Isotropic => Metric::Isotropic(1.0 / dim as f64),
        _ => {
            let mut relevance = vec![1.0 / dim as f64; dim];
            // What one action earns says much about another, until the rows say otherwise.
            relevance[dim - settings.choices()..].fill(CHOICE_RELEVANCE);
            Metric::Ard(relevance)
        }
    };
    let mut kernel =
        Kernel::gaussian(variance, square_of_mean + variance, metric).with_profile(settings.profile).with_kinds(&kinds);
    settings.leave_constant_to_prior_mean(&mut kernel);
    tell_apart(&mut kernel, settings, dim);
    (inputs, Hyperparameters { kernel, noise: settings.noise, noise_variance: 0.1 * variance })
}

/// Shift and scale of each state variable. What is not real stays in its unit: a period is one of the state, a category has
/// no scale, and neither has the unit vector of an action.
pub(super) fn normalisation(rows: &Rows, settings: &Settings, names: Option<Vec<String>>) -> Inputs {
    let (kinds, choices) = (settings.kinds(rows.dim), settings.choices());
    let mut inputs = Inputs { names, ..Inputs::identity(rows.dim) };
    let real = |d: &usize| *d < rows.dim - choices && kinds.get(*d).is_none_or(|kind| *kind == StateKind::Real);
    for d in (0..rows.dim).filter(real) {
        (inputs.shift[d], inputs.scale[d], _) = scale_of(rows, d);
    }
    inputs
}

/// Square of the mean, and variance about it, of all targets, averaged over rewards.
pub(super) fn moments(targets: &Matrix) -> (f64, f64) {
    weighted_moments(targets, None)
}

/// The same of rows that count so often; once each without `weights`.
pub(super) fn weighted_moments(targets: &Matrix, weights: Option<&[f64]>) -> (f64, f64) {
    let weight = |i: usize| weights.map_or(1.0, |weights| weights[i]);
    let all: f64 = (0..targets.rows()).map(weight).sum();
    let (n, columns) = (if all > 0.0 { all } else { 1.0 }, targets.cols().max(1) as f64);
    let (mut square_of_mean, mut variance) = (0.0, 0.0);
    for h in 0..targets.cols() {
        let of = |value: &dyn Fn(f64) -> f64| {
            targets.col(h).iter().enumerate().map(|(i, &y)| weight(i) * value(y)).sum::<f64>() / n
        };
        let mean = of(&|y| y);
        square_of_mean += mean * mean / columns;
        variance += of(&|y| (y - mean) * (y - mean)) / columns;
    }
    (square_of_mean, variance)
}

/// The same metric in other normalised coordinates.
pub(super) fn rescaled(hyperparameters: &Hyperparameters, from: &Inputs, to: &Inputs) -> Hyperparameters {
    let ratio: Vec<f64> = to.scale.iter().zip(&from.scale).map(|(to, from)| to / from).collect();
    let mut out = hyperparameters.clone();
    // A period is a length, and so are centre and scale of what is bent; the relevance of what is not real has no unit.
    for (d, (kind, r)) in out.kernel.kinds.iter_mut().zip(&ratio).enumerate() {
        match kind {
            StateKind::Periodic(period) => *period /= r,
            StateKind::Bent(bend) => {
                let moved = (from.shift[d] - to.shift[d]) / to.scale[d];
                (bend.centre, bend.scale) = (bend.centre / r + moved, bend.scale / r);
            }
            StateKind::Real | StateKind::Category => {}
        }
    }
    let unit = |(d, r): (usize, &f64)| if hyperparameters.kernel.kind_of(d) == StateKind::Real { *r } else { 1.0 };
    let ratio: Vec<f64> = ratio.iter().enumerate().map(unit).collect();
    match &mut out.kernel.metric {
        Metric::Isotropic(h) => {
            let log = ratio.iter().map(|r| r.ln()).sum::<f64>() / ratio.len() as f64;
            *h *= (2.0 * log).exp();
        }
        Metric::Ard(a) => a.iter_mut().zip(&ratio).for_each(|(a, r)| *a *= r * r),
        Metric::Factor { relevance, factors } => {
            relevance.iter_mut().zip(&ratio).for_each(|(a, r)| *a *= r * r);
            factors.iter_mut().flat_map(|f| f.iter_mut().zip(&ratio)).for_each(|(f, r)| *f *= r);
        }
    }
    out
}
