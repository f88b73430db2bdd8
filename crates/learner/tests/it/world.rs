//! What must hold of a model of the transition, whatever rows it learned; what it refuses.

use crate::support::error;
use criticd_learner::math::columns;
use criticd_learner::math::dense::Matrix;
use criticd_learner::math::embedding::StateKind;
use criticd_learner::math::hull::{Reach, cover, nearest};
use criticd_learner::math::kernel::{Kernel, Metric};
use criticd_learner::math::pursuit::{Pursuit, by_targets};
use criticd_learner::snapshot::Inputs;
use criticd_learner::world::{
    Basis, Chained, Dynamics, LOST_MAX, Part, Plan, Planning, Pursuing, Table, Transitions, UNSUPPORTED_ABOVE,
    UNSUPPORTED_MAX, World, WorldError,
};
use criticd_reference::explicit_seed;
use criticd_reference::golden_world::{GivenCase, read};
use proptest::prelude::*;

/// A case, with the empty world of its dictionaries.
fn case(name: &str) -> (GivenCase, World) {
    let given = GivenCase::new(&read(name));
    let (after, ..) = given.after();
    let (elements, _) = given.pursue(&after);
    let world = given.empty(after, &elements);
    (given, world)
}

fn numbers(of: &Matrix) -> Vec<f64> {
    (0..of.cols()).flat_map(|j| of.col(j).to_vec()).collect()
}

/// How far the sums of two worlds are apart.
fn apart(a: &World, b: &World) -> f64 {
    let sums = |w: &World| {
        [numbers(&w.gram()), numbers(w.coupling()), numbers(w.outcomes()), vec![w.rows(), w.lost().unwrap()]]
    };
    sums(a).iter().zip(&sums(b)).map(|(a, b)| error(a, b)).fold(0.0, f64::max)
}

fn solved(name: &str) -> (GivenCase, Dynamics, Table) {
    let (given, mut world) = case(name);
    world.learn(&given.rows()).unwrap();
    let dynamics = world.solve(given.ridge(), LOST_MAX).unwrap();
    let at_c = dynamics.table(&dynamics.after().states(), given.actions()).unwrap();
    (given, dynamics, at_c)
}

#[test]
fn rows_one_by_one_in_another_order_or_in_two_halves_give_the_sums_of_the_batch() {
    for name in ["terminated_106", "box_5"] {
        let (given, empty) = case(name);
        let (rows, n) = (given.rows(), given.rows().terminated.len());
        let learned = |numbers: &[usize], piece: usize| {
            let mut world = empty.clone();
            numbers.chunks(piece).for_each(|some| world.learn(&Part::of(&rows, some).rows()).unwrap());
            world
        };
        let all: Vec<usize> = (0..n).collect();
        let batch = learned(&all, n);
        assert!(apart(&learned(&all, 1), &batch) < 1e-13, "{name}: one by one");
        let turned: Vec<usize> = (0..n).map(|i| (i * 37 + 5) % n).collect();
        assert!(apart(&learned(&turned, 7), &batch) < 1e-13, "{name}: another order");
        let mut half = learned(&all[..n / 2], n);
        half.merge(&learned(&all[n / 2..], n)).unwrap();
        assert!(apart(&half, &batch) < 1e-13, "{name}: two halves");
        // Rows that have been forgotten to a half count as half of them do.
        let mut twice = batch.clone();
        twice.merge(&batch).unwrap();
        twice.forget(0.5);
        assert!(apart(&twice, &batch) < 1e-13, "{name}: forgotten to a half");
        // What a checkpoint keeps goes on as if nothing had been.
        let bytes = rmp_serde::to_vec_named(&batch).unwrap();
        let mut read: World = rmp_serde::from_slice(&bytes).unwrap();
        let mut batch = batch;
        [&mut read, &mut batch].into_iter().for_each(|world| world.learn(&rows).unwrap());
        assert_eq!(rmp_serde::to_vec_named(&read).unwrap(), rmp_serde::to_vec_named(&batch).unwrap());
    }
}

