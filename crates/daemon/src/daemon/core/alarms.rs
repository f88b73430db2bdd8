//! What is said of returns that are foretold to fall too low: events, log lines and what `status` has.

use super::ports::{Now, Output, event};
use crate::learner::warning::{Warner, Warnings};
use crate::learner::{Learner, Warning};
use crate::state::streams::Streams;
use crate::wire::Event;
use crate::wire::events::ForetoldFall;
use crate::wire::status::AlarmStatus;

/// Streams with an alarm that `status` names.
const NAMED_MAX: usize = 8;

/// An alarm is raised or ends: log and publish it.
pub(super) fn report(learner: &Learner, streams: &Streams, of: Warning, now: Now, out: &mut Vec<Output>) {
    let Warning { head, stream, offset, since, raised, value, below } = of;
    let (name, stream) = (&learner.settings().name, streams.name(stream).unwrap_or_default());
    let whose = head.as_ref().map(|head| format!(" head={head:?}")).unwrap_or_default();
    let kind = if raised { "alarm" } else { "alarm_ended" };
    let foretold = value.map(|value| format!(" value={value:.4}")).unwrap_or_default();
    log::info!(
        "event={kind} critic={name}{whose} stream={stream:?} offset={offset} since={since} below={below}{foretold}"
    );
    let fall = ForetoldFall { critic: name.clone(), head, stream: stream.to_owned(), offset, since, value, below };
    out.push(event(if raised { Event::Alarm(fall) } else { Event::AlarmEnded(fall) }, now));
}

/// What `status` says of the alarms of a critic.
pub(super) fn status(learner: &Learner, streams: &Streams) -> Vec<AlarmStatus> {
    let known = |name: &str| learner.settings().heads.iter().any(|head| head.name == name);
    let of = |warner: &Warner| {
        let (settings, record) = (warner.settings(), warner.record());
        let on = warner.streams();
        AlarmStatus {
            head: settings.head.clone(),
            unknown: settings.head.as_ref().is_some_and(|head| !known(head)),
            below: settings.below,
            false_alarms: settings.false_alarms,
            missing: warner.missing(),
            on: on.len() as u64,
            streams: on.filter_map(|stream| streams.name(stream).map(str::to_owned)).take(NAMED_MAX).collect(),
            raised: record.raised,
            hits: record.hits,
            mistaken: record.mistaken,
            stayed: record.stayed,
            false_share: record.false_share(),
            fell: record.fell,
            missed: record.missed,
            lead_rows: (record.hits > 0).then_some(record.lead_rows),
            lead_s: (record.timed > 0).then_some(record.lead_s),
        }
    };
    learner.warnings().into_iter().flat_map(Warnings::iter).map(of).collect()
}
