//! The common reference, and what all candidates score against its targets.
//!
//! ```text
//! V_ref = median over the candidates with 0 < lambda < 1, then the mean of the best, again and again
//! y     = lambda-returns of V_ref with l
//! score = sum over rows and rewards of rho (V_candidate - y)^2 / variance of y               docs/mathematics.md (R4)
//! ```
//! A candidate has not seen the fold that it is scored on, and all are compared with the same numbers: what the reference
//! gets wrong, it gets wrong for all.

use super::folds::each;
use super::pieces::Pieces;
use crate::math::parts::sum_with_error;

/// Rounds in which the reference becomes the mean of the best candidates.
const REFERENCE_ROUNDS: usize = 4;
/// Number of these candidates.
const BEST: usize = 15;

/// One kernel: its values with each fold left out, under every lambda and ratio.
pub(super) struct Contender {
    /// Ridges that it was solved with, relative to its signal variance (R,).
    pub(super) ratios: Vec<f64>,
    /// Values (N, L R H), column by column: reward h under lambda l and ratio r stands at (l R + r) H + h.
    pub(super) values: Vec<f32>,
}

/// A kernel with a lambda and a ridge, by their places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    pub(super) kernel: usize,
    pub(super) lambda: usize,
    pub(super) ratio: usize,
}

/// Everything that is compared.
pub(super) struct Jury<'a> {
    pub(super) pieces: &'a Pieces,
    pub(super) lambdas: &'a [f64],
    pub(super) kernels: &'a [Contender],
    /// Those whose values are numbers.
    candidates: Vec<Candidate>,
}

/// What one l makes of the candidates.
pub(super) struct JuryVerdict {
    /// Of each candidate of the jury, per row and reward: 1 is the spread of the targets.
    pub(super) scores: Vec<f64>,
    /// Targets at all nodes (N, H), column by column.
    pub(super) targets: Vec<f64>,
    /// The reference that they are of, likewise.
    pub(super) reference: Vec<f64>,
}

impl<'a> Jury<'a> {
    /// Of `kernels`, each solved for all `lambdas`.
    pub(super) fn new(pieces: &'a Pieces, lambdas: &'a [f64], kernels: &'a [Contender]) -> Self {
        let mut out = Self { pieces, lambdas, kernels, candidates: Vec::new() };
        let all = kernels.iter().enumerate().flat_map(|(kernel, contender)| {
            let ratios = contender.ratios.len();
            (0..lambdas.len() * ratios).map(move |k| Candidate { kernel, lambda: k / ratios, ratio: k % ratios })
        });
        let all: Vec<Candidate> = all.collect();
        let sound = |&c: &Candidate| (0..pieces.columns()).all(|h| out.values(c, h).iter().all(|v| v.is_finite()));
        let is_sound = each(all.len(), |k| sound(&all[k]));
        out.candidates = all.into_iter().zip(is_sound).filter(|(_, sound)| *sound).map(|(c, _)| c).collect();
        out
    }

    /// Products of a first reference and one verdict.
    pub(super) fn products(&self) -> f64 {
        (2 * REFERENCE_ROUNDS * self.candidates.len() * self.pieces.nodes() * self.pieces.columns()) as f64
    }

    /// Candidates whose values are numbers.
    pub(super) fn candidates(&self) -> &[Candidate] {
        &self.candidates
    }

