//! Messages to the daemon: transitions, batches and requests.

use super::heads::{head_forms, label_part};
use super::reader::{Field, Fields, Head, Reader};
use super::tensor::{Element, Shape, Tensor};
use super::{
    ANSWERING_MAX, Answering, ArrayForm, ErrorCode, HEADS_PER_PAGE, HeadNames, ID_BYTES_MAX, Id, Limits, Moment, Op,
    OpKind, Request, RequestError, STREAMS_PER_PAGE, VERSION, WireError, excerpt,
};
use criticd_learner::snapshot::Ask;
use criticd_learner::transition::{Batch, BatchParts, Names, check_policy};

/// Every key that some message to the daemon has.
const KEYS: [&str; 77] = [
    "head",
    "v",
    "id",
    "op",
    "arrays",
    "stream",
    "session",
    "seq",
    "state",
    "reward",
    "next_state",
    "action",
    "discount",
    "time",
    "states",
    "next_states",
    "rewards",
    "terminated",
    "truncated",
    "discounts",
    "actions",
    "times",
    "behavior_prob",
    "behavior_probs",
    "target_prob",
    "target_probs",
    "next_action",
    "next_actions",
    "next_action_probs",
    "policy",
    "state_names",
    "reward_names",
    "action_names",
    "critic",
    "critics",
    "variance",
    "returns",
    "known",
    "base",
    "min_offset",
    "page",
    "revision",
    "wait",
    "names",
    "from",
    "exploration",
    "epsilon",
    "temperature",
    "beta",
    "seed",
    "episodes",
    "steps",
    "candidates",
    "unknown_above",
    "fallback",
    "heads",
    "add",
    "remove",
    "labels",
    "probs",
    "last",
    "rho_max",
    "ess_min",
    "folds",
    "advisor",
    "context",
    "decision_id",
    "cost",
    "select",
    "dry_run",
    "boundary",
    "by",
    "reason",
    "show",
    "answered",
    "elements",
    "as_of",
];

/// Bytes of a name: of a stream, a critic, a head.
pub(super) const NAME_BYTES_MAX: usize = 256;

/// The place of a key among [`KEYS`], found when this is compiled.
const fn key(name: &str) -> usize {
    let (wanted, mut i) = (name.as_bytes(), 0);
    loop {
        let (known, mut at) = (KEYS[i].as_bytes(), 0);
        while known.len() == wanted.len() && at < known.len() && known[at] == wanted[at] {
            at += 1;
        }
        if known.len() == wanted.len() && at == known.len() {
            return i;
        }
        i += 1;
    }
}

/// The value of a key of a message, if it has it.
macro_rules! field {
    ($message:expr, $name:literal) => {
        $message.at(const { key($name) })
    };
}

mod act;
mod evaluate;
mod remove;
mod world;

type Message<'a> = Fields<'a, { KEYS.len() }>;

/// Decode what came on the ingest socket: one transition or a batch, `op` "append" or left out.
///
/// # Errors
/// The first fault found. A message that is no whole MessagePack map is `malformed` whatever else is wrong with it.
pub fn decode_ingest(bytes: &[u8], limits: &Limits) -> Result<Batch, WireError> {
    decode_ingest_into(bytes, limits, BatchParts::default())
}

/// [`decode_ingest`] into the memory of `spare`, whatever it holds: who keeps the parts of one batch for the next message
/// ([`Batch::into_parts`]) allocates nothing.
///
/// # Errors
/// As [`decode_ingest`].
pub fn decode_ingest_into(bytes: &[u8], limits: &Limits, spare: BatchParts) -> Result<Batch, WireError> {
    check_size(bytes, limits)?;
    let mut message = Fields::new(&KEYS, "");
    message.read_message(bytes)?;
    check_version(field!(message, "v"))?;
    if let Some(op) = field!(message, "op")
        && op.string()? != "append"
    {
        let message =
            format!("the ingest socket takes transitions, op \"append\" or none, not {}", excerpt(op.string()?));
        return Err(WireError::of(ErrorCode::UnknownOp, "op", message));
    }
    batch(&message, limits, spare)
}

/// Decode what came on the control socket.
///
/// # Errors
/// The first fault found, with the request's id if that was readable.
pub fn decode_request(bytes: &[u8], limits: &Limits) -> Result<Request, RequestError> {
    read_request(bytes, limits)?.decode(limits)
}

