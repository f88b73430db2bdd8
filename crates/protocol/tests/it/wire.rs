//! The wire promises: what clients may write is understood, every fault is named, and no bytes do harm.

use criticd_learner::heads::{Cumulant, Head, HeadEvaluation, HeadsSnapshot, Rate, Verified};
use criticd_learner::math::columns::GivenFunction;
use criticd_learner::math::embedding::{Bend, StateKind};
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Profile};
use criticd_learner::mean::{Linear, MEANS_MAX, Mean, MeanForm};
use criticd_learner::snapshot::{Ask, Evaluation, Inputs, ReturnSpread, Snapshot, Tracked};
use criticd_learner::transition::Batch;
use criticd_protocol::wire::events::{ForetoldFall, RejectedMessages, RejectedStream};
use criticd_protocol::wire::status::{CriticStatus, DriftAlarm, LastRefit, MovedVariable, RefitFound};
use criticd_protocol::wire::{
    self, Answering, ArrayForm, DatedEvent, ErrorCode, Event, HeadAnswers, Id, Limits, Moment, Op, Reply, Status,
    WireError,
};
use nalgebra::DMatrix;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use serde_json::{Value, json};
use std::collections::{BTreeMap, HashSet};

// ---- building messages

fn pack(value: &Value) -> Vec<u8> {
    rmp_serde::to_vec(value).unwrap()
}

/// A map from keys that are encoded already to values that are.
fn raw_map(pairs: &[(Vec<u8>, Vec<u8>)]) -> Vec<u8> {
    let mut out = Vec::new();
    rmp::encode::write_map_len(&mut out, pairs.len() as u32).unwrap();
    pairs.iter().for_each(|(key, value)| {
        out.extend_from_slice(key);
        out.extend_from_slice(value);
    });
    out
}

/// `message` (a JSON object) with some values replaced or added that JSON cannot express.
fn message_with(message: &Value, raw: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut pairs: Vec<_> = message
        .as_object()
        .unwrap()
        .iter()
        .filter(|(key, _)| raw.iter().all(|(other, _)| other != key))
        .map(|(key, value)| (pack(&json!(key)), pack(value)))
        .collect();
    pairs.extend(raw.iter().map(|(key, value)| (pack(&json!(key)), value.clone())));
    raw_map(&pairs)
}

fn bin(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    rmp::encode::write_bin(&mut out, data).unwrap();
    out
}

/// What `msgpack-numpy` writes; its keys are binary or strings, depending on how the packer was made.
fn numpy(dtype: &str, shape: Option<&[usize]>, data: &[u8], binary_keys: bool) -> Vec<u8> {
    let text = |s: &str| if binary_keys { bin(s.as_bytes()) } else { pack(&json!(s)) };
    let mut pairs = vec![(text("nd"), pack(&json!(shape.is_some()))), (text("type"), text(dtype))];
    if let Some(shape) = shape {
        pairs.push((text("kind"), text("")));
        pairs.push((text("shape"), pack(&json!(shape))));
    }
    pairs.push((text("data"), bin(data)));
    raw_map(&pairs)
}

