//! A world that changes: an alarm begins a fork, the fork becomes the model, the old model is kept and may come back.
//!
//! A fork has the kernel and the dictionary of the model and statistics of its own, which begin where the change probably
//! happened. Both learn, the model answers. The fork becomes the model as soon as it clearly foretells returns better
//! ([`Contest`]), or once it has learned enough rows and foretells them no worse; the old model is set aside under a name. A
//! fork that stays behind is dismissed: not every change of errors is one of values. A critic of another policy than the one that
//! acts goes by rewards, since it has no returns, and its fork must clearly be better: errors change with the acting policy, too,
//! and the rows from before are then as good as those since. When an alarm comes, and until the fork
//! takes over, the models that were set aside are tried on the last rows: one whose errors are as they were when it was healthy
//! takes over instead. What is set aside is the model as it was before the change: now and then a copy of it is kept, since an
//! alarm comes some hundred rows after the change, and a swap more than a thousand, all of which the model has learned.
//!
//! All of it happens where the weights are refreshed, and is a function of rows, offsets and settings: no record of it is
//! needed to do it again.

use super::removal::Residue;
use super::{Event, Learner, Settings};
use crate::contest::{Contest, Foretold};
use crate::heads::Head;
use crate::math::dense::Matrix;
use crate::math::drift::split;
use crate::model::Model;
use crate::settings::rows_of_its_own;
use crate::transition::Rows;
use crate::warning::{WarningSettings, Warnings};
use crate::watch::Alarm;
use crate::window::Window;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Rows up to the alarm that a fork begins with where no row divides the errors clearly: the rows that the change has probably
/// lasted, between these.
const BEFORE_ALARM_MIN: u64 = 128;
const BEFORE_ALARM_MAX: u64 = 1024;
/// Rows before the last one learned that the learner may have to look at again: the change is looked for among them.
const LOOK_BACK: u64 = 2048;
/// Lead in the contest with which a fork takes over at once, standard errors.
const LEAD_CLEAR: f64 = 2.5;
/// A fork that has not taken over with this multiple of the rows that it needs is dismissed.
const PATIENCE: u64 = 4;
/// Models that are set aside at most; the one that has been for longest makes room.
pub const KEPT_MAX: usize = 3;
/// Copies of the model as it was that are kept at most: one may be of a moment after the change.
pub const COPIES_MAX: usize = 2;
/// Rows between two copies: this share of the rows that the model has learned, between these.
const COPY_SHARE: u64 = 8;
const COPY_ROWS_MIN: u64 = 1024;
const COPY_ROWS_MAX: u64 = 8192;
/// Rows that a model which was set aside is tried on, at most and at least.
const TRIAL_ROWS: u64 = 512;
const TRIAL_ROWS_MIN: u64 = 320;
/// A kept model is reinstated if its errors lie within this many standard deviations of normal and it clearly wins the comparison
/// with the present one, since a change of noise alone fits several models.
const FITS_WITHIN: f64 = 3.0;

/// A model that learns beside the one that answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Fork {
    model: Box<Model>,
    /// Offset of its first row.
    from: u64,
    /// Offset at which the world has probably changed; a file from before does not tell.
    #[serde(default)]
    since: u64,
    /// Offset since which its rows count for the verdict, if that is before its first row: the watch's guess of the change may be
    /// some blocks early, and a fork that leaves out those rows must not take over later for it. A file from before has none.
    #[serde(default)]
    counted_from: Option<u64>,
    /// Against the model that answers.
    contest: Contest,
    /// Since when the world was as the model knew it, as far as was known before the alarm.
    before: u64,
    /// Offset at which the models that were set aside are tried once more.
    try_again_at: u64,
}

/// A model that was set aside, or a copy that may be.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct SetAsideModel {
    name: String,
    model: Box<Model>,
    /// Its weights (m, H).
    #[serde(serialize_with = "crate::math::dense::tight")]
    weights: Matrix,
    /// Offset behind the last row it learned.
    until: u64,
}

