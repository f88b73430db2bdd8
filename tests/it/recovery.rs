//! Nothing that was acknowledged is lost, nothing is learned twice, and what comes back is the same bit for bit; or the
//! start is refused.

use crate::support::harness::{Handed, Harness, Ways, config as settings};
use crate::support::program;
use criticd::config::Config;
use criticd::daemon::core::{Now, RefitDone};
use criticd::daemon::recovery::{RecoverError, recover};
use criticd::journal::checkpoint::{Checkpoints, Directory};
use criticd::journal::memory::{Disk, MemoryCheckpoints, MemoryStorage};
use criticd::journal::store::{DATABASE, MARK, SqliteStorage, Storage};
use criticd::journal::{GroupWriter, Record, VERSION};
use criticd::sim::{self, Step, walk::Walk};
use criticd::snapshot::Ask;
use criticd::transition::{Batch, BatchParts};
use criticd::wire::{self, Op};
use parking_lot::Mutex;
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::sync::Arc;

const QUICK: &str = "window_rows = 500\nstreams_max = 3\nstreams_idle_rows = 100\ncheckpoint_rows = 1000000\n\
                     [[critic]]\nname = \"main\"\ndiscount = 0.9\nevidence_rows = 60\nstarts = 1\ndictionary_max = 12\n\
                     backfill_rows = 40\nrefresh_rows = 32\nwarmup_rows = 20\nrefit_first_rows = 0\n";

fn config(more: &str) -> Arc<Config> {
    settings(&format!("{more}{QUICK}"))
}

/// Refits and checkpoints are carried out where they are handed out. Rebuilds can read nothing.
const ALONE: Ways =
    Ways { tick: 0.125, turns: 10, checkpoints: Handed::AtOnce, rebuilds: Handed::Fails, ..Ways::GOING };

/// A core that keeps its journal in `storage`, if it starts there.
fn opened(
    config: &Arc<Config>,
    storage: impl Storage + 'static,
    checkpoints: &Arc<dyn Checkpoints>,
) -> Result<Harness, RecoverError> {
    let mut harness = Harness::open(Arc::clone(config), storage, Arc::clone(checkpoints), ALONE)?;
    harness.turn();
    Ok(harness)
}

/// A core on a disk that rebuilds can read.
fn opened_on(config: &Arc<Config>, disk: &Arc<Mutex<Disk>>, checkpoints: &Arc<dyn Checkpoints>) -> Harness {
    let ways = Ways { rebuilds: Handed::AtOnce, ..ALONE };
    let mut harness = Harness::on(Arc::clone(config), Arc::clone(disk), Arc::clone(checkpoints), ways);
    harness.turn();
    harness
}

fn walk(stream: &str, seed: u64, rows: usize, chunk: usize) -> Vec<Batch> {
    let mut walk = Walk::new(seed, Some(25), 0.0);
    let steps: Vec<Step> = (0..rows).map(|_| walk.step()).collect();
    sim::batches(stream, "run", &steps).into_iter().flat_map(|batch| split(&batch, chunk)).collect()
}

/// The rows of a batch in batches of at most `rows`.
fn split(batch: &Batch, rows: usize) -> Vec<Batch> {
    (0..batch.len())
        .step_by(rows)
        .map(|from| {
            let range = from..batch.len().min(from + rows);
            let collect = |row: &dyn Fn(usize) -> Vec<f64>| range.clone().flat_map(row).collect::<Vec<f64>>();
            Batch::new(BatchParts {
                stream: batch.stream().into(),
                session: batch.session().into(),
                seq: batch.seq().map(|seq| seq + from as u64),
                dim: batch.dim(),
                rewards_per_row: batch.rewards_per_row(),
                states: collect(&|i| batch.state(i).to_vec()),
                next_states: Some(collect(&|i| batch.next_state(i).to_vec())),
                rewards: collect(&|i| batch.reward(i).to_vec()),
                terminated: Some(range.clone().map(|i| batch.terminated(i)).collect()),
                truncated: Some(range.clone().map(|i| batch.truncated(i)).collect()),
                ..BatchParts::default()
            })
            .unwrap()
        })
        .collect()
}

/// Rows of changing streams in groups of changing size, with refits and checkpoints in between.
fn live(harness: &mut Harness) {
    let streams = ["one", "two", "one", "three", "four"];
    for (k, stream) in streams.iter().enumerate() {
        let name = if k == 2 { "one" } else { stream };
        let session = k as u64;
        for (i, batch) in walk(name, session, 130, 1 + 5 * k).into_iter().enumerate() {
            if k == 2 {
                // A gap, and rows that are there already.
                harness.ingest(&shifted(&batch, 140));
            } else {
                harness.call(Op::Append(batch.clone()));
                if i % 3 == 0 {
                    harness.call(Op::Append(batch));
                }
            }
            if i % (k + 1) == 0 {
                harness.turn();
            }
        }
        if k % 2 == 1 {
            harness.call(Op::Refit { critic: None, wait: false });
            harness.turn();
        }
        if k == 1 || k == 2 {
            assert_eq!(harness.ask(Op::Checkpoint)["ok"], true);
        }
    }
    (0..4).for_each(|_| harness.turn());
    assert!(harness.replies.iter().all(|reply| reply["ok"] == true), "{:?}", harness.replies.last());
    assert_eq!(harness.core.offset(), 650);
}

fn shifted(batch: &Batch, by: u64) -> Batch {
    let numbers = |row: &dyn Fn(usize) -> Vec<f64>| (0..batch.len()).flat_map(row).collect::<Vec<f64>>();
    Batch::new(BatchParts {
        stream: batch.stream().into(),
        session: batch.session().into(),
        seq: batch.seq().map(|seq| seq + by),
        dim: batch.dim(),
        rewards_per_row: 1,
        states: numbers(&|i| batch.state(i).to_vec()),
        next_states: Some(numbers(&|i| batch.next_state(i).to_vec())),
        rewards: numbers(&|i| batch.reward(i).to_vec()),
        terminated: Some((0..batch.len()).map(|i| batch.terminated(i)).collect()),
        truncated: Some((0..batch.len()).map(|i| batch.truncated(i)).collect()),
        ..BatchParts::default()
    })
    .unwrap()
}

#[test]
fn what_comes_back_is_the_same_bit_for_bit_from_every_checkpoint_and_from_none() {
    let config = config("");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(Directory::new(path));
    let mut harness = opened(&config, SqliteStorage::open(path).unwrap(), &checkpoints).unwrap();
    live(&mut harness);
    let expected = harness.state();
    let generation = harness.ask(Op::Status)["critics"][0]["generation"].as_u64().unwrap();
    assert!(generation >= 2, "no model was adopted");
    drop(harness);
    for left in [2, 1, 0] {
        let harness = opened(&config, SqliteStorage::open(path).unwrap(), &checkpoints).unwrap();
        assert!(harness.state() == expected, "another state from {left} checkpoints");
        let recovered = harness.core.recovered().unwrap();
        assert_eq!(recovered.from_checkpoint.is_none(), left == 0, "{recovered:?}");
        if let Some(newest) = checkpoints.list().unwrap().first() {
            fs::remove_file(Directory::new(path).file(*newest)).unwrap();
        }
    }
    // And the same from storage of the other kind, with the same calls: nothing depends on where it is kept.
    let disk = Arc::new(Mutex::new(Disk::default()));
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
    let mut harness = opened(&config, MemoryStorage::on(Arc::clone(&disk)), &checkpoints).unwrap();
    live(&mut harness);
    let after = harness.state();
    drop(harness);
    let harness = opened(&config, MemoryStorage::on(disk), &checkpoints).unwrap();
    assert!(harness.state() == after);
}

