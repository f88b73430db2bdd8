//! Variables that are far from normal, bent so that they are nearer to it: a candidate of a refit beside the rows as they are.
//!
//! ```text
//! r     = correlation of a variable with its normal scores, the normal quantiles of its mid-ranks
//! C, S  = those by which W asinh((z - C) / S) correlates most with the same scores                   docs/mathematics.md (R11)
//! ```

use super::screening::sampled;
use crate::math::embedding::{Bend, StateKind};
use crate::settings::Settings;
use crate::snapshot::Inputs;
use crate::transition::Rows;

/// Correlation with its normal scores below which a variable is far from normal.
const NORMAL: f64 = 0.9;
/// A variable with no more values than this is a choice among them, whatever their distances.
const VALUES: usize = 20;
/// Share of what the correlation lacks to 1 that bending must take away: what has two peaks stays as it is.
const BETTER: f64 = 0.5;
/// Places of the sorted rows that a bend is judged at.
const PLACES: usize = 512;
/// Quantiles that the search for a centre begins with, and for a scale: powers of four, in spreads between the quartiles.
const CENTRES: usize = 11;
const SCALES: std::ops::RangeInclusive<i32> = -5..=2;
/// Steps of the search.
const STEPS: usize = 60;

/// What each variable of `rows` is, normalised by `inputs`, if those far from normal are bent; none where no variable is, and where the
/// settings say what they are.
pub(super) fn bent(rows: &Rows, inputs: &Inputs, settings: &Settings, left_out: &[usize]) -> Option<Vec<StateKind>> {
    if !settings.may_bend() {
        return None;
    }
    let kind = |d: usize| {
        let column = || -> Vec<f64> {
            sampled(rows.len()).map(|i| (rows.state(i)[d] - inputs.shift[d]) / inputs.scale[d]).collect()
        };
        let bend = if left_out.contains(&d) { None } else { bend(column()) };
        bend.map_or(StateKind::Real, StateKind::Bent)
    };
    let kinds: Vec<StateKind> = (0..rows.dim).map(kind).collect();
    kinds.iter().any(StateKind::is_bent).then_some(kinds)
}

/// How a variable with these values is to be bent; none where it is near normal, or would not be nearer.
fn bend(mut values: Vec<f64>) -> Option<Bend> {
    values.sort_unstable_by(f64::total_cmp);
    let mut scores = Vec::with_capacity(values.len());
    let mut different = 0;
    for same in values.chunk_by(|a, b| a == b) {
        let middle = (scores.len() as f64 + 0.5 * same.len() as f64) / values.len() as f64;
        scores.resize(scores.len() + same.len(), normal_quantile(middle));
        different += 1;
    }
    let count = values.len().min(PLACES);
    let few = |of: &[f64]| (0..count).map(|k| of[(2 * k + 1) * of.len() / (2 * count)]).collect::<Vec<f64>>();
    let (values, scores) = (few(&values), few(&scores));
    // At the same places as the bend: a few outliers bend nothing.
    let straight = correlation(&values, &scores);
    if different <= VALUES || straight >= NORMAL {
        return None;
    }
    let (bend, bent) = nearest_to_normal(&values, &scores)?;
    let width = 1.0 / deviation(values.iter().map(|&x| bend.at(x)));
    (1.0 - bent <= BETTER * (1.0 - straight) && width.is_finite()).then_some(Bend { width, ..bend })
}

/// The bend of sorted `values` that correlates most with `scores`, and how much: the best of a grid of centres and scales, and then of
/// ever smaller steps.
fn nearest_to_normal(values: &[f64], scores: &[f64]) -> Option<(Bend, f64)> {
    let last = values.len() - 1;
    let quartiles = values[3 * last / 4] - values[last / 4];
    let spread = if quartiles > 0.0 { quartiles } else { deviation(values.iter().copied()) };
    let of = |centre: f64, scale: f64| {
        let bend = Bend { centre, scale, width: 1.0 };
        let bent: Vec<f64> = values.iter().map(|&x| bend.at(x)).collect();
        (bend, correlation(&bent, scores))
    };
    let better = |a: &(Bend, f64), b: &(Bend, f64)| a.1.total_cmp(&b.1);
    let scales = || SCALES.map(move |k| spread * 4f64.powi(k));
    let grid = (0..CENTRES).flat_map(|k| scales().map(move |scale| (values[k * last / (CENTRES - 1)], scale)));
    let mut best = grid.map(|(centre, scale)| of(centre, scale)).filter(|found| found.1.is_finite()).max_by(better)?;
    let (mut along, mut factor) = (0.25 * spread, 2.0f64);
    let range = spread * 4f64.powi(*SCALES.start())..=spread * 4f64.powi(*SCALES.end());
    for _ in 0..STEPS {
        let Bend { centre, scale, .. } = best.0;
        let around =
            [(centre + along, scale), (centre - along, scale), (centre, scale * factor), (centre, scale / factor)];
        let found = around.into_iter().filter(|(_, scale)| range.contains(scale)).map(|(c, s)| of(c, s)).max_by(better);
        match found {
            Some(found) if found.1 > best.1 => best = found,
            _ => (along, factor) = (0.5 * along, factor.sqrt()),
        }
    }
    Some(best)
}

