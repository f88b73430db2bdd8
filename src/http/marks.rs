//! Events as the page lists them: selections with what they changed, and changes of the world.

use super::refused::Refused;
use crate::wire;
use crate::wire::Status;
use crate::wire::status::{CriticStatus, ModelStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::VecDeque;

/// Events kept as marks, and those that are none: they come often, and would displace the others.
const MARKS: usize = 100;
const UNMARKED: [&str; 3] = ["checkpoint", "refit_started", "rejected"];
/// What changes of the world lead to: the last of these says how things stand.
const FOLLOWS: [&str; 7] = ["drift", "forked", "swapped", "returned", "dismissed", "adopted", "new_policy"];
/// What puts another model in place of the present one.
const TAKEOVERS: [&str; 3] = ["adopted", "swapped", "returned"];
/// With more state variables than this an adoption does not say what became of the kernel.
const KERNEL_DIM: usize = 64;

/// The newest events, oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Marks {
    list: VecDeque<Map<String, Value>>,
    /// Number of the last one.
    last: u64,
    /// Numbers of those that have changed since they were last asked for.
    #[serde(skip)]
    changed: Vec<u64>,
    #[serde(skip)]
    refused: Refused,
}

impl Marks {
    /// Keep an event, as the daemon publishes it. `before` is the last status, which has the kernel that an adoption replaces.
    pub(super) fn event(&mut self, payload: &[u8], before: Option<&Status>) {
        let Ok(Value::Object(mut mark)) = wire::to_json(payload) else { return };
        if text(&mark, "event") == Some("rejected") {
            self.refused.event(&mark);
        }
        if text(&mark, "event").is_some_and(|event| UNMARKED.contains(&event)) {
            return;
        }
        for key in ["v", "type"] {
            mark.remove(key);
        }
        if text(&mark, "event") == Some("adopted")
            && let Some(status) = before
            && let Some(kernel) = text(&mark, "critic").and_then(|name| status.critic(name)).and_then(kernel)
        {
            mark.insert("kernel_before".into(), kernel);
        }
        self.last += 1;
        mark.insert("number".into(), self.last.into());
        self.changed.push(self.last);
        if self.list.len() == MARKS {
            self.list.pop_front();
        }
        self.list.push_back(mark);
    }

    /// The first status after an adoption has the kernel that was adopted. A status of a later generation has another.
    pub(super) fn complete(&mut self, status: &Status) {
        let wanting = |mark: &&mut Map<String, Value>| {
            text(mark, "event") == Some("adopted") && !mark.contains_key("kernel_after")
        };
        for mark in self.list.iter_mut().filter(wanting) {
            let critic = text(mark, "critic").and_then(|name| status.critic(name));
            let generation = count(mark, "generation");
            if let Some(kernel) = critic.filter(|c| Some(c.generation) == generation).and_then(kernel) {
                mark.insert("kernel_after".into(), kernel);
                self.changed.extend(count(mark, "number"));
            }
        }
    }

    /// All of them.
    pub(super) fn all(&self) -> &VecDeque<Map<String, Value>> {
        &self.list
    }

    /// The alarm that no model of a critic has answered yet. What follows on a change of the world says in turn how things stand.
    pub(super) fn alarm(&self, critic: &str) -> Option<&Map<String, Value>> {
        let drift = self.last_drift(critic)?;
        let follows = |mark: &&Map<String, Value>| text(mark, "event").is_some_and(|event| FOLLOWS.contains(&event));
        let last = text(self.of(critic).rfind(follows)?, "event")?;
        ["drift", "forked"].contains(&last).then_some(drift)
    }

    /// The last change of the world that a critic has noticed.
    pub(super) fn last_drift(&self, critic: &str) -> Option<&Map<String, Value>> {
        self.of(critic).rfind(|mark| text(mark, "event") == Some("drift"))
    }

    /// Messages that were refused in the last minutes.
    pub(super) fn refused(&self) -> &Refused {
        &self.refused
    }