/// The rows of `batch` with what two policies make of them.
fn judged(batch: Batch) -> Batch {
    let (n, seq) = (batch.len() as u64, batch.seq().unwrap_or(0));
    // Ratios that have no short binary fraction, one of them 0.
    let column = |step: f64| Some((seq..seq + n).map(|k| step * (1 + k % 7) as f64).collect());
    let target = (seq..seq + n).map(|k| if k % 11 == 0 { 0.0 } else { 0.3 }).collect();
    Batch::new(BatchParts {
        behavior_probs: column(0.1),
        target_probs: Some(target),
        next_actions: column(1.0 / 3.0),
        next_action_probs: Some([0.2, 0.3, 0.5].repeat(batch.len())),
        ..batch.into_parts()
    })
    .unwrap()
}

#[test]
fn what_rows_say_about_policies_outlives_a_crash() {
    let config = config("");
    let disk = Arc::new(Mutex::new(Disk::default()));
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
    let open = || opened(&config, MemoryStorage::on(Arc::clone(&disk)), &checkpoints).unwrap();
    let mut harness = open();
    let batches: Vec<Batch> = walk("one", 3, 120, 7)
        .into_iter()
        .enumerate()
        .map(|(i, batch)| if i % 3 == 2 { batch } else { judged(batch) })
        .collect();
    for (i, batch) in batches.iter().enumerate() {
        // Some through either socket.
        if i % 2 == 0 {
            harness.call(Op::Append(batch.clone()));
        } else {
            harness.ingest(batch);
        }
        harness.turn();
        if i == 9 {
            assert_eq!(harness.ask(Op::Checkpoint)["ok"], true);
        }
    }
    assert_eq!(harness.core.offset(), 120);
    let expected = harness.state();
    let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let said: Vec<u64> = batches.iter().flat_map(|b| (0..b.len()).map(|i| b.ratio(i).to_bits())).collect();
    drop(harness);
    disk.lock().crash(0);

    let mut harness = open();
    assert!(harness.state() == expected);
    let recovered = recover(&mut MemoryStorage::on(Arc::clone(&disk)), &*checkpoints, 1000, &mut |_, _| {}).unwrap();
    let window = recovered.state.window().unwrap();
    let rows = window.flatten();
    assert!(rows.ratios.contains(&0.0) && rows.ratios.contains(&1.0));
    assert_eq!(bits(&rows.ratios), said[window.start() as usize..]);

    // The fingerprints in the checkpoint cover it: the same row is a duplicate, another probability a conflict.
    harness.replies.clear();
    let last = batches.iter().rfind(|batch| batch.behavior_prob(0).is_some()).unwrap();
    harness.call(Op::Append(last.clone()));
    harness.turn();
    let mut parts = last.clone().into_parts();
    parts.behavior_probs.as_mut().unwrap()[0] *= 0.5;
    harness.call(Op::Append(Batch::new(parts).unwrap()));
    harness.turn();
    assert_eq!(harness.replies[0]["duplicates"], last.len(), "{}", harness.replies[0]);
    assert_eq!(harness.replies[1]["error"]["code"], "conflict");
}

/// What a program before this one has written is what this one writes: no byte of a journal changes where rows say nothing
/// new.
#[test]
fn groups_of_format_version_1_are_written_as_they_were() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/journal-v1").join(DATABASE);
    let directory = tempfile::tempdir().unwrap();
    fs::copy(file, directory.path().join(DATABASE)).unwrap();
    let mut seen = 0;
    for group in SqliteStorage::open(directory.path()).unwrap().read(1, u64::MAX).unwrap() {
        let (time, records) = group.decode().unwrap();
        let mut writer = GroupWriter::default();
        for record in &records {
            if let Record::Rows(taken) = record {
                writer.take(taken);
            }
        }
        if writer.rows() == group.rows && group.kinds == criticd::journal::ROWS {
            assert_eq!(writer.finish(group.id, group.first_offset, group.previous_crc, time), group);
            seen += 1;
        }
    }
    assert!(seen > 10, "{seen}");
}

/// Settings of critics as [`QUICK`] has them, each with the reward column that it learns.
fn columns(critics: &[(&str, usize)]) -> Arc<Config> {
    let (head, table) = QUICK.split_once("[[critic]]").unwrap();
    let table = table.replace("name = \"main\"\n", "");
    let tables =
        critics.iter().map(|(name, column)| format!("[[critic]]\nname = {name:?}\nrewards = [{column}]{table}"));
    settings(&format!("{head}{}", tables.collect::<String>()))
}

#[test]
fn a_reward_that_rows_do_not_have_is_refused_at_a_start_and_nothing_is_written() {
    let disk = Arc::new(Mutex::new(Disk::default()));
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
    let open = |config: &Arc<Config>| opened(config, MemoryStorage::on(Arc::clone(&disk)), &checkpoints);
    let good = columns(&[("main", 0)]);
    let mut harness = open(&good).unwrap();
    walk("one", 1, 200, 10).iter().for_each(|batch| harness.ingest(batch));
    harness.turn();
    let state = harness.state();
    drop(harness);
    let groups = disk.lock().groups.clone();
    for bad in [columns(&[("main", 1)]), columns(&[("main", 0), ("energy", 3)])] {
        let Err(refused) = open(&bad) else { panic!("it is not refused") };
        assert!(matches!(&refused, RecoverError::Settings(_)), "{refused}");
        let why = refused.to_string();
        assert!(why.contains("rows have 1 reward in the journal") && why.contains("data_dir"), "{why}");
        assert!(disk.lock().groups == groups, "something was written");
    }
    assert!(open(&good).unwrap().state() == state);
}

/// `rows` of a walk, with an action of one number each.
fn with_actions(batch: &Batch) -> Batch {
    let actions = Some((0..batch.len()).map(|i| (i % 2) as f64).collect());
    Batch::new(BatchParts { actions, ..batch.clone().into_parts() }).unwrap()
}

#[test]
fn action_values_that_no_row_can_teach_are_refused_at_a_start_and_nothing_is_written() {
    let disk = Arc::new(Mutex::new(Disk::default()));
    let kept = MemoryCheckpoints::default();
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(kept.clone());
    let open = |config: &Arc<Config>| opened(config, MemoryStorage::on(Arc::clone(&disk)), &checkpoints);
    let actions = |count| format!("inputs = \"state_action\"\nactions = {count}\nsuccessor = \"sarsa\"\n");
    let changed = config_with("discount = 0.9\n", &format!("discount = 0.9\n{}", actions(2)));
    let added = |count| settings(&format!("{QUICK}[[critic]]\nname = \"q\"\n{}", actions(count)));
    let good = config("");
    let batches = walk("one", 1, 200, 10);
    let mut harness = open(&good).unwrap();
    batches[..15].iter().for_each(|batch| harness.ingest(batch));
    harness.turn();
    let state = harness.state();
    drop(harness);
    let groups = disk.lock().groups.clone();
    for (bad, name) in [(changed, "main"), (added(2), "q")] {
        let Err(refused) = open(&bad) else { panic!("it is not refused") };
        let why = refused.to_string();
        assert!(matches!(&refused, RecoverError::Settings(_)), "{why}");
        assert!(why.contains(name) && why.contains("150 rows") && why.contains("data_dir"), "{why}");
        assert!(disk.lock().groups == groups && kept.aside().is_empty(), "something was written");
    }
    let mut harness = open(&good).unwrap();
    assert!(harness.state() == state);
    // Rows with actions teach it, if they are actions that it knows.
    batches[15..].iter().for_each(|batch| harness.ingest(&with_actions(batch)));
    harness.turn();
    drop(harness);
    assert!(open(&added(1)).is_ok(), "action 0 is there");
    drop(open(&added(2)).unwrap());
    assert!(open(&added(2)).is_ok(), "it goes on");
}

