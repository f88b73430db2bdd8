//! Queries: those of a few states are answered where they arrive, the others on the control thread, which passes on what only
//! the core can answer.

use super::TICK;
use super::core::{Call, Caller};
use crate::board::Board;
use crate::clock::Clock;
use crate::config::Config;
use crate::snapshot::{Ask, Evaluation, Evaluator, Scratch, Snapshot};
use crate::telemetry::Timings;
use crate::transport::{Outbox, Reply, Request};
use crate::wire::{self, ArrayForm, ErrorCode, Op, WireError};
use crossbeam_channel::{Receiver, Sender, TryRecvError, TrySendError, select};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Queries that may wait for rows to be learned.
const QUERIES_WAITING: usize = 1024;
/// Queries of many states that may be under way at a time.
const LARGE_QUERIES: usize = 64;
/// Requests that are looked at between two slices of a large query.
const BETWEEN_SLICES: usize = 64;
/// Multiplications of one slice of a large query: a fraction of a millisecond.
const SLICE_WORK: usize = 20_000_000;
/// Queries of at most so many multiplications are answered where they arrive: some microseconds, as long as it takes to
/// hand them over. Those for mean and variance of one state, with a dictionary of some four hundred elements.
const AT_ONCE_WORK: usize = 200_000;
/// Longer requests are not even looked at there.
const AT_ONCE_BYTES: usize = 4096;
/// Encoded snapshots kept for clients that fetch them page by page.
const PAGED_MAX: usize = 4;
/// A query that waits for rows is answered after so long that they have not come.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Retry time that a client gets when the core's queue is full, milliseconds.
const RETRY_MS: u64 = 50;
/// What `hello` says that this daemon can do, beyond what every daemon of the protocol's version can.
const FEATURES: [&str; 7] = ["hello", "pages", "kernels", "returns", "policies", "new_policy", "journal"];

/// Answers small queries where they arrive, on the transport's thread: that takes no longer than handing them over, and
/// spares them two changes of thread, each of which may find its processor busy. All else is left to [`Control`], and so is
/// whatever is wrong with a query.
pub(super) struct FastPath {
    board: Arc<Board>,
    limits: wire::Limits,
    timings: Timings,
    scratch: Scratch,
    evaluation: Evaluation,
}

impl FastPath {
    pub(super) fn new(board: Arc<Board>, config: &Config, timings: Timings) -> Self {
        let limits = config.limits.wire();
        Self { board, limits, timings, scratch: Scratch::default(), evaluation: Evaluation::default() }
    }

    pub(super) fn answer(&mut self, request: &Request) -> Option<Vec<u8>> {
        let payload = &request.payload;
        if payload.len() > AT_ONCE_BYTES || !wire::is_query(payload) {
            return None;
        }
        let started = Instant::now();
        let wire::Request { id, arrays, op } = wire::decode_request(payload, &self.limits).ok()?;
        op.permitted(request.peer.rights()).ok()?;
        let Op::Value { states, rows, dim, critic, ask, min_offset } = &op else { return None };
        let model = self.board.evaluator(self.board.critic(critic.as_deref()).ok()?)?;
        let snapshot = model.snapshot();
        let learned = min_offset.is_none_or(|needed| snapshot.offset >= needed);
        if *dim != snapshot.dim() || !learned || rows * state_work(snapshot, *ask) > AT_ONCE_WORK {
            return None;
        }
        model.evaluate_into(states, *ask, &mut self.scratch, &mut self.evaluation).ok()?;
        let reply = wire::Reply::Value { evaluation: &self.evaluation, snapshot };
        let payload = wire::encode_reply(&id, arrays, &reply);
        self.timings.query.observe(started.elapsed().as_secs_f64());
        Some(payload)
    }
}

