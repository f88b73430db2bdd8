//! Heads that come late are as if they had been there from the first row of their model.

use criticd_learner::heads::{Continuation, Cumulant, Head, Rate};
use criticd_learner::math::returns::chains;
use criticd_learner::model::Unlike;
use criticd_learner::refit::RefitTrigger;
use criticd_learner::snapshot::{Ask, Snapshot};
use criticd_learner::transition::Rows;
use criticd_learner::window::Window;
use criticd_learner::{DriftSensitivity, Lambda, Learner, OnNewPolicy, SelectionKind, Settings, VarianceKind};
use criticd_reference::wander;

/// What heads may be in wandering rows: `noise_variance` of each, or none where noise and scale are chosen.
fn heads(noise_variance: Option<f64>) -> Vec<Head> {
    let signal = noise_variance.map(|_| 1.0);
    let head = |name: &str, cumulant, discount| Head {
        noise_variance,
        signal,
        ..Head::new(name, cumulant, Rate::Discount(discount))
    };
    let ends = Continuation::Inside { index: 0, low: -0.5, high: 0.5, outside: 0.25 };
    vec![
        head("reward", Cumulant::Reward(0), 0.9),
        head("state", Cumulant::State(1), 0.5),
        head("same discount", Cumulant::NextState(0), 0.9),
        head("now", Cumulant::Reward(0), 0.0),
        Head { continuation: ends, terminal_reward: 2.0, ..head("inside", Cumulant::Constant(1.0), 0.8) },
        Head { weight: Some(1), ..head("weighted", Cumulant::State(0), 0.9) },
    ]
}

fn settings(heads: Vec<Head>) -> Settings {
    Settings {
        heads,
        rewards: vec![0],
        discount: 0.9,
        refit_first_rows: 0,
        dictionary_max: 250,
        tolerance: 1e-4,
        backfill_rows: 100,
        refresh_rows: 32,
        drift_sensitivity: DriftSensitivity::Off,
        ..Settings::default()
    }
}

/// Rows of three streams; how often each counts is its second reward.
fn rows(count: usize) -> Rows {
    let mut rows = wander(count, 3, 2, 5);
    rows.rewards.chunks_exact_mut(2).enumerate().for_each(|(i, rewards)| rewards[1] = 0.5 + (i % 3) as f64);
    rows
}

/// Let learners learn the next rows, `piece` at a time.
fn learn(learners: &mut [&mut Learner], window: &mut Window, rows: &Rows, to: usize, piece: usize) {
    let mut from = window.end() as usize;
    while from < to {
        let end = to.min(from + piece);
        window.extend(rows, from..end);
        learners.iter_mut().for_each(|learner| drop(learner.step(window)));
        from = end;
    }
}

/// The heads that a learner lacks learn the rows of `window`, and become a part of its model.
fn catch_up(learner: &mut Learner, window: &Window) {
    let mut late = learner.late_heads(|_| false).expect("a known history");
    late.learn(window, window.end());
    learner.take_late_heads(late).unwrap();
    assert_eq!(learner.missing_heads(), 0);
}

#[test]
fn a_refit_that_runs_while_heads_join_has_ended_and_is_made_again_if_it_was_asked_for() {
    let (heads, rows) = (heads(None), rows(400));
    let mut learner = Learner::new(settings(heads[..2].to_vec()), None);
    let mut window = Window::new(rows.dim, 2, 4000);
    learn(&mut [&mut learner], &mut window, &rows, 400, 50);
    for (number, trigger) in [(2, RefitTrigger::Rows), (3, RefitTrigger::Requested)] {
        assert_eq!(
            learner.refit_due(),
            None,
            "no client has asked for a refit, and the settings turn off refits by row count"
        );
        learner.refit_job(&window, trigger).unwrap();
        assert!(learner.refit_running());
        learner.change_heads(&[], heads[number..=number].to_vec());
        catch_up(&mut learner, &window);
        assert!(!learner.refit_running(), "its model may lack them");
        let again = (trigger == RefitTrigger::Requested).then_some(trigger);
        assert_eq!(learner.refit_due(), again);
    }
}

