//! Queries: small ones are answered where they arrive, the others on the control thread, which passes on what only
//! the core can answer.
//!
//! The control thread takes requests in turns between peers, and looks at a request before it reads an array of it:
//! whether its sender may ask that, and whether it has to wait. Queries that wait for rows and appends that wait for the
//! core wait as they came. Other requests to the core have been read, and count with the bytes that they take then
//! (`held_bytes`).

mod head_query;
mod large;
pub(super) mod past;

use super::act::{self, Decisions};
use super::bounds::{DRAIN, LARGE_QUERIES, PAGED_MAX, TICK, WAITING};
use super::core::{Asked, Caller, RefusedAppend};
use super::evaluations::{self, Entrance as EvaluationEntrance};
use crate::board::{Board, LearningHeads};
use crate::clock::Clock;
use crate::config::Config;
use crate::learner::labels::LABEL_BYTES;
use crate::snapshot::{Evaluation, EvaluationScratch, Evaluator, Snapshot};
use crate::telemetry::{Heartbeat, Timings};
use crate::transport::turns::{Entrance, ITEM_BYTES, Turns};
use crate::transport::{Outbox, Reply, Request, SHORT_BYTES};
use crate::wire::{
    self, Answering, ArrayForm, Draft, ErrorCode, Given, HeadForm, Id, Op, OpKind, PolicyAsked, WireError,
};
use crossbeam_channel::{Receiver, Sender, select};
use head_query::HeadQuery;
use large::{ACT_SLICE_WORK, Large, LargeQuery, Slices, ValueQuery, slice_rows, state_work};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Waiting queries of one peer at most.
const WAITING_OF_PEER: usize = 512;
/// Time that other requests take between two slices of a large query, at most, unless a single one takes longer.
const BETWEEN_SLICES: Duration = Duration::from_millis(1);
/// Multiplications up to which a query is answered where it arrives: some microseconds, as long as it takes to
/// hand it over. Mean and variance of one state take them with a dictionary of some four hundred elements.
const AT_ONCE_WORK: usize = 200_000;
/// Longer requests are not even looked at there.
const AT_ONCE_BYTES: usize = 4096;
/// A query that waits for rows is answered after so long that they have not come.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// Retry time that a client gets when the core's queue is full, milliseconds.
const RETRY_MS: u64 = 50;
/// What `hello` says that this daemon can do, beyond what every daemon of the protocol's version can.
const FEATURES: [&str; 20] = [
    "hello",
    "pages",
    "kernels",
    "columns",
    "level",
    "mean",
    "returns",
    "tracked",
    "policies",
    "new_policy",
    "streams",
    "critics",
    "act",
    "heads",
    "labels",
    "suggest",
    "plan",
    "evaluate",
    "journal",
    "as_of",
];

/// Answers small queries of one critic where they arrive, on the transport's thread: that takes no longer than handing them over, and
/// spares them two changes of thread, each of which may find its processor busy. All else is left to [`Control`], and so is
/// whatever is wrong with a query.
pub(super) struct FastPath {
    board: Arc<Board>,
    limits: wire::Limits,
    timings: Timings,
    clock: Clock,
    scratch: EvaluationScratch,
    evaluation: Evaluation,
}

/// The answer to a `ping`.
fn pong(clock: Clock) -> wire::Reply<'static> {
    wire::Reply::Ping { version: env!("CARGO_PKG_VERSION"), uptime_s: clock.now().uptime }
}

impl FastPath {
    pub(super) fn new(board: Arc<Board>, config: &Config, timings: Timings, clock: Clock) -> Self {
        let limits = config.limits.wire();
        Self { board, limits, timings, clock, scratch: EvaluationScratch::default(), evaluation: Evaluation::default() }
    }

    pub(super) fn answer(&mut self, request: &Request) -> Option<Vec<u8>> {
        let payload = &request.payload;
        if payload.len() > AT_ONCE_BYTES
            || !matches!(wire::peek(payload), Some(OpKind::Value | OpKind::Act | OpKind::Ping))
        {
            return None;
        }
        let started = Instant::now();
        let draft = wire::read_request(payload, &self.limits).ok()?;
        draft.kind.permitted(request.peer.rights()).ok()?;
        if draft.kind == OpKind::Value && !self.is_answered_here(&draft) {
            return None;
        }
        let wire::Request { id, arrays, op } = draft.decode(&self.limits).ok()?;
        let payload = match op {
            Op::Ping => return Some(wire::encode_reply(&id, arrays, &pong(self.clock))),
            Op::Act(request) => {
                let mut decisions = Decisions::new(&self.board, request, &self.limits).ok()?;
                if decisions.work() > AT_ONCE_WORK {
                    return None;
                }
                decisions.advance(usize::MAX).ok()?;
                wire::encode_reply(&id, arrays, &decisions.reply())
            }
            op => self.value(&id, arrays, &op)?,
        };
        self.timings.query.observe(started.elapsed().as_secs_f64());
        Some(payload)
    }

    /// Whether a `value` request may be answered here, as far as its keys tell: what is left to the control thread is not read twice.
    fn is_answered_here(&self, draft: &Draft<'_>) -> bool {
        let Ok(Some(needed)) = draft.min_offset() else { return draft.is_of_states() };
        let Ok(Answering::One(critic)) = draft.answering() else { return false };
        let learned = || self.board.get(self.board.critic(critic.as_deref()).ok()?).map(|model| model.offset);
        draft.is_of_states() && learned() >= Some(needed)
    }