    /// Unix time at which a model took over in a critic last.
    pub(super) fn last_takeover(&self, critic: &str) -> Option<f64> {
        let took = |mark: &&Map<String, Value>| text(mark, "event").is_some_and(|event| TAKEOVERS.contains(&event));
        self.of(critic).rfind(took)?.get("time")?.as_f64()
    }

    /// Those of a critic, and those of no critic.
    fn of<'a>(&'a self, critic: &str) -> impl DoubleEndedIterator<Item = &'a Map<String, Value>> {
        self.list.iter().filter(move |mark| text(mark, "critic").is_none_or(|name| name == critic))
    }

    /// Those that have changed since the last time.
    pub(super) fn news(&mut self) -> Vec<Map<String, Value>> {
        let changed = std::mem::take(&mut self.changed);
        let is_changed = |mark: &&Map<String, Value>| count(mark, "number").is_some_and(|n| changed.contains(&n));
        self.list.iter().filter(is_changed).cloned().collect()
    }
}

/// What a mark has under `key`, which a file of an earlier run may lack.
fn text<'a>(mark: &'a Map<String, Value>, key: &str) -> Option<&'a str> {
    mark.get(key)?.as_str()
}

fn count(mark: &Map<String, Value>, key: &str) -> Option<u64> {
    mark.get(key)?.as_u64()
}

/// The kernel of a critic's model, if it is small enough to be remembered.
fn kernel(critic: &CriticStatus) -> Option<Value> {
    let ModelStatus { kernel, noise, inputs, dictionary_size, .. } = critic.model.as_ref()?;
    (inputs.scale.len() <= KERNEL_DIM)
        .then(|| json!({"kernel": kernel, "noise": noise, "scale": inputs.scale, "dictionary_size": dictionary_size}))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(kind: &str, details: Value) -> Vec<u8> {
        let Value::Object(details) = details else { panic!("details are a map") };
        wire::encode_event(kind, 1e9, &details)
    }

    #[test]
    fn selections_outlive_what_comes_often_and_another_run() {
        let mut marks = Marks::default();
        marks.event(&event("adopted", json!({"critic": "main", "generation": 2})), None);
        (0..300).for_each(|_| marks.event(&event("checkpoint", json!({"offset": 1})), None));
        assert_eq!((marks.all().len(), marks.news().len(), marks.news().len()), (1, 1, 0));
        marks.event(&event("rejected", json!({"streams": [{"code": "gap", "messages": 1}]})), None);
        assert_eq!(marks.refused().cause(1e9).unwrap().code, "gap");
        assert_eq!((marks.last_takeover("main"), marks.last_takeover("other")), (Some(1e9), None));
        let kept = rmp_serde::to_vec_named(&marks).unwrap();
        let mut later: Marks = rmp_serde::from_slice(&kept).unwrap();
        assert!(later.news().is_empty());
        (0..MARKS + 5).for_each(|_| later.event(&event("drift", json!({"critic": "main"})), None));
        assert_eq!((later.all().len(), &later.all()[MARKS - 1]["number"]), (MARKS, &json!(MARKS + 6)));
        assert!(later.all().iter().all(|mark| !mark.contains_key("v")));
    }

    #[test]
    fn an_adoption_has_the_kernel_of_its_own_generation() {
        let mut marks = Marks::default();
        for generation in [2, 3] {
            marks.event(&event("adopted", json!({"critic": "main", "generation": generation})), None);
        }
        // As the file of an earlier run may have it.
        marks.list.push_back(Map::new());
        marks.news();
        let critic = CriticStatus {
            name: "main".into(),
            generation: 3,
            model: Some(ModelStatus::default()),
            ..CriticStatus::default()
        };
        marks.complete(&Status { critics: vec![critic], ..Status::default() });
        let news = marks.news();
        assert_eq!((news.len(), &news[0]["generation"], news[0].contains_key("kernel_after")), (1, &json!(3), true));
    }
}