/// Where the control thread gets requests and news, and where it sends what comes of them.
pub(super) struct Ports {
    pub(super) requests: Receiver<Request>,
    pub(super) replies: Outbox<Reply>,
    /// Each with the moment when it was received.
    pub(super) calls: Sender<(Call, Instant)>,
    /// Rows that queries wait for.
    pub(super) wants: Sender<u64>,
    /// A notice that there are new snapshots on the board.
    pub(super) fresh: Receiver<()>,
}

/// The thread that answers clients: queries itself, the rest through the core.
pub(super) struct Control {
    ports: Ports,
    board: Arc<Board>,
    timings: Timings,
    config: Arc<Config>,
    clock: Clock,
    waiting: Vec<ValueQuery>,
    /// Queries of many states: each is answered a slice at a time, in turns, and all others go in between.
    large: VecDeque<LargeQuery>,
    paged: VecDeque<Paged>,
    /// Kept, so that an answer allocates nothing but its message.
    scratch: Scratch,
    evaluation: Evaluation,
}

/// A query that is being answered slice by slice, from one snapshot.
struct LargeQuery {
    query: ValueQuery,
    model: Arc<Evaluator>,
    started: Instant,
    /// Rows of `evaluation` that are done.
    done: usize,
    evaluation: Evaluation,
}

/// An encoded snapshot that is being fetched in pages.
struct Paged {
    critic: usize,
    variance: bool,
    form: ArrayForm,
    revision: u64,
    bytes: Vec<u8>,
}

/// A `value` request.
struct ValueQuery {
    caller: Caller,
    /// (rows, dim), row-major.
    states: Vec<f64>,
    rows: usize,
    dim: usize,
    /// The first one if there is no name.
    critic: Option<String>,
    ask: Ask,
    /// Rows that the snapshot must have learned.
    min_offset: Option<u64>,
    /// When it was received.
    since: Instant,
}

impl ValueQuery {
    /// Rows that the snapshot must have learned.
    fn needs(&self) -> u64 {
        self.min_offset.unwrap_or(0)
    }
}

impl Control {
    pub(super) fn new(ports: Ports, board: Arc<Board>, config: Arc<Config>, timings: Timings, clock: Clock) -> Self {
        Self {
            ports,
            board,
            timings,
            config,
            clock,
            waiting: Vec::new(),
            large: VecDeque::new(),
            paged: VecDeque::new(),
            scratch: Scratch::default(),
            evaluation: Evaluation::default(),
        }
    }

    pub(super) fn run(mut self) {
        let fresh = self.ports.fresh.clone();
        loop {
            if !self.large.is_empty() {
                if !self.answer_a_slice() {
                    break;
                }
                continue;
            }
            select! {
                recv(self.ports.requests) -> request => match request {
                    Ok(request) => self.handle(request),
                    Err(_) => break,
                },
                recv(fresh) -> notice => match notice {
                    Ok(()) => self.answer_waiting(),
                    Err(_) => break,
                },
                default(TICK) => self.answer_waiting(),
            }
        }
        for query in std::mem::take(&mut self.waiting) {
            let message = format!("row {} was not learned before the daemon stopped", query.needs());
            let error = WireError::of(ErrorCode::NotReady, "min_offset", message);
            self.send(query.caller.refuse(&error));
        }
    }

    fn handle(&mut self, request: Request) {
        let Request { peer, payload } = request;
        #[cfg(test)]
        assert!(payload[..] != *b"panic", "injected");
        let request = match wire::decode_request(&payload, &self.config.limits.wire()) {
            Ok(request) => request,
            Err(refused) => {
                let payload = wire::encode_error(&refused.id, &refused.error);
                return self.send(Reply { peer, payload });
            }
        };
        let wire::Request { id, arrays: form, op } = request;
        let caller = Caller { peer, id, form };
        if let Err(error) = op.permitted(peer.rights()) {
            return self.send(caller.refuse(&error));
        }
        let started = Instant::now();
        match op {
            Op::Ping => {
                let uptime_s = self.clock.now().uptime;
                self.send(caller.reply(&wire::Reply::Ping { version: env!("CARGO_PKG_VERSION"), uptime_s }));
            }
            Op::Hello => self.send(caller.reply(&wire::Reply::Hello(&self.greeting()))),
            Op::Snapshot { critic, variance, page, revision } => {
                let reply = match page {
                    None => self
                        .model(critic.as_deref())
                        .map(|model| caller.reply(&wire::Reply::Snapshot { snapshot: model.snapshot(), variance })),
                    Some(page) => self.page(&caller, critic.as_deref(), variance, page, revision),
                };
                self.send(reply.unwrap_or_else(|error| caller.refuse(&error)));
                self.timings.query.observe(started.elapsed().as_secs_f64());
            }
            Op::Value { states, rows, dim, critic, ask, min_offset } => {
                self.value(ValueQuery { caller, states, rows, dim, critic, ask, min_offset, since: started });
            }
            op => self.forward(Call { caller, op }),
        }
    }

