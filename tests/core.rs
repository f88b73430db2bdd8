//! The whole control loop without threads, sockets or a clock: what it answers, publishes and adopts.

#[path = "support/refits.rs"]
mod refits;

use criticd::config::Config;
use criticd::daemon::core::{Call, Caller, Core, Now, Output};
use criticd::sim::{self, Step, gridworld::Gridworld, pendulum::Pendulum};
use criticd::snapshot::Ask;
use criticd::transition::Batch;
use criticd::transport::Peer;
use criticd::wire::{self, ArrayForm, Id, Op};
use refits::carry_out;
use serde_json::Value;
use std::sync::Arc;

/// A core with a hand-turned clock, whose refits run when they are asked to.
struct Harness {
    core: Core,
    now: f64,
    replies: Vec<Value>,
    published: Vec<(String, Vec<u8>)>,
    refits: Vec<Output>,
    adopted: usize,
}

impl Harness {
    fn new(toml: &str) -> Self {
        let core = Core::new(Arc::new(Config::from_toml(toml).unwrap()));
        Self { core, now: 0.0, replies: Vec::new(), published: Vec::new(), refits: Vec::new(), adopted: 0 }
    }

    fn at(&mut self) -> Now {
        self.now += 0.001;
        Now { uptime: self.now, unix: 1e9 + self.now }
    }

    fn turn(&mut self) {
        let now = self.at();
        self.core.step(now);
        if self.core.refresh_due(now) {
            self.core.refresh(now, &|| now);
        }
        for output in self.core.take_outputs() {
            match output {
                Output::Reply(reply) => self.replies.push(wire::to_json(&reply.payload).unwrap()),
                Output::Publish(publication) => self.published.push((publication.topic, publication.payload.to_vec())),
                Output::Garbage(_) | Output::Status(_) | Output::Rebuild(_) | Output::FollowRebuild(_) => {}
                refit => self.refits.push(refit),
            }
        }
    }

    fn ingest(&mut self, payload: &[u8]) {
        let now = self.at();
        self.core.ingest(payload, now);
    }

    fn call(&mut self, op: Op) -> Option<Value> {
        let peer = Peer { connection: 1, delimiter: false };
        let now = self.at();
        let caller = Caller { peer, id: Id::nil(), form: ArrayForm::List };
        self.core.call(Call { caller, op }, now);
        self.turn();
        self.replies.pop()
    }

    /// The answer to an append, as it comes from the control socket.
    fn append(&mut self, batch: &Batch) -> Value {
        let (peer, now) = (Peer { connection: 1, delimiter: false }, self.at());
        let caller = Caller { peer, id: Id::nil(), form: ArrayForm::List };
        self.core.append(&caller, &wire::encode_append(1, batch), now);
        self.turn();
        self.replies.pop().expect("an answer")
    }

    /// Finish the refits that have been handed out.
    fn finish_refits(&mut self) {
        while let Some(task) = self.refits.pop() {
            assert!(carry_out(&mut self.core, task).is_none());
            let adopted = self.events("adopted").len();
            self.turn();
            self.adopted += self.events("adopted").len() - adopted;
        }
    }

    fn events(&self, kind: &str) -> Vec<Value> {
        let topic = format!("event.{kind}");
        self.published.iter().filter(|(t, _)| *t == topic).map(|(_, p)| wire::to_json(p).unwrap()).collect()
    }
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
    let mut harness = Harness::new(QUICK);
    let batches = pendulum(6000, 1);
    let (mut sent, mut generation) = (0, 0);
    for batch in &batches {
        harness.ingest(&wire::encode_ingest(batch));
        sent += batch.len() as u64;
        harness.turn();
        assert_eq!(harness.core.offset(), sent);
        if sent < 300 {
            continue;
        }
        // Somebody always wants a refit; candidates come back after more rows have arrived.
        if harness.refits.is_empty() {
            harness.call(Op::Refit { critic: None, wait: true });
        } else if sent % 3 == 0 {
            harness.finish_refits();
        }
        let snapshot = harness.core.board().get(0).unwrap();
        assert!(snapshot.generation >= generation);
        generation = snapshot.generation;
    }
    harness.finish_refits();
    let status = harness.call(Op::Status).unwrap();
    let critic = &status["critics"][0];
    assert_eq!(critic["learned"], sent);
    assert_eq!(status["rejected"], serde_json::json!({}));
    assert!(harness.adopted >= 20, "only {} adoptions: {}", harness.adopted, critic["refit"]);
    assert_eq!(critic["generation"], 1 + harness.adopted as u64);
    assert_eq!(harness.events("adopted").len(), harness.adopted);
}

