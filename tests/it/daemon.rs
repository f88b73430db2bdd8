//! The daemon as its clients see it: real sockets, real threads, the client of this crate. Every test waits for what it
//! asked for, and none sleeps.

use crate::support::daemon::{self, Running, next};
use crate::support::{PATIENCE, until};
use criticd::client::{ClientError, ConnectionError, Models, Refusal, Requester, Sender, Update};
use criticd::config::{Config, ConfigParts};
use criticd::daemon::Daemon;
use criticd::daemon::survey::survey;
use criticd::learner::{OnNewPolicy, SelectionKind, Settings};
use criticd::sim::gridworld::Gridworld;
use criticd::sim::walk::Walk;
use criticd::sim::{Step, batches};
use criticd::snapshot::Ask;
use criticd::transition::Batch;
use criticd::wire;
use criticd_reference::numbers;
use serde_json::{Value, json};
use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

/// A daemon that refits only when asked to.
fn start(change: impl FnOnce(&mut ConfigParts)) -> Running {
    Running::start(|parts| {
        parts.critics = vec![critic("main", 0.9)];
        change(parts);
    })
}

fn critic(name: &str, discount: f64) -> Settings {
    Settings {
        name: name.into(),
        discount,
        dictionary_max: 25,
        warmup_rows: 20,
        refit_first_rows: 0,
        refit_score_drop: 0.0,
        evidence_rows: 100,
        search_starts: 2,
        refit_budget_s: 0.3,
        ..Settings::default()
    }
}

fn walk(seed: u64, rows: usize) -> Vec<Step> {
    let mut walk = Walk::new(seed, Some(40), 0.0);
    (0..rows).map(|_| walk.step()).collect()
}

fn push(sender: &Sender, stream: &str, session: &str, steps: &[Step]) {
    for chunk in steps.chunks(50) {
        for batch in batches(stream, session, chunk) {
            sender.send(wire::encode_ingest(&batch)).unwrap();
        }
    }
}

fn append(requester: &mut Requester, batch: &Batch) -> Result<Value, Refusal> {
    let id = requester.post_append(batch).unwrap();
    refused(requester.reply(id, PATIENCE)).map(|bytes| wire::to_json(&bytes).unwrap())
}

fn refused<T>(result: Result<T, ClientError>) -> Result<T, Refusal> {
    result.map_err(|error| match error {
        ClientError::Refused(refusal) => refusal,
        other => panic!("{other}"),
    })
}

/// Append all of a walk in order; the offset afterwards.
fn append_walk(requester: &mut Requester, stream: &str, steps: &[Step]) -> u64 {
    let replies = batches(stream, "run", steps).into_iter().map(|batch| append(requester, &batch).unwrap());
    replies.last().unwrap()["offset"].as_u64().unwrap()
}

fn ask(requester: &mut Requester, op: &str, fields: Value) -> Value {
    requester.ask(op, fields, PATIENCE).unwrap()
}

#[test]
fn rows_pushed_on_ingest_are_learned_exactly_once() {
    let running = start(|_| {});
    let runs: Vec<Vec<Step>> = (0..3).map(|seed| walk(seed, 2000)).collect();
    let mut requester = running.requester();
    thread::scope(|scope| {
        for (i, run) in runs.iter().enumerate() {
            let sender = running.sender();
            scope.spawn(move || {
                push(&sender, &format!("walk-{i}"), "run", run);
                sender.close(PATIENCE).unwrap();
            });
        }
    });
    let reply = ask(&mut requester, "value", json!({"states": [[0.0]], "min_offset": 6000}));
    assert_eq!(reply["offset"], 6000);

    // The same again, as a producer does that does not know what arrived, and one new row.
    let sender = running.sender();
    push(&sender, "walk-0", "run", &runs[0]);
    push(&sender, "walk-1", "run", &runs[1][1900..]);
    push(&sender, "walk-0", "run", &walk(0, 2001)[2000..]);
    sender.close(PATIENCE).unwrap();
    ask(&mut requester, "value", json!({"states": [[0.0]], "min_offset": 6001}));
    let status = ask(&mut requester, "status", json!({}));
    assert_eq!((&status["offset"], &status["critics"][0]["learned"]), (&json!(6001), &json!(6001)));
    assert_eq!(status["rejected"], json!({}));
    let streams = ask(&mut requester, "streams", json!({}));
    assert_eq!(streams["streams"]["walk-0"]["rows"], 2001);
    running.daemon.stop();
}

