//! Learners of different streams are together what one learner of all of them is.

use crate::removal::{assert_same, empty, learned, settings, stream};
use criticd_learner::merge::{Coordinator, Message, MessageVerdict, Version};
use criticd_learner::model::{MergeError, Model, Sums};
use criticd_learner::removal::{Offsets, Placed};
use criticd_learner::{Lambda, Settings, VarianceKind};
use criticd_reference::distance;

/// Rows of many streams, by worker.
fn shards(all: &Placed, count: u32) -> Vec<Placed> {
    let of = |worker: u32| {
        let others = (0..all.len()).filter(|&i| all.rows.streams[i] % count != worker);
        all.without(&others.map(|i| all.offsets[i]..all.offsets[i] + 1).collect())
    };
    (0..count).map(of).collect()
}

fn bits(model: &Model) -> Vec<u8> {
    rmp_serde::to_vec_named(model).unwrap()
}

fn streams(count: u32, ratios: bool) -> Placed {
    let mut rows = criticd_reference::wander(800, count, 2, 21);
    if ratios {
        (0..rows.len()).step_by(4).for_each(|i| rows.ratios[i] = [0.4, 1.7][i / 4 % 2]);
    }
    Placed::from_offset(rows, 0)
}

#[test]
fn shards_are_together_one_learner() {
    for settings in settings().into_iter().filter(|settings| settings.forgetting.is_none()) {
        for ratios in [false, true] {
            let all = streams(16, ratios);
            let one = learned(&settings, &all);
            for count in [2, 4, 8] {
                let workers: Vec<Sums> = shards(&all, count).iter().map(|its| learned(&settings, its).sums()).collect();
                let mut merged = empty(settings.clone()).merged(&workers).unwrap();
                let told = format!("{count} workers, lambda {:?}, ratios {ratios}", settings.lambda);
                assert_same(&merged, &one, &told);
                // Sums that are written and read are the same.
                let written: Vec<u8> = rmp_serde::to_vec_named(&workers).unwrap();
                let read: Vec<Sums> = rmp_serde::from_slice(&written).unwrap();
                assert!(bits(&empty(settings.clone()).merged(&read).unwrap()) == bits(&merged));
                // The second round: the scatter of all rows under the weights of all rows.
                let parts: Vec<_> = shards(&all, count)
                    .iter()
                    .map(|its| learned(&settings, its).scatter_of(&merged, its.pieces()).unwrap())
                    .collect();
                merged.set_scatter(parts.iter());
                let mut whole = one.clone();
                whole.refresh();
                whole.revisit(std::iter::once((&all.rows, 0..all.len(), 0)));
                let scatter = |of: &Model| {
                    let found = of.scatter().unwrap();
                    (0..found.cols()).flat_map(|j| found.col(j)[j..].to_vec()).collect::<Vec<f64>>()
                };
                assert!(distance(&scatter(&merged), &scatter(&whole)) < 1e-9, "{told}: scatter");
            }
        }
    }
}