/// Checkpoints beside which no model can be kept.
#[derive(Debug)]
struct Crowded(MemoryCheckpoints);

impl Checkpoints for Crowded {
    fn list(&self) -> std::io::Result<Vec<u64>> {
        self.0.list()
    }

    fn read(&self, group: u64) -> std::io::Result<Vec<u8>> {
        self.0.read(group)
    }

    fn write(&self, group: u64, bytes: &[u8]) -> std::io::Result<()> {
        self.0.write(group, bytes)
    }

    fn set_aside(&self, _: &str, _: u64, _: &[u8]) -> std::io::Result<String> {
        Err(std::io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn a_model_that_cannot_be_set_aside_is_not_given_up() {
    let disk = Arc::new(Mutex::new(Disk::default()));
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(Crowded(MemoryCheckpoints::default()));
    let open = |config: &Arc<Config>| opened(config, MemoryStorage::on(Arc::clone(&disk)), &checkpoints);
    let mut harness = open(&config("")).unwrap();
    walk("one", 1, 200, 10).iter().for_each(|batch| harness.ingest(batch));
    harness.turn();
    let state = harness.state();
    drop(harness);
    let groups = disk.lock().groups.clone();
    let Err(refused) = open(&config_with("discount = 0.9", "discount = 0.5")) else { panic!("it is not refused") };
    let why = refused.to_string();
    assert!(why.contains("\"main\"") && why.contains("discount was 0.9, is 0.5"), "{why}");
    assert!(why.contains("cannot be set aside") && why.contains("data_dir"), "{why}");
    assert!(disk.lock().groups == groups, "something was written");
    assert!(open(&config("")).unwrap().state() == state);
}

#[test]
fn settings_that_an_older_program_recorded_cost_their_critic_alone() {
    use criticd::journal::Configured;
    let disk = Arc::new(Mutex::new(Disk::default()));
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
    let open = |config: &Arc<Config>| opened(config, MemoryStorage::on(Arc::clone(&disk)), &checkpoints);
    let mut harness = open(&columns(&[("main", 0)])).unwrap();
    walk("one", 1, 200, 10).iter().for_each(|batch| harness.ingest(batch));
    harness.turn();
    let main = rmp_serde::to_vec_named(&harness.core.checkpoint(Now { uptime: 0.0, unix: 0.0 }).learners[0]).unwrap();
    drop(harness);
    // It took over a critic for a reward that there is none of, and died of it.
    let last = disk.lock().groups.last().unwrap().clone();
    let bad = columns(&[("main", 0), ("energy", 1)]);
    let mut writer = GroupWriter::default();
    writer.configured(&Configured { critics: bad.critics.clone(), names: None, from: 0, ..Configured::default() });
    disk.lock().groups.push(writer.finish(last.id + 1, last.end(), last.crc, 1e9));
    disk.lock().synced += 1;

    assert!(matches!(open(&bad), Err(RecoverError::Settings(_))));
    let mut harness = open(&columns(&[("main", 0), ("energy", 0)])).unwrap();
    assert_eq!(harness.core.offset(), 200);
    let learners = harness.core.checkpoint(Now { uptime: 0.0, unix: 0.0 }).learners;
    assert!(rmp_serde::to_vec_named(&learners[0]).unwrap() == main, "the other critic is as it was");
    let status = harness.ask(Op::Status);
    assert_eq!((&status["critics"][0]["failed"], &status["critics"][1]["failed"]), (&Value::Null, &Value::Null));
    assert!(status["critics"][1]["transitions"].as_u64().is_some_and(|rows| rows > 0), "{status}");
}

#[test]
fn a_setting_that_a_model_cannot_go_on_with_sets_it_aside_and_learns_all_rows_again() {
    let disk = Arc::new(Mutex::new(Disk::default()));
    let kept = MemoryCheckpoints::default();
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(kept.clone());
    let open = |config: &Arc<Config>| opened_on(config, &disk, &checkpoints);
    let wait = |harness: &mut Harness| (0..12).for_each(|_| harness.turn());
    // More rows than the window holds, and a policy that is announced in between.
    let batches = walk("one", 1, 9000, 60);
    let mut harness = open(&config(""));
    for (i, batch) in batches[..140].iter().enumerate() {
        harness.ingest(batch);
        harness.turn();
        if i == 20 {
            harness.call(Op::NewPolicy { critic: None, policy: Some("second".into()) });
        }
    }
    drop(harness);
    let other = config_with("discount = 0.9", "discount = 0.5");
    let mut harness = opened(&other, MemoryStorage::on(Arc::clone(&disk)), &checkpoints).unwrap();
    harness.turn();
    let status = harness.ask(Op::Status);
    assert_eq!(status["critics"][0]["rebuild"]["failed"], "nothing to read", "{status}");
    let told = status["recovered"]["set_aside"][0].as_str().unwrap().to_owned();
    assert!(told.contains("discount was 0.9, is 0.5") && told.contains("main-8400"), "{told}");
    let aside = wire::to_json(&kept.aside()["main-8400"]).unwrap();
    assert_eq!((&aside["generation"], &aside["offset"]), (&1.into(), &8400.into()));
    // It answers meanwhile, and takes rows.
    let few = status["critics"][0]["transitions"].as_u64().unwrap();
    assert!((20..=500).contains(&few), "{few}");
    drop(harness);
    // The next start tries again; rows that arrive are learned too.
    let mut harness = open(&other);
    batches[140..145].iter().for_each(|batch| harness.ingest(batch));
    wait(&mut harness);
    let status = harness.ask(Op::Status);
    let critic = &status["critics"][0];
    assert_eq!(
        (&critic["rebuild"], &critic["learned"], &critic["policy"]),
        (&Value::Null, &8700.into(), &"second".into())
    );
    // All rows of the policy that acts, not those of the window alone; and 512 for the ones of the policy before.
    assert_eq!(critic["transitions"], 8700 - 21 * 60 + 512, "{critic}");
    assert!(critic["generation"].as_u64() > Some(1), "{critic}");
    batches[145..].iter().for_each(|batch| harness.ingest(batch));
    wait(&mut harness);
    let expected = harness.state();
    // Read back with a checkpoint or without one it is the same.
    drop(harness);
    let harness = open(&other);
    assert!(harness.state() == expected);
    assert_eq!(kept.aside().len(), 1, "nothing was set aside again");
    drop(harness);
    kept.files().lock().clear();
    let mut harness = open(&other);
    assert!(harness.state() == expected);
    // By hand it is the same again, up to its number.
    let reply = harness.ask(Op::Rebuild { critic: None, wait: true });
    assert_eq!((&reply["ok"], &reply["outcome"]), (&true.into(), &"adopted".into()), "{reply}");
    let again = harness.ask(Op::Status)["critics"][0].clone();
    assert_eq!(again["transitions"], 9000 - 21 * 60 + 512, "{again}");
    assert_eq!(harness.ask(Op::Rebuild { critic: Some("x".into()), wait: true })["error"]["code"], "unknown_critic");
}

#[test]
fn a_critic_that_is_added_learns_all_that_is_retained() {
    let disk = Arc::new(Mutex::new(Disk::default()));
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
    let open = |config: &Arc<Config>| opened_on(config, &disk, &checkpoints);
    let mut harness = open(&columns(&[("main", 0)]));
    for batch in walk("one", 1, 6000, 60) {
        harness.ingest(&batch);
        harness.turn();
    }
    drop(harness);
    let both = columns(&[("main", 0), ("late", 0)]);
    let mut harness = open(&both);
    (0..12).for_each(|_| harness.turn());
    let status = harness.ask(Op::Status);
    let rows = |critic: usize| status["critics"][critic]["transitions"].as_u64();
    assert_eq!((rows(0), rows(1)), (Some(6000), Some(6000)), "{status}");
    // Learned from the same groups with the same settings it is the same model.
    let learners = harness.core.checkpoint(Now { uptime: 0.0, unix: 0.0 }).learners;
    let model = |index: usize| {
        let snapshot = learners[index].snapshot(true).unwrap();
        (snapshot.weights.as_slice().to_vec(), snapshot.variance.map(|variance| variance.as_slice().to_vec()))
    };
    assert!(model(0) == model(1), "another model");
}

#[test]
fn a_start_on_a_disk_that_takes_nothing_answers_and_stores_nothing() {
    let disk = Arc::new(Mutex::new(Disk::default()));
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
    let open = |config: &Arc<Config>| opened(config, MemoryStorage::on(Arc::clone(&disk)), &checkpoints).unwrap();
    let batches = walk("one", 1, 200, 10);
    let mut harness = open(&config(""));
    batches[..10].iter().for_each(|batch| harness.ingest(batch));
    harness.turn();
    let state = harness.state();
    drop(harness);
    // With the settings that were, and with others, which are to be recorded.
    for (settings, discount) in [(config(""), 0.9), (config_with("discount = 0.9", "discount = 0.5"), 0.5)] {
        let groups = disk.lock().groups.clone();
        let operations = disk.lock().operations;
        disk.lock().failing = Some((operations, u64::MAX - operations));
        let mut harness = open(&settings);
        let status = harness.ask(Op::Status);
        assert_eq!((&status["read_only"], &status["offset"]), (&"a write failed".into(), &100.into()), "{status}");
        assert_eq!(status["critics"][0]["discount"], discount);
        assert!(harness.core.board().get(0).is_some_and(|snapshot| snapshot.offset == 100), "queries are answered");
        if discount == 0.9 {
            assert!(harness.state() == state, "nothing is changed");
        }
        assert_eq!(harness.ask(Op::Append(batches[10].clone()))["error"]["code"], "read_only");
        (0..20).for_each(|_| harness.turn());
        assert!(disk.lock().groups == groups);
        // There is room again.
        disk.lock().failing = None;
        (0..20).for_each(|_| harness.turn());
        assert_eq!(harness.ask(Op::Status)["read_only"], Value::Null);
        let expected = harness.state();
        drop(harness);
        assert!(open(&settings).state() == expected);
    }
}

/// [`QUICK`] with a line replaced.
fn config_with(line: &str, other: &str) -> Arc<Config> {
    assert!(QUICK.contains(line));
    settings(&QUICK.replace(line, other))
}

#[test]
fn a_start_can_be_stopped_and_leaves_a_checkpoint_on_the_way() {
    use criticd::daemon::recovery::{OnTheWay, recover_watched};
    let config = config("");
    let disk = Arc::new(Mutex::new(Disk::default()));
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
    let mut harness = opened(&config, MemoryStorage::on(Arc::clone(&disk)), &checkpoints).unwrap();
    for batch in walk("one", 1, 300, 10) {
        harness.ingest(&batch);
        harness.turn();
    }
    let expected = harness.state();
    drop(harness);
    // The disk is not known to have the last groups: no checkpoint may know them.
    let durable = disk.lock().groups[20].mark();
    disk.lock().mark = Some(durable);
    let mut watched = |rows, of| {
        assert_eq!(of, 300);
        if rows < 250 { OnTheWay::Checkpoint(1e9) } else { OnTheWay::Stop }
    };
    let mut storage = MemoryStorage::on(Arc::clone(&disk));
    let stopped = recover_watched(&mut storage, &*checkpoints, 500, &mut watched);
    assert!(matches!(stopped, Err(RecoverError::Stopped)), "{stopped:?}");
    assert_eq!(checkpoints.list().unwrap().first(), Some(&durable.id));
    let harness = opened(&config, MemoryStorage::on(disk), &checkpoints).unwrap();
    assert_eq!(harness.core.recovered().unwrap().rows_replayed, 100);
    assert!(harness.state() == expected);
}

#[test]
fn a_restart_in_the_middle_changes_nothing() {
    let config = config("");
    let run = |restart: bool| {
        let disk = Arc::new(Mutex::new(Disk::default()));
        let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
        let open = || opened(&config, MemoryStorage::on(Arc::clone(&disk)), &checkpoints).unwrap();
        let mut harness = open();
        for (i, batch) in walk("one", 3, 400, 7).iter().enumerate() {
            harness.call(Op::Append(batch.clone()));
            harness.turn();
            if i == 20 {
                harness.ask(Op::Checkpoint);
            }
            if restart && i % 17 == 0 {
                let now = harness.now;
                disk.lock().crash(0);
                harness = open();
                harness.now = now;
            }
        }
        // Times are those of other turns; what was learned is not.
        harness.core.checkpoint(Now { uptime: 0.0, unix: 0.0 }).learners
    };
    let bytes = |learners| rmp_serde::to_vec_named(&learners).unwrap();
    assert!(bytes(run(true)) == bytes(run(false)));
}

/// A producer that keeps to the protocol: it sends its batches in order and again until they are acknowledged.
struct Producer {
    batches: Vec<Batch>,
    acknowledged: usize,
}

impl Producer {
    fn new(rows: usize) -> Self {
        Self { batches: walk("one", 9, rows, 10), acknowledged: 0 }
    }

    fn acknowledged_rows(&self) -> u64 {
        self.batches[..self.acknowledged].iter().map(|batch| batch.len() as u64).sum()
    }

    /// Send the next batch, and the one before once more.
    fn send(&mut self, harness: &mut Harness) {
        let Some(batch) = self.batches.get(self.acknowledged) else { return };
        if let Some(before) = self.acknowledged.checked_sub(1) {
            harness.call(Op::Append(self.batches[before].clone()));
            harness.turn();
            harness.replies.clear();
        }
        harness.call(Op::Append(batch.clone()));
        harness.turn();
        let reply = harness.replies.pop().expect("every append is answered");
        if reply["ok"] == true {
            self.acknowledged += 1;
            assert_eq!(reply["offset"], self.acknowledged_rows());
        } else {
            assert_eq!(reply["error"]["code"], "read_only", "{reply}");
        }
    }
}

#[test]
fn whichever_write_or_sync_fails_no_acknowledged_row_is_lost() {
    for sync in ["always", "interval:100ms"] {
        let config = config(&format!("sync = \"{sync}\"\n"));
        let operations = {
            let disk = Arc::new(Mutex::new(Disk::default()));
            failing_run(&config, &disk, &Producer::new(120), None);
            disk.lock().operations
        };
        assert!(operations > 20, "{operations}");
        for k in 0..operations {
            for failures in [1, 2, 5] {
                for (kept, crash_at_once) in [(0, false), (0, true), (1, true), (9, true)] {
                    let disk = Arc::new(Mutex::new(Disk::default()));
                    disk.lock().failing = Some((k, failures));
                    let case = format!("{sync}: {failures} failures from operation {k}, {kept} groups kept");
                    let stop = crash_at_once.then_some(kept);
                    let (acknowledged, read_only) = failing_run(&config, &disk, &Producer::new(120), stop);
                    // Within an interval a power cut costs what was acknowledged since: there the daemon dies, the machine does not.
                    let kept = if sync == "always" { kept } else { usize::MAX };
                    disk.lock().crash(kept);
                    let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
                    let harness = opened(&config, MemoryStorage::on(disk), &checkpoints).expect(&case);
                    let offset = harness.core.offset();
                    if sync == "always" {
                        assert!(offset >= acknowledged, "{case}: {offset} of {acknowledged} rows");
                    }
                    assert!(offset <= acknowledged + 10, "{case}: {offset} of {acknowledged} rows");
                    if !crash_at_once {
                        assert_eq!(acknowledged, 120, "{case}: it did not recover by itself");
                        assert!(read_only || k + 1 == operations, "{case}: nothing failed");
                    }
                }
            }
        }
    }
}

/// Acknowledged rows, and whether the daemon was ever read-only. With `stop` the run ends at the first failure.
fn failing_run(config: &Arc<Config>, disk: &Arc<Mutex<Disk>>, producer: &Producer, stop: Option<usize>) -> (u64, bool) {
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
    let Ok(mut harness) = opened(config, MemoryStorage::on(Arc::clone(disk)), &checkpoints) else {
        // The start itself failed: it is tried again.
        disk.lock().failing = None;
        return if stop.is_some() { (0, true) } else { (failing_run(config, disk, producer, None).0, true) };
    };
    let mut producer = Producer { batches: producer.batches.clone(), acknowledged: 0 };
    let mut read_only = false;
    for _ in 0..300 {
        producer.send(&mut harness);
        let now = harness.at();
        harness.core.sync_if_due(now, &|| now.uptime);
        read_only |= harness.core.read_only().is_some();
        if harness.core.read_only().is_some() {
            // Queries are answered meanwhile.
            assert_eq!(harness.ask(Op::Status)["ok"], true);
            if stop.is_some() {
                break;
            }
        }
        if producer.acknowledged == producer.batches.len() {
            break;
        }
    }
    // Once everything works again the daemon does, too, and it has learned what was acknowledged.
    if stop.is_none() {
        for _ in 0..10 {
            harness.pass(2.0);
            harness.turn();
        }
        assert!(harness.core.read_only().is_none());
        assert_eq!(harness.core.offset(), producer.acknowledged_rows());
    }
    (producer.acknowledged_rows(), read_only)
}

/// The files of a data directory, as they are while a daemon runs.
fn image(from: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = fs::read_dir(from)
        .unwrap()
        .map(|entry| {
            let entry = entry.unwrap();
            (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())
        })
        .collect();
    files.sort();
    files
}

fn restore(files: &[(String, Vec<u8>)], to: &Path) {
    for entry in fs::read_dir(to).unwrap() {
        fs::remove_file(entry.unwrap().path()).unwrap();
    }
    files.iter().for_each(|(name, bytes)| fs::write(to.join(name), bytes).unwrap());
}

/// Offset and learners that a start finds in a directory, or why it is refused.
fn start(path: &Path) -> Result<(u64, Vec<u8>), RecoverError> {
    let mut storage = SqliteStorage::open(path).map_err(RecoverError::Store)?;
    let recovered = recover(&mut storage, &Directory::new(path), 500, &mut |_, _| {})?;
    Ok((recovered.state.end().offset, rmp_serde::to_vec_named(recovered.state.critics()).unwrap()))
}

fn exhaustive() -> bool {
    std::env::var_os("CRITICD_EXHAUSTIVE").is_some()
}

#[test]
fn a_journal_cut_behind_its_last_sync_loses_whole_unacknowledged_groups_only() {
    let config = config("sync = \"interval:1000ms\"\n");
    let directory = tempfile::tempdir().unwrap();
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(Directory::new(directory.path()));
    let mut harness = opened(&config, SqliteStorage::open(directory.path()).unwrap(), &checkpoints).unwrap();
    let batches = walk("one", 5, 90, 10);
    let mut ends = vec![0];
    let mut synced = Vec::new();
    for (i, batch) in batches.iter().enumerate() {
        harness.call(Op::Append(batch.clone()));
        harness.turn();
        ends.push(harness.core.offset());
        if i == 4 {
            let now = Now { uptime: harness.now.uptime + 1.0, unix: 1e9 };
            harness.core.sync_if_due(now, &|| now.uptime);
            synced = image(directory.path());
        }
    }
    let written = image(directory.path());
    let log = |files: &[(String, Vec<u8>)]| files.iter().position(|(name, _)| name.ends_with("-wal")).unwrap();
    let (from, whole) = (synced[log(&synced)].1.len(), written[log(&written)].1.clone());
    assert!(from < whole.len());
    let scratch = tempfile::tempdir().unwrap();
    let mut files = synced.clone();
    let (mut found, mut torn) = (std::collections::BTreeSet::new(), 0);
    let step = if exhaustive() { 1 } else { 31 };
    for cut in (from..=whole.len()).filter(|cut| cut % step == 0 || (cut - 32) % (8192 + 24) < 3 || *cut == whole.len())
    {
        let at = log(&files);
        files[at].1 = whole[..cut].to_vec();
        restore(&files, scratch.path());
        let (offset, _) = start(scratch.path()).unwrap_or_else(|e| panic!("cut at {cut}: {e}"));
        assert!(ends.contains(&offset) && offset >= 50, "cut at {cut}: {offset}");
        found.insert(offset);
        restore(&files, scratch.path());
        let mut storage = SqliteStorage::open(scratch.path()).unwrap();
        storage.reopen().unwrap();
        torn += u64::from(storage.torn_bytes() > 0);
    }
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [50, 60, 70, 80, 90]);
    assert!(torn > 100, "cut commits are reported: {torn}");
    // The same log cut before what was synced is refused.
    let at = log(&files);
    for cut in [0, 31, 32, from / 2, from - 1] {
        files[at].1 = whole[..cut].to_vec();
        restore(&files, scratch.path());
        let refused = start(scratch.path()).unwrap_err();
        assert!(matches!(refused, RecoverError::Shortened { .. }), "cut at {cut}: {refused}");
    }
}

#[test]
fn a_changed_byte_anywhere_is_refused_or_does_no_harm() {
    let config = config("");
    let directory = tempfile::tempdir().unwrap();
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(Directory::new(directory.path()));
    let open = || opened(&config, SqliteStorage::open(directory.path()).unwrap(), &checkpoints).unwrap();
    // Some of it in the database, some in its log, one checkpoint in between.
    let mut harness = open();
    let batches = walk("one", 5, 300, 10);
    for (i, batch) in batches.iter().enumerate() {
        harness.call(Op::Append(batch.clone()));
        harness.turn();
        match i {
            10 => drop(harness.ask(Op::Refit { critic: None, wait: true })),
            15 => {
                drop(harness.ask(Op::Checkpoint));
                drop(harness);
                harness = open();
            }
            _ => {}
        }
    }
    let files = image(directory.path());
    let scratch = tempfile::tempdir().unwrap();
    restore(&files, scratch.path());
    let (offset, learners) = start(scratch.path()).unwrap();
    assert_eq!(offset, 300);
    let (mut harmless, mut refused) = (0, 0);
    for (index, (name, bytes)) in files.iter().enumerate() {
        let step = if exhaustive() { 1 } else { (bytes.len() / 150).max(1) };
        for at in (0..bytes.len()).step_by(step) {
            let mut changed = files.clone();
            changed[index].1[at] ^= 1 << (at % 8);
            restore(&changed, scratch.path());
            match start(scratch.path()) {
                Err(_) => refused += 1,
                Ok((found, theirs)) => {
                    assert_eq!(found, offset, "byte {at} of {name}");
                    assert!(theirs == learners, "byte {at} of {name}: another model");
                    harmless += 1;
                }
            }
        }
    }
    assert!(refused > 100 && harmless > 10, "{refused} refused, {harmless} harmless");
}

/// A directory with two checkpoints and some rows behind them.
fn prepared(config: &Arc<Config>, path: &Path) -> u64 {
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(Directory::new(path));
    let mut harness = opened(config, SqliteStorage::open(path).unwrap(), &checkpoints).unwrap();
    for (i, batch) in walk("one", 5, 200, 10).iter().enumerate() {
        harness.call(Op::Append(batch.clone()));
        harness.turn();
        if i == 5 || i == 10 {
            harness.ask(Op::Checkpoint);
        }
    }
    harness.core.offset()
}

#[test]
fn what_cannot_be_true_is_refused_with_what_to_do() {
    let config = config("");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    prepared(&config, path);
    let files = image(path);
    let refused = |change: &dyn Fn()| {
        restore(&files, path);
        change();
        start(path).unwrap_err()
    };
    let sql = |text: &str| rusqlite::Connection::open(path.join(DATABASE)).unwrap().execute_batch(text).unwrap();

    let e = refused(&|| sql("DELETE FROM groups WHERE id = (SELECT max(id) FROM groups)"));
    assert!(matches!(e, RecoverError::Shortened { .. }), "{e}");
    assert!(e.to_string().contains("10 acknowledged rows are missing"), "{e}");
    let e = refused(&|| sql("DELETE FROM groups"));
    assert!(matches!(e, RecoverError::Shortened { end: None, .. }), "{e}");
    let e = refused(&|| fs::remove_file(path.join(DATABASE)).unwrap());
    assert!(matches!(e, RecoverError::Shortened { end: None, .. }), "{e}");
    let e = refused(&|| sql("DELETE FROM groups WHERE id = 17"));
    assert!(matches!(e, RecoverError::Broken { group: 17, .. }), "{e}");
    let e = refused(&|| sql("UPDATE groups SET body = zeroblob(length(body)) WHERE id = 17"));
    assert!(matches!(e, RecoverError::Damaged { group: 17, .. }), "{e}");
    let e = refused(&|| sql("UPDATE groups SET id = id + 1000000 WHERE id >= 17"));
    assert!(matches!(e, RecoverError::Damaged { .. } | RecoverError::Broken { .. }), "{e}");
    let e = refused(&|| {
        sql("DELETE FROM groups WHERE id > 4");
        fs::remove_file(path.join(MARK)).unwrap();
    });
    assert!(matches!(e, RecoverError::CheckpointAhead { journal: 4, .. }), "{e}");
    let e = refused(&|| sql("PRAGMA user_version = 2"));
    assert!(e.to_string().contains("format version 2"), "{e}");
    let e = refused(&|| {
        let newest = Directory::new(path).list().unwrap()[0];
        let file = Directory::new(path).file(newest);
        let mut bytes = fs::read(&file).unwrap();
        let version = b"criticd checkpoint\n".len();
        bytes[version] = VERSION as u8 + 1;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&bytes[version..version + 4]);
        hasher.update(&bytes[version + 16..]);
        bytes[version + 12..version + 16].copy_from_slice(&hasher.finalize().to_le_bytes());
        fs::write(file, bytes).unwrap();
    });
    assert!(matches!(e, RecoverError::CheckpointNewer { .. }), "{e}");
    let e = refused(&|| {
        sql("DELETE FROM groups WHERE id < 3");
        let directory = Directory::new(path);
        directory.list().unwrap().iter().for_each(|&group| fs::remove_file(directory.file(group)).unwrap());
    });
    assert!(matches!(e, RecoverError::NoCheckpoint { first: 3, .. }), "{e}");
    // A checkpoint of another run.
    let other = tempfile::tempdir().unwrap();
    let foreign: Arc<dyn Checkpoints> = Arc::new(Directory::new(other.path()));
    let mut harness = opened(&config, SqliteStorage::open(other.path()).unwrap(), &foreign).unwrap();
    walk("other", 6, 100, 10).into_iter().for_each(|batch| {
        harness.call(Op::Append(batch));
        harness.turn();
    });
    harness.ask(Op::Checkpoint);
    let group = foreign.list().unwrap()[0];
    // It is passed over: only where the journal has forgotten its beginning is that a reason to refuse.
    let put = || {
        let directory = Directory::new(path);
        directory.list().unwrap().iter().for_each(|&group| fs::remove_file(directory.file(group)).unwrap());
        directory.write(group, &foreign.read(group).unwrap()).unwrap();
    };
    restore(&files, path);
    let (_, learners) = start(path).unwrap();
    put();
    assert!(start(path).unwrap() == (200, learners));
    let e = refused(&|| {
        put();
        sql("DELETE FROM groups WHERE id < 3");
    });
    let told = matches!(&e, RecoverError::NoCheckpoint { first: 3, faults } if faults[0].contains("another journal"));
    assert!(told, "{e}");
    // As it was, it starts.
    restore(&files, path);
    assert_eq!(start(path).unwrap().0, 200);
}

#[test]
fn a_damaged_checkpoint_costs_time_and_nothing_else() {
    let config = config("");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    prepared(&config, path);
    let (_, learners) = start(path).unwrap();
    let checkpoints = Directory::new(path);
    for group in checkpoints.list().unwrap() {
        let file = checkpoints.file(group);
        let mut bytes = fs::read(&file).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(file, bytes).unwrap();
        assert!(start(path).unwrap().1 == learners);
    }
    let mut storage = SqliteStorage::open(path).unwrap();
    let recovered = recover(&mut storage, &checkpoints, 500, &mut |_, _| {}).unwrap();
    assert_eq!((recovered.faults.len(), recovered.from_checkpoint, recovered.rows_replayed), (2, None, 200));
}

#[test]
fn the_journal_forgets_what_nobody_needs_and_nothing_else() {
    let config = config("journal_rows_max = 100\n");
    let config = {
        let text = config.print().replace("window_rows = 500", "window_rows = 50");
        settings(&text)
    };
    let directory = tempfile::tempdir().unwrap();
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(Directory::new(directory.path()));
    let open = || opened(&config, SqliteStorage::open(directory.path()).unwrap(), &checkpoints).unwrap();
    let mut harness = open();
    let journal = |harness: &mut Harness| harness.ask(Op::Status)["journal"].clone();
    for (i, batch) in walk("one", 5, 1000, 10).iter().enumerate() {
        harness.call(Op::Append(batch.clone()));
        harness.turn();
        // Before there is a checkpoint everything is needed.
        if i == 49 {
            assert_eq!(journal(&mut harness)["rows"], 500);
        }
        if i >= 49 && i % 10 == 9 {
            harness.ask(Op::Checkpoint);
        }
    }
    let figures = journal(&mut harness);
    // Since the older of two checkpoints 100 rows have come, and it needs a window of 50 rows.
    let rows = figures["rows"].as_u64().unwrap();
    assert!((100..=250).contains(&rows), "{figures}");
    let expected = harness.state();
    drop(harness);
    let mut harness = open();
    assert!(harness.state() == expected);
    let after = journal(&mut harness);
    assert_eq!(
        (&after["rows"], &after["bytes"], &after["groups"]),
        (&figures["rows"], &figures["bytes"], &figures["groups"])
    );
}

#[test]
fn a_critic_whose_settings_change_goes_on_or_begins_anew_and_replay_does_the_same() {
    let disk = Arc::new(Mutex::new(Disk::default()));
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
    let open = |config: &Arc<Config>| opened(config, MemoryStorage::on(Arc::clone(&disk)), &checkpoints).unwrap();
    let first = config("");
    let mut harness = open(&first);
    let batches = walk("one", 5, 300, 10);
    let append = |harness: &mut Harness, range: std::ops::Range<usize>| {
        for batch in &batches[range] {
            harness.call(Op::Append(batch.clone()));
            harness.turn();
        }
    };
    append(&mut harness, 0..15);
    let tuned = settings(&first.print().replace("estimate_scale = true", "estimate_scale = false"));
    harness.core.reload(Arc::clone(&tuned)).unwrap();
    append(&mut harness, 15..20);
    drop(harness);
    // Another discount means other values: that critic begins anew with the rows that are kept. A second one is added.
    let text = tuned.print().replace("discount = 0.9", "discount = 0.5")
        + "\n[[critic]]\nname = \"second\"\ndictionary_max = 8\nrefit_first_rows = 0\n";
    let changed = settings(&text);
    let mut harness = open(&changed);
    let status = harness.ask(Op::Status);
    assert_eq!(
        (&status["critics"][0]["transitions"], &status["critics"][1]["transitions"]),
        (&200.into(), &200.into())
    );
    append(&mut harness, 20..30);
    let expected = harness.state();
    drop(harness);
    let harness = open(&changed);
    assert!(harness.state() == expected);
    // The reward that a critic learns cannot be taken from elsewhere: the state's size is what it is.
    let wrong = settings(&format!("state_dim = 7\n{QUICK}"));
    let refused = opened(&wrong, MemoryStorage::on(Arc::clone(&disk)), &checkpoints).err().unwrap();
    assert!(refused.to_string().contains("state_dim is for 7"), "{refused}");
}

fn criticd(arguments: &[&str]) -> (bool, String) {
    let output = program::criticd().args(arguments).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout) + &text(output.stderr))
}

