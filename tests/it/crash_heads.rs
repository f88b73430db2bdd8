//! The real daemon with a thousand heads, killed at any moment while rows arrive and heads come and go. What was acknowledged is there
//! after every start, a change of heads as a whole or not at all, and in the end another start changes no bit of any answer.
//!
//! CRITICD_KILLS=500 makes more of it than the default of 3.

use crate::support::killed::{Shared, assert_undisturbed, client, connected, serve_command, wait_for_another};
use crate::support::program::Process;
use crate::support::{PATIENCE, asked, until, wait_or};
use criticd::client::{ClientError, Requester};
use criticd::journal::Record;
use criticd::journal::checkpoint::{Checkpoints, Directory};
use criticd::journal::store::{SqliteStorage, StoreError, for_each_group};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

/// Heads of the configuration.
const HEADS: usize = 1000;
const DISCOUNTS: [f64; 5] = [0.0, 0.3, 0.6, 0.8, 0.95];
/// Of more heads that were added at run time more are removed.
const ADDED_ABOUT: usize = 20;
/// Those who wait for answers: one appends rows, one changes heads.
const CLIENTS: u64 = 2;
const WINDOW_ROWS: usize = 2000;
/// States that all heads are asked about.
const STATES: [[f64; 1]; 5] = [[-0.9], [-0.3], [0.05], [0.5], [1.0]];

/// A head that rows of a walk with one reward can teach.
fn head(rng: &mut ChaCha8Rng, name: &str) -> Value {
    let cumulant = match rng.random_range(0..5) {
        0 => json!({"kind": "reward", "index": 0}),
        1 => json!({"kind": "state", "index": 0}),
        2 => json!({"kind": "next_state", "index": 0}),
        3 => json!({"kind": "constant", "value": rng.random_range(-1.0_f64..1.0)}),
        _ => json!({"kind": "event", "index": 0, "above": rng.random_range(-0.9_f64..0.9)}),
    };
    json!({"name": name, "cumulant": cumulant, "discount": DISCOUNTS[rng.random_range(0..DISCOUNTS.len())]})
}

/// `criticd serve` on any ports, with the heads of the configuration.
fn command(directory: &Path) -> Command {
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    let heads: Vec<String> =
        (0..HEADS).map(|k| toml::Value::try_from(head(&mut rng, &format!("c{k}"))).unwrap().to_string()).collect();
    let text = format!(
        "[[critic]]\nname = \"main\"\ndiscount = 0.7\ndictionary_max = 10\nheads = [\n{}\n]\n",
        heads.join(",\n")
    );
    serve_command(directory, &text, WINDOW_ROWS, 300)
}

/// Heads that were added at run time, by name: cumulant and discount of each.
type Added = BTreeMap<String, (Value, Value)>;

fn told(head: &Value) -> (String, (Value, Value)) {
    (head["name"].as_str().unwrap().to_owned(), (head["cumulant"].clone(), head["discount"].clone()))
}

/// Those that the daemon lists.
fn added(requester: &mut Requester) -> Result<Added, ClientError> {
    let (mut found, mut from) = (Added::new(), Some(0));
    while let Some(first) = from {
        let reply = requester.ask("heads", json!({"from": first}), PATIENCE)?;
        let heads = reply["heads"].as_array().unwrap();
        found.extend(heads.iter().filter(|head| head["added"] == true).map(told));
        from = reply["next"].as_u64();
    }
    Ok(found)
}

/// A change of heads in one request.
#[derive(Clone, Debug)]
struct Change {
    remove: Vec<String>,
    add: Vec<Value>,
}

