//! A second opinion by a model of the transition.

use super::{By, Evaluate};
use crate::commands::Failure;
use crate::commands::output::in_file;
use crate::commands::world::TableRows;
use crate::learner::action::ActionSpace;
use crate::learner::off_policy::{Estimate, Judged, Policy};
use crate::table::Categories;
use crate::transition::state_name;
use crate::world::{Valued, Wanted, WorldError};
use serde_json::{Value, json};

/// Add what the model says to the findings of the others.
pub(super) fn add(
    evaluate: &Evaluate,
    judged: &Judged,
    space: ActionSpace,
    (names, categories): (Option<Vec<String>>, Categories),
    document: &mut Value,
) -> Result<(), Failure> {
    let path = &evaluate.table.table;
    let Some(policy) = &judged.policy else {
        return Err(Failure::usage("--by model needs what the policy does in the state of each transition: --policy"));
    };
    let given = TableRows {
        names: names.unwrap_or_else(|| (0..judged.rows.dim).map(state_name).collect()),
        rows: judged.rows.clone(),
        columns: judged.columns.clone(),
        space,
        categories,
        episodes: judged.episodes.clone(),
    };
    given.check_discounts(path, evaluate.discount)?;
    let of = evaluate.world.learn(path, given, (true, true), evaluate.seed)?;
    let starts = of.starts();
    let at = |policy: &Policy, places: &[usize], states: &[f64]| {
        let entries = policy.entries(places, states, &of.table.space)?;
        of.dynamics.acting(entries.inputs, entries.actions, entries.shares).map_err(|e| in_file(path, e))
    };
    let model = at(policy, &of.answered(), &of.dynamics.after().states())?;
    let from = at(policy, &starts, &of.states_of(&starts))?;
    let motion = model.motion().map_err(|e| in_file(path, e))?;
    match of.known().value(Wanted::Observed(0), (evaluate.discount, 1.0), &motion, &from) {
        Ok(Valued { value, error, radius, unsupported, refused }) => {
            let interval = refused.is_empty().then(|| Estimate { value, error }.interval());
            document["estimates"]["model"] = json!({"value": value, "error": error, "interval": interval});
            let refused = refused.into_iter().map(|why| format!("no interval of the model: {why}")).collect();
            push(document, "refused", refused);
            document["model"] = json!({"radius": radius, "unsupported": unsupported, "of": of.document()});
        }
        Err(why @ WorldError::Unstable { .. }) => {
            push(document, "refused", vec![format!("no estimate of the model: {why}")]);
        }
        Err(why) => return Err(in_file(path, why)),
    }
    if evaluate.by == By::Both {
        let message =
            "fqe and the model share rows and kernels of one kind, and so errors: that they agree is no proof";
        push(document, "warnings", vec![message.to_owned()]);
    }
    Ok(())
}

fn push(document: &mut Value, key: &str, sentences: Vec<String>) {
    if let Value::Array(list) = &mut document[key] {
        list.extend(sentences.into_iter().map(Value::String));
    }
}