#[test]
fn values_are_judged_without_a_dashboard() {
    // Returns are known after ten rows.
    let running = start(|parts| parts.critics = vec![critic("main", 0.6)]);
    assert_eq!(running.daemon.http_address(), None);
    let mut requester = running.requester();
    let mut walk = Walk::new(3, Some(40), 0.0);
    until("a judgement by returns", || {
        let steps: Vec<Step> = (0..20).map(|_| walk.step()).collect();
        append_walk(&mut requester, "walk", &steps);
        let status = ask(&mut requester, "status", json!({}));
        let critic = &status["critics"][0];
        critic["trust"][0]["returns"].as_u64() >= Some(30) && critic["shares"][0].is_number()
    });
    let status = ask(&mut requester, "status", json!({}));
    let trust = &status["critics"][0]["trust"][0];
    assert!(trust["sentence"].as_str().unwrap().starts_with("Returns were predicted to within"), "{trust}");
    assert!(trust["coverage"].as_f64().is_some_and(|share| (0.0..=1.0).contains(&share)), "{trust}");
    running.daemon.stop();
}

#[test]
fn hello_tells_a_client_what_it_has_to_know() {
    let running = start(|parts| {
        parts.limits.rows_per_batch_max = 50;
        parts.critics.push(critic("other", 0.5));
    });
    let mut requester = running.requester();
    let hello = ask(&mut requester, "hello", json!({}));
    assert_eq!(hello["protocol"], json!({"min": wire::VERSION, "max": wire::VERSION}));
    assert_eq!((&hello["version"], &hello["critics"]), (&json!(env!("CARGO_PKG_VERSION")), &json!(["main", "other"])));
    assert_eq!((&hello["limits"]["rows_per_batch"], &hello["limits"]["page_bytes"]), (&json!(50), &json!(512 << 10)));
    assert!(hello["features"].as_array().unwrap().contains(&json!("pages")));
    // No state has come yet.
    assert_eq!((hello.get("state_dim"), hello.get("rewards")), (None, None));
    // Too few rows for a model.
    append_walk(&mut requester, "walk", &walk(0, 5));
    let hello = ask(&mut requester, "hello", json!({}));
    assert_eq!((&hello["state_dim"], &hello["rewards"]), (&json!(1), &json!(1)));
    running.daemon.stop();
}

#[test]
fn appends_are_acknowledged_and_faults_in_their_order_refused() {
    let running = start(|_| {});
    let mut requester = running.requester();
    let steps = walk(1, 40);
    let batch = |session: &str, range: std::ops::Range<usize>| batches("walk", session, &steps[range]).remove(0);
    let taken = |reply: Value| ["accepted", "duplicates", "next_seq", "offset"].map(|key| reply[key].as_u64().unwrap());

    assert_eq!(append(&mut requester, &batch("a", 0..10)).map(taken), Ok([10, 0, 10, 10]));
    assert_eq!(append(&mut requester, &batch("a", 0..10)).map(taken), Ok([0, 10, 10, 10]));
    assert_eq!(append(&mut requester, &batch("a", 5..15)).map(taken), Ok([5, 5, 15, 15]));
    let gap = append(&mut requester, &batch("a", 20..25)).unwrap_err();
    assert_eq!((gap.code.as_str(), gap.field.as_deref(), gap.expected_seq), ("sequence_gap", Some("seq"), Some(15)));
    let other = |i: usize| Step { reward: 100.0, ..steps[i].clone() };
    let conflict = append(&mut requester, &batches("walk", "a", &[other(13), other(14)]).remove(0)).unwrap_err();
    assert_eq!((conflict.code.as_str(), conflict.field.as_deref(), conflict.index), ("conflict", Some("seq"), Some(0)));

    assert_eq!(append(&mut requester, &batch("b", 0..10)).map(taken), Ok([10, 0, 10, 25]));
    let fenced = append(&mut requester, &batch("a", 15..20)).unwrap_err();
    assert_eq!((fenced.code.as_str(), fenced.field.as_deref()), ("fenced", Some("session")));
    // Refused rows leave nothing behind.
    assert_eq!(append(&mut requester, &batch("b", 10..20)).map(taken), Ok([10, 0, 20, 35]));

    // Long appends of other states are refused before they come to the core.
    for rows in [1, 300] {
        let wide = |seq| Step { seq, state: vec![0.5; 2], next_state: vec![0.5; 2], ..steps[0].clone() };
        let wide = batches("wide", "a", &(0..rows).map(wide).collect::<Vec<Step>>()).remove(0);
        let wide = append(&mut requester, &wide).unwrap_err();
        assert_eq!((wide.code.as_str(), wide.field.as_deref()), ("wrong_dimension", Some("state")), "{rows} rows");
    }
    // They are counted, but for the gap: that the sender closes itself.
    let status = ask(&mut requester, "status", json!({}));
    assert_eq!(status["rejected"], json!({"conflict": 1, "fenced": 1, "wrong_dimension": 2}));
    running.daemon.stop();
}

