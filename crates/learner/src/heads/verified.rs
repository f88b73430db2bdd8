//! Live verification of heads: what they predicted of returns before these were known, and the returns that came.
//!
//! Two start rows at a time are followed for the heads of each discount sequence. Each holds V_h(x) under the weights of the last
//! refresh of heads and the deviation of a return, and gathers the rewards of its chain from there on, docs/mathematics.md (H13):
//! ```text
//! y_h <- y_h + weight r_h        weight <- weight g        z_h = (y_h + weight V_h(x_end) - V_h(x)) / deviation_h
//! ```
//! It ends where the chain terminates, or with the next row once the weight is below [`WEIGHT_END`]. A chain that is cut before does
//! not count: closed by its own prediction a pair would verify the model by the model. Rows, flags, times and the rows at which
//! weights are refreshed decide about all of this: no clock, no batch.

use crate::math::backfill::difference_residual;
use crate::math::dense::{Matrix, axpy, axpy_single, dot};
use crate::math::head_sums::Spectrum;
use crate::math::kernel::Kernel;
use crate::math::posterior::Scale;
use crate::math::raw;
use crate::verification::{
    FACTOR_MAX, LENGTHS_MAX, NINETY, PAIRS_MIN, ROWS_MAX, Trial, WEIGHT_END, following, open_rank, rows_apart,
};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// Pairs that are remembered of each head.
pub(super) const PAIRS_MAX: usize = 256;
/// Steps between two levels of |z| that are a factor of 2 apart.
const STEPS: f64 = 32.0;
/// Level of |z| = 1.645. Levels reach from 1/16 to 16 times that.
const INSIDE: u8 = 127;
/// Level of a pair that is no number, and of one that has not come yet.
const NONE: u8 = u8::MAX;
/// Figures of each head: mean and variance of y - V, mean and variance of y.
const FIGURES: usize = 4;

/// The verified returns of one head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HeadVerdict {
    /// Pairs of a prediction and a return behind it, 40 to 256.
    pub pairs: usize,
    /// Share of the returns in the 90 % interval as it was predicted, before any factor, 0 to 1.
    pub coverage: f64,
    /// Mean of y - V, in the unit of the return.
    pub bias: f64,
    /// Variance of y - V over the variance of y, from 0; none where returns do not vary.
    pub unexplained: Option<f64>,
    /// What deviations of returns are multiplied by, in \[1/4, 4\].
    pub factor: f64,
}

/// Weights of all heads at one moment: they predict until the next refresh of heads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Forecast {
    /// Rows that had been learned.
    rows: u64,
    /// Of each weighting, in the unit of the newest row.
    spectra: Vec<Spectrum>,
    /// u' of each group (H, m), by columns. A return scatters far more than the rounding moves its prediction.
    weights: Vec<Vec<f32>>,
}

/// The heads of one group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct FollowedHeads {
    trials: [Trial; 2],
    /// Rows before the next start.
    wait: u64,
    /// Starts that fell due.
    starts: u64,
    /// Mean rows of returns that ended, and how many (up to [`LENGTHS_MAX`]).
    length: f64,
    lengths: u64,
    /// Pairs so far.
    pairs: u64,
    /// Pairs before each head came (H,); empty where all were there from the first one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    before: Vec<u64>,
    /// Levels of |z| (PAIRS_MAX, H), by columns: rings. Empty before the first pair.
    levels: Vec<u8>,
    /// (FIGURES, H), by columns.
    #[serde(with = "raw")]
    figures: Vec<f64>,
}

/// Start rows that are followed and their pairs. Written and read back it goes on bit for bit as it would have.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct HeadVerification {
    forecast: Option<Forecast>,
    groups: Vec<FollowedHeads>,
    #[serde(skip)]
    work: PredictionScratch,
}

/// Scratch of one prediction.
#[derive(Clone, Debug, Default)]
struct PredictionScratch {
    values: Vec<f64>,
    /// Q'phi (m,).
    images: Vec<f64>,
    /// Var V / signal of each ratio in use.
    unexplained: HashMap<u64, f64>,
}

impl PartialEq for PredictionScratch {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// A row that may become a start row, of one group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start<'a> {
    pub(super) slot: usize,
    /// phi (m,).
    pub(super) features: &'a [f64],
    /// The base kernel.
    pub(super) kernel: &'a Kernel,
    /// Number of the weighting, and how often it counts the row.
    pub(super) weighting: usize,
    pub(super) weight: f64,
    /// Rows that a return takes by its discount, 0 if that is not known.
    pub(super) length: u64,
}

