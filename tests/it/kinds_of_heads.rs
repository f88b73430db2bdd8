//! A head of any kind says what a critic says that learned what the head sums as its own reward.

use crate::support::harness::{Harness, about_zero, assert_close, mean_and_variance};
use criticd::sim::{self, Step, walk::Walk};
use criticd::snapshot::Ask;
use criticd::transition::{Batch, BatchParts};

const STATES: [f64; 5] = [0.1, 0.35, 0.5, 0.8, 0.95];
const DISCOUNT: f64 = 0.8;
/// Of the head that looks ahead by time, seconds.
const TIMESCALE: f64 = 2.0;
/// How often each row counts for the head that has a weight.
const COUNTS: f64 = 4.0;

/// Rows of a walk in pieces of 20, whose actions are the steps, at uneven times, with episodes that end and episodes that are cut.
fn walk() -> Vec<Batch> {
    let mut walk = Walk::new(1, Some(25), 0.1);
    let steps: Vec<Step> = (0..1200).map(|_| walk.step()).collect();
    let (mut row, mut time) = (0, 1e9);
    let acting = |batch: Batch| {
        let actions = (0..batch.len()).flat_map(|i| [batch.next_state(i)[0] - batch.state(i)[0], 0.5]).collect();
        let ends: Vec<bool> = (0..batch.len()).map(|i| batch.truncated(i) && batch.next_state(i)[0] > 0.0).collect();
        let cut: Vec<bool> = (0..batch.len()).map(|i| batch.truncated(i) && !ends[i]).collect();
        let mut times = Vec::new();
        for _ in 0..batch.len() {
            time += [0.25, 1.0, 0.5][row % 3];
            row += 1;
            times.push(time);
        }
        let (terminated, truncated) = (Some(ends), Some(cut));
        let (actions, times) = (Some(actions), Some(times));
        Batch::new(BatchParts { actions, times, terminated, truncated, ..batch.into_parts() }).unwrap()
    };
    steps.chunks(20).flat_map(|part| sim::batches("walk", "run", part)).map(acting).collect()
}

/// Of each row the time to the next one of its chain. At the end of a chain it is that from the row before, and 1 s in a chain of
/// one row.
fn seconds(batches: &[Batch]) -> Vec<f64> {
    struct Moment {
        seq: u64,
        time: f64,
        ends: bool,
    }
    let mut moments = Vec::new();
    for batch in batches {
        for i in 0..batch.len() {
            let (seq, time) = (batch.seq().unwrap() + i as u64, batch.time(i).unwrap());
            moments.push(Moment { seq, time, ends: batch.terminated(i) || batch.truncated(i) });
        }
    }
    let step = |i: usize| -> Option<f64> {
        let (row, next) = (moments.get(i)?, moments.get(i + 1)?);
        (!row.ends && row.seq + 1 == next.seq).then_some(next.time - row.time)
    };
    let before = |i: usize| -> Option<f64> { step(i.checked_sub(1)?) };
    (0..moments.len()).map(|i| step(i).or_else(|| before(i)).unwrap_or(1.0)).collect()
}

