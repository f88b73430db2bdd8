//! Predicted against realised: what the model said of a state before it learned of it, and what then came.
//!
//! A return counts once its chain has terminated, or once what is still to come weighs less than a hundredth and the model's
//! value may stand for it. One that is cut before does not count: closed by the model's value it would compare the model with
//! itself.

use super::history::number;
use crate::learner::Settings;
use crate::learner::window::Window;
use crate::math::kernel::NoiseModel;
use crate::snapshot::{Ask, Evaluator};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// Pairs kept.
const PAIRS: usize = 400;
/// The newest pairs, which error, bias and coverage over time are taken from, and how few of them say nothing.
const LATEST: usize = 100;
const LATEST_MIN: usize = 20;
/// States whose return is waited for at a time.
const OPEN: usize = 256;
/// States that are newly followed each time rows come.
const SAMPLES: usize = 16;
/// A return is complete when what is still to come counts for less than this.
const REST: f64 = 0.01;
/// A state is followed for at most so many rows.
const ROWS: u32 = 100_000;
/// Nine tenths of a normal distribution lie within so many standard deviations.
const NINETY: f64 = 1.644_854;

/// A state that is being followed.
#[derive(Clone, Debug)]
struct Sample {
    mean: f64,
    /// Of V.
    variance: f64,
    /// Of the return, where the model knows how returns scatter.
    return_variance: Option<f64>,
    /// Rewards since, discounted.
    collected: f64,
    /// Discount of the next reward.
    factor: f64,
    /// Of the model that predicted.
    generation: u64,
    /// Sum of squared discounts: what white noise adds up to.
    squares: f64,
    rows: u32,
}

/// A prediction and the return that came.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Pair {
    predicted: f64,
    /// Standard deviation of a single return about the prediction.
    deviation: f64,
    realised: f64,
    /// Rows until the return was known.
    rows: u32,
    /// Of the model that predicted.
    generation: u64,
}

/// Pairs of one critic, as another run finds them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptPairs {
    /// Name of the critic.
    pub(super) critic: String,
    /// Discount of the returns.
    discount: f64,
    /// Column of the reward.
    column: usize,
    pairs: Vec<Pair>,
}

/// Predictions and returns of one critic, of its first reward.
#[derive(Debug)]
pub(super) struct Calibration {
    discount: f64,
    column: usize,
    /// The model that predicts: it has not learned the rows that come next.
    model: Option<Arc<Evaluator>>,
    /// The states of each stream that are being followed.
    chains: HashMap<u32, Vec<Sample>>,
    pairs: VecDeque<Pair>,
    /// Pairs added since they were last told.
    fresh: usize,
    /// Rows before this offset have been seen.
    next: u64,
}

