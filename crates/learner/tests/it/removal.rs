//! A model that rows are taken out of is one that has never learned them.

use criticd_learner::heads::{Cumulant, Head, Rate};
use criticd_learner::math::columns::GivenFunction;
use criticd_learner::math::dense::Matrix;
use criticd_learner::math::dictionary::Dictionary;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::model::{Model, Removed, Sums, Unremovable};
use criticd_learner::refit::{self, RefitTrigger};
use criticd_learner::removal::{Offsets, Placed, RowPlace, Selector, resolve};
use criticd_learner::snapshot::Inputs;
use criticd_learner::transition::Rows;
use criticd_learner::window::Window;
use criticd_learner::{DriftSensitivity, Lambda, Learner, Rejection, Settings, VarianceKind, Verdict};
use criticd_reference::{distance, explicit_seed, wander};
use proptest::prelude::*;

/// Rows of five streams, some with ratios.
pub(super) fn stream(count: usize, ratios: bool, seed: u64) -> Placed {
    let mut rows = wander(count, 5, 2, seed);
    if ratios {
        (0..count).filter(|i| i % 3 == 0).for_each(|i| rows.ratios[i] = [0.0, 0.5, 1.5, 4.0][i / 3 % 4]);
    }
    Placed::from_offset(rows, 1000)
}

fn heads() -> Vec<Head> {
    let head = |name: &str, reward, discount| Head {
        noise_variance: Some(0.3),
        signal: Some(1.0),
        ..Head::new(name, Cumulant::Reward(reward), Rate::Discount(discount))
    };
    vec![head("near", 0, 0.5), head("now", 1, 0.0), head("far", 1, 0.95), head("other", 0, 0.95)]
}

/// The ways in which rows are learned.
pub(super) fn settings() -> Vec<Settings> {
    let base = Settings { heads: heads(), estimate_scale: false, variance: VarianceKind::Rows, ..Settings::paper() };
    let of = |lambda, forgetting| Settings { lambda: Lambda::Fixed(lambda), forgetting, ..base.clone() };
    let two = Settings { rewards: vec![1, 0], ..of(0.9, None) };
    vec![of(1.0, None), of(0.0, None), of(0.7, None), of(0.7, Some(150.0)), of(1.0, Some(90.0)), two]
}

/// A model over a grid of elements, with columns beside them as streams get, that has learned nothing.
pub(super) fn empty(settings: Settings) -> Model {
    let kernel = Kernel::gaussian(1.5, 0.3, Metric::Ard(vec![2.0, 1.0]));
    let kernel = kernel.with_linear_columns(2, 0.5, GivenFunction::Bounded);
    let grid: Vec<f64> = (0..9).flat_map(|k| [f64::from(k % 3) - 1.0, f64::from(k / 3) - 1.0]).collect();
    let mut dictionary = Dictionary::from_elements(kernel.clone(), 2, &grid).unwrap();
    dictionary.close();
    let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.4 };
    Model::with_dictionary(settings, Inputs::identity(2), &hyperparameters, dictionary)
}

/// Learn rows in pieces that follow one another.
pub(super) fn learn(model: &mut Model, of: &Placed) {
    of.pieces().for_each(|(rows, range, offset)| model.learn(rows, range, offset));
}

pub(super) fn learned(settings: &Settings, of: &Placed) -> Model {
    let mut model = empty(settings.clone());
    learn(&mut model, of);
    model
}

fn columns(of: &Matrix) -> Vec<f64> {
    (0..of.cols()).flat_map(|j| of.col(j).to_vec()).collect()
}

