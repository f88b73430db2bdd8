//! Messages to the daemon: transitions, batches and requests.

use super::reader::{Field, Fields};
use super::tensor::{Element, Shape, Tensor};
use super::{ArrayForm, ErrorCode, ID_BYTES_MAX, Id, Limits, Op, Request, RequestError, VERSION, WireError, excerpt};
use crate::transition::{Batch, BatchParts};

/// Every key that some message to the daemon has.
const KEYS: [&str; 27] = [
    "page",
    "revision",
    "v",
    "id",
    "op",
    "arrays",
    "stream",
    "session",
    "seq",
    "state",
    "states",
    "next_state",
    "next_states",
    "reward",
    "rewards",
    "terminated",
    "truncated",
    "action",
    "actions",
    "discount",
    "discounts",
    "time",
    "times",
    "critic",
    "variance",
    "min_offset",
    "wait",
];

type Message<'a> = Fields<'a, { KEYS.len() }>;

/// Decode what came on the ingest socket: one transition or a batch, `op` "append" or left out.
///
/// # Errors
/// The first fault found. A message that is no whole MessagePack map is `malformed` whatever else is wrong with it.
pub fn decode_ingest(bytes: &[u8], limits: &Limits) -> Result<Batch, WireError> {
    check_size(bytes, limits)?;
    let mut message = Fields::new(&KEYS, "");
    message.read_message(bytes)?;
    check_version(message.get("v"))?;
    if let Some(op) = message.get("op")
        && op.string()? != "append"
    {
        let message =
            format!("the ingest socket takes transitions, op \"append\" or none, not {}", excerpt(op.string()?));
        return Err(WireError::of(ErrorCode::UnknownOp, "op", message));
    }
    batch(&message, limits)
}

