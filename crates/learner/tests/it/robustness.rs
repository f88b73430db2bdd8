//! With any rows a refit gives a sane model or an error, and its diagnostics name the obstacles.

use criticd_learner::allowance::Allowance;
use criticd_learner::diagnostics::Diagnostic;
use criticd_learner::refit::{self, Candidate, EvidenceKind, Lack, RefitError, Verdict};
use criticd_learner::snapshot::Ask;
use criticd_learner::transition::{Batch, BatchParts};
use criticd_learner::window::Window;
use criticd_learner::{KernelKind, Learner, SelectBy, Settings};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rows with these next states and rewards, each an episode of its own: the return is the reward.
fn episodes(dim: usize, states: Vec<f64>, rewards: Vec<f64>) -> Window {
    let n = rewards.len();
    let batch = Batch::new(BatchParts {
        stream: "s".into(),
        dim,
        rewards_per_row: 1,
        next_states: Some(states.clone()),
        states,
        rewards,
        terminated: Some(vec![true; n]),
        ..BatchParts::default()
    })
    .expect("rows that are accepted");
    let mut window = Window::new(dim, 1, n);
    (0..n).for_each(|i| window.push(0, true, &batch, i));
    window
}

/// n states in [-1, 1]^dim, and their values with a little noise.
fn noisy(dim: usize, n: usize, seed: u64, value: impl Fn(&[f64]) -> f64) -> (Vec<f64>, Vec<f64>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let states: Vec<f64> = (0..n * dim).map(|_| rng.random_range(-1.0..1.0)).collect();
    let rewards = states.chunks_exact(dim).map(|x| value(x) + rng.random_range(-0.2..0.2)).collect();
    (states, rewards)
}

fn settings() -> Settings {
    Settings { evidence_rows: 300, search_starts: 3, refit_first_rows: 0, dictionary_max: 100, ..Settings::paper() }
}

fn refit_by(window: &Window, settings: Settings) -> Result<Candidate, RefitError> {
    let mut learner = Learner::new(settings, None);
    learner.step(window);
    learner.request_refit();
    let Some(reason) = learner.refit_due() else {
        return Err(RefitError::NotEnough(Lack::Rows { rows: window.len(), least: 1 }));
    };
    let job = learner.refit_job(window, reason).expect("a value function to start from");
    let found = refit::run(&job, &|| true);
    if let Ok(candidate) = &found {
        sane(candidate);
    }
    found
}

fn refitted(window: &Window) -> Result<Candidate, RefitError> {
    refit_by(window, settings())
}

/// Everything finite, and the variance of no state negative.
fn sane(candidate: &Candidate) {
    let snapshot = candidate.model.snapshot(true).expect("a posterior");
    let hyper = &snapshot.hyperparameters;
    assert!(hyper.noise_variance > 0.0 && hyper.noise_variance.is_finite(), "{hyper:?}");
    assert!(hyper.kernel.signal_variance > 0.0 && hyper.kernel.diagonal().is_finite(), "{hyper:?}");
    let dim = snapshot.dim();
    let states: Vec<f64> = (0..50 * dim).map(|k| (k as f64 * 0.618).fract() * 2.0 - 1.0).collect();
    let values = snapshot.evaluate(&states, Ask::VARIANCE).expect("finite states");
    assert!(values.mean.iter().all(|v| v.is_finite()));
    let worst = values.variance.expect("asked for").into_iter().fold(f64::INFINITY, f64::min);
    assert!(worst >= -1e-6 * hyper.kernel.diagonal(), "{worst} of {}", hyper.kernel.diagonal());
    assert!(!candidate.report.findings.is_empty());
}

fn not_enough(found: Result<Candidate, RefitError>, why: Lack) {
    assert_eq!(found.map(|c| c.report), Err(RefitError::NotEnough(why)));
}

