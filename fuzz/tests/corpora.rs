//! The fuzz targets without instrumentation: every file of the corpora, and changes of these from a fixed seed.
//!
//! CRITICD_FUZZ=100000 makes as many changes for each target instead of the default. Coverage-guided runs: `fuzz/run.sh`.

use criticd_fuzz::{checkpoint, gate, journal, wire};
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

/// Memory is counted for the whole process: one target at a time.
static TURN: Mutex<()> = Mutex::new(());

fn corpus(target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

/// Some of what libFuzzer does: bytes changed, put in, taken out and repeated, and two inputs joined.
fn change(bytes: &mut Vec<u8>, other: &[u8], rng: &mut ChaCha8Rng) {
    const TELLING: [u8; 10] = [0, 1, 0x7f, 0x80, 0xff, 0xc0, 0xcb, 0x90, 0xdd, 0xdf];
    let at = rng.random_range(0..=bytes.len());
    let len = rng.random_range(0..=(bytes.len() - at).min(16));
    match rng.random_range(0..7) {
        0 if at < bytes.len() => bytes[at] ^= 1 << rng.random_range(0..8),
        1 if at < bytes.len() => bytes[at] = TELLING[rng.random_range(0..TELLING.len())],
        2 => bytes.insert(at, rng.random()),
        3 => drop(bytes.drain(at..at + len)),
        4 => {
            let piece = bytes[at..at + len].to_vec();
            drop(bytes.splice(at..at, piece));
        }
        5 => {
            let from = rng.random_range(0..=other.len());
            bytes.truncate(at);
            bytes.extend_from_slice(&other[from..]);
        }
        _ => bytes.truncate(at),
    }
}

fn run(name: &str, target: impl Fn(&[u8]), changes: usize) {
    let _turn = TURN.lock();
    let corpus = corpus(name);
    for (path, bytes) in &corpus {
        let outcome = catch_unwind(AssertUnwindSafe(|| target(bytes)));
        assert!(outcome.is_ok(), "{}", path.display());
    }
    let changes = std::env::var("CRITICD_FUZZ").map_or(changes, |text| text.parse().unwrap());
    let mut rng = ChaCha8Rng::seed_from_u64(0);
    for number in 0..changes {
        let mut bytes = corpus[rng.random_range(0..corpus.len())].1.clone();
        let other = &corpus[rng.random_range(0..corpus.len())].1;
        for _ in 0..rng.random_range(1..5) {
            change(&mut bytes, other, &mut rng);
        }
        if catch_unwind(AssertUnwindSafe(|| target(&bytes))).is_err() {
            let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}-{number}"));
            fs::write(&path, &bytes).unwrap();
            panic!("change {number}: {}", path.display());
        }
    }
}

#[test]
fn any_message_is_understood_or_refused() {
    run("wire", wire, 100_000);
}

#[test]
fn the_gate_reads_the_same_however_it_is_cut() {
    run("gate", gate, 100_000);
}

#[test]
fn any_journal_is_taken_whole_or_refused() {
    run("journal", journal, 10_000);
}

#[test]
fn any_checkpoint_is_of_use_or_passed_over() {
    run("checkpoint", checkpoint, 10_000);
}
