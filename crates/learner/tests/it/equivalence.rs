//! Stepping equals batch: the recursion against independent dense computations and against itself.

use criticd_learner::math::dense::{Matrix, View};
use criticd_learner::math::dictionary::Dictionary;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::math::posterior::{Arrivals, Posterior, RowUpdate, Scale, SolveError, SolveWork};
use criticd_learner::math::statistics::{Chain, Followed, Running, Statistics};
use criticd_learner::model::Model;
use criticd_learner::snapshot::{Ask, Inputs, Snapshot};
use criticd_learner::transition::Rows;
use criticd_learner::{Lambda, Settings};
use criticd_reference::{CASES, Case, case, distance, numbers, wander};
use nalgebra::{DMatrix, DVector};

fn settings(discount: f64) -> Settings {
    Settings { discount, estimate_scale: false, tolerance: 0.5, ..Settings::paper() }
}

fn fixed(case: &Case, dictionary: &[f64], chunk: usize) -> Model {
    let basis = Dictionary::from_elements(case.hyperparameters.kernel.clone(), case.dim, dictionary).unwrap();
    let inputs = Inputs::identity(case.dim);
    let mut model = Model::with_dictionary(settings(case.discount), inputs, &case.hyperparameters, basis);
    for start in (0..case.rows.len()).step_by(chunk) {
        model.learn(&case.rows, start..(start + chunk).min(case.rows.len()), start as u64);
    }
    model
}

#[test]
fn a_fixed_dictionary_gives_the_reference_posterior() {
    for name in CASES {
        let case = case(name);
        let expected = &case.json["expected"];
        let dictionary = numbers(&expected["sr"]["dictionary"]);
        let model = fixed(&case, &dictionary, 7);
        let snapshot = model.snapshot(true).unwrap();
        let found = snapshot.evaluate(&case.query, Ask::VARIANCE).unwrap();
        let white = case.hyperparameters.noise == NoiseModel::White;
        let reference = if white { &expected["sr"] } else { &expected["bootstrap"]["sr"] };
        assert!(distance(found.mean.as_slice(), &numbers(&reference["mean"])) < 1e-8, "{name}: mean");
        let variance = distance(&found.variance.unwrap(), &numbers(&reference["var_pp"]));
        assert!(variance < 1e-8, "{name}: variance off by {variance:e}");
        let (dtc, bound) = if white {
            (&reference["dtc"]["log_evidence"], &reference["vfe"]["bound"])
        } else {
            assert!(distance(snapshot.weights.as_slice(), &numbers(&reference["weights"])) < 1e-7, "{name}: weights");
            (&reference["log_evidence_dtc"], &reference["log_evidence_vfe"])
        };
        let posterior = model.solve().unwrap();
        let evidence = posterior.log_evidence().unwrap();
        assert!(distance(&[evidence], &numbers(dtc)) < 1e-8, "{name}: evidence {evidence} against {dtc}");
        let lower = evidence - posterior.trace_gap(model.statistics());
        assert!(distance(&[lower], &numbers(bound)) < 1e-8, "{name}: bound {lower} against {bound}");
        // Where every chain ends, this is the paper's own form.
        if expected["exact"].is_object() && !white {
            assert!(distance(found.mean.as_slice(), &numbers(&expected["sr"]["mean"])) < 1e-8, "{name}: paper");
        }
    }
}

