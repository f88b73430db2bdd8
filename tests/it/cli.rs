//! The commands that work on files, run as a user runs them, against an independent implementation.

use crate::support::program::Bench;
use criticd::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd::transition::Rows;
use criticd::wire::hyperparameters_to_json;
use criticd_reference::{CASES, Case, case, distance, golden_heads, numbers, wander};
use serde_json::{Value, json};
use std::fmt::Write;
use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn write_states(bench: &Bench, name: &str, dim: usize, states: &[f64]) {
    let mut text = heads("state", dim).join(",") + "\n";
    for state in states.chunks_exact(dim) {
        text += &(state.iter().map(f64::to_string).collect::<Vec<_>>().join(",") + "\n");
    }
    bench.file(name, &text);
}

fn write_table(bench: &Bench, name: &str, rows: &Rows) {
    bench.file(name, &table(rows, &(0..rows.len()).collect::<Vec<_>>(), &rows.streams));
}

fn write_hyperparameters(bench: &Bench, name: &str, hyperparameters: &Hyperparameters) {
    bench.file(name, &hyperparameters_to_json(hyperparameters, None).to_string());
}

/// `table.csv`, `h.json`, `dictionary.csv`, `query.csv`, `nodes.csv` of a reference case.
fn of_case(case: &Case) -> Bench {
    let bench = Bench::new();
    write_table(&bench, "table.csv", &case.rows);
    write_hyperparameters(&bench, "h.json", &case.hyperparameters);
    let expected = &case.json["expected"];
    write_states(&bench, "dictionary.csv", case.dim, &numbers(&expected["sr"]["dictionary"]));
    write_states(&bench, "query.csv", case.dim, &case.query);
    write_states(&bench, "nodes.csv", case.dim, &numbers(&expected["nodes"]));
    bench
}

fn heads(name: &str, dim: usize) -> Vec<String> {
    (0..dim).map(|d| format!("{name}_{d}")).collect()
}

/// The rows in `order`, as CSV.
fn table(rows: &Rows, order: &[usize], streams: &[u32]) -> String {
    let mut text = format!(
        "stream,{},{},reward,terminated,truncated\n",
        heads("state", rows.dim).join(","),
        heads("next_state", rows.dim).join(",")
    );
    for &i in order {
        write!(text, "{}", streams[i]).unwrap();
        for v in rows.state(i).iter().chain(rows.next_state(i)).chain(rows.reward(i)) {
            write!(text, ",{v}").unwrap();
        }
        writeln!(text, ",{},{}", rows.terminated[i], rows.truncated[i]).unwrap();
    }
    text
}

fn white(case: &Case) -> bool {
    case.hyperparameters.noise == NoiseModel::White
}

/// What the reference calls M is (D, k), row by row; our factors are its columns, one after the other.
fn reorder(theta: Vec<f64>, case: &Case) -> Vec<f64> {
    let Some(rank) = case.json["kernel"]["rank"].as_u64() else { return theta };
    let (head, m) = theta.split_at(3 + case.dim);
    let columns = (0..rank as usize).flat_map(|j| (0..case.dim).map(move |i| m[i * rank as usize + j]));
    head.iter().copied().chain(columns).collect()
}

/// Relative to the expected magnitude, however small.
fn relative(found: &Value, expected: &Value) -> f64 {
    let (found, expected) = (numbers(found), numbers(expected));
    let scale = expected.iter().fold(1e-300f64, |s, v| s.max(v.abs()));
    distance(
        &found.iter().map(|v| v / scale).collect::<Vec<_>>(),
        &expected.iter().map(|v| v / scale).collect::<Vec<_>>(),
    )
}

