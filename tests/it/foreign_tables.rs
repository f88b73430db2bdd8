//! Tables as other programs write them are read without renaming: `tests/data/tables/foreign.py` has written the same
//! steps by the writers of ten of them, and `truth.csv` says what should be read.

use criticd::table::{
    AssumeTerminated, Categories, Columns, Done, LargeTable, Missing, Reading, Table, TableError, Values,
    read_states_as, write_columns,
};
use std::path::{Path, PathBuf};

const STRICT: Reading = Reading { assume_terminated: None, done: None, independent: false, keep_all: false };
const DONE: Reading =
    Reading { assume_terminated: None, done: Some(Done::Terminated), independent: false, keep_all: false };

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tables/foreign").join(name)
}

fn read(path: &Path, reading: Reading, columns: &Columns) -> Result<Table, TableError> {
    Table::read_as(path, reading, columns, &mut |_| {})
}

fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn missions() -> Columns {
    Columns {
        state: list(&["x", "battery"]),
        action: list(&["u"]),
        reward: list(&["-cost"]),
        episode: Some("mission".into()),
        time: Some("time".into()),
        terminated: Some("failed".into()),
        ..Columns::default()
    }
}

/// One row as text, numbers to five digits: some writers keep single precision.
fn row(table: &Table, i: usize, truncation: bool) -> String {
    let rows = table.rows();
    let width = table.actions().map_or(0, |actions| actions.len() / rows.len());
    let action = &table.actions().unwrap_or_default()[i * width..(i + 1) * width];
    let successor = if rows.terminated[i] { &[][..] } else { rows.next_state(i) };
    let parts = [rows.state(i), successor, action, rows.reward(i)];
    let numbers = parts.map(|part| part.iter().map(|v| format!("{v:.4}")).collect::<Vec<_>>().join(" "));
    format!("{} {} {}", numbers.join(" | "), rows.terminated[i], truncation && rows.truncated[i])
}

fn rows(table: &Table, truncation: bool) -> Vec<String> {
    let mut rows: Vec<String> = (0..table.rows().len()).map(|i| row(table, i, truncation)).collect();
    rows.sort();
    rows
}

/// What each program writes, what must be said about it, and whether it says what was truncated.
fn programs() -> Vec<(&'static str, Reading, Columns, bool)> {
    let none = Columns::default;
    let robomimic = Columns { state: list(&["obs/position", "obs/speed"]), ..none() };
    let mut programs = vec![
        ("sb3.npz", STRICT, none(), true),
        ("rlds.npz", STRICT, none(), true),
        ("steps.jsonl", STRICT, none(), true),
        ("missions.csv", STRICT, missions(), false),
    ];
    if cfg!(feature = "parquet") {
        programs.push(("lerobot.parquet", DONE, none(), false));
        programs.push(("missions.parquet", STRICT, missions(), false));
    }
    if cfg!(feature = "hdf5") {
        programs.push(("d4rl.hdf5", STRICT, none(), true));
        programs.push(("d3rlpy.h5", STRICT, none(), true));
        programs.push(("tianshou.hdf5", STRICT, none(), true));
        programs.push(("minari.hdf5", STRICT, none(), true));
        programs.push(("robomimic.hdf5", DONE, robomimic, false));
    }
    programs
}

#[test]
fn what_other_programs_write_is_read_without_renaming() {
    let truth = read(&fixture("truth.csv"), STRICT, &Columns::default()).unwrap();
    for (name, reading, columns, truncation) in programs() {
        let table = read(&fixture(name), reading, &columns).unwrap_or_else(|e| panic!("{e}"));
        assert_eq!(rows(&table, truncation), rows(&truth, truncation), "{name}");
        let summary = table.summary();
        assert_eq!((summary.transitions, summary.episodes, summary.ends[0]), (9, 3, 2), "{name}: {summary:?}");
        assert!(table.understood().foreign, "{name}");
        let chains = table.rows().starts_chain.iter().filter(|starts| **starts).count();
        assert_eq!(chains, 3, "{name}");
    }
}

