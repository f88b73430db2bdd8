//! What a model says of rows and of what follows them: values of states, or of the actions that were taken there.
//!
//! Q has a value at a row only with the action of that row. What follows the row is, by the successor of the critic,
//!
//! ```text
//! sarsa      Q(x', a')        a' the action of the next row of the stream
//! improve    max_a Q(x', a)   over the candidates among all actions
//! ```
//! and not known of other successors: rows here do not have what those need.

use crate::learner::action::{ActionSpace, Successor};
use crate::snapshot::{Ask, Evaluation, Evaluator};
use crate::transition::Rows;
use nalgebra::DMatrix;
use std::collections::HashMap;

/// Inputs that are evaluated at once.
const INPUTS_AT_ONCE: usize = 4096;

/// A state, and the action there if one is known.
#[derive(Clone, Copy, Debug)]
pub struct At<'a> {
    /// (D,).
    pub state: &'a [f64],
    /// (A,).
    pub action: Option<&'a [f64]>,
}

/// The action of row i, as the space of actions takes it; none where the row has none of them.
pub fn action<'a>(space: &ActionSpace, rows: &'a Rows, i: usize) -> Option<&'a [f64]> {
    action_of(space, rows.action(i))
}

/// The action of a row whose actions are `numbers`, as the space of actions takes it; none where it has none of them.
pub fn action_of<'a>(space: &ActionSpace, numbers: &'a [f64]) -> Option<&'a [f64]> {
    let action = numbers.get(..space.numbers())?;
    space.append(action, &mut Vec::new()).is_ok().then_some(action)
}

/// Of each row (n,) the next one of its chain; none behind its end, and of the newest.
pub fn next_rows(rows: &Rows) -> Vec<Option<usize>> {
    let mut next: HashMap<u32, usize> = HashMap::new();
    let mut out = vec![None; rows.len()];
    for i in (0..rows.len()).rev() {
        let later = next.insert(rows.streams[i], i);
        out[i] = later.filter(|&j| !rows.starts_chain[j] && !rows.terminated[i] && !rows.truncated[i]);
    }
    out
}

/// What `model` says of these: of Q with their actions, each of which must have one.
///
/// # Errors
/// A sentence that names what is wrong.
pub fn here(model: &Evaluator, places: &[At], ask: Ask) -> Result<Evaluation, String> {
    model.evaluate(&inputs(model, places)?, ask).map_err(|e| e.to_string())
}

/// Inputs (n, D) of the model at these.
///
/// # Errors
/// If one lacks an action.
pub fn inputs(model: &Evaluator, places: &[At]) -> Result<Vec<f64>, String> {
    let space = model.snapshot().actions.as_ref().map(|of| &of.space);
    let mut out = Vec::with_capacity(places.len() * model.snapshot().dim());
    for place in places {
        out.extend_from_slice(place.state);
        if let Some(space) = space {
            space.append(place.action.ok_or("a row has no action")?, &mut out)?;
        }
    }
    Ok(out)
}

/// Values (n, H) of what comes next at these, where the critic's successor is this one; not numbers where they are not known.
///
/// # Errors
/// A sentence that names what is wrong.
pub fn values(model: &Evaluator, places: &[At], successor: Option<Successor>) -> Result<DMatrix<f64>, String> {
    let snapshot = model.snapshot();
    let Some(of) = &snapshot.actions else { return Ok(here(model, places, Ask::MEAN)?.mean) };
    let heads = snapshot.weights.ncols();
    let mut out = DMatrix::from_element(places.len(), heads, f64::NAN);
    match successor {
        Some(Successor::Sarsa) => {
            let known: Vec<usize> = (0..places.len()).filter(|&k| places[k].action.is_some()).collect();
            let mean = here(model, &known.iter().map(|&k| places[k]).collect::<Vec<_>>(), Ask::MEAN)?.mean;
            known.iter().enumerate().for_each(|(from, &to)| out.set_row(to, &mean.row(from)));
        }
        Some(Successor::Improve) => {
            let candidates = of.space.candidates();
            let choices = candidates.len() / of.space.width();
            let together = (INPUTS_AT_ONCE / choices).max(1);
            for (first, some) in places.chunks(together).enumerate() {
                let each = some.iter().flat_map(|place| {
                    candidates.chunks_exact(of.space.width()).flat_map(|action| [place.state, action].concat())
                });
                let mean = model.evaluate(&each.collect::<Vec<f64>>(), Ask::MEAN).map_err(|e| e.to_string())?.mean;
                for (head, of_head) in mean.column_iter().enumerate() {
                    for (k, values) in of_head.as_slice().chunks_exact(choices).enumerate() {
                        out[(first * together + k, head)] = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                    }
                }
            }
        }
        _ => {}
    }
    Ok(out)
}

/// Whether the returns that come follow the policy whose values the critic learns.
pub fn has_returns(successor: Option<Successor>) -> bool {
    matches!(successor, None | Some(Successor::Sarsa))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
    use crate::snapshot::{Actions, Snapshot};

    /// Two value functions of two numbers of an action behind a state of one.
    fn model(m: usize) -> Snapshot {
        let kernel = Kernel::gaussian(4.0, 0.0, Metric::Ard(vec![1.0, 0.5, 0.1]));
        let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 1.0 };
        let dictionary = DMatrix::from_fn(m, 3, |i, _| 4.0 * i as f64 / m as f64 - 2.0);
        let weights = DMatrix::from_fn(m, 2, |i, h| ((3 * i + h) as f64).sin());
        Snapshot {
            actions: Some(Actions::of(ActionSpace::Discrete(2))),
            ..Snapshot::of(0.5, hyperparameters, dictionary, weights)
        }
    }

    #[test]
    fn what_follows_is_the_next_action_or_the_best_one() {
        let model = Evaluator::new(model(10));
        let q = |x: f64, a: usize| {
            let coordinates = [[1.0, 0.0], [0.0, 1.0]][a];
            model.evaluate(&[x, coordinates[0], coordinates[1]], Ask::MEAN).unwrap().mean
        };
        let states: Vec<[f64; 1]> = (0..3000).map(|k| [f64::from(k) / 700.0 - 2.0]).collect();
        let at = |k: usize, action: Option<&'static [f64]>| At { state: &states[k], action };
        let places = [at(100, Some(&[1.0])), at(1200, None), at(2900, Some(&[0.0]))];
        let sarsa = values(&model, &places, Some(Successor::Sarsa)).unwrap();
        assert!((sarsa[(0, 1)] - q(states[100][0], 1)[1]).abs() < 1e-12 && sarsa[(1, 0)].is_nan());
        assert!((sarsa[(2, 0)] - q(states[2900][0], 0)[0]).abs() < 1e-12);
        // More places than fit at once.
        let all: Vec<At> = (0..3000).map(|k| at(k, None)).collect();
        let best = values(&model, &all, Some(Successor::Improve)).unwrap();
        for k in [0, 1500, 2047, 2048, 2999] {
            let expected = q(states[k][0], 0)[1].max(q(states[k][0], 1)[1]);
            assert!((best[(k, 1)] - expected).abs() < 1e-12, "{k}");
        }
        assert!(values(&model, &places, Some(Successor::Expected)).unwrap().iter().all(|v| v.is_nan()));
        assert!(here(&model, &[at(0, None)], Ask::MEAN).unwrap_err().contains("no action"));
    }
}
