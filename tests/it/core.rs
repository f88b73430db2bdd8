//! The whole control loop without threads, sockets or a clock: what it answers, publishes and adopts.

use crate::support::harness::{Handed, Harness, Ways, caller, config};
use criticd::daemon::core::Now;
use criticd::learner::random::{mix, normal};
use criticd::math::embedding::StateKind;
use criticd::sim::{self, Step, gridworld::Gridworld, pendulum::Pendulum};
use criticd::snapshot::Ask;
use criticd::transition::{Batch, BatchParts};
use criticd::wire::{self, Op};
use serde_json::Value;

/// A core that keeps nothing, whose refits run when they are asked to.
fn harness(toml: &str) -> Harness {
    let ways = Ways { refits: Handed::Waits, catch_ups: Handed::Waits, rebuilds: Handed::Lost, ..Ways::GOING };
    Harness::without_journal(config(toml), ways)
}

/// The answer to an append, as it comes from the control socket.
fn append(harness: &mut Harness, batch: &Batch) -> Value {
    let now = harness.at();
    harness.core.append(&caller(), &wire::encode_append(1, batch), now);
    harness.turn();
    harness.replies.pop().expect("an answer")
}

/// Finish the refits that have been handed out. How many models were adopted.
fn finish_refits(harness: &mut Harness) -> usize {
    let before = harness.events("adopted").len();
    while let Some(task) = harness.tasks.pop_back() {
        harness.carry_out(task);
        harness.turn();
    }
    harness.events("adopted").len() - before
}

fn pendulum(rows: usize, seed: u64) -> Vec<Batch> {
    let mut pendulum = Pendulum::new(seed, 0.3);
    let steps: Vec<Step> = (0..rows).map(|_| pendulum.step()).collect();
    steps.chunks(50).flat_map(|part| sim::batches("pendulum", "run", part)).collect()
}

const QUICK: &str = "window_rows = 5000\n[[critic]]\nname = \"default\"\ndiscount = 0.95\nevidence_rows = 60\nstarts = 2\n\
                     dictionary_max = 40\nrefit_first_rows = 300\n";

#[test]
fn adoptions_lose_and_repeat_nothing() {
    // The cheapest search: forty models are chosen.
    let mut harness = harness(&format!("{QUICK}selection = \"evidence\"\n"));
    let batches = pendulum(6000, 1);
    let (mut sent, mut generation, mut adopted) = (0, 0, 0);
    for batch in &batches {
        harness.ingest(batch);
        sent += batch.len() as u64;
        harness.turn();
        assert_eq!(harness.core.offset(), sent);
        if sent < 300 {
            continue;
        }
        // Somebody always wants a refit; candidates come back after more rows have arrived.
        if harness.tasks.is_empty() {
            harness.call(Op::Refit { critic: None, wait: true });
            harness.turn();
        } else if sent % 3 == 0 {
            adopted += finish_refits(&mut harness);
        }
        let snapshot = harness.core.board().get(0).unwrap();
        assert!(snapshot.generation >= generation);
        generation = snapshot.generation;
    }
    adopted += finish_refits(&mut harness);
    let status = harness.ask(Op::Status);
    let critic = &status["critics"][0];
    assert_eq!(critic["learned"], sent);
    assert_eq!(status["rejected"], serde_json::json!({}));
    // A refit on hardly more rows than the last one is as likely to be refused.
    let refused = harness.events("refit_rejected").len();
    assert!(adopted + refused >= 20 && adopted >= 8, "{adopted} adopted, {refused} refused: {}", critic["refit"]);
    assert_eq!(critic["generation"], 1 + adopted as u64);
    assert_eq!(harness.events("adopted").len(), adopted);
}

#[test]
fn the_same_messages_give_the_same_model_bit_for_bit() {
    let run = || {
        let (mut harness, mut adopted) = (harness(QUICK), 0);
        for batch in pendulum(1500, 2) {
            harness.learn(&[batch]);
            adopted += finish_refits(&mut harness);
        }
        assert!(adopted >= 2);
        (*harness.core.board().get(0).unwrap()).clone()
    };
    assert_eq!(run(), run());
}

#[test]
fn critics_learn_side_by_side() {
    let mut harness = harness(
        "[[critic]]\nname = \"near\"\ndiscount = 0.5\n[[critic]]\nname = \"far\"\ndiscount = 0.99\nkernel = \"isotropic\"\n",
    );
    let mut world = Gridworld::new(3);
    let steps: Vec<Step> = (0..600).map(|_| world.step()).collect();
    sim::batches("grid", "", &steps).iter().for_each(|batch| harness.ingest(batch));
    harness.turn();
    finish_refits(&mut harness);
    let board = harness.core.board();
    let at = |critic: &str| {
        let snapshot = board.get(board.critic(Some(critic)).unwrap()).unwrap();
        snapshot.evaluate(&[1.0, 5.0], Ask::MEAN).unwrap().mean[(0, 0)]
    };
    // Five steps of -1 from column 1 to column 6.
    assert!((at("near") + 1.9375).abs() < 0.3, "{}", at("near"));
    assert!((at("far") + 4.90).abs() < 0.5, "{}", at("far"));
    assert!(board.critic(Some("nobody")).is_err());
}

