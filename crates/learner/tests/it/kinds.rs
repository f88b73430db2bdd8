//! State variables that are angles or categories, from the settings to the values: refits find models in which they are what
//! they are said to be, under either profile.

use criticd_learner::KindSetting;
use criticd_learner::diagnostics::Diagnostic;
use criticd_learner::math::embedding::StateKind::{self, Category, Periodic, Real};
use criticd_learner::math::kernel::Profile;
use criticd_learner::random::{mix, normal};
use criticd_learner::refit::{self, Candidate, RefitError, RefitTrigger};
use criticd_learner::snapshot::{Ask, Snapshot};
use criticd_learner::transition::{Batch, BatchParts};
use criticd_learner::window::Window;
use criticd_learner::{KernelKind, KindsMismatch, Learner, Settings, Verdict};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::f64::consts::{PI, TAU};

const KINDS: [StateKind; 4] = [Real, Periodic(TAU), Category, Real];
const EPISODE: usize = 20;
/// What a wheel earns repeats after it.
const WHEEL: f64 = 7.3;

/// An angle that turns and is told within (-pi, pi], a gear that is changed now and then, two numbers of which one means
/// something. Rewards depend on the angle, on the gear and on the number.
fn window(episodes: usize) -> Window {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let mut window = Window::new(4, 1, episodes * EPISODE);
    for _ in 0..episodes {
        let (mut angle, mut gear): (f64, f64) = (rng.random_range(-PI..PI), rng.random_range(0..3) as f64);
        let mut number: f64 = rng.random_range(-1.0..1.0);
        let (mut states, mut rewards) = (Vec::new(), Vec::new());
        for step in 0..=EPISODE {
            states.extend([number, angle, 10.0 * gear, rng.random_range(-1.0..1.0)]);
            if step < EPISODE {
                rewards
                    .push(angle.cos() + [0.0, 2.0, -1.0][gear as usize] + number + 0.05 * rng.random_range(-1.0..1.0));
            }
            angle = (angle + rng.random_range(0.0..0.6) + PI).rem_euclid(TAU) - PI;
            if rng.random_range(0..5) == 0 {
                gear = rng.random_range(0..3) as f64;
            }
            number = 0.8 * number + rng.random_range(-0.3..0.3);
        }
        let batch = Batch::new(BatchParts {
            stream: "arm".into(),
            dim: 4,
            rewards_per_row: 1,
            states,
            rewards,
            terminated: Some((1..=EPISODE).map(|i| i == EPISODE).collect()),
            ..BatchParts::default()
        })
        .unwrap();
        (0..batch.len()).for_each(|i| window.push(0, i == 0, &batch, i));
    }
    window
}

fn settings(kernel: KernelKind, profile: Profile) -> Settings {
    Settings {
        kernel,
        profile,
        state_kinds: KindSetting::known(&KINDS),
        discount: 0.8,
        refit_first_rows: 0,
        evidence_rows: 300,
        search_starts: 2,
        ..Settings::default()
    }
}

fn refitted(settings: Settings, window: &Window) -> Result<Candidate, RefitError> {
    let mut learner = Learner::new(settings, None);
    learner.step(window);
    let job = learner.refit_job(window, RefitTrigger::Requested).unwrap();
    refit::run(&job, &|| true)
}

fn value(snapshot: &Snapshot, state: [f64; 4]) -> (f64, f64) {
    let found = snapshot.evaluate(&state, Ask::VARIANCE).unwrap();
    (found.mean[(0, 0)], found.variance.unwrap()[0])
}

