//! A daemon that is killed again and again, clients that append to it, and what they and the killer tell each other.
#![allow(dead_code, unreachable_pub)] // each test program uses its own part

use criticd::client::{ClientError, Requester};
use criticd::sim::{self, Step, walk::Walk};
use criticd::transition::Batch;
use criticd::wire;
use parking_lot::{Condvar, Mutex};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

pub const PATIENCE: Duration = Duration::from_secs(60);

/// A daemon, which does not outlive a test that fails.
pub struct Running(Child);

impl Running {
    pub fn kill(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
    }
}

/// `criticd serve` on any ports, with this configuration file and a window of `window_rows` rows. Its critics refit often, and it makes
/// a checkpoint after every `checkpoint_rows` rows, so that a kill may meet both.
pub fn serve_command(directory: &Path, config: &str, window_rows: usize, checkpoint_rows: usize) -> Command {
    let file = directory.with_extension("toml");
    std::fs::write(&file, config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_criticd"));
    command.arg("serve").arg("--config").arg(file).arg("--data-dir").arg(directory).args(["--http", "off"]);
    for socket in ["--ingest", "--control", "--publish"] {
        command.args([socket, "tcp://127.0.0.1:0"]);
    }
    let sizes = [format!("window_rows={window_rows}"), format!("checkpoint_rows={checkpoint_rows}")];
    for setting in sizes.iter().map(String::as_str).chain([
        "log=warn",
        "critic.backfill_rows=100",
        "critic.refresh_rows=64",
        "critic.evidence_rows=60",
        "critic.search_starts=1",
        "critic.refit_first_rows=300",
        "critic.refit_rows_max=900",
        "critic.refit_budget_s=0.2",
    ]) {
        command.args(["--set", setting]);
    }
    command.stdin(Stdio::null());
    command
}

/// Start `command`, which serves this directory, and wait until it is ready: its endpoints.
pub fn start(mut command: Command, directory: &Path) -> (Running, Value) {
    let file = directory.join("endpoints.json");
    // That of the daemon before is still there: it was killed.
    drop(std::fs::remove_file(&file));
    let mut running = Running(command.spawn().unwrap());
    let deadline = Instant::now() + PATIENCE;
    loop {
        assert!(running.0.try_wait().unwrap().is_none(), "the daemon did not start");
        assert!(Instant::now() < deadline, "the daemon is not ready");
        let endpoints = std::fs::read_to_string(&file).ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
        match endpoints {
            Some(endpoints) => return (running, endpoints),
            None => thread::sleep(Duration::from_millis(2)),
        }
    }
}

/// What clients and the killer tell each other.
#[derive(Default)]
pub struct Shared {
    pub state: Mutex<State>,
    pub changed: Condvar,
}

#[derive(Default)]
pub struct State {
    /// Endpoints of the present daemon, by number of its start.
    pub endpoints: Option<(u64, Value)>,
    /// Rows acknowledged, by stream.
    pub acknowledged: HashMap<String, u64>,
    pub acknowledgements: u64,
    pub finish: bool,
    /// Clients that are ready for the end.
    pub done: u64,
}

impl State {
    /// A client has got an answer that it waited for. Whether it is to end.
    pub fn answered(&mut self, changed: &Condvar) -> bool {
        self.acknowledgements += 1;
        self.done += u64::from(self.finish);
        changed.notify_all();
        self.finish
    }
}

/// The number of the present daemon's start, and a connection to it. Where it is dead by now, the next one is waited for.
pub fn connected(shared: &Shared) -> (u64, Requester) {
    loop {
        let (start, control) = {
            let mut state = shared.state.lock();
            loop {
                match &state.endpoints {
                    Some((start, endpoints)) => break (*start, endpoints["control"].as_str().unwrap().to_owned()),
                    None => shared.changed.wait(&mut state),
                }
            }
        };
        match Requester::connect(&control, Duration::from_secs(5)) {
            Ok(requester) => return (start, requester),
            Err(_) => wait_for_another(shared, start),
        }
    }
}

/// Wait for a daemon that was started after this one.
pub fn wait_for_another(shared: &Shared, start: u64) {
    let mut state = shared.state.lock();
    while state.endpoints.as_ref().is_none_or(|(present, _)| *present <= start) {
        shared.changed.wait(&mut state);
    }
}

/// The next rows of a walk.
pub fn batch(walk: &mut Walk, stream: &str, rows: usize) -> Batch {
    let steps: Vec<Step> = (0..rows)
        .map(|_| walk.step())
        // Numbers of actions.
        .map(|step| Step { action: f64::from(step.action > 0.0), ..step })
        .collect();
    sim::batches(stream, "run", &steps).remove(0)
}

/// Append batch after batch to the stream `client-<number>`, each until it is acknowledged, and some of them twice.
pub fn client(shared: &Shared, number: u64) {
    let stream = format!("client-{number}");
    let mut rng = ChaCha8Rng::seed_from_u64(number);
    let mut walk = Walk::new(number, Some(40), 0.0);
    let mut connection: Option<(u64, Requester)> = None;
    let mut before: Option<Batch> = None;
    let mut acknowledged = 0;
    loop {
        let next = batch(&mut walk, &stream, rng.random_range(1..40));
        let end = next.seq().unwrap() + next.len() as u64;
        loop {
            let requester = match &mut connection {
                Some((_, requester)) => requester,
                None => {
                    let (start, mut requester) = connected(shared);
                    // Sometimes it is asked where to go on, sometimes what came before is sent once more.
                    if rng.random::<f64>() < 0.5 {
                        match requester.ask("streams", json!({}), PATIENCE) {
                            Ok(reply) => {
                                let known = reply["streams"][&stream]["next_seq"].as_u64().unwrap_or(0);
                                assert!(
                                    known >= acknowledged,
                                    "{stream}: {acknowledged} rows acknowledged, {known} known"
                                );
                                assert!(known <= end, "{stream}: {known} rows are known, {end} were sent");
                            }
                            Err(_) => {
                                wait_for_another(shared, start);
                                continue;
                            }
                        }
                    }
                    &mut connection.insert((start, requester)).1
                }
            };
            if let Some(before) = before.as_ref().filter(|_| rng.random::<f64>() < 0.3) {
                let _ = requester.post_append(before);
            }
            let reply = requester.post_append(&next).and_then(|id| requester.reply(id, PATIENCE));
            match reply {
                Ok(reply) => {
                    let reply = wire::to_json(&reply).unwrap();
                    assert_eq!(reply["next_seq"], end, "{stream}: {reply}");
                    break;
                }
                Err(ClientError::Refused(refusal)) => panic!("{stream}: {refusal}"),
                Err(_) => {
                    let (start, _) = connection.take().unwrap();
                    wait_for_another(shared, start);
                }
            }
        }
        acknowledged = end;
        before = Some(next);
        let mut state = shared.state.lock();
        state.acknowledged.insert(stream.clone(), acknowledged);
        if state.answered(&shared.changed) {
            return;
        }
    }
}
