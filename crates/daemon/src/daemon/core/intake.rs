//! The next group: what has been received or decided and is not stored yet.
//!
//! A batch is admitted as a whole or not at all, and numbered here, behind what waits already: the intake knows where the
//! streams will stand when everything before is stored. [`crate::state::State`] comes to the same when it applies the group.

use super::advice::WaitingAdvice;
use super::caller::Caller;
use super::reconfigure::{fitting, known_names};
use crate::config::Config;
use crate::learner::HeadsChange;
use crate::learner::heads::{self, Columns, Demands};
use crate::learner::suggest::Advisor;
use crate::state::State;
use crate::state::record::{Advice, Group, Mark, NewPolicy, Record, TakenRows};
use crate::state::streams::{StreamLimits, Streams};
use crate::transition::{ACTION_NUMBERS_MAX, Batch, BatchParts, Names};
use crate::transport::Reply;
use crate::wire::{self, ErrorCode, WireError};
use siphasher::sip::SipHasher13;
use std::collections::VecDeque;
use std::hash::Hasher as _;
use std::sync::Arc;

/// Changes of heads that are remembered since they could not be stored when they came.
const LATE_CHANGES_MAX: usize = 64;
/// Multiplications that storing and applying a label, or the name of a head, takes about as long as: some 100 ns.
const WORK_OF_AN_ITEM: u64 = 100;
/// Bytes of memory of former batches that are kept for the next ones.
const SPARE_BYTES: usize = 4 << 20;

/// What became of a batch that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Admitted {
    /// New rows.
    pub(super) accepted: u64,
    /// Rows that were known already.
    pub(super) duplicates: u64,
    /// Rows that were left out before them, by their numbers.
    pub(super) missing: u64,
    /// Sequence number of the row behind the batch.
    pub(super) next_seq: u64,
}

/// What rows or requests have said beside numbers.
#[derive(Debug, Default)]
struct Said {
    /// Name of the policy, the last one.
    policy: Option<String>,
    /// Changes of policy that come with the rows that wait, at the most.
    changes: u64,
    names: Names,
}

/// What waits to be stored. See the module.
#[derive(Debug)]
pub(crate) struct Intake {
    config: Arc<Config>,
    /// The demands of the heads of all critics on a row.
    demands: Demands,
    /// Where the streams will stand.
    streams: Streams,
    /// State dimension and rewards per row, once there is a row.
    shape: Option<(usize, usize)>,
    /// Offset of the next group's first row.
    start: u64,
    /// Offset behind the last row.
    end: u64,
    /// Records that stand before the rows: they were decided when everything before had been learned.
    decisions: Vec<Record>,
    rows: Vec<TakenRows>,
    /// Bytes of the rows' numbers.
    bytes: usize,
    /// Unix seconds when the first row came.
    time: Option<f64>,
    /// Appends that are answered when their rows are stored.
    appends: Vec<(Caller, Admitted)>,
    /// Who has announced a policy, and from which row on: answered when that is stored.
    announced: Vec<(Caller, u64)>,
    /// Callers that changed heads, the row before, and a hash of the change: the core answers them when it is in force.
    changed_heads: Vec<(Caller, u64, u64)>,
    /// Hashes of the changes whose callers heard that they could not be stored. They are stored later.
    late_changes: VecDeque<u64>,
    advice: WaitingAdvice,
    said: Said,
    /// Rows so far that were known already.
    duplicates: u64,
    spare: Vec<BatchParts>,
    spare_bytes: usize,
    spare_flags: Vec<Vec<bool>>,
}

impl Intake {
    /// Nothing waits behind `state`.
    pub(crate) fn new(config: Arc<Config>, state: &State) -> Self {
        let end = state.end().offset;
        let names = known_names(state, &config);
        Self {
            demands: super::head_changes::demands(state),
            config,
            streams: state.streams().clone(),
            shape: state.shape(),
            start: end,
            end,
            decisions: Vec::new(),
            rows: Vec::new(),
            bytes: 0,
            time: None,
            appends: Vec::new(),
            announced: Vec::new(),
            changed_heads: Vec::new(),
            advice: WaitingAdvice::default(),
            late_changes: VecDeque::new(),
            said: Said { names, ..Said::default() },
            duplicates: 0,
            spare: Vec::new(),
            spare_bytes: 0,
            spare_flags: Vec::new(),
        }
    }