#[test]
fn one_pass_gives_the_reference_statistics() {
    let mut checked = 0;
    for name in CASES {
        let case = case(name);
        let Some(runs) = case.json["expected"]["online"].as_array() else { continue };
        for run in runs.iter().filter(|run| run["growth"] == "backfill") {
            // Backfilled over everything, growth leaves no trace: the statistics are those of a dictionary known all along.
            let model = fixed(&case, &numbers(&run["dictionary"]), 5);
            let mut gram = model.statistics().gram.clone();
            gram.mirror_lower();
            assert!(distance(gram.to_nalgebra().as_slice(), &numbers(&run["S"])) < 1e-10, "{name}: S");
            assert!(distance(model.statistics().response.col(0), &numbers(&run["c"])) < 1e-10, "{name}: p");
            checked += 1;
        }
        if case.hyperparameters.noise == NoiseModel::Correlated {
            continue; // with projection, the reference whitens reward differences row by row: another approximation
        }
        for run in runs.iter().filter(|run| run["growth"] == "zero" && run["forgetting"] == 1.0) {
            let tolerance = run["tol"].as_f64().unwrap();
            let kernel = case.hyperparameters.kernel.clone();
            let mut dictionary = Dictionary::new(kernel.clone(), case.dim, tolerance, 1000);
            let mut statistics = Statistics::new(0, 1, 64);
            let mut chain = Chain::new(0, 1);
            for i in 0..case.rows.len() {
                let mut test = vec![case.rows.state(i)];
                if !case.rows.terminated[i] {
                    test.push(case.rows.next_state(i));
                }
                for state in test {
                    let phi = dictionary.features(&kernel.project(case.dim, state));
                    if dictionary.residual(phi.col(0)) > tolerance {
                        dictionary.admit(state, phi.col(0));
                        statistics.grow();
                        chain.trace.push(0.0);
                    }
                }
                let mut phi = dictionary.features(&kernel.project(case.dim, case.rows.state(i))).col(0).to_vec();
                let gamma = if case.rows.terminated[i] { 0.0 } else { case.discount };
                if gamma > 0.0 {
                    let next = dictionary.features(&kernel.project(case.dim, case.rows.next_state(i)));
                    phi.iter_mut().zip(next.col(0)).for_each(|(a, b)| *a -= gamma * b);
                }
                statistics.absorb(&mut chain, &phi, case.rows.reward(i), case.discount, 1.0);
                statistics.absorb_gram(criticd_learner::math::dense::View::column(&phi), 0.0);
                chain.reset();
            }
            assert_eq!(dictionary.elements(), numbers(&run["dictionary"]), "{name}");
            let mut gram = statistics.gram.clone();
            gram.mirror_lower();
            assert!(distance(gram.to_nalgebra().as_slice(), &numbers(&run["S"])) < 1e-10, "{name}: S");
            assert!(distance(statistics.response.col(0), &numbers(&run["c"])) < 1e-10, "{name}: p");
            let scale = Scale::of_noise(case.hyperparameters.noise_variance);
            let posterior = Posterior::solve(&statistics, &Running::default(), scale).unwrap();
            let phi = dictionary.features(&kernel.project(case.dim, &case.query));
            let mean: Vec<f64> = (0..phi.cols())
                .map(|k| criticd_learner::math::dense::dot(phi.col(k), posterior.feature_weights().col(0)))
                .collect();
            assert!(distance(&mean, &numbers(&run["mean"])) < 1e-9, "{name}: mean");
            checked += 1;
        }
    }
    assert!(checked >= 7, "only {checked} reference runs were found");
}

fn hyperparameters(noise: NoiseModel) -> Hyperparameters {
    let metric = Metric::Ard(vec![4.0, 2.0]);
    Hyperparameters { kernel: Kernel::gaussian(3.0, 1.0, metric), noise, noise_variance: 0.2 }
}

fn learned(rows: &Rows, settings: Settings, noise: NoiseModel, chunks: &[usize]) -> Model {
    let mut model = Model::new(settings, Inputs::identity(2), &hyperparameters(noise));
    let (mut start, mut k) = (0, 0);
    while start < rows.len() {
        let end = rows.len().min(start + chunks[k % chunks.len()]);
        model.learn(rows, start..end, start as u64);
        (start, k) = (end, k + 1);
    }
    model
}

fn same(a: &Snapshot, b: &Snapshot, tolerance: f64) {
    let query: Vec<f64> = (0..40).map(|k| (k as f64 * 0.37).sin()).collect();
    let (a, b) = (a.evaluate(&query, Ask::VARIANCE).unwrap(), b.evaluate(&query, Ask::VARIANCE).unwrap());
    let mean = distance(a.mean.as_slice(), b.mean.as_slice());
    let variance = distance(&a.variance.unwrap(), &b.variance.unwrap());
    assert!(mean < tolerance && variance < tolerance, "mean off by {mean:e}, variance by {variance:e}");
}

