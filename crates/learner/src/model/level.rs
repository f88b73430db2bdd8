//! The level that a model's values are learned about, and whether a scale of them is known.

use super::Model;
use crate::level::About;
use crate::math::posterior::{SIGNAL_MAX, SIGNAL_MIN};
use crate::settings::Settings;
use crate::transition::Rows;
use std::ops::Range;

/// What a model knows of the size of its values before it learns them.
#[derive(Clone, Debug, Default)]
pub(super) struct Level {
    /// What values are learned about (H,), or, beside a mean function, heads of rewards alone; none for 0.
    pub(super) about: Vec<f64>,
    /// Whether all rewards have been 0 so far, so that nothing is known of a scale.
    pub(super) unscaled: bool,
}

impl Model {
    /// Values are those about this level (H,), none for 0, of the rewards of `settings`, among `count` in each row: what it has learned
    /// so far was about it already.
    pub(crate) fn set_level(&mut self, level: Vec<f64>, settings: &Settings, count: usize) {
        self.level.about = level;
        self.read_rewards(settings, count);
        if let Some(branch) = &mut self.branch {
            branch.read_rewards(settings, count);
            branch.settings.mean = None;
        }
    }

    /// Rows that come from here on have their rewards where `settings` say.
    fn read_rewards(&mut self, settings: &Settings, count: usize) {
        (self.settings.rewards, self.settings.centred) = (settings.rewards.clone(), settings.centred);
        (self.settings.mean, self.settings.about_mean) = (settings.mean.clone(), settings.about_mean);
        if let Some(heads) = &mut self.heads {
            heads.keep_rewards(count);
        }
    }

    /// The rows with rewards about its mean function or level in the place of their own.
    pub fn about_level(&self, rows: &Rows) -> Rows {
        let (mut about, rule) = (rows.clone(), self.rule());
        for i in 0..rows.len() {
            for (h, column) in self.settings.rewards.iter().enumerate() {
                about.rewards[i * rows.rewards_per_row + column] = rule.reward(rows, i, h);
            }
        }
        about
    }

    /// What its rewards are about; none for 0.
    pub(super) fn about(&self) -> Option<About> {
        About::of(&self.settings, &self.level.about)
    }

    /// The level (H,) of its values; empty for 0, and where they are about a mean function.
    pub fn level(&self) -> &[f64] {
        if self.settings.mean.is_some() { &[] } else { &self.level.about }
    }

    /// Say that nothing is known of a scale: there is no deviation until a reward other than 0 comes.
    pub(crate) fn lack_scale(&mut self) {
        self.level.unscaled = true;
    }

    /// Whether nothing is known of a scale: all rewards have been 0 so far.
    pub fn lacks_scale(&self) -> bool {
        self.level.unscaled
    }

    /// Where no scale was known, take the first reward in these rows that is not 0: values may be that large.
    pub(super) fn find_scale(&mut self, rows: &Rows, block: Range<usize>) {
        let (rewards, rule) = (self.settings.rewards.len(), self.rule());
        let mut all = block.flat_map(|i| (0..rewards).map(move |h| rule.reward(rows, i, h).abs()));
        if let Some(first) = all.find(|reward| *reward > 0.0) {
            self.level.unscaled = false;
            self.weights.scale.signal = (first * first).clamp(SIGNAL_MIN, SIGNAL_MAX);
        }
    }
}