/// All that is summed up, running chains closed, in units of the newest row.
fn all_sums(of: &Sums, unit: f64, follows: bool) -> Vec<(&'static str, Vec<f64>)> {
    let closed = of.closed();
    let mut all = vec![
        ("n", vec![closed.rows as f64, closed.effective_rows() * unit]),
        ("S", columns(&closed.gram)),
        ("p", columns(&closed.response)),
        ("B", columns(&closed.coupling())),
    ];
    // With lambda = 1 rows are followed from the first block with a ratio on.
    if follows {
        all.push(("feature sum", closed.feature_sum.clone()));
    }
    // Where rows are followed targets stand still, wherever that began.
    if !closed.follows_rows {
        all.push(("q", closed.energy.clone()));
        all.push(("t", closed.target_sum.clone()));
        all.push(("E", columns(&closed.closed.energy)));
        all.push(("h", columns(&closed.closed.response)));
        all.push(("a", closed.closed.sum.clone()));
    }
    let heads = of.heads.as_ref().unwrap();
    all.extend(heads.statistics.grams.iter().map(|gram| ("S of heads", columns(gram.matrix()))));
    for (group, closings) in heads.statistics.groups.iter().zip(&heads.closings) {
        let mut terms = group.closed().into_owned();
        terms.merge(closings, 1.0);
        all.push(("P of heads", columns(&group.response())));
        all.push(("q of heads", group.energy().to_vec()));
        all.push(("B of heads", columns(&terms.coupling)));
        all.push(("E of heads", columns(&terms.energy)));
        all.push(("h of heads", columns(&terms.response)));
        all.push(("a of heads", terms.sum));
    }
    all.iter_mut().for_each(|(_, numbers)| numbers.iter_mut().for_each(|v| *v /= unit));
    all
}

/// Both have the same sums and the same weights.
pub(super) fn assert_same(found: &Model, expected: &Model, told: &str) {
    let unit = |of: &Model| of.statistics().unit();
    let sums = |of: &Model| all_sums(&of.sums(), unit(of), of.lambda() < 1.0);
    let (found_sums, expected_sums) = (sums(found), sums(expected));
    assert_eq!(found_sums.len(), expected_sums.len());
    for ((name, found), (_, expected)) in found_sums.iter().zip(&expected_sums) {
        let off = distance(found, expected);
        assert!(off < 1e-9, "{told}: {name} is off by {off}");
    }
    let weights = |of: &Model| columns(of.solve().unwrap().feature_weights());
    assert!(distance(&weights(found), &weights(expected)) < 1e-9, "{told}: u");
    let query: Vec<f64> = (0..20).map(|k| (f64::from(k) * 0.37).sin()).collect();
    let values = |of: &Model| {
        let snapshot = of.snapshot(false).unwrap();
        let heads = snapshot.heads.as_ref().unwrap().weights.as_slice().to_vec();
        (snapshot.evaluate(&query, Default::default()).unwrap().mean.as_slice().to_vec(), heads)
    };
    let ((v, heads), (expected_v, expected_heads)) = (values(found), values(expected));
    assert!(distance(&v, &expected_v) < 1e-9, "{told}: V");
    assert!(distance(&heads, &expected_heads) < 1e-9, "{told}: weights of heads");
}

fn stream_of(number: u32, all: &Placed) -> Offsets {
    let its = all.rows.streams.iter().zip(&all.offsets).filter(|&(&stream, _)| stream == number);
    its.map(|(_, &offset)| offset..offset + 1).collect()
}

/// The rows from `offset` on.
fn tail(of: &Placed, offset: u64) -> Placed {
    let from = of.offsets.partition_point(|&other| other < offset);
    let mut rows = of.rows.without_rows();
    rows.extend(&of.rows, from..of.len());
    Placed { rows, offsets: of.offsets[from..].to_vec() }
}

#[test]
fn rows_that_are_removed_have_never_been_learned() {
    for (k, settings) in settings().into_iter().enumerate() {
        for ratios in [false, true] {
            let (first, all) = (stream(400, ratios, 7), stream(500, ratios, 7));
            for removed in [
                stream_of((first.rows.streams[399] + 1) % 5, &first),
                Offsets::from(1100..1101),
                Offsets::from_iter([1040..1090, 1200..1203, 1300..1301]),
                Offsets::from_iter([1000..1001, 1350..1399]),
            ] {
                let told = format!("settings {k}, ratios {ratios}, {removed:?}");
                let mut model = learned(&settings, &first);
                let done = model.remove(&first, &removed).unwrap();
                assert_eq!((done.subtracted - done.put_back) as u64, removed.count(), "{told}");
                assert!(model.is_consistent(), "{told}");
                let mut other = learned(&settings, &first.without(&removed));
                assert_same(&model, &other, &told);
                // Chains that ran go on with the traces of what stays; where the last row of one is gone the next row starts another.
                learn(&mut model, &tail(&all, 1400));
                learn(&mut other, &tail(&all.without(&removed), 1400));
                assert_same(&model, &other, &format!("{told}, and 100 rows later"));
            }
        }
    }
}