#[test]
fn a_large_table_is_read_as_a_table_is() {
    for (name, reading, columns, _) in programs() {
        let large = LargeTable::check_as(&fixture(name), reading, &columns, &mut |_| true);
        if name.starts_with("missions") {
            // What is not sorted cannot be read piece by piece.
            let said = large.unwrap_err().to_string();
            assert!(said.contains("mission") && said.contains("sort the rows by episode and time"), "{said}");
            continue;
        }
        let (large, table) = (large.unwrap(), read(&fixture(name), reading, &columns).unwrap());
        let mut found = Vec::new();
        let mut take = |batch| {
            found.push(batch);
            true
        };
        large.for_each_batch(&str::to_owned, "", 4, &mut take).unwrap();
        assert!(found == table.batches("", 4).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn names_and_units_stay_with_the_states() {
    let named = Columns { units: list(&["m", "V"]), ..missions() };
    let table = read(&fixture("missions.csv"), STRICT, &named).unwrap();
    let understood = table.understood();
    assert_eq!(understood.names, Some(list(&["x", "battery"])));
    assert_eq!(understood.units, Some(list(&["m", "V"])));
    assert_eq!(understood.ignored, ["operator"]);
    let role = |what: &str| understood.roles.iter().find(|role| role.0 == what).map(|role| role.1.as_str());
    assert_eq!((role("state"), role("reward"), role("episode")), (Some("x, battery"), Some("-cost"), Some("mission")));
    assert!(role("next state").unwrap().starts_with("the state of the next row"));
    assert_eq!(table.episode_names().len(), 3);
    let too_many = Columns { units: list(&["m"]), ..missions() };
    assert!(read(&fixture("missions.csv"), STRICT, &too_many).unwrap_err().to_string().contains("2 state variables"));
    // States of a model are found by its names, whatever else is there.
    let of_model = Columns { names: list(&["battery", "x"]), ..Columns::default() };
    let (states, dim) = read_states_as(&fixture("missions.csv"), &of_model, &mut |_| {}).unwrap();
    assert_eq!((states.len(), dim), (20, 2));
    let (other, _) = read_states_as(&fixture("missions.csv"), &missions(), &mut |_| {}).unwrap();
    assert_eq!((states[0], states[1]), (other[1], other[0]));
    // The numbers of an action have their columns' names.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv");
    std::fs::write(&path, "x,turn,push,cost,failed\n0,1,2,1,0\n1,1,2,1,1\n").unwrap();
    let [state, action, reward] = [&["x"][..], &["turn", "push"], &["-cost"]].map(list);
    let several = Columns { state, action, reward, terminated: Some("failed".into()), ..Columns::default() };
    let first = read(&path, STRICT, &several).unwrap().batches("", 9).next().unwrap();
    assert_eq!(first.names().actions, Some(list(&["turn", "push"])));
}

fn message(text: &str, columns: &Columns) -> String {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv");
    std::fs::write(&path, text).unwrap();
    read(&path, STRICT, columns).map(|table| format!("{table:?}")).unwrap_or_else(|e| e.to_string())
}

#[test]
fn what_cannot_be_understood_names_the_column_and_the_nearest() {
    let text = "mission,x,battery,cost,failed\n1,0,9,1,0\n1,1,8,1,0\n1,2,7,1,1\n";
    let ours = Columns { time: None, action: Vec::new(), ..missions() };
    assert!(message(text, &ours).starts_with("Table"), "{}", message(text, &ours));
    for (columns, words) in [
        (Columns::default(), "column state_0: missing; say which columns are the state, such as --state mission,x"),
        (Columns { state: list(&["x", "batery"]), ..ours.clone() }, "column batery: state: there is no batery"),
        (Columns { state: list(&["x", "batery"]), ..ours.clone() }, "did you mean battery? There is mission, x,"),
        (
            Columns { reward: list(&["-costs"]), ..ours.clone() },
            "column -costs: reward: there is no costs in the table; did you mean cost?",
        ),
        (Columns { reward: list(&["cost*x"]), ..ours.clone() }, "one column at most"),
        (Columns { reward: Vec::new(), ..ours.clone() }, "column reward: missing"),
        (Columns { terminated: Some("fail".into()), ..ours.clone() }, "column fail: terminated: there is no fail"),
        (Columns { terminated: None, ..ours.clone() }, "--assume-terminated never"),
        (
            Columns { next_prefix: Some("next_".into()), ..ours.clone() },
            "column next_x: next_prefix: there is no next_x",
        ),
        (Columns { state: list(&["x[1]"]), ..ours.clone() }, "column x: holds one number in each row"),
        (Columns { time: Some("failed".into()), state: list(&["x", "x"]), ..ours.clone() }, ""),
    ] {
        let said = message(text, &columns);
        assert!(said.contains(words), "{words}: {said}");
    }
    // A termination that is misspelt is not passed by.
    let said = message(
        "x,reward,truncated,terminatd\n0,1,0,0\n1,1,0,1\n",
        &Columns { state: list(&["x"]), ..Columns::default() },
    );
    assert!(said.contains("column terminatd: not known; did you mean terminated?"), "{said}");
    // Rows of an episode whose times fall are sorted; an episode needs a name.
    let timed = Columns { time: Some("t".into()), ..ours.clone() };
    let said = message("mission,t,x,battery,cost,failed\n1,2,2,0,1,1\n,0,0,0,1,0\n", &timed);
    assert!(said.contains("line 3, column mission: empty"), "{said}");
}

#[test]
fn names_end_in_any_letter() {
    let text = "température_maximale_é,é9,coût_é\n1,2,3\n1,2,4\n";
    let said = message(text, &Columns::default());
    assert!(said.contains("column state_0: missing"), "{said}");
    let columns =
        Columns {
            state: list(&["température_maximale_é", "é9"]), reward: list(&["coût_é"]), ..Columns::default()
        };
    let said = message(text, &columns);
    assert!(said.contains("--assume-terminated never"), "{said}");
}

#[test]
fn rewards_are_sums_and_successors_may_be_given() {
    let text = "x,next_x,gain,energy,timeouts,dones\n0,1,2,10,0,0\n1,2,3,20,0,1\n5,6,4,30,1,1\n";
    let columns = Columns { state: list(&["x"]), reward: list(&["gain - 0.1*energy + 1"]), ..Columns::default() };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv");
    std::fs::write(&path, text).unwrap();
    let table = read(&path, STRICT, &columns).unwrap();
    let rows = table.rows();
    assert_eq!((&rows.states[..], &rows.next_states[..]), (&[0.0, 1.0, 5.0][..], &[1.0, 2.0, 6.0][..]));
    assert_eq!(rows.rewards, [2.0, 2.0, 2.0]);
    // What is done and not timed out has terminated.
    assert_eq!((&rows.terminated[..], &rows.truncated[..]), (&[false, true, false][..], &[false, false, true][..]));
    let file = Columns::from_toml("state = \"x\"\nreward = [\"gain - 0.1*energy + 1\"]\n").unwrap();
    assert_eq!(file, columns);
    assert!(Columns::from_toml("states = [\"x\"]\n").unwrap_err().contains("states"));
}

/// A row of a log: mission, time, state, cost, whether the mission failed there.
#[derive(Clone, Copy)]
struct Logged(i64, f64, f64, f64, bool);

/// Three missions of four seconds, each of which fails in its last.
fn log() -> Vec<Logged> {
    let row = |k: i64| {
        let (mission, t) = (k / 4, (k % 4) as f64);
        Logged(mission, t, 10.0 * mission as f64 + 0.5 * t, (k * 7 % 5) as f64, k % 4 == 3)
    };
    (0..12).map(row).collect()
}

fn logged() -> Columns {
    Columns {
        state: list(&["x"]),
        reward: list(&["-cost"]),
        episode: Some("mission".into()),
        time: Some("t".into()),
        terminated: Some("failed".into()),
        ..Columns::default()
    }
}

/// The log in every format that can be written.
fn in_every_format(log: &[Logged]) -> (tempfile::TempDir, Vec<PathBuf>) {
    let directory = tempfile::tempdir().unwrap();
    let numbers = |of: &dyn Fn(&Logged) -> f64| Values::Numbers(log.iter().map(of).collect());
    let columns = [
        ("mission", Values::Whole(log.iter().map(|row| row.0).collect())),
        ("t", numbers(&|row| row.1)),
        ("x", numbers(&|row| row.2)),
        ("cost", numbers(&|row| row.3)),
        ("failed", Values::Flags(log.iter().map(|row| row.4).collect())),
    ];
    let columns = columns.map(|(name, values)| (name.to_owned(), values));
    let endings = ["csv", "jsonl", "npz"].into_iter().chain(cfg!(feature = "parquet").then_some("parquet"));
    let paths: Vec<PathBuf> = endings.map(|ending| directory.path().join(format!("log.{ending}"))).collect();
    paths.iter().for_each(|path| write_columns(path, &columns, &[]).unwrap());
    (directory, paths)
}

/// What every format says of the log, without the name of the file: a refusal, or what is told beside the rows. Lines of the file
/// are counted from 1 behind a header, rows from 0; here both are counted from 0.
fn said(log: &[Logged], reading: Reading, columns: &Columns) -> (Option<Table>, Vec<String>) {
    let (_directory, paths) = in_every_format(log);
    let mut all = paths.iter().map(|path| {
        let ending = path.extension().unwrap().to_str().unwrap();
        let first = match ending {
            "csv" => 2,
            "jsonl" => 1,
            _ => 0,
        };
        let plain = |text: &str| {
            let text = text.split_once(&format!("log.{ending}")).map_or(text, |(_, text)| text);
            let text = text.replace("array ", "column ").replace("key ", "column ");
            let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            for k in 1..words.len() {
                let digits: String = words[k].chars().take_while(char::is_ascii_digit).collect();
                if matches!(words[k - 1].as_str(), "line" | "row") && !digits.is_empty() {
                    let number = digits.parse::<usize>().unwrap() - first;
                    words[k] = format!("{number}{}", &words[k][digits.len()..]);
                    words[k - 1] = "line".to_owned();
                }
            }
            words.join(" ")
        };
        match read(path, reading, columns) {
            Ok(table) => {
                let told = table.told().iter().map(|told| plain(told)).collect();
                (Some(table), told)
            }
            Err(e) => (None, vec![plain(&e.to_string())]),
        }
    });
    let first = all.next().unwrap();
    for (table, told) in all {
        assert_eq!(told, first.1);
        assert_eq!(table.map(|table| rows(&table, true)), first.0.as_ref().map(|table| rows(table, true)));
    }
    first
}

fn told(log: &[Logged]) -> Vec<String> {
    said(log, STRICT, &logged()).1
}

const KEEP: Reading = Reading { keep_all: true, ..STRICT };

#[test]
fn rows_that_come_twice_are_left_out_with_a_count() {
    let log = log();
    let (base, silent) = said(&log, STRICT, &logged());
    let base = base.unwrap();
    assert_eq!((base.rows().len(), silent.len()), (12, 0));
    let twice = [log.clone(), log.clone()].concat();
    let doubled: Vec<Logged> = log.iter().flat_map(|row| [*row, *row]).collect();
    let mut one = log.clone();
    one.insert(6, log[5]);
    for (log, copies, words) in [
        (&twice, 12, "12 rows are exact copies of others and are left out; the first: line 12, mission 0, t 0"),
        (&doubled, 12, "12 rows are exact copies of others and are left out; the first: line 1, mission 0, t 0"),
        (&one, 1, "1 row is an exact copy of another and is left out; the first: line 6, mission 1, t 1"),
    ] {
        let (table, told) = said(log, STRICT, &logged());
        let table = table.unwrap();
        assert_eq!(rows(&table, true), rows(&base, true));
        assert_eq!((table.frames(), table.episodes()), (base.frames(), base.episodes()));
        let summary = table.summary();
        assert_eq!((summary.copies, summary.transitions, summary.episodes), (copies, 12, 3));
        assert_eq!((summary.ends, &told[0][..]), ([3, 0, 0], words));
        let (all, _) = said(log, KEEP, &logged());
        assert_eq!((all.as_ref().unwrap().rows().len(), all.unwrap().summary().copies), (12 + copies, 0));
    }
    // A recorder whose every row came up to three times, without episodes: a copy of a last row is no episode.
    let unnamed = Columns { episode: None, ..logged() };
    let (table, told) = said(&doubled, STRICT, &unnamed);
    assert_eq!(rows(&table.unwrap(), true), rows(&base, true), "{told:?}");
    // Runs of one row, at a time that says little, are no copies of each other.
    let bandit: Vec<Logged> = (0..6).map(|_| Logged(0, 5.0, 1.0, 2.0, true)).collect();
    let (table, told) = said(&bandit, STRICT, &unnamed);
    assert_eq!((table.unwrap().rows().len(), told.len()), (6, 0));
}

#[test]
fn rows_that_may_be_copies_are_told_and_learned() {
    let doubled: Vec<Logged> = log().iter().flat_map(|row| [*row, *row]).collect();
    let timeless = Columns { time: None, ..logged() };
    let unnamed = Columns { episode: None, ..timeless.clone() };
    let words = |count: &str, place: &str| {
        format!(
            "{count} equal to the one before, and every row is learned; the first: {place}. No column says when a row was, which would \
             tell copies from a robot that stands still: name one (--time), or leave copies out"
        )
    };
    for (log, columns, count, place) in [
        (&doubled[..], &unnamed, "12 rows are", "line 1"),
        // Its last row came once.
        (&doubled[..7], &timeless, "3 rows are", "line 1, mission 0"),
        (&doubled[3..7], &timeless, "1 row is", "line 2, mission 0"),
    ] {
        let (table, told) = said(log, STRICT, columns);
        assert_eq!(told, [words(count, place)]);
        assert_eq!((table.as_ref().unwrap().rows().len(), table.unwrap().summary().copies), (log.len(), 0));
    }
    // An episode of one row may be as the one before it, and a number says that a row is another one.
    let bandit = [Logged(0, 0.0, 1.0, 2.0, true); 6];
    let (table, told) = said(&bandit, STRICT, &unnamed);
    assert_eq!((table.unwrap().rows().len(), told.len()), (6, 0));
    let stands = "stream,session,seq,state_0,reward,terminated\na,s,0,1,1,0\na,s,1,1,1,0\na,s,2,1,1,1\n";
    assert_eq!(own(stands).unwrap().told(), <[String; 0]>::default());
    let stands = "stream,state_0,reward,terminated\na,1,1,0\na,1,1,0\na,1,1,1\n";
    assert_eq!(own(stands).unwrap().told(), [words("1 row is", "line 3")]);
}

#[test]
fn an_export_that_comes_twice_without_episodes_is_noticed() {
    let unnamed = Columns { episode: None, ..logged() };
    let twice = [log(), log()].concat();
    let (table, told) = said(&twice, STRICT, &unnamed);
    assert_eq!(table.unwrap().rows().len(), 24);
    assert_eq!(
        told,
        [
            "3 runs come again with the same t and the same numbers, and every row is learned; the first: line 12, t 0. If the \
          file holds an export twice, leave it out once, or say which column tells runs apart (--episode)"
        ]
    );
    // Seconds since 1970 come once. An export that overlaps another amid a run is left out to where it goes on.
    let dated = |log: &[Logged]| -> Vec<Logged> {
        let at = |(k, row): (usize, &Logged)| Logged { 1: 1.7e9 + 10.0 * k as f64, ..*row };
        log.iter().enumerate().map(at).collect()
    };
    let log = dated(&log());
    let (base, silent) = said(&log, STRICT, &unnamed);
    let base = base.unwrap();
    assert!(silent.is_empty(), "{silent:?}");
    for (log, copies) in [([log.clone(), log.clone()].concat(), 12), ([&log[..9], &log[2..]].concat(), 7)] {
        let (table, told) = said(&log, STRICT, &unnamed);
        let table = table.unwrap();
        assert_eq!((rows(&table, true), table.summary().copies), (rows(&base, true), copies));
        assert!(told[0].starts_with(&format!("{copies} rows are exact copies of others and are left out")), "{told:?}");
        // Where a run breaks off, its last row has no next one.
        let (all, _) = said(&log, KEEP, &unnamed);
        assert_eq!(all.unwrap().rows().len(), log.len() - usize::from(copies == 7));
    }
}

#[test]
fn rows_that_differ_at_one_time_are_refused() {
    let mut log = log();
    log.insert(7, Logged(1, 2.0, -3.0, 9.0, false));
    log.insert(3, Logged(0, 2.0, -4.0, 9.0, false));
    assert_eq!(
        told(&log),
        [", line 3, column t: 2 rows have the mission and t of another row and other numbers; the first is this one: \
          mission 0, t 2, as in line 2. Where rows of several runs or robots are mixed, give runs of a restarted logger \
          other names in mission, and robots a column stream, or keep every row as a step, in the order of the file: \
          --order keep"]
    );
    let (table, told) = said(&log, KEEP, &logged());
    assert!(told[0].starts_with("2 rows have the mission and t of another row"), "{told:?}");
    assert_eq!(table.unwrap().rows().len(), 14);
    // A logger that was started again, and counts missions and seconds from 0.
    let again: Vec<Logged> = self::log().iter().map(|row| Logged(row.0, row.1, 1.25 - row.2, row.3, row.4)).collect();
    let found = self::told(&[self::log(), again].concat());
    assert!(found[0].starts_with(", line 12, column t: 12 rows have the mission and t of another row"), "{found:?}");
    // Without names for episodes the row before counts; two robots that take turns in one file.
    let unnamed = Columns { episode: None, ..logged() };
    let robots: Vec<Logged> = (0..8).map(|k| Logged(0, f64::from(k / 2), f64::from(k % 2), 1.0, false)).collect();
    let (_, told) = said(&robots, STRICT, &unnamed);
    assert!(told[0].starts_with(", line 1, column t: 4 rows have the t of the row before"), "{told:?}");
    assert!(told[0].contains("(--episode), or robots (stream)"), "{told:?}");
}

#[test]
fn episodes_that_go_on_after_their_end_are_refused() {
    // The flag says of each row how the mission ended; or it stands where the mission goes on.
    let flagged: Vec<Logged> = log().iter().map(|row| Logged { 4: row.0 == 1 || row.4, ..*row }).collect();
    let early: Vec<Logged> = log().iter().map(|row| Logged { 4: row.1 == 1.0, ..*row }).collect();
    assert_eq!(
        told(&flagged),
        [", line 5, column mission: 1 of 3 episodes goes on after a row that ended them; the first row that does is \
          mission 1, t 1, behind line 4, which terminates. Set the flag in the last row of an episode alone, leave out the rows behind it, or give \
          them another name in mission, or keep every row as a step, in the order of the file: --order keep"]
    );
    assert!(told(&early)[0].starts_with(", line 2, column mission: 3 of 3 episodes go on after a row that ended them"));
    let cut = Columns { truncated: Some("failed".into()), terminated: None, ..logged() };
    let (_, told) = said(&flagged, STRICT, &cut);
    assert!(told[0].contains("mission 1, t 1, behind line 4, which is truncated"), "{told:?}");
    let (table, told) = said(&early, KEEP, &logged());
    assert_eq!(table.unwrap().summary().ends, [3, 0, 3]);
    assert!(told[0].starts_with("3 of 3 episodes go on") && told[1].starts_with("episodes are cut 3 times inside"));
    // Where no column names episodes, another begins behind an end.
    let (table, told) = said(&early, STRICT, &Columns { episode: None, time: None, ..logged() });
    assert_eq!((table.unwrap().summary().ends[0], told.len()), (3, 0));
}

#[test]
fn a_clock_that_steps_back_is_told() {
    let mut log = log();
    // Of mission 1 the clock is set back by 3 seconds amid it, and after the first second.
    log[6].1 -= 3.5;
    log[7].1 -= 3.5;
    assert!(
        told(&log)[0].contains("mission 1, t 0, behind line 7, which terminates")
            && told(&log)[0]
                .contains("; or leave --time out if its clock was set back: it steps back in line 6, or keep"),
        "{:?}",
        told(&log)
    );
    log[7].4 = false;
    let (table, told) = said(&log, Reading { assume_terminated: None, ..STRICT }, &logged());
    assert_eq!(
        told,
        [
            "t steps back once inside episodes, whose rows are put into its order; the first: line 6, mission 1, t -1.5, \
          after 1"
        ]
    );
    assert_eq!(table.unwrap().frames()[4..7], [0, 1, 2], "numbers of rows follow the time");
    // Without names an episode begins there; behind an end that is no news.
    let unnamed = Columns { episode: None, ..logged() };
    let (_, told) = said(&self::log(), STRICT, &unnamed);
    assert!(told.is_empty(), "{told:?}");
    let (_, told) = said(&log, STRICT, &unnamed);
    assert_eq!(told, ["t steps back once, and an episode begins there; the first: line 6, t -1.5, after 1"]);
    // Where nothing says when rows were, episodes that come again are told.
    let untimed = Columns { time: None, ..logged() };
    let mut mixed = self::log();
    mixed.swap(3, 4);
    let (_, told) = said(&mixed, STRICT, &untimed);
    assert!(
        told[0].starts_with("2 episodes come again behind others") && told[0].ends_with("line 4, mission 0"),
        "{told:?}"
    );
}

#[test]
fn a_file_in_the_reverse_order_of_its_times_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv");
    std::fs::write(&path, "t,x,cost\n4,5,1\n3,4,1\n2,3,1\n1,1,1\n0,0,1\n").unwrap();
    let unnamed = Columns { episode: None, terminated: None, ..logged() };
    let never = Reading { assume_terminated: Some(AssumeTerminated::Never), ..STRICT };
    let said = read(&path, never, &unnamed).unwrap_err().to_string();
    assert!(said.contains("line 3, column t: falls in 4 of 4 rows. If the file ends with what came first"), "{said}");
    assert_eq!(read(&path, never, &Columns { time: None, ..unnamed }).unwrap().rows().len(), 4);
    // Rows that name their successors have no need of an order.
    std::fs::write(&path, "t,x,next_x,cost\n3,4,5,1\n2,3,4,1\n1,1,3,1\n0,0,1,1\n").unwrap();
    let unnamed = Columns { episode: None, terminated: None, next_state: vec!["next_x".into()], ..logged() };
    assert_eq!(read(&path, never, &unnamed).unwrap().rows().len(), 4);
}

#[test]
fn numbers_that_come_in_turns_are_held_from_the_first_ones_on() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv");
    std::fs::write(&path, "t,x,y,cost\n0,1,,1\n1,,10,1\n2,2,,1\n3,,20,1\n4,3,,1\n").unwrap();
    let state = vec!["x".to_owned(), "y".to_owned()];
    let unnamed = Columns { state, episode: None, terminated: None, missing: Missing::Hold, ..logged() };
    let never = Reading { assume_terminated: Some(AssumeTerminated::Never), ..STRICT };
    let table = read(&path, never, &unnamed).unwrap();
    assert_eq!(table.rows().states, [1.0, 10.0, 2.0, 10.0, 2.0, 20.0]);
    assert_eq!(
        table.told(),
        ["4 missing numbers repeat the ones before them, 1 row lacks a number and is left out; the first: line 2, y"]
    );
}

#[test]
fn cuts_inside_episodes_are_told() {
    let text = "mission,x,next_x,cost,failed\n0,0,1,1,0\n0,1,2,1,0\n0,2.5,3,1,0\n0,3,4,1,0\n1,0,1,1,1\n";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv");
    std::fs::write(&path, text).unwrap();
    let columns = Columns { time: None, ..logged() };
    let table = read(&path, STRICT, &columns).unwrap();
    assert_eq!(
        table.told(),
        ["episodes are cut once inside: a row does not lead to the one behind it; the first: line 4, mission 0"]
    );
}

#[test]
fn times_that_one_double_cannot_tell_apart_are_two() {
    let text = "mission,t,x,cost,failed\n0,2024-10-27T02:00:00.0000002Z,1,1,0\n0,2024-10-27T02:00:00.0000001Z,0,1,0\n\
                0,2024-10-27T02:00:00.0000003Z,2,1,1\n";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv");
    std::fs::write(&path, text).unwrap();
    let table = read(&path, STRICT, &logged()).unwrap();
    assert_eq!(table.rows().states, [0.0, 1.0, 2.0]);
    assert!(table.told()[0].contains("steps back once"), "{:?}", table.told());
    std::fs::write(&path, text.replace(".0000003", ".0000002")).unwrap();
    let said = read(&path, STRICT, &logged()).unwrap_err().to_string();
    assert!(said.contains("mission 0, t 2024-10-27T02:00:00.0000002Z, as in line 2"), "{said}");
}

#[test]
fn a_large_table_is_judged_as_a_table_is() {
    let check = |log: &[Logged], reading| {
        let (_directory, paths) = in_every_format(log);
        let of = |path: &PathBuf| {
            let large = LargeTable::check_as(path, reading, &logged(), &mut |_| true).map_err(|e| e.to_string())?;
            let mut found = Vec::new();
            let mut take = |batch| {
                found.push(batch);
                true
            };
            large.for_each_batch(&str::to_owned, "", 100, &mut take).unwrap();
            Ok((found, large.told().to_vec()))
        };
        paths.iter().map(of).collect::<Vec<Result<_, String>>>()
    };
    let log = log();
    let doubled: Vec<Logged> = log.iter().flat_map(|row| [*row, *row]).collect();
    for (base, found) in check(&log, STRICT).into_iter().zip(check(&doubled, STRICT)) {
        let (base, (found, told)) = (base.unwrap(), found.unwrap());
        assert_eq!((found, base.1.len()), (base.0, 0));
        assert!(told[0].starts_with("12 rows are exact copies"), "{told:?}");
    }
    let early: Vec<Logged> = log.iter().map(|row| Logged { 4: row.1 == 1.0, ..*row }).collect();
    let mut differing = log.clone();
    differing.insert(3, Logged(0, 2.0, -4.0, 9.0, false));
    for (log, words) in [
        (early, "3 of 3 episodes go on after a row"),
        (differing, "1 row has the mission and t of another row"),
        ([log.clone(), log].concat(), "sort the rows by episode and time"),
    ] {
        for found in check(&log, STRICT) {
            let said = found.unwrap_err();
            assert!(said.contains(words), "{said}");
        }
    }
}

fn own(text: &str) -> Result<Table, String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv");
    std::fs::write(&path, text).unwrap();
    read(&path, STRICT, &Columns::default()).map_err(|e| e.to_string())
}

