//! The bytes of ZMTP 3.x: greeting, READY, frames, commands.
//!
//! Nothing here reads or writes a socket. The protocol is ZeroMQ's RFC 23 (3.0) and RFC 37 (3.1), mechanism NULL.

use super::{PeerLimits, Reason, SHORT_BYTES, SocketName};
use bytes::BytesMut;

/// Length of a greeting in bytes.
pub(super) const GREETING_LEN: usize = 64;

/// Longest body of a command or of a subscription in bytes.
const CAPTURED_BYTES_MAX: u64 = 4096;

/// PONGs waiting for a place between two messages, in bytes; beyond it they are left out.
const PONGS_BYTES_MAX: usize = 1024;

/// Longest context of a PING in bytes (RFC 37).
const PING_CONTEXT_MAX: usize = 16;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// Our greeting: version 3.1, mechanism NULL.
pub(super) fn greeting() -> [u8; GREETING_LEN] {
    let mut bytes = [0; GREETING_LEN];
    bytes[0] = 0xff;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    bytes[11] = 1;
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

/// Check that a peer's greeting is one we can talk to with this mechanism.
pub(super) fn check_greeting(bytes: &[u8], mechanism: &[u8]) -> Result<(), Reason> {
    assert_eq!(bytes.len(), GREETING_LEN, "the caller waited for a whole greeting");
    if bytes[0] != 0xff || bytes[9] != 0x7f {
        return Err(Reason::BadGreeting);
    }
    if bytes[10] < 3 {
        return Err(Reason::UnsupportedVersion);
    }
    let (name, padding) = bytes[12..32].split_at(mechanism.len());
    if name != mechanism || padding.iter().any(|&b| b != 0) {
        return Err(Reason::UnsupportedMechanism);
    }
    Ok(())
}

/// Our READY command as a whole frame.
pub(super) fn ready(socket_type: &str) -> Vec<u8> {
    let len = u32::try_from(socket_type.len()).expect("names are short");
    command(&[b"\x05READY\x0bSocket-Type", &len.to_be_bytes()[..], socket_type.as_bytes()].concat())
}

/// A short command frame around `body`.
fn command(body: &[u8]) -> Vec<u8> {
    let len = u8::try_from(body.len()).expect("the commands we write are short");
    [&[COMMAND, len], body].concat()
}

/// A PONG that answers `context`.
pub(super) fn pong(context: &[u8]) -> Vec<u8> {
    command(&[b"\x04PONG", context].concat())
}

/// What a peer said of itself.
#[derive(Debug, PartialEq)]
pub(super) struct Ready {
    pub(super) socket_type: Vec<u8>,
    pub(super) identity: Vec<u8>,
}

/// Read the body of a READY command; property names are compared without case, others than ours are ignored.
pub(super) fn parse_ready(body: &[u8]) -> Result<Ready, Reason> {
    let mut rest = body.strip_prefix(b"\x05READY".as_slice()).ok_or(Reason::BadReady)?;
    let mut ready = Ready { socket_type: Vec::new(), identity: Vec::new() };
    while let Some((&name_len, after)) = rest.split_first() {
        let (name, after) = after.split_at_checked(name_len.into()).ok_or(Reason::BadReady)?;
        let (value_len, after) = after.split_first_chunk::<4>().ok_or(Reason::BadReady)?;
        let value_len = usize::try_from(u32::from_be_bytes(*value_len)).map_err(|_| Reason::BadReady)?;
        let (value, after) = after.split_at_checked(value_len).ok_or(Reason::BadReady)?;
        if name.eq_ignore_ascii_case(b"Socket-Type") {
            ready.socket_type = value.to_vec();
        } else if name.eq_ignore_ascii_case(b"Identity") {
            ready.identity = value.to_vec();
        }
        rest = after;
    }
    Ok(ready)
}

/// A frame's header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    flags: u8,
    /// Length of the body in bytes, as announced: nothing is allocated by it.
    pub(super) len: u64,
}

impl Header {
    /// Whether the frame is a command.
    pub(super) fn is_command(self) -> bool {
        self.flags & COMMAND != 0
    }