    /// Go by other settings from here on.
    pub(super) fn set_config(&mut self, config: Arc<Config>) {
        self.config = config;
    }

    /// State dimension and rewards per row, once there is a row.
    pub(super) fn shape(&self) -> Option<(usize, usize)> {
        self.shape
    }

    /// Rows that wait.
    pub(super) fn rows(&self) -> u64 {
        self.end - self.start
    }

    /// Multiplications that the requests to advisors take which wait, about.
    pub(super) fn advice_work(&self) -> u64 {
        self.advice.work
    }

    /// Multiplications that storing and applying the changes of heads and labels take which wait, about.
    pub(super) fn work_of_heads(&self) -> u64 {
        let items = |record: &Record| match record {
            Record::Heads(HeadsChange { add, remove, labels, .. }) => {
                add.len() + remove.len() + labels.as_ref().map_or(0, |part| part.offsets.len())
            }
            _ => 0,
        };
        WORK_OF_AN_ITEM * self.decisions.iter().map(items).sum::<usize>() as u64
    }

    /// Changes of policy that wait, at the most: by request, and with the rows.
    pub(super) fn policy_changes(&self) -> (u64, u64) {
        (self.announced.len() as u64, self.said.changes)
    }

    /// Bytes of the numbers of those rows.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Rows so far that were known already.
    pub(super) fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Whether something waits that is no row.
    pub(super) fn has_decisions(&self) -> bool {
        !self.decisions.is_empty()
    }

    /// Memory for the next batch.
    pub(crate) fn memory(&mut self) -> BatchParts {
        let parts = self.spare.pop().unwrap_or_default();
        self.spare_bytes -= parts.bytes().1;
        parts
    }

    /// Take the memory of a batch that is no longer needed.
    fn reuse(&mut self, parts: BatchParts) {
        let bytes = parts.bytes().1;
        if bytes > 0 && self.spare_bytes + bytes <= SPARE_BYTES {
            self.spare_bytes += bytes;
            self.spare.push(parts);
        }
    }

    /// Take the memory of rows that have been applied.
    pub(crate) fn reuse_rows(&mut self, rows: Vec<TakenRows>) {
        for TakenRows { mut starts_chain, batch, .. } in rows {
            self.reuse(batch.into_parts());
            if self.spare_flags.len() < self.spare.len() {
                starts_chain.clear();
                self.spare_flags.push(starts_chain);
            }
        }
    }

    /// Whether rows have what all critics ask of them.
    ///
    /// # Errors
    /// What they lack.
    pub(crate) fn check(&self, batch: &Batch) -> Result<(), WireError> {
        self.check_shape(batch.dim(), batch.rewards_per_row())?;
        super::actions::check(&self.config.critics, batch)?;
        self.demands.check(batch).map_err(WireError::from)
    }

    /// Number the new rows of `batch` and put them behind the others, all of them or none. `strict` is an append, whose sequence
    /// numbers may leave no gap. `unix` is the time in seconds.
    ///
    /// # Errors
    /// Why they are refused: see [`Intake::check_shape`] and [`Streams::admit`].
    pub(crate) fn take(&mut self, mut batch: Batch, strict: bool, unix: f64) -> Result<Admitted, WireError> {
        let limits = StreamLimits { max: self.config.streams_max, idle_rows: self.config.streams_idle_rows };
        let shape = (batch.dim(), batch.rewards_per_row());
        let admitted = self.check(&batch).and_then(|()| self.streams.admit(&batch, strict, self.end, limits));
        let names = batch.take_names();
        let admission = match admitted {
            Ok(admission) => admission,
            Err(error) => {
                self.reuse(batch.into_parts());
                return Err(error);
            }
        };
        let (duplicates, missing) = (admission.duplicates, admission.missing);
        let accepted = (batch.len() - duplicates) as u64;
        self.duplicates += duplicates as u64;
        self.learn_names(names);
        if accepted == 0 {
            self.reuse(batch.into_parts());
        } else {
            let time = *self.time.get_or_insert(unix);
            let mut starts_chain = self.spare_flags.pop().unwrap_or_default();
            let other = self.streams.commit(&batch, &admission, self.end, time, |starts, _| starts_chain.push(starts));
            if other && batch.policy() != self.said.policy.as_deref() {
                self.said.policy = batch.policy().map(str::to_owned);
                self.said.changes += 1;
            }
            self.shape = Some(shape);
            self.end += accepted;
            let batch = if duplicates > 0 { batch.without_first(duplicates) } else { batch };
            self.bytes += batch.bytes();
            self.rows.push(TakenRows { stream: admission.number, starts_chain, batch });
        }
        Ok(Admitted { accepted, duplicates: duplicates as u64, missing, next_seq: admission.next_seq })
    }