#[test]
fn refits_find_models_of_what_the_variables_are() {
    let window = window(30);
    for (kernel, profile) in [
        (KernelKind::Isotropic, Profile::Matern52),
        (KernelKind::Ard, Profile::Gaussian),
        (KernelKind::Ard, Profile::Matern52),
        (KernelKind::Factor(Some(1)), Profile::Matern52),
    ] {
        let candidate = refitted(settings(kernel, profile), &window).unwrap();
        let snapshot = candidate.model.snapshot(true).unwrap();
        let found = &snapshot.hyperparameters.kernel;
        assert_eq!((found.profile, &found.kinds[..]), (profile, &KINDS[..]), "{kernel:?}");
        // Periods are in the unit of the state, categories are not scaled.
        assert_eq!((&snapshot.inputs.shift[1..3], &snapshot.inputs.scale[1..3]), (&[0.0; 2][..], &[1.0; 2][..]));
        for factor in found.metric.factors() {
            assert!(factor[1..3] == [0.0; 2] && factor.iter().any(|f| *f != 0.0), "{factor:?}");
        }
        let state = [0.3, 1.2, 10.0, 0.1];
        let (mean, variance) = value(&snapshot, state);
        for turns in [-2.0, 1.0, 7.0] {
            let (other, spread) = value(&snapshot, [0.3, 1.2 + turns * TAU, 10.0, 0.1]);
            // Weights amplify the rounding of sine and cosine by up to one over the tolerance.
            let off = (mean - other).abs().max((variance - spread).abs());
            assert!(off < 1e-6 * (1.0 + mean.abs()), "{kernel:?}: {off:e}");
        }
        // Either side of the seam the same is known.
        let (left, right) =
            (value(&snapshot, [0.3, PI - 1e-4, 10.0, 0.1]), value(&snapshot, [0.3, 1e-4 - PI, 10.0, 0.1]));
        assert!((left.0 - right.0).abs() < 0.01, "{kernel:?}: {left:?} {right:?}");
        // The middle gear is the best though its number is not the largest, and a gear never seen is like none of them.
        let of_gear = |gear: f64| value(&snapshot, [0.3, 1.2, gear, 0.1]);
        assert!(of_gear(10.0).0 > of_gear(0.0).0 + 1.0 && of_gear(0.0).0 > of_gear(20.0).0 + 0.3, "{kernel:?}");
        assert!(of_gear(15.0).1 > 2.0 * variance, "{kernel:?}");
        let report = candidate.report;
        let lengths: Vec<_> = report.variables.iter().map(|v| v.lengthscale.is_some()).collect();
        assert_eq!(lengths[1..3], [true, false], "{kernel:?}");
        assert!(report.variables[1].lengthscale_in_deviations.is_none(), "{kernel:?}");
        assert_eq!(report.variables.len(), 4);
    }
}

#[test]
fn settings_leave_a_period_open_and_kernels_do_not() {
    for text in ["real", "category", "periodic:2.5", "periodic"] {
        let kind: KindSetting = text.parse().unwrap();
        let stored = rmp_serde::to_vec_named(&kind).unwrap();
        assert_eq!((kind.to_string(), rmp_serde::from_slice(&stored).unwrap()), (text.to_owned(), kind));
        assert_eq!(text.parse().map(KindSetting::Known).unwrap_or(KindSetting::Periodic), kind);
    }
    assert!("angle".parse::<KindSetting>().unwrap_err().ends_with("\"periodic\" alone has the period learned"));
    assert_eq!(KindSetting::Periodic.kind(), Real);
}

#[test]
fn kinds_that_do_not_fit_the_rows_are_refused_by_name() {
    let window = window(5);
    let settings =
        Settings { state_kinds: KindSetting::known(&[Real, Category]), ..settings(KernelKind::Ard, Profile::Gaussian) };
    match refitted(settings, &window) {
        Err(RefitError::Settings(why)) => assert_eq!(why, KindsMismatch { kinds: 2, dim: 4 }),
        other => panic!("{other:?}"),
    }
}

/// A wheel that goes on turning and is not told within one turn, after which what it earns repeats; or does not.
fn wheel(rows: u64, turns: bool, step: f64) -> Window {
    let mut window = Window::new(2, 1, 4000);
    let mut place = 0.0;
    for row in 0..rows {
        let before = place;
        place += step * (1.0 + 0.5 * normal(mix(&[row, 0])));
        let earns = |place: f64| if turns { (TAU * place / WHEEL).cos() } else { 0.01 * place };
        let other = |row: u64| normal(mix(&[row, 1]));
        let batch = Batch::new(BatchParts {
            stream: "wheel".into(),
            dim: 2,
            rewards_per_row: 1,
            states: vec![before, other(row), place, other(row + 1)],
            rewards: vec![earns(before) + 0.2 * normal(mix(&[row, 2]))],
            ..BatchParts::default()
        })
        .unwrap();
        window.push(0, row == 0, &batch, 0);
    }
    window
}

/// Learn rows and have two refits of them, the second from what is read back, as a restart does; and what the reports say of the period.
fn wheeled(turns: bool) -> (Learner, Vec<String>) {
    let kinds = vec![KindSetting::Periodic, KindSetting::Known(Real)];
    let settings = Settings { state_kinds: kinds.clone(), ..settings(KernelKind::Ard, Profile::Matern52) };
    let mut learner = Learner::new(settings, Some(vec!["place".into(), "other".into()]));
    let mut said = Vec::new();
    for rows in [400, 1200] {
        let window = wheel(rows, turns, 0.4);
        learner = rmp_serde::from_slice(&rmp_serde::to_vec_named(&learner).unwrap()).unwrap();
        assert!(learner.is_consistent());
        learner.step(&window);
        let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
        let candidate = refit::run(&job, &|| true).unwrap();
        let of_period = |finding: &&Diagnostic| matches!(finding, Diagnostic::Period { .. });
        said.extend(candidate.report.findings.iter().filter(of_period).map(|finding| format!("{finding:?}")));
        assert!(matches!(learner.try_adopt(candidate, &window), Verdict::Adopted { .. }), "{rows} rows");
        // The settings go on saying what they said: the kernel has what was found.
        assert_eq!(
            (&learner.settings().state_kinds, &learner.model().unwrap().settings().state_kinds),
            (&kinds, &kinds)
        );
    }
    (learner, said)
}