/// A request of which it is known what is asked, and whose arrays have not been read: that takes no memory, and little time.
pub struct Draft<'a> {
    /// Echoed in the reply.
    pub id: Id,
    /// How the reply's tensors are to be written.
    pub arrays: ArrayForm,
    /// What is asked.
    pub kind: OpKind,
    message: Message<'a>,
}

/// Look at what came on the control socket.
///
/// # Errors
/// The first fault found, with the request's id if that was readable; faults of single values are found by [`Draft::decode`].
pub fn read_request<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Draft<'a>, RequestError> {
    check_size(bytes, limits).map_err(|error| RequestError { id: Id::nil(), error })?;
    let mut message = Fields::new(&KEYS, "");
    let whole = message.read_message(bytes);
    let id = match field!(message, "id").map(|id| id.bytes()) {
        None => Id::nil(),
        Some(value) if value.len() <= ID_BYTES_MAX => Id(value.to_vec()),
        Some(_) => {
            let text = format!("an id has at most {ID_BYTES_MAX} bytes");
            let error = whole.err().unwrap_or_else(|| WireError::of(ErrorCode::TooLarge, "id", text));
            return Err(RequestError { id: Id::nil(), error });
        }
    };
    match whole.and_then(|()| envelope(&message)) {
        Ok((arrays, kind)) => Ok(Draft { id, arrays, kind, message }),
        Err(error) => Err(RequestError { id, error }),
    }
}

impl Draft<'_> {
    /// Read all of it.
    ///
    /// # Errors
    /// The first fault found.
    pub fn decode(self, limits: &Limits) -> Result<Request, RequestError> {
        match operation(self.kind, &self.message, limits) {
            Ok(op) => Ok(Request { id: self.id, arrays: self.arrays, op }),
            Err(error) => Err(RequestError { id: self.id, error }),
        }
    }

    /// The critics that are to answer a `value` request.
    ///
    /// # Errors
    /// If a name is no string, if there are too many names or none, if a name occurs twice, or if there is `critic` as well.
    pub fn answering(&self) -> Result<Answering, WireError> {
        answering(&self.message)
    }

    /// Rows that are to be learned before it is answered.
    ///
    /// # Errors
    /// If that is no integer from 0.
    pub fn min_offset(&self) -> Result<Option<u64>, WireError> {
        field!(self.message, "min_offset").map(|field| field.uint()).transpose()
    }

    /// Whether it asks for the past.
    pub fn is_of_the_past(&self) -> bool {
        field!(self.message, "as_of").is_some()
    }

    /// Whether a `value` request is one of states alone, to one critic as it is now.
    pub fn is_of_states(&self) -> bool {
        let message = &self.message;
        field!(message, "critics").or(field!(message, "heads")).or(field!(message, "actions")).is_none()
            && !self.is_of_the_past()
    }

    /// Whose rows it holds, as far as that can be read.
    pub fn origin(&self) -> Origin {
        origin_of(&self.message, true)
    }

    /// Numbers in the first of its states, if it has one that can be read and no more states than it may have.
    pub fn dim(&self, limits: &Limits) -> Option<usize> {
        let (rows, dim) = field!(self.message, "states")?.claims()?;
        dim.filter(|_| rows <= limits.query_rows_max)
    }
}

/// Decode an `append` of which nothing but its keys has been read, into the memory of `spare`.
///
/// # Errors
/// The first fault found.
pub fn decode_append_into(bytes: &[u8], limits: &Limits, spare: BatchParts) -> Result<Batch, WireError> {
    let mut message = Fields::new(&KEYS, "");
    message.read_message(bytes)?;
    message.require("seq")?;
    batch(&message, limits, spare)
}

/// Whose rows a message holds, as far as that can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The stream.
    pub stream: Option<String>,
    /// Its session.
    pub session: Option<String>,
    /// `seq` of the first row.
    pub seq: Option<u64>,
    /// How many rows.
    pub rows: Option<usize>,
}

/// Look at whose rows came, on the ingest socket or as an append.
pub fn origin(bytes: &[u8]) -> Origin {
    let mut message: Message<'_> = Fields::new(&KEYS, "");
    // What was found before a fault is good enough.
    let is_whole = message.read_message(bytes).is_ok();
    origin_of(&message, is_whole)
}

