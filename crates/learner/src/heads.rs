//! Heads: many predictions from one stream, each a question of its own, that share a critic's kernel, dictionary and rows.
//!
//! A head sums what it is asked about (its cumulant) over the future, as often as its discount and its continuation say. They
//! predict what the policy that acts will meet: importance ratios weight the critic's rows, and not the rows of heads.

mod bank;
mod counted;
mod expression;
mod footprint;
mod published;
mod ring;
mod shared;
mod verified;

#[cfg(test)]
mod tests;

pub use bank::{Bank, Solution};
pub(crate) use bank::{Block, RowNodes, tuning_is_due};
pub(crate) use counted::{Counted, counting_all, counting_most};
pub use expression::{Expression, Operand};
pub use footprint::{bytes_max, bytes_per_stream};
pub use published::{HeadBasis, HeadEvaluation, HeadsSnapshot, Verified};
pub use shared::SharedHeads;
pub use verified::HeadVerdict;

use crate::math::level::about;
use crate::transition::{Batch, Invalid, InvalidCode, MAGNITUDE_MAX, Rows};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

/// Longest name of a head, bytes.
pub const NAME_MAX: usize = 256;

/// What is summed, row by row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Cumulant {
    /// A reward column.
    Reward(usize),
    /// A number of the state.
    State(usize),
    /// A number of the next state.
    NextState(usize),
    /// A number of the action.
    Action(usize),
    /// The same in every row.
    Constant(f64),
    /// 1 in rows where a number of the state goes from at most `above` to more, 0 in the others.
    Event {
        /// Number of the state.
        index: usize,
        /// What it crosses.
        above: f64,
    },
    /// 1 in rows where a number of the state goes from at least `below` to less, 0 in the others.
    EventBelow {
        /// Number of the state.
        index: usize,
        /// What it crosses.
        below: f64,
    },
    /// A sum of numbers of the row and of functions of them.
    Expression(Expression),
    /// A value that was given to the row later. A row without one does not count, and chains end there.
    Label {
        /// Name of the set of labels.
        name: String,
        /// By which the set is known: [`crate::labels::Labels::id`].
        id: u64,
    },
}

/// How often a row counts, where that is not once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Weighting {
    /// As a reward column says.
    Column(usize),
    /// Not at all without a label of this set, else as a reward column says, if there is one.
    Labelled {
        /// Number of the set.
        label: u64,
        /// The column.
        column: Option<usize>,
    },
}

/// How far a head looks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum Rate {
    /// A discount in \[0, 1\] for each row.
    Discount(f64),
    /// A time in seconds, positive: the discount is exp(-dt / timescale), dt the time to the next row of the chain.
    Timescale(f64),
}

/// Share of the future that goes on after a row, in \[0, 1\]. A terminated row has none, whatever this says.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Continuation {
    /// The same in every row, 1 where nothing is declared.
    Constant(f64),
    /// 1 while a number of the next state lies in \[low, high\].
    Inside {
        /// Number of the next state.
        index: usize,
        /// Least value inside.
        low: f64,
        /// Greatest value inside.
        high: f64,
        /// Share that goes on elsewhere.
        outside: f64,
    },
    /// A reward column holds it.
    Reward(usize),
    /// A sum of numbers of the row; what lies below 0 counts as 0, what lies above 1 as 1.
    Expression(Expression),
}

/// One prediction. Two are equal if they ask the same, whatever level a model learns them about.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Head {
    /// 1..=256 bytes, no other head of the critic has it.
    pub name: String,
    /// What is summed.
    pub cumulant: Cumulant,
    /// How far it looks.
    pub rate: Rate,
    /// Share of the future that goes on.
    pub continuation: Continuation,
    /// Paid with a row after which a share 1 - continuation ends, that much of it, not discounted.
    pub terminal_reward: f64,
    /// Reward column that says how often a row counts, from 0; none: once. With 0 a row is not learned from, but what it pays
    /// still belongs to the rows before it.
    pub weight: Option<usize>,
    /// sigma0^2, positive, where it is given and not estimated.
    pub noise_variance: Option<f64>,
    /// s, positive: its kernel is s times the critic's, where that is given and not estimated.
    pub signal: Option<f64>,
    /// What its values are learned about, in the unit of its cumulant. It belongs to the model, and no definition names it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub level: f64,
}

