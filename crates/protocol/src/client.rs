//! A client of the daemon for programs that block: send experience, ask, and follow the models that it publishes.
//!
//! ```no_run
//! use criticd_protocol::client::{Models, Requester, Sender, Subscriber};
//! use criticd_learner::transition::{Batch, BatchParts};
//! use criticd_protocol::wire;
//! use std::time::Duration;
//!
//! let patience = Duration::from_secs(5);
//! let sender = Sender::connect("tcp://127.0.0.1:5750", patience)?;
//! let rows = Batch::new(BatchParts {
//!     stream: "rover".into(),
//!     session: "run-1".into(),
//!     seq: Some(0),
//!     dim: 2,
//!     rewards_per_row: 1,
//!     states: vec![0.9, 4.0, 0.8, 4.5],
//!     next_states: Some(vec![0.8, 4.5, 0.7, 5.0]),
//!     rewards: vec![-1.0, -1.0],
//!     ..BatchParts::default()
//! })?;
//! sender.send(wire::encode_ingest(&rows))?;
//! sender.close(patience)?;
//!
//! let mut requester = Requester::connect("tcp://127.0.0.1:5751", patience)?;
//! println!("{} rows", requester.status(patience)?.offset);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Rows that must arrive go through [`Requester::post`] as `append`, and are sent again until they are acknowledged;
//! what [`Sender`] has sent is lost if the daemon or the network fails before it was read.

pub use crate::sockets::ConnectionError;
pub use crate::wire::Refusal;