#[test]
fn a_client_reads_what_it_wrote_and_gets_what_the_snapshot_says() {
    let running = start(|_| {});
    let mut requester = running.requester();
    let states: Vec<f64> = (0..50).map(|i| f64::from(i) / 25.0 - 1.0).collect();
    let rows: Vec<[f64; 1]> = states.iter().map(|&x| [x]).collect();
    let value = |requester: &mut Requester, offset: u64| {
        let fields = json!({"states": rows, "variance": true, "returns": true, "known": true, "min_offset": offset});
        ask(requester, "value", fields)
    };
    let mut before = Vec::new();
    for chunk in walk(2, 400).chunks(40) {
        let batch = batches("walk", "run", chunk).remove(0);
        let offset = append(&mut requester, &batch).unwrap()["offset"].as_u64().unwrap();
        let reply = value(&mut requester, offset);
        assert_eq!(reply["offset"], offset);
        assert_ne!(numbers(&reply["mean"]), before, "what was written shows");
        before = numbers(&reply["mean"]);
    }
    let reply = value(&mut requester, 400);
    let snapshot = requester.snapshot(None, PATIENCE).unwrap();
    assert_eq!((snapshot.offset, snapshot.generation), (400, reply["generation"].as_u64().unwrap()));
    let local = snapshot.evaluate(&states, Ask::ALL).unwrap();
    assert_eq!(reply["extrapolates"], json!(local.extrapolates));
    let theirs = reply.get("return_variance").map(numbers).unwrap_or_default();
    assert_eq!(reply.get("return_variance").is_some(), local.return_variance.is_some());
    for (theirs, ours) in numbers(&reply["known"]).iter().zip(local.known.unwrap()) {
        assert!((theirs - ours).abs() < 1e-9, "{theirs} {ours}");
    }
    for (theirs, ours) in theirs.iter().zip(local.return_variance.iter().flatten()) {
        assert!((theirs - ours).abs() < 1e-9, "{theirs} {ours}");
    }
    let status = requester.ask("status", json!({}), PATIENCE).unwrap();
    let critic = &status["critics"][0];
    assert_eq!((&critic["lambda"], &critic["provisional"]), (&json!(snapshot.lambda), &json!(snapshot.provisional)));
    for (theirs, ours) in numbers(&reply["mean"]).iter().zip(local.mean.iter()) {
        assert!((theirs - ours).abs() < 1e-9, "{theirs} {ours}");
    }
    for (theirs, ours) in numbers(&reply["variance"]).iter().zip(local.variance.unwrap()) {
        assert!((theirs - ours).abs() < 1e-9, "{theirs} {ours}");
    }
    running.daemon.stop();
}

/// A message of any kind as MessagePack.
fn message(value: &Value) -> Vec<u8> {
    rmp_serde::to_vec(value).unwrap()
}

