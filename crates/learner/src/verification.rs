//! Live verification of the interval of returns: predictions made before a return is known, and the return that came.
//!
//! Some start rows at a time are followed. Each holds what was predicted when its row arrived, V_h(x) under the weights of the
//! last refresh and the deviation sqrt(Var V(x) + M_h(x)) with M of the last pass over all rows and Cov u of the last estimate of
//! noise and scale, and gathers the rewards of its chain from there on:
//! ```text
//! g_h <- g_h + weight r_h        weight <- weight gamma        z_h = (g_h + weight V_h(x_end) - V_h(x)) / deviation
//! ```
//! docs/mathematics.md (Q2), (Q3). Three things are made of the errors: the factor on deviations of returns (Q4), which a slow
//! tracker (Q5) keeps at the coverage that is promised while the world drifts, and how much more V errs than it states (Q6).
//!
//! A return ends where the chain terminates, or with the next state once the weight is below [`WEIGHT_END`]: what is left then is
//! valued by the model, for without it every return would miss a hundredth of V, which may be more than its deviation. A chain
//! that is cut before, or goes on with an importance ratio other than 1, does not count: closed by its own bootstrap a pair
//! would verify the model by the model.
//!
//! What starts, ends and counts is decided by the order of rows, discounts and flags alone: no clock, no batch.

mod lately;

use crate::math::inflation::horizon;
use crate::math::raw;
use lately::Lately;
pub use lately::lately_numbers;
use serde::{Deserialize, Serialize};

/// Weight below which what follows is left to V.
pub const WEIGHT_END: f64 = 0.01;
/// Pairs that are remembered.
pub const PAIRS_MAX: usize = 400;
/// Pairs of which the quantile is taken: the last ones.
const PAIRS_LATEST: usize = 250;
/// Pairs below which the factor of the refit stays.
pub const PAIRS_LEAST: usize = 16;
/// Pairs below which nothing is concluded of a head.
pub(crate) const PAIRS_MIN: usize = 40;
/// Largest factor of a head or a refit, and one over the smallest.
pub(crate) const FACTOR_MAX: f64 = 4.0;
/// The same of what the tracker makes of it: a world that has changed may leave a model that was sure far behind.
const TRACKED_FACTOR_MAX: f64 = 64.0;
/// What a miss in each of this many horizons moves the logarithm of the width by ...
const TRACKING: f64 = 0.1;
/// ... and how far it may move.
const TRACKED_MAX: f64 = 1.4;
/// Start rows that are followed at once.
const TRIALS: usize = 16;
/// Returns that share nothing below which rows held out say nothing of the factor.
const INDEPENDENT_MIN: f64 = 8.0;
/// The quantile of |z| that is compared, and what it is for a normal variable: standard deviations of a 90 % interval to either side.
const COVERAGE: f64 = 0.9;
pub(crate) const NINETY: f64 = 1.645;

/// A row of returns as they come, `sums` of each reward with what the row pays of it, and the `weight` of what is still to come.
/// ```text
/// g <- g + w r;   w <- gamma w                                                   the return of a chain, row after row
/// ```
pub fn gather<'a>(sums: impl Iterator<Item = (&'a mut f64, f64)>, weight: &mut f64, discount: f64) {
    sums.for_each(|(sum, reward)| *sum += *weight * reward);
    *weight *= discount;
}

/// Share of errors in their 90 % interval, from 0 to 1; none of no errors. `scaled` are |z|: sizes of errors in stated standard
/// deviations. The caller decides whether these have the factor in them.
pub fn coverage(scaled: impl Iterator<Item = f64>) -> Option<f64> {
    let (mut inside, mut count) = (0_usize, 0_usize);
    for z in scaled {
        inside += usize::from(z <= NINETY);
        count += 1;
    }
    (count > 0).then(|| inside as f64 / count as f64)
}

/// Rows a start row is followed at most: a chain that never ends must not hold it for ever.
pub(crate) const ROWS_MAX: u64 = 50_000;
/// Length that a return is taken to have where the discount sets it no end within `ROWS_MAX`, until one has ended.
const LENGTH_UNKNOWN: f64 = 2000.0;
/// Ended returns that their mean length remembers.
pub(crate) const LENGTHS_MAX: u64 = 16;

/// A start row that is followed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Trial {
    /// Whose chain, as the model numbers them; none while it is free.
    pub(crate) slot: Option<u64>,
    pub(crate) rows: u64,
    pub(crate) weight: f64,
    /// V(x) when the row arrived (H,), value.
    #[serde(with = "raw")]
    pub(crate) mean: Vec<f64>,
    /// Deviation of the return then (H,), value, positive.
    #[serde(with = "raw")]
    pub(crate) deviation: Vec<f64>,
    /// g (H,): the return so far.
    #[serde(with = "raw")]
    pub(crate) gathered: Vec<f64>,
}