#[test]
fn what_is_refused_changes_nothing_and_is_reported() {
    let mut harness = harness(QUICK);
    let good = &pendulum(50, 4)[0];
    harness.ingest(good);
    let now = harness.at();
    harness.core.ingest(b"\x00garbage", now);
    harness.ingest(
        &sim::batches("grid", "", &[Step { state: vec![1.0], next_state: vec![2.0], ..Gridworld::new(0).step() }])[0],
    );
    harness.turn();
    assert_eq!(harness.core.offset(), good.len() as u64);
    let status = harness.ask(Op::Status);
    assert_eq!(status["rejected"], serde_json::json!({"malformed": 1, "wrong_dimension": 1}));
    harness.ingest(good);
    harness.turn();
    assert_eq!(harness.core.offset(), good.len() as u64, "rows that are known are not learned again");
    assert_eq!(harness.ask(Op::Status)["duplicates"], good.len() as u64);
    let events = harness.events("rejected");
    assert_eq!(events.len(), 1, "one report for both, at a bounded rate");
    assert_eq!((&events[0]["code"], &events[0]["field"]), (&"wrong_dimension".into(), &"state".into()));
    assert_eq!(harness.ask(Op::Refit { critic: None, wait: false })["ok"], true);
    let refused = harness.ask(Op::Checkpoint);
    assert_eq!(refused["error"]["code"], "not_ready");
}

#[test]
fn an_append_that_is_refused_is_counted_unless_it_has_but_to_come_again() {
    let mut harness = harness(QUICK);
    let batches = pendulum(150, 6);
    assert_eq!(append(&mut harness, &batches[0])["accepted"], batches[0].len() as u64);
    assert_eq!(append(&mut harness, &batches[2])["error"]["code"], "sequence_gap");
    assert_eq!(harness.ask(Op::Status)["rejected"], serde_json::json!({}));
    let narrow = Step { state: vec![1.0], next_state: vec![2.0], ..Gridworld::new(0).step() };
    let narrow = &sim::batches("grid", "run", &[narrow])[0];
    assert_eq!(append(&mut harness, narrow)["error"]["code"], "wrong_dimension");
    // The same where it has been read before.
    let refused = harness.ask(Op::Append(narrow.clone()));
    assert_eq!(refused["error"]["code"], "wrong_dimension");
    assert_eq!(harness.ask(Op::Status)["rejected"], serde_json::json!({"wrong_dimension": 2}));
    let events = harness.events("rejected");
    assert_eq!((events.len(), &events[0]["streams"][0]["stream"]), (1, &"grid".into()));
    assert_eq!(harness.core.take_refused().len(), 2, "they are kept for the quarantine");
}

#[test]
fn rows_that_exceed_the_window_are_all_learned() {
    let mut harness =
        harness("window_rows = 16\n[[critic]]\nwarmup_rows = 16\ndictionary_max = 10\nrefit_first_rows = 0\n");
    let mut pendulum = Pendulum::new(7, 0.3);
    for round in 1..=3 {
        // Several messages may wait to be learned at once.
        for _ in 0..4 {
            let steps: Vec<Step> = (0..4000).map(|_| pendulum.step()).collect();
            sim::batches("pendulum", "", &steps).iter().for_each(|batch| harness.ingest(batch));
        }
        harness.turn();
        let status = harness.ask(Op::Status);
        assert_eq!(status["critics"][0]["failed"], Value::Null);
        assert_eq!(status["critics"][0]["learned"], 16_000 * round);
        assert_eq!(status["critics"][0]["transitions"], 16_000 * round);
    }
    // What is held for the learners is let go when they have learned it.
    let steps: Vec<Step> = (0..4096).map(|_| pendulum.step()).collect();
    sim::batches("pendulum", "", &steps).iter().for_each(|batch| harness.ingest(batch));
    harness.turn();
    let held = harness.ask(Op::Status)["window"]["rows"].as_u64().unwrap();
    assert!(held <= 16 + 3 * 4096, "{held} rows are held");
}

#[test]
fn the_last_rows_of_a_stream_that_pauses_are_published() {
    let mut harness = harness(QUICK);
    let mut sent = 0;
    for batch in pendulum(200, 5) {
        harness.ingest(&batch);
        sent += batch.len() as u64;
        harness.turn();
    }
    for _ in 0..3 {
        harness.pass(1.0);
        harness.turn();
    }
    let last = harness.published.iter().rfind(|publication| publication.topic.ends_with(".default")).unwrap();
    assert_eq!(wire::to_json(&last.payload).unwrap()["offset"], sent, "{}", last.topic);
    let published = harness.published.len();
    harness.pass(1.0);
    harness.turn();
    assert_eq!(harness.published.len(), published, "nothing new, nothing published");
}

