//! Why messages were refused in the last minutes, and of which streams: what events `rejected` say.

use serde_json::{Map, Value};
use std::collections::{BTreeMap, VecDeque};

/// Seconds for which messages that were refused are a reason for care.
pub(super) const REFUSED_S: f64 = 600.0;
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
#[derive(Clone, Debug, Default)]
pub(super) struct Refused {
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
    pub(super) fn event(&mut self, event: &Map<String, Value>) {
        let time = event.get("time").and_then(Value::as_f64).unwrap_or(0.0);
        let lists = event.get("streams").and_then(Value::as_array).into_iter().flatten();
        self.entries.extend(lists.filter_map(Value::as_object).filter_map(|of| entry(time, of)));
        self.entries.drain(..self.entries.len().saturating_sub(ENTRIES));
        while self.entries.front().is_some_and(|entry| entry.time < time - REFUSED_S) {
            self.entries.pop_front();
        }
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

fn entry(time: f64, of: &Map<String, Value>) -> Option<Entry> {
    let code = of.get("code")?.as_str()?.to_owned();
    let stream = of.get("stream").and_then(Value::as_str).map(|name| name.chars().take(NAME_CHARS).collect());
    Some(Entry { time, code, stream, messages: of.get("messages")?.as_u64()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn rejected(time: f64, lists: &Value) -> Map<String, Value> {
        let event = json!({"time": time, "messages": 1, "code": "malformed", "streams": lists});
        event.as_object().unwrap().clone()
    }

    fn list(stream: Option<&str>, code: &str, messages: u64) -> Value {
        json!({"stream": stream, "session": null, "code": code, "messages": messages, "rows": 0})
    }

    #[test]
    fn the_cause_is_that_of_the_last_minutes_and_names_its_streams() {
        let mut refused = Refused::default();
        assert_eq!(refused.cause(1e9), None);
        refused.event(&rejected(1e9, &json!([list(Some("old"), "wrong_dimension", 5000)])));
        refused.event(&rejected(1e9 + 1000.0, &json!([list(Some("arm"), "fenced", 2), list(None, "malformed", 1)])));
        let cause = refused.cause(1e9 + 1001.0).unwrap();
        assert_eq!(
            (cause.code.as_str(), cause.streams, cause.more, cause.others),
            ("fenced", vec!["arm".into()], 0, true)
        );
        refused.event(&rejected(1e9 + 1100.0, &(1..6).map(|k| list(Some(&format!("s{k}")), "gap", k)).collect()));
        let cause = refused.cause(1e9 + 1101.0).unwrap();
        assert_eq!((cause.streams, cause.more), (["s5", "s4", "s3"].map(str::to_owned).to_vec(), 2));
        assert_eq!(refused.cause(1e9 + 2000.0), None, "they have not come lately");
        let long = "x".repeat(10_000);
        (0..100).for_each(|_| {
            refused.event(&rejected(1e9 + 2000.0, &(0..64).map(|_| list(Some(&long), "gap", 1)).collect()));
        });
        assert_eq!(
            (refused.entries.len(), refused.cause(1e9 + 2000.0).unwrap().streams[0].len()),
            (ENTRIES, NAME_CHARS)
        );
        refused.event(&Map::new());
    }
}