impl Trial {
    /// Follow the chain of `slot` from the row that is predicted.
    pub(crate) fn follow(&mut self, slot: usize) {
        self.gathered.clear();
        self.gathered.resize(self.mean.len(), 0.0);
        (self.slot, self.rows, self.weight) = (Some(slot as u64), 0, 1.0);
    }

    /// Whether its parts fit H `heads` and this many slots, if it follows a chain.
    pub(crate) fn fits(&self, heads: usize, slots: usize) -> bool {
        self.slot.is_none_or(|slot| {
            (slot as usize) < slots
                && self.rows <= ROWS_MAX
                && [&self.mean, &self.deviation, &self.gathered].iter().all(|part| part.len() == heads)
        })
    }
}

/// What was stated of a start row besides its return.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Stated {
    /// Number of the row, and rows since the start before it.
    row: u64,
    stride: u64,
    /// Half of the 90 % interval that was given, in deviations; 0 before the tracker has begun.
    reach: f64,
    /// M_h(x) (H,), the variance of the return about V.
    #[serde(with = "raw")]
    spread: Vec<f64>,
    /// Normalised state (D,).
    #[serde(with = "raw")]
    state: Vec<f64>,
}

/// The ones of the two that follow the chain of `slot`.
pub(crate) fn following(trials: &[Trial; 2], slot: usize) -> impl Iterator<Item = usize> + use<> {
    let follows = [0, 1].map(|k| trials[k].slot == Some(slot as u64));
    (0..2).filter(move |&k| follows[k])
}

/// Rows from start number `starts` to the next, `least` at least: half a return of `length` rows, so that the two share little, and
/// up to a quarter of that more, so that starts do not keep step with episodes.
pub(crate) fn rows_apart(length: f64, least: u64, starts: u64) -> u64 {
    spaced(((length / 2.0).ceil() as u64).max(least), starts)
}

/// Rows until the next start, and by chance up to a quarter more.
pub(crate) fn spaced(rows: u64, starts: u64) -> u64 {
    rows + scrambled(starts) % (rows / 4 + 1)
}

/// How starts follow each other.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The critic's: it says how long returns are until some have ended.
    pub discount: f64,
    /// Rows from one start to the next at least, positive.
    pub apart_min: u64,
}

impl Pace {
    /// The pace of a critic with m features: a start takes a quadratic form, m^2 operations, where learning a row takes some 4
    /// m^2. Starts nearer to each other than a third of a horizon tell the tracker nothing more, rarer ones leave it behind.
    pub fn new(discount: f64, features: usize) -> Self {
        Self { discount, apart_min: (features as u64 / 48).max(4) }
    }
}

/// A row as verification sees it.
#[derive(Clone, Copy, Debug)]
pub struct Verified<'a> {
    /// Whose chain it belongs to.
    pub slot: usize,
    /// (H,).
    pub rewards: &'a [f64],
    /// Discount of the transition; 0 where it terminates.
    pub discount: f64,
    /// Importance ratio.
    pub ratio: f64,
}

/// What is stated of the return of one head from a start row.
#[derive(Clone, Copy, Debug)]
pub struct Predicted {
    /// V_h(x).
    pub mean: f64,
    /// Var V(x), value^2, without what errors have added to it.
    pub value_variance: f64,
    /// M_h(x), value^2.
    pub spread: f64,
}

/// What a refit has found of rows that its model was not made of.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeldOut {
    /// Factor on deviations of returns, in \[1/4, 4\].
    pub factor: f64,
    /// k: mean square of the errors over the mean square of the stated deviations about V, in \[1/2, 2\].
    pub normal: f64,
    /// Share of those returns in the 90 % interval before the factor; none where they were too few.
    #[serde(default)]
    pub coverage: Option<f64>,
    /// How many returns that share nothing they amount to.
    #[serde(default)]
    pub pairs: f64,
}

impl Default for HeldOut {
    fn default() -> Self {
        Self { factor: 1.0, normal: 1.0, coverage: None, pairs: 0.0 }
    }
}