#[test]
fn the_same_messages_give_the_same_model_bit_for_bit() {
    let run = || {
        let mut harness = Harness::new(QUICK);
        for batch in pendulum(1500, 2) {
            harness.ingest(&wire::encode_ingest(&batch));
            harness.turn();
            harness.finish_refits();
        }
        assert!(harness.adopted >= 2);
        (*harness.core.board().get(0).unwrap()).clone()
    };
    assert_eq!(run(), run());
}

#[test]
fn critics_learn_side_by_side() {
    let mut harness = Harness::new(
        "[[critic]]\nname = \"near\"\ndiscount = 0.5\n[[critic]]\nname = \"far\"\ndiscount = 0.99\nkernel = \"isotropic\"\n",
    );
    let mut world = Gridworld::new(3);
    let steps: Vec<Step> = (0..600).map(|_| world.step()).collect();
    for batch in sim::batches("grid", "", &steps) {
        harness.ingest(&wire::encode_ingest(&batch));
    }
    harness.turn();
    harness.finish_refits();
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
    let mut harness = Harness::new(QUICK);
    let good = &pendulum(50, 4)[0];
    harness.ingest(&wire::encode_ingest(good));
    harness.ingest(b"\x00garbage");
    harness.ingest(&wire::encode_ingest(
        &sim::batches("grid", "", &[Step { state: vec![1.0], next_state: vec![2.0], ..Gridworld::new(0).step() }])[0],
    ));
    harness.turn();
    assert_eq!(harness.core.offset(), good.len() as u64);
    let status = harness.call(Op::Status).unwrap();
    assert_eq!(status["rejected"], serde_json::json!({"malformed": 1, "wrong_dimension": 1}));
    harness.ingest(&wire::encode_ingest(good));
    harness.turn();
    assert_eq!(harness.core.offset(), good.len() as u64, "rows that are known are not learned again");
    assert_eq!(harness.call(Op::Status).unwrap()["duplicates"], good.len() as u64);
    let events = harness.events("rejected");
    assert_eq!(events.len(), 1, "one report for both, at a bounded rate");
    assert_eq!((&events[0]["code"], &events[0]["field"]), (&"wrong_dimension".into(), &"state".into()));
    assert_eq!(harness.call(Op::Refit { critic: None, wait: false }).map(|r| r["ok"].clone()), Some(true.into()));
    let refused = harness.call(Op::Checkpoint).unwrap();
    assert_eq!(refused["error"]["code"], "not_ready");
}

#[test]
fn an_append_that_is_refused_is_counted_unless_it_has_but_to_come_again() {
    let mut harness = Harness::new(QUICK);
    let batches = pendulum(150, 6);
    assert_eq!(harness.append(&batches[0])["accepted"], batches[0].len() as u64);
    assert_eq!(harness.append(&batches[2])["error"]["code"], "sequence_gap");
    assert_eq!(harness.call(Op::Status).unwrap()["rejected"], serde_json::json!({}));
    let narrow = Step { state: vec![1.0], next_state: vec![2.0], ..Gridworld::new(0).step() };
    let narrow = &sim::batches("grid", "run", &[narrow])[0];
    assert_eq!(harness.append(narrow)["error"]["code"], "wrong_dimension");
    // The same where it has been read before.
    let refused = harness.call(Op::Append(narrow.clone())).unwrap();
    assert_eq!(refused["error"]["code"], "wrong_dimension");
    assert_eq!(harness.call(Op::Status).unwrap()["rejected"], serde_json::json!({"wrong_dimension": 2}));
    let events = harness.events("rejected");
    assert_eq!((events.len(), &events[0]["streams"][0]["stream"]), (1, &"grid".into()));
    assert_eq!(harness.core.take_refused().len(), 2, "they are kept for the quarantine");
}

