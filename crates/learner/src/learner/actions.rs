//! Rows of a critic of action values: the next row of a stream completes the one before it.
//!
//! A row enters as it arrives, with its action. [`crate::action`] says whose action follows it: where that is not known yet the
//! row waits, one of each stream. A complete row goes into a window of rows between inputs of Q, which the critic learns from as
//! any other critic does from the rows as they arrive. Where rows are missing, or one has no action, the critic does not learn the
//! row that waits, and the row's own input closes the chain.
//!
//! The window counts complete rows. Outside of this module offsets count rows as they arrive.

use super::{Event, Learner, endings};
use crate::action::{ActionColumns, ActionValue, Column, Successor};
use crate::improve::Acting;
use crate::math::dense::Matrix;
use crate::model::Model;
use crate::settings::Settings;
use crate::snapshot::Snapshot;
use crate::transition::{Batch, Rows};
use crate::warning::Warning;
use crate::watch::Alarm;
use crate::window::Window;
use crate::world::Live;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Complete rows that are kept for refits and improvement.
pub const INPUT_ROWS_MAX: usize = 50_000;
/// Rows that may wait; one more, and the one that has waited longest is not learned.
const WAITING_MAX: usize = 65_536;

/// A row whose successor's action is not known yet.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct WaitingRow {
    /// When it arrived.
    offset: u64,
    /// (D + A,) input.
    #[serde(with = "crate::math::raw")]
    input: Vec<f64>,
    /// (D,).
    #[serde(with = "crate::math::raw")]
    next_state: Vec<f64>,
    /// (H,), about the prior mean.
    #[serde(with = "crate::math::raw")]
    rewards: Vec<f64>,
    /// Its own, or NaN.
    discount: f64,
    carry: f64,
    starts: bool,
    /// Coordinates of the action that it names itself, for the case that no row follows; else empty.
    #[serde(with = "crate::math::raw")]
    named: Vec<f64>,
}

/// How a row ends that has just been completed.
#[derive(Clone, Copy, Debug, Default)]
struct Ends {
    terminated: bool,
    truncated: bool,
}

/// The rows of a critic of action values: complete ones, and those that wait.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ActionRows {
    /// Offset of the first row that it was offered.
    first: u64,
    /// Offset after the last row received.
    end: u64,
    /// Offset after the last complete row learned.
    learned: u64,
    /// None before the first row.
    #[serde(with = "written")]
    window: Option<Window>,
    /// Rows from before the window that end episodes, and those that led there, the oldest first. They are few, and improvement
    /// learns from them how episodes end.
    #[serde(default)]
    endings: Rows,
    /// By stream.
    waiting: BTreeMap<u32, WaitingRow>,
    /// Streams whose next complete row starts a chain.
    cut: BTreeSet<u32>,
    /// Where another policy begins to act, as rows arrive: with the row at an offset, in one stream or, without a number, in all.
    #[serde(default, rename = "policy_from", deserialize_with = "policies::deserialize")]
    policies_from: BTreeSet<(u64, Option<u32>)>,
    /// Rows without an action of the critic's.
    without_action: u64,
    /// Rows that ended a chain before anything named the next action.
    unnamed: u64,
    /// Offset in the window behind the last row that ended an episode.
    #[serde(default)]
    ended: u64,
    /// Where actions lead; none before a refit has chosen its kernels, and where it is not wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) world: Option<Box<Live>>,
    /// Scratch.
    #[serde(skip)]
    complete: Rows,
}

/// Settings and weights that decide how a row is completed.
struct By<'a> {
    of: &'a ActionValue,
    settings: &'a Settings,
    /// Model and weights that prefer actions; none before the first improvement.
    preferred: Option<(&'a Model, &'a Matrix)>,
}

impl ActionRows {
    pub(super) fn starting_at(first: u64) -> Self {
        Self {
            first,
            end: first,
            learned: first,
            window: None,
            endings: Rows::default(),
            waiting: BTreeMap::new(),
            cut: BTreeSet::new(),
            policies_from: BTreeSet::new(),
            without_action: 0,
            unnamed: 0,
            ended: 0,
            world: None,
            complete: Rows::default(),
        }
    }

