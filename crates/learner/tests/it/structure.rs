//! Model selection finds the structure that the values have.

use criticd_learner::math::kernel::Metric;
use criticd_learner::math::sensitivity::total_indices;
use criticd_learner::refit::Verdict;
use criticd_learner::snapshot::Ask;
use criticd_learner::transition::{Batch, BatchParts};
use criticd_learner::window::Window;
use criticd_learner::{KernelKind, Learner, Settings, refit};
use criticd_sim::gridworld::Gridworld;
use criticd_sim::{self as sim, Step};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn select(kernel: KernelKind, window: &Window, settings: Settings) -> refit::Candidate {
    let settings = Settings { kernel, refit_first_rows: 0, ..settings };
    let mut learner = Learner::new(settings, None);
    learner.step(window);
    learner.request_refit();
    let job = learner.refit_job(window, learner.refit_due().unwrap()).unwrap();
    refit::run(&job, &|| true).unwrap()
}

/// Rows that each end at once, so that the value of a state is `value` of it, with a little noise.
fn values(dim: usize, rows: usize, seed: u64, value: impl Fn(&[f64]) -> f64) -> Window {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut window = Window::new(dim, 1, rows);
    for _ in 0..rows {
        let state: Vec<f64> = (0..dim).map(|_| 2.0 * rng.random::<f64>() - 1.0).collect();
        let reward = value(&state) + 0.05 * (rng.random::<f64>() - 0.5);
        let batch = Batch::new(BatchParts {
            stream: "points".into(),
            dim,
            rewards_per_row: 1,
            next_states: Some(state.clone()),
            states: state,
            rewards: vec![reward],
            terminated: Some(vec![true]),
            ..BatchParts::default()
        });
        window.push(0, true, &batch.unwrap(), 0);
    }
    window
}

#[test]
fn the_coordinate_that_does_not_matter_is_removed() {
    let mut world = Gridworld::new(3);
    let steps: Vec<Step> = (0..600).map(|_| world.step()).collect();
    let mut window = Window::new(2, 1, 600);
    let mut starts = true;
    for batch in sim::batches("grid", "", &steps) {
        for i in 0..batch.len() {
            window.push(0, starts, &batch, i);
            starts = batch.terminated(i);
        }
    }
    let settings = Settings { discount: 1.0, evidence_rows: 400, ..Settings::paper() };
    let found = select(KernelKind::Auto, &window, settings);
    let Metric::Ard(relevance) = found.model.hyperparameters().kernel.metric else { panic!("{:?}", found.report) };
    assert_eq!(relevance[1], 0.0, "{:?}", found.report.structures);
    assert!(relevance[0] > 0.1);
    let names: Vec<&str> = found.report.structures.iter().map(|s| s.name.as_str()).collect();
    assert_eq!(names[..3], ["isotropic", "ard", "ard without 1"]);
    let evidence = |k: usize| found.report.structures[k].log_evidence;
    assert!(evidence(0) < evidence(1) - 50.0 && evidence(1) <= evidence(2) + 0.1);
    let variables = &found.report.variables;
    assert_eq!((variables[0].verdict, variables[1].verdict), (Verdict::Kept, Verdict::Removed), "{variables:?}");
    assert!(variables[0].evidence_drop > Some(100.0) && variables[1].lengthscale.is_none(), "{variables:?}");
}

#[test]
fn a_diagonal_direction_is_found() {
    // The value varies along the diagonal alone.
    let window = values(2, 500, 5, |x| (4.0 * (x[0] + x[1])).sin());
    let settings = Settings { evidence_rows: 400, ..Settings::paper() };
    let found = select(KernelKind::Auto, &window, settings.clone());
    let Metric::Factor { relevance, factors } = found.model.hyperparameters().kernel.metric else {
        panic!("{:?}", found.report.structures)
    };
    let (f, length) = (&factors[0], factors[0].iter().map(|v| v * v).sum::<f64>());
    assert!((f[0] / f[1] - 1.0).abs() < 0.1, "{f:?}");
    assert!(relevance.iter().all(|a| *a < 0.1 * length), "{relevance:?} beside {f:?}");
    let asked = select(KernelKind::Factor(Some(1)), &window, settings);
    assert_eq!(asked.model.hyperparameters().kernel.metric.factors().len(), 1);
}

