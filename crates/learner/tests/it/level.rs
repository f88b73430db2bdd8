//! The level that values are learned about: a constant in all rewards moves all values alike and changes nothing else, in refits and
//! row by row; and while no reward has come there is no deviation.

use criticd_learner::action::{ActionSpace, ActionValue, Successor, Trace};
use criticd_learner::heads::{Continuation, Cumulant, Head, Rate};
use criticd_learner::refit::{self, RefitTrigger};
use criticd_learner::snapshot::{Ask, Snapshot};
use criticd_learner::transition::{Batch, BatchParts};
use criticd_learner::window::Window;
use criticd_learner::{Lambda, Learner, SelectionKind, Settings, VarianceKind, Verdict};
use std::ops::Range;

const GAMMA: f64 = 0.9;
const LENGTH: usize = 25;

fn spread(k: usize) -> f64 {
    (k as f64 * 0.618_033_988_749_895).fract() - 0.5
}

/// Walks of two variables, cut every 25 rows, whose rewards have `shift` more.
fn batch(n: usize, shift: f64, actions: bool) -> Batch {
    let (mut states, mut next, mut rewards, mut taken) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let mut x = [0.3, -0.2];
    for i in 0..n {
        if i % LENGTH == 0 {
            x = [2.0 * spread(3 * i + 1), 2.0 * spread(5 * i + 2)];
        }
        let action = usize::from(spread(13 * i) > 0.0);
        let push = if actions { 0.2 * (action as f64 - 0.5) } else { 0.0 };
        let after = [0.9 * x[0] + 0.4 * spread(7 * i) + push, 0.9 * x[1] + 0.4 * spread(11 * i)];
        states.extend(x);
        next.extend(after);
        rewards.push((2.0 * x[0]).sin() + 0.5 * x[1] + 0.2 * spread(17 * i) + shift);
        taken.push(action as f64);
        x = after;
    }
    Batch::new(BatchParts {
        stream: "walk".into(),
        dim: 2,
        rewards_per_row: 1,
        states,
        next_states: Some(next),
        rewards,
        truncated: Some((0..n).map(|i| i % LENGTH == LENGTH - 1).collect()),
        actions: actions.then_some(taken),
        ..BatchParts::default()
    })
    .unwrap()
}

fn settings() -> Settings {
    Settings {
        name: "main".into(),
        discount: GAMMA,
        dictionary_max: 60,
        refit_first_rows: 0,
        // The time of a search for heads grows with the cube.
        evidence_rows: 200,
        ..Settings::default()
    }
}

/// Some rows of a batch.
fn part(batch: &Batch, rows: Range<usize>) -> Batch {
    let parts = batch.clone().into_parts();
    let numbers = 2 * rows.start..2 * rows.end;
    Batch::new(BatchParts {
        states: parts.states[numbers.clone()].to_vec(),
        next_states: parts.next_states.map(|next| next[numbers].to_vec()),
        rewards: parts.rewards[rows.clone()].to_vec(),
        truncated: parts.truncated.map(|flags| flags[rows.clone()].to_vec()),
        actions: parts.actions.map(|taken| taken[rows].to_vec()),
        ..BatchParts { stream: parts.stream, dim: 2, rewards_per_row: 1, ..BatchParts::default() }
    })
    .unwrap()
}

fn starts(n: usize) -> Vec<bool> {
    (0..n).map(|i| i % LENGTH == 0).collect()
}

fn adopt(learner: &mut Learner, window: &Window) {
    let job = learner.refit_job(window, RefitTrigger::Requested).unwrap();
    let candidate = refit::run(&job, &|| true).unwrap();
    let verdict = learner.try_adopt(candidate, window);
    assert!(matches!(verdict, Verdict::Adopted { .. }), "{verdict:?}");
}

/// What is published before the first refit, behind it, and after more rows.
fn published(settings: &Settings, shift: f64) -> Vec<Snapshot> {
    let actions = settings.action_value.is_some();
    let (all, mut window, mut learner) =
        (batch(900, shift, actions), Window::new(2, 1, 900), Learner::new(settings.clone(), None));
    let mut out = Vec::new();
    let mut from = 0;
    for to in [300, 600, 900] {
        let part = part(&all, from..to);
        window.extend_from_batch(0, &starts(900)[from..to], &part);
        if actions {
            learner.take(0, &starts(900)[from..to], &part, from as u64);
        }
        learner.step(&window);
        if to == 600 {
            adopt(&mut learner, &window);
        }
        out.push(learner.snapshot(true).unwrap());
        from = to;
    }
    out
}