    /// Whether the parts agree with each other and with the settings, which a file may contradict.
    pub(super) fn is_consistent(&self, settings: &Settings) -> bool {
        let Some(of) = &settings.action_value else { return false };
        let fits = |window: &Window| window.dim() > of.space.width();
        let waits = |waiting: &WaitingRow| {
            let Some(window) = &self.window else { return false };
            waiting.input.len() == window.dim()
                && waiting.next_state.len() + of.space.width() == window.dim()
                && waiting.rewards.len() == window.rewards_per_row()
                && [0, of.space.width()].contains(&waiting.named.len())
        };
        self.first <= self.learned
            && self.learned <= self.end
            && self.window.as_ref().is_none_or(fits)
            && self.waiting.values().all(waits)
            && (self.endings.is_empty() || self.endings.is_consistent())
            && self.world.as_ref().is_none_or(|world| {
                self.window.as_ref().is_some_and(|window| {
                    world.is_consistent(window.dim(), of.space.width(), Some(window.rewards_per_row()))
                })
            })
            && self.window.as_ref().is_none_or(|window| self.endings.is_empty() || self.endings.dim == window.dim())
    }

    /// Complete rows so far.
    fn count(&self) -> u64 {
        self.window.as_ref().map_or(0, Window::end)
    }

    /// Complete rows that are kept; none before the first row.
    pub(super) fn window(&self) -> Option<&Window> {
        self.window.as_ref()
    }

    /// Whether rows have come.
    pub(super) fn has_begun(&self) -> bool {
        self.window.is_some()
    }

    /// Rows that arrived less those that are complete: the lag of the window's offsets.
    pub(super) fn lag(&self) -> u64 {
        self.end.saturating_sub(self.count())
    }

    /// Bytes held.
    fn bytes(&self) -> usize {
        let row = self.window.as_ref().map_or(0, |window| 3 * window.dim() * size_of::<f64>());
        let ending = Rows::bytes_per_row(self.endings.dim, self.endings.rewards_per_row);
        let world = self.world.as_ref().map_or(0, |world| world.bytes());
        self.window.as_ref().map_or(0, Window::bytes) + self.waiting.len() * row + self.endings.len() * ending + world
    }

    /// Take rows in, the first at `offset`; those before the end are known.
    fn take(&mut self, by: &By<'_>, (stream, starts): (u32, &[bool]), batch: &Batch, offset: u64) {
        let width = by.of.space.width();
        let (dim, rewards) = (batch.dim() + width, batch.rewards_per_row());
        self.window.get_or_insert_with(|| Window::new(dim, rewards, INPUT_ROWS_MAX));
        if (self.complete.dim, self.complete.rewards_per_row) != (dim, rewards) {
            self.complete = Rows::new(dim, rewards);
        }
        if offset > self.end {
            self.leave_out();
            self.end = offset;
        }
        let known = (self.end - offset).min(batch.len() as u64) as usize;
        for (i, &starts) in starts.iter().enumerate().take(batch.len()).skip(known) {
            self.end_policies();
            self.take_row(by, (stream, starts), batch, i);
            self.end += 1;
        }
        if let (Some((model, weights)), Successor::Improve) = (by.preferred, by.of.successor) {
            crate::improve::prefer(model, &by.of.space, weights.col(0), &mut self.complete);
        }
        let window = self.window.as_mut().expect("put in above");
        // Rows are forgotten where a segment is full.
        let before = (by.settings.improves() && window.is_about_to_forget(self.complete.len())).then(|| window.clone());
        let ends = |i: &usize| self.complete.terminated[*i] || self.complete.truncated[*i];
        if let Some(last) = (0..self.complete.len()).rev().find(ends) {
            self.ended = window.end() + last as u64 + 1;
        }
        window.extend(&self.complete, 0..self.complete.len());
        self.complete.clear();
        if let Some(before) = before {
            self.endings = endings::kept(&self.endings, &before, window);
        }
    }