#[test]
fn any_chunking_gives_the_same_model() {
    // An optimum of the noise is only known to the square root of the rounding.
    for (noise, estimate_scale, tolerance) in
        [(NoiseModel::Correlated, false, 1e-9), (NoiseModel::White, false, 1e-9), (NoiseModel::Correlated, true, 1e-6)]
    {
        let rows = wander(1500, 5, 2, 1);
        let settings = Settings {
            rewards: vec![1, 0],
            tolerance: 1e-2,
            backfill_rows: 300,
            estimate_scale,
            discount: 0.9,
            ..Settings::paper()
        };
        let whole = learned(&rows, settings.clone(), noise, &[1500]);
        for chunks in [&[1][..], &[256], &[3, 100, 17]] {
            let pieces = learned(&rows, settings.clone(), noise, chunks);
            assert_eq!(whole.dictionary().elements(), pieces.dictionary().elements());
            same(&whole.snapshot(true).unwrap(), &pieces.snapshot(true).unwrap(), tolerance);
            assert!((whole.score().sum - pieces.score().sum).abs() < 1e-6 * whole.score().sum.abs());
        }
    }
}

#[test]
fn any_interleaving_of_streams_gives_the_same_statistics() {
    let rows = wander(800, 6, 1, 2);
    let mut order: Vec<usize> = (0..rows.len()).collect();
    order.sort_by_key(|&i| rows.streams[i]);
    let mut sorted = Rows::new(2, 1);
    for i in order {
        sorted.extend(&rows, i..i + 1);
    }
    let elements: Vec<f64> = (0..60).map(|k| ((k * k) as f64 * 0.7).sin()).collect();
    let build = |rows: &Rows| {
        let h = hyperparameters(NoiseModel::Correlated);
        let basis = Dictionary::from_elements(h.kernel.clone(), 2, &elements).unwrap();
        let mut model = Model::with_dictionary(settings(0.9), Inputs::identity(2), &h, basis);
        model.learn(rows, 0..rows.len(), 0);
        model
    };
    same(&build(&rows).snapshot(true).unwrap(), &build(&sorted).snapshot(true).unwrap(), 1e-9);
}

/// Batch SR by dense algebra, straight from its definition: targets of all rows at the fixed point of the cuts.
fn batch(rows: &Rows, model: &Model, discount: f64, noise_variance: f64, query: &[f64]) -> Vec<f64> {
    let kernel = model.dictionary().kernel();
    let (n, m) = (rows.len(), model.dictionary().len());
    let phi_of = |states: &[f64]| model.dictionary().features(&kernel.project(2, states)).to_nalgebra();
    let phi = phi_of(&rows.states);
    let next = phi_of(&rows.next_states);
    // y = constant + closing u, by a backward sweep along each stream.
    let (mut constant, mut closing) = (DVector::zeros(n), DMatrix::zeros(n, m));
    let mut after: std::collections::HashMap<u32, usize> = Default::default();
    for i in (0..n).rev() {
        let g = rows.discount(i, discount);
        constant[i] = rows.reward(i)[0];
        if !rows.terminated[i] {
            match after.get(&rows.streams[i]) {
                Some(&j) if !rows.truncated[i] && !rows.starts_chain[j] => {
                    constant[i] += g * constant[j];
                    let row = closing.row(j) * g;
                    closing.row_mut(i).copy_from(&row);
                }
                _ => closing.row_mut(i).copy_from(&(next.column(i).transpose() * g)),
            }
        }
        after.insert(rows.streams[i], i);
    }
    let system = &phi * phi.transpose() - &phi * closing + DMatrix::identity(m, m) * noise_variance;
    let u = system.lu().solve(&(&phi * constant)).unwrap();
    (phi_of(query).transpose() * u).as_slice().to_vec()
}

