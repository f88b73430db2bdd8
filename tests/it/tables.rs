//! Tables of transitions: every format gives the same transitions, says what is wrong in its own words, and survives
//! damage. The files in `tests/data/tables` were written by NumPy, h5py and pyarrow.

use criticd::table::{AssumeTerminated, Columns, Done, LargeTable, Reading, Table, TableError, read_states};
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

const STRICT: Reading = Reading { assume_terminated: None, done: None, independent: false, keep_all: false };
const NEVER: Reading =
    Reading { assume_terminated: Some(AssumeTerminated::Never), done: None, independent: false, keep_all: false };
const LAST: Reading =
    Reading { assume_terminated: Some(AssumeTerminated::Last), done: None, independent: false, keep_all: false };

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/tables").join(name)
}

fn read(path: &Path, reading: Reading) -> Result<Table, TableError> {
    Table::read(path, reading, &mut |_| {})
}

/// The sentence after the file's name.
fn message(path: &Path, reading: Reading) -> String {
    let name = path.file_name().unwrap().to_str().unwrap();
    read(path, reading).unwrap_err().to_string().split_once(name).unwrap().1.to_owned()
}

fn written(name: &str, bytes: &[u8]) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    (directory, path)
}

/// Readers that compare each column with all others would not come back from these.
#[test]
fn very_many_columns_are_read() {
    let count = 400_000;
    let joined = |cell: &dyn Fn(usize) -> String| (0..count).map(cell).collect::<Vec<_>>().join(",");
    let (names, ones) = (joined(&|k| format!("state_{k}")), joined(&|_| "1".to_owned()));
    let csv = format!("{names},reward,terminated\n{ones},0.5,true\n");
    let jsonl = format!("{{\"state\": [{ones}], \"reward\": 0.5, \"terminated\": true}}\n");
    for (name, text) in [("wide.csv", csv), ("wide.jsonl", jsonl)] {
        let (_directory, path) = written(name, text.as_bytes());
        let table = read(&path, STRICT).unwrap();
        assert_eq!((table.rows().dim, table.rows().states.len()), (count, count), "{name}");
    }
}

/// Discounts compared by their bits: NaN stands for the critic's own.
fn same(a: &Table, b: &Table) -> bool {
    let (x, y) = (a.rows(), b.rows());
    let bits = |values: &[f64]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
    let batches = |table: &Table| table.batches("", 4).collect::<Vec<_>>();
    (x.dim, x.rewards_per_row, &x.states, &x.next_states, &x.rewards, &x.streams)
        == (y.dim, y.rewards_per_row, &y.states, &y.next_states, &y.rewards, &y.streams)
        && (&x.terminated, &x.truncated, &x.starts_chain) == (&y.terminated, &y.truncated, &y.starts_chain)
        && bits(&x.discounts) == bits(&y.discounts)
        && x.ratios == y.ratios
        && (a.streams(), a.actions()) == (b.streams(), b.actions())
        && batches(a) == batches(b)
}

fn twins() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut twins = vec![
        ("full.csv", vec!["full.npz", "full_compressed.npz", "full.jsonl", "flat.jsonl"]),
        ("pieces.csv", vec!["pieces.npz", "pieces.jsonl"]),
        ("trajectory.csv", vec!["trajectory.npz"]),
        ("policies.csv", vec!["policies.npz", "policies.jsonl"]),
        ("acted.csv", vec!["acted.npz", "acted.jsonl"]),
    ];
    if cfg!(feature = "hdf5") {
        let pairs = [("minari.csv", "minari.hdf5"), ("d4rl.csv", "d4rl.hdf5"), ("d4rl_next.csv", "d4rl_next.hdf5")];
        twins.extend(pairs.map(|(csv, hdf5)| (csv, vec![hdf5])));
    }
    if cfg!(feature = "parquet") {
        twins[0].1.extend(["full.parquet", "full_zstd.parquet"]);
        twins[1].1.push("pieces.parquet");
        twins[3].1.push("policies.parquet");
        twins[4].1.push("acted.parquet");
    }
    twins
}

#[test]
fn every_format_gives_the_same_transitions() {
    for (csv, others) in twins() {
        let expected = read(&fixture(csv), STRICT).unwrap();
        for name in others {
            let found = read(&fixture(name), STRICT).unwrap_or_else(|e| panic!("{e}"));
            assert!(same(&expected, &found), "{name}: {found:?}, {csv}: {expected:?}");
            let large = LargeTable::check(&fixture(name), STRICT, &mut |_| {}).unwrap();
            let mut batches = Vec::new();
            let mut take = |batch| {
                batches.push(batch);
                true
            };
            large.for_each_batch(&str::to_owned, "", 4, &mut take).unwrap();
            assert!(batches == found.batches("", 4).collect::<Vec<_>>(), "{name}");
        }
    }
    // What the fixtures are meant to hold, so that they cannot agree on nothing.
    let full = read(&fixture("full.csv"), STRICT).unwrap();
    assert_eq!((full.rows().len(), full.streams().len(), full.actions().map(<[f64]>::len)), (36, 2, Some(36)));
    let ends = |flags: &[bool]| flags.iter().filter(|&&flag| flag).count();
    assert_eq!((ends(&full.rows().terminated), ends(&full.rows().truncated)), (3, 2));
    assert_eq!(ends(&full.rows().starts_chain), 7, "five episodes, and a gap in each of the two streams");
    let minari = read(&fixture("minari.csv"), STRICT).unwrap();
    assert_eq!((minari.rows().len(), ends(&minari.rows().starts_chain)), (34, 12));
    let pieces = read(&fixture("pieces.csv"), STRICT).unwrap();
    assert_eq!(pieces.rows().len(), 14, "of two truncated pieces the last row only lends its state");
    let policies = read(&fixture("policies.csv"), STRICT).unwrap();
    let starts: Vec<usize> = (0..12).filter(|&i| policies.rows().starts_chain[i]).collect();
    assert_eq!(starts, [0, 4, 9], "by their states all rows are one chain");
    assert_eq!(policies.rows().ratios, [0.0, 1.0, 2.0, 3.0, 0.0, 1.0, 1.0, 1.0, 1.0, 0.5, 1.0, 1.5]);
    let acted = read(&fixture("acted.csv"), STRICT).unwrap();
    assert_eq!(
        (acted.policies(), acted.policy_of_rows()),
        (&["soft".to_owned(), "stiff".to_owned()][..], [0, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0].to_vec())
    );
    let told: Vec<(usize, Option<String>)> =
        acted.batches("", 100).map(|batch| (batch.len(), batch.policy().map(str::to_owned))).collect();
    let soft = || Some("soft".to_owned());
    assert_eq!(told, [(4, soft()), (5, Some("stiff".to_owned())), (3, soft())], "one policy in a batch");
    // Rows that say different things do not travel together, nor those with a new chain between them.
    let lengths: Vec<usize> = policies.batches("", 100).map(|batch| batch.len()).collect();
    assert_eq!(lengths, [4, 3, 1, 1, 2, 1]);
    let seqs: Vec<u64> = policies.batches("", 100).map(|batch| batch.seq().unwrap()).collect();
    assert_eq!(seqs, [0, 5, 8, 9, 11, 13], "a number is left out where a chain starts");
    let last = policies.batches("", 100).last().unwrap();
    assert_eq!((last.behavior_prob(0), last.next_action(0), last.next_action_probs(0)), (Some(0.5), None, None));
}