    fn take_row(&mut self, by: &By<'_>, (stream, starts): (u32, bool), batch: &Batch, i: usize) {
        if starts {
            self.close(stream);
        }
        let mut input = batch.state(i).to_vec();
        let own = batch.action(i).map(|action| by.of.space.append(action, &mut input));
        if !matches!(own, Some(Ok(()))) {
            self.cut(stream);
            self.without_action += 1;
            return;
        }
        let space = &by.of.space;
        let mut named = Vec::new();
        if let Some(action) = batch.next_action(i)
            && space.append(action, &mut named).is_err()
        {
            named.clear();
        }
        let ends = Ends { terminated: batch.terminated(i), truncated: batch.truncated(i) };
        let mut row = WaitingRow {
            offset: self.end,
            next_state: batch.next_state(i).to_vec(),
            rewards: batch.reward(i).to_vec(),
            discount: batch.discount(i).unwrap_or(f64::NAN),
            carry: by.of.trace.factor(batch.behavior_prob(i), batch.target_prob(i), by.settings.rho_max),
            starts: starts | self.cut.remove(&stream),
            named,
            input,
        };
        if by.settings.prior_mean != 0.0 {
            let discount = batch.discount(i).unwrap_or(by.settings.discount);
            for &column in &by.settings.rewards {
                row.rewards[column] = by.settings.about_prior_mean(row.rewards[column], discount, ends.terminated);
            }
        }
        let own = row.input[batch.dim()..].to_vec();
        let probs = batch.next_action_probs(i).filter(|probs| {
            by.of.successor == Successor::Expected && space.choices() == probs.len() && !ends.terminated
        });
        let follows = if ends.terminated || by.of.successor == Successor::Improve {
            Some(own.clone())
        } else if let Some(probs) = probs {
            Some(probs.to_vec())
        } else if !row.named.is_empty() && (by.of.successor != Successor::Sarsa || ends.truncated) {
            Some(std::mem::take(&mut row.named))
        } else {
            None
        };
        let lost = follows.is_none() && ends.truncated;
        if let Some(before) = self.waiting.remove(&stream) {
            self.complete(before, &own, stream, Ends { terminated: false, truncated: lost });
        } else if lost {
            // The rows of its chain that did not wait are closed as the next row begins another.
            self.cut.insert(stream);
        }
        match follows {
            Some(follows) => self.complete(row, &follows, stream, ends),
            None if lost => {
                self.unnamed += 1;
                if row.starts {
                    self.cut.insert(stream);
                }
            }
            None => self.wait(stream, row),
        }
    }

    fn wait(&mut self, stream: u32, row: WaitingRow) {
        self.waiting.insert(stream, row);
        if self.waiting.len() > WAITING_MAX
            && let Some(oldest) = self.waiting.iter().min_by_key(|(_, row)| row.offset).map(|(stream, _)| *stream)
        {
            self.close(oldest);
        }
    }

    /// No row follows the one of `stream` that waits: it is learned if it names the next action itself.
    fn close(&mut self, stream: u32) {
        let Some(mut row) = self.waiting.remove(&stream) else { return };
        if row.named.is_empty() {
            self.unnamed += 1;
            self.cut.insert(stream);
        } else {
            let named = std::mem::take(&mut row.named);
            self.complete(row, &named, stream, Ends { terminated: false, truncated: true });
        }
    }

    /// Rows of every stream are missing from here on, or another policy acts.
    fn leave_out(&mut self) {
        let streams: Vec<u32> = self.waiting.keys().copied().collect();
        streams.into_iter().for_each(|stream| self.cut(stream));
    }

    fn cut(&mut self, stream: u32) {
        self.close(stream);
        self.cut.insert(stream);
    }

    /// Rows that wait for an action of a policy that acts no more, now that the next row is another policy's.
    fn end_policies(&mut self) {
        while self.policies_from.first().is_some_and(|(from, _)| *from <= self.end) {
            match self.policies_from.pop_first() {
                Some((_, Some(stream))) => self.cut(stream),
                _ => self.leave_out(),
            }
        }
    }

    fn complete(&mut self, row: WaitingRow, follows: &[f64], stream: u32, ends: Ends) {
        let to = &mut self.complete;
        to.states.extend_from_slice(&row.input);
        to.next_states.extend_from_slice(&row.next_state);
        to.next_states.extend_from_slice(follows);
        to.rewards.extend_from_slice(&row.rewards);
        to.discounts.push(row.discount);
        to.ratios.push(1.0);
        to.carries.push(row.carry);
        to.streams.push(stream);
        to.terminated.push(ends.terminated);
        to.truncated.push(ends.truncated);
        to.starts_chain.push(row.starts);
    }
}