#[test]
fn rows_that_exceed_the_window_are_all_learned() {
    let mut harness =
        Harness::new("window_rows = 16\n[[critic]]\nwarmup_rows = 16\ndictionary_max = 10\nrefit_first_rows = 0\n");
    let mut pendulum = Pendulum::new(7, 0.3);
    for round in 1..=3 {
        // Several messages may wait to be learned at once.
        for _ in 0..4 {
            let steps: Vec<Step> = (0..4000).map(|_| pendulum.step()).collect();
            sim::batches("pendulum", "", &steps).iter().for_each(|b| harness.ingest(&wire::encode_ingest(b)));
        }
        harness.turn();
        let status = harness.call(Op::Status).unwrap();
        assert_eq!(status["critics"][0]["failed"], Value::Null);
        assert_eq!(status["critics"][0]["learned"], 16_000 * round);
        assert_eq!(status["critics"][0]["transitions"], 16_000 * round);
    }
    // What is held for the learners is let go when they have learned it.
    let steps: Vec<Step> = (0..4096).map(|_| pendulum.step()).collect();
    sim::batches("pendulum", "", &steps).iter().for_each(|b| harness.ingest(&wire::encode_ingest(b)));
    harness.turn();
    let held = harness.call(Op::Status).unwrap()["window"]["rows"].as_u64().unwrap();
    assert!(held <= 16 + 3 * 4096, "{held} rows are held");
}

#[test]
fn the_last_rows_of_a_stream_that_pauses_are_published() {
    let mut harness = Harness::new(QUICK);
    let mut sent = 0;
    for batch in pendulum(200, 5) {
        harness.ingest(&wire::encode_ingest(&batch));
        sent += batch.len() as u64;
        harness.turn();
    }
    for _ in 0..3 {
        harness.now += 1.0;
        harness.turn();
    }
    let (topic, payload) = harness.published.iter().rfind(|(topic, _)| topic.ends_with(".default")).unwrap();
    assert_eq!(wire::to_json(payload).unwrap()["offset"], sent, "{topic}");
    let published = harness.published.len();
    harness.now += 1.0;
    harness.turn();
    assert_eq!(harness.published.len(), published, "nothing new, nothing published");
}

#[test]
fn the_first_model_answers_as_soon_as_its_rows_are_counted() {
    let mut harness = Harness::new(QUICK);
    let mut world = Pendulum::new(2, 0.3);
    // Each refresh takes a second: the next has to wait for long.
    let mut learn = |rows: usize| {
        let steps: Vec<Step> = (0..rows).map(|_| world.step()).collect();
        for batch in sim::batches("pendulum", "run", &steps) {
            harness.ingest(&wire::encode_ingest(&batch));
        }
        let now = harness.at();
        harness.core.step(now);
        let due = harness.core.refresh_due(now);
        if due {
            harness.core.refresh(now, &|| Now { uptime: now.uptime + 1.0, unix: now.unix + 1.0 });
        }
        (due, harness.core.offset(), harness.core.board().get(0).is_some())
    };
    assert_eq!(learn(20), (true, 20, false));
    assert_eq!(learn(30), (true, 50, true), "the first is not put off");
    assert_eq!(learn(30), (false, 80, true), "the others are");
}

#[test]
fn rows_that_contradict_the_kinds_of_state_variables_are_refused_by_name() {
    let toml = "[[critic]]\nstate_kinds = [\"real\", \"periodic:6.25\", \"category\"]";
    let mut harness = Harness::new(toml);
    harness.ingest(&wire::encode_ingest(&pendulum(50, 4)[0]));
    harness.turn();
    assert_eq!(harness.core.offset(), 0);
    let status = harness.call(Op::Status).unwrap();
    assert_eq!(status["rejected"], serde_json::json!({"wrong_dimension": 1}));
    let event = &harness.events("rejected")[0];
    assert!(event["message"].as_str().unwrap().contains("state_kinds"), "{event}");
}
