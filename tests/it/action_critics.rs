//! Critics of action values in the running daemon: rows in, decisions out, and what a restart makes of both.

mod golden_q;
mod restarts;

use crate::support::PATIENCE;
use crate::support::daemon::Running;
use crate::support::harness::{Handed, Harness, Ways, config};
use criticd::client::ClientError;
use criticd::config::ConfigParts;
use criticd::journal::checkpoint::Checkpoints;
use criticd::journal::memory::{Disk, MemoryCheckpoints};
use criticd::learner::act::{Actor, Exploration, Question};
use criticd::transition::{Batch, BatchParts, Names};
use criticd::wire::{self, ArrayForm, Op};
use parking_lot::Mutex;
use serde_json::{Value, json};
use std::sync::Arc;

const SETTINGS: &str = "[[critic]]\nname = \"q\"\ninputs = \"state_action\"\nactions = [\"left\", \"right\"]\ndiscount = 0.9\n\
                        refit_first_rows = 100000\ndictionary_max = 40\nimprove_rows = 100\n";

/// [`SETTINGS`] with actions that have no names.
fn unnamed() -> String {
    SETTINGS.replace("[\"left\", \"right\"]", "2")
}

/// `parts` with names of the actions.
fn called(parts: BatchParts, names: &[&str]) -> BatchParts {
    let actions = Some(names.iter().map(|&name| name.to_owned()).collect());
    BatchParts { names: Names { actions, ..Names::default() }, ..parts }
}

fn open(text: &str, disk: &Arc<Mutex<Disk>>, checkpoints: &Arc<dyn Checkpoints>) -> Harness {
    let ways = Ways { tick: 0.01, refreshes_always: true, rebuilds: Handed::Lost, ..Ways::GOING };
    Harness::on(config(text), Arc::clone(disk), Arc::clone(checkpoints), ways)
}

/// What the daemon says of the first critic.
fn status(harness: &mut Harness) -> Value {
    harness.ask(Op::Status)["critics"][0].clone()
}

fn disk() -> (Arc<Mutex<Disk>>, Arc<dyn Checkpoints>) {
    (Arc::default(), Arc::new(MemoryCheckpoints::default()))
}

/// Episodes in a corridor of ten places. Each step costs 1, the right end is terminal, and steps are random.
fn episodes(count: usize, first_seq: u64, seed: u64) -> (Vec<Batch>, u64) {
    let (mut out, mut seq, mut random) = (Vec::new(), first_seq, seed);
    for _ in 0..count {
        let (mut place, mut parts) = (0i32, BatchParts::default());
        let mut next = Vec::new();
        for _ in 0..40 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let right = random >> 33 & 3 != 0;
            parts.states.push(f64::from(place) / 10.0);
            place = (place + if right { 1 } else { -1 }).max(0);
            next.push(f64::from(place) / 10.0);
            parts.actions.get_or_insert_default().push(f64::from(u8::from(right)));
            parts.rewards.push(-1.0);
            if place == 10 {
                break;
            }
        }
        let n = parts.rewards.len();
        let ends = place == 10;
        let last = |flag: bool| Some((0..n).map(|i| flag && i + 1 == n).collect());
        let parts = BatchParts {
            stream: "corridor".into(),
            dim: 1,
            rewards_per_row: 1,
            next_states: Some(next),
            terminated: last(ends),
            truncated: last(!ends),
            seq: Some(seq),
            ..parts
        };
        seq += n as u64;
        out.push(Batch::new(parts).unwrap());
    }
    (out, seq)
}

/// A daemon with the critic of [`SETTINGS`].
fn start(change: impl FnOnce(&mut ConfigParts)) -> Running {
    Running::start(|parts| {
        parts.critics = config(SETTINGS).critics.clone();
        change(parts);
    })
}

fn question(state: &[f64], exploration: Exploration) -> Question<'_> {
    Question { state, exploration, seed: 7, episode: 3, step: 5, candidates: None, unknown_above: None }
}

