//! Predicted against realised: what the model said of a state before it learned of it, and what then came.
//!
//! A return counts once its chain has terminated, or once what is still to come weighs less than a hundredth and the model's
//! value may stand for it. One that is cut before, as by a time limit, counts with the model's value at the cut if that weighs little
//! ([`CUT`]), and is marked. With more of that value the model would be compared with itself.
//!
//! Values of actions are compared where they belong to the policy that acts (`successor = "sarsa"`): the return of another
//! policy does not come. What is left of a return is then Q of the next row's state and action.

use super::pairs::{KeptPairs, ModelEvidence, Pair, Pairs};
use crate::hindsight::scattered;
use crate::learner::Settings;
use crate::learner::action::{ActionSpace, Successor};
use crate::learner::verification::gather;
use crate::learner::window::Window;
use crate::math::kernel::NoiseModel;
use crate::snapshot::{Ask, Evaluator, Snapshot};
use crate::transition::Rows;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Arc;

/// Rewards of a critic that are compared: the first ones.
pub(crate) const REWARDS: usize = 16;
/// States whose return is waited for at a time.
const OPEN: usize = 256;
/// States that are newly followed each time rows come.
const SAMPLES: usize = 16;
/// A return is complete when what is still to come counts for less than this.
const REST: f64 = 0.01;
/// A return that is cut counts when what was still to come counts for less than this.
pub(super) const CUT: f64 = 0.3;
/// Returns that were cut too early, one after the other, from which on it is said that none can be known.
const CUT_TOO_EARLY: u32 = 30;
/// Rows for which a state is followed at most.
const FOLLOWED_ROWS_MAX: u32 = 100_000;
/// A state that is being followed.
#[derive(Clone, Debug)]
struct FollowedState {
    /// Of V, the same for each reward.
    variance: f64,
    /// Of each reward.
    rewards: Vec<Collected>,
    /// Discount of the next reward.
    factor: f64,
    /// Of the model that predicted.
    generation: u64,
    /// Sum of squared discounts: what white noise adds up to.
    squares: f64,
    rows: u32,
    /// Whether no other such state of its chain was visited shortly before: their returns have hardly a reward in common.
    apart: bool,
}

/// What a followed state has gathered of one reward.
#[derive(Clone, Copy, Debug)]
struct Collected {
    mean: f64,
    /// Of the return, where the model knows how returns scatter.
    return_variance: Option<f64>,
    /// Rewards since, discounted.
    sum: f64,
}

/// Predictions and returns of one critic.
#[derive(Debug)]
pub(super) struct Calibration {
    discount: f64,
    policy: Policy,
    /// The model that predicts: it has not learned the rows that come next.
    model: Option<Arc<Evaluator>>,
    /// The states of each stream that are being followed.
    chains: HashMap<u32, Vec<FollowedState>>,
    /// Of its rewards, the first ones.
    rewards: Vec<Pairs>,
    /// Rows before this offset have been seen.
    next: u64,
    /// Returns that were cut too early since the last one that is known, and how many rows the longest of them had.
    too_early: (u32, u32),
}

/// A state whose return is complete.
#[derive(Debug)]
struct CompleteState {
    sample: FollowedState,
    /// What comes behind it.
    rest: Vec<f64>,
    /// Whether the return was cut there.
    cut: bool,
}

/// Whose values are compared with the returns that come.
#[derive(Debug)]
enum Policy {
    /// Values of states.
    States,
    /// Values of actions, of the policy that acts.
    Acting(ActionSpace),
    /// Values of actions, of another policy: they are not compared.
    Other,
}

impl Policy {
    /// (D,) state of row i, or (D + A,) with its action; none where the row has no such action.
    fn input(&self, rows: &Rows, i: usize) -> Option<Vec<f64>> {
        let mut input = rows.state(i).to_vec();
        match self {
            Self::States => Some(input),
            Self::Acting(space) => {
                let action = rows.action(i).get(..space.numbers())?;
                space.append(action, &mut input).ok().map(|()| input)
            }
            Self::Other => None,
        }
    }
}

