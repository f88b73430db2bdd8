//! The words of the domain: transitions as producers send them, checked once, and as learners read them.

mod kept;
mod names;
mod piece;
pub mod probability;

pub use self::kept::ACTION_NUMBERS_MAX;
use self::kept::put_action;
pub use self::names::{CHOICES_MAX, Names, check_policy, name_of_state, state_name, without_unit};
use crate::labels::LabelColumns;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;
use std::hash::Hasher;
use std::ops::Range;

/// Largest magnitude accepted in a state or a reward: squares and sums of squares stay far from overflow.
pub const MAGNITUDE_MAX: f64 = 1e9;

/// What is wrong with a message, in the words of the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum InvalidCode {
    /// A required field is not there.
    MissingField,
    /// A field has another type than it must have.
    WrongType,
    /// A field has another number of axes or of rows than it must have.
    WrongShape,
    /// States or rewards are of another length than those before them.
    WrongDimension,
    /// A number is NaN or infinite.
    NotFinite,
    /// A number, a length or a flag is outside what is allowed.
    OutOfRange,
}

/// Why a batch was refused: nothing of it is used.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{field}{}: {message}", .index.map(|index| format!(" (row {index})")).unwrap_or_default())]
pub struct Invalid {
    /// Kind of fault.
    pub code: InvalidCode,
    /// Field at fault, by its name on the wire.
    pub field: &'static str,
    /// Row at fault, where one row is.
    pub index: Option<usize>,
    /// A sentence for people.
    pub message: String,
}

impl Invalid {
    /// A fault of a whole field.
    pub fn new(code: InvalidCode, field: &'static str, message: impl Into<String>) -> Self {
        Self { code, field, index: None, message: message.into() }
    }

    /// A fault of one row of a field.
    pub fn at(code: InvalidCode, field: &'static str, index: usize, message: impl Into<String>) -> Self {
        Self { code, field, index: Some(index), message: message.into() }
    }
}

/// A batch as it was decoded, before any check. Matrices are row-major; n is the number of rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchParts {
    /// Whose experience this is, 1..=256 bytes.
    pub stream: String,
    /// One run of the producer, at most 256 bytes; "" if it names none.
    pub session: String,
    /// Position of the first row in the stream's session.
    pub seq: Option<u64>,
    /// State dimension D, at least 1.
    pub dim: usize,
    /// Rewards per row H, at least 1.
    pub rewards_per_row: usize,
    /// (n, D); or (n + 1, D) if `next_states` is left out.
    pub states: Vec<f64>,
    /// (n, D), or left out for a piece of one trajectory.
    pub next_states: Option<Vec<f64>>,
    /// (n, H).
    pub rewards: Vec<f64>,
    /// (n,), or left out: all false.
    pub terminated: Option<Vec<bool>>,
    /// (n,), or left out: all false.
    pub truncated: Option<Vec<bool>>,
    /// (n,) in \[0, 1\], or left out: the critic's discount.
    pub discounts: Option<Vec<f64>>,
    /// (n, A), or left out.
    pub actions: Option<Vec<f64>>,
    /// (n,) Unix seconds, or left out.
    pub times: Option<Vec<f64>>,
    /// (n,) above 0, or left out: probability or density under which each action was taken.
    pub behavior_probs: Option<Vec<f64>>,
    /// (n,) from 0, or left out: the same under the policy that is judged.
    pub target_probs: Option<Vec<f64>>,
    /// Name of the policy that acted, 1..=256 bytes, or left out.
    pub policy: Option<String>,
    /// (n, A), or left out: the action that this policy takes in the next state.
    pub next_actions: Option<Vec<f64>>,
    /// (n, C), or left out: its probabilities of C discrete actions in the next state; each row sums to 1.
    pub next_action_probs: Option<Vec<f64>>,
    /// What its numbers are called. Names say nothing of the rows.
    pub names: Names,
    /// Whether it came as one transition (names in errors are then singular).
    pub single: bool,
}

impl BatchParts {
    /// Bytes of its numbers, and bytes of the memory that they have.
    pub fn bytes(&self) -> (usize, usize) {
        let columns = [
            Some(&self.states),
            self.next_states.as_ref(),
            Some(&self.rewards),
            self.discounts.as_ref(),
            self.actions.as_ref(),
            self.times.as_ref(),
            self.behavior_probs.as_ref(),
            self.target_probs.as_ref(),
            self.next_actions.as_ref(),
            self.next_action_probs.as_ref(),
        ];
        let sum = |of: fn(&Vec<f64>) -> usize| size_of::<f64>() * columns.into_iter().flatten().map(of).sum::<usize>();
        (sum(Vec::len), sum(Vec::capacity))
    }