#[test]
fn rows_of_our_own_are_told_apart_by_time_or_number() {
    let rows = "0,1,0,5\n1,1,0,6\n1,1,0,6\n2,1,0,7\n3,1,1,8\n3,1,1,8\n0,1,0,0\n1,1,1,1\n";
    let table = own(&format!("state_0,reward,terminated,time\n{rows}")).unwrap();
    assert_eq!(table.rows().states, [0.0, 1.0, 2.0, 3.0, 0.0, 1.0]);
    assert_eq!(table.told(), ["2 rows are exact copies of others and are left out; the first: line 4, time 6"]);
    let said = own(&format!("state_0,reward,terminated,time\n{}", rows.replacen("1,1,0,6", "1,2,0,6", 1))).unwrap_err();
    assert!(said.contains(", line 4, column time: 1 row has the time of the row before and other numbers"), "{said}");
    // The daemon takes several rows of one time, and numbers them.
    for number in ["seq", "offset"] {
        let line = |(k, line): (usize, &str)| format!("{line},{k}\n");
        let rows: String = rows.lines().enumerate().map(line).collect();
        let table = own(&format!("state_0,reward,terminated,time,{number}\n{rows}")).unwrap();
        assert_eq!((table.rows().len(), table.told().len()), (8, 0), "{number}");
    }
}