/// Correlation of two columns; not a number where one is constant.
fn correlation(a: &[f64], b: &[f64]) -> f64 {
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    let (about_a, about_b) = (mean(a), mean(b));
    let (mut both, mut of_a, mut of_b) = (0.0, 0.0, 0.0);
    for (a, b) in a.iter().zip(b) {
        let (a, b) = (a - about_a, b - about_b);
        (both, of_a, of_b) = (both + a * b, of_a + a * a, of_b + b * b);
    }
    both / (of_a.sqrt() * of_b.sqrt())
}

fn deviation(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let (count, sum) = values.clone().fold((0.0, 0.0), |(count, sum), x| (count + 1.0, sum + x));
    (values.map(|x| (x - sum / count).powi(2)).sum::<f64>() / count).sqrt()
}

/// The normal quantile of a share in (0, 1), to 4.5e-4: M. Abramowitz, I. Stegun, *Handbook of Mathematical Functions*, 26.2.23.
fn normal_quantile(share: f64) -> f64 {
    let t = (-2.0 * share.min(1.0 - share).ln()).sqrt();
    let above = 2.515517 + t * (0.802853 + t * 0.010328);
    let below = 1.0 + t * (1.432788 + t * (0.189269 + t * 0.001308));
    (t - above / below).copysign(share - 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 4000 values of a function of a normal variable, and their correlation with it once bent; none where they stay straight.
    fn found(seen: impl Fn(f64) -> f64) -> Option<(Bend, f64)> {
        let normal: Vec<f64> = (0..4000).map(|k| normal_quantile((f64::from(k) + 0.5) / 4000.0)).collect();
        let values: Vec<f64> = normal.iter().map(|&x| seen(x)).collect();
        let bend = bend(values.iter().rev().copied().collect())?;
        let bent: Vec<f64> = values.iter().map(|&x| bend.at(x)).collect();
        assert!((deviation(bent.iter().copied()) - 1.0).abs() < 0.05, "its deviation is 1");
        Some((bend, correlation(&bent, &normal)))
    }

    #[test]
    fn what_is_far_from_normal_is_bent_nearly_to_it() {
        for deviation in [1.0, 1.3, 2.0] {
            let (bend, r) = found(|x| 5.0 + 3.0 * (deviation * x).exp()).unwrap();
            assert!(r > 0.999 && (bend.centre - 5.0).abs() < 1.0, "{bend:?} {r}");
        }
        let (cubed, r) = found(|x| x.powi(3)).unwrap();
        assert!(r > 0.98 && cubed.centre.abs() < 0.1 && cubed.scale < 0.2, "{cubed:?} {r}");
        // With the long tail below, and with values that come again.
        assert!(found(|x| -(-1.3 * x).exp()).unwrap().1 > 0.999);
        assert!(found(|x| (10.0 * (1.3 * x).exp()).round()).unwrap().1 > 0.98);
    }

    #[test]
    fn what_is_near_normal_or_would_not_be_nearer_stays_straight() {
        assert_eq!(found(|x| x), None);
        assert_eq!(found(|x| x.clamp(-1.0, 1.0)), None);
        assert_eq!(found(|x| 3.0f64.copysign(x) + 0.1 * x), None, "two peaks");
        assert_eq!(found(|x| (2.0 * x).exp().min(19.0).round()), None, "few values");
        assert_eq!(found(|_| 1.0), None);
        assert_eq!(found(|x| if x > 3.2 { 1e6 } else { x }), None, "a few outliers");
    }
}
