//! The reference cases of action values through the daemon: rows in as messages, the published model out.
//!
//! A refit brings kernel and dictionary of the case instead of its own. The daemon adds the rows that it lacks, adopts it, and learns
//! the other rows live.

use super::{disk, open, status};
use crate::support::harness::{Handed, Harness};
use criticd::daemon::core::{Output, RefitDone};
use criticd::learner::VarianceKind;
use criticd::learner::action::ActionSpace;
use criticd::learner::allowance::Allowance;
use criticd::learner::refit::{self, Candidate, RefitJob};
use criticd::snapshot::{Ask, Snapshot};
use criticd::transition::{Batch, BatchParts};
use criticd::wire::{self, ArrayForm, Op};
use criticd_reference::golden_q::{action_value, empty};
use criticd_reference::{TESTS, numbers};
use serde_json::Value;
use std::collections::HashMap;

/// Rows that the refit has seen; the others come after its adoption.
const FIRST: usize = 30;

/// Names and contents of all cases whose rows can be streamed.
fn cases() -> Vec<(String, Value)> {
    let directory = format!("{TESTS}/golden-q");
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "json") {
            let case: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
            if case["head"] != "ope" {
                found.push((case["name"].as_str().unwrap().to_owned(), case));
            }
        }
    }
    assert!(found.len() >= 5, "{}", found.len());
    found
}

/// The daemon's settings for the case.
fn settings(case: &Value) -> String {
    let text = |key: &str| case[key].as_str().unwrap();
    let mut out = format!(
        "[[critic]]\nname = \"golden\"\ndiscount = {}\nlambda = {:?}\nwarmup_rows = 8\nrefit_first_rows = 0\n\
         drift_sensitivity = \"off\"\nestimate_scale = false\n",
        case["discount"],
        case["lambda"].as_f64().unwrap()
    );
    if let Some(rho_max) = case["rho_max"].as_f64() {
        out += &format!("rho_max = {rho_max:?}\n");
    }
    if let Some(of) = action_value(case) {
        let actions = match of.space {
            ActionSpace::Discrete(count) => count.to_string(),
            ActionSpace::Box { low, high } => format!("{{ low = {low:?}, high = {high:?} }}"),
        };
        out += &format!(
            "inputs = \"state_action\"\nactions = {actions}\nsuccessor = \"{}\"\ntrace = \"{}\"\n",
            text("successor"),
            text("trace")
        );
    }
    out
}

/// The case's rows as messages of one row each.
fn rows(case: &Value) -> Vec<Batch> {
    let mut next: HashMap<u64, u64> = HashMap::new();
    let row = |t: &Value| {
        let (stream, flag) = (t["stream"].as_u64().unwrap(), |key: &str| Some(vec![t[key].as_bool().unwrap()]));
        let optional = |key: &str| (!t[key].is_null()).then(|| numbers(&t[key])).filter(|found| !found.is_empty());
        let seq = next.entry(stream).or_default();
        // A row that is missing is a gap.
        *seq += u64::from(t["gap"].as_bool().unwrap());
        let parts = BatchParts {
            stream: format!("s{stream}"),
            dim: 2,
            rewards_per_row: 1,
            states: numbers(&t["x"]),
            next_states: Some(numbers(&t["x_next"])),
            rewards: numbers(&t["r"]),
            discounts: optional("discount"),
            terminated: flag("terminated"),
            truncated: flag("truncated"),
            actions: optional("action").filter(|_| case["head"] == "q"),
            next_actions: optional("next_action"),
            next_action_probs: optional("next_action_probs"),
            behavior_probs: optional("behavior_prob"),
            target_probs: optional("target_prob"),
            seq: Some(*seq),
            ..BatchParts::default()
        };
        *seq += 1;
        Batch::new(parts).unwrap()
    };
    case["transitions"].as_array().unwrap().iter().map(row).collect()
}