    /// The answer to a `value` request of one critic that takes little.
    fn value(&mut self, id: &Id, arrays: ArrayForm, op: &Op) -> Option<Vec<u8>> {
        let Op::Value {
            states,
            rows,
            dim,
            critics: Answering::One(critic),
            ask,
            min_offset,
            actions: None,
            heads: None,
            as_of: None,
        } = op
        else {
            return None;
        };
        let model = self.board.evaluator(self.board.critic(critic.as_deref()).ok()?)?;
        let snapshot = model.snapshot();
        let learned = min_offset.is_none_or(|needed| snapshot.offset >= needed);
        if *dim != snapshot.dim() || !learned || rows * state_work(snapshot, *ask) > AT_ONCE_WORK {
            return None;
        }
        model.evaluate_into(states, *ask, &mut self.scratch, &mut self.evaluation).ok()?;
        let reply = wire::Reply::Value { evaluation: &self.evaluation, snapshot };
        Some(wire::encode_reply(id, arrays, &reply))
    }
}

/// A request on its way to the core.
pub(super) struct Forwarded {
    pub(super) caller: Caller,
    pub(super) asked: Asked,
    /// When it was received.
    pub(super) since: Instant,
}

/// Where the control thread gets requests and news, and where it sends what comes of them.
pub(super) struct Ports {
    pub(super) requests: Turns<Request>,
    pub(super) replies: Outbox<Reply>,
    pub(super) calls: Entrance<Forwarded>,
    /// Rows that queries wait for.
    pub(super) wants: Sender<u64>,
    /// A notice that there are new snapshots on the board.
    pub(super) fresh: Receiver<()>,
    pub(super) evaluations: EvaluationEntrance,
    /// Whether the daemon stops.
    pub(super) pulse: Arc<Heartbeat>,
}

/// The thread that answers clients: queries itself, the rest through the core.
pub(super) struct Control {
    ports: Ports,
    board: Arc<Board>,
    timings: Timings,
    config: Arc<Config>,
    clock: Clock,
    /// Queries for rows that are not learned yet.
    waiting: Vec<WaitingQuery>,
    /// Bytes of those.
    waiting_bytes: usize,
    /// Requests that take long: each is answered a slice at a time, in turns, and all others go in between.
    large: VecDeque<Large>,
    paged: VecDeque<Paged>,
    /// At a stop, when it ends at the latest.
    deadline: Option<Instant>,
    /// Kept, so that an answer allocates nothing but its message.
    scratch: EvaluationScratch,
    evaluations: Vec<Evaluation>,
}

/// A query, as it came, for rows that are not learned yet.
struct WaitingQuery {
    request: Request,
    critics: Vec<usize>,
    /// Rows that the snapshots must have learned.
    needs: u64,
}

impl WaitingQuery {
    fn bytes(&self) -> usize {
        self.request.payload.len() + ITEM_BYTES
    }
}