/// Names that a whole message leaves out have their defaults.
fn origin_of(message: &Message<'_>, is_whole: bool) -> Origin {
    let text = |field: Option<Field<'_>>, default: &str| match field {
        Some(field) => field.string().ok().filter(|text| text.len() <= 256).map(str::to_owned),
        None => is_whole.then(|| default.to_owned()),
    };
    Origin {
        stream: text(field!(message, "stream"), "default"),
        session: text(field!(message, "session"), ""),
        seq: field!(message, "seq").and_then(|field| field.uint().ok()),
        rows: match field!(message, "rewards") {
            Some(rewards) => rewards.claims().map(|(rows, _)| rows),
            None => field!(message, "reward").map(|_| 1),
        },
    }
}

/// The operation that a message asks for. Nothing else of the message is checked.
pub fn peek(bytes: &[u8]) -> Option<OpKind> {
    let mut reader = Reader::new(bytes);
    let Ok(Head::Map(pairs)) = reader.head() else { return None };
    for _ in 0..pairs {
        match reader.head() {
            Ok(Head::Str(b"op")) => match reader.head() {
                Ok(Head::Str(name)) => return OpKind::named(name),
                _ => return None,
            },
            Ok(Head::Str(_)) if reader.pass() => {}
            _ => return None,
        }
    }
    None
}

fn check_size(bytes: &[u8], limits: &Limits) -> Result<(), WireError> {
    let (len, max) = (bytes.len(), limits.message_bytes_max);
    if len > max {
        return Err(WireError::new(ErrorCode::TooLarge, format!("a message has at most {max} bytes, this one {len}")));
    }
    Ok(())
}

pub(super) fn check_version(field: Option<Field<'_>>) -> Result<(), WireError> {
    match field.ok_or_else(|| WireError::missing("v"))?.uint() {
        Ok(VERSION) => Ok(()),
        Ok(other) => {
            let message = format!("this daemon speaks version {VERSION}, not {other}");
            Err(WireError::of(ErrorCode::UnsupportedVersion, "v", message))
        }
        Err(error) if error.code == ErrorCode::OutOfRange => {
            Err(WireError { code: ErrorCode::UnsupportedVersion, ..error })
        }
        Err(error) => Err(error),
    }
}

/// How arrays are to be written, and what is asked.
fn envelope(message: &Message<'_>) -> Result<(ArrayForm, OpKind), WireError> {
    check_version(field!(message, "v"))?;
    let arrays = match field!(message, "arrays").map(|f| f.string()).transpose()? {
        None | Some("tensor") => ArrayForm::Tensor,
        Some("list") => ArrayForm::List,
        Some(other) => {
            let text = format!("must be \"tensor\" or \"list\", is {}", excerpt(other));
            return Err(WireError::of(ErrorCode::OutOfRange, "arrays", text));
        }
    };
    let name = message.require("op")?.string()?;
    let kind = OpKind::named(name.as_bytes()).ok_or_else(|| {
        let text = format!("there is no operation {}", excerpt(name));
        WireError::of(ErrorCode::UnknownOp, "op", text)
    })?;
    Ok((arrays, kind))
}

