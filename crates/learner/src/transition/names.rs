//! Checks of the names that come with rows.

use super::{Invalid, InvalidCode};

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

/// Check what the state variables (D,) are called: names of 1 to 256 bytes, each another one.
pub(super) fn check_state_names(names: &[String], dim: usize) -> Result<(), Invalid> {
    let fault = |message: String| Err(Invalid::new(InvalidCode::OutOfRange, "state_names", message));
    if names.len() != dim {
        return fault(format!("there are {} names for states of {dim} numbers; give one for each", names.len()));
    }
    if let Some(name) = names.iter().find(|name| !(1..=256).contains(&name.len())) {
        return fault(format!("a name has 1 to 256 bytes, one here has {}", name.len()));
    }
    match names.iter().enumerate().find(|(k, name)| names[..*k].contains(name)) {
        Some((_, twice)) => fault(format!("two variables are called {twice:?}; give each a name of its own")),
        None => Ok(()),
    }
}
