//! Nearest points of convex hulls, known by inner products alone: points may be functions of a reproducing kernel Hilbert space.
//!
//! \[W76\] P. Wolfe, *Finding the Nearest Point in a Polytope*, Mathematical Programming 11, 1976.

use super::dense::{Matrix, ViewMut, dot, solve_lower, solve_lower_transposed};
use super::kernel::Kernel;

/// Inner products below this share of the largest squared distance count as equal.
const EQUAL: f64 = 1e-13;
/// Weights below this are none.
const NO_WEIGHT: f64 = 1e-15;

/// A point of a hull.
#[derive(Clone, Debug, PartialEq)]
pub struct Nearest {
    /// Convex weights of the points (k,): not negative, sum 1; at most one more is positive than the points have dimensions.
    pub weights: Vec<f64>,
    /// Squared distance from the target.
    pub squared_distance: f64,
}

/// The combinations of points that are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Weights w >= 0 that sum to 1: the convex hull.
    Convex,
    /// Weights with |w|_1 <= 1: the convex hull of the points, their negatives and 0.
    Absolute,
}

/// The point nearest to a target t in the hull of y_1 .. y_k, by Wolfe's algorithm:
/// ```text
/// min |sum_i w_i y_i - t|^2,   w >= 0, sum w = 1         inner(i, j) = y_i' y_j,  with_target[i] = y_i' t,  square = t't    [W76]
/// ```
/// The minimum-norm point of the differences y_i - t: a set of them, affinely independent, grows by the one that lies furthest on
/// the near side of the present point, and loses those that the nearest point of its affine hull gives no positive weight. The
/// weights are unique where all y_i are affinely independent.
///
/// # Panics
/// If there are no points.
pub fn nearest(inner: &dyn Fn(usize, usize) -> f64, with_target: &[f64], square: f64) -> Nearest {
    assert!(!with_target.is_empty(), "a hull has points");
    Corral::new(inner, with_target, square).run()
}

/// Wolfe's set of points and the factor that its affine hull is asked with.
struct Corral<'a> {
    inner: &'a dyn Fn(usize, usize) -> f64,
    with_target: &'a [f64],
    square: f64,
    /// c: the largest squared distance of a point from the target.
    scale: f64,
    chosen: Vec<usize>,
    weights: Vec<f64>,
    /// L with L L' = G + c 1 1' over the chosen, G the Gram matrix of their differences from the target.
    factor: Matrix,
}

impl<'a> Corral<'a> {
    /// The point nearest to the target, the first of equals.
    fn new(inner: &'a dyn Fn(usize, usize) -> f64, with_target: &'a [f64], square: f64) -> Self {
        let (chosen, weights, factor) = (Vec::new(), Vec::new(), Matrix::default());
        let mut out = Self { inner, with_target, square, scale: 0.0, chosen, weights, factor };
        let distances: Vec<f64> = (0..with_target.len()).map(|i| out.difference(i, i)).collect();
        out.scale = distances.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
        let nearest = (1..distances.len()).fold(0, |best, i| if distances[i] < distances[best] { i } else { best });
        out.append(nearest);
        out.weights.push(1.0);
        out
    }

    /// (y_i - t)'(y_j - t).
    fn difference(&self, i: usize, j: usize) -> f64 {
        (self.inner)(i, j) - self.with_target[i] - self.with_target[j] + self.square
    }

    /// Let a point belong to the set, with no weight yet; false where those in it span its differences already.
    fn append(&mut self, point: usize) -> bool {
        let size = self.chosen.len();
        let mut row: Vec<f64> = self.chosen.iter().map(|&i| self.difference(i, point) + self.scale).collect();
        solve_lower(self.factor.view(), ViewMut::column(&mut row));
        let own = self.difference(point, point) + self.scale;
        let pivot = own - dot(&row, &row);
        if pivot <= EQUAL * own {
            return false;
        }
        self.factor.resize(size + 1, size + 1);
        row.iter().enumerate().for_each(|(j, &value)| *self.factor.at_mut(size, j) = value);
        *self.factor.at_mut(size, size) = pivot.sqrt();
        self.chosen.push(point);
        true
    }

    /// Take out the points without weight.
    fn shed(&mut self) {
        let Some(first) = self.weights.iter().position(|&weight| weight <= NO_WEIGHT) else { return };
        let rest: Vec<(usize, f64)> = (first..self.chosen.len()).map(|k| (self.chosen[k], self.weights[k])).collect();
        self.chosen.truncate(first);
        self.weights.truncate(first);
        self.factor.resize(first, first);
        for (point, weight) in rest.into_iter().filter(|&(_, weight)| weight > NO_WEIGHT) {
            if self.append(point) {
                self.weights.push(weight);
            }
        }
        let sum: f64 = self.weights.iter().sum();
        self.weights.iter_mut().for_each(|weight| *weight /= sum);
    }

    /// Weights, of any sign and with sum 1, of the nearest point of the affine hull of the set.
    fn affine(&self) -> Vec<f64> {
        let mut out = vec![1.0; self.chosen.len()];
        solve_lower(self.factor.view(), ViewMut::column(&mut out));
        solve_lower_transposed(self.factor.view(), ViewMut::column(&mut out));
        let sum: f64 = out.iter().sum();
        out.iter_mut().for_each(|weight| *weight /= sum);
        out
    }

