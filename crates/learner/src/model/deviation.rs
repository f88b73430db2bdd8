//! How much V may err, as snapshots state it: what the scatter of scores says, as much wider as pieces of chains and errors that have
//! come since make it.

use super::Model;
use super::tracked::Mixed;
use crate::math::dense::{Matrix, axpy, dot, solve_lower};
use crate::math::inflation::Widened;
use crate::math::posterior::{Posterior, SolveError};
use crate::math::statistics::Running;
use crate::verification::HeldOut;

impl Model {
    /// What a refit has found of rows that the weights behind the interval of returns were not made of.
    pub fn held_out(&self) -> HeldOut {
        self.returns.verification.held_out()
    }

    /// Cov u / s as the settings ask for it.
    fn covariance(&self, posterior: &Posterior, running: &Running) -> Result<Matrix, SolveError> {
        match self.errors.scatter.with_running(posterior, running, &self.streams) {
            Some(scatter) => Ok(posterior.sandwich(&self.statistics, running, &scatter)?),
            None => posterior.covariance(&self.statistics),
        }
    }

    /// The same, wider by what a refit has found in pieces of chains: docs/mathematics.md (I5).
    fn widened_covariance(&self, posterior: &Posterior, running: &Running) -> Result<Matrix, SolveError> {
        let mut covariance = self.covariance(posterior, running)?;
        if let Some(inflation) = &self.inflation {
            let signal = posterior.scale().signal;
            let mean = signal * self.mean_form(&covariance);
            let Widened { factor, level } = inflation.now(self.statistics.effective_rows(), mean);
            (0..covariance.cols()).for_each(|j| covariance.col_mut(j).iter_mut().for_each(|c| *c *= factor));
            self.add_level(&mut covariance, level / signal);
        }
        Ok(covariance)
    }

    /// The same, wider by what errors say that have come since, and by what base and trackers differ by where these are let in.
    pub(super) fn published_covariance(
        &self,
        posterior: &Posterior,
        running: &Running,
        mixed: Option<&Mixed>,
    ) -> Result<Matrix, SolveError> {
        let signal = posterior.scale().signal;
        let mut covariance = self.widened_covariance(posterior, running)?;
        self.add_level(&mut covariance, self.returns.verification.excess() / signal);
        if let Some(Mixed { scatter, .. }) = mixed {
            (0..covariance.cols()).for_each(|j| axpy(covariance.col_mut(j), 1.0 / signal, scatter.col(j)));
        }
        Ok(covariance)
    }

    /// Cov u / s by which verification states the deviation of V, made of everything learned so far.
    pub(super) fn renew_value_covariance(&mut self) {
        let running = self.running();
        let posterior = Posterior::solve(&self.statistics, &running, self.weights.scale);
        let covariance = posterior.and_then(|posterior| self.widened_covariance(&posterior, &running));
        self.returns.value_covariance = covariance.ok();
    }

    /// The same by the weights of a refresh that has estimated noise and scale anew: rows have grown by so much since that the
    /// deviation that snapshots state is another one. Where it cannot be made, the one before stays.
    pub(super) fn renew_value_covariance_tuned(&mut self, running: &Running) {
        let rows = self.statistics.rows;
        let due = self.returns.value_covariance.is_some() && rows > 0 && self.weights.tuned.rows == rows;
        let Some(posterior) = self.weights.posterior.as_ref().filter(|_| due) else { return };
        if let Ok(covariance) = self.widened_covariance(posterior, running) {
            self.returns.value_covariance = Some(covariance);
        }
    }

    /// Mean of phi' C phi over the rows, for C (m, m).
    fn mean_form(&self, of: &Matrix) -> f64 {
        let (m, gram) = (of.cols(), &self.statistics.gram);
        let diagonal: f64 = (0..m).map(|i| gram.at(i, i) * of.at(i, i)).sum();
        let below: f64 = (0..m).map(|j| dot(&gram.col(j)[j + 1..], &of.col(j)[j + 1..])).sum();
        (diagonal + 2.0 * below) / (self.statistics.unit() * self.statistics.effective_rows()).max(f64::MIN_POSITIVE)
    }

    /// Let V vary by `variance` (value^2 / s) more, alike at every state: along the weights a of the function that is 1 everywhere, where
    /// the kernel has a column for it, C <- C + variance a a'. Else of the one that is 1 at every element of the dictionary: between and
    /// behind the elements that is 1 up to a tenth, by the constant of the kernel.
    fn add_level(&self, covariance: &mut Matrix, variance: f64) {
        if variance <= 0.0 {
            return;
        }
        let columns = &self.basis.kernel().columns;
        let mut ones = Matrix::zeros(covariance.cols(), 1);
        match columns.iter().position(|column| column.function.is_constant()) {
            Some(j) => *ones.at_mut(j, 0) = 1.0 / columns[j].variance.sqrt(),
            None => {
                ones.col_mut(0)[columns.len()..].fill(1.0);
                solve_lower(self.basis.dictionary.factor().view(), ones.view_mut());
            }
        }
        for j in 0..covariance.cols() {
            let along = variance * ones.at(j, 0);
            axpy(covariance.col_mut(j), along, ones.col(0));
        }
    }
}