#[test]
fn the_directory_of_a_minari_dataset_is_a_table() {
    let directory = tempfile::tempdir().unwrap();
    let refused = read(directory.path(), STRICT).unwrap_err().to_string();
    assert!(refused.contains("no Minari dataset in HDF5 (data/main_data.hdf5)"), "{refused}");
    std::fs::write(directory.path().join("dataset_info.json"), "{}").unwrap();
    let refused = read(directory.path(), STRICT).unwrap_err().to_string();
    assert!(refused.contains("datasets.load_from_disk"), "{refused}");
    if cfg!(feature = "hdf5") {
        std::fs::create_dir(directory.path().join("data")).unwrap();
        std::fs::copy(fixture("minari.hdf5"), directory.path().join("data/main_data.hdf5")).unwrap();
        let expected = read(&fixture("minari.hdf5"), STRICT).unwrap();
        assert!(same(&expected, &read(directory.path(), STRICT).unwrap()));
        assert!(same(&expected, &read(&directory.path().join("data"), STRICT).unwrap()));
        let (states, _) = read_states(directory.path(), &mut |_| {}).unwrap();
        assert_eq!(states.len(), 2 * (34 + 12));
    }
}

#[test]
fn states_alone_are_read_from_every_format() {
    let states = [0.5, -1.0, 2.0, 0.25];
    let mut files = vec![
        written("s.csv", b"state_0,state_1\n0.5,-1\n2,0.25\n"),
        written("s.jsonl", b"{\"state\": [0.5, -1]}\n{\"state\": [2, 0.25]}\n"),
        npz(&[("states", "<f8", "(2, 2)", floats(&states)), ("_note", "|b1", "(1,)", vec![1])]),
    ];
    if cfg!(feature = "hdf5") {
        let (found, dim) = read_states(&fixture("d4rl.hdf5"), &mut |_| {}).unwrap();
        assert_eq!((found.len(), dim), (30, 2));
        let (found, _) = read_states(&fixture("minari.hdf5"), &mut |_| {}).unwrap();
        assert_eq!(found.len(), 2 * (34 + 12), "the last state of each episode, too");
        assert_eq!(&found[..2], read(&fixture("minari.csv"), STRICT).unwrap().rows().state(0));
    }
    for (_, path) in files.drain(..) {
        assert_eq!(read_states(&path, &mut |_| {}).unwrap(), (states.to_vec(), 2), "{}", path.display());
    }
    let (_directory, path) =
        npz(&[("states", "<f8", "(2, 2)", floats(&states)), ("rewards", "<f8", "(2,)", vec![0; 16])]);
    assert!(read_states(&path, &mut |_| {}).unwrap_err().to_string().contains("array rewards: a table of states"));
    let (_directory, path) = written("s.jsonl", b"{\"state\": [1], \"reward\": 1}\n");
    assert!(read_states(&path, &mut |_| {}).unwrap_err().to_string().contains("key reward: a table of states"));
}

