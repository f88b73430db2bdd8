//! `criticd serve --warm-start TABLE`: batch, then live, is one stream of experience. The real program throughout.

use crate::support::program::{Process, any_ports, criticd};
use crate::support::{PATIENCE, daemon, http, until, wait, wait_or};
use criticd::client::{ClientError, Requester, Sender};
use criticd::config::Config;
use criticd::daemon::warm_start::WarmStart;
use criticd::daemon::{Daemon, StartupProgress};
use criticd::sim::{self, Step, pendulum::Pendulum};
use criticd::table::{Columns, Placed, Reading, RowColumns, RowWriter};
use criticd::transition::Batch;
use criticd::wire;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Neither model selection nor the tuning of noise at refreshes, whose times depend on how rows are grouped: what is left is
/// a function of the rows alone.
const CALM: [&str; 6] = [
    "critic.refit_first_rows=0",
    "critic.refit_score_drop=0",
    "critic.estimate_scale=false",
    "critic.dictionary_max=60",
    "critic.tolerance=1e-2",
    "log=info",
];

fn command(directory: &Path, more: &[&str]) -> Command {
    let mut command = criticd();
    command.arg("serve").arg("--data-dir").arg(directory).args(["--http", daemon::ANY_HTTP]).args(any_ports());
    for setting in CALM {
        command.args(["--set", setting]);
    }
    command.args(more).env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

fn start(directory: &Path, more: &[&str]) -> Process {
    let mut command = command(directory, more);
    command.stderr(Stdio::null());
    Process::start(command, directory)
}

impl Process {
    /// What `/readyz` answers.
    fn readyz(&self) -> http::Answer {
        http::get(self.endpoint("http").parse().unwrap(), "/readyz")
    }
}

/// The status as soon as it is as wanted.
fn status_when(requester: &mut Requester, mut wanted: impl FnMut(&Value) -> bool) -> Value {
    wait_or(|| {
        let status = requester.ask("status", json!({}), PATIENCE).unwrap();
        let status = status.get("status").cloned().unwrap_or(status);
        if wanted(&status) { Ok(status) } else { Err(format!("another status than {status:#}")) }
    })
}

/// What a start that is refused says, and its exit status.
fn refused(directory: &Path, more: &[&str]) -> (i32, String) {
    let Output { status, stderr, .. } = command(directory, more).output().unwrap();
    let said = String::from_utf8(stderr).unwrap();
    assert!(!said.contains("panicked"), "{said}");
    (status.code().unwrap(), said)
}

/// Streams of the table, and what the daemon calls them.
const RECORDED: [&str; 2] = ["default", "left"];
const LEARNED: [&str; 2] = ["warm-start", "warm-start/left"];

/// Experience of two pendulums that take turns, in the order in which it is recorded.
fn experience(names: [&str; 2], rows: usize) -> Vec<Batch> {
    let mut pendulums = [(names[0], Pendulum::new(1, 0.3)), (names[1], Pendulum::new(2, 0.3))];
    let turn = |turn: usize| {
        let (name, pendulum) = &mut pendulums[turn % 2];
        let steps: Vec<Step> = (0..10).map(|_| pendulum.step()).collect();
        sim::batches(name, "", &steps).remove(0)
    };
    (0..rows / 10).map(turn).collect()
}

fn write(path: &Path, batches: &[Batch]) {
    let mut columns = RowColumns::default();
    batches.iter().for_each(|batch| columns.include(batch).unwrap());
    let mut writer = RowWriter::create(path, &columns).unwrap();
    for (batch, i) in batches.iter().flat_map(|batch| (0..batch.len()).map(move |i| (batch, i))) {
        writer.push(batch, i, &Placed { offset: 0, received: 0.0, starts_chain: false }).unwrap();
    }
    writer.finish().unwrap();
}

/// Everything that must not depend on how the rows came: numbers to be compared closely, and the rest exactly.
fn fate(requester: &mut Requester, rows: u64) -> (Vec<f64>, Value) {
    let states: Vec<[f64; 2]> = (0..50).map(|i| [f64::from(i % 7) - 3.0, f64::from(i) / 5.0 - 5.0]).collect();
    let question = json!({"states": states, "variance": true, "min_offset": rows, "arrays": "list"});
    let answer = requester.ask("value", question, PATIENCE).unwrap();
    let status = status_when(requester, |status| status["offset"] == rows);
    let critic = &status["critics"][0];
    let numbers = ["mean", "variance"].iter().flat_map(|key| answer[*key].as_array().unwrap().clone());
    let counts = json!({
        "offset": status["offset"], "transitions": critic["transitions"], "cuts": critic["counts"]["cuts"],
        "terminations": critic["counts"]["terminations"], "left_out": critic["counts"]["novel_when_full"],
        "dictionary": critic["dictionary_size"], "chains": critic["running_chains"], "rejected": status["rejected"],
    });
    (numbers.map(|v| v.as_f64().unwrap()).collect(), counts)
}

fn live() -> Vec<Batch> {
    let mut pendulum = Pendulum::new(3, 0.3);
    (0..20).flat_map(|_| sim::batches("robot", "run", &(0..50).map(|_| pendulum.step()).collect::<Vec<_>>())).collect()
}

#[test]
fn a_table_and_then_live_rows_equal_one_stream() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (recorded, live) = (experience(RECORDED, 6000), live());
    write(&path("table.csv"), &recorded);
    let table = path("table.csv");
    let warm = ["--warm-start", table.to_str().unwrap()];

    let streamed = {
        let daemon = start(&path("streamed"), &[]);
        let sender = Sender::connect(daemon.endpoint("ingest"), PATIENCE).unwrap();
        let mut same = experience(LEARNED, 6000).into_iter();
        same.all(|batch| sender.send(wire::encode_ingest(&batch)).is_ok());
        live.iter().for_each(|batch| sender.send(wire::encode_ingest(batch)).unwrap());
        let fate = fate(&mut daemon.requester(), 7000);
        sender.close(PATIENCE).unwrap();
        fate
    };

    let daemon = start(&path("warm"), &warm);
    // Live rows may come while the table is being learned: they have to wait.
    let sender = Sender::connect(daemon.endpoint("ingest"), PATIENCE).unwrap();
    live.iter().for_each(|batch| sender.send(wire::encode_ingest(batch)).unwrap());
    let mut requester = daemon.requester();
    let (numbers, counts) = fate(&mut requester, 7000);
    assert_eq!(counts, streamed.1);
    let scale = streamed.0.iter().fold(1.0f64, |scale, v| scale.max(v.abs()));
    let apart = numbers.iter().zip(&streamed.0).map(|(a, b)| (a - b).abs() / scale).fold(0.0, f64::max);
    // Rows come in other pieces, and so are added in another order: a ridge of a ten thousandth of the largest entries of S
    // makes of that what it makes of rounding.
    println!("largest deviation {apart:.1e}, allowed 1e-8");
    assert!(apart <= 1e-8, "{apart:e}");
    assert_eq!(status_when(&mut requester, |s| s["warm_start"].is_null())["duplicates"], 0);
    sender.close(PATIENCE).unwrap();
    drop(daemon);

    // The option may stay: nothing is learned twice, and the table is not even read.
    let daemon = start(&path("warm"), &warm);
    let mut requester = daemon.requester();
    let status = status_when(&mut requester, |_| true);
    assert_eq!(
        (&status["offset"], &status["duplicates"], &status["warm_start"]),
        (&json!(7000), &json!(0), &json!(null))
    );
    let next = sim::batches("robot", "other", &[Pendulum::new(9, 0.3).step()]).remove(0);
    let id = requester.post_append(&next).unwrap();
    requester.reply(id, PATIENCE).unwrap();
    drop(daemon);
    // Nor if the daemon no longer knows that it was: then every row is found to be known.
    std::fs::remove_file(path("warm/warm-start.json")).unwrap();
    let daemon = start(&path("warm"), &warm);
    let status = status_when(&mut daemon.requester(), |s| s["duplicates"] == 6000 && s["warm_start"].is_null());
    assert_eq!(status["offset"], 7001);
    drop(daemon);

    // Another table is refused, and so is the same one read in another way.
    write(&path("other.csv"), &recorded[1..]);
    let (code, said) = refused(&path("warm"), &["--warm-start", path("other.csv").to_str().unwrap()]);
    assert_eq!(code, 1);
    let known = PathBuf::from(warm[1]);
    assert!(said.contains(&format!("{} with 6000 transitions was learned", known.display())), "{said}");
    assert!(said.contains("leave --warm-start out") && said.contains("--data-dir"), "{said}");
    let (code, said) = refused(&path("warm"), &[warm[0], warm[1], "--assume-terminated", "never"]);
    assert!(code == 1 && said.contains("the same read in another way"), "{said}");
}

