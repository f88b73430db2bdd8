//! What a snapshot says of V at several states together: is one of them really better than another?

use crate::math::dense::{Matrix, Op, View, multiply, product, symmetric_eigen};
use crate::math::kernel::Points;
use crate::random::{mix, normal};
use crate::snapshot::{Ask, Snapshot};
use crate::transition::{Invalid, InvalidCode};

/// States that may be asked about together: their covariance has the square of that many numbers.
pub const STATES_MAX: usize = 2000;
/// Samples at most.
pub const SAMPLES_MAX: usize = 10_000;

impl Snapshot {
    /// Posterior covariance (n, n) of V at `states` (n, D), row-major, value^2; none where the snapshot carries no variance.
    /// ```text
    /// Cov[V(x), V(x')] = k(x, x') - k_m(x)' C k_m(x')                                                      (P2), off the diagonal
    /// ```
    /// The variance of V(a) - V(b) is Cov_aa + Cov_bb - 2 Cov_ab. O(n m^2 + n^2 m).
    ///
    /// # Errors
    /// If `states` is not whole rows of D numbers, holds a number that is not finite or too large, or is more than [`STATES_MAX`].
    pub fn covariance(&self, states: &[f64]) -> Result<Option<Matrix>, Invalid> {
        let dim = self.dim();
        let count = states.len() / dim;
        if count > STATES_MAX {
            let message = format!("{count} states, at most {STATES_MAX} may be asked about together");
            return Err(Invalid::new(InvalidCode::OutOfRange, "states", message));
        }
        // Checks the states.
        self.evaluate(states, Ask::MEAN)?;
        let Some(c) = &self.variance else { return Ok(None) };
        let (kernel, m) = (&self.hyperparameters.kernel, self.features());
        let width = kernel.projected_dim(dim);
        let basis = Points::new(width, &kernel.project(dim, self.dictionary.transpose().as_slice()));
        let points = kernel.project(dim, &self.inputs.normalise(states));
        let mut rows = Matrix::zeros(m, count);
        kernel.rows(&basis, &points, &mut rows.view_mut());
        let mut out = Matrix::zeros(count, count);
        kernel.block(&Points::new(width, &points), &points, &mut out.view_mut());
        kernel.add_columns(&points, &points, &mut out);
        let half = product(View::from_columns(m, m, c.as_slice()), Op::Plain, rows.view(), Op::Plain);
        multiply(out.view_mut(), true, -1.0, rows.view(), Op::Transposed, half.view(), Op::Plain);
        // Rounding must not leave it other than symmetric.
        out.mirror_lower();
        Ok(Some(out))
    }