#[test]
fn every_fault_has_its_code_and_hurts_nobody() {
    let running = start(|parts| {
        parts.streams_max = 2;
        parts.limits.rows_per_batch_max = 100;
    });
    let mut requester = running.requester();
    let not_ready = refused(requester.ask("value", json!({"states": [[0.0]]}), PATIENCE)).unwrap_err();
    assert_eq!(not_ready.code, "not_ready");
    let steps = walk(3, 60);
    append_walk(&mut requester, "walk", &steps);
    append(&mut requester, &batches("walk", "newer", &steps[..10]).remove(0)).unwrap();
    append(&mut requester, &batches("second", "run", &steps[..10]).remove(0)).unwrap();
    ask(&mut requester, "value", json!({"states": [[0.0]], "min_offset": 80}));

    let row = |stream: &str, session: &str, seq: u64| json!({"op": "append", "stream": stream, "session": session, "seq": seq, "state": [0.0], "next_state": [0.1], "reward": 1.0});
    let with = |mut row: Value, key: &str, value: Value| {
        row[key] = value;
        row
    };
    let good = || row("walk", "newer", 10);
    let long = json!({"op": "append", "seq": 10, "stream": "walk", "session": "newer",
        "states": vec![[0.0]; 102], "rewards": vec![0.0; 101]});
    // What is sent beside `v` and `id`; the code; the field.
    let cases: Vec<(Value, &str, Option<&str>)> = vec![
        (json!({"op": "ping", "v": 2}), "unsupported_version", Some("v")),
        (json!({"op": "dance"}), "unknown_op", Some("op")),
        (json!({}), "missing_field", Some("op")),
        (json!({"op": "value", "states": [[0.0]], "critic": "nobody"}), "unknown_critic", Some("critic")),
        (json!({"op": "refit", "critic": "nobody"}), "unknown_critic", Some("critic")),
        (json!({"op": "new_policy", "critic": "nobody"}), "unknown_critic", Some("critic")),
        (json!({"op": "new_policy", "policy": ""}), "out_of_range", Some("policy")),
        (json!({"op": "value"}), "missing_field", Some("states")),
        (json!({"op": "value", "states": "everywhere"}), "wrong_type", Some("states")),
        (json!({"op": "value", "states": [[0.0]], "variance": 1}), "wrong_type", Some("variance")),
        (json!({"op": "value", "states": [[0.0]], "returns": 1}), "wrong_type", Some("returns")),
        (json!({"op": "value", "states": [[0.0, 0.0]]}), "wrong_dimension", Some("states")),
        (json!({"op": "value", "states": [[1e10]]}), "out_of_range", Some("states")),
        (with(good(), "reward", json!("much")), "wrong_type", Some("reward")),
        (with(good(), "state", json!([[0.0]])), "wrong_shape", Some("state")),
        (
            with(with(good(), "state", json!([0.0, 1.0])), "next_state", json!([0.0, 1.0])),
            "wrong_dimension",
            Some("state"),
        ),
        (with(good(), "reward", json!([1.0, 2.0])), "wrong_dimension", Some("reward")),
        (with(good(), "discount", json!(1.5)), "out_of_range", Some("discount")),
        (with(good(), "state", json!([1e10])), "out_of_range", Some("state")),
        (row("walk", "newer", 11), "sequence_gap", Some("seq")),
        (row("walk", "newer", 5), "conflict", Some("seq")),
        (row("walk", "run", 60), "fenced", Some("session")),
        (row("third", "run", 0), "too_many_streams", Some("stream")),
        (long, "too_large", Some("states")),
    ];
    for (fields, code, field) in cases {
        let described = fields.to_string();
        let id = requester.post_bytes(|id| message(&merged(json!({"v": 1, "id": id}), &fields)));
        let refusal = refused(requester.reply(id.unwrap(), PATIENCE)).unwrap_err();
        assert_eq!((refusal.code.as_str(), refusal.field.as_deref()), (code, field), "{described}: {refusal}");
        assert!(!refusal.message.is_empty());
        if code == "sequence_gap" {
            assert_eq!(refusal.expected_seq, Some(10));
        }
    }
    // What JSON cannot say.
    #[derive(serde::Serialize)]
    struct NotFinite {
        v: u64,
        id: u64,
        op: &'static str,
        states: [[f64; 1]; 2],
    }
    let id = requester.post_bytes(|id| {
        rmp_serde::to_vec_named(&NotFinite { v: 1, id, op: "value", states: [[0.0], [f64::NAN]] }).unwrap()
    });
    let refusal = refused(requester.reply(id.unwrap(), PATIENCE)).unwrap_err();
    assert_eq!(
        (refusal.code.as_str(), refusal.field.as_deref(), refusal.index),
        ("not_finite", Some("states"), Some(1))
    );
    for bytes in [&b"\xc1"[..], b"\x93\x01\x02\x03", b"hello", &[0xdf, 0xff, 0xff, 0xff, 0xff]] {
        let id = requester.post_bytes(|_| bytes.to_vec()).unwrap();
        assert_eq!(refused(requester.reply(id, PATIENCE)).unwrap_err().code, "malformed");
    }

    // The same on ingest, where nobody is told but the subscribers.
    let subscriber = running.subscriber();
    let sender = running.sender();
    sender.send(message(&json!({"v": 1, "state": [0.0], "reward": 1.0}))).unwrap();
    sender.close(PATIENCE).unwrap();
    // Events of what was refused before may come late.
    loop {
        let (topic, payload) = next(&subscriber);
        let event = wire::to_json(&payload).unwrap();
        if topic == "event.rejected" && event["code"] == "missing_field" {
            assert_eq!(event["field"], "next_state");
            break;
        }
    }

    let status = ask(&mut requester, "status", json!({}));
    // Of the appends all but the gap, which the sender closes itself, and on ingest one.
    let rejected = json!({
        "conflict": 1, "fenced": 1, "missing_field": 1, "out_of_range": 2, "too_large": 1, "too_many_streams": 1,
        "wrong_dimension": 2, "wrong_shape": 1, "wrong_type": 1,
    });
    assert_eq!((&status["offset"], &status["rejected"]), (&json!(80), &rejected));
    assert!(append(&mut requester, &batches("walk", "newer", &steps[10..20]).remove(0)).is_ok());
    assert_eq!(running.daemon.dead_thread(), None);
    running.daemon.stop();
}