/// What a critic follows a changing world with. What a file from before does not say is that nothing has changed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Following {
    /// An alarm that the next refresh answers.
    pending: Option<Alarm>,
    fork: Option<Fork>,
    /// The longest set aside first.
    kept: Vec<SetAsideModel>,
    /// The present model as it was, the oldest copy first, without watches.
    copies: Vec<SetAsideModel>,
    /// Name of the present model, if it came back under one.
    name: Option<String>,
    /// Offset of the first row of the world and the policy as they are: refits leave out those before.
    changed_at: u64,
    /// Offset from which on rows are kept, so that a fork can begin with them.
    kept_from: Option<u64>,
    /// The alarms of the settings, of whichever model answers; none where none are wanted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) warnings: Option<Box<Warnings>>,
    /// What is left of rows that were taken back.
    #[serde(skip_serializing_if = "Residue::is_none")]
    pub(super) residue: Residue,
    /// What happened and has not been reported yet.
    #[serde(skip)]
    pub(super) events: Vec<Event>,
    /// Scratch: what the model and its fork state of rows.
    #[serde(skip)]
    foretold: [Foretold; 2],
}

impl Following {
    /// The models beside the present one: the fork, those that were set aside, and the copies.
    pub(super) fn models(&self) -> impl Iterator<Item = &Model> {
        let kept = self.kept.iter().chain(&self.copies).map(|kept| &*kept.model);
        self.fork.iter().map(|fork| &*fork.model).chain(kept)
    }
}

impl Fork {
    /// Learn rows beside `model`, and compare what both made of them before.
    fn learn(
        &mut self,
        model: &mut Model,
        rows: &Rows,
        range: Range<usize>,
        offset: u64,
        foretold: &mut [Foretold; 2],
    ) {
        let [old, new] = foretold;
        model.learn_and_foretell(rows, range.clone(), offset, old);
        self.model.learn_and_foretell(rows, range.clone(), offset, new);
        self.contest.take(model.settings(), rows, range, old, new);
    }

    /// Whether it should be the model, by the row at offset `learned`; none if it should learn on.
    fn verdict(&self, learned: u64) -> Option<bool> {
        let rows = learned - self.counted_from.map_or(self.from, |counted| counted.min(self.from));
        let enough = rows_of_its_own(self.model.dictionary().len());
        let clearly = rows < enough || self.model.settings().leaves_chain();
        match self.contest.lead().filter(|_| self.model.is_sound()) {
            Some(lead) if lead > if clearly { LEAD_CLEAR } else { 0.0 } => Some(true),
            _ if rows >= PATIENCE * enough => Some(false),
            _ => None,
        }
    }
}

impl Following {
    /// The model that learns beside the present one.
    pub(super) fn forked(&mut self) -> Option<&mut Box<Model>> {
        self.fork.as_mut().map(|fork| &mut fork.model)
    }

    /// Forget the heads of the fork that are not among those `wanted`.
    pub(super) fn let_heads_go(&mut self, wanted: &[Head]) {
        self.fork.iter_mut().for_each(|fork| fork.model.let_heads_go(wanted));
    }

    /// Whether its parts fit each other.
    pub(super) fn is_consistent(&self) -> bool {
        let sizes = |kept: &SetAsideModel| {
            let (m, rewards) = (kept.model.dictionary().len(), kept.model.settings().rewards.len());
            kept.model.is_consistent() && kept.weights.rows() <= m && kept.weights.cols() == rewards
        };
        let fork =
            |fork: &Fork| fork.model.is_consistent() && fork.contest.is_consistent(fork.model.settings().rewards.len());
        self.fork.as_ref().is_none_or(fork)
            && self.warnings.as_ref().is_none_or(|warnings| warnings.is_consistent())
            && self.kept.len() <= KEPT_MAX
            && self.copies.len() <= COPIES_MAX
            && self.kept.iter().chain(&self.copies).all(sizes)
    }

    /// Bytes held, for reports of memory.
    pub(super) fn bytes(&self) -> usize {
        self.fork.as_ref().map_or(0, |fork| fork.model.bytes())
            + self.warnings.as_ref().map_or(0, |warnings| warnings.bytes())
            + self.kept.iter().chain(&self.copies).map(|kept| kept.model.bytes() + kept.weights.bytes()).sum::<usize>()
    }

    pub(super) fn changed_at(&self) -> u64 {
        self.changed_at
    }

    pub(super) fn kept_from(&self) -> Option<u64> {
        self.kept_from
    }

