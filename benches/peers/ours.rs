//! Our side of `benches/peers/run.py`: one measurement on data that all sides share, processor seconds on standard output, and
//! for evidence the log evidence.
//!
//! ```text
//! ours learner DIRECTORY SIZE BATCH REFRESH WARM     rows WARM.. of the walk, with a dictionary of SIZE that is full, lambda 1
//! ours follow DIRECTORY SIZE BATCH REFRESH WARM      the same with lambda 0.8, the deviation from single rows: the defaults
//! ours exact DIRECTORY N D                           log evidence and gradient of N states of D numbers
//! ours sparse DIRECTORY N SIZE                       the bound and its gradient of N states of 4 numbers
//! ```
//! The directory holds `walk-4.f64` (states), `reward-4.f64`, and for evidence `states-D.f64` and `targets-D.f64`: numbers of
//! eight bytes, little endian, row after row.

use criticd::learner::window::Window;
use criticd::learner::{Learner, Settings};
use criticd::math::dense::Matrix;
use criticd::math::evidence::{Evaluator, Evidence, EvidenceError, KeepGoing, Problem, Sparse, Through, sparse};
use criticd::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd::telemetry::thread_seconds;
use criticd::transition::Rows;
use std::path::Path;

const DIM: usize = 4;
const DISCOUNT: f64 = 0.95;
const GO: KeepGoing<'static> = &|| true;
/// Repetitions of an evaluation of the evidence.
const TIMES: usize = 3;

fn numbers(directory: &str, name: &str) -> Vec<f64> {
    let path = Path::new(directory).join(name);
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let (numbers, rest) = bytes.as_chunks::<8>();
    assert!(rest.is_empty(), "{} is cut off", path.display());
    numbers.iter().map(|&number| f64::from_le_bytes(number)).collect()
}

/// Processor seconds of this process so far.
fn spent() -> f64 {
    thread_seconds().values().sum()
}

fn learner(settings: Settings, directory: &str, [size, batch, refresh, warm]: [usize; 4]) -> f64 {
    let (states, rewards) = (numbers(directory, "walk-4.f64"), numbers(directory, "reward-4.f64"));
    let n = rewards.len();
    let rows = Rows {
        dim: DIM,
        rewards_per_row: 1,
        states: states[..n * DIM].to_vec(),
        next_states: states[DIM..].to_vec(),
        rewards,
        discounts: vec![f64::NAN; n],
        ratios: vec![1.0; n],
        streams: vec![0; n],
        terminated: vec![false; n],
        truncated: vec![false; n],
        starts_chain: (0..n).map(|i| i == 0).collect(),
        ..Rows::default()
    };
    let settings = Settings {
        discount: DISCOUNT,
        dictionary_max: size,
        tolerance: 1e-6,
        refresh_rows: refresh,
        refit_first_rows: 0,
        ..settings
    };
    let mut learner = Learner::new(settings, None);
    let mut window = Window::new(DIM, 1, n);
    window.extend(&rows, 0..warm);
    learner.step(&window);
    assert_eq!(learner.model().map(|model| model.dictionary().len()), Some(size), "the dictionary is full");
    let before = spent();
    let mut at = warm;
    while at < n {
        let to = n.min(at + batch);
        window.extend(&rows, at..to);
        learner.step(&window);
        at = to;
    }
    (spent() - before) / (n - warm) as f64
}

fn hyperparameters(dim: usize) -> Hyperparameters {
    let kernel = Kernel::gaussian(1.3, 0.4, Metric::Ard(vec![0.5; dim]));
    Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.05 }
}

fn problem(directory: &str, n: usize, dim: usize) -> Problem {
    let states = numbers(directory, &format!("states-{dim}.f64"))[..n * dim].to_vec();
    let targets = numbers(directory, &format!("targets-{dim}.f64"))[..n].to_vec();
    Problem::correlated(dim, states, Matrix::from_columns(n, 1, targets))
}

/// Processor seconds of one evaluation, and its log evidence.
fn evaluate(mut evaluation: impl FnMut() -> Result<Evidence, EvidenceError>) -> (f64, Option<f64>) {
    let value = evaluation().expect("positive definite").value;
    let before = spent();
    (0..TIMES).for_each(|_| drop(evaluation()));
    ((spent() - before) / TIMES as f64, Some(value))
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let number = |k: usize| arguments[k].parse().expect("a whole number");
    let (seconds, value) = match arguments.first().map(String::as_str) {
        Some(kind @ ("learner" | "follow")) => {
            let settings = if kind == "learner" { Settings::paper() } else { Settings::default() };
            (learner(settings, &arguments[1], [number(2), number(3), number(4), number(5)]), None)
        }
        Some("exact") => {
            let (n, dim) = (number(2), number(3));
            let (problem, hyper) = (problem(&arguments[1], n, dim), hyperparameters(dim));
            // As an optimisation asks for one after the other.
            let mut evaluator = Evaluator::default();
            evaluate(|| evaluator.exact(&problem, &hyper, GO))
        }
        Some("sparse") => {
            let (n, size) = (number(2), number(3));
            let (problem, hyper) = (problem(&arguments[1], n, DIM), hyperparameters(DIM));
            // As the others have it: the first states, and what GPflow adds to the diagonal.
            let (basis, jitter) = (&problem.nodes()[..DIM * size], 1e-6 / hyper.kernel.signal_variance);
            evaluate(|| sparse(&problem, &hyper, Through { dictionary: basis, kind: Sparse::Vfe, jitter }, GO))
        }
        // Run among other benchmarks there is nothing to measure.
        _ => return,
    };
    println!("{seconds:e} {}", value.map_or(String::new(), |value| format!("{value:.9e}")));
}