impl Change {
    /// One that can be made where these heads are there. `names` counts the names that were given to heads. Each change adds a head of a new
    /// name, so that the heads before and after it differ.
    fn any(rng: &mut ChaCha8Rng, there: &Added, names: &mut u64) -> Self {
        let most: usize = if there.len() > ADDED_ABOUT { 4 } else { 1 };
        let mut remove: Vec<String> = Vec::new();
        for _ in 0..rng.random_range(0..=most.min(there.len())) {
            let name = there.keys().nth(rng.random_range(0..there.len())).unwrap();
            if !remove.contains(name) {
                remove.push(name.clone());
            }
        }
        let mut add = Vec::new();
        for _ in 0..rng.random_range(1..4) {
            *names += 1;
            add.push(head(rng, &format!("a{names}")));
        }
        // One that goes may come back as another in the same request.
        if rng.random_range(0..3) == 0 {
            let back = remove.first().map(|name| head(rng, name));
            add.extend(back);
        }
        Self { remove, add }
    }

    /// The heads after it, where these are there before.
    fn after(&self, there: &Added) -> Added {
        let mut after = there.clone();
        self.remove.iter().for_each(|name| drop(after.remove(name)));
        after.extend(self.add.iter().map(told));
        after
    }

    /// Names of what it removes and adds.
    fn names(&self) -> (Vec<String>, Vec<String>) {
        (self.remove.clone(), self.add.iter().map(|head| told(head).0).collect())
    }
}

/// What the present daemon lists, or the next one where that is killed meanwhile.
fn look(shared: &Shared) -> (Added, (u64, Requester)) {
    loop {
        let (start, mut requester) = connected(shared);
        match added(&mut requester) {
            Ok(found) => return (found, (start, requester)),
            Err(ClientError::Refused(refusal)) => panic!("{refusal}"),
            Err(_) => wait_for_another(shared, start),
        }
    }
}

/// Make change after change, each until it is known to be there: the heads in the end, and the changes.
fn changer(shared: &Shared) -> (Added, Vec<Change>) {
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    let (mut there, mut made, mut names) = (Added::new(), Vec::new(), 0);
    let mut connection: Option<(u64, Requester)> = None;
    loop {
        let change = Change::any(&mut rng, &there, &mut names);
        let wanted = change.after(&there);
        loop {
            let (start, requester) = connection.get_or_insert_with(|| connected(shared));
            let (start, fields) = (*start, json!({"add": change.add, "remove": change.remove}));
            match requester.ask("change_heads", fields, PATIENCE) {
                Ok(_) => break,
                Err(ClientError::Refused(refusal)) => panic!("{change:?}: {refusal}"),
                Err(_) => wait_for_another(shared, start),
            }
            // Without an acknowledgement it is there or not.
            let (found, again) = look(shared);
            connection = Some(again);
            if found == wanted {
                break;
            }
            assert_eq!(found, there, "these are neither the heads before nor those after {change:?}");
        }
        there = wanted;
        made.push(change);
        let mut state = shared.state.lock();
        if state.answered(&shared.changed) {
            return (there, made);
        }
        // Rows come between two changes, and late heads have a part of them to learn.
        let until = state.acknowledgements + rng.random_range(1..6);
        while state.acknowledgements < until && !state.finish {
            shared.changed.wait(&mut state);
        }
    }
}

/// What the values and all heads say, as text, once nothing is under way any more: every number has all its bits there.
fn settled(daemon: &Process) -> (String, Added) {
    let mut requester = daemon.requester();
    wait_or(|| {
        let status = requester.ask("status", json!({}), PATIENCE).expect("an answer");
        let critic = &status["critics"][0];
        let asked = json!({
            "states": STATES, "heads": "all", "variance": true, "returns": true, "min_offset": status["offset"],
        });
        let reply = requester.ask("value", asked, PATIENCE).expect("an answer");
        let late = &critic["heads"];
        let is_over = critic["refit"]["running"] == false
            && critic["refit"]["due"] == false
            && critic["rebuild"].is_null()
            && late["learning"] == 0
            && late["unsolved"] == 0
            && reply["heads"]["learning"].is_null()
            && reply["generation"] == critic["generation"];
        if is_over {
            let said = json!({
                "offset": reply["offset"], "generation": reply["generation"], "mean": reply["mean"],
                "variance": reply["variance"], "return_variance": reply["return_variance"], "heads": reply["heads"],
            });
            Ok((said.to_string(), added(&mut requester).expect("an answer")))
        } else {
            Err(format!("the end of what is under way: {critic}"))
        }
    })
}

