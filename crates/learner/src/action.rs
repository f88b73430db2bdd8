//! Action values Q(x, a): a state and an action as one input, and rows that wait for the action that follows them.
//!
//! An input of Q is z = (x, a). The numbers of a box action follow the state; a discrete action is the unit vector of its
//! number, so that each action has a relevance of its own (docs/mathematics.md (A1)). Q is then a value function of z, and all
//! that a model is and does holds for it.
//!
//! A row needs the action that follows it. The next row of its chain names it, or the row itself does. A row that neither
//! names it for is not learned: its own input closes the chain, as the successor of the row before it. One row of each chain
//! that is cut is lost in this way, and no bias enters.

use crate::math::returns::chains;
pub use crate::transition::CHOICES_MAX;
use crate::transition::{MAGNITUDE_MAX, Rows, probability};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet};

/// The actions there are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActionSpace {
    /// The number of actions, which are numbered from 0; at least 1, at most [`CHOICES_MAX`].
    Discrete(usize),
    /// Vectors of A numbers.
    Box {
        /// Least of each number (A,), in the unit of the action.
        low: Vec<f64>,
        /// Largest of each number (A,), not below the least.
        high: Vec<f64>,
    },
}

impl ActionSpace {
    /// The smallest box around actions (n, `width`), row-major.
    ///
    /// # Panics
    /// If `width` is 0.
    pub fn around(actions: &[f64], width: usize) -> Self {
        let (mut low, mut high) = (vec![f64::INFINITY; width], vec![f64::NEG_INFINITY; width]);
        for action in actions.chunks_exact(width) {
            for (d, &value) in action.iter().enumerate() {
                (low[d], high[d]) = (low[d].min(value), high[d].max(value));
            }
        }
        Self::Box { low, high }
    }

    /// Coordinates that an action adds to the state's.
    pub fn width(&self) -> usize {
        match self {
            Self::Discrete(count) => *count,
            Self::Box { low, .. } => low.len(),
        }
    }

    /// Numbers of an action as it is given.
    pub fn numbers(&self) -> usize {
        match self {
            Self::Discrete(_) => 1,
            Self::Box { low, .. } => low.len(),
        }
    }

    /// Number of discrete actions; 0 for a box.
    pub fn choices(&self) -> usize {
        match self {
            Self::Discrete(count) => *count,
            Self::Box { .. } => 0,
        }
    }

    /// Append the coordinates of `action` to its state's in `out`.
    ///
    /// # Errors
    /// What is wrong with the action, in words; `out` is left as it was.
    pub fn append(&self, action: &[f64], out: &mut Vec<f64>) -> Result<(), String> {
        if action.len() != self.numbers() {
            return Err(format!("an action has {} numbers here, not {}", self.numbers(), action.len()));
        }
        match self {
            Self::Box { .. } => match action.iter().find(|value| !value.is_finite() || value.abs() > MAGNITUDE_MAX) {
                Some(value) => Err(format!("{value} is not a finite number, or is beyond {MAGNITUDE_MAX:e}")),
                None => {
                    out.extend_from_slice(action);
                    Ok(())
                }
            },
            Self::Discrete(count) => {
                let number = action[0];
                if !(number >= 0.0 && number < *count as f64 && number.fract() == 0.0) {
                    return Err(format!("a discrete action is a whole number from 0 to {}, not {number}", count - 1));
                }
                let first = out.len();
                out.resize(first + count, 0.0);
                out[first + number as usize] = 1.0;
                Ok(())
            }
        }
    }

    /// Whether `action` is one of these: of a box within its bounds.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub fn check(&self, action: &[f64]) -> Result<(), String> {
        self.append(action, &mut Vec::new())?;
        let Self::Box { low, high } = self else { return Ok(()) };
        let outside = (0..low.len()).find(|&d| !(low[d]..=high[d]).contains(&action[d]));
        outside.map_or(Ok(()), |d| {
            Err(format!("number {d} of an action lies between {} and {}, not at {}", low[d], high[d], action[d]))
        })
    }

    /// The action whose coordinates these are: of a distribution over discrete actions the likeliest.
    ///
    /// # Panics
    /// If there is another number of coordinates.
    pub fn action_of(&self, coordinates: &[f64]) -> Vec<f64> {
        assert_eq!(coordinates.len(), self.width(), "coordinates of one action");
        match self {
            Self::Box { .. } => coordinates.to_vec(),
            Self::Discrete(_) => vec![first_largest(coordinates) as f64],
        }
    }

    /// What the coordinates of an action are called.
    pub fn names(&self) -> Vec<String> {
        match self {
            Self::Discrete(count) => (0..*count).map(|a| format!("action={a}")).collect(),
            Self::Box { low, .. } if low.len() == 1 => vec!["action".into()],
            Self::Box { low, .. } => (0..low.len()).map(|d| format!("action_{d}")).collect(),
        }
    }

    /// Whether it can be worked with: what is read from a file is asked this.
    pub fn is_sound(&self) -> bool {
        match self {
            Self::Discrete(count) => (1..=CHOICES_MAX).contains(count),
            Self::Box { low, high } => {
                let ordered = |(low, high): (&f64, &f64)| low.is_finite() && high.is_finite() && low <= high;
                !low.is_empty() && low.len() == high.len() && low.iter().zip(high).all(ordered)
            }
        }
    }
}

