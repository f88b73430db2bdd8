//! Symmetric matrices in a basis of their own, tridiagonal and diagonal; and how much a square matrix amplifies.

use super::matrix::{Matrix, View};
use super::{Op, Singular, dot, product};

/// Rows from which the eigenvalue of the largest magnitude is looked for by powers first.
const LARGE: usize = 64;
/// Squarings of the matrix, and steps with what they give: to the power of 16, 60 times.
const SQUARINGS: usize = 4;
const STEPS: usize = 60;
/// What may be left of A x - lambda x, in parts of lambda x.
const LEFT: f64 = 1e-12;

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

/// The largest magnitude of an eigenvalue of a square matrix: what |a^k|^(1/k) comes to. O(m^3), a fifth of which does where one
/// eigenvalue stands out.
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
    if let Some(found) = Some(a).filter(|_| size >= LARGE).and_then(by_powers) {
        return Ok(found);
    }
    let (mut real, mut imaginary) = (vec![0.0; size], vec![0.0; size]);
    if !criticd_eigen::general(a.view().faer(), &mut real, &mut imaginary) {
        return Err(Singular { size });
    }
    Ok(real.iter().zip(&imaginary).map(|(re, im)| re.hypot(*im)).fold(0.0, f64::max))
}

/// The same by powers of the matrix; none where these do not lead to one eigenvector.
/// ```text
/// x <- a^16 x / |a^16 x|;    lambda = x'a x / x'x, if |a x - lambda x| is next to nothing
/// ```
fn by_powers(a: &Matrix) -> Option<f64> {
    let mut power = a.clone();
    for _ in 0..SQUARINGS {
        power = product(power.view(), Op::Plain, power.view(), Op::Plain);
        let largest = power.largest();
        if !(largest > 0.0 && largest.is_finite()) {
            return None;
        }
        (0..power.cols()).for_each(|j| power.col_mut(j).iter_mut().for_each(|x| *x /= largest));
    }
    let times = |of: &Matrix, x: &[f64]| product(of.view(), Op::Plain, View::column(x), Op::Plain).col(0).to_vec();
    // Whatever it is made of, none of the eigenvectors is left out.
    let mut x: Vec<f64> = (0..a.rows()).map(|i| 1.0 + 0.5 * (1.0 + i as f64).sin()).collect();
    for _ in 0..STEPS {
        let next = times(&power, &x);
        let length = dot(&next, &next).sqrt();
        if !(length > 0.0 && length.is_finite()) {
            return None;
        }
        let apart = |sign: f64| next.iter().zip(&x).map(|(n, x)| (n / length - sign * x).abs()).fold(0.0, f64::max);
        let settled = apart(1.0).min(apart(-1.0)) < 1e-15;
        x = next.iter().map(|x| x / length).collect();
        if settled {
            break;
        }
    }
    let turned = times(a, &x);
    let found = dot(&x, &turned);
    let left = turned.iter().zip(&x).map(|(turned, x)| (turned - found * x).abs()).fold(0.0, f64::max);
    (left <= LEFT * found.abs()).then_some(found.abs())
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
        // Large ones: one that stands out, two that are as large, and a turn.
        let mut large = Matrix::zeros(70, 70);
        for j in 0..70 {
            *large.at_mut(j, j) = if j == 0 { 0.9 } else { 0.6 - 0.01 * j as f64 };
            (0..j).for_each(|i| *large.at_mut(i, j) = 0.02 * ((i * 7 + j * 3) as f64).sin());
        }
        let radius = |of: &Matrix| spectral_radius(of).unwrap();
        assert!(by_powers(&large).is_some() && (radius(&large) - 0.9).abs() < 1e-9, "{}", radius(&large));
        *large.at_mut(69, 69) = -0.9;
        assert!(by_powers(&large).is_none() && (radius(&large) - 0.9).abs() < 1e-9);
        (*large.at_mut(0, 0), *large.at_mut(69, 69)) = (0.1, 0.1);
        [(1, 1, c), (2, 2, c), (1, 2, -s), (2, 1, s)].into_iter().for_each(|(i, j, x)| *large.at_mut(i, j) = x);
        assert!(by_powers(&large).is_none() && (radius(&large) - 0.9).abs() < 1e-9);
        assert_eq!(spectral_radius(&Matrix::zeros(0, 0)), Ok(0.0));
        assert!(spectral_radius(&Matrix::from_rows(1, 1, &[f64::NAN])).is_err());
    }
}