    /// Whether the message goes on after this frame.
    fn more(self) -> bool {
        self.flags & MORE != 0
    }
}

/// Write the header of a frame of `len` bytes, of which further ones follow if there is `more`.
pub(super) fn write_header(more: bool, len: usize, out: &mut BytesMut) {
    let flags = if more { MORE } else { 0 };
    match u8::try_from(len) {
        Ok(short) => out.extend_from_slice(&[flags, short]),
        Err(_) => {
            out.extend_from_slice(&[flags | LONG]);
            out.extend_from_slice(&(len as u64).to_be_bytes());
        }
    }
}

/// Collects a frame's header, byte by byte if need be.
#[derive(Debug, Default)]
pub(super) struct HeaderReader {
    bytes: [u8; 9],
    have: usize,
}

impl HeaderReader {
    /// Whether no byte of a header has come.
    pub(super) fn is_empty(&self) -> bool {
        self.have == 0
    }

    /// Take bytes from the front of `input`; `None` if the header is not whole yet.
    ///
    /// # Errors
    /// [`Reason::ReservedFlags`] if bits are set that no version we speak has, or a command pretends to go on.
    pub(super) fn take(&mut self, input: &mut &[u8]) -> Result<Option<Header>, Reason> {
        while let Some((&byte, rest)) = input.split_first() {
            self.bytes[self.have] = byte;
            self.have += 1;
            *input = rest;
            let flags = self.bytes[0];
            if flags & !(MORE | LONG | COMMAND) != 0 || flags & (MORE | COMMAND) == MORE | COMMAND {
                self.have = 0;
                return Err(Reason::ReservedFlags);
            }
            let long = flags & LONG != 0;
            if self.have == if long { 9 } else { 2 } {
                self.have = 0;
                let len = if long {
                    u64::from_be_bytes(self.bytes[1..].try_into().expect("eight of nine bytes"))
                } else {
                    self.bytes[1].into()
                };
                return Ok(Some(Header { flags, len }));
            }
        }
        Ok(None)
    }
}

/// What a peer has sent.
#[derive(Debug, PartialEq)]
pub(super) enum Sent {
    /// The greeting was right: ours may follow with a READY.
    Greeting,
    /// The end of its handshake.
    Ready(Ready),
    Message(Message),
    /// A subscriber asks for what begins so.
    Subscribe(Vec<u8>),
    /// It asks for it no more.
    Cancel(Vec<u8>),
}

/// A whole message. Only messages of one frame, and messages whose first frame is empty, have a meaning here: the frames are joined.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Message {
    pub(super) body: Vec<u8>,
    parts: usize,
    /// Length of the first frame.
    first: usize,
}

impl Message {
    /// A producer's message has one frame.
    pub(super) fn row(self) -> Option<Vec<u8>> {
        (self.parts == 1).then_some(self.body)
    }

    /// A request is one frame, or an empty one and another: whether there is the empty one, and the other.
    pub(super) fn request(self) -> Option<(bool, Vec<u8>)> {
        let delimiter = match (self.parts, self.first) {
            (1, 1..) => false,
            (2, 0) => true,
            _ => return None,
        };
        Some((delimiter, self.body))
    }
}

/// What a peer has to send next.
#[derive(Debug, PartialEq)]
enum Stage {
    Greeting,
    Ready,
    Messages,
}

/// Reads what a peer sends: checks its handshake, makes messages within the limits, answers PING, keeps commands.
#[derive(Debug)]
pub(super) struct Scanner {
    stage: Stage,
    ready_bytes_max: u64,
    frame_bytes_max: u64,
    message_bytes_max: u64,
    parts_max: usize,
    /// Whether the messages are subscriptions.
    of_subscriber: bool,
    header: HeaderReader,
    /// The frame being read and how much of its body is missing.
    frame: Option<(Header, u64)>,
    /// Bytes of the message under way, as its frames say, and what has come of it.
    message_bytes: u64,
    message: Message,
    /// Messages that have come whole.
    pub(super) whole: u64,
    /// What has come of a greeting or of a command.
    command: Vec<u8>,
    /// Whether the peer has sent a PING.
    pub(super) pings: bool,
    /// PONG frames to send to the peer.
    pub(super) pongs: Vec<u8>,
    /// Commands and subscriptions so far, modulo 2^32.
    pub(super) commands: u32,
}

