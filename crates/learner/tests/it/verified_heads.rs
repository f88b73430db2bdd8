//! What heads predicted of returns is compared with the returns that came.

use criticd_learner::Settings;
use criticd_learner::heads::{Cumulant, Head, HeadVerdict, Rate, Verified};
use criticd_learner::math::dictionary::Dictionary;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::model::Model;
use criticd_learner::snapshot::Inputs;
use criticd_learner::transition::Rows;

/// Numbers of about mean 0 and deviation 1 without a pattern.
fn noise(i: u64) -> f64 {
    let uniform = |k: u64| {
        let x = (12 * i + k).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ (x >> 31)) as f64 / u64::MAX as f64
    };
    (0..12).map(uniform).sum::<f64>() - 6.0
}

/// A walk on a circle in chains of so many rows, cut or ended. Reward 0 is a wave with noise of deviation 1, reward 1 the same
/// where the noise is far smaller.
fn walk(count: usize, chain: usize, ends: bool) -> Rows {
    let mut rows = Rows { keeps_times: true, ..Rows::new(1, 2) };
    let mut x = 0.5;
    for i in 0..count {
        let last = i % chain == chain - 1;
        let next = (x + 0.1 * noise(i as u64) + 1.0) % 1.0;
        rows.states.push(x);
        rows.next_states.push(next);
        let wave = (std::f64::consts::TAU * x).sin();
        rows.rewards.extend([wave + noise((count + i) as u64), wave + 0.1 * noise((2 * count + i) as u64)]);
        rows.times.push(0.1 * i as f64);
        rows.discounts.push(f64::NAN);
        rows.ratios.push(1.0);
        rows.streams.push(0);
        rows.terminated.push(last && ends);
        rows.truncated.push(last && !ends);
        rows.starts_chain.push(i % chain == 0);
        x = next;
    }
    rows
}

fn head(name: &str, column: usize, rate: Rate, noise_variance: f64) -> Head {
    let given =
        Head { noise_variance: Some(noise_variance), signal: Some(1.0), ..Head::new("", Cumulant::Reward(0), rate) };
    Head { name: name.to_owned(), cumulant: Cumulant::Reward(column), ..given }
}

fn model(heads: Vec<Head>) -> Model {
    let kernel = Kernel::gaussian(1.0, 1.0, Metric::Ard(vec![40.0]));
    let elements: Vec<f64> = (0..8).map(|k| f64::from(k) / 8.0).collect();
    let mut dictionary = Dictionary::from_elements(kernel.clone(), 1, &elements).unwrap();
    dictionary.close();
    let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 1.0 };
    let settings = Settings { estimate_scale: false, refresh_rows: 16, heads, ..Settings::paper() };
    Model::with_dictionary(settings, Inputs::identity(1), &hyperparameters, dictionary)
}

fn learn(model: &mut Model, rows: &Rows, piece: usize) {
    for start in (0..rows.len()).step_by(piece) {
        model.learn(rows, start..rows.len().min(start + piece), start as u64);
    }
}

fn verdicts(model: &Model) -> Vec<Option<HeadVerdict>> {
    let bank = model.heads().unwrap();
    (0..bank.heads().len()).map(|h| bank.verdict(h)).collect()
}

