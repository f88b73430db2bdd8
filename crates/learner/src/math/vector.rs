//! Loops over vectors and single right-hand sides, in registers whose width is chosen at run time.
//!
//! But for triangular solves and what a factor gains, products and sums are not fused and every sum has a fixed number of
//! partial sums, so that every machine computes the same bits. Short vectors stay where they are: asking for wider registers
//! would cost more than they take.

use super::dense::matrix::{View, ViewMut};
use super::lanes::{ARCH, add_product};
use pulp::{Simd, WithSimd};

/// Length from which wider registers are worth asking for.
const LONG: usize = 24;
/// Partial sums of a long sum of products.
const LANES: usize = 32;
/// Entries worked off together of what is left behind whole blocks of partial sums.
const PIECE: usize = 4;
/// Columns of a triangular matrix that are worked off together, so that the right-hand side is read once for all of them; and
/// entries of a column that are, since that many fill the widest register.
const PANEL: usize = 8;
/// Columns of a square matrix that are multiplied together from both sides.
const QUAD: usize = 4;

/// A function whose body is compiled for each width of registers, which its first argument names. A closure would not do: it
/// is compiled on its own, for the narrowest, and called.
macro_rules! wide {
    ($(#[$about:meta])* fn $name:ident($simd:ident, $($argument:ident: $kind:ty),*) -> $out:ty $body:block) => {
        $(#[$about])*
        fn $name<'a>($($argument: $kind),*) -> $out {
            struct Dispatched<'a> {
                $($argument: $kind),*
            }
            impl<'a> WithSimd for Dispatched<'a> {
                type Output = $out;

                #[inline(always)]
                fn with_simd<S: Simd>(self, $simd: S) -> $out {
                    let Self { $($argument),* } = self;
                    $body
                }
            }
            ARCH.dispatch(Dispatched { $($argument),* })
        }
    };
}

/// Sum of products of two vectors of one length, in interleaved partial sums.
#[inline]
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len(), "vectors of different lengths");
    if a.len() < LONG { dot_lanes::<4>(a, b) } else { long_dot(a, b) }
}

wide! {
    fn long_dot(simd, a: &'a [f64], b: &'a [f64]) -> f64 {
        dot_registers(simd, a, b)
    }
}

/// The sum of [`dot_lanes`] with [`LANES`] partial sums, which stay in registers.
#[inline(always)]
fn dot_registers<S: Simd>(simd: S, a: &[f64], b: &[f64]) -> f64 {
    let ((whole_a, tail_a), (whole_b, tail_b)) = (a.as_chunks(), b.as_chunks());
    let sums = match S::F64_LANES {
        8 => partial_sums::<S, 4>(simd, whole_a, whole_b),
        4 => partial_sums::<S, 8>(simd, whole_a, whole_b),
        2 => partial_sums::<S, 16>(simd, whole_a, whole_b),
        _ => return dot_lanes::<LANES>(a, b),
    };
    with_tail(sums, tail_a, tail_b)
}

/// Sums of products in the `V` registers that [`LANES`] numbers take.
#[inline(always)]
fn partial_sums<S: Simd, const V: usize>(simd: S, a: &[[f64; LANES]], b: &[[f64; LANES]]) -> [f64; LANES] {
    let mut registers = [simd.splat_f64s(0.0); V];
    for (x, y) in a.iter().zip(b) {
        let ((x, _), (y, _)) = (S::as_simd_f64s(x), S::as_simd_f64s(y));
        for v in 0..V {
            registers[v] = simd.add_f64s(registers[v], simd.mul_f64s(x[v], y[v]));
        }
    }
    let mut sums = [0.0; LANES];
    S::as_mut_simd_f64s(&mut sums).0.copy_from_slice(&registers);
    sums
}

#[inline(always)]
fn dot_lanes<const N: usize>(a: &[f64], b: &[f64]) -> f64 {
    let mut sums = [0.0; N];
    let (whole_a, whole_b) = (a.chunks_exact(N), b.chunks_exact(N));
    let (tail_a, tail_b) = (whole_a.remainder(), whole_b.remainder());
    for (x, y) in whole_a.zip(whole_b) {
        for k in 0..N {
            sums[k] += x[k] * y[k];
        }
    }
    with_tail(sums, tail_a, tail_b)
}

/// The sum of partial sums and of what is left behind whole blocks of them.
#[inline(always)]
fn with_tail<const N: usize>(mut sums: [f64; N], tail_a: &[f64], tail_b: &[f64]) -> f64 {
    // What is left goes into the same partial sums, by pieces that still fill a register.
    let (pieces_a, pieces_b) = (tail_a.chunks_exact(PIECE), tail_b.chunks_exact(PIECE));
    let (rest_a, rest_b) = (pieces_a.remainder(), pieces_b.remainder());
    for (x, y) in pieces_a.zip(pieces_b) {
        for (k, sum) in sums.iter_mut().enumerate().take(PIECE) {
            *sum += x[k] * y[k];
        }
    }
    for (sum, (x, y)) in sums.iter_mut().zip(rest_a.iter().zip(rest_b)) {
        *sum += x * y;
    }
    fold(sums)
}