#[test]
fn what_is_left_of_nothing_is_zero_and_learns_on() {
    for settings in settings() {
        let (first, all) = (stream(300, true, 3), stream(400, true, 3));
        let mut model = learned(&settings, &first);
        let done = model.remove(&first, &Offsets::from(0..2000)).unwrap();
        assert_eq!((done.subtracted, done.put_back, model.running_chains()), (300, 0, 0));
        for (name, numbers) in all_sums(&model.sums(), 1.0, true) {
            assert!(numbers.iter().all(|&v| v == 0.0), "{name}");
        }
        assert!(model.solve().unwrap().feature_weights().col(0).iter().all(|&u| u == 0.0));
        learn(&mut model, &tail(&all, 1300));
        let mut behind = tail(&all, 1300);
        for stream in 0..5 {
            let first = behind.rows.streams.iter().position(|&of| of == stream).unwrap();
            behind.rows.starts_chain[first] = true;
        }
        assert_same(&model, &learned(&settings, &behind), "after all was removed");
    }
}

#[test]
fn bootstrapped_sums_are_zero_where_no_cut_chain_is_left() {
    // Stream 0 is cut, stream 1 terminates.
    let mut rows = Rows::new(2, 2);
    for i in 0..20_u32 {
        let at = |i: u32| [f64::from(i).sin(), f64::from(i).cos()];
        let state = [at(i), at(i + 2)];
        let (cut, ends) = (i == 18, i == 19);
        criticd_reference::push(&mut rows, i % 2, i < 2, &state[0], &[1.0, 0.3], &state[1], ends, cut);
    }
    let rows = Placed::from_offset(rows, 0);
    let mut model = learned(&Settings { lambda: Lambda::Fixed(1.0), ..settings()[0].clone() }, &rows);
    assert_eq!(model.statistics().closed.chains, 1);
    model.remove(&rows, &stream_of(0, &rows)).unwrap();
    let sums = model.sums();
    assert_eq!((sums.statistics.rows, sums.statistics.closed.chains), (10, 0));
    let groups = &sums.heads.as_ref().unwrap().statistics.groups;
    for terms in groups.iter().map(|group| group.closed().into_owned()).chain([sums.statistics.closed.clone()]) {
        assert!(columns(&terms.coupling).iter().chain(&columns(&terms.energy)).all(|&b| b == 0.0));
        assert!(columns(&terms.response).iter().chain(&terms.sum).all(|&b| b == 0.0));
    }
}

#[test]
fn nothing_and_what_is_gone_already_change_no_bit() {
    let settings = &settings()[2];
    let rows = stream(300, true, 5);
    let mut model = learned(settings, &rows);
    let bits = |model: &Model| rmp_serde::to_vec_named(model).unwrap();
    let before = bits(&model);
    for nothing in [Offsets::default(), Offsets::from_iter([0..1000, 1300..9000])] {
        assert_eq!(model.remove(&rows, &nothing), Ok(Removed::default()));
    }
    assert!(bits(&model) == before);
    let removed = stream_of(1, &rows);
    model.remove(&rows, &removed).unwrap();
    let once = bits(&model);
    assert_eq!(model.remove(&rows, &removed), Ok(Removed::default()));
    assert_eq!(model.remove(&rows.without(&removed), &removed), Ok(Removed::default()));
    assert!(bits(&model) == once);
    // In two steps, which overlap, as in one.
    let (mut steps, mut at_once) = (learned(settings, &rows), learned(settings, &rows));
    let (one, two) = (Offsets::from(1050..1120), Offsets::from_iter([1100..1160, 1200..1210]));
    steps.remove(&rows, &one).unwrap();
    steps.remove(&rows.without(&one), &two).unwrap();
    at_once.remove(&rows, &Offsets::from_iter(one.ranges().iter().chain(two.ranges()).cloned())).unwrap();
    assert_same(&steps, &at_once, "in two steps");
    // A model that was written and read is the same in this, too.
    let mut read: Model = rmp_serde::from_slice(&before).unwrap();
    read.remove(&rows, &removed).unwrap();
    assert!(bits(&read) == once);
}

