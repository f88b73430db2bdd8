//! Does a sequence of numbers still behave as it did? A CUSUM of block means at several lengths at once.
//!
//! Numbers are TD errors e (unit of the reward) or state variables. In units of their own spread, sd of the first
//! [`SCALE_ROWS`] of them, two statistics are watched: x1 for a shift of their mean, up or down, and x2 for a rise of their
//! size.
//! ```text
//! x1 = clip((e - centre) / sd, -4, 4)        x2 = min(|e - centre| / sd, 4)        centre = 0 for errors
//! ```
//! For each block length L = 64, 128, .., 2048, with b the mean of a block, n the blocks before it since the last reset, mu and
//! sd_b the mean and standard deviation of their means, rho the correlation of one block's mean with the next one's:
//! ```text
//! z = clip((b - mu) / (sd_b sqrt((1 + rho) / (1 - rho)) sqrt(1 + 1 / n)), -4, 4)       c <- max(0, c + z - 1/2)
//! ```
//! c above a threshold is an alarm, where n >= 50 and rho < 0.8: blocks that resemble each other more say little. What a block
//! adds to mu and sd_b is pulled to within 3 sd_b, so that a change does not become the normal case while it is judged.
//!
//! The equations are (C1) to (C4) of `docs/mathematics.md`. A number costs two additions, a block a few dozen operations; memory is constant. Nothing depends on how numbers are
//! grouped into calls.

use serde::{Deserialize, Serialize};

/// Numbers from which the spread is estimated; it stays as it is from there on.
pub const SCALE_ROWS: u64 = 512;
/// Numbers in a block of the shortest length.
pub const SHORTEST: u64 = 64;
/// Lengths, each twice the one before.
pub const LENGTHS: usize = 6;
/// Blocks of a length before it may raise an alarm.
const BLOCKS_MIN: u64 = 50;
/// Correlation of consecutive blocks from which on a length is silent.
const CORRELATION_MAX: f64 = 0.8;
/// Largest correlation that the spread of block means is corrected for.
const CORRECTED_MAX: f64 = 0.95;
/// Numbers, in units of their spread, and z are clipped here.
const CLIP: f64 = 4.0;
/// Standard deviations to within which block means are pulled before the baseline learns from them.
const PULL: f64 = 3.0;
/// What z has to exceed on average for c to rise: half the shift, in standard deviations, that is found fastest.
const ALLOWANCE: f64 = 0.5;
/// What two Gaussians have to explain better than one for numbers to be split, nats.
const SPLIT_NATS: f64 = 10.0;
/// Smallest variance of a part of split numbers, in units of their spread: a few equal numbers are no certain change.
const SPLIT_VARIANCE_MIN: f64 = 1e-4;
/// Keeps a spread of zero from dividing.
const SPREAD_MIN: f64 = 1e-12;

/// What has changed about the numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Statistic {
    /// Their mean is higher.
    Higher,
    /// Their mean is lower.
    Lower,
    /// They are larger in size.
    Wider,
}

/// What a series has to say at its most changed.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// What has changed.
    pub statistic: Statistic,
    /// Length of the blocks that show it, rows.
    pub length: u64,
    /// c: about e more rows between false alarms for each unit.
    pub level: f64,
    /// Offset at which the present rise of c began: the change probably happened about there.
    pub since: u64,
    /// Mean of x1, or of x2, since then less what it was, in units of the spread: positive, but for `Lower`.
    pub size: f64,
    /// The spread, in the unit of the numbers.
    pub unit: f64,
}

/// One CUSUM and its present rise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Rise {
    /// c.
    level: f64,
    /// Offset at which the first block of the rise began.
    since: u64,
    /// Sum over the rise of block mean less mu.
    excess: f64,
    /// Blocks of the rise.
    blocks: u64,
}