/// An encoded snapshot that is being fetched in pages.
struct Paged {
    critic: usize,
    variance: bool,
    form: ArrayForm,
    revision: u64,
    bytes: Vec<u8>,
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
            waiting_bytes: 0,
            large: VecDeque::new(),
            paged: VecDeque::new(),
            deadline: None,
            scratch: EvaluationScratch::default(),
            evaluations: Vec::new(),
        }
    }

    pub(super) fn run(mut self) {
        let (fresh, bell) = (self.ports.fresh.clone(), self.ports.requests.bell().clone());
        let mut next_look = Instant::now();
        while !self.is_over() {
            self.forget_gone();
            if fresh.try_recv().is_ok() || Instant::now() >= next_look {
                next_look = Instant::now() + TICK;
                self.recall();
            }
            let worked = self.answer_some();
            if self.answer_a_slice() || worked {
                continue;
            }
            select! {
                recv(bell) -> _ => {}
                recv(fresh) -> notice => match notice {
                    Ok(()) => self.recall(),
                    // The core has ended.
                    Err(_) => break,
                },
                default(TICK) => {}
            }
        }
        for WaitingQuery { request, needs, .. } in std::mem::take(&mut self.waiting) {
            let message = format!("row {needs} was not learned before the daemon stopped");
            let error = WireError::of(ErrorCode::NotReady, "min_offset", message);
            self.refuse(&request, &error);
        }
    }

    /// Whether nothing is left to do, or the stop leaves no more time for it.
    fn is_over(&mut self) -> bool {
        if self.deadline.is_none() && self.ports.pulse.stopping() {
            self.deadline = Some(Instant::now() + DRAIN);
        }
        let is_late = self.deadline.is_some_and(|deadline| Instant::now() >= deadline);
        is_late || (self.large.is_empty() && self.ports.requests.is_over())
    }

    /// Drop what peers that have left asked for.
    fn forget_gone(&mut self) {
        let gone: HashSet<u64> = self.ports.requests.take_gone().into_iter().collect();
        if gone.is_empty() {
            return;
        }
        gone.iter().for_each(|&peer| self.ports.calls.leave(peer));
        gone.iter().for_each(|&peer| self.ports.evaluations.leave(peer));
        self.large.retain(|large| !gone.contains(&large.caller().peer.connection));
        self.waiting.retain(|waiting| !gone.contains(&waiting.request.peer.connection));
        self.waiting_bytes = self.waiting.iter().map(WaitingQuery::bytes).sum();
    }

    /// Requests in turns, for a moment; whether there were any.
    fn answer_some(&mut self) -> bool {
        let started = Instant::now();
        let mut worked = false;
        while started.elapsed() < BETWEEN_SLICES
            && let Some(request) = self.ports.requests.next_of(|request| self.may_begin(request))
        {
            self.handle(request);
            worked = true;
        }
        worked
    }

    /// A request that may take long waits while its sender has one under way, or too many others have.
    fn may_begin(&self, request: &Request) -> bool {
        let is_short = request.payload.len() <= AT_ONCE_BYTES;
        let has_one = self.large.iter().any(|large| large.caller().peer == request.peer);
        let is_full = self.large.len() >= LARGE_QUERIES && !is_short;
        let may_be_long = || matches!(wire::peek(&request.payload), Some(OpKind::Value | OpKind::Act));
        (!has_one && !is_full) || (is_short && !may_be_long())
    }

    fn handle(&mut self, request: Request) {
        #[cfg(test)]
        assert!(request.payload[..] != *b"panic", "injected");
        let payload = request.payload.clone();
        let draft = match wire::read_request(&payload, &self.config.limits.wire()) {
            Ok(draft) => draft,
            Err(wire::RequestError { id, error }) => {
                let caller = Caller { peer: request.peer, id, form: ArrayForm::default() };
                return self.refuse_unread(&caller, error, &request);
            }
        };
        let caller = Caller { peer: request.peer, id: draft.id.clone(), form: draft.arrays };
        if draft.kind == OpKind::Append {
            return self.append(&caller, &draft, &request);
        }
        let done = draft.kind.permitted(request.peer.rights()).and_then(|()| match draft.kind {
            OpKind::Value | OpKind::Snapshot if draft.is_of_the_past() => {
                self.ports.evaluations.put(&caller, evaluations::EvaluationAsked::Past(payload.clone()))
            }
            OpKind::Value => self.query(&caller, draft, request),
            OpKind::Act => self.act(caller.clone(), draft),
            _ => self.simple(&caller, draft, &request),
        });
        if let Err(error) = done {
            self.send(caller.refuse(&error));
        }
    }

    /// Pass an append on, or why it is refused: the core counts that.
    fn append(&mut self, caller: &Caller, draft: &Draft<'_>, request: &Request) {
        let Request { peer, payload, since } = request;
        let allowed = draft.kind.permitted(peer.rights()).and_then(|()| self.check_long_append(draft, payload.len()));
        if let Err(error) = allowed {
            return self.pass_refusal_on(caller, RefusedAppend::new(error, draft.origin(), payload), *since);
        }
        let asked = Asked::Append(payload.clone());
        let passed = self.forward(Forwarded { caller: caller.clone(), asked, since: *since }, payload.len());
        if let Err(error) = passed {
            self.send(caller.refuse(&error));
        }
    }

    /// Whether an append of `bytes` bytes, if it is long, has states that the core takes. The core is spared reading others:
    /// it learns meanwhile.
    fn check_long_append(&self, draft: &Draft<'_>, bytes: usize) -> Result<(), WireError> {
        if bytes > AT_ONCE_BYTES
            && let (Some(found), Some(dim)) = (draft.dim(&self.config.limits.wire()), self.state_dim())
            && found != dim
        {
            return Err(WireError::other_dimension("state", (dim, ""), found));
        }
        Ok(())
    }

    /// Answer a request that cannot be read. Of an append that its sender may ask for, the core does so.
    fn refuse_unread(&mut self, caller: &Caller, error: WireError, request: &Request) {
        let Request { peer, payload, since } = request;
        if wire::peek(payload) == Some(OpKind::Append) && OpKind::Append.permitted(peer.rights()).is_ok() {
            let refused = RefusedAppend::new(error, wire::origin(payload), payload);
            return self.pass_refusal_on(caller, refused, *since);
        }
        self.send(caller.refuse(&error));
    }

    /// Have the core count an append that is refused, and answer it. Where it has no room the sender tries again.
    fn pass_refusal_on(&mut self, caller: &Caller, refused: RefusedAppend, since: Instant) {
        let bytes = size_of::<Forwarded>() + refused.bytes();
        let asked = Asked::Refused(Box::new(refused));
        if let Err(error) = self.forward(Forwarded { caller: caller.clone(), asked, since }, bytes) {
            self.send(caller.refuse(&error));
        }
    }

    /// Numbers in a state, once that is settled.
    fn state_dim(&self) -> Option<usize> {
        let expected = self.config.expected_dim().map(|(dim, _)| dim);
        expected.or_else(|| self.board.shape().map(|(dim, _)| dim))
    }

    /// A request without arrays, or one whose arrays are read elsewhere.
    fn simple(&mut self, caller: &Caller, draft: Draft<'_>, request: &Request) -> Result<(), WireError> {
        let started = Instant::now();
        if draft.kind == OpKind::Evaluate {
            return self.ports.evaluations.put(caller, evaluations::EvaluationAsked::Evaluate(request.payload.clone()));
        }
        let decoded = draft.decode(&self.config.limits.wire()).map_err(|refused| refused.error)?;
        match decoded.op {
            Op::Ping => self.send(caller.reply(&pong(self.clock))),
            Op::Hello => self.send(caller.reply(&wire::Reply::Hello(&self.greeting()))),
            Op::Snapshot { critic, variance, page, revision, head, as_of: _ } => {
                let reply = match page {
                    _ if head.is_some() => self.head(caller, critic.as_deref(), &head.unwrap_or_default(), variance),
                    None => self
                        .model(critic.as_deref())
                        .map(|model| caller.reply(&wire::Reply::Snapshot { snapshot: model.snapshot(), variance })),
                    Some(page) => self.page(caller, critic.as_deref(), variance, page, revision),
                };
                self.send(reply?);
                self.timings.query.observe(started.elapsed().as_secs_f64());
            }
            Op::Rows(span) => self.ports.evaluations.put(caller, evaluations::EvaluationAsked::Rows(span))?,
            op => {
                let bytes = held_bytes(&op, request.payload.len());
                self.forward(Forwarded { caller: caller.clone(), asked: Asked::Op(op), since: request.since }, bytes)?;
            }
        }
        Ok(())
    }

    fn greeting(&self) -> wire::Greeting<'_> {
        let [state_names, reward_names, action_names] = self.board.names();
        wire::Greeting {
            version: env!("CARGO_PKG_VERSION"),
            // The last three only where there is one.
            features: &FEATURES[..FEATURES.len() - 3 * usize::from(!self.config.journal)],
            limits: self.config.limits.wire(),
            critics: self.config.critics.iter().map(|critic| critic.name.as_str()).collect(),
            state_dim: self.state_dim(),
            rewards: self.board.shape().map(|(_, rewards)| rewards),
            state_names,
            reward_names,
            action_names,
        }
    }

    /// Pass a request on that takes `bytes` while it waits.
    fn forward(&mut self, forwarded: Forwarded, bytes: usize) -> Result<(), WireError> {
        let put = self.ports.calls.try_put(forwarded.caller.peer.connection, bytes, forwarded);
        put.map_err(|_| WireError::overloaded(RETRY_MS))
    }

    /// A `value` request: checks that need no states come first.
    fn query(&mut self, caller: &Caller, draft: Draft<'_>, request: Request) -> Result<(), WireError> {
        let (started, limits) = (Instant::now(), self.config.limits.wire());
        let answering = draft.answering()?;
        let by_name = matches!(answering, Answering::Each(_));
        let (critics, min_offset) = (self.critics(&answering)?, draft.min_offset()?);
        // Read before the models: a head that a newer model answers for may still be among these, and not the other way round.
        let learning = self.board.learning(critics[0]);
        let models: Vec<_> = critics.iter().map(|&critic| self.board.evaluator(critic)).collect();
        let needs = min_offset.unwrap_or(0);
        let is_long = request.payload.len() > AT_ONCE_BYTES;
        if let (Some(dim), true) = (draft.dim(&limits), is_long) {
            let states = |model: &&Arc<Evaluator>| model.snapshot().actions.is_none();
            models.iter().flatten().filter(states).try_for_each(|model| check_dim(dim, model.snapshot()))?;
        }
        // Rows that are to be waited for may be the ones that make the first model.
        let has_learned = |model: &Option<Arc<Evaluator>>| {
            model.as_ref().map_or(min_offset.is_none(), |m| m.snapshot().offset >= needs)
        };
        let learned = models.iter().all(has_learned);
        // A long one that waits is checked when its rows are there.
        let decoded =
            if learned || !is_long { Some(draft.decode(&limits).map_err(|refused| refused.error)?) } else { None };
        if !learned {
            return self.wait(WaitingQuery { request, critics, needs });
        }
        let models =
            critics.iter().zip(models).map(|(&critic, model)| model.ok_or_else(|| self.no_model(critic, by_name)));
        let models = models.collect::<Result<Vec<_>, _>>()?;
        let Some(wire::Request { op, .. }) = decoded else { unreachable!("a query was decoded") };
        let (query, mut heads) = prepared(caller, op, (models, by_name), learning, &limits)?;
        let work: usize = query.models.iter().map(|model| state_work(model.snapshot(), query.ask)).sum();
        let work = work + heads.as_ref().map_or(0, |heads| heads.work(query.models[0].snapshot()));
        if query.rows > slice_rows(work) {
            self.large.push_back(Large { started, asked: Slices::Value(LargeQuery::new(query, heads)) });
            return Ok(());
        }
        self.evaluations.resize_with(self.evaluations.len().max(query.models.len()), Evaluation::default);
        for (model, found) in query.models.iter().zip(&mut self.evaluations) {
            model.evaluate_into(&query.states, query.ask, &mut self.scratch, found)?;
        }
        if let Some(heads) = &mut heads {
            heads.advance(query.models[0].snapshot(), &query.states, 0..query.rows)?;
        }
        self.send(query.reply(heads.as_ref(), &self.evaluations));
        self.timings.query.observe(started.elapsed().as_secs_f64());
        Ok(())
    }

    /// An `act` request that takes longer than the transport's thread should.
    fn act(&mut self, caller: Caller, draft: Draft<'_>) -> Result<(), WireError> {
        let (started, limits) = (Instant::now(), self.config.limits.wire());
        let decoded = draft.decode(&limits).map_err(|refused| refused.error)?;
        let Op::Act(request) = decoded.op else { unreachable!("an act request was decoded") };
        let mut decisions = Decisions::new(&self.board, request, &limits)?;
        if decisions.work() > ACT_SLICE_WORK {
            self.large.push_back(Large { started, asked: Slices::Act(caller, decisions) });
            return Ok(());
        }
        decisions.advance(usize::MAX)?;
        self.send(caller.reply(&decisions.reply()));
        self.timings.query.observe(started.elapsed().as_secs_f64());
        Ok(())
    }

    /// Numbers of the critics that are to answer.
    fn critics(&self, answering: &Answering) -> Result<Vec<usize>, WireError> {
        match answering {
            Answering::One(name) => Ok(vec![self.board.critic(name.as_deref())?]),
            Answering::Each(names) => {
                let named = |(index, name): (usize, &String)| {
                    let found = self.board.critic(Some(name));
                    found.map_err(|fault| WireError { field: Some("critics"), ..fault }.at(index))
                };
                names.iter().enumerate().map(named).collect()
            }
        }
    }

    /// Why there is no model of a critic, which is named if several were asked.
    fn no_model(&self, critic: usize, by_name: bool) -> WireError {
        let settings = &self.config.critics[critic];
        let of = if by_name { format!(" of critic \"{}\"", settings.name) } else { String::new() };
        let needed = match &settings.action_value {
            Some(_) => format!("{} rows have", settings.warmup_rows),
            None => "a row has".to_owned(),
        };
        let message = format!("there is no model{of} before {needed} arrived");
        WireError::new(ErrorCode::NotReady, message)
    }

    /// Keep a query until its rows are learned.
    fn wait(&mut self, waiting: WaitingQuery) -> Result<(), WireError> {
        let WaitingQuery { request, needs, .. } = &waiting;
        if request.since.elapsed() > WAIT_MAX {
            let message = format!("row {needs} has not been learned for {} s", WAIT_MAX.as_secs());
            return Err(WireError::of(ErrorCode::NotReady, "min_offset", message));
        }
        let of_peer = || self.waiting.iter().filter(|other| other.request.peer == request.peer);
        let own: usize = of_peer().map(WaitingQuery::bytes).sum();
        let is_full = self.waiting_bytes >= WAITING.total_bytes || own >= WAITING.peer_bytes;
        let is_short = request.payload.len() <= SHORT_BYTES;
        if (is_full && (own > 0 || !is_short)) || of_peer().count() >= WAITING_OF_PEER {
            return Err(WireError::overloaded(RETRY_MS));
        }
        // If the queue is full the core is about to look at it anyway.
        let _ = self.ports.wants.try_send(*needs);
        self.waiting_bytes += waiting.bytes();
        self.waiting.push(waiting);
        Ok(())
    }

    /// Put queries whose rows are learned, or have not been for too long, back among the requests, where they have their turn.
    fn recall(&mut self) {
        let offsets: Vec<Option<u64>> =
            (0..self.config.critics.len()).map(|critic| self.board.get(critic).map(|s| s.offset)).collect();
        let (ready, waiting) = std::mem::take(&mut self.waiting).into_iter().partition(|waiting: &WaitingQuery| {
            let learned = |&critic: &usize| offsets[critic].is_some_and(|offset| offset >= waiting.needs);
            waiting.critics.iter().all(learned) || waiting.request.since.elapsed() > WAIT_MAX
        });
        self.waiting = waiting;
        for ready in ready {
            self.waiting_bytes -= ready.bytes();
            let Request { peer, payload, .. } = &ready.request;
            self.ports.requests.give_back(peer.connection, payload.len(), ready.request);
        }
    }

    fn model(&self, critic: Option<&str>) -> Result<Arc<Evaluator>, WireError> {
        let index = self.board.critic(critic)?;
        self.board.evaluator(index).ok_or_else(|| self.no_model(index, false))
    }

    /// The value function of one head.
    fn head(&self, caller: &Caller, critic: Option<&str>, name: &str, variance: bool) -> Result<Reply, WireError> {
        // Read before the model: a head that a newer model has may still be among these, and not the other way round.
        let learning = self.board.learning(self.board.critic(critic)?);
        model_of_head(caller, self.model(critic)?.snapshot(), &learning, name, variance)
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
            let bytes = wire::encode_values(snapshot, caller.form, variance);
            let (revision, form) = (snapshot.revision, caller.form);
            self.paged.push_back(Paged { critic: index, variance, form, revision, bytes });
        }
        let kept = self.paged.iter().rev().find(|kept| fits(kept)).expect("it has just been made sure of");
        piece(caller, &kept.bytes, kept.revision, page)
    }

    /// A slice of the request whose turn it is; whether there is one.
    fn answer_a_slice(&mut self) -> bool {
        let Some(mut large) = self.large.pop_front() else { return false };
        if self.evaluations.is_empty() {
            self.evaluations.push(Evaluation::default());
        }
        match large.advance(&mut self.scratch, &mut self.evaluations[0]) {
            Ok(false) => self.large.push_back(large),
            Ok(true) => {
                self.send(large.reply());
                self.timings.query.observe(large.started.elapsed().as_secs_f64());
            }
            Err(error) => self.send(large.caller().refuse(&error)),
        }
        true
    }

    /// Answer a request with an error.
    fn refuse(&self, request: &Request, error: &WireError) {
        let draft = wire::read_request(&request.payload, &self.config.limits.wire());
        let id = draft.map_or_else(|refused| refused.id, |draft| draft.id);
        self.send(Reply { peer: request.peer, payload: wire::encode_error(&id, error) });
    }

    fn send(&self, reply: Reply) {
        // A transport that has ended has no use for it.
        drop(self.ports.replies.send(reply));
    }
}

