//! `act`, and the actions that a `value` request names.

use super::super::act::{ActRequest, Given};
use super::super::{ErrorCode, Limits, WireError};
use super::{Message, check_rows, critic, key, query};
use crate::wire::excerpt;
use criticd_learner::act::Exploration;

/// Largest whole number that a 64-bit float holds exactly.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// Actions (n, A) as a message gives them: one axis stands for actions of one number.
pub(super) fn actions(message: &Message<'_>) -> Result<Option<Given>, WireError> {
    given(message, key("actions"))
}

/// The same of the key at a place among the keys.
pub(super) fn given(message: &Message<'_>, at: usize) -> Result<Option<Given>, WireError> {
    let Some(field) = message.at(at) else { return Ok(None) };
    let tensor = field.tensor::<f64>(Vec::new())?;
    let (rows, width) = match tensor.shape {
        super::Shape::Vector(rows) => (rows, 1),
        super::Shape::Matrix(rows, width) => (rows, width),
        _ => (0, 0),
    };
    if rows == 0 || width == 0 {
        let text = "must be an array of actions: numbers, or one array of numbers for each";
        return Err(WireError::of(ErrorCode::WrongShape, field.name, text));
    }
    Ok(Some(Given { width, values: tensor.values }))
}

/// An `act` request.
pub(super) fn act(message: &Message<'_>, limits: &Limits) -> Result<ActRequest, WireError> {
    let (states, rows, dim) = query(message.require("states")?, limits)?;
    let numbers = |at: usize, absent: fn(usize) -> u64| {
        let Some(field) = message.at(at) else { return Ok((0..rows).map(absent).collect()) };
        let found = field.vector::<f64>(Vec::new())?;
        check_rows(field.name, found.len(), rows)?;
        let whole = |(i, value): (usize, &f64)| {
            if value.fract() == 0.0 && (0.0..=WHOLE_MAX).contains(value) {
                return Ok(*value as u64);
            }
            let text = format!("must be whole numbers from 0, {value} is not one");
            Err(WireError::of(ErrorCode::OutOfRange, field.name, text).at(i))
        };
        found.iter().enumerate().map(whole).collect::<Result<Vec<u64>, WireError>>()
    };
    let number = |at: usize| message.at(at).map(|field| field.scalar::<f64>()).transpose();
    Ok(ActRequest {
        critic: critic(message)?,
        exploration: exploration(message)?,
        seed: field!(message, "seed").map(|field| field.uint()).transpose()?.unwrap_or(0),
        episodes: numbers(key("episodes"), |_| 0)?,
        // States of one request without steps are decided independently of each other.
        steps: numbers(key("steps"), |i| i as u64)?,
        candidates: given(message, key("candidates"))?,
        unknown_above: number(key("unknown_above"))?,
        fallback: given(message, key("fallback"))?.map(|given| given.values),
        states,
        rows,
        dim,
    })
}

fn exploration(message: &Message<'_>) -> Result<Exploration, WireError> {
    let Some(field) = field!(message, "exploration") else { return Ok(Exploration::Greedy) };
    let number = |at: usize, name: &'static str| {
        message.at(at).map(|field| field.scalar::<f64>()).transpose()?.ok_or_else(|| WireError::missing(name))
    };
    Ok(match field.string()? {
        "greedy" => Exploration::Greedy,
        "epsilon_greedy" => Exploration::EpsilonGreedy(number(key("epsilon"), "epsilon")?),
        "softmax" => Exploration::Softmax(number(key("temperature"), "temperature")?),
        "ucb" => Exploration::Ucb(number(key("beta"), "beta")?),
        "thompson" => Exploration::Thompson,
        other => {
            let text = format!(
                "must be \"greedy\", \"epsilon_greedy\", \"softmax\", \"ucb\" or \"thompson\", is {}",
                excerpt(other)
            );
            return Err(WireError::of(ErrorCode::OutOfRange, "exploration", text));
        }
    })
}