fn found_by(candidate: &Candidate, is: impl Fn(&Diagnostic) -> bool) {
    assert!(candidate.report.findings.iter().any(is), "{:?}", candidate.report.findings);
}

fn not_found_by(candidate: &Candidate, is: impl Fn(&Diagnostic) -> bool) {
    assert!(!candidate.report.findings.iter().any(is), "{:?}", candidate.report.findings);
}

fn has_outliers(diagnostic: &Diagnostic) -> bool {
    matches!(diagnostic, Diagnostic::OutlyingStates { .. } | Diagnostic::OutlyingReturns { .. })
}

/// Column 0 of `states` and what `more` makes of it, side by side.
fn beside(states: &[f64], dim: usize, more: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    states
        .chunks_exact(dim)
        .flat_map(|x| x.iter().copied().chain(std::iter::once(more(x))).collect::<Vec<_>>())
        .collect()
}

#[test]
fn too_little_information_keeps_the_current_model() {
    let (states, rewards) = noisy(1, 3, 1, |x| x[0]);
    let quick = Settings { warmup_rows: 1, ..settings() };
    not_enough(refit_by(&episodes(1, states, rewards), quick), Lack::Rows { rows: 3, least: 16 });
    let (states, _) = noisy(2, 200, 2, |_| 0.0);
    not_enough(refitted(&episodes(2, states, vec![0.0; 200])), Lack::DifferentReturns);
    not_enough(refitted(&episodes(2, [0.3, -0.7].repeat(10_000), vec![1.0; 10_000])), Lack::States);
    let rewards = (0..300).map(f64::from).collect();
    not_enough(refitted(&episodes(1, vec![0.5; 300], rewards)), Lack::States);
}

#[test]
fn a_constant_says_nothing() {
    let (states, rewards) = noisy(1, 400, 3, |x| (3.0 * x[0]).sin());
    for kernel in [KernelKind::Isotropic, KernelKind::Ard, KernelKind::Factor(Some(1)), KernelKind::Auto] {
        let window = episodes(2, beside(&states, 1, |_| 7.5e8), rewards.clone());
        let found = refit_by(&window, Settings { kernel, ..settings() }).unwrap();
        let variables = &found.report.variables;
        assert_eq!((variables[0].verdict, variables[1].verdict), (Verdict::Kept, Verdict::Constant), "{kernel:?}");
    }
}

#[test]
fn a_copy_is_told_from_what_it_is_a_copy_of() {
    let (states, rewards) = noisy(2, 400, 4, |x| (3.0 * x[1]).sin());
    // In another unit and of the other sign.
    let window = episodes(3, beside(&states, 2, |x| 5.0 - 1e6 * x[1]), rewards);
    for kernel in [KernelKind::Ard, KernelKind::Auto] {
        let found = refit_by(&window, Settings { kernel, ..settings() }).unwrap();
        let verdicts: Vec<Verdict> = found.report.variables.iter().map(|v| v.verdict).collect();
        assert_eq!((verdicts[1], verdicts[2]), (Verdict::Kept, Verdict::CopyOf(1)), "{kernel:?}");
    }
}

#[test]
fn one_lengthscale_for_all_does_not_hide_what_copies_mean() {
    let (states, rewards) = noisy(1, 400, 15, |x| (3.0 * x[0]).sin());
    let window = episodes(3, states.iter().flat_map(|x| [*x, 3.0 * x + 1.0, -x]).collect(), rewards);
    for kernel in [KernelKind::Isotropic, KernelKind::Auto] {
        let found = refit_by(&window, Settings { kernel, ..settings() }).unwrap();
        assert!(found.report.variables[0].evidence_drop > Some(10.0), "{kernel:?}: {:?}", found.report.variables);
    }
}

#[test]
fn near_copies_are_told() {
    let (states, rewards) = noisy(2, 400, 5, |x| (3.0 * x[0]).sin());
    let window = episodes(3, beside(&states, 2, |x| x[0] + 0.01 * x[1]), rewards);
    let found = refitted(&window).unwrap();
    found_by(&found, |d| matches!(d, Diagnostic::Correlated { variables, .. } if *variables == ["state_0", "state_2"]));
}

