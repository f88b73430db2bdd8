//! Decisions of a snapshot: what they are, how often, and that they are the same again.

use criticd_learner::act::{Actor, Decision, Exploration, Question};
use criticd_learner::action::ActionSpace;
use criticd_learner::math::embedding::StateKind;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel, Profile};
use criticd_learner::snapshot::{Actions, Ask, Evaluator, Snapshot};
use nalgebra::DMatrix;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// A snapshot of Q over one state variable and the actions of `space`, of random weights.
fn snapshot(space: ActionSpace, profile: Profile, elements: usize, seed: u64) -> Snapshot {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut uniform = |low: f64, high: f64| low + (high - low) * rng.random_range(0.0..1.0);
    let dim = 1 + space.width();
    let mut dictionary = DMatrix::zeros(elements, dim);
    for i in 0..elements {
        dictionary[(i, 0)] = uniform(-1.0, 1.0);
        match &space {
            ActionSpace::Discrete(count) => dictionary[(i, 1 + i % count)] = 1.0,
            ActionSpace::Box { low, high } => {
                (0..low.len()).for_each(|d| dictionary[(i, 1 + d)] = uniform(low[d], high[d]))
            }
        }
    }
    let relevance = (0..dim).map(|_| uniform(0.5, 3.0)).collect();
    let kernel = Kernel::gaussian(2.0, 0.1, Metric::Ard(relevance)).with_profile(profile);
    let mut numbers = |rows, cols| DMatrix::from_fn(rows, cols, |_, _| uniform(-1.0, 1.0));
    let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.1 };
    let (weights, copies) = (numbers(elements, 1), numbers(elements, 8));
    Snapshot {
        variance: Some(DMatrix::identity(elements, elements) * 1e-3),
        actions: Some(Actions { copies, ..Actions::of(space) }),
        ..Snapshot::of(0.9, hyperparameters, dictionary, weights)
    }
}

fn actor(snapshot: &Snapshot) -> Actor {
    Actor::new(Evaluator::new(snapshot.clone())).unwrap()
}

fn question(exploration: Exploration, step: u64) -> Question<'static> {
    Question { state: &[0.25], exploration, seed: 11, episode: 4, step, candidates: None, unknown_above: None }
}

fn asked(actor: &Actor, exploration: Exploration, step: u64) -> Decision {
    actor.act(&question(exploration, step)).unwrap()
}

/// Q of every discrete action.
fn all(snapshot: &Snapshot, count: usize) -> Vec<f64> {
    let inputs: Vec<f64> = (0..count)
        .flat_map(|a| std::iter::once(0.25).chain((0..count).map(move |b| f64::from(u8::from(a == b)))))
        .collect();
    snapshot.evaluate(&inputs, Ask::MEAN).unwrap().mean.as_slice().to_vec()
}

#[test]
fn decisions_in_two_states_have_two_numbers_although_both_are_numbered_alike() {
    let actor = actor(&snapshot(ActionSpace::Discrete(2), Profile::Matern52, 10, 1));
    let id = |x: f64| {
        let question = Question { state: &[x], ..question(Exploration::Greedy, 0) };
        actor.act(&question).unwrap().id
    };
    assert_eq!(id(0.25), id(0.25));
    assert_ne!(id(0.25), id(0.5));
}

#[test]
fn the_greedy_action_is_the_one_of_the_largest_value() {
    for seed in 0..20 {
        let snapshot = snapshot(ActionSpace::Discrete(4), Profile::Matern52, 30, seed);
        let (actor, q) = (actor(&snapshot), all(&snapshot, 4));
        let best = (0..4).max_by(|&a, &b| q[a].total_cmp(&q[b])).unwrap();
        let found = asked(&actor, Exploration::Greedy, 0);
        assert_eq!((found.action[0] as usize, found.mean, found.probability), (best, q[best], Some(1.0)));
        let others: Vec<f64> = (0..4).filter(|&a| a != best).map(|a| a as f64).collect();
        let second = actor.act(&Question { candidates: Some(&others), ..question(Exploration::Greedy, 0) }).unwrap();
        assert!(others.contains(&second.action[0]) && second.mean <= found.mean, "only among those that were given");
    }
}

