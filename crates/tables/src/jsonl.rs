//! JSONL: one object per line, with the names of CSV's columns, or lists under the names of the wire.

use super::build::Builder;
use super::cell::Cell;
use super::job::{Column, Job, Want};
use super::roles::{Role, Source, assign};
use super::schema::Schema;
use super::{Fault, is_pipe, text};
use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::map::Entry;
use serde_json::{Map, Value};
use std::collections::HashMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

/// Longest line, in bytes.
const LINE_MAX: u64 = 1 << 24;

/// What is under a key.
struct Key {
    /// How many numbers, if it is a list.
    list: Option<usize>,
    /// Line that decided this.
    line: u64,
    /// The first line that says otherwise, and how.
    fault: Option<(u64, String)>,
}

pub(super) fn read(path: &Path, job: &mut Job<'_>) -> Result<Builder, Fault> {
    if is_pipe(path) {
        let message = "lines of JSON are read twice, which a pipe cannot be: write them to a file first";
        return Err(Fault::Content(message.to_owned()));
    }
    // Keys may be left out wherever they have a default, so that only the whole file says which columns there are.
    let mut names: Vec<String> = Vec::new();
    let mut keys: HashMap<String, Key> = HashMap::new();
    let cut = each_line(path, |line, object, fraction| {
        for (name, value) in object {
            learn_key(&mut names, &mut keys, line, name, value);
        }
        if line.is_multiple_of(4096) {
            job.report(super::Progress { rows: 0, fraction: 0.5 * fraction })?;
        }
        Ok(())
    })?;
    if names.is_empty() {
        return Err(Fault::Empty);
    }
    let sources: Vec<Source> = names.iter().map(|name| Source::new(name, keys[name].list)).collect();
    // What is wrong with a key is wrong where it first stands.
    let located = |fault| match fault {
        Fault::Column { column, message } if keys.contains_key(&column) => {
            Fault::Cell { row: keys[&column].line, column, message }
        }
        other => other,
    };
    let roles = assign(job, &sources).map_err(located)?;
    // What is only watched may be anything.
    let needed = |roles: &Vec<Role>| roles.iter().any(|role| !matches!(role.column, Column::Watched(_)));
    let used = names.iter().zip(&roles.of).filter(|(_, roles)| needed(roles));
    let wrong = used.filter_map(|(name, _)| keys[name].fault.as_ref().map(|(line, message)| (line, name, message)));
    if let Some((line, name, message)) = wrong.min() {
        return Err(Fault::Cell { row: *line, column: name.clone(), message: message.clone() });
    }
    // Where nothing is one value, there is nothing to look at either.
    if job.want == Want::Look
        && keys.values().all(|key| key.list.is_some())
        && let Some((name, (line, message))) = names.iter().find_map(|name| Some((name, keys[name].fault.as_ref()?)))
    {
        return Err(Fault::Cell { row: *line, column: name.clone(), message: message.clone() });
    }
    let (columns, places) = roles.columns(&sources, job.format).map_err(located)?;
    let mut builder = Builder::new(Schema::new(job, columns, roles)?, false);
    each_line(path, |line, object, fraction| {
        builder.push(line, |k| {
            let (at, k) = places[k];
            let name = sources[at].name.as_str();
            match object.get(name) {
                None | Some(Value::Null) if name == "stream" => Cell::Text("default"),
                None => Cell::Empty,
                Some(Value::Array(list)) => list.get(k).map_or(Cell::Empty, cell),
                Some(value) => cell(value),
            }
        })?;
        builder.advance(job, 0.5 + 0.5 * fraction)?;
        Ok(())
    })?;
    if let Some(line) = cut {
        builder.tell(format!("line {line} is the last, is cut off, and is left out"));
    }
    Ok(builder)
}

const NO_OBJECT: &str = "not an object; a line is {\"state\": [...], \"reward\": ..., ...}";

/// Of a file that is one list.
const LIST: &str = "not an object, but a list; a line holds one object, {\"state\": [...], \"reward\": ..., ...}. In Python: \
                    pandas.read_json(\"OLD\").to_json(\"NEW.jsonl\", orient=\"records\", lines=True)";

/// Of an object that goes over several lines.
const SPREAD: &str = "an object that goes over several lines; a line holds one object, {\"state\": [...], \"reward\": ..., ...}. In \
                      Python, for columns of equal length: pandas.read_json(\"OLD\").to_json(\"NEW.jsonl\", orient=\"records\", lines=True)";

/// Of lines that are episodes.
const EPISODE: &str = "a list of lists: a line holds one step, and not an episode. In Python, with the names of the file: \
    new = open(\"NEW.jsonl\", \"w\"); [print(json.dumps({\"episode\": k, \"obs\": o, \"next_obs\": n, \"action\": a, \"reward\": r, \
    \"terminated\": t}), file=new) for k, e in enumerate(map(json.loads, open(\"OLD.jsonl\"))) for o, n, a, r, t in \
    zip(e[\"observations\"], e[\"observations\"][1:], e[\"actions\"], e[\"rewards\"], e[\"terminated\"])]; new.close()";

/// What is wrong with a line.
fn not_json(text: &[u8], error: &serde_json::Error) -> String {
    let word = |word: &[u8]| text.windows(word.len()).any(|w| w == word);
    // The line that serde counts is always the first.
    let message = error.to_string().replace(" at line 1 column", " at column");
    match () {
        () if text.contains(&0) => text::ZEROS.to_owned(),
        () if std::str::from_utf8(text).is_err() => text::NOT_UTF_8.to_owned(),
        () if text.starts_with(b"[") => LIST.to_owned(),
        () if text == b"{" => SPREAD.to_owned(),
        () if error.is_eof() => {
            format!("not JSON: cut off at column {}; delete the line, if its end is lost", error.column())
        }
        () if word(b"NaN") || word(b"Infinity") => format!(
            "not JSON: {message}; JSON has no NaN and no Infinity: sed -E 's/([:,[] *)(NaN|-?Infinity)/\\1null/g' OLD > NEW writes null in \
             their place"
        ),
        () if error.is_data() => message,
        () => format!("not JSON: {message}"),
    }
}

