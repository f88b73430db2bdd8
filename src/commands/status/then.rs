//! What the critics of a daemon were.

use super::super::inspect::{describe, document};
use super::super::output::print_json;
use super::super::{Failure, as_of};
use criticd::daemon::as_of::Moment;
use serde_json::{Value, json};
use std::path::Path;

/// Print the models of all critics as they were.
pub(super) fn print(directory: &Path, moment: Moment, as_json: bool) -> Result<(), Failure> {
    let state = as_of::state(directory, moment)?;
    let offset = state.end().offset;
    let models: Vec<_> = state.critics().iter().filter_map(|critic| as_of::model(&state, critic).ok()).collect();
    if as_json {
        let critics: Vec<Value> = models.iter().map(document).collect();
        return print_json(&json!({"offset": offset, "critics": critics}));
    }
    let none = if models.is_empty() { "\nno critic had a model yet\n" } else { "" };
    let told: String = models.iter().map(|model| format!("\n{}", describe(model))).collect();
    super::super::print(&format!("{offset} rows had been stored\n{none}{told}"))
}
