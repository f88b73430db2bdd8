//! A learner fed with whatever a stream may hold stays consistent: any settings, any rows, refits at any moment.

use criticd_learner::allowance::Allowance;
use criticd_learner::math::kernel::NoiseModel;
use criticd_learner::refit::{self, Candidate, RefitJob, RefitTrigger};
use criticd_learner::snapshot::{Ask, Snapshot};
use criticd_learner::transition::{Batch, BatchParts, Rows};
use criticd_learner::window::Window;
use criticd_learner::{KernelKind, Learner, LinearColumns, OnNewPolicy, Rejection, Settings, VarianceKind, Verdict};
use criticd_reference::{explicit_seed, push, wander};
use proptest::prelude::*;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

fn any_settings() -> impl Strategy<Value = Settings> {
    let kinds = (
        prop_oneof![Just(NoiseModel::Correlated), Just(NoiseModel::White)],
        prop_oneof![Just(VarianceKind::Model), Just(VarianceKind::Clustered)],
        prop_oneof![Just(KernelKind::Ard), Just(KernelKind::Isotropic)],
        prop::sample::select(vec![vec![0], vec![1], vec![1, 0]]),
        any::<bool>(),
    );
    let sizes = (
        prop::sample::select(vec![1usize, 2, 5, 40]),
        prop::sample::select(vec![0usize, 3, 64, 1024]),
        prop::sample::select(vec![1usize, 7, 64, 256]),
        prop::sample::select(vec![2usize, 3, 32]),
    );
    let numbers = (prop::sample::select(vec![0.0, 0.5, 0.95, 1.0]), prop::sample::select(vec![1e-9, 1e-3, 0.3]));
    (kinds, sizes, numbers).prop_map(|(kinds, sizes, (discount, tolerance))| Settings {
        discount,
        tolerance,
        noise: kinds.0,
        variance: kinds.1,
        kernel: kinds.2,
        rewards: kinds.3,
        estimate_scale: kinds.4,
        dictionary_max: sizes.0,
        backfill_rows: sizes.1,
        refresh_rows: sizes.2,
        warmup_rows: sizes.3,
        refit_first_rows: 100,
        evidence_rows: 30,
        search_starts: 1,
        // The variance that is checked below is of the dictionary alone.
        linear_columns: LinearColumns::Never,
        ..Settings::default()
    })
}

/// What a stream is made of.
#[derive(Clone, Debug)]
struct Weather {
    dim: usize,
    streams: u32,
    /// States lie on a grid with so many cells to a side; 0 for a continuum.
    cells: u32,
    reward_scale: f64,
    /// Rows before there is any reward.
    silent: usize,
    gap: f64,
    end: f64,
    own_discount: f64,
    rows: usize,
}

fn any_weather() -> impl Strategy<Value = Weather> {
    let shape = (
        prop::sample::select(vec![1usize, 2, 50]),
        prop::sample::select(vec![1u32, 3, 400]),
        prop::sample::select(vec![0u32, 1, 3]),
        prop::sample::select(vec![100usize, 700]),
    );
    let scales = (prop::sample::select(vec![0.0, 1e-6, 1.0, 1e9]), prop::sample::select(vec![0usize, 50]));
    let rates = (
        prop::sample::select(vec![0.0, 0.1, 1.0]),
        prop::sample::select(vec![0.0, 0.05, 0.5]),
        prop::sample::select(vec![0.0, 0.3]),
    );
    (shape, scales, rates).prop_map(|(shape, scales, rates)| Weather {
        dim: shape.0,
        streams: shape.1,
        cells: shape.2,
        rows: shape.3,
        reward_scale: scales.0,
        silent: scales.1,
        gap: rates.0,
        end: rates.1,
        own_discount: rates.2,
    })
}

struct Source {
    weather: Weather,
    rng: ChaCha8Rng,
    at: Vec<Option<Vec<f64>>>,
    sent: usize,
}

impl Source {
    fn new(weather: Weather, seed: u64) -> Self {
        let at = vec![None; weather.streams as usize];
        Self { weather, rng: ChaCha8Rng::seed_from_u64(seed), at, sent: 0 }
    }

    fn state(&mut self, near: Option<&[f64]>) -> Vec<f64> {
        let (dim, cells) = (self.weather.dim, self.weather.cells);
        (0..dim)
            .map(|d| {
                let jump = self.rng.random::<f64>() - 0.5;
                let x = near.map_or(2.0 * jump, |near| (near[d] + 0.3 * jump).clamp(-1.0, 1.0));
                if cells == 0 { x } else { (x * f64::from(cells)).round() }
            })
            .collect()
    }

