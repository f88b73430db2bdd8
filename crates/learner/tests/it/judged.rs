//! The interval of a fitted Q: it holds the truth as often as it says where the dictionary can grow, and there is none where the rows
//! do not support one.

use criticd_learner::action::{ActionColumns, ActionSpace, ActionValue, Column};
use criticd_learner::batch::{BatchError, Given};
use criticd_learner::math::dictionary::StoppingRule;
use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
use criticd_learner::off_policy::{ELEMENTS_MAX, Estimate, Fault, Findings, Judged, NoInterval, Policy, Taught, learn};
use criticd_learner::snapshot::Inputs;
use criticd_learner::transition::Rows;
use criticd_learner::{Lambda, Settings, VarianceKind, effective_tolerance};
use criticd_reference::push;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;

/// Rows of an episode.
const EPISODE: usize = 10;
const DISCOUNT: f64 = 0.8;
/// Elements that the dictionary begins with: too few.
const FEW: usize = 6;

/// Probabilities of the two actions under the policy that is judged.
fn judged_policy(state: f64) -> [f64; 2] {
    if state > 0.5 { [0.2, 0.8] } else { [0.8, 0.2] }
}

/// Of one step: wherever it leads, the next state is anywhere in [0, 1].
fn mean_reward(state: f64, action: f64) -> f64 {
    (6.0 * state).cos() + action * (state - 0.3)
}

/// The integral of the mean reward under the policy over [0, 1], divided by 1 - discount.
fn truth() -> f64 {
    let of_action = 0.2 * (0.125 - 0.15) + 0.8 * (0.375 - 0.15);
    (6f64.sin() / 6.0 + of_action) / (1.0 - DISCOUNT)
}

/// Episodes of a policy that takes action 1 with probability `right`; rewards vary with standard deviation `noise`.
fn episodes(count: usize, right: f64, noise: f64, seed: u64, policy: impl Fn(f64) -> [f64; 2]) -> Judged {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut rows = Rows::new(1, 1);
    let (mut columns, mut of, mut answers) = (ActionColumns::default(), Vec::new(), Vec::new());
    columns.actions.width = 1;
    for episode in 0..count {
        let mut at = rng.random::<f64>();
        for step in 0..EPISODE {
            let action = f64::from(rng.random::<f64>() < right);
            let reward = mean_reward(at, action) + noise * 3f64.sqrt() * rng.random_range(-1.0..1.0);
            let next = rng.random::<f64>();
            push(&mut rows, 0, step == 0, &[at], &[reward], &[next], false, step + 1 == EPISODE);
            columns.actions.values.push(action);
            answers.extend(policy(at));
            of.push(episode as u32);
            at = next;
        }
    }
    let policy = Policy::Probabilities(Column { width: 2, values: answers });
    policy.fill(&rows, &mut columns).unwrap();
    Judged { rows, episodes: of, columns, policy: Some(policy), discount: DISCOUNT, rho_max: None }
}

#[derive(Debug)]
#[expect(dead_code, reason = "a test that fails shows them")]
enum Failed {
    Fault(Fault),
    Batch(BatchError),
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Findings by a Q whose dictionary has [`FEW`] elements at first, and `most` at last.
fn found(judged: &Judged, noise_variance: f64, most: usize) -> Findings {
    let kernel = Kernel::gaussian(1.0, 16.0, Metric::Ard(vec![60.0, 2.0, 2.0]));
    let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance };
    let inputs = Inputs::identity(3);
    let mut fit = |of: &ActionValue, rows: &Rows, taught: Taught| {
        let settings = Settings {
            action_value: Some(of.clone()),
            discount: DISCOUNT,
            lambda: Lambda::Fixed(0.0),
            estimate_scale: false,
            variance: VarianceKind::Rows,
            ..Settings::default()
        };
        let given = Given {
            settings: &settings,
            rows,
            inputs: &inputs,
            hyperparameters: &hyperparameters,
            lambda: 0.0,
            first: 0,
        };
        let enough = StoppingRule { tolerance: effective_tolerance(&settings, &hyperparameters), trace: 0.0 };
        let few = given.select(enough, FEW, &|| true).map_err(Failed::Batch)?.dictionary;
        learn(&given, few, if taught == Taught::All { most } else { 0 }, &|| true).map_err(Failed::Batch)
    };
    let fitted = judged.fitted(ActionSpace::Discrete(2), (0, 0), &mut fit, &mut |_| {}).unwrap();
    judged.findings(Some(fitted), 30.0)
}

fn fqe(found: &Findings) -> (Estimate, Vec<NoInterval>) {
    let (_, estimate, refusals) = found.estimates().into_iter().find(|(name, ..)| *name == "fqe").unwrap();
    (estimate, refusals)
}

#[test]
fn a_dictionary_that_grows_gives_intervals_that_hold_the_truth() {
    let mut held = 0;
    for seed in 0..40 {
        let judged = episodes(60, 0.5, 0.5, seed, judged_policy);
        let (_, refused) = fqe(&found(&judged, 0.7, 0));
        assert!(matches!(refused[..], [NoInterval::TraceGap { elements: FEW, .. }]), "{refused:?}");
        let found = found(&judged, 0.7, ELEMENTS_MAX);
        let (estimate, refused) = fqe(&found);
        assert!(refused.is_empty(), "{refused:?}");
        let fitted = found.fitted.as_ref().unwrap();
        assert!(fitted.trace_gap <= 5.0 && fitted.elements < 60, "{} {}", fitted.trace_gap, fitted.elements);
        let [low, high] = estimate.interval();
        assert!(high - low < 1.5, "{low} to {high}");
        held += u32::from((low..=high).contains(&truth()));
    }
    // Nine of ten are promised; two standard errors fewer are 32.
    assert!((32..=40).contains(&held), "{held} of 40 intervals hold {}", truth());
}

#[test]
fn the_rows_alone_decide_how_far_a_dictionary_grows_and_it_is_bounded() {
    let judged = episodes(60, 0.5, 0.5, 1, judged_policy);
    let [once, again] = [(); 2].map(|()| found(&judged, 0.7, ELEMENTS_MAX));
    assert_eq!(fqe(&once), fqe(&again));
    let bounded = found(&judged, 0.7, FEW + 2);
    assert!(matches!(fqe(&bounded).1[..], [NoInterval::TraceGap { elements, .. }] if elements == FEW + 2));
    let few = bounded.fitted.as_ref().unwrap().trace_gap;
    assert!(few > once.fitted.as_ref().unwrap().trace_gap);
}

#[test]
fn rows_that_weights_take_up_give_no_interval() {
    let judged = episodes(2, 0.5, 0.01, 1, judged_policy);
    let (_, refused) = fqe(&found(&judged, 1e-4, ELEMENTS_MAX));
    assert!(
        matches!(refused[..], [NoInterval::FewRows { rows, freedom }] if 2.0 * freedom > rows as f64),
        "{refused:?}"
    );
    assert!(refused[0].to_string().starts_with("no interval of the fitted Q: 18 rows decide"));
}

#[test]
fn a_policy_that_does_what_was_not_done_gets_no_interval() {
    let always = |_| [0.0, 1.0];
    let judged = episodes(60, 0.0, 0.5, 1, always);
    let (_, refused) = fqe(&found(&judged, 0.7, ELEMENTS_MAX));
    assert!(refused.iter().any(|refusal| matches!(refusal, NoInterval::Far { share } if *share == 1.0)), "{refused:?}");
}
