//! What happened, in the order in which it was learned, so that it can be learned again.
//!
//! The journal is a sequence of *groups*. A group is what was committed together and what the learners were stepped with
//! together, so that stepping through the groups again gives the same models bit for bit. Everything else that decides a
//! result is a *record* in a group: rows as they were received (never normalised), models that were adopted (with everything
//! they have learned, so that replay never optimises), refits that ended without one, batches that a learner cannot bear,
//! settings, announced changes of policy, changes of heads, requests to advisors, critics that were learned again, and rows that
//! were taken back.
//!
//! ```text
//! group    id, offset of its first row, rows, kinds of records, checksum of the group before, checksum, version, body
//! body     time f64, then for each record: kind u8, length u32, payload
//! ```
//! All numbers are little endian. Groups are numbered without gaps; each carries the checksum of the one before, so that
//! neither a changed nor a lost one goes unnoticed. [`store`] keeps groups, [`checkpoint`] the state of the learners at
//! some group's end.

pub mod checkpoint;
mod copier;
mod format;
mod mark;
pub mod memory;
pub mod retention;
pub mod store;
pub mod thresholds;

use crate::learner::{Adoption, HeadsChange, Learner, Settings};
use crate::packed;
use crate::state::record::Mark;
pub use crate::state::record::{Advice, Configured, Group, NewPolicy, Record, RemovedRows, SkippedRows, TakenRows};
use crate::transition::{Batch, BatchParts, Names, check_policy};
pub use format::VERSION;
use serde::{Deserialize, Serialize};
use std::io;

/// Bit of [`StoredGroup::kinds`]: rows.
pub const ROWS: u32 = 1;
/// Bit of [`StoredGroup::kinds`]: an adopted model.
pub const ADOPTED: u32 = 1 << 1;
/// Bit of [`StoredGroup::kinds`]: a refit that ended without an adoption.
pub const REFIT_ENDED: u32 = 1 << 2;
/// Bit of [`StoredGroup::kinds`]: rows that a critic leaves out.
pub const SKIPPED: u32 = 1 << 3;
/// Bit of [`StoredGroup::kinds`]: settings of critics.
pub const CONFIGURED: u32 = 1 << 4;
/// Bit of [`StoredGroup::kinds`]: another policy acts.
pub const NEW_POLICY: u32 = 1 << 5;
/// Bit of [`StoredGroup::kinds`]: a critic that was learned again.
pub const REBUILT: u32 = 1 << 6;

/// Bit of [`StoredGroup::kinds`]: heads that come or go.
pub const HEADS: u32 = 1 << 7;
/// Bit of [`StoredGroup::kinds`]: requests to advisors.
pub const ADVICE: u32 = 1 << 8;

/// Bit of [`StoredGroup::kinds`]: rows that are taken back.
pub const REMOVED: u32 = 1 << 9;
/// Bit of [`StoredGroup::kinds`]: places of rows that were taken back.
pub const HOLE: u32 = 1 << 10;

/// Bytes of a group's time.
const TIME_BYTES: usize = size_of::<f64>();

const HAS_SEQ: u8 = 1;
/// Every next state is the state of the following row; the states have one row more.
const PIECE: u8 = 1 << 1;
const HAS_ACTIONS: u8 = 1 << 2;
const HAS_DISCOUNTS: u8 = 1 << 3;
const HAS_TIMES: u8 = 1 << 4;
/// Behind all else, what the rows say about policies: a byte with the flags below, then for each of these its numbers.
const HAS_POLICY: u8 = 1 << 5;

const HAS_BEHAVIOR_PROBS: u8 = 1;
const HAS_TARGET_PROBS: u8 = 1 << 1;
/// Before the numbers u32, how many there are in a row.
const HAS_NEXT_ACTIONS: u8 = 1 << 2;
/// The same.
const HAS_NEXT_ACTION_PROBS: u8 = 1 << 3;
/// In place of numbers a text, the name of the policy that acted.
const HAS_POLICY_NAME: u8 = 1 << 4;

const TERMINATED: u8 = 1;
const TRUNCATED: u8 = 1 << 1;
const STARTS_CHAIN: u8 = 1 << 2;