fn le(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn single() -> Value {
    json!({
        "v": 1, "stream": "robot", "session": "a", "seq": 7, "state": [0.5, -1], "next_state": [1, 2.5], "reward": -3,
        "terminated": true, "truncated": false, "action": 2, "discount": 0.5, "time": 1.7e9,
        "behavior_prob": 0.25, "target_prob": 0.5, "next_action": 1, "next_action_probs": [0.25, 0.75],
    })
}

fn batch() -> Value {
    json!({
        "v": 1, "stream": "robot", "session": "a", "seq": 7, "states": [[0.5, -1], [3, 4]],
        "next_states": [[1, 2.5], [5, 6]], "rewards": [-3, 1.5], "terminated": [true, false],
        "truncated": [false, true], "actions": [[2, 1], [0, 1]], "discounts": [0.5, 1], "times": [1.7e9, 1.7e9],
        "behavior_probs": [0.5, 2], "target_probs": [0, 1], "next_actions": [[1, 1], [0, 2]],
        "next_action_probs": [[0.25, 0.75], [1, 0]],
    })
}

fn append() -> Value {
    let mut message = batch();
    message["id"] = json!("request 1");
    message["op"] = json!("append");
    message
}

fn value_request() -> Value {
    json!({"v": 1, "id": 3, "op": "value", "states": [[1, 2], [3, 4.5], [5, 6]], "critic": "c", "variance": true,
           "min_offset": 10, "arrays": "list"})
}

fn ingest(bytes: &[u8]) -> Result<Batch, WireError> {
    wire::decode_ingest(bytes, &Limits::default())
}

fn request(bytes: &[u8]) -> Result<wire::Request, wire::RequestError> {
    wire::decode_request(bytes, &Limits::default())
}

fn snapshot(metric: Metric, columns: usize) -> Snapshot {
    let numbers = |rows, columns| DMatrix::from_fn(rows, columns, |i, j| 0.1 + i as f64 / 3.0 - j as f64 * 0.7);
    Snapshot {
        table: None,
        critic: "default".into(),
        generation: 3,
        revision: 17,
        offset: 1_000_000,
        transitions: 999_999,
        time: 1.7e9 + 0.1,
        discount: 0.99,
        hyperparameters: Hyperparameters {
            kernel: Kernel::gaussian(2.0 / 3.0, 0.0, metric),
            noise: NoiseModel::White,
            noise_variance: 1e-5,
        },
        inputs: Inputs {
            shift: vec![0.1, -0.3],
            scale: vec![2.5, 1e-3],
            names: Some(vec!["angle".into(), "speed".into()]),
        },
        dictionary: numbers(3, 2),
        weights: numbers(3, columns),
        variance: Some(numbers(3, 3)),
        log_evidence: Some(-123.456),
        score: Some(-0.5),
        lambda: 0.3,
        returns: Some(ReturnSpread {
            level: vec![0.1; columns],
            weights: numbers(3, columns),
            floor: vec![1e-3; columns],
            factor: 1.1,
            pairs: 1234,
            coverage: Some(0.875),
        }),
        provisional: true,
        tracked: None,
        level: Vec::new(),
        mean: None,
        reward_names: Vec::new(),
        actions: None,
        heads: None,
        branch: None,
    }
}

fn metrics() -> [Metric; 3] {
    [
        Metric::Isotropic(0.7),
        Metric::Ard(vec![0.0, 1.0 / 3.0]),
        Metric::Factor { relevance: vec![1.0, 0.5], factors: vec![vec![0.1, -0.2], vec![3.0, 4.0]] },
    ]
}

// ---- what is understood

#[test]
fn one_transition() {
    let batch = ingest(&pack(&single())).unwrap();
    assert_eq!((batch.len(), batch.stream(), batch.session(), batch.seq()), (1, "robot", "a", Some(7)));
    assert_eq!(
        (batch.state(0), batch.next_state(0), batch.reward(0)),
        (&[0.5, -1.0][..], &[1.0, 2.5][..], &[-3.0][..])
    );
    assert!(batch.terminated(0) && !batch.truncated(0));
    assert_eq!((batch.discount(0), batch.action(0)), (Some(0.5), Some(&[2.0][..])));
    assert_eq!((batch.behavior_prob(0), batch.target_prob(0), batch.ratio(0)), (Some(0.25), Some(0.5), 2.0));
    assert_eq!((batch.next_action(0), batch.next_action_probs(0)), (Some(&[1.0][..]), Some(&[0.25, 0.75][..])));
}

#[test]
fn a_transition_needs_little() {
    let batch = ingest(&pack(&json!({"v": 1, "state": [1], "next_state": [2], "reward": [3, 4]}))).unwrap();
    assert_eq!((batch.stream(), batch.session(), batch.seq()), ("default", "", None));
    assert_eq!((batch.reward(0), batch.discount(0), batch.action(0)), (&[3.0, 4.0][..], None, None));
    assert_eq!((batch.behavior_prob(0), batch.target_prob(0), batch.ratio(0)), (None, None, 1.0));
    assert_eq!((batch.next_action(0), batch.next_action_probs(0)), (None, None));
    assert!(!batch.terminated(0) && !batch.truncated(0));
}

#[test]
fn a_batch() {
    let batch = ingest(&pack(&batch())).unwrap();
    assert_eq!((batch.len(), batch.dim(), batch.rewards_per_row()), (2, 2, 1));
    assert_eq!((batch.state(1), batch.next_state(1), batch.reward(1)), (&[3.0, 4.0][..], &[5.0, 6.0][..], &[1.5][..]));
    assert_eq!((batch.terminated(0), batch.truncated(1), batch.terminated(1)), (true, true, false));
    assert_eq!((batch.discount(1), batch.action(1)), (Some(1.0), Some(&[0.0, 1.0][..])));
    assert_eq!((batch.behavior_prob(1), batch.target_prob(0)), (Some(2.0), Some(0.0)));
    assert_eq!((batch.ratio(0), batch.ratio(1)), (0.0, 0.5));
    assert_eq!((batch.next_action(1), batch.next_action_probs(1)), (Some(&[0.0, 2.0][..]), Some(&[1.0, 0.0][..])));
}

#[test]
fn a_batch_may_carry_the_time_it_was_sent() {
    assert_eq!(ingest(&changed(&batch(), "time", json!(1.7e9))).unwrap(), ingest(&pack(&batch())).unwrap());
}

#[test]
fn one_probability_may_come_without_the_other() {
    for (key, others) in [("behavior_probs", (None, Some(1.0))), ("target_probs", (Some(2.0), None))] {
        let batch = ingest(&changed(&batch(), key, Value::Null)).unwrap();
        assert_eq!((batch.behavior_prob(1), batch.target_prob(1)), others);
        assert_eq!(batch.ratio(1), 1.0);
    }
}

#[test]
fn a_piece_of_trajectory() {
    let piece = json!({"v": 1, "op": "append", "states": [[1], [2], [3]], "rewards": [[1, 2], [3, 4]]});
    let batch = ingest(&pack(&piece)).unwrap();
    assert_eq!((batch.len(), batch.rewards_per_row()), (2, 2));
    assert_eq!((batch.next_state(0), batch.next_state(1)), (&[2.0][..], &[3.0][..]));
}

#[test]
fn numpy_arrays_mean_what_lists_mean() {
    let expected = ingest(&pack(&batch())).unwrap();
    for binary_keys in [false, true] {
        let states = numpy("<f8", Some(&[2, 2]), &le(&[0.5, -1.0, 3.0, 4.0]), binary_keys);
        let next: Vec<u8> = [1f32, 2.5, 5.0, 6.0].iter().flat_map(|v| v.to_le_bytes()).collect();
        let actions: Vec<u8> = [2i32, 1, 0, 1].iter().flat_map(|v| v.to_le_bytes()).collect();
        let message = message_with(
            &batch(),
            &[
                ("states", states),
                ("next_states", numpy("<f4", Some(&[2, 2]), &next, binary_keys)),
                ("rewards", numpy("<f8", Some(&[2]), &le(&[-3.0, 1.5]), binary_keys)),
                ("terminated", numpy("|b1", Some(&[2]), &[1, 0], binary_keys)),
                ("truncated", numpy("|b1", Some(&[2]), &[0, 1], binary_keys)),
                ("actions", numpy("<i4", Some(&[2, 2]), &actions, binary_keys)),
                ("behavior_probs", numpy("<f8", Some(&[2]), &le(&[0.5, 2.0]), binary_keys)),
                ("next_actions", numpy("<f8", Some(&[2, 2]), &le(&[1.0, 1.0, 0.0, 2.0]), binary_keys)),
                ("next_action_probs", numpy("<f8", Some(&[2, 2]), &le(&[0.25, 0.75, 1.0, 0.0]), binary_keys)),
                ("seq", numpy("<i8", None, &7i64.to_le_bytes(), binary_keys)),
            ],
        );
        assert_eq!(ingest(&message).unwrap(), expected);
    }
}

#[test]
fn numpy_scalars_mean_what_numbers_mean() {
    let expected = ingest(&pack(&single())).unwrap();
    let message = message_with(
        &single(),
        &[
            ("reward", numpy("<f4", None, &(-3f32).to_le_bytes(), true)),
            ("terminated", numpy("|b1", None, &[1], true)),
            ("truncated", numpy("|b1", Some(&[]), &[0], true)),
            ("action", numpy("<i8", None, &2i64.to_le_bytes(), true)),
            ("seq", numpy("<i4", None, &7i32.to_le_bytes(), true)),
            ("discount", numpy("<f8", None, &0.5f64.to_le_bytes(), true)),
            ("target_prob", numpy("<f8", None, &0.5f64.to_le_bytes(), true)),
            // A list of numpy scalars, as a careless comprehension makes it.
            ("state", [vec![0x92], numpy("<f8", None, &le(&[0.5]), true), pack(&json!(-1))].concat()),
        ],
    );
    assert_eq!(ingest(&message).unwrap(), expected);
}

#[test]
fn requests() {
    let parsed = request(&pack(&append())).unwrap();
    assert_eq!((parsed.id.as_bytes(), parsed.arrays), (&pack(&json!("request 1"))[..], ArrayForm::Tensor));
    assert_eq!(parsed.op, Op::Append(ingest(&pack(&batch())).unwrap()));

    let parsed = request(&pack(&value_request())).unwrap();
    assert_eq!(parsed.arrays, ArrayForm::List);
    let states = vec![1.0, 2.0, 3.0, 4.5, 5.0, 6.0];
    let critic = Some("c".to_owned());
    assert_eq!(
        parsed.op,
        Op::Value {
            states,
            rows: 3,
            dim: 2,
            critics: Answering::One(critic.clone()),
            ask: Ask::VARIANCE,
            min_offset: Some(10),
            actions: None,
            heads: None,
            as_of: None,
        }
    );

    let op = |message: Value| request(&pack(&message)).unwrap().op;
    assert_eq!(op(json!({"v": 1, "id": 0, "op": "ping"})), Op::Ping);
    assert_eq!(op(json!({"v": 1, "id": 0, "op": "hello"})), Op::Hello);
    assert_eq!(op(json!({"v": 1, "id": 0, "op": "status"})), Op::Status);
    assert_eq!(op(json!({"v": 1, "id": 0, "op": "streams"})), Op::Streams { names: None, from: 0 });
    assert_eq!(op(json!({"v": 1, "id": 0, "op": "checkpoint"})), Op::Checkpoint);
    assert_eq!(op(json!({"v": 1, "id": 0, "op": "new_policy"})), Op::NewPolicy { critic: None, policy: None });
    let named = json!({"v": 1, "id": 0, "op": "new_policy", "critic": "main", "policy": "stiff"});
    assert_eq!(op(named), Op::NewPolicy { critic: Some("main".into()), policy: Some("stiff".into()) });
    let snapshot = Op::Snapshot { critic: None, variance: false, page: None, revision: None, head: None, as_of: None };
    assert_eq!(op(json!({"v": 1, "id": 0, "op": "snapshot"})), snapshot);
    for name in ["refit", "optimise"] {
        let refit = json!({"v": 1, "id": 0, "op": name, "wait": true, "critic": "c"});
        assert_eq!(op(refit), Op::Refit { critic: critic.clone(), wait: true });
    }
    assert_eq!(request(&pack(&json!({"v": 1, "op": "ping"}))).unwrap().id, Id::nil());
}

#[test]
fn critics_of_a_query_are_different_and_not_too_many() {
    let asked = |critics: Value, more: Value| {
        let mut message =
            json!({"v": 1, "id": 0, "op": "value", "states": [[1.0, 2.0], [3.0, 4.0]], "critics": critics});
        more.as_object().unwrap().iter().for_each(|(key, value)| message[key] = value.clone());
        request(&pack(&message)).map(|request| request.op).map_err(|refused| {
            let WireError { code, field, index, message, .. } = refused.error;
            (code, field, index, message)
        })
    };
    let each = |op: Op| match op {
        Op::Value { critics: Answering::Each(names), .. } => names,
        other => panic!("{other:?}"),
    };
    assert_eq!(each(asked(json!(["b", "a"]), json!({})).unwrap()), ["b", "a"]);
    let names: Vec<String> = (0..65).map(|i| i.to_string()).collect();
    assert_eq!(each(asked(json!(names[..64]), json!({})).unwrap()), names[..64]);
    for (critics, more, code, field, index, part) in [
        (json!([]), json!({}), ErrorCode::WrongShape, "critics", None, "at least one"),
        (json!(names), json!({}), ErrorCode::TooLarge, "critics", None, "at most 64 critics"),
        (json!(["a", "b", "a"]), json!({}), ErrorCode::OutOfRange, "critics", Some(2), "\"a\" twice"),
        (json!(["a", 3]), json!({}), ErrorCode::WrongType, "critics", Some(1), "strings"),
        (json!("a"), json!({}), ErrorCode::WrongType, "critics", None, "strings"),
        (json!(["a"]), json!({"critic": "a"}), ErrorCode::WrongShape, "critic", None, "not both"),
    ] {
        let error = asked(critics.clone(), more).unwrap_err();
        assert_eq!((error.0, error.1, error.2), (code, Some(field), index), "{critics} {}", error.3);
        assert!(error.3.contains(part), "{}", error.3);
    }
    let limits = Limits { query_rows_max: 3, ..Limits::default() };
    let message = json!({"v": 1, "op": "value", "states": [[1.0], [2.0]], "critics": ["a", "b"]});
    let error = wire::decode_request(&pack(&message), &limits).unwrap_err().error;
    assert_eq!((error.code, error.field), (ErrorCode::TooLarge, Some("states")));
}

#[test]
fn any_value_is_an_id_and_comes_back_byte_for_byte() {
    let odd: [&[u8]; 6] = [
        &[0xd9, 1, b'x'],             // a string in a longer form than needed
        &[0xcd, 0, 1],                // so is this integer
        &[0x92, 0xc0, 0x81, 1, 0xc3], // [nil, {1: true}]
        &[0xd4, 5, 6],
        &[0xc4, 2, 0xff, 0xfe],
        &[0xa1, 0xff], // not even UTF-8
    ];
    for id in odd {
        let message = message_with(&json!({"v": 1, "op": "ping"}), &[("id", id.to_vec())]);
        let parsed = request(&message).unwrap();
        assert_eq!(parsed.id.as_bytes(), id);
        let reply = wire::encode_reply(&parsed.id, parsed.arrays, &Reply::Ping { version: "0", uptime_s: 1.0 });
        let start = [&[0x85, 0xa1, b'v', 1, 0xa2, b'i', b'd'], id, &[0xa2, b'o', b'k', 0xc3]].concat();
        assert_eq!(reply[..start.len()], start);
    }
}

#[test]
fn what_clients_encode_is_decoded_to_the_same() {
    let expected = ingest(&changed(&batch(), "action_names", json!(["torque [N m]", "grip"]))).unwrap();
    let back = ingest(&wire::encode_ingest(&expected)).unwrap();
    assert_eq!(back.names().actions.as_deref().unwrap(), ["torque [N m]", "grip"]);
    // Times are left out; everything else is the same.
    assert_eq!((back.fingerprint(0), back.fingerprint(1)), (expected.fingerprint(0), expected.fingerprint(1)));
    assert_eq!((back.stream(), back.session(), back.seq()), ("robot", "a", Some(7)));
    let appended = request(&wire::encode_append(5, &expected)).unwrap();
    assert_eq!((appended.id.as_bytes(), appended.op), (&[5][..], Op::Append(back)));
    let fields = json!({"states": [[1, 2]], "variance": true});
    let asked = request(&wire::encode_request(6, "value", fields.as_object().unwrap())).unwrap();
    assert!(matches!(asked.op, Op::Value { rows: 1, dim: 2, ask: Ask::VARIANCE, .. }), "{asked:?}");
}

// ---- faults

/// (code, field, index) of the fault that a change to a message makes.
type Fault = (ErrorCode, Option<&'static str>, Option<usize>);

fn fault_of(error: WireError) -> Fault {
    (error.code, error.field, error.index)
}

/// `message` with one key changed, or removed where the value is null.
fn changed(message: &Value, key: &str, value: Value) -> Vec<u8> {
    let mut message = message.clone();
    match value {
        Value::Null => drop(message.as_object_mut().unwrap().remove(key)),
        value => message[key] = value,
    }
    pack(&message)
}

#[test]
fn every_one_field_fault_of_a_transition_is_named() {
    use ErrorCode::*;
    let long = "x".repeat(257);
    let cases: Vec<(&str, Value, Fault)> = vec![
        ("v", Value::Null, (MissingField, Some("v"), None)),
        ("v", json!(2), (UnsupportedVersion, Some("v"), None)),
        ("v", json!(-1), (UnsupportedVersion, Some("v"), None)),
        ("v", json!("1"), (WrongType, Some("v"), None)),
        ("op", json!("value"), (UnknownOp, Some("op"), None)),
        ("op", json!(1), (WrongType, Some("op"), None)),
        ("stream", json!(3), (WrongType, Some("stream"), None)),
        ("stream", json!(""), (OutOfRange, Some("stream"), None)),
        ("stream", json!(long), (OutOfRange, Some("stream"), None)),
        ("session", json!(["a"]), (WrongType, Some("session"), None)),
        ("session", json!(long), (OutOfRange, Some("session"), None)),
        ("seq", json!(-1), (OutOfRange, Some("seq"), None)),
        ("seq", json!(u64::MAX), (OutOfRange, Some("seq"), None)),
        ("seq", json!(1.5), (WrongType, Some("seq"), None)),
        ("seq", json!(true), (WrongType, Some("seq"), None)),
        ("state", Value::Null, (MissingField, Some("state"), None)),
        ("state", json!("x"), (WrongType, Some("state"), None)),
        ("state", json!(1), (WrongShape, Some("state"), None)),
        ("state", json!([]), (WrongShape, Some("state"), None)),
        ("state", json!([[1, 2]]), (WrongShape, Some("state"), None)),
        ("state", json!([1, true]), (WrongType, Some("state"), Some(1))),
        ("state", json!([1, [2]]), (WrongShape, Some("state"), Some(1))),
        ("state", json!([1, 2, 3]), (WrongShape, Some("next_state"), None)),
        ("state", json!([1, 1e10]), (OutOfRange, Some("state"), Some(0))),
        ("next_state", Value::Null, (MissingField, Some("next_state"), None)),
        ("next_state", json!([1]), (WrongShape, Some("next_state"), None)),
        ("next_state", json!({"a": 1}), (WrongType, Some("next_state"), None)),
        ("reward", Value::Null, (MissingField, Some("reward"), None)),
        ("reward", json!("1"), (WrongType, Some("reward"), None)),
        ("reward", json!(false), (WrongType, Some("reward"), None)),
        ("reward", json!([]), (WrongShape, Some("reward"), None)),
        ("reward", json!([[1]]), (WrongShape, Some("reward"), None)),
        ("reward", json!(-1e12), (OutOfRange, Some("reward"), Some(0))),
        ("terminated", json!(1), (WrongType, Some("terminated"), None)),
        ("terminated", json!([true]), (WrongShape, Some("terminated"), None)),
        ("truncated", json!("no"), (WrongType, Some("truncated"), None)),
        ("action", json!("left"), (WrongType, Some("action"), None)),
        ("action", json!([]), (WrongShape, Some("action"), None)),
        ("discount", json!(1.01), (OutOfRange, Some("discount"), Some(0))),
        ("discount", json!([0.5]), (WrongShape, Some("discount"), None)),
        ("time", json!("now"), (WrongType, Some("time"), None)),
        ("behavior_prob", json!(0), (OutOfRange, Some("behavior_prob"), Some(0))),
        ("behavior_prob", json!(-0.5), (OutOfRange, Some("behavior_prob"), Some(0))),
        ("behavior_prob", json!([0.5]), (WrongShape, Some("behavior_prob"), None)),
        ("behavior_prob", json!(1e-300), (OutOfRange, Some("target_prob"), Some(0))),
        ("target_prob", json!(-0.5), (OutOfRange, Some("target_prob"), Some(0))),
        ("target_prob", json!(true), (WrongType, Some("target_prob"), None)),
        ("next_action", json!("left"), (WrongType, Some("next_action"), None)),
        ("next_action", json!([1, 2]), (WrongShape, Some("next_action"), None)),
        ("next_action_probs", json!([0.25, 0.5]), (OutOfRange, Some("next_action_probs"), Some(0))),
        ("next_action_probs", json!([1.5, -0.5]), (OutOfRange, Some("next_action_probs"), Some(0))),
        ("next_action_probs", json!([]), (WrongShape, Some("next_action_probs"), None)),
        ("next_action_probs", json!([[0.25, 0.75]]), (WrongShape, Some("next_action_probs"), None)),
        // Keys of a batch have no place in a transition.
        ("states", json!([[1, 2]]), (WrongShape, Some("states"), None)),
        ("rewards", json!([1]), (WrongShape, Some("rewards"), None)),
        ("discounts", json!([1]), (WrongShape, Some("discounts"), None)),
        ("behavior_probs", json!([1]), (WrongShape, Some("behavior_probs"), None)),
        ("target_probs", json!([1]), (WrongShape, Some("target_probs"), None)),
        ("next_actions", json!([1]), (WrongShape, Some("next_actions"), None)),
    ];
    for (key, value, expected) in cases {
        let shown = format!("{key}: {value}");
        assert_eq!(fault_of(ingest(&changed(&single(), key, value)).unwrap_err()), expected, "{shown}");
    }
}

#[test]
fn every_one_field_fault_of_a_batch_is_named() {
    use ErrorCode::*;
    let cases: Vec<(&str, Value, Fault)> = vec![
        ("states", Value::Null, (MissingField, Some("state"), None)),
        ("states", json!([]), (WrongShape, Some("states"), None)),
        ("states", json!([[], []]), (WrongShape, Some("states"), None)),
        ("states", json!([1, 2]), (WrongShape, Some("states"), None)),
        ("states", json!([[1, 2], [3]]), (WrongShape, Some("states"), Some(1))),
        ("states", json!([[1, 2], 3]), (WrongShape, Some("states"), Some(1))),
        ("states", json!([[1, 2], [3, "x"]]), (WrongType, Some("states"), Some(1))),
        ("states", json!([[[1], [2]], [[3], [4]]]), (WrongShape, Some("states"), Some(0))),
        ("states", json!([[1, 2], [-2e9, 1]]), (OutOfRange, Some("states"), Some(1))),
        ("states", json!([[1, 2], [3, 4], [5, 6]]), (WrongShape, Some("states"), None)),
        ("next_states", json!([[1, 2]]), (WrongShape, Some("next_states"), None)),
        ("next_states", json!([[1], [2]]), (WrongShape, Some("next_states"), None)),
        ("next_states", Value::Null, (WrongShape, Some("states"), None)),
        ("rewards", Value::Null, (MissingField, Some("rewards"), None)),
        ("rewards", json!(1), (WrongShape, Some("rewards"), None)),
        ("rewards", json!([]), (WrongShape, Some("rewards"), None)),
        ("rewards", json!([1, true]), (WrongType, Some("rewards"), Some(1))),
        ("terminated", json!([true]), (WrongShape, Some("terminated"), None)),
        ("terminated", json!([true, 0]), (WrongType, Some("terminated"), Some(1))),
        ("terminated", json!(false), (WrongShape, Some("terminated"), None)),
        ("truncated", json!([[true], [false]]), (WrongShape, Some("truncated"), None)),
        ("actions", json!([1, 2, 3, 4]), (WrongShape, Some("actions"), None)),
        ("actions", json!([[], []]), (WrongShape, Some("actions"), None)),
        ("actions", json!(1), (WrongShape, Some("actions"), None)),
        ("discounts", json!([0.5, -0.1]), (OutOfRange, Some("discounts"), Some(1))),
        ("discounts", json!([0.5]), (WrongShape, Some("discounts"), None)),
        ("times", json!([1, "x"]), (WrongType, Some("times"), Some(1))),
        ("behavior_probs", json!([0.5, 0]), (OutOfRange, Some("behavior_probs"), Some(1))),
        ("behavior_probs", json!([0.5]), (WrongShape, Some("behavior_probs"), None)),
        ("behavior_probs", json!(0.5), (WrongShape, Some("behavior_probs"), None)),
        ("target_probs", json!([0.5, -1]), (OutOfRange, Some("target_probs"), Some(1))),
        ("target_probs", json!([1e10, 0]), (OutOfRange, Some("target_probs"), Some(0))),
        ("target_probs", json!([0.5, "x"]), (WrongType, Some("target_probs"), Some(1))),
        ("next_actions", json!([[1, 1]]), (WrongShape, Some("next_actions"), None)),
        ("next_actions", json!([1, 1]), (WrongShape, Some("next_actions"), None)),
        ("next_actions", json!([[1, 1], [1]]), (WrongShape, Some("next_actions"), Some(1))),
        ("next_action_probs", json!([[0.25, 0.75], [1, 1]]), (OutOfRange, Some("next_action_probs"), Some(1))),
        ("next_action_probs", json!([[0.25, 0.75]]), (WrongShape, Some("next_action_probs"), None)),
        ("next_action_probs", json!([0.25, 0.75]), (OutOfRange, Some("next_action_probs"), Some(0))),
        ("action_names", json!(["left"]), (OutOfRange, Some("action_names"), None)),
        ("action_names", json!(["left", "left"]), (OutOfRange, Some("action_names"), None)),
        ("action_names", json!(["left", ""]), (OutOfRange, Some("action_names"), None)),
        ("action_names", json!(["left", "r".repeat(257)]), (OutOfRange, Some("action_names"), None)),
        ("action_names", json!(["left", 1]), (WrongType, Some("action_names"), Some(1))),
        ("state", json!([1, 2]), (WrongShape, Some("states"), None)),
        ("behavior_prob", json!(0.5), (WrongShape, Some("behavior_prob"), None)),
        ("target_prob", json!(0.5), (WrongShape, Some("target_prob"), None)),
        ("next_action", json!([1, 1]), (WrongShape, Some("next_action"), None)),
        ("discount", json!(0.5), (WrongShape, Some("discount"), None)),
    ];
    for (key, value, expected) in cases {
        let shown = format!("{key}: {value}");
        assert_eq!(fault_of(ingest(&changed(&batch(), key, value)).unwrap_err()), expected, "{shown}");
    }
}

#[test]
fn faults_that_only_binary_messages_can_have() {
    use ErrorCode::*;
    let b1 = |data: &[u8]| numpy("|b1", Some(&[2]), data, true);
    let matrix = |dtype: &str, shape: &[usize], len: usize| numpy(dtype, Some(shape), &vec![0; len], true);
    let lists_of = |value: f64| rmp_serde::to_vec(&[[1.0, 2.0], [3.0, value]]).unwrap();
    let cases: Vec<(&str, Vec<u8>, Fault)> = vec![
        ("stream", vec![0xa2, 0xff, 0xfe], (WrongType, Some("stream"), None)),
        ("stream", vec![0xc0], (WrongType, Some("stream"), None)),
        ("states", lists_of(f64::NAN), (NotFinite, Some("states"), Some(1))),
        ("states", lists_of(f64::INFINITY), (NotFinite, Some("states"), Some(1))),
        ("states", matrix(">f8", &[2, 2], 32), (WrongType, Some("states"), None)),
        ("states", matrix("<f2", &[2, 2], 8), (WrongType, Some("states"), None)),
        ("states", matrix("<f8", &[2, 2], 31), (WrongShape, Some("states"), None)),
        ("states", matrix("<f8", &[4], 32), (WrongShape, Some("states"), None)),
        ("states", matrix("<f8", &[2, 2, 1], 32), (WrongShape, Some("states"), None)),
        ("states", matrix("<f8", &[usize::MAX, 2], 32), (WrongShape, Some("states"), None)),
        ("states", matrix("<f8", &[usize::MAX, 0], 0), (WrongShape, Some("states"), None)),
        ("rewards", matrix("<f8", &[usize::MAX, 0], 0), (TooLarge, Some("states"), None)),
        ("states", numpy("<f8", None, &le(&[1.0]), true), (WrongShape, Some("states"), None)),
        ("rewards", matrix("<f8", &[0, 5], 0), (WrongShape, Some("rewards"), None)),
        ("terminated", b1(&[0, 2]), (OutOfRange, Some("terminated"), Some(1))),
        ("terminated", matrix("<i8", &[2], 16), (WrongType, Some("terminated"), None)),
        ("seq", numpy("<i8", None, &(-1i64).to_le_bytes(), true), (OutOfRange, Some("seq"), None)),
        ("seq", numpy("<f8", None, &le(&[7.0]), true), (WrongType, Some("seq"), None)),
    ];
    for (key, value, expected) in cases {
        let error = ingest(&message_with(&batch(), &[(key, value.clone())])).unwrap_err();
        assert_eq!(fault_of(error), expected, "{key}: {value:x?}");
    }
}

#[test]
fn faults_of_requests_are_named_and_carry_the_id() {
    use ErrorCode::*;
    let append_cases = [
        ("seq", Value::Null, (MissingField, Some("seq"), None)),
        ("op", Value::Null, (MissingField, Some("op"), None)),
        ("op", json!("append "), (UnknownOp, Some("op"), None)),
        ("op", json!([]), (WrongType, Some("op"), None)),
        ("v", json!(3), (UnsupportedVersion, Some("v"), None)),
        ("arrays", json!("xml"), (OutOfRange, Some("arrays"), None)),
        ("rewards", json!([1]), (WrongShape, Some("rewards"), None)),
    ];
    let value_cases = [
        ("states", Value::Null, (MissingField, Some("states"), None)),
        ("states", json!([]), (WrongShape, Some("states"), None)),
        ("states", json!([1, 2]), (WrongShape, Some("states"), None)),
        ("states", json!([[], []]), (WrongShape, Some("states"), None)),
        ("states", json!([[1], ["x"]]), (WrongType, Some("states"), Some(1))),
        ("critic", json!(1), (WrongType, Some("critic"), None)),
        ("variance", json!(1), (WrongType, Some("variance"), None)),
        ("min_offset", json!(-5), (OutOfRange, Some("min_offset"), None)),
        ("min_offset", json!("5"), (WrongType, Some("min_offset"), None)),
        ("as_of", json!(-5), (OutOfRange, Some("as_of"), None)),
        ("as_of", json!("@5"), (WrongType, Some("as_of"), None)),
        ("as_of", json!(5), (WrongShape, Some("min_offset"), None)),
    ];
    let append_cases = append_cases.into_iter().map(|case| (append(), case));
    let value_cases = value_cases.into_iter().map(|case| (value_request(), case));
    for (message, (key, value, expected)) in append_cases.chain(value_cases) {
        let shown = format!("{key}: {value}");
        let refused = request(&changed(&message, key, value)).unwrap_err();
        assert_eq!(fault_of(refused.error), expected, "{shown}");
        assert_eq!(refused.id.as_bytes(), pack(&message["id"]), "{shown}");
    }
}

#[test]
fn limits_are_kept() {
    let limits = Limits { message_bytes_max: 1024, rows_per_batch_max: 3, query_rows_max: 2 };
    let rows = |n: usize, states: usize| {
        let states: Vec<[f64; 1]> = vec![[0.5]; states];
        pack(&json!({"v": 1, "states": states, "rewards": vec![1; n]}))
    };
    assert!(wire::decode_ingest(&rows(3, 4), &limits).is_ok());
    for message in [rows(4, 5), rows(3, 5)] {
        let error = wire::decode_ingest(&message, &limits).unwrap_err();
        assert_eq!(fault_of(error), (ErrorCode::TooLarge, Some("states"), None));
    }
    let refused = wire::decode_request(&pack(&value_request()), &limits).unwrap_err();
    assert_eq!(fault_of(refused.error), (ErrorCode::TooLarge, Some("states"), None));
    let long = message_with(&single(), &[("comment", bin(&[0; 1024]))]);
    assert!(ingest(&long).is_ok());
    let error = wire::decode_ingest(&long, &limits).unwrap_err();
    assert_eq!(fault_of(error), (ErrorCode::TooLarge, None, None));
    let id = bin(&[0; 300]);
    let refused = request(&message_with(&json!({"v": 1, "op": "ping"}), &[("id", id)])).unwrap_err();
    assert_eq!((fault_of(refused.error), refused.id), ((ErrorCode::TooLarge, Some("id"), None), Id::nil()));
}

#[test]
fn names_and_heads_have_few_bytes() {
    let (name, long) = ("n".repeat(256), "n".repeat(257));
    let head = |name: &str| json!([{"name": name, "cumulant": {"kind": "reward", "index": 0}}]);
    let fault = |op: &str, key: &str, value: Value| {
        let mut message = json!({"v": 1, "op": op, "states": [[0.5]]});
        message[key] = value;
        request(&pack(&message)).err().map(|refused| fault_of(refused.error))
    };
    for op in ["value", "act", "snapshot", "refit", "rebuild", "new_policy", "heads", "change_heads"] {
        assert_eq!(fault(op, "critic", json!(name)), None, "{op}");
        assert_eq!(fault(op, "critic", json!(long)), Some((ErrorCode::TooLarge, Some("critic"), None)), "{op}");
    }
    for (op, key) in
        [("streams", "names"), ("heads", "names"), ("change_heads", "remove"), ("value", "critics"), ("value", "heads")]
    {
        assert_eq!(fault(op, key, json!(["a", name])), None, "{op} {key}");
        assert_eq!(fault(op, key, json!(["a", long])), Some((ErrorCode::TooLarge, Some(key), Some(1))), "{op} {key}");
    }
    assert_eq!(fault("change_heads", "add", head(&name)), None);
    assert_eq!(fault("change_heads", "add", head(&long)), Some((ErrorCode::TooLarge, Some("add"), None)));
    // What is no head, and becomes many times its size when it is read.
    let maps: Vec<Value> = (0..6000).map(|_| json!({"": null})).collect();
    assert_eq!(fault("change_heads", "add", json!([{"name": maps}])), Some((ErrorCode::TooLarge, Some("add"), None)));
}

#[test]
fn what_is_no_map_of_strings_is_malformed() {
    let pair = |key: &[u8], value: &[u8]| (key.to_vec(), value.to_vec());
    let v = pair(b"\xa1v", &[1]);
    for bytes in [
        vec![],
        vec![0xc0],
        pack(&json!([1, 2])),
        [pack(&single()), vec![0xc0]].concat(),
        raw_map(&[v.clone(), v.clone()]),
        raw_map(&[v.clone(), pair(&[7], &[7])]),
        raw_map(&[v.clone(), pair(b"\xc4\x01x", &[7])]),
        raw_map(&[v.clone(), pair(&[0xa1, 0xff], &[7])]),
        raw_map(&[v.clone(), pair(b"\xa1x", &[vec![0x91; 40], vec![0]].concat())]),
        raw_map(&[v.clone(), pair(b"\xa1x", &[0xc1])]),
    ] {
        assert_eq!(ingest(&bytes).unwrap_err().code, ErrorCode::Malformed, "{bytes:x?}");
        assert_eq!(request(&bytes).unwrap_err().error.code, ErrorCode::Malformed, "{bytes:x?}");
        assert_eq!(wire::decode_snapshot(&bytes).unwrap_err().code, ErrorCode::Malformed, "{bytes:x?}");
    }
}

#[test]
fn every_truncation_is_malformed() {
    let model = wire::encode_snapshot(&snapshot(metrics()[2].clone(), 1), ArrayForm::Tensor, true);
    let numpy_batch =
        message_with(&batch(), &[("states", numpy("<f8", Some(&[2, 2]), &le(&[0.5, -1.0, 3.0, 4.0]), true))]);
    for message in [pack(&single()), pack(&batch()), numpy_batch] {
        for len in 0..message.len() {
            assert_eq!(ingest(&message[..len]).unwrap_err().code, ErrorCode::Malformed);
        }
    }
    // JSON objects here are in alphabetical order: "discounts" and "arrays" come before "id".
    let message = pack(&append());
    let id = pack(&json!("request 1"));
    let known_from = message.windows(id.len()).position(|w| w == id).unwrap() + id.len();
    for len in 0..message.len() {
        let refused = request(&message[..len]).unwrap_err();
        assert_eq!(refused.error.code, ErrorCode::Malformed);
        let expected = if len < known_from { Id::nil().as_bytes().to_vec() } else { id.clone() };
        assert_eq!(refused.id.as_bytes(), expected);
    }
    for len in 0..model.len() {
        assert_eq!(wire::decode_snapshot(&model[..len]).unwrap_err().code, ErrorCode::Malformed);
    }
}

// ---- replies and publications

#[test]
fn replies_read_as_the_contract_says() {
    let id = request(&pack(&value_request())).unwrap().id;
    let read = |form, reply: Reply<'_>| wire::to_json(&wire::encode_reply(&id, form, &reply)).unwrap();
    let list = ArrayForm::List;
    assert_eq!(
        read(list, Reply::Append { accepted: 2, duplicates: 1, next_seq: 10, offset: 99 }),
        json!({"v": 1, "id": 3, "ok": true, "accepted": 2, "duplicates": 1, "next_seq": 10, "offset": 99})
    );
    let model = snapshot(Metric::Isotropic(1.0), 1);
    let evaluation = model.evaluate(&[0.1, 0.2, 0.3, 0.4], Ask::VARIANCE).unwrap();
    for form in [ArrayForm::List, ArrayForm::Tensor] {
        let reply = read(form, Reply::Value { evaluation: &evaluation, snapshot: &model });
        assert_eq!(reply["mean"], json!([evaluation.mean[0], evaluation.mean[1]]));
        assert_eq!(reply["variance"], json!(evaluation.variance));
        assert_eq!((&reply["generation"], &reply["offset"]), (&json!(3), &json!(1_000_000)));
    }
    let two = snapshot(Metric::Isotropic(1.0), 2).evaluate(&[0.1, 0.2], Ask::MEAN).unwrap();
    let reply = read(list, Reply::Value { evaluation: &two, snapshot: &model });
    assert_eq!(reply["mean"], json!([[two.mean[0], two.mean[1]]]));
    assert_eq!(reply.get("variance"), None);
    assert_eq!(read(list, Reply::Checkpoint { offset: 5 })["offset"], 5);
    let critic = CriticStatus { name: "default".into(), learned: 3, ..CriticStatus::default() };
    let reply = read(list, Reply::Status(&Status { critics: vec![critic], ..Status::default() }));
    assert_eq!(
        (&reply["ok"], &reply["durable"], &reply["read_only"], &reply["critics"][0]["learned"]),
        (&json!(true), &json!(false), &Value::Null, &json!(3))
    );
    // A number that is not finite is nil.
    let odd = Status { rows_per_second: f64::NAN, ..Status::default() };
    assert_eq!(read(list, Reply::Status(&odd))["rows_per_second"], Value::Null);
    let position = wire::StreamPosition { session: "s".into(), next_seq: 4, rows: 5, last_seen: 6.0 };
    let (streams, none) = (BTreeMap::from([("robot".to_owned(), position)]), BTreeMap::new());
    let reply = read(list, Reply::Streams { streams: &streams, refused: &none, next: None });
    assert_eq!(reply["streams"]["robot"], json!({"session": "s", "next_seq": 4, "rows": 5, "last_seen": 6.0}));
    assert_eq!(reply.get("refused"), None);
    let rows = wire::RefusedRows {
        session: "s".into(),
        code: "fenced",
        message: "a newer session exists".into(),
        messages: 2,
    };
    let refused = BTreeMap::from([("robot".to_owned(), rows)]);
    let reply = read(list, Reply::Streams { streams: &BTreeMap::new(), refused: &refused, next: None });
    let expected = json!({"session": "s", "code": "fenced", "message": "a newer session exists", "messages": 2});
    assert_eq!((&reply["refused"]["robot"], &reply["streams"]), (&expected, &json!({})));
    let outcome = wire::RefitOutcome::Rejected { generation: 2, reason: "no better".into() };
    let reply = read(list, Reply::Refit(&outcome));
    assert_eq!((&reply["outcome"], &reply["reason"]), (&json!("rejected"), &json!("no better")));
    assert_eq!(read(list, Reply::Refit(&wire::RefitOutcome::Started))["outcome"], "started");
}

#[test]
fn errors_read_as_the_contract_says() {
    let read = |error: WireError| wire::to_json(&wire::encode_error(&Id::nil(), &error)).unwrap();
    let fault = ingest(&changed(&batch(), "discounts", json!([0.5, 2]))).unwrap_err();
    let message = fault.message.clone();
    assert_eq!(
        read(fault),
        json!({"v": 1, "id": null, "ok": false,
               "error": {"code": "out_of_range", "message": message, "field": "discounts", "index": 1}})
    );
    assert_eq!(read(WireError::sequence_gap(12))["error"]["expected_seq"], 12);
    assert_eq!(read(WireError::overloaded(50))["error"]["retry_after_ms"], 50);
    let names: HashSet<_> = ErrorCode::ALL.iter().map(|code| code.name()).collect();
    assert_eq!(names.len(), ErrorCode::ALL.len());
}

#[test]
fn snapshots_come_back_exactly() {
    for metric in metrics() {
        for columns in [1, 2] {
            for form in [ArrayForm::Tensor, ArrayForm::List] {
                let mut model = snapshot(metric.clone(), columns);
                // Some have names of rewards, some have none.
                let names = ["energy [J]", "comfort"].map(String::from);
                model.reward_names =
                    names.into_iter().take(if form == ArrayForm::List { columns } else { 0 }).collect();
                assert_eq!(wire::decode_snapshot(&wire::encode_snapshot(&model, form, true)).unwrap(), model);
                let reply =
                    wire::encode_reply(&Id::nil(), form, &Reply::Snapshot { snapshot: &model, variance: false });
                (model.variance, model.score, model.inputs.names) = (None, None, model.inputs.names);
                let without = wire::decode_snapshot(&reply).unwrap();
                model.score = without.score;
                assert_eq!(without, model);
            }
        }
    }
}

#[test]
fn a_model_before_its_first_row_comes_back() {
    let mut model = snapshot(Metric::Isotropic(1.0), 1);
    (model.dictionary, model.weights) = (DMatrix::zeros(0, 2), DMatrix::zeros(0, 1));
    (model.variance, model.score) = (Some(DMatrix::zeros(0, 0)), None);
    model.inputs.names = None;
    let returns = model.returns.take().unwrap();
    let back = wire::decode_snapshot(&wire::encode_snapshot(&model, ArrayForm::Tensor, false)).unwrap();
    model.variance = None;
    assert_eq!(back, model);
    for heads in [1, 2] {
        model.weights = DMatrix::zeros(0, heads);
        let (level, floor) = (vec![0.5; heads], vec![0.25; heads]);
        model.returns = Some(ReturnSpread { level, floor, weights: DMatrix::zeros(0, heads), ..returns.clone() });
        for form in [ArrayForm::Tensor, ArrayForm::List] {
            let back = wire::decode_snapshot(&wire::encode_snapshot(&model, form, false)).unwrap();
            assert_eq!(back, model, "{form:?}");
        }
    }
}

#[test]
fn a_mean_function_is_read_as_it_was_written() {
    let plain = snapshot(metrics()[1].clone(), 1);
    let linear = Mean::of(MeanForm::Linear(Linear { constant: 0.5, weights: vec![-2.0, 3.0] })).unwrap();
    let mut of_model = plain.clone();
    (of_model.level, of_model.inputs.names) = (vec![7.0], None);
    linear.add_to(&mut of_model);
    for mean in [linear, Mean::of_model("sim.model".into(), &of_model).unwrap()] {
        let mut model = plain.clone();
        mean.add_to(&mut model);
        let at = [0.3, -1.7, 5.0, 2.0];
        let added = model.evaluate(&at, Ask::MEAN).unwrap().mean - plain.evaluate(&at, Ask::MEAN).unwrap().mean;
        let expected = mean.values(&at, 2);
        assert!(added.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12), "{added} {expected:?}");
        for form in [ArrayForm::Tensor, ArrayForm::List] {
            assert_eq!(wire::decode_snapshot(&wire::encode_snapshot(&model, form, true)).unwrap(), model);
        }
        // Within a generation it stays.
        let after = Snapshot { revision: model.revision + 1, ..model.clone() };
        let bytes = wire::encode_weights(&after, 3, true);
        assert_eq!(wire::decode_weights(&bytes, &model).unwrap().expect("it follows"), after);
        let map = wire::to_json(&wire::encode_snapshot(&model, ArrayForm::List, true)).unwrap();
        for (path, value, name) in [
            ("/mean/discount", json!(1.5), "mean.discount"),
            ("/mean/weights", json!([1.0]), "mean.weights"),
            ("/mean/inputs", json!({"dim": 1, "shift": [0.0], "scale": [1.0]}), "mean.inputs"),
        ] {
            let mut wrong = map.clone();
            *wrong.pointer_mut(path).unwrap() = value;
            let refused = wire::decode_snapshot(&pack(&wrong)).unwrap_err();
            assert_eq!(refused.field, Some(name), "{refused:?}");
        }
    }
    // One behind the other, without end.
    let mut deep = wire::to_json(&wire::encode_snapshot(&of_model, ArrayForm::List, true)).unwrap();
    for _ in 0..MEANS_MAX {
        let mut next = deep.clone();
        next["mean"]["mean"] = deep["mean"].clone();
        deep = next;
    }
    assert!(wire::decode_snapshot(&pack(&deep)).unwrap_err().message.contains("means"));
}

#[test]
fn a_mixture_and_a_level_are_read_as_they_were_written() {
    for columns in [1, 2] {
        let plain = snapshot(metrics()[1].clone(), columns);
        let base = 2.0 * &plain.weights;
        let tracked = Some(Tracked { base, gate: vec![0.75; columns], half_life: vec![512.0; columns] });
        let level = vec![-2.5e7; columns];
        let model = Snapshot { tracked, level, ..plain.clone() };
        for form in [ArrayForm::Tensor, ArrayForm::List] {
            assert_eq!(wire::decode_snapshot(&wire::encode_snapshot(&model, form, true)).unwrap(), model);
        }
        // The next publication has one, or has none any more.
        for (before, after) in [(&plain, &model), (&model, &plain)] {
            let after = Snapshot { revision: before.revision + 1, ..after.clone() };
            let bytes = wire::encode_weights(&after, 3, true);
            assert_eq!(wire::decode_weights(&bytes, before).unwrap().expect("it follows"), after);
        }
        let map = wire::to_json(&wire::encode_snapshot(&model, ArrayForm::List, true)).unwrap();
        for (path, value, name, row) in [
            ("/tracked/gate", json!(vec![1.5; columns]), "tracked.gate", Some(0)),
            ("/tracked/half_life", json!(vec![-1.0; columns]), "tracked.half_life", Some(0)),
            ("/tracked/base", json!([1.0]), "tracked.base", None),
            ("/level", json!(vec![1.0; columns + 1]), "level", None),
        ] {
            let mut wrong = map.clone();
            *wrong.pointer_mut(path).unwrap() = value;
            let error = wire::decode_snapshot(&rmp_serde::to_vec(&wrong).unwrap()).unwrap_err();
            assert_eq!((error.field, error.index), (Some(name), row), "{error}");
        }
    }
    let asked = |fields: Value| {
        let bytes = wire::encode_request(1, "value", fields.as_object().unwrap());
        let Op::Value { ask, .. } = request(&bytes).unwrap().op else { panic!("another request") };
        ask.base
    };
    assert!(asked(json!({"states": [[0.5, 0.5]], "base": true})));
    assert!(!asked(json!({"states": [[0.5, 0.5]]})));
}

#[test]
fn faults_of_snapshots_are_named() {
    use ErrorCode::*;
    let model = Snapshot { reward_names: vec!["energy [J]".into()], ..snapshot(metrics()[1].clone(), 1) };
    let model = wire::encode_snapshot(&model, ArrayForm::List, true);
    let model = wire::to_json(&model).unwrap();
    let cases: Vec<(&str, Value, Fault)> = vec![
        ("/type", json!("weights"), (OutOfRange, Some("type"), None)),
        ("/generation", json!(-1), (OutOfRange, Some("generation"), None)),
        ("/critic", json!(1), (WrongType, Some("critic"), None)),
        ("/discount", json!(1.5), (OutOfRange, Some("discount"), None)),
        ("/kernel", json!(1), (WrongType, Some("kernel"), None)),
        ("/kernel/kind", json!("linear"), (OutOfRange, Some("kernel.kind"), None)),
        ("/kernel/signal_variance", json!(0), (OutOfRange, Some("kernel.signal_variance"), None)),
        ("/kernel/bias_variance", json!(-1), (OutOfRange, Some("kernel.bias_variance"), None)),
        ("/kernel/relevance", json!([1, -1]), (OutOfRange, Some("kernel.relevance"), Some(1))),
        ("/kernel/relevance", json!([1]), (WrongShape, Some("kernel.relevance"), None)),
        ("/noise/model", json!("pink"), (OutOfRange, Some("noise.model"), None)),
        ("/noise/variance", json!("x"), (WrongType, Some("noise.variance"), None)),
        ("/inputs/scale", json!([1, 0]), (OutOfRange, Some("inputs.scale"), Some(1))),
        ("/inputs/scale", json!([1]), (WrongShape, Some("inputs.scale"), None)),
        ("/inputs/dim", json!(3), (WrongShape, Some("inputs.dim"), None)),
        ("/inputs/names", json!(["a", 1]), (WrongType, Some("inputs.names"), Some(1))),
        ("/reward_names", json!(["a", "b"]), (WrongShape, Some("reward_names"), None)),
        ("/reward_names", json!([1]), (WrongType, Some("reward_names"), Some(0))),
        ("/dictionary", json!([[1, 2, 3]]), (WrongShape, Some("dictionary"), None)),
        ("/weights", json!([1, 2]), (WrongShape, Some("weights"), None)),
        ("/variance", json!([[1, 2, 3]]), (WrongShape, Some("variance"), None)),
        ("/score", json!("good"), (WrongType, Some("score"), None)),
        ("/lambda", json!(1.5), (OutOfRange, Some("lambda"), None)),
        ("/provisional", json!(1), (WrongType, Some("provisional"), None)),
        ("/returns", json!(1), (WrongType, Some("returns"), None)),
        ("/returns/level", json!([1, 2]), (WrongShape, Some("returns.level"), None)),
        ("/returns/floor", json!([0]), (OutOfRange, Some("returns.floor"), Some(0))),
        ("/returns/floor", json!([]), (WrongShape, Some("returns.floor"), None)),
        ("/returns/weights", json!([[1, 2], [3, 4], [5, 6]]), (WrongShape, Some("returns.weights"), None)),
        ("/returns/weights", json!([1]), (WrongShape, Some("returns.weights"), None)),
        ("/returns/factor", json!(0), (OutOfRange, Some("returns.factor"), None)),
        ("/returns/pairs", json!(-1), (OutOfRange, Some("returns.pairs"), None)),
        ("/returns/coverage", json!(1.5), (OutOfRange, Some("returns.coverage"), None)),
    ];
    for (path, value, expected) in cases {
        let mut changed = model.clone();
        *changed.pointer_mut(path).unwrap() = value.clone();
        assert_eq!(fault_of(wire::decode_snapshot(&pack(&changed)).unwrap_err()), expected, "{path}: {value}");
    }
    for (path, key, field) in [
        ("", "weights", "weights"),
        ("/kernel", "relevance", "kernel.relevance"),
        ("/returns", "factor", "returns.factor"),
    ] {
        let mut changed = model.clone();
        changed.pointer_mut(path).unwrap().as_object_mut().unwrap().remove(key);
        let fault = fault_of(wire::decode_snapshot(&pack(&changed)).unwrap_err());
        assert_eq!(fault, (MissingField, Some(field), None));
    }
}

#[test]
fn publications_read_as_the_contract_says() {
    let model = snapshot(metrics()[2].clone(), 1);
    let weights = wire::to_json(&wire::encode_weights(&model, 2, true)).unwrap();
    let whole = wire::to_json(&wire::encode_snapshot(&model, ArrayForm::Tensor, true)).unwrap();
    assert_eq!((&weights["type"], &weights["dictionary_start"]), (&json!("weights"), &json!(2)));
    assert_eq!(weights["dictionary"], json!([whole["dictionary"][2]]));
    for key in ["v", "critic", "generation", "revision", "offset", "weights", "variance", "noise", "kernel", "score"] {
        assert_eq!(weights[key], whole[key], "{key}");
    }
    assert_eq!(weights.get("inputs"), None);
    let announced = wire::to_json(&wire::encode_announcement(&model, 12345)).unwrap();
    assert_eq!(
        announced,
        json!({"v": 1, "type": "announcement", "critic": "default", "generation": 3, "revision": 17,
               "offset": 1_000_000, "bytes": 12345})
    );
    assert_eq!(wire::to_json(&wire::encode_status(&Status::default())).unwrap()["type"], "status");
}

#[test]
fn events_have_the_keys_of_their_kind_in_order_and_come_back() {
    let fall =
        ForetoldFall { critic: "a".into(), stream: "s".into(), offset: 9, since: 4, below: -1.0, ..Default::default() };
    let refused = RejectedStream { code: "fenced".into(), messages: 2, rows: 3, seq: Some(7), ..Default::default() };
    let refused = RejectedMessages { messages: 2, code: "fenced".into(), streams: vec![refused], ..Default::default() };
    let moved = MovedVariable { name: "x".into(), size: 0.5, ..Default::default() };
    let drift = DriftAlarm { critic: "a".into(), size: f64::NAN, variables: vec![moved], ..Default::default() };
    let selected = RefitFound { trigger: "rows".into(), rows: 800, ..Default::default() };
    let refit = LastRefit { critic: "a".into(), generation: 3, found: Some(selected), ..Default::default() };
    let (critic, offset) = (|| "a".to_owned(), 9);
    let cases = [
        (Event::Rejected(refused), "by_code code field index message messages streams"),
        (Event::Drift(drift), "critic level offset reward since size statistic streams variables"),
        (Event::Alarm(fall.clone()), "below critic head offset since stream value"),
        (Event::AlarmEnded(fall), "below critic head offset since stream value"),
        (Event::Forked { critic: critic(), offset, from: 3 }, "critic from offset"),
        (
            Event::Returned { critic: critic(), offset, model: "m".into(), until: 5, kept: None, generation: 4 },
            "critic generation kept model offset until",
        ),
        (Event::Removed { rows: 12, by: None, reason: Some("test".into()) }, "by reason rows"),
    ];
    for (event, keys) in cases {
        let of_critic = keys.contains("critic");
        assert_eq!(event.critic().is_some(), of_critic);
        let (topic, sent) = wire::encode_event(&DatedEvent { time: 2.5, event: event.clone() });
        let read = wire::to_json(&sent).unwrap();
        assert_eq!((&read["v"], &read["type"], &read["time"]), (&json!(1), &json!("event"), &json!(2.5)));
        assert_eq!(topic, format!("event.{}", read["event"].as_str().unwrap()));
        // As bytes the keys of the envelope come first, and the others follow in the order of the alphabet.
        let places: Vec<usize> = ["v", "type", "event", "time"]
            .into_iter()
            .chain(keys.split(' '))
            .map(|key| {
                let (head, name) = (0xa0 | key.len() as u8, key.as_bytes());
                let bytes: Vec<u8> = std::iter::once(head).chain(name.iter().copied()).collect();
                sent.windows(bytes.len()).position(|found| found == bytes).unwrap_or_else(|| panic!("{key} of {topic}"))
            })
            .collect();
        assert!(places.is_sorted() && read.as_object().unwrap().len() == places.len(), "{topic}: {places:?}");
        // A size that is not finite travels as nil, which is no number.
        assert_eq!(DatedEvent::from_json(&read).is_ok(), topic != "event.drift");
    }
    let adopted = DatedEvent { time: 2.5, event: Event::Adopted(Box::new(refit)) };
    let (_, sent) = wire::encode_event(&adopted);
    assert_eq!(DatedEvent::from_json(&wire::to_json(&sent).unwrap()), Ok(adopted));
    assert!(DatedEvent::from_json(&json!({"event": "of_tomorrow", "time": 1.0})).is_err());
}

// ---- golden messages, written by Python

fn vector(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto/vectors").join(name);
    std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

#[test]
fn golden_transitions_are_understood() {
    let batch = ingest(&vector("transition.msgpack")).unwrap();
    assert_eq!((batch.state(0), batch.next_state(0), batch.reward(0)), (&[0.1, -2.0][..], &[0.3, 4.0][..], &[1.0][..]));
    let batch = ingest(&vector("transition_numpy_scalars.msgpack")).unwrap();
    assert_eq!((batch.reward(0), batch.seq(), batch.terminated(0)), (&[1.0][..], Some(3), false));
    let piece = ingest(&vector("piece.msgpack")).unwrap();
    assert_eq!((piece.len(), piece.next_state(1)), (2, &[-0.5, 1e9][..]));
    assert_eq!(ingest(&vector("batch.msgpack")).unwrap(), ingest(&vector("batch_numpy.msgpack")).unwrap());
}

#[test]
fn golden_messages_encode_to_the_same_bytes() {
    let bytes = vector("batch_numpy.msgpack");
    let batch = ingest(&bytes).unwrap();
    assert_eq!(wire::encode_ingest(&batch), bytes);
    let bytes = vector("batch_policies.msgpack");
    assert_eq!(wire::encode_ingest(&ingest(&bytes).unwrap()), bytes);
    let bytes = vector("append.msgpack");
    assert_eq!(request(&bytes).unwrap().op, Op::Append(batch.clone()));
    assert_eq!(wire::encode_append(9, &batch), bytes);
}

#[test]
fn a_message_names_the_policy_of_its_rows() {
    let named = ingest(&vector("batch_policy.msgpack")).unwrap();
    assert_eq!(named.policy(), Some("stiff"));
    assert_eq!(ingest(&vector("transition_policy.msgpack")).unwrap().policy(), Some("p\u{e9}dale 2"));
    // What is written reads the same, into memory that held another name as well.
    let written = wire::encode_ingest(&named);
    let spare = ingest(&vector("transition_policy.msgpack")).unwrap().into_parts();
    assert_eq!(wire::decode_ingest_into(&written, &Limits::default(), spare).unwrap(), ingest(&written).unwrap());
    let unnamed = ingest(&vector("batch_policies.msgpack")).unwrap();
    let again = wire::decode_ingest_into(&wire::encode_ingest(&unnamed), &Limits::default(), named.into_parts());
    assert_eq!(again.unwrap().policy(), None);
}

#[test]
fn golden_requests_are_understood() {
    let asked = request(&vector("value.msgpack")).unwrap();
    assert_eq!(asked.id.as_bytes(), b"\xa1q");
    assert!(
        matches!(asked.op, Op::Value { rows: 3, dim: 2, ask: Ask::VARIANCE, min_offset: Some(12), .. }),
        "{asked:?}"
    );
    let asked = request(&vector("value_known.msgpack")).unwrap();
    let ask = Ask { variance: false, returns: true, known: true, base: false };
    assert!(matches!(asked.op, Op::Value { rows: 2, ask: found, .. } if found == ask), "{asked:?}");
    let asked = request(&vector("value_critics.msgpack")).unwrap();
    let each = Answering::Each(vec!["far".into(), "near".into()]);
    assert!(matches!(&asked.op, Op::Value { rows: 2, critics, .. } if *critics == each), "{asked:?}");
    let asked = request(&vector("snapshot_request.msgpack")).unwrap();
    assert_eq!(
        (asked.id, asked.op),
        (
            Id::nil(),
            Op::Snapshot {
                critic: Some("default".into()),
                variance: true,
                page: None,
                revision: None,
                head: None,
                as_of: None
            }
        )
    );
    let asked = request(&vector("value_as_of.msgpack")).unwrap();
    assert!(matches!(asked.op, Op::Value { rows: 3, as_of: Some(Moment::Time(1.75e9)), .. }), "{asked:?}");
    let asked = request(&vector("snapshot_as_of.msgpack")).unwrap();
    assert!(matches!(asked.op, Op::Snapshot { as_of: Some(Moment::Offset(120_000)), .. }), "{asked:?}");
}

#[test]
fn golden_snapshots_give_the_expected_values() {
    let kinds = ["isotropic", "ard", "factor"];
    let rewards = ["rewards_isotropic", "rewards_ard", "rewards_factor"];
    let returns = ["returns", "returns_means_only", "returns_rewards", "returns_provisional"];
    let others =
        ["matern52_isotropic", "matern52_factor", "kinds_ard", "matern52_kinds_factor", "bent_factor", "columns"];
    let plain = kinds.into_iter().chain(rewards).chain(["means_only", "no_bias_factor"]);
    for name in plain.chain(returns).chain(others) {
        let bytes = vector(&format!("snapshot_{name}.msgpack"));
        let model = wire::decode_snapshot(&bytes).unwrap();
        let written = wire::encode_snapshot(&model, ArrayForm::Tensor, true);
        if name.contains("factor") {
            // The daemon adds what is for people alone: taken away, nothing else may differ.
            let mut written = wire::to_json(&written).unwrap();
            let kernel = written["kernel"].as_object_mut().unwrap();
            assert!(kernel.remove("directions").is_some() && kernel.remove("strengths").is_some(), "{name}");
            assert_eq!(written, wire::to_json(&bytes).unwrap(), "{name}");
        } else {
            assert!(written == bytes, "{name}");
        }
        let expected: Value = serde_json::from_slice(&vector(&format!("snapshot_{name}.json"))).unwrap();
        // Row by row, for one reward as for several.
        let numbers = |value: &Value| -> Vec<f64> {
            let row = |value: &Value| value.as_array().map_or(vec![value.clone()], Clone::clone);
            value.as_array().unwrap().iter().flat_map(row).map(|v| v.as_f64().unwrap()).collect()
        };
        let found = model.evaluate(&numbers(&expected["states"]), Ask::ALL).unwrap();
        let rows = |values: DMatrix<f64>| -> Vec<f64> { values.transpose().iter().copied().collect() };
        for (key, found) in [
            ("mean", Some(rows(found.mean))),
            ("variance", found.variance),
            ("return_variance", found.return_variance.map(rows)),
            ("known", found.known.filter(|_| model.returns.is_some())),
        ] {
            assert_eq!(found.is_some(), expected.get(key).is_some(), "{name}: {key}");
            let (found, expected) = (found.unwrap_or_default(), expected.get(key).map(numbers).unwrap_or_default());
            assert_eq!(found.len(), expected.len(), "{name}: {key}");
            for (found, expected) in found.into_iter().zip(expected) {
                assert!((found - expected).abs() < 1e-12, "{name}: {key}: {found} {expected}");
            }
        }
        if let Some(expected) = expected.get("extrapolates") {
            assert_eq!(&json!(found.extrapolates), expected, "{name}");
        }
        assert_eq!(model.provisional, name == "returns_provisional");
        assert_eq!(model.lambda, if model.returns.is_some() { 0.8 } else { 1.0 });
    }
}

/// Name, bytes and reading (`NAME.reading.json`) of all vectors of one socket.
fn readings(socket: &str) -> Vec<(String, Vec<u8>, Value)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../proto/vectors");
    let mut found: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .filter_map(|entry| Some(entry.unwrap().file_name().to_str()?.strip_suffix(".reading.json")?.to_owned()))
        .map(|name| {
            let reading: Value = serde_json::from_slice(&vector(&format!("{name}.reading.json"))).unwrap();
            (name.clone(), vector(&format!("{name}.msgpack")), reading)
        })
        .filter(|(_, _, reading)| reading["socket"] == socket)
        .collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    assert!(found.len() > 4, "{socket}: {} vectors", found.len());
    found
}

/// Whether a message says what its reading says. Integers may be floats, flags in arrays are shown as numbers, and JSON
/// has no binary data and nothing that is not finite.
fn reads(found: &Value, expected: &Value) -> bool {
    match (found, expected) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Number(a), Value::Bool(b)) => a.as_f64() == Some(f64::from(*b)),
        (Value::Array(a), Value::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| reads(a, b)),
        (Value::Null, Value::Object(b)) => b.len() == 1 && b.contains_key("hex"),
        (Value::Null, Value::String(text)) => ["nan", "inf", "-inf"].contains(&text.as_str()),
        (Value::Object(a), Value::Object(b)) => {
            a.len() == b.len() && a.iter().all(|(key, value)| b.get(key).is_some_and(|other| reads(value, other)))
        }
        _ => found == expected,
    }
}

