//! What a refit is asked, and the candidate that it answers with.

use super::error::RefitError;
use super::report::{RefitReport, RefitTrigger};
use super::{CATCH_UP_ROWS, ROWS_MIN, SEARCH_SHARE, WORLD_SHARE};
use crate::allowance::Allowance;
use crate::heads::Head;
use crate::improve::Acting;
use crate::level::About;
use crate::math::evidence::KeepGoing;
use crate::math::kernel::Hyperparameters;
use crate::model::{Model, PolicyChanges, Score};
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::transition::Rows;
use crate::watch::Alarm;
use crate::window::Window;
use crate::world::{Live, WorldError};
use std::borrow::Cow;
use std::ops::Range;

/// Half-lives of rows that a refit looks at where rows are forgotten: those before them have 0.4 % of the weight.
const HALF_LIVES: f64 = 8.0;
/// Rows that a candidate is caught up with at once at most: this number, or a multiple of the rows that it was made of. With
/// the rows of a stream that is faster the next refit, which is due then, is soon made.
const FOLLOWED_MAX: u64 = 16_384;
const FOLLOWED_TIMES: u64 = 4;
/// Rows of a refit for each second of its budget.
const ROWS_A_SECOND: f64 = 512.0;

/// Everything a refit reads: it owns what it needs, the learner goes on meanwhile.
#[derive(Clone, Debug)]
pub struct RefitJob {
    /// The critic's settings.
    pub settings: Settings,
    /// The retained rows.
    pub window: Window,
    /// Rows before this offset are of a world that is no more, or of policies that act no more: they are left out.
    pub from: u64,
    /// Rows before this offset are of another world, as far as is known: what leads where is learned without them. Rows of all policies
    /// count alike there.
    pub world_from: u64,
    /// The present value function: closes cut chains and is the one to beat.
    pub current: Snapshot,
    /// The sums of the present model, to be tried on rows that did not choose the new one; none where nothing has been selected for
    /// it.
    pub present: Option<Box<Model>>,
    /// The second kernel of the present model, if some of its heads have one.
    pub second: Option<SecondKernel>,
    /// Rows from before the window that end episodes, and those that led there: improvement looks at them too.
    pub endings: Rows,
    /// What its rewards are about, where they stand behind the window's own.
    pub about: Option<About>,
    /// Names of the state variables, if they have names.
    pub names: Option<Vec<String>>,
    /// Why now.
    pub trigger: RefitTrigger,
    /// Share of the largest dictionary that may be filled: 1 where nothing more will be learned.
    pub dictionary_share: f64,
    /// Seed of the subset and of the random starts.
    pub seed: u64,
}

/// A kernel that some heads have instead of the values' kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct SecondKernel {
    /// In the normalised coordinates of the present model.
    pub hyperparameters: Hyperparameters,
    /// Names of these heads.
    pub heads: Vec<String>,
}

impl SecondKernel {
    /// The second kernel of a model; none where all heads share one.
    pub(crate) fn of(model: &Model) -> Option<Self> {
        let of = |branch: &Model| Self {
            hyperparameters: branch.hyperparameters(),
            heads: branch.all_heads().map(|head| head.name.clone()).collect(),
        };
        model.branch().map(of)
    }

    /// Whether a head has it.
    pub(super) fn is_of(&self, head: &Head) -> bool {
        self.heads.contains(&head.name)
    }
}

impl RefitJob {
    /// What the search may spend. The whole budget is for critics of actions, critics with heads, selections by evidence, and refits that a
    /// client has requested. Other refits have a second of it for each 512 rows that they look at, and at least one: a model of few rows is
    /// wanted soon, and soon followed by one of more.
    ///
    /// # Panics
    /// If the budget of the settings is negative, or no number.
    pub fn allowance(&self) -> Allowance {
        let Settings { refit_budget_s: budget, action_value, .. } = &self.settings;
        let by_returns = self.settings.selects_by_returns() && !self.settings.learns_heads() && action_value.is_none();
        let seconds = if by_returns && self.trigger != RefitTrigger::Requested {
            let rows = self.window.count(self.first()..self.window.end());
            budget.min((rows as f64 / ROWS_A_SECOND).max(1.0))
        } else {
            *budget
        };
        Allowance::of_seconds(SEARCH_SHARE * seconds)
    }

    /// Most elements of the rebuilt dictionary.
    pub(super) fn room(&self) -> usize {
        ((self.settings.dictionary_max as f64 * self.dictionary_share) as usize).max(1)
    }