    fn row(&mut self, rows: &mut Rows) {
        let stream = self.rng.random_range(0..self.weather.streams);
        let gap = self.rng.random::<f64>() < self.weather.gap;
        let (starts, state) = match self.at[stream as usize].take() {
            Some(state) if !gap => (false, state),
            _ => (true, self.state(None)),
        };
        let next = self.state(Some(&state));
        let scale = if self.sent < self.weather.silent { 0.0 } else { self.weather.reward_scale };
        let reward = [scale * (state[0].sin() + self.rng.random::<f64>()), scale * self.rng.random::<f64>()];
        let (terminated, truncated) =
            (self.rng.random::<f64>() < self.weather.end, self.rng.random::<f64>() < self.weather.end);
        push(rows, stream, starts, &state, &reward, &next, terminated, truncated);
        if self.rng.random::<f64>() < self.weather.own_discount {
            *rows.discounts.last_mut().unwrap() = [0.0, 1.0, 0.7][self.rng.random_range(0..3)];
        }
        self.at[stream as usize] = (!(terminated || truncated)).then_some(next);
        self.sent += 1;
    }
}

/// V and the variance that the snapshot gives, rounding not yet hidden.
fn check(snapshot: &Snapshot, settings: &Settings, query: &[f64]) -> Result<(), TestCaseError> {
    let found = snapshot.evaluate(query, Ask::VARIANCE).unwrap();
    prop_assert!(found.mean.iter().all(|v| v.is_finite()), "mean {:?}", found.mean);
    prop_assert!(snapshot.log_evidence.is_none_or(f64::is_finite), "evidence {:?}", snapshot.log_evidence);
    prop_assert!(snapshot.score.is_none_or(f64::is_finite), "score {:?}", snapshot.score);
    prop_assert!(snapshot.dictionary.nrows() <= settings.dictionary_max);
    let kernel = &snapshot.hyperparameters.kernel;
    let (prior, dim) = (kernel.diagonal(), snapshot.dim());
    prop_assert!(prior > 0.0 && prior.is_finite() && snapshot.hyperparameters.noise_variance > 0.0);
    let Some(c) = &snapshot.variance else {
        let nothing = snapshot.weights.iter().all(|w| *w == 0.0);
        prop_assert!(nothing || snapshot.generation == 0, "no variance behind the first model, and yet values");
        return Ok(());
    };
    let basis = kernel.project(dim, snapshot.dictionary.transpose().as_slice());
    let width = kernel.projected_dim(dim);
    for x in snapshot.inputs.normalise(query).chunks_exact(dim) {
        let x = kernel.project(dim, x);
        let row = nalgebra::DVector::from_iterator(c.nrows(), basis.chunks_exact(width).map(|b| kernel.eval(b, &x)));
        let variance = prior - row.dot(&(c * &row));
        let slack = 1e-6 * prior;
        prop_assert!(variance.is_finite() && variance >= -slack, "variance {variance:e} of a prior {prior:e}");
        // Clustering may find more noise than the model grants.
        if settings.variance == VarianceKind::Model {
            prop_assert!(variance <= prior + slack, "variance {variance:e} of a prior {prior:e}");
        }
    }
    Ok(())
}

enum Work {
    Fit(Box<RefitJob>),
    Judge(Box<Candidate>),
}