/// `criticd serve`, ready.
fn serve(directory: &Path) -> Process {
    Process::start(command(directory), directory)
}

#[test]
fn kills_among_a_thousand_heads_that_come_and_go_change_no_bit() {
    let kills = asked("CRITICD_KILLS", 3);
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("data");
    let shared = Shared::default();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let (mut daemon, (there, made)) = thread::scope(|scope| {
        scope.spawn(|| client(&shared, 0));
        let changes = scope.spawn(|| changer(&shared));
        for number in 1..=kills {
            let mut daemon = serve(&path);
            let mut state = shared.state.lock();
            state.endpoints = Some((number, daemon.endpoints.clone()));
            shared.changed.notify_all();
            let until = state.acknowledgements + rng.random_range(1..60);
            while state.acknowledgements < until {
                shared.changed.wait(&mut state);
            }
            drop(state);
            // Not only right behind an answer: late heads are being learned, a record is being written.
            thread::sleep(Duration::from_micros(rng.random_range(0..20_000)));
            shared.state.lock().endpoints = None;
            daemon.kill();
        }
        let last = serve(&path);
        shared.state.lock().endpoints = Some((kills + 1, last.endpoints.clone()));
        shared.changed.notify_all();
        // Few kills may have left no checkpoint the time to be written: this one has it.
        until("a checkpoint", || !Directory::new(&path).list().unwrap().is_empty());
        let mut state = shared.state.lock();
        state.finish = true;
        shared.changed.notify_all();
        while state.done < CLIENTS {
            shared.changed.wait(&mut state);
        }
        drop(state);
        (last, changes.join().unwrap())
    });
    // The heads that came last are learned from the journal before a refit can take them along.
    settled(&daemon);
    // On a fast machine the kills have left no refit the time to end: this one has it.
    daemon.requester().ask("refit", json!({"wait": true}), PATIENCE).expect("an answer");
    let before = settled(&daemon);
    daemon.kill();
    let mut daemon = serve(&path);
    let after = settled(&daemon);
    daemon.kill();
    assert_eq!(before.1, there, "the acknowledged changes of heads, and no others");
    assert_eq!(after.1, there);
    assert!(before.0 == after.0, "another start gives other answers:\n{}\n{}", before.0, after.0);

    // Every change is in the journal once.
    let mut storage = SqliteStorage::open(&path).unwrap();
    let (mut changed, mut joined, mut adopted) = (Vec::new(), 0, 0);
    for_each_group(&mut storage, 1, |group| {
        for record in group.decode().unwrap().1 {
            match record {
                Record::Heads(change) => {
                    let names = change.add.into_iter().map(|head| head.name).collect::<Vec<String>>();
                    changed.push((change.remove, names));
                }
                Record::Rebuilt(_) => joined += 1,
                Record::Adopted { .. } => adopted += 1,
                _ => {}
            }
        }
        Ok::<(), StoreError>(())
    })
    .unwrap();
    assert_eq!(changed, made.iter().map(Change::names).collect::<Vec<_>>());

    let rows = shared.state.lock().acknowledged["client-0"];
    drop(storage);
    let undisturbed = assert_undisturbed(&path, WINDOW_ROWS, rows);
    let model = undisturbed.state.critics()[0].model().expect("there are rows enough");
    assert_eq!(model.all_heads().count(), HEADS + there.len());
    println!(
        "{kills} kills, {} changes of heads, {} heads added in the end, {rows} rows, late heads learned {joined} times, {adopted} adoptions",
        made.len(),
        there.len()
    );
    assert!(joined > 0, "no late head was learned from the journal");
}
