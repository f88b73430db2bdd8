//! What the reproductions share: model selection on a small table of transitions, tables of medians, and the computations of each.
#![allow(dead_code)] // each of them uses its own part

pub(crate) mod embeddings;
pub(crate) mod gridworld;
pub(crate) mod pendulum;
pub(crate) mod planning;
pub(crate) mod processes;
pub(crate) mod pursuits;
pub(crate) mod regression;
pub(crate) mod show;

use criticd::math::dense::{self, Matrix};
use criticd::math::evidence::{self, Evidence, KeepGoing, Problem};
use criticd::math::exact::{ExactPosterior, exact_fixed_point};
use criticd::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Points};
use criticd::math::optimise::{self, Bounds, Budget};
use criticd::math::returns::Returns;
use criticd::transition::Rows;

/// Nothing stops these computations but their end.
pub(crate) const GO: KeepGoing<'static> = &|| true;

/// One recorded trajectory, in the coordinates of the kernel.
pub(crate) struct Data {
    pub(crate) rows: Rows,
    pub(crate) discount: f64,
    returns: Returns,
    cut_states: Vec<f64>,
}

/// What model selection chose, and what it was chosen for.
pub(crate) struct Selected {
    pub(crate) hyper: Hyperparameters,
    /// Complexity, fit and log evidence there.
    pub(crate) evidence: Evidence,
    /// States and returns; the chain that runs on at the end is closed by the value that the model itself gives.
    pub(crate) problem: Problem,
}

impl Selected {
    /// The paper's L: negative log evidence less its constant, n/2 log 2 pi; smaller is better.
    pub(crate) fn loss(&self) -> f64 {
        self.evidence.complexity + self.evidence.fit
    }

    pub(crate) fn posterior(&self) -> ExactPosterior<'_> {
        ExactPosterior::new(&self.problem, &self.hyper, GO).expect("it had an evidence")
    }
}

/// Where and how to search.
pub(crate) struct Search {
    pub(crate) bounds: Bounds,
    /// Starts beside those from the data.
    pub(crate) starts: Vec<Vec<f64>>,
    /// How many of the starts from the data are random.
    pub(crate) random: usize,
    /// The starts are compared on every `stride`-th row: pairs of state and return are exchangeable.
    pub(crate) stride: usize,
    pub(crate) seed: u64,
}

impl Data {
    pub(crate) fn new(rows: Rows, discount: f64) -> Self {
        let returns = Returns::new(&rows, &[0], discount);
        let cut_states = returns.cut_states(&rows);
        Self { rows, discount, returns, cut_states }
    }

    /// Every `stride`-th row whose return is known, because its chain terminates.
    fn terminated(&self, stride: usize) -> Problem {
        let known: Vec<usize> = (0..self.rows.len()).filter(|&i| self.returns.cut_of[i].is_none()).collect();
        let kept: Vec<usize> = known.into_iter().step_by(stride).collect();
        let states = kept.iter().flat_map(|&i| self.rows.state(i).to_vec()).collect();
        let targets = kept.iter().map(|&i| self.returns.open.at(i, 0)).collect();
        Problem::correlated(self.rows.dim, states, Matrix::from_columns(kept.len(), 1, targets))
    }

    /// All rows, the last chain closed by the value that `hyper` itself gives to the state behind it.
    fn closed(&self, hyper: &Hyperparameters) -> Problem {
        let states = self.rows.states.clone();
        let targets = exact_fixed_point(self.rows.dim, states.clone(), &self.cut_states, &self.returns, hyper, GO)
            .expect("hyperparameters inside the box give a posterior")
            .targets;
        Problem::correlated(self.rows.dim, states, targets)
    }

    /// Evaluate `hyper` on all rows.
    pub(crate) fn evaluate(&self, hyper: Hyperparameters) -> Selected {
        let problem = self.closed(&hyper);
        let evidence = evidence::exact_value(&problem, &hyper, GO).expect("hyperparameters inside the box");
        Selected { hyper, evidence, problem }
    }

