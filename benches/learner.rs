//! What the learner takes per row with a full dictionary, beside what 2 m^2 operations take in a matrix product; and what its
//! model takes to be laid out for queries, and to answer them with mean and variance.
//!
//! `cargo bench --bench learner`

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use criticd::learner::window::Window;
use criticd::learner::{DriftSensitivity, Learner, Settings};
use criticd::math::dense::{Matrix, Op, product};
use criticd::snapshot::{Ask, Evaluation, EvaluationScratch, Evaluator};
use criticd::transition::{Batch, BatchParts};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::hint::black_box;
use std::sync::Arc;

/// Dimension of the states.
const DIM: usize = 4;
/// Rows learned before anything is measured: enough to fill the dictionary, and where it is only a test no more than that.
fn warm_rows() -> u64 {
    if std::env::args().any(|argument| argument == "--test") { 30_000 } else { 100_000 }
}
/// Rows of one measurement.
const ROWS: u64 = 25_600;
/// Mean length of an episode.
const EPISODE: f64 = 200.0;

/// A walk in a cube that ends now and then: states fill the cube, so that the dictionary reaches its cap.
struct Walk {
    rng: ChaCha8Rng,
    state: [f64; DIM],
    starts_chain: bool,
}

impl Walk {
    fn new() -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(1), state: [0.0; DIM], starts_chain: true }
    }

    /// Append `rows` transitions to the window.
    fn extend(&mut self, window: &mut Window, rows: u64) {
        let count = rows as usize;
        let (mut states, mut next_states) = (Vec::with_capacity(count * DIM), Vec::with_capacity(count * DIM));
        let (mut rewards, mut terminated) = (Vec::with_capacity(count), Vec::with_capacity(count));
        let mut starts = Vec::with_capacity(count);
        for _ in 0..count {
            starts.push(self.starts_chain);
            states.extend(self.state);
            rewards.push(self.state[0].sin() * self.state[1] + self.rng.random_range(-0.5..0.5));
            for x in &mut self.state {
                *x = (*x + self.rng.random_range(-0.4..0.4)).clamp(-1.7, 1.7);
            }
            next_states.extend(self.state);
            self.starts_chain = self.rng.random_bool(1.0 / EPISODE);
            terminated.push(self.starts_chain);
            if self.starts_chain {
                self.state.fill_with(|| self.rng.random_range(-1.7..1.7));
            }
        }
        let parts = BatchParts {
            stream: "walk".into(),
            dim: DIM,
            rewards_per_row: 1,
            states,
            next_states: Some(next_states),
            rewards,
            terminated: Some(terminated),
            ..BatchParts::default()
        };
        let batch = Batch::new(parts).expect("finite numbers");
        for (i, &starts) in starts.iter().enumerate() {
            window.push(0, starts, &batch, i);
        }
    }
}

/// A learner whose dictionary of `m` elements is full after [`warm_rows`], a window with [`ROWS`] rows more, and the walk.
fn warm(settings: &Settings, m: usize, refresh_rows: usize) -> (Learner, Window, Walk) {
    let settings =
        Settings { dictionary_max: m, tolerance: 1e-6, refresh_rows, refit_first_rows: 0, ..settings.clone() };
    let mut learner = Learner::new(settings, None);
    let mut window = Window::new(DIM, 1, (warm_rows() + ROWS) as usize);
    let mut walk = Walk::new();
    walk.extend(&mut window, warm_rows());
    learner.step(&window);
    assert_eq!(learner.model().map(|model| model.dictionary().len()), Some(m), "a full dictionary");
    walk.extend(&mut window, ROWS);
    (learner, window, walk)
}

/// n^3 multiplications and n^3 additions: the unit that goals are stated in.
fn matrix_product(c: &mut Criterion) {
    let mut group = c.benchmark_group("matrix product");
    let n = 1000;
    let a = Matrix::from_columns(n, n, (0..n * n).map(|k| (k as f64 * 0.618).fract()).collect());
    group.throughput(Throughput::Elements(2 * (n as u64).pow(3)));
    group.bench_function(BenchmarkId::new("n", n), |bench| {
        bench.iter(|| product(black_box(&a).view(), Op::Plain, a.view(), Op::Plain));
    });
    group.finish();
}