/// Decode what came on the control socket.
///
/// # Errors
/// The first fault found, with the request's id if that was readable.
pub fn decode_request(bytes: &[u8], limits: &Limits) -> Result<Request, RequestError> {
    check_size(bytes, limits).map_err(|error| RequestError { id: Id::nil(), error })?;
    let mut message = Fields::new(&KEYS, "");
    let whole = message.read_message(bytes);
    let id = match message.get("id").map(|id| id.bytes()) {
        None => Id::nil(),
        Some(value) if value.len() <= ID_BYTES_MAX => Id(value.to_vec()),
        Some(_) => {
            let text = format!("an id has at most {ID_BYTES_MAX} bytes");
            let error = whole.err().unwrap_or_else(|| WireError::of(ErrorCode::TooLarge, "id", text));
            return Err(RequestError { id: Id::nil(), error });
        }
    };
    match whole.and_then(|()| operation(&message, limits)) {
        Ok((arrays, op)) => Ok(Request { id, arrays, op }),
        Err(error) => Err(RequestError { id, error }),
    }
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

fn operation(message: &Message<'_>, limits: &Limits) -> Result<(ArrayForm, Op), WireError> {
    check_version(message.get("v"))?;
    let arrays = match message.get("arrays").map(|f| f.string()).transpose()? {
        None | Some("tensor") => ArrayForm::Tensor,
        Some("list") => ArrayForm::List,
        Some(other) => {
            let text = format!("must be \"tensor\" or \"list\", is {}", excerpt(other));
            return Err(WireError::of(ErrorCode::OutOfRange, "arrays", text));
        }
    };
    let critic = || message.get("critic").map(|f| f.string().map(str::to_owned)).transpose();
    let flag = |name| message.get(name).map_or(Ok(false), |f| f.scalar::<bool>());
    let op = match message.require("op")?.string()? {
        "append" => {
            message.require("seq")?;
            Op::Append(batch(message, limits)?)
        }
        "value" => {
            let (states, rows, dim) = query(message.require("states")?, limits)?;
            let min_offset = message.get("min_offset").map(|f| f.uint()).transpose()?;
            Op::Value { states, rows, dim, critic: critic()?, variance: flag("variance")?, min_offset }
        }
        "snapshot" => {
            let number = |name| message.get(name).map(|f| f.uint()).transpose();
            let (page, revision) = (number("page")?, number("revision")?);
            Op::Snapshot { critic: critic()?, variance: flag("variance")?, page, revision }
        }
        "status" => Op::Status,
        "streams" => Op::Streams,
        "optimise" => Op::Optimise { critic: critic()?, wait: flag("wait")? },
        "checkpoint" => Op::Checkpoint,
        "ping" => Op::Ping,
        "hello" => Op::Hello,
        other => {
            let text = format!("there is no operation {}", excerpt(other));
            return Err(WireError::of(ErrorCode::UnknownOp, "op", text));
        }
    };
    Ok((arrays, op))
}

/// The states of a `value` request.
fn query(field: Field<'_>, limits: &Limits) -> Result<(Vec<f64>, usize, usize), WireError> {
    let (rows, dim, states) = field.matrix()?;
    if rows == 0 || dim == 0 {
        return Err(WireError::of(ErrorCode::WrongShape, "states", "must hold at least one number"));
    }
    if rows > limits.query_rows_max {
        let message = format!("a request asks for at most {} states, this one for {rows}", limits.query_rows_max);
        return Err(WireError::of(ErrorCode::TooLarge, "states", message));
    }
    Ok((states, rows, dim))
}

/// Keys of one transition and of a batch, side by side: those that learning depends on.
const SINGULAR_PLURAL: [(&str, &str); 5] = [
    ("state", "states"),
    ("next_state", "next_states"),
    ("reward", "rewards"),
    ("action", "actions"),
    ("discount", "discounts"),
];

/// Whether the message is one transition. A key of the other form is a fault and not ignored: a single `discount` in
/// a batch was meant to say something. Times are for people, and no reason to refuse anything.
fn is_single(message: &Message<'_>) -> Result<bool, WireError> {
    let single = match (message.get("state"), message.get("states")) {
        (None, None) => {
            let text = "`state` of one transition or `states` of a batch is required";
            return Err(WireError::of(ErrorCode::MissingField, "state", text));
        }
        (Some(_), _) => true,
        (None, Some(_)) => false,
    };
    for (singular, plural) in SINGULAR_PLURAL {
        let (foreign, proper) = if single { (plural, singular) } else { (singular, plural) };
        if message.get(foreign).is_some() {
            let form = if single { "one transition (it has `state`)" } else { "a batch (it has `states`)" };
            let text = format!("this message is {form}, where the key is `{proper}`");
            return Err(WireError::of(ErrorCode::WrongShape, foreign, text));
        }
    }
    Ok(single)
}

/// Reads the values of a transition or batch, all with the same number of rows.
struct Columns<'m, 'a> {
    message: &'m Message<'a>,
    single: bool,
}

impl<'a> Columns<'_, 'a> {
    fn field(&self, singular: &'static str, plural: &'static str) -> Option<Field<'a>> {
        self.message.get(if self.single { singular } else { plural })
    }

    /// A value per row that may have one more axis: rows, numbers per row, values.
    fn wide<T: Element>(&self, field: Field<'_>) -> Result<(usize, usize, Vec<T>), WireError> {
        let Tensor { values, shape } = field.tensor::<T>()?;
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
    fn narrow<T: Element>(&self, field: Field<'_>, rows: usize) -> Result<Vec<T>, WireError> {
        let values = if self.single { vec![field.scalar::<T>()?] } else { field.vector::<T>()? };
        check_rows(field.name, values.len(), rows)?;
        Ok(values)
    }

    /// States: rows, dimension, values.
    fn states(&self, field: Field<'_>) -> Result<(usize, usize, Vec<f64>), WireError> {
        let (rows, dim, values) = if self.single {
            let values = field.vector()?;
            (1, values.len(), values)
        } else {
            field.matrix()?
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

fn batch(message: &Message<'_>, limits: &Limits) -> Result<Batch, WireError> {
    let single = is_single(message)?;
    let columns = Columns { message, single };
    let text = |name: &str| message.get(name).map(|f| f.string().map(str::to_owned)).transpose();
    let required = |singular, plural| {
        let name = if single { singular } else { plural };
        columns.field(singular, plural).ok_or_else(|| WireError::missing(name))
    };
    let stream = text("stream")?.unwrap_or_else(|| "default".into());
    let session = text("session")?.unwrap_or_default();
    let seq = message.get("seq").map(|f| f.uint()).transpose()?;
    let (state_rows, dim, states) = columns.states(required("state", "states")?)?;
    let (rows, rewards_per_row, rewards) = columns.wide(required("reward", "rewards")?)?;
    // A piece of one trajectory has one state more than it has rows.
    let claimed = rows.max(state_rows.saturating_sub(1));
    if claimed > limits.rows_per_batch_max {
        let text = format!("a batch has at most {} rows, this one {claimed}", limits.rows_per_batch_max);
        return Err(WireError::of(ErrorCode::TooLarge, "states", text));
    }
    let next_states = match columns.field("next_state", "next_states") {
        None if single => return Err(WireError::missing("next_state")),
        None => None,
        Some(field) => {
            let (next_rows, next_dim, values) = columns.states(field)?;
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
    let actions = match columns.field("action", "actions") {
        None => None,
        Some(field) => {
            let (action_rows, _, values) = columns.wide(field)?;
            check_rows(field.name, action_rows, rows)?;
            Some(values)
        }
    };
    let flags = |name| message.get(name).map(|f| columns.narrow::<bool>(f, rows)).transpose();
    let numbers =
        |singular, plural| columns.field(singular, plural).map(|f| columns.narrow::<f64>(f, rows)).transpose();
    let parts = BatchParts {
        stream,
        session,
        seq,
        dim,
        rewards_per_row,
        states,
        next_states,
        rewards,
        terminated: flags("terminated")?,
        truncated: flags("truncated")?,
        discounts: numbers("discount", "discounts")?,
        actions,
        times: numbers("time", "times")?,
        single,
    };
    Ok(Batch::new(parts)?)
}