/// Tells the largest deviation seen: the report of a test run with `--nocapture`.
struct Worst(&'static str, f64, f64, String);

impl Worst {
    fn new(what: &'static str, allowed: f64) -> Self {
        Self(what, allowed, 0.0, String::new())
    }

    fn check(&mut self, name: &str, deviation: f64) {
        assert!(deviation <= self.1, "{name}: {} off by {deviation:e}, allowed {:e}", self.0, self.1);
        if deviation >= self.2 {
            (self.2, self.3) = (deviation, name.to_owned());
        }
    }
}

impl Drop for Worst {
    fn drop(&mut self) {
        println!("{}: largest deviation {:.1e} ({}), allowed {:.0e}", self.0, self.2, self.3, self.1);
    }
}

#[test]
fn score_is_the_reference_evidence() {
    let mut exact_value = Worst::new("exact evidence", 1e-8);
    let mut exact_gradient = Worst::new("exact gradient", 1e-6);
    let mut sparse_value = Worst::new("sparse evidence", 1e-8);
    let mut sparse_gradient = Worst::new("sparse gradient", 1e-6);
    for name in CASES {
        let case = case(name);
        let bench = of_case(&case);
        let expected = &case.json["expected"];
        let arguments = format!("score table.csv --hyperparameters h.json --discount {}", case.discount);
        let found = bench.json(&arguments);
        assert_eq!(found["evidence"], "exact");
        assert_eq!(found["transitions"], case.rows.len());
        let names = numbers_of_names(&case);
        assert_eq!(found["parameters"], Value::from(names), "{name}");
        let mut check = |reference: &Value, gradient: &str| {
            exact_value.check(name, relative(&found["log_evidence"], &reference["log_evidence"]));
            let gradient = Value::from(reorder(numbers(&reference[gradient]), &case));
            exact_gradient.check(name, relative(&found["gradient"], &gradient));
        };
        if !white(&case) {
            check(&expected["bootstrap"]["exact"], "grad_targets_fixed");
        }
        if expected["exact"].is_object() {
            check(&expected["exact"], "grad");
            for part in ["complexity", "fit"] {
                assert!(relative(&found[part], &expected["exact"][part]) < 1e-8, "{name}: {part}");
            }
        }

        let found = bench.json(&format!("{arguments} --evidence sparse --dictionary dictionary.csv"));
        assert_eq!(found["evidence"], "sparse");
        let size = numbers(&expected["sr"]["dictionary"]).len() / case.dim;
        assert_eq!(found["dictionary_size"], size);
        if !white(&case) {
            let bound = &expected["bootstrap"]["sr"]["log_evidence_vfe"];
            sparse_value.check(name, relative(&found["log_evidence"], bound));
        }
        if expected["sr"]["vfe"].is_object() {
            let reference = &expected["sr"]["vfe"];
            sparse_value.check(name, relative(&found["log_evidence"], &reference["bound"]));
            let gradient = Value::from(reorder(numbers(&reference["grad"]), &case));
            sparse_gradient.check(name, relative(&found["gradient"], &gradient));
        }
    }
}

fn numbers_of_names(case: &Case) -> Vec<String> {
    let mut names = ["log_signal_variance", "log_bias_variance", "log_noise_variance"].map(String::from).to_vec();
    match &case.hyperparameters.kernel.metric {
        Metric::Isotropic(_) => names.push("log_relevance".into()),
        _ => names.extend((0..case.dim).map(|i| format!("log_relevance[{i}]"))),
    }
    for j in 0..case.hyperparameters.kernel.metric.factors().len() {
        names.extend((0..case.dim).map(|i| format!("factors[{j}][{i}]")));
    }
    names
}

#[test]
fn fit_with_a_given_dictionary_is_the_reference_posterior() {
    let mut mean = Worst::new("mean", 1e-8);
    let mut variance = Worst::new("variance", 1e-8);
    for name in CASES {
        let case = case(name);
        let bench = of_case(&case);
        let arguments = "--hyperparameters h.json --no-optimise --dictionary dictionary.csv --out model.msgpack";
        let fitted = bench.json(&format!("fit table.csv --discount {} {arguments}", case.discount));
        let expected = &case.json["expected"];
        assert_eq!(fitted["transitions"], case.rows.len());
        assert_eq!(fitted["dictionary_size"], numbers(&expected["sr"]["dictionary"]).len() / case.dim);
        // What is reported is what `score` computes.
        let again = bench.json(&format!("score table.csv --hyperparameters h.json --discount {}", case.discount));
        for key in ["evidence", "log_evidence", "complexity", "fit"] {
            assert_eq!(fitted[key], again[key], "{name}: {key}");
        }
        let found = bench.json("value model.msgpack query.csv");
        let reference = if white(&case) { &expected["sr"] } else { &expected["bootstrap"]["sr"] };
        mean.check(name, relative(&found["mean"], &reference["mean"]));
        variance.check(name, relative(&found["variance"], &reference["var_pp"]));
    }
}

/// A dictionary of all nodes makes the sparse posterior exact. Here everything passes through L = chol(K_mm) without a jitter,
/// whose smallest pivots fall to 1e-11 of v0 + b (`term_fa_mc`): a feature divided by such a pivot keeps five digits. What it
/// adds to a prediction is as small as the root of that pivot, so some 1e-10 remains (seen: 1.3e-10, in that case); 1e-8 leaves
/// room for another order of summation.
#[test]
fn a_dictionary_of_all_nodes_is_the_exact_posterior() {
    let mut mean = Worst::new("mean, all nodes", 1e-8);
    let mut variance = Worst::new("variance, all nodes", 1e-8);
    for name in CASES {
        let case = case(name);
        let bench = of_case(&case);
        let arguments = "--hyperparameters h.json --no-optimise --dictionary nodes.csv --out model.msgpack";
        bench.json(&format!("fit table.csv --discount {} {arguments}", case.discount));
        let found = bench.json("value model.msgpack query.csv");
        let expected = &case.json["expected"];
        let mut check = |reference: &Value| {
            mean.check(name, relative(&found["mean"], &reference["mean"]));
            variance.check(name, relative(&found["variance"], &reference["var"]));
        };
        if !white(&case) {
            check(&expected["bootstrap"]["exact"]);
        }
        if expected["exact"].is_object() {
            check(&expected["exact"]);
        }
    }
}

#[test]
fn the_selected_dictionary_is_that_of_the_reference() {
    let mut residuals = Worst::new("residuals of pivots", 1e-9);
    for name in CASES {
        let case = case(name);
        let bench = of_case(&case);
        let nodes = numbers(&case.json["expected"]["nodes"]);
        for run in case.json["expected"]["icd"].as_array().unwrap() {
            let tolerance = run["tol"].as_f64().unwrap() / case.hyperparameters.kernel.diagonal();
            let arguments =
                format!("--hyperparameters h.json --no-optimise --tolerance {tolerance} --out model.msgpack");
            let fitted = bench.json(&format!("fit table.csv --discount {} {arguments}", case.discount));
            assert_eq!(fitted["pivots"], run["pivots"], "{name} at {tolerance}");
            residuals.check(name, relative(&fitted["residuals"], &run["delta2"]));
            assert!((fitted["tolerance"].as_f64().unwrap() / tolerance - 1.0).abs() < 1e-12);
            assert_eq!(fitted["capped"], false);
            // The same elements handed in give the same model.
            let found = bench.json("value model.msgpack query.csv");
            let pivots: Vec<usize> = numbers(&run["pivots"]).iter().map(|v| *v as usize).collect();
            let elements: Vec<f64> =
                pivots.iter().flat_map(|i| nodes[i * case.dim..(i + 1) * case.dim].to_vec()).collect();
            write_states(&bench, "chosen.csv", case.dim, &elements);
            let arguments = "--hyperparameters h.json --no-optimise --dictionary chosen.csv --out same.msgpack";
            bench.json(&format!("fit table.csv --discount {} {arguments}", case.discount));
            let same = bench.json("value same.msgpack query.csv");
            assert!(relative(&found["mean"], &same["mean"]) < 1e-9, "{name} at {tolerance}");
        }
    }
}

/// One stream with six chains, told as six streams that take turns: the same value function and evidence.
#[test]
fn interleaved_streams_are_the_same_experience() {
    for name in ["multi_ard_mc", "multi_fa_td"] {
        let case = case(name);
        let bench = of_case(&case);
        let rows = &case.rows;
        let mut chain = 0;
        let streams: Vec<u32> = (0..rows.len())
            .map(|i| {
                chain += u32::from(i > 0 && rows.starts_chain[i]);
                chain
            })
            .collect();
        assert_eq!(chain, 5);
        let place = |i: usize| streams[..i].iter().filter(|&&s| s == streams[i]).count();
        let mut order: Vec<usize> = (0..rows.len()).collect();
        order.sort_by_key(|&i| (place(i), streams[i]));
        bench.file("interleaved.csv", &table(rows, &order, &streams));
        let given = format!("--hyperparameters h.json --discount {}", case.discount);
        for extra in ["", "--evidence sparse --dictionary dictionary.csv"] {
            let [one, many] =
                ["table.csv", "interleaved.csv"].map(|t| bench.json(&format!("score {t} {given} {extra}")));
            assert!(relative(&many["log_evidence"], &one["log_evidence"]) < 1e-10, "{name}");
            assert!(relative(&many["gradient"], &one["gradient"]) < 1e-8, "{name}");
        }
        let [one, many] = ["table.csv", "interleaved.csv"].map(|t| {
            bench.json(&format!("fit {t} {given} --no-optimise --dictionary dictionary.csv --out m.msgpack"));
            bench.json("value m.msgpack query.csv")
        });
        assert!(relative(&many["mean"], &one["mean"]) < 1e-10, "{name}");
        assert!(relative(&many["variance"], &one["variance"]) < 1e-10, "{name}");
    }
}

#[test]
fn what_fit_forgets_is_the_reference() {
    let case = golden_heads::read("forgetting_16");
    for head in golden_heads::heads(&case) {
        let bench = Bench::new();
        let rows = golden_heads::rows(&case, head);
        let mut lines = table(&rows, &(0..rows.len()).collect::<Vec<_>>(), &rows.streams)
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>();
        lines[0] += ",starts_chain";
        lines[1..].iter_mut().zip(&rows.starts_chain).for_each(|(line, starts)| *line += &format!(",{starts}"));
        bench.file("table.csv", &(lines.join("\n") + "\n"));
        let signal = head["signal"].as_f64().unwrap_or(1.0);
        let number = |key: &str| signal * case["kernel"][key].as_f64().unwrap();
        let kernel = Kernel::gaussian(number("v0"), number("b"), Metric::Ard(numbers(&case["kernel"]["a"])));
        let noise_variance = head["noise_variance"].as_f64().unwrap();
        write_hyperparameters(
            &bench,
            "h.json",
            &Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance },
        );
        write_states(&bench, "dictionary.csv", 2, &numbers(&case["dictionary"]));
        write_states(&bench, "query.csv", 2, &numbers(&case["query"]));
        let given = format!("fit table.csv --discount {} --hyperparameters h.json --no-optimise", head["discount"]);
        let given = format!("{given} --dictionary dictionary.csv --out m.msgpack --forgetting");
        let expected = &case["expected"][head["name"].as_str().unwrap()];
        for extra in ["", "--lambda 1"] {
            let fitted = bench.json(&format!("{given} {} {extra}", case["forgetting"]));
            assert!(relative(&fitted["forgetting"], &case["forgetting"]) < 1e-12);
            assert!(relative(&fitted["rows_effective"], &case["expected"]["rows_effective"]) < 1e-9);
            assert!(fitted["log_evidence"].is_f64());
            let found = bench.json("value m.msgpack query.csv");
            assert!(relative(&found["mean"], &expected["mean"]) < 1e-9, "{} {extra}", head["name"]);
            assert!(relative(&found["variance"], &expected["var"]) < 1e-9, "{} {extra}", head["name"]);
        }
        // All alike: not the reference, and what it is without the option.
        for off in ["1", "off"] {
            let fitted = bench.json(&format!("{given} {off}"));
            assert_eq!((&fitted["forgetting"], &fitted["rows_effective"]), (&Value::Null, &Value::Null));
            let found = bench.json("value m.msgpack query.csv");
            assert!(relative(&found["mean"], &expected["mean"]) > 1e-3);
        }
        for bad in ["0", "1.5", "-0.5", "nan", "half"] {
            let (status, message) = bench.failure(&format!("{given}={bad}"));
            assert!(status == 2 && message.contains("--forgetting"), "{bad}: {message}");
        }
    }
}

#[test]
fn rows_that_are_forgotten_select_nothing() {
    let bench = Bench::new();
    write_table(&bench, "table.csv", &wander(600, 1, 1, 3));
    let rows = |options: &str| {
        bench.json(&format!("fit table.csv --discount 0.5 --out m.msgpack {options}"))["search"]["rows"].clone()
    };
    assert_eq!(rows(""), 600);
    // Eight times the half-life, which is 13.5 rows.
    assert_eq!(rows("--forgetting 0.95"), 108);
}

fn data(name: &str) -> String {
    format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

/// Hyperparameters from the vector of the reference.
fn from_theta(kind: &str, theta: &[f64]) -> Hyperparameters {
    let exp = |k: usize| theta[k].exp();
    let metric = match kind {
        "iso" => Metric::Isotropic(exp(3)),
        "ard" => Metric::Ard(vec![exp(3), exp(4)]),
        _ => Metric::Factor { relevance: vec![exp(3), exp(4)], factors: vec![theta[5..].to_vec()] },
    };
    let kernel = Kernel::gaussian(exp(0), exp(1), metric);
    Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: exp(2) }
}

#[test]
fn score_reproduces_the_best_evidence_known() {
    let mut worst = Worst::new("best evidence known", 1e-8);
    let known: Value = serde_json::from_str(&std::fs::read_to_string(data("model_selection.json")).unwrap()).unwrap();
    let mut checked = 0;
    for (name, case) in known.as_object().unwrap() {
        let table = data(&format!("{}.csv", case["data"].as_str().unwrap_or(name)));
        for (kind, best) in case["best"].as_object().unwrap() {
            let bench = Bench::new();
            write_hyperparameters(&bench, "h.json", &from_theta(kind, &numbers(&best["theta"])));
            let found = bench.json(&format!("score {table} --hyperparameters h.json --discount {}", case["discount"]));
            worst.check(&format!("{name} {kind}"), relative(&found["log_evidence"], &best["log_evidence"]));
            // The parts are those of the paper's form, which differs in the last, cut chain.
            for part in ["complexity", "fit"] {
                assert!(relative(&found[part], &best[part]) < 5e-3, "{name} {kind}: {part}");
            }
            checked += 1;
        }
    }
    assert_eq!(checked, 11);
}