#[test]
fn a_plan_for_the_observed_reward_of_the_chain_is_value_iteration_on_counts() {
    let (given, dynamics, at_c) = solved("chain_101");
    let (rows, states, choices) = (given.rows(), dynamics.after().states(), given.choices());
    let m = states.len();
    let place = |x: f64| states.iter().position(|state| *state == x).unwrap();
    let (mut counts, mut paid) = (vec![0.0; m * choices * m], vec![0.0; m * choices]);
    for i in 0..rows.terminated.len() {
        let input = &rows.inputs[i * (1 + choices)..(i + 1) * (1 + choices)];
        let pair = place(input[0]) * choices + input[1..].iter().position(|on| *on == 1.0).unwrap();
        counts[pair * m + place(rows.successors[i])] += 1.0;
        paid[pair] += rows.rewards[i];
    }
    let entry = |pair: usize, v: &[f64]| {
        let of = &counts[pair * m..(pair + 1) * m];
        let total = of.iter().sum::<f64>() + given.ridge();
        (paid[pair] + given.discount() * of.iter().zip(v).map(|(n, v)| n * v).sum::<f64>()) / total
    };
    let mut v = vec![0.0; m];
    for _ in 0..2000 {
        v = (0..m).map(|c| (0..choices).map(|a| entry(c * choices + a, &v)).fold(f64::MIN, f64::max)).collect();
    }
    let rewards = at_c.rewards().col(0);
    let planning = Planning { rewards, discount: given.discount(), bounds: None, unsupported_above: None };
    let plan = at_c.plan(&planning).unwrap();
    assert!(plan.settled() && error(&plan.values, &v) < 1e-12, "{:?} {v:?}", plan.values);
    // And that is what the preferred actions are worth.
    let q = plan.action_values(&at_c, rewards).unwrap();
    let found = at_c.evaluate(&Plan::policy(choices, &q), at_c.rewards(), given.discount()).unwrap();
    assert!(error(found.values().col(0), &v) < 1e-12);
}

#[test]
fn values_are_those_of_least_squares_temporal_differences() {
    let (given, dynamics, at_c) = solved("mp_102");
    let policy = given.policy(&dynamics.after().states());
    let found = at_c.evaluate(&policy, at_c.rewards(), given.discount()).unwrap();
    // Q = psi'w with w = A^-1 P_r + gamma U_V, and V is Q averaged over the policy.
    let w = dynamics.weights(found.values().col(0), given.discount(), Some(0));
    let (states, dim) = (dynamics.after().states(), dynamics.after().dim());
    let mut v = vec![0.0; at_c.states()];
    for (c, x) in states.chunks_exact(dim).enumerate() {
        for (a, action) in given.actions().chunks_exact(given.choices()).enumerate() {
            let psi = dynamics.before().features(&[x, action].concat());
            let q: f64 = psi.col(0).iter().zip(&w).map(|(psi, w)| psi * w).sum();
            v[c] += policy[c * given.choices() + a] * q;
        }
    }
    assert!(error(&v, found.values().col(0)) < 1e-11);
    assert!(!found.is_doubtful() && found.radius() < 1.0);
}

#[test]
fn projected_embeddings_lie_in_the_hull_and_every_policy_of_them_has_a_value() {
    for name in ["terminated_106", "coarse_707", "backfit_4"] {
        let (given, dynamics, at_c) = solved(name);
        let hull = dynamics.hull();
        let found = at_c.projected(&hull);
        for (j, termination) in at_c.termination().iter().enumerate() {
            let weights = found.mass().col(j);
            let share = (1.0 - termination).clamp(0.0, 1.0);
            assert!(weights.iter().all(|w| *w >= 0.0), "{name}: {weights:?}");
            assert!((weights.iter().sum::<f64>() - share).abs() < 1e-12, "{name}: {weights:?}");
        }
        // Projecting once more moves nothing.
        assert!(error(&numbers(found.projected(&hull).mass()), &numbers(found.mass())) < 1e-9, "{name}");
        for action in 0..given.choices() {
            let policy: Vec<f64> =
                (0..at_c.mass().cols()).map(|j| f64::from(u8::from(j % given.choices() == action))).collect();
            let value = found.evaluate(&policy, found.rewards(), 0.999).unwrap();
            assert!(value.radius() < 1.0 + 1e-9, "{name}: {}", value.radius());
        }
    }
}

