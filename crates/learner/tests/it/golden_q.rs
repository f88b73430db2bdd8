//! lambda, importance ratios, action values and variances agree with an independent implementation (tests/golden-q).

use crate::support::error;
use criticd_learner::action::{ActionColumns, Column};
use criticd_learner::batch::Given;
use criticd_learner::model::Model;
use criticd_learner::off_policy::{Episode, judge};
use criticd_learner::transition::probability::clipped;
use criticd_learner::transition::{Batch, BatchParts, Rows};
use criticd_learner::window::Window;
use criticd_learner::{Learner, VarianceKind};
use criticd_reference::golden_q::{action_value, empty, read};
use criticd_reference::numbers;
use serde_json::Value;

const CASES: [&str; 5] = [
    "v_lambda_05",
    "v_ratio_lambda_07",
    "q_box_sarsa_lambda_1",
    "q_discrete_sarsa_lambda_04",
    "q_discrete_expected_retrace_lambda_08",
];

/// The columns about actions.
fn columns(case: &Value) -> ActionColumns {
    let wide = |key: &str| {
        let numbers = |t: &Value| match &t[key] {
            Value::Array(_) => numbers(&t[key]),
            Value::Null => vec![],
            number => vec![number.as_f64().unwrap()],
        };
        let rows: Vec<Vec<f64>> = case["transitions"].as_array().unwrap().iter().map(numbers).collect();
        let width = rows.iter().map(Vec::len).max().unwrap();
        let filled = |row: Vec<f64>| if row.is_empty() { vec![f64::NAN; width] } else { row };
        Column { width, values: rows.into_iter().flat_map(filled).collect() }
    };
    ActionColumns {
        actions: wide("action"),
        behavior_probs: wide("behavior_prob"),
        target_probs: wide("target_prob"),
        next_actions: wide("next_action"),
        next_action_probs: wide("next_action_probs"),
    }
}

/// What the model is asked about, one input after the other.
fn query(case: &Value) -> Vec<f64> {
    let Some(of) = action_value(case) else { return numbers(&case["query"]) };
    let mut out = Vec::new();
    for pair in case["query"].as_array().unwrap() {
        out.extend(numbers(&pair[0]));
        let action = pair[1].as_f64().map_or_else(|| numbers(&pair[1]), |number| vec![number]);
        of.space.append(&action, &mut out).unwrap();
    }
    out
}

fn rows(case: &Value) -> Rows {
    let rows = state_rows(case);
    let Some(of) = action_value(case) else { return rows };
    let rho_max = case["rho_max"].as_f64();
    let found = of.rows(&rows, &columns(case), rho_max).unwrap();
    let mut learned: Vec<usize> = numbers(&case["expected"]["chains"]).into_iter().map(|i| i as usize).collect();
    learned.sort_unstable();
    assert_eq!(found.kept, learned, "rows that nothing names an action for are not learned");
    found.rows
}

fn state_rows(case: &Value) -> Rows {
    let mut rows = Rows::new(2, 1);
    for t in case["transitions"].as_array().unwrap() {
        rows.states.extend(numbers(&t["x"]));
        rows.next_states.extend(numbers(&t["x_next"]));
        rows.rewards.push(t["r"].as_f64().unwrap());
        rows.discounts.push(t["discount"].as_f64().unwrap_or(f64::NAN));
        rows.streams.push(t["stream"].as_u64().unwrap() as u32);
        rows.terminated.push(t["terminated"].as_bool().unwrap());
        rows.truncated.push(t["truncated"].as_bool().unwrap());
        rows.starts_chain.push(t["gap"].as_bool().unwrap());
        rows.ratios.push(match (t["target_prob"].as_f64(), t["behavior_prob"].as_f64()) {
            (Some(target), Some(behavior)) => target / behavior,
            _ => 1.0,
        });
    }
    rows
}

/// The case learned in pieces of so many rows, its TD errors those of the final weights.
fn learned(case: &Value, variance: VarianceKind, piece: usize) -> Model {
    let rows = rows(case);
    let mut model = empty(case, variance);
    for start in (0..rows.len()).step_by(piece) {
        model.learn(&rows, start..rows.len().min(start + piece), start as u64);
    }
    model.refresh();
    model.revisit(std::iter::once((&rows, 0..rows.len(), 0)));
    model
}

