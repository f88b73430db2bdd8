//! A REQ socket by hand: of one question and its answer there is so little in ZMTP that all of it can be bounded. A socket of
//! `zeromq` makes room for a message as soon as the other end says how long it will be, and the server of a policy need not be a
//! friend.
//!
//! ```text
//! greeting, READY               <->  greeting, READY                            ZMTP 3.0, mechanism NULL
//! empty frame, question          ->
//!                               <-   empty frame, answer
//! ```

use super::ConnectionError;
use crate::endpoint::Endpoint;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

const GREETING_BYTES: usize = 64;
/// Bytes of all commands together, of the handshake and about an answer each.
const COMMANDS_BYTES: u64 = 4096;
/// What a frame counts beside its bytes.
const FRAME_BYTES: u64 = 16;
/// Memory for an answer grows by so much at a time, as it comes.
const CHUNK: usize = 64 << 10;
/// Until a server that starts is looked for again.
const PAUSE: Duration = Duration::from_millis(20);

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// A REQ socket: one question, then its answer. It works on the caller's thread, while that waits.
pub struct Req {
    stream: Box<dyn Stream>,
    endpoint: Endpoint,
}

trait Stream: Read + Write + Send {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()>;
}

impl Stream for TcpStream {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout)).and_then(|()| self.set_write_timeout(Some(timeout)))
    }
}

impl Stream for UnixStream {
    fn set_timeouts(&self, timeout: Duration) -> io::Result<()> {
        self.set_read_timeout(Some(timeout)).and_then(|()| self.set_write_timeout(Some(timeout)))
    }
}

/// Why there is no answer.
enum ReqFault {
    Late,
    Gone,
    /// What came is not what a REP socket sends.
    Foreign,
    TooLong,
}

impl From<io::Error> for ReqFault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => Self::Late,
            _ => Self::Gone,
        }
    }
}

struct ReqFrame {
    flags: u8,
    body: Vec<u8>,
}

