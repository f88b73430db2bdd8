//! A policy in another process, asked what it does in states. `proto/README.md` has the two messages ("Policies that answer");
//! `criticd.policies.PolicyServer` in Python is the other end.

use crate::endpoint::{Endpoint, EndpointError};
use crate::sockets::{ConnectionError, Req};
use crate::wire::{PolicyReply, WireError, decode_policy_reply, encode_policy_request};
use criticd_learner::action::Column;
use std::io;
use std::time::Duration;

/// States that one request has at most.
pub const STATES_PER_REQUEST: usize = 4096;
/// Bytes of one reply, at most: 16 KiB for each state.
const REPLY_BYTES_MAX: usize = 64 << 20;
/// Characters of a server's words that are passed on.
const WORDS: usize = 1000;

/// Why a policy has not answered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PolicyError {
    /// The address is none.
    #[error("{0}")]
    Endpoint(#[from] EndpointError),
    /// Nobody answers there.
    #[error(
        "no policy answers at {0}: start its server first, a criticd.policies.PolicyServer or `python -m \
         criticd.policies FILE.onnx --bind {0}`"
    )]
    NoServer(Endpoint),
    /// There was no reply in time.
    #[error("the policy at {endpoint} has not answered in {states} states within {:.1} s", .timeout.as_secs_f64())]
    Silent {
        /// Who was asked.
        endpoint: Endpoint,
        /// In how many states.
        states: usize,
        /// How long was waited.
        timeout: Duration,
    },
    /// The connection has gone.
    #[error("the policy at {0} has closed the connection without an answer")]
    Lost(Endpoint),
    /// The policy failed.
    #[error("the policy at {endpoint} failed: {message}")]
    Failed {
        /// Who was asked.
        endpoint: Endpoint,
        /// The server's words.
        message: String,
    },
    /// What came is no reply.
    #[error("the policy at {endpoint} sent what cannot be read: {error}")]
    Malformed {
        /// Who was asked.
        endpoint: Endpoint,
        /// What is wrong with it.
        #[source]
        error: Box<WireError>,
    },
    /// The reply does not answer what was asked.
    #[error("the policy at {endpoint} {message}")]
    Wrong {
        /// Who was asked.
        endpoint: Endpoint,
        /// What is wrong with it, in words.
        message: String,
    },
    /// A runtime could not be made.
    #[error("cannot ask a policy: {0}")]
    Internal(#[source] io::Error),
}

/// Asks the server of a policy: a REQ socket to its REP socket.
pub struct PolicyClient {
    socket: Req,
    endpoint: Endpoint,
}

impl PolicyClient {
    /// Connect within `timeout`.
    ///
    /// # Errors
    /// If `endpoint` is none or nobody answers there.
    pub fn connect(endpoint: &str, timeout: Duration) -> Result<Self, PolicyError> {
        let endpoint: Endpoint = endpoint.parse()?;
        let socket = Req::connect(&endpoint, timeout).map_err(of_connection)?;
        Ok(Self { socket, endpoint })
    }

    /// What the policy does in `states` (n, `dim`): probabilities of C discrete actions (n, C), or actions (n, A). It is asked
    /// piece by piece, and may take `timeout` for each [`STATES_PER_REQUEST`] states.
    ///
    /// # Errors
    /// If it does not answer in time, fails, or answers with another number of rows than it was asked for, with rows of
    /// different lengths or with what is no finite number. After an error the client can only be dropped.
    ///
    /// # Panics
    /// If a state has no numbers.
    pub fn ask(&mut self, states: &[f64], dim: usize, timeout: Duration) -> Result<Column, PolicyError> {
        let mut found = Column::default();
        for (k, piece) in states.chunks(STATES_PER_REQUEST * dim).enumerate() {
            let answers = self.exchange(piece, dim, timeout)?;
            let first = k * STATES_PER_REQUEST;
            self.check(&answers, first, piece.len() / dim)?;
            if k > 0 && answers.width != found.width {
                let message = format!(
                    "answers state {} with {} numbers, and those before with {}",
                    first + 1,
                    answers.width,
                    found.width
                );
                return Err(self.wrong(message));
            }
            found.width = answers.width;
            found.values.extend(answers.values);
        }
        Ok(found)
    }

