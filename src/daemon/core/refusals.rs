//! Messages that ingest refused: counted, reported at a bounded rate, kept for the quarantine.

use super::ports::{Now, Output, event, map};
use crate::wire::WireError;
use serde_json::json;
use std::collections::BTreeMap;

/// Least time between two log lines or events about refused messages, seconds.
const REPORT_INTERVAL_S: f64 = 1.0;
/// Messages kept between two looks at them.
const KEPT: usize = 64;
/// Bytes that are kept of a message.
const BYTES: usize = 4096;

/// A message that ingest refused.
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
    kept: Vec<Refused>,
}

impl Refusals {
    /// `payload` was refused.
    pub(super) fn refuse(&mut self, error: WireError, payload: &[u8], now: Now) {
        *self.by_code.entry(error.code.name()).or_default() += 1;
        self.since_report += 1;
        let WireError { code, field, index, message, .. } = error.clone();
        let payload = payload[..payload.len().min(BYTES)].to_vec();
        self.keep(Refused { time: now.unix, code: code.name(), field, index, message, payload });
        self.last = Some(error);
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
        log::warn!("event=rejected messages={} last={last}", self.since_report);
        let details = map(json!({
            "messages": self.since_report,
            "code": last.code.name(),
            "message": last.message,
            "field": last.field,
            "index": last.index,
            "by_code": self.by_code,
        }));
        (self.since_report, self.reported_at) = (0, Some(now.uptime));
        Some(event("rejected", now, &details))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::ErrorCode;

    #[test]
    fn refused_messages_are_counted_kept_and_reported_now_and_then() {
        let mut refusals = Refusals::default();
        let at = |uptime| Now { uptime, unix: 1e9 + uptime };
        assert!(refusals.report(true, at(0.0)).is_none(), "nothing was refused");
        let error = WireError::of(ErrorCode::WrongDimension, "state", "too long");
        for k in 0..100 {
            refusals.refuse(error.clone(), &[7; 2 * BYTES], at(0.001 * f64::from(k)));
        }
        assert!(refusals.report(false, at(0.2)).is_some());
        refusals.refuse(error, b"", at(0.3));
        assert!(refusals.report(false, at(0.4)).is_none(), "too soon after the last one");
        assert!(refusals.report(true, at(0.4)).is_some());
        assert_eq!(refusals.by_code()["wrong_dimension"], 101);
        let kept = refusals.take();
        assert_eq!((kept.len(), kept[0].payload.len(), refusals.take().len()), (KEPT, BYTES, 0));
    }
}
