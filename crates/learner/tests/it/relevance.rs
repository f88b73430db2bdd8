//! Among twenty state variables the two that matter are found, and the values are those of a model told only of them.

use criticd_learner::refit::{self, RefitReport, Verdict};
use criticd_learner::snapshot::{Ask, Snapshot};
use criticd_learner::transition::{Batch, BatchParts};
use criticd_learner::window::Window;
use criticd_learner::{KernelKind, Learner, Settings};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const DIM: usize = 20;
const ROWS: usize = 20_000;
const EPISODE: usize = 100;
const DISCOUNT: f64 = 0.9;
/// x' = memory x + noise.
const MEMORY: [f64; 2] = [0.9, 0.8];
const KICK: f64 = 0.3;
const FREQUENCY: [f64; 2] = [1.5, 2.0];
/// The places of the two that matter, and of the copy of the first of them.
const FIRST: usize = 4;
const SECOND: usize = 11;
const COPY: usize = 17;

fn normal(rng: &mut ChaCha8Rng) -> f64 {
    (0..12).map(|_| rng.random_range(-0.5..0.5)).sum()
}

/// sin(w x) after k steps of an autoregression is damped by what noise has come in, and so is every later reward.
fn value(x: &[f64]) -> f64 {
    let term = |i: usize, x: f64| {
        let (mut total, mut mean, mut variance, mut discount) = (0.0, x, 0.0, 1.0);
        for _ in 0..400 {
            total += discount * (-0.5 * FREQUENCY[i] * FREQUENCY[i] * variance).exp() * (FREQUENCY[i] * mean).sin();
            mean *= MEMORY[i];
            variance = MEMORY[i] * MEMORY[i] * variance + KICK * KICK;
            discount *= DISCOUNT;
        }
        total
    };
    term(0, x[FIRST]) + term(1, x[SECOND])
}

/// Episodes of an autoregressive walk in two variables among eighteen others, as (n + 1, D) pieces.
fn stream(seed: u64) -> Vec<(Vec<f64>, Vec<f64>)> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let pieces = (0..ROWS / EPISODE).map(|_| {
        let mut x = [normal(&mut rng), normal(&mut rng)];
        let (mut states, mut rewards) = (Vec::new(), Vec::new());
        for step in 0..=EPISODE {
            let mut state: Vec<f64> = (0..DIM).map(|_| normal(&mut rng)).collect();
            (state[FIRST], state[SECOND], state[COPY]) = (x[0], x[1], 3.0 * x[0]);
            states.extend(state);
            if step < EPISODE {
                rewards.push((FREQUENCY[0] * x[0]).sin() + (FREQUENCY[1] * x[1]).sin() + 0.2 * normal(&mut rng));
                (0..2).for_each(|i| x[i] = MEMORY[i] * x[i] + KICK * normal(&mut rng));
            }
        }
        (states, rewards)
    });
    pieces.collect()
}

/// Only the state variables of `kept`.
fn select(pieces: &[(Vec<f64>, Vec<f64>)], kept: &[usize]) -> (Snapshot, RefitReport) {
    let mut window = Window::new(kept.len(), 1, ROWS);
    for (states, rewards) in pieces {
        let batch = Batch::new(BatchParts {
            stream: "walk".into(),
            dim: kept.len(),
            rewards_per_row: 1,
            states: states.chunks_exact(DIM).flat_map(|x| kept.iter().map(|&d| x[d]).collect::<Vec<_>>()).collect(),
            rewards: rewards.clone(),
            truncated: Some((1..=EPISODE).map(|i| i == EPISODE).collect()),
            ..BatchParts::default()
        })
        .expect("a piece");
        (0..batch.len()).for_each(|i| window.push(0, i == 0, &batch, i));
    }
    let settings = Settings { discount: DISCOUNT, kernel: KernelKind::Auto, refit_first_rows: 0, ..Settings::paper() };
    let mut learner = Learner::new(settings, None);
    learner.step(&window);
    learner.request_refit();
    let job = learner.refit_job(&window, learner.refit_due().expect("asked for")).expect("a model");
    let candidate = refit::run(&job, &|| true).expect("a candidate");
    (candidate.model.snapshot(false).expect("a posterior"), candidate.report)
}

fn error(snapshot: &Snapshot, kept: &[usize], states: &[Vec<f64>]) -> f64 {
    let flat: Vec<f64> = states.iter().flat_map(|x| kept.iter().map(|&d| x[d])).collect();
    let mean = snapshot.evaluate(&flat, Ask::MEAN).expect("finite states").mean;
    let square: f64 = states.iter().enumerate().map(|(i, x)| (mean[(i, 0)] - value(x)).powi(2)).sum();
    (square / states.len() as f64).sqrt()
}

fn finds_what_matters(seed: u64) {
    let pieces = stream(seed);
    let all: Vec<usize> = (0..DIM).collect();
    let (snapshot, report) = select(&pieces, &all);
    for (d, variable) in report.variables.iter().enumerate() {
        match d {
            FIRST | SECOND => assert!(variable.evidence_drop > Some(13.0), "{variable:?}"),
            COPY => assert_eq!(variable.verdict, Verdict::CopyOf(FIRST), "{variable:?}"),
            // The luckiest of eighteen without a meaning gains about their logarithm.
            _ => assert!(variable.evidence_drop < Some(7.0), "{variable:?}"),
        }
    }
    let drop = |d: usize| report.variables[d].evidence_drop.unwrap_or(0.0);
    let others = (0..report.variables.len()).filter(|d| ![FIRST, SECOND, COPY].contains(d)).map(drop);
    assert!(others.fold(0.0, f64::max) < drop(FIRST).min(drop(SECOND)), "{:?}", report.variables);
    let (informed, _) = select(&pieces, &[FIRST, SECOND]);
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 0xface);
    let states: Vec<Vec<f64>> = (0..1000)
        .map(|_| {
            let mut x: Vec<f64> = (0..DIM).map(|_| 0.7 * normal(&mut rng)).collect();
            x[COPY] = 3.0 * x[FIRST];
            x
        })
        .collect();
    let (ours, theirs) = (error(&snapshot, &all, &states), error(&informed, &[FIRST, SECOND], &states));
    let spread = (states.iter().map(|x| value(x).powi(2)).sum::<f64>() / states.len() as f64).sqrt();
    println!("seed {seed}: error {ours:.4}, told of the two {theirs:.4}, values {spread:.3}");
    assert!(ours <= 1.1 * theirs, "{ours} against {theirs}");
    assert!(theirs < 0.2 * spread, "the informed model has learned: {theirs} of {spread}");
}

#[test]
fn two_of_twenty_in_seed_0() {
    finds_what_matters(0);
}

#[test]
fn two_of_twenty_in_seed_1() {
    finds_what_matters(1);
}

#[test]
fn two_of_twenty_in_seed_2() {
    finds_what_matters(2);
}

#[test]
fn two_of_twenty_in_seed_3() {
    finds_what_matters(3);
}

#[test]
fn two_of_twenty_in_seed_4() {
    finds_what_matters(4);
}
