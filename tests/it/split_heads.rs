//! Heads of a running daemon that get a kernel of their own: how they are served, that refits part and merge them, and that a crash
//! anywhere changes no bit.

use crate::support::harness::{Harness, NOW, assert_close, config, mean_and_variance};
use criticd::daemon::core::{Now, Output};
use criticd::learner::heads::Head;
use criticd::snapshot::{Ask, Snapshot};
use criticd::transition::{Batch, BatchParts};
use criticd::wire::{self, ArrayForm, Op};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Columns of rewards; those of 2, 4 and 5 may change fast with the state.
const COLUMNS: usize = 6;
const ROUGH: [usize; 3] = [2, 4, 5];
const STATES: [f64; 8] = [0.1, 0.2, -0.4, 0.3, 0.7, -0.6, -0.9, -0.05];

fn settings(more: &str) -> String {
    let heads: Vec<String> = (1..COLUMNS).map(|k| toml::Value::try_from(head(k, 0)).unwrap().to_string()).collect();
    format!(
        "{more}window_rows = 600\n[[critic]]\nname = \"main\"\ndiscount = 0.2\nrewards = [0]\nkernel = \"isotropic\"\nevidence_rows = 150\nkernel_profile = \"gaussian\"\n\
         search_starts = 1\nwarmup_rows = 32\nrefit_first_rows = 0\ndictionary_max = 90\nbackfill_rows = 60\nrefresh_rows = 32\n\
         drift_sensitivity = \"off\"\nheads = [{}]\n",
        heads.join(", ")
    )
}

fn head(k: usize, number: usize) -> Value {
    let name = if number == 0 { format!("h{k}") } else { format!("late{number}") };
    json!({"name": name, "cumulant": {"kind": "reward", "index": k}, "discount": 0.2})
}

/// Rows of a walk of two variables in pieces of 50. With `rough` some rewards change fast with the state.
struct World {
    rng: ChaCha8Rng,
    at: [f64; 2],
    seq: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed), at: [0.0; 2], seq: 0 }
    }

    fn rows(&mut self, rough: bool) -> Batch {
        let n = 50;
        let (mut states, mut rewards) = (Vec::new(), Vec::new());
        for _ in 0..n {
            let [x, y] = self.at;
            states.extend(self.at);
            for k in 0..COLUMNS {
                let phase = k as f64;
                let clean = if rough && ROUGH.contains(&k) {
                    (6.0 * x + phase).sin() * (5.0 * y - phase).cos()
                } else {
                    (x + 0.6 * y + phase).sin()
                };
                rewards.push(clean + 0.1 * (self.rng.random::<f64>() - 0.5));
            }
            self.at = self.at.map(|x| {
                let to = x + 0.8 * (self.rng.random::<f64>() - 0.5);
                if to.abs() > 1.0 { x } else { to }
            });
        }
        states.extend(self.at);
        let (stream, session, seq) = ("two".to_owned(), "run".to_owned(), Some(self.seq));
        self.seq += n;
        let parts = BatchParts {
            stream,
            session,
            seq,
            dim: 2,
            rewards_per_row: COLUMNS,
            states,
            rewards,
            ..BatchParts::default()
        };
        Batch::new(parts).unwrap()
    }

    fn teach(&mut self, harness: &mut Harness, pieces: usize, rough: bool) {
        for _ in 0..pieces {
            harness.ingest(&self.rows(rough));
            harness.turn();
        }
    }
}

fn refit(harness: &mut Harness) {
    harness.ask(Op::Refit { critic: None, wait: false });
    for _ in 0..3 {
        harness.turn();
    }
}

/// Names of the heads that have a kernel of their own.
fn apart(harness: &Harness) -> BTreeSet<String> {
    let snapshot = harness.snapshot(0);
    snapshot.branch.iter().flat_map(|branch| branch.all_heads()).map(|head: &Head| head.name.clone()).collect()
}

fn rough_names() -> BTreeSet<String> {
    ROUGH.map(|k| format!("h{k}")).into()
}

#[test]
fn heads_with_a_kernel_of_their_own_are_listed_counted_and_answer() {
    let (mut harness, mut world) = (Harness::new(config(&settings(""))), World::new(3));
    world.teach(&mut harness, 14, true);
    refit(&mut harness);
    assert_eq!(apart(&harness), rough_names());
    world.teach(&mut harness, 4, true);
    let snapshot = harness.snapshot(0);

    let listed = harness.ask(Op::Heads { critic: None, names: None, from: 0 })["heads"].clone();
    let of = |head: &Value| (head["name"].as_str().unwrap().to_owned(), head["apart"] == json!(true));
    let said: BTreeSet<(String, bool)> = listed.as_array().unwrap().iter().map(of).collect();
    let expected = (1..COLUMNS).map(|k| (format!("h{k}"), ROUGH.contains(&k)));
    assert_eq!(said, expected.collect());

    let status = harness.core.status(NOW);
    let heads = status.critics[0].heads.as_ref().unwrap();
    let found = heads.apart.as_ref().unwrap();
    let branch = snapshot.branch.as_ref().unwrap();
    assert_eq!((heads.count, heads.unsolved, found.count), (5, 0, 3));
    assert_eq!(found.dictionary_size, branch.dictionary.nrows() as u64);
    let last = status.critics[0].refit.last.as_ref().unwrap();
    let split = last.found.as_ref().unwrap().split.as_ref().unwrap();
    assert!(split.heads == 3 && split.gain >= 0.02, "{split:?}");
    let findings = &last.found.as_ref().unwrap().findings;
    assert!(findings.iter().any(|said| said.starts_with("3 heads have a kernel of their own")), "{findings:?}");

    // A model file has both kernels.
    let read = wire::decode_snapshot(&wire::encode_snapshot(&snapshot, ArrayForm::Tensor, true)).unwrap();
    let values = |of: &Snapshot| Snapshot { branch: None, ..of.clone() };
    assert!(values(&read) == values(&snapshot));
    let kernel =
        |of: &Snapshot| (of.hyperparameters.clone(), of.inputs.clone(), of.dictionary.clone(), of.heads.clone());
    assert!(kernel(read.branch.as_ref().unwrap()) == kernel(branch));
    // So has the value function of one head.
    for k in 1..COLUMNS {
        let name = format!("h{k}");
        let place = snapshot.position_of_head(&name).unwrap();
        let alone = snapshot.head_alone(place, true);
        let payload = wire::with_head(wire::encode_values(&alone, ArrayForm::Tensor, true), &name);
        let alone = wire::decode_snapshot(&payload).unwrap();
        let found = alone.evaluate(&STATES, Ask::VARIANCE).unwrap();
        let found: Vec<f64> = found.mean.iter().chain(found.variance.as_ref().unwrap()).copied().collect();
        assert_close(&name, &found, &mean_and_variance(&snapshot, &name, &STATES));
    }
}