fn operation(kind: OpKind, message: &Message<'_>, limits: &Limits) -> Result<Op, WireError> {
    let critic = || critic(message);
    let advisor = || name(field!(message, "advisor"));
    let flag = |field: Option<Field<'_>>| field.map_or(Ok(false), |f| f.scalar::<bool>());
    Ok(match kind {
        OpKind::Append => {
            message.require("seq")?;
            Op::Append(batch(message, limits, BatchParts::default())?)
        }
        OpKind::Value => {
            let (states, rows, dim) = query(message.require("states")?, limits)?;
            let min_offset = field!(message, "min_offset").map(|f| f.uint()).transpose()?;
            let ask = Ask {
                variance: flag(field!(message, "variance"))?,
                returns: flag(field!(message, "returns"))?,
                known: flag(field!(message, "known"))?,
                base: flag(field!(message, "base"))?,
            };
            let critics = answering(message)?;
            if let Answering::Each(names) = &critics {
                check_answers(rows, names.len(), limits)?;
            }
            let actions = act::actions(message)?;
            let heads = asked_heads(message, &critics, limits)?;
            let as_of = moment(message)?;
            if as_of.is_some() && min_offset.is_some() {
                let text = "a request has `as_of` or `min_offset`, not both";
                return Err(WireError::of(ErrorCode::WrongShape, "min_offset", text));
            }
            Op::Value { states, rows, dim, critics, ask, min_offset, actions, heads, as_of }
        }
        OpKind::Act => Op::Act(act::act(message, limits)?),
        OpKind::Rows => Op::Rows(evaluate::span(message)?),
        OpKind::Evaluate => Op::Evaluate(evaluate::evaluate(message)?),
        OpKind::Snapshot => {
            let page = field!(message, "page").map(|f| f.uint()).transpose()?;
            let revision = field!(message, "revision").map(|f| f.uint()).transpose()?;
            let head = field!(message, "head").map(|f| f.string()).transpose()?.map(str::to_owned);
            let (variance, as_of) = (flag(field!(message, "variance"))?, moment(message)?);
            Op::Snapshot { critic: critic()?, variance, page, revision, head, as_of }
        }
        OpKind::Status => Op::Status,
        OpKind::Streams => {
            let names = field!(message, "names").map(|field| names(field, STREAMS_PER_PAGE, "streams")).transpose()?;
            Op::Streams { names, from: field!(message, "from").map_or(Ok(0), |f| f.uint())? }
        }
        OpKind::Refit => Op::Refit { critic: critic()?, wait: flag(field!(message, "wait"))? },
        OpKind::NewPolicy => {
            let policy = field!(message, "policy").map(|f| f.string()).transpose()?;
            policy.map_or(Ok(()), check_policy)?;
            Op::NewPolicy { critic: critic()?, policy: policy.map(str::to_owned) }
        }
        OpKind::Heads => {
            let names = field!(message, "names").map(|field| names(field, HEADS_PER_PAGE, "heads")).transpose()?;
            Op::Heads { critic: critic()?, names, from: field!(message, "from").map_or(Ok(0), |f| f.uint())? }
        }
        OpKind::ChangeHeads => {
            let add = field!(message, "add").map(head_forms).transpose()?.unwrap_or_default();
            let remove = field!(message, "remove").map(|field| names(field, limits.query_rows_max, "heads"));
            let labels = field!(message, "labels").map(|field| label_part(field, limits.query_rows_max)).transpose()?;
            Op::ChangeHeads { critic: critic()?, add, remove: remove.transpose()?.unwrap_or_default(), labels }
        }
        OpKind::Suggest => {
            Op::Suggest { advisor: advisor()?, context: message.require("context")?.vector(Vec::new())? }
        }
        OpKind::Report => Op::Report {
            advisor: advisor()?,
            decision_id: message.require("decision_id")?.uint()?,
            cost: message.require("cost")?.scalar()?,
        },
        OpKind::Rebuild => Op::Rebuild { critic: critic()?, wait: flag(field!(message, "wait"))? },
        OpKind::Remove => Op::Remove(remove::remove(message)?),
        OpKind::Plan => Op::Plan(world::plan(message, limits)?),
        OpKind::Rollout => Op::Rollout(world::rollout(message, limits)?),
        OpKind::Checkpoint => Op::Checkpoint,
        OpKind::Ping => Op::Ping,
        OpKind::Hello => Op::Hello,
    })
}

/// The moment that a message asks for: an integer is an offset, another number a time.
fn moment(message: &Message<'_>) -> Result<Option<Moment>, WireError> {
    let Some(field) = field!(message, "as_of") else { return Ok(None) };
    match field.head()? {
        Head::Float(time) if time.is_finite() => Ok(Some(Moment::Time(time))),
        Head::Float(time) => {
            Err(WireError::of(ErrorCode::OutOfRange, field.name, format!("must be finite, is {time}")))
        }
        _ => Ok(Some(Moment::Offset(field.uint()?))),
    }
}

/// The critic that a message names.
fn critic(message: &Message<'_>) -> Result<Option<String>, WireError> {
    name(field!(message, "critic"))
}

/// The name in a field, if it is there.
fn name(field: Option<Field<'_>>) -> Result<Option<String>, WireError> {
    let Some(field) = field else { return Ok(None) };
    let name = field.string()?;
    check_name(field.name, name.len())?;
    Ok(Some(name.to_owned()))
}