#[test]
fn a_critic_that_improves_learns_to_act_and_a_restart_knows_it_to_the_last_bit() {
    let (disk, checkpoints) = disk();
    let text = format!("{SETTINGS}successor = \"improve\"\n");
    let mut harness = open(&text, &disk, &checkpoints);
    let (batches, _) = episodes(40, 0, 1);
    harness.learn(&batches);
    let status = status(&mut harness);
    assert_eq!(status["actions"]["names"], serde_json::json!(["left", "right"]), "{status}");
    let last = &status["refit"]["last"];
    assert_eq!((&last["trigger"], &last["outcome"]), (&"improvement".into(), &"adopted".into()), "{last}");
    assert!(last["improvement"]["sweeps"].as_u64().unwrap() > 0, "{last}");
    let actor = harness.core.board().actor(0).unwrap();
    for place in 0..10 {
        let decision = actor.act(&question(&[f64::from(place) / 10.0], Exploration::Greedy)).unwrap();
        assert_eq!(decision.action, [1.0], "at {place}");
        // The way takes 10 - place steps that cost 1 each.
        let expected = -(1.0 - 0.9f64.powi(10 - place)) / 0.1;
        assert!((decision.mean - expected).abs() < 1.0, "at {place}: {} for {expected}", decision.mean);
    }
    let thompson = actor.act(&question(&[0.5], Exploration::Thompson)).unwrap();
    assert_eq!(thompson.copy.map(|(_, copies)| copies), Some(8));
    let state = harness.state();
    drop(harness);
    let harness = open(&text, &disk, &checkpoints);
    assert!(harness.state() == state, "a replay gives another state");
}

#[test]
fn a_daemon_that_is_killed_while_it_improves_has_the_model_from_before_and_goes_on_from_a_checkpoint() {
    let (disk, checkpoints) = disk();
    let text = format!("{SETTINGS}successor = \"improve\"\n");
    let mut harness = open(&text, &disk, &checkpoints);
    let (batches, seq) = episodes(20, 0, 2);
    harness.learn(&batches);
    harness.checkpoint();
    harness.ways.refits = Handed::Waits;
    let (more, seq) = episodes(10, seq, 3);
    harness.learn(&more);
    assert_eq!(harness.tasks.len(), 1, "an improvement runs");
    let state = harness.state();
    drop(harness);
    let mut again = open(&text, &disk, &checkpoints);
    assert!(again.state() == state, "a kill in mid-improvement changes the model");
    // It is due again, and from here on both are the same machine.
    let (more, _) = episodes(10, seq, 4);
    again.learn(&more);
    let state = again.state();
    drop(again);
    let again = open(&text, &disk, &checkpoints);
    assert!(again.state() == state);
}

#[test]
fn rows_wait_and_a_restart_goes_on_with_those_that_wait() {
    let (disk, checkpoints) = disk();
    let mut harness = open(&unnamed(), &disk, &checkpoints);
    let (mut batches, _) = episodes(10, 0, 5);
    // There is a model already, whose actions have numbers.
    batches[5] = Batch::new(called(batches[5].clone().into_parts(), &["left", "right"])).unwrap();
    harness.learn(&batches[..5]);
    assert_eq!(status(&mut harness)["inputs"]["names"], json!(["state_0", "action=0", "action=1"]));
    harness.learn(&batches[5..9]);
    // The first half of an episode: its last row waits.
    let whole = batches[9].clone();
    let half = whole.len() / 2;
    let mut parts = whole.clone().into_parts();
    parts.states.truncate(half);
    parts.rewards.truncate(half);
    for column in [&mut parts.next_states, &mut parts.actions].into_iter().flatten() {
        column.truncate(half);
    }
    [&mut parts.terminated, &mut parts.truncated].into_iter().flatten().for_each(|flags| flags.truncate(half));
    harness.learn(&[Batch::new(parts).unwrap()]);
    assert_eq!(status(&mut harness)["actions"]["rows_waiting"], 1);
    harness.checkpoint();
    drop(harness);
    let mut harness = open(&unnamed(), &disk, &checkpoints);
    assert_eq!(harness.core.board().names()[2], ["left", "right"], "the rows have said so");
    harness.learn(&[whole.without_first(half)]);
    let status = status(&mut harness);
    assert_eq!(status["actions"]["names"], json!(["left", "right"]), "{status}");
    assert_eq!(status["inputs"]["names"], json!(["state_0", "action=left", "action=right"]), "{status}");
    assert_eq!(status["actions"]["rows_waiting"], 0, "{status}");
    let rows: usize = batches.iter().map(Batch::len).sum();
    let truncated = batches.iter().filter(|batch| batch.truncated(batch.len() - 1)).count();
    assert_eq!(status["actions"]["rows_unnamed"], truncated);
    assert_eq!(status["transitions"].as_u64().unwrap() as usize, rows - truncated, "{status}");
    assert_eq!(status["learned"], rows);
}

