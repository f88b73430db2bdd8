//! Where each stream stands: sequence numbers, sessions, chains. Decides what is new, what is known and what is refused.
//!
//! Streams have numbers, by which learners know their chains. They are limited; when another stream comes and all
//! numbers are taken, the stream that has been silent for longest is forgotten, if enough rows of others have arrived
//! since its last one. Its number goes to the newcomer, whose first row cuts the chain that was left running. All of this
//! is a function of rows and offsets, and the journal records which number a row got, so that replay needs no settings.

use super::record::TakenRows;
use crate::transition::Batch;
use crate::wire::{ErrorCode, StreamPosition, WireError};
use serde::{Deserialize, Deserializer, Serialize};
use siphasher::sip::SipHasher13;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::hash::Hasher as _;

/// Rows per stream whose content is remembered, to tell a repeated row from a conflicting one.
const FINGERPRINTS: usize = 64;
/// Sequence numbers end before this one, so that a float64 holds each of them: tables and JavaScript have no others. Older journals
/// may have rows beyond it.
const SEQ_END: u64 = 1 << 53;
/// Former sessions per stream that are refused.
const FENCED_SESSIONS: usize = 16;

/// How streams are called that are known by their numbers alone.
const REMOVED: &str = "removed-";

/// Position of one stream.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Stream {
    name: String,
    session: String,
    next_seq: u64,
    rows: u64,
    last_seen: f64,
    /// Offset behind its last row.
    last_offset: u64,
    /// Successor of the last row, if that row neither terminated nor was truncated.
    open: Option<Vec<f64>>,
    /// Fingerprints of the rows before `next_seq`, newest last.
    known: VecDeque<u64>,
    /// Hashes of former sessions, newest last. Older checkpoints have the names.
    #[serde(deserialize_with = "hashed")]
    fenced: VecDeque<u64>,
    /// Policy of the last rows that named one.
    #[serde(default)]
    policy: Option<String>,
}

/// By which a former session is known again.
fn session_hash(session: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(session.as_bytes());
    hasher.finish()
}

fn hashed<'de, D: Deserializer<'de>>(deserializer: D) -> Result<VecDeque<u64>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Former {
        Hash(u64),
        Name(String),
    }
    let hash = |former| match former {
        Former::Hash(hash) => hash,
        Former::Name(session) => session_hash(&session),
    };
    Ok(Vec::<Former>::deserialize(deserializer)?.into_iter().map(hash).collect())
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

/// How many streams there may be, and how long the silent ones are remembered if there are no fewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamLimits {
    /// Maximum number of streams.
    pub max: usize,
    /// Rows of other streams after which a silent one may be forgotten.
    pub idle_rows: u64,
}

/// All streams that have sent something and are remembered. Written as the list of streams in the order of their numbers.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(from = "Vec<Stream>", into = "Vec<Stream>")]
pub struct Streams {
    /// By number.
    streams: Vec<Stream>,
    by_name: HashMap<String, u32>,
    /// Offset behind the last row, number: the one silent for longest first.
    by_age: BTreeSet<(u64, u32)>,
    /// Whether rows before the next ones were erased, and streams with them.
    behind_holes: bool,
}

impl From<Vec<Stream>> for Streams {
    fn from(streams: Vec<Stream>) -> Self {
        let numbered = || (0u32..).zip(&streams);
        let by_name = numbered().map(|(number, stream)| (stream.name.clone(), number)).collect();
        let by_age = numbered().map(|(number, stream)| (stream.last_offset, number)).collect();
        Self { by_name, by_age, streams, behind_holes: false }
    }
}

impl From<Streams> for Vec<Stream> {
    fn from(streams: Streams) -> Self {
        streams.streams
    }
}

/// What of a batch is to be learned, decided before anything is changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admission {
    /// Rows at the beginning of the batch that are known already.
    pub duplicates: usize,
    /// Sequence number of the row behind the batch.
    pub next_seq: u64,
    /// Number of the stream.
    pub number: u32,
    /// Rows of a known session that were left out before the first of these.
    pub missing: u64,
    /// Whether rows are missing before the first new one, or may be.
    gap: bool,
    new_session: bool,
}

