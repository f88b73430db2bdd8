//! When a refit or an improvement is due.

use super::Learner;
use crate::refit::RefitTrigger;
use crate::settings::Settings;

/// Share of rows that found the dictionary full, since the last refit ended, that asks for another.
const FULL_SHARE: f64 = 0.02;
/// One over the share of [`Settings::refit_first_rows`] that a first selection needs which does not wait for them.
const EARLY_SHARE: u64 = 8;
/// One over the share of rows that must be new before actions are improved again.
const IMPROVE_SHARE: u64 = 20;
/// The same where an episode has ended among them: how it ended is what the next one needs.
const IMPROVE_SHARE_ENDED: u64 = 100;

impl Learner {
    /// Ask for a refit at the next opportunity.
    pub fn request_refit(&mut self) {
        self.asked.requested = true;
    }

    /// Whether a refit has been asked for and not started.
    pub fn is_refit_requested(&self) -> bool {
        self.asked.requested
    }

    /// Whether a refit should start now, and why. Never while one is running, nor before there is a model.
    pub fn refit_due(&self) -> Option<RefitTrigger> {
        let model = self.model.as_ref()?;
        if self.refit_running() {
            return None;
        }
        if self.asked.requested {
            return Some(RefitTrigger::Requested);
        }
        if self.learned < self.next_refit && self.improvement_due() {
            return Some(RefitTrigger::Improvement);
        }
        // A fork is refitted once it is the model.
        if self.settings.refit_first_rows == 0 || self.is_forked() {
            return None;
        }
        let since = self.learned - self.refit_ended_at.min(self.learned);
        if self.learned >= self.next_refit {
            Some(RefitTrigger::Rows)
        } else if since < self.settings.refit_first_rows {
            None
        } else if self.settings.refit_score_drop > 0.0 && model.score().drop() > self.settings.refit_score_drop {
            Some(RefitTrigger::ScoreDrop)
        } else if model.counts().novel_when_full.saturating_sub(self.no_room_before) as f64
            > FULL_SHARE * since as f64 + 64.0
            && since > self.settings.refit_rows_max / 8
        {
            Some(RefitTrigger::DictionaryFull)
        } else {
            None
        }
    }

    /// Whether enough rows have come since the last sweeps: the number in the settings, and a twentieth of all;
    /// or a hundredth of all, if an episode has ended among them. Both shares let the rows between two improvements grow with the
    /// rows, so that a fast stream does not improve all the time.
    fn improvement_due(&self) -> bool {
        let unswept = self.learned - self.improved_at.min(self.learned);
        let enough = self.settings.improve_rows.max(self.learned / IMPROVE_SHARE);
        let ended = self.episode_ended_at() > self.improved_at;
        self.settings.improves() && (unswept >= enough || ended && unswept >= self.learned / IMPROVE_SHARE_ENDED)
    }

    /// The running refit found nothing: the present model stays, the next refit is due later. All rows so far count as swept over, so
    /// that what fails is not tried again at once; the next improvement sweeps over all of them, as each does.
    pub fn refit_failed(&mut self) {
        (self.asked.score_at_job, self.refits) = (None, self.refits + 1);
        (self.refit_ended_at, self.improved_at) = (self.learned, self.learned);
        self.no_room_before = self.counts().novel_when_full;
        self.schedule();
    }

    /// Whether a first selection may be made with the rows that there are, where those who feed the learner do not want to wait for
    /// [`Settings::refit_first_rows`] of them.
    pub fn may_select_early(&self) -> bool {
        let Settings { refit_first_rows: first, .. } = self.settings;
        let of_states = self.settings.action_value.is_none();
        let never_tried = of_states
            && self.generation_adopted() == 1
            && self.refits == 0
            && !self.refit_running()
            && !self.is_forked();
        never_tried && first > 0 && self.learned - self.first_row >= first.div_ceil(EARLY_SHARE)
    }

    /// When the next refit by row count is due, counted from the end of the last one.
    pub(super) fn schedule(&mut self) {
        self.schedule_after(self.refit_ended_at.saturating_sub(self.following.changed_at()));
    }

    /// When the next refit by row count is due, after one that ended now and that `known` rows were behind.
    pub(super) fn schedule_after(&mut self, known: u64) {
        self.schedule_from(self.refit_ended_at, known, self.settings.refit_first_rows);
    }

    /// The same after a selection that saw the rows before offset `through` and has been adopted: those that came meanwhile ask for the
    /// next one, and few rows that it was made of soon have others beside them.
    pub(super) fn schedule_after_selection(&mut self, through: u64) {
        let known = through.saturating_sub(self.selects_from(through));
        self.schedule_from(through, known, self.settings.refit_first_rows.min(known.max(1)));
    }