impl Scanner {
    pub(super) fn new(limits: &PeerLimits, socket: SocketName) -> Self {
        Self {
            stage: Stage::Greeting,
            ready_bytes_max: limits.handshake_bytes_max.saturating_sub(GREETING_LEN) as u64,
            frame_bytes_max: limits.frame_bytes_max as u64,
            message_bytes_max: limits.message_bytes_max as u64,
            parts_max: limits.parts_max,
            of_subscriber: socket == SocketName::Publish,
            header: HeaderReader::default(),
            frame: None,
            message_bytes: 0,
            message: Message::default(),
            whole: 0,
            command: Vec::new(),
            pings: false,
            pongs: Vec::new(),
            commands: 0,
        }
    }

    /// The same for a peer that is behind its handshake.
    pub(super) fn introduced(limits: &PeerLimits, socket: SocketName) -> Self {
        Self { stage: Stage::Messages, ..Self::new(limits, socket) }
    }

    /// Whether its READY was read.
    pub(super) fn is_introduced(&self) -> bool {
        self.stage == Stage::Messages
    }

    /// Bytes of the message under way; 0 between messages. A long one of which further frames follow counts as long as it may become,
    /// so that it never has to ask for more.
    pub(super) fn unfinished(&self) -> u64 {
        let is_last = self.frame.is_some_and(|(header, _)| !header.is_command() && !header.more());
        if is_last || self.message_bytes <= SHORT_BYTES as u64 { self.message_bytes } else { self.message_bytes_max }
    }

    /// Bytes that have come of a message that is not whole, headers of frames left out; `None` between two messages or commands.
    pub(super) fn begun(&self) -> Option<u64> {
        let is_between = self.message.parts == 0 && self.frame.is_none() && self.header.is_empty();
        (!is_between).then_some(self.message.body.len() as u64)
    }

    /// Make memory for the whole frame that is under way: its message has its turn.
    pub(super) fn reserve(&mut self) {
        if let Some((header, missing)) = self.frame
            && !header.is_command()
        {
            self.message.body.reserve_exact(usize::try_from(missing).expect("it is within the limits"));
        }
    }

    /// The peer sends nothing more: what has come of a message never becomes whole.
    pub(super) fn end(&mut self) {
        (self.message_bytes, self.message, self.frame) = (0, Message::default(), None);
    }

    /// Take what comes next from the front of `input`; `None` once all has been read.
    ///
    /// # Errors
    /// Why the peer must be cut. What was given before the fault is sound.
    pub(super) fn next(&mut self, input: &mut &[u8]) -> Result<Option<Sent>, Reason> {
        if self.stage == Stage::Greeting {
            let (greeting, rest) = input.split_at(input.len().min(GREETING_LEN - self.command.len()));
            self.command.extend_from_slice(greeting);
            *input = rest;
            if self.command.len() < GREETING_LEN {
                return Ok(None);
            }
            check_greeting(&std::mem::take(&mut self.command), b"NULL")?;
            self.stage = Stage::Ready;
            return Ok(Some(Sent::Greeting));
        }
        loop {
            let (header, missing) = match self.frame.take() {
                Some(frame) => frame,
                None => {
                    let Some(header) = self.header.take(input)? else { return Ok(None) };
                    self.open(header)?;
                    (header, header.len)
                }
            };
            let (body, rest) = input.split_at(usize::try_from(missing).unwrap_or(usize::MAX).min(input.len()));
            let come = if header.is_command() { &mut self.command } else { &mut self.message.body };
            // No more than has come, where a long message has no memory yet.
            come.reserve_exact(body.len());
            come.extend_from_slice(body);
            *input = rest;
            let missing = missing - body.len() as u64;
            if missing > 0 {
                self.frame = Some((header, missing));
                return Ok(None);
            }
            if let Some(sent) = self.close(header)? {
                return Ok(Some(sent));
            }
        }
    }