#[test]
fn inspect_tells_what_is_there_and_repair_what_it_would_drop() {
    let config = config("");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let name = path.to_str().unwrap();
    let (ok, text) = criticd(&["inspect", name]);
    assert!(!ok && text.contains("a directory without a journal"), "{text}");
    assert_eq!(fs::read_dir(path).unwrap().count(), 0, "looking leaves nothing behind");
    prepared(&config, path);
    let (ok, text) = criticd(&["inspect", name]);
    assert!(ok && text.contains("200 rows") && text.contains("good"), "{text}");
    let (ok, text) = criticd(&["repair", "--truncate", name, "--yes"]);
    assert!(ok && text.contains("nothing to repair"), "{text}");

    let sql = "UPDATE groups SET body = zeroblob(length(body)) WHERE id = 17";
    rusqlite::Connection::open(path.join(DATABASE)).unwrap().execute_batch(sql).unwrap();
    let before = image(path);
    let (ok, text) = criticd(&["inspect", name, "--json"]);
    let found: Value = serde_json::from_str(&text).unwrap();
    assert!(ok && found["fault"].as_str().unwrap().contains("group 17"), "{text}");
    // Group 1 holds settings: group 16 ends behind the 15th batch.
    assert_eq!((&found["offset"], &found["rows_lost"]), (&150.into(), &50.into()));
    let (ok, text) = criticd(&["repair", "--truncate", name]);
    assert!(ok && text.contains("Truncating it there loses 50 acknowledged rows."), "{text}");
    let contents = |files: &[(String, Vec<u8>)]| {
        files.iter().filter(|(name, _)| name == DATABASE || name.starts_with("checkpoint")).cloned().collect::<Vec<_>>()
    };
    assert!(contents(&image(path)) == contents(&before), "without --yes nothing changes");
    let (ok, text) = criticd(&["repair", "--truncate", name, "--yes"]);
    assert!(ok && text.contains("loses 50 acknowledged rows."), "{text}");
    assert_eq!(start(path).unwrap().0, 150);
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(Directory::new(path));
    let mut harness = opened(&config, SqliteStorage::open(path).unwrap(), &checkpoints).unwrap();
    // The producer goes on where the journal now ends.
    for batch in &walk("one", 5, 200, 10)[15..] {
        harness.call(Op::Append(batch.clone()));
        harness.turn();
    }
    assert_eq!(harness.core.offset(), 200);
    let aside =
        fs::read_dir(path).unwrap().map(|entry| entry.unwrap()).find(|entry| entry.file_type().unwrap().is_dir());
    assert!(aside.unwrap().path().join(DATABASE).exists(), "the old journal is kept");
}

