//! One kernel on all folds: what each fold leaves out is predicted by the rest, for every lambda and ridge.
//!
//! ```text
//! e_t = gamma_t-1 lambda rho_t e_t-1 + rho_t phi_t                        0 before the first row of a piece
//! A_k = sum e_t (phi_t - gamma_t phi_t+1)',   p_k = sum e_t r_t           over fold k; docs/mathematics.md (R2)
//! u_k = (sum of the other A + ratio I)^-1 (sum of the other p)            V of fold k is phi'u_k
//! ```

use super::pieces::{FOLDS, Pieces};
use crate::allowance::{covariances, solution};
use crate::math::dense::{Matrix, Op, Scratch, axpy, multiply, solve_general_into};
use crate::math::dictionary::Dictionary;
use crate::math::evidence::KeepGoing;
use crate::math::kernel::Points;
use rayon::prelude::*;
use std::ops::Range;

/// Nodes worked on at a time.
const BLOCK: usize = 512;

/// A and p of some nodes, for each lambda.
pub(super) struct NodeSums {
    /// A (m, m).
    pub(super) system: Vec<Matrix>,
    /// p (m, H).
    pub(super) response: Vec<Matrix>,
}

/// f of 0, 1, ..., `count` - 1, beside each other where the caller runs in a pool of threads: in their order, and each the same as
/// alone.
pub(super) fn each<T: Send>(count: usize, f: impl Fn(usize) -> T + Sync + Send) -> Vec<T> {
    if rayon::current_thread_index().is_some() {
        (0..count).into_par_iter().map(f).collect()
    } else {
        (0..count).map(f).collect()
    }
}

/// Products of a dictionary of these `elements` on all folds, for these numbers of `lambdas` and `ridges`.
pub(super) fn products(pieces: &Pieces, elements: usize, lambdas: usize, ridges: usize) -> f64 {
    let (n, m, values) = (pieces.nodes() as f64, elements as f64, (lambdas * ridges) as f64);
    let sums = covariances(n * m, pieces.dim) + n * m * m * (0.5 + lambdas as f64);
    let solved = covariances(n * m, pieces.dim) + n * m * values * pieces.columns() as f64;
    sums + FOLDS as f64 * values * solution(elements) + solved
}

/// A and p of `nodes`, which are whole pieces; none if stopped. O(n m^2) for each lambda.
pub(super) fn sums(
    pieces: &Pieces,
    nodes: Range<usize>,
    dictionary: &Dictionary,
    lambdas: &[f64],
    keep_going: KeepGoing<'_>,
) -> Option<NodeSums> {
    let (m, dim, columns) = (dictionary.len(), pieces.dim, pieces.columns());
    let kernel = dictionary.kernel();
    let zeros = |columns: usize| lambdas.iter().map(|_| Matrix::zeros(m, columns)).collect::<Vec<Matrix>>();
    let mut out = NodeSums { system: zeros(m), response: zeros(columns) };
    let carries: Vec<Vec<f64>> = lambdas.iter().map(|&lambda| pieces.carries(lambda)).collect();
    // Of the row before, for each lambda.
    let mut traces = Matrix::zeros(m, lambdas.len());
    let (mut features, mut covariances, mut projected) = (Matrix::default(), Matrix::default(), Vec::new());
    let (mut differences, mut scores, mut rewards) = (Matrix::default(), Matrix::default(), Matrix::default());
    for start in nodes.clone().step_by(BLOCK) {
        if !keep_going() {
            return None;
        }
        let end = nodes.end.min(start + BLOCK);
        // With the node behind the block, which its last row may need.
        let known = start..nodes.end.min(end + 1);
        projected.clear();
        kernel.project_into(dim, &pieces.states[known.start * dim..known.end * dim], &mut projected);
        features.renew(m, known.len());
        dictionary.features_into(&projected, &mut covariances, features.view_mut());
        let live: Vec<usize> = (start..end).filter(|&node| pieces.row[node].is_some()).collect();
        differences.renew(m, live.len());
        rewards.renew(live.len(), columns);
        for (k, &node) in live.iter().enumerate() {
            let column = differences.col_mut(k);
            column.copy_from_slice(features.col(node - start));
            if pieces.discount[node] != 0.0 {
                axpy(column, -pieces.discount[node], features.col(node + 1 - start));
            }
            (0..columns).for_each(|h| *rewards.at_mut(k, h) = pieces.rewards.at(node, h));
        }
        scores.renew(m, live.len());
        for (l, carries) in carries.iter().enumerate() {
            let trace = traces.col_mut(l);
            for (k, &node) in live.iter().enumerate() {
                let weight = pieces.weight[node];
                // Behind a piece the discount is 0, and so nothing flows into the next.
                let before = if node == nodes.start { 0.0 } else { pieces.discount[node - 1] };
                let decay = before * carries[node];
                for (e, phi) in trace.iter_mut().zip(features.col(node - start)) {
                    *e = decay * *e + weight * phi;
                }
                scores.col_mut(k).copy_from_slice(trace);
            }
            let e = scores.view();
            let (system, response) = (out.system[l].view_mut(), out.response[l].view_mut());
            multiply(system, true, 1.0, e, Op::Plain, differences.view(), Op::Transposed);
            multiply(response, true, 1.0, e, Op::Plain, rewards.view(), Op::Plain);
        }
    }
    Some(out)
}

