//! Heads that learn from labels: values that rows were given after they had come.

use crate::support::harness::{Harness, assert_close, config, mean_and_variance};
use crate::support::program::Bench;
use criticd::learner::LabelPart;
use criticd::sim::{self, Step, walk::Walk};
use criticd::transition::{Batch, BatchParts};
use criticd::wire::{HeadForm, Op};
use criticd_reference::numbers;
use serde_json::{Value, json};

const STATES: [f64; 5] = [0.1, 0.35, 0.5, 0.8, 0.95];

fn setting(refits: bool, dictionary: usize) -> String {
    let refits = if refits {
        "refit_first_rows = 500\nevidence_rows = 150\nsearch_starts = 2\n"
    } else {
        "refit_first_rows = 0\n"
    };
    format!(
        "[[critic]]\nname = \"main\"\nrewards = [0]\ndiscount = 0.8\nwarmup_rows = 20\ndictionary_max = {dictionary}\nbackfill_rows = 40\n\
         refresh_rows = 32\n{refits}"
    )
}

/// Rows of two streams in turns, in pieces of 20, with episodes that end and episodes that are cut.
fn walks(seed: u64, rows: usize) -> Vec<Batch> {
    let of = |name: &str, seed: u64| -> Vec<Batch> {
        let mut walk = Walk::new(seed, Some(25), 0.1);
        let steps: Vec<Step> = (0..rows / 2).map(|_| walk.step()).collect();
        steps.chunks(20).flat_map(|part| sim::batches(name, "run", part)).collect()
    };
    let (a, b) = (of("a", seed), of("b", seed + 1000));
    a.into_iter().zip(b).flat_map(|(a, b)| [a, b]).collect()
}

/// What an expression says of each row, in the order in which they come.
fn labels_of(batches: &[Batch]) -> Vec<f64> {
    let of = |batch: &Batch| -> Vec<f64> {
        (0..batch.len()).map(|i| batch.reward(i)[0] - 0.5 * batch.state(i)[0] + 0.25 * batch.next_state(i)[0]).collect()
    };
    batches.iter().flat_map(of).collect()
}

const TEXT: &str = "reward - 0.5*state[0] + 0.25*next_state[0]";

fn send(harness: &mut Harness, name: &str, labels: &[(u64, f64)]) -> Value {
    let mut reply = Value::Null;
    for (k, piece) in labels.chunks(300).enumerate() {
        let (offsets, values) = piece.iter().copied().unzip();
        let part = LabelPart { name: name.into(), from: 300 * k as u64, offsets, values };
        reply = harness.ask(Op::ChangeHeads { critic: None, add: Vec::new(), remove: Vec::new(), labels: Some(part) });
        if reply["ok"] != true {
            break;
        }
    }
    reply
}

fn labelled(name: &str, set: &str, discount: f64) -> Value {
    json!({"name": name, "cumulant": {"kind": "label", "name": set}, "discount": discount})
}

fn expressed(name: &str, discount: f64) -> Value {
    json!({"name": name, "cumulant": {"kind": "expression", "text": TEXT}, "discount": discount})
}

fn every(labels: &[f64]) -> Vec<(u64, f64)> {
    labels.iter().enumerate().map(|(i, &label)| (i as u64, label)).collect()
}

fn finish(harness: &mut Harness) {
    while harness.work() {}
}

#[test]
fn a_head_of_labels_is_the_head_of_the_expression_that_made_them() {
    // With a dictionary that still grows and with a full one; learned from the journal, and again by a refit.
    for (refits, dictionary) in [(false, 12), (false, 60), (true, 12)] {
        let rows = walks(3, 1600);
        let (first, then) = rows.split_at(rows.len() * 3 / 4);
        let mut harness = Harness::new(config(&setting(refits, dictionary)));
        harness.learn(first);
        assert_eq!(send(&mut harness, "gentle", &every(&labels_of(first)))["ok"], true);
        let discounts = [0.0, 0.7, 0.95];
        let pairs: Vec<Value> = discounts
            .iter()
            .flat_map(|&d| [labelled(&format!("label {d}"), "gentle", d), expressed(&format!("text {d}"), d)])
            .collect();
        assert_eq!(harness.change(&pairs, &[])["ok"], true);
        finish(&mut harness);
        let found = harness.snapshot(0);
        for discount in discounts {
            let says = |kind: &str| mean_and_variance(&found, &format!("{kind} {discount}"), &STATES);
            assert_close(&format!("{refits} {dictionary} {discount}"), &says("label"), &says("text"));
        }
        // Rows that come later have no label, and do not count.
        let means = |harness: &Harness| {
            let found = harness.snapshot(0);
            mean_and_variance(&found, "label 0", &STATES)[..STATES.len()].to_vec()
        };
        let before = means(&harness);
        harness.learn(then);
        finish(&mut harness);
        if !refits && dictionary == 12 {
            assert_close("later rows", &means(&harness), &before);
        }
    }
}

