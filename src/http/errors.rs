//! Where the model is wrong: returns minus predictions over the states that were visited, and where they are largest.
//!
//! A single return scatters. So an error is a mean over a state and those nearest to it, and the worst states are those of
//! the largest means; a neighbourhood counts once. Distances are between standardised states.

use super::history::number;
use super::map::View;
use super::recent::{Recent, Rewards};
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
/// Worst states that are named.
const WORST: usize = 10;

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
    let rows =
        recent.rows().filter(|rows| rows.dim == snapshot.dim()).ok_or("no rows of this critic's states are kept")?;
    let grid = view.grid(snapshot.dim(), snapshot.weights.ncols())?;
    let column = rewards.column(view.head)?;
    let samples = sample(recent, rows, model, rewards.discount, (view.head, column))?;
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
    let n = samples.len() as f64;
    let rms = (samples.iter().map(|sample| sample.error * sample.error).sum::<f64>() / n).sqrt();
    Ok(json!({
        "critic": snapshot.critic,
        "generation": snapshot.generation,
        "samples": samples.len(),
        "rows": rows.len(),
        "rms": number(rms),
        "columns": COLUMNS,
        "cell_rows": cell_rows,
        "count": cells.iter().map(|cell| cell[0]).collect::<Vec<f64>>(),
        "error": mean(1),
        "td": mean(2),
        "worst": worst(rows, &samples).iter().map(|w| w.to_json(recent, rows)).collect::<Vec<_>>(),
    })
    .to_string())
}

/// States with known returns, evenly spread over the rows that are kept.
fn sample(
    recent: &Recent,
    rows: &Rows,
    model: &Evaluator,
    discount: f64,
    (head, column): (usize, usize),
) -> Result<Vec<Sample>, String> {
    let m = model.snapshot().dictionary.nrows().max(1);
    // Three evaluations of a state, and its distance to each of the others.
    let most = (PRODUCTS / (3 * m * rows.dim)).min(((PRODUCTS / rows.dim) as f64).sqrt() as usize);
    let most = most.clamp(SAMPLES_MIN, SAMPLES);
    let followed = recent.followed(column, discount);
    let known: Vec<usize> = (0..rows.len()).filter(|&i| followed[i].known(|_| 0.0).is_some()).collect();
    let count = known.len().min(most);
    let chosen: Vec<usize> = (0..count).map(|k| known[k * known.len() / count]).collect();
    let states: Vec<f64> = chosen.iter().flat_map(|&i| rows.state(i).iter().copied()).collect();
    let next = |i: usize| rows.next_state(i).iter().copied();
    let nexts: Vec<f64> = chosen.iter().flat_map(|&i| next(i)).collect();
    let tails: Vec<f64> = chosen.iter().flat_map(|&i| next(followed[i].tail().unwrap_or(i))).collect();
    let mean = |states: &[f64]| model.evaluate(states, Ask::MEAN).map_err(|e| e.to_string());
    let (here, there, end) = (mean(&states)?.mean, mean(&nexts)?.mean, mean(&tails)?.mean);
    let one = |k: usize| {
        let i = chosen[k];
        let rest = if rows.terminated[i] { 0.0 } else { rows.discount(i, discount) * there[(k, head)] };
        let realised = followed[i].known(|_| end[(k, head)])?;
        let predicted = here[(k, head)];
        Some(Sample { row: i, error: realised - predicted, difference: rows.reward(i)[column] + rest - predicted })
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
}

impl Worst {
    fn to_json(&self, recent: &Recent, rows: &Rows) -> Value {
        json!({
            "state": rows.state(self.row).iter().map(|v| number(*v)).collect::<Vec<_>>(),
            "error": number(self.error),
            "spread": number(self.spread),
            "td": number(self.difference),
            "count": self.count,
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
        out.push(Worst { row: samples[a].row, error: errors[a], spread, difference, count: k });
        if out.len() == WORST {
            break;
        }
    }
    out
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
        recent.take(&window, &[(0, "robot".into())]);
        let view = View { x: 0, range: "0,1".into(), ..View::default() };
        let rewards = Rewards { discount: 0.9, columns: vec![0] };
        let answer = errors(&view, &recent, &model, &rewards).unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!((&answer["samples"], &answer["cell_rows"]), (&json!(1500), &json!(1)));
        let worst = answer["worst"].as_array().unwrap();
        assert_eq!(worst.len(), WORST);
        for each in worst {
            let (place, error) = (each["state"][0].as_f64().unwrap(), each["error"].as_f64().unwrap());
            assert!((0.59..0.81).contains(&place) && (3.0..5.0).contains(&error), "{each}");
            assert_eq!(each["stream"], "robot");
        }
        let cell = |place: f64| answer["error"][(place * COLUMNS as f64) as usize].as_f64().unwrap();
        assert!((cell(0.7) - 4.0).abs() < 0.3 && cell(0.3).abs() < 0.3, "{} {}", cell(0.7), cell(0.3));
        // What terminates has no next value: both errors agree.
        assert_eq!(answer["td"], answer["error"]);

        let refused = errors(&View { head: 1, ..view }, &recent, &model, &rewards).unwrap_err();
        assert!(refused.starts_with("head"), "{refused}");
    }
}
