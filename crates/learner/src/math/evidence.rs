//! The log evidence of the data under a kernel, and its gradient: exact, and through a dictionary.
//!
//! ```text
//! d = J V + noise,   noise ~ N(0, sigma0^2 I)       d (n, H): returns (J picks nodes) or rewards (J takes differences)
//! Q = J K J' + sigma0^2 I
//! log p(d) = sum over the H columns of  -1/2 log|Q| - 1/2 d' Q^-1 d - n/2 log 2 pi              [JS09, eq. 16]
//! ```
//! With correlated noise on closed chains this is the evidence of regressing returns on states,
//! docs/mathematics.md (M3): row i observes V at node i. With white noise row i observes V(x_i) - gamma_i V(x'_i), and with
//! weights root(w_i) V(x_i). Everything below serves all three.
//!
//! # Gradient (docs/mathematics.md (E2), (E3))
//! Both evidences have the form dL = sum_ij w_ij dk(x_i, x_j), and differ only in the weights w. With k0 the kernel without
//! its bias, k1 = -2 dk/dr^2 (for a Gaussian profile that is k0 again; finite at zero for both) and
//! T = sum_ij w_ij k1_ij (x_i - x_j)(x_i - x_j)',
//! ```text
//! dL/dlog v0 = sum w k0,    dL/dlog b = b sum w,    dL/dlog a_d = -1/2 a_d T_dd,    dL/df_j = -T f_j
//! ```
//! so that one pass over the weights gives all D relevances and all factors: T comes from row sums and one product.
//! Where state variables are not real, x is what they are [embedded](super::embedding) in; a relevance then takes the diagonal
//! entries of all its coordinates, or for a category twice the weights of the pairs that it keeps apart.
//! For the exact evidence w = 1/2 J' (alpha alpha' - H Q^-1) J, alpha = Q^-1 d  (\[JS09, eq. 17\]).
//!
//! Parameters stand in one order everywhere: [`parameter_names`].

mod exact;
mod gradient;
mod gram;
mod parameters;
mod problem;
mod profiled;
mod sparse;

pub use exact::{Evaluator, exact, exact_value};
pub(super) use gram::{Projected, covariance};
pub use parameters::{from_parameters, parameter_names, to_parameters};
pub use problem::{Difference, Problem};
pub use profiled::{Best, profiled_bests, profiled_gradients};
pub use sparse::{Through, sparse, sparse_value};

use super::dense::{Matrix, NotPositiveDefinite, Singular, dot};

/// Asked now and then, from any thread, whether to go on; `false` ends the computation with [`EvidenceError::Stopped`].
pub type KeepGoing<'a> = &'a (dyn Fn() -> bool + Sync);

/// Why there is no evidence at this point.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EvidenceError {
    /// The caller's stop flag was up.
    #[error("stopped by the caller")]
    Stopped,
    /// A covariance matrix is not positive definite to working precision.
    #[error("no evidence: {0}")]
    NotPositiveDefinite(#[from] NotPositiveDefinite),
    /// The system for the values at the cuts is singular.
    #[error("no values at the cuts: {0}")]
    Singular(#[from] Singular),
    /// The value or the gradient overflows.
    #[error("the log evidence is not finite")]
    NotFinite,
}

/// A log evidence and its parts, summed over the H columns: value = -complexity - fit - n H / 2 log 2 pi - trace_gap.
#[derive(Clone, Debug, PartialEq)]
pub struct Evidence {
    /// The log evidence, nats: higher is better.
    pub value: f64,
    /// H/2 log|Q|.
    pub complexity: f64,
    /// 1/2 sum over columns of d' Q^-1 d. At an optimum that is interior in (v0, b, sigma0^2) it is n H / 2 exactly.
    pub fit: f64,
    /// What the variational bound pays for what the dictionary leaves out, H trace / (2 sigma0^2), nats; 0 for the
    /// exact evidence. It is reported, though not paid, for [`Sparse::Dtc`] too. Above 5 nats the dictionary is
    /// too small to select a model with.
    pub trace_gap: f64,
    /// Number of observed numbers n H.
    pub observations: usize,
    /// Derivative with respect to the parameters, in the order of [`parameter_names`]; empty if it was not asked for.
    pub gradient: Vec<f64>,
}

impl Evidence {
    /// fit / (n H / 2): exactly 1 at an optimum interior in (v0, b, sigma0^2); far less means that a floor is active.
    pub fn fit_ratio(&self) -> f64 {
        self.fit / (0.5 * self.observations as f64)
    }

    fn checked(self) -> Result<Self, EvidenceError> {
        let finite = self.value.is_finite() && self.gradient.iter().all(|g| g.is_finite());
        if finite { Ok(self) } else { Err(EvidenceError::NotFinite) }
    }
}

/// Which sparse evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sparse {
    /// The variational bound \[T09\]: never above the exact evidence.
    Vfe,
    /// The evidence of the projected process (DTC) alone, without the trace term: it can over-fit.
    Dtc,
}