#[test]
fn what_a_table_does_not_say_about_ends_must_be_said() {
    // 0 -> 1 -> 2, then 10 -> 11; the last row lends its state to none.
    let text = "state_0,next_state_0,reward\n0,1,1\n1,2,2\n10,11,3\n";
    let lines = "{\"state\": [0], \"next_state\": [1], \"reward\": 1}\n{\"state\": [1], \"next_state\": [2], \"reward\": 2}\n\
                 {\"state\": [10], \"next_state\": [11], \"reward\": 3}\n";
    let arrays: &[(&str, &str, &str, Vec<u8>)] = &[
        ("states", "<f8", "(3,)", floats(&[0.0, 1.0, 10.0])),
        ("next_states", "<f8", "(3,)", floats(&[1.0, 2.0, 11.0])),
        ("rewards", "<f8", "(3,)", floats(&[1.0, 2.0, 3.0])),
    ];
    for (_directory, path) in [written("t.csv", text.as_bytes()), written("t.jsonl", lines.as_bytes()), npz(arrays)] {
        let said = message(&path, STRICT);
        assert!(said.contains("terminated: missing") && said.contains("--assume-terminated never"), "{said}");
        assert_eq!(read(&path, NEVER).unwrap().rows().terminated, [false; 3]);
        assert_eq!(read(&path, LAST).unwrap().rows().terminated, [false, true, true]);
        let done = Reading { done: Some(Done::Terminated), ..STRICT };
        assert!(message(&path, done).contains("done: missing; --done is for tables that have it"));
    }
    // Without successors a terminated row needs none, so the last ones are transitions now.
    let (_directory, path) = written("t.csv", b"stream,state_0,reward,truncated\na,0,1,0\na,1,2,0\nb,5,3,0\nb,6,,1\n");
    let (never, last) = (read(&path, NEVER).unwrap(), read(&path, LAST).unwrap());
    assert_eq!((&never.rows().states[..], &last.rows().states[..]), (&[0.0, 5.0][..], &[0.0, 1.0, 5.0][..]));
    assert_eq!(last.rows().terminated, [false, true, false]);
    // Whoever tells truncations apart has seen no end.
    let strict = read(&path, STRICT).unwrap();
    assert_eq!((&strict.rows().states, &strict.rows().terminated), (&never.rows().states, &never.rows().terminated));
    assert_eq!(last.rows().truncated, [false, false, true]);

    let done = "state_0,next_state_0,reward,done\n0,1,1,0\n1,2,2,1\n";
    let arrays: &[(&str, &str, &str, Vec<u8>)] = &[
        ("states", "<f8", "(2, 1)", floats(&[0.0, 1.0])),
        ("next_states", "<f8", "(2, 1)", floats(&[1.0, 2.0])),
        ("rewards", "<f8", "(2,)", floats(&[1.0, 2.0])),
        ("done", "|b1", "(2,)", vec![0, 1]),
    ];
    for (_directory, path) in [written("t.csv", done.as_bytes()), npz(arrays)] {
        for reading in [STRICT, NEVER] {
            assert!(message(&path, reading).contains("done: says that an episode ended, not how"));
        }
        let terminated = read(&path, Reading { done: Some(Done::Terminated), ..STRICT }).unwrap();
        let truncated = read(&path, Reading { done: Some(Done::Truncated), ..STRICT }).unwrap();
        assert_eq!((terminated.rows().terminated[1], terminated.rows().truncated[1]), (true, false));
        assert_eq!((truncated.rows().terminated[1], truncated.rows().truncated[1]), (false, true));
    }
    let (_directory, path) = written("t.csv", b"state_0,reward,terminated,done\n0,1,0,0\n");
    assert!(message(&path, STRICT).contains("column done: terminated already marks"));
    assert!(
        message(&path, Reading { done: Some(Done::Terminated), ..STRICT })
            .contains("terminated has the same information")
    );
}

#[test]
fn lines_of_json_are_wrong_in_words() {
    let good = "{\"state\": [0, 1], \"next_state\": [1, 1], \"reward\": 1, \"terminated\": false}\n";
    for (line, words) in [
        ("{\"state\": [0, 1], \"reward\": ", "line 2: not JSON: cut off at column 27; delete the line"),
        ("{\"state\": [0, 1], \"reward\": \"a", "line 2: not JSON: cut off at column 30; delete the line"),
        ("\0\0\0\0", "line 2: holds zero bytes"),
        ("{\"state\": [0, 1], \"reward\": NaN}", "line 2: not JSON: expected value at column 29; JSON has no NaN"),
        ("[1, 2]", "line 2: not an object"),
        ("{\"state\": [0], \"reward\": 1}", "line 2, key state: has 1 numbers, in line 1 it had 2"),
        ("{\"state\": 0, \"reward\": 1}", "line 2, key state: is a list here or in line 1"),
        ("{\"state\": [0, \"x\"], \"next_state\": [0, 1], \"reward\": 1}", "line 2, key state[1]: \"x\" is text"),
        ("{\"state\": [0, 1], \"reward\": 1, \"state\": [0, 2]}", "line 2: the key \"state\" comes twice at column"),
        (
            "{\"state\": [0, 1], \"reward\": 1, \"_p\": {\"q\": {\"x\": 1, \"x\": 2}}}",
            "line 2: the key \"x\" comes twice at column",
        ),
        (
            "{\"state\": [0, 1], \"reward\": 1, \"_p\": [{\"x\": 1, \"x\": 2}]}",
            "line 2: the key \"x\" comes twice at column",
        ),
        ("{\"state\": [0, 1], \"reward\": 1, \"_p.x\": 1, \"_p\": {\"x\": 2}}", "line 2: the key \"_p.x\" comes twice"),
        ("{\"state\": [0, 1], \"next_state\": [0, 1e10], \"reward\": 1}", "line 2, key next_state[1]: 1e10 is beyond"),
        (
            "{\"state\": [0, 1], \"next_state\": [0, 1], \"reward\": null}",
            "line 2, key reward: missing or null; only a row",
        ),
        ("{\"state\": [0, 1], \"reward\": 1}", "line 2, key next_state[0]: missing or null; only terminated rows"),
        ("{\"next_state\": [0, 1], \"reward\": 1}", "line 2, key state[0]: empty; a number"),
        ("{\"state\": [0, 1], \"reward\": 1, \"terminated\": \"no\"}", "line 2, key terminated: \"no\" is not a flag"),
        ("{\"state\": [0, 1], \"reward\": 1, \"terminated\": [true]}", "line 2, key terminated: is a list here"),
        ("{\"state\": [0, 1], \"reward\": 1, \"value\": 2}", "line 2, key value: not known"),
        ("{\"states\": [[0, 1]], \"reward\": 1}", "line 2, key states: not known; names are singular"),
        (
            "{\"state\": [0, 1], \"next_state\": [0, 1], \"reward\": 1, \"seq\": -1}",
            "line 2, key seq: -1 is not a whole number",
        ),
    ] {
        let (_directory, path) = written("t.jsonl", format!("{good}{line}\n").as_bytes());
        let said = message(&path, STRICT);
        assert!(said.contains(words), "{line}: {said}");
    }
    let (_directory, path) = written("t.jsonl", b"\n\n");
    assert!(message(&path, STRICT).contains("holds no transition"));
    let (_directory, path) = written("t.jsonl", b"{\"reward\": 1, \"terminated\": true}\n");
    assert!(message(&path, STRICT).contains("key state: missing"));
    // Anything may be left out that has a default, in the first line as well.
    let text = format!("{{\"state\": [5, 5], \"reward\": 0, \"terminated\": true}}\n{good}");
    let (_directory, path) = written("t.ndjson", text.as_bytes());
    assert_eq!(read(&path, STRICT).unwrap().rows().next_state(0), [5.0, 5.0]);
}