impl Rise {
    /// A block that began at offset `start` with this z, whose mean exceeds mu by `excess`.
    fn take(&mut self, z: f64, excess: f64, start: u64) {
        if self.level == 0.0 {
            *self = Self { since: start, ..Self::default() };
        }
        self.level = (self.level + z - ALLOWANCE).max(0.0);
        self.excess += excess;
        self.blocks += 1;
    }
}

/// Running mean, squared deviations and lag-one products of block means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Baseline {
    mean: f64,
    squares: f64,
    products: f64,
    last: f64,
}

impl Baseline {
    /// sd_b, of n block means.
    fn deviation(&self, n: u64) -> f64 {
        (self.squares / (n.max(2) - 1) as f64).sqrt() + SPREAD_MIN
    }

    /// rho of n block means, a standard error higher than it was found, in [0, 0.95].
    fn correlation(&self, n: u64) -> f64 {
        (self.products / (self.squares + SPREAD_MIN) + 1.0 / (n as f64).sqrt()).clamp(0.0, CORRECTED_MAX)
    }

    /// Standard deviation of a block mean as mu predicts it: uncertainty of both, and the likeness of neighbours.
    fn expected(&self, n: u64) -> f64 {
        let rho = self.correlation(n);
        self.deviation(n) * ((1.0 + rho) / (1.0 - rho)).sqrt() * (1.0 + 1.0 / n as f64).sqrt()
    }

    /// The n-th mean.
    fn learn(&mut self, mean: f64, n: u64) {
        let before = mean - self.mean;
        self.mean += before / n as f64;
        let after = mean - self.mean;
        self.squares += before * after;
        if n > 1 {
            self.products += after * (self.last - self.mean);
        }
        self.last = mean;
    }
}

/// CUSUMs of one block length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Level {
    blocks: u64,
    /// Of x1 and x2.
    baselines: [Baseline; 2],
    /// Higher, lower, wider.
    rises: [Rise; 3],
}

impl Level {
    /// Take the means of x1 and x2 over the block that began at offset `start`.
    fn take(&mut self, means: [f64; 2], start: u64) {
        let n = self.blocks;
        let speaks = n >= BLOCKS_MIN;
        for (which, (&mean, baseline)) in means.iter().zip(&mut self.baselines).enumerate() {
            let mut learned = mean;
            if speaks {
                let excess = mean - baseline.mean;
                let z = (excess / baseline.expected(n)).clamp(-CLIP, CLIP);
                if which == 0 {
                    self.rises[0].take(z, excess, start);
                    self.rises[1].take(-z, excess, start);
                } else {
                    self.rises[2].take(z, excess, start);
                }
                let far = PULL * baseline.deviation(n);
                learned = mean.clamp(baseline.mean - far, baseline.mean + far);
            }
            baseline.learn(learned, n + 1);
        }
        self.blocks += 1;
    }

    /// The most risen CUSUM that may speak.
    fn finding(&self, length: u64, unit: f64) -> Option<Finding> {
        const KINDS: [(Statistic, usize); 3] = [(Statistic::Higher, 0), (Statistic::Lower, 0), (Statistic::Wider, 1)];
        let mut found: Option<Finding> = None;
        for (rise, (statistic, of)) in self.rises.iter().zip(KINDS) {
            let silent = rise.level == 0.0 || self.baselines[of].correlation(self.blocks) >= CORRELATION_MAX;
            if !silent && found.is_none_or(|found| rise.level > found.level) {
                let (level, since, size) = (rise.level, rise.since, rise.excess / rise.blocks as f64);
                found = Some(Finding { statistic, length, level, since, size, unit });
            }
        }
        found
    }

    fn reset(&mut self) {
        self.rises = Default::default();
    }

    fn is_finite(&self) -> bool {
        self.baselines.iter().all(|b| [b.mean, b.squares, b.products, b.last].iter().all(|v| v.is_finite()))
            && self.rises.iter().all(|rise| rise.level.is_finite() && rise.level >= 0.0 && rise.excess.is_finite())
    }
}

