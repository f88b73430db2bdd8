//! `criticd fit`: leave-one-out errors, and hyperparameters by them.

use crate::support::program::Bench;
use criticd::learner::random::{mix, normal};
use std::fmt::Write;

/// A noisy wave, in which `row` is left out.
fn wave(bench: &Bench, name: &str, left_out: Option<usize>) {
    let mut table = "x,y\n".to_owned();
    for i in (0..60).filter(|&i| Some(i) != left_out) {
        let x = f64::from(i as u32 * 23 % 60) / 15.0 - 2.0;
        let noise = 0.2 * normal(mix(&[3, i as u64]));
        writeln!(table, "{x},{}", (2.0 * x).sin() + noise).unwrap();
    }
    bench.file(name, &table);
}

#[test]
fn the_error_is_that_of_models_that_lack_a_row_and_selects_a_kernel() {
    let bench = Bench::new();
    wave(&bench, "wave.csv", None);
    let fit = "fit wave.csv --state x --target y --seed 1";
    let found = bench.json(&format!("{fit} --out wave.model"));
    let left_out = &found["leave_one_out"];
    let error = left_out["error"].as_f64().unwrap();
    assert!(left_out["of"] == "target" && left_out["selection"].is_null(), "{left_out}");
    // The noise is 0.2; what 59 others predict is off by a little more.
    assert!((0.15..0.3).contains(&error), "{error}");
    let chosen = bench.json(&format!("{fit} --selection loo --out chosen.model"));
    // It begins with the model of the evidence.
    let of = |key: &str| chosen["leave_one_out"]["selection"][key].as_f64().unwrap();
    let evidence = left_out["relative_squared_error"].as_f64().unwrap();
    assert!((of("before") - evidence).abs() < 0.02 * evidence, "{evidence}");
    assert!(of("after") <= of("before") && of("tried") > 5.0, "{}", chosen["leave_one_out"]);
    let relative = chosen["leave_one_out"]["relative_squared_error"].as_f64().unwrap();
    assert!((relative - of("after")).abs() < 1e-6, "what was chosen is what was written: {relative}");
    assert!(bench.text(&format!("{fit} --selection loo --out chosen.model")).contains("leave-one-out error"));
    bench.file("at.csv", "x\n0.3\n");
    let mean = bench.json("value chosen.model at.csv")["mean"][0].as_f64().unwrap();
    assert!((mean - 0.6f64.sin()).abs() < 0.2, "{mean}");
}

#[test]
fn what_has_none_is_told() {
    let bench = Bench::new();
    bench.file("walk.csv", "x,reward,terminated\n0,1,0\n1,0,0\n2,1,1\n0.5,1,0\n1.5,0,1\n");
    let (status, said) = bench.failure("fit walk.csv --state x --selection loo --out walk.model");
    assert!(status == 2 && said.contains("--target"), "{said}");
    wave(&bench, "wave.csv", Some(3));
    let (status, said) = bench.failure("fit wave.csv --state x --target y --selection returns --out wave.model");
    assert!(status == 2 && said.contains("evidence and loo"), "{said}");
}
