//! What is learned is right: streams whose true values are known.

use criticd_learner::allowance::Allowance;
use criticd_learner::math::returns::Returns;
use criticd_learner::model::Model;
use criticd_learner::refit;
use criticd_learner::snapshot::Ask;
use criticd_learner::transition::{Batch, Rows};
use criticd_learner::window::Window;
use criticd_learner::{Learner, Rejection, Settings, VarianceKind, Verdict};
use criticd_sim::linear::Linear;
use criticd_sim::pendulum::Pendulum;
use criticd_sim::{self as sim, Step, walk};
use nalgebra::DMatrix;

/// Streams a batch into the window the way the daemon does: a chain goes on while nothing is missing.
struct Feed {
    window: Window,
    next_seq: Option<u64>,
    last: Option<Vec<f64>>,
}

impl Feed {
    fn new(dim: usize) -> Self {
        Self { window: Window::new(dim, 1, 200_000), next_seq: None, last: None }
    }

    fn push(&mut self, batch: &Batch) {
        for i in 0..batch.len() {
            let seq = batch.seq().map(|seq| seq + i as u64);
            let follows = seq == self.next_seq && self.last.as_deref() == Some(batch.state(i));
            self.window.push(0, !follows, batch, i);
            self.last = (!batch.terminated(i) && !batch.truncated(i)).then(|| batch.next_state(i).to_vec());
            self.next_seq = seq.map(|seq| seq + 1);
        }
    }
}

/// Run a refit to its end and let the learner decide.
fn refit(learner: &mut Learner, window: &Window) {
    let Some(reason) = learner.refit_due() else { return };
    let job = learner.refit_job(window, reason).expect("there is a model");
    let candidate = refit::run(&job, &|| true).expect("a candidate");
    match learner.try_adopt(candidate, window) {
        Verdict::Adopted { .. } | Verdict::Rejected { .. } => {}
        Verdict::Behind(_) => panic!("nothing arrived meanwhile"),
    }
}

fn normalised_rmse(found: &[f64], truth: &[f64]) -> f64 {
    let mean = truth.iter().sum::<f64>() / truth.len() as f64;
    let square: f64 = found.iter().zip(truth).map(|(a, b)| (a - b) * (a - b)).sum();
    let spread: f64 = truth.iter().map(|v| (v - mean) * (v - mean)).sum();
    (square / spread).sqrt()
}

fn walk_error(time_limit: u32, lost: f64, seed: u64) -> f64 {
    let settings =
        Settings { discount: 0.95, evidence_rows: 400, refit_first_rows: 2000, refit_growth: 4.0, ..Settings::paper() };
    let (mut learner, mut feed) = (Learner::new(settings, None), Feed::new(1));
    let mut walk = walk::Walk::new(seed, Some(time_limit), lost);
    let mut count = 0;
    while count < 32_000 {
        let steps: Vec<Step> = (0..256).map(|_| walk.step()).collect();
        count += steps.len();
        sim::batches("walk", "", &steps).iter().for_each(|batch| feed.push(batch));
        learner.step(&feed.window);
        refit(&mut learner, &feed.window);
    }
    let snapshot = learner.snapshot(false).unwrap();
    let found = snapshot.evaluate(&walk::states(), Ask::MEAN).unwrap();
    normalised_rmse(found.mean.as_slice(), walk::true_values(0.95).as_slice())
}

#[test]
fn cut_chains_do_not_bias_the_walk() {
    for (time_limit, lost) in [(40, 0.0), (10, 0.0), (40, 0.05), (40, 0.2)] {
        let errors: Vec<f64> = (1..=4).map(|seed| walk_error(time_limit, lost, seed)).collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        eprintln!("time limit {time_limit}, {lost} of the frames lost: normalised RMSE {mean:.4} {errors:.3?}");
        assert!(mean < 0.05, "time limit {time_limit}, {lost} of the frames lost: normalised RMSE {mean}");
    }
}

