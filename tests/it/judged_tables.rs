//! `criticd evaluate` of the reference case: episodes as a table, and what they say about another policy, to the digits of an
//! independent implementation. Its doubly robust estimate is that of given values (`crates/learner/tests/it/golden_q.rs`): the
//! command fits values of its own.

use crate::support::program::Bench;
use criticd_reference::numbers;
use serde_json::Value;
use std::fmt::Write as _;

/// Quantile of the standard normal distribution that bounds nine tenths of it from both sides.
const NINE_TENTHS: f64 = 1.644_853_626_951_472_2;

fn case() -> Value {
    let path = format!("{}/tests/golden-q/ope.json", env!("CARGO_MANIFEST_DIR"));
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// The number of each row's episode, and of the row in it.
fn places(rows: &[Value]) -> Vec<(usize, usize)> {
    let (mut episode, mut step) = (0, 0);
    let place = |row: &Value| {
        let place = (episode, step);
        let ends = ["terminated", "truncated"].iter().any(|flag| row[*flag] == true);
        (episode, step) = if ends { (episode + 1, 0) } else { (episode, step + 1) };
        place
    };
    rows.iter().map(place).collect()
}

/// The rows in `order`, as CSV; the stream of each is `stream` of it.
fn table(rows: &[Value], order: &[usize], stream: impl Fn(usize) -> usize) -> String {
    let mut text = "stream,state_0,next_state_0,reward,behavior_prob,target_prob,terminated,truncated\n".to_owned();
    for &i in order {
        let row = &rows[i];
        let of = |key: &str| number(&row[key]);
        let (state, next) = (numbers(&row["x"])[0], numbers(&row["x_next"])[0]);
        write!(text, "{},{state},{next},{},{},{}", stream(i), of("r"), of("behavior_prob"), of("target_prob")).unwrap();
        writeln!(text, ",{},{}", row["terminated"], row["truncated"]).unwrap();
    }
    text
}

/// Assert that a number is the expected one to 1e-9 of it, or of 1 if that is less.
fn assert_near(what: &str, found: &Value, expected: f64) {
    let off = (number(found) - expected).abs() / expected.abs().max(1.0);
    assert!(off < 1e-9, "{what}: {found} where {expected} is expected, off by {off:e}");
}

/// Assert that a report of `criticd evaluate` says what the reference says.
fn assert_reference(found: &Value, case: &Value) {
    let expected = &case["expected"];
    let weights = numbers(&expected["weights"]);
    assert_eq!(found["transitions"], case["transitions"].as_array().unwrap().len());
    assert_eq!(found["episodes"], weights.len());
    for (key, reference) in
        [("ess", "ess"), ("largest", "max_weight"), ("mean", "mean_weight"), ("zero_share", "zero_share")]
    {
        assert_near(key, &found["weights"][key], number(&expected[reference]));
    }
    let (n, mean) = (weights.len() as f64, number(&expected["mean_weight"]));
    let square: f64 = weights.iter().map(|weight| (weight - mean) * (weight - mean)).sum();
    assert_near("mean_error", &found["weights"]["mean_error"], (square / (n - 1.0) / n).sqrt());
    for name in ["is", "wis", "pdis"] {
        let estimate = &found["estimates"][name];
        let [value, error] = numbers(&expected[name])[..] else { panic!("{name} has a value and an error") };
        assert_near(name, &estimate["value"], value);
        assert_near(name, &estimate["error"], error);
    }
}

#[test]
fn a_table_of_episodes_is_judged_as_the_reference_does() {
    let (bench, case) = (Bench::new(), case());
    let rows = case["transitions"].as_array().unwrap();
    let order: Vec<usize> = (0..rows.len()).collect();
    bench.file("log.csv", &table(rows, &order, |_| 0));
    let evaluate = format!("evaluate log.csv --discount {}", case["discount"]);
    let found = bench.json(&evaluate);
    assert_reference(&found, &case);
    assert!(found["estimates"]["dr"].is_null() && found["estimates"]["fqe"].is_null(), "no Q was asked for: {found}");
    // Six episodes are too few by default, and enough where that is said.
    assert!(found["estimates"]["is"]["interval"].is_null() && found["refused"][0].is_string(), "{found}");
    let found = bench.json(&format!("{evaluate} --ess-min 5"));
    assert_reference(&found, &case);
    for name in ["is", "wis", "pdis"] {
        let [value, error] = numbers(&case["expected"][name])[..] else { panic!("{name} has a value and an error") };
        let interval = &found["estimates"][name]["interval"];
        assert_near(name, &interval[0], value - NINE_TENTHS * error);
        assert_near(name, &interval[1], value + NINE_TENTHS * error);
    }
}

#[test]
fn episodes_that_take_turns_are_judged_as_those_one_after_the_other() {
    let (bench, case) = (Bench::new(), case());
    let rows = case["transitions"].as_array().unwrap();
    let places = places(rows);
    // The first row of each episode, then the second, and so on.
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&i| (places[i].1, places[i].0));
    assert_ne!(order[1], 1, "rows of several episodes in turns");
    bench.file("log.csv", &table(rows, &order, |i| places[i].0));
    assert_reference(&bench.json(&format!("evaluate log.csv --discount {}", case["discount"])), &case);
}

#[test]
fn a_limit_on_ratios_is_one_on_those_of_each_row() {
    const MOST: f64 = 1.25;
    let (bench, case) = (Bench::new(), case());
    let rows = case["transitions"].as_array().unwrap();
    let (order, places) = ((0..rows.len()).collect::<Vec<usize>>(), places(rows));
    bench.file("log.csv", &table(rows, &order, |_| 0));
    let discount = number(&case["discount"]);
    let found = bench.json(&format!("evaluate log.csv --discount {discount} --rho-max {MOST}"));
    assert_eq!(found["weights"]["rho_max"], MOST);
    let episodes = places.last().unwrap().0 + 1;
    let (mut weights, mut earned, mut per_decision) = (vec![1.0; episodes], vec![0.0; episodes], 0.0);
    for (row, &(episode, step)) in rows.iter().zip(&places) {
        let ratio = (number(&row["target_prob"]) / number(&row["behavior_prob"])).min(MOST);
        let reward = discount.powi(step as i32) * number(&row["r"]);
        weights[episode] *= ratio;
        earned[episode] += reward;
        per_decision += weights[episode] * reward / episodes as f64;
    }
    let both: f64 = weights.iter().zip(&earned).map(|(weight, earned)| weight * earned).sum();
    let total: f64 = weights.iter().sum();
    assert_near("is", &found["estimates"]["is"]["value"], both / episodes as f64);
    assert_near("wis", &found["estimates"]["wis"]["value"], both / total);
    assert_near("pdis", &found["estimates"]["pdis"]["value"], per_decision);
    assert_near("mean", &found["weights"]["mean"], total / episodes as f64);
}
