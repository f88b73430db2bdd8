//! Trackers, their verified returns, weights and gate are what an independent implementation says (tests/golden/tracking.json).

use crate::support::bytes;
use criticd_learner::math::dense::Matrix;
use criticd_learner::math::tracking::{Plan, Units};
use criticd_learner::refit::{self, RefitTrigger};
use criticd_learner::removal::{Offsets, Placed};
use criticd_learner::snapshot::Ask;
use criticd_learner::tracking::{Seen, Tracking};
use criticd_learner::transition::Rows;
use criticd_learner::verification::Verified;
use criticd_learner::window::Window;
use criticd_learner::{DriftSensitivity, Event, Learner, LinearColumns, Settings, Verdict};
use criticd_reference::{TESTS, numbers, push};
use rand::{RngExt, SeedableRng};
use serde_json::Value;

/// phi (m,) of a state (2,), the first q of them explicit.
fn features(at: &[f64], m: usize, q: usize) -> Vec<f64> {
    let waves = (0..m - q).map(|i| ((i + 1) as f64 * at[0]).sin() * (i as f64 * at[1]).cos());
    [10f64.sqrt(), at[0], at[1]].into_iter().chain(waves).collect()
}

/// One case on its way: what the base gives to the trackers.
struct Given<'a> {
    case: &'a Value,
    m: usize,
    rewards: usize,
    traces: Vec<Vec<f64>>,
    decays: Vec<f64>,
}

impl<'a> Given<'a> {
    fn new(case: &'a Value) -> Self {
        let count = |key: &str| case[key].as_u64().unwrap() as usize;
        let (m, slots) = (count("features"), count("slots"));
        Self { case, m, rewards: count("rewards_per_row"), traces: vec![vec![0.0; m]; slots], decays: vec![0.0; slots] }
    }

    fn count(&self, key: &str) -> usize {
        self.case[key].as_u64().unwrap() as usize
    }

    fn number(&self, key: &str) -> f64 {
        self.case[key].as_f64().unwrap()
    }

    fn tracking(&self) -> Tracking {
        let (rows, ends) = (self.count("rows") as u64, self.count("chain_ends") as u64);
        let plan = Plan::new(self.number("discount"), rows, ends, self.count("columns"), self.m);
        assert_eq!(plan.half_lives, numbers(&self.case["expected"]["half_lives"]));
        let units = self
            .case
            .get("units")
            .map(|of| Units { columns: numbers(&of["columns"]), rewards: numbers(&of["rewards"]) });
        assert_eq!(plan.goes_on, units.is_some(), "a stream without ends");
        let plan = units.into_iter().fold(plan, Plan::stepping);
        Tracking::new(&plan, self.number("discount"), rows, self.rewards, (self.m, self.m), self.number("ridge"))
            .unwrap()
    }

    /// Learn row `t` of states, next states, rewards and ends, and return the answers before.
    fn learn(&mut self, t: usize, stream: &[Vec<f64>; 4], base: Option<&Matrix>, tracking: &mut Tracking) -> Vec<f64> {
        let [states, next_states, rewards, ends] = stream;
        let (slot, q) = (t % self.traces.len(), self.count("columns"));
        let phi = features(&states[2 * t..2 * t + 2], self.m, q);
        let discount = if ends[t] == 2.0 { 0.0 } else { self.number("discount") };
        for (z, phi) in self.traces[slot].iter_mut().zip(&phi) {
            *z = self.decays[slot] * *z + phi;
        }
        self.decays[slot] = if ends[t] == 0.0 { discount * self.number("lambda") } else { 0.0 };
        let value = |h: usize| base.map_or(0.0, |u| u.col(h).iter().zip(&phi).map(|(u, phi)| u * phi).sum());
        let answers = (0..self.rewards).map(|h| tracking.answer(h, &phi, value(h))).collect();
        let rewards = &rewards[self.rewards * t..self.rewards * (t + 1)];
        tracking.see(&Seen {
            row: Verified { slot, rewards, discount, ratio: 1.0 },
            features: &phi,
            trace: &self.traces[slot],
            unit: 1.0,
            successor: &phi,
            weights: base,
        });
        if ends[t] == 1.0 && discount > 0.0 {
            tracking.cut(slot, &features(&next_states[2 * t..2 * t + 2], self.m, q), base);
        }
        answers
    }
}