#[test]
fn units_do_not_matter() {
    let (states, rewards) = noisy(2, 400, 6, |x| (3.0 * x[0]).sin() + x[1]);
    let scaled = states.chunks_exact(2).flat_map(|x| [1e-6 * x[0], 1e6 * x[1] + 1e6]).collect();
    let (plain, scaled) = (refitted(&episodes(2, states, rewards.clone())), refitted(&episodes(2, scaled, rewards)));
    let (plain, scaled) = (plain.unwrap().report, scaled.unwrap().report);
    assert!((plain.evidence_after.unwrap() - scaled.evidence_after.unwrap()).abs() < 1e-3);
    let ratio = |d: usize| scaled.variables[d].lengthscale.unwrap() / plain.variables[d].lengthscale.unwrap();
    assert!((ratio(0) * 1e6 - 1.0).abs() < 1e-2 && (ratio(1) * 1e-6 - 1.0).abs() < 1e-2);
}

#[test]
fn a_state_a_million_deviations_away_does_not_hide_the_others() {
    let (mut states, mut rewards) = noisy(1, 600, 7, |x| (3.0 * x[0]).sin());
    for k in [100, 400] {
        states[k] = 6e5;
        rewards[k] = 0.0;
    }
    let found = refitted(&episodes(1, states, rewards)).unwrap();
    found_by(&found, |d| matches!(d, Diagnostic::OutlyingStates { variable } if variable == "state_0"));
    let snapshot = found.model.snapshot(false).unwrap();
    let mean = snapshot.evaluate(&[-0.5, 0.5], Ask::MEAN).unwrap().mean;
    assert!((mean[(0, 0)] + 1.5f64.sin()).abs() < 0.1 && (mean[(1, 0)] - 1.5f64.sin()).abs() < 0.1, "{mean}");
}

#[test]
fn outlying_rewards_are_told() {
    let (states, mut rewards) = noisy(1, 600, 8, |x| (3.0 * x[0]).sin());
    rewards[77] = 6e5;
    let outlying = refitted(&episodes(1, states.clone(), rewards)).unwrap();
    found_by(&outlying, |d| matches!(d, Diagnostic::OutlyingReturns { deviations } if *deviations > 10.0));
    let (_, rewards) = noisy(1, 600, 8, |x| (3.0 * x[0]).sin());
    not_found_by(&refitted(&episodes(1, states, rewards)).unwrap(), has_outliers);
}

#[test]
fn a_noise_floor_that_holds_is_told() {
    let (states, _) = noisy(1, 400, 9, |_| 0.0);
    let rewards = states.iter().map(|x| (3.0 * x).sin()).collect::<Vec<f64>>();
    let found = refitted(&episodes(1, states.clone(), rewards)).unwrap();
    found_by(&found, |d| *d == Diagnostic::NoiseAtFloor);
    assert!(found.report.fit_ratio.unwrap() < 0.5, "{:?}", found.report.fit_ratio);
    let (_, rewards) = noisy(1, 400, 9, |x| (3.0 * x[0]).sin());
    let found = refitted(&episodes(1, states, rewards)).unwrap();
    not_found_by(&found, |d| matches!(d, Diagnostic::NoiseAtFloor | Diagnostic::EvidenceCollapses));
    assert!((found.report.fit_ratio.unwrap() - 1.0).abs() < 0.2, "{:?}", found.report.fit_ratio);
}