    pub(super) fn is_forked(&self) -> bool {
        self.fork.is_some()
    }

    pub(super) fn kept(&self) -> impl Iterator<Item = (&str, u64)> {
        self.kept.iter().map(|kept| (kept.name.as_str(), kept.until))
    }

    /// Drop the models that do not stay; offset of the first row of the fork, if that is one of them.
    pub(super) fn drop_models(&mut self, stays: impl Fn(&Model) -> bool) -> Option<u64> {
        self.kept.retain(|kept| stays(&kept.model));
        self.copies.retain(|copy| stays(&copy.model));
        self.fork.take_if(|fork| !stays(&fork.model)).map(|fork| fork.from)
    }

    /// No longer wanted.
    pub(super) fn end(&mut self) {
        (self.pending, self.fork, self.kept_from) = (None, None, None);
        self.kept.clear();
        self.copies.clear();
    }

    /// Another policy acts from the row at `offset` on: what was begun for the one before ends.
    pub(super) fn restart_at(&mut self, offset: u64) {
        (self.pending, self.fork, self.name) = (None, None, None);
        self.copies.clear();
        self.cut_warnings(offset);
        self.changed_at = offset;
        self.kept_from = self.kept_from.map(|from| from.max(offset));
    }

    /// Rows before offset `from` may be missing: what was begun with some of them ends.
    pub(super) fn look_back_to(&mut self, from: u64) {
        if self.kept_from.is_some_and(|kept| kept < from) {
            (self.pending, self.fork, self.kept_from) = (None, None, Some(from));
        }
    }

    /// Rows up to `offset` are not learned: chains end before them.
    pub(super) fn skip_to(&mut self, offset: u64) {
        if let Some(fork) = &mut self.fork {
            fork.model.cut_running_chains();
        }
        self.kept_from = self.kept_from.map(|from| from.max(offset));
        self.cut_warnings(offset);
    }

    /// Of the alarms those that do not stay end at `offset`.
    pub(super) fn keep_warnings(&mut self, offset: u64, stays: impl Fn(&WarningSettings) -> bool) {
        let Some(warnings) = &mut self.warnings else { return };
        self.events.extend(warnings.keep(offset, stays).into_iter().map(Event::Warning));
    }

    /// What alarms have followed up to the row at `offset` does not go on there.
    fn cut_warnings(&mut self, offset: u64) {
        let Some(warnings) = &mut self.warnings else { return };
        warnings.cut_all(offset);
        self.events.extend(warnings.take_events().into_iter().map(Event::Warning));
    }
}

impl Learner {
    /// The alarms that its settings ask for; none if they ask for none.
    pub fn warnings(&self) -> Option<&Warnings> {
        self.following.warnings.as_deref()
    }

    /// Have the alarms that the settings ask for; those that were there go on.
    pub(super) fn settle_warnings(&mut self) {
        let Settings { alarms, discount, .. } = &self.settings;
        self.following.warnings = Warnings::settle(self.following.warnings.take(), alarms, *discount);
    }

    /// Learn the rows of `window` before offset `end` that have not been learned yet.
    pub(super) fn learn(&mut self, window: &Window, end: u64) {
        for (rows, range, offset) in pieces(window, self.learned, end) {
            let mut at = range.start;
            while at < range.end {
                let Some(model) = &mut self.model else { return };
                // Blocks end at refreshes in any case.
                let count = model.rows_until_refresh().min((range.end - at) as u64) as usize;
                let first = offset + (at - range.start) as u64;
                model.warn_with(self.following.warnings.take());
                match &mut self.following.fork {
                    None => model.learn(rows, at..at + count, first),
                    Some(fork) => fork.learn(model, rows, at..at + count, first, &mut self.following.foretold),
                }
                self.following.warnings = model.warn_no_more();
                let refreshed = model.has_just_refreshed();
                at += count;
                self.learned = first + count as u64;
                self.notice();
                if refreshed {
                    self.follow(window);
                }
            }
        }
        // Rows that were taken back may stand behind all others.
        self.learned = self.learned.max(end);
        self.keep_rows();
    }