#[test]
fn rows_that_lack_a_part_of_their_chain_are_refused() {
    let rows = stream(300, false, 9);
    let mut model = learned(&settings()[1], &rows);
    let before = rmp_serde::to_vec_named(&model).unwrap();
    // Some of these rows are not there, or the first rows of a chain that runs.
    assert_eq!(model.remove(&tail(&rows, 1200), &Offsets::from(1190..1210)), Err(Unremovable::Incomplete));
    let last = Offsets::from(1299..1300);
    let chains = rows.chains();
    let first = chains.iter().position(|&chain| chain == chains[299]).unwrap();
    assert!(first < 299);
    let part = tail(&rows, rows.offsets[first] + 1);
    assert_eq!(model.remove(&part, &last), Err(Unremovable::Incomplete));
    assert!(rmp_serde::to_vec_named(&model).unwrap() == before);
    // Rows that count less than they did are not known any more.
    model.discount(0.5);
    assert_eq!(model.remove(&rows, &last), Err(Unremovable::Unknown));
}

/// S and A = S - B by their definition, each feature 0 before the row that it counts from.
fn by_definition(model: &Model, rows: &Placed, lambda: f64, discount: impl Fn(usize) -> f64) -> [Vec<f64>; 2] {
    let (m, since, dictionary) = (model.dictionary().len(), model.since().unwrap(), model.dictionary());
    let features = |state: &[f64], offset: u64| {
        let all = dictionary.features(&dictionary.kernel().project(2, state));
        all.col(0).iter().zip(since).map(|(phi, &since)| if since <= offset { *phi } else { 0.0 }).collect::<Vec<f64>>()
    };
    let (mut s, mut a) = (vec![0.0; m * m], vec![0.0; m * m]);
    let (chains, of) = (rows.chains(), &rows.rows);
    let (mut traces, mut discounts) = (vec![vec![0.0; m]; chains.len()], vec![0.0; chains.len()]);
    for i in 0..rows.len() {
        let (phi, trace) = (features(of.state(i), rows.offsets[i]), &mut traces[chains[i]]);
        for (z, phi) in trace.iter_mut().zip(&phi) {
            *z = discounts[chains[i]] * lambda * *z + phi;
        }
        // What follows is seen with the features of when it is seen.
        let next = (i + 1..rows.len()).find(|&j| of.streams[j] == of.streams[i]);
        let seen = if of.truncated[i] { rows.offsets[i] } else { next.map_or(u64::MAX, |j| rows.offsets[j]) };
        let gamma = if of.terminated[i] { 0.0 } else { discount(i) };
        discounts[chains[i]] = gamma;
        let psi = features(of.next_state(i), seen);
        for j in 0..m {
            for k in 0..m {
                s[j * m + k] += phi[j] * phi[k];
                a[j * m + k] += trace[k] * (phi[j] - gamma * psi[j]);
            }
        }
    }
    [s, a]
}