#[test]
fn golden_messages_read_as_they_say_and_bad_ones_are_refused_as_they_say() {
    for socket in ["ingest", "control", "reply", "publication"] {
        for (name, bytes, expected) in readings(socket) {
            let fault = match socket {
                "ingest" => ingest(&bytes).err(),
                "control" => request(&bytes).err().map(|refused| refused.error),
                "reply" => wire::decode_reply(&bytes).err(),
                _ => None,
            };
            match fault {
                None => {
                    assert_eq!(expected["error"], Value::Null, "{name}");
                    let found = wire::to_json(&bytes).unwrap();
                    assert!(reads(&found, &expected["reading"]), "{name}: {found}");
                }
                Some(fault) => {
                    let found = wire::to_json(&wire::encode_error(&Id::nil(), &fault)).unwrap();
                    for key in ["code", "field", "index"] {
                        assert_eq!(found["error"].get(key), expected["error"].get(key), "{name}: {fault}");
                    }
                }
            }
        }
    }
}

#[test]
fn replies_encode_to_the_golden_bytes() {
    let id = request(&message_with(&json!({"v": 1, "op": "ping"}), &[("id", vec![9])])).unwrap().id;
    let same = |name: &str, form, reply: Reply<'_>| {
        assert!(wire::encode_reply(&id, form, &reply) == vector(&format!("reply_{name}.msgpack")), "{name}");
    };
    let (tensor, list) = (ArrayForm::Tensor, ArrayForm::List);
    same("append", tensor, Reply::Append { accepted: 2, duplicates: 1, next_seq: 43, offset: 1043 });
    let one = Evaluation {
        mean: DMatrix::from_column_slice(2, 1, &[1.5, -2.0]),
        variance: Some(vec![0.25, 0.5]),
        ..Evaluation::default()
    };
    let two = Evaluation { mean: DMatrix::from_row_slice(2, 2, &[1.5, -2.0, 0.5, 4.0]), ..Evaluation::default() };
    let model = Snapshot { offset: 1043, lambda: 1.0, provisional: false, ..snapshot(Metric::Isotropic(1.0), 1) };
    same("value", tensor, Reply::Value { evaluation: &one, snapshot: &model });
    same("value_list", list, Reply::Value { evaluation: &one, snapshot: &model });
    same("value_rewards", tensor, Reply::Value { evaluation: &two, snapshot: &model });
    let known = Evaluation {
        return_variance: Some(DMatrix::from_column_slice(2, 1, &[1.25, 0.75])),
        known: Some(vec![0.875, 0.0]),
        extrapolates: Some(vec![false, true]),
        ..one
    };
    let learning = Snapshot { lambda: 0.75, provisional: true, ..model.clone() };
    same("value_known", tensor, Reply::Value { evaluation: &known, snapshot: &learning });
    same("value_known_list", list, Reply::Value { evaluation: &known, snapshot: &learning });
    let returns = Evaluation { return_variance: Some(DMatrix::from_row_slice(2, 2, &[1.25, 0.75, 3.0, 2.5])), ..two };
    same("value_returns", tensor, Reply::Value { evaluation: &returns, snapshot: &model });
    let data: Vec<u8> = (0..8).collect();
    same("page", tensor, Reply::Page { page: 1, pages: 3, revision: 31, bytes: 1_100_000, data: &data });
    let position = |session: &str, next_seq, rows, last_seen| wire::StreamPosition {
        session: session.into(),
        next_seq,
        rows,
        last_seen,
    };
    let streams = BTreeMap::from([
        ("arm".to_owned(), position("", 7, 7, 1.7e9)),
        ("robot".to_owned(), position("7f", 43, 1036, 1.7e9 + 0.5)),
    ]);
    same("streams", tensor, Reply::Streams { streams: &streams, refused: &BTreeMap::new(), next: None });
    same("optimise_started", tensor, Reply::Refit(&wire::RefitOutcome::Started));
    same("optimise_adopted", tensor, Reply::Refit(&wire::RefitOutcome::Adopted { generation: 4 }));
    let rejected = wire::RefitOutcome::Rejected { generation: 3, reason: "it predicts no better".into() };
    same("optimise_rejected", tensor, Reply::Refit(&rejected));
    same("checkpoint", tensor, Reply::Checkpoint { offset: 1043 });
    same("new_policy", tensor, Reply::NewPolicy { offset: 1043 });
    same("ping", tensor, Reply::Ping { version: "0.1.0", uptime_s: 2.5 });
    let greeting = wire::Greeting {
        version: "0.1.0",
        features: &["hello", "pages"],
        limits: Limits::default(),
        critics: vec!["default", "far"],
        state_dim: Some(2),
        rewards: None,
        state_names: Vec::new(),
        reward_names: Vec::new(),
        action_names: Vec::new(),
    };
    same("hello", tensor, Reply::Hello(&greeting));
    let named = wire::Greeting { action_names: vec!["left".into(), "right".into()], ..greeting.clone() };
    let told = wire::to_json(&wire::encode_reply(&id, list, &Reply::Hello(&named))).unwrap();
    assert_eq!(told["action_names"], json!(["left", "right"]));
    same("hello_rewards", tensor, Reply::Hello(&wire::Greeting { rewards: Some(3), ..greeting }));
    let error = |name: &str, id: &Id, error: &WireError| {
        assert!(wire::encode_error(id, error) == vector(&format!("reply_error_{name}.msgpack")), "{name}");
    };
    error("malformed", &Id::nil(), &WireError::new(ErrorCode::Malformed, "the map ends too early"));
    let discount = "a discount lies in [0, 1], this one is 2";
    error("out_of_range", &id, &WireError::of(ErrorCode::OutOfRange, "discounts", discount).at(1));
    error("sequence_gap", &id, &WireError::sequence_gap(12));
    error("overloaded", &id, &WireError::overloaded(50));
}

