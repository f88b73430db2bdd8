//! How long decisions take: `cargo bench --bench act` in the library, `cargo bench --bench act -- socket` by a daemon of its own,
//! idle and beside learning.

use criticd::client::{Requester, Sender};
use criticd::learner::act::{Actor, Exploration, Question};
use criticd::learner::action::ActionSpace;
use criticd::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Profile};
use criticd::snapshot::{Actions, Evaluator, Snapshot};
use criticd::transition::{Batch, BatchParts};
use criticd::wire;
use nalgebra::DMatrix;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const ELEMENTS: usize = 300;
const TIMEOUT: Duration = Duration::from_secs(20);

/// A model of Q over four state variables and these actions, of random weights.
fn model(space: ActionSpace) -> Snapshot {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut uniform = |low: f64, high: f64| low + (high - low) * rng.random_range(0.0..1.0);
    let dim = 4 + space.width();
    let dictionary = DMatrix::from_fn(ELEMENTS, dim, |i, d| match (d.checked_sub(4), &space) {
        (Some(a), ActionSpace::Discrete(count)) => f64::from(u8::from(i % count == a)),
        _ => uniform(-1.0, 1.0),
    });
    let relevance = (0..dim).map(|_| uniform(0.5, 3.0)).collect();
    let kernel = Kernel::gaussian(2.0, 0.1, Metric::Ard(relevance)).with_profile(Profile::Matern52);
    let mut numbers = |columns| DMatrix::from_fn(ELEMENTS, columns, |_, _| uniform(-1.0, 1.0));
    let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.1 };
    let (weights, copies) = (numbers(1), numbers(8));
    Snapshot {
        variance: Some(DMatrix::identity(ELEMENTS, ELEMENTS) * 1e-3),
        actions: Some(Actions { copies, ..Actions::of(space) }),
        ..Snapshot::of(0.9, hyperparameters, dictionary, weights)
    }
}

/// Median and 99 % quantile, microseconds.
fn quantiles(mut times: Vec<f64>) -> [f64; 2] {
    times.sort_by(f64::total_cmp);
    [0.5, 0.99].map(|q| 1e6 * times[((times.len() - 1) as f64 * q) as usize])
}

fn library(decisions: u64) {
    let bounds = ActionSpace::Box { low: vec![-1.0; 4], high: vec![1.0; 4] };
    for (name, space) in [("discrete, 4 actions", ActionSpace::Discrete(4)), ("box, 4 numbers", bounds)] {
        let actor = Actor::new(Evaluator::new(model(space))).expect("a model of actions");
        for (way, exploration) in [
            ("greedy", Exploration::Greedy),
            ("epsilon_greedy", Exploration::EpsilonGreedy(0.1)),
            ("ucb", Exploration::Ucb(1.0)),
            ("thompson", Exploration::Thompson),
        ] {
            let mut rng = ChaCha8Rng::seed_from_u64(2);
            let times = (0..decisions).map(|step| {
                let state: Vec<f64> = (0..4).map(|_| rng.random_range(-1.0..1.0)).collect();
                let question = Question {
                    state: &state,
                    exploration,
                    seed: 1,
                    episode: step / 100,
                    step,
                    candidates: None,
                    unknown_above: None,
                };
                let started = Instant::now();
                std::hint::black_box(actor.act(&question).expect("a decision"));
                started.elapsed().as_secs_f64()
            });
            let [median, last] = quantiles(times.collect());
            println!("{name}, m = {ELEMENTS}, {way}: median {median:.1} us, 99 % {last:.1} us");
        }
    }
}

/// A daemon with one critic that improves, and where it listens.
struct Daemon {
    process: Child,
    endpoints: Value,
    files: tempfile::TempDir,
}

