//! What may happen while rows are taken back. Of each race there is a test:
//!
//! | rows are taken back | test |
//! | --- | --- |
//! | that wait to be stored | [`rows_that_wait_go_too_and_do_not_come_back`] |
//! | that are being stored, or that cannot be | [`what_cannot_be_stored_is_not_taken_back_until_it_can`] |
//! | that are sent again meanwhile, and afterwards | [`rows_that_wait_go_too_and_do_not_come_back`] |
//! | during a refit or an improvement | `removal::rows_come_and_models_are_chosen_while_rows_are_taken_back` |
//! | during a rebuild | the same |
//! | while late heads learn the journal | [`heads_that_learn_the_journal_meanwhile_learn_none_of_them`] |
//! | while a fork learns | `a_fork_that_has_learned_what_is_taken_back_is_dropped` in `crates/learner/tests/it/drift.rs` |
//! | while a checkpoint is written | [`a_checkpoint_of_before_that_is_written_afterwards_brings_none_back`] |
//! | during backups, exports and answers of then, and before the journal is compacted | [`copies_and_answers_of_then_are_of_one_moment`] |
//! | and the process is killed, or the erasure is | `erasure::a_removal_that_is_killed_is_whole_or_not_there`, `erasure::no_byte_of_erased_rows_is_left_wherever_the_erasure_was_interrupted` |
//! | that are all rows, none, taken back already, or some of those | `removal::what_is_asked_of_nothing_of_everything_and_twice` |
//! | and there is no room for the erasure | `erasure::an_erasure_without_room_leaves_all_as_it_was` |
//! | while nothing can be stored, or which these would be | [`what_cannot_be_stored_is_not_taken_back_until_it_can`] |
//! | whose chains have lost their beginnings since a dry run | [`a_chain_whose_beginning_is_forgotten_since_the_dry_run_is_learned_again`] |
//! | with the only cut chain | `bootstrapped_sums_are_zero_where_no_cut_chain_is_left` in `crates/learner/tests/it/removal.rs` |
//! | and too few stay for a selection | `a_critic_answers_at_once_as_if_it_had_never_seen_what_is_taken_back` in the same file |

use crate::removal::{
    PLAIN, append, ask, assert_close, cleaned, critic, mixed, model_bits, open, request, start, stream, take_back,
    walk, weights,
};
use crate::support::PATIENCE;
use crate::support::harness::{Handed, Harness, NOW, Ways, config, mean_and_variance};
use crate::support::program::{criticd, patient};
use criticd::daemon::as_of::Moment;
use criticd::daemon::core::{Now, Output};
use criticd::journal::memory::MemoryCheckpoints;
use criticd::learner::removal::Selector;
use criticd::sim::{self, Step, walk::Walk};
use criticd::transition::{Batch, BatchParts};
use criticd::wire::{self, ArrayForm, Op};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

/// A daemon of one critic which has learned 400 rows, and then these.
fn harness(ways: Ways, more: &[Batch]) -> Harness {
    let config = config(&format!("[[critic]]\n{PLAIN}"));
    let mut harness = Harness::on(config, Arc::default(), Arc::new(MemoryCheckpoints::default()), ways);
    harness.learn(&walk("kept", 1, 400));
    harness.learn(more);
    harness
}

/// The last answer, after some turns.
fn answer(harness: &mut Harness) -> Option<Value> {
    (0..4).for_each(|_| harness.turn());
    harness.replies.pop()
}

