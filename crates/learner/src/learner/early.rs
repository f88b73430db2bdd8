//! Answers from the first row on: until there are rows enough for the first model, one of the rows so far answers.
//!
//! The learner makes it as it makes the first model ((N8) of docs/mathematics.md), of fewer rows, and makes it anew as rows come. So it
//! depends on its rows alone. No refit begins with it, and nothing else learns from it.

use super::Learner;
use crate::math::returns::ends;
use crate::model::Model;
use crate::refit;
use crate::settings::Settings;
use crate::transition::Rows;
use crate::window::Window;
use serde::{Deserialize, Serialize};

/// One over the share of the rows that it may lack, where they are more: else a long warm-up would make a model for each of its
/// rows.
const LACKING: u64 = 16;
/// A first model is made anew of at most this many rows: more take longer than a row may wait for.
const ANEW_ROWS: u64 = 4096;

/// What answers before the first model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Early {
    pub(super) model: Box<Model>,
    /// Rows that it is made of.
    rows: u64,
}

/// Whether no chain ends among the first `count` rows of a critic that looks ahead, but not for ever.
fn goes_on(settings: &Settings, rows: &Rows, count: usize) -> bool {
    let mut first = Rows::new(rows.dim, rows.rewards_per_row);
    first.extend(rows, 0..count);
    settings.discount > 0.0 && settings.discount < 1.0 && ends(&first, settings.discount) == 0
}

impl Learner {
    /// A model of the first `count` of `all` rows, which begin at offset `first`, before anything has been selected.
    pub(super) fn guess(&self, settings: Settings, all: &Rows, count: usize, first: u64) -> Model {
        let mut rows = Rows::new(all.dim, all.rewards_per_row);
        rows.extend(all, 0..count);
        let level = settings.level_of(&rows);
        let (inputs, mut guess) = refit::first_hyperparameters(&rows, &settings, &level, self.names.clone());
        let goes_on = goes_on(&settings, &rows, count);
        let lines = settings.linear_columns.compared(settings.improves() || settings.about_mean).contains(&true);
        if goes_on && lines && settings.selects_by_returns() && settings.action_value.is_none() {
            // What tracks a stream steps along lines. Where chains end there is nothing to track before a refit.
            let variance = guess.kernel.signal_variance;
            guess.kernel = guess.kernel.with_linear_columns(rows.dim, variance, settings.line());
        }
        let mut model = Model::new(settings.clone(), inputs, &guess);
        if settings.lacks_scale(&rows) {
            model.lack_scale();
        }
        model.set_level(level, &settings, rows.rewards_per_row);
        model.want_heads(&settings.heads);
        if self.settings.discount == 0.0 || goes_on {
            // What tracks the stream need not wait for a refit: a row is all that there is to a return, or the next rows are the world.
            model.track(&rows);
        }
        // With their actions and labels, which the rows that are only looked at lack.
        model.learn(all, 0..count, first);
        model.refresh();
        model
    }

    /// Make the first model anew of all rows of `window` before offset `end` each time that they have doubled, where the stream goes on
    /// and no refit has ended: few rows gave it its scales, and trackers half-lives of no more. The doublings that are missed
    /// make no model. What is heard beside a model, heads, alarms and policies, goes on with the model that there is.
    pub(super) fn begin_anew(&mut self, window: &Window, end: u64) {
        let is_stopgap = self.model.is_some()
            && self.generation_adopted() == 1
            && self.refits == 0
            && self.settings.refit_first_rows > 0;
        let is_alone = self.settings.action_value.is_none()
            && self.settings.heads.is_empty()
            && self.policies.is_empty()
            && self.following.is_plain();
        let first = self.first_row;
        if !is_stopgap || !is_alone || window.start() > first {
            return;
        }
        // Counted in rows, so that it does not matter how they were batched.
        let (there, warmup) = (window.count(first..end), self.settings.warmup_rows.max(1) as u64);
        let (most, learned) = ((there.min(ANEW_ROWS) / warmup).max(1).ilog2(), window.count(first..self.learned));
        if warmup << most <= learned {
            return;
        }
        let rows = window.flatten_since(first);
        let makes = |known: u64| known > learned && goes_on(&self.settings, &rows, known as usize);
        let Some(doublings) = (1..=most).rev().find(|&doublings| makes(warmup << doublings)) else { return };
        let (known, doublings) = (warmup << doublings, u64::from(doublings));
        let mut anew = self.guess(self.settings.clone(), &rows, known as usize, first);
        anew.learned_between(first, first, window.holes());
        self.model = Some(Box::new(anew));
        self.learned = window.behind(first, known);
        // Its dictionary is another one, which clients know generations by.
        self.generation += doublings - self.following.doublings;
        self.following.doublings = doublings;
        self.set_selected(false);
        self.full_reported = false;
        self.asked.restart_score();
    }

    /// Answer with what the rows of `window` before offset `end` give, too few for the first model. Not for values of actions: who acts
    /// by them waits for a model.
    pub(super) fn answer_early(&mut self, window: &Window, end: u64) {
        let first = self.first_row.max(window.start());
        let there = window.count(first..end);
        let rows = there - there % (there / LACKING).next_power_of_two();
        if self.settings.action_value.is_some() || self.early.as_ref().is_some_and(|early| early.rows == rows) {
            return;
        }
        self.early = None;
        if rows == 0 {
            return;
        }
        let most = |of: usize| of.min(rows as usize);
        let settings = Settings {
            dictionary_max: most(self.settings.dictionary_max),
            backfill_rows: most(self.settings.backfill_rows),
            ..self.settings.clone()
        };
        let seen = &window.flatten_since(first);
        let mut model = Box::new(self.guess(settings, seen, rows as usize, first));
        let rewards = |i: usize| self.settings.rewards.iter().map(move |&column| seen.reward(i)[column]);
        if self.settings.mean.is_none()
            && !(1..rows as usize).any(|i| seen.terminated[i - 1] || rewards(i).ne(rewards(0)))
        {
            // Their returns cannot differ, and so few do not tell whether others will.
            model.lack_scale();
        }
        self.early = model.is_sound().then_some(Early { model, rows });
    }
}