    /// Take the alarms of the rows just learned.
    fn notice(&mut self) {
        let Some(model) = &mut self.model else { return };
        for alarm in model.take_alarms() {
            if alarm.is_general() && self.following.fork.is_none() && self.following.pending.is_none() {
                self.following.pending = Some(alarm.clone());
            }
            self.following.events.push(Event::Drift(alarm));
        }
        if let Some(warnings) = &mut self.following.warnings {
            self.following.events.extend(warnings.take_events().into_iter().map(Event::Warning));
        }
    }

    /// From which offset on rows are kept: what a fork begins with must be there, live and in a replay.
    fn keep_rows(&mut self) {
        let watch = self.model.as_ref().and_then(|model| model.watch());
        let soon = self.settings.refit_first_rows > 0 || watch.is_some_and(|watch| watch.has_begun());
        if self.settings.drift_sensitivity.threshold().is_none() || (self.following.kept_from.is_none() && !soon) {
            return;
        }
        let alarm = self.following.pending.as_ref().map(|alarm| (alarm.offset + 1).saturating_sub(LOOK_BACK));
        let fork = self.following.fork.as_ref().map(|fork| fork.from);
        let from = self.learned.saturating_sub(LOOK_BACK).min(alarm.unwrap_or(u64::MAX)).min(fork.unwrap_or(u64::MAX));
        let kept = self.following.kept_from.unwrap_or(self.learned);
        self.following.kept_from = Some(kept.max(from));
    }

    /// The weights have just been refreshed: answer an alarm, or end what one has begun.
    fn follow(&mut self, window: &Window) {
        if let Some(alarm) = self.following.pending.take() {
            if !self.reinstate(window, alarm.finding.since) {
                self.fork(window, &alarm);
            }
            return;
        }
        if let Some(fork) = &self.following.fork {
            let (from, verdict) = (fork.from, fork.verdict(self.learned));
            let tries = self.learned >= fork.try_again_at || verdict == Some(true);
            if tries && self.reinstate(window, from) {
                return;
            }
            match verdict {
                Some(true) => self.swap(window),
                Some(false) => self.dismiss(),
                None if tries => self.following.fork.iter_mut().for_each(|fork| fork.try_again_at = u64::MAX),
                None => {}
            }
        } else {
            self.copy();
        }
    }

    /// Keep a copy of the model as it is, if the last one is old enough and an alarm may come.
    fn copy(&mut self) {
        let watched = |model: &&mut Box<Model>| model.watch().is_some_and(|watch| watch.has_begun());
        let Some(model) = self.model.as_mut().filter(watched) else { return };
        let copies = &mut self.following.copies;
        let apart = (model.statistics().rows / COPY_SHARE).clamp(COPY_ROWS_MIN, COPY_ROWS_MAX);
        if copies.last().is_some_and(|last| self.learned - last.until < apart) {
            return;
        }
        let Some((model, weights)) = model.asleep() else { return };
        if copies.len() == COPIES_MAX {
            copies.remove(0);
        }
        let (name, model) = (self.name(), Box::new(model));
        self.following.copies.push(SetAsideModel { name, model, weights, until: self.learned });
    }

    /// What the present model is called.
    fn name(&self) -> String {
        self.following.name.clone().unwrap_or_else(|| format!("generation-{}", self.generation))
    }

    /// The fork is of no use: the model goes on as if there had been no change.
    fn dismiss(&mut self) {
        if let Some(fork) = self.following.fork.take() {
            self.following.changed_at = fork.before;
            self.following.events.push(Event::Dismissed { from: fork.from, at: self.learned });
        }
    }