    /// Values of reward `h` at all nodes (N,).
    pub(super) fn values(&self, of: Candidate, h: usize) -> &'a [f32] {
        let (kernel, nodes) = (&self.kernels[of.kernel], self.pieces.nodes());
        let column = (of.lambda * kernel.ratios.len() + of.ratio) * self.pieces.columns() + h;
        &kernel.values[column * nodes..(column + 1) * nodes]
    }

    /// The first reference (N, H): at each node the median of the candidates with 0 < lambda < 1; none if there are none.
    pub(super) fn median(&self) -> Option<Vec<f64>> {
        let inner = |c: &&Candidate| self.lambdas[c.lambda] > 0.0 && self.lambdas[c.lambda] < 1.0;
        let of: Vec<Candidate> = self.candidates.iter().filter(inner).copied().collect();
        if of.is_empty() {
            return None;
        }
        let column = |h: usize| {
            let columns: Vec<&[f32]> = of.iter().map(|&c| self.values(c, h)).collect();
            let mut here = vec![0.0; columns.len()];
            let mut out = Vec::with_capacity(self.pieces.nodes());
            for node in 0..self.pieces.nodes() {
                here.iter_mut().zip(&columns).for_each(|(here, column)| *here = column[node]);
                let middle = here.len() / 2;
                let (below, &mut upper, _) = here.select_nth_unstable_by(middle, f32::total_cmp);
                let lower = below.iter().copied().fold(f32::NEG_INFINITY, f32::max);
                let even = below.len() == middle && columns.len().is_multiple_of(2);
                out.push(if even { 0.5 * (f64::from(lower) + f64::from(upper)) } else { f64::from(upper) });
            }
            out
        };
        Some(each(self.pieces.columns(), column).concat())
    }

    /// Scores against the lambda-returns with `l` of a reference that starts at `start` (N, H) and follows the best.
    pub(super) fn judge(&self, l: f64, start: &[f64], spread: &[f64]) -> JuryVerdict {
        let mut reference = start.to_vec();
        let mut round = 1;
        loop {
            let targets = self.targets(l, &reference);
            let scores = self.scores(&targets, spread);
            if round == REFERENCE_ROUNDS {
                return JuryVerdict { scores, targets, reference };
            }
            reference = self.mean_of_best(&scores);
            round += 1;
        }
    }

    /// Lambda-returns with `l` of values (N, H).
    pub(super) fn targets(&self, l: f64, values: &[f64]) -> Vec<f64> {
        let of = |h: usize, values: &[f64]| self.pieces.returns(l, h, values);
        values.chunks_exact(self.pieces.nodes()).enumerate().flat_map(|(h, values)| of(h, values)).collect()
    }

    /// Variance of the targets (N, H) of each reward over the rows (H,), as weighted; not below what rounding leaves.
    pub(super) fn spread(&self, targets: &[f64]) -> Vec<f64> {
        let weight = &self.pieces.weight;
        let total = weight.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        let of = |y: &[f64]| {
            let mean = y.iter().zip(weight).map(|(y, w)| w * y).sum::<f64>() / total;
            let variance = y.iter().zip(weight).map(|(y, w)| w * (y - mean) * (y - mean)).sum::<f64>() / total;
            variance.max(1e-20 * mean * mean).max(f64::MIN_POSITIVE)
        };
        targets.chunks_exact(self.pieces.nodes()).map(of).collect()
    }

    /// Score of every candidate, per row.
    fn scores(&self, targets: &[f64], spread: &[f64]) -> Vec<f64> {
        let whole = 0..self.pieces.nodes();
        let total = self.pieces.weight.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        each(self.candidates.len(), |k| self.errors(self.candidates[k], targets, spread, whole.clone()) / total)
    }

    /// Sum of squared errors over the nodes `range`, in units of `spread`.
    fn errors(&self, of: Candidate, targets: &[f64], spread: &[f64], range: std::ops::Range<usize>) -> f64 {
        let weight = &self.pieces.weight[range.clone()];
        let column = |(h, y): (usize, &[f64])| {
            let values = &self.values(of, h)[range.clone()];
            let square = |((v, y), w): ((&f32, &f64), &f64)| w * (f64::from(*v) - y).powi(2);
            values.iter().zip(&y[range.clone()]).zip(weight).map(square).sum::<f64>() / spread[h]
        };
        let columns = self.pieces.columns() as f64;
        targets.chunks_exact(self.pieces.nodes()).enumerate().map(column).sum::<f64>() / columns
    }

    fn mean_of_best(&self, scores: &[f64]) -> Vec<f64> {
        let mut order: Vec<usize> = (0..scores.len()).collect();
        order.sort_by(|&a, &b| scores[a].total_cmp(&scores[b]));
        order.truncate(BEST);
        let mut out = vec![0.0; self.pieces.nodes() * self.pieces.columns()];
        for &k in &order {
            for (h, out) in out.chunks_exact_mut(self.pieces.nodes()).enumerate() {
                let share = 1.0 / order.len() as f64;
                out.iter_mut().zip(self.values(self.candidates[k], h)).for_each(|(o, v)| *o += share * f64::from(*v));
            }
        }
        out
    }

    /// How much more `a` errs than `b`, per row, against all of these targets, and the standard error of that over pieces.
    pub(super) fn difference(
        &self,
        a: Candidate,
        b: Candidate,
        verdicts: &[&JuryVerdict],
        spread: &[f64],
    ) -> (f64, f64) {
        let of = |piece: &std::ops::Range<usize>| {
            let more = |v: &&JuryVerdict| {
                self.errors(a, &v.targets, spread, piece.clone()) - self.errors(b, &v.targets, spread, piece.clone())
            };
            verdicts.iter().map(more).sum::<f64>()
        };
        let each: Vec<f64> = self.pieces.pieces.iter().map(of).collect();
        let (sum, error) = sum_with_error(&each);
        let total = self.pieces.weight.iter().sum::<f64>().max(f64::MIN_POSITIVE);
        (sum / total, if each.len() > 1 { error / total } else { 0.0 })
    }
}
