//! A policy that is judged: what it does in the state of each transition, by a table or by asking its server.

use super::Failure;
use super::actions::ActionKind;
use super::given::states_as;
use super::output::{Spinner, in_file};
use crate::learner::action::{ActionSpace, Column};
use crate::learner::off_policy::{Fault, Policy};
use crate::policy::{PolicyClient, PolicyError};
use crate::table::{self, Categories, Columns, TableError};
use std::path::Path;
use std::time::Duration;

/// Longest wait for the connection to a policy's server.
const CONNECTION: Duration = Duration::from_secs(5);
/// Where `python -m criticd.policies` serves by default.
const SERVED: &str = "tcp://127.0.0.1:5760";

/// Read the policy's answers from a table, one row for each transition, whose actions have `width` numbers, or are one of these texts.
pub(super) fn read(
    path: &Path,
    (width, texts): (usize, &[String]),
    kind: Option<ActionKind>,
) -> Result<Policy, Failure> {
    let text = path.to_string_lossy();
    if text.ends_with(".onnx") {
        let message = format!(
            "--policy {text}: networks run in Python. Run\n  python -m criticd.policies {}\n(packages criticd and onnxruntime), \
             then ask it with --policy {SERVED}",
            in_shell(&text)
        );
        return Err(Failure::usage(message));
    }
    let choices = choices(kind)?;
    let column = |names: Vec<String>| {
        let count = names.len();
        let is_text = !texts.is_empty() && names.first().is_some_and(|name| name.starts_with("action"));
        let numbers = Columns { state: names, ..Columns::default() };
        let read = |columns: &Columns| states_as(path, columns, count, "policy");
        let values = if is_text {
            let named = Columns { categories: Categories(vec![texts.to_vec()]), ..numbers.clone() };
            read(&named).or_else(|error| read(&numbers).map_err(|_| error))
        } else {
            read(&numbers)
        };
        values.map(|values| Column { width: count, values })
    };
    let numbered = |name: &str, count: usize| (0..count).map(|k| format!("{name}_{k}")).collect::<Vec<_>>();
    let probabilities = choices.map(|count| column(numbered("prob", count)));
    let policy = match probabilities {
        Some(Ok(probabilities)) => Policy::Probabilities(probabilities),
        refused => {
            let actions = column(if width == 1 { vec!["action".into()] } else { numbered("action", width) })
                .or_else(|error| column(numbered("action", width)).map_err(|_| error));
            match (actions, refused) {
                (Ok(taken), _) => Policy::Actions { taken, discrete: choices.is_some() },
                // Where there are no actions either, what was looked for first is what is missing.
                (Err(TableError { fault: table::Fault::Column { .. }, .. }), Some(Err(first))) => {
                    return Err(first.into());
                }
                (Err(error), _) => return Err(error.into()),
            }
        }
    };
    check(&policy, choices, width).map_err(|fault| in_file(path, fault))?;
    Ok(policy)
}

/// Ask the policy at `endpoint` what it does in `states` (n, `dim`), where actions have `width` numbers. It may take `patience`
/// for each few thousand states.
pub(super) fn ask(
    endpoint: &Path,
    (states, dim): (&[f64], usize),
    width: usize,
    kind: Option<ActionKind>,
    patience: Duration,
) -> Result<Policy, Failure> {
    let choices = choices(kind)?;
    let progress = Spinner::start("asking the policy");
    let text = endpoint.to_string_lossy();
    let asked = PolicyClient::connect(&text, CONNECTION).and_then(|mut client| client.ask(states, dim, patience));
    drop(progress);
    let answers = asked.map_err(|error| match error {
        PolicyError::Silent { .. } => {
            Failure::new(format!("{error}: see whether its server runs; --policy-timeout gives it more time"))
        }
        error => error.into(),
    })?;
    let policy = match choices {
        Some(_) if answers.width == 1 => Policy::Actions { taken: answers, discrete: true },
        Some(count) if answers.width == count => Policy::Probabilities(answers),
        None if answers.width == width => Policy::Actions { taken: answers, discrete: false },
        found => {
            let wanted = match found {
                Some(count) => format!("{count} probabilities, or the number of an action"),
                None => format!("an action of {width} numbers"),
            };
            let message = format!("the policy answers with {} numbers in each state, not with {wanted}", answers.width);
            return Err(in_file(endpoint, message));
        }
    };
    check(&policy, choices, width).map_err(|fault| in_file(endpoint, fault))?;
    Ok(policy)
}

/// How many discrete actions there are; none in a box.
fn choices(kind: Option<ActionKind>) -> Result<Option<usize>, Failure> {
    match kind {
        Some(ActionKind::Discrete(count)) => Ok(Some(count)),
        Some(ActionKind::Box) => Ok(None),
        None => Err(Failure::usage("--policy needs --actions discrete:N or --actions box")),
    }
}

/// Refuse answers that are no distributions and no actions.
fn check(policy: &Policy, choices: Option<usize>, width: usize) -> Result<(), Fault> {
    let space = match choices {
        Some(count) => ActionSpace::Discrete(count),
        None => ActionSpace::Box { low: vec![0.0; width], high: vec![0.0; width] },
    };
    policy.check(policy.len(), &space)
}

/// A path as one word of a shell's command line.
fn in_shell(path: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '/' | '.' | '_' | '-');
    if path.chars().all(is_plain) { path.to_owned() } else { format!("'{}'", path.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word() {
        assert_eq!(in_shell("nets/policy-2.onnx"), "nets/policy-2.onnx");
        assert_eq!(in_shell("my net's.onnx"), r"'my net'\''s.onnx'");
    }
}