    fn greeting(&self) -> wire::Greeting<'_> {
        let learned = || (0..self.config.critics.len()).find_map(|critic| self.board.get(critic));
        let expected = self.config.expected_dim();
        wire::Greeting {
            version: env!("CARGO_PKG_VERSION"),
            // The last one only where there is one.
            features: &FEATURES[..FEATURES.len() - usize::from(!self.config.journal)],
            limits: self.config.limits.wire(),
            critics: self.config.critics.iter().map(|critic| critic.name.as_str()).collect(),
            state_dim: expected.map(|(dim, _)| dim).or_else(|| learned().map(|snapshot| snapshot.dim())),
        }
    }

    fn forward(&mut self, call: Call) {
        if let Err(TrySendError::Full((call, _))) = self.ports.calls.try_send((call, Instant::now())) {
            self.send(call.caller.refuse(&WireError::overloaded(RETRY_MS)));
        }
    }

    fn model(&self, critic: Option<&str>) -> Result<Arc<Evaluator>, WireError> {
        let index = self.board.critic(critic)?;
        self.board.evaluator(index).ok_or_else(|| {
            let needed = self.config.critics[index].warmup_rows;
            WireError::new(ErrorCode::NotReady, format!("there is no model before {needed} rows have arrived"))
        })
    }

    /// One page of a snapshot's encoding. All pages of one revision come from one encoding, kept while clients fetch it.
    fn page(
        &mut self,
        caller: &Caller,
        critic: Option<&str>,
        variance: bool,
        page: u64,
        revision: Option<u64>,
    ) -> Result<Reply, WireError> {
        let index = self.board.critic(critic)?;
        let fits = |kept: &Paged| {
            (kept.critic, kept.variance, kept.form) == (index, variance, caller.form)
                && revision.is_none_or(|revision| revision == kept.revision)
        };
        // Without a revision the newest is meant. Answers are refreshed more often than they are published, so that one revision
        // may have several contents: clients that fetch the same one share its first encoding.
        let newest = if revision.is_none() { Some(self.model(critic)?) } else { None };
        let kept = |kept: &Paged| fits(kept) && newest.as_ref().is_none_or(|m| m.snapshot().revision == kept.revision);
        if !self.paged.iter().any(kept) {
            let model = newest.map_or_else(|| self.model(critic), Ok)?;
            let snapshot = model.snapshot();
            if let Some(asked) = revision.filter(|&revision| revision != snapshot.revision) {
                let message =
                    format!("revision {asked} is not kept any more; start again at page 0 without a revision");
                return Err(WireError::of(ErrorCode::NotReady, "revision", message));
            }
            if self.paged.len() == PAGED_MAX {
                self.paged.pop_front();
            }
            let bytes = wire::encode_snapshot(snapshot, caller.form, variance);
            let (revision, form) = (snapshot.revision, caller.form);
            self.paged.push_back(Paged { critic: index, variance, form, revision, bytes });
        }
        let kept = self.paged.iter().rev().find(|kept| fits(kept)).expect("it has just been made sure of");
        let mut pages = kept.bytes.chunks(wire::PAGE_BYTES);
        let count = pages.len() as u64;
        let Some(data) = usize::try_from(page).ok().and_then(|page| pages.nth(page)) else {
            return Err(WireError::of(ErrorCode::OutOfRange, "page", format!("there are {count} pages, from 0")));
        };
        let (revision, bytes) = (kept.revision, kept.bytes.len() as u64);
        Ok(caller.reply(&wire::Reply::Page { page, pages: count, revision, bytes, data }))
    }

    /// What waits beside the large queries, then a slice of one of those. False when no more requests will come and all have
    /// been answered.
    fn answer_a_slice(&mut self) -> bool {
        let mut open = true;
        for _ in 0..BETWEEN_SLICES {
            match self.ports.requests.try_recv() {
                Ok(request) => self.handle(request),
                Err(e) => {
                    open = e == TryRecvError::Empty;
                    break;
                }
            }
        }
        if self.ports.fresh.try_recv().is_ok() {
            self.answer_waiting();
        }
        let Some(mut large) = self.large.pop_front() else { return open };
        match large.advance(&mut self.scratch, &mut self.evaluation) {
            Ok(false) => self.large.push_back(large),
            Ok(true) => {
                let LargeQuery { query, model, evaluation, .. } = &large;
                self.answer_value(&query.caller, model.snapshot(), Ok(evaluation));
                self.timings.query.observe(large.started.elapsed().as_secs_f64());
            }
            Err(error) => self.answer_value(&large.query.caller, large.model.snapshot(), Err(error)),
        }
        open || !self.large.is_empty()
    }

    /// Answer from one snapshot, so that no answer mixes two; or wait until a snapshot has learned enough.
    fn value(&mut self, query: ValueQuery) {
        let started = Instant::now();
        let reply = match self.model_for(&query) {
            Ok(Some(model)) if query.rows > slice_rows(model.snapshot(), query.ask) => {
                if self.large.len() < LARGE_QUERIES {
                    return self.large.push_back(LargeQuery::new(query, model, started));
                }
                query.caller.refuse(&WireError::overloaded(RETRY_MS))
            }
            Ok(Some(model)) => {
                let done = model.evaluate_into(&query.states, query.ask, &mut self.scratch, &mut self.evaluation);
                let evaluation = done.map(|()| &self.evaluation).map_err(WireError::from);
                self.answer_value(&query.caller, model.snapshot(), evaluation);
                return self.timings.query.observe(started.elapsed().as_secs_f64());
            }
            Ok(None) if query.since.elapsed() > WAIT_MAX => {
                let message = format!("row {} has not been learned for {} s", query.needs(), WAIT_MAX.as_secs());
                query.caller.refuse(&WireError::of(ErrorCode::NotReady, "min_offset", message))
            }
            Ok(None) if self.waiting.len() < QUERIES_WAITING => {
                // If the queue is full the core is about to look at it anyway.
                let _ = self.ports.wants.try_send(query.needs());
                return self.waiting.push(query);
            }
            Ok(None) => query.caller.refuse(&WireError::overloaded(RETRY_MS)),
            Err(error) => query.caller.refuse(&error),
        };
        self.send(reply);
        self.timings.query.observe(started.elapsed().as_secs_f64());
    }

    /// The model that a query is answered from; none if its rows are still to be learned.
    fn model_for(&self, query: &ValueQuery) -> Result<Option<Arc<Evaluator>>, WireError> {
        let model = match self.model(query.critic.as_deref()) {
            // Rows that are to be waited for may be the ones that make the first model.
            Err(e) if e.code == ErrorCode::NotReady && query.min_offset.is_some() => return Ok(None),
            model => model?,
        };
        let (dim, snapshot) = (query.dim, model.snapshot());
        if dim != snapshot.dim() {
            let message = format!("states have {} numbers here, these have {dim}", snapshot.dim());
            return Err(WireError::of(ErrorCode::WrongDimension, "states", message));
        }
        Ok((snapshot.offset >= query.needs()).then_some(model))
    }

    fn answer_value(&self, caller: &Caller, snapshot: &Snapshot, evaluation: Result<&Evaluation, WireError>) {
        self.send(match evaluation {
            Ok(evaluation) => caller.reply(&wire::Reply::Value { evaluation, snapshot }),
            Err(error) => caller.refuse(&error),
        });
    }

    fn answer_waiting(&mut self) {
        for query in std::mem::take(&mut self.waiting) {
            self.value(query);
        }
    }

    fn send(&self, reply: Reply) {
        // A transport that has ended has no use for it.
        drop(self.ports.replies.send(reply));
    }
}

