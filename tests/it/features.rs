//! `criticd features`: OMP-TD and OMP-BRM on features that a table has, and on kernel functions of several widths.

use crate::support::program::Bench;
use serde_json::Value;
use std::fmt::Write;

const DISCOUNT: f64 = 0.65;

/// Five states in a row, each with a feature of its own, the third `times` as large: V* needs the second, third and fourth.
fn chain(bench: &Bench, name: &str, discount: f64, times: f64) {
    let mut table = "f1,f2,f3,f4,f5,reward,terminated\n".to_owned();
    let first = -discount - discount.powi(2) - discount.powi(3);
    for (i, reward) in [first, 1.0, 1.0, 1.0, 0.0].into_iter().enumerate() {
        let of = |j: usize| if i == j { if j == 2 { times } else { 1.0 } } else { 0.0 };
        let features: Vec<String> = (0..5).map(|j| of(j).to_string()).collect();
        writeln!(table, "{},{reward},{}", features.join(","), u8::from(i == 4)).unwrap();
    }
    bench.file(name, &table);
}

fn chosen(found: &Value) -> Vec<String> {
    let of = found["features"].as_array().unwrap().iter();
    of.map(|step| step["feature"].as_str().unwrap().to_owned()).collect()
}

fn weight(found: &Value, feature: &str) -> f64 {
    let mut of = found["features"].as_array().unwrap().iter();
    of.find(|step| step["feature"] == feature).unwrap()["weight"].as_f64().unwrap()
}

#[test]
fn the_features_that_the_value_needs_are_those_of_the_notes() {
    let bench = Bench::new();
    chain(&bench, "chain.csv", DISCOUNT, 1.0);
    let ask = "features chain.csv --state f1,f2,f3,f4,f5 --discount";
    let found = bench.json(&format!("{ask} {DISCOUNT}"));
    let [td, brm] = [0, 1].map(|k| &found["pursuits"][k]);
    assert_eq!((chosen(td)[0].as_str(), chosen(td).len()), ("f1", 4), "the first state is in nobody's value");
    let mut of_brm = chosen(brm);
    assert_eq!(of_brm[0], "f2");
    of_brm.sort();
    assert_eq!(of_brm, ["f2", "f3", "f4"]);
    for (feature, value) in [("f2", 1.0 + DISCOUNT + DISCOUNT.powi(2)), ("f3", 1.0 + DISCOUNT), ("f4", 1.0)] {
        assert!((weight(brm, feature) - value).abs() < 1e-9, "{feature}: {brm}");
    }
    assert!(brm["error"].as_f64().unwrap() < 1e-9 && brm["bound"].as_f64().unwrap() < 1e-8);
    // Tropp's condition holds below 0.5807 alone.
    let coefficient = brm["recovery_coefficient"].as_f64().unwrap();
    assert!((coefficient - 1.14).abs() < 0.01 && brm["recovers"] == false, "{coefficient}");
    chain(&bench, "near.csv", 0.5, 1.0);
    let near = &bench.json("features near.csv --state f1,f2,f3,f4,f5 --by omp-brm --discount 0.5")["pursuits"][0];
    assert!(near["recovers"] == true && near["recovery_coefficient"].as_f64().unwrap() < 1.0, "{near}");
    let text = bench.text(&format!("{ask} {DISCOUNT}"));
    assert!(text.contains("not proved") && text.contains("exact recovery") && text.contains("f2, f3"), "{text}");
}

#[test]
fn a_threshold_ends_the_choice_and_unit_norms_take_units_out_of_it() {
    let bench = Bench::new();
    chain(&bench, "chain.csv", DISCOUNT, 1.0);
    chain(&bench, "large.csv", DISCOUNT, 1000.0);
    let of = |table: &str, more: &str| {
        let ask = format!("features {table} --state f1,f2,f3,f4,f5 --by omp-td --discount {DISCOUNT} {more}");
        bench.json(&ask)["pursuits"][0].clone()
    };
    // |Phi'R| / n is 0.27 for the first feature, and 0.2 for the next three.
    assert_eq!(chosen(&of("chain.csv", "--beta 0.25")), ["f1"]);
    assert!(chosen(&of("chain.csv", "--beta 0.3")).is_empty());
    let (left, few) = (of("chain.csv", "--beta 0.25"), of("chain.csv", "--features-max 1"));
    assert!(left["left"].as_f64().unwrap() <= 0.25 && few["left"] == left["left"]);
    assert_eq!(chosen(&of("large.csv", ""))[0], "f3", "for its unit");
    let unit = of("large.csv", "--unit-norm");
    assert_eq!(chosen(&unit), chosen(&of("chain.csv", "--unit-norm")));
    assert!(
        (weight(&unit, "f3") - (1.0 + DISCOUNT) / 1000.0).abs() < 1e-9,
        "weights are of the columns as they are: {unit}"
    );
    let (status, said) = bench.failure("features chain.csv --no-variables");
    assert!(status == 2 && said.contains("--widths"), "{said}");
}

#[test]
fn kernel_functions_of_several_widths_are_candidates_beside_each_other() {
    let bench = Bench::new();
    // A slow wave and a narrow bump, of which no single width is the best.
    let mut table = "x,reward,terminated\n".to_owned();
    for i in 0..200u32 {
        let x = f64::from(i * 37 % 200) / 20.0 - 5.0;
        writeln!(table, "{x},{},1", (0.6 * x).sin() + 2.0 * (-12.5 * (x - 1.0).powi(2)).exp()).unwrap();
    }
    bench.file("bump.csv", &table);
    let error = |widths: &str| {
        let ask = "features bump.csv --state x --no-variables --by omp-brm --features-max 8 --unit-norm --centres 200";
        let found = bench.json(&format!("{ask} --widths {widths}"));
        let pursuit = &found["pursuits"][0];
        (pursuit["error"].as_f64().unwrap(), chosen(pursuit))
    };
    let ((both, features), (wide, _), (narrow, _)) = (error("0.07,0.6"), error("0.6"), error("0.07"));
    assert!(both < 0.5 * wide && both < 0.5 * narrow, "{both} {wide} {narrow}");
    assert!(["width 0.07", "width 0.6"].iter().all(|w| features.iter().any(|f| f.starts_with(w))), "{features:?}");
}