    /// Bytes that it holds: a command or a message that is not whole yet, PONGs.
    pub(super) fn held_bytes(&self) -> usize {
        self.command.capacity() + self.message.body.capacity() + self.pongs.capacity()
    }

    /// Judge a frame by its header.
    fn open(&mut self, header: Header) -> Result<(), Reason> {
        if self.stage == Stage::Ready {
            return match header.is_command() {
                false => Err(Reason::BadReady),
                true if header.len > self.ready_bytes_max => Err(Reason::HandshakeTooLong),
                true => Ok(()),
            };
        }
        if (header.is_command() || self.of_subscriber) && header.len > CAPTURED_BYTES_MAX {
            return Err(Reason::FrameTooLarge);
        }
        if header.is_command() {
            return Ok(());
        }
        // A frame within its limit cannot overflow the sum.
        if header.len > self.frame_bytes_max {
            return Err(Reason::FrameTooLarge);
        }
        self.message_bytes += header.len;
        self.message.parts += 1;
        if self.message_bytes > self.message_bytes_max {
            return Err(Reason::MessageTooLarge);
        }
        if self.message.parts > self.parts_max {
            return Err(Reason::TooManyParts);
        }
        let len = usize::try_from(header.len).expect("it is within the limits");
        if self.message.parts == 1 {
            self.message.first = len;
        }
        // A longer one has to wait for its turn.
        if self.message_bytes <= SHORT_BYTES as u64 {
            self.message.body.reserve_exact(len);
        }
        Ok(())
    }

    /// A frame is whole. A command may stand between two frames of a message, which goes on after it.
    fn close(&mut self, header: Header) -> Result<Option<Sent>, Reason> {
        if header.is_command() {
            let body = std::mem::take(&mut self.command);
            if self.stage == Stage::Ready {
                self.stage = Stage::Messages;
                return parse_ready(&body).map(|ready| Some(Sent::Ready(ready)));
            }
            self.commands = self.commands.wrapping_add(1);
            return self.on_command(&body);
        }
        if self.of_subscriber {
            self.commands = self.commands.wrapping_add(1);
        } else if header.more() {
            return Ok(None);
        }
        (self.message_bytes, self.whole) = (0, self.whole + 1);
        let message = std::mem::take(&mut self.message);
        if self.of_subscriber {
            subscription(header, &message.body).map(Some)
        } else {
            Ok(Some(Sent::Message(message)))
        }
    }

    fn on_command(&mut self, command: &[u8]) -> Result<Option<Sent>, Reason> {
        let (&name_len, rest) = command.split_first().ok_or(Reason::BadCommand)?;
        let (name, rest) = rest.split_at_checked(name_len.into()).ok_or(Reason::BadCommand)?;
        match name {
            b"PING" => self.ping(rest).map(|()| None),
            b"SUBSCRIBE" if self.of_subscriber => Ok(Some(Sent::Subscribe(rest.to_vec()))),
            b"CANCEL" if self.of_subscriber => Ok(Some(Sent::Cancel(rest.to_vec()))),
            _ => Ok(None),
        }
    }

    /// `body` is a time to live (two bytes, which we leave to the transport's keepalive) and a context to give back.
    fn ping(&mut self, body: &[u8]) -> Result<(), Reason> {
        let (_ttl, context) = body.split_at_checked(2).ok_or(Reason::BadCommand)?;
        if context.len() > PING_CONTEXT_MAX {
            return Err(Reason::BadCommand);
        }
        self.pings = true;
        if self.pongs.len() < PONGS_BYTES_MAX {
            self.pongs.extend_from_slice(&pong(context));
        }
        Ok(())
    }
}

