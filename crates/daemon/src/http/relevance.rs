//! How much of the value hangs on each state variable: shares of the variance of V over visited states.

use super::row_buffer::Recent;
use super::time_series::number;
use crate::hindsight::{At, action, here, inputs, scattered};
use crate::learner::action::ActionSpace;
use crate::learner::influence::influence;
use crate::math::sensitivity::{UNNOTICED, total_indices};
use crate::snapshot::{Ask, Evaluator};
use serde::Deserialize;
use serde_json::json;

/// Samples of a share, and products for all of them, about. A visited state may serve for several.
const SAMPLES: usize = 8000;
const SAMPLES_MIN: usize = 100;
const PRODUCTS: usize = 80_000_000;
/// Variables examined: of more than these, the ones along which the value is steepest over the visited states. Each costs an
/// evaluation of all states.
const EXAMINED: usize = 40;
const STEEP: usize = 200;
const STEEP_MIN: usize = 20;

/// Of which value function, as the page asks for it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct RelevanceQuery {
    /// Name of the critic; the first if left out.
    pub(super) critic: Option<String>,
    /// Which of its value functions, counted from 0.
    #[serde(default)]
    pub(super) head: usize,
}

/// Shares of the variance of one value.
pub(super) struct Shares {
    /// Visited states that it was taken over.
    pub(super) states: usize,
    /// Total Sobol index of each state variable, none of those that were not examined; of values of actions the action's comes last.
    pub(super) shares: Vec<Option<f64>>,
}

/// The answer: a JSON document with the [`shares`] of the value asked for.
///
/// # Errors
/// A sentence that names what is wrong.
pub(super) fn relevance(
    query: &RelevanceQuery,
    visited: &[&[f64]],
    recent: &Recent,
    model: &Evaluator,
) -> Result<String, String> {
    let Shares { states, shares } = shares(query.head, visited, recent, model)?;
    let snapshot = model.snapshot();
    let document =
        json!({"critic": snapshot.critic, "generation": snapshot.generation, "states": states, "shares": shares});
    Ok(document.to_string())
}

/// Shares of value function `head` over the `visited` states (n, D); of values of actions over the recent states and the actions that
/// were taken there.
///
/// # Errors
/// A sentence, if there is no such value function.
pub(super) fn shares(head: usize, visited: &[&[f64]], recent: &Recent, model: &Evaluator) -> Result<Shares, String> {
    let snapshot = model.snapshot();
    let (dim, heads) = (snapshot.state_dim(), snapshot.weights.ncols());
    if head >= heads {
        return Err(format!("head must be below {heads}"));
    }
    let places: Vec<At> = match &snapshot.actions {
        None => visited.iter().map(|&state| At { state, action: None }).collect(),
        Some(of) => acted(recent, &of.space, dim),
    };
    let examined = examined(head, &places, model);
    // An action is one variable, however many coordinates it has: the number of the place where it was taken.
    let width = examined.len() + usize::from(snapshot.actions.is_some());
    let m = snapshot.dictionary.nrows().max(1);
    let most = (PRODUCTS / ((width + 1) * m * snapshot.dim())).clamp(SAMPLES_MIN, SAMPLES);
    let n = places.len().min(most);
    let samples = if n == 0 { 0 } else { most };
    let chosen: Vec<At> = (0..n).map(|s| places[s * places.len() / n]).collect();
    let reduced = chosen.iter().enumerate().flat_map(|(k, place)| {
        let own = examined.iter().map(|&d| place.state[d]);
        own.chain(snapshot.actions.iter().map(move |_| k as f64)).collect::<Vec<f64>>()
    });
    let reduced: Vec<f64> = reduced.collect();
    // State s with its examined variables replaced: the others stay as in the s-th visited state.
    let mut value = |numbers: &[f64]| -> Vec<f64> {
        let moved: Vec<(Vec<f64>, Option<&[f64]>)> = numbers
            .chunks_exact(width)
            .zip(chosen.iter().cycle())
            .map(|(numbers, place)| {
                let mut whole = place.state.to_vec();
                examined.iter().zip(numbers).for_each(|(&d, v)| whole[d] = *v);
                (whole, numbers.get(examined.len()).and_then(|&k| chosen[k as usize].action))
            })
            .collect();
        let moved: Vec<At> = moved.iter().map(|(state, action)| At { state, action: *action }).collect();
        match here(model, &moved, Ask::MEAN) {
            Ok(found) => found.mean.column(head).iter().copied().collect(),
            // Each number was one of a state that has been learned from.
            Err(_) => vec![0.0; samples],
        }
    };
    let indices =
        total_indices(&reduced, width, (samples, UNNOTICED * snapshot.hyperparameters.noise_variance), &mut value);
    let rounded = |share: &f64| number(*share).as_f64();
    let mut shares = vec![None; dim];
    examined.iter().zip(&indices).for_each(|(&d, share)| shares[d] = rounded(share));
    shares.extend(indices.get(examined.len()).map(rounded));
    Ok(Shares { states: n, shares })
}

