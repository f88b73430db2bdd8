//! Predictions of one reward's value and the returns that came: the newest of them, and how they compare.

use super::number;
use crate::learner::verification::coverage;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::{BTreeMap, VecDeque};

/// Pairs kept.
const PAIRS: usize = 400;
/// The newest pairs, which error, bias and coverage over time are taken from, and how few of them say nothing.
const LATEST: usize = 100;
const LATEST_MIN: usize = 20;
/// Pairs of one model from which on it is judged by them alone.
const OWN_MIN: usize = 30;
/// Standard errors from which on two errors differ.
const REACH: f64 = 2.0;
/// Standard errors from which on predictions that leave returns as far from them as their mean does are no chance.
const USELESS_REACH: f64 = 3.0;
/// Generations of models whose errors are kept.
const GENERATIONS: usize = 16;

/// A prediction and the return that came.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Pair {
    pub(super) predicted: f64,
    /// Standard deviation of a single return about the prediction.
    pub(super) deviation: f64,
    pub(super) realised: f64,
    /// Rows until the return was known.
    pub(super) rows: u32,
    /// Of the model that predicted.
    pub(super) generation: u64,
    /// Whether the return was cut, and ends with the model's value there.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) cut: bool,
}

/// Pairs of one reward of a critic, as another run finds them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct KeptPairs {
    /// Name of the critic.
    pub(crate) critic: String,
    /// Discount of the returns.
    discount: f64,
    /// Column of the reward.
    column: usize,
    pairs: Vec<Pair>,
    /// As [`Pairs`] has them.
    #[serde(default)]
    verdicts: BTreeMap<u64, PairsVerdict>,
    #[serde(default)]
    apart: Vec<Pair>,
}

/// How some pairs compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PairsVerdict {
    /// Of them.
    pub(super) count: usize,
    /// Root mean square of return minus prediction.
    pub(super) error: f64,
    /// Mean of return minus prediction.
    pub(super) bias: f64,
    /// Share of returns in their 90 % interval.
    pub(super) coverage: f64,
    /// Standard error of the error; 0 in a file of before, whose verdicts say nothing.
    #[serde(default)]
    pub(super) doubt: f64,
}

impl PairsVerdict {
    /// Of these pairs, none of fewer than `least`.
    fn of<'a>(pairs: impl Iterator<Item = &'a Pair> + Clone, least: usize) -> Option<Self> {
        let count = pairs.clone().count();
        let mean = |f: &dyn Fn(&Pair) -> f64| pairs.clone().map(f).sum::<f64>() / count as f64;
        let square = |x: &Pair| (x.realised - x.predicted).powi(2);
        (count >= least).then(|| {
            let squared = mean(&square);
            // Of normal errors, or as the squares scatter, whichever is more.
            let scatter = mean(&|x| (square(x) - squared).powi(2)).max(2.0 * squared * squared);
            Self {
                count,
                error: squared.sqrt(),
                bias: mean(&|x| x.realised - x.predicted),
                coverage: coverage(pairs.clone().map(scaled)).unwrap_or_default(),
                doubt: if squared > 0.0 { (scatter / (4.0 * squared * count as f64)).sqrt() } else { 0.0 },
            }
        })
    }

    /// Whether the error is lower (1) or higher (-1) than another model's by more than chance, or neither (0).
    fn beside(&self, before: &Self) -> i8 {
        let gained = before.error - self.error;
        match gained.abs() > REACH * self.doubt.hypot(before.doubt) {
            true if gained > 0.0 => 1,
            true => -1,
            false => 0,
        }
    }
}

/// What a model is judged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ModelEvidence {
    pub(super) verdict: PairsVerdict,
    /// Mean standard deviation of a return, as the model states it.
    pub(super) scatter: f64,
    /// Standard deviation of the returns themselves.
    pub(super) spread: f64,
    /// Returns among them that were cut, and end with the model's value there.
    pub(super) cut: usize,
    /// Whether returns about their mean differ from predictions about theirs by as much as returns differ, where that is no chance.
    pub(super) useless: bool,
}

