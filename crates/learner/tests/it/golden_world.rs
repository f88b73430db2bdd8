//! A model of the transition agrees with an independent implementation (tests/golden-world), in every number of every case.

use criticd_reference::golden_world::{answers, read};
use serde_json::Value;

const CASES: [&str; 7] = ["chain_101", "mp_102", "backfit_4", "ols_3", "box_5", "terminated_106", "coarse_707"];

/// Numbers compared below `expected`, and the worst difference relative to the larger of 1 and the value.
fn compare(place: &str, found: &Value, expected: &Value, worst: &mut (f64, String)) -> usize {
    match expected {
        Value::Object(expected) => {
            expected.iter().map(|(key, value)| compare(&format!("{place}.{key}"), &found[key], value, worst)).sum()
        }
        Value::Array(expected) => {
            let items = found.as_array().unwrap_or_else(|| panic!("{place}: {found} is no list"));
            assert_eq!(items.len(), expected.len(), "{place}: {found}");
            let pairs = items.iter().zip(expected).enumerate();
            pairs.map(|(i, (found, value))| compare(&format!("{place}[{i}]"), found, value, worst)).sum()
        }
        number => {
            let value = number.as_f64().unwrap_or_else(|| panic!("{place}: {number} is no number"));
            let found = found.as_f64().unwrap_or_else(|| panic!("{place}: {found} is no number"));
            let off = (found - value).abs() / value.abs().max(1.0);
            assert!(off < 1e-7, "{place}: {found}, not {value}");
            if off > worst.0 {
                *worst = (off, place.to_string());
            }
            1
        }
    }
}

#[test]
fn every_number_of_every_case_is_the_reference() {
    for name in CASES {
        let mut case = read(name);
        let expected = case.as_object_mut().unwrap().remove("expected").unwrap();
        let found = answers(&case);
        assert!(found["error"].is_null(), "{name}: {}", found["error"]);
        let (mut worst, keys) = ((0.0, String::new()), |of: &Value| of.as_object().unwrap().len());
        assert_eq!(keys(&found), keys(&expected), "{name}");
        let count = compare(name, &found, &expected, &mut worst);
        println!("{name}: {count} numbers, worst {:.1e} at {}", worst.0, worst.1);
        assert!(count > 500, "{name}: {count} numbers");
    }
}