/// The state variables that are worth a closer look.
fn examined(head: usize, places: &[At], model: &Evaluator) -> Vec<usize> {
    let snapshot = model.snapshot();
    let mut all: Vec<usize> = (0..snapshot.state_dim()).collect();
    if all.len() <= EXAMINED {
        return all;
    }
    let most = PRODUCTS / (snapshot.dictionary.nrows().max(1) * snapshot.dim());
    let count = places.len().min(most.clamp(STEEP_MIN, STEEP));
    let some: Vec<At> = (0..count).map(|s| places[s * places.len() / count]).collect();
    // Without states nothing is known of any.
    let steep = inputs(model, &some).map_or_else(|_| Vec::new(), |inputs| influence(snapshot, head, &inputs));
    let steepness = |d: usize| steep.get(d).copied().filter(|s| !s.is_nan()).unwrap_or(0.0);
    all.sort_by(|&a, &b| steepness(b).total_cmp(&steepness(a)).then(a.cmp(&b)));
    all.truncate(EXAMINED);
    all
}

/// States of `dim` numbers with the actions taken there, spread over the rows that are kept.
fn acted<'a>(recent: &'a Recent, space: &ActionSpace, dim: usize) -> Vec<At<'a>> {
    let Some(rows) = recent.rows().filter(|rows| rows.dim == dim) else { return Vec::new() };
    let at = |i: u64| {
        let i = i as usize;
        Some(At { state: rows.state(i), action: Some(action(space, rows, i)?) })
    };
    scattered(0..rows.len() as u64, SAMPLES).filter_map(at).collect()
}

#[cfg(test)]
mod tests {
    use super::super::map::tests::model;
    use super::*;
    use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
    use crate::snapshot::{Inputs, Snapshot};
    use nalgebra::DMatrix;
    use serde_json::Value;

    #[test]
    fn shares_follow_what_the_value_depends_on() {
        // The dictionary lies on a diagonal; variable 2 has a tenth of the relevance of variable 0.
        let visited: Vec<Vec<f64>> = (0..1500)
            .map(|i| [7, 11, 13].map(|k| f64::from(i * k % 101) / 25.0 - 2.0))
            .map(|z| vec![1.0 + 2.0 * z[0], z[1], z[2]])
            .collect();
        let visited: Vec<&[f64]> = visited.iter().map(Vec::as_slice).collect();
        let ask = |head| {
            relevance(
                &RelevanceQuery { head, ..RelevanceQuery::default() },
                &visited,
                &Recent::default(),
                &Evaluator::new(model(20)),
            )
        };
        let answer: Value = serde_json::from_str(&ask(1).unwrap()).unwrap();
        let shares: Vec<f64> = answer["shares"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        assert!(shares[0] > shares[1] && shares[1] > shares[2] && shares[2] > 0.0, "{shares:?}");
        assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
        assert!(ask(2).unwrap_err().starts_with("head"));
        let none = relevance(&RelevanceQuery::default(), &[], &Recent::default(), &Evaluator::new(model(20))).unwrap();
        assert_eq!(serde_json::from_str::<Value>(&none).unwrap()["shares"], json!([0.0, 0.0, 0.0]));
    }
    #[test]
    fn the_only_relevant_of_many_variables_is_found_under_an_isotropic_kernel() {
        const DIM: usize = 348;
        let kernel = Kernel::gaussian(4.0, 0.0, Metric::Isotropic(1e-3));
        let snapshot = Snapshot {
            hyperparameters: Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 1.0 },
            inputs: Inputs::identity(DIM),
            // The value rises along variable 300, and hardly changes along others.
            dictionary: DMatrix::from_fn(2, DIM, |i, d| if d == 300 { 2.0 * i as f64 - 1.0 } else { 0.0 }),
            weights: DMatrix::from_column_slice(2, 1, &[-100.0, 100.0]),
            variance: None,
            ..model(2)
        };
        let visited: Vec<Vec<f64>> = (0..400)
            .map(|i| (0..DIM).map(|d| f64::from((i * 37 + d as i32 * i * 13) % 101) / 25.0 - 2.0).collect())
            .collect();
        let visited: Vec<&[f64]> = visited.iter().map(Vec::as_slice).collect();
        let answer =
            relevance(&RelevanceQuery::default(), &visited, &Recent::default(), &Evaluator::new(snapshot)).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let shares: Vec<Option<f64>> = answer["shares"].as_array().unwrap().iter().map(Value::as_f64).collect();
        assert_eq!(shares.iter().flatten().count(), EXAMINED);
        assert!(shares[300].is_some_and(|share| share > 0.8), "{:?}", shares[300]);
        assert!(shares.iter().enumerate().all(|(d, share)| d == 300 || share.unwrap_or(0.0) < 0.2));
    }
}
