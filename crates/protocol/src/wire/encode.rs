//! Messages from the daemon, and those that the command line sends to one.

use super::act::{ActBody, DecisionColumns};
use super::actions::ActionsBody;
use super::bodies::{HeadBody, InputsBody, MeanBody, ModelBody, PosteriorBody};
use super::evaluate::{RetainedRows, RowsBody, findings_to_json};
use super::events::DatedEvent;
use super::heads::{BranchBody, HeadAnswers, HeadAnswersBody, HeadsBody, ListedHead};
use super::hello::{Greeting, HelloBody};
use super::reader::{Field, Head, Reader};
use super::status::Status;
use super::suggest::SuggestBody;
use super::tensor::{Flags, WrittenTensor};
use super::values::{ValueBody, ValuesBody};
use super::{ArrayForm, ErrorCode, Id, VERSION, WireError};
use criticd_learner::act::Decision;
use criticd_learner::off_policy::Findings;
use criticd_learner::snapshot::{Evaluation, Snapshot};
use criticd_learner::suggest::Suggestion;
use criticd_learner::transition::Batch;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// What a request that went well is answered with, beside `v`, `id` and `ok`.
#[derive(Clone, Copy, Debug)]
pub enum Reply<'a> {
    /// To `append`.
    Append {
        /// Rows learned from this message.
        accepted: u64,
        /// Rows that were known already.
        duplicates: u64,
        /// `seq` of the next row of this session.
        next_seq: u64,
        /// Rows taken in so far, of all streams.
        offset: u64,
    },
    /// To `value`.
    Value {
        /// The answer of the model.
        evaluation: &'a Evaluation,
        /// Model that answered.
        snapshot: &'a Snapshot,
    },
    /// To `value` with `heads`.
    ValueOfHeads {
        /// The answer of the model.
        evaluation: &'a Evaluation,
        /// Model that answered.
        snapshot: &'a Snapshot,
        /// The answers of its heads.
        heads: &'a HeadAnswers<'a>,
    },
    /// To `value` with `critics`: each evaluation with the model that it came from, whose critics all differ.
    Values(&'a [(&'a Evaluation, &'a Snapshot)]),
    /// To `act`.
    Act {
        /// One for each state.
        decisions: &'a [Decision],
        /// Model that has decided.
        snapshot: &'a Snapshot,
    },
    /// To `rows`.
    Rows(&'a RetainedRows),
    /// To `evaluate`.
    Evaluate {
        /// The findings.
        findings: &'a Findings,
        /// Offsets of the first row that they come from, and behind the last.
        rows: [u64; 2],
        /// Model whose kernel the fitted Q has; none without one.
        generation: Option<u64>,
    },
    /// To `snapshot`.
    Snapshot {
        /// The model.
        snapshot: &'a Snapshot,
        /// Whether to include the variance matrix, if the snapshot carries one.
        variance: bool,
    },
    /// To `snapshot` with a `page`.
    Page {
        /// Its number, from 0.
        page: u64,
        /// How many there are.
        pages: u64,
        /// Revision of the snapshot: the same for all of its pages.
        revision: u64,
        /// Bytes of all pages together.
        bytes: u64,
        /// Bytes of this page: all pages, one after the other, are what an unpaged snapshot is published as.
        data: &'a [u8],
    },
    /// To `remove`: what was found, and what became of it.
    Remove(&'a Value),
    /// To `plan`.
    Plan {
        /// What is to be known of it.
        found: &'a Value,
        /// The values of actions, as a file has them ([`encode_snapshot`]).
        model: &'a [u8],
    },
    /// To `rollout`.
    Rollout(&'a Value),
    /// To `status`.
    Status(&'a Status),
    /// To `streams`.
    Streams {
        /// By name of the stream.
        streams: &'a BTreeMap<String, StreamPosition>,
        /// What was refused last of the streams that are asked for by name.
        refused: &'a BTreeMap<String, RefusedRows>,
        /// Where the next page begins, if there is one.
        next: Option<u64>,
    },
    /// To `refit`.
    Refit(&'a RefitOutcome),
    /// To `heads`.
    Heads {
        /// In their order.
        heads: &'a [ListedHead],
        /// Where the next page begins, if there is one.
        next: Option<u64>,
    },
    /// To `change_heads`.
    ChangeHeads {
        /// Rows before the change.
        offset: u64,
    },
    /// To `suggest`.
    Suggest {
        /// The decision.
        suggestion: &'a Suggestion,
        /// Costs that the advisor had learned.
        learned: u64,
    },
    /// To `report`.
    Report {
        /// Costs that the advisor has learned.
        learned: u64,
    },
    /// To `new_policy`.
    NewPolicy {
        /// Offset of the first row under the policy.
        offset: u64,
    },
    /// To `checkpoint`.
    Checkpoint {
        /// Rows that the checkpoint covers.
        offset: u64,
    },
    /// To `ping`.
    Ping {
        /// The program's version.
        version: &'a str,
        /// Seconds since it started.
        uptime_s: f64,
    },
    /// To `hello`.
    Hello(&'a Greeting<'a>),
}

#[derive(Serialize)]
struct HeadListBody<'a> {
    heads: &'a [ListedHead],
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

#[derive(Serialize)]
struct StreamsBody<'a> {
    streams: &'a BTreeMap<String, StreamPosition>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    refused: &'a BTreeMap<String, RefusedRows>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next: Option<u64>,
}

/// Where a producer of one stream may go on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(default)]
pub struct StreamPosition {
    /// Its newest session.
    pub session: String,
    /// `seq` of the next row of that session.
    pub next_seq: u64,
    /// Rows learned from the stream, all sessions.
    pub rows: u64,
    /// Unix seconds when the last row came.
    pub last_seen: f64,
}

/// What was refused of one session of a stream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedRows {
    /// The session.
    pub session: String,
    /// Name of the error code, of the last message.
    pub code: &'static str,
    /// A sentence for people, of the last message.
    pub message: String,
    /// Messages of that session that were refused.
    pub messages: u64,
}

/// The outcome of a `refit` request.
#[derive(Clone, Debug, PartialEq)]
pub enum RefitOutcome {
    /// The refit runs, and the caller does not wait.
    Started,
    /// A new model has taken over.
    Adopted {
        /// Its generation.
        generation: u64,
    },
    /// The old model stays.
    Rejected {
        /// Its generation.
        generation: u64,
        /// Why, for people.
        reason: String,
    },
}

/// A reply to a request that went well.
pub fn encode_reply(id: &Id, form: ArrayForm, reply: &Reply<'_>) -> Vec<u8> {
    let body = match *reply {
        Reply::Append { accepted, duplicates, next_seq, offset } => {
            to_map(&AppendBody { accepted, duplicates, next_seq, offset })
        }
        Reply::Value { evaluation, snapshot } => to_map(&ValueBody::new(evaluation, snapshot, form)),
        Reply::Act { decisions, snapshot } => {
            let columns = DecisionColumns::of(decisions);
            to_map(&ActBody::new(&columns, decisions, snapshot, form))
        }
        Reply::Rows(rows) => to_map(&RowsBody::new(rows, form)),
        Reply::Evaluate { findings, rows: [from, to], generation } => {
            let mut body = findings_to_json(findings);
            (body["from"], body["to"], body["generation"]) = (from.into(), to.into(), generation.into());
            to_map(&body)
        }
        Reply::ValueOfHeads { evaluation, snapshot, heads } => {
            let of_heads = to_map(&BTreeMap::from([("heads", HeadAnswersBody::new(heads, form))]));
            join([to_map(&ValueBody::new(evaluation, snapshot, form)), of_heads])
        }
        Reply::Values(answers) => to_map(&ValuesBody::new(answers, form)),
        Reply::Snapshot { snapshot, variance } => {
            let maps = snapshot_maps(snapshot, form, variance, false);
            return join([version(), envelope(id, true)].into_iter().chain(maps));
        }
        Reply::Page { page, pages, revision, bytes, data } => to_map(&PageBody { page, pages, revision, bytes, data }),
        Reply::Status(status) => status_body(status),
        Reply::Streams { streams, refused, next } => to_map(&StreamsBody { streams, refused, next }),
        Reply::Refit(outcome) => to_map(&RefitBody::from(outcome)),
        Reply::Heads { heads, next } => to_map(&HeadListBody { heads, next }),
        Reply::Suggest { suggestion, learned } => to_map(&SuggestBody::new(suggestion, learned, form)),
        Reply::Report { learned } => to_map(&BTreeMap::from([("learned", learned)])),
        Reply::NewPolicy { offset } | Reply::Checkpoint { offset } | Reply::ChangeHeads { offset } => {
            to_map(&BTreeMap::from([("offset", offset)]))
        }
        Reply::Remove(found) | Reply::Rollout(found) => to_map(found),
        Reply::Plan { found, model } => join([to_map(found), to_map(&PlannedBody { plan: model })]),
        Reply::Ping { version, uptime_s } => to_map(&PingBody { version, uptime_s }),
        Reply::Hello(greeting) => to_map(&HelloBody::from(greeting)),
    };
    join([version(), envelope(id, true), body])
}

/// The reply to a request that is refused or went wrong.
pub fn encode_error(id: &Id, error: &WireError) -> Vec<u8> {
    #[derive(Serialize)]
    struct Body<'a> {
        code: &'static str,
        message: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        field: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        index: Option<usize>,
        #[serde(skip_serializing_if = "Option::is_none")]
        expected_seq: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    }
    let WireError { code, ref message, field, index, expected_seq, retry_after_ms } = *error;
    let body = Body { code: code.name(), message, field, index, expected_seq, retry_after_ms };
    join([version(), envelope(id, false), to_map(&BTreeMap::from([("error", body)]))])
}

/// A whole snapshot with its heads: what a MODEL file holds (there with variance).
pub fn encode_snapshot(snapshot: &Snapshot, form: ArrayForm, variance: bool) -> Vec<u8> {
    join([version()].into_iter().chain(snapshot_maps(snapshot, form, variance, true)))
}

/// A snapshot without its heads, which may be many: the payload under `snapshot.<critic>`, and what pages hold.
pub fn encode_values(snapshot: &Snapshot, form: ArrayForm, variance: bool) -> Vec<u8> {
    join([version()].into_iter().chain(snapshot_maps(snapshot, form, variance, false)))
}

/// What is published under `snapshot.<critic>` instead of a snapshot of more than the allowed `bytes`.
pub fn encode_announcement(snapshot: &Snapshot, bytes: usize) -> Vec<u8> {
    #[derive(Serialize)]
    struct AnnouncementBody<'a> {
        r#type: &'static str,
        critic: &'a str,
        generation: u64,
        revision: u64,
        offset: u64,
        bytes: usize,
    }
    let Snapshot { critic, generation, revision, offset, .. } = snapshot;
    let (generation, revision, offset) = (*generation, *revision, *offset);
    join([version(), to_map(&AnnouncementBody { r#type: "announcement", critic, generation, revision, offset, bytes })])
}

/// What changed since the last publication of the same generation, the payload under `weights.<critic>`: everything but
/// normalisation and the first `known_rows` rows of the dictionary.
///
/// # Panics
/// If the dictionary has fewer rows than that: a dictionary only grows within a generation.
pub fn encode_weights(snapshot: &Snapshot, known_rows: usize, variance: bool) -> Vec<u8> {
    #[derive(Serialize)]
    struct StartBody {
        dictionary_start: usize,
    }
    let form = ArrayForm::Tensor;
    join([
        version(),
        to_map(&HeadBody::new("weights", snapshot)),
        to_map(&ModelBody::new(snapshot, form)),
        to_map(&StartBody { dictionary_start: known_rows }),
        to_map(&PosteriorBody::new(snapshot, known_rows, form, variance)),
    ])
}

/// The topic of an event, `event.<kind>`, and the payload under it. By way of JSON, as the status.
pub fn encode_event(event: &DatedEvent) -> (String, Vec<u8>) {
    #[derive(Serialize)]
    struct EventBody<'a> {
        r#type: &'static str,
        event: &'a str,
        time: f64,
    }
    let (kind, details) = event.parts();
    let head = EventBody { r#type: "event", event: &kind, time: event.time };
    (format!("event.{kind}"), join([version(), to_map(&head), to_map(&details)]))
}

/// The payload under `status`.
pub fn encode_status(status: &Status) -> Vec<u8> {
    join([version(), to_map(&BTreeMap::from([("type", "status")])), status_body(status)])
}

/// A batch as a client sends it to the ingest socket. Times are for people and left out.
pub fn encode_ingest(batch: &Batch) -> Vec<u8> {
    join([version(), batch_body(batch)])
}

/// A batch as a client sends it to the control socket; it should carry a `seq`.
pub fn encode_append(id: u64, batch: &Batch) -> Vec<u8> {
    join([version(), request_head(id, "append"), batch_body(batch)])
}

/// A request as a client sends it; `fields` hold what the operation takes beside `v`, `id` and `op`.
///
/// # Panics
/// If they hold one of those.
pub fn encode_request(id: u64, op: &str, fields: &Map<String, Value>) -> Vec<u8> {
    assert_free(fields, &["v", "id", "op"]);
    join([version(), request_head(id, op), to_map(fields)])
}

/// Any message as JSON, for people and `--json`: tensors become nested arrays; what JSON does not have (binary data,
/// extension types, numbers that are not finite) becomes null.
///
/// # Errors
/// `malformed` if the bytes are not one MessagePack value with string keys.
pub fn to_json(bytes: &[u8]) -> Result<Value, WireError> {
    let mut reader = Reader::new(bytes);
    let value = reader.value()?;
    if !reader.rest().is_empty() {
        return Err(WireError::malformed("bytes follow the value"));
    }
    json_value(&mut Reader::new(value))
}

fn json_value(reader: &mut Reader<'_>) -> Result<Value, WireError> {
    let text = |bytes: &[u8]| {
        std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| WireError::malformed("a string is not UTF-8"))
    };
    let whole = { *reader }.value()?;
    Ok(match reader.head()? {
        Head::Nil | Head::Bin(_) | Head::Ext => Value::Null,
        Head::Bool(v) => v.into(),
        Head::Uint(v) => v.into(),
        Head::Int(v) => v.into(),
        Head::Float(v) => v.into(),
        Head::Str(v) => text(v)?.into(),
        Head::Array(len) => (0..len).map(|_| json_value(reader)).collect::<Result<Vec<_>, _>>()?.into(),
        Head::Map(pairs) => {
            let mut map = Map::new();
            for _ in 0..pairs {
                let (Head::Str(key) | Head::Bin(key)) = reader.head()? else {
                    return Err(WireError::malformed("a key is not a string"));
                };
                map.insert(text(key)?, json_value(reader)?);
            }
            if map.contains_key("nd") { Field::new("array", whole).tensor_json()? } else { Value::Object(map) }
        }
    })
}

fn to_map(body: &impl Serialize) -> Vec<u8> {
    let mut out = Vec::new();
    let mut serializer = rmp_serde::Serializer::new(&mut out).with_struct_map();
    body.serialize(&mut serializer).expect("plain data into memory");
    out
}

/// A publication, an encoded map, with the number of the daemon's run.
pub fn with_run(publication: Vec<u8>, run: u64) -> Vec<u8> {
    join([publication, to_map(&BTreeMap::from([("run", run)]))])
}

/// A snapshot, or what changed of one, with the name of the head that it is the value of.
pub fn with_head(snapshot: Vec<u8>, head: &str) -> Vec<u8> {
    join([snapshot, to_map(&BTreeMap::from([("head", head)]))])
}

/// A snapshot with `bytes` under a key of its own: readers of models leave it alone.
pub fn with_bytes(snapshot: Vec<u8>, key: &str, bytes: &[u8]) -> Vec<u8> {
    struct Binary<'a>(&'a [u8]);
    impl Serialize for Binary<'_> {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            as_binary(self.0, serializer)
        }
    }
    join([snapshot, to_map(&BTreeMap::from([(key, Binary(bytes))]))])
}

/// What [`with_bytes`] put under `key` of a snapshot; none if nothing is there.
pub fn bytes_of<'a>(snapshot: &'a [u8], key: &str) -> Option<&'a [u8]> {
    let mut reader = Reader::new(snapshot);
    let Ok(Head::Map(pairs)) = reader.head() else { return None };
    for _ in 0..pairs {
        let name = reader.head().ok()?;
        let value = reader.value().ok()?;
        if name == Head::Str(key.as_bytes()) {
            return match Reader::new(value).head() {
                Ok(Head::Bin(bytes)) => Some(bytes),
                _ => None,
            };
        }
    }
    None
}