#[test]
fn columns_come_back_exactly() {
    let bent = StateKind::Bent(Bend { centre: -0.1, scale: 1.0 / 3.0, width: 0.7 });
    let kinds = [StateKind::Periodic(2.5), StateKind::Category];
    for (kinds, columns) in [(vec![], 4), (kinds.to_vec(), 3), (vec![bent, kinds[1]], 2), (vec![], 1)] {
        let metric = Metric::Ard(vec![0.5, 0.25]);
        let features = columns + 3;
        let numbers = |cols: usize| DMatrix::from_fn(features, cols, |i, j| 0.1 + i as f64 / 3.0 - j as f64 * 0.7);
        let plain = snapshot(metric, 2);
        let kernel = plain.hyperparameters.kernel.clone().with_kinds(&kinds);
        let mut kernel = Kernel { bias_variance: 3.0, ..kernel }.with_linear_columns(2, 1.5, GivenFunction::Bounded);
        kernel.columns.truncate(columns);
        let columns = kernel.columns();
        let features = columns + 3;
        let model = Snapshot {
            hyperparameters: Hyperparameters { kernel, ..plain.hyperparameters.clone() },
            weights: numbers(2).rows(0, features).into_owned(),
            variance: Some(numbers(features).rows(0, features).into_owned()),
            returns: plain
                .returns
                .clone()
                .map(|spread| ReturnSpread { weights: numbers(2).rows(0, features).into_owned(), ..spread }),
            ..plain
        };
        for form in [ArrayForm::Tensor, ArrayForm::List] {
            assert_eq!(wire::decode_snapshot(&wire::encode_snapshot(&model, form, true)).unwrap(), model);
        }
        let after = Snapshot { revision: model.revision + 1, ..model.clone() };
        let changed = wire::decode_weights(&wire::encode_weights(&after, 2, true), &model).unwrap();
        assert_eq!(changed.unwrap(), after);
        let text = wire::hyperparameters_to_json(&model.hyperparameters, Some(&model.inputs)).to_string();
        let file = wire::hyperparameters_from_str(&text).unwrap();
        assert_eq!((file.hyperparameters, file.centred), (model.hyperparameters.clone(), false));
        for (level, centred) in [("[]", false), ("[3.0]", true)] {
            let text = text.replacen('{', &format!("{{\"level\": {level}, "), 1);
            assert_eq!(wire::hyperparameters_from_str(&text).unwrap().centred, centred);
        }
    }
}