impl ActionValue {
    /// `rows` between inputs of Q as they were under the policy that acted: the next row of its chain has the action that follows a
    /// row. These rows select a kernel.
    pub(crate) fn acted(&self, rows: &Rows) -> Rows {
        let (dim, width) = (rows.dim, self.space.width());
        let state = dim - width;
        let mut raw = Rows { dim: state, carries: Vec::new(), ..rows.clone() };
        let mut actions = Column { width: self.space.numbers(), values: Vec::new() };
        let states = |inputs: &[f64]| inputs.chunks_exact(dim).flat_map(|z| z[..state].to_vec()).collect::<Vec<f64>>();
        (raw.states, raw.next_states) = (states(&rows.states), states(&rows.next_states));
        for input in rows.states.chunks_exact(dim) {
            actions.values.extend(self.space.action_of(&input[state..]));
        }
        let columns = ActionColumns { actions, ..ActionColumns::default() };
        self.on_policy().rows(&raw, &columns, None).expect("actions of the space").rows
    }
}

impl Learner {
    /// Take in rows of stream number `stream`, the first at `offset`, with one of `starts_chain` for each: a critic of action values
    /// keeps them here until it learns them, since a window of rows has no actions. Any other critic leaves them alone.
    ///
    /// # Panics
    /// If there is another number of flags, or the rows are of another shape than those before.
    pub fn take(&mut self, stream: u32, starts_chain: &[bool], batch: &Batch, offset: u64) {
        assert_eq!(starts_chain.len(), batch.len(), "one flag for each row");
        #[cfg(feature = "faults")]
        if let Some((seed, at)) = super::FAULT_TAKING.get().filter(|&(seed, _)| seed == self.settings.seed) {
            let rows = offset..offset + batch.len() as u64;
            assert!(!rows.contains(&at), "a fault made on purpose in the learner with seed {seed}");
        }
        // Rows from before its beginning come again behind a checkpoint: with none but those it stays as it is.
        let is_new = |rows: &mut Box<ActionRows>| rows.end < offset + batch.len() as u64;
        let Some(mut rows) = self.action_rows.take_if(is_new) else { return };
        let of = self.settings.action_value.as_ref().expect("a critic of action values");
        // Names that came before any row have the actions' already.
        if rows.window.is_none() && self.names.as_ref().is_none_or(|names| names.len() == batch.dim()) {
            self.names = Some(self.settings.input_names(self.names.take(), batch.dim()));
        }
        let preferred = self.model.as_deref().zip(self.acting.as_ref().map(Acting::weights));
        let by = By { of, settings: &self.settings, preferred };
        rows.take(&by, (stream, starts_chain), batch, offset);
        self.action_rows = Some(rows);
    }

    /// The rows that it learns from, of a daemon that keeps `window`.
    pub fn rows<'a>(&'a self, window: &'a Window) -> &'a Window {
        self.action_rows.as_ref().and_then(|rows| rows.window.as_ref()).unwrap_or(window)
    }

    /// Rows that wait for the action that follows them, rows left out since they have no action of the critic's, and rows left out
    /// since nothing named the action that follows; none for values of states.
    pub fn waiting_rows(&self) -> Option<[u64; 3]> {
        let rows = self.action_rows.as_ref()?;
        Some([rows.waiting.len() as u64, rows.without_action, rows.unnamed])
    }

    /// Rows, and so the model, are about the prior mean: readers get Q itself.
    pub(super) fn with_prior_mean(&self, mut snapshot: Snapshot) -> Snapshot {
        snapshot.actions.iter_mut().for_each(|actions| actions.prior_mean = self.settings.prior_mean);
        snapshot
    }

    /// Offset behind the last complete row that ended an episode; 0 before the first.
    pub(super) fn episode_ended_at(&self) -> u64 {
        self.action_rows.as_ref().map_or(0, |rows| rows.ended)
    }

    /// Rows from before the window that end episodes.
    pub(super) fn endings(&self) -> Rows {
        self.action_rows.as_ref().map(|rows| rows.endings.clone()).unwrap_or_default()
    }

    /// Bytes of its own rows, for reports of memory; 0 for values of states.
    pub fn action_row_bytes(&self) -> usize {
        self.action_rows.as_ref().map_or(0, |rows| rows.bytes())
    }