    /// Begin a fork.
    fn fork(&mut self, window: &Window, alarm: &Alarm) {
        let Some(model) = &self.model else { return };
        let kept_from = self.following.kept_from.unwrap_or(self.learned).max(window.start());
        let spreads = model.watch().and_then(|watch| watch.healthy()).map(|watch| watch.spreads());
        let spreads = spreads.unwrap_or_else(|| vec![0.0; self.settings.rewards.len()]);
        let guessed = fork_from(alarm).max(kept_from).min(self.learned);
        let from = self.changed_row(window, alarm, kept_from, &spreads).unwrap_or(guessed);
        let mut contest = Contest::new(&spreads);
        let mut fork = model.emptied();
        fork.want_heads(&self.settings.heads);
        // It is tried on the second half of what it begins with before it learns that.
        let half = from + (self.learned - from) / 2;
        for (rows, range, offset) in pieces(window, from, half) {
            fork.learn(rows, range, offset);
        }
        fork.refresh();
        let Self { settings, following: Following { foretold: [old, new], .. }, .. } = self;
        // It has learned these rows, which favours it: a fork has more to show for itself.
        let stating = model.stating_weights();
        for (rows, range, offset) in pieces(window, half, self.learned) {
            fork.learn_and_foretell(rows, range.clone(), offset, new);
            old.clear();
            let Some(weights) = &stating else { break };
            model.predict(rows, range.clone(), weights, old);
            contest.take(settings, rows, range, old, new);
        }
        // The model's have learned these rows already.
        fork.step_on_from(model);
        let before = std::mem::replace(&mut self.following.changed_at, from);
        let try_again_at = alarm.offset + TRIAL_ROWS;
        let since = alarm.finding.since;
        self.following.fork = Some(Fork {
            model: Box::new(fork),
            from,
            since,
            counted_from: Some(guessed),
            contest,
            before,
            try_again_at,
        });
        self.following.events.push(Event::Forked { from, at: self.learned });
    }

    /// The row since which the errors that raised `alarm` most probably differ: the watch knows that in blocks alone, and each
    /// row from before the change that a fork learns makes it wrong. None where the last rows show no such place. `spreads` (H,)
    /// are the errors' spreads before the change.
    fn changed_row(&self, window: &Window, alarm: &Alarm, kept_from: u64, spreads: &[f64]) -> Option<u64> {
        let (model, end) = (self.model.as_ref()?, alarm.offset + 1);
        let from = end.saturating_sub(LOOK_BACK).max(kept_from);
        let mut errors = vec![Vec::new(); self.settings.rewards.len()];
        let mut foretold = Foretold::default();
        for (rows, range, _) in pieces(window, from, end) {
            foretold.clear();
            model.predict(rows, range.clone(), model.posterior()?.feature_weights(), &mut foretold);
            foretold.errors(rows, range, &self.settings.rewards, self.settings.discount, &mut errors);
        }
        let (errors, spread) = (&mut errors[alarm.reward], spreads[alarm.reward]);
        if errors.len() as u64 != end - from || spread <= 0.0 {
            return None;
        }
        errors.iter_mut().for_each(|error| *error /= spread);
        Some(from + split(errors, BEFORE_ALARM_MIN as usize)? as u64)
    }

    /// The fork becomes the model.
    fn swap(&mut self, window: &Window) {
        let Some(Fork { mut model, from, since, .. }) = self.following.fork.take() else { return };
        // How returns scatter, the variance of V and what errors are normal follow from the fork's own rows.
        let known = from.max(window.start());
        model.revisit(pieces(window, known, self.learned));
        let kept = self.replace(model, since);
        // The next refit is due as soon as there are enough rows of the world as it is.
        self.refit_ended_at = from;
        self.schedule();
        self.following.events.push(Event::Swapped { from, at: self.learned, kept });
    }

    /// Try the models that were set aside on the last rows, none before `since`; whether one has taken over.
    fn reinstate(&mut self, window: &Window, since: u64) -> bool {
        let from = since.max(self.learned.saturating_sub(TRIAL_ROWS)).max(window.start());
        if self.learned.saturating_sub(from) < TRIAL_ROWS_MIN {
            return false;
        }
        let Some(stating) = self.model.as_ref().and_then(|model| model.stating_weights()) else { return false };
        let (model, settings) = (self.model.as_ref().expect("it has a posterior"), &self.settings);
        let Settings { rewards, discount, .. } = settings;
        let [mut present, mut theirs] = <[Foretold; 2]>::default();
        let mut strangeness = |kept: &SetAsideModel| {
            let watch = kept.model.watch()?;
            let mut contest = Contest::new(&watch.spreads());
            let mut errors = vec![Vec::new(); rewards.len()];
            for (rows, range, _) in pieces(window, from, self.learned) {
                present.clear();
                theirs.clear();
                model.predict(rows, range.clone(), &stating, &mut present);
                kept.model.predict(rows, range.clone(), &kept.weights, &mut theirs);
                theirs.errors(rows, range.clone(), rewards, *discount, &mut errors);
                contest.take(settings, rows, range, &present, &theirs);
            }
            let leads = contest.lead().is_some_and(|lead| lead > LEAD_CLEAR);
            watch.strangeness(&errors).filter(|z| leads && *z < FITS_WITHIN)
        };
        let tried = self.following.kept.iter().map(&mut strangeness).enumerate();
        let best = tried.filter_map(|(k, z)| z.map(|z| (k, z))).min_by(|a, b| a.1.total_cmp(&b.1));
        let Some((k, _)) = best else { return false };
        let SetAsideModel { name, mut model, until, .. } = self.following.kept.remove(k);
        let since = self.following.fork.take().map_or(since, |fork| fork.since);
        model.set_settings(&self.settings);
        model.wake();
        let rows = model.statistics().rows;
        let kept = self.replace(model, since);
        self.following.name = Some(name.clone());
        self.following.changed_at = from;
        self.refit_ended_at = self.learned;
        self.schedule_after(rows);
        self.following.events.push(Event::Returned { name, until, at: self.learned, kept });
        true
    }

