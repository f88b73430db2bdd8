//! Eigenvalues and tridiagonal forms of matrices of `f64`: functions of `faer`, which are generic, compiled here once.
//!
//! They are a crate of their own, so that they are one unit of compilation: without optimisation at link time nothing is inlined
//! across units, and the iterators of `faer`'s inner loops would stay calls. Everything runs on the calling thread. Matrices must be
//! finite: `faer` may loop on what is not a number.

use faer::diag::DiagMut;
use faer::dyn_stack::{MemBuffer, MemStack, StackReq};
use faer::linalg::{evd, householder, qr::no_pivoting as qr};
use faer::{Conj, Mat, MatMut, MatRef, Par};

/// T = Q' a Q for a symmetric `a` (m, m) (lower triangle read), which becomes T on and beside its diagonal; Q is orthogonal, and
/// `vectors` (m, k) become Q' vectors. Two thirds of the operations of an eigen-decomposition, without its iteration. O(m^3).
pub fn tridiagonal(mut a: MatMut<'_, f64>, vectors: MatMut<'_, f64>) {
    let size = a.nrows();
    if size < 2 {
        return;
    }
    let block = qr::factor::recommended_block_size::<f64>(size, size);
    let mut reflectors = Mat::<f64>::zeros(block, size - 1);
    let mut memory = MemBuffer::new(StackReq::any_of(&[
        evd::tridiag::tridiag_in_place_scratch::<f64>(size, Par::Seq, Default::default()),
        householder::apply_block_householder_sequence_transpose_on_the_left_in_place_scratch::<f64>(
            size - 1,
            block,
            vectors.ncols(),
        ),
    ]));
    let stack = MemStack::new(&mut memory);
    evd::tridiag::tridiag_in_place(a.as_mut(), reflectors.as_mut(), Par::Seq, stack, Default::default());
    householder::apply_block_householder_sequence_transpose_on_the_left_in_place_with_conj(
        a.as_ref().submatrix(1, 0, size - 1, size - 1),
        reflectors.as_ref(),
        Conj::No,
        vectors.subrows_mut(1, size - 1),
        Par::Seq,
        stack,
    );
}

/// Eigenvalues (ascending) and, column by column, eigenvectors of a symmetric `a` (m, m) (lower triangle read); false if the iteration
/// does not converge. O(m^3).
#[must_use]
pub fn symmetric(a: MatRef<'_, f64>, values: &mut [f64], vectors: MatMut<'_, f64>) -> bool {
    let wanted = evd::ComputeEigenvectors::Yes;
    let scratch = evd::self_adjoint_evd_scratch::<f64>(a.nrows(), wanted, Par::Seq, Default::default());
    let mut memory = MemBuffer::new(scratch);
    let stack = MemStack::new(&mut memory);
    let values = DiagMut::from_slice_mut(values);
    evd::self_adjoint_evd(a, values, Some(vectors), Par::Seq, stack, Default::default()).is_ok()
}

/// Real and imaginary parts of the eigenvalues of a square `a` (m, m); false if the iteration does not converge. O(m^3).
#[must_use]
pub fn general(a: MatRef<'_, f64>, real: &mut [f64], imaginary: &mut [f64]) -> bool {
    let (none, params) = (evd::ComputeEigenvectors::No, Default::default());
    let mut memory = MemBuffer::new(evd::evd_scratch::<f64>(a.nrows(), none, none, Par::Seq, params));
    let stack = MemStack::new(&mut memory);
    let (real, imaginary) = (DiagMut::from_slice_mut(real), DiagMut::from_slice_mut(imaginary));
    evd::evd_real(a, real, imaginary, None, None, Par::Seq, stack, Default::default()).is_ok()
}
