//! What is said of rows that did not come.

use crate::wire::Status;

/// Rows that did not come, and connections that broke, so that more may be missing.
pub(super) fn line(status: &Status) -> String {
    let broken = status.connections_broken.iter().filter(|(_, count)| **count > 0);
    let broken: Vec<String> = broken.map(|(why, count)| format!("{count} by {why}")).collect();
    let lost = match broken.is_empty() {
        true => String::new(),
        false => format!(
            "; connections of producers that broke, so that rows may be lost: {} (the log says whose: event=connection_broken)",
            broken.join(", ")
        ),
    };
    format!("{} rows, by their seq{lost}", status.missing_rows)
}