/// Model selection as the paper has it: the evidence alone, of whole returns.
const BY_EVIDENCE: &str = "--selection evidence --kernel-profile gaussian --variance model";

/// With the noise floor of the reference box (the other bounds are the program's own, and wider) model selection ends where
/// the evidence is as good as the best known, targets and parameters having settled together.
#[test]
fn fit_finds_the_best_evidence_known() {
    let known: Value = serde_json::from_str(&std::fs::read_to_string(data("model_selection.json")).unwrap()).unwrap();
    let bench = Bench::new();
    let table = data("gridworld_seed0.csv");
    for (kernel, short) in [("isotropic", "iso"), ("ard", "ard")] {
        let arguments = format!(
            "fit {table} --discount 1 --kernel {kernel} --noise-floor 4.486e-6 {BY_EVIDENCE} --out model.msgpack"
        );
        let fitted = bench.json(&arguments);
        bench.file("fitted.json", &fitted.to_string());
        let best = known["gridworld_seed0"]["best"][short]["log_evidence"].as_f64().unwrap();
        let found = fitted["log_evidence"].as_f64().unwrap();
        println!("{kernel}: {found:.3} nats, best known in a smaller box {best:.3}");
        assert!(found > best - 0.5, "{kernel}: {found} against {best}");
        assert!(fitted["noise"]["variance"].as_f64().unwrap() > 0.99e-5);
        assert!(fitted["search"]["starts"].as_array().unwrap().len() > 4);
        // The answer is a hyperparameter file, normalisation included.
        let again = bench.json(&format!("score {table} --hyperparameters fitted.json --discount 1"));
        assert!(relative(&again["log_evidence"], &fitted["log_evidence"]) < 1e-9);
        let arguments =
            "--discount 1 --hyperparameters fitted.json --no-optimise --dictionary-max 500 --tolerance 1e-7";
        let retaken = bench.json(&format!("fit {table} {arguments} --out again.msgpack"));
        assert!(relative(&retaken["log_evidence"], &fitted["log_evidence"]) < 1e-9);
        write_states(&bench, "query.csv", 2, &[0.0, 0.0, 1.0, -1.0, -1.2, 0.5]);
        let [one, two] = ["model", "again"].map(|m| bench.json(&format!("value {m}.msgpack query.csv")));
        assert!(relative(&two["mean"], &one["mean"]) < 1e-2, "{kernel}: {one} {two}");
    }
}

/// The program's own box: a noise floor of a thousandth of the targets' variance.
#[test]
fn fit_says_which_bound_holds_it() {
    let bench = Bench::new();
    let table = data("gridworld_seed0.csv");
    let fitted = bench.json(&format!("fit {table} --discount 1 {BY_EVIDENCE} --out model.msgpack"));
    assert_eq!(fitted["search"]["active_bounds"][0], "log_noise_variance at its lower bound");
    assert_eq!(fitted["evidence"], "exact");
    // The value depends on the first coordinate alone, and that is found.
    let relevance = numbers(&fitted["kernel"]["relevance"]);
    assert!(relevance[0] > 1e3 * relevance[1], "{relevance:?}");
    let inspected = bench.json("inspect model.msgpack");
    for key in ["kernel", "noise", "inputs", "dictionary_size", "transitions", "discount"] {
        assert_eq!(inspected[key], fitted[key], "{key}");
    }
    let lengths = numbers(&inspected["lengthscales"]);
    let scale = numbers(&fitted["inputs"]["scale"]);
    assert!((lengths[0] - scale[0] / relevance[0].sqrt()).abs() < 1e-12);
    let text = bench.text("inspect model.msgpack");
    for words in ["kernel        ard", "correlated, variance", "state_0", "lengthscale", "Next: criticd value"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert!(
        bench
            .text(&format!("fit {table} --discount 1 {BY_EVIDENCE} --out model.msgpack"))
            .contains("at its lower bound")
    );
    // On few rows: the same model by the sparse bound of all of them.
    let fitted =
        bench.json(&format!("fit {table} --discount 1 --evidence-rows 200 --seed 3 {BY_EVIDENCE} --out model.msgpack"));
    let search = &fitted["search"];
    assert_eq!([&fitted["evidence"], &search["evidence"]], ["sparse"; 2]);
    assert_eq!([&search["evidence_rows"], &search["rows"]], [&fitted["transitions"]; 2]);
    assert!(fitted["relevance_report"][0].as_str().unwrap().starts_with("state_0: lengthscale "), "{fitted}");
    assert!(search["findings"][0].as_str().unwrap().contains("by the variational bound of all "), "{search}");
    // The whole search by the bound arrives where the exact one does, as far as a dictionary can carry it.
    let bound = bench.json(&format!("fit {table} --discount 1 --evidence sparse {BY_EVIDENCE} --out model.msgpack"));
    assert!(bound["search"]["log_evidence"].as_f64() > Some(search["log_evidence"].as_f64().unwrap() - 1.0), "{bound}");
    let clustered = bench.json(&format!("fit {table} --discount 1 --selection evidence --kernel-profile gaussian --variance clustered --out clustered.msgpack"));
    assert!(clustered["log_evidence"].is_f64());
    write_states(&bench, "query.csv", 2, &[0.1, 0.2]);
    let variance = |model: &str| numbers(&bench.json(&format!("value {model} query.csv"))["variance"])[0];
    assert!(variance("clustered.msgpack") > 0.0 && variance("clustered.msgpack") != variance("model.msgpack"));
}

#[test]
fn normalisation_in_the_file_changes_coordinates_only() {
    let case = case("trunc_ard_mc");
    let bench = of_case(&case);
    let (shift, scale) = ([1.0, -2.0, 0.5], [2.0, 0.25, 10.0]);
    let mut scaled = case.hyperparameters.clone();
    let Metric::Ard(relevance) = &mut scaled.kernel.metric else { unreachable!() };
    relevance.iter_mut().zip(scale).for_each(|(a, s)| *a *= s * s);
    let inputs = criticd::snapshot::Inputs { shift: shift.to_vec(), scale: scale.to_vec(), names: None };
    bench.file("scaled.json", &hyperparameters_to_json(&scaled, Some(&inputs)).to_string());
    for extra in ["", "--dictionary dictionary.csv"] {
        let [raw, other] = ["h", "scaled"]
            .map(|h| bench.json(&format!("score table.csv --discount 0.95 --hyperparameters {h}.json {extra}")));
        assert!(relative(&other["log_evidence"], &raw["log_evidence"]) < 1e-10);
        assert!(relative(&other["gradient"], &raw["gradient"]) < 1e-9);
    }
    let [raw, other] = ["h", "scaled"].map(|h| {
        let given = format!("--hyperparameters {h}.json --no-optimise --dictionary dictionary.csv");
        bench.json(&format!("fit table.csv --discount 0.95 {given} --out m.msgpack"));
        bench.json("value m.msgpack query.csv")
    });
    assert!(relative(&other["mean"], &raw["mean"]) < 1e-10 && relative(&other["variance"], &raw["variance"]) < 1e-10);
}

#[test]
fn two_rewards_share_a_kernel() {
    let bench = Bench::new();
    let line = |i: usize| {
        let x = ((i * i) as f64 * 0.7).sin();
        format!("{x},{},{},{}\n", x.sin(), 2.0 * x.sin(), i % 7 == 6)
    };
    bench
        .file("t.csv", &("state_0,reward_0,reward_1,terminated\n".to_owned() + &(0..70).map(line).collect::<String>()));
    write_states(&bench, "q.csv", 1, &[-0.5, 0.0, 0.5]);
    let fitted = bench.json(&format!("fit t.csv --discount 0.5 {BY_EVIDENCE} --out m.msgpack"));
    bench.file("h.json", &fitted.to_string());
    let scored = bench.json("score t.csv --discount 0.5 --hyperparameters h.json");
    assert!(relative(&scored["log_evidence"], &fitted["log_evidence"]) < 1e-9);
    let found = bench.json("value m.msgpack q.csv");
    for pair in found["mean"].as_array().unwrap() {
        let pair = numbers(pair);
        assert!((pair[1] - 2.0 * pair[0]).abs() < 1e-9, "{found}");
    }
    assert_eq!(found["variance"].as_array().unwrap().len(), 3);
    let text = bench.text("value m.msgpack q.csv");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines[0].split_whitespace().collect::<Vec<_>>(),
        ["state_0", "value_0", "value_1", "std", "return", "std_0", "return", "std_1", "known"]
    );
    assert!(lines.len() == 4 && lines.iter().all(|l| l.len() == lines[0].len()), "{text}");
}