#[test]
fn a_deviation_does_not_depend_on_the_pieces_that_rows_come_in() {
    let (given, dynamics, at_c) = solved("terminated_106");
    let at = dynamics.table(&given.query(), given.actions()).unwrap();
    let (policy, starting) = (given.policy(&dynamics.after().states()), given.policy(&given.query()));
    let found = at_c.evaluate(&policy, at_c.rewards(), given.discount()).unwrap();
    let (rows, n) = (given.rows(), given.rows().terminated.len());
    let variance = |piece: usize, observed: Option<usize>| {
        let mut sums = found.deviation(&dynamics, (&at, &starting), 0, observed).unwrap();
        (0..n).collect::<Vec<_>>().chunks(piece).for_each(|some| sums.add(&Part::of(&rows, some).rows(), 1.0));
        sums.variance(1.0)
    };
    let whole = variance(n, Some(0));
    assert!(error(&variance(1, Some(0)), &whole) < 1e-12);
    // A reward that is known exactly is not scattered about.
    assert!(error(&variance(n, None), &whole) > 1e-3);
}

#[test]
fn weights_of_a_pursuit_leave_what_it_says_and_no_column_is_chosen_twice() {
    let (n, kinds) = (30, [Pursuit::Matching, Pursuit::Backfitting, Pursuit::Orthogonal]);
    let wave = |k: usize, i: usize| ((k + 1) as f64 * 0.37 * i as f64 + k as f64).sin() + 0.3;
    let matrix = |of: &[usize]| {
        Matrix::from_columns(n, of.len(), of.iter().flat_map(|&k| (0..n).map(move |i| wave(k, i))).collect())
    };
    let (columns, targets) = (matrix(&[0, 1, 2, 0, 3, 1, 4]), matrix(&[9, 10, 11]));
    for pursuit in kinds {
        assert_eq!(Pursuit::from_name(pursuit.name()), Some(pursuit));
        let found = by_targets(&columns, &targets, pursuit, (7, 0.0), &|| true).unwrap();
        let mut chosen = found.chosen.clone();
        chosen.sort_unstable();
        assert_eq!(chosen, [0, 1, 2, 4, 6], "{pursuit:?}");
        let left = |i: usize, h: usize| {
            let told = found.chosen.iter().enumerate().map(|(k, &j)| columns.at(i, j) * found.weights.at(k, h));
            targets.at(i, h) - told.sum::<f64>()
        };
        let sum: f64 = (0..n).flat_map(|i| (0..3).map(move |h| (i, h))).map(|(i, h)| left(i, h).powi(2)).sum();
        assert!((sum / found.residuals[4] - 1.0).abs() < 1e-10, "{pursuit:?}: {sum} {:?}", found.residuals);
        assert!(found.residuals.windows(2).all(|w| w[1] <= w[0]));
        assert!(by_targets(&columns, &targets, pursuit, (7, 0.0), &|| false).is_none());
        // A gain that is too small ends it.
        let share = found.gains[0] / (found.gains[0] + found.residuals[0]);
        let chosen = |enough: f64| by_targets(&columns, &targets, pursuit, (7, enough), &|| true).unwrap().chosen.len();
        assert!(chosen(1.001 * share) == 0 && chosen(0.999 * share) > 0, "{pursuit:?}");
    }
}

