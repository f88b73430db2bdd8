//! Heads from outside: `criticd fit --heads` and `criticd value` against an independent implementation (tests/golden-heads), and
//! regression as the head that looks nowhere but here.

use crate::support::program::Bench;
use criticd_reference::golden_heads::read;
use criticd_reference::numbers;
use serde_json::{Value, json};

fn write_states(bench: &Bench, name: &str, states: &Value) {
    let states = states.as_array().unwrap();
    let lines: Vec<String> = states.iter().map(|state| json!({"state": state}).to_string()).collect();
    bench.file(name, &lines.join("\n"));
}

/// `table.jsonl`, `heads.json`, `h.json`, `dictionary.jsonl` and `query.jsonl` of a reference case.
fn of_case(case: &Value) -> Bench {
    let bench = Bench::new();
    bench.file("table.jsonl", &table(case));
    bench.file("heads.json", &case["heads"].to_string());
    let kernel = &case["kernel"];
    let hyperparameters = json!({
        "kernel": {
            "kind": "ard", "profile": "gaussian", "signal_variance": kernel["v0"], "bias_variance": kernel["b"],
            "relevance": kernel["a"],
        },
        "noise": {"model": "correlated", "variance": 0.3},
    });
    bench.file("h.json", &hyperparameters.to_string());
    write_states(&bench, "dictionary.jsonl", &case["dictionary"]);
    write_states(&bench, "query.jsonl", &case["query"]);
    bench
}

fn table(case: &Value) -> String {
    let line = |row: &Value| {
        json!({
            "stream": row["stream"].to_string(), "time": row["time"], "state": row["x"], "next_state": row["x_next"],
            "action": row["action"], "reward": row["reward"], "terminated": row["terminated"],
            "truncated": row["truncated"], "starts_chain": row["starts_chain"],
        })
        .to_string()
    };
    case["rows"].as_array().unwrap().iter().map(line).collect::<Vec<_>>().join("\n")
}

const FIT: &str =
    "fit table.jsonl --heads heads.json --hyperparameters h.json --no-optimise --dictionary dictionary.jsonl";

fn assert_close(told: &str, found: &Value, expected: &Value) {
    let (found, expected) = (numbers(found), numbers(expected));
    assert_eq!(found.len(), expected.len(), "{told}");
    let scale = expected.iter().fold(1f64, |s, v| s.max(v.abs()));
    for (a, b) in found.iter().zip(&expected) {
        assert!((a - b).abs() < 1e-9 * scale, "{told}: {a} {b}");
    }
}

#[test]
fn heads_are_the_reference() {
    for name in ["discounts_11", "gvf_12", "weights_13", "remove_merge_15", "forgetting_16"] {
        let case = read(name);
        let bench = of_case(&case);
        let forgetting = case["forgetting"].as_f64().map_or(String::new(), |f| format!(" --forgetting {f}"));
        let fitted = bench.json(&format!("{FIT} --lambda 1{forgetting} --out model.msgpack"));
        let found = bench.json("value model.msgpack query.jsonl");
        let expected = if name.starts_with("remove") { &case["expected"]["merged"] } else { &case["expected"] };
        for head in case["heads"].as_array().unwrap() {
            let (name, of) = (head["name"].as_str().unwrap(), &expected[head["name"].as_str().unwrap()]);
            assert_close(&format!("{name}: mean"), &found["heads"][name]["mean"], &of["mean"]);
            assert_close(&format!("{name}: variance"), &found["heads"][name]["variance"], &of["var"]);
            if !of["log_evidence"].is_null() {
                let evidence = &fitted["heads"][name]["log_evidence"];
                assert_close(&format!("{name}: evidence"), evidence, &of["log_evidence"]);
            }
            assert_close(name, &fitted["heads"][name]["noise_variance"], &head["noise_variance"]);
            let alone = bench.json(&format!("value model.msgpack query.jsonl --head {name}"));
            assert_eq!((&alone["head"], &alone["mean"]), (&head["name"], &found["heads"][name]["mean"]));
        }
    }
}