#[test]
fn where_directions_alike_matter_the_simplest_structure_stands() {
    let window = values(2, 400, 6, |x| (-3.0 * (x[0] * x[0] + x[1] * x[1])).exp());
    let found = select(KernelKind::Auto, &window, Settings { evidence_rows: 300, ..Settings::paper() });
    let names: Vec<_> = found.report.structures.iter().map(|s| (&s.name, s.log_evidence)).collect();
    assert_eq!(found.model.hyperparameters().kernel.metric.kind(), "isotropic", "{names:?}");
}

#[test]
fn rows_make_values_known_where_they_are_and_nowhere_far_away() {
    let window = values(2, 600, 7, |x| (3.0 * x[0]).sin() + x[1] * x[1]);
    for kernel in [KernelKind::Isotropic, KernelKind::Ard] {
        let found = select(kernel, &window, Settings { discount: 0.5, ..Settings::default() });
        let snapshot = found.model.snapshot(true).unwrap();
        let known = |states: &[f64]| snapshot.evaluate(states, Ask::ALL).unwrap().known.expect("a variance");
        let mut near = known(&window.flatten().states);
        near.sort_unstable_by(f64::total_cmp);
        assert!(near[300] > 0.9, "{kernel:?}: {}", near[300]);
        let far = known(&[50.0, 0.0, 0.0, -50.0, 1e3, 1e3, -1e6, 1e6]);
        assert!(far.iter().all(|known| *known < 0.05), "{kernel:?}: {far:?}");
    }
}

/// Share of the variance of the value that depends on y, which means nothing. The learner has the settings of `criticd demo`, and learns the
/// rows that four copies send to it in half a minute.
fn share_of_nothing(seed: u64) -> f64 {
    const COPIES: u64 = 4;
    const ROWS: usize = 12_000;
    let settings = Settings {
        discount: 1.0,
        dictionary_max: 250,
        refit_first_rows: 1000,
        refit_growth: 1.5,
        evidence_rows: 600,
        refit_budget_s: 0.7,
        ..Settings::default()
    };
    let (mut learner, mut window) = (Learner::new(settings, None), Window::new(2, 1, ROWS));
    let mut worlds: Vec<Gridworld> = (0..COPIES).map(|copy| Gridworld::new(COPIES * seed + copy)).collect();
    let mut starts = [true; COPIES as usize];
    while window.end() < ROWS as u64 {
        for (stream, (world, starts)) in worlds.iter_mut().zip(&mut starts).enumerate() {
            let steps: Vec<Step> = (0..25).map(|_| world.step()).collect();
            for batch in sim::batches("grid", "", &steps) {
                for i in 0..batch.len() {
                    window.push(stream as u32, *starts, &batch, i);
                    *starts = batch.terminated(i);
                }
            }
        }
        learner.step(&window);
        if let Some(trigger) = learner.refit_due() {
            let candidate = refit::run(&learner.refit_job(&window, trigger).unwrap(), &|| true).unwrap();
            assert!(!matches!(learner.try_adopt(candidate, &window), criticd_learner::Verdict::Behind(_)));
        }
    }
    assert!(learner.generation() > 1, "seed {seed}: nothing was selected");
    let snapshot = learner.snapshot(false).unwrap();
    let cells: Vec<f64> = (1..=11).flat_map(|x| (1..=11).flat_map(move |y| [f64::from(x), f64::from(y)])).collect();
    let mut value =
        |states: &[f64]| snapshot.evaluate(states, Ask::MEAN).unwrap().mean.column(0).iter().copied().collect();
    total_indices(&cells, 2, (2000, 0.0), &mut value)[1]
}

#[test]
fn the_value_of_the_demos_gridworld_does_not_hang_on_y() {
    let share = share_of_nothing(0);
    assert!(share < 0.01, "{share}");
}

#[test]
fn nor_do_the_values_of_twenty_gridworlds() {
    let shares: Vec<f64> = (0..20).map(share_of_nothing).collect();
    assert!(shares.iter().all(|share| *share < 0.01), "{shares:?}");
}
