//! Where the model is wrong: returns minus predictions over the states that were visited, and where they are largest.
//!
//! A single return scatters. So an error is a mean over a state and those nearest to it, and the worst states are those of
//! the largest means; a neighbourhood counts once. Distances are between standardised states.

use super::following::{At, action, has_returns, here, next_rows, values};
use super::history::number;
use super::map::View;
use super::recent::Recent;
use super::returns::Rewards;
use super::visited::scattered;
use crate::learner::action::Successor;
use crate::snapshot::{Ask, Evaluator};
use crate::transition::Rows;
use serde_json::{Value, json};

/// Cells of a map of errors.
const COLUMNS: usize = 24;
const ROWS: usize = 18;
/// States that are looked at, and products for their values and distances, about.
const SAMPLES: usize = 1500;
const SAMPLES_MIN: usize = 150;
const PRODUCTS: usize = 20_000_000;
/// States that an error is a mean over.
const NEIGHBOURS: usize = 12;
/// Errors that are shown one by one over a single variable.
const POINTS: usize = 400;
/// Worst states that are named.
const WORST: usize = 10;
/// Half the width of a slab about a state, in standard deviations of a variable, and states in it below which it says nothing.
const SLAB: f64 = 0.3;
const SLAB_MIN: usize = 8;

/// A visited state whose return is known, with the errors there.
struct Sample {
    row: usize,
    /// Return minus prediction.
    error: f64,
    /// Reward plus discounted value of the next state, minus prediction.
    difference: f64,
}

/// The answer: a JSON document with the means of each cell over `view`'s axes, and the worst states.
///
/// # Errors
/// A sentence that names what is wrong.
pub(super) fn errors(view: &View, recent: &Recent, model: &Evaluator, rewards: &Rewards) -> Result<String, String> {
    let snapshot = model.snapshot();
    let rows = recent
        .rows()
        .filter(|rows| rows.dim == snapshot.state_dim())
        .ok_or("no rows of this critic's states are kept")?;
    let grid = view.grid(snapshot.state_dim(), snapshot.weights.ncols())?;
    let column = rewards.column(view.head)?;
    let samples = sample(recent, rows, model, rewards, (view.head, column))?;
    let cell_rows = if view.y.is_some() { ROWS } else { 1 };
    let mut cells = vec![[0.0; 3]; COLUMNS * cell_rows];
    for sample in &samples {
        if let Some(cell) = grid.cell(rows.state(sample.row), COLUMNS, cell_rows) {
            cells[cell][0] += 1.0;
            cells[cell][1] += sample.error;
            cells[cell][2] += sample.difference;
        }
    }
    let mean = |k: usize| cells.iter().map(|cell| number(cell[k] / cell[0])).collect::<Vec<Value>>();
    // Over one variable there is room for each of them.
    let shown = if view.y.is_none() { samples.len().min(POINTS) } else { 0 };
    let point = |k: usize| {
        let sample = &samples[k * samples.len() / shown];
        [rows.state(sample.row)[view.x], sample.error, sample.difference].map(number)
    };
    let n = samples.len() as f64;
    let rms = (samples.iter().map(|sample| sample.error * sample.error).sum::<f64>() / n).sqrt();
    Ok(json!({
        "critic": snapshot.critic,
        "generation": snapshot.generation,
        "samples": samples.len(),
        "returns": has_returns(rewards.successor),
        "rows": rows.len(),
        "rms": number(rms),
        "columns": COLUMNS,
        "cell_rows": cell_rows,
        "count": cells.iter().map(|cell| cell[0]).collect::<Vec<f64>>(),
        "error": mean(1),
        "td": mean(2),
        "points": (0..shown).map(point).collect::<Vec<_>>(),
        "worst": worst(rows, &samples).iter().map(|w| w.to_json(recent, rows)).collect::<Vec<_>>(),
    })
    .to_string())
}