#[test]
fn a_pursuit_leaves_less_of_where_rows_lead_than_as_many_pivots() {
    for (name, by) in
        [("ols_3", Pursuit::Orthogonal), ("box_5", Pursuit::Backfitting), ("coarse_707", Pursuit::Orthogonal)]
    {
        let given = GivenCase::new(&read(name));
        let (rows, (kernel, _), (after, ..)) = (given.rows(), given.kernels(), given.after());
        let n = rows.terminated.len();
        let inputs = Inputs::identity(rows.inputs.len() / n);
        let pursued = |candidates: usize, enough: f64| {
            let pursuing = Pursuing { by, candidates, enough, seed: 3 };
            Basis::pursued(&inputs, kernel, (&rows, &after), &pursuing, 6)
        };
        // What least squares leaves of the targets.
        let left = |before: &Basis| {
            let mut world = World::new(before.clone(), after.clone(), 1).unwrap();
            world.learn(&rows).unwrap();
            let dynamics = world.solve(1e-6, f64::INFINITY).unwrap();
            let found = dynamics.entries(rows.inputs, 1).unwrap();
            let mut sum = 0.0;
            for i in (0..n).filter(|&i| !rows.terminated[i]) {
                let dim = after.dim();
                let truth = after.features(&rows.successors[i * dim..(i + 1) * dim]);
                // alpha = L_C^-T U'psi, so that L_C' alpha is what is predicted.
                let factor = after.dictionary().factor();
                let told = |k: usize| (k..after.len()).map(|c| factor.at(c, k) * found.mass().at(c, i)).sum::<f64>();
                sum += (0..after.len()).map(|k| (truth.at(k, 0) - told(k)).powi(2)).sum::<f64>();
            }
            sum
        };
        let (pivots, _) = Basis::pivots(inputs.clone(), kernel, rows.inputs, 1e-6, 6);
        let found = pursued(n, 0.0).unwrap();
        assert_eq!((pivots.len(), found.len()), (6, 6), "{name}");
        assert!(left(&found) < left(&pivots), "{name}: {} {}", left(&found), left(&pivots));
        // The elements are of some of the candidates, the same for the same seed; and as many as explain enough.
        assert!(pursued(n, 0.0).unwrap().is(&found) && !pursued(6, 0.0).unwrap().is(&found), "{name}");
        assert!(pursued(n, 0.2).unwrap().len() < 6, "{name}");
        assert_eq!(pursued(n, 1.0).unwrap_err(), WorldError::Unexplained(1.0));
    }
}

#[test]
fn a_lossy_set_is_the_reference_and_refused_where_it_does_not_fit() {
    for name in ["ols_3", "terminated_106"] {
        let case = read(name);
        let given = GivenCase::new(&case);
        let (rows, (_, kernel)) = (given.rows(), given.kernels());
        let dim = rows.successors.len() / rows.terminated.len();
        let followed = (0..rows.terminated.len()).filter(|&i| !rows.terminated[i]);
        let states: Vec<f64> = followed.flat_map(|i| rows.successors[i * dim..(i + 1) * dim].to_vec()).collect();
        let distance = case["lossy_delta"].as_f64().unwrap().powi(2) / kernel.signal_variance;
        let lossy = |max: usize| Basis::lossy(&Inputs::identity(dim), kernel, &states, (distance, max));
        let (basis, _) = lossy(80).unwrap();
        let expected = criticd_reference::numbers(&case["expected"]["lossy"]["rows"]);
        let expected: Vec<f64> = expected
            .iter()
            .flat_map(|i| rows.successors[*i as usize * dim..(*i as usize + 1) * dim].to_vec())
            .collect();
        assert_eq!(basis.states(), expected, "{name}");
        let few = basis.len() - 1;
        assert_eq!(lossy(few).unwrap_err(), WorldError::Uncovered { elements: few, distance });
    }
}

fn delta(dim: usize) -> Kernel {
    Kernel::gaussian(1.0, 0.0, Metric::Ard(vec![400.0; dim]))
}

