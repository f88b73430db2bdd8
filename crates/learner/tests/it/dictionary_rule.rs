//! A refit lets returns choose the dictionary where that predicts later returns better, and says so.

use criticd_learner::allowance::Allowance;
use criticd_learner::diagnostics::Diagnostic;
use criticd_learner::math::kernel::Profile;
use criticd_learner::refit::{self, Candidate, DictionaryReport, RefitJob};
use criticd_learner::transition::{Batch, BatchParts};
use criticd_learner::window::Window;
use criticd_learner::{DictionaryBy, Learner, SelectionKind, Settings};

const ROWS: usize = 600;

/// Places in \[0, 1\], in no order, whose value is a wave below a half and nearly nothing above. Each row is a chain of its own;
/// every third one has this `ratio` of the policies' probabilities.
fn wave(ratio: f64) -> Window {
    let states: Vec<f64> = (0..ROWS).map(|i| (i * 227 % ROWS) as f64 / ROWS as f64).collect();
    let noise = |i: usize| ((i * 7919 % 101) as f64 / 101.0 - 0.5) * 0.02;
    let value = |x: f64| (40.0 * x).sin() * if x < 0.5 { 1.0 } else { 0.05 };
    let rewards: Vec<f64> = states.iter().enumerate().map(|(i, &x)| value(x) + noise(i)).collect();
    let target: Vec<f64> = (0..ROWS).map(|i| if i % 3 == 0 { ratio } else { 1.0 }).collect();
    let batch = Batch::new(BatchParts {
        stream: "points".into(),
        dim: 1,
        rewards_per_row: 1,
        next_states: Some(states.clone()),
        states,
        rewards,
        terminated: Some(vec![true; ROWS]),
        behavior_probs: (ratio != 1.0).then(|| vec![1.0; ROWS]),
        target_probs: (ratio != 1.0).then_some(target),
        ..BatchParts::default()
    });
    let (batch, mut window) = (batch.unwrap(), Window::new(1, 1, ROWS));
    (0..ROWS).for_each(|i| window.push(0, true, &batch, i));
    window
}

fn settings(dictionary_by: Option<DictionaryBy>) -> Settings {
    Settings {
        discount: 0.0,
        dictionary_max: 12,
        dictionary_by,
        refit_first_rows: 0,
        evidence_rows: 300,
        search_starts: 2,
        ..Settings::default()
    }
}

fn job(window: &Window, settings: Settings) -> RefitJob {
    let mut learner = Learner::new(settings, None);
    learner.step(window);
    learner.request_refit();
    learner.refit_job(window, learner.refit_due().unwrap()).unwrap()
}

fn refit_by(window: &Window, settings: Settings) -> Candidate {
    refit::run(&job(window, settings), &|| true).unwrap()
}

/// Mean squared error of the model of a candidate at the places of the window.
fn error(candidate: &Candidate, window: &Window) -> f64 {
    let rows = window.flatten_since(0);
    let found = candidate.model.snapshot(false).unwrap().evaluate(&rows.states, Default::default()).unwrap();
    (0..ROWS).map(|i| (found.mean[(i, 0)] - rows.rewards[i]).powi(2)).sum::<f64>() / ROWS as f64
}

#[test]
fn returns_choose_where_the_dictionary_is_full_and_they_predict_better() {
    let window = wave(1.0);
    for selection in [SelectionKind::Returns, SelectionKind::Evidence] {
        let of = |by: Option<DictionaryBy>| refit_by(&window, Settings { selection, ..settings(by) });
        let (auto, icd) = (of(None), of(Some(DictionaryBy::Icd)));
        let found = auto.report.dictionary.clone().unwrap();
        assert_eq!(
            found.compared.iter().map(|of| of.by).collect::<Vec<_>>(),
            [DictionaryBy::Icd, DictionaryBy::Returns]
        );
        assert_eq!(found.by, DictionaryBy::Returns, "{found:?}");
        assert!(found.error(DictionaryBy::Returns) < found.error(DictionaryBy::Icd), "{found:?}");
        assert!(auto.model.dictionary().len() <= 12 && icd.report.dictionary.is_none());
        let said = |d: &Diagnostic| matches!(d, Diagnostic::DictionaryBy { by: DictionaryBy::Returns, error, icd } if error < icd);
        assert!(auto.report.findings.iter().any(said), "{:?}", auto.report.findings);
        assert!(error(&auto, &window) < error(&icd, &window), "{} {}", error(&auto, &window), error(&icd, &window));
        // The same question has the same answer.
        let again = of(None);
        assert_eq!(again.report.dictionary, Some(found));
        let bytes = |of: &Candidate| rmp_serde::to_vec_named(&of.model).unwrap();
        assert_eq!(bytes(&again), bytes(&auto));
    }
}

#[test]
fn a_rule_that_is_asked_for_is_not_compared() {
    let window = wave(1.0);
    for by in [DictionaryBy::Returns, DictionaryBy::OmpTd, DictionaryBy::OmpBrm] {
        let found = refit_by(&window, settings(Some(by)));
        assert_eq!(found.report.dictionary, Some(DictionaryReport { by, compared: Vec::new() }));
        assert!(found.model.is_consistent() && found.model.dictionary().len() <= 12);
    }
}

#[test]
fn icd_stays_where_it_covers_the_states_where_rows_differ_and_without_a_budget() {
    let window = wave(1.0);
    let large = refit_by(&window, Settings { dictionary_max: 200, profile: Profile::Gaussian, ..settings(None) });
    assert_eq!(large.report.dictionary, None);
    assert_eq!(refit_by(&wave(0.5), settings(None)).report.dictionary, None);
    let late = refit::run_within(&job(&window, settings(None)), &|| true, &Allowance::none()).unwrap();
    assert_eq!(late.report.dictionary, None);
}

#[test]
fn settings_of_before_leave_the_rule_open() {
    let written = rmp_serde::to_vec_named(&settings(None)).unwrap();
    assert!(!String::from_utf8_lossy(&written).contains("dictionary_by"));
    let read = |bytes: &[u8]| rmp_serde::from_slice::<Settings>(bytes).unwrap().dictionary_by;
    assert_eq!(read(&written), None);
    let asked = settings(Some(DictionaryBy::OmpTd));
    assert_eq!(read(&rmp_serde::to_vec_named(&asked).unwrap()), Some(DictionaryBy::OmpTd));
}