#[test]
fn a_collapse_onto_single_returns_is_told() {
    // Values that jump from one state to the next, with no noise: nothing but interpolation explains them.
    let states: Vec<f64> = (0..400).map(f64::from).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(10);
    let rewards = (0..400).map(|_| rng.random_range(-1.0..1.0)).collect::<Vec<f64>>();
    // Every row ends its episode, so that no step keeps lengthscales long; each is repeated, so that noise would show.
    let twice = |v: &[f64]| v.iter().flat_map(|x| [*x, *x]).collect::<Vec<f64>>();
    let n = 800;
    let (states, rewards) = (twice(&states), twice(&rewards));
    let batch = Batch::new(BatchParts {
        stream: "s".into(),
        dim: 1,
        rewards_per_row: 1,
        next_states: Some(states.iter().map(|x| x + 1.0).collect()),
        states,
        rewards,
        terminated: Some(vec![true; n]),
        ..BatchParts::default()
    });
    let mut window = Window::new(1, 1, n);
    let batch = batch.unwrap();
    (0..n).for_each(|i| window.push(0, true, &batch, i));
    let found = refit_by(&window, Settings { evidence_rows: 800, ..settings() }).unwrap();
    found_by(&found, |d| *d == Diagnostic::EvidenceCollapses);
}

#[test]
fn a_dictionary_that_is_too_small_is_told() {
    let (states, rewards) = noisy(2, 900, 11, |x| (9.0 * x[0]).sin() * (9.0 * x[1]).cos());
    let window = episodes(2, states, rewards);
    let small = refit_by(&window, Settings { dictionary_max: 12, ..settings() }).unwrap();
    assert!(small.report.evidence_loss > Some(100.0), "{:?}", small.report);
    found_by(&small, |d| matches!(d, Diagnostic::EvidenceLost { nats, .. } if *nats > 100.0));
    let large = refit_by(&window, Settings { dictionary_max: 300, ..settings() }).unwrap();
    assert!(large.report.trace_gap < 5.0 && large.report.evidence_loss < Some(20.0), "{:?}", large.report);
    not_found_by(&large, |d| matches!(d, Diagnostic::EvidenceLost { .. } | Diagnostic::TraceGap { .. }));
    // Selected by the exact evidence, which knows nothing of dictionaries, it cannot be rebuilt.
    let exact = Settings { dictionary_max: 12, evidence: SelectBy::Exact, ..settings() };
    let exact = refit_by(&window, exact).unwrap();
    assert!(exact.report.trace_gap > 5.0 && exact.report.evidence_loss.is_none(), "{:?}", exact.report);
    found_by(&exact, |d| matches!(d, Diagnostic::TraceGap { elements: 12, full: true, nats } if *nats > 5.0));
}

#[test]
fn what_every_reward_loses_is_counted() {
    let (states, rewards) = noisy(1, 300, 17, |x| (9.0 * x[0]).sin());
    let batch = Batch::new(BatchParts {
        stream: "s".into(),
        dim: 1,
        rewards_per_row: 2,
        next_states: Some(states.clone()),
        states: states.clone(),
        rewards: rewards.iter().flat_map(|r| [*r, *r]).collect(),
        terminated: Some(vec![true; 300]),
        ..BatchParts::default()
    })
    .unwrap();
    let mut twice = Window::new(1, 2, 300);
    (0..300).for_each(|i| twice.push(0, true, &batch, i));
    let exact = Settings { kernel: KernelKind::Isotropic, evidence: SelectBy::Exact, ..settings() };
    let both = refit_by(&twice, Settings { rewards: vec![0, 1], ..exact }).unwrap();
    // The dictionary aims at two nats, of both rewards together.
    assert!(both.report.trace_gap > 0.0 && both.report.trace_gap <= 2.5, "{}", both.report.trace_gap);
    let posterior = both.model.solve().unwrap();
    let each = posterior.trace_gap(both.model.statistics());
    assert!((both.report.trace_gap / each - 2.0).abs() < 1e-9, "{} of {each} each", both.report.trace_gap);
}

