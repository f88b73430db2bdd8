//! A world that changes is noticed and followed, and what follows from rows follows from them alone.

use criticd_learner::action::{ActionSpace, ActionValue, Successor, Trace};
use criticd_learner::math::dictionary::Dictionary;
use criticd_learner::math::drift::{Series, Statistic};
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::model::Model;
use criticd_learner::removal::{Offsets, Placed};
use criticd_learner::snapshot::{Ask, Inputs};
use criticd_learner::transition::{Batch, BatchParts, Rows};
use criticd_learner::window::Window;
use criticd_learner::{DriftSensitivity, Event, Learner, Settings};
use criticd_reference::{TESTS, push};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

/// Rows before the first change.
const CALM: usize = 12_000;

/// A walk over eleven states on each stream, cut every 50 rows: the reward is the position times `sign`, and noise.
struct Walk {
    rng: ChaCha8Rng,
    at: Vec<(i32, u32)>,
}

impl Walk {
    fn new(streams: usize) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(1), at: vec![(0, 0); streams] }
    }

    /// `count` rows, the streams in turn; `sign` is a stream's at a row.
    fn rows(&mut self, count: usize, right: f64, sign: impl Fn(usize) -> f64) -> Rows {
        let mut rows = Rows::new(1, 1);
        for k in 0..count {
            let stream = k % self.at.len();
            let (position, steps) = self.at[stream];
            let next = (position + if self.rng.random::<f64>() < right { 1 } else { -1 }).clamp(-5, 5);
            let noise = 0.3 * (self.rng.random::<f64>() + self.rng.random::<f64>() - 1.0);
            let reward = sign(stream) * f64::from(position) / 5.0 + noise;
            let place = |position: i32| [f64::from(position) / 5.0];
            let cut = steps == 49;
            push(&mut rows, stream as u32, steps == 0, &place(position), &[reward], &place(next), false, cut);
            self.at[stream] = if cut { (self.rng.random_range(-5..=5), 0) } else { (next, steps + 1) };
        }
        rows
    }
}

fn settings() -> Settings {
    Settings { discount: 0.8, refit_first_rows: 0, dictionary_max: 12, ..Settings::default() }
}

/// 12 000 rows, then other rewards, then the old ones again.
fn there_and_back() -> Rows {
    let mut walk = Walk::new(1);
    let mut rows = walk.rows(CALM, 0.5, |_| 1.0);
    for (count, sign) in [(9_000, -1.0), (4_000, 1.0)] {
        let more = walk.rows(count, 0.5, |_| sign);
        rows.extend(&more, 0..count);
    }
    rows
}

fn step(learner: &mut Learner, window: &mut Window, rows: &Rows, range: std::ops::Range<usize>) -> Vec<Event> {
    window.extend(rows, range);
    let events = learner.step(window);
    window.hold(learner.looks_back_to());
    events
}

fn learn(settings: Settings, rows: &Rows, group: usize) -> (Learner, Vec<Event>) {
    let (mut learner, mut window) = (Learner::new(settings, None), Window::new(1, 1, 100));
    let mut events = Vec::new();
    for from in (0..rows.len()).step_by(group) {
        events.extend(step(&mut learner, &mut window, rows, from..rows.len().min(from + group)));
    }
    (learner, events.into_iter().filter(|e| !matches!(e, Event::FirstModel | Event::DictionaryFull)).collect())
}

fn values(learner: &Learner) -> Vec<f64> {
    let states: Vec<f64> = (-5..=5).map(|s| f64::from(s) / 5.0).collect();
    learner.snapshot(false).unwrap().evaluate(&states, Ask::MEAN).unwrap().mean.as_slice().to_vec()
}