#[test]
fn the_same_messages_give_the_same_bits_in_any_order() {
    let settings = settings().swap_remove(2);
    let all = streams(16, true);
    let message = |worker: u32, rows: usize, removals, incarnation| {
        let its = &shards(&all, 4)[worker as usize];
        let first = its.without(&Offsets::from(its.offsets[rows]..u64::MAX));
        let version = Version { incarnation, removals, offset: rows as u64 };
        Message { epoch: 7, worker, version, sums: learned(&settings, &first).sums() }
    };
    let messages = [
        message(3, 40, 0, 0),
        message(0, 30, 0, 0),
        message(0, 60, 0, 0),
        message(0, 20, 1, 0),
        message(1, 50, 0, 0),
        message(2, 50, 2, 0),
        message(2, 10, 0, 1),
    ];
    let order = |numbers: &[usize]| {
        let mut coordinator = Coordinator::new(7);
        for &number in numbers {
            coordinator.take(messages[number].clone());
        }
        let versions: Vec<_> = coordinator.held().map(|(worker, version, _)| (worker, version)).collect();
        (versions, bits(&empty(settings.clone()).merged(coordinator.sums()).unwrap()))
    };
    let once = order(&[0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(
        once.0.iter().map(|&(worker, version)| (worker, version.offset)).collect::<Vec<_>>(),
        [(0, 20), (1, 50), (2, 10), (3, 40)]
    );
    for numbers in [&[6, 5, 4, 3, 2, 1, 0][..], &[3, 3, 1, 0, 6, 6, 2, 4, 5, 0, 3], &[4, 6, 0, 3]] {
        assert!(order(numbers) == once, "{numbers:?}");
    }
}

#[test]
fn a_message_counts_if_it_is_newer_and_of_the_present_epoch() {
    let version = |incarnation, removals, offset| Version { incarnation, removals, offset };
    let mut coordinator = Coordinator::new(3);
    let mut take = |epoch, worker, version| coordinator.take(Message { epoch, worker, version, sums: () });
    assert_eq!(take(3, 1, version(0, 0, 10)), MessageVerdict::Accepted);
    assert_eq!(take(3, 1, version(0, 0, 10)), MessageVerdict::NotNewer { held: version(0, 0, 10) });
    assert_eq!(take(3, 1, version(0, 0, 9)), MessageVerdict::NotNewer { held: version(0, 0, 10) });
    assert_eq!(take(2, 1, version(9, 9, 99)), MessageVerdict::WrongEpoch { present: 3 });
    // Fewer rows are newer after a removal, and after a journal was lost.
    assert_eq!(take(3, 1, version(0, 1, 4)), MessageVerdict::Accepted);
    assert_eq!(take(3, 1, version(1, 0, 2)), MessageVerdict::Accepted);
    assert_eq!(take(3, 1, version(0, 2, 90)), MessageVerdict::NotNewer { held: version(1, 0, 2) });
    assert_eq!(take(3, 0, version(0, 0, 0)), MessageVerdict::Accepted);
    assert_eq!(coordinator.held().map(|(worker, ..)| worker).collect::<Vec<_>>(), [0, 1]);
    assert_eq!((coordinator.dismiss(1), coordinator.dismiss(1)), (Some(()), None));
    assert_eq!((coordinator.version(1), coordinator.version(0)), (None, Some(Version::default())));
}

#[test]
fn an_epoch_is_all_that_sums_must_have_in_common() {
    let of = |change: &dyn Fn(&mut Settings)| {
        let mut settings = settings().swap_remove(2);
        change(&mut settings);
        empty(settings).epoch()
    };
    let same = of(&|_| ());
    assert_eq!(of(&|settings| settings.refit_first_rows += 1), same);
    let rows = stream(200, false, 1);
    assert_eq!(learned(&settings()[2], &rows).epoch(), same);
    let others = [
        of(&|settings| settings.lambda = Lambda::Fixed(0.71)),
        of(&|settings| settings.discount *= 0.999),
        of(&|settings| settings.rho_max = Some(7.0)),
        of(&|settings| settings.variance = VarianceKind::Clustered),
        of(&|settings| settings.forgetting = Some(1000.0)),
        of(&|settings| settings.rewards = vec![1]),
        of(&|settings| settings.heads.truncate(1)),
    ];
    assert!(others.iter().all(|&other| other != same));
}

#[test]
fn sums_that_do_not_fit_are_refused() {
    let rows = stream(200, false, 1);
    let settings = settings();
    let sums = |settings: &Settings| learned(settings, &rows).sums();
    let plain = &settings[2];
    let merged = |sums: Sums| empty(plain.clone()).merged(&[sums]).map(|_| ());
    assert_eq!(merged(sums(plain)), Ok(()));
    assert_eq!(merged(sums(&settings[3])), Err(MergeError::Forgets));
    assert_eq!(merged(sums(&settings[5])), Err(MergeError::Unlike));
    let mut fewer = plain.clone();
    fewer.heads.pop();
    assert_eq!(merged(sums(&fewer)), Err(MergeError::Unlike));
    fewer.heads.clear();
    assert_eq!(merged(sums(&fewer)), Err(MergeError::Unlike));
}