#[test]
fn which_evidence_decided_is_told() {
    let (states, rewards) = noisy(2, 900, 12, |x| (3.0 * x[0]).sin() + x[1]);
    let window = episodes(2, states, rewards);
    let exact = |used| Diagnostic::SelectedByEvidence { used, rows: 900, without_bound: false };
    for (evidence, evidence_rows, kind, rows, by) in [
        (SelectBy::Auto, 300, EvidenceKind::Sparse, 900, Diagnostic::SelectedByBound { rows: 900 }),
        (SelectBy::Auto, 900, EvidenceKind::Exact, 900, exact(900)),
        (SelectBy::Exact, 300, EvidenceKind::Exact, 300, exact(300)),
        (SelectBy::Sparse, 900, EvidenceKind::Sparse, 900, Diagnostic::SelectedByBound { rows: 900 }),
    ] {
        let found = refit_by(&window, Settings { evidence, evidence_rows, ..settings() }).unwrap();
        assert_eq!((found.report.evidence, found.report.evidence_rows), (kind, rows));
        found_by(&found, |d| *d == by);
    }
}

#[test]
fn the_bound_finds_what_the_exact_evidence_finds() {
    let (states, rewards) = noisy(2, 800, 13, |x| (3.0 * x[0]).sin() + x[1]);
    let window = episodes(2, states, rewards);
    let by = |evidence| {
        let settings = Settings { evidence, evidence_rows: 800, dictionary_max: 300, ..settings() };
        refit_by(&window, settings).unwrap().report
    };
    let (exact, sparse) = (by(SelectBy::Exact), by(SelectBy::Sparse));
    // With the trace gap aimed at, the bound is that much below at most.
    let (bound, best) = (sparse.evidence_after.unwrap(), exact.evidence_after.unwrap());
    assert!(bound < best + 1e-3, "{sparse:?}");
    assert!(bound > best - 4.0, "{bound} {best}");
    for (a, b) in exact.variables.iter().zip(&sparse.variables) {
        assert!((a.lengthscale.unwrap() / b.lengthscale.unwrap() - 1.0).abs() < 0.1, "{a:?} {b:?}");
    }
}

#[test]
fn without_a_budget_the_best_so_far_stands_and_that_is_told() {
    let (states, rewards) = noisy(2, 300, 16, |x| (3.0 * x[0]).sin());
    let window = episodes(3, beside(&states, 2, |_| 1.0), rewards);
    for kernel in [KernelKind::Isotropic, KernelKind::Ard, KernelKind::Factor(Some(1)), KernelKind::Auto] {
        let mut learner = Learner::new(Settings { kernel, ..settings() }, None);
        learner.step(&window);
        learner.request_refit();
        let job = learner.refit_job(&window, learner.refit_due().unwrap()).unwrap();
        let all = Allowance::unlimited();
        refit::run_within(&job, &|| true, &all).unwrap();
        assert!(!all.has_ended());
        for limit in (0..8).map(|share| all.spent() * share / 10).chain([1, 10_000, 1_000_000]) {
            let found = refit::run_within(&job, &|| true, &Allowance::of_products(limit)).unwrap();
            assert!(found.report.out_of_time);
            found_by(&found, |d| *d == Diagnostic::BudgetEnded);
            // What is left out stays so, also where nothing was climbed.
            let metric = found.model.hyperparameters().kernel.metric;
            assert!(metric.kind() == "isotropic" || metric.relevance(3)[2] == 0.0, "{kernel:?} at {limit}: {metric:?}");
        }
    }
}

