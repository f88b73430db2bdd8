//! Alarms about returns in a learner: they come before failures, and go on from a checkpoint as they were.

use crate::support::{GO, bytes};
use criticd_learner::heads::{Cumulant, Head, Rate};
use criticd_learner::random::{mix, normal, uniform};
use criticd_learner::refit;
use criticd_learner::transition::Rows;
use criticd_learner::window::Window;
use criticd_learner::{Event, Learner, Settings, Verdict, Warning, WarningSettings};

const ROWS: usize = 9000;

/// Two streams in turn. A heat rises over twenty rows now and then, and behind it a row costs ten. Every two hundredth row is cut.
fn failing() -> Rows {
    let mut rows = Rows { keeps_times: true, ..Rows::new(2, 1) };
    let mut heat = [0.0f64; 2];
    for t in 0..ROWS {
        let (stream, drawn) = (t % 2, |what: u64| mix(&[what, t as u64]));
        let state = [normal(drawn(1)), heat[stream] + 0.05 * normal(drawn(2))];
        let fails = heat[stream] >= 1.0;
        heat[stream] = match heat[stream] {
            h if h >= 1.0 => 0.0,
            0.0 if uniform(drawn(3)) >= 0.01 => 0.0,
            h => h + 0.05,
        };
        rows.states.extend(state);
        rows.next_states.extend([normal(drawn(4)), heat[stream]]);
        rows.rewards.push(0.3 * normal(drawn(5)) - if fails { 10.0 } else { 0.0 });
        rows.discounts.push(f64::NAN);
        rows.ratios.push(1.0);
        rows.streams.push(stream as u32);
        rows.terminated.push(fails && t % 3 == 0);
        rows.truncated.push(t % 200 > 197);
        rows.starts_chain.push(t < 2 || (t - 2) % 200 > 197 || rows.terminated[t - 2]);
        rows.times.push(0.5 * t as f64);
    }
    rows
}

fn settings() -> Settings {
    let alarm = |head: Option<&str>| WarningSettings { head: head.map(str::to_owned), below: -3.0, false_alarms: 0.02 };
    Settings {
        discount: 0.9,
        dictionary_max: 25,
        refresh_rows: 64,
        refit_first_rows: 1500,
        refit_growth: 100.0,
        heads: vec![Head::new("paid", Cumulant::Reward(0), Rate::Discount(0.9))],
        heads_split: false,
        alarms: vec![alarm(None), alarm(Some("paid")), alarm(Some("to come"))],
        ..Settings::default()
    }
}

/// Learn rows `from` to `to` in groups, with the refit that is due, and return what alarms said.
fn learn(
    learner: &mut Learner,
    window: &mut Window,
    rows: &Rows,
    (from, to): (usize, usize),
    group: usize,
) -> Vec<Warning> {
    let mut events = Vec::new();
    for at in (from..to).step_by(group) {
        window.extend(rows, at..to.min(at + group));
        events.extend(learner.step(window));
        // At one row whatever the groups are.
        if let Some(trigger) = learner.refit_due().filter(|_| learner.learned() == 3000) {
            let candidate = refit::run(&learner.refit_job(window, trigger).unwrap(), GO).unwrap();
            assert!(matches!(learner.try_adopt(candidate, window), Verdict::Adopted { .. }));
        }
    }
    events
        .into_iter()
        .filter_map(|event| if let Event::Warning(warning) = event { Some(warning) } else { None })
        .collect()
}

