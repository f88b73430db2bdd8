//! Action values: rows wait for the action that follows them, policies that agree have one value, and improvement finds what is
//! best.

use criticd_learner::action::{ActionColumns, ActionSpace, ActionValue, Column, Successor, Trace};
use criticd_learner::batch::Given;
use criticd_learner::improve::{Improved, Improvement};
use criticd_learner::math::dictionary::Dictionary;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::model::Model;
use criticd_learner::snapshot::{Ask, Evaluator, Inputs};
use criticd_learner::transition::Rows;
use criticd_learner::{Lambda, Settings, VarianceKind};
use criticd_reference::push;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// States on a corridor of 0 to 1, left and right; to the right of it there is a reward and an end.
const STEPS: usize = 6;

/// Rows (stream, state, action, reward, next state, terminated, truncated) as tables of rows and columns.
fn table(steps: &[(u32, f64, f64, f64, f64, bool, bool)]) -> (Rows, ActionColumns) {
    let (mut rows, mut columns) = (Rows::new(1, 1), ActionColumns::default());
    columns.actions.width = 1;
    for &(stream, state, action, reward, next, terminated, truncated) in steps {
        let begins =
            rows.streams.iter().rposition(|&s| s == stream).is_none_or(|i| rows.terminated[i] || rows.truncated[i]);
        push(&mut rows, stream, begins, &[state], &[reward], &[next], terminated, truncated);
        columns.actions.values.push(action);
    }
    (rows, columns)
}

/// Episodes in the corridor that act at random.
fn corridor(episodes: usize, seed: u64) -> (Rows, ActionColumns) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut steps = Vec::new();
    for _ in 0..episodes {
        let mut at = rng.random_range(0..STEPS);
        loop {
            let right = rng.random_range(0..2) == 1;
            let to = if right { at + 1 } else { at.saturating_sub(1) };
            let ends = to == STEPS;
            let state = |k: usize| k as f64 / STEPS as f64;
            steps.push((
                0,
                state(at),
                f64::from(u8::from(right)),
                if ends { 1.0 } else { -0.1 },
                state(to),
                ends,
                false,
            ));
            at = to;
            if ends {
                break;
            }
        }
    }
    table(&steps)
}

fn discrete(successor: Successor, trace: Trace) -> ActionValue {
    ActionValue { space: ActionSpace::Discrete(2), successor, trace }
}

fn settings(of: &ActionValue, lambda: f64) -> Settings {
    Settings {
        action_value: Some(of.clone()),
        discount: 0.9,
        lambda: Lambda::Fixed(lambda),
        estimate_scale: false,
        variance: VarianceKind::Rows,
        ..Settings::default()
    }
}

/// Inputs (n, 3) of every state of the corridor with both actions.
fn everywhere() -> Vec<f64> {
    (0..STEPS).flat_map(|k| [[1.0, 0.0], [0.0, 1.0]].map(|a| [k as f64 / STEPS as f64, a[0], a[1]])).flatten().collect()
}

fn hyperparameters() -> Hyperparameters {
    let kernel = Kernel::gaussian(4.0, 1.0, Metric::Ard(vec![200.0, 1.0, 1.0]));
    Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 1e-4 }
}

fn learned(of: &ActionValue, rows: &Rows, lambda: f64) -> Model {
    let mut model = model(&settings(of, lambda), &hyperparameters(), rows, lambda);
    model.revisit(std::iter::once((rows, 0..rows.len(), 0)));
    model
}

/// With every state and action as an element.
fn model(settings: &Settings, hyperparameters: &Hyperparameters, rows: &Rows, lambda: f64) -> Model {
    let inputs = Inputs::identity(3);
    let dictionary = Dictionary::from_elements(hyperparameters.kernel.clone(), 3, &everywhere()).unwrap();
    let given = Given { settings, rows, inputs: &inputs, hyperparameters, lambda, first: 0 };
    given.model(dictionary, &|| true).unwrap()
}

fn values(model: &Model) -> (Vec<f64>, Vec<f64>) {
    let found = model.snapshot(true).unwrap().evaluate(&everywhere(), Ask::VARIANCE).unwrap();
    (found.mean.as_slice().to_vec(), found.variance.unwrap())
}

