//! Those who ask, and how they are answered.

use crate::transport::{Peer, Reply};
use crate::wire::{self, ArrayForm, Id, WireError};

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
