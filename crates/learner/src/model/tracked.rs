//! What tracks the stream beside a model: when there is such a thing, and what it adds to a snapshot.

use super::Model;
use crate::math::columns::GivenColumn;
use crate::math::dense::Matrix;
use crate::math::kernel::NoiseModel;
use crate::math::posterior::Posterior;
use crate::math::returns::ends;
use crate::math::tracking::{Plan, Units};
use crate::tracking::{Opening, Tracking};
use crate::transition::Rows;
use std::borrow::Cow;

/// The mixture of a base and what tracks the stream beside it.
pub(super) struct Mixed {
    /// Of kernel values (m, H).
    pub(super) weights: Matrix,
    /// What its parts differ by, value^2 as a form of features (m, m): (L9).
    pub(super) scatter: Matrix,
    /// How far the gate of each reward (H,) is open.
    pub(super) openings: Vec<Opening>,
}

impl Model {
    /// Track the stream from the first of `rows` on, which it is about to learn. A critic of action values has no trackers: clients ask
    /// for values of actions that nobody takes. A critic under white noise has no trackers either: each of its rows gives only the
    /// difference of two values.
    ///
    /// # Panics
    /// If rows have been learned already.
    pub(crate) fn track(&mut self, rows: &Rows) {
        assert_eq!(self.recent.end(), 0, "rows were learned without being tracked");
        let acts = self.settings.action_value.is_some() || self.settings.leaves_chain();
        if acts || self.settings.heads_alone || self.noise == NoiseModel::White {
            return;
        }
        let (count, m, discount) = (rows.len() as u64, self.basis.len(), self.settings.discount);
        let plan =
            Plan::new(discount, count, ends(rows, discount), self.basis.explicit(), m).stepping(self.units(rows));
        let (rewards, features) = (self.settings.rewards.len(), (m, self.basis.dictionary.max()));
        self.tracking =
            Tracking::new(&plan, discount, count, rewards, features, self.weights.scale.ratio).map(Box::new);
    }

    /// The units of trackers that step: a constant of 1, lines of 0.3 for each deviation, and the deviation of each reward over these rows.
    fn units(&self, rows: &Rows) -> Units {
        /// So that many lines do not outweigh the constant.
        const OF_LINES: f64 = 0.3;
        let kernel = self.basis.kernel();
        let column = |column: &GivenColumn| {
            let size = if column.function.is_constant() { 1.0 } else { OF_LINES };
            size / column.variance.sqrt()
        };
        let columns = match &kernel.columns[..] {
            [] => vec![1.0 / (kernel.signal_variance + kernel.bias_variance).sqrt()],
            given => given.iter().map(column).collect(),
        };
        let unit = |&reward: &usize| {
            let values = || (0..rows.len()).map(|i| rows.reward(i)[reward]);
            let mean = values().sum::<f64>() / rows.len().max(1) as f64;
            let variance = values().map(|r| (r - mean).powi(2)).sum::<f64>() / rows.len().max(1) as f64;
            // What varies by rounding alone has the unit of its mean.
            let sizes = [variance.sqrt(), mean.abs()];
            let least = 1e-10 * mean.abs();
            sizes.into_iter().find(|size| size.is_finite() && *size > least).unwrap_or(1.0)
        };
        Units { columns, rewards: self.settings.rewards.iter().map(unit).collect() }
    }

    /// What would track another stream in the place of what tracks this one.
    pub(super) fn emptied_tracking(&self) -> Option<Box<Tracking>> {
        let (m, room) = (self.basis.len(), self.basis.dictionary.max());
        self.tracking.as_ref().map(|tracking| Box::new(tracking.emptied(m, room)))
    }

    /// What tracks the stream beside this model, which has seen none of it, steps on from where it is beside `before`.
    pub(crate) fn step_on_from(&mut self, before: &Self) {
        if let (Some(tracking), Some(before)) = (&mut self.tracking, &before.tracking) {
            tracking.step_on_from(before);
        }
    }

    /// The base has new weights.
    pub(super) fn correct_trackers(&mut self) {
        if let (Some(tracking), Some(posterior)) = (&mut self.tracking, &self.weights.posterior) {
            tracking.take_weights(posterior.feature_weights(), posterior.scale().ratio);
        }
    }

    /// The weights (m, H) that state values in a contest: the mixture's where the stream goes on, else the base's.
    pub(crate) fn stating_weights(&self) -> Option<Cow<'_, Matrix>> {
        let posterior = self.weights.posterior.as_ref()?;
        let tracking = self.tracking.as_ref().filter(|tracking| tracking.goes_on());
        let answering =
            tracking.and_then(|of| of.answering_weights(posterior.feature_weights(), posterior.scale().ratio));
        Some(answering.map_or(Cow::Borrowed(posterior.feature_weights()), |(weights, _)| Cow::Owned(weights)))
    }

    /// Whether it is followed step by step, since its stream goes on without ends.
    pub fn goes_on(&self) -> bool {
        self.tracking.as_ref().is_some_and(|tracking| tracking.goes_on())
    }

    /// Whether something tracks the stream beside it.
    pub fn is_tracked(&self) -> bool {
        self.tracking.is_some()
    }

    /// How far the gate of each reward (H,) is open; none where nothing is tracked.
    pub fn openings(&self) -> Option<Vec<Opening>> {
        let tracking = self.tracking.as_ref()?;
        Some((0..self.settings.rewards.len()).map(|h| tracking.opening(h)).collect())
    }

    /// What answers with the mixture where a gate is open; none where all are shut, and where its weights would be no numbers.
    /// `posterior` is the base's.
    pub(super) fn mixed(&self, posterior: &Posterior) -> Option<Mixed> {
        let tracking = self.tracking.as_ref()?;
        let (answering, scatter) = tracking.answering_weights(posterior.feature_weights(), posterior.scale().ratio)?;
        let weights = self.in_kernel_values(&answering);
        let sound = weights.is_finite() && scatter.is_finite();
        Some(Mixed { weights, scatter, openings: self.openings()? }).filter(|_| sound)
    }
}