#[test]
fn backfill_over_everything_equals_batch_and_no_backfill_does_not_move_predictions() {
    let rows = wander(900, 4, 1, 3);
    let everything =
        Settings { tolerance: 1e-2, backfill_rows: 900, estimate_scale: false, discount: 0.9, ..Settings::paper() };
    let model = learned(&rows, everything.clone(), NoiseModel::Correlated, &[64]);
    assert!(model.dictionary().len() > 20);
    let query: Vec<f64> = (0..40).map(|k| (k as f64 * 0.37).sin()).collect();
    let found = model.snapshot(false).unwrap().evaluate(&query, Ask::MEAN).unwrap();
    let expected = batch(&rows, &model, 0.9, 0.2, &query);
    assert!(distance(found.mean.as_slice(), &expected) < 1e-9);

    // Without backfill a new element cannot change what was predicted before it.
    let model = learned(&rows, Settings { backfill_rows: 0, ..everything }, NoiseModel::Correlated, &[64]);
    let (mut dictionary, mut statistics) = (model.dictionary().clone(), model.statistics().clone());
    let predict = |dictionary: &Dictionary, statistics: &Statistics| {
        let posterior = Posterior::solve(statistics, &Running::default(), Scale::of_noise(0.2)).unwrap();
        let phi = dictionary.features(&dictionary.kernel().project(2, &query)).to_nalgebra();
        (phi.transpose() * posterior.feature_weights().to_nalgebra()).as_slice().to_vec()
    };
    let before = predict(&dictionary, &statistics);
    let far = [3.0, -3.0];
    let phi = dictionary.features(&dictionary.kernel().project(2, &far));
    dictionary.admit(&far, phi.col(0));
    statistics.grow();
    assert!(distance(&predict(&dictionary, &statistics), &before) < 1e-12);
}

/// LSTD(lambda) with importance ratios by dense algebra, straight from its definition: a chain's trace weighs the TD errors of its
/// rows (docs/mathematics.md (M8), (S3)).
fn batch_followed(rows: &Rows, model: &Model, settings: &Settings, ridge: f64, query: &[f64]) -> Vec<f64> {
    let Lambda::Fixed(lambda) = settings.lambda else { panic!("a lambda of its own") };
    let kernel = model.dictionary().kernel();
    let m = model.dictionary().len();
    let phi_of = |states: &[f64]| model.dictionary().features(&kernel.project(2, states)).to_nalgebra();
    let (phi, next) = (phi_of(&rows.states), phi_of(&rows.next_states));
    let (mut system, mut right) = (DMatrix::identity(m, m) * ridge, DVector::zeros(m));
    // The trace of each stream's chain with the discount behind its last row, and whether the chain goes on.
    let mut chains: std::collections::HashMap<u32, (DVector<f64>, bool)> = Default::default();
    for i in 0..rows.len() {
        let ratio = rows.ratio(i, settings.rho_max);
        let mut trace = phi.column(i) * ratio;
        if let Some((before, true)) = chains.get(&rows.streams[i])
            && !rows.starts_chain[i]
        {
            trace += before * (lambda * ratio);
        }
        let discount = if rows.terminated[i] { 0.0 } else { rows.discount(i, settings.discount) };
        system += &trace * (phi.column(i) - next.column(i) * discount).transpose();
        right += &trace * rows.reward(i)[0];
        chains.insert(rows.streams[i], (trace * discount, !rows.terminated[i] && !rows.truncated[i]));
    }
    let u = system.lu().solve(&right).unwrap();
    (phi_of(query).transpose() * u).as_slice().to_vec()
}

#[test]
fn backfill_over_everything_equals_batch_where_rows_are_followed() {
    let mut rows = wander(900, 4, 1, 3);
    // Some successors are not the next row's state, and some rows were not taken as the policy would have.
    for i in (0..900).step_by(7) {
        rows.next_states[2 * i] += 0.05;
        rows.ratios[i] = if i % 2 == 0 { 0.3 } else { 2.5 };
    }
    let query: Vec<f64> = (0..40).map(|k| (k as f64 * 0.37).sin()).collect();
    for lambda in [0.0, 0.8] {
        let settings = Settings {
            lambda: Lambda::Fixed(lambda),
            rho_max: Some(2.0),
            tolerance: 1e-2,
            backfill_rows: 900,
            estimate_scale: false,
            discount: 0.9,
            ..Settings::paper()
        };
        for pieces in [[64], [5]] {
            let model = learned(&rows, settings.clone(), NoiseModel::Correlated, &pieces);
            assert!(model.dictionary().len() > 20);
            let found = model.snapshot(false).unwrap().evaluate(&query, Ask::MEAN).unwrap();
            let expected = batch_followed(&rows, &model, &settings, 0.2, &query);
            let off = distance(found.mean.as_slice(), &expected);
            assert!(off < 1e-9, "lambda {lambda}, pieces of {pieces:?}: {off:e}");
            let unaware = batch_followed(
                &rows,
                &model,
                &Settings { lambda: Lambda::Fixed(0.5), ..settings.clone() },
                0.2,
                &query,
            );
            assert!(distance(found.mean.as_slice(), &unaware) > 1e-4, "another lambda would pass too");
        }
    }
}