/// Why a group cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corruption {
    /// Its checksum does not fit its content.
    #[error("its checksum is wrong")]
    Checksum,
    /// Its checksum is right, but it cannot be read: written by something else, or by a bug.
    #[error("{0}")]
    Unreadable(String),
    /// It was written by a newer version of the program.
    #[error("it has format version {version}, and this program knows versions up to {VERSION}")]
    Newer {
        /// Version of its format.
        version: u32,
    },
}

/// A group as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredGroup {
    /// 1 for the first one ever, then one more for each.
    pub id: u64,
    /// Offset of its first row, or the next row's offset if it has none.
    pub first_offset: u64,
    /// Rows in it.
    pub rows: u64,
    /// Which kinds of records are in it.
    pub kinds: u32,
    /// Checksum of the group before; 0 for the first one.
    pub previous_crc: u32,
    /// CRC-32 of all other fields.
    pub crc: u32,
    /// Version of its format.
    pub version: u32,
    /// Time and records.
    pub body: Vec<u8>,
}

impl StoredGroup {
    /// Offset behind its last row.
    pub fn end(&self) -> u64 {
        self.first_offset + self.rows
    }

    fn checksum(&self) -> u32 {
        let mut hasher = crc32fast::Hasher::new();
        for number in [self.id, self.first_offset, self.rows] {
            hasher.update(&number.to_le_bytes());
        }
        for number in [self.kinds, self.previous_crc, self.version] {
            hasher.update(&number.to_le_bytes());
        }
        hasher.update(&self.body);
        hasher.finalize()
    }

    /// The same with the checksum that its fields have now.
    #[must_use]
    pub fn sealed(self) -> Self {
        Self { crc: self.checksum(), ..self }
    }

    /// Check version and checksum.
    ///
    /// # Errors
    /// The first fault. The checksum is checked first: with a wrong one the version cannot be trusted.
    pub fn check(&self) -> Result<(), Corruption> {
        if self.crc != self.checksum() {
            return Err(Corruption::Checksum);
        }
        if self.version > VERSION { Err(Corruption::Newer { version: self.version }) } else { Ok(()) }
    }

    /// Unix seconds when it was committed, and its records in their order. Checks as [`StoredGroup::check`] does.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn decode(&self) -> Result<(f64, Vec<Record>), Corruption> {
        self.check()?;
        let mut body = Bytes(&self.body);
        let unreadable = |why: String| Corruption::Unreadable(why);
        let time = body.f64().map_err(unreadable)?;
        let mut records = Vec::new();
        let mut rows = 0;
        while !body.0.is_empty() {
            let record = body.record().map_err(unreadable)?;
            rows += match &record {
                Record::Rows(taken) => taken.batch.len() as u64,
                Record::Hole(count) => *count,
                _ => 0,
            };
            records.push(record);
        }
        if rows != self.rows {
            return Err(unreadable(format!("its header claims {} rows, and it holds {rows}", self.rows)));
        }
        Ok((time, records))
    }

    /// Where it ends.
    pub fn mark(&self) -> Mark {
        Mark { id: self.id, offset: self.end(), crc: self.crc }
    }

    /// It as it is applied. Checks as [`StoredGroup::check`] does.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn group(&self) -> Result<Group, Corruption> {
        let (time, records) = self.decode()?;
        Ok(Group { end: self.mark(), first_offset: self.first_offset, time, records })
    }
}

/// Counts what is written.
struct Counter(usize);

impl io::Write for Counter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A group in the making.
#[derive(Clone, Debug, Default)]
pub struct GroupWriter {
    /// The body, room for its time first.
    body: Vec<u8>,
    rows: u64,
    kinds: u32,
    /// Oldest version of the format that can say what is in it, or 0 for the first.
    version: u32,
}

impl GroupWriter {
    /// The records of a group.
    pub fn of(group: &Group) -> Self {
        let mut writer = Self::default();
        group.records.iter().for_each(|record| writer.record(record));
        writer
    }

    /// Whether nothing has been written.
    pub fn is_empty(&self) -> bool {
        self.kinds == 0
    }

