//! Rows that were refused, on ingest and as appends: counted, reported at a bounded rate, kept for the quarantine.

use super::ports::{Now, Output, REFUSED_BYTES, event};
use crate::wire::events::{RejectedMessages, RejectedStream};
use crate::wire::{self, ErrorCode, Event, Origin, RefusedRows, WireError};
use std::collections::BTreeMap;

/// Least time between two log lines or events about refused messages, seconds.
const REPORT_INTERVAL_S: f64 = 1.0;
/// Messages kept between two looks at them.
const KEPT: usize = 64;
/// Streams that one event names.
const STREAMS: usize = 64;
/// Streams that the log names at once.
const STREAMS_LOGGED: usize = 8;
/// Streams whose last refusal is remembered for those who ask, with names and sessions of at most [`NAME_BYTES`].
const REMEMBERED: usize = 256;
/// Longest name of a stream or session that is not itself the reason of a refusal.
const NAME_BYTES: usize = 256;

/// A message that was refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Refused {
    /// Unix seconds.
    pub time: f64,
    /// Name of the error code; "learner_failed" for rows that were taken in and could not be learned.
    pub code: &'static str,
    /// Field at fault.
    pub field: Option<&'static str>,
    /// Row at fault.
    pub index: Option<usize>,
    /// A sentence for people.
    pub message: String,
    /// The message, or its beginning.
    pub payload: Vec<u8>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Refusals {
    by_code: BTreeMap<&'static str, u64>,
    since_report: u64,
    /// Uptime; none before the first report.
    reported_at: Option<f64>,
    last: Option<WireError>,
    /// What was refused since the last report, of which streams, sessions, and for which reason.
    lost: BTreeMap<Whose, Lost>,
    /// By name of the stream, with the number of the message among all that were refused.
    remembered: BTreeMap<String, (u64, RefusedRows)>,
    refused: u64,
    kept: Vec<Refused>,
}