fn near(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (k, (found, expected)) in found.iter().zip(expected).enumerate() {
        assert!((found - expected).abs() < 1e-6 * (1.0 + expected.abs()), "{what} {k}: {found}, not {expected}");
    }
}

#[test]
fn answers_weights_and_gate_are_those_of_the_reference() {
    let cases: Value =
        serde_json::from_str(&std::fs::read_to_string(format!("{TESTS}/golden/tracking.json")).unwrap()).unwrap();
    for case in cases.as_array().unwrap() {
        let (name, mut given) = (case["name"].as_str().unwrap(), Given::new(case));
        let stream = ["states", "next_states", "rewards", "ends"].map(|key| numbers(&case["stream"][key]));
        let (mut tracking, mut base) = (given.tracking(), None);
        let (mut answers, mut openings) = (Vec::new(), Vec::new());
        for t in 0..given.count("rows") {
            // Written and read back it goes on as it would have.
            if t % 101 == 100 {
                tracking = rmp_serde::from_slice(&rmp_serde::to_vec_named(&tracking).unwrap()).unwrap();
            }
            openings.extend((0..given.rewards).map(|h| tracking.opening(h).gate));
            answers.extend(given.learn(t, &stream, base.as_ref(), &mut tracking));
            if (t + 1) % given.count("refresh") == 0 {
                let u = numbers(&case["base"][(t + 1) / given.count("refresh") - 1]);
                let u = base.insert(Matrix::from_columns(given.m, given.rewards, u));
                tracking.take_weights(u, given.number("ridge"));
            }
        }
        let expected = &case["expected"];
        near(&openings, &numbers(&expected["openings"]), &format!("{name}: G"));
        near(&answers, &numbers(&expected["answers"]), &format!("{name}: answer"));
        for (h, losses) in tracking.losses().iter().enumerate() {
            near(losses.weights(), &numbers(&expected["weights"][h]), &format!("{name}: w"));
        }
        // Nothing has been verified of a world that has just begun, whatever the weights of the trackers are.
        let (mut empty, u) = (tracking.emptied(given.m, given.m), base.unwrap());
        empty.take_weights(&u, given.number("ridge"));
        assert_eq!(empty.answer(0, &vec![0.3; given.m], 0.1 + 0.2), 0.1 + 0.2);
        assert!(empty.answering_weights(&u, given.number("ridge")).is_none());
    }
}

#[test]
fn where_the_gate_is_shut_the_answer_is_the_bases() {
    let plan = Plan::new(0.9, 1000, 0, 3, 16);
    let mut tracking = Tracking::new(&plan, 0.9, 1000, 1, (16, 16), 0.3).unwrap();
    let u = Matrix::from_columns(16, 1, (0..16).map(|i| 0.1 * f64::from(i)).collect());
    tracking.take_weights(&u, 0.3);
    assert_eq!(tracking.answer(0, &[0.3; 16], 0.1 + 0.2), 0.1 + 0.2);
    assert!(tracking.answering_weights(&u, 0.3).is_none());
    assert_eq!(tracking.opening(0).half_life(), None);
}

/// `count` labelled states of [-1, 1], whose labels are the state and a level that drifts by `drift` in 100 rows.
fn labelled(count: usize, drift: f64) -> Rows {
    labelled_by(7, count, drift)
}

