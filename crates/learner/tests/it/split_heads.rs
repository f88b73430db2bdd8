//! Heads that get a kernel of their own from a refit: each is what a critic with that kernel would be, and goes on as that would.

use crate::support::bytes;
use criticd_learner::allowance::Allowance;
use criticd_learner::diagnostics::Diagnostic;
use criticd_learner::heads::{Cumulant, Head, Rate};
use criticd_learner::math::kernel::{Hyperparameters, Metric, Profile};
use criticd_learner::model::Model;
use criticd_learner::refit::{self, Candidate, RefitJob, RefitTrigger};
use criticd_learner::snapshot::{Ask, Snapshot};
use criticd_learner::transition::Rows;
use criticd_learner::window::Window;
use criticd_learner::{
    DriftSensitivity, KernelKind, Lambda, Learner, LinearColumns, OnNewPolicy, SelectionKind, Settings, VarianceKind,
    Verdict,
};
use criticd_reference::{distance, wander};
use std::collections::BTreeSet;

/// Columns of rewards; those of 2, 4 and 5 change fast with the state.
const COLUMNS: usize = 6;
const ROUGH: [usize; 3] = [2, 4, 5];
const STATES: [f64; 8] = [0.1, 0.2, -0.4, 0.3, 0.7, -0.6, -0.9, -0.05];

/// Rows of three streams. With `rough` some rewards change fast with the state, else all change slowly.
fn rows(count: usize, seed: u64, rough: bool) -> Rows {
    let mut rows = wander(count, 3, COLUMNS, seed);
    rows.discounts.fill(f64::NAN);
    for i in 0..count {
        let [x, y] = [rows.state(i)[0], rows.state(i)[1]];
        for k in 0..COLUMNS {
            let phase = k as f64;
            let noise = rows.reward(i)[k] - (2.0 * x + phase).sin() - y;
            let clean = if rough && ROUGH.contains(&k) {
                (6.0 * x + phase).sin() * (5.0 * y - phase).cos()
            } else {
                (x + 0.6 * y + phase).sin()
            };
            rows.rewards[i * COLUMNS + k] = clean + noise;
        }
    }
    rows
}

fn head(k: usize) -> Head {
    let discount = [0.0, 0.3, 0.0, 0.3, 0.2, 0.0][k];
    Head::new(format!("h{k}"), Cumulant::Reward(k), Rate::Discount(discount))
}

fn settings() -> Settings {
    Settings {
        discount: 0.3,
        heads: (1..COLUMNS).map(head).collect(),
        kernel: KernelKind::Isotropic,
        profile: Profile::Gaussian,
        evidence_rows: 150,
        search_starts: 1,
        refit_first_rows: 0,
        dictionary_max: 300,
        refresh_rows: 32,
        backfill_rows: 100,
        drift_sensitivity: DriftSensitivity::Off,
        ..Settings::default()
    }
}

/// Let a learner learn these rows behind those of the window, `piece` at a time.
fn learn(learner: &mut Learner, window: &mut Window, rows: &Rows, piece: usize) {
    for from in (0..rows.len()).step_by(piece) {
        window.extend(rows, from..rows.len().min(from + piece));
        learner.step(window);
    }
}

fn run(job: &RefitJob) -> Candidate {
    refit::run(job, &|| true).unwrap()
}

fn refit(learner: &mut Learner, window: &Window) {
    let job = learner.refit_job(window, RefitTrigger::Requested).unwrap();
    let verdict = learner.try_adopt(run(&job), window);
    assert!(matches!(verdict, Verdict::Adopted { .. }), "{verdict:?}");
}

/// A learner that has learned 700 rows, and given some heads a kernel of their own.
fn parted(settings: Settings) -> (Learner, Window) {
    let (mut learner, mut window) = (Learner::new(settings, None), Window::new(2, COLUMNS, 900));
    learn(&mut learner, &mut window, &rows(700, 5, true), 50);
    refit(&mut learner, &window);
    (learner, window)
}

fn names<'a>(heads: impl Iterator<Item = &'a Head>) -> BTreeSet<String> {
    heads.map(|head| head.name.clone()).collect()
}

fn apart(learner: &Learner) -> BTreeSet<String> {
    names(learner.model().unwrap().branch().into_iter().flat_map(Model::all_heads))
}

fn has_branch(learner: &Learner) -> bool {
    bytes(learner).windows(6).any(|part| part == b"branch")
}