fn apart(a: &[f64], b: &[f64]) -> f64 {
    let scale = b.iter().fold(1e-300f64, |most, v| most.max(v.abs()));
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max) / scale
}

#[test]
fn a_policy_that_agrees_with_the_one_that_acted_has_its_value() {
    let (rows, mut columns) = corridor(60, 1);
    let acted = columns.actions.values.clone();
    // What terminates needs no next action: the table leaves those empty.
    let next = (0..rows.len()).map(|i| if rows.terminated[i] { f64::NAN } else { acted[i + 1] });
    columns.next_actions = Column { width: 1, values: next.clone().collect() };
    let certain = next.map(|a| {
        if a.is_nan() {
            [f64::NAN; 2]
        } else if a == 0.0 {
            [1.0, 0.0]
        } else {
            [0.0, 1.0]
        }
    });
    columns.next_action_probs = Column { width: 2, values: certain.flatten().collect() };
    for lambda in [0.0, 0.7, 1.0] {
        let value = |successor| {
            let of = discrete(successor, Trace::OnPolicy);
            let found = of.rows(&rows, &columns, None).unwrap();
            assert_eq!(found.kept.len(), rows.len(), "all episodes terminate: nothing waits");
            values(&learned(&of, &found.rows, lambda))
        };
        let (mean, variance) = value(Successor::Sarsa);
        for successor in [Successor::NextAction, Successor::Expected] {
            let other = value(successor);
            assert!(apart(&other.0, &mean) < 1e-9, "lambda {lambda} {successor:?}: {}", apart(&other.0, &mean));
            assert!(apart(&other.1, &variance) < 1e-9, "lambda {lambda} {successor:?}: {}", apart(&other.1, &variance));
        }
    }
}

#[test]
fn a_row_that_nothing_names_the_next_action_for_closes_its_chain() {
    let steps = [
        (0, 0.0, 1.0, 1.0, 0.1, false, false),
        (1, 0.5, 0.0, 2.0, 0.4, false, true), // alone in its chain: lost
        (0, 0.1, 0.0, 3.0, 0.2, false, true), // the last of its chain: lost, and the one before it is cut
        (0, 0.9, 1.0, 4.0, 1.0, true, false), // terminated: learned at once
        (1, 0.6, 1.0, 5.0, 0.7, false, false),
        (1, 0.7, 0.0, 6.0, 0.8, false, false), // still running: waits
    ];
    let (rows, mut columns) = table(&steps);
    let of = discrete(Successor::Sarsa, Trace::OnPolicy);
    let found = of.rows(&rows, &columns, Some(1.0)).unwrap();
    assert_eq!(found.kept, [0, 3, 4]);
    assert_eq!(found.rows.next_states[..3], [0.1, 1.0, 0.0], "the lost row's own input");
    assert_eq!(
        (&found.rows.truncated[..], &found.rows.terminated[..]),
        (&[true, false, false][..], &[false, true, false][..])
    );
    assert_eq!(found.rows.starts_chain, [true, true, true]);
    // A row that says what follows it waits for nothing.
    columns.next_actions = Column { width: 1, values: vec![f64::NAN, 1.0, 0.0, f64::NAN, f64::NAN, 1.0] };
    assert_eq!(of.rows(&rows, &columns, Some(1.0)).unwrap().kept.len(), 6);
}

#[test]
fn actions_that_are_none_are_refused_by_row_and_column() {
    let (rows, mut columns) = table(&[(0, 0.0, 1.0, 1.0, 0.1, false, false), (0, 0.1, 0.0, 1.0, 0.2, true, false)]);
    let said = |columns: &ActionColumns, of: &ActionValue| of.rows(&rows, columns, Some(1.0)).unwrap_err().to_string();
    let of = discrete(Successor::Sarsa, Trace::OnPolicy);
    columns.actions.values[1] = 2.0;
    assert_eq!(said(&columns, &of), "transition 1, action: a discrete action is a whole number from 0 to 1, not 2");
    columns.actions.values[1] = f64::NAN;
    assert_eq!(said(&columns, &of), "transition 2, action: missing: an action value needs it");
    columns.actions.values[1] = 0.0;
    columns.next_action_probs = Column { width: 3, values: vec![0.5, 0.25, 0.25, 0.0, 0.0, 1.0] };
    let expected = discrete(Successor::Expected, Trace::Retrace);
    assert_eq!(said(&columns, &expected), "transition 1, next_action_probs: has 3 numbers for 2 actions");
}