fn labelled_by(seed: u64, count: usize, drift: f64) -> Rows {
    let (mut rows, mut rng) = (Rows::new(1, 1), rand_chacha::ChaCha8Rng::seed_from_u64(seed));
    for i in 0..count {
        let x = 2.0 * rng.random::<f64>() - 1.0;
        let label = x + drift * i as f64 / 100.0 + 0.2 * (rng.random::<f64>() - 0.5);
        push(&mut rows, 0, true, &[x], &[label], &[x], true, false);
    }
    rows
}

/// `count` states of a walk about 0, which is put somewhere else at the first row and each `every` rows, without a flag.
fn walked(count: usize, every: usize) -> Rows {
    let (mut rows, mut rng) = (Rows::new(1, 1), rand_chacha::ChaCha8Rng::seed_from_u64(11));
    let mut x = 0.0;
    for i in 0..count {
        let starts = i % every == 0;
        if starts {
            x = 2.0 * rng.random::<f64>() - 1.0;
        }
        let next = 0.9 * x + 0.4 * (rng.random::<f64>() - 0.5);
        push(&mut rows, 0, starts, &[x], &[x], &[next], false, false);
        x = next;
    }
    rows
}

/// A learner of labels that has selected a model at row 400 and learned those up to 800.
fn learned(rows: &Rows) -> (Learner, Window) {
    learned_with(rows, LinearColumns::Auto)
}

fn learned_with(rows: &Rows, linear_columns: LinearColumns) -> (Learner, Window) {
    let (drift_sensitivity, dictionary_max) = (DriftSensitivity::Off, 20);
    let settings = Settings {
        discount: 0.0,
        dictionary_max,
        drift_sensitivity,
        linear_columns,
        search_starts: 1,
        ..Settings::default()
    };
    let (mut window, mut learner) = (Window::new(1, 1, rows.len()), Learner::new(settings, None));
    window.extend(rows, 0..400);
    learner.step(&window);
    let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
    let candidate = refit::run(&job, &|| true).unwrap();
    assert!(matches!(learner.try_adopt(candidate, &window), Verdict::Adopted { .. }));
    learn(&mut learner, &mut window, rows, 400..800);
    (learner, window)
}

fn learn(learner: &mut Learner, window: &mut Window, rows: &Rows, range: std::ops::Range<usize>) {
    for at in range.clone().step_by(10) {
        window.extend(rows, at..range.end.min(at + 10));
        learner.step(window);
    }
}

#[test]
fn a_level_that_drifts_is_followed_and_the_base_can_be_asked_for() {
    let rows = labelled(800, 1.0);
    let (learner, _) = learned(&rows);
    let (snapshot, opening) = (learner.snapshot(true).unwrap(), &learner.model().unwrap().openings().unwrap()[0]);
    let of = |ask| snapshot.evaluate(&[0.0], ask).unwrap().mean[0];
    // The level is 8 at the end, and 4 in the mean of all rows.
    assert!((of(Ask::MEAN) - 8.0).abs() < 0.4, "{} behind a gate of {opening:?}", of(Ask::MEAN));
    assert!((of(Ask { base: true, ..Ask::MEAN }) - 4.0).abs() < 0.6, "{}", of(Ask { base: true, ..Ask::MEAN }));
    assert!(opening.gate > 0.8 && opening.half_life().is_some_and(|h| h <= 128.0), "{opening:?}");
    let tracked = snapshot.tracked.as_ref().expect("an open gate");
    assert_eq!((tracked.gate[0], Some(tracked.half_life[0])), (opening.gate, opening.half_life()));
}