/// Sum of a vector, in interleaved partial sums.
#[inline]
pub fn sum(a: &[f64]) -> f64 {
    wide_sum(a)
}

wide! {
    fn wide_sum(_simd, a: &'a [f64]) -> f64 {
        let mut sums = [0.0; LANES];
        for chunk in a.chunks(LANES) {
            for (sum, x) in sums.iter_mut().zip(chunk) {
                *sum += x;
            }
        }
        fold(sums)
    }
}

/// The sum of an array whose length is a power of two, in a tree.
#[inline(always)]
fn fold<const N: usize>(mut sums: [f64; N]) -> f64 {
    let mut half = N / 2;
    while half > 0 {
        for k in 0..half {
            sums[k] += sums[k + half];
        }
        half /= 2;
    }
    sums[0]
}

/// y <- y + alpha x.
#[inline]
pub fn axpy(y: &mut [f64], alpha: f64, x: &[f64]) {
    assert_eq!(x.len(), y.len(), "vectors of different lengths");
    if x.len() < LONG { axpy_lanes(y, alpha, x) } else { long_axpy(y, alpha, x) }
}

wide! {
    fn long_axpy(_simd, y: &'a mut [f64], alpha: f64, x: &'a [f64]) -> () {
        axpy_lanes(y, alpha, x);
    }
}

#[inline(always)]
fn axpy_lanes(y: &mut [f64], alpha: f64, x: &[f64]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += alpha * x;
    }
}

/// y <- y + alpha x for x in single precision.
#[inline]
pub fn axpy_single(y: &mut [f64], alpha: f64, x: &[f32]) {
    assert_eq!(x.len(), y.len(), "vectors of different lengths");
    wide_axpy_single(y, alpha, x);
}

wide! {
    fn wide_axpy_single(_simd, y: &'a mut [f64], alpha: f64, x: &'a [f32]) -> () {
        for (y, &x) in y.iter_mut().zip(x) {
            *y += alpha * f64::from(x);
        }
    }
}

/// One row of rewards r of a chain: c <- decay c, then q <- q + 2 r c + r^2 d and c <- c + r d.
#[inline]
pub fn gain_targets(q: &mut [f64], c: &mut [f64], r: &[f64], decay: f64, d: f64) {
    assert!(q.len() == c.len() && q.len() == r.len(), "vectors of different lengths");
    wide_gain_targets(q, c, r, decay, d);
}

wide! {
    fn wide_gain_targets(_simd, q: &'a mut [f64], c: &'a mut [f64], r: &'a [f64], decay: f64, d: f64) -> () {
        for ((q, c), &r) in q.iter_mut().zip(c).zip(r) {
            let (before, gained) = (decay * *c, r * d);
            *q += r * (2.0 * before + gained);
            *c = before + gained;
        }
    }
}

/// z <- decay z + x, then y <- y + alpha z: one step of a trace and of what it is summed into.
#[inline]
pub fn trace_step(z: &mut [f64], decay: f64, x: &[f64], y: &mut [f64], alpha: f64) {
    assert!(z.len() == x.len() && z.len() == y.len(), "vectors of different lengths");
    wide_trace_step(z, decay, x, y, alpha);
}

wide! {
    fn wide_trace_step(_simd, z: &'a mut [f64], decay: f64, x: &'a [f64], y: &'a mut [f64], alpha: f64) -> () {
        for ((z, x), y) in z.iter_mut().zip(x).zip(y) {
            let next = decay * *z + x;
            *z = next;
            *y += alpha * next;
        }
    }
}

/// Lower triangle of s <- s + x x' for a square s (m, m); its upper triangle is not touched.
///
/// # Panics
/// If x is not as long as s.
pub fn add_square(s: ViewMut<'_>, x: &[f64]) {
    assert!(s.rows() == x.len() && s.cols() == x.len(), "a vector of another length");
    wide_add_square(s, x);
}

