//! Answers from the first row on: until there are rows enough for the first model, one of the rows so far answers.
//!
//! The learner makes it as it makes the first model ((N8) of docs/mathematics.md), of fewer rows, and makes it anew as rows come. So it
//! depends on its rows alone. No refit begins with it, and nothing else learns from it.

use super::Learner;
use crate::model::Model;
use crate::refit;
use crate::settings::Settings;
use crate::transition::Rows;
use crate::window::Window;
use serde::{Deserialize, Serialize};

/// One over the share of the rows that it may lack, where they are more: else a long warm-up would make a model for each of its
/// rows.
const LACKING: u64 = 16;

/// What answers before the first model.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Early {
    pub(super) model: Box<Model>,
    /// Rows that it is made of.
    rows: u64,
}

impl Learner {
    /// A model of the first `count` of `all` rows, which begin at offset `first`, before anything has been selected.
    pub(super) fn guess(&self, settings: Settings, all: &Rows, count: usize, first: u64) -> Model {
        let mut rows = Rows::new(all.dim, all.rewards_per_row);
        rows.extend(all, 0..count);
        let level = settings.level_of(&rows);
        let (inputs, guess) = refit::first_hyperparameters(&rows, &settings, &level, self.names.clone());
        let mut model = Model::new(settings.clone(), inputs, &guess);
        if settings.lacks_scale(&rows) {
            model.lack_scale();
        }
        model.set_level(level, &settings, rows.rewards_per_row);
        model.want_heads(&settings.heads);
        if self.settings.discount == 0.0 {
            // A row is all that there is to a return: what tracks the stream need not wait for a refit.
            model.track(&rows);
        }
        // With their actions and labels, which the rows that are only looked at lack.
        model.learn(all, 0..count, first);
        model.refresh();
        model
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