#[test]
fn statistics_weights_and_means_are_the_reference_however_rows_are_cut_into_pieces() {
    for name in CASES {
        let case = read(name);
        let expected = &case["expected"];
        for piece in [1, 7, 48] {
            let model = learned(&case, VarianceKind::Model, piece);
            let statistics = model.statistics();
            let m = statistics.features();
            let lower = |at: &dyn Fn(usize, usize) -> f64| -> Vec<f64> {
                (0..m).flat_map(|j| (j..m).map(move |i| (i, j))).map(|(i, j)| at(i, j)).collect()
            };
            let s = numbers(&expected["S"]);
            assert!(error(&lower(&|i, j| statistics.gram.at(i, j)), &lower(&|i, j| s[i * m + j])) < 1e-11, "{name} S");
            assert!(error(statistics.response.col(0), &numbers(&expected["p"])) < 1e-11, "{name} p");
            assert_eq!(statistics.rows, expected["rows_learned"].as_u64().unwrap());
            let posterior = model.solve().unwrap();
            let u = posterior.feature_weights();
            assert!(error(u.col(0), &numbers(&expected["u"])) < 1e-9, "{name} u");
            let found =
                model.snapshot(false).unwrap().evaluate(&query(&case), criticd_learner::snapshot::Ask::MEAN).unwrap();
            assert!(error(found.mean.as_slice(), &numbers(&expected["mean"])) < 1e-9, "{name} mean");
        }
    }
}

#[test]
fn variances_are_the_reference() {
    for name in CASES {
        let case = read(name);
        for (kind, key) in
            [(VarianceKind::Model, "model"), (VarianceKind::Rows, "rows"), (VarianceKind::Clustered, "clustered")]
        {
            for piece in [5, 48] {
                let model = learned(&case, kind, piece);
                let found = model
                    .snapshot(true)
                    .unwrap()
                    .evaluate(&query(&case), criticd_learner::snapshot::Ask::VARIANCE)
                    .unwrap();
                let off = error(&found.variance.unwrap(), &numbers(&case["expected"]["variance"][key]));
                assert!(off < 1e-9, "{name} {key}: {off:e}");
            }
        }
    }
}

#[test]
fn the_evidence_is_that_of_the_targets_at_the_fixed_point() {
    for name in CASES {
        let case = read(name);
        let model = learned(&case, VarianceKind::Model, 48);
        let (rows, hyperparameters) = (rows(&case), model.hyperparameters());
        let given = Given {
            settings: model.settings(),
            rows: &rows,
            inputs: model.inputs(),
            hyperparameters: &hyperparameters,
            lambda: model.lambda(),
            first: 0,
        };
        let found = given.sparse_evidence(&model, &|| true).unwrap();
        let expected = case["expected"]["log_evidence"].as_f64().unwrap();
        // The bound subtracts what the dictionary leaves out; the reference does not.
        let found = found.value + found.trace_gap;
        assert!((found - expected).abs() < 1e-9 * expected.abs(), "{name}: {found} {expected}");
    }
}

#[test]
fn another_policy_is_judged_as_the_reference_does() {
    let case = read("ope");
    let discount = case["discount"].as_f64().unwrap();
    let mut episodes: Vec<Vec<&Value>> = vec![Vec::new()];
    for t in case["transitions"].as_array().unwrap() {
        episodes.last_mut().unwrap().push(t);
        if t["terminated"].as_bool().unwrap() || t["truncated"].as_bool().unwrap() {
            episodes.push(Vec::new());
        }
    }
    episodes.retain(|episode| !episode.is_empty());
    let of = |key: &str| -> Vec<Vec<f64>> {
        episodes.iter().map(|e| e.iter().map(|t| t[key].as_f64().unwrap()).collect()).collect()
    };
    let (rewards, v, q) = (of("r"), of("v_hat"), of("q_hat"));
    let (behavior, target) = (of("behavior_prob"), of("target_prob"));
    let rho_max = case["rho_max"].as_f64();
    let ratios: Vec<Vec<f64>> = target
        .iter()
        .zip(&behavior)
        .map(|(t, b)| t.iter().zip(b).map(|(t, b)| clipped(t / b, rho_max)).collect())
        .collect();
    let discounts: Vec<Vec<f64>> = rewards.iter().map(|r| vec![discount; r.len()]).collect();
    let episodes: Vec<Episode<'_>> = (0..rewards.len())
        .map(|k| Episode {
            rewards: &rewards[k],
            discounts: &discounts[k],
            ratios: &ratios[k],
            model: Some((&v[k], &q[k])),
        })
        .collect();
    let found = judge(&episodes, 5.0);
    let expected = &case["expected"];
    assert!(error(&found.support.weights, &numbers(&expected["weights"])) < 1e-12);
    let support = [found.support.ess, found.support.largest, found.support.mean.value, found.support.zero_share];
    let keys = ["ess", "max_weight", "mean_weight", "zero_share"];
    assert!(error(&support, &keys.map(|key| expected[key].as_f64().unwrap())) < 1e-12);
    for (key, estimate) in [("is", found.is), ("wis", found.wis), ("pdis", found.pdis), ("dr", found.dr.unwrap())] {
        assert!(error(&[estimate.value, estimate.error], &numbers(&expected[key])) < 1e-12, "{key}");
    }
}