fn assert_alike(late: &Learner, always: &Learner, tolerance: f64) {
    let (late, always) = (late.snapshot(true).unwrap(), always.snapshot(true).unwrap());
    let states = [0.1, 0.2, -0.4, 0.3, 0.7, -0.6];
    for head in &always.heads.as_ref().unwrap().heads {
        let of = |snapshot: &Snapshot| {
            let number = snapshot.heads.as_ref().unwrap().position(&head.name).unwrap();
            let found = snapshot.evaluate_heads(&states, &[number], true).unwrap();
            let noise = snapshot.heads.as_ref().unwrap().noise_variance(number);
            found.mean.iter().chain(found.variance.as_ref().unwrap()).copied().chain([noise]).collect::<Vec<f64>>()
        };
        let (found, expected) = (of(&late), of(&always));
        let scale = expected.iter().fold(0f64, |scale, value| scale.max(value.abs()));
        let far = found.iter().zip(&expected).find(|(a, b)| (*a - *b).abs() > tolerance * scale);
        assert!(far.is_none(), "{}: {found:?} {expected:?}", head.name);
    }
}

/// A learner that always had all heads, and one that got all but `first` of them in two turns, in the middle of a stream.
fn grown_apart(of: impl Fn(Vec<Head>) -> Settings, noise_variance: Option<f64>, first: usize) -> (Learner, Learner) {
    let (heads, rows) = (heads(noise_variance), rows(1800));
    let mut always = Learner::new(of(heads.clone()), None);
    let mut late = Learner::new(of(heads[..first].to_vec()), None);
    let mut window = Window::new(rows.dim, 2, 4000);
    learn(&mut [&mut always, &mut late], &mut window, &rows, 120, 17);
    late.change_heads(&[], heads[first..4].to_vec());
    catch_up(&mut late, &window);
    let before = late.model().unwrap().dictionary().len();
    learn(&mut [&mut always, &mut late], &mut window, &rows, 1111, 50);
    let after = late.model().unwrap().dictionary().len();
    assert!(20 < before && before < after, "it grows before and after: {before} {after}");
    late.change_heads(&[], heads[4..].to_vec());
    catch_up(&mut late, &window);
    assert_alike(&late, &always, 1e-9);
    learn(&mut [&mut always, &mut late], &mut window, &rows, 1800, 64);
    assert_alike(&late, &always, 1e-9);
    (late, always)
}

#[test]
fn they_are_as_if_they_had_always_been_there() {
    for first in [0, 1, 2] {
        let (late, _) = grown_apart(settings, Some(0.5), first);
        assert!(late.is_consistent());
    }
}

#[test]
fn they_choose_noise_and_scale_where_others_did() {
    grown_apart(settings, None, 1);
    grown_apart(settings, None, 0);
    let (late, _) = grown_apart(|heads| Settings { estimate_scale: false, ..settings(heads) }, None, 1);
    let bank = late.model().unwrap().heads().unwrap();
    assert!(bank.scales().iter().all(|scale| *scale == bank.scales()[0]), "nothing is estimated");
}

#[test]
fn they_forget_as_others_do() {
    grown_apart(|heads| Settings { forgetting: Some(700.0), ..settings(heads) }, Some(0.5), 1);
}

#[test]
fn scales_follow_a_drift_where_rows_are_forgotten() {
    let mut rows = wander(7200, 3, 2, 5);
    for i in 0..rows.len() {
        let noise = rows.reward(i)[1] - (2.0 * rows.state(i)[0] + 1.0).sin() - rows.state(i)[1];
        rows.rewards[2 * i] = rows.state(i)[0] + noise * if i < 4200 { 1.0 } else { 30.0 };
    }
    let now = Head::new("now", Cumulant::Reward(0), Rate::Discount(0.0));
    let of = |forgetting| Settings { forgetting, dictionary_max: 40, ..settings(vec![now.clone()]) };
    let noise = |learner: &Learner| {
        let scale = learner.model().unwrap().heads().unwrap().scales()[0];
        scale.signal * scale.ratio
    };
    let followed = |forgetting| {
        let (mut learner, mut window) = (Learner::new(of(forgetting), None), Window::new(rows.dim, 2, 8000));
        learn(&mut [&mut learner], &mut window, &rows, 4200, 50);
        let before = noise(&learner);
        let mut read: Learner = rmp_serde::from_slice(&rmp_serde::to_vec_named(&learner).unwrap()).unwrap();
        learn(&mut [&mut learner, &mut read], &mut window, &rows, 7200, 50);
        assert!(rmp_serde::to_vec_named(&learner).unwrap() == rmp_serde::to_vec_named(&read).unwrap());
        noise(&learner) / before
    };
    let (with, without) = (followed(Some(400.0)), followed(None));
    assert!(with > 20.0 && without == 1.0, "a variance of 900 times: {with}; it waits for 16 384 rows: {without}");
}