impl HeadVerification {
    /// Be there for groups of these sizes, in heads. An older checkpoint has none of them.
    pub(super) fn settle(&mut self, heads: impl ExactSizeIterator<Item = usize>) {
        if self.groups.len() != heads.len() {
            self.groups = heads.map(FollowedHeads::new).collect();
        }
    }

    /// Rows at which the weights that predict were made; none without weights.
    pub(super) fn forecast_at(&self) -> Option<u64> {
        self.forecast.as_ref().map(|forecast| forecast.rows)
    }

    /// V of the head in this column of group number `g` at features (m,), as it is verified; none without weights. O(m).
    pub(super) fn value(&self, g: usize, column: usize, features: &[f64]) -> Option<f64> {
        let Forecast { spectra, weights, .. } = self.forecast.as_ref()?;
        let heads = weights[g].len() / spectra.first().map_or(1, |spectrum| spectrum.values.len()).max(1);
        Some(weights[g].chunks_exact(heads.max(1)).zip(features).map(|(row, phi)| f64::from(row[column]) * phi).sum())
    }

    /// Take the forecast's buffers for reuse; there is no forecast until [`HeadVerification::set_forecast`] makes one.
    pub(super) fn take_weights(&mut self) -> Vec<Vec<f32>> {
        self.forecast.take().map(|forecast| forecast.weights).unwrap_or_default()
    }

    /// There are no weights that predict any more: what is followed begins again.
    pub(super) fn give_up(&mut self) {
        self.forecast = None;
        self.drop_trials();
    }

    /// Predict with these weights of each group, [`in_single_precision`], from here on. `unit` is how often the newest row counts in
    /// `spectra`.
    pub(super) fn set_forecast(&mut self, rows: u64, unit: f64, mut spectra: Vec<Spectrum>, weights: Vec<Vec<f32>>) {
        spectra.iter_mut().flat_map(|spectrum| &mut spectrum.values).for_each(|value| *value /= unit);
        self.forecast = Some(Forecast { rows, spectra, weights });
    }

    /// A row of `slot` with features (m,) has arrived for group number `g`, `decay` the discount of the row before it: what is
    /// followed there ends, if it has far enough.
    pub(super) fn arrive(&mut self, g: usize, slot: usize, decay: f64, features: &[f64]) {
        for k in following(&self.groups[g].trials, slot) {
            let trial = &mut self.groups[g].trials[k];
            trial.weight *= decay;
            // What is not a number ends too, and counts for no head.
            if trial.weight < WEIGHT_END || trial.weight.is_nan() {
                self.conclude(g, k, features);
            }
        }
    }

    /// Follow a row that has just arrived for group number `g`, if one is due. `scale` gives the scales of its heads, column by
    /// column.
    pub(super) fn start(&mut self, g: usize, row: Start<'_>, scale: impl Fn(usize) -> Scale) {
        let Self { forecast: Some(forecast), groups, work } = self else { return };
        let Some(trial) = groups[g].due(&row) else { return };
        forecast.values(g, row.features, &mut trial.mean);
        forecast.turn(row.weighting, row.features, &mut work.images);
        work.unexplained.clear();
        let known = &row.features[..work.images.len()];
        let unknown = difference_residual(row.kernel.diagonal(), &known[row.kernel.columns()..]);
        let values = &forecast.spectra[row.weighting].values;
        trial.deviation.clear();
        for column in 0..trial.mean.len() {
            let Scale { signal, ratio } = scale(column);
            let variance = *work.unexplained.entry(ratio.to_bits()).or_insert_with(|| {
                let learned = work.images.iter().zip(values).map(|(t, value)| t * t * ratio / (value + ratio));
                unknown + learned.sum::<f64>()
            });
            trial.deviation.push((signal * (variance + ratio / row.weight)).sqrt());
        }
        trial.follow(row.slot);
    }

