//! `plan` and `rollout`.

use super::super::act::Given;
use super::super::evaluate::Answers;
use super::super::world::{
    ANSWERED_MAX, EXPRESSION_MAX, PlanRequest, PolicyAsked, RolloutRequest, SHOWN_MAX, STARTS_MAX, STEPS_MAX,
};
use super::super::{ErrorCode, Limits, WireError};
use super::{Field, Message, act, critic, key, query, texts};
use crate::wire::excerpt;
use criticd_learner::transition::MAGNITUDE_MAX;

/// Steps of a course where nothing says how many.
const STEPS: u64 = 20;

/// A `plan` request.
pub(super) fn plan(message: &Message<'_>, limits: &Limits) -> Result<PlanRequest, WireError> {
    Ok(PlanRequest {
        critic: critic(message)?,
        reward: reward(message)?,
        discount: discount(message)?,
        starts: states(field!(message, "states"), limits, STARTS_MAX)?,
    })
}

/// A `rollout` request.
pub(super) fn rollout(message: &Message<'_>, limits: &Limits) -> Result<RolloutRequest, WireError> {
    let steps = field!(message, "steps").map(|field| field.uint()).transpose()?.unwrap_or(STEPS);
    if !(1..=STEPS_MAX as u64).contains(&steps) {
        return Err(WireError::of(ErrorCode::OutOfRange, "steps", format!("lies from 1 to {STEPS_MAX}, is {steps}")));
    }
    let show = field!(message, "show").map(|field| texts(field, (SHOWN_MAX, EXPRESSION_MAX), "expressions"));
    if let Some(Ok(show)) = &show
        && show.is_empty()
    {
        return Err(WireError::of(ErrorCode::WrongShape, "show", "must have at least one expression"));
    }
    Ok(RolloutRequest {
        critic: critic(message)?,
        policy: policy(message, limits)?,
        discount: discount(message)?,
        starts: states(field!(message, "states"), limits, STARTS_MAX)?,
        steps: steps as usize,
        show: show.transpose()?,
        states: field!(message, "elements").map_or(Ok(false), |field| field.scalar())?,
    })
}

/// Who acts.
fn policy(message: &Message<'_>, limits: &Limits) -> Result<PolicyAsked, WireError> {
    let reward = reward(message)?;
    let named = field!(message, "policy").map(|field| field.string()).transpose()?;
    if let Some(answered) = states(field!(message, "answered"), limits, ANSWERED_MAX)? {
        if named.is_some() || reward.is_some() {
            let text = "a policy that has answered in some states has neither a name nor a reward: leave out `policy` and `reward`";
            return Err(WireError::of(ErrorCode::WrongShape, "answered", text));
        }
        let probs = act::given(message, key("probs"))?.map(Answers::Probabilities);
        let answers = match (probs, act::actions(message)?.map(Answers::Actions)) {
            (Some(answers), None) | (None, Some(answers)) => answers,
            _ => {
                let text = "a policy answers by `probs` or by `actions`, one for each of `answered`";
                return Err(WireError::of(ErrorCode::WrongShape, "answered", text));
            }
        };
        let (given, n) = (answers.given(), answered.values.len() / answered.width);
        if given.values.len() / given.width != n {
            let text = format!("has {n} states, and there are {} answers", given.values.len() / given.width);
            return Err(WireError::of(ErrorCode::WrongShape, "answered", text));
        }
        return Ok(PolicyAsked::Answered(answered, answers));
    }
    match named {
        None if reward.is_some() => Ok(PolicyAsked::Plan(reward)),
        Some("plan") => Ok(PolicyAsked::Plan(reward)),
        Some("acted" | "best") if reward.is_some() => {
            Err(WireError::of(ErrorCode::WrongShape, "reward", "is of a plan: leave out `policy`, or make it \"plan\""))
        }
        None | Some("acted") => Ok(PolicyAsked::Acted),
        Some("best") => Ok(PolicyAsked::Best),
        Some(other) => {
            let text = format!("must be \"acted\", \"best\" or \"plan\", is {}", excerpt(other));
            Err(WireError::of(ErrorCode::OutOfRange, "policy", text))
        }
    }
}

fn reward(message: &Message<'_>) -> Result<Option<String>, WireError> {
    let Some(text) = field!(message, "reward").map(|field| field.string()).transpose()? else { return Ok(None) };
    if text.is_empty() || text.len() > EXPRESSION_MAX {
        let message = format!("must be an expression of 1 to {EXPRESSION_MAX} bytes, has {}", text.len());
        return Err(WireError::of(ErrorCode::OutOfRange, "reward", message));
    }
    Ok(Some(text.to_owned()))
}

fn discount(message: &Message<'_>) -> Result<Option<f64>, WireError> {
    match field!(message, "discount").map(|field| field.scalar::<f64>()).transpose()? {
        Some(value) if !(0.0..1.0).contains(&value) => {
            Err(WireError::of(ErrorCode::OutOfRange, "discount", format!("lies from 0 to below 1, is {value}")))
        }
        found => Ok(found),
    }
}

/// Some states (n, D).
fn states(field: Option<Field<'_>>, limits: &Limits, most: usize) -> Result<Option<Given>, WireError> {
    let Some(field) = field else { return Ok(None) };
    let name = field.name;
    let (values, rows, width) = query(field, limits).map_err(|error| WireError { field: Some(name), ..error })?;
    if rows > most {
        return Err(WireError::of(ErrorCode::TooLarge, name, format!("has at most {most} states, has {rows}")));
    }
    if let Some(at) = values.iter().position(|value| !value.is_finite()) {
        return Err(WireError::of(ErrorCode::NotFinite, name, format!("is {}", values[at])).at(at / width));
    }
    if let Some(at) = values.iter().position(|value| value.abs() > MAGNITUDE_MAX) {
        let text = format!("is {}; a number of a state is at most {MAGNITUDE_MAX:e}", values[at]);
        return Err(WireError::of(ErrorCode::OutOfRange, name, text).at(at / width));
    }
    Ok(Some(Given { width, values }))
}
