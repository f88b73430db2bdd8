//! How returns scatter about V, and whether they do as was predicted.

use super::weights::value;
use crate::math::backfill::difference_residual;
use crate::math::dense::{Matrix, dot};
use crate::math::dictionary::Dictionary;
use crate::math::kernel::Kernel;
use crate::math::posterior::Posterior;
use crate::math::spread::Spread;
use crate::snapshot::ReturnSpread;
use crate::tracking::Tracking;
use crate::verification::{Pace, Predicted, Verification, Verified};
use crate::warning::Stated;

/// What answers for a model: the weights of the last refresh, and what tracks the stream beside them.
#[derive(Clone, Copy)]
pub(super) struct Answers<'a> {
    pub(super) posterior: Option<&'a Posterior>,
    pub(super) tracking: Option<&'a Tracking>,
}

impl Answers<'_> {
    /// V_h as it is published, where the features are phi (m,).
    pub(super) fn value(&self, features: &[f64], h: usize) -> f64 {
        let base = value(self.posterior, features, h);
        self.tracking.map_or(base, |tracking| tracking.answer(h, features, base))
    }

    /// What V_h is uncertain by because base and trackers differ there, value^2.
    fn scatter(&self, features: &[f64], h: usize) -> f64 {
        self.tracking.map_or(0.0, |of| of.scatter(h, features, value(self.posterior, features, h)))
    }
}

/// The interval of returns, and what has been verified of it.
#[derive(Clone, Debug, Default)]
pub(super) struct Returns {
    /// Their spread about V, as of the last pass over all rows.
    pub(super) spread: Option<Spread>,
    /// Cov u / s as snapshots state it (m, m), of that pass or of the last estimate of noise and scale since: at each start row there
    /// is no time to make it anew.
    pub(super) value_covariance: Option<Matrix>,
    /// Returns against what was predicted of them, where there is a spread.
    pub(super) verification: Verification,
}

impl Returns {
    /// A row has arrived in this normalised state (D,), whose features are phi (m,): returns that are followed gain its reward, and now
    /// and then its own is followed from here on. `discount` is the critic's.
    pub(super) fn verify(
        &mut self,
        row: Verified<'_>,
        (state, features): (&[f64], &[f64]),
        answers: Answers<'_>,
        discount: f64,
        kernel: &Kernel,
    ) {
        let Self { spread: Some(spread), value_covariance: Some(covariance), verification } = self else { return };
        let Some(posterior) = answers.posterior else { return };
        let value = |h| answers.value(features, h);
        let pace = Pace::new(discount, posterior.feature_weights().rows());
        verification.arrive(row.slot, pace, value);
        if verification.is_due(pace, row.ratio) {
            let variance = value_variance(posterior.scale().signal, kernel, covariance, features);
            let predicted = |h| Predicted {
                mean: value(h),
                value_variance: variance + answers.scatter(features, h),
                spread: spread.variance(h, features),
            };
            verification.start(row.slot, state, (0..row.rewards.len()).map(predicted));
        }
        verification.take(row, pace);
    }

    /// What is stated of the return of reward number `h` from a state of features phi (m,), what errors have added to Var V included; none
    /// before a refit. O(m^2).
    pub(super) fn stated(&self, h: usize, features: &[f64], answers: Answers<'_>, kernel: &Kernel) -> Option<Stated> {
        let Self { spread: Some(spread), value_covariance: Some(covariance), verification } = self else { return None };
        let learned = value_variance(answers.posterior?.scale().signal, kernel, covariance, features);
        let variance = learned + answers.scatter(features, h);
        let deviation = (variance + verification.excess() + spread.variance(h, features)).sqrt();
        Some(Stated { mean: answers.value(features, h), deviation })
    }

    /// The chain of `slot` is cut at a state with these features (m,).
    pub(super) fn cut(&mut self, slot: usize, features: &[f64], answers: Answers<'_>, discount: f64) {
        let pace = Pace::new(discount, answers.posterior.map_or(0, |posterior| posterior.feature_weights().rows()));
        self.verification.cut(slot, pace, |h| answers.value(features, h));
    }

    /// As snapshots have it, for `rewards` rewards; `signal` is the model's scale of its base kernel, the dictionary's.
    pub(super) fn publish(&self, dictionary: &Dictionary, signal: f64, rewards: usize) -> Option<ReturnSpread> {
        let spread = self.spread.as_ref()?;
        let mut weights = dictionary.kernel_weights(&spread.weights);
        for h in 0..weights.cols() {
            weights.col_mut(h).iter_mut().for_each(|w| *w /= signal);
        }
        Some(ReturnSpread {
            level: spread.level.clone(),
            weights: weights.to_nalgebra(),
            floor: spread.floor(),
            factor: self.verification.factor(rewards),
            pairs: self.verification.pairs(rewards),
            coverage: self.verification.coverage(rewards),
        })
    }

    /// Whether everything fits m features, `rewards` rewards and `slots` slots.
    pub(super) fn is_consistent(&self, m: usize, rewards: usize, dim: usize, slots: usize) -> bool {
        self.spread.as_ref().is_none_or(|spread| spread.is_consistent(m, rewards))
            && self.value_covariance.as_ref().is_none_or(|cov| cov.rows() == cov.cols() && cov.rows() <= m)
            && self.verification.is_consistent(rewards, dim, slots)
    }

    pub(super) fn bytes(&self) -> usize {
        self.verification.bytes() + self.value_covariance.as_ref().map_or(0, Matrix::bytes)
    }
}

/// Var V at features phi (m,): `kernel` is the base kernel, `covariance` Cov u / s of the features there were when it was made;
/// those admitted since have their prior variance. O(m^2).
fn value_variance(signal: f64, kernel: &Kernel, covariance: &Matrix, features: &[f64]) -> f64 {
    let known = &features[..covariance.cols()];
    let learned: f64 = known.iter().enumerate().map(|(j, phi)| phi * dot(covariance.col(j), known)).sum();
    signal * (difference_residual(kernel.diagonal(), &known[kernel.columns()..]) + learned.max(0.0))
}
