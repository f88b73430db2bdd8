//! Rows that are taken back from a daemon: its critics are at once as if they had never learned them, and after the rebuild bit for bit
//! what a daemon has whose journal never held them.

use crate::support::daemon::{Running, next};
use crate::support::harness::{Handed, Harness, Ways, config};
use crate::support::program::{Process, any_ports, criticd, patient};
use crate::support::{PATIENCE, until};
use criticd::client::{ClientError, Requester};
use criticd::config::Config;
use criticd::daemon::as_of::{Moment, as_of};
use criticd::daemon::core::Output;
use criticd::journal::checkpoint::Checkpoint;
use criticd::journal::memory::{Disk, MemoryCheckpoints, MemoryStorage};
use criticd::journal::store::Storage as _;
use criticd::journal::{GroupWriter, Record};
use criticd::learner::Learner;
use criticd::learner::removal::{Offsets, Selector};
use criticd::sim::{self, Step, walk::Walk};
use criticd::snapshot::{Ask, Snapshot};
use criticd::transition::{Batch, BatchParts};
use criticd::wire::status::RemovalStatus;
use criticd::wire::{self, ArrayForm, Op, RemoveRequest};
use parking_lot::Mutex;
use rand::seq::SliceRandom as _;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A critic whose dictionary is full and whose first model is chosen before streams but one have come.
pub(crate) const PLAIN: &str = "lambda = 0.5\nestimate_scale = false\nwarmup_rows = 100\nrefit_first_rows = 0\ndictionary_max = 10\n\
                     backfill_rows = 40\nrefresh_rows = 32\ndrift_sensitivity = \"off\"\n";

/// Rows of a walk in pieces of 20 of stream `name`, with episodes that end and episodes that are cut.
pub(crate) fn walk(name: &str, seed: u64, rows: usize) -> Vec<Batch> {
    let mut walk = Walk::new(seed, Some(25), 0.1);
    let steps: Vec<Step> = (0..rows).map(|_| walk.step()).collect();
    steps.chunks(20).flat_map(|part| sim::batches(name, "run", part)).collect()
}

/// One row of each stream in turn, message by message.
pub(crate) fn mixed(streams: &[Vec<Batch>]) -> Vec<Batch> {
    let longest = streams.iter().map(Vec::len).max().unwrap_or(0);
    (0..longest).flat_map(|i| streams.iter().filter_map(move |stream| stream.get(i).cloned())).collect()
}

pub(crate) fn request(selectors: Vec<Selector>, dry_run: bool) -> Op {
    Op::Remove(RemoveRequest { selectors, dry_run, boundary: false, by: Some("we".into()), reason: None })
}

/// Ask, and turn until there is an answer.
pub(crate) fn ask(harness: &mut Harness, op: Op) -> Value {
    harness.call(op);
    (0..4).for_each(|_| harness.turn());
    harness.replies.pop().expect("an answer")
}

pub(crate) fn take_back(harness: &mut Harness, selectors: Vec<Selector>) -> Value {
    let answer = ask(harness, request(selectors, false));
    assert_eq!(answer["ok"], json!(true), "{answer}");
    answer
}

pub(crate) fn stream(name: &str) -> Vec<Selector> {
    vec![Selector::Stream(name.into())]
}

pub(crate) fn critic(harness: &Harness) -> Learner {
    harness.core.checkpoint(harness.now).learners.swap_remove(0)
}

pub(crate) fn weights(learner: &Learner) -> Vec<f64> {
    let solved = learner.model().unwrap().solve().unwrap();
    solved.feature_weights().col(0).to_vec()
}

pub(crate) fn model_bits(learner: &Learner) -> Vec<u8> {
    rmp_serde::to_vec_named(learner.model().unwrap()).unwrap()
}

/// All of a critic, its forks and heads, too.
fn learner_bits(learner: &Learner) -> Vec<u8> {
    rmp_serde::to_vec_named(learner).unwrap()
}

pub(crate) fn assert_close(found: &[f64], expected: &[f64]) {
    let scale = expected.iter().fold(0.0f64, |most, v| most.max(v.abs()));
    assert_eq!(found.len(), expected.len());
    let off = found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(off <= 1e-9 * scale, "off by {off} of {scale}");
}

