//! The interval of returns, held against rows that the weights behind it were not made of.
//!
//! ```text
//! u_k = (M - A_k)^-1 (p - p_k)         weights without fold k of four: whole chains, or pieces of four horizons of few chains
//! a   = |y - phi' u_k| / sqrt(M(x) + Var V(x))       y the return of the chain, of the rows of fold k that are followed by it
//! n_e = rows / (2 min(h, mean length)),   s = sqrt(0.09 / n_e),   lo, hi = quantiles 0.9 -+ s of a
//! factor = lo / 1.645 if that is above 1, hi / 1.645 if that is below 1, else 1; within [1/4, 4]; 1 if n_e < 8           (Q7)
//! ```
//! A return counts where the chain terminates, or goes on until its weight is below a twentieth; what is behind is valued by u_k.
//! Numbers refer to `docs/mathematics.md`.

use super::Model;
use super::pieces::{BLOCK, Flow, ROWS_MAX, Walk, chains_from, piece};
use crate::math::backfill::difference_residual;
use crate::math::dense::{Matrix, Op, axpy, dot, multiply, solve_general};
use crate::math::inflation::PIECE_HORIZONS;
use crate::math::posterior::{Posterior, SolveError};
use crate::transition::Rows;
use crate::verification::{HeldOut, coverage, factor_of};
use std::ops::Range;

/// Folds, and chains from which on each is of whole ones.
const FOLDS: usize = 4;
const CHAINS_MIN: usize = 8;
/// Weight below which what is behind a cut does not matter.
const REST: f64 = 0.05;
/// Returns that share nothing from which on something is concluded.
const PAIRS_MIN: f64 = 8.0;
/// How far the errors may be from what is normal for them.
const NORMAL_MAX: f64 = 2.0;

/// A, p and rows of each fold.
struct Fold {
    /// (m, m) and (m, H).
    system: Matrix,
    response: Matrix,
}

/// What is known of a row without its fold.
struct Foretold {
    row: usize,
    fold: usize,
    /// (H,): V of its state.
    values: Vec<f64>,
    /// (H,): M(x) and M(x) + Var V(x).
    spread: Vec<f64>,
    variance: Vec<f64>,
}

impl Model {
    /// What rows say of the interval of returns that the weights behind it were not made of; `first` is the offset of the first row.
    ///
    /// # Errors
    /// If a system cannot be solved.
    pub(super) fn held_out_returns(&self, rows: &Rows, first: u64) -> Result<HeldOut, SolveError> {
        let (Some(inflation), Some(_), Some(_)) =
            (&self.inflation, &self.returns.spread, &self.returns.value_covariance)
        else {
            return Ok(HeldOut::default());
        };
        let running = self.running();
        let posterior = Posterior::solve(&self.statistics, &running, self.weights.scale)?;
        let walk = Walk { model: self, rows, first, weights: posterior.feature_weights() };
        let chains = chains_from(rows, rows.len().saturating_sub(ROWS_MAX));
        let length = PIECE_HORIZONS * inflation.horizon;
        let folds = folds_of(&chains, length);
        let sums = walk.sums(&chains, &folds);
        let whole = posterior.whole_system(&self.statistics, &running);
        let weights: Vec<Matrix> =
            sums.iter().map(|fold| without(&whole, &self.statistics.response, fold)).collect::<Result<_, _>>()?;
        let foretold = walk.foretold(&chains, &folds, &weights);
        let length = foretold.iter().map(|(rows, _)| rows.len()).sum::<usize>() as f64 / chains.len().max(1) as f64;
        Ok(walk.errors(&foretold, &weights).verdict(inflation.horizon.min(length).max(1.0)))
    }
}

/// The fold of each row of each chain.
fn folds_of(chains: &[Vec<usize>], length: f64) -> Vec<Vec<usize>> {
    let mut before = 0;
    let of = |(number, chain): (usize, &Vec<usize>)| {
        if chains.len() >= CHAINS_MIN {
            return vec![number % FOLDS; chain.len()];
        }
        let out = (0..chain.len()).map(|k| (before + piece(k, chain.len(), length).0) % FOLDS).collect();
        before += piece(0, chain.len(), length).1;
        out
    };
    chains.iter().enumerate().map(of).collect()
}

/// u_k (m, H).
fn without(whole: &Matrix, response: &Matrix, fold: &Fold) -> Result<Matrix, SolveError> {
    let (mut system, mut right) = (whole.clone(), response.clone());
    (0..system.cols()).for_each(|j| axpy(system.col_mut(j), -1.0, fold.system.col(j)));
    (0..right.cols()).for_each(|h| axpy(right.col_mut(h), -1.0, fold.response.col(h)));
    Ok(solve_general(&system, &right)?)
}