impl Req {
    /// Connect within `timeout`, looking again for who does not listen yet.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn connect(endpoint: &Endpoint, timeout: Duration) -> Result<Self, ConnectionError> {
        let deadline = Instant::now() + timeout;
        let no_answer = || ConnectionError::NoAnswer(endpoint.clone());
        let stream = open(endpoint, deadline).map_err(|_| no_answer())?;
        let mut socket = Self { stream, endpoint: endpoint.clone() };
        socket.shake_hands(deadline).map_err(|_| no_answer())?;
        Ok(socket)
    }

    /// The answer to `question`, of at most `bytes_max` bytes; `None` if it does not come within `timeout`. Then, and after an
    /// error, the socket can only be dropped.
    ///
    /// # Errors
    /// If the connection has gone, or what comes is no answer, or longer than it may be.
    pub fn ask(
        &mut self,
        question: &[u8],
        timeout: Duration,
        bytes_max: usize,
    ) -> Result<Option<Vec<u8>>, ConnectionError> {
        match self.exchange(question, bytes_max as u64, Instant::now() + timeout) {
            Ok(answer) => Ok(Some(answer)),
            Err(ReqFault::Late) => Ok(None),
            Err(ReqFault::Gone) => Err(ConnectionError::Lost(self.endpoint.clone())),
            Err(ReqFault::Foreign) => Err(ConnectionError::Foreign(self.endpoint.clone())),
            Err(ReqFault::TooLong) => Err(ConnectionError::TooLong { endpoint: self.endpoint.clone(), bytes_max }),
        }
    }

    fn shake_hands(&mut self, deadline: Instant) -> Result<(), ReqFault> {
        let mut greeting = [0; GREETING_BYTES];
        greeting[..12].copy_from_slice(&[0xff, 0, 0, 0, 0, 0, 0, 0, 1, 0x7f, 3, 0]);
        greeting[12..16].copy_from_slice(b"NULL");
        self.write(&greeting, deadline)?;
        let theirs = self.read(GREETING_BYTES as u64, deadline)?;
        let is_ours = theirs[0] == 0xff && theirs[9] & 1 == 1 && theirs[10] >= 3;
        if !is_ours || theirs[12..32] != greeting[12..32] {
            return Err(ReqFault::Foreign);
        }
        let ready = [&b"\x05READY"[..], &property(b"Socket-Type", b"REQ"), &property(b"Identity", b"")].concat();
        self.send(COMMAND, &ready, deadline)?;
        let theirs = self.frame(COMMANDS_BYTES, deadline)?;
        let is_ready = theirs.flags & COMMAND != 0 && theirs.body.starts_with(b"\x05READY");
        if is_ready { Ok(()) } else { Err(ReqFault::Foreign) }
    }

    fn exchange(&mut self, question: &[u8], bytes_max: u64, deadline: Instant) -> Result<Vec<u8>, ReqFault> {
        self.send(MORE, b"", deadline)?;
        self.send(0, question, deadline)?;
        let mut left = COMMANDS_BYTES;
        let mut next = |socket: &mut Self, most: u64| -> Result<ReqFrame, ReqFault> {
            loop {
                let frame = socket.frame(most.max(left), deadline)?;
                if frame.flags & COMMAND == 0 {
                    return Ok(frame);
                }
                left = left.checked_sub(frame.body.len() as u64 + FRAME_BYTES).ok_or(ReqFault::TooLong)?;
                // Its heartbeat: behind the name stands how long it waits, and what it wants to hear again.
                if let Some([_, _, context @ ..]) = frame.body.strip_prefix(b"\x04PING") {
                    socket.send(COMMAND, &[&b"\x04PONG"[..], context].concat(), deadline)?;
                }
            }
        };
        let delimiter = next(self, 0)?;
        if delimiter.flags & MORE == 0 || !delimiter.body.is_empty() {
            return Err(ReqFault::Foreign);
        }
        let answer = next(self, bytes_max)?;
        if answer.flags & MORE == 0 { Ok(answer.body) } else { Err(ReqFault::Foreign) }
    }

    /// The next frame, of at most `bytes_max` bytes.
    fn frame(&mut self, bytes_max: u64, deadline: Instant) -> Result<ReqFrame, ReqFault> {
        let flags = self.read(1, deadline)?[0];
        if flags & !(MORE | LONG | COMMAND) != 0 {
            return Err(ReqFault::Foreign);
        }
        let width = if flags & LONG != 0 { 8 } else { 1 };
        let length = self.read(width, deadline)?.iter().fold(0, |length, &byte| length << 8 | u64::from(byte));
        if length > bytes_max {
            return Err(ReqFault::TooLong);
        }
        Ok(ReqFrame { flags, body: self.read(length, deadline)? })
    }

    fn send(&mut self, flags: u8, body: &[u8], deadline: Instant) -> Result<(), ReqFault> {
        match u8::try_from(body.len()) {
            Ok(length) => self.write(&[flags, length], deadline)?,
            Err(_) => {
                let length = (body.len() as u64).to_be_bytes();
                self.write(&[&[flags | LONG][..], &length].concat(), deadline)?;
            }
        }
        self.write(body, deadline)
    }

    /// Read a number of bytes, into memory that grows as they come.
    fn read(&mut self, bytes: u64, deadline: Instant) -> Result<Vec<u8>, ReqFault> {
        let (mut found, bytes) = (Vec::new(), usize::try_from(bytes).map_err(|_| ReqFault::TooLong)?);
        while found.len() < bytes {
            let from = found.len();
            found.resize(bytes.min(from + CHUNK), 0);
            self.stream.set_timeouts(left(deadline)?)?;
            match self.stream.read(&mut found[from..]) {
                Ok(0) => return Err(ReqFault::Gone),
                Ok(n) => found.truncate(from + n),
                Err(e) if e.kind() == ErrorKind::Interrupted => found.truncate(from),
                Err(e) => return Err(e.into()),
            }
        }
        Ok(found)
    }

    fn write(&mut self, mut bytes: &[u8], deadline: Instant) -> Result<(), ReqFault> {
        while !bytes.is_empty() {
            self.stream.set_timeouts(left(deadline)?)?;
            match self.stream.write(bytes) {
                Ok(0) => return Err(ReqFault::Gone),
                Ok(n) => bytes = &bytes[n..],
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(())
    }
}

fn open(endpoint: &Endpoint, deadline: Instant) -> Result<Box<dyn Stream>, ReqFault> {
    loop {
        match open_once(endpoint, deadline) {
            Err(ReqFault::Gone) => std::thread::sleep(PAUSE.min(left(deadline)?)),
            opened => return opened,
        }
    }
}

fn open_once(endpoint: &Endpoint, deadline: Instant) -> Result<Box<dyn Stream>, ReqFault> {
    match endpoint {
        Endpoint::Ipc(path) => Ok(Box::new(UnixStream::connect(path)?)),
        Endpoint::Tcp { host, port } => {
            for address in (host.as_str(), *port).to_socket_addrs()? {
                if let Ok(stream) = TcpStream::connect_timeout(&address, left(deadline)?) {
                    stream.set_nodelay(true)?;
                    return Ok(Box::new(stream));
                }
            }
            Err(ReqFault::Gone)
        }
    }
}

/// Time until then, not zero.
fn left(deadline: Instant) -> Result<Duration, ReqFault> {
    Some(deadline.saturating_duration_since(Instant::now())).filter(|left| !left.is_zero()).ok_or(ReqFault::Late)
}

fn property(name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[name.len() as u8], name, &(value.len() as u32).to_be_bytes(), value].concat()
}
