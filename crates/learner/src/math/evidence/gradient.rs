//! Gradients of both evidences: sums of weights times derivatives of the kernel.

use super::gram::{Projected, signal_and_slope};
use crate::math::dense::{self, Matrix, Op, View, sum};
use crate::math::embedding::{Embedding, Place};
use crate::math::kernel::{Kernel, Metric};
use crate::math::lanes::ARCH;
use pulp::{Simd, WithSimd};
use std::borrow::Cow;

/// Columns of weights that are multiplied with the states while they are at hand.
const COLUMNS: usize = 32;

/// What the gradient along the metric needs to know of points that are all compared with one another.
pub(super) struct Nodes<'a> {
    kernel: &'a Kernel,
    /// Embedded coordinates (N, E), row-major.
    coordinates: Cow<'a, [f64]>,
    /// Values of each category (C, N).
    categories: Vec<Vec<f64>>,
    /// The same states projected, where the profile's slope is not the profile.
    projected: Option<Projected>,
}

impl<'a> Nodes<'a> {
    pub(super) fn new(kernel: &'a Kernel, dim: usize, states: &'a [f64]) -> Self {
        let embedding = kernel.embedding(dim);
        // With columns the signal is more than the profile, and slopes are apart.
        let apart = !kernel.profile.is_its_slope() || !kernel.columns.is_empty();
        let projected = apart.then(|| Projected::new(kernel, dim, states));
        let categories = embedding.all_categories(states);
        Self { kernel, coordinates: embedding.all_coordinates(states), categories, projected }
    }

    /// k1 of point j and those from number `first` on, in `memory`; none if that is k0.
    fn slopes<'b>(&self, first: usize, j: usize, memory: &'b mut [f64]) -> Option<&'b [f64]> {
        let projected = self.projected.as_ref()?;
        let out = &mut memory[first..];
        projected.slopes(self.kernel, first, projected, j, out);
        Some(out)
    }
}

/// Sums of weights times derivatives of the kernel: what a gradient is assembled from.
pub(super) struct GradientAccumulator {
    /// sum w k0.
    pub(super) signal: f64,
    /// sum w.
    pub(super) bias: f64,
    /// T = sum w k1 (x - x')(x - x')' (E, E), row-major, in embedded coordinates.
    spread: Vec<f64>,
    /// sum of w k1 over pairs of which a category differs (C,).
    pub(super) apart: Vec<f64>,
    /// E.
    dim: usize,
    embedding: Embedding,
}

impl GradientAccumulator {
    pub(super) fn new(embedding: Embedding) -> Self {
        let (dim, categories) = (embedding.width(), embedding.categories());
        Self { signal: 0.0, bias: 0.0, spread: vec![0.0; dim * dim], apart: vec![0.0; categories], dim, embedding }
    }

    /// spread += weight (a b' + b a') / 2
    pub(super) fn outer(&mut self, weight: f64, a: &[f64], b: &[f64]) {
        let dim = self.dim;
        for d in 0..dim {
            for e in 0..dim {
                self.spread[d * dim + e] += 0.5 * weight * (a[d] * b[e] + b[d] * a[e]);
            }
        }
    }

    /// spread += scale (a' b + b' a) / 2 for a and b (n, E).
    pub(super) fn outer_all(&mut self, scale: f64, a: View<'_>, b: View<'_>) {
        let product = dense::product(a, Op::Transposed, b, Op::Plain);
        for d in 0..self.dim {
            for e in 0..self.dim {
                self.spread[d * self.dim + e] += 0.5 * scale * (product.at(d, e) + product.at(e, d));
            }
        }
    }

    /// What another has gathered, too.
    pub(super) fn merge(&mut self, other: &Self) {
        self.signal += other.signal;
        self.bias += other.bias;
        dense::axpy(&mut self.spread, 1.0, &other.spread);
        dense::axpy(&mut self.apart, 1.0, &other.apart);
    }