#[test]
fn toml_says_the_same_and_models_without_heads_are_what_they_were() {
    let case = read("gvf_12");
    let bench = of_case(&case);
    let toml: String = toml::to_string(&json!({"heads": case["heads"]})).unwrap();
    bench.file("heads.toml", &toml);
    bench.json(&format!("{FIT} --out json.msgpack"));
    bench.json(&format!("{} --out toml.msgpack", FIT.replace("heads.json", "heads.toml")));
    bench.json(&format!("{} --out none.msgpack", FIT.replace("--heads heads.json", "")));
    let [json, toml, none] = ["json", "toml", "none"].map(|name| {
        let mut found = bench.json(&format!("value {name}.msgpack query.jsonl"));
        let heads = found.as_object_mut().unwrap().remove("heads");
        (found, heads)
    });
    assert_eq!(json, toml);
    // The value itself does not depend on heads.
    assert_eq!((&json.0, none.1), (&none.0, None));
}

#[test]
fn what_cannot_be_answered_is_refused() {
    let case = read("discounts_11");
    let bench = of_case(&case);
    for (change, words) in [
        (json!({"cumulant": {"kind": "reward", "index": 9}}), vec!["heads.json", "cumulant.index", "4 rewards"]),
        (json!({"cumulant": {"kind": "speed"}}), vec!["heads[0] (return)", "cumulant", "speed"]),
        (json!({"discount": 1.5}), vec!["discount", "[0, 1]"]),
        (json!({"timescale": 2.0}), vec!["timescale", "not both"]),
        (json!({"name": "second"}), vec!["name", "second"]),
        (json!({"gamma": 0.9}), vec!["gamma", "discount"]),
    ] {
        let mut heads = case["heads"].clone();
        change.as_object().unwrap().iter().for_each(|(key, value)| heads[0][key] = value.clone());
        bench.file("heads.json", &heads.to_string());
        let (_, message) = bench.failure(&format!("{FIT} --out model.msgpack"));
        words.iter().for_each(|word| assert!(message.contains(word), "{message}"));
    }
    bench.file("heads.json", &case["heads"].to_string());
    let table = table(&case);
    bench.file("table.jsonl", &table.replace("\"time\":", "\"_time\":"));
    assert!(bench.failure(&format!("{FIT} --out model.msgpack")).1.contains("time"));
    bench.file("table.jsonl", &table);
    let (_, message) = bench.failure(&format!("{FIT} --noise white --out model.msgpack"));
    assert!(message.contains("white noise"), "{message}");
    bench.json(&format!("{FIT} --out model.msgpack"));
    assert!(bench.failure("value model.msgpack query.jsonl --head other").1.contains("return"));
}

#[test]
fn a_kernel_is_selected_for_heads_and_each_finds_its_noise() {
    let case = read("discounts_11");
    let bench = of_case(&case);
    let mut heads = case["heads"].clone();
    heads.as_array_mut().unwrap().truncate(5);
    for head in heads.as_array_mut().unwrap() {
        head.as_object_mut().unwrap().remove("noise_variance");
        head.as_object_mut().unwrap().remove("signal");
    }
    // The same sum in a thousandth of its unit, by its reward column.
    let plain = table(&case);
    let thousandth = plain.lines().map(|line| {
        let mut row: Value = serde_json::from_str(line).unwrap();
        row["reward"][3] = json!(row["reward"][0].as_f64().unwrap() / 1000.0);
        row.to_string() + "\n"
    });
    bench.file("table.jsonl", &thousandth.collect::<String>());
    let other = json!({"name": "milli", "cumulant": {"kind": "reward", "index": 3}, "discount": 0.95});
    heads.as_array_mut().unwrap().push(other);
    bench.file("heads.json", &heads.to_string());
    let fitted = bench.json("fit table.jsonl --heads heads.json --budget 5 --seed 1 --hold-out 0 --out model.msgpack");
    assert!(fitted["search"]["evaluations"].as_u64().unwrap() > 0);
    let found = bench.json("value model.msgpack query.jsonl");
    let of = |name: &str, what: &str| numbers(&found["heads"][name][what]);
    for (milli, one) in of("milli", "mean").iter().zip(of("return", "mean")) {
        assert!((1000.0 * milli - one).abs() < 1e-6 * (1.0 + one.abs()), "{milli} {one}");
    }
    for (milli, one) in of("milli", "variance").iter().zip(of("return", "variance")) {
        assert!((1e6 * milli - one).abs() < 1e-6 * (1.0 + one), "{milli} {one}");
    }
}

