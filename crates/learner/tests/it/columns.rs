//! Explicit columns: a constant and linear functions of the state beside the kernel are exact, whatever the dictionary, and
//! everything that is made of features knows them.

use crate::support::bytes;
use criticd_learner::KindSetting;
use criticd_learner::action::{ActionSpace, ActionValue, Successor, Trace};
use criticd_learner::influence::influence;
use criticd_learner::math::columns::GivenFunction;
use criticd_learner::math::dictionary::Dictionary;
use criticd_learner::math::embedding::StateKind::{self, Category, Periodic, Real};
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Profile};
use criticd_learner::model::Model;
use criticd_learner::refit::{self, RefitTrigger};
use criticd_learner::snapshot::{Ask, Evaluator, Inputs, Snapshot};
use criticd_learner::transition::Rows;
use criticd_learner::window::Window;
use criticd_learner::{Lambda, Learner, LinearColumns, SelectionKind, Settings, VarianceKind, Verdict};
use nalgebra::{DMatrix, DVector};

const KINDS: [StateKind; 3] = [Real, Periodic(4.0), Category];
const DIM: usize = 3;
/// b, and the variance of the linear columns.
const CONSTANT: f64 = 3.0;
const LINEAR: f64 = 1.5;
const NOISE: f64 = 0.2;

fn spread(k: usize) -> f64 {
    (k as f64 * 0.618_033_988_749_895).fract()
}

fn state(k: usize) -> [f64; DIM] {
    [4.0 * spread(k) - 2.0, 8.0 * spread(7 * k + 3), (3.0 * spread(5 * k + 1)).floor()]
}

fn kernel(linear: f64) -> Kernel {
    Kernel::gaussian(2.0, CONSTANT, Metric::Ard(vec![0.7, 0.4, 0.3]))
        .with_profile(Profile::Matern52)
        .with_kinds(&KINDS)
        .with_linear_columns(DIM, linear, GivenFunction::Linear)
}

fn hyperparameters(linear: f64) -> Hyperparameters {
    Hyperparameters { kernel: kernel(linear), noise: NoiseModel::Correlated, noise_variance: NOISE }
}

/// k by the formula and nothing else.
fn covariance(a: &[f64], b: &[f64]) -> f64 {
    let plain = kernel(0.0);
    let of = |x: &[f64]| {
        let angle = std::f64::consts::TAU * x[1] / 4.0;
        [x[0], angle.cos(), angle.sin()]
    };
    let linear: f64 = of(a).iter().zip(of(b)).map(|(a, b)| a * b).sum();
    plain.eval(&plain.project(DIM, a), &plain.project(DIM, b)) + LINEAR * linear
}

/// n rows in chains of `length`, the last of each terminated or cut in turn.
fn rows(n: usize, length: usize) -> Rows {
    let mut rows = Rows::new(DIM, 1);
    for i in 0..n {
        let last = i % length + 1 == length || i + 1 == n;
        rows.states.extend(state(i));
        rows.next_states.extend(state(i + 1));
        rows.rewards.push(1.0 + state(i)[0] + (3.0 * spread(11 * i)).sin());
        rows.discounts.push(f64::NAN);
        rows.ratios.push(1.0);
        rows.streams.push(0);
        rows.starts_chain.push(i % length == 0);
        rows.terminated.push(last && (length == 1 || (i / length).is_multiple_of(2)));
        rows.truncated.push(last && length > 1 && !(i / length).is_multiple_of(2));
    }
    rows
}

fn settings() -> Settings {
    Settings { discount: 0.8, estimate_scale: false, state_kinds: KindSetting::known(&KINDS), ..Settings::paper() }
}

fn learned(settings: &Settings, linear: f64, rows: &Rows, dictionary: Option<Dictionary>) -> Model {
    let (inputs, hyperparameters) = (Inputs::identity(DIM), hyperparameters(linear));
    let mut model = match dictionary {
        Some(dictionary) => Model::with_dictionary(settings.clone(), inputs, &hyperparameters, dictionary),
        None => Model::new(settings.clone(), inputs, &hyperparameters),
    };
    model.learn(rows, 0..rows.len(), 0);
    model.refresh();
    model
}