#[test]
fn a_value_comes_with_what_the_model_knows_of_it() {
    let bench = Bench::new();
    let vectors = Path::new(env!("CARGO_MANIFEST_DIR")).join("proto/vectors");
    for (name, keys) in [
        ("returns", &["mean", "variance", "return_variance", "known", "extrapolates"][..]),
        ("returns_rewards", &["mean", "variance", "return_variance", "known", "extrapolates"]),
        ("returns_provisional", &["mean", "variance", "return_variance", "known", "extrapolates"]),
        ("returns_means_only", &["mean", "extrapolates"]),
    ] {
        std::fs::copy(vectors.join(format!("snapshot_{name}.msgpack")), bench.path("m")).unwrap();
        let expected = std::fs::read_to_string(vectors.join(format!("snapshot_{name}.json"))).unwrap();
        let expected: Value = serde_json::from_str(&expected).unwrap();
        let states: Vec<f64> = expected["states"].as_array().unwrap().iter().flat_map(numbers).collect();
        write_states(&bench, "q.csv", 2, &states);
        let found = bench.json("value m q.csv");
        let mut given: Vec<&str> = found.as_object().unwrap().keys().map(String::as_str).collect();
        given.sort_by_key(|key| keys.iter().position(|known| known == key));
        assert_eq!(given, keys, "{name}");
        let flat = |value: &Value| -> Vec<f64> {
            let row = |v: &Value| v.as_array().map_or_else(|| vec![v.as_f64().unwrap()], |_| numbers(v));
            value.as_array().unwrap().iter().flat_map(row).collect()
        };
        for key in keys.iter().filter(|key| **key != "extrapolates") {
            let (found, expected) = (flat(&found[key]), flat(&expected[key]));
            assert_eq!(found.len(), expected.len(), "{name}: {key}");
            let far = found.iter().zip(&expected).any(|(a, b)| (a - b).abs() > 1e-12);
            assert!(!far, "{name}: {key}: {found:?} {expected:?}");
        }
        assert_eq!(found["extrapolates"], expected["extrapolates"], "{name}");
        let text = bench.text("value m q.csv");
        let marked: Vec<bool> = text.lines().skip(1).map(|line| line.ends_with("extrapolated")).collect();
        assert_eq!(json!(marked), expected["extrapolates"], "{text}");
        let said = String::from_utf8(bench.run("value m q.csv").stderr).unwrap();
        assert_eq!(said.contains("not chosen"), name == "returns_provisional", "{said}");
    }
    std::fs::copy(vectors.join("snapshot_returns_provisional.msgpack"), bench.path("m")).unwrap();
    let text = bench.text("inspect m");
    assert!(
        text.contains("lambda 0.8") && text.contains("431 verified pairs") && text.contains("provisional"),
        "{text}"
    );
    let inspected = bench.json("inspect m");
    assert_eq!((&inspected["lambda"], &inspected["provisional"]), (&json!(0.8), &json!(true)));
    assert_eq!(inspected["returns"], json!({"factor": 1.25, "pairs": 431, "coverage": null}));
}

#[test]
fn tables_that_teach_nothing_are_refused_in_words() {
    let bench = Bench::new();
    let head = "state_0,state_1,next_state_0,next_state_1,reward,terminated\n";
    let make = |name: &str, n: usize, line: &dyn Fn(usize) -> String| {
        bench.file(name, &(head.to_owned() + &(0..n).map(line).collect::<String>()));
    };
    let x = |i: usize| ((i * i) as f64 * 0.7).sin();
    make("three.csv", 3, &|i| format!("{},1,{},1,{},0\n", x(i), x(i + 1), x(i)));
    make("constant.csv", 100, &|i| format!("1,2,1,2,{},{}\n", x(i), u8::from(i % 9 == 8)));
    make("zero.csv", 100, &|i| format!("{},{},{},{},0,0\n", x(i), x(i + 7), x(i + 1), x(i + 8)));
    make("one.csv", 100, &|i| format!("{},{},{},{},1,0\n", x(i), x(i + 7), x(i + 1), x(i + 8)));
    make("copies.csv", 10_000, &|_| "1,2,3,4,5,0\n".into());
    make("one_constant.csv", 100, &|i| format!("{},2,{},2,{},{}\n", x(i), x(i + 1), x(i).exp(), u8::from(i % 9 == 8)));
    make("huge.csv", 100, &|i| format!("{0}e9,{0}e9,1,2,{0}e9,{1}\n", x(i), u8::from(i % 9 == 8)));
    for (table, words) in [
        ("three.csv", "at least 16"),
        ("constant.csv", "the same state"),
        ("zero.csv", "all returns are the same"),
        ("one.csv", "all returns are the same"),
        ("copies.csv", "the same state"),
    ] {
        for extra in ["", "--noise white", "--kernel isotropic", "--variance clustered"] {
            let (status, message) = bench.failure(&format!("fit {table} --out m.msgpack {extra}"));
            // Under white noise a reward of zero is an observation as good as any.
            if !(["zero.csv", "one.csv"].contains(&table) && extra == "--noise white") {
                assert!(message.contains(words), "{table} {extra}: {message}");
            }
            assert_eq!(status, 1, "{table} {extra}: {message}");
            assert!(!bench.path("m.msgpack").exists());
        }
    }
    // Ratios that are all 0 leave nothing to learn from; those that no two policies have leave a model, and a finding.
    let ratios = |target: &str| {
        let rows = (0..200).map(|i| format!("{},1,{},1,{},0,1e-9,{target}\n", x(i), x(i + 1), x(i)));
        let head = head.replace("terminated", "terminated,behavior_prob,target_prob");
        bench.file("ratios.csv", &(head + &rows.collect::<String>()));
    };
    ratios("0");
    let (status, message) = bench.failure("fit ratios.csv --out m.msgpack");
    assert!(status == 1 && message.contains("0 of 200 rows have a target_prob above 0"), "{message}");
    ratios("1");
    assert!(bench.text("fit ratios.csv --out ratios.msgpack --verbose").contains("importance ratios average 1.000e9"));
    let output = bench.run("fit one_constant.csv --out m.msgpack");
    assert!(output.status.success() && String::from_utf8_lossy(&output.stderr).contains("state_1 never changes"));
    bench.text("fit huge.csv --out m.msgpack");
    // Nothing selected, nothing refused: the posterior of what is given exists for all of them.
    write_hyperparameters(
        &bench,
        "h.json",
        &Hyperparameters {
            kernel: Kernel::gaussian(2.0, 0.0, Metric::Isotropic(1.0)),
            noise: NoiseModel::Correlated,
            noise_variance: 0.1,
        },
    );
    write_states(&bench, "q.csv", 2, &[0.0, 0.0]);
    for table in ["three", "constant", "zero", "copies", "one_constant", "huge"] {
        bench.json(&format!("fit {table}.csv --hyperparameters h.json --no-optimise --out m.msgpack"));
        let found = bench.json("value m.msgpack q.csv");
        assert!(numbers(&found["mean"])[0].is_finite() && numbers(&found["variance"])[0] >= 0.0);
        bench.json(&format!("score {table}.csv --hyperparameters h.json --evidence sparse"));
    }
    let (status, message) = bench.failure("score copies.csv --hyperparameters h.json");
    assert!(status == 1 && message.contains("use --evidence sparse"), "{message}");
}