fn run(settings: &Settings, weather: &Weather, seed: u64) -> Result<(), TestCaseError> {
    let mut source = Source::new(weather.clone(), seed);
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ 1);
    let mut window = Window::new(weather.dim, 2, 50);
    let mut learner = Learner::new(settings.clone(), None);
    let (mut generation, mut from, mut work) = (0, 0, None);
    let mut query = Vec::new();
    while window.end() < weather.rows as u64 {
        let mut rows = Rows::new(weather.dim, 2);
        for _ in 0..rng.random_range(1..60) {
            source.row(&mut rows);
        }
        if query.len() < 20 * weather.dim {
            query.extend_from_slice(&rows.states);
        }
        window.extend(&rows, 0..rows.len());
        learner.step(&window);
        prop_assert_eq!(learner.learned(), window.end());
        let has_begun = window.end() >= settings.warmup_rows as u64;
        prop_assert_eq!(learner.generation() > 0, has_begun);
        generation = generation.max(u64::from(has_begun));
        if rng.next_u32().is_multiple_of(5) && has_begun {
            learner.request_refit();
        }
        work = match work {
            None => learner.refit_due().map(|reason| match learner.refit_job(&window, reason) {
                Ok(job) => Work::Fit(Box::new(job)),
                Err(e) => panic!("no job: {e}"),
            }),
            Some(Work::Fit(job)) => match refit::run_within(&job, &|| true, &Allowance::of_products(100_000_000)) {
                Ok(candidate) => {
                    from = job.window.start();
                    Some(Work::Judge(Box::new(candidate)))
                }
                Err(_) => {
                    learner.refit_failed();
                    None
                }
            },
            Some(Work::Judge(candidate)) => match learner.try_adopt(*candidate, &window) {
                Verdict::Behind(mut candidate) => {
                    candidate.catch_up(&window, &|| true).unwrap();
                    Some(Work::Judge(Box::new(candidate)))
                }
                Verdict::Adopted { .. } => {
                    generation += 1;
                    None
                }
                Verdict::Rejected { .. } => None,
            },
        };
        prop_assert_eq!(learner.generation(), generation);
        if let Some(model) = learner.model().filter(|_| has_begun) {
            let start = if generation == 1 { 0 } else { from };
            if work.is_none() {
                prop_assert_eq!(model.statistics().rows, window.end() - start);
            }
        }
        match learner.snapshot(true) {
            Ok(snapshot) => {
                prop_assert_eq!((snapshot.offset, snapshot.provisional || has_begun), (window.end(), true));
                check(&snapshot, settings, &query)?;
            }
            Err(e) => prop_assert!(!has_begun, "no snapshot: {e}"),
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..explicit_seed() })]

    #[test]
    fn whatever_comes_the_learner_stays_consistent(
        (settings, weather, seed) in (any_settings(), any_weather(), 0..1000u64)
    ) {
        run(&settings, &weather, seed)?;
    }
}

#[test]
fn the_first_row_is_answered_and_what_is_not_known_of_it_is_not_stated() {
    for discount in [0.0, 0.9] {
        let settings = Settings { discount, ..Settings::default() };
        let rewards = |i: usize| if i < 2 { 3.0 } else { 3.0 + ((i + 1) % 2) as f64 };
        let (_, rows) = episodes(40, rewards);
        let (mut window, mut learner) = (Window::new(1, 1, 100), Learner::new(settings.clone(), None));
        assert!(learner.snapshot(true).is_err(), "nothing is known before the first row");
        for i in 0..40 {
            window.extend(&rows, i..i + 1);
            learner.step(&window);
            let answer = learner.snapshot(true).unwrap();
            let value = answer.evaluate(&[0.2], Ask::MEAN).unwrap().mean[(0, 0)];
            assert!(answer.provisional && answer.generation == u64::from(i >= 31) && answer.offset == i as u64 + 1);
            // Rewards that are all alike say nothing of the scale.
            assert_eq!(answer.variance.is_some(), i >= 2, "row {i}");
            // From the last row of an episode there is one reward to come, and at most all of 4.
            let (least, most) = (3.0, 4.0 / (1.0 - discount));
            assert!(value > 0.5 * least && value < 1.5 * most, "discount {discount}, row {i}: {value}");
            // However rows were batched, and over a restart.
            let mut at_once = Learner::new(settings.clone(), None);
            at_once.step(&window);
            assert!(i >= 31 || at_once.snapshot(true).unwrap() == answer);
            learner = rmp_serde::from_slice(&rmp_serde::to_vec_named(&learner).unwrap()).unwrap();
            assert!(learner.is_consistent() && learner.snapshot(true).unwrap() == answer);
        }
    }
}

/// A window with `count` rows of one stream in the unit interval, in episodes of ten rows.
fn episodes(count: usize, reward: impl Fn(usize) -> f64) -> (Window, Rows) {
    let mut rows = Rows::new(1, 1);
    for i in 0..count {
        let at = |i: usize| [(i as f64 * 0.37).sin()];
        push(&mut rows, 0, i % 10 == 0, &at(i), &[reward(i)], &at(i + 1), i % 10 == 9, false);
    }
    let mut window = Window::new(1, 1, 10_000);
    window.extend(&rows, 0..count);
    (window, rows)
}

