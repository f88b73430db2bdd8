//! What the critics of a daemon were.

use super::super::inspect::{describe, document};
use super::super::output::print_json;
use super::super::{Failure, as_of};
use crate::daemon::as_of::{Moment, model};
use serde_json::{Value, json};
use std::path::Path;

/// Print the models of all critics as they were.
pub(super) fn print(directory: &Path, moment: Moment, as_json: bool) -> Result<(), Failure> {
    let state = as_of::state(directory, moment)?;
    let offset = state.end().offset;
    let models = state.critics().iter().map(|critic| (critic, model(&state, critic).ok()));
    if as_json {
        let critics: Vec<Value> = models.filter_map(|(_, model)| model.as_ref().map(document)).collect();
        return print_json(&json!({"offset": offset, "critics": critics}));
    }
    let told = models.map(|(critic, model)| match model {
        Some(model) => format!("\n{}", describe(&model)),
        None => format!("\n{} had no model yet\n", critic.settings().name),
    });
    super::super::print(&format!("{offset} rows had been stored\n{}", told.collect::<String>()))
}