/// Bytes that a request of `message` bytes takes which waits as it has been read.
fn held_bytes(op: &Op, message: usize) -> usize {
    /// What the allocator adds to a name.
    const NAME: usize = 32;
    // A list grows by doubling while it is read.
    let name = 2 * size_of::<String>() + NAME;
    let lists = match op {
        Op::Streams { names: Some(names), .. } | Op::Heads { names: Some(names), .. } => names.len() * name,
        Op::ChangeHeads { add, remove, labels, .. } => {
            let labels = labels.as_ref().map_or(0, |part| 2 * LABEL_BYTES * part.offsets.len());
            remove.len() * name + add.len() * (2 * size_of::<HeadForm>() + NAME) + labels
        }
        Op::Suggest { context, .. } => 2 * size_of_val(&context[..]),
        Op::Plan(request) => 2 * request.starts.as_ref().map_or(0, |given| size_of_val(&given.values[..])),
        Op::Rollout(request) => {
            let numbers = |given: &Given| size_of_val(&given.values[..]);
            let answered = match &request.policy {
                PolicyAsked::Answered(states, answers) => numbers(states) + numbers(answers.given()),
                _ => 0,
            };
            let shown = request.show.as_ref().map_or(0, |show| show.len() * name);
            2 * (request.starts.as_ref().map_or(0, numbers) + answered) + shown + message
        }
        Op::Remove(request) => 2 * size_of_val(&request.selectors[..]) + message,
        _ => 0,
    };
    size_of::<Forwarded>() + message + lists
}