#[test]
fn exports_that_overlap_are_one() {
    let header = "stream,session,seq,state_0,next_state_0,reward,terminated,starts_chain\n";
    let lines = |range: std::ops::Range<u64>, gain: u64| -> String {
        let first = range.start;
        let row = |k: u64| format!("a,s,{k},{k},{},{},0,{}\n", k + 1, k * gain, u8::from(k == first));
        range.map(row).collect()
    };
    let expected = own(&format!("{header}{}", lines(0..9, 1))).unwrap();
    let table = own(&format!("{header}{}{}", lines(0..6, 1), lines(3..9, 1))).unwrap();
    assert_eq!(rows(&table, true), rows(&expected, true));
    assert_eq!(table.told(), ["3 rows are exact copies of others and are left out; the first: line 8"]);
    let said = own(&format!("{header}{}{}", lines(0..6, 1), lines(3..9, 2))).unwrap_err();
    assert!(said.contains(", line 8, column seq: session s has had 3 before"), "{said}");
    // Another run counts from 0 again.
    let again = lines(3..9, 2).replace("a,s,", "a,again,");
    assert_eq!(own(&format!("{header}{}{again}", lines(0..6, 1))).unwrap().rows().len(), 12);
}

#[test]
fn names_that_cannot_be_told_apart_are_refused() {
    let header = "mission,t,x,cost,failed\n";
    let said = message(&format!("{header}1,0,0,1,0\n1,1,1,1,1\n1.0,0,2,1,0\n1.0,1,3,1,1\n"), &logged());
    assert!(
        said.contains(", line 4, column mission: 1 name is written as another one but for blanks, zeros or forms of Unicode; the first: \"1.0\" beside \"1\""),
        "{said}"
    );
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.jsonl");
    let row =
        |robot: &str| format!("{{\"stream\": \"{robot}\", \"state\": [0], \"reward\": 1, \"terminated\": true}}\n");
    std::fs::write(&path, row("arm") + &row("leg") + &row("arm ")).unwrap();
    let said = read(&path, STRICT, &Columns::default()).unwrap_err().to_string();
    assert!(said.contains(", line 3, key stream: 1 name is written as another one"), "{said}");
    let table = read(&path, KEEP, &Columns::default()).unwrap();
    assert_eq!(table.streams(), ["arm", "leg", "arm "]);
    assert!(table.told()[0].starts_with("stream: 1 name is written as another one"), "{:?}", table.told());
}