wide! {
    fn wide_add_square(simd, s: ViewMut<'a>, x: &'a [f64]) -> () {
        let mut s = s;
        let odd = x.len() % PANEL;
        for (j, column) in s.columns_mut(0).enumerate().take(odd) {
            axpy_lanes(&mut column[j..], x[j], &x[j..]);
        }
        for start in (odd..x.len()).step_by(PANEL) {
            let (head, tail) = x[start..].split_at(PANEL);
            let columns = panel_mut(&mut s, start);
            for j in 0..PANEL {
                for i in j..PANEL {
                    columns[j][i] += head[j] * head[i];
                }
            }
            let tail = S::as_simd_f64s(tail).0;
            let [c0, c1, c2, c3, c4, c5, c6, c7] = belows_mut::<S>(columns, tail.len());
            let weight = |j: usize| simd.splat_f64s(head[j]);
            let (w0, w1, w2, w3) = (weight(0), weight(1), weight(2), weight(3));
            let (w4, w5, w6, w7) = (weight(4), weight(5), weight(6), weight(7));
            for (k, &x) in tail.iter().enumerate() {
                c0[k] = simd.add_f64s(c0[k], simd.mul_f64s(w0, x));
                c1[k] = simd.add_f64s(c1[k], simd.mul_f64s(w1, x));
                c2[k] = simd.add_f64s(c2[k], simd.mul_f64s(w2, x));
                c3[k] = simd.add_f64s(c3[k], simd.mul_f64s(w3, x));
                c4[k] = simd.add_f64s(c4[k], simd.mul_f64s(w4, x));
                c5[k] = simd.add_f64s(c5[k], simd.mul_f64s(w5, x));
                c6[k] = simd.add_f64s(c6[k], simd.mul_f64s(w6, x));
                c7[k] = simd.add_f64s(c7[k], simd.mul_f64s(w7, x));
            }
        }
    }
}

/// a <- a + alpha x y' for a (m, n), x (m,) and y (n,).
///
/// # Panics
/// If lengths differ.
pub fn add_outer(a: ViewMut<'_>, alpha: f64, x: &[f64], y: &[f64]) {
    assert!(a.rows() == x.len() && a.cols() == y.len(), "vectors of other lengths");
    wide_add_outer(a, alpha, x, y);
}

wide! {
    fn wide_add_outer(_simd, a: ViewMut<'a>, alpha: f64, x: &'a [f64], y: &'a [f64]) -> () {
        let mut a = a;
        for (column, y) in a.columns_mut(0).zip(y) {
            axpy_lanes(column, alpha * y, x);
        }
    }
}

/// What [`turn_and_multiply`] works with: a <- a + alpha beta', then the products with x and y; all of length m.
#[derive(Clone, Copy, Debug)]
pub struct Sides<'a> {
    /// alpha.
    pub alpha: &'a [f64],
    /// beta.
    pub beta: &'a [f64],
    /// x.
    pub x: &'a [f64],
    /// y.
    pub y: &'a [f64],
}

/// a <- a + alpha beta', and with that right <- a x and left <- a' y, in one pass through a square a (m, m). Products and sums
/// are fused where the processor does that.
///
/// # Panics
/// If lengths differ.
pub fn turn_and_multiply(a: ViewMut<'_>, sides: Sides<'_>, right: &mut [f64], left: &mut [f64]) {
    let (m, Sides { alpha, beta, x, y }) = (a.rows(), sides);
    let lengths = [a.cols(), alpha.len(), beta.len(), x.len(), y.len(), right.len(), left.len()];
    assert!(lengths.iter().all(|&length| length == m), "vectors of other lengths");
    wide_turn_and_multiply(a, sides, right, left);
}