/// A disk with the rows of another, without those that were taken back and without what came of them.
pub(crate) fn cleaned(from: &Harness) -> Arc<Mutex<Disk>> {
    let removals = from.core.checkpoint(from.now).removals;
    let disk: Arc<Mutex<Disk>> = Arc::default();
    let (mut old, mut new) = (MemoryStorage::on(Arc::clone(&from.disk)), MemoryStorage::on(Arc::clone(&disk)));
    let (mut id, mut crc) = (0, 0);
    for stored in old.read(1, u64::MAX).unwrap() {
        let mut group = removals.clean(stored.group().unwrap());
        group.records.retain(|record| matches!(record, Record::Rows(_) | Record::Hole(_) | Record::Configured(_)));
        if group.records.is_empty() {
            continue;
        }
        id += 1;
        let stored = GroupWriter::of(&group).finish(id, group.first_offset, crc, group.time);
        crc = stored.crc;
        new.append(&stored, 0, true).unwrap();
    }
    disk
}

pub(crate) fn open(config: &Arc<Config>, disk: Arc<Mutex<Disk>>) -> Harness {
    Harness::on(Arc::clone(config), disk, Arc::new(MemoryCheckpoints::default()), Ways::STILL)
}

#[test]
fn at_once_a_critic_is_one_that_never_learned_the_rows() {
    let config = config(&format!("[[critic]]\n{PLAIN}"));
    let first = walk("kept", 1, 400);
    let (bad, good) = (walk("bad", 2, 200), walk("good", 3, 260));
    let mut harness = Harness::new(Arc::clone(&config));
    harness.learn(&first);
    harness.learn(&mixed(&[bad.clone(), good.clone()]));
    let before = critic(&harness);
    assert_eq!(before.model().unwrap().dictionary().len(), 10, "the dictionary is full before the others come");
    let answer = take_back(&mut harness, stream("bad"));
    assert_eq!((answer["rows"].as_u64(), answer["critics"][0]["subtracted"].as_bool()), (Some(200), Some(true)));
    let after = critic(&harness);
    assert_eq!((after.generation(), after.is_stale()), (before.generation() + 1, false));
    let mut never = Harness::new(config);
    never.learn(&first);
    never.learn(&good);
    assert_close(&weights(&after), &weights(&critic(&never)));
    assert!(weights(&before).iter().zip(&weights(&after)).any(|(a, b)| (a - b).abs() > 1e-3));
    // And so they learn on.
    let more = walk("good", 4, 100).iter().map(|batch| batch.clone().into_parts()).collect::<Vec<_>>();
    for mut parts in more {
        (parts.session, parts.seq) = ("next".into(), None);
        let batch = Batch::new(parts).unwrap();
        harness.learn(std::slice::from_ref(&batch));
        never.learn(&[batch]);
    }
    assert_close(&weights(&critic(&harness)), &weights(&critic(&never)));
    // What it tells of it.
    let status = harness.core.status(harness.now);
    let [removal] = &status.removals[..] else { panic!("{:?}", status.removals) };
    assert_eq!((removal.rows, removal.by.as_deref()), (200, Some("we")));
    assert_eq!((removal.critics[0].subtracted, removal.critics[0].free_generation), (true, None));
}

#[test]
fn after_the_rebuild_it_is_bit_for_bit_that_of_a_journal_without_the_rows() {
    const SEARCHES: &str = "warmup_rows = 50\nrefit_first_rows = 300\ndictionary_max = 30\nevidence_rows = 150\n";
    let mut models = Vec::new();
    for settings in [PLAIN, SEARCHES, &*format!("{SEARCHES}refit_budget_s = 0.01\n")] {
        let config = config(&format!("[[critic]]\n{settings}"));
        let mut harness = Harness::on(
            Arc::clone(&config),
            Arc::default(),
            Arc::new(MemoryCheckpoints::default()),
            Ways { refits: Handed::Lost, ..Ways::STILL },
        );
        harness.learn(&mixed(&[walk("a", 1, 500), walk("b", 2, 300), walk("c", 3, 400)]));
        // The first row of each stream stays: streams keep their numbers.
        let selectors = vec![Selector::Offsets(300..700), Selector::Offsets(70..125)];
        take_back(&mut harness, selectors);
        let told = |harness: &Harness| harness.core.status(harness.now).removals[0].critics[0].free_generation;
        assert_eq!(told(&harness), None);
        while harness.work() {}
        let rebuilt = critic(&harness);
        assert_eq!(told(&harness), Some(rebuilt.generation()));
        assert!(rebuilt.residue().offsets().is_empty() && !rebuilt.is_stale());

        let mut other = open(&config, cleaned(&harness));
        other.turn();
        harness_rebuild(&mut other);
        assert!(model_bits(&critic(&other)) == model_bits(&rebuilt), "settings {settings:?}");
        // They learn on alike.
        for harness in [&mut harness, &mut other] {
            harness.learn(&walk("d", 9, 60));
        }
        assert!(model_bits(&critic(&other)) == model_bits(&critic(&harness)));
        models.push(weights(&critic(&harness)));
    }
    assert!(models[1] != models[2], "the budget has ended the search");
}