/// States that are evaluated without a look at other requests.
fn slice_rows(snapshot: &Snapshot, ask: Ask) -> usize {
    /// At least so many: blocks are faster than single states.
    const LEAST: usize = 16;
    (SLICE_WORK / state_work(snapshot, ask)).max(LEAST)
}

/// Multiplications that a state takes, about; at least 1.
fn state_work(snapshot: &Snapshot, ask: Ask) -> usize {
    // A kernel takes a few dozen, and they are worked off 32 at a time.
    let (size, kernel) = (snapshot.dictionary.nrows().max(1).next_multiple_of(32), 32 + snapshot.dim());
    size * if ask.needs_variance() { kernel + size } else { kernel }
}

impl LargeQuery {
    fn new(query: ValueQuery, model: Arc<Evaluator>, started: Instant) -> Self {
        let evaluation = Evaluation::zeros(model.snapshot(), query.rows, query.ask);
        Self { query, model, started, done: 0, evaluation }
    }

    /// Evaluate the next slice; whether that was the last.
    fn advance(&mut self, scratch: &mut Scratch, found: &mut Evaluation) -> Result<bool, WireError> {
        let ValueQuery { states, rows, dim, ask, .. } = &self.query;
        let count = slice_rows(self.model.snapshot(), *ask).min(rows - self.done);
        let slice = &states[self.done * dim..(self.done + count) * dim];
        self.model.evaluate_into(slice, *ask, scratch, found).map_err(|fault| {
            let index = fault.index.map(|index| index + self.done);
            WireError { index, ..fault.into() }
        })?;
        self.evaluation.place(self.done, found);
        self.done += count;
        Ok(self.done == *rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Right, Rights};
    use crate::clock::Now;
    use crate::daemon::core::Core;
    use crate::sim::{self, Step, pendulum::Pendulum};
    use crate::snapshot::ReturnSpread;
    use crate::transport::{self, Peer};
    use crate::wire::Id;
    use bytes::Bytes;
    use crossbeam_channel::{bounded, never};
    use nalgebra::DMatrix;
    use serde_json::{Value, json};

    /// The snapshot on the board, learned with another lambda, and knowing how returns scatter.
    fn with_returns(board: &Board) -> Arc<Snapshot> {
        let snapshot = board.get(0).unwrap();
        let m = snapshot.dictionary.nrows();
        let returns = Some(ReturnSpread {
            level: vec![0.5],
            weights: DMatrix::from_fn(m, 1, |i, _| (i as f64).sin()),
            floor: vec![0.1],
            factor: 1.25,
            pairs: 40,
            coverage: Some(0.8),
        });
        board.set(0, Snapshot { returns, lambda: 0.8, provisional: true, ..(*snapshot).clone() });
        board.get(0).unwrap()
    }

    fn control(requests: Receiver<Request>, replies: Outbox<Reply>, board: Arc<Board>) -> Control {
        let ports = Ports { requests, replies, calls: bounded(1).0, wants: bounded(1).0, fresh: never() };
        Control::new(ports, board, Arc::new(Config::default()), Timings::default(), Clock::start())
    }

    #[test]
    fn small_queries_go_between_the_slices_of_large_ones() {
        let mut core = Core::new(Arc::new(Config::default()));
        let mut pendulum = Pendulum::new(1, 0.3);
        let steps: Vec<Step> = (0..500).map(|_| pendulum.step()).collect();
        let now = Now { uptime: 1.0, unix: 1e9 };
        sim::batches("p", "", &steps).iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), now));
        core.step(now);
        core.refresh(now, &|| now);
        let board = core.board();
        let snapshot = with_returns(&board);
        let most = slice_rows(&snapshot, Ask::VARIANCE);
        let (queue, requests) = bounded(100);
        let (replies, mut answers) = Outbox::new(100);
        let state = |i: usize| vec![(i % 100) as f64 / 30.0, (i % 7) as f64];
        let ask = |id: u64, states: Vec<Vec<f64>>| {
            let fields = json!({"states": states, "variance": true, "returns": true, "known": true, "arrays": "list"});
            let payload = wire::encode_request(id, "value", fields.as_object().unwrap()).into();
            let connection = transport::peer_number(id, Rights::ALL);
            queue.send(Request { peer: Peer { connection, delimiter: false }, payload }).unwrap();
        };
        ask(1, (0..3 * most + 5).map(state).collect());
        ask(2, (0..most + 1).map(state).chain([vec![1e300, 0.0]]).collect());
        ask(3, vec![state(4)]);
        ask(4, (0..most).map(state).collect());
        drop(queue);
        control(requests, replies, Arc::clone(&board)).run();
        let mut answer = || {
            let Reply { peer, payload } = answers.try_recv().unwrap();
            (peer.connection ^ transport::peer_number(0, Rights::ALL), wire::to_json(&payload).unwrap())
        };
        let (first, second, third, fourth) = (answer(), answer(), answer(), answer());
        assert_eq!([first.0, second.0], [3, 4], "what takes one slice comes first");
        assert_eq!(
            (third.0, &third.1["error"]["code"], &third.1["error"]["index"]),
            (2, &json!("out_of_range"), &json!(most + 1))
        );
        assert_eq!(fourth.0, 1);
        for at in [1, most, 3 * most] {
            let Evaluation { mean, variance, return_variance, known, extrapolates } =
                snapshot.evaluate(&state(at), Ask::ALL).unwrap();
            let numbers = [mean[0], variance.unwrap()[0], return_variance.unwrap()[0], known.unwrap()[0]];
            for (key, expected) in ["mean", "variance", "return_variance", "known"].into_iter().zip(numbers) {
                assert_eq!(fourth.1[key][at].as_f64().unwrap(), expected, "{key} {at}");
            }
            assert_eq!(fourth.1["extrapolates"][at], json!(extrapolates.unwrap()[0]), "{at}");
        }
        assert_eq!(fourth.1["mean"].as_array().unwrap().len(), 3 * most + 5);
    }

    #[test]
    fn small_queries_are_answered_where_they_arrive_and_no_others() {
        let config = Config::default();
        let mut core = Core::new(Arc::new(config.clone()));
        let board = core.board();
        let mut at_once = FastPath::new(Arc::clone(&board), &config, Timings::default());
        let mut ask = |op: &str, fields: Value, rights: Rights| {
            let payload = wire::encode_request(7, op, fields.as_object().unwrap()).into();
            let peer = Peer { connection: transport::peer_number(1, rights), delimiter: false };
            at_once.answer(&Request { peer, payload }).map(|payload| wire::to_json(&payload).unwrap())
        };
        let value = |states: Value| json!({"states": states, "variance": true, "arrays": "list"});
        assert_eq!(ask("value", value(json!([[0.5, 1.0]])), Rights::ALL), None, "there is no model yet");
        let mut pendulum = Pendulum::new(1, 0.3);
        let steps: Vec<Step> = (0..500).map(|_| pendulum.step()).collect();
        let now = Now { uptime: 1.0, unix: 1e9 };
        sim::batches("p", "", &steps).iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), now));
        core.step(now);
        core.refresh(now, &|| now);
        let answer = ask("value", value(json!([[0.5, 1.0], [0.1, 0.2]])), Rights::ALL).unwrap();
        let expected = board.get(0).unwrap().evaluate(&[0.5, 1.0, 0.1, 0.2], Ask::VARIANCE).unwrap();
        assert_eq!(answer["mean"], json!(expected.mean.as_slice()));
        assert_eq!(answer["variance"], json!(expected.variance));
        assert_eq!((&answer["id"], &answer["offset"]), (&json!(7), &json!(500)));
        assert!(["return_variance", "known", "extrapolates"].iter().all(|key| answer.get(key).is_none()), "{answer}");
        let expected = with_returns(&board).evaluate(&[0.5, 1.0], Ask::ALL).unwrap();
        let all = json!({"states": [[0.5, 1.0]], "returns": true, "known": true, "arrays": "list"});
        let answer = ask("value", all, Rights::ALL).unwrap();
        assert_eq!(answer.get("variance"), None, "it was not asked for");
        assert_eq!(answer["return_variance"], json!(expected.return_variance.unwrap().as_slice()));
        assert_eq!(answer["known"], json!(expected.known));
        assert_eq!(answer["extrapolates"], json!(expected.extrapolates));
        assert_eq!((&answer["lambda"], &answer["provisional"]), (&json!(0.8), &json!(true)));
        let with = |key: &str, field: Value| {
            let mut fields = value(json!([[0.5, 1.0]]));
            fields[key] = field;
            fields
        };
        assert!(ask("value", with("min_offset", json!(500)), Rights::ALL).is_some());
        for left in [
            with("min_offset", json!(501)),
            with("critic", json!("nobody")),
            with("states", json!([[0.5, 1e300]])),
            with("states", json!([[0.5]])),
            with("states", json!([])),
            with("states", json!("none")),
            with("states", json!(vec![[0.5, 1.0]; 200])),
        ] {
            assert_eq!(ask("value", left.clone(), Rights::ALL), None, "{left}");
        }
        assert_eq!(ask("value", value(json!([[0.5, 1.0]])), vec![Right::Append].into()), None, "it may not ask");
        for op in ["ping", "snapshot", "status"] {
            assert_eq!(ask(op, json!({}), Rights::ALL), None, "{op}");
        }
        let noise = |payload: &'static [u8]| {
            let peer = Peer { connection: transport::peer_number(1, Rights::ALL), delimiter: false };
            at_once.answer(&Request { peer, payload: Bytes::from_static(payload) })
        };
        assert!([&b""[..], b"value", b"\x82\xa2op\xa5value", b"\x81\xa2op"].map(noise).iter().all(Option::is_none));
    }

    #[test]
    fn pages_of_one_revision_fit_together() {
        let mut core = Core::new(Arc::new(Config::default()));
        let mut pendulum = Pendulum::new(1, 0.3);
        let mut learn = |uptime: f64| {
            let steps: Vec<Step> = (0..100).map(|_| pendulum.step()).collect();
            let now = Now { uptime, unix: 1e9 };
            sim::batches("pendulum", "", &steps).iter().for_each(|batch| core.ingest(&wire::encode_ingest(batch), now));
            core.step(now);
            core.refresh(now, &|| now);
            core.board()
        };
        let board = learn(1.0);
        let mut control = control(never(), Outbox::new(1).0, board);
        let peer = Peer { connection: 1, delimiter: false };
        let caller = Caller { peer, id: Id::nil(), form: ArrayForm::Tensor };
        let mut page = |revision| {
            let payload = control.page(&caller, None, true, 0, revision).unwrap().payload;
            let reply = wire::to_json(&payload).unwrap();
            (reply["revision"].as_u64().unwrap(), payload)
        };
        let (revision, first) = page(None);
        // Answers are newer than the last publication, whose revision they bear.
        learn(1.01);
        let (other, _) = page(None);
        let (_, again) = page(Some(revision));
        assert_eq!(other, revision);
        assert!(again == first, "two encodings under one revision");
    }
}