fn asked(count: usize) -> Vec<f64> {
    (0..count).flat_map(|k| state(1000 + k)).collect()
}

#[test]
fn with_a_dictionary_of_every_state_the_posterior_is_that_of_the_whole_kernel() {
    let (n, rows) = (40, rows(40, 1));
    let dictionary = Dictionary::from_elements(kernel(LINEAR), DIM, &rows.states).unwrap();
    assert_eq!((dictionary.columns(), dictionary.elements_len(), dictionary.len()), (4, n, n + 4));
    let model = learned(&settings(), LINEAR, &rows, Some(dictionary));
    let snapshot = model.snapshot(true).unwrap();
    assert_eq!((snapshot.dictionary.nrows(), snapshot.weights.nrows(), snapshot.features()), (n, n + 4, n + 4));
    let at = |i: usize| &rows.states[i * DIM..(i + 1) * DIM];
    let mut gram = DMatrix::from_fn(n, n, |i, j| covariance(at(i), at(j)));
    (0..n).for_each(|i| gram[(i, i)] += NOISE);
    let factor = gram.cholesky().unwrap();
    let y = DVector::from_vec(rows.rewards.clone());
    let states = asked(30);
    let found = snapshot.evaluate(&states, Ask::ALL).unwrap();
    for (k, x) in states.chunks_exact(DIM).enumerate() {
        let row = DVector::from_fn(n, |i, _| covariance(at(i), x));
        let (mean, prior) = (row.dot(&factor.solve(&y)), covariance(x, x));
        let variance = prior - row.dot(&factor.solve(&row));
        assert!((found.mean[(k, 0)] - mean).abs() < 1e-8, "{k}: {} {mean}", found.mean[(k, 0)]);
        let (given, known) = (found.variance.as_ref().unwrap()[k], found.known.as_ref().unwrap()[k]);
        assert!((given - variance).abs() < 1e-8, "{k}: {given} {variance}");
        let signal = kernel(LINEAR).signal_variance;
        assert!((known - (1.0 - variance / signal).max(0.0)).abs() < 1e-8, "{k}: {known}");
    }
    // The sparse evidence of everything is the exact one.
    let posterior = model.solve().unwrap();
    let quadratic = y.dot(&factor.solve(&y));
    let exact = -0.5 * (quadratic + factor.determinant().ln() + n as f64 * std::f64::consts::TAU.ln());
    assert!((posterior.log_evidence().unwrap() - exact).abs() < 1e-7 * exact.abs());
    assert!(posterior.trace_gap(model.statistics()) < 1e-7);
}

#[test]
fn an_element_that_is_admitted_on_the_way_is_as_if_it_had_always_been_there() {
    let rows = rows(150, 15);
    for lambda in [0.0, 0.7, 1.0] {
        let settings = Settings { dictionary_max: 60, lambda: Lambda::Fixed(lambda), ..settings() };
        let online = learned(&settings, LINEAR, &rows, None);
        let mut dictionary = online.dictionary().clone();
        assert!(dictionary.elements_len() > 10 && dictionary.elements_len() < 100, "{}", dictionary.elements_len());
        dictionary.close();
        let known = learned(&settings, LINEAR, &rows, Some(dictionary));
        let weights = |model: &Model| model.solve().unwrap().feature_weights().col(0).to_vec();
        for (a, b) in weights(&online).iter().zip(weights(&known)) {
            assert!((a - b).abs() < 1e-8, "lambda {lambda}: {a} {b}");
        }
        let diagonal = |model: &Model| -> Vec<f64> {
            let gram = &model.statistics().gram;
            (0..gram.rows()).map(|i| gram.at(i, i)).collect()
        };
        for (a, b) in diagonal(&online).iter().zip(diagonal(&known)) {
            assert!((a - b).abs() < 1e-9 * (1.0 + b.abs()), "lambda {lambda}: {a} {b}");
        }
        assert!((online.statistics().prior_trace - known.statistics().prior_trace).abs() < 1e-9);
    }
}