impl HeldOut {
    fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Start rows that are followed, and the errors of the last pairs. Written and read back it goes on bit for bit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    trials: Vec<Trial>,
    /// One for each; fewer in files from before it was kept.
    #[serde(default)]
    stated: Vec<Stated>,
    /// Rows before the next start.
    wait: u64,
    /// Starts that fell due.
    starts: u64,
    /// Mean rows of returns that ended, and how many (up to [`LENGTHS_MAX`]).
    length: f64,
    lengths: u64,
    /// |z| (H, up to [`PAIRS_MAX`]), a ring.
    #[serde(with = "raw")]
    errors: Vec<f64>,
    /// Pair that the next one replaces, where the ring is full.
    oldest: u64,
    /// Rows seen, and the number of the last that was to be a start.
    #[serde(default)]
    rows: u64,
    #[serde(default)]
    last_start: u64,
    /// a of (Q5): logarithm of what the quantile is multiplied by.
    #[serde(default)]
    tracked: f64,
    /// Share of the pairs that share nothing with each other; 1 before the first.
    #[serde(default = "one")]
    independent: f64,
    /// What the refit has found.
    #[serde(default, skip_serializing_if = "HeldOut::is_nothing")]
    held_out: HeldOut,
    #[serde(default)]
    lately: Lately,
    /// Scratch of the quantile, empty between calls.
    #[serde(skip)]
    sorted: Vec<f64>,
}

fn one() -> f64 {
    1.0
}

impl Default for Verification {
    fn default() -> Self {
        Self {
            trials: Vec::new(),
            stated: Vec::new(),
            wait: 0,
            starts: 0,
            length: 0.0,
            lengths: 0,
            errors: Vec::new(),
            oldest: 0,
            rows: 0,
            last_start: 0,
            tracked: 0.0,
            independent: 1.0,
            held_out: HeldOut::default(),
            lately: Lately::default(),
            sorted: Vec::new(),
        }
    }
}

impl Verification {
    /// Begin anew: what was predicted is another model's. What the refit has found of this one stays.
    pub fn forget(&mut self) {
        *self = Self { held_out: self.held_out, ..Self::default() };
    }

    /// Begin with what a refit has found of rows that its model was not made of.
    pub fn begin(&mut self, held_out: HeldOut) {
        *self = Self { held_out, ..Self::default() };
    }

    /// What the refit has found.
    pub fn held_out(&self) -> HeldOut {
        self.held_out
    }

    /// A row of `slot` has arrived: what was followed up to here ends with its value, if it has far enough. `values` gives V_h.
    pub fn arrive(&mut self, slot: usize, pace: Pace, values: impl Fn(usize) -> f64) {
        for k in 0..self.trials.len() {
            let trial = &self.trials[k];
            if trial.slot == Some(slot as u64) && trial.weight < WEIGHT_END {
                self.conclude(k, pace, &values);
            }
        }
    }

    /// Whether the row that has just arrived is to be a start row: then [`Verification::start`] follows. Asked once a row.
    pub fn is_due(&mut self, pace: Pace, ratio: f64) -> bool {
        self.rows += 1;
        if self.wait > 0 {
            self.wait -= 1;
            return false;
        }
        if ratio != 1.0 {
            return false;
        }
        self.starts += 1;
        self.wait = self.apart(pace) - 1;
        self.trials.len() < TRIALS || self.trials.iter().any(|trial| trial.slot.is_none())
    }

    /// Follow the row of `slot` that has just arrived in this normalised state (D,); `predicted` has one entry for each of H heads.
    /// Numbers that are no prediction are not followed.
    pub fn start(&mut self, slot: usize, state: &[f64], predicted: impl ExactSizeIterator<Item = Predicted>) {
        let (rows, excess, heads) = (self.rows, self.excess(), predicted.len());
        let mut sorted = std::mem::take(&mut self.sorted);
        let reach =
            if self.pairs(heads) >= PAIRS_LEAST as u64 { NINETY * self.factor_with(heads, &mut sorted) } else { 0.0 };
        sorted.clear();
        self.sorted = sorted;
        if self.stated.len() < TRIALS {
            self.make_room(heads, state.len());
        }
        let Some(free) = self.trials.iter().position(|trial| trial.slot.is_none()) else { return };
        let (trial, stated) = (&mut self.trials[free], &mut self.stated[free]);
        (stated.row, stated.stride, stated.reach) = (rows, rows - self.last_start, reach);
        self.last_start = rows;
        stated.state.clear();
        stated.state.extend_from_slice(state);
        stated.spread.clear();
        trial.mean.clear();
        trial.deviation.clear();
        for Predicted { mean, value_variance, spread } in predicted {
            let deviation = (value_variance + excess + spread).sqrt();
            if !(mean.is_finite() && deviation.is_finite() && deviation > 0.0) {
                return;
            }
            trial.mean.push(mean);
            trial.deviation.push(deviation);
            stated.spread.push(spread);
        }
        trial.follow(slot);
    }