/// Whether a name may have `bytes` bytes.
fn check_name(field: &'static str, bytes: usize) -> Result<(), WireError> {
    if bytes <= NAME_BYTES_MAX {
        return Ok(());
    }
    let text = format!("a name has at most {NAME_BYTES_MAX} bytes, this one {bytes}");
    Err(WireError::of(ErrorCode::TooLarge, field, text))
}

/// At most `most` names of `what`.
fn names(field: Field<'_>, most: usize, what: &str) -> Result<Vec<String>, WireError> {
    texts(field, (most, NAME_BYTES_MAX), what)
}

/// At most `most` texts, of at most `bytes_max` bytes each.
fn texts(field: Field<'_>, (most, bytes_max): (usize, usize), what: &str) -> Result<Vec<String>, WireError> {
    let mut reader = field.reader();
    let count = match reader.head()? {
        Head::Array(count) => count,
        other => return Err(field.wrong_type("an array of strings", &other)),
    };
    if count > most {
        let text = format!("a request names at most {most} {what}, this one {count}");
        return Err(WireError::of(ErrorCode::TooLarge, field.name, text));
    }
    let name = |index| match reader.head()? {
        Head::Str(bytes) if bytes.len() > bytes_max => {
            let text = format!("a text has at most {bytes_max} bytes here, this one {}", bytes.len());
            Err(WireError::of(ErrorCode::TooLarge, field.name, text).at(index))
        }
        Head::Str(bytes) => {
            let name = std::str::from_utf8(bytes).map(str::to_owned);
            name.map_err(|_| WireError::of(ErrorCode::WrongType, field.name, "must be UTF-8, is not").at(index))
        }
        other => Err(field.wrong_type("an array of strings", &other).at(index)),
    };
    (0..count).map(name).collect()
}

/// The critics that are to answer a `value` request.
fn answering(message: &Message<'_>) -> Result<Answering, WireError> {
    let one = critic(message)?;
    let Some(field) = field!(message, "critics") else { return Ok(Answering::One(one)) };
    if one.is_some() {
        return Err(WireError::of(ErrorCode::WrongShape, "critic", "a request has `critic` or `critics`, not both"));
    }
    let names = names(field, ANSWERING_MAX, "critics")?;
    if names.is_empty() {
        return Err(WireError::of(ErrorCode::WrongShape, "critics", "must name at least one critic"));
    }
    if let Some(index) = (1..names.len()).find(|&i| names[..i].contains(&names[i])) {
        let text = format!("names {} twice", excerpt(&names[index]));
        return Err(WireError::of(ErrorCode::OutOfRange, "critics", text).at(index));
    }
    Ok(Answering::Each(names))
}

/// The heads that are to answer a `value` request.
fn asked_heads(message: &Message<'_>, critics: &Answering, limits: &Limits) -> Result<Option<HeadNames>, WireError> {
    let Some(field) = field!(message, "heads") else { return Ok(None) };
    if matches!(critics, Answering::Each(_)) {
        let text = "belong to one critic: name it as `critic`, not in `critics`";
        return Err(WireError::of(ErrorCode::WrongShape, "heads", text));
    }
    match field.string() {
        Ok("all") => Ok(Some(HeadNames::All)),
        Ok(other) => {
            let text = format!("must be \"all\" or an array of names, is {}", excerpt(other));
            Err(WireError::of(ErrorCode::OutOfRange, "heads", text))
        }
        Err(_) => names(field, limits.query_rows_max, "heads").map(|names| Some(HeadNames::These(names))),
    }
}

/// Whether a reply may hold the answers to these rows: the limit on states is one on states times critics.
fn check_answers(rows: usize, critics: usize, limits: &Limits) -> Result<(), WireError> {
    let most = limits.query_rows_max;
    if rows.saturating_mul(critics) <= most {
        return Ok(());
    }
    let text = format!("a request asks for at most {most} values, this one for {rows} states by {critics} critics");
    Err(WireError::of(ErrorCode::TooLarge, "states", text))
}

/// The states of a `value` request.
fn query(field: Field<'_>, limits: &Limits) -> Result<(Vec<f64>, usize, usize), WireError> {
    if let Some((rows, _)) = field.claims().filter(|&(rows, _)| rows > limits.query_rows_max) {
        let message = format!("a request asks for at most {} states, this one for {rows}", limits.query_rows_max);
        return Err(WireError::of(ErrorCode::TooLarge, "states", message));
    }
    let (rows, dim, states) = field.matrix(Vec::new())?;
    if rows == 0 || dim == 0 {
        return Err(WireError::of(ErrorCode::WrongShape, "states", "must hold at least one number"));
    }
    Ok((states, rows, dim))
}

