//! What the base and each tracker lost against returns that came, and the weights that follow.

use crate::math::dense::{Matrix, axpy, dot, tight};
use crate::math::raw;
use serde::{Deserialize, Serialize};

/// Weight of the base before anything is known; the trackers share the rest.
const PRIOR_OF_BASE: f64 = 0.5;
/// What loses more than the best by this many nats does not take part.
const LEAVES_ABOVE: f64 = 400.0;
/// Least weight: what has fallen to it can still return.
const LEAST: f64 = 1e-12;
/// Steps at most, least step, and change of the objective (relative to 1 + its size) that ends them.
const STEPS_MAX: usize = 200;
const STEP_MIN: f64 = 1e-9;
const ENOUGH: f64 = 1e-7;
/// Part of a half-life after which weights are solved for again: they then move by a fiftieth of what is remembered.
const RENEWED: f64 = 1.0 / 32.0;

/// Decayed sums of products of errors, and the weights that they ask for, docs/mathematics.md (L6), (L7):
/// ```text
/// Q <- sum of 2^(-age / half-life) stride e e'        N alike of stride        e = prediction of each of K + 1 models - y
/// w = argmin w'Qw / (2 s) + KL(w | prior)   over the simplex        s = horizon min_k Q_kk / N
/// ```
/// Weights from each model's loss alone would not find that half of a correction is better than all of it or none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Losses {
    /// Q (K + 1, K + 1), whole; the base first.
    #[serde(serialize_with = "tight")]
    products: Matrix,
    /// N.
    rows: f64,
    /// Rows after which an error counts half.
    half_life: f64,
    /// Rows of a return.
    horizon: f64,
    /// w (K + 1,).
    #[serde(with = "raw")]
    weights: Vec<f64>,
    /// Rows since w was solved for.
    waited: f64,
    #[serde(skip)]
    work: Work,
}

/// Scratch of a solution.
#[derive(Clone, Debug, Default)]
struct Work {
    /// Numbers of the models that take part, and Q / s of them.
    taking: Vec<usize>,
    scaled: Matrix,
    prior: Vec<f64>,
    point: Point,
    next: Point,
    gradient: Vec<f64>,
}

impl PartialEq for Work {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

/// Weights, their logarithms, what Q / s makes of them, and the objective there.
#[derive(Clone, Debug, Default)]
struct Point {
    weights: Vec<f64>,
    logs: Vec<f64>,
    image: Vec<f64>,
    objective: f64,
}

impl Losses {
    /// None yet, of a base and `trackers` trackers.
    pub fn new(trackers: usize, half_life: f64, horizon: f64) -> Self {
        let count = trackers + 1;
        let weights = (0..count).map(|k| prior(k, count)).collect();
        let products = Matrix::zeros(count, count);
        Self { products, rows: 0.0, half_life, horizon, weights, waited: f64::INFINITY, work: Work::default() }
    }

    /// Remember nothing.
    pub fn forget(&mut self) {
        *self = Self::new(self.weights.len() - 1, self.half_life, self.horizon);
    }

    /// w (K + 1,), the base's first: the prior before the first error.
    pub fn weights(&self) -> &[f64] {
        &self.weights
    }

    /// Q (K + 1, K + 1).
    pub fn products(&self) -> &Matrix {
        &self.products
    }

    /// N, effective rows behind it.
    pub fn rows(&self) -> f64 {
        self.rows
    }

    /// Errors (K + 1,) of a row that stands for `stride` rows, `age` rows after those before. Whether the weights are new.
    pub fn absorb(&mut self, errors: &[f64], stride: f64, age: f64) -> bool {
        let f = (-age / self.half_life).exp2();
        for (j, error) in errors.iter().enumerate() {
            let column = self.products.col_mut(j);
            column.iter_mut().for_each(|q| *q *= f);
            axpy(column, stride * error, errors);
        }
        self.rows = self.rows * f + stride;
        self.waited += age;
        if self.waited < RENEWED * self.half_life {
            return false;
        }
        self.waited = 0.0;
        let scale =
            self.horizon * (0..errors.len()).map(|k| self.products.at(k, k)).fold(f64::INFINITY, f64::min) / self.rows;
        if scale.is_finite() {
            self.solve(scale.max(f64::MIN_POSITIVE.sqrt()));
        }
        true
    }

