//! Checks of the names that come with rows.

use super::{Invalid, InvalidCode};

/// Most discrete actions.
pub const CHOICES_MAX: usize = 256;

/// What the state variable of this number is called where nothing names it: `state_0`, `state_1`, ...
pub fn state_name(variable: usize) -> String {
    format!("state_{variable}")
}

/// What the state variable of this number is called: as `names` say, else [`state_name`].
pub fn name_of_state(names: Option<&[String]>, variable: usize) -> String {
    names.and_then(|names| names.get(variable).cloned()).unwrap_or_else(|| state_name(variable))
}

/// Check the name of a policy.
///
/// # Errors
/// If it has another length than 1 to 256 bytes.
pub fn check_policy(policy: &str) -> Result<(), Invalid> {
    if (1..=256).contains(&policy.len()) {
        return Ok(());
    }
    let message = format!("a policy's name has 1 to 256 bytes, this one has {}", policy.len());
    Err(Invalid::new(InvalidCode::OutOfRange, "policy", message))
}

/// What the numbers of a row are called, a unit in brackets behind a name, as far as that is said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// (D,), of the state variables.
    pub states: Option<Vec<String>>,
    /// (H,), of the rewards.
    pub rewards: Option<Vec<String>>,
    /// Of the discrete actions, or (A,) of the numbers of an action.
    pub actions: Option<Vec<String>>,
}

impl Names {
    pub(super) fn check(&self, dim: usize, rewards: usize) -> Result<(), Invalid> {
        let check = |of: &Option<Vec<String>>, field, what, count| {
            of.as_deref().map_or(Ok(()), |names| check_names(field, what, names, count))
        };
        check(&self.states, "state_names", "variables", dim)?;
        check(&self.rewards, "reward_names", "rewards", rewards)
    }

    /// Check what actions of `numbers` numbers are called, 0 where rows have none: one number may be a discrete action's,
    /// and how many of these there are a critic knows.
    ///
    /// # Errors
    /// If there are not `numbers` names, or one is as names of states may not be.
    pub fn check_actions(&self, numbers: usize) -> Result<(), Invalid> {
        let Some(names) = &self.actions else { return Ok(()) };
        let (what, count) = match numbers {
            0 | 1 => ("actions", names.len().clamp(1, CHOICES_MAX)),
            _ => ("numbers of an action", numbers),
        };
        check_names("action_names", what, names, count)
    }

    /// These, and where they say nothing the `other` ones.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let (states, rewards) = (self.states.or(other.states), self.rewards.or(other.rewards));
        Self { states, rewards, actions: self.actions.or(other.actions) }
    }
}

/// Check what `count` numbers, or actions, are called: names of 1 to 256 bytes, each another one.
fn check_names(field: &'static str, what: &str, names: &[String], count: usize) -> Result<(), Invalid> {
    let fault = |message: String| Err(Invalid::new(InvalidCode::OutOfRange, field, message));
    if names.len() != count {
        return fault(format!("there are {} names for {count} {what}; give one for each", names.len()));
    }
    if let Some(name) = names.iter().find(|name| !(1..=256).contains(&name.len())) {
        return fault(format!("a name has 1 to 256 bytes, one here has {}", name.len()));
    }
    match names.iter().enumerate().find(|(k, name)| names[..*k].contains(name)) {
        Some((_, twice)) => fault(format!("two {what} are called {twice:?}; give each a name of its own")),
        None => Ok(()),
    }
}

/// A variable's name without its unit.
pub fn without_unit(name: &str) -> &str {
    name.strip_suffix(']').and_then(|rest| rest.rsplit_once(" [")).map_or(name, |(name, _)| name)
}