/// A message of a subscriber: one frame, 1 and a topic's beginning to subscribe, 0 and the same to cancel.
fn subscription(header: Header, body: &[u8]) -> Result<Sent, Reason> {
    match body.split_first() {
        Some((1, topic)) if !header.more() => Ok(Sent::Subscribe(topic.to_vec())),
        Some((0, topic)) if !header.more() => Ok(Sent::Cancel(topic.to_vec())),
        _ => Err(Reason::BadSubscription),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanner(socket: SocketName) -> Scanner {
        let limits = PeerLimits { frame_bytes_max: 300, message_bytes_max: 400, parts_max: 3, ..PeerLimits::default() };
        Scanner::introduced(&limits, socket)
    }

    fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        write_header(false, body.len(), &mut out);
        out[0] |= flags;
        out.extend_from_slice(body);
        out.to_vec()
    }

    /// What a scanner makes of these bytes.
    fn scan(scanner: &mut Scanner, mut bytes: &[u8]) -> Result<Vec<Sent>, Reason> {
        let mut all = Vec::new();
        while let Some(sent) = scanner.next(&mut bytes)? {
            all.push(sent);
        }
        assert!(bytes.is_empty());
        Ok(all)
    }

    /// The lengths of the messages among these.
    fn lengths(sent: Vec<Sent>) -> Vec<usize> {
        let length = |sent| if let Sent::Message(message) = sent { message.body.len() } else { panic!("{sent:?}") };
        sent.into_iter().map(length).collect()
    }

    #[test]
    fn a_message_is_the_same_however_it_is_cut() {
        let bytes = [frame(MORE, b""), frame(MORE, b"ab"), frame(0, &[7; 280]), frame(0, b"next")].concat();
        let body = [&b"ab"[..], &[7; 280]].concat();
        for size in 1..=bytes.len() {
            let mut scanner = scanner(SocketName::Control);
            let sent: Vec<_> = bytes.chunks(size).flat_map(|chunk| scan(&mut scanner, chunk).unwrap()).collect();
            let next = Message { body: b"next".to_vec(), parts: 1, first: 4 };
            let expected = [Message { body: body.clone(), parts: 3, first: 0 }, next].map(Sent::Message);
            assert_eq!(sent, expected, "in pieces of {size}");
        }
    }

    #[test]
    fn a_handshake_comes_before_messages_however_it_is_cut() {
        let bytes = [&greeting()[..], &ready("PUSH"), &frame(0, b"row")].concat();
        for size in 1..=bytes.len() {
            let mut scanner = Scanner::new(&PeerLimits::default(), SocketName::Ingest);
            let sent: Vec<_> = bytes.chunks(size).flat_map(|chunk| scan(&mut scanner, chunk).unwrap()).collect();
            let ready = Ready { socket_type: b"PUSH".to_vec(), identity: Vec::new() };
            let row = Message { body: b"row".to_vec(), parts: 1, first: 3 };
            assert_eq!(sent, [Sent::Greeting, Sent::Ready(ready), Sent::Message(row)], "in pieces of {size}");
            assert!(scanner.is_introduced() && scanner.held_bytes() == 0);
        }
        let refused = |bytes: &[u8]| {
            let limits = PeerLimits { handshake_bytes_max: 100, ..PeerLimits::default() };
            scan(&mut Scanner::new(&limits, SocketName::Ingest), &[&greeting()[..], bytes].concat()).unwrap_err()
        };
        assert_eq!(refused(&frame(0, b"row")), Reason::BadReady);
        assert_eq!(refused(&[COMMAND, 37]), Reason::HandshakeTooLong);
        assert_eq!(refused(&frame(COMMAND, b"\x04PING\x00\x00")), Reason::BadReady);
    }

    #[test]
    fn rows_have_one_frame_and_requests_perhaps_an_empty_one_before_it() {
        let message = |frames: &[&[u8]]| {
            let more = |k: usize| if k + 1 < frames.len() { MORE } else { 0 };
            let bytes: Vec<_> = frames.iter().enumerate().flat_map(|(k, body)| frame(more(k), body)).collect();
            match scan(&mut scanner(SocketName::Control), &bytes).unwrap().pop() {
                Some(Sent::Message(message)) => message,
                other => panic!("{other:?}"),
            }
        };
        let request = |frames: &[&[u8]]| message(frames).request();
        assert_eq!(request(&[b"x"]), Some((false, b"x".to_vec())));
        assert_eq!(request(&[b"", b"x"]), Some((true, b"x".to_vec())));
        assert_eq!(request(&[b"", b""]), Some((true, Vec::new())));
        for bad in [&[&b""[..]][..], &[b"x", b"y"], &[b"x", b""], &[b"", b"x", b"y"]] {
            assert_eq!(request(bad), None, "{bad:?}");
        }
        assert_eq!((message(&[b""]).row(), message(&[b"", b"x"]).row()), (Some(Vec::new()), None));
    }

    #[test]
    fn a_long_message_counts_as_long_as_it_may_become() {
        let limits = PeerLimits { message_bytes_max: 1 << 20, frame_bytes_max: 1 << 20, ..PeerLimits::default() };
        let mut scanner = Scanner::introduced(&limits, SocketName::Control);
        let (short, long) = (vec![1; 60_000], vec![2; 100_000]);
        let mut after = |bytes: &[u8]| {
            let whole = lengths(scan(&mut scanner, bytes).unwrap());
            (scanner.unfinished(), whole)
        };
        assert_eq!(after(&frame(MORE, &short)), (60_000, vec![]));
        // What makes it long is not the first frame; what follows is part of the same.
        assert_eq!(after(&frame(MORE, &short)), (1 << 20, vec![]));
        assert_eq!(after(&frame(MORE, &short)), (1 << 20, vec![]));
        let last = frame(0, &long);
        assert_eq!(after(&last[..9]), (280_000, vec![]));
        // The end of one and the beginning of the next come at once.
        assert_eq!(after(&[&last[9..], &last[..50]].concat()), (100_000, vec![280_000]));
        assert_eq!(after(&[&last[50..], &frame(0, b"x")].concat()), (0, vec![100_000, 1]));
    }

    #[test]
    fn no_memory_is_made_for_a_long_message_until_it_has_its_turn() {
        let mut scanner = Scanner::introduced(&PeerLimits::default(), SocketName::Ingest);
        let bytes = frame(0, &vec![7; 1 << 20]);
        assert_eq!(scan(&mut scanner, &bytes[..1000]), Ok(vec![]));
        assert!(scanner.held_bytes() < 2000);
        scanner.reserve();
        assert_eq!(scanner.held_bytes(), 1 << 20);
        assert_eq!(lengths(scan(&mut scanner, &bytes[1000..]).unwrap()), [1 << 20]);
        assert_eq!(scanner.held_bytes(), 0);
    }

    #[test]
    fn a_ping_is_answered_even_within_a_message() {
        let mut scanner = scanner(SocketName::Control);
        let ping = frame(COMMAND, b"\x04PING\x00\x0acontext");
        let bytes = [frame(MORE, b"a"), ping, frame(0, b"b")].concat();
        let sent: Vec<_> = bytes.chunks(1).flat_map(|byte| scan(&mut scanner, byte).unwrap()).collect();
        assert_eq!(sent, [Sent::Message(Message { body: b"ab".to_vec(), parts: 2, first: 1 })]);
        assert_eq!(scanner.pongs, frame(COMMAND, b"\x04PONGcontext"));
        assert!(scanner.pings);
    }

    #[test]
    fn it_is_known_how_much_of_a_message_has_come() {
        let mut scanner = scanner(SocketName::Ingest);
        let bytes = [frame(MORE, b"ab"), frame(COMMAND, b"\x04PONG"), frame(0, b"cde")].concat();
        let mut begun = Vec::new();
        for byte in bytes {
            scan(&mut scanner, &[byte]).unwrap();
            begun.push(scanner.begun());
        }
        let come = |bytes: u64, times| std::iter::repeat_n(Some(bytes), times);
        // A header is two bytes; the command is no part of the message.
        let expected: Vec<_> =
            [come(0, 2), come(1, 1), come(2, 10), come(3, 1), come(4, 1)].into_iter().flatten().collect();
        assert_eq!(begun, [expected, vec![None]].concat());
        assert_eq!(scanner.whole, 1);
    }

    #[test]
    fn each_limit_has_its_reason() {
        let huge = [&[LONG][..], &(1_u64 << 62).to_be_bytes()].concat();
        let cases = [
            (huge.clone(), Reason::FrameTooLarge),
            ([&[COMMAND | LONG][..], &huge[1..]].concat(), Reason::FrameTooLarge),
            ([frame(MORE, &[0; 300]), frame(0, &[0; 101])].concat(), Reason::MessageTooLarge),
            (frame(MORE, b"").repeat(4), Reason::TooManyParts),
            (vec![8, 0], Reason::ReservedFlags),
            (frame(COMMAND | MORE, b"\x04PING\x00\x00"), Reason::ReservedFlags),
            (frame(COMMAND, b"\x09PING"), Reason::BadCommand),
            (frame(COMMAND, b""), Reason::BadCommand),
            (frame(COMMAND, b"\x04PING\x00"), Reason::BadCommand),
        ];
        for (bytes, reason) in cases {
            assert_eq!(scan(&mut scanner(SocketName::Ingest), &bytes), Err(reason));
        }
    }

    #[test]
    fn subscriptions_are_read_as_messages_and_as_commands() {
        let mut scanner = scanner(SocketName::Publish);
        let (subscribe, cancel) = (|t: &[u8]| Sent::Subscribe(t.to_vec()), |t: &[u8]| Sent::Cancel(t.to_vec()));
        let bytes = [
            frame(0, b"\x01event."),
            frame(COMMAND, b"\x09SUBSCRIBEstatus"),
            frame(COMMAND, b"\x06CANCELevent."),
            frame(0, b"\x00status"),
            frame(0, b"\x01"),
        ];
        let expected =
            [subscribe(b"event."), subscribe(b"status"), cancel(b"event."), cancel(b"status"), subscribe(b"")];
        assert_eq!(scan(&mut scanner, &bytes.concat()).unwrap(), expected);
        for bad in [frame(0, b"what"), frame(MORE, b"\x01a"), frame(0, b"")] {
            assert_eq!(scan(&mut scanner, &bad), Err(Reason::BadSubscription));
        }
        let others = scan(&mut self::scanner(SocketName::Ingest), &frame(COMMAND, b"\x09SUBSCRIBEstatus"));
        assert_eq!(others, Ok(vec![]), "a producer has no topics");
    }

    #[test]
    fn a_ready_comes_back_and_a_broken_one_is_refused() {
        let ours = parse_ready(&ready("ROUTER")[2..]);
        assert_eq!(ours, Ok(Ready { socket_type: b"ROUTER".to_vec(), identity: Vec::new() }));
        let bytes = [&ready("DEALER")[2..], b"\x08Identity\x00\x00\x00\x02me"].concat();
        let expected = Ready { socket_type: b"DEALER".to_vec(), identity: b"me".to_vec() };
        assert_eq!(parse_ready(&bytes), Ok(expected));
        for end in 0..bytes.len() {
            // Cut after a whole property it is still a READY, only a poorer one.
            let cut = parse_ready(&bytes[..end]);
            assert!(cut.is_err() || cut.is_ok_and(|r| r.identity.is_empty()), "cut at {end}");
        }
    }

    #[test]
    fn greetings_of_other_protocols_are_told_apart() {
        let change = |at: usize, byte: u8| {
            let mut bytes = greeting();
            bytes[at] = byte;
            check_greeting(&bytes, b"NULL")
        };
        assert_eq!(change(11, 0), Ok(()));
        assert_eq!(change(11, 7), Ok(()), "later minor versions are welcome");
        assert_eq!(change(0, b'G'), Err(Reason::BadGreeting));
        assert_eq!(change(10, 2), Err(Reason::UnsupportedVersion));
        assert_eq!(change(12, b'C'), Err(Reason::UnsupportedMechanism));
    }
}