    /// All ordered pairs of `nodes` (N,), with signal (N, N) and symmetric weights, `scale` times what `prepare` makes of what
    /// stands in column j of `weights` from the diagonal down (lower triangles). Nothing of use is left there.
    ///
    /// ```text
    /// T = 2 X' R X - 2 X' M X,   M = w .* k1 off the diagonal (a pair of equal points adds nothing),  R its row sums
    /// ```
    pub(super) fn symmetric(
        &mut self,
        weights: &mut Matrix,
        scale: f64,
        prepare: impl Fn(usize, &mut [f64]),
        signal: &Matrix,
        nodes: &Nodes<'_>,
    ) {
        let (dim, n) = (self.dim, weights.rows());
        let mut x = Matrix::from_rows(n, dim, &nodes.coordinates);
        for d in 0..dim {
            let mean = sum(x.col(d)) / n as f64;
            x.col_mut(d).iter_mut().for_each(|v| *v -= mean);
        }
        let (mut sums, mut memory) = (vec![0.0; n], vec![0.0; n]);
        // P = M' X, M without the triangle that mirrors it.
        let mut products = Matrix::zeros(n, dim);
        for first in (0..n).step_by(COLUMNS) {
            let width = COLUMNS.min(n - first);
            for j in first..first + width {
                let (above, column) = weights.col_mut(j).split_at_mut(j);
                prepare(j, column);
                let signal = &signal.col(j)[j..];
                let (diagonal, below) = column.split_first_mut().expect("the column has its diagonal");
                let (own, others) = sums[j..].split_first_mut().expect("the column has its diagonal");
                let slopes = nodes.slopes(j + 1, j, &mut memory);
                let weighed = weigh(below, scale, &signal[1..], 0.0, slopes, others);
                *own += weighed.slope;
                self.bias += scale * *diagonal + 2.0 * weighed.weight;
                self.signal += scale * *diagonal * signal[0] + 2.0 * weighed.signal;
                for (apart, values) in self.apart.iter_mut().zip(&nodes.categories) {
                    *apart += 2.0 * sum_where_different(below, &values[j + 1..], values[j]);
                }
                *diagonal = 0.0;
                above[first..].fill(0.0);
            }
            let (m, x) = (weights.block(first, first, n - first, width), x.block(first, 0, n - first, dim));
            let out = products.block_mut(first, 0, width, dim);
            dense::multiply(out, false, 1.0, m, Op::Transposed, x, Op::Plain);
        }
        self.outer_all(-4.0, products.view(), x.view());
        for d in 0..dim {
            for (scaled, (x, sum)) in products.col_mut(d).iter_mut().zip(x.col(d).iter().zip(&sums)) {
                *scaled = x * sum;
            }
        }
        self.outer_all(2.0, products.view(), x.view());
    }

    /// The prior variance of one functional: f^2 k(x, x), or f^2 k(x, x) + g^2 k(x', x') - 2 f g k(x, x').
    pub(super) fn own(
        &mut self,
        kernel: &Kernel,
        (state, factor): (&[f64], f64),
        successor: Option<(&[f64], f64)>,
        weight: f64,
    ) {
        let own = factor * factor * weight;
        self.signal += own * kernel.signal_variance;
        self.bias += own;
        if let Some((next, g)) = successor {
            let (between, slope) = signal_and_slope(kernel, state, next);
            self.signal += weight * (g * g * kernel.signal_variance - 2.0 * factor * g * between);
            self.bias += weight * (factor - g) * (factor - g) - own;
            let weight = -2.0 * factor * g * weight * slope;
            let (mut a, mut b) = (Vec::new(), Vec::new());
            let (a, b) = (self.embedding.coordinates(state, &mut a), self.embedding.coordinates(next, &mut b));
            let step: Vec<f64> = a.iter().zip(b).map(|(a, b)| a - b).collect();
            self.outer(weight, &step, &step);
            for (apart, d) in self.apart.iter_mut().zip(self.embedding.category_variables()) {
                *apart += if state[d] == next[d] { 0.0 } else { weight };
            }
        }
    }

    /// The gradient; `noise` is the derivative with respect to log sigma0^2.
    pub(super) fn gradient(&self, kernel: &Kernel, noise: f64) -> Vec<f64> {
        let dim = self.dim;
        let diagonal = |e: usize| self.spread[e * dim + e];
        // sum w k1 times the squared distance in one state variable.
        let squares = self.embedding.places().iter().map(|place| match *place {
            Place::Line(e, _) => diagonal(e),
            Place::Circle(e, _) => diagonal(e) + diagonal(e + 1),
            Place::Category(c) => 2.0 * self.apart[c],
        });
        let mut out = vec![self.signal, kernel.bias_variance * self.bias, noise];
        match &kernel.metric {
            Metric::Isotropic(h) => out.push(-0.5 * h * squares.sum::<f64>()),
            Metric::Ard(a) | Metric::Factor { relevance: a, .. } => {
                out.extend(a.iter().zip(squares).map(|(a, square)| -0.5 * a * square));
            }
        }
        // Directions go along lines, bent or not.
        let lines = || {
            self.embedding.places().iter().enumerate().filter_map(|(d, place)| match *place {
                Place::Line(e, _) => Some((d, e)),
                _ => None,
            })
        };
        for factor in kernel.metric.factors() {
            let first = out.len();
            out.resize(first + factor.len(), 0.0);
            for (d, e) in lines() {
                out[first + d] = -lines().map(|(other, f)| self.spread[e * dim + f] * factor[other]).sum::<f64>();
            }
        }
        out
    }
}