    /// Who sends rows says what their numbers are called. The first names stay, and names of the settings count more.
    fn learn_names(&mut self, names: Names) {
        // Most rows say nothing of it.
        if names == Names::default() {
            return;
        }
        let known = self.said.names.clone().or(fitting(names, &self.config));
        if known != self.said.names {
            let configured = super::configured(&self.config, self.start, &known);
            self.said.names = known;
            self.decide(Record::Configured(configured));
        }
    }

    /// What the recorded settings and rows have said until now, those that wait among them.
    pub(super) fn said_names(&self) -> &Names {
        &self.said.names
    }

    /// What state variables, the rewards of a row and actions are called; nothing where that is not known.
    pub(super) fn names(&self) -> [&[String]; 3] {
        let Names { states, rewards, actions } = &self.said.names;
        let states = self.config.state_names.as_ref().or(states.as_ref());
        let own = self.config.critics.iter().map(|critic| &critic.action_names).find(|names| !names.is_empty());
        let [states, actions] = [states, own.or(actions.as_ref())].map(|names| names.map_or(&[][..], Vec::as_slice));
        [states, self.config.names_of_rewards(rewards.as_deref()), actions]
    }

    /// Answer `caller` when what has been taken in so far is stored.
    pub(super) fn answer_when_stored(&mut self, caller: Caller, admitted: Admitted) {
        self.appends.push((caller, admitted));
    }

    /// Put a record before the rows of the next group.
    pub(crate) fn decide(&mut self, record: Record) {
        self.decisions.push(record);
    }

    /// Streams of these numbers lose rows, and the next rows of `ended` begin chains.
    pub(super) fn lose(&mut self, streams: &[u32], ended: &[u32]) {
        self.streams.lose(streams, ended);
    }

    /// From the next row on another policy acts, for one critic or all; `caller` is answered when that is stored.
    pub(super) fn announce(&mut self, critic: Option<String>, policy: Option<String>, caller: Caller) {
        self.said.policy.clone_from(&policy);
        self.decide(Record::NewPolicy(NewPolicy { critic, policy, offset: self.end }));
        self.announced.push((caller, self.end));
    }

    /// Change the heads of a critic; the core answers `caller` when the change is in force.
    pub(super) fn change_heads(&mut self, change: HeadsChange, caller: Caller) {
        self.changed_heads.push((caller, self.start, hash(&change)));
        self.decide(Record::Heads(change));
    }

    /// Whether this change was to be sent again since it could not be stored, and has been stored by now: said once.
    pub(super) fn is_stored_since(&mut self, change: &HeadsChange) -> bool {
        let sought = if self.late_changes.is_empty() { None } else { Some(hash(change)) };
        let place = self.late_changes.iter().position(|&late| Some(late) == sought);
        place.and_then(|place| self.late_changes.remove(place)).is_some()
    }

    /// Put a request to an advisor behind the others; the core answers `caller` when the request has been applied.
    pub(super) fn advise(&mut self, advice: Advice, advisor: &Advisor, caller: Caller) {
        self.advice.put(advice, advisor, caller);
    }

    /// Those who wait for the answers of advisors to the group that has just been stored, in the order of its records.
    pub(super) fn take_advised(&mut self) -> Vec<Caller> {
        std::mem::take(&mut self.advice.callers)
    }