#[test]
fn the_cusum_is_that_of_whole_arrays() {
    let path = format!("{TESTS}/golden/drift.json");
    let cases: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    for case in cases.as_array().unwrap() {
        let (name, at) = (case["name"].as_str().unwrap(), case["at"].as_u64().unwrap());
        let (mut state, mut series) = (1_u64, Series::of_errors());
        for offset in 0..case["rows"].as_u64().unwrap() {
            let mut x = 0.0;
            for _ in 0..3 {
                state = (state * 1_103_515_245 + 12_345) % (1 << 31);
                x += state as f64 / (1_u64 << 31) as f64 - 0.5;
            }
            let changed = match name {
                "the mean rises" => x + 0.05,
                "the mean falls" => x - 0.1,
                "the size rises" => 1.2 * x,
                _ => x,
            };
            series.push(if offset < at { x } else { changed }, offset);
        }
        let found = series.finding().unwrap();
        let statistic = match case["statistic"].as_str().unwrap() {
            "higher" => Statistic::Higher,
            "lower" => Statistic::Lower,
            _ => Statistic::Wider,
        };
        assert_eq!((found.statistic, found.length), (statistic, case["length"].as_u64().unwrap()), "{name}");
        assert_eq!(found.since, case["since"].as_u64().unwrap(), "{name}");
        assert!((found.level - case["level"].as_f64().unwrap()).abs() < 1e-9, "{name}: {found:?}");
        assert!((found.unit - case["unit"].as_f64().unwrap()).abs() < 1e-12, "{name}: {found:?}");
    }
}