    /// `model` answers from here on, since the world has changed at offset `since`; the name that the one before is set aside under.
    fn replace(&mut self, mut model: Box<Model>, since: u64) -> Option<String> {
        model.reset_score();
        let kept = self.set_aside(since);
        self.model = Some(model);
        self.generation += 1;
        self.following.residue.variance_stale = false;
        self.drop_removed();
        self.full_reported = false;
        self.no_room_before = self.counts().novel_when_full;
        // A refit that is running goes on; its model is compared with this one from here on.
        self.asked.restart_score();
        kept
    }

    /// A refit has found `model`, and perhaps a change among its rows, since which it is of. The model before is set aside if it
    /// was for another world, and else handed out.
    pub(super) fn install(&mut self, model: Box<Model>, alarm: Option<Alarm>) -> Option<Box<Model>> {
        let forked = self.following.fork.take().map(|fork| fork.since);
        self.following.pending = None;
        let changed_at = alarm.as_ref().map_or(0, |alarm| alarm.finding.since);
        self.following.events.extend(alarm.map(Event::Drift));
        if forked.is_none() && changed_at <= self.following.changed_at {
            self.following.copies.clear();
            return self.model.replace(model);
        }
        let kept = self.set_aside(forked.unwrap_or(changed_at));
        self.following.changed_at = self.following.changed_at.max(changed_at);
        self.model = Some(model);
        self.following.events.push(Event::Swapped { from: self.following.changed_at, at: self.learned, kept });
        None
    }

    /// Set the present model aside as it was before offset `since`, as far as copies go back; its name.
    fn set_aside(&mut self, since: u64) -> Option<String> {
        let mut copies = std::mem::take(&mut self.following.copies);
        let mut model = self.model.take()?;
        let weights = model.sleep()?;
        let name = self.name();
        self.following.name = None;
        let before = copies.iter().rposition(|copy| copy.until <= since).or((!copies.is_empty()).then_some(0));
        let kept = match before.map(|k| copies.swap_remove(k)) {
            Some(mut copy) => {
                // What was normal before the alarm is known best now.
                copy.model.take_watch_of(&mut model);
                copy
            }
            None => SetAsideModel { name: name.clone(), model, weights, until: self.learned },
        };
        if self.following.kept.len() == KEPT_MAX {
            self.following.kept.remove(0);
        }
        self.following.kept.push(kept);
        Some(name)
    }
}

/// Where a fork begins.
fn fork_from(alarm: &Alarm) -> u64 {
    let end = alarm.offset + 1;
    alarm.finding.since.clamp(end.saturating_sub(BEFORE_ALARM_MAX), end.saturating_sub(BEFORE_ALARM_MIN))
}

/// The rows of `window` from offset `from` up to before `to`, piece by piece.
fn pieces(window: &Window, from: u64, to: u64) -> impl Iterator<Item = (&Rows, Range<usize>, u64)> {
    window.since(from).filter_map(move |(rows, range, offset)| {
        let count = to.saturating_sub(offset).min(range.len() as u64) as usize;
        (count > 0).then(|| (rows, range.start..range.start + count, offset))
    })
}