#[test]
fn rows_that_wait_go_too_and_do_not_come_back() {
    let mut robot = Walk::new(2, Some(25), 0.1);
    let steps: Vec<Step> = (0..220).map(|_| robot.step()).collect();
    let bad: Vec<Batch> = steps[..200].chunks(20).flat_map(|part| sim::batches("bad", "run", part)).collect();
    let good = walk("good", 3, 200);
    let (stored, waiting) = bad.split_at(bad.len() / 2);
    let ways = Ways { removals: Handed::Waits, rebuilds: Handed::Lost, ..Ways::STILL };
    let mut harness = harness(ways, &mixed(&[stored.to_vec(), good.clone()]));
    waiting.iter().for_each(|batch| harness.ingest(batch));
    assert!(harness.core.waiting_rows() > 0);
    harness.call(request(stream("bad"), false));
    harness.turn();
    // Sent again while they are looked for, when they are found, and when they are gone.
    harness.learn(&bad);
    assert!(harness.work(), "rows are looked for");
    bad.iter().for_each(|batch| harness.ingest(batch));
    let answer = answer(&mut harness).expect("an answer");
    assert_eq!((answer["rows"].as_u64(), answer["critics"][0]["subtracted"].as_bool()), (Some(200), Some(true)));
    harness.learn(&bad);
    assert_eq!((harness.core.offset(), harness.core.window().unwrap().len()), (800, 600));
    let mut never = self::harness(Ways::STILL, &good);
    assert_close(&weights(&critic(&harness)), &weights(&critic(&never)));
    // Of a message that begins with rows that are gone the others are learned.
    let [both, new] = [180, 200].map(|from| sim::batches("bad", "run", &steps[from..]));
    assert_eq!(both.iter().map(Batch::len).sum::<usize>(), 40);
    harness.learn(&both);
    never.learn(&new);
    assert_eq!(harness.core.window().unwrap().len(), never.core.window().unwrap().len());
    assert_close(&weights(&critic(&harness)), &weights(&critic(&never)));
    let state = harness.state();
    harness.crash();
    assert!(harness.state() == state);
}

#[test]
fn what_cannot_be_stored_is_not_taken_back_until_it_can() {
    let (bad, more) = (walk("bad", 2, 200), walk("more", 3, 40));
    // The disk fails before anybody asks, while rows are looked for, or when they are found.
    for moment in 0..3 {
        let ways = Ways { removals: Handed::Waits, rebuilds: Handed::Lost, ..Ways::STILL };
        let mut harness = harness(ways, &bad);
        let fails = |harness: &Harness| {
            let mut disk = harness.disk.lock();
            disk.failing = Some((disk.operations, u64::MAX - disk.operations));
        };
        let before = weights(&critic(&harness));
        if moment == 0 {
            fails(&harness);
            harness.learn(&more[..1]);
            harness.call(request(stream("bad"), false));
        } else {
            harness.call(request(stream("bad"), false));
            harness.turn();
            if moment == 1 {
                fails(&harness);
                harness.learn(&more[..1]);
            }
            let task = harness.tasks.pop_front().expect("a task");
            harness.carry_out(task);
            if moment == 2 {
                fails(&harness);
            }
        }
        match answer(&mut harness) {
            None => assert_eq!(moment, 2, "it has been decided, and waits for the disk"),
            Some(refused) => {
                let [code, message] = ["code", "message"].map(|key| refused["error"][key].as_str().unwrap().to_owned());
                assert!(code == "read_only" && message.contains("such as a full disk"), "at {moment}: {message}");
                assert!(message.contains("a write failed"), "at {moment}: {message}");
            }
        }
        assert!(harness.core.read_only().is_some() && harness.core.status(NOW).removals.is_empty(), "at {moment}");
        assert!(weights(&critic(&harness)) == before, "at {moment}");
        // Who asks which rows these would be is told.
        harness.call(request(stream("bad"), true));
        harness.call(request(stream("bad"), false));
        harness.turn();
        assert!(harness.work(), "rows are looked for");
        (0..4).for_each(|_| harness.turn());
        let [refused, dry] = &harness.replies[..] else { panic!("{:?}", harness.replies) };
        assert_eq!((dry["dry_run"].as_bool(), dry["rows"].as_u64()), (Some(true), Some(200)), "at {moment}: {dry}");
        assert_eq!(refused["error"]["code"], "read_only");
        harness.replies.clear();
        harness.disk.lock().failing = None;
        harness.core.step(Now { uptime: 10.0, ..NOW });
        assert_eq!(harness.core.read_only(), None);
        if moment < 2 {
            harness.turn();
            harness.call(request(stream("bad"), false));
            harness.turn();
            assert!(harness.work());
        }
        let answer = answer(&mut harness).expect("it is done when that is possible");
        assert_eq!((answer["ok"].as_bool(), answer["rows"].as_u64()), (Some(true), Some(200)), "at {moment}: {answer}");
        let state = harness.state();
        harness.crash();
        assert!(harness.state() == state, "at {moment}");
    }
}

