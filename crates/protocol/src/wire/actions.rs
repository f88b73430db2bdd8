//! What a snapshot says of actions, where it is the value of actions.

use super::checks::{check_count, finite_vector, nested, out_of_range, weights};
use super::reader::Field;
use super::tensor::WrittenTensor;
use super::{ArrayForm, WireError, excerpt};
use criticd_learner::action::ActionSpace;
use criticd_learner::snapshot::Actions;
use nalgebra::DMatrix;
use serde::Serialize;
use serde_json::{Value, json};

const ACTIONS_KEYS: [&str; 6] =
    ["actions.kind", "actions.count", "actions.low", "actions.high", "actions.copies", "actions.prior_mean"];

#[derive(Serialize)]
pub(super) struct ActionsBody<'a> {
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    low: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    high: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    copies: Option<WrittenTensor<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prior_mean: Option<f64>,
}

impl<'a> ActionsBody<'a> {
    pub(super) fn new(actions: &'a Actions, form: ArrayForm) -> Self {
        let copies = (actions.copies.ncols() > 0).then(|| WrittenTensor::matrix(&actions.copies, 0, form));
        let prior_mean = Some(actions.prior_mean).filter(|mean| *mean != 0.0);
        match &actions.space {
            ActionSpace::Discrete(count) => {
                Self { kind: "discrete", count: Some(*count), low: None, high: None, copies, prior_mean }
            }
            ActionSpace::Box { low, high } => {
                let vector = |values: &'a Vec<f64>| Some(WrittenTensor::vector(values, form));
                Self { kind: "box", count: None, low: vector(low), high: vector(high), copies, prior_mean }
            }
        }
    }
}

/// The actions there are, with the keys that they have in a snapshot.
pub fn action_space_to_json(space: &ActionSpace) -> Value {
    match space {
        ActionSpace::Discrete(count) => json!({"kind": "discrete", "count": count}),
        ActionSpace::Box { low, high } => json!({"kind": "box", "low": low, "high": high}),
    }
}

/// Of a model with `size` rows in its dictionary, whose states have `dim` numbers.
pub(super) fn actions(field: Field<'_>, size: usize, dim: usize) -> Result<Actions, WireError> {
    let map = nested(field, &ACTIONS_KEYS, "actions.")?;
    let space = match map.require("actions.kind")?.string()? {
        "discrete" => {
            let count = map.require("actions.count")?.uint()?;
            ActionSpace::Discrete(usize::try_from(count).unwrap_or(usize::MAX))
        }
        "box" => ActionSpace::Box {
            low: finite_vector(map.require("actions.low")?)?,
            high: finite_vector(map.require("actions.high")?)?,
        },
        other => {
            let message = format!("must be \"discrete\" or \"box\", is {}", excerpt(other));
            return Err(out_of_range("actions.kind", message));
        }
    };
    if let ActionSpace::Box { low, high } = &space {
        check_count("actions.high", high.len(), low.len())?;
    }
    if !space.is_sound() {
        let message = "has no action, too many, or a bound on the wrong side of the other";
        return Err(out_of_range("actions", message));
    }
    if space.width() >= dim {
        let message = format!("actions take {} of the {dim} numbers of a state, none is left", space.width());
        return Err(out_of_range("actions", message));
    }
    let copies = match map.get("actions.copies") {
        Some(field) => weights(field, size)?,
        None => DMatrix::zeros(0, 0),
    };
    let prior_mean = map.get("actions.prior_mean").map(|field| field.scalar::<f64>()).transpose()?.unwrap_or(0.0);
    Ok(Actions { space, prior_mean, copies })
}