#[test]
fn weights_that_follow_single_rows_are_those_of_a_factor_of_its_own() {
    for noise in [NoiseModel::Correlated, NoiseModel::White] {
        let h = hyperparameters(noise);
        let elements: Vec<f64> = (0..160).map(|k| 3.0 * ((k * k) as f64 * 0.7).sin()).collect();
        let basis = Dictionary::from_elements(h.kernel.clone(), 2, &elements).unwrap();
        let followed = Settings { refresh_rows: 1, rewards: vec![0, 1], ..settings(0.9) };
        let mut rows = wander(900, 3, 2, 5);
        // A chain may forget what came before without having ended.
        (0..900).step_by(23).for_each(|i| rows.discounts[i] = 0.0);
        // A chain that is cut asks for a system of its own: none is before row 600.
        for i in 0..600 {
            rows.truncated[i] = false;
            let before = (0..i).rev().find(|&k| rows.streams[k] == rows.streams[i]);
            rows.starts_chain[i] = before.is_none_or(|k| rows.terminated[k]);
        }
        let mut model = Model::with_dictionary(followed, Inputs::identity(2), &h, basis);
        let (mut most, mut batches) = (0, 0);
        for i in 0..rows.len() {
            model.learn(&rows, i..i + 1, i as u64);
            let (found, expected) = (model.posterior().unwrap(), model.solve().unwrap());
            if found.rows() < expected.rows() {
                continue; // there is a refresh for as many rows as there are streams
            }
            most = most.max(found.gained());
            let near = |a: &Matrix, b: &Matrix| {
                let difference = (a.to_nalgebra() - b.to_nalgebra()).amax();
                assert!(difference <= 1e-10 * b.to_nalgebra().amax(), "{noise:?}, row {i}: {difference:e}");
            };
            assert!(i >= 600 || model.counts().cuts == 0, "a chain was cut");
            if noise == NoiseModel::Correlated && (100..140).contains(&i) {
                let mut so_far = Rows::new(2, 2);
                so_far.extend(&rows, 0..i + 1);
                let query: Vec<f64> = (0..40).map(|k| (k as f64 * 0.37).sin()).collect();
                let phi = model.dictionary().features(&h.kernel.project(2, &query)).to_nalgebra();
                let values = phi.transpose() * found.feature_weights().to_nalgebra().column(0);
                let reference = batch(&so_far, &model, 0.9, h.noise_variance, &query);
                assert!(distance(values.as_slice(), &reference) < 1e-9, "row {i}");
                batches += 1;
            }
            near(found.feature_weights(), expected.feature_weights());
            near(found.system().factor(), expected.system().factor());
            let (found, expected) = (found.log_evidence().unwrap(), expected.log_evidence().unwrap());
            assert!((found - expected).abs() < 1e-10 * expected.abs());
        }
        assert!((250..=256).contains(&most), "{most}: made anew now and then, not at every row");
        assert!(batches > 10 || noise == NoiseModel::White, "{batches} compared with a batch");
    }
}

/// Rows of three streams whose chains are cut, end, are interrupted, forget, and are weighted.
fn eventful(count: usize) -> Rows {
    let mut rows = wander(count, 3, 2, 8);
    (0..count).step_by(23).for_each(|i| rows.discounts[i] = 0.0);
    for i in (0..count).filter(|i| i % 5 == 0) {
        rows.ratios[i] = [0.0, 0.4, 2.5, 1.0][i % 4];
    }
    // What a state was said to lead to is not always where the next row begins.
    for i in (0..count).step_by(31) {
        rows.next_states[2 * i] += 0.1;
    }
    rows
}