#[test]
fn the_first_model_answers_as_soon_as_its_rows_are_counted() {
    let mut harness = harness(QUICK);
    let mut world = Pendulum::new(2, 0.3);
    // Each refresh takes a second: the next has to wait for long.
    let mut learn = |rows: usize| {
        let steps: Vec<Step> = (0..rows).map(|_| world.step()).collect();
        sim::batches("pendulum", "run", &steps).iter().for_each(|batch| harness.ingest(batch));
        let now = harness.at();
        harness.core.step(now);
        let due = harness.core.refresh_due(now);
        if due {
            harness.core.refresh(now, &|| Now { uptime: now.uptime + 1.0, unix: now.unix + 1.0 });
        }
        (due, harness.core.offset(), harness.core.board().get(0).is_some())
    };
    assert_eq!(learn(20), (true, 20, true), "too few rows for a model are answered");
    assert_eq!(learn(30), (true, 50, true), "the first is not put off");
    assert_eq!(learn(30), (false, 80, true), "the others are");
}

#[test]
fn rows_that_contradict_the_kinds_of_state_variables_are_refused_by_name() {
    let toml = "[[critic]]\nstate_kinds = [\"real\", \"periodic:6.25\", \"category\"]";
    let mut harness = harness(toml);
    harness.ingest(&pendulum(50, 4)[0]);
    harness.turn();
    assert_eq!(harness.core.offset(), 0);
    let status = harness.ask(Op::Status);
    assert_eq!(status["rejected"], serde_json::json!({"wrong_dimension": 1}));
    let event = &harness.events("rejected")[0];
    assert!(event["message"].as_str().unwrap().contains("state_kinds"), "{event}");
}

/// Rows from number `seq` on of a wheel at `place`, which goes on by about `step` in each, is not told within one turn, and earns what repeats
/// after 7.3.
fn wheel(place: &mut f64, seq: u64, rows: u64, step: f64) -> Batch {
    let (mut states, mut rewards) = (vec![*place, 0.0], Vec::new());
    for row in seq..seq + rows {
        rewards.push((std::f64::consts::TAU * *place / 7.3).cos() + 0.2 * normal(mix(&[row, 0])));
        *place += step * (1.0 + 0.5 * normal(mix(&[row, 1])));
        states.extend([*place, normal(mix(&[row, 2]))]);
    }
    let (stream, session, seq) = ("wheel".into(), "run".into(), Some(seq));
    Batch::new(BatchParts {
        stream,
        session,
        seq,
        dim: 2,
        rewards_per_row: 1,
        states,
        rewards,
        ..BatchParts::default()
    })
    .unwrap()
}

#[test]
fn the_period_of_a_wheel_is_learned_from_its_stream_and_from_the_journal_again() {
    let toml = "state_dim = 2\nwindow_rows = 1000\n[[critic]]\nstate_kinds = [\"periodic\", \"real\"]\ndiscount = 0.5\n\
                evidence_rows = 200\nsearch_starts = 2\ndictionary_max = 60\nrefit_first_rows = 0\ndrift_sensitivity = \"off\"";
    let mut harness = Harness::new(config(toml));
    let (mut place, mut seq) = (0.0, 0);
    let mut refitted = |harness: &mut Harness, rows, step| {
        for _ in (0..rows).step_by(100) {
            harness.learn(&[wheel(&mut place, seq, 100, step)]);
            seq += 100;
        }
        harness.call(Op::Refit { critic: None, wait: true });
        (0..4).for_each(|_| harness.turn());
        let critic = harness.ask(Op::Status)["critics"][0].clone();
        let kind = harness.snapshot(0).hyperparameters.kernel.kind_of(0);
        let found = critic["refit"]["last"]["findings"][0].as_str().unwrap_or_else(|| panic!("{critic}")).to_owned();
        (kind, found)
    };
    let (kind, said) = refitted(&mut harness, 100, 0.02);
    assert!(kind == StateKind::Real && said.starts_with("the returns show no period of state_0 yet"), "{kind} {said}");
    let (kind, said) = refitted(&mut harness, 700, 0.4);
    let StateKind::Periodic(period) = kind else { panic!("{said}") };
    assert!((period / 7.3 - 1.0).abs() < 0.02, "{period}");
    assert!(said.starts_with("state_0 comes back to the same after 7."), "{said}");
    let before = harness.state();
    harness.crash();
    assert!(harness.state() == before, "the journal brings the model back to the last bit");
}