    /// The row of `slot` that has just arrived pays group number `g` these rewards (H,), and terminates its chain or not.
    pub(super) fn take(&mut self, g: usize, slot: usize, rewards: &[f64], terminated: bool) {
        for k in following(&self.groups[g].trials, slot) {
            let trial = &mut self.groups[g].trials[k];
            axpy(&mut trial.gathered, trial.weight, rewards);
            trial.rows += 1;
            if terminated {
                trial.weight = 0.0;
                self.conclude(g, k, &[]);
            } else if trial.rows == ROWS_MAX {
                trial.slot = None;
            }
        }
    }

    /// The chain of `slot` of group number `g` is cut, `decay` the discount of its last row, at a state of features (m,): what has
    /// not been followed far enough does not count.
    pub(super) fn cut(&mut self, g: usize, slot: usize, decay: f64, features: &[f64]) {
        if self.groups.is_empty() {
            return;
        }
        self.arrive(g, slot, decay, features);
        for k in following(&self.groups[g].trials, slot) {
            self.groups[g].trials[k].slot = None;
        }
    }

    /// End what is followed: its chains have ended.
    pub(super) fn drop_trials(&mut self) {
        self.groups.iter_mut().flat_map(|group| &mut group.trials).for_each(|trial| trial.slot = None);
    }

    /// Forget all pairs: they were of another world.
    pub(super) fn forget(&mut self) {
        self.groups.clear();
    }

    /// Forget the groups of which nothing stays, and of each other one all heads but the columns that do. What predicts and what is
    /// followed begins again.
    pub(super) fn select(&mut self, stay: &[Option<Vec<usize>>]) {
        self.give_up();
        let mut of_group = stay.iter();
        self.groups.retain_mut(|group| {
            let columns = of_group.next().and_then(Option::as_ref);
            columns.inspect(|columns| group.select(columns)).is_some()
        });
    }

    /// There are heads behind those there were: now `heads` in each group. What predicts and what is followed begins again, what
    /// has been verified stays.
    pub(super) fn join(&mut self, heads: &[usize]) {
        self.give_up();
        for (group, &count) in self.groups.iter_mut().zip(heads) {
            group.widen(count);
        }
        // Before the first row there is none.
        if !self.groups.is_empty() {
            self.groups.extend(heads.iter().skip(self.groups.len()).map(|&count| FollowedHeads::new(count)));
        }
    }

    /// Coverage of the heads of group number `g`, as [`HeadVerdict::coverage`], none below 40 pairs.
    pub(super) fn coverage(&self, g: usize) -> impl Iterator<Item = Option<f64>> {
        let levels = self.groups.get(g).map_or(&[][..], |group| &group.levels);
        levels.chunks_exact(PAIRS_MAX).map(|ring| {
            let (pairs, inside) = ring.iter().fold((0u32, 0u32), |(pairs, inside), &level| {
                (pairs + u32::from(level != NONE), inside + u32::from(level <= INSIDE))
            });
            (u64::from(pairs) >= PAIRS_MIN as u64).then(|| f64::from(inside) / f64::from(pairs))
        })
    }

    /// Variance of y - V over the variance of y, of the heads of group number `g`; none where returns do not vary, however few
    /// pairs there are.
    pub(super) fn unexplained(&self, g: usize) -> impl Iterator<Item = Option<f64>> {
        let figures = self.groups.get(g).map_or(&[][..], |group| &group.figures);
        figures.chunks_exact(FIGURES).map(|of| unexplained(of[1], of[3]))
    }

    /// The verdict about the head in this column of group number `g`; none below 40 pairs.
    pub(super) fn verdict(&self, g: usize, column: usize) -> Option<HeadVerdict> {
        let group = self.groups.get(g)?;
        let mut known = group.known(column)?;
        let pairs = known.len();
        let inside = known.iter().filter(|&&level| level <= INSIDE).count();
        let &[bias, left, _, all] = &group.figures[column * FIGURES..][..FIGURES] else { return None };
        Some(HeadVerdict {
            pairs,
            coverage: inside as f64 / pairs as f64,
            bias,
            unexplained: unexplained(left, all),
            factor: factor(&mut known),
        })
    }

    /// Bytes held, for reports of memory.
    pub(super) fn bytes(&self) -> usize {
        let weights = |forecast: &Forecast| {
            let spectra: usize = forecast.spectra.iter().map(|spectrum| spectrum.vectors.bytes()).sum();
            spectra + forecast.weights.iter().map(|of| size_of_val(&of[..])).sum::<usize>()
        };
        let trial = |trial: &Trial| 3 * size_of_val(&trial.mean[..]);
        let group = |group: &FollowedHeads| {
            group.levels.len() + size_of_val(&group.figures[..]) + group.trials.iter().map(trial).sum::<usize>()
        };
        self.forecast.as_ref().map_or(0, weights) + self.groups.iter().map(group).sum::<usize>()
    }

