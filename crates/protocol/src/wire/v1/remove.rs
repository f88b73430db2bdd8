//! Requests to take rows back.

use super::super::{ErrorCode, RemoveRequest, WireError, to_json};
use super::{Message, key};
use criticd_learner::removal::Selector;
use serde_json::Value;

/// Selectors of a request.
const SELECTORS_MAX: usize = 64;
/// Bytes of the words of who asks, and of why.
const WORDS_MAX: usize = 1024;
/// Bytes of all selectors.
const BYTES_MAX: usize = 1 << 16;

pub(super) fn remove(message: &Message<'_>) -> Result<RemoveRequest, WireError> {
    let field = message.require("select")?;
    if field.bytes().len() > BYTES_MAX {
        return Err(WireError::of(ErrorCode::TooLarge, "select", "has more than 64 KiB"));
    }
    let Value::Array(asked) = to_json(field.bytes())? else { return Err(wrong("must be an array of maps")) };
    if asked.is_empty() || asked.len() > SELECTORS_MAX {
        let text = format!("must have 1 to {SELECTORS_MAX} maps, has {}", asked.len());
        return Err(WireError::of(ErrorCode::WrongShape, "select", text));
    }
    let selectors = asked.iter().enumerate().map(|(i, asked)| selector(asked).map_err(|error| error.at(i)));
    let words = |field: Option<super::Field<'_>>| match field.map(|field| field.string().map(|text| (field.name, text)))
    {
        None => Ok(None),
        Some(Ok((_, text))) if text.len() <= WORDS_MAX => Ok(Some(text.to_owned())),
        Some(Ok((name, _))) => {
            Err(WireError::of(ErrorCode::TooLarge, name, format!("has more than {WORDS_MAX} bytes")))
        }
        Some(Err(error)) => Err(error),
    };
    Ok(RemoveRequest {
        selectors: selectors.collect::<Result<_, _>>()?,
        dry_run: field!(message, "dry_run").map_or(Ok(true), |field| field.scalar())?,
        boundary: field!(message, "boundary").map_or(Ok(false), |field| field.scalar())?,
        by: words(field!(message, "by"))?,
        reason: words(field!(message, "reason"))?,
    })
}

/// What rows one map is about.
fn selector(asked: &Value) -> Result<Selector, WireError> {
    const KEYS: &str = "must have `stream`, `stream` and `session`, `offsets` or `times`, and nothing else";
    let map = asked.as_object().ok_or_else(|| wrong("must be an array of maps"))?;
    let text = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
    let found = match (map.len(), text("stream"), text("session")) {
        (1, Some(stream), None) => Some(Selector::Stream(stream)),
        (2, Some(stream), Some(session)) => Some(Selector::Session { stream, session }),
        (1, None, None) => pair(map.get("offsets"), Value::as_u64)
            .map(|(from, to)| Selector::Offsets(from..to))
            .or_else(|| pair(map.get("times"), Value::as_f64).map(|(from, to)| Selector::Times(from..to))),
        _ => None,
    };
    match found {
        Some(Selector::Offsets(range)) if range.is_empty() => {
            Err(wrong("the second of `offsets` lies behind the first"))
        }
        Some(Selector::Times(range)) if range.is_empty() => Err(wrong("the second of `times` lies behind the first")),
        Some(selector) => Ok(selector),
        None => Err(wrong(KEYS)),
    }
}

fn pair<T>(field: Option<&Value>, read: fn(&Value) -> Option<T>) -> Option<(T, T)> {
    match field?.as_array()?.as_slice() {
        [from, to] => read(from).zip(read(to)),
        _ => None,
    }
}

fn wrong(text: &str) -> WireError {
    WireError::of(ErrorCode::WrongShape, "select", text)
}

#[cfg(test)]
mod tests {
    use super::super::super::{Limits, Op, read_request};
    use super::*;
    use serde_json::json;

    fn asked(fields: &Value) -> Result<RemoveRequest, WireError> {
        let mut message = json!({"v": 1, "id": 1, "op": "remove"});
        fields.as_object().unwrap().iter().for_each(|(key, value)| message[key] = value.clone());
        let payload = rmp_serde::to_vec_named(&message).unwrap();
        let limits = Limits::default();
        let draft = read_request(&payload, &limits).map_err(|refused| refused.error)?;
        match draft.decode(&limits).map_err(|refused| refused.error)?.op {
            Op::Remove(request) => Ok(request),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn selectors_are_one_of_four_kinds_and_it_is_a_dry_run_unless_it_is_said() {
        let select = json!([{"stream": "a"}, {"stream": "a", "session": ""}, {"offsets": [3, 9]}, {"times": [1, 2.5]}]);
        let found = asked(&json!({"select": select})).unwrap();
        let session = Selector::Session { stream: "a".into(), session: String::new() };
        let all = [Selector::Stream("a".into()), session, Selector::Offsets(3..9), Selector::Times(1.0..2.5)];
        assert_eq!((&found.selectors[..], found.dry_run, found.boundary, found.by), (&all[..], true, false, None));
        let words =
            json!({"select": [{"stream": "a"}], "dry_run": false, "boundary": true, "by": "we", "reason": "so"});
        let done = asked(&words).unwrap();
        assert!(done.boundary);
        assert_eq!((done.dry_run, done.by.as_deref(), done.reason.as_deref()), (false, Some("we"), Some("so")));
        for wrong in [
            json!([]),
            json!([{}]),
            json!([{"session": "a"}]),
            json!([{"stream": 3}]),
            json!([{"stream": "a", "offsets": [0, 1]}]),
            json!([{"offsets": [4, 4]}]),
            json!([{"offsets": [-4, 4]}]),
            json!([{"offsets": [1, 2, 3]}]),
            json!([{"times": [2.0, 1.0]}]),
            json!({"stream": "a"}),
            json!(vec![json!({"stream": "a"}); 65]),
        ] {
            let error = asked(&json!({"select": wrong})).unwrap_err();
            assert_eq!(error.field, Some("select"), "{wrong}: {error:?}");
        }
        assert_eq!(asked(&json!({})).unwrap_err().code, ErrorCode::MissingField);
        let long = json!({"select": [{"stream": "a"}], "reason": "x".repeat(2000)});
        assert_eq!(asked(&long).unwrap_err().field, Some("reason"));
    }
}
