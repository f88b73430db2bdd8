//! A table of somebody's own: what a newcomer's commands say about missions with a battery and a cost.

use serde_json::Value;
use std::path::PathBuf;
use std::process::{Command, Output};

const COLUMNS: &str =
    "--state x,battery,wind --units m,Wh,m/s --action u --reward=-cost --episode mission --time t --terminated over";

struct Desk {
    directory: tempfile::TempDir,
}

impl Desk {
    /// A desk with `missions.csv`: a robot drives home against the wind, and pays when its battery is empty.
    fn new() -> Self {
        let desk = Self { directory: tempfile::tempdir().unwrap() };
        let mut text = "mission,t,x,battery,wind,paint,u,cost,over\n".to_owned();
        // Noise without a generator: the fraction of a large multiple of the golden ratio.
        let noise = |k: usize| (k as f64 * 0.618_033_988_749_894_8).fract();
        for mission in 0..60 {
            let (mut x, mut battery) = (4.0 + 6.0 * noise(mission + 1), 3.0 + 9.0 * noise(7 * mission + 3));
            let wind = noise(13 * mission + 5);
            for t in 0..40 {
                let u = 0.3 + 0.3 * noise(101 * mission + 17 * t);
                (x, battery) = (x - u, battery - u * (1.0 + wind) * (0.8 + 0.4 * noise(31 * t + mission)));
                let (home, empty) = (x <= 0.0, battery <= 0.0);
                let cost = 0.1 + u * 0.1 + if empty { 5.0 } else { 0.0 };
                let paint = noise(mission * 977 + t * 13);
                text += &format!("m{mission},{t},{x},{battery},{wind},{paint},{u},{cost},{}\n", home || empty);
                if home || empty {
                    break;
                }
            }
        }
        std::fs::write(desk.path("missions.csv"), text).unwrap();
        desk
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn run(&self, arguments: &str) -> Output {
        let words = arguments.split_whitespace();
        let mut command = Command::new(env!("CARGO_BIN_EXE_criticd"));
        command.args(words).current_dir(self.directory.path()).output().unwrap()
    }

    fn text(&self, arguments: &str) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &str) -> Value {
        serde_json::from_str(&self.text(&format!("{arguments} --json"))).unwrap()
    }

    fn rows(&self, name: &str) -> Vec<Vec<String>> {
        let text = std::fs::read_to_string(self.path(name)).unwrap();
        text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
    }
}

#[test]
fn a_dry_run_says_what_is_understood_and_does_nothing() {
    let desk = Desk::new();
    let text = desk.text(&format!("fit missions.csv {COLUMNS} --dry-run"));
    for words in
        ["60; ends: ", "reward       -cost", "state        x, battery, wind", "left alone   paint", "battery [Wh]"]
    {
        let spaced = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(spaced(&text).contains(&spaced(words)), "{words} in {text}");
    }
    let found = desk.json(&format!("score missions.csv --hyperparameters none.json {COLUMNS} --dry-run"));
    assert_eq!((&found["episodes"], &found["columns"]["reward"]), (&60.into(), &"-cost".into()));
    assert_eq!(found["ignored"], serde_json::json!(["paint"]));
    assert_eq!(found["names"][1], "battery [Wh]");
    let ends = &found["ends"];
    let count = |end: &str| ends[end].as_u64().unwrap();
    assert_eq!(count("terminated") + count("truncated") + count("cut"), 60, "{ends}");
    assert_eq!(std::fs::read_dir(desk.directory.path()).unwrap().count(), 1);
}