/// Predictions and returns of one reward.
#[derive(Debug)]
pub(super) struct Pairs {
    discount: f64,
    /// Of the reward.
    pub(super) column: usize,
    pub(super) pairs: VecDeque<Pair>,
    /// The newest of those whose returns have hardly a reward in common: each says something of its own.
    apart: VecDeque<Pair>,
    /// By generation: how the newest pairs of its model compare.
    pub(super) verdicts: BTreeMap<u64, PairsVerdict>,
    /// Pairs added since the last news.
    fresh: usize,
}

impl Pairs {
    pub(super) fn new(discount: f64, column: usize) -> Self {
        Self { discount, column, pairs: VecDeque::new(), apart: VecDeque::new(), verdicts: BTreeMap::new(), fresh: 0 }
    }

    /// The pairs, for another run.
    pub(super) fn keep(&self, critic: &str) -> KeptPairs {
        let (discount, column) = (self.discount, self.column);
        let list = |of: &VecDeque<Pair>| of.iter().copied().collect();
        let (pairs, apart, verdicts) = (list(&self.pairs), list(&self.apart), self.verdicts.clone());
        KeptPairs { critic: critic.to_owned(), discount, column, pairs, verdicts, apart }
    }

    /// Begin with the pairs of an earlier run, if they are of the same returns; pairs of later models than the present one,
    /// whose number is `generation`, are of a critic that has begun again since.
    pub(super) fn resume(&mut self, kept: &KeptPairs, generation: u64) {
        if (kept.discount, kept.column) == (self.discount, self.column) {
            let is_known = |pair: &&Pair| pair.generation <= generation;
            self.pairs.extend(kept.pairs.iter().filter(is_known).take(PAIRS));
            self.apart.extend(kept.apart.iter().filter(is_known).take(LATEST));
            // Pairs of a version that compared returns which overlap have no doubt.
            let sound = |(_, verdict): &(&u64, &PairsVerdict)| verdict.doubt > 0.0 || verdict.error == 0.0;
            self.verdicts.extend(kept.verdicts.range(..=generation).filter(sound));
        }
    }

    /// A return has come; `apart` says that it has hardly a reward in common with those before that are.
    pub(super) fn add(&mut self, pair: Pair, apart: bool) {
        if !pair.realised.is_finite() {
            return;
        }
        if apart {
            self.apart.push_back(pair);
            if self.apart.len() > LATEST {
                self.apart.pop_front();
            }
        }
        if self.pairs.len() == PAIRS {
            self.pairs.pop_front();
        }
        self.pairs.push_back(pair);
        self.fresh = (self.fresh + 1).min(PAIRS);
    }

    /// Compare the newest pairs apart of a generation again; pairs of an earlier model that have given way still count.
    pub(super) fn compare(&mut self, generation: u64) {
        let own = self.apart.iter().filter(|pair| pair.generation == generation);
        let known = self.verdicts.get(&generation).map_or(0, |verdict| verdict.count);
        if let Some(verdict) = PairsVerdict::of(own, OWN_MIN.max(known)) {
            self.verdicts.insert(generation, verdict);
        }
        while self.verdicts.len() > GENERATIONS {
            self.verdicts.pop_first();
        }
    }

    /// The newest pairs apart of the model of this generation; the pairs of all models while it has too few. Where these are
    /// too few as well, their number.
    pub(super) fn evidence(&self, generation: u64) -> Result<ModelEvidence, usize> {
        let is_own = |pair: &&Pair| pair.generation == generation;
        let own = self.apart.iter().filter(is_own).count();
        let judged = self.apart.iter().filter(|pair| own < OWN_MIN || is_own(pair));
        let count = judged.clone().count();
        let scatter = judged.clone().map(|pair| pair.deviation).sum::<f64>() / count.max(1) as f64;
        let mean = |of: &dyn Fn(&Pair) -> f64| judged.clone().map(of).sum::<f64>() / count.max(1) as f64;
        let (centre, level) = (mean(&|pair| pair.realised), mean(&|pair| pair.predicted));
        let spread = mean(&|pair| (pair.realised - centre).powi(2)).sqrt();
        let cut = judged.clone().filter(|pair| pair.cut).count();
        let left = mean(&|pair| (pair.realised - centre - pair.predicted + level).powi(2)).sqrt();
        // Of values that are right, what is left of returns has nothing to do with them: the mean of this product is about 0.
        let product = |pair: &Pair| (pair.predicted - level) * (pair.predicted - level - pair.realised + centre);
        let common = mean(&product);
        let chance = (mean(&|pair| (product(pair) - common).powi(2)) / count.max(1) as f64).sqrt();
        let useless = left >= spread && common > USELESS_REACH * chance;
        PairsVerdict::of(judged, OWN_MIN)
            .map(|verdict| ModelEvidence { verdict, scatter, spread, cut, useless })
            .ok_or(count)
    }