    /// Rows so far.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Bytes so far.
    pub fn bytes(&self) -> usize {
        self.body.len()
    }

    /// Add a record.
    pub fn record(&mut self, record: &Record) {
        match record {
            Record::Rows(taken) => self.take(taken),
            Record::Adopted { critic, adoption } => self.adopted(critic, adoption),
            Record::RefitEnded { critic } => self.refit_ended(critic),
            Record::Skipped(skipped) => self.skipped(skipped),
            Record::Configured(configured) => self.configured(configured),
            Record::NewPolicy(change) => self.new_policy(change),
            Record::Heads(change) => self.heads(change),
            Record::Rebuilt(learner) => self.rebuilt(learner),
            Record::Advice(advice) => self.advice(advice),
            Record::Removed(removed) => self.removed(removed),
            Record::Hole(rows) => self.hole(*rows),
        }
    }

    /// Record new rows.
    pub fn take(&mut self, taken: &TakenRows) {
        let TakenRows { stream, starts_chain, batch } = taken;
        let rows = 0..batch.len();
        assert_eq!(starts_chain.len(), rows.len(), "one flag for each row");
        let start = self.begin(ROWS);
        let out = &mut self.body;
        let linked = |i: usize| bits_equal(batch.next_state(i), batch.state(i + 1));
        let piece = (0..batch.len() - 1).all(linked);
        let flag = |flag, set| if set { flag } else { 0 };
        let policy = flag(HAS_BEHAVIOR_PROBS, batch.behavior_prob(0).is_some())
            | flag(HAS_TARGET_PROBS, batch.target_prob(0).is_some())
            | flag(HAS_NEXT_ACTIONS, batch.next_action(0).is_some())
            | flag(HAS_NEXT_ACTION_PROBS, batch.next_action_probs(0).is_some())
            | flag(HAS_POLICY_NAME, batch.policy().is_some());
        let flags = flag(HAS_SEQ, batch.seq().is_some())
            | flag(PIECE, piece)
            | flag(HAS_ACTIONS, batch.action(0).is_some())
            | flag(HAS_DISCOUNTS, batch.discount(0).is_some())
            | flag(HAS_TIMES, batch.time(0).is_some())
            | flag(HAS_POLICY, policy != 0);
        out.extend_from_slice(&stream.to_le_bytes());
        out.push(flags);
        for text in [batch.stream(), batch.session()] {
            put_text(out, text);
        }
        if let Some(seq) = batch.seq() {
            out.extend_from_slice(&seq.to_le_bytes());
        }
        let action = batch.action(0).map_or(0, <[f64]>::len);
        for count in [rows.len(), batch.dim(), batch.rewards_per_row(), action] {
            out.extend_from_slice(&(count as u32).to_le_bytes());
        }
        out.extend(rows.clone().zip(starts_chain).map(|(i, &starts)| {
            flag(TERMINATED, batch.terminated(i)) | flag(TRUNCATED, batch.truncated(i)) | flag(STARTS_CHAIN, starts)
        }));
        rows.clone().for_each(|i| put_numbers(out, batch.state(i)));
        if piece {
            put_numbers(out, batch.next_state(batch.len() - 1));
        } else {
            rows.clone().for_each(|i| put_numbers(out, batch.next_state(i)));
        }
        rows.clone().for_each(|i| put_numbers(out, batch.reward(i)));
        rows.clone().for_each(|i| put_numbers(out, batch.action(i).unwrap_or(&[])));
        rows.clone().for_each(|i| put_numbers(out, batch.discount(i).as_slice()));
        rows.clone().for_each(|i| put_numbers(out, batch.time(i).as_slice()));
        if policy != 0 {
            self.version = self.version.max(if batch.policy().is_some() { 3 } else { 2 });
            out.push(policy);
            rows.clone().for_each(|i| put_numbers(out, batch.behavior_prob(i).as_slice()));
            rows.clone().for_each(|i| put_numbers(out, batch.target_prob(i).as_slice()));
            for column in [Batch::next_action, Batch::next_action_probs] {
                if let Some(first) = column(batch, 0) {
                    out.extend_from_slice(&(first.len() as u32).to_le_bytes());
                    rows.clone().for_each(|i| put_numbers(out, column(batch, i).unwrap_or(&[])));
                }
            }
            if let Some(name) = batch.policy() {
                put_text(out, name);
            }
        }
        self.end(start);
        self.rows += rows.len() as u64;
    }

