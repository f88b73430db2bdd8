//! How far a kernel reaches: a level ellipse of its distance, Fig. 1 of Jung and Stone 2009.

use crate::math::embedding::StateKind;
use crate::math::kernel::{Kernel, Metric, Profile};
use crate::picture::{Marker, Points};
use crate::snapshot::Snapshot;

/// Shares of the kernel's height v0: the first is taken whose ellipse passes between the middle of the map and one of its sides.
const LEVELS: [f64; 4] = [0.5, 0.9, 0.99, 0.999];
/// Lines across a map, of each direction, on which the ellipse is looked for.
const LINES: usize = 40;

/// Around the middle of a map over the variables `x` and `y`, with these ranges in the unit of the states: where the kernel has a share of
/// its height over states that differ in these two alone. None where one of them is no number on a line, or neither matters.
pub(super) fn ellipse(snapshot: &Snapshot, [x, y]: [usize; 2], ranges: [[f64; 2]; 2]) -> Option<Points> {
    let (kernel, scale) = (&snapshot.hyperparameters.kernel, &snapshot.inputs.scale);
    if [x, y].iter().any(|&d| kernel.kind_of(d) != StateKind::Real) {
        return None;
    }
    let half = ranges.map(|[low, high]| 0.5 * (high - low));
    let middle = ranges.map(|[low, high]| 0.5 * (low + high));
    let omega = kernel.metric.matrix(snapshot.dim());
    // From the middle to a side is 1.
    let of = |i: usize, j: usize| {
        let to_side = |d: usize| half[usize::from(d == y)] / scale[d];
        omega.at(i, j) * to_side(i) * to_side(j)
    };
    let form = [of(x, x), of(x, y), of(y, y)];
    let passes = |radius: f64| radius < 0.95 * form[0].max(form[2]).sqrt();
    let (level, radius) =
        LEVELS.map(|level| (level, radius(kernel.profile, level))).into_iter().find(|of| passes(of.1))?;
    let at = steps(form, radius).into_iter().map(|step| [0, 1].map(|k| middle[k] + half[k] * step[k]));
    let label = format!("kernel at {level} of its height in the middle");
    Some(Points { label, at: at.collect(), marker: Marker::Dot })
}

/// The distance at which a profile is this much.
fn radius(profile: Profile, level: f64) -> f64 {
    let kernel = Kernel::gaussian(1.0, 0.0, Metric::Isotropic(1.0)).with_profile(profile);
    let (mut near, mut far) = (0.0, 10.0);
    for _ in 0..60 {
        let middle = 0.5 * (near + far);
        if kernel.eval(&[0.0], &[middle]) > level { near = middle } else { far = middle }
    }
    far
}

/// Places in [-1, 1]^2 with a u^2 + 2 b u v + c v^2 = radius^2, of the form (a, b, c): where the curve crosses evenly spaced lines of both
/// directions.
fn steps([a, b, c]: [f64; 3], radius: f64) -> Vec<[f64; 2]> {
    let lines = (0..LINES).map(|k| (2 * k + 1) as f64 / LINES as f64 - 1.0);
    let crossings = |own: f64, other: f64, at: f64| {
        let root = (b * b * at * at - own * (other * at * at - radius * radius)).sqrt();
        [(-b * at + root) / own, (-b * at - root) / own]
    };
    let both = lines.flat_map(|t| {
        let along_u = crossings(a, c, t).map(|u| [u, t]);
        let along_v = crossings(c, a, t).map(|v| [t, v]);
        along_u.into_iter().chain(along_v)
    });
    // Without a crossing there is no number.
    both.filter(|[u, v]| u.abs() <= 1.0 && v.abs() <= 1.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_has_its_share_of_its_height_on_the_ellipse() {
        let metric = Metric::Factor { relevance: vec![3.0, 4.0, 2.0], factors: vec![vec![1.0, 0.5, -2.0]] };
        let omega = metric.matrix(3);
        for (profile, level) in [(Profile::Gaussian, 0.5), (Profile::Matern52, 0.9)] {
            let kernel = Kernel::gaussian(3.0, 7.0, metric.clone()).with_profile(profile);
            let found = steps([omega.at(0, 0), omega.at(0, 2), omega.at(2, 2)], radius(profile, level));
            assert!(found.len() > LINES / 2, "{}", found.len());
            for [u, v] in found {
                let [here, there] = [[1.0, 2.0, 3.0], [1.0 + u, 2.0, 3.0 + v]].map(|state| kernel.project(3, &state));
                assert!((kernel.eval(&here, &there) - 7.0 - 3.0 * level).abs() < 1e-9, "{u} {v}");
            }
        }
    }

    #[test]
    fn a_variable_without_relevance_leaves_two_lines() {
        let found = steps([4.0, 0.0, 0.0], 1.0);
        assert_eq!(found.len(), 2 * LINES);
        assert!(found.iter().all(|[u, _]| (u.abs() - 0.5).abs() < 1e-12));
    }
}
