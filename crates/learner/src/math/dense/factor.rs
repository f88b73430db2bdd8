//! Factorisations: Cholesky with its inverse, and LU for systems that are not symmetric. Pivots are checked here.

use super::matrix::{Matrix, tight};
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

/// log |L L'| of a lower triangular `factor`.
pub fn log_determinant(factor: &Matrix) -> f64 {
    2.0 * (0..factor.rows()).map(|i| factor.at(i, i).ln()).sum::<f64>()
}

/// `factor`, a lower triangular L, becomes the lower triangle of (L L')^-1, and that of `half` L^-1. Upper triangles are not
/// read and mean nothing afterwards.
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

/// [`solve_general`] into `x`, in memory that is kept.
///
/// # Errors
/// As [`solve_general`]; `x` is then clobbered.
pub fn solve_general_into(a: &Matrix, rhs: &Matrix, x: &mut Matrix, scratch: &mut Scratch) -> Result<(), Singular> {
    solve_and_invert(a, rhs, x, None, scratch)
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
    assert_eq!(a.rows(), a.cols(), "only square systems have one solution");
    let size = a.rows();
    x.assign(rhs);
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
    let wide = if inverse_of_a.is_some() { size } else { 0 };
    let stack = Scratch::stack(
        memory,
        StackReq::any_of(&[
            plu::factor::lu_in_place_scratch::<usize, f64>(size, size, Par::Seq, Default::default()),
            plu::solve::solve_in_place_scratch::<usize, f64>(size, rhs.cols().max(wide), Par::Seq),
        ]),
    );
    let (_, permutation): (_, PermRef<'_, usize>) =
        plu::factor::lu_in_place(lu.view_mut().faer(), forward, inverse, Par::Seq, stack, Default::default());
    if (0..size).any(|i| lu.at(i, i) == 0.0 || !lu.at(i, i).is_finite()) {
        return Err(Singular { size });
    }
    let mut solve = |rhs: &mut Matrix| {
        let (lower, upper) = (lu.view().faer(), lu.view().faer());
        plu::solve::solve_in_place(lower, upper, permutation, rhs.view_mut().faer(), Par::Seq, stack);
    };
    solve(x);
    // One step of iterative refinement costs O(m^2) and buys back what pivot growth lost.
    residual.assign(rhs);
    multiply(residual.view_mut(), true, -1.0, a.view(), Op::Plain, x.view(), Op::Plain);
    solve(residual);
    for j in 0..x.cols() {
        axpy(x.col_mut(j), 1.0, residual.col(j));
    }
    if let Some(out) = inverse_of_a {
        out.renew(size, size);
        out.fill(0.0);
        (0..size).for_each(|i| *out.at_mut(i, i) = 1.0);
        solve(out);
    }
    if x.is_finite() { Ok(()) } else { Err(Singular { size }) }
}