/// Kernel ridge regression by dense Gaussian elimination, of 41 points of a wave that are not in order.
#[test]
fn a_target_column_is_regression() {
    let bench = Bench::new();
    let x: Vec<f64> = (0..41).map(|i| f64::from(i * 17 % 41) / 40.0).collect();
    let y: Vec<f64> =
        x.iter().enumerate().map(|(i, x)| (6.0 * x).cos() + 0.1 * f64::from(i as u32 % 5) - 0.2).collect();
    let lines: Vec<String> = x.iter().zip(&y).map(|(x, y)| format!("{x},{y}")).collect();
    bench.file("points.csv", &format!("place,height\n{}\n", lines.join("\n")));
    bench.file("query.csv", "place\n0\n0.31\n0.5\n1\n");
    let hyperparameters = json!({
        "kernel": {"kind": "isotropic", "profile": "gaussian", "signal_variance": 1.0, "bias_variance": 0.0, "relevance": 20.0},
        "noise": {"model": "correlated", "variance": 0.5},
    });
    bench.file("h.json", &hyperparameters.to_string());
    let fit = "fit points.csv --state place --target height --out model.msgpack";
    let fitted = bench.json(&format!("{fit} --hyperparameters h.json --no-optimise --tolerance 1e-12"));
    assert_eq!((&fitted["transitions"], &fitted["discount"]), (&json!(41), &json!(0.0)));
    let k = |a: f64, b: f64| (-10.0 * (a - b) * (a - b)).exp();
    let system = nalgebra::DMatrix::from_fn(41, 41, |i, j| k(x[i], x[j]) + if i == j { 0.5 } else { 0.0 });
    let alpha = system.clone().lu().solve(&nalgebra::DVector::from_column_slice(&y)).unwrap();
    let inverse = system.try_inverse().unwrap();
    let found = bench.json("value model.msgpack query.csv");
    let (mean, variance) = (numbers(&found["mean"]), numbers(&found["variance"]));
    for (i, at) in [0.0, 0.31, 0.5, 1.0].into_iter().enumerate() {
        let row = nalgebra::DVector::from_iterator(41, x.iter().map(|&x| k(at, x)));
        assert!((mean[i] - row.dot(&alpha)).abs() < 1e-8, "{at}");
        assert!((variance[i] - (1.0 - row.dot(&(&inverse * &row)))).abs() < 1e-8, "{at}");
    }
    // Tuned by evidence it knows the wave to within its noise.
    bench.json(&format!("{fit} --seed 1 --budget 5"));
    let found = numbers(&bench.json("value model.msgpack query.csv")["mean"]);
    for (mean, at) in found.iter().zip([0.0, 0.31, 0.5, 1.0]) {
        assert!((mean - (6.0f64 * at).cos()).abs() < 0.2, "{at}: {mean}");
    }
    assert!(bench.failure(&format!("{fit} --discount 0.9")).1.contains("--discount"));
}

/// A Gaussian process about the level `mu` whose noise is ridge / weight, by dense algebra.
struct Dense {
    evidence: f64,
    /// At 0, 0.31, 0.5 and 1.
    mean: Vec<f64>,
    variance: Vec<f64>,
}

fn dense(fitted: &Value, (x, y, weight): (&[f64], &[f64], &[f64]), mu: f64) -> Dense {
    let of = |path: &str| fitted.pointer(path).unwrap().as_f64().unwrap();
    let (v0, b, n, ridge) =
        (of("/kernel/signal_variance"), of("/kernel/bias_variance"), x.len(), of("/noise/variance"));
    let scale = fitted.pointer("/inputs/scale/0").map_or(1.0, |scale| scale.as_f64().unwrap());
    let a = of("/kernel/relevance") / (scale * scale);
    let k = |p: f64, q: f64| v0 * (-0.5 * a * (p - q) * (p - q)).exp() + b;
    let noise = |i: usize, j: usize| if i == j { ridge / weight[i] } else { 0.0 };
    let system = nalgebra::DMatrix::from_fn(n, n, |i, j| k(x[i], x[j]) + noise(i, j));
    let about = nalgebra::DVector::from_iterator(n, y.iter().map(|y| y - mu));
    let (inverse, half) = (system.clone().try_inverse().unwrap(), system.cholesky().unwrap().l());
    let alpha = &inverse * &about;
    let log_determinant = 2.0 * half.diagonal().map(f64::ln).sum();
    let evidence = -0.5 * (about.dot(&alpha) + log_determinant + n as f64 * std::f64::consts::TAU.ln());
    let rows = [0.0, 0.31, 0.5, 1.0].map(|at| nalgebra::DVector::from_iterator(n, x.iter().map(|&x| k(at, x))));
    let mean = rows.iter().map(|row| mu + row.dot(&alpha)).collect();
    let variance = rows.iter().map(|row| v0 + b - row.dot(&(&inverse * row))).collect();
    Dense { evidence, mean, variance }
}

