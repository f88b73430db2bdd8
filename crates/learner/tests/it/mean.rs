//! Mean functions: values are learned about them, and far from all rows they are what values are.

use crate::support::bytes;
use criticd_learner::heads::{Cumulant, Head, Rate};
use criticd_learner::math::dictionary::Dictionary;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Profile};
use criticd_learner::mean::{ELEMENTS_MAX, Linear, MEANS_MAX, Mean, MeanForm};
use criticd_learner::model::Model;
use criticd_learner::refit::{self, RefitTrigger};
use criticd_learner::snapshot::{Ask, Inputs, Snapshot};
use criticd_learner::transition::{Batch, BatchParts};
use criticd_learner::window::Window;
use criticd_learner::{Learner, LinearColumns, SelectionKind, Settings, Verdict};
use nalgebra::{DMatrix, DVector};
use std::sync::Arc;

const GAMMA: f64 = 0.9;

fn spread(k: usize) -> f64 {
    (k as f64 * 0.618_033_988_749_895).fract() - 0.5
}

fn constant(of: f64) -> Mean {
    Mean::of(MeanForm::Constant(of)).unwrap()
}

fn linear(constant: f64, weights: &[f64]) -> Mean {
    Mean::of(MeanForm::Linear(Linear { constant, weights: weights.to_vec() })).unwrap()
}

/// A model of two elements, with normalised inputs and a level.
fn model(dim: usize) -> Mean {
    let hyperparameters = hyperparameters(0.7);
    let dictionary = DMatrix::from_fn(2, dim, |i, d| spread(7 * i + d + 1));
    let inputs = Inputs { shift: vec![0.2; dim], scale: vec![1.5; dim], names: None };
    let snapshot = Snapshot {
        inputs,
        level: vec![-1.5],
        ..Snapshot::of(GAMMA, hyperparameters, dictionary, DMatrix::from_column_slice(2, 1, &[2.0, -3.0]))
    };
    Mean::of_model("sim.model".into(), &snapshot).unwrap()
}

fn hyperparameters(relevance: f64) -> Hyperparameters {
    let kernel = Kernel::gaussian(2.0, 0.0, Metric::Isotropic(relevance)).with_profile(Profile::Matern52);
    Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.3 }
}

/// Episodes of 2 to 6 steps along a line, each of which terminates, with a discount of its own for every third row.
fn episodes(count: usize) -> BatchParts {
    let mut parts = BatchParts { stream: "line".into(), dim: 1, rewards_per_row: 1, ..BatchParts::default() };
    let (mut next, mut terminated, mut discounts) = (Vec::new(), Vec::new(), Vec::new());
    for episode in 0..count {
        let steps = 2 + episode % 5;
        let mut x = 2.0 * spread(3 * episode + 1);
        for step in 0..steps {
            let k = terminated.len();
            let after = 0.8 * x + 0.3 * spread(11 * k);
            parts.states.push(x);
            next.push(after);
            parts.rewards.push((2.0 * x).sin() + 0.3 * spread(5 * k + 2));
            terminated.push(step + 1 == steps);
            discounts.push(if k.is_multiple_of(3) { 0.5 + 0.4 * spread(k) } else { GAMMA });
            x = after;
        }
    }
    BatchParts { next_states: Some(next), terminated: Some(terminated), discounts: Some(discounts), ..parts }
}

/// Rows in a window of their own; a row that terminates ends its chain.
fn window(parts: &BatchParts) -> Window {
    let batch = Batch::new(parts.clone()).unwrap();
    let ends = |i: usize| i == 0 || batch.terminated(i - 1) || batch.truncated(i - 1);
    let starts: Vec<bool> = (0..batch.len()).map(ends).collect();
    let mut window = Window::new(parts.dim, 1, batch.len());
    window.extend_from_batch(0, &starts, &batch);
    window
}