    fn exchange(&mut self, states: &[f64], dim: usize, timeout: Duration) -> Result<Column, PolicyError> {
        let question = encode_policy_request(states, dim);
        let reply = self.socket.ask(&question, timeout, REPLY_BYTES_MAX).map_err(of_connection)?;
        let endpoint = self.endpoint.clone();
        let Some(reply) = reply else {
            return Err(PolicyError::Silent { endpoint, states: states.len() / dim, timeout });
        };
        match decode_policy_reply(&reply) {
            Ok(PolicyReply::Answers(answers)) => Ok(answers),
            Ok(PolicyReply::Failed(message)) => {
                Err(PolicyError::Failed { endpoint, message: message.chars().take(WORDS).collect() })
            }
            Err(error) => Err(PolicyError::Malformed { endpoint, error: Box::new(error) }),
        }
    }

    /// Check the answers in `count` states from number `first` on.
    fn check(&self, answers: &Column, first: usize, count: usize) -> Result<(), PolicyError> {
        let rows = answers.values.len() / answers.width;
        if rows != count {
            return Err(self.wrong(format!("answers {count} states with {rows} rows")));
        }
        match answers.values.iter().position(|value| !value.is_finite()) {
            Some(k) => {
                let state = first + k / answers.width + 1;
                Err(self.wrong(format!("answers state {state} with {}, which is no finite number", answers.values[k])))
            }
            None => Ok(()),
        }
    }

    fn wrong(&self, message: String) -> PolicyError {
        PolicyError::Wrong { endpoint: self.endpoint.clone(), message }
    }
}