    /// The name of a field on the wire, where one transition has other names than many.
    fn name(&self, one: &'static str, many: &'static str) -> &'static str {
        if self.single { one } else { many }
    }

    /// Check stream, session and policy.
    fn check_names(&self) -> Result<(), Invalid> {
        if self.stream.is_empty() || self.stream.len() > 256 {
            let message = format!("a stream's name has 1 to 256 bytes, this one has {}", self.stream.len());
            return Err(Invalid::new(InvalidCode::OutOfRange, "stream", message));
        }
        if self.session.len() > 256 {
            let message = format!("a session's name has at most 256 bytes, this one has {}", self.session.len());
            return Err(Invalid::new(InvalidCode::OutOfRange, "session", message));
        }
        self.policy.as_deref().map_or(Ok(()), check_policy)?;
        self.names.check(self.dim, self.rewards_per_row)
    }

    /// Number of rows, at least 1, if states and rewards agree on it.
    fn check_rows(&self) -> Result<usize, Invalid> {
        let wrong = |field, message: String| Err(Invalid::new(InvalidCode::WrongShape, field, message));
        let (state, reward, dim) = (self.name("state", "states"), self.name("reward", "rewards"), self.dim);
        if dim == 0 {
            return wrong(state, "a state has at least one number".into());
        }
        if self.rewards_per_row == 0 {
            return wrong(reward, "a row has at least one reward".into());
        }
        if !self.rewards.len().is_multiple_of(self.rewards_per_row) {
            return wrong(reward, "rewards are not whole rows".into());
        }
        let len = self.rewards.len() / self.rewards_per_row;
        if len == 0 {
            return wrong(reward, "a batch has at least one row".into());
        }
        let (rows, numbers) = (if self.next_states.is_some() { len } else { len + 1 }, self.states.len());
        if numbers != rows * dim {
            let message =
                format!("{len} rows of rewards need {rows} rows of {dim} numbers here, not {numbers} numbers");
            return wrong(state, message);
        }
        match &self.next_states {
            Some(next) if next.len() != len * dim => {
                let message = format!("must have {len} rows of {dim} numbers, has {} numbers", next.len());
                wrong(self.name("next_state", "next_states"), message)
            }
            _ => Ok(len),
        }
    }

    /// Check that what may be left out has `len` rows where it is there.
    fn check_columns(&self, len: usize) -> Result<(), Invalid> {
        let wrong = |field, message: String| Err(Invalid::new(InvalidCode::WrongShape, field, message));
        for (field, values) in [("terminated", &self.terminated), ("truncated", &self.truncated)] {
            if values.as_ref().is_some_and(|v| v.len() != len) {
                return wrong(field, format!("must have one flag for each of {len} rows"));
            }
        }
        for (field, values) in [
            (self.name("discount", "discounts"), &self.discounts),
            (self.name("time", "times"), &self.times),
            (self.name("behavior_prob", "behavior_probs"), &self.behavior_probs),
            (self.name("target_prob", "target_probs"), &self.target_probs),
        ] {
            if values.as_ref().is_some_and(|v| v.len() != len) {
                return wrong(field, format!("must have one number for each of {len} rows"));
            }
        }
        let next_action = self.name("next_action", "next_actions");
        for (field, values) in [
            (self.name("action", "actions"), &self.actions),
            (next_action, &self.next_actions),
            ("next_action_probs", &self.next_action_probs),
        ] {
            if values.as_ref().is_some_and(|v| v.is_empty() || !v.len().is_multiple_of(len)) {
                return wrong(field, format!("must have {len} rows of one length"));
            }
        }
        match (&self.actions, &self.next_actions) {
            (Some(actions), Some(next)) if actions.len() != next.len() => {
                let (width, next) = (actions.len() / len, next.len() / len);
                wrong(next_action, format!("has {next} numbers per row where the action has {width}"))
            }
            _ => Ok(()),
        }
    }

    /// Check that the numbers of `len` rows are finite and in range.
    fn check_numbers(&self, len: usize) -> Result<(), Invalid> {
        let discount = self.name("discount", "discounts");
        check_bounded(&self.states, self.dim, self.name("state", "states"), MAGNITUDE_MAX)?;
        if let Some(next) = &self.next_states {
            check_bounded(next, self.dim, self.name("next_state", "next_states"), MAGNITUDE_MAX)?;
        }
        check_bounded(&self.rewards, self.rewards_per_row, self.name("reward", "rewards"), MAGNITUDE_MAX)?;
        for (field, values) in [
            (self.name("action", "actions"), &self.actions),
            (self.name("time", "times"), &self.times),
            (discount, &self.discounts),
        ] {
            if let Some(values) = values {
                check_bounded(values, values.len() / len, field, f64::MAX)?;
            }
        }
        let outside = self.discounts.iter().flatten().enumerate().find(|(_, g)| !(0.0..=1.0).contains(*g));
        if let Some((k, g)) = outside {
            let message = format!("a discount lies in [0, 1], this one is {g}");
            return Err(Invalid::at(InvalidCode::OutOfRange, discount, k, message));
        }
        for (field, values) in [
            (self.name("behavior_prob", "behavior_probs"), &self.behavior_probs),
            (self.name("target_prob", "target_probs"), &self.target_probs),
            (self.name("next_action", "next_actions"), &self.next_actions),
            ("next_action_probs", &self.next_action_probs),
        ] {
            if let Some(values) = values {
                check_bounded(values, values.len() / len, field, f64::MAX)?;
            }
        }
        Ok(())
    }

    /// Check the probabilities of `len` rows, finite numbers.
    fn check_probabilities(&self, len: usize) -> Result<(), Invalid> {
        let refused = |field, row, message| Invalid::at(InvalidCode::OutOfRange, field, row, message);
        for (i, &prob) in self.behavior_probs.iter().flatten().enumerate() {
            let field = self.name("behavior_prob", "behavior_probs");
            probability::check_behavior(prob).map_err(|message| refused(field, i, message))?;
        }
        for (i, &prob) in self.target_probs.iter().flatten().enumerate() {
            let behavior = self.behavior_probs.as_ref().map(|probs| probs[i]);
            let field = self.name("target_prob", "target_probs");
            probability::check_target(prob, behavior).map_err(|message| refused(field, i, message))?;
        }
        if let Some(probs) = &self.next_action_probs {
            for (i, row) in probs.chunks_exact(probs.len() / len).enumerate() {
                let checked = probability::check_distribution(row);
                checked.map_err(|(_, message)| refused("next_action_probs", i, message))?;
            }
        }
        Ok(())
    }

    /// Fill in the next states of a piece of one trajectory: each row leads to the state of the one behind it, so that only the
    /// last may end an episode.
    fn fill_next_states(&mut self, len: usize) -> Result<(), Invalid> {
        if self.next_states.is_some() {
            return Ok(());
        }
        for (field, values) in [("terminated", &self.terminated), ("truncated", &self.truncated)] {
            if let Some(k) = values.as_ref().and_then(|v| v[..len - 1].iter().position(|&flag| flag)) {
                let message = "only the last row may end an episode where next_states is left out";
                return Err(Invalid::at(InvalidCode::OutOfRange, field, k, message));
            }
        }
        let next = self.states[self.dim..].to_vec();
        self.states.truncate(len * self.dim);
        self.next_states = Some(next);
        Ok(())
    }
}

