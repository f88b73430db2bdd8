//! A plan as a value function of states and actions like any other.

use super::dynamics::Dynamics;
use crate::action::ActionSpace;
use crate::math::dense::{Matrix, solve_lower_transposed};
use crate::math::kernel::{Hyperparameters, NoiseModel};
use crate::snapshot::{Actions, Snapshot};
use nalgebra::DMatrix;

impl Dynamics {
    /// Q of these `weights` (d,) of the features of D, as a snapshot that knows `space`. With `spread`, v0 in the unit of Q squared and
    /// the covariance (d, d) of the weights, it knows deviations:
    /// ```text
    /// Var Q = v0 (k - psi'psi) + psi' Cov psi = v0 k - (v0 k_m)' C (v0 k_m)       C = L_D^-T (v0 I - Cov) L_D^-1 / v0^2
    /// ```
    ///
    /// # Panics
    /// If there is another number of weights than of features.
    pub fn snapshot(
        &self,
        space: &ActionSpace,
        weights: &[f64],
        spread: Option<(f64, &Matrix)>,
        discount: f64,
    ) -> Snapshot {
        let dictionary = self.before().dictionary();
        let d = dictionary.len();
        let signal = spread.map_or(1.0, |(signal, _)| signal);
        let column = Matrix::from_columns(d, 1, weights.to_vec());
        let of_kernel = dictionary.kernel_weights(&column).to_nalgebra() / signal;
        let hyperparameters = Hyperparameters {
            kernel: dictionary.kernel().scaled(signal),
            noise: NoiseModel::Correlated,
            noise_variance: self.ridge * signal,
        };
        let elements = DMatrix::from_row_slice(d, self.before().dim(), dictionary.elements());
        let variance = spread.map(|(signal, covariance)| {
            let mut inner = Matrix::identity(d);
            for j in 0..d {
                inner.col_mut(j).iter_mut().zip(covariance.col(j)).for_each(|(to, of)| *to = *to * signal - of);
            }
            // L^-T B L^-1 for symmetric B, one side after the other.
            solve_lower_transposed(dictionary.factor().view(), inner.view_mut());
            let mut inner = inner.transpose();
            solve_lower_transposed(dictionary.factor().view(), inner.view_mut());
            let whole = inner.to_nalgebra() / (signal * signal);
            (&whole + whole.transpose()) * 0.5
        });
        Snapshot {
            inputs: self.before().inputs().clone(),
            variance,
            actions: Some(Actions::of(space.clone())),
            lambda: 0.0,
            ..Snapshot::of(discount, hyperparameters, elements, of_kernel)
        }
    }
}