#[test]
fn a_line_goes_on_where_no_row_has_been() {
    let mut rows = rows(60, 1);
    for i in 0..60 {
        rows.rewards[i] = 5.0 + 2.0 * rows.states[i * DIM];
    }
    let far = [50.0, 1.0, 0.0];
    let ask = |linear: f64| {
        let model = learned(&settings(), linear, &rows, None);
        let found = model.snapshot(true).unwrap().evaluate(&far, Ask::ALL).unwrap();
        (found.mean[(0, 0)], found.variance.unwrap()[0].sqrt(), found.extrapolates.unwrap()[0])
    };
    let (line, deviation, far_off) = ask(LINEAR);
    assert!((line - 105.0).abs() < 15.0 && (line - 105.0).abs() < 3.0 * deviation && far_off, "{line} +- {deviation}");
    let (flat, ..) = ask(0.0);
    assert!(flat < 20.0, "{flat}");
}

#[test]
fn without_linear_columns_nothing_is_another_bit() {
    let plain = Kernel::gaussian(2.0, CONSTANT, Metric::Isotropic(0.5));
    assert_eq!(plain.clone().with_linear_columns(DIM, 0.0, GivenFunction::Bounded), plain);
    let written = rmp_serde::to_vec_named(&plain).unwrap();
    assert!(!String::from_utf8_lossy(&written).contains("columns"));
}

#[test]
fn what_is_published_is_what_the_formula_says() {
    let rows = rows(150, 15);
    let settings = Settings { variance: VarianceKind::Rows, tolerance: 0.05, ..settings() };
    let mut model = learned(&settings, LINEAR, &rows, None);
    model.revisit(std::iter::once((&rows, 0..rows.len(), 0)));
    let snapshot = model.snapshot(true).unwrap();
    let states = asked(60);
    let kernel = &snapshot.hyperparameters.kernel;
    let (whole, each) =
        (Evaluator::new(snapshot.clone()).evaluate(&states, Ask::ALL), snapshot.evaluate(&states, Ask::ALL));
    assert_eq!(whole.unwrap(), each.clone().unwrap());
    let each = each.unwrap();
    for (k, x) in states.chunks_exact(DIM).enumerate() {
        let point = kernel.project(DIM, x);
        let columns = kernel.columns.iter().map(|column| column.variance * column.value(x, &KINDS));
        let elements = (0..snapshot.dictionary.nrows()).map(|i| {
            let element: Vec<f64> = snapshot.dictionary.row(i).iter().copied().collect();
            kernel.eval(&kernel.project(DIM, &element), &point)
        });
        let row = DVector::from_iterator(snapshot.features(), columns.chain(elements));
        let mean = row.dot(&snapshot.weights.column(0));
        assert!((each.mean[(k, 0)] - mean).abs() < 1e-9, "{k}");
        let variance = covariance(x, x) - row.dot(&(snapshot.variance.as_ref().unwrap() * &row));
        assert!((each.variance.as_ref().unwrap()[k] - variance.max(0.0)).abs() < 1e-9, "{k}");
        let spread = snapshot.returns.as_ref().unwrap();
        let of_return = variance.max(0.0) + (spread.level[0] + row.dot(&spread.weights.column(0))).max(spread.floor[0]);
        let found = each.return_variance.as_ref().unwrap()[(k, 0)];
        assert!((found - spread.factor.powi(2) * of_return).abs() < 1e-9, "{k}");
    }
    // How steep V is along each variable, by differences.
    let found = influence(&snapshot, 0, &states);
    let value = |x: &[f64]| snapshot.evaluate(x, Ask::MEAN).unwrap().mean[(0, 0)];
    for d in 0..2 {
        let square = |x: &[f64]| {
            let moved = |by: f64| {
                let mut moved = x.to_vec();
                moved[d] += by;
                value(&moved)
            };
            ((moved(1e-5) - moved(-1e-5)) / 2e-5).powi(2)
        };
        let column: Vec<f64> = states.iter().skip(d).step_by(DIM).copied().collect();
        let mean = column.iter().sum::<f64>() / 60.0;
        let variance = column.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 60.0;
        let expected = states.chunks_exact(DIM).map(square).sum::<f64>() / 60.0 * variance;
        assert!((found[d] - expected).abs() < 1e-5 * expected, "{d}: {} {expected}", found[d]);
    }
}

