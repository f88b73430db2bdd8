//! Events as the page lists them: selections with what they changed, and changes of the world.

use super::refused::Refused;
use super::trust::unlike;
use crate::wire;
use crate::wire::Status;
use crate::wire::status::{CriticStatus, ModelStatus};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, VecDeque};

/// Events kept as marks of all critics together. Where there are more, a critic keeps its own newest [`OWN`] all the same: of a hundred
/// critics, what happens to the others would else displace what happened to one.
const MARKS: usize = 100;
const OWN: usize = 20;
/// Events that are no marks: they come often, and would displace the others.
const UNMARKED: [&str; 5] = ["checkpoint", "refit_started", "rejected", "alarm", "alarm_ended"];
/// What changes of the world lead to: the last of these says how things stand, and with these two no model has answered yet.
const FOLLOWS: [&str; 7] = ["drift", "forked", "swapped", "returned", "dismissed", "adopted", "new_policy"];
const UNANSWERED: [&str; 2] = ["drift", "forked"];
/// What puts another model in place of the present one. All of these are in [`FOLLOWS`].
const TAKEOVERS: [&str; 3] = ["adopted", "swapped", "returned"];
/// With more state variables than this an adoption does not say what became of the kernel.
const KERNEL_DIM: usize = 64;

/// The newest events, oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Marks {
    list: VecDeque<Map<String, Value>>,
    /// Number of the last one.
    last: u64,
    /// Of each critic by its name, as far as something has happened to it. A file of an earlier version has none of them.
    #[serde(default)]
    standing: BTreeMap<String, Standing>,
    /// Numbers of those that have changed since they were last asked for.
    #[serde(skip)]
    changed: Vec<u64>,
    #[serde(skip)]
    refused: Refused,
}

/// How things stand with a critic. It is kept beside the events, since what follows may displace those that say so.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Standing {
    /// The last change of the world that it has noticed.
    drift: Option<Map<String, Value>>,
    /// Whether no model has answered that change yet.
    alarmed: bool,
    /// Unix time at which a model took over last.
    takeover: Option<f64>,
}

impl Marks {
    /// Those that an earlier run has kept, of the critics that are still there.
    pub(super) fn resumed(mut self, critics: &[String]) -> Self {
        let is_there = |name: &str| critics.iter().any(|critic| critic == name);
        self.list.retain(|mark| text(mark, "critic").is_none_or(is_there));
        self.standing.retain(|name, _| is_there(name));
        if self.standing.is_empty() {
            for mark in self.list.clone() {
                self.stand(&mark);
            }
        }
        self
    }

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
        if text(&mark, "event") == Some("drift") {
            mark.insert("unlike".into(), unlike(&mark).into());
        }
        self.last += 1;
        mark.insert("number".into(), self.last.into());
        self.changed.push(self.last);
        self.stand(&mark);
        self.list.push_back(mark);
        self.forget();
    }

    /// Note how things stand with a critic after an event.
    fn stand(&mut self, mark: &Map<String, Value>) {
        let (Some(event), Some(critic)) = (text(mark, "event"), text(mark, "critic")) else { return };
        if !FOLLOWS.contains(&event) {
            return;
        }
        let standing = self.standing.entry(critic.to_owned()).or_default();
        standing.alarmed = UNANSWERED.contains(&event);
        if event == "drift" {
            standing.drift = Some(mark.clone());
        }
        if TAKEOVERS.contains(&event) {
            standing.takeover = mark.get("time").and_then(Value::as_f64);
        }
    }

    /// Where there are more than [`MARKS`], drop the oldest of a critic that has more than its own. One event adds one mark, so that
    /// one is enough.
    fn forget(&mut self) {
        if self.list.len() <= MARKS {
            return;
        }
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for mark in &self.list {
            *counts.entry(whose(mark)).or_default() += 1;
        }
        let place = self.list.iter().position(|mark| counts[whose(mark)] > OWN);
        if let Some(place) = place {
            self.list.remove(place);
        }
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

    /// The alarm that no model of a critic has answered yet. What follows on a change of the world says in turn how things stand.
    pub(super) fn alarm(&self, critic: &str) -> Option<&Map<String, Value>> {
        self.standing.get(critic).filter(|standing| standing.alarmed)?.drift.as_ref()
    }

    /// The last change of the world that a critic has noticed.
    pub(super) fn last_drift(&self, critic: &str) -> Option<&Map<String, Value>> {
        self.standing.get(critic)?.drift.as_ref()
    }

    /// Messages that were refused in the last minutes.
    pub(super) fn refused(&self) -> &Refused {
        &self.refused
    }

    /// Unix time at which a model took over in a critic last.
    pub(super) fn last_takeover(&self, critic: &str) -> Option<f64> {
        self.standing.get(critic)?.takeover
    }

    /// The marks of a critic, and the marks that belong to none.
    pub(super) fn of<'a>(&'a self, critic: &'a str) -> impl Iterator<Item = &'a Map<String, Value>> {
        self.list.iter().filter(move |mark| concerns(mark, critic))
    }

    /// Those that have changed since the last time.
    pub(super) fn news(&mut self) -> Vec<Map<String, Value>> {
        let changed = std::mem::take(&mut self.changed);
        let is_changed = |mark: &&Map<String, Value>| count(mark, "number").is_some_and(|n| changed.contains(&n));
        self.list.iter().filter(is_changed).cloned().collect()
    }
}