/// Centre and spread by which numbers are standardised.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
struct Unit {
    /// Numbers that it was estimated from, up to [`SCALE_ROWS`].
    count: u64,
    mean: f64,
    squares: f64,
}

impl Unit {
    fn take(&mut self, value: f64) {
        self.count += 1;
        let before = value - self.mean;
        self.mean += before / self.count as f64;
        self.squares += before * (value - self.mean);
    }

    fn spread(&self) -> f64 {
        // Rounding of what hardly varies is no spread.
        (self.squares / self.count.max(1) as f64).sqrt().max(SPREAD_MIN * self.mean.abs()).max(f64::MIN_POSITIVE)
    }
}

/// A watched sequence of numbers. Written and read back it goes on bit for bit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// Whether x1 and x2 count from the mean of the first numbers; errors count from zero.
    centred: bool,
    unit: Unit,
    /// 1 / sd, once it is known.
    per_spread: f64,
    /// Sums of x1 and x2 over the running block of the shortest length, its numbers so far, and the offset it began at.
    sums: [f64; 2],
    filled: u64,
    start: u64,
    /// Of each longer length: sums of block means of the shortest, how many, and the offset of the first.
    longer: [([f64; 2], u64, u64); LENGTHS],
    levels: [Level; LENGTHS],
}

impl Series {
    /// Watch errors, whose zero means something.
    pub fn of_errors() -> Self {
        Self::new(false)
    }

    /// Watch a quantity whose zero is arbitrary.
    pub fn of_values() -> Self {
        Self::new(true)
    }

    fn new(centred: bool) -> Self {
        Self {
            centred,
            unit: Unit::default(),
            per_spread: 0.0,
            sums: [0.0; 2],
            filled: 0,
            start: 0,
            longer: Default::default(),
            levels: Default::default(),
        }
    }

    /// Take the next number, which belongs to the row at `offset`; whether it ended a block. What is not finite counts as
    /// the largest there can be.
    pub fn push(&mut self, value: f64, offset: u64) -> bool {
        let value = if value.is_nan() { f64::MAX } else { value.clamp(-f64::MAX, f64::MAX) };
        if self.unit.count < SCALE_ROWS {
            // A square must not overflow.
            self.unit.take(value.clamp(-1e150, 1e150));
            self.per_spread = 1.0 / self.unit.spread();
            return false;
        }
        let [x1, x2] = self.told(value);
        if self.filled == 0 {
            self.start = offset;
        }
        self.sums[0] += x1;
        self.sums[1] += x2;
        self.filled += 1;
        if self.filled < SHORTEST {
            return false;
        }
        self.end_block();
        true
    }

    /// x1 and x2 of a number: 0 until the spread is known.
    pub fn told(&self, value: f64) -> [f64; 2] {
        if self.unit.count < SCALE_ROWS {
            return [0.0; 2];
        }
        let centre = if self.centred { self.unit.mean } else { 0.0 };
        let x = (value - centre) * self.per_spread;
        // 0 times infinity: the spread was too small to be inverted.
        let x = if x.is_nan() { 0.0 } else { x.clamp(-CLIP, CLIP) };
        [x, x.abs()]
    }

    fn end_block(&mut self) {
        let means = self.sums.map(|sum| sum / SHORTEST as f64);
        for (k, (level, (sums, filled, start))) in self.levels.iter_mut().zip(&mut self.longer).enumerate() {
            if *filled == 0 {
                *start = self.start;
            }
            sums[0] += means[0];
            sums[1] += means[1];
            *filled += 1;
            if *filled == 1 << k {
                level.take(sums.map(|sum| sum / *filled as f64), *start);
                (*sums, *filled) = ([0.0; 2], 0);
            }
        }
        (self.sums, self.filled) = ([0.0; 2], 0);
    }