#[test]
fn a_row_that_gives_its_state_alone_may_follow_an_end() {
    let text = "mission,t,x,cost,failed\n0,0,0,1,0\n0,1,1,1,1\n0,2,2,,\n1,0,5,1,1\n1,1,6,,\n";
    // Sorted or not.
    let lines: Vec<&str> = text.lines().collect();
    let mixed = [0, 4, 1, 2, 3, 5].map(|k| lines[k]).join("\n");
    for text in [text, &mixed] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("t.csv");
        std::fs::write(&path, text).unwrap();
        let table = read(&path, STRICT, &logged()).unwrap();
        assert_eq!((table.rows().len(), table.summary().ends), (3, [2, 0, 0]));
    }
}

#[test]
fn columns_that_cannot_be_told_apart_are_refused() {
    let text = "mission,t, x,cost,x ,failed\n0,0,0,1,5,0\n0,1,1,1,5,1\n";
    let said = |columns| message(text, &columns);
    assert!(
        said(logged()).contains("column x: two columns have this name, number 3 and number 5; rename one of them"),
        "{}",
        said(logged())
    );
    let rewarded = Columns { state: list(&["t"]), reward: list(&["2*x"]), time: None, ..logged() };
    assert!(said(rewarded).contains("column x: two columns have this name"));
    let twice = Columns { state: list(&["cost", "t", "cost"]), time: None, ..logged() };
    assert!(said(twice).contains("column cost: state names it twice"));
    let paid = Columns { state: list(&["t"]), reward: list(&["-cost", "cost", "-cost"]), time: None, ..logged() };
    assert!(said(paid).contains("column -cost: reward names it twice"));
    let called = Columns { state: list(&["t", "cost"]), names: list(&["a", "a"]), time: None, ..logged() };
    assert!(said(called).contains("column names: two variables are called a; give each a name of its own"));
    // Nor two forms of one name, `é` as one letter and as two.
    let (whole, apart) = ("r\u{e9}el", "re\u{301}el");
    let text = format!("mission,t,{whole},cost,{apart},failed\n0,0,0,1,5,0\n0,1,1,1,5,1\n");
    for name in [whole, apart] {
        let said = message(&text, &Columns { state: list(&[name]), ..logged() });
        assert!(said.contains("two columns have this name in two forms of Unicode, number 3 and number 5"), "{said}");
    }
    let called = Columns { state: list(&["t", "cost"]), names: list(&[whole, apart]), time: None, ..logged() };
    assert!(message(&text, &called).contains("two variables are called"));
    // One of them is found by either.
    let one = text.replace(&format!(",{apart},"), ",other,");
    let found = message(&one, &Columns { state: list(&[apart]), ..logged() });
    assert!(found.starts_with("Table"), "{found}");
    // What nothing needs may be called as it likes.
    let other = Columns { state: list(&["t"]), time: None, ..logged() };
    assert!(said(other).starts_with("Table"));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.jsonl");
    std::fs::write(&path, "{\"x\": 1, \"cost\": 2, \"failed\": 0, \"x\": 3}\n").unwrap();
    let said = read(&path, STRICT, &logged()).unwrap_err().to_string();
    assert!(said.contains(", line 1: the key \"x\" comes twice"), "{said}");
}