/// An array in the form of NumPy's `save`.
fn npy(descr: &str, fortran: bool, shape: &str, data: &[u8]) -> Vec<u8> {
    let order = if fortran { "True" } else { "False" };
    let mut header = format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}");
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}

fn zipped(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut writer = ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
        writer.start_file(*name, options).unwrap();
        writer.write_all(bytes).unwrap();
    }
    writer.finish().unwrap().into_inner()
}

fn npz(arrays: &[(&str, &str, &str, Vec<u8>)]) -> (tempfile::TempDir, PathBuf) {
    let entry = |(name, descr, shape, data): &(&str, &str, &str, Vec<u8>)| {
        (format!("{name}.npy"), npy(descr, false, shape, data))
    };
    let entries: Vec<(String, Vec<u8>)> = arrays.iter().map(entry).collect();
    let named: Vec<(&str, Vec<u8>)> = entries.iter().map(|(name, bytes)| (name.as_str(), bytes.clone())).collect();
    written("t.npz", &zipped(&named))
}

fn floats(values: &[f64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

#[test]
fn arrays_are_wrong_in_words() {
    let good = || {
        vec![
            ("states", "<f8", "(3, 2)", floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0])),
            ("next_states", "<f8", "(3, 2)", floats(&[2.0, 3.0, 4.0, 5.0, 6.0, 7.0])),
            ("rewards", "<f8", "(3,)", floats(&[1.0, 2.0, 3.0])),
            ("terminated", "|b1", "(3,)", vec![0, 0, 1]),
        ]
    };
    let (_directory, path) = npz(&good());
    assert_eq!(read(&path, STRICT).unwrap().rows().rewards, [1.0, 2.0, 3.0]);
    let replace = |name: &'static str, descr: &'static str, shape: &'static str, data: Vec<u8>| {
        let mut arrays = good();
        arrays.retain(|array| array.0 != name);
        arrays.push((name, descr, shape, data));
        npz(&arrays)
    };
    let nan = f64::NAN;
    for ((_directory, path), words) in [
        (replace("rewards", "<f8", "(3,)", floats(&[1.0, nan, 3.0])), "row 1, array rewards: NaN; only a row"),
        (
            replace("states", "<f8", "(3, 2)", floats(&[0.0, 1.0, 2.0, nan, 4.0, 5.0])),
            "row 1, array states[:, 1]: NaN is not a finite number",
        ),
        (
            replace("next_states", "<f8", "(3, 2)", floats(&[2.0, 3.0, 4.0, f64::INFINITY, 6.0, 7.0])),
            "row 1, array next_states[:, 1]: inf is not a finite number",
        ),
        (replace("rewards", "<f2", "(3,)", vec![0; 6]), "array rewards: numbers of type \"<f2\""),
        (replace("rewards", "|O", "(3,)", vec![0; 24]), "array rewards: holds Python objects"),
        (replace("rewards", "<f8", "(4,)", vec![0; 32]), "has 3 rows, there are 4 rewards"),
        (replace("rewards", "<f8", "(3, 1, 1)", vec![0; 24]), "array rewards: has shape [3, 1, 1]"),
        (replace("rewards", "<f8", "()", vec![0; 8]), "array rewards: has shape []"),
        (replace("rewards", "<f8", "(3,)", vec![0; 16]), "array rewards: ends after 16 of 24 bytes"),
        (replace("rewards", "<f8", "(3,)", vec![0; 25]), "array rewards: is longer than the 24 bytes"),
        (replace("terminated", "<f8", "(3,)", floats(&[0.0, 0.5, 1.0])), "row 1, array terminated: 0.5 is not a flag"),
        (replace("terminated", "|b1", "(3, 2)", vec![0; 6]), "array terminated: has shape [3, 2]"),
        (replace("discounts", "<f4", "(3,)", [0, 0, 0, 64].repeat(3)), "row 0, array discounts: a discount lies in"),
        (
            replace("behavior_probs", "<f8", "(3,)", floats(&[0.5, nan, 0.0])),
            "row 2, array behavior_probs: an action that was taken has a probability or density above 0, this one 0",
        ),
        (
            replace("target_probs", "<f8", "(3,)", floats(&[0.0, nan, -0.5])),
            "row 2, array target_probs: a probability or density is at least 0, this one is -0.5",
        ),
        (
            replace("next_actions", "<f8", "(3, 2)", floats(&[0.5, 1.0, nan, nan, 1.0, nan])),
            "row 2, array next_actions[:, 1]: NaN; a row has all of these numbers or none",
        ),
        (
            replace("next_action_probs", "<f8", "(3, 2)", floats(&[0.5, 0.5, nan, nan, 0.5, 0.25])),
            "row 2, array next_action_probs[:, 0]: the probabilities of a row sum to 1, these to 0.75",
        ),
        (
            replace("starts_chain", "<f8", "(3,)", floats(&[0.0, nan, 1.0])),
            "row 1, array starts_chain: NaN is not a flag",
        ),
        (replace("next_action", "<f8", "(3,)", vec![0; 24]), "array next_action: not known; call it next_actions"),
        (replace("seqs", "<i8", "(3,)", vec![0; 24]), "row 1, array seqs: must rise within a stream, 0 follows 0"),
        (replace("streams", "<U1", "(3,)", vec![0; 12]), "row 0, array streams: a stream's name has 1 to 256 bytes"),
        (replace("reward", "<f8", "(3,)", vec![0; 24]), "array reward: not known; call it rewards"),
        (replace("values", "<f8", "(3,)", vec![0; 24]), "array values: not known; put an underscore"),
        (replace("seqs", "<u8", "(3,)", [255; 24].to_vec()), "row 0, array seqs: 18446744073709551615 is too large"),
        (replace("next_states", "<f8", "(3, 1)", vec![0; 24]), "array next_states: states have 2 coordinates"),
        (npz(&[("rewards", "<f8", "(0,)", vec![])]), "array states: missing"),
        (npz(&[("states", "<f8", "(0, 1)", vec![])]), "array rewards: missing"),
        (written("t.npz", b"PK no archive"), "not an NPZ file that can be read"),
        (
            written("t.npz", &zipped(&[("rewards.npy", b"\x93NUMPX\x01\x00".to_vec())])),
            "rewards: not an array of NumPy",
        ),
        (written("t.npz", &zipped(&[("rewards.npy", vec![0; 3])])), "array rewards: cannot be read"),
    ] {
        let said = message(&path, STRICT);
        assert!(said.contains(words), "{words}: {said}");
    }
    let ending = |ends: [[u8; 2]; 2], streams: Option<Vec<u8>>| {
        let [terminated, truncated] = ends.map(|flags| flags.to_vec());
        let mut arrays = vec![
            ("states", "<f8", "(3,)", floats(&[0.0, 1.0, 2.0])),
            ("rewards", "<f8", "(2,)", floats(&[0.0, 1.0])),
            ("terminated", "|b1", "(2,)", terminated),
            ("truncated", "|b1", "(2,)", truncated),
        ];
        arrays.extend(streams.map(|streams| ("streams", "<i8", "(2,)", streams)));
        npz(&arrays)
    };
    let (_directory, path) = ending([[0, 1], [0, 0]], Some(vec![0; 16]));
    assert_eq!(read(&path, STRICT).unwrap().rows().next_states, [1.0, 2.0]);
    let (_directory, path) = ending([[1, 0], [0, 0]], None);
    assert_eq!(read(&path, STRICT).unwrap().rows().terminated, [true, false], "nothing counts behind the first");
    let (_directory, path) = ending([[0, 0], [1, 0]], None);
    assert!(message(&path, STRICT).contains("row 0, array truncated: ends an episode, only the last row"));
    let streams: Vec<u8> = [1_i64, 2].iter().flat_map(|v| v.to_le_bytes()).collect();
    let (_directory, path) = ending([[0, 0], [0, 0]], Some(streams));
    assert!(message(&path, STRICT).contains("row 1, array streams: is another stream's"));
}