/// Mean and variance of a head.
fn says(snapshot: &Snapshot, name: &str) -> Vec<f64> {
    let found = snapshot.evaluate_heads(&STATES, &[snapshot.position_of_head(name).unwrap()], true).unwrap();
    found.mean.iter().chain(found.variance.as_ref().unwrap()).copied().collect()
}

/// Each head with a kernel of its own says what a critic of that kernel and dictionary says that has learned the same rows, also where
/// the dictionary has grown since.
fn each_is_a_critic_of_its_own(of: Settings, discounts: bool) {
    let (mut learner, mut window) = parted(of.clone());
    assert_eq!(apart(&learner), ROUGH.map(|k| format!("h{k}")).into());
    let at_first = learner.model().unwrap().branch().unwrap().dictionary().clone();
    let known = rows(700, 5, true);
    // States that were rare.
    let mut more = rows(600, 6, true);
    more.states.iter_mut().chain(&mut more.next_states).for_each(|x| *x *= 1.1);
    if discounts {
        learner.new_policy(700, Some("other"));
    }
    learn(&mut learner, &mut window, &more, 41);
    let found = learner.snapshot(true).unwrap();
    let branch = learner.model().unwrap().branch().unwrap();
    let grown = branch.dictionary().len();
    assert!(at_first.len() + 3 < grown && grown < 300, "{} {grown}", at_first.len());
    for k in [2, 5] {
        let place = branch.all_heads().position(|head| head.name == format!("h{k}")).unwrap();
        let scale = branch.heads().unwrap().scales()[place];
        let Rate::Discount(discount) = head(k).rate else { unreachable!() };
        let own = Settings {
            discount,
            rewards: vec![k],
            lambda: Lambda::Fixed(1.0),
            selection: SelectionKind::Evidence,
            variance: VarianceKind::Model,
            estimate_scale: false,
            heads: Vec::new(),
            ..of.clone()
        };
        let hyperparameters = Hyperparameters { noise_variance: scale.ratio, ..branch.hyperparameters() };
        let mut own = Model::with_dictionary(own, branch.inputs().clone(), &hyperparameters, at_first.clone());
        own.set_tolerance(f64::INFINITY);
        own.learn(&known, 0..known.len(), 0);
        own.set_tolerance(at_first.tolerance());
        if discounts {
            own.discount(of.policy_discount.expect("a factor"));
        }
        own.learn(&more, 0..more.len(), 700);
        assert_eq!(own.dictionary().elements(), branch.dictionary().elements());
        let expected = own.snapshot(true).unwrap().evaluate(&STATES, Ask::VARIANCE).unwrap();
        let variance = expected.variance.unwrap().into_iter().map(|v| scale.signal * v);
        let expected: Vec<f64> = expected.mean.iter().copied().chain(variance).collect();
        let found = says(&found, &format!("h{k}"));
        assert!(distance(&found, &expected) < 1e-9, "h{k}: {found:?} {expected:?}");
    }
    // Alone it is the same value function.
    let place = found.position_of_head("h4").unwrap();
    let alone = found.head_alone(place, true);
    let expected = alone.evaluate(&STATES, Ask::VARIANCE).unwrap();
    let expected: Vec<f64> = expected.mean.iter().chain(expected.variance.as_ref().unwrap()).copied().collect();
    assert!(distance(&says(&found, "h4"), &expected) < 1e-9);
    assert_eq!((alone.generation, alone.offset), (found.generation, 1300));
}

#[test]
fn each_head_is_a_critic_of_its_own() {
    each_is_a_critic_of_its_own(settings(), false);
}

#[test]
fn they_forget_as_that_would() {
    each_is_a_critic_of_its_own(Settings { forgetting: Some(900.0), ..settings() }, false);
}

#[test]
fn rows_of_another_policy_count_as_there() {
    let of = Settings { on_new_policy: OnNewPolicy::Discount, policy_discount: Some(0.25), ..settings() };
    each_is_a_critic_of_its_own(of, true);
}