/// States with known returns, evenly spread over the rows that are kept. Values of another policy than the one that acts have no returns:
/// there the TD error stands for both.
fn sample<'a>(
    recent: &Recent,
    rows: &'a Rows,
    model: &Evaluator,
    rewards: &Rewards,
    (head, column): (usize, usize),
) -> Result<Vec<Sample>, String> {
    let (discount, successor) = (rewards.discount, rewards.successor);
    let m = model.snapshot().dictionary.nrows().max(1);
    let space = model.snapshot().actions.as_ref().map(|of| &of.space);
    let choices = match (space, successor) {
        (Some(space), Some(Successor::Improve)) => space.candidates().len() / space.width(),
        _ => 1,
    };
    // Three evaluations of a state, and its distance to each of the others.
    let most = (PRODUCTS / ((2 + choices) * m * rows.dim)).min(((PRODUCTS / rows.dim) as f64).sqrt() as usize);
    let most = most.clamp(SAMPLES_MIN, SAMPLES);
    let (followed, next) = (recent.followed(column, discount), next_rows(rows));
    let taken = |i: usize| space.and_then(|space| action(space, rows, i));
    let returns = has_returns(successor);
    let is_known =
        |&i: &usize| (space.is_none() || taken(i).is_some()) && (!returns || followed[i].known(|_| 0.0).is_some());
    let known: Vec<usize> = (0..rows.len()).filter(is_known).collect();
    let count = known.len().min(most);
    let chosen: Vec<usize> = scattered(0..known.len() as u64, count).map(|k| known[k as usize]).collect();
    let behind = |i: usize| At { state: rows.next_state(i), action: next[i].and_then(taken) };
    let of = |place: &dyn Fn(usize) -> At<'a>| chosen.iter().map(|&i| place(i)).collect::<Vec<At>>();
    let here = here(model, &of(&|i| At { state: rows.state(i), action: taken(i) }), Ask::MEAN)?.mean;
    let there = values(model, &of(&behind), successor)?;
    // What is left of a return weighs little: where its next action is not known, the last one stands for it.
    let last = |i: usize| At { action: next[i].and_then(taken).or(taken(i)), ..behind(i) };
    let end = values(model, &of(&|i| last(followed[i].tail().unwrap_or(i))), successor)?;
    let one = |k: usize| {
        let i = chosen[k];
        let rest = if rows.terminated[i] { 0.0 } else { rows.discount(i, discount) * there[(k, head)] };
        let predicted = here[(k, head)];
        let difference = rows.reward(i)[column] + rest - predicted;
        let error = if returns { followed[i].known(|_| end[(k, head)])? - predicted } else { difference };
        Some(Sample { row: i, error, difference })
    };
    Ok((0..count).filter_map(one).filter(|s| s.error.is_finite()).collect())
}

/// A state about which the model errs much.
struct Worst {
    row: usize,
    /// Mean error of the neighbourhood, and its standard deviation.
    error: f64,
    spread: f64,
    difference: f64,
    count: usize,
    /// The one or two variables along which the error is most local.
    axes: Vec<usize>,
}

impl Worst {
    fn to_json(&self, recent: &Recent, rows: &Rows) -> Value {
        json!({
            "state": rows.state(self.row).iter().map(|v| number(*v)).collect::<Vec<_>>(),
            "error": number(self.error),
            "spread": number(self.spread),
            "td": number(self.difference),
            "count": self.count,
            "axes": self.axes,
            "stream": recent.name(rows.streams[self.row]),
            "offset": recent.offset(self.row),
        })
    }
}

/// The worst states, the worst first.
fn worst(rows: &Rows, samples: &[Sample]) -> Vec<Worst> {
    let (n, dim) = (samples.len(), rows.dim);
    if n == 0 {
        return Vec::new();
    }
    let places = standardised(rows, samples);
    let k = NEIGHBOURS.min(n);
    let near: Vec<Vec<usize>> = (0..n)
        .map(|a| {
            let away =
                |b: usize| -> f64 { (0..dim).map(|d| (places[a * dim + d] - places[b * dim + d]).powi(2)).sum() };
            let mut others: Vec<(f64, usize)> = (0..n).map(|b| (away(b), b)).collect();
            others.select_nth_unstable_by(k - 1, |a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
            others.truncate(k);
            others.into_iter().map(|(_, b)| b).collect()
        })
        .collect();
    let mean = |a: usize, f: &dyn Fn(&Sample) -> f64| near[a].iter().map(|&b| f(&samples[b])).sum::<f64>() / k as f64;
    let errors: Vec<f64> = (0..n).map(|a| mean(a, &|s| s.error)).collect();
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| errors[b].abs().total_cmp(&errors[a].abs()).then(a.cmp(&b)));
    let mut taken = vec![false; n];
    let mut out = Vec::new();
    for a in order {
        if near[a].iter().any(|&b| taken[b]) {
            continue;
        }
        near[a].iter().for_each(|&b| taken[b] = true);
        let spread = mean(a, &|s| (s.error - errors[a]).powi(2)).sqrt();
        let difference = mean(a, &|s| s.difference);
        let axes = local(&places, samples, a, errors[a].signum());
        out.push(Worst { row: samples[a].row, error: errors[a], spread, difference, count: k, axes });
        if out.len() == WORST {
            break;
        }
    }
    out
}