#[test]
fn at_discount_0_a_stream_is_tracked_before_the_first_refit() {
    let rows = labelled(300, 2.0);
    let settings = Settings { discount: 0.0, refit_first_rows: 0, ..Settings::default() };
    let (mut window, mut learner) = (Window::new(1, 1, rows.len()), Learner::new(settings, None));
    learn(&mut learner, &mut window, &rows, 0..rows.len());
    let snapshot = learner.snapshot(false).unwrap();
    let states: Vec<f64> = (-8..=8).map(|k| 0.1 * f64::from(k)).collect();
    // The level is 6 at the end, and 3 in the mean.
    let error = |ask| -> f64 {
        let found = snapshot.evaluate(&states, ask).unwrap().mean;
        states.iter().zip(found.iter()).map(|(x, v)| (v - x - 6.0).abs()).sum::<f64>() / states.len() as f64
    };
    let (followed, base) = (error(Ask::MEAN), error(Ask { base: true, ..Ask::MEAN }));
    let openings = learner.model().unwrap().openings();
    assert!(followed < 0.75 * base && base > 2.0, "{followed} and {base} behind a gate of {openings:?}");
}

#[test]
fn on_a_stream_that_stays_the_answers_are_the_bases_bit_for_bit() {
    for seed in 0..8 {
        let (learner, _) = learned_with(&labelled_by(seed, 800, 0.0), LinearColumns::Never);
        let snapshot = learner.snapshot(true).unwrap();
        assert!(learner.model().unwrap().openings().is_some(), "trackers are there");
        assert!(snapshot.tracked.is_none(), "seed {seed}");
        assert_eq!(snapshot.base_weights(), &snapshot.weights);
    }
}

/// Beside linear columns the gate of a straight line opens now and then: what it lets in is no worse.
#[test]
fn what_is_let_in_on_a_stream_that_stays_does_no_harm() {
    let states: Vec<f64> = (-20..=20).map(|k| 0.05 * f64::from(k)).collect();
    let (mut answers, mut base) = (0.0, 0.0);
    for seed in 0..16 {
        let (learner, _) = learned_with(&labelled_by(seed, 800, 0.0), LinearColumns::Auto);
        let snapshot = learner.snapshot(false).unwrap();
        let error = |ask| -> f64 {
            let found = snapshot.evaluate(&states, ask).unwrap().mean;
            states.iter().zip(found.iter()).map(|(x, v)| (v - x).powi(2)).sum::<f64>() / states.len() as f64
        };
        answers += error(Ask::MEAN);
        base += error(Ask { base: true, ..Ask::MEAN });
    }
    let [answers, base] = [answers, base].map(|sum: f64| (sum / 16.0).sqrt());
    println!("{answers} and {base} of the base alone");
    // Labels scatter by 0.058.
    assert!(answers < 1.2 * base && answers < 0.01, "{answers} and {base} of the base alone");
}

#[test]
fn chains_that_begin_anew_without_a_flag_are_no_stream_that_goes_on() {
    for (every, goes_on) in [(400, true), (300, true), (50, false)] {
        let settings = Settings {
            discount: 0.9,
            dictionary_max: 20,
            search_starts: 1,
            refit_first_rows: 0,
            ..Settings::default()
        };
        let (mut window, mut learner) = (Window::new(1, 1, 400), Learner::new(settings, None));
        window.extend(&walked(400, every), 0..400);
        learner.step(&window);
        let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
        let candidate = refit::run(&job, &|| true).unwrap();
        assert!(matches!(learner.try_adopt(candidate, &window), Verdict::Adopted { .. }));
        assert_eq!(learner.model().unwrap().goes_on(), goes_on, "a walk that is put elsewhere each {every} rows");
    }
}

#[test]
fn what_tracks_a_stream_goes_on_after_a_round_trip_bit_for_bit() {
    let rows = labelled(1200, 1.0);
    let (mut learner, mut window) = learned(&rows);
    let written = bytes(&learner);
    let (mut again, mut other) = (rmp_serde::from_slice::<Learner>(&written).unwrap(), window.clone());
    assert!(again.is_consistent() && bytes(&again) == written);
    learn(&mut learner, &mut window, &rows, 800..1200);
    learn(&mut again, &mut other, &rows, 800..1200);
    assert!(bytes(&again) == bytes(&learner));
    assert_eq!(again.snapshot(true).unwrap(), learner.snapshot(true).unwrap());
}