fn is_zero(number: &f64) -> bool {
    *number == 0.0
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        let Self { name, cumulant, rate, continuation, terminal_reward, weight, noise_variance, signal, level: _ } =
            self;
        (name, cumulant, rate, continuation) == (&other.name, &other.cumulant, &other.rate, &other.continuation)
            && (terminal_reward, weight) == (&other.terminal_reward, &other.weight)
            && (noise_variance, signal) == (&other.noise_variance, &other.signal)
    }
}

/// What rows carry that heads can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns {
    /// Numbers in a state D.
    pub states: usize,
    /// Rewards per row.
    pub rewards: usize,
    /// Numbers in an action, 0 where rows have none.
    pub actions: usize,
}

impl Cumulant {
    /// Of row i; 0 where the row lacks a label, and then it does not count.
    pub(crate) fn of(&self, rows: &Rows, i: usize) -> f64 {
        match *self {
            Self::Reward(column) => rows.reward(i)[column],
            Self::State(index) => rows.state(i)[index],
            Self::NextState(index) => rows.next_state(i)[index],
            Self::Action(index) => rows.action(i)[index],
            Self::Constant(value) => value,
            Self::Expression(ref expression) => expression.of(rows, i),
            Self::Label { id, .. } => rows.labels.get(id, i).unwrap_or(0.0),
            Self::Event { index, above } => crosses(rows.state(i)[index], rows.next_state(i)[index], above),
            Self::EventBelow { index, below } => falls(rows.state(i)[index], rows.next_state(i)[index], below),
        }
    }

    /// Of a row with these numbers; none of a label, which stands beside rows.
    pub fn by<F: Fn(Operand) -> f64>(&self, number: &F) -> Option<f64> {
        let both = |index: usize| (number(Operand::State(index)), number(Operand::NextState(index)));
        Some(match *self {
            Self::Reward(column) => number(Operand::Reward(column)),
            Self::State(index) => number(Operand::State(index)),
            Self::NextState(index) => number(Operand::NextState(index)),
            Self::Action(index) => number(Operand::Action(index)),
            Self::Constant(value) => value,
            Self::Expression(ref expression) => expression.by(number),
            Self::Event { index, above } => crosses(both(index).0, both(index).1, above),
            Self::EventBelow { index, below } => falls(both(index).0, both(index).1, below),
            Self::Label { .. } => return None,
        })
    }

    /// Of a state of `dim` numbers with an action behind them, where these say it; else no number.
    pub fn at(&self, numbers: &[f64], dim: usize) -> f64 {
        let number = |place| match place {
            Operand::State(index) => numbers[index],
            Operand::Action(index) => numbers[dim + index],
            Operand::NextState(_) | Operand::Reward(_) => f64::NAN,
        };
        self.by(&number).unwrap_or(f64::NAN)
    }

    /// Whether state and action alone say what it is, in any row.
    pub fn is_of_state_and_action(&self) -> bool {
        let known = |place| matches!(place, Operand::State(_) | Operand::Action(_));
        match self {
            Self::Event { .. } | Self::EventBelow { .. } | Self::Label { .. } => false,
            _ => self.places().all(known),
        }
    }

    /// Of row i all of these `cumulants` (K,), into `out` (K,).
    pub(crate) fn all_of(cumulants: &[Self], rows: &Rows, i: usize, out: &mut [f64]) {
        let (state, next_state) = (rows.state(i), rows.next_state(i));
        for (out, cumulant) in out.iter_mut().zip(cumulants) {
            *out = match *cumulant {
                Self::State(index) => state[index],
                Self::NextState(index) => next_state[index],
                Self::Event { index, above } => crosses(state[index], next_state[index], above),
                Self::EventBelow { index, below } => falls(state[index], next_state[index], below),
                ref other => other.of(rows, i),
            };
        }
    }

