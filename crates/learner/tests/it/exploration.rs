//! An agent whose state is a table finds what only a long sequence of right decisions earns, if its Q is optimistic.

use criticd_learner::KindSetting;
use criticd_learner::act::{Actor, Exploration, Question};
use criticd_learner::action::{ActionValue, Successor, Trace};
use criticd_learner::math::embedding::StateKind;
use criticd_learner::refit;
use criticd_learner::snapshot::Evaluator;
use criticd_learner::transition::{Batch, BatchParts};
use criticd_learner::window::Window;
use criticd_learner::{DriftSensitivity, Lambda, Learner, Settings};
use criticd_sim::tasks::{DeepSea, Task as _};

const SIZE: usize = 8;
const EPISODES: u64 = 40;

/// Relevances of the kernel in the first episode of a greedy agent that earns the treasure; none where no episode does.
fn found(prior_mean: f64, seed: u64) -> Option<Vec<f64>> {
    let mut sea = DeepSea::new(SIZE, seed);
    let of = ActionValue { space: sea.space(), successor: Successor::Improve, trace: Trace::OnPolicy };
    let settings = Settings {
        action_value: Some(of),
        state_kinds: vec![KindSetting::Known(StateKind::Category); 2],
        prior_mean,
        lambda: Lambda::Fixed(0.0),
        improve_rows: SIZE as u64,
        refit_first_rows: 128,
        refit_growth: 1.5,
        drift_sensitivity: DriftSensitivity::Off,
        ..Settings::default()
    };
    let (mut learner, window) = (Learner::new(settings, None), Window::new(2, 1, 1));
    let mut actor: Option<Actor> = None;
    for episode in 0..EPISODES {
        let mut state = sea.start(episode);
        let mut parts = BatchParts { stream: "s".into(), dim: 2, rewards_per_row: 1, ..BatchParts::default() };
        let (mut next, mut actions) = (Vec::new(), Vec::new());
        for step in 0..SIZE as u64 {
            let exploration = Exploration::Greedy;
            let question =
                Question { state: &state, exploration, seed, episode, step, candidates: None, unknown_above: None };
            // Before there is a model: left and right in turn.
            let action = actor
                .as_ref()
                .map_or(vec![((episode + step) % 2) as f64], |actor| actor.act(&question).unwrap().action);
            let outcome = sea.step(&action);
            parts.states.append(&mut state);
            parts.rewards.push(outcome.reward);
            next.extend_from_slice(&outcome.state);
            actions.extend(action);
            state = outcome.state;
        }
        if parts.rewards.iter().sum::<f64>() > 0.5 {
            return Some(learner.hyperparameters().unwrap().kernel.metric.relevance(4));
        }
        parts.terminated = Some((1..=SIZE).map(|step| step == SIZE).collect());
        (parts.next_states, parts.actions) = (Some(next), Some(actions));
        let batch = Batch::new(parts).unwrap();
        let starts: Vec<bool> = (0..SIZE).map(|step| step == 0).collect();
        learner.take(0, &starts, &batch, episode * SIZE as u64);
        learner.step(&window);
        while let Some(trigger) = learner.refit_due() {
            let job = learner.refit_job(&window, trigger).unwrap();
            learner.try_adopt(refit::run(&job, &|| true).unwrap(), &window);
        }
        actor = learner.snapshot(false).ok().map(|snapshot| Actor::new(Evaluator::new(snapshot)).unwrap());
    }
    None
}

#[test]
fn optimism_of_a_table_reaches_the_treasure() {
    for seed in 0..3 {
        let relevances = found(1.0, seed).expect("every cell is tried before one is tried again for nothing");
        assert_eq!(relevances, [25.0; 4], "no cell and no action is taken for another");
    }
    assert!(found(0.0, 0).is_none(), "without optimism nothing leads there");
}