    /// All trials that there may be, with room for H `heads` and states (D,): a start allocates nothing.
    fn make_room(&mut self, heads: usize, dim: usize) {
        self.trials.resize_with(TRIALS, Trial::default);
        self.stated.resize_with(TRIALS, Stated::default);
        for (Trial { mean, deviation, gathered, .. }, of) in self.trials.iter_mut().zip(&mut self.stated) {
            [mean, deviation, gathered, &mut of.spread].into_iter().for_each(|part| part.reserve(heads));
            of.state.reserve(dim);
        }
        self.sorted.reserve(PAIRS_LATEST * heads);
    }

    /// The rewards of the row that has just arrived, whether it started something or not.
    pub fn take(&mut self, row: Verified<'_>, pace: Pace) {
        for k in 0..self.trials.len() {
            let trial = &mut self.trials[k];
            if trial.slot != Some(row.slot as u64) {
                continue;
            }
            if row.ratio != 1.0 || trial.rows == ROWS_MAX {
                trial.slot = None;
                continue;
            }
            gather(trial.gathered.iter_mut().zip(row.rewards.iter().copied()), &mut trial.weight, row.discount);
            trial.rows += 1;
            if trial.weight == 0.0 {
                self.conclude(k, pace, |_| 0.0);
                self.wait = self.wait.min(self.apart(pace));
            }
        }
    }

    /// The chain of `slot` is cut at a state of these values: what has not been followed far enough does not count.
    pub fn cut(&mut self, slot: usize, pace: Pace, values: impl Fn(usize) -> f64) {
        self.arrive(slot, pace, values);
        for trial in self.trials.iter_mut().filter(|trial| trial.slot == Some(slot as u64)) {
            trial.slot = None;
        }
    }

    /// The return of trial k is known but for `weight` times these values.
    fn conclude(&mut self, k: usize, pace: Pace, values: impl Fn(usize) -> f64) {
        let trial = &mut self.trials[k];
        trial.slot = None;
        let heads = trial.mean.len();
        for h in 0..heads {
            let rest = if trial.weight > 0.0 { trial.weight * values(h) } else { 0.0 };
            trial.gathered[h] += rest - trial.mean[h];
        }
        self.lengths = LENGTHS_MAX.min(self.lengths + 1);
        self.length += (trial.rows as f64 - self.length) / self.lengths as f64;
        if !trial.gathered.iter().zip(&trial.deviation).all(|(error, deviation)| (error / deviation).is_finite()) {
            return;
        }
        let horizon = self.horizon(pace);
        self.independent = (self.apart_mean(pace) / horizon).min(1.0);
        let (trial, stated) = (&mut self.trials[k], self.stated.get(k).filter(|of| of.spread.len() == heads));
        if let Some(stated) = stated {
            self.lately.push(stated.row, &trial.gathered, &stated.spread, &stated.state);
            if stated.reach > 0.0 {
                let missed = |(error, deviation): (&f64, &f64)| error.abs() > stated.reach * deviation;
                let missed = trial.gathered.iter().zip(&trial.deviation).filter(|&of| missed(of)).count() as f64;
                let step = TRACKING * stated.stride as f64 / horizon * (missed / heads as f64 - (1.0 - COVERAGE));
                self.tracked = (self.tracked + step).clamp(-TRACKED_MAX, TRACKED_MAX);
            }
        }
        trial
            .gathered
            .iter_mut()
            .zip(&trial.deviation)
            .for_each(|(error, deviation)| *error = (*error / deviation).abs());
        if self.errors.capacity() == 0 {
            self.errors.reserve_exact(PAIRS_MAX * heads);
        }
        if self.errors.len() < PAIRS_MAX * heads {
            self.errors.extend_from_slice(&trial.gathered);
        } else {
            let from = self.oldest as usize * heads;
            self.errors[from..from + heads].copy_from_slice(&trial.gathered);
            self.oldest = (self.oldest + 1) % PAIRS_MAX as u64;
        }
        self.lately.renew(self.held_out.normal, horizon.max(self.apart_mean(pace)));
    }

    /// Rows that a return is made of: those that its discount leaves, or fewer where chains end before.
    fn horizon(&self, pace: Pace) -> f64 {
        let length = if self.lengths > 0 { self.length.max(1.0) } else { expected_length(pace.discount) };
        horizon(pace.discount, length).min(length)
    }