/// The same rows with another reward, and the discount of each, as a function of the row.
fn paid(batches: &[Batch], of: &dyn Fn(&Row) -> (f64, f64)) -> Vec<Batch> {
    let mut seconds = seconds(batches).into_iter();
    let rows = |batch: &Batch| {
        let found: Vec<(f64, f64)> = (0..batch.len())
            .map(|i| {
                of(&Row {
                    state: batch.state(i)[0],
                    action: batch.action(i).unwrap()[0],
                    reward: batch.reward(i)[0],
                    next_state: batch.next_state(i)[0],
                    terminated: batch.terminated(i),
                    seconds: seconds.next().unwrap(),
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
    /// To the next row of the chain.
    seconds: f64,
}

type OfRow = Box<dyn Fn(&Row) -> f64>;

/// A head, and what a critic of its own is to learn instead.
struct Kind {
    name: &'static str,
    /// What the head says of itself beside its name, how far it looks, its noise and its scale.
    definition: String,
    /// How far it looks, as it says that.
    rate: String,
    terminal_reward: f64,
    /// What is summed.
    paid: OfRow,
    /// Share of the future that goes on after a row that does not terminate.
    kept: OfRow,
    discount: OfRow,
    /// How often each row counts.
    counts: f64,
}

impl Kind {
    fn new(name: &'static str, definition: &str, paid: impl Fn(&Row) -> f64 + 'static) -> Self {
        Self {
            name,
            definition: definition.to_owned(),
            rate: format!("discount = {DISCOUNT:?}"),
            terminal_reward: 0.0,
            paid: Box::new(paid),
            kept: Box::new(|_: &Row| 1.0),
            discount: Box::new(|_: &Row| DISCOUNT),
            counts: 1.0,
        }
    }
}

fn inside(x: f64) -> f64 {
    if (0.3..=0.7).contains(&x) { 1.0 } else { 0.25 }
}

fn slope(x: f64) -> f64 {
    (1.2 - x).clamp(0.0, 1.0)
}

fn indicator(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

/// Heads of all kinds. The second of the rewards is the one that is compared; the third is a share that goes on, and the fourth how
/// often a row counts.
fn kinds() -> Vec<Kind> {
    let expression =
        "cumulant = { kind = \"expression\", text = \"reward - 0.1*action[0] + next_state[0]/2 - state[0] + 0.25\" }";
    vec![
        Kind::new("reward", "cumulant = { kind = \"reward\", index = 0 }", |row| row.reward),
        Kind::new("state", "cumulant = { kind = \"state\", index = 0 }", |row| row.state),
        Kind::new("next", "cumulant = { kind = \"next_state\", index = 0 }", |row| row.next_state),
        Kind::new("action", "cumulant = { kind = \"action\", index = 0 }", |row| row.action),
        Kind::new("constant", "cumulant = { kind = \"constant\", value = 1.5 }", |_| 1.5),
        Kind::new("rises", "cumulant = { kind = \"event\", index = 0, above = 0.5 }", |row| {
            indicator(row.state <= 0.5 && row.next_state > 0.5)
        }),
        Kind::new("falls", "cumulant = { kind = \"event\", index = 0, below = 0.5 }", |row| {
            indicator(row.state >= 0.5 && row.next_state < 0.5)
        }),
        Kind::new("expression", expression, |row| {
            row.reward - 0.1 * row.action + row.next_state / 2.0 - row.state + 0.25
        }),
        Kind {
            terminal_reward: 2.0,
            ..Kind::new("terminal", "cumulant = { kind = \"constant\", value = 0.0 }, terminal_reward = 2.0", |_| 0.0)
        },
        Kind {
            terminal_reward: -1.0,
            kept: Box::new(|_: &Row| 0.5),
            ..Kind::new(
                "half",
                "cumulant = { kind = \"state\", index = 0 }, continuation = 0.5, terminal_reward = -1.0",
                |row| row.state,
            )
        },
        Kind {
            terminal_reward: 0.5,
            kept: Box::new(|row: &Row| inside(row.next_state)),
            ..Kind::new(
                "inside",
                "cumulant = { kind = \"action\", index = 0 }, terminal_reward = 0.5, \
                 continuation = { kind = \"inside\", index = 0, low = 0.3, high = 0.7, outside = 0.25 }",
                |row| row.action,
            )
        },
        Kind {
            terminal_reward: 3.0,
            kept: Box::new(|row: &Row| slope(row.next_state)),
            ..Kind::new(
                "slope",
                "cumulant = { kind = \"reward\", index = 0 }, terminal_reward = 3.0, \
                 continuation = { kind = \"expression\", text = \"1.2 - next_state[0]\" }",
                |row| row.reward,
            )
        },
        Kind {
            terminal_reward: -2.0,
            kept: Box::new(|row: &Row| slope(row.next_state)),
            ..Kind::new(
                "column",
                "cumulant = { kind = \"state\", index = 0 }, terminal_reward = -2.0, \
                 continuation = { kind = \"reward\", index = 2 }",
                |row| row.state,
            )
        },
        Kind {
            rate: format!("timescale = {TIMESCALE:?}"),
            discount: Box::new(|row: &Row| (-row.seconds / TIMESCALE).exp()),
            ..Kind::new("seconds", "cumulant = { kind = \"reward\", index = 0 }", |row| row.reward)
        },
        Kind {
            counts: COUNTS,
            ..Kind::new("counted", "cumulant = { kind = \"state\", index = 0 }, weight = { index = 3 }", |row| {
                row.state
            })
        },
    ]
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
    let rows = walk();
    let terminated = rows.iter().map(|batch| (0..batch.len()).filter(|&i| batch.terminated(i)).count()).sum::<usize>();
    assert!(terminated > 0, "some episodes end");
    for kind in kinds() {
        let Kind { name, definition, rate, terminal_reward, counts, .. } = &kind;
        // What ends is paid with the row, and what goes on is the discount of the row.
        let found = paid(&rows, &|row| {
            let kept = if row.terminated { 0.0 } else { (kind.kept)(row) };
            let discount = if row.terminated { DISCOUNT } else { kept * (kind.discount)(row) };
            ((kind.paid)(row) + (1.0 - kept) * terminal_reward, discount)
        });
        let mut own = Harness::new(about_zero(&critic("own", "")));
        own.learn(&found);
        let own = own.snapshot(0);
        // A row that counts four times with four times the noise says as much.
        let noise = counts * own.hyperparameters.noise_variance;
        // The first kernel comes from the first rewards: the host learns the reward of the critic that its head is compared with.
        let host = critic(
            "host",
            &format!(
                "rewards = [1]\nheads = [{{ name = \"{name}\", {definition}, {rate}, signal = 1.0, noise_variance = {noise:?} }}]\n"
            ),
        );
        let both = |(batch, own): (&Batch, &Batch)| {
            let row = |i: usize| [batch.reward(i)[0], own.reward(i)[0], slope(batch.next_state(i)[0]), COUNTS];
            let rewards = (0..batch.len()).flat_map(row).collect();
            let parts = own.clone().into_parts();
            Batch::new(BatchParts { rewards, rewards_per_row: 4, ..parts }).unwrap()
        };
        let mut shared = Harness::new(about_zero(&host));
        shared.learn(&rows.iter().zip(&found).map(both).collect::<Vec<_>>());
        let shared = shared.snapshot(0);
        assert_eq!(own.dictionary, shared.dictionary, "{name}: the comparison is one of equal dictionaries");
        let expected = own.evaluate(&STATES, Ask::VARIANCE).unwrap();
        let expected: Vec<f64> = expected.mean.iter().chain(expected.variance.as_ref().unwrap()).copied().collect();
        assert_close(name, &mean_and_variance(&shared, name, &STATES), &expected);
    }
}