#[test]
fn wrong_usage_is_told_from_failure() {
    let case = case("term_iso_mc");
    let bench = of_case(&case);
    bench.file("broken.csv", "state_0,reward,terminated\n1,x,0\n");
    bench.file("unsaid.csv", "state_0,reward\n1,2\n2,3\n");
    bench.file("done.jsonl", "{\"state\": [1], \"next_state\": [2], \"reward\": 1, \"done\": true}\n");
    bench.file("broken.json", "{\"kernel\": 1}");
    bench.file("wide.json", "{\"kernel\": {\"kind\": \"ard\", \"signal_variance\": 1, \"bias_variance\": 1, \"relevance\": [1, 1, 1]}, \"noise\": {\"model\": \"white\", \"variance\": 1}}");
    write_states(&bench, "copies.csv", 2, &[1.0, 2.0, 1.0, 2.0]);
    write_states(&bench, "narrow.csv", 1, &[1.0]);
    let policies = "state_0,state_1,next_state_0,next_state_1,reward,terminated,behavior_prob,target_prob\n";
    let row = |i: usize| format!("{i},{},{},0,1,0,0.5,{}\n", i % 7, i + 1, [0.5, 0.25][i % 2]);
    bench.file("policies.csv", &(policies.to_owned() + &(0..40).map(row).collect::<String>()));
    bench.json("fit table.csv --hyperparameters h.json --no-optimise --out model.msgpack");
    let given = "--hyperparameters h.json --no-optimise --out m.msgpack";
    for (arguments, status, words) in [
        ("fit table.csv".to_owned(), 2, "--out"),
        ("fit unsaid.csv --out m".into(), 1, "--assume-terminated never"),
        ("fit unsaid.csv --out m --assume-terminated always".into(), 2, "[possible values: never, last]"),
        ("score unsaid.csv --hyperparameters h.json".into(), 1, "--assume-terminated last"),
        ("replay unsaid.csv".into(), 2, "--assume-terminated never"),
        ("replay done.jsonl".into(), 2, "key done: says that an episode ended, not how; say it: --done terminated"),
        ("fit table.old --out m".into(), 1, "must end in .csv, .tsv, .txt, .jsonl, .npz, .parquet or .hdf5"),
        ("fit table.csv --out m --kernel factor:0".into(), 2, "isotropic, ard"),
        ("fit table.csv --out m --kernel rbf".into(), 2, "isotropic, ard"),
        ("fit table.csv --out m --no-optimise".into(), 2, "--hyperparameters"),
        ("fit table.csv --out m --hyperparameters h.json".into(), 2, "--no-optimise"),
        ("fit table.csv --out m --discount 1.5".into(), 2, "[0, 1]"),
        ("fit table.csv --out m --tolerance 0".into(), 2, "tolerance"),
        ("fit table.csv --out m --dictionary-max 0".into(), 2, "at least 1"),
        ("fit table.csv --out m --budget nan".into(), 2, "positive"),
        ("fit table.csv --out no/such/place".into(), 2, "there is no directory"),
        (format!("fit table.csv {given} --kernel ard"), 2, "omit it"),
        (format!("fit table.csv {given} --noise white"), 2, "omit it"),
        (format!("fit table.csv {given} --dictionary nodes.csv --tolerance 0.1"), 2, "--tolerance is for"),
        (format!("fit table.csv {given} --dictionary copies.csv"), 1, "state 2 is a copy"),
        (format!("fit table.csv {given} --dictionary narrow.csv"), 1, "states have 1 numbers"),
        (format!("fit broken.csv {given}"), 1, "line 2, column reward"),
        (format!("fit absent.csv {given}"), 1, "absent.csv"),
        ("fit table.csv --out m --hyperparameters broken.json --no-optimise".into(), 1, "broken.json: "),
        ("fit table.csv --out m --hyperparameters wide.json --no-optimise".into(), 1, "is for 3 state variables"),
        ("score table.csv".into(), 2, "--hyperparameters"),
        ("score table.csv --hyperparameters absent.json".into(), 1, "absent.json"),
        ("score table.csv --hyperparameters h.json --evidence exact --dictionary nodes.csv".into(), 2, "sparse"),
        ("score table.csv --hyperparameters h.json --evidence laplace".into(), 2, "laplace"),
        ("score policies.csv --hyperparameters h.json".into(), 1, "of rows that count once"),
        ("score policies.csv --hyperparameters h.json --evidence sparse".into(), 1, "of rows that count once"),
        ("fit policies.csv --out m --noise white".into(), 1, "which white noise cannot"),
        ("fit table.csv --out m --noise white --lambda 0.5".into(), 2, "white noise has no use for it"),
        ("fit table.csv --out m --lambda 1.5".into(), 2, "lambda lies in [0, 1]"),
        ("fit table.csv --out m --rho-max 0".into(), 2, "must be positive"),
        ("value model.msgpack narrow.csv".into(), 1, "states of the model have 2"),
        ("value model.msgpack table.csv".into(), 1, "state_0, state_1, ... alone"),
        ("value table.csv query.csv".into(), 1, "not a model"),
        ("value absent query.csv".into(), 1, "absent"),
        ("value model.msgpack".into(), 2, "STATES"),
        ("inspect .".into(), 1, "a directory"),
        ("inspect h.json".into(), 1, "not a model"),
        ("check-config absent.toml".into(), 1, "absent.toml"),
        ("frobnicate".into(), 2, "frobnicate"),
    ] {
        let (found, message) = bench.failure(&arguments);
        assert!(found == status && message.contains(words), "{arguments}: exit {found}, {message}");
    }
    assert!(!bench.path("m").exists() && !bench.path("m.msgpack").exists());
}

#[test]
fn configuration_files_are_checked() {
    let bench = Bench::new();
    bench.file("good.toml", "ingest = \"tcp://127.0.0.1:6000\"\n[[critic]]\nname = \"walk\"\ndiscount = 0.9\n");
    bench.file("bad.toml", "log = \"info\"\ningset = \"tcp://127.0.0.1:6000\"\n");
    let text = bench.text("check-config good.toml");
    for words in ["good.toml is sound", "tcp://127.0.0.1:6000", "walk: discount 0.9", "Next: criticd serve --config"] {
        assert!(text.contains(words), "{words} in {text}");
    }
    assert_eq!(bench.json("check-config good.toml")["critics"][0]["name"], "walk");
    let (status, message) = bench.failure("check-config bad.toml");
    assert!(status == 1 && message.contains("bad.toml: line 2") && message.contains("`ingest`"), "{message}");
    // A reader that goes through the whole file for each of them would not come back.
    let many = |last: &str| {
        let names = (0..20_000).map(|k| format!("c{k}")).chain([last.to_owned()]);
        names.map(|name| format!("[[critic]]\nname = \"{name}\"\n")).collect::<String>()
    };
    bench.file("many.toml", &many("last"));
    assert_eq!(bench.json("check-config many.toml")["critics"].as_array().unwrap().len(), 20_001);
    bench.file("twice.toml", &many("c7"));
    let (status, message) = bench.failure("check-config twice.toml");
    assert!(status == 1 && message.contains("`critic[20000].name`"), "{message}");
}

#[test]
fn help_has_examples() {
    let bench = Bench::new();
    for command in ["fit", "score", "value", "inspect", "check-config"] {
        let help = bench.text(&format!("{command} --help"));
        assert!(help.contains("Examples:") && help.contains(&format!("criticd {command} ")), "{help}");
    }
}

#[test]
fn rewards_are_called_as_the_columns_that_they_come_from() {
    let bench = Bench::new();
    let row = |i: usize| format!("{},{},{},{}\n", (i as f64 * 0.7).sin(), i % 5, (i % 3) as f64, u8::from(i % 9 == 8));
    bench.file("t.csv", &("x,energy,wear,failed\n".to_owned() + &(0..150).map(row).collect::<String>()));
    let fit = "fit t.csv --state x --terminated failed --discount 0.5";
    let said = bench.text(&format!("{fit} --reward energy,-wear --out m.msgpack"));
    for words in ["energy: predicts the returns", "-wear: predicts"] {
        assert!(said.contains(words), "{words} in {said}");
    }
    assert_eq!(bench.json("inspect m.msgpack")["reward_names"], serde_json::json!(["energy", "-wear"]));
    assert!(bench.text("inspect m.msgpack").contains("discounted sums of energy, -wear"));
    let drawn = String::from_utf8(bench.run("plot m.msgpack --out m.svg --reward 1").stderr).unwrap();
    assert!(drawn.contains("discounted sum of -wear over x"), "{drawn}");
    // Nothing is discounted at 1.
    bench.text("fit t.csv --state x --terminated failed --discount 1 --reward energy --out one.msgpack");
    let drawn = String::from_utf8(bench.run("plot one.msgpack --out one.svg").stderr).unwrap();
    assert!(drawn.contains(": sum of energy over x"), "{drawn}");
    // "reward" alone says nothing.
    bench.file("r.csv", &std::fs::read_to_string(bench.path("t.csv")).unwrap().replace("energy", "reward"));
    bench.text("fit r.csv --state x --reward reward --terminated failed --discount 0.5 --out r.msgpack");
    assert_eq!(bench.json("inspect r.msgpack")["reward_names"], serde_json::json!([]));
}