    /// Rows from one start to the next, without what chance adds.
    fn apart_least(&self, pace: Pace) -> u64 {
        let length = if self.lengths > 0 { self.length } else { expected_length(pace.discount) };
        ((length / TRIALS as f64).ceil() as u64).max(pace.apart_min)
    }

    fn apart_mean(&self, pace: Pace) -> f64 {
        1.125 * self.apart_least(pace) as f64
    }

    /// Rows from one start to the next.
    fn apart(&self, pace: Pace) -> u64 {
        spaced(self.apart_least(pace), self.starts)
    }

    /// Pairs behind [`Verification::factor`], with H `heads`.
    pub fn pairs(&self, heads: usize) -> u64 {
        (self.errors.len() / heads.max(1)) as u64
    }

    /// By what deviations of returns are to be multiplied so that nine in ten of the returns lie within 1.645 of them: what the refit
    /// has found, moved as far as the last `PAIRS_LATEST` |z| of all heads do not leave it open, and times what the tracker has made
    /// of the misses (Q5). The refit's factor alone below [`PAIRS_LEAST`] pairs.
    /// ```text
    /// lower, upper = the quantiles of |z| at 0.9 -+ sqrt(0.9 0.1 / pairs), over 1.645
    /// factor = (the refit's, moved into [lower, upper]) e^a                                           (Q4)
    /// a <- a + 0.1 / horizon rows since the start before (share of heads that missed - 0.1), within 1.4    (Q5)
    /// ```
    pub fn factor(&self, heads: usize) -> f64 {
        self.factor_with(heads, &mut Vec::new())
    }

    fn factor_with(&self, heads: usize, sorted: &mut Vec<f64>) -> f64 {
        let pairs = self.pairs(heads) as usize;
        if pairs < PAIRS_LEAST {
            return self.held_out.factor;
        }
        let latest = pairs.min(PAIRS_LATEST);
        // The ring from its newest pair on, backwards.
        let newest = if pairs < PAIRS_MAX { pairs - 1 } else { (self.oldest as usize + PAIRS_MAX - 1) % PAIRS_MAX };
        for back in 0..latest {
            let from = (newest + pairs - back) % pairs * heads;
            sorted.extend_from_slice(&self.errors[from..from + heads]);
        }
        sorted.sort_unstable_by(f64::total_cmp);
        let independent = (latest as f64 * self.independent).ceil() as usize;
        let [lower, upper] = open_rank(sorted.len(), independent).map(|rank| sorted[rank] / NINETY);
        let factor = self.held_out.factor.clamp(lower, upper) * self.tracked.exp();
        factor.clamp(1.0 / TRACKED_FACTOR_MAX, TRACKED_FACTOR_MAX)
    }

    /// What the errors of the last returns say that V varies more than it states, alike at every state, value^2: (Q6).
    pub fn excess(&self) -> f64 {
        self.lately.excess()
    }

    /// Share of the returns of all `heads` heads that lay in the 90 % interval as it was predicted, before any factor, from 0 to 1;
    /// none while there are no pairs.
    pub fn coverage(&self, heads: usize) -> Option<f64> {
        coverage(self.errors.iter().copied()).filter(|_| self.pairs(heads) > 0)
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        (self.errors.capacity() + self.sorted.capacity()) * size_of::<f64>() + self.lately.bytes()
    }

    /// Whether its parts fit H rewards, D variables and this many slots.
    pub(crate) fn is_consistent(&self, rewards: usize, dim: usize, slots: usize) -> bool {
        let pairs = self.errors.len() / rewards.max(1);
        let HeldOut { factor, normal, .. } = self.held_out;
        self.errors.len() == pairs * rewards
            && pairs <= PAIRS_MAX
            && self.oldest < PAIRS_MAX as u64
            && self.length >= 0.0
            && self.length <= ROWS_MAX as f64
            && self.lengths <= LENGTHS_MAX
            && self.trials.len() <= TRIALS
            && self.trials.iter().all(|trial| trial.fits(rewards, slots))
            && self.stated.len() <= self.trials.len()
            && self.stated.iter().all(|of| of.row <= self.rows)
            && self.last_start <= self.rows
            && self.tracked.abs() <= TRACKED_MAX
            && self.independent > 0.0
            && self.independent <= 1.0
            && factor > 0.0
            && normal > 0.0
            && factor.is_finite()
            && normal.is_finite()
            && self.lately.is_consistent(rewards, dim)
    }
}