/// Check that numbers, `width` to a row, are finite and of at most this magnitude.
fn check_bounded(values: &[f64], width: usize, field: &'static str, limit: f64) -> Result<(), Invalid> {
    for (k, &value) in values.iter().enumerate() {
        if !value.is_finite() {
            let message = format!("{value} is not a finite number");
            return Err(Invalid::at(InvalidCode::NotFinite, field, k / width, message));
        }
        if value.abs() > limit {
            let message = format!("{value:e} is beyond {limit:e} in magnitude");
            return Err(Invalid::at(InvalidCode::OutOfRange, field, k / width, message));
        }
    }
    Ok(())
}

/// Consecutive transitions of one stream's session, checked: lengths agree, every number is finite and in range.
#[derive(Clone, Debug, PartialEq)]
pub struct Batch {
    parts: BatchParts,
    len: usize,
}

impl Batch {
    /// Check `parts` and fill in what was left out.
    ///
    /// # Errors
    /// The first fault found, with the field as it is named on the wire and the row.
    pub fn new(mut parts: BatchParts) -> Result<Self, Invalid> {
        parts.check_names()?;
        let len = parts.check_rows()?;
        parts.check_columns(len)?;
        parts.names.check_actions(parts.actions.as_ref().map_or(0, |actions| actions.len() / len))?;
        parts.check_numbers(len)?;
        parts.check_probabilities(len)?;
        parts.fill_next_states(len)?;
        if parts.seq.is_some_and(|seq| seq.checked_add(len as u64).is_none()) {
            return Err(Invalid::new(InvalidCode::OutOfRange, "seq", "the sequence number is too large"));
        }
        Ok(Self { parts, len })
    }

    /// The rows behind the first `count`.
    ///
    /// # Panics
    /// If there are none.
    pub fn without_first(mut self, count: usize) -> Self {
        assert!(count < self.len, "a batch has at least one row");
        fn cut<T>(column: &mut Vec<T>, len: usize, count: usize) {
            column.drain(..column.len() / len * count);
        }
        let (parts, len) = (&mut self.parts, self.len);
        for column in [&mut parts.states, &mut parts.rewards] {
            cut(column, len, count);
        }
        let numbers = [
            &mut parts.next_states,
            &mut parts.discounts,
            &mut parts.actions,
            &mut parts.times,
            &mut parts.behavior_probs,
            &mut parts.target_probs,
            &mut parts.next_actions,
            &mut parts.next_action_probs,
        ];
        numbers.into_iter().flatten().for_each(|column| cut(column, len, count));
        [&mut parts.terminated, &mut parts.truncated].into_iter().flatten().for_each(|column| cut(column, len, count));
        parts.seq = parts.seq.map(|seq| seq + count as u64);
        self.len -= count;
        self
    }

    /// Bytes of its numbers.
    pub fn bytes(&self) -> usize {
        self.parts.bytes().0
    }

    /// What it was made of, to be filled again.
    pub fn into_parts(self) -> BatchParts {
        self.parts
    }

    /// Number of rows n, at least 1.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whose experience this is.
    pub fn stream(&self) -> &str {
        &self.parts.stream
    }

    /// The producer's run; "" if it named none.
    pub fn session(&self) -> &str {
        &self.parts.session
    }

    /// Name of the policy that acted, if the producer gives it.
    pub fn policy(&self) -> Option<&str> {
        self.parts.policy.as_deref()
    }

    /// What its numbers are called, if the producer says so; taken out, since that is no part of the rows.
    pub fn take_names(&mut self) -> Names {
        std::mem::take(&mut self.parts.names)
    }

