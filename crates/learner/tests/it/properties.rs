//! What must hold for any input.

use criticd_learner::Settings;
use criticd_learner::math::dense::Matrix;
use criticd_learner::math::dictionary::select;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Points, Profile};
use criticd_learner::model::Model;
use criticd_learner::snapshot::{Ask, Inputs};
use criticd_learner::transition::Rows;
use criticd_reference::{distance, explicit_seed, push, wander};
use proptest::prelude::*;

fn metric(dim: usize) -> impl Strategy<Value = Metric> {
    let relevance = prop::collection::vec(1e-3..20.0f64, dim);
    let direction = prop::collection::vec(-3.0..3.0f64, dim);
    prop_oneof![
        (1e-3..20.0f64).prop_map(Metric::Isotropic),
        relevance.clone().prop_map(Metric::Ard),
        (relevance, prop::collection::vec(direction, 1..3))
            .prop_map(|(relevance, factors)| Metric::Factor { relevance, factors }),
    ]
}

fn kernel(dim: usize) -> impl Strategy<Value = Kernel> {
    let profile = prop_oneof![Just(Profile::Gaussian), Just(Profile::Matern52)];
    (0.1..10.0f64, 0.0..5.0f64, metric(dim), profile).prop_map(|(signal_variance, bias_variance, metric, profile)| {
        Kernel::gaussian(signal_variance, bias_variance, metric).with_profile(profile)
    })
}

fn states(dim: usize) -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec(-2.0..2.0f64, dim * 2..dim * 40).prop_map(move |mut x| {
        x.truncate(x.len() / dim * dim);
        x
    })
}

fn gram(kernel: &Kernel, dim: usize, states: &[f64]) -> Matrix {
    let points = kernel.project(dim, states);
    let n = states.len() / dim;
    let mut out = Matrix::zeros(n, n);
    kernel.block(&Points::new(kernel.projected_dim(dim), &points), &points, &mut out.view_mut());
    out
}

fn hyperparameters(kernel: Kernel) -> Hyperparameters {
    Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.3 }
}

fn fixed() -> Settings {
    Settings { estimate_scale: false, tolerance: 1e-3, discount: 0.9, ..Settings::paper() }
}

fn learn(rows: &Rows, hyper: &Hyperparameters, settings: Settings) -> Model {
    let mut model = Model::new(settings, Inputs::identity(rows.dim), hyper);
    model.learn(rows, 0..rows.len(), 0);
    model
}

fn query() -> Vec<f64> {
    (0..60).map(|k| 1.5 * (k as f64 * 0.7).sin()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..explicit_seed() })]

    #[test]
    fn kernels_are_symmetric_and_positive_semidefinite((kernel, x) in (kernel(3), states(3))) {
        let k = gram(&kernel, 3, &x).to_nalgebra();
        prop_assert!((&k - k.transpose()).amax() < 1e-12);
        let smallest = k.clone().symmetric_eigenvalues().min();
        prop_assert!(smallest > -1e-11 * kernel.diagonal() * k.nrows() as f64, "{smallest}");
    }

    #[test]
    fn pivots_exceed_the_tolerance_and_copies_never_enter(
        (kernel, x, relative) in (kernel(2), states(2), 1e-6..0.5f64)
    ) {
        let tolerance = relative * kernel.diagonal();
        let twice = [x.clone(), x.clone()].concat();
        let (dictionary, pivots) = select(&kernel, 2, &twice, tolerance, 1000);
        prop_assert!(dictionary.len() <= x.len() / 2);
        prop_assert!(pivots.residuals.iter().all(|&r| r > tolerance));
        for i in 0..dictionary.len() {
            prop_assert!(dictionary.factor().at(i, i).powi(2) > tolerance * (1.0 - 1e-9));
        }
    }

    #[test]
    fn variance_is_never_negative_nor_raised_by_data((kernel, seed) in (kernel(2), 0..1000u64)) {
        let rows = wander(300, 3, 1, seed);
        let hyper = hyperparameters(kernel);
        let (mut basis, _) = select(&hyper.kernel, 2, &rows.states, 0.05 * hyper.kernel.diagonal(), 60);
        basis.set_max(0); // it keeps what it has
        let mut model = Model::with_dictionary(fixed(), Inputs::identity(2), &hyper, basis);
        let mut last: Option<Vec<f64>> = None;
        for part in [0..100, 100..200, 200..300] {
            let start = part.start as u64;
            model.learn(&rows, part, start);
            let found = model.snapshot(true).unwrap().evaluate(&query(), Ask::VARIANCE).unwrap().variance.unwrap();
            prop_assert!(found.iter().all(|&v| (0.0..=hyper.kernel.diagonal() * (1.0 + 1e-9)).contains(&v)));
            if let Some(last) = last {
                // New elements would add to it, but the dictionary is full.
                prop_assert!(found.iter().zip(&last).all(|(v, before)| *v <= before + 1e-7 * hyper.kernel.diagonal()));
            }
            last = Some(found);
        }
    }

    #[test]
    fn scaling_rewards_scales_values((kernel, seed, factor) in (kernel(2), 0..1000u64, 0.01..100.0f64)) {
        let rows = wander(200, 2, 1, seed);
        let mut scaled = rows.clone();
        scaled.rewards.iter_mut().for_each(|r| *r *= factor);
        let hyper = hyperparameters(kernel);
        let predict = |rows: &Rows| {
            let found = learn(rows, &hyper, fixed()).snapshot(false).unwrap().evaluate(&query(), Ask::MEAN).unwrap();
            found.mean.as_slice().to_vec()
        };
        let expected: Vec<f64> = predict(&rows).iter().map(|v| v * factor).collect();
        prop_assert!(distance(&predict(&scaled), &expected) < 1e-8);
    }

    #[test]
    fn naming_the_coordinates_in_another_order_changes_nothing((a, b, seed) in (0.1..10.0f64, 0.1..10.0f64, 0..1000u64)) {
        let rows = wander(200, 2, 1, seed);
        let swap = |x: &[f64]| x.chunks_exact(2).flat_map(|p| [p[1], p[0]]).collect::<Vec<f64>>();
        let swapped = Rows { states: swap(&rows.states), next_states: swap(&rows.next_states), ..rows.clone() };
        let predict = |rows: &Rows, relevance: Vec<f64>, query: &[f64]| {
            let metric = Metric::Ard(relevance);
            let hyper = hyperparameters(Kernel::gaussian(2.0, 0.5, metric));
            let found = learn(rows, &hyper, fixed()).snapshot(false).unwrap().evaluate(query, Ask::MEAN).unwrap();
            found.mean.as_slice().to_vec()
        };
        let found = predict(&swapped, vec![b, a], &swap(&query()));
        prop_assert!(distance(&found, &predict(&rows, vec![a, b], &query())) < 1e-8);
    }
}

