//! Predictions of one reward's value and the returns that came: the newest of them, and how they compare.

use super::history::number;
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
/// Generations of models whose errors are kept.
const GENERATIONS: usize = 16;
/// Nine tenths of a normal distribution lie within so many standard deviations.
const NINETY: f64 = 1.644_854;

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
}

/// Pairs of one reward of a critic, as another run finds them.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct KeptPairs {
    /// Name of the critic.
    pub(super) critic: String,
    /// Discount of the returns.
    discount: f64,
    /// Column of the reward.
    column: usize,
    pairs: Vec<Pair>,
    /// As [`Pairs`] has them.
    #[serde(default)]
    verdicts: BTreeMap<u64, Verdict>,
    #[serde(default)]
    apart: Vec<Pair>,
}

/// How some pairs compare.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Verdict {
    /// Of them.
    pub(super) count: usize,
    /// Root mean square of return minus prediction.
    pub(super) error: f64,
    /// Mean of return minus prediction.
    pub(super) bias: f64,
    /// Share of returns in their 90 % interval.
    pub(super) coverage: f64,
}

impl Verdict {
    /// Of these pairs, none of fewer than `least`.
    fn of<'a>(pairs: impl Iterator<Item = &'a Pair> + Clone, least: usize) -> Option<Self> {
        let count = pairs.clone().count();
        let mean = |f: &dyn Fn(&Pair) -> f64| pairs.clone().map(f).sum::<f64>() / count as f64;
        (count >= least).then(|| Self {
            count,
            error: mean(&|x| (x.realised - x.predicted).powi(2)).sqrt(),
            bias: mean(&|x| x.realised - x.predicted),
            coverage: mean(&|x| f64::from(u8::from(inside(x)))),
        })
    }
}

/// What a model is judged by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Evidence {
    pub(super) verdict: Verdict,
    /// Mean standard deviation of a return, as the model states it.
    pub(super) scatter: f64,
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
    pub(super) verdicts: BTreeMap<u64, Verdict>,
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

    /// Begin with the pairs of an earlier run, if they are of the same returns; those of later models than the present one,
    /// whose number is `generation`, are of a critic that has begun again since.
    pub(super) fn resume(&mut self, kept: &KeptPairs, generation: u64) {
        if (kept.discount, kept.column) == (self.discount, self.column) {
            let is_known = |pair: &&Pair| pair.generation <= generation;
            self.pairs.extend(kept.pairs.iter().filter(is_known).take(PAIRS));
            self.apart.extend(kept.apart.iter().filter(is_known).take(LATEST));
            self.verdicts.extend(kept.verdicts.range(..=generation));
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

    /// Compare the newest pairs of a generation again.
    pub(super) fn compare(&mut self, generation: u64) {
        let own = self.pairs.iter().rev().filter(|pair| pair.generation == generation).take(LATEST);
        if let Some(verdict) = Verdict::of(own, LATEST_MIN) {
            self.verdicts.insert(generation, verdict);
        }
        while self.verdicts.len() > GENERATIONS {
            self.verdicts.pop_first();
        }
    }

    /// The newest pairs apart of the model of this generation; those of all models while it has too few. Where these are too few
    /// as well, their number.
    pub(super) fn evidence(&self, generation: u64) -> Result<Evidence, usize> {
        let is_own = |pair: &&Pair| pair.generation == generation;
        let own = self.apart.iter().filter(is_own).count();
        let judged = self.apart.iter().filter(|pair| own < OWN_MIN || is_own(pair));
        let count = judged.clone().count();
        let scatter = judged.clone().map(|pair| pair.deviation).sum::<f64>() / count.max(1) as f64;
        Verdict::of(judged, OWN_MIN).map(|verdict| Evidence { verdict, scatter }).ok_or(count)
    }

    /// By generation: its number, how many of its newest pairs were compared, their error, bias and coverage.
    fn generations(&self) -> Value {
        let written = |(generation, of): (&u64, &Verdict)| {
            json!([generation, of.count, number(of.error), number(of.bias), number(of.coverage)])
        };
        self.verdicts.iter().map(written).collect()
    }

    /// The pairs, if `with_pairs`, and their summary.
    pub(super) fn to_json(&self, with_pairs: bool) -> Value {
        let pairs: Vec<Value> = self.pairs.iter().filter(|_| with_pairs).map(written).collect();
        json!({"pairs": pairs, "summary": self.summary(), "generations": self.generations()})
    }

    /// The pairs since the last time, and where there are some, how those of each generation compare now.
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
        Verdict::of(newest, LATEST_MIN).map(|of| [of.error, of.bias, of.coverage])
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
