//! What being durable costs: latency of acknowledged appends, rows per second with and without a journal, checkpoints,
//! adoptions, and the time that a start takes. `cargo bench --bench journal`; with `-- --test` small sizes, once.

use criticd::client::{Requester, Sender};
use criticd::config::{Config, ConfigParts};
use criticd::daemon::Daemon;
use criticd::learner::Settings;
use criticd::transition::{Batch, BatchParts};
use criticd::wire;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use std::path::Path;
use std::time::{Duration, Instant};

const DIM: usize = 4;
const PATIENCE: Duration = Duration::from_secs(600);

/// A stream of four numbers that wander, in batches.
struct Stream {
    rng: ChaCha8Rng,
    state: [f64; DIM],
    seq: u64,
}

impl Stream {
    fn new() -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(1), state: [0.0; DIM], seq: 0 }
    }

    fn batch(&mut self, rows: usize) -> Batch {
        let mut states = self.state.to_vec();
        let mut rewards = Vec::new();
        for _ in 0..rows {
            rewards.push(self.state[0].sin() + self.state[1]);
            for v in &mut self.state {
                *v = 0.95 * *v + 0.3 * (self.rng.random::<f64>() - 0.5);
            }
            states.extend_from_slice(&self.state);
        }
        let seq = Some(self.seq);
        self.seq += rows as u64;
        let stream = "bench".to_owned();
        Batch::new(BatchParts { stream, seq, dim: DIM, rewards_per_row: 1, states, rewards, ..BatchParts::default() })
            .unwrap()
    }
}

fn start(directory: &Path, change: impl FnOnce(&mut ConfigParts)) -> Daemon {
    let any_port = || "tcp://127.0.0.1:0".to_owned();
    let critic = Settings { discount: 0.9, dictionary_max: 100, refit_first_rows: 0, ..Settings::default() };
    let mut parts = ConfigParts {
        data_dir: directory.to_owned(),
        ingest: any_port(),
        control: any_port(),
        publish: any_port(),
        checkpoint_rows: 1 << 40,
        critics: vec![critic],
        ..ConfigParts::default()
    };
    change(&mut parts);
    Daemon::start(Config::new(parts).unwrap()).unwrap()
}

fn requester(daemon: &Daemon) -> Requester {
    Requester::connect(&daemon.endpoints.control.to_string(), PATIENCE).unwrap()
}

fn quantile(times: &mut [f64], q: f64) -> f64 {
    times.sort_by(f64::total_cmp);
    times[((times.len() - 1) as f64 * q).round() as usize]
}

fn append_latency(sync: &str, count: usize) {
    let directory = tempfile::tempdir().unwrap();
    let daemon = start(directory.path(), |parts| parts.sync = sync.parse().unwrap());
    let (mut requester, mut stream) = (requester(&daemon), Stream::new());
    let mut times = Vec::new();
    for _ in 0..count {
        let batch = stream.batch(64);
        let started = Instant::now();
        let id = requester.post_append(&batch).unwrap();
        requester.reply(id, PATIENCE).unwrap();
        times.push(1000.0 * started.elapsed().as_secs_f64());
    }
    // What came before the dictionary was full is another matter.
    let late = &mut times[count / 4..];
    let (p50, p99) = (quantile(late, 0.5), quantile(late, 0.99));
    println!("append of 64 rows, one at a time, sync = {sync}: p50 {p50:.2} ms, p99 {p99:.2} ms");
    daemon.stop();
}

/// Push `rows` rows in batches of 256, and wait until they are learned: rows per second of the second half.
fn ingest(daemon: &Daemon, rows: usize) -> f64 {
    let mut stream = Stream::new();
    let messages: Vec<Vec<u8>> = (0..rows / 256).map(|_| wire::encode_ingest(&stream.batch(256))).collect();
    let sender = Sender::connect(&daemon.endpoints.ingest.to_string(), PATIENCE).unwrap();
    let mut requester = requester(daemon);
    let half = messages.len() / 2;
    let mut wait = |count: usize| {
        let fields = json!({"states": [[0.0, 0.0, 0.0, 0.0]], "min_offset": 256 * count});
        requester.ask("value", fields, PATIENCE).unwrap();
    };
    messages[..half].iter().for_each(|message| sender.send(message.clone()).unwrap());
    wait(half);
    let started = Instant::now();
    messages[half..].iter().for_each(|message| sender.send(message.clone()).unwrap());
    wait(messages.len());
    let rate = (256 * (messages.len() - half)) as f64 / started.elapsed().as_secs_f64();
    sender.close(PATIENCE).unwrap();
    rate
}

fn main() {
    let test = std::env::args().any(|argument| argument == "--test");
    let rows = if test { 4096 } else { 1 << 20 };
    for sync in ["always", "interval:10ms", "os"] {
        append_latency(sync, if test { 8 } else { 4000 });
    }
    let directory = tempfile::tempdir().unwrap();
    let daemon = start(directory.path(), |parts| parts.journal = false);
    println!("ingest, batches of 256, m = 100, D = 4, no journal: {:.0} rows/s", ingest(&daemon, rows));
    daemon.stop();
    let directory = tempfile::tempdir().unwrap();
    for (sync, directory) in [("os", tempfile::tempdir().unwrap()), ("always", directory)] {
        let daemon = start(directory.path(), |parts| parts.sync = sync.parse().unwrap());
        println!("the same with sync = {sync}: {:.0} rows/s", ingest(&daemon, rows));
        let mut requester = requester(&daemon);
        let started = Instant::now();
        requester.ask("checkpoint", json!({}), PATIENCE).unwrap();
        let elapsed = 1000.0 * started.elapsed().as_secs_f64();
        let figures = requester.status(PATIENCE).unwrap().journal.unwrap();
        let checkpoint = figures.checkpoint.unwrap();
        println!(
            "  checkpoint: {} bytes, answered after {elapsed:.1} ms, written in {} s; journal {} bytes for {} rows",
            checkpoint.bytes, checkpoint.seconds, figures.bytes, figures.rows
        );
        for _ in 0..if test { 1 } else { 10 } {
            requester.ask("refit", json!({"wait": true}), PATIENCE).unwrap();
        }
        let critic = requester.status(PATIENCE).unwrap().critics.remove(0);
        let size = critic.model.unwrap().dictionary_size;
        println!("  adoptions, dictionary {size}: pause {:?}", critic.adoption_pause_ms);
        daemon.stop();
        if sync == "always" {
            for (what, remove) in [("from the last checkpoint", false), ("from the beginning", true)] {
                if remove {
                    for entry in std::fs::read_dir(directory.path()).unwrap() {
                        let path = entry.unwrap().path();
                        if path.file_name().unwrap().to_string_lossy().starts_with("checkpoint-") {
                            std::fs::remove_file(path).unwrap();
                        }
                    }
                }
                let started = Instant::now();
                let daemon = start(directory.path(), |_| {});
                println!("start {what}, {rows} rows in the journal: {:.2} s", started.elapsed().as_secs_f64());
                daemon.stop();
            }
        }
    }
}