#[test]
fn rewards_that_come_after_the_warm_up_set_the_scale() {
    // Nothing is paid while the first model is made, as where rewards are sparse.
    let (window, rows) = episodes(1500, |i| if i < 40 { 0.0 } else { 1.0 });
    let mut learner = Learner::new(Settings { discount: 0.9, refit_first_rows: 0, ..Settings::default() }, None);
    learner.step(&window);
    let found = learner.snapshot(true).unwrap().evaluate(&rows.states[..20], Ask::VARIANCE).unwrap();
    // Ten rewards of 1 to go, or fewer: 6.5 at most, 4.1 on average.
    let variance = found.variance.unwrap();
    let (mean, deviation) = (found.mean.mean(), variance.iter().map(|v| v.sqrt()).sum::<f64>() / 20.0);
    assert!(mean > 2.0 && mean < 6.0, "{mean}");
    assert!(deviation > 0.01 && deviation < 2.0, "{deviation}");
}

#[test]
fn rows_with_discounts_of_their_own_can_be_refitted() {
    let (_, mut rows) = episodes(600, |_| 1.0);
    rows.discounts.fill(0.9);
    let mut own = Window::new(1, 1, 10_000);
    own.extend(&rows, 0..rows.len());
    let settings = Settings { discount: 0.0, evidence_rows: 100, search_starts: 2, ..Settings::default() };
    let mut learner = Learner::new(settings, None);
    learner.step(&own);
    let job = learner.refit_job(&own, learner.refit_due().unwrap()).unwrap();
    if let Err(why) = refit::run(&job, &|| true) {
        panic!("{why}");
    }
}

#[test]
fn small_rings_do_not_make_results_depend_on_batching() {
    use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric};
    use criticd_learner::model::Model;
    use criticd_learner::snapshot::Inputs;
    for (noise, backfill_rows) in [
        (NoiseModel::Correlated, 0),
        (NoiseModel::Correlated, 5),
        (NoiseModel::Correlated, 40),
        (NoiseModel::White, 40),
    ] {
        let rows = wander(800, 3, 1, 7);
        let settings =
            Settings { backfill_rows, tolerance: 1e-2, discount: 0.9, estimate_scale: false, ..Settings::default() };
        let metric = Metric::Ard(vec![4.0, 2.0]);
        let kernel = Kernel::gaussian(3.0, 1.0, metric);
        let hyper = Hyperparameters { kernel, noise, noise_variance: 0.2 };
        let learn = |chunk: usize| {
            let mut model = Model::new(settings.clone(), Inputs::identity(2), &hyper);
            for start in (0..rows.len()).step_by(chunk) {
                model.learn(&rows, start..(start + chunk).min(rows.len()), start as u64);
            }
            model.snapshot(false).unwrap().evaluate(&rows.states[..40], Ask::MEAN).unwrap().mean
        };
        let whole = learn(800);
        for chunk in [1, 13] {
            let apart = (learn(chunk) - &whole).amax();
            assert!(apart < 1e-9, "{noise:?}, ring of {backfill_rows}, batches of {chunk}: {apart:e}");
        }
    }
}

#[test]
fn refits_by_rows_can_be_switched_while_running() {
    let (window, _) = episodes(600, |i| (i as f64).sin());
    let mut learner = Learner::new(Settings::default(), None);
    learner.step(&window);
    assert!(learner.refit_due().is_some());
    let off = Settings { refit_first_rows: 0, refit_score_drop: 0.0, ..Settings::default() };
    learner.set_settings(off.clone());
    learner.refit_failed();
    assert_eq!(learner.refit_due(), None);
    learner.set_settings(Settings::default());
    assert_eq!(learner.next_refit(), Some(1200));
}

#[test]
fn a_refit_finds_the_same_on_any_number_of_threads() {
    let (window, _) = episodes(600, |i| (i as f64).sin());
    // Few rows for the exact evidence, so that the bound of all is climbed as well.
    let settings = Settings { evidence_rows: 100, search_starts: 4, ..Settings::default() };
    let mut learner = Learner::new(settings, None);
    learner.step(&window);
    let job = learner.refit_job(&window, learner.refit_due().unwrap()).unwrap();
    let find = || refit::run(&job, &|| true).unwrap();
    let alone = find();
    for threads in [1, 2, 4] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let found = pool.install(find);
        assert_eq!(found.model.hyperparameters(), alone.model.hyperparameters(), "{threads} threads");
        assert_eq!(found.report.ascents, alone.report.ascents, "{threads} threads");
    }
}