fn numbers(values: &[i64]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

/// Trajectories of 2, 1 and 3 steps as imitation saves them: one state more for each, and one flag for each.
#[test]
fn rollouts_have_one_state_more_for_each_trajectory() {
    let rollouts = |cuts: &[i64], ended: &[u8], states: usize| {
        let shape = |length: usize| &*Box::leak(format!("({length},)").into_boxed_str());
        let states: Vec<f64> = (0..states).map(|k| k as f64).collect();
        npz(&[
            ("obs", "<f8", shape(states.len()), floats(&states)),
            ("acts", "<i8", "(6,)", numbers(&[0, 1, 0, 1, 0, 1])),
            ("rews", "<f8", "(6,)", floats(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0])),
            ("infos", "|O", "(6,)", vec![0; 48]),
            ("terminal", "|b1", shape(ended.len()), ended.to_vec()),
            ("indices", "<i8", shape(cuts.len()), numbers(cuts)),
        ])
    };
    let done = |done| Reading { done: Some(done), ..STRICT };
    let (_directory, path) = rollouts(&[2, 3], &[1, 0, 1], 9);
    for (reading, ends) in [(done(Done::Terminated), [2, 0, 1]), (done(Done::Truncated), [0, 2, 1])] {
        let table = read(&path, reading).unwrap();
        assert_eq!(table.rows().states, [0.0, 1.0, 3.0, 5.0, 6.0, 7.0]);
        assert_eq!(table.rows().next_states, [1.0, 2.0, 4.0, 6.0, 7.0, 8.0]);
        assert_eq!((table.summary().episodes, table.summary().ends), (3, ends));
        assert_eq!(table.rows().starts_chain, [true, false, true, true, false, false]);
        assert_eq!((table.episodes(), table.told().len()), (&[0, 0, 1, 2, 2, 2][..], 0));
        let large = LargeTable::check(&path, reading, &mut |_| {}).unwrap();
        assert_eq!(large.rows(), 6);
    }
    // `terminal` is true of a time limit as well.
    assert!(message(&path, STRICT).contains("array terminal: says that an episode ended, not how; say it: --done"));
    let named = |columns: Columns| Table::read_as(&path, STRICT, &columns, &mut |_| {}).unwrap();
    let ended = Some("terminal".to_owned());
    let summed = named(Columns { reward: vec!["-rews".into()], terminated: ended.clone(), ..Columns::default() });
    assert_eq!((summed.rows().rewards[5], summed.summary().ends), (-6.0, [2, 0, 1]));
    assert_eq!(read_states(&path, &mut |_| {}).unwrap().0.len(), 9);
    let wrong = [
        (
            &[2, 3][..],
            &[1, 0, 1][..],
            8,
            "array obs: has 8 rows; indices divides 6 rows into 3 trajectories, which have one state more each: 9",
        ),
        (&[3, 2], &[1, 0, 1], 9, "array indices: 2 at place 1; the rows at which trajectories begin rise"),
        (
            &[2, 7],
            &[1, 0, 1],
            9,
            "array indices: 7 at place 1; the rows at which trajectories begin rise, and there are 6",
        ),
        (&[-1, 2], &[1, 0, 1], 9, "array indices: "),
        (
            &[2, 3],
            &[1, 0],
            9,
            "array obs: has 9 rows, there are 6 rewards; they must agree, or there is one row more for each",
        ),
    ];
    for (cuts, ended, states, words) in wrong {
        let (_directory, path) = rollouts(cuts, ended, states);
        let said = message(&path, if ended.len() == 3 { done(Done::Terminated) } else { STRICT });
        assert!(said.contains(words), "{words}: {said}");
    }
    // Where rows themselves say where an episode ends.
    let (_directory, path) = npz(&[
        ("states", "<f8", "(8,)", floats(&[0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0])),
        ("rewards", "<f8", "(6,)", floats(&[1.0; 6])),
        ("terminated", "|b1", "(6,)", vec![0, 1, 0, 0, 0, 0]),
    ]);
    let table = read(&path, STRICT).unwrap();
    assert_eq!(table.rows().next_states, [1.0, 2.0, 4.0, 5.0, 6.0, 7.0]);
    assert_eq!((&table.rows().states[2..], table.summary().ends), (&[3.0, 4.0, 5.0, 6.0][..], [1, 0, 1]));
}