impl Calibration {
    pub(super) fn new(settings: &Settings) -> Self {
        let policy = match &settings.action_value {
            None => Policy::States,
            Some(of) if of.successor == Successor::Sarsa => Policy::Acting(of.space.clone()),
            Some(_) => Policy::Other,
        };
        Self {
            policy,
            discount: settings.discount,
            model: None,
            chains: HashMap::new(),
            rewards: settings
                .rewards
                .iter()
                .take(REWARDS)
                .map(|&column| Pairs::new(settings.discount, column))
                .collect(),
            next: 0,
            too_early: (0, 0),
        }
    }

    /// Rows of the longest of the newest returns, where all of them were cut too early to be compared.
    pub(super) fn cut_after(&self) -> Option<u32> {
        Some(self.too_early).filter(|(count, _)| *count >= CUT_TOO_EARLY).map(|(_, rows)| rows)
    }

    /// The pairs of each reward, for another run.
    pub(super) fn keep(&self, critic: &str) -> Vec<KeptPairs> {
        self.rewards.iter().map(|pairs| pairs.keep(critic)).collect()
    }

    /// Begin with the pairs of an earlier run, as [`Pairs::resume`] does.
    pub(super) fn resume(&mut self, kept: &KeptPairs, generation: u64) {
        self.rewards.iter_mut().for_each(|pairs| pairs.resume(kept, generation));
    }

    /// Whether this compares values as a model of this critic gives them.
    pub(super) fn is_about(&self, snapshot: &Snapshot) -> bool {
        match (&self.policy, &snapshot.actions) {
            (Policy::States, None) => true,
            (Policy::Acting(space), Some(of)) => *space == of.space,
            _ => false,
        }
    }

    /// Follow the rows that have arrived. `newest` is the model as it is now: it stands for what is left of returns, and
    /// predicts what comes next time.
    pub(super) fn take(&mut self, window: &Window, newest: Option<Arc<Evaluator>>) {
        if window.start() > self.next {
            // Rows are missing, and their rewards are unknown.
            self.chains.clear();
        }
        let from = self.next.max(window.start());
        self.next = window.end();
        let chosen = self.choose(window, from);
        let mut chosen = chosen.into_iter().peekable();
        // What two returns this far apart have in common weighs a tenth: the square root of what is left at the end of one.
        let spacing = 0.5 * (REST.ln() / self.discount.ln()).abs();
        let mut complete: Vec<CompleteState> = Vec::new();
        for (rows, range, first) in window.since(from) {
            for i in range.clone() {
                let offset = first + (i - range.start) as u64;
                let stream = rows.streams[i];
                if rows.starts_chain[i] {
                    self.chains.remove(&stream);
                }
                if let Some((_, sample)) = chosen.next_if(|(place, _)| *place == offset) {
                    let samples = self.chains.entry(stream).or_default();
                    let apart = !samples.iter().any(|before| before.apart && f64::from(before.rows) < spacing);
                    samples.push(FollowedState { apart, ..sample });
                }
                let Some(samples) = self.chains.get_mut(&stream) else { continue };
                if let Policy::Acting(_) = self.policy {
                    let input = self.policy.input(rows, i);
                    let waited = samples.extract_if(.., |sample| sample.factor < REST);
                    complete.extend(
                        waited.filter_map(|sample| Some(CompleteState { sample, rest: input.clone()?, cut: false })),
                    );
                }
                let (row, discount) = (rows.reward(i), rows.discount(i, self.discount));
                for sample in &mut *samples {
                    sample.squares += sample.factor * sample.factor;
                    let paid = self.rewards.iter().map(|pairs| row[pairs.column]);
                    let sums = sample.rewards.iter_mut().map(|own| &mut own.sum).zip(paid);
                    gather(sums, &mut sample.factor, if rows.terminated[i] { 0.0 } else { discount });
                    sample.rows += 1;
                }
                match self.policy {
                    Policy::States => {
                        let least = if rows.truncated[i] { CUT } else { REST };
                        let done = samples.extract_if(.., |sample| sample.factor < least);
                        complete.extend(done.map(|sample| CompleteState {
                            cut: sample.factor >= REST,
                            sample,
                            rest: rows.next_state(i).to_vec(),
                        }));
                    }
                    // What is left is asked at the next row, whose action is not known yet; of nothing it does not matter where.
                    _ => {
                        let input = self.policy.input(rows, i);
                        let done = samples.extract_if(.., |sample| sample.factor == 0.0);
                        complete.extend(
                            done.filter_map(|sample| Some(CompleteState { sample, rest: input.clone()?, cut: false })),
                        );
                    }
                }
                if rows.truncated[i] {
                    let (count, longest) = self.too_early;
                    let rows = samples.iter().map(|sample| sample.rows).max().unwrap_or(0);
                    self.too_early = (count.saturating_add(samples.len() as u32), longest.max(rows));
                }
                samples.retain(|sample| sample.rows <= FOLLOWED_ROWS_MAX && !rows.truncated[i]);
                if samples.is_empty() {
                    self.chains.remove(&stream);
                }
            }
        }
        if let Some(newest) = &newest {
            self.close(complete, newest);
        }
        self.model = newest;
    }