#[test]
fn the_budget_ends_the_weighing_of_many_variables_too() {
    const DIM: usize = 40;
    let (states, rewards) = noisy(DIM, 300, 18, |x| (3.0 * x[0]).sin() + x[1]);
    let window = episodes(DIM, states, rewards);
    let by_evidence = Settings { kernel: KernelKind::Ard, ..settings() };
    // With directions beside relevances most of the variables would be left out.
    let by_returns =
        Settings { kernel: KernelKind::Isotropic, refit_first_rows: 0, dictionary_max: 60, ..Settings::default() };
    for (settings, by) in [(by_evidence, "evidence"), (by_returns, "returns")] {
        let mut learner = Learner::new(Settings { refit_budget_s: 1e-6, ..settings }, None);
        learner.step(&window);
        learner.request_refit();
        let job = learner.refit_job(&window, learner.refit_due().unwrap()).unwrap();
        let weighed = |limit: u64| {
            let allowance = Allowance::of_products(limit);
            let found = refit::run_within(&job, &|| true, &allowance).unwrap();
            let variables = found.report.variables.into_iter().filter(|variable| variable.relevance > 0.0);
            let (known, unknown): (Vec<_>, Vec<_>) = variables.partition(|variable| variable.evidence_drop.is_some());
            (known, unknown, allowance.spent())
        };
        let (known, unknown, spent) = weighed(u64::MAX);
        assert!(known.len() > 20 && unknown.is_empty(), "{} {}", known.len(), unknown.len());
        // The last work is for the variables, one after the other: a factorisation and the covariances of 300 rows.
        let (known, unknown, _) = weighed(spent - 100_000_000);
        assert!((5..=30).contains(&unknown.len()) && known.len() > 5, "{} {}", known.len(), unknown.len());
        let least = known.iter().map(|variable| variable.relevance).fold(f64::INFINITY, f64::min);
        // Where held-out returns choose, the kernel may be another than the one whose variables are weighed.
        let are_least = unknown.iter().all(|variable| variable.relevance <= least);
        assert!(are_least || by == "returns", "those that matter least");
        // With a budget there is some for them, whenever the search has ended.
        let job = refit::RefitJob { settings: Settings { refit_budget_s: 20.0, ..job.settings.clone() }, ..job };
        let found = refit::run_within(&job, &|| true, &Allowance::of_products(1000)).unwrap();
        let known = found.report.variables.iter().filter(|variable| variable.evidence_drop.is_some());
        assert!(found.report.evidence_drop_by.is_none() || known.count() > 20);
    }
}

#[test]
fn whenever_it_is_told_to_stop_it_stops() {
    let (states, rewards) = noisy(2, 700, 14, |x| (3.0 * x[0]).sin() + x[1]);
    let window = episodes(2, states, rewards);
    let mut learner = Learner::new(Settings { kernel: KernelKind::Auto, ..settings() }, None);
    learner.step(&window);
    learner.request_refit();
    let job = learner.refit_job(&window, learner.refit_due().unwrap()).unwrap();
    let count = AtomicU64::new(0);
    let counting = || {
        count.fetch_add(1, Ordering::Relaxed);
        true
    };
    refit::run(&job, &counting).unwrap();
    let all = count.load(Ordering::Relaxed);
    for limit in (0..20).map(|share| all * share / 20).chain(all.saturating_sub(5)..all) {
        let asked = AtomicU64::new(0);
        let stop = || asked.fetch_add(1, Ordering::Relaxed) < limit;
        let stopped = refit::run(&job, &stop);
        assert!(matches!(stopped, Err(RefitError::Stopped)), "at {limit} of {all}: {:?}", stopped.map(|c| c.report));
        // It looks once more for each loop that it leaves, and begins nothing.
        let asked = asked.load(Ordering::Relaxed);
        assert!(asked <= limit + 5, "asked {} times after the flag went up", asked - limit);
    }
}

#[test]
fn directions_that_were_not_found_are_told() {
    let (states, rewards) = noisy(1, 400, 15, |x| (3.0 * x[0]).sin());
    let window = episodes(1, states, rewards);
    let found = refit_by(&window, Settings { kernel: KernelKind::Factor(None), ..settings() }).unwrap();
    assert_eq!(found.report.structure, "ard");
    found_by(&found, |d| *d == Diagnostic::FewerDirections { asked: 1, given: 0 });
}

