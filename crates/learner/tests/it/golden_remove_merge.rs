//! Rows that are removed, sums that are merged and messages that a coordinator takes come to what an independent implementation says
//! (tests/golden-remove-merge).

use criticd_reference::golden_remove_merge::{CASES, answer, read};
use serde_json::Value;

/// Every number of `expected` is where it is in `found`, to 1e-8 of the larger of 1 and the number; all else is the same.
fn assert_alike(place: &str, found: &Value, expected: &Value) {
    match (found, expected) {
        (Value::Object(found), Value::Object(expected)) => {
            let keys = |of: &serde_json::Map<String, Value>| {
                let mut keys: Vec<String> = of.keys().cloned().collect();
                keys.sort();
                keys
            };
            assert_eq!(keys(found), keys(expected), "{place}");
            expected.iter().for_each(|(key, value)| assert_alike(&format!("{place}.{key}"), &found[key], value));
        }
        (Value::Array(found), Value::Array(expected)) => {
            assert_eq!(found.len(), expected.len(), "{place}");
            for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
                assert_alike(&format!("{place}[{k}]"), found, expected);
            }
        }
        (Value::Number(found), Value::Number(expected)) => {
            let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
            assert!((found - expected).abs() <= 1e-8 * expected.abs().max(1.0), "{place}: {found} for {expected}");
        }
        _ => assert_eq!(found, expected, "{place}"),
    }
}

#[test]
fn what_is_removed_and_merged_is_the_reference() {
    for name in CASES {
        let mut case = read(name);
        let expected = case.as_object_mut().unwrap().remove("expected").unwrap();
        assert_alike(name, &answer(&case), &expected);
    }
}