/// V(x) = m(x) + k(x, X) (K + sigma^2 I)^-1 (G - m(X)) at `asked`: with lambda = 1 and every state an element, of episodes that end.
fn dense(parts: &BatchParts, h: &Hyperparameters, m: impl Fn(f64) -> f64, asked: &[f64]) -> Vec<f64> {
    let (x, n) = (&parts.states, parts.states.len());
    let (terminated, discounts) = (parts.terminated.as_ref().unwrap(), parts.discounts.as_ref().unwrap());
    let mut returns = vec![0.0; n];
    for i in (0..n).rev() {
        let behind = if terminated[i] { 0.0 } else { discounts[i] * returns[i + 1] };
        returns[i] = parts.rewards[i] + behind;
    }
    let k = |a: f64, b: f64| h.kernel.eval(&[a], &[b]);
    // In the coordinates of the metric.
    let place = |x: f64| h.kernel.project(1, &[x])[0];
    let gram = DMatrix::from_fn(n, n, |i, j| k(place(x[i]), place(x[j])) + if i == j { h.noise_variance } else { 0.0 });
    let left = DVector::from_fn(n, |i, _| returns[i] - m(x[i]));
    let weights = gram.cholesky().unwrap().solve(&left);
    let at = |&q: &f64| m(q) + (0..n).map(|i| k(place(q), place(x[i])) * weights[i]).sum::<f64>();
    asked.iter().map(at).collect()
}

/// All rows learned under these hyperparameters, every state an element.
fn learned(parts: &BatchParts, mean: Option<Mean>, h: &Hyperparameters) -> Snapshot {
    let settings = Settings {
        discount: GAMMA,
        estimate_scale: false,
        tolerance: 1e-12,
        dictionary_max: parts.states.len(),
        mean,
        ..Settings::paper()
    };
    let rows = window(parts).flatten();
    let kernel = h.kernel.clone();
    let basis = Dictionary::from_elements(kernel, 1, &parts.states).unwrap();
    let mut model = Model::with_dictionary(settings, Inputs::identity(1), h, basis);
    model.learn(&rows, 0..rows.len(), 0);
    model.refresh();
    model.snapshot(true).unwrap()
}

#[test]
fn values_about_a_mean_are_the_dense_ones_and_far_away_the_mean() {
    let (parts, h) = (episodes(12), hyperparameters(6.0));
    let asked: Vec<f64> = (0..30).map(|k| 3.0 * spread(7 * k)).chain([40.0, -40.0]).collect();
    let plain = learned(&parts, None, &h);
    for (name, mean) in [("constant", constant(3.5)), ("linear", linear(0.5, &[-2.0])), ("model", model(1))] {
        let m = |x: f64| mean.values(&[x], 1)[0];
        let found = learned(&parts, Some(mean.clone()), &h);
        let all = found.evaluate(&asked, Ask::ALL).unwrap();
        let expected = dense(&parts, &h, m, &asked);
        for (k, (found, expected)) in all.mean.iter().zip(&expected).enumerate() {
            assert!((found - expected).abs() < 1e-6, "{name}, {}: {found} {expected}", asked[k]);
        }
        for (k, far) in asked.iter().enumerate().skip(30) {
            assert!((all.mean[k] - m(*far)).abs() < 1e-12 * (1.0 + m(*far).abs()), "{name}: {} at {far}", all.mean[k]);
        }
        let before = plain.evaluate(&asked, Ask::ALL).unwrap();
        assert_eq!(
            (&all.variance, &all.known, &all.extrapolates),
            (&before.variance, &before.known, &before.extrapolates)
        );
    }
    // What the numbers of a linear one are.
    assert_eq!(linear(0.5, &[-2.0, 3.0]).values(&[1.0, 10.0, 0.0, 0.0], 2), [28.5, 0.5]);
}

/// A walk in a linear world, cut every 25 rows: V(x) = a + b'x of expected steps x' = 0.9 x, rewards 1 + x_0 - 2 x_1, scaled.
fn world(n: usize, scale: f64, noise: f64) -> BatchParts {
    let (mut parts, mut next) =
        (BatchParts { stream: "walk".into(), dim: 2, rewards_per_row: 1, ..Default::default() }, Vec::new());
    let mut x = [0.0; 2];
    for i in 0..n {
        if i % 25 == 0 {
            x = [2.0 * spread(3 * i + 1), 2.0 * spread(5 * i + 2)];
        }
        let after = [0.9 * x[0] + noise * spread(7 * i), 0.9 * x[1] + noise * spread(11 * i)];
        parts.states.extend(x);
        next.extend(after);
        parts.rewards.push(scale * (1.0 + x[0] - 2.0 * x[1]));
        x = after;
    }
    let truncated = (0..n).map(|i| i % 25 == 24).collect();
    BatchParts { next_states: Some(next), truncated: Some(truncated), ..parts }
}