#[test]
fn termination_cuts_the_bootstrap_and_truncation_does_not() {
    // One state that pays 1 for ever, seen in episodes of one row: worth 1 if it ends there, 1 / (1 - gamma) if it was cut.
    let predict = |terminated: bool| {
        let mut rows = Rows::new(1, 1);
        for _ in 0..2000 {
            push(&mut rows, 0, true, &[0.0], &[1.0], &[0.0], terminated, !terminated);
        }
        let kernel = Kernel::gaussian(10.0, 0.0, Metric::Isotropic(1.0));
        let model = learn(&rows, &hyperparameters(kernel), fixed());
        model.snapshot(false).unwrap().evaluate(&[0.0], Ask::MEAN).unwrap().mean[(0, 0)]
    };
    assert!((predict(true) - 1.0).abs() < 1e-3, "{}", predict(true));
    assert!((predict(false) - 10.0).abs() < 1e-2, "{}", predict(false));
}

#[test]
fn degenerate_streams_give_a_model_that_can_be_read() {
    use criticd_learner::Learner;
    use criticd_learner::window::Window;
    type Row = fn(usize) -> (Vec<f64>, f64);
    let cases: [(&str, Row); 4] = [
        ("one state over and over", |_| (vec![0.5, -3.0], 1.0)),
        ("no reward at all", |i| (vec![(i as f64).sin(), (i as f64).cos()], 0.0)),
        ("a constant coordinate", |i| (vec![(i as f64 * 0.1).sin(), 7.0], (i as f64 * 0.1).sin())),
        ("scales of 1e-6 beside 1e6", |i| (vec![1e-6 * (i as f64).sin(), 1e6 * (i as f64 * 0.3).cos()], 1.0)),
    ];
    for (what, row) in cases {
        let mut window = Window::new(2, 1, 10_000);
        let mut rows = Rows::new(2, 1);
        for i in 0..600 {
            let ((state, reward), (next, _)) = (row(i), row(i + 1));
            push(&mut rows, 0, i == 0, &state, &[reward], &next, i % 50 == 49, false);
        }
        window.extend(&rows, 0..rows.len());
        let mut learner = Learner::new(Settings::paper(), None);
        learner.step(&window);
        let before = learner.snapshot(true).unwrap_or_else(|e| panic!("{what}: {e}"));
        learner.request_refit();
        let job = learner.refit_job(&window, learner.refit_due().unwrap()).unwrap();
        match criticd_learner::refit::run(&job, &|| true) {
            Ok(candidate) => drop(learner.try_adopt(candidate, &window)),
            Err(why) => {
                eprintln!("{what}: {why}");
                learner.refit_failed();
            }
        }
        for snapshot in [before, learner.snapshot(true).unwrap()] {
            let found = snapshot.evaluate(&rows.states[..40], Ask::VARIANCE).unwrap();
            assert!(found.mean.iter().all(|v| v.is_finite()), "{what}: {:?}", found.mean);
            assert!(found.variance.unwrap().iter().all(|v| v.is_finite() && *v >= 0.0), "{what}");
        }
    }
}