    /// Bytes beside its own size.
    fn heap_bytes(&self) -> usize {
        match self {
            Self::Expression(expression) => expression.heap_bytes(),
            Self::Label { name, .. } => name.len(),
            _ => 0,
        }
    }

    /// The numbers of a row that it needs; for an event only the one of the state.
    pub fn places(&self) -> impl Iterator<Item = Operand> {
        let one = match *self {
            Self::Reward(index) => Some(Operand::Reward(index)),
            Self::State(index) | Self::Event { index, .. } | Self::EventBelow { index, .. } => {
                Some(Operand::State(index))
            }
            Self::NextState(index) => Some(Operand::NextState(index)),
            Self::Action(index) => Some(Operand::Action(index)),
            Self::Constant(_) | Self::Expression(_) | Self::Label { .. } => None,
        };
        let sum = if let Self::Expression(expression) = self { Some(expression.places()) } else { None };
        one.into_iter().chain(sum.into_iter().flatten())
    }

    /// Whether rows have the numbers that it needs.
    ///
    /// # Errors
    /// The first that they lack, in words.
    pub fn check(&self, columns: Columns) -> Result<(), String> {
        match *self {
            Self::Constant(value) => finite("cumulant.value", value)?,
            Self::Event { above, .. } => finite("cumulant.above", above)?,
            Self::EventBelow { below, .. } => finite("cumulant.below", below)?,
            _ => {}
        }
        let key = if matches!(self, Self::Expression(_)) { "cumulant.text" } else { "cumulant.index" };
        self.places().try_for_each(|place| columns.has(key, place))
    }
}

impl Rate {
    /// Discount of a row after which the chain goes on `dt` seconds later.
    pub(crate) fn discount(self, dt: f64) -> f64 {
        match self {
            Self::Discount(discount) => discount,
            Self::Timescale(seconds) => (-dt / seconds).exp(),
        }
    }

    /// What is `paid` with a row after which a share `kept` goes on, about `level`: only values under a discount have one.
    pub(crate) fn about(self, paid: f64, level: f64, kept: f64) -> f64 {
        match self {
            Self::Discount(discount) if level != 0.0 => about(paid, level, kept * discount),
            _ => paid,
        }
    }

    fn check(self) -> Result<(), String> {
        match self {
            Self::Discount(discount) if !(0.0..=1.0).contains(&discount) => {
                Err(format!("discount: lies in [0, 1], this one is {discount}"))
            }
            Self::Timescale(seconds) if !(seconds.is_finite() && seconds > 0.0) => {
                Err(format!("timescale: a positive number of seconds, this one is {seconds}"))
            }
            _ => Ok(()),
        }
    }
}

impl Continuation {
    /// Of row i, 0 where it terminated.
    pub(crate) fn of(&self, rows: &Rows, i: usize) -> f64 {
        if rows.terminated[i] {
            return 0.0;
        }
        match *self {
            Self::Constant(share) => share,
            Self::Expression(ref expression) => expression.of(rows, i).clamp(0.0, 1.0),
            Self::Inside { index, low, high, outside } => {
                if (low..=high).contains(&rows.next_state(i)[index]) {
                    1.0
                } else {
                    outside
                }
            }
            Self::Reward(column) => rows.reward(i)[column],
        }
    }

    fn check(&self, columns: Columns) -> Result<(), String> {
        let share = |name: &str, value: f64| {
            if (0.0..=1.0).contains(&value) {
                Ok(())
            } else {
                Err(format!("{name}: lies in [0, 1], this one is {value}"))
            }
        };
        match *self {
            Self::Constant(value) => share("continuation.value", value),
            Self::Inside { index, low, high, outside } => {
                within("continuation.index", "state variables", index, columns.states)?;
                finite("continuation.low", low)?;
                finite("continuation.high", high)?;
                if low > high {
                    return Err(format!("continuation.low: {low} is above continuation.high, {high}"));
                }
                share("continuation.outside", outside)
            }
            Self::Reward(column) => within("continuation.index", "rewards", column, columns.rewards),
            Self::Expression(ref expression) => {
                expression.places().try_for_each(|place| columns.has("continuation.text", place))
            }
        }
    }