/// Labels of some rows alone: the head learns what it would learn from those rows, whose chains are cut where labels end.
#[test]
fn rows_without_a_label_do_not_count_and_cut_chains() {
    // The rows that have labels, and the same ones alone. A dictionary of 12 states is full before the others differ.
    let rows = walks(5, 1600);
    let count: usize = rows.iter().map(Batch::len).sum();
    let labels = labels_of(&rows);
    let kept = |offset: usize| offset < count / 2 || offset % 100 >= 40;
    let some: Vec<(u64, f64)> = every(&labels).into_iter().filter(|(offset, _)| kept(*offset as usize)).collect();
    for discount in [0.0, 0.8] {
        let mut whole = Harness::new(config(&setting(false, 12)));
        whole.learn(&rows);
        assert_eq!(send(&mut whole, "some", &some)["ok"], true);
        let noise = json!({"noise_variance": 0.5, "signal": 1.0});
        let with_noise = |mut head: Value| {
            head.as_object_mut().unwrap().extend(noise.as_object().unwrap().clone());
            head
        };
        assert_eq!(whole.change(&[with_noise(labelled("some", "some", discount))], &[])["ok"], true);
        finish(&mut whole);
        // A critic of the labels, which has seen the labelled rows alone: each run of them ends as a cut chain does.
        let mut alone = Harness::new(config(&setting(false, 12)));
        let mut offset = 0;
        for batch in &rows {
            let mut run: Vec<usize> = Vec::new();
            for i in 0..batch.len() {
                if kept(offset + i) {
                    run.push(i);
                }
            }
            offset += batch.len();
            if run.is_empty() {
                continue;
            }
            let mut parts = BatchParts { dim: batch.dim(), rewards_per_row: 1, ..BatchParts::default() };
            (parts.stream, parts.session) = (batch.stream().to_owned(), batch.session().to_owned());
            // Rows behind a gap begin a chain, since `seq` says that some are missing.
            let (from, to) = (run[0], run[run.len() - 1] + 1);
            assert_eq!(to - from, run.len(), "labels end between messages or at one place in them");
            parts.states = batch_states(batch, from, to);
            parts.next_states = Some((from..to).flat_map(|i| batch.next_state(i).to_vec()).collect());
            parts.rewards = (from..to).map(|i| batch.reward(i)[0]).collect();
            parts.terminated = Some((from..to).map(|i| batch.terminated(i)).collect());
            parts.truncated = Some((from..to).map(|i| batch.truncated(i)).collect());
            parts.seq = batch.seq().map(|seq| seq + from as u64);
            alone.learn(&[Batch::new(parts).unwrap()]);
        }
        assert_eq!(alone.change(&[with_noise(expressed("some", discount))], &[])["ok"], true);
        finish(&mut alone);
        let (found, expected) = (whole.snapshot(0), alone.snapshot(0));
        assert_eq!(found.dictionary, expected.dictionary, "the comparison is one of equal dictionaries");
        let says = |of| mean_and_variance(of, "some", &STATES);
        assert_close(&format!("{discount}"), &says(&found), &says(&expected));
    }
}

