//! A second opinion by a model of the transition.

use super::{By, Evaluate};
use crate::commands::Failure;
use crate::commands::output::in_file;
use crate::commands::world::{Given, Modelled};
use crate::learner::action::ActionSpace;
use crate::learner::off_policy::{Estimate, Judged, Policy};
use crate::math::dense::dot;
use crate::table::Categories;
use crate::world::{Table, UNSUPPORTED_ABOVE, UNSUPPORTED_MAX, WorldError};
use serde_json::{Value, json};

/// The model at C and at the starts, each with the shares of the policy's actions.
struct Under {
    at_c: (Table, Vec<f64>),
    at_starts: (Table, Vec<f64>),
}

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
    let given = Given {
        names: names.unwrap_or_else(|| (0..judged.rows.dim).map(|d| format!("state_{d}")).collect()),
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
        let entries = policy.entries(places, states, &of.space)?;
        let table = of.dynamics.entries(&entries.inputs, entries.actions).map_err(|e| in_file(path, e))?;
        Ok::<_, Failure>((table, entries.shares))
    };
    let under = Under {
        at_c: at(policy, &of.answered(), &of.dynamics.after().states())?,
        at_starts: at(policy, &starts, &of.states_of(&starts))?,
    };
    match told(&of, &under, evaluate.discount) {
        Ok((estimate, mut more, refused)) => {
            let interval = refused.is_empty().then(|| estimate.interval());
            document["estimates"]["model"] =
                json!({"value": estimate.value, "error": estimate.error, "interval": interval});
            push(document, "refused", refused);
            more["of"] = of.document();
            document["model"] = more;
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

/// The mean of V over the starts with its error, what else is to be known, and why there is no interval, where that is so.
fn told(of: &Modelled, under: &Under, discount: f64) -> Result<(Estimate, Value, Vec<String>), WorldError> {
    let Under { at_c: (at_c, shares), at_starts: (at_starts, starting) } = under;
    let found = at_c.evaluate(shares, at_c.rewards(), discount)?;
    let q = found.action_values(at_starts, at_starts.rewards())?;
    let n = at_starts.states();
    let values: Vec<f64> = q
        .col(0)
        .chunks_exact(at_starts.actions())
        .zip(starting.chunks_exact(at_starts.actions()))
        .map(|(q, shares)| dot(q, shares))
        .collect();
    let value = values.iter().sum::<f64>() / n as f64;
    let between = values.iter().map(|v| (v - value).powi(2)).sum::<f64>() / (n as f64 - 1.0).max(1.0) / n as f64;
    let pooled: Vec<f64> = starting.iter().map(|share| share / n as f64).collect();
    let mut deviation = found.deviation(&of.dynamics, (&at_starts.pooled(), &pooled), 0, Some(0))?;
    deviation.add(&of.transitions(), 1.0);
    // The prior variance of a weight is what makes the noise over it the ridge.
    let noise = of.noise(&found, 0)?;
    let open = deviation.variance(noise / of.choice.widths.ridge)[0];
    let (unsupported, mut refused) =
        match at_c.support(shares, (at_starts, starting), discount, (UNSUPPORTED_ABOVE, UNSUPPORTED_MAX)) {
            Ok(share) => (share, Vec::new()),
            Err(why @ WorldError::Unsupported { share, .. }) => {
                (share, vec![format!("no interval of the model: {why}")])
            }
            Err(why) => return Err(why),
        };
    refused.extend(found.doubt().map(|doubt| format!("no interval of the model: {doubt}")));
    let more = json!({"radius": found.radius(), "unsupported": unsupported});
    Ok((Estimate { value, error: (between + open).sqrt() }, more, refused))
}