    /// Record that `critic` has adopted a model.
    pub fn adopted(&mut self, critic: &str, adoption: &Adoption) {
        let start = self.begin(ADOPTED);
        self.version = self.version.max(format::of_models([adoption.model()]));
        put_text(&mut self.body, critic);
        rmp_serde::encode::write_named(&mut self.body, adoption).expect("plain data into memory");
        self.end(start);
    }

    /// Record that a refit of `critic` has ended without an adoption.
    pub fn refit_ended(&mut self, critic: &str) {
        let start = self.begin(REFIT_ENDED);
        put_text(&mut self.body, critic);
        self.end(start);
    }

    /// Record that a critic leaves rows out.
    pub fn skipped(&mut self, skipped: &SkippedRows) {
        self.put(SKIPPED, 1, skipped);
    }

    /// Record the settings of all critics.
    pub fn configured(&mut self, configured: &Configured) {
        let of_advisors = if configured.advisors.is_empty() { 1 } else { 5 };
        self.put(CONFIGURED, format::of_settings(&configured.critics).max(of_advisors), configured);
    }

    /// Record that another policy acts from some row on.
    pub fn new_policy(&mut self, change: &NewPolicy) {
        self.put(NEW_POLICY, 3, change);
    }

    /// Record that heads come or go.
    pub fn heads(&mut self, change: &HeadsChange) {
        let needs_version_6 = change.labels.is_some() || change.add.iter().any(format::needs_version_6);
        self.put(HEADS, if needs_version_6 { 6 } else { 5 }, change);
    }

    /// Record that a critic which was learned again takes the place of the one of its name.
    pub fn rebuilt(&mut self, learner: &Learner) {
        let start = self.begin(REBUILT);
        self.version = self.version.max(4).max(format::of_critic(learner));
        // It may have hundreds of mebibytes: a buffer that grows by doubling would take twice that.
        let mut bytes = Counter(0);
        rmp_serde::encode::write_named(&mut bytes, learner).expect("plain data");
        self.body.reserve_exact(bytes.0 + size_of::<u32>());
        rmp_serde::encode::write_named(&mut self.body, learner).expect("plain data into memory");
        self.end(start);
    }

    /// Record a request to an advisor.
    pub fn advice(&mut self, advice: &Advice) {
        self.put(ADVICE, 5, advice);
    }

    /// Record that rows are taken back.
    pub fn removed(&mut self, removed: &RemovedRows) {
        self.put(REMOVED, 7, removed);
    }

    /// Record the place of `rows` rows that were taken back.
    pub fn hole(&mut self, rows: u64) {
        let start = self.begin(HOLE);
        self.version = self.version.max(7);
        self.body.extend_from_slice(&rows.to_le_bytes());
        self.end(start);
        self.rows += rows;
    }

    /// A record of plain data, which readers of `version` know.
    fn put(&mut self, kind: u32, version: u32, record: &impl Serialize) {
        let start = self.begin(kind);
        self.version = self.version.max(version);
        rmp_serde::encode::write_named(&mut self.body, record).expect("plain data into memory");
        self.end(start);
    }

    fn begin(&mut self, kind: u32) -> usize {
        self.kinds |= kind;
        self.body.resize(self.body.len().max(TIME_BYTES), 0);
        self.body.push(kind.trailing_zeros() as u8);
        self.body.extend_from_slice(&[0; 4]);
        self.body.len()
    }

    fn end(&mut self, start: usize) {
        let length = u32::try_from(self.body.len() - start).expect("a record is smaller than 4 GiB");
        self.body[start - 4..start].copy_from_slice(&length.to_le_bytes());
    }