#[test]
fn features_that_came_later_count_from_where_they_came() {
    for (lambda, backfill) in [(0.7, 40), (0.0, 0), (1.0, 40), (0.7, 10_000)] {
        let rows = stream(600, false, 11);
        let settings =
            Settings { backfill_rows: backfill, dictionary_max: 60, heads: heads(), ..settings()[0].clone() };
        let settings = Settings { lambda: Lambda::Fixed(lambda), ..settings };
        let kernel = Kernel::gaussian(1.5, 0.3, Metric::Ard(vec![2.0, 1.0]));
        let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.4 };
        let mut model = Model::new(settings, Inputs::identity(2), &hyperparameters);
        model.set_tolerance(1e-3);
        learn(&mut model, &rows);
        let told = format!("lambda {lambda}, {backfill} rows backfilled");
        let since = model.since().unwrap();
        assert!(since.len() > 15 && since.is_sorted(), "{told}");
        assert_eq!(since.iter().any(|&since| since > 1000 + 100), backfill < 600, "{told}: {since:?}");
        let check = |model: &Model, rows: &Placed| {
            let assert_sums = |gram: &Matrix, coupling: &Matrix, [s, a]: [Vec<f64>; 2], whose: &str| {
                let mut gram = gram.clone();
                gram.mirror_lower();
                let difference: Vec<f64> = columns(&gram).iter().zip(columns(coupling)).map(|(s, b)| s - b).collect();
                let off = [distance(&columns(&gram), &s), distance(&difference, &a)];
                assert!(off[0] < 1e-9 && off[1] < 1e-9, "{told}, {whose}: {off:?}");
            };
            let (sums, critics) = (model.sums(), model.settings().discount);
            let defined = by_definition(model, rows, lambda, |i| rows.rows.discount(i, critics));
            assert_sums(&sums.closed().gram, &sums.closed().coupling(), defined, "the critic");
            let of_heads = sums.heads.as_ref().unwrap();
            for (g, discount) in [0.5, 0.0, 0.95].into_iter().enumerate() {
                let mut terms = of_heads.statistics.groups[g].closed().into_owned();
                terms.merge(&of_heads.closings[g], 1.0);
                let defined = by_definition(model, rows, 1.0, |_| discount);
                assert_sums(of_heads.statistics.grams[0].matrix(), &terms.coupling, defined, "heads");
            }
        };
        check(&model, &rows);
        let removed = Offsets::from_iter([1030..1060, 1200..1300, 1500..1501]);
        model.remove(&rows, &removed).unwrap();
        check(&model, &rows.without(&removed));
    }
}

#[test]
fn ratios_may_begin_on_the_way() {
    let settings = Settings { lambda: Lambda::Fixed(1.0), refresh_rows: 16, ..settings()[0].clone() };
    let mut rows = stream(400, false, 7);
    (160..400).for_each(|i| rows.rows.ratios[i] = [0.5, 1.5, 1.0][i % 3]);
    let mut model = learned(&settings, &rows);
    let weight = |from: u64, which: &dyn Fn(u64) -> bool| -> f64 {
        let its = rows.offsets.iter().zip(&rows.rows.ratios).filter(|&(&offset, _)| offset >= from && which(offset));
        its.map(|(_, ratio)| ratio).sum()
    };
    // Sums of features and ratios begin with the block of the first of these rows.
    let begins = (1100..1161).find(|&from| (weight(from, &|_| true) - model.statistics().weight).abs() < 1e-9).unwrap();
    assert!(begins > 1100);
    let removed = Offsets::from_iter([1020..1080, 1150..1175, 1300..1310]);
    model.remove(&rows, &removed).unwrap();
    let left = weight(begins, &|offset| !removed.contains(offset));
    assert!((model.statistics().weight - left).abs() < 1e-9);
    let other = learned(&settings, &rows.without(&removed));
    let weights = |of: &Model| columns(of.solve().unwrap().feature_weights());
    assert!(distance(&weights(&model), &weights(&other)) < 1e-9);
}

