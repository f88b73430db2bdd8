//! What a model says of states, for people and for programs.

use super::output::number;
use crate::snapshot::Evaluation;
use nalgebra::DMatrix;
use serde_json::{Value as Json, json};

/// One array for each answer that there is.
pub(super) fn document(found: &Evaluation) -> Json {
    let per_head = |values: &DMatrix<f64>| -> Json {
        if values.ncols() == 1 {
            json!(values.as_slice())
        } else {
            values.row_iter().map(|row| row.iter().copied().collect::<Vec<f64>>()).collect()
        }
    };
    let answers = [
        ("mean", Some(per_head(&found.mean))),
        ("variance", found.variance.as_ref().map(|v| json!(v))),
        ("return_variance", found.return_variance.as_ref().map(per_head)),
        ("known", found.known.as_ref().map(|v| json!(v))),
        ("extrapolates", found.extrapolates.as_ref().map(|v| json!(v))),
    ];
    let given = answers.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?)));
    Json::Object(given.collect())
}

/// Heads and rows: each state (D numbers, called `names`) with what is said of it.
pub(super) fn table(names: &[String], states: &[f64], found: &Evaluation) -> (Vec<String>, Vec<Vec<String>>) {
    let rewards = found.mean.ncols();
    let each = |what: &str| -> Vec<String> {
        (0..rewards).map(|h| if rewards == 1 { what.into() } else { format!("{what}_{h}") }).collect()
    };
    let far = found.extrapolates.as_deref().unwrap_or_default();
    let mut heads = [names, &each("value")].concat();
    heads.extend(found.variance.is_some().then(|| "std".to_owned()));
    heads.extend(found.return_variance.is_some().then(|| each("return std")).into_iter().flatten());
    heads.extend(found.known.is_some().then(|| "known".to_owned()));
    heads.extend(far.contains(&true).then(String::new));
    let row = |(i, state): (usize, &[f64])| -> Vec<String> {
        let mut row: Vec<String> = state.iter().chain(found.mean.row(i).iter()).copied().map(number).collect();
        row.extend(found.variance.iter().map(|variance| number(variance[i].sqrt())));
        row.extend(
            found.return_variance.iter().flat_map(|v| v.row(i).iter().map(|v| number(v.sqrt())).collect::<Vec<_>>()),
        );
        row.extend(found.known.iter().map(|known| format!("{:.1} %", 100.0 * known[i])));
        row.extend(far.contains(&true).then(|| if far[i] { "extrapolated".to_owned() } else { String::new() }));
        row
    };
    (heads, states.chunks_exact(names.len()).enumerate().map(row).collect())
}