use crate::endpoint::{Endpoint, EndpointError};
use crate::sockets::{Dealer, Push, Subscription};
use crate::wire::{self, Moment, Status, WireError};
use bytes::Bytes;
use criticd_learner::snapshot::Snapshot;
use criticd_learner::transition::Batch;
use serde_json::{Map, Value};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Why the daemon could not be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// The address is none.
    #[error("{0}")]
    Endpoint(#[from] EndpointError),
    /// There is no connection, or none any more.
    #[error("{0}")]
    Connection(#[from] ConnectionError),
    /// There was no reply in time.
    #[error("{endpoint} did not reply within {:.1} s", .timeout.as_secs_f64())]
    NoReply {
        /// Whom was asked.
        endpoint: Endpoint,
        /// How long was waited.
        timeout: Duration,
    },
    /// The daemon said no.
    #[error("the daemon refused: {0}")]
    Refused(#[source] Refusal),
    /// What came from the daemon is not what the protocol promises.
    #[error("the daemon's message cannot be read: {0}")]
    Reply(#[from] WireError),
}

/// The fast way in, without answers: a PUSH socket to the daemon's ingest.
///
/// It hears of no refusal. The daemon announces the rows that it refuses as `event.rejected`, with stream, session, code and
/// reason: a [`Subscriber`] to that topic shows them, `rejected` in the status counts them, and [`Requester::post`] of an
/// `append` is answered with the error itself.
pub struct Sender(Push);

impl Sender {
    /// Connect within `timeout`.
    ///
    /// # Errors
    /// If `endpoint` is none or nobody answers there.
    pub fn connect(endpoint: &str, timeout: Duration) -> Result<Self, ClientError> {
        Ok(Self(Push::connect(&endpoint.parse()?, timeout)?))
    }

    /// Send a message ([`wire::encode_ingest`] makes one); waits while the daemon does not keep up.
    ///
    /// # Errors
    /// If the connection has gone: then a new [`Sender`] is needed, and what was under way may be lost.
    pub fn send(&self, message: Vec<u8>) -> Result<(), ClientError> {
        Ok(self.0.send(message)?)
    }

    /// Wait for at most `timeout` until everything has left this process, then disconnect.
    ///
    /// # Errors
    /// If it took longer, or the connection has gone.
    pub fn close(self, timeout: Duration) -> Result<(), ClientError> {
        Ok(self.0.close(timeout)?)
    }
}

/// Requests and replies: a DEALER socket to the daemon's control.
pub struct Requester {
    socket: Dealer,
    endpoint: Endpoint,
    next_id: u64,
    /// Replies that came while another was waited for.
    early: BTreeMap<u64, Bytes>,
}

impl Requester {
    /// Connect within `timeout`.
    ///
    /// # Errors
    /// If `endpoint` is none or nobody answers there.
    pub fn connect(endpoint: &str, timeout: Duration) -> Result<Self, ClientError> {
        let endpoint: Endpoint = endpoint.parse()?;
        let socket = Dealer::connect(&endpoint, timeout)?;
        Ok(Self { socket, endpoint, next_id: 0, early: BTreeMap::new() })
    }

    /// Send the request `op` with `fields` (a JSON map) and return its id, without waiting for the reply. Keep the number
    /// of open requests below a hundred or so.
    ///
    /// # Errors
    /// If the connection has gone.
    ///
    /// # Panics
    /// If `fields` is no map.
    pub fn post(&mut self, op: &str, fields: Value) -> Result<u64, ClientError> {
        let Value::Object(fields) = fields else { panic!("the fields of a request are a map") };
        self.post_bytes(|id| wire::encode_request(id, op, &fields))
    }

    /// Send rows to be learned and acknowledged, without waiting for it. The batch should carry a `seq`.
    ///
    /// # Errors
    /// If the connection has gone.
    pub fn post_append(&mut self, batch: &Batch) -> Result<u64, ClientError> {
        self.post_bytes(|id| wire::encode_append(id, batch))
    }

    /// Send any message, made from a fresh id, without waiting.
    ///
    /// # Errors
    /// If the connection has gone.
    pub fn post_bytes(&mut self, message: impl FnOnce(u64) -> Vec<u8>) -> Result<u64, ClientError> {
        let id = self.next_id;
        self.next_id += 1;
        self.socket.send(message(id))?;
        Ok(id)
    }

    /// Whether the reply to request `id` is here, without waiting for it.
    ///
    /// # Errors
    /// If the connection has gone, or what came is no reply.
    pub fn has_arrived(&mut self, id: u64) -> Result<bool, ClientError> {
        while let Some(bytes) = self.socket.receive(Duration::ZERO)? {
            if let Some(other) = wire::decode_reply(&bytes)?.id {
                self.early.insert(other, bytes);
            }
        }
        Ok(self.early.contains_key(&id))
    }

    /// The whole reply to request `id`, as it came.
    ///
    /// # Errors
    /// If it is a refusal, does not come within `timeout`, or the connection has gone. A reply that comes too late is
    /// dropped once it does.
    pub fn reply(&mut self, id: u64, timeout: Duration) -> Result<Bytes, ClientError> {
        let deadline = Instant::now() + timeout;
        let bytes = loop {
            if let Some(bytes) = self.early.remove(&id) {
                break bytes;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            let Some(bytes) = self.socket.receive(left)? else {
                return Err(ClientError::NoReply { endpoint: self.endpoint.clone(), timeout });
            };
            // A refusal without an id belongs to a request that the daemon could not read.
            match wire::decode_reply(&bytes)?.id {
                Some(other) if other != id => drop(self.early.insert(other, bytes)),
                _ => break bytes,
            }
        };
        wire::decode_reply(&bytes)?.outcome.map_err(ClientError::Refused)?;
        Ok(bytes)
    }

    /// Send a request and wait for the reply, as JSON with arrays as lists.
    ///
    /// # Errors
    /// As [`Requester::post`] and [`Requester::reply`].
    ///
    /// # Panics
    /// As [`Requester::post`].
    pub fn ask(&mut self, op: &str, fields: Value, timeout: Duration) -> Result<Value, ClientError> {
        let id = self.post(op, fields)?;
        Ok(wire::to_json(&self.reply(id, timeout)?)?)
    }

    /// What the daemon knows about itself.
    ///
    /// # Errors
    /// As [`Requester::ask`]; if what comes is no status.
    pub fn status(&mut self, timeout: Duration) -> Result<Status, ClientError> {
        let reply = self.ask("status", Value::Object(Map::new()), timeout)?;
        Ok(Status::from_json(&reply)?)
    }

    /// The present model of a critic, of the first one if none is named, with its variance.
    ///
    /// # Errors
    /// As [`Requester::ask`]; `not_ready` before there is a model.
    pub fn snapshot(&mut self, critic: Option<&str>, timeout: Duration) -> Result<Snapshot, ClientError> {
        self.model(critic, None, timeout)
    }

    /// The model of a critic as it was, of the first one if none is named, with its variance. A daemon whose `hello` lacks the feature
    /// `as_of` gives the present one.
    ///
    /// # Errors
    /// As [`Requester::ask`]; `out_of_range` where the moment cannot be told.
    pub fn snapshot_as_of(
        &mut self,
        critic: Option<&str>,
        moment: Moment,
        timeout: Duration,
    ) -> Result<Snapshot, ClientError> {
        self.model(critic, Some(moment), timeout)
    }

    fn model(
        &mut self,
        critic: Option<&str>,
        moment: Option<Moment>,
        timeout: Duration,
    ) -> Result<Snapshot, ClientError> {
        let mut fields = Map::from_iter([("variance".to_owned(), Value::Bool(true))]);
        if let Some(critic) = critic {
            fields.insert("critic".into(), critic.into());
        }
        if let Some(moment) = moment {
            let moment = match moment {
                Moment::Offset(offset) => offset.into(),
                Moment::Time(time) => time.into(),
            };
            fields.insert("as_of".into(), moment);
        }
        let id = self.post("snapshot", Value::Object(fields))?;
        Ok(wire::decode_snapshot(&self.reply(id, timeout)?)?)
    }
}

/// Publications: a SUB socket. It connects again by itself.
pub struct Subscriber(Subscription);

impl Subscriber {
    /// Connect within `timeout` to all topics that start with one of `topics`.
    ///
    /// # Errors
    /// If `endpoint` is none or nobody answers there.
    pub fn connect(endpoint: &str, topics: &[&str], timeout: Duration) -> Result<Self, ClientError> {
        Ok(Self(Subscription::connect(&endpoint.parse()?, topics, timeout)?))
    }

    /// The next publication, topic and payload; `None` if none comes within `timeout`.
    ///
    /// # Errors
    /// If the subscription has ended for good.
    pub fn receive(&self, timeout: Duration) -> Result<Option<(String, Bytes)>, ClientError> {
        Ok(self.0.receive(timeout)?)
    }
}

/// The latest model of every critic, put together from publications.
#[derive(Clone, Debug, Default)]
pub struct Models {
    latest: BTreeMap<String, Snapshot>,
}

/// What a publication did to [`Models`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Update {
    /// The critic has a new model.
    Fresh(String),
    /// The critic has a newer model than could be put together: ask [`Requester::snapshot`] and [`Models::insert`] it,
    /// or wait for the next whole one.
    Missed(String),
    /// It was about something else.
    Other,
}

impl Models {
    /// Take a publication in.
    ///
    /// # Errors
    /// If it is about a model and cannot be read.
    pub fn apply(&mut self, topic: &str, payload: &[u8]) -> Result<Update, WireError> {
        let Some((kind, critic)) = topic.split_once('.') else { return Ok(Update::Other) };
        let fresh = match kind {
            "snapshot" if is_announcement(payload)? => None,
            "snapshot" => Some(wire::decode_snapshot(payload)?),
            "weights" => match self.latest.get(critic) {
                Some(before) => wire::decode_weights(payload, before)?,
                None => None,
            },
            _ => return Ok(Update::Other),
        };
        let Some(snapshot) = fresh else { return Ok(Update::Missed(critic.to_owned())) };
        self.latest.insert(critic.to_owned(), snapshot);
        Ok(Update::Fresh(critic.to_owned()))
    }

    /// Take a snapshot in that was asked for, unless a newer one is there.
    pub fn insert(&mut self, snapshot: Snapshot) {
        let place = |s: &Snapshot| (s.generation, s.revision);
        if self.latest.get(&snapshot.critic).is_none_or(|present| place(present) <= place(&snapshot)) {
            self.latest.insert(snapshot.critic.clone(), snapshot);
        }
    }

    /// The latest model of a critic.
    pub fn get(&self, critic: &str) -> Option<&Snapshot> {
        self.latest.get(critic)
    }
}

fn is_announcement(payload: &[u8]) -> Result<bool, WireError> {
    // Announcements are short; snapshots need not be read twice.
    const LONGEST: usize = 1024;
    Ok(payload.len() <= LONGEST && wire::to_json(payload)?["type"] == "announcement")
}

#[cfg(test)]
mod tests {
    use super::*;
    use criticd_learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
    use criticd_learner::snapshot::Ask;
    use nalgebra::DMatrix;

    fn snapshot(generation: u64, revision: u64, size: usize) -> Snapshot {
        let kernel = Kernel::gaussian(2.0, 0.5, Metric::Ard(vec![1.0, 0.25]));
        let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.1 };
        let dictionary = DMatrix::from_fn(size, 2, |i, j| (i + 10 * j) as f64);
        let weights = DMatrix::from_fn(size, 1, |i, _| (i as u64 + revision) as f64);
        Snapshot {
            generation,
            revision,
            offset: 10 * revision,
            transitions: 9,
            time: 1.0,
            variance: Some(DMatrix::identity(size, size) * 0.125),
            log_evidence: Some(-3.0),
            ..Snapshot::of(0.9, hyperparameters, dictionary, weights)
        }
    }

    fn whole(snapshot: &Snapshot) -> Vec<u8> {
        wire::encode_snapshot(snapshot, wire::ArrayForm::Tensor, true)
    }

    fn change(snapshot: &Snapshot, known: usize, variance: bool) -> Vec<u8> {
        wire::encode_weights(snapshot, known, variance)
    }

    #[test]
    fn changes_are_put_together_while_none_is_missed() {
        let mut models = Models::default();
        let (fresh, missed) = (Update::Fresh("main".into()), Update::Missed("main".into()));
        assert_eq!(models.apply("weights.main", &change(&snapshot(1, 1, 2), 0, true)), Ok(missed.clone()));
        assert_eq!(models.apply("snapshot.main", &whole(&snapshot(1, 1, 2))), Ok(fresh.clone()));
        assert_eq!(models.apply("weights.main", &change(&snapshot(1, 2, 3), 2, true)), Ok(fresh.clone()));
        assert_eq!(models.get("main"), Some(&snapshot(1, 2, 3)));
        assert_eq!(models.apply("weights.main", &change(&snapshot(1, 4, 3), 3, true)), Ok(missed.clone()));
        assert_eq!(models.apply("weights.main", &change(&snapshot(2, 3, 3), 3, true)), Ok(missed.clone()));
        let announcement = wire::encode_announcement(&snapshot(2, 5, 3), 1 << 30);
        assert_eq!(models.apply("snapshot.main", &announcement), Ok(missed));
        models.insert(snapshot(2, 5, 4));
        models.insert(snapshot(1, 9, 4));
        assert_eq!(models.get("main"), Some(&snapshot(2, 5, 4)));
        assert_eq!(models.apply("status", b""), Ok(Update::Other));
    }

    #[test]
    fn a_variance_that_is_left_out_follows_the_scale() {
        let mut models = Models::default();
        models.insert(snapshot(1, 1, 2));
        let mut scaled = snapshot(1, 2, 2);
        scaled.hyperparameters.kernel.signal_variance *= 4.0;
        scaled.hyperparameters.kernel.bias_variance *= 4.0;
        models.apply("weights.main", &change(&scaled, 2, false)).unwrap();
        let at = |s: &Snapshot| s.evaluate(&[0.5, 7.0], Ask::VARIANCE).unwrap().variance.unwrap()[0];
        let ratio = at(models.get("main").unwrap()) / at(&snapshot(1, 1, 2));
        assert!((ratio - 4.0).abs() < 1e-12, "{ratio}");
    }
}
