//! Learning allocates nothing per transition once the dictionary is full and everything has been met once.

use criticd_learner::heads::{Cumulant, Head, Rate};
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::model::Model;
use criticd_learner::refit::{self, RefitTrigger};
use criticd_learner::snapshot::Inputs;
use criticd_learner::transition::Rows;
use criticd_learner::verification::PAIRS_MAX;
use criticd_learner::window::Window;
use criticd_learner::world::{Transitions, World};
use criticd_learner::{
    DriftSensitivity, Lambda, Learner, SelectionKind, Settings, VarianceKind, Verdict, WarningSettings,
};
use criticd_reference::golden_world::{self, GivenCase};
use criticd_reference::{push, wander};

const WARM: usize = 6000;

fn settings() -> Settings {
    Settings {
        discount: 0.9,
        dictionary_max: 60,
        tolerance: 1e-6,
        refit_first_rows: 0,
        // It reduces a matrix to tridiagonal form in memory of its own, where the rows have grown by an eighth.
        estimate_scale: false,
        // Where a world is watched a copy of the model is made every thousand rows or more, see below.
        drift_sensitivity: DriftSensitivity::Off,
        ..Settings::default()
    }
}

/// Where no row adds to B but those that are cut.
fn to_the_end() -> Settings {
    Settings {
        lambda: Lambda::Fixed(1.0),
        selection: SelectionKind::Evidence,
        variance: VarianceKind::Model,
        ..settings()
    }
}

fn often(settings: Settings) -> Settings {
    Settings { refresh_rows: 1, dictionary_max: 80, tolerance: 1e-9, ..settings }
}

/// Allocations while a learner that has met the first `WARM` of `rows` learns the rest in groups of `group`.
fn allocations(settings: Settings, rows: &Rows, group: usize) -> u64 {
    let mut window = Window::new(2, 2, rows.len());
    let mut learner = Learner::new(settings.clone(), None);
    for at in (0..WARM).step_by(group) {
        window.extend(rows, at..WARM.min(at + group));
        learner.step(&window);
    }
    let model = learner.model().expect("enough rows for a model");
    assert_eq!(model.dictionary().len(), settings.dictionary_max, "the dictionary is full");
    let mut counted = 0;
    for at in (WARM..rows.len()).step_by(group) {
        window.extend(rows, at..rows.len().min(at + group));
        counted += allocation_counter::measure(|| drop(learner.step(&window))).count_total;
    }
    assert_eq!(learner.learned(), rows.len() as u64);
    if settings.refresh_rows == 1 {
        assert!(learner.model().unwrap().posterior().unwrap().gained() > 0, "the factor gains rows");
    }
    counted
}

#[test]
fn a_full_dictionary_learns_without_allocating() {
    let plain = wander(WARM + 3000, 5, 2, 21);
    let mut weighted = plain.clone();
    weighted.ratios.iter_mut().enumerate().for_each(|(i, ratio)| *ratio = [1.0, 0.0, 0.3, 1.7][i % 4]);
    let clustered = |settings: Settings| Settings { variance: VarianceKind::Clustered, ..settings };
    let lambda = |lambda, settings: Settings| Settings { lambda: Lambda::Fixed(lambda), ..settings };
    for (name, settings, rows) in [
        ("plain", settings(), &plain),
        ("lambda 1", to_the_end(), &plain),
        ("weights often", Settings { refresh_rows: 16, ..settings() }, &plain),
        ("weights after every row", often(settings()), &plain),
        ("weights after every row, lambda 0.5", often(lambda(0.5, settings())), &plain),
        ("weights after every row, lambda 1", often(to_the_end()), &plain),
        ("white noise", Settings { noise: NoiseModel::White, ..settings() }, &plain),
        ("two rewards", Settings { rewards: vec![0, 1], ..settings() }, &plain),
        ("clustered", clustered(to_the_end()), &plain),
        ("clustered, lambda 0.5", clustered(lambda(0.5, settings())), &plain),
        ("ratios", settings(), &weighted),
        (
            "ratios, weights after every row, two rewards",
            Settings { rewards: vec![0, 1], ..often(settings()) },
            &weighted,
        ),
        ("ratios, lambda 1", to_the_end(), &weighted),
    ] {
        for group in [1, 7, 256] {
            assert_eq!(allocations(settings.clone(), rows, group), 0, "{name}, groups of {group}");
        }
    }
}

#[test]
fn a_watched_world_costs_a_copy_now_and_then_and_nothing_else() {
    let (rows, watched) =
        (wander(WARM + 3000, 5, 2, 21), Settings { drift_sensitivity: DriftSensitivity::Normal, ..settings() });
    let (mut window, mut learner) = (Window::new(2, 2, rows.len()), Learner::new(watched, None));
    window.extend(&rows, 0..WARM);
    learner.step(&window);
    assert!(learner.watches());
    let mut step = |i: usize| {
        window.extend(&rows, i..i + 1);
        allocation_counter::measure(|| drop(learner.step(&window))).count_total > 0
    };
    let copies = (WARM..rows.len()).filter(|&i| step(i)).count();
    assert!((1..=3).contains(&copies), "{copies} of 3000 rows have allocated");
}