    /// What it has to say now, at the length that says it loudest; nothing while nothing has risen.
    pub fn finding(&self) -> Option<Finding> {
        let findings =
            self.levels.iter().enumerate().filter_map(|(k, level)| level.finding(SHORTEST << k, self.spread()));
        findings.reduce(|a, b| if b.level > a.level { b } else { a })
    }

    /// The spread, in the unit of the numbers; 0 while there is none.
    pub fn spread(&self) -> f64 {
        if self.unit.count < SCALE_ROWS { 0.0 } else { self.unit.spread() }
    }

    /// Whether any length may speak.
    pub fn speaks(&self) -> bool {
        self.levels[0].blocks >= BLOCKS_MIN
    }

    /// Keep unit and baselines, and begin to watch from there: for a model that was set aside and comes back.
    pub fn reset(&mut self) {
        self.levels.iter_mut().for_each(Level::reset);
        (self.sums, self.filled, self.longer) = Default::default();
    }

    /// How far numbers lie from the baseline, in standard deviations of a mean of their number: z of x1, either way, and of x2,
    /// larger only; the larger of the two. None while there is no baseline.
    pub fn strangeness(&self, numbers: impl Iterator<Item = f64>) -> Option<f64> {
        let (mut sums, mut count) = ([0.0; 2], 0_u64);
        for value in numbers {
            let told = self.told(value);
            sums[0] += told[0];
            sums[1] += told[1];
            count += 1;
        }
        if count == 0 || !self.speaks() {
            return None;
        }
        // The longest length that is no longer than the sample and known well: means of blocks that resemble each other
        // vary more than one over the square root says.
        let known = |&k: &usize| k == 0 || (SHORTEST << k <= count && self.levels[k].blocks >= BLOCKS_MIN / 4);
        let k = (0..LENGTHS).rev().find(known)?;
        let level = &self.levels[k];
        let share = ((SHORTEST << k) as f64 / count as f64).sqrt();
        let z = |which: usize| {
            let baseline = &level.baselines[which];
            (sums[which] / count as f64 - baseline.mean) / (baseline.expected(level.blocks) * share)
        };
        Some(z(0).abs().max(z(1)))
    }

    /// Whether its parts are numbers.
    pub(crate) fn is_consistent(&self) -> bool {
        let Unit { count, mean, squares } = self.unit;
        count <= SCALE_ROWS
            && mean.is_finite()
            && squares.is_finite()
            && squares >= 0.0
            && self.per_spread >= 0.0
            && self.filled < SHORTEST
            && self.sums.iter().all(|sum| sum.is_finite())
            && self.longer.iter().enumerate().all(|(k, (sums, filled, _))| {
                (*filled < 1 << k || k == 0 && *filled == 0) && sums.iter().all(|sum| sum.is_finite())
            })
            && self.levels.iter().all(Level::is_finite)
    }
}

/// After how many of the numbers `x` they most probably changed: the k that maximises the likelihood of two Gaussians, each with
/// its own mean and variance, one of the first k numbers and one of the rest,
/// ```text
/// k = argmin  k ln v(1..k) + (n - k) ln v(k+1..n)
/// ```
/// with at least `least` numbers in either part. None where two Gaussians explain the numbers no better than one by
/// ten nats. Numbers are in units of their spread before the change, and are clipped as in a [`Series`].
pub fn split(x: &[f64], least: usize) -> Option<usize> {
    let mut sums = vec![[0.0; 2]];
    for &value in x {
        let value = if value.is_nan() { CLIP } else { value.clamp(-CLIP, CLIP) };
        let [sum, squares] = sums[sums.len() - 1];
        sums.push([sum + value, squares + value * value]);
    }
    let cost = |from: usize, to: usize| {
        let n = (to - from) as f64;
        let [sum, squares] = [0, 1].map(|k| (sums[to][k] - sums[from][k]) / n);
        // A part without spread must not decide alone.
        0.5 * n * (squares - sum * sum).max(SPLIT_VARIANCE_MIN).ln()
    };
    let n = x.len();
    let parts = (least.max(1)..(n + 1).saturating_sub(least.max(1))).map(|k| (k, cost(0, k) + cost(k, n)));
    let (k, best) = parts.min_by(|a, b| a.1.total_cmp(&b.1))?;
    (best + SPLIT_NATS < cost(0, n)).then_some(k)
}