/// A chain of three states whose second action was taken nowhere; action 0 leads to the right and costs 1.
fn half_tried(elements: &[f64]) -> Result<(Dynamics, Table), WorldError> {
    let before =
        Basis::of_states(Inputs::identity(3), &delta(3), &[0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 2.0, 1.0, 0.0]).unwrap();
    let after = Basis::of_states(Inputs::identity(1), &delta(1), elements).unwrap();
    let mut world = World::new(before, after, 1)?;
    for _ in 0..9 {
        world.learn(&Transitions {
            inputs: &[0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 2.0, 1.0, 0.0],
            successors: &[1.0, 2.0, 2.0],
            rewards: &[-1.0; 3],
            terminated: &[false; 3],
        })?;
    }
    let dynamics = world.solve(0.01, LOST_MAX)?;
    let at_c = dynamics.table(&dynamics.after().states(), &[1.0, 0.0, 0.0, 1.0])?;
    Ok((dynamics, at_c))
}

#[test]
fn actions_that_no_row_tried_are_valued_at_the_least_and_told_of() {
    let (dynamics, at_c) = half_tried(&[0.0, 1.0, 2.0]).unwrap();
    assert_eq!(at_c.unsupported(UNSUPPORTED_ABOVE).collect::<Vec<_>>(), [false, true].repeat(3));
    assert_eq!(at_c.unsupported_share(UNSUPPORTED_ABOVE, None), 0.5);
    let planning = |unsupported_above| Planning { rewards: &[-1.0; 6], discount: 0.9, bounds: None, unsupported_above };
    // Believed, they promise that nothing is to be paid any more.
    let believed = at_c.plan(&planning(None)).unwrap();
    assert_eq!(believed.greedy, [1, 1, 1]);
    let plan = at_c.plan(&planning(Some(UNSUPPORTED_ABOVE))).unwrap();
    assert_eq!(plan.greedy, [0, 0, 0]);
    let start = dynamics.table(&[0.0], &[1.0, 0.0, 0.0, 1.0]).unwrap();
    let q = plan.action_values(&start, &[-1.0; 2]).unwrap();
    assert!(q[0] > q[1] && q[1] == plan.bounds.0, "{q:?}");
    let limits = (UNSUPPORTED_ABOVE, UNSUPPORTED_MAX);
    let share =
        |policy: [f64; 2], limits| at_c.motion(&policy.repeat(3)).unwrap().support((&start, &policy), 0.9, limits);
    assert_eq!(share([1.0, 0.0], limits), Ok(0.0));
    // One in two of the first step, and what follows it of those that are known.
    let half = share([0.5, 0.5], (UNSUPPORTED_ABOVE, 1.0)).unwrap();
    assert!((half - 0.5).abs() < 1e-12);
    assert_eq!(share([0.5, 0.5], limits), Err(WorldError::Unsupported { share: half, max: UNSUPPORTED_MAX }));
}

