//! How much of the value hangs on each state variable: shares of the variance of V over visited states.

use super::following::{At, action, here};
use super::history::number;
use super::recent::Recent;
use super::visited::scattered;
use crate::learner::action::ActionSpace;
use crate::math::sensitivity::total_indices;
use crate::snapshot::{Ask, Evaluator};
use serde::Deserialize;
use serde_json::{Value, json};

/// Samples of a share, and products for all of them, about. A visited state may serve for several.
const SAMPLES: usize = 4000;
const SAMPLES_MIN: usize = 100;
const PRODUCTS: usize = 40_000_000;
/// Of more variables those are examined whose kernel relevance is largest: each costs an evaluation of all states.
const EXAMINED: usize = 40;

/// Of which value function, as the page asks for it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct RelevanceQuery {
    /// Name of the critic; the first if left out.
    pub(super) critic: Option<String>,
    /// Which of its value functions, counted from 0.
    #[serde(default)]
    pub(super) head: usize,
}

/// The answer: a JSON document with the total Sobol index of each state variable, null for those that were not examined; of values of
/// actions that of the action comes last, and all are over the actions that were taken. `visited` are states (n, D).
///
/// # Errors
/// A sentence that names what is wrong.
pub(super) fn relevance(
    query: &RelevanceQuery,
    visited: &[&[f64]],
    recent: &Recent,
    model: &Evaluator,
) -> Result<String, String> {
    let snapshot = model.snapshot();
    let (dim, heads) = (snapshot.state_dim(), snapshot.weights.ncols());
    if query.head >= heads {
        return Err(format!("head must be below {heads}"));
    }
    let of_kernel = snapshot.hyperparameters.kernel.metric.relevance(snapshot.dim());
    let mut examined: Vec<usize> = (0..dim).collect();
    examined.sort_by(|&a, &b| of_kernel[b].total_cmp(&of_kernel[a]).then(a.cmp(&b)));
    examined.truncate(EXAMINED);
    let places = match &snapshot.actions {
        None => visited.iter().map(|&state| At { state, action: None }).collect(),
        Some(of) => acted(recent, &of.space, dim),
    };
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
    // State s with its examined variables replaced: the others stay those of the s-th visited state.
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
            Ok(found) => found.mean.column(query.head).iter().copied().collect(),
            // Each number was one of a state that has been learned from.
            Err(_) => vec![0.0; samples],
        }
    };
    let indices = total_indices(&reduced, width, samples, &mut value);
    let mut shares = vec![Value::Null; dim];
    examined.iter().zip(&indices).for_each(|(&d, share)| shares[d] = number(*share));
    shares.extend(indices.get(examined.len()).map(|share| number(*share)));
    Ok(json!({"critic": snapshot.critic, "generation": snapshot.generation, "states": n, "shares": shares}).to_string())
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
}