    /// Some of the new rows, evenly spread, each with what the model says of its state.
    fn choose(&self, window: &Window, from: u64) -> Vec<(u64, FollowedState)> {
        let Some(model) = self.model.as_ref().filter(|model| model.snapshot().state_dim() == window.dim()) else {
            return Vec::new();
        };
        let unlearned = from.max(model.snapshot().offset)..window.end();
        let open: usize = self.chains.values().map(Vec::len).sum();
        // A variance costs the square of the dictionary.
        let m = model.snapshot().dictionary.nrows().max(1);
        let affordable = (50_000_000 / (m * m)).clamp(1, SAMPLES);
        let (mut places, mut states) = (Vec::new(), Vec::new());
        let mut wanted = scattered(unlearned, affordable.min(OPEN.saturating_sub(open))).peekable();
        for (rows, range, first) in window.since(from) {
            while let Some(offset) = wanted.next_if(|offset| *offset < first + range.len() as u64) {
                if let Some(input) = self.policy.input(rows, range.start + (offset - first) as usize) {
                    states.extend(input);
                    places.push(offset);
                }
            }
        }
        let Ok(evaluation) = model.evaluate(&states, Ask { returns: true, ..Ask::VARIANCE }) else { return Vec::new() };
        let generation = model.snapshot().generation;
        // Where no deviation is stated nothing is to be verified.
        let Some(variances) = &evaluation.variance else { return Vec::new() };
        let sample = |(k, offset)| {
            let variance = variances[k];
            let reward = |h| {
                let return_variance = evaluation.return_variance.as_ref().map(|v| v[(k, h)]);
                Collected { mean: evaluation.mean[(k, h)], return_variance, sum: 0.0 }
            };
            let rewards = (0..self.rewards.len().min(evaluation.mean.ncols())).map(reward).collect();
            (offset, FollowedState { variance, rewards, generation, factor: 1.0, squares: 0.0, rows: 0, apart: false })
        };
        places.into_iter().enumerate().map(sample).collect()
    }

    /// Returns that are complete, with what the model says of the rest.
    fn close(&mut self, complete: Vec<CompleteState>, model: &Evaluator) {
        if !complete.is_empty() {
            self.too_early = (0, 0);
        }
        let states: Vec<f64> = complete.iter().flat_map(|done| done.rest.iter().copied()).collect();
        let Ok(rest) = model.evaluate(&states, Ask::MEAN) else { return };
        let noise = &model.snapshot().hyperparameters;
        for (k, CompleteState { sample, cut, .. }) in complete.iter().enumerate() {
            let share = if noise.noise == NoiseModel::White { sample.squares } else { 1.0 };
            let modelled = sample.variance + share * noise.noise_variance;
            for (h, (own, pairs)) in sample.rewards.iter().zip(&mut self.rewards).take(rest.mean.ncols()).enumerate() {
                // The value at a cut scatters less than the rewards that it stands for.
                let known = if *cut { 1.0 - sample.factor * sample.factor } else { 1.0 };
                let pair = Pair {
                    predicted: own.mean,
                    deviation: (known * own.return_variance.unwrap_or(modelled)).sqrt(),
                    cut: *cut,
                    realised: own.sum + sample.factor * rest.mean[(k, h)],
                    rows: sample.rows,
                    generation: sample.generation,
                };
                pairs.add(pair, sample.apart);
            }
        }
        let mut touched: Vec<u64> = complete.iter().map(|done| done.sample.generation).collect();
        touched.dedup();
        for generation in touched {
            self.rewards.iter_mut().for_each(|pairs| pairs.compare(generation));
        }
    }

