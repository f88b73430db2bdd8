//! The real daemon, killed at any moment under clients that want acknowledgements and resend rows without one. Its
//! settings change now and then from start to start. Beside a critic of states one learns values of actions and improves, and one has heads.
//!
//! CRITICD_KILLS=500 makes more of it than the default of 8.

use crate::support::killed::{Shared, State, assert_undisturbed, batch, client, serve_command};
use crate::support::program::Process;
use crate::support::{PATIENCE, asked, until};
use criticd::client::Sender;
use criticd::journal::Record;
use criticd::journal::checkpoint::{Checkpoints, Directory};
use criticd::journal::store::{SqliteStorage, StoreError, for_each_group};
use criticd::sim::walk::Walk;
use criticd::wire;
use parking_lot::MutexGuard;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::json;
use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Streams with acknowledgements, each fed by a client of its own.
const CLIENTS: u64 = 3;
const WINDOW_ROWS: usize = 2000;

/// Settings of the first critic that change at random, and values of each; the first one holds at first.
const CHANGING: [(&str, &[&str]); 7] = [
    ("discount", &["0.9", "0.5"]),
    ("noise", &["\"correlated\"", "\"white\""]),
    ("variance", &["\"rows\"", "\"clustered\"", "\"model\""]),
    ("name", &["\"default\"", "\"other\""]),
    ("kernel", &["\"ard\"", "\"isotropic\""]),
    ("dictionary_max", &["15", "6"]),
    ("lambda", &["\"auto\"", "0.5"]),
];

