//! The value along the trajectory of one stream: what the model says of its last states, and what then came.

use super::history::number;
use super::recent::{Recent, Rewards};
use crate::snapshot::{Ask, Evaluator};
use crate::transition::Rows;
use serde::Deserialize;
use serde_json::{Value, json};

/// States at which the model is evaluated, and products for all of them, about: a variance costs the square of the dictionary.
const POINTS: usize = 400;
const PRODUCTS: usize = 20_000_000;
/// Rows that may be looked back on.
const ROWS_MAX: usize = 4000;

/// Whose rows are wanted, as the page asks for them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub(super) struct PathQuery {
    /// Name of the critic; the first if left out.
    pub(super) critic: Option<String>,
    /// Which of its value functions, counted from 0.
    #[serde(default)]
    pub(super) head: usize,
    /// Name of the stream; that of the newest row if left out.
    pub(super) stream: Option<String>,
    /// How many of its rows, at most.
    pub(super) rows: usize,
    /// Up to the row of this offset; the newest if left out.
    pub(super) until: Option<u64>,
    /// State variables whose values are wanted.
    pub(super) x: usize,
    pub(super) y: Option<usize>,
}

/// The answer: a JSON document with a list for each column, oldest row first. Lists are thinned where there are many rows.
///
/// # Errors
/// A sentence that names what is wrong.
pub(super) fn along(
    query: &PathQuery,
    recent: &Recent,
    model: &Evaluator,
    rewards: &Rewards,
) -> Result<String, String> {
    let snapshot = model.snapshot();
    let rows =
        recent.rows().filter(|rows| rows.dim == snapshot.dim()).ok_or("no rows of this critic's states are kept")?;
    let axes: Vec<usize> = std::iter::once(query.x).chain(query.y).collect();
    if axes.iter().any(|&axis| axis >= rows.dim) {
        return Err(format!("x and y must be two of the {} state variables, counted from 0", rows.dim));
    }
    let column = rewards.column(query.head)?;
    let stream = match &query.stream {
        Some(name) => recent.number(name).ok_or_else(|| format!("stream: \"{name}\" is none of the last"))?,
        None => *rows.streams.last().ok_or("there are no rows yet")?,
    };
    let wanted = query.rows.clamp(1, ROWS_MAX);
    let upto = |i: &usize| query.until.is_none_or(|until| recent.offset(*i) <= until);
    let mut own: Vec<usize> =
        (0..rows.len()).rev().filter(|&i| rows.streams[i] == stream).filter(upto).take(wanted).collect();
    own.reverse();
    let m = snapshot.dictionary.nrows().max(1);
    let points = (PRODUCTS / (m * m)).clamp(40, POINTS);
    let shown = thinned(rows, &own, points);
    let followed = recent.followed(column, rewards.discount);
    let tails: Vec<usize> = shown.iter().map(|&i| followed[i].tail().unwrap_or(i)).collect();
    let (here, there, end) = evaluate(model, rows, &shown, &tails)?;
    let head = query.head;
    let realised = |k: usize| followed[shown[k]].known(|_| end[(k, head)]);
    let difference = |k: usize| {
        let i = shown[k];
        let rest = if rows.terminated[i] { 0.0 } else { rows.discount(i, rewards.discount) * there[(k, head)] };
        rows.reward(i)[column] + rest - here.mean[(k, head)]
    };
    let list = |f: &dyn Fn(usize) -> f64| (0..shown.len()).map(|k| number(f(k))).collect::<Vec<Value>>();
    let known = |spread: Option<f64>| spread.map_or(f64::NAN, f64::sqrt);
    let ending = |&i: &usize| {
        if rows.terminated[i] {
            1
        } else if rows.truncated[i] {
            2
        } else {
            0
        }
    };
    let place = |&i: &usize| axes.iter().map(|&axis| number(rows.state(i)[axis])).collect::<Vec<Value>>();
    Ok(json!({
        "critic": snapshot.critic,
        "generation": snapshot.generation,
        "stream": recent.name(stream),
        "rows": own.len(),
        "every": own.len().div_ceil(points).max(1),
        "offset": shown.iter().map(|&i| recent.offset(i)).collect::<Vec<u64>>(),
        "at": shown.iter().map(place).collect::<Vec<_>>(),
        "starts": shown.iter().map(|&i| u8::from(rows.starts_chain[i])).collect::<Vec<_>>(),
        "end": shown.iter().map(ending).collect::<Vec<_>>(),
        "reward": list(&|k| rows.reward(shown[k])[column]),
        "value": list(&|k| here.mean[(k, head)]),
        "deviation": list(&|k| known(here.variance.as_ref().map(|v| v[k]))),
        "return_deviation": list(&|k| known(here.return_variance.as_ref().map(|v| v[(k, head)]))),
        "realised": list(&|k| realised(k).unwrap_or(f64::NAN)),
        "td": list(&difference),
    })
    .to_string())
}