#[test]
fn verified_deviations_hold_what_they_promise() {
    // The noise of a return at discount 0.5 has the variance 1.33 and 0.0133.
    let half = Rate::Discount(0.5);
    let heads = vec![head("too narrow", 0, half, 0.25), head("right", 0, half, 1.4), head("too wide", 1, half, 1.0)];
    let rows = walk(12_000, 97, false);
    let mut model = model(heads);
    learn(&mut model, &rows, 500);
    let [narrow, right, wide] = verdicts(&model)[..] else { panic!() };
    let (narrow, right, wide) = (narrow.unwrap(), right.unwrap(), wide.unwrap());
    assert_eq!(narrow.pairs, 256);
    assert!(narrow.coverage < 0.7 && (1.8..2.9).contains(&narrow.factor), "{narrow:?}");
    assert!((right.coverage - 0.9).abs() < 0.06 && (right.factor - 1.0).abs() < 0.1, "{right:?}");
    assert!(wide.coverage == 1.0 && (0.25..0.5).contains(&wide.factor), "{wide:?}");
    assert!(right.bias.abs() < 0.3 && (0.5..1.1).contains(&right.unexplained.unwrap()), "{right:?}");
    assert!(wide.unexplained.unwrap() < 0.5, "{wide:?}");
    // So do the returns of another run: nine in ten of them lie in the interval of the snapshot.
    let (later, snapshot) = (walk(13_000, 13_000, false), model.snapshot(true).unwrap());
    let found = snapshot.evaluate_heads(&later.states[12_000..12_900], &[0, 1, 2], true).unwrap();
    let heads = snapshot.heads.as_ref().unwrap();
    assert_eq!(heads.verified, [narrow, right, wide].map(Verified::from));
    let alone = snapshot.head_alone(0, false).returns.unwrap();
    assert_eq!((alone.factor, alone.pairs, alone.coverage), (narrow.factor, 256, Some(narrow.coverage)));
    for (h, column) in [(0, 0), (1, 0), (2, 1)] {
        let inside = (12_000..12_900).filter(|&i| {
            let y: f64 = (0..60).map(|k| 0.5f64.powi(k) * later.reward(i + k as usize)[column]).sum();
            let (mean, variance) = (found.mean[(i - 12_000, h)], found.variance.as_ref().unwrap()[(i - 12_000, h)]);
            (y - mean).abs() <= 1.645 * heads.return_variance(h, variance).sqrt()
        });
        let share = inside.count() as f64 / 900.0;
        assert!((0.84..0.96).contains(&share), "{}: {share}", heads.heads[h].name);
    }
}

#[test]
fn returns_that_cuts_close_verify_nothing() {
    // A return at discount 0.9 takes 44 rows, one over a second 46.
    let heads = || {
        vec![
            head("row", 0, Rate::Discount(0.9), 1.0),
            head("time", 0, Rate::Timescale(1.0), 1.0),
            head("now", 0, Rate::Discount(0.0), 1.0),
        ]
    };
    for (chain, ends, verified) in [(40, false, false), (40, true, true), (97, false, true)] {
        let mut model = model(heads());
        learn(&mut model, &walk(9_000, chain, ends), 500);
        let found = verdicts(&model);
        assert_eq!([found[0].is_some(), found[1].is_some(), found[2].is_some()], [verified, verified, true]);
        let published = model.snapshot(false).unwrap().heads.unwrap().verified;
        assert_eq!(
            published,
            found.iter().map(|of| of.map_or_else(Verified::default, Verified::from)).collect::<Vec<_>>()
        );
    }
}

#[test]
fn batches_and_a_restart_change_nothing() {
    let heads = vec![head("near", 0, Rate::Discount(0.5), 0.5), head("far", 1, Rate::Timescale(0.3), 0.5)];
    let rows = walk(4000, 97, false);
    let (mut one, mut other) = (model(heads.clone()), model(heads));
    learn(&mut one, &rows, 4000);
    for start in (0..rows.len()).step_by(7) {
        other.learn(&rows, start..rows.len().min(start + 7), start as u64);
        if start == 7 * 300 {
            other = rmp_serde::from_slice(&rmp_serde::to_vec_named(&other).unwrap()).unwrap();
            assert!(other.is_consistent());
        }
    }
    let (found, same) = (verdicts(&one), verdicts(&other));
    assert!(found.iter().all(Option::is_some), "{found:?}");
    for (a, b) in found.iter().flatten().zip(same.iter().flatten()) {
        assert_eq!((a.pairs, a.coverage, a.factor), (b.pairs, b.coverage, b.factor));
        assert!((a.bias - b.bias).abs() < 1e-6, "{a:?} {b:?}");
    }
}