/// The same while the dictionary grows: a new element gets its part of the chains that labels have cut as it does of others.
#[test]
fn rows_without_a_label_cut_chains_while_the_dictionary_grows() {
    let rows = walks(11, 1600);
    let labels = labels_of(&rows);
    // The first row of each piece has a label, so that the rows before and behind a cut are in one piece.
    let has: Vec<bool> = rows.iter().flat_map(|batch| (0..batch.len()).map(|i| i % 7 < 5)).collect();
    let kept = |offset: usize| offset < 60 || has[offset];
    let some: Vec<(u64, f64)> = every(&labels).into_iter().filter(|(offset, _)| kept(*offset as usize)).collect();
    let noise = json!({"noise_variance": 0.5, "signal": 1.0});
    let with_noise = |mut head: Value| {
        head.as_object_mut().unwrap().extend(noise.as_object().unwrap().clone());
        head
    };
    for discount in [0.0, 0.8] {
        let mut whole = Harness::new(config(&setting(false, 60)));
        whole.learn(&rows[..16]);
        let before = whole.snapshot(0).dictionary.nrows();
        whole.learn(&rows[16..]);
        assert!(whole.snapshot(0).dictionary.nrows() > before, "it grows where labels are missing");
        assert_eq!(send(&mut whole, "some", &some)["ok"], true);
        assert_eq!(whole.change(&[with_noise(labelled("some", "some", discount))], &[])["ok"], true);
        finish(&mut whole);
        // Rows that say themselves where chains are cut, and how often each counts.
        let mut plain = Harness::new(config(&setting(false, 60)));
        let mut offset = 0;
        let said: Vec<Batch> = rows
            .iter()
            .map(|batch| {
                let places = offset..offset + batch.len();
                offset += batch.len();
                let counts = |place: usize| if kept(place) { 1.0 } else { 0.0 };
                let of = |place: usize| [batch.reward(place - places.start)[0], labels[place], counts(place)];
                let rewards = places.clone().flat_map(of).collect();
                let ends = |place: usize| {
                    let i = place - places.start;
                    batch.truncated(i)
                        || (!batch.terminated(i) && i + 1 < batch.len() && kept(place) && !kept(place + 1))
                };
                let truncated = Some(places.clone().map(ends).collect());
                let parts = batch.clone().into_parts();
                Batch::new(BatchParts { rewards, rewards_per_row: 3, truncated, ..parts }).unwrap()
            })
            .collect();
        plain.learn(&said);
        let head = json!({"name": "some", "cumulant": {"kind": "reward", "index": 1}, "weight": {"index": 2},
                          "discount": discount});
        assert_eq!(plain.change(&[with_noise(head)], &[])["ok"], true);
        finish(&mut plain);
        let (found, expected) = (whole.snapshot(0), plain.snapshot(0));
        assert_eq!(found.dictionary, expected.dictionary, "the comparison is one of equal dictionaries");
        let says = |of| mean_and_variance(of, "some", &STATES);
        assert_close(&format!("{discount}"), &says(&found), &says(&expected));
    }
}

/// `criticd fit` with a file of labels, beside rows that say themselves where chains are cut, and how often each counts: what the
/// daemon is compared with above.
#[test]
fn fit_cuts_chains_where_labels_end_as_the_daemon_does() {
    let rows = walks(13, 400);
    let labels = labels_of(&rows);
    // The first row of each piece has a label, so that the rows before and behind a cut are in one piece.
    let has: Vec<bool> = rows.iter().flat_map(|batch| (0..batch.len()).map(|i| i % 7 < 5)).collect();
    let (mut labelled, mut plain, mut file) = (Vec::new(), Vec::new(), vec!["stream,seq,label".to_owned()]);
    let mut place = 0;
    for batch in &rows {
        for i in 0..batch.len() {
            let seq = batch.seq().unwrap() + i as u64;
            let row = |rewards: &[f64], truncated: bool| {
                json!({
                    "stream": batch.stream(), "seq": seq, "state": batch.state(i), "next_state": batch.next_state(i),
                    "reward": rewards, "terminated": batch.terminated(i), "truncated": truncated,
                })
                .to_string()
            };
            let ends = !batch.terminated(i) && i + 1 < batch.len() && has[place] && !has[place + 1];
            let (reward, counts) = (batch.reward(i)[0], if has[place] { 1.0 } else { 0.0 });
            labelled.push(row(&[reward], batch.truncated(i)));
            plain.push(row(&[reward, labels[place], counts], batch.truncated(i) || ends));
            if has[place] {
                file.push(format!("{},{seq},{}", batch.stream(), labels[place]));
            }
            place += 1;
        }
    }
    let bench = Bench::new();
    let states = |of: &[f64]| of.iter().map(|x| json!({"state": [x]}).to_string()).collect::<Vec<_>>().join("\n");
    let kernel =
        json!({"kind": "ard", "profile": "gaussian", "signal_variance": 1.0, "bias_variance": 0.5, "relevance": [4.0]});
    bench.file("h.json", &json!({"kernel": kernel, "noise": {"model": "correlated", "variance": 0.3}}).to_string());
    bench.file("dictionary.jsonl", &states(&[-0.9, -0.6, -0.3, 0.0, 0.3, 0.6, 0.9]));
    bench.file("query.jsonl", &states(&STATES));
    bench.file("labels.csv", &file.join("\n"));
    let discounts = [0.0, 0.8];
    let heads = |cumulant: Value, weight: Option<Value>| {
        let head = |discount: &f64| {
            let mut head = json!({"name": format!("h{discount}"), "cumulant": cumulant, "discount": discount,
                                  "noise_variance": 0.5, "signal": 1.0});
            weight.iter().for_each(|weight| head["weight"] = weight.clone());
            head
        };
        discounts.iter().map(head).collect::<Vec<_>>()
    };
    let fit = "fit table.jsonl --heads heads.json --hyperparameters h.json --no-optimise --dictionary dictionary.jsonl --lambda 1 \
               --out model.msgpack";
    let learned = |table: &[String], heads: &[Value]| {
        bench.file("table.jsonl", &table.join("\n"));
        bench.file("heads.json", &json!(heads).to_string());
        bench.json(fit);
        bench.json("value model.msgpack query.jsonl")["heads"].clone()
    };
    let column = json!({"kind": "column", "file": "labels.csv", "column": "label"});
    let found = learned(&labelled, &heads(column, None));
    let expected = learned(&plain, &heads(json!({"kind": "reward", "index": 1}), Some(json!({"index": 2}))));
    for discount in discounts {
        for key in ["mean", "variance"] {
            let [found, expected] = [&found, &expected].map(|of| numbers(&of[format!("h{discount}")][key]));
            assert_close(&format!("discount {discount}, {key}"), &found, &expected);
        }
    }
}