    /// Changes of the heads of a critic that wait.
    pub(super) fn changes_of_heads(&self, critic: &str) -> impl Iterator<Item = &HeadsChange> {
        self.decisions.iter().filter_map(move |record| match record {
            Record::Heads(change) if change.critic == critic => Some(change),
            _ => None,
        })
    }

    /// Whether a change waits that may begin, use or end labels.
    pub(super) fn may_change_labels(&self) -> bool {
        self.decisions.iter().any(|record| matches!(record, Record::Heads(_)))
    }

    /// The row that waits and lacks what heads ask for, in words; none if there is none.
    pub(super) fn lacking(&self, demands: &Demands) -> Option<String> {
        let fault = self.rows.iter().find_map(|taken| demands.check(&taken.batch).err())?;
        Some(format!("a row that has just come: `{}` {}", fault.field, fault.message))
    }

    /// Ask of rows what heads ask that are about to come.
    pub(super) fn demand(&mut self, demands: &Demands) {
        self.demands.join(demands);
    }

    /// Replace the demands of heads on rows.
    pub(super) fn set_demands(&mut self, demands: Demands) {
        self.demands = demands;
    }

    /// The next group, if something waits; nothing waits any more. Its number and checksum come from the journal. `unix` is the
    /// time in seconds.
    pub(crate) fn close(&mut self, unix: f64) -> Option<Group> {
        if self.decisions.is_empty() && self.rows.is_empty() && self.advice.requests.is_empty() {
            return None;
        }
        let time = self.time.take().unwrap_or(unix);
        let mut records = std::mem::take(&mut self.decisions);
        records.extend(self.rows.drain(..).map(Record::Rows));
        records.extend(self.advice.take().map(Record::Advice));
        let first_offset = std::mem::replace(&mut self.start, self.end);
        (self.bytes, self.said.changes) = (0, 0);
        Some(Group { end: Mark { offset: self.end, ..Mark::default() }, first_offset, time, records })
    }

    /// The answers to the appends whose rows are stored, the last of them before `offset`, and to announcements.
    pub(super) fn acknowledge(&mut self, offset: u64) -> impl Iterator<Item = Reply> {
        let appends = self.appends.drain(..).map(move |(caller, Admitted { accepted, duplicates, next_seq, .. })| {
            caller.reply(&wire::Reply::Append { accepted, duplicates, next_seq, offset })
        });
        let announced = self.announced.drain(..);
        let announced = announced.map(|(caller, offset)| caller.reply(&wire::Reply::NewPolicy { offset }));
        appends.chain(announced)
    }

    /// The answers to the changes of heads that are stored.
    pub(super) fn acknowledge_heads(&mut self) -> impl Iterator<Item = Reply> {
        let changed = self.changed_heads.drain(..);
        changed.map(|(caller, offset, _)| caller.reply(&wire::Reply::ChangeHeads { offset }))
    }

    /// The answers to requests of which nothing may be stored. If it is stored later, sending them again does no harm.
    pub(super) fn refuse(&mut self) -> impl Iterator<Item = Reply> {
        let error = WireError::new(ErrorCode::ReadOnly, "this could not be stored; send it again later");
        self.late_changes.extend(self.changed_heads.iter().map(|&(_, _, hash)| hash));
        self.late_changes.drain(..self.late_changes.len().saturating_sub(LATE_CHANGES_MAX));
        let callers = self.appends.drain(..).map(|(caller, _)| caller);
        let announced = self.announced.drain(..).map(|(caller, _)| caller);
        let changed = self.changed_heads.drain(..).map(|(caller, _, _)| caller);
        let others = announced.chain(changed).chain(self.advice.callers.drain(..));
        callers.chain(others).map(move |caller| caller.refuse(&error))
    }

