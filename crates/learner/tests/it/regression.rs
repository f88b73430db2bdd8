//! Discount 0 is regression: kernel ridge regression and cost-regularised kernel regression, row by row, against dense solutions
//! (`tests/golden-heads/regression_101.json`).

use criticd_learner::Settings;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::model::Model;
use criticd_learner::random::{mix, normal, uniform};
use criticd_learner::snapshot::{Ask, Inputs};
use criticd_learner::suggest::{Advisor, AdvisorSettings, Output, SuggestError};
use criticd_learner::transition::Rows;
use criticd_reference::golden_heads::read;
use criticd_reference::numbers;

/// Lengthscale of exp(-10 d^2).
fn lengthscale() -> f64 {
    20f64.sqrt().recip()
}

#[test]
fn a_regression_that_is_streamed_is_the_dense_one() {
    let case = read("regression_101");
    let (x, y, expected) = (numbers(&case["x"]), numbers(&case["y"]), numbers(&case["ridge_mean"]));
    let hyperparameters = Hyperparameters {
        kernel: Kernel::gaussian(1.0, 0.0, Metric::Isotropic(20.0)),
        noise: NoiseModel::Correlated,
        noise_variance: 1.0,
    };
    let settings =
        Settings { discount: 0.0, estimate_scale: false, tolerance: 1e-5, backfill_rows: 128, ..Settings::paper() };
    let mut model = Model::new(settings, Inputs::identity(1), &hyperparameters);
    for (i, (&x, &y)) in x.iter().zip(&y).enumerate() {
        let rows = Rows {
            states: vec![x],
            next_states: vec![x],
            rewards: vec![y],
            discounts: vec![f64::NAN],
            ratios: vec![1.0],
            streams: vec![0],
            terminated: vec![true],
            truncated: vec![false],
            starts_chain: vec![true],
            ..Rows::new(1, 1)
        };
        model.learn(&rows, 0..1, i as u64);
    }
    assert!(model.dictionary().len() < 20, "{} elements for 101 points", model.dictionary().len());
    let found = model.snapshot(false).unwrap().evaluate(&x, Ask::MEAN).unwrap();
    for (found, expected) in found.mean.iter().zip(&expected) {
        assert!((found - expected).abs() < 1e-6, "{found} {expected}");
    }
    let wave = x.iter().map(|x| (std::f64::consts::TAU * x).cos());
    let squares: f64 = found.mean.iter().zip(wave).map(|(found, y)| (found - y).powi(2)).sum();
    assert!(((squares / 101.0).sqrt() - 0.071564).abs() < 1e-6);
}

fn advisor(seed: u64) -> Advisor {
    let settings = AdvisorSettings {
        outputs: vec![Output::new(0.0, 1.0)],
        lengthscales: vec![lengthscale()],
        ridge: Some(1.0),
        cost_floor: 0.1,
        seed,
        ..AdvisorSettings::default()
    };
    Advisor::new(settings).unwrap()
}

#[test]
fn costs_weight_decisions_as_the_dense_regression_does() {
    let case = read("regression_101");
    let (x, of) = (numbers(&case["x"]), &case["crkr"]);
    let (y, weights, mean, std) =
        (numbers(&of["y"]), numbers(&of["weight"]), numbers(&of["mean"]), numbers(&of["std"]));
    let mut advisor = advisor(0);
    for (i, (&y, &weight)) in y.iter().zip(&weights).enumerate() {
        advisor.learn(&[x[i % 101]], &[y], weight);
    }
    for (i, &x) in x.iter().enumerate() {
        let (found, deviation) = advisor.predict(&[x]).unwrap();
        assert!(
            (found[0] - mean[i]).abs() < 1e-6 && (deviation[0] - std[i]).abs() < 1e-6,
            "{x}: {found:?} {deviation:?}"
        );
    }
    for (x, mean, std) in [
        (0.0, 0.855131, 1.050510),
        (0.25, 0.490929, 1.018591),
        (0.5, 1.729276, 1.017991),
        (0.75, 0.533156, 1.018591),
        (1.0, 0.820289, 1.050510),
    ] {
        let (found, deviation) = advisor.predict(&[x]).unwrap();
        assert!((found[0] - mean).abs() < 1e-5 && (deviation[0] - std).abs() < 1e-5, "{x}: {found:?} {deviation:?}");
    }
}

