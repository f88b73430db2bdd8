//! `criticd merge`: what learners of different streams have learned, as one.

use crate::support::program::{Bench, Process, any_ports, criticd};
use crate::support::wait;
use std::fs;
use std::path::Path;

/// Rows of these robots, which drive about in the same field; the whole depends on nothing but their numbers.
fn table(robots: std::ops::Range<usize>) -> String {
    let mut text = "stream,time,state_0,state_1,reward,terminated,truncated,next_state_0,next_state_1\n".to_owned();
    let noise = |k: usize| (k as f64 * 0.618_033_988_749_894_8).fract() - 0.5;
    for robot in robots {
        let (mut x, mut y) = (4.0 * noise(robot + 1), 4.0 * noise(3 * robot + 2));
        for t in 0..60 {
            let (nx, ny) = (0.9 * x + noise(97 * robot + 7 * t), 0.9 * y + noise(31 * robot + 11 * t + 5));
            let ends = t % 20 == 19;
            let (over, cut) = (ends && robot % 2 == 0, ends && robot % 2 == 1);
            text += &format!(
                "robot {robot},{},{x},{y},{},{over},{cut},{nx},{ny}\n",
                1e9 + (14 * t + robot) as f64,
                -(nx * nx + ny * ny)
            );
            (x, y) = if ends { (4.0 * noise(robot + t), 4.0 * noise(robot + 2 * t)) } else { (nx, ny) };
        }
    }
    text
}

/// North, south and west, each with the rows of its own robots, and all of them in one table.
fn bench() -> Bench {
    let desk = Bench::new();
    for (name, robots) in [("north", 0..6), ("south", 6..9), ("west", 9..14), ("all", 0..14)] {
        desk.file(&format!("{name}.csv"), &table(robots));
    }
    desk.file("states.csv", "state_0,state_1\n0.0,0.0\n1.0,-0.5\n-1.5,0.3\n0.2,2.0\n");
    desk.text("fit north.csv --sums --discount 0.9 --hold-out 0 --budget 2 --dictionary-max 40 --out north.model");
    for name in ["south", "west", "all"] {
        desk.text(&format!("fit {name}.csv --like north.model --out {name}.model"));
    }
    desk
}

fn values(desk: &Bench, model: &str) -> Vec<f64> {
    let found = desk.json(&format!("value {model} states.csv"));
    found["mean"].as_array().unwrap().iter().map(|value| value.as_f64().unwrap()).collect()
}

