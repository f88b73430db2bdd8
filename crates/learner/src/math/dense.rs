//! Column-major matrices that grow in place, and the blocked operations on them.
//!
//! This is the one door to the library that does the heavy arithmetic: nothing else in the crate names it. Every
//! factorisation checks its pivots here and says where it failed ([`NotPositiveDefinite`], [`Singular`]).
//! Everything runs on the calling thread, so results depend on the input alone.

mod factor;
pub(super) mod matrix;
mod spectrum;
mod triangular;

pub use super::vector::{Sides, add_outer, axpy, axpy_single, dot, gain_targets, sum, turn_and_multiply};
pub use factor::{
    Accuracy, Cholesky, Scratch, factorise, invert, log_determinant, solve_and_invert, solve_few, solve_general,
    solve_general_into, solve_in_place,
};
pub(crate) use matrix::tight;
pub use matrix::{Matrix, View, ViewMut};
pub use spectrum::{Tridiagonal, spectral_radius, symmetric_eigen};
pub use triangular::{PanelInverses, SINGLY, solve_lower, solve_lower_transposed};

use super::vector;
use faer::linalg::matmul;
use faer::linalg::matmul::triangular::BlockStructure;
use faer::{Accum, MatRef, Par};

/// Rows of a panel: what the kernel of a matrix product takes at once where registers are widest, so that none works on less
/// than it could. With 32, 64 and 96 a block of 256 rows took up to 8 % longer.
const PANEL: usize = 48;

/// A symmetric matrix had a pivot that was not positive: it is not positive definite to working precision.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a {size} x {size} matrix is not positive definite: pivot {index} is not positive")]
pub struct NotPositiveDefinite {
    /// Row of the offending pivot.
    pub index: usize,
    /// Size of the matrix.
    pub size: usize,
}

/// A general matrix was singular, or a solve with it gave a value that is not finite.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a {size} x {size} system is singular")]
pub struct Singular {
    /// Size of the matrix.
    pub size: usize,
}

/// Whether a factor enters a product as it stands or transposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Op {
    /// As it stands.
    Plain,
    /// Transposed.
    Transposed,
}

impl Op {
    fn apply<'a>(self, a: View<'a>) -> MatRef<'a, f64> {
        match self {
            Op::Plain => a.faer(),
            Op::Transposed => a.faer().transpose(),
        }
    }
}

/// out <- keep * out + alpha op(a) op(b), where `keep` is 0 or 1.
pub fn multiply(out: ViewMut<'_>, keep: bool, alpha: f64, a: View<'_>, op_a: Op, b: View<'_>, op_b: Op) {
    let accum = if keep { Accum::Add } else { Accum::Replace };
    matmul::matmul(out.faer(), accum, op_a.apply(a), op_b.apply(b), alpha, Par::Seq);
}

/// A new matrix op(a) op(b).
pub fn product(a: View<'_>, op_a: Op, b: View<'_>, op_b: Op) -> Matrix {
    product_in(Matrix::zeros, a, op_a, b, op_b)
}

/// As [`product`], in a matrix from `zeros`, which makes one of that number of rows and columns.
pub(super) fn product_in(zeros: fn(usize, usize) -> Matrix, a: View<'_>, op_a: Op, b: View<'_>, op_b: Op) -> Matrix {
    let rows = if op_a == Op::Plain { a.rows() } else { a.cols() };
    let cols = if op_b == Op::Plain { b.cols() } else { b.rows() };
    let mut out = zeros(rows, cols);
    multiply(out.view_mut(), false, 1.0, a, op_a, b, op_b);
    out
}

/// Rows below which a product with the transpose goes by panels of one kernel's rows, and from which by two: measured.
const NARROW_PANELS_BELOW: usize = 250;

