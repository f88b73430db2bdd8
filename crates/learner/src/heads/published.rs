//! Heads as they are published: plain data, and how they are evaluated.

use super::SharedHeads;
use super::bank::Bank;
use super::verified::HeadVerdict;
use crate::math::dense::{Matrix, Op, View, ViewMut, dot, multiply, solve_lower_transposed};
use crate::math::dictionary::Dictionary;
use crate::math::form::stride;
use crate::math::head_sums::Spectrum;
use crate::math::posterior::SolveError;
use crate::math::statistics::Running;
use crate::math::transient;
use nalgebra::{DMatrix, Dyn, VecStorage};
use std::collections::HashMap;
use std::ops::Range;

/// What the variances of all heads of one weighting are made of, docs/mathematics.md (H8).
#[derive(Clone, Debug, PartialEq)]
pub struct HeadBasis {
    /// W (m, m).
    pub vectors: DMatrix<f64>,
    /// Lambda (m,), not negative.
    pub values: Vec<f64>,
}

/// The heads of a snapshot, in units of its kernel k:
/// ```text
/// V_h(x) = level_h + k_m(z)' weights_h
/// Var V_h(x) = signal_h (k(z, z) - sum_j t_j^2 Lambda_j / (Lambda_j + ratio_h)),   t = W' k_m(z)
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct HeadsSnapshot {
    /// What they predict (H,), each with its level.
    pub heads: SharedHeads,
    /// (m, H).
    pub weights: DMatrix<f64>,
    /// (H,), positive: the kernel of a head over k.
    pub signals: Vec<f64>,
    /// (H,), positive: noise variance over signal.
    pub ratios: Vec<f64>,
    /// (H,): number of the basis of each.
    pub weightings: Vec<usize>,
    /// One for each weighting; empty if the snapshot has no variances.
    pub bases: Vec<HeadBasis>,
    /// (H,): what live verification says of each.
    pub verified: Vec<Verified>,
}

/// What live verification says of the returns of a head; the default where too few of them are known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Verified {
    /// What deviations of returns are multiplied by, in \[1/4, 4\].
    pub factor: f64,
    /// Verified pairs behind it; 0 below 40, and in files that do not say.
    pub pairs: u64,
    /// Share of their returns that lay in the 90 % interval before `factor`, from 0 to 1; none without pairs.
    pub coverage: Option<f64>,
}

impl Default for Verified {
    fn default() -> Self {
        Self { factor: 1.0, pairs: 0, coverage: None }
    }
}

impl From<HeadVerdict> for Verified {
    fn from(verdict: HeadVerdict) -> Self {
        let HeadVerdict { pairs, coverage, factor, .. } = verdict;
        Self { factor, pairs: pairs as u64, coverage: Some(coverage) }
    }
}

/// What heads say about some states.
#[derive(Clone, Debug, PartialEq)]
pub struct HeadEvaluation {
    /// (n, heads asked for).
    pub mean: DMatrix<f64>,
    /// (n, heads asked for), value^2, of the value; none if it was not asked for or is not carried.
    pub variance: Option<DMatrix<f64>>,
}

/// Numbers from which on a matrix of weights is set apart.
const LARGE: usize = 1 << 20;

/// Zeros for the weights of a snapshot, which lives until the next one replaces it: a large one is set apart from all that stays.
fn zeros(rows: usize, cols: usize) -> DMatrix<f64> {
    DMatrix::from_data(VecStorage::new(Dyn(rows), Dyn(cols), transient::numbers(rows * cols, LARGE)))
}

impl HeadsSnapshot {
    /// What is added to the weights of each (H,), in the unit of its cumulant.
    pub fn levels(&self) -> Vec<f64> {
        self.heads.iter().map(|head| head.level).collect()
    }

    /// Whether one of them is not 0.
    pub fn has_levels(&self) -> bool {
        self.heads.iter().any(|head| head.level != 0.0)
    }

