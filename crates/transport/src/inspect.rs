//! What the gate makes of bytes, without sockets: for tests that send it anything at all.

use super::topics::SubscriberTopics;
use super::zmtp::{Scanner, Sent, write_header};
use super::{PeerLimits, Reason, SocketName};
use bytes::BytesMut;
use std::sync::Arc;

/// The gate's reading of what one peer sends, from its greeting on.
#[derive(Debug)]
pub struct FromPeer {
    socket: SocketName,
    scanner: Scanner,
    asked: SubscriberTopics,
    passed: BytesMut,
}

impl FromPeer {
    /// A peer of `socket` that has sent nothing yet.
    pub fn new(socket: SocketName, limits: &PeerLimits) -> Self {
        let asked = SubscriberTopics::new(limits.subscriptions_max, Arc::default());
        Self { socket, scanner: Scanner::new(limits, socket), asked, passed: BytesMut::new() }
    }

    /// A peer of `socket` that is behind its handshake.
    pub fn introduced(socket: SocketName, limits: &PeerLimits) -> Self {
        Self { scanner: Scanner::introduced(limits, socket), ..Self::new(socket, limits) }
    }

    /// Read some bytes more. Which socket types and identities may come is decided elsewhere.
    ///
    /// # Errors
    /// Why the peer is cut.
    pub fn read(&mut self, mut chunk: &[u8]) -> Result<(), Reason> {
        while let Some(sent) = self.scanner.next(&mut chunk)? {
            match sent {
                Sent::Greeting | Sent::Ready(_) => {}
                Sent::Message(message) if self.socket == SocketName::Ingest => {
                    message.row().into_iter().for_each(|row| self.pass(false, &[&row]));
                }
                Sent::Message(message) => {
                    message.request().into_iter().for_each(|(delimiter, payload)| self.pass(delimiter, &[&payload]));
                }
                Sent::Subscribe(topic) => {
                    self.asked.subscribe(topic.clone())?;
                    self.pass(false, &[&[1], &topic]);
                }
                Sent::Cancel(topic) if self.asked.cancel(&topic) => self.pass(false, &[&[0], &topic]),
                Sent::Cancel(_) => {}
            }
        }
        Ok(())
    }

    fn pass(&mut self, delimiter: bool, body: &[&[u8]]) {
        if delimiter {
            write_header(true, 0, &mut self.passed);
        }
        write_header(false, body.iter().map(|part| part.len()).sum(), &mut self.passed);
        body.iter().for_each(|part| self.passed.extend_from_slice(part));
    }

    /// Whether its READY was read.
    pub fn is_introduced(&self) -> bool {
        self.scanner.is_introduced()
    }

    /// What is taken of it, as a peer would send it that says nothing else: rows, requests, and changes of topics.
    pub fn passed(&self) -> &[u8] {
        &self.passed
    }

    /// What the gate would answer by itself.
    pub fn answers(&self) -> &[u8] {
        &self.scanner.pongs
    }

    /// Bytes that are held back until more comes.
    pub fn held_bytes(&self) -> usize {
        self.asked.bytes() + self.scanner.held_bytes()
    }
}
