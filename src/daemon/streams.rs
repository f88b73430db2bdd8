//! Where each stream stands: sequence numbers, sessions, chains. Decides what is new, what is known and what is refused.

use crate::transition::Batch;
use crate::wire::{ErrorCode, StreamPosition, WireError};
use std::collections::{BTreeMap, HashMap, VecDeque};

/// Rows per stream whose content is remembered, to tell a repeated row from a conflicting one.
const FINGERPRINTS: usize = 64;
/// Former sessions per stream that are refused by name.
const FENCED_SESSIONS: usize = 16;

/// Position of one stream.
#[derive(Clone, Debug)]
struct Stream {
    number: u32,
    session: String,
    next_seq: u64,
    rows: u64,
    last_seen: f64,
    /// Successor of the last row, if that row neither terminated nor was truncated.
    open: Option<Vec<f64>>,
    /// Fingerprints of the rows before `next_seq`, newest last.
    known: VecDeque<u64>,
    fenced: VecDeque<String>,
}

impl Stream {
    fn position(&self) -> StreamPosition {
        StreamPosition {
            session: self.session.clone(),
            next_seq: self.next_seq,
            rows: self.rows,
            last_seen: self.last_seen,
        }
    }
}

/// All streams that have sent something.
#[derive(Clone, Debug)]
pub struct Streams {
    max: usize,
    by_name: HashMap<String, Stream>,
}

/// What of a batch is to be learned, decided before anything is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Rows at the beginning of the batch that are known already.
    pub duplicates: usize,
    /// Sequence number of the row behind the batch.
    pub next_seq: u64,
    /// Whether rows are missing before the first new one.
    gap: bool,
    new_session: bool,
}