/// That the model is this process, and says its evidence.
fn assert_weighted(bench: &Bench, fitted: &Value, rows: (&[f64], &[f64], &[f64]), mu: f64) {
    let (found, expected) = (bench.json("value model.msgpack query.csv"), dense(fitted, rows, mu));
    for (key, expected) in [("mean", &expected.mean), ("variance", &expected.variance)] {
        for (found, expected) in numbers(&found[key]).iter().zip(expected) {
            assert!((found - expected).abs() < 1e-8, "{key}: {found} {expected}");
        }
    }
    let nats = fitted["log_evidence"].as_f64().unwrap();
    assert!((nats - expected.evidence).abs() < 1e-5, "{nats} {}", expected.evidence);
}

/// The data of cost-regularised kernel regression: two waves, each of which counts where the other hardly does.
#[test]
fn rows_of_a_regression_count_as_their_weights_or_costs_say() {
    let case = read("regression_101");
    let of = &case["crkr"];
    let (x, y, weight) = (numbers(&case["x"]), numbers(&of["y"]), numbers(&of["weight"]));
    let x = [&x[..], &x[..]].concat();
    let bench = Bench::new();
    let line = |i: usize| format!("{},{},{},{}", x[i], y[i], weight[i], 1.0 / weight[i]);
    let lines: Vec<String> = (0..x.len()).map(line).collect();
    bench.file("points.csv", &format!("place,height,weight,cost\n{}\n", lines.join("\n")));
    bench.file("query.csv", "place\n0\n0.31\n0.5\n1\n");
    let hyperparameters = json!({
        "kernel": {"kind": "isotropic", "profile": "gaussian", "signal_variance": 1.0, "bias_variance": 0.0, "relevance": 20.0},
        "noise": {"model": "correlated", "variance": 1.0},
    });
    bench.file("h.json", &hyperparameters.to_string());
    let given = "--hyperparameters h.json --no-optimise --tolerance 1e-13";
    let fit = "fit points.csv --state place --target height --out model.msgpack";
    for by in ["--weight weight", "--cost cost"] {
        let fitted = bench.json(&format!("{fit} {by} {given}"));
        assert_weighted(&bench, &fitted, (&x, &y, &weight), 0.0);
        bench.file(
            "all.csv",
            &format!("place\n{}\n", x[..101].iter().map(f64::to_string).collect::<Vec<_>>().join("\n")),
        );
        let found = bench.json("value model.msgpack all.csv");
        let deviation: Vec<f64> = numbers(&found["variance"]).iter().map(|v| (v + 1.0).sqrt()).collect();
        assert_close(by, &found["mean"], &of["mean"]);
        assert_close(by, &json!(deviation), &of["std"]);
    }

    // Selected by the evidence of the weighted rows.
    let select = format!(
        "{fit} --kernel isotropic --kernel-profile gaussian --linear-columns never --seed 1 --budget 20 --tolerance 1e-13"
    );
    let fitted = bench.json(&format!("{select} --cost cost"));
    bench.file("selected.json", &fitted.to_string());
    let again = "--hyperparameters selected.json --no-optimise --tolerance 1e-13";
    let again = bench.json(&format!("{fit} --cost cost {again}"));
    let all: f64 = weight.iter().sum();
    let mu = y.iter().zip(&weight).map(|(y, w)| y * w).sum::<f64>() / all;
    assert_weighted(&bench, &again, (&x, &y, &weight), mu);
    let nats = |fitted: &Value| fitted["log_evidence"].as_f64().unwrap();
    assert!((nats(&fitted) - nats(&again)).abs() < 2.0, "{} {}", nats(&fitted), nats(&again));
    assert!(fitted["held_out"]["error"].as_f64().unwrap() < 1.0);
    // Nowhere near is the evidence of the weighted rows higher, nor where unweighted rows lead.
    let plain = dense(&bench.json(&select), (&x, &y, &weight), mu).evidence;
    assert!(plain < nats(&again) - 5.0, "{plain} {}", nats(&again));
    for (what, by) in [("/noise/variance", 1.3), ("/kernel/relevance", 1.6), ("/kernel/signal_variance", 3.0)] {
        for by in [by, 1.0 / by] {
            let mut other = fitted.clone();
            let value = other.pointer_mut(what).unwrap();
            *value = json!(by * value.as_f64().unwrap());
            let other = dense(&other, (&x, &y, &weight), mu).evidence;
            assert!(other < nats(&again) - 0.1, "{what} times {by}: {other} {}", nats(&again));
        }
    }
}