    /// Whether rows of states (`state_dim`,) and `found` rewards may be taken in.
    ///
    /// # Errors
    /// `wrong_dimension`, if they are not like the rows before them, or the settings forbid them.
    pub(super) fn check_shape(&self, state_dim: usize, found: usize) -> Result<(), WireError> {
        let expected = self.shape.map(|(dim, _)| (dim, "")).or(self.config.expected_dim());
        if let Some(expected) = expected.filter(|&(dim, _)| dim != state_dim) {
            return Err(WireError::other_dimension("state", expected, state_dim));
        }
        if let Some((_, rewards)) = self.shape.filter(|&(_, h)| h != found) {
            let message = format!("rows have {rewards} rewards here, these have {found}");
            return Err(WireError::of(ErrorCode::WrongDimension, "reward", message));
        }
        for critic in &self.config.critics {
            if let Some(column) = critic.rewards.iter().find(|&&column| column >= found) {
                let message = format!("critic \"{}\" learns reward {column}, rows have {found} rewards", critic.name);
                return Err(WireError::of(ErrorCode::WrongDimension, "reward", message));
            }
            // Rows that follow on others are like those.
            if self.shape.is_none() {
                let columns = Columns { states: state_dim, rewards: found, actions: ACTION_NUMBERS_MAX };
                heads::check(&critic.heads, columns).map_err(|what| {
                    let message = format!("critic \"{}\", {what}", critic.name);
                    WireError::of(ErrorCode::WrongDimension, "state", message)
                })?;
            }
        }
        Ok(())
    }
}

/// By which a change of heads is known again.
fn hash(change: &HeadsChange) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(&rmp_serde::to_vec(change).expect("a change can be written"));
    hasher.finish()
}