/// A data directory that version 1 of the formats has written, and what a start finds there. Written anew only where a format
/// gets a new version, then beside the old one: CRITICD_WRITE_FIXTURE=1 cargo test --test it recovery::a_directory_of_format_version_1
#[test]
fn a_directory_of_format_version_1_can_be_read() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/journal-v1");
    // As a critic of that version was set by default.
    let then =
        format!("{QUICK}lambda = 1.0\nselection = \"evidence\"\nvariance = \"model\"\nkernel_profile = \"gaussian\"\n");
    let config = settings(&then);
    let checkpoints = |path: &Path| -> Arc<dyn Checkpoints> { Arc::new(Directory::new(path)) };
    let values = |harness: &Harness| -> Vec<f64> {
        let snapshot = harness.core.board().get(0).unwrap();
        snapshot.evaluate(&[-3.0, -1.0, 0.0, 2.0, 4.0], Ask::MEAN).unwrap().mean.iter().copied().collect()
    };
    if std::env::var_os("CRITICD_WRITE_FIXTURE").is_some() {
        fs::create_dir_all(&fixture).unwrap();
        let storage = SqliteStorage::open(&fixture).unwrap();
        let mut harness = opened(&config, storage, &checkpoints(&fixture)).unwrap();
        for (i, batch) in walk("one", 5, 300, 10).iter().enumerate() {
            harness.call(Op::Append(batch.clone()));
            harness.turn();
            match i {
                10 => drop(harness.ask(Op::Refit { critic: None, wait: true })),
                15 => drop(harness.ask(Op::Checkpoint)),
                20 => drop(harness.ask(Op::Refit { critic: None, wait: true })),
                _ => {}
            }
        }
        let now = harness.at();
        harness.core.refresh(now, &|| now);
        let expected = serde_json::json!({
            "values": values(&harness),
            "generation": harness.ask(Op::Status)["critics"][0]["generation"],
        });
        fs::write(fixture.join("expected.json"), format!("{expected:#}\n")).unwrap();
        drop(harness);
        // One file, as a clean stop leaves it.
        SqliteStorage::open(&fixture).unwrap().reopen().unwrap();
    }
    let expected: Value = serde_json::from_str(&fs::read_to_string(fixture.join("expected.json")).unwrap()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    restore(&image(&fixture), directory.path());
    let storage = SqliteStorage::open(directory.path()).unwrap();
    let mut harness = opened(&config, storage, &checkpoints(directory.path())).unwrap();
    let recovered = harness.core.recovered().unwrap();
    assert_eq!((recovered.offset, recovered.from_checkpoint), (300, Some(160)));
    let now = harness.at();
    harness.core.refresh(now, &|| now);
    // The rows behind the checkpoint are learned as today's program learns, which tunes noise and scale at other rows.
    for (found, expected) in values(&harness).iter().zip(expected["values"].as_array().unwrap()) {
        let expected = expected.as_f64().unwrap();
        assert!((found - expected).abs() < 1e-3 * expected.abs(), "{found} {expected}");
    }
    assert_eq!(harness.ask(Op::Status)["critics"][0]["generation"], expected["generation"]);
    assert_eq!(harness.ask(Op::Streams { names: None, from: 0 })["streams"]["one"]["next_seq"], 300);
    // And it goes on.
    let batch = walk("one", 5, 310, 10).pop().unwrap();
    harness.call(Op::Append(batch));
    harness.turn();
    assert_eq!(harness.replies.pop().unwrap()["offset"], 310);
}