/// A `value` request that these models are to answer, one of each critic, and the heads that it names.
///
/// # Errors
/// If its states, actions or heads are none of theirs.
fn prepared(
    caller: &Caller,
    op: Op,
    (models, by_name): (Vec<Arc<Evaluator>>, bool),
    learning: Arc<LearningHeads>,
    limits: &wire::Limits,
) -> Result<(ValueQuery, Option<HeadQuery>), WireError> {
    let Op::Value { states, rows, dim, ask, actions, heads, .. } = op else { unreachable!("a query was decoded") };
    let (states, rows, dim) = act::inputs(models[0].snapshot(), (states, rows, dim), actions.as_ref(), limits)?;
    models.iter().try_for_each(|model| check_dim(dim, model.snapshot()))?;
    // Heads belong to one critic.
    let of = |names| HeadQuery::new(models[0].snapshot(), learning, &names, rows, ask, limits.query_rows_max);
    let heads = heads.map(of).transpose()?;
    Ok((ValueQuery { caller: caller.clone(), states, rows, dim, ask, models, by_name }, heads))
}

/// The value function of one head of a model.
fn model_of_head(
    caller: &Caller,
    model: &Snapshot,
    learning: &LearningHeads,
    name: &str,
    variance: bool,
) -> Result<Reply, WireError> {
    let place = model.position_of_head(name).ok_or_else(|| head_query::no_model(model, learning, name))?;
    let snapshot = &model.head_alone(place, variance);
    let Reply { peer, payload } = caller.reply(&wire::Reply::Snapshot { snapshot, variance });
    Ok(Reply { peer, payload: wire::with_head(payload, name) })
}