    /// The same, left there.
    pub fn names(&self) -> &Names {
        &self.parts.names
    }

    /// Sequence number of the first row, if the producer numbers its rows.
    pub fn seq(&self) -> Option<u64> {
        self.parts.seq
    }

    /// State dimension D.
    pub fn dim(&self) -> usize {
        self.parts.dim
    }

    /// Rewards per row H.
    pub fn rewards_per_row(&self) -> usize {
        self.parts.rewards_per_row
    }

    /// State of row i (D,).
    pub fn state(&self, i: usize) -> &[f64] {
        &self.parts.states[i * self.parts.dim..(i + 1) * self.parts.dim]
    }

    /// True successor of row i (D,).
    pub fn next_state(&self, i: usize) -> &[f64] {
        let next = self.parts.next_states.as_ref().expect("filled in when the batch was checked");
        &next[i * self.parts.dim..(i + 1) * self.parts.dim]
    }

    /// Rewards of row i (H,).
    pub fn reward(&self, i: usize) -> &[f64] {
        &self.parts.rewards[i * self.parts.rewards_per_row..(i + 1) * self.parts.rewards_per_row]
    }

    /// Whether row i ended in an absorbing state.
    pub fn terminated(&self, i: usize) -> bool {
        self.parts.terminated.as_ref().is_some_and(|v| v[i])
    }

    /// Whether row i was cut off from outside.
    pub fn truncated(&self, i: usize) -> bool {
        self.parts.truncated.as_ref().is_some_and(|v| v[i])
    }

    /// Discount of row i, if it overrides the critic's.
    pub fn discount(&self, i: usize) -> Option<f64> {
        self.parts.discounts.as_ref().map(|v| v[i])
    }

    /// The name of a field on the wire, where one transition has other names than many.
    pub(crate) fn key(&self, one: &'static str, many: &'static str) -> &'static str {
        self.parts.name(one, many)
    }

    /// Unix seconds of row i, if the producer gives it.
    pub fn time(&self, i: usize) -> Option<f64> {
        self.parts.times.as_ref().map(|v| v[i])
    }

    /// Action of row i (A,), if there is one.
    pub fn action(&self, i: usize) -> Option<&[f64]> {
        self.wide(&self.parts.actions, i)
    }

    /// Probability or density under which the action of row i was taken, if the producer gives it.
    pub fn behavior_prob(&self, i: usize) -> Option<f64> {
        self.parts.behavior_probs.as_ref().map(|v| v[i])
    }

    /// The same under the policy that is judged, if the producer gives it.
    pub fn target_prob(&self, i: usize) -> Option<f64> {
        self.parts.target_probs.as_ref().map(|v| v[i])
    }

    /// target_prob / behavior_prob of row i, not clipped; 1 where either is missing.
    pub fn ratio(&self, i: usize) -> f64 {
        probability::ratio(self.behavior_prob(i), self.target_prob(i))
    }

    /// Action in the next state of row i (A,), if the producer gives it.
    pub fn next_action(&self, i: usize) -> Option<&[f64]> {
        self.wide(&self.parts.next_actions, i)
    }

    /// Probabilities of discrete actions in the next state of row i (C,), if the producer gives it.
    pub fn next_action_probs(&self, i: usize) -> Option<&[f64]> {
        self.wide(&self.parts.next_action_probs, i)
    }

    /// Row i of a column of equally long rows, if it is there.
    fn wide<'a>(&self, column: &'a Option<Vec<f64>>, i: usize) -> Option<&'a [f64]> {
        column.as_ref().map(|v| {
            let width = v.len() / self.len;
            &v[i * width..(i + 1) * width]
        })
    }

    /// A fingerprint of everything in row i that learning depends on: equal rows have equal fingerprints.
    pub fn fingerprint(&self, i: usize) -> u64 {
        // Checkpoints keep fingerprints, so that they must not depend on the program's build: every word is written by itself.
        let mut hasher = SipHasher13::new();
        for &value in self.state(i).iter().chain(self.next_state(i)).chain(self.reward(i)) {
            hasher.write_u64(value.to_bits());
        }
        hasher.write_u8(u8::from(self.terminated(i)) | u8::from(self.truncated(i)) << 1);
        hasher.write_u64(self.discount(i).map_or(u64::MAX, f64::to_bits));
        for value in self.action(i).unwrap_or(&[]) {
            hasher.write_u64(value.to_bits());
        }
        // Nothing at all where nothing is said, so that rows have the fingerprints that they had before there were these.
        let (behavior, target) = (self.behavior_prob(i), self.target_prob(i));
        let policy = [
            (1, behavior.as_slice()),
            (2, target.as_slice()),
            (3, self.next_action(i).unwrap_or_default()),
            (4, self.next_action_probs(i).unwrap_or_default()),
        ];
        for (field, values) in policy.into_iter().filter(|(_, values)| !values.is_empty()) {
            hasher.write_u8(field);
            values.iter().for_each(|value| hasher.write_u64(value.to_bits()));
        }
        if let Some(policy) = self.policy() {
            hasher.write_u8(5);
            hasher.write(policy.as_bytes());
        }
        hasher.finish()
    }
}