#[test]
fn they_choose_noise_and_scale_where_others_forgot() {
    let of = |heads| Settings { forgetting: Some(150.0), ..settings(heads) };
    grown_apart(of, None, 1);
    grown_apart(of, None, 0);
}

#[test]
fn the_critic_stays_as_it_is_and_goes_on_from_a_file() {
    let (rows, all) = (rows(2000), heads(None));
    let mut late = Learner::new(settings(all[..2].to_vec()), None);
    let mut window = Window::new(rows.dim, 2, 4000);
    learn(&mut [&mut late], &mut window, &rows, 900, 30);
    let critic = |learner: &Learner| Snapshot { heads: None, ..learner.snapshot(true).unwrap() };
    let (before, generation) = (critic(&late), late.generation());
    late.change_heads(&[], all[2..].to_vec());
    catch_up(&mut late, &window);
    assert_eq!((critic(&late), late.generation()), (before, generation));
    let written = rmp_serde::to_vec_named(&late).unwrap();
    let mut read: Learner = rmp_serde::from_slice(&written).unwrap();
    assert!(read.is_consistent());
    learn(&mut [&mut late, &mut read], &mut window, &rows, 2000, 41);
    assert!(rmp_serde::to_vec_named(&late).unwrap() == rmp_serde::to_vec_named(&read).unwrap());
}

#[test]
fn rows_that_were_left_out_are_left_out() {
    let (rows, all) = (rows(1500), heads(Some(0.5)));
    let mut always = Learner::new(settings(all.clone()), None);
    let mut late = Learner::new(settings(all[..1].to_vec()), None);
    let mut window = Window::new(rows.dim, 2, 4000);
    learn(&mut [&mut always, &mut late], &mut window, &rows, 600, 25);
    window.extend(&rows, 600..640);
    [&mut always, &mut late].into_iter().for_each(|learner| learner.skip_to(640));
    learn(&mut [&mut always, &mut late], &mut window, &rows, 1500, 25);
    late.change_heads(&[], all[1..].to_vec());
    catch_up(&mut late, &window);
    assert_alike(&late, &always, 1e-9);
}

#[test]
fn heads_of_other_rows_are_refused() {
    let (rows, all) = (rows(1000), heads(Some(0.5)));
    let mut learner = Learner::new(settings(all[..1].to_vec()), None);
    let mut window = Window::new(rows.dim, 2, 4000);
    learn(&mut [&mut learner], &mut window, &rows, 800, 25);
    learner.change_heads(&[], all[1..].to_vec());
    let mut late = learner.late_heads(|_| false).unwrap();
    late.learn(&window, 700);
    let before = learner.snapshot(true).unwrap();
    assert_eq!(learner.take_late_heads(late), Err(Unlike::Rows));
    assert_eq!(learner.snapshot(true).unwrap(), before);
    // A head that is wanted no more is not taken.
    let mut late = learner.late_heads(|_| false).unwrap();
    late.learn(&window, window.end());
    learner.change_heads(&["now".to_owned()], Vec::new());
    learner.take_late_heads(late).unwrap();
    let heads = learner.model().unwrap().heads().unwrap().heads().to_vec();
    assert_eq!(heads.len(), all.len() - 1);
    assert!(heads.iter().all(|head| head.name != "now"));
}

#[test]
fn a_model_whose_rows_count_otherwise_has_no_known_history() {
    let (rows, all) = (rows(1200), heads(Some(0.5)));
    let of = Settings { on_new_policy: OnNewPolicy::Discount, ..settings(all[..1].to_vec()) };
    let mut learner = Learner::new(of, None);
    let mut window = Window::new(rows.dim, 2, 4000);
    learn(&mut [&mut learner], &mut window, &rows, 600, 25);
    learner.new_policy(600, Some("other"));
    learn(&mut [&mut learner], &mut window, &rows, 1200, 25);
    learner.change_heads(&[], all[1..].to_vec());
    assert!(learner.late_heads(|_| false).is_none());
}

/// Rows whose first reward is `reward` of a row and its number and whose discount is `discount` of the same, none where that is not a
/// number. The second reward is what the first was.
fn instead(rows: &Rows, reward: impl Fn(&Rows, usize) -> f64, discount: impl Fn(&Rows, usize) -> f64) -> Rows {
    let mut out = rows.clone();
    for i in 0..rows.len() {
        (out.rewards[2 * i], out.rewards[2 * i + 1]) = (reward(rows, i), rows.reward(i)[0]);
        out.discounts[i] = discount(rows, i);
    }
    out
}

