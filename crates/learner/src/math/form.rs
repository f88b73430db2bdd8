//! Quadratic forms k' C k of one symmetric matrix and many vectors, for those who ask the same matrix again and again.

use super::lanes::ARCH;
use pulp::{Simd, WithSimd};

/// Entries of C k that are worked out together: lanes of whole registers, however wide these are.
const WIDTH: usize = 16;

/// From one vector of m numbers to the next, where [`QuadraticForm::evaluate`] reads them: up to whole registers.
pub fn stride(size: usize) -> usize {
    size.next_multiple_of(WIDTH)
}

/// [`WIDTH`] neighbouring entries of a row of T, from one cache line to the next.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Row([f64; WIDTH]);

/// C (m, m), symmetric, laid out so that k' C k reads half of it, once, from end to end.
///
/// k' C k = k' T' k, where T is lower triangular with twice the entries of C, and its diagonal once. Panel p
/// holds columns 16 p .. 16 p + 16 of T, row by row from row 16 p on; what is above the diagonal is zero.
#[derive(Clone, Debug, Default)]
pub struct QuadraticForm {
    size: usize,
    rows: Vec<Row>,
}

impl QuadraticForm {
    /// The form of C (m, m), whose columns are laid end to end; its upper triangle is read.
    ///
    /// # Panics
    /// If `c` does not hold m^2 numbers.
    pub fn new(size: usize, c: &[f64]) -> Self {
        assert_eq!(c.len(), size * size, "a square matrix");
        let mut rows = Vec::with_capacity(Self::rows(size));
        for first in (0..size).step_by(WIDTH) {
            for i in first..size {
                // Row i of T is column i of C, down to the diagonal.
                let mut row = [0.0; WIDTH];
                let len = WIDTH.min(i + 1 - first);
                for (twice, c) in row.iter_mut().zip(&c[i * size + first..][..len]) {
                    *twice = 2.0 * c;
                }
                if i < first + WIDTH {
                    row[i - first] = c[i * size + i];
                }
                rows.push(Row(row));
            }
        }
        Self { size, rows }
    }

    /// Bytes that a form of size m holds, for reports of memory.
    pub fn bytes(size: usize) -> usize {
        size_of::<Row>() * Self::rows(size)
    }

    fn rows(size: usize) -> usize {
        (0..size).step_by(WIDTH).map(|first| size - first).sum()
    }

    /// out\[j\] = k_j' C k_j for the vectors k_j, each of [`stride`] numbers, those beyond m zero. The bits of one
    /// result depend on the machine and on its vector alone, not on the others.
    ///
    /// # Panics
    /// If `vectors` and `out` differ in number.
    pub fn evaluate(&self, vectors: &[f64], out: &mut [f64]) {
        assert_eq!(vectors.len(), out.len() * stride(self.size), "as many vectors as results");
        ARCH.dispatch(Evaluate { form: self, vectors, out });
    }
}

struct Evaluate<'a> {
    form: &'a QuadraticForm,
    vectors: &'a [f64],
    out: &'a mut [f64],
}

impl WithSimd for Evaluate<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        // A vector at a time for each register there is: each row that is read then counts for all of them.
        match S::F64_LANES {
            8 => self.run::<S, 2, 12>(simd),
            4 => self.run::<S, 4, 3>(simd),
            2 => self.run::<S, 8, 2>(simd),
            _ => self.run::<S, 16, 1>(simd),
        }
    }
}

impl Evaluate<'_> {
    /// `V` registers hold [`WIDTH`] numbers, `N` vectors are worked off together.
    #[inline(always)]
    fn run<S: Simd, const V: usize, const N: usize>(self, simd: S) {
        let Self { form, vectors, out } = self;
        let (size, stride) = (form.size, stride(form.size));
        out.fill(0.0);
        if size == 0 {
            return;
        }
        let together = out.len() - out.len() % N;
        let mut rest = &form.rows[..];
        for first in (0..size).step_by(WIDTH) {
            let (panel, below) = rest.split_at(size - first);
            rest = below;
            for (out, vectors) in out[..together].chunks_exact_mut(N).zip(vectors.chunks_exact(N * stride)) {
                panel_of_many::<S, V, N>(simd, panel, first, stride, vectors, out);
            }
        }
        for (out, vector) in out[together..].iter_mut().zip(vectors[together * stride..].chunks_exact(stride)) {
            *out = one::<S, V>(simd, form, vector);
        }
    }
}

/// What one panel adds to the forms of N vectors.
#[inline(always)]
fn panel_of_many<S: Simd, const V: usize, const N: usize>(
    simd: S,
    panel: &[Row],
    first: usize,
    stride: usize,
    vectors: &[f64],
    out: &mut [f64],
) {
    let mut sums = [[simd.splat_f64s(0.0); V]; N];
    let k: [&[f64]; N] = std::array::from_fn(|n| &vectors[n * stride + first..][..panel.len()]);
    for (i, row) in panel.iter().enumerate() {
        let (row, _) = S::as_simd_f64s(&row.0);
        for n in 0..N {
            let k = simd.splat_f64s(k[n][i]);
            for v in 0..V {
                sums[n][v] = simd.mul_add_e_f64s(row[v], k, sums[n][v]);
            }
        }
    }
    for n in 0..N {
        out[n] += finish(simd, &sums[n], &vectors[n * stride + first..][..WIDTH]);
    }
}

