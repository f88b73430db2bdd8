//! Bytes of rows that were taken back: out of all files wherever it was interrupted, and out of a backup of before as well.

use crate::removal::{append, start};
use crate::support::program::{Process, criticd, patient};
use crate::support::{PATIENCE, asked, until};
use criticd::client::Requester;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

/// A number of the rows that are to be erased.
const SECRET: f64 = 0.623_450_987_654_321;
/// Their stream, their session, and why they are erased.
const NAMES: [&str; 3] = ["patient-of-room-nine", "her-first-visit", "she-has-asked-for-it"];

/// Whether a file below a directory has these bytes.
fn holds(directory: &Path, bytes: &[u8]) -> Option<PathBuf> {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let found = if path.is_dir() {
            holds(&path, bytes)
        } else {
            let content = std::fs::read(&path).unwrap();
            content.windows(bytes.len()).any(|window| window == bytes).then_some(path)
        };
        if found.is_some() {
            return found;
        }
    }
    None
}

/// Append so many rows of the stream of [`NAMES`], in one episode. They have multiples of `number`, as others have of [`SECRET`].
fn append_named(requester: &mut Requester, number: f64, seq: u64, rows: usize) {
    let states: Vec<[f64; 1]> = (0..rows).map(|i| [number * (i % 7) as f64]).collect();
    let next: Vec<[f64; 1]> = states.iter().map(|[x]| [x + 0.1]).collect();
    let fields = json!({
        "stream": NAMES[0], "session": NAMES[1], "seq": seq,
        "states": states, "next_states": next, "rewards": vec![number; rows],
    });
    requester.ask("append", fields, PATIENCE).unwrap();
}

/// Run a command, which must succeed. Returns what it says.
fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.stdin(Stdio::null()).output().unwrap();
    assert!(status.success(), "{command:?}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

fn erase(data: &Path) -> Command {
    let mut command = criticd();
    command.arg("erase").arg(data).stdin(Stdio::null());
    command
}

/// Take the rows of [`SECRET`] back.
fn remove(data: &Path) -> Command {
    let mut command = criticd();
    command
        .args(patient("remove"))
        .args(["--yes", "--wait", "--stream", NAMES[0], "--reason", NAMES[2], "--data-dir"])
        .arg(data);
    command
}

fn stop(data: &Path, mut daemon: Process) {
    run(criticd().args(patient("stop")).arg(data));
    daemon.child.wait().unwrap();
}

fn status(daemon: &Process) -> Value {
    daemon.requester().ask("status", json!({}), PATIENCE).unwrap()
}

/// Rows that were taken back and are not erased, and since when.
fn unerased(daemon: &Process) -> (Value, Value) {
    let journal = &status(daemon)["journal"];
    (journal["unerased_rows"].clone(), journal["unerased_since"].clone())
}

/// Rows that an export has.
fn rows(data: &Path) -> u64 {
    let table = data.with_extension("csv");
    run(criticd().arg("export").arg(data).arg("--out").arg(&table));
    std::fs::read_to_string(table).unwrap().lines().count() as u64 - 1
}

/// What the daemon answers, and of which model.
fn answer(daemon: &Process) -> [Value; 4] {
    let states = json!({"states": [[-0.5], [0.1], [0.7]], "variance": true, "arrays": "list"});
    let value = daemon.requester().ask("value", states, PATIENCE).unwrap();
    ["mean", "variance", "generation", "offset"].map(|key| value[key].clone())
}

/// A daemon that has learned 400 rows of others and 200 of [`SECRET`], with a checkpoint among them.
fn with_secret(data: &Path) -> Process {
    let daemon = start(data);
    let mut requester = daemon.requester();
    for round in 0..10_u64 {
        // The first number is of the stream that is to go.
        append_named(&mut requester, SECRET, 20 * round, 20);
        append(&mut requester, "good", 40 * round, 40);
    }
    requester.ask("checkpoint", json!({}), PATIENCE).unwrap();
    assert!(holds(data, &SECRET.to_le_bytes()).is_some(), "the search finds what is there");
    daemon
}

/// The same whose rows of [`SECRET`] were taken back, and which was stopped then. What it answered last.
fn taken_back(data: &Path) -> [Value; 4] {
    let daemon = with_secret(data);
    run(&mut remove(data));
    let before = answer(&daemon);
    stop(data, daemon);
    before
}

fn assert_erased(directory: &Path) {
    for number in [SECRET, SECRET * 2.0, SECRET * 6.0, SECRET + 0.1] {
        assert_eq!(holds(directory, &number.to_le_bytes()), None, "{number}");
    }
}

#[test]
fn no_byte_of_erased_rows_is_left_wherever_the_erasure_was_interrupted() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut rng = ChaCha8Rng::seed_from_u64(8);
    let daemon = with_secret(&data);
    assert!(!erase(&data).output().unwrap().status.success(), "a daemon runs there");
    assert_eq!(unerased(&daemon), (json!(0), Value::Null));
    run(&mut remove(&data));
    let removed_at = status(&daemon)["removals"][0]["time"].clone();
    assert_eq!(unerased(&daemon), (json!(200), removed_at));
    let said = run(criticd().args(patient("status")).arg("--data-dir").arg(&data));
    assert!(said.contains("erasure") && said.contains("pending since"), "{said}");
    let before = answer(&daemon);
    stop(&data, daemon);
    // Killed at any moment it goes on, and no daemon starts in between on half of the files.
    for _ in 0..asked("CRITICD_KILLS", 12) {
        let mut child = erase(&data).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(rng.random_range(0..60_000)));
        drop(child.kill());
        child.wait().unwrap();
    }
    run(&mut erase(&data));
    assert_erased(&data);
    let daemon = start(&data);
    assert_eq!(answer(&daemon), before);
    append(&mut daemon.requester(), "good", 400, 40);
    append_named(&mut daemon.requester(), 0.5, 200, 20);
    assert_eq!(holds(&data, &SECRET.to_le_bytes()), None);
    let told = status(&daemon);
    assert_eq!((told["offset"].as_u64(), told["removals"][0]["rows"].as_u64()), (Some(660), Some(200)));
    assert_eq!(unerased(&daemon), (json!(0), Value::Null));
    // The models went with the rows: without a checkpoint the rest is learned anew, which a start says.
    stop(&data, daemon);
    for entry in std::fs::read_dir(&data).unwrap().map(Result::unwrap) {
        if entry.file_name().to_string_lossy().starts_with("checkpoint-") {
            std::fs::remove_file(entry.path()).unwrap();
        }
    }
    let daemon = start(&data);
    let told = status(&daemon);
    assert_eq!((told["offset"].as_u64(), told["removals"][0]["rows"].as_u64()), (Some(660), Some(200)));
    assert_eq!(unerased(&daemon), (json!(0), Value::Null));
    assert!(told["recovered"]["faults"][0].as_str().unwrap().contains("rows were erased"), "{}", told["recovered"]);
}

