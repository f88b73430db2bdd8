//! Where the model is wrong: errors over the states that were visited, in cells, and the states where they are largest.

use super::map::View;
use super::row_buffer::Recent;
use crate::hindsight::{Kind, Neighbours, Rewards, Worst, affordable, has_returns, samples, spacing};
use crate::monitor::number;
use crate::snapshot::Evaluator;
use crate::transition::Rows;
use serde_json::{Value, json};

/// Cells of a map of errors along its longer side, and states that one holds on average.
const COLUMNS: usize = 24;
const COLUMNS_MIN: usize = 6;
const CELL: f64 = 10.0;
/// Errors that are shown one by one over a single variable.
const POINTS: usize = 400;

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
    let most = affordable(model, rows.dim, rewards.successor);
    let samples = samples(rows, model, rewards, (view.head, column), most)?;
    let (columns, cell_rows) = shape(samples.len(), view.y.is_some());
    let mut cells = vec![[0.0; 3]; columns * cell_rows];
    for sample in &samples {
        if let Some(cell) = grid.cell(rows.state(sample.row), columns, cell_rows) {
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
    let rms = |of: Kind| number((samples.iter().map(|sample| of(sample).powi(2)).sum::<f64>() / n).sqrt());
    let neighbours = Neighbours::of(rows, &samples);
    let returns = has_returns(rewards.successor);
    let list = |of: Kind, spacing: f64| {
        let worst = neighbours.worst(&samples, of, spacing);
        let states = worst.iter().map(|w| to_json(w, recent, rows)).collect::<Vec<_>>();
        json!({"rms": rms(of), "chance": !worst.iter().any(Worst::is_no_chance), "states": states})
    };
    Ok(json!({
        "critic": snapshot.critic,
        "generation": snapshot.generation,
        "samples": samples.len(),
        "returns": returns,
        "rows": rows.len(),
        "columns": columns,
        "cell_rows": cell_rows,
        "count": cells.iter().map(|cell| cell[0]).collect::<Vec<f64>>(),
        "error": mean(1),
        "td": mean(2),
        "points": (0..shown).map(point).collect::<Vec<_>>(),
        // Two TD errors have nothing in common.
        "worst": {"error": list(|s| s.error, if returns { spacing(rewards.discount) } else { 0.0 }), "td": list(|s| s.difference, 0.0)},
    })
    .to_string())
}

/// Columns and rows of a map of `samples` states; one row over a single variable.
fn shape(samples: usize, two: bool) -> (usize, usize) {
    let cells = samples as f64 / CELL;
    let columns = if two { (cells * 4.0 / 3.0).sqrt() } else { cells };
    let columns = (columns.round() as usize).clamp(COLUMNS_MIN, COLUMNS);
    (columns, if two { 3 * columns / 4 } else { 1 })
}

fn to_json(worst: &Worst, recent: &Recent, rows: &Rows) -> Value {
    json!({
        "state": rows.state(worst.row).iter().map(|v| number(*v)).collect::<Vec<_>>(),
        "error": number(worst.error),
        "spread": number(worst.spread),
        "td": number(worst.difference),
        "count": worst.count,
        "axes": worst.axes,
        "stream": recent.name(rows.streams[worst.row]),
        "offset": recent.offset(worst.row),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hindsight::WORST;
    use crate::learner::window::Window;
    use crate::monitor::testing::{Row, model, push};

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
        let worst = answer["worst"]["error"]["states"].as_array().unwrap();
        assert_eq!((worst.len(), &answer["worst"]["error"]["chance"]), (WORST, &json!(false)));
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
    fn cells_hold_about_ten_states() {
        assert_eq!((shape(1500, true), shape(150, true), shape(1500, false)), ((14, 10), (6, 4), (24, 1)));
    }
}
