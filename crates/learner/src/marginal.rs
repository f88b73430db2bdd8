//! A value function over some of its variables, averaged over the others as they were in visited states.
//!
//! ```text
//! Vbar(a) = 1/n sum_i V(a, b_i)        b_i: the other variables of visited state i      (partial dependence)
//! ```
//! A slice shows one place of the others; the average shows all of them at once. Variables count as independent of those on
//! the axes, so that some of the states meant may never have been visited: their variance is large, and so is its mean.

use crate::snapshot::{Ask, Evaluation, Evaluator};
use crate::transition::Invalid;
use nalgebra::DMatrix;

/// Places that are evaluated at once.
const BLOCK: usize = 64;

/// States (p s, D), row-major: each of p places (p, A) on `axes` (A,) with the other variables of each visited state (s, D).
///
/// # Panics
/// If an axis is not below `dim`, or there are no axes.
pub fn spread_out(dim: usize, axes: &[usize], places: &[f64], visited: &[f64]) -> Vec<f64> {
    let mut states = Vec::with_capacity(places.len() / axes.len() * visited.len());
    for place in places.chunks_exact(axes.len()) {
        for state in visited.chunks_exact(dim) {
            let start = states.len();
            states.extend_from_slice(state);
            axes.iter().zip(place).for_each(|(&axis, v)| states[start + axis] = *v);
        }
    }
    states
}

/// The means over `visited` (s, D) of the answers of `model` at places (p, A) on `axes` (A,). Variances are means, too: their root is
/// the deviation of V at a typical state there, not of the average. A place is extrapolated if most of its states are.
///
/// # Errors
/// If a number is not finite or too large for a state.
///
/// # Panics
/// If an axis is not a state variable, or `axes` or `visited` is empty.
pub fn marginal(
    model: &Evaluator,
    axes: &[usize],
    places: &[f64],
    visited: &[f64],
    ask: Ask,
) -> Result<Evaluation, Invalid> {
    let dim = model.snapshot().dim();
    let (count, each) = (places.len() / axes.len(), visited.len() / dim);
    assert!(each > 0, "there is a visited state");
    let mean = |values: &[f64]| values.iter().sum::<f64>() / each as f64;
    let means = |values: Vec<f64>| values.chunks_exact(each).map(mean).collect::<Vec<f64>>();
    let mut out = Evaluation::zeros(model.snapshot(), count, ask);
    for (block, places) in places.chunks(BLOCK * axes.len()).enumerate() {
        let found = model.evaluate(&spread_out(dim, axes, places, visited), ask)?;
        let here = places.len() / axes.len();
        let averaged = |matrix: DMatrix<f64>| {
            let heads = matrix.ncols();
            // Column after column: each holds whole places.
            DMatrix::from_vec(here, heads, means(matrix.data.into()))
        };
        let most = |far: Vec<bool>| {
            let count = |far: &[bool]| far.iter().filter(|far| **far).count();
            far.chunks_exact(each).map(|far| 2 * count(far) > each).collect()
        };
        let averaged = Evaluation {
            mean: averaged(found.mean),
            variance: found.variance.map(means),
            return_variance: found.return_variance.map(averaged),
            known: found.known.map(means),
            extrapolates: found.extrapolates.map(most),
        };
        out.place(block * BLOCK, &averaged);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transition::{Batch, BatchParts};
    use crate::window::Window;
    use crate::{Learner, Settings};

    /// V = x + 3 y over a square: rewards of episodes of one step.
    fn model() -> Evaluator {
        let mut window = Window::new(2, 1, 1000);
        let place = |i: usize, by: f64| (i as f64 * by).fract();
        let states: Vec<f64> = (0..300).flat_map(|i| [place(i, 0.618_034), place(i, 0.754_878)]).collect();
        let batch = Batch::new(BatchParts {
            stream: "s".into(),
            dim: 2,
            rewards_per_row: 1,
            rewards: states.chunks_exact(2).map(|s| s[0] + 3.0 * s[1]).collect(),
            next_states: Some(states.clone()),
            states,
            terminated: Some(vec![true; 300]),
            ..BatchParts::default()
        });
        let batch = batch.unwrap();
        (0..300).for_each(|row| window.push(0, true, &batch, row));
        let mut learner = Learner::new(Settings { discount: 0.5, ..Settings::default() }, None);
        learner.step(&window);
        Evaluator::new(learner.snapshot(true).unwrap())
    }

    #[test]
    fn an_average_is_that_of_the_states_it_is_made_of() {
        let model = model();
        // y is high with x: an average over visited states is not the value at their middle.
        let visited = [[0.2, 0.1], [0.5, 0.2], [0.7, 0.9]].concat();
        // More places than are evaluated at once.
        let places: Vec<f64> = (0..150).map(|k| f64::from(k) / 150.0).collect();
        let found = marginal(&model, &[0], &places, &visited, Ask::ALL).unwrap();
        assert_eq!((found.mean.nrows(), found.extrapolates.as_ref().unwrap().len()), (150, 150));
        for (k, &x) in places.iter().enumerate() {
            let states = [[x, 0.1], [x, 0.2], [x, 0.9]].concat();
            let own = model.evaluate(&states, Ask::ALL).unwrap();
            let near = |a: f64, b: f64| assert!((a - b).abs() < 1e-12, "{k}: {a} {b}");
            near(found.mean[k], own.mean.column(0).sum() / 3.0);
            near(found.variance.as_ref().unwrap()[k], own.variance.unwrap().iter().sum::<f64>() / 3.0);
        }
        let slope = found.mean[149] - found.mean[0];
        assert!((slope - 1.0).abs() < 0.2 && (found.mean[75] - (0.5 + 1.2)).abs() < 0.2, "{slope} {}", found.mean[75]);
        // Over all variables there is nothing to average.
        let both = marginal(&model, &[1, 0], &[0.3, 0.6], &visited, Ask::MEAN).unwrap();
        assert!((both.mean[0] - model.evaluate(&[0.6, 0.3], Ask::MEAN).unwrap().mean[0]).abs() < 1e-12);
        assert!(both.variance.is_none());
    }
}