#[test]
fn publications_encode_to_the_golden_bytes() {
    let before = Snapshot { revision: 31, ..wire::decode_snapshot(&vector("snapshot_ard.msgpack")).unwrap() };
    for (name, variance) in [("weights", false), ("weights_variance", true), ("weights_returns", false)] {
        let bytes = vector(&format!("{name}.msgpack"));
        let after = wire::decode_weights(&bytes, &before).unwrap().expect("it follows");
        assert!(wire::encode_weights(&after, 2, variance) == bytes, "{name}");
        assert_eq!(after.dictionary.nrows(), 4);
        assert_eq!(
            (after.returns.is_some(), after.provisional),
            (name == "weights_returns", name == "weights_returns")
        );
    }
    let after = Snapshot { generation: 2, revision: 32, offset: 5100, ..before };
    assert_eq!(wire::encode_announcement(&after, 5_000_000), vector("announcement.msgpack"));
    let adopted = LastRefit { critic: "default".into(), generation: 3, ..LastRefit::default() };
    let adopted = DatedEvent { time: 1.7e9, event: Event::Adopted(Box::new(adopted)) };
    assert_eq!(DatedEvent::from_json(&wire::to_json(&vector("event.msgpack")).unwrap()), Ok(adopted));
    // These have a few of the keys, as daemons before and after this one may.
    for name in ["status.msgpack", "reply_status.msgpack"] {
        let status = Status::from_json(&wire::to_json(&vector(name)).unwrap()).unwrap();
        assert_eq!((status.durable, status.offset), (false, 1043), "{name}");
    }
}