/// By what stated deviations are to be multiplied so that nine in ten of the errors that are `scaled` by them lie within 1.645, as far
/// as this number of `independent` ones demands it: (Q7). 1 below eight of them.
pub fn factor_of(mut scaled: Vec<f64>, independent: f64) -> f64 {
    scaled.retain(|z| z.is_finite());
    if independent < INDEPENDENT_MIN || scaled.is_empty() {
        return 1.0;
    }
    scaled.sort_unstable_by(f64::total_cmp);
    let open = (COVERAGE * (1.0 - COVERAGE) / independent).sqrt();
    let quantile = |share: f64| {
        let place = share.clamp(0.0, 1.0) * (scaled.len() - 1) as f64;
        let (below, above) = (scaled[place.floor() as usize], scaled[place.ceil() as usize]);
        (below + (above - below) * place.fract()) / NINETY
    };
    1.0f64.clamp(quantile(COVERAGE - open), quantile(COVERAGE + open)).clamp(1.0 / FACTOR_MAX, FACTOR_MAX)
}

/// Numbers of the two of `count` errors in their order, `pairs` of them independent, between which the quantile of 0.9 lies to one
/// standard deviation.
pub(crate) fn open_rank(count: usize, pairs: usize) -> [usize; 2] {
    let open = (COVERAGE * (1.0 - COVERAGE) / pairs as f64).sqrt();
    // The rank that a further one stays below with this probability.
    [COVERAGE - open, COVERAGE + open]
        .map(|share| (share * (count + 1) as f64).ceil().clamp(1.0, count as f64) as usize - 1)
}

/// Rows until the weight is below [`WEIGHT_END`].
pub(crate) fn expected_length(discount: f64) -> f64 {
    let rows = (WEIGHT_END.ln() / discount.ln()).ceil().max(1.0);
    if discount < 1.0 && rows <= ROWS_MAX as f64 { rows } else { LENGTH_UNKNOWN }
}