    /// w at this s.
    fn solve(&mut self, scale: f64) {
        let Self { products, weights, work, .. } = self;
        work.begin(products, weights, scale);
        let mut step = 1.0 / (1.0 + work.scaled.largest());
        for _ in 0..STEPS_MAX {
            work.differentiate();
            while !work.take_step(step) && step >= STEP_MIN {
                step /= 2.0;
            }
            let fell = work.point.objective - work.next.objective;
            let enough = fell < ENOUGH * (1.0 + work.point.objective.abs());
            if fell > 0.0 {
                std::mem::swap(&mut work.point, &mut work.next);
            }
            if enough {
                break;
            }
            step *= 2.0;
        }
        weights.fill(LEAST);
        for (&k, w) in work.taking.iter().zip(&work.point.weights) {
            weights[k] = *w;
        }
        let total: f64 = weights.iter().sum();
        weights.iter_mut().for_each(|w| *w /= total);
    }

    /// Whether its parts fit `trackers` trackers.
    pub(crate) fn is_consistent(&self, trackers: usize) -> bool {
        let count = trackers + 1;
        (self.products.rows(), self.products.cols(), self.weights.len()) == (count, count, count)
            && self.half_life > 0.0
            && self.horizon >= 1.0
            && self.rows >= 0.0
            && self.waited >= 0.0
            && self.weights.iter().all(|w| (0.0..=1.0).contains(w))
    }

    /// Bytes held, for reports of memory.
    pub fn bytes(&self) -> usize {
        self.products.bytes() + self.work.scaled.bytes() + 12 * size_of_val(&self.weights[..])
    }
}

/// Weight of model number `k` of `count` before anything is known.
fn prior(k: usize, count: usize) -> f64 {
    match (k, count) {
        (0, 1) => 1.0,
        (0, _) => PRIOR_OF_BASE,
        _ => (1.0 - PRIOR_OF_BASE) / (count - 1) as f64,
    }
}

impl Work {
    /// Begin at the weights there are, of the models that are near enough to the best, and of the base.
    fn begin(&mut self, products: &Matrix, weights: &[f64], scale: f64) {
        let count = weights.len();
        let of = |k: usize| products.at(k, k) / scale;
        let best = (0..count).map(of).fold(f64::INFINITY, f64::min);
        self.reserve(count);
        self.taking.extend((0..count).filter(|&k| k == 0 || of(k) <= best + LEAVES_ABOVE));
        let taking = self.taking.len();
        self.scaled.renew(taking, taking);
        for (j, &l) in self.taking.iter().enumerate() {
            for (i, &k) in self.taking.iter().enumerate() {
                *self.scaled.at_mut(i, j) = products.at(k, l) / scale;
            }
        }
        self.prior.extend(self.taking.iter().map(|&k| prior(k, count)));
        let total: f64 = self.prior.iter().sum();
        self.prior.iter_mut().for_each(|p| *p = (*p / total).ln());
        let Self { taking, scaled, prior, point, .. } = self;
        point.logs.extend(taking.iter().map(|&k| weights[k].max(LEAST).ln()));
        point.settle(scaled, prior);
    }

    /// Memory for `count` models, so that it does not matter how many take part.
    fn reserve(&mut self, count: usize) {
        let Self { taking, scaled, prior, point, next, gradient } = self;
        scaled.renew(count, count);
        taking.clear();
        taking.reserve(count);
        for of in [prior, gradient, &mut point.weights, &mut point.logs, &mut point.image] {
            of.clear();
            of.reserve(count);
        }
        for of in [&mut next.weights, &mut next.logs, &mut next.image] {
            of.clear();
            of.reserve(count);
        }
    }

    /// The gradient at the point, less its mean under the weights there: what multiplicative steps follow.
    fn differentiate(&mut self) {
        let Self { point, prior, gradient, .. } = self;
        gradient.clear();
        gradient.extend(point.image.iter().zip(&point.logs).zip(&*prior).map(|((image, log), p)| image + log - p));
        let mean = dot(gradient, &point.weights);
        gradient.iter_mut().for_each(|g| *g -= mean);
    }