    /// Number of the head called `name`.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.heads.iter().position(|head| head.name == name)
    }

    /// sigma0^2 of head number `head`, in the unit of its cumulant squared.
    pub fn noise_variance(&self, head: usize) -> f64 {
        self.signals[head] * self.ratios[head]
    }

    /// Variance of a single return of head number `head`, where `variance` is its value's.
    pub fn return_variance(&self, head: usize, variance: f64) -> f64 {
        self.verified[head].factor.powi(2) * (variance + self.noise_variance(head))
    }

    /// The heads of `bank` with the model's `running` chains closed. `signal` is the model's scale of its base kernel, the
    /// dictionary's. Groups are solved one after the other, so that the weights of all heads exist once. Heads that cannot be solved
    /// for are left out.
    ///
    /// # Errors
    /// If statistics that heads share are not finite.
    pub(crate) fn of(
        bank: &Bank,
        running: &Running,
        dictionary: &Dictionary,
        signal: f64,
        variance: bool,
    ) -> Result<Self, SolveError> {
        let (m, count) = (dictionary.len(), bank.heads().len());
        let solution = bank.decompose(running)?;
        let mut weights = zeros(m, count);
        let mut weightings = vec![0; count];
        let mut is_sound = vec![false; count];
        for g in 0..bank.group_count() {
            let mut w = bank.solve_group(g, &solution);
            solve_lower_transposed(dictionary.factor().view(), w.view_mut());
            for (h, head) in bank.heads_of(g).enumerate() {
                is_sound[head] = w.col(h).iter().all(|w| w.is_finite());
                weights.column_mut(head).iter_mut().zip(w.col(h)).for_each(|(to, w)| *to = w / signal);
                weightings[head] = bank.weighting_of(g);
            }
        }
        let unit = bank.unit();
        let basis = |Spectrum { values, mut vectors }: Spectrum| {
            solve_lower_transposed(dictionary.factor().view(), vectors.view_mut());
            (0..m).for_each(|j| vectors.col_mut(j).iter_mut().for_each(|w| *w /= signal.sqrt()));
            HeadBasis {
                vectors: vectors.to_nalgebra(),
                values: values.iter().map(|value| signal * value / unit).collect(),
            }
        };
        let mut out = Self {
            heads: bank.shared_heads(),
            weights,
            signals: bank.scales().iter().map(|scale| scale.signal / signal).collect(),
            ratios: bank.scales().iter().map(|scale| signal * scale.ratio).collect(),
            weightings,
            bases: if variance { solution.spectra.into_iter().map(basis).collect() } else { Vec::new() },
            verified: bank.verified(),
        };
        if is_sound.contains(&false) {
            out.retain(&is_sound);
        }
        Ok(out)
    }

    /// Leave out the heads that do not stay (H,).
    fn retain(&mut self, stays: &[bool]) {
        let places: Vec<usize> = (0..stays.len()).filter(|&h| stays[h]).collect();
        self.weights = self.weights.select_columns(&places);
        self.heads = places.iter().map(|&h| self.heads[h].clone()).collect();
        self.weightings = places.iter().map(|&h| self.weightings[h]).collect();
        self.verified = places.iter().map(|&h| self.verified[h]).collect();
        for numbers in [&mut self.signals, &mut self.ratios] {
            *numbers = places.iter().map(|&h| numbers[h]).collect();
        }
    }

    /// Answers about `count` states and `heads` heads, to be filled in; with a variance where it is asked for and carried.
    pub(crate) fn unanswered(&self, count: usize, heads: usize, variance: bool) -> HeadEvaluation {
        let carried = variance && !self.bases.is_empty();
        let variance = carried.then(|| DMatrix::zeros(count, heads));
        HeadEvaluation { mean: DMatrix::zeros(count, heads), variance }
    }

    /// What the heads numbered `which` say about the states numbered `states`, from their kernel rows, each of [`stride`] numbers,
    /// and k(z, z), of each in its order.
    pub(crate) fn answer(
        &self,
        which: &[usize],
        states: Range<usize>,
        rows: &[f64],
        prior: impl Fn(usize) -> f64,
        out: &mut HeadEvaluation,
    ) {
        let (first, len, m) = (states.start, states.len(), self.weights.nrows());
        for (c, &h) in which.iter().enumerate() {
            for j in 0..len {
                let about = dot(&rows[j * stride(m)..][..m], self.weights.column(h).as_slice());
                out.mean[(first + j, c)] = self.heads[h].level + about;
            }
        }
        if let Some(spread) = &mut out.variance {
            let images = self.images(rows, len, m);
            let (systems, of) = self.systems(which);
            let mut unexplained = vec![0.0; systems.len()];
            for j in 0..len {
                let prior = prior(j);
                for (value, &(weighting, ratio)) in unexplained.iter_mut().zip(&systems) {
                    *value = self.unexplained(weighting, ratio, prior, images[weighting].col(j));
                }
                for (c, &h) in which.iter().enumerate() {
                    spread[(first + j, c)] = self.signals[h] * unexplained[of[c]];
                }
            }
        }
    }

    /// t of `len` states (m, len) under each weighting, from their kernel rows.
    fn images(&self, rows: &[f64], len: usize, m: usize) -> Vec<Matrix> {
        let mut packed = Vec::with_capacity(m * len);
        (0..len).for_each(|j| packed.extend_from_slice(&rows[j * stride(m)..][..m]));
        let images = |basis: &HeadBasis| {
            let mut out = Matrix::zeros(m, len);
            let vectors = View::from_columns(m, m, basis.vectors.as_slice());
            let rows = View::from_columns(m, len, &packed);
            let to: ViewMut<'_> = out.view_mut();
            multiply(to, false, 1.0, vectors, Op::Transposed, rows, Op::Plain);
            out
        };
        self.bases.iter().map(images).collect()
    }

    /// The different weightings and ratios of the heads numbered `which`, and the number of its own of each: ratios lie on a grid, so
    /// that few systems serve many heads.
    fn systems(&self, which: &[usize]) -> (Vec<(usize, f64)>, Vec<usize>) {
        let (mut systems, mut known) = (Vec::new(), HashMap::new());
        let mut of = Vec::with_capacity(which.len());
        for &h in which {
            let (weighting, ratio) = (self.weightings[h], self.ratios[h]);
            of.push(*known.entry((weighting, ratio.to_bits())).or_insert_with(|| {
                systems.push((weighting, ratio));
                systems.len() - 1
            }));
        }
        (systems, of)
    }

    /// Var V / signal of a state with these images (m,) and this k(z, z), never negative.
    fn unexplained(&self, weighting: usize, ratio: f64, prior: f64, images: &[f64]) -> f64 {
        let values = &self.bases[weighting].values;
        let explained: f64 = images.iter().zip(values).map(|(t, value)| t * t * value / (value + ratio)).sum();
        (prior - explained).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_weights_have_memory_of_their_own() {
        let capacity = |of: DMatrix<f64>| Vec::from(of.data).capacity();
        assert!(capacity(zeros(400, 6000)) * size_of::<f64>() > 32 << 20);
        assert_eq!(capacity(zeros(40, 60)), 2400);
        let large = zeros(1024, 1024);
        assert_eq!((large.shape(), large.amax()), ((1024, 1024), 0.0));
    }
}