/// One map with the entries of several encoded maps, in order.
fn join(maps: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let maps: Vec<Vec<u8>> = maps.into_iter().collect();
    let parts: Vec<(usize, &[u8])> = maps
        .iter()
        .map(|map| {
            let mut reader = Reader::new(map);
            match reader.head() {
                Ok(Head::Map(pairs)) => (pairs, reader.rest()),
                _ => unreachable!("bodies are maps"),
            }
        })
        .collect();
    let pairs = parts.iter().map(|(pairs, _)| pairs).sum::<usize>();
    let mut out = Vec::with_capacity(5 + maps.iter().map(Vec::len).sum::<usize>());
    rmp::encode::write_map_len(&mut out, u32::try_from(pairs).expect("a few keys")).expect("writing into memory");
    parts.iter().for_each(|(_, entries)| out.extend_from_slice(entries));
    out
}

fn version() -> Vec<u8> {
    to_map(&BTreeMap::from([("v", VERSION)]))
}

/// {"id": id, "ok": ok}, the id byte for byte.
fn envelope(id: &Id, ok: bool) -> Vec<u8> {
    let ok: &[u8] = if ok { b"\xc3" } else { b"\xc2" };
    [b"\x82\xa2id", id.as_bytes(), b"\xa2ok", ok].concat()
}

