//! Factorisations: Cholesky with its inverse, and LU for systems that are not symmetric. Pivots are checked here.

use super::matrix::{Matrix, ViewMut, tight};
use super::triangular::{solve_lower, solve_lower_transposed};
use super::{NotPositiveDefinite, Op, Singular, multiply};
use crate::math::vector::{self, axpy};
use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::linalg::matmul::triangular::BlockStructure;
use faer::linalg::{cholesky::llt, lu::partial_pivoting as plu, matmul, triangular_inverse};
use faer::perm::PermRef;
use faer::{Accum, Par};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Right-hand sides that are solved for together.
const PIECE: usize = 192;

/// Memory for factorisations while they run, kept so that one after the other allocates nothing.
#[derive(Default)]
pub struct Scratch {
    memory: Option<(StackReq, MemBuffer)>,
    lu: Matrix,
    residual: Matrix,
    forward: Vec<usize>,
    inverse: Vec<usize>,
}

impl Scratch {
    fn stack(memory: &mut Option<(StackReq, MemBuffer)>, needed: StackReq) -> &mut MemStack {
        let enough = |(there, _): &&mut (StackReq, MemBuffer)| there.or(needed) == *there;
        if memory.as_mut().filter(enough).is_none() {
            let room = memory.take().map_or(needed, |(there, _)| there.or(needed));
            *memory = Some((room, MemBuffer::new(room)));
        }
        MemStack::new(&mut memory.as_mut().expect("made a line before").1)
    }
}

impl Clone for Scratch {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl fmt::Debug for Scratch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Scratch")
    }
}

/// The lower Cholesky factor of a symmetric positive definite matrix.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Cholesky {
    #[serde(serialize_with = "tight")]
    factor: Matrix,
}

impl Cholesky {
    /// Factor `a`, of which the lower triangle is read.
    ///
    /// # Errors
    /// The first pivot that is not positive (or not a number).
    pub fn new(a: Matrix) -> Result<Self, NotPositiveDefinite> {
        let mut out = Self { factor: a };
        out.factorise(&mut Scratch::default())?;
        Ok(out)
    }

    /// Become the factor of `a` + `ridge` I, of which the lower triangle is read.
    ///
    /// # Errors
    /// As [`Cholesky::new`]; the matrix is then clobbered.
    pub fn renew(&mut self, a: &Matrix, ridge: f64, scratch: &mut Scratch) -> Result<(), NotPositiveDefinite> {
        if (self.factor.rows(), self.factor.cols()) != (a.rows(), a.cols()) {
            self.factor.assign(a);
        }
        for j in 0..a.rows() {
            self.factor.col_mut(j)[j..].copy_from_slice(&a.col(j)[j..]);
            *self.factor.at_mut(j, j) += ridge;
        }
        self.factorise(scratch)
    }

    /// Become the factor of the matrix plus `x` x', and `x` <- L^-1 `x` with that factor: O(m^2).
    ///
    /// # Errors
    /// If the determinant is not finite (the pivot named is the first that is not, or else the first of all); the caller
    /// must then discard the factor.
    ///
    /// # Panics
    /// If `x` is of another length.
    pub fn add_rank_one(&mut self, x: &mut [f64]) -> Result<(), NotPositiveDefinite> {
        let size = self.factor.rows();
        // Pivots grow, unless something was not finite.
        if vector::add_rank_one(self.factor.view_mut(), x).is_finite() {
            Ok(())
        } else {
            let index = (0..size).find(|&i| !self.factor.at(i, i).is_finite());
            Err(NotPositiveDefinite { index: index.unwrap_or_default(), size })
        }
    }

    fn factorise(&mut self, scratch: &mut Scratch) -> Result<(), NotPositiveDefinite> {
        factorise(&mut self.factor, scratch)?;
        for j in 1..self.factor.rows() {
            self.factor.col_mut(j)[..j].fill(0.0);
        }
        Ok(())
    }

    /// The factor L; its upper triangle is zero.
    pub fn factor(&self) -> &Matrix {
        &self.factor
    }

    /// log |L L'|.
    pub fn log_determinant(&self) -> f64 {
        log_determinant(&self.factor)
    }

    /// rhs <- (L L')^-1 rhs.
    pub fn solve(&self, mut rhs: Matrix) -> Matrix {
        solve_lower(self.factor.view(), rhs.view_mut());
        solve_lower_transposed(self.factor.view(), rhs.view_mut());
        rhs
    }

