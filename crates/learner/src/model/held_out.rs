//! What a model states of rows as if it had never learned them: their sums are taken out of its own again.

use super::Model;
use crate::contest::Foretold;
use crate::math::evidence::KeepGoing;
use crate::settings::{Settings, VarianceKind};
use crate::transition::Rows;
use std::ops::Range;

/// Rows looked at between two looks at the stop flag.
const BLOCK: usize = 512;

impl Model {
    /// Dictionary, scale and sums of this model: what its values are made of, and no more. It learns nothing new.
    pub(crate) fn summed(&self) -> Self {
        let mut out = self.without_sums();
        (out.statistics, out.history) = (self.statistics.clone(), self.history.clone());
        out
    }

    /// Its dictionary, which grows no more, and its scale.
    fn without_sums(&self) -> Self {
        let settings =
            Settings { heads: Vec::new(), backfill_rows: 0, variance: VarianceKind::Model, ..self.settings.clone() };
        let mut out = self.closed_without_rows(settings);
        out.weights.scale = self.weights.scale;
        out
    }

    /// Whether it has learned all rows whose offsets are in `offsets`, each once, and they are the last that it has learned.
    fn has_learned(&self, offsets: &Range<u64>) -> bool {
        self.history.as_ref().is_some_and(|history| history.has_all(offsets))
    }

    /// Values of rows `range` and of their successors under the weights that the model would have without them. They are the last
    /// that it has learned, the first at `offset`. None where it has not learned all of them, and where the rest has no solution.
    ///
    /// O(n m^2) for n rows. Where traces run from earlier rows into these, what they gathered stays.
    pub(crate) fn foretell_held_out(
        &self,
        rows: &Rows,
        range: Range<usize>,
        offset: u64,
        keep_going: KeepGoing<'_>,
    ) -> Option<Foretold> {
        if !self.has_learned(&(offset..offset + range.len() as u64)) {
            return None;
        }
        let mut part = self.without_sums();
        for start in range.clone().step_by(BLOCK) {
            if !keep_going() {
                return None;
            }
            let block = start..range.end.min(start + BLOCK);
            part.learn(rows, block, offset + (start - range.start) as u64);
        }
        let mut rest = self.without_sums();
        rest.statistics = self.statistics.clone();
        rest.statistics.subtract(&part.statistics);
        let posterior = rest.solve().ok()?;
        let mut foretold = Foretold::default();
        for start in range.clone().step_by(BLOCK) {
            if !keep_going() {
                return None;
            }
            let block = start..range.end.min(start + BLOCK);
            self.predict(rows, block, posterior.feature_weights(), &mut foretold);
        }
        foretold.values.iter().all(|values| values.iter().all(|v| v.is_finite())).then_some(foretold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::math::dense::dot;
    use crate::math::kernel::Kernel;
    use crate::math::kernel::{Hyperparameters, Metric, NoiseModel};
    use crate::snapshot::Inputs;

    /// Chains of ten rows on a line.
    fn rows(count: usize) -> Rows {
        let mut rows = Rows::new(1, 1);
        let at = |i: usize| (i as f64 * 0.618).sin();
        for i in 0..count {
            rows.states.push(at(i));
            rows.next_states.push(at(i + 1));
            rows.rewards.push((3.0 * at(i)).cos() + 0.1 * at(7 * i));
            rows.discounts.push(f64::NAN);
            rows.ratios.push(1.0);
            rows.streams.push(0);
            rows.starts_chain.push(i % 10 == 0);
            rows.terminated.push(false);
            rows.truncated.push(i % 10 == 9);
        }
        rows
    }

    fn model(settings: &Settings, lambda: f64) -> Model {
        let kernel = Kernel::gaussian(1.0, 10.0, Metric::Isotropic(4.0));
        let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.1 };
        let mut model = Model::new(settings.clone(), Inputs::identity(1), &hyperparameters);
        model.set_lambda(lambda);
        model
    }

    #[test]
    fn rows_that_are_taken_out_leave_no_trace() {
        let plain = Settings { discount: 0.9, dictionary_max: 12, estimate_scale: false, ..Settings::default() };
        let rows = rows(400);
        for (lambda, forgetting) in [(0.0, None), (0.8, None), (0.8, Some(200.0))] {
            let settings = Settings { forgetting, ..plain.clone() };
            let mut all = model(&settings, lambda);
            all.learn(&rows, 0..400, 50);
            let found = all.summed().foretell_held_out(&rows, 300..400, 350, &|| true).unwrap();
            // The same elements and scale, and none of the rows.
            let mut rest = all.without_sums();
            rest.learn(&rows, 0..300, 50);
            let posterior = rest.solve().unwrap();
            let u = posterior.feature_weights();
            // Where rows are forgotten the ridge counts as it did for all.
            let compared = if forgetting.is_none() { &found.values[..] } else { &[] };
            for (k, values) in compared.iter().enumerate() {
                for (states, found) in [(&rows.states, values[0]), (&rows.next_states, values[1])] {
                    let features = rest.basis.features(&rest.basis.inputs.normalise(&states[300 + k..=300 + k]));
                    let expected = dot(features.col(0), u.col(0));
                    assert!((found - expected).abs() < 1e-6, "lambda {lambda}, row {k}: {found} for {expected}");
                }
            }
            for (range, offset) in [(300..399, 350), (300..400, 351), (0..400, 49)] {
                assert!(
                    all.foretell_held_out(&rows, range, offset, &|| true).is_none(),
                    "others than it has learned last"
                );
            }
            all.cut_running_chains();
            all.learn(&rows, 0..100, 500);
            assert!(all.foretell_held_out(&rows, 0..100, 500, &|| true).is_some());
            assert!(all.foretell_held_out(&rows, 0..200, 400, &|| true).is_none(), "rows before a gap");
            assert!(all.foretell_held_out(&rows, 0..100, 500, &|| false).is_none(), "stopped");
        }
    }
}