#[test]
fn rows_without_the_actions_of_the_settings_are_refused_by_name() {
    let (disk, checkpoints) = disk();
    let mut harness = open(&unnamed(), &disk, &checkpoints);
    let (batches, _) = episodes(1, 0, 6);
    let mut refusal = |change: &dyn Fn(&mut BatchParts)| {
        let mut parts = batches[0].clone().into_parts();
        change(&mut parts);
        let reply = harness.ask(Op::Append(Batch::new(parts).unwrap()));
        let error = &reply["error"];
        (error["code"].as_str().unwrap().to_owned(), error["field"].clone(), error["index"].clone())
    };
    let fields = |code: &str, field: &str, index: Value| (code.to_owned(), Value::from(field), index);
    assert_eq!(refusal(&|parts| parts.actions = None), fields("missing_field", "action", Value::Null));
    let wrong = refusal(&|parts| parts.actions.as_mut().unwrap()[2] = 2.0);
    assert_eq!(wrong, fields("out_of_range", "action", 2.into()));
    let wrong = refusal(&|parts| parts.next_action_probs = Some(vec![1.0; parts.rewards.len()]));
    assert_eq!(wrong, fields("wrong_shape", "next_action_probs", Value::Null));
    let wrong = refusal(&|parts| *parts = called(std::mem::take(parts), &["left"]));
    assert_eq!(wrong, fields("out_of_range", "action_names", Value::Null));
}

#[test]
fn the_same_seed_gives_the_same_decisions_from_the_board_and_from_the_published_model() {
    let (disk, checkpoints) = disk();
    let text = format!("{SETTINGS}successor = \"improve\"\n");
    let mut harness = open(&text, &disk, &checkpoints);
    harness.learn(&episodes(20, 0, 8).0);
    let board = harness.core.board();
    let bytes = wire::encode_snapshot(&board.get(0).unwrap(), ArrayForm::Tensor, true);
    let read = wire::decode_snapshot(&bytes).unwrap();
    let (here, there) = (board.actor(0).unwrap(), Actor::new(criticd::snapshot::Evaluator::new(read)).unwrap());
    let ways = [
        Exploration::Greedy,
        Exploration::EpsilonGreedy(0.3),
        Exploration::Softmax(0.5),
        Exploration::Ucb(1.0),
        Exploration::Thompson,
    ];
    for exploration in ways {
        for step in 0..50 {
            let state = [step as f64 / 50.0];
            let question = Question { step, ..question(&state, exploration) };
            assert_eq!(here.act(&question).unwrap(), there.act(&question).unwrap(), "{exploration:?} {step}");
        }
    }
}

#[test]
fn a_request_for_too_many_actions_is_refused_by_the_field_that_has_them() {
    const MOST: usize = 500;
    let running = start(|parts| parts.limits.query_rows_max = MOST);
    let mut requester = running.requester();
    let (batches, rows) = episodes(20, 0, 8);
    for batch in &batches {
        let posted = requester.post_append(batch).unwrap();
        requester.reply(posted, PATIENCE).unwrap();
    }
    let of_one = json!({"states": [[0.5]], "actions": [0], "min_offset": rows});
    requester.ask("value", of_one, PATIENCE).unwrap();
    let mut ask = |op: &str, fields: Value| match requester.ask(op, fields, PATIENCE) {
        Ok(_) => None,
        Err(ClientError::Refused(refusal)) => Some((refusal.code, refusal.field.unwrap_or_default(), refusal.message)),
        Err(other) => panic!("{other}"),
    };
    let value = |actions: usize| json!({"states": [[0.5]], "actions": vec![1; actions]});
    let among = |candidates: usize| json!({"states": [[0.5]], "exploration": "ucb", "beta": 1.0, "candidates": vec![1; candidates]});
    assert_eq!((ask("value", value(MOST)), ask("act", among(MOST))), (None, None));
    for (op, fields, field) in [("value", value(MOST + 1), "actions"), ("act", among(MOST + 1), "candidates")] {
        let (code, named, message) = ask(op, fields).expect("a refusal");
        assert_eq!((&*code, &*named), ("too_large", field), "{message}");
        assert!(message.contains("at most 500 actions"), "{message}");
    }
    // As many states as that are decided in turns with what others ask.
    let mut fields = among(MOST);
    fields["states"] = json!(vec![[0.5]; MOST]);
    assert_eq!(ask("act", fields), None);
}

