//! `criticd fit` says where what follows depends on more than the state, and `criticd value` what it knows of states together.

use crate::support::program::Bench;
use criticd::learner::random::{mix, normal, uniform};
use serde_json::Value;
use std::fmt::Write;

/// A swing that is damped and shaken: where it will be depends on where it is and on how fast it moves.
fn swing(bench: &Bench, chains: u64) {
    let mut table = "run,y,v,reward,terminated,truncated\n".to_owned();
    for run in 0..chains {
        let [mut y, mut v] = [0, 1].map(|what| 2.0 * uniform(mix(&[run, what])) - 1.0);
        for step in 0..26u64 {
            writeln!(table, "{run},{y},{v},{y},0,{}", u8::from(step == 25)).unwrap();
            (y, v) = (y + 0.3 * v, v - 0.3 * y - 0.03 * v + 0.05 * normal(mix(&[run, step, 2])));
        }
    }
    bench.file("swing.csv", &table);
}

#[test]
fn a_speed_that_is_missing_from_the_state_is_noticed() {
    let bench = Bench::new();
    swing(&bench, 140);
    let fit = "fit swing.csv --episode run --discount 0.9 --kernel isotropic --budget 2 --hold-out 0 --out swing.model";
    let of = |state: &str| bench.json(&format!("{fit} --state {state}"));
    let (whole, half) = (of("y,v"), of("y"));
    let ratio = |found: &Value| found["hidden_state"]["ratio"].as_f64().unwrap();
    assert!(ratio(&whole) < 4.0 && ratio(&half) > 6.0, "{} {}", ratio(&whole), ratio(&half));
    assert_eq!(whole["hidden_state"]["chains"], 140);
    let said = |found: &Value| found["text"].as_str().unwrap().contains("depends on more than the state");
    assert!(said(&half) && !said(&whole));
    // Few chains are no ground for a warning.
    swing(&bench, 60);
    assert!(!said(&of("y")));
}

#[test]
fn values_of_states_are_compared_together() {
    let bench = Bench::new();
    swing(&bench, 40);
    bench.text("fit swing.csv --state y,v --episode run --discount 0.9 --kernel isotropic --budget 2 --hold-out 0 --out swing.model");
    bench.file("plans.csv", "y,v\n0.5,0\n0.52,0\n-0.5,0\n");
    let value = "value swing.model plans.csv";
    let plain = bench.json(value);
    let found = bench.json(&format!("{value} --covariance --samples 2000 --seed 3"));
    for key in ["mean", "variance", "return_variance", "known"] {
        assert_eq!(found[key], plain[key], "{key}");
    }
    assert!(plain["covariance"].is_null() && plain["samples"].is_null());
    let number = |value: &Value| value.as_f64().unwrap();
    let covariance = |i: usize, j: usize| number(&found["covariance"][i][j]);
    for i in 0..3 {
        let (on, variance) = (covariance(i, i), number(&found["variance"][i]));
        assert!((on - variance).abs() < 1e-4 * variance, "{on} {variance}");
        (0..3).for_each(|j| assert_eq!(covariance(i, j), covariance(j, i)));
    }
    // Neighbours are known together: their difference is surer than each of them.
    let apart = covariance(0, 0) + covariance(1, 1) - 2.0 * covariance(0, 1);
    assert!(apart >= 0.0 && apart < 0.1 * covariance(0, 0), "{apart}");
    let samples = found["samples"].as_array().unwrap();
    let differences: Vec<f64> = samples.iter().map(|of| number(&of[0]) - number(&of[2])).collect();
    let count = differences.len() as f64;
    let mean = differences.iter().sum::<f64>() / count;
    let spread = differences.iter().map(|d| (d - mean).powi(2)).sum::<f64>() / count;
    let expected = covariance(0, 0) + covariance(2, 2) - 2.0 * covariance(0, 2);
    assert!((spread / expected - 1.0).abs() < 0.15, "{spread} {expected}");
    assert_eq!(found, bench.json(&format!("{value} --covariance --samples 2000 --seed 3")), "the same seed");
    assert_ne!(found["samples"], bench.json(&format!("{value} --samples 2000 --seed 4"))["samples"]);
    let text = bench.text(&format!("{value} --covariance --samples 2"));
    assert!(text.contains("covariance") && text.contains("sample 2"), "{text}");
    let (status, said) = bench.failure("value tcp://127.0.0.1:1 plans.csv --covariance");
    assert!(status == 2 && said.contains("criticd snapshot"), "{said}");
}

#[test]
fn the_period_of_a_wheel_is_learned() {
    let bench = Bench::new();
    let mut table = "run,place,reward,terminated,truncated\n".to_owned();
    for run in 0..40u64 {
        let mut place = 40.0 * uniform(mix(&[run, 0]));
        for step in 0..20u64 {
            let earned = (std::f64::consts::TAU * place / 7.3).cos() + 0.2 * normal(mix(&[run, step, 1]));
            writeln!(table, "{run},{place},{earned},0,{}", u8::from(step == 19)).unwrap();
            place += 0.4 + 0.2 * normal(mix(&[run, step, 2]));
        }
    }
    bench.file("wheel.csv", &table);
    let fit = "fit wheel.csv --state place --episode run --discount 0.5 --budget 2 --hold-out 0 --out wheel.model --state-kinds";
    let found = bench.json(&format!("{fit} periodic"));
    let kind = found["kernel"]["kinds"][0].as_str().unwrap().to_owned();
    let period: f64 = kind.strip_prefix("periodic:").unwrap().parse().unwrap();
    let scale = found["inputs"]["scale"][0].as_f64().unwrap_or(1.0);
    assert!((period * scale / 7.3 - 1.0).abs() < 0.02, "{kind} {scale}");
    let (_, said) = bench.failure("fit wheel.csv --state place --out wheel.model --state-kinds circular");
    assert!(said.contains("\"periodic\" alone"), "{said}");
}