fn check(name: &str, settings: &Settings) {
    let asked: Vec<f64> = match &settings.action_value {
        None => (0..20).flat_map(|k| [3.0 * spread(k), 3.0 * spread(7 * k + 1)]).collect(),
        Some(_) => (0..20)
            .flat_map(|k| [3.0 * spread(k), 3.0 * spread(7 * k + 1), (k % 2) as f64, ((k + 1) % 2) as f64])
            .collect(),
    };
    let plain = published(settings, 0.0);
    for c in [1.0, 1e3, 1e5, 1e7, -1e5] {
        for (at, (moved, plain)) in published(settings, c).iter().zip(&plain).enumerate() {
            let of = |snapshot: &Snapshot| snapshot.evaluate(&asked, Ask::ALL).unwrap();
            let (moved, plain) = (of(moved), of(plain));
            let (low, high) = (plain.mean.min(), plain.mean.max());
            let spread = high - low;
            assert!(spread > 0.5, "{name}: {spread}");
            let apart = (moved.mean.add_scalar(-c / (1.0 - GAMMA)) - &plain.mean).amax() / spread;
            assert!(apart < 1e-6, "{name}, {c}, {at}: values differ by {apart:e} of their spread");
            for (a, b) in moved.variance.unwrap().iter().zip(plain.variance.unwrap()) {
                assert!((a.sqrt() - b.sqrt()).abs() < 1e-5 * b.sqrt().max(1e-3 * spread), "{name}, {c}, {at}: {a} {b}");
            }
            if let (Some(a), Some(b)) = (moved.return_variance, plain.return_variance) {
                assert!((a - &b).amax() < 1e-5 * b.amax(), "{name}, {c}, {at}: the spread of returns");
            }
        }
    }
}

// One test for each kind of critic: together they take minutes.

#[test]
fn a_constant_in_all_rewards_moves_all_values_alike() {
    check("by returns", &settings());
}

#[test]
fn a_constant_in_all_rewards_moves_values_chosen_by_evidence_alike() {
    check("by evidence", &Settings { selection: SelectionKind::Evidence, lambda: Lambda::Fixed(1.0), ..settings() });
}

#[test]
fn a_constant_in_all_rewards_moves_values_beside_heads_alike() {
    let head =
        |name: &str, state: usize, discount: f64| Head::new(name, Cumulant::State(state), Rate::Discount(discount));
    check("with heads", &Settings { heads: vec![head("x", 0, 0.8), head("y", 1, 0.5)], ..settings() });
}

#[test]
fn a_constant_in_all_rewards_moves_values_with_clustered_deviations_alike() {
    check("clustered", &Settings { variance: VarianceKind::Clustered, lambda: Lambda::Fixed(1.0), ..settings() });
}

/// What is above the level ends with an episode as the level does: the constant is worth as much as there are steps to come.
#[test]
fn a_constant_in_all_rewards_is_worth_the_steps_until_the_end() {
    const STEPS: usize = 10;
    let (reward, state) = (|at: usize| (3.0 * at as f64).sin(), |at: usize| at as f64 / STEPS as f64);
    // Along a line, from anywhere on it.
    let (mut at, mut begun) = (0, 0);
    let walk: Vec<usize> = (0..900)
        .map(|_| {
            let here = at;
            at += 1;
            if at == STEPS {
                begun += 1;
                at = begun * 7 % STEPS;
            }
            here
        })
        .collect();
    let line: Vec<f64> = (0..STEPS).map(state).collect();
    for c in [0.0, 1e3, 1e7] {
        let mut truth = [0.0; STEPS + 1];
        (0..STEPS).rev().for_each(|at| truth[at] = reward(at) + c + GAMMA * truth[at + 1]);
        let truth = &truth[..STEPS];
        let spread = truth.iter().fold(f64::MIN, |a, &b| a.max(b)) - truth.iter().fold(f64::MAX, |a, &b| a.min(b));
        let (mut window, mut learner) = (Window::new(1, 1, 900), Learner::new(settings(), None));
        // The first kernel has its own shape; the selected one has that of the values.
        for (rows, refit, most) in [(0..300, false, 0.2), (300..600, true, 1e-5), (600..900, false, 1e-5)] {
            let part = &walk[rows.clone()];
            let batch = Batch::new(BatchParts {
                stream: "line".into(),
                dim: 1,
                rewards_per_row: 1,
                states: part.iter().map(|&at| state(at)).collect(),
                next_states: Some(part.iter().map(|&at| state(at + 1)).collect()),
                rewards: part.iter().map(|&at| reward(at) + c).collect(),
                terminated: Some(part.iter().map(|&at| at + 1 == STEPS).collect()),
                ..BatchParts::default()
            });
            let begins: Vec<bool> = rows.clone().map(|k| k == 0 || walk[k - 1] + 1 == STEPS).collect();
            window.extend_from_batch(0, &begins, &batch.unwrap());
            learner.step(&window);
            if refit {
                adopt(&mut learner, &window);
            }
            let found = learner.snapshot(true).unwrap().evaluate(&line, Ask::ALL).unwrap().mean;
            let error = found.iter().zip(truth).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / spread;
            assert!(error < most, "{c}, {rows:?}: values are {error} of their spread from the returns");
        }
    }
}