#[cfg(feature = "hdf5")]
#[test]
fn arrays_of_hdf5_are_judged_as_well() {
    let of = |name: &str| read(&fixture(&format!("../{name}.hdf5")), STRICT, &logged());
    let (base, twice) = (of("log").unwrap(), of("log_twice").unwrap());
    assert_eq!(rows(&base, true), rows(&twice, true));
    assert_eq!(twice.told(), ["8 rows are exact copies of others and are left out; the first: row 8, mission 0, t 0"]);
    let said = of("log_early").unwrap_err().to_string();
    assert!(said.contains(", row 2, array mission: 2 of 2 episodes go on after a row that ended them"), "{said}");
}

/// Two missions as a program writes them by itself; 3000 is a cost that is written in many ways.
const PLAIN: &str =
    "mission,t,x,cost,failed\n0,0,0.5,3000.5,0\n0,1,1.5,1000,0\n0,2,2.25,2,1\n1,0,7,3000.5,0\n1,1,8,4,0\n1,2,9,5,1\n";

/// The plain text with another separator, and its lines changed.
fn rewritten(separator: &str, line: impl Fn(usize, &str) -> String) -> String {
    PLAIN.lines().enumerate().map(|(k, text)| line(k, &text.replace(',', separator)) + "\n").collect()
}

/// What is read of a text with this name, and what is told.
fn of_text(name: &str, text: &str, columns: &Columns) -> Result<(Vec<String>, Vec<String>), String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    let table = read(&path, STRICT, columns).map_err(|e| e.to_string())?;
    Ok((rows(&table, true), table.told().to_vec()))
}