#[test]
fn actions_are_taken_as_often_as_their_probabilities_say() {
    let snapshot = snapshot(ActionSpace::Discrete(3), Profile::Gaussian, 30, 5);
    let actor = actor(&snapshot);
    for exploration in [Exploration::EpsilonGreedy(0.3), Exploration::Softmax(0.8)] {
        let (mut counts, mut said) = ([0.0; 3], [0.0; 3]);
        let steps = 20_000;
        for step in 0..steps {
            let found = asked(&actor, exploration, step);
            counts[found.action[0] as usize] += 1.0 / steps as f64;
            said[found.action[0] as usize] = found.probability.unwrap();
        }
        assert!((said.iter().sum::<f64>() - 1.0).abs() < 1e-12, "{exploration:?}: {said:?}");
        // Five standard deviations of a share are below 0.02 here.
        assert!(counts.iter().zip(&said).all(|(c, s)| (c - s).abs() < 0.02), "{exploration:?}: {counts:?} {said:?}");
    }
}

#[test]
fn a_decision_is_the_same_when_it_is_asked_for_again() {
    for space in [ActionSpace::Discrete(3), ActionSpace::Box { low: vec![-1.0; 2], high: vec![2.0; 2] }] {
        let snapshot = snapshot(space, Profile::Gaussian, 30, 6);
        let all = [
            Exploration::Greedy,
            Exploration::EpsilonGreedy(0.5),
            Exploration::Softmax(1.0),
            Exploration::Ucb(2.0),
            Exploration::Thompson,
        ];
        for exploration in all {
            let (one, other) = (actor(&snapshot), actor(&snapshot));
            let first: Vec<Decision> = (0..40).map(|step| asked(&one, exploration, step)).collect();
            let again: Vec<Decision> = (0..40).rev().map(|step| asked(&other, exploration, step)).collect();
            assert!(first.iter().eq(again.iter().rev()), "{exploration:?}");
            let mut ids: Vec<u64> = first.iter().map(|decision| decision.id).collect();
            ids.sort_unstable();
            ids.dedup();
            assert_eq!(ids.len(), 40);
        }
    }
}

#[test]
fn one_copy_acts_for_a_whole_episode() {
    let snapshot = snapshot(ActionSpace::Discrete(3), Profile::Gaussian, 30, 7);
    let actor = actor(&snapshot);
    let copies: Vec<usize> = (0..64)
        .map(|episode| {
            let of = |step| {
                let found = actor.act(&Question { episode, ..question(Exploration::Thompson, step) }).unwrap();
                assert_eq!(found.probability, Some(1.0), "nothing is drawn in a step");
                found.copy.unwrap().0
            };
            assert!((1..5).all(|step| of(step) == of(0)));
            of(0)
        })
        .collect();
    assert!((0..8).all(|copy| copies.contains(&copy)), "{copies:?}");
}