#[test]
fn an_inverse_that_gains_rows_gives_the_weights_of_a_solution_from_the_beginning() {
    // A million rows where that takes seconds.
    let count = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
    let h = hyperparameters(NoiseModel::Correlated);
    let elements: Vec<f64> = (0..96).map(|k| 3.0 * ((k * k) as f64 * 0.7).sin()).collect();
    for (lambda, count) in [(0.8, count), (0.0, 20_000), (1.0, 20_000)] {
        let basis = Dictionary::from_elements(h.kernel.clone(), 2, &elements).unwrap();
        let followed = Settings {
            refresh_rows: 1,
            rewards: vec![0, 1],
            lambda: Lambda::Fixed(lambda),
            discount: 0.9,
            estimate_scale: false,
            tolerance: 0.5,
            ..Settings::default()
        };
        let rows = eventful(count);
        let mut model = Model::with_dictionary(followed, Inputs::identity(2), &h, basis);
        let (mut most, mut worst, mut at) = (0, 0.0_f64, 0);
        while at < count {
            // Groups of one row and of more: refreshes fall where they fall.
            let to = count.min(at + 1 + at % 4);
            model.learn(&rows, at..to, at as u64);
            let found = model.posterior().unwrap();
            most = most.max(found.gained());
            if (found.gained() > 250 || at < 600 || at % 101 == 0) && found.rows() == model.statistics().rows {
                let expected = model.solve().unwrap();
                let (found, expected) =
                    (found.feature_weights().to_nalgebra(), expected.feature_weights().to_nalgebra());
                worst = worst.max((found - &expected).amax() / expected.amax());
            }
            at = to;
        }
        assert!(worst < 1e-9, "lambda {lambda}: {worst:e}");
        assert!((250..=256).contains(&most), "lambda {lambda}: {most}: made anew now and then, not at every row");
        assert_eq!(model.counts().failed_refreshes, 0);
        assert!(model.counts().cuts > 100 && model.counts().terminations > 5);
    }
}

#[test]
fn a_row_that_makes_the_system_singular_is_not_gained() {
    let m = 32;
    let mut statistics = Statistics::new(m, 1, m);
    statistics.follow_rows();
    let (scale, mut work) = (Scale::of_noise(0.5), SolveWork::default());
    work.inverts = true;
    let mut before = Posterior::default();
    before.solve_again(&statistics, &Running::default(), scale, &mut work).unwrap();
    let weights = before.feature_weights().clone();
    // M = I / 2 loses just that along e: 1 + d' M^-1 e = 0.
    let (mut arrivals, mut e) = (Arrivals::default(), vec![0.0; m]);
    e[3] = 0.5;
    let (features, successor): (Vec<f64>, Vec<f64>) = (vec![0.0; m], e.iter().map(|e| 2.0 * e).collect());
    let row = Followed {
        features: &features,
        successor: &[],
        rewards: &[1.0],
        ratio: 1.0,
        weight: 1.0,
        carry: 0.8,
        discount: 1.0,
    };
    arrivals.push(0, &e, row, 2);
    arrivals.settle(0, Some(&successor));
    assert!(before.can_update_followed(&arrivals, &statistics, scale));
    let gained = Posterior::default().update_followed(&mut before, &arrivals, &statistics, &mut work);
    assert!(matches!(gained, Err(SolveError::Singular(_))));
    assert_eq!(before.feature_weights().to_nalgebra(), weights.to_nalgebra());
    assert!(!before.can_update_followed(&arrivals, &statistics, scale), "its inverse is gone");
}

#[test]
fn a_row_that_cannot_be_gained_leaves_the_weights() {
    let m = 32;
    let mut statistics = Statistics::new(m, 1, m);
    let mut chain = Chain::new(m, 1);
    let mut absorb = |statistics: &mut Statistics, features: &[f64]| {
        statistics.absorb(&mut chain, features, &[1.0], 0.0, 1.0);
        statistics.absorb_gram(View::column(features), 1.0);
    };
    let features = |k: usize| (0..m).map(|i| ((i * k + i) as f64 * 0.37).sin()).collect::<Vec<_>>();
    (0..50).for_each(|k| absorb(&mut statistics, &features(k)));
    let scale = Scale::of_noise(0.1);
    let mut before = Posterior::solve(&statistics, &Running::default(), scale).unwrap();
    let (weights, mut next) = (before.feature_weights().clone(), Posterior::default());
    let mut gain = |before: &mut Posterior, statistics: &Statistics, features: &[f64]| {
        assert!(before.can_update(statistics, scale));
        let row = RowUpdate { features, rewards: &[1.0], slot: 0, discount: 0.0 };
        next.update(before, [row].into_iter(), statistics, &Running::default(), &mut SolveWork::default())?;
        std::mem::swap(before, &mut next);
        Ok::<_, SolveError>(())
    };
    let huge = vec![1e200; m];
    let mut with_huge = statistics.clone();
    with_huge.rows += 1;
    assert!(matches!(gain(&mut before, &with_huge, &huge), Err(SolveError::NotPositiveDefinite(_))));
    assert_eq!(before.feature_weights().to_nalgebra(), weights.to_nalgebra());
    assert!(!before.can_update(&with_huge, scale), "its factor is not what it was");

    let mut before = Posterior::solve(&statistics, &Running::default(), scale).unwrap();
    absorb(&mut statistics, &features(50));
    gain(&mut before, &statistics, &features(50)).unwrap();
    let expected = Posterior::solve(&statistics, &Running::default(), scale).unwrap();
    let difference = before.feature_weights().to_nalgebra() - expected.feature_weights().to_nalgebra();
    assert!(difference.amax() < 1e-10 * expected.feature_weights().to_nalgebra().amax(), "{difference}");
}