/// Weights of features (m, L R H) with `sums` number `fold` left out: the columns of reward h for lambda l and ridge r stand at
/// (l R + r) H + h. Those whose system is singular are not numbers.
pub(super) fn weights(sums: &[NodeSums], fold: usize, ratios: &[f64]) -> Matrix {
    let (m, columns) = (sums[0].response[0].rows(), sums[0].response[0].cols());
    let lambdas = sums[0].system.len();
    let mut out = Matrix::zeros(m, lambdas * ratios.len() * columns);
    let (mut u, mut scratch) = (Matrix::default(), Scratch::default());
    for l in 0..lambdas {
        let (mut system, response) = rest(sums, fold, l);
        let diagonal: Vec<f64> = (0..m).map(|i| system.at(i, i)).collect();
        for (r, &ratio) in ratios.iter().enumerate() {
            (0..m).for_each(|i| *system.at_mut(i, i) = diagonal[i] + ratio);
            let solved = solve_general_into(&system, &response, &mut u, &mut scratch).is_ok();
            for h in 0..columns {
                let to = out.col_mut((l * ratios.len() + r) * columns + h);
                if solved {
                    to.copy_from_slice(u.col(h));
                } else {
                    to.fill(f64::NAN);
                }
            }
        }
    }
    out
}

/// A and p of all but number `fold`, added in their order: nothing is subtracted, so nothing is lost.
fn rest(sums: &[NodeSums], fold: usize, l: usize) -> (Matrix, Matrix) {
    let mut others = (0..sums.len()).filter(|&k| k != fold);
    let first = others.next().expect("more than one fold");
    let (mut system, mut response) = (sums[first].system[l].clone(), sums[first].response[l].clone());
    for k in others {
        (0..system.cols()).for_each(|j| axpy(system.col_mut(j), 1.0, sums[k].system[l].col(j)));
        (0..response.cols()).for_each(|h| axpy(response.col_mut(h), 1.0, sums[k].response[l].col(h)));
    }
    (system, response)
}

/// Values at `nodes` under `weights` (m, C) of features, column by column; none if stopped. Single precision
/// suffices for what is compared with noisy targets.
pub(super) fn values(
    pieces: &Pieces,
    nodes: Range<usize>,
    dictionary: &Dictionary,
    weights: &Matrix,
    keep_going: KeepGoing<'_>,
) -> Option<Vec<f32>> {
    let (m, dim) = (dictionary.len(), pieces.dim);
    let kernel = dictionary.kernel();
    let points = Points::new(kernel.projected_dim(dim), &kernel.project(dim, dictionary.elements()));
    let weights = dictionary.kernel_weights(weights);
    let mut out = vec![0.0f32; nodes.len() * weights.cols()];
    let (mut covariances, mut block, mut projected) = (Matrix::default(), Matrix::default(), Vec::new());
    for start in nodes.clone().step_by(BLOCK) {
        if !keep_going() {
            return None;
        }
        let len = BLOCK.min(nodes.end - start);
        projected.clear();
        kernel.project_into(dim, &pieces.states[start * dim..(start + len) * dim], &mut projected);
        covariances.renew(m, len);
        kernel.rows(&points, &projected, &mut covariances.view_mut());
        block.renew(len, weights.cols());
        let k = covariances.view();
        multiply(block.view_mut(), false, 1.0, k, Op::Transposed, weights.view(), Op::Plain);
        for c in 0..weights.cols() {
            let to = &mut out[c * nodes.len() + start - nodes.start..][..len];
            to.iter_mut().zip(block.col(c)).for_each(|(to, value)| *to = *value as f32);
        }
    }
    Some(out)
}