fn request_head(id: u64, op: &str) -> Vec<u8> {
    #[derive(Serialize)]
    struct OpHead<'a> {
        id: u64,
        op: &'a str,
    }
    to_map(&OpHead { id, op })
}

/// A request for the answers of a policy in states (n, `dim`), as a [`crate::policy::PolicyClient`] sends it.
///
/// # Panics
/// If a state has no numbers.
pub fn encode_policy_request(states: &[f64], dim: usize) -> Vec<u8> {
    let states = WrittenTensor::of(states.len() / dim, dim, |i, d| states[i * dim + d], ArrayForm::Tensor);
    join([version(), to_map(&BTreeMap::from([("states", states)]))])
}

fn assert_free(map: &Map<String, Value>, taken: &[&str]) {
    assert!(!taken.iter().any(|key| map.contains_key(*key)), "the message has these keys already: {taken:?}");
}

/// By way of JSON: a number that is not finite becomes nil.
fn status_body(status: &Status) -> Vec<u8> {
    to_map(&status.to_json())
}

fn batch_body(batch: &Batch) -> Vec<u8> {
    #[derive(Serialize)]
    struct Body<'a> {
        stream: &'a str,
        session: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        policy: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        state_names: Option<&'a [String]>,
        #[serde(skip_serializing_if = "Option::is_none")]
        reward_names: Option<&'a [String]>,
        #[serde(skip_serializing_if = "Option::is_none")]
        action_names: Option<&'a [String]>,
        #[serde(skip_serializing_if = "Option::is_none")]
        seq: Option<u64>,
        states: WrittenTensor<'a>,
        next_states: WrittenTensor<'a>,
        rewards: WrittenTensor<'a>,
        terminated: Flags,
        truncated: Flags,
        #[serde(skip_serializing_if = "Option::is_none")]
        discounts: Option<WrittenTensor<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        actions: Option<WrittenTensor<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        times: Option<WrittenTensor<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        behavior_probs: Option<WrittenTensor<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        target_probs: Option<WrittenTensor<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_actions: Option<WrittenTensor<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        next_action_probs: Option<WrittenTensor<'a>>,
    }
    let (n, dim, form) = (batch.len(), batch.dim(), ArrayForm::Tensor);
    let narrow = |column: fn(&Batch, usize) -> Option<f64>| {
        let value = move |i, _| column(batch, i).expect("all rows have one");
        column(batch, 0).map(|_| WrittenTensor::of(n, 1, value, form).flat())
    };
    let wide = |column: fn(&Batch, usize) -> Option<&[f64]>| {
        let value = move |i, j| column(batch, i).expect("all rows have one")[j];
        column(batch, 0).map(|first| WrittenTensor::of(n, first.len(), value, form))
    };
    let body = Body {
        stream: batch.stream(),
        session: batch.session(),
        policy: batch.policy(),
        state_names: batch.names().states.as_deref(),
        reward_names: batch.names().rewards.as_deref(),
        action_names: batch.names().actions.as_deref(),
        seq: batch.seq(),
        states: WrittenTensor::of(n, dim, move |i, j| batch.state(i)[j], form),
        next_states: WrittenTensor::of(n, dim, move |i, j| batch.next_state(i)[j], form),
        rewards: WrittenTensor::of(n, batch.rewards_per_row(), move |i, j| batch.reward(i)[j], form).flat(),
        terminated: Flags { values: (0..n).map(|i| batch.terminated(i)).collect(), form },
        truncated: Flags { values: (0..n).map(|i| batch.truncated(i)).collect(), form },
        discounts: narrow(Batch::discount),
        actions: wide(Batch::action).map(WrittenTensor::flat),
        times: narrow(Batch::time),
        behavior_probs: narrow(Batch::behavior_prob),
        target_probs: narrow(Batch::target_prob),
        next_actions: wide(Batch::next_action).map(WrittenTensor::flat),
        next_action_probs: wide(Batch::next_action_probs),
    };
    to_map(&body)
}

