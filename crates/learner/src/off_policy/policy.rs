//! A policy that is judged, as its answers in the state of each row.

use crate::action::{ActionColumns, ActionError, ActionSpace, Column};
use crate::math::returns::chains;
use crate::transition::probability::check_distribution;
use crate::transition::{Invalid, Rows};

/// The answers of a policy in the state of each row.
#[derive(Clone, Debug, PartialEq)]
pub enum Policy {
    /// Probabilities of C discrete actions (n, C).
    Probabilities(Column),
    /// The action that it takes.
    Actions {
        /// (n, A).
        taken: Column,
        /// Whether there is a number of actions, of which it takes one for certain.
        discrete: bool,
    },
}

/// What a policy does in some states, as inputs of Q.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Entries {
    /// Actions A of each state.
    pub actions: usize,
    /// (k A, D + width), row-major.
    pub inputs: Vec<f64>,
    /// (k, A), row-major: with what probability it takes each.
    pub shares: Vec<f64>,
}

/// Why a policy cannot be judged.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{}{message}", .row.map(|row| format!("row {}: ", row + 1)).unwrap_or_default())]
pub struct Fault {
    /// Row at fault, where one row is.
    pub row: Option<usize>,
    /// What is wrong, in words.
    pub message: String,
}

impl Fault {
    pub(super) fn of(message: impl Into<String>) -> Self {
        Self { row: None, message: message.into() }
    }

    fn at(row: usize, message: impl Into<String>) -> Self {
        Self { row: Some(row), message: message.into() }
    }
}

impl From<ActionError> for Fault {
    fn from(e: ActionError) -> Self {
        Self::at(e.row, format!("{}: {}", e.column, e.message))
    }
}

impl From<Invalid> for Fault {
    fn from(e: Invalid) -> Self {
        Self { row: e.index, message: format!("{}: {}", e.field, e.message) }
    }
}

impl Policy {
    /// (n, C) probabilities or (n, A) actions.
    pub fn column(&self) -> &Column {
        match self {
            Self::Probabilities(column) | Self::Actions { taken: column, .. } => column,
        }
    }

    /// Number of states n that it answers.
    pub fn len(&self) -> usize {
        self.column().values.len() / self.column().width.max(1)
    }

    /// Whether it answers none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether it is given by probabilities.
    pub fn is_stochastic(&self) -> bool {
        matches!(self, Self::Probabilities(_))
    }

    /// Whether it answers `rows` rows, and each answer is a distribution over the actions of `space`, or one of these.
    ///
    /// # Errors
    /// The first answer that is neither.
    pub fn check(&self, rows: usize, space: &ActionSpace) -> Result<(), Fault> {
        let (column, found) = (self.column(), self.len());
        if found != rows {
            return Err(Fault::of(format!("answers {found} states, there are {rows} transitions")));
        }
        let mut scratch = Vec::new();
        for i in 0..rows {
            let answer = column.row(i).unwrap_or_default();
            match self {
                Self::Probabilities(_) if answer.len() != space.choices() => {
                    let message = format!("has {} probabilities for {} actions", answer.len(), space.choices());
                    return Err(Fault::at(i, message));
                }
                Self::Probabilities(_) => {
                    check_distribution(answer).map_err(|(_, message)| Fault::at(i, message))?;
                }
                Self::Actions { .. } => {
                    scratch.clear();
                    space.append(answer, &mut scratch).map_err(|message| Fault::at(i, message))?;
                }
            }
        }
        Ok(())
    }

    /// Put its answers into the columns of the rows: the probability of each discrete action taken, and the answer in the
    /// next state, where the next row of the chain is there.
    ///
    /// # Errors
    /// An action that none of its probabilities is of.
    pub fn fill(&self, rows: &Rows, columns: &mut ActionColumns) -> Result<(), Fault> {
        let (n, follows, own) = (rows.len(), chains(rows), self.column());
        if let Self::Probabilities(probs) = self {
            let mut target = Column { width: 1, values: Vec::with_capacity(n) };
            for i in 0..n {
                let (action, probs) = (columns.actions.number(i), probs.row(i).unwrap_or_default());
                let known = action.filter(|a| *a >= 0.0 && a.fract() == 0.0 && (*a as usize) < probs.len());
                let Some(action) = known else {
                    return Err(Fault::at(i, format!("has no action from 0 to {}", probs.len() - 1)));
                };
                target.values.push(probs[action as usize]);
            }
            columns.target_probs = target;
        }
        if let Self::Actions { taken, discrete: true } = self {
            // It takes its own action for certain.
            let certain = |i: usize| if columns.actions.row(i) == taken.row(i) { 1.0 } else { 0.0 };
            columns.target_probs = Column { width: 1, values: (0..n).map(certain).collect() };
        }
        let next = if self.is_stochastic() { &mut columns.next_action_probs } else { &mut columns.next_actions };
        if next.width != own.width {
            *next = Column { width: own.width, values: vec![f64::NAN; n * own.width] };
        }
        for (i, j) in follows.iter().enumerate().filter_map(|(i, j)| Some((i, (*j)?))) {
            if let Some(row) = own.row(j) {
                next.values[i * own.width..(i + 1) * own.width].copy_from_slice(row);
            }
        }
        Ok(())
    }

    /// Inputs of Q (k A, D + width) at the `states` (k, D) of rows `places`, A for each, with what share each of the A has: all discrete
    /// actions by their probabilities, or the one that is taken.
    ///
    /// # Errors
    /// An answer that is no action of `space`.
    pub fn entries(&self, places: &[usize], states: &[f64], space: &ActionSpace) -> Result<Entries, Fault> {
        let mut out = Entries { actions: if self.is_stochastic() { space.choices() } else { 1 }, ..Entries::default() };
        let dim = states.len().checked_div(places.len()).unwrap_or(1);
        for (&i, state) in places.iter().zip(states.chunks_exact(dim.max(1))) {
            let row = self.column().row(i).ok_or_else(|| Fault::at(i, "has no answer"))?;
            for action in 0..out.actions {
                let number = [action as f64];
                let taken = if self.is_stochastic() { &number[..] } else { row };
                out.inputs.extend_from_slice(state);
                space.append(taken, &mut out.inputs).map_err(|message| Fault::at(i, message))?;
                out.shares.push(if self.is_stochastic() { row[action] } else { 1.0 });
            }
        }
        Ok(out)
    }

    /// `take` the inputs of Q at `state` of row i, each with its share.
    ///
    /// # Errors
    /// An answer that is no action of `space`.
    pub(super) fn inputs(
        &self,
        i: usize,
        state: &[f64],
        space: &ActionSpace,
        take: &mut dyn FnMut(&[f64], f64),
    ) -> Result<(), Fault> {
        let row = self.column().row(i).unwrap_or_default();
        let mut each = |action: &[f64], share: f64| {
            let mut input = state.to_vec();
            space.append(action, &mut input).map_err(|message| Fault::at(i, message))?;
            take(&input, share);
            Ok(())
        };
        match self {
            Self::Actions { .. } => each(row, 1.0),
            Self::Probabilities(_) => {
                row.iter().enumerate().filter(|(_, p)| **p > 0.0).try_for_each(|(a, p)| each(&[a as f64], *p))
            }
        }
    }
}
