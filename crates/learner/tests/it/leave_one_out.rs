//! Errors of rows by models that lack them, in closed form, against models that have been made without them.

use criticd_learner::allowance::Allowance;
use criticd_learner::batch::{Given, leave_one_out};
use criticd_learner::math::dense::{Matrix, Op, product, solve_general};
use criticd_learner::math::dictionary::{Dictionary, StoppingRule};
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::random::{mix, normal, uniform};
use criticd_learner::snapshot::{Ask, Inputs};
use criticd_learner::transition::Rows;
use criticd_learner::{Lambda, Settings};

const TABLE_ROWS: usize = 40;

fn hyperparameters(noise_variance: f64) -> Hyperparameters {
    Hyperparameters {
        kernel: Kernel::gaussian(1.5, 0.2, Metric::Isotropic(4.0)),
        noise: NoiseModel::Correlated,
        noise_variance,
    }
}

fn settings(discount: f64, lambda: f64) -> Settings {
    Settings {
        discount,
        lambda: Lambda::Fixed(lambda),
        estimate_scale: false,
        weighted: discount == 0.0,
        ..Settings::paper()
    }
}

/// Rows of a noisy sine on [-2, 2], of weights from 0.2 to 3 where they are a regression, without those that `left_out` names. Each is a
/// chain of its own.
fn rows(is_regression: bool, left_out: Option<usize>) -> Rows {
    let kept: Vec<usize> = (0..TABLE_ROWS).filter(|&i| Some(i) != left_out).collect();
    let draw = |i: usize, what: u64| mix(&[7, i as u64, what]);
    let x = |i: usize| 4.0 * uniform(draw(i, 0)) - 2.0;
    let of = |f: &dyn Fn(usize) -> f64| kept.iter().map(|&i| f(i)).collect::<Vec<f64>>();
    let n = kept.len();
    Rows {
        states: of(&x),
        next_states: of(&|i| 0.8 * x(i) + 0.1 * normal(draw(i, 1))),
        rewards: of(&|i| (2.0 * x(i)).sin() + 0.3 * normal(draw(i, 2))),
        discounts: vec![f64::NAN; n],
        ratios: of(&|i| if is_regression { 0.2 + 2.8 * uniform(draw(i, 3)) } else { 1.0 }),
        streams: kept.iter().map(|&i| i as u32).collect(),
        terminated: kept.iter().map(|&i| is_regression || i.is_multiple_of(7)).collect(),
        truncated: kept.iter().map(|&i| !(is_regression || i.is_multiple_of(7))).collect(),
        starts_chain: vec![true; n],
        ..Rows::new(1, 1)
    }
}

fn given<'a>(
    rows: &'a Rows,
    settings: &'a Settings,
    inputs: &'a Inputs,
    hyperparameters: &'a Hyperparameters,
    lambda: f64,
) -> Given<'a> {
    Given { settings, rows, inputs, hyperparameters, lambda, first: 0 }
}

/// The same by as many models as there are rows: mean squared error of each row by the one that lacks it.
fn by_models(is_regression: bool, settings: &Settings, of: &Hyperparameters, dictionary: &Dictionary) -> f64 {
    let (inputs, all) = (Inputs::identity(1), rows(is_regression, None));
    let (mut squares, mut weights) = (0.0, 0.0);
    for i in 0..TABLE_ROWS {
        let others = rows(is_regression, Some(i));
        let model = given(&others, settings, &inputs, of, 0.0).model(dictionary.clone(), &|| true).unwrap();
        let snapshot = model.snapshot(false).unwrap();
        let value = |state: &[f64]| snapshot.evaluate(state, Ask::MEAN).unwrap().mean[0];
        let follows = if all.terminated[i] { 0.0 } else { settings.discount * value(all.next_state(i)) };
        let weight = all.ratio(i, None);
        squares += weight * (all.reward(i)[0] + follows - value(all.state(i))).powi(2);
        weights += weight;
    }
    squares / weights
}

#[test]
fn errors_are_those_of_models_that_lack_the_row() {
    for (is_regression, discount) in [(true, 0.0), (false, 0.9)] {
        for noise_variance in [0.05, 1.0] {
            let (of, settings) = (hyperparameters(noise_variance), settings(discount, 0.0));
            let (all, inputs) = (rows(is_regression, None), Inputs::identity(1));
            let given = given(&all, &settings, &inputs, &of, 0.0);
            let enough = StoppingRule { tolerance: 1e-6, trace: 0.0 };
            let dictionary = given.select(enough, 12, &|| true).unwrap().dictionary;
            let found = given.leave_one_out(&dictionary, &[]).unwrap().unwrap();
            let expected = by_models(is_regression, &settings, &of, &dictionary);
            assert!(
                (found.error.powi(2) - expected).abs() < 1e-8 * expected,
                "{is_regression} {noise_variance}: {} for {expected}",
                found.error.powi(2)
            );
            assert_eq!(found.is_regression, is_regression);
            assert!(found.leverage_max > 0.1 && found.leverage_max < 1.0, "{found:?}");
        }
    }
}