/// Heads that sum the reward have levels of their own, also where they come late.
#[test]
fn a_constant_in_all_rewards_moves_heads_of_them_by_what_it_is_worth_under_their_discounts() {
    let sum = |name: &str, discount: f64| Head::new(name, Cumulant::Reward(0), Rate::Discount(discount));
    let paid = Head { continuation: Continuation::Constant(0.9), terminal_reward: 2.0, ..sum("paid", 1.0) };
    let of = [(sum("near", 0.5), 2.0), (sum("far", 0.8), 5.0), (paid, 10.0)];
    let heads = of.iter().map(|(head, _)| head.clone()).collect();
    let settings = Settings { heads, ..settings() };
    let asked: Vec<f64> = (0..20).flat_map(|k| [3.0 * spread(k), 3.0 * spread(7 * k + 1)]).collect();
    let said = |snapshot: &Snapshot| {
        let snapshot: Snapshot = snapshot.clone();
        let found = snapshot.evaluate_heads(&asked, &[0, 1, 2], true).unwrap();
        let alone = snapshot.head_alone(1, false).evaluate(&asked, Ask::MEAN).unwrap();
        let apart = (alone.mean.column(0) - found.mean.column(1)).amax() / found.mean.column(1).amax();
        assert!(apart < 1e-12, "alone: {apart}");
        found
    };
    let plain = published(&settings, 0.0);
    for c in [1.0, 1e3, 1e5, 1e7] {
        for (at, (moved, plain)) in published(&settings, c).iter().zip(&plain).enumerate() {
            let (moved, plain) = (said(moved), said(plain));
            for (h, (head, worth)) in of.iter().enumerate() {
                let (mean, before) = (moved.mean.column(h), plain.mean.column(h));
                let apart = (mean.add_scalar(-c * worth) - before).amax() / (before.max() - before.min());
                // A search by evidence ends where rounding decides, and the kernel that it finds differs by that, whatever c is.
                let most = if at == 0 { 1e-6 } else { 1e-5 };
                assert!(apart < most, "{}, {c}, {at}: {apart:e} of the spread apart", head.name);
                let [wide, then] = [&moved, &plain].map(|of| of.variance.as_ref().unwrap()[(0, h)].sqrt());
                assert!((wide - then).abs() < 1e-3 * then, "{}, {c}, {at}: {wide} {then}", head.name);
            }
        }
    }
}

#[test]
fn a_constant_in_all_rewards_moves_action_values_alike() {
    for successor in [Successor::Sarsa, Successor::Improve] {
        let of = ActionValue { space: ActionSpace::Discrete(2), successor, trace: Trace::OnPolicy };
        check("actions", &Settings { action_value: Some(of), ..settings() });
    }
}

#[test]
fn without_a_reward_there_is_no_deviation_and_the_first_one_sets_the_scale() {
    let mut rows = batch(600, 0.0, false).into_parts();
    rows.rewards.fill(0.0);
    rows.rewards[449] = -2.0;
    let rows = Batch::new(rows).unwrap();
    let (mut window, mut learner) = (Window::new(2, 1, 600), Learner::new(settings(), None));
    let mut at = |from: usize, to: usize| {
        window.extend_from_batch(0, &starts(600)[from..to], &part(&rows, from..to));
        learner.step(&window);
        let snapshot = learner.snapshot(true).unwrap();
        let read: Learner = rmp_serde::from_slice(&crate::support::bytes(&learner)).unwrap();
        assert_eq!(read.snapshot(true).unwrap(), snapshot);
        let found = snapshot.evaluate(&[0.1, 0.2, 9.0, 9.0], Ask::ALL).unwrap();
        (found.mean, found.variance)
    };
    for to in [100, 449] {
        let (mean, variance) = at(if to == 100 { 0 } else { 100 }, to);
        assert!(mean.iter().all(|v| *v == 0.0) && variance.is_none(), "{to}: {variance:?}");
    }
    let (mean, variance) = at(449, 450);
    let deviation = variance.unwrap()[1].sqrt();
    assert!(deviation > 1.0 && mean[0] > -2.0, "{mean} +- {deviation}");
    let (_, variance) = at(450, 600);
    assert!(variance.unwrap()[1] > 1e-6);
}