#[test]
fn texts_of_spreadsheets_and_loggers_are_read_as_they_are() {
    let same = |_: usize, line: &str| line.to_owned();
    let flags = |line: &str, [no, yes]: [&str; 2]| {
        let (rest, flag) = line.rsplit_once([',', ';']).unwrap();
        let flag = flag.replace('0', no).replace('1', yes);
        format!("{rest}{}{flag}", &line[rest.len()..=rest.len()])
    };
    let plain = PLAIN.to_owned();
    let cases: Vec<(&str, String, &str)> = vec![
        ("words for flags", rewritten(",", |_, line| flags(line, ["FALSCH", "WAHR"])), ""),
        ("no and yes", rewritten(",", |_, line| flags(line, ["no", "yes"])), ""),
        ("t and f", rewritten(",", |_, line| flags(line, ["f", "t"])), ""),
        (
            "thousands",
            plain.replace("3000.5", "\"3,000.5\"").replace("1000", "\"1,000\""),
            "commas set thousands apart",
        ),
        ("thousands of Switzerland", plain.replace("3000.5", "3'000.5"), ""),
        (
            "units in a line",
            plain.replacen("failed\n", "failed\n-,s,m,EUR,-\n", 1),
            "is no row, and is left out: -, s, m, EUR, -",
        ),
        (
            "comments",
            format!("# log 3\n# a, b\n{}", plain.replace("1,0,7", "# x\n1,0,7")),
            "2 lines before the header are left out",
        ),
        (
            "comments as long as rows",
            format!("# log 3\n{}", plain.replace("1,0,7", "# 1,0,9,9,0\n#1,0,9,9,0\n1,0,7")),
            "2 lines begin with #, and are left out; the first: line 6",
        ),
        (
            "names with the sign of comments",
            format!("# log 3\n{}", rewritten(",", |k, line| if k > 0 { format!("#{line}") } else { line.to_owned() }))
                .replace("#1,0,7", "# a,b,c,d,e\n#1,0,7"),
            "1 line begins with #, and is left out; line 6",
        ),
        (
            "inches",
            format!(
                "# log 3\n{}",
                rewritten(",", |k, line| format!("{},{line}", ["note", "5\" pipe"].get(k).unwrap_or(&"ok")))
            )
            .replace("ok,1,0,7", "# ok,1,0,9,9,0\nok,1,0,7"),
            "1 line begins with #, and is left out; line 6",
        ),
        (
            "such names in quotes",
            format!("# log 3\n{}", plain.replace("\n0,", "\n\"# 0\",")),
            "1 line before the header is left out",
        ),
        (
            "blocks of gnuplot",
            format!("# {}", rewritten(" ", same).replace("1 0 7", "# the block of 1\n1 0 7")),
            "1 line begins with #, and is left out; line 5",
        ),
        (
            "files of numpy.savetxt",
            format!("# {}", rewritten(" ", same).replace("1 0 7", "# mission t x cost failed\n1 0 7")),
            "1 line repeats the header, and is left out; line 5",
        ),
        ("a preamble", format!("Rover 3.1\nStarted,2026\n\n{plain}"), "before the header are left out"),
        ("headers again", plain.replace("1,0,7", "mission,t,x,cost,failed\n1,0,7"), "1 line repeats the header"),
        ("separators behind", rewritten(",", |k, line| format!("{line}{}", if k > 0 { "," } else { "" })), ""),
        ("blanks", rewritten("  ", |_, line| format!(" {line}")), "columns are separated by blanks"),
        ("numpy.savetxt", format!("# {}", rewritten(" ", same)), "columns are separated by blanks"),
        (
            "R with names",
            rewritten("\t", |k, line| {
                if k > 0 { format!("\"{k}\"\t{line}") } else { format!("\"{}\"", line.replace('\t', "\"\t\"")) }
            }),
            "a name stands before each row",
        ),
        ("a cut end", format!("{plain}2,0,3"), "line 8 is the last, is cut off, and is left out"),
        ("zeros at the end", format!("{plain}\0\0\0\0"), "line 8 is the last, is cut off, and is left out"),
    ];
    let columns = logged();
    let (truth, silent) = of_text("t.csv", PLAIN, &columns).unwrap();
    assert_eq!((truth.len(), silent.len()), (6, 0));
    for (what, text, words) in cases {
        let (found, told) = of_text("t.csv", &text, &columns).unwrap_or_else(|said| panic!("{what}: {said}\n{text}"));
        assert_eq!(found, truth, "{what}\n{text}");
        let said = if words.is_empty() { told.is_empty() } else { told.iter().any(|told| told.contains(words)) };
        assert!(said, "{what}: {told:?}");
    }
    // A line that is whole is no cut end, and what says two things is refused.
    for (text, words) in [
        (format!("{plain}2,0,3\n"), "line 8: cut off: it is the last line, and has 3 of 5 cells; delete it"),
        (plain.replace("3000.5", "\"3,000\""), "line 2, column cost: is 3,000 meant to be 3000 or 3.000? Write it so"),
        (plain.replace(",0,0.5,", ",03/28/2026,0.5,"), "may have the day or the month in front"),
        (plain.replacen("1,2,9", "Sum,,9", 1), "empty; a time is needed here: if the row is no step"),
        (plain.replace(",0.5,", ",0,5,"), "has 6 cells, the first line has 5; a text with a separator"),
        (format!("id,id,id,log,log\n{plain}"), "there is no x in the table"),
    ] {
        let said = of_text("t.csv", &text, &columns).unwrap_err();
        assert!(said.contains(words), "{words}: {said}");
    }
    let said = of_text("t.csv", &format!("id,id,id,log,log\n{plain}"), &columns).unwrap_err();
    assert!(said.contains("if that names the columns, delete the line above it"), "{said}");
}

#[test]
fn chains_do_not_go_on_over_a_repeated_header() {
    let text = "x,cost,failed\n0,1,0\n1,1,0\n2,1,0\nx,cost,failed\n7,1,0\n8,1,0\n9,1,1\n";
    let columns = Columns { episode: None, time: None, ..logged() };
    let (found, _) = of_text("t.csv", text, &columns).unwrap();
    assert_eq!(found.len(), 5, "the third row has no successor: {found:?}");
    assert!(!found.iter().any(|row| row.contains("2.0000 | 7.0000")), "{found:?}");
}