#[test]
fn selectors_name_their_union_once() {
    let streams = ["a", "b", "a", "a", "b", "c"];
    let sessions = ["", "r", "r", "s", "r", "r"];
    let times = [Some(0.0), None, Some(2.0), Some(3.0), Some(4.0), None];
    let places =
        || (0..6).map(|i| RowPlace { offset: 10 + i as u64, stream: streams[i], session: sessions[i], time: times[i] });
    let found = |selectors: &[Selector]| {
        let found = resolve(selectors, places());
        (found.offsets, found.without_time)
    };
    let of = |ranges: &[[u64; 2]]| ranges.iter().map(|&[from, to]| from..to).collect::<Offsets>();
    let stream = Selector::Stream("a".into());
    let session = Selector::Session { stream: "a".into(), session: "r".into() };
    assert_eq!(found(&[]), (of(&[]), 0));
    assert_eq!(found(std::slice::from_ref(&stream)), (of(&[[10, 11], [12, 14]]), 0));
    assert_eq!(found(std::slice::from_ref(&session)), (of(&[[12, 13]]), 0));
    assert_eq!(found(&[session, stream.clone(), Selector::Offsets(11..12)]), (of(&[[10, 14]]), 0));
    // The end of a range of times is not in it; rows without a time are counted unless they are named otherwise.
    assert_eq!(found(&[Selector::Times(2.0..4.0)]), (of(&[[12, 14]]), 2));
    assert_eq!(found(&[Selector::Times(2.0..4.0), Selector::Stream("c".into())]), (of(&[[12, 14], [15, 16]]), 1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..explicit_seed() })]

    #[test]
    fn any_rows_can_be_removed(
        which in 0..6_usize,
        ratios: bool,
        seed in 0..20_u64,
        ranges in prop::collection::vec((1000..1120_u64, 1..30_u64), 0..6),
    ) {
        let settings = settings().swap_remove(which);
        let rows = stream(121, ratios, seed);
        // The newest row stays, so that both know the same age.
        let removed: Offsets = ranges.into_iter().map(|(from, count)| from..(from + count).min(1120)).collect();
        let mut model = learned(&settings, &rows);
        model.remove(&rows, &removed).unwrap();
        assert_same(&model, &learned(&settings, &rows.without(&removed)), &format!("{removed:?}"));
    }

    #[test]
    fn offsets_are_a_set(
        ranges in prop::collection::vec((0..60_u64, 0..10_u64), 0..12),
        others in prop::collection::vec((0..60_u64, 0..10_u64), 0..12),
    ) {
        let of = |ranges: &[(u64, u64)]| ranges.iter().map(|&(from, count)| from..from + count).collect::<Offsets>();
        let is_in = |ranges: &[(u64, u64)], at: u64| ranges.iter().any(|&(from, count)| (from..from + count).contains(&at));
        let (one, other) = (of(&ranges), of(&others));
        let apart = |of: &Offsets| of.ranges().windows(2).all(|pair| pair[0].end < pair[1].start);
        let less = one.without(&other);
        prop_assert!(apart(&one) && less.ranges().iter().all(|range| range.start < range.end));
        for at in 0..80 {
            prop_assert_eq!(one.contains(at), is_in(&ranges, at));
            prop_assert_eq!(less.contains(at), is_in(&ranges, at) && !is_in(&others, at));
        }
        prop_assert_eq!(one.count(), (0..80).filter(|&at| is_in(&ranges, at)).count() as u64);
    }
}

fn window(of: &Placed) -> Window {
    let mut window = Window::starting_at(2, 2, 10_000, of.offsets[0]);
    window.extend(&of.rows, 0..of.len());
    window
}

/// A critic with a kernel that was selected, which has learned these rows.
fn critic(settings: &Settings, rows: &Placed) -> Learner {
    let empty = empty(settings.clone());
    let mut learner = Learner::with_kernel_of(settings.clone(), None, rows.offsets[0], &empty);
    learner.skip_to(rows.offsets[0]);
    drop(learner.step(&window(rows)));
    learner
}

fn calm(k: usize) -> Settings {
    let base = settings().swap_remove(k);
    Settings { refit_first_rows: 100, drift_sensitivity: DriftSensitivity::Off, search_starts: 1, ..base }
}