fn merged(mut map: Value, other: &Value) -> Value {
    map.as_object_mut().unwrap().extend(other.as_object().unwrap().clone());
    map
}

#[test]
fn two_critics_learn_from_one_stream() {
    let running = start(|parts| parts.critics = vec![critic("near", 0.5), critic("far", 0.95)]);
    let subscriber = running.subscriber();
    let mut requester = running.requester();
    append_walk(&mut requester, "walk", &walk(4, 1000));
    let mut value = |name: &str| {
        let fields = json!({"critic": name, "states": [[-1.0], [1.0]], "min_offset": 1000});
        let reply = ask(&mut requester, "value", fields);
        assert_eq!(reply["offset"], 1000);
        numbers(&reply["mean"])
    };
    let (near, far) = (value("near"), value("far"));
    assert!(near[1] - near[0] > 1.0 && far[1] - far[0] > 2.0 * (near[1] - near[0]), "{near:?} {far:?}");

    // What is published leads to the same, whatever was missed on the way.
    let mut models = Models::default();
    for name in ["near", "far"] {
        while models.get(name).is_none_or(|model| model.offset < 1000) {
            let (topic, payload) = next(&subscriber);
            if let Update::Missed(critic) = models.apply(&topic, &payload).unwrap() {
                models.insert(requester.snapshot(Some(&critic), PATIENCE).unwrap());
            }
        }
    }
    for (name, expected) in [("near", near), ("far", far)] {
        let found = models.get(name).unwrap().evaluate(&[-1.0, 1.0], Ask::MEAN).unwrap().mean;
        for (a, b) in found.iter().zip(expected) {
            assert!((a - b).abs() < 1e-9, "{name}: {a} {b}");
        }
    }
    running.daemon.stop();
}