#[test]
fn a_learner_finds_the_period_of_a_wheel_in_its_stream() {
    let (learner, said) = wheeled(true);
    let Periodic(period) = learner.hyperparameters().unwrap().kernel.kind_of(0) else { panic!("{said:?}") };
    assert!((period / WHEEL - 1.0).abs() < 0.02, "{period}");
    assert!(
        said.len() == 2 && said.iter().all(|said| said.contains("\"place\"") && said.contains("found: Some")),
        "{said:?}"
    );
    let values = |at: f64| learner.snapshot(true).unwrap().evaluate(&[at, 0.0], Ask::MEAN).unwrap().mean[(0, 0)];
    // Where no row has been yet it is worth what it was worth a hundred turns before.
    assert!((values(2.0) - values(2.0 + 100.0 * period)).abs() < 1e-6);
    let (again, _) = wheeled(true);
    let bits = |learner: &Learner| rmp_serde::to_vec_named(learner).unwrap();
    assert!(bits(&learner) == bits(&again), "a function of rows, settings and seed");
}

/// What steps forget a tenth of: three normal variables, seen as exponential, cube and themselves unless `straight`. Rewards depend on all.
fn skewed(rows: usize, straight: bool) -> Window {
    let mut window = Window::new(3, 1, rows);
    let of = |seed: u64| normal(mix(&[17, seed]));
    let mut x = [of(0), of(1), of(2)];
    let seen = |x: [f64; 3]| if straight { x } else { [(1.3 * x[0]).exp(), x[1].powi(3), x[2]] };
    for row in 0..rows {
        let own = 10 * (row as u64 + 1);
        let states = seen(x).to_vec();
        let reward = (1.5 * x[0]).sin() + (1.5 * x[1]).sin() + 0.5 * x[2] + 0.3 * of(own);
        let ends = row % 50 == 49;
        (0..3).for_each(|d| x[d] = 0.9 * x[d] + (1.0f64 - 0.81).sqrt() * of(own + 1 + d as u64));
        let batch = Batch::new(BatchParts {
            stream: "prices".into(),
            dim: 3,
            rewards_per_row: 1,
            states: [states, seen(x).to_vec()].concat(),
            rewards: vec![reward],
            truncated: Some(vec![ends]),
            ..BatchParts::default()
        })
        .unwrap();
        window.push(0, row == 0, &batch, 0);
    }
    window
}

/// Rows are learned and selected for, twice, the second time from what is read back.
fn learned(settings: &Settings, straight: bool) -> (Learner, Vec<String>) {
    let mut learner = Learner::new(settings.clone(), None);
    let mut said = Vec::new();
    for rows in [1500, 3000] {
        let window = skewed(rows, straight);
        learner = rmp_serde::from_slice(&rmp_serde::to_vec_named(&learner).unwrap()).unwrap();
        assert!(learner.is_consistent());
        learner.step(&window);
        let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
        let candidate = refit::run(&job, &|| true).unwrap();
        said.extend(candidate.report.findings.iter().map(|finding| format!("{finding:?}")));
        drop(learner.try_adopt(candidate, &window));
    }
    (learner, said)
}

#[test]
fn a_learner_bends_what_is_far_from_normal() {
    let own = Settings { discount: 0.8, refit_first_rows: 0, ..Settings::default() };
    let (bent, said) = learned(&own, false);
    let kernel = bent.hyperparameters().unwrap().kernel;
    let kinds: Vec<bool> = (0..3).map(|d| kernel.kind_of(d).is_bent()).collect();
    assert_eq!(kinds, [true, true, false], "{said:?}");
    assert!(said.iter().any(|said| said.contains("Bent { variables: [\"state_0\", \"state_1\"] }")), "{said:?}");
    let named = Settings { state_kinds: KindSetting::known(&[Real; 3]), ..own.clone() };
    let (plain, _) = learned(&named, false);
    let error = |learner: &Learner| -> f64 {
        let snapshot = learner.snapshot(true).unwrap();
        let squares = (0..400u64).map(|k| {
            let x = [0, 1, 2].map(|d| normal(mix(&[23, 3 * k + d])));
            // V: what is expected of each, summed over the steps to come.
            let wave =
                |x: f64, step: i32| (1.5 * x * 0.9f64.powi(step)).sin() * (-1.125 * (1.0 - 0.81f64.powi(step))).exp();
            let line = 0.5 * x[2] / (1.0 - 0.8 * 0.9);
            let waves: f64 = (0..80).map(|step| 0.8f64.powi(step) * (wave(x[0], step) + wave(x[1], step))).sum();
            let seen = [(1.3 * x[0]).exp(), x[1].powi(3), x[2]];
            (snapshot.evaluate(&seen, Ask::MEAN).unwrap().mean[(0, 0)] - waves - line).powi(2)
        });
        (squares.sum::<f64>() / 400.0).sqrt()
    };
    let (less, more) = (error(&bent), error(&plain));
    assert!(less < 0.8 * more, "{less} {more}");
    let (again, _) = learned(&own, false);
    let bits = |learner: &Learner| rmp_serde::to_vec_named(learner).unwrap();
    assert!(bits(&bent) == bits(&again), "a function of rows, settings and seed");
}

