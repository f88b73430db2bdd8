//! Tables as other programs write them are read without renaming: `tests/data/tables/foreign.py` has written the same
//! steps by the writers of ten of them, and `truth.csv` says what should be read.

use criticd::table::{Columns, Done, LargeTable, Reading, Table, TableError, read_states_as};
use std::path::{Path, PathBuf};

const STRICT: Reading = Reading { assume_terminated: None, done: None, independent: false };
const DONE: Reading = Reading { assume_terminated: None, done: Some(Done::Terminated), independent: false };

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
    assert!(role("next state").unwrap().starts_with("that of the next row"));
    assert_eq!(table.episode_names().len(), 3);
    let too_many = Columns { units: list(&["m"]), ..missions() };
    assert!(read(&fixture("missions.csv"), STRICT, &too_many).unwrap_err().to_string().contains("2 state variables"));
    // States of a model are found by its names, whatever else is there.
    let of_model = Columns { names: list(&["battery", "x"]), ..Columns::default() };
    let (states, dim) = read_states_as(&fixture("missions.csv"), &of_model, &mut |_| {}).unwrap();
    assert_eq!((states.len(), dim), (20, 2));
    let (other, _) = read_states_as(&fixture("missions.csv"), &missions(), &mut |_| {}).unwrap();
    assert_eq!((states[0], states[1]), (other[1], other[0]));
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