#[test]
fn optimise_waits_for_the_new_model() {
    // Time enough on any machine: what is asked is what comes out.
    let patient = Settings { refit_budget_s: 30.0, ..critic("main", 1.0) };
    let running = start(|parts| parts.critics = vec![patient]);
    let subscriber = running.subscriber();
    let mut requester = running.requester();
    let mut grid = Gridworld::new(5);
    let steps: Vec<Step> = (0..600).map(|_| grid.step()).collect();
    append_walk(&mut requester, "grid", &steps);
    // An acknowledgement says that rows are stored, not that they are learned.
    ask(&mut requester, "value", json!({"states": [[1, 3]], "min_offset": 600}));
    let first = requester.snapshot(None, PATIENCE).unwrap().generation;
    let reply = ask(&mut requester, "refit", json!({"wait": true}));
    assert_eq!((&reply["outcome"], &reply["generation"]), (&json!("adopted"), &json!(first + 1)));
    let event = loop {
        let (topic, payload) = next(&subscriber);
        if topic == "event.adopted" {
            break wire::to_json(&payload).unwrap();
        }
    };
    assert_eq!((&event["generation"], &event["critic"]), (&json!(first + 1), &json!("main")));
    assert!(
        event["selection"]["score"].as_f64().unwrap() > 0.0 && event["selection"]["candidates"][0]["lambda"].is_f64()
    );

    let value = ask(&mut requester, "value", json!({"states": [[1, 3], [6, 9], [9, 1]], "min_offset": 600}));
    for (found, expected) in numbers(&value["mean"]).iter().zip([-5.0, 0.0, -3.0]) {
        assert!((found - expected).abs() < 0.2, "{found} {expected}");
    }
    assert_eq!(ask(&mut requester, "refit", json!({}))["outcome"], "started");
    running.daemon.stop();
}

#[test]
fn an_announced_policy_has_a_model_of_its_own_and_is_there_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let begin = || {
        start(|parts| {
            parts.data_dir = directory.path().join("data");
            parts.critics = vec![Settings { on_new_policy: OnNewPolicy::Keep, ..critic("main", 0.5) }];
        })
    };
    let batch = |seq: usize, sign: f64, policy: &str| {
        let states: Vec<Vec<f64>> = (0..61).map(|i| vec![(0.7 * i as f64).sin()]).collect();
        let rewards: Vec<f64> = states[..60].iter().map(|state| sign * state[0]).collect();
        json!({"stream": "arm", "seq": seq, "states": states, "rewards": rewards, "policy": policy})
    };
    let slope = |requester: &mut Requester, offset: usize| {
        let asked = json!({"states": [[-0.5], [0.5]], "min_offset": offset});
        let mean = numbers(&ask(requester, "value", asked)["mean"]);
        mean[1] - mean[0]
    };
    let running = begin();
    let (mut requester, subscriber) = (running.requester(), running.subscriber());
    ask(&mut requester, "append", batch(0, 1.0, "soft"));
    assert!(slope(&mut requester, 60) > 0.5);
    ask(&mut requester, "append", batch(60, -1.0, "stiff"));
    assert!(slope(&mut requester, 120) < -0.5);
    let event = loop {
        let (topic, payload) = next(&subscriber);
        if topic == "event.new_policy" {
            break wire::to_json(&payload).unwrap();
        }
    };
    assert_eq!((&event["critic"], &event["offset"], &event["policy"]), (&json!("main"), &json!(60), &json!("stiff")));
    // The request says from which row on; the rows say the same, which is no further change.
    assert_eq!(ask(&mut requester, "new_policy", json!({"policy": "soft"}))["offset"], 120);
    ask(&mut requester, "append", batch(120, 1.0, "soft"));
    let before = slope(&mut requester, 180);
    assert!(before > 0.5);
    let critic = |requester: &mut Requester| ask(requester, "status", json!({}))["critics"][0].clone();
    let told = critic(&mut requester);
    assert_eq!((&told["policy"], &told["policies_kept"]), (&json!("soft"), &json!(["stiff"])));
    assert_eq!(told["transitions"], 120, "the model of the policy goes on");
    running.daemon.stop();

    let running = begin();
    let mut requester = running.requester();
    assert_eq!(slope(&mut requester, 180).to_bits(), before.to_bits());
    let again = critic(&mut requester);
    for key in ["policy", "policies_kept", "transitions", "generation"] {
        assert_eq!(again[key], told[key], "{key}");
    }
    running.daemon.stop();
}