#[test]
fn other_rewards_are_followed_and_the_old_model_comes_back() {
    let rows = there_and_back();
    let (calm, none) = learn(settings(), &prefix(&rows, CALM), 100);
    assert_eq!(none, [], "nothing has changed yet");
    let (swapped, events) = learn(settings(), &prefix(&rows, CALM + 8_000), 100);
    let [Event::Drift(alarm), Event::Forked { from, .. }, Event::Swapped { at, kept, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    let change = CALM as u64;
    assert!((change..change + 1000).contains(&alarm.offset), "{alarm:?}");
    assert!(alarm.finding.since.abs_diff(change) < 600 && alarm.is_general(), "{alarm:?}");
    assert!(from.abs_diff(change) < 700 && *at < change + 2500, "{events:?}");
    let names: Vec<_> = swapped.kept_models().collect();
    let [(name, until)] = names[..] else { panic!("{names:?}") };
    assert_eq!(Some(name), kept.as_deref());
    assert!(until <= alarm.finding.since && until + 4096 > change, "kept as it was at {until}: {alarm:?}");
    assert_eq!((swapped.generation(), swapped.changed_at()), (2, *from));
    let (before, after) = (values(&calm), values(&swapped));
    for (x, y) in before.iter().zip(&after) {
        assert!((x + y).abs() < 0.6, "{before:?} {after:?}");
    }
    let (back, events) = learn(settings(), &rows, 100);
    let Some(Event::Returned { name, at, .. }) = events.last() else { panic!("{events:?}") };
    assert_eq!(Some(name), kept.as_ref());
    assert!(*at < change + 9_000 + 2_000, "{events:?}");
    for (x, y) in before.iter().zip(&values(&back)) {
        assert!((x - y).abs() < 0.6, "{before:?} {:?}", values(&back));
    }
    assert_eq!(back.kept_models().count(), 1, "the model that it took over from");
}

#[test]
fn what_comes_back_has_learned_nothing_of_the_other_world() {
    let rows = there_and_back();
    let (mut learner, mut window) = (Learner::new(settings(), None), Window::new(1, 1, 100));
    for from in (0..rows.len()).step_by(50) {
        let events = step(&mut learner, &mut window, &rows, from..from + 50);
        let Some(Event::Returned { until, .. }) = events.last() else { continue };
        let (before, _) = learn(settings(), &prefix(&rows, *until as usize), 50);
        for (x, y) in values(&before).iter().zip(&values(&learner)) {
            // Until it was replaced it had learned a thousand rows of a world with the opposite values.
            assert!((x - y).abs() < 0.05, "{:?} {:?}", values(&before), values(&learner));
        }
        return;
    }
    panic!("no model has come back");
}

#[test]
fn a_fork_that_is_given_up_leaves_the_model_as_if_there_had_been_none() {
    let mut walk = Walk::new(1);
    let mut rows = walk.rows(CALM, 0.5, |_| 1.0);
    let loud = walk.rows(9_000, 0.5, |_| 1.0);
    rows.extend(&loud, 0..loud.len());
    // Much noise for a while: errors change, values do not.
    let mut rng = ChaCha8Rng::seed_from_u64(7);
    rows.rewards[CALM..CALM + 600].iter_mut().for_each(|reward| *reward += 8.0 * (rng.random::<f64>() - 0.5));
    let (learner, events) = learn(settings(), &rows, 100);
    let [Event::Drift(_), Event::Forked { from, .. }, Event::Dismissed { at, .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert!(*from < *at && !learner.is_forked() && learner.changed_at() == 0, "{events:?}");
    let (without, _) = learn(Settings { drift_sensitivity: DriftSensitivity::Off, ..settings() }, &rows, 100);
    assert!(values(&learner) == values(&without), "a false alarm costs nothing");
}

#[test]
fn a_fork_that_has_learned_what_is_taken_back_is_dropped() {
    let rows = there_and_back();
    let (mut learner, mut window) = (Learner::new(settings(), None), Window::new(1, 1, 100));
    let mut from = 0;
    while !learner.is_forked() {
        step(&mut learner, &mut window, &rows, from..from + 50);
        from += 50;
    }
    let learned = Placed::from_offset(prefix(&rows, from), 0);
    // It has none of the rows before the change, and stays; its model loses them.
    let (mut before, mut after) = (learner.clone(), learner);
    before.remove(&learned, &Offsets::from(100..150)).unwrap();
    assert!(before.is_forked() && !before.is_stale());
    let end = from as u64;
    after.remove(&learned, &Offsets::from(end - 50..end)).unwrap();
    assert!(!after.is_forked() && !after.is_stale());
    // The model is the one of a learner that has learned the others.
    let all_but = prefix(&rows, from - 50);
    let (without, _) = learn(Settings { drift_sensitivity: DriftSensitivity::Off, ..settings() }, &all_but, 50);
    for (x, y) in values(&without).iter().zip(&values(&after)) {
        assert!((x - y).abs() < 1e-9, "{x} {y}");
    }
}

#[test]
fn a_world_that_changes_is_followed_where_rows_are_forgotten_too() {
    let rows = there_and_back();
    let forgetful = Settings { forgetting: Some(6_000.0), ..settings() };
    let (learner, events) = learn(forgetful.clone(), &prefix(&rows, CALM + 8_000), 100);
    let [Event::Drift(alarm), Event::Forked { .. }, Event::Swapped { .. }] = &events[..] else { panic!("{events:?}") };
    assert!((CALM as u64..CALM as u64 + 1500).contains(&alarm.offset), "{alarm:?}");
    // Rows are forgotten by their offsets in the fork as in the model: in any groups the same bits.
    for group in [64, 777] {
        let (other, same) = learn(forgetful.clone(), &prefix(&rows, CALM + 8_000), group);
        assert!(events == same && values(&other) == values(&learner), "groups of {group}");
    }
    let (back, events) = learn(forgetful, &rows, 100);
    assert!(matches!(events.last(), Some(Event::Returned { .. })), "{events:?}");
    let (calm, _) = learn(settings(), &prefix(&rows, CALM), 100);
    for (x, y) in values(&calm).iter().zip(&values(&back)) {
        assert!((x - y).abs() < 0.6, "{:?} {:?}", values(&calm), values(&back));
    }
}

fn prefix(rows: &Rows, count: usize) -> Rows {
    let mut out = Rows::new(rows.dim, rows.rewards_per_row);
    out.extend(rows, 0..count);
    out
}

#[test]
fn what_happens_does_not_depend_on_how_rows_are_grouped() {
    let rows = there_and_back();
    let (one, events) = learn(settings(), &rows, 1000);
    for group in [64, 7777] {
        let (other, same) = learn(settings(), &rows, group);
        let kinds = |events: &[Event]| -> Vec<String> { events.iter().map(brief).collect() };
        assert_eq!(kinds(&events), kinds(&same), "groups of {group}");
        for (a, b) in values(&one).iter().zip(&values(&other)) {
            assert!((a - b).abs() < 1e-9, "groups of {group}: {a} {b}");
        }
    }
}

/// What happened and where, without numbers that rounding may touch.
fn brief(event: &Event) -> String {
    match event {
        Event::Drift(alarm) => {
            format!("{:?} at {} since {}", alarm.finding.statistic, alarm.offset, alarm.finding.since)
        }
        other => format!("{other:?}"),
    }
}

#[test]
fn written_and_read_back_at_any_moment_it_goes_on_bit_for_bit() {
    let rows = there_and_back();
    let written = |learner: &Learner| rmp_serde::to_vec_named(learner).unwrap();
    let (through, _) = learn(settings(), &rows, 250);
    let (mut learner, mut window) = (Learner::new(settings(), None), Window::new(1, 1, 100));
    for from in (0..rows.len()).step_by(250) {
        let to = rows.len().min(from + 250);
        step(&mut learner, &mut window, &rows, from..to);
        // As after a crash: the learner from its checkpoint, the window from the journal.
        learner = rmp_serde::from_slice(&written(&learner)).unwrap();
        assert!(learner.is_consistent());
        let kept = learner.replay_from();
        window = Window::starting_at(1, 1, 100, kept);
        window.hold(kept);
        window.extend(&rows, kept as usize..to);
    }
    assert!(written(&through) == written(&learner), "another model");
}

#[test]
fn one_stream_that_breaks_is_named_and_not_followed() {
    let mut walk = Walk::new(5);
    let mut rows = walk.rows(5 * 8_000, 0.5, |_| 1.0);
    let more = walk.rows(5 * 6_000, 0.5, |stream| if stream == 3 { -1.0 } else { 1.0 });
    rows.extend(&more, 0..more.len());
    let (learner, events) = learn(settings(), &rows, 1000);
    assert!(!events.is_empty() && learner.generation() == 1, "{events:?}");
    for event in &events {
        let Event::Drift(alarm) = event else { panic!("{events:?}") };
        assert!(alarm.streams == [3] && alarm.offset >= 40_000, "{events:?}");
    }
}

#[test]
fn a_change_of_every_stream_is_nobodys_own() {
    let mut walk = Walk::new(5);
    let mut rows = walk.rows(5 * 6_000, 0.5, |_| 1.0);
    let more = walk.rows(5 * 1_000, 0.5, |_| -1.0);
    rows.extend(&more, 0..more.len());
    let (learner, events) = learn(settings(), &rows, 1000);
    let general = events.iter().any(|event| matches!(event, Event::Drift(alarm) if alarm.is_general()));
    assert!(general && learner.generation() == 2, "{events:?}");
}

#[test]
fn where_it_is_switched_off_nothing_is_watched() {
    let rows = there_and_back();
    let off = Settings { drift_sensitivity: DriftSensitivity::Off, ..settings() };
    let (learner, events) = learn(off.clone(), &rows, 100);
    assert!(events.is_empty() && learner.generation() == 1 && !learner.watches());
    let (mut learner, _) = learn(settings(), &prefix(&rows, CALM + 8_000), 100);
    assert!(learner.watches() && learner.bytes_beside_model() > 0);
    learner.set_settings(off);
    assert!(!learner.watches() && learner.bytes_beside_model() == 0 && learner.looks_back_to() == learner.learned());
}

#[test]
fn another_policy_ends_the_fork() {
    let rows = there_and_back();
    let (mut learner, mut window) = (Learner::new(settings(), None), Window::new(1, 1, 100));
    let mut at = 0;
    while !learner.is_forked() {
        step(&mut learner, &mut window, &rows, at..at + 100);
        at += 100;
    }
    assert!(learner.changed_at() < at as u64);
    learner.new_policy(at as u64, Some("b"));
    let events = step(&mut learner, &mut window, &rows, at..at + 100);
    assert!(matches!(&events[..], [Event::NewPolicy { offset, .. }] if *offset == at as u64), "{events:?}");
    assert!(!learner.is_forked());
    // Refits leave out the rows before, and a fork does not begin with them either.
    assert_eq!((learner.changed_at(), learner.looks_back_to()), (at as u64, at as u64));
}

/// What the two actions of a walker earn on average, by how much that varies, and how often it takes the second.
struct World {
    earns: [f64; 2],
    varies: [f64; 2],
    second: f64,
}

/// Rows of one walk.
const WALK: usize = 50;

/// A critic of the policy that takes the first of two actions, or with `expected` takes it in nine states of ten. Each input is in
/// its dictionary.
fn judge(successor: Successor) -> Learner {
    let kernel = Kernel::gaussian(25.0, 25.0, Metric::Ard(vec![20.0, 1.0, 1.0]));
    let of_state = |s: i32| [[1.0, 0.0], [0.0, 1.0]].map(|action| [f64::from(s) / 5.0, action[0], action[1]]);
    let inputs: Vec<f64> = (-5..=5).flat_map(of_state).flatten().collect();
    let dictionary = Dictionary::from_elements(kernel.clone(), 3, &inputs).unwrap();
    let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.5 };
    let of = ActionValue { space: ActionSpace::Discrete(2), successor, trace: Trace::Retrace };
    let settings = Settings { action_value: Some(of), dictionary_max: 22, ..settings() };
    let model = Model::with_dictionary(settings.clone(), Inputs::identity(3), &hyperparameters, dictionary);
    Learner::with_kernel_of(settings, None, 0, &model)
}

/// Let a critic learn walks over eleven states, where actions do not decide, and say what it reports.
fn walk_on(learner: &mut Learner, rng: &mut ChaCha8Rng, world: &World, walks: usize) -> Vec<Event> {
    let mut events = Vec::new();
    for _ in 0..walks {
        let (mut states, mut next_states) = (Vec::new(), Vec::new());
        let (mut rewards, mut actions) = (Vec::new(), Vec::new());
        let mut position: i32 = rng.random_range(-5..=5);
        for _ in 0..WALK {
            let action = usize::from(rng.random::<f64>() < world.second);
            let noise = world.varies[action] * (rng.random::<f64>() + rng.random::<f64>() - 1.0);
            states.push(f64::from(position) / 5.0);
            rewards.push(world.earns[action] + f64::from(position) / 25.0 + noise);
            actions.push(action as f64);
            position = (position + if rng.random::<f64>() < 0.5 { 1 } else { -1 }).clamp(-5, 5);
            next_states.push(f64::from(position) / 5.0);
        }
        let parts = BatchParts {
            stream: "walk".into(),
            dim: 1,
            rewards_per_row: 1,
            states,
            next_states: Some(next_states),
            rewards,
            truncated: Some((0..WALK).map(|i| i + 1 == WALK).collect()),
            actions: Some(actions),
            next_actions: Some(vec![0.0; WALK]),
            next_action_probs: Some([0.9, 0.1].repeat(WALK)),
            ..BatchParts::default()
        };
        let starts: Vec<bool> = (0..WALK).map(|i| i == 0).collect();
        let offset = learner.learned();
        learner.take(0, &starts, &Batch::new(parts).unwrap(), offset);
        events.extend(learner.step(&Window::new(1, 1, 10)));
    }
    events.retain(|event| !matches!(event, Event::DictionaryFull));
    events
}

/// Q of the first action in the middle.
fn judged_value(learner: &Learner) -> f64 {
    learner.snapshot(false).unwrap().evaluate(&[0.0, 1.0, 0.0], Ask::MEAN).unwrap().mean[0]
}

#[test]
fn a_policy_that_is_judged_keeps_its_model_where_another_one_comes_to_act() {
    for (successor, expected) in [(Successor::NextAction, 5.0), (Successor::Expected, 4.2)] {
        let (mut learner, mut rng) = (judge(successor), ChaCha8Rng::seed_from_u64(3));
        let mut world = World { earns: [1.0, -1.0], varies: [0.6, 3.0], second: 0.3 };
        let none = walk_on(&mut learner, &mut rng, &world, 160);
        assert_eq!(none, [], "{successor:?}: nothing has changed yet");
        // Its errors are larger, and its returns are -5. No row shows what the judged policy earns any more.
        world.second = 1.0;
        let events = walk_on(&mut learner, &mut rng, &world, 140);
        let [Event::Drift(_), Event::Forked { .. }, Event::Dismissed { .. }, ..] = &events[..] else {
            panic!("{successor:?}: {events:?}")
        };
        assert_eq!((learner.generation(), learner.changed_at()), (2, 0), "{successor:?}: {events:?}");
        let found = judged_value(&learner);
        assert!((found - expected).abs() < 0.6, "{successor:?}: {found}");
    }
}

#[test]
fn a_policy_that_is_judged_is_followed_where_its_rewards_change_and_those_of_the_acting_one_stay_better() {
    for (successor, before, after) in [(Successor::NextAction, 5.0, -5.0), (Successor::Expected, 5.8, -3.4)] {
        let (mut learner, mut rng) = (judge(successor), ChaCha8Rng::seed_from_u64(4));
        let mut world = World { earns: [1.0, 3.0], varies: [0.6, 0.6], second: 0.5 };
        let none = walk_on(&mut learner, &mut rng, &world, 160);
        assert_eq!(none, [], "{successor:?}: nothing has changed yet");
        let found = judged_value(&learner);
        assert!((found - before).abs() < 0.6, "{successor:?}: {found}");
        // The acting policy earns 1 a row: returns of 5 are nearer to the values before.
        world.earns[0] = -1.0;
        let events = walk_on(&mut learner, &mut rng, &world, 100);
        let [Event::Drift(_), Event::Forked { .. }, Event::Swapped { at, .. }, ..] = &events[..] else {
            panic!("{successor:?}: {events:?}")
        };
        assert!(*at < 8_000 + 2_500 && learner.generation() == 3, "{successor:?}: {events:?}");
        let found = judged_value(&learner);
        assert!((found - after).abs() < 0.6, "{successor:?}: {found}");
    }
}

#[test]
fn a_contest_about_a_policy_that_is_judged_goes_on_bit_for_bit() {
    let written = |learner: &Learner| rmp_serde::to_vec_named(learner).unwrap();
    let (mut through, mut rng) = (judge(Successor::Expected), ChaCha8Rng::seed_from_u64(5));
    let mut world = World { earns: [1.0, 3.0], varies: [0.6, 0.6], second: 0.5 };
    walk_on(&mut through, &mut rng, &world, 160);
    world.earns[0] = -1.0;
    let (mut learner, mut same, mut forked) = (through.clone(), rng.clone(), false);
    for _ in 0..40 {
        walk_on(&mut through, &mut rng, &world, 1);
        walk_on(&mut learner, &mut same, &world, 1);
        forked |= learner.is_forked();
        learner = rmp_serde::from_slice(&written(&learner)).unwrap();
        assert!(learner.is_consistent());
    }
    assert!(forked && written(&through) == written(&learner), "another model");
}