impl Streams {
    /// No streams yet, at most `max` of them.
    pub fn new(max: usize) -> Self {
        Self { max, by_name: HashMap::new() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    /// Decide what of `batch` is new; nothing changes. `strict` is an append, whose sequence numbers may leave no gap; on
    /// ingest a gap only starts a new chain.
    ///
    /// # Errors
    /// `too_many_streams`, `fenced`, `sequence_gap` (with the number expected), `out_of_range` or `conflict`.
    pub fn admit(&self, batch: &Batch, strict: bool) -> Result<Admission, WireError> {
        let Some(stream) = self.by_name.get(batch.stream()) else {
            if self.by_name.len() >= self.max {
                let message = format!("{} streams are told apart already; raise streams_max or reuse names", self.max);
                return Err(WireError::of(ErrorCode::TooManyStreams, "stream", message));
            }
            return Self::fresh(batch, strict, false);
        };
        if batch.session() != stream.session {
            if stream.fenced.iter().any(|old| old == batch.session()) {
                let message = format!("session \"{}\" has been replaced by a newer one", batch.session());
                return Err(WireError::of(ErrorCode::Fenced, "session", message));
            }
            return Self::fresh(batch, strict, true);
        }
        let seq = batch.seq().unwrap_or(stream.next_seq);
        if seq > stream.next_seq && strict {
            return Err(WireError::sequence_gap(stream.next_seq));
        }
        // Where the batch brings its own number this has been checked with it.
        let Some(end) = seq.checked_add(batch.len() as u64) else {
            return Err(WireError::of(ErrorCode::OutOfRange, "seq", "the stream has no sequence numbers left"));
        };
        let duplicates = (stream.next_seq.saturating_sub(seq) as usize).min(batch.len());
        for i in 0..duplicates {
            // Position of this row counted from the newest one.
            let back = (stream.next_seq - (seq + i as u64)) as usize;
            if let Some(&known) = stream.known.len().checked_sub(back).and_then(|k| stream.known.get(k))
                && known != batch.fingerprint(i)
            {
                let message = format!("row {} was received before with other content", seq + i as u64);
                return Err(WireError::of(ErrorCode::Conflict, "seq", message).at(i));
            }
        }
        let next_seq = stream.next_seq.max(end);
        Ok(Admission { duplicates, next_seq, gap: seq > stream.next_seq, new_session: false })
    }

    fn fresh(batch: &Batch, strict: bool, new_session: bool) -> Result<Admission, WireError> {
        let seq = batch.seq().unwrap_or(0);
        if seq != 0 && strict {
            return Err(WireError::sequence_gap(0));
        }
        Ok(Admission { duplicates: 0, next_seq: seq + batch.len() as u64, gap: true, new_session })
    }

    /// Take the new rows of an admitted batch in. `push` is given the stream's number, whether the row starts a chain, and the
    /// row's index in the batch, once for each. `now` is Unix seconds.
    pub fn commit(&mut self, batch: &Batch, admission: &Admission, now: f64, mut push: impl FnMut(u32, bool, usize)) {
        let number = self.by_name.len() as u32;
        let stream = self.by_name.entry(batch.stream().to_owned()).or_insert_with(|| Stream {
            number,
            session: batch.session().to_owned(),
            next_seq: 0,
            rows: 0,
            last_seen: now,
            open: None,
            known: VecDeque::with_capacity(FINGERPRINTS),
            fenced: VecDeque::new(),
        });
        if admission.new_session {
            let old = std::mem::replace(&mut stream.session, batch.session().to_owned());
            if stream.fenced.len() == FENCED_SESSIONS {
                stream.fenced.pop_front();
            }
            stream.fenced.push_back(old);
        }
        if admission.gap {
            stream.open = None;
            stream.known.clear();
        }
        for i in admission.duplicates..batch.len() {
            let starts_chain = stream.open.as_deref() != Some(batch.state(i));
            push(stream.number, starts_chain, i);
            if batch.terminated(i) || batch.truncated(i) {
                stream.open = None;
            } else {
                let open = stream.open.get_or_insert_default();
                open.clear();
                open.extend_from_slice(batch.next_state(i));
            }
            if stream.known.len() == FINGERPRINTS {
                stream.known.pop_front();
            }
            stream.known.push_back(batch.fingerprint(i));
            stream.rows += 1;
        }
        stream.next_seq = admission.next_seq;
        stream.last_seen = now;
    }

    /// Where each stream stands, by name.
    pub fn positions(&self) -> BTreeMap<String, StreamPosition> {
        self.by_name.iter().map(|(name, stream)| (name.clone(), stream.position())).collect()
    }

    /// Where the `count` streams stand that sent something last.
    pub fn recent(&self, count: usize) -> BTreeMap<String, StreamPosition> {
        let mut streams: Vec<(&String, &Stream)> = self.by_name.iter().collect();
        if streams.len() > count {
            // Those that sent last at the same moment are told apart by name, so that the choice does not flicker.
            streams.select_nth_unstable_by(count, |(a_name, a), (b_name, b)| {
                b.last_seen.total_cmp(&a.last_seen).then_with(|| a_name.cmp(b_name))
            });
            streams.truncate(count);
        }
        streams.into_iter().map(|(name, stream)| (name.clone(), stream.position())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transition::BatchParts;

    fn batch(session: &str, seq: Option<u64>, states: &[f64]) -> Batch {
        Batch::new(BatchParts {
            stream: "robot".into(),
            session: session.into(),
            seq,
            dim: 1,
            rewards_per_row: 1,
            states: states.to_vec(),
            rewards: vec![1.0; states.len() - 1],
            ..BatchParts::default()
        })
        .unwrap()
    }

    /// Rows learned, as (index, starts a chain), or the code of the error.
    fn take(streams: &mut Streams, batch: &Batch, strict: bool) -> Result<Vec<(usize, bool)>, ErrorCode> {
        let admission = streams.admit(batch, strict).map_err(|e| e.code)?;
        let mut out = Vec::new();
        streams.commit(batch, &admission, 0.0, |_, starts, i| out.push((i, starts)));
        Ok(out)
    }

    #[test]
    fn rows_hang_together_while_nothing_is_missing() {
        let mut streams = Streams::new(10);
        assert_eq!(take(&mut streams, &batch("", Some(0), &[0.0, 1.0, 2.0]), true), Ok(vec![(0, true), (1, false)]));
        assert_eq!(take(&mut streams, &batch("", Some(2), &[2.0, 3.0]), true), Ok(vec![(0, false)]));
        // The state jumps: nothing is lost but the chain.
        assert_eq!(take(&mut streams, &batch("", Some(3), &[9.0, 8.0]), true), Ok(vec![(0, true)]));
        // A gap on ingest starts a chain although the states would fit.
        assert_eq!(take(&mut streams, &batch("", Some(6), &[8.0, 7.0]), false), Ok(vec![(0, true)]));
        assert_eq!(streams.positions()["robot"].next_seq, 7);
        assert_eq!(streams.positions()["robot"].rows, 5);
    }

    #[test]
    fn repeated_rows_are_known_and_changed_ones_conflict() {
        let mut streams = Streams::new(10);
        take(&mut streams, &batch("a", Some(0), &[0.0, 1.0, 2.0]), true).unwrap();
        assert_eq!(take(&mut streams, &batch("a", Some(0), &[0.0, 1.0, 2.0]), true), Ok(vec![]));
        assert_eq!(take(&mut streams, &batch("a", Some(1), &[1.0, 2.0, 3.0]), true), Ok(vec![(1, false)]));
        assert_eq!(take(&mut streams, &batch("a", Some(1), &[1.0, 2.5, 3.0]), true), Err(ErrorCode::Conflict));
        assert_eq!(streams.admit(&batch("a", Some(9), &[1.0, 2.0]), true).unwrap_err().expected_seq, Some(3));
    }

    #[test]
    fn a_new_session_fences_the_old_one() {
        let mut streams = Streams::new(10);
        take(&mut streams, &batch("a", Some(0), &[0.0, 1.0]), true).unwrap();
        assert_eq!(take(&mut streams, &batch("b", Some(4), &[1.0, 2.0]), true), Err(ErrorCode::SequenceGap));
        assert_eq!(take(&mut streams, &batch("b", Some(0), &[1.0, 2.0]), true), Ok(vec![(0, true)]));
        assert_eq!(take(&mut streams, &batch("a", Some(1), &[1.0, 2.0]), true), Err(ErrorCode::Fenced));
    }

    #[test]
    fn streams_are_limited() {
        let mut streams = Streams::new(0);
        assert_eq!(take(&mut streams, &batch("", Some(0), &[0.0, 1.0]), true), Err(ErrorCode::TooManyStreams));
        assert!(streams.is_empty());
    }

    #[test]
    fn those_that_sent_last_are_found() {
        let mut streams = Streams::new(10);
        for (k, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            let parts = BatchParts { stream: name.into(), dim: 1, rewards_per_row: 1, ..BatchParts::default() };
            let batch = Batch::new(BatchParts { states: vec![0.0, 1.0], rewards: vec![0.0], ..parts }).unwrap();
            let admission = streams.admit(&batch, true).unwrap();
            streams.commit(&batch, &admission, [5.0, 9.0, 5.0, 7.0][k], |_, _, _| {});
        }
        let names = |count| streams.recent(count).into_keys().collect::<Vec<_>>();
        assert_eq!(names(9), ["a", "b", "c", "d"]);
        assert_eq!(names(3), ["a", "b", "d"]);
        assert_eq!(names(0), [""; 0]);
    }

    #[test]
    fn a_stream_at_the_last_sequence_number_takes_no_more() {
        let mut streams = Streams::new(10);
        assert_eq!(take(&mut streams, &batch("", Some(u64::MAX - 1), &[0.0, 1.0]), false), Ok(vec![(0, true)]));
        assert_eq!(take(&mut streams, &batch("", None, &[1.0, 2.0]), false), Err(ErrorCode::OutOfRange));
    }
}
