//! The alarms about heads, while their rows are learned.

use super::{Bank, Block};
use crate::warning::{SeenRow, Stated, Warnings};

/// The alarms about heads of one bank.
pub(super) struct Warned<'a> {
    warnings: Option<&'a mut Warnings>,
    /// Of each alarm its number, and the group and the column of its head.
    pub(super) places: Vec<(usize, usize, usize)>,
}

impl Warned<'_> {
    /// A row has arrived for group number `g`. The others say of a column what its head earns with the row, and what it predicts.
    pub(super) fn see(
        &mut self,
        g: usize,
        row: &SeenRow,
        earned: impl Fn(usize) -> f64,
        stated: impl Fn(usize) -> Option<Stated>,
    ) {
        let Some(warnings) = &mut self.warnings else { return };
        for &(alarm, _, column) in self.places.iter().filter(|of| of.1 == g) {
            warnings.at(alarm).see(&SeenRow { reward: earned(column), ..*row }, stated(column));
        }
    }

    /// The chain of a stream is cut before the row `at` for group number `g`. `value` says of a column what its head predicts there.
    fn cut(&mut self, g: usize, at: &SeenRow, value: impl Fn(usize) -> Option<f64>) {
        let Some(warnings) = &mut self.warnings else { return };
        for &(alarm, _, column) in self.places.iter().filter(|of| of.1 == g) {
            warnings.at(alarm).cut(at.stream, at.offset, at.decay, value(column));
        }
    }
}

/// Row `i` of a block, its number `k` there, as alarms see it: it pays nothing yet.
pub(super) fn seen(block: &Block<'_>, k: usize, i: usize, decay: f64) -> SeenRow {
    SeenRow {
        // Rows that come from no stream, as in sums that are only looked at, are of one.
        stream: block.rows.streams.get(i).copied().unwrap_or(0),
        offset: block.offset + k as u64,
        time: block.rows.times.get(i).copied().unwrap_or(f64::NAN),
        decay,
        reward: 0.0,
        discount: if block.rows.terminated[i] { 0.0 } else { 1.0 },
        ratio: 1.0,
    }
}

impl Bank {
    /// The `warnings` that are about its heads; `places` is memory for where these are.
    pub(super) fn warned<'a>(
        &self,
        warnings: Option<&'a mut Warnings>,
        mut places: Vec<(usize, usize, usize)>,
    ) -> Warned<'a> {
        let place = |(alarm, name): (usize, &str)| {
            let head = self.heads.iter().position(|head| head.name == name)?;
            let (g, column) = self.place(head);
            Some((alarm, g, column))
        };
        places.clear();
        places.extend(warnings.iter().flat_map(|of| of.heads()).filter_map(place));
        Warned { warnings, places }
    }

    /// The chain of group number `g` to which row `i` of a block, its number `k` there, belongs is cut at a state of these features (m,).
    pub(super) fn cut_warned(
        &self,
        g: usize,
        block: &Block<'_>,
        (k, i): (usize, usize),
        features: &[f64],
        warned: &mut Warned<'_>,
    ) {
        let decay = self.statistics.groups[g].chains()[block.nodes[k].slot].discount;
        let level = |column: usize| self.rules[g].columns[column].level;
        warned.cut(g, &seen(block, k, i, decay), |column| {
            Some(self.verified.value(g, column, features)? + level(column))
        });
    }
}
