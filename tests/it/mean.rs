//! Mean functions of a daemon and of commands: what a MODEL file said is recorded, and values are about it.

use crate::support::harness::{Harness, Ways};
use crate::support::program::Bench;
use criticd::config::{Config, Options};
use criticd::journal::memory::{MemoryCheckpoints, MemoryStorage};
use criticd::snapshot::Ask;
use criticd::transition::{Batch, BatchParts};
use criticd::wire::{self, ArrayForm, Op};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

fn spread(k: usize) -> f64 {
    (k as f64 * 0.618_033_988_749_895).fract() - 0.5
}

/// A walk on a line, whose rewards are `scale` times what they are in the real world.
fn table(rows: usize, scale: f64) -> String {
    let (mut out, mut x) = (String::from("state_0,reward,next_state_0,truncated,episode\n"), 0.0);
    for i in 0..rows {
        if i % 20 == 0 {
            x = 3.0 * spread(3 * i + 1);
        }
        let after = 0.8 * x + 0.4 * spread(7 * i);
        let cut = usize::from(i % 20 == 19);
        writeln!(out, "{x},{},{after},{cut},{}", scale * (1.0 + (2.0 * x).sin()), i / 20).unwrap();
        x = after;
    }
    out
}

/// The settings in a file, read as a daemon reads them that starts.
fn read(path: &Path) -> Arc<Config> {
    let options = Options { config: Some(path.to_owned()), ..Options::default() };
    Arc::new(Config::load_in(&|_| None, &options).unwrap_or_else(|e| panic!("{e}")).0)
}

fn batches() -> Vec<Batch> {
    let number = |text: &str| text.parse::<f64>().unwrap();
    let rows: Vec<Vec<f64>> =
        table(400, 1.0).lines().skip(1).map(|line| line.split(',').map(number).collect()).collect();
    let column = |part: &[Vec<f64>], k: usize| part.iter().map(|row| row[k]).collect::<Vec<f64>>();
    let batch = |part: &[Vec<f64>]| {
        Batch::new(BatchParts {
            stream: "line".into(),
            dim: 1,
            rewards_per_row: 1,
            states: column(part, 0),
            rewards: column(part, 1),
            next_states: Some(column(part, 2)),
            truncated: Some(column(part, 3).iter().map(|cut| *cut > 0.0).collect()),
            ..BatchParts::default()
        })
        .unwrap()
    };
    rows.chunks(25).map(batch).collect()
}

/// A bench with a model of a simulator whose rewards are a tenth too small.
fn bench() -> Bench {
    let bench = Bench::new();
    bench.file("sim.csv", &table(2000, 0.9));
    bench.text("fit sim.csv --discount 0.9 --budget 5 --hold-out 0 --out sim.model");
    bench
}

