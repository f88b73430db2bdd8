//! Log lines as JSON: one object per line. The messages themselves are `event=... key=value ...`, with texts quoted as Rust does.

use serde_json::{Map, Value};

/// One line of the log as JSON: `time`, `level`, and the fields of `message`. What is no list of fields goes under `message`.
pub(super) fn json(time: &str, level: &str, message: &str) -> String {
    let mut line = Map::new();
    line.insert("time".into(), time.into());
    line.insert("level".into(), level.into());
    match fields(message) {
        Some(fields) => line.extend(fields),
        None => drop(line.insert("message".into(), message.into())),
    }
    Value::Object(line).to_string()
}

/// The fields of a message that begins with `event=`; none of another.
fn fields(message: &str) -> Option<Vec<(String, Value)>> {
    let mut rest = message.strip_prefix("event=").map(|_| message)?;
    let mut fields: Vec<(String, Value)> = Vec::new();
    while !rest.is_empty() {
        let word = rest.split(' ').next().unwrap_or_default();
        match word.split_once('=').filter(|(key, _)| is_key(key)) {
            Some((key, _)) => {
                let (value, behind) = value(&rest[key.len() + 1..]);
                fields.push((key.to_owned(), value));
                rest = behind;
            }
            // A text without quotes goes on.
            None => {
                let (_, before) = fields.last_mut()?;
                *before = format!("{} {word}", text(before)).into();
                rest = &rest[word.len()..];
            }
        }
        rest = rest.trim_start_matches(' ');
    }
    Some(fields)
}

fn is_key(key: &str) -> bool {
    !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// The value that `rest` begins with, and what is behind it.
fn value(rest: &str) -> (Value, &str) {
    if rest.starts_with('"')
        && let Some((text, behind)) = quoted(rest)
    {
        return (text.into(), behind);
    }
    if rest.starts_with('[')
        && let Some(end) = list_end(rest)
    {
        let list = &rest[..end];
        return (serde_json::from_str(list).unwrap_or_else(|_| list.into()), &rest[end..]);
    }
    let word = rest.split(' ').next().unwrap_or_default();
    let number = || word.parse::<u64>().map(Value::from).ok().or_else(|| word.parse::<f64>().ok().map(Value::from));
    let known = match word {
        "null" | "none" | "None" => Some(Value::Null),
        "true" => Some(true.into()),
        "false" => Some(false.into()),
        // Words such as `inf` are numbers to Rust, and none to JSON.
        _ => number().filter(|number| word.ends_with(|c: char| c.is_ascii_digit()) && !number.is_null()),
    };
    (known.unwrap_or_else(|| word.into()), &rest[word.len()..])
}

/// Length of the list that `rest` begins with, brackets in texts aside.
fn list_end(rest: &str) -> Option<usize> {
    let (mut at, mut depth) = (0, 0_u32);
    while let Some(next) = rest[at..].chars().next() {
        match next {
            '"' => {
                at = rest.len() - quoted(&rest[at..])?.1.len();
                continue;
            }
            '[' => depth += 1,
            ']' => depth -= 1,
            _ => {}
        }
        at += next.len_utf8();
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// The text in quotes that `rest` begins with, as Rust's `{:?}` writes it, and what is behind it.
fn quoted(rest: &str) -> Option<(String, &str)> {
    let mut chars = rest.char_indices().skip(1);
    let mut text = String::new();
    while let Some((at, next)) = chars.next() {
        match next {
            '"' => return Some((text, &rest[at + 1..])),
            '\\' => match chars.next()?.1 {
                'n' => text.push('\n'),
                'r' => text.push('\r'),
                't' => text.push('\t'),
                '0' => text.push('\0'),
                'u' => {
                    let code: String = chars.by_ref().map(|(_, c)| c).skip(1).take_while(|&c| c != '}').collect();
                    text.push(char::from_u32(u32::from_str_radix(&code, 16).ok()?)?);
                }
                other => text.push(other),
            },
            other => text.push(other),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn parsed(message: &str) -> Value {
        let line = json("2026-01-01T00:00:00.000Z", "info", message);
        assert!(!line.contains('\n'));
        let mut value: Value = serde_json::from_str(&line).unwrap();
        let map = value.as_object_mut().unwrap();
        assert_eq!(
            (map.remove("time"), map.remove("level")),
            (Some(json!("2026-01-01T00:00:00.000Z")), Some(json!("info")))
        );
        value
    }

    #[test]
    fn fields_become_keys() {
        let why = "no \"room\"\n\t\u{1b}[31m left = none [";
        let message = format!(
            "event=read_only offset=12 share=0.25 why={why:?} from=null ok=true names={:?} at=tcp://h:1",
            ["a b]", "c"]
        );
        let expected = json!({"event": "read_only", "offset": 12, "share": 0.25, "why": why, "from": null, "ok": true,
                              "names": ["a b]", "c"], "at": "tcp://h:1"});
        assert_eq!(parsed(&message), expected);
    }

    #[test]
    fn texts_without_quotes_and_other_messages_are_kept() {
        assert_eq!(
            parsed("event=x why=no such file count=3"),
            json!({"event": "x", "why": "no such file", "count": 3})
        );
        assert_eq!(parsed("event=x value=inf nan=NaN"), json!({"event": "x", "value": "inf", "nan": "NaN"}));
        assert_eq!(parsed("a library's words, key=1"), json!({"message": "a library's words, key=1"}));
        assert_eq!(parsed("event=x why=\"no end"), json!({"event": "x", "why": "\"no end"}));
        assert_eq!(parsed(""), json!({"message": ""}));
    }
}