#[test]
fn a_model_is_drawn_in_both_formats_over_the_variables_that_are_named() {
    let bench = Bench::new();
    let row = |i: usize| {
        let x = |k: usize| ((k * k) as f64 * 0.7).sin();
        format!("{},{},{},{},{},{}\n", x(i), x(i + 7), x(i + 1), x(i + 8), x(i).exp(), u8::from(i % 9 == 8))
    };
    let head = "state_0,state_1,next_state_0,next_state_1,reward,terminated\n";
    bench.file("t.csv", &(head.to_owned() + &(0..150).map(row).collect::<String>()));
    bench.json("fit t.csv --discount 0.5 --out m.msgpack");
    for (arguments, width) in [
        ("--out a.png", 2100),
        ("--out b.png --x state_1 --y 0 --range state_0=-1:2", 2100),
        ("--out c.png --curve --x 1 --at state_0=-0.5", 1400),
    ] {
        bench.text(&format!("plot m.msgpack {arguments}"));
        let file = arguments.split(' ').nth(1).unwrap();
        let bytes = std::fs::read(bench.path(file)).unwrap();
        assert_eq!(&bytes[..8], b"\x89PNG\r\n\x1a\n");
        assert_eq!(u32::from_be_bytes(bytes[16..20].try_into().unwrap()), width, "{arguments}");
    }
    let read = |name: &str| std::fs::read_to_string(bench.path(name)).unwrap();
    bench.text("plot m.msgpack --out a.svg");
    bench.text("plot m.msgpack --out b.svg --at state_0=9");
    bench.text("plot m.msgpack --out c.svg --x state_1 --y state_0");
    let svg = read("a.svg");
    assert!(svg.starts_with("<svg ") && svg.matches("<image ").count() >= 4, "maps, bars of colour and their keys");
    assert_eq!(svg, read("b.svg"), "a variable that is drawn stands nowhere");
    assert_ne!(svg, read("c.svg"));
    bench.text("plot m.msgpack --out kernel.svg --kernel");
    let shapes = |svg: &str| svg.matches("<path").count();
    assert!(shapes(&read("kernel.svg")) > shapes(&svg) + 20, "an ellipse of dots on the map of the value");
    assert!(bench.failure("plot m.msgpack --out k.svg --kernel --curve").1.contains("cannot be used with"));
    // Of a table's rows: where returns differ from values.
    let drawn = bench.run("plot m.msgpack --out errors.svg --errors t.csv");
    let said = String::from_utf8(drawn.stderr).unwrap();
    assert!(drawn.status.success() && said.contains("over state_0 and state_1") && said.contains("returns"), "{said}");
    assert_eq!(bench.run("plot m.msgpack --out e.png --errors t.csv --curve").status.code(), Some(0));
    assert!(read("errors.svg").matches("<image ").count() >= 4, "two maps and their bars");
    // Maps that are compared have one bar, their difference another.
    bench.json("fit t.csv --discount 0.25 --out n.msgpack");
    bench.text("plot m.msgpack --out against.svg --against n.msgpack");
    let images = |name: &str| read(name).matches("<image ").count();
    assert_eq!((images("against.svg"), images("a.svg")), (3 + 2 + 3, 2 + 2 + 1), "maps, bars, keys of the hatching");
    // An average says what it goes over: a model file alone has its dictionary.
    let told = |arguments: &str| String::from_utf8(bench.run(arguments).stderr).unwrap();
    let own = told("plot m.msgpack --out own.svg --marginal --curve --x 0");
    assert!(own.contains("averaged over") && own.contains("states of the dictionary"), "{own}");
    let places: String =
        (0..90).map(|k| format!("{},{}\n", f64::from(k) / 45.0 - 1.0, f64::from(k % 7) / 7.0)).collect();
    bench.file("places.csv", &format!("state_0,state_1\n{places}"));
    let said = told("plot m.msgpack --out visited.svg --marginal --curve --x 0 --visited places.csv");
    assert!(said.contains("averaged over 64 visited states"), "{said}");
    assert_ne!(read("own.svg"), read("visited.svg"));
    bench.file("narrow.csv", "state_0,reward,terminated\n1,2,1\n");
    bench.file("one.csv", "state_0\n1\n");
    for (arguments, status, words) in [
        ("plot m.msgpack --out x.png --errors narrow.csv", 1, "states of 2 numbers, this table has 1"),
        ("plot m.msgpack --out x.png --errors t.csv --against n.msgpack", 2, "cannot be used with"),
        ("plot m.msgpack --out x.png --errors t.csv --range state_0=50:60", 1, "a wider --range"),
        ("plot m.msgpack --out x.png --visited one.csv", 1, "states have 1 numbers, states of the model have 2"),
        ("plot m.msgpack --out x.png --columns c.toml", 2, "--visited"),
        ("plot m.msgpack", 2, "--out"),
        ("plot m.msgpack --out x.jpg", 2, ".png or .svg"),
        ("plot m.msgpack --out x.png --x speed", 2, "there is state_0, state_1"),
        ("plot m.msgpack --out x.png --x 2", 2, "there is no state variable 2"),
        ("plot m.msgpack --out x.png --x 0 --y state_0", 2, "--x and --y are both state_0"),
        ("plot m.msgpack --out x.png --range state_0=2:1", 2, "NAME=FROM:TO"),
        ("plot m.msgpack --out x.png --at state_0", 2, "NAME=VALUE"),
        ("plot m.msgpack --out x.png --reward 1", 2, "below 1"),
        ("plot m.msgpack --out absent/x.png", 2, "cannot write"),
        ("plot t.csv --out x.png", 1, "not a model"),
    ] {
        let (found, message) = bench.failure(arguments);
        assert!(found == status && message.contains(words), "{arguments}: {found} {message}");
    }
}

/// Rows of two streams in turns, three of a for each of b, each an episode of its own: reward state_0, and `more` where that is between 0.6
/// and 0.8. Every tenth is cut off in place of terminated.
fn wrong_rows(more: f64) -> String {
    let row = |i: usize| {
        let (x, y) = ((i * 37 % 400) as f64 / 400.0, (i * 91 % 400) as f64 / 400.0);
        let reward = x + if (0.6..0.8).contains(&x) { more } else { 0.0 };
        let stream = if i % 4 == 3 { "b" } else { "a" };
        format!("{stream},{x},{y},{x},{y},{reward},{},{}\n", u8::from(i % 10 != 9), u8::from(i % 10 == 9))
    };
    "stream,state_0,state_1,next_state_0,next_state_1,reward,terminated,truncated\n".to_owned()
        + &(0..400).map(row).collect::<String>()
}

#[test]
fn the_worst_states_are_marked_and_printed() {
    let bench = Bench::new();
    bench.file("right.csv", &wrong_rows(0.0));
    bench.file("wrong.csv", &wrong_rows(4.0));
    bench.json("fit right.csv --discount 0.001 --out m.msgpack");
    let table = bench.text("plot m.msgpack --out errors.svg --errors wrong.csv");
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines[0], "Where the model is most wrong: means over a state and its neighbours");
    for words in ["error", "std", "TD error", "states", "row", "stream", "where"] {
        assert!(lines[1].contains(words), "{words} in {table}");
    }
    assert!((3..=12).contains(&lines.len()), "{table}");
    for line in &lines[2..5] {
        let cells: Vec<&str> = line.split_whitespace().collect();
        let number = |k: usize| cells[k].parse::<f64>().unwrap();
        assert!((2.0..4.5).contains(&number(1)) && (number(1) - number(3)).abs() < 0.5, "{line}");
        let place: f64 = line.split("state_0 = ").nth(1).unwrap().split([',', ' ']).next().unwrap().parse().unwrap();
        assert!((0.55..0.85).contains(&place) && ["a", "b"].contains(&cells[6]), "{line}");
        // The number is that of the row in its table.
        assert!(((number(5) as usize * 37 % 400) as f64 / 400.0 - place).abs() < 0.006, "{line}");
    }
    // Where the table agrees with the model the list says so.
    let right = bench.text("plot m.msgpack --out right.png --errors right.csv --curve --x 0");
    assert!(right.contains("Where the model is most wrong"), "{right}");
    let bytes = std::fs::read(bench.path("right.png")).unwrap();
    assert_eq!(u32::from_be_bytes(bytes[16..20].try_into().unwrap()), 3 * 700, "value, error and TD error");
}

#[test]
fn a_trajectory_is_drawn_and_written_as_a_table() {
    let bench = Bench::new();
    bench.file("t.csv", &wrong_rows(0.0));
    bench.json("fit t.csv --discount 0.5 --out m.msgpack");
    let told = |arguments: &str| String::from_utf8(bench.run(arguments).stderr).unwrap();
    let said = told("plot m.msgpack --out a.csv --trajectory t.csv --stream a --rows 100");
    assert!(said.contains("along 100 rows of stream a, 9"), "{said}");
    let text = std::fs::read_to_string(bench.path("a.csv")).unwrap();
    let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0].join(","), "row,value,std,return,td_error,reward,terminated,truncated");
    assert_eq!((rows.len(), rows[100][0]), (101, "398"), "the newest row of a comes last");
    for row in &rows[1..] {
        let number = |k: usize| row[k].parse::<f64>().unwrap();
        assert!(number(0) as usize % 4 != 3 && number(2) > 0.0, "{row:?}");
        // What terminates has a return that is its reward; what is cut off has none.
        if row[6] == "1" {
            assert!(row[3] == row[5] && (number(4) - number(5) + number(1)).abs() < 1e-9, "{row:?}");
        } else {
            assert!(row[3].is_empty() && row[7] == "1", "{row:?}");
        }
    }
    // The newest row is one of b; the picture has the value above the rewards.
    let said = told("plot m.msgpack --out b.png --trajectory t.csv");
    assert!(said.contains("along 100 rows of stream b"), "{said}");
    let bytes = std::fs::read(bench.path("b.png")).unwrap();
    let size = [16, 20].map(|k| u32::from_be_bytes(bytes[k..k + 4].try_into().unwrap()));
    assert_eq!(size, [700, 1200]);
    told("plot m.msgpack --out b.svg --trajectory t.csv --rows 30");
    assert!(std::fs::read_to_string(bench.path("b.svg")).unwrap().contains("viewBox=\"0 0 700 1200\""));
    bench.file("narrow.csv", "state_0,reward,terminated\n1,2,1\n");
    for (arguments, status, words) in [
        ("--out x.png --trajectory t.csv --stream c", 1, "--stream c: no row is of it; there is a, b"),
        ("--out x.png --trajectory narrow.csv", 1, "--trajectory takes states of 2 numbers, this table has 1"),
        ("--out x.png --trajectory t.csv --x 0", 2, "cannot be used with"),
        ("--out x.png --trajectory t.csv --rows 0", 2, "at least 1"),
        ("--out x.png --stream a", 2, "--trajectory"),
        ("--out x.csv", 2, ".png or .svg"),
        ("--out x.jpg --trajectory t.csv", 2, ".png, .svg or .csv"),
        ("--out absent/x.csv --trajectory t.csv", 2, "cannot write"),
        ("--out x.png --head contact", 1, "m.msgpack: has no heads"),
    ] {
        let (found, message) = bench.failure(&format!("plot m.msgpack {arguments}"));
        assert!(found == status && message.contains(words), "{arguments}: {found} {message}");
    }
}