#[test]
fn traces_take_what_the_two_policies_say() {
    let factor = |trace: Trace| [(0.5, 0.25), (0.25, 0.5)].map(|(b, t)| trace.factor(Some(b), Some(t), Some(1.5)));
    assert_eq!(factor(Trace::OnPolicy), [1.0, 1.0]);
    assert_eq!(factor(Trace::Retrace), [0.5, 1.0]);
    assert_eq!(factor(Trace::Importance), [0.5, 1.5]);
    assert_eq!(factor(Trace::Tree), [0.25, 0.5]);
    assert_eq!(Trace::Importance.factor(None, Some(0.5), Some(1.5)), 1.0, "a ratio needs both");
    assert_eq!(Trace::Retrace.factor(None, None, Some(0.5)), 1.0, "and is not clipped without");
}

#[test]
fn an_action_of_a_box_lies_within_its_bounds() {
    let space = ActionSpace::Box { low: vec![-1.0, 0.0], high: vec![1.0, 2.0] };
    assert_eq!((space.check(&[1.0, 0.0]), space.check(&[0.5, 2.0])), (Ok(()), Ok(())));
    assert_eq!(space.check(&[0.0, 2.5]).unwrap_err(), "number 1 of an action lies between 0 and 2, not at 2.5");
    assert!(space.check(&[f64::NAN, 1.0]).is_err() && ActionSpace::Discrete(2).check(&[2.0]).is_err());
}

/// Baird's star: six states lead to one another or, by the action that is judged, to the seventh. Each row pays 1.
fn star(count: usize, seed: u64) -> Rows {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut rows = Rows::new(1, 1);
    let mut at = 0;
    for i in 0..count {
        let solid = rng.random_range(0..7) == 6;
        let to = if solid { 6 } else { rng.random_range(0..6) };
        rows.states.push(f64::from(at));
        rows.next_states.push(f64::from(to));
        rows.rewards.push(1.0);
        rows.discounts.push(f64::NAN);
        rows.ratios.push(if solid { 7.0 } else { 0.0 });
        rows.streams.push(0);
        rows.terminated.push(false);
        rows.truncated.push(false);
        rows.starts_chain.push(i == 0);
        at = to;
    }
    rows
}

#[test]
fn bairds_star_stays_bounded_and_is_learned() {
    let mut errors = Vec::new();
    for seed in 0..20 {
        let rows = star(300, seed);
        let settings =
            Settings { discount: 0.99, lambda: Lambda::Fixed(0.0), estimate_scale: false, ..Settings::default() };
        let kernel = Kernel::gaussian(1e4, 1e4, Metric::Ard(vec![50.0]));
        let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 1e-2 };
        let mut model = Model::new(settings, Inputs::identity(1), &hyperparameters);
        let states: Vec<f64> = (0..7).map(f64::from).collect();
        for from in (0..300).step_by(20) {
            model.learn(&rows, from..from + 20, from as u64);
            let found = model.snapshot(false).unwrap().evaluate(&states, Ask::MEAN).unwrap();
            let largest = found.mean.amax();
            assert!(largest <= 100.5, "seed {seed}, {} rows: {largest}", from + 20);
        }
        let found = model.snapshot(false).unwrap().evaluate(&states, Ask::MEAN).unwrap();
        errors.push(found.mean.iter().map(|v| (v - 100.0).abs()).fold(0.0, f64::max));
    }
    errors.sort_by(f64::total_cmp);
    assert!(errors[10] < 0.01, "median {}, worst {}", errors[10], errors[19]);
}

fn improved(rows: &Rows, copies: usize) -> (Model, Improved) {
    let of = discrete(Successor::Improve, Trace::OnPolicy);
    let model = learned(&of, rows, 0.0);
    let improvement = Improvement { model: &model, rows, space: &of.space, before: None, copies, seed: 5 };
    let found = improvement.run(&|| true).unwrap();
    (model, found)
}

