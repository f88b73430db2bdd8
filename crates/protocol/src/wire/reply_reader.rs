//! Messages from the daemon, read by its clients.

use super::error::place;
use super::reader::{Field, Fields, Head};
use super::tensor::Shape;
use super::v1::check_version;
use super::{ErrorCode, VERSION, WireError, to_json};
use criticd_learner::action::Column;
use serde_json::Value;

const REPLY_KEYS: [&str; 4] = ["v", "id", "ok", "error"];
const POLICY_KEYS: [&str; 3] = ["v", "policy", "error"];

/// The part of a reply that all of them have.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplyHead {
    /// The id of the request, where it is a number.
    pub id: Option<u64>,
    /// Why the request was refused, if it was.
    pub outcome: Result<(), Refusal>,
}

/// Why the daemon refused a request: the `error` map of its reply. Codes may be newer than this program.
#[derive(Clone, Debug, Default, PartialEq, thiserror::Error)]
#[error("{code}{}: {message}", place(.field.as_deref(), *.index))]
pub struct Refusal {
    /// Kind of fault, by its name on the wire.
    pub code: String,
    /// A sentence for people.
    pub message: String,
    /// Field at fault.
    pub field: Option<String>,
    /// Row at fault.
    pub index: Option<u64>,
    /// With `sequence_gap`: the `seq` to go on with.
    pub expected_seq: Option<u64>,
    /// With `overloaded`: how long to wait.
    pub retry_after_ms: Option<u64>,
}

/// Read what all replies have.
///
/// # Errors
/// If the bytes are no reply of this version.
pub fn decode_reply(bytes: &[u8]) -> Result<ReplyHead, WireError> {
    let mut map = Fields::new(&REPLY_KEYS, "");
    map.read_message(bytes)?;
    check_version(map.get("v"))?;
    let id = match map.get("id").map(|field| field.head()).transpose()? {
        Some(Head::Uint(id)) => Some(id),
        _ => None,
    };
    let outcome = if map.require("ok")?.scalar()? { Ok(()) } else { Err(refusal(map.require("error")?)?) };
    Ok(ReplyHead { id, outcome })
}

fn refusal(field: Field<'_>) -> Result<Refusal, WireError> {
    let error = to_json(field.bytes())?;
    let text = |key: &str| error.get(key).and_then(Value::as_str).map(str::to_owned);
    let number = |key: &str| error.get(key).and_then(Value::as_u64);
    Ok(Refusal {
        code: text("code").unwrap_or_else(|| "unknown".into()),
        message: text("message").unwrap_or_default(),
        field: text("field"),
        index: number("index"),
        expected_seq: number("expected_seq"),
        retry_after_ms: number("retry_after_ms"),
    })
}

/// What the server of a policy replies.
#[derive(Clone, Debug, PartialEq)]
pub enum PolicyReply {
    /// Probabilities of C discrete actions (n, C), or actions (n, A); any numbers.
    Answers(Column),
    /// Why there are none, in the server's words.
    Failed(String),
}

/// Read the reply of a policy's server.
///
/// # Errors
/// If it is none.
pub fn decode_policy_reply(bytes: &[u8]) -> Result<PolicyReply, WireError> {
    let mut map = Fields::new(&POLICY_KEYS, "");
    map.read_message(bytes)?;
    if map.require("v")?.uint().ok() != Some(VERSION) {
        return Err(WireError::of(ErrorCode::UnsupportedVersion, "v", format!("must be {VERSION}")));
    }
    if let Some(error) = map.get("error") {
        return refusal(error).map(|refusal| PolicyReply::Failed(refusal.message));
    }
    let field = map.require("policy")?;
    let found = field.tensor(Vec::new())?;
    let (_, width) = found.shape.rows_and_width();
    if found.shape == Shape::Scalar || width == 0 {
        return Err(WireError::of(ErrorCode::WrongShape, "policy", "must have a number or an array for each state"));
    }
    Ok(PolicyReply::Answers(Column { width, values: found.values }))
}

#[cfg(test)]
mod tests {
    use super::super::{ArrayForm, Id, Reply, encode_error, encode_reply};
    use super::*;

    fn id(value: u8) -> Id {
        Id(vec![value])
    }

    #[test]
    fn replies_name_their_request_and_its_fate() {
        let reply = encode_reply(&id(7), ArrayForm::Tensor, &Reply::Checkpoint { offset: 3 });
        assert_eq!(decode_reply(&reply), Ok(ReplyHead { id: Some(7), outcome: Ok(()) }));
        let error = WireError::of(ErrorCode::OutOfRange, "discount", "a discount lies in [0, 1]").at(2);
        let head = decode_reply(&encode_error(&id(9), &error)).unwrap();
        let refusal = head.outcome.unwrap_err();
        assert_eq!((head.id, refusal.to_string()), (Some(9), error.to_string()));
        let gap = decode_reply(&encode_error(&Id::nil(), &WireError::sequence_gap(12))).unwrap();
        assert_eq!((gap.id, gap.outcome.unwrap_err().expected_seq), (None, Some(12)));
        assert!(decode_reply(b"\x80").is_err());
    }
}