/// Index of the first of the largest numbers; 0 where there are none.
pub fn first_largest(values: &[f64]) -> usize {
    (1..values.len()).fold(0, |best, i| if values[i] > values[best] { i } else { best })
}

named! {
    /// Whose action follows a row: docs/mathematics.md (A2).
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Successor {
        /// The action of the next row of the chain: the value of the policy that acts.
        Sarsa = "sarsa",
        /// The one that the row names as `next_action`: the value of the policy that is judged.
        NextAction = "next_action",
        /// All discrete ones, with the row's `next_action_probs`: the same, without the chance of a draw.
        Expected = "expected",
        /// The one that Q itself prefers: the value of acting as well as is known ([`crate::improve`]).
        Improve = "improve",
    }
}

named! {
    /// How much of a trace flows into a row, before lambda: docs/mathematics.md (A3).
    #[derive(Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum Trace {
        /// All of it: right where the policy that acts is the one that is judged.
        OnPolicy = "on_policy",
        /// min(1, rho): right for any two policies, and no ratio makes it grow.
        Retrace = "retrace",
        /// rho, clipped.
        Importance = "importance",
        /// The probability of the action under the policy that is judged: no other probability is needed.
        Tree = "tree",
    }
}

impl Trace {
    /// The factor of a row with these probabilities, at least 0; `rho_max` clips the ratio if there is such a limit. 1 where a
    /// probability is missing that it needs.
    pub fn factor(self, behavior: Option<f64>, target: Option<f64>, rho_max: Option<f64>) -> f64 {
        let ratio = probability::ratio(behavior, target);
        let known = behavior.is_some() && target.is_some();
        let ratio = if known { probability::clipped(ratio, rho_max) } else { ratio };
        match self {
            Self::OnPolicy => 1.0,
            Self::Retrace => ratio.min(1.0),
            Self::Importance => ratio,
            Self::Tree => target.unwrap_or(1.0),
        }
    }
}

/// What is learned of actions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ActionValue {
    /// The actions there are.
    pub space: ActionSpace,
    /// Whose action follows a row.
    pub successor: Successor,
    /// How much of a trace flows into a row.
    pub trace: Trace,
}

/// Numbers of each row, equally many in each; all of them NaN where a row has none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Column {
    /// Numbers per row; 0 where no row has any.
    pub width: usize,
    /// (n, width), row-major.
    pub values: Vec<f64>,
}

impl Column {
    /// The numbers of row i, if it has them.
    pub fn row(&self, i: usize) -> Option<&[f64]> {
        let row = self.values.get(i * self.width..(i + 1) * self.width)?;
        row.first().is_some_and(|value| !value.is_nan()).then_some(row)
    }

    /// The only number of row i, if it has it.
    pub fn number(&self, i: usize) -> Option<f64> {
        self.row(i).map(|row| row[0])
    }
}

/// What rows say of actions, beside [`Rows`]; each column has the rows' number of them, or none.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ActionColumns {
    /// The action taken (n, A).
    pub actions: Column,
    /// Probability or density under which it was taken (n, 1).
    pub behavior_probs: Column,
    /// The same under the policy that is judged (n, 1).
    pub target_probs: Column,
    /// Action of that policy in the next state (n, A).
    pub next_actions: Column,
    /// Its probabilities of C discrete actions there (n, C).
    pub next_action_probs: Column,
}

/// Why a row cannot be learned of.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("transition {}, {column}: {message}", .row + 1)]
pub struct ActionError {
    /// Number of the row.
    pub row: usize,
    /// Column at fault, by its name.
    pub column: &'static str,
    /// What is wrong, in words.
    pub message: String,
}

/// Rows whose states are inputs of Q.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StateActionRows {
    /// The rows that are learned.
    pub rows: Rows,
    /// Which row each of them was.
    pub kept: Vec<usize>,
}