    /// The numbers of a row that an expression needs.
    fn places(&self) -> impl Iterator<Item = Operand> {
        let sum = if let Self::Expression(expression) = self { Some(expression.places()) } else { None };
        sum.into_iter().flatten()
    }

    /// Bytes beside its own size.
    fn heap_bytes(&self) -> usize {
        if let Self::Expression(expression) = self { expression.heap_bytes() } else { 0 }
    }
}

impl Columns {
    /// Whether rows have the number that the field `key` asks for.
    fn has(self, key: &str, place: Operand) -> Result<(), String> {
        let (what, index, count) = match place {
            Operand::Reward(index) => ("rewards", index, self.rewards),
            Operand::State(index) | Operand::NextState(index) => ("state variables", index, self.states),
            Operand::Action(index) => ("numbers in an action", index, self.actions),
        };
        within(key, what, index, count)
    }
}

impl Head {
    /// The sum of a cumulant under a discount, and nothing else about it.
    pub fn new(name: impl Into<String>, cumulant: Cumulant, rate: Rate) -> Self {
        Self {
            name: name.into(),
            cumulant,
            rate,
            continuation: Continuation::Constant(1.0),
            terminal_reward: 0.0,
            weight: None,
            noise_variance: None,
            signal: None,
            level: 0.0,
        }
    }

    /// What it is paid with row i, after which a share `kept` goes on, about its level.
    pub(crate) fn paid(&self, rows: &Rows, i: usize, kept: f64) -> f64 {
        self.rate.about(self.cumulant.of(rows, i) + (1.0 - kept) * self.terminal_reward, self.level, kept)
    }

    /// Whether it says what programs of before functions and falls were there cannot read.
    pub fn has_functions(&self) -> bool {
        let cumulant = match &self.cumulant {
            Cumulant::Expression(of) => of.has_functions(),
            other => matches!(other, Cumulant::EventBelow { .. }),
        };
        cumulant || matches!(&self.continuation, Continuation::Expression(of) if of.has_functions())
    }

    /// Whether rows with these columns can answer it.
    ///
    /// # Errors
    /// What cannot be, in words that name the field.
    pub fn check(&self, columns: Columns) -> Result<(), String> {
        if self.name.is_empty() || self.name.len() > NAME_MAX {
            return Err(format!("name: has 1 to {NAME_MAX} bytes, this one has {}", self.name.len()));
        }
        self.cumulant.check(columns)?;
        self.rate.check()?;
        self.continuation.check(columns)?;
        finite("terminal_reward", self.terminal_reward)?;
        finite("level", self.level)?;
        if let Some(column) = self.weight {
            within("weight.index", "rewards", column, columns.rewards)?;
        }
        for (name, value) in [("noise_variance", self.noise_variance), ("signal", self.signal)] {
            if let Some(value) = value.filter(|value| !(value.is_finite() && *value > 0.0)) {
                return Err(format!("{name}: must be positive, is {value}"));
            }
        }
        Ok(())
    }

    /// The set of labels that it learns from, if it does.
    pub fn label(&self) -> Option<(&str, u64)> {
        if let Cumulant::Label { name, id } = &self.cumulant { Some((name, *id)) } else { None }
    }

    /// How often rows count for it, where that is not once each.
    pub(crate) fn weighting(&self) -> Option<Weighting> {
        let column = self.weight;
        match self.label() {
            Some((_, label)) => Some(Weighting::Labelled { label, column }),
            None => column.map(Weighting::Column),
        }
    }

    /// The reward columns that it asks for.
    pub fn reward_columns(&self) -> impl Iterator<Item = usize> {
        let reward = |place| if let Operand::Reward(column) = place { Some(column) } else { None };
        let share = if let Continuation::Reward(column) = self.continuation { Some(column) } else { None };
        self.places().filter_map(reward).chain([share, self.weight].into_iter().flatten())
    }