// ---- hyperparameter files

#[test]
fn hyperparameter_files_in_both_languages() {
    let json = r#"{"kernel": {"kind": "factor", "signal_variance": 2, "bias_variance": 0.5, "relevance": [1, 0],
                    "factors": [[0.5, -1]]}, "noise": {"model": "white", "variance": 0.1}, "log_evidence": -3}"#;
    let toml = r#"
        [kernel]
        kind = "factor"
        signal_variance = 2
        bias_variance = 0.5
        relevance = [1, 0.0]
        factors = [[0.5, -1]]
        [noise]
        model = "white"
        variance = 0.1
    "#;
    let file = wire::hyperparameters_from_str(json).unwrap();
    assert_eq!(wire::hyperparameters_from_str(toml).unwrap(), file);
    let metric = Metric::Factor { relevance: vec![1.0, 0.0], factors: vec![vec![0.5, -1.0]] };
    assert_eq!((&file.hyperparameters.kernel.metric, &file.inputs), (&metric, &None));
    assert_eq!((file.hyperparameters.noise, file.hyperparameters.noise_variance), (NoiseModel::White, 0.1));
}

#[test]
fn hyperparameter_files_come_back_exactly() {
    for metric in metrics() {
        let Snapshot { mut hyperparameters, inputs, .. } = snapshot(metric.clone(), 1);
        if metric.kind() != "isotropic" {
            let kinds = [StateKind::Periodic(0.1 + 0.2), StateKind::Category];
            hyperparameters.kernel = hyperparameters.kernel.with_profile(Profile::Matern52).with_kinds(&kinds);
        }
        for inputs in [None, Some(inputs)] {
            let text = wire::hyperparameters_to_json(&hyperparameters, inputs.as_ref()).to_string();
            let file = wire::hyperparameters_from_str(&text).unwrap();
            assert_eq!((&file.hyperparameters, &file.inputs), (&hyperparameters, &inputs));
        }
    }
}