wide! {
    fn wide_turn_and_multiply(
        simd, a: ViewMut<'a>, sides: Sides<'a>, right: &'a mut [f64], left: &'a mut [f64]
    ) -> () {
        let (mut a, Sides { alpha, beta, x, y }) = (a, sides);
        right.fill(0.0);
        let (right, right_tail) = S::as_mut_simd_f64s(right);
        let ((alpha, alpha_tail), (y, y_tail)) = (S::as_simd_f64s(alpha), S::as_simd_f64s(y));
        let len = right.len();
        let (alpha, y) = (&alpha[..len], &y[..len]);
        // The last, incomplete register goes with the others: entry by entry it would take as long as all of them.
        let (alpha_tail, y_tail) = (simd.partial_load_f64s(alpha_tail), simd.partial_load_f64s(y_tail));
        let mut last = simd.splat_f64s(0.0);
        let odd = x.len() % QUAD;
        for j in 0..odd {
            let column = a.col_mut(j);
            let (column, tail) = S::as_mut_simd_f64s(column);
            let (b, w) = (simd.splat_f64s(beta[j]), simd.splat_f64s(x[j]));
            let mut sum = simd.splat_f64s(0.0);
            for k in 0..len {
                column[k] = simd.mul_add_e_f64s(alpha[k], b, column[k]);
                sum = simd.mul_add_e_f64s(column[k], y[k], sum);
                right[k] = simd.mul_add_e_f64s(column[k], w, right[k]);
            }
            let behind = simd.mul_add_e_f64s(alpha_tail, b, simd.partial_load_f64s(tail));
            simd.partial_store_f64s(tail, behind);
            last = simd.mul_add_e_f64s(behind, w, last);
            left[j] = simd.reduce_sum_f64s(simd.mul_add_e_f64s(behind, y_tail, sum));
        }
        for start in (odd..x.len()).step_by(QUAD) {
            let mut columns = a.columns_mut(start);
            let mut next = || columns.next().expect("as many as x has entries");
            let [(c0, t0), (c1, t1), (c2, t2), (c3, t3)] = [
                S::as_mut_simd_f64s(next()),
                S::as_mut_simd_f64s(next()),
                S::as_mut_simd_f64s(next()),
                S::as_mut_simd_f64s(next()),
            ];
            let (c0, c1, c2, c3) = (&mut c0[..len], &mut c1[..len], &mut c2[..len], &mut c3[..len]);
            let spread = |of: &[f64], j: usize| simd.splat_f64s(of[start + j]);
            let (b0, b1, b2, b3) = (spread(beta, 0), spread(beta, 1), spread(beta, 2), spread(beta, 3));
            let (w0, w1, w2, w3) = (spread(x, 0), spread(x, 1), spread(x, 2), spread(x, 3));
            let zero = simd.splat_f64s(0.0);
            let [mut s0, mut s1, mut s2, mut s3] = [zero; QUAD];
            for k in 0..len {
                let (alpha, y) = (alpha[k], y[k]);
                let (v0, v1) = (simd.mul_add_e_f64s(alpha, b0, c0[k]), simd.mul_add_e_f64s(alpha, b1, c1[k]));
                let (v2, v3) = (simd.mul_add_e_f64s(alpha, b2, c2[k]), simd.mul_add_e_f64s(alpha, b3, c3[k]));
                (c0[k], c1[k], c2[k], c3[k]) = (v0, v1, v2, v3);
                (s0, s1) = (simd.mul_add_e_f64s(v0, y, s0), simd.mul_add_e_f64s(v1, y, s1));
                (s2, s3) = (simd.mul_add_e_f64s(v2, y, s2), simd.mul_add_e_f64s(v3, y, s3));
                let even = simd.mul_add_e_f64s(v2, w2, simd.mul_add_e_f64s(v0, w0, right[k]));
                right[k] = simd.add_f64s(even, simd.mul_add_e_f64s(v3, w3, simd.mul_f64s(v1, w1)));
            }
            let load = |tail: &[f64], b: S::f64s| simd.mul_add_e_f64s(alpha_tail, b, simd.partial_load_f64s(tail));
            let (v0, v1, v2, v3) = (load(t0, b0), load(t1, b1), load(t2, b2), load(t3, b3));
            simd.partial_store_f64s(t0, v0);
            simd.partial_store_f64s(t1, v1);
            simd.partial_store_f64s(t2, v2);
            simd.partial_store_f64s(t3, v3);
            (s0, s1) = (simd.mul_add_e_f64s(v0, y_tail, s0), simd.mul_add_e_f64s(v1, y_tail, s1));
            (s2, s3) = (simd.mul_add_e_f64s(v2, y_tail, s2), simd.mul_add_e_f64s(v3, y_tail, s3));
            last = simd.mul_add_e_f64s(v1, w1, simd.mul_add_e_f64s(v0, w0, last));
            last = simd.mul_add_e_f64s(v3, w3, simd.mul_add_e_f64s(v2, w2, last));
            left[start] = simd.reduce_sum_f64s(s0);
            left[start + 1] = simd.reduce_sum_f64s(s1);
            left[start + 2] = simd.reduce_sum_f64s(s2);
            left[start + 3] = simd.reduce_sum_f64s(s3);
        }
        simd.partial_store_f64s(right_tail, last);
    }
}

/// x <- l^-1 x for a lower triangular l (m, m); its upper triangle is not read. Products and sums are fused where the
/// processor does that.
///
/// # Panics
/// If x is not as long as l.
pub fn solve_lower(l: View<'_>, x: &mut [f64]) {
    assert!(l.rows() == x.len() && l.cols() == x.len(), "a right-hand side of another length");
    wide_solve_lower(l, x);
}

/// x <- l^-T x for a lower triangular l (m, m); its upper triangle is not read. Products and sums are fused where the
/// processor does that.
///
/// # Panics
/// If x is not as long as l.
pub fn solve_lower_transposed(l: View<'_>, x: &mut [f64]) {
    assert!(l.rows() == x.len() && l.cols() == x.len(), "a right-hand side of another length");
    wide_solve_lower_transposed(l, x);
}

// Registers by name here, and not loops for the compiler to find them in: of eight columns at once it makes a muddle.