#[test]
fn a_journal_knows_the_mean_without_its_file() {
    let bench = bench();
    let file = bench.path("sim.model");
    let settings = |more: &str| {
        let path = file.display().to_string();
        let text = format!(
            "[[critic]]\nname = \"main\"\ndiscount = 0.9\nmean = {path:?}\ndictionary_max = 30\nrefit_first_rows = 0\n{more}"
        );
        bench.file("criticd.toml", &text);
        bench.path("criticd.toml")
    };
    let first = read(&settings(""));
    let mean = first.critics[0].mean.clone().unwrap();
    let mut harness = Harness::new(Arc::clone(&first));
    let all = batches();
    harness.learn(&all[..8]);
    harness.call(Op::Refit { critic: None, wait: false });
    (0..4).for_each(|_| harness.turn());
    assert_eq!(harness.snapshot(0).generation, 2, "adopted");
    harness.checkpoint();
    harness.learn(&all[8..]);
    let (state, said) = (harness.state(), harness.snapshot(0));
    assert_eq!(said.mean.as_deref().map(|mean| mean.dictionary.nrows() > 0), Some(true));
    let far = said.evaluate(&[50.0], Ask::MEAN).unwrap().mean[0];
    assert!((far - mean.values(&[50.0], 1)[0]).abs() < 1e-3, "{far}");

    let model = std::fs::read(&file).unwrap();
    std::fs::remove_file(&file).unwrap();
    // From the checkpoint and the groups behind it, and from the journal alone.
    harness.restart_with(read(&settings("")));
    assert!(harness.state() == state, "from the checkpoint");
    assert_eq!(harness.snapshot(0).weights, said.weights);
    let mut alone = Harness::on(
        read(&settings("")),
        Arc::clone(&harness.disk),
        Arc::new(MemoryCheckpoints::default()),
        Ways::STILL,
    );
    alone.turn();
    assert!(alone.state() == state, "from the journal");
    // Whoever never knew it cannot start.
    let refused = Harness::open(
        read(&settings("")),
        MemoryStorage::default(),
        Arc::new(MemoryCheckpoints::default()),
        Ways::STILL,
    );
    let why = refused.err().expect("refused").to_string();
    assert!(why.contains("`critic.mean`") && why.contains("put the file there"), "{why}");
    // Another content is another setting: the critic begins again.
    let mut other = wire::decode_snapshot(&model).unwrap();
    other.level = vec![5.0];
    std::fs::write(&file, wire::encode_snapshot(&other, ArrayForm::Tensor, false)).unwrap();
    harness.restart_with(read(&settings("")));
    let moved = harness.snapshot(0).evaluate(&[50.0], Ask::MEAN).unwrap().mean[0];
    assert!((moved - 5.0).abs() < 0.1, "{moved}");
}

#[test]
fn a_table_is_learned_about_the_values_of_a_simulator() {
    let bench = bench();
    bench.file("real.csv", &table(120, 1.0));
    bench.file("places.csv", "state_0\n-1.2\n-0.6\n0.0\n0.6\n1.2\n40\n");
    let fit = "fit real.csv --discount 0.9 --budget 5";
    let json = bench.json(&format!("{fit} --mean sim.model --out real.model"));
    assert_eq!(json["mean"], "sim.model");
    let values = |model: &str| {
        let means = bench.json(&format!("value {model} places.csv"))["mean"].clone();
        means.as_array().unwrap().iter().map(|mean| mean.as_f64().unwrap()).collect::<Vec<f64>>()
    };
    let (sim, real) = (values("sim.model"), values("real.model"));
    assert!((sim[2] - real[2]).abs() > 0.2, "{sim:?} {real:?}");
    assert!((sim[5] - real[5]).abs() < 1e-3, "far from all rows: {sim:?} {real:?}");
    bench.text(&format!("{fit} --mean -3.5 --hold-out 0 --out constant.model"));
    assert!((values("constant.model")[5] + 3.5).abs() < 1e-3);
    let found = bench.text("inspect real.model");
    assert!(found.contains("mean"), "{found}");
    // What a network says of states, as a table of them has it.
    let labels: String = (0..60)
        .map(|k| 3.0 * spread(k))
        .fold(String::from("state_0,said\n"), |text, x| format!("{text}{x},{}\n", 10.0 + x));
    bench.file("labels.csv", &labels);
    bench.text("fit labels.csv --state state_0 --target said --budget 5 --out network.model");
    bench.text(&format!("{fit} --mean network.model --hold-out 0 --out about.model"));
    for (arguments, words) in [
        ("--mean nan", "from -1e9"),
        ("--mean gone.model", "gone.model"),
        ("--mean {weights=[1,2]}", "1 state variables, --mean is of 2"),
        ("--mean 1 --noise white", "correlated"),
        ("--mean 1 --inputs state_action", "--prior-mean"),
    ] {
        let (_, why) = bench.failure(&format!("fit real.csv {arguments} --out none.model"));
        assert!(why.contains(words), "{arguments}: {why}");
    }
}