fn truth(x: &[f64]) -> f64 {
    let slope = 1.0 / (1.0 - GAMMA * 0.9);
    1.0 / (1.0 - GAMMA) + slope * x[0] - 2.0 * slope * x[1]
}

fn settings() -> Settings {
    Settings { name: "main".into(), discount: GAMMA, dictionary_max: 60, refit_first_rows: 0, ..Settings::default() }
}

fn with_mean(mean: &Mean) -> Settings {
    Settings { mean: Some(mean.clone()), ..settings() }
}

fn places() -> Vec<f64> {
    (0..60).flat_map(|k| [1.8 * spread(k + 1), 1.8 * spread(7 * k + 3)]).collect()
}

/// Root mean square of the errors of values (n,) of the places.
fn error_of(found: &[f64]) -> f64 {
    let square = |(found, x): (&f64, &[f64])| (found - truth(x)).powi(2);
    (found.iter().zip(places().chunks_exact(2)).map(square).sum::<f64>() / found.len() as f64).sqrt()
}

fn error(snapshot: &Snapshot) -> f64 {
    error_of(snapshot.evaluate(&places(), Ask::MEAN).unwrap().mean.as_slice())
}

fn adopt(learner: &mut Learner, window: &Window) {
    let job = learner.refit_job(window, RefitTrigger::Requested).unwrap();
    let candidate = refit::run(&job, &|| true).unwrap();
    let verdict = learner.try_adopt(candidate, window);
    assert!(matches!(verdict, Verdict::Adopted { .. }), "{verdict:?}");
}

/// What is published of 200 rows, without a refit and with one.
fn published(settings: Settings, parts: &BatchParts) -> [Snapshot; 2] {
    let (window, mut learner) = (window(parts), Learner::new(settings, None));
    learner.step(&window);
    let before = learner.snapshot(true).unwrap();
    adopt(&mut learner, &window);
    let read: Learner = rmp_serde::from_slice(&bytes(&learner)).unwrap();
    assert_eq!(read.snapshot(true).unwrap(), learner.snapshot(true).unwrap());
    assert_eq!(bytes(&read), bytes(&learner), "with the model of the mean");
    [before, learner.snapshot(true).unwrap()]
}

#[test]
fn about_the_true_values_nothing_is_left_to_learn() {
    let slope = 1.0 / (1.0 - GAMMA * 0.9);
    let mean = linear(1.0 / (1.0 - GAMMA), &[slope, -2.0 * slope]);
    for rows in [1, 10, 200] {
        let (window, mut learner) = (window(&world(rows, 1.0, 0.0)), Learner::new(with_mean(&mean), None));
        learner.step(&window);
        assert!(error(&learner.snapshot(true).unwrap()) < 1e-9, "{rows} rows");
        // There is nothing that a refit could go by, and so it says.
        let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
        assert!(refit::run(&job, &|| true).is_err());
    }
    // Where a step is by chance what is left of returns is noise.
    for selection in [SelectionKind::Returns, SelectionKind::Evidence] {
        for snapshot in published(Settings { selection, ..with_mean(&mean) }, &world(200, 1.0, 0.1)) {
            assert!(error(&snapshot) < 0.5, "{selection:?}: {}", error(&snapshot));
        }
    }
}

/// A simulator whose rewards are too small by a tenth; its model was learned from many rows.
fn simulated() -> Snapshot {
    let rows = world(2000, 0.9, 0.4);
    let mut learner = Learner::new(Settings { refit_budget_s: 5.0, ..settings() }, None);
    let window = window(&rows);
    learner.step(&window);
    adopt(&mut learner, &window);
    learner.snapshot(true).unwrap()
}