#[test]
fn an_erasure_without_room_leaves_all_as_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let before = taken_back(&data);
    for blocks in [1, 8, 40] {
        let mut command = Command::new("sh");
        // In blocks of 512 bytes.
        command.args([
            "-c",
            &format!("ulimit -f {blocks}; exec \"$0\" \"$@\""),
            env!("CARGO_BIN_EXE_criticd"),
            "erase",
        ]);
        let Output { status, stderr, .. } = command.arg(&data).stdin(Stdio::null()).output().unwrap();
        assert_eq!(status.code().map(|code| code > 0), Some(true), "{}", String::from_utf8_lossy(&stderr));
        let daemon = start(&data);
        assert_eq!(answer(&daemon), before, "{blocks} blocks");
        assert_eq!(unerased(&daemon).0, json!(200), "erasure is pending");
        assert_eq!(rows(&data), 400);
        stop(&data, daemon);
    }
    run(&mut erase(&data));
    assert_erased(&data);
    assert_eq!(answer(&start(&data)), before);
}

#[test]
fn names_of_erased_streams_are_forgotten_where_that_is_asked_for() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let before = taken_back(&data);
    run(&mut erase(&data));
    NAMES.iter().for_each(|name| assert!(holds(&data, name.as_bytes()).is_some(), "{name} stays"));
    let said = run(erase(&data).arg("--forget-names"));
    assert!(said.contains("1 name forgotten"), "{said}");
    assert_erased(&data);
    NAMES.iter().for_each(|name| assert_eq!(holds(&data, name.as_bytes()), None, "{name}"));
    assert!(holds(&data, b"good").is_some());
    let daemon = start(&data);
    assert_eq!(answer(&daemon), before);
    let (told, mut requester) = (status(&daemon), daemon.requester());
    let streams: Vec<&String> = told["recent_streams"].as_object().unwrap().keys().collect();
    assert_eq!(streams, ["good", "removed-0"]);
    assert_eq!(told["removals"][0]["reason"], Value::Null);
    append(&mut requester, "good", 400, 40);
    // It is another stream now.
    append(&mut requester, NAMES[0], 0, 20);
    assert_eq!(status(&daemon)["offset"], json!(660));
}