/// What is kept of one stream beside all others: one block length, in the unit of the series of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct BlockSeries {
    sums: [f64; 2],
    filled: u64,
    start: u64,
    level: Level,
}

impl BlockSeries {
    /// Take x1 and x2 of its next number, at `offset`; whether that ended a block.
    pub fn push(&mut self, told: [f64; 2], offset: u64) -> bool {
        if self.filled == 0 {
            self.start = offset;
        }
        self.sums[0] += told[0];
        self.sums[1] += told[1];
        self.filled += 1;
        if self.filled < SHORTEST {
            return false;
        }
        self.level.take(self.sums.map(|sum| sum / SHORTEST as f64), self.start);
        (self.sums, self.filled) = ([0.0; 2], 0);
        true
    }

    /// As [`Series::finding`]; `unit` is the spread of the series of all.
    pub fn finding(&self, unit: f64) -> Option<Finding> {
        self.level.finding(SHORTEST, unit)
    }

    /// Sum of x1, or of x2, over the present rise of one statistic, less what was normal: 0 while nothing rises.
    pub fn excess(&self, statistic: Statistic) -> f64 {
        let rise = self.level.rises[statistic as usize];
        if rise.level > 0.0 { SHORTEST as f64 * rise.excess } else { 0.0 }
    }