#[test]
fn a_weight_that_cannot_be_is_named_with_its_row() {
    let bench = Bench::new();
    let said = |third: &str, options: &str| {
        bench.file("points.csv", &format!("place,height,weight\n0,1,1\n0.5,2,{third}\n1,2,1\n"));
        bench.failure(&format!("fit points.csv --state place --target height --out model.msgpack {options}")).1
    };
    for bad in ["0", "-1", "1e-12"] {
        for option in ["weight", "cost"] {
            let message = said(bad, &format!("--{option} weight"));
            assert!(message.contains("3, column weight: is ") && message.contains("above 0"), "{message}");
        }
    }
    for bad in ["", "heavy", "nan", "inf"] {
        let message = said(bad, "--weight weight");
        assert!(message.contains("weight") && message.contains("line 3"), "{message}");
    }
    assert!(said("1", "--weight wieght").contains("wieght"));
    for both in ["--weight weight --cost weight", "--weight weight --drift-sensitivity low"] {
        assert!(said("1", both).contains("cannot be used with"), "{both}");
    }
    let alone = bench.failure("fit points.csv --weight weight --out model.msgpack").1;
    assert!(alone.contains("--target"), "{alone}");
}

/// A wave that six elements cannot follow, and how each rule's dictionary does on the last fifth of it.
#[test]
fn rules_for_the_dictionary_are_compared_by_later_returns() {
    let bench = Bench::new();
    let x: Vec<f64> = (0..200).map(|i| f64::from(i * 83 % 200) / 199.0).collect();
    let y: Vec<f64> = x.iter().map(|x| (20.0 * x).sin() * if *x < 0.5 { 1.0 } else { 0.05 }).collect();
    let lines: Vec<String> = x.iter().zip(&y).map(|(x, y)| format!("{x},{y}")).collect();
    bench.file("points.csv", &format!("place,height\n{}\n", lines.join("\n")));
    bench.file("taught.csv", &format!("place,height\n{}\n", lines[..160].join("\n")));
    let later: Vec<String> = x[160..].iter().map(f64::to_string).collect();
    bench.file("later.csv", &format!("place\n{}\n", later.join("\n")));
    let hyperparameters = json!({
        "kernel": {"kind": "isotropic", "profile": "gaussian", "signal_variance": 1.0, "bias_variance": 0.0, "relevance": 200.0},
        "noise": {"model": "correlated", "variance": 0.01},
    });
    bench.file("h.json", &hyperparameters.to_string());
    let options = "--state place --target height --hyperparameters h.json --no-optimise --out model.msgpack";
    let fit = |more: &str| bench.json(&format!("fit points.csv {options} {more}"));
    let rules = |fitted: &Value| -> Vec<String> {
        let compared = fitted["dictionaries"].as_array().cloned().unwrap_or_default();
        compared.iter().map(|one| one["rule"].as_str().unwrap().to_owned()).collect()
    };
    let fitted = fit("--dictionary-max 6 --dictionary-by auto");
    assert_eq!(rules(&fitted), ["icd", "returns", "omp-td", "omp-brm"]);
    let error = |rule: usize| fitted["dictionaries"][rule]["relative_squared_error"].as_f64().unwrap();
    assert!(error(1) < error(0), "returns find where the wave is: {}", fitted["dictionaries"]);
    let chance = |rule: usize| fitted["dictionaries"][rule]["standard_error"].as_f64().unwrap();
    assert!(chance(0) == 0.0 && chance(1) > 0.0, "{}", fitted["dictionaries"]);
    // Discount 0 makes both pursuits the same one, of the wave itself.
    assert_eq!(error(2), error(3));
    // The error of ICD is that of a model which has learned the first part alone.
    bench.json(&format!("fit taught.csv {options} --dictionary-max 6"));
    let found = numbers(&bench.json("value model.msgpack later.csv")["mean"]);
    let mean = y[160..].iter().sum::<f64>() / 40.0;
    let sum = |of: &dyn Fn(usize) -> f64| (0..40).map(|i| of(i).powi(2)).sum::<f64>();
    let expected = sum(&|i| y[160 + i] - found[i]) / sum(&|i| y[160 + i] - mean);
    assert!((error(0) - expected).abs() < 1e-6 * expected, "{} {expected}", error(0));
    assert_eq!(rules(&fit("--dictionary-max 6 --dictionary-by omp-td")), ["icd", "omp-td"]);
    // Given hyperparameters keep ICD unless another rule is asked for; a selected model is open to all of them.
    assert!(rules(&fit("--dictionary-max 6")).is_empty());
    let select = "fit points.csv --state place --target height --hold-out 0 --out model.msgpack";
    let select = |more: &str| rules(&bench.json(&format!("{select} {more}")));
    assert_eq!(select("--dictionary-max 6"), ["icd", "returns", "omp-td", "omp-brm"]);
    assert!(select("--dictionary-max 6 --dictionary-by icd").is_empty());
    // There is nothing to choose where ICD covers the states.
    assert!(select("--dictionary-max 100").is_empty());
    assert!(rules(&fit("--dictionary-max 100 --dictionary-by auto")).is_empty());
    let (_, message) = bench.failure(&format!("fit points.csv {options} --dictionary-by auto --dictionary later.csv"));
    assert!(message.contains("--dictionary"), "{message}");
}