#[test]
fn a_policy_is_judged_by_the_rows_of_a_running_daemon() {
    let running = start(|_| {});
    let mut requester = running.requester();
    let (batches, rows) = episodes(60, 0, 9);
    let mut returns = Vec::new();
    for batch in &batches {
        let mut parts = batch.clone().into_parts();
        let n = parts.rewards.len();
        // It goes right three times of four.
        let behavior = |action: &f64| if *action == 1.0 { 0.75 } else { 0.25 };
        parts.behavior_probs = Some(parts.actions.as_ref().unwrap().iter().map(behavior).collect());
        returns.push(-(1.0 - 0.9f64.powi(n as i32)) / 0.1);
        let posted = requester.post_append(&Batch::new(parts).unwrap()).unwrap();
        requester.reply(posted, PATIENCE).unwrap();
    }
    let of_one = json!({"states": [[0.5]], "actions": [0], "min_offset": rows - 1});
    requester.ask("value", of_one, PATIENCE).unwrap();
    // All rows, page by page.
    let (mut states, mut from) = (Vec::new(), 0);
    while from < rows {
        let page = requester.ask("rows", json!({"from": from, "arrays": "list"}), PATIENCE).unwrap();
        assert_eq!((&page["from"], &page["end"]), (&json!(from), &json!(rows)));
        states.extend(page["states"].as_array().unwrap().iter().map(|state| state[0].as_f64().unwrap()));
        from = page["next"].as_u64().unwrap();
    }
    let expected: Vec<f64> = batches.iter().flat_map(|batch| (0..batch.len()).map(|i| batch.state(i)[0])).collect();
    assert_eq!(states, expected);
    // The policy that acted.
    let same = json!({"from": 0, "probs": vec![[0.25, 0.75]; rows as usize]});
    let found = requester.ask("evaluate", same, PATIENCE).unwrap();
    let mean = returns.iter().sum::<f64>() / returns.len() as f64;
    for name in ["is", "wis", "pdis"] {
        let value = found["estimates"][name]["value"].as_f64().unwrap();
        assert!((value - mean).abs() < 1e-9 * mean.abs(), "{name} {value} {mean}");
    }
    assert_eq!((&found["episodes"], &found["weights"]["ess"]), (&json!(60), &json!(60.0)), "{found}");
    assert_eq!((&found["to"], &found["transitions"]), (&json!(rows), &json!(rows)));
    for name in ["fqe", "dr"] {
        let value = found["estimates"][name]["value"].as_f64().unwrap();
        assert!((value - mean).abs() < 1.0, "{name} {value} {mean}");
    }
    // One that always goes right earns more than the one that acted, and few episodes carry that.
    let right = json!({"from": 0, "actions": vec![1; rows as usize], "ess_min": 1e6});
    let found = requester.ask("evaluate", right, PATIENCE).unwrap();
    assert!(found["estimates"]["fqe"]["value"].as_f64().unwrap() > mean + 0.5, "{found}");
    assert!(found["weights"]["zero_share"].as_f64().unwrap() > 0.5, "{found}");
    assert!(found["estimates"]["dr"]["interval"].is_null() && found["refused"][0].is_string(), "{found}");
    // What cannot be judged is refused by the field.
    let mut refused = |fields: Value| match requester.ask("evaluate", fields, PATIENCE) {
        Err(ClientError::Refused(refusal)) => (refusal.code, refusal.field.unwrap_or_default()),
        other => panic!("{other:?}"),
    };
    let of = |code: &str, field: &str| (code.to_owned(), field.to_owned());
    assert_eq!(refused(json!({"from": rows - 1, "probs": vec![[0.5, 0.5]; 3]})), of("wrong_shape", "from"));
    assert_eq!(refused(json!({"probs": vec![[0.5, 0.5]; 3]})), of("missing_field", "from"));
    assert_eq!(refused(json!({"from": rows + 1, "probs": vec![[0.5, 0.5]; 3]})), of("out_of_range", "from"));
    assert_eq!(refused(json!({"from": 0, "probs": vec![[0.5, 0.6]; rows as usize]})), of("out_of_range", "probs"));
    assert_eq!(refused(json!({"from": 0, "actions": vec![2; rows as usize]})), of("out_of_range", "actions"));
    assert_eq!(refused(json!({"last": 100})), of("missing_field", "probs"));
    assert_eq!(refused(json!({"last": 100_000})), of("too_large", "last"));
    running.daemon.stop();
}