/// Transitions of many streams in arrival order, in columns: what learners read and the window keeps.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Rows {
    /// State dimension D.
    pub dim: usize,
    /// Rewards per row H.
    pub rewards_per_row: usize,
    /// (n, D), row-major.
    pub states: Vec<f64>,
    /// (n, D), row-major.
    pub next_states: Vec<f64>,
    /// (n, H), row-major.
    pub rewards: Vec<f64>,
    /// (n,); NaN where the critic's own discount holds.
    pub discounts: Vec<f64>,
    /// (n,) target_prob / behavior_prob, from 0 and not clipped; 1 where either is missing.
    pub ratios: Vec<f64>,
    /// (n,) how much of a trace flows into each row, before lambda, at least 0; empty where that is its ratio, clipped. Rows
    /// that have it have ratios of 1 ([`crate::action`]).
    pub carries: Vec<f64>,
    /// (n,) number of the stream that each row belongs to.
    pub streams: Vec<u32>,
    /// (n,) whether the successor is absorbing.
    pub terminated: Vec<bool>,
    /// (n,) whether the row was cut off from outside.
    pub truncated: Vec<bool>,
    /// (n,) whether the row starts a new noise chain of its stream (the chain before it, if still running, is cut).
    pub starts_chain: Vec<bool>,
    /// Numbers per action A that are kept; 0 where actions are not wanted.
    pub actions_per_row: usize,
    /// (n, A), row-major; NaN where the action of a row has fewer numbers, or none.
    pub actions: Vec<f64>,
    /// Whether times are kept.
    pub keeps_times: bool,
    /// (n,) seconds, NaN where a row has none; empty unless they are kept.
    pub times: Vec<f64>,
    /// Values that rows were given later.
    #[serde(default, skip_serializing_if = "LabelColumns::is_empty")]
    pub labels: LabelColumns,
}

impl Rows {
    /// No rows yet, of states (D,) and rewards (H,).
    pub fn new(dim: usize, rewards_per_row: usize) -> Self {
        Self { dim, rewards_per_row, ..Self::default() }
    }

    /// No rows yet, with the columns of this one.
    pub fn without_rows(&self) -> Self {
        let Self { dim, rewards_per_row, actions_per_row, keeps_times, .. } = *self;
        Self { actions_per_row, keeps_times, labels: self.labels.blank(), ..Self::new(dim, rewards_per_row) }
    }

    /// The rows of these numbers, as they are.
    pub(crate) fn only(&self, numbers: &[usize]) -> Self {
        let mut out = self.without_rows();
        numbers.iter().for_each(|&i| out.extend(self, i..i + 1));
        out
    }

    /// Action of row i (A,), as far as actions are kept.
    pub fn action(&self, i: usize) -> &[f64] {
        &self.actions[i * self.actions_per_row..(i + 1) * self.actions_per_row]
    }

    /// Number of rows n.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// State of row i (D,).
    pub fn state(&self, i: usize) -> &[f64] {
        &self.states[i * self.dim..(i + 1) * self.dim]
    }

    /// Successor of row i (D,).
    pub fn next_state(&self, i: usize) -> &[f64] {
        &self.next_states[i * self.dim..(i + 1) * self.dim]
    }

    /// Rewards of row i (H,).
    pub fn reward(&self, i: usize) -> &[f64] {
        &self.rewards[i * self.rewards_per_row..(i + 1) * self.rewards_per_row]
    }

    /// Discount of row i under a critic whose own is `default`.
    pub fn discount(&self, i: usize, default: f64) -> f64 {
        if self.discounts[i].is_nan() { default } else { self.discounts[i] }
    }

    /// How much of what follows row i counts under a critic whose own discount is `default`: 0 where it terminates.
    pub fn follows(&self, i: usize, default: f64) -> f64 {
        if self.terminated[i] { 0.0 } else { self.discount(i, default) }
    }

    /// Importance ratio of row i, clipped at `rho_max` if there is such a limit.
    pub fn ratio(&self, i: usize, rho_max: Option<f64>) -> f64 {
        probability::clipped(self.ratios[i], rho_max)
    }

    /// Append row i of `batch` as a row of stream number `stream`.
    ///
    /// # Panics
    /// If the batch has other dimensions: callers check that first.
    pub fn push(&mut self, stream: u32, starts_chain: bool, batch: &Batch, i: usize) {
        assert_eq!((batch.dim(), batch.rewards_per_row()), (self.dim, self.rewards_per_row), "dimensions agree");
        self.states.extend_from_slice(batch.state(i));
        self.next_states.extend_from_slice(batch.next_state(i));
        self.rewards.extend_from_slice(batch.reward(i));
        self.discounts.push(batch.discount(i).unwrap_or(f64::NAN));
        self.ratios.push(batch.ratio(i));
        self.streams.push(stream);
        self.terminated.push(batch.terminated(i));
        self.truncated.push(batch.truncated(i));
        self.starts_chain.push(starts_chain);
        self.extend_kept(batch, i..i + 1);
        self.labels.pad(self.len());
    }