/// Seconds from row i to the next of its chain; where the chain is cut those before it, or 1.
fn step(rows: &Rows, next: &[Option<usize>], i: usize) -> f64 {
    let before = || next.iter().position(|next| *next == Some(i));
    match next[i] {
        Some(next) => rows.times[next] - rows.times[i],
        None => before().map_or(1.0, |before| rows.times[i] - rows.times[before]),
    }
}

#[test]
fn each_kind_says_what_a_critic_of_its_own_says() {
    let mut rows = Rows { keeps_times: true, ..wander(1500, 3, 2, 11) };
    rows.times = (0..rows.len()).map(|i| 0.1 * i as f64 + 0.04 * (i % 3) as f64).collect();
    let next = chains(&rows);
    let plain = |name: &str, cumulant| Head::new(name, cumulant, Rate::Discount(0.9));
    let (reward, critics) = (|rows: &Rows, i: usize| rows.reward(i)[0], |_: &Rows, _: usize| f64::NAN);
    let crosses = |rows: &Rows, i: usize| f64::from(u8::from(rows.state(i)[0] <= 0.1 && rows.next_state(i)[0] > 0.1));
    let stays = |x: f64| if (-0.5..=0.6).contains(&x) { 1.0 } else { 0.25 };
    let inside = Continuation::Inside { index: 0, low: -0.5, high: 0.6, outside: 0.25 };
    let ends = |rows: &Rows, i: usize| rows.reward(i)[0] + 2.0 * f64::from(u8::from(rows.terminated[i]));
    let fading = |rows: &Rows, i: usize| (-step(rows, &next, i) / 1.5).exp();
    let mut fourfold = instead(&rows, reward, critics);
    (0..rows.len()).for_each(|i| fourfold.rewards[2 * i + 1] = 4.0);
    // Rows that count four times are rows with a quarter of the noise.
    for (rows, head, noise) in [
        (
            instead(&rows, reward, fading),
            Head { rate: Rate::Timescale(1.5), ..plain("time", Cumulant::Reward(0)) },
            1.0,
        ),
        (instead(&rows, crosses, critics), plain("event", Cumulant::Event { index: 0, above: 0.1 }), 1.0),
        (
            instead(&rows, reward, |rows, i| 0.9 * stays(rows.next_state(i)[0])),
            Head { continuation: inside, ..plain("continuation", Cumulant::Reward(0)) },
            1.0,
        ),
        (instead(&rows, ends, critics), Head { terminal_reward: 2.0, ..plain("end", Cumulant::Reward(1)) }, 1.0),
        (fourfold, Head { weight: Some(1), ..plain("weight", Cumulant::Reward(0)) }, 4.0),
    ] {
        let settings = || Settings {
            lambda: Lambda::Fixed(1.0),
            selection: SelectionKind::Evidence,
            variance: VarianceKind::Model,
            estimate_scale: false,
            // Heads are learned about 0.
            centred: false,
            ..settings(Vec::new())
        };
        let (mut own, mut late) = (Learner::new(settings(), None), Learner::new(settings(), None));
        let mut window = Window::new(rows.dim, 2, 4000);
        learn(&mut [&mut own, &mut late], &mut window, &rows, 700, 25);
        let critic = own.snapshot(true).unwrap();
        let noise = noise * critic.hyperparameters.noise_variance;
        late.change_heads(&[], vec![Head { signal: Some(1.0), noise_variance: Some(noise), ..head.clone() }]);
        catch_up(&mut late, &window);
        learn(&mut [&mut own, &mut late], &mut window, &rows, rows.len(), 40);
        let states = [0.1, 0.2, -0.4, 0.3, 0.7, -0.6];
        let expected = own.snapshot(true).unwrap().evaluate(&states, Ask::VARIANCE).unwrap();
        let found = late.snapshot(true).unwrap().evaluate_heads(&states, &[0], true).unwrap();
        let numbers = |mean: &[f64], variance: &[f64]| [mean, variance].concat();
        let expected = numbers(expected.mean.as_slice(), expected.variance.as_ref().unwrap());
        let found = numbers(found.mean.as_slice(), found.variance.as_ref().unwrap().as_slice());
        // What is left of a variance has the rounding of the variance before any row.
        let scale = expected.iter().fold(1f64, |scale, value| scale.max(value.abs()));
        let close = found.iter().zip(&expected).all(|(a, b)| (a - b).abs() <= 1e-9 * scale);
        assert!(close && found.len() == 6, "{}: {found:?} {expected:?}", head.name);
    }
}