/// Start a daemon that learns a table of so many rows first, and kill it once it has learned 2000 behind the first `before`: how many
/// it has, then. Where this thread stood still meanwhile the table may be over: then there is nothing to go on with, and none.
fn kill_amid(data: &Path, more: &[&str], rows: u64, before: u64) -> Option<u64> {
    let mut daemon = start(data, more);
    let mut requester = daemon.requester();
    let offset = |status: &Value| status["offset"].as_u64().unwrap();
    let status = status_when(&mut requester, |status| status["warm_start"].is_null() || offset(status) > before + 2000);
    if status["warm_start"].is_null() {
        assert_eq!(status["offset"], rows);
        return None;
    }
    assert_eq!(status["warm_start"]["of"], rows);
    let ready = daemon.readyz();
    let live = sim::batches("robot", "run", &[Pendulum::new(3, 0.3).step()]).remove(0);
    let id = requester.post_append(&live).unwrap();
    match requester.reply(id, PATIENCE) {
        Err(ClientError::Refused(refusal)) => {
            assert_eq!((refusal.code.as_str(), refusal.retry_after_ms), ("overloaded", Some(1000)));
        }
        reply => {
            let reply = wire::to_json(&reply.unwrap()).unwrap();
            assert_eq!(reply["offset"], rows + 1, "live rows came first");
            return None;
        }
    }
    let said = ready.text();
    assert!(ready.status == 503 && (said.contains("table") || said.contains("starting")), "{said}");
    daemon.kill();
    Some(offset(&status))
}

