//! Cumulants that are sums of numbers of a row.

use crate::expression::{NotASum, Sum, Variable};
use crate::transition::{MAGNITUDE_MAX, Rows};
use serde::{Deserialize, Serialize};

/// Most terms of an expression.
const TERMS_MAX: usize = 1024;

const NAMES: [&str; 4] = ["state", "next_state", "action", "reward"];

/// A number of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Of the state.
    State(usize),
    /// Of the next state.
    NextState(usize),
    /// Of the action.
    Action(usize),
    /// A reward column.
    Reward(usize),
}

impl Place {
    fn of(self, rows: &Rows, i: usize) -> f64 {
        match self {
            Self::State(index) => rows.state(i)[index],
            Self::NextState(index) => rows.next_state(i)[index],
            Self::Action(index) => rows.action(i)[index],
            Self::Reward(column) => rows.reward(i)[column],
        }
    }

    fn named(variable: &Variable) -> Result<Self, String> {
        let index = match (variable.only, variable.name.as_str()) {
            (Some(index), _) => index,
            (None, "reward") => 0,
            (None, name) => return Err(format!("{name} is a list: write {name}[0] for its first number")),
        };
        Ok(match variable.name.as_str() {
            "state" => Self::State(index),
            "next_state" => Self::NextState(index),
            "action" => Self::Action(index),
            _ => Self::Reward(index),
        })
    }
}

/// constant + sum over terms of factor * number of the row, such as `reward - 0.1*action[0] + state[3]/2`. It is kept as its text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Expression {
    text: String,
    constant: f64,
    terms: Vec<(f64, Place)>,
}

impl Expression {
    /// The sum that `text` says; `reward` alone is `reward[0]`.
    ///
    /// # Errors
    /// Why it is none, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let sum = Sum::parse(text, &NAMES).map_err(|why| match why {
            NotASum::Unknown(name) => format!("there is no {name}; there is {}", NAMES.join(", ")),
            NotASum::Grammar(what) => what,
        })?;
        if sum.terms.len() > TERMS_MAX {
            return Err(format!("has at most {TERMS_MAX} terms, this one has {}", sum.terms.len()));
        }
        let factors = sum.terms.iter().map(|(factor, _)| *factor).chain([sum.constant]);
        if let Some(large) = factors.into_iter().find(|factor| factor.abs() > MAGNITUDE_MAX) {
            return Err(format!("{large:e} is beyond {MAGNITUDE_MAX:e}"));
        }
        let term = |(factor, variable): &(f64, Variable)| Ok((*factor, Place::named(variable)?));
        let terms = sum.terms.iter().map(term).collect::<Result<Vec<_>, String>>()?;
        Ok(Self { text: text.to_owned(), constant: sum.constant, terms })
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The numbers of a row that it needs.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.terms.iter().map(|(_, place)| *place)
    }

    /// Bytes of its text and its terms.
    pub(super) fn heap_bytes(&self) -> usize {
        self.text.len() + self.terms.len() * size_of::<(f64, Place)>()
    }

    /// Of row i.
    pub(crate) fn of(&self, rows: &Rows, i: usize) -> f64 {
        self.terms.iter().fold(self.constant, |sum, (factor, place)| sum + factor * place.of(rows, i))
    }
}

impl TryFrom<String> for Expression {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

impl From<Expression> for String {
    fn from(expression: Expression) -> Self {
        expression.text
    }
}