#[test]
fn chains_through_categories_are_led_on_as_the_tables_lead_them() {
    let of = |kinds: &[StateKind], relevance: Vec<f64>| {
        let kernel = Kernel::gaussian(1.0, 1.0, Metric::Ard(relevance)).with_kinds(kinds);
        (Inputs::identity(kinds.len()), kernel)
    };
    // 0, 2, 1, and 1 for ever, by one action.
    let (inputs, successors) = ([0.0, 0.0, 2.0, 0.0, 1.0, 0.0], [2.0, 1.0, 1.0]);
    let (before, over_inputs) = of(&[StateKind::Category, StateKind::Real], vec![1.0, 1.0]);
    let (after, over_states) = of(&[StateKind::Category], vec![1.0]);
    let before = Basis::of_states(before, &over_inputs, &inputs).unwrap();
    let mut world = World::new(before, Basis::of_states(after, &over_states, &successors[..2]).unwrap(), 1).unwrap();
    let rows = Transitions { inputs: &inputs, successors: &successors, rewards: &[0.0; 3], terminated: &[false; 3] };
    (0..9).for_each(|_| world.learn(&rows).unwrap());
    let dynamics = world.solve(0.01, LOST_MAX).unwrap();
    let state = |state: &[f64]| vec![state[0]];
    let ahead = dynamics.ahead(&Chained { rows, follows: &[Some(1), Some(2), None] }, &[0], &state, 3);
    let table = |states: &[f64]| dynamics.table(states, &[0.0]).unwrap();
    let (at_c, start) = (table(&dynamics.after().states()), table(&[0.0]));
    let course = dynamics.course((&at_c, &[1.0; 2]), (&start, &[1.0]), &state, (3, false)).unwrap();
    for (step, came) in successors.into_iter().enumerate() {
        let (led, told) = (ahead[step].predicted[0], course[step].means[0]);
        assert!((led - told).abs() < 1e-9 && (led - came).abs() < 0.05, "{step}: {led}, {told}");
        assert_eq!(ahead[step].came, [came]);
    }
    // Chains that end sooner or later, and with a row that terminates, are led on side by side as each alone.
    let rows = Transitions { terminated: &[false, false, true], ..rows };
    for follows in [[Some(1), Some(2), None], [Some(1), None, None], [None, Some(2), None]] {
        let of = Chained { rows, follows: &follows };
        let together = dynamics.ahead(&of, &[2, 0, 1], &state, 3);
        let alone = [2, 0, 1].map(|start| dynamics.ahead(&of, &[start], &state, 3));
        for (step, found) in together.iter().enumerate() {
            let expected: Vec<f64> = alone.iter().flat_map(|of| of[step].predicted.clone()).collect();
            assert!(error(&found.predicted, &expected) < 1e-12, "{found:?}, {expected:?}");
            assert_eq!(found.came, alone.iter().flat_map(|of| of[step].came.clone()).collect::<Vec<f64>>());
        }
        assert_eq!(together[0].came, [2.0, 1.0], "nothing follows what terminates");
    }
}