#[test]
fn a_head_is_drawn_with_its_name_and_the_unit_of_what_it_sums() {
    let bench = Bench::new();
    let row = |i: usize| format!("{},{},{}\n", (i as f64 * 0.7).sin(), (i % 5) as f64, u8::from(i % 9 == 8));
    bench.file("t.csv", &("x,energy,failed\n".to_owned() + &(0..150).map(row).collect::<String>()));
    bench.file("columns.toml", "state = [\"x\"]\nunits = [\"m\"]\nreward = \"energy\"\nterminated = \"failed\"\n");
    bench.file(
        "heads.json",
        r#"[{"name": "far", "cumulant": {"kind": "state", "index": 0}, "discount": 0.5},
            {"name": "steps", "cumulant": {"kind": "constant", "value": 1}, "discount": 0.5}]"#,
    );
    bench.json("fit t.csv --columns columns.toml --discount 0.5 --heads heads.json --hold-out 0 --out m.msgpack");
    for (head, words) in [("far", "head far [m] over x [m]"), ("steps", "head steps over x [m]")] {
        let drawn = bench.run(&format!("plot m.msgpack --out h.svg --head {head}"));
        let said = String::from_utf8(drawn.stderr).unwrap();
        assert!(drawn.status.success() && said.contains(words), "{said}");
    }
    for (arguments, status, words) in [
        ("--head near", 1, "no head is called near; there are far, steps"),
        ("--head far --reward 0", 2, "cannot be used with"),
        ("--head far --errors t.csv", 2, "cannot be used with"),
    ] {
        let (found, message) = bench.failure(&format!("plot m.msgpack --out h.svg {arguments}"));
        assert!(found == status && message.contains(words), "{arguments}: {found} {message}");
    }
}

/// The fixtures hold the same transitions (`tests/it/tables.rs`), so whatever is computed from them is the same.
#[test]
fn commands_read_every_format() {
    let bench = Bench::new();
    bench.file(
        "h.json",
        r#"{"kernel": {"kind": "isotropic", "signal_variance": 2.0, "bias_variance": 1.0, "relevance": 0.1},
                             "noise": {"model": "correlated", "variance": 0.1}}"#,
    );
    let tables = |names: &[&str]| -> Vec<String> {
        let path = |name: &&str| format!("{}/tests/data/tables/{name}", env!("CARGO_MANIFEST_DIR"));
        names.iter().map(path).collect()
    };
    let mut groups = vec![tables(&["full.csv", "full.jsonl", "full.npz"])];
    if cfg!(feature = "hdf5") {
        groups.push(tables(&["minari.csv", "minari.hdf5"]));
        groups.push(tables(&["d4rl_next.csv", "d4rl_next.hdf5"]));
    }
    if cfg!(feature = "parquet") {
        groups[0].extend(tables(&["full.parquet"]));
    }
    for group in groups {
        let found: Vec<Value> = group
            .iter()
            .map(|table| {
                let scored = bench.json(&format!("score {table} --hyperparameters h.json"));
                let arguments = "--hyperparameters h.json --no-optimise --out m.msgpack";
                assert_eq!(bench.json(&format!("fit {table} {arguments}"))["log_evidence"], scored["log_evidence"]);
                scored
            })
            .collect();
        assert!(found[0]["transitions"].as_u64().unwrap() > 10);
        assert!(found.iter().all(|one| *one == found[0]), "{group:?}: {found:?}");
    }
    bench.file("q.csv", "state_0,state_1\n0.5,1\n-2,0\n");
    bench.file("q.jsonl", "{\"state\": [0.5, 1]}\n{\"state\": [-2, 0]}\n");
    let [csv, jsonl] = ["q.csv", "q.jsonl"].map(|states| bench.json(&format!("value m.msgpack {states}")));
    assert_eq!(csv, jsonl);
    // Two rows that say nothing about their ends: it matters what is assumed.
    bench.file("unsaid.csv", "state_0,state_1,next_state_0,next_state_1,reward\n0,0,1,1,2\n5,5,6,6,-3\n");
    let score = |assume: &str| {
        bench.json(&format!("score unsaid.csv --hyperparameters h.json --assume-terminated {assume}"))["log_evidence"]
            .clone()
    };
    assert_ne!(score("never"), score("last"));
}

