//! What the gate makes of bytes, without sockets: for tests that send it anything at all.

use super::zmtp::{Filter, Introduced, Introduction, Room, Scanner};
use super::{Limits, Reason, SocketName};
use bytes::BytesMut;
use std::sync::Arc;

/// The gate's reading of what one peer sends, from its greeting on.
#[derive(Debug)]
pub struct FromPeer {
    socket: SocketName,
    limits: Limits,
    introduction: Introduction,
    /// Bytes of the handshake that are not read yet.
    waiting: BytesMut,
    /// `None` until the peer's READY was read.
    scanner: Option<Scanner>,
    passed: BytesMut,
}

impl FromPeer {
    /// A peer of `socket` that has sent nothing yet.
    pub fn new(socket: SocketName, limits: &Limits) -> Self {
        let (introduction, limits) = (Introduction::new(limits), limits.clone());
        Self { socket, limits, introduction, waiting: BytesMut::new(), scanner: None, passed: BytesMut::new() }
    }

    /// A peer of `socket` that is behind its handshake.
    pub fn introduced(socket: SocketName, limits: &Limits) -> Self {
        let scanner = Scanner::new(limits, (socket == SocketName::Publish).then(Arc::default));
        Self { scanner: Some(scanner), ..Self::new(socket, limits) }
    }

    /// Read some bytes more. Which socket types and identities may come is decided elsewhere.
    ///
    /// # Errors
    /// Why the peer is cut.
    pub fn read(&mut self, chunk: &[u8]) -> Result<(), Reason> {
        if let Some(scanner) = &mut self.scanner {
            return scanner.scan(chunk, &mut self.passed);
        }
        self.waiting.extend_from_slice(chunk);
        while let Some(part) = self.introduction.take(&mut self.waiting)? {
            if part != Introduced::Greeting {
                let subscriber = (self.socket == SocketName::Publish).then(Arc::default);
                let scanner = self.scanner.insert(Scanner::new(&self.limits, subscriber));
                return scanner.scan(&self.waiting.split(), &mut self.passed);
            }
        }
        Ok(())
    }

    /// Whether its READY was read.
    pub fn is_introduced(&self) -> bool {
        self.scanner.is_some()
    }

    /// What the socket behind the gate sees of it.
    pub fn passed(&self) -> &[u8] {
        &self.passed
    }

    /// What the gate would answer by itself.
    pub fn answers(&self) -> &[u8] {
        self.scanner.as_ref().map_or(&[], |scanner| &scanner.pongs)
    }

    /// Bytes that are held back until more comes.
    pub fn held_bytes(&self) -> usize {
        self.waiting.len() + self.scanner.as_ref().map_or(0, Scanner::held_bytes)
    }
}

/// The gate's reading of what the socket behind it sends to a peer that takes nothing.
#[derive(Debug)]
pub struct ToPeer {
    filter: Filter,
    room: usize,
    passed: BytesMut,
    dropped: u64,
}

impl ToPeer {
    /// A peer for whom messages are kept that begin while less than `room` bytes wait.
    pub fn new(room: usize) -> Self {
        Self { filter: Filter::new(), room, passed: BytesMut::new(), dropped: 0 }
    }

    /// Read some bytes more.
    ///
    /// # Errors
    /// If they are no frames.
    pub fn read(&mut self, chunk: &[u8]) -> Result<(), Reason> {
        let room = Room { backlog: self.room, long: usize::MAX, short: 0 };
        self.dropped += self.filter.pass(chunk, room, &mut self.passed)?;
        Ok(())
    }

    /// What waits for the peer.
    pub fn passed(&self) -> &[u8] {
        &self.passed
    }

    /// Messages that were dropped as there was no room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Whether what waits ends with a whole message.
    pub fn is_between_messages(&self) -> bool {
        self.filter.is_between_messages()
    }
}
