//! What an operator does with the data of a daemon: export, back up, restore, compact, repair, reset, replay, stop. The real
//! program throughout.

use crate::support::program::{self, Process, any_ports};
use crate::support::{PATIENCE, until, wait};
use criticd::client::{Requester, Sender};
use criticd::daemon::archive;
use criticd::daemon::replace::{self, Moves};
use criticd::daemon::survey::survey;
use criticd::journal::checkpoint::Checkpoint;
use criticd::journal::store::{DATABASE, MARK, SqliteStorage, Storage, read_mark};
use criticd::journal::{GroupWriter, StoredGroup, VERSION};
use criticd::sealed::Seal;
use criticd::sim::{self, Step, walk::Walk};
use criticd::state::record::TakenRows;
use criticd::table::{Reading, Table};
use criticd::transition::{Batch, BatchParts};
use criticd::wire;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs::File;
use std::net::TcpListener;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use tempfile::TempDir;

/// Rows of a message of `replay`, and of a group.
const ROWS: usize = 256;

/// The program as it is above its thresholds: it copies its log, and reads in pieces, after a few kilobytes.
fn above_thresholds() -> Command {
    let mut command = program::criticd();
    command.arg("--small-thresholds");
    command
}

fn criticd(arguments: &str) -> Output {
    above_thresholds()
        .args(program::patient(arguments))
        .env_remove("CRITICD_DATA_DIR")
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// Exit status, and what went to both outputs.
fn run(arguments: &str) -> (i32, String) {
    let Output { status, stdout, stderr } = criticd(arguments);
    let text = String::from_utf8(stdout).unwrap() + &String::from_utf8(stderr).unwrap();
    assert!(!text.contains("panicked"), "{arguments}: {text}");
    (status.code().unwrap(), text)
}

fn done(arguments: &str) -> String {
    let (status, text) = run(arguments);
    assert_eq!(status, 0, "{arguments}: {text}");
    text
}

fn fails(arguments: &str, words: &str) {
    let (status, text) = run(arguments);
    assert!(status == 1 && text.contains(words), "{arguments}: {status}, {text}");
}

/// A daemon, ended with the test.
struct Served {
    process: Process,
    directory: PathBuf,
}

impl Served {
    /// With groups of one message, and no refits: what it learns is a function of the rows alone.
    fn start(directory: &Path) -> Self {
        Self::start_with(directory, &[])
    }

    fn start_with(directory: &Path, more: &[&str]) -> Self {
        let mut command = above_thresholds();
        command.arg("serve").arg("--data-dir").arg(directory).args(any_ports()).env_remove("CRITICD_DATA_DIR");
        let rows = format!("batch_rows_max={ROWS}");
        let settings = [
            rows.as_str(),
            "http=off",
            "log=error",
            "checkpoint_rows=1000000000",
            "critic.discount=0.9",
            "critic.dictionary_max=15",
            "critic.refit_first_rows=0",
        ];
        for setting in settings.iter().chain(more) {
            command.args(["--set", *setting]);
        }
        Self { process: Process::start(command, directory), directory: directory.to_owned() }
    }

    fn control(&self) -> &str {
        self.process.endpoint("control")
    }

    fn requester(&self) -> Requester {
        self.process.requester()
    }

    fn status(&self) -> criticd::wire::Status {
        self.requester().status(PATIENCE).unwrap()
    }

    /// Everything of the model that the stored rows decide. Those that are acknowledged, or learned, are shown some time later.
    fn model(&self) -> Value {
        let shown = json!({"states": [[0.0]], "min_offset": self.status().offset});
        self.requester().ask("value", shown, PATIENCE).unwrap();
        let mut model: Value =
            serde_json::from_str(&done(&format!("snapshot --json --control {}", self.control()))).unwrap();
        let fields = model.as_object_mut().unwrap();
        ["time", "revision", "id", "v", "ok"].iter().for_each(|key| drop(fields.remove(*key)));
        assert!(fields["dictionary"].as_array().is_some_and(|states| states.len() > 3), "{fields:?}");
        model
    }

    fn stop(mut self) {
        done(&format!("stop {}", self.directory.display()));
        assert_eq!(self.process.child.wait().unwrap().code(), Some(0));
    }
}

fn directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Names of what is in a directory, in their order.
fn files(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap().flatten();
    let mut names: Vec<String> = entries.map(|entry| entry.file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn show(path: &Path) -> String {
    path.display().to_string()
}

/// A table of `messages` messages of two streams in turns, with everything that a journal keeps.
fn table(path: &Path, messages: usize) {
    let mut walks = [Walk::new(1, Some(40), 0.0), Walk::new(2, Some(40), 0.0)];
    let mut text =
        "stream,state_0,next_state_0,reward,terminated,truncated,discount,time,behavior_prob,target_prob\n".to_owned();
    let mut number = 0;
    for message in 0..messages {
        for _ in 0..ROWS {
            let Step { state, reward, next_state, terminated, truncated, .. } = walks[message % 2].step();
            let (from, to) = (state[0], next_state[0]);
            let discount = 0.9 - 0.1 * f64::from(number % 3);
            let prob = 0.25 + 0.125 * f64::from(number % 5);
            let time = 1.7e9 + 0.1 * f64::from(number);
            let name = ["arm", "leg"][message % 2];
            writeln!(text, "{name},{from},{to},{reward},{terminated},{truncated},{discount},{time},{prob},0.5")
                .unwrap();
            number += 1;
        }
    }
    std::fs::write(path, text).unwrap();
}

#[test]
fn an_exported_journal_teaches_the_same_model_bit_for_bit() {
    let place = directory();
    let at = |name: &str| place.path().join(name);
    table(&at("rows.csv"), 12);
    let first = Served::start(&at("first"));
    let said = done(&format!("replay {} --data-dir {}", show(&at("rows.csv")), show(&at("first"))));
    assert!(said.starts_with("3072 rows learned"), "{said}");
    let model = first.model();
    // Beside the running daemon, in every format, by directory or endpoint.
    let mut endings = vec!["csv", "jsonl", "npz"];
    endings.extend(cfg!(feature = "parquet").then_some("parquet"));
    for ending in endings {
        let out = at(&format!("out.{ending}"));
        let source = if ending == "csv" { first.control().to_owned() } else { show(&at("first")) };
        let said = done(&format!("export {source} --out {}", show(&out)));
        assert!(said.contains("3072 rows; offsets 0 to 3072"), "{said}");
        let again = Served::start(&at(ending));
        done(&format!("replay {} --data-dir {} --ack", show(&out), show(&at(ending))));
        assert!(again.model() == model, "{ending}");
    }
    first.stop();
    // Its newest rows, with the critics that learn from them: 256 of leg come last.
    let newest = archive::newest(&at("first"), 700).unwrap();
    assert_eq!((newest.rows.len(), newest.first, newest.critics.len()), (700, 3072 - 700, 1));
    let stream = |i: usize| newest.streams[newest.rows.streams[i] as usize].as_str();
    assert_eq!((stream(699), stream(699 - 256), stream(699 - 512)), ("leg", "arm", "leg"));
    for number in 0..2 {
        let first = newest.rows.streams.iter().position(|stream| *stream == number).unwrap();
        assert!(newest.rows.starts_chain[first], "nothing is known of the rows before it");
    }
    // Part of it, of the stopped one.
    let out = at("part.jsonl");
    let said = done(&format!("export {} --out {} --stream leg --from 300 --to 1000", show(&at("first")), show(&out)));
    assert!(said.contains(": 444 rows;"), "{said}");
    let text = std::fs::read_to_string(&out).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.iter().all(|row| row["stream"] == "leg" && row["received"].as_f64().unwrap() > 1.7e9));
    assert_eq!((&rows[0]["offset"], &rows[0]["seq"]), (&json!(300), &json!(44)));
    assert_eq!(rows.last().unwrap()["offset"], 999);
    fails(
        &format!("export {} --out {} --stream foot", show(&at("first")), show(&out)),
        "no row of the journal is chosen",
    );
    fails(&format!("export {} --out {}", show(&at("first")), show(&at("out.xls"))), ".parquet");
    fails(&format!("export {} --out {}", show(&at("absent")), show(&out)), "without a journal");
}

#[test]
fn replay_fails_where_rows_were_refused_and_names_streams_after_files() {
    let place = directory();
    let at = |name: &str| place.path().join(name);
    let daemon = Served::start(&at("data"));
    let write = |name: &str, text: &str| std::fs::write(at(name), text).unwrap();
    write("monday.csv", "state_0,reward,terminated\n0,1,0\n1,1,0\n2,1,1\n");
    write("tuesday.csv", "state_0,reward,terminated\n0,1,0\n1,1,0\n2,1,1\n");
    write("wide.csv", "state_0,state_1,reward,terminated\n0,1,1,0\n1,1,1,0\n2,1,1,1\n");
    let replay =
        |name: &str, more: &str| run(&format!("replay {} --data-dir {}{more}", show(&at(name)), show(&at("data"))));
    // The second one does not overtake the first: that is learned.
    for (name, more, words) in
        [("monday.csv", "", "3 rows learned"), ("tuesday.csv", " --ack --stream-prefix x/", "3 rows acknowledged")]
    {
        let (status, text) = replay(name, more);
        assert!(status == 0 && text.starts_with(words), "{text}");
    }
    let (status, text) = replay("wide.csv", "");
    assert!(status == 1, "{text}");
    for words in ["3 rows were sent and 0 learned", "1 messages refused as wrong_dimension", "quarantine list"] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let streams = daemon.requester().ask("streams", json!({}), PATIENCE).unwrap()["streams"].clone();
    let names: Vec<&String> = streams.as_object().unwrap().keys().collect();
    assert_eq!(names, ["monday", "x/tuesday"]);
    daemon.stop();
    // Times are written as people read them.
    for command in ["quarantine list --data-dir", "inspect"] {
        let (status, text) = run(&format!("{command} {}", show(&at("data"))));
        assert!(status == 0 && text.contains(" UTC"), "{command}: {text}");
    }
}

/// Appends rows until `over` is set.
struct Load {
    over: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Load {
    fn start(daemon: &Served, stream: String) -> Self {
        let (over, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (until, count, mut requester) = (Arc::clone(&over), Arc::clone(&acknowledged), daemon.requester());
        let append = move || {
            let mut walk = Walk::new(3, Some(40), 0.0);
            while !until.load(Ordering::Relaxed) {
                let steps: Vec<Step> = (0..7).map(|_| walk.step()).collect();
                for batch in sim::batches(&stream, "run", &steps) {
                    let id = requester.post_append(&batch).unwrap();
                    requester.reply(id, PATIENCE).unwrap();
                    count.fetch_add(batch.len() as u64, Ordering::SeqCst);
                }
            }
        };
        Self { over, acknowledged, thread: Some(thread::spawn(append)) }
    }

    fn rows(&self) -> u64 {
        self.acknowledged.load(Ordering::SeqCst)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

#[test]
fn a_backup_under_load_has_every_row_acknowledged_before_it() {
    let place = directory();
    let at = |name: &str| place.path().join(name);
    // The journal forgets rows and checkpoints are written meanwhile.
    let more = ["checkpoint_rows=300", "journal_rows_max=2000", "window_rows=500"];
    let daemon = Served::start_with(&at("data"), &more);
    let load = Load::start(&daemon, "arm".into());
    for round in 0..20 {
        let before = load.rows();
        until("50 more rows", || load.rows() >= before + 50);
        let acknowledged = load.rows();
        let (out, back) = (at(&format!("backup-{round}")), at(&format!("back-{round}")));
        let source = if round % 2 == 0 { show(&at("data")) } else { daemon.control().to_owned() };
        done(&format!("backup {source} --out {}", show(&out)));
        done(&format!("restore {} {}", show(&out), show(&back)));
        let found = survey(&back).unwrap();
        assert_eq!(found.fault, None, "{round}");
        assert!(found.end.offset >= acknowledged, "{round}: {} of {acknowledged}", found.end.offset);
    }
    assert!(load.rows() > 1000);
    drop(load);
    let model = daemon.model();
    done(&format!("backup {} --out {}", show(&at("data")), show(&at("last"))));
    daemon.stop();
    done(&format!("restore {} {}", show(&at("last")), show(&at("again"))));
    let again = Served::start_with(&at("again"), &more);
    assert!(again.model() == model, "the restored daemon continues with the same model");
    // Neither is written over.
    fails(&format!("backup {} --out {}", show(&at("data")), show(&at("last"))), "is not empty");
    fails(&format!("restore {} {}", show(&at("last")), show(&at("data"))), "is not empty");
    fails(&format!("restore {} {}", show(&at("data")), show(&at("new"))), "no backup of criticd");
    // A page of a backup is lost: nothing is restored.
    let journal = at("last").join(DATABASE);
    let mut bytes = std::fs::read(&journal).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 8192].fill(0);
    std::fs::write(&journal, bytes).unwrap();
    let (status, text) = run(&format!("restore {} {}", show(&at("last")), show(&at("new"))));
    assert!(status == 1, "{text}");
    assert!(!at("new").join(DATABASE).exists(), "{text}");
}

/// Tables of the first eight of 12 groups of rows, and of the others.
fn two_tables(place: &TempDir) -> [PathBuf; 2] {
    let [first, rest, all] = ["first.csv", "rest.csv", "all.csv"].map(|name| place.path().join(name));
    table(&all, 12);
    let text = std::fs::read_to_string(all).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    let (head, rows) = (lines[0], &lines[1..]);
    std::fs::write(&first, format!("{head}\n{}\n", rows[..8 * ROWS].join("\n"))).unwrap();
    std::fs::write(&rest, format!("{head}\n{}\n", rows[8 * ROWS..].join("\n"))).unwrap();
    [first, rest]
}

#[test]
fn what_was_answered_then_is_told_by_every_command_that_reads_a_model() {
    let place = directory();
    let at = |name: &str| show(&place.path().join(name));
    let (data, then, states) = (at("data"), at("then.model"), at("states.csv"));
    std::fs::write(&states, "state_0\n-1\n0.2\n").unwrap();
    let daemon = Served::start_with(Path::new(&data), &["reward_names=[\"energy [J]\"]"]);
    let [first, rest] = two_tables(&place);
    done(&format!("replay {} --ack --data-dir {data}", show(&first)));
    daemon.model();
    done(&format!("snapshot --data-dir {data} --out {then}"));
    done(&format!("replay {} --ack --data-dir {data}", show(&rest)));
    daemon.model();
    let moment = format!("--as-of {}", 8 * ROWS);
    let compare = || {
        let values = done(&format!("value {data} {states} --json {moment}"));
        assert_eq!(values, done(&format!("value {then} {states} --json")));
        assert_ne!(values, done(&format!("value {data} {states} --json --as-of {}", 12 * ROWS)));
        // All that the rows decide.
        let of = |command: &str| -> Value {
            let mut told: Value = serde_json::from_str(&done(command)).unwrap();
            let forget = |of: &mut Value| {
                ["time", "revision"].iter().for_each(|key| drop(of.as_object_mut().unwrap().remove(*key)));
            };
            told.get_mut("critics").and_then(Value::as_array_mut).into_iter().flatten().for_each(forget);
            forget(&mut told);
            told
        };
        let [there, model] = [format!("{data} {moment}"), then.clone()].map(|of| format!("inspect --json {of}"));
        assert_eq!(of(&there), of(&model));
        assert_eq!(of(&there)["reward_names"], json!(["energy [J]"]));
        let told = of(&format!("status --json --data-dir {data} {moment}"));
        assert_eq!((&told["offset"], &told["critics"]), (&json!(8 * ROWS), &json!([of(&model)])));
        let written = |command: String, out: String| {
            done(&format!("{command} --out {out}"));
            std::fs::read(out).unwrap()
        };
        // The graph tells when its model was published, which no journal knows.
        let learned = at("learned.model");
        done(&format!("snapshot --data-dir {data} {moment} --out {learned}"));
        for (command, out, model) in [("export --onnx", "v.onnx", &learned), ("plot", "v.png", &then)] {
            let from = |model: String| written(format!("{command} {model}"), at(out));
            assert_eq!(from(format!("{data} {moment}")), from(model.clone()), "{command}");
        }
    };
    compare();
    let said = done(&format!("status --data-dir {data} {moment}"));
    assert!(said.starts_with("2048 rows had been stored\n") && said.contains("learned "), "{said}");
    let control = daemon.control().to_owned();
    let asked = done(&format!("status --control {control} {moment}"));
    assert!(asked.starts_with("2048 rows had been stored\n") && asked.contains("learned "), "{asked}");
    let by_itself = |place: &str| {
        let out = at("by-itself.model");
        done(&format!("snapshot {place} {moment} --out {out}"));
        std::fs::read(out).unwrap()
    };
    assert!(by_itself(&format!("--control {control}")) == by_itself(&format!("--data-dir {data}")));
    let values = |model: &str| done(&format!("value {model} {states} --json"));
    assert_eq!(values(&format!("{control} {moment}")), values(&then));
    fails(&format!("value {control} {states} --as-of 999999"), "lies ahead: 3072 rows are stored");
    for (command, words) in [
        (format!("value {data} {states} --critic a,b {moment}"), "one critic answers"),
        (format!("export {data} {moment} --out {}", at("rows.csv")), "--to OFFSET"),
    ] {
        let (status, text) = run(&command);
        assert!(status == 2 && text.contains(words), "{command}: {status}, {text}");
    }
    fails(&format!("value {then} {states} {moment}"), "no data directory");
    daemon.stop();
    compare();
}

/// A stopped directory of 12 groups of rows with a checkpoint behind the eighth, and the model.
fn stopped(directory: &Path) -> Value {
    let place = self::directory();
    let [first, rest] = two_tables(&place);
    let daemon = Served::start(directory);
    let replay = |file: &Path| drop(done(&format!("replay {} --ack --data-dir {}", show(file), show(directory))));
    replay(&first);
    done(&format!("checkpoint --data-dir {}", show(directory)));
    replay(&rest);
    let model = daemon.model();
    // Killed: no checkpoint is written at the end.
    drop(daemon);
    model
}

fn damage(directory: &Path, group: u64) {
    let sql = format!("UPDATE groups SET body = zeroblob(length(body)) WHERE id = {group}");
    rusqlite::Connection::open(directory.join(DATABASE)).unwrap().execute_batch(&sql).unwrap();
}

#[test]
fn a_damaged_group_that_a_checkpoint_has_seen_costs_no_model() {
    let place = directory();
    let data = place.path().join("data");
    let model = stopped(&data);
    let name = show(&data);
    damage(&data, 4);
    // What lies before it can be exported, and what lies behind.
    let out = place.path().join("rows.csv");
    let (status, text) = run(&format!("export {name} --out {}", show(&out)));
    assert!(status == 1 && text.contains("512 rows; offsets 0 to 512 were read"), "{text}");
    assert!(text.contains("group 4") && text.contains("2560 acknowledged rows"), "{text}");
    let said = done(&format!("export {name} --out {} --from 768", show(&out)));
    assert!(said.contains("2304 rows; offsets 768 to 3072"), "{said}");
    let said = done(&format!("repair {name}"));
    for words in
        ["repair --truncate", "repair --skip 4", "the models lose nothing", "repair --from-checkpoint", "reset"]
    {
        assert!(said.contains(words), "{words}: {said}");
    }
    fails(&format!("repair --skip 5 {name} --yes"), "not the damaged one; that is group 4");
    let said = done(&format!("repair --skip 4 {name}"));
    assert!(said.contains("run the same command with --yes") && survey(&data).unwrap().damaged == Some(4), "{said}");
    let said = done(&format!("repair --skip 4 {name} --yes"));
    assert!(said.contains("continues from here"), "{said}");
    assert!(done(&format!("repair --skip 4 {name} --yes")).contains("nothing to repair"), "it can be said twice");
    let daemon = Served::start(&data);
    assert_eq!(daemon.status().offset, 3072);
    assert!(daemon.model() == model);
}

#[test]
fn a_damaged_end_is_cut_off_however_long_the_journal_is() {
    let place = directory();
    let whole = place.path().join("whole");
    stopped(&whole);
    damage(&whole, 12);
    // Often: the copy is written while a thread copies its log.
    for round in 0..10 {
        let data = place.path().join(format!("data-{round}"));
        std::fs::create_dir(&data).unwrap();
        for name in files(&whole) {
            std::fs::copy(whole.join(&name), data.join(&name)).unwrap();
        }
        let said = done(&format!("repair --truncate {} --yes", show(&data)));
        assert!(said.contains("loses 512 acknowledged rows") && said.contains("continues from here"), "{said}");
        assert_eq!(survey(&data).unwrap().end.offset, 2560);
        assert!(!data.join(replace::REPAIRED).exists());
    }
    let daemon = Served::start(&place.path().join("data-0"));
    assert_eq!(daemon.status().offset, 2560);
}

#[test]
fn checkpoints_of_another_journal_are_passed_over_and_never_continued_from() {
    let place = directory();
    let [data, other, empty] = ["data", "other", "empty"].map(|name| place.path().join(name));
    let model = stopped(&data);
    let name = show(&data);
    let rows = place.path().join("rows.csv");
    std::fs::write(&rows, "state_0,next_state_0,reward,terminated\n0,1,5,0\n").unwrap();
    // Its newest checkpoint, behind further groups of one row.
    let newest = |directory: &Path| files(directory).into_iter().rfind(|name| name.starts_with("checkpoint-")).unwrap();
    let learn = |groups: usize| {
        let daemon = Served::start(&other);
        for _ in 0..groups {
            done(&format!("replay {} --ack --data-dir {}", show(&rows), show(&other)));
        }
        daemon.stop();
        newest(&other)
    };
    let (foreign, own) = (learn(9), newest(&data));
    assert!(foreign > own, "the foreign one is the newest");
    std::fs::copy(other.join(&foreign), data.join(&foreign)).unwrap();
    let remedy = format!("{foreign} belongs to another journal: move it out of the data directory");
    let said = done(&format!("repair {name}"));
    assert!(said.contains(&remedy) && said.contains("nothing to repair"), "{said}");
    done(&format!("backup {name} --out {}", show(&empty)));
    assert!(files(&empty).contains(&own) && !files(&empty).contains(&foreign), "{:?}", files(&empty));
    let log = place.path().join("log");
    let mut command = above_thresholds();
    command.args(["serve", "--http", "off", "--set", "critic.discount=0.9", "--set", "critic.dictionary_max=15"]);
    command.args(["--set", "critic.refit_first_rows=0", "--set", "checkpoint_rows=1000000000", "--data-dir"]);
    command.arg(&data).args(any_ports()).stderr(File::create(&log).unwrap());
    let mut daemon = Served { process: Process::start(command, &data), directory: data.clone() };
    assert!(daemon.model() == model, "it is its own model, and not that of the checkpoint");
    assert_eq!(daemon.status().recovered.unwrap().from_checkpoint, Some(2048));
    daemon.process.kill();
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("event=checkpoint_skipped") && said.contains(&remedy), "{said}");
    // A damaged journal: its own checkpoint is offered, and the other one goes with what is set aside.
    damage(&data, 12);
    let said = done(&format!("repair {name}"));
    assert!(said.contains("The models continue as of offset 2048") && said.contains(&remedy), "{said}");
    let said = done(&format!("repair --truncate {name} --yes"));
    assert!(said.contains("continues from here"), "{said}");
    assert!(!data.join(&foreign).exists() && data.join(&own).exists(), "{:?}", files(&data));
    // It alone is nothing to continue from.
    std::fs::remove_file(data.join(&own)).unwrap();
    std::fs::copy(other.join(&foreign), data.join(&foreign)).unwrap();
    damage(&data, 8);
    fails(&format!("repair --from-checkpoint {name} --yes"), "no checkpoint that can be read");
    // Nor are those that have seen more than the journal has, and began otherwise.
    let ahead = [learn(15), learn(9)];
    let bring = |directory: &Path| {
        for name in &ahead {
            std::fs::copy(other.join(name), directory.join(name)).unwrap();
        }
    };
    bring(&data);
    fails(&format!("repair --from-checkpoint {name} --yes"), "no checkpoint that can be read");
    let kept = place.path().join("kept");
    stopped(&kept);
    bring(&kept);
    // Where the first group is forgotten, an own checkpoint says how the journal began. Those that follow are kept beside the others.
    let sql = "DELETE FROM groups WHERE id = 1";
    rusqlite::Connection::open(kept.join(DATABASE)).unwrap().execute_batch(sql).unwrap();
    for from in [2048, 3073, 3074] {
        let daemon = Served::start(&kept);
        assert_eq!(daemon.status().recovered.unwrap().from_checkpoint, Some(from));
        assert!(from > 2048 || daemon.model() == model);
        done(&format!("replay {} --ack --data-dir {}", show(&rows), show(&kept)));
        daemon.stop();
    }
    assert!(ahead.iter().all(|name| kept.join(name).exists()), "{:?}", files(&kept));
    // One of a former version does not say how its journal began, and may be the sign of a loss.
    let ahead = &ahead[1];
    std::fs::remove_dir_all(&kept).unwrap();
    let aged = Checkpoint { origin: None, ..Checkpoint::decode(&std::fs::read(other.join(ahead)).unwrap()).unwrap() };
    std::fs::write(other.join(ahead), aged.encode()).unwrap();
    std::fs::copy(other.join(ahead), data.join(ahead)).unwrap();
    let said = done(&format!("repair {name}"));
    assert!(said.contains(&format!("Nothing shows that {ahead} belongs to this journal")), "{said}");
    // One that the journal shows to be its own comes first.
    stopped(&kept);
    let whole = newest(&kept);
    std::fs::copy(other.join(ahead), kept.join(ahead)).unwrap();
    damage(&kept, 8);
    let said = done(&format!("repair {}", show(&kept)));
    assert!(said.contains("The models continue as of offset 2048") && !said.contains("Nothing shows"), "{said}");
    done(&format!("repair --from-checkpoint {} --yes", show(&kept)));
    assert!(kept.join(&whole).exists() && !kept.join(ahead).exists(), "{:?}", files(&kept));
    let again = place.path().join("again");
    stopped(&again);
    std::fs::copy(other.join(ahead), again.join(ahead)).unwrap();
    let remedy = format!("if {ahead} was copied here from another data directory, move it away");
    let ports = any_ports().collect::<Vec<_>>().join(" ");
    fails(&format!("serve --data-dir {} --http off --set critic.discount=0.9 {ports}", show(&again)), &remedy);
}

/// Of a journal from before they were bounded.
#[test]
fn large_numbers_of_an_old_journal_are_exported_as_they_are() {
    let place = directory();
    let (data, first) = (place.path().join("data"), (1 << 63) + 5);
    std::fs::create_dir(&data).unwrap();
    let batch = Batch::new(BatchParts {
        stream: "old".into(),
        seq: Some(first),
        dim: 1,
        rewards_per_row: 1,
        states: vec![0.0, 1.0],
        next_states: Some(vec![1.0, 2.0]),
        rewards: vec![1.0, 2.0],
        ..BatchParts::default()
    });
    let mut writer = GroupWriter::default();
    writer.take(&TakenRows { stream: 0, starts_chain: vec![true, false], batch: batch.unwrap() });
    let group = writer.finish(1, 0, 0, 1e9);
    let mut storage = SqliteStorage::open(&data).unwrap();
    storage.append(&group, 0, true).unwrap();
    storage.set_mark(group.mark()).unwrap();
    drop(storage);
    for ending in ["csv", "jsonl", "npz"].into_iter().chain(cfg!(feature = "parquet").then_some("parquet")) {
        let out = place.path().join(format!("rows.{ending}"));
        done(&format!("export {} --out {}", show(&data), show(&out)));
        let table = Table::read(&out, Reading::default(), &mut |_| {}).unwrap();
        assert_eq!((table.rows().len(), table.seq(0), table.seq(1)), (2, first, first + 1), "{ending}");
    }
    // It starts, too.
    assert_eq!(Served::start(&data).status().offset, 2);
}

#[test]
fn a_restore_or_a_repair_that_is_killed_early_lets_no_daemon_begin_empty() {
    let place = directory();
    let [data, backup, again] = ["data", "backup", "again"].map(|name| place.path().join(name));
    let model = stopped(&data);
    done(&format!("backup {} --out {}", show(&data), show(&backup)));
    // As a kill leaves it: a part of a copy, and no plan.
    let interrupted = |directory: &Path, staged: &str| {
        std::fs::create_dir_all(directory).unwrap();
        let fresh = replace::stage(directory, staged).unwrap();
        std::fs::write(fresh.join(DATABASE), "a part").unwrap();
    };
    let name = show(&again);
    interrupted(&again, replace::RESTORED);
    for command in ["serve --set http=off --data-dir", "inspect"] {
        fails(&format!("{command} {name}"), &format!("run `criticd restore BACKUP {name}` again"));
    }
    done(&format!("restore {} {name}", show(&backup)));
    assert!(Served::start(&again).model() == model);
    // Given up by `repair`, or by `reset`.
    for command in ["repair", "reset"] {
        let other = place.path().join(command);
        interrupted(&other, replace::RESTORED);
        done(&format!("{command} {}", show(&other)));
        assert!(!other.join(replace::RESTORED).exists());
        assert_eq!(Served::start(&other).status().offset, 0);
    }
    // A repair has changed nothing yet.
    let name = show(&data);
    interrupted(&data, replace::REPAIRED);
    for command in ["serve --set http=off --data-dir", "compact"] {
        fails(&format!("{command} {name}"), &format!("`criticd repair {name}` begins it again"));
    }
    assert!(done(&format!("repair {name}")).contains("nothing to repair"));
    assert!(Served::start(&data).model() == model);
}

#[test]
fn a_limit_on_file_sizes_is_as_a_full_disk() {
    let place = directory();
    let data = place.path().join("data");
    let mut command = Command::new("sh");
    // In blocks of 512 bytes.
    command.args(["-c", "ulimit -f 600; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_criticd"), "serve", "--http", "off"]);
    command.args(["--log", "error", "--data-dir"]).arg(&data).args(any_ports());
    let mut daemon = Served { process: Process::start(command, &data), directory: data.clone() };
    let sender = Sender::connect(daemon.process.endpoint("ingest"), PATIENCE).unwrap();
    let mut walk = Walk::new(3, Some(40), 0.0);
    let status = wait("the limit to be reached", || {
        let steps: Vec<Step> = (0..200).map(|_| walk.step()).collect();
        sim::batches("arm", "run", &steps).iter().for_each(|batch| sender.send(wire::encode_ingest(batch)).unwrap());
        Some(daemon.status()).filter(|status| status.read_only.is_some())
    });
    assert!(status.offset > 0 && daemon.process.child.try_wait().unwrap().is_none());
    daemon.process.kill();
    // Without the limit it goes on with all that was stored.
    assert!(Served::start_with(&data, &["critic.discount=0.99"]).status().offset >= status.offset);
}

#[test]
fn files_that_are_deleted_under_a_daemon_are_put_back() {
    let place = directory();
    let data = place.path().join("data");
    let log = place.path().join("log");
    let mut command = above_thresholds();
    command.args(["serve", "--http", "off", "--data-dir"]).arg(&data).args(any_ports());
    command.stderr(File::create(&log).unwrap());
    let daemon = Served { process: Process::start(command, &data), directory: data.clone() };
    let endpoints = std::fs::read(data.join("endpoints.json")).unwrap();
    let row = json!({"seq": 0, "state": [0.0], "next_state": [1.0], "reward": 1.0});
    daemon.requester().ask("append", row, PATIENCE).unwrap();
    for (name, event) in [("endpoints.json", "event=endpoints_put_back"), (MARK, "event=mark_put_back")] {
        std::fs::remove_file(data.join(name)).unwrap();
        until(name, || data.join(name).exists() && std::fs::read_to_string(&log).unwrap().contains(event));
    }
    assert_eq!(std::fs::read(data.join("endpoints.json")).unwrap(), endpoints);
    assert_eq!(read_mark(&data).unwrap().unwrap().offset, 1);
    assert_eq!(daemon.status().read_only, None);
    daemon.stop();
    assert!(!data.join("endpoints.json").exists());
}

#[test]
fn nothing_is_written_through_links_in_a_data_directory() {
    let place = directory();
    let [data, others, log] = ["data", "others", "log"].map(|name| place.path().join(name));
    std::fs::create_dir(&data).unwrap();
    std::fs::set_permissions(&data, std::fs::Permissions::from_mode(0o777)).unwrap();
    std::fs::write(&others, "theirs").unwrap();
    for name in [
        "endpoints.json.new",
        "checkpoint.new",
        "starting.json",
        "history.new",
        "quarantine.sqlite",
        "warm-start.json.new",
    ] {
        symlink(&others, data.join(name)).unwrap();
    }
    let mut command = above_thresholds();
    command.args(["serve", "--data-dir"]).arg(&data).args(["--http", "127.0.0.1:0"]).args(any_ports());
    command.stderr(File::create(&log).unwrap());
    let daemon = Served { process: Process::start(command, &data), directory: data.clone() };
    let row = |state: Value| json!({"seq": 0, "state": state, "next_state": [1.0], "reward": 1.0});
    daemon.requester().ask("append", row(json!([0.0])), PATIENCE).unwrap();
    assert!(daemon.requester().ask("append", row(json!(["x"])), PATIENCE).is_err());
    done(&format!("checkpoint --data-dir {}", show(&data)));
    daemon.stop();
    assert_eq!(std::fs::read(&others).unwrap(), b"theirs");
    let said = std::fs::read_to_string(&log).unwrap();
    assert!(said.contains("event=data_dir_open") && said.contains("mode=0777"), "{said}");
    std::fs::remove_file(data.join("lock")).unwrap();
    symlink(&others, data.join("lock")).unwrap();
    fails(&format!("serve --http off --data-dir {}", show(&data)), "lock");
    assert_eq!(std::fs::read(&others).unwrap(), b"theirs");
    // Nor does a backup bring what a link in it leads to.
    let [backup, back] = ["backup", "back"].map(|name| place.path().join(name));
    std::fs::remove_file(data.join("lock")).unwrap();
    done(&format!("backup {} --out {}", show(&data), show(&backup)));
    symlink(&others, backup.join("history")).unwrap();
    fails(&format!("restore {} {}", show(&backup), show(&back)), "history is no file");
    assert!(files(&back).is_empty(), "{:?}", files(&back));
}

#[test]
fn a_start_says_what_is_in_its_way_before_it_reads_the_journal() {
    let place = directory();
    let data = place.path().join("data");
    stopped(&data);
    damage(&data, 4);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let ports = |control: u16| {
        let others = "--http off --ingest tcp://127.0.0.1:0 --publish tcp://127.0.0.1:0";
        format!("serve {others} --control tcp://127.0.0.1:{control}")
    };
    let taken = ports(taken.local_addr().unwrap().port());
    fails(&format!("{taken} --data-dir {}", show(&data)), "in use");
    fails(&format!("{} --data-dir {}", ports(0), show(&data)), "group 4");
    // Without a place for the data they are in the working directory, and the log says so.
    let mut nowhere = program::criticd();
    for name in ["HOME", "XDG_STATE_HOME", "CRITICD_DATA_DIR"] {
        nowhere.env_remove(name);
    }
    let output = nowhere.args(taken.split_whitespace()).current_dir(place.path()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("event=relative_data_dir path=criticd") && said.contains("in use"), "{said}");
}

#[test]
fn a_journal_without_its_mark_is_not_passed_over() {
    let place = directory();
    let data = place.path().join("data");
    stopped(&data);
    let log = place.path().join("log");
    let start = || {
        let mut command = program::criticd();
        command.args(["serve", "--http", "off", "--set", "critic.discount=0.9", "--data-dir"]).arg(&data);
        command.args(any_ports()).stderr(File::create(&log).unwrap());
        Process::start(command, &data).kill();
        std::fs::read_to_string(&log).unwrap()
    };
    std::fs::remove_file(data.join(MARK)).unwrap();
    let said = start();
    assert!(said.contains("event=mark_missing"), "{said}");
    let said = start();
    assert!(!said.contains("event=mark_missing"), "{said}");
}

#[test]
fn models_go_on_from_a_checkpoint_alone() {
    let place = directory();
    let data = place.path().join("data");
    stopped(&data);
    let name = show(&data);
    for file in std::fs::read_dir(&data).unwrap().flatten() {
        if file.file_name().to_string_lossy().starts_with("journal") {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
    let said = done(&format!("repair {name}"));
    assert!(said.contains("The models continue as of offset 2048"), "{said}");
    done(&format!("repair --from-checkpoint {name} --yes"));
    let daemon = Served::start(&data);
    assert_eq!(daemon.status().offset, 2048);
    assert_eq!(daemon.model()["transitions"], 2048);
    // It learns on, and a restart finds it so.
    let rows = place.path().join("more.csv");
    table(&rows, 2);
    done(&format!("replay {} --ack --data-dir {name}", show(&rows)));
    let model = daemon.model();
    daemon.stop();
    assert!(Served::start(&data).model() == model);
}

#[test]
fn a_journal_without_beginning_and_checkpoint_is_no_dead_end() {
    let place = directory();
    let data = place.path().join("data");
    stopped(&data);
    let name = show(&data);
    rusqlite::Connection::open(data.join(DATABASE)).unwrap().execute_batch("DELETE FROM groups WHERE id < 6").unwrap();
    for file in std::fs::read_dir(&data).unwrap().flatten() {
        if file.file_name().to_string_lossy().starts_with("checkpoint") {
            std::fs::remove_file(file.path()).unwrap();
        }
    }
    fails(&format!("repair --truncate {name} --yes"), "truncating it changes nothing");
    fails(&format!("repair --from-checkpoint {name} --yes"), "no checkpoint that can be read");
    let said = done(&format!("repair {name}"));
    assert!(said.contains("--warm-start rows.csv") && !said.contains("repair --"), "{said}");
    let rows = place.path().join("rows.csv");
    let said = done(&format!("export {name} --out {}", show(&rows)));
    assert!(said.contains("2048 rows; offsets 1024 to 3072"), "{said}");
    let said = done(&format!("reset {name}"));
    let aside = said.split("The data is in ").nth(1).unwrap().split(". A daemon").next().unwrap();
    assert!(Path::new(aside).join(DATABASE).exists(), "{said}");
    assert!(done(&format!("reset {name}")).contains("nothing to set aside"), "it can be said twice");
    let daemon = Served::start(&data);
    done(&format!("replay {} --ack --data-dir {name}", show(&rows)));
    assert_eq!(daemon.status().offset, 2048);
    fails(&format!("reset {name}"), "a daemon runs here");
    fails(&format!("repair {name}"), "a daemon runs here");
}

#[test]
fn an_interrupted_repair_is_finished_before_anything_starts() {
    let place = directory();
    let data = place.path().join("data");
    stopped(&data);
    let name = show(&data);
    let fresh = replace::stage(&data, "repaired.new").unwrap();
    std::fs::copy(data.join(DATABASE), fresh.join(DATABASE)).unwrap();
    std::fs::create_dir(data.join("damaged-1")).unwrap();
    std::fs::rename(data.join(DATABASE), data.join("damaged-1").join(DATABASE)).unwrap();
    let plan = Moves {
        aside: "damaged-1".into(),
        set_aside: vec![DATABASE.into()],
        fresh: Some("repaired.new".into()),
        installing: true,
    };
    std::fs::write(data.join(replace::PLAN), serde_json::to_vec(&plan).unwrap()).unwrap();
    fails(&format!("serve --data-dir {name} --set http=off"), "finish it with `criticd repair");
    fails(&format!("compact {name}"), "was interrupted");
    let said = done(&format!("repair {name}"));
    assert!(said.contains("What was interrupted here is finished"), "{said}");
    assert!(survey(&data).unwrap().offsets.1 > 0 && !data.join(replace::PLAN).exists());
}

#[test]
fn a_compacted_journal_is_smaller_and_the_same() {
    let place = directory();
    let data = place.path().join("data");
    let name = show(&data);
    let daemon = Served::start_with(&data, &["journal_rows_max=4096", "window_rows=500", "checkpoint_rows=500"]);
    let rows = place.path().join("rows.csv");
    // Each commit forgets some groups that no checkpoint needs. When they are written depends on the machine: so two are asked for,
    // and the commits behind them find more to forget than they write.
    for (messages, then) in [(40, "checkpoint"), (2, "checkpoint"), (4, "status")] {
        table(&rows, messages);
        done(&format!("replay {} --ack --data-dir {name}", show(&rows)));
        done(&format!("{then} --data-dir {name}"));
    }
    let kept = daemon.status().journal.unwrap();
    assert!(kept.rows < 5000 && kept.first_offset > 5000, "{kept:?}");
    let model = daemon.model();
    let said = done(&format!("compact {}", daemon.control()));
    assert!(said.contains("bytes would come back") && said.contains("criticd stop"), "{said}");
    daemon.stop();
    // What the last groups wrote may still be in the log beside the database.
    let size = |name: String| std::fs::metadata(data.join(name)).map_or(0, |file| file.len());
    let bytes = || size(DATABASE.to_owned()) + size(format!("{DATABASE}-wal"));
    let before = bytes();
    let said = done(&format!("compact {name}"));
    let back: u64 = said.split(": ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(back > 0 && bytes() < before, "{said}");
    assert!(done(&format!("compact {name}")).contains("all of them in use"));
    let daemon = Served::start_with(&data, &["journal_rows_max=4096", "window_rows=500", "checkpoint_rows=500"]);
    assert!(daemon.model() == model);
}

#[test]
fn stop_waits_for_the_end_and_status_says_where_the_daemon_is() {
    let place = directory();
    let data = place.path().join("data");
    let name = show(&data);
    fails(&format!("stop {name}"), "no daemon runs here");
    let daemon = Served::start(&data);
    let status = daemon.status();
    assert_eq!(status.pid, Some(u64::from(daemon.process.child.id())));
    assert_eq!(status.data_dir.as_deref(), Some(name.as_str()));
    let said = done(&format!("status --data-dir {name}"));
    assert!(said.contains(&format!("process {}", daemon.process.child.id())) && said.contains(&name), "{said}");
    fails(&format!("serve --data-dir {name} --set http=off"), &format!("(process {}) uses", daemon.process.child.id()));
    let mut daemon = daemon;
    let said = done(&format!("stop {}", daemon.control()));
    assert!(said.contains("has ended"), "{said}");
    assert_eq!(daemon.process.child.wait().unwrap().code(), Some(0));
    fails(&format!("stop {name}"), "no daemon runs here");
}

#[test]
fn status_says_of_a_daemon_that_starts_how_far_it_is() {
    let place = directory();
    let data = place.path().join("data");
    std::fs::create_dir(&data).unwrap();
    let _lock = criticd::daemon::lock(&data).unwrap();
    let process = format!("(process {})", std::process::id());
    for arguments in ["status", "status --json", "status --watch"] {
        fails(&format!("{arguments} --data-dir {}", show(&data)), &format!("{process} starts"));
    }
    std::fs::write(data.join("starting.json"), "{\"rows\":30,\"of\":75}").unwrap();
    fails(&format!("status --data-dir {}", show(&data)), "recovers: 30 of 75 rows of the journal learned again");
}

#[test]
fn names_cannot_command_the_terminal() {
    let place = directory();
    let data = place.path().join("data");
    let daemon = Served::start(&data);
    let row = json!({"stream": "a\u{1b}[2J\u{9b}31m\u{202e}\nrefused  none", "seq": 0, "state": [0.0], "next_state": [1.0], "reward": 1.0});
    daemon.requester().ask("append", row, PATIENCE).unwrap();
    for arguments in ["status", "status --json"] {
        let said = done(&format!("{arguments} --data-dir {}", show(&data)));
        assert!(said.contains(r"a\u001b[2J\u009b31m\u202e\nrefused  none"), "{said}");
        assert!(!said.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{arguments}");
    }
    // So are those of columns and of settings.
    let (table, settings) = (place.path().join("table.csv"), place.path().join("criticd.toml"));
    std::fs::write(&table, "x\u{1b}[2J\u{9b}31m\u{202e}é,cost\n0,1\n").unwrap();
    std::fs::write(&settings, "\"x\\u001b[2J\\u009b31m\\u202e\" = 1\n").unwrap();
    let model = place.path().join("a.model");
    for arguments in
        [format!("fit {} --out {}", show(&table), show(&model)), format!("check-config {}", show(&settings))]
    {
        let (status, said) = run(&arguments);
        assert!(status == 1 && said.contains(r"x\u001b[2J\u009b31m\u202e"), "{said}");
        assert!(!said.contains(['\u{1b}', '\u{9b}', '\u{202e}']), "{arguments}");
    }
}

#[test]
fn data_of_older_versions_is_read_and_that_of_newer_ones_is_left_alone() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    for fixture in ["journal-v1", "journal-critics", "journal-v5", "journal-v6", "journal-v7"] {
        let place = directory();
        let data = place.path().join("data");
        std::fs::create_dir(&data).unwrap();
        for file in std::fs::read_dir(fixtures.join(fixture)).unwrap().flatten() {
            std::fs::copy(file.path(), data.join(file.file_name())).unwrap();
        }
        let name = show(&data);
        let rows = survey(&data).unwrap().end.offset;
        assert!(rows > 0 && done(&format!("inspect {name}")).contains("good"), "{fixture}");
        let said = done(&format!("export {name} --out {}", show(&place.path().join("rows.csv"))));
        assert!(said.contains(&format!("offsets 0 to {rows}")), "{fixture}: {said}");
        done(&format!("backup {name} --out {}", show(&place.path().join("backup"))));
        done(&format!("restore {} {}", show(&place.path().join("backup")), show(&place.path().join("back"))));
        // As a newer version would have written it.
        let database = rusqlite::Connection::open(data.join(DATABASE)).unwrap();
        database.pragma_update(None, "user_version", 9).unwrap();
        drop(database);
        let before = std::fs::read(data.join(DATABASE)).unwrap();
        for command in ["serve --set http=off --data-dir", "inspect", "repair", "repair --truncate --yes"] {
            fails(&format!("{command} {name}"), "format version 9");
            fails(&format!("{command} {name}"), "install the newer criticd, or restore a backup");
        }
        assert!(std::fs::read(data.join(DATABASE)).unwrap() == before, "{fixture}");
    }
}

#[test]
fn a_group_or_a_checkpoint_of_a_newer_version_is_not_repaired_away() {
    let place = directory();
    for what in ["group", "checkpoint"] {
        let data = place.path().join(what);
        let daemon = Served::start(&data);
        let row = json!({"seq": 0, "state": [0.0], "next_state": [1.0], "reward": 1.0});
        daemon.requester().ask("append", row, PATIENCE).unwrap();
        daemon.stop();
        if what == "group" {
            let mut storage = SqliteStorage::open(&data).unwrap();
            let (_, last) = storage.bounds().unwrap().unwrap();
            let last = storage.read(last, 1).unwrap().pop().unwrap();
            let newer = StoredGroup {
                id: last.id + 1,
                first_offset: last.end(),
                previous_crc: last.crc,
                version: VERSION + 1,
                ..last.clone()
            };
            storage.append(&newer.sealed(), 0, true).unwrap();
        } else {
            let checkpoint = files(&data).into_iter().find(|name| name.starts_with("checkpoint-")).unwrap();
            let newer = Seal { kind: b"criticd checkpoint\n", version: 200 };
            std::fs::write(data.join(checkpoint), newer.close(|_| {})).unwrap();
        }
        let name = show(&data);
        for command in
            ["serve --set http=off --data-dir", "repair", "repair --truncate --yes", "repair --from-checkpoint --yes"]
        {
            let (status, said) = run(&format!("{command} {name}"));
            assert!(status == 1 && said.contains("format version"), "{command}: {said}");
            assert!(said.contains("install the newer criticd, or restore a backup"), "{command}: {said}");
            assert!(!said.contains("criticd repair") && !said.contains("criticd reset"), "{command}: {said}");
        }
        let said = done(&format!("inspect {name}"));
        assert!(said.contains("install the newer criticd") && !said.contains("criticd repair"), "{said}");
        assert!(!files(&data).iter().any(|name| name.starts_with("damaged-")), "{:?}", files(&data));
    }
}
