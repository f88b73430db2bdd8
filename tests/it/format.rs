//! Directories of formats 5 to 10, the present one, are read by every later program: values of actions, heads that came at run time, a
//! critic that was learned again; labels, an advisor; rows that were taken back; values about a mean function, a period to be learned, a bent variable. Older formats are read in `tests/it/recovery.rs`.

use crate::support::harness::{NOW, caller, config};
use crate::support::refits::carry_out;
use criticd::daemon::core::{Call, Core, Output};
use criticd::daemon::ledger::CheckpointDone;
use criticd::daemon::rebuild::{RebuildDone, Rebuilt};
use criticd::journal::checkpoint::{Checkpoint, Checkpoints, Directory};
use criticd::journal::store::{SqliteStorage, Storage};
use criticd::journal::{ADOPTED, ADVICE, HEADS, REBUILT, REMOVED, VERSION};
use criticd::learner::LabelPart;
use criticd::learner::act::{Exploration, Question};
use criticd::learner::removal::Selector;
use criticd::snapshot::Ask;
use criticd::transition::{Batch, BatchParts};
use criticd::wire::{self, HeadForm, Op, RemoveRequest};
use serde_json::{Value, json};
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const SETTINGS: &str = "window_rows = 300\nstreams_max = 4\ncheckpoint_rows = 1000000\n\
    [[critic]]\nname = \"main\"\ndiscount = 0.9\ndictionary_max = 8\nbackfill_rows = 40\nrefresh_rows = 32\nwarmup_rows = 20\n\
    refit_first_rows = 0\nheads = [{ name = \"energy\", cumulant = { kind = \"reward\", index = 1 }, discount = 0.5 }]\n\
    [[critic]]\nname = \"q\"\ninputs = \"state_action\"\nactions = [\"left\", \"right\"]\nsuccessor = \"improve\"\nimprove_rows = 60\n\
    discount = 0.9\ndictionary_max = 8\nbackfill_rows = 40\nrefresh_rows = 32\nwarmup_rows = 20\nrefit_first_rows = 0\n";
/// Behind those of format 5.
const ADVISOR: &str =
    "[[advisor]]\nname = \"throw\"\nlengthscales = [0.5]\noutputs = [{ mean = 1.0, deviation = 0.5 }]\n";
/// Behind those of format 7.
const ABOUT: &str = "[[critic]]\nname = \"about\"\nmean = { constant = -1.0, weights = [2.0] }\ndiscount = 0.9\ndictionary_max = 8\n\
    backfill_rows = 40\nrefresh_rows = 32\nwarmup_rows = 20\nrefit_first_rows = 0\n";
/// Behind those of format 8.
const TURNS: &str = "[[critic]]\nname = \"turns\"\nstate_kinds = [\"periodic\"]\ndiscount = 0.9\ndictionary_max = 8\n\
    refresh_rows = 32\nwarmup_rows = 20\nrefit_first_rows = 0\n";
/// Behind those of format 9.
const BENT: &str = "[[critic]]\nname = \"bent\"\nstate_kinds = [\"asinh:0.3:0.2:1.5\"]\ndiscount = 0.9\ndictionary_max = 8\n\
    refresh_rows = 32\nwarmup_rows = 20\nrefit_first_rows = 0\n";
const STATES: [f64; 4] = [0.0, 0.3, 0.6, 0.9];

fn fixture(version: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/journal-v{version}"))
}

/// Settings of the directory of a format, and the heads that came at run time.
fn settings(version: u32) -> (String, &'static [&'static str]) {
    match version {
        ..6 => (SETTINGS.to_owned(), &["late"]),
        6 | 7 => (SETTINGS.to_owned() + ADVISOR, &["late", "sold"]),
        8 => (SETTINGS.to_owned() + ABOUT + ADVISOR, &["late", "sold"]),
        9 => (SETTINGS.to_owned() + ABOUT + TURNS + ADVISOR, &["late", "sold"]),
        _ => (SETTINGS.to_owned() + ABOUT + TURNS + BENT + ADVISOR, &["late", "sold"]),
    }
}