#[test]
fn fit_answers_with_predictions_and_what_matters_and_keeps_the_names() {
    let desk = Desk::new();
    std::fs::write(
        desk.path("columns.toml"),
        "state = [\"x\", \"battery\", \"wind\"]\nunits = [\"m\", \"Wh\", \"m/s\"]\nreward = \"-cost\"\nepisode = \"mission\"\n\
         time = \"t\"\nterminated = \"over\"\n",
    )
    .unwrap();
    let output = desk.run("fit missions.csv --columns columns.toml --discount 0.95 --out m.msgpack");
    let (text, said) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(text.starts_with("predicts the returns of 6 held-out episodes: correlation 0."), "{text}");
    assert!(text.contains("90 % interval holds ") && text.contains("\nvalue depends on: "), "{text}");
    assert!(!text.contains("evidence") && text.contains("--verbose"), "{text}");
    assert!(said.contains("reward: -cost") && said.contains("left alone: paint"), "{said}");
    let fitted = desk.json(&format!("fit missions.csv {COLUMNS} --discount 0.95 --out again.msgpack"));
    let held_out = &fitted["held_out"];
    let figure = |name: &str| held_out[name].as_f64().unwrap();
    assert_eq!((held_out["episodes"].as_u64(), held_out["of_episodes"].as_u64()), (Some(6), Some(60)));
    assert!(figure("correlation") > 0.7 && figure("error") < figure("spread"), "{held_out}");
    assert!((0.6..=1.0).contains(&figure("coverage_90")), "{held_out}");
    let shares: Vec<f64> = fitted["explained"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    assert!(shares.len() == 3 && shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    assert_eq!(fitted["transitions"].as_u64().unwrap() as usize, desk.rows("missions.csv").len() - 1);
    // The model knows its variables, and finds them in any table that has them.
    assert_eq!(fitted["inputs"]["names"], serde_json::json!(["x [m]", "battery [Wh]", "wind [m/s]"]));
    assert_eq!(desk.json("inspect m.msgpack")["inputs"]["names"], fitted["inputs"]["names"]);
    std::fs::write(desk.path("q.csv"), "note,wind,battery,x\na,0.5,6,3\n").unwrap();
    std::fs::write(desk.path("plain.csv"), "state_0,state_1,state_2\n3,6,0.5\n").unwrap();
    let (named, plain) = (desk.json("value m.msgpack q.csv"), desk.json("value m.msgpack plain.csv"));
    assert_eq!((&named["mean"], &named["variance"]), (&plain["mean"], &plain["variance"]));
    assert_eq!(named["names"][0], "x [m]");
    assert!(desk.text("value m.msgpack q.csv").contains("battery [Wh]"));
    desk.text("plot m.msgpack --out p.svg --x battery --curve");
    // Held-out episodes change nothing about the model that is written.
    let without = desk.json(&format!("fit missions.csv {COLUMNS} --discount 0.95 --hold-out 0 --out none.msgpack"));
    assert_eq!((&without["kernel"], &without["held_out"]), (&fitted["kernel"], &Value::Null));
}

#[test]
fn labels_are_of_models_that_have_not_seen_the_episode() {
    let desk = Desk::new();
    desk.text(&format!("fit missions.csv {COLUMNS} --discount 0.95 --out m.msgpack"));
    let label =
        |table: &str, out: &str| desk.json(&format!("label {table} {COLUMNS} --model m.msgpack --folds 4 --out {out}"));
    let said = label("missions.csv", "labels.csv");
    assert_eq!((said["episodes"].as_u64(), said["folds"].as_u64()), (Some(60), Some(4)));
    let rows = desk.rows("labels.csv");
    assert_eq!(rows[0].join(","), "episode,frame,value,advantage,return,td_error,std,known");
    assert_eq!(rows.len(), desk.rows("missions.csv").len());
    assert_eq!((&rows[1][0], &rows[1][1], &rows[2][1]), (&"m0".to_owned(), &"0".to_owned(), &"1".to_owned()));
    let number = |row: &[String], k: usize| row[k].parse::<f64>().unwrap();
    for row in &rows[1..] {
        assert!((number(row, 4) - number(row, 2) - number(row, 3)).abs() < 1e-9, "advantage is return - value");
        assert!(number(row, 6) > 0.0 && (0.0..=1.0).contains(&number(row, 7)), "{row:?}");
    }
    // Other costs of mission m0 change the labels of other groups, and its own return, but not its own values.
    let table = std::fs::read_to_string(desk.path("missions.csv")).unwrap();
    let dearer = |line: &str| {
        let mut cells: Vec<String> = line.split(',').map(str::to_owned).collect();
        if cells[0] == "m0" {
            cells[7] = "3".to_owned();
        }
        cells.join(",") + "\n"
    };
    std::fs::write(desk.path("dear.csv"), table.lines().map(dearer).collect::<String>()).unwrap();
    label("dear.csv", "dear_labels.csv");
    let dear = desk.rows("dear_labels.csv");
    let own = rows.iter().zip(&dear).filter(|(row, _)| row[0] == "m0");
    assert!(own.clone().all(|(before, after)| before[2] == after[2] && before[4] != after[4]));
    assert!(rows.iter().zip(&dear).any(|(before, after)| before[0] != "m0" && before[2] != after[2]));
    if cfg!(feature = "parquet") {
        label("missions.csv", "labels.parquet");
        assert_eq!(&std::fs::read(desk.path("labels.parquet")).unwrap()[..4], b"PAR1");
    }
    label("missions.csv", "labels.npz");
    assert_eq!(&std::fs::read(desk.path("labels.npz")).unwrap()[..2], b"PK");
    let refused = desk.run(&format!("label missions.csv {COLUMNS} --model m.msgpack --out labels.txt"));
    assert_eq!(refused.status.code(), Some(2));
}