/// lambda = 1 with the variance of the model, and what is learned where nothing is said: lambda = 0.8, variance from rows.
fn kinds() -> [(&'static str, Settings); 2] {
    [("lambda = 1", Settings::paper()), ("lambda = 0.8", Settings::default())]
}

/// As [`kinds`], and the second without a watch over its errors.
fn watched_or_not() -> impl Iterator<Item = (&'static str, Settings)> {
    let off = Settings { drift_sensitivity: DriftSensitivity::Off, ..Settings::default() };
    kinds().into_iter().chain([("lambda = 0.8, changes of the world unnoticed", off)])
}

fn rows(c: &mut Criterion) {
    for ((kind, settings), refresh_rows) in watched_or_not().flat_map(|kind| [(kind.clone(), 256), (kind, 64)]) {
        let mut group = c.benchmark_group(format!("learner, D = {DIM}, {kind}, weights every {refresh_rows} rows"));
        group.throughput(Throughput::Elements(ROWS));
        for m in [100, 300, 500] {
            let (learner, window, _) = warm(&settings, m, refresh_rows);
            group.bench_function(BenchmarkId::new("m", m), |bench| {
                let step = |mut learner: Learner| {
                    learner.step(&window);
                    learner
                };
                bench.iter_batched(|| learner.clone(), step, BatchSize::LargeInput);
            });
        }
        group.finish();
    }
}

/// As [`rows`], but one at a time, and weights after each.
fn single_rows(c: &mut Criterion) {
    const ROWS: u64 = 2048;
    let mut group = c.benchmark_group(format!("learner, D = {DIM}, one row at a time, weights after each"));
    group.throughput(Throughput::Elements(ROWS));
    for ((kind, settings), m) in kinds().into_iter().flat_map(|kind| [(kind.clone(), 100), (kind, 300)]) {
        let (mut learner, mut window, mut walk) = warm(&settings, m, 1);
        learner.step(&window);
        let mut more = Window::new(DIM, 1, 2 * ROWS as usize);
        walk.extend(&mut more, ROWS);
        let rows = more.flatten();
        group.bench_function(BenchmarkId::new(format!("{kind}, m"), m), |bench| {
            bench.iter(|| {
                for i in 0..rows.len() {
                    window.extend(&rows, i..i + 1);
                    learner.step(&window);
                }
            });
        });
    }
    group.finish();
}

fn queries(c: &mut Criterion) {
    /// States of one batch.
    const STATES: usize = 1024;
    let mut group = c.benchmark_group(format!("queries, mean and variance, D = {DIM}"));
    for m in [100, 300] {
        let (learner, ..) = warm(&Settings::default(), m, 256);
        let snapshot = Arc::new(learner.snapshot(true).expect("a posterior"));
        group.throughput(Throughput::Elements(1));
        group.bench_function(BenchmarkId::new("snapshot made, m", m), |bench| bench.iter(|| learner.snapshot(true)));
        group.bench_function(BenchmarkId::new("laid out, m", m), |bench| {
            bench.iter(|| Evaluator::new(Arc::clone(black_box(&snapshot))));
        });
        let model = Evaluator::new(snapshot);
        let mut rng = ChaCha8Rng::seed_from_u64(2);
        let states: Vec<f64> = (0..STATES * DIM).map(|_| rng.random_range(-1.7..1.7)).collect();
        let (mut scratch, mut out) = (EvaluationScratch::default(), Evaluation::default());
        let mut singles = states.chunks_exact(DIM).cycle();
        group.bench_function(BenchmarkId::new("one state, m", m), |bench| {
            bench.iter(|| {
                let state = singles.next().expect("there is always another");
                model.evaluate_into(black_box(state), Ask::VARIANCE, &mut scratch, &mut out)
            });
        });
        group.throughput(Throughput::Elements(STATES as u64));
        group.bench_function(BenchmarkId::new(format!("{STATES} states, m"), m), |bench| {
            bench.iter(|| model.evaluate_into(black_box(&states), Ask::VARIANCE, &mut scratch, &mut out));
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10);
    targets = matrix_product, rows, single_rows, queries
}
criterion_main!(benches);