/// At most about `points` of the rows: evenly spread, and every row that begins or ends an episode as far as there is room.
fn thinned(rows: &Rows, own: &[usize], points: usize) -> Vec<usize> {
    let every = own.len().div_ceil(points).max(1);
    let edges = own.iter().filter(|&&i| rows.terminated[i] || rows.truncated[i] || rows.starts_chain[i]).count();
    let keeps_edges = edges <= points;
    let edge = |i: usize| rows.terminated[i] || rows.truncated[i] || rows.starts_chain[i];
    own.iter().enumerate().filter(|&(k, &i)| k % every == 0 || keeps_edges && edge(i)).map(|(_, &i)| i).collect()
}

type Means = nalgebra::DMatrix<f64>;

/// All that the model says of the states of `shown`, its mean at their next states, and at those of `tails`.
fn evaluate(
    model: &Evaluator,
    rows: &Rows,
    shown: &[usize],
    tails: &[usize],
) -> Result<(crate::snapshot::Evaluation, Means, Means), String> {
    let states: Vec<f64> = shown.iter().flat_map(|&i| rows.state(i).iter().copied()).collect();
    let next = |list: &[usize]| list.iter().flat_map(|&i| rows.next_state(i).iter().copied()).collect::<Vec<f64>>();
    let here = model.evaluate(&states, Ask::ALL).map_err(|e| e.to_string())?;
    let there = model.evaluate(&next(shown), Ask::MEAN).map_err(|e| e.to_string())?;
    let end = model.evaluate(&next(tails), Ask::MEAN).map_err(|e| e.to_string())?;
    Ok((here, there.mean, end.mean))
}

#[cfg(test)]
mod tests {
    use super::super::calibration::tests::model;
    use super::super::recent::tests::{Row, push};
    use super::*;
    use crate::learner::window::Window;

    #[test]
    fn a_trajectory_has_its_values_and_the_returns_that_followed() {
        let model = model(0);
        let mut window = Window::new(1, 1, 1000);
        for i in 0..6 {
            let (stream, starts, terminated) = (u32::from(i % 3 == 2), i <= 2, i == 4);
            push(&mut window, &Row { stream, starts, state: 0.1 * f64::from(i), reward: f64::from(i), terminated });
        }
        let mut recent = Recent::default();
        recent.take(&window, &[(0, "a".into()), (1, "b".into())]);
        let rewards = Rewards { discount: 0.5, columns: vec![0] };
        let ask = |query: PathQuery| -> Result<Value, String> {
            along(&query, &recent, &model, &rewards).map(|text| serde_json::from_str(&text).unwrap())
        };
        let of = |stream: &str| PathQuery { stream: Some(stream.into()), rows: 100, ..PathQuery::default() };
        let found = ask(of("a")).unwrap();
        assert_eq!((&found["offset"], &found["end"]), (&json!([0, 1, 3, 4]), &json!([0, 0, 0, 1])));
        assert_eq!((&found["starts"], &found["reward"]), (&json!([1, 1, 0, 0]), &json!([0.0, 1.0, 3.0, 4.0])));
        // The first row is cut by a new chain; those behind it end with a reward of 4.
        assert_eq!(found["realised"], json!([null, 3.5, 5.0, 4.0]));
        let near = |value: &Value, expected: f64| assert!((value.as_f64().unwrap() - expected).abs() < 1e-3, "{value}");
        near(&found["value"][2], 10.0);
        near(&found["td"][1], 1.0 + 5.0 - 10.0);
        near(&found["td"][3], 4.0 - 10.0);
        near(&found["at"][3][0], 0.4);
        // The newest row is of stream b; rows behind `until` and beyond `rows` are left out.
        assert_eq!(ask(PathQuery { rows: 9, ..PathQuery::default() }).unwrap()["stream"], "b");
        assert_eq!(ask(PathQuery { until: Some(3), rows: 2, ..of("a") }).unwrap()["offset"], json!([1, 3]));
        assert!(ask(of("c")).unwrap_err().starts_with("stream"));
        assert!(ask(PathQuery { x: 1, ..of("a") }).unwrap_err().starts_with("x and y"));
        assert!(ask(PathQuery { head: 1, ..of("a") }).unwrap_err().starts_with("head"));
    }

    #[test]
    fn long_trajectories_are_thinned_and_keep_where_episodes_end() {
        let mut window = Window::new(1, 1, 100_000);
        for i in 0..3000 {
            push(
                &mut window,
                &Row { stream: 0, starts: i % 97 == 0, state: 0.0, reward: 0.0, terminated: i % 97 == 96 },
            );
        }
        let rows = window.flatten();
        let shown = thinned(&rows, &(0..rows.len()).collect::<Vec<_>>(), 400);
        assert!((375..=375 + 62).contains(&shown.len()), "{}", shown.len());
        assert!((0..3000).filter(|i| i % 97 == 96).all(|i| shown.contains(&i)));
    }
}