    /// The next point is a step down the gradient; whether the objective is no greater there.
    fn take_step(&mut self, step: f64) -> bool {
        let Self { point, next, prior, scaled, gradient, .. } = self;
        next.logs.clear();
        next.logs.extend(point.logs.iter().zip(&*gradient).map(|(log, g)| log - step * g));
        next.settle(scaled, prior);
        next.objective <= point.objective
    }
}

impl Point {
    /// The weights of its logarithms, which may be off by a constant and are brought above the least, and all that follows.
    fn settle(&mut self, scaled: &Matrix, prior: &[f64]) {
        let Self { weights, logs, image, objective } = self;
        let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        weights.clear();
        weights.extend(logs.iter().map(|log| (log - top).exp().max(LEAST)));
        let total: f64 = weights.iter().sum();
        for (w, log) in weights.iter_mut().zip(logs.iter_mut()) {
            *w /= total;
            *log = w.ln();
        }
        image.clear();
        image.extend((0..weights.len()).map(|k| dot(scaled.col(k), weights)));
        let against: f64 = weights.iter().zip(&*logs).zip(prior).map(|((w, log), p)| w * (log - p)).sum();
        *objective = 0.5 * dot(weights, image) + against;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform(state: &mut u64) -> f64 {
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }

    /// Weights of a base that is off by `off` and trackers that are off by parts of it, after `rows` rows with this half-life:
    /// renewed with each row where that is at most 32.
    fn learned(off: f64, parts: &[f64], rows: usize, half_life: f64) -> Losses {
        let (mut losses, mut state) = (Losses::new(parts.len(), half_life, 1.0), 3);
        for _ in 0..rows {
            let noise = uniform(&mut state);
            let errors: Vec<f64> = std::iter::once(1.0).chain(parts.iter().copied()).map(|p| p * off + noise).collect();
            losses.absorb(&errors, 1.0, 1.0);
        }
        losses
    }

    #[test]
    fn weights_minimise_the_objective() {
        let losses = learned(0.4, &[0.5, -0.2, 0.9, -1.1], 300, 30.0);
        let (products, weights) = (losses.products(), losses.weights());
        assert!((weights.iter().sum::<f64>() - 1.0).abs() < 1e-12);
        let scale = (0..5).map(|k| products.at(k, k)).fold(f64::INFINITY, f64::min) / losses.rows();
        let objective = |w: &[f64]| {
            let of = |k: usize| dot(products.col(k), w) * w[k] / (2.0 * scale) + w[k] * (w[k] / prior(k, 5)).ln();
            (0..5).map(of).sum::<f64>()
        };
        let (least, mut state) = (objective(weights), 5);
        for size in [1e-3, 1e-2, 0.1, 1.0] {
            for _ in 0..200 {
                let moved: Vec<f64> = weights.iter().map(|w| w * (size * uniform(&mut state)).exp()).collect();
                let total: f64 = moved.iter().sum();
                let moved: Vec<f64> = moved.iter().map(|w| w / total).collect();
                // What is left where a step has gained too little to go on.
                assert!(objective(&moved) > least - 1e-3, "{weights:?} against {moved:?}");
            }
        }
    }

    #[test]
    fn half_way_to_a_tracker_is_found_where_that_is_best() {
        // The base is above by as much as the tracker is below.
        let losses = learned(0.4, &[-1.0], 2000, 500.0);
        assert!((losses.weights()[0] - 0.5).abs() < 0.02, "{:?}", losses.weights());
    }

    #[test]
    fn what_is_far_worse_leaves_and_the_base_stays() {
        let losses = learned(0.0, &[0.0, 0.0], 10, 30.0);
        assert!((losses.weights()[0] - 0.5).abs() < 1e-6, "alike in all: the prior");
        let mut losses = Losses::new(1, 100.0, 1.0);
        for _ in 0..50 {
            losses.absorb(&[0.01, 5.0], 1.0, 1.0);
        }
        assert!(losses.weights()[0] > 1.0 - 1e-9);
        for _ in 0..50 {
            losses.absorb(&[5.0, 0.01], 1.0, 1.0);
        }
        for _ in 0..2000 {
            losses.absorb(&[1.0, 0.01], 1.0, 1.0);
        }
        assert!(losses.weights()[1] > 0.99, "what had left may return: {:?}", losses.weights());
    }
}