/// A core on a directory, whose tasks are carried out where they are handed out.
struct Daemon {
    core: Core,
    directory: PathBuf,
    replies: Vec<Value>,
}

impl Daemon {
    fn open(directory: &Path, version: u32) -> Self {
        let config = config(&settings(version).0);
        let checkpoints: Arc<dyn Checkpoints> = Arc::new(Directory::new(directory));
        let storage = Box::new(SqliteStorage::open(directory).unwrap());
        let core = Core::open(config, storage, checkpoints, NOW, &mut |_, _| {}).unwrap();
        let mut daemon = Self { core, directory: directory.to_owned(), replies: Vec::new() };
        daemon.turn();
        daemon
    }

    fn turn(&mut self) {
        self.core.step(NOW);
        self.core.refresh(NOW, &|| NOW);
        for output in self.core.take_outputs().collect::<Vec<_>>() {
            let Some(output) = carry_out(&mut self.core, output) else { continue };
            match output {
                Output::Reply(reply) => self.replies.push(wire::to_json(&reply.payload).unwrap()),
                Output::Checkpoint(checkpoint) => {
                    let Checkpoint { group, offset, replay_from, .. } = *checkpoint;
                    Directory::new(&self.directory).write(group, &checkpoint.encode()).unwrap();
                    let done = CheckpointDone { group, offset, replay_from, result: Ok(1), seconds: 0.0 };
                    self.core.checkpoint_done(&done, NOW);
                }
                Output::Rebuild(job) => {
                    let result = job.run(&mut self.beside(), &|| true).map(Box::new);
                    self.rebuilt(job.settings.name.clone(), result);
                }
                Output::Remove(job) => {
                    let found = job.run(&mut self.beside(), &|| true).map(Box::new);
                    self.core.removal_found(found);
                }
                Output::FollowRebuild(mut rebuilt) => {
                    let critic = rebuilt.critic().to_owned();
                    let result = rebuilt.follow(&mut self.beside(), &|| true);
                    self.rebuilt(critic, result.map(|()| rebuilt));
                }
                _ => {}
            }
        }
    }

    fn beside(&self) -> SqliteStorage {
        SqliteStorage::open_beside(&self.directory).unwrap()
    }

    fn rebuilt(&mut self, critic: String, result: Result<Box<Rebuilt>, String>) {
        self.core.rebuild_done(RebuildDone { critic, result, seconds: 0.0 });
    }

    fn ask(&mut self, op: Op) -> Value {
        self.core.call(Call { caller: caller(), op }, NOW);
        (0..10).for_each(|_| self.turn());
        self.replies.pop().expect("an answer")
    }

    /// 20 steps in a corridor whose right end is worth most, from row number `seq` on.
    fn append(&mut self, seq: u64) {
        let (mut states, mut actions, mut rewards) = (vec![0.1], Vec::new(), Vec::new());
        for step in seq..seq + 20 {
            let right = (step * step + step / 3) % 3 != 0;
            let place: f64 = states[states.len() - 1];
            states.push((place + if right { 0.1 } else { -0.1 }).clamp(0.0, 1.0));
            actions.push(f64::from(u8::from(right)));
            rewards.extend([place - 0.5, place * place]);
        }
        let truncated = Some((1..=20).map(|i| i == 20).collect());
        let parts = BatchParts {
            stream: "corridor".into(),
            dim: 1,
            rewards_per_row: 2,
            states,
            actions: Some(actions),
            rewards,
            truncated,
            seq: Some(seq),
            ..BatchParts::default()
        };
        assert_eq!(self.ask(Op::Append(Batch::new(parts).unwrap()))["accepted"], 20);
    }

    fn take_back(&mut self, offsets: Range<u64>) {
        let selectors = vec![Selector::Offsets(offsets)];
        let request =
            RemoveRequest { selectors, dry_run: false, boundary: false, by: None, reason: Some("a test".into()) };
        assert_eq!(self.ask(Op::Remove(request))["ok"], true);
        (0..20).for_each(|_| self.turn());
    }