#[test]
fn an_adoption_learns_no_row_twice() {
    let (window, rows) = episodes(600, |i| (i as f64).sin());
    let settings = Settings { evidence_rows: 60, search_starts: 1, ..Settings::default() };
    let mut learner = Learner::new(settings, None);
    learner.step(&window);
    let job = learner.refit_job(&window, learner.refit_due().unwrap()).unwrap();
    let candidate = refit::run(&job, &|| true).unwrap();
    // Ten rows that the learner has not been shown yet.
    let mut longer = window.clone();
    longer.extend(&rows, 0..10);
    assert!(matches!(learner.try_adopt(candidate, &longer), Verdict::Adopted { .. }));
    learner.step(&longer);
    assert_eq!((learner.learned(), learner.model().unwrap().statistics().rows), (610, 610));
}

#[test]
fn only_states_that_find_no_room_since_the_last_refit_ask_for_another() {
    let row = |x: f64| {
        let parts = BatchParts { stream: "s".into(), dim: 1, rewards_per_row: 1, ..BatchParts::default() };
        let parts = BatchParts { states: vec![x], next_states: Some(vec![x]), rewards: vec![x], ..parts };
        Batch::new(BatchParts { terminated: Some(vec![true]), ..parts }).unwrap()
    };
    let settings = Settings {
        dictionary_max: 2,
        refit_first_rows: 64,
        refit_growth: 1e6,
        refit_rows_max: 800,
        refit_score_drop: 0.0,
        ..Settings::default()
    };
    let mut learner = Learner::new(settings, None);
    let mut window = Window::new(1, 1, 10_000);
    let mut feed = |learner: &mut Learner, rows: usize, state: &dyn Fn(usize) -> f64| {
        for k in 0..rows {
            window.push(0, true, &row(state(k)), 0);
            learner.step(&window);
        }
        let reason = learner.refit_due();
        if let Some(reason) = reason {
            learner.refit_job(&window, reason).expect("there is a model");
            learner.refit_failed();
        }
        reason
    };
    let everywhere = |k: usize| 10.0 * ((k as f64 + 1.0) * 0.618_033_988_749_895).fract();
    assert_eq!(feed(&mut learner, 300, &everywhere), Some(RefitTrigger::Rows));
    assert_eq!(feed(&mut learner, 300, &everywhere), Some(RefitTrigger::DictionaryFull));
    // What is known has room, and what found none before has been answered.
    let known = learner.model().expect("there is one").dictionary().elements()[0];
    let inputs = learner.model().expect("there is one").inputs().clone();
    let known = known * inputs.scale[0] + inputs.shift[0];
    assert_eq!(feed(&mut learner, 300, &|_| known), None);
    assert_eq!(feed(&mut learner, 300, &everywhere), Some(RefitTrigger::DictionaryFull));
}

// ---- policies

/// A walk whose rewards are `sign` times the state, in chains of ten rows.
fn walked(rows: usize, sign: f64, seed: u64) -> Rows {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut out = Rows::new(1, 1);
    for i in 0..rows {
        let (state, next): (f64, f64) = (rng.random_range(-1.0..1.0), rng.random_range(-1.0..1.0));
        out.states.push(state);
        out.next_states.push(next);
        out.rewards.push(sign * state + 0.01 * next);
        out.discounts.push(f64::NAN);
        out.ratios.push(1.0);
        out.streams.push((i % 3) as u32);
        out.terminated.push(false);
        out.truncated.push(i % 30 >= 27);
        out.starts_chain.push(i % 30 < 3);
    }
    out
}

fn steady(on_new_policy: OnNewPolicy) -> Settings {
    Settings {
        discount: 0.5,
        on_new_policy,
        refit_first_rows: 0,
        refresh_rows: 16,
        dictionary_max: 20,
        ..Settings::default()
    }
}

/// A learner that has seen 400 rows of one policy, 300 of another and 300 of the first again, in pieces of so many rows. The
/// policies are announced before the rows that they begin with have come.
fn switched(settings: &Settings, piece: usize) -> (Learner, Vec<criticd_learner::Event>) {
    let mut all = Rows::new(1, 1);
    for (rows, sign, seed) in [(400, 1.0, 1), (300, -1.0, 2), (300, 1.0, 3)] {
        all.extend(&walked(rows, sign, seed), 0..rows);
    }
    let mut window = Window::new(1, 1, 5000);
    let mut learner = Learner::new(settings.clone(), None);
    let changes = [(0, "a"), (400, "b"), (700, "a")];
    let mut events = Vec::new();
    let mut start = 0;
    while start < all.len() {
        let end = all.len().min(start + piece);
        for (offset, policy) in changes.iter().filter(|(offset, _)| (start..end).contains(&(*offset as usize))) {
            learner.policy_of_rows(*offset, 0, policy);
        }
        window.extend(&all, start..end);
        events.extend(learner.step(&window));
        start = end;
    }
    (learner, events)
}