#[test]
fn flags_are_numbers_and_a_row_without_a_reward_may_say_that_the_one_before_led_to_the_end() {
    let text =
        "mission,t,x,cost,failed\n0,0,True,True,0\n0,1,False,False,0\n0,2,1,,1\n1,0,1,1,0\n1,1,0,1,0\n1,2,0,,1\n";
    let (found, told) = of_text("t.csv", text, &logged()).unwrap();
    assert_eq!(found.len(), 4);
    assert!(found.contains(&"1.0000 | 0.0000 |  | -1.0000 false false".to_owned()), "{found:?}");
    assert!(found.contains(&"0.0000 |  |  | 0.0000 true false".to_owned()), "{found:?}");
    assert_eq!(
        told,
        [
            "2 rows terminate and have no reward: they only say that the rows before them led to the end; the first: line 4"
        ]
    );
}

#[test]
fn lines_of_json_may_be_nested_and_break_off() {
    let line = |k: usize| {
        format!("{{\"pose\": {{\"x\": {k}}}, \"cost\": 1, \"mission\": 0, \"t\": {k}, \"failed\": {}}}\n", k == 3)
    };
    let columns = Columns { state: list(&["pose.x"]), ..logged() };
    let text: String = (0..4).map(line).collect();
    let (truth, _) = of_text("t.jsonl", &text, &columns).unwrap();
    assert_eq!(truth.len(), 4);
    assert_eq!(of_text("t.json", &text, &columns).unwrap().0, truth);
    let (found, told) = of_text("t.jsonl", &format!("{text}{}", &line(4)[..30]), &columns).unwrap();
    assert_eq!((found, &told[0][..]), (truth, "line 5 is the last, is cut off, and is left out"));
    for (text, words) in [
        (format!("[{text}]"), "a list; a line holds one object"),
        ("{\"observations\": [[1], [2]], \"rewards\": [1]}\n".to_owned(), "a line holds one step, and not an episode"),
    ] {
        let said = of_text("t.json", &text, &Columns::default()).unwrap_err();
        assert!(said.contains(words), "{said}");
    }
}

#[test]
fn files_of_other_kinds_are_told_by_how_they_begin() {
    let directory = tempfile::tempdir().unwrap();
    for (name, start, words) in [
        ("t.csv.gz", &b"\x1f\x8b\x08"[..], "compressed with gzip; unpack it: gunzip"),
        ("t.xlsx", &b"PK\x03\x04"[..], "save it as \"CSV UTF-8\""),
        ("t.feather", &b"ARROW1\0\0"[..], "pandas.read_feather"),
        ("t.db", &b"SQLite format 3\0"[..], "sqlite3 -header -csv"),
        ("t.xls", &b"\xef\xbb\xbf\n<HTML><table>"[..], "a page of HTML; in Python: pandas.read_html"),
        ("t.kml", &b"<?xml version=\"1.0\"?>"[..], "XML; in Python"),
        ("t.log", &b"nothing"[..], "its name must end in .csv"),
    ] {
        let path = directory.path().join(name);
        std::fs::write(&path, start).unwrap();
        let said = read(&path, STRICT, &logged()).unwrap_err().to_string();
        assert!(said.contains(words), "{name}: {said}");
    }
    let parts = directory.path().join("t.csv");
    std::fs::create_dir(&parts).unwrap();
    std::fs::write(parts.join("part-00000-a-c000.csv"), PLAIN).unwrap();
    let said = read(&parts, STRICT, &logged()).unwrap_err().to_string();
    assert!(said.contains("cat OLD/part-* > NEW.csv"), "{said}");
}

#[test]
fn texts_of_the_state_are_categories_with_codes_that_stay() {
    let text = "mission,t,x,mode,cost,failed\n0,0,1,idle,1,0\n0,1,2,drive,1,0\n0,2,3,dock,1,1\n1,0,1,drive,1,0\n1,1,2,dock,1,1\n";
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("t.csv");
    std::fs::write(&path, text).unwrap();
    let columns = Columns { state: list(&["x", "mode"]), ..logged() };
    let table = read(&path, STRICT, &columns).unwrap();
    let codes: Vec<f64> = table.rows().states.iter().skip(1).step_by(2).copied().collect();
    assert_eq!(codes, [0.0, 1.0, 2.0, 1.0, 2.0]);
    assert_eq!(table.categories().0, [list(&[]), list(&["idle", "drive", "dock"])]);
    let said = table.understood().roles.iter().find(|role| role.0 == "categories").map(|role| role.1.as_str());
    assert_eq!(said, Some("mode: idle 0, drive 1, dock 2"));
    // Another order, as a model keeps it; then rows may go to a daemon, where codes must be agreed on.
    let kept = Columns { categories: Categories(vec![list(&[]), list(&["dock", "idle", "drive"])]), ..columns.clone() };
    let again = read(&path, STRICT, &kept).unwrap();
    assert_eq!((again.rows().states[1], again.categories()), (1.0, &kept.categories));
    let sorted = Columns { time: None, ..kept.clone() };
    assert!(LargeTable::check_as(&path, STRICT, &sorted, &mut |_| true).is_ok());
    let said = LargeTable::check_as(&path, STRICT, &Columns { time: None, ..columns.clone() }, &mut |_| true);
    assert!(
        said.unwrap_err().to_string().contains("line 2, column mode: \"idle\" is a text: its code must be the one")
    );
    // Actions behind the state, also where a table has none.
    let acted = text.replace("cost", "move,cost").replace(",1,0\n", ",go,1,0\n").replace(",1,1\n", ",,1,1\n");
    std::fs::write(&path, acted).unwrap();
    let moves = Columns { action: list(&["move"]), ..columns.clone() };
    let table = read(&path, STRICT, &moves).unwrap();
    assert_eq!((table.action_texts(), table.categories().of(1).len()), (&list(&["go"])[..], 3));
    assert!(table.actions().unwrap()[..2] == [0.0, 0.0] && table.actions().unwrap()[2].is_nan());
    let known = Columns { categories: table.categories().clone(), ..columns.clone() };
    assert_eq!(read(&path, STRICT, &known).unwrap().categories(), table.categories());
    // A text that no model knows.
    std::fs::write(&path, text).unwrap();
    let states = Columns { names: list(&["x", "mode"]), categories: kept.categories, ..Columns::default() };
    assert_eq!(read_states_as(&path, &states, &mut |_| {}).unwrap().0[..4], [1.0, 1.0, 2.0, 2.0]);
    std::fs::write(&path, "x,mode\n1,docks\n").unwrap();
    let said = read_states_as(&path, &states, &mut |_| {}).unwrap_err().to_string();
    assert!(said.contains("line 2, column mode: \"docks\" is none of the categories that are known: dock, idle, drive; did you mean dock?"), "{said}");
    let listed = Columns { categories: Categories(vec![list(&["a"])]), ..columns };
    assert!(of_text("t.csv", text, &listed).unwrap_err().contains("there are 1 lists, and 2 state variables"));
}