    /// Whether its parts fit groups of these sizes, m features, and this many slots and weightings.
    pub(super) fn is_consistent(&self, groups: &[usize], m: usize, slots: usize, weightings: usize) -> bool {
        let fits = |forecast: &Forecast| {
            let size = forecast.spectra.first().map_or(0, |spectrum| spectrum.values.len());
            let square = |s: &Spectrum| (s.values.len(), s.vectors.rows(), s.vectors.cols()) == (size, size, size);
            size <= m
                && forecast.spectra.len() == weightings
                && forecast.spectra.iter().all(square)
                && forecast.weights.len() == groups.len()
                && forecast.weights.iter().zip(groups).all(|(of, heads)| of.len() == size * heads)
        };
        let followed = |(group, &heads): (&FollowedHeads, &usize)| {
            (group.levels.is_empty() || group.levels.len() == PAIRS_MAX * heads)
                && group.figures.len() == FIGURES * heads
                && (group.before.is_empty() || group.before.len() == heads)
                && group.before.iter().all(|&before| before <= group.pairs)
                && group.length >= 0.0
                && group.trials.iter().all(|trial| trial.fits(heads, slots))
        };
        self.forecast.as_ref().is_none_or(fits)
            && (self.groups.is_empty() || self.groups.len() == groups.len())
            && self.groups.iter().zip(groups).all(followed)
    }

    /// The return of trial k of group number `g` is known, but for its weight times the values at these features, where that is
    /// positive.
    fn conclude(&mut self, g: usize, k: usize, features: &[f64]) {
        let Self { forecast, groups, work } = self;
        let group = &mut groups[g];
        let weight = group.trials[k].weight;
        work.values.clear();
        match forecast {
            Some(forecast) if weight != 0.0 => forecast.values(g, features, &mut work.values),
            _ => work.values.resize(group.trials[k].mean.len(), 0.0),
        }
        axpy(&mut group.trials[k].gathered, weight, &work.values);
        group.conclude(k);
    }
}

/// u' (H, m), by columns, of u (m, H): into what group number `g` has in `weights`, in its memory.
pub(super) fn in_single_precision(u: &Matrix, g: usize, weights: &mut Vec<Vec<f32>>) {
    weights.resize_with(weights.len().max(g + 1), Vec::new);
    let out = &mut weights[g];
    if out.len() != u.rows() * u.cols() {
        *out = vec![0.0; u.rows() * u.cols()];
    }
    for h in 0..u.cols() {
        let to = out.iter_mut().skip(h).step_by(u.cols());
        to.zip(u.col(h)).for_each(|(to, &weight)| *to = weight as f32);
    }
}

impl Forecast {
    /// V of the heads of group number `g` (H,) at features (m,), into `out`. Elements admitted since are not known yet.
    fn values(&self, g: usize, features: &[f64], out: &mut Vec<f64>) {
        let weights = &self.weights[g];
        let size = self.spectra.first().map_or(0, |spectrum| spectrum.values.len());
        let heads = weights.len() / size.max(1);
        out.clear();
        out.resize(heads, 0.0);
        for (row, phi) in weights.chunks_exact(heads.max(1)).zip(features) {
            axpy_single(out, *phi, row);
        }
    }

    /// Q'phi of weighting number `weighting`.
    fn turn(&self, weighting: usize, features: &[f64], out: &mut Vec<f64>) {
        let vectors = &self.spectra[weighting].vectors;
        let known = &features[..vectors.rows()];
        out.clear();
        out.extend((0..vectors.cols()).map(|j| dot(vectors.col(j), known)));
    }
}

impl FollowedHeads {
    fn new(heads: usize) -> Self {
        Self {
            trials: Default::default(),
            wait: 0,
            starts: 0,
            length: 0.0,
            lengths: 0,
            pairs: 0,
            before: Vec::new(),
            levels: Vec::new(),
            figures: vec![0.0; FIGURES * heads],
        }
    }

    fn heads(&self) -> usize {
        self.figures.len() / FIGURES
    }

