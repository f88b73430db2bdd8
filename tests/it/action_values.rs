//! Values of actions on the command line: tables with actions in, values of states and actions out, as the reference has them.

use crate::support::program::Bench;
use criticd_reference::numbers;
use serde_json::{Value, json};
use std::fmt::Write as _;

const CASES: [&str; 3] =
    ["q_box_sarsa_lambda_1", "q_discrete_sarsa_lambda_04", "q_discrete_expected_retrace_lambda_08"];

/// The numbers of a field that may be left out.
fn given(value: &Value) -> Vec<f64> {
    if value.is_null() { Vec::new() } else { numbers(value) }
}

fn line(numbers: &[f64]) -> String {
    numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(",") + "\n"
}

fn numbered(name: &str, count: usize) -> String {
    (0..count).map(|k| format!("{name}_{k}")).collect::<Vec<_>>().join(",")
}

/// A reference case, and its files.
fn of_case(name: &str) -> (Bench, Value) {
    let path = format!("{}/tests/golden-q/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let case: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let bench = Bench::new();
    write_table(&bench, &case);
    let kernel = &case["kernel"];
    let hyperparameters = json!({
        "kernel": {"kind": "ard", "signal_variance": kernel["v0"], "bias_variance": kernel["b"], "relevance": kernel["relevance"]},
        "noise": {"model": "correlated", "variance": case["noise_variance"]},
    });
    bench.file("h.json", &hyperparameters.to_string());
    let elements = case["dictionary"].as_array().unwrap();
    let mut dictionary = numbered("state", numbers(&elements[0]).len()) + "\n";
    elements.iter().for_each(|element| dictionary += &line(&numbers(element)));
    bench.file("dictionary.csv", &dictionary);
    let mut query = "state_0,state_1,action\n".to_owned();
    case["query"].as_array().unwrap().iter().for_each(|pair| query += &line(&numbers(pair)));
    bench.file("query.csv", &query);
    (bench, case)
}

fn write_table(bench: &Bench, case: &Value) {
    let rows = case["transitions"].as_array().unwrap();
    let optional = ["behavior_prob", "target_prob", "next_action_probs"].map(|key| given(&rows[0][key]).len());
    let mut text =
        "stream,starts_chain,terminated,truncated,reward,discount,state_0,state_1,next_state_0,next_state_1,action"
            .to_owned();
    if optional[0] > 0 {
        text += ",behavior_prob,target_prob,";
        text += &numbered("next_action_probs", optional[2]);
    }
    text += "\n";
    for t in rows {
        let flag = |key: &str| u8::from(t[key].as_bool().unwrap());
        let (gap, ends) = (flag("gap"), [flag("terminated"), flag("truncated")]);
        write!(text, "{},{gap},{},{},", t["stream"], ends[0], ends[1]).unwrap();
        let keys = ["r", "discount", "x", "x_next", "action", "behavior_prob", "target_prob", "next_action_probs"];
        text += &line(&keys.iter().flat_map(|key| given(&t[*key])).collect::<Vec<_>>());
    }
    bench.file("table.csv", &text);
}

/// The arguments of `fit` for the case.
fn asked(case: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let actions = match case["action"]["kind"].as_str().unwrap() {
        "discrete" => format!("discrete:{}", case["action"]["n"]),
        _ => "box".to_owned(),
    };
    format!(
        "fit table.csv --inputs state_action --actions {actions} --successor {} --trace {} --lambda {} --discount {}",
        text(&case["successor"]),
        text(&case["trace"]),
        case["lambda"],
        case["discount"]
    )
}

fn relative(found: &Value, expected: &Value) -> f64 {
    let (found, expected) = (numbers(found), numbers(expected));
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1e-300f64, |most, v| most.max(v.abs()));
    found.iter().zip(&expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / scale
}

#[test]
fn fit_and_value_are_the_reference() {
    for name in CASES {
        let (bench, case) = of_case(name);
        let expected = &case["expected"];
        for variance in ["model", "rows", "clustered"] {
            let arguments = asked(&case);
            let given = "--no-optimise --hyperparameters h.json --dictionary dictionary.csv --out model.msgpack";
            let report = bench.json(&format!("{arguments} {given} --variance {variance}"));
            assert_eq!(report["transitions"], expected["rows_learned"], "{name}");
            assert_eq!(report["successor"], case["successor"]);
            let found = bench.json("value model.msgpack query.csv");
            let off = [("mean", &expected["mean"]), ("variance", &expected["variance"][variance])]
                .map(|(key, expected)| relative(&found[key], expected));
            assert!(off[0] < 1e-9 && off[1] < 1e-9, "{name} {variance}: {off:e}", off = off[0].max(off[1]));
        }
    }
}

#[test]
fn a_limit_on_ratios_and_missing_probabilities_leave_rows_of_q_whole() {
    let (bench, case) = of_case("q_discrete_sarsa_lambda_04");
    let given = "--no-optimise --hyperparameters h.json --dictionary dictionary.csv --out model.msgpack";
    let fit = |arguments: &str, more: &str| {
        bench.json(&format!("{arguments} {given} {more}"));
        numbers(&bench.json("value model.msgpack query.csv")["mean"])
    };
    let plain = asked(&case).replace("--trace retrace", "--trace on_policy");
    let expected = fit(&plain, "");
    assert_eq!(fit(&plain, "--rho-max 0.25"), expected, "every row counts once");
    // Without probabilities rho is 1, and is not clipped.
    let table = std::fs::read_to_string(bench.path("table.csv")).unwrap();
    let (head, rows) = table.split_once('\n').unwrap();
    bench.file(
        "table.csv",
        &format!("{}\n{rows}", head.replace("behavior_prob", "spare_0").replace("target_prob", "spare_1")),
    );
    for trace in ["retrace", "importance", "tree"] {
        let arguments = plain.replace("--trace on_policy", &format!("--trace {trace}"));
        assert_eq!(fit(&arguments, "--rho-max 0.25"), expected, "{trace}");
        let said = bench.run(&format!("{arguments} {given}")).stderr;
        assert!(String::from_utf8(said).unwrap().contains("so that rho is 1 in every row"), "{trace}");
    }
}

#[test]
fn a_kernel_is_selected_and_every_successor_is_learned_by_it() {
    let (bench, _) = of_case("q_discrete_expected_retrace_lambda_08");
    for successor in ["sarsa", "expected", "improve"] {
        let arguments = format!("fit table.csv --inputs state_action --actions discrete:3 --successor {successor}");
        let report = bench.json(&format!("{arguments} --budget 2 --discount 0.9 --out model.msgpack"));
        assert_eq!(report["kernel"]["relevance"].as_array().unwrap().len(), 5, "{successor}");
        let found = bench.json("value model.msgpack query.csv");
        assert!(numbers(&found["mean"]).iter().all(|q| q.is_finite()) && found["variance"].is_array());
        if successor == "improve" {
            assert_eq!(report["lambda"], 0.0);
            assert!(report["improvement"]["sweeps"].as_u64().unwrap() >= 1);
        }
    }
}

#[test]
fn a_model_acts_on_the_command_line_as_it_values() {
    let (bench, _) = of_case("q_discrete_expected_retrace_lambda_08");
    let fit = "fit table.csv --inputs state_action --actions discrete:3 --successor improve --budget 2 --discount 0.9";
    bench.json(&format!("{fit} --out model.msgpack"));
    bench.file("states.csv", "state_0,state_1\n0.1,0.2\n-0.5,1\n");
    bench.file("all.csv", "state_0,state_1,action\n0.1,0.2,0\n0.1,0.2,1\n0.1,0.2,2\n-0.5,1,0\n-0.5,1,1\n-0.5,1,2\n");
    let values = numbers(&bench.json("value model.msgpack all.csv")["mean"]);
    let greedy = bench.json("act model.msgpack states.csv");
    for (i, q) in values.chunks_exact(3).enumerate() {
        let action = greedy["actions"][i].as_u64().unwrap() as usize;
        assert!(q.iter().all(|other| *other <= q[action]), "{q:?} {greedy}");
        assert_eq!((&greedy["mean"][i], &greedy["probability"][i]), (&json!(q[action]), &json!(1.0)));
    }
    let random = "act model.msgpack states.csv --exploration epsilon_greedy --epsilon 1 --seed 3";
    let found = bench.json(random);
    assert!(numbers(&found["probability"]).iter().all(|p| (p - 1.0 / 3.0).abs() < 1e-12), "{found}");
    assert_eq!(found, bench.json(random), "the same seed, the same decisions");
    let raised = bench.json(&format!("{fit} --prior-mean 100 --out model.msgpack"));
    assert!(raised["improvement"]["sweeps"].as_u64().unwrap() >= 1);
    bench.file("far.csv", "state_0,state_1,action\n1e6,1e6,0\n");
    let far = numbers(&bench.json("value model.msgpack far.csv")["mean"])[0];
    assert!(far > 50.0, "no row is near: {far}");
}

#[test]
fn what_the_table_does_not_say_is_asked_for_by_name() {
    let (bench, _) = of_case("q_discrete_sarsa_lambda_04");
    let fit = "fit table.csv --out m.msgpack --budget 1";
    let said = |arguments: &str| bench.failure(&format!("{fit} {arguments}")).1;
    assert!(said("--successor sarsa").contains("--successor needs --inputs state_action"));
    assert!(said("--inputs state_action").contains("needs --actions discrete:N or --actions box"));
    assert!(said("--inputs state_action --actions discrete:0").contains("N from 1 to 256"));
    let q = "--inputs state_action --actions discrete:3";
    assert!(said(&format!("{q} --successor next_action")).contains("no column next_action"));
    assert!(said(&format!("{q} --successor expected")).contains("no columns next_action_probs_0"));
    assert!(said(&format!("{q} --successor improve --lambda 0.5")).contains("with --successor improve lambda is 0"));
    let few = said("--inputs state_action --actions discrete:2");
    assert!(few.contains("action: a discrete action is a whole number from 0 to 1, not 2"), "{few}");
}

/// 60 episodes of a corridor, actions by a coin; a policy that goes right seven times of ten.
fn corridor(bench: &Bench) {
    let mut seed = 1u64;
    let mut coin = || {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        seed >> 63
    };
    let mut table = "stream,state_0,action,reward,terminated,truncated,next_state_0,pscore,target_prob\n".to_owned();
    let mut policy = "prob_0,prob_1\n".to_owned();
    for stream in 0..60 {
        let mut at = 0;
        for step in 0..12 {
            let right = coin() == 1;
            let to: i32 = if right { at + 1 } else { (at - 1).max(0) };
            let (ends, cut) = (to == 4, step == 11);
            let target = if right { 0.7 } else { 0.3 };
            let flags = format!("{},{}", u8::from(ends), u8::from(cut && !ends));
            let reward = if ends { 1.0 } else { -0.1 };
            writeln!(table, "{stream},{at},{},{reward},{flags},{to},0.5,{target}", u8::from(right)).unwrap();
            policy += "0.3,0.7\n";
            at = to;
            if ends {
                break;
            }
        }
    }
    bench.file("log.csv", &table);
    bench.file("policy.csv", &policy);
}

#[test]
fn another_policy_is_judged_with_what_the_episodes_are_worth_to_it() {
    let (bench, _) = of_case("q_discrete_sarsa_lambda_04");
    corridor(&bench);
    let evaluate = "evaluate log.csv --discount 0.9";
    let weighed = bench.json(evaluate);
    assert_eq!(weighed["episodes"], 60);
    let ess = weighed["weights"]["ess"].as_f64().unwrap();
    assert!(ess > 5.0 && ess < 60.0, "{ess}");
    assert!(weighed["estimates"]["fqe"].is_null() && weighed["estimates"]["wis"]["value"].is_number());
    let fitted = bench.json(&format!("{evaluate} --actions discrete:2 --policy policy.csv --budget 2 --ess-min 1e9"));
    for name in ["is", "wis", "pdis", "dr"] {
        assert!(fitted["estimates"][name]["interval"].is_null(), "{name}: refused below --ess-min");
    }
    let said = fitted["refused"][0].as_str().unwrap();
    assert!(said.starts_with("no interval: the episodes are worth"), "{said}");
    // All of them estimate one number; the tables differ in nothing but chance.
    let (dr, fqe) = (&fitted["estimates"]["dr"], &fitted["estimates"]["fqe"]);
    let number = |value: &Value| value.as_f64().unwrap();
    let apart = (number(&dr["value"]) - number(&fqe["value"])).abs();
    assert!(apart < 4.0 * (number(&dr["error"]) + number(&fqe["error"])), "{dr} {fqe}");
    assert!(bench.failure(&format!("{evaluate} --actions discrete:2")).1.contains("--policy"));
    bench.file("short.csv", "action\n0\n1\n0\n1\n0\n");
    assert!(bench.failure(&format!("{evaluate} --actions discrete:2 --policy short.csv")).1.contains("has 5 rows"));
    assert!(bench.failure("evaluate table.csv").1.contains("lacks behavior_prob or target_prob"));
}

#[test]
fn propensities_have_many_names() {
    let (bench, _) = of_case("q_discrete_sarsa_lambda_04");
    corridor(&bench);
    let table = std::fs::read_to_string(bench.path("log.csv")).unwrap();
    let of = |name: &str, prob: &str| {
        bench.file("named.csv", &table.replace("pscore", name).replace(",0.5,", &format!(",{prob},")));
        bench.json("evaluate named.csv --discount 0.9")["estimates"].clone()
    };
    let first = of("behavior_prob", "0.5");
    for name in ["action_prob", "pscore", "propensity_score", "probability"] {
        assert_eq!(of(name, "0.5"), first, "{name}");
    }
    let logarithm = of("action_logp", &0.5f64.ln().to_string());
    assert!(relative(&logarithm["is"]["value"], &first["is"]["value"]) < 1e-12);
}
