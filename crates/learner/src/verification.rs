//! Live verification of the interval of returns: predictions made before a return is known, and the return that came.
//!
//! Two start rows at a time are followed. Each holds what was predicted when its row arrived, V_h(x) under the weights of the
//! last refresh and the deviation sqrt(Var V(x) + M_h(x)) with Cov u and M of the last pass over all rows, and gathers the
//! rewards of its chain from there on:
//! ```text
//! g_h <- g_h + weight r_h        weight <- weight gamma        z_h = (g_h + weight V_h(x_end) - V_h(x)) / deviation
//! ```
//! docs/mathematics.md (Q2) to (Q4).
//!
//! It ends where the chain terminates, or with the next state once the weight is below [`WEIGHT_END`]: what is left then is
//! valued by the model, for without it every return would miss a hundredth of V, which may be more than its deviation. A chain
//! that is cut before, or goes on with an importance ratio other than 1, does not count: closed by its own bootstrap a pair
//! would verify the model by the model.
//!
//! What starts, ends and counts is decided by the order of rows, discounts and flags alone: no clock, no batch.

use crate::math::raw;
use serde::{Deserialize, Serialize};

/// Weight below which what follows is left to V.
pub const WEIGHT_END: f64 = 0.01;
/// Pairs that are remembered.
pub const PAIRS_MAX: usize = 400;
/// Pairs below which nothing is concluded.
pub const PAIRS_MIN: usize = 40;
/// Largest factor, and one over the smallest.
pub(crate) const FACTOR_MAX: f64 = 4.0;
/// The quantile of |z| that is compared, and what it is for a normal variable.
const COVERAGE: f64 = 0.9;
pub(crate) const NINETY: f64 = 1.645;
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

/// Those of the two that follow the chain of `slot`.
pub(crate) fn following(trials: &[Trial; 2], slot: usize) -> impl Iterator<Item = usize> + use<> {
    let follows = [0, 1].map(|k| trials[k].slot == Some(slot as u64));
    (0..2).filter(move |&k| follows[k])
}