    /// The group with this number and offset of its first row, behind one with this checksum.
    pub fn finish(self, id: u64, first_offset: u64, previous_crc: u32, time: f64) -> StoredGroup {
        let Self { mut body, rows, kinds, version } = self;
        let version = version.max(1);
        body.resize(body.len().max(TIME_BYTES), 0);
        body[..TIME_BYTES].copy_from_slice(&time.to_le_bytes());
        StoredGroup { id, first_offset, rows, kinds, previous_crc, crc: 0, version, body }.sealed()
    }
}

fn bits_equal(a: &[f64], b: &[f64]) -> bool {
    a.iter().zip(b).all(|(x, y)| x.to_bits() == y.to_bits())
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&u16::try_from(text.len()).expect("names have at most 256 bytes").to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_numbers(out: &mut Vec<u8>, numbers: &[f64]) {
    for number in numbers {
        out.extend_from_slice(&number.to_le_bytes());
    }
}

/// Bytes that are left to be read. Every length is compared with them before memory is taken for it.
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], String> {
        let Some((taken, rest)) = self.0.split_at_checked(count) else {
            return Err(format!("{count} bytes are missing where {} are left", self.0.len()));
        };
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], String> {
        Ok(self.take(N)?.try_into().expect("as many as were asked for"))
    }

    fn u8(&mut self) -> Result<u8, String> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, String> {
        self.array().map(u32::from_le_bytes)
    }

    fn f64(&mut self) -> Result<f64, String> {
        self.array().map(f64::from_le_bytes)
    }

    fn text(&mut self) -> Result<String, String> {
        let length = u16::from_le_bytes(self.array()?);
        let text = std::str::from_utf8(self.take(length.into())?).map_err(|e| e.to_string())?;
        Ok(text.to_owned())
    }

    fn numbers(&mut self, rows: usize, width: usize) -> Result<Vec<f64>, String> {
        let count = rows.checked_mul(width).and_then(|count| count.checked_mul(8)).ok_or("a length beyond reason")?;
        let bytes = self.take(count)?;
        Ok(bytes.chunks_exact(8).map(|b| f64::from_le_bytes(b.try_into().expect("eight bytes"))).collect())
    }

    /// Rows, behind the count of numbers in each.
    fn wide(&mut self, rows: usize) -> Result<Vec<f64>, String> {
        let width = self.u32()? as usize;
        self.numbers(rows, width)
    }

    fn record(&mut self) -> Result<Record, String> {
        let kind = self.u8()?;
        let length = self.u32()?;
        let mut payload = Bytes(self.take(length as usize)?);
        let record = match 1u32.checked_shl(kind.into()).unwrap_or(0) {
            ROWS => Record::Rows(payload.rows()?),
            ADOPTED => {
                let critic = payload.text()?;
                let adoption: Adoption = payload.packed()?;
                if !adoption.is_consistent() {
                    return Err("a recorded model whose parts do not fit each other".into());
                }
                Record::Adopted { critic, adoption }
            }
            REFIT_ENDED => Record::RefitEnded { critic: payload.text()? },
            SKIPPED => Record::Skipped(payload.packed()?),
            CONFIGURED => {
                let configured: Configured = payload.packed()?;
                let advisors_fit = configured.advisors.iter().all(|advisor| advisor.check().is_ok());
                if !(advisors_fit && configured.critics.iter().all(Settings::are_valid)) {
                    return Err("settings with which no learner can work".into());
                }
                Record::Configured(configured)
            }
            NEW_POLICY => {
                let change: NewPolicy = payload.packed()?;
                change.policy.as_deref().map_or(Ok(()), check_policy).map_err(|e| e.to_string())?;
                Record::NewPolicy(change)
            }
            HEADS => Record::Heads(payload.packed()?),
            ADVICE => Record::Advice(payload.packed()?),
            REMOVED => {
                let removed: RemovedRows = payload.packed()?;
                if !(removed.offsets.are_consistent(0) && removed.starts.are_consistent(0)) {
                    return Err("offsets that do not ascend".into());
                }
                Record::Removed(removed)
            }
            HOLE => Record::Hole(u64::from_le_bytes(payload.array()?)),
            REBUILT => {
                let learner: Learner = payload.packed()?;
                if !learner.is_consistent() {
                    return Err("a recorded critic whose parts do not fit each other".into());
                }
                Record::Rebuilt(Box::new(learner))
            }
            _ => return Err(format!("a record of the unknown kind {kind}")),
        };
        if payload.0.is_empty() { Ok(record) } else { Err("a record has trailing bytes".into()) }
    }

    fn packed<T: Deserialize<'a>>(&mut self) -> Result<T, String> {
        let value = packed::read(self.0).map_err(|e| e.to_string())?;
        self.0 = &[];
        Ok(value)
    }

    fn rows(&mut self) -> Result<TakenRows, String> {
        let stream = self.u32()?;
        let flags = self.u8()?;
        let has = |flag: u8| flags & flag != 0;
        let (name, session) = (self.text()?, self.text()?);
        let seq = if has(HAS_SEQ) { Some(u64::from_le_bytes(self.array()?)) } else { None };
        let [rows, dim, rewards_per_row, action] = {
            let mut counts = [0; 4];
            for count in &mut counts {
                *count = self.u32()? as usize;
            }
            counts
        };
        let row_flags = self.take(rows)?;
        let column = |flag: u8| row_flags.iter().map(|row| row & flag != 0).collect::<Vec<bool>>();
        let (mut states, next_states);
        if has(PIECE) {
            states = self.numbers(rows + 1, dim)?;
            let next = states.get(dim..).ok_or("a piece without states")?.to_vec();
            states.truncate(rows * dim);
            next_states = next;
        } else {
            states = self.numbers(rows, dim)?;
            next_states = self.numbers(rows, dim)?;
        }
        let rewards = self.numbers(rows, rewards_per_row)?;
        let actions = if has(HAS_ACTIONS) { Some(self.numbers(rows, action)?) } else { None };
        let discounts = if has(HAS_DISCOUNTS) { Some(self.numbers(rows, 1)?) } else { None };
        let times = if has(HAS_TIMES) { Some(self.numbers(rows, 1)?) } else { None };
        let said = if has(HAS_POLICY) { self.u8()? } else { 0 };
        let has = |flag: u8| said & flag != 0;
        let behavior_probs = if has(HAS_BEHAVIOR_PROBS) { Some(self.numbers(rows, 1)?) } else { None };
        let target_probs = if has(HAS_TARGET_PROBS) { Some(self.numbers(rows, 1)?) } else { None };
        let next_actions = if has(HAS_NEXT_ACTIONS) { Some(self.wide(rows)?) } else { None };
        let next_action_probs = if has(HAS_NEXT_ACTION_PROBS) { Some(self.wide(rows)?) } else { None };
        let policy = if has(HAS_POLICY_NAME) { Some(self.text()?) } else { None };
        let parts = BatchParts {
            stream: name,
            session,
            seq,
            dim,
            rewards_per_row,
            states,
            next_states: Some(next_states),
            rewards,
            terminated: Some(column(TERMINATED)),
            truncated: Some(column(TRUNCATED)),
            discounts,
            actions,
            times,
            behavior_probs,
            target_probs,
            policy,
            next_actions,
            next_action_probs,
            names: Names::default(),
            single: false,
        };
        let batch = Batch::new(parts).map_err(|e| e.to_string())?;
        Ok(TakenRows { stream, starts_chain: column(STARTS_CHAIN), batch })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(rows: usize) -> BatchParts {
        BatchParts {
            stream: "robot".into(),
            session: "today".into(),
            seq: Some(7),
            dim: 2,
            rewards_per_row: 1,
            states: (0..2 * rows + 2).map(|k| 0.1 * k as f64 - 0.3).collect(),
            rewards: (0..rows).map(|k| -(k as f64)).collect(),
            ..BatchParts::default()
        }
    }

    /// What rows say about policies, all of it or some.
    fn policies() -> Batch {
        let full = BatchParts {
            actions: Some(vec![0.5; 6]),
            behavior_probs: Some(vec![0.1, 0.2, 0.3]),
            target_probs: Some(vec![0.3, 0.0, 1.5]),
            next_actions: Some(vec![1.0, -0.0, 3.0, 4.0, 5.0, 6.0]),
            next_action_probs: Some([0.2, 0.3, 0.5].repeat(3)),
            ..parts(3)
        };
        Batch::new(full).unwrap()
    }

    #[test]
    fn what_rows_say_about_policies_comes_back_bit_for_bit() {
        let full = policies();
        let half = |change: &dyn Fn(&mut BatchParts)| {
            let mut parts = full.clone().into_parts();
            change(&mut parts);
            Batch::new(parts).unwrap()
        };
        let only_behavior = half(&|p| (p.target_probs, p.next_actions, p.next_action_probs) = (None, None, None));
        let batches = [
            full.clone(),
            half(&|p| p.behavior_probs = None),
            half(&|p| p.next_actions = None),
            half(&|p| p.next_action_probs = None),
            only_behavior,
            half(&|p| p.policy = Some("stiff".into())),
            Batch::new(BatchParts { policy: Some("\u{e9}".repeat(128)), ..parts(3) }).unwrap(),
        ];
        for batch in &batches {
            let mut group = GroupWriter::default();
            group.take(&rows(0, batch.clone().without_first(1), &[true, false]));
            let stored = group.finish(1, 0, 0, 1.0);
            assert_eq!(stored.version, if batch.policy().is_some() { 3 } else { 2 });
            let Record::Rows(taken) = &stored.decode().unwrap().1[0] else { panic!("rows") };
            assert_eq!(taken.batch.policy(), batch.policy());
            assert_eq!(rows_of(&taken.batch), rows_of(batch)[1..]);
            for i in 1..3 {
                assert_eq!(taken.batch.ratio(i - 1).to_bits(), batch.ratio(i).to_bits());
                assert_eq!(taken.batch.next_action_probs(i - 1), batch.next_action_probs(i));
            }
            // The end of one record must not pass for the beginning of another.
            for at in 8..stored.body.len() {
                let mut cut = stored.clone();
                cut.body.truncate(at);
                assert!(cut.sealed().decode().is_err(), "cut at {at}");
            }
        }
        let mut group = GroupWriter::default();
        group.take(&rows(0, Batch::new(parts(3)).unwrap(), &[true, false, false]));
        assert_eq!(group.finish(1, 0, 0, 1.0).version, 1, "what the program before could read, it can read");
    }

    fn rows(stream: u32, batch: Batch, starts_chain: &[bool]) -> TakenRows {
        TakenRows { stream, starts_chain: starts_chain.to_vec(), batch }
    }

    fn rows_of(batch: &Batch) -> Vec<u64> {
        (0..batch.len()).map(|i| batch.fingerprint(i)).collect()
    }

    #[test]
    fn rows_come_back_as_they_were() {
        let piece = Batch::new(parts(5)).unwrap();
        let states = piece.state(0).to_vec();
        let full = Batch::new(BatchParts {
            seq: None,
            states: states.repeat(3),
            next_states: Some(vec![-0.0, 1.5, 2.5, 3.5, 4.5, 5.5]),
            rewards: vec![1.0, 2.0, 3.0],
            terminated: Some(vec![false, true, false]),
            truncated: Some(vec![true, false, false]),
            actions: Some(vec![0.5; 6]),
            discounts: Some(vec![0.0, 1.0, 0.5]),
            times: Some(vec![1e9, 1e9 + 1.0, 1e9 + 2.0]),
            ..parts(3)
        })
        .unwrap();
        let one = Batch::new(parts(1)).unwrap();
        let mut group = GroupWriter::default();
        group.take(&rows(3, piece.clone().without_first(2), &[true, false, true]));
        group.take(&rows(4, full.clone(), &[true; 3]));
        group.take(&rows(3, one.clone(), &[false]));
        group.refit_ended("main");
        let skipped = SkippedRows { critic: "main".into(), from: 3, to: 5, why: "it panicked".into() };
        group.skipped(&skipped);
        let configured =
            Configured { critics: vec![Settings::default()], names: None, from: 12, ..Configured::default() };
        group.configured(&configured);
        let changes = [
            NewPolicy { critic: None, policy: None, offset: 100 },
            NewPolicy { critic: Some("main".into()), policy: Some("stiff".into()), offset: 103 },
        ];
        changes.iter().for_each(|change| group.new_policy(change));
        let stored = group.finish(9, 100, 0xabcd, 1.25e9);
        assert_eq!((stored.rows, stored.end()), (7, 107));
        let (time, records) = stored.decode().unwrap();
        assert_eq!((time, records.len(), stored.version), (1.25e9, 8, 3));
        let Record::Rows(taken) = &records[0] else { panic!("{records:?}") };
        assert_eq!((taken.stream, taken.batch.seq(), taken.batch.len()), (3, Some(9), 3));
        assert_eq!((taken.batch.stream(), taken.batch.session()), ("robot", "today"));
        assert_eq!(rows_of(&taken.batch), rows_of(&piece)[2..]);
        assert_eq!(taken.starts_chain, [true, false, true]);
        let Record::Rows(taken) = &records[1] else { panic!("{records:?}") };
        assert_eq!(rows_of(&taken.batch), rows_of(&full));
        assert_eq!((taken.batch.seq(), taken.batch.time(2)), (None, Some(1e9 + 2.0)));
        let Record::Rows(taken) = &records[2] else { panic!("{records:?}") };
        assert_eq!(rows_of(&taken.batch), rows_of(&one));
        assert!(matches!(&records[3], Record::RefitEnded { critic } if critic == "main"));
        assert!(matches!(&records[4], Record::Skipped(q) if *q == skipped));
        assert!(matches!(&records[5], Record::Configured(c) if *c == configured));
        for (record, change) in records[6..].iter().zip(&changes) {
            assert!(matches!(record, Record::NewPolicy(found) if found == change));
        }
        let mut group = GroupWriter::default();
        group.new_policy(&NewPolicy { critic: None, policy: Some("p".repeat(257)), offset: 0 });
        assert!(
            matches!(group.finish(1, 0, 0, 1.0).decode(), Err(Corruption::Unreadable(why)) if why.contains("policy"))
        );
    }

    #[test]
    fn a_changed_byte_is_noticed_wherever_it_is() {
        let mut group = GroupWriter::default();
        group.take(&rows(3, Batch::new(parts(2)).unwrap(), &[true, false]));
        let stored = group.finish(9, 100, 0xabcd, 1.25e9);
        stored.check().unwrap();
        for at in 0..stored.body.len() {
            let mut changed = stored.clone();
            changed.body[at] ^= 1;
            assert_eq!(changed.check(), Err(Corruption::Checksum));
        }
        let changes: [&dyn Fn(&mut StoredGroup); 7] = [
            &|g| g.id += 1,
            &|g| g.first_offset += 1,
            &|g| g.rows += 1,
            &|g| g.kinds ^= 1,
            &|g| g.previous_crc ^= 1,
            &|g| g.crc ^= 1,
            &|g| g.version = VERSION + 1,
        ];
        for change in changes {
            let mut changed = stored.clone();
            change(&mut changed);
            assert_eq!(changed.check(), Err(Corruption::Checksum));
        }
        let mut newer = stored.clone();
        newer.version = VERSION + 1;
        newer.crc = newer.checksum();
        assert_eq!(newer.decode().unwrap_err(), Corruption::Newer { version: VERSION + 1 });
    }

    #[test]
    fn bytes_that_are_no_records_are_refused_without_a_panic() {
        let mut group = GroupWriter::default();
        group.take(&rows(3, Batch::new(parts(2)).unwrap(), &[true, false]));
        group.refit_ended("main");
        let stored = group.finish(9, 100, 0, 1.0);
        let mut refused = 0;
        for at in 8..stored.body.len() {
            for value in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = stored.clone();
                changed.body[at] = value;
                changed.crc = changed.checksum();
                refused += u32::from(changed.decode().is_err());
            }
            let mut cut = stored.clone();
            cut.body.truncate(at);
            cut.crc = cut.checksum();
            // Between two records a cut leaves whole ones, but not all rows.
            assert!(cut.decode().is_err() || at == stored.body.len() - 11, "cut at {at}");
        }
        assert!(refused > 100, "{refused}");
    }
}