#[test]
fn improvement_finds_the_values_of_the_best_policy() {
    let (rows, columns) = corridor(80, 2);
    let of = discrete(Successor::Improve, Trace::OnPolicy);
    let rows = of.rows(&rows, &columns, Some(1.0)).unwrap().rows;
    let (model, found) = improved(&rows, 2);
    assert!(found.settled(), "{} sweeps, change {}", found.sweeps, found.change);
    let mut snapshot = model.snapshot(false).unwrap();
    found.act_by(&mut snapshot);
    let q = snapshot.evaluate(&everywhere(), Ask::MEAN).unwrap().mean;
    // From step k the end is STEPS - k steps to the right; left costs the way back as well.
    let best = |steps: i32| (0..steps - 1).map(|t| -0.1 * 0.9f64.powi(t)).sum::<f64>() + 0.9f64.powi(steps - 1);
    for k in 0..STEPS {
        let right = best((STEPS - k) as i32);
        let left = -0.1 + 0.9 * best((STEPS - k.saturating_sub(1)) as i32);
        assert!((q[2 * k + 1] - right).abs() < 0.01 && (q[2 * k] - left).abs() < 0.01, "{k}: {q}");
        assert!(q[2 * k + 1] > q[2 * k]);
    }
    let preferred = (0..rows.len()).filter(|&i| !rows.terminated[i]).map(|i| &found.rows.next_state(i)[1..]);
    assert!(preferred.clone().count() > 50 && preferred.into_iter().all(|action| action == [0.0, 1.0]));
    assert_eq!(snapshot.actions.unwrap().copies.ncols(), 2);
}

#[test]
fn improvement_is_the_same_to_the_last_bit_when_it_is_done_again() {
    let (rows, columns) = corridor(40, 3);
    let of = discrete(Successor::Improve, Trace::OnPolicy);
    let rows = of.rows(&rows, &columns, Some(1.0)).unwrap().rows;
    let (_, once) = improved(&rows, 3);
    let (_, again) = improved(&rows, 3);
    assert_eq!(once.acting.weights(), again.acting.weights());
    assert_eq!(once.rows.next_states, again.rows.next_states);
    let columns: Vec<&[f64]> = (0..4).map(|h| once.acting.weights().col(h)).collect();
    assert!(columns[1..].iter().all(|copy| *copy != columns[0]) && columns[1] != columns[2]);
}

/// Values of the copies of an improvement (n, copies) at every state with both actions.
fn values_of_copies(model: &Model, found: &Improved) -> Vec<f64> {
    let mut snapshot = model.snapshot(false).unwrap();
    found.act_by(&mut snapshot);
    snapshot.weights = snapshot.actions.as_ref().unwrap().copies.clone();
    snapshot.evaluate(&everywhere(), Ask::MEAN).unwrap().mean.as_slice().to_vec()
}

/// Returns of policies that went everywhere have much noise, and what Q leaves of its own targets is little.
#[test]
fn copies_agree_on_what_rows_have_shown_though_returns_were_noisy() {
    let (rows, columns) = corridor(40, 3);
    let of = discrete(Successor::Improve, Trace::OnPolicy);
    let rows = of.rows(&rows, &columns, Some(1.0)).unwrap().rows;
    let settings = settings(&of, 0.0);
    let kernel = Kernel::gaussian(4e6, 1e6, Metric::Ard(vec![200.0, 1.0, 1.0]));
    let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 100.0 };
    let model = model(&settings, &hyperparameters, &rows, 0.0);
    let improvement = Improvement { model: &model, rows: &rows, space: &of.space, before: None, copies: 8, seed: 5 };
    let found = improvement.run(&|| true).unwrap();
    let values = values_of_copies(&model, &found);
    let copies: Vec<&[f64]> = values.chunks_exact(2 * STEPS).collect();
    assert!(copies.len() == 8 && copies[0] != copies[1]);
    for (copy, q) in copies.iter().enumerate() {
        assert!((0..STEPS).all(|k| q[2 * k + 1] > q[2 * k]), "copy {copy} prefers to go back: {q:?}");
    }
}