    /// `count` joint samples of V of each reward at `states` (n, D): (n, count) for each of H rewards, as hashes of `seed` have them.
    /// The same states and seed give the same samples; none where the snapshot carries no variance.
    ///
    /// # Errors
    /// As [`Snapshot::covariance`]; or `count` is above [`SAMPLES_MAX`], or the covariance is not finite.
    pub fn samples(&self, states: &[f64], count: usize, seed: u64) -> Result<Option<Vec<Matrix>>, Invalid> {
        if count > SAMPLES_MAX {
            let message = format!("{count} samples, at most {SAMPLES_MAX} may be asked for");
            return Err(Invalid::new(InvalidCode::OutOfRange, "samples", message));
        }
        let Some(covariance) = self.covariance(states)? else { return Ok(None) };
        let n = covariance.rows();
        let (values, mut root) = symmetric_eigen(&covariance).map_err(|_| {
            Invalid::new(InvalidCode::NotFinite, "states", "the covariance there is not finite".to_owned())
        })?;
        for (j, value) in values.iter().enumerate() {
            // What is below zero is rounding.
            let deviation = value.max(0.0).sqrt();
            root.col_mut(j).iter_mut().for_each(|v| *v *= deviation);
        }
        let mean = self.evaluate(states, Ask::MEAN)?.mean;
        let of = |h: usize| {
            let draw = |k: usize, i: usize| normal(mix(&[seed, h as u64, k as u64, i as u64]));
            let normals = (0..count).flat_map(|k| (0..n).map(move |i| draw(k, i))).collect();
            let mut out = product(root.view(), Op::Plain, Matrix::from_columns(n, count, normals).view(), Op::Plain);
            for k in 0..count {
                out.col_mut(k).iter_mut().zip(mean.column(h).iter()).for_each(|(v, mean)| *v += mean);
            }
            out
        };
        Ok(Some((0..mean.ncols()).map(of).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::kernel::Metric;
    use crate::snapshot::tests::model;

    const STATES: [f64; 8] = [0.2, 0.1, 0.25, 0.1, 1.5, -0.4, -0.7, 0.9];

    #[test]
    fn the_diagonal_is_the_variance_and_differences_have_the_one_of_a_dense_program() {
        let model = model(2, 9, Metric::Ard(vec![0.5, 1.5]), 0.02);
        let found = model.covariance(&STATES).unwrap().unwrap();
        let variance = model.evaluate(&STATES, Ask::VARIANCE).unwrap().variance.unwrap();
        for (i, variance) in variance.iter().enumerate() {
            assert!((found.at(i, i) - variance).abs() < 1e-10, "{i}");
        }
        // By the formula and nothing else.
        let (kernel, c) = (&model.hyperparameters.kernel, model.variance.as_ref().unwrap());
        let z = |x: &[f64]| -> Vec<f64> { model.inputs.normalise(x) };
        let k = |a: &[f64], b: &[f64]| {
            let r: f64 = (0..2).map(|d| kernel.metric.relevance(2)[d] * (a[d] - b[d]).powi(2)).sum();
            kernel.signal_variance * (-0.5 * r).exp() + kernel.bias_variance
        };
        let element = |i: usize| -> Vec<f64> { model.dictionary.row(i).iter().copied().collect() };
        for (i, a) in STATES.chunks_exact(2).map(z).enumerate() {
            for (j, b) in STATES.chunks_exact(2).map(z).enumerate() {
                let mut dense = k(&a, &b);
                for p in 0..9 {
                    for q in 0..9 {
                        dense -= k(&a, &element(p)) * c[(p, q)] * k(&b, &element(q));
                    }
                }
                assert!((found.at(i, j) - dense).abs() < 1e-10, "{i} {j}: {} {dense}", found.at(i, j));
            }
        }
    }

    #[test]
    fn samples_have_the_mean_and_the_covariance_and_are_the_same_each_time() {
        let model = model(2, 9, Metric::Isotropic(0.7), 0.02);
        let (count, n) = (4000, STATES.len() / 2);
        let found = model.samples(&STATES, count, 7).unwrap().unwrap();
        assert_eq!((found.len(), &found), (2, &model.samples(&STATES, count, 7).unwrap().unwrap()));
        assert_ne!(found, model.samples(&STATES, count, 8).unwrap().unwrap());
        let (mean, covariance) = (model.evaluate(&STATES, Ask::MEAN).unwrap().mean, model.covariance(&STATES).unwrap());
        let covariance = covariance.unwrap();
        for (h, samples) in found.iter().enumerate() {
            let about = |i: usize, k: usize| samples.at(i, k) - mean[(i, h)];
            for i in 0..n {
                let off = (0..count).map(|k| about(i, k)).sum::<f64>() / count as f64;
                assert!(off.abs() < 5.0 * (covariance.at(i, i) / count as f64).sqrt(), "{h} {i}: {off}");
                for j in 0..n {
                    let seen = (0..count).map(|k| about(i, k) * about(j, k)).sum::<f64>() / count as f64;
                    let scale = (covariance.at(i, i) * covariance.at(j, j)).sqrt();
                    assert!((seen - covariance.at(i, j)).abs() < 0.1 * scale, "{h} {i} {j}: {seen}");
                }
            }
        }
    }

    #[test]
    fn too_much_is_refused_and_a_model_without_variance_has_none() {
        let mut model = model(2, 9, Metric::Isotropic(0.7), 0.02);
        let refused = model.covariance(&vec![0.0; 2 * (STATES_MAX + 1)]).unwrap_err();
        assert_eq!((refused.code, refused.field), (InvalidCode::OutOfRange, "states"));
        assert_eq!(model.samples(&STATES, SAMPLES_MAX + 1, 0).unwrap_err().code, InvalidCode::OutOfRange);
        assert_eq!(model.covariance(&[f64::NAN, 0.0]).unwrap_err().code, InvalidCode::NotFinite);
        model.variance = None;
        assert!(model.covariance(&STATES).unwrap().is_none() && model.samples(&STATES, 2, 0).unwrap().is_none());
    }
}
