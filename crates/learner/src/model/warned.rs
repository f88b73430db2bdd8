//! The alarms of a critic, while its model learns rows as they come.

use super::Model;
use super::nodes::Nodes;
use super::pass::{Arrival, ChainEnd, Pass};
use super::returns::Answers;
use super::streams::stream_of;
use crate::contest::Foretold;
use crate::warning::{SeenRow, Stated, Warnings};

/// Who hears of rows while a model learns them: each only where the caller asks for it.
#[derive(Clone, Debug, Default)]
pub(super) struct Hearers {
    /// What is stated of rows before they are learned.
    pub(super) foretold: Option<Foretold>,
    /// The alarms about rows as they come.
    pub(super) warnings: Option<Box<Warnings>>,
}

impl Model {
    /// Ask these alarms about the rows that are learned next.
    pub(crate) fn warn_with(&mut self, warnings: Option<Box<Warnings>>) {
        self.hearers.warnings = warnings;
    }

    /// Ask no alarm any more: those there were.
    pub(crate) fn warn_no_more(&mut self) -> Option<Box<Warnings>> {
        self.hearers.warnings.take()
    }
}

impl Pass<'_> {
    /// The alarm about the first reward sees a row of this importance ratio, in the unit of rewards: levels change with models.
    pub(super) fn warn(&mut self, row: Arrival<'_>, nodes: &Nodes, ratio: f64, offset: u64) {
        let warnings = self.warnings.as_deref_mut().filter(|_| !self.rule.settings.heads_alone);
        let Some(warner) = warnings.and_then(Warnings::of_values) else { return };
        let Arrival { rows, i, k, .. } = row;
        let answers = Answers { posterior: self.weights.posterior.as_ref(), tracking: self.tracking.as_deref() };
        let features = nodes.features.col(nodes.of_rows[k].state);
        let seen = SeenRow {
            stream: rows.streams[i],
            offset,
            time: rows.times.get(i).copied().unwrap_or(f64::NAN),
            decay: 1.0,
            reward: rows.reward(i)[self.rule.settings.rewards[0]],
            discount: rows.follows(i, self.rule.settings.discount),
            ratio,
        };
        let stated = self.returns.stated(0, features, answers, self.basis.kernel());
        let about = || self.rule.about(0, rows.state(i));
        warner.see(&seen, stated.map(|of| Stated { mean: of.mean + about(), ..of }));
    }

    /// The chain of `slot` is cut before the row at `offset`, at this place.
    pub(super) fn cut_warned(&mut self, slot: usize, place: ChainEnd<'_>, offset: u64) {
        let warnings = self.warnings.as_deref_mut().filter(|_| !self.rule.settings.heads_alone);
        let Some(warner) = warnings.and_then(Warnings::of_values) else { return };
        let answers = Answers { posterior: self.weights.posterior.as_ref(), tracking: self.tracking.as_deref() };
        let about = || self.rule.about_normalised(0, &self.basis.inputs, place.state);
        let value = answers.posterior.map(|_| answers.value(place.features, 0) + about());
        warner.cut(stream_of(&self.streams.slot_of, slot), offset, 1.0, value);
    }
}