fn slope(learner: &Learner) -> f64 {
    let found = learner.snapshot(false).unwrap().evaluate(&[-0.5, 0.5], Ask::MEAN).unwrap().mean;
    found[1] - found[0]
}

#[test]
fn a_policy_that_is_announced_begins_at_its_row() {
    for on_new_policy in [OnNewPolicy::Restart, OnNewPolicy::Discount, OnNewPolicy::Keep] {
        // Rows that are forgotten are promised the same bits.
        let settings = Settings { forgetting: Some(1e6), ..steady(on_new_policy) };
        let bits = |(learner, _): &(Learner, _)| rmp_serde::to_vec_named(learner).unwrap();
        let whole = switched(&settings, 1000);
        for piece in [1, 64, 399] {
            assert!(bits(&switched(&settings, piece)) == bits(&whole), "{on_new_policy:?}, pieces of {piece}");
        }
        let back: Learner = rmp_serde::from_slice(&bits(&whole)).unwrap();
        assert!(back.is_consistent() && back.policy() == Some("a"));
        let offsets: Vec<u64> = whole
            .1
            .iter()
            .filter_map(|event| match event {
                criticd_learner::Event::NewPolicy { offset, .. } => Some(*offset),
                _ => None,
            })
            .collect();
        assert_eq!(offsets, [400, 700], "the first name that comes with rows changes nothing");
    }
}

#[test]
fn what_was_learned_of_another_policy_is_dropped_or_counts_less_or_is_kept() {
    let rows = |learner: &Learner| learner.model().unwrap().statistics().rows;
    let (restarted, _) = switched(&steady(OnNewPolicy::Restart), 100);
    let mut fresh = restarted.model().unwrap().emptied();
    fresh.learn(&walked(300, 1.0, 3), 0..300, 700);
    assert_eq!((rows(&restarted), fresh.statistics().rows), (300, 300));
    let (found, expected) = (restarted.model().unwrap().solve().unwrap(), fresh.solve().unwrap());
    assert!((found.feature_weights().col(0)[0] - expected.feature_weights().col(0)[0]).abs() < 1e-6);

    let discount = Settings { policy_discount: Some(0.1), ..steady(OnNewPolicy::Discount) };
    let (discounted, _) = switched(&discount, 100);
    assert_eq!(rows(&discounted), 300 + (300 + 40) / 10);
    let (half, whole) = (
        Settings { policy_discount: Some(0.5), ..discount.clone() },
        Settings { policy_discount: Some(1.0), ..discount },
    );
    assert!(slope(&discounted) > slope(&switched(&half, 100).0));
    assert!(slope(&switched(&half, 100).0) > slope(&switched(&whole, 100).0));

    let (kept, _) = switched(&steady(OnNewPolicy::Keep), 100);
    assert_eq!((rows(&kept), kept.kept_policies().collect::<Vec<_>>()), (700, vec!["b"]));
    assert!(slope(&kept) > 0.9 * slope(&restarted));
    let none = Settings { policies_kept: 0, ..steady(OnNewPolicy::Keep) };
    let (none, _) = switched(&none, 100);
    assert_eq!((rows(&none), none.kept_policies().count()), (300, 0));
}

/// A refit of 300 rows of one policy that comes back 150 rows after another began to act, and the learner by then.
fn overtaken(settings: Settings) -> (Learner, Window, refit::Candidate) {
    let mut window = Window::new(1, 1, 5000);
    let mut learner = Learner::new(settings, None);
    window.extend(&walked(300, 1.0, 1), 0..300);
    learner.policy_of_rows(0, 0, "a");
    learner.step(&window);
    let job = learner.refit_job(&window, RefitTrigger::Rows).unwrap();
    let candidate = refit::run(&job, &|| true).unwrap();
    assert_eq!(candidate.report.rows, 300);
    learner.new_policy(300, Some("b"));
    // Somebody who does not know whether it was heard says it again.
    learner.new_policy(300, Some("b"));
    window.extend(&walked(150, -1.0, 2), 0..150);
    learner.step(&window);
    (learner, window, candidate)
}