#[test]
fn models_are_swapped_under_a_running_stream_and_nobody_notices() {
    // About every second refit is refused, since the one before saw nearly the same rows.
    const ADOPTIONS: u64 = 15;
    let running = start(|parts| {
        parts.window_rows = 3000;
        parts.critics[0].selection = SelectionKind::Evidence;
    });
    let (stop, sent, queries) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        let stopping = StopOnDrop(&stop);
        scope.spawn(|| {
            let sender = running.sender();
            let mut walk = Walk::new(6, Some(40), 0.0);
            while !stop.load(Ordering::Relaxed) {
                let steps: Vec<Step> = (0..20).map(|_| walk.step()).collect();
                push(&sender, "walk", "run", &steps);
                sent.fetch_add(20, Ordering::Relaxed);
                // A pace that leaves the processor to the others.
                thread::sleep(Duration::from_millis(2));
            }
            sender.close(PATIENCE).unwrap();
        });
        let asking = scope.spawn(|| {
            let mut requester = running.requester();
            let mut before = (0, 0);
            ask(&mut requester, "value", json!({"states": [[0.0]], "min_offset": 20}));
            while !stop.load(Ordering::Relaxed) {
                let reply = ask(&mut requester, "value", json!({"states": [[-0.5], [0.5]], "variance": true}));
                let now = (reply["generation"].as_u64().unwrap(), reply["offset"].as_u64().unwrap());
                assert!(now.0 >= before.0 && now.1 >= before.1, "{before:?} then {now:?}");
                assert!(numbers(&reply["mean"]).iter().all(|v| v.is_finite()));
                before = now;
                queries.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut requester = running.requester();
        ask(&mut requester, "value", json!({"states": [[0.0]], "min_offset": 200}));
        let (mut adopted, mut attempts) = (0, 0);
        while adopted < ADOPTIONS {
            attempts += 1;
            assert!(attempts < 10 * ADOPTIONS, "only {adopted} of {attempts} were adopted");
            let reply = ask(&mut requester, "refit", json!({"wait": true}));
            adopted += u64::from(reply["outcome"] == "adopted");
            // A query that was asked since is answered, unless one before was answered wrongly: its thread has ended.
            let answered = queries.load(Ordering::Relaxed);
            until("another answer", || queries.load(Ordering::Relaxed) > answered + 1 || asking.is_finished());
        }
        drop(stopping);
        asking.join().unwrap();
    });
    assert!(queries.into_inner() > ADOPTIONS);
    let mut requester = running.requester();
    let sent = sent.into_inner();
    ask(&mut requester, "value", json!({"states": [[0.0]], "min_offset": sent}));
    let status = ask(&mut requester, "status", json!({}));
    assert_eq!((&status["offset"], &status["rejected"]), (&json!(sent), &json!({})));
    assert_eq!(status["critics"][0]["refit"]["adopted"], ADOPTIONS);
    assert_eq!(status["critics"][0]["learned"], sent);
    running.daemon.stop();
}

/// Ends the threads of a scope also where the test fails, so that it fails instead of hanging.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn stopping_ends_under_full_load_and_leaves_a_last_snapshot() {
    let running = start(|_| {});
    let subscriber = running.subscriber();
    let mut requester = running.requester();
    let data = running.directory.path().join("data");
    let file = data.join("endpoints.json");
    assert!(file.exists());
    let Running { daemon, directory: _directory } = running;
    let ingest = daemon.endpoints.ingest.to_string();
    thread::scope(|scope| {
        for i in 0..2 {
            let ingest = &ingest;
            scope.spawn(move || {
                let sender = Sender::connect(ingest, PATIENCE).unwrap();
                let mut walk = Walk::new(i, Some(40), 0.0);
                loop {
                    let steps: Vec<Step> = (0..200).map(|_| walk.step()).collect();
                    let message = wire::encode_ingest(&batches(&format!("walk-{i}"), "run", &steps).remove(0));
                    if let Err(error) = sender.send(message) {
                        assert!(matches!(error, ClientError::Connection(ConnectionError::Lost(_))), "{error}");
                        break;
                    }
                }
            });
        }
        ask(&mut requester, "value", json!({"states": [[0.0]], "min_offset": 20_000}));
        let stopping = scope.spawn(|| daemon.stop());
        until("it to stop, whatever comes meanwhile", || stopping.is_finished());
    });
    assert!(!file.exists());
    // Everything that was published has arrived, or is on its way: the socket was flushed.
    let learned = survey(&data).unwrap().end.offset;
    assert!(learned >= 20_000);
    let offset = |payload: &[u8]| wire::to_json(payload).unwrap()["offset"].as_u64().unwrap_or(0);
    loop {
        let (topic, payload) = next(&subscriber);
        assert!(offset(&payload) <= learned, "{topic} has rows that are not stored");
        if topic == "snapshot.main" && offset(&payload) == learned {
            break;
        }
    }
    let mut last = "snapshot.main".to_owned();
    while let Some((topic, _)) = subscriber.receive(Duration::from_secs(1)).unwrap() {
        if topic == "snapshot.main" || topic == "weights.main" {
            last = topic;
        }
    }
    assert_eq!(last, "snapshot.main", "the last word is a whole snapshot of everything learned");
}