#[test]
fn rewards_that_are_seen_rarely_are_no_outliers() {
    // One success in fifty rows, remembered for a while by the returns before it.
    let mut rng = ChaCha8Rng::seed_from_u64(16);
    let states: Vec<f64> = (0..600).map(|_| rng.random_range(-1.0..1.0)).collect();
    let rewards = (0..600).map(|i| if i % 50 == 0 { 1.0 } else { 0.001 * rng.random::<f64>() }).collect();
    not_found_by(&refitted(&episodes(1, states, rewards)).unwrap(), has_outliers);
}

/// A walk between -1 and 1 in chains of 200 rows whose rewards are where it is, its actions taken with these probabilities.
fn walked(n: usize, behavior_prob: f64, target_prob: f64) -> Window {
    let mut rng = ChaCha8Rng::seed_from_u64(31);
    let (mut states, mut next_states) = (Vec::new(), Vec::new());
    let mut x: f64 = 0.0;
    for i in 0..n {
        x = if i % 200 == 0 { rng.random_range(-1.0..1.0) } else { x };
        states.push(x);
        x = (x + rng.random_range(-0.2..0.2)).clamp(-1.0, 1.0);
        next_states.push(x);
    }
    let batch = Batch::new(BatchParts {
        stream: "s".into(),
        dim: 1,
        rewards_per_row: 1,
        rewards: states.clone(),
        states,
        next_states: Some(next_states),
        truncated: Some((0..n).map(|i| i % 200 == 199).collect()),
        behavior_probs: Some(vec![behavior_prob; n]),
        target_probs: Some(vec![target_prob; n]),
        ..BatchParts::default()
    })
    .expect("rows that are accepted");
    let mut window = Window::new(1, 1, n);
    (0..n).for_each(|i| window.push(0, i == 0, &batch, i));
    window
}

#[test]
fn ratios_far_above_one_are_told_and_leave_a_model() {
    let settings = Settings { discount: 0.9, dictionary_max: 50, refit_first_rows: 0, ..Settings::default() };
    let values = |candidate: &Candidate| {
        let states: Vec<f64> = (-9..=9).map(|k| f64::from(k) / 10.0).collect();
        candidate.model.snapshot(true).unwrap().evaluate(&states, Ask::MEAN).unwrap().mean
    };
    let plain = refit_by(&walked(4000, 0.5, 0.5), settings.clone()).unwrap();
    not_found_by(&plain, |d| matches!(d, Diagnostic::LargeRatios { .. } | Diagnostic::SelectedByHeads { .. }));
    // Their products along a chain overflow after 35 rows.
    let heavy = refit_by(&walked(4000, 1e-9, 1.0), settings).unwrap();
    found_by(&heavy, |d| matches!(d, Diagnostic::LargeRatios { mean } if (mean / 1e9 - 1.0).abs() < 1e-9));
    // Ratios that are all alike weight nothing.
    let (expected, found) = (values(&plain), values(&heavy));
    assert!((&found - &expected).amax() < 0.15 * expected.amax(), "{found} {expected}");
}

#[test]
fn states_of_any_unit_are_learned() {
    let (states, rewards) = noisy(1, 400, 3, |x| (3.0 * x[0]).sin());
    let in_unit = |unit: f64| refitted(&episodes(1, states.iter().map(|x| unit * x).collect(), rewards.clone()));
    let small = in_unit(2f64.powi(-600)).unwrap();
    assert_eq!(small.report.variables[0].verdict, Verdict::Kept);
    assert_eq!(small.model.hyperparameters(), in_unit(1.0).unwrap().model.hyperparameters());
    // Beside a variable that can be learned of, one that cannot is told.
    let both = beside(&states, 1, |x| 1e-300 * x[0]);
    let found = refitted(&episodes(2, both, rewards.clone())).unwrap();
    found_by(&found, |d| matches!(d, Diagnostic::TinyStates { variable, .. } if variable == "state_1"));
}