/// What becomes of a candidate that is caught up until little is missing.
fn judged(learner: &mut Learner, mut candidate: refit::Candidate, window: &Window) -> Verdict {
    loop {
        match learner.try_adopt(candidate, window) {
            Verdict::Behind(behind) => {
                candidate = behind;
                candidate.catch_up(window, &|| true).unwrap();
            }
            other => return other,
        }
    }
}

#[test]
fn what_a_refit_selected_serves_the_policy_that_came_meanwhile() {
    let settings = |on_new_policy| Settings { refit_first_rows: 200, refit_budget_s: 5.0, ..steady(on_new_policy) };
    for on_new_policy in [OnNewPolicy::Restart, OnNewPolicy::Keep] {
        let (mut learner, window, candidate) = overtaken(settings(on_new_policy));
        assert_eq!(learner.next_refit(), Some(500));
        assert!(matches!(judged(&mut learner, candidate, &window), Verdict::Adopted { .. }), "{on_new_policy:?}");
        assert_eq!((learner.generation(), learner.model().unwrap().statistics().rows), (2, 150), "{on_new_policy:?}");
        assert!(slope(&learner) < -0.5, "rows of the acting policy alone: {}", slope(&learner));
        let job = learner.refit_job(&window, RefitTrigger::Rows).unwrap();
        assert_eq!(refit::run(&job, &|| true).unwrap().report.rows, 150);
    }
    let discount = Settings { policy_discount: Some(0.1), ..settings(OnNewPolicy::Discount) };
    let (mut learner, window, candidate) = overtaken(discount);
    assert!(matches!(judged(&mut learner, candidate, &window), Verdict::Adopted { .. }));
    assert_eq!(learner.model().unwrap().statistics().rows, 150 + 30);
}

