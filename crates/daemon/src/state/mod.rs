//! Everything that the journal determines: the retained rows, the streams, the critics, their settings.
//!
//! A [`State`] changes in one way: [`State::apply`] takes the next group. The running daemon applies a group when it has been
//! stored; a start reads the same groups and applies them. Nothing is optimised and nothing depends on the clock, so that two
//! processes that have applied the same groups hold equal states, bit for bit. A checkpoint is a state written down.

pub mod advisors;
pub mod labels;
pub mod record;
pub mod removals;
pub mod streams;

use crate::learner::heads::Head;
use crate::learner::model::Model;
use crate::learner::refit::{RefitJob, RefitTrigger};
use crate::learner::removal::Placed;
use crate::learner::suggest::Advisor;
use crate::learner::window::Window;
use crate::learner::{Event, HeadsChange, Learner, Settings, SnapshotError};
use crate::panics;
use advisors::{Advised, NotAdvised};
use labels::LabelSets;
use record::{Configured, Group, Mark, NewPolicy, Origin, Record, RemovedRows, SkippedRows, TakenRows};
use removals::Removals;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use streams::Streams;

/// What the journal determines. See the module.
#[derive(Clone, Debug)]
pub struct State {
    /// Rows that the window holds at least.
    window_rows: usize,
    end: Mark,
    /// None before the first group, or where a checkpoint did not say it.
    origin: Option<Origin>,
    /// None before the first row.
    window: Option<Window>,
    streams: Streams,
    /// None before the first group.
    configured: Option<Configured>,
    /// In the order of their settings.
    critics: Vec<Learner>,
    /// In the order of their settings.
    advisors: Vec<Advisor>,
    /// What heads learn from besides the rows.
    labels: LabelSets,
    /// Rows that were taken back.
    removals: Removals,
    /// Critics that learn nothing: they failed on rows, and a panic may have left anything of their models.
    halted: Vec<Halted>,
    /// Rows that critics leave out, as records further on say.
    skipped: Vec<SkippedRows>,
    /// (group, offset): at that group, still to come, a critic restarts from that older row; it is kept until then.
    reaches: Vec<(u64, u64)>,
    /// If there is a name, only that critic learns.
    alone: Option<String>,
}

/// A critic that learns nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Halted {
    /// Its name.
    pub critic: String,
    /// Why.
    pub why: String,
}

/// What came of a group.
#[derive(Debug, Default)]
pub struct Applied {
    /// What the critics report, each with its index.
    pub events: Vec<(usize, Event)>,
    /// Models that adopted ones have replaced, to be dropped where that may take its time.
    pub replaced: Vec<Box<Model>>,
    /// Rows on which critics failed just now. Those critics are halted.
    pub failed: Vec<SkippedRows>,
    /// Rows that critics leave out from here on, as the group records.
    pub skipped: Vec<SkippedRows>,
    /// The rows: their memory can be used again.
    pub rows: Vec<TakenRows>,
    /// The answers to the requests to advisors, in their order.
    pub advised: Vec<Result<Advised, NotAdvised>>,
}

impl State {
    /// Nothing yet. The window will hold at least `window_rows` rows.
    pub fn new(window_rows: usize) -> Self {
        Self {
            window_rows,
            end: Mark::default(),
            origin: None,
            window: None,
            streams: Streams::new(),
            configured: None,
            critics: Vec::new(),
            advisors: Vec::new(),
            labels: LabelSets::default(),
            removals: Removals::default(),
            halted: Vec::new(),
            skipped: Vec::new(),
            reaches: Vec::new(),
            alone: None,
        }
    }

    /// The state at `end` with these parts. It has no rows yet, of states (D,) and rewards (H,) as `shape` says;
    /// [`State::refill`] brings those that a start needs.
    pub fn at(
        end: Mark,
        streams: Streams,
        configured: Option<Configured>,
        critics: Vec<Learner>,
        shape: Option<(usize, usize)>,
        window_rows: usize,
    ) -> Self {
        let mut window = shape.map(|(dim, rewards)| Window::starting_at(dim, rewards, window_rows, end.offset));
        window.iter_mut().for_each(|window| window.hold(end.offset));
        Self { end, window, streams, configured, critics, ..Self::new(window_rows) }
    }

    /// Let critics leave these rows out: records in groups that are still to come say so.
    pub fn skip(&mut self, rows: Vec<SkippedRows>) {
        self.skipped = rows;
    }