    /// Climb the exact evidence from several starts on part of the rows, and from where the best two of them arrive on
    /// all rows.
    pub(crate) fn select(&self, metric: &Metric, search: &Search) -> Selected {
        let like = like(metric.clone());
        let climb = |problem: &Problem, starts: &[Vec<f64>]| {
            let objective = |x: &[f64]| {
                evidence::exact(problem, &evidence::from_parameters(&like, x), GO).map(|e| (e.value, e.gradient))
            };
            optimise::maximise(objective, starts, &search.bounds, &[], Budget::new(150, GO))
        };
        let part = self.terminated(search.stride);
        let (dim, bounds) = (self.rows.dim, &search.bounds);
        let mut starts = optimise::starts(metric, dim, part.observed(), None, bounds, search.random, search.seed);
        starts.extend(search.starts.iter().cloned());
        let found = climb(&part, &starts);
        // A start that arrived within a tenth of a nat of the best arrived at the same place.
        let second = found.iter().find(|a| found[0].objective - a.objective > 0.1);
        std::iter::once(&found[0])
            .chain(second)
            .map(|ascent| {
                let all = self.closed(&evidence::from_parameters(&like, &ascent.parameters));
                let best = climb(&all, std::slice::from_ref(&ascent.parameters)).swap_remove(0);
                self.evaluate(evidence::from_parameters(&like, &best.parameters))
            })
            .max_by(|a, b| a.evidence.value.total_cmp(&b.evidence.value))
            .expect("there is a best start")
    }
}

/// From the coordinates of the world to the kernel's.
#[derive(Clone, Copy)]
pub(crate) struct Scaling {
    pub(crate) shift: [f64; 2],
    pub(crate) scale: [f64; 2],
}

impl Scaling {
    /// Each coordinate gets mean 0 and standard deviation 1 over `states` (n, 2), row-major.
    pub(crate) fn standard(states: &[f64]) -> Self {
        let n = (states.len() / 2) as f64;
        let shift = [0, 1].map(|d| states.iter().skip(d).step_by(2).sum::<f64>() / n);
        let square = |d: usize| states.iter().skip(d).step_by(2).map(|v| (v - shift[d]).powi(2)).sum::<f64>() / n;
        Self { shift, scale: [0, 1].map(|d| square(d).sqrt()) }
    }

    pub(crate) fn of(&self, states: &[f64]) -> Vec<f64> {
        states.iter().enumerate().map(|(k, v)| (v - self.shift[k % 2]) / self.scale[k % 2]).collect()
    }

    /// From the coordinates of the kernel to the world's, up to rounding.
    pub(crate) fn back(&self, states: &[f64]) -> Vec<f64> {
        states.iter().enumerate().map(|(k, v)| v * self.scale[k % 2] + self.shift[k % 2]).collect()
    }
}

/// Hyperparameters of a structure; their numbers mean nothing.
fn like(metric: Metric) -> Hyperparameters {
    let kernel = Kernel::gaussian(1.0, 1.0, metric);
    Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 1.0 }
}

/// K (N, N) of `states` (N, D).
pub(crate) fn gram(kernel: &Kernel, dim: usize, states: &[f64]) -> Matrix {
    let points = kernel.project(dim, states);
    let n = states.len() / dim;
    let mut out = Matrix::zeros(n, n);
    kernel.block(&Points::new(kernel.projected_dim(dim), &points), &points, &mut out.view_mut());
    out
}

/// Eigenvalues of a symmetric matrix, greatest first.
pub(crate) fn spectrum(matrix: &Matrix) -> Vec<f64> {
    let mut values = dense::symmetric_eigen(matrix).expect("a covariance matrix is finite").0;
    values.reverse();
    values
}

/// Mean of the squared differences.
pub(crate) fn mean_square_error(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "numbers to compare come in pairs");
    a.iter().zip(b).map(|(a, b)| (a - b) * (a - b)).sum::<f64>() / a.len() as f64
}