    /// The numbers of a row that cumulant and continuation need.
    fn places(&self) -> impl Iterator<Item = Operand> {
        self.cumulant.places().chain(self.continuation.places())
    }

    /// Numbers that an action needs at least.
    fn action_numbers(&self) -> usize {
        let number = |place| if let Operand::Action(index) = place { index + 1 } else { 0 };
        self.places().map(number).max().unwrap_or(0)
    }

    /// Bytes beside its own size.
    fn heap_bytes(&self) -> usize {
        self.name.len() + self.cumulant.heap_bytes() + self.continuation.heap_bytes()
    }

    /// Whether it asks for the times of rows.
    pub fn needs_time(&self) -> bool {
        matches!(self.rate, Rate::Timescale(_))
    }

    /// Whether it asks for actions.
    pub fn needs_actions(&self) -> bool {
        self.action_numbers() > 0
    }
}

/// Whether rows with these columns can answer all of them, and no two have the same name.
///
/// # Errors
/// What cannot be, in words that name head and field.
pub fn check(heads: &[Head], columns: Columns) -> Result<(), String> {
    let mut names = HashSet::new();
    for (i, head) in heads.iter().enumerate() {
        head.check(columns).map_err(|what| format!("heads[{i}] ({}): {what}", head.name))?;
        if !names.insert(head.name.as_str()) {
            return Err(format!("heads[{i}]: name: another head is called {} already", head.name));
        }
    }
    Ok(())
}

/// Whether row i has what `heads` ask of it beyond the numbers of its columns.
///
/// # Errors
/// Which head cannot learn from it, in words that name the field.
pub fn check_row(heads: &[Head], rows: &Rows, i: usize) -> Result<(), String> {
    for head in heads {
        let fault = |what: String| Err(format!("head {}: {what}", head.name));
        if head.needs_time() && !rows.times.get(i).is_some_and(|time| time.is_finite()) {
            return fault("time: its timescale is in seconds, and the row has no time".to_owned());
        }
        let index = |place| if let Operand::Action(index) = place { Some(index) } else { None };
        let lacks = |index: &usize| !rows.action(i).get(*index).is_some_and(|value| value.is_finite());
        if let Some(index) = head.places().filter_map(index).find(lacks) {
            return fault(format!("action: it needs number {index} of the action, which the row lacks"));
        }
        if let Continuation::Reward(column) = head.continuation
            && !(0.0..=1.0).contains(&rows.reward(i)[column])
        {
            let value = rows.reward(i)[column];
            return fault(format!("reward {column} is its continuation and lies in [0, 1], in this row it is {value}"));
        }
        if let Some(column) = head.weight
            && rows.reward(i)[column] < 0.0
        {
            let value = rows.reward(i)[column];
            return fault(format!("reward {column} is its weight and not negative, in this row it is {value}"));
        }
    }
    Ok(())
}

/// The demands of a set of heads on a row, beyond the numbers of its columns. Their size does not grow with the heads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demands {
    time: bool,
    /// Numbers that an action needs at least.
    actions: usize,
    /// Reward columns that lie in \[0, 1\].
    shares: BTreeSet<usize>,
    /// Reward columns that are not negative.
    weights: BTreeSet<usize>,
}