    /// Learn the rows that are complete.
    pub(super) fn step_actions(&mut self) -> Vec<Event> {
        let Some(rows) = &self.action_rows else { return Vec::new() };
        let (lag, end) = (rows.lag(), rows.end);
        let window = rows.window.clone();
        let mut events = Vec::new();
        if let Some(window) = window {
            self.learn_up_to(&window, window.end(), &mut events);
            self.learn_transitions(&window, &events);
        }
        let held = if self.model.is_some() { self.looks_back_to() } else { self.first_row };
        if let Some(rows) = &mut self.action_rows {
            rows.window.iter_mut().for_each(|window| window.hold(held));
            rows.learned = end;
        }
        events.into_iter().map(|event| event.later(lag)).collect()
    }

    /// Rows that arrived up to `offset` are not learned.
    pub(super) fn skip_actions(&mut self, offset: u64) -> Option<u64> {
        let rows = self.action_rows.as_mut()?;
        rows.leave_out();
        rows.complete.clear();
        rows.end = rows.end.max(offset);
        rows.learned = rows.end;
        Some(rows.count())
    }

    /// Offset of a complete row from the offset of a row as it arrives, for what holds from there on.
    pub(super) fn complete_offset(&self, offset: u64) -> u64 {
        offset.saturating_sub(self.action_rows.as_ref().map_or(0, |rows| rows.lag()))
    }

    /// Another policy acts from the row at `offset` on, in the stream of this number or in all.
    pub(super) fn policy_from(&mut self, offset: u64, stream: Option<u32>) {
        if let Some(rows) = self.action_rows.as_mut().filter(|rows| offset >= rows.end) {
            rows.policies_from.insert((offset, stream));
        }
    }

    /// Offset behind the last row that it has learned, as rows arrive.
    pub(super) fn arrived(&self, learned: u64) -> u64 {
        self.action_rows.as_ref().map_or(learned, |rows| rows.learned)
    }

    /// An offset of a complete row as rows arrive.
    pub(super) fn arrival(&self, offset: u64) -> u64 {
        self.action_rows.as_ref().map_or(offset, |rows| offset + rows.lag())
    }

    /// Offset of the first row that it was offered, as rows arrive.
    pub(super) fn first_arrived(&self) -> Option<u64> {
        self.action_rows.as_ref().map(|rows| rows.first)
    }

    /// Rows from `first` on count as offered.
    pub(super) fn offered_from(&mut self, first: u64) {
        if let Some(rows) = &mut self.action_rows {
            rows.first = first.min(rows.learned);
        }
    }
}

impl Event {
    /// The same event at offsets that are larger by `lag`.
    fn later(self, lag: u64) -> Self {
        match self {
            Self::FirstModel | Self::DictionaryFull => self,
            Self::Drift(alarm) => {
                let finding = crate::math::drift::Finding { since: alarm.finding.since + lag, ..alarm.finding };
                Self::Drift(Alarm { offset: alarm.offset + lag, finding, ..alarm })
            }
            Self::Warning(warning) => {
                let (offset, since) = (warning.offset + lag, warning.since + lag);
                Self::Warning(Warning { offset, since, ..warning })
            }
            Self::Forked { from, at } => Self::Forked { from: from + lag, at: at + lag },
            Self::Swapped { from, at, kept } => Self::Swapped { from: from + lag, at: at + lag, kept },
            Self::Dismissed { from, at } => Self::Dismissed { from: from + lag, at: at + lag },
            Self::Returned { name, until, at, kept } => Self::Returned { name, until: until + lag, at: at + lag, kept },
            Self::NewPolicy { offset, policy } => Self::NewPolicy { offset: offset + lag, policy },
        }
    }
}

/// Where policies begin, as checkpoints have it: in older ones, one offset for all streams, or none.
mod policies {
    use serde::{Deserialize, Deserializer};
    use std::collections::BTreeSet;

