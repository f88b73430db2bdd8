//! A table of somebody's own: what a newcomer's commands say about missions with a battery and a cost.

use crate::support::program::Bench;
use serde_json::{Value, json};

const COLUMNS: &str =
    "--state x,battery,wind --units m,Wh,m/s --action u --reward=-cost --episode mission --time t --terminated over";

/// A bench with `missions.csv`: a robot drives home against the wind, and pays when its battery is empty.
fn missions() -> Bench {
    let desk = Bench::new();
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
    desk.file("missions.csv", &text);
    desk
}

/// The cells of a file.
fn rows(desk: &Bench, name: &str) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(desk.path(name)).unwrap();
    text.lines().map(|line| line.split(',').map(str::to_owned).collect()).collect()
}

#[test]
fn a_dry_run_says_what_is_understood_and_does_nothing() {
    let desk = missions();
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
    assert_eq!(std::fs::read_dir(desk.directory()).unwrap().count(), 1);
}

#[test]
fn fit_answers_with_predictions_and_what_matters_and_keeps_the_names() {
    let desk = missions();
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
    // Time enough on any machine: two searches are compared.
    let fit = format!("fit missions.csv {COLUMNS} --discount 0.95 --budget 600 --out");
    let fitted = desk.json(&format!("{fit} again.msgpack"));
    let held_out = &fitted["held_out"];
    let figure = |name: &str| held_out[name].as_f64().unwrap();
    assert_eq!((held_out["episodes"].as_u64(), held_out["of_episodes"].as_u64()), (Some(6), Some(60)));
    assert!(figure("correlation") > 0.7 && figure("error") < figure("spread"), "{held_out}");
    assert!((0.6..=1.0).contains(&figure("coverage_90")), "{held_out}");
    let shares: Vec<f64> = fitted["explained"].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect();
    assert!(shares.len() == 3 && shares.iter().all(|share| (0.0..=1.0).contains(share)), "{shares:?}");
    assert_eq!(fitted["transitions"].as_u64().unwrap() as usize, rows(&desk, "missions.csv").len() - 1);
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
    let without = desk.json(&format!("{fit} none.msgpack --hold-out 0"));
    assert_eq!((&without["kernel"], &without["held_out"]), (&fitted["kernel"], &Value::Null));
}