pub(crate) fn harness_rebuild(harness: &mut Harness) {
    harness.call(Op::Rebuild { critic: None, wait: false });
    harness.turn();
    while harness.work() {}
}

#[test]
fn a_crash_anywhere_changes_no_bit() {
    let config = config(&format!("[[critic]]\n{PLAIN}[[critic]]\nname = \"other\"\nlambda = 0.0\n{}", &PLAIN[13..]));
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    for with_checkpoint in [false, true] {
        let mut harness = Harness::new(Arc::clone(&config));
        harness.learn(&mixed(&[walk("a", 1, 300), walk("b", 2, 300)]));
        if with_checkpoint {
            harness.checkpoint();
        }
        harness.learn(&walk("c", 3, 100));
        for round in 0..4 {
            let from = rng.random_range(0..600);
            take_back(&mut harness, vec![Selector::Offsets(from..from + rng.random_range(1..60))]);
            let (state, tasks) = (harness.state(), harness.tasks.len());
            harness.crash();
            assert!(harness.state() == state, "behind removal {round}");
            assert!(tasks > 0 && !harness.tasks.is_empty(), "the start goes on with the rebuild");
            harness.learn(&walk(&format!("d{round}"), 10 + round, 40));
            if round % 2 == 1 {
                while harness.work() {}
                let state = harness.state();
                harness.crash();
                assert!(harness.state() == state, "behind rebuild {round}");
                if with_checkpoint {
                    harness.checkpoint();
                    harness.crash();
                    assert!(harness.state() == state, "from the checkpoint behind rebuild {round}");
                }
            }
        }
    }
}

#[test]
fn what_is_asked_of_nothing_of_everything_and_twice() {
    let config = config(&format!("[[critic]]\n{PLAIN}"));
    let mut harness = Harness::new(config);
    let refused = ask(&mut harness, request(stream("a"), true));
    assert_eq!(refused["error"]["code"], json!("not_ready"));
    let rows = mixed(&[walk("a", 1, 300), walk("b", 2, 100)]);
    harness.learn(&rows);
    let state = harness.state();
    let dry = ask(&mut harness, request(stream("a"), true));
    assert_eq!(
        (dry["rows"].as_u64(), dry["streams"]["a"].as_u64(), dry["dry_run"].as_bool()),
        (Some(300), Some(300), Some(true))
    );
    assert!(dry["chains"].as_u64().unwrap() > 5 && dry["rows_of_chains"] == json!(300), "{dry}");
    let nothing = take_back(&mut harness, stream("nobody"));
    assert_eq!(nothing["rows"].as_u64(), Some(0));
    assert!(harness.state() == state, "nothing has changed");
    let timeless = ask(&mut harness, request(vec![Selector::Times(0.0..1e12)], true));
    assert_eq!((timeless["rows"].as_u64(), timeless["without_time"].as_u64()), (Some(0), Some(400)));

    take_back(&mut harness, stream("a"));
    let once = harness.state();
    let twice = take_back(&mut harness, stream("a"));
    assert_eq!(twice["rows"].as_u64(), Some(0));
    assert!(harness.state() == once);
    // What is sent again is known, and brings no row back.
    harness.learn(&rows);
    assert_eq!(harness.core.offset(), 400);
    let window = harness.core.window().unwrap();
    assert_eq!((window.len(), window.end()), (100, 400));

    let rest = take_back(&mut harness, vec![Selector::Offsets(0..1000)]);
    assert_eq!(rest["rows"].as_u64(), Some(100));
    assert_eq!(critic(&harness).model().unwrap().statistics().rows, 0);
    assert!(weights(&critic(&harness)).iter().all(|&u| u == 0.0));
    while harness.work() {}
    assert!(critic(&harness).model().is_none(), "no row is left to learn from");
    let status = harness.core.status(harness.now);
    let free = |removal: &RemovalStatus| removal.critics.iter().all(|critic| critic.free_generation.is_some());
    assert!(status.removals.iter().all(free), "{:?}", status.removals);
    let state = harness.state();
    harness.crash();
    assert!(harness.state() == state);
    harness.learn(&walk("c", 3, 400));
    assert_eq!(critic(&harness).learned(), 800);
    assert!(critic(&harness).model().is_some(), "it goes on with the rows that come");
    while harness.work() {}
    let state = harness.state();
    harness.crash();
    assert!(harness.state() == state);
}