impl Daemon {
    fn start() -> Self {
        let files = tempfile::tempdir().expect("a directory");
        let text = "ingest = \"tcp://127.0.0.1:0\"\ncontrol = \"tcp://127.0.0.1:0\"\npublish = \"tcp://127.0.0.1:0\"\nhttp = \"off\"\n\
                    [[critic]]\nname = \"q\"\ninputs = \"state_action\"\nactions = 4\nsuccessor = \"improve\"\n\
                    improve_rows = 2000\nrefit_first_rows = 0\ndictionary_max = 300\ntolerance = 1e-6\n";
        std::fs::write(files.path().join("criticd.toml"), text).expect("a file");
        let process = Command::new(env!("CARGO_BIN_EXE_criticd"))
            .args(["serve", "--config"])
            .arg(files.path().join("criticd.toml"))
            .arg("--data-dir")
            .arg(files.path().join("data"))
            .stderr(Stdio::null())
            .spawn()
            .expect("a daemon");
        // What fails from here on ends the process.
        let mut daemon = Self { process, endpoints: Value::Null, files };
        let path = daemon.files.path().join("data/endpoints.json");
        let started = Instant::now();
        loop {
            if let Some(endpoints) = std::fs::read(&path).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()) {
                daemon.endpoints = endpoints;
                return daemon;
            }
            assert!(started.elapsed() < TIMEOUT, "the daemon does not start");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn requester(&self) -> Requester {
        Requester::connect(self.endpoints["control"].as_str().expect("an endpoint"), TIMEOUT).expect("a connection")
    }

    fn sender(&self) -> Sender {
        Sender::connect(self.endpoints["ingest"].as_str().expect("an endpoint"), TIMEOUT).expect("a connection")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// 100 rows of a walk in the unit cube.
fn rows(rng: &mut ChaCha8Rng) -> Vec<u8> {
    let n = 100;
    let states: Vec<f64> = (0..4 * (n + 1)).map(|_| rng.random_range(-1.0..1.0)).collect();
    let parts = BatchParts {
        stream: "walk".into(),
        dim: 4,
        rewards_per_row: 1,
        rewards: (0..n).map(|i| states[4 * i]).collect(),
        actions: Some((0..n).map(|_| f64::from(rng.random_range(0..4u8))).collect()),
        states,
        ..BatchParts::default()
    };
    wire::encode_ingest(&Batch::new(parts).expect("rows"))
}

/// Times of `decisions` requests, seconds; panics if a decision comes from an older model than the one before.
fn ask(requester: &mut Requester, decisions: u64) -> Vec<f64> {
    let (mut times, mut last) = (Vec::new(), (0, 0));
    for step in 0..decisions {
        let fields = json!({
            "states": [[0.1, 0.2, 0.3, 0.4]], "exploration": "epsilon_greedy", "epsilon": 0.1, "steps": [step],
        });
        let started = Instant::now();
        let reply = requester.ask("act", fields, TIMEOUT).expect("a decision");
        times.push(started.elapsed().as_secs_f64());
        let now = (reply["generation"].as_u64().unwrap_or(0), reply["offset"].as_u64().unwrap_or(0));
        assert!(now >= last, "a decision of {now:?} after one of {last:?}");
        last = now;
    }
    times
}

fn learned(requester: &mut Requester) -> u64 {
    requester.status(TIMEOUT).expect("a status").critics[0].learned
}

/// Rows learned in a second, while rows are sent as fast as they are taken.
fn rate(daemon: &Daemon, work: impl FnOnce()) -> f64 {
    let (stop, sender, mut requester) = (AtomicBool::new(false), daemon.sender(), daemon.requester());
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut rng = ChaCha8Rng::seed_from_u64(4);
            while !stop.load(Ordering::Relaxed) {
                sender.send(rows(&mut rng)).expect("rows are sent");
            }
        });
        let (started, before) = (Instant::now(), learned(&mut requester));
        work();
        let rate = (learned(&mut requester) - before) as f64 / started.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        rate
    })
}

fn socket(decisions: u64) {
    let daemon = Daemon::start();
    let (mut requester, sender) = (daemon.requester(), daemon.sender());
    let mut rng = ChaCha8Rng::seed_from_u64(3);
    (0..40).for_each(|_| sender.send(rows(&mut rng)).expect("rows are sent"));
    while learned(&mut requester) < 4000
        || requester.ask("act", json!({"states": vec![vec![0.0; 4]]}), TIMEOUT).is_err()
    {
        std::thread::sleep(Duration::from_millis(50));
    }
    std::thread::sleep(Duration::from_secs(5));
    let size = requester.snapshot(None, TIMEOUT).expect("a model").dictionary.nrows();
    let [median, last] = quantiles(ask(&mut requester, 20_000.min(decisions)));
    println!("socket, idle, m = {size}: median {median:.0} us, 99 % {last:.0} us");
    let seconds = 10.0;
    let alone = rate(&daemon, || std::thread::sleep(Duration::from_secs_f64(seconds)));
    let mut times = Vec::new();
    let beside = rate(&daemon, || times = ask(&mut requester, decisions));
    let ([median, last], share) = (quantiles(times), beside / alone);
    println!("{decisions} decisions beside learning, none of an older model: median {median:.0} us, 99 % {last:.0} us");
    println!("rows learned: {alone:.0}/s alone, {beside:.0}/s beside them: {share:.2}");
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let place = arguments.iter().position(|argument| argument == "--decisions");
    let decisions = place.and_then(|k| arguments.get(k + 1)).map(|text| text.parse().expect("a number"));
    if arguments.iter().any(|argument| argument == "--test") {
        library(3);
    } else if arguments.iter().any(|argument| argument == "socket") {
        socket(decisions.unwrap_or(1_000_000));
    } else {
        library(decisions.unwrap_or(20_000));
    }
}