#[test]
fn faults_of_hyperparameter_files_are_named() {
    let base = json!({"kernel": {"kind": "isotropic", "signal_variance": 1, "bias_variance": 0, "relevance": 0.5,
                                 "profile": "gaussian", "kinds": []},
                      "noise": {"model": "correlated", "variance": 0.1}});
    assert!(wire::hyperparameters_from_str(&base.to_string()).is_ok());
    for (path, value, code, field) in [
        ("/kernel/relevance", json!([0.5, 0.25]), "out_of_range", "kernel.relevance"),
        ("/kernel/relevance", json!(-1), "out_of_range", "kernel.relevance"),
        ("/kernel/relevance", json!([]), "wrong_shape", "kernel.relevance"),
        ("/kernel/kind", json!("ard"), "wrong_shape", "kernel.relevance"),
        ("/kernel", json!({}), "missing_field", "kernel.signal_variance"),
        ("/kernel/profile", json!("matern32"), "out_of_range", "kernel.profile"),
        ("/kernel/profile", json!(52), "wrong_type", "kernel.profile"),
        ("/kernel/kinds", json!(["real", "angle"]), "out_of_range", "kernel.kinds"),
        ("/kernel/kinds", json!(["periodic:0", "real"]), "out_of_range", "kernel.kinds"),
        ("/kernel/kinds", json!(["asinh:0:0:1", "real"]), "out_of_range", "kernel.kinds"),
        ("/kernel/kinds", json!("real"), "wrong_type", "kernel.kinds"),
        ("/kernel/columns", json!(["constant"]), "wrong_shape", "kernel.column_variances"),
        ("/kernel/columns", json!(["square:0"]), "wrong_shape", "kernel.column_variances"),
        ("/noise/variance", json!(0), "out_of_range", "noise.variance"),
        ("/noise", json!("white"), "wrong_type", "noise"),
    ] {
        let mut changed = base.clone();
        let (of, key) = path[1..].split_once('/').unwrap_or(("", &path[1..]));
        let parent = if of.is_empty() { &mut changed } else { &mut changed[of] };
        parent[key] = value.clone();
        let error = wire::hyperparameters_from_str(&changed.to_string()).unwrap_err();
        assert_eq!((error.code.name(), error.field), (code, Some(field)), "{path}: {value}");
    }
    let mut ard = base.clone();
    ard["kernel"] = json!({"kind": "ard", "signal_variance": 1, "bias_variance": 0, "relevance": [0.5, 1],
                           "kinds": ["real"]});
    let error = wire::hyperparameters_from_str(&ard.to_string()).unwrap_err();
    assert_eq!((error.code.name(), error.field), ("wrong_shape", Some("kernel.kinds")));
    for text in ["{", "kernel = ", "", "{}"] {
        let error = wire::hyperparameters_from_str(text).unwrap_err();
        assert!(["malformed", "missing_field"].contains(&error.code.name()), "{text:?}: {error}");
    }
}