impl ActionValue {
    /// The same inputs under the policy that acts. Refits select the kernel by it for every successor: the values of two
    /// policies vary over the same lengths, and the table has returns of the policy that acts alone.
    pub fn on_policy(&self) -> Self {
        Self { space: self.space.clone(), successor: Successor::Sarsa, trace: Trace::OnPolicy }
    }

    /// Whether a row may be followed by another input than the next row of its chain has.
    pub fn leaves_chain(&self) -> bool {
        self.successor != Successor::Sarsa
    }

    /// `rows` as transitions between inputs of Q: ratios of 1, and the trace's factors as [`Rows::carries`] where one is not 1.
    /// With [`Successor::Improve`] the successor's action is the row's own, until [`crate::improve`] replaces it.
    ///
    /// # Errors
    /// The first row whose action is missing or none of the space, or whose `next_action` or `next_action_probs` are not.
    pub fn rows(
        &self,
        rows: &Rows,
        columns: &ActionColumns,
        rho_max: Option<f64>,
    ) -> Result<StateActionRows, ActionError> {
        let follows = chains(rows);
        let empty = Rows::new(rows.dim + self.space.width(), rows.rewards_per_row);
        let mut out = StateActionRows { rows: empty, ..StateActionRows::default() };
        // Of each stream the last row learned, and whether a row that was not learned has started a chain since.
        let (mut last, mut started) = (HashMap::new(), HashSet::new());
        for (i, &stream) in rows.streams.iter().enumerate() {
            let own = self.action(columns, i)?;
            let starts = started.remove(&stream) || rows.starts_chain[i];
            let before = out.rows.next_states.len();
            out.rows.next_states.extend_from_slice(rows.next_state(i));
            if !self.append_successor(rows, columns, (i, follows[i]), &mut out.rows.next_states)? {
                out.rows.next_states.truncate(before);
                let of_chain = last.get(&stream).filter(|&&k: &&usize| follows[out.kept[k]] == Some(i));
                match of_chain {
                    Some(&k) => out.rows.truncated[k] |= rows.truncated[i],
                    None if starts => _ = started.insert(stream),
                    None => {}
                }
                continue;
            }
            last.insert(stream, out.kept.len());
            out.kept.push(i);
            let to = &mut out.rows;
            to.states.extend_from_slice(rows.state(i));
            self.space.append(own, &mut to.states).map_err(|message| fault(i, "action", message))?;
            to.rewards.extend_from_slice(rows.reward(i));
            to.discounts.push(rows.discounts[i]);
            to.ratios.push(1.0);
            let (behavior, target) = (columns.behavior_probs.number(i), columns.target_probs.number(i));
            to.carries.push(self.trace.factor(behavior, target, rho_max));
            to.streams.push(stream);
            to.terminated.push(rows.terminated[i]);
            to.truncated.push(rows.truncated[i]);
            to.starts_chain.push(starts);
        }
        if out.rows.carries.iter().all(|&carry| carry == 1.0) {
            out.rows.carries = Vec::new();
        }
        Ok(out)
    }

    /// The action of row i.
    fn action<'a>(&self, columns: &'a ActionColumns, i: usize) -> Result<&'a [f64], ActionError> {
        columns.actions.row(i).ok_or_else(|| fault(i, "action", "missing: an action value needs it".into()))
    }

    /// Append the action that follows row i, in the next row of its chain if there is one; false where it is not known.
    fn append_successor(
        &self,
        rows: &Rows,
        columns: &ActionColumns,
        (i, next): (usize, Option<usize>),
        out: &mut Vec<f64>,
    ) -> Result<bool, ActionError> {
        let append = |action: &[f64], column: &'static str, out: &mut Vec<f64>| {
            self.space.append(action, out).map(|()| true).map_err(|message| fault(i, column, message))
        };
        // A terminal state has no successor: the learner does not read these features.
        if rows.terminated[i] || self.successor == Successor::Improve {
            return append(self.action(columns, i)?, "action", out);
        }
        if self.successor == Successor::Expected
            && let Some(probs) = columns.next_action_probs.row(i)
        {
            if probs.len() != self.space.choices() {
                let message = format!("has {} numbers for {} actions", probs.len(), self.space.choices());
                return Err(fault(i, "next_action_probs", message));
            }
            out.extend_from_slice(probs);
            return Ok(true);
        }
        let named = columns.next_actions.row(i);
        let first = named.filter(|_| self.successor != Successor::Sarsa);
        match (first, next, named) {
            (Some(action), ..) => append(action, "next_action", out),
            (None, Some(j), _) => append(self.action(columns, j)?, "action", out),
            (None, None, Some(action)) => append(action, "next_action", out),
            (None, None, None) => Ok(false),
        }
    }
}

fn fault(row: usize, column: &'static str, message: String) -> ActionError {
    ActionError { row, column, message }
}