#[test]
fn reports_teach_the_decisions_that_were_suggested() {
    let mut advisor = advisor(3);
    let first = advisor.suggest(&[0.5]).unwrap();
    assert_eq!((first.mean[0], first.deviation[0]), (0.0, 1.0), "nothing is known yet");
    let other = advisor.suggest(&[0.5]).unwrap();
    assert_ne!(first.decision, other.decision);
    // A cost of 0.5 weighs 2, one below the floor 10: the mean of both is that of ridge regression.
    advisor.report(first.id, 0.5).unwrap();
    advisor.report(other.id, 1e-9).unwrap();
    let expected = (2.0 * first.decision[0] + 10.0 * other.decision[0]) / 13.0;
    let now = advisor.suggest(&[0.5]).unwrap();
    assert!((now.mean[0] - expected).abs() < 1e-9, "{now:?}");
    assert!((now.deviation[0] - (1.0f64 / 13.0).sqrt()).abs() < 1e-9, "{now:?}");
    // A context far away is as unknown as before.
    assert!(advisor.suggest(&[9.0]).unwrap().deviation[0] > 1.0 - 1e-9);
    // Read back, it goes on the same.
    let bytes = rmp_serde::to_vec_named(&advisor).unwrap();
    let mut again: Advisor = rmp_serde::from_slice(&bytes).unwrap();
    assert_eq!(again.suggest(&[0.4]).unwrap(), advisor.suggest(&[0.4]).unwrap());
    assert_eq!(again.report(now.id, 0.2), advisor.report(now.id, 0.2));
    assert_eq!(again.suggest(&[0.4]).unwrap(), advisor.suggest(&[0.4]).unwrap());
}

#[test]
fn what_is_wrong_is_named() {
    let mut advisor = advisor(0);
    assert_eq!(advisor.suggest(&[0.0, 1.0]), Err(SuggestError::Context { given: 2, wanted: 1 }));
    assert!(advisor.suggest(&[f64::NAN]).is_err());
    let decided = advisor.suggest(&[0.0]).unwrap();
    assert_eq!(advisor.report(decided.id, -1.0), Err(SuggestError::Cost(-1.0)));
    advisor.report(decided.id, 1.0).unwrap();
    assert_eq!(advisor.report(decided.id, 1.0), Err(SuggestError::Unknown(decided.id)), "a cost is learned once");
    let settings = AdvisorSettings { ridge: Some(0.0), ..advisor.settings().clone() };
    assert!(Advisor::new(settings).unwrap_err().to_string().contains("ridge"));
    let settings = AdvisorSettings { waiting_max: 1, ..advisor.settings().clone() };
    let mut short = Advisor::new(settings).unwrap();
    let (given_up, kept) = (short.suggest(&[0.0]).unwrap(), short.suggest(&[0.0]).unwrap());
    assert_eq!((short.report(given_up.id, 1.0), short.report(kept.id, 1.0)), (Err(SuggestError::Unknown(0)), Ok(())));
}

/// Decisions about a line in two numbers, the first with little noise and the second with much, of weights from 0.5 to 2: one by one.
fn taught(ridge: Option<f64>, costs: u64) -> Advisor {
    let settings = AdvisorSettings {
        outputs: vec![Output::new(0.0, 1.0), Output::new(0.0, 1.0)],
        lengthscales: vec![0.5],
        ridge,
        ..AdvisorSettings::default()
    };
    let mut advisor = Advisor::new(settings).unwrap();
    for i in 0..costs {
        let draw = |what: u64| mix(&[11, i, what]);
        let (x, weight) = (2.0 * uniform(draw(0)) - 1.0, 0.5 + 1.5 * uniform(draw(1)));
        let noise = |deviation: f64, what: u64| deviation * normal(draw(what)) / weight.sqrt();
        advisor.learn(&[x], &[(2.0 * x).sin() + noise(0.1, 2), 0.5 * x + noise(0.7, 3)], weight);
    }
    advisor
}

#[test]
fn an_advisor_without_a_ridge_takes_that_of_the_evidence_for_each_number() {
    assert_eq!(taught(None, 63).ridges(), [2.0, 2.0], "too few costs");
    let advisor = taught(None, 600);
    let [first, second] = advisor.ridges()[..] else { panic!("two numbers") };
    assert!((0.005..0.02).contains(&first), "noise of 0.01: {first}");
    assert!((0.3..0.8).contains(&second), "noise of 0.49: {second}");
    // A ridge that is given stays.
    assert_eq!(taught(Some(1.0), 600).ridges(), [1.0, 1.0]);
    // Written and read it is the same, and one that has begun with a ridge keeps it.
    let bytes = rmp_serde::to_vec_named(&advisor).unwrap();
    let again: Advisor = rmp_serde::from_slice(&bytes).unwrap();
    assert!(again.ridges() == advisor.ridges() && again.is_consistent());
    let mut fixed = taught(Some(1.0), 10);
    let unsaid = AdvisorSettings { ridge: None, waiting_max: 5, ..fixed.settings().clone() };
    assert!(unsaid.goes_on_from(fixed.settings()) && !fixed.settings().goes_on_from(&unsaid));
    fixed.set_settings(unsaid);
    assert_eq!((fixed.settings().ridge, fixed.settings().waiting_max), (Some(1.0), 5));
}
