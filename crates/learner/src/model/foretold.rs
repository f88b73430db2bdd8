//! What a model states of rows before it learns them: values of their states and successors.

use super::Model;
use crate::contest::Foretold;
use crate::math::dense::{Matrix, dot};
use crate::math::posterior::Posterior;
use crate::transition::Rows;
use std::ops::Range;

impl Model {
    /// Learn as [`Model::learn`] does, and say what was stated of the rows before: into `foretold`, which is emptied first.
    pub(crate) fn learn_and_foretell(
        &mut self,
        rows: &Rows,
        range: Range<usize>,
        offset: u64,
        foretold: &mut Foretold,
    ) {
        foretold.clear();
        self.hearers.foretold = Some(std::mem::take(foretold));
        self.learn(rows, range, offset);
        *foretold = self.hearers.foretold.take().expect("put in above");
    }

    /// Say what is stated of the rows that are learned next, if a caller wants to know, and their successors may be others than the
    /// states that learning needs: the row behind one may have taken another action than the policy that is judged.
    pub(super) fn foretell_ahead(&mut self, rows: &Rows, block: Range<usize>) {
        if let Some(mut foretold) = self.hearers.foretold.take_if(|_| self.settings.leaves_chain()) {
            let nothing = Matrix::zeros(self.basis.len(), self.settings.rewards.len());
            let weights = self.posterior().map_or(&nothing, Posterior::feature_weights);
            self.predict(rows, block, weights, &mut foretold);
            self.hearers.foretold = Some(foretold);
        }
    }

    /// Append what weights (m, H) state of rows `range` and their successors.
    pub(crate) fn predict(&self, rows: &Rows, range: Range<usize>, weights: &Matrix, foretold: &mut Foretold) {
        let features = |of: &[f64]| {
            let states = &of[range.start * rows.dim..range.end * rows.dim];
            self.basis.features(&self.basis.inputs.normalise(states))
        };
        let (here, next) = (features(&rows.states), features(&rows.next_states));
        let rule = self.rule();
        for (k, i) in range.enumerate() {
            foretold.values.extend((0..weights.cols()).map(|h| {
                let u = weights.col(h);
                [(&here, rows.state(i)), (&next, rows.next_state(i))]
                    .map(|(features, state)| rule.about(h, state) + dot(&features.col(k)[..u.len()], u))
            }));
        }
        if self.settings.leaves_chain() {
            foretold.features.push(here);
            foretold.constant = self.basis.kernel().constant_variance();
        }
    }
}
