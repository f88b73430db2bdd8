//! Reference cases of tests/golden-heads.

use crate::{TESTS, numbers};
use criticd_learner::transition::Rows;
use serde_json::Value;

pub fn read(name: &str) -> Value {
    let path = format!("{TESTS}/golden-heads/{name}.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

pub fn heads(case: &Value) -> &Vec<Value> {
    case["heads"].as_array().unwrap()
}

/// Half-life in rows of the case's factor; none if it has none, or 1.
pub fn half_life(case: &Value) -> Option<f64> {
    case["forgetting"].as_f64().filter(|&factor| factor < 1.0).map(|factor| -1.0 / factor.log2())
}

/// The rows as a critic of this head alone would see them, its cumulant for a reward.
pub fn rows(case: &Value, head: &Value) -> Rows {
    let cumulant = &head["cumulant"];
    let index = cumulant["index"].as_u64().unwrap() as usize;
    let column = match cumulant["kind"].as_str().unwrap() {
        "reward" => "reward",
        "next_state" => "x_next",
        other => panic!("a cumulant of kind {other}"),
    };
    let mut rows = Rows::new(2, 1);
    for row in case["rows"].as_array().unwrap() {
        rows.states.extend(numbers(&row["x"]));
        rows.next_states.extend(numbers(&row["x_next"]));
        rows.rewards.push(numbers(&row[column])[index]);
        rows.discounts.push(f64::NAN);
        rows.ratios.push(1.0);
        rows.streams.push(row["stream"].as_u64().unwrap() as u32);
        rows.terminated.push(row["terminated"].as_bool().unwrap());
        rows.truncated.push(row["truncated"].as_bool().unwrap());
        rows.starts_chain.push(row["starts_chain"].as_bool().unwrap());
    }
    rows
}