#[test]
fn bench_measures_every_stage_and_leaves_nothing_behind() {
    let bench = Bench::new();
    let found = bench.json("bench --sizes 20 --dims 2 --seconds 0.02 --sync os --directory .");
    assert_eq!(std::fs::read_dir(bench.directory()).unwrap().count(), 0);
    let run = &found["runs"][0];
    assert_eq!((&run["state_dim"], &run["dictionary_size"]), (&2.into(), &20.into()));
    for form in ["batches", "single_steps"] {
        for stage in ["decode", "journal", "learn", "publish"] {
            assert!(run[form]["stages"][stage]["seconds_per_row"].as_f64().unwrap() > 0.0, "{form} {stage}: {found}");
        }
        assert!(run[form]["daemon"]["rows_per_second"].as_f64().unwrap() > 0.0, "{found}");
    }
    for key in ["single_s", "batch_s_per_state"] {
        assert!(run["query"][key].as_f64().unwrap() > 0.0, "{key}: {found}");
    }
    for daemon in ["idle", "selecting", "learning"] {
        for key in ["p50_s", "p99_s", "p999_s"] {
            assert!(run["query"]["tcp"][daemon][key].as_f64().unwrap() > 0.0, "{daemon} {key}: {found}");
        }
    }
    let text = bench.text("bench --sizes 20 --dims 2 --seconds 0.02 --sync interval:10ms --directory .");
    for word in ["D = 2, m = 20", "all on one thread", "daemon over tcp", "p99"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let (status, message) = bench.failure("bench --seconds 0");
    assert!(status == 2 && message.contains("--seconds"), "{message}");
}

/// Profile and kinds go from the command line into the model, and come back from every command that reads it.
#[test]
fn fit_takes_a_profile_and_what_the_state_variables_are() {
    let bench = Bench::new();
    let mut text = String::from("state_0,state_1,next_state_0,next_state_1,reward,terminated\n");
    for i in 0..60 {
        let angle = |i: i32| (f64::from(i) * 0.7).rem_euclid(std::f64::consts::TAU);
        let (x, y, gear, next) = (angle(i), angle(i + 1), (i / 4) % 3, ((i + 1) / 4) % 3);
        writeln!(text, "{x},{gear},{y},{next},{},{}", x.cos() + f64::from(gear % 2), i % 20 == 19).unwrap();
    }
    bench.file("t.csv", &text);
    let kinds = "--state-kinds periodic:6.283185307179586,category";
    let fitted = bench.json(&format!(
        "fit t.csv --discount 0.5 --selection evidence --kernel-profile matern52 {kinds} --out m.msgpack"
    ));
    assert_eq!(fitted["kernel"]["profile"], "matern52");
    assert_eq!(fitted["kernel"]["kinds"], serde_json::json!(["periodic:6.283185307179586", "category"]));
    assert_eq!(numbers(&fitted["inputs"]["scale"]), [1.0, 1.0]);
    let inspected = bench.json("inspect m.msgpack");
    assert_eq!(inspected["kernel"], fitted["kernel"]);
    assert!(inspected["lengthscales"][0].is_f64() && inspected["lengthscales"][1].is_null());
    assert!(bench.text("inspect m.msgpack").contains("matern52"));
    bench.text("plot m.msgpack --out m.svg");
    write_states(&bench, "q.csv", 2, &[1.0, 2.0, 1.0 + std::f64::consts::TAU, 2.0, 1.0, 1.0]);
    let mean = numbers(&bench.json("value m.msgpack q.csv")["mean"]);
    assert!((mean[0] - mean[1]).abs() < 1e-9 && (mean[0] - mean[2]).abs() > 0.1, "{mean:?}");
    // What is printed is a hyperparameter file.
    bench.file("h.json", &fitted.to_string());
    let again = bench.json("score t.csv --hyperparameters h.json --discount 0.5");
    assert!(relative(&again["log_evidence"], &fitted["log_evidence"]) < 1e-9);
    let given = "fit t.csv --discount 0.5 --hyperparameters h.json --no-optimise --out n.msgpack";
    assert_eq!(bench.json(given)["kernel"]["profile"], "matern52");
    for (arguments, named) in [
        ("fit t.csv --state-kinds real --out x.msgpack", "state_kinds is for 1 state variables, states have 2"),
        ("fit t.csv --state-kinds real,angle --out x.msgpack", "periodic:P"),
        ("fit t.csv --kernel-profile rbf --out x.msgpack", "gaussian or matern52"),
        (&format!("{given} --kernel-profile gaussian"), "--kernel-profile contradicts"),
        (&format!("{given} --state-kinds real,real"), "--state-kinds contradicts"),
    ] {
        let (status, message) = bench.failure(arguments);
        assert!(status == 2 && message.contains(named), "{arguments}: {status} {message}");
    }
}

/// Columns of a log, and what makes a model of it soon.
const LOG: &str = "--state x,v --reward=-cost --episode mission --time t --terminated failed --discount 0.5";

/// A bench with `log.csv`, and its model in `model`.
fn of_log() -> Bench {
    let bench = Bench::new();
    let mut text = "mission,t,x,v,cost,failed\n".to_owned();
    for row in 0..24 {
        let (mission, t) = (row / 6, row % 6);
        let (x, v) = (f64::from(row * 7 % 11), f64::from(row * 5 % 13) / 10.0);
        writeln!(text, "{mission},{t},{x},{v},{},{}", row * 3 % 10, t == 5).unwrap();
    }
    bench.file("log.csv", &text);
    bench.text(&format!("fit log.csv {LOG} --hold-out 0 --out model"));
    bench
}

#[test]
fn no_command_writes_over_what_it_reads() {
    let bench = of_log();
    let absolute = bench.path("log.csv").display().to_string();
    for name in ["model.png", "model.onnx", "model.csv"] {
        fs::copy(bench.path("model"), bench.path(name)).unwrap();
    }
    bench.file("columns.toml", "state = [\"x\", \"v\"]\n");
    write_hyperparameters(&bench, "h.json", &case("term_ard_mc").hyperparameters);
    bench.file(
        "heads.json",
        r#"[{"name": "mean", "discount": 0.5, "cumulant": {"kind": "column", "file": "labels.csv", "column": "y"}}]"#,
    );
    bench.file("labels.csv", "stream,seq,y\n0,0,1\n0,1,2\n");
    symlink("log.csv", bench.path("link.csv")).unwrap();
    for arguments in [
        format!("label log.csv {LOG} --out log.csv"),
        format!("label log.csv {LOG} --out ./log.csv"),
        format!("label log.csv {LOG} --out {absolute}"),
        format!("label log.csv {LOG} --out link.csv"),
        format!("label log.csv {LOG} --model model.csv --out model.csv"),
        format!("fit log.csv {LOG} --out log.csv"),
        format!("fit link.csv {LOG} --out log.csv"),
        format!("fit log.csv {LOG} --columns columns.toml --out columns.toml"),
        format!("fit log.csv {LOG} --hyperparameters h.json --no-optimise --out h.json"),
        format!("fit log.csv {LOG} --heads heads.json --out heads.json"),
        format!("fit log.csv {LOG} --heads heads.json --split log.csv --out new"),
        "plot model.png --out model.png".to_owned(),
        "plot model --trajectory log.csv --columns columns.toml --out log.csv".to_owned(),
        "export model.onnx --onnx --out model.onnx".to_owned(),
    ] {
        let before = contents(&bench);
        let (status, message) = bench.failure(&arguments);
        assert!(status == 2 && message.contains("which the command reads"), "{arguments}: {status}, {message}");
        assert!(contents(&bench) == before, "{arguments}");
    }
    let (status, message) = bench.failure(&format!("fit log.csv {LOG} --heads heads.json --out new --split ./new"));
    assert!(status == 2 && message.contains("where --out writes the model"), "{message}");
    // What a file names is read as well.
    bench.file("table.csv", "stream,seq,state_0,reward,terminated\n0,0,0.5,1,0\n0,1,1.5,1,0\n0,2,2.5,1,1\n");
    let before = contents(&bench);
    let (_, message) = bench.failure("fit table.csv --heads heads.json --out labels.csv");
    assert!(message.contains("labels.csv, which the command reads") && contents(&bench) == before, "{message}");
    let (_, message) = bench.failure("fit table.csv --heads heads.json --out new --split labels.csv");
    assert!(message.contains("labels.csv, which the command reads") && contents(&bench) == before, "{message}");
    // Somebody may have changed what `init` once wrote.
    bench.file("table.toml", "state = [\"state_0\"]\n");
    let before = contents(&bench);
    let (status, message) = bench.failure("init table.csv --yes");
    assert!(status == 2 && message.contains("--out table.toml") && contents(&bench) == before, "{message}");
    bench.text("init table.csv --yes --out table.toml");
    assert!(contents(&bench) != before);
}

/// Names and contents of all files.
fn contents(bench: &Bench) -> Vec<(String, Vec<u8>)> {
    let entries = fs::read_dir(bench.directory()).unwrap().flatten();
    let mut files: Vec<(String, Vec<u8>)> =
        entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect();
    files.sort();
    files
}

#[test]
fn outputs_follow_links_keep_modes_and_go_through_pipes_and_devices() {
    let bench = of_log();
    let fit = format!("fit log.csv {LOG} --hold-out 0 --out");
    let is_model =
        |name: &str| assert!(bench.text(&format!("inspect {name}")).contains("Next: criticd value"), "{name}");
    let commands = [
        ("target", format!("{fit} link")),
        ("target.csv", format!("label log.csv {LOG} --out link.csv")),
        ("target.onnx", "export model --onnx --out link.onnx".to_owned()),
        ("target.svg", "plot model --out link.svg".to_owned()),
    ];
    for (target, arguments) in &commands {
        let link = bench.path(&target.replace("target", "link"));
        bench.file(target, "old");
        fs::set_permissions(bench.path(target), fs::Permissions::from_mode(0o640)).unwrap();
        symlink(target, &link).unwrap();
        bench.text(arguments);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink(), "{arguments}");
        assert_eq!(fs::metadata(&link).unwrap().permissions().mode() & 0o777, 0o640, "{arguments}");
        assert!(fs::read(&link).unwrap().len() > 3, "{arguments}");
    }
    is_model("target");
    // Through a pipe, as a shell's `>(...)` is one.
    for (target, arguments) in &commands {
        let pipe = target.replace("target", "pipe");
        assert!(Command::new("mkfifo").arg(bench.path(&pipe)).status().unwrap().success());
        let path = bench.path(&pipe);
        let reader = std::thread::spawn(move || fs::read(path).unwrap());
        bench.text(&arguments.replace("link", "pipe"));
        assert!(fs::metadata(bench.path(&pipe)).unwrap().file_type().is_fifo(), "{arguments}");
        let read = reader.join().unwrap();
        assert!(read.len() > 3, "{arguments}");
        fs::write(bench.path(&format!("read-{pipe}")), read).unwrap();
    }
    is_model("read-pipe");
    for device in ["/dev/null", "/dev/full"] {
        let Output { status, stderr, .. } = bench.run(&format!("{fit} {device}"));
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(i32::from(device == "/dev/full")), "{said}");
        assert!(fs::metadata(device).unwrap().file_type().is_char_device());
    }
    // Standard output has the model alone.
    let out = File::create(bench.path("standard")).unwrap();
    let mut command = crate::support::program::criticd();
    command.args(format!("{fit} /dev/stdout").split_whitespace()).current_dir(bench.directory()).stdout(out);
    let Output { status, stderr, .. } = command.stderr(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(status.success() && said.contains("written  /dev/stdout"), "{said}");
    is_model("standard");
    let mut left = fs::read_dir(bench.directory()).unwrap().flatten().map(|entry| entry.file_name());
    assert!(left.all(|name| !name.to_string_lossy().starts_with('.')), "nothing is left behind");
}

#[test]
fn a_pipe_that_would_be_read_twice_is_refused() {
    let bench = of_log();
    let piped = |arguments: &str, text: &str| {
        let mut command = crate::support::program::criticd();
        command.args(arguments.split_whitespace()).current_dir(bench.directory()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        // Who refuses does not read it.
        _ = child.stdin.take().unwrap().write_all(text.as_bytes());
        let Output { status, stderr, .. } = child.wait_with_output().unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    };
    let log = fs::read_to_string(bench.path("log.csv")).unwrap();
    let label = format!("label /dev/stdin --format csv {LOG} --model model --out labels.csv --keep");
    let (status, said) = piped(&format!("{label} t"), &log);
    assert!(status == Some(2) && said.contains("write the table to a file first"), "{said}");
    let (status, said) = piped(&label, &log);
    assert!(status == Some(0) && bench.path("labels.csv").exists(), "{said}");
    let line = "{\"state\": [0], \"reward\": 1, \"terminated\": true}\n";
    let (_, said) = piped("fit /dev/stdin --format jsonl --dry-run", line);
    assert!(said.contains("are read twice, which a pipe cannot be: write them to a file first"), "{said}");
}

#[test]
fn a_model_knows_how_its_table_was_read() {
    let bench = Bench::new();
    let mut log = String::from("trip,second,pos,volt,cost,outcome\n");
    for i in 0..240 {
        let k = i % 12;
        let outcome = if k == 11 { "arrived" } else { "" };
        log.push_str(&format!(
            "t{},{k},{},{},{},{outcome}\n",
            i / 12,
            0.3 * f64::from(k),
            12.0 - 0.1 * f64::from(k + i % 5),
            1 + i % 3
        ));
    }
    bench.file("log.csv", &log);
    let words = "--state pos,volt --names x,battery --units m,V --reward=-cost --episode trip --time second --terminated outcome==arrived";
    bench.text(&format!("fit log.csv {words} --budget 2 --out walk.model"));
    bench.text("plot walk.model --errors log.csv --out errors.png");
    bench.text("plot walk.model --trajectory log.csv --out along.csv");
    assert_eq!(bench.json("value walk.model log.csv")["mean"].as_array().unwrap().len(), 240);
    let labels = bench.json("label log.csv --model walk.model --keep --out labels.csv");
    assert_eq!(labels["rows"], 240);
    for name in ["x", "battery", "reward", "value"] {
        assert!(labels["columns"].as_array().unwrap().iter().any(|column| column == name), "{labels}");
    }
    assert_eq!(bench.json("fit log.csv --columns walk.model --dry-run")["rows"], 240);
    // Options count more, and a file that says nothing is told.
    let (_, said) = bench.failure("fit log.csv --columns walk.model --reward absent --dry-run");
    assert!(said.contains("absent"), "{said}");
}
