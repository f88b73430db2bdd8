//! How much of the value hangs on each state variable, as a page asks for it.

use crate::hindsight::At;
use crate::monitor::{Shares, shares};
use crate::snapshot::Evaluator;
use serde::Deserialize;
use serde_json::json;

/// Of which value function, as the page asks for it.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct RelevanceQuery {
    /// Name of the critic; the first if left out.
    pub(super) critic: Option<String>,
    /// Which of its value functions, counted from 0.
    #[serde(default)]
    pub(super) head: usize,
}

/// The answer: a JSON document with the [`shares`] over visited `places` of the value asked for.
///
/// # Errors
/// A sentence that names what is wrong.
pub(super) fn relevance(query: &RelevanceQuery, places: &[At], model: &Evaluator) -> Result<String, String> {
    let Shares { states, shares } = shares(query.head, places, model)?;
    let snapshot = model.snapshot();
    let document =
        json!({"critic": snapshot.critic, "generation": snapshot.generation, "states": states, "shares": shares});
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::super::map::tests::model;
    use super::*;
    use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
    use crate::snapshot::{Inputs, Snapshot};
    use nalgebra::DMatrix;
    use serde_json::Value;

    fn places(visited: &[Vec<f64>]) -> Vec<At<'_>> {
        visited.iter().map(|state| At { state, action: None }).collect()
    }

    #[test]
    fn shares_follow_what_the_value_depends_on() {
        // The dictionary lies on a diagonal; variable 2 has a tenth of the relevance of variable 0.
        let visited: Vec<Vec<f64>> = (0..1500)
            .map(|i| [7, 11, 13].map(|k| f64::from(i * k % 101) / 25.0 - 2.0))
            .map(|z| vec![1.0 + 2.0 * z[0], z[1], z[2]])
            .collect();
        let ask = |head| {
            relevance(
                &RelevanceQuery { head, ..RelevanceQuery::default() },
                &places(&visited),
                &Evaluator::new(model(20)),
            )
        };
        let answer: Value = serde_json::from_str(&ask(1).unwrap()).unwrap();
        let shares: Vec<f64> = answer["shares"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
        assert!(shares[0] > shares[1] && shares[1] > shares[2] && shares[2] > 0.0, "{shares:?}");
        assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
        assert!(ask(2).unwrap_err().starts_with("head"));
        let none = relevance(&RelevanceQuery::default(), &[], &Evaluator::new(model(20))).unwrap();
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
        let answer = relevance(&RelevanceQuery::default(), &places(&visited), &Evaluator::new(snapshot)).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        let shares: Vec<Option<f64>> = answer["shares"].as_array().unwrap().iter().map(Value::as_f64).collect();
        assert_eq!(shares.iter().flatten().count(), 40, "as many are examined");
        assert!(shares[300].is_some_and(|share| share > 0.8), "{:?}", shares[300]);
        assert!(shares.iter().enumerate().all(|(d, share)| d == 300 || share.unwrap_or(0.0) < 0.2));
    }
}