// ---- any bytes at all

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,4}", inner, 0..4).prop_map(|m| Value::Object(m.into_iter().collect())),
        ]
    })
}

fn survive(bytes: &[u8]) {
    let _ = ingest(bytes);
    let _ = wire::decode_snapshot(bytes);
    let _ = wire::to_json(bytes);
    if let Err(refused) = request(bytes) {
        // Whatever came, there is a reply to send.
        wire::to_json(&wire::encode_error(&Id::nil(), &refused.error)).unwrap();
    }
    let _ = wire::hyperparameters_from_str(&String::from_utf8_lossy(bytes));
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(0), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_do_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        survive(&bytes);
    }

    #[test]
    fn damaged_messages_do_no_harm(
        which in 0usize..5, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4)
    ) {
        let numpy_states = numpy("<f8", Some(&[2, 2]), &le(&[0.5, -1.0, 3.0, 4.0]), true);
        let mut bytes = match which {
            0 => pack(&append()),
            1 => pack(&value_request()),
            2 => pack(&single()),
            3 => message_with(&append(), &[("states", numpy_states)]),
            _ => wire::encode_snapshot(&snapshot(metrics()[2].clone(), 2), ArrayForm::Tensor, true),
        };
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        survive(&bytes);
    }

    #[test]
    fn any_value_in_any_field_does_no_harm(key in prop::sample::select(vec![
        "v", "id", "op", "stream", "seq", "states", "rewards", "next_states", "terminated", "actions", "discounts",
        "behavior_probs", "target_probs", "next_actions", "next_action_probs",
    ]), value in any_json()) {
        survive(&message_with(&append(), &[(key, pack(&value))]));
    }

    #[test]
    fn unknown_keys_change_nothing(key in "x[a-z]{0,8}", value in any_json()) {
        let message = message_with(&append(), &[(&key, pack(&value))]);
        prop_assert_eq!(request(&message).unwrap(), request(&pack(&append())).unwrap());
    }

    #[test]
    fn both_forms_hold_every_finite_number(
        values in prop::collection::vec(prop::num::f64::NORMAL | prop::num::f64::ZERO | prop::num::f64::SUBNORMAL, 6)
    ) {
        let mut model = snapshot(Metric::Isotropic(1.0), 2);
        model.weights = DMatrix::from_row_slice(3, 2, &values);
        for form in [ArrayForm::Tensor, ArrayForm::List] {
            let back = wire::decode_snapshot(&wire::encode_snapshot(&model, form, true)).unwrap();
            let bits = |m: &DMatrix<f64>| m.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            prop_assert_eq!(bits(&back.weights), bits(&model.weights));
        }
    }
}

#[test]
fn a_factor_snapshot_tells_its_directions() {
    let metric = Metric::Factor { relevance: vec![0.5, 0.5], factors: vec![vec![3.0, -4.0]] };
    let snapshot = snapshot(metric, 1);
    let encoded = wire::encode_snapshot(&snapshot, ArrayForm::List, false);
    let kernel = rmp_serde::from_slice::<Value>(&encoded).unwrap()["kernel"].clone();
    let number = |value: &Value| value.as_f64().unwrap();
    for (k, (strength, vector)) in [(25.5, [-0.6, 0.8]), (0.5, [0.8, 0.6])].into_iter().enumerate() {
        assert!((number(&kernel["strengths"][k]) - strength).abs() < 1e-12);
        assert!((0..2).all(|d| (number(&kernel["directions"][k][d]) - vector[d]).abs() < 1e-12), "{kernel}");
    }
    assert_eq!(wire::decode_snapshot(&wire::encode_snapshot(&snapshot, ArrayForm::Tensor, true)).unwrap(), snapshot);
}

/// `snapshot` with two heads, of the second of which returns are known.
fn with_two_heads() -> Snapshot {
    let head = |name: &str| Head::new(name.to_owned(), Cumulant::Reward(0), Rate::Discount(0.5));
    let known = Verified { factor: 1.25, pairs: 64, coverage: Some(0.75) };
    let heads = HeadsSnapshot {
        heads: vec![head("near"), Head { level: -3.5, ..head("far") }].into(),
        weights: DMatrix::from_element(3, 2, 0.5),
        signals: vec![1.0, 2.0],
        ratios: vec![0.5, 0.25],
        weightings: vec![0, 0],
        bases: Vec::new(),
        verified: vec![Verified::default(), known],
    };
    Snapshot { heads: Some(heads), ..snapshot(Metric::Isotropic(1.0), 1) }
}

#[test]
fn files_of_heads_say_how_far_these_are_verified() {
    let model = with_two_heads();
    for form in [ArrayForm::Tensor, ArrayForm::List] {
        let read = wire::decode_snapshot(&wire::encode_snapshot(&model, form, true)).unwrap();
        assert_eq!(read, model);
        assert_eq!(read.heads.unwrap().levels(), [0.0, -3.5]);
    }
    let written: Value = rmp_serde::from_slice(&wire::encode_snapshot(&model, ArrayForm::List, true)).unwrap();
    assert_eq!(written["heads"]["pairs"], json!([0, 64]));
    assert_eq!(written["heads"]["level"], json!([0.0, -3.5]));
    for (field, value, code, index) in [
        ("heads.pairs", json!([0, -1]), ErrorCode::OutOfRange, Some(1)),
        ("heads.pairs", json!([0.5, 0]), ErrorCode::OutOfRange, Some(0)),
        ("heads.coverage", json!([0.0, 1.5]), ErrorCode::OutOfRange, Some(1)),
        ("heads.coverage", json!([0.0]), ErrorCode::WrongShape, None),
        ("heads.level", json!([0.0]), ErrorCode::WrongShape, None),
    ] {
        let mut changed = written.clone();
        // A list in JSON has no NaN.
        changed["heads"]["coverage"] = json!([0.5, 0.75]);
        changed["heads"][field.trim_start_matches("heads.")] = value;
        let fault = wire::decode_snapshot(&pack(&changed)).unwrap_err();
        assert_eq!((fault.code, fault.field, fault.index), (code, Some(field), index), "{field}");
    }
    // Earlier files do not say.
    let mut before = written;
    let of_heads = before["heads"].as_object_mut().unwrap();
    ["factors", "pairs", "coverage", "level"].iter().for_each(|key| assert!(of_heads.remove(*key).is_some()));
    let read = wire::decode_snapshot(&pack(&before)).unwrap().heads.unwrap();
    assert_eq!((read.levels(), read.verified), (vec![0.0; 2], vec![Verified::default(); 2]));
}

#[test]
fn answers_of_heads_say_how_far_these_are_verified() {
    let model = with_two_heads();
    let evaluation = Evaluation { mean: DMatrix::zeros(1, 1), ..Evaluation::default() };
    let found = HeadEvaluation { mean: DMatrix::zeros(1, 2), variance: None };
    let answer = |verified: Option<Vec<Verified>>| -> Value {
        let return_variance = verified.as_ref().map(|_| DMatrix::from_element(1, 2, 2.0));
        let heads = HeadAnswers {
            names: vec!["near", "far"],
            evaluation: &found,
            variance: false,
            return_variance,
            verified,
            learning: Vec::new(),
        };
        let reply = Reply::ValueOfHeads { evaluation: &evaluation, snapshot: &model, heads: &heads };
        let bytes = wire::encode_reply(&Id::nil(), ArrayForm::List, &reply);
        rmp_serde::from_slice::<Value>(&bytes).unwrap()["heads"].clone()
    };
    let known = answer(model.heads.as_ref().map(|heads| heads.verified.clone()));
    assert_eq!((&known["pairs"], &known["coverage"]), (&json!([0, 64]), &json!([null, 0.75])));
    let unasked = answer(None);
    assert!(["return_variance", "pairs", "coverage"].iter().all(|key| unasked.get(key).is_none()), "{unasked}");
}
