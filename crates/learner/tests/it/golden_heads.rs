//! Rows that are forgotten count as an independent implementation says (tests/golden-heads), however they were batched.

use crate::support::error;
use criticd_learner::math::dictionary::Dictionary;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::model::Model;
use criticd_learner::snapshot::{Ask, Inputs};
use criticd_learner::transition::Rows;
use criticd_learner::{Lambda, SelectionKind, Settings, VarianceKind};
use criticd_reference::golden_heads::{half_life, heads, read, rows};
use criticd_reference::numbers;
use nalgebra::{DMatrix, DVector};
use serde_json::Value;

/// A model of one head that has learned nothing.
fn empty(case: &Value, head: &Value, settings: Settings) -> Model {
    let signal = head["signal"].as_f64().unwrap_or(1.0);
    let number = |key: &str| signal * case["kernel"][key].as_f64().unwrap();
    let kernel = Kernel::gaussian(number("v0"), number("b"), Metric::Ard(numbers(&case["kernel"]["a"])));
    let settings = Settings {
        discount: head["discount"].as_f64().unwrap(),
        forgetting: half_life(case),
        estimate_scale: false,
        ..settings
    };
    let states: Vec<f64> = numbers(&case["dictionary"]);
    let mut dictionary = Dictionary::from_elements(kernel.clone(), 2, &states).unwrap();
    dictionary.close();
    let noise_variance = head["noise_variance"].as_f64().unwrap();
    let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance };
    Model::with_dictionary(settings, Inputs::identity(2), &hyperparameters, dictionary)
}

/// Learn `rows`, the first of which has offset `first`, in pieces of so many.
fn learn(model: &mut Model, rows: &Rows, first: u64, piece: usize) {
    for start in (0..rows.len()).step_by(piece) {
        model.learn(rows, start..rows.len().min(start + piece), first + start as u64);
    }
    model.refresh();
}

fn paper() -> Settings {
    Settings { refresh_rows: 16, ..Settings::paper() }
}

fn returns() -> Settings {
    Settings { lambda: Lambda::Fixed(1.0), selection: SelectionKind::Returns, ..paper() }
}

#[test]
fn what_is_forgotten_is_the_reference() {
    let case = read("forgetting_16");
    let query = numbers(&case["query"]);
    for head in heads(&case) {
        let expected = &case["expected"][head["name"].as_str().unwrap()];
        let rows = rows(&case, head);
        // The reference moves on the way, and what statistics are kept in is not 1 at the end.
        for (settings, first) in [(paper(), 0), (returns(), 0), (paper(), 4079), (returns(), 4000)] {
            let follows = settings.selection == SelectionKind::Returns;
            let mut model = empty(&case, head, settings);
            learn(&mut model, &rows, first, 60);
            let (statistics, unit) = (model.statistics(), model.statistics().unit());
            let told = format!("{} follows {follows} from {first}", head["name"]);
            assert!(unit > 1.0, "{told}");
            // The reference has features of the case's kernel, and not of the head's.
            let size = unit * head["signal"].as_f64().unwrap_or(1.0).sqrt();
            let p: Vec<f64> = statistics.response.col(0).iter().map(|p| p / size).collect();
            assert!(error(&p, &numbers(&expected["p"])) < 1e-11, "{told}: p");
            let effective = case["expected"]["rows_effective"].as_f64().unwrap();
            assert!((statistics.effective_rows() / effective - 1.0).abs() < 1e-11, "{told}");
            let found = model.snapshot(true).unwrap().evaluate(&query, Ask::VARIANCE).unwrap();
            assert!(error(found.mean.as_slice(), &numbers(&expected["mean"])) < 1e-9, "{told}: mean");
            assert!(error(&found.variance.unwrap(), &numbers(&expected["var"])) < 1e-9, "{told}: variance");
            if !follows {
                assert!((statistics.energy[0] / unit / expected["q"].as_f64().unwrap() - 1.0).abs() < 1e-11, "{told}");
            }
        }
    }
}

