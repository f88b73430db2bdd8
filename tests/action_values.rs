//! Values of actions on the command line: tables with actions in, values of states and actions out, as the reference has them.

use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::{Command, Output};
use tempfile::TempDir;

const CASES: [&str; 3] =
    ["q_box_sarsa_lambda_1", "q_discrete_sarsa_lambda_04", "q_discrete_expected_retrace_lambda_08"];

/// Files of one reference case, and the program run beside them.
struct Bench {
    directory: TempDir,
    case: Value,
}

fn numbers(value: &Value) -> Vec<f64> {
    match value {
        Value::Array(values) => values.iter().flat_map(numbers).collect(),
        number => number.as_f64().into_iter().collect(),
    }
}

fn line(numbers: &[f64]) -> String {
    numbers.iter().map(f64::to_string).collect::<Vec<_>>().join(",") + "\n"
}

fn numbered(name: &str, count: usize) -> String {
    (0..count).map(|k| format!("{name}_{k}")).collect::<Vec<_>>().join(",")
}

impl Bench {
    fn of(name: &str) -> Self {
        let path = format!("{}/tests/golden-q/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let case: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let bench = Self { directory: tempfile::tempdir().unwrap(), case };
        bench.write_table();
        let (case, kernel) = (&bench.case, &bench.case["kernel"]);
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
        bench
    }

    fn write_table(&self) {
        let rows = self.case["transitions"].as_array().unwrap();
        let optional = ["behavior_prob", "target_prob", "next_action_probs"].map(|key| numbers(&rows[0][key]).len());
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
            text += &line(&keys.iter().flat_map(|key| numbers(&t[*key])).collect::<Vec<_>>());
        }
        self.file("table.csv", &text);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn run(&self, arguments: &str) -> Output {
        Command::new(env!("CARGO_BIN_EXE_criticd"))
            .args(arguments.split_whitespace())
            .current_dir(self.directory.path())
            .output()
            .unwrap()
    }

    fn json(&self, arguments: &str) -> Value {
        let output = self.run(&format!("{arguments} --json"));
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{arguments}: {said}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn refused(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && !said.contains("panicked"), "{arguments}: {said}");
        said
    }

    /// What `fit` is told of the case.
    fn asked(&self) -> String {
        let case = &self.case;
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
        let bench = Bench::of(name);
        let expected = &bench.case["expected"];
        for variance in ["model", "rows", "clustered"] {
            let arguments = bench.asked();
            let given = "--no-optimise --hyperparameters h.json --dictionary dictionary.csv --out model.msgpack";
            let report = bench.json(&format!("{arguments} {given} --variance {variance}"));
            assert_eq!(report["transitions"], expected["rows_learned"], "{name}");
            assert_eq!(report["successor"], bench.case["successor"]);
            let found = bench.json("value model.msgpack query.csv");
            let off = [("mean", &expected["mean"]), ("variance", &expected["variance"][variance])]
                .map(|(key, expected)| relative(&found[key], expected));
            assert!(off[0] < 1e-9 && off[1] < 1e-9, "{name} {variance}: {off:e}", off = off[0].max(off[1]));
        }
    }
}

#[test]
fn a_kernel_is_selected_and_every_successor_is_learned_by_it() {
    let bench = Bench::of("q_discrete_expected_retrace_lambda_08");
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
fn what_the_table_does_not_say_is_asked_for_by_name() {
    let bench = Bench::of("q_discrete_sarsa_lambda_04");
    let fit = "fit table.csv --out m.msgpack --budget 1";
    let said = |arguments: &str| bench.refused(&format!("{fit} {arguments}"));
    assert!(said("--successor sarsa").contains("--successor needs --inputs state_action"));
    assert!(said("--inputs state_action").contains("needs --actions discrete:N or --actions box"));
    assert!(said("--inputs state_action --actions discrete:0").contains("N from 1 to 256"));
    let q = "--inputs state_action --actions discrete:3";
    assert!(said(&format!("{q} --successor next_action")).contains("no column next_action"));
    assert!(said(&format!("{q} --successor expected")).contains("no columns next_action_probs_0"));
    assert!(said(&format!("{q} --trace tree")).contains("no column target_prob"));
    assert!(said(&format!("{q} --successor improve --lambda 0.5")).contains("with --successor improve lambda is 0"));
    let few = said("--inputs state_action --actions discrete:2");
    assert!(few.contains("action: a discrete action is a whole number from 0 to 1, not 2"), "{few}");
}