fn go(keep_going: KeepGoing<'_>) -> Result<(), EvidenceError> {
    if keep_going() { Ok(()) } else { Err(EvidenceError::Stopped) }
}

fn square(a: &Matrix) -> f64 {
    (0..a.cols()).map(|h| dot(a.col(h), a.col(h))).sum()
}

fn gaussian_constant(problem: &Problem) -> f64 {
    0.5 * (problem.rows() * problem.observed.cols()) as f64 * (2.0 * std::f64::consts::PI).ln()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::columns::{GivenColumn, GivenFunction};
    use crate::math::embedding::{Bend, StateKind};
    use crate::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Profile};
    use proptest::prelude::*;
    use proptest::test_runner::RngSeed;
    use std::sync::atomic::{AtomicUsize, Ordering};

    const GO: KeepGoing<'static> = &|| true;

    /// A random problem: some nodes, differences among them (or none), H columns, and a model of one of the three kinds.
    fn problems() -> impl Strategy<Value = (Problem, Hyperparameters, Vec<f64>)> {
        let bent = StateKind::Bent(Bend { centre: 0.4, scale: 0.3, width: 0.8 });
        let all = [StateKind::Real, StateKind::Periodic(1.7), StateKind::Category, bent];
        let shapes = (0usize..3, any::<bool>(), any::<bool>(), any::<bool>(), 0usize..4);
        (1usize..4, 3usize..12, 1usize..3, shapes).prop_flat_map(move |(dim, n, columns, shape)| {
            let (kind, white, matern, mixed, shift) = shape;
            let numbers = |len: usize| proptest::collection::vec(-2.0f64..2.0, len);
            let shape = [1, dim, 2 * dim][kind];
            (numbers(n * dim), numbers(n * columns), numbers(3 + shape), numbers(2 * dim)).prop_map(
                move |(mut states, observed, mut parameters, mut dictionary)| {
                    for (k, x) in states.iter_mut().chain(&mut dictionary).enumerate() {
                        // Categories: a few values, so that some are equal.
                        if mixed && all[(k % dim + shift) % 4] == StateKind::Category {
                            *x = x.round();
                        }
                    }
                    parameters.iter_mut().for_each(|p| *p *= 0.7);
                    let metric = match kind {
                        0 => Metric::Isotropic(1.0),
                        1 => Metric::Ard(vec![1.0; dim]),
                        _ => Metric::Factor { relevance: vec![1.0; dim], factors: vec![vec![0.0; dim]] },
                    };
                    let noise = if white { NoiseModel::White } else { NoiseModel::Correlated };
                    let kinds: Vec<StateKind> =
                        (0..dim).map(|d| all[(d + shift) % 4]).take(if mixed { dim } else { 0 }).collect();
                    let profile = if matern { Profile::Matern52 } else { Profile::Gaussian };
                    let like = Hyperparameters {
                        kernel: Kernel::gaussian(1.0, 1.0, metric).with_profile(profile).with_kinds(&kinds),
                        noise,
                        noise_variance: 1.0,
                    };
                    let observed = Matrix::from_columns(n, columns, observed);
                    let problem = if white {
                        let differences = (0..n)
                            .map(|i| Difference {
                                node: i,
                                factor: [1.0, 0.25, 3.0][i % 3],
                                successor: (i % 4 != 2).then_some(((i + 1) % n, 0.9)),
                            })
                            .collect();
                        Problem::white(dim, states, differences, observed)
                    } else {
                        Problem::correlated(dim, states, observed)
                    };
                    (problem, from_parameters(&like, &parameters), dictionary)
                },
            )
        })
    }

    fn central_differences(
        hyper: &Hyperparameters,
        gradient: &[f64],
        value: impl Fn(&Hyperparameters) -> f64,
    ) -> Result<(), TestCaseError> {
        let theta = to_parameters(hyper);
        prop_assert_eq!(theta.len(), gradient.len());
        let scale = gradient.iter().fold(1.0f64, |s, g| s.max(g.abs()));
        for k in 0..theta.len() {
            let step = |h: f64| {
                let mut theta = theta.clone();
                theta[k] += h;
                value(&from_parameters(hyper, &theta))
            };
            // Fourth order: the error of the differences stays below the rounding error.
            let h = 1e-3;
            let slope = (8.0 * (step(h) - step(-h)) - (step(2.0 * h) - step(-2.0 * h))) / (12.0 * h);
            prop_assert!((slope - gradient[k]).abs() < 1e-7 * scale, "{}: {} against {}", k, gradient[k], slope);
        }
        Ok(())
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: 384,
            rng_seed: RngSeed::Fixed(0),
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn gradients_equal_central_differences((problem, hyper, dictionary) in problems()) {
            let found = exact(&problem, &hyper, GO).unwrap();
            central_differences(&hyper, &found.gradient, |h| exact_value(&problem, h, GO).unwrap().value)?;
            for (kind, jitter) in [(Sparse::Vfe, 1e-6), (Sparse::Dtc, 1e-2)] {
                let found = sparse(&problem, &hyper, Through { dictionary: &dictionary, kind, jitter }, GO).unwrap();
                let value = |h: &Hyperparameters| {
                    sparse_value(&problem, h, Through { dictionary: &dictionary, kind, jitter }, GO).unwrap().value
                };
                central_differences(&hyper, &found.gradient, value)?;
            }
        }

        #[test]
        fn gradients_with_columns_equal_central_differences((problem, mut hyper, _) in problems()) {
            let (kernel, dim) = (&mut hyper.kernel, problem.dim());
            kernel.columns = GivenColumn::constant_and_linear(0.0, 0.8 * kernel.signal_variance, GivenFunction::Linear, &kernel.kinds, dim);
            let found = exact(&problem, &hyper, GO).unwrap();
            central_differences(&hyper, &found.gradient, |h| exact_value(&problem, h, GO).unwrap().value)?;
        }

        #[test]
        fn a_dictionary_of_every_point_gives_the_exact_evidence((problem, hyper, _) in problems()) {
            let full = exact(&problem, &hyper, GO).unwrap();
            let mut dictionary: Vec<f64> = Vec::new();
            for node in problem.nodes().chunks_exact(problem.dim()) {
                // A state twice would be a pivot of nothing but rounding.
                if !dictionary.chunks_exact(problem.dim()).any(|known| known == node) {
                    dictionary.extend(node);
                }
            }
            if let Ok(found) = sparse(&problem, &hyper, Through { dictionary: &dictionary, kind: Sparse::Vfe, jitter: 0.0 }, GO) {
                prop_assert!((found.value - full.value).abs() < 1e-5 * full.value.abs().max(1.0));
            }
        }

        #[test]
        fn the_bound_is_a_bound((problem, hyper, dictionary) in problems()) {
            let full = exact_value(&problem, &hyper, GO).unwrap();
            let bound = sparse_value(&problem, &hyper, Through { dictionary: &dictionary, kind: Sparse::Vfe, jitter: 1e-9 }, GO).unwrap();
            prop_assert!(bound.value <= full.value + 1e-6 * full.value.abs().max(1.0));
            prop_assert!(bound.trace_gap >= -1e-6);
        }
    }

    fn small() -> (Problem, Hyperparameters) {
        let states = (0..600).map(|i| (f64::from(i) * 0.618_033_988_749_895).fract() * 6.0).collect();
        let y = (0..600).map(|i| (f64::from(i) * 0.618_033_988_749_895).fract().sin()).collect();
        let kernel = Kernel::gaussian(1.0, 0.5, Metric::Isotropic(2.0));
        let hyper = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.1 };
        (Problem::correlated(1, states, Matrix::from_columns(600, 1, y)), hyper)
    }

    #[test]
    fn stops_when_told_and_says_what_failed() {
        let (problem, mut hyper) = small();
        let dictionary: Vec<f64> = problem.nodes()[..20].to_vec();
        let calls = AtomicUsize::new(0);
        let count = || calls.fetch_add(1, Ordering::Relaxed) < 2;
        let stopped =
            sparse(&problem, &hyper, Through { dictionary: &dictionary, kind: Sparse::Vfe, jitter: 1e-6 }, &count);
        assert_eq!(stopped, Err(EvidenceError::Stopped));
        assert_eq!(exact(&problem, &hyper, &|| false), Err(EvidenceError::Stopped));
        let twice = [&dictionary[..], &dictionary[..]].concat();
        let failed = sparse(&problem, &hyper, Through { dictionary: &twice, kind: Sparse::Vfe, jitter: 0.0 }, GO);
        assert!(matches!(failed, Err(EvidenceError::NotPositiveDefinite(_))), "{failed:?}");
        hyper.noise_variance = f64::NAN;
        assert!(exact(&problem, &hyper, GO).is_err());
    }

    #[test]
    fn the_number_of_threads_changes_no_bit() {
        let states: Vec<f64> = (0..4 * 3000).map(|i| (f64::from(i) * 0.618_033_988_749_895).fract() * 3.0).collect();
        let observed = states.chunks_exact(4).map(|x| x[0].sin() * x[1]).collect();
        let dictionary = states[..4 * 70].to_vec();
        let problem = Problem::correlated(4, states, Matrix::from_columns(3000, 1, observed));
        let (_, mut hyper) = small();
        hyper.kernel.metric = Metric::Ard(vec![1.0, 0.5, 0.2, 0.1]);
        let evaluate = || {
            sparse(&problem, &hyper, Through { dictionary: &dictionary, kind: Sparse::Vfe, jitter: 1e-6 }, GO).unwrap()
        };
        let alone = evaluate();
        for threads in [1, 2, 4] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            assert_eq!(pool.install(evaluate), alone, "{threads} threads");
        }
    }

    #[test]
    fn memory_kept_from_other_problems_changes_no_bit() {
        let (problem, hyper) = small();
        let observed = Matrix::from_columns(50, 1, problem.observed().col(0)[..50].to_vec());
        let few = Problem::correlated(1, problem.nodes()[..50].to_vec(), observed);
        let mut evaluator = Evaluator::default();
        for problem in [&few, &problem, &few] {
            assert_eq!(evaluator.exact(problem, &hyper, GO), exact(problem, &hyper, GO));
        }
    }

    #[test]
    fn at_the_best_overall_scale_the_fit_is_half_the_observations() {
        // Scaling (v0, b, sigma0^2) together by s: value = -n/2 log s - fit / s + const, best at s = fit / (n / 2).
        let (problem, mut hyper) = small();
        let scale = exact_value(&problem, &hyper, GO).unwrap().fit_ratio();
        hyper.kernel.signal_variance *= scale;
        hyper.kernel.bias_variance *= scale;
        hyper.noise_variance *= scale;
        let found = exact(&problem, &hyper, GO).unwrap();
        assert!((found.fit_ratio() - 1.0).abs() < 1e-9);
        assert!(found.gradient[..3].iter().sum::<f64>().abs() < 1e-6);
    }

    #[test]
    fn parameters_round_trip_and_are_named() {
        let metric = Metric::Factor { relevance: vec![1.0, 0.0], factors: vec![vec![0.5, -0.5]] };
        let kernel = Kernel::gaussian(2.0, 0.0, metric);
        let hyper = Hyperparameters { kernel, noise: NoiseModel::White, noise_variance: 1.0 };
        assert_eq!(from_parameters(&hyper, &to_parameters(&hyper)), hyper);
        let names = parameter_names(&hyper.kernel.metric, 2);
        assert_eq!(names[3..], ["log_relevance[0]", "log_relevance[1]", "factors[0][0]", "factors[0][1]"]);
        assert_eq!(parameter_names(&Metric::Isotropic(1.0), 5)[3..], ["log_relevance"]);
    }
}