    /// Of each reward as [`Pairs::to_json`] has them.
    pub(super) fn to_json(&self, with_pairs: bool) -> Value {
        self.rewards.iter().map(|pairs| pairs.to_json(with_pairs)).collect()
    }

    /// Of each reward as [`Pairs::news`] has them.
    pub(super) fn news(&mut self) -> Value {
        self.rewards.iter_mut().map(Pairs::news).collect()
    }

    /// Of each reward as [`Pairs::latest`] has it.
    pub(super) fn latest(&self) -> impl Iterator<Item = Option<[f64; 3]>> {
        self.rewards.iter().map(Pairs::latest)
    }

    /// Of each reward as [`Pairs::evidence`] has it.
    pub(super) fn evidence(&self, generation: u64) -> impl Iterator<Item = Result<ModelEvidence, usize>> {
        self.rewards.iter().map(move |pairs| pairs.evidence(generation))
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::model;
    use super::*;
    use crate::learner::action::{ActionValue, Trace};
    use crate::math::kernel::Metric;
    use crate::snapshot::{Actions, Inputs};
    use crate::transition::{Batch, BatchParts};
    use nalgebra::DMatrix;
    use serde_json::json;

    /// A row at 0.
    fn row_of(reward: f64, terminated: bool, truncated: bool) -> BatchParts {
        BatchParts {
            stream: "s".into(),
            dim: 1,
            rewards_per_row: 1,
            states: vec![0.0],
            next_states: Some(vec![0.0]),
            rewards: vec![reward],
            terminated: Some(vec![terminated]),
            truncated: Some(vec![truncated]),
            ..BatchParts::default()
        }
    }

    fn push(window: &mut Window, stream: u32, starts: bool, reward: f64, terminated: bool, truncated: bool) {
        window.push(stream, starts, &Batch::new(row_of(reward, terminated, truncated)).unwrap(), 0);
    }

    fn calibration() -> Calibration {
        Calibration::new(&Settings { discount: 0.5, ..Settings::default() })
    }

    #[test]
    fn returns_are_discounted_sums_and_those_that_are_cut_end_with_the_value_there() {
        let mut calibration = calibration();
        let mut window = Window::new(1, 1, 1000);
        calibration.take(&window, Some(model(0)));
        // Three streams, interleaved: one terminates after three rows, one is cut off after two, one loses a row.
        for (row, stream) in [0, 1, 0, 1, 0, 2, 2].into_iter().enumerate() {
            push(&mut window, stream, [0, 1, 5, 6].contains(&row), 4.0, row == 4, row == 3);
        }
        calibration.take(&window.from_offset(0), Some(model(7)));
        let mut found: Vec<(f64, bool)> = calibration.rewards[0].pairs.iter().map(|p| (p.realised, p.cut)).collect();
        found.sort_by(|a, b| a.0.total_cmp(&b.0));
        // Of the one that was cut a quarter of the value 10 is left; from its second row on it would be half.
        let close =
            |(found, cut): (f64, bool), expected: f64| (found - expected).abs() < 1e-9 && cut == (expected == 8.5);
        assert!(found.len() == 4 && found.iter().zip([4.0, 6.0, 7.0, 8.5]).all(|(f, e)| close(*f, e)), "{found:?}");
        let deviation = |p: &Pair| if p.cut { (4.0f64 * (1.0 - 1.0 / 16.0)).sqrt() } else { 2.0 };
        let pairs = &calibration.rewards[0].pairs;
        assert!(pairs.iter().all(|p| (p.predicted - 10.0).abs() < 1e-9 && (p.deviation - deviation(p)).abs() < 1e-9));
        assert_eq!((calibration.chains.len(), calibration.chains[&2].len()), (1, 1), "the row behind the gap");
        assert_eq!(calibration.news()[0]["pairs"].as_array().unwrap().len(), 4);
        let news = calibration.news()[0].clone();
        assert_eq!(news["pairs"], json!([]));
        // 10 is predicted with a deviation of 2: within 3.29 are 7 and 8.5.
        assert_eq!(news["summary"]["within_90"], 0.5);
    }

    #[test]
    fn returns_that_are_all_cut_too_early_are_counted_until_one_is_known() {
        let mut calibration = Calibration::new(&Settings { discount: 0.99, ..Settings::default() });
        let mut window = Window::new(1, 1, 1000);
        calibration.take(&window, Some(model(0)));
        let mut episode = |calibration: &mut Calibration, rows: u64, ends: bool| {
            for k in 0..rows {
                push(&mut window, 0, k == 0, 1.0, ends && k + 1 == rows, !ends && k + 1 == rows);
            }
            calibration.take(&window.from_offset(window.end() - rows), Some(model(window.end())));
        };
        (0..3).for_each(|_| episode(&mut calibration, 20, false));
        assert_eq!(calibration.cut_after(), Some(20));
        episode(&mut calibration, 20, true);
        assert_eq!(calibration.cut_after(), None);
        // 0.99^200 = 0.13.
        episode(&mut calibration, 200, false);
        assert!(calibration.rewards[0].pairs.iter().any(|pair| pair.cut) && calibration.cut_after().is_none());
    }

    #[test]
    fn values_of_actions_are_compared_where_they_are_those_of_the_policy_that_acts() {
        let settings = |successor| Settings {
            discount: 0.5,
            action_value: Some(ActionValue { space: ActionSpace::Discrete(2), successor, trace: Trace::OnPolicy }),
            ..Settings::default()
        };
        // Q is 10 for action 0 and 20 for action 1.
        let of_actions = |offset: u64| -> Arc<Evaluator> {
            let of = model(offset);
            let before = Snapshot::clone(of.snapshot());
            let mut kernel = before.hyperparameters.clone();
            kernel.kernel.metric = Metric::Ard(vec![1e-12, 1e3, 1e3]);
            Arc::new(Evaluator::new(Snapshot {
                hyperparameters: kernel,
                inputs: Inputs::identity(3),
                dictionary: DMatrix::from_row_slice(2, 3, &[0.0, 1.0, 0.0, 0.0, 0.0, 1.0]),
                weights: DMatrix::from_column_slice(2, 1, &[10.0, 20.0]),
                variance: Some(DMatrix::zeros(2, 2)),
                actions: Some(Actions::of(ActionSpace::Discrete(2))),
                ..before
            }))
        };
        let mut window = Window::new(1, 1, 1000);
        let mut calibration = Calibration::new(&settings(Successor::Sarsa));
        assert!(calibration.is_about(of_actions(0).snapshot()) && !calibration.is_about(model(0).snapshot()));
        calibration.take(&window, Some(of_actions(0)));
        for row in 0..16u32 {
            let batch = Batch::new(BatchParts {
                stream: "s".into(),
                dim: 1,
                rewards_per_row: 1,
                states: vec![0.0],
                next_states: Some(vec![0.0]),
                rewards: vec![1.0],
                actions: Some(vec![f64::from(row % 2)]),
                ..BatchParts::default()
            });
            window.push(0, row == 0, &batch.unwrap(), 0);
        }
        calibration.take(&window, Some(of_actions(16)));
        // Seven rows are discounted to below a hundredth; the eighth says which action is left.
        assert_eq!(calibration.rewards[0].pairs.len(), 16 - 7);
        for (row, pair) in calibration.rewards[0].pairs.iter().enumerate() {
            assert!((pair.predicted - [10.0, 20.0][row % 2]).abs() < 1e-6, "{pair:?}");
            let left = 0.5f64.powi(7);
            let expected = 2.0 - 2.0 * left + left * [20.0, 10.0][row % 2];
            assert!((pair.realised - expected).abs() < 1e-6, "{pair:?} {expected}");
        }
        let other = Calibration::new(&settings(Successor::Improve));
        assert!(!other.is_about(of_actions(0).snapshot()), "returns of the best policy do not come");
    }

    #[test]
    fn each_generation_is_judged_by_its_own_newest_returns() {
        let mut calibration = calibration();
        let mut window = Window::new(1, 1, 10_000);
        let of = |generation: u64, value: f64, offset: u64| {
            let before = Snapshot::clone(model(offset).snapshot());
            let weights = DMatrix::from_element(1, 1, value);
            Arc::new(Evaluator::new(Snapshot { generation, weights, offset, ..before }))
        };
        for generation in 1..=20 {
            let value = if generation == 1 { 7.0 } else { 4.5 };
            calibration.take(&window, Some(of(generation, value, window.end())));
            for _ in 0..10 {
                (0..16).for_each(|_| push(&mut window, 0, true, 4.0, true, false));
                calibration.take(&window, Some(of(generation, value, window.end())));
            }
            if generation == 2 {
                let found = calibration.to_json(false)[0]["generations"].clone();
                assert_eq!(found, json!([[1, 100, 3.0, -3.0, 1.0, null], [2, 100, 0.5, -0.5, 1.0, 1]]));
            }
        }
        assert!(calibration.news()[0]["generations"].is_array() && calibration.news()[0]["generations"].is_null());
        // They outlive a run, and the oldest go.
        let mut after = self::calibration();
        after.resume(&calibration.keep("c")[0], 20);
        assert_eq!(after.rewards[0].verdicts.keys().copied().collect::<Vec<u64>>(), (5..=20).collect::<Vec<u64>>());
        assert_eq!(after.rewards[0].verdicts, calibration.rewards[0].verdicts);
        let mut before = self::calibration();
        before.resume(&calibration.keep("c")[0], 6);
        assert_eq!(before.rewards[0].verdicts.len(), 2, "a model that has begun again has no later generations");
    }

    #[test]
    fn each_reward_has_its_own_pairs() {
        let settings = Settings { discount: 0.5, rewards: vec![1, 0], ..Settings::default() };
        let mut calibration = Calibration::new(&settings);
        let before = Snapshot::clone(model(0).snapshot());
        let weights = DMatrix::from_row_slice(1, 2, &[3.0, 10.0]);
        let of = |offset| Arc::new(Evaluator::new(Snapshot { weights: weights.clone(), offset, ..before.clone() }));
        let mut window = Window::new(1, 2, 1000);
        calibration.take(&window, Some(of(0)));
        for _ in 0..3 {
            let rows = BatchParts { rewards_per_row: 2, rewards: vec![7.0, 2.0], ..row_of(0.0, true, false) };
            window.push(0, true, &Batch::new(rows).unwrap(), 0);
        }
        calibration.take(&window, Some(of(3)));
        let found: Vec<(f64, f64)> =
            calibration.rewards.iter().map(|of| (of.pairs[0].predicted, of.pairs[0].realised)).collect();
        assert!(found.len() == 2 && (found[0].0 - 3.0).abs() < 1e-9 && (found[1].0 - 10.0).abs() < 1e-9, "{found:?}");
        assert_eq!((found[0].1, found[1].1), (2.0, 7.0), "the columns are as in the settings");
        let kept = calibration.keep("c");
        let mut after = Calibration::new(&Settings { discount: 0.5, rewards: vec![0], ..Settings::default() });
        kept.iter().for_each(|kept| after.resume(kept, 1));
        assert!(after.rewards[0].pairs.iter().all(|pair| pair.realised == 7.0) && after.rewards[0].pairs.len() == 3);
    }

    #[test]
    fn an_endless_stream_is_followed_until_the_rest_does_not_matter() {
        let mut calibration = calibration();
        let mut window = Window::new(1, 1, 1000);
        calibration.take(&window, Some(model(0)));
        for row in 0..20 {
            push(&mut window, 0, row == 0, 1.0, false, false);
            calibration.take(&window.from_offset(row), Some(model(row + 1)));
        }
        // 0.5^7 is the first power below a hundredth.
        assert_eq!(calibration.rewards[0].pairs.len(), 20 - 6);
        let rest = 0.5f64.powi(7);
        assert!(
            calibration.rewards[0].pairs.iter().all(|p| (p.realised - (2.0 - 2.0 * rest + 10.0 * rest)).abs() < 1e-9)
        );
        assert!(calibration.rewards[0].pairs.iter().all(|p| p.rows == 7));
        assert_eq!(calibration.latest().next(), Some(None), "too few to say anything");
        for row in 20..40 {
            push(&mut window, 0, false, 1.0, false, false);
            calibration.take(&window.from_offset(row), Some(model(row + 1)));
        }
        let [error, bias, coverage] = calibration.latest().next().flatten().unwrap();
        assert!((bias + 8.0 * (1.0 - rest)).abs() < 1e-9 && (error + bias).abs() < 1e-9 && coverage == 0.0);
    }

    #[test]
    fn rows_that_the_model_has_learned_are_no_test_of_it() {
        let mut calibration = calibration();
        let mut window = Window::new(1, 1, 1000);
        calibration.take(&window, Some(model(2)));
        (0..3).for_each(|row| push(&mut window, row, true, 1.0, true, false));
        calibration.take(&window, None);
        assert_eq!(calibration.rewards[0].pairs.len(), 0, "without a model now nothing is closed");
        let mut calibration = self::calibration();
        calibration.take(&Window::new(1, 1, 1000), Some(model(2)));
        calibration.take(&window, Some(model(3)));
        assert_eq!(calibration.rewards[0].pairs.len(), 1);
    }

    #[test]
    fn pairs_outlive_a_run_while_they_are_of_the_same_returns_and_models() {
        let mut before = calibration();
        let mut window = Window::new(1, 1, 1000);
        before.take(&window, Some(model(0)));
        (0..3).for_each(|row| push(&mut window, row, true, 1.0, true, false));
        before.take(&window, Some(model(3)));
        let kept = &before.keep("c")[0];
        let mut after = calibration();
        after.resume(kept, 0);
        assert!(after.rewards[0].pairs.is_empty(), "of a later generation");
        after.resume(kept, 1);
        assert_eq!((after.rewards[0].pairs.len(), after.news()[0]["pairs"].as_array().map(Vec::len)), (3, Some(0)));
        let mut other = Calibration::new(&Settings { discount: 0.25, ..Settings::default() });
        other.resume(kept, 1);
        assert!(other.rewards[0].pairs.is_empty(), "of other returns");
    }

    #[test]
    fn what_is_followed_stays_bounded() {
        let mut calibration = calibration();
        calibration.discount = 1.0;
        let mut window = Window::new(1, 1, 100);
        calibration.take(&window, Some(model(0)));
        let mut from = 0;
        for round in 0..100 {
            (0..50).for_each(|row| push(&mut window, row, round == 0, 1.0, false, false));
            calibration.take(&window.from_offset(from), Some(model(window.end())));
            from = window.end();
        }
        let open = |c: &Calibration| c.chains.values().map(Vec::len).sum::<usize>();
        assert_eq!(open(&calibration), OPEN);
        // Rows that are missing end it.
        let mut later = Window::new(1, 1, 16);
        (0..20_000).for_each(|_| push(&mut later, 0, false, 1.0, false, false));
        calibration.next = 1;
        assert!(later.start() > 1);
        calibration.take(&later, Some(model(20_000)));
        assert!(open(&calibration) <= SAMPLES);
    }
}