/// What follows when the sums of a panel are there: their product with k.
#[inline(always)]
fn finish<S: Simd, const V: usize>(simd: S, sums: &[S::f64s; V], k: &[f64]) -> f64 {
    let (k, _) = S::as_simd_f64s(k);
    let mut total = simd.mul_f64s(sums[0], k[0]);
    for v in 1..V {
        total = simd.mul_add_e_f64s(sums[v], k[v], total);
    }
    simd.reduce_sum_f64s(total)
}

/// The form of one vector: two panels at a time, so that sums do not wait for one another.
#[inline(always)]
fn one<S: Simd, const V: usize>(simd: S, form: &QuadraticForm, vector: &[f64]) -> f64 {
    let size = form.size;
    let (mut rest, mut first, mut out) = (&form.rows[..], 0, 0.0);
    while first < size {
        let (a, below) = rest.split_at(size - first);
        let (b, below) = below.split_at((size - first).saturating_sub(WIDTH));
        rest = below;
        let k = &vector[first..size];
        let mut sums = [[simd.splat_f64s(0.0); V]; 2];
        let alone = k.len().min(WIDTH);
        for (row, k) in a[..alone].iter().zip(k) {
            add_row(simd, &mut sums[0], row, *k);
        }
        for ((a, b), k) in a[alone..].iter().zip(b).zip(&k[alone..]) {
            add_row(simd, &mut sums[0], a, *k);
            add_row(simd, &mut sums[1], b, *k);
        }
        out += finish(simd, &sums[0], &vector[first..][..WIDTH]);
        if !b.is_empty() {
            out += finish(simd, &sums[1], &vector[first + WIDTH..][..WIDTH]);
        }
        first += 2 * WIDTH;
    }
    out
}

#[inline(always)]
fn add_row<S: Simd, const V: usize>(simd: S, sums: &mut [S::f64s; V], row: &Row, k: f64) {
    let (row, _) = S::as_simd_f64s(&row.0);
    let k = simd.splat_f64s(k);
    for v in 0..V {
        sums[v] = simd.mul_add_e_f64s(row[v], k, sums[v]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(target_arch = "x86_64")]
    use pulp::x86::{V3, V4};

    fn sample(n: usize, salt: f64) -> Vec<f64> {
        (0..n).map(|k| ((k as f64 + salt) * 0.618_033_988_749_895).fract() - 0.5).collect()
    }

    fn symmetric(size: usize) -> Vec<f64> {
        let mut c = sample(size * size, 5.0);
        for j in 0..size {
            for i in 0..j {
                c[i * size + j] = c[j * size + i];
            }
        }
        c
    }

    /// `count` vectors with their zeros.
    fn vectors(size: usize, count: usize) -> Vec<f64> {
        let mut out = vec![0.0; count * stride(size)];
        for j in 0..count {
            out[j * stride(size)..][..size].copy_from_slice(&sample(size, j as f64));
        }
        out
    }

    #[test]
    fn forms_are_those_of_plain_loops_whatever_the_registers() {
        for size in [0, 1, 2, 15, 16, 17, 31, 32, 33, 48, 100, 203] {
            let (c, count) = (symmetric(size), 29);
            let form = QuadraticForm::new(size, &c);
            assert_eq!(form.rows.len() * size_of::<Row>(), QuadraticForm::bytes(size));
            let all = vectors(size, count);
            let plain = |j: usize| {
                let k = &all[j * stride(size)..][..size];
                (0..size * size).map(|at| c[at] * k[at % size] * k[at / size]).sum::<f64>()
            };
            let check = |found: &[f64]| {
                for (j, found) in found.iter().enumerate() {
                    let expected = plain(j);
                    assert!(
                        (found - expected).abs() < 1e-14 * (1 + size * size) as f64,
                        "{size} {j}: {found} {expected}"
                    );
                }
            };
            let mut out = vec![f64::NAN; count];
            form.evaluate(&all, &mut out);
            check(&out);
            Evaluate { form: &form, vectors: &all, out: &mut out }.with_simd(pulp::Scalar);
            check(&out);
            #[cfg(target_arch = "x86_64")]
            {
                if let Some(registers) = V3::try_new() {
                    Simd::vectorize(registers, Evaluate { form: &form, vectors: &all, out: &mut out });
                    check(&out);
                }
                if let Some(registers) = V4::try_new() {
                    Simd::vectorize(registers, Evaluate { form: &form, vectors: &all, out: &mut out });
                    check(&out);
                }
            }
        }
    }

    #[test]
    fn a_form_is_the_same_bits_alone_and_among_others() {
        for size in [1, 16, 47, 100] {
            let form = QuadraticForm::new(size, &symmetric(size));
            let all = vectors(size, 40);
            let mut together = [0.0; 40];
            form.evaluate(&all, &mut together);
            for (vector, expected) in all.chunks_exact(stride(size)).zip(together) {
                let mut alone = [0.0];
                form.evaluate(vector, &mut alone);
                assert_eq!(alone[0], expected, "{size}");
            }
        }
    }
}