/// A walk between -1 and 1 along the first of two variables, in episodes that are cut; a reward that is linear in it.
fn window(n: usize) -> Window {
    let mut rows = Rows::new(2, 1);
    let mut x = 0.0f64;
    for i in 0..n {
        let next = (0.95 * x + 0.6 * (spread(i * 3 + 1) - 0.5)).clamp(-1.0, 1.0);
        let cut = i % 50 == 49;
        rows.states.extend([x, spread(i)]);
        rows.next_states.extend([next, spread(i + 1)]);
        rows.rewards.push(3.0 * x + 0.3 * (spread(17 * i) - 0.5));
        rows.discounts.push(f64::NAN);
        rows.ratios.push(1.0);
        rows.streams.push(0);
        rows.starts_chain.push(i % 50 == 0);
        rows.terminated.push(false);
        rows.truncated.push(cut);
        x = if cut { 2.0 * spread(i * 7) - 1.0 } else { next };
    }
    let mut window = Window::new(2, 1, n);
    window.extend(&rows, 0..n);
    window
}

fn selected(linear_columns: LinearColumns, selection: SelectionKind) -> (Learner, Snapshot, Vec<String>) {
    let settings = Settings {
        name: "main".into(),
        discount: 0.9,
        linear_columns,
        selection,
        dictionary_max: 60,
        refit_first_rows: 0,
        ..Settings::default()
    };
    let window = window(1000);
    let mut learner = Learner::new(settings, None);
    learner.step(&window);
    let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
    let candidate = refit::run(&job, &|| true).unwrap();
    let compared = candidate.report.selection.iter().flat_map(|found| &found.candidates);
    let names = compared.map(|candidate| candidate.name.clone()).collect();
    assert!(matches!(learner.try_adopt(candidate, &window), Verdict::Adopted { .. }));
    let snapshot = learner.snapshot(true).unwrap();
    (learner, snapshot, names)
}

#[test]
fn a_refit_compares_kernels_with_columns_and_without() {
    let (mut learner, snapshot, names) = selected(LinearColumns::Auto, SelectionKind::Returns);
    let (with, without): (Vec<&String>, Vec<&String>) = names.iter().partition(|name| name.ends_with(" + linear"));
    assert!(!with.is_empty() && !without.is_empty(), "{names:?}");
    assert_eq!(snapshot.hyperparameters.kernel.columns(), 3, "a linear value: {names:?}");
    // The model goes on after a round trip, and is learned further, by the same bits.
    let mut read: Learner = rmp_serde::from_slice(&bytes(&learner)).unwrap();
    assert!(read.is_consistent());
    assert_eq!(read.snapshot(true).unwrap(), snapshot);
    let more = window(1300);
    learner.step(&more);
    read.step(&more);
    assert_eq!(read.snapshot(true).unwrap(), learner.snapshot(true).unwrap());
    let (_, snapshot, names) = selected(LinearColumns::Never, SelectionKind::Returns);
    assert!(snapshot.hyperparameters.kernel.columns.is_empty() && names.iter().all(|name| !name.contains("linear")));
    let (_, snapshot, names) = selected(LinearColumns::Always, SelectionKind::Returns);
    assert_eq!(snapshot.hyperparameters.kernel.columns(), 3);
    assert!(names.iter().all(|name| name.ends_with(" + linear")), "{names:?}");
    let (_, snapshot, _) = selected(LinearColumns::Auto, SelectionKind::Evidence);
    assert!(snapshot.hyperparameters.kernel.columns.is_empty(), "evidence selects as it did");
}

#[test]
fn lines_of_values_are_bounded_unless_they_are_asked_for() {
    let line = |settings: Settings| settings.line()(3);
    let of = |discount, linear_columns| line(Settings { discount, linear_columns, ..Settings::default() });
    assert_eq!(of(0.9, LinearColumns::Auto), GivenFunction::Bounded(3));
    assert_eq!(of(0.0, LinearColumns::Auto), GivenFunction::Linear(3));
    assert_eq!(of(0.9, LinearColumns::Always), GivenFunction::Linear(3));
    let of_actions =
        ActionValue { space: ActionSpace::Discrete(2), successor: Successor::Sarsa, trace: Trace::OnPolicy };
    assert_eq!(line(Settings { action_value: Some(of_actions), ..Settings::default() }), GivenFunction::Linear(3));
}
