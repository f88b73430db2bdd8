//! What is said of rows that were taken back.

use super::said;
use crate::commands::given::plural;
use crate::commands::output::moment;
use crate::wire::Status;
use crate::wire::status::{InfluenceStatus, RemovalStatus};

/// Removals shown, the last ones.
const SHOWN: usize = 4;

/// A line for each of the last removals, and one for what is still on disk.
pub(super) fn lines(status: &Status) -> impl Iterator<Item = (String, String)> {
    status.removals.iter().take(SHOWN).map(removal).chain(unerased(status))
}

/// Rows that were taken back and whose bytes are still there.
fn unerased(status: &Status) -> Option<(String, String)> {
    let journal = status.journal.as_ref().filter(|journal| journal.unerased_rows > 0)?;
    let since = journal.unerased_since.map_or(String::new(), |since| format!(" since {}", moment(since)));
    let rows = plural(journal.unerased_rows as usize, "row");
    Some(said(
        "erasure",
        format!(
            "pending{since}: the journal has the bytes of {rows} that were taken back; `criticd stop && criticd erase`"
        ),
    ))
}

/// Who took rows back, and since when critics are without them.
fn removal(removal: &RemovalStatus) -> (String, String) {
    let by = removal.by.as_ref().map_or(String::new(), |by| format!(" by {by}"));
    let reason = removal.reason.as_ref().map_or(String::new(), |reason| format!(" ({reason})"));
    let of = |critic: &InfluenceStatus| match (critic.free_generation, critic.subtracted) {
        (Some(generation), _) => format!("; {} is free of them from generation {generation} on", critic.critic),
        (None, true) => format!("; {} has subtracted them, its kernel was chosen with them", critic.critic),
        (None, false) => format!("; {} is STALE until it has been learned again", critic.critic),
    };
    let critics: String = removal.critics.iter().map(of).collect();
    said(
        "removed",
        format!("{} at offset {}{by}{reason}{critics}", plural(removal.rows as usize, "row"), removal.offset),
    )
}
