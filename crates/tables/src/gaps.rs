//! Rows that lack a number which is needed: which of them are left out, and which repeat the row before them.

use super::cell::{Cell, is_missing};
use super::columns::Missing;
use super::job::{Column, Want};
use std::collections::HashMap;

/// What may be done about rows without a number.
pub(super) const REMEDY: &str = "--missing drop leaves them out, --missing hold repeats the last number";

/// What a row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// A step.
    Step,
    /// It says that its state is terminal, and is no transition.
    Terminal,
    /// It lacks a number: no transition, and none leads to it.
    Absent,
}

/// Where a row stands, and whether its episode ends with it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowPosition {
    pub(super) stream: u32,
    pub(super) episode: Option<u32>,
    pub(super) seq: u64,
    pub(super) ended: bool,
}

/// Numbers that are missing, and what is done about them.
#[derive(Debug)]
pub(super) struct Gaps {
    missing: Missing,
    /// Rows left out.
    dropped: usize,
    /// Numbers that repeat the ones before.
    repeated: usize,
    /// Place and column of the first one.
    first: Option<(u64, String)>,
    /// Of each stream the row before, and its state.
    held: HashMap<u32, (RowPosition, Vec<f64>)>,
}

impl Gaps {
    pub(super) fn new(missing: Missing) -> Self {
        Self { missing, dropped: 0, repeated: 0, first: None, held: HashMap::new() }
    }

    /// Whether a table with gaps is read at all.
    pub(super) fn allowed(&self) -> bool {
        self.missing != Missing::Refuse
    }

    /// A message about a cell, with what may be done about it where it says in a word that a number is missing.
    pub(super) fn beside(&self, want: Want, column: Column, cell: Cell<'_>, message: String) -> String {
        let needed =
            column.is_of_reward() || matches!(column, Column::State(_) | Column::NextState(_) | Column::Action(_));
        let word = is_missing(cell) && !message.contains(REMEDY);
        if !needed || !word || self.allowed() || !matches!(want, Want::Transitions(_)) {
            return message;
        }
        format!("{message}; if it says that there is none, say what to do about such rows: {REMEDY}")
    }

    /// Rows left out.
    pub(super) fn dropped(&self) -> usize {
        self.dropped
    }

    /// Leave out the row at `place`, for a number of the column of this name.
    pub(super) fn drop(&mut self, place: u64, column: impl FnOnce() -> String) {
        self.dropped += 1;
        self.first.get_or_insert_with(|| (place, column()));
    }

    /// What the row at `place` is, which lacks this column or none.
    pub(super) fn stand(&mut self, place: u64, lacks: Option<Column>, name: impl FnOnce() -> String) -> Standing {
        match lacks {
            None => Standing::Step,
            // It may repeat the number of the row before it, once that is known.
            Some(Column::State(_)) if self.missing == Missing::Hold => {
                self.first.get_or_insert_with(|| (place, name()));
                Standing::Step
            }
            Some(_) => {
                self.drop(place, name);
                Standing::Absent
            }
        }
    }

    /// Have the numbers that a state (D,) lacks repeat the ones of the row before it, and remember it; whether all are there now.
    pub(super) fn hold(&mut self, at: RowPosition, state: &mut [f64]) -> bool {
        if self.missing != Missing::Hold {
            return true;
        }
        let follows =
            |(held, _): &&(RowPosition, Vec<f64>)| held.episode == at.episode && held.seq + 1 == at.seq && !held.ended;
        let mut repeated = 0;
        if let Some((_, before)) = self.held.get(&at.stream).filter(follows) {
            for (value, before) in state.iter_mut().zip(before).filter(|(value, _)| value.is_nan()) {
                *value = *before;
                repeated += usize::from(!before.is_nan());
            }
        }
        // What is known by now serves the rows behind, even where something is missing yet.
        let (held, known) = self.held.entry(at.stream).or_insert_with(|| (at, state.to_vec()));
        *held = at;
        known.copy_from_slice(state);
        let whole = state.iter().all(|value| !value.is_nan());
        if whole {
            self.repeated += repeated
        } else {
            self.dropped += 1
        }
        whole
    }

    /// What there is to tell; `row` is what a row is called.
    pub(super) fn say(&self, row: &str) -> Option<String> {
        let (place, column) = self.first.as_ref()?;
        let of = |count: usize, one: &str, more: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {more}")),
        };
        let said = [
            of(
                self.repeated,
                "missing number repeats the one before it",
                "missing numbers repeat the ones before them",
            ),
            of(self.dropped, "row lacks a number and is left out", "rows lack a number and are left out"),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        Some(format!("{}; the first: {row} {place}, {column}", said.join(", ")))
    }
}