fn distance(found: &[f64], expected: &[f64]) -> f64 {
    found.iter().zip(expected).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn models_of_one_epoch_are_together_one_learner_of_all_rows() {
    let desk = bench();
    let told = desk.json("merge north.model south.model west.model --out merged.model");
    assert_eq!((&told["rows"], &told["streams"]), (&(14 * 60).into(), &14.into()));
    let all = values(&desk, "all.model");
    assert!(distance(&values(&desk, "merged.model"), &all) < 1e-8);
    // A part alone is not all of them.
    assert!(distance(&values(&desk, "south.model"), &all) > 1e-3);
    // The order changes no bit, and what was merged can be merged.
    desk.text("merge west.model north.model south.model --out other.model");
    assert!(fs::read(desk.path("merged.model")).unwrap() == fs::read(desk.path("other.model")).unwrap());
    desk.text("merge west.model south.model --out two.model");
    desk.text("merge two.model north.model --out three.model");
    assert!(distance(&values(&desk, "three.model"), &all) < 1e-8);
}

#[test]
fn what_does_not_add_is_refused_with_a_remedy() {
    let desk = bench();
    let refused = |arguments: &str, words: &[&str]| {
        let (status, said) = desk.failure(arguments);
        assert!(status > 0 && words.iter().all(|word| said.contains(word)), "{arguments}: {said}");
        assert!(!desk.path("no.model").exists());
    };
    // Another epoch.
    desk.text("fit west.csv --sums --discount 0.8 --hold-out 0 --budget 2 --dictionary-max 20 --out far.model");
    refused("merge north.model far.model --out no.model", &["different epochs", "--like", "data directories"]);
    // Rows that might count twice, unless they are others.
    refused("merge north.model all.model --out no.model", &["\"robot 0\"", "--rename-streams"]);
    let told = desk.json("merge north.model all.model --rename-streams --out twice.model");
    assert_eq!(told["streams"], 20);
    // Values alone.
    desk.text("fit west.csv --discount 0.9 --hold-out 0 --budget 1 --dictionary-max 20 --out plain.model");
    refused("merge north.model plain.model --out no.model", &["plain.model", "--sums"]);
    refused("fit west.csv --like plain.model --out no.model", &["plain.model", "--sums"]);
    // A damaged file.
    let mut bytes = fs::read(desk.path("west.model")).unwrap();
    let place = bytes.len() - 100;
    bytes[place] ^= 1;
    fs::write(desk.path("damaged.model"), bytes).unwrap();
    refused("merge north.model damaged.model --out no.model", &["damaged.model", "checksum"]);
    refused("merge north.model . --out no.model", &["data directories"]);
}

/// A daemon that has this data directory and refits nothing.
fn serve(directory: &Path) -> Process {
    let mut command = criticd();
    command.arg("serve").arg("--data-dir").arg(directory).args(any_ports()).env_remove("CRITICD_DATA_DIR");
    for setting in
        ["http=off", "log=error", "critic.discount=0.9", "critic.dictionary_max=15", "critic.refit_first_rows=0"]
    {
        command.args(["--set", setting]);
    }
    Process::start(command, directory)
}

/// A data directory in which the rows of a table have been learned.
fn learned(desk: &Bench, table: &str, directory: &str) {
    let _daemon = serve(&desk.path(directory));
    desk.text(&format!("replay {table} --ack --data-dir {directory}"));
    desk.text(&format!("stop {directory}"));
}

#[test]
fn data_directories_become_one_with_all_rows_in_the_order_of_their_times() {
    let desk = Bench::new();
    for (name, robots) in [("north", 0..3), ("south", 3..5)] {
        desk.file(&format!("{name}.csv"), &table(robots));
        learned(&desk, &format!("{name}.csv"), name);
    }
    let told = desk.json("merge north south --out both");
    assert_eq!((&told["rows"], &told["streams"], &told["by_time"]), (&300.into(), &5.into(), &true.into()), "{told}");
    // Every row is there, once, and the daemon that starts there has learned them.
    let rows = |directory: &str| {
        desk.text(&format!("export {directory} --out {directory}.jsonl"));
        let text = fs::read_to_string(desk.path(&format!("{directory}.jsonl"))).unwrap();
        let plain = |line: &str| {
            let mut row: serde_json::Value = serde_json::from_str(line).unwrap();
            ["offset", "received"].iter().for_each(|key| drop(row.as_object_mut().unwrap().remove(*key)));
            row.to_string()
        };
        text.lines().map(plain).collect::<Vec<String>>()
    };
    let (both, mut all) = (rows("both"), [rows("north"), rows("south")].concat());
    let mut sorted = both.clone();
    sorted.sort();
    all.sort();
    assert_eq!(sorted, all);
    let daemon = serve(&desk.path("both"));
    wait("all rows to be learned", || {
        let status = daemon.requester().status(crate::support::PATIENCE).ok()?;
        (status.offset == 300).then_some(())
    });
    drop(daemon);
    // In the other order the same rows stand in the same order.
    desk.text("merge south north --out other");
    assert_eq!(rows("other"), both);
    let (_, said) = desk.failure("merge north north --out no");
    assert!(said.contains("robot 0") && said.contains("--rename-streams") && !desk.path("no").exists(), "{said}");
    let (_, said) = desk.failure("merge north south --out both");
    assert!(said.contains("choose another directory"), "{said}");
    let (_, said) = desk.failure("merge north north.csv --out no");
    assert!(said.contains("--like"), "{said}");
}