#[test]
fn rows_come_and_models_are_chosen_while_rows_are_taken_back() {
    let settings = "warmup_rows = 50\nrefit_first_rows = 200\ndictionary_max = 30\nevidence_rows = 150\n";
    let config = config(&format!("[[critic]]\n{settings}"));
    let ways = Ways { refits: Handed::Waits, ..Ways::STILL };
    let mut harness = Harness::on(config, Arc::default(), Arc::new(MemoryCheckpoints::default()), ways);
    harness.learn(&mixed(&[walk("a", 1, 260), walk("b", 2, 260)]));
    assert!(matches!(harness.tasks.front(), Some(Output::Refit { .. })), "a refit runs");
    // Its window has the rows: what it finds is not adopted.
    harness.call(request(stream("b"), false));
    harness.ingest(&walk("c", 3, 20)[0]);
    (0..4).for_each(|_| harness.turn());
    let generation = critic(&harness).generation();
    harness.work();
    assert_eq!(critic(&harness).generation(), generation, "a model of rows that are gone is not adopted");
    // A rebuild that began before a removal is outdated.
    let rebuild = harness.tasks.iter().position(|task| matches!(task, Output::Rebuild(_))).expect("a rebuild");
    let task = harness.tasks.remove(rebuild).unwrap();
    take_back(&mut harness, vec![Selector::Offsets(0..30)]);
    harness.carry_out(task);
    harness.turn();
    assert!(!critic(&harness).residue().offsets().is_empty(), "it had the rows of the second removal");
    while harness.work() {}
    let status = harness.core.status(harness.now);
    assert!(
        status.removals.iter().all(|removal| removal.critics[0].free_generation.is_some()),
        "{:?}",
        status.removals
    );
    let state = harness.state();
    harness.crash();
    assert!(harness.state() == state);
}

#[test]
fn rows_are_taken_back_from_a_stream_that_outruns_the_window() {
    let settings = config(&format!("window_rows = 4096\n[[critic]]\n{PLAIN}"));
    let ways = Ways { removals: Handed::Waits, rebuilds: Handed::Lost, ..Ways::STILL };
    let mut harness = Harness::on(Arc::clone(&settings), Arc::default(), Arc::new(MemoryCheckpoints::default()), ways);
    let mut before = walk("a", 1, 20_300);
    let meanwhile = before.split_off(15);
    let taken: u64 = before.iter().map(|batch| batch.len() as u64).sum();
    let before = mixed(&[before, walk("b", 2, 300)]);
    harness.learn(&before);
    // The next row of stream a comes meanwhile, and stays.
    harness.call(request(stream("a"), false));
    harness.turn();
    harness.learn(&meanwhile);
    assert!(harness.core.window().unwrap().start() > 600, "the window has forgotten rows since");
    assert!(harness.work(), "rows are looked for");
    (0..4).for_each(|_| harness.turn());
    let answer = harness.replies.pop().expect("one search is enough");
    let subtracted = &answer["critics"][0]["subtracted"];
    assert_eq!((answer["rows"].as_u64(), subtracted.as_bool()), (Some(taken), Some(true)), "{answer}");
    assert_eq!(answer["offset"].as_u64(), Some(harness.core.offset()));
    let state = harness.state();
    harness.crash();
    assert!(harness.state() == state);

    let mut other = Harness::on(
        settings,
        Arc::default(),
        Arc::new(MemoryCheckpoints::default()),
        Ways { rebuilds: Handed::Lost, ..Ways::STILL },
    );
    other.learn(&before);
    take_back(&mut other, stream("a"));
    other.learn(&meanwhile);
    assert_close(&weights(&critic(&harness)), &weights(&critic(&other)));
}