#[test]
fn a_warm_start_that_is_killed_goes_on_where_it_was() {
    let directory = tempfile::tempdir().unwrap();
    let table = directory.path().join("table.csv");
    const ROWS: u64 = 40_000;
    write(&table, &experience(RECORDED, ROWS as usize));
    // Many small groups, each of which is synced: there is an amid.
    let more = ["--warm-start", table.to_str().unwrap(), "--set", "batch_rows_max=32", "--set", "checkpoint_rows=5000"];
    let mut tries = 0;
    let data = wait("a table that is not over before three kills", || {
        tries += 1;
        let data = directory.path().join(format!("data-{tries}"));
        let killed = (0..3).try_fold(0, |before, _| kill_amid(&data, &more, ROWS, before));
        killed.map(|_| data)
    });
    // Let it come to its end.
    let daemon = start(&data, &more);
    let mut requester = daemon.requester();
    let status = status_when(&mut requester, |status| status["warm_start"].is_null());
    assert_eq!(status["offset"], ROWS);
    until("readiness", || daemon.readyz().status == 200);
    let streams = requester.ask("streams", json!({}), PATIENCE).unwrap();
    for stream in LEARNED {
        let found = &streams["streams"][stream];
        assert_eq!((&found["rows"], &found["next_seq"]), (&json!(ROWS / 2), &json!(ROWS / 2)));
    }
    drop(daemon);

    // The model is that of the journal, whose rows are those of the table, each once.
    let calm = directory.path().join("calm");
    let whole = start(&calm, &["--warm-start", table.to_str().unwrap()]);
    status_when(&mut whole.requester(), |status| status["warm_start"].is_null());
    let expected = fate(&mut whole.requester(), ROWS);
    let daemon = start(&data, &[]);
    let found = fate(&mut daemon.requester(), ROWS);
    assert_eq!(found.1, expected.1);
    let scale = expected.0.iter().fold(1.0f64, |scale, v| scale.max(v.abs()));
    assert!(found.0.iter().zip(&expected.0).all(|(a, b)| (a - b).abs() <= 1e-9 * scale));
}