#[test]
fn claims_cost_nothing() {
    let claim = |shape: &str| npy("<f8", false, shape, &[0; 64]);
    for (shape, words) in [
        ("(1000000000000, 2)", "more than a file of this size"),
        ("(18446744073709551615, 18446744073709551615)", "more than a file of this size"),
        ("(99999999999999999999999, 2)", "has a header that cannot be read"),
        ("(1000000,)", "ends after 64 of 8000000 bytes"),
    ] {
        let (_directory, path) = written("t.npz", &zipped(&[("rewards.npy", claim(shape))]));
        let said = message(&path, STRICT);
        assert!(said.contains(words), "{shape}: {said}");
    }
    // A few kilobytes that unpack to sixteen times a hundred megabytes, if somebody let them.
    let bomb = npy("|b1", false, "(100000000,)", &vec![0; 1 << 20]);
    // Nor do the names of the numbers in a row.
    for (shape, words) in [
        ("(8589934592, 8589934592)", "array states: its rows have 8589934592 numbers, more than the 1048576"),
        ("(1, 18446744073709551615)", "array states: its rows have 18446744073709551615 numbers"),
        ("(1, 1048577)", "array states: its rows have 1048577 numbers"),
        ("(1, 1048576)", "array states: ends after 64 of 8388608 bytes"),
    ] {
        let (_directory, path) = written("t.npz", &zipped(&[("states.npy", claim(shape))]));
        let said = message(&path, STRICT);
        assert!(said.contains(words), "{shape}: {said}");
        assert!(read_states(&path, &mut |_| {}).is_err(), "{shape}");
    }
    let names: Vec<String> = (0..16).map(|k| format!("_{k}.npy")).collect();
    let entries: Vec<(&str, Vec<u8>)> = names.iter().map(|name| (name.as_str(), bomb.clone())).collect();
    let (_directory, path) = written("t.npz", &zipped(&entries));
    assert!(message(&path, STRICT).contains("array states: missing"), "what is skipped is not unpacked");
    let names = ["terminated", "truncated", "states"].map(|name| format!("{name}.npy"));
    let entries: Vec<(&str, Vec<u8>)> = names.iter().map(|name| (name.as_str(), bomb.clone())).collect();
    let (_directory, path) = written("t.npz", &zipped(&entries));
    assert!(message(&path, STRICT).contains("array terminated: ends after 1048576 of 100000000 bytes"));
    if cfg!(feature = "hdf5") {
        // No array is unpacked before there is room for all that are needed.
        for (name, words) in [
            ("huge.hdf5", "array observations: shape [1000000000000, 2] is more than"),
            ("huge_later.hdf5", "array rewards: shape [1000000000000] is more than"),
        ] {
            let said = message(&fixture(name), STRICT);
            assert!(said.contains(words), "{name}: {said}");
        }
    }
}

#[cfg(feature = "hdf5")]
#[test]
fn published_datasets_are_wrong_in_words() {
    for (name, reading, words) in [
        ("dict_space.hdf5", STRICT, "array episode_0/observations: a Dict or Tuple space"),
        ("d4rl_no_ends.hdf5", STRICT, "array terminals or terminations: missing"),
        ("d4rl_no_timeouts.hdf5", STRICT, "array timeouts: missing, and so is next_observations"),
    ] {
        let said = message(&fixture(name), reading);
        assert!(said.contains(words), "{name}: {said}");
    }
    let ends = |reading| read(&fixture("d4rl_no_ends.hdf5"), reading).unwrap().into_rows().terminated;
    let last: Vec<usize> = ends(LAST).iter().enumerate().filter(|(_, end)| **end).map(|(i, _)| i).collect();
    assert_eq!((ends(NEVER).contains(&true), last), (false, vec![5, 10, 14]));
    let (_directory, path) = written("t.h5", b"\x89HDF\r\n\x1a\n");
    assert!(message(&path, STRICT).contains("not an HDF5 file that can be read"));
}

#[cfg(not(feature = "parquet"))]
#[test]
fn formats_that_were_not_built_say_how_to_build_them() {
    assert!(message(&fixture("full.parquet"), STRICT).contains("--features parquet"));
}

#[cfg(feature = "parquet")]
#[test]
fn columns_of_parquet_are_wrong_in_words() {
    let (_directory, path) = written("t.parquet", b"PAR1 and no more PAR1");
    assert!(message(&path, STRICT).contains("not a Parquet file that can be read"));
    for (name, words) in [
        (
            "gzip",
            ": compressed with gzip, which this program cannot read; write it with snappy or zstd: pandas.read_parquet(",
        ),
        ("brotli", ": compressed with brotli, which"),
        ("lz4", ": compressed with lz4"),
        ("half", ", column state_0: holds 16-bit floats; write doubles, integers, flags or texts"),
        ("decimal", ", column reward: holds decimals; write doubles"),
    ] {
        let said = message(&fixture(&format!("other_{name}.parquet")), STRICT);
        assert!(said.contains(words), "{name}: {said}");
    }
    let unsigned = read(&fixture("other_unsigned.parquet"), STRICT).unwrap();
    assert_eq!((unsigned.actions(), unsigned.seq(0)), (Some(&[3e9, 7.0][..]), 1 << 63));
}

#[test]
fn damaged_files_are_faults_and_nothing_worse() {
    let mut random = ChaCha8Rng::seed_from_u64(11);
    let directory = tempfile::tempdir().unwrap();
    for (csv, others) in twins() {
        for name in std::iter::once(csv).chain(others) {
            let whole = std::fs::read(fixture(name)).unwrap();
            let expected = read(&fixture(name), STRICT).unwrap();
            let path = directory.path().join(name);
            let text = name.ends_with(".csv") || name.ends_with(".jsonl");
            let (mut refused, mut damaged) = (0, 0);
            for _ in 0..60 {
                let length = random.random_range(0..whole.len());
                std::fs::write(&path, &whole[..length]).unwrap();
                let found = read(&path, STRICT);
                // What is missing may not matter: a last line end, space after the last array.
                let whole = found.is_ok_and(|found| same(&found, &expected));
                let refused = read(&path, STRICT).is_err();
                assert!(text || whole || refused, "{name} cut to {length} bytes is something else");
            }
            for _ in 0..200 {
                let mut bytes = whole.clone();
                for _ in 0..random.random_range(1..4) {
                    let at = random.random_range(0..bytes.len());
                    bytes[at] ^= 1 << random.random_range(0..8);
                }
                std::fs::write(&path, &bytes).unwrap();
                match read(&path, STRICT) {
                    Ok(table) => assert_eq!(table.dim(), expected.dim(), "{name}"),
                    Err(e) => {
                        refused += 1;
                        damaged += u32::from(e.to_string().ends_with("file is damaged"));
                    }
                }
            }
            println!("{name}: {refused} of 200 refused, {damaged} of them after a panic of the library");
            assert!(refused > 0, "{name}: no damage was noticed");
        }
    }
}