    /// The same question of other rows, on which no model has been tried.
    pub(super) fn asked_of(&self, window: Window) -> Self {
        Self {
            settings: self.settings.clone(),
            window,
            current: self.current.clone(),
            present: None,
            second: self.second.clone(),
            names: self.names.clone(),
            endings: Rows::default(),
            about: self.about.clone(),
            trigger: self.trigger,
            dictionary_share: self.dictionary_share,
            from: self.from,
            world_from: self.world_from,
            seed: self.seed,
        }
    }

    /// The same question of values about the mean of the settings, or `level` (H,), none for 0.
    pub(super) fn about(&self, level: &[f64]) -> Self {
        let mut job = Self { settings: Settings { centred: false, ..self.settings.clone() }, ..self.clone() };
        if let Some(about) = About::of(&self.settings, level) {
            let (first, before) = (self.window.rewards_per_row(), &self.current.level);
            job.settings = about.settings(&self.settings, first);
            // The present values are about the mean of the settings, too.
            let moved = if about.mean.is_some() { &[] } else { level };
            job.current.level =
                moved.iter().enumerate().map(|(h, mu)| before.get(h).copied().unwrap_or(0.0) - mu).collect();
            job.current.mean = None;
            if let Some(present) = &mut job.present {
                let width = first + about.columns.len();
                present.set_level(job.current.level.clone(), &job.settings, width);
            }
            if !job.endings.is_empty() {
                job.endings = about.rows(job.endings);
            }
            job.about = Some(about);
        }
        job
    }

    /// All rows that it looks at, as they came.
    pub(super) fn all_rows(&self) -> Rows {
        let mut rows = self.window.flatten_since(self.first());
        if !self.endings.is_empty() {
            rows.extend(&self.endings, 0..self.endings.len());
        }
        rows
    }

    /// The rows of the window that it looks at.
    pub(super) fn rows(&self) -> Rows {
        let rows = self.window.flatten_since(self.first());
        match &self.about {
            Some(about) => about.rows(rows),
            None => rows,
        }
    }

    /// A piece of the window as it looks at it.
    pub(super) fn seen<'a>(&self, rows: &'a Rows) -> Cow<'a, Rows> {
        self.about.as_ref().map_or(Cow::Borrowed(rows), |about| Cow::Owned(about.rows(rows.clone())))
    }

    /// What was found in the window.
    pub(super) fn candidate(&self, mut model: Model, report: RefitReport) -> Candidate {
        model.learned_between(self.numbered_from(), self.first(), self.window.holes());
        // Where a head's system cannot be solved, noise and scale of all heads stay as the pass had them.
        let _ = model.tune_heads();
        let through = self.window.end();
        Candidate {
            model: Box::new(model),
            selected_through: through,
            through,
            from: self.first(),
            alarm: None,
            acting: None,
            rounds: 0,
            was_behind: 0,
            report,
            swept_through: None,
            policies: Box::default(),
            world: None,
        }
    }

    /// Number of the first of the rows that it looks at, where these are numbered without holes and the last one by its offset: so old
    /// are they, where rows are forgotten.
    pub(super) fn numbered_from(&self) -> u64 {
        let (first, end) = (self.first(), self.window.end());
        end - self.window.count(first..end)
    }

    /// Offset of the row that has this number.
    pub(super) fn offset_of(&self, number: u64) -> u64 {
        let (first, before) = (self.first(), number - self.numbered_from());
        self.window.behind(first, before + 1) - 1
    }

    /// Offset of the first row that it looks at: none before [`RefitJob::from`]. With forgetting: the first row
    /// of the last [`HALF_LIVES`] half-lives, whose rows count alike in the selection, and by their age when the model is
    /// rebuilt.
    pub(super) fn first(&self) -> u64 {
        let (start, end) = (self.window.start(), self.window.end());
        let least = self.settings.warmup_rows.max(ROWS_MIN) as u64;
        let rows = self.settings.forgetting.map_or(u64::MAX, |rows| ((HALF_LIVES * rows) as u64).max(least));
        start.max(end.saturating_sub(rows)).max(self.from.min(end))
    }
}

/// A model ready to be caught up, judged and adopted.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The rebuilt model; its score counts from [`Candidate::through`] on.
    pub model: Box<Model>,
    /// It was made of rows before this offset, at which the refit was started.
    pub selected_through: u64,
    /// It has learned the rows before this offset.
    pub through: u64,
    /// Offset of the first row that it was made of.
    pub from: u64,
    /// The change that the rows before that offset were left out for, where it was found among the rows of this refit.
    pub alarm: Option<Alarm>,
    /// The weights that choose actions, if the job improved them.
    pub acting: Option<Acting>,
    /// Times it has been caught up so far.
    pub rounds: u32,
    /// Rows that it was behind before the last of them.
    pub(crate) was_behind: u64,
    /// How it was found.
    pub report: RefitReport,
    /// Offset behind the last row that the sweeps saw, if the job improved: catching up learns rows, and sweeps over none.
    pub swept_through: Option<u64>,
    /// Changes of policy since the refit was started.
    pub policies: Box<PolicyChanges>,
    /// The model of the transition, if the job has made one.
    pub(crate) world: Option<Box<Live>>,
}