    /// (L L')^-1, both triangles.
    pub fn inverse(&self) -> Matrix {
        let mut out = self.inverse_lower();
        out.mirror_lower();
        out
    }

    /// The lower triangle of (L L')^-1; the upper triangle is unspecified.
    pub fn inverse_lower(&self) -> Matrix {
        let mut out = self.factor.clone();
        invert(&mut out, &mut Matrix::default());
        out
    }
}

/// Replace `a` by its Cholesky factor, in the lower triangle; the upper triangle is neither read nor meaningful afterwards.
///
/// # Errors
/// The first pivot that is not positive (or not a number); `a` is then clobbered.
pub fn factorise(a: &mut Matrix, scratch: &mut Scratch) -> Result<(), NotPositiveDefinite> {
    assert_eq!(a.rows(), a.cols(), "only square matrices have a Cholesky factor");
    let size = a.rows();
    if size > 0 {
        let needed = llt::factor::cholesky_in_place_scratch::<f64>(size, Par::Seq, Default::default());
        let stack = Scratch::stack(&mut scratch.memory, needed);
        let faer = a.view_mut().faer();
        llt::factor::cholesky_in_place(faer, Default::default(), Par::Seq, stack, Default::default())
            .map_err(|llt::factor::LltError::NonPositivePivot { index }| NotPositiveDefinite { index, size })?;
    }
    // A NaN slips through comparisons inside the library.
    match (0..size).find(|&i| !(a.at(i, i) > 0.0 && a.at(i, i).is_finite())) {
        Some(index) => Err(NotPositiveDefinite { index, size }),
        None => Ok(()),
    }
}

/// x <- a^-1 x for a symmetric positive definite `a` of a few rows, of which the lower triangle is read; it becomes the factor. For a
/// few rows this takes less than the library takes to begin.
///
/// # Errors
/// The first pivot that is not positive (or not a number); both are then clobbered.
pub fn solve_few(a: &mut Matrix, x: &mut [f64]) -> Result<(), NotPositiveDefinite> {
    let size = a.rows();
    for j in 0..size {
        let pivot = a.at(j, j).sqrt();
        if !(pivot > 0.0 && pivot.is_finite()) {
            return Err(NotPositiveDefinite { index: j, size });
        }
        a.col_mut(j)[j..].iter_mut().for_each(|v| *v /= pivot);
        x[j] /= pivot;
        for i in j + 1..size {
            let (done, next) = a.two_columns_mut(j, i);
            let factor = done[i];
            next[i..].iter_mut().zip(&done[i..]).for_each(|(v, l)| *v -= factor * l);
            x[i] -= factor * x[j];
        }
    }
    for j in (0..size).rev() {
        let below: f64 = a.col(j)[j + 1..].iter().zip(&x[j + 1..]).map(|(l, x)| l * x).sum();
        x[j] = (x[j] - below) / a.at(j, j);
    }
    Ok(())
}

/// log |L L'| of a lower triangular `factor`.
pub fn log_determinant(factor: &Matrix) -> f64 {
    2.0 * (0..factor.rows()).map(|i| factor.at(i, i).ln()).sum::<f64>()
}

/// `factor`, a lower triangular L, becomes the lower triangle of (L L')^-1, and the lower triangle of `half` L^-1. Upper
/// triangles are not read and mean nothing afterwards.
pub fn invert(factor: &mut Matrix, half: &mut Matrix) {
    half.resize(factor.rows(), factor.cols());
    triangular_inverse::invert_lower_triangular(half.view_mut().faer(), factor.view().faer(), Par::Seq);
    let half = half.view().faer();
    matmul::triangular::matmul(
        factor.view_mut().faer(),
        BlockStructure::TriangularLower,
        Accum::Replace,
        half.transpose(),
        BlockStructure::TriangularUpper,
        half,
        BlockStructure::TriangularLower,
        1.0,
        Par::Seq,
    );
}

/// Solve a x = rhs by LU with partial pivoting, once refined.
///
/// # Errors
/// If a pivot vanishes or the solution is not finite.
pub fn solve_general(a: &Matrix, rhs: &Matrix) -> Result<Matrix, Singular> {
    let mut x = Matrix::default();
    solve_general_into(a, rhs, &mut x, &mut Scratch::default())?;
    Ok(x)
}