/// A long table takes minutes to check: SIGTERM ends that.
#[test]
fn the_check_of_a_table_can_be_stopped() {
    let place = tempfile::tempdir().unwrap();
    let table = place.path().join("runs.csv");
    write(&table, &experience(RECORDED, 20_000));
    let warm = WarmStart { table, reading: Reading::default(), columns: Columns::default() };
    for after in [0, 1, 2] {
        let data_dir = place.path().join(format!("data-{after}"));
        let mut parts = daemon::parts(place.path());
        parts.data_dir.clone_from(&data_dir);
        let (stop, mut told) = (AtomicBool::new(after == 0), 0);
        let started = Daemon::start_unless(&stop, Config::new(parts).unwrap(), Some(&warm), &mut |stage| {
            if matches!(stage, StartupProgress::Checking(_)) {
                told += 1;
                stop.store(told >= after, Ordering::Relaxed);
            }
        });
        let error = started.err().expect("it was stopped");
        assert!(error.is_stopped(), "{error}");
        assert_eq!(told, after.max(1));
        assert!(!data_dir.join("warm-start.json").exists() && !data_dir.join("endpoints.json").exists());
    }
}

#[test]
fn tables_that_cannot_be_learned_are_refused_before_anything_is() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let file = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let sound = "state_0,next_state_0,reward,terminated\n0,1,1,0\n1,2,1,0\n";
    let sound = file("sound.csv", sound);
    for (text, more, words) in [
        ("state_0,next_state_0,reward,terminated\n0,1,1,0\n1,2,x,0\n", &[][..], "line 3, column reward: \"x\" is not"),
        ("state_0,next_state_0,reward\n0,1,1\n", &[], "column terminated: missing"),
        ("state_0,next_state_0,reward,done\n0,1,1,0\n", &[], "--done terminated"),
        ("state_0,reward,terminated\n0,1,0\n", &["--set", "state_dim=1"], "holds no transition"),
        ("state_0,next_state_0,reward,terminated\n0,1,1,0\n", &["--set", "state_dim=2"], "states have 2 numbers here"),
        ("state_0,next_state_0,reward,terminated\n0,1,1,0\n", &["--set", "critic.rewards=[1]"], "learns reward 1"),
    ] {
        let table = file("table.csv", text);
        let (code, said) = refused(&data, &[&["--warm-start", &table], more].concat());
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("--warm-start: ") && said.contains("table.csv") && said.contains(words), "{said}");
    }
    let (code, said) = refused(&data, &["--warm-start", "absent.csv"]);
    assert!(code == 1 && said.contains("absent.csv: No such file"), "{said}");
    let (code, said) = refused(&data, &["--done", "truncated"]);
    assert!(code == 2 && said.contains("--warm-start; name it"), "{said}");
    let long = format!("stream,state_0,next_state_0,reward,terminated\n{},0,1,1,0\n", "x".repeat(250));
    let (_, said) = refused(&data, &["--warm-start", &file("long.csv", &long)]);
    assert!(said.contains("is too long") && said.contains("rename it"), "{said}");

    // Whoever sends under that name already keeps it.
    let daemon = start(&data, &[]);
    let mut requester = daemon.requester();
    let fields = json!({"stream": "warm-start", "seq": 0, "state": [0], "next_state": [1], "reward": 1});
    requester.ask("append", fields, PATIENCE).unwrap();
    drop(daemon);
    let (code, said) = refused(&data, &["--warm-start", &sound]);
    assert!(code == 1 && said.contains("stream \"warm-start\" is there already"), "{said}");
    let damaged = data.join("warm-start.json");
    std::fs::write(&damaged, "{").unwrap();
    let (code, said) = refused(&data, &["--warm-start", &sound]);
    assert!(code == 1 && said.contains("warm-start.json cannot be read"), "{said}");

    // Without a journal nothing is remembered, and every start learns the table.
    for _ in 0..2 {
        let fresh = directory.path().join("fresh");
        let daemon = start(&fresh, &["--warm-start", &sound, "--set", "journal=false"]);
        status_when(&mut daemon.requester(), |s| s["offset"] == 2 && s["warm_start"].is_null());
        assert!(!fresh.join("warm-start.json").exists());
    }
}

