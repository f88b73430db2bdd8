//! A head of any kind says what a critic says that learned what the head sums as its own reward.

#[path = "support/heads.rs"]
mod support;

use criticd::sim::{self, Step, walk::Walk};
use criticd::snapshot::Ask;
use criticd::transition::{Batch, BatchParts};
use support::{Harness, assert_close, config, mean_and_variance};

const STATES: [f64; 5] = [0.1, 0.35, 0.5, 0.8, 0.95];
const DISCOUNT: f64 = 0.8;

/// Rows of a walk in pieces of 20, whose actions are the steps, with episodes that end and episodes that are cut.
fn walk() -> Vec<Batch> {
    let mut walk = Walk::new(1, Some(25), 0.1);
    let steps: Vec<Step> = (0..1200).map(|_| walk.step()).collect();
    let acting = |batch: Batch| {
        let actions = (0..batch.len()).flat_map(|i| [batch.next_state(i)[0] - batch.state(i)[0], 0.5]).collect();
        Batch::new(BatchParts { actions: Some(actions), ..batch.into_parts() }).unwrap()
    };
    steps.chunks(20).flat_map(|part| sim::batches("walk", "run", part)).map(acting).collect()
}

/// The same rows with another reward, and the discount of each, as a function of the row's state, action, reward, next state, and of
/// whether it terminated.
fn paid(batches: &[Batch], of: &dyn Fn(&Row) -> (f64, f64)) -> Vec<Batch> {
    let rows = |batch: &Batch| {
        let found: Vec<(f64, f64)> = (0..batch.len())
            .map(|i| {
                of(&Row {
                    state: batch.state(i)[0],
                    action: batch.action(i).unwrap()[0],
                    reward: batch.reward(i)[0],
                    next_state: batch.next_state(i)[0],
                    terminated: batch.terminated(i),
                })
            })
            .collect();
        let (rewards, discounts) = found.into_iter().unzip();
        Batch::new(BatchParts { rewards, discounts: Some(discounts), ..batch.clone().into_parts() }).unwrap()
    };
    batches.iter().map(rows).collect()
}

struct Row {
    state: f64,
    action: f64,
    reward: f64,
    next_state: f64,
    terminated: bool,
}

fn critic(name: &str, heads: &str) -> String {
    format!(
        "[[critic]]\nname = \"{name}\"\ndiscount = {DISCOUNT:?}\nlambda = 1.0\nselection = \"evidence\"\nvariance = \"model\"\n\
         estimate_scale = false\ndrift_sensitivity = \"off\"\nwarmup_rows = 20\nrefit_first_rows = 0\ndictionary_max = 12\n\
         backfill_rows = 40\nrefresh_rows = 32\n{heads}"
    )
}

#[test]
fn a_head_of_each_kind_says_what_a_critic_of_that_reward_says() {
    let inside = |x: f64| if (0.3..=0.7).contains(&x) { 1.0 } else { 0.25 };
    let slope = |x: f64| (1.2 - x).clamp(0.0, 1.0);
    type Paid<'a> = Box<dyn Fn(&Row) -> f64 + 'a>;
    type Kept<'a> = Box<dyn Fn(&Row) -> f64 + 'a>;
    let always = || -> Kept<'_> { Box::new(|_| 1.0) };
    let kinds: Vec<(&str, &str, f64, Paid<'_>, Kept<'_>)> = vec![
        ("reward", "cumulant = { kind = \"reward\", index = 0 }", 0.0, Box::new(|row| row.reward), always()),
        ("state", "cumulant = { kind = \"state\", index = 0 }", 0.0, Box::new(|row| row.state), always()),
        ("next", "cumulant = { kind = \"next_state\", index = 0 }", 0.0, Box::new(|row| row.next_state), always()),
        ("action", "cumulant = { kind = \"action\", index = 0 }", 0.0, Box::new(|row| row.action), always()),
        ("constant", "cumulant = { kind = \"constant\", value = 1.5 }", 0.0, Box::new(|_| 1.5), always()),
        (
            "event",
            "cumulant = { kind = \"event\", index = 0, above = 0.5 }",
            0.0,
            Box::new(|row| f64::from(u8::from(row.state <= 0.5 && row.next_state > 0.5))),
            always(),
        ),
        (
            "expression",
            "cumulant = { kind = \"expression\", text = \"reward - 0.1*action[0] + next_state[0]/2 - state[0] + 0.25\" }",
            0.0,
            Box::new(|row| row.reward - 0.1 * row.action + row.next_state / 2.0 - row.state + 0.25),
            always(),
        ),
        (
            "terminal",
            "cumulant = { kind = \"constant\", value = 0.0 }, terminal_reward = 2.0",
            2.0,
            Box::new(|_| 0.0),
            always(),
        ),
        (
            "half",
            "cumulant = { kind = \"state\", index = 0 }, continuation = 0.5, terminal_reward = -1.0",
            -1.0,
            Box::new(|row| row.state),
            Box::new(|_| 0.5),
        ),
        (
            "inside",
            "cumulant = { kind = \"action\", index = 0 }, terminal_reward = 0.5, \
             continuation = { kind = \"inside\", index = 0, low = 0.3, high = 0.7, outside = 0.25 }",
            0.5,
            Box::new(|row| row.action),
            Box::new(|row| inside(row.next_state)),
        ),
        (
            "slope",
            "cumulant = { kind = \"reward\", index = 0 }, terminal_reward = 3.0, \
             continuation = { kind = \"expression\", text = \"1.2 - next_state[0]\" }",
            3.0,
            Box::new(|row| row.reward),
            Box::new(|row| slope(row.next_state)),
        ),
    ];
    let rows = walk();
    for (name, definition, terminal_reward, paid_by, kept_by) in &kinds {
        // What ends is paid with the row, and what goes on is the discount of the row.
        let found = paid(&rows, &|row| {
            let kept = if row.terminated { 0.0 } else { kept_by(row) };
            let discount = if row.terminated { DISCOUNT } else { kept * DISCOUNT };
            (paid_by(row) + (1.0 - kept) * terminal_reward, discount)
        });
        let mut own = Harness::new(config(&critic("own", "")));
        own.learn(&found);
        let own = own.snapshot(0);
        let noise = own.hyperparameters.noise_variance;
        // The first kernel comes from the first rewards: the host learns the reward of the critic that its head is compared with.
        let host = critic(
            "host",
            &format!(
                "rewards = [1]\nheads = [{{ name = \"{name}\", {definition}, discount = {DISCOUNT:?}, signal = 1.0, \
                 noise_variance = {noise:?} }}]\n"
            ),
        );
        let both = |(batch, own): (&Batch, &Batch)| {
            let rewards = (0..batch.len()).flat_map(|i| [batch.reward(i)[0], own.reward(i)[0]]).collect();
            let parts = own.clone().into_parts();
            Batch::new(BatchParts { rewards, rewards_per_row: 2, ..parts }).unwrap()
        };
        let mut shared = Harness::new(config(&host));
        shared.learn(&rows.iter().zip(&found).map(both).collect::<Vec<_>>());
        let shared = shared.snapshot(0);
        assert_eq!(own.dictionary, shared.dictionary, "{name}: the comparison is one of equal dictionaries");
        let expected = own.evaluate(&STATES, Ask::VARIANCE).unwrap();
        let expected: Vec<f64> = expected.mean.iter().chain(expected.variance.as_ref().unwrap()).copied().collect();
        assert_close(name, &mean_and_variance(&shared, name, &STATES), &expected);
    }
}