impl Walk<'_> {
    /// A_k and p_k.
    fn sums(&self, chains: &[Vec<usize>], folds: &[Vec<usize>]) -> Vec<Fold> {
        let (m, heads) = (self.weights.rows(), self.weights.cols());
        let rule = self.model.rule();
        let empty = || Fold { system: Matrix::zeros(m, m), response: Matrix::zeros(m, heads) };
        let mut out: Vec<Fold> = (0..FOLDS).map(|_| empty()).collect();
        for (chain, folds) in chains.iter().zip(folds) {
            let mut flow = Flow::new(m);
            for range in blocks(folds) {
                let fold = &mut out[folds[range.start]];
                let part = self.part(chain, range.clone(), &mut flow);
                let (e, d) = (part.traces.view(), part.differences.view());
                multiply(fold.system.view_mut(), true, 1.0, e, Op::Plain, d, Op::Transposed);
                for (k, at) in range.enumerate() {
                    for h in 0..heads {
                        axpy(fold.response.col_mut(h), rule.reward(self.rows, chain[at], h), part.traces.col(k));
                    }
                }
            }
        }
        out
    }

    /// Every row of the chains, chain by chain, each with the features (m,) of the state behind it.
    fn foretold(
        &self,
        chains: &[Vec<usize>],
        folds: &[Vec<usize>],
        weights: &[Matrix],
    ) -> Vec<(Vec<Foretold>, Vec<f64>)> {
        let model = self.model;
        let (m, heads) = (self.weights.rows(), self.weights.cols());
        let (signal, kernel) = (model.weights.scale.signal, model.basis.kernel());
        let spread = model.returns.spread.as_ref().expect("asked before");
        let covariance = model.returns.value_covariance.as_ref().expect("asked before");
        let of = |(chain, folds): (&Vec<usize>, &Vec<usize>)| {
            let (mut flow, mut out, mut last) = (Flow::new(m), Vec::with_capacity(chain.len()), Vec::new());
            for range in blocks(folds) {
                let part = self.part(chain, range.clone(), &mut flow);
                let mut images = Matrix::zeros(covariance.rows(), range.len());
                let known = part.features.block(0, 0, covariance.rows(), range.len());
                multiply(images.view_mut(), false, 1.0, covariance.view(), Op::Plain, known, Op::Plain);
                for (k, at) in range.enumerate() {
                    let (phi, fold) = (part.features.col(k), folds[at]);
                    let learned = dot(&phi[..covariance.rows()], images.col(k)).max(0.0);
                    let variance = signal
                        * (difference_residual(kernel.diagonal(), &phi[kernel.columns()..covariance.rows()]) + learned);
                    let spread: Vec<f64> = (0..heads).map(|h| spread.variance(h, phi)).collect();
                    let values = (0..heads).map(|h| dot(phi, weights[fold].col(h))).collect();
                    let variance = spread.iter().map(|spread| spread + variance).collect();
                    out.push(Foretold { row: chain[at], fold, values, spread, variance });
                }
                last = part.last;
            }
            (out, last)
        };
        chains.iter().zip(folds).map(of).collect()
    }

    /// Of the rows whose returns are followed to where they end.
    fn errors(&self, foretold: &[(Vec<Foretold>, Vec<f64>)], weights: &[Matrix]) -> Errors {
        let (rule, heads) = (self.model.rule(), self.model.settings.rewards.len());
        let ratio_max = self.model.settings.ratio_max();
        let mut out = Errors::default();
        for (chain, last) in foretold {
            // What the rest of the chain comes to but for the value behind it, and what that weighs; another policy's does not count.
            let (mut open, mut weight, mut counts) = (vec![0.0; heads], 1.0, true);
            for of in chain.iter().rev() {
                let discount = self.discount(of.row);
                counts &= self.rows.ratio(of.row, ratio_max) == 1.0;
                weight *= discount;
                for (h, open) in open.iter_mut().enumerate() {
                    *open = rule.reward(self.rows, of.row, h) + discount * *open;
                }
                if !counts || weight >= REST {
                    continue;
                }
                out.rows += 1.0;
                for (h, open) in open.iter().enumerate() {
                    let rest = if weight > 0.0 { weight * dot(last, weights[of.fold].col(h)) } else { 0.0 };
                    let error = open + rest - of.values[h];
                    out.scaled.push(error.abs() / of.variance[h].sqrt());
                    out.squares += error * error;
                    out.spreads += of.spread[h];
                }
            }
        }
        out
    }
}

/// Errors of returns.
#[derive(Default)]
struct Errors {
    rows: f64,
    /// In stated deviations.
    scaled: Vec<f64>,
    /// Sum of their squares, and of the variances about V.
    squares: f64,
    spreads: f64,
}

impl Errors {
    /// (Q7), where a return shares nothing with those `apart` rows away.
    fn verdict(self, apart: f64) -> HeldOut {
        let pairs = self.rows / (2.0 * apart);
        if pairs < PAIRS_MIN || self.scaled.is_empty() {
            return HeldOut::default();
        }
        let normal = (self.squares / self.spreads).clamp(1.0 / NORMAL_MAX, NORMAL_MAX);
        HeldOut {
            coverage: coverage(self.scaled.iter().copied()),
            factor: factor_of(self.scaled, pairs),
            normal: if normal.is_finite() { normal } else { 1.0 },
            pairs,
        }
    }
}

/// Rows that are looked at together: of one fold each.
fn blocks(folds: &[usize]) -> Vec<Range<usize>> {
    let (mut out, mut from) = (Vec::new(), 0);
    for at in 1..=folds.len() {
        if at == folds.len() || folds[at] != folds[from] || at - from == BLOCK {
            out.push(from..at);
            from = at;
        }
    }
    out
}