impl Calibration {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            discount: settings.discount,
            column: settings.rewards[0],
            model: None,
            chains: HashMap::new(),
            pairs: VecDeque::new(),
            fresh: 0,
            next: 0,
        }
    }

    /// The pairs, for another run.
    pub(super) fn keep(&self, critic: &str) -> KeptPairs {
        let (discount, column) = (self.discount, self.column);
        KeptPairs { critic: critic.to_owned(), discount, column, pairs: self.pairs.iter().copied().collect() }
    }

    /// Begin with the pairs of an earlier run, if they are of the same returns; those of later models than the present one,
    /// whose number is `generation`, are of a critic that has begun again since.
    pub(super) fn resume(&mut self, kept: &KeptPairs, generation: u64) {
        if (kept.discount, kept.column) == (self.discount, self.column) {
            self.pairs.extend(kept.pairs.iter().filter(|pair| pair.generation <= generation).take(PAIRS));
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
        let mut complete: Vec<(Sample, Vec<f64>)> = Vec::new();
        for (rows, range, first) in window.since(from) {
            for i in range.clone() {
                let offset = first + (i - range.start) as u64;
                let stream = rows.streams[i];
                if rows.starts_chain[i] {
                    self.chains.remove(&stream);
                }
                if let Some((_, sample)) = chosen.next_if(|(place, _)| *place == offset) {
                    self.chains.entry(stream).or_default().push(sample);
                }
                let Some(samples) = self.chains.get_mut(&stream) else { continue };
                let (reward, discount) = (rows.reward(i)[self.column], rows.discount(i, self.discount));
                for sample in &mut *samples {
                    sample.collected += sample.factor * reward;
                    sample.squares += sample.factor * sample.factor;
                    sample.factor *= if rows.terminated[i] { 0.0 } else { discount };
                    sample.rows += 1;
                }
                let done = samples.extract_if(.., |sample| sample.factor < REST);
                complete.extend(done.map(|sample| (sample, rows.next_state(i).to_vec())));
                samples.retain(|sample| sample.rows <= ROWS && !rows.truncated[i]);
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
    fn choose(&self, window: &Window, from: u64) -> Vec<(u64, Sample)> {
        let Some(model) = self.model.as_ref().filter(|model| model.snapshot().dim() == window.dim()) else {
            return Vec::new();
        };
        let unlearned = from.max(model.snapshot().offset)..window.end();
        let open: usize = self.chains.values().map(Vec::len).sum();
        // A variance costs the square of the dictionary.
        let m = model.snapshot().dictionary.nrows().max(1);
        let affordable = (50_000_000 / (m * m)).clamp(1, SAMPLES);
        let places = spread(unlearned, affordable.min(OPEN.saturating_sub(open)));
        let mut states = Vec::new();
        let mut wanted = places.iter().copied().peekable();
        for (rows, range, first) in window.since(from) {
            while let Some(offset) = wanted.next_if(|offset| *offset < first + range.len() as u64) {
                states.extend_from_slice(rows.state(range.start + (offset - first) as usize));
            }
        }
        let Ok(evaluation) = model.evaluate(&states, Ask { returns: true, ..Ask::VARIANCE }) else { return Vec::new() };
        let generation = model.snapshot().generation;
        let sample = |(k, offset)| {
            let variance = evaluation.variance.as_ref().map_or(0.0, |v| v[k]);
            let mean = evaluation.mean[(k, 0)];
            let return_variance = evaluation.return_variance.as_ref().map(|v| v[(k, 0)]);
            let start = Sample {
                mean,
                variance,
                return_variance,
                generation,
                collected: 0.0,
                factor: 1.0,
                squares: 0.0,
                rows: 0,
            };
            (offset, start)
        };
        places.into_iter().enumerate().map(sample).collect()
    }

    /// Returns that are complete, with what the model says of the rest.
    fn close(&mut self, complete: Vec<(Sample, Vec<f64>)>, model: &Evaluator) {
        let states: Vec<f64> = complete.iter().flat_map(|(_, state)| state.iter().copied()).collect();
        let Ok(rest) = model.evaluate(&states, Ask::MEAN) else { return };
        let noise = &model.snapshot().hyperparameters;
        for (k, (sample, _)) in complete.iter().enumerate() {
            let realised = sample.collected + sample.factor * rest.mean[(k, 0)];
            let share = if noise.noise == NoiseModel::White { sample.squares } else { 1.0 };
            let modelled = sample.variance + share * noise.noise_variance;
            let deviation = sample.return_variance.unwrap_or(modelled).sqrt();
            let pair =
                Pair { predicted: sample.mean, deviation, realised, rows: sample.rows, generation: sample.generation };
            if !realised.is_finite() {
                continue;
            }
            if self.pairs.len() == PAIRS {
                self.pairs.pop_front();
            }
            self.pairs.push_back(pair);
            self.fresh = (self.fresh + 1).min(PAIRS);
        }
    }

    /// The pairs, if `with_pairs`, and their summary.
    pub(super) fn to_json(&self, with_pairs: bool) -> Value {
        let pairs: Vec<Value> = self.pairs.iter().filter(|_| with_pairs).map(written).collect();
        json!({"pairs": pairs, "summary": self.summary()})
    }

    /// The pairs since the last time.
    pub(super) fn news(&mut self) -> Value {
        let fresh = std::mem::take(&mut self.fresh);
        let pairs: Vec<Value> = self.pairs.iter().skip(self.pairs.len() - fresh).map(written).collect();
        json!({"pairs": pairs, "summary": self.summary()})
    }

    /// Root mean square error, bias (realised minus predicted) and coverage of the 90 % interval of the newest pairs; none of
    /// too few.
    pub(super) fn latest(&self) -> Option<[f64; 3]> {
        let pairs = || self.pairs.iter().rev().take(LATEST);
        let n = pairs().count();
        let mean = |f: &dyn Fn(&Pair) -> f64| pairs().map(f).sum::<f64>() / n as f64;
        let square = |x: &Pair| (x.realised - x.predicted).powi(2);
        let bias = |x: &Pair| x.realised - x.predicted;
        (n >= LATEST_MIN).then(|| [mean(&square).sqrt(), mean(&bias), mean(&|x| f64::from(u8::from(inside(x))))])
    }

    fn summary(&self) -> Value {
        let n = self.pairs.len() as f64;
        let mean = |f: &dyn Fn(&Pair) -> f64| self.pairs.iter().map(f).sum::<f64>() / n;
        let (p, r) = (mean(&|pair| pair.predicted), mean(&|pair| pair.realised));
        let moment = |f: fn(&Pair) -> f64, g: fn(&Pair) -> f64, a: f64, b: f64| mean(&|x| (f(x) - a) * (g(x) - b));
        let (predicted, realised) = (|x: &Pair| x.predicted, |x: &Pair| x.realised);
        let scale = (moment(predicted, predicted, p, p) * moment(realised, realised, r, r)).sqrt();
        let within = self.pairs.iter().filter(|x| inside(x)).count();
        json!({
            "count": self.pairs.len(),
            "correlation": number(moment(predicted, realised, p, r) / scale),
            "rms": number(mean(&|x| (x.realised - x.predicted).powi(2)).sqrt()),
            "bias": number(r - p),
            "within_90": number(within as f64 / n),
        })
    }
}

/// Whether the return fell in its 90 % interval.
fn inside(pair: &Pair) -> bool {
    (pair.realised - pair.predicted).abs() <= NINETY * pair.deviation
}

fn written(pair: &Pair) -> Value {
    json!([number(pair.predicted), number(pair.realised), number(pair.deviation), pair.rows, pair.generation])
}

/// `count` whole numbers of `range`, evenly spread; all if there are fewer.
fn spread(range: Range<u64>, count: usize) -> Vec<u64> {
    let length = range.end.saturating_sub(range.start);
    let count = (count as u64).min(length);
    (0..count).map(|k| range.start + k * length / count).collect()
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::math::kernel::{Hyperparameters, Kernel, Metric};
    use crate::snapshot::{Inputs, Snapshot};
    use crate::transition::{Batch, BatchParts};
    use nalgebra::DMatrix;

    /// V(x) is about 10 near x = 0, with a variance of 1 and noise of 3.
    pub(in crate::http) fn model(offset: u64) -> Arc<Evaluator> {
        Arc::new(Evaluator::new(Snapshot {
            critic: "c".into(),
            generation: 1,
            revision: 1,
            offset,
            transitions: offset,
            time: 0.0,
            discount: 0.5,
            hyperparameters: Hyperparameters {
                kernel: Kernel::gaussian(1.0, 0.0, Metric::Isotropic(1e-12)),
                noise: NoiseModel::Correlated,
                noise_variance: 3.0,
            },
            inputs: Inputs::identity(1),
            dictionary: DMatrix::zeros(1, 1),
            weights: DMatrix::from_element(1, 1, 10.0),
            variance: Some(DMatrix::zeros(1, 1)),
            log_evidence: None,
            score: None,
            lambda: 1.0,
            returns: None,
            provisional: false,
            actions: None,
            heads: None,
        }))
    }

    fn push(window: &mut Window, stream: u32, starts: bool, reward: f64, terminated: bool, truncated: bool) {
        let batch = Batch::new(BatchParts {
            stream: "s".into(),
            dim: 1,
            rewards_per_row: 1,
            states: vec![0.0],
            next_states: Some(vec![0.0]),
            rewards: vec![reward],
            terminated: Some(vec![terminated]),
            truncated: Some(vec![truncated]),
            ..BatchParts::default()
        });
        window.push(stream, starts, &batch.unwrap(), 0);
    }

    fn calibration() -> Calibration {
        Calibration::new(&Settings { discount: 0.5, ..Settings::default() })
    }

    #[test]
    fn returns_are_discounted_sums_and_those_that_are_cut_do_not_count() {
        let mut calibration = calibration();
        let mut window = Window::new(1, 1, 1000);
        calibration.take(&window, Some(model(0)));
        // Three streams, interleaved: one terminates after three rows, one is cut off after two, one loses a row.
        for (row, stream) in [0, 1, 0, 1, 0, 2, 2].into_iter().enumerate() {
            push(&mut window, stream, [0, 1, 5, 6].contains(&row), 4.0, row == 4, row == 3);
        }
        calibration.take(&window.from_offset(0), Some(model(7)));
        let mut found: Vec<f64> = calibration.pairs.iter().map(|p| p.realised).collect();
        found.sort_by(f64::total_cmp);
        assert_eq!(found, [4.0, 6.0, 7.0]);
        assert!(calibration.pairs.iter().all(|p| (p.predicted - 10.0).abs() < 1e-9 && p.deviation == 2.0));
        assert_eq!((calibration.chains.len(), calibration.chains[&2].len()), (1, 1), "the row behind the gap");
        assert_eq!(calibration.news()["pairs"].as_array().unwrap().len(), 3);
        let news = calibration.news();
        assert_eq!(news["pairs"], json!([]));
        // 10 is predicted with a deviation of 2: within 3.29 is 7.
        assert_eq!(news["summary"]["within_90"], 0.333_333_3);
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
        assert_eq!(calibration.pairs.len(), 20 - 6);
        let rest = 0.5f64.powi(7);
        assert!(calibration.pairs.iter().all(|p| (p.realised - (2.0 - 2.0 * rest + 10.0 * rest)).abs() < 1e-9));
        assert!(calibration.pairs.iter().all(|p| p.rows == 7));
        assert_eq!(calibration.latest(), None, "too few to say anything");
        for row in 20..40 {
            push(&mut window, 0, false, 1.0, false, false);
            calibration.take(&window.from_offset(row), Some(model(row + 1)));
        }
        let [error, bias, coverage] = calibration.latest().unwrap();
        assert!((bias + 8.0 * (1.0 - rest)).abs() < 1e-9 && (error + bias).abs() < 1e-9 && coverage == 0.0);
    }

    #[test]
    fn rows_that_the_model_has_learned_are_no_test_of_it() {
        let mut calibration = calibration();
        let mut window = Window::new(1, 1, 1000);
        calibration.take(&window, Some(model(2)));
        (0..3).for_each(|row| push(&mut window, row, true, 1.0, true, false));
        calibration.take(&window, None);
        assert_eq!(calibration.pairs.len(), 0, "without a model now nothing is closed");
        let mut calibration = self::calibration();
        calibration.take(&Window::new(1, 1, 1000), Some(model(2)));
        calibration.take(&window, Some(model(3)));
        assert_eq!(calibration.pairs.len(), 1);
    }

    #[test]
    fn pairs_outlive_a_run_while_they_are_of_the_same_returns_and_models() {
        let mut before = calibration();
        let mut window = Window::new(1, 1, 1000);
        before.take(&window, Some(model(0)));
        (0..3).for_each(|row| push(&mut window, row, true, 1.0, true, false));
        before.take(&window, Some(model(3)));
        let kept = before.keep("c");
        let mut after = calibration();
        after.resume(&kept, 0);
        assert!(after.pairs.is_empty(), "of a later generation");
        after.resume(&kept, 1);
        assert_eq!((after.pairs.len(), after.news()["pairs"].as_array().map(Vec::len)), (3, Some(0)));
        let mut other = Calibration::new(&Settings { discount: 0.25, ..Settings::default() });
        other.resume(&kept, 1);
        assert!(other.pairs.is_empty(), "of other returns");
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