    fn schedule_from(&mut self, from: u64, known: u64, least: u64) {
        let Settings { refit_first_rows: first, refit_growth, refit_rows_max, .. } = self.settings;
        let growth = (known as f64 * (refit_growth - 1.0)) as u64;
        let rows = growth.clamp(least, refit_rows_max.max(least));
        self.next_refit = if first == 0 { u64::MAX } else { from + rows };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{ActionSpace, ActionValue, Successor, Trace};
    use crate::learner::{Adoption, Judgement};
    use crate::refit::{self, RefitJob};
    use crate::transition::{Batch, BatchParts};
    use crate::window::Window;
    use crate::{DriftSensitivity, Lambda};

    /// A learner of action values, and the rows that it has been given.
    struct Fed {
        learner: Learner,
        window: Window,
        rows: u64,
    }

    impl Fed {
        fn new(improve_rows: u64) -> Self {
            let space = ActionSpace::Discrete(2);
            let settings = Settings {
                action_value: Some(ActionValue { space, successor: Successor::Improve, trace: Trace::OnPolicy }),
                lambda: Lambda::Fixed(0.0),
                drift_sensitivity: DriftSensitivity::Off,
                refit_first_rows: 100_000,
                dictionary_max: 20,
                warmup_rows: 32,
                improve_rows,
                ..Settings::default()
            };
            Self { learner: Learner::new(settings, None), window: Window::new(1, 1, 1), rows: 0 }
        }

        /// Learn `count` rows of one stream; the last one terminates if `ends`.
        fn feed(&mut self, count: usize, ends: bool) {
            let at = |i: usize| ((self.rows as usize + i) % 17) as f64 / 17.0;
            let parts = BatchParts {
                stream: "s".into(),
                dim: 1,
                rewards_per_row: 1,
                states: (0..count).map(at).collect(),
                next_states: Some((1..=count).map(at).collect()),
                rewards: (0..count).map(at).collect(),
                actions: Some((0..count).map(|i| (i % 2) as f64).collect()),
                terminated: Some((1..=count).map(|i| ends && i == count).collect()),
                ..BatchParts::default()
            };
            self.learner.take(0, &vec![false; count], &Batch::new(parts).unwrap(), self.rows);
            self.rows += count as u64;
            drop(self.learner.step(&self.window));
        }

        fn job(&mut self) -> RefitJob {
            let trigger = self.learner.refit_due().expect("an improvement is due");
            assert_eq!(trigger, RefitTrigger::Improvement);
            self.learner.refit_job(&self.window, trigger).unwrap()
        }

        /// What is recorded of the model that the job finds, once it has learned the rows that came meanwhile.
        fn found(&self, job: &RefitJob) -> Adoption {
            let mut candidate = refit::run(job, &|| true).unwrap();
            candidate.catch_up(self.learner.rows(&self.window), &|| true).unwrap();
            let Judgement::Adopt { adoption, .. } = self.learner.judge(candidate, &self.window) else {
                panic!("no model")
            };
            adoption
        }

        fn improve(&mut self) {
            let job = self.job();
            let adoption = self.found(&job);
            self.learner.adopt(adoption);
        }
    }

    #[test]
    fn an_end_of_an_episode_that_sweeps_did_not_see_makes_another_improvement_due() {
        let mut fed = Fed::new(100);
        fed.feed(110, false);
        let job = fed.job();
        fed.feed(5, true);
        let adoption = fed.found(&job);
        let recorded = rmp_serde::to_vec_named(&adoption).unwrap();
        let mut replayed = fed.learner.clone();
        replayed.adopt(rmp_serde::from_slice(&recorded).unwrap());
        fed.learner.adopt(adoption);
        assert!(rmp_serde::to_vec_named(&replayed).unwrap() == rmp_serde::to_vec_named(&fed.learner).unwrap());
        assert_eq!((fed.learner.improved_at, fed.learner.learned), (110, 115));
        fed.improve();
        assert_eq!((fed.learner.improved_at, fed.learner.refit_due()), (115, None), "all rows are swept over");
    }

    #[test]
    fn rows_of_an_unfinished_episode_wait_until_they_are_enough() {
        let mut fed = Fed::new(100);
        fed.feed(110, true);
        fed.improve();
        fed.feed(99, false);
        assert_eq!(fed.learner.refit_due(), None);
        fed.feed(1, false);
        fed.improve();
        fed.feed(1, false);
        assert_eq!(fed.learner.refit_due(), None);
        // A hundredth of the 213 rows there will be.
        fed.feed(1, true);
        fed.improve();
        assert_eq!(fed.learner.refit_due(), None);
    }

    #[test]
    fn fast_streams_improve_less_and_less_often_although_episodes_end() {
        let mut fed = Fed::new(10);
        fed.feed(110, false);
        let mut when = Vec::new();
        for _ in 0..2000 {
            fed.feed(10, true);
            if fed.learner.improvement_due() {
                when.push(fed.rows);
                fed.learner.improved_at = fed.learner.learned;
            }
        }
        let between = |k: usize| when[k] - when[k - 1];
        assert_eq!((between(10), between(when.len() - 1)), (10, 200));
        assert!(when.len() < 500, "{}", when.len());
    }

    #[test]
    fn an_improvement_that_fails_waits_for_rows_as_another_would_and_none_is_left_out() {
        let mut fed = Fed::new(100);
        fed.feed(110, false);
        drop(fed.job());
        fed.feed(5, true);
        fed.learner.refit_failed();
        assert_eq!(fed.learner.refit_due(), None, "what has failed is not tried again at once");
        fed.feed(1, false);
        assert_eq!(fed.learner.refit_due(), None);
        // A hundredth of all rows, if an episode has ended among them.
        fed.feed(1, true);
        let job = fed.job();
        assert_eq!(job.window.len(), 117, "the rows that failed are swept over too");
        let adoption = fed.found(&job);
        fed.learner.adopt(adoption);
        assert_eq!((fed.learner.improved_at, fed.learner.refit_due()), (117, None));
    }

    #[test]
    fn records_of_before_count_all_rows_as_swept_over() {
        let mut fed = Fed::new(100);
        fed.feed(110, false);
        let job = fed.job();
        fed.feed(5, true);
        let adoption = Adoption { swept_through: None, ..fed.found(&job) };
        let recorded = rmp_serde::to_vec_named(&adoption).unwrap();
        assert!(!String::from_utf8_lossy(&recorded).contains("swept_through"));
        fed.learner.adopt(rmp_serde::from_slice(&recorded).unwrap());
        assert_eq!((fed.learner.improved_at, fed.learner.refit_due()), (115, None));
    }
}
