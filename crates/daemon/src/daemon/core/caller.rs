//! Those who ask, and how they are answered.

use crate::http::WaitingPage;
use crate::transport::{Peer, Reply};
use crate::wire::{self, ArrayForm, ErrorCode, Id, WireError};

/// Requests of one connection that may wait for long work of one kind.
const WAITING_OF_PEER: usize = 8;

/// The address for the reply to a request.
#[derive(Clone, Debug, PartialEq)]
pub struct Caller {
    /// Its connection.
    pub peer: Peer,
    /// Echoed.
    pub id: Id,
    /// How tensors are written.
    pub form: ArrayForm,
}

impl Caller {
    /// The message that answers with `reply`.
    pub fn reply(&self, reply: &wire::Reply<'_>) -> Reply {
        Reply { peer: self.peer, payload: wire::encode_reply(&self.id, self.form, reply) }
    }

    /// The message that says why not.
    pub fn refuse(&self, error: &WireError) -> Reply {
        Reply { peer: self.peer, payload: wire::encode_error(&self.id, error) }
    }
}

/// Who asks a model of the transition.
#[derive(Debug)]
pub enum Asker {
    /// A peer.
    Peer(Caller),
    /// A page. All pages together are as one peer.
    Page(WaitingPage),
}

impl Asker {
    /// The connection number of all pages of the dashboard: the transport gives it to no peer.
    pub(super) const PAGES: u64 = u64::MAX;

    /// Its connection.
    pub(in crate::daemon) fn connection(&self) -> u64 {
        match self {
            Self::Peer(caller) => caller.peer.connection,
            Self::Page(_) => Self::PAGES,
        }
    }

    /// Whether it is still there. What a peer's connection says is known elsewhere.
    pub(in crate::daemon) fn is_there(&self) -> bool {
        match self {
            Self::Peer(_) => true,
            Self::Page(page) => page.is_waiting(),
        }
    }
}

/// What is answered beside the core where the journal cannot be read.
pub(in crate::daemon) fn unreadable(e: impl std::fmt::Display) -> WireError {
    WireError::new(ErrorCode::Internal, format!("the journal cannot be read: {e}"))
}

/// The same at a stop.
pub(in crate::daemon) fn stopped() -> WireError {
    WireError::new(ErrorCode::NotReady, "the daemon stopped before the answer was found")
}

/// Whether `caller` may wait too: the callers of one connection are limited, and all together to `most`.
///
/// # Errors
/// `overloaded`, if it may not.
pub(super) fn check_room<'a>(
    caller: &Caller,
    most: usize,
    waiting: impl Iterator<Item = &'a Caller> + Clone,
) -> Result<(), WireError> {
    let own = waiting.clone().filter(|other| other.peer == caller.peer).count();
    if own >= WAITING_OF_PEER || waiting.count() >= most { Err(WireError::overloaded(1000)) } else { Ok(()) }
}