    #[derive(Deserialize)]
    #[serde(untagged)]
    enum WrittenOffsets {
        One(Option<u64>),
        All(BTreeSet<(u64, Option<u32>)>),
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeSet<(u64, Option<u32>)>, D::Error> {
        Ok(match WrittenOffsets::deserialize(deserializer)? {
            WrittenOffsets::One(offset) => offset.into_iter().map(|offset| (offset, None)).collect(),
            WrittenOffsets::All(offsets) => offsets,
        })
    }
}

/// A window as a checkpoint has it: its rows, and where they begin.
mod written {
    use super::INPUT_ROWS_MAX;
    use crate::window::{Window, WrittenWindow};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(window: &Option<Window>, serializer: S) -> Result<S::Ok, S::Error> {
        window.as_ref().map(Window::written).serialize(serializer)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Window>, D::Error> {
        let written = Option::<WrittenWindow>::deserialize(deserializer)?;
        written.map(|written| written.window(INPUT_ROWS_MAX)).transpose().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::{ActionSpace, Trace};
    use crate::transition::BatchParts;

    fn learner(successor: Successor) -> Learner {
        let trace = if successor == Successor::Sarsa { Trace::OnPolicy } else { Trace::Retrace };
        let action_value = Some(ActionValue { space: ActionSpace::Discrete(3), successor, trace });
        Learner::new(Settings { action_value, warmup_rows: 8, refit_first_rows: 0, ..Settings::default() }, None)
    }

    /// Rows of one stream: states count, actions are those given, `ends` say which rows terminate (1) or are truncated (2).
    fn batch(first: f64, actions: &[f64], ends: &[u8]) -> Batch {
        let n = actions.len();
        Batch::new(BatchParts {
            stream: "s".into(),
            dim: 1,
            rewards_per_row: 1,
            states: (0..n).map(|i| first + i as f64).collect(),
            next_states: Some((0..n).map(|i| first + i as f64 + 1.0).collect()),
            rewards: (0..n).map(|i| first + i as f64).collect(),
            actions: Some(actions.to_vec()),
            terminated: Some(ends.iter().map(|&end| end == 1).collect()),
            truncated: Some(ends.iter().map(|&end| end == 2).collect()),
            ..BatchParts::default()
        })
        .unwrap()
    }

    fn complete(learner: &Learner) -> Rows {
        learner.action_rows.as_ref().and_then(|rows| rows.window.as_ref()).map(Window::flatten).unwrap_or_default()
    }

    #[test]
    fn a_row_waits_for_the_next_one_of_its_stream_and_for_no_other() {
        let mut learner = learner(Successor::Sarsa);
        learner.take(0, &[true, false], &batch(0.0, &[1.0, 2.0], &[0, 0]), 0);
        assert_eq!((complete(&learner).len(), learner.waiting_rows()), (1, Some([1, 0, 0])));
        learner.take(1, &[true], &batch(10.0, &[0.0], &[1]), 2);
        learner.take(0, &[false, false], &batch(2.0, &[0.0, 1.0], &[0, 2]), 3);
        let rows = complete(&learner);
        assert_eq!(rows.rewards, [0.0, 10.0, 1.0, 2.0], "the truncated row names no action");
        assert_eq!(rows.next_states[..4], [1.0, 0.0, 0.0, 1.0]);
        assert_eq!(rows.next_states[12..], [3.0, 0.0, 1.0, 0.0], "its own input closes the chain");
        assert_eq!((rows.truncated, rows.terminated[1]), (vec![false, false, false, true], true));
        assert_eq!(learner.waiting_rows(), Some([0, 0, 1]));
    }

    #[test]
    fn names_of_the_state_may_come_before_rows_and_behind_them() {
        let (mut before, mut behind) = (learner(Successor::Sarsa), learner(Successor::Sarsa));
        before.set_names(Some(vec!["x".into()]));
        for learner in [&mut before, &mut behind] {
            learner.take(0, &[true, false], &batch(0.0, &[1.0, 2.0], &[0, 0]), 0);
        }
        behind.set_names(Some(vec!["x".into()]));
        assert_eq!(before.names.as_deref().unwrap(), ["x", "action=0", "action=1", "action=2"]);
        assert_eq!(behind.names, before.names);
        // Actions have names later still; names in the settings count more, and others are of other actions.
        let called = |names: [&str; 3]| names.map(str::to_owned);
        behind.settings.call_actions(&called(["a", "b", "c"])[..2]);
        behind.settings.call_actions(&called(["a", "b", "c"]));
        behind.settings.call_actions(&called(["d", "e", "f"]));
        behind.set_names(None);
        assert_eq!(behind.names.as_deref().unwrap(), ["x", "action=a", "action=b", "action=c"]);
    }

    #[test]
    fn nothing_is_stitched_where_rows_or_actions_are_missing() {
        let mut learner = learner(Successor::Sarsa);
        learner.take(0, &[true, false], &batch(0.0, &[1.0, 2.0], &[0, 0]), 0);
        learner.take(0, &[false, false], &batch(5.0, &[1.0, 2.0], &[0, 0]), 7);
        let rows = complete(&learner);
        assert_eq!((rows.rewards, rows.starts_chain), (vec![0.0, 5.0], vec![true, true]));
        // No such action: the row before it is not learned either.
        learner.take(0, &[false; 3], &batch(7.0, &[3.0, 1.0, 1.0], &[0, 0, 1]), 9);
        let rows = complete(&learner);
        assert_eq!((rows.rewards, rows.starts_chain), (vec![0.0, 5.0, 8.0, 9.0], vec![true, true, true, false]));
        assert_eq!(learner.waiting_rows(), Some([0, 1, 2]));
    }

    #[test]
    fn rows_that_are_known_are_not_taken_twice_and_rows_as_they_were_acted_are_found_again() {
        let (mut one, mut sarsa) = (learner(Successor::Improve), learner(Successor::Sarsa));
        for learner in [&mut one, &mut sarsa] {
            learner.take(0, &[true, false, false], &batch(0.0, &[1.0, 2.0, 0.0], &[0, 0, 2]), 0);
            learner.take(0, &[false, false], &batch(2.0, &[0.0, 1.0], &[2, 0]), 2);
            learner.take(0, &[false, false], &batch(4.0, &[1.0, 1.0], &[0, 1]), 4);
        }
        let rows = complete(&one);
        assert_eq!(rows.rewards, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        let of = one.settings().action_value.clone().unwrap();
        let (found, expected) = (of.acted(&rows), complete(&sarsa));
        assert_eq!((&found.states, &found.next_states), (&expected.states, &expected.next_states));
        assert_eq!((found.truncated, found.terminated), (expected.truncated, expected.terminated));
    }

    #[test]
    fn rows_are_kept_about_the_prior_mean_and_read_as_values() {
        let settings = Settings { prior_mean: 3.0, discount: 0.5, ..learner(Successor::Improve).settings };
        let mut learner = Learner::new(settings.clone(), None);
        learner.take(0, &[true, false], &batch(0.0, &[1.0, 2.0], &[0, 1]), 0);
        let kept = complete(&learner);
        assert_eq!(kept.rewards, [0.0 - 1.5, 1.0 - 3.0]);
        let mut rows = Rows { rewards: vec![0.0, 1.0], ..kept.clone() };
        settings.take_prior_mean(&mut rows);
        assert_eq!(rows.rewards, kept.rewards);
        for k in 0..10 {
            learner.take(0, &[true, false], &batch(0.0, &[1.0, 2.0], &[0, 1]), 2 + 2 * k);
            drop(learner.step(&Window::new(1, 1, 10)));
        }
        let snapshot = learner.snapshot(false).unwrap();
        let far = snapshot.evaluate(&[1e6, 0.0, 0.0, 1.0], crate::snapshot::Ask::MEAN).unwrap().mean[0];
        let bias = snapshot.hyperparameters.kernel.bias_variance * snapshot.weights.sum();
        assert!((far - bias - 3.0).abs() < 1e-9, "{far}");
    }

    #[test]
    fn what_ends_episodes_is_kept_longest() {
        let mut learner = learner(Successor::Improve);
        let rows = 60_000u64;
        for k in 0..rows / 100 {
            let ends: Vec<u8> = (0..100).map(|i| u8::from(k == 3 && i == 80)).collect();
            learner.take(0, &[false; 100], &batch((100 * k) as f64, &[1.0; 100], &ends), 100 * k);
            drop(learner.step(&Window::new(1, 1, 10)));
        }
        let (endings, window) = (learner.endings(), learner.action_rows.as_ref().unwrap().window.as_ref().unwrap());
        assert!(window.start() > 400, "{}", window.start());
        // The row that terminated and the 60 before it.
        let expected: Vec<f64> = (320..=380).map(f64::from).collect();
        assert_eq!((endings.rewards.clone(), endings.terminated[60]), (expected, true));
        let rows = learner.action_rows.as_ref().unwrap();
        assert_eq!(rows.bytes(), window.bytes() + 61 * Rows::bytes_per_row(4, 1));
    }

    #[test]
    fn a_stream_that_names_the_policy_that_acts_leaves_the_rows_of_others_alone() {
        let mut learner = learner(Successor::Sarsa);
        learner.policy_of_rows(0, 0, "p");
        learner.take(0, &[true, false], &batch(0.0, &[1.0, 2.0], &[0, 0]), 0);
        learner.policy_of_rows(2, 1, "p");
        learner.take(1, &[true], &batch(10.0, &[0.0], &[1]), 2);
        learner.take(0, &[false], &batch(2.0, &[0.0], &[1]), 3);
        let rows = complete(&learner);
        assert_eq!((rows.rewards, learner.waiting_rows()), (vec![0.0, 10.0, 1.0, 2.0], Some([0, 0, 0])));
        assert_eq!(rows.starts_chain, [true, true, false, false], "one chain for each stream");
    }

    #[test]
    fn a_stream_that_changes_to_the_policy_that_acts_is_cut_and_no_other() {
        let mut learner = learner(Successor::Sarsa);
        for (stream, policy) in [(0, "a"), (1, "a"), (2, "b")] {
            learner.policy_of_rows(2 * u64::from(stream), stream, policy);
            learner.take(stream, &[true, false], &batch(0.0, &[1.0, 2.0], &[0, 0]), 2 * u64::from(stream));
        }
        assert_eq!(learner.waiting_rows(), Some([1, 0, 2]), "rows under a are not followed by actions of b");
        learner.take(0, &[false], &batch(2.0, &[1.0], &[0]), 6);
        learner.policy_of_rows(7, 1, "b");
        learner.take(1, &[false], &batch(2.0, &[1.0], &[0]), 7);
        assert_eq!(learner.waiting_rows(), Some([3, 0, 2]));
        learner.policy_of_rows(8, 0, "b");
        learner.take(0, &[false], &batch(3.0, &[1.0], &[0]), 8);
        assert_eq!(learner.waiting_rows(), Some([3, 0, 3]), "the row of stream 0 alone");
    }

    #[test]
    fn policies_that_begin_at_several_rows_end_at_each() {
        let mut learner = learner(Successor::Sarsa);
        learner.take(0, &[true, false], &batch(0.0, &[1.0, 2.0], &[0, 0]), 0);
        learner.new_policy(3, Some("b"));
        learner.new_policy(5, Some("c"));
        learner.take(0, &[false; 6], &batch(2.0, &[1.0; 6], &[0, 0, 0, 0, 0, 1]), 2);
        let rows = complete(&learner);
        assert_eq!(rows.rewards, [0.0, 1.0, 3.0, 5.0, 6.0, 7.0]);
        assert_eq!(
            (rows.starts_chain, learner.waiting_rows()),
            (vec![true, false, true, true, false, false], Some([0, 0, 2]))
        );
    }

    #[test]
    fn checkpoints_of_before_have_one_offset_at_most() {
        let read = |rows: &serde_json::Value| serde_json::from_value::<ActionRows>(rows.clone());
        let mut rows = serde_json::to_value(ActionRows::starting_at(3)).unwrap();
        for (before, expected) in [(serde_json::json!(7), vec![(7, None)]), (serde_json::Value::Null, vec![])] {
            rows["policy_from"] = before;
            assert_eq!(read(&rows).unwrap().policies_from.into_iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn written_and_read_back_it_goes_on_bit_for_bit() {
        let mut first = learner(Successor::Sarsa);
        let window = Window::new(1, 1, 10);
        let chunk = |k: u64| {
            let actions: Vec<f64> = (0..10).map(|i| ((7 * i + k) % 3) as f64).collect();
            batch(k as f64 % 5.0, &actions, &[0, 0, 0, 0, 1, 0, 0, 0, 0, 0])
        };
        let feed = |learner: &mut Learner, k: u64| {
            let starts: Vec<bool> = (0..10).map(|i| i == 5 || i == 0).collect();
            learner.take(0, &starts, &chunk(k), 10 * k);
            drop(learner.step(&window));
        };
        (0..20).for_each(|k| feed(&mut first, k));
        let bytes = rmp_serde::to_vec_named(&first).unwrap();
        let mut second: Learner = rmp_serde::from_slice(&bytes).unwrap();
        assert!(second.is_consistent());
        for k in 20..30 {
            feed(&mut first, k);
            feed(&mut second, k);
        }
        assert!(rmp_serde::to_vec_named(&first).unwrap() == rmp_serde::to_vec_named(&second).unwrap());
        assert_eq!((first.learned(), first.snapshot(true).unwrap().offset), (300, 300));
    }
}