wide! {
    fn wide_solve_lower(simd, l: View<'a>, x: &'a mut [f64]) -> () {
        // What is left over of whole panels goes first, so that behind each panel there are whole registers.
        let odd = x.len() % PANEL;
        for j in 0..odd {
            let column = &l.col(j)[j..];
            let (head, tail) = x[j..].split_at_mut(1);
            head[0] /= column[0];
            axpy_lanes(tail, -head[0], &column[1..]);
        }
        for start in (odd..x.len()).step_by(PANEL) {
            let (head, tail) = x[start..].split_at_mut(PANEL);
            let columns = panel(l, start);
            let mut h: [f64; PANEL] = copied(head);
            let inverse = inverse_pivots(&columns);
            for j in 0..PANEL {
                // Scaled here, where nothing waits, so that each entry waits for one step of the one before it and not for two.
                for i in j + 1..PANEL {
                    h[i] = add_product::<S>(-h[j], columns[j][i] * inverse[j], h[i]);
                }
            }
            for j in 0..PANEL {
                h[j] *= inverse[j];
            }
            head.copy_from_slice(&h);
            let (tail, _) = S::as_mut_simd_f64s(tail);
            let [c0, c1, c2, c3, c4, c5, c6, c7] = belows::<S>(&columns, tail.len());
            let spread = |j: usize| simd.splat_f64s(-h[j]);
            let (h0, h1, h2, h3) = (spread(0), spread(1), spread(2), spread(3));
            let (h4, h5, h6, h7) = (spread(4), spread(5), spread(6), spread(7));
            for (k, value) in tail.iter_mut().enumerate() {
                let (mut even, mut odd) = (simd.mul_add_e_f64s(c0[k], h0, *value), simd.mul_f64s(c1[k], h1));
                (even, odd) = (simd.mul_add_e_f64s(c2[k], h2, even), simd.mul_add_e_f64s(c3[k], h3, odd));
                (even, odd) = (simd.mul_add_e_f64s(c4[k], h4, even), simd.mul_add_e_f64s(c5[k], h5, odd));
                (even, odd) = (simd.mul_add_e_f64s(c6[k], h6, even), simd.mul_add_e_f64s(c7[k], h7, odd));
                *value = simd.add_f64s(even, odd);
            }
        }
    }
}

wide! {
    fn wide_solve_lower_transposed(simd, l: View<'a>, x: &'a mut [f64]) -> () {
        let odd = x.len() % PANEL;
        for start in (odd..x.len()).step_by(PANEL).rev() {
            let (head, tail) = x[start..].split_at_mut(PANEL);
            let columns = panel(l, start);
            let (tail, _) = S::as_simd_f64s(tail);
            let [c0, c1, c2, c3, c4, c5, c6, c7] = belows::<S>(&columns, tail.len());
            let zero = simd.splat_f64s(0.0);
            let [mut s0, mut s1, mut s2, mut s3, mut s4, mut s5, mut s6, mut s7] = [zero; PANEL];
            for (k, &value) in tail.iter().enumerate() {
                (s0, s1) = (simd.mul_add_e_f64s(c0[k], value, s0), simd.mul_add_e_f64s(c1[k], value, s1));
                (s2, s3) = (simd.mul_add_e_f64s(c2[k], value, s2), simd.mul_add_e_f64s(c3[k], value, s3));
                (s4, s5) = (simd.mul_add_e_f64s(c4[k], value, s4), simd.mul_add_e_f64s(c5[k], value, s5));
                (s6, s7) = (simd.mul_add_e_f64s(c6[k], value, s6), simd.mul_add_e_f64s(c7[k], value, s7));
            }
            let mut h: [f64; PANEL] = copied(head);
            h[0] -= simd.reduce_sum_f64s(s0);
            h[1] -= simd.reduce_sum_f64s(s1);
            h[2] -= simd.reduce_sum_f64s(s2);
            h[3] -= simd.reduce_sum_f64s(s3);
            h[4] -= simd.reduce_sum_f64s(s4);
            h[5] -= simd.reduce_sum_f64s(s5);
            h[6] -= simd.reduce_sum_f64s(s6);
            h[7] -= simd.reduce_sum_f64s(s7);
            let inverse = inverse_pivots(&columns);
            for j in (0..PANEL).rev() {
                for i in 0..j {
                    h[i] = add_product::<S>(-h[j], columns[i][j] * inverse[j], h[i]);
                }
            }
            for j in 0..PANEL {
                h[j] *= inverse[j];
            }
            head.copy_from_slice(&h);
        }
        for j in (0..odd).rev() {
            let column = &l.col(j)[j..];
            let (head, tail) = x[j..].split_at_mut(1);
            head[0] = (head[0] - dot_lanes::<PANEL>(&column[1..], tail)) / column[0];
        }
    }
}

/// The columns from number `start` on, from the diagonal down.
#[inline(always)]
fn panel(l: View<'_>, start: usize) -> [&[f64]; PANEL] {
    let column = |j: usize| &l.col(start + j)[start..];
    [column(0), column(1), column(2), column(3), column(4), column(5), column(6), column(7)]
}

/// What of a panel's columns stands below its diagonal block, in `len` registers each.
#[inline(always)]
fn belows<'a, S: Simd>(c: &[&'a [f64]; PANEL], len: usize) -> [&'a [S::f64s]; PANEL] {
    let below = |j: usize| &S::as_simd_f64s(&c[j][PANEL..]).0[..len];
    [below(0), below(1), below(2), below(3), below(4), below(5), below(6), below(7)]
}