/// The rows of a case with their numbers in their streams; before a row that starts a chain one number is left out.
fn numbered(case: &Value) -> Vec<Value> {
    let mut next = std::collections::HashMap::new();
    let rows = case["rows"].as_array().unwrap().iter().zip(table(case).lines().map(str::to_owned).collect::<Vec<_>>());
    rows.map(|(row, line)| {
        let mut line: Value = serde_json::from_str(&line).unwrap();
        let seq = next.entry(row["stream"].to_string()).or_insert(0u64);
        *seq += 1 + u64::from(row["starts_chain"] == true);
        line["seq"] = json!(*seq);
        line
    })
    .collect()
}

fn lines(rows: &[Value]) -> String {
    rows.iter().map(Value::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn relabelled_rewards_are_heads_by_expression_and_by_file() {
    let case = read("discounts_11");
    let bench = of_case(&case);
    let rows = numbered(&case);
    bench.file("table.jsonl", &lines(&rows));
    let labels = |row: &Value| {
        let of = |key: &str, k: usize| row[key][k].as_f64().unwrap();
        of("reward", 1) - 0.5 * of("action", 0) + 2.0 * of("next_state", 2)
    };
    let heads = |cumulant: Value| {
        let head = |(k, rate): (usize, Value)| {
            let mut head = json!({"name": format!("h{k}"), "cumulant": cumulant, "noise_variance": 0.3, "signal": 1.0});
            head.as_object_mut().unwrap().extend(rate.as_object().unwrap().clone());
            head
        };
        let rates = [json!({"discount": 0.0}), json!({"discount": 0.9}), json!({"timescale": 2.0})];
        Value::Array(rates.into_iter().enumerate().map(head).collect())
    };
    let learned = |cumulant: Value| {
        bench.file("heads.json", &heads(cumulant).to_string());
        bench.json(&format!("{FIT} --lambda 1 --out model.msgpack"));
        bench.json("value model.msgpack query.jsonl")["heads"].clone()
    };
    let same = |what: &str, found: &Value, expected: &Value| {
        for name in ["h0", "h1", "h2"] {
            for key in ["mean", "variance"] {
                let (found, expected) = (numbers(&found[name][key]), numbers(&expected[name][key]));
                let scale = expected.iter().fold(1f64, |s, v| s.max(v.abs()));
                let worst = found.iter().zip(&expected).fold(0f64, |s, (a, b)| s.max((a - b).abs()));
                assert!(worst < 1e-12 * scale, "{what}, {name}, {key}: {worst:e}");
            }
        }
    };
    let before = {
        let with: Vec<Value> = rows
            .iter()
            .map(|row| {
                let mut row = row.clone();
                let label = labels(&row);
                row["reward"].as_array_mut().unwrap().push(json!(label));
                row
            })
            .collect();
        bench.file("table.jsonl", &lines(&with));
        let found = learned(json!({"kind": "reward", "index": 4}));
        bench.file("table.jsonl", &lines(&rows));
        found
    };
    let text = "reward[1] - 0.5*action[0] + 2*next_state[2]";
    same("expression", &learned(json!({"kind": "expression", "text": text})), &before);
    let line = |row: &Value| format!("{},{},{}", row["stream"].as_str().unwrap(), row["seq"], labels(row));
    let csv = |rows: &[Value]| format!("stream,seq,label\n{}\n", rows.iter().map(line).collect::<Vec<_>>().join("\n"));
    bench.file("labels.csv", &csv(&rows));
    let column = json!({"kind": "column", "file": "labels.csv", "column": "label"});
    same("file", &learned(column.clone()), &before);

    // Rows without a value do not count, as if they were not there.
    let some: Vec<Value> = rows.iter().filter(|row| row["stream"] == rows[0]["stream"]).cloned().collect();
    bench.file("table.jsonl", &lines(&some));
    let fewer = learned(column.clone());
    bench.file("table.jsonl", &lines(&rows));
    bench.file("labels.csv", &csv(&some));
    same("part of a file", &learned(column.clone()), &fewer);
    let said = String::from_utf8(bench.run(&format!("{FIT} --out model.msgpack")).stderr).unwrap();
    assert!(said.contains(&format!("{} of {} rows have a value", some.len(), rows.len())), "{said}");

    // A chain ends before a row without a value (tests/it/labelled_heads.rs); each of the others has a value of its own.
    let some: Vec<Value> = rows.iter().step_by(3).cloned().collect();
    bench.file("labels.csv", &csv(&some));
    let output = bench.run(&format!("{FIT} --lambda 1 --out model.msgpack"));
    let said = String::from_utf8(output.stderr).unwrap();
    let counted = format!("head h1: {} of {} rows have a value", some.len(), rows.len());
    assert!(output.status.success() && said.contains(&counted) && said.contains("chains end"), "{said}");
    bench.file("heads.json", &json!([heads(column.clone())[0]]).to_string());
    let value = |fit: &str| {
        bench.json(&format!("{fit} --lambda 1 --out model.msgpack"));
        bench.json("value model.msgpack query.jsonl")
    };
    let found = value(FIT);
    assert_eq!(found["mean"], value(&FIT.replace("--heads heads.json", ""))["mean"], "chains of others go on");
    bench.file("table.jsonl", &lines(&some));
    let alone = value(FIT);
    bench.file("table.jsonl", &lines(&rows));
    for key in ["mean", "variance"] {
        let [found, alone] = [&found, &alone].map(|of| numbers(&of["heads"]["h0"][key]));
        assert!(found.iter().zip(&alone).all(|(a, b)| (a - b).abs() < 1e-12 * b.abs().max(1.0)), "{found:?} {alone:?}");
    }

    for (cumulant, words) in [
        (json!({"kind": "column", "file": "labels.csv", "column": "lable"}), vec!["labels.csv", "lable"]),
        (json!({"kind": "column", "file": "none.csv", "column": "label"}), vec!["none.csv"]),
        (json!({"kind": "column", "file": "labels.csv"}), vec!["heads[0] (h0)", "missing field `column`"]),
        (json!({"kind": "expression", "text": "reward[7]"}), vec!["heads[0] (h0)", "cumulant.text", "4 rewards"]),
        (json!({"kind": "expression", "text": "speed"}), vec!["heads[0] (h0)", "there is no speed"]),
    ] {
        bench.file("heads.json", &heads(cumulant).to_string());
        let (_, message) = bench.failure(&format!("{FIT} --out model.msgpack"));
        words.iter().for_each(|word| assert!(message.contains(word), "{message}"));
    }
    bench.file("labels.csv", "stream,seq,label\nelsewhere,0,1\n");
    bench.file("heads.json", &heads(column).to_string());
    assert!(bench.failure(&format!("{FIT} --out model.msgpack")).1.contains("no stream and seq"));
}