/// Bits that follow no pattern (splitmix64).
pub(crate) fn scrambled(x: u64) -> u64 {
    let x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    const DISCOUNT: f64 = 0.9;
    const PACE: Pace = Pace { discount: DISCOUNT, apart_min: 4 };

    fn normal(rng: &mut ChaCha8Rng) -> f64 {
        (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
    }

    /// A row of slot 0 with one reward, as a model would show it.
    fn row(verification: &mut Verification, reward: f64, discount: f64, value: f64, deviation: f64) {
        verification.arrive(0, PACE, |_| value);
        if verification.is_due(PACE, 1.0) {
            let predicted = Predicted { mean: value, value_variance: 0.0, spread: deviation * deviation };
            verification.start(0, &[0.0], std::iter::once(predicted));
        }
        verification.take(Verified { slot: 0, rewards: &[reward], discount, ratio: 1.0 }, PACE);
    }

    /// Independent rewards with mean 1 and this many rows, whose deviation is stated `overstated` times too large.
    fn independent(rows: usize, overstated: f64, seed: u64) -> Verification {
        let (value, deviation) = (1.0 / (1.0 - DISCOUNT), 1.0 / (1.0 - DISCOUNT * DISCOUNT).sqrt());
        let (mut rng, mut verification) = (ChaCha8Rng::seed_from_u64(seed), Verification::default());
        for _ in 0..rows {
            row(&mut verification, 1.0 + normal(&mut rng), DISCOUNT, value, overstated * deviation);
        }
        verification
    }

    #[test]
    fn factor_and_excess_undo_what_is_stated_wrongly() {
        for overstated in [2.0, 1.0, 0.5] {
            let stated = overstated / (1.0 - DISCOUNT * DISCOUNT).sqrt();
            let given = |seed| {
                let found = independent(8000, overstated, seed);
                found.factor(1) * (1.0 + found.excess() / (stated * stated)).sqrt()
            };
            // The tracker swings by an eighth where nothing happens, and the mean of its exponential is above 1.
            let given: Vec<f64> = (1..=32).map(given).collect();
            let mean = given.iter().sum::<f64>() / 32.0;
            assert!((mean * overstated - 1.0).abs() < 0.12, "stated {overstated} times too large: {given:?}");
            // What scatters less than was stated is no error of V.
            assert!(overstated < 1.0 || independent(30_000, overstated, 1).excess() == 0.0);
        }
    }

    #[test]
    fn the_more_pairs_the_surer() {
        let drawn = |pairs: usize, size: f64, seed: u64| {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let errors = (0..pairs).map(|_| size * normal(&mut rng).abs()).collect();
            Verification { errors, ..Verification::default() }.factor(1)
        };
        let still = (1..=200).filter(|&seed| drawn(100, 1.0, seed) == 1.0).count();
        assert!(still > 110, "of 200 times that nothing was wrong nothing was changed {still} times");
        let [few, many] = [40, 250].map(|pairs| (1..=50).map(|seed| drawn(pairs, 2.0, seed)).sum::<f64>() / 50.0);
        assert!(1.6 < few && few < many && many < 2.0, "{few} {many}");
    }

    #[test]
    fn few_pairs_conclude_nothing_and_many_are_forgotten() {
        let held_out = HeldOut { factor: 1.5, normal: 1.2, coverage: Some(0.7), pairs: 30.0 };
        let mut few = independent(100, 2.0, 1);
        few.held_out = held_out;
        assert!(few.pairs(1) > 5 && few.pairs(1) < PAIRS_LEAST as u64, "{}", few.pairs(1));
        assert_eq!(few.factor(1), 1.5, "the factor of the refit");
        let mut many = independent(30_000, 2.0, 1);
        (many.held_out, many.tracked, many.independent) = (held_out, 0.0, 1.0);
        assert_eq!(many.pairs(1), PAIRS_MAX as u64);
        many.errors.fill(1e9);
        assert_eq!((many.factor(1), many.coverage(1)), (TRACKED_FACTOR_MAX, Some(0.0)));
        many.errors.fill(0.0);
        assert_eq!((many.factor(1), many.coverage(1)), (1.0 / TRACKED_FACTOR_MAX, Some(1.0)));
        // Three of every four: the factor changes nothing of what is said.
        many.errors.iter_mut().step_by(4).for_each(|z| *z = 2.0 * NINETY);
        assert_eq!((many.factor(1), many.coverage(1), many.coverage(2)), (2.0, Some(0.75), Some(0.75)));
        // Only the last ones say what the quantile is.
        many.errors.fill(0.0);
        many.oldest = 100;
        (0..PAIRS_LATEST).for_each(|back| many.errors[(100 + PAIRS_MAX - 1 - back) % PAIRS_MAX] = 2.0 * NINETY);
        assert_eq!(many.factor(1), 2.0);
        many.forget();
        assert_eq!((many.factor(1), many.pairs(1), many.coverage(1)), (1.5, 0, None), "what the refit found stays");
        many.begin(HeldOut::default());
        assert_eq!(many.factor(1), 1.0);
    }

    /// Share of the returns of the last quarter of `rows` rows that lay in the interval that was given, for rewards whose scatter is
    /// that many times what is stated.
    fn held(rows: usize, scatter: impl Fn(f64) -> f64, seed: u64) -> f64 {
        let (value, deviation) = (1.0 / (1.0 - DISCOUNT), 1.0 / (1.0 - DISCOUNT * DISCOUNT).sqrt());
        let (mut rng, mut verification) = (ChaCha8Rng::seed_from_u64(seed), Verification::default());
        let (mut rewards, mut reach) = (Vec::new(), Vec::new());
        for k in 0..rows {
            rewards.push(1.0 + scatter(k as f64 / rows as f64) * normal(&mut rng));
            reach.push(NINETY * verification.factor(1) * (deviation * deviation + verification.excess()).sqrt());
            row(&mut verification, rewards[k], DISCOUNT, value, deviation);
        }
        let (mut y, mut inside, mut total) = (value, 0, 0);
        for k in (0..rows).rev() {
            y = rewards[k] + DISCOUNT * y;
            if k < rows - 100 && k > rows / 4 {
                inside += usize::from((y - value).abs() <= reach[k]);
                total += 1;
            }
        }
        inside as f64 / total as f64
    }

    #[test]
    fn the_tracker_keeps_the_coverage_while_the_scatter_drifts() {
        for (name, scatter) in [
            ("stays", (|_| 1.0) as fn(f64) -> f64),
            ("grows", |share| (2.0 * share).exp()),
            ("falls", |share| (-2.0 * share).exp()),
            ("jumps", |share| if share < 0.5 { 1.0 } else { 4.0 }),
        ] {
            let found = [1, 2, 3].map(|seed| held(20_000, scatter, seed));
            let mean = found.iter().sum::<f64>() / 3.0;
            assert!((mean - 0.9).abs() < 0.015, "{name}: {found:.3?}");
        }
    }

    #[test]
    fn what_a_hundredth_of_the_weight_still_carries_is_valued_by_the_model() {
        // Rewards that do not vary: without the rest every return would miss a hundredth of V.
        let mut verification = Verification::default();
        (0..3000).for_each(|_| row(&mut verification, 1.0, DISCOUNT, 10.0, 1e-6));
        assert!(verification.pairs(1) > 40);
        assert!(verification.errors.iter().all(|&z| z < 1e-6), "{:?}", verification.errors);
    }

    #[test]
    fn returns_follow_the_chain_to_its_end() {
        let mut verification = Verification::default();
        row(&mut verification, 3.0, 0.5, 1.0, 2.0);
        verification.take(Verified { slot: 7, rewards: &[100.0], discount: 0.5, ratio: 1.0 }, PACE);
        row(&mut verification, 4.0, 0.5, 1.0, 2.0);
        row(&mut verification, 8.0, 0.0, 1.0, 2.0);
        assert_eq!(verification.errors, [(3.0 + 2.0 + 2.0 - 1.0) / 2.0]);
        assert_eq!(verification.length, 3.0);
    }

    #[test]
    fn pairs_closed_by_a_cut_do_not_count() {
        let mut verification = Verification::default();
        for _ in 0..100 {
            (0..40).for_each(|_| row(&mut verification, 1.0, DISCOUNT, 0.0, 1.0));
            verification.cut(0, PACE, |_| 0.0);
        }
        assert_eq!((verification.pairs(1), verification.factor(1)), (0, 1.0), "44 rows are needed");
        assert!(verification.starts > 50, "cuts free what they end");
        // Cut where the weight has run out already, it is known.
        let mut verification = Verification::default();
        (0..44).for_each(|_| row(&mut verification, 1.0, DISCOUNT, 10.0, 1.0));
        assert_eq!(verification.pairs(1), 0);
        verification.cut(0, PACE, |_| 10.0);
        assert_eq!(verification.pairs(1), 1);
        assert!(verification.errors[0] < 1e-9);
    }

    #[test]
    fn what_another_policy_did_does_not_count() {
        let mut verification = Verification::default();
        assert!(!verification.is_due(PACE, 0.5));
        row(&mut verification, 1.0, DISCOUNT, 0.0, 1.0);
        verification.take(Verified { slot: 0, rewards: &[1.0], discount: DISCOUNT, ratio: 0.5 }, PACE);
        assert!(verification.trials.iter().all(|trial| trial.slot.is_none()));
    }

    #[test]
    fn a_chain_without_end_is_given_up() {
        let mut verification = Verification::default();
        (0..3 * ROWS_MAX).for_each(|_| row(&mut verification, 0.0, 1.0, 0.0, 1.0));
        let followed = verification.trials.iter().filter(|trial| trial.slot.is_some());
        assert!(followed.clone().all(|trial| trial.rows <= ROWS_MAX));
        assert!(followed.count() == TRIALS && verification.pairs(1) == 0);
    }

    #[test]
    fn as_many_starts_as_are_followed_share_the_time_of_a_return() {
        for discount in [0.95, 0.99, 0.999] {
            let length = expected_length(discount) as u64;
            for starts in 0..100 {
                let pace = Pace::new(discount, 400);
                let apart = Verification { starts, ..Verification::default() }.apart(pace);
                let least = length.div_ceil(TRIALS as u64).max(400 / 48);
                assert!(apart >= least && 4 * apart <= 5 * least, "{discount}: {apart}");
            }
        }
        assert_eq!([0.0, 0.8, 0.95, 0.99].map(expected_length), [1.0, 21.0, 90.0, 459.0]);
        assert_eq!([1.0, 0.99999].map(expected_length), [LENGTH_UNKNOWN; 2]);
    }

    #[test]
    fn numbers_that_are_none_are_left_out() {
        let mut verification = Verification::default();
        row(&mut verification, 1.0, 0.0, f64::NAN, 1.0);
        verification.wait = 0;
        row(&mut verification, 1.0, 0.0, 0.0, 0.0);
        verification.wait = 0;
        row(&mut verification, 1e300, 0.0, -1e308, 1e-150);
        assert_eq!((verification.pairs(1), verification.lengths), (0, 1));
    }

    #[test]
    fn written_and_read_back_it_goes_on() {
        let mut one = independent(2000, 1.0, 3);
        let bytes = rmp_serde::to_vec_named(&one).unwrap();
        let mut other: Verification = rmp_serde::from_slice(&bytes).unwrap();
        assert_eq!(one, other);
        assert!(other.is_consistent(1, 1, 1) && !other.is_consistent(2, 1, 1) && !other.is_consistent(1, 1, 0));
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        for _ in 0..30_000 {
            let reward = normal(&mut rng);
            row(&mut one, reward, DISCOUNT, 0.0, 1.0);
            row(&mut other, reward, DISCOUNT, 0.0, 1.0);
        }
        assert_eq!(one, other);
        assert!(one.is_consistent(1, 1, 1));
    }
}
