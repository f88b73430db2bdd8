//! `rows` and `evaluate`.

use super::super::evaluate::{Answers, EVALUATED, EVALUATED_MAX, EvaluateRequest, Span};
use super::super::{ErrorCode, WireError};
use super::{Message, act, critic, key};

/// Which rows a request means.
pub(super) fn span(message: &Message<'_>) -> Result<Span, WireError> {
    let from = field!(message, "from").map(|field| field.uint()).transpose()?;
    let last = field!(message, "last").map(|field| field.uint()).transpose()?;
    match (from, last) {
        (Some(_), Some(_)) => {
            Err(WireError::of(ErrorCode::WrongShape, "last", "a request has `from` or `last`, not both"))
        }
        (Some(from), None) => Ok(Span::From(from)),
        (None, last) => Ok(Span::Last(last.unwrap_or(EVALUATED))),
    }
}

/// An `evaluate` request.
pub(super) fn evaluate(message: &Message<'_>) -> Result<EvaluateRequest, WireError> {
    let probs = act::given(message, key("probs"))?.map(Answers::Probabilities);
    let actions = act::actions(message)?.map(Answers::Actions);
    if probs.is_some() && actions.is_some() {
        let text = "a policy is given by `probs` or by `actions`, not by both";
        return Err(WireError::of(ErrorCode::WrongShape, "actions", text));
    }
    let answers = probs.or(actions);
    let span = span(message)?;
    if answers.is_some() && !matches!(span, Span::From(_)) {
        let text = "the answers of a policy need the offset of the first row that they are of";
        return Err(WireError::of(ErrorCode::MissingField, "from", text));
    }
    let rows = match (&answers, span) {
        (Some(answers), _) => answers.given().values.len() / answers.given().width,
        (None, Span::Last(last)) => usize::try_from(last).unwrap_or(usize::MAX),
        (None, Span::From(_)) => 1,
    };
    if rows > EVALUATED_MAX {
        let text = format!("an evaluation takes at most {EVALUATED_MAX} rows, this one {rows}");
        let field = if answers.is_some() { "from" } else { "last" };
        return Err(WireError::of(ErrorCode::TooLarge, field, text));
    }
    let number = |at: usize, name: &'static str| {
        let found = message.at(at).map(|field| field.scalar::<f64>()).transpose()?;
        match found {
            Some(value) if value <= 0.0 || value.is_nan() => {
                Err(WireError::of(ErrorCode::OutOfRange, name, format!("must be positive, is {value}")))
            }
            found => Ok(found),
        }
    };
    let folds = field!(message, "folds").map(|field| field.uint()).transpose()?;
    if let Some(folds) = folds.filter(|folds| !(2..=100).contains(folds)) {
        return Err(WireError::of(ErrorCode::OutOfRange, "folds", format!("lies from 2 to 100, is {folds}")));
    }
    Ok(EvaluateRequest {
        critic: critic(message)?,
        span,
        answers,
        rho_max: number(key("rho_max"), "rho_max")?,
        ess_min: number(key("ess_min"), "ess_min")?,
        folds: folds.map(|folds| folds as usize),
        seed: field!(message, "seed").map(|field| field.uint()).transpose()?.unwrap_or(0),
    })
}