#[test]
fn a_simulator_that_is_a_tenth_off_makes_two_hundred_real_rows_worth_more() {
    let mean = Mean::of_model("sim.model".into(), &simulated()).unwrap();
    let settings = Settings { linear_columns: LinearColumns::Never, ..settings() };
    let of_simulator = error_of(&mean.values(&places(), 2));
    let rows = world(200, 1.0, 0.2);
    let [_, without] = published(settings.clone(), &rows);
    let [_, with] = published(Settings { mean: Some(mean.clone()), ..settings }, &rows);
    let (with_error, without_error) = (error(&with), error(&without));
    let said = format!("{with_error} with both, {without_error} of real rows, {of_simulator} of the simulator");
    assert!(with_error < 0.95 * without_error && with_error < 0.9 * of_simulator, "{said}");
    // Far from all rows it is what the simulator says.
    let far = [30.0, -30.0];
    let said = with.evaluate(&far, Ask::MEAN).unwrap().mean[0];
    assert!((said - mean.values(&far, 2)[0]).abs() < 1e-3, "{said}");
}

#[test]
fn heads_know_no_mean() {
    let sum = |name: &str, discount: f64| Head::new(name, Cumulant::Reward(0), Rate::Discount(discount));
    let heads = vec![sum("near", 0.5), Head::new("x", Cumulant::State(0), Rate::Discount(0.8))];
    let settings = Settings { heads, evidence_rows: 100, heads_split: false, ..settings() };
    let of = |mean| {
        let settings = Settings { mean, ..settings.clone() };
        let (window, mut learner) = (window(&world(200, 1.0, 0.4)), Learner::new(settings, None));
        learner.step(&window);
        let first = learner.snapshot(false).unwrap();
        adopt(&mut learner, &window);
        [first, learner.snapshot(false).unwrap()]
            .map(|snapshot| snapshot.evaluate_heads(&places(), &[0, 1], false).unwrap().mean)
    };
    let (with, without) = (of(Some(constant(1e3))), of(None));
    for (at, (with, without)) in with.iter().zip(&without).enumerate() {
        // Their kernel is the values', which differs.
        for (h, most) in [(0, 2.0), (1, 2.0)] {
            let apart = (with.column(h) - without.column(h)).amax();
            assert!(apart < most, "head {h}, {at}: {apart} apart");
        }
    }
}

#[test]
fn what_is_no_mean_is_refused() {
    assert!(Mean::of(MeanForm::Constant(f64::NAN)).unwrap_err().contains("from -1e9"));
    assert!(Mean::of(MeanForm::Linear(Linear { constant: 0.0, weights: vec![] })).unwrap_err().contains("one weight"));
    let of = |rewards: usize| {
        Snapshot::of(GAMMA, hyperparameters(1.0), DMatrix::zeros(1, 1), DMatrix::from_element(1, rewards, 1.0))
    };
    assert!(Mean::of_model("m".into(), &of(2)).unwrap_err().contains("one reward"));
    let large = |elements: usize| {
        let (dictionary, weights) = (DMatrix::zeros(elements, 1), DMatrix::zeros(elements, 1));
        Snapshot::of(GAMMA, hyperparameters(1.0), dictionary, weights)
    };
    assert!(Mean::of_model("m".into(), &large(ELEMENTS_MAX + 1)).unwrap_err().contains("at most 20000 elements"));
    let half = large(ELEMENTS_MAX / 2 + 1);
    let about_half = Snapshot { mean: Some(Arc::new(half.clone())), ..half };
    assert!(Mean::of_model("m".into(), &about_half).unwrap_err().contains("this one has 20002"));
    let missing = Mean::of(MeanForm::Model("gone.model".into())).unwrap();
    assert_eq!((missing.missing(), missing.dim()), (Some("gone.model"), None));
    let mut snapshot = of(1);
    for behind in 0..MEANS_MAX {
        let mean = Mean::of_model("m".into(), &snapshot).unwrap();
        assert!((mean.values(&[0.0], 1)[0] - 2.0 * (behind + 1) as f64).abs() < 1e-12);
        snapshot = of(1);
        mean.add_to(&mut snapshot);
    }
    assert!(Mean::of_model("m".into(), &snapshot).unwrap_err().contains("means"));
}