/// What the directory below was written with: two critics, the second with a lambda of its own.
const CRITICS: &str = "window_rows = 300\nstreams_max = 3\nstreams_idle_rows = 60\ncheckpoint_rows = 1000000\n\
                       [[critic]]\nname = \"main\"\ndiscount = 0.9\nevidence_rows = 60\nstarts = 1\ndictionary_max = 10\n\
                       backfill_rows = 40\nrefresh_rows = 32\nwarmup_rows = 20\nrefit_first_rows = 0\n\
                       [[critic]]\nname = \"short\"\ndiscount = 0.5\nlambda = 0.6\nselection = \"evidence\"\n\
                       evidence_rows = 60\nstarts = 1\ndictionary_max = 8\nbackfill_rows = 40\nrefresh_rows = 32\n\
                       warmup_rows = 30\nrefit_first_rows = 0\n";

/// Means and variances that the answering snapshots give for a few states, critic by critic.
fn answers(harness: &mut Harness) -> Vec<f64> {
    let now = harness.at();
    harness.core.refresh(now, &|| now);
    let snapshots = (0..2).map(|critic| harness.core.board().get(critic).unwrap());
    let states = [-3.0, -1.0, 0.0, 2.0, 4.0];
    let evaluate = |snapshot: Arc<criticd::snapshot::Snapshot>| {
        let found = snapshot.evaluate(&states, Ask::VARIANCE).unwrap();
        found.mean.iter().copied().chain(found.variance.unwrap()).collect::<Vec<f64>>()
    };
    snapshots.flat_map(evaluate).collect()
}