#[test]
fn rows_without_a_policy_are_of_the_one_before() {
    let text = "state_0,next_state_0,reward,terminated,policy\n0,1,0,0,\n1,2,0,0,b\n2,3,0,0,\n3,4,0,0,a\n4,5,0,1,\n";
    let (_directory, path) = written("t.csv", text.as_bytes());
    let table = read(&path, STRICT).unwrap();
    let names: Vec<&str> = table.policy_of_rows().into_iter().map(|number| &*table.policies()[number]).collect();
    assert_eq!(names, ["b", "b", "b", "a", "a"], "before the first name, that one");
    let told: Vec<(usize, Option<String>)> =
        table.batches("", 9).map(|batch| (batch.len(), batch.policy().map(str::to_owned))).collect();
    let some = |name: &str| Some(name.to_owned());
    assert_eq!(told, [(1, None), (1, some("b")), (1, None), (1, some("a")), (1, None)], "as the file has it");
    assert!(read(&fixture("full.csv"), STRICT).unwrap().policy_of_rows().is_empty());
    let long = text.replace(",b\n", &format!(",{}\n", "b".repeat(257)));
    let (_directory, path) = written("t.csv", long.as_bytes());
    assert!(message(&path, STRICT).contains("line 3, column policy: a policy's name has 1 to 256 bytes"));
}

/// What is said of a CSV file, by `fit` and by whoever reads states alone.
fn of_csv(bytes: &[u8]) -> [String; 2] {
    let (_directory, path) = written("t.csv", bytes);
    let said = |found: Result<(), TableError>| found.err().map_or("read".to_owned(), |e| e.to_string());
    [said(read(&path, STRICT).map(drop)), said(read_states(&path, &mut |_| {}).map(drop))]
}

#[test]
fn texts_are_read_as_spreadsheets_of_other_lands_write_them() {
    let utf16 = |text: &str, big: bool, mark: bool| -> Vec<u8> {
        let marked = if mark { format!("\u{feff}{text}") } else { text.to_owned() };
        let bytes = |unit: u16| if big { unit.to_be_bytes() } else { unit.to_le_bytes() };
        marked.encode_utf16().flat_map(bytes).collect()
    };
    let text = "state_0,reward,terminated\n0.5,1,0\n0.25,1,1\n";
    let with = |separator: &str, decimal: &str| text.replace(',', separator).replace('.', decimal).into_bytes();
    let (_directory, path) = written("t.csv", text.as_bytes());
    let expected = read(&path, STRICT).unwrap();
    for (bytes, told) in [
        (utf16(text, false, true), "the text is in UTF-16LE"),
        (utf16(text, true, true), "the text is in UTF-16BE"),
        (utf16(text, false, false), "the text is in UTF-16LE"),
        (utf16(text, true, false), "the text is in UTF-16BE"),
        (utf16(&text.replace(',', "\t"), false, true), "the text is in UTF-16LE, columns are separated by tabs"),
        (with(";", ","), "columns are separated by semicolons, decimals have commas"),
        (with(";", "."), "columns are separated by semicolons"),
        (
            [b"\xef\xbb\xbf".to_vec(), with(";", ",")].concat(),
            "columns are separated by semicolons, decimals have commas",
        ),
        (with("\t", "."), "columns are separated by tabs"),
        (with("|", "."), "columns are separated by bars"),
        (with("  ", "."), "columns are separated by blanks"),
        ([b"sep=;\r\n".to_vec(), with(";", ",")].concat(), "columns are separated by semicolons, decimals have commas"),
        ([b"sep=,\n", text.as_bytes()].concat(), ""),
        (b"state_0,reward,terminated,_h\xf6he\n0.5,1,0,1\n0.25,1,1,1\n".to_vec(), "the text is in windows-1252"),
        (b"state_0,reward,terminated,_note\n0.5,1,0,a\n0.25,1,1,h\xf6he\n".to_vec(), "the text is in windows-1252"),
    ] {
        for name in ["t.csv", "t.tsv", "t.txt"] {
            let (_directory, path) = written(name, &bytes);
            let found = read(&path, STRICT).unwrap_or_else(|e| panic!("{told}: {e}"));
            assert!(same(&expected, &found), "{told}");
            let said = found.told().join("");
            assert_eq!(said.strip_prefix("written in another way: ").unwrap_or_default(), told);
        }
    }
    // Where rows are in the file, its own first line counts.
    let wrong = [b"sep=;\n".to_vec(), with(";", ",").into_iter().collect(), b"high;1;0\n".to_vec()].concat();
    assert!(of_csv(&wrong)[0].contains(", line 5, column state_0: \"high\" is not a number"), "{:?}", of_csv(&wrong));
}

#[test]
fn points_beside_decimal_commas_are_thousands_or_refused() {
    let of = |cell: &str| format!("state_0;reward;terminated\n{cell};1;0\n0,25;1;1\n");
    let states = |cell: &str| {
        let (_directory, path) = written("t.csv", of(cell).as_bytes());
        read(&path, STRICT).map(|table| table.rows().states[0]).map_err(|e| e.to_string())
    };
    assert_eq!(states("1.234,5"), Ok(1234.5));
    assert_eq!(states("-1.234.567,5"), Ok(-1_234_567.5));
    assert_eq!(states("1,234"), Ok(1.234));
    assert_eq!(states("1e3"), Ok(1000.0));
    let said = states("1.234").unwrap_err();
    assert!(
        said.contains("line 2, column state_0: decimals have commas in this file: is 1.234 meant to be 1234 or 1,234?"),
        "{said}"
    );
    assert!(states("1,2,3").unwrap_err().contains("is not a number"));
    // A file whose decimals have points has no decimal commas.
    assert!(states("0.5").unwrap_err().contains("\"0,25\" is not a number"));
}

