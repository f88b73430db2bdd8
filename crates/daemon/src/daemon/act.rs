//! Decisions, and the actions that `value` requests name.

use crate::board::Board;
use crate::learner::act::{Actor, Decision};
use crate::snapshot::Snapshot;
use crate::wire::{ActRequest, ErrorCode, Given, Limits, Reply, WireError};
use std::sync::Arc;

/// Multiplications of one decision, at most: some hundredths of a second, in which no other request is answered.
const DECISION_WORK_MAX: usize = 50_000_000;

/// Decisions that a request asks for, made a few at a time from one model.
pub(super) struct Decisions {
    actor: Arc<Actor>,
    request: ActRequest,
    /// In the order of the states.
    made: Vec<Decision>,
}

/// The actor of the critic that a request names.
///
/// # Errors
/// If it has no model yet, or learns values of states.
fn actor(board: &Board, request: &ActRequest) -> Result<Arc<Actor>, WireError> {
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

impl Decisions {
    /// The decisions that `request` asks for, none of them made yet.
    ///
    /// # Errors
    /// If the critic cannot decide, or candidates or fallback are none of its actions or too many.
    pub(super) fn new(board: &Board, request: ActRequest, limits: &Limits) -> Result<Self, WireError> {
        let actor = actor(board, &request)?;
        let decisions = Self { actor, request, made: Vec::new() };
        decisions.check(limits)?;
        Ok(decisions)
    }

    fn check(&self, limits: &Limits) -> Result<(), WireError> {
        let Self { actor, request, .. } = self;
        let numbers = actor.space().numbers();
        if let Some(given) = request.candidates.as_ref().filter(|given| given.width != numbers) {
            let message = format!("an action has {numbers} numbers here, these have {}", given.width);
            return Err(WireError::of(ErrorCode::WrongShape, "candidates", message));
        }
        if let Some(given) = &request.candidates {
            let faults = given.values.chunks_exact(numbers).map(|action| actor.space().check(action));
            if let Some((i, Err(message))) = faults.enumerate().find(|(_, fault)| fault.is_err()) {
                return Err(WireError::of(ErrorCode::OutOfRange, "candidates", message).at(i));
            }
        }
        check_count("candidates", self.candidates().unwrap_or(0), actor.snapshot().dim(), limits)?;
        if let Some(fallback) = &request.fallback {
            actor
                .space()
                .check(fallback)
                .map_err(|message| WireError::of(ErrorCode::OutOfRange, "fallback", message))?;
        }
        self.check_work()
    }

    /// Refuse candidates among which one decision would keep other requests waiting. One among the critic's own actions is
    /// always made.
    fn check_work(&self) -> Result<(), WireError> {
        let of = |candidates| self.actor.work(candidates, self.request.exploration);
        let most = DECISION_WORK_MAX.max(of(None));
        if of(self.candidates()) <= most {
            return Ok(());
        }
        // Each candidate takes as much as the next.
        let (none, one) = (of(Some(0)), of(Some(1)));
        let least = (most.saturating_sub(none) / (one - none).max(1)).max(1);
        let message = format!("one decision takes too long: name at most {least} candidates");
        Err(WireError::of(ErrorCode::TooLarge, "candidates", message))
    }

    /// Candidates that the request names for each of its states.
    fn candidates(&self) -> Option<usize> {
        self.request.candidates.as_ref().map(|given| given.values.len() / given.width.max(1))
    }

    /// Multiplications of one of the decisions, about; at least 1.
    fn work_of_one(&self) -> usize {
        self.actor.work(self.candidates(), self.request.exploration).max(1)
    }

    /// Multiplications of all of them, about.
    pub(super) fn work(&self) -> usize {
        self.request.rows.saturating_mul(self.work_of_one())
    }

    /// Make the next decisions, within `work` multiplications, at least one. Whether these were the last.
    ///
    /// # Errors
    /// The first field at fault, and its row.
    pub(super) fn advance(&mut self, work: usize) -> Result<bool, WireError> {
        let from = self.made.len();
        let to = self.request.rows.min(from.saturating_add((work / self.work_of_one()).max(1)));
        for i in from..to {
            let decision = self.decide(i)?;
            self.made.push(decision);
        }
        Ok(to == self.request.rows)
    }

    fn decide(&self, i: usize) -> Result<Decision, WireError> {
        let decided = self.actor.act(&self.request.question(i)).map_err(|fault| {
            let fault = WireError::from(fault);
            match fault.field {
                Some("state" | "states") => WireError { field: Some("states"), ..fault }.at(i),
                _ => fault,
            }
        })?;
        Ok(match &self.request.fallback {
            Some(fallback) if decided.unknown => {
                Decision { action: fallback.clone(), probability: None, copy: None, ..decided }
            }
            _ => decided,
        })
    }

    /// The reply with those that are made.
    pub(super) fn reply(&self) -> Reply<'_> {
        Reply::Act { decisions: &self.made, snapshot: self.actor.snapshot() }
    }
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
