//! What to say of a name that is not known.

use super::job::Column;

/// What an array holds, by the name that we give it.
pub(super) fn array(name: &str) -> Option<Column> {
    Some(match name {
        "states" => Column::State(0),
        "next_states" => Column::NextState(0),
        "actions" => Column::Action(0),
        "rewards" => Column::Reward(0),
        "terminated" => Column::Terminated,
        "truncated" => Column::Truncated,
        "done" => Column::Done,
        "discounts" => Column::Discount,
        "streams" => Column::Stream,
        "times" => Column::Time,
        "sessions" => Column::Session,
        "offsets" | "received" => Column::Skipped,
        "seqs" => Column::Seq,
        "behavior_probs" | "action_prob" | "pscore" | "propensity_score" | "probability" => Column::BehaviorProb,
        "behavior_logp" | "action_logp" => Column::BehaviorLogProb,
        "target_probs" => Column::TargetProb,
        "next_actions" => Column::NextAction(0),
        "next_action_probs" => Column::NextActionProb(0),
        "starts_chain" => Column::StartsChain,
        "policies" => Column::Policy,
        _ => return None,
    })
}

/// What to do about a column of CSV or Parquet, or a key of JSONL, that is not known.
pub(super) fn hint(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    if Column::parse(&lower).is_some() {
        return format!("not known; write it in lower case: {lower}");
    }
    match lower.as_str() {
        "" => "a column needs a name".to_owned(),
        _ if lower.contains([';', '\t']) => "not known; columns are separated by commas".to_owned(),
        "state" | "next_state" | "next_action_probs" => format!("not known; number it: {lower}_0"),
        "rewards" | "actions" | "discounts" | "states" | "next_states" | "times" | "streams" | "behavior_probs"
        | "target_probs" | "next_actions" | "policies" => "not known; names are singular here".to_owned(),
        _ => "not known; put an underscore before its name to have it skipped. Known are stream, state_0.., \
              next_state_0.., action or action_0.., reward or reward_0.., terminated, truncated, done, discount, time, \
              session, seq, starts_chain, policy, behavior_prob, target_prob, next_action or next_action_0.., next_action_probs_0.."
            .to_owned(),
    }
}

/// What to do about an array that is not known.
pub(super) fn array_hint(name: &str) -> String {
    let close = [name.to_ascii_lowercase(), format!("{name}s"), name.trim_end_matches('s').to_owned()];
    match close.iter().find(|name| array(name).is_some()) {
        Some(known) => format!("not known; call it {known}"),
        None => {
            "not known; put an underscore before its name to have it skipped. Known are states, next_states, actions, \
                 rewards, terminated, truncated, done, discounts, streams, times, sessions, seqs, starts_chain, policies, \
                 behavior_probs, target_probs, next_actions, next_action_probs"
                .to_owned()
        }
    }
}

/// What to say of a column that is not there.
pub(super) fn missing(name: &str, names: &[&str]) -> String {
    let near = nearest(name, names).map(|near| format!("did you mean {near}? ")).unwrap_or_default();
    let shown = names.iter().take(24).copied().collect::<Vec<_>>().join(", ");
    let more = if names.len() > 24 { ", ..." } else { "" };
    format!("there is no {name} in the table; {near}There is {shown}{more}")
}

/// The name that is most like `name`, if one is like it at all.
pub(super) fn nearest<'a>(name: &str, names: &[&'a str]) -> Option<&'a str> {
    let lower = name.to_lowercase();
    let scored = names.iter().map(|other| (strsim::levenshtein(&lower, &other.to_lowercase()), *other));
    scored.min_by_key(|(edits, _)| *edits).filter(|(edits, _)| 3 * edits <= name.len().max(3)).map(|(_, other)| other)
}