impl Streams {
    /// No streams yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether rows of some stream named a policy.
    pub fn knows_policies(&self) -> bool {
        self.streams.iter().any(|stream| stream.policy.is_some())
    }

    /// Bytes that a stream of states (`dim`,) takes here at most: its name, its policy's and its sessions' may be as long
    /// as the protocol allows.
    pub fn bytes_per_stream(dim: usize) -> usize {
        const NAME: usize = 256;
        // The list of streams and the two indices have up to twice the room that they need.
        let entries = size_of::<Stream>() + size_of::<(String, u32)>() + size_of::<(u64, u32)>();
        // Its name, twice, its session's, and its policy's.
        let names = 4 * NAME;
        2 * entries + names + size_of::<u64>() * (FINGERPRINTS + FENCED_SESSIONS) + size_of::<f64>() * dim
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.streams.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.streams.is_empty()
    }

    /// The stream of this number, if there is one.
    pub fn name(&self, number: u32) -> Option<&str> {
        self.streams.get(number as usize).map(|stream| stream.name.as_str())
    }

    /// Replace what a stream was called, by its number, and forget what its session and its policy were called. Returns the name that it
    /// had. Its producer is another stream from here on.
    pub fn forget_name(&mut self, number: u32) -> Option<String> {
        let name = self.name_of_removed(number);
        let stream = self.streams.get_mut(number as usize).filter(|stream| !stream.name.starts_with(REMOVED))?;
        let former = std::mem::replace(&mut stream.name, name.clone());
        stream.session = name.clone();
        stream.policy = None;
        self.by_name.remove(&former);
        self.by_name.insert(name, number);
        Some(former)
    }

    /// The newest session of a stream, if the stream is known.
    pub fn session(&self, name: &str) -> Option<&str> {
        self.by_name.get(name).map(|&number| self.streams[number as usize].session.as_str())
    }

    /// Decide what of `batch`, whose first new row would have offset `offset`, is new; nothing changes. `strict` is an append,
    /// whose sequence numbers may leave no gap; on ingest a gap only starts a new chain.
    ///
    /// # Errors
    /// `too_many_streams`, `fenced`, `sequence_gap` (with the number expected), `out_of_range` or `conflict`.
    pub fn admit(
        &self,
        batch: &Batch,
        strict: bool,
        offset: u64,
        limits: StreamLimits,
    ) -> Result<Admission, WireError> {
        let admission = match self.by_name.get(batch.stream()) {
            Some(&number) => self.admit_known(batch, strict, number),
            None => {
                let number = self.number_for_newcomer(offset, limits).ok_or_else(|| {
                    let StreamLimits { max, idle_rows } = limits;
                    let message = format!(
                        "there are {max} streams already, and none has been idle for {idle_rows} rows; raise \
                         streams_max or reuse names"
                    );
                    WireError::of(ErrorCode::TooManyStreams, "stream", message)
                })?;
                Self::fresh(batch, strict, number, false)
            }
        }?;
        if admission.next_seq > SEQ_END && admission.duplicates < batch.len() {
            let message =
                format!("sequence numbers end before 2^53 ({SEQ_END}); begin a new session, which counts from 0");
            return Err(WireError::of(ErrorCode::OutOfRange, "seq", message));
        }
        Ok(admission)
    }

    fn number_for_newcomer(&self, offset: u64, limits: StreamLimits) -> Option<u32> {
        if self.streams.len() < limits.max {
            return Some(self.streams.len() as u32);
        }
        let &(last_offset, number) = self.by_age.first()?;
        (offset - last_offset > limits.idle_rows).then_some(number)
    }