/// Stream and session whose rows were refused, as far as they could be read, and the name of the error code.
type Whose = (Option<String>, Option<String>, &'static str);

/// What was refused.
#[derive(Clone, Debug, PartialEq)]
struct Lost {
    messages: u64,
    /// As far as the messages could be read.
    rows: u64,
    /// `seq` of the first row, if the first of these messages had one.
    seq: Option<u64>,
    /// Of the first.
    message: String,
}

impl Refusals {
    /// `payload` was refused on ingest.
    pub(super) fn refuse(&mut self, error: WireError, payload: &[u8], now: Now) {
        self.note(error, wire::origin(payload), payload, now);
    }

    /// An append was refused, which its sender hears; `payload` is the message, or its beginning. What the sender has but
    /// to send again is no loss, and does not count.
    pub(super) fn refuse_append(
        &mut self,
        error: &WireError,
        origin: impl FnOnce() -> Origin,
        payload: &[u8],
        now: Now,
    ) {
        match error.code {
            code if code.is_passing() => {}
            // Counted alone: a peer that may not append fills no quarantine, and speaks for no stream.
            ErrorCode::Unauthorised => self.count(error.clone()),
            _ => self.note(error.clone(), origin(), payload, now),
        }
    }

    fn count(&mut self, error: WireError) {
        *self.by_code.entry(error.code.name()).or_default() += 1;
        self.since_report += 1;
        self.last = Some(error);
    }

    fn note(&mut self, error: WireError, origin: Origin, payload: &[u8], now: Now) {
        let WireError { code, field, index, message, .. } = error.clone();
        self.count(error);
        let Origin { stream, session, seq, rows } = origin;
        if let (Some(stream), Some(session)) = (&stream, &session) {
            self.remember(stream, session, code.name(), &message);
        }
        let whose = (stream, session, code.name());
        if self.lost.len() < STREAMS || self.lost.contains_key(&whose) {
            let fresh = || Lost { messages: 0, rows: 0, seq, message: message.clone() };
            let lost = self.lost.entry(whose).or_insert_with(fresh);
            lost.messages += 1;
            lost.rows += rows.unwrap_or(0) as u64;
        }
        let payload = payload[..payload.len().min(REFUSED_BYTES)].to_vec();
        self.keep(Refused { time: now.unix, code: code.name(), field, index, message, payload });
    }

    /// Remember it of the stream, whose other sessions are forgotten, and so is the stream that was refused longest ago.
    fn remember(&mut self, stream: &str, session: &str, code: &'static str, message: &str) {
        if stream.len() > NAME_BYTES || session.len() > NAME_BYTES {
            return;
        }
        self.refused += 1;
        let before = self.remembered.remove(stream).filter(|(_, rows)| rows.session == session);
        let messages = before.map_or(0, |(_, rows)| rows.messages) + 1;
        if self.remembered.len() == REMEMBERED
            && let Some(oldest) = self.remembered.iter().min_by_key(|(_, (number, _))| *number)
        {
            let oldest = oldest.0.clone();
            self.remembered.remove(&oldest);
        }
        let rows = RefusedRows { session: session.to_owned(), code, message: message.to_owned(), messages };
        self.remembered.insert(stream.to_owned(), (self.refused, rows));
    }

    /// What was refused last of the streams of these names, as far as that is remembered.
    pub(super) fn of(&self, names: &[String]) -> BTreeMap<String, RefusedRows> {
        let found = |name: &String| Some((name.clone(), self.remembered.get(name)?.1.clone()));
        names.iter().filter_map(found).collect()
    }

    /// Keep a message, unless there are too many since the last [`Refusals::take`].
    pub(super) fn keep(&mut self, refused: Refused) {
        if self.kept.len() < KEPT {
            self.kept.push(refused);
        }
    }

    /// What has been kept since this was asked last.
    pub(super) fn take(&mut self) -> Vec<Refused> {
        std::mem::take(&mut self.kept)
    }

    /// Messages so far by the name of their error code.
    pub(super) fn by_code(&self) -> BTreeMap<String, u64> {
        self.by_code.iter().map(|(code, count)| ((*code).to_owned(), *count)).collect()
    }

    /// The event about those since the last one, if it is time; with `at_once` it always is.
    pub(super) fn report(&mut self, at_once: bool, now: Now) -> Option<Output> {
        let recent = self.reported_at.is_some_and(|at| now.uptime - at < REPORT_INTERVAL_S);
        if recent && !at_once {
            return None;
        }
        let last = self.last.take()?;
        let mut streams: Vec<&str> = self.lost.keys().filter_map(|(stream, ..)| stream.as_deref()).collect();
        streams.dedup();
        let others = streams.len().saturating_sub(STREAMS_LOGGED);
        streams.truncate(STREAMS_LOGGED);
        let more = if others > 0 { format!(" and {others} more") } else { String::new() };
        let named = format!("{}{more}", streams.join(", "));
        log::warn!("event=rejected messages={} streams={named:?} last={last}", self.since_report);
        let rejected = RejectedMessages {
            messages: self.since_report,
            code: last.code.name().to_owned(),
            message: last.message,
            field: last.field.map(str::to_owned),
            index: last.index.map(|index| index as u64),
            by_code: self.by_code(),
            streams: std::mem::take(&mut self.lost).into_iter().map(entry).collect(),
        };
        (self.since_report, self.reported_at) = (0, Some(now.uptime));
        Some(event(Event::Rejected(rejected), now))
    }
}

/// As the event has it.
fn entry(((stream, session, code), lost): (Whose, Lost)) -> RejectedStream {
    let Lost { messages, rows, seq, message } = lost;
    RejectedStream { stream, session, code: code.to_owned(), messages, rows, seq, message }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn refused_messages_are_counted_kept_and_reported_now_and_then() {
        let mut refusals = Refusals::default();
        let at = |uptime| Now { uptime, unix: 1e9 + uptime };
        assert!(refusals.report(true, at(0.0)).is_none(), "nothing was refused");
        let error = WireError::of(ErrorCode::WrongDimension, "state", "too long");
        for k in 0..100 {
            refusals.refuse(error.clone(), &[7; 2 * REFUSED_BYTES], at(0.001 * f64::from(k)));
        }
        assert!(refusals.report(false, at(0.2)).is_some());
        refusals.refuse(error, b"", at(0.3));
        assert!(refusals.report(false, at(0.4)).is_none(), "too soon after the last one");
        assert!(refusals.report(true, at(0.4)).is_some());
        assert_eq!(refusals.by_code()["wrong_dimension"], 101);
        let kept = refusals.take();
        assert_eq!((kept.len(), kept[0].payload.len(), refusals.take().len()), (KEPT, REFUSED_BYTES, 0));
    }

    #[test]
    fn an_append_counts_unless_its_sender_has_but_to_send_it_again() {
        let (mut refusals, now) = (Refusals::default(), Now { uptime: 5.0, unix: 1e9 });
        let origin = || Origin { stream: Some("a".into()), session: Some("s".into()), seq: Some(3), rows: Some(2) };
        for code in ErrorCode::ALL {
            refusals.refuse_append(&WireError::new(code, "no"), origin, b"rows", now);
        }
        let counted = refusals.by_code();
        let passing = ["sequence_gap", "overloaded", "not_ready", "read_only"];
        assert_eq!(counted.len(), ErrorCode::ALL.len() - passing.len());
        assert!(passing.iter().all(|code| !counted.contains_key(*code)) && counted.values().all(|&count| count == 1));
        // Who may not append is counted, and that is all.
        assert!(counted.contains_key("unauthorised"));
        let kept = refusals.take();
        assert_eq!((kept.len(), &kept[0].payload[..]), (counted.len() - 1, &b"rows"[..]));
        assert!(kept.iter().all(|kept| kept.code != "unauthorised"));
        assert_eq!(refusals.of(&["a".to_owned()])["a"].messages, kept.len() as u64);
    }

    #[test]
    fn the_event_names_streams_sessions_and_rows() {
        let mut refusals = Refusals::default();
        let now = Now { uptime: 5.0, unix: 1e9 };
        let rows = |stream: &str, seq: u64, rewards: &[f64]| {
            let states = vec![vec![0.0]; rewards.len() + 1];
            let fields = json!({"stream": stream, "session": "s", "seq": seq, "states": states, "rewards": rewards});
            wire::encode_request(1, "append", fields.as_object().unwrap())
        };
        let fenced = || WireError::of(ErrorCode::Fenced, "session", "a newer session");
        refusals.refuse(fenced(), &rows("a", 7, &[1.0, 2.0]), now);
        refusals.refuse(fenced(), &rows("a", 9, &[1.0]), now);
        refusals.refuse(WireError::new(ErrorCode::NotFinite, "NaN"), &rows("b", 0, &[1.0]), now);
        refusals.refuse(WireError::new(ErrorCode::Malformed, "no map"), b"\xc1", now);
        let told = |output: Option<Output>| {
            let Some(Output::Event(dated)) = output else { panic!("an event was expected") };
            let Event::Rejected(rejected) = dated.event else { panic!("of this kind") };
            rejected
        };
        let rejected = told(refusals.report(false, now));
        let of = |stream: Option<&str>, code: &str, (messages, rows, seq): (u64, u64, Option<u64>), message: &str| {
            let session = stream.map(|_| "s".to_owned());
            let (stream, code, message) = (stream.map(str::to_owned), code.to_owned(), message.to_owned());
            RejectedStream { stream, session, code, messages, rows, seq, message }
        };
        let expected = [
            of(None, "malformed", (1, 0, None), "no map"),
            of(Some("a"), "fenced", (2, 3, Some(7)), "a newer session"),
            of(Some("b"), "not_finite", (1, 1, Some(0)), "NaN"),
        ];
        assert_eq!((&rejected.streams[..], rejected.messages), (&expected[..], 4));
        // Who asks later, because the event came before the subscription, learns it by name.
        let remembered = refusals.of(&["a", "z", "b"].map(str::to_owned));
        assert_eq!(remembered.keys().collect::<Vec<_>>(), ["a", "b"]);
        let RefusedRows { session, code, message, messages } = &remembered["a"];
        assert_eq!((session.as_str(), *code, message.as_str(), *messages), ("s", "fenced", "a newer session", 2));
        for k in 0..REMEMBERED {
            refusals.refuse(fenced(), &rows(&format!("other-{k}"), 0, &[1.0]), now);
            refusals.refuse(fenced(), &rows("b", 9, &[1.0]), now);
        }
        let remembered = refusals.of(&["a", "other-0", "b"].map(str::to_owned));
        assert_eq!(remembered.keys().collect::<Vec<_>>(), ["b"], "the oldest are forgotten");
        assert_eq!((remembered["b"].messages, refusals.remembered.len()), (1 + REMEMBERED as u64, REMEMBERED));
        drop(refusals.report(true, now));
        refusals.refuse(fenced(), &rows("c", 0, &[1.0]), now);
        assert_eq!(told(refusals.report(true, now)).streams.len(), 1);
    }
}