/// Mean and standard deviation of V by batch SR with the model's own dictionary, straight from the definition.
fn batch(rows: &Rows, model: &Model, discount: f64, query: &[f64]) -> Vec<(f64, f64)> {
    let hyper = model.hyperparameters();
    let dictionary = model.dictionary();
    let features = |states: &[f64]| {
        let states = model.inputs().normalise(states);
        dictionary.features(&dictionary.kernel().project(rows.dim, &states)).to_nalgebra()
    };
    let (phi, m) = (features(&rows.states), dictionary.len());
    let returns = Returns::new(rows, &[0], discount);
    let at_cuts = features(&returns.cut_states(rows));
    let mut closing = DMatrix::zeros(rows.len(), m);
    for i in 0..rows.len() {
        if let Some(cut) = returns.cut_of[i] {
            closing.row_mut(i).copy_from(&(at_cuts.column(cut).transpose() * returns.weight[i]));
        }
    }
    let noise = DMatrix::identity(m, m) * hyper.noise_variance;
    let gram = &phi * phi.transpose();
    let u = (&gram - &phi * closing + &noise).lu().solve(&(&phi * returns.open.to_nalgebra())).unwrap();
    let inverse = (gram + noise).try_inverse().unwrap();
    let phi = features(query);
    (0..phi.ncols())
        .map(|k| {
            let x = phi.column(k);
            let unexplained = dictionary.kernel().diagonal() - x.norm_squared();
            let variance = unexplained + hyper.noise_variance * (x.transpose() * &inverse * x)[0];
            ((x.transpose() * &u)[0], variance.sqrt())
        })
        .collect()
}

#[test]
fn one_pass_with_backfill_stays_close_to_batch() {
    // Hyperparameters as selection finds them on such a stream; then one pass over 2 000 rows that starts from nothing.
    let settings = Settings { tolerance: 0.01, estimate_scale: false, refit_first_rows: 2000, ..Settings::paper() };
    let mut pendulum = Pendulum::new(5, 0.3);
    let steps: Vec<Step> = (0..2000).map(|_| pendulum.step()).collect();
    let mut feed = Feed::new(2);
    sim::batches("pendulum", "", &steps).iter().for_each(|batch| feed.push(batch));
    let mut learner = Learner::new(settings.clone(), None);
    learner.step(&feed.window);
    refit(&mut learner, &feed.window);
    let fitted = learner.model().unwrap();
    let rows = feed.window.flatten();
    let (mut errors, mut exact) = (Vec::new(), f64::NAN);
    for backfill_rows in [0, 100, 300, 1024, 2000] {
        let settings = Settings { backfill_rows, dictionary_max: 1000, ..settings.clone() };
        let mut model = Model::new(settings, fitted.inputs().clone(), &fitted.hyperparameters());
        model.learn(&rows, 0..rows.len(), 0);
        let query = &rows.states[..2 * 500];
        let found = model.snapshot(false).unwrap().evaluate(query, Ask::MEAN).unwrap();
        let expected = batch(&rows, &model, 0.99, query);
        let total: f64 = expected.iter().zip(found.mean.iter()).map(|((v, sd), found)| (v - found).abs() / sd).sum();
        let largest = expected.iter().fold(0.0f64, |a, (v, _)| a.max(v.abs()));
        let apart = expected.iter().zip(found.mean.iter()).fold(0.0f64, |a, ((v, _), found)| a.max((v - found).abs()));
        exact = apart / largest;
        let (error, m) = (total / 500.0, model.dictionary().len());
        eprintln!("backfill over {backfill_rows} rows, m = {m}: {error:.3e} posterior standard deviations from batch");
        errors.push(error);
    }
    assert!(errors[0] > 3.0 * errors[3], "backfill should make a difference, or this test shows nothing: {errors:?}");
    assert!(errors[3] < 0.1, "the default leaves {} standard deviations", errors[3]);
    assert!(exact < 1e-9, "backfill over everything is batch, but {exact:e} of the value is left");
}