#[test]
fn labels_are_of_models_that_have_not_seen_the_episode() {
    let desk = missions();
    desk.text(&format!("fit missions.csv {COLUMNS} --discount 0.95 --out m.msgpack"));
    let label =
        |table: &str, out: &str| desk.json(&format!("label {table} {COLUMNS} --model m.msgpack --folds 4 --out {out}"));
    let said = label("missions.csv", "labels.csv");
    assert_eq!((said["episodes"].as_u64(), said["folds"].as_u64()), (Some(60), Some(4)));
    let labels = rows(&desk, "labels.csv");
    assert_eq!(labels[0].join(","), "episode,frame,value,advantage,return,td_error,std,known");
    assert_eq!(labels.len(), rows(&desk, "missions.csv").len());
    assert_eq!((&labels[1][0], &labels[1][1], &labels[2][1]), (&"m0".to_owned(), &"0".to_owned(), &"1".to_owned()));
    let number = |row: &[String], k: usize| row[k].parse::<f64>().unwrap();
    for row in &labels[1..] {
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
    let dear = rows(&desk, "dear_labels.csv");
    let own = labels.iter().zip(&dear).filter(|(row, _)| row[0] == "m0");
    assert!(own.clone().all(|(before, after)| before[2] == after[2] && before[4] != after[4]));
    assert!(labels.iter().zip(&dear).any(|(before, after)| before[0] != "m0" && before[2] != after[2]));
    // So do kernel, noise and lambda, where no model gives them: they are selected without the episode.
    let selected = |table: &str, out: &str| {
        desk.json(&format!("label {table} {COLUMNS} --discount 0.95 --folds 2 --budget 600 --out {out}"));
        rows(&desk, out)
    };
    let (before, after) = (selected("missions.csv", "selected.csv"), selected("dear.csv", "dear_selected.csv"));
    let values = |rows: &[Vec<String>], own: bool| -> Vec<String> {
        rows.iter().filter(|row| (row[0] == "m0") == own).map(|row| row[2].clone()).collect()
    };
    assert_eq!(values(&before, true), values(&after, true));
    assert_ne!(values(&before, false), values(&after, false));
    if cfg!(feature = "parquet") {
        label("missions.csv", "labels.parquet");
        assert_eq!(&std::fs::read(desk.path("labels.parquet")).unwrap()[..4], b"PAR1");
    }
    label("missions.csv", "labels.npz");
    assert_eq!(&std::fs::read(desk.path("labels.npz")).unwrap()[..2], b"PK");
    let (status, message) = desk.failure(&format!("label missions.csv {COLUMNS} --model m.msgpack --out labels.txt"));
    assert_eq!(status, 2, "{message}");
}

/// A walk over eleven places, whose reward is the place, times a sign of each row, and noise; `policy` of each row by name.
fn walk(desk: &Bench, rows: usize, sign: impl Fn(usize) -> f64, policy: impl Fn(usize) -> Option<&'static str>) {
    let noise = |k: usize| (k as f64 * 0.754_877_666_246_692_7).fract() - 0.5;
    let (mut place, mut text) = (0_i32, "state_0,next_state_0,reward,terminated,truncated,policy\n".to_owned());
    let mut random = 12_345_u64;
    for k in 0..rows {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let next = (place + if random >> 63 == 0 { 1 } else { -1 }).clamp(-5, 5);
        let reward = sign(k) * f64::from(place) / 5.0 + 0.4 * noise(k);
        let (x, to) = (f64::from(place) / 5.0, f64::from(next) / 5.0);
        text += &format!("{x},{to},{reward},0,{},{}\n", u8::from(k % 50 == 49), policy(k).unwrap_or_default());
        place = if k % 50 == 49 { (k / 50 % 11) as i32 - 5 } else { next };
    }
    std::fs::write(desk.path("walk.csv"), text).unwrap();
    std::fs::write(desk.path("ends.csv"), "state_0\n-1\n1\n").unwrap();
}

/// V at the right end less V at the left end.
fn slope(desk: &Bench, model: &str) -> f64 {
    let values = desk.json(&format!("value {model} ends.csv"));
    let mean = |k: usize| {
        let value = &values["mean"][k];
        value.as_f64().or_else(|| value[0].as_f64()).unwrap()
    };
    mean(1) - mean(0)
}

#[test]
fn fit_follows_a_change_inside_a_table() {
    let desk = missions();
    // Time enough on any machine: two searches are compared.
    let fit = "fit walk.csv --discount 0.8 --dictionary-max 12 --budget 600 --out";
    walk(&desk, 10_000, |k| if k < 6000 { 1.0 } else { -1.0 }, |_| None);
    let told = desk.json(&format!("{fit} since.model"));
    let at = told["changed_at"].as_u64().unwrap();
    assert!(at.abs_diff(6000) < 300 && told["transitions"].as_u64() == Some(10_000 - at), "{told}");
    assert!(slope(&desk, "since.model") < -2.0, "V is that of the world since");
    assert!(
        desk.text(&format!("{fit} since.model")).starts_with(&format!("the world changes about row {at} of 10000"))
    );
    let told = desk.json(&format!("{fit} all.model --drift-sensitivity off"));
    assert!(told["changed_at"].is_null() && told["transitions"] == 10_000, "{told}");
    assert!(slope(&desk, "all.model") > 0.0, "most rows are of the world before");

    walk(&desk, 9000, |_| 1.0, |_| None);
    let [on, off] = ["normal", "off"].map(|how| {
        let told = desk.json(&format!("{fit} {how}.model --drift-sensitivity {how}"));
        assert!(told["changed_at"].is_null(), "nothing changes: {told}");
        (told["kernel"].clone(), slope(&desk, &format!("{how}.model")))
    });
    assert_eq!(on, off, "where nothing changes it does not matter");
}

#[test]
fn fit_learns_the_policy_that_is_asked_for() {
    let desk = missions();
    let fit = "fit walk.csv --discount 0.8 --dictionary-max 12 --budget 20 --out";
    let stiff = |k: usize| (3000..6000).contains(&k);
    walk(&desk, 8000, |k| if stiff(k) { -1.0 } else { 1.0 }, |k| Some(if stiff(k) { "stiff" } else { "soft" }));
    let told = desk.json(&format!("{fit} soft.model"));
    assert_eq!((&told["transitions"], &told["changed_at"]), (&Value::from(5000), &Value::Null), "the last policy");
    assert!(slope(&desk, "soft.model") > 2.0);
    let told = desk.json(&format!("{fit} stiff.model --policy stiff"));
    assert_eq!((&told["transitions"], &told["changed_at"]), (&Value::from(3000), &Value::Null));
    assert!(slope(&desk, "stiff.model") < -2.0);
    let said = |arguments: &str| String::from_utf8(desk.run(arguments).stderr).unwrap();
    assert!(said(&format!("{fit} x.model")).contains("policy soft: its 5000 rows of 8000"));
    assert!(said(&format!("{fit} x.model --policy bold")).contains("--policy bold: the table has soft, stiff"));
    // What another policy would do does not change with the one that acted.
    let text = std::fs::read_to_string(desk.path("walk.csv")).unwrap();
    let with_action =
        |(k, line): (usize, &str)| if k == 0 { format!("{line},action") } else { format!("{line},{}", k % 2) };
    desk.file("acted.csv", &text.lines().enumerate().map(with_action).collect::<Vec<_>>().join("\n"));
    let acted = "fit acted.csv --inputs state_action --actions discrete:2 --discount 0.8 --dictionary-max 12 --budget 2 --out q.model";
    assert_eq!(desk.json(&format!("{acted} --successor improve"))["transitions"], 8000);
    assert!(desk.json(&format!("{acted} --successor sarsa"))["transitions"].as_u64() <= Some(5000), "the last policy");
    walk(&desk, 100, |_| 1.0, |_| None);
    assert!(said(&format!("{fit} x.model --policy soft")).contains("no row of the table names a policy"));
}

/// A variable that explains a 400th of the variance matters where nothing else is uncertain; one that is noise does not.
#[test]
fn a_variable_is_advised_to_go_only_where_nothing_is_lost() {
    let desk = Bench::new();
    let noise = |k: usize| 2.0 * (k as f64 * 0.618_033_988_749_894_8).fract() - 1.0;
    for (name, weight, said) in [("load.csv", 0.05, false), ("paint.csv", 0.0, true)] {
        let mut text = "run,x,extra,cost,over\n".to_owned();
        for k in 0..300 {
            let (x, extra) = (noise(k), noise(1000 + 7 * k));
            text += &format!("r{},{x},{extra},{},{}\n", k / 5, x + weight * extra, k % 5 == 4);
        }
        desk.file(name, &text);
        let options = "--state x,extra --reward=-cost --episode run --terminated over --discount 0 --out m.model";
        let answer = desk.text(&format!("fit {name} {options}"));
        assert!(answer.contains("extra < 1 %"), "{answer}");
        let advised = "advice: extra could be removed: held-out episodes are predicted as well without";
        assert_eq!(answer.contains(advised), said, "{name}: {answer}");
    }
}

/// Thirty walks on a line that nothing but a time limit ends: told as terminations, or with the state after the reset.
#[test]
fn ends_that_a_time_limit_or_a_reset_has_made_are_asked_about() {
    let desk = Bench::new();
    let noise = |k: usize| 2.0 * (k as f64 * 0.618_033_988_749_894_8).fract() - 1.0;
    let walk = |name: &str, rows: fn(usize) -> usize, reset: bool| {
        let mut text = "run,x,next_x,cost,over\n".to_owned();
        for run in 0..30 {
            for t in 0..rows(run) {
                let last = t + 1 == rows(run);
                let next = if last && reset { noise(100 * (run + 1)) } else { noise(100 * run + t + 1) };
                text += &format!("{run},{},{next},{},{}\n", noise(100 * run + t), noise(7 * t), u8::from(last));
            }
        }
        desk.file(name, &text);
    };
    walk("limit.csv", |_| 6, false);
    walk("free.csv", |run| 4 + run % 5, false);
    walk("reset.csv", |run| 4 + run % 5, true);
    let said = |name: &str, flag: &str| {
        let columns = format!("--state x --reward=-cost --episode run --{flag} over --discount 0.9 --out m.model");
        let never = if flag == "truncated" { "--assume-terminated never" } else { "" };
        desk.text(&format!("fit {name} {columns} {never} --hold-out 0"))
    };
    let (limit, reset) =
        ("30 of 30 episodes terminate after exactly 6 rows", "after 29 of 29 truncated rows the next state");
    for (name, flag, limited, after) in [
        ("limit.csv", "terminated", true, false),
        ("limit.csv", "truncated", false, false),
        ("free.csv", "terminated", false, false),
        ("reset.csv", "truncated", false, true),
        ("reset.csv", "terminated", false, false),
    ] {
        let answer = said(name, flag);
        assert_eq!((answer.contains(limit), answer.contains(reset)), (limited, after), "{name}, {flag}: {answer}");
    }
}

#[test]
fn many_variables_are_advised_to_go_in_one_short_line() {
    let desk = Bench::new();
    let noise = |k: usize| 2.0 * (k as f64 * 0.618_033_988_749_894_8).fract() - 1.0;
    let idle: Vec<String> = (0..14).map(|j| format!("y{j}")).collect();
    let mut text = format!("run,x,{},cost,over\n", idle.join(","));
    for k in 0..300 {
        let others: Vec<String> = (0..14).map(|j| noise((k + 3) * (j + 2)).to_string()).collect();
        text += &format!("r{},{x},{},{x},{}\n", k / 5, others.join(","), k % 5 == 4, x = noise(k));
    }
    desk.file("wide.csv", &text);
    let relevance: Vec<f64> = (0..15).map(|d| if d == 0 { 1.0 } else { 1e-4 }).collect();
    let kernel = json!({"kind": "ard", "signal_variance": 1.0, "bias_variance": 1.0, "relevance": relevance});
    let noise = json!({"model": "correlated", "variance": 0.01});
    desk.file("h.json", &json!({"kernel": kernel, "noise": noise}).to_string());
    let columns = format!("--state x,{} --reward=-cost --episode run --terminated over --discount 0", idle.join(","));
    let answer = desk
        .text(&format!("fit wide.csv {columns} --hyperparameters h.json --no-optimise --hold-out 0.2 --out m.model"));
    let advised = format!("advice: {} and 2 others could be removed", idle[..12].join(", "));
    assert!(answer.contains(&advised), "{answer}");
}

#[test]
fn init_writes_the_file_that_fit_takes() {
    let desk = missions();
    let text = desk.text("init missions.csv --yes");
    for words in ["Next: criticd fit missions.csv --columns missions.toml --dry-run", "numbers: ", "Written to "] {
        assert!(text.contains(words), "{words} in {text}");
    }
    let written = std::fs::read_to_string(desk.path("missions.toml")).unwrap();
    assert_eq!(
        written,
        "state = [\"x\", \"battery\", \"wind\", \"paint\"]\naction = \"u\"\nreward = \"-cost\"\nepisode = \"mission\"\ntime = \"t\"\n\
         done = \"over\"  # add --done terminated or --done truncated\n"
    );
    let dry = desk.text("fit missions.csv --columns missions.toml --done terminated --dry-run");
    assert!(dry.contains("60; ends: "), "{dry}");
    // Whoever is not there cannot be asked, and a table is not written over.
    let asked = desk.run("init missions.csv --out other.toml");
    assert!(String::from_utf8(asked.stderr).unwrap().contains("add --yes, or answer on a terminal"));
    assert!(!desk.run("init missions.csv --yes --out missions.csv").status.success());
    desk.file("outcomes.csv", "run,x,cost,outcome\n1,0.5,1,\n1,0.7,1,docked\n2,,1,\n2,0.1,1,lost\n");
    desk.text("init outcomes.csv --yes");
    let written = std::fs::read_to_string(desk.path("outcomes.toml")).unwrap();
    assert!(written.contains("# terminated = \"outcome == docked\"  # of docked, lost\n"), "{written}");
    assert!(written.contains("# missing = \"drop\"  # x is empty in 1 rows; or \"hold\"\n"), "{written}");
}

#[test]
fn init_says_what_no_column_file_can_mend() {
    let desk = missions();
    let told = |name: &str, text: &str| {
        desk.file(name, text);
        String::from_utf8(desk.run(&format!("init {name} --yes")).stderr).unwrap()
    };
    let twice = told("twice.csv", "x,x,v,reward\n0.5,1.5,2.5,1\n0.6,1.6,2.4,1\n0.7,1.7,2.7,1\n");
    assert!(twice.contains("column x: 2 columns have this name, of which none can be used"), "{twice}");
    let written = std::fs::read_to_string(desk.path("twice.toml")).unwrap();
    assert!(written.contains("state = \"v\"\n") && written.contains("# left alone: x, x\n"), "{written}");
    let lists = told("lists.csv", "state,reward\n\"[0.5, 1]\",1\n\"[0.6, 1]\",1\n");
    assert!(lists.contains("column state: texts that hold lists; each number needs a column of its own"), "{lists}");
    let units = told("units.csv", "x,v,reward\n0.5 m,2,1\n-0.6 m,3,1\n0.75 m,2.5,1\n");
    assert!(units.contains("column x: numbers with a text beside them. In Python: df = "), "{units}");
    let hot = told("hot.csv", "x,a_0,a_1,b_0,b_1,reward\n0.5,1,0,1,0,1\n0.2,0,1,0,1,1\n0.7,1,0,1,0,1\n");
    assert!(hot.contains("columns a_0, a_1: in each row one of them is 1 and the others are 0"), "{hot}");
    let written = std::fs::read_to_string(desk.path("hot.toml")).unwrap();
    assert!(written.starts_with("state = [\"x\", \"b_0\", \"b_1\"]\naction = [\"a_0\", \"a_1\"]\n"), "{written}");
    let blocks = told("blocks.csv", "x,reward\n0.5,1\n0.4,1\n\n0.7,1\n0.2,1\n");
    assert!(blocks.contains("blank lines set 2 blocks of rows apart"), "{blocks}");
    let episode = told("episode.json", "{\"observations\": [[0.5], [0.6]], \"rewards\": [1, 1]}\n");
    assert!(episode.contains("line 1, key observations: a list of lists: a line holds one step"), "{episode}");
    assert!(!std::fs::exists(desk.path("episode.toml")).unwrap());
}
