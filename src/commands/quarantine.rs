//! `criticd quarantine`.

use super::Failure;
use super::output::{columns, in_file, moment, print, print_json};
use crate::config::ConfigParts;
use crate::daemon::quarantine::{self, KeptMessage};
use crate::wire;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Show the messages that were refused
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  criticd quarantine list\n  criticd quarantine list --help")]
pub(crate) struct Quarantine {
    #[command(subcommand)]
    command: QuarantineCommand,
}

#[derive(Debug, clap::Subcommand)]
enum QuarantineCommand {
    List(List),
}

/// List the last messages that were refused, on ingest and as appends, with the reasons
///
/// The command reads the data directory. The daemon may run meanwhile; it writes there once a second.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  criticd quarantine list\n  criticd quarantine list --data-dir /var/lib/criticd --json"
)]
struct List {
    /// The daemon's data directory
    #[arg(long, short = 'd', value_name = "DIR", env = "CRITICD_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Print one JSON document
    #[arg(long)]
    json: bool,
}

impl Quarantine {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let QuarantineCommand::List(list) = self.command;
        let directory = list.data_dir.unwrap_or_else(|| ConfigParts::default().data_dir);
        let kept = quarantine::read(&directory).map_err(|e| in_file(&directory.join(quarantine::DATABASE), e))?;
        if list.json {
            return print_json(&json!({"refused": kept.iter().map(document).collect::<Vec<_>>()}));
        }
        if kept.is_empty() {
            return print("Nothing was refused.\n");
        }
        let rows: Vec<Vec<String>> = kept
            .iter()
            .map(|kept| {
                let place = match (&kept.field, kept.index) {
                    (Some(field), Some(index)) => format!("{field}[{index}]"),
                    (field, _) => field.clone().unwrap_or_default(),
                };
                // Names in messages come from anybody.
                let message: String = kept.message.chars().flat_map(char::escape_debug).take(100).collect();
                vec![kept.code.clone(), moment(kept.time), place, kept.payload.len().to_string(), message]
            })
            .collect();
        print(&columns(&["code", "time", "field", "bytes", "message"], &rows))
    }
}

fn document(kept: &KeptMessage) -> Value {
    let hex: String = kept.payload.iter().map(|byte| format!("{byte:02x}")).collect();
    json!({
        "time": kept.time,
        "code": kept.code,
        "field": kept.field,
        "index": kept.index,
        "message": kept.message,
        "payload_hex": hex,
        // What it says, where it is whole and can be read.
        "payload": wire::to_json(&kept.payload).ok(),
    })
}
