//! Decisions, and the actions that `value` requests name.

use crate::board::Board;
use crate::learner::act::{Actor, Decision};
use crate::snapshot::Snapshot;
use crate::wire::{ActRequest, ErrorCode, Given, Limits, WireError};
use std::sync::Arc;

/// Multiplications of the decisions of one request, at most: some hundredths of a second, in which no other is answered.
const WORK_MAX: usize = 50_000_000;

/// Candidates that a request names for each of its states.
fn candidates(request: &ActRequest) -> Option<usize> {
    request.candidates.as_ref().map(|given| given.values.len() / given.width.max(1))
}

/// Multiplications of the decisions that a request asks for, about.
pub(super) fn work(actor: &Actor, request: &ActRequest) -> usize {
    request.rows.saturating_mul(actor.work(candidates(request), request.exploration))
}

/// Refuse decisions that would keep other requests waiting. A single one among the critic's own actions is always made.
///
/// # Errors
/// How many states or candidates one request may have.
pub(super) fn check_work(actor: &Actor, request: &ActRequest) -> Result<(), WireError> {
    let most = WORK_MAX.max(actor.work(None, request.exploration));
    if work(actor, request) <= most {
        return Ok(());
    }
    let of = |candidates| actor.work(candidates, request.exploration);
    let states = most / of(candidates(request)).max(1);
    if states > 0 {
        let message = format!("decisions in {} states take too long: send at most {states} at once", request.rows);
        return Err(WireError::of(ErrorCode::TooLarge, "states", message));
    }
    // Each candidate takes as much as the next.
    let (none, one) = (of(Some(0)), of(Some(1)));
    let least = (most.saturating_sub(none) / (one - none).max(1)).max(1);
    let message = format!("one decision takes too long: name at most {least} candidates, and one state at once");
    Err(WireError::of(ErrorCode::TooLarge, "candidates", message))
}

/// Refuse actions of which there are too many, each an input of `width` numbers.
fn check_count(field: &'static str, count: usize, width: usize, limits: &Limits) -> Result<(), WireError> {
    let Limits { query_rows_max, message_bytes_max, .. } = *limits;
    if count <= query_rows_max && count.saturating_mul(width) <= message_bytes_max {
        return Ok(());
    }
    let message = format!(
        "a request asks for at most {query_rows_max} actions, and {message_bytes_max} numbers with their states; these are \
         {count} actions of {width} numbers with their state"
    );
    Err(WireError::of(ErrorCode::TooLarge, field, message))
}

/// The actor of a critic.
///
/// # Errors
/// If it has no model yet, or learns values of states.
pub(super) fn actor(board: &Board, request: &ActRequest) -> Result<Arc<Actor>, WireError> {
    let critic = board.critic(request.critic.as_deref())?;
    match (board.actor(critic), board.get(critic)) {
        (Some(actor), _) => Ok(actor),
        (None, Some(_)) => {
            let message = "this critic learns values of states: `act` needs one with inputs = \"state_action\"";
            Err(WireError::of(ErrorCode::OutOfRange, "critic", message))
        }
        (None, None) => Err(WireError::new(ErrorCode::NotReady, "there is no model yet")),
    }
}

/// The decisions that a request asks for, in its order.
///
/// # Errors
/// The first field at fault, and its row.
pub(super) fn decide(actor: &Actor, request: &ActRequest, limits: &Limits) -> Result<Vec<Decision>, WireError> {
    let numbers = actor.space().numbers();
    if let Some(given) = request.candidates.as_ref().filter(|given| given.width != numbers) {
        let message = format!("an action has {numbers} numbers here, these have {}", given.width);
        return Err(WireError::of(ErrorCode::WrongShape, "candidates", message));
    }
    check_count("candidates", candidates(request).unwrap_or(0), actor.snapshot().dim(), limits)?;
    if let Some(fallback) = &request.fallback {
        let fits = actor.space().append(fallback, &mut Vec::new());
        fits.map_err(|message| WireError::of(ErrorCode::OutOfRange, "fallback", message))?;
    }
    let decision = |i: usize| {
        let decided = actor.act(&request.question(i)).map_err(|fault| {
            let fault = WireError::from(fault);
            match fault.field {
                Some("state") => WireError { field: Some("states"), ..fault }.at(i),
                _ => fault,
            }
        })?;
        Ok(match &request.fallback {
            Some(fallback) if decided.unknown => {
                Decision { action: fallback.clone(), probability: None, copy: None, ..decided }
            }
            _ => decided,
        })
    };
    (0..request.rows).map(decision).collect()
}

/// Inputs of a critic of action values, from states (rows, `dim`) and their actions; one state goes with several actions.
///
/// # Errors
/// If the critic learns values of states, an action is none of its own, or there are more than `limits` allow.
pub(super) fn inputs(
    snapshot: &Snapshot,
    (states, rows, dim): (Vec<f64>, usize, usize),
    actions: Option<&Given>,
    limits: &Limits,
) -> Result<(Vec<f64>, usize, usize), WireError> {
    let Some(given) = actions else {
        if let Some(of) = snapshot.actions.as_ref().filter(|of| dim + of.space.width() == snapshot.dim()) {
            let what = if of.space.choices() > 0 { "their numbers" } else { "arrays of numbers" };
            let message = format!("this critic learns action values: name an action for each state, as {what}");
            return Err(WireError::of(ErrorCode::MissingField, "actions", message));
        }
        return Ok((states, rows, dim));
    };
    let Some(of) = &snapshot.actions else {
        let message = "this critic learns values of states, which have no actions";
        return Err(WireError::of(ErrorCode::OutOfRange, "actions", message));
    };
    let count = given.values.len() / given.width;
    if count != rows && rows != 1 {
        let message = format!("must be one for each of {rows} states, there are {count}");
        return Err(WireError::of(ErrorCode::WrongShape, "actions", message));
    }
    let width = dim + of.space.width();
    check_count("actions", count, width, limits)?;
    let mut out = Vec::with_capacity(count * width);
    for (i, action) in given.values.chunks_exact(given.width).enumerate() {
        let state = if rows == 1 { 0 } else { i };
        out.extend_from_slice(&states[state * dim..(state + 1) * dim]);
        let appended = of.space.append(action, &mut out);
        appended.map_err(|message| WireError::of(ErrorCode::OutOfRange, "actions", message).at(i))?;
    }
    Ok((out, count, width))
}