/// Keys of one transition and of a batch, side by side: those that learning depends on.
const SINGULAR_PLURAL: [(usize, usize); 8] = [
    (key("state"), key("states")),
    (key("next_state"), key("next_states")),
    (key("reward"), key("rewards")),
    (key("action"), key("actions")),
    (key("discount"), key("discounts")),
    (key("behavior_prob"), key("behavior_probs")),
    (key("target_prob"), key("target_probs")),
    (key("next_action"), key("next_actions")),
];

/// Whether the message is one transition. A key of the other form is a fault and not ignored: a single `discount` in
/// a batch was meant to say something. Times are for people, and no reason to refuse anything.
fn is_single(message: &Message<'_>) -> Result<bool, WireError> {
    let single = match (field!(message, "state"), field!(message, "states")) {
        (None, None) => {
            let text = "`state` of one transition or `states` of a batch is required";
            return Err(WireError::of(ErrorCode::MissingField, "state", text));
        }
        (Some(_), _) => true,
        (None, Some(_)) => false,
    };
    for (singular, plural) in SINGULAR_PLURAL {
        let (foreign, proper) = if single { (plural, singular) } else { (singular, plural) };
        if message.at(foreign).is_some() {
            let form = if single { "one transition (it has `state`)" } else { "a batch (it has `states`)" };
            let text = format!("this message is {form}, where the key is `{}`", KEYS[proper]);
            return Err(WireError::of(ErrorCode::WrongShape, KEYS[foreign], text));
        }
    }
    Ok(single)
}

/// Reads the values of a transition or batch, all with the same number of rows.
struct BatchColumns<'m, 'a> {
    message: &'m Message<'a>,
    single: bool,
}

impl<'a> BatchColumns<'_, 'a> {
    fn field(&self, (singular, plural): (usize, usize)) -> Option<Field<'a>> {
        self.message.at(if self.single { singular } else { plural })
    }

    fn required(&self, (singular, plural): (usize, usize)) -> Result<Field<'a>, WireError> {
        let name = KEYS[if self.single { singular } else { plural }];
        self.field((singular, plural)).ok_or_else(|| WireError::missing(name))
    }

    /// A value per row that may have one more axis: rows, numbers per row, values.
    fn wide<T: Element>(&self, field: Field<'_>, spare: Vec<T>) -> Result<(usize, usize, Vec<T>), WireError> {
        let Tensor { values, shape } = field.tensor(spare)?;
        let (rows, width) = match (self.single, shape) {
            (true, Shape::Scalar) => (1, 1),
            (true, Shape::Vector(width)) => (1, width),
            (false, Shape::Vector(_) | Shape::Matrix(..)) => shape.rows_and_width(),
            _ => {
                let wanted = if self.single { "a value or an array of them" } else { "one value or array per row" };
                return Err(WireError::of(ErrorCode::WrongShape, field.name, format!("must be {wanted}")));
            }
        };
        Ok((rows, width, values))
    }

    /// A value per row, of a given number of rows.
    fn narrow<T: Element>(&self, field: Field<'_>, rows: usize, mut spare: Vec<T>) -> Result<Vec<T>, WireError> {
        let values = if self.single {
            spare.clear();
            spare.push(field.scalar()?);
            spare
        } else {
            field.vector(spare)?
        };
        check_rows(field.name, values.len(), rows)?;
        Ok(values)
    }

    /// States: rows, dimension, values.
    fn states(&self, field: Field<'_>, spare: Vec<f64>) -> Result<(usize, usize, Vec<f64>), WireError> {
        let (rows, dim, values) = if self.single {
            let values = field.vector(spare)?;
            (1, values.len(), values)
        } else {
            field.matrix(spare)?
        };
        if rows == 0 || dim == 0 {
            return Err(WireError::of(ErrorCode::WrongShape, field.name, "must hold at least one number"));
        }
        Ok((rows, dim, values))
    }
}