/// The head of a panel, out of memory: there each step would wait for the one before it to be written.
#[inline(always)]
fn copied<const N: usize>(head: &[f64]) -> [f64; N] {
    head.try_into().expect("as long as a panel")
}

/// One over each pivot of a panel: divisions that wait for nothing here, and would wait for each other later.
#[inline(always)]
fn inverse_pivots(c: &[&[f64]; PANEL]) -> [f64; PANEL] {
    let one_over = |j: usize| 1.0 / c[j][j];
    [one_over(0), one_over(1), one_over(2), one_over(3), one_over(4), one_over(5), one_over(6), one_over(7)]
}

/// l <- the lower triangular factor of l l' + x x' (m, m), x <- l^-1 x with that factor; the upper triangle of l is not touched.
/// Returns t_m, the factor by which the determinant of l l' has grown. O(m^2).
/// ```text
/// s = l^-1 x,   t_0 = 1,   t_j = t_{j-1} + s_j^2,   y_j = s_j / sqrt(t_{j-1} t_j)
/// l_j <- sqrt(t_{j-1} / t_j) l_j + y_j x_(j),       x_(j+1) = x_(j) - s_j l_j,       x <- y          column by column
/// ```
/// These are the rotations that make (l, x) lower triangular, but x_(j) is what forward substitution leaves of x, which they
/// divide by sqrt(t_{j-1}): so that a panel's roots do not wait for one another. Everything is a sum of what grows. Products
/// and sums are fused where the processor does that.
///
/// # Panics
/// If x is not as long as l.
pub fn add_rank_one(l: ViewMut<'_>, x: &mut [f64]) -> f64 {
    assert!(l.rows() == x.len() && l.cols() == x.len(), "a vector of another length");
    wide_add_rank_one(l, x)
}

wide! {
    fn wide_add_rank_one(simd, l: ViewMut<'a>, x: &'a mut [f64]) -> f64 {
        let (mut l, mut grown) = (l, 1.0);
        // As in solve_lower: behind each panel there are whole registers.
        let odd = x.len() % PANEL;
        for j in 0..odd {
            let column = &mut l.col_mut(j)[j..];
            let (head, tail) = x[j..].split_at_mut(1);
            let solved = [head[0] / column[0]];
            let turn = turns(solved, &mut grown);
            column[0] = turn.kept[0] * column[0] + turn.gained[0] * head[0];
            for (entry, value) in column[1..].iter_mut().zip(tail) {
                let before = *value;
                *value -= solved[0] * *entry;
                *entry = turn.kept[0] * *entry + turn.gained[0] * before;
            }
            head[0] = turn.gained[0];
        }
        for start in (odd..x.len()).step_by(PANEL) {
            let (head, tail) = x[start..].split_at_mut(PANEL);
            let turn = turn_head::<S>(panel_mut(&mut l, start), head, &mut grown);
            turn_tail(simd, panel_mut(&mut l, start), tail, &turn);
        }
        grown
    }
}

/// How the columns of a panel are turned.
#[derive(Clone, Copy)]
struct Turn<const N: usize> {
    /// s_j.
    solved: [f64; N],
    /// sqrt(t_{j-1} / t_j).
    kept: [f64; N],
    /// y_j = s_j / sqrt(t_{j-1} t_j).
    gained: [f64; N],
}

/// Turn the diagonal block of a panel; of x its head, which becomes y.
#[inline(always)]
fn turn_head<S: Simd>(columns: [&mut [f64]; PANEL], head: &mut [f64], grown: &mut f64) -> Turn<PANEL> {
    let mut top = [[0.0; PANEL]; PANEL];
    let mut inverse = [0.0; PANEL];
    for j in 0..PANEL {
        top[j] = copied(&columns[j][..PANEL]);
        inverse[j] = 1.0 / top[j][j];
    }
    // What is left of the head before each column.
    let mut left = [[0.0; PANEL]; PANEL];
    let mut h: [f64; PANEL] = copied(head);
    for j in 0..PANEL {
        left[j] = h;
        for i in j + 1..PANEL {
            h[i] = add_product::<S>(-h[j], top[j][i] * inverse[j], h[i]);
        }
    }
    for j in 0..PANEL {
        h[j] *= inverse[j];
    }
    let turn = turns(h, grown);
    for j in 0..PANEL {
        for i in j..PANEL {
            columns[j][i] = add_product::<S>(turn.gained[j], left[j][i], turn.kept[j] * top[j][i]);
        }
    }
    head.copy_from_slice(&turn.gained);
    turn
}

