//! What is said of changes of the world: events, log lines and what `status` has.

use super::ports::{Now, Output, event};
use crate::learner::tracking::Opening;
use crate::learner::{Alarm, Event, Learner, Moved};
use crate::math::drift::Statistic;
use crate::state::streams::Streams;
use crate::wire;
use crate::wire::status::{DriftAlarm, DriftStatus, MovedVariable, TrackingStatus};
use criticd_learner::transition::name_of_state;

/// Seconds between two lines of the log that say that a critic's dictionary is full: each new model fills it again.
const FULL_INTERVAL_S: f64 = 3600.0;

/// Alarms of one critic since the start.
#[derive(Debug, Default)]
pub(super) struct DriftDesk {
    alarms: u64,
    /// The last one; none before it.
    last: Option<DriftAlarm>,
    /// Seconds after the start at which the log last said that its dictionary is full.
    full_logged_at: Option<f64>,
}

impl DriftDesk {
    /// An alarm was raised: publish it.
    pub(super) fn alarm(
        &mut self,
        learner: &Learner,
        streams: &Streams,
        alarm: &Alarm,
        now: Now,
        out: &mut Vec<Output>,
    ) {
        let Alarm { offset, reward, finding, variables, streams: numbers } = alarm;
        let settings = learner.settings();
        let (name, size) = (&settings.name, finding.size * finding.unit);
        let names = numbers.iter().filter_map(|&number| streams.name(number));
        let streams: Vec<String> = names.map(str::to_owned).collect();
        let what = match finding.statistic {
            Statistic::Higher => "rewards are higher than the model expects",
            Statistic::Lower => "rewards are lower than the model expects",
            Statistic::Wider => "rewards differ more from what the model expects",
        };
        log::warn!(
            "event=drift critic={name} offset={offset} since={} size={size:.3} streams={streams:?} what={what:?}",
            finding.since
        );
        self.alarms += 1;
        let alarm = DriftAlarm {
            critic: name.clone(),
            offset: *offset,
            since: finding.since,
            reward: settings.rewards[*reward] as u64,
            statistic: word(finding.statistic).to_owned(),
            size,
            level: finding.level,
            variables: variables.iter().map(|moved| variable(learner, moved)).collect(),
            streams,
        };
        self.last = Some(alarm.clone());
        out.push(event(wire::Event::Drift(alarm), now));
    }

    /// What `status` says of the changes that a critic with a model has seen.
    pub(super) fn status(&self, learner: &Learner) -> DriftStatus {
        let settings = learner.settings();
        let threshold = settings.drift_sensitivity.threshold().map(|c| c + (settings.rewards.len() as f64).ln());
        DriftStatus {
            sensitivity: settings.drift_sensitivity.name().to_owned(),
            level: learner.drift().map(|(_, finding)| finding.level),
            threshold,
            forked: learner.is_forked(),
            changed_at: learner.changed_at(),
            kept_models: learner.kept_models().map(|(name, _)| name.to_owned()).collect(),
            alarms: self.alarms,
            last: self.last.clone(),
            tracking: learner.model().and_then(|model| model.openings()).map(|openings| TrackingStatus {
                gate: openings.iter().map(|opening| opening.gate).collect(),
                half_life: openings.iter().map(Opening::half_life).collect(),
            }),
        }
    }

    /// What a learner noticed, in the log and as an event.
    pub(super) fn report(&mut self, learner: &Learner, happened: Event, now: Now, out: &mut Vec<Output>) {
        let name = &learner.settings().name;
        match happened {
            Event::FirstModel => log::info!("event=first_model critic={name} offset={}", learner.learned()),
            Event::DictionaryFull => {
                let size = learner.model().map_or(0, |model| model.dictionary().len());
                let generation = learner.generation();
                if self.full_logged_at.is_none_or(|at| now.uptime - at >= FULL_INTERVAL_S) {
                    self.full_logged_at = Some(now.uptime);
                    log::info!(
                        "event=dictionary_full critic={name} size={size} generation={generation} hint=\"the next refit chooses again; raise dictionary_max to keep more\""
                    );
                }
                let (critic, size) = (name.clone(), size as u64);
                out.push(event(wire::Event::DictionaryFull { critic, size, generation }, now));
            }
            Event::NewPolicy { offset, policy } => {
                let generation = learner.generation();
                let told = policy.as_deref().unwrap_or("");
                log::info!("event=new_policy critic={name} offset={offset} policy={told:?} generation={generation}");
                let critic = name.clone();
                out.push(event(wire::Event::NewPolicy { critic, offset, policy, generation }, now));
            }
            change => report_change(learner, change, now, out),
        }
    }
}

/// Log and publish fork, dismissal, swap and return; ignore other events.
fn report_change(learner: &Learner, happened: Event, now: Now, out: &mut Vec<Output>) {
    let (critic, generation) = (learner.settings().name.clone(), learner.generation());
    let said = |kind: &str, offset: u64, what: String| {
        log::info!("event={kind} critic={} offset={offset} what={what:?}", learner.settings().name);
    };
    let change = match happened {
        Event::Forked { from, at: offset } => {
            said("forked", offset, format!("a second model learns the rows from {from} on"));
            wire::Event::Forked { critic, offset, from }
        }
        Event::Dismissed { from, at: offset } => {
            said("dismissed", offset, "the second model predicts no better: the first one stays".to_owned());
            wire::Event::Dismissed { critic, offset, from }
        }
        Event::Swapped { from, at: offset, kept } => {
            said("swapped", offset, format!("the model of the rows from {from} on answers"));
            wire::Event::Swapped { critic, offset, from, kept, generation }
        }
        Event::Returned { name: model, until, at: offset, kept } => {
            said("returned", offset, format!("the model {model} predicts better again, and answers"));
            wire::Event::Returned { critic, offset, model, until, kept, generation }
        }
        _ => return,
    };
    out.push(event(change, now));
}

/// A state variable that moved: its size is in standard deviations of the variable.
fn variable(learner: &Learner, Moved { variable, finding }: &Moved) -> MovedVariable {
    let names = learner.model().and_then(|model| model.inputs().names.as_deref());
    let name = name_of_state(names, *variable);
    MovedVariable {
        variable: *variable as u64,
        name,
        statistic: word(finding.statistic).to_owned(),
        since: finding.since,
        size: finding.size,
    }
}

/// The word used on the wire.
fn word(statistic: Statistic) -> &'static str {
    match statistic {
        Statistic::Higher => "higher",
        Statistic::Lower => "lower",
        Statistic::Wider => "wider",
    }
}
