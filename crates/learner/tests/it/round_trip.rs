//! What is written of a learner and read back is the same, and goes on as if it had never been written.

use crate::support::bytes;
use criticd_learner::math::kernel::NoiseModel;
use criticd_learner::refit::{self, RefitTrigger};
use criticd_learner::transition::Rows;
use criticd_learner::window::Window;
use criticd_learner::{Judgement, KernelKind, Lambda, Learner, SelectionKind, Settings, VarianceKind, Verdict};
use criticd_reference::wander;

fn settings() -> Settings {
    Settings {
        name: "main".into(),
        discount: 0.9,
        dictionary_max: 40,
        backfill_rows: 300,
        refresh_rows: 64,
        refit_first_rows: 0,
        evidence_rows: 60,
        search_starts: 1,
        ..Settings::default()
    }
}

fn read(bytes: &[u8]) -> Learner {
    let learner: Learner = rmp_serde::from_slice(bytes).unwrap();
    assert!(learner.is_consistent());
    learner
}

/// Learn `rows` in groups of changing size.
fn learn(learner: &mut Learner, window: &mut Window, rows: &Rows, range: std::ops::Range<usize>) {
    let mut at = range.start;
    while at < range.end {
        let to = range.end.min(at + 1 + at % 97);
        window.extend(rows, at..to);
        learner.step(window);
        at = to;
    }
}

fn refit(learner: &mut Learner, window: &Window) {
    let job = learner.refit_job(window, RefitTrigger::Requested).unwrap();
    let candidate = refit::run(&job, &|| true).unwrap();
    assert!(matches!(learner.try_adopt(candidate, window), Verdict::Adopted { .. }));
}

#[test]
fn a_learner_goes_on_after_a_round_trip_as_if_nothing_had_happened() {
    for (name, settings) in [
        ("plain", settings()),
        ("clustered", Settings { variance: VarianceKind::Clustered, rewards: vec![1, 0], ..settings() }),
        ("white", Settings { noise: NoiseModel::White, kernel: KernelKind::Isotropic, ..settings() }),
        ("weights after every row", Settings { refresh_rows: 1, dictionary_max: 80, tolerance: 1e-9, ..settings() }),
        (
            "weights after every row, lambda 1",
            Settings {
                refresh_rows: 1,
                dictionary_max: 80,
                tolerance: 1e-9,
                variance: VarianceKind::Model,
                lambda: Lambda::Fixed(1.0),
                selection: SelectionKind::Evidence,
                ..settings()
            },
        ),
        ("fixed noise, small", Settings { estimate_scale: false, dictionary_max: 3, ..settings() }),
    ] {
        let rows = wander(3000, 5, 2, 11);
        for (cut, refitted) in [(0, false), (20, false), (33, false), (700, false), (1500, true)] {
            let mut window = Window::new(2, 2, 5000);
            let mut learner = Learner::new(settings.clone(), None);
            learn(&mut learner, &mut window, &rows, 0..cut);
            if refitted {
                refit(&mut learner, &window);
            }
            let written = bytes(&learner);
            let mut again = read(&written);
            assert!(bytes(&again) == written, "{name} at {cut}: other bytes");
            if cut >= 700 && settings.refresh_rows == 1 {
                let posterior = learner.model().unwrap().posterior().unwrap();
                assert!(refitted || posterior.gained() > 0, "{name} at {cut}: the factor gains rows");
            }
            let mut other = window.clone();
            learn(&mut learner, &mut window, &rows, cut..rows.len());
            learn(&mut again, &mut other, &rows, cut..rows.len());
            assert!(bytes(&again) == bytes(&learner), "{name} at {cut}: another model");
            assert_eq!(again.snapshot(true).unwrap(), learner.snapshot(true).unwrap(), "{name} at {cut}");
        }
    }
}

#[test]
fn an_adoption_read_back_is_the_adoption() {
    let rows = wander(2000, 3, 1, 12);
    let mut window = Window::new(2, 1, 5000);
    let mut learner = Learner::new(settings(), Some(vec!["x".into(), "y".into()]));
    learn(&mut learner, &mut window, &rows, 0..1000);
    let mut replayed = read(&bytes(&learner));
    let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
    let candidate = refit::run(&job, &|| true).unwrap();
    let Judgement::Adopt { adoption, .. } = learner.judge(candidate, &window) else { panic!("it is better") };
    let recorded = rmp_serde::to_vec_named(&adoption).unwrap();
    replayed.adopt(rmp_serde::from_slice(&recorded).unwrap());
    learner.adopt(adoption);
    assert!(bytes(&replayed) == bytes(&learner));
    let mut other = window.clone();
    learn(&mut learner, &mut window, &rows, 1000..2000);
    learn(&mut replayed, &mut other, &rows, 1000..2000);
    assert!(bytes(&replayed) == bytes(&learner));
    assert_eq!(learner.generation(), 2);
}

#[test]
fn what_does_not_hold_together_is_noticed() {
    let rows = wander(500, 3, 1, 13);
    let mut window = Window::new(2, 1, 5000);
    let mut learner = Learner::new(settings(), None);
    learn(&mut learner, &mut window, &rows, 0..500);
    let written = bytes(&learner);
    // The dictionary's elements lose a row.
    assert!(rmp_serde::from_slice::<Learner>(&written[..written.len() / 2]).is_err());
    // The dictionary's elements lose a row.
    let mut broken = written.clone();
    let at = find(&written, b"basis") + b"basis".len();
    // bin 16: marker, two bytes of length. 16 bytes less are one element less; what follows is then read from elsewhere.
    assert_eq!(broken[at], 0xc5);
    let length = u16::from_be_bytes([broken[at + 1], broken[at + 2]]) - 16;
    broken[at + 1..at + 3].copy_from_slice(&length.to_be_bytes());
    broken.drain(at + 3..at + 19);
    let read: Learner = rmp_serde::from_slice(&broken).unwrap();
    assert!(!read.is_consistent());
}

fn find(bytes: &[u8], what: &[u8]) -> usize {
    bytes.windows(what.len()).position(|window| window == what).unwrap()
}

#[test]
fn a_window_that_begins_later_has_its_segments_where_they_were() {
    let rows = wander(10_000, 2, 1, 14);
    let mut whole = Window::new(2, 1, 100_000);
    whole.extend(&rows, 0..10_000);
    let mut later = Window::starting_at(2, 1, 100_000, 1234);
    later.extend(&rows, 1234..5000);
    later.extend(&rows, 5000..10_000);
    let ends =
        |window: &Window| window.since(5000).map(|(_, range, from)| from + range.len() as u64).collect::<Vec<_>>();
    assert_eq!(ends(&later), ends(&whole));
    assert_eq!((later.start(), later.end()), (1234, 10_000));
    assert!(later.flatten_since(2000).states == whole.flatten_since(2000).states);
}