    fn admit_known(&self, batch: &Batch, strict: bool, number: u32) -> Result<Admission, WireError> {
        let stream = &self.streams[number as usize];
        if batch.session() != stream.session {
            if stream.fenced.contains(&session_hash(batch.session())) {
                let message = format!("session \"{}\" has been replaced by a newer one", batch.session());
                return Err(WireError::of(ErrorCode::Fenced, "session", message));
            }
            return Self::fresh(batch, strict, number, true);
        }
        let seq = batch.seq().unwrap_or(stream.next_seq);
        if seq > stream.next_seq && strict {
            return Err(WireError::sequence_gap(stream.next_seq));
        }
        // Where the batch brings its own number this has been checked with it.
        let Some(end) = seq.checked_add(batch.len() as u64) else {
            return Err(WireError::of(ErrorCode::OutOfRange, "seq", "the stream has used all sequence numbers"));
        };
        let duplicates = stream.next_seq.saturating_sub(seq).min(batch.len() as u64) as usize;
        for i in 0..duplicates {
            // Position of this row counted from the newest one.
            let back = stream.next_seq - (seq + i as u64);
            let known = usize::try_from(back).ok().and_then(|back| stream.known.len().checked_sub(back));
            if let Some(&known) = known.and_then(|k| stream.known.get(k))
                && known != batch.fingerprint(i)
            {
                let message = format!("row {} was received before with other content", seq + i as u64);
                return Err(WireError::of(ErrorCode::Conflict, "seq", message).at(i));
            }
        }
        let next_seq = stream.next_seq.max(end);
        let missing = seq.saturating_sub(stream.next_seq);
        Ok(Admission { duplicates, next_seq, number, missing, gap: missing > 0, new_session: false })
    }

    fn fresh(batch: &Batch, strict: bool, number: u32, new_session: bool) -> Result<Admission, WireError> {
        let seq = batch.seq().unwrap_or(0);
        if seq != 0 && strict {
            return Err(WireError::sequence_gap(0));
        }
        let next_seq = seq + batch.len() as u64;
        Ok(Admission { duplicates: 0, next_seq, number, missing: 0, gap: true, new_session })
    }

    /// Take the new rows of an admitted batch in, the first of which has offset `offset`. `push` gets whether the row starts
    /// a chain, and the row's index in the batch, once for each. `now` is Unix seconds. Says whether they name another policy
    /// than the stream's rows before them; then they start a chain.
    pub fn commit(
        &mut self,
        batch: &Batch,
        admission: &Admission,
        offset: u64,
        now: f64,
        mut push: impl FnMut(bool, usize),
    ) -> bool {
        let number = admission.number;
        if !self.by_name.contains_key(batch.stream()) {
            self.newcomer(batch, number, offset, now);
        }
        let stream = &mut self.streams[number as usize];
        if admission.new_session {
            let old = std::mem::replace(&mut stream.session, batch.session().to_owned());
            if stream.fenced.len() == FENCED_SESSIONS {
                stream.fenced.pop_front();
            }
            stream.fenced.push_back(session_hash(&old));
        }
        if admission.gap {
            stream.open = None;
            stream.known.clear();
        }
        let named = batch.policy().filter(|_| admission.duplicates < batch.len());
        let other = named.filter(|&policy| stream.policy.as_deref() != Some(policy));
        if let Some(policy) = other
            && stream.policy.replace(policy.to_owned()).is_some()
        {
            stream.open = None;
        }
        for i in admission.duplicates..batch.len() {
            let starts_chain = stream.open.as_deref() != Some(batch.state(i));
            push(starts_chain, i);
            if batch.terminated(i) || batch.truncated(i) {
                stream.open = None;
            } else {
                let open = stream.open.get_or_insert_default();
                open.clear();
                open.extend_from_slice(batch.next_state(i));
            }
            // Of a long batch only the last ones would be left.
            if i + FINGERPRINTS >= batch.len() {
                if stream.known.len() == FINGERPRINTS {
                    stream.known.pop_front();
                }
                stream.known.push_back(batch.fingerprint(i));
            }
            stream.rows += 1;
        }
        stream.next_seq = admission.next_seq;
        stream.last_seen = now;
        let new = (batch.len() - admission.duplicates) as u64;
        if new > 0 {
            self.by_age.remove(&(stream.last_offset, number));
            stream.last_offset = offset + new;
            self.by_age.insert((stream.last_offset, number));
        }
        other.is_some()
    }