fn check_rows(field: &'static str, found: usize, rows: usize) -> Result<(), WireError> {
    if found != rows {
        let message = format!("has {found} rows where the other fields have {rows}");
        return Err(WireError::of(ErrorCode::WrongShape, field, message));
    }
    Ok(())
}

/// The rows of a message, in the memory of `spare`.
fn batch(message: &Message<'_>, limits: &Limits, spare: BatchParts) -> Result<Batch, WireError> {
    let single = is_single(message)?;
    let columns = BatchColumns { message, single };
    let text = |field: Option<Field<'_>>, default: &str, mut spare: String| {
        spare.clear();
        spare.push_str(field.map(|f| f.string()).transpose()?.unwrap_or(default));
        Ok::<_, WireError>(spare)
    };
    let stream = text(field!(message, "stream"), "default", spare.stream)?;
    let session = text(field!(message, "session"), "", spare.session)?;
    let policy =
        field!(message, "policy").map(|field| text(Some(field), "", spare.policy.unwrap_or_default())).transpose()?;
    let seq = field!(message, "seq").map(|f| f.uint()).transpose()?;
    let [state, next_state, reward, action, discount, behavior_prob, target_prob, next_action] = SINGULAR_PLURAL;
    let (state_rows, dim, states) = columns.states(columns.required(state)?, spare.states)?;
    let (rows, rewards_per_row, rewards) = columns.wide(columns.required(reward)?, spare.rewards)?;
    // A piece of one trajectory has one state more than it has rows.
    let claimed = rows.max(state_rows.saturating_sub(1));
    if claimed > limits.rows_per_batch_max {
        let text = format!("a batch has at most {} rows, this one {claimed}", limits.rows_per_batch_max);
        return Err(WireError::of(ErrorCode::TooLarge, "states", text));
    }
    let next_states = match columns.field(next_state) {
        None if single => return Err(WireError::missing("next_state")),
        None => None,
        Some(field) => {
            let (next_rows, next_dim, values) = columns.states(field, spare.next_states.unwrap_or_default())?;
            // Of three lengths, the one that differs from the other two is at fault.
            if next_rows == rows {
                check_rows("states", state_rows, rows)?;
            }
            check_rows("rewards", rows, state_rows)?;
            check_rows(field.name, next_rows, rows)?;
            if next_dim != dim {
                let text = format!("has {next_dim} numbers per state where the state has {dim}");
                return Err(WireError::of(ErrorCode::WrongShape, field.name, text));
            }
            Some(values)
        }
    };
    let wide = |field: Option<Field<'_>>, spare: Option<Vec<f64>>| {
        let Some(field) = field else { return Ok::<_, WireError>(None) };
        let (found, _, values) = columns.wide(field, spare.unwrap_or_default())?;
        check_rows(field.name, found, rows)?;
        Ok(Some(values))
    };
    let flags = |field: Option<Field<'_>>, spare: Option<Vec<bool>>| {
        field.map(|f| columns.narrow(f, rows, spare.unwrap_or_default())).transpose()
    };
    let numbers = |field: Option<Field<'_>>, spare: Option<Vec<f64>>| {
        field.map(|f| columns.narrow(f, rows, spare.unwrap_or_default())).transpose()
    };
    let parts = BatchParts {
        stream,
        session,
        seq,
        dim,
        rewards_per_row,
        states,
        next_states,
        rewards,
        terminated: flags(field!(message, "terminated"), spare.terminated)?,
        truncated: flags(field!(message, "truncated"), spare.truncated)?,
        discounts: numbers(columns.field(discount), spare.discounts)?,
        actions: wide(columns.field(action), spare.actions)?,
        times: numbers(columns.field((key("time"), key("times"))), spare.times)?,
        behavior_probs: numbers(columns.field(behavior_prob), spare.behavior_probs)?,
        target_probs: numbers(columns.field(target_prob), spare.target_probs)?,
        policy,
        names: Names {
            states: field!(message, "state_names").map(super::checks::names).transpose()?,
            rewards: field!(message, "reward_names").map(super::checks::names).transpose()?,
            actions: field!(message, "action_names").map(super::checks::names).transpose()?,
        },
        next_actions: wide(columns.field(next_action), spare.next_actions)?,
        next_action_probs: wide(field!(message, "next_action_probs"), spare.next_action_probs)?,
        single,
    };
    Ok(Batch::new(parts)?)
}
