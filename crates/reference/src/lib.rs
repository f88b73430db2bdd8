//! Reference cases and small builders, for the tests of the learner and of the program.

pub mod golden_heads;
pub mod golden_q;
pub mod golden_remove_merge;
pub mod golden_world;

use criticd_learner::Settings;
use criticd_learner::math::dictionary::Dictionary;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::model::Model;
use criticd_learner::snapshot::Inputs;
use criticd_learner::transition::Rows;
use serde_json::Value;
use std::collections::HashMap;

/// One reference case (tests/golden/README.md).
pub struct Case {
    pub name: String,
    pub json: Value,
    pub dim: usize,
    pub discount: f64,
    pub hyperparameters: Hyperparameters,
    pub rows: Rows,
    pub query: Vec<f64>,
}

pub const CASES: [&str; 13] = [
    "multi_ard_mc",
    "multi_fa_td",
    "open_iso_mc",
    "term_ard_mc",
    "term_ard_td",
    "term_fa_mc",
    "term_iso_mc",
    "tiny_one_terminated",
    "tiny_one_transition",
    "trunc_ard_mc",
    "trunc_ard_td",
    "trunc_fa_mc",
    "trunc_iso_mc",
];

pub fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        other => vec![other.as_f64().unwrap_or_else(|| panic!("{other} is not a number"))],
    }
}

/// A model with the kernel, the noise and the dictionary of a case, which has learned nothing.
pub fn with_kernel(case: &Value, settings: Settings) -> Model {
    let kernel = &case["kernel"];
    let number = |key: &str| kernel[key].as_f64().unwrap();
    let kernel = Kernel::gaussian(number("v0"), number("b"), Metric::Ard(numbers(&kernel["relevance"])));
    let dim = numbers(&case["dictionary"][0]).len();
    let mut dictionary = Dictionary::from_elements(kernel.clone(), dim, &numbers(&case["dictionary"])).unwrap();
    dictionary.close();
    let noise_variance = case["noise_variance"].as_f64().unwrap();
    let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance };
    Model::with_dictionary(settings, Inputs::identity(dim), &hyperparameters, dictionary)
}

/// The folder `tests` of the repository.
pub const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests");

pub fn case(name: &str) -> Case {
    let path = format!("{TESTS}/golden/{name}.json");
    let json: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let kernel = &json["kernel"];
    let dim = kernel["D"].as_u64().unwrap() as usize;
    let metric = match kernel["kind"].as_str().unwrap() {
        "iso" => Metric::Isotropic(kernel["h"].as_f64().unwrap()),
        "ard" => Metric::Ard(numbers(&kernel["a"])),
        _ => {
            let rank = kernel["rank"].as_u64().unwrap() as usize;
            let m = numbers(&kernel["M"]);
            let factors = (0..rank).map(|k| (0..dim).map(|d| m[d * rank + k]).collect()).collect();
            Metric::Factor { relevance: numbers(&kernel["a"]), factors }
        }
    };
    let hyperparameters = Hyperparameters {
        kernel: Kernel::gaussian(kernel["v0"].as_f64().unwrap(), kernel["b"].as_f64().unwrap(), metric),
        noise: if json["noise"] == "td" { NoiseModel::White } else { NoiseModel::Correlated },
        noise_variance: kernel["s2"].as_f64().unwrap(),
    };
    let mut rows = Rows::new(dim, 1);
    let mut last: HashMap<u64, usize> = HashMap::new();
    for (i, t) in json["transitions"].as_array().unwrap().iter().enumerate() {
        let stream = t["stream"].as_u64().unwrap();
        let state = numbers(&t["x"]);
        let starts =
            last.get(&stream).is_none_or(|&k| rows.terminated[k] || rows.truncated[k] || rows.next_state(k) != state);
        push(
            &mut rows,
            stream as u32,
            starts,
            &state,
            &[t["r"].as_f64().unwrap()],
            &numbers(&t["x_next"]),
            t["terminated"].as_bool().unwrap(),
            t["truncated"].as_bool().unwrap(),
        );
        last.insert(stream, i);
    }
    Case {
        name: name.into(),
        dim,
        discount: json["gamma"].as_f64().unwrap(),
        hyperparameters,
        rows,
        query: numbers(&json["query"]),
        json,
    }
}

#[allow(clippy::too_many_arguments)]
pub fn push(
    rows: &mut Rows,
    stream: u32,
    starts_chain: bool,
    state: &[f64],
    reward: &[f64],
    next_state: &[f64],
    terminated: bool,
    truncated: bool,
) {
    rows.states.extend_from_slice(state);
    rows.next_states.extend_from_slice(next_state);
    rows.rewards.extend_from_slice(reward);
    rows.discounts.push(f64::NAN);
    rows.ratios.push(1.0);
    rows.streams.push(stream);
    rows.terminated.push(terminated);
    rows.truncated.push(truncated);
    rows.starts_chain.push(starts_chain);
}

/// Largest difference relative to the larger of 1 and the expected magnitude.
pub fn distance(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1.0f64, |a, b| a.max(b.abs()));
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / scale
}

/// Rows of a made-up stream: `streams` interleaved random walks in the unit square with smooth rewards, ends, time limits
/// and gaps, all from a fixed seed.
pub fn wander(count: usize, streams: u32, rewards: usize, seed: u64) -> Rows {
    use rand::{RngExt, SeedableRng};
    let mut rng = rand_chacha::ChaCha8Rng::seed_from_u64(seed);
    let mut rows = Rows::new(2, rewards);
    let mut at: Vec<Option<[f64; 2]>> = vec![None; streams as usize];
    for _ in 0..count {
        let stream = rng.random_range(0..streams);
        let gap = rng.random::<f64>() < 0.03;
        let (starts, state) = match at[stream as usize] {
            Some(state) if !gap => (false, state),
            _ => (true, [rng.random::<f64>() * 2.0 - 1.0, rng.random::<f64>() * 2.0 - 1.0]),
        };
        let mut next = state;
        for v in &mut next {
            *v = (*v + 0.3 * (rng.random::<f64>() - 0.5)).clamp(-1.0, 1.0);
        }
        let reward: Vec<f64> = (0..rewards)
            .map(|h| (2.0 * state[0] + h as f64).sin() + state[1] + 0.1 * (rng.random::<f64>() - 0.5))
            .collect();
        let (terminated, truncated) = (rng.random::<f64>() < 0.02, rng.random::<f64>() < 0.04);
        push(&mut rows, stream, starts, &state, &reward, &next, terminated, truncated);
        if rng.random::<f64>() < 0.2 {
            *rows.discounts.last_mut().unwrap() = 0.5 + 0.5 * rng.random::<f64>();
        }
        at[stream as usize] = (!(terminated || truncated)).then_some(next);
    }
    rows
}

/// Generated cases are the same in every run, unless the variable PROPTEST_RNG_SEED asks for others: then failures are new
/// ones, to be kept as tests of their own.
pub fn explicit_seed() -> proptest::test_runner::Config {
    use proptest::test_runner::{Config, RngSeed};
    let mut config = Config { failure_persistence: None, ..Config::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(0);
    }
    config
}