    /// Append rows `range` of `batch` as rows of stream number `stream`, with one of `starts_chain` for each: column by column.
    ///
    /// # Panics
    /// If the batch has other dimensions or fewer rows, or there is another number of flags.
    pub fn extend_from_batch(&mut self, stream: u32, starts_chain: &[bool], batch: &Batch, range: Range<usize>) {
        assert_eq!((batch.dim(), batch.rewards_per_row()), (self.dim, self.rewards_per_row), "dimensions agree");
        let (parts, d, h) = (&batch.parts, self.dim, self.rewards_per_row);
        assert_eq!(starts_chain.len(), range.len(), "one flag for each new row");
        let next = parts.next_states.as_ref().expect("filled in when the batch was checked");
        self.states.extend_from_slice(&parts.states[range.start * d..range.end * d]);
        self.next_states.extend_from_slice(&next[range.start * d..range.end * d]);
        self.rewards.extend_from_slice(&parts.rewards[range.start * h..range.end * h]);
        let all = self.len() + range.len();
        fn put<T: Copy>(column: &mut Vec<T>, given: Option<&[T]>, all: usize, default: T) {
            match given {
                Some(values) => column.extend_from_slice(values),
                None => column.resize(all, default),
            }
        }
        put(&mut self.discounts, parts.discounts.as_ref().map(|v| &v[range.clone()]), all, f64::NAN);
        if parts.behavior_probs.is_some() && parts.target_probs.is_some() {
            self.ratios.extend(range.clone().map(|i| batch.ratio(i)));
        } else {
            self.ratios.resize(all, 1.0);
        }
        put(&mut self.terminated, parts.terminated.as_ref().map(|v| &v[range.clone()]), all, false);
        put(&mut self.truncated, parts.truncated.as_ref().map(|v| &v[range.clone()]), all, false);
        self.streams.resize(all, stream);
        self.starts_chain.extend_from_slice(starts_chain);
        if self.actions_per_row > 0 || self.keeps_times {
            self.extend_kept(batch, range);
        }
        self.labels.pad(self.len());
    }

    /// Append rows `range` of `other`.
    ///
    /// # Panics
    /// If `other` has other dimensions or fewer rows.
    pub fn extend(&mut self, other: &Rows, range: Range<usize>) {
        assert_eq!((other.dim, other.rewards_per_row), (self.dim, self.rewards_per_row), "dimensions agree");
        let (d, h) = (self.dim, self.rewards_per_row);
        self.states.extend_from_slice(&other.states[range.start * d..range.end * d]);
        self.next_states.extend_from_slice(&other.next_states[range.start * d..range.end * d]);
        self.rewards.extend_from_slice(&other.rewards[range.start * h..range.end * h]);
        self.discounts.extend_from_slice(&other.discounts[range.clone()]);
        self.ratios.extend_from_slice(&other.ratios[range.clone()]);
        if !(self.carries.is_empty() && other.carries.is_empty()) {
            self.carries.resize(self.len(), 1.0);
            self.carries.extend(range.clone().map(|i| other.carry(i, None)));
        }
        self.streams.extend_from_slice(&other.streams[range.clone()]);
        self.terminated.extend_from_slice(&other.terminated[range.clone()]);
        self.truncated.extend_from_slice(&other.truncated[range.clone()]);
        self.starts_chain.extend_from_slice(&other.starts_chain[range.clone()]);
        let width = self.actions_per_row;
        range.clone().for_each(|i| put_action(&mut self.actions, other.action(i), width));
        if self.keeps_times {
            self.times.extend(range.clone().map(|i| other.times.get(i).copied().unwrap_or(f64::NAN)));
        }
        self.labels.extend(&other.labels, range);
    }

    /// Make room for `rows` rows in all, and for no more, so that their memory is known.
    pub fn reserve_all(&mut self, rows: usize) {
        fn reserve<T>(column: &mut Vec<T>, all: usize) {
            column.reserve_exact(all.saturating_sub(column.len()));
        }
        reserve(&mut self.states, rows * self.dim);
        reserve(&mut self.next_states, rows * self.dim);
        reserve(&mut self.rewards, rows * self.rewards_per_row);
        reserve(&mut self.discounts, rows);
        reserve(&mut self.ratios, rows);
        reserve(&mut self.streams, rows);
        reserve(&mut self.terminated, rows);
        reserve(&mut self.truncated, rows);
        reserve(&mut self.starts_chain, rows);
        reserve(&mut self.actions, rows * self.actions_per_row);
        reserve(&mut self.times, if self.keeps_times { rows } else { 0 });
        self.labels.reserve_all(rows);
    }

    /// Forget all rows, keep the memory.
    pub fn clear(&mut self) {
        self.states.clear();
        self.next_states.clear();
        self.rewards.clear();
        self.discounts.clear();
        self.ratios.clear();
        self.carries.clear();
        self.streams.clear();
        self.terminated.clear();
        self.truncated.clear();
        self.starts_chain.clear();
        self.actions.clear();
        self.times.clear();
        self.labels.clear();
    }