    /// Give `number` to the stream of `batch`; who had it is forgotten.
    fn newcomer(&mut self, batch: &Batch, number: u32, offset: u64, now: f64) {
        let (name, session) = (batch.stream().to_owned(), batch.session().to_owned());
        let known = VecDeque::with_capacity(FINGERPRINTS);
        self.put(Stream { name, session, known, ..Stream::default() }, number, offset, now);
    }

    fn put(&mut self, stream: Stream, number: u32, offset: u64, now: f64) {
        let stream = Stream { last_seen: now, last_offset: offset, ..stream };
        self.by_age.insert((offset, number));
        self.by_name.insert(stream.name.clone(), number);
        if number as usize == self.streams.len() {
            self.streams.push(stream);
        } else {
            let old = std::mem::replace(&mut self.streams[number as usize], stream);
            self.by_age.remove(&(old.last_offset, number));
            self.by_name.remove(&old.name);
        }
    }

    /// Take in rows that were admitted: all of `taken` as new rows, the first of which has offset `offset`. `now` is Unix
    /// seconds. Says what [`Streams::commit`] says.
    ///
    /// # Errors
    /// If they cannot have been admitted here, or other rows began chains.
    pub fn replay(&mut self, taken: &TakenRows, offset: u64, now: f64) -> Result<bool, String> {
        let TakenRows { stream: number, starts_chain, batch } = taken;
        let number = *number;
        let admission = match self.by_name.get(batch.stream()) {
            Some(&known) if known != number => {
                return Err(format!("stream {:?} has number {known}, not {number}", batch.stream()));
            }
            Some(_) => self.admit_known(batch, false, number),
            None => {
                self.fill_up_to(number, now)?;
                Self::fresh(batch, false, number, false)
            }
        };
        let admission = admission.map_err(|error| error.to_string())?;
        if admission.duplicates > 0 {
            return Err(format!("a row of stream {:?} is there twice", batch.stream()));
        }
        let mut agree = true;
        let other = self.commit(batch, &admission, offset, now, |starts, i| agree &= starts == starts_chain[i]);
        if agree { Ok(other) } else { Err(format!("chains of stream {:?} begin elsewhere", batch.stream())) }
    }

    /// Rows in this place were erased. With them may go all that a journal knew of their streams.
    pub fn pass_hole(&mut self) {
        self.behind_holes = true;
    }

    /// Put streams in the places of erased ones, whose names are not known any more, before this number.
    fn fill_up_to(&mut self, number: u32, now: f64) -> Result<(), String> {
        if number as usize > self.streams.len() && !self.behind_holes {
            return Err(format!("there is no stream number {number}"));
        }
        while self.streams.len() < number as usize {
            let next = self.streams.len() as u32;
            let name = self.name_of_removed(next);
            self.put(Stream { name, ..Stream::default() }, next, 0, now);
        }
        Ok(())
    }

    /// A name that no stream has, for a stream that is known by its number alone.
    fn name_of_removed(&self, number: u32) -> String {
        let free = |name: &String| !self.by_name.contains_key(name);
        (0..).map(|n| format!("{REMOVED}{number}{}", "'".repeat(n))).find(free).unwrap_or_default()
    }

    /// Streams of these numbers have lost rows: what they send again is known by its number alone. The last rows of `ended` are among
    /// them, so that their next ones begin chains.
    pub fn lose(&mut self, numbers: &[u32], ended: &[u32]) {
        for &number in numbers {
            self.streams.get_mut(number as usize).into_iter().for_each(|stream| stream.known.clear());
        }
        for &number in ended {
            self.streams.get_mut(number as usize).into_iter().for_each(|stream| stream.open = None);
        }
    }

    /// Where the `count` streams stand that sent something last.
    pub fn recent(&self, count: usize) -> BTreeMap<String, StreamPosition> {
        let mut streams: Vec<&Stream> = self.streams.iter().collect();
        if streams.len() > count {
            // Streams with equal times are ordered by name, so that the choice does not flicker.
            streams.select_nth_unstable_by(count, |a, b| {
                b.last_seen.total_cmp(&a.last_seen).then_with(|| a.name.cmp(&b.name))
            });
            streams.truncate(count);
        }
        streams.into_iter().map(|stream| (stream.name.clone(), stream.position())).collect()
    }