#[test]
fn returns_are_verified_without_allocating() {
    let rows = wander(WARM + 3000, 5, 2, 21);
    let kernel = Kernel::gaussian(3.0, 1.0, Metric::Ard(vec![4.0, 2.0]));
    let hyper = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.2 };
    let settings = Settings { rewards: vec![0, 1], discount: 0.6, ..settings() };
    let mut model = Model::new(settings, Inputs::identity(2), &hyper);
    model.learn(&rows, 0..1000, 0);
    model.revisit(std::iter::once((&rows, 0..1000, 0)));
    model.learn(&rows, 1000..WARM, 1000);
    let pairs = |model: &Model| model.snapshot(false).unwrap().returns.unwrap().pairs;
    let before = pairs(&model);
    let counted = allocation_counter::measure(|| model.learn(&rows, WARM..rows.len(), WARM as u64)).count_total;
    // The rings of errors are full: what is verified replaces what is there.
    assert_eq!((before, pairs(&model)), (PAIRS_MAX as u64, PAIRS_MAX as u64));
    assert_eq!(counted, 0);
}

#[test]
fn a_stream_is_tracked_without_allocating() {
    let rows = wander(WARM + 3000, 5, 2, 21);
    for discount in [0.0, 0.9] {
        let of = Settings { discount, dictionary_max: 30, search_starts: 1, evidence_rows: 60, ..settings() };
        let (mut window, mut learner) = (Window::new(2, 2, rows.len()), Learner::new(of, None));
        window.extend(&rows, 0..1500);
        learner.step(&window);
        let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
        let candidate = refit::run(&job, &|| true).unwrap();
        assert!(matches!(learner.try_adopt(candidate, &window), Verdict::Adopted { .. }));
        window.extend(&rows, 1500..WARM);
        learner.step(&window);
        assert!(learner.model().unwrap().openings().is_some(), "trackers are there");
        let mut step = |i: usize| {
            window.extend(&rows, i..i + 1);
            allocation_counter::measure(|| drop(learner.step(&window))).count_total
        };
        assert_eq!((WARM..rows.len()).map(&mut step).sum::<u64>(), 0, "discount {discount}");
    }
}

#[test]
fn alarms_allocate_only_where_they_are_raised_or_end() {
    let rows = wander(WARM + 3000, 5, 2, 21);
    let alarm = |head: Option<&str>| WarningSettings { head: head.map(str::to_owned), below: 0.0, false_alarms: 0.1 };
    let of = Settings {
        dictionary_max: 30,
        heads: vec![Head::new("paid", Cumulant::Reward(0), Rate::Discount(0.9))],
        heads_split: false,
        alarms: vec![alarm(None), alarm(Some("paid"))],
        ..settings()
    };
    let (mut window, mut learner) = (Window::new(2, 2, rows.len()), Learner::new(of, None));
    window.extend(&rows, 0..1500);
    learner.step(&window);
    let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
    let candidate = refit::run(&job, &|| true).unwrap();
    assert!(matches!(learner.try_adopt(candidate, &window), Verdict::Adopted { .. }));
    window.extend(&rows, 1500..WARM);
    learner.step(&window);
    let (mut told, mut allocating) = (0, 0);
    for i in WARM..rows.len() {
        window.extend(&rows, i..i + 1);
        let mut events = Vec::new();
        let counted = allocation_counter::measure(|| events = learner.step(&window)).count_total;
        told += events.len();
        allocating += u64::from(counted > 0 && events.is_empty());
    }
    assert!(told > 10, "{told} alarms were raised or ended");
    // The bank solves for the weights of its heads again whenever there are an eighth more rows, here three times.
    assert!(allocating <= 3, "{allocating} rows have allocated without an alarm");
}

#[test]
fn a_snapshot_takes_no_more_than_features_of_the_chains_that_run() {
    const CHAINS: usize = 5000;
    let kernel = Kernel::gaussian(3.0, 1.0, Metric::Ard(vec![4.0, 2.0]));
    let hyper = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.2 };
    let mut rows = Rows::new(2, 1);
    for stream in 0..CHAINS {
        let at = [(stream as f64 * 0.7).sin(), (stream as f64 * 1.3).sin()];
        push(&mut rows, stream as u32, true, &at, &[at[0]], &[at[1], at[0]], false, false);
    }
    for settings in [settings(), to_the_end()] {
        let mut model = Model::new(settings, Inputs::identity(2), &hyper);
        model.learn(&rows, 0..rows.len(), 0);
        assert_eq!(model.running_chains(), CHAINS);
        let features = (size_of::<f64>() * CHAINS * model.dictionary().len()) as u64;
        let counted = allocation_counter::measure(|| drop(model.snapshot(true).unwrap()));
        assert!(counted.bytes_max < 3 * features / 2, "{} bytes at once, features {features}", counted.bytes_max);
        assert!(counted.count_total < 500, "{} allocations", counted.count_total);
    }
}

#[test]
fn the_count_counts() {
    let counted = allocation_counter::measure(|| drop(std::hint::black_box(vec![0_u8; 100])));
    assert_eq!(counted.count_total, 1);
}

#[test]
fn a_model_of_the_transition_allocates_nothing_row_by_row_nor_in_blocks() {
    let given = GivenCase::new(&golden_world::read("terminated_106"));
    let (after, ..) = given.after();
    let (elements, _) = given.pursue(&after);
    let mut world = given.empty(after, &elements);
    let rows = given.rows();
    let (inputs, states) = (world.before().dim(), world.after().dim());
    let one = |i: usize| Transitions {
        inputs: &rows.inputs[i * inputs..(i + 1) * inputs],
        successors: &rows.successors[i * states..(i + 1) * states],
        rewards: &rows.rewards[i..i + 1],
        terminated: &rows.terminated[i..i + 1],
    };
    world.learn(&rows).unwrap();
    let blocks = allocation_counter::measure(|| world.learn(&rows).unwrap()).count_total;
    world.learn(&one(0)).unwrap();
    let singly = |world: &mut World| (1..20).for_each(|i| world.learn(&one(i)).unwrap());
    let singly = allocation_counter::measure(|| singly(&mut world)).count_total;
    assert_eq!((blocks, singly), (0, 0));
}