    /// By generation: its number, how many of its newest pairs apart were compared, their error, bias and coverage, and whether it
    /// has helped, as [`PairsVerdict::beside`] says of it and the one before; null of the first.
    fn generations(&self) -> Value {
        let mut before = None;
        let written = |(generation, of): (&u64, &PairsVerdict)| {
            let helped = before.replace(*of).map(|before| of.beside(&before));
            json!([generation, of.count, number(of.error), number(of.bias), number(of.coverage), helped])
        };
        self.verdicts.iter().map(written).collect()
    }

    /// The pairs, if `with_pairs`, and their summary.
    pub(super) fn to_json(&self, with_pairs: bool) -> Value {
        let pairs: Vec<Value> = self.pairs.iter().filter(|_| with_pairs).map(written).collect();
        json!({"pairs": pairs, "summary": self.summary(), "generations": self.generations()})
    }

    /// The pairs since the last time, and where there are some, how the pairs of each generation compare now.
    pub(super) fn news(&mut self) -> Value {
        let fresh = std::mem::take(&mut self.fresh);
        let pairs: Vec<Value> = self.pairs.iter().skip(self.pairs.len() - fresh).map(written).collect();
        let generations = if fresh > 0 { self.generations() } else { Value::Null };
        json!({"pairs": pairs, "summary": self.summary(), "generations": generations})
    }

    /// Root mean square error, bias (realised minus predicted) and coverage of the 90 % interval of the newest pairs; none of
    /// too few.
    pub(super) fn latest(&self) -> Option<[f64; 3]> {
        let newest = self.pairs.iter().rev().take(LATEST);
        PairsVerdict::of(newest, LATEST_MIN).map(|of| [of.error, of.bias, of.coverage])
    }

    fn summary(&self) -> Value {
        let n = self.pairs.len() as f64;
        let mean = |f: &dyn Fn(&Pair) -> f64| self.pairs.iter().map(f).sum::<f64>() / n;
        let (p, r) = (mean(&|pair| pair.predicted), mean(&|pair| pair.realised));
        let moment = |f: fn(&Pair) -> f64, g: fn(&Pair) -> f64, a: f64, b: f64| mean(&|x| (f(x) - a) * (g(x) - b));
        let (predicted, realised) = (|x: &Pair| x.predicted, |x: &Pair| x.realised);
        let scale = (moment(predicted, predicted, p, p) * moment(realised, realised, r, r)).sqrt();
        let within = coverage(self.pairs.iter().map(scaled));
        json!({
            "count": self.pairs.len(),
            "correlation": number(moment(predicted, realised, p, r) / scale),
            "rms": number(mean(&|x| (x.realised - x.predicted).powi(2)).sqrt()),
            "bias": number(r - p),
            "within_90": number(within.unwrap_or(f64::NAN)),
        })
    }
}

/// Size of a pair's error, in stated standard deviations of a return.
fn scaled(pair: &Pair) -> f64 {
    let error = (pair.realised - pair.predicted).abs();
    if error > 0.0 { error / pair.deviation } else { 0.0 }
}

fn written(pair: &Pair) -> Value {
    json!([number(pair.predicted), number(pair.realised), number(pair.deviation), pair.rows, pair.generation])
}