#[test]
fn kinds_that_are_named_are_not_bent() {
    let settings = Settings { discount: 0.8, refit_first_rows: 0, ..Settings::default() };
    let named = Settings { state_kinds: KindSetting::known(&[Real; 3]), ..settings.clone() };
    let bends = |learner: &Learner| !learner.hyperparameters().unwrap().kernel.kinds.is_empty();
    assert!(!bends(&learned(&named, false).0));
    // Normal variables have no bend to be tried: kernels are the same whether kinds are named or not.
    let (open, known) = (learned(&settings, true).0, learned(&named, true).0);
    assert_eq!(open.hyperparameters(), known.hyperparameters());
}

#[test]
fn rows_in_which_a_wheel_hardly_moves_leave_its_period_as_it_was() {
    let (mut learner, _) = wheeled(true);
    let kind = learner.hyperparameters().unwrap().kernel.kind_of(0);
    let job = learner.refit_job(&wheel(1200, true, 0.4), RefitTrigger::Requested).unwrap();
    let still = refit::RefitJob { window: wheel(600, true, 0.002), present: None, ..job };
    let candidate = refit::run(&still, &|| true).unwrap();
    let Diagnostic::Period { found, kept, .. } = &candidate.report.findings[0] else {
        panic!("{:?}", candidate.report)
    };
    assert_eq!((*found, kept.map(Periodic)), (None, Some(kind)));
    assert_eq!(candidate.model.hyperparameters().kernel.kind_of(0), kind);
}

#[test]
fn a_variable_without_a_period_stays_real_and_the_reports_say_so() {
    let (learner, said) = wheeled(false);
    assert_eq!(learner.hyperparameters().unwrap().kernel.kind_of(0), Real);
    assert!(said.len() == 2 && said.iter().all(|said| said.contains("found: None, kept: None")), "{said:?}");
}

#[test]
fn learners_of_before_and_of_now_are_read_back() {
    let window = window(5);
    let mut learner = Learner::new(settings(KernelKind::Ard, Profile::Matern52), None);
    learner.step(&window);
    let stored = rmp_serde::to_vec_named(&learner).unwrap();
    let back: Learner = rmp_serde::from_slice(&stored).unwrap();
    assert!(back.is_consistent());
    let state = [0.3, 1.2, 10.0, 0.1];
    let values = |learner: &Learner| value(&learner.snapshot(true).unwrap(), state);
    assert_eq!((values(&back), back.settings()), (values(&learner), learner.settings()));
    // What was stored before there were profiles and kinds has neither.
    let now = Settings { rho_max: Some(10.0), forgetting: Some(1e4), ..Settings::default() };
    let mut old: serde_json::Value = serde_json::to_value(&now).unwrap();
    let keys = old.as_object_mut().unwrap();
    assert!(keys.remove("profile").is_some() && keys.remove("state_kinds").is_some());
    let then = Settings { profile: Profile::Gaussian, ..now };
    assert_eq!(serde_json::from_value::<Settings>(old).unwrap(), then);
}

#[test]
fn limits_that_were_infinite_are_none() {
    #[derive(serde::Serialize)]
    struct Old {
        rho_max: f64,
        forgetting: f64,
    }
    let read = |rho_max, forgetting| -> Settings {
        rmp_serde::from_slice(&rmp_serde::to_vec_named(&Old { rho_max, forgetting }).unwrap()).unwrap()
    };
    // A rule for the dictionary that is not written is left open.
    let open = Settings { dictionary_by: None, ..Settings::paper() };
    assert_eq!(read(f64::INFINITY, f64::INFINITY), open);
    assert_eq!(read(2.5, 400.0), Settings { rho_max: Some(2.5), forgetting: Some(400.0), ..open });
    let now: Settings = rmp_serde::from_slice(&rmp_serde::to_vec_named(&Settings::default()).unwrap()).unwrap();
    assert_eq!(now, Settings::default());
}