fn batch_states(batch: &Batch, from: usize, to: usize) -> Vec<f64> {
    (from..to).flat_map(|i| batch.state(i).to_vec()).collect()
}

#[test]
fn a_crash_anywhere_changes_no_bit_of_labels_and_their_heads() {
    for (refits, dictionary) in [(false, 60), (true, 12)] {
        let rows = walks(7, 1600);
        let (first, then) = rows.split_at(rows.len() / 2);
        let mut harness = Harness::new(config(&setting(refits, dictionary)));
        harness.learn(first);
        let all = every(&labels_of(first));
        let (begun, rest) = all.split_at(300);
        assert_eq!(send(&mut harness, "gentle", begun)["ok"], true);
        let check = |harness: &mut Harness, when: &str| {
            let state = harness.state();
            harness.crash();
            assert!(harness.state() == state, "{when}, {refits}");
        };
        check(&mut harness, "half of the labels");
        harness.checkpoint();
        for (k, piece) in rest.chunks(300).enumerate() {
            let (offsets, values) = piece.iter().copied().unzip();
            let part = LabelPart { name: "gentle".into(), from: 300 * (k as u64 + 1), offsets, values };
            let op = Op::ChangeHeads { critic: None, add: Vec::new(), remove: Vec::new(), labels: Some(part) };
            assert_eq!(harness.ask(op)["ok"], true);
        }
        let heads = [labelled("g", "gentle", 0.8), labelled("now", "gentle", 0.0), expressed("text", 0.8)];
        assert_eq!(harness.change(&heads, &[])["ok"], true);
        check(&mut harness, "heads that are to be learned");
        finish(&mut harness);
        check(&mut harness, "learned heads");
        harness.checkpoint();
        check(&mut harness, "a checkpoint");
        harness.learn(then);
        finish(&mut harness);
        check(&mut harness, "later rows");
        harness.checkpoint();
        check(&mut harness, "a checkpoint of later rows");
        assert_eq!(harness.change(&[], &["g".to_owned()])["ok"], true);
        check(&mut harness, "a head less");
        assert_eq!(harness.change(&[], &["now".to_owned()])["ok"], true);
        check(&mut harness, "no head of them");
        let gone = harness.change(&[labelled("g", "gentle", 0.8)], &[]);
        assert!(gone["error"]["message"].as_str().unwrap().contains("there are no labels"), "{gone}");
    }
}