#[test]
fn alarms_come_before_failures_and_go_on_from_a_checkpoint() {
    let rows = failing();
    let start = || (Learner::new(settings(), None), Window::new(2, 1, ROWS));
    let (mut whole, mut window) = start();
    let told = learn(&mut whole, &mut window, &rows, (0, ROWS), 60);
    let records: Vec<_> = whole.warnings().unwrap().iter().map(|warner| warner.record()).collect();
    for (record, head) in records.iter().zip([None, Some("paid")]) {
        let share = record.false_share().unwrap();
        let caught = 1.0 - record.missed as f64 / record.fell as f64;
        assert!((0.2..2.0).contains(&(share / 0.02)) && caught > 0.5, "{head:?}: {record:?}");
        assert!(record.hits >= 5 && record.lead_rows > 2.0, "{head:?}: {record:?}");
        assert!(
            (record.lead_s / record.lead_rows - 1.0).abs() < 0.1,
            "rows of a stream are a second apart: {record:?}"
        );
        let of_it: Vec<&Warning> = told.iter().filter(|warning| warning.head.as_deref() == head).collect();
        assert_eq!(of_it.iter().filter(|warning| warning.raised).count() as u64, record.raised);
        assert!(of_it.iter().any(|warning| warning.stream == 1));
        // The refit comes first.
        assert!(of_it.iter().all(|warning| warning.offset >= if head.is_none() { 3000 } else { 64 }));
    }
    assert_eq!((records[2].stayed, records[2].raised), (0, 0), "no head has this name");

    // A checkpoint in between changes no bit.
    let (mut first, mut window) = start();
    let mut again = learn(&mut first, &mut window, &rows, (0, 6000), 60);
    let mut second: Learner = rmp_serde::from_slice(&bytes(&first)).unwrap();
    assert!(second.is_consistent());
    again.extend(learn(&mut second, &mut window, &rows, (6000, ROWS), 60));
    assert_eq!(again, told);
    assert!(bytes(&second) == bytes(&whole));

    // Groups of another size give the same values up to rounding, and so the same alarms but for a few at the edge.
    let (mut other, mut window) = start();
    learn(&mut other, &mut window, &rows, (0, ROWS), 300);
    for (record, warner) in records.iter().zip(other.warnings().unwrap().iter()) {
        let found = warner.record();
        assert!(
            found.raised.abs_diff(record.raised) <= 3 && found.fell.abs_diff(record.fell) <= 3,
            "{record:?}, {found:?}"
        );
    }
}

#[test]
fn other_settings_begin_anew_and_none_leave_nothing() {
    let rows = failing();
    let (mut learner, mut window) = (Learner::new(settings(), None), Window::new(2, 1, ROWS));
    learn(&mut learner, &mut window, &rows, (0, 5000), 100);
    let known = learner.warnings().unwrap().iter().next().unwrap().record();
    assert!(known.raised > 0);
    let mut other = settings();
    other.alarms[1].below = -4.0;
    learner.set_settings(other);
    let records: Vec<_> = learner.warnings().unwrap().iter().map(|warner| warner.record()).collect();
    assert_eq!((records[0], records[1].stayed), (known, 0));
    // A cut of all that runs ends what was under way.
    learner.skip_to(5100);
    assert!(learner.warnings().unwrap().iter().all(|warner| warner.streams().len() == 0));
    learner.set_settings(Settings { alarms: Vec::new(), ..settings() });
    assert!(learner.warnings().is_none());
    // Checkpoints of critics without alarms are those of before.
    let plain = Learner::new(Settings { alarms: Vec::new(), ..settings() }, None);
    for (learner, key) in [(&learner, "warnings"), (&plain, "warnings"), (&plain, "false_alarms")] {
        assert!(!String::from_utf8_lossy(&bytes(learner)).contains(key), "{key}");
    }
}

#[test]
fn an_alarm_ends_with_the_head_that_it_is_about() {
    let rows = failing();
    let (mut learner, mut window) = (Learner::new(settings(), None), Window::new(2, 1, ROWS));
    let on = |learner: &Learner| learner.warnings().unwrap().iter().nth(1).unwrap().streams().len();
    let mut at = 5000;
    learn(&mut learner, &mut window, &rows, (0, at), 100);
    while on(&learner) == 0 {
        learn(&mut learner, &mut window, &rows, (at, at + 1), 1);
        at += 1;
    }
    let (raised, value) = (on(&learner), learner.warnings().unwrap().iter().next().unwrap().record());
    // Another head of the same name has other returns.
    let heads = vec![Head::new("paid", Cumulant::Reward(0), Rate::Discount(0.5))];
    learner.set_settings(Settings { heads, ..settings() });
    assert_eq!(on(&learner), 0);
    let records: Vec<_> = learner.warnings().unwrap().iter().map(|warner| warner.record()).collect();
    assert_eq!((records[0], records[1].stayed, records[1].raised), (value, 0, 0));
    let told = learn(&mut learner, &mut window, &rows, (at, at + 1), 1);
    let ended = told.iter().filter(|warning| warning.head.as_deref() == Some("paid") && !warning.raised);
    assert_eq!(ended.count(), raised, "{told:?}");
}