#[test]
fn the_highest_point_of_a_box_is_found() {
    for profile in [Profile::Gaussian, Profile::Matern52] {
        for seed in 0..10 {
            let line = snapshot(ActionSpace::Box { low: vec![-2.0], high: vec![2.0] }, profile, 25, seed);
            let plane = snapshot(ActionSpace::Box { low: vec![-1.0; 2], high: vec![1.0, 3.0] }, profile, 40, seed);
            // Half of the elements are of the state's category.
            let mut sorted = line.clone();
            sorted.dictionary.column_mut(0).iter_mut().enumerate().for_each(|(i, x)| *x = [0.25, 7.0][i % 2]);
            let kernel = sorted.hyperparameters.kernel.with_kinds(&[StateKind::Category, StateKind::Real]);
            sorted.hyperparameters.kernel = kernel;
            for (snapshot, side) in [(&line, 4001), (&sorted, 4001), (&plane, 151)] {
                let space = &snapshot.actions.as_ref().unwrap().space;
                let ActionSpace::Box { low, high } = space else { unreachable!("made above") };
                let at = |d: usize, k: usize| low[d] + (high[d] - low[d]) * k as f64 / (side - 1) as f64;
                let grid: Vec<f64> = if low.len() == 1 {
                    (0..side).flat_map(|k| [0.25, at(0, k)]).collect()
                } else {
                    (0..side * side).flat_map(|k| [0.25, at(0, k / side), at(1, k % side)]).collect()
                };
                let highest = snapshot.evaluate(&grid, Ask::MEAN).unwrap().mean.max();
                let found = asked(&actor(snapshot), Exploration::Greedy, 0);
                assert!(found.mean >= highest - 1e-9, "{profile:?} {seed}: {} below {highest}", found.mean);
                assert!(found.action.iter().zip(low).zip(high).all(|((a, l), h)| l <= a && a <= h));
            }
        }
    }
}

#[test]
fn doubt_is_sought_by_ucb_and_told_to_the_caller() {
    let mut snapshot = snapshot(ActionSpace::Discrete(2), Profile::Gaussian, 20, 9);
    // All is known of action 0 near the state, nothing of action 1.
    snapshot.hyperparameters.kernel.metric = Metric::Ard(vec![1.0, 5.0, 5.0]);
    snapshot.dictionary = DMatrix::from_row_slice(1, 3, &[0.25, 1.0, 0.0]);
    snapshot.weights = DMatrix::from_element(1, 1, 0.1);
    snapshot.variance = Some(DMatrix::from_element(1, 1, 1.0 / 2.1));
    snapshot.actions = Some(Actions::of(ActionSpace::Discrete(2)));
    let actor = actor(&snapshot);
    let limited = |exploration| Question { unknown_above: Some(0.5), ..question(exploration, 0) };
    let greedy = actor.act(&limited(Exploration::Greedy)).unwrap();
    assert_eq!((greedy.action[0], greedy.unknown), (0.0, false), "{greedy:?}");
    let curious = actor.act(&limited(Exploration::Ucb(1.0))).unwrap();
    assert_eq!((curious.action[0], curious.unknown), (1.0, true), "{curious:?}");
}

#[test]
fn what_cannot_be_answered_is_refused_by_name() {
    let mut snapshot = snapshot(ActionSpace::Discrete(2), Profile::Gaussian, 20, 10);
    let field = |snapshot: &Snapshot, question: Question<'_>| actor(snapshot).act(&question).unwrap_err().field;
    assert_eq!(field(&snapshot, Question { state: &[0.1, 0.2], ..question(Exploration::Greedy, 0) }), "state");
    assert_eq!(field(&snapshot, question(Exploration::EpsilonGreedy(1.5), 0)), "epsilon");
    assert_eq!(field(&snapshot, question(Exploration::Softmax(0.0), 0)), "temperature");
    assert_eq!(field(&snapshot, question(Exploration::Ucb(f64::NAN), 0)), "beta");
    assert_eq!(
        field(&snapshot, Question { candidates: Some(&[2.0]), ..question(Exploration::Greedy, 0) }),
        "candidates"
    );
    assert_eq!(field(&snapshot, Question { candidates: Some(&[]), ..question(Exploration::Greedy, 0) }), "candidates");
    snapshot.actions = Some(Actions::of(ActionSpace::Discrete(2)));
    assert_eq!(field(&snapshot, question(Exploration::Thompson, 0)), "exploration");
    snapshot.variance = None;
    assert_eq!(field(&snapshot, question(Exploration::Ucb(1.0), 0)), "exploration");
    assert_eq!(
        field(&snapshot, Question { unknown_above: Some(1.0), ..question(Exploration::Greedy, 0) }),
        "unknown_above"
    );
    snapshot.actions = None;
    assert_eq!(Actor::new(Evaluator::new(snapshot)).unwrap_err().field, "actions");
}