    /// Whether all columns have one number of rows, which a file may contradict.
    pub(crate) fn is_consistent(&self) -> bool {
        let n = self.len();
        let optional = |len: usize| len == 0 || len == n;
        self.dim > 0
            && self.states.len() == n * self.dim
            && self.next_states.len() == n * self.dim
            && self.rewards.len() == n * self.rewards_per_row
            && [self.discounts.len(), self.ratios.len()] == [n; 2]
            && [self.terminated.len(), self.truncated.len(), self.starts_chain.len()] == [n; 3]
            && optional(self.carries.len())
            && self.actions.len() == n * self.actions_per_row
            && self.times.len() == if self.keeps_times { n } else { 0 }
            && self.labels.is_consistent(n)
    }

    /// Bytes that one row of states (D,) and rewards (H,) takes, with its time, where actions are not kept.
    pub fn bytes_per_row(dim: usize, rewards_per_row: usize) -> usize {
        size_of::<f64>() * (2 * dim + rewards_per_row + 3) + size_of::<u32>() + 3
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> BatchParts {
        BatchParts {
            stream: "robot".into(),
            dim: 2,
            rewards_per_row: 1,
            states: vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
            rewards: vec![0.5, -0.5],
            ..BatchParts::default()
        }
    }

    #[test]
    fn a_piece_of_trajectory_gets_its_successors() {
        let batch = Batch::new(parts()).unwrap();
        assert_eq!(batch.len(), 2);
        assert_eq!(batch.next_state(0), batch.state(1));
        assert_eq!(batch.next_state(1), [4.0, 5.0]);
        assert!(!batch.terminated(1));
    }

    #[test]
    fn faults_name_field_and_row() {
        let fault = |change: &dyn Fn(&mut BatchParts)| {
            let mut p = parts();
            change(&mut p);
            let e = Batch::new(p).unwrap_err();
            (e.code, e.field, e.index)
        };
        assert_eq!(fault(&|p| p.stream.clear()), (InvalidCode::OutOfRange, "stream", None));
        assert_eq!(fault(&|p| p.states[3] = f64::NAN), (InvalidCode::NotFinite, "states", Some(1)));
        assert_eq!(fault(&|p| p.states[0] = 1e300), (InvalidCode::OutOfRange, "states", Some(0)));
        assert_eq!(fault(&|p| p.rewards.clear()), (InvalidCode::WrongShape, "rewards", None));
        assert_eq!(fault(&|p| p.discounts = Some(vec![0.5, 1.5])), (InvalidCode::OutOfRange, "discounts", Some(1)));
        assert_eq!(
            fault(&|p| p.terminated = Some(vec![true, false])),
            (InvalidCode::OutOfRange, "terminated", Some(0))
        );
        assert_eq!(fault(&|p| p.terminated = Some(vec![true])), (InvalidCode::WrongShape, "terminated", None));
        assert_eq!(fault(&|p| p.next_states = Some(vec![0.0])), (InvalidCode::WrongShape, "states", None));
        assert_eq!(fault(&|p| p.seq = Some(u64::MAX)), (InvalidCode::OutOfRange, "seq", None));
        for name in [String::new(), "p".repeat(257)] {
            assert_eq!(fault(&|p| p.policy = Some(name.clone())), (InvalidCode::OutOfRange, "policy", None));
        }
    }

    #[test]
    fn columns_and_rows_are_appended_alike() {
        let full = BatchParts {
            terminated: Some(vec![false, true]),
            truncated: Some(vec![false, false]),
            discounts: Some(vec![0.5, 0.25]),
            next_states: Some(vec![2.0, 3.0, 4.0, 5.0]),
            states: vec![0.0, 1.0, 2.0, 3.0],
            behavior_probs: Some(vec![0.5, 0.25]),
            target_probs: Some(vec![0.125, 0.75]),
            ..parts()
        };
        let half = BatchParts { target_probs: None, ..full.clone() };
        let (mut columns, mut rows) = (Rows::new(2, 1), Rows::new(2, 1));
        for (batch, from) in [(parts(), 0), (full.clone(), 0), (full, 1), (half, 1)] {
            let batch = Batch::new(batch).unwrap();
            let starts: Vec<bool> = (from..batch.len()).map(|i| i == 0).collect();
            columns.extend_from_batch(7, &starts, &batch, from..batch.len());
            if from > 0 {
                let mut behind = Rows::new(2, 1);
                let rest = batch.clone().without_first(from);
                behind.extend_from_batch(7, &starts, &rest, 0..rest.len());
                assert_eq!(behind.states, columns.states[columns.states.len() - 2 * rest.len()..]);
                assert_eq!((rest.len(), rest.fingerprint(0)), (batch.len() - from, batch.fingerprint(from)));
            }
            (from..batch.len()).for_each(|i| rows.push(7, i == 0, &batch, i));
        }
        assert_eq!((columns.len(), columns.states.len()), (6, 12));
        assert_eq!(columns.ratios, [1.0, 1.0, 0.25, 3.0, 3.0, 1.0]);
        // NaN stands for the critic's own discount, and equals nothing.
        let bits = |rows: &Rows| rows.discounts.iter().map(|d| d.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&columns), bits(&rows));
        for rows in [&mut columns, &mut rows] {
            rows.discounts.clear();
        }
        assert_eq!(columns, rows);
    }