#[test]
fn a_second_kernel_explains_more_and_is_not_taken_where_the_settings_forbid_it() {
    let (parted, window) = parted(settings());
    let mut whole = Learner::new(Settings { heads_split: false, ..settings() }, None);
    learn(&mut whole, &mut Window::new(2, COLUMNS, 900), &rows(700, 5, true), 50);
    refit(&mut whole, &window);
    assert!(!has_branch(&whole) && has_branch(&parted));
    // Rewards of states that were not learned, without noise.
    let test = rows(400, 9, true);
    let error = |learner: &Learner, k: usize| {
        let snapshot = learner.snapshot(false).unwrap();
        let place = snapshot.position_of_head(&format!("h{k}")).unwrap();
        let found = snapshot.evaluate_heads(&test.states, &[place], false).unwrap().mean;
        let square = |of: &dyn Fn(usize) -> f64| (0..test.len()).map(|i| of(i).powi(2)).sum::<f64>();
        square(&|i| found[(i, 0)] - test.reward(i)[k]) / square(&|i| test.reward(i)[k])
    };
    for k in [2, 5] {
        let (with, without) = (error(&parted, k), error(&whole, k));
        assert!(with < without, "h{k}: {with} {without}");
    }
}

#[test]
fn a_critic_with_two_kernels_goes_on_from_a_file() {
    let (mut learner, mut window) = parted(settings());
    let mut read: Learner = rmp_serde::from_slice(&bytes(&learner)).unwrap();
    assert!(read.is_consistent() && bytes(&read) == bytes(&learner));
    let more = rows(500, 6, true);
    for from in (0..more.len()).step_by(37) {
        window.extend(&more, from..more.len().min(from + 37));
        [&mut learner, &mut read].into_iter().for_each(|learner| drop(learner.step(&window)));
    }
    assert!(bytes(&learner) == bytes(&read));
}

#[test]
fn a_refit_to_whose_rows_one_kernel_is_as_good_merges_them() {
    let (mut learner, mut window) = parted(settings());
    learn(&mut learner, &mut window, &rows(1800, 6, false), 50);
    let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
    let found = run(&job);
    let said = found.report.split.unwrap();
    assert!(said.heads == 0 && said.gain < 0.01, "{said:?}");
    let by_heads = |d: &Diagnostic| matches!(d, Diagnostic::SelectedByHeads { heads, .. } if *heads > ROUGH.len());
    assert!(found.report.findings.iter().any(by_heads), "{:?}", found.report.findings);
    // It is what a critic finds that never had two.
    let never = run(&RefitJob { settings: Settings { heads_split: false, ..job.settings.clone() }, ..job.clone() });
    let written = |candidate: &Candidate| {
        let mut model = candidate.model.clone();
        model.set_settings(&job.settings);
        rmp_serde::to_vec_named(&model).unwrap()
    };
    assert!(written(&found) == written(&never));
    let verdict = learner.try_adopt(found, &window);
    assert!(matches!(verdict, Verdict::Adopted { .. }), "{verdict:?}");
    assert!(!has_branch(&learner));
    assert_eq!(names(learner.model().unwrap().all_heads()), names(settings().heads.iter()));
    // And parts them again.
    learn(&mut learner, &mut window, &rows(1800, 7, true), 50);
    refit(&mut learner, &window);
    assert_eq!(apart(&learner), ROUGH.map(|k| format!("h{k}")).into());
}

#[test]
fn a_refit_without_a_budget_keeps_both_kernels() {
    let (mut learner, mut window) = parted(settings());
    learn(&mut learner, &mut window, &rows(200, 6, true), 50);
    let before = learner.model().unwrap().branch().unwrap().dictionary().kernel().metric.clone();
    let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
    let found = refit::run_within(&job, &|| true, &Allowance::none()).unwrap();
    assert!(found.report.out_of_time);
    let said = found.report.split.unwrap();
    assert!(said.heads == ROUGH.len() && said.gain > 0.02, "{said:?}");
    assert_eq!(found.report.evidence_before, found.report.evidence_after, "they are those in force");
    // With one kernel it would have less evidence than the present model, and would not be adopted.
    let whole = RefitJob { settings: Settings { heads_split: false, ..job.settings.clone() }, ..job.clone() };
    let whole = refit::run_within(&whole, &|| true, &Allowance::none()).unwrap();
    assert!(whole.report.evidence_after.unwrap() < found.report.evidence_before.unwrap() - 50.0, "{:?}", whole.report);
    let verdict = learner.try_adopt(found, &window);
    assert!(matches!(verdict, Verdict::Adopted { .. }), "{verdict:?}");
    assert_eq!(apart(&learner), ROUGH.map(|k| format!("h{k}")).into());
    let after = &learner.model().unwrap().branch().unwrap().dictionary().kernel().metric;
    let [Metric::Isotropic(before), Metric::Isotropic(after)] = [&before, after] else { unreachable!() };
    assert!((before / after - 1.0).abs() < 0.2, "but for the scale of the states the kernel is the same");
}

