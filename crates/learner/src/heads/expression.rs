//! Cumulants that are sums of numbers of a row and of functions of them.

use crate::expression::{Formula, Function, NotASum, Quantity, Variable};
use crate::transition::{MAGNITUDE_MAX, Rows};
use serde::{Deserialize, Serialize};

/// Most terms of an expression.
const TERMS_MAX: usize = 1024;

const NAMES: [&str; 4] = ["state", "next_state", "action", "reward"];

/// A number of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operand {
    /// Of the state.
    State(usize),
    /// Of the next state.
    NextState(usize),
    /// Of the action.
    Action(usize),
    /// A reward column.
    Reward(usize),
}

impl Operand {
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

/// constant + sum over terms of factor * quantity.
#[derive(Clone, Debug, PartialEq)]
struct Terms {
    constant: f64,
    terms: Vec<(f64, Part)>,
}

/// A quantity of a row.
#[derive(Clone, Debug, PartialEq)]
enum Part {
    Place(Operand),
    Of(Function, Vec<Terms>),
}

impl Terms {
    fn new(formula: Formula) -> Result<Self, String> {
        let factors = formula.terms.iter().map(|(factor, _)| *factor).chain([formula.constant]);
        if let Some(large) = factors.into_iter().find(|factor| factor.abs() > MAGNITUDE_MAX) {
            return Err(format!("{large:e} is beyond {MAGNITUDE_MAX:e}"));
        }
        let term = |(factor, quantity)| {
            let part = match quantity {
                Quantity::Column(variable) => Part::Place(Operand::named(&variable)?),
                Quantity::Of(function, of) => {
                    Part::Of(function, of.into_iter().map(Self::new).collect::<Result<_, String>>()?)
                }
            };
            Ok((factor, part))
        };
        Ok(Self {
            constant: formula.constant,
            terms: formula.terms.into_iter().map(term).collect::<Result<_, String>>()?,
        })
    }

    /// Those inside its functions.
    fn inner(&self) -> impl Iterator<Item = &Self> {
        self.terms.iter().flat_map(|(_, part)| if let Part::Of(_, of) = part { &of[..] } else { &[] })
    }

    /// Terms, those inside functions among them.
    fn count(&self) -> usize {
        self.terms.len() + self.inner().map(Self::count).sum::<usize>()
    }

    /// Add the numbers of a row that it needs.
    fn put_places(&self, out: &mut Vec<Operand>) {
        for (_, part) in &self.terms {
            match part {
                Part::Place(place) => out.push(*place),
                Part::Of(_, of) => of.iter().for_each(|terms| terms.put_places(out)),
            }
        }
    }

    fn heap_bytes(&self) -> usize {
        let inner = |terms: &Self| size_of::<Self>() + terms.heap_bytes();
        size_of_val(&self.terms[..]) + self.inner().map(inner).sum::<usize>()
    }

    fn of<F: Fn(Operand) -> f64>(&self, number: &F) -> f64 {
        self.terms.iter().fold(self.constant, |sum, (factor, part)| sum + factor * part.of(number))
    }
}

impl Part {
    fn of<F: Fn(Operand) -> f64>(&self, number: &F) -> f64 {
        let (function, of) = match self {
            Self::Place(place) => return number(*place),
            Self::Of(function, of) => (function, of),
        };
        function.of(of.iter().map(|terms| terms.of(number)))
    }
}

/// A sum of numbers of a row and of functions of them, such as `reward - 0.1*action[0]^2 + (state[3] > 0.5)`. It is kept as its text.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Expression {
    text: String,
    terms: Terms,
}

impl Expression {
    /// The sum that `text` says; `reward` alone is `reward[0]`.
    ///
    /// # Errors
    /// Why it is none, in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let formula = Formula::of(text, &NAMES).map_err(|why| match why {
            NotASum::Unknown(name) => format!("there is no {name}; there is {}", NAMES.join(", ")),
            NotASum::Grammar(what) => what,
        })?;
        let terms = Terms::new(formula)?;
        match terms.count() {
            count if count > TERMS_MAX => Err(format!("has at most {TERMS_MAX} terms, this one has {count}")),
            _ => Ok(Self { text: text.to_owned(), terms }),
        }
    }

    /// As it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether it has functions, which programs of before they were there cannot read.
    pub fn has_functions(&self) -> bool {
        self.terms.inner().next().is_some()
    }

    /// The numbers of a row that it needs.
    pub fn places(&self) -> impl Iterator<Item = Operand> {
        let mut places = Vec::with_capacity(self.terms.terms.len());
        self.terms.put_places(&mut places);
        places.into_iter()
    }

    /// Bytes of its text and its terms.
    pub(super) fn heap_bytes(&self) -> usize {
        self.text.len() + self.terms.heap_bytes()
    }

    /// Of row i.
    pub(crate) fn of(&self, rows: &Rows, i: usize) -> f64 {
        self.by(&|place| place.of(rows, i))
    }

    /// Of a row with these numbers.
    pub(crate) fn by<F: Fn(Operand) -> f64>(&self, number: &F) -> f64 {
        self.terms.of(number)
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