    #[test]
    fn fingerprints_tell_rows_apart() {
        let (a, mut p) = (Batch::new(parts()).unwrap(), parts());
        p.rewards[1] = 0.25;
        let b = Batch::new(p).unwrap();
        assert_eq!(a.fingerprint(0), b.fingerprint(0));
        assert_ne!(a.fingerprint(1), b.fingerprint(1));
    }

    /// Checkpoints keep fingerprints: these are of the program before rows could say anything about policies.
    #[test]
    fn fingerprints_stay_what_they_were() {
        let plain = Batch::new(parts()).unwrap();
        let full = BatchParts { actions: Some(vec![1.0, 2.0]), discounts: Some(vec![0.5, 0.25]), ..parts() };
        let full = Batch::new(full).unwrap();
        let found = [plain.fingerprint(0), plain.fingerprint(1), full.fingerprint(0), full.fingerprint(1)];
        assert_eq!(found, [0x2e7496f0e491591, 0xab81c1a0755f0f8f, 0x509b78f7c1fa0db8, 0x5ca8fb326d1469d]);
    }

    #[test]
    fn fingerprints_cover_what_is_said_about_policies() {
        let policy = BatchParts {
            behavior_probs: Some(vec![0.5, 0.5]),
            target_probs: Some(vec![0.5, 0.5]),
            next_actions: Some(vec![0.5, 0.5]),
            next_action_probs: Some(vec![1.0, 1.0]),
            ..parts()
        };
        let of = |parts: BatchParts| Batch::new(parts).unwrap().fingerprint(0);
        let mut found = vec![
            of(parts()),
            of(policy.clone()),
            of(BatchParts { behavior_probs: None, ..policy.clone() }),
            of(BatchParts { target_probs: None, ..policy.clone() }),
            of(BatchParts { next_actions: None, ..policy.clone() }),
            of(BatchParts { next_action_probs: None, ..policy.clone() }),
            of(BatchParts { behavior_probs: Some(vec![0.25, 0.5]), ..policy.clone() }),
            of(BatchParts { target_probs: Some(vec![0.25, 0.5]), ..policy.clone() }),
            of(BatchParts { next_actions: Some(vec![0.25, 0.5]), ..policy.clone() }),
            of(BatchParts { next_action_probs: Some(vec![0.0, 1.0, 0.5, 0.5]), ..policy }),
            of(BatchParts { policy: Some("a".into()), ..parts() }),
            of(BatchParts { policy: Some("b".into()), ..parts() }),
        ];
        found.sort_unstable();
        found.dedup();
        assert_eq!(found.len(), 12);
    }

    #[test]
    fn faults_of_policies_name_field_and_row() {
        let policy = BatchParts {
            actions: Some(vec![0.0, 1.0]),
            behavior_probs: Some(vec![0.5, 0.5]),
            target_probs: Some(vec![0.0, 2.5]),
            next_actions: Some(vec![1.0, 0.0]),
            next_action_probs: Some(vec![0.25, 0.75, 1.0, 0.0]),
            ..parts()
        };
        let batch = Batch::new(policy.clone()).unwrap();
        assert_eq!((batch.behavior_prob(1), batch.target_prob(1), batch.ratio(1)), (Some(0.5), Some(2.5), 5.0));
        assert_eq!((batch.next_action(0), batch.next_action_probs(1)), (Some(&[1.0][..]), Some(&[1.0, 0.0][..])));
        let fault = |change: &dyn Fn(&mut BatchParts)| {
            let mut p = policy.clone();
            change(&mut p);
            let e = Batch::new(p).unwrap_err();
            (e.code, e.field, e.index)
        };
        use InvalidCode::{NotFinite, OutOfRange, WrongShape};
        assert_eq!(fault(&|p| p.behavior_probs = Some(vec![0.5, 0.0])), (OutOfRange, "behavior_probs", Some(1)));
        assert_eq!(fault(&|p| p.behavior_probs = Some(vec![0.5])), (WrongShape, "behavior_probs", None));
        assert_eq!(fault(&|p| p.behavior_probs = Some(vec![f64::NAN; 2])), (NotFinite, "behavior_probs", Some(0)));
        assert_eq!(fault(&|p| p.target_probs = Some(vec![0.5, -1.0])), (OutOfRange, "target_probs", Some(1)));
        assert_eq!(fault(&|p| p.target_probs = Some(vec![1e12, 1.0])), (OutOfRange, "target_probs", Some(0)));
        assert_eq!(fault(&|p| p.target_probs = Some(vec![])), (WrongShape, "target_probs", None));
        assert_eq!(fault(&|p| p.next_actions = Some(vec![0.0; 4])), (WrongShape, "next_actions", None));
        assert_eq!(fault(&|p| p.next_actions = Some(vec![0.0, f64::NAN])), (NotFinite, "next_actions", Some(1)));
        let probs = |values: [f64; 4]| fault(&|p| p.next_action_probs = Some(values.to_vec()));
        assert_eq!(probs([0.5, 0.5, 0.5, 0.25]), (OutOfRange, "next_action_probs", Some(1)));
        assert_eq!(probs([-0.5, 1.5, 1.0, 0.0]), (OutOfRange, "next_action_probs", Some(0)));
        assert_eq!(fault(&|p| p.next_action_probs = Some(vec![1.0])), (WrongShape, "next_action_probs", None));
    }
}