#[test]
fn heads_that_learn_the_journal_meanwhile_learn_none_of_them() {
    const STATES: [f64; 3] = [0.2, 0.5, 0.9];
    let head = [json!({"name": "late", "cumulant": {"kind": "reward", "index": 0}, "discount": 0.5})];
    let mut harness = harness(Ways::STILL, &mixed(&[walk("bad", 2, 200), walk("good", 3, 200)]));
    assert_eq!(harness.change(&head, &[])["ok"], true);
    let task = harness.tasks.pop_front().expect("heads learn the journal");
    assert!(matches!(task, Output::Rebuild(_)));
    take_back(&mut harness, stream("bad"));
    harness.carry_out(task);
    harness.turn();
    while harness.work() {}
    let config = Arc::clone(&harness.config);
    let mut never = open(&config, cleaned(&harness));
    never.turn();
    assert_eq!(never.change(&head, &[])["ok"], true);
    while never.work() {}
    never.call(Op::Rebuild { critic: None, wait: false });
    never.turn();
    while never.work() {}
    assert!(model_bits(&critic(&harness)) == model_bits(&critic(&never)));
    let values = |harness: &Harness| mean_and_variance(&harness.snapshot(0), "late", &STATES);
    assert_close(&values(&harness), &values(&never));
    let state = harness.state();
    harness.crash();
    assert!(harness.state() == state);
}

#[test]
fn a_checkpoint_of_before_that_is_written_afterwards_brings_none_back() {
    let ways = Ways { checkpoints: Handed::Waits, rebuilds: Handed::Lost, ..Ways::STILL };
    let mut harness = harness(ways, &walk("bad", 2, 200));
    harness.call(Op::Checkpoint);
    harness.turn();
    let task = harness.tasks.pop_front().expect("a checkpoint");
    assert!(matches!(task, Output::Checkpoint(_)));
    take_back(&mut harness, stream("bad"));
    let state = harness.state();
    harness.carry_out(task);
    harness.crash();
    assert!(harness.state() == state);
    assert_eq!(harness.core.status(harness.now).removals[0].rows, 200);
}

#[test]
fn a_chain_whose_beginning_is_forgotten_since_the_dry_run_is_learned_again() {
    let settings = "window_rows = 100\njournal_rows_max = 200\ncheckpoint_rows = 100\n";
    let config = config(&format!("{settings}[[critic]]\n{PLAIN}"));
    let ways = Ways { checkpoints: Handed::AtOnce, ..Ways::STILL };
    let mut harness = Harness::on(config, Arc::default(), Arc::new(MemoryCheckpoints::default()), ways);
    // One chain that goes on.
    let rows = |first: u64| {
        let states: Vec<f64> = (first..=first + 20).map(|i| (i as f64 * 0.37).sin()).collect();
        let parts = BatchParts {
            stream: "a".into(),
            seq: Some(first),
            dim: 1,
            rewards_per_row: 1,
            next_states: Some(states[1..].to_vec()),
            rewards: states[1..].to_vec(),
            states: states[..20].to_vec(),
            ..BatchParts::default()
        };
        Batch::new(parts).unwrap()
    };
    let mut end = 0;
    let mut learn = |harness: &mut Harness, until: &dyn Fn(&Harness) -> bool| {
        while !until(harness) {
            harness.learn(&[rows(end)]);
            end += 20;
        }
    };
    learn(&mut harness, &|harness| harness.core.offset() == 160);
    assert_eq!(harness.core.first_offset(), 0);
    let middle = vec![Selector::Offsets(140..150)];
    let dry = ask(&mut harness, request(middle.clone(), true));
    assert_eq!((dry["rows"].as_u64(), dry["rows_of_chains"].as_u64()), (Some(10), Some(160)), "{dry}");
    learn(&mut harness, &|harness| harness.core.first_offset() > 0);
    assert!(harness.core.first_offset() < 140);
    let answer = take_back(&mut harness, middle);
    assert_eq!((answer["rows"].as_u64(), answer["critics"][0]["subtracted"].as_bool()), (Some(10), Some(false)));
    assert!(critic(&harness).is_stale());
    while harness.work() {}
    assert!(!critic(&harness).is_stale());
    assert!(harness.core.status(harness.now).removals[0].critics[0].free_generation.is_some());
    let state = harness.state();
    harness.crash();
    assert!(harness.state() == state);
}