#[test]
fn rows_that_a_critic_of_actions_has_yet_to_learn_are_taken_back_too() {
    let settings = "inputs = \"state_action\"\nactions = [\"left\", \"right\"]\nwarmup_rows = 100\nrefit_first_rows = 100000\n\
                    dictionary_max = 10\n";
    let config = config(&format!("[[critic]]\n{settings}"));
    let mut harness = Harness::new(Arc::clone(&config));
    let mut rng = ChaCha8Rng::seed_from_u64(4);
    let mut rows = |seq: u64, count: usize| {
        let states: Vec<f64> = (0..=count).map(|_| rng.random()).collect();
        let parts = BatchParts {
            stream: "a".into(),
            seq: Some(seq),
            dim: 1,
            rewards_per_row: 1,
            next_states: Some(states[1..].to_vec()),
            rewards: states[..count].to_vec(),
            actions: Some((0..count).map(|_| f64::from(rng.random_range(0..2))).collect()),
            states: states[..count].to_vec(),
            ..BatchParts::default()
        };
        Batch::new(parts).unwrap()
    };
    harness.learn(&[rows(0, 80)]);
    assert_eq!(critic(&harness).generation(), 0);
    let answer = take_back(&mut harness, vec![Selector::Offsets(20..50)]);
    assert_eq!(answer["critics"][0]["subtracted"], json!(false), "it keeps its rows: {answer}");
    while harness.work() {}
    assert_eq!(harness.core.status(harness.now).removals[0].critics[0].free_generation, Some(0));
    let mut other = open(&config, cleaned(&harness));
    let more = rows(80, 400);
    for harness in [&mut harness, &mut other] {
        harness.learn(std::slice::from_ref(&more));
    }
    assert!(model_bits(&critic(&other)) == model_bits(&critic(&harness)));
}

#[test]
fn a_checkpoint_carries_what_was_taken_back() {
    let config = config(&format!("[[critic]]\n{PLAIN}"));
    let mut harness = Harness::new(config);
    harness.learn(&walk("a", 1, 300));
    let without = harness.core.checkpoint(harness.now).encode();
    assert!(!without.windows(8).any(|bytes| bytes == b"removals"), "a checkpoint of before says nothing of it");
    take_back(&mut harness, vec![Selector::Offsets(100..120)]);
    let found = Checkpoint::decode(&harness.core.checkpoint(harness.now).encode()).unwrap();
    assert_eq!(found.removals.offsets(), &Offsets::from(100..120));
}

/// A daemon in this directory.
pub(crate) fn start(directory: &std::path::Path) -> Process {
    let mut command = criticd();
    command.args(["serve", "--http", "off", "--data-dir"]).arg(directory);
    Process::start(command_with_ports(command), directory)
}

fn command_with_ports(mut command: std::process::Command) -> std::process::Command {
    command.args(any_ports());
    command
}

/// Append rows of one stream with actions, of which each is an episode of four.
pub(crate) fn append(requester: &mut Requester, stream: &str, seq: u64, rows: usize) {
    let state = |i: usize| vec![((seq as usize + i) as f64 * 0.7).sin()];
    let fields = json!({
        "stream": stream,
        "seq": seq,
        "states": (0..rows).map(state).collect::<Vec<_>>(),
        "next_states": (0..rows).map(|i| state(i + 1)).collect::<Vec<_>>(),
        "rewards": (0..rows).map(|i| 1.0 + state(i)[0]).collect::<Vec<_>>(),
        "behavior_probs": vec![0.5; rows],
        "target_probs": vec![0.5; rows],
        "terminated": (0..rows).map(|i| i % 4 == 3).collect::<Vec<_>>(),
    });
    requester.ask("append", fields, PATIENCE).unwrap();
}