impl Demands {
    /// The demands of all these heads together.
    pub fn of<'a>(heads: impl IntoIterator<Item = &'a Head>) -> Self {
        let mut all = Self::default();
        for head in heads {
            all.time |= head.needs_time();
            all.actions = all.actions.max(head.action_numbers());
            if let Continuation::Reward(column) = head.continuation {
                all.shares.insert(column);
            }
            all.weights.extend(head.weight);
        }
        all
    }

    /// Add the demands of `other`.
    pub fn join(&mut self, other: &Self) {
        self.time |= other.time;
        self.actions = self.actions.max(other.actions);
        self.shares.extend(&other.shares);
        self.weights.extend(&other.weights);
    }

    /// The first of these rows that lacks a field, and that field.
    pub fn lacking(&self, rows: &Rows, range: Range<usize>) -> Option<(usize, &'static str)> {
        if *self == Self::default() {
            return None;
        }
        range.into_iter().find_map(|i| {
            let has_time = rows.times.get(i).is_some_and(|time| time.is_finite());
            let action = if rows.actions_per_row == 0 { &[][..] } else { rows.action(i) };
            let share = |&column: &usize| (0.0..=1.0).contains(&rows.reward(i)[column]);
            let weight = |&column: &usize| rows.reward(i)[column] >= 0.0;
            let what = if self.time && !has_time {
                "time"
            } else if action.len() < self.actions || action[..self.actions].iter().any(|number| !number.is_finite()) {
                "action with as many numbers"
            } else if !self.shares.iter().all(share) {
                "continuation in [0, 1]"
            } else if !self.weights.iter().all(weight) {
                "weight from 0 on"
            } else {
                return None;
            };
            Some((i, what))
        })
    }

    /// Whether every row of `batch` has what heads ask for.
    ///
    /// # Errors
    /// The field that the first row at fault lacks, and its index.
    pub fn check(&self, batch: &Batch) -> Result<(), Invalid> {
        let fault = |code, field, index, message: String| Err(Invalid { code, field, index: Some(index), message });
        for i in 0..batch.len() {
            if self.time && batch.time(i).is_none() {
                let message = "is required: heads with a timescale learn here".to_owned();
                return fault(InvalidCode::MissingField, batch.key("time", "times"), i, message);
            }
            let numbers = batch.action(i).map_or(0, <[f64]>::len);
            if numbers < self.actions {
                let message = format!("must have {} numbers, which heads learn from, has {numbers}", self.actions);
                return fault(InvalidCode::WrongDimension, batch.key("action", "actions"), i, message);
            }
            let learned = &batch.action(i).unwrap_or_default()[..self.actions];
            if let Some(number) = learned.iter().find(|number| !number.is_finite() || number.abs() > MAGNITUDE_MAX) {
                let message = format!("{number:e} is beyond {MAGNITUDE_MAX:e}, and heads learn from it");
                return fault(InvalidCode::OutOfRange, batch.key("action", "actions"), i, message);
            }
            let columns = self.shares.iter().chain(&self.weights).max().map_or(0, |last| last + 1);
            if batch.rewards_per_row() < columns {
                let message =
                    format!("must have {columns} numbers, which heads learn from, has {}", batch.rewards_per_row());
                return fault(InvalidCode::WrongDimension, batch.key("reward", "rewards"), i, message);
            }
            for &column in &self.shares {
                let value = batch.reward(i)[column];
                if !(0.0..=1.0).contains(&value) {
                    let message =
                        format!("number {column} is the continuation of a head and lies in [0, 1], is {value}");
                    return fault(InvalidCode::OutOfRange, batch.key("reward", "rewards"), i, message);
                }
            }
            for &column in &self.weights {
                let value = batch.reward(i)[column];
                if value < 0.0 {
                    let message = format!("number {column} is the weight of a head and not negative, is {value}");
                    return fault(InvalidCode::OutOfRange, batch.key("reward", "rewards"), i, message);
                }
            }
        }
        Ok(())
    }
}

/// 1 where a number goes from at most `above` to more, else 0.
fn crosses(before: f64, after: f64, above: f64) -> f64 {
    f64::from(u8::from((before <= above) & (above < after)))
}

fn falls(before: f64, after: f64, below: f64) -> f64 {
    f64::from(u8::from((before >= below) & (after < below)))
}

fn finite(name: &str, value: f64) -> Result<(), String> {
    if value.is_finite() { Ok(()) } else { Err(format!("{name}: {value} is not a finite number")) }
}

fn within(name: &str, what: &str, index: usize, count: usize) -> Result<(), String> {
    if index < count { Ok(()) } else { Err(format!("{name}: {index}, counted from 0, but there are {count} {what}")) }
}
