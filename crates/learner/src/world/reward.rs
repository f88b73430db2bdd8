//! Rewards that are planned for, and expressions of states and actions: a reward that no row need have, or what a course shows.

use super::known::Wanted;
use crate::action::ActionSpace;
use crate::expression::{Formula, NotASum, Variable};
use crate::heads::Cumulant;
use crate::transition::{state_name, without_unit};

/// A reward that is planned for.
#[derive(Clone, Debug)]
pub enum Rewarded {
    /// An expression of state and action.
    Known(Expression),
    /// A cumulant that state and action alone say; the state has this number of variables.
    Summed(Cumulant, usize),
    /// The reward of rows with this number, as they have it.
    Observed(usize),
}

impl Rewarded {
    /// Of the numbers of a state and of an action behind them; 0 where rows alone know it.
    pub fn value(&self, numbers: &[f64]) -> f64 {
        match self {
            Self::Known(expression) => expression.value(numbers),
            Self::Summed(cumulant, dim) => cumulant.at(numbers, *dim),
            Self::Observed(_) => 0.0,
        }
    }

    /// Whether it is known everywhere.
    pub fn is_known(&self) -> bool {
        !matches!(self, Self::Observed(_))
    }

    /// As a model of the transition takes it, with `value` for [`Rewarded::value`].
    pub fn wanted<'a>(&self, value: &'a dyn Fn(&[f64]) -> f64) -> Wanted<'a> {
        match self {
            Self::Observed(number) => Wanted::Observed(*number),
            _ => Wanted::Known(value),
        }
    }
}

/// What the numbers of a state and of an action are called.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Of the state variables (D,), with their units if they have some.
    pub states: &'a [String],
    /// The actions there are; without, expressions are of the state alone.
    pub space: Option<&'a ActionSpace>,
    /// Of the numbers of an action, where they have names.
    pub actions: &'a [String],
}

/// A formula over the numbers of a state and an action.
#[derive(Clone, Debug)]
pub struct Expression {
    /// As it was written, or is called.
    pub text: String,
    formula: Formula,
    /// What each variable of the formula is: a number of the state, or of the action behind them.
    places: Vec<(Variable, usize)>,
}

impl Expression {
    /// What `text` says over these names; none where it names something that is neither of the state nor of the action.
    ///
    /// # Errors
    /// It is not of the grammar; the message begins with the text.
    pub fn parse(text: &str, names: &Names<'_>) -> Result<Option<Self>, String> {
        let states = names.states.len();
        let numbers = names.space.map_or(0, ActionSpace::numbers);
        let mut known: Vec<(String, usize)> =
            names.states.iter().enumerate().map(|(d, name)| (without_unit(name).to_owned(), d)).collect();
        let mut add = |name: String, at: usize| {
            if !known.iter().any(|(other, _)| *other == name) {
                known.push((name, at));
            }
        };
        (0..states).for_each(|d| add(state_name(d), d));
        names.actions.iter().take(numbers).enumerate().for_each(|(k, name)| add(name.clone(), states + k));
        (0..numbers).for_each(|k| add(format!("action_{k}"), states + k));
        if numbers == 1 {
            add("action".into(), states);
        }
        let lists = [("state", 0, states), ("action", states, numbers)];
        let mut words: Vec<&str> = known.iter().map(|(name, _)| name.as_str()).collect();
        words.extend(lists.iter().filter(|(_, _, width)| *width > 0).map(|(name, ..)| *name));
        let formula = match Formula::of(text, &words) {
            Ok(formula) => formula,
            Err(NotASum::Unknown(_)) => return Ok(None),
            Err(why) => return Err(format!("{text}: {why}")),
        };
        let place = |variable: &Variable| match variable.only {
            None => known
                .iter()
                .find(|(name, _)| *name == variable.name)
                .map(|(_, at)| *at)
                .ok_or_else(|| format!("{text}: {0} is a list, write {0}[0] for its first number", variable.name)),
            Some(k) => lists
                .iter()
                .find(|(name, _, width)| *name == variable.name && k < *width)
                .map(|(_, first, _)| first + k)
                .ok_or_else(|| format!("{text}: there is no {}[{k}]", variable.name)),
        };
        let mut places = Vec::new();
        for variable in formula.variables() {
            places.push((variable.clone(), place(variable)?));
        }
        Ok(Some(Self { text: text.to_owned(), formula, places }))
    }

    /// The same under another name.
    pub fn called(self, text: &str) -> Self {
        Self { text: text.to_owned(), ..self }
    }

    /// Its value of the numbers of a state and of an action behind them.
    pub fn value(&self, numbers: &[f64]) -> f64 {
        let of = |variable: &Variable| {
            self.places.iter().find(|(known, _)| known == variable).map_or(f64::NAN, |(_, at)| numbers[*at])
        };
        self.formula.value(&of)
    }
}

/// The expressions of a text that has commas between them; those within brackets are of a function.
pub fn split(text: &str) -> Vec<String> {
    let (mut depth, mut out) = (0, vec![String::new()]);
    for c in text.chars() {
        depth += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        match out.last_mut() {
            Some(last) if c != ',' || depth > 0 => last.push(c),
            _ => out.push(String::new()),
        }
    }
    out.into_iter().map(|each| each.trim().to_owned()).filter(|each| !each.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<String> {
        ["x [m]", "battery"].map(String::from).to_vec()
    }

    #[test]
    fn a_reward_is_of_states_and_actions_by_any_of_their_names() {
        let space = ActionSpace::Box { low: vec![-1.0], high: vec![1.0] };
        let (states, actions) = (names(), ["torque".to_owned()]);
        let names = Names { states: &states, space: Some(&space), actions: &actions };
        let of = |text: &str| Expression::parse(text, &names);
        for (text, expected) in [
            ("x - 0.1*torque^2", 2.6),
            ("state_0 + action", 5.0),
            ("state[1]*2 - action[0]", 12.0),
            ("(battery > 6.5) - min(x, action_0)", -1.0),
            ("3", 3.0),
        ] {
            let found = of(text).unwrap().unwrap().value(&[3.0, 7.0, 2.0]);
            assert!((found - expected).abs() < 1e-12, "{text}: {found}");
        }
        assert!(of("cost").unwrap().is_none(), "a column of the table");
        for (text, words) in
            [("state", "is a list"), ("state[2]", "there is no state[2]"), ("x *", "a product has one column")]
        {
            let message = of(text).unwrap_err();
            assert!(message.contains(words) && message.starts_with(text), "{text}: {message}");
        }
        let without = Expression::parse("x + action", &Names { space: None, ..names }).unwrap();
        assert!(without.is_none(), "there is no action");
    }

    #[test]
    fn commas_within_brackets_part_nothing() {
        assert_eq!(split("x, min(x, 2),battery"), ["x", "min(x, 2)", "battery"]);
        assert!(split(" ,").is_empty());
    }
}