impl Candidate {
    /// Learn what the rows of the job say of where actions lead, where the critic is to learn that, and report why not if they do not say
    /// it. An improvement selects nothing.
    pub(super) fn learn_world(&mut self, job: &RefitJob, keep_going: KeepGoing<'_>) -> Result<(), RefitError> {
        if !job.settings.world || job.trigger == RefitTrigger::Improvement {
            return Ok(());
        }
        let changed_at = self.alarm.as_ref().map_or(0, |_| self.from);
        let from = changed_at.max(job.world_from);
        let allowance = &Allowance::of_seconds(WORLD_SHARE * job.settings.refit_budget_s);
        self.report.world = Some(match Live::chosen(&job.window, from, &job.settings, (keep_going, allowance)) {
            Ok((live, choice)) => {
                self.world = Some(Box::new(live));
                Ok(choice)
            }
            Err(WorldError::Stopped) => return Err(RefitError::Stopped),
            Err(why) => Err(why),
        });
        Ok(())
    }

    /// Learn the rows of `window` from [`Candidate::through`] on, and refresh: this may take its time. Left out are rows that the window
    /// has forgotten by now, and, of many more than it was made of, all but the last.
    ///
    /// # Errors
    /// Stopped: `keep_going`, asked every 512 rows, says so.
    pub fn catch_up(&mut self, window: &Window, keep_going: KeepGoing<'_>) -> Result<(), RefitError> {
        self.was_behind = window.end() - self.through;
        let most = FOLLOWED_MAX.max(FOLLOWED_TIMES * self.report.rows);
        self.skip_to(window.start().max(window.end().saturating_sub(most)));
        for (rows, range, offset) in window.since(self.through) {
            for start in range.clone().step_by(CATCH_UP_ROWS) {
                if !keep_going() {
                    return Err(RefitError::Stopped);
                }
                let part = start..range.end.min(start + CATCH_UP_ROWS);
                self.learn(rows, part, offset + (start - range.start) as u64);
            }
        }
        self.go_through_policies();
        if let Some(world) = &mut self.world {
            world.learn(window, self.model.settings());
        }
        // The next refresh is then a whole interval away, and not in the pause of the adoption.
        self.model.refresh();
        self.rounds += 1;
        Ok(())
    }

    /// Leave out the rows up to `offset`, if it is not that far yet: chains end before them.
    pub fn skip_to(&mut self, offset: u64) {
        if offset > self.through {
            self.model.cut_running_chains();
            self.report.rows_left_out += offset - self.through;
            self.through = offset;
        }
    }

    /// Learn the last few rows, between two batches.
    ///
    /// # Panics
    /// If the window has forgotten those rows.
    pub fn take_tail(&mut self, window: &Window) {
        for (rows, range, offset) in window.since(self.through) {
            self.learn(rows, range, offset);
        }
        self.through = window.end();
        self.go_through_policies();
    }

    /// Learn rows, the first of which has offset `offset`, and go through the changes of policy among them.
    fn learn(&mut self, rows: &Rows, range: Range<usize>, offset: u64) {
        let mut start = range.start;
        while start < range.end {
            self.through = offset + (start - range.start) as u64;
            self.go_through_policies();
            let next = self.policies.next().map_or(u64::MAX, |change| change.offset);
            let end = range.end.min(start + usize::try_from(next - self.through).unwrap_or(usize::MAX).min(rows.len()));
            self.model.learn(rows, start..end, self.through);
            self.through += (end - start) as u64;
            start = end;
        }
    }

    /// Make of the model what the changes of policy up to the next row have made of the present one.
    fn go_through_policies(&mut self) {
        while let Some(change) = self.policies.next().filter(|change| change.offset <= self.through) {
            if let Some(makes) = &change.makes {
                makes.of(&mut self.model);
            }
            self.policies.done += 1;
        }
    }

    /// Whether there is a change of policy that it has not gone through, which takes a solution.
    pub(crate) fn lacks_policy(&self) -> bool {
        self.policies.next().is_some()
    }

    /// Score of rows that it has seen only after it was fitted.
    pub fn score(&self) -> Score {
        self.model.score()
    }
}