#[test]
fn an_emptied_model_learns_as_one_that_never_learned() {
    for name in CASES {
        let case = read(name);
        let once = learned(&case, VarianceKind::Rows, 48);
        let mut empty = once.emptied();
        assert!(empty.is_consistent());
        assert_eq!((empty.statistics().rows, empty.running_chains()), (0, 0), "{name}");
        assert_eq!(empty.dictionary().elements(), once.dictionary().elements());
        assert_eq!(empty.hyperparameters(), once.hyperparameters());
        let rows = rows(&case);
        empty.learn(&rows, 0..rows.len(), 0);
        assert_eq!(empty.statistics(), once.statistics(), "{name}");
        assert_eq!(empty.lambda(), once.lambda());
    }
}

/// The rows of the case as they arrive one by one, through the state machine that waits for the action that follows each.
#[test]
fn rows_as_they_arrive_give_the_reference() {
    for name in CASES.into_iter().filter(|name| name.starts_with("q_")) {
        let case = read(name);
        let model = learned(&case, VarianceKind::Model, 48);
        let settings = model.settings().clone();
        let mut learner = Learner::with_kernel_of(settings, None, 0, &model);
        let window = Window::new(2, 1, 10);
        let optional = |t: &Value, key: &str| match &t[key] {
            Value::Null => None,
            Value::Array(_) => Some(numbers(&t[key])),
            number => Some(vec![number.as_f64().unwrap()]),
        };
        for (offset, t) in case["transitions"].as_array().unwrap().iter().enumerate() {
            let batch = Batch::new(BatchParts {
                stream: t["stream"].to_string(),
                dim: 2,
                rewards_per_row: 1,
                states: numbers(&t["x"]),
                next_states: Some(numbers(&t["x_next"])),
                rewards: vec![t["r"].as_f64().unwrap()],
                discounts: optional(t, "discount"),
                actions: optional(t, "action"),
                terminated: Some(vec![t["terminated"].as_bool().unwrap()]),
                truncated: Some(vec![t["truncated"].as_bool().unwrap()]),
                behavior_probs: optional(t, "behavior_prob"),
                target_probs: optional(t, "target_prob"),
                next_actions: optional(t, "next_action"),
                next_action_probs: optional(t, "next_action_probs"),
                ..BatchParts::default()
            });
            let starts = t["gap"].as_bool().unwrap();
            learner.take(t["stream"].as_u64().unwrap() as u32, &[starts], &batch.unwrap(), offset as u64);
            drop(learner.step(&window));
        }
        let found = learner.snapshot(true).unwrap();
        assert_eq!(found.transitions, case["expected"]["rows_learned"].as_u64().unwrap(), "{name}");
        let found = found.evaluate(&query(&case), criticd_learner::snapshot::Ask::VARIANCE).unwrap();
        let off = [
            error(found.mean.as_slice(), &numbers(&case["expected"]["mean"])),
            error(&found.variance.unwrap(), &numbers(&case["expected"]["variance"]["model"])),
        ];
        assert!(off[0] < 1e-9 && off[1] < 1e-9, "{name}: {off:?}");
    }
}