    /// What the models say, and how they came to it.
    fn answers(&mut self, version: u32) -> Value {
        let board = self.core.board();
        let main = board.get(0).unwrap();
        let found = main.evaluate(&STATES, Ask::VARIANCE).unwrap();
        let heads = main.heads.as_ref().unwrap();
        let names = ["energy"].iter().chain(settings(version).1);
        let which: Vec<usize> = names.map(|name| heads.position(name).unwrap()).collect();
        let of_heads = main.evaluate_heads(&STATES, &which, true).unwrap();
        let actor = board.actor(1).unwrap();
        let decisions = STATES.map(|state| {
            let exploration = Exploration::Greedy;
            let question = Question {
                state: &[state],
                exploration,
                seed: 1,
                episode: 2,
                step: 3,
                candidates: None,
                unknown_above: None,
            };
            let decided = actor.act(&question).unwrap();
            json!([decided.action[0], decided.mean, decided.deviation])
        });
        let status = self.core.status(NOW);
        let mut answers = json!({
            "mean": found.mean.as_slice(),
            "variance": found.variance,
            "heads": of_heads.mean.as_slice(),
            "head_variances": of_heads.variance.as_ref().map(|variance| variance.as_slice()),
            "decisions": decisions,
            "generations": status.critics.iter().map(|critic| critic.generation).collect::<Vec<_>>(),
            "offset": status.offset,
        });
        if version >= 6 {
            let said = self.ask(Op::Suggest { advisor: None, context: vec![0.4] });
            answers["advice"] = json!([said["mean"][0], said["deviation"][0], said["learned"]]);
        }
        if version >= 8 {
            let about = board.get(2).unwrap().evaluate(&STATES, Ask::VARIANCE).unwrap();
            answers["about"] = json!([about.mean.as_slice(), about.variance]);
        }
        if version >= 9 {
            let turns = board.get(3).unwrap().evaluate(&STATES, Ask::VARIANCE).unwrap();
            answers["turns"] = json!([turns.mean.as_slice(), turns.variance]);
        }
        if version >= 10 {
            let bent = board.get(4).unwrap().evaluate(&STATES, Ask::VARIANCE).unwrap();
            answers["bent"] = json!([bent.mean.as_slice(), bent.variance]);
        }
        answers
    }
}

