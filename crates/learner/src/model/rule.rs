//! How rows enter the sums of a model: ratios, traces and rewards, as its settings have them.

use super::basis::Basis;
use super::errors::Errors;
use super::nodes::Collected;
use crate::math::kernel::NoiseModel;
use crate::math::level::about;
use crate::math::statistics::Statistics;
use crate::settings::Settings;
use crate::snapshot::Inputs;
use crate::transition::Rows;

/// How rows enter the sums.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule<'a> {
    pub(super) settings: &'a Settings,
    pub(super) noise: NoiseModel,
    /// lambda of the recursion.
    pub(super) lambda: f64,
    /// What rewards are learned about (H,) where the settings have no mean function; none for 0.
    pub(super) level: &'a [f64],
}

impl Rule<'_> {
    /// The critic's reward number `h` of row i, about the mean function or the level.
    pub(super) fn reward(&self, rows: &Rows, i: usize, h: usize) -> f64 {
        if let Some(mean) = &self.settings.mean {
            return mean.rewards(rows, i..i + 1, self.settings.rewards[h], self.settings.discount)[0];
        }
        let reward = rows.reward(i)[self.settings.rewards[h]];
        match self.level.get(h) {
            Some(mu) => about(reward, *mu, rows.follows(i, self.settings.discount)),
            None => reward,
        }
    }

    /// What value number `h` of a state is about.
    pub(super) fn about(&self, h: usize, state: &[f64]) -> f64 {
        match &self.settings.mean {
            Some(mean) => mean.at(state),
            None => self.level.get(h).copied().unwrap_or(0.0),
        }
    }

    /// The same of a normalised state.
    pub(super) fn about_normalised(&self, h: usize, inputs: &Inputs, state: &[f64]) -> f64 {
        match self.settings.mean {
            Some(_) => self.about(h, &inputs.restored(state)),
            None => self.about(h, &[]),
        }
    }

    /// Importance ratio of row i, clipped; 1 under white noise, whose differences no trace runs through.
    pub(super) fn ratio(&self, rows: &Rows, i: usize) -> f64 {
        // Ratios weight the rows of the critic, and not the rows of heads.
        if self.noise == NoiseModel::White || self.settings.heads_alone {
            1.0
        } else {
            rows.ratio(i, self.settings.ratio_max())
        }
    }

    /// c of row i: how much of the trace flows into it.
    pub(super) fn carry(&self, rows: &Rows, i: usize) -> f64 {
        match self.noise {
            NoiseModel::White => 1.0,
            NoiseModel::Correlated if self.settings.heads_alone => self.lambda,
            NoiseModel::Correlated => self.lambda * rows.carry(i, self.settings.ratio_max()),
        }
    }

    /// What decides which states of a block are needed.
    pub(super) fn collected<'a>(&self, basis: &'a Basis, statistics: &Statistics, errors: &Errors) -> Collected<'a> {
        Collected {
            basis,
            white: self.noise == NoiseModel::White,
            follows_rows: statistics.follows_rows,
            clusters: errors.scatter.clusters(),
            rewards: self.settings.rewards.len(),
        }
    }
}