/// What a line holds. A key that comes twice in an object would say two things.
struct Line(Value);

impl<'de> Deserialize<'de> for Line {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LineValues)
    }
}

struct LineValues;

macro_rules! single {
    ($($visit:ident $kind:ty),*) => {
        $(fn $visit<E>(self, value: $kind) -> Result<Line, E> {
            Ok(Line(value.into()))
        })*
    };
}

impl<'de> Visitor<'de> for LineValues {
    type Value = Line;

    single!(visit_bool bool, visit_i64 i64, visit_u64 u64, visit_f64 f64, visit_str &str);

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Line, E> {
        Ok(Line(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Line, A::Error> {
        let mut list = Vec::new();
        while let Some(Line(value)) = access.next_element()? {
            list.push(value);
        }
        Ok(Line(list.into()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Line, A::Error> {
        let mut object = Map::new();
        while let Some((key, Line(value))) = access.next_entry()? {
            add(&mut object, key, value).map_err(A::Error::custom)?;
        }
        Ok(Line(object.into()))
    }
}

/// # Errors
/// If the object has the key.
fn add(object: &mut Map<String, Value>, key: String, value: Value) -> Result<(), String> {
    match object.entry(key) {
        Entry::Vacant(place) => {
            place.insert(value);
            Ok(())
        }
        Entry::Occupied(place) => Err(format!("the key {:?} comes twice", place.key())),
    }
}

fn learn_key(names: &mut Vec<String>, keys: &mut HashMap<String, Key>, line: u64, name: &str, value: &Value) {
    let list = match value {
        Value::Null => return,
        Value::Array(list) => Some(list.len()),
        _ => None,
    };
    let Some(key) = keys.get_mut(name) else {
        let of_lists = matches!(value, Value::Array(list) if list.first().is_some_and(Value::is_array));
        let fault = match list {
            Some(0) => Some((line, "an empty list".to_owned())),
            _ if of_lists => Some((line, EPISODE.to_owned())),
            _ => None,
        };
        names.push(name.to_owned());
        keys.insert(name.to_owned(), Key { list, line, fault });
        return;
    };
    let message = match (key.list, list) {
        (before, now) if before == now => return,
        (Some(before), Some(now)) => {
            format!("has {now} numbers, in line {} it had {before}; they must agree", key.line)
        }
        _ => format!("is a list here or in line {}, and no list in the other", key.line),
    };
    key.fault.get_or_insert((line, message));
}

fn cell(value: &Value) -> Cell<'_> {
    match value {
        Value::Null => Cell::Empty,
        Value::Bool(flag) => Cell::Flag(*flag),
        Value::Number(number) => match number.as_i128() {
            Some(whole) => Cell::Whole(whole),
            None => Cell::Number(number.as_f64().unwrap_or(f64::NAN)),
        },
        Value::String(text) => Cell::Text(text),
        Value::Array(_) => Cell::Text("[...]"),
        Value::Object(_) => Cell::Text("{...}"),
    }
}

/// An object whose values are no objects: {"pose": {"x": 1}} has `pose.x`.
///
/// # Errors
/// If it has that twice.
fn flat(object: Map<String, Value>) -> Result<Map<String, Value>, String> {
    if !object.values().any(Value::is_object) {
        return Ok(object);
    }
    let mut out = Map::new();
    for (name, value) in object {
        match value {
            Value::Object(inner) => {
                for (inner, value) in flat(inner)? {
                    add(&mut out, format!("{name}.{inner}"), value)?;
                }
            }
            value => add(&mut out, name, value)?,
        }
    }
    Ok(out)
}

/// Every line that is not blank, with its number from 1 and the part of the file that is read by then. The number of the last line, if
/// that is cut off: it is left out.
fn each_line(
    path: &Path,
    mut take: impl FnMut(u64, &Map<String, Value>, f64) -> Result<(), Fault>,
) -> Result<Option<u64>, Fault> {
    let mut file = File::open(path).map_err(Fault::Io)?;
    let bytes = file.metadata().map_err(Fault::Io)?.len().max(1);
    let head = text::head(&mut file)?;
    let mut reader = BufReader::with_capacity(1 << 16, head.as_slice().chain(file));
    let (mut text, mut line, mut read) = (Vec::new(), 0, 0);
    loop {
        text.clear();
        let length = reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut text).map_err(Fault::Io)? as u64;
        if length == 0 {
            return Ok(None);
        }
        (line, read) = (line + 1, read + length);
        let wrong = |message: String| Fault::Line { line, message };
        if length == LINE_MAX {
            return Err(wrong(format!("longer than {LINE_MAX} bytes; a line holds one transition")));
        }
        let closed = text.ends_with(b"\n");
        let start = if line == 1 && text.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
        let text = text[start..].trim_ascii();
        if text.is_empty() {
            continue;
        }
        match serde_json::from_slice(text) {
            Ok(Line(Value::Object(object))) => take(line, &flat(object).map_err(wrong)?, read as f64 / bytes as f64)?,
            Ok(Line(value)) => return Err(wrong(if value.is_array() { LIST } else { NO_OBJECT }.to_owned())),
            Err(e) => {
                let cut = (text.starts_with(b"{") && e.is_eof()) || text.contains(&0);
                if cut && line > 1 && !closed {
                    return Ok(Some(line));
                }
                return Err(wrong(not_json(text, &e)));
            }
        }
    }
}