#[test]
fn a_critic_answers_at_once_as_if_it_had_never_seen_what_is_taken_back() {
    let (settings, rows) = (calm(2), stream(400, true, 7));
    let mut learner = critic(&settings, &rows);
    // The last rows of chains that run are among them.
    let removed = Offsets::from_iter([1040..1090, 1200..1203, 1380..1400]);
    let before = (learner.generation(), learner.is_refit_requested());
    let done = learner.remove(&rows, &removed).unwrap();
    assert_eq!((done.subtracted - done.put_back, learner.is_stale()), (73, false));
    assert_eq!((learner.generation(), before.1, learner.is_refit_requested()), (before.0 + 1, false, true));
    assert_eq!(learner.residue().offsets(), &removed);
    assert!(learner.residue().variance_is_stale() && learner.is_consistent());
    let other = learned(&settings, &rows.without(&removed));
    assert_same(learner.model().unwrap(), &other, "a critic");
    // The scatter of scores is made of the rows that stay, under the weights of now.
    learner.renew_variance(&rows);
    let mut expected = other.clone();
    expected.refresh();
    expected.revisit(rows.without(&removed).pieces());
    let scatter = |of: &Model| {
        let found = of.scatter().unwrap();
        (0..found.cols()).flat_map(|j| found.col(j)[j..].to_vec()).collect::<Vec<f64>>()
    };
    assert!(distance(&scatter(learner.model().unwrap()), &scatter(&expected)) < 1e-9);
    assert!(!learner.residue().variance_is_stale());
    // As a checkpoint has it.
    let read: Learner = rmp_serde::from_slice(&crate::support::bytes(&learner)).unwrap();
    assert_eq!((read.residue(), read.is_stale()), (learner.residue(), false));
    // With too few rows for a selection the answer is provisional again.
    assert!(!learner.snapshot(false).unwrap().provisional);
    let most = Offsets::from(1000..1390);
    learner.remove(&rows.without(&removed), &most).unwrap();
    assert!(learner.snapshot(false).unwrap().provisional);
}

#[test]
fn a_refit_that_has_learned_what_is_taken_back_is_not_adopted() {
    let (settings, rows) = (calm(0), stream(400, false, 7));
    let mut learner = critic(&settings, &rows);
    // The second row of a chain that runs.
    let chains = &rows.chains();
    let of_chain = |chain: usize| (0..400).filter(move |&i| chains[i] == chain).collect::<Vec<usize>>();
    let last = |stream: u32| rows.rows.streams.iter().rposition(|&of| of == stream).unwrap();
    let runs = |&i: &usize| !rows.rows.terminated[i] && !rows.rows.truncated[i];
    let running = (0..5).map(last).filter(runs).map(|i| of_chain(rows.chains()[i]));
    let its = running.max_by_key(Vec::len).unwrap();
    assert!(its.len() > 2);
    let second = rows.offsets[its[1]];
    let removed = Offsets::from(second..second + 1);
    let refit = |learner: &mut Learner, window: &Window| {
        let job = learner.refit_job(window, RefitTrigger::Requested).unwrap();
        refit::run(&job, crate::support::GO).unwrap()
    };
    let all = window(&rows);
    let before = refit(&mut learner, &all);
    // The beginning of the chain is not there any more: the sums stay, and it is said.
    let part = tail(&rows, second);
    assert_eq!(learner.remove(&part, &removed), Err(Unremovable::Incomplete));
    assert!(learner.is_stale() && learner.is_refit_requested() && learner.is_consistent());
    let generation = learner.generation();
    assert!(matches!(learner.try_adopt(before, &all), Verdict::Rejected { why: Rejection::RowsRemoved, .. }));
    assert_eq!(learner.generation(), generation);
    // A refit of rows behind them may be adopted, and ends it.
    let mut behind = Window::starting_at(2, 2, 10_000, second + 1);
    behind.extend(&rows.rows, its[1] + 1..400);
    let after = refit(&mut learner, &behind);
    match learner.try_adopt(after, &behind) {
        Verdict::Adopted { .. } => assert!(!learner.is_stale() && learner.residue().offsets().is_empty()),
        other => assert!(!matches!(other, Verdict::Rejected { why: Rejection::RowsRemoved, .. }), "{other:?}"),
    }
}
