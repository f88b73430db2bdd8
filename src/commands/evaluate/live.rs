//! `criticd evaluate` by the rows of a running daemon.

use super::{Evaluate, endpoint};
use crate::client::Requester;
use crate::commands::Failure;
use crate::commands::actions::ActionKind;
use crate::commands::client::{Connection, with_critic};
use crate::commands::output::{Spinner, note, write_file};
use crate::commands::{given, policy};
use crate::learner::off_policy::Policy;
use crate::transition::state_name;
use crate::wire::{EVALUATED_MAX, Status};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest wait for an evaluation.
const EVALUATION: Duration = Duration::from_secs(3600);

/// How many rows are meant where nothing says so.
const ROWS_DEFAULT: u64 = 10_000;
/// Bytes of a number in a request, of an array of them beside these, and of all that is neither, at most.
const NUMBER_BYTES: u64 = 9;
const ROW_BYTES: u64 = 5;
const OTHER_BYTES: u64 = 1024;

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

    /// Rows of which the answers of a policy fit into one request.
    fn to_be_answered(
        &self,
        requester: &mut Requester,
        patience: Duration,
        kind: ActionKind,
        width: usize,
    ) -> Result<Retained, Failure> {
        let hello = requester.ask("hello", json!({}), patience)?;
        let bytes = hello["limits"]["message_bytes"].as_u64().unwrap_or(0).saturating_sub(OTHER_BYTES);
        let widest = if let ActionKind::Discrete(count) = kind { count } else { width };
        let fits = (bytes / (NUMBER_BYTES * widest as u64 + ROW_BYTES)).clamp(1, EVALUATED_MAX as u64);
        let span = match self.from {
            Some(from) => json!({"from": from}),
            None => {
                let wanted = self.rows.unwrap_or(ROWS_DEFAULT);
                if wanted > fits {
                    note(&format!(
                        "the answers in {fits} states fill a message of the daemon: it judges by these rows alone"
                    ));
                }
                json!({"last": wanted.min(fits)})
            }
        };
        let rows = retained(requester, patience, span, fits as usize)?;
        if rows.dim == 0 { Err(Failure::new("the daemon has no such rows yet")) } else { Ok(rows) }
    }
}

pub(super) fn run(control: &str, asked: &Evaluate) -> Result<(), Failure> {
    let connection = Connection::to(control);
    let mut requester = connection.connect()?;
    if let Some(path) = &asked.live.states {
        return write_states(&mut requester, connection.timeout(), &asked.live, path);
    }
    let mut fields = with_critic(asked.live.span(), asked.live.critic.as_deref());
    if let Some(path) = &asked.policy {
        let (kind, width) = kind(&mut requester, connection.timeout(), asked.live.critic.as_deref())?;
        let policy = if endpoint(path).is_some() {
            let rows = asked.live.to_be_answered(&mut requester, connection.timeout(), kind, width)?;
            fields = with_critic(json!({"from": rows.from}), asked.live.critic.as_deref());
            policy::ask(path, (&rows.states, rows.dim), width, Some(kind), asked.patience())?
        } else {
            let policy = policy::read(path, (width, &[]), Some(kind))?;
            if asked.live.from.is_none() {
                return Err(Failure::usage(
                    "--policy: --from says of which row the first answer is; --states writes it",
                ));
            }
            policy
        };
        let column = policy.column();
        let rows: Vec<&[f64]> = column.values.chunks_exact(column.width.max(1)).collect();
        fields[if matches!(policy, Policy::Probabilities(_)) { "probs" } else { "actions" }] = json!(rows);
    }
    if let Some(limit) = given::most(asked.rho_max) {
        fields["rho_max"] = json!(limit);
    }
    (fields["ess_min"], fields["folds"]) = (json!(asked.ess_min), json!(asked.folds));
    fields["seed"] = json!(asked.seed);
    let progress = Spinner::start("judging");
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

/// Rows that a daemon retains.
struct Retained {
    /// Offset of the first one.
    from: u64,
    /// Numbers of a state; 0 where there are no rows.
    dim: usize,
    /// (n, dim).
    states: Vec<f64>,
}

impl Retained {
    fn len(&self) -> usize {
        self.states.len() / self.dim.max(1)
    }
}

/// The states of the rows of `span`, page by page, but no more than `most` of them.
fn retained(requester: &mut Requester, patience: Duration, span: Value, most: usize) -> Result<Retained, Failure> {
    let (mut fields, mut end) = (span, None);
    let mut found = Retained { from: 0, dim: 0, states: Vec::new() };
    loop {
        fields["arrays"] = json!("list");
        let page = requester.ask("rows", fields, patience)?;
        let number = |key: &str| page[key].as_u64().unwrap_or(0);
        let (from, next) = (number("from"), number("next"));
        // Rows that arrive meanwhile are not waited for.
        let end = *end.get_or_insert_with(|| {
            found.from = from;
            number("end").min(from.saturating_add(most as u64))
        });
        let wanted = usize::try_from(end.saturating_sub(from)).unwrap_or(usize::MAX);
        for state in page["states"].as_array().into_iter().flatten().take(wanted) {
            let before = found.states.len();
            found.states.extend(state.as_array().into_iter().flatten().filter_map(Value::as_f64));
            found.dim = found.states.len() - before;
        }
        if next >= end || next == from {
            return Ok(found);
        }
        fields = json!({"from": next});
    }
}

/// Write offsets and states of the rows.
fn write_states(
    requester: &mut Requester,
    patience: Duration,
    options: &LiveOptions,
    path: &Path,
) -> Result<(), Failure> {
    let rows = retained(requester, patience, options.span(), usize::MAX)?;
    let mut text = String::new();
    for (offset, state) in (rows.from..).zip(rows.states.chunks_exact(rows.dim.max(1))) {
        if text.is_empty() {
            let names: Vec<String> = (0..rows.dim).map(state_name).collect();
            writeln!(text, "offset,{}", names.join(",")).expect("a string grows");
        }
        let numbers: Vec<String> = state.iter().map(|number| json!(number).to_string()).collect();
        writeln!(text, "{offset},{}", numbers.join(",")).expect("a string grows");
    }
    write_file(path, &[], text.as_bytes())?;
    note(&format!("{}: the states of {} rows, for --policy FILE --from {}", path.display(), rows.len(), rows.from));
    Ok(())
}