#[test]
fn text_that_is_no_csv_says_what_it_is_and_how_to_make_one() {
    for (bytes, words) in [
        (
            b"0.5,1,0\n0.25,1,1\n".to_vec(),
            "no header: the first line holds numbers only, or flags and times beside them. Put a line before it that names",
        ),
        (b"0.5,2024-10-27T02:00:00,True\n0.25,2024-10-27T02:00:01,False\n".to_vec(), "no header: "),
        (b"\x1f\x8b\x08\0".to_vec(), "no table, but compressed with gzip; unpack it: gunzip"),
        (b"\n<!DOCTYPE html>\n<HTML>".to_vec(), "no table, but a page of HTML; in Python: pandas.read_html"),
        (
            b"\xef\xbb\xbf<?xml version=\"1.0\"?>".to_vec(),
            "no table, but XML; in Python, with the name of the elements",
        ),
        (b"PK\x03\x04\x14\0".to_vec(), "no table, but a zip archive, such as a spreadsheet; save it as"),
        (b"PAR1\x15\0".to_vec(), "no table, but a Parquet file; its name must end in .parquet"),
    ] {
        for said in of_csv(&bytes) {
            assert!(said.contains(words), "{words}: {said}");
        }
    }
    // What is in another encoding further down than is looked at.
    let rows = "0,1,0,a\n".repeat(10_000);
    let later = [b"state_0,reward,terminated,_note\n", rows.as_bytes(), b"1,1,1,h\xf6he\n"].concat();
    assert!(of_csv(&later)[0].contains(", line 10002: not UTF-8; if it is in the encoding of Western Windows"));
    // Whoever names columns by numbers has a header.
    let (_directory, path) = written("t.csv", b"0,1,2\n5,1,0\n6,1,1\n");
    let named = |name: &str| vec![name.to_owned()];
    let columns = Columns { state: named("0"), reward: named("1"), terminated: Some("2".into()), ..Columns::default() };
    assert_eq!(Table::read_as(&path, STRICT, &columns, &mut |_| {}).unwrap().rows().states, [5.0, 6.0]);
}

#[test]
fn what_numpy_and_pandas_write_is_csv() {
    let expected = "state_0,reward,terminated\n0.5,1,0\n0.25,1,1\n";
    let (_directory, path) = written("t.csv", expected.as_bytes());
    let expected = read(&path, STRICT).unwrap();
    for text in [
        "state_0,reward,terminated\n0.5,1,0.0\n0.25,1,1.0\n",
        "# state_0,reward,terminated\n5.0e-01,1.0e+00,0.00000000e+00\n2.5e-01,1.0e+00,1.00000000e+00\n",
        "state_0,reward,terminated\r\n0.5,1,0\r\n   \r\n0.25,1,1",
        "\u{feff}# state_0,reward,terminated\n0.5,1,false\n0.25,1,True\n",
    ] {
        let (_directory, path) = written("t.csv", text.as_bytes());
        let found = read(&path, STRICT).unwrap_or_else(|e| panic!("{text}: {e}"));
        assert!(same(&expected, &found), "{text}");
    }
    for flag in ["0.5", "2", "2.0", "-1", "nan", "noo", "1.0.0"] {
        let said = of_csv(format!("state_0,reward,terminated\n0,1,{flag}\n").as_bytes())[0].clone();
        assert!(
            said.contains(&format!("line 2, column terminated: {flag:?} is not a flag; write true, false, 1 or 0")),
            "{said}"
        );
    }
}

#[test]
fn a_log_that_was_cut_off_says_so() {
    let sound = "state_0,state_1,reward,terminated\n0,1,1,0\n1,1,1,0\n";
    for (end, words) in [
        // What breaks off is left out; a line that ends is not.
        ("2,1", "read"),
        ("2,1,1,0\0\0\0\0", "read"),
        ("\0\0\0\0\0\0", "read"),
        ("2,1\n", ", line 4: cut off: it is the last line, and has 2 of 4 cells; delete it"),
        (
            "2,1\n3,1,1,0\n",
            ", line 4: has 2 cells, the first line has 4; a text with a separator in it must stand in quotes",
        ),
        ("2,1,0,5,1,0\n", ", line 4: has 6 cells, the first line has 4"),
        ("2,1,\0\0,0\n", ", line 4: holds zero bytes, as files do whose writer was cut off; take them out: tr -d"),
    ] {
        let said = &of_csv(format!("{sound}{end}").as_bytes())[0];
        assert!(said.contains(words), "{end:?}: {said}");
    }
}

#[test]
fn states_and_actions_may_be_flags_as_in_python() {
    let lines = "{\"state\": [true, 0.5], \"action\": false, \"reward\": 1}\n\
                 {\"state\": [false, 1], \"action\": true, \"reward\": 1, \"terminated\": true}\n";
    let arrays: &[(&str, &str, &str, Vec<u8>)] = &[
        ("states", "|b1", "(2, 1)", vec![1, 0]),
        ("actions", "|b1", "(2,)", vec![0, 1]),
        ("rewards", "<f8", "(2,)", floats(&[1.0, 1.0])),
        ("terminated", "<u8", "(2,)", [0_u64, 1].iter().flat_map(|v| v.to_le_bytes()).collect()),
    ];
    for ((_directory, path), states) in
        [(written("t.jsonl", lines.as_bytes()), vec![1.0, 0.5, 0.0, 1.0]), (npz(arrays), vec![1.0, 0.0])]
    {
        let table = read(&path, STRICT).unwrap();
        assert_eq!((&table.rows().states, table.actions()), (&states, Some(&[0.0, 1.0][..])));
    }
}
