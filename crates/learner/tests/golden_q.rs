//! lambda, importance ratios and variances agree with an independent implementation (tests/golden-q).

use criticd_learner::math::dictionary::Dictionary;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::model::Model;
use criticd_learner::snapshot::Inputs;
use criticd_learner::transition::Rows;
use criticd_learner::{Lambda, Settings, VarianceKind};
use serde_json::Value;

const CASES: [&str; 2] = ["v_lambda_05", "v_ratio_lambda_07"];

fn read(name: &str) -> Value {
    let path = format!("{}/../../tests/golden-q/{name}.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect()
}

fn flat(value: &Value) -> Vec<f64> {
    value.as_array().unwrap().iter().flat_map(numbers).collect()
}

fn rows(case: &Value) -> Rows {
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
    let kernel = &case["kernel"];
    let number = |key: &str| kernel[key].as_f64().unwrap();
    let kernel = Kernel::gaussian(number("v0"), number("b"), Metric::Ard(numbers(&kernel["relevance"])));
    let settings = Settings {
        discount: case["discount"].as_f64().unwrap(),
        lambda: Lambda::Fixed(case["lambda"].as_f64().unwrap()),
        rho_max: case["rho_max"].as_f64().unwrap_or(f64::INFINITY),
        variance,
        tune_noise: false,
        ..Settings::default()
    };
    let mut dictionary = Dictionary::from_elements(kernel.clone(), 2, &flat(&case["dictionary"])).unwrap();
    dictionary.set_max(dictionary.len());
    let noise_variance = case["noise_variance"].as_f64().unwrap();
    let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance };
    let mut model = Model::with_dictionary(settings, Inputs::identity(2), &hyperparameters, dictionary);
    let rows = rows(case);
    for start in (0..rows.len()).step_by(piece) {
        model.learn(&rows, start..rows.len().min(start + piece), start as u64);
    }
    model.refresh();
    model.revisit(std::iter::once((&rows, 0..rows.len(), 0)));
    model
}

/// Largest difference relative to the largest magnitude expected.
fn error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1e-300f64, |s, v| s.max(v.abs()));
    found.iter().zip(expected).fold(0.0f64, |worst, (a, b)| worst.max((a - b).abs())) / scale
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
            let s = flat(&expected["S"]);
            assert!(error(&lower(&|i, j| statistics.gram.at(i, j)), &lower(&|i, j| s[i * m + j])) < 1e-11, "{name} S");
            assert!(error(statistics.response.col(0), &numbers(&expected["p"])) < 1e-11, "{name} p");
            assert_eq!(statistics.rows, expected["rows_learned"].as_u64().unwrap());
            let posterior = model.solve().unwrap();
            let u = posterior.feature_weights();
            assert!(error(u.col(0), &numbers(&expected["u"])) < 1e-9, "{name} u");
            let found = model
                .snapshot(false)
                .unwrap()
                .evaluate(&flat(&case["query"]), criticd_learner::snapshot::Ask::MEAN)
                .unwrap();
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
                    .evaluate(&flat(&case["query"]), criticd_learner::snapshot::Ask::VARIANCE)
                    .unwrap();
                let off = error(&found.variance.unwrap(), &numbers(&case["expected"]["variance"][key]));
                assert!(off < 1e-9, "{name} {key}: {off:e}");
            }
        }
    }
}

#[test]
fn an_emptied_model_learns_as_one_that_never_learned() {
    for name in CASES {
        let case = read(name);
        let once = learned(&case, VarianceKind::Rows, 48);
        let mut empty = once.emptied();
        assert!(empty.holds_together());
        assert_eq!((empty.statistics().rows, empty.running_chains()), (0, 0), "{name}");
        assert_eq!(empty.dictionary().elements(), once.dictionary().elements());
        assert_eq!(empty.hyperparameters(), once.hyperparameters());
        let rows = rows(&case);
        empty.learn(&rows, 0..rows.len(), 0);
        assert_eq!(empty.statistics(), once.statistics(), "{name}");
        assert_eq!(empty.lambda(), once.lambda());
    }
}