#[test]
fn columns_of_kernels_in_force_go_where_they_are_not_asked_for() {
    let (mut learner, window) = parted(Settings { linear_columns: LinearColumns::Always, ..settings() });
    assert!(learner.model().unwrap().dictionary().kernel().linear_share() > 0.0);
    let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
    let job = RefitJob { settings: Settings { linear_columns: LinearColumns::Never, ..job.settings.clone() }, ..job };
    let found = refit::run_within(&job, &|| true, &Allowance::none()).unwrap();
    assert!(found.report.split.unwrap().heads > 0, "they are those in force");
    assert_eq!(found.model.dictionary().kernel().columns, []);
}

#[test]
fn the_search_begins_with_both_kernels_in_force() {
    let (mut learner, window) = parted(settings());
    let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
    // Starts are screened on fewer rows than the best of them climb on.
    let job = RefitJob { settings: Settings { evidence_rows: 300, ..job.settings.clone() }, ..job };
    let forgotten = RefitJob { second: None, ..job.clone() };
    let starts = |job: &RefitJob| {
        let report = run(job).report;
        let screened = report.ascents.iter().filter(|ascent| ascent.round == 1 && ascent.rows < 300).count();
        (screened, report.evidence_before.unwrap())
    };
    let (with, without) = (starts(&job), starts(&forgotten));
    assert_eq!(with.0, without.0 + 1);
    assert!(with.1 > without.1 + 50.0, "the evidence before is that of both: {with:?} {without:?}");
}

#[test]
fn two_kernels_stay_where_they_would_not_be_made() {
    let (mut learner, mut window) = parted(settings());
    learn(&mut learner, &mut window, &rows(900, 6, false), 50);
    let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
    let said = |job: &RefitJob| run(job).report.split.unwrap();
    // Of few rows a second kernel gains something by chance.
    let (kept, made) = (said(&job), said(&RefitJob { second: None, ..job.clone() }));
    assert!(kept.heads > 0 && (0.01..0.02).contains(&kept.gain), "{kept:?}");
    assert!(made.heads == 0 && made.gain < 0.02, "{made:?}");
}

#[test]
fn heads_come_and_go_under_two_kernels() {
    let (mut learner, mut window) = parted(settings());
    let before = learner.snapshot(true).unwrap();
    learner.change_heads(&["h2".into(), "h3".into()], Vec::new());
    let found = learner.snapshot(true).unwrap();
    assert_eq!(names(found.all_heads()), ["h1", "h4", "h5"].map(String::from).into());
    ["h1", "h4", "h5"].iter().for_each(|name| assert!(distance(&says(&found, name), &says(&before, name)) < 1e-12));
    // One that comes late has the kernel of the values until a refit decides.
    learner.change_heads(&[], vec![head(2)]);
    assert_eq!(learner.names_of_missing_heads(), ["h2"]);
    let mut late = learner.late_heads(|_| false).unwrap();
    late.learn(&window, window.end());
    learner.take_late_heads(late).unwrap();
    assert_eq!((learner.missing_heads(), apart(&learner)), (0, ["h4", "h5"].map(String::from).into()));
    learn(&mut learner, &mut window, &rows(300, 6, true), 50);
    refit(&mut learner, &window);
    assert_eq!(apart(&learner), ["h2", "h4", "h5"].map(String::from).into());
    learner.change_heads(&["h2".into(), "h4".into(), "h5".into()], Vec::new());
    assert!(learner.is_consistent() && !has_branch(&learner));
    assert!(learner.snapshot(true).unwrap().branch.is_none());
}

#[test]
fn a_model_that_begins_again_keeps_both_kernels() {
    let (mut learner, mut window) = parted(Settings { on_new_policy: OnNewPolicy::Restart, ..settings() });
    let kernels = |learner: &Learner| {
        let model = learner.model().unwrap();
        [model, model.branch().unwrap()].map(|model| model.dictionary().kernel().clone())
    };
    let before = kernels(&learner);
    learner.change_heads(&[], vec![Head { name: "new".into(), ..head(2) }]);
    learner.new_policy(700, Some("other"));
    let more = rows(400, 6, true);
    learn(&mut learner, &mut window, &more, 50);
    assert_eq!(kernels(&learner), before);
    assert_eq!(apart(&learner), ROUGH.map(|k| format!("h{k}")).into());
    assert_eq!(learner.missing_heads(), 0);
    let branch = learner.model().unwrap().branch().unwrap();
    assert_eq!(branch.statistics().rows, 400);
    assert!(learner.is_consistent());
}