#[test]
fn clustering_by_chain_widens_intervals_that_are_too_narrow() {
    // Returns of one chain share their noise: the model's own intervals miss, the clustered ones less so
    // (docs/mathematics.md (V5), (V6)).
    let covered = |variance| {
        let (mut inside, mut total) = (0, 0);
        for seed in 1..=12 {
            let settings = Settings { discount: 0.95, variance, evidence_rows: 300, ..Settings::paper() };
            let (mut learner, mut feed) = (Learner::new(settings, None), Feed::new(1));
            let mut walk = walk::Walk::new(seed, Some(40), 0.0);
            for _ in 0..4 {
                let steps: Vec<Step> = (0..1000).map(|_| walk.step()).collect();
                sim::batches("walk", "", &steps).iter().for_each(|batch| feed.push(batch));
                learner.step(&feed.window);
            }
            learner.request_refit();
            refit(&mut learner, &feed.window);
            let found = learner.snapshot(true).unwrap().evaluate(&walk::states(), Ask::VARIANCE).unwrap();
            let (truth, variance) = (walk::true_values(0.95), found.variance.unwrap());
            for (k, v) in truth.iter().enumerate() {
                inside += usize::from((found.mean[(k, 0)] - v).abs() <= 1.96 * variance[k].sqrt());
                total += 1;
            }
        }
        inside as f64 / total as f64
    };
    let (model, clustered) = (covered(VarianceKind::Model), covered(VarianceKind::Clustered));
    eprintln!("coverage of 95 % intervals of V: {model:.2} as the model states it, {clustered:.2} clustered");
    assert!(clustered > model + 0.1 && clustered > 0.7, "model {model}, clustered {clustered}");
}

#[test]
fn a_candidate_gets_in_however_fast_the_stream_is() {
    // More rows arrive while it is caught up than the window holds: it leaves them out and is adopted all the same.
    let settings = Settings { discount: 0.95, evidence_rows: 200, refit_first_rows: 0, ..Settings::paper() };
    let mut learner = Learner::new(settings, None);
    let mut feed = Feed { window: Window::new(1, 1, 1000), ..Feed::new(1) };
    let mut walk = walk::Walk::new(1, Some(40), 0.0);
    let mut stream = |feed: &mut Feed, learner: &mut Learner, rows: usize| {
        for _ in 0..rows / 100 {
            let steps: Vec<Step> = (0..100).map(|_| walk.step()).collect();
            sim::batches("walk", "", &steps).iter().for_each(|batch| feed.push(batch));
            learner.step(&feed.window);
        }
    };
    stream(&mut feed, &mut learner, 4000);
    learner.request_refit();
    let job = learner.refit_job(&feed.window, learner.refit_due().unwrap()).unwrap();
    let mut candidate = refit::run(&job, &|| true).unwrap();
    let report = loop {
        stream(&mut feed, &mut learner, 20_000);
        match learner.try_adopt(candidate, &feed.window) {
            Verdict::Behind(behind) => candidate = behind,
            Verdict::Adopted { report, .. } => break report,
            Verdict::Rejected { why, .. } => panic!("{why}"),
        }
        candidate.catch_up(&feed.window, &|| true).unwrap();
    };
    assert!(report.rows_left_out > 20_000);
    assert_eq!(learner.learned(), feed.window.end());
    let model = learner.model().unwrap();
    let start = job.window.start();
    assert_eq!(model.statistics().rows + report.rows_left_out, feed.window.end() - start);
    let found = learner.snapshot(false).unwrap().evaluate(&walk::states(), Ask::MEAN).unwrap();
    let error = normalised_rmse(found.mean.as_slice(), walk::true_values(0.95).as_slice());
    assert!(error < 0.1, "normalised RMSE {error}");
}

#[test]
fn a_first_selection_of_few_rows_is_adopted_and_many_that_came_meanwhile_ask_for_the_next() {
    let settings = Settings { discount: 0.95, refit_first_rows: 200, ..Settings::default() };
    let (mut learner, mut feed) = (Learner::new(settings, None), Feed::new(1));
    let mut walk = walk::Walk::new(1, Some(40), 0.0);
    let mut stream = |feed: &mut Feed, learner: &mut Learner, rows: usize| {
        let steps: Vec<Step> = (0..rows).map(|_| walk.step()).collect();
        sim::batches("walk", "", &steps).iter().for_each(|batch| feed.push(batch));
        learner.step(&feed.window);
    };
    stream(&mut feed, &mut learner, 199);
    assert!(learner.refit_due().is_none() && learner.may_select_early());
    stream(&mut feed, &mut learner, 1);
    let job = learner.refit_job(&feed.window, learner.refit_due().unwrap()).unwrap();
    assert!(!learner.may_select_early() && job.present.is_none(), "nothing has been selected for the first model");
    let mut candidate = refit::run(&job, &|| true).unwrap();
    assert_eq!(candidate.report.trial, None);
    // It is left behind round after round: as soon as one is of no use it leaves rows out.
    let mut rounds = 0;
    let adopted = loop {
        stream(&mut feed, &mut learner, 5000);
        match learner.try_adopt(candidate, &feed.window) {
            Verdict::Behind(behind) => candidate = behind,
            other => break matches!(other, Verdict::Adopted { .. }),
        }
        candidate.catch_up(&feed.window, &|| true).unwrap();
        rounds += 1;
    };
    assert!(adopted && rounds == 1, "{rounds} rounds");
    assert_eq!(learner.next_refit(), Some(400), "twice the rows that chose");
    assert!(learner.refit_due().is_some());
    // The next one sees all of them.
    let job = learner.refit_job(&feed.window, learner.refit_due().unwrap()).unwrap();
    let candidate = refit::run(&job, &|| true).unwrap();
    assert_eq!((candidate.report.rows, candidate.selected_through), (10_200, 10_200));
    learner.try_adopt(candidate, &feed.window);
    assert_eq!(learner.next_refit(), Some(20_400));
}

