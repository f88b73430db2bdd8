//! A policy that is judged, as a table of what it does in the state of each transition.

use super::Failure;
use super::actions::ActionKind;
use super::given::read_states_as;
use super::output::in_file;
use criticd::learner::action::{ActionColumns, ActionSpace, Column};
use criticd::math::returns::chains;
use criticd::table::Columns;
use criticd::transition::Rows;
use criticd::transition::probability::check_distribution;
use std::path::Path;

/// What the policy does in the state of each row.
pub(super) enum Policy {
    /// Probabilities of C discrete actions (n, C).
    Probabilities(Column),
    /// The action it takes (n, A).
    Actions(Column),
}

impl Policy {
    /// Read one row for each of `rows` transitions, whose actions have `width` numbers.
    pub(super) fn read(path: &Path, rows: usize, width: usize, kind: Option<ActionKind>) -> Result<Self, Failure> {
        let choices = match kind {
            Some(ActionKind::Discrete(count)) => Some(count),
            Some(ActionKind::Box) => None,
            None => return Err(Failure::usage("--policy needs --actions discrete:N or --actions box")),
        };
        let read = |names: Vec<String>| {
            let count = names.len();
            let columns = Columns { state: names, ..Columns::default() };
            read_states_as(path, &columns, count, "policy").map(|values| Column { width: count, values })
        };
        let numbered = |name: &str, count: usize| (0..count).map(|k| format!("{name}_{k}")).collect::<Vec<_>>();
        let probabilities = choices.map(|count| read(numbered("prob", count)));
        let policy = match probabilities {
            Some(Ok(column)) => Self::Probabilities(column),
            refused => {
                let actions = read(if width == 1 { vec!["action".into()] } else { numbered("action", width) })
                    .or_else(|failure| read(numbered("action", width)).map_err(|_| failure));
                match (actions, refused) {
                    (Ok(column), _) => Self::Actions(column),
                    // What was looked for first is what is missing.
                    (Err(_), Some(Err(failure))) => return Err(failure),
                    (Err(failure), _) => return Err(failure),
                }
            }
        };
        let column = policy.column();
        let found = column.values.len() / column.width.max(1);
        if found != rows {
            return Err(in_file(path, format!("has {found} rows, the table has {rows} transitions")));
        }
        if let Self::Probabilities(column) = &policy {
            for i in 0..rows {
                let checked = check_distribution(column.row(i).unwrap_or_default());
                checked.map_err(|(_, message)| in_file(path, format!("row {}: {message}", i + 1)))?;
            }
        }
        Ok(policy)
    }

    fn column(&self) -> &Column {
        match self {
            Self::Probabilities(column) | Self::Actions(column) => column,
        }
    }

    /// Whether it is given by probabilities.
    pub(super) fn is_stochastic(&self) -> bool {
        matches!(self, Self::Probabilities(_))
    }

    /// What it says of the rows, as their columns: the probability of each discrete action taken, and what it does in the
    /// next state, where the next row of the chain is there.
    ///
    /// # Errors
    /// An action that none of its probabilities is of, in words.
    pub(super) fn fill(&self, rows: &Rows, columns: &mut ActionColumns) -> Result<(), String> {
        let (n, follows, own) = (rows.len(), chains(rows), self.column());
        if let Self::Probabilities(probs) = self {
            let mut target = Column { width: 1, values: Vec::with_capacity(n) };
            for i in 0..n {
                let (action, probs) = (columns.actions.number(i), probs.row(i).unwrap_or_default());
                let known = action.filter(|a| *a >= 0.0 && a.fract() == 0.0 && (*a as usize) < probs.len());
                let Some(action) = known else {
                    return Err(format!("transition {} has no action from 0 to {}", i + 1, probs.len() - 1));
                };
                target.values.push(probs[action as usize]);
            }
            columns.target_probs = target;
        }
        let next = match self {
            Self::Probabilities(_) => &mut columns.next_action_probs,
            Self::Actions(_) => &mut columns.next_actions,
        };
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

    /// `take` the inputs of Q at `state` of row i, each with its share.
    pub(super) fn inputs(
        &self,
        i: usize,
        state: &[f64],
        space: &ActionSpace,
        take: &mut dyn FnMut(&[f64], f64),
    ) -> Result<(), Failure> {
        let row = self.column().row(i).unwrap_or_default();
        let mut each = |action: &[f64], share: f64| {
            let mut input = state.to_vec();
            space.append(action, &mut input).map_err(|message| Failure::new(format!("--policy: {message}")))?;
            take(&input, share);
            Ok(())
        };
        match self {
            Self::Actions(_) => each(row, 1.0),
            Self::Probabilities(_) => {
                row.iter().enumerate().filter(|(_, p)| **p > 0.0).try_for_each(|(a, p)| each(&[a as f64], *p))
            }
        }
    }
}