/// Whether a mark is of this critic, or of none.
pub(super) fn concerns(mark: &Map<String, Value>, critic: &str) -> bool {
    text(mark, "critic").is_none_or(|name| name == critic)
}

/// Name of a mark's critic; empty where it has none.
fn whose(mark: &Map<String, Value>) -> &str {
    text(mark, "critic").unwrap_or_default()
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
        assert_eq!((marks.list.len(), marks.news().len(), marks.news().len()), (1, 1, 0));
        marks.event(&event("rejected", json!({"streams": [{"code": "gap", "messages": 1}]})), None);
        assert_eq!(marks.refused().cause(1e9).unwrap().code, "gap");
        assert_eq!((marks.last_takeover("main"), marks.last_takeover("other")), (Some(1e9), None));
        let kept = rmp_serde::to_vec_named(&marks).unwrap();
        let mut later: Marks = rmp_serde::from_slice(&kept).unwrap();
        assert!(later.news().is_empty());
        (0..MARKS + 5).for_each(|_| later.event(&event("drift", json!({"critic": "main"})), None));
        assert_eq!((later.list.len(), &later.list[MARKS - 1]["number"]), (MARKS, &json!(MARKS + 6)));
        assert!(later.list.iter().all(|mark| !mark.contains_key("v")));
    }

    #[test]
    fn what_happened_to_a_critic_outlives_the_events_of_a_hundred_others() {
        let of = |kind: &str, critic: &str| event(kind, json!({"critic": critic}));
        let mut marks = Marks::default();
        marks.event(&of("adopted", "quiet"), None);
        marks.event(&of("drift", "quiet"), None);
        // As the file of an earlier version has it.
        let earlier = rmp_serde::to_vec_named(&json!({"list": marks.list, "last": marks.last})).unwrap();
        let names: Vec<String> = (0..99).map(|k| format!("arm-{k}")).collect();
        for name in &names {
            (0..OWN + 10).for_each(|_| marks.event(&of("refit_rejected", name), None));
        }
        assert_eq!(marks.of("quiet").count(), 2);
        (0..MARKS).for_each(|_| marks.event(&of("refit_rejected", "quiet"), None));
        assert!(["quiet", "arm-0", "arm-98"].iter().all(|name| marks.of(name).count() == OWN));
        assert_eq!(marks.list.len(), 100 * OWN);
        // Its own later events have displaced the change: it has not been answered all the same.
        assert!(marks.of("quiet").all(|mark| mark["event"] == "refit_rejected"));
        assert!(
            marks.alarm("quiet").is_some() && marks.last_drift("quiet").is_some() && marks.alarm("arm-0").is_none()
        );
        assert_eq!((marks.last_takeover("quiet"), marks.last_takeover("arm-0")), (Some(1e9), None));

        // After a restart without the others.
        let present = ["quiet".to_owned()];
        for (kept, count) in [(rmp_serde::to_vec_named(&marks).unwrap(), OWN), (earlier, 2)] {
            let later: Marks = rmp_serde::from_slice(&kept).unwrap();
            let mut later = later.resumed(&present);
            assert_eq!((later.list.len(), later.last_takeover("quiet")), (count, Some(1e9)));
            assert!(later.alarm("quiet").is_some());
            later.event(&of("dismissed", "quiet"), None);
            assert!(later.alarm("quiet").is_none() && later.last_drift("quiet").is_some());
        }
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