/// The sum of those w whose value is not `value`.
pub(super) fn sum_where_different(w: &[f64], values: &[f64], value: f64) -> f64 {
    w.iter().zip(values).map(|(w, v)| if *v == value { 0.0 } else { *w }).sum()
}

/// Sums over weights, before the last of which they were multiplied.
pub(super) struct Weighed {
    /// sum w.
    pub(super) weight: f64,
    /// sum w k0.
    pub(super) signal: f64,
    /// sum w k1.
    pub(super) slope: f64,
}

/// w <- scale w .* k1, and sums <- sums + that; gives the sums of scale w, alone and times k0 and k1. k0 is k - level; k1 are
/// the `slopes`, or k0 where there are none. Bits depend on the machine's registers.
pub(super) fn weigh(
    w: &mut [f64],
    scale: f64,
    k: &[f64],
    level: f64,
    slopes: Option<&[f64]>,
    sums: &mut [f64],
) -> Weighed {
    assert!(w.len() == k.len() && w.len() == sums.len(), "vectors of different lengths");
    let Some(slopes) = slopes else {
        let (weight, signal) = ARCH.dispatch(Weigh { w, scale, k, level, sums });
        return Weighed { weight, signal, slope: signal };
    };
    assert_eq!(w.len(), slopes.len(), "vectors of different lengths");
    let signal = scale * ARCH.dispatch(WeightedSum { w, k, level });
    let (weight, slope) = ARCH.dispatch(Weigh { w, scale, k: slopes, level: 0.0, sums });
    Weighed { weight, signal, slope }
}

/// sum w (k - level).
struct WeightedSum<'a> {
    w: &'a [f64],
    k: &'a [f64],
    level: f64,
}

impl WithSimd for WeightedSum<'_> {
    type Output = f64;

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> f64 {
        let (wide_w, rest_w) = S::as_simd_f64s(self.w);
        let (wide_k, rest_k) = S::as_simd_f64s(self.k);
        let (level, mut sum) = (simd.splat_f64s(self.level), simd.splat_f64s(0.0));
        for (w, k) in wide_w.iter().zip(wide_k) {
            sum = simd.mul_add_e_f64s(*w, simd.sub_f64s(*k, level), sum);
        }
        let rest: f64 = rest_w.iter().zip(rest_k).map(|(w, k)| w * (k - self.level)).sum();
        simd.reduce_sum_f64s(sum) + rest
    }
}

/// w <- scale w .* (k - level), and sums <- sums + that; gives scale times the sum of w before, and the sum of w after.
struct Weigh<'a> {
    w: &'a mut [f64],
    scale: f64,
    k: &'a [f64],
    level: f64,
    sums: &'a mut [f64],
}

impl WithSimd for Weigh<'_> {
    type Output = (f64, f64);

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) -> (f64, f64) {
        let (wide_w, rest_w) = S::as_mut_simd_f64s(self.w);
        let (wide_k, rest_k) = S::as_simd_f64s(self.k);
        let (wide_sums, rest_sums) = S::as_mut_simd_f64s(self.sums);
        let (scale, level) = (simd.splat_f64s(self.scale), simd.splat_f64s(self.level));
        let (mut before, mut after) = (simd.splat_f64s(0.0), simd.splat_f64s(0.0));
        for ((w, k), sum) in wide_w.iter_mut().zip(wide_k).zip(wide_sums) {
            before = simd.add_f64s(before, *w);
            *w = simd.mul_f64s(*w, simd.mul_f64s(scale, simd.sub_f64s(*k, level)));
            after = simd.add_f64s(after, *w);
            *sum = simd.add_f64s(*sum, *w);
        }
        let (mut before, mut after) = (simd.reduce_sum_f64s(before), simd.reduce_sum_f64s(after));
        for ((w, k), sum) in rest_w.iter_mut().zip(rest_k).zip(rest_sums) {
            before += *w;
            *w *= self.scale * (k - self.level);
            after += *w;
            *sum += *w;
        }
        (self.scale * before, after)
    }
}
