//! Heads that not all rows count for: what is chosen for them, and for the others, does not take rows without a label for rows of zero.

use criticd_learner::DictionaryBy;
use criticd_learner::allowance::Allowance;
use criticd_learner::batch::Given;
use criticd_learner::heads::{Cumulant, Head, Rate};
use criticd_learner::labels::Labels;
use criticd_learner::math::dictionary::StoppingRule;
use criticd_learner::model::Model;
use criticd_learner::refit::head_kernel::{HeadSelection, select, targets};
use criticd_learner::refit::split::{Attempt, split};
use criticd_learner::transition::Rows;
use criticd_learner::window::Window;
use criticd_learner::{KernelKind, Settings};
use criticd_reference::wander;
use std::sync::Arc;

fn settings(heads: Vec<Head>) -> Settings {
    Settings {
        discount: 0.0,
        heads,
        kernel: KernelKind::Ard,
        evidence_rows: 200,
        search_starts: 1,
        dictionary_max: 60,
        ..Settings::default()
    }
}

/// Rows with the labels that `label` gives them, and the head of these under a discount.
fn labelled(rows: &Rows, discount: f64, label: impl Fn(usize) -> Option<f64>) -> (Rows, Head) {
    let (offsets, values): (Vec<u64>, Vec<f64>) =
        (0..rows.len()).filter_map(|i| label(i).map(|value| (i as u64, value))).unzip();
    let mut labels = Labels::default();
    labels.extend(&offsets, &values).unwrap();
    let cumulant = Cumulant::Label { name: "given".into(), id: labels.id() };
    let mut window = Window::new(2, rows.rewards_per_row, rows.len());
    window.extend(rows, 0..rows.len());
    window.set_labels(vec![Arc::new(labels)]);
    (window.flatten(), Head::new("labelled", cumulant, Rate::Discount(discount)))
}

fn choose(rows: &Rows, heads: Vec<Head>) -> HeadSelection {
    select(&settings(heads), rows, None, &|| true, &Allowance::unlimited()).unwrap()
}

/// A label in one row of five, of a fast wave in the second variable; the reward is slow.
fn wave(rows: &Rows, i: usize) -> Option<f64> {
    i.is_multiple_of(5).then(|| 5.0 + (4.0 * rows.state(i)[1]).sin())
}

#[test]
fn where_rewards_vary_a_head_that_few_rows_count_for_has_no_say() {
    let rows = wander(300, 2, 1, 3);
    let (rows, head) = labelled(&rows, 0.0, |i| wave(&rows, i));
    let (alone, beside) = (choose(&rows, Vec::new()), choose(&rows, vec![head]));
    assert_eq!(alone.hyperparameters, beside.hyperparameters);
    assert_eq!((alone.heads, beside.heads), (1, 1));
}

/// Labels and weights leave out the same rows: both choose by the others, where the wave has no noise.
#[test]
fn where_nothing_else_varies_the_rows_that_count_choose() {
    let mut rows = wander(300, 2, 3, 3);
    for i in 0..300 {
        let value = wave(&rows, i);
        rows.rewards[3 * i..][..3].copy_from_slice(&[1.0, value.unwrap_or(0.0), f64::from(u8::from(value.is_some()))]);
    }
    let weighted = Head { weight: Some(2), ..Head::new("weighted", Cumulant::Reward(1), Rate::Discount(0.0)) };
    let (rows, head) = labelled(&rows, 0.0, |i| wave(&rows, i));
    let [by_labels, by_weights] = [head, weighted].map(|head| choose(&rows, vec![head]));
    assert_eq!(by_labels.hyperparameters, by_weights.hyperparameters);
    assert_eq!((by_labels.heads, by_labels.rows), (1, 60));
    let found = &by_labels.hyperparameters;
    assert!(found.noise_variance < 1e-2 * found.kernel.diagonal(), "{found:?}");
    let relevance = found.kernel.metric.relevance(2);
    assert!(relevance[1] > 3.0 * relevance[0], "{relevance:?}");
}