    /// Keep rows that critics learn from groups on that are still to come: each has the number of the group and the offset of the
    /// first row. The window that was recorded may have been larger.
    pub fn reach_back(&mut self, reaches: Vec<(u64, u64)>) {
        self.reaches = reaches;
        self.hold();
    }

    /// From here on only the critic `name` learns. The others are stale.
    pub fn only(&mut self, name: &str) {
        self.alone = Some(name.to_owned());
    }

    /// The end of the last group that was applied.
    pub fn end(&self) -> Mark {
        self.end
    }

    /// Where the journal begins, as far as that is known.
    pub fn origin(&self) -> Option<Origin> {
        self.origin
    }

    /// Rows for refits, once there are any.
    pub fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }

    /// Where the streams stand.
    pub fn streams(&self) -> &Streams {
        &self.streams
    }

    /// Settings in force, once there are any.
    pub fn configured(&self) -> Option<&Configured> {
        self.configured.as_ref()
    }

    /// The critics, in the order of their settings.
    pub fn critics(&self) -> &Vec<Learner> {
        &self.critics
    }

    /// The advisors, in the order of their settings.
    pub fn advisors(&self) -> &[Advisor] {
        &self.advisors
    }

    /// State dimension and rewards per row, once there is a row.
    pub fn shape(&self) -> Option<(usize, usize)> {
        self.window.as_ref().map(|window| (window.dim(), window.rewards_per_row()))
    }

    /// Offset of the oldest row that a start from here needs.
    pub fn replay_from(&self) -> u64 {
        let window = self.end.offset.saturating_sub(self.window_rows as u64);
        let learns = (0..self.critics.len()).filter(|&critic| !self.is_halted(critic));
        learns.map(|critic| self.critics[critic].replay_from()).chain(self.reached()).fold(window, u64::min)
    }

    /// Offset of the oldest row that a group still to come reaches back to.
    fn reached(&self) -> Option<u64> {
        self.reaches.iter().filter(|(group, _)| *group > self.end.id).map(|&(_, offset)| offset).min()
    }

    /// Whether a critic learns nothing since it failed.
    pub fn is_halted(&self, critic: usize) -> bool {
        self.why_halted(critic).is_some()
    }

    /// Why a critic learns nothing, if it does not.
    pub fn why_halted(&self, critic: usize) -> Option<&str> {
        let name = &self.critics[critic].settings().name;
        self.halted.iter().find(|halted| halted.critic == *name).map(|halted| halted.why.as_str())
    }

    /// The critics that learn nothing.
    pub fn halted(&self) -> &[Halted] {
        &self.halted
    }

    /// Let a critic learn nothing any more.
    pub fn halt(&mut self, critic: usize, why: &str) {
        let name = self.critics[critic].settings().name.clone();
        self.halted.retain(|halted| halted.critic != name);
        self.halted.push(Halted { critic: name, why: why.to_owned() });
    }

    /// The same state, in which these critics learn nothing.
    #[must_use]
    pub fn with_halted(self, halted: Vec<Halted>) -> Self {
        Self { halted, ..self }
    }

    /// The same state, of a journal that begins there.
    #[must_use]
    pub fn with_origin(self, origin: Option<Origin>) -> Self {
        Self { origin, ..self }
    }

    /// The same state with these advisors.
    #[must_use]
    pub fn with_advisors(self, advisors: Vec<Advisor>) -> Self {
        Self { advisors, ..self }
    }

    /// The same state with these rows, which are those before its end.
    #[must_use]
    pub fn with_window(self, window: Window) -> Self {
        let mut state = Self { window: Some(window), ..self };
        state.hold();
        state
    }

    /// The same state with these labels.
    #[must_use]
    pub fn with_labels(mut self, labels: LabelSets) -> Self {
        self.window.iter_mut().for_each(|window| window.set_labels(labels.used()));
        Self { labels, ..self }
    }

    /// The same state, from which these rows were taken back.
    #[must_use]
    pub fn with_removals(self, removals: Removals) -> Self {
        Self { removals, ..self }
    }

    /// Rows that were taken back.
    pub fn removals(&self) -> &Removals {
        &self.removals
    }

    /// What heads learn from besides the rows.
    pub fn labels(&self) -> &LabelSets {
        &self.labels
    }

    /// Put the labels that heads learn from beside the rows, and forget those that none learns from any more.
    fn settle_labels(&mut self) {
        if !self.labels.is_empty() {
            let heads = self.critics.iter().flat_map(|learner| &learner.settings().heads);
            let learned = heads.filter_map(Head::label).map(|(_, id)| id).collect();
            self.labels.settle(&learned);
            self.window.iter_mut().for_each(|window| window.set_labels(self.labels.used()));
        }
    }

    /// Put `learner`, which has been rebuilt up to here, in the place of the critic of its name.
    ///
    /// # Errors
    /// If there is no such critic.
    pub fn replace(&mut self, mut learner: Learner) -> Result<(), String> {
        let name = learner.settings().name.clone();
        let index = self.index(&name)?;
        // A client may wait for the refit that it requested of the learner that is replaced. One from which rows were taken back asks
        // by itself for what has been done now.
        let before = &self.critics[index];
        if before.is_refit_requested() && before.residue().offsets().is_empty() {
            learner.request_refit();
        }
        self.critics[index] = learner;
        self.halted.retain(|halted| halted.critic != name);
        Ok(())
    }

    /// Ask for a refit of a critic: [`Learner::request_refit`].
    pub fn request_refit(&mut self, critic: usize) {
        self.critics[critic].request_refit();
    }

    /// What a refit of a critic needs: [`Learner::refit_job`].
    ///
    /// # Errors
    /// If there is no value function to start from. The refit has ended then, which is to be recorded.
    ///
    /// # Panics
    /// If there are no rows.
    pub fn refit_job(&mut self, critic: usize, trigger: RefitTrigger) -> Result<RefitJob, SnapshotError> {
        let window = self.window.as_ref().expect("a refit needs rows");
        self.critics[critic].refit_job(window, trigger)
    }

    /// Take in the group behind the last one: its records in their order, then the critics learn its rows.
    ///
    /// # Errors
    /// Why a record cannot follow on what was before. The state is then good for nothing.
    pub fn apply(&mut self, group: Group) -> Result<Applied, String> {
        let mut applied = Applied::default();
        let mut offset = group.first_offset;
        for record in group.records {
            match record {
                Record::Rows(taken) => {
                    let other = self.streams.replay(&taken, offset, group.time)?;
                    if let Some(policy) = taken.batch.policy().filter(|_| other) {
                        let stream = taken.stream;
                        self.on_each(0..self.critics.len(), &mut applied.failed, |critic| {
                            critic.policy_of_rows(offset, stream, policy);
                        });
                    }
                    self.push(&taken, offset)?;
                    self.offer(&taken, offset, group.end.offset, &mut applied.failed);
                    offset += taken.batch.len() as u64;
                    applied.rows.push(taken);
                }
                Record::Adopted { critic, adoption } => {
                    let index = self.index(&critic)?;
                    let adopted = self.on(index, &mut applied.failed, |critic| critic.adopt(adoption));
                    applied.replaced.extend(adopted.flatten());
                }
                Record::RefitEnded { critic } => {
                    let index = self.index(&critic)?;
                    self.on(index, &mut applied.failed, Learner::refit_failed);
                }
                // A start knows it from the beginning, and a running daemon has halted the critic.
                Record::Skipped(skipped) => applied.skipped.push(skipped),
                Record::Configured(configured) => {
                    if configured.from > offset {
                        let from = configured.from;
                        return Err(format!("new critics begin with row {from}, behind the end at {offset}"));
                    }
                    // One that begins again has not failed.
                    let critics = &self.critics;
                    self.halted.retain(|halted| {
                        let old = critics.iter().map(Learner::settings).find(|settings| settings.name == halted.critic);
                        let new = configured.critics.iter().find(|settings| settings.name == halted.critic);
                        old.zip(new).is_some_and(|(old, new)| goes_on(old, new))
                    });
                    self.critics = configure(std::mem::take(&mut self.critics), &configured, offset);
                    let advisors = std::mem::take(&mut self.advisors);
                    self.advisors = advisors::configure(advisors, &configured.advisors)?;
                    self.configured = Some(configured);
                    self.settle_labels();
                    self.hold();
                }
                Record::Heads(change) => self.change_heads(change, &mut applied.failed)?,
                Record::Rebuilt(learner) => self.take_rebuilt(*learner)?,
                // Where one critic learns alone its advisors answer no request.
                Record::Advice(advice) if self.alone.is_none() => {
                    applied.advised.push(advisors::advise(&mut self.advisors, advice)?);
                }
                Record::Advice(_) => {}
                Record::Removed(removed) => self.remove(&removed, offset, group.time, &mut applied.failed),
                Record::Hole(rows) => {
                    self.streams.pass_hole();
                    self.leave_hole(offset, rows);
                    self.removals.note_hole(offset..offset + rows);
                    offset += rows;
                }
                Record::NewPolicy(change) => self.new_policy(change, group.end.offset, &mut applied.failed)?,
            }
        }
        self.end = group.end;
        if group.end.id == 1 {
            self.origin = Some(Origin { crc: group.end.crc, time: group.time });
        }
        self.learn(&mut applied);
        self.hold();
        Ok(applied)
    }

    /// Another policy acts, from a row on that lies before `end`.
    fn new_policy(&mut self, change: NewPolicy, end: u64, failed: &mut Vec<SkippedRows>) -> Result<(), String> {
        let NewPolicy { critic, policy, offset } = change;
        if offset > end {
            return Err(format!("a policy begins with row {offset}, behind the end at {end}"));
        }
        let critics = match critic {
            None => 0..self.critics.len(),
            Some(name) => {
                let index = self.index(&name)?;
                index..index + 1
            }
        };
        self.on_each(critics, failed, |critic| critic.new_policy(offset, policy.as_deref()));
        Ok(())
    }

    /// Take labels; let heads of a critic go, and others come.
    fn change_heads(&mut self, change: HeadsChange, failed: &mut Vec<SkippedRows>) -> Result<(), String> {
        let HeadsChange { critic, remove, add, labels } = change;
        let index = self.index(&critic)?;
        // Labels that cannot be taken are refused before they are stored. Were some there all the same, they change nothing, live and
        // in a replay alike, and the journal opens.
        let _taken = labels.map(|part| self.labels.take(&part));
        self.on(index, failed, |critic| critic.change_heads(&remove, add));
        self.settle_labels();
        Ok(())
    }

    /// Take rows back. Critics that have learned some of them are stale, unless the next records say what they are without these.
    fn remove(&mut self, removed: &RemovedRows, offset: u64, time: f64, failed: &mut Vec<SkippedRows>) {
        self.removals.note(removed, offset, time);
        self.window.iter_mut().for_each(|window| window.remove(&removed.offsets, &removed.starts));
        self.streams.lose(&removed.streams, &removed.ended);
        self.labels.remove(&removed.offsets);
        self.window.iter_mut().for_each(|window| window.set_labels(self.labels.used()));
        for index in 0..self.critics.len() {
            let name = &self.critics[index].settings().name;
            if self.is_halted(index) || self.alone.as_ref().is_some_and(|alone| alone != name) {
                continue;
            }
            // Without the rows of their chains nothing is subtracted.
            self.on(index, failed, |critic| critic.remove(&Placed::default(), &removed.offsets).is_ok());
            if !self.critics[index].residue().offsets().is_empty() {
                self.removals.concerns(&self.critics[index]);
            }
        }
    }

    /// `rows` rows from `offset` on were taken back before they came here.
    fn leave_hole(&mut self, offset: u64, rows: u64) {
        let Some(window) = &mut self.window else { return };
        if window.end() != offset {
            let (dim, rewards) = (window.dim(), window.rewards_per_row());
            *window = Window::starting_at(dim, rewards, self.window_rows, offset);
            window.set_labels(self.labels.used());
            window.hold(offset);
        }
        window.skip(rows);
    }

    /// Put a critic that was learned again into the place of the one of its name.
    fn take_rebuilt(&mut self, learner: Learner) -> Result<(), String> {
        let index = self.index(&learner.settings().name)?;
        let rows = self.window.as_ref().map(|window| window.start()..=window.end());
        let is_there = |from: u64| rows.as_ref().is_some_and(|rows| rows.contains(&from));
        // Where it learns from here on those rows must be there; a critic that others are rebuilt beside learns nothing.
        let learns = self.alone.as_ref().is_none_or(|alone| *alone == learner.settings().name);
        if learns && !(is_there(learner.replay_from()) && is_there(learner.learned())) {
            return Err(format!("a rebuilt critic that lacks the rows from {} on", learner.replay_from()));
        }
        if learner.settings() != self.critics[index].settings() {
            return Err("a rebuilt critic with settings that are not in force".into());
        }
        let before = &self.critics[index];
        if !learner.residue().offsets().is_empty() {
            // What a critic is without rows that were just taken back; or heads came late to one that is.
            if learner.generation() > before.generation() {
                self.removals.concerns(&learner);
            }
        } else {
            self.removals.is_free(&learner);
        }
        self.replace(learner)
    }

    /// Put the rows of a group before the present end into the window, and do nothing else: they have been learned.
    ///
    /// # Errors
    /// If they are of another shape than those before.
    pub fn refill(&mut self, group: &Group) -> Result<(), String> {
        let mut offset = group.first_offset;
        let cleaned;
        let records = if self.removals.is_empty() {
            &group.records
        } else {
            cleaned = self.removals.clean(group.clone());
            &cleaned.records
        };
        for record in records {
            match record {
                Record::Rows(taken) => {
                    self.push(taken, offset)?;
                    // A critic that fails here stays halted.
                    self.offer(taken, offset, group.end.offset, &mut Vec::new());
                    offset += taken.batch.len() as u64;
                }
                Record::Hole(rows) => {
                    self.leave_hole(offset, *rows);
                    offset += rows;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn index(&self, critic: &str) -> Result<usize, String> {
        let index = self.critics.iter().position(|learner| learner.settings().name == critic);
        index.ok_or_else(|| format!("something of {critic:?}, which is no critic"))
    }

    /// Put rows, the first of which has offset `offset`, behind those in the window; if rows are missing in between, or there
    /// are none yet, the window begins here.
    fn push(&mut self, taken: &TakenRows, offset: u64) -> Result<(), String> {
        let shape = (taken.batch.dim(), taken.batch.rewards_per_row());
        let window = match &mut self.window {
            Some(window) if window.end() == offset => window,
            window => {
                let fresh = window.insert(Window::starting_at(shape.0, shape.1, self.window_rows, offset));
                fresh.set_labels(self.labels.used());
                fresh.hold(offset);
                fresh
            }
        };
        if (window.dim(), window.rewards_per_row()) != shape {
            return Err("rows of another shape than those before".into());
        }
        window.extend_from_batch(taken.stream, &taken.starts_chain, &taken.batch);
        Ok(())
    }

    /// Hand rows, the first of which has offset `offset`, of a group that ends at `end` to the critics that keep rows themselves.
    fn offer(&mut self, taken: &TakenRows, offset: u64, end: u64, failed: &mut Vec<SkippedRows>) {
        for index in 0..self.critics.len() {
            let learner = &self.critics[index];
            let (name, from) = (&learner.settings().name, learner.learned());
            let left_out = |rows: &SkippedRows| rows.critic == *name && (rows.from, rows.to) == (from, end);
            if !learns(&self.halted, self.alone.as_deref(), learner) || self.skipped.iter().any(left_out) {
                continue;
            }
            let before = failed.len();
            self.on(index, failed, |critic| critic.take(taken.stream, &taken.starts_chain, &taken.batch, offset));
            failed[before..].iter_mut().for_each(|rows| rows.to = end);
        }
    }

    /// Do something with a critic. One critic's bug does not take the others down: a critic that panics is halted, and has failed
    /// without new rows.
    fn on<T>(
        &mut self,
        index: usize,
        failed: &mut Vec<SkippedRows>,
        work: impl FnOnce(&mut Learner) -> T,
    ) -> Option<T> {
        let learner = &mut self.critics[index];
        let (critic, from) = (learner.settings().name.clone(), learner.learned());
        match catch_unwind(AssertUnwindSafe(|| work(learner))) {
            Ok(done) => Some(done),
            Err(panic) => {
                let why = panics::message(&*panic);
                self.halt(index, &why);
                failed.push(SkippedRows { critic, from, to: from, why });
                None
            }
        }
    }

    /// The same with each of some critics.
    fn on_each(&mut self, which: Range<usize>, failed: &mut Vec<SkippedRows>, work: impl Fn(&mut Learner)) {
        for index in which {
            self.on(index, failed, &work);
        }
    }

    /// Let the critics learn the rows that are new. One critic's bug does not take the others down.
    fn learn(&mut self, applied: &mut Applied) {
        let Some(window) = &self.window else { return };
        for (index, learner) in self.critics.iter_mut().enumerate() {
            if !learns(&self.halted, self.alone.as_deref(), learner) {
                continue;
            }
            let name = &learner.settings().name;
            let (from, to) = (learner.learned(), window.end());
            if let Some(why) = missing_reward(learner.settings(), window.rewards_per_row()) {
                let critic = name.clone();
                self.halted.push(Halted { critic: critic.clone(), why: why.clone() });
                applied.failed.push(SkippedRows { critic, from, to: from, why });
                continue;
            }
            // The very rows of this step: a critic that begins again later learns them.
            if self.skipped.iter().any(|rows| rows.critic == *name && (rows.from, rows.to) == (from, to)) {
                learner.skip_to(to);
                continue;
            }
            match catch_unwind(AssertUnwindSafe(|| learner.step(window))) {
                Ok(events) => applied.events.extend(events.into_iter().map(|event| (index, event))),
                Err(panic) => {
                    let (critic, why) = (learner.settings().name.clone(), panics::message(&*panic));
                    self.halted.push(Halted { critic: critic.clone(), why: why.clone() });
                    applied.failed.push(SkippedRows { critic, from, to, why });
                }
            }
        }
    }

    /// The window keeps what a critic has yet to learn.
    fn hold(&mut self) {
        let learns = |learner: &&Learner| learns(&self.halted, self.alone.as_deref(), learner);
        let from = self.critics.iter().filter(learns).map(Learner::replay_from).chain(self.reached());
        let from = from.min().unwrap_or(u64::MAX);
        if let Some(window) = &mut self.window {
            window.hold(from);
        }
    }
}

/// Whether a critic learns: it is not halted, and no other one learns alone.
fn learns(halted: &[Halted], alone: Option<&str>, learner: &Learner) -> bool {
    let name = &learner.settings().name;
    !halted.iter().any(|halted| halted.critic == *name) && alone.is_none_or(|alone| alone == name)
}

/// Why a critic cannot learn rows of `rewards_per_row` rewards, if it cannot.
pub fn missing_reward(settings: &Settings, rewards_per_row: usize) -> Option<String> {
    let asked = settings.rewards.iter().copied().chain(settings.heads.iter().flat_map(Head::reward_columns));
    let column = asked.filter(|&column| column >= rewards_per_row).min()?;
    let rewards = if rewards_per_row == 1 { "reward" } else { "rewards" };
    let name = &settings.name;
    Some(format!(
        "critic {name:?} learns reward {column} (counted from 0), but the rows have {rewards_per_row} {rewards}"
    ))
}

/// Whether a critic with settings `new` can go on with what it learned with `old`.
pub fn goes_on(old: &Settings, new: &Settings) -> bool {
    let meaning = |s: &Settings| {
        (
            s.discount.to_bits(),
            s.rewards.clone(),
            s.noise,
            s.variance,
            s.lambda,
            s.rho_max.map(f64::to_bits),
            s.forgetting.map(f64::to_bits),
            s.state_kinds.clone(),
            s.action_value.clone(),
            s.prior_mean.to_bits(),
            s.mean.clone(),
        )
    };
    meaning(old) == meaning(new)
}

/// The heads of a critic that came at run time, with its name.
fn added_heads(learner: &Learner) -> (String, Vec<Head>) {
    let names: HashSet<&str> = learner.added_heads().iter().map(String::as_str).collect();
    let heads = learner.settings().heads.iter().filter(|head| names.contains(head.name.as_str())).cloned().collect();
    (learner.settings().name.clone(), heads)
}

/// `settings` with the heads that have been added to their critic, but for those whose names the settings have by now; and the names
/// of these.
fn with_added(settings: &Settings, added: &[(String, Vec<Head>)]) -> (Settings, Vec<String>) {
    let mut settings = settings.clone();
    let known: HashSet<String> = settings.heads.iter().map(|head| head.name.clone()).collect();
    let of_critic = added.iter().find(|(critic, _)| *critic == settings.name);
    let heads = of_critic.into_iter().flat_map(|(_, heads)| heads).filter(|head| !known.contains(&head.name));
    let heads: Vec<Head> = heads.cloned().collect();
    let names = heads.iter().map(|head| head.name.clone()).collect();
    settings.heads.extend(heads);
    (settings, names)
}

/// The critics after a change of settings: those that can go on do, the others begin again with the rows from
/// `configured.from` on. Critics of action values begin with the next row, `offset`: rows that are kept have no actions.
fn configure(learners: Vec<Learner>, configured: &Configured, offset: u64) -> Vec<Learner> {
    let mut old = learners;
    let added: Vec<(String, Vec<Head>)> = old.iter().map(added_heads).collect();
    let next = |settings: &Settings| {
        let (settings, names) = with_added(settings, &added);
        let settings = &settings;
        let known = old
            .iter()
            .position(|learner| learner.settings().name == settings.name && goes_on(learner.settings(), settings));
        match known {
            Some(index) => {
                let mut learner = old.swap_remove(index);
                learner.set_settings(settings.clone());
                learner.set_names(configured.names.clone());
                learner.with_added_heads(&names)
            }
            None => {
                let names_of_states = configured.names.clone();
                let from = if settings.action_value.is_some() { offset } else { configured.from };
                Learner::starting_at(settings.clone(), names_of_states, from).with_added_heads(&names)
            }
        }
    };
    configured.critics.iter().map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::{FAULT, FAULT_TAKING};
    use crate::transition::Batch;
    use criticd_sim::{self as sim, Step, pendulum::Pendulum};

    fn settings(name: &str, seed: u64) -> Settings {
        Settings { name: name.into(), dictionary_max: 8, seed, refit_first_rows: 0, ..Settings::default() }
    }

    /// Groups of 20 rows behind the settings of two critics.
    fn groups(count: usize) -> Vec<Group> {
        let critics = vec![settings("frail", 4711), settings("sound", 1)];
        let configured = Record::Configured(Configured { critics, names: None, from: 0, ..Configured::default() });
        let end = Mark { id: 1, offset: 0, crc: 0 };
        let mut groups = vec![Group { end, first_offset: 0, time: 1e9, records: vec![configured] }];
        let mut pendulum = Pendulum::new(1, 0.3);
        let steps: Vec<Step> = (0..20 * count).map(|_| pendulum.step()).collect();
        let mut streams = Streams::new();
        for part in steps.chunks(20) {
            let before = groups.last().unwrap().end;
            let mut offset = before.offset;
            let mut taken = |batch: Batch| {
                let limits = streams::StreamLimits { max: 4, idle_rows: 0 };
                let admission = streams.admit(&batch, false, offset, limits).unwrap();
                let mut starts_chain = Vec::new();
                streams.commit(&batch, &admission, offset, 1e9, |starts, _| starts_chain.push(starts));
                offset += batch.len() as u64;
                Record::Rows(TakenRows { stream: admission.number, starts_chain, batch })
            };
            let records = sim::batches("pendulum", "", part).into_iter().map(&mut taken).collect();
            let end = Mark { id: before.id + 1, offset, crc: 0 };
            groups.push(Group { end, first_offset: before.offset, time: 1e9, records });
        }
        groups
    }

    fn bytes(state: &State) -> Vec<u8> {
        rmp_serde::to_vec_named(&(state.critics(), state.streams(), state.configured())).unwrap()
    }

    #[test]
    fn states_that_applied_the_same_groups_are_equal_from_wherever_they_began() {
        let groups = groups(10);
        let mut whole = State::new(60);
        groups.iter().for_each(|group| drop(whole.apply(group.clone()).unwrap()));
        assert_eq!((whole.end().id, whole.end().offset, whole.window().unwrap().end()), (11, 200, 200));
        for count in [1, 4, 9] {
            let mut first = State::new(60);
            groups[..count].iter().for_each(|group| drop(first.apply(group.clone()).unwrap()));
            let (critics, streams) = (first.critics().clone(), first.streams().clone());
            let replay_from = first.replay_from();
            let configured = first.configured().cloned();
            let mut again = State::at(first.end(), streams, configured, critics, first.shape(), 60);
            let needed = groups[..count].iter().filter(|group| group.end.offset > replay_from);
            needed.for_each(|group| again.refill(group).unwrap());
            groups[count..].iter().for_each(|group| drop(again.apply(group.clone()).unwrap()));
            assert!(bytes(&again) == bytes(&whole), "behind {count} groups");
        }
    }

    #[test]
    fn a_critic_that_fails_is_halted_and_the_others_learn() {
        let groups = groups(6);
        let mut state = State::new(60);
        groups[..4].iter().for_each(|group| drop(state.apply(group.clone()).unwrap()));
        FAULT.set(Some((4711, 60)));
        let failed = state.apply(groups[4].clone()).unwrap().failed;
        FAULT.set(None);
        assert_eq!((failed.len(), failed[0].from, failed[0].to), (1, 60, 80));
        assert!(state.is_halted(0) && !state.is_halted(1));
        state.apply(groups[5].clone()).unwrap();
        assert_eq!((state.critics()[0].learned(), state.critics()[1].learned()), (60, 100));
        // Rebuilt alone, and without those rows.
        let mut again = State::new(60);
        again.skip(failed);
        again.only("frail");
        groups[..6].iter().for_each(|group| drop(again.apply(group.clone()).unwrap()));
        assert_eq!((again.critics()[0].learned(), again.critics()[1].learned()), (100, 0));
        state.replace(again.critics()[0].clone()).unwrap();
        assert!(!state.is_halted(0));
        state.apply(groups[6].clone()).unwrap();
        let rows = |critic: usize| state.critics()[critic].model().unwrap().statistics().rows;
        assert_eq!((rows(0), rows(1)), (100, 120));
    }

    #[test]
    fn a_refit_that_was_asked_for_is_asked_of_the_critic_that_takes_the_place() {
        let groups = groups(6);
        let mut state = State::new(60);
        groups[..6].iter().for_each(|group| drop(state.apply(group.clone()).unwrap()));
        let rebuilt = state.critics()[0].clone();
        state.replace(rebuilt.clone()).unwrap();
        assert!(!state.critics()[0].is_refit_requested());
        state.request_refit(0);
        state.replace(rebuilt).unwrap();
        assert_eq!(state.critics()[0].refit_due(), Some(RefitTrigger::Requested));
    }

    #[test]
    fn a_critic_that_fails_as_it_takes_rows_costs_itself_alone() {
        let groups = groups(6);
        let mut state = State::new(60);
        groups[..4].iter().for_each(|group| drop(state.apply(group.clone()).unwrap()));
        FAULT_TAKING.set(Some((4711, 65)));
        let failed = state.apply(groups[4].clone()).unwrap().failed;
        assert_eq!((failed.len(), failed[0].from, failed[0].to), (1, 60, 80));
        assert!(failed[0].why.contains("on purpose"), "{}", failed[0].why);
        assert!(state.is_halted(0) && !state.is_halted(1));
        state.apply(groups[5].clone()).unwrap();
        assert_eq!((state.critics()[0].learned(), state.critics()[1].learned()), (60, 100));
        // Without those rows it does not fail again.
        let mut again = State::new(60);
        again.skip(failed);
        groups[..6].iter().for_each(|group| assert!(again.apply(group.clone()).unwrap().failed.is_empty()));
        FAULT_TAKING.set(None);
        let rows = |critic: usize| again.critics()[critic].model().unwrap().statistics().rows;
        assert_eq!((again.critics()[0].learned(), rows(0), rows(1)), (100, 80, 100));
    }

    #[test]
    fn records_that_cannot_follow_are_refused() {
        let groups = groups(2);
        let mut state = State::new(60);
        groups[..2].iter().for_each(|group| drop(state.apply(group.clone()).unwrap()));
        let ended = Record::RefitEnded { critic: "nobody".into() };
        let why = state.clone().apply(Group { records: vec![ended], ..groups[2].clone() }).unwrap_err();
        assert!(why.contains("nobody"), "{why}");
        let mut other = groups[2].clone();
        let Record::Rows(taken) = &mut other.records[0] else { panic!("rows") };
        taken.starts_chain[0] = true;
        assert!(state.clone().apply(other).unwrap_err().contains("begin elsewhere"));
        let end = groups[2].end.offset;
        let critics = vec![settings("late", 3)];
        let late = Record::Configured(Configured {
            critics,
            names: None,
            from: groups[2].first_offset + 1,
            ..Configured::default()
        });
        let why = state.clone().apply(Group { records: vec![late], ..groups[2].clone() }).unwrap_err();
        assert!(why.contains("behind the end"), "{why}");
        let policy = Record::NewPolicy(NewPolicy { critic: None, policy: Some("p".into()), offset: end + 1 });
        let why = state.clone().apply(Group { records: vec![policy], ..groups[2].clone() }).unwrap_err();
        assert!(why.contains("behind the end"), "{why}");
        state.apply(groups[2].clone()).unwrap();
    }
}