/// The critics behind it.
const OTHERS: &str = "[[critic]]
name = \"acts\"
inputs = \"state_action\"
actions = 2
successor = \"improve\"
improve_rows = 100
world = true
discount = 0.8
dictionary_max = 15
[[critic]]
name = \"heads\"
discount = 0.7
dictionary_max = 10
[[critic.heads]]
name = \"soon\"
cumulant = { kind = \"reward\", index = 0 }
discount = 0.3
[[critic.heads]]
name = \"place\"
cumulant = { kind = \"state\", index = 0 }
discount = 0.9
";

/// Which value each of [`CHANGING`] has.
type Chosen = [usize; CHANGING.len()];

/// `criticd serve` on any ports, with the settings of `chosen` and of `more`.
fn command(directory: &Path, chosen: Chosen, more: &[&str]) -> Command {
    let of_first = CHANGING.iter().zip(chosen).map(|((key, values), value)| format!("{key} = {}\n", values[value]));
    let text = format!("[[critic]]\n{}{OTHERS}", of_first.collect::<String>());
    let mut command = serve_command(directory, &text, WINDOW_ROWS, 700);
    for setting in more {
        command.args(["--set", setting]);
    }
    command
}

/// Start it, and wait until it is ready.
fn serve(directory: &Path, chosen: Chosen) -> Process {
    Process::start(command(directory, chosen, &[]), directory)
}

/// Push rows that nobody acknowledges, to each daemon until it is gone.
fn pusher(shared: &Shared) {
    let mut walk = Walk::new(99, Some(40), 0.0);
    let mut start = 0;
    loop {
        let (present, ingest) = {
            let mut state = shared.state.lock();
            loop {
                if state.finish {
                    return;
                }
                match &state.endpoints {
                    Some((present, endpoints)) if *present > start => {
                        break (*present, endpoints["ingest"].as_str().unwrap().to_owned());
                    }
                    _ => shared.changed.wait(&mut state),
                }
            }
        };
        start = present;
        let Ok(sender) = Sender::connect(&ingest, Duration::from_secs(5)) else { continue };
        // As many at a time as leave the others their share.
        while sender.send(wire::encode_ingest(&batch(&mut walk, "pusher", 5))).is_ok() {
            let mut state = shared.state.lock();
            let seen = state.acknowledgements;
            // At the end the other clients have stopped, and the daemon acknowledges nothing.
            while !state.finish
                && state.acknowledgements == seen
                && state.endpoints.as_ref().is_some_and(|(p, _)| *p == present)
            {
                shared.changed.wait(&mut state);
            }
            if state.finish || state.endpoints.as_ref().is_none_or(|(p, _)| *p != present) {
                break;
            }
        }
    }
}

/// Let the clients of the last daemon end, and refits of these critics.
fn finish(shared: &Shared, daemon: &Process, directory: &Path, critics: &[&str]) {
    // Few kills may have left no checkpoint the time to be written: this one has it.
    until("a checkpoint", || !Directory::new(directory).list().unwrap().is_empty());
    let mut state = shared.state.lock();
    state.finish = true;
    while state.done < CLIENTS {
        shared.changed.wait(&mut state);
    }
    drop(state);
    // On a fast machine the kills have left no refit the time to end: these have it.
    let mut requester = daemon.requester();
    for critic in critics {
        let fields = json!({"critic": critic, "wait": true});
        requester.ask("refit", fields, PATIENCE).expect("an answer");
    }
}

#[test]
fn a_daemon_killed_at_any_moment_loses_and_repeats_nothing() {
    let kills = asked("CRITICD_KILLS", 8);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let shared = Arc::new(Shared::default());
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut chosen, mut changes, mut refused): (Chosen, _, _) = (Default::default(), 0, 0);
    let acknowledged = thread::scope(|scope| {
        for number in 0..CLIENTS {
            let shared = Arc::clone(&shared);
            scope.spawn(move || client(&shared, number));
        }
        let pushing = Arc::clone(&shared);
        scope.spawn(move || pusher(&pushing));
        for start in 1..=kills + 1 {
            if start > 1 && rng.random::<f64>() < 0.2 {
                let which = rng.random_range(0..CHANGING.len());
                chosen[which] = (chosen[which] + 1) % CHANGING[which].1.len();
                changes += 1;
            }
            if start > 1 && rng.random::<f64>() < 0.1 {
                // The rows contradict it.
                let output = command(&path, chosen, &["critic.rewards=[1]"]).output().unwrap();
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(output.status.code() == Some(1) && said.contains("learns reward 1"), "{said}");
                refused += 1;
            }
            let mut daemon = serve(&path, chosen);
            let mut state = shared.state.lock();
            state.endpoints = Some((start, daemon.endpoints.clone()));
            shared.changed.notify_all();
            if start > kills {
                drop(state);
                let (_, names) = CHANGING[3];
                finish(&shared, &daemon, &path, &[names[chosen[3]].trim_matches('"'), "acts", "heads"]);
                // SIGKILL once more: what comes next must not depend on a clean stop.
                daemon.kill();
                break;
            }
            let until = state.acknowledgements + rng.random_range(1..60);
            while state.acknowledgements < until {
                shared.changed.wait(&mut state);
            }
            state.endpoints = None;
            drop(state);
            daemon.kill();
        }
        std::mem::take(&mut shared.state.lock().acknowledged)
    });

    let (rows, adopted) = assert_rows(&path, &acknowledged);
    println!(
        "{kills} kills, {changes} changes of settings, {refused} starts refused, {rows} rows, adoptions {adopted:?}"
    );
    let undisturbed = assert_undisturbed(&path, WINDOW_ROWS, rows);
    assert!(adopted.contains_key("acts") && adopted.contains_key("heads"), "{adopted:?}");
    let critics = undisturbed.state.critics();
    let heads = critics.iter().filter_map(|critic| critic.model()?.heads()).map(|bank| bank.heads().len());
    assert_eq!(heads.sum::<usize>(), 2);
}

/// Three policies act in turn, each with a model of its own.
#[test]
fn models_that_are_kept_for_policies_return_under_kills() {
    const POLICIES: usize = 3;
    let kills = asked("CRITICD_KILLS", 8);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let settings = format!(
        "[[critic]]\nname = \"default\"\ndiscount = 0.9\ndictionary_max = 15\nwarmup_rows = 40\non_new_policy = \"keep\"\npolicies_kept = {}\n",
        POLICIES - 1
    );
    let shared = Arc::new(Shared::default());
    let mut rng = ChaCha8Rng::seed_from_u64(2);
    let mut changes = 0;
    let acknowledged = thread::scope(|scope| {
        for number in 0..CLIENTS {
            let shared = Arc::clone(&shared);
            scope.spawn(move || client(&shared, number));
        }
        for start in 1..=kills + 1 {
            let mut command = serve_command(&path, &settings, WINDOW_ROWS, 300);
            if start > kills {
                // A selection is made of the rows of its policy alone.
                command.args(["--set", "critic.refit_first_rows=0"]);
            }
            let mut daemon = Process::start(command, &path);
            let mut state = shared.state.lock();
            state.endpoints = Some((start, daemon.endpoints.clone()));
            shared.changed.notify_all();
            let mut wait = |state: &mut MutexGuard<'_, State>| {
                let until = state.acknowledgements + rng.random_range(1..40);
                while state.acknowledgements < until {
                    shared.changed.wait(state);
                }
            };
            for _ in 0..if start > kills { 2 * POLICIES } else { 2 } {
                wait(&mut state);
                let policy = format!("p{}", changes % POLICIES);
                MutexGuard::unlocked(&mut state, || {
                    daemon.requester().ask("new_policy", json!({"policy": policy}), PATIENCE).expect("an answer")
                });
                changes += 1;
            }
            wait(&mut state);
            if start > kills {
                drop(state);
                finish(&shared, &daemon, &path, &[]);
                daemon.kill();
                break;
            }
            state.endpoints = None;
            drop(state);
            daemon.kill();
        }
        std::mem::take(&mut shared.state.lock().acknowledged)
    });
    let (rows, _) = assert_rows(&path, &acknowledged);
    let undisturbed = assert_undisturbed(&path, WINDOW_ROWS, rows);
    let (mut last, mut changed) = (0, 0);
    for_each_group(&mut SqliteStorage::open(&path).unwrap(), 1, |group| {
        for record in group.decode().unwrap().1 {
            if let Record::NewPolicy(change) = record {
                (last, changed) = (change.offset, changed + 1);
            }
        }
        Ok::<(), StoreError>(())
    })
    .unwrap();
    println!("{kills} kills, {changes} changes of policy, {rows} rows");
    assert_eq!(changed, changes, "every acknowledged change is there once");
    let critic = &undisturbed.state.critics()[0];
    assert_eq!(critic.kept_policies().count(), POLICIES - 1);
    // It has learned more than since its policy acts again.
    let learned = critic.model().unwrap().statistics().rows;
    assert!(learned > rows - last, "{learned} rows of a model whose policy acts since offset {last} of {rows}");
}