#[test]
fn batching_does_not_change_a_bit() {
    let case = read("forgetting_16");
    let head = &heads(&case)[0];
    let once = rows(&case, head);
    let mut rows = Rows::new(2, 1);
    (0..40).for_each(|_| rows.extend(&once, 0..once.len()));
    for settings in [
        paper(),
        returns(),
        Settings { lambda: Lambda::Fixed(0.7), variance: VarianceKind::Rows, ..paper() },
        Settings { variance: VarianceKind::Clustered, estimate_scale: true, ..paper() },
        Settings { lambda: Lambda::Fixed(0.5), variance: VarianceKind::Rows, estimate_scale: true, ..returns() },
    ] {
        // A dictionary that has yet to grow, so that elements are backfilled.
        let bits = |piece: usize| {
            let like = empty(&case, head, settings.clone());
            let settings =
                Settings { estimate_scale: settings.estimate_scale, forgetting: Some(90.0), ..like.settings().clone() };
            let hyperparameters = like.hyperparameters();
            let mut model = Model::new(settings, Inputs::identity(2), &hyperparameters);
            learn(&mut model, &rows, 3000, piece);
            let u = model.posterior().unwrap().feature_weights().col(0).to_vec();
            (rmp_serde::to_vec_named(&model).unwrap(), u)
        };
        let whole = bits(rows.len());
        assert!(whole.1.len() > 8);
        for piece in [1, 7, 256] {
            assert!(bits(piece) == whole, "pieces of {piece}: {settings:?}");
        }
    }
}

/// The direct form: everything is multiplied by f before each row.
#[test]
fn rows_that_are_followed_are_forgotten_alike() {
    let case = read("forgetting_16");
    let head = &heads(&case)[0];
    let rows = rows(&case, head);
    let (lambda, f) = (0.6, case["forgetting"].as_f64().unwrap());
    let mut model = empty(&case, head, Settings { lambda: Lambda::Fixed(lambda), ..returns() });
    learn(&mut model, &rows, 4050, 9);
    let features = |state: &[f64]| {
        let dictionary = model.dictionary();
        DVector::from_column_slice(dictionary.features(&dictionary.kernel().project(2, state)).col(0))
    };
    let m = model.dictionary().len();
    let (mut system, mut response) = (DMatrix::zeros(m, m), DVector::zeros(m));
    let mut traces = [DVector::zeros(m), DVector::zeros(m), DVector::zeros(m)];
    for i in 0..rows.len() {
        let stream = rows.streams[i] as usize;
        if rows.starts_chain[i] {
            traces[stream].fill(0.0);
        }
        system *= f;
        response *= f;
        traces.iter_mut().for_each(|z| *z *= f);
        let gamma = rows.discount(i, model.settings().discount);
        let (phi, psi) = (features(rows.state(i)), features(rows.next_state(i)));
        let z = &mut traces[stream];
        // z comes discounted from the row before: that is what the next one gains.
        *z = &*z * lambda + &phi;
        let next = if rows.terminated[i] { DVector::zeros(m) } else { psi * gamma };
        system += &*z * (phi - next).transpose();
        response += &*z * rows.reward(i)[0];
        *z *= if rows.terminated[i] || rows.truncated[i] { 0.0 } else { gamma };
    }
    system += DMatrix::identity(m, m) * head["noise_variance"].as_f64().unwrap();
    let direct = system.lu().solve(&response).unwrap();
    let found = model.solve().unwrap();
    assert!(error(found.feature_weights().col(0), direct.as_slice()) < 1e-10);
}

#[test]
fn it_does_not_matter_where_the_reference_lies() {
    let case = read("forgetting_16");
    let head = &heads(&case)[0];
    let rows = rows(&case, head);
    for (lambda, variance) in [(0.6, VarianceKind::Rows), (0.6, VarianceKind::Model), (1.0, VarianceKind::Rows)] {
        let settings = Settings { lambda: Lambda::Fixed(lambda), variance, ..returns() };
        let at = |first: u64| {
            let mut model = empty(&case, head, settings.clone());
            learn(&mut model, &rows, first, 60);
            model.revisit(std::iter::once((&rows, 0..rows.len(), first)));
            let snapshot = model.snapshot(true).unwrap();
            let found = snapshot.evaluate(&[0.3, -0.2, 1.0, 1.0], Ask::ALL).unwrap();
            (
                found.mean.as_slice().to_vec(),
                found.variance.unwrap(),
                found.return_variance.unwrap().as_slice().to_vec(),
            )
        };
        // Wherever the reference lies, with a move on the way or without.
        let (mean, variance, spread) = at(0);
        for first in [1, 500, 4060, 1 << 40] {
            let (m, v, s) = at(first);
            assert!(error(&m, &mean) < 1e-12, "{first}: mean");
            assert!(error(&v, &variance) < 1e-10, "{first}: variance");
            assert!(error(&s, &spread) < 1e-9, "{first}: variance of returns");
        }
    }
}
