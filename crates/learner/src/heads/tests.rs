//! A dictionary that grows (tests/golden-heads, `late_14`): element j is known from row since_j on.

use super::{Bank, Block, Cumulant, Head, Rate, RowNodes};
use crate::math::dense::{Matrix, dot};
use crate::math::dictionary::Dictionary;
use crate::math::kernel::{Kernel, Metric};
use crate::math::posterior::Scale;
use crate::math::statistics::Running;
use crate::transition::Rows;
use serde_json::Value;

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        other => vec![other.as_f64().unwrap()],
    }
}

fn close(told: &str, found: &[f64], expected: &Value) {
    let expected = numbers(expected);
    let scale = expected.iter().fold(1f64, |s, v| s.max(v.abs()));
    assert_eq!(found.len(), expected.len());
    found.iter().zip(&expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-9 * scale, "{told}: {a} {b}"));
}

#[test]
fn elements_count_from_the_row_that_they_are_known_from() {
    let folders = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let file =
        folders.map(|folder| folder.join("tests/golden-heads/late_14.json")).find(|file| file.is_file()).unwrap();
    let case: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let number = |key: &str| case["kernel"][key].as_f64().unwrap();
    let kernel = Kernel::gaussian(number("v0"), number("b"), Metric::Ard(numbers(&case["kernel"]["a"])));
    let dictionary = Dictionary::from_elements(kernel.clone(), 2, &numbers(&case["dictionary"])).unwrap();
    let (since, m) = (numbers(&case["since"]), dictionary.len());
    let features = |state: &[f64], row: usize| {
        let mut phi = dictionary.features(&kernel.project(2, state)).col(0).to_vec();
        phi.iter_mut().zip(&since).for_each(|(value, &since)| *value = if row as f64 >= since { *value } else { 0.0 });
        phi
    };
    let head = |name: &str, cumulant: Cumulant, discount: f64, noise: f64| Head {
        noise_variance: Some(noise),
        ..Head::new(name, cumulant, Rate::Discount(discount))
    };
    let late = Head { terminal_reward: 0.5, ..head("late", Cumulant::NextState(1), 0.7, 0.3) };
    let heads = vec![head("first", Cumulant::Reward(0), 0.9, 0.2), late];
    let mut bank = Bank::new(heads, m, None, Scale::of_noise(0.1), false);

    let mut rows = Rows::new(2, 4);
    let mut last: Vec<Option<Vec<f64>>> = vec![None; 16];
    let all = case["rows"].as_array().unwrap();
    for (i, row) in all.iter().enumerate() {
        let stream = row["stream"].as_u64().unwrap() as usize;
        rows.states.extend(numbers(&row["x"]));
        rows.next_states.extend(numbers(&row["x_next"]));
        rows.rewards.extend(numbers(&row["reward"]));
        rows.terminated.push(row["terminated"].as_bool().unwrap());
        let cuts = row["starts_chain"].as_bool().unwrap() || (i > 0 && before_was_truncated(all, i));
        let gap = last[stream].take().filter(|_| cuts);
        let mut columns = features(rows.state(i), i);
        columns.extend(gap.iter().flat_map(|state| features(state, i)));
        let matrix = Matrix::from_columns(m, columns.len() / m, columns);
        let mut nodes = RowNodes::default();
        (nodes.slot, nodes.gap) = (stream, gap.map(|_| 1));
        let range = i..i + 1;
        let block = Block {
            rows: &rows,
            range,
            offset: i as u64,
            nodes: &[nodes],
            features: &matrix,
            kernel: &Kernel::gaussian(1.0, 0.0, Metric::Isotropic(1.0)),
            ring: (0, 0),
        };
        bank.learn(&block, None);
        last[stream] = Some(rows.next_state(i).to_vec()).filter(|_| !rows.terminated[i]);
    }
    for (slot, state) in last.iter().enumerate() {
        if let Some(state) = state {
            bank.cut(slot, &features(state, all.len()));
        }
    }
    let solution = bank.solve(&Running::default()).unwrap();
    let expected = &case["expected"];
    let gram = bank.statistics().grams[0].matrix();
    let s: Vec<f64> = (0..m * m).map(|k| gram.at((k / m).max(k % m), (k / m).min(k % m))).collect();
    close("S", &s, &expected["S"]);
    for (h, head) in bank.heads().iter().enumerate() {
        let (g, column) = bank.place(h);
        let (group, of) = (&bank.statistics().groups[g], &expected[head.name.as_str()]);
        close("p", group.response().col(column), &of["p"]);
        close("q", &[group.energy()[column]], &of["q"]);
        let b: Vec<f64> = (0..m * m).map(|k| group.closed().coupling.at(k / m, k % m)).collect();
        close("B", &b, &of["B"]);
        let u = solution.weights(g).col(column);
        let mean = numbers(&case["query"]).chunks_exact(2).map(|x| dot(&features(x, all.len()), u)).collect::<Vec<_>>();
        close("mean", &mean, &of["mean"]);
    }
}

/// Whether the row before row i in its stream was truncated.
fn before_was_truncated(rows: &[Value], i: usize) -> bool {
    let before = rows[..i].iter().rev().find(|row| row["stream"] == rows[i]["stream"]);
    before.is_some_and(|row| row["truncated"].as_bool().unwrap())
}
