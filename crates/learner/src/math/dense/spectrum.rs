//! Symmetric matrices in a basis of their own, tridiagonal and diagonal; and how much a square matrix amplifies.

use super::Singular;
use super::matrix::Matrix;

/// A symmetric tridiagonal matrix T.
#[derive(Clone, Debug)]
pub struct Tridiagonal {
    /// (m,).
    diagonal: Vec<f64>,
    /// Beside the diagonal (m - 1,).
    beside: Vec<f64>,
}

impl Tridiagonal {
    /// T = Q' a Q for an orthogonal Q and a symmetric `a` (lower triangle read); `vectors` (m, k) become Q' vectors.
    /// Two thirds of the operations of an eigen-decomposition without its iteration: enough to solve with a + ridge I for
    /// many ridges. O(m^3).
    ///
    /// # Errors
    /// If the matrix is not finite.
    pub fn reduce(a: &Matrix, vectors: &mut Matrix) -> Result<Self, Singular> {
        assert!(a.rows() == a.cols() && vectors.rows() == a.rows(), "a square matrix, and vectors as long");
        let size = a.rows();
        if (0..size).any(|j| a.col(j)[j..].iter().any(|v| !v.is_finite())) {
            return Err(Singular { size });
        }
        let mut work = a.clone();
        criticd_eigen::tridiagonal(work.view_mut().faer(), vectors.view_mut().faer());
        let diagonal = (0..size).map(|i| work.at(i, i)).collect();
        let beside = (1..size).map(|i| work.at(i, i - 1)).collect();
        Ok(Self { diagonal, beside })
    }

    /// log|T + ridge I| and the sum over the columns b of `vectors` (m, k) of b' (T + ridge I)^-1 b. None if T + ridge I is not
    /// positive definite. O(m k).
    pub fn with_ridge(&self, ridge: f64, vectors: &Matrix) -> Option<(f64, f64)> {
        let (mut log_determinant, mut quadratic) = (0.0, 0.0);
        let mut pivot = 1.0;
        let mut left = vec![0.0; vectors.cols()];
        for (i, d) in self.diagonal.iter().enumerate() {
            let above = if i > 0 { self.beside[i - 1] } else { 0.0 };
            let factor = above / pivot;
            pivot = d + ridge - factor * above;
            if pivot.is_nan() || pivot <= 0.0 {
                return None;
            }
            log_determinant += pivot.ln();
            for (h, left) in left.iter_mut().enumerate() {
                *left = vectors.at(i, h) - factor * *left;
                quadratic += *left * *left / pivot;
            }
        }
        Some((log_determinant, quadratic))
    }
}

/// Eigenvalues (ascending) and, column by column, eigenvectors of a symmetric matrix (lower triangle read).
///
/// # Errors
/// If the iteration does not converge or the matrix is not finite.
pub fn symmetric_eigen(a: &Matrix) -> Result<(Vec<f64>, Matrix), Singular> {
    assert_eq!(a.rows(), a.cols(), "only square matrices have eigenvalues");
    let size = a.rows();
    let mut values = vec![0.0; size];
    let mut vectors = Matrix::zeros(size, size);
    if size == 0 {
        return Ok((values, vectors));
    }
    // Asked for before the library sees them: it may loop on what is not a number.
    if (0..size).any(|j| a.col(j)[j..].iter().any(|v| !v.is_finite())) {
        return Err(Singular { size });
    }
    if !criticd_eigen::symmetric(a.view().faer(), &mut values, vectors.view_mut().faer()) {
        return Err(Singular { size });
    }
    Ok((values, vectors))
}

/// The largest magnitude of an eigenvalue of a square matrix: what |a^k|^(1/k) comes to. O(m^3).
///
/// # Errors
/// If the iteration does not converge or the matrix is not finite.
pub fn spectral_radius(a: &Matrix) -> Result<f64, Singular> {
    assert_eq!(a.rows(), a.cols(), "only square matrices have eigenvalues");
    let size = a.rows();
    if size == 0 {
        return Ok(0.0);
    }
    if !a.is_finite() {
        return Err(Singular { size });
    }
    let (mut real, mut imaginary) = (vec![0.0; size], vec![0.0; size]);
    if !criticd_eigen::general(a.view().faer(), &mut real, &mut imaginary) {
        return Err(Singular { size });
    }
    Ok(real.iter().zip(&imaginary).map(|(re, im)| re.hypot(*im)).fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_radius_is_that_of_real_and_of_complex_eigenvalues() {
        // A turn that shrinks by 0.9 beside a number of 0.5; a Jordan block, which no symmetric matrix has.
        let (c, s) = (0.9 * 0.3f64.cos(), 0.9 * 0.3f64.sin());
        let turn = Matrix::from_rows(3, 3, &[c, -s, 0.0, s, c, 0.0, 0.0, 0.0, 0.5]);
        assert!((spectral_radius(&turn).unwrap() - 0.9).abs() < 1e-12);
        let block = Matrix::from_rows(2, 2, &[-0.7, 100.0, 0.0, 0.2]);
        assert!((spectral_radius(&block).unwrap() - 0.7).abs() < 1e-12);
        assert_eq!(spectral_radius(&Matrix::zeros(0, 0)), Ok(0.0));
        assert!(spectral_radius(&Matrix::from_rows(1, 1, &[f64::NAN])).is_err());
    }
}