/// Rotate the rows below the diagonal block of a panel, and the same entries of x.
#[inline(always)]
fn turn_tail<S: Simd>(simd: S, columns: [&mut [f64]; PANEL], x: &mut [f64], turn: &Turn<PANEL>) {
    let x = S::as_mut_simd_f64s(x).0;
    let [c0, c1, c2, c3, c4, c5, c6, c7] = belows_mut::<S>(columns, x.len());
    let spread =
        |j: usize| (simd.splat_f64s(-turn.solved[j]), simd.splat_f64s(turn.kept[j]), simd.splat_f64s(turn.gained[j]));
    let (t0, t1, t2, t3) = (spread(0), spread(1), spread(2), spread(3));
    let (t4, t5, t6, t7) = (spread(4), spread(5), spread(6), spread(7));
    for (k, value) in x.iter_mut().enumerate() {
        let mut x = *value;
        x = turned(simd, &mut c0[k], x, t0);
        x = turned(simd, &mut c1[k], x, t1);
        x = turned(simd, &mut c2[k], x, t2);
        x = turned(simd, &mut c3[k], x, t3);
        x = turned(simd, &mut c4[k], x, t4);
        x = turned(simd, &mut c5[k], x, t5);
        x = turned(simd, &mut c6[k], x, t6);
        *value = turned(simd, &mut c7[k], x, t7);
    }
}

/// [`panel`], to be written to.
#[inline(always)]
fn panel_mut<'a>(l: &'a mut ViewMut<'_>, start: usize) -> [&'a mut [f64]; PANEL] {
    let mut columns = l.columns_mut(start);
    let mut next = || &mut columns.next().expect("a whole panel")[start..];
    [next(), next(), next(), next(), next(), next(), next(), next()]
}

/// [`belows`], to be written to.
#[inline(always)]
fn belows_mut<S: Simd>(c: [&mut [f64]; PANEL], len: usize) -> [&mut [S::f64s]; PANEL] {
    let [c0, c1, c2, c3, c4, c5, c6, c7] = c;
    let below = |column| below_mut::<S>(column, len);
    [below(c0), below(c1), below(c2), below(c3), below(c4), below(c5), below(c6), below(c7)]
}

#[inline(always)]
fn below_mut<S: Simd>(column: &mut [f64], len: usize) -> &mut [S::f64s] {
    &mut S::as_mut_simd_f64s(&mut column[PANEL..]).0[..len]
}

/// One step of [`add_rank_one`] below a panel's diagonal block, (-s_j, kept, gained) being `turn`: what is left of x.
#[inline(always)]
fn turned<S: Simd>(simd: S, entry: &mut S::f64s, x: S::f64s, turn: (S::f64s, S::f64s, S::f64s)) -> S::f64s {
    let (share, kept, gained) = turn;
    let left = simd.mul_add_e_f64s(share, *entry, x);
    *entry = simd.mul_add_e_f64s(gained, x, simd.mul_f64s(kept, *entry));
    left
}

/// How columns are turned whose s are `solved`, before which t was `grown`.
#[inline(always)]
fn turns<const N: usize>(solved: [f64; N], grown: &mut f64) -> Turn<N> {
    let (mut before, mut after) = ([0.0; N], [0.0; N]);
    for j in 0..N {
        before[j] = *grown;
        *grown += solved[j] * solved[j];
        after[j] = *grown;
    }
    let (mut kept, mut gained) = ([0.0; N], [0.0; N]);
    for j in 0..N {
        let (before, after) = (before[j].sqrt(), after[j].sqrt());
        kept[j] = before / after;
        gained[j] = solved[j] / (before * after);
    }
    Turn { solved, kept, gained }
}

#[cfg(test)]
mod tests {
    use super::super::dense::{self, Matrix, Op, product};
    use super::*;

    fn sample(n: usize, salt: f64) -> Vec<f64> {
        (0..n).map(|k| ((k as f64 + salt) * 0.618_033_988_749_895).fract() - 0.5).collect()
    }

    #[test]
    fn sums_and_steps_are_those_of_plain_loops() {
        for n in [0, 1, 3, 4, 5, 23, 24, 31, 32, 33, 100, 301] {
            let (a, b) = (sample(n, 1.0), sample(n, 7.0));
            let close = |x: f64, y: f64| assert!((x - y).abs() < 1e-13 * (n as f64 + 1.0), "{n}: {x} {y}");
            close(dot(&a, &b), a.iter().zip(&b).map(|(x, y)| x * y).sum());
            close(sum(&a), a.iter().sum());
            let mut y = b.clone();
            axpy(&mut y, 0.3, &a);
            assert!(y.iter().zip(&a).zip(&b).all(|((y, a), b)| *y == b + 0.3 * a), "{n}");
            let mut square = Matrix::from_columns(n, n, sample(n * n, 2.0));
            let before = square.clone();
            add_square(square.view_mut(), &a);
            for j in 0..n {
                let expected = |i: usize| before.at(i, j) + if i < j { 0.0 } else { a[j] * a[i] };
                assert!((0..n).all(|i| square.at(i, j) == expected(i)), "{n} {j}");
            }
            let (mut z, mut p) = (a.clone(), b.clone());
            trace_step(&mut z, 0.9, &b, &mut p, -0.2);
            let expected = |k: usize| 0.9 * a[k] + b[k];
            assert!((0..n).all(|k| z[k] == expected(k) && p[k] == b[k] + -0.2 * expected(k)), "{n}");
        }
    }

