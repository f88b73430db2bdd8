//! The heads of a critic whose names contain a text, the least known first.
//!
//! ```text
//! unknown_h = mean Var V_h(x) / (mean Var V_h(x) + spread of V_h(x))        over visited states x
//! ```
//! Near 0 the values of a head differ between states by far more than its deviation; near 1 they hardly differ.

use crate::learner::heads::Head;
use crate::monitor::number;
use crate::snapshot::Evaluator;
use serde::Deserialize;
use serde_json::{Value, json};

/// States that a head is judged at.
const STATES: usize = 16;
/// Heads that are named.
const NAMED: usize = 10;

/// Which heads, as the page asks for them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct HeadsQuery {
    /// Name of the critic; the first if left out.
    pub(super) critic: Option<String>,
    /// Text in their names, in any case of letters; empty for all.
    #[serde(default)]
    pub(super) find: String,
}

/// The answer: a JSON document with how many heads there are, how many match, and the least known of those. Without a variance
/// they come in their own order. `visited` are states (n, D).
///
/// # Errors
/// A sentence that names what is wrong.
pub(super) fn heads(query: &HeadsQuery, visited: &[&[f64]], model: &Evaluator) -> Result<String, String> {
    let snapshot = model.snapshot();
    let all: Vec<&Head> = snapshot.all_heads().collect();
    if all.is_empty() {
        return Err("this critic has no heads".to_owned());
    }
    let wanted = query.find.to_lowercase();
    let names = all.iter().enumerate();
    let which: Vec<usize> =
        names.filter(|(_, head)| head.name.to_lowercase().contains(&wanted)).map(|(h, _)| h).collect();
    let n = visited.len().min(STATES);
    let states: Vec<f64> = (0..n).flat_map(|k| visited[k * visited.len() / n].iter().copied()).collect();
    let found = snapshot.evaluate_heads(&states, &which, true).map_err(|e| e.to_string())?;
    let mut judged: Vec<(usize, [f64; 4])> = which
        .iter()
        .enumerate()
        .map(|(c, &h)| {
            let mean = found.mean.column(c).sum() / n as f64;
            let spread = found.mean.column(c).iter().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64;
            let variance = found.variance.as_ref().map_or(f64::NAN, |spread| spread.column(c).sum() / n as f64);
            (h, [mean, spread.sqrt(), variance.sqrt(), variance / (variance + spread)])
        })
        .collect();
    // Where nothing is known of the variance, the order stays.
    let unknown = |numbers: &[f64; 4]| if numbers[3].is_nan() { -1.0 } else { numbers[3] };
    judged.sort_by(|a, b| unknown(&b.1).total_cmp(&unknown(&a.1)).then(a.0.cmp(&b.0)));
    let named = judged.iter().take(NAMED).map(|(h, [mean, spread, deviation, unknown])| {
        let (_, heads, place) = snapshot.place_of_head(*h);
        let verified = heads.verified[place];
        json!({
            "name": all[*h].name,
            "cumulant": &all[*h].cumulant,
            "rate": all[*h].rate,
            "mean": number(*mean),
            "spread": number(*spread),
            "deviation": number(*deviation),
            "unknown": number(*unknown),
            "pairs": verified.pairs,
            "coverage": verified.coverage,
        })
    });
    let named: Vec<Value> = named.collect();
    Ok(json!({
        "critic": snapshot.critic,
        "generation": snapshot.generation,
        "count": all.len(),
        "matching": which.len(),
        "states": n,
        "heads": named,
    })
    .to_string())
}

#[cfg(test)]
mod tests {
    use super::super::map::tests::model;
    use super::*;
    use crate::learner::heads::{Cumulant, HeadBasis, HeadsSnapshot, Rate, Verified};
    use crate::snapshot::Snapshot;
    use nalgebra::DMatrix;

    /// `count` heads over the dictionary of 10; the noise rises from head to head.
    fn with_heads(count: usize) -> Evaluator {
        let head = |k: usize| Head::new(format!("Joint-{k}"), Cumulant::State(k % 3), Rate::Discount(0.5));
        // Of all but the last ten enough returns are known.
        let known = Verified { factor: 1.0, pairs: 40, coverage: Some(0.75) };
        let verified = |k: usize| if k + 10 < count { known } else { Verified::default() };
        let heads = HeadsSnapshot {
            heads: (0..count).map(head).collect(),
            weights: DMatrix::from_fn(10, count, |i, _| i as f64),
            signals: vec![1.0; count],
            ratios: (0..count).map(|k| 0.01 * (k + 1) as f64).collect(),
            weightings: vec![0; count],
            bases: vec![HeadBasis { vectors: DMatrix::identity(10, 10) * 0.1, values: vec![1.0; 10] }],
            verified: (0..count).map(verified).collect(),
        };
        Evaluator::new(Snapshot { heads: Some(heads), ..model(10) })
    }

    #[test]
    fn the_least_known_heads_come_first_and_names_are_searched() {
        let visited = [[1.0, 0.0, 0.0], [3.0, 1.0, 1.0], [-1.0, 0.5, 0.5]];
        let visited: Vec<&[f64]> = visited.iter().map(|state| &state[..]).collect();
        let ask = |find: &str| -> Value {
            let query = HeadsQuery { find: find.into(), ..HeadsQuery::default() };
            serde_json::from_str(&heads(&query, &visited, &with_heads(30)).unwrap()).unwrap()
        };
        let all = ask("");
        assert_eq!((&all["count"], &all["matching"], &all["states"]), (&json!(30), &json!(30), &json!(3)));
        let named = all["heads"].as_array().unwrap();
        assert_eq!((named.len(), &named[0]["name"], &named[9]["name"]), (10, &json!("Joint-29"), &json!("Joint-20")));
        let unknown: Vec<f64> = named.iter().map(|head| head["unknown"].as_f64().unwrap()).collect();
        assert!(unknown.windows(2).all(|pair| pair[0] > pair[1]) && unknown[0] < 1.0, "{unknown:?}");
        assert_eq!((&named[0]["cumulant"], &named[0]["rate"]), (&json!({"State": 2}), &json!({"Discount": 0.5})));
        // Joint-7, Joint-17, Joint-27.
        assert_eq!((&ask("JOINT")["matching"], &ask("7")["matching"]), (&json!(30), &json!(3)));
        let figures = |head: &Value| (head["pairs"].clone(), head["coverage"].clone());
        assert_eq!(figures(&named[0]), (json!(0), Value::Null));
        assert_eq!(figures(&ask("Joint-7")["heads"][0]), (json!(40), json!(0.75)));
        assert_eq!(ask("leg")["heads"], json!([]));
        let none = heads(&HeadsQuery::default(), &visited, &Evaluator::new(model(10))).unwrap_err();
        assert_eq!(none, "this critic has no heads");
    }
}
