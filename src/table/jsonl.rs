//! JSONL: one object per line, with the names of CSV's columns, or lists under the names of the wire.

use super::Fault;
use super::build::{Builder, Cell, Column, Header, Job, hint};
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longest line, in bytes.
const LINE_MAX: u64 = 1 << 24;

/// What is under a key.
struct Key {
    column: Column,
    /// How many numbers, if it is a list.
    list: Option<usize>,
    /// Line that decided this.
    line: u64,
}

pub(super) fn read(path: &Path, job: &mut Job<'_>) -> Result<Builder, Fault> {
    // Keys may be left out wherever they have a default, so that only the whole file says which columns there are.
    let mut names: Vec<String> = Vec::new();
    let mut keys: HashMap<String, Key> = HashMap::new();
    each_line(path, |line, object, fraction| {
        for (name, value) in object {
            learn_key(&mut names, &mut keys, line, name, value)?;
        }
        if line.is_multiple_of(4096) {
            (job.progress)(super::Progress { rows: 0, fraction: 0.5 * fraction });
        }
        Ok(())
    })?;
    if names.is_empty() {
        return Err(Fault::Empty);
    }
    let mut columns = Vec::new();
    let mut cells: Vec<(&str, Option<usize>)> = Vec::new();
    for name in &names {
        let Key { column, list, .. } = keys[name];
        match list {
            None => {
                columns.push((name.clone(), column));
                cells.push((name, None));
            }
            Some(width) => {
                for k in 0..width {
                    columns.push((format!("{name}[{k}]"), column.nth(k).unwrap_or(column)));
                    cells.push((name, Some(k)));
                }
            }
        }
    }
    let mut builder = Builder::new(Header::new(job, columns)?, false);
    each_line(path, |line, object, fraction| {
        builder.push(line, |k| {
            let (name, index) = cells[k];
            match (object.get(name), index) {
                (None | Some(Value::Null), _) if name == "stream" => Cell::Text("default"),
                (None, _) => Cell::Empty,
                (Some(Value::Array(list)), Some(k)) => list.get(k).map_or(Cell::Empty, cell),
                (Some(value), _) => cell(value),
            }
        })?;
        builder.advance(job, 0.5 + 0.5 * fraction)?;
        Ok(())
    })?;
    Ok(builder)
}

fn learn_key(
    names: &mut Vec<String>,
    keys: &mut HashMap<String, Key>,
    line: u64,
    name: &str,
    value: &Value,
) -> Result<(), Fault> {
    let wrong = |message: String| Fault::Cell { row: line, column: name.to_owned(), message };
    let list = match value {
        Value::Null => return Ok(()),
        Value::Array(list) => Some(list.len()),
        _ => None,
    };
    if let Some(key) = keys.get(name) {
        return match (key.list, list) {
            _ if key.column == Column::Skipped => Ok(()),
            (None, None) => Ok(()),
            (Some(before), Some(now)) if before == now => Ok(()),
            (Some(before), Some(now)) => {
                Err(wrong(format!("has {now} numbers, in line {} it had {before}; they must agree", key.line)))
            }
            (_, _) => Err(wrong(format!("is a list here or in line {}, and no list in the other", key.line))),
        };
    }
    let column = match name {
        "state" => Some(Column::State(0)),
        "next_state" => Some(Column::NextState(0)),
        "next_action_probs" => Some(Column::NextActionProb(0)),
        // Of the wire's messages; runs of a producer are told apart by `seq` and by their states here.
        "v" | "session" => Some(Column::Skipped),
        _ => Column::parse(name),
    };
    let Some(column) = column else { return Err(wrong(hint(name))) };
    let many = matches!(name, "state" | "next_state" | "action" | "reward" | "next_action" | "next_action_probs");
    match list {
        Some(_) if column != Column::Skipped && !many => return Err(wrong("a list; one value is needed here".into())),
        Some(0) if many => return Err(wrong("an empty list".into())),
        _ => {}
    }
    let list = list.filter(|_| column != Column::Skipped);
    names.push(name.to_owned());
    keys.insert(name.to_owned(), Key { column, list, line });
    Ok(())
}

fn cell(value: &Value) -> Cell<'_> {
    match value {
        Value::Null => Cell::Empty,
        Value::Bool(flag) => Cell::Flag(*flag),
        Value::Number(number) => match number.as_i64() {
            Some(whole) => Cell::Whole(whole),
            None => Cell::Number(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cell::Text(text),
        Value::Array(_) => Cell::Text("[...]"),
        Value::Object(_) => Cell::Text("{...}"),
    }
}

/// Every line that is not blank, with its number from 1 and the part of the file that is read by then.
fn each_line(
    path: &Path,
    mut take: impl FnMut(u64, &Map<String, Value>, f64) -> Result<(), Fault>,
) -> Result<(), Fault> {
    let file = File::open(path).map_err(Fault::Io)?;
    let bytes = file.metadata().map_err(Fault::Io)?.len().max(1);
    let mut reader = BufReader::with_capacity(1 << 16, file);
    let (mut text, mut line, mut read) = (Vec::new(), 0, 0);
    loop {
        text.clear();
        let length = reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut text).map_err(Fault::Io)? as u64;
        if length == 0 {
            return Ok(());
        }
        (line, read) = (line + 1, read + length);
        let wrong = |message: String| Fault::Line { line, message };
        if length == LINE_MAX {
            return Err(wrong(format!("longer than {LINE_MAX} bytes; a line holds one transition")));
        }
        let start = if line == 1 && text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let text = text[start..].trim_ascii();
        if text.is_empty() {
            continue;
        }
        let value: Value = serde_json::from_slice(text).map_err(|e| {
            let word = |word: &[u8]| text.windows(word.len()).any(|w| w == word);
            let hint = if word(b"NaN") || word(b"Infinity") { "; JSON has no NaN and no Infinity" } else { "" };
            // The line that serde counts is always the first.
            let message = e.to_string().replace(" at line 1 column", " at column");
            wrong(format!("not JSON: {message}{hint}"))
        })?;
        let Value::Object(object) = value else {
            return Err(wrong("not an object; a line is {\"state\": [...], \"reward\": ..., ...}".to_owned()));
        };
        take(line, &object, read as f64 / bytes as f64)?;
    }
}