/// One page of an encoded snapshot.
fn piece(caller: &Caller, bytes: &[u8], revision: u64, page: u64) -> Result<Reply, WireError> {
    let mut pages = bytes.chunks(wire::PAGE_BYTES);
    let count = pages.len() as u64;
    let Some(data) = usize::try_from(page).ok().and_then(|page| pages.nth(page)) else {
        return Err(WireError::of(ErrorCode::OutOfRange, "page", format!("there are {count} pages, from 0")));
    };
    Ok(caller.reply(&wire::Reply::Page { page, pages: count, revision, bytes: bytes.len() as u64, data }))
}

/// Whether states have the dimension of the model's.
fn check_dim(dim: usize, snapshot: &Snapshot) -> Result<(), WireError> {
    let known = snapshot.dim();
    if dim == known { Ok(()) } else { Err(WireError::other_dimension("states", (known, ""), dim)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{Right, Rights};
    use crate::clock::Now;
    use crate::daemon::core::Core;
    use crate::learner::act::{Exploration, Question};
    use crate::snapshot::{Ask, ReturnSpread};
    use crate::transition::{Batch, BatchParts};
    use crate::transport::turns::{Share, turns};
    use crate::transport::{self, Peer};
    use bytes::Bytes;
    use criticd_sim::{self as sim, Step, pendulum::Pendulum};
    use crossbeam_channel::{bounded, never};
    use nalgebra::DMatrix;
    use serde_json::{Value, json};

    /// The snapshot on the board, learned with another lambda, and knowing how returns scatter.
    fn with_returns(board: &Board) -> Arc<Snapshot> {
        let snapshot = board.get(0).unwrap();
        let m = snapshot.features();
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

    pub(super) const SHARE: Share = Share { peer_bytes: 1 << 20, total_bytes: 1 << 20 };

    fn request(connection: u64, payload: Bytes) -> Request {
        Request { peer: Peer { connection, delimiter: false }, payload, since: Instant::now() }
    }

    /// A thread that answers, and what it passes on to the core.
    pub(super) fn control(
        requests: Turns<Request>,
        replies: Outbox<Reply>,
        board: Arc<Board>,
        config: Arc<Config>,
    ) -> (Control, Turns<Forwarded>) {
        let ((calls, passed_on), wants) = (turns(SHARE), bounded(1).0);
        let (evaluations, _) = evaluations::entrance(false);
        let ports = Ports { requests, replies, calls, wants, fresh: never(), evaluations, pulse: Arc::default() };
        (Control::new(ports, board, config, Timings::default(), Clock::start()), passed_on)
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
        let most = slice_rows(state_work(&snapshot, Ask::VARIANCE));
        let (queue, requests) = turns(SHARE);
        let (replies, mut answers) = Outbox::new(100, 1 << 20);
        let state = |i: usize| vec![(i % 100) as f64 / 30.0, (i % 7) as f64];
        let ask = |id: u64, states: Vec<Vec<f64>>| {
            let fields = json!({"states": states, "variance": true, "returns": true, "known": true, "arrays": "list"});
            let payload = wire::encode_request(id, "value", fields.as_object().unwrap()).into();
            let connection = transport::peer_number(id, Rights::ALL);
            queue.put(connection, 0, request(connection, payload));
        };
        ask(1, (0..3 * most + 5).map(state).collect());
        ask(2, (0..most + 1).map(state).chain([vec![1e300, 0.0]]).collect());
        ask(3, vec![state(4)]);
        ask(4, (0..most).map(state).collect());
        drop(queue);
        control(requests, replies, Arc::clone(&board), Arc::default()).0.run();
        let mut answer = || {
            let Reply { peer, payload } = answers.try_recv().expect("an answer");
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

    /// A core that has learned values of actions in a box from random steps.
    fn acting_core() -> Core {
        let text = "[[critic]]\ninputs = \"state_action\"\nactions = { low = [-1.0], high = [1.0] }\nsuccessor = \"next_action\"\n\
                    dictionary_max = 40\nrefit_first_rows = 0\n";
        let mut core = Core::new(Arc::new(Config::from_toml(text).unwrap()));
        let waves = |rate: f64| (0..301).map(|i| (rate * f64::from(i)).sin()).collect::<Vec<f64>>();
        let (states, actions) = (waves(0.7), waves(1.3)[..300].to_vec());
        let rewards = states.iter().zip(&actions).map(|(state, action)| state * action).collect();
        let (stream, actions) = ("robot".to_owned(), Some(actions));
        let parts =
            BatchParts { stream, dim: 1, rewards_per_row: 1, states, actions, rewards, ..BatchParts::default() };
        let now = Now { uptime: 1.0, unix: 1e9 };
        core.ingest(&wire::encode_ingest(&Batch::new(parts).unwrap()), now);
        core.step(now);
        core.refresh(now, &|| now);
        core
    }

    #[test]
    fn others_are_answered_between_the_decisions_of_long_requests() {
        let board = acting_core().board();
        let actor = board.actor(0).expect("a model of actions");
        let most = ACT_SLICE_WORK / actor.work(None, Exploration::Greedy);
        assert!((2..1000).contains(&most), "{most} decisions in a slice");
        let (queue, requests) = turns(SHARE);
        let (replies, mut answers) = Outbox::new(100, 1 << 20);
        let state = |i: usize| vec![(i as f64 / 10.0).cos()];
        let put = |id: u64, op: &str, fields: Value| {
            let payload = wire::encode_request(id, op, fields.as_object().unwrap()).into();
            let connection = transport::peer_number(id, Rights::ALL);
            queue.put(connection, 0, request(connection, payload));
        };
        let decide = |count: usize| json!({"states": (0..count).map(state).collect::<Vec<_>>(), "arrays": "list"});
        let mut faulty = decide(2 * most);
        faulty["states"].as_array_mut().unwrap().push(json!([1e300]));
        put(1, "act", decide(20 * most + 1));
        put(2, "act", decide(6 * most));
        put(3, "act", faulty);
        put(4, "value", json!({"states": [[0.25]], "actions": [[0.5]], "arrays": "list"}));
        put(5, "act", decide(1));
        drop(queue);
        control(requests, replies, Arc::clone(&board), Arc::default()).0.run();
        let mut answer = || {
            let Reply { peer, payload } = answers.try_recv().expect("an answer");
            (peer.connection ^ transport::peer_number(0, Rights::ALL), wire::to_json(&payload).unwrap())
        };
        let found: Vec<(u64, Value)> = (0..5).map(|_| answer()).collect();
        // What takes one slice comes first, and the longest last, whenever it came.
        assert_eq!(found.iter().map(|(peer, _)| *peer).collect::<Vec<_>>(), [4, 5, 3, 2, 1]);
        let error = &found[2].1["error"];
        assert_eq!((&error["field"], &error["index"]), (&json!("states"), &json!(2 * most)), "{error}");
        let decided = &found[4].1;
        assert_eq!(decided["actions"].as_array().unwrap().len(), 20 * most + 1);
        for at in [0, most, 20 * most] {
            let state = state(at);
            let question = Question {
                state: &state,
                exploration: Exploration::Greedy,
                seed: 0,
                episode: 0,
                step: 0,
                candidates: None,
                unknown_above: None,
            };
            let expected = actor.act(&question).unwrap();
            assert_eq!(decided["actions"][at], json!(expected.action[0]), "{at}");
            assert_eq!(decided["mean"][at], json!(expected.mean), "{at}");
        }
    }

    #[test]
    fn a_decision_that_would_keep_others_waiting_is_refused() {
        let board = acting_core().board();
        let actor = board.actor(0).unwrap();
        let work = |count: usize| actor.work(Some(count), Exploration::Ucb(1.0));
        let limits = wire::Limits { query_rows_max: 1 << 20, ..wire::Limits::default() };
        let ask = |count: usize| {
            let fields = json!({"states": [[0.5]], "exploration": "ucb", "beta": 1.0, "candidates": vec![0.5; count]});
            let payload = wire::encode_request(1, "act", fields.as_object().unwrap());
            let limits = wire::Limits { message_bytes_max: 1 << 24, ..limits };
            let Op::Act(request) = wire::read_request(&payload, &limits).unwrap().decode(&limits).unwrap().op else {
                panic!("an act request")
            };
            Decisions::new(&board, request, &limits).map(|decisions| decisions.work())
        };
        let error = ask(100_000).expect_err("a refusal");
        assert_eq!((error.code, error.field), (ErrorCode::TooLarge, Some("candidates")));
        let most: usize = error.message.split("at most ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
        assert!(
            work(most) < work(100_000) && ask(most).is_ok_and(|found| found == work(most)) && ask(most + 1).is_err()
        );
    }

    #[test]
    fn small_queries_are_answered_where_they_arrive_and_no_others() {
        let config = Config::default();
        let mut core = Core::new(Arc::new(config.clone()));
        let board = core.board();
        let mut at_once = FastPath::new(Arc::clone(&board), &config, Timings::default(), Clock::start());
        let mut ask = |op: &str, fields: Value, rights: Rights| {
            let payload = wire::encode_request(7, op, fields.as_object().unwrap()).into();
            at_once
                .answer(&request(transport::peer_number(1, rights), payload))
                .map(|payload| wire::to_json(&payload).unwrap())
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
            with("critics", json!(["default"])),
            with("states", json!([[0.5, 1e300]])),
            with("states", json!([[0.5]])),
            with("states", json!([])),
            with("states", json!("none")),
            with("states", json!(vec![[0.5, 1.0]; 200])),
        ] {
            assert_eq!(ask("value", left.clone(), Rights::ALL), None, "{left}");
        }
        assert_eq!(ask("value", value(json!([[0.5, 1.0]])), vec![Right::Append].into()), None, "it may not ask");
        for op in ["hello", "snapshot", "status"] {
            assert_eq!(ask(op, json!({}), Rights::ALL), None, "{op}");
        }
        assert_eq!(ask("ping", json!({}), Rights::ALL).unwrap()["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(ask("ping", json!({}), vec![Right::Administer].into()), None);
        let noise = |payload: &'static [u8]| {
            at_once.answer(&request(transport::peer_number(1, Rights::ALL), Bytes::from_static(payload)))
        };
        assert!([&b""[..], b"value", b"\x82\xa2op\xa5value", b"\x81\xa2op"].map(noise).iter().all(Option::is_none));
    }

    /// The same with nothing on its board.
    fn passing_on(config: Config) -> (Control, Turns<Forwarded>) {
        let config = Arc::new(config);
        let board = Core::new(Arc::clone(&config)).board();
        control(turns(SHARE).1, Outbox::new(1, 1).0, board, config)
    }

    #[test]
    fn the_core_hears_of_appends_that_are_refused_before_it_reads_them() {
        let (mut control, waiting) = passing_on(Config::from_toml("state_dim = 3\n[[critic]]\n").unwrap());
        let append = json!({
            "stream": "arm", "session": "s", "seq": 7, "states": vec![[0.5, 1.0]; 1000], "rewards": vec![0.5; 999],
        });
        let mut refused = |fields: &Value, rights: Rights| {
            let payload: Bytes = wire::encode_request(1, "append", fields.as_object().unwrap()).into();
            assert!(payload.len() > 2 * 9 * 1000);
            control.handle(request(transport::peer_number(1, rights), payload));
            let bytes = waiting.bytes();
            match waiting.next_of(|_| true).map(|call| call.asked) {
                Some(Asked::Refused(refused)) => (refused, bytes),
                other => panic!("{other:?}"),
            }
        };
        let (wide, bytes) = refused(&append, Rights::ALL);
        assert_eq!((wide.error.code, wide.error.field), (ErrorCode::WrongDimension, Some("state")));
        let (stream, session) = (Some("arm".to_owned()), Some("s".to_owned()));
        assert_eq!(wide.origin, wire::Origin { stream, session, seq: Some(7), rows: Some(999) });
        assert!(wide.start.len() < bytes && bytes < 10_000, "{bytes}: the rest of the message is let go");
        assert_eq!(refused(&append, vec![Right::Query].into()).0.error.code, ErrorCode::Unauthorised);
        let unread = json!({"arrays": "none", "rewards": vec![0.5; 3000]});
        assert_eq!(refused(&unread, Rights::ALL).0.error.field, Some("arrays"));
    }

    #[test]
    fn changes_of_heads_that_wait_are_counted() {
        let (mut control, waiting) = passing_on(Config::default());
        let head = |k: usize| json!({"name": k.to_string(), "cumulant": {"kind": "reward", "index": 0}});
        let heads: Vec<Value> = (0..100).map(head).collect();
        let mut counted = 0;
        for (op, fields) in [
            ("change_heads", json!({"add": heads})),
            ("change_heads", json!({"remove": vec!["x".repeat(100); 100]})),
            ("heads", json!({"names": vec!["x".repeat(100); 100]})),
        ] {
            let payload = wire::encode_request(1, op, fields.as_object().unwrap()).into();
            control.handle(request(transport::peer_number(1, Rights::ALL), payload));
            assert!(waiting.bytes() > counted + 10_000, "{op}: {}", waiting.bytes() - counted);
            counted = waiting.bytes();
        }
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
        let mut control = control(turns(SHARE).1, Outbox::new(1, 1).0, board, Arc::default()).0;
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