/// Where labels end within a chain the return goes on with the value there; of rows without a label none is made up.
#[test]
fn returns_are_cut_where_labels_are_missing() {
    let rows = wander(200, 1, 1, 8);
    let (rows, head) = labelled(&rows, 0.8, |i| (i % 10 < 7).then_some(2.0 + rows.state(i)[0]));
    let settings = Settings { heads: vec![head.clone()], ..settings(Vec::new()) };
    let chosen = choose(&rows, Vec::new());
    let mut model = Model::new(settings, chosen.inputs, &chosen.hyperparameters);
    model.learn(&rows, 0..rows.len(), 0);
    model.refresh();
    let snapshot = model.snapshot(false).unwrap();
    let found = targets(&[head], &rows, &snapshot);
    let value = |state: &[f64]| snapshot.evaluate_heads(state, &[0], false).unwrap().mean[(0, 0)];
    let mut ends = 0;
    for i in
        (0..199).filter(|i| i % 10 == 6 && !rows.terminated[*i] && !rows.truncated[*i] && !rows.starts_chain[i + 1])
    {
        let expected = 2.0 + rows.state(i)[0] + 0.8 * value(rows.state(i + 1));
        assert!((found.at(i, 0) - expected).abs() < 1e-9, "row {i}: {} and not {expected}", found.at(i, 0));
        assert!((found.at(i + 1, 0) - value(rows.state(i + 1))).abs() < 1e-9);
        ends += 1;
    }
    assert!(ends > 10);
}

/// A head that few rows count for neither divides the others nor moves; numbers of the second group are those of all heads.
#[test]
fn heads_that_few_rows_count_for_stay_in_the_first_group() {
    let mut rows = wander(400, 2, 5, 5);
    rows.discounts.fill(f64::NAN);
    for i in 0..400 {
        let [x, y] = [rows.state(i)[0], rows.state(i)[1]];
        for k in 0..5 {
            let noise = rows.rewards[5 * i + k] - (2.0 * x + k as f64).sin() - y;
            let clean =
                if k >= 3 { (6.0 * x).sin() * (5.0 * y - k as f64).cos() } else { (x + 0.6 * y + k as f64).sin() };
            rows.rewards[5 * i + k] = clean + noise;
        }
    }
    let (rows, sparse) = labelled(&rows, 0.0, |i| i.is_multiple_of(7).then(|| (6.0 * rows.state(i)[0]).sin()));
    let plain = |k: usize| Head::new(format!("h{k}"), Cumulant::Reward(k), Rate::Discount(0.0));
    let divided = |heads: Vec<Head>| {
        let settings = Settings { kernel: KernelKind::Isotropic, ..settings(heads) };
        let shared = select(&settings, &rows, None, &|| true, &Allowance::unlimited()).unwrap();
        match split(&settings, &rows, &shared, &|| true, &Allowance::unlimited()).unwrap() {
            Attempt::Split(found) => (found.second, found.gain),
            Attempt::Together(gain) => panic!("two kernels gain {gain} alone"),
        }
    };
    let (second, gain) = divided((1..5).map(plain).collect());
    assert_eq!(second, [2, 3]);
    let (beside, gain_beside) =
        divided(vec![plain(1), sparse.clone(), plain(2), plain(3), sparse_again(sparse), plain(4)]);
    assert_eq!(beside, [3, 5]);
    assert_eq!(gain, gain_beside);
}

fn sparse_again(of: Head) -> Head {
    Head { name: "again".into(), ..of }
}

/// Later returns that a rule is judged by are those of rows that count.
#[test]
fn rules_for_the_dictionary_are_judged_by_rows_that_count() {
    let mut rows = wander(400, 2, 3, 4);
    for i in 0..400 {
        let counts = i % 2 == 0;
        let value = if counts { rows.state(i)[0].sin() } else { 1000.0 };
        rows.rewards[3 * i + 1..][..2].copy_from_slice(&[value, f64::from(u8::from(counts))]);
    }
    let head = Head { weight: Some(2), ..Head::new("weighted", Cumulant::Reward(1), Rate::Discount(0.0)) };
    let (rows, labelled) = labelled(&rows, 0.5, |i| (i % 20 < 15).then(|| rows.state(i)[1]));
    let chosen = choose(&rows, Vec::new());
    let settings = settings(vec![head, labelled]);
    let HeadSelection { inputs, hyperparameters, .. } = &chosen;
    let given = Given { settings: &settings, rows: &rows, inputs, hyperparameters, lambda: 1.0, first: 0 };
    let enough = StoppingRule { tolerance: 1e-6, trace: 0.0 };
    for of in given.compare(&[DictionaryBy::Icd, DictionaryBy::Returns], enough, 40, &|| true).unwrap() {
        assert!(of.error.unwrap() < 0.3, "{of:?}");
    }
}