#[test]
fn pages_tables_and_judgements_are_without_rows_that_were_taken_back() {
    let directory = tempfile::tempdir().unwrap();
    let mut daemon = start(directory.path());
    let mut requester = daemon.requester();
    for round in 0..10 {
        append(&mut requester, "good", 40 * round, 40);
        append(&mut requester, "bad", 20 * round, 20);
    }
    let run = |arguments: &str| {
        let control = format!("{arguments} --control {}", daemon.endpoint("control"));
        let output = criticd().args(patient(&control)).env("USER", "somebody").output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap())
    };
    let (status, text) = run("remove --stream bad");
    assert!(status == Some(0) && text.contains("200 rows would be taken back; --yes does it"), "{text}");
    assert!(text.contains("stream bad: 200 rows") && text.contains("of 50 chains with 200 rows"), "{text}");
    assert_eq!(run("remove").0, Some(2));
    assert_eq!(run("remove --offsets 9..3").0, Some(2));
    // Of an episode of four rows the second and third.
    let text = run("remove --offsets 1..3").1;
    assert!(text.contains("2 rows would") && text.contains("1 row that stays has the first of these states"), "{text}");
    let text = run("remove --offsets 1..3 --boundary").1;
    assert!(text.contains("3 rows would") && !text.contains("that stay"), "{text}");
    let text = run("remove --offsets 4..8 --offsets 10..11 --offsets 13..14").1;
    assert!(text.contains("6 rows would") && text.contains("2 rows that stay have such a state"), "{text}");
    let (status, text) = run("remove --stream bad --yes --wait --reason test");
    assert!(status == Some(0) && text.contains("200 rows taken back"), "{text}");
    assert!(text.contains("without any influence of them from generation"), "{text}");
    let removal = requester.ask("status", json!({}), PATIENCE).unwrap()["removals"][0].clone();
    assert_eq!((&removal["by"], &removal["reason"]), (&json!("somebody"), &json!("test")));

    // The last 300 rows are 300 rows.
    let found = requester.ask("evaluate", json!({"last": 300}), PATIENCE).unwrap();
    assert_eq!((found["from"].as_u64(), found["to"].as_u64()), (Some(140), Some(580)), "{found}");
    let (mut rows, mut from) = (0, 0);
    while from < 600 {
        let page = requester.ask("rows", json!({"from": from, "arrays": "list"}), PATIENCE).unwrap();
        let count = page["states"].as_array().unwrap().len() as u64;
        assert!(page["stream_names"].as_array().unwrap().iter().all(|name| name == "good"), "{page}");
        assert!(page["from"].as_u64().unwrap() >= from);
        (rows, from) = (rows + count, page["next"].as_u64().unwrap());
    }
    assert_eq!(rows, 400);
    let table = directory.path().join("rows.csv");
    let export = |directory: &std::path::Path| {
        drop(std::fs::remove_file(&table));
        let output = criticd().arg("export").arg(directory).arg("--out").arg(&table).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        std::fs::read_to_string(&table).unwrap()
    };
    let exported = export(directory.path());
    assert!(!exported.contains("bad") && exported.lines().count() >= 401, "{} lines", exported.lines().count());
    let wrong = json!({"select": [{"stream": "good", "offsets": [0, 1]}]});
    let refused = requester.ask("remove", wrong, PATIENCE).unwrap_err().to_string();
    assert!(refused.contains("select") && refused.contains("nothing else"), "{refused}");

    // A daemon that is killed behind a removal knows of it.
    requester.ask("remove", json!({"select": [{"offsets": [0, 25]}], "dry_run": false}), PATIENCE).unwrap();
    daemon.kill();
    let daemon = start(directory.path());
    let status = daemon.requester().ask("status", json!({}), PATIENCE).unwrap();
    assert_eq!((status["offset"].as_u64(), status["removals"].as_array().unwrap().len()), (Some(600), 2));
    assert_eq!(status["removals"][0]["rows"], json!(25));
    assert!(export(directory.path()).lines().count() < exported.lines().count());
}

#[test]
fn what_was_answered_then_is_told_bit_for_bit() {
    let settings = "warmup_rows = 50\nrefit_first_rows = 200\ndictionary_max = 30\nevidence_rows = 150\n\
                    heads = [{ name = \"soon\", cumulant = { kind = \"reward\", index = 0 }, discount = 0.5 }]\n";
    let config = config(&format!("[[critic]]\n{settings}"));
    let ways = Ways { rebuilds: Handed::AtOnce, ..Ways::STILL };
    let mut harness = Harness::on(config, Arc::default(), Arc::new(MemoryCheckpoints::default()), ways);
    let mut told = BTreeMap::new();
    let mut rows = mixed(&[walk("a", 1, 500), walk("b", 2, 500)]);
    // Then another world.
    let mut world = Walk::new(3, Some(25), 0.1);
    let after = |step: Step| Step { reward: 4.0 - 3.0 * step.reward, ..step };
    let steps: Vec<Step> = (0..500).map(|_| after(world.step())).collect();
    rows.extend(steps.chunks(20).flat_map(|part| sim::batches("a later one", "run", part)));
    for (i, batch) in rows.iter().enumerate() {
        if i == 20 || i == 40 {
            harness.checkpoint();
        }
        harness.learn(std::slice::from_ref(batch));
        if i == 30 {
            take_back(&mut harness, vec![Selector::Offsets(100..160)]);
        }
        // Until nothing more is decided at this row.
        let (mut group, mut still) = (0, 0);
        while still < 4 {
            harness.turn();
            let now = harness.core.checkpoint(harness.now).group;
            (still, group) = (if now == group { still + 1 } else { 0 }, now);
        }
        let learner = critic(&harness);
        told.insert(harness.core.offset(), (learner_bits(&learner), learner.generation()));
    }
    let generations: BTreeSet<u64> = told.values().map(|(_, generation)| *generation).collect();
    assert!(generations.len() > 3 && told.len() >= 100, "{generations:?} at {} moments", told.len());
    let (mut storage, window) = (MemoryStorage::on(Arc::clone(&harness.disk)), harness.config.window_rows);
    for (offset, (bits, generation)) in told {
        let mut storage = MemoryStorage::on(Arc::clone(&harness.disk));
        let moment = Moment::Offset(offset);
        let state = as_of(&mut storage, harness.checkpoints.as_ref(), window, moment, &mut |_, _| true).unwrap();
        let learner = &state.critics()[0];
        assert_eq!((state.end().offset, learner.generation()), (offset, generation));
        assert!(learner_bits(learner) == bits, "as of {offset}");
    }
    let state = as_of(&mut storage, harness.checkpoints.as_ref(), window, Moment::Time(2e9), &mut |_, _| true).unwrap();
    assert_eq!(state.end().offset, harness.core.offset());
    let before = as_of(&mut storage, harness.checkpoints.as_ref(), window, Moment::Time(1.0), &mut |_, _| true);
    assert!(before.unwrap_err().to_string().contains("nothing had been stored"));
}

