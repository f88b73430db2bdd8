//! `criticd evaluate` by the rows of a running daemon.

use super::Evaluate;
use crate::commands::Failure;
use crate::commands::actions::ActionKind;
use crate::commands::client::{Connection, with_critic};
use crate::commands::output::{Progress, in_file, note};
use crate::commands::{given, policy};
use criticd::client::Requester;
use criticd::learner::judge::Policy;
use criticd::wire::Status;
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for an evaluation.
const EVALUATION: Duration = Duration::from_secs(3600);

/// Options for the rows of a daemon.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Rows of a running daemon")]
pub(crate) struct LiveOptions {
    /// The critic whose rewards, discount and kernel are meant [default: the first]
    #[arg(long, value_name = "NAME")]
    critic: Option<String>,
    /// How many rows: the last ones [default: 10000]
    #[arg(long, value_name = "N", conflicts_with = "from")]
    rows: Option<u64>,
    /// Offset of the first row
    #[arg(long, value_name = "OFFSET")]
    from: Option<u64>,
    /// Write the offsets and states of the rows to this CSV file, and judge nothing
    #[arg(long, value_name = "FILE")]
    states: Option<PathBuf>,
}

impl LiveOptions {
    /// None of them means anything without a daemon.
    pub(super) fn refuse_without_daemon(&self) -> Result<(), Failure> {
        let given = [
            ("--critic", self.critic.is_some()),
            ("--rows", self.rows.is_some()),
            ("--from", self.from.is_some()),
            ("--states", self.states.is_some()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Failure::usage(format!("{option} is for the endpoint of a running daemon"))),
            None => Ok(()),
        }
    }

    /// Which rows, as fields of a request.
    fn span(&self) -> Value {
        match (self.from, self.rows) {
            (Some(from), _) => json!({"from": from}),
            (None, Some(rows)) => json!({"last": rows}),
            (None, None) => json!({}),
        }
    }
}

pub(super) fn run(endpoint: &str, asked: &Evaluate) -> Result<(), Failure> {
    let connection = Connection::to(endpoint);
    let mut requester = connection.connect()?;
    if let Some(path) = &asked.live.states {
        return write_states(&mut requester, connection.timeout(), &asked.live, path);
    }
    let mut fields = with_critic(asked.live.span(), asked.live.critic.as_deref());
    if let Some(path) = &asked.policy {
        if asked.live.from.is_none() {
            return Err(Failure::usage("--policy: --from says of which row the first answer is; --states writes it"));
        }
        let kind = kind(&mut requester, connection.timeout(), asked.live.critic.as_deref())?;
        let policy = policy::read(path, kind.1, Some(kind.0))?;
        let column = policy.column();
        let rows: Vec<&[f64]> = column.values.chunks_exact(column.width.max(1)).collect();
        fields[if matches!(policy, Policy::Probabilities(_)) { "probs" } else { "actions" }] = json!(rows);
    }
    if let Some(limit) = given::most(asked.rho_max) {
        fields["rho_max"] = json!(limit);
    }
    (fields["ess_min"], fields["folds"]) = (json!(asked.ess_min), json!(asked.folds));
    fields["seed"] = json!(asked.seed);
    let progress = Progress::start("judging");
    let mut found = requester.ask("evaluate", fields, EVALUATION)?;
    drop(progress);
    for key in ["v", "id", "ok"] {
        found.as_object_mut().map(|found| found.remove(key));
    }
    asked.print(&found)
}

/// What the actions of the critic are, and how many numbers one has.
fn kind(requester: &mut Requester, patience: Duration, critic: Option<&str>) -> Result<(ActionKind, usize), Failure> {
    let status = Status::from_json(&requester.ask("status", json!({}), patience)?)?;
    let found = status.critics.iter().find(|found| critic.is_none_or(|name| found.name == name));
    let actions = found.and_then(|found| found.actions.as_ref()).ok_or_else(|| {
        Failure::usage("--policy: this critic learns values of states; --critic names one of action values".to_owned())
    })?;
    Ok(match actions.low.len() {
        0 => (ActionKind::Discrete(actions.names.len()), 1),
        width => (ActionKind::Box, width),
    })
}

/// Write offsets and states of the rows, page by page.
fn write_states(
    requester: &mut Requester,
    patience: Duration,
    options: &LiveOptions,
    path: &Path,
) -> Result<(), Failure> {
    let (mut fields, mut text, mut first) = (options.span(), String::new(), None);
    let mut end = None;
    loop {
        fields["arrays"] = json!("list");
        let page = requester.ask("rows", fields, patience)?;
        let number = |key: &str| page[key].as_u64().unwrap_or(0);
        // Rows that arrive meanwhile are not waited for.
        let end = *end.get_or_insert(number("end"));
        for (i, state) in page["states"].as_array().into_iter().flatten().enumerate() {
            let numbers: Vec<String> = state.as_array().into_iter().flatten().map(Value::to_string).collect();
            if text.is_empty() {
                let names: Vec<String> = (0..numbers.len()).map(|d| format!("state_{d}")).collect();
                writeln!(text, "offset,{}", names.join(",")).expect("a string grows");
            }
            let offset = number("from") + i as u64;
            if offset < end {
                writeln!(text, "{offset},{}", numbers.join(",")).expect("a string grows");
            }
        }
        let from = *first.get_or_insert(number("from"));
        if number("next") >= end || number("next") == number("from") {
            std::fs::write(path, &text).map_err(|e| in_file(path, e))?;
            let rows = end - from;
            note(&format!("{}: the states of {rows} rows, for --policy FILE --from {from}", path.display()));
            return Ok(());
        }
        fields = json!({"from": number("next")});
    }
}