#[test]
fn a_refit_of_a_policy_does_not_replace_the_model_of_one_that_comes_back() {
    let settings = Settings { refit_first_rows: 200, refit_budget_s: 5.0, ..steady(OnNewPolicy::Keep) };
    let (mut learner, mut window, _) = overtaken(settings);
    learner.refit_failed();
    let job = learner.refit_job(&window, RefitTrigger::Rows).unwrap();
    let candidate = refit::run(&job, &|| true).unwrap();
    learner.new_policy(450, Some("a"));
    window.extend(&walked(40, 1.0, 3), 0..40);
    learner.step(&window);
    match judged(&mut learner, candidate, &window) {
        Verdict::Rejected { why, .. } => {
            assert_eq!(why, Rejection::OtherPolicy { changed_at: 450, policy: Some("a".into()) });
            assert!(why.to_string().contains("policy") && !why.to_string().contains("world"), "{why}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_model_before_answers_until_the_next_has_rows_of_a_warm_up() {
    for on_new_policy in [OnNewPolicy::Restart, OnNewPolicy::Keep] {
        let mut window = Window::new(1, 1, 5000);
        let mut learner = Learner::new(Settings { warmup_rows: 32, ..steady(on_new_policy) }, None);
        learner.policy_of_rows(0, 0, "a");
        window.extend(&walked(300, 1.0, 1), 0..300);
        learner.step(&window);
        let before = slope(&learner);
        assert!(before > 0.5);
        // Another policy every twenty rows: none of them has a model.
        for k in 0..3 {
            learner.new_policy(300 + 20 * k, Some(&format!("b{k}")));
            window.extend(&walked(20, -1.0, 2 + k), 0..20);
            learner.step(&window);
            assert!((slope(&learner) - before).abs() < 0.05 * before, "{on_new_policy:?}: {}", slope(&learner));
            let back: Learner = rmp_serde::from_slice(&rmp_serde::to_vec_named(&learner).unwrap()).unwrap();
            assert!(back.is_consistent() && slope(&back) == slope(&learner));
            assert_eq!(learner.snapshot(false).unwrap().offset, 320 + 20 * k, "queries that wait for rows get them");
        }
        window.extend(&walked(12, -1.0, 9), 0..12);
        learner.step(&window);
        assert!(slope(&learner) < -0.3, "{on_new_policy:?}: {}", slope(&learner));
    }
}

/// Pairs of numbers to their correlation.
fn correlation(pairs: &[(f64, f64)]) -> f64 {
    let n = pairs.len() as f64;
    let (mx, my) = (pairs.iter().map(|p| p.0).sum::<f64>() / n, pairs.iter().map(|p| p.1).sum::<f64>() / n);
    let sum = |of: &dyn Fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>();
    sum(&|p| (p.0 - mx) * (p.1 - my)) / (sum(&|p| (p.0 - mx).powi(2)) * sum(&|p| (p.1 - my).powi(2))).sqrt()
}

/// A policy that changes a little with each announcement: its value is `level` plus a slope that turns from 1 to -1 over 6000 rows. A
/// refit takes as long as `lag` rows, so that it comes back under another policy. Returns refits adopted and the least correlation of V
/// with the rewards that come next.
fn announced_each(every: usize, lag: usize) -> (u64, f64) {
    let settings = Settings {
        discount: 0.0,
        refit_first_rows: 512,
        refit_budget_s: 1.0,
        dictionary_max: 20,
        drift_sensitivity: criticd_learner::DriftSensitivity::Off,
        ..Settings::default()
    };
    let mut window = Window::new(1, 1, 20_000);
    let mut learner = Learner::new(settings, None);
    let mut running: Option<(refit::Candidate, usize)> = None;
    let (mut least, mut adopted) = (1.0_f64, 0);
    for (k, start) in (0..6000).step_by(50).enumerate() {
        if start > 0 && start % every == 0 {
            learner.new_policy(start as u64, None);
            // The moment at which nothing of this policy has been learned.
            learner.step(&window);
        }
        let mut rows = walked(50, (start as f64 / 6000.0 * std::f64::consts::PI).cos(), 100 + k as u64);
        rows.rewards.iter_mut().for_each(|reward| *reward += 20.0);
        if start >= 100 {
            let shown = learner.snapshot(false).unwrap();
            let values = shown.evaluate(&rows.states, Ask::MEAN).unwrap().mean;
            assert!(values.iter().all(|&v| (v - 20.0).abs() < 5.0), "row {start}: {values:?}");
            let slope = (start as f64 / 6000.0 * std::f64::consts::PI).cos();
            if slope.abs() > 0.8 {
                let pairs: Vec<(f64, f64)> = values.iter().copied().zip(rows.rewards.iter().copied()).collect();
                least = least.min(correlation(&pairs));
            }
        }
        window.extend(&rows, 0..50);
        learner.step(&window);
        if let Some((candidate, _)) = running.take_if(|(_, back)| *back <= start) {
            match judged(&mut learner, candidate, &window) {
                Verdict::Adopted { .. } => adopted += 1,
                Verdict::Rejected { why, .. } => assert!(!matches!(why, Rejection::Outdated { .. }), "{why}"),
                Verdict::Behind(_) => unreachable!(),
            }
        }
        if let Some(trigger) = learner.refit_due().filter(|_| running.is_none()) {
            let job = learner.refit_job(&window, trigger).unwrap();
            match refit::run(&job, &|| true) {
                Ok(candidate) => running = Some((candidate, start + lag)),
                Err(_) => learner.refit_failed(),
            }
        }
    }
    (adopted, least)
}

#[test]
fn a_policy_that_is_announced_often_is_learned() {
    for every in [50, 1000] {
        let (adopted, least) = announced_each(every, 300);
        assert!(adopted >= 1 && least > 0.8, "each {every} rows: {adopted} adopted, correlation {least}");
    }
}

#[test]
fn rows_before_a_first_model_are_not_those_of_a_policy_that_follows() {
    let mut window = Window::new(1, 1, 5000);
    let mut learner = Learner::new(Settings { warmup_rows: 32, ..steady(OnNewPolicy::Keep) }, None);
    window.extend(&walked(20, 1.0, 1), 0..20);
    learner.step(&window);
    learner.new_policy(20, None);
    window.extend(&walked(31, -1.0, 2), 0..31);
    assert!(!learner.step(&window).contains(&criticd_learner::Event::FirstModel));
    window.extend(&walked(1, -1.0, 4), 0..1);
    assert!(learner.step(&window).contains(&criticd_learner::Event::FirstModel));
    assert_eq!(learner.model().unwrap().statistics().rows, 32);
}

#[test]
fn policies_of_fewer_rows_than_a_warm_up_have_a_first_model_together() {
    let mut window = Window::new(1, 1, 5000);
    let mut learner = Learner::new(Settings { warmup_rows: 32, ..Settings::default() }, None);
    for k in 0..4 {
        learner.new_policy(20 * k, None);
        window.extend(&walked(20, 1.0, k), 0..20);
        let began = learner.step(&window).contains(&criticd_learner::Event::FirstModel);
        assert_eq!(began, k == 1, "{k}");
    }
}