#[cfg(test)]
mod tests {
    use super::super::calibration::Calibration;
    use super::super::testing::{Row, model, push};
    use super::{Pair, Pairs};
    use crate::learner::Settings;
    use crate::learner::window::Window;
    use crate::snapshot::{Evaluator, Snapshot};
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha8Rng;
    use serde_json::Value;
    use std::sync::Arc;

    /// What is said of the second of two models, whose value is 10 and `second`, of a stream with a mean return of 10 and a deviation
    /// of 2, after `separate` separate returns each.
    fn said(seed: u64, second: f64, separate: usize) -> Value {
        const DISCOUNT: f64 = 0.99;
        let settings = Settings { discount: DISCOUNT, ..Settings::default() };
        let mut calibration = Calibration::new(&settings);
        let mut window = Window::new(1, 1, 4000);
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let noise = 2.0 * (1.0 - DISCOUNT * DISCOUNT).sqrt();
        for (generation, value) in [(1, 10.0), (2, second)] {
            let of = |offset: u64| {
                let before = Snapshot::clone(model(offset).snapshot());
                let weights = nalgebra::DMatrix::from_element(1, 1, value);
                Some(Arc::new(Evaluator::new(Snapshot { generation, weights, offset, ..before })))
            };
            calibration.take(&window, of(window.end()));
            // Separate returns begin about 230 rows apart.
            for _ in 0..3 * separate {
                for _ in 0..100 {
                    let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
                    let normal = radius * (std::f64::consts::TAU * rng.random::<f64>()).cos();
                    let (starts, reward) = (window.end() == 0, (1.0 - DISCOUNT) * 10.0 + noise * normal);
                    push(&mut window, &Row { stream: 0, starts, state: 0.0, reward, terminated: false });
                }
                calibration.take(&window, of(window.end()));
            }
        }
        calibration.to_json(false)[0]["generations"][1][5].clone()
    }

    /// Whether `count` predictions are useless, of returns that are the `share` of them and noise of deviation 1; they differ
    /// by `differ`.
    fn useless(seed: u64, count: usize, share: f64, differ: f64) -> bool {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut normal = move || {
            let radius = (-2.0 * (1.0 - rng.random::<f64>()).ln()).sqrt();
            radius * (std::f64::consts::TAU * rng.random::<f64>()).cos()
        };
        let mut pairs = Pairs::new(0.9, 0);
        for _ in 0..count {
            let predicted = 5.0 + differ * normal();
            let realised = 5.0 + share * (predicted - 5.0) + normal();
            let (deviation, rows, generation, cut) = (differ.max(1.0), 10, 1, false);
            pairs.add(Pair { predicted, deviation, realised, rows, generation, cut }, true);
        }
        pairs.evidence(1).unwrap().useless
    }

    #[test]
    fn predictions_that_tell_less_than_the_mean_are_useless_and_right_ones_are_not_however_little_they_tell() {
        let times = |count, share, differ| (0..200).filter(|&seed| useless(seed, count, share, differ)).count();
        assert!(times(100, 0.0, 1.0) >= 195 && times(100, 0.25, 4.0) == 200 && times(30, 0.0, 2.0) >= 150);
        // Such returns are mostly chance, or chance alone.
        assert!(times(100, 1.0, 0.1) <= 4 && times(30, 1.0, 0.3) <= 4 && times(100, 0.0, 0.0) == 0);
        assert_eq!(times(100, 0.6, 3.0), 0, "too steep, and better than the mean");
    }

    #[test]
    fn of_two_equal_models_neither_is_said_to_be_better_and_a_worse_one_is_found() {
        let wrong = |separate| {
            let all: Vec<Value> = (0..100).map(|seed| said(seed, 10.0, separate)).collect();
            assert!(all.iter().all(|said| said.is_number()), "{separate} are enough: {all:?}");
            all.iter().filter(|said| **said != 0).count()
        };
        let found = [40, 110].map(wrong);
        assert!(found.iter().all(|wrong| *wrong <= 8), "{found:?}");
        assert!((0..10).all(|seed| said(seed, 13.0, 110) == -1));
    }
}
