//! The bytes of ZMTP 3.x as far as the gate must understand them: greeting, READY, frame headers, commands.
//!
//! Nothing here reads or writes a socket. The protocol is ZeroMQ's RFC 23 (3.0) and RFC 37 (3.1), mechanism NULL.

use super::{Counters, Limits, Reason, SHORT_BYTES};
use bytes::{Buf, BytesMut};
use std::sync::Arc;

/// Length of a greeting in bytes.
pub(super) const GREETING_LEN: usize = 64;

/// Longest body of a command or of a subscription in bytes: they are held back until they are whole.
const CAPTURED_BYTES_MAX: u64 = 4096;

/// PONGs waiting for a place between two messages, in bytes; beyond it they are left out.
const PONGS_BYTES_MAX: usize = 1024;

/// Longest context of a PING in bytes (RFC 37).
const PING_CONTEXT_MAX: usize = 16;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// A greeting of version 3.`minor`, mechanism NULL.
pub(super) fn greeting(minor: u8) -> [u8; GREETING_LEN] {
    let mut bytes = [0; GREETING_LEN];
    bytes[0] = 0xff;
    bytes[9] = 0x7f;
    bytes[10] = 3;
    bytes[11] = minor;
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

/// A READY command as a whole frame.
pub(super) fn ready(socket_type: &str, identity: &[u8]) -> Vec<u8> {
    let mut body = b"\x05READY".to_vec();
    for (name, value) in [("Socket-Type", socket_type.as_bytes()), ("Identity", identity)] {
        if value.is_empty() {
            continue;
        }
        body.push(u8::try_from(name.len()).expect("names are short"));
        body.extend_from_slice(name.as_bytes());
        body.extend_from_slice(&u32::try_from(value.len()).expect("values are short").to_be_bytes());
        body.extend_from_slice(value);
    }
    command(&body)
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

    fn write(self, out: &mut BytesMut) {
        out.extend_from_slice(&[self.flags]);
        if self.flags & LONG != 0 {
            out.extend_from_slice(&self.len.to_be_bytes());
        } else {
            out.extend_from_slice(&[u8::try_from(self.len).expect("a short frame's length is one byte")]);
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

/// What a handshake has come to.
#[derive(Debug, PartialEq)]
pub(super) enum Introduced {
    /// The greeting was right: ours may follow with a READY.
    Greeting,
    /// The peer's READY: what follows is for the [`Scanner`].
    Ready(Ready),
}

/// Reads a peer's greeting and READY, however they are cut.
#[derive(Debug)]
pub(super) struct Introduction {
    bytes_max: usize,
    /// Whether the greeting was read.
    is_greeted: bool,
    header: HeaderReader,
    /// Length of READY's body, once its header was read.
    len: Option<usize>,
}

impl Introduction {
    pub(super) fn new(limits: &Limits) -> Self {
        Self { bytes_max: limits.handshake_bytes_max, is_greeted: false, header: HeaderReader::default(), len: None }
    }

    /// Take the next part from the front of `bytes`; `None` if it is not whole yet.
    ///
    /// # Errors
    /// Why the peer must be cut.
    pub(super) fn take(&mut self, bytes: &mut BytesMut) -> Result<Option<Introduced>, Reason> {
        if !self.is_greeted {
            if bytes.len() < GREETING_LEN {
                return Ok(None);
            }
            check_greeting(&bytes.split_to(GREETING_LEN), b"NULL")?;
            self.is_greeted = true;
            return Ok(Some(Introduced::Greeting));
        }
        if self.len.is_none() {
            let mut unread = &bytes[..];
            let header = self.header.take(&mut unread)?;
            let rest = unread.len();
            bytes.advance(bytes.len() - rest);
            let Some(header) = header else { return Ok(None) };
            if !header.is_command() {
                return Err(Reason::BadReady);
            }
            let len = usize::try_from(header.len).unwrap_or(usize::MAX);
            if len > self.bytes_max.saturating_sub(GREETING_LEN) {
                return Err(Reason::HandshakeTooLong);
            }
            self.len = Some(len);
        }
        match self.len {
            Some(len) if bytes.len() >= len => parse_ready(&bytes.split_to(len)).map(|r| Some(Introduced::Ready(r))),
            _ => Ok(None),
        }
    }
}

/// Reads what a peer sends after its READY: passes messages on within the limits, answers PING, keeps commands.
#[derive(Debug)]
pub(super) struct Scanner {
    frame_bytes_max: u64,
    message_bytes_max: u64,
    parts_max: usize,
    /// Where the peer is a subscriber: where its topics are counted. Its messages are subscriptions, read here.
    subscriber: Option<Arc<Counters>>,
    /// How many topics a subscriber may have.
    subscriptions_max: usize,
    header: HeaderReader,
    /// The frame being read and how much of its body is missing.
    frame: Option<(Header, u64)>,
    parts: usize,
    message_bytes: u64,
    /// Messages that have come whole.
    pub(super) whole: u64,
    /// Bytes of a message longer than [`SHORT_BYTES`] that has become whole, until the link takes them. A piece of at most that length
    /// completes no two of them.
    pub(super) long_whole: Option<u64>,
    /// Where in what was appended last the newest frame begins that made its message a long one.
    pub(super) long_from: usize,
    captured: Vec<u8>,
    subscriptions: Vec<Vec<u8>>,
    /// Whether the peer has sent a PING.
    pub(super) pings: bool,
    /// PONG frames to send to the peer, between two messages.
    pub(super) pongs: Vec<u8>,
    /// Commands and subscriptions so far, modulo 2^32.
    pub(super) commands: u32,
}

impl Scanner {
    pub(super) fn new(limits: &Limits, subscriber: Option<Arc<Counters>>) -> Self {
        Self {
            frame_bytes_max: limits.frame_bytes_max as u64,
            message_bytes_max: limits.message_bytes_max as u64,
            parts_max: limits.parts_max,
            subscriber,
            subscriptions_max: limits.subscriptions_max,
            header: HeaderReader::default(),
            frame: None,
            parts: 0,
            message_bytes: 0,
            whole: 0,
            long_whole: None,
            long_from: 0,
            captured: Vec::new(),
            subscriptions: Vec::new(),
            pings: false,
            pongs: Vec::new(),
            commands: 0,
        }
    }

    /// Bytes of the message under way; 0 between messages. A long one of which further frames follow counts as long as it may become,
    /// so that it never has to ask for more.
    pub(super) fn unfinished(&self) -> u64 {
        let is_last = self.frame.is_some_and(|(header, _)| !header.is_command() && !header.more());
        if is_last || self.message_bytes <= SHORT_BYTES as u64 { self.message_bytes } else { self.message_bytes_max }
    }

    /// Bytes that have come of a message that is not whole, headers of frames left out; `None` between two messages or commands.
    pub(super) fn begun(&self) -> Option<u64> {
        let is_between = self.parts == 0 && self.frame.is_none() && self.header.is_empty();
        let missing = self.frame.filter(|(header, _)| !header.is_command()).map_or(0, |(_, missing)| missing);
        (!is_between).then(|| self.message_bytes - missing)
    }

    /// Read `input` and append to `out` what the socket behind may see.
    ///
    /// # Errors
    /// Why the peer must be cut. What was appended before the fault is sound and may still be delivered.
    pub(super) fn scan(&mut self, mut input: &[u8], out: &mut BytesMut) -> Result<(), Reason> {
        out.reserve(input.len());
        while !input.is_empty() {
            let Some((header, missing)) = self.frame.take() else {
                if let Some(header) = self.header.take(&mut input)? {
                    self.open(header, out)?;
                }
                continue;
            };
            let (body, rest) = input.split_at(usize::try_from(missing).unwrap_or(usize::MAX).min(input.len()));
            if self.is_captured(header) {
                self.captured.extend_from_slice(body);
            } else {
                out.extend_from_slice(body);
            }
            self.go_on(header, missing - body.len() as u64, out)?;
            input = rest;
        }
        Ok(())
    }

    /// Bytes that it holds: a command or subscription that is not whole yet, topics, PONGs.
    pub(super) fn held_bytes(&self) -> usize {
        self.captured.capacity() + self.subscriptions.iter().map(Vec::capacity).sum::<usize>() + self.pongs.capacity()
    }

    fn is_captured(&self, header: Header) -> bool {
        header.is_command() || self.subscriber.is_some()
    }

    fn open(&mut self, header: Header, out: &mut BytesMut) -> Result<(), Reason> {
        if !header.is_command() {
            self.parts += 1;
            // A frame within its limit cannot overflow the sum.
            if header.len > self.frame_bytes_max {
                return Err(Reason::FrameTooLarge);
            }
            let was_short = self.message_bytes <= SHORT_BYTES as u64;
            self.message_bytes += header.len;
            if was_short && self.message_bytes > SHORT_BYTES as u64 {
                self.long_from = out.len();
            }
            if self.message_bytes > self.message_bytes_max {
                return Err(Reason::MessageTooLarge);
            }
            if self.parts > self.parts_max {
                return Err(Reason::TooManyParts);
            }
        }
        if !self.is_captured(header) {
            header.write(out);
        } else if header.len > CAPTURED_BYTES_MAX {
            return Err(Reason::FrameTooLarge);
        }
        self.go_on(header, header.len, out)
    }

    /// Remember the frame while part of its body is missing, else close it.
    fn go_on(&mut self, header: Header, missing: u64, out: &mut BytesMut) -> Result<(), Reason> {
        if missing > 0 {
            self.frame = Some((header, missing));
            return Ok(());
        }
        // A command may stand between two frames of a message: it leaves the message's sums alone.
        if !header.is_command() && !header.more() {
            let bytes = std::mem::take(&mut self.message_bytes);
            (self.parts, self.whole) = (0, self.whole + 1);
            if bytes > SHORT_BYTES as u64 {
                self.long_whole = Some(bytes);
            }
        }
        if self.is_captured(header) {
            let body = std::mem::take(&mut self.captured);
            self.commands = self.commands.wrapping_add(1);
            return if header.is_command() { self.command(&body, out) } else { self.subscription(header, &body, out) };
        }
        Ok(())
    }

    fn command(&mut self, body: &[u8], out: &mut BytesMut) -> Result<(), Reason> {
        let (&name_len, rest) = body.split_first().ok_or(Reason::BadCommand)?;
        let (name, rest) = rest.split_at_checked(name_len.into()).ok_or(Reason::BadCommand)?;
        match name {
            b"PING" => self.ping(rest),
            b"SUBSCRIBE" if self.subscriber.is_some() => self.subscribe(rest, out),
            b"CANCEL" if self.subscriber.is_some() => self.cancel(rest, out),
            _ => Ok(()),
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

    /// A message of a subscriber: one frame, 1 and a topic's beginning to subscribe, 0 and the same to cancel.
    fn subscription(&mut self, header: Header, body: &[u8], out: &mut BytesMut) -> Result<(), Reason> {
        match body.split_first() {
            Some((1, topic)) if !header.more() => self.subscribe(topic, out),
            Some((0, topic)) if !header.more() => self.cancel(topic, out),
            _ => Err(Reason::BadSubscription),
        }
    }

    fn subscribe(&mut self, topic: &[u8], out: &mut BytesMut) -> Result<(), Reason> {
        if self.subscriptions.len() >= self.subscriptions_max {
            return Err(Reason::TooManySubscriptions);
        }
        self.subscriptions.push(topic.to_vec());
        self.subscriber.iter().for_each(|counters| counters.topics.join(topic));
        write_subscription(1, topic, out);
        Ok(())
    }

    fn cancel(&mut self, topic: &[u8], out: &mut BytesMut) -> Result<(), Reason> {
        if let Some(at) = self.subscriptions.iter().position(|t| t == topic) {
            self.subscriptions.swap_remove(at);
            self.subscriber.iter().for_each(|counters| counters.topics.leave(topic));
            write_subscription(0, topic, out);
        }
        Ok(())
    }
}

impl Drop for Scanner {
    fn drop(&mut self) {
        if let Some(counters) = &self.subscriber {
            self.subscriptions.iter().for_each(|topic| counters.topics.leave(topic));
        }
    }
}

/// A subscription as a message of ZMTP 3.0, which the socket behind reads, whichever way it came.
fn write_subscription(first: u8, topic: &[u8], out: &mut BytesMut) {
    let len = topic.len() as u64 + 1;
    Header { flags: if len > 255 { LONG } else { 0 }, len }.write(out);
    out.extend_from_slice(&[first]);
    out.extend_from_slice(topic);
}

/// Reads what the socket behind sends: drops its greeting and commands, passes whole messages on or none of them.
#[derive(Debug)]
pub(super) struct Filter {
    greeting_missing: usize,
    header: HeaderReader,
    frame: Option<(Header, u64)>,
    /// What becomes of the message being read; `None` between messages.
    fate: Option<Fate>,
    /// Its first frame while that is undecided: a topic, or nothing.
    first: BytesMut,
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    /// Its first frame is short, and says nothing of how long the message is.
    Undecided,
    Kept,
    Dropped,
}

/// First frames of at most so many bytes are held until the length of the second is known.
const FIRST_BYTES_MAX: u64 = 1024;

/// How much may be put behind what waits for a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    /// Bytes before which a message may begin.
    pub(super) backlog: usize,
    /// Bytes of a message.
    pub(super) long: usize,
    /// A message that ends within so many bytes of what waits is kept in any case.
    pub(super) short: usize,
}

impl Room {
    /// Whether a message whose present frame has `len` bytes may follow on `waiting` bytes.
    pub(super) fn has(&self, waiting: usize, len: u64) -> bool {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        waiting < self.backlog && (len <= self.long || waiting.saturating_add(len) <= self.short)
    }
}

impl Filter {
    pub(super) fn new() -> Self {
        let header = HeaderReader::default();
        Self { greeting_missing: GREETING_LEN, header, frame: None, fate: None, first: BytesMut::new() }
    }

    /// Whether what was passed on so far ends with a whole message: only there may a command be put in.
    pub(super) fn is_between_messages(&self) -> bool {
        self.fate.is_none()
    }

    /// Bytes still to come of a frame that is kept.
    pub(super) fn promised(&self) -> u64 {
        match self.frame {
            Some((header, missing)) if self.fate == Some(Fate::Kept) && !header.is_command() => missing,
            _ => 0,
        }
    }

    /// Read `input` and append to `out` every message for which there is `room`. Gives the number of messages dropped.
    ///
    /// # Errors
    /// If the socket behind writes what is no frame.
    pub(super) fn pass(&mut self, mut input: &[u8], room: Room, out: &mut BytesMut) -> Result<u64, Reason> {
        let greeting = self.greeting_missing.min(input.len());
        self.greeting_missing -= greeting;
        input = &input[greeting..];
        let (mut dropped, before) = (0, out.len());
        while !input.is_empty() {
            let (header, missing) = match self.frame.take() {
                Some(frame) => frame,
                None => match self.header.take(&mut input)? {
                    None => break,
                    Some(header) => {
                        if !header.is_command() {
                            let added = out.len() - before;
                            // No bound on messages stays none, whatever length a frame claims.
                            let long =
                                if room.long == usize::MAX { room.long } else { room.long.saturating_sub(added) };
                            let room = Room { long, ..room };
                            dropped += u64::from(self.open(header, room, out));
                        }
                        (header, header.len)
                    }
                },
            };
            let (body, rest) = input.split_at(usize::try_from(missing).unwrap_or(usize::MAX).min(input.len()));
            match self.fate.filter(|_| !header.is_command()) {
                Some(Fate::Undecided) => self.first.extend_from_slice(body),
                Some(Fate::Kept) => out.extend_from_slice(body),
                Some(Fate::Dropped) | None => {}
            }
            let missing = missing - body.len() as u64;
            if missing > 0 {
                self.frame = Some((header, missing));
            } else if !header.is_command() && !header.more() {
                self.fate = None;
            }
            input = rest;
        }
        Ok(dropped)
    }

    /// The header of a frame has come: decide what becomes of its message, if that is undecided. Whether it is dropped now.
    fn open(&mut self, header: Header, room: Room, out: &mut BytesMut) -> bool {
        let decided = match self.fate {
            Some(fate @ (Fate::Kept | Fate::Dropped)) => fate,
            None if header.more() && header.len <= FIRST_BYTES_MAX => Fate::Undecided,
            _ if room.has(out.len(), header.len) => Fate::Kept,
            _ => Fate::Dropped,
        };
        let is_new = self.fate != Some(decided);
        self.fate = Some(decided);
        match decided {
            Fate::Undecided => header.write(&mut self.first),
            Fate::Kept => {
                out.extend_from_slice(&self.first.split());
                header.write(out);
            }
            Fate::Dropped => self.first.clear(),
        }
        is_new && decided == Fate::Dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanner(subscriber: bool) -> Scanner {
        let limits = Limits {
            frame_bytes_max: 300,
            message_bytes_max: 400,
            parts_max: 3,
            subscriptions_max: 2,
            ..Limits::default()
        };
        Scanner::new(&limits, subscriber.then(Arc::default))
    }

    fn frame(flags: u8, body: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        let long = if body.len() > 255 { LONG } else { 0 };
        Header { flags: flags | long, len: body.len() as u64 }.write(&mut out);
        out.extend_from_slice(body);
        out.to_vec()
    }

    #[test]
    fn a_message_passes_unchanged_however_it_is_cut() {
        let bytes = [frame(MORE, b""), frame(MORE, b"ab"), frame(0, &[7; 280])].concat();
        for size in 1..=bytes.len() {
            let (mut scanner, mut out) = (scanner(false), BytesMut::new());
            bytes.chunks(size).for_each(|chunk| scanner.scan(chunk, &mut out).unwrap());
            assert_eq!(out, bytes, "in pieces of {size}");
        }
    }

    #[test]
    fn a_long_message_counts_once_and_as_long_as_it_may_become() {
        let limits = Limits { message_bytes_max: 1 << 20, frame_bytes_max: 1 << 20, ..Limits::default() };
        let (mut scanner, mut out) = (Scanner::new(&limits, None), BytesMut::new());
        let (short, long) = (vec![1; 60_000], vec![2; 100_000]);
        let mut after = |bytes: &[u8]| {
            scanner.scan(bytes, &mut out).unwrap();
            (scanner.unfinished(), scanner.long_whole.take(), scanner.long_from)
        };
        assert_eq!(after(&frame(MORE, &short)), (60_000, None, 0));
        // What makes it long is not the first frame; what follows is part of the same.
        let from = out_len(&[&short]);
        assert_eq!(after(&frame(MORE, &short)), (1 << 20, None, from));
        assert_eq!(after(&frame(MORE, &short)), (1 << 20, None, from));
        let last = frame(0, &long);
        assert_eq!(after(&last[..9]), (280_000, None, from));
        // The end of one and the beginning of the next come at once: the length of the whole one tells.
        let from = out_len(&[&short, &short, &short, &long]);
        assert_eq!(after(&[&last[9..], &last[..50]].concat()), (100_000, Some(280_000), from));
        assert_eq!(after(&[&last[50..], &frame(0, b"x")].concat()), (0, Some(100_000), from));
    }

    /// Bytes of long frames with these bodies.
    fn out_len(bodies: &[&[u8]]) -> usize {
        bodies.iter().map(|body| 9 + body.len()).sum()
    }

    #[test]
    fn a_ping_is_answered_and_not_passed_on_even_within_a_message() {
        let (mut scanner, mut out) = (scanner(false), BytesMut::new());
        let ping = frame(COMMAND, b"\x04PING\x00\x0acontext");
        let bytes = [frame(MORE, b"a"), ping, frame(0, b"b")].concat();
        bytes.chunks(1).for_each(|chunk| scanner.scan(chunk, &mut out).unwrap());
        assert_eq!(out, [frame(MORE, b"a"), frame(0, b"b")].concat());
        assert_eq!(scanner.pongs, frame(COMMAND, b"\x04PONGcontext"));
        assert!(scanner.pings);
    }

    #[test]
    fn it_is_known_how_much_of_a_message_has_come() {
        let (mut scanner, mut out) = (scanner(false), BytesMut::new());
        let bytes = [frame(MORE, b"ab"), frame(COMMAND, b"\x04PONG"), frame(0, b"cde")].concat();
        let mut begun = Vec::new();
        for byte in bytes {
            scanner.scan(&[byte], &mut out).unwrap();
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
            assert_eq!(scanner(false).scan(&bytes, &mut BytesMut::new()), Err(reason));
        }
    }

    #[test]
    fn topics_are_counted_as_long_as_their_subscriber_is_there() {
        let counters: Arc<Counters> = Arc::default();
        let mut scanner = Scanner::new(&Limits::default(), Some(Arc::clone(&counters)));
        let mut out = BytesMut::new();
        for topic in [&b"\x01head.a"[..], b"\x01head.b", b"\x00head.b", b"\x00head.c"] {
            scanner.scan(&frame(0, topic), &mut out).unwrap();
        }
        assert_eq!(counters.topics.beginning_with("head."), ["head.a"]);
        drop(scanner);
        assert!(counters.topics.beginning_with("").is_empty());
    }

    #[test]
    fn subscriptions_are_read_as_messages_and_as_commands_and_counted() {
        let (mut scanner, mut out) = (scanner(true), BytesMut::new());
        scanner.scan(&frame(0, b"\x01event."), &mut out).unwrap();
        scanner.scan(&frame(COMMAND, b"\x09SUBSCRIBEstatus"), &mut out).unwrap();
        scanner.scan(&frame(COMMAND, b"\x06CANCELevent."), &mut out).unwrap();
        scanner.scan(&frame(0, b"\x00never there"), &mut out).unwrap();
        scanner.scan(&frame(0, b"\x01"), &mut out).unwrap();
        let expected = [frame(0, b"\x01event."), frame(0, b"\x01status"), frame(0, b"\x00event."), frame(0, b"\x01")];
        assert_eq!(out, expected.concat());
        assert_eq!(scanner.scan(&frame(0, b"\x01more"), &mut out), Err(Reason::TooManySubscriptions));
        assert_eq!(scanner.scan(&frame(0, b"what"), &mut out), Err(Reason::BadSubscription));
    }

    #[test]
    fn the_filter_keeps_or_drops_whole_messages() {
        let handshake = [greeting(0).to_vec(), ready("PUB", b"")].concat();
        let message = [frame(MORE, b"topic"), frame(0, &[1; 260])].concat();
        let bytes = [handshake, message.clone(), message.clone(), message.clone()].concat();
        for size in 1..=bytes.len() {
            let (mut filter, mut out) = (Filter::new(), BytesMut::new());
            let room = Room { backlog: message.len() + 1, long: usize::MAX, short: 0 };
            let dropped: u64 = bytes.chunks(size).map(|chunk| filter.pass(chunk, room, &mut out).unwrap()).sum();
            assert_eq!((out.to_vec(), dropped), (message.repeat(2), 1), "in pieces of {size}");
            assert!(filter.is_between_messages());
        }
    }

    #[test]
    fn where_all_together_have_too_much_a_peer_gets_short_messages() {
        let handshake = [greeting(0).to_vec(), ready("PUB", b"")].concat();
        let long = [frame(MORE, b"topic"), frame(0, &[1; 260])].concat();
        let short = [frame(MORE, b"topic"), frame(0, &[1; 20])].concat();
        let bytes =
            [handshake, long.clone(), short.clone(), frame(0, &[3; 260]), short.clone(), short.clone()].concat();
        for size in 1..=bytes.len() {
            let (mut filter, mut out) = (Filter::new(), BytesMut::new());
            let room = Room { backlog: 1 << 20, long: 10, short: 2 * short.len() };
            let dropped: u64 = bytes.chunks(size).map(|chunk| filter.pass(chunk, room, &mut out).unwrap()).sum();
            assert_eq!((out.to_vec(), dropped), (short.repeat(2), 3), "in pieces of {size}");
        }
    }

    #[test]
    fn a_ready_comes_back_and_a_broken_one_is_refused() {
        let bytes = ready("DEALER", b"me");
        let expected = Ready { socket_type: b"DEALER".to_vec(), identity: b"me".to_vec() };
        assert_eq!(parse_ready(&bytes[2..]), Ok(expected));
        for end in 2..bytes.len() {
            // Cut after a whole property it is still a READY, only a poorer one.
            let cut = parse_ready(&bytes[2..end]);
            assert!(cut.is_err() || cut.is_ok_and(|r| r.identity.is_empty()), "cut at {end}");
        }
    }

    #[test]
    fn greetings_of_other_protocols_are_told_apart() {
        let change = |at: usize, byte: u8| {
            let mut bytes = greeting(1);
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