    /// Numbers and names of the `count` streams that sent something last, in the order of their names.
    pub fn numbered(&self, count: usize) -> Vec<(u32, String)> {
        self.recent(count).into_keys().map(|name| (self.by_name[&name], name)).collect()
    }

    /// Where the streams of these names stand; those that are not known are left out.
    pub fn of<'a>(&self, names: impl Iterator<Item = &'a String>) -> BTreeMap<String, StreamPosition> {
        let known = names.filter_map(|name| Some((name, *self.by_name.get(name)?)));
        known.map(|(name, number)| (name.clone(), self.streams[number as usize].position())).collect()
    }

    /// Where `count` streams stand, in the order of their numbers from `from` on; and the number behind them, if there are more.
    pub fn page(&self, from: u64, count: usize) -> (BTreeMap<String, StreamPosition>, Option<u64>) {
        let from = usize::try_from(from).unwrap_or(usize::MAX).min(self.streams.len());
        let to = self.streams.len().min(from + count);
        let page = self.streams[from..to].iter().map(|stream| (stream.name.clone(), stream.position())).collect();
        (page, (to < self.streams.len()).then_some(to as u64))
    }

    /// Where each stream stands, by name.
    pub fn positions(&self) -> BTreeMap<String, StreamPosition> {
        self.streams.iter().map(|stream| (stream.name.clone(), stream.position())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transition::BatchParts;

    const LIMITS: StreamLimits = StreamLimits { max: 2, idle_rows: 3 };

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
        let offset = streams.by_age.last().map_or(0, |&(last, _)| last);
        let admission = streams.admit(batch, strict, offset, LIMITS).map_err(|e| e.code)?;
        let mut out = Vec::new();
        streams.commit(batch, &admission, offset, 0.0, |starts, i| out.push((i, starts)));
        Ok(out)
    }

    #[test]
    fn rows_hang_together_while_nothing_is_missing() {
        let mut streams = Streams::new();
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
        let mut streams = Streams::new();
        take(&mut streams, &batch("a", Some(0), &[0.0, 1.0, 2.0]), true).unwrap();
        assert_eq!(take(&mut streams, &batch("a", Some(0), &[0.0, 1.0, 2.0]), true), Ok(vec![]));
        assert_eq!(take(&mut streams, &batch("a", Some(1), &[1.0, 2.0, 3.0]), true), Ok(vec![(1, false)]));
        assert_eq!(take(&mut streams, &batch("a", Some(1), &[1.0, 2.5, 3.0]), true), Err(ErrorCode::Conflict));
        assert_eq!(
            streams.admit(&batch("a", Some(9), &[1.0, 2.0]), true, 3, LIMITS).unwrap_err().expected_seq,
            Some(3)
        );
    }

    #[test]
    fn a_new_session_fences_the_old_one() {
        let mut streams = Streams::new();
        take(&mut streams, &batch("a", Some(0), &[0.0, 1.0]), true).unwrap();
        assert_eq!(take(&mut streams, &batch("b", Some(4), &[1.0, 2.0]), true), Err(ErrorCode::SequenceGap));
        assert_eq!(take(&mut streams, &batch("b", Some(0), &[1.0, 2.0]), true), Ok(vec![(0, true)]));
        assert_eq!(take(&mut streams, &batch("a", Some(1), &[1.0, 2.0]), true), Err(ErrorCode::Fenced));
    }

    #[test]
    fn checkpoints_that_name_former_sessions_are_read() {
        let mut streams = Streams::new();
        for session in ["a", "b", "c"] {
            take(&mut streams, &batch(session, Some(0), &[0.0, 1.0]), true).unwrap();
        }
        let bytes = rmp_serde::to_vec_named(&streams).unwrap();
        let mut written: serde_json::Value = rmp_serde::from_slice(&bytes).unwrap();
        assert_eq!(written[0]["fenced"].as_array().unwrap().len(), 2);
        written[0]["fenced"] = serde_json::json!(["a", "b"]);
        let mut old: Streams = rmp_serde::from_slice(&rmp_serde::to_vec(&written).unwrap()).unwrap();
        assert!(rmp_serde::to_vec_named(&old).unwrap() == bytes);
        assert_eq!(take(&mut old, &batch("b", Some(1), &[1.0, 2.0]), true), Err(ErrorCode::Fenced));
        assert_eq!(take(&mut old, &batch("c", Some(1), &[1.0, 2.0]), true), Ok(vec![(0, false)]));
    }

    fn named(name: &str, states: &[f64]) -> Batch {
        Batch::new(BatchParts {
            stream: name.into(),
            dim: 1,
            rewards_per_row: 1,
            states: states.to_vec(),
            rewards: vec![1.0; states.len() - 1],
            seq: Some(0),
            ..BatchParts::default()
        })
        .unwrap()
    }

    #[test]
    fn the_silent_make_room_for_newcomers_and_the_others_do_not() {
        let mut streams = Streams::new();
        take(&mut streams, &named("one", &[0.0, 1.0]), true).unwrap();
        take(&mut streams, &named("two", &[0.0, 1.0, 2.0]), true).unwrap();
        // Two streams are allowed; the first has been silent for two rows, and may be so for three.
        assert_eq!(take(&mut streams, &named("three", &[0.0, 1.0]), true), Err(ErrorCode::TooManyStreams));
        take(
            &mut streams,
            &Batch::new(BatchParts { seq: Some(2), ..parts_of("two", &[2.0, 3.0, 4.0]) }).unwrap(),
            true,
        )
        .unwrap();
        assert_eq!(take(&mut streams, &named("three", &[0.0, 1.0]), true), Ok(vec![(0, true)]));
        assert_eq!(streams.positions().keys().collect::<Vec<_>>(), ["three", "two"]);
        assert_eq!(streams.by_name["three"], 0);
        // Forgotten is forgotten: what it sends again is new, as soon as there is room.
        assert_eq!(take(&mut streams, &named("one", &[0.0, 1.0]), true), Err(ErrorCode::TooManyStreams));
    }

    fn parts_of(name: &str, states: &[f64]) -> BatchParts {
        BatchParts {
            stream: name.into(),
            dim: 1,
            rewards_per_row: 1,
            states: states.to_vec(),
            rewards: vec![1.0; states.len() - 1],
            ..BatchParts::default()
        }
    }

    fn taken(batch: &Batch, stream: u32, starts_chain: &[bool]) -> TakenRows {
        TakenRows { stream, starts_chain: starts_chain.to_vec(), batch: batch.clone() }
    }

    #[test]
    fn replay_ends_where_the_first_run_did() {
        let mut streams = Streams::new();
        let batches = [
            named("one", &[0.0, 1.0]),
            named("two", &[0.0, 1.0, 2.0, 3.0, 4.0]),
            named("three", &[5.0, 6.0]),
            batch("x", None, &[1.0, 2.0]),
        ];
        let mut recorded = Vec::new();
        let mut offset = 0;
        for batch in &batches {
            let limits = StreamLimits { max: 2, idle_rows: 0 };
            let admission = streams.admit(batch, false, offset, limits).unwrap();
            let mut starts = Vec::new();
            streams.commit(batch, &admission, offset, 1.5, |start, _| starts.push(start));
            recorded.push((taken(batch, admission.number, &starts), offset));
            offset += batch.len() as u64;
        }
        let mut again = Streams::new();
        for (taken, offset) in &recorded {
            again.replay(taken, *offset, 1.5).unwrap();
        }
        let bytes = |streams: &Streams| rmp_serde::to_vec_named(streams).unwrap();
        assert!(bytes(&again) == bytes(&streams));
        let read: Streams = rmp_serde::from_slice(&bytes(&streams)).unwrap();
        assert_eq!((&read.by_name, &read.by_age), (&streams.by_name, &streams.by_age));
        // A record that does not fit what came before is refused.
        assert!(again.replay(&taken(&batches[3], 0, &[true]), offset, 0.0).is_err());
        assert!(again.replay(&taken(&named("four", &[0.0, 1.0]), 7, &[true]), offset, 0.0).is_err());
        assert!(again.replay(&taken(&named("four", &[0.0, 1.0]), 1, &[false]), offset, 0.0).is_err());
    }

    #[test]
    fn positions_come_by_name_and_in_pages() {
        let mut streams = Streams::new();
        for (k, name) in ["d", "b", "a", "e", "c"].into_iter().enumerate() {
            let limits = StreamLimits { max: 10, idle_rows: 0 };
            let admission = streams.admit(&named(name, &[0.0, 1.0]), true, k as u64, limits).unwrap();
            streams.commit(&named(name, &[0.0, 1.0]), &admission, k as u64, 0.0, |_, _| {});
        }
        let keys = |page: &BTreeMap<String, StreamPosition>| page.keys().cloned().collect::<String>();
        let (mut all, mut from, mut pages) = (BTreeMap::new(), Some(0), Vec::new());
        while let Some(at) = from {
            let (page, next) = streams.page(at, 2);
            pages.push((keys(&page), next));
            all.extend(page);
            from = next;
        }
        assert_eq!(pages, [("bd".to_owned(), Some(2)), ("ae".to_owned(), Some(4)), ("c".to_owned(), None)]);
        assert_eq!(all, streams.positions());
        assert_eq!(streams.page(5, 2), (BTreeMap::new(), None));
        assert_eq!(streams.page(u64::MAX, 2), (BTreeMap::new(), None));
        assert_eq!(keys(&streams.of(["e", "x", "a"].map(str::to_owned).iter())), "ae");
    }

    #[test]
    fn those_that_sent_last_are_found() {
        let mut streams = Streams::new();
        for (k, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
            let batch = named(name, &[0.0, 1.0]);
            let limits = StreamLimits { max: 10, idle_rows: 0 };
            let admission = streams.admit(&batch, true, k as u64, limits).unwrap();
            streams.commit(&batch, &admission, k as u64, [5.0, 9.0, 5.0, 7.0][k], |_, _| {});
        }
        let names = |count| streams.recent(count).into_keys().collect::<Vec<_>>();
        assert_eq!(names(9), ["a", "b", "c", "d"]);
        assert_eq!(names(3), ["a", "b", "d"]);
        assert_eq!(names(0), [""; 0]);
    }

    #[test]
    fn a_stream_at_the_last_sequence_number_takes_no_more() {
        let mut streams = Streams::new();
        for seq in [SEQ_END, 1 << 63, u64::MAX - 1] {
            let taken = take(&mut streams, &batch("", Some(seq), &[0.0, 1.0]), false);
            assert_eq!(taken, Err(ErrorCode::OutOfRange), "{seq}");
        }
        assert_eq!(take(&mut streams, &batch("", Some(SEQ_END - 1), &[0.0, 1.0]), false), Ok(vec![(0, true)]));
        assert_eq!(take(&mut streams, &batch("", None, &[1.0, 2.0]), false), Err(ErrorCode::OutOfRange));
        assert_eq!(take(&mut streams, &batch("", Some(SEQ_END - 1), &[0.0, 1.0]), false), Ok(vec![]), "known already");
        assert_eq!(take(&mut streams, &batch("new", None, &[1.0, 2.0]), false), Ok(vec![(0, true)]));
    }

    #[test]
    fn journals_with_larger_sequence_numbers_are_read() {
        let mut streams = Streams::new();
        let first = batch("", Some(u64::MAX - 2), &[0.0, 1.0]);
        streams.replay(&taken(&first, 0, &[true]), 0, 0.0).unwrap();
        streams.replay(&taken(&batch("", None, &[1.0, 2.0]), 0, &[false]), 1, 0.0).unwrap();
        assert_eq!(take(&mut streams, &batch("", None, &[2.0, 3.0]), false), Err(ErrorCode::OutOfRange));
        assert_eq!(take(&mut streams, &batch("", Some(u64::MAX - 1), &[1.0, 2.0]), false), Ok(vec![]), "known already");
    }
}