#[test]
fn copies_go_on_from_where_they_were() {
    let (rows, columns) = corridor(40, 3);
    let of = discrete(Successor::Improve, Trace::OnPolicy);
    let rows = of.rows(&rows, &columns, Some(1.0)).unwrap().rows;
    // So much noise that the copies differ, and rewards that reach over all of the corridor.
    let settings = Settings { discount: 0.98, ..settings(&of, 0.0) };
    let hyperparameters = Hyperparameters { noise_variance: 1.0, ..hyperparameters() };
    let model = model(&settings, &hyperparameters, &rows, 0.0);
    let improve = |before: Option<&Evaluator>| {
        let improvement = Improvement { model: &model, rows: &rows, space: &of.space, before, copies: 3, seed: 5 };
        improvement.run(&|| true).unwrap()
    };
    let cold = improve(None);
    assert!(cold.settled() && cold.sweeps > 10, "{} sweeps", cold.sweeps);
    let mut snapshot = model.snapshot(false).unwrap();
    cold.act_by(&mut snapshot);
    let before = Evaluator::new(snapshot.clone());
    let warm = improve(Some(&before));
    assert!(warm.settled() && warm.sweeps <= 2, "{} sweeps", warm.sweeps);
    let (first, again) = (values_of_copies(&model, &cold), values_of_copies(&model, &warm));
    assert!(apart(&again, &first) < 1e-2, "{}", apart(&again, &first));
    // Where there were none, all that their noise does travels as far as it would have from the start.
    snapshot.actions.as_mut().unwrap().copies = nalgebra::DMatrix::zeros(0, 0);
    let anew = improve(Some(&Evaluator::new(snapshot)));
    assert!(apart(&values_of_copies(&model, &anew), &first) < 1e-2, "{} sweeps", anew.sweeps);
    assert!(anew.sweeps > warm.sweeps);
}

#[test]
fn a_prior_mean_is_the_value_of_actions_without_rows_and_of_no_others() {
    const MEAN: f64 = 5.0;
    let of = discrete(Successor::Improve, Trace::OnPolicy);
    let kernel = Kernel::gaussian(4.0, 0.0, Metric::Ard(vec![2000.0, 50.0, 50.0]));
    let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 1e-5 };
    let q = |rows: &Rows, prior_mean: f64| -> Vec<f64> {
        let settings = Settings { prior_mean, ..settings(&of, 0.0) };
        let (mut rows, inputs) = (rows.clone(), Inputs::identity(3));
        settings.take_prior_mean(&mut rows);
        let (settings, rows) = (&settings, &rows);
        let given = Given { settings, rows, inputs: &inputs, hyperparameters: &hyperparameters, lambda: 0.0, first: 0 };
        let dictionary = Dictionary::from_elements(hyperparameters.kernel.clone(), 3, &everywhere()).unwrap();
        let model = given.model(dictionary, &|| true).unwrap();
        let improvement = Improvement { model: &model, rows, space: &of.space, before: None, copies: 0, seed: 5 };
        let mut snapshot = model.snapshot(false).unwrap();
        improvement.run(&|| true).unwrap().act_by(&mut snapshot);
        snapshot.actions.as_mut().unwrap().prior_mean = prior_mean;
        snapshot.evaluate(&everywhere(), Ask::MEAN).unwrap().mean.as_slice().to_vec()
    };
    let (rows, columns) = corridor(80, 2);
    let rows = of.rows(&rows, &columns, Some(1.0)).unwrap().rows;
    assert!(apart(&q(&rows, MEAN), &q(&rows, 0.0)) < 1e-2, "rows of every state and action leave nothing to the prior");
    let mut right = rows.without_rows();
    (0..rows.len()).filter(|&i| rows.state(i)[2] == 1.0).for_each(|i| right.extend(&rows, i..i + 1));
    right.starts_chain.fill(true);
    let found = q(&right, MEAN);
    for k in 0..STEPS {
        // Behind each step but the last there is left, of which nothing is known.
        let expected = if k + 1 == STEPS { 1.0 } else { -0.1 + 0.9 * MEAN };
        assert!((found[2 * k] - MEAN).abs() < 0.01, "left at {k}: {}", found[2 * k]);
        assert!((found[2 * k + 1] - expected).abs() < 0.01, "right at {k}: {}", found[2 * k + 1]);
    }
}