/// A snapshot written down, without what no journal knows.
fn written(snapshot: &Snapshot) -> Vec<u8> {
    let snapshot = Snapshot { time: 0.0, revision: 0, ..snapshot.clone() };
    wire::encode_snapshot(&snapshot, ArrayForm::Tensor, true)
}

/// Code and message of the refusal of a request.
fn refusal(requester: &mut Requester, op: &str, fields: Value) -> (String, String) {
    match requester.ask(op, fields, PATIENCE) {
        Err(ClientError::Refused(refusal)) => (refusal.code.to_string(), refusal.message.clone()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_running_daemon_tells_what_it_published_then_bit_for_bit() {
    const ROWS: u64 = 20;
    let settings = "warmup_rows = 50\nrefit_first_rows = 200\ndictionary_max = 30\nevidence_rows = 150\n";
    let critics =
        format!("[[critic]]\nname = \"far\"\n{settings}[[critic]]\nname = \"near\"\ndiscount = 0.5\n{settings}");
    let running = Running::start(|parts| {
        parts.critics = config(&critics).critics.clone();
        (parts.snapshot_interval_ms, parts.checkpoint_rows) = (10, 300);
    });
    let (subscriber, mut requester) = (running.subscriber(), running.requester());
    // By offset and critic, the last.
    let mut published: BTreeMap<(u64, String), Snapshot> = BTreeMap::new();
    for round in 0..40 {
        append(&mut requester, "good", ROWS * round, ROWS as usize);
        if round % 10 == 9 {
            for critic in ["far", "near"] {
                requester.ask("refit", json!({"critic": critic, "wait": true}), PATIENCE).unwrap();
            }
        }
        if round == 25 {
            let select = json!([{"offsets": [100, 160]}]);
            requester.ask("remove", json!({"select": select, "dry_run": false}), PATIENCE).unwrap();
            until("the critics to be learned again", || {
                let status = requester.ask("status", json!({}), PATIENCE).unwrap();
                let critics = status["removals"][0]["critics"].as_array().unwrap().clone();
                critics.iter().all(|critic| !critic["free_generation"].is_null())
            });
        }
        // The newest models are out before more rows come.
        loop {
            let status = requester.status(PATIENCE).unwrap();
            let is_out = |critic: &wire::status::CriticStatus| {
                let key = (status.offset, critic.name.clone());
                critic.generation == 0 || published.get(&key).is_some_and(|s| s.generation == critic.generation)
            };
            if status.critics.iter().all(is_out) {
                break;
            }
            let (topic, payload) = next(&subscriber);
            if topic.starts_with("snapshot.") {
                let snapshot = wire::decode_snapshot(&payload).unwrap();
                published.insert((snapshot.offset, snapshot.critic.clone()), snapshot);
            }
        }
    }
    let generations: BTreeSet<u64> = published.values().map(|snapshot| snapshot.generation).collect();
    assert!(generations.len() > 3, "{generations:?}");

    let end = 40 * ROWS;
    let mut then: Vec<&Snapshot> = published.values().filter(|snapshot| snapshot.offset < end).collect();
    then.shuffle(&mut ChaCha8Rng::seed_from_u64(3));
    let mut compared = 0;
    for snapshot in then.into_iter().take(40) {
        let (critic, offset) = (snapshot.critic.as_str(), snapshot.offset);
        let told = requester.snapshot_as_of(Some(critic), Moment::Offset(offset), PATIENCE).unwrap();
        assert_eq!(told.offset, offset);
        if told.generation != snapshot.generation {
            // Adopted before the next rows, and never published.
            assert!(told.generation > snapshot.generation);
            continue;
        }
        compared += 1;
        assert!(written(&told) == written(snapshot), "{critic} as of {offset}");
        assert!(told.variance.is_some() || snapshot.generation == 0);
        // A moment within a group is not one that there was.
        let within = requester.snapshot_as_of(Some(critic), Moment::Offset(offset + ROWS - 1), PATIENCE).unwrap();
        assert!(written(&within) == written(&told), "{critic} as of {offset}");
        let states = [-0.5, 0.25, 0.75];
        let critics = BTreeSet::from(["near", critic]);
        let asked = json!({
            "states": states.map(|x| [x]), "critics": critics,
            "variance": true, "as_of": offset, "arrays": "list",
        });
        let answer = &requester.ask("value", asked, PATIENCE).unwrap()["critics"][critic];
        let expected = snapshot.evaluate(&states, Ask::VARIANCE).unwrap();
        assert_eq!(answer["mean"], json!(expected.mean.as_slice()), "{critic} as of {offset}");
        assert_eq!(answer["variance"], json!(expected.variance), "{critic} as of {offset}");
    }
    assert!(compared > 20, "{compared} compared");

    let newest = requester.snapshot_as_of(None, Moment::Time(4e9), PATIENCE).unwrap();
    assert_eq!((newest.critic.as_str(), newest.offset), ("far", end));
    // All critics, asked by the endpoint and by the files.
    let shown = |place: &std::ffi::OsStr| {
        let mut command = criticd();
        command.args(patient("status")).args(["--json", "--as-of", "300", "-d"]).arg(place);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let asked = shown(running.daemon.endpoints.control.to_string().as_ref());
    assert_eq!((asked["offset"].as_u64(), asked["critics"].as_array().unwrap().len()), (Some(300), 2));
    assert_eq!(asked["critics"], shown(running.directory.path().join("data").as_os_str())["critics"]);
    let mut refused = |fields: Value| {
        let mut asked = json!({"states": [[0.5]], "as_of": end - 1});
        asked.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        refusal(&mut requester, "value", asked)
    };
    for (fields, code, words) in [
        (json!({"as_of": end + 1}), "out_of_range", "lies ahead: 800 rows are stored"),
        (json!({"as_of": 1.5}), "out_of_range", "nothing had been stored by then"),
        (json!({"as_of": ROWS - 1}), "out_of_range", "\"far\" had no model then"),
        (json!({"critic": "none"}), "unknown_critic", "there was far, near"),
        (json!({"states": [[0.5, 0.5]]}), "wrong_dimension", "states have 1 numbers"),
        (json!({"min_offset": 3}), "wrong_shape", "not both"),
    ] {
        let (found, message) = refused(fields.clone());
        assert!(found == code && message.contains(words), "{fields}: {found}, {message}");
    }
}

#[test]
fn a_past_that_is_not_kept_is_refused() {
    let running = Running::start(|parts| {
        (parts.window_rows, parts.checkpoint_rows, parts.journal_rows_max) = (100, 100, 100);
        parts.critics = config("[[critic]]\nrefit_first_rows = 0\n").critics.clone();
    });
    let mut requester = running.requester();
    for round in 0..30 {
        append(&mut requester, "good", 20 * round, 20);
        if round % 10 == 9 {
            requester.ask("checkpoint", json!({}), PATIENCE).unwrap();
        }
    }
    let ask = |requester: &mut Requester, as_of: u64| refusal(requester, "snapshot", json!({"as_of": as_of}));
    let (code, message) = ask(&mut requester, 40);
    let first = message.split("offset ").nth(1).and_then(|number| number.parse::<u64>().ok()).expect(&message);
    assert!(code == "out_of_range" && message.contains("are forgotten"), "{code}: {message}");
    assert_eq!(ask(&mut requester, first - 1), (code, message));
    assert_eq!(requester.snapshot_as_of(None, Moment::Offset(first), PATIENCE).unwrap().offset, first);

    let without = Running::start(|parts| parts.journal = false);
    let mut requester = without.requester();
    let (code, message) = ask(&mut requester, 0);
    assert!(code == "not_ready" && message.contains("there is no journal"), "{code}: {message}");
    let hello = requester.ask("hello", json!({}), PATIENCE).unwrap();
    assert!(!hello["features"].as_array().unwrap().contains(&json!("as_of")), "{hello}");
}
