//! A policy that is judged, as a table of what it does in the state of each transition.

use super::Failure;
use super::actions::ActionKind;
use super::given::read_states_as;
use super::output::in_file;
use criticd::learner::action::{ActionSpace, Column};
use criticd::learner::judge::Policy;
use criticd::table::Columns;
use std::path::Path;

/// Read the policy's answers, one row for each transition, whose actions have `width` numbers.
pub(super) fn read(path: &Path, width: usize, kind: Option<ActionKind>) -> Result<Policy, Failure> {
    let text = path.to_string_lossy();
    if text.ends_with(".onnx") || text.contains("://") {
        let message = format!(
            "--policy {text}: a network or a socket answers in Python, see criticd.policies: its answers in the states of the table, \
             one row for each, are the table that --policy reads"
        );
        return Err(Failure::usage(message));
    }
    let choices = match kind {
        Some(ActionKind::Discrete(count)) => Some(count),
        Some(ActionKind::Box) => None,
        None => return Err(Failure::usage("--policy needs --actions discrete:N or --actions box")),
    };
    let column = |names: Vec<String>| {
        let count = names.len();
        let columns = Columns { state: names, ..Columns::default() };
        read_states_as(path, &columns, count, "policy").map(|values| Column { width: count, values })
    };
    let numbered = |name: &str, count: usize| (0..count).map(|k| format!("{name}_{k}")).collect::<Vec<_>>();
    let probabilities = choices.map(|count| column(numbered("prob", count)));
    let policy = match probabilities {
        Some(Ok(probabilities)) => Policy::Probabilities(probabilities),
        refused => {
            let actions = column(if width == 1 { vec!["action".into()] } else { numbered("action", width) })
                .or_else(|failure| column(numbered("action", width)).map_err(|_| failure));
            match (actions, refused) {
                (Ok(taken), _) => Policy::Actions { taken, discrete: choices.is_some() },
                // What was looked for first is what is missing.
                (Err(_), Some(Err(failure))) => return Err(failure),
                (Err(failure), _) => return Err(failure),
            }
        }
    };
    let space = match choices {
        Some(count) => ActionSpace::Discrete(count),
        None => ActionSpace::Box { low: vec![0.0; width], high: vec![0.0; width] },
    };
    policy.check(policy.len(), &space).map_err(|fault| in_file(path, fault))?;
    Ok(policy)
}
