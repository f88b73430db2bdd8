//! Kernel ridge regression (KRR) and cost-regularised kernel regression (CrKR) of a noisy cosine.
//!
//! The document draws its samples with NumPy, seed 0, and prints no numbers. `tests/golden-heads/regression_101.json` has these samples and
//! what the document's program, run in NumPy, predicts.

use super::GO;
use criticd::learner::Settings;
use criticd::learner::batch::Given;
use criticd::math::dense::Matrix;
use criticd::math::dictionary::StoppingRule;
use criticd::math::evidence::Problem;
use criticd::math::exact::ExactPosterior;
use criticd::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd::snapshot::{Ask, Inputs};
use criticd::transition::Rows;
use criticd_reference::golden_heads::read;
use criticd_reference::numbers;

/// gamma = 10 of scikit-learn's `rbf` exp(-gamma d^2), as a relevance: a lengthscale of 0.22.
const RELEVANCE: f64 = 20.0;
const RIDGE: f64 = 1.0;

/// Points, and how often each counts.
#[derive(Clone)]
pub(crate) struct Sample {
    pub(crate) x: Vec<f64>,
    pub(crate) y: Vec<f64>,
    pub(crate) weights: Vec<f64>,
}

/// Mean and standard deviation, the ridge counted as noise, at the places x of the cosine.
pub(crate) struct Prediction {
    pub(crate) mean: Vec<f64>,
    pub(crate) std: Vec<f64>,
}

pub(crate) struct Regressions {
    pub(crate) cosine: Sample,
    pub(crate) weighted: Sample,
    /// KRR of the cosine: its mean by the document's program, and ours.
    pub(crate) krr: [Prediction; 2],
    /// CrKR of the weighted points, likewise.
    pub(crate) crkr: [Prediction; 2],
    /// KRR of the weighted points, which does not know the weights.
    pub(crate) unweighted: Prediction,
    /// CrKR by sums over rows, as `criticd fit --target y --weight w` learns it, and the elements of its dictionary.
    pub(crate) by_sums: (Prediction, usize),
}

pub(crate) fn run() -> Regressions {
    let case = read("regression_101");
    let of = &case["crkr"];
    let x = numbers(&case["x"]);
    let cosine = Sample { y: numbers(&case["y"]), weights: vec![1.0; x.len()], x: x.clone() };
    let weighted = Sample { x: [&x[..], &x[..]].concat(), y: numbers(&of["y"]), weights: numbers(&of["weight"]) };
    let plain = Sample { weights: vec![1.0; weighted.x.len()], ..weighted.clone() };
    Regressions {
        krr: [Prediction { mean: numbers(&case["ridge_mean"]), std: Vec::new() }, dense(&cosine, &x)],
        crkr: [Prediction { mean: numbers(&of["mean"]), std: numbers(&of["std"]) }, dense(&weighted, &x)],
        unweighted: dense(&plain, &x),
        by_sums: by_sums(&weighted, &x),
        cosine,
        weighted,
    }
}

fn hyperparameters() -> Hyperparameters {
    let kernel = Kernel::gaussian(1.0, 0.0, Metric::Isotropic(RELEVANCE));
    Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: RIDGE }
}

fn with_ridge(mean: Vec<f64>, variance: &[f64]) -> Prediction {
    Prediction { mean, std: variance.iter().map(|v| (v + RIDGE).sqrt()).collect() }
}

/// k'(K + ridge R^-1)^-1 y and k(x, x) + ridge - k'(K + ridge R^-1)^-1 k.
fn dense(of: &Sample, at: &[f64]) -> Prediction {
    let targets = Matrix::from_columns(of.x.len(), 1, of.y.clone());
    let problem = Problem::correlated(1, of.x.clone(), targets).weighted(&of.weights);
    let posterior = ExactPosterior::new(&problem, &hyperparameters(), GO).expect("a ridge makes it definite");
    with_ridge(posterior.mean(at).col(0).to_vec(), &posterior.variance(at))
}

/// phi'(Phi'R Phi + ridge I)^-1 Phi'R y, in the features of a dictionary.
fn by_sums(of: &Sample, at: &[f64]) -> (Prediction, usize) {
    let n = of.x.len();
    let rows = Rows {
        states: of.x.clone(),
        next_states: of.x.clone(),
        rewards: of.y.clone(),
        discounts: vec![f64::NAN; n],
        ratios: of.weights.clone(),
        streams: vec![0; n],
        terminated: vec![true; n],
        truncated: vec![false; n],
        starts_chain: vec![true; n],
        ..Rows::new(1, 1)
    };
    let settings = Settings { discount: 0.0, estimate_scale: false, ..Settings::paper() };
    let (inputs, hyperparameters) = (&Inputs::identity(1), &hyperparameters());
    let given = Given { settings: &settings, rows: &rows, inputs, hyperparameters, lambda: 1.0, first: 0 };
    let enough = StoppingRule { tolerance: 1e-12, trace: 0.0 };
    let dictionary = given.select(enough, n, GO).expect("nothing stops it").dictionary;
    let elements = dictionary.elements_len();
    let model = given.model(dictionary, GO).expect("nothing stops it");
    let found = model.snapshot(true).expect("a ridge makes it definite").evaluate(at, Ask::ALL).expect("finite");
    (with_ridge(found.mean.as_slice().to_vec(), &found.variance.expect("made with it")), elements)
}
