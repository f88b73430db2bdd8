//! Reference cases of tests/golden-q.

use crate::{TESTS, with_kernel};
use criticd_learner::action::{ActionSpace, ActionValue};
use criticd_learner::model::Model;
use criticd_learner::{Lambda, Settings, VarianceKind};
use serde_json::Value;

pub fn read(name: &str) -> Value {
    let path = format!("{TESTS}/golden-q/{name}.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// What is learned of actions, in a case about them.
pub fn action_value(case: &Value) -> Option<ActionValue> {
    let action = case["action"].as_object().filter(|_| case["head"] == "q")?;
    let n = action["n"].as_u64().unwrap() as usize;
    Some(ActionValue {
        space: match action["kind"].as_str().unwrap() {
            "discrete" => ActionSpace::Discrete(n),
            _ => ActionSpace::Box { low: vec![-2.0; n], high: vec![2.0; n] },
        },
        successor: serde_json::from_value(case["successor"].clone()).unwrap(),
        trace: serde_json::from_value(case["trace"].clone()).unwrap(),
    })
}

/// A model with the case's kernel and dictionary that has learned nothing.
pub fn empty(case: &Value, variance: VarianceKind) -> Model {
    let settings = Settings {
        action_value: action_value(case),
        discount: case["discount"].as_f64().unwrap(),
        lambda: Lambda::Fixed(case["lambda"].as_f64().unwrap()),
        rho_max: case["rho_max"].as_f64(),
        variance,
        estimate_scale: false,
        ..Settings::default()
    };
    with_kernel(case, settings)
}