/// Assert that every acknowledged row is in the journal once, as it was sent. Gives the number of all rows, and of the adoptions of
/// each critic.
fn assert_rows(directory: &Path, acknowledged: &HashMap<String, u64>) -> (u64, HashMap<String, u64>) {
    let mut storage = SqliteStorage::open(directory).unwrap();
    let mut sent: HashMap<String, Walk> =
        (0..CLIENTS).map(|number| (format!("client-{number}"), Walk::new(number, Some(40), 0.0))).collect();
    let mut next_seq: HashMap<String, u64> = HashMap::new();
    let (mut rows, mut adopted) = (0, HashMap::<String, u64>::new());
    for_each_group(&mut storage, 1, |group| {
        for record in group.decode().unwrap().1 {
            match record {
                Record::Rows(taken) => {
                    let stream = taken.batch.stream().to_owned();
                    let expected = next_seq.entry(stream.clone()).or_default();
                    for i in 0..taken.batch.len() {
                        let seq = taken.batch.seq().unwrap() + i as u64;
                        if let Some(walk) = sent.get_mut(&stream) {
                            assert_eq!(seq, *expected, "{stream}");
                            let step = walk.step();
                            assert_eq!(
                                (taken.batch.state(i), taken.batch.reward(i)),
                                (&step.state[..], &[step.reward][..])
                            );
                        } else {
                            assert!(seq >= *expected, "{stream}: row {seq} is there twice");
                        }
                        *expected = seq + 1;
                        rows += 1;
                    }
                }
                Record::Adopted { critic, .. } => *adopted.entry(critic).or_default() += 1,
                _ => {}
            }
        }
        Ok::<(), StoreError>(())
    })
    .unwrap();
    for (stream, acknowledged) in acknowledged {
        assert!(next_seq[stream] >= *acknowledged, "{stream}: {} of {acknowledged} rows", next_seq[stream]);
    }
    assert_eq!(acknowledged.len() as u64, CLIENTS);
    (rows, adopted)
}