fn of_connection(error: ConnectionError) -> PolicyError {
    match error {
        ConnectionError::NoAnswer(endpoint) => PolicyError::NoServer(endpoint),
        ConnectionError::Lost(endpoint) | ConnectionError::NotWritten(endpoint) => PolicyError::Lost(endpoint),
        ConnectionError::Foreign(endpoint) => {
            let message = "does not answer as a REP socket of ZeroMQ does".to_owned();
            PolicyError::Wrong { endpoint, message }
        }
        ConnectionError::TooLong { endpoint, bytes_max } => {
            PolicyError::Wrong { endpoint, message: format!("answers with more than {bytes_max} bytes") }
        }
        ConnectionError::Internal(e) => PolicyError::Internal(e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire;
    use serde_json::{Value, json};
    use zeromq::{RepSocket, Socket, SocketRecv, SocketSend};

    const PATIENCE: Duration = Duration::from_secs(120);
    /// For what does not come.
    const SHORT: Duration = Duration::from_millis(300);

    /// The endpoint of a server that replies with what `reply` makes of each request, and of nothing not at all.
    fn serve(reply: impl Fn(&Value) -> Option<Vec<u8>> + Send + 'static) -> String {
        let (sender, endpoint) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let mut socket = RepSocket::new();
                sender.send(socket.bind("tcp://127.0.0.1:0").await.unwrap().to_string()).unwrap();
                while let Ok(request) = socket.recv().await {
                    let request = wire::to_json(request.get(0).unwrap()).unwrap();
                    match reply(&request) {
                        Some(bytes) => socket.send(bytes.into()).await.unwrap(),
                        None => std::future::pending().await,
                    }
                }
            });
        });
        endpoint.recv().unwrap()
    }

    fn packed(reply: Value) -> Option<Vec<u8>> {
        Some(rmp_serde::to_vec(&reply).unwrap())
    }

    fn asked(endpoint: &str, states: &[f64], timeout: Duration) -> Result<Column, PolicyError> {
        PolicyClient::connect(endpoint, PATIENCE)?.ask(states, 2, timeout)
    }

    fn states_of(request: &Value) -> Vec<Value> {
        assert_eq!(request["v"], 1);
        request["states"].as_array().unwrap().clone()
    }

    #[test]
    fn answers_come_piece_by_piece_and_in_order() {
        let endpoint = serve(|request| {
            let states = states_of(request);
            assert!(states.len() <= STATES_PER_REQUEST);
            let rows: Vec<Value> = states.iter().map(|state| json!([state[1], state[0]])).collect();
            packed(json!({"v": 1, "policy": rows}))
        });
        let states: Vec<f64> = (0..2 * 9000).map(|k| f64::from(k) / 7.0).collect();
        let found = asked(&endpoint, &states, PATIENCE).unwrap();
        assert_eq!((found.width, found.values.len()), (2, states.len()));
        assert!(states.chunks(2).zip(found.values.chunks(2)).all(|(x, y)| (x[0], x[1]) == (y[1], y[0])));
        assert_eq!(asked(&endpoint, &[], PATIENCE).unwrap(), Column::default(), "nobody is asked for nothing");
        let one = serve(|request| packed(json!({"v": 1, "policy": vec![3; states_of(request).len()], "more": null})));
        let found = asked(&one, &[0.5, 0.25, 1.0, 2.0], PATIENCE).unwrap();
        assert_eq!(found, Column { width: 1, values: vec![3.0, 3.0] }, "one number for each state is an action");
    }

    #[test]
    fn what_is_no_answer_is_said() {
        let said = |reply: Option<Vec<u8>>| {
            let timeout = if reply.is_some() { PATIENCE } else { SHORT };
            let endpoint = serve(move |_| reply.clone());
            let message = asked(&endpoint, &[0.5, 0.25, 1.0, 2.0], timeout).unwrap_err().to_string();
            assert!(message.contains(&endpoint), "{message}");
            message
        };
        let cases = [
            (Some(b"hello".to_vec()), "cannot be read: malformed"),
            (packed(json!({"policy": [[1.0], [2.0]]})), "missing_field v"),
            (packed(json!({"v": 2, "policy": [[1.0], [2.0]]})), "must be 1"),
            (packed(json!({"v": 1})), "missing_field policy"),
            (packed(json!({"v": 1, "policy": 3.0})), "a number or an array for each state"),
            (packed(json!({"v": 1, "policy": "left"})), "must be numbers"),
            (packed(json!({"v": 1, "policy": [[1.0, 2.0], [3.0]]})), "wrong_shape policy"),
            (packed(json!({"v": 1, "policy": [[], []]})), "a number or an array for each state"),
            (packed(json!({"v": 1, "policy": [1, 2, 3]})), "answers 2 states with 3 rows"),
            (packed(json!({"v": 1, "error": {"message": "ValueError: no net"}})), "failed: ValueError: no net"),
            (None, "has not answered in 2 states within 0.3 s"),
        ];
        for (reply, part) in cases {
            let message = said(reply);
            assert!(message.contains(part), "{message}");
        }
        let infinite =
            rmp_serde::to_vec(&std::collections::BTreeMap::from([("policy", [1.0, f64::INFINITY])])).unwrap();
        let infinite = [&b"\x82\xa1v\x01"[..], &infinite[1..]].concat();
        let message = said(Some(infinite));
        assert!(message.contains("answers state 2 with inf, which is no finite number"), "{message}");
    }

    /// What a REP socket sends first, and then.
    fn greeting() -> Vec<u8> {
        let mut greeting = b"\xff\0\0\0\0\0\0\0\x01\x7f\x03\x01NULL".to_vec();
        greeting.resize(64, 0);
        greeting
    }

    const READY: &[u8] = b"\x04\x19\x05READY\x0bSocket-Type\0\0\0\x03REP";

    /// What the client says of a server by hand, which sends `first`, and when it is asked `reply`, again and again if it is `endless`.
    /// The client waits for the handshake as long as `shake` says, and for the answer as long as `answer`.
    fn said_of(first: Vec<u8>, reply: Vec<u8>, endless: bool, [shake, answer]: [Duration; 2]) -> String {
        use std::io::{Read as _, Write as _};
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("tcp://{}", listener.local_addr().unwrap());
        std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&first).unwrap();
            let (mut asked, mut read) = (Vec::new(), [0; 4096]);
            while !asked.windows(6).any(|part| part == b"states") {
                match stream.read(&mut read) {
                    Ok(n @ 1..) => asked.extend_from_slice(&read[..n]),
                    _ => return,
                }
            }
            while stream.write_all(&reply).is_ok() && endless {}
            // Until the client has gone.
            while matches!(stream.read(&mut read), Ok(1..)) {}
        });
        let asked = PolicyClient::connect(&endpoint, shake).and_then(|mut client| client.ask(&[0.5, 1.0], 2, answer));
        asked.unwrap_err().to_string()
    }

    #[test]
    fn servers_that_mean_ill_cost_neither_memory_nor_time() {
        let shaken = || [&greeting()[..], READY].concat();
        let long = |length: u64| [&b"\x01\0\x02"[..], &length.to_be_bytes(), &[7; 100]].concat();
        let mut cases = vec![
            (b"HTTP/1.1 400 Bad Request\r\n\r\n".repeat(3), vec![], false, "no policy answers"),
            (vec![], vec![], false, "no policy answers"),
            (greeting(), vec![], false, "no policy answers"),
            (shaken(), b"\x01\x40".repeat(33), true, "REP socket"),
            (shaken(), b"\x04\x07\x04PING\0\0".to_vec(), true, "answers with more than"),
            (shaken(), b"\x00\x00".to_vec(), false, "REP socket"),
            (shaken(), b"\x01\x00\x01\x00\x00\x00".to_vec(), false, "REP socket"),
            (shaken(), b"\xf0\x00".to_vec(), false, "REP socket"),
            (shaken(), b"\x01\x00\x00\x09half".to_vec(), false, "has not answered in 1 states within 0.3 s"),
        ];
        // The server claims these lengths, and the client makes no room for them.
        cases.extend(
            [1 << 27, 1 << 36, 1 << 60, u64::MAX].map(|n| (shaken(), long(n), false, "answers with more than")),
        );
        for (first, reply, endless, part) in cases {
            // The client waits in vain for the handshake of one server, and for the end of another one's answer.
            let patience = match part {
                "no policy answers" => [SHORT, PATIENCE],
                _ if reply.ends_with(b"half") => [PATIENCE, SHORT],
                _ => [PATIENCE; 2],
            };
            let message = said_of(first, reply.clone(), endless, patience);
            assert!(message.contains(part), "{message} after {:?}", &reply[..reply.len().min(20)]);
        }
        let words = packed(json!({"v": 1, "error": {"message": "no".repeat(1 << 20)}})).unwrap();
        let reply = [&b"\x01\0\x02"[..], &(words.len() as u64).to_be_bytes(), &words].concat();
        assert!(said_of(shaken(), reply, false, [PATIENCE; 2]).len() < 1200);
    }

    #[test]
    fn a_width_that_changes_and_a_server_that_is_not_there_are_said() {
        let endpoint = serve(|request| {
            let count = states_of(request).len();
            let width = if count == STATES_PER_REQUEST { 2 } else { 3 };
            packed(json!({"v": 1, "policy": vec![vec![0.5; width]; count]}))
        });
        let message = asked(&endpoint, &vec![0.0; 2 * STATES_PER_REQUEST + 2], PATIENCE).unwrap_err().to_string();
        assert!(message.contains("answers state 4097 with 3 numbers, and those before with 2"), "{message}");
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let refused = PolicyClient::connect(&format!("tcp://{nobody}"), Duration::from_millis(200)).map(drop);
        let message = refused.unwrap_err().to_string();
        assert!(
            message.contains(&format!("`python -m criticd.policies FILE.onnx --bind tcp://{nobody}`")),
            "{message}"
        );
        assert!(PolicyClient::connect("policy", PATIENCE).is_err());
    }
}
