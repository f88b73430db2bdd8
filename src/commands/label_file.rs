//! Files that label rows: a value for each stream and `seq`.

use super::Failure;
use super::client::{Connection, with_critic};
use super::output::{in_file, note};
use crate::client::{ClientError, Requester};
use crate::table::{Columns, Reading, Table};
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::hash_map::DefaultHasher;
use std::collections::{HashMap, HashSet};
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Labels in one message.
const PIECE: usize = 8192;
/// Bytes of a file's name that the name of its labels begins with.
const STEM: usize = 120;

/// Times that a change is asked for while others wait to be stored.
const ATTEMPTS: usize = 500;

/// Ask for a change of heads or labels; while others wait to be stored, again.
pub(super) fn ask(requester: &mut Requester, fields: &Value, timeout: Duration) -> Result<Value, ClientError> {
    let mut attempts = 1;
    loop {
        match requester.ask("change_heads", fields.clone(), timeout) {
            Err(ClientError::Refused(refusal)) if refusal.code == "overloaded" && attempts < ATTEMPTS => {
                attempts += 1;
                std::thread::sleep(Duration::from_millis(refusal.retry_after_ms.unwrap_or(20)));
            }
            done => return done,
        }
    }
}

/// A cumulant that a file holds.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct InFile {
    #[serde(rename = "kind")]
    _kind: String,
    /// Path from where the file of heads is.
    pub(super) file: PathBuf,
    pub(super) column: String,
}

impl InFile {
    /// The cumulant of head number i of the file `of`, if it is of this kind.
    pub(super) fn of(head: &Value, i: usize, of: &Path) -> Result<Option<Self>, Failure> {
        if head["cumulant"]["kind"] != "column" {
            return Ok(None);
        }
        let name = head["name"].as_str().unwrap_or_default();
        let found = serde_json::from_value(head["cumulant"].clone());
        found.map(Some).map_err(|e| in_file(of, format!("heads[{i}] ({name}): cumulant: {e}")))
    }

    /// Path of its file, where the file of heads is `of`.
    pub(super) fn path(&self, of: &Path) -> PathBuf {
        of.parent().unwrap_or(Path::new("")).join(&self.file)
    }
}

/// The values of a column by stream and `seq`.
pub(super) fn read(path: &Path, column: &str) -> Result<HashMap<(String, u64), f64>, Failure> {
    let columns = Columns { state: vec![column.to_owned()], reward: vec![column.to_owned()], ..Columns::default() };
    let reading = Reading { independent: true, ..Reading::default() };
    let found = Table::read_as(path, reading, &columns, &mut |_| {})?;
    let mut values = HashMap::with_capacity(found.rows().len());
    for i in 0..found.rows().len() {
        let stream = found.streams()[found.rows().streams[i] as usize].as_str();
        if values.insert((stream.to_owned(), found.seq(i)), found.rows().reward(i)[0]).is_some() {
            return Err(in_file(path, format!("seq {} of stream {stream} occurs twice", found.seq(i))));
        }
    }
    Ok(values)
}

/// What the name of the labels of a column begins with, at most [`STEM`] bytes.
pub(super) fn stem(path: &Path, column: &str) -> String {
    let file = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    format!("{file} {column}").chars().take(STEM / 4).collect()
}

/// Send the columns of files that `list`, the heads of the file `of`, names as cumulants to a daemon; the heads then name these labels.
pub(super) fn send(
    list: &mut [Value],
    of: &Path,
    connection: &Connection,
    critic: Option<&str>,
) -> Result<(), Failure> {
    let mut known: HashMap<(PathBuf, String), String> = HashMap::new();
    for (i, head) in list.iter_mut().enumerate() {
        let Some(wanted) = InFile::of(head, i, of)? else { continue };
        let path = wanted.path(of);
        let key = (path.clone(), wanted.column.clone());
        let name = match known.get(&key) {
            Some(name) => name.clone(),
            None => {
                let name = Sending { connection, critic, path: &path }.send(&wanted.column)?;
                known.insert(key, name.clone());
                name
            }
        };
        head["cumulant"] = json!({"kind": "label", "name": name});
    }
    Ok(())
}

/// A file whose labels go to a daemon.
struct Sending<'a> {
    connection: &'a Connection,
    critic: Option<&'a str>,
    path: &'a Path,
}

impl Sending<'_> {
    /// Send the values of a column; returns the name of the labels. It says what they are: sent again they are there already.
    fn send(&self, column: &str) -> Result<String, Failure> {
        let values = read(self.path, column)?;
        let mut requester = self.connection.connect()?;
        let (offsets, labels, rows) = self.rows(&mut requester, &values)?;
        if offsets.is_empty() {
            let what = "no stream and seq in it is one of the retained rows: a row has `stream`, `seq` and the value";
            return Err(in_file(self.path, what));
        }
        if offsets.len() < rows {
            note(&format!(
                "{}: {} of {rows} rows have a value, the others do not count",
                self.path.display(),
                offsets.len()
            ));
        }
        let mut hasher = DefaultHasher::new();
        offsets.hash(&mut hasher);
        labels.iter().for_each(|label| label.to_bits().hash(&mut hasher));
        let name = format!("{} {:016x}", stem(self.path, column), hasher.finish());
        for (k, (offsets, labels)) in offsets.chunks(PIECE).zip(labels.chunks(PIECE)).enumerate() {
            let piece = json!({"name": name, "from": k * PIECE, "offsets": offsets, "values": labels});
            let fields = with_critic(json!({"labels": piece}), self.critic);
            match ask(&mut requester, &fields, self.connection.timeout()) {
                // Heads learn from the same ones already.
                Err(ClientError::Refused(refusal)) if k == 0 && refusal.code == "conflict" => break,
                done => drop(done?),
            }
        }
        Ok(name)
    }

    /// The retained rows that have a value: their offsets, their values, and how many rows there are.
    fn rows(
        &self,
        requester: &mut Requester,
        values: &HashMap<(String, u64), f64>,
    ) -> Result<(Vec<u64>, Vec<f64>, usize), Failure> {
        let (mut offsets, mut labels, mut rows, mut named) = (Vec::new(), Vec::new(), 0, HashSet::new());
        let mut span = json!({"last": 1_u64 << 53});
        let mut end = None;
        loop {
            let page = requester.ask("rows", span, self.connection.timeout())?;
            let number = |key: &str| page[key].as_u64().unwrap_or_default();
            let end = *end.get_or_insert(number("end"));
            let list = |key: &str| page[key].as_array().cloned().unwrap_or_default();
            let names = list("stream_names");
            for (k, (stream, seq)) in list("streams").iter().zip(list("seqs")).enumerate() {
                rows += 1;
                let name = stream.as_u64().and_then(|stream| names.get(stream as usize)).and_then(Value::as_str);
                let Some(key) = name.zip(seq.as_u64()).map(|(name, seq)| (name.to_owned(), seq)) else { continue };
                let Some(&value) = values.get(&key) else { continue };
                offsets.push(number("from") + k as u64);
                labels.push(value);
                if let Some((stream, seq)) = named.replace(key) {
                    let what = format!(
                        "seq {seq} of stream {stream} names more than one retained row: the stream has had several sessions"
                    );
                    return Err(in_file(self.path, what));
                }
            }
            if number("next") >= end || number("next") <= number("from") {
                return Ok((offsets, labels, rows));
            }
            span = json!({"from": number("next")});
        }
    }
}