#[test]
fn all_rows_as_elements_give_the_formula_of_kernel_ridge_regression() {
    // So narrow that no row is spanned by others.
    let narrow = Kernel::gaussian(1.5, 0.2, Metric::Isotropic(4000.0));
    let (all, of) = (rows(true, None), Hyperparameters { kernel: narrow, ..hyperparameters(0.3) });
    let dictionary = Dictionary::from_elements(of.kernel.clone(), 1, &all.states).unwrap();
    let features = dictionary.features(&dictionary.kernel().project(1, &all.states));
    let targets = Matrix::from_columns(TABLE_ROWS, 1, all.rewards.clone());
    let found = leave_one_out(features.view(), features.view(), &targets, of.noise_variance).unwrap();
    // H = K (K + ridge I)^-1, e_i = (y_i - (H y)_i) / (1 - H_ii).
    let gram = product(features.view(), Op::Transposed, features.view(), Op::Plain);
    let mut system = gram.clone();
    (0..TABLE_ROWS).for_each(|i| *system.at_mut(i, i) += of.noise_variance);
    let hat = solve_general(&system, &gram).unwrap();
    for i in 0..TABLE_ROWS {
        let predicted: f64 = (0..TABLE_ROWS).map(|j| hat.at(i, j) * all.rewards[j]).sum();
        let expected = (all.rewards[i] - predicted) / (1.0 - hat.at(i, i));
        assert!((found.errors.at(i, 0) - expected).abs() < 1e-8, "{i}: {} for {expected}", found.errors.at(i, 0));
        assert!((found.leverages[i] - hat.at(i, i)).abs() < 1e-8);
    }
}

#[test]
fn there_are_none_where_a_row_stands_in_the_equations_of_others() {
    let (all, of, inputs) = (rows(false, None), hyperparameters(0.3), Inputs::identity(1));
    let dictionary = Dictionary::from_elements(of.kernel.clone(), 1, &[-1.0, 0.0, 1.0]).unwrap();
    let plain = settings(0.9, 0.0);
    let found = |settings: &Settings, rows: &Rows, lambda: f64| {
        given(rows, settings, &inputs, &of, lambda).leave_one_out(&dictionary, &[]).unwrap()
    };
    assert!(found(&plain, &all, 0.0).is_some());
    assert!(found(&plain, &all, 0.5).is_none(), "a trace");
    assert!(found(&Settings { forgetting: Some(100.0), ..plain.clone() }, &all, 0.0).is_none(), "ages");
    let weighted = Rows { ratios: vec![0.5; TABLE_ROWS], ..all };
    assert!(found(&plain, &weighted, 0.0).is_none(), "importance ratios");
}

#[test]
fn hyperparameters_by_leave_one_out_predict_other_rows_better_than_a_wrong_start() {
    let (all, inputs, settings) = (rows(true, None), Inputs::identity(1), settings(0.0, 0.0));
    // Far too wide, and with far too much noise.
    let start = Hyperparameters { kernel: Kernel::gaussian(1.0, 0.0, Metric::Isotropic(0.3)), ..hyperparameters(5.0) };
    let begun = given(&all, &settings, &inputs, &start, 0.0);
    let enough = |of: &Hyperparameters| StoppingRule { tolerance: 1e-6 * of.kernel.signal_variance, trace: 0.0 };
    let found = begun.nearest_by_leave_one_out(enough, 30, (&|| true, &Allowance::unlimited())).unwrap().unwrap();
    assert!(found.relative.1 < 0.5 * found.relative.0, "{found:?}");
    let error = |of: &Hyperparameters| {
        let given = given(&all, &settings, &inputs, of, 0.0);
        let dictionary = given.select(enough(of), 30, &|| true).unwrap().dictionary;
        let relative = given.leave_one_out(&dictionary, &[]).unwrap().unwrap().relative;
        let snapshot = given.model(dictionary, &|| true).unwrap().snapshot(false).unwrap();
        let x: Vec<f64> = (0..81).map(|k| 0.05 * f64::from(k) - 2.0).collect();
        let mean = snapshot.evaluate(&x, Ask::MEAN).unwrap().mean;
        let squares: f64 = x.iter().zip(mean.iter()).map(|(x, mean)| ((2.0 * x).sin() - mean).powi(2)).sum();
        (relative, (squares / 81.0).sqrt())
    };
    let (before, after) = (error(&start), error(&found.hyperparameters));
    assert!((after.0 - found.relative.1).abs() < 1e-8, "scaling kernel and noise alike changes no prediction");
    assert!(after.1 < 0.6 * before.1, "{before:?} {after:?}");
    // Without a budget the start stays; a value function has none.
    let none = begun.nearest_by_leave_one_out(enough, 30, (&|| true, &Allowance::none())).unwrap().unwrap();
    assert_eq!((none.tried, none.relative.0), (1, none.relative.1));
    let (values, plain) = (rows(false, None), Settings { discount: 0.9, weighted: false, ..settings.clone() });
    let of_values = given(&values, &plain, &inputs, &start, 0.0);
    assert!(of_values.nearest_by_leave_one_out(enough, 30, (&|| true, &Allowance::unlimited())).unwrap().is_none());
}