#[test]
fn a_head_is_published_under_the_dictionary_that_it_has() {
    let quick = "snapshot_interval_ms = 1000\n";
    let (mut harness, mut world) = (Harness::new(config(&settings(quick))), World::new(4));
    world.teach(&mut harness, 14, true);
    refit(&mut harness);
    assert_eq!(apart(&harness), rough_names());
    let mut known = [None, None];
    let mut changed = 0;
    for piece in 0..12 {
        harness.ingest(&world.rows(true));
        let now = Now { uptime: 100.0 + 0.3 * f64::from(piece), ..NOW };
        let topics = ["h1", "h2"].map(|name| format!("head.main.{name}"));
        harness.core.heads_are_asked(topics.to_vec());
        harness.core.step(now);
        harness.core.refresh(now, &|| now);
        let outputs: Vec<Output> = harness.core.take_outputs().collect();
        for output in outputs {
            let Output::Publish(publication) = output else { continue };
            let Some(k) = topics.iter().position(|topic| *topic == publication.topic) else { continue };
            known[k] = Some(
                match wire::decode_weights(&publication.payload, known[k].as_ref().unwrap_or(&*harness.snapshot(0))) {
                    Ok(Some(after)) => {
                        changed += 1;
                        after
                    }
                    _ => wire::decode_snapshot(&publication.payload).unwrap(),
                },
            );
        }
        for (found, name) in known.iter().zip(["h1", "h2"]) {
            let found = found.as_ref().expect("a first publication is whole");
            let mean = found.evaluate(&STATES, Ask::MEAN).unwrap().mean;
            assert_close(name, mean.as_slice(), &mean_and_variance(&harness.snapshot(0), name, &STATES)[..4]);
        }
    }
    assert!(changed > 4, "{changed}");
}

#[test]
fn refits_part_and_merge_heads_and_crashes_change_no_bit() {
    let config = config(&settings("checkpoint_rows = 300\n"));
    let (mut harness, mut world, mut rng) =
        (Harness::new(Arc::clone(&config)), World::new(5), ChaCha8Rng::seed_from_u64(6));
    let (mut parted, mut merged, mut crashes, mut both) = (0, 0, 0, 0);
    let (mut added, mut number) = (Vec::new(), 0);
    for epoch in 0..4 {
        let rough = epoch % 2 == 0;
        // Refits look at the rows since alone, and both kernels begin again.
        let policy = Some(format!("policy {epoch}"));
        harness.ask(Op::NewPolicy { critic: None, policy });
        let before = if epoch == 0 { BTreeSet::new() } else { apart(&harness) };
        for piece in 0..20 {
            harness.ingest(&world.rows(rough));
            match rng.random_range(0..6) {
                0 => {
                    number += 1;
                    let new = head(1 + rng.random_range(0..COLUMNS - 1), number);
                    added.push(new["name"].as_str().unwrap().to_owned());
                    assert_eq!(harness.change(&[new], &[])["ok"], true);
                }
                1 if !added.is_empty() => {
                    let gone = added.swap_remove(rng.random_range(0..added.len()));
                    assert_eq!(harness.change(&[], &[gone])["ok"], true);
                }
                2 => {
                    harness.work();
                }
                3 => {
                    harness.checkpoint();
                }
                _ => {}
            }
            harness.turn();
            if piece == 19 {
                refit(&mut harness);
            }
            if piece == 19 || rng.random_range(0..4) == 0 {
                let state = harness.state();
                harness.crash();
                crashes += 1;
                both += usize::from(!apart(&harness).is_empty());
                assert!(harness.state() == state, "crash {crashes} at row {}", harness.core.offset());
            }
        }
        let after = apart(&harness);
        parted += usize::from(before.is_empty() && !after.is_empty());
        merged += usize::from(!before.is_empty() && after.is_empty());
        let said = &harness.core.status(NOW).critics[0].refit.last;
        assert_eq!(after.is_empty(), !rough, "epoch {epoch}: {after:?} {said:?}");
    }
    assert!((parted, merged) == (2, 2) && crashes > 10 && both > 4, "{parted} {merged} {crashes} {both}");
    while harness.work() {}
    let snapshot = harness.snapshot(0);
    let names: BTreeSet<&str> = snapshot.all_heads().map(|head| head.name.as_str()).collect();
    assert_eq!(names.len(), COLUMNS - 1 + added.len());
    assert!(added.iter().all(|name| names.contains(name.as_str())));
}
