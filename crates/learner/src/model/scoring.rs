//! The prequential score: how well rewards are predicted before they are learned.

use super::basis::Basis;
use super::nodes::Nodes;
use super::rule::Rule;
use crate::math::backfill::difference_residual;
use crate::math::dense::{Matrix, axpy, dot, solve_lower};
use crate::math::kernel::NoiseModel;
use crate::math::posterior::{Posterior, Scale};
use crate::transition::Rows;
use serde::{Deserialize, Serialize};
use std::f64::consts::PI;
use std::ops::Range;

/// Rows from the beginning of the stream of which every one is scored; later it is one in [`SCORE_STRIDE`].
const SCORE_ALL_BEFORE: u64 = 2048;
/// A score needs two triangular solves more, so it is sampled: by offset, so that it does not depend on batching.
const SCORE_STRIDE: u64 = 8;
/// Scored rows over which the recent score is averaged.
const SCORE_MEMORY: f64 = 256.0;
/// One row's score is bounded below, so that a single outlier does not drown a thousand rows, nats.
const SCORE_WORST: f64 = -50.0;

/// Log density of rewards before they are learned, under the weights of the last refresh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// Sum over scored rows, nats.
    pub sum: f64,
    /// Scored rows.
    pub rows: u64,
    /// Average over about the last `SCORE_MEMORY` scored rows, nats per row.
    pub recent: f64,
    /// Best that `recent` has been since it covered its whole memory.
    pub best: f64,
}

impl Score {
    /// Nats per scored row; none before the first.
    pub fn mean(&self) -> Option<f64> {
        (self.rows > 0).then(|| self.sum / self.rows as f64)
    }

    /// Score of the rows since `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self { sum: self.sum - earlier.sum, rows: self.rows - earlier.rows, ..*self }
    }

    fn add(&mut self, value: f64) {
        let value = if value.is_nan() { SCORE_WORST } else { value.max(SCORE_WORST) };
        self.sum += value;
        self.rows += 1;
        self.recent += (value - self.recent) / (self.rows as f64).min(SCORE_MEMORY);
        if self.rows as f64 == SCORE_MEMORY {
            self.best = self.recent;
        } else if self.rows as f64 > SCORE_MEMORY {
            self.best = self.best.max(self.recent);
        }
    }

    /// How far the recent score has fallen below its best, nats per row; 0 until there is enough to compare.
    pub fn drop(&self) -> f64 {
        if self.rows as f64 > SCORE_MEMORY { self.best - self.recent } else { 0.0 }
    }
}

/// The score of a model, and how large its TD errors are.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Prequential {
    pub(super) score: Score,
    /// Mean square of the TD errors of rows that were scored lately, where rows are followed; 0 before the first.
    pub(super) td_square: f64,
}

/// Scratch of the rows of a block that are scored.
#[derive(Clone, Debug, Default)]
pub(super) struct Scored {
    rows: Vec<ScoredRow>,
    /// States of successors that are no node of the block, and their points.
    successors: Vec<f64>,
    next_points: Vec<f64>,
    /// phi(x') of them.
    next: Matrix,
    /// phi(x) - gamma phi(x'), a column for each.
    difference: Matrix,
    /// The features of the last refresh solved with its system.
    solved: Matrix,
}

/// A row of the block that is scored.
#[derive(Clone, Copy, Debug)]
struct ScoredRow {
    /// Position in the block.
    k: usize,
    /// Discount, or 0 at a terminal state.
    discount: f64,
    next: Successor,
}

/// Where the features of a scored row's successor are.
#[derive(Clone, Copy, Debug)]
enum Successor {
    None,
    /// Node of the block.
    Node(usize),
    /// Column of [`Scored::next`].
    Extra(usize),
}

/// A block of rows that are about to be learned.
#[derive(Clone, Debug)]
pub(super) struct Unlearned<'a> {
    pub(super) basis: &'a Basis,
    pub(super) rule: Rule<'a>,
    pub(super) follows_rows: bool,
    pub(super) rows: &'a Rows,
    pub(super) block: Range<usize>,
    /// Offset of the first of them.
    pub(super) offset: u64,
}

