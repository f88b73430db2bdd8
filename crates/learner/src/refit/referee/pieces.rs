//! Rows arranged for folds: whole chains, or pieces of long ones, each with the state behind its last row.

use crate::math::dense::Matrix;
use crate::math::returns::chains;
use crate::math::statistics::carry;
use crate::snapshot::Inputs;
use crate::transition::Rows;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::ops::Range;

/// Folds: each is left out once.
pub(super) const FOLDS: usize = 4;
/// Rows of the shortest piece that a long chain is cut into ...
const PIECE_MIN: usize = 50;
/// ... and pieces that the rows would make if all were one chain: a longer chain is cut.
const PIECES: usize = 20;
/// Pieces at least: fewer rows than `PIECE_MIN` times this are cut into that number nonetheless.
const PIECES_MIN: usize = 8;

/// Rows and the states behind them as nodes, piece by piece and fold by fold, so that what follows a row is the next node.
///
/// A piece is a chain ([`chains`]), or a part of a long one: it ends in the value of its last successor, as a cut does, and its
/// trace starts at zero. All columns have one entry for each of the N nodes.
///
/// Rewards are in a unit of their own, since values are kept in single precision, whose range real units may leave.
pub(super) struct Pieces {
    /// State dimension D.
    pub(super) dim: usize,
    /// Number of rows n.
    pub(super) rows: usize,
    /// Normalised states (N, D), row-major.
    pub(super) states: Vec<f64>,
    /// Rewards (N, H) of the columns that are learned, below 1 in magnitude: each divided by a power of two; 0 behind a piece.
    pub(super) rewards: Matrix,
    /// Discount of each row (N,): 0 where it terminates, and behind a piece.
    pub(super) discount: Vec<f64>,
    /// Weight of each row (N,): its ratio of probabilities; 0 behind a piece.
    pub(super) weight: Vec<f64>,
    /// Which row a node is (N,): none behind a piece.
    pub(super) row: Vec<Option<usize>>,
    /// Nodes of each piece, the one behind its last row included.
    pub(super) pieces: Vec<Range<usize>>,
    /// Nodes of each fold.
    pub(super) folds: [Range<usize>; FOLDS],
}

/// What the arrangement reads.
pub(super) struct Source<'a> {
    pub(super) rows: &'a Rows,
    /// Reward columns that are learned (H of them).
    pub(super) rewards: &'a [usize],
    /// Discount of rows that carry none.
    pub(super) discount: f64,
    /// Largest ratio of probabilities.
    pub(super) ratio_max: Option<f64>,
    /// Normalisation of the states.
    pub(super) inputs: &'a Inputs,
    /// Rows used at most, about.
    pub(super) rows_max: usize,
    /// Which pieces, where there are more rows.
    pub(super) seed: u64,
}

impl Pieces {
    /// Chains in the order of their first rows, one after the other to the folds. Of more than `rows_max` rows whole pieces
    /// are taken, spread evenly.
    pub(super) fn new(source: &Source<'_>) -> Self {
        let Source { rows, rewards, rows_max, .. } = *source;
        let mut parts = parts(rows, rows.len().min(rows_max));
        if rows.len() > rows_max {
            parts = spread(parts, rows_max as f64 / rows.len() as f64, source.seed);
        }
        let nodes: usize = parts.iter().map(|part| part.len() + 1).sum();
        let mut out = Self {
            dim: rows.dim,
            rows: nodes - parts.len(),
            states: Vec::with_capacity(nodes * rows.dim),
            rewards: Matrix::zeros(nodes, rewards.len()),
            discount: Vec::with_capacity(nodes),
            weight: Vec::with_capacity(nodes),
            row: Vec::with_capacity(nodes),
            pieces: Vec::with_capacity(parts.len()),
            folds: Default::default(),
        };
        for fold in 0..FOLDS {
            let first = out.row.len();
            for part in parts.iter().skip(fold).step_by(FOLDS) {
                out.push(source, part);
            }
            out.folds[fold] = first..out.row.len();
        }
        (0..rewards.len()).for_each(|h| to_own_unit(out.rewards.col_mut(h)));
        out
    }

    fn push(&mut self, source: &Source<'_>, part: &[usize]) {
        let Source { rows, inputs, .. } = source;
        let first = self.row.len();
        for &i in part {
            for (h, &column) in source.rewards.iter().enumerate() {
                *self.rewards.at_mut(self.row.len(), h) = rows.reward(i)[column];
            }
            self.states.extend(inputs.normalise(rows.state(i)));
            self.discount.push(rows.follows(i, source.discount));
            self.weight.push(rows.ratio(i, source.ratio_max));
            self.row.push(Some(i));
        }
        let last = *part.last().expect("a piece has rows");
        self.states.extend(inputs.normalise(rows.next_state(last)));
        self.discount.push(0.0);
        self.weight.push(0.0);
        self.row.push(None);
        self.pieces.push(first..self.row.len());
    }

    /// Number of nodes N.
    pub(super) fn nodes(&self) -> usize {
        self.row.len()
    }

    /// Number of reward columns H.
    pub(super) fn columns(&self) -> usize {
        self.rewards.cols()
    }

    /// The lambda-returns y of reward column `h` at all nodes (N,), given the values there; behind a piece its value.
    /// ```text
    /// y_t = r_t + gamma_t [V_t+1 + lambda rho_t+1 (y_t+1 - V_t+1)]                          docs/mathematics.md (R3)
    /// ```
    pub(super) fn returns(&self, lambda: f64, h: usize, values: &[f64]) -> Vec<f64> {
        let (rewards, mut y, carries) = (self.rewards.col(h), values.to_vec(), self.carries(lambda));
        for piece in &self.pieces {
            for t in piece.clone().rev().skip(1) {
                let next = values[t + 1] + carries[t + 1] * (y[t + 1] - values[t + 1]);
                y[t] = rewards[t] + self.discount[t] * next;
            }
        }
        y
    }