/// A state whose one critic, of the settings by default, has learned `rows` rows.
#[cfg(test)]
pub(super) fn learned(rows: usize) -> (Arc<Config>, State) {
    use criticd_sim::{self as sim, Step, pendulum::Pendulum};
    let config = Arc::new(Config::default());
    let mut state = State::new(config.window_rows);
    let mut intake = Intake::new(Arc::clone(&config), &state);
    intake.decide(Record::Configured(super::configured(&config, 0, &Names::default())));
    let mut pendulum = Pendulum::new(1, 0.3);
    let steps: Vec<Step> = (0..rows).map(|_| pendulum.step()).collect();
    for batch in sim::batches("pendulum", "", &steps) {
        intake.take(batch, false, 1e9).unwrap();
    }
    state.apply(intake.close(1e9).unwrap()).unwrap();
    (config, state)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::GroupWriter;
    use crate::learner::{Event, Settings};
    use crate::state::record::Configured;
    use crate::transport::Peer;
    use crate::wire::{ArrayForm, Id};

    fn batch(stream: &str, seq: u64, states: &[f64]) -> Batch {
        Batch::new(BatchParts {
            stream: stream.into(),
            seq: Some(seq),
            dim: 1,
            rewards_per_row: 1,
            states: states.to_vec(),
            rewards: vec![1.0; states.len() - 1],
            ..BatchParts::default()
        })
        .unwrap()
    }

    fn intake(state: &State) -> Intake {
        let toml = "streams_max = 2\nstreams_idle_rows = 2\n[[critic]]\n";
        Intake::new(Arc::new(Config::from_toml(toml).unwrap()), state)
    }

    #[test]
    fn what_is_admitted_is_what_the_state_applies() {
        let mut state = State::new(100);
        let mut intake = intake(&state);
        let taken =
            |admitted: Result<Admitted, WireError>| admitted.map(|a| (a.accepted, a.duplicates)).map_err(|e| e.code);
        assert_eq!(taken(intake.take(batch("one", 0, &[0.0, 1.0, 2.0]), true, 7.0)), Ok((2, 0)));
        // Behind rows that are not stored yet: one is known, one new, and the chain goes on.
        assert_eq!(taken(intake.take(batch("one", 1, &[1.0, 2.0, 3.0]), true, 8.0)), Ok((1, 1)));
        assert_eq!(taken(intake.take(batch("one", 9, &[1.0, 2.0]), true, 8.0)), Err(ErrorCode::SequenceGap));
        assert_eq!(taken(intake.take(batch("two", 0, &[5.0, 6.0, 7.0, 8.0]), true, 9.0)), Ok((3, 0)));
        // The first has been silent for long enough to make room, before a row of either is stored.
        assert_eq!(taken(intake.take(batch("three", 0, &[5.0, 6.0]), true, 9.0)), Ok((1, 0)));
        assert_eq!((intake.rows(), intake.duplicates(), state.streams().len()), (7, 1, 0));
        let group = intake.close(10.0).unwrap();
        assert_eq!((group.first_offset, group.end.offset, group.time, group.records.len()), (0, 7, 7.0, 4));
        let Record::Rows(second) = &group.records[1] else { panic!("rows") };
        assert_eq!((second.batch.seq(), &second.starts_chain[..]), (Some(2), &[false][..]));
        let applied = state.apply(group).unwrap();
        let bytes = |streams: &Streams| rmp_serde::to_vec_named(streams).unwrap();
        assert!(bytes(state.streams()) == bytes(&intake.streams));
        assert_eq!(state.streams().positions().keys().collect::<Vec<_>>(), ["three", "two"]);
        intake.reuse_rows(applied.rows);
        assert!(intake.memory().bytes().1 > 0, "memory is used again");
        assert_eq!((intake.rows(), intake.bytes(), intake.close(11.0).is_none()), (0, 0, true));
    }

    #[test]
    fn a_policy_begins_at_its_row_wherever_its_record_stands() {
        let mut state = State::new(100);
        let mut intake = intake(&state);
        let settings = Settings { warmup_rows: 2, refit_first_rows: 0, ..Settings::default() };
        intake.decide(Record::Configured(Configured {
            critics: vec![settings],
            names: None,
            from: 0,
            ..Configured::default()
        }));
        let named = |seq: u64, states: &[f64], policy: &str| {
            Batch::new(BatchParts { policy: Some(policy.into()), ..batch("one", seq, states).into_parts() }).unwrap()
        };
        let caller = Caller { peer: Peer { connection: 1, delimiter: false }, id: Id::nil(), form: ArrayForm::List };
        intake.take(named(0, &[0.0, 1.0, 2.0], "a"), true, 7.0).unwrap();
        intake.take(named(2, &[2.0, 3.0], "b"), true, 7.0).unwrap();
        intake.announce(None, Some("c".into()), caller.clone());
        intake.take(named(3, &[3.0, 4.0, 5.0], "b"), true, 7.0).unwrap();
        let group = intake.close(8.0).unwrap();
        let starts: Vec<bool> = group
            .records
            .iter()
            .flat_map(|record| match record {
                Record::Rows(taken) => taken.starts_chain.clone(),
                _ => Vec::new(),
            })
            .collect();
        assert_eq!(starts, [true, false, true, false, false]);
        let mut writer = GroupWriter::default();
        group.records.iter().for_each(|record| writer.record(record));
        let again = writer.finish(0, 0, 0, 7.0).group().unwrap();
        let events = state.apply(group).unwrap().events;
        let changes: Vec<u64> = events
            .iter()
            .filter_map(|(_, event)| match event {
                Event::NewPolicy { offset, .. } => Some(*offset),
                _ => None,
            })
            .collect();
        assert_eq!((changes, state.critics()[0].policy()), (vec![2, 3], Some("c")));
        let replies: Vec<Reply> = intake.acknowledge(5).collect();
        assert_eq!(replies, [caller.reply(&wire::Reply::NewPolicy { offset: 3 })]);
        // Read back from the journal it comes to the same.
        let mut read = State::new(100);
        read.apply(again).unwrap();
        let bytes = |state: &State| rmp_serde::to_vec_named(&(state.critics(), state.streams())).unwrap();
        assert!(bytes(&read) == bytes(&state));
    }

    #[test]
    fn decisions_stand_before_rows_and_callers_are_answered_once() {
        let mut intake = intake(&State::new(100));
        let admitted = intake.take(batch("one", 0, &[0.0, 1.0]), true, 7.0).unwrap();
        let peer = Peer { connection: 1, delimiter: false };
        intake.answer_when_stored(Caller { peer, id: Id::nil(), form: ArrayForm::List }, admitted);
        intake.decide(Record::RefitEnded { critic: "default".into() });
        assert!(intake.has_decisions());
        let group = intake.close(1.0).unwrap();
        assert!(matches!(group.records[..], [Record::RefitEnded { .. }, Record::Rows(_)]));
        assert_eq!((intake.acknowledge(1).count(), intake.refuse().count()), (1, 0));
    }
}
