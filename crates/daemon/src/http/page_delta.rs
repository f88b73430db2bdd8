//! What an open page hears each second: all of the critic that it shows, and of the others what its list of critics needs.
//!
//! The status of a hundred critics is two hundred kilobytes. A page shows one of them.

use crate::wire::Status;
use crate::wire::status::{CriticStatus, TrustReason, TrustStatus};
use serde_json::{Value, json};

/// The news of a frame, in parts from which the message to each page is put together.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Keys with their values for all pages, as JSON without braces.
    common: String,
    /// Of each critic its name, and the same for the pages that show it.
    own: Vec<(String, String)>,
    /// Number and brief of each critic whose brief is another than a frame before.
    changed: Vec<(usize, String)>,
}

impl News {
    /// `own` are the parts of each critic, by name; `before` the briefs of the frame before, which this frame's briefs replace.
    pub(super) fn new(
        common: &Value,
        own: Vec<(String, Value)>,
        before: &mut Vec<String>,
        critics: &[CriticStatus],
    ) -> Self {
        let briefs: Vec<String> = critics.iter().map(|critic| brief(critic).to_string()).collect();
        let is_new = |(k, brief): &(usize, &String)| before.get(*k) != Some(brief);
        let changed = briefs.iter().enumerate().filter(is_new).map(|(k, brief)| (k, brief.clone())).collect();
        *before = briefs;
        let own = own.into_iter().map(|(name, part)| (name, inner(&part))).collect();
        Self { common: inner(common), own, changed }
    }

    /// The message to a page that shows the critic of this name; by default, and where there is none, the first.
    pub(super) fn of(&self, critic: Option<&str>) -> String {
        let shown = self.own.iter().position(|(name, _)| Some(name.as_str()) == critic).unwrap_or(0);
        let others = self.changed.iter().filter(|(k, _)| *k != shown).map(|(k, brief)| format!("\"{k}\":{brief}"));
        let others: Vec<String> = others.collect();
        let own = self.own.get(shown).map_or("", |(_, own)| own);
        format!("{{{},{own},\"critics\":{{{}}}}}", self.common, others.join(","))
    }
}

/// A JSON object without its braces.
fn inner(object: &Value) -> String {
    let text = object.to_string();
    text[1..text.len() - 1].to_owned()
}

/// The status without its critics and without memory, of which no page shows anything, and each critic as it is sent.
pub(super) fn apart(status: &Status) -> (Value, Vec<Value>) {
    let mut rest = status.to_json();
    let critics = rest["critics"].take();
    if let Value::Object(rest) = &mut rest {
        rest.retain(|key, _| !["critics", "memory"].contains(&key.as_str()));
    }
    let Value::Array(critics) = critics else { return (rest, Vec::new()) };
    (rest, critics)
}

/// What a list of critics shows of one, and what it takes to know whether it can be compared with, and which of its rewards: `kernel` is
/// a mark alone, of `actions` the names come.
pub(super) fn brief(critic: &CriticStatus) -> Value {
    let own = |trust: &TrustStatus| {
        let reasons: Vec<&TrustReason> = trust.reasons.iter().filter(|reason| reason.of == "critic").collect();
        json!({"reasons": reasons})
    };
    json!({
        "brief": true,
        "name": critic.name,
        "failed": critic.failed,
        "kernel": critic.model.is_some(),
        "rewards": critic.rewards,
        "reward_names": critic.reward_names,
        "actions": critic.actions.as_ref().map(|of| json!({"names": of.names})),
        "refit": {"running": critic.refit.running, "next_at": critic.refit.next_at},
        "trust": critic.trust.iter().map(own).collect::<Vec<Value>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gets_its_critic_in_full_and_of_others_what_is_new() {
        let reason = |of: &str| TrustReason { of: of.into(), text: format!("of the {of}"), ..TrustReason::default() };
        let trust = TrustStatus { reasons: vec![reason("daemon"), reason("critic")], ..TrustStatus::default() };
        let critic = |name: &str| CriticStatus {
            name: name.into(),
            rewards: vec![1, 0],
            trust: vec![trust.clone()],
            ..CriticStatus::default()
        };
        let mut status = Status { offset: 7, critics: ["a", "b", "c"].map(critic).to_vec(), ..Status::default() };
        let mut before = Vec::new();
        let mut news = |status: &Status| {
            let (rest, critics) = apart(status);
            assert!(rest["offset"] == 7 && rest.get("critics").is_none() && rest.get("memory").is_none());
            let names = status.critics.iter().map(|critic| critic.name.clone());
            let own = names.zip(critics.into_iter().map(|critic| json!({"own": critic}))).collect();
            News::new(&json!({"status": rest}), own, &mut before, &status.critics)
        };
        let of = |news: &News, name: Option<&str>| serde_json::from_str::<Value>(&news.of(name)).unwrap();
        let first = news(&status);
        let found = of(&first, Some("b"));
        assert_eq!((&found["own"]["name"], &found["status"]["offset"]), (&json!("b"), &json!(7)));
        assert_eq!(found["critics"].as_object().unwrap().keys().collect::<Vec<_>>(), ["0", "2"]);
        let others = &found["critics"]["2"]["trust"][0]["reasons"];
        assert!(others.as_array().unwrap().len() == 1 && others[0]["text"] == "of the critic", "{others}");
        assert_eq!(found["critics"]["2"]["rewards"], json!([1, 0]), "which of its rewards is compared");
        assert_eq!(
            (&of(&first, None)["own"]["name"], &of(&first, Some("gone"))["own"]["name"]),
            (&json!("a"), &json!("a"))
        );
        // What has not changed is not sent again.
        status.critics[2].failed = Some("it panicked".into());
        let second = news(&status);
        assert_eq!(of(&second, None)["critics"].as_object().unwrap().keys().collect::<Vec<_>>(), ["2"]);
        assert_eq!(of(&second, Some("c"))["critics"], json!({}));
    }
}