/// Whether the solution of a system is refined, which costs twice as much again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accuracy {
    /// As elimination leaves it.
    Plain,
    /// One step of iterative refinement buys back what pivot growth lost.
    Refined,
}

/// [`solve_general`] into `x`, in memory that is kept.
///
/// # Errors
/// As [`solve_general`]; `x` is then clobbered.
pub fn solve_general_into(a: &Matrix, rhs: &Matrix, x: &mut Matrix, scratch: &mut Scratch) -> Result<(), Singular> {
    solve_and_invert(a, rhs, x, None, scratch)
}

/// Solve a x = rhs, where `x` is `rhs` before, in memory that is kept. A column that overflows is not finite afterwards, and the
/// others are as they would be without it.
///
/// # Errors
/// If a pivot vanishes or is not finite; `x` is then clobbered.
pub fn solve_in_place(a: &Matrix, x: ViewMut<'_>, accuracy: Accuracy, scratch: &mut Scratch) -> Result<(), Singular> {
    decompose_and_solve(a, x, None, accuracy, scratch)
}

/// [`solve_general_into`] that leaves a^-1, too, where it is asked for.
///
/// # Errors
/// As [`solve_general`]; `x` and `inverse` are then clobbered.
pub fn solve_and_invert(
    a: &Matrix,
    rhs: &Matrix,
    x: &mut Matrix,
    inverse_of_a: Option<&mut Matrix>,
    scratch: &mut Scratch,
) -> Result<(), Singular> {
    x.assign(rhs);
    decompose_and_solve(a, x.view_mut(), inverse_of_a, Accuracy::Refined, scratch)?;
    if x.is_finite() { Ok(()) } else { Err(Singular { size: a.rows() }) }
}

fn decompose_and_solve(
    a: &Matrix,
    mut x: ViewMut<'_>,
    inverse_of_a: Option<&mut Matrix>,
    accuracy: Accuracy,
    scratch: &mut Scratch,
) -> Result<(), Singular> {
    assert_eq!(a.rows(), a.cols(), "only square systems have one solution");
    let size = a.rows();
    if size == 0 {
        if let Some(out) = inverse_of_a {
            out.renew(0, 0);
        }
        return Ok(());
    }
    let Scratch { memory, lu, residual, forward, inverse } = scratch;
    lu.assign(a);
    forward.resize(size, 0);
    inverse.resize(size, 0);
    // Solved by pieces, so that the residuals of many columns take little memory.
    let pieces = (0..x.cols()).step_by(PIECE);
    let wide = if inverse_of_a.is_some() { size } else { x.cols().min(PIECE) };
    let stack = Scratch::stack(
        memory,
        StackReq::any_of(&[
            plu::factor::lu_in_place_scratch::<usize, f64>(size, size, Par::Seq, Default::default()),
            plu::solve::solve_in_place_scratch::<usize, f64>(size, wide.max(x.cols().min(PIECE)), Par::Seq),
        ]),
    );
    let (_, permutation): (_, PermRef<'_, usize>) =
        plu::factor::lu_in_place(lu.view_mut().faer(), forward, inverse, Par::Seq, stack, Default::default());
    if (0..size).any(|i| lu.at(i, i) == 0.0 || !lu.at(i, i).is_finite()) {
        return Err(Singular { size });
    }
    let mut solve = |rhs: ViewMut<'_>| {
        let (lower, upper) = (lu.view().faer(), lu.view().faer());
        plu::solve::solve_in_place(lower, upper, permutation, rhs.faer(), Par::Seq, stack);
    };
    for start in pieces {
        let mut x = x.columns(start, PIECE.min(x.cols() - start));
        if accuracy == Accuracy::Plain {
            solve(x);
            continue;
        }
        residual.renew(size, x.cols());
        (0..x.cols()).for_each(|j| residual.col_mut(j).copy_from_slice(x.col_mut(j)));
        solve(x.reborrow());
        multiply(residual.view_mut(), true, -1.0, a.view(), Op::Plain, x.as_view(), Op::Plain);
        solve(residual.view_mut());
        (0..x.cols()).for_each(|j| axpy(x.col_mut(j), 1.0, residual.col(j)));
    }
    if let Some(out) = inverse_of_a {
        out.renew(size, size);
        out.fill(0.0);
        (0..size).for_each(|i| *out.at_mut(i, i) = 1.0);
        solve(out.view_mut());
    }
    Ok(())
}