/// Ask for a refit, let `change` make the candidate, and adopt it.
fn refit(harness: &mut Harness, change: impl Fn(&mut Candidate, &RefitJob)) {
    harness.ways.refits = Handed::Waits;
    harness.ask(Op::Refit { critic: None, wait: false });
    let Some(Output::Refit { critic, job, .. }) = harness.tasks.pop_back() else { panic!("a refit was asked for") };
    let mut candidate = refit::run_within(&job, &|| true, &Allowance::none()).unwrap();
    change(&mut candidate, &job);
    harness.core.refit_done(RefitDone { critic, result: Ok(candidate), seconds: 0.0 });
    harness.turn();
    let status = status(harness);
    assert_eq!(status["refit"]["last"]["outcome"], "adopted", "{status}");
}

/// What the daemon has published at last, as a reader decodes it.
fn published(harness: &mut Harness) -> Snapshot {
    harness.turn();
    let snapshot = harness.core.board().get(0).unwrap();
    wire::decode_snapshot(&wire::encode_snapshot(&snapshot, ArrayForm::Tensor, true)).unwrap()
}

/// Largest difference relative to the largest magnitude expected.
fn error(found: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let scale = expected.iter().fold(1e-300f64, |most, v| most.max(v.abs()));
    found.iter().zip(expected).fold(0.0f64, |worst, (a, b)| worst.max((a - b).abs())) / scale
}

fn query(case: &Value) -> Vec<f64> {
    let Some(of) = action_value(case) else { return numbers(&case["query"]) };
    let mut out = Vec::new();
    for pair in case["query"].as_array().unwrap() {
        out.extend(numbers(&pair[0]));
        of.space.append(&numbers(&pair[1]), &mut out).unwrap();
    }
    out
}

#[test]
fn what_the_daemon_publishes_is_the_reference() {
    for (name, case) in cases() {
        let expected = &case["expected"];
        let check = |snapshot: &Snapshot, variance: &str| {
            let found = snapshot.evaluate(&query(&case), Ask::VARIANCE).unwrap();
            let off = error(found.mean.as_slice(), &numbers(&expected["mean"]));
            assert!(off < 1e-9, "{name} mean: {off:e}");
            let off = error(&found.variance.unwrap(), &numbers(&expected["variance"][variance]));
            assert!(off < 1e-9, "{name} {variance}: {off:e}");
        };
        let (disk, checkpoints) = disk();
        let mut harness = open(&settings(&case), &disk, &checkpoints);
        let rows = rows(&case);
        harness.learn(&rows[..FIRST]);
        // It has learned half of the rows so far: the daemon adds the others, and adopts it.
        refit(&mut harness, |candidate, job| {
            let (rows, start) = (job.window.flatten(), job.window.start());
            let mut model = empty(&case, VarianceKind::Model);
            model.learn(&rows, 0..rows.len() / 2, start);
            model.refresh();
            *candidate.model = model;
            (candidate.through, candidate.from) = (start + rows.len() as u64 / 2, start);
        });
        harness.learn(&rows[FIRST..]);
        assert_eq!(harness.core.board().get(0).unwrap().transitions, expected["rows_learned"], "{name}");
        check(&published(&mut harness), "model");
        // Errors at the final weights, as a refit makes them.
        for (kind, variance) in [(VarianceKind::Rows, "rows"), (VarianceKind::Clustered, "clustered")] {
            refit(&mut harness, |candidate, job| {
                let rows = job.window.flatten_since(job.window.start());
                let mut model = empty(&case, kind);
                model.learn(&rows, 0..rows.len(), job.window.start());
                model.refresh();
                model.revisit(std::iter::once((&rows, 0..rows.len(), job.window.start())));
                *candidate.model = model;
                (candidate.through, candidate.from) = (job.window.end(), job.window.start());
            });
            check(&published(&mut harness), variance);
        }
        // A restart replays rows and adoptions.
        let before = published(&mut harness);
        drop(harness);
        let mut again = open(&settings(&case), &disk, &checkpoints);
        let after = published(&mut again);
        assert_eq!((before.weights, before.variance), (after.weights, after.variance), "{name}");
    }
}
