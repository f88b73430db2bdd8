//! A daemon that is killed again and again, clients that append to it, and what they and the killer tell each other.

use super::PATIENCE;
use super::program::{any_ports, criticd};
use criticd::client::{ClientError, Requester};
use criticd::daemon::recovery::{Recovered, recover};
use criticd::journal::checkpoint::Directory;
use criticd::journal::store::SqliteStorage;
use criticd::sim::{self, Step, walk::Walk};
use criticd::transition::Batch;
use criticd::wire;
use parking_lot::{Condvar, Mutex};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// `criticd serve` on any ports, with this configuration file and a window of `window_rows` rows. Its critics refit often, and it makes
/// a checkpoint after every `checkpoint_rows` rows, so that a kill may meet both.
pub(crate) fn serve_command(directory: &Path, config: &str, window_rows: usize, checkpoint_rows: usize) -> Command {
    let file = directory.with_extension("toml");
    std::fs::write(&file, config).unwrap();
    let mut command = criticd();
    command.arg("serve").arg("--config").arg(file).arg("--data-dir").arg(directory).args(["--http", "off"]);
    command.args(any_ports());
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
    command
}

/// What clients and the killer tell each other.
#[derive(Default)]
pub(crate) struct Shared {
    pub state: Mutex<State>,
    pub changed: Condvar,
}

#[derive(Default)]
pub(crate) struct State {
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
    pub(crate) fn answered(&mut self, changed: &Condvar) -> bool {
        self.acknowledgements += 1;
        self.done += u64::from(self.finish);
        changed.notify_all();
        self.finish
    }
}

/// The number of the present daemon's start, and a connection to it. Where it is dead by now, the next one is waited for; one
/// that is only slow is asked again.
pub(crate) fn connected(shared: &Shared) -> (u64, Requester) {
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
        if let Ok(requester) = Requester::connect(&control, Duration::from_secs(5)) {
            return (start, requester);
        }
    }
}

/// Wait for a daemon that was started after this one.
pub(crate) fn wait_for_another(shared: &Shared, start: u64) {
    let mut state = shared.state.lock();
    while state.endpoints.as_ref().is_none_or(|(present, _)| *present <= start) {
        shared.changed.wait(&mut state);
    }
}

/// The next rows of a walk.
pub(crate) fn batch(walk: &mut Walk, stream: &str, rows: usize) -> Batch {
    let steps: Vec<Step> = (0..rows)
        .map(|_| walk.step())
        // Numbers of actions.
        .map(|step| Step { action: f64::from(step.action > 0.0), ..step })
        .collect();
    sim::batches(stream, "run", &steps).remove(0)
}

/// Append batch after batch to the stream `client-<number>`, each until it is acknowledged, and some of them twice.
pub(crate) fn client(shared: &Shared, number: u64) {
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

/// Assert that a start in this directory finds what a run would have that was never interrupted: the journal, from its beginning. It
/// has so many rows.
pub(crate) fn assert_undisturbed(directory: &Path, window_rows: usize, rows: u64) -> Recovered {
    let mut storage = SqliteStorage::open(directory).unwrap();
    let mut start =
        |checkpoints: &Path| recover(&mut storage, &Directory::new(checkpoints), window_rows, &mut |_, _| {}).unwrap();
    let nothing = tempfile::tempdir().unwrap();
    let (from_checkpoint, undisturbed) = (start(directory), start(nothing.path()));
    assert!(from_checkpoint.from_checkpoint.is_some() && undisturbed.from_checkpoint.is_none());
    assert_eq!((from_checkpoint.state.end().offset, undisturbed.state.end().offset), (rows, rows));
    let bytes = |learners| rmp_serde::to_vec_named(learners).unwrap();
    assert!(bytes(from_checkpoint.state.critics()) == bytes(undisturbed.state.critics()), "kills make another model");
    undisturbed
}