/// Lower triangle of out <- out + alpha op(a) op(a)'. The upper triangle is left alone.
///
/// # Panics
/// If sizes differ.
pub fn rank_k(out: ViewMut<'_>, alpha: f64, a: View<'_>, op: Op) {
    if alpha == 1.0 && op == Op::Plain && a.cols() == 1 {
        return vector::add_square(out, a.col(0));
    }
    let (mut out, a) = (out.faer(), op.apply(a));
    let size = a.nrows();
    assert!((out.nrows(), out.ncols()) == (size, size), "sizes differ");
    // Panels from top to bottom, and not halves of halves, whose sizes suit no kernel.
    let panel = if size < NARROW_PANELS_BELOW { PANEL } else { 2 * PANEL };
    for start in (0..size).step_by(panel) {
        let len = panel.min(size - start);
        let (here, below) = (a.subrows(start, len), a.subrows(start + len, size - start - len));
        let (block, whole) = (BlockStructure::TriangularLower, BlockStructure::Rectangular);
        let corner = out.as_mut().submatrix_mut(start, start, len, len);
        let right = here.transpose();
        matmul::triangular::matmul(corner, block, Accum::Add, here, whole, right, whole, alpha, Par::Seq);
        if below.nrows() > 0 {
            let out = out.as_mut().submatrix_mut(start + len, start, below.nrows(), len);
            matmul::matmul(out, Accum::Add, below, right, alpha, Par::Seq);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::triangular::WIDE;
    use super::*;

    fn sample(rows: usize, cols: usize) -> Matrix {
        // A fixed, well-spread sequence: no generator needed.
        let data = (0..rows * cols).map(|k| ((k as f64 + 1.0) * 0.618_033_988_749_895).fract() - 0.5).collect();
        Matrix::from_columns(rows, cols, data)
    }

    fn gram(size: usize) -> Matrix {
        let a = sample(size, size + 3);
        let mut s = Matrix::identity(size);
        rank_k(s.view_mut(), 1.0, a.view(), Op::Plain);
        s.mirror_lower();
        s
    }

    fn distance(a: &Matrix, b: &Matrix) -> f64 {
        (a.to_nalgebra() - b.to_nalgebra()).amax()
    }

    #[test]
    fn many_columns_are_solved_like_single_ones() {
        for size in [1, 24, 25, 47, 48, 49, 95, 96, 97, 200] {
            let entry = |k: usize| ((k as f64 + 1.0) * 0.618_033_988_749_895).fract() - 0.5;
            let mut l = Matrix::from_columns(size, size, (0..size * size).map(entry).collect());
            (0..size).for_each(|i| *l.at_mut(i, i) += 2.0 + 0.1 * size as f64);
            let rhs = Matrix::from_columns(size, WIDE, (0..size * WIDE).map(entry).collect());
            let mut wide = rhs.clone();
            solve_lower(l.view(), wide.view_mut());
            for j in 0..WIDE {
                let mut one = rhs.col(j).to_vec();
                solve_lower(l.view(), ViewMut::column(&mut one));
                assert!(one.iter().zip(wide.col(j)).all(|(a, b)| (a - b).abs() < 1e-13), "{size}, column {j}");
            }
            let (mut left, mut out) = (rhs.clone(), Matrix::zeros(size, WIDE));
            PanelInverses::of(&l).solve_lower(l.view(), left.view_mut(), out.view_mut());
            assert!(distance(&out, &wide) < 1e-13, "{size}");
        }
    }

    #[test]
    fn a_product_with_the_transpose_is_added_below_the_diagonal() {
        for (size, cols) in [(1, 3), (47, 5), (48, 64), (49, 64), (97, 7), (249, 20), (250, 20), (301, 64)] {
            let entry = |k: usize| ((k as f64 + 1.0) * 0.618_033_988_749_895).fract() - 0.5;
            let a = Matrix::from_columns(size, cols, (0..size * cols).map(entry).collect());
            let before = Matrix::from_columns(size, size, (0..size * size).map(entry).collect());
            let square = product(a.view(), Op::Plain, a.view(), Op::Transposed);
            let turned = a.transpose();
            for (factor, op) in [(&a, Op::Plain), (&turned, Op::Transposed)] {
                let mut found = before.clone();
                rank_k(found.view_mut(), -0.5, factor.view(), op);
                for j in 0..size {
                    assert!((0..j).all(|i| found.at(i, j) == before.at(i, j)), "{size}: above the diagonal");
                    let near = |i: usize| (found.at(i, j) - before.at(i, j) + 0.5 * square.at(i, j)).abs() < 1e-13;
                    assert!((j..size).all(near), "{size}, column {j}");
                }
            }
        }
    }

    #[test]
    fn factor_times_its_transpose_is_the_matrix() {
        for size in [0, 1, 2, 7, 65, 130] {
            let a = gram(size);
            let c = Cholesky::new(a.clone()).unwrap();
            let back = product(c.factor().view(), Op::Plain, c.factor().view(), Op::Transposed);
            assert!(distance(&back, &a) < 1e-12 * (1.0 + size as f64));
            let eye = product(c.inverse().view(), Op::Plain, a.view(), Op::Plain);
            assert!(distance(&eye, &Matrix::identity(size)) < 1e-11);
        }
    }

    #[test]
    fn a_few_unknowns_are_solved_for_as_many_are() {
        for size in [1, 2, 5, 33] {
            let mut x = sample(size, 1).col(0).to_vec();
            let expected = Cholesky::new(gram(size)).unwrap().solve(sample(size, 1));
            solve_few(&mut gram(size), &mut x).unwrap();
            assert!(x.iter().zip(expected.col(0)).all(|(a, b)| (a - b).abs() < 1e-12), "{size}");
        }
        let mut a = Matrix::identity(3);
        *a.at_mut(2, 2) = f64::NAN;
        assert_eq!(solve_few(&mut a, &mut [1.0; 3]), Err(NotPositiveDefinite { index: 2, size: 3 }));
    }

    #[test]
    fn a_bad_pivot_is_named() {
        let mut a = Matrix::identity(5);
        *a.at_mut(3, 3) = -1.0;
        assert_eq!(Cholesky::new(a.clone()).unwrap_err(), NotPositiveDefinite { index: 3, size: 5 });
        *a.at_mut(3, 3) = f64::NAN;
        assert!(Cholesky::new(a).is_err());
    }

    #[test]
    fn growing_keeps_entries_and_zeroes_the_rest() {
        let mut a = Matrix::with_capacity(4, 4);
        for size in 1..=9 {
            a.resize(size, size);
            for k in 0..size {
                assert_eq!(a.at(size - 1, k), 0.0);
                assert_eq!(a.at(k, size - 1), 0.0);
            }
            *a.at_mut(size - 1, size - 1) = size as f64;
            for k in 0..size {
                *a.at_mut(size - 1, k) = (size * 10 + k) as f64;
            }
        }
        assert_eq!(a.at(8, 3), 93.0);
        assert_eq!(a.at(4, 4), 54.0);
        a.resize(3, 3);
        a.resize(5, 5);
        assert_eq!((a.at(2, 1), a.at(4, 3)), (31.0, 0.0));
    }

    #[test]
    fn general_solve_and_eigenvalues() {
        for size in [1, 3, 40, 90] {
            let mut a = sample(size, size);
            for i in 0..size {
                *a.at_mut(i, i) += 3.0;
            }
            let b = sample(size, 2);
            let x = solve_general(&a, &b).unwrap();
            assert!(distance(&product(a.view(), Op::Plain, x.view(), Op::Plain), &b) < 1e-11);
            let s = gram(size);
            let (values, vectors) = symmetric_eigen(&s).unwrap();
            let mut scaled = vectors.clone();
            for (j, value) in values.iter().enumerate() {
                scaled.col_mut(j).iter_mut().for_each(|v| *v *= value);
            }
            assert!(distance(&product(scaled.view(), Op::Plain, vectors.view(), Op::Transposed), &s) < 1e-11);
        }
        assert!(solve_general(&Matrix::zeros(3, 3), &Matrix::zeros(3, 1)).is_err());
    }

    #[test]
    fn right_hand_sides_beyond_a_piece_are_solved_where_they_stand() {
        let (size, cols) = (30, 500);
        let mut a = sample(size, size);
        (0..size).for_each(|i| *a.at_mut(i, i) += 3.0);
        let whole = sample(size, cols + 2);
        for accuracy in [Accuracy::Plain, Accuracy::Refined] {
            let mut found = whole.clone();
            solve_in_place(&a, found.block_mut(0, 1, size, cols), accuracy, &mut Scratch::default()).unwrap();
            let solved = found.block(0, 1, size, cols);
            let back = product(a.view(), Op::Plain, solved, Op::Plain);
            assert!((0..cols).all(|j| (0..size).all(|i| (back.at(i, j) - whole.at(i, j + 1)).abs() < 1e-12)));
            assert!([0, cols + 1].into_iter().all(|j| found.col(j) == whole.col(j)), "columns beside them stay");
        }
        *a.at_mut(0, 0) = f64::NAN;
        assert!(solve_in_place(&a, whole.clone().view_mut(), Accuracy::Plain, &mut Scratch::default()).is_err());
    }

    #[test]
    fn a_tridiagonal_form_answers_for_every_ridge() {
        for size in [1, 2, 7, 40] {
            let s = gram(size);
            let vectors = sample(size, 3);
            let mut turned = vectors.clone();
            let reduced = Tridiagonal::reduce(&s, &mut turned).unwrap();
            for ridge in [0.0, 0.3, 50.0] {
                let mut whole = s.clone();
                (0..size).for_each(|i| *whole.at_mut(i, i) += ridge);
                let whole = Cholesky::new(whole).unwrap();
                let solved = whole.solve(vectors.clone());
                let expected: f64 = (0..3).map(|j| dot(solved.col(j), vectors.col(j))).sum();
                let (log_determinant, quadratic) = reduced.with_ridge(ridge, &turned).unwrap();
                assert!((log_determinant - whole.log_determinant()).abs() < 1e-10, "{size} {ridge}");
                assert!((quadratic - expected).abs() < 1e-10 * expected, "{size} {ridge}");
            }
            assert!(reduced.with_ridge(-1e3, &turned).is_none());
        }
        let mut bad = gram(4);
        *bad.at_mut(2, 1) = f64::NAN;
        assert!(Tridiagonal::reduce(&bad, &mut sample(4, 1)).is_err());
    }

    #[test]
    fn a_factor_is_renewed_in_its_memory() {
        let (mut factor, mut scratch) = (Cholesky::default(), Scratch::default());
        for size in [5, 5, 40, 12, 130, 130, 301, 301] {
            factor.renew(&gram(size), 0.5, &mut scratch).unwrap();
            let mut whole = gram(size);
            (0..size).for_each(|i| *whole.at_mut(i, i) += 0.5);
            assert_eq!(distance(factor.factor(), Cholesky::new(whole).unwrap().factor()), 0.0);
            // The library leaves what it likes above the diagonal.
            assert!((1..size).all(|j| factor.factor().col(j)[..j].iter().all(|&above| above == 0.0)), "{size}");
        }
        assert!(factor.renew(&gram(6), -1e6, &mut scratch).is_err());
    }

    #[test]
    fn blocks_with_a_stride_solve_like_whole_matrices() {
        let mut big = Matrix::with_capacity(50, 50);
        big.resize(20, 20);
        let g = Cholesky::new(gram(20)).unwrap();
        for j in 0..20 {
            big.col_mut(j).copy_from_slice(g.factor().col(j));
        }
        let (mut x, mut y) = (sample(20, 3), sample(20, 3));
        solve_lower(big.view(), x.view_mut());
        solve_lower(g.factor().view(), y.view_mut());
        assert_eq!(x, y);
        let b = [1.0, 2.0, 3.0, 4.0, 5.0];
        assert_eq!(dot(&b, &b), 55.0);
        let c: Vec<f64> = (1..=21).map(f64::from).collect();
        assert_eq!((sum(&b), sum(&c), sum(&[])), (15.0, 231.0, 0.0));
    }
}