/// The one or two variables along which an error of this sign about sample `a` is most local: where states near `a` in that variable alone
/// have the largest mean error. `places` (n, D) are standardised.
fn local(places: &[f64], samples: &[Sample], a: usize, sign: f64) -> Vec<usize> {
    let dim = places.len() / samples.len();
    let strength = |d: usize| {
        let near = |b: &usize| (places[b * dim + d] - places[a * dim + d]).abs() < SLAB;
        let errors: Vec<f64> = (0..samples.len()).filter(near).map(|b| sign * samples[b].error).collect();
        if errors.len() < SLAB_MIN { f64::NEG_INFINITY } else { errors.iter().sum::<f64>() / errors.len() as f64 }
    };
    let strengths: Vec<f64> = (0..dim).map(strength).collect();
    let mut order: Vec<usize> = (0..dim).collect();
    order.sort_by(|&d, &e| strengths[e].total_cmp(&strengths[d]).then(d.cmp(&e)));
    order.truncate(2);
    order.sort_unstable();
    order
}

/// States (n, D) with a variance of one in each variable.
fn standardised(rows: &Rows, samples: &[Sample]) -> Vec<f64> {
    let (n, dim) = (samples.len(), rows.dim);
    let mut places: Vec<f64> = samples.iter().flat_map(|s| rows.state(s.row).iter().copied()).collect();
    for d in 0..dim {
        let column = || (0..n).map(|a| places[a * dim + d]);
        let mean = column().sum::<f64>() / n as f64;
        let deviation = (column().map(|v| (v - mean).powi(2)).sum::<f64>() / n as f64).sqrt();
        for a in 0..n {
            places[a * dim + d] = if deviation > 0.0 { (places[a * dim + d] - mean) / deviation } else { 0.0 };
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::super::calibration::tests::model;
    use super::super::recent::tests::{Row, push};
    use super::*;
    use crate::learner::window::Window;

    #[test]
    fn a_planted_error_is_found_where_it_is() {
        // The model says 10 everywhere; so do the returns, but between 0.6 and 0.8 they are 14.
        let model = model(0);
        let mut window = Window::new(1, 1, 10_000);
        for i in 0..2000 {
            let state = f64::from(i * 37 % 2000) / 2000.0;
            let wrong = if (0.6..0.8).contains(&state) { 4.0 } else { 0.0 };
            let scatter = if i % 2 == 0 { 0.5 } else { -0.5 };
            let reward = 10.0 + wrong + scatter;
            push(&mut window, &Row { stream: 0, starts: true, state, reward, terminated: true });
        }
        let mut recent = Recent::default();
        recent.take(&window, &[(0, "robot".into())], 1.0);
        let view = View { x: 0, range: "0,1".into(), ..View::default() };
        let rewards = Rewards { discount: 0.9, columns: vec![0], successor: None };
        let answer = errors(&view, &recent, &model, &rewards).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((&answer["samples"], &answer["cell_rows"]), (&json!(1500), &json!(1)));
        let worst = answer["worst"].as_array().unwrap();
        assert_eq!(worst.len(), WORST);
        for each in worst {
            let (place, error) = (each["state"][0].as_f64().unwrap(), each["error"].as_f64().unwrap());
            assert!((0.59..0.81).contains(&place) && (3.0..5.0).contains(&error), "{each}");
            assert_eq!((&each["stream"], &each["axes"]), (&json!("robot"), &json!([0])));
        }
        let cell = |place: f64| answer["error"][(place * COLUMNS as f64) as usize].as_f64().unwrap();
        assert!((cell(0.7) - 4.0).abs() < 0.3 && cell(0.3).abs() < 0.3, "{} {}", cell(0.7), cell(0.3));
        // What terminates has no next value: both errors agree.
        assert_eq!(answer["td"], answer["error"]);

        let refused = errors(&View { head: 1, ..view }, &recent, &model, &rewards).unwrap_err();
        assert!(refused.starts_with("head"), "{refused}");
    }

    #[test]
    fn the_axes_of_an_error_are_those_along_which_it_is_local() {
        // Four variables; the error is where the second and the fourth are both high.
        let mut state = 1u64;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f64 / (1u64 << 24) as f64 * 3.4 - 1.7
        };
        let places: Vec<f64> = (0..4 * 800).map(|_| random()).collect();
        let inside = |place: &[f64]| place[1] > 1.0 && place[3] > 1.0;
        let error = |place: &[f64]| if inside(place) { -5.0 } else { 0.1 };
        let sample = |(row, place): (usize, &[f64])| Sample { row, error: error(place), difference: 0.0 };
        let samples: Vec<Sample> = places.chunks_exact(4).enumerate().map(sample).collect();
        let a = places.chunks_exact(4).position(inside).unwrap();
        assert_eq!(local(&places, &samples, a, -1.0), [1, 3]);
    }
}