/// Run a command, which must succeed.
fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Rows that an export has.
fn rows(data: &Path, table: &Path) -> u64 {
    drop(std::fs::remove_file(table));
    run(criticd().arg("export").arg(data).arg("--out").arg(table));
    std::fs::read_to_string(table).unwrap().lines().count() as u64 - 1
}

#[test]
fn copies_and_answers_of_then_are_of_one_moment() {
    const ROUNDS: u64 = 10;
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let data = at("data");
    let mut daemon = start(&data);
    let mut requester = daemon.requester();
    for round in 0..ROUNDS {
        append(&mut requester, "bad", 20 * round, 20);
        append(&mut requester, "good", 40 * round, 40);
    }
    requester.ask("checkpoint", json!({}), PATIENCE).unwrap();
    let then = |of: &mut criticd::client::Requester| {
        let told = of.snapshot_as_of(None, Moment::Offset(300), PATIENCE).unwrap();
        wire::encode_snapshot(&criticd::snapshot::Snapshot { time: 0.0, revision: 0, ..told }, ArrayForm::Tensor, true)
    };
    let before = then(&mut requester);
    let copies: Vec<u64> = std::thread::scope(|scope| {
        let copying = scope.spawn(|| {
            let mut asks = daemon.requester();
            let copy = |k: u64| {
                run(criticd().arg("backup").arg(&data).arg("--out").arg(at(&format!("copy-{k}"))));
                assert!(then(&mut asks) == before);
                rows(&data, &at("live.csv"))
            };
            (0..4).map(copy).collect()
        });
        for round in 0..ROUNDS {
            let select = json!([{"offsets": [60 * round, 60 * round + 10]}]);
            requester.ask("remove", json!({"select": select, "dry_run": false}), PATIENCE).unwrap();
        }
        copying.join().unwrap()
    });
    for (k, live) in copies.into_iter().enumerate() {
        let copied = rows(&at(&format!("copy-{k}")), &at("copied.csv"));
        assert!(
            live.is_multiple_of(10) && copied.is_multiple_of(10) && (500..=600).contains(&live) && live <= copied,
            "{copied}, {live}"
        );
        let other = start(&at(&format!("copy-{k}")));
        let status = other.requester().ask("status", json!({}), PATIENCE).unwrap();
        let removals = status["removals"].as_array().unwrap().len() as u64;
        assert_eq!((status["offset"].as_u64(), removals), (Some(600), (600 - copied) / 10));
    }
    assert_eq!(rows(&data, &at("live.csv")), 500);
    run(criticd().args(patient("stop")).arg(&data));
    daemon.child.wait().unwrap();
    run(criticd().arg("compact").arg(&data));
    let daemon = start(&data);
    assert_eq!(rows(&data, &at("live.csv")), 500);
    assert!(then(&mut daemon.requester()) == before);
}