/// Requests that no turn parts: those that would meet other labels than they were checked against are put off.
#[test]
fn changes_of_one_turn_do_not_meet_each_others_labels() {
    let rows = walks(9, 400);
    let mut harness = Harness::new(config(&setting(false, 12)));
    harness.learn(&rows);
    assert_eq!(send(&mut harness, "a", &[(3, 0.5), (4, 0.25)])["ok"], true);
    let piece = || {
        let part = LabelPart { name: "a".into(), from: 0, offsets: vec![5], values: vec![1.0] };
        Op::ChangeHeads { critic: None, add: Vec::new(), remove: Vec::new(), labels: Some(part) }
    };
    let heads = |add: &[Value], remove: &[&str]| {
        let add = add.iter().map(|head| serde_json::from_value::<HeadForm>(head.clone()).unwrap()).collect();
        let remove = remove.iter().map(|&name| name.to_owned()).collect();
        Op::ChangeHeads { critic: None, add, remove, labels: None }
    };
    let (head, other) = (labelled("x", "a", 0.0), labelled("y", "a", 0.0));
    let replies = harness.ask_at_once(vec![heads(&[head], &[]), piece()]);
    assert_eq!((&replies[0]["error"]["code"], &replies[1]["ok"]), (&json!("overloaded"), &json!(true)), "{replies:?}");
    assert_eq!(harness.ask(piece())["error"]["code"], "conflict");
    let replies = harness.ask_at_once(vec![heads(&[], &["x"]), heads(std::slice::from_ref(&other), &[])]);
    assert_eq!((&replies[0]["error"]["code"], &replies[1]["ok"]), (&json!("overloaded"), &json!(true)), "{replies:?}");
    let gone = harness.ask(heads(&[other], &[]));
    assert!(gone["error"]["message"].as_str().unwrap().contains("there are no labels"), "{gone}");
    let state = harness.state();
    harness.crash();
    assert!(harness.state() == state);
}

#[test]
fn labels_that_cannot_be_are_refused_with_their_place() {
    let rows = walks(9, 400);
    let mut harness = Harness::new(config(&setting(false, 12)));
    harness.learn(&rows);
    let count = rows.iter().map(Batch::len).sum::<usize>() as u64;
    let mut fault = |name: &str, from: u64, offsets: &[u64], values: &[f64], add: &[Value]| {
        let part = LabelPart { name: name.into(), from, offsets: offsets.to_vec(), values: values.to_vec() };
        let add = add.iter().map(|head| serde_json::from_value::<HeadForm>(head.clone()).unwrap()).collect();
        let reply = harness.ask(Op::ChangeHeads { critic: None, add, remove: Vec::new(), labels: Some(part) });
        let error = &reply["error"];
        (error["code"].as_str().map(str::to_owned), error["field"].as_str().map(str::to_owned), error["index"].as_u64())
    };
    let of = |code: &str, field: &str, index: Option<u64>| (Some(code.to_owned()), Some(field.to_owned()), index);
    assert_eq!(fault("a", 0, &[0, count], &[0.0, 0.0], &[]), of("out_of_range", "labels.offsets", Some(1)));
    assert_eq!(fault("a", 0, &[4, 3], &[0.0, 0.0], &[]), of("out_of_range", "labels.offsets", Some(1)));
    assert_eq!(fault("a", 0, &[3, 4], &[0.0, 1e10], &[]), of("out_of_range", "labels.values", Some(1)));
    assert_eq!(fault("a", 0, &[3, 4], &[0.0], &[]), of("wrong_shape", "labels.values", None));
    assert_eq!(fault("a", 7, &[3], &[0.0], &[]), of("conflict", "labels", None));
    assert_eq!(fault("a", 0, &[3], &[0.0], &[labelled("x", "a", 0.0)]), of("out_of_range", "labels", None));
    assert_eq!(fault("a", 0, &[3], &[0.5], &[]), (None, None, None));
    assert_eq!(harness.change(&[labelled("x", "a", 0.0)], &[])["ok"], true);
    let part = LabelPart { name: "a".into(), from: 1, offsets: vec![4], values: vec![0.0] };
    let op = Op::ChangeHeads { critic: None, add: Vec::new(), remove: Vec::new(), labels: Some(part) };
    assert_eq!(harness.ask(op)["error"]["code"], "conflict");
    let mut other = labelled("y", "a", 0.0);
    other["cumulant"]["id"] = json!(17);
    let reply = harness.change(&[other], &[]);
    assert!(reply["error"]["message"].as_str().unwrap().contains("are others"), "{reply}");
}