/// Numbers of the same shape that differ by rounding: the fixture may have been written by a machine that rounds otherwise.
fn assert_close(found: &Value, expected: &Value) {
    match (found, expected) {
        (Value::Array(found), Value::Array(expected)) => {
            assert_eq!(found.len(), expected.len());
            found.iter().zip(expected).for_each(|(found, expected)| assert_close(found, expected));
        }
        (Value::Object(found), Value::Object(expected)) => {
            assert_eq!(found.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
            found.iter().for_each(|(key, found)| assert_close(found, &expected[key]));
        }
        _ => {
            let (found, expected) = (found.as_f64().unwrap(), expected.as_f64().unwrap());
            assert!((found - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{found} {expected}");
        }
    }
}

/// The program of a format wrote its directory: CRITICD_WRITE_FIXTURE=1 cargo test --test it format::
fn write(fixture: &Path) {
    fs::create_dir_all(fixture).unwrap();
    let mut daemon = Daemon::open(fixture, VERSION);
    (0..6).for_each(|k| daemon.append(20 * k));
    let add = |name: &str, cumulant: Value| -> Vec<HeadForm> {
        vec![serde_json::from_value(json!({"name": name, "cumulant": cumulant, "discount": 0.5})).unwrap()]
    };
    let change = |add: Vec<HeadForm>, labels: Option<LabelPart>| Op::ChangeHeads {
        critic: None,
        add,
        remove: Vec::new(),
        labels,
    };
    assert_eq!(daemon.ask(change(add("late", json!({"kind": "constant", "value": 1.0})), None))["ok"], true);
    let labels = LabelPart {
        name: "prices".into(),
        from: 0,
        offsets: (0..60).map(|k| 2 * k).collect(),
        values: (0..60).map(|k| f64::from(k % 7)).collect(),
    };
    assert_eq!(daemon.ask(change(Vec::new(), Some(labels)))["ok"], true);
    assert_eq!(daemon.ask(change(add("sold", json!({"kind": "label", "name": "prices"})), None))["ok"], true);
    let decide = |daemon: &mut Daemon, context: f64| {
        let said = daemon.ask(Op::Suggest { advisor: None, context: vec![context] });
        let decision_id = said["decision_id"].as_u64().unwrap();
        assert_eq!(daemon.ask(Op::Report { advisor: None, decision_id, cost: context * context })["ok"], true);
    };
    (0..5).for_each(|k| decide(&mut daemon, 0.1 * f64::from(k)));
    daemon.take_back(44..52);
    (6..9).for_each(|k| daemon.append(20 * k));
    assert_eq!(daemon.ask(Op::Checkpoint)["ok"], true);
    (9..12).for_each(|k| daemon.append(20 * k));
    daemon.take_back(130..133);
    (5..8).for_each(|k| decide(&mut daemon, 0.1 * f64::from(k)));
    fs::write(fixture.join("expected.json"), format!("{:#}\n", daemon.answers(VERSION))).unwrap();
    drop(daemon);
    SqliteStorage::open(fixture).unwrap().reopen().unwrap();
}

#[test]
fn a_directory_of_format_version_5_gives_the_values_that_it_gave() {
    gives_the_values_that_it_gave(5, ADOPTED | HEADS | REBUILT);
}

#[test]
fn a_directory_of_format_version_6_gives_the_values_that_it_gave() {
    gives_the_values_that_it_gave(6, ADOPTED | HEADS | REBUILT | ADVICE);
}

#[test]
fn a_directory_of_format_version_7_gives_the_values_that_it_gave() {
    gives_the_values_that_it_gave(7, ADOPTED | HEADS | REBUILT | ADVICE | REMOVED);
}

#[test]
fn a_directory_of_format_version_8_gives_the_values_that_it_gave() {
    gives_the_values_that_it_gave(8, ADOPTED | HEADS | REBUILT | ADVICE | REMOVED);
}

#[test]
fn a_directory_of_format_version_9_gives_the_values_that_it_gave() {
    gives_the_values_that_it_gave(9, ADOPTED | HEADS | REBUILT | ADVICE | REMOVED);
}

#[test]
fn a_directory_of_format_version_10_gives_the_values_that_it_gave() {
    assert_eq!(VERSION, 10, "a new format needs a directory of its own");
    if std::env::var_os("CRITICD_WRITE_FIXTURE").is_some() {
        write(&fixture(10));
    }
    gives_the_values_that_it_gave(10, ADOPTED | HEADS | REBUILT | ADVICE | REMOVED);
}

fn gives_the_values_that_it_gave(version: u32, has: u32) {
    let fixture = fixture(version);
    let expected: Value = serde_json::from_str(&fs::read_to_string(fixture.join("expected.json")).unwrap()).unwrap();
    let place = tempfile::tempdir().unwrap();
    for file in fs::read_dir(fixture).unwrap().flatten() {
        fs::copy(file.path(), place.path().join(file.file_name())).unwrap();
    }
    let groups = SqliteStorage::open(place.path()).unwrap().read(1, u64::MAX).unwrap();
    let kinds = groups.iter().fold(0, |kinds, group| kinds | group.kinds);
    assert_eq!(kinds & has, has, "it has what the format added");
    assert_eq!(groups.iter().map(|group| group.version).max(), Some(version));
    // The last bits may differ: the program that wrote the checkpoint summed the rows of heads in blocks of other lengths.
    for from in [Some(180), None] {
        let mut daemon = Daemon::open(place.path(), version);
        assert_eq!(daemon.core.recovered().unwrap().from_checkpoint, from);
        assert_close(&daemon.answers(version), &expected);
        drop(daemon);
        for checkpoint in Directory::new(place.path()).list().unwrap() {
            fs::remove_file(Directory::new(place.path()).file(checkpoint)).unwrap();
        }
    }
}