    /// A free trial, where a start is due with this row. Asked once a row.
    fn due(&mut self, row: &Start<'_>) -> Option<&mut Trial> {
        if self.wait > 0 {
            self.wait -= 1;
            return None;
        }
        // A row that does not count has no noise of its own.
        if row.weight <= 0.0 {
            return None;
        }
        self.starts += 1;
        self.wait = self.apart(row) - 1;
        self.trials.iter_mut().find(|trial| trial.slot.is_none())
    }

    /// Rows from one start to the next. A start predicts for H heads, which takes as long as to learn two rows for them; with H/4
    /// rows between starts that is little.
    fn apart(&self, row: &Start<'_>) -> u64 {
        let length = if self.lengths > 0 { self.length } else { row.length as f64 };
        let least = (self.heads() as u64 / 4).max(row.features.len() as u64 / 8).max(16);
        rows_apart(length, least, self.starts)
    }

    /// The return of trial k is known.
    fn conclude(&mut self, k: usize) {
        let heads = self.heads();
        let Self { trials, before, levels, figures, .. } = self;
        let trial = &mut trials[k];
        trial.slot = None;
        self.lengths = LENGTHS_MAX.min(self.lengths + 1);
        self.length += (trial.rows as f64 - self.length) / self.lengths as f64;
        if levels.is_empty() {
            levels.resize(PAIRS_MAX * heads, NONE);
        }
        let place = (self.pairs % PAIRS_MAX as u64) as usize;
        self.pairs += 1;
        for h in 0..heads {
            let (found, error) = (trial.gathered[h], trial.gathered[h] - trial.mean[h]);
            levels[h * PAIRS_MAX + place] = level((error / trial.deviation[h]).abs());
            if error.is_finite() {
                let pairs = self.pairs - before.get(h).copied().unwrap_or(0);
                let rate = 1.0 / pairs.min(PAIRS_MAX as u64) as f64;
                let (errors, values) = figures[h * FIGURES..][..FIGURES].split_at_mut(2);
                for (value, known) in [(error, errors), (found, values)] {
                    let before = value - known[0];
                    known[0] += rate * before;
                    known[1] += rate * (before * (value - known[0]) - known[1]);
                }
            }
        }
    }

    fn select(&mut self, columns: &[usize]) {
        if !self.levels.is_empty() {
            self.levels =
                columns.iter().flat_map(|c| self.levels[c * PAIRS_MAX..][..PAIRS_MAX].iter().copied()).collect();
        }
        self.figures = columns.iter().flat_map(|c| self.figures[c * FIGURES..][..FIGURES].iter().copied()).collect();
        if !self.before.is_empty() {
            self.before = columns.iter().map(|&c| self.before[c]).collect();
        }
    }

    fn widen(&mut self, heads: usize) {
        if !self.levels.is_empty() {
            self.before.resize(self.heads(), 0);
            self.before.resize(heads, self.pairs);
            self.levels.resize(PAIRS_MAX * heads, NONE);
        }
        self.figures.resize(FIGURES * heads, 0.0);
    }

    /// The levels of the pairs of one head, 40 at least.
    fn known(&self, column: usize) -> Option<Vec<u8>> {
        let ring = self.levels.get(column * PAIRS_MAX..(column + 1) * PAIRS_MAX)?;
        let known: Vec<u8> = ring.iter().copied().filter(|&level| level != NONE).collect();
        (known.len() >= PAIRS_MIN).then_some(known)
    }
}

/// Variance that is `left` over `all` there is, if there is any; none where one has overflowed.
fn unexplained(left: f64, all: f64) -> Option<f64> {
    (all > 0.0).then(|| left / all).filter(|share| share.is_finite())
}

/// The level of |z|: each is 2 % above the one before, and [`INSIDE`] the last of the 90 % interval.
fn level(z: f64) -> u8 {
    if z.is_nan() {
        return NONE;
    }
    let steps = (STEPS * (z / NINETY).log2()).ceil();
    (f64::from(INSIDE) + steps).clamp(0.0, f64::from(NONE - 1)) as u8
}

