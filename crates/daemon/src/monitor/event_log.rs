//! Events as the page lists them: selections with what they changed, and changes of the world.

use super::refused::Refused;
use super::trust::{DatedAlarm, unlike};
use crate::wire::status::{CriticStatus, KernelStatus, ModelStatus, NoiseStatus};
use crate::wire::{DatedEvent, Event, Status};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};

/// Events kept as marks of all critics together. Where there are more, a critic keeps its own newest [`OWN`] all the same: of a hundred
/// critics, what happens to the others would else displace what happened to one.
const MARKS: usize = 100;
const OWN: usize = 20;
/// With more state variables than this an adoption does not say what became of the kernel.
const KERNEL_DIM: usize = 64;

/// An event as the page lists it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Mark {
    /// Counted from 1.
    number: u64,
    #[serde(flatten)]
    of: DatedEvent,
    /// Of an adoption: the kernel that it replaced, and the one that was adopted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kernel_before: Option<MarkedKernel>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    kernel_after: Option<MarkedKernel>,
    /// Of a change of the world: what it says, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unlike: Option<String>,
}

/// What a mark says of a kernel.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct MarkedKernel {
    kernel: KernelStatus,
    noise: NoiseStatus,
    scale: Vec<f64>,
    dictionary_size: u64,
}

/// The newest events, oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Marks {
    #[serde(deserialize_with = "readable_marks")]
    list: VecDeque<Mark>,
    /// Number of the last one.
    last: u64,
    /// Of each critic by its name, as far as something has happened to it. A file of an earlier version has none of them.
    #[serde(default)]
    standing: BTreeMap<String, Standing>,
    /// Numbers of the marks that have changed since the last [`Marks::news`].
    #[serde(skip)]
    changed: Vec<u64>,
    #[serde(default)]
    refused: Refused,
}

/// How things stand with a critic. It is kept beside the events, since what follows may displace those that say so.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Standing {
    /// The last change of the world that it has noticed.
    #[serde(deserialize_with = "readable")]
    drift: Option<DatedAlarm>,
    /// Whether no model has answered that change yet.
    alarmed: bool,
    /// Unix time at which a model took over last.
    takeover: Option<f64>,
}

impl Marks {
    /// Those that an earlier run has kept, of the critics that are still there.
    pub(super) fn resumed(mut self, critics: &[String]) -> Self {
        let is_there = |name: &str| critics.iter().any(|critic| critic == name);
        self.list.retain(|mark| mark.of.event.critic().is_none_or(is_there));
        self.standing.retain(|name, _| is_there(name));
        if self.standing.is_empty() {
            let Self { list, standing, .. } = &mut self;
            list.iter().for_each(|mark| stand(standing, &mark.of));
        }
        self
    }

    /// Keep an event. `before` is the last status, which has the kernel that an adoption replaces.
    pub(super) fn event(&mut self, of: DatedEvent, before: Option<&Status>) {
        let (mut kernel_before, mut unlike_words) = (None, None);
        match &of.event {
            Event::Rejected(rejected) => return self.refused.event(of.time, rejected),
            // They come often, and would displace the others.
            Event::Checkpoint { .. } | Event::RefitStarted { .. } | Event::Alarm(_) | Event::AlarmEnded(_) => return,
            Event::Adopted(refit) => {
                kernel_before = before.and_then(|status| status.critic(&refit.critic)).and_then(kernel);
            }
            Event::Drift(alarm) => unlike_words = Some(unlike(alarm)),
            _ => {}
        }
        self.last += 1;
        self.changed.push(self.last);
        stand(&mut self.standing, &of);
        self.list.push_back(Mark { number: self.last, of, kernel_before, kernel_after: None, unlike: unlike_words });
        self.forget();
    }

    /// Where there are more than [`MARKS`], drop the oldest of a critic that has more than its own. One event adds one mark, so that
    /// one is enough.
    fn forget(&mut self) {
        if self.list.len() <= MARKS {
            return;
        }
        let mut counts: BTreeMap<Option<&str>, usize> = BTreeMap::new();
        for mark in &self.list {
            *counts.entry(mark.of.event.critic()).or_default() += 1;
        }
        let place = self.list.iter().position(|mark| counts[&mark.of.event.critic()] > OWN);
        if let Some(mark) = place.and_then(|place| self.list.remove(place)) {
            // Only the page calls `news`: without one, numbers of dropped marks would pile up.
            self.changed.retain(|&number| number != mark.number);
        }
    }