#[derive(Serialize)]
struct AppendBody {
    accepted: u64,
    duplicates: u64,
    next_seq: u64,
    offset: u64,
}

#[derive(Serialize)]
struct PageBody<'a> {
    page: u64,
    pages: u64,
    revision: u64,
    bytes: u64,
    #[serde(serialize_with = "as_binary")]
    data: &'a [u8],
}

#[derive(Serialize)]
struct PlannedBody<'a> {
    #[serde(serialize_with = "as_binary")]
    plan: &'a [u8],
}

fn as_binary<S: serde::Serializer>(data: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(data)
}

#[derive(Serialize)]
struct PingBody<'a> {
    version: &'a str,
    uptime_s: f64,
}

#[derive(Serialize)]
struct RefitBody<'a> {
    outcome: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    generation: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'a str>,
}

impl<'a> From<&'a RefitOutcome> for RefitBody<'a> {
    fn from(outcome: &'a RefitOutcome) -> Self {
        match outcome {
            RefitOutcome::Started => Self { outcome: "started", generation: None, reason: None },
            RefitOutcome::Adopted { generation } => {
                Self { outcome: "adopted", generation: Some(*generation), reason: None }
            }
            RefitOutcome::Rejected { generation, reason } => {
                Self { outcome: "rejected", generation: Some(*generation), reason: Some(reason) }
            }
        }
    }
}