#[test]
fn each_trap_is_refused() {
    // C lacks most of where the rows lead.
    let lost = half_tried(&[1.0]).unwrap_err();
    assert!(matches!(lost, WorldError::Lost { lost, elements: 1, .. } if (lost - (2.0f64 / 3.0).sqrt()).abs() < 1e-9));
    // Mass of nothing.
    let (given, dynamics, at_c) = solved("coarse_707");
    let policy = given.policy(&dynamics.after().states());
    let evaluate = |policy: &[f64], discount: f64| at_c.evaluate(policy, at_c.rewards(), discount);
    assert!(evaluate(&policy, given.discount()).unwrap().is_doubtful());
    let unstable = evaluate(&policy, 0.999).unwrap_err();
    assert!(matches!(unstable, WorldError::Unstable { radius, .. } if radius > 1.006));
    assert!(unstable.to_string().contains("spectral radius 1.006"), "{unstable}");
    // Values of which none is that of a terminal state.
    let entries = at_c.mass().cols();
    let ones = vec![1.0; entries];
    let planning = |bounds, discount| Planning { rewards: &ones, discount, bounds, unsupported_above: None };
    let plan = |bounds, discount| at_c.plan(&planning(bounds, discount)).unwrap_err();
    assert_eq!(plan(Some((1.0, 2.0)), 0.9), WorldError::Bounds { low: 1.0, high: 2.0 });
    assert_eq!(plan(None, 1.0), WorldError::Discount(1.0));
    assert!(matches!(evaluate(&policy, -0.1), Err(WorldError::Discount(_))));
    // Probabilities that are none, and lengths that do not fit.
    let twice: Vec<f64> = policy.iter().map(|p| 2.0 * p).collect();
    assert!(matches!(evaluate(&twice, 0.9), Err(WorldError::Probabilities { state: 0, .. })));
    assert!(matches!(evaluate(&policy[1..], 0.9), Err(WorldError::Size { what: "probabilities", .. })));
    let at = dynamics.table(&given.query(), given.actions()).unwrap();
    assert!(matches!(at.evaluate(&given.policy(&given.query()), at.rewards(), 0.9), Err(WorldError::Size { .. })));
    assert!(matches!(dynamics.table(&given.query()[1..], given.actions()), Err(WorldError::Size { .. })));
    // Worlds that cannot be.
    let (_, mut world) = case("coarse_707");
    assert_eq!(world.solve(0.1, LOST_MAX).unwrap_err(), WorldError::Empty);
    world.learn(&given.rows()).unwrap();
    assert_eq!(world.solve(0.0, LOST_MAX).unwrap_err(), WorldError::Ridge(0.0));
    assert_eq!(world.merge(&case("backfit_4").1), Err(WorldError::Different));
    let short = Transitions { rewards: &[], ..given.rows() };
    assert!(matches!(world.learn(&short), Err(WorldError::Size { what: "rewards", .. })));
    let basis = |kernel: &Kernel, dim| Basis::of_states(Inputs::identity(dim), kernel, &vec![0.0; dim]).unwrap();
    let linear = Kernel { bias_variance: 1.0, ..delta(1) }.with_linear_columns(1, 1.0, columns::GivenFunction::Linear);
    assert_eq!(World::new(basis(&delta(2), 2), basis(&linear, 1), 1).unwrap_err(), WorldError::Columns);
    assert!(World::new(basis(&delta(1), 1), basis(&delta(1), 1), 1).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..explicit_seed() })]

    /// No point of the hull is nearer: from the one found, no point lies on the side of the target.
    #[test]
    fn nothing_in_a_hull_is_nearer_than_what_is_found(
        points in prop::collection::vec(prop::collection::vec(-1.0..1.0f64, 4), 1..14),
        target in prop::collection::vec(-1.5..1.5f64, 4),
    ) {
        let product = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let with_target: Vec<f64> = points.iter().map(|p| product(p, &target)).collect();
        let found = nearest(&|i, j| product(&points[i], &points[j]), &with_target, product(&target, &target));
        prop_assert!(found.weights.iter().all(|w| *w >= 0.0));
        prop_assert!((found.weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let mean = |d: usize| points.iter().zip(&found.weights).map(|(p, w)| w * p[d]).sum::<f64>();
        let off: Vec<f64> = (0..4).map(|d| mean(d) - target[d]).collect();
        prop_assert!((product(&off, &off) - found.squared_distance).abs() < 1e-11);
        for point in &points {
            let along: f64 = (0..4).map(|d| (point[d] - target[d] - off[d]) * off[d]).sum();
            prop_assert!(along > -1e-11, "{along}");
        }
    }

    /// Whatever is left out of a cover is reached by what is in it, and with negatives and 0 no further than without.
    #[test]
    fn what_a_cover_leaves_out_is_near_to_it(states in prop::collection::vec(-2.0..2.0f64, 2..60), radius in 0.05..0.6f64) {
        let kernel = Kernel::gaussian(1.3, 10.0, Metric::Ard(vec![1.0, 0.5]));
        let states = &states[..states.len() / 2 * 2];
        let found = cover(&kernel, 2, states, radius, usize::MAX, Reach::Convex);
        prop_assert_eq!(found.distances.len(), states.len() / 2);
        prop_assert_eq!(found.distances[0], 1.3f64.sqrt());
        for (i, distance) in found.distances.iter().enumerate() {
            prop_assert_eq!(found.chosen.contains(&i), *distance > radius);
        }
        let signed = cover(&kernel, 2, states, radius, usize::MAX, Reach::Absolute);
        // The second state meets the same set in both.
        if states.len() > 2 {
            prop_assert!(signed.distances[1] <= found.distances[1] + 1e-7);
        }
        let few = cover(&kernel, 2, states, radius, 2, Reach::Absolute);
        prop_assert!(few.chosen.len() <= 2 && few.chosen[..] == signed.chosen[..few.chosen.len()]);
    }
}