    /// The first status after an adoption has the kernel that was adopted. A status of a later generation has another.
    pub(super) fn complete(&mut self, status: &Status) {
        for mark in self.list.iter_mut().filter(|mark| mark.kernel_after.is_none()) {
            let Event::Adopted(refit) = &mark.of.event else { continue };
            let critic = status.critic(&refit.critic).filter(|critic| critic.generation == refit.generation);
            if let Some(kernel) = critic.and_then(kernel) {
                mark.kernel_after = Some(kernel);
                self.changed.push(mark.number);
            }
        }
    }

    /// The alarm that no model of a critic has answered yet. What follows on a change of the world says in turn how things stand.
    pub(super) fn alarm(&self, critic: &str) -> Option<&DatedAlarm> {
        self.standing.get(critic).filter(|standing| standing.alarmed)?.drift.as_ref()
    }

    /// Unix time of the last change of the world that a critic has noticed.
    pub(super) fn last_drift(&self, critic: &str) -> Option<f64> {
        Some(self.standing.get(critic)?.drift.as_ref()?.time)
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
    pub(super) fn of<'a>(&'a self, critic: &'a str) -> impl Iterator<Item = &'a Mark> {
        self.list.iter().filter(move |mark| mark.concerns(critic))
    }

    /// Those that have changed since the last time.
    pub(super) fn news(&mut self) -> Vec<Mark> {
        let changed = std::mem::take(&mut self.changed);
        self.list.iter().filter(|mark| changed.contains(&mark.number)).cloned().collect()
    }
}

impl Mark {
    /// Whether it is of this critic, or of none.
    pub(crate) fn concerns(&self, critic: &str) -> bool {
        self.of.event.critic().is_none_or(|name| name == critic)
    }
}

/// Note how things stand with a critic after an event: the last that follows on a change of the world says it.
fn stand(standing: &mut BTreeMap<String, Standing>, DatedEvent { time, event }: &DatedEvent) {
    let (alarmed, takes_over) = match event {
        Event::Drift(_) | Event::Forked { .. } => (true, false),
        Event::Dismissed { .. } | Event::NewPolicy { .. } => (false, false),
        Event::Adopted(_) | Event::Swapped { .. } | Event::Returned { .. } => (false, true),
        _ => return,
    };
    let standing = standing.entry(event.critic().unwrap_or_default().to_owned()).or_default();
    standing.alarmed = alarmed;
    if let Event::Drift(alarm) = event {
        standing.drift = Some(DatedAlarm { time: *time, alarm: alarm.clone() });
    }
    if takes_over {
        standing.takeover = Some(*time);
    }
}

/// The kernel of a critic's model, if it is small enough to be remembered.
fn kernel(critic: &CriticStatus) -> Option<MarkedKernel> {
    let ModelStatus { kernel, noise, inputs, dictionary_size, .. } = critic.model.as_ref()?;
    (inputs.scale.len() <= KERNEL_DIM).then(|| MarkedKernel {
        kernel: kernel.clone(),
        noise: noise.clone(),
        scale: inputs.scale.clone(),
        dictionary_size: *dictionary_size,
    })
}

/// The marks of a file of any version that this one understands.
fn readable_marks<'de, D: Deserializer<'de>>(file: D) -> Result<VecDeque<Mark>, D::Error> {
    let list = Vec::<Value>::deserialize(file)?;
    Ok(list.into_iter().filter_map(|mark| serde_json::from_value(mark).ok()).collect())
}

/// What a file of any version has, if this one understands it.
fn readable<'de, D: Deserializer<'de>, T: DeserializeOwned>(file: D) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(file)?).ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::events::{RejectedMessages, RejectedStream};
    use crate::wire::status::{DriftAlarm, LastRefit};
    use serde_json::json;

    fn at(event: Event) -> DatedEvent {
        DatedEvent { time: 1e9, event }
    }

    fn refit(critic: &str, generation: u64) -> Box<LastRefit> {
        Box::new(LastRefit { critic: critic.into(), generation, ..LastRefit::default() })
    }

    fn drift(critic: &str) -> DatedEvent {
        at(Event::Drift(DriftAlarm { critic: critic.into(), ..DriftAlarm::default() }))
    }

    fn rejected(critic: &str) -> DatedEvent {
        at(Event::RefitRejected(refit(critic, 1)))
    }

    #[test]
    fn selections_outlive_what_comes_often_and_another_run() {
        let mut marks = Marks::default();
        marks.event(at(Event::Adopted(refit("main", 2))), None);
        let checkpoint = Event::Checkpoint { offset: 1, bytes: 1, seconds: 1.0 };
        (0..300).for_each(|_| marks.event(at(checkpoint.clone()), None));
        assert_eq!((marks.list.len(), marks.news().len(), marks.news().len()), (1, 1, 0));
        let streams = vec![RejectedStream { code: "gap".into(), messages: 1, ..RejectedStream::default() }];
        marks.event(at(Event::Rejected(RejectedMessages { streams, ..RejectedMessages::default() })), None);
        assert_eq!(marks.refused().cause(1e9).unwrap().code, "gap");
        assert_eq!((marks.last_takeover("main"), marks.last_takeover("other")), (Some(1e9), None));
        let kept = rmp_serde::to_vec_named(&marks).unwrap();
        let mut later: Marks = rmp_serde::from_slice(&kept).unwrap();
        assert!(later.news().is_empty());
        assert_eq!(json!(later.list[0]), json!(marks.list[0]));
        (0..MARKS + 5).for_each(|_| later.event(drift("main"), None));
        assert_eq!((later.list.len(), later.list[MARKS - 1].number), (MARKS, MARKS as u64 + 6));
        let page = json!(later.list[0]);
        assert!(page.get("v").is_none() && page["event"] == "drift" && page["time"] == 1e9, "{page}");
    }

    #[test]
    fn what_happened_to_a_critic_outlives_the_events_of_a_hundred_others() {
        let mut marks = Marks::default();
        marks.event(at(Event::Adopted(refit("quiet", 1))), None);
        marks.event(drift("quiet"), None);
        // As the file of an earlier version has it, and with what no version has.
        let mut list: Vec<Value> = marks.list.iter().map(|mark| json!(mark)).collect();
        list.extend([json!({}), json!({"event": "of_yesterday", "time": 1.0, "number": 9})]);
        let earlier = rmp_serde::to_vec_named(&json!({"list": list, "last": marks.last})).unwrap();
        let names: Vec<String> = (0..99).map(|k| format!("arm-{k}")).collect();
        for name in &names {
            (0..OWN + 10).for_each(|_| marks.event(rejected(name), None));
        }
        assert_eq!(marks.of("quiet").count(), 2);
        (0..MARKS).for_each(|_| marks.event(rejected("quiet"), None));
        assert!(["quiet", "arm-0", "arm-98"].iter().all(|name| marks.of(name).count() == OWN));
        assert_eq!(marks.list.len(), 100 * OWN);
        assert_eq!(marks.changed.len(), marks.list.len(), "of marks that are gone nothing is news");
        // Its own later events have displaced the change: it has not been answered all the same.
        assert!(marks.of("quiet").all(|mark| matches!(mark.of.event, Event::RefitRejected(_))));
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
            later.event(at(Event::Dismissed { critic: "quiet".into(), offset: 9, from: 3 }), None);
            assert!(later.alarm("quiet").is_none() && later.last_drift("quiet").is_some());
        }
    }

    #[test]
    fn an_adoption_has_the_kernel_of_its_own_generation() {
        let mut marks = Marks::default();
        for generation in [2, 3] {
            marks.event(at(Event::Adopted(refit("main", generation))), None);
        }
        marks.news();
        let critic = CriticStatus {
            name: "main".into(),
            generation: 3,
            model: Some(ModelStatus::default()),
            ..CriticStatus::default()
        };
        marks.complete(&Status { critics: vec![critic], ..Status::default() });
        let news = marks.news();
        assert_eq!((news.len(), news[0].number, json!(news[0])["generation"].as_u64()), (1, 2, Some(3)));
        assert!(news[0].kernel_after.is_some() && news[0].kernel_before.is_none());
    }
}
