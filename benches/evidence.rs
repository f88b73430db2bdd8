//! The log evidence with its gradient, beside what a matrix product of equally many operations takes on this machine.
//!
//! `cargo bench --bench evidence`

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use criticd::math::dense::{Matrix, Op, product};
use criticd::math::dictionary::select;
use criticd::math::evidence::{Evaluator, KeepGoing, Problem, Sparse, Through, sparse};
use criticd::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Points, Profile};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::hint::black_box;

const GO: KeepGoing<'static> = &|| true;

/// n states uniform in a cube of dimension `dim`, with the returns of a smooth value function and noise.
fn problem(n: usize, dim: usize) -> (Problem, Hyperparameters) {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let states: Vec<f64> = (0..n * dim).map(|_| rng.random_range(-1.7..1.7)).collect();
    let targets = states.chunks_exact(dim).map(|x| x[0].sin() + 0.5 * x[1] + rng.random_range(-0.2..0.2)).collect();
    let relevance = (0..dim).map(|d| 0.8 / (1.0 + d as f64)).collect();
    let kernel = Kernel::gaussian(1.3, 0.4, Metric::Ard(relevance));
    let hyper = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.05 };
    (Problem::correlated(dim, states, Matrix::from_columns(n, 1, targets)), hyper)
}

/// n^3 multiplications and n^3 additions: the unit that goals are stated in.
fn matrix_product(c: &mut Criterion) {
    let mut group = c.benchmark_group("matrix product");
    for n in [200, 1000] {
        let a = Matrix::from_columns(n, n, (0..n * n).map(|k| (k as f64 * 0.618).fract()).collect());
        group.throughput(Throughput::Elements(2 * (n as u64).pow(3)));
        group.bench_with_input(BenchmarkId::new("n", n), &a, |bench, a| {
            bench.iter(|| product(black_box(a).view(), Op::Plain, a.view(), Op::Plain));
        });
    }
    group.finish();
}

/// One state against a dictionary, by profile.
fn kernel_values(c: &mut Criterion) {
    let mut group = c.benchmark_group("kernel values, m = 200, D = 4");
    let (problem, hyper) = problem(400, 4);
    for profile in [Profile::Gaussian, Profile::Matern52] {
        let kernel = hyper.kernel.clone().with_profile(profile);
        let projected = kernel.project(4, problem.nodes());
        let points = Points::new(4, &projected[..4 * 200]);
        let mut out = Matrix::zeros(200, 200);
        group.throughput(Throughput::Elements(200 * 200));
        group.bench_function(profile.name(), |bench| {
            bench.iter(|| kernel.block(black_box(&points), &projected[4 * 200..], &mut out.view_mut()));
        });
    }
    group.finish();
}

fn exact_evidence(c: &mut Criterion) {
    let mut group = c.benchmark_group("exact evidence and gradient, n = 1000");
    for dim in [2, 10] {
        let (problem, hyper) = problem(1000, dim);
        group.bench_function(BenchmarkId::new("D", dim), |bench| {
            let mut evaluator = Evaluator::default();
            bench.iter(|| evaluator.exact(black_box(&problem), &hyper, GO).expect("positive definite"));
        });
    }
    group.finish();
}

fn sparse_evidence(c: &mut Criterion) {
    let mut group = c.benchmark_group("sparse evidence and gradient, m = 200, D = 4");
    for n in [50_000, 200_000] {
        let (problem, hyper) = problem(n, 4);
        let (dictionary, _) = select(&hyper.kernel, 4, &problem.nodes()[..4 * 5000], 1e-9, 200);
        assert_eq!(dictionary.len(), 200);
        group.throughput(Throughput::Elements(n as u64));
        group.bench_function(BenchmarkId::new("n", n), |bench| {
            let basis = dictionary.elements();
            bench.iter(|| {
                sparse(black_box(&problem), &hyper, Through { dictionary: basis, kind: Sparse::Vfe, jitter: 1e-6 }, GO)
                    .expect("positive definite")
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = matrix_product, kernel_values, exact_evidence, sparse_evidence
}
criterion_main!(benches);
