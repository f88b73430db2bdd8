//! What the critics of a daemon were.

use super::super::inspect::{describe, document};
use super::super::output::print_json;
use super::super::{Failure, as_of};
use crate::daemon::as_of::Moment;
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// Print the models of all critics as they were.
pub(super) fn print(place: &Path, moment: Moment, patience: Option<Duration>, as_json: bool) -> Result<(), Failure> {
    let (offset, models) = as_of::all(place, moment, patience)?;
    if as_json {
        let critics: Vec<Value> = models.iter().flatten().map(document).collect();
        return print_json(&json!({"offset": offset, "critics": critics}));
    }
    let told = models.iter().map(|model| match model {
        Ok(model) => format!("\n{}", describe(model)),
        Err(why) => format!("\n{why}\n"),
    });
    super::super::print(&format!("{offset} rows had been stored\n{}", told.collect::<String>()))
}
