//! Logs as they lie: conditions in the place of flags, numbers that are missing, and a column of episodes that nobody has named.

use criticd::learner::random::{mix, normal};
use criticd::table::{Columns, LargeTable, Missing, Reading, Table, TableError};
use criticd::transition::Batch;
use std::fmt::Write as _;
use std::path::PathBuf;

const STRICT: Reading = Reading { assume_terminated: None, done: None, independent: false, keep_all: false };

fn written(name: &str, text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

fn list(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn missions() -> Columns {
    Columns {
        state: list(&["x", "soc"]),
        reward: list(&["-cost"]),
        episode: Some("mission".into()),
        time: Some("t".into()),
        terminated: Some("outcome == arrived".into()),
        ..Columns::default()
    }
}

fn read(text: &str, columns: &Columns) -> Result<Table, TableError> {
    let (_directory, path) = written("log.csv", text);
    Table::read_as(&path, STRICT, columns, &mut |_| {})
}

fn message(text: &str, columns: &Columns) -> String {
    read(text, columns).unwrap_err().to_string().split_once("log.csv").unwrap().1.to_owned()
}

const LOG: &str = "mission,t,x,soc,cost,outcome\n\
                   a,0,0,9,1,\na,1,1,8,1,\na,2,2,7,0,arrived\n\
                   b,0,5,6,1,\nb,1,6,4,2,\nb,2,7,3,,stranded\n";

#[test]
fn a_condition_is_a_flag() {
    let table = read(LOG, &missions()).unwrap();
    assert_eq!(table.rows().terminated, [false, false, true, false, false]);
    let said: Vec<&str> =
        table.understood().roles.iter().filter(|role| role.0 == "terminated").map(|role| &*role.1).collect();
    assert_eq!(said, ["outcome == arrived"]);
    // One column may say both, and a state may say one of them.
    let both = Columns { truncated: Some("outcome=stranded".into()), ..missions() };
    let table = read(LOG, &both).unwrap();
    assert_eq!(
        (&table.rows().terminated[..], &table.rows().truncated[..]),
        (&[false, false, true, false, false][..], &[false, false, false, false, true][..])
    );
    let low = Columns { terminated: Some("soc < 4.5".into()), ..missions() };
    let text = LOG.replace("b,1,6,4,2,\nb,2,7,3,,stranded\n", "b,1,6,4,2,\n");
    assert_eq!(read(&text, &low).unwrap().rows().terminated, [false, false, false, true]);
    for (condition, words) in [
        ("outcom == arrived", ", column outcom: terminated: there is no outcom"),
        ("soc < low", ", column soc < low: terminated: \"low\" is no number; < compares numbers"),
        (
            "outcome",
            "\"arrived\" is not a flag; write true, false, 1 or 0, or name a condition, such as 'outcome == arrived'",
        ),
        ("outcome > 3", "line 4, column outcome > 3: \"arrived\" is not a number, as outcome > 3 needs"),
    ] {
        let found = message(LOG, &Columns { terminated: Some(condition.into()), ..missions() });
        assert!(found.contains(words), "{condition}: {found}");
    }
}

/// Ten rows of two missions; the third lacks its x, the seventh its cost.
fn gaps(in_order: bool) -> String {
    let mut lines: Vec<String> = (0..10)
        .map(|i| {
            let (mission, t) = (i / 5, i % 5);
            let x = if i == 2 { "NaN".to_owned() } else { i.to_string() };
            let cost = if i == 6 { "" } else { "1" };
            format!("{mission},{t},{x},{},{cost},{}\n", 20 - i, if t == 4 { "arrived" } else { "" })
        })
        .collect();
    if !in_order {
        lines.reverse();
    }
    format!("mission,t,x,soc,cost,outcome\n{}", lines.concat())
}

#[test]
fn rows_without_a_number_are_left_out_or_repeat_it() {
    for in_order in [true, false] {
        let text = gaps(in_order);
        let found = message(&text, &missions());
        assert!(found.contains("nan") || found.contains("NaN"), "{found}");
        let with = |missing| read(&text, &Columns { missing, ..missions() }).unwrap();
        let first = |table: &Table| -> Vec<f64> { table.rows().states.iter().step_by(2).copied().collect() };

        let dropped = with(Missing::Drop);
        // Row 1 leads to one that is not there; row 5 to one without a cost, whose state is there.
        let (mission, other) = ([0.0, 3.0, 4.0], [5.0, 7.0, 8.0, 9.0]);
        // Episodes stand in the order in which the file begins them.
        assert_eq!(
            first(&dropped),
            if in_order { [&mission[..], &other].concat() } else { [&other[..], &mission].concat() }
        );
        let place = |x: f64| first(&dropped).iter().position(|&other| other == x).unwrap();
        assert_eq!(dropped.rows().next_state(place(5.0)), [6.0, 14.0]);
        let starts = [0.0, 3.0, 4.0, 5.0, 7.0, 8.0, 9.0].map(|x| dropped.rows().starts_chain[place(x)]);
        assert_eq!(starts, [true, true, false, true, true, false, false]);
        let summary = dropped.summary();
        assert_eq!((summary.rows, summary.dropped, summary.transitions), (10, 2, 7));
        let told = dropped.told().join("\n");
        assert!(told.contains("2 rows lack a number and are left out; the first: line "), "{told}");

        let held = with(Missing::Hold);
        let (mission, other) = ([0.0, 1.0, 1.0, 3.0, 4.0], [5.0, 7.0, 8.0, 9.0]);
        assert_eq!(
            first(&held),
            if in_order { [&mission[..], &other].concat() } else { [&other[..], &mission].concat() }
        );
        let one = first(&held).iter().position(|&x| x == 1.0).unwrap();
        assert_eq!((held.rows().next_state(one), held.rows().starts_chain[one + 1]), (&[1.0, 18.0][..], false));
        assert!(
            held.told().join("\n").contains("1 missing number repeats the one before it, 1 row lacks"),
            "{:?}",
            held.told()
        );
    }
    // Nothing stands before the first row of an episode.
    let first = gaps(true).replace("1,0,5,", "1,0,,");
    let held = read(&first, &Columns { missing: Missing::Hold, ..missions() }).unwrap();
    assert_eq!(held.summary().dropped, 2);
    assert!(held.rows().states.chunks(2).all(|state| state[0] != 5.0));
    // A word is no missing number, and no name is one.
    assert!(
        message(&gaps(true).replace("NaN", "high"), &Columns { missing: Missing::Drop, ..missions() })
            .contains("\"high\"")
    );
    let named =
        read(&gaps(true).replace("\n1,", "\nnone,"), &Columns { missing: Missing::Drop, ..missions() }).unwrap();
    assert_eq!(named.episode_names(), ["0", "none"]);
}

#[test]
fn tables_in_pieces_are_read_as_whole_ones() {
    let mut text = "mission,t,x,soc,cost,outcome\n".to_owned();
    for i in 0..30_000u32 {
        let (mission, t) = (i / 50, i % 50);
        let (x, cost) = (if i % 7 == 3 { String::new() } else { i.to_string() }, if i % 11 == 5 { "" } else { "1" });
        writeln!(text, "{mission},{t},{x},{},{cost},{}", i % 13, if t == 49 { "arrived" } else { "" }).unwrap();
    }
    let (_directory, path) = written("log.csv", &text);
    for missing in [Missing::Drop, Missing::Hold] {
        let columns = Columns { missing, ..missions() };
        let whole = Table::read_as(&path, STRICT, &columns, &mut |_| {}).unwrap();
        let large = LargeTable::check_as(&path, STRICT, &columns, &mut |_| true).unwrap();
        let mut found = Vec::new();
        let mut take = |batch| {
            found.push(batch);
            true
        };
        large.for_each_batch(&str::to_owned, "", 256, &mut take).unwrap();
        let states = |batches: &[Batch]| -> Vec<Vec<f64>> {
            batches.iter().flat_map(|batch| (0..batch.len()).map(|i| batch.state(i).to_vec())).collect()
        };
        assert_eq!(states(&found), states(&whole.batches("", 256).collect::<Vec<_>>()));
        // What is told of breaks needs the whole table.
        assert_eq!(large.told(), &whole.told()[..1]);
        assert!(whole.summary().dropped > 2000, "{:?}", whole.summary());
    }
}

/// Missions of a robot that ends where its battery lets it, with columns that say other things.
fn recording(seed: u64, missions: u64, wanders: bool) -> String {
    let mut text = "clock,mission,mode,x,soc,cost\n".to_owned();
    let (mut clock, mut place) = (0, [0.0, 0.0]);
    for mission in 0..missions {
        if mission == 0 || !wanders {
            place = [10.0 * normal(mix(&[seed, mission, 1])), 80.0 + 10.0 * normal(mix(&[seed, mission, 2]))];
        }
        for t in 0..20 + mix(&[seed, mission, 3]) % 30 {
            writeln!(
                text,
                "{clock},m{mission},{},{:.4},{:.4},1",
                ["drive", "turn"][(t / 7 % 2) as usize],
                place[0],
                place[1]
            )
            .unwrap();
            place[0] += 0.3 * normal(mix(&[seed, mission, t, 4]));
            place[1] -= 0.2 + 0.05 * normal(mix(&[seed, mission, t, 5]));
            clock += 1;
        }
    }
    text
}

#[test]
fn a_forgotten_episode_is_noticed() {
    let forgotten = Columns { state: list(&["x", "soc"]), reward: list(&["-cost"]), ..Columns::default() };
    let never = Reading { assume_terminated: Some(criticd::table::AssumeTerminated::Never), ..STRICT };
    let told = |text: &str, columns: &Columns| {
        let (_directory, path) = written("log.csv", text);
        Table::read_as(&path, never, columns, &mut |_| {}).unwrap().told().join("\n")
    };
    for seed in 0..10 {
        let text = recording(seed, 12, false);
        let found = told(&text, &forgotten);
        assert!(
            found.starts_with("mission changes 11 times, and the state jumps there")
                && found.contains("--episode mission"),
            "{found}"
        );
        assert_eq!(told(&text, &Columns { episode: Some("mission".into()), ..forgotten.clone() }), "");
        // A column that changes without a jump tells nothing apart.
        assert_eq!(told(&recording(seed, 12, true), &forgotten), "");
    }
}

#[test]
fn a_name_that_tells_no_format_needs_a_word() {
    let (_directory, path) = written("log.old", LOG);
    let read = |columns: &Columns| Table::read_as(&path, STRICT, columns, &mut |_| {}).map_err(|e| e.to_string());
    assert!(read(&missions()).unwrap_err().contains("or say what it is: --format csv"));
    let named = Columns { format: Some("csv".into()), ..missions() };
    assert_eq!(read(&named).unwrap().rows().len(), 5);
    assert!(read(&Columns { format: Some("xls".into()), ..missions() }).unwrap_err().contains("there is no \"xls\""));
}

#[test]
fn a_column_file_says_all_of_it() {
    let text = "state = [\"x\", \"soc\"]\nreward = \"-cost\"\nepisode = \"mission\"\ntime = \"t\"\nterminated = \"outcome == arrived\"\nmissing = \"drop\"\nformat = \"csv\"\n";
    let expected = Columns { missing: Missing::Drop, format: Some("csv".into()), ..missions() };
    assert_eq!(Columns::from_toml(text).unwrap(), expected);
    assert!(Columns::from_toml("missing = \"guess\"").unwrap_err().contains("guess"));
}