/// By what deviations are to be multiplied so that nine in ten of the |z| at these levels stay within 1.645, as
/// [`crate::verification::Verification::factor`] has it.
fn factor(levels: &mut [u8]) -> f64 {
    levels.sort_unstable();
    let [lower, upper] = open_rank(levels.len(), levels.len()).map(|rank| {
        let steps = f64::from(levels[rank]) - f64::from(INSIDE) - 0.5;
        (steps / STEPS).exp2()
    });
    1.0f64.clamp(lower, upper).clamp(1.0 / FACTOR_MAX, FACTOR_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::kernel::Metric;
    use crate::verification::scrambled;

    /// One group of two heads over one feature, whose value is 1 and whose deviation is `stated`: with S = 0 all variance is noise.
    fn verification(stated: f64) -> (HeadVerification, impl Fn(usize) -> Scale) {
        let mut verification = HeadVerification::default();
        verification.settle([2].into_iter());
        let spectrum = Spectrum { values: vec![1e9], vectors: Matrix::identity(1) };
        verification.set_forecast(0, 1.0, vec![spectrum], vec![vec![1.0, 1.0]]);
        (verification, move |_| Scale { signal: 1.0, ratio: stated * stated })
    }

    fn row(verification: &mut HeadVerification, scale: &impl Fn(usize) -> Scale, decay: f64, rewards: [f64; 2]) {
        verification.arrive(0, 0, decay, &[1.0]);
        let kernel = &Kernel::gaussian(1.0, 0.0, Metric::Isotropic(1.0));
        let start = Start { slot: 0, features: &[1.0], kernel, weighting: 0, weight: 1.0, length: 1 };
        verification.start(0, start, scale);
        verification.take(0, 0, &rewards, false);
    }

    /// A number between 0 and 1 without a pattern.
    fn uniform(i: u64) -> f64 {
        scrambled(i) as f64 / u64::MAX as f64
    }

    fn normal(i: u64) -> f64 {
        (0..12).map(|k| uniform(12 * i + k)).sum::<f64>() - 6.0
    }

    #[test]
    fn the_factor_of_each_head_undoes_what_is_stated_wrongly() {
        let (mut verification, scale) = verification(1.0);
        for i in 0..20_000 {
            row(&mut verification, &scale, 0.0, [1.0 + 2.0 * normal(i), 0.25 * normal(i + 1_000_000)]);
        }
        let of = |column| verification.verdict(0, column).unwrap();
        let (wide, narrow) = (of(0), of(1));
        assert!((wide.factor - 2.0).abs() < 0.3, "{wide:?}");
        assert!((wide.coverage - 0.59).abs() < 0.1, "{wide:?}");
        assert!(wide.bias.abs() < 0.5 && (wide.unexplained.unwrap() - 1.0).abs() < 1e-9, "{wide:?}");
        // Its mean is a whole deviation off.
        assert!((narrow.bias + 1.0).abs() < 0.05 && narrow.coverage == 1.0 && narrow.factor < 1.0, "{narrow:?}");
        assert_eq!(verification.coverage(0).collect::<Vec<_>>(), [Some(wide.coverage), Some(1.0)]);
        assert_eq!(verification.unexplained(0).collect::<Vec<_>>(), [wide.unexplained, narrow.unexplained]);
    }

    #[test]
    fn a_return_is_what_follows_the_start_row() {
        let (mut verification, scale) = verification(1.0);
        row(&mut verification, &scale, 0.0, [3.0, 0.0]);
        row(&mut verification, &scale, 0.5, [4.0, 0.0]);
        verification.arrive(0, 0, 0.5, &[1.0]);
        verification.take(0, 0, &[8.0, 0.0], true);
        let followed = &verification.groups[0];
        assert_eq!((followed.pairs, followed.length), (1, 3.0));
        // 3 + 4/2 + 8/4 less the value 1; the other head got nothing and had predicted 1.
        assert_eq!([followed.figures[0], followed.figures[2], followed.figures[4]], [6.0, 7.0, -1.0]);
        // Once a hundredth of the weight is left the rest is the value.
        let (mut verification, scale) = self::verification(1.0);
        (0..200).for_each(|_| row(&mut verification, &scale, 0.9, [0.1, 0.1]));
        let followed = &verification.groups[0];
        assert!(followed.pairs > 2 && followed.figures[0].abs() < 1e-9, "{:?}", followed.figures);
        assert_eq!(followed.length, 44.0);
    }

    #[test]
    fn pairs_closed_by_a_cut_do_not_count() {
        let (mut verification, scale) = verification(1.0);
        for _ in 0..100 {
            (0..30).for_each(|_| row(&mut verification, &scale, 0.9, [1.0, 1.0]));
            verification.cut(0, 0, 0.9, &[1.0]);
            assert!(verification.groups[0].trials.iter().all(|trial| trial.slot.is_none()));
        }
        assert_eq!((verification.groups[0].pairs, verification.verdict(0, 0)), (0, None));
        assert!(verification.groups[0].starts > 50, "cuts free what they end");
        // Cut where the weight has run out, it is known.
        (0..40).for_each(|_| row(&mut verification, &scale, 0.9, [0.1, 0.1]));
        verification.cut(0, 0, 0.0, &[1.0]);
        assert!(verification.groups[0].pairs > 0);
    }

    #[test]
    fn few_pairs_and_numbers_that_are_none_conclude_nothing() {
        let (mut verification, scale) = verification(1.0);
        while verification.groups[0].pairs < PAIRS_MIN as u64 - 1 {
            row(&mut verification, &scale, 0.0, [9.0, f64::NAN]);
        }
        assert_eq!(verification.verdict(0, 0), None);
        while verification.groups[0].pairs < 10 * PAIRS_MAX as u64 {
            row(&mut verification, &scale, 0.0, [9.0, f64::NAN]);
        }
        let verdict = verification.verdict(0, 0).unwrap();
        assert_eq!((verdict.pairs, verdict.coverage, verdict.factor), (PAIRS_MAX, 0.0, FACTOR_MAX));
        assert_eq!(verification.verdict(0, 1), None);
        assert!(verification.groups[0].figures.iter().all(|figure| figure.is_finite()));
    }

    #[test]
    fn the_heads_that_stay_keep_their_pairs() {
        let (mut verification, scale) = verification(1.0);
        (0..3000).for_each(|i| row(&mut verification, &scale, 0.0, [normal(i), 5.0]));
        let before = verification.verdict(0, 1).unwrap();
        verification.select(&[Some(vec![1])]);
        assert_eq!((verification.verdict(0, 0), verification.verdict(0, 1)), (Some(before), None));
        assert!(verification.is_consistent(&[1], 1, 1, 1) && verification.forecast_at().is_none());
        verification.select(&[None]);
        assert!(verification.groups.is_empty());
    }

    #[test]
    fn new_weights_take_the_memory_of_those_before() {
        let (mut verification, scale) = verification(1.0);
        let before = verification.forecast.as_ref().map(|forecast| forecast.weights[0].as_ptr());
        let mut weights = verification.take_weights();
        in_single_precision(&Matrix::from_columns(1, 2, vec![2.0, 3.0]), 0, &mut weights);
        let spectrum = Spectrum { values: vec![1e9], vectors: Matrix::identity(1) };
        verification.set_forecast(9, 1.0, vec![spectrum], weights);
        let forecast = verification.forecast.as_ref().unwrap();
        assert_eq!((forecast.rows, &forecast.weights[0][..]), (9, &[2.0, 3.0][..]));
        assert_eq!(before, Some(forecast.weights[0].as_ptr()));
        row(&mut verification, &scale, 0.9, [1.0, 1.0]);
        assert!(verification.groups[0].trials[0].slot.is_some());
        verification.give_up();
        assert!(verification.forecast_at().is_none() && verification.groups[0].trials[0].slot.is_none());
    }

    #[test]
    fn levels_are_fine_and_the_interval_is_exact() {
        assert_eq!([level(NINETY), level(NINETY * (1.0 + 1e-12))], [INSIDE, INSIDE + 1]);
        assert_eq!([level(0.0), level(1e300), level(f64::INFINITY), level(f64::NAN)], [0, NONE - 1, NONE - 1, NONE]);
    }

    #[test]
    fn written_and_read_back_it_goes_on() {
        let (mut one, scale) = verification(1.0);
        (0..1010).for_each(|i| row(&mut one, &scale, 0.9, [normal(i), 1.0]));
        let mut other: HeadVerification = rmp_serde::from_slice(&rmp_serde::to_vec_named(&one).unwrap()).unwrap();
        assert_eq!(one, other);
        for i in 0..3000 {
            row(&mut one, &scale, 0.9, [normal(i), 1.0]);
            row(&mut other, &scale, 0.9, [normal(i), 1.0]);
        }
        assert_eq!(one, other);
        assert!(one.is_consistent(&[2], 1, 1, 1) && !one.is_consistent(&[3], 1, 1, 1));
    }
}