    /// Whether its parts are numbers.
    pub(crate) fn is_consistent(&self) -> bool {
        self.filled < SHORTEST && self.sums.iter().all(|sum| sum.is_finite()) && self.level.is_finite()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    fn normal(rng: &mut ChaCha8Rng) -> f64 {
        (0..12).map(|_| rng.random::<f64>()).sum::<f64>() - 6.0
    }

    /// The first offset at which c exceeds 15, and what was found, where numbers are `change`d from `at` on.
    fn alarm(rows: u64, at: u64, seed: u64, change: impl Fn(f64) -> f64) -> Option<(u64, Finding)> {
        let (mut rng, mut series) = (ChaCha8Rng::seed_from_u64(seed), Series::of_errors());
        for offset in 0..rows {
            let x = 3.0 * normal(&mut rng);
            if series.push(if offset < at { x } else { change(x) }, offset)
                && let Some(found) = series.finding()
                && found.level > 15.0
            {
                return Some((offset, found));
            }
        }
        None
    }

    #[test]
    fn numbers_that_stay_as_they_were_raise_no_alarm() {
        for seed in 0..3 {
            assert_eq!(alarm(200_000, u64::MAX, seed, |x| x), None);
        }
    }

    #[test]
    fn each_kind_of_change_is_found_and_named() {
        for (statistic, size, change) in [
            (Statistic::Higher, 0.5, (|x| x + 1.5) as fn(f64) -> f64),
            (Statistic::Lower, -0.5, |x| x - 1.5),
            (Statistic::Wider, 0.4, |x| 1.5 * x),
        ] {
            let (offset, found) = alarm(30_000, 20_000, 7, change).expect("an alarm");
            assert!((20_000..20_800).contains(&offset), "{statistic:?} at {offset}");
            assert_eq!(found.statistic, statistic);
            assert!((found.size - size).abs() < 0.12, "{found:?}");
            assert!((found.unit - 3.0).abs() < 0.3 && found.since.abs_diff(20_000) < 300, "{found:?}");
        }
    }

    #[test]
    fn a_single_outlier_is_no_change() {
        let (mut rng, mut series) = (ChaCha8Rng::seed_from_u64(3), Series::of_errors());
        for offset in 0..100_000 {
            let x = if offset % 5000 == 0 { 1e9 } else { normal(&mut rng) };
            series.push(x, offset);
            assert!(series.finding().is_none_or(|found| found.level < 15.0), "{offset}");
        }
    }

    #[test]
    fn what_was_never_there_and_what_is_no_number_do_no_harm() {
        let mut series = Series::of_values();
        for offset in 0..10_000 {
            series.push(0.0, offset);
        }
        assert_eq!(series.finding(), None);
        for (k, value) in
            [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e308, -1e308].into_iter().cycle().take(999).enumerate()
        {
            series.push(value, 10_000 + k as u64);
        }
        assert!(series.is_consistent(), "{series:?}");
        let mut early = Series::of_errors();
        for k in 0..20_000 {
            early.push([f64::NAN, 1e308, -1e308][k as usize % 3], k);
        }
        assert!(early.is_consistent(), "{early:?}");
    }

    #[test]
    fn a_constant_added_to_a_quantity_changes_nothing() {
        let (mut rng, mut near, mut far) = (ChaCha8Rng::seed_from_u64(5), Series::of_values(), Series::of_values());
        for offset in 0..20_000 {
            let x = (16.0 * normal(&mut rng)).round() / 16.0;
            near.push(x, offset);
            far.push(x + 1024.0, offset);
        }
        let levels = |series: &Series| series.levels.map(|level| level.rises.map(|rise| rise.level));
        for (a, b) in levels(&near).iter().flatten().zip(levels(&far).iter().flatten()) {
            assert!((a - b).abs() < 1e-9, "{a} {b}");
        }
    }

    #[test]
    fn numbers_are_split_where_they_change() {
        let mut rng = ChaCha8Rng::seed_from_u64(21);
        let mut missed = 0;
        for (k, change) in
            [|x: f64| x + 1.0, |x: f64| x - 1.0, |x: f64| 2.0 * x].into_iter().cycle().take(60).enumerate()
        {
            let at = 100 + 12 * k;
            let x: Vec<f64> = (0..1024)
                .map(|_| normal(&mut rng))
                .enumerate()
                .map(|(i, x)| if i < at { x } else { change(x) })
                .collect();
            missed += usize::from(split(&x, 64).is_none_or(|found| found.abs_diff(at) > 24));
        }
        assert!(missed <= 6, "{missed} of 60");
        let calm: Vec<f64> = (0..1024).map(|_| normal(&mut rng)).collect();
        assert_eq!((split(&calm, 64), split(&calm[..100], 64), split(&[], 0)), (None, None, None));
        assert_eq!(split(&[f64::NAN; 300], 64), None);
    }

    #[test]
    fn what_fits_is_told_from_what_does_not() {
        let (mut rng, mut series) = (ChaCha8Rng::seed_from_u64(9), Series::of_errors());
        for offset in 0..20_000 {
            series.push(normal(&mut rng), offset);
        }
        let mut sample = |shift: f64| {
            let numbers: Vec<f64> = (0..512).map(|_| normal(&mut rng) + shift).collect();
            series.strangeness(numbers.into_iter()).expect("a baseline")
        };
        assert!(sample(0.0) < 3.0 && sample(0.3) > 4.0);
        assert_eq!(series.strangeness(std::iter::empty()), None);
        assert_eq!(Series::of_errors().strangeness(std::iter::once(1.0)), None);
    }

    #[test]
    fn written_and_read_back_it_goes_on() {
        let (mut rng, mut one) = (ChaCha8Rng::seed_from_u64(1), Series::of_errors());
        for offset in 0..9_999 {
            one.push(normal(&mut rng), offset);
        }
        let bytes = rmp_serde::to_vec_named(&one).unwrap();
        let mut other: Series = rmp_serde::from_slice(&bytes).unwrap();
        assert!(one == other && other.is_consistent());
        for offset in 9_999..30_000 {
            let x = normal(&mut rng) + 0.2;
            assert_eq!(one.push(x, offset), other.push(x, offset));
        }
        assert!(one == other && one.finding().is_some());
    }
}