impl Unlearned<'_> {
    /// Choose the rows that are scored, and the states of those successors that the block has no features of.
    fn choose(&self, nodes: &Nodes, scored: &mut Scored) {
        let Self { rows, block, .. } = self;
        scored.rows.clear();
        scored.successors.clear();
        let mut extra = 0;
        for (k, i) in block.clone().enumerate() {
            let at = self.offset + k as u64;
            if at >= SCORE_ALL_BEFORE && !at.is_multiple_of(SCORE_STRIDE) {
                continue;
            }
            let discount = rows.follows(i, self.rule.settings.discount);
            let next = if discount == 0.0 {
                Successor::None
            } else if let Some(node) = nodes.of_rows[k].next {
                Successor::Node(node)
            } else if i + 1 < block.end && rows.state(i + 1) == rows.next_state(i) {
                // The stream's next row starts where this one ends.
                Successor::Node(nodes.of_rows[k + 1].state)
            } else {
                self.basis.inputs.normalise_into(rows.next_state(i), &mut scored.successors);
                extra += 1;
                Successor::Extra(extra - 1)
            };
            scored.rows.push(ScoredRow { k, discount, next });
        }
    }

    /// phi(x) - gamma phi(x') of the rows chosen, and their features of the last refresh solved with its system where rows are not
    /// followed.
    fn differences(&self, posterior: &Posterior, nodes: &mut Nodes, scored: &mut Scored) {
        let Self { basis, follows_rows: follows, .. } = *self;
        let Scored { rows, successors, next_points, next, difference, solved } = scored;
        let (m, known) = (basis.len(), posterior.feature_weights().rows());
        next_points.clear();
        basis.kernel().project_into(basis.dim(), successors, next_points);
        next.resize(m, successors.len() / basis.dim());
        let Nodes { covariances, mixtures, .. } = nodes;
        basis.features_into(successors, next_points, covariances, mixtures, next.view_mut());
        difference.resize(m, rows.len());
        solved.resize(known, if follows { 0 } else { rows.len() });
        for (c, row) in rows.iter().enumerate() {
            let column = difference.col_mut(c);
            column.copy_from_slice(nodes.features.col(nodes.of_rows[row.k].state));
            match row.next {
                Successor::None => {}
                Successor::Node(node) => axpy(column, -row.discount, nodes.features.col(node)),
                Successor::Extra(extra) => axpy(column, -row.discount, next.col(extra)),
            }
            if !follows {
                solved.col_mut(c).copy_from_slice(&column[..known]);
            }
        }
        if !follows {
            solve_lower(posterior.system().factor().view(), solved.view_mut());
        }
    }

    /// Prior variance of V(x) - gamma V(x') under the base kernel, but for the columns.
    fn prior(&self, row: &ScoredRow, nodes: &Nodes, next_points: &[f64]) -> f64 {
        let (kernel, width, gamma) = (self.basis.kernel(), self.basis.width(), row.discount);
        let next = match row.next {
            Successor::None => return kernel.diagonal(),
            Successor::Node(node) => nodes.point(node),
            Successor::Extra(extra) => &next_points[extra * width..(extra + 1) * width],
        };
        let at = nodes.point(nodes.of_rows[row.k].state);
        (1.0 + gamma * gamma) * kernel.diagonal() - 2.0 * gamma * kernel.eval(at, next)
    }
}

impl Prequential {
    /// Log density of sampled rewards under the weights of the last refresh:
    /// ```text
    /// r ~ N(g' u, Var(V(x) - gamma V(x')) + noise),   noise = sigma0^2 (1 + gamma^2) correlated, sigma0^2 white
    /// ```
    /// This is docs/mathematics.md (Q1).
    pub(super) fn score_rows(
        &mut self,
        posterior: &Posterior,
        rows: &Unlearned<'_>,
        nodes: &mut Nodes,
        scored: &mut Scored,
    ) {
        rows.choose(nodes, scored);
        rows.differences(posterior, nodes, scored);
        let (Scale { signal, ratio }, ridge) = (posterior.scale(), posterior.ridge());
        // Features admitted since the refresh have their prior variance of one.
        let known = posterior.feature_weights().rows();
        let (rewards, columns) = (rows.rule.settings.rewards.len(), rows.basis.dictionary.columns());
        for (c, row) in scored.rows.iter().enumerate() {
            let (gamma, difference) = (row.discount, scored.difference.col(c));
            let prior = || rows.prior(row, nodes, &scored.next_points);
            let noise = match rows.rule.noise {
                NoiseModel::Correlated => signal * ratio * (1.0 + gamma * gamma),
                NoiseModel::White => signal * ratio,
            };
            let variance = if !rows.follows_rows {
                let (solved, new) = (scored.solved.col(c), &difference[known..]);
                let left = difference_residual(prior(), &difference[columns..]);
                signal * (left + ridge * dot(solved, solved) + dot(new, new)) + noise
            } else if self.td_square > 0.0 {
                // sigma0^2 is a ridge here; how large TD errors are the rows before tell.
                self.td_square
            } else {
                let given = &difference[..columns];
                signal * (prior() + dot(given, given)) + noise
            };
            let (mut log_density, mut square) = (0.0, 0.0);
            for h in 0..rewards {
                let mean = dot(&difference[..known], posterior.feature_weights().col(h));
                let error = rows.rule.reward(rows.rows, rows.block.start + row.k, h) - mean;
                log_density -= 0.5 * ((2.0 * PI * variance).ln() + error * error / variance);
                square += error * error / rewards as f64;
            }
            self.score.add(log_density);
            if rows.follows_rows && square.is_finite() {
                let memory = (self.score.rows as f64).min(SCORE_MEMORY);
                self.td_square += (square - self.td_square) / memory;
            }
        }
    }
}