#[test]
fn a_model_that_errs_more_on_rows_that_chose_neither_does_not_become_the_model() {
    let stream = |settings: &Settings, rows: usize| {
        let (mut learner, mut feed) = (Learner::new(settings.clone(), None), Feed::new(2));
        let mut source = Linear::named("waves", 3).unwrap();
        let steps: Vec<Step> = (0..rows).map(|_| source.step()).collect();
        sim::batches("waves", "", &steps).iter().for_each(|batch| feed.push(batch));
        learner.step(&feed.window);
        learner.request_refit();
        refit(&mut learner, &feed.window);
        let more: Vec<Step> = (0..rows).map(|_| source.step()).collect();
        sim::batches("waves", "", &more).iter().for_each(|batch| feed.push(batch));
        learner.step(&feed.window);
        (learner, feed)
    };
    let good = Settings { discount: 0.95, refit_first_rows: 0, dictionary_max: 100, ..Settings::default() };
    let poor = Settings { dictionary_max: 8, ..good.clone() };
    for (present, new, better) in [(&good, &poor, false), (&poor, &good, true)] {
        let (mut learner, feed) = stream(present, 3000);
        learner.request_refit();
        let job = learner.refit_job(&feed.window, learner.refit_due().unwrap()).unwrap();
        let job = refit::RefitJob { settings: new.clone(), ..job };
        let candidate = refit::run(&job, &|| true).unwrap();
        let trial = candidate.report.trial.expect("there is a present model");
        assert_eq!((trial.rows, trial.gain > 0.0), (1500, better), "{trial:?}");
        // The choice has not seen those rows.
        assert_eq!(candidate.report.selection.as_ref().unwrap().rows, 4500);
        let before = learner.generation();
        match learner.try_adopt(candidate, &feed.window) {
            Verdict::Adopted { .. } => assert!(better && learner.generation() == before + 1),
            Verdict::Rejected { why, .. } => {
                assert!(!better && learner.generation() == before);
                assert_eq!(why, Rejection::ErrsMore(trial));
            }
            Verdict::Behind(_) => panic!("nothing arrived meanwhile"),
        }
    }
}

#[test]
fn a_search_that_its_budget_ends_still_gives_what_it_has_found() {
    let settings = Settings { discount: 0.95, evidence_rows: 300, refit_first_rows: 0, ..Settings::paper() };
    let (mut learner, mut feed) = (Learner::new(settings, None), Feed::new(1));
    let mut walk = walk::Walk::new(2, Some(40), 0.0);
    let steps: Vec<Step> = (0..2000).map(|_| walk.step()).collect();
    sim::batches("walk", "", &steps).iter().for_each(|batch| feed.push(batch));
    learner.step(&feed.window);
    learner.request_refit();
    let job = learner.refit_job(&feed.window, learner.refit_due().unwrap()).unwrap();
    // Enough for some of the first stage, not for the second.
    let candidate = refit::run_within(&job, &|| true, &Allowance::of_products(1_000_000_000)).unwrap();
    assert!(candidate.report.out_of_time && candidate.report.evidence_after.unwrap().is_finite());
    assert!(candidate.report.evidence_after > candidate.report.evidence_before);
}