#[test]
fn a_backup_of_before_does_not_bring_rows_back() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let (data, backup) = (at("data"), at("backup"));
    let daemon = with_secret(&data);
    let with_all = answer(&daemon);
    run(criticd().arg("backup").arg(&data).arg("--out").arg(&backup));
    append_named(&mut daemon.requester(), SECRET, 200, 40);
    run(&mut remove(&data));
    run(criticd().arg("backup").arg(&data).arg("--out").arg(at("later")));
    append(&mut daemon.requester(), "good", 400, 40);
    stop(&data, daemon);
    run(&mut erase(&data));
    let list = std::fs::read(data.join("tombstones.json")).unwrap();
    assert_eq!(std::fs::read(at("later/tombstones.json")).unwrap(), list, "later backups have it");

    let restore = |to: &Path| drop(run(criticd().arg("restore").arg(&backup).arg(to)));
    restore(&at("ignorant"));
    assert_eq!(answer(&start(&at("ignorant"))), with_all, "nothing here says what was taken back");
    // In the place of the data, and in another directory with the list alone.
    run(criticd().arg("reset").arg(&data));
    std::fs::create_dir(at("other")).unwrap();
    std::fs::write(at("other/tombstones.json"), &list).unwrap();
    for data in [data, at("other")] {
        restore(&data);
        let daemon = start(&data);
        let told = status(&daemon);
        let removal = &told["removals"][0];
        assert_eq!((told["offset"].as_u64(), removal["rows"].as_u64()), (Some(600), Some(200)), "{removal}");
        assert!(removal["reason"].as_str().unwrap().contains("tombstones.json"), "{removal}");
        assert_ne!(answer(&daemon), with_all);
        assert_eq!(rows(&data), 400);
        // What is stored from here on at offsets of the list are other rows.
        append(&mut daemon.requester(), "good", 400, 60);
        stop(&data, daemon);
        let daemon = start(&data);
        assert_eq!(status(&daemon)["removals"].as_array().unwrap().len(), 1, "once is enough");
        assert_eq!(rows(&data), 460);
        stop(&data, daemon);
    }
    // A list that cannot be read is no empty list.
    std::fs::write(at("ignorant/tombstones.json"), "{").unwrap();
    let refused = criticd().args(["serve", "--http", "off", "--data-dir"]).arg(at("ignorant")).output().unwrap();
    let words = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && words.contains("tombstones.json") && words.contains("move that file away"),
        "{words}"
    );
}

#[test]
fn a_start_lists_what_a_crash_has_kept_from_the_list() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let data = at("data");
    let list = || std::fs::read(data.join("tombstones.json")).unwrap_or_default();
    let take = |daemon: &Process, offsets: [u64; 2]| {
        let (before, fields) = (list(), json!({"select": [{"offsets": offsets}], "dry_run": false}));
        daemon.requester().ask("remove", fields, PATIENCE).unwrap();
        until("the removal to be listed", || list() != before);
        before
    };
    let replace_with = |backup: &str| {
        run(criticd().arg("reset").arg(&data));
        run(criticd().arg("restore").arg(at(backup)).arg(&data));
    };
    let backup = |name: &str| drop(run(criticd().arg("backup").arg(&data).arg("--out").arg(at(name))));
    let daemon = with_secret(&data);
    backup("early");
    append(&mut daemon.requester(), "good", 400, 60);
    take(&daemon, [610, 630]);
    stop(&data, daemon);
    replace_with("early");
    let mut daemon = start(&data);
    append(&mut daemon.requester(), "good", 400, 60);
    backup("others");
    // Other rows at offsets that are listed; killed before they are.
    let before = take(&daemon, [615, 620]);
    daemon.child.kill().unwrap();
    daemon.child.wait().unwrap();
    std::fs::write(data.join("tombstones.json"), &before).unwrap();
    let daemon = start(&data);
    until("the removal to be listed", || list() != before);
    stop(&data, daemon);
    replace_with("others");
    let told = status(&start(&data));
    assert_eq!((told["offset"].as_u64(), told["removals"][0]["rows"].as_u64()), (Some(660), Some(5)), "{told}");
}

#[test]
fn a_removal_that_is_killed_is_whole_or_not_there() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let mut rng = ChaCha8Rng::seed_from_u64(9);
    let mut daemon = with_secret(&data);
    let (mut good, mut bad, mut removed, mut in_vain) = (400, 200, 0, 0);
    for _ in 0..asked("CRITICD_KILLS", 6) {
        let mut removing = remove(&data).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        std::thread::sleep(Duration::from_micros(rng.random_range(0..120_000)));
        daemon.child.kill().unwrap();
        daemon.child.wait().unwrap();
        drop(removing.kill());
        removing.wait().unwrap();
        daemon = start(&data);
        let told = status(&daemon);
        assert_eq!(told["offset"].as_u64(), Some(good + bad));
        let now = good + bad - rows(&data);
        assert!(now == removed || now == bad, "{now} of {bad} rows, {removed} before");
        in_vain += usize::from(now < bad);
        removed = now;
        // The ones of the last round, where they are still there, go with these.
        let mut requester = daemon.requester();
        append(&mut requester, "good", good, 20);
        append_named(&mut requester, SECRET, bad, 20);
        (good, bad) = (good + 20, bad + 20);
    }
    run(&mut remove(&data));
    assert_eq!(rows(&data), good, "{in_vain} removals were killed before they were stored");
    stop(&data, daemon);
    run(&mut erase(&data));
    assert_erased(&data);
}