    /// Mean of the ratios over rows, and its standard error over pieces; none of one piece.
    pub(super) fn mean_ratio(&self) -> Option<(f64, f64)> {
        let (rows, count) = (self.rows as f64, self.pieces.len() as f64);
        let mean = self.weight.iter().sum::<f64>() / rows;
        let about = |piece: &Range<usize>| {
            let sum = self.weight[piece.clone()].iter().sum::<f64>();
            (sum - mean * (piece.len() - 1) as f64).powi(2)
        };
        let squares = self.pieces.iter().map(about).sum::<f64>();
        (count > 1.0).then(|| (mean, (squares * count / (count - 1.0)).sqrt() / rows))
    }

    /// How much of a trace flows into each node (N,): lambda rho, or 0 where the trace ends (docs/mathematics.md (S13)).
    pub(super) fn carries(&self, lambda: f64) -> Vec<f64> {
        let mut out = vec![0.0; self.nodes()];
        for piece in &self.pieces {
            let mut flowing = 0.0;
            for node in piece.clone() {
                let weight = self.weight[node];
                out[node] = carry(lambda * weight, weight, flowing);
                flowing = self.discount[node] * (flowing * out[node] + weight);
            }
        }
        out
    }

    /// At most `count` nodes that are rows, ascending: all as likely as each other.
    pub(super) fn sample(&self, count: usize, seed: u64) -> Vec<usize> {
        self.chosen(count, seed, |_, _| true)
    }

    /// The same of rows that weigh something, each as likely as it weighs: what is regressed on their states without weights is
    /// then the same in the mean. Where a few rows weigh so much that too few others are drawn beside them, the heaviest fill up.
    pub(super) fn weighted_sample(&self, count: usize, seed: u64) -> Vec<usize> {
        let heaviest = self.weight.iter().copied().fold(0.0, f64::max);
        let weighs = |node: usize| self.weight[node] > 0.0;
        let mut out =
            self.chosen(count, seed, |node, rng| weighs(node) && self.weight[node] >= heaviest * rng.random::<f64>());
        if out.len() < count {
            let drawn = |node: &usize| out.binary_search(node).is_ok();
            let mut rest: Vec<usize> = (0..self.nodes()).filter(|node| weighs(*node) && !drawn(node)).collect();
            rest.sort_by(|&a, &b| self.weight[b].total_cmp(&self.weight[a]));
            out.extend(rest.into_iter().take(count - out.len()));
            out.sort_unstable();
        }
        out
    }

    fn chosen(&self, count: usize, seed: u64, keep: impl Fn(usize, &mut ChaCha8Rng) -> bool) -> Vec<usize> {
        let mut of: Vec<usize> = (0..self.nodes()).filter(|&node| self.row[node].is_some()).collect();
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut out = Vec::with_capacity(count.min(of.len()));
        for k in 0..of.len() {
            if out.len() == count {
                break;
            }
            let other = rng.random_range(k..of.len());
            of.swap(k, other);
            if keep(of[k], &mut rng) {
                out.push(of[k]);
            }
        }
        out.sort_unstable();
        out
    }
}

/// Divide by the power of two above all of them, which rounds nothing off.
fn to_own_unit(rewards: &mut [f64]) {
    let largest = rewards.iter().fold(0.0, |most: f64, r| most.max(r.abs()));
    if largest > 0.0 {
        let exponent = largest.log2().floor() as i32 + 1;
        // In two steps: one over the smallest numbers is out of range.
        let first = exponent / 2;
        let steps = [2f64.powi(-first), 2f64.powi(first - exponent)];
        rewards.iter_mut().for_each(|r| *r = *r * steps[0] * steps[1]);
    }
}

/// Rows of each piece, in the order of their first rows: chains, those too long for `used` rows cut into equal parts.
fn parts(rows: &Rows, used: usize) -> Vec<Vec<usize>> {
    let longest = PIECE_MIN.max(used / PIECES).min(used / PIECES_MIN).max(1);
    let successor = chains(rows);
    let mut follows = vec![false; rows.len()];
    successor.iter().flatten().for_each(|&next| follows[next] = true);
    let mut out = Vec::new();
    for first in (0..rows.len()).filter(|&i| !follows[i]) {
        let chain: Vec<usize> = std::iter::successors(Some(first), |&i| successor[i]).collect();
        let count = chain.len().div_ceil(longest);
        out.extend((0..count).map(|k| chain[k * chain.len() / count..(k + 1) * chain.len() / count].to_vec()));
    }
    out.sort_by_key(|part: &Vec<usize>| part[0]);
    out
}

/// This share of the pieces: one out of each stretch of them, by chance, so that streams that take turns are not missed.
fn spread(parts: Vec<Vec<usize>>, share: f64, seed: u64) -> Vec<Vec<usize>> {
    let (all, mut rng) = (parts.len(), ChaCha8Rng::seed_from_u64(seed));
    let count = ((all as f64 * share) as usize).clamp(1, all);
    let chosen: Vec<usize> = (0..count).map(|k| rng.random_range(k * all / count..(k + 1) * all / count)).collect();
    let mut parts: Vec<Option<Vec<usize>>> = parts.into_iter().map(Some).collect();
    chosen.into_iter().map(|k| parts[k].take().expect("one of each stretch")).collect()
}