/// A walk without ends, whose rewards are the state until row `change`, and its opposite from there on.
fn endless(count: usize, change: usize) -> Rows {
    let (mut rows, mut rng, mut at) = (Rows::new(1, 1), rand_chacha::ChaCha8Rng::seed_from_u64(9), 0.0);
    for i in 0..count {
        let next = 0.8 * at + rng.random::<f64>() - 0.5;
        let reward = if i < change { at } else { -at } + 0.3 * (rng.random::<f64>() - 0.5);
        push(&mut rows, 0, i == 0, &[at], &[reward], &[next], false, false);
        at = next;
    }
    rows
}

/// Row from which on the rewards of [`endless`] are others.
const CHANGE: usize = 6000;

/// A critic of a stream that goes on, with a model that was selected at row 1000, which has learned rows until `is_there`, and how many.
fn following(rows: &Rows, is_there: impl Fn(&Learner, &[Event]) -> bool) -> (Learner, Window, usize) {
    let settings = Settings { discount: 0.9, dictionary_max: 12, search_starts: 1, ..Settings::default() };
    let (mut window, mut learner) = (Window::new(1, 1, rows.len()), Learner::new(settings, None));
    window.extend(rows, 0..1000);
    learner.step(&window);
    let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
    assert!(matches!(learner.try_adopt(refit::run(&job, &|| true).unwrap(), &window), Verdict::Adopted { .. }));
    assert!(learner.model().unwrap().goes_on());
    for at in (1000..rows.len()).step_by(50) {
        window.extend(rows, at..at + 50);
        let events = learner.step(&window);
        if is_there(&learner, &events) {
            return (learner, window, at + 50);
        }
    }
    panic!("it never came to this");
}

#[test]
fn steps_go_on_after_a_round_trip_within_a_fork_bit_for_bit() {
    let rows = endless(12_000, CHANGE);
    let (mut learner, mut window, at) = following(&rows, |learner, _| learner.is_forked());
    let written = bytes(&learner);
    let (mut again, mut other) = (rmp_serde::from_slice::<Learner>(&written).unwrap(), window.clone());
    assert!(again.is_consistent() && again.is_forked() && bytes(&again) == written);
    assert_eq!(again.snapshot(true).unwrap(), learner.snapshot(true).unwrap());
    learn(&mut learner, &mut window, &rows, at..rows.len());
    learn(&mut again, &mut other, &rows, at..rows.len());
    assert!(!learner.is_forked() && learner.model().unwrap().goes_on());
    assert!(bytes(&again) == bytes(&learner));
    assert_eq!(again.snapshot(true).unwrap(), learner.snapshot(true).unwrap());
}

/// Steps of a fork go on from where its model's have come to, by rows that the fork has never learned.
#[test]
fn nothing_steps_on_from_rows_that_were_taken_back() {
    let rows = endless(12_000, CHANGE);
    let of_steps = |learner: &Learner| learner.model().unwrap().openings().unwrap()[0].half_lives.len();
    let swapped = |_: &Learner, events: &[Event]| events.iter().any(|event| matches!(event, Event::Swapped { .. }));
    let (mut learner, mut window, at) = following(&rows, swapped);
    let (stepping, known) = (of_steps(&learner), Placed::from_offset(rows.clone(), 0));
    let removed = Offsets::from(100..200);
    assert!(learner.changed_at() > 200);
    let done = learner.remove(&known, &removed).unwrap();
    assert_eq!(done.subtracted, 0, "the model has learned none of them");
    assert!(learner.model().unwrap().goes_on());
    assert!(of_steps(&learner) < stepping, "steps that have seen these rows go on");
    learn(&mut learner, &mut window, &rows, at..at + 10);
    assert_eq!(of_steps(&learner), stepping, "they begin anew");
}
