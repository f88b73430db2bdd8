//! Demands of critics of action values on rows, and their part of `status`.

use crate::learner::action::ActionSpace;
use crate::learner::{Learner, Settings};
use crate::transition::Batch;
use crate::wire::status::{ActionsStatus, WorldStatus};
use crate::wire::{ErrorCode, WireError};
use serde_json::json;

/// Whether each row has an action that these critics know, whether they know the next actions that it names, and whether the
/// number of the names that come with the rows is the number of the actions.
///
/// # Errors
/// The first field at fault, with the critic that needs it.
pub(super) fn check(critics: &[Settings], batch: &Batch) -> Result<(), WireError> {
    for settings in critics {
        let Some(of) = &settings.action_value else { continue };
        let name = &settings.name;
        let refuse = |code, field, what: String| {
            Err(WireError::of(code, field, format!("critic \"{name}\" learns action values: {what}")))
        };
        let (names, named) = (batch.names().actions.as_ref().map(Vec::len), of.space.width());
        if let Some(names) = names.filter(|&names| names != named && settings.action_names.is_empty()) {
            let what = if of.space.choices() > 0 { "actions" } else { "numbers of an action" };
            let what = format!("there are {names} names for {named} {what}; give one for each");
            return refuse(ErrorCode::OutOfRange, "action_names", what);
        }
        let mut scratch = Vec::new();
        for i in 0..batch.len() {
            let Some(action) = batch.action(i) else {
                return refuse(ErrorCode::MissingField, "action", "rows need their action".into());
            };
            for (field, action) in [("action", Some(action)), ("next_action", batch.next_action(i))] {
                scratch.clear();
                if let Some(Err(what)) = action.map(|action| of.space.append(action, &mut scratch)) {
                    return refuse(ErrorCode::OutOfRange, field, what).map_err(|error| error.at(i));
                }
            }
        }
        let (probs, choices) = (batch.next_action_probs(0).map(<[f64]>::len), of.space.choices());
        if let (Some(probs), ActionSpace::Discrete(_)) = (probs, &of.space)
            && probs != choices
        {
            let what = format!("there are {choices} actions, these are probabilities of {probs}");
            return refuse(ErrorCode::WrongShape, "next_action_probs", what);
        }
    }
    Ok(())
}

/// The `actions` of a critic in `status`; none for values of states.
pub(super) fn status(learner: &Learner, no_world: Option<&str>) -> Option<ActionsStatus> {
    let settings = learner.settings();
    let of = settings.action_value.as_ref()?;
    let word = |value: serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let (kind, low, high) = match &of.space {
        ActionSpace::Discrete(_) => ("discrete", Vec::new(), Vec::new()),
        ActionSpace::Box { low, high } => ("box", low.clone(), high.clone()),
    };
    let [rows_waiting, rows_without_action, rows_unnamed] = learner.waiting_rows().unwrap_or_default();
    Some(ActionsStatus {
        kind: kind.to_owned(),
        names: settings.action_names(),
        low,
        high,
        successor: word(json!(of.successor)),
        trace: word(json!(of.trace)),
        rows_waiting,
        rows_unnamed,
        rows_without_action,
        world: settings.world.then(|| world_status(learner, no_world)),
    })
}

/// What it has learned of where actions lead, and why the last refit has not made a model of it.
fn world_status(learner: &Learner, refused: Option<&str>) -> WorldStatus {
    let refused = refused.map(str::to_owned);
    match learner.world() {
        Some(of) => WorldStatus {
            refused,
            elements: of.world.before().len() as u64,
            successors: of.world.after().len() as u64,
            transitions: of.count,
            lost: of.world.lost(),
            held_out_error: Some(of.loss),
        },
        None => WorldStatus { refused, ..WorldStatus::default() },
    }
}