/// A whole snapshot as maps, whose entries stand one after the other in a message.
fn snapshot_maps(snapshot: &Snapshot, form: ArrayForm, variance: bool, heads: bool) -> [Vec<u8>; 6] {
    #[derive(Serialize)]
    struct DiscountBody {
        discount: f64,
    }
    #[derive(Serialize)]
    struct NormalisationBody<'a> {
        inputs: InputsBody<'a>,
    }
    #[derive(Serialize)]
    struct ExtensionsBody<'a> {
        #[serde(skip_serializing_if = "Option::is_none")]
        mean: Option<MeanBody<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        actions: Option<ActionsBody<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        heads: Option<HeadsBody<'a>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        branch: Option<BranchBody<'a>>,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        reward_names: &'a [String],
        #[serde(skip_serializing_if = "Option::is_none")]
        table: Option<&'a str>,
    }
    let extensions = ExtensionsBody {
        mean: snapshot.mean.as_deref().map(|mean| MeanBody::new(mean, form)),
        actions: snapshot.actions.as_ref().map(|actions| ActionsBody::new(actions, form)),
        heads: snapshot.heads.as_ref().filter(|_| heads).map(|heads| HeadsBody::new(heads, form, variance)),
        branch: snapshot.branch.as_deref().filter(|_| heads).map(|branch| BranchBody::new(branch, form, variance)),
        reward_names: &snapshot.reward_names,
        table: snapshot.table.as_deref(),
    };
    [
        to_map(&HeadBody::new("snapshot", snapshot)),
        to_map(&DiscountBody { discount: snapshot.discount }),
        to_map(&ModelBody::new(snapshot, form)),
        to_map(&NormalisationBody { inputs: InputsBody::new(&snapshot.inputs, form) }),
        to_map(&PosteriorBody::new(snapshot, 0, form, variance)),
        to_map(&extensions),
    ]
}

impl Field<'_> {
    /// A numpy array as nested JSON arrays.
    fn tensor_json(&self) -> Result<Value, WireError> {
        if let Ok(flag) = self.scalar::<bool>() {
            return Ok(flag.into());
        }
        if let Ok(flags) = self.tensor::<bool>(Vec::new()) {
            return Ok(flags.values.into());
        }
        let tensor = self.tensor::<f64>(Vec::new()).map_err(|e| WireError { code: ErrorCode::Malformed, ..e })?;
        let (_, width) = tensor.shape.rows_and_width();
        Ok(match tensor.shape {
            super::tensor::Shape::Scalar => tensor.values[0].into(),
            super::tensor::Shape::Vector(_) => tensor.values.into(),
            super::tensor::Shape::Matrix(..) => {
                tensor.values.chunks_exact(width.max(1)).map(|row| Value::from(row.to_vec())).collect()
            }
        })
    }
}