#[test]
fn rewards_that_come_late_are_tuned_to_soon() {
    let h = Hyperparameters { noise_variance: 1e-12, ..hyperparameters(NoiseModel::Correlated) };
    let elements: Vec<f64> = (0..40).map(|k| 3.0 * ((k * k) as f64 * 0.7).sin()).collect();
    let basis = Dictionary::from_elements(h.kernel.clone(), 2, &elements).unwrap();
    let tuned = Settings { estimate_scale: true, ..settings(0.9) };
    let mut model = Model::with_dictionary(tuned, Inputs::identity(2), &h, basis);
    let mut rows = wander(5000, 1, 1, 6);
    rows.rewards[..4300].fill(0.0);
    model.learn(&rows, 0..4300, 0);
    assert_eq!(model.hyperparameters().noise_variance, 1e-12, "there is nothing to tune to");
    model.learn(&rows, 4300..5000, 4300);
    assert!(model.hyperparameters().noise_variance > 1e-4, "{}", model.hyperparameters().noise_variance);
}

#[test]
fn statistics_of_pieces_add_and_subtract() {
    let rows = wander(600, 3, 2, 4);
    let split = Settings { rewards: vec![0, 1], ..settings(0.9) };
    let h = hyperparameters(NoiseModel::Correlated);
    let elements: Vec<f64> = (0..40).map(|k| ((k * k) as f64 * 0.7).sin()).collect();
    let build = |range: std::ops::Range<usize>| {
        let basis = Dictionary::from_elements(h.kernel.clone(), 2, &elements).unwrap();
        let mut model = Model::with_dictionary(split.clone(), Inputs::identity(2), &h, basis);
        model.learn(&rows, range.clone(), range.start as u64);
        model
    };
    // Whole streams are the disjoint pieces here: chains do not cross.
    let part = |keep: &dyn Fn(u32) -> bool| {
        let mut some = Rows::new(2, 2);
        (0..rows.len()).filter(|&i| keep(rows.streams[i])).for_each(|i| some.extend(&rows, i..i + 1));
        let basis = Dictionary::from_elements(h.kernel.clone(), 2, &elements).unwrap();
        let mut model = Model::with_dictionary(split.clone(), Inputs::identity(2), &h, basis);
        model.learn(&some, 0..some.len(), 0);
        model
    };
    let (whole, a, b) = (build(0..rows.len()), part(&|s| s == 0), part(&|s| s != 0));
    let mut sum = a.statistics().clone();
    sum.merge(b.statistics());
    let near = |x: &Statistics, y: &Statistics| {
        assert_eq!(x.rows, y.rows);
        assert!((x.gram.to_nalgebra() - y.gram.to_nalgebra()).amax() < 1e-9);
        assert!((x.response.to_nalgebra() - y.response.to_nalgebra()).amax() < 1e-9);
        assert!((x.closed.coupling.to_nalgebra() - y.closed.coupling.to_nalgebra()).amax() < 1e-9);
        assert!(distance(&x.energy, &y.energy) < 1e-9);
    };
    near(&sum, whole.statistics());
    sum.subtract(b.statistics());
    near(&sum, a.statistics());
}