#[test]
fn clients_say_what_is_wrong_with_their_connection() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = Requester::connect(&format!("tcp://{nobody}"), Duration::from_millis(300)).err().unwrap();
    assert!(matches!(error, ClientError::Connection(ConnectionError::NoAnswer(_))));
    assert!(error.to_string().contains("criticd serve"), "{error}");
    assert!(matches!(Sender::connect("localhost", PATIENCE), Err(ClientError::Endpoint(_))));

    let running = start(|_| {});
    let mut requester = running.requester();
    ask(&mut requester, "ping", json!({}));
    running.daemon.stop();
    let error = requester.ask("ping", json!({}), PATIENCE).unwrap_err();
    assert!(matches!(error, ClientError::Connection(ConnectionError::Lost(_))), "{error}");
}

#[test]
fn a_restart_goes_on_where_the_last_run_ended() {
    let directory = tempfile::tempdir().unwrap();
    let parts = || ConfigParts { critics: vec![critic("main", 0.9)], ..daemon::parts(directory.path()) };
    let start = || Daemon::start(Config::new(parts()).unwrap());
    let connect = daemon::requester;
    let steps = walk(8, 500);
    let whole = batches("walk", "run", &steps);
    let daemon = start().unwrap();
    let mut requester = connect(&daemon);
    append(&mut requester, &whole[0]).unwrap();
    let question = json!({"states": [[-1.0], [0.5]], "variance": true, "min_offset": 500});
    ask(&mut requester, "refit", json!({"wait": true}));
    assert_eq!(ask(&mut requester, "checkpoint", json!({}))["offset"], 500);
    let before = ask(&mut requester, "value", question.clone());
    let status = ask(&mut requester, "status", json!({}));
    assert_eq!(
        (&status["durable"], &status["journal"]["sync"], &status["read_only"]),
        (&json!(true), &json!("always"), &json!(null))
    );

    // Two daemons would write over each other.
    let refused = start().err().unwrap().to_string();
    assert!(refused.contains(&format!("(process {}) uses", std::process::id())), "{refused}");
    daemon.stop();

    let daemon = start().unwrap();
    let mut requester = connect(&daemon);
    // It answers the first question that can be asked.
    assert_eq!(ask(&mut requester, "value", json!({"states": [[0.5]]}))["offset"], 500);
    let after = ask(&mut requester, "value", question);
    for key in ["mean", "variance", "generation", "offset"] {
        assert_eq!(after[key], before[key], "{key}");
    }
    // What was acknowledged then is known now, and other content under its numbers is told.
    let reply = append(&mut requester, &whole[0]).unwrap();
    assert_eq!((&reply["accepted"], &reply["duplicates"], &reply["offset"]), (&json!(0), &json!(500), &json!(500)));
    let other = batches("walk", "run", &walk(9, 500)).remove(0);
    assert_eq!(append(&mut requester, &other).unwrap_err().code, "conflict");
    let recovered = ask(&mut requester, "status", json!({}))["recovered"].clone();
    assert_eq!((&recovered["offset"], &recovered["rows_replayed"]), (&json!(500), &json!(0)));
    daemon.stop();

    // Without a journal nothing is kept, and that is said.
    let throwaway = daemon::start(ConfigParts { journal: false, ..parts() });
    let mut requester = connect(&throwaway);
    let status = ask(&mut requester, "status", json!({}));
    assert_eq!((&status["durable"], &status["offset"]), (&json!(false), &json!(0)));
    let refusal = refused_checkpoint(&mut requester);
    assert_eq!(refusal.code, "not_ready");
    throwaway.stop();
}

fn refused_checkpoint(requester: &mut Requester) -> Refusal {
    refused(requester.ask("checkpoint", json!({}), PATIENCE)).unwrap_err()
}