/// The models that are restored, but for what verified returns say: of these the checkpoints of the fixture know less than is counted
/// since they were written.
fn models(harness: &Harness) -> Vec<criticd::snapshot::Snapshot> {
    let restored = |critic| (*harness.core.board().get(critic).unwrap()).clone();
    (0..2).map(|critic| criticd::snapshot::Snapshot { returns: None, ..restored(critic) }).collect()
}

/// A data directory with everything that a journal can hold: streams that come, pause, lose rows and are forgotten, rows that
/// say something about policies, adopted models, a refit without one, a change of settings, checkpoints. Written by the code
/// that had a state of its own for replay: CRITICD_WRITE_FIXTURE=1 cargo test --test it recovery::a_directory_of_critics
#[test]
fn a_directory_of_critics_and_streams_gives_the_model_that_it_gave() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/journal-critics");
    let first = settings(CRITICS);
    let tuned = settings(&CRITICS.replace("refresh_rows = 32", "refresh_rows = 16"));
    let checkpoints = |path: &Path| -> Arc<dyn Checkpoints> { Arc::new(Directory::new(path)) };
    if std::env::var_os("CRITICD_WRITE_FIXTURE").is_some() {
        fs::create_dir_all(&fixture).unwrap();
        let storage = SqliteStorage::open(&fixture).unwrap();
        let mut harness = opened(&first, storage, &checkpoints(&fixture)).unwrap();
        for (k, stream) in ["one", "two", "one", "three", "four"].into_iter().enumerate() {
            for (i, batch) in walk(stream, k as u64, 90, 3 + 2 * k).into_iter().enumerate() {
                let batch = if i % 4 == 1 { judged(batch) } else { batch };
                match k {
                    // Rows 90 to 99 are lost: the chain is cut.
                    2 => harness.ingest(&shifted(&batch, 100)),
                    _ => harness.call(Op::Append(batch)),
                }
                if i % 2 == k % 2 {
                    harness.turn();
                }
            }
            harness.turn();
            let optimise = |critic: &str| Op::Refit { critic: Some(critic.into()), wait: true };
            match k {
                0 => drop(harness.ask(optimise("main"))),
                1 => {
                    drop(harness.ask(Op::Checkpoint));
                    drop(harness.ask(optimise("short")));
                }
                2 => {
                    harness.core.reload(Arc::clone(&tuned)).unwrap();
                }
                3 => {
                    drop(harness.ask(optimise("main")));
                    drop(harness.ask(Op::Checkpoint));
                    let result = Err("it found nothing".to_owned());
                    harness.core.refit_done(RefitDone { critic: 1, result, seconds: 0.0 });
                }
                _ => {}
            }
        }
        (0..4).for_each(|_| harness.turn());
        let status = harness.ask(Op::Status);
        let of = |key: &str| [0, 1].map(|critic| status["critics"][critic][key].clone());
        let expected = serde_json::json!({
            "answers": answers(&mut harness),
            "generations": of("generation"),
            "streams": harness.ask(Op::Streams { names: None, from: 0 })["streams"],
        });
        fs::write(fixture.join("expected.json"), format!("{expected:#}\n")).unwrap();
        drop(harness);
        SqliteStorage::open(&fixture).unwrap().reopen().unwrap();
    }
    let expected: Value = serde_json::from_str(&fs::read_to_string(fixture.join("expected.json")).unwrap()).unwrap();
    let directory = tempfile::tempdir().unwrap();
    restore(&image(&fixture), directory.path());
    let mut found = Vec::new();
    for left in [2, 1, 0] {
        let storage = SqliteStorage::open(directory.path()).unwrap();
        let mut harness = opened(&tuned, storage, &checkpoints(directory.path())).unwrap();
        assert_eq!(harness.core.recovered().unwrap().from_checkpoint.is_none(), left == 0);
        let status = harness.ask(Op::Status);
        for critic in 0..2 {
            assert_eq!(status["critics"][critic]["generation"], expected["generations"][critic]);
        }
        assert_eq!(harness.ask(Op::Streams { names: None, from: 0 })["streams"], expected["streams"]);
        found.push((answers(&mut harness), models(&harness)));
        if let Some(newest) = Directory::new(directory.path()).list().unwrap().first() {
            fs::remove_file(Directory::new(directory.path()).file(*newest)).unwrap();
        }
    }
    // Bit for bit, from whichever checkpoint; the code before may have run on a machine that rounds otherwise.
    assert!(found.iter().all(|one| *one == found[0]), "checkpoints and journal give different models");
    for (found, expected) in found[0].0.iter().zip(expected["answers"].as_array().unwrap()) {
        let expected = expected.as_f64().unwrap();
        assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{found} {expected}");
    }
}
