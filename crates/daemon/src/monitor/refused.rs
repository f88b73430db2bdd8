//! Why messages were refused in the last minutes, and of which streams: what events `rejected` say.

use crate::wire::events::{RejectedMessages, RejectedStream};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};

/// Seconds for which messages that were refused are a reason for care.
const REFUSED_S: f64 = 600.0;
/// Entries kept; the oldest give way.
const ENTRIES: usize = 4096;
/// Characters kept of a stream's name.
const NAME_CHARS: usize = 64;
/// Streams that are named.
const NAMED: usize = 3;

/// Messages of one stream that were refused for one reason.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    /// Unix seconds.
    time: f64,
    /// Name of the error code.
    code: String,
    /// None where it could not be read.
    stream: Option<String>,
    messages: u64,
}

/// See the module.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Refused {
    /// Unix seconds of each event of the last minutes, and the messages of which it is.
    counts: VecDeque<(f64, u64)>,
    /// Another run does not know them.
    #[serde(skip)]
    entries: VecDeque<Entry>,
}

/// The reason for which most messages of the last minutes were refused.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Cause {
    /// Name of the error code.
    pub(super) code: String,
    /// Some of the streams, those with most messages first.
    pub(super) streams: Vec<String>,
    /// Streams beside these.
    pub(super) more: usize,
    /// Whether there were other reasons.
    pub(super) others: bool,
}

impl Refused {
    /// Keep what an event `rejected` says.
    pub(super) fn event(&mut self, time: f64, rejected: &RejectedMessages) {
        self.entries.extend(rejected.streams.iter().map(|of| entry(time, of)));
        self.entries.drain(..self.entries.len().saturating_sub(ENTRIES));
        while self.entries.front().is_some_and(|entry| entry.time < time - REFUSED_S) {
            self.entries.pop_front();
        }
        self.counts.push_back((time, rejected.messages));
        while self.counts.front().is_some_and(|(then, _)| *then < time - REFUSED_S) {
            self.counts.pop_front();
        }
    }

    /// Messages that were refused in the ten minutes before a Unix time.
    pub(super) fn lately(&self, now: f64) -> u64 {
        self.counts.iter().filter(|(time, _)| *time >= now - REFUSED_S).map(|(_, messages)| messages).sum()
    }

    /// Why most of those were refused that came in the ten minutes before a Unix time; none where that is not known.
    pub(super) fn cause(&self, now: f64) -> Option<Cause> {
        let mut codes: BTreeMap<&str, (u64, BTreeMap<&str, u64>)> = BTreeMap::new();
        for entry in self.entries.iter().filter(|entry| entry.time >= now - REFUSED_S) {
            let (messages, streams) = codes.entry(&entry.code).or_default();
            *messages += entry.messages;
            if let Some(stream) = &entry.stream {
                *streams.entry(stream).or_default() += entry.messages;
            }
        }
        let others = codes.len() > 1;
        let (code, (_, streams)) = codes.into_iter().max_by_key(|(_, (messages, _))| *messages)?;
        let mut streams: Vec<(&str, u64)> = streams.into_iter().collect();
        streams.sort_by_key(|(_, messages)| std::cmp::Reverse(*messages));
        let more = streams.len().saturating_sub(NAMED);
        let streams = streams.into_iter().take(NAMED).map(|(name, _)| name.to_owned()).collect();
        Some(Cause { code: code.to_owned(), streams, more, others })
    }
}

fn entry(time: f64, of: &RejectedStream) -> Entry {
    let stream = of.stream.as_ref().map(|name| name.chars().take(NAME_CHARS).collect());
    Entry { time, code: of.code.clone(), stream, messages: of.messages }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(stream: Option<&str>, code: &str, messages: u64) -> RejectedStream {
        RejectedStream { stream: stream.map(str::to_owned), code: code.into(), messages, ..RejectedStream::default() }
    }

    #[test]
    fn the_cause_is_that_of_the_last_minutes_and_names_its_streams() {
        let mut refused = Refused::default();
        assert_eq!(refused.cause(1e9), None);
        let event = |refused: &mut Refused, seconds: f64, streams: Vec<RejectedStream>| {
            let messages = streams.iter().map(|of| of.messages).sum();
            refused.event(1e9 + seconds, &RejectedMessages { messages, streams, ..RejectedMessages::default() });
        };
        event(&mut refused, 0.0, vec![list(Some("old"), "wrong_dimension", 5000)]);
        event(&mut refused, 1000.0, vec![list(Some("arm"), "fenced", 2), list(None, "malformed", 1)]);
        let cause = refused.cause(1e9 + 1001.0).unwrap();
        assert_eq!(
            (cause.code.as_str(), cause.streams, cause.more, cause.others),
            ("fenced", vec!["arm".into()], 0, true)
        );
        event(&mut refused, 1100.0, (1..6).map(|k| list(Some(&format!("s{k}")), "gap", k)).collect());
        let cause = refused.cause(1e9 + 1101.0).unwrap();
        assert_eq!((cause.streams, cause.more), (["s5", "s4", "s3"].map(str::to_owned).to_vec(), 2));
        assert_eq!((refused.lately(1e9 + 1101.0), refused.lately(1e9 + 1650.0)), (18, 15));
        assert_eq!(refused.cause(1e9 + 2000.0), None, "they have not come lately");
        let long = "x".repeat(10_000);
        (0..100).for_each(|_| {
            event(&mut refused, 2000.0, (0..64).map(|_| list(Some(&long), "gap", 1)).collect());
        });
        assert_eq!(
            (refused.entries.len(), refused.cause(1e9 + 2000.0).unwrap().streams[0].len()),
            (ENTRIES, NAME_CHARS)
        );
    }
}