/// Rows from start number `starts` to the next, `least` at least: half a return of `length` rows, so that the two share little, and
/// up to a quarter of that more, so that starts do not keep step with episodes.
pub(crate) fn rows_apart(length: f64, least: u64, starts: u64) -> u64 {
    let half = ((length / 2.0).ceil() as u64).max(least);
    half + scrambled(starts) % (half / 4 + 1)
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
    /// That of a critic with m features: a start takes a quadratic form, O(m^2), which is O(m) a row this way.
    pub fn new(discount: f64, features: usize) -> Self {
        Self { discount, apart_min: (features as u64 / 8).max(16) }
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

/// Start rows that are followed, and the |z| of the last pairs. Written and read back it goes on bit for bit.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    trials: [Trial; 2],
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
}

impl Verification {
    /// Begin anew: what was predicted is another model's.
    pub fn forget(&mut self) {
        *self = Self::default();
    }

    /// A row of `slot` has arrived: what was followed up to here ends with its value, if it has far enough. `values` gives V_h.
    pub fn arrive(&mut self, slot: usize, values: impl Fn(usize) -> f64) {
        for k in following(&self.trials, slot) {
            if self.trials[k].weight < WEIGHT_END {
                self.conclude(k, &values);
            }
        }
    }

    /// Whether the row that has just arrived is to be a start row: then [`Verification::start`] follows. Asked once a row.
    pub fn is_due(&mut self, pace: Pace, ratio: f64) -> bool {
        if self.wait > 0 {
            self.wait -= 1;
            return false;
        }
        if ratio != 1.0 {
            return false;
        }
        self.starts += 1;
        self.wait = self.apart(pace) - 1;
        self.trials.iter().any(|trial| trial.slot.is_none())
    }

    /// Follow the row of `slot` that has just arrived; `predicted` gives V_h and the deviation of the return for each of H heads.
    /// Numbers that are no prediction are not followed.
    pub fn start(&mut self, slot: usize, predicted: impl Iterator<Item = (f64, f64)>) {
        let Some(trial) = self.trials.iter_mut().find(|trial| trial.slot.is_none()) else { return };
        trial.mean.clear();
        trial.deviation.clear();
        for (mean, deviation) in predicted {
            if !(mean.is_finite() && deviation.is_finite() && deviation > 0.0) {
                return;
            }
            trial.mean.push(mean);
            trial.deviation.push(deviation);
        }
        trial.follow(slot);
    }

    /// The rewards of the row that has just arrived, whether it started something or not.
    pub fn take(&mut self, row: Verified<'_>, pace: Pace) {
        for k in following(&self.trials, row.slot) {
            let trial = &mut self.trials[k];
            if row.ratio != 1.0 || trial.rows == ROWS_MAX {
                trial.slot = None;
                continue;
            }
            trial.gathered.iter_mut().zip(row.rewards).for_each(|(g, r)| *g += trial.weight * r);
            trial.rows += 1;
            trial.weight *= row.discount;
            if trial.weight == 0.0 {
                self.conclude(k, |_| 0.0);
                self.wait = self.wait.min(self.apart(pace));
            }
        }
    }

    /// The chain of `slot` is cut at a state of these values: what has not been followed far enough does not count.
    pub fn cut(&mut self, slot: usize, values: impl Fn(usize) -> f64) {
        self.arrive(slot, values);
        for k in following(&self.trials, slot) {
            self.trials[k].slot = None;
        }
    }

    /// The return of trial k is known but for `weight` times these values.
    fn conclude(&mut self, k: usize, values: impl Fn(usize) -> f64) {
        let trial = &mut self.trials[k];
        trial.slot = None;
        let heads = trial.mean.len();
        for h in 0..heads {
            let rest = if trial.weight > 0.0 { trial.weight * values(h) } else { 0.0 };
            trial.gathered[h] = ((trial.gathered[h] + rest - trial.mean[h]) / trial.deviation[h]).abs();
        }
        self.lengths = LENGTHS_MAX.min(self.lengths + 1);
        self.length += (trial.rows as f64 - self.length) / self.lengths as f64;
        if !trial.gathered.iter().all(|z| z.is_finite()) {
            return;
        }
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
    }

    /// Rows from one start to the next.
    fn apart(&self, pace: Pace) -> u64 {
        let length = if self.lengths > 0 { self.length } else { expected_length(pace.discount) };
        rows_apart(length, pace.apart_min, self.starts)
    }

    /// Pairs behind [`Verification::factor`], with H `heads`.
    pub fn pairs(&self, heads: usize) -> u64 {
        (self.errors.len() / heads.max(1)) as u64
    }

    /// By what deviations of returns are to be multiplied so that nine in ten of the |z| of all heads stay within 1.645: in
    /// \[1/4, 4\], 1 below [`PAIRS_MIN`] pairs. So few tell the quantile to one standard deviation of their number only, and of
    /// what that leaves open it is what changes least:
    /// ```text
    /// lower, upper = the quantiles of |z| at 0.9 -+ sqrt(0.9 0.1 / pairs), over 1.645        factor = 1, moved into [lower, upper]
    /// ```
    /// The quantile itself spoiled intervals that were right (coverage 0.85 to 0.95 on the walk, from 0.90 to 0.91).
    pub fn factor(&self, heads: usize) -> f64 {
        if self.pairs(heads) < PAIRS_MIN as u64 {
            return 1.0;
        }
        let mut errors = self.errors.clone();
        errors.sort_unstable_by(f64::total_cmp);
        let [lower, upper] = open_rank(errors.len(), self.pairs(heads) as usize).map(|rank| errors[rank] / NINETY);
        1.0f64.clamp(lower, upper).clamp(1.0 / FACTOR_MAX, FACTOR_MAX)
    }

    /// Share of the returns of all `heads` heads that lay in the 90 % interval as it was predicted, before any factor, from 0 to 1;
    /// none while there are no pairs.
    pub fn coverage(&self, heads: usize) -> Option<f64> {
        let inside = self.errors.iter().filter(|&&z| z <= NINETY).count();
        (self.pairs(heads) > 0).then(|| inside as f64 / self.errors.len() as f64)
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.errors.capacity() * size_of::<f64>()
    }

    /// Whether its parts fit H rewards and this many slots.
    pub(crate) fn is_consistent(&self, rewards: usize, slots: usize) -> bool {
        let pairs = self.errors.len() / rewards.max(1);
        self.errors.len() == pairs * rewards
            && pairs <= PAIRS_MAX
            && self.oldest < PAIRS_MAX as u64
            && self.length >= 0.0
            && self.length <= ROWS_MAX as f64
            && self.lengths <= LENGTHS_MAX
            && self.trials.iter().all(|trial| trial.fits(rewards, slots))
    }
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
    const PACE: Pace = Pace { discount: DISCOUNT, apart_min: 32 };

    fn normal(rng: &mut ChaCha8Rng) -> f64 {
        (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
    }

    /// A row of slot 0 with one reward, as a model would show it.
    fn row(verification: &mut Verification, reward: f64, discount: f64, value: f64, deviation: f64) {
        verification.arrive(0, |_| value);
        if verification.is_due(PACE, 1.0) {
            verification.start(0, std::iter::once((value, deviation)));
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
    fn the_factor_undoes_what_is_stated_wrongly() {
        for overstated in [2.0, 1.0, 0.5] {
            let factors: Vec<f64> = (1..=8).map(|seed| independent(30_000, overstated, seed).factor(1)).collect();
            let mean = factors.iter().sum::<f64>() / 8.0;
            assert!((mean * overstated - 1.0).abs() < 0.12, "stated {overstated} times too large: {factors:?}");
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
        let [few, many] = [40, 400].map(|pairs| (1..=50).map(|seed| drawn(pairs, 2.0, seed)).sum::<f64>() / 50.0);
        assert!(1.6 < few && few < many && many < 2.0, "{few} {many}");
    }

    #[test]
    fn few_pairs_conclude_nothing_and_many_are_forgotten() {
        let few = independent(1000, 2.0, 1);
        assert!(few.pairs(1) > 10 && few.pairs(1) < PAIRS_MIN as u64, "{}", few.pairs(1));
        assert_eq!(few.factor(1), 1.0);
        let mut many = independent(30_000, 2.0, 1);
        assert_eq!(many.pairs(1), PAIRS_MAX as u64);
        many.errors.fill(1e9);
        assert_eq!((many.factor(1), many.coverage(1)), (FACTOR_MAX, Some(0.0)));
        many.errors.fill(0.0);
        assert_eq!((many.factor(1), many.coverage(1)), (1.0 / FACTOR_MAX, Some(1.0)));
        // Three of every four: the factor changes nothing of what is told.
        many.errors.iter_mut().step_by(4).for_each(|z| *z = 2.0 * NINETY);
        assert_eq!((many.factor(1), many.coverage(1), many.coverage(2)), (2.0, Some(0.75), Some(0.75)));
        many.forget();
        assert_eq!((many.factor(1), many.pairs(1), many.coverage(1)), (1.0, 0, None));
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
            verification.cut(0, |_| 0.0);
        }
        assert_eq!((verification.pairs(1), verification.factor(1)), (0, 1.0), "44 rows are needed");
        assert!(verification.starts > 50, "cuts free what they end");
        // Cut where the weight has run out already, it is known.
        let mut verification = Verification::default();
        (0..44).for_each(|_| row(&mut verification, 1.0, DISCOUNT, 10.0, 1.0));
        assert_eq!(verification.pairs(1), 0);
        verification.cut(0, |_| 10.0);
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
        assert!(followed.count() == 2 && verification.pairs(1) == 0);
    }

    #[test]
    fn the_second_starts_half_a_return_after_the_first() {
        for discount in [0.95, 0.99, 0.999] {
            let length = expected_length(discount) as u64;
            for starts in 0..100 {
                let pace = Pace::new(discount, 400);
                let apart = Verification { starts, ..Verification::default() }.apart(pace);
                assert!(2 * apart >= length && 8 * apart <= 5 * (length + 2).max(2 * 50), "{discount}: {apart}");
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
        row(&mut verification, 1e300, 0.0, -1e308, 1e-300);
        assert_eq!((verification.pairs(1), verification.lengths), (0, 1));
    }

    #[test]
    fn written_and_read_back_it_goes_on() {
        let mut one = independent(2000, 1.0, 3);
        let bytes = rmp_serde::to_vec_named(&one).unwrap();
        let mut other: Verification = rmp_serde::from_slice(&bytes).unwrap();
        assert_eq!(one, other);
        assert!(other.is_consistent(1, 1) && !other.is_consistent(2, 1) && !other.is_consistent(1, 0));
        let mut rng = ChaCha8Rng::seed_from_u64(4);
        for _ in 0..30_000 {
            let reward = normal(&mut rng);
            row(&mut one, reward, DISCOUNT, 0.0, 1.0);
            row(&mut other, reward, DISCOUNT, 0.0, 1.0);
        }
        assert_eq!(one, other);
        assert!(one.is_consistent(1, 1));
    }
}