#[test]
fn names_of_a_table_or_of_rows_are_kept_with_the_journal_and_a_table_is_selected_from_whole() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let names = |daemon: &Process| {
        let snapshot = wait_or(|| daemon.requester().snapshot(None, PATIENCE).map_err(|e| e.to_string()));
        [snapshot.inputs.names.clone().unwrap_or_default(), snapshot.reward_names.clone()]
            .map(|of| of.join(", "))
            .join("; ")
    };
    let greeted = |daemon: &Process| {
        let hello = daemon.requester().ask("hello", json!({}), PATIENCE).unwrap();
        json!([hello["state_names"], hello["reward_names"], hello["action_names"]])
    };
    let mut text = String::from("x,battery,cost,trip,gear\n");
    for i in 0..900 {
        let (x, battery) = (f64::from(i % 30), 12.0 - f64::from(i % 30) / 9.0 + f64::from(i % 7) / 70.0);
        text.push_str(&format!("{x},{battery},{},{},{}\n", x / 10.0, i / 30, ["slow", "fast"][i as usize % 2]));
    }
    std::fs::write(path("trips.csv"), text).unwrap();
    let columns = "state = [\"x\", \"battery\"]\nreward = \"-cost\"\nepisode = \"trip\"\nunits = [\"m\", \"V\"]\n\
                   action = [\"gear\"]\ncategories = [[], [], [\"slow\", \"fast\"]]\n";
    std::fs::write(path("columns.toml"), columns).unwrap();
    let (table, columns) = (path("trips.csv"), path("columns.toml"));
    let warm = ["--warm-start", table.to_str().unwrap(), "--columns", columns.to_str().unwrap()];
    let refits = ["--assume-terminated", "last", "--set", "critic.refit_first_rows=100000"];
    let daemon = start(&path("table"), &[&warm[..], &refits].concat());
    let status = status_when(&mut daemon.requester(), |status| status["critics"][0]["refit"]["started"] == 1);
    assert_eq!((&status["offset"], &status["warm_start"]), (&json!(900), &json!(null)), "{status:#}");
    assert_eq!(names(&daemon), "x [m], battery [V]; -cost");
    drop(daemon);
    let daemon = start(&path("table"), &[]);
    assert_eq!(names(&daemon), "x [m], battery [V]; -cost", "they are in the journal");
    assert_eq!(greeted(&daemon), json!([["x [m]", "battery [V]"], ["-cost"], ["slow", "fast"]]));
    drop(daemon);

    let daemon = start(&path("rows"), &[]);
    let mut requester = daemon.requester();
    let mut append = |seq: u32, names: &[&str]| {
        let state = [f64::from(seq), f64::from(seq * seq % 7)];
        let mut row =
            json!({"stream": "a", "session": "s", "seq": seq, "state": state, "next_state": state, "reward": 1.0});
        if !names.is_empty() {
            row["state_names"] = json!(names[..names.len().min(2)]);
        }
        if names.len() > 2 {
            row["reward_names"] = json!(names[2..]);
        }
        requester.ask("append", row, PATIENCE)
    };
    let said = append(0, &["speed"]).unwrap_err().to_string();
    assert!(said.contains("state_names") && said.contains("give one for each"), "{said}");
    let said = append(0, &["speed", "speed"]).unwrap_err().to_string();
    assert!(said.contains("two variables are called \"speed\""), "{said}");
    let said = append(0, &["speed", "load", "energy", "time"]).unwrap_err().to_string();
    assert!(said.contains("reward_names") && said.contains("2 names for 1 rewards"), "{said}");
    append(0, &[]).unwrap();
    assert_eq!(greeted(&daemon), json!([null, null, null]));
    append(1, &["speed [m/s]", "load"]).unwrap();
    // The first names stay.
    append(2, &["left", "right", "energy [J]"]).unwrap();
    assert_eq!(greeted(&daemon), json!([["speed [m/s]", "load"], ["energy [J]"], null]));
    (3..40).for_each(|seq| drop(append(seq, &[]).unwrap()));
    assert_eq!(names(&daemon), "speed [m/s], load; energy [J]");
    drop(daemon);
    let daemon = start(&path("rows"), &["--set", "state_dim=2", "--set", "state_names=[\"u\", \"v\"]"]);
    assert_eq!(names(&daemon), "speed [m/s], load; energy [J]", "a model keeps its names until the next one");
}