    /// Go to the nearest point of the hull of the set, which loses the points that it does not need.
    fn settle(&mut self) {
        loop {
            let wanted = self.affine();
            if wanted.iter().all(|&weight| weight > NO_WEIGHT) {
                self.weights = wanted;
                return;
            }
            // As far towards it as all weights stay.
            let shares = self.weights.iter().zip(&wanted).enumerate().filter(|(_, (_, to))| **to <= NO_WEIGHT);
            let share = |from: f64, to: f64| if from > to { from / (from - to) } else { 0.0 };
            let (last, theta) = shares
                .map(|(k, (from, to))| (k, share(*from, *to)))
                .fold((0, f64::INFINITY), |a, b| if b.1 < a.1 { b } else { a });
            self.weights.iter_mut().zip(&wanted).for_each(|(weight, to)| *weight += theta * (to - *weight));
            self.weights[last] = 0.0;
            self.shed();
        }
    }

    fn run(mut self) -> Nearest {
        let count = self.with_target.len();
        let mut products = vec![0.0; count];
        // Each set comes once, so that it ends by itself; rounding might make it go round.
        for _ in 0..4 * count + 16 {
            for (j, product) in products.iter_mut().enumerate() {
                let each = self.chosen.iter().zip(&self.weights);
                *product = each.map(|(&i, weight)| weight * self.difference(i, j)).sum();
            }
            let own: f64 = self.chosen.iter().zip(&self.weights).map(|(&i, weight)| weight * products[i]).sum();
            let best = (1..count).fold(0, |best, j| if products[j] < products[best] { j } else { best });
            if products[best] >= own - EQUAL * self.scale || self.chosen.contains(&best) || !self.append(best) {
                break;
            }
            self.weights.push(0.0);
            self.settle();
        }
        let mut weights = vec![0.0; count];
        self.chosen.iter().zip(&self.weights).for_each(|(&i, &weight)| weights[i] = weight);
        let square = |(a, i): (usize, &usize)| -> f64 {
            let with = |(b, j): (usize, &usize)| self.weights[b] * self.difference(*i, *j);
            self.weights[a] * self.chosen.iter().enumerate().map(with).sum::<f64>()
        };
        let squared_distance = self.chosen.iter().enumerate().map(square).sum::<f64>().max(0.0);
        Nearest { weights, squared_distance }
    }
}

/// Which of a sequence of states were kept, so that the hull of those kept reaches every other.
#[derive(Clone, Debug, PartialEq)]
pub struct Cover {
    /// Numbers of the states kept, in order.
    pub chosen: Vec<usize>,
    /// Distance of each state (n,) from the hull of those kept before it; sqrt(k(x, x)) where there are none.
    pub distances: Vec<f64>,
}

/// Keep of `states` (n, D), row-major and in order, those whose k(x, .) is further than `radius` from the hull of those kept before,
/// at most `max`: the lossy set of compressed embeddings. The embedding of any weights alpha over all states is then within
/// radius sum |alpha| of one over those kept. `kernel` counts without its bias and columns. O(n k^2) for k kept.
///
/// # Panics
/// If the states are no whole rows.
pub fn cover(kernel: &Kernel, dim: usize, states: &[f64], radius: f64, max: usize, reach: Reach) -> Cover {
    let kernel = unbiased(kernel);
    let width = kernel.projected_dim(dim);
    let points = kernel.project(dim, states);
    let at = |i: usize| &points[i * width..(i + 1) * width];
    let mut gram = Matrix::default();
    let mut out = Cover { chosen: Vec::new(), distances: Vec::new() };
    for i in 0..states.len() / dim {
        let values: Vec<f64> = out.chosen.iter().map(|&j| kernel.eval(at(i), at(j))).collect();
        let own = kernel.diagonal();
        let distance = if values.is_empty() { own } else { reached(&gram, &values, own, reach) }.sqrt();
        out.distances.push(distance);
        if distance > radius && out.chosen.len() < max {
            let size = out.chosen.len();
            gram.resize(size + 1, size + 1);
            for (j, &value) in values.iter().chain([&own]).enumerate() {
                (*gram.at_mut(size, j), *gram.at_mut(j, size)) = (value, value);
            }
            out.chosen.push(i);
        }
    }
    out
}

/// Squared distance of a target from what points with this Gram matrix (k, k) reach.
fn reached(gram: &Matrix, with_target: &[f64], square: f64, reach: Reach) -> f64 {
    let size = with_target.len();
    match reach {
        Reach::Convex => nearest(&|i, j| gram.at(i, j), with_target, square),
        Reach::Absolute => {
            // The points, their negatives, and 0.
            let sign = |i: usize| [1.0, -1.0, 0.0][i / size];
            let signed: Vec<f64> = (0..=2 * size).map(|i| sign(i) * with_target[i % size]).collect();
            nearest(&|i, j| sign(i) * sign(j) * gram.at(i % size, j % size), &signed, square)
        }
    }
    .squared_distance
}

/// The same kernel without its constant and its columns.
pub fn unbiased(kernel: &Kernel) -> Kernel {
    Kernel { bias_variance: 0.0, columns: Vec::new(), ..kernel.clone() }
}