    #[test]
    fn sums_are_the_same_bits_whatever_the_registers() {
        for n in [0, 1, 31, 32, 33, 64, 100, 301] {
            let (a, b) = (sample(n, 1.0), sample(n, 7.0));
            assert_eq!(long_dot(&a, &b), dot_lanes::<LANES>(&a, &b), "{n}");
        }
    }

    #[test]
    fn turned_products_from_both_sides_and_outer_products_are_those_of_plain_loops() {
        for n in [0, 1, 3, 4, 5, 8, 31, 64, 101, 300] {
            let (x, y) = (sample(n, 5.0), sample(n, 9.0));
            let mut a = Matrix::from_columns(n, n, sample(n * n, 2.0));
            let (mut right, mut left) = (vec![7.0; n], vec![7.0; n]);
            let (alpha, beta, before) = (sample(n, 3.0), sample(n, 4.0), a.clone());
            let sides = Sides { alpha: &alpha, beta: &beta, x: &x, y: &y };
            turn_and_multiply(a.view_mut(), sides, &mut right, &mut left);
            for (j, b) in beta.iter().enumerate() {
                let turned = |i: usize| before.at(i, j) + alpha[i] * b;
                assert!((0..n).all(|i| (a.at(i, j) - turned(i)).abs() < 1e-14), "{n} {j}");
            }
            for i in 0..n {
                let (row, column): (f64, f64) = ((0..n).map(|j| a.at(i, j) * x[j]).sum(), dot(a.col(i), &y));
                assert!((right[i] - row).abs() < 1e-12 && (left[i] - column).abs() < 1e-12, "{n} {i}");
            }
            let before = a.clone();
            add_outer(a.view_mut(), -0.5, &x, &y);
            for (j, y) in y.iter().enumerate() {
                assert!((0..n).all(|i| (a.at(i, j) - before.at(i, j) + 0.5 * x[i] * y).abs() < 1e-14), "{n} {j}");
            }
        }
    }

    #[test]
    fn a_factor_gains_a_term() {
        for n in [1, 2, 3, 4, 5, 8, 31, 64, 102] {
            let mut l = Matrix::zeros(n, n);
            for j in 0..n {
                l.col_mut(j)[j..].copy_from_slice(&sample(n - j, j as f64));
                *l.at_mut(j, j) = 1.0 + 0.1 * n as f64;
            }
            let mut expected = product(l.view(), Op::Plain, l.view(), Op::Transposed);
            let x = sample(n, 5.0);
            dense::rank_k(expected.view_mut(), 1.0, View::column(&x), Op::Plain);
            for j in 0..n {
                l.col_mut(j)[..j].fill(7.0); // never touched
            }
            let (before, mut solved) = (l.clone(), x.clone());
            let grown = add_rank_one(l.view_mut(), &mut solved);
            let growth: f64 = (0..n).map(|j| 2.0 * (l.at(j, j) / before.at(j, j)).ln()).sum();
            assert!((grown.ln() - growth).abs() < 1e-12 * n as f64, "{n}: {grown}");
            for j in 0..n {
                assert!(l.col_mut(j)[..j].iter_mut().all(|v| std::mem::take(v) == 7.0), "{n} {j}");
            }
            let image = product(l.view(), Op::Plain, View::column(&solved), Op::Plain);
            assert!(
                x.iter().zip(image.col(0)).all(|(x, image)| (x - image).abs() < 1e-12),
                "{n}: l times what is left of x"
            );
            let found = product(l.view(), Op::Plain, l.view(), Op::Transposed);
            for j in 0..n {
                for i in j..n {
                    assert!((found.at(i, j) - expected.at(i, j)).abs() < 1e-12 * n as f64, "{n}: {i} {j}");
                }
            }
        }
    }

    #[test]
    fn single_solves_undo_the_product() {
        for n in [1, 2, 3, 4, 5, 8, 31, 47, 100, 203] {
            let mut l = Matrix::from_columns(n, n, sample(n * n, 3.0));
            for j in 0..n {
                l.col_mut(j)[..j].fill(f64::NAN); // never read
                *l.at_mut(j, j) = 2.0 + 0.1 * n as f64;
            }
            let x = sample(n, 11.0);
            let mut lower = l.clone();
            for j in 0..n {
                lower.col_mut(j)[..j].fill(0.0);
            }
            let image = |op| product(lower.view(), op, dense::View::column(&x), Op::Plain).col(0).to_vec();
            let (mut plain, mut transposed) = (image(Op::Plain), image(Op::Transposed));
            solve_lower(l.view(), &mut plain);
            solve_lower_transposed(l.view(), &mut transposed);
            for k in 0..n {
                assert!((plain[k] - x[k]).abs() < 1e-12 && (transposed[k] - x[k]).abs() < 1e-12, "{n} {k}");
            }
        }
    }
}
