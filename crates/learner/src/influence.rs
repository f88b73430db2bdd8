//! How much of a value function hangs on each variable, about: for a choice of variables that are worth a closer look.
//!
//! ```text
//! s_d = 1/n sum_i (dV/dx_d (x_i))^2 * var(x_d)        over visited states x_i; a bound of the total Sobol index, up to a constant
//! ```
//! A relevance of the kernel does not say it: an isotropic kernel has one for all variables, and weights may leave a variable alone.

use crate::math::embedding::StateKind;
use crate::snapshot::Snapshot;
use std::f64::consts::TAU;

/// s (D,) of value function `head` over `inputs` (n, D), row-major; infinite for a category, which has no slope. Cost O(n m D).
///
/// # Panics
/// If `inputs` is not whole rows, or there is no such head.
pub fn influence(snapshot: &Snapshot, head: usize, inputs: &[f64]) -> Vec<f64> {
    let (dim, kernel) = (snapshot.dim(), &snapshot.hyperparameters.kernel);
    let mut slopes = vec![0.0; inputs.len()];
    add_slopes(snapshot, head, inputs, &mut slopes);
    let n = inputs.len() / dim;
    let score = |d: usize| {
        let column = |of: &[f64]| of.iter().skip(d).step_by(dim).copied().collect::<Vec<f64>>();
        let (places, slopes) = (column(inputs), column(&slopes));
        let mean = places.iter().sum::<f64>() / n as f64;
        let variance = places.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n as f64;
        let square = slopes.iter().map(|slope| slope * slope).sum::<f64>() / n as f64;
        if kernel.kind_of(d) == StateKind::Category { f64::INFINITY } else { square * variance }
    };
    (0..dim).map(score).collect()
}

/// Add dV/dx_d (n, D) at `inputs` (n, D), in the units of these.
fn add_slopes(snapshot: &Snapshot, head: usize, inputs: &[f64], out: &mut [f64]) {
    let dim = snapshot.dim();
    let kernel = &snapshot.hyperparameters.kernel;
    let elements = snapshot.dictionary.transpose();
    let places = kernel.project(dim, elements.as_slice());
    let width = kernel.projected_dim(dim);
    let (relevance, factors) = (kernel.metric.relevance(dim), kernel.metric.factors());
    let mut slope = vec![0.0; dim];
    let normalised = snapshot.inputs.normalise(inputs);
    for (state, out) in normalised.chunks_exact(dim).zip(out.chunks_exact_mut(dim)) {
        let point = kernel.project(dim, state);
        slope.fill(0.0);
        let weights = snapshot.weights.column(head);
        for (column, weight) in kernel.columns.iter().zip(weights.iter()) {
            let rise = weight * column.variance;
            let along = |d: usize| rise * column.slope(d, state, &kernel.kinds);
            slope.iter_mut().enumerate().for_each(|(d, slope)| *slope += along(d));
        }
        let each = places.chunks_exact(width).zip(elements.as_slice().chunks_exact(dim));
        for ((place, element), weight) in each.zip(weights.iter().skip(kernel.columns())) {
            // d k / d x_d = -slope of the profile times half of d r^2 / d x_d.
            let rise = -weight * kernel.slope(place, &point);
            for (d, slope) in slope.iter_mut().enumerate() {
                *slope += rise * relevance[d] * half_slope(kernel.kind_of(d), state[d], element[d]);
            }
            for factor in factors {
                let apart =
                    |d: usize| Some(kernel.kind_of(d).on_line(state[d])? - kernel.kind_of(d).on_line(element[d])?);
                let along: f64 = factor.iter().enumerate().filter_map(|(d, f)| Some(f * apart(d)?)).sum();
                for (d, (slope, f)) in slope.iter_mut().zip(factor).enumerate() {
                    *slope += rise * along * f * line_slope(kernel.kind_of(d), state[d]);
                }
            }
        }
        let scaled = slope.iter().zip(&snapshot.inputs.scale).map(|(slope, scale)| slope / scale);
        out.iter_mut().zip(scaled).for_each(|(out, slope)| *out += slope);
    }
    if let Some(mean) = &snapshot.mean {
        add_slopes(mean, head, inputs, out);
    }
}

/// Half of the derivative by x of the squared distance between two values of a variable.
fn half_slope(kind: StateKind, x: f64, other: f64) -> f64 {
    match kind {
        StateKind::Real => x - other,
        StateKind::Bent(bend) => (bend.at(x) - bend.at(other)) * bend.slope(x),
        StateKind::Periodic(period) => (TAU * (x - other) / period).sin() * TAU / period,
        StateKind::Category => 0.0,
    }
}

/// The derivative by x of what directions go along: 0 where they do not.
fn line_slope(kind: StateKind, x: f64) -> f64 {
    match kind {
        StateKind::Real => 1.0,
        StateKind::Bent(bend) => bend.slope(x),
        StateKind::Periodic(_) | StateKind::Category => 0.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::embedding::Bend;
    use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Profile};
    use crate::snapshot::tests::model;
    use crate::snapshot::{Ask, Inputs};
    use nalgebra::DMatrix;
    use std::sync::Arc;

    #[test]
    fn slopes_are_those_of_the_value() {
        let factors = vec![vec![0.3, 0.0, -0.4]];
        let metrics = [Metric::Isotropic(0.5), Metric::Factor { relevance: vec![0.5, 0.2, 0.1], factors }];
        let bent = StateKind::Bent(Bend { centre: 0.4, scale: 0.3, width: 0.8 });
        let kinds = [StateKind::Real, StateKind::Periodic(3.0), bent];
        for (metric, profile) in metrics.into_iter().zip([Profile::Gaussian, Profile::Matern52]) {
            let kernel = Kernel::gaussian(2.0, 0.1, metric).with_profile(profile).with_kinds(&kinds);
            let snapshot = Snapshot {
                hyperparameters: Hyperparameters { kernel, noise: NoiseModel::White, noise_variance: 1.0 },
                inputs: Inputs { shift: vec![1.0, 0.0, 0.0], scale: vec![2.0, 1.0, 1.0], names: None },
                dictionary: DMatrix::from_fn(5, 3, |i, d| ((3 * i + d) as f64).sin()),
                weights: DMatrix::from_fn(5, 2, |i, h| ((i + 7 * h) as f64).cos()),
                mean: Some(Arc::new(model(3, 4, Metric::Isotropic(0.3), 1.0))),
                ..model(3, 5, Metric::Isotropic(1.0), 1.0)
            };
            let inputs = [0.3, -0.2, 0.7, 1.4, 0.9, -0.5];
            let found = influence(&snapshot, 1, &inputs);
            for d in 0..3 {
                let value = |by: f64, k: usize| {
                    let mut at = inputs[3 * k..3 * k + 3].to_vec();
                    at[d] += by;
                    snapshot.evaluate(&at, Ask::MEAN).unwrap().mean[(0, 1)]
                };
                let slope = |k: usize| (value(1e-5, k) - value(-1e-5, k)) / 2e-5;
                let deviation = 0.5 * (inputs[d] - inputs[3 + d]);
                let expected = 0.5 * (slope(0).powi(2) + slope(1).powi(2)) * deviation * deviation;
                assert!((found[d] - expected).abs() < 1e-6 * expected.max(1e-6), "{d}: {} {expected}", found[d]);
            }
        }
    }
}
