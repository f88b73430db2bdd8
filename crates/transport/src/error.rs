//! Why a transport does not start.

use super::endpoint::BindError;
use super::{Endpoint, SocketName};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Why the transport did not start; nothing stays bound.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The host's name stands for no address.
    #[error("{socket}: {endpoint}: the host's name cannot be resolved: {source}")]
    Unresolved {
        /// Which socket.
        socket: SocketName,
        /// Where it should have been.
        endpoint: Endpoint,
        /// What the resolver said.
        source: io::Error,
    },
    /// The address can be reached from other machines, and that was not allowed.
    #[error(
        "{socket}: {endpoint} is {}, which other machines may reach, and nothing is encrypted; bind a loopback \
         address, or say who may connect with `allow` and set insecure = true",
        .address.ip()
    )]
    Remote {
        /// Which socket.
        socket: SocketName,
        /// Where it should have been.
        endpoint: Endpoint,
        /// The address it stands for.
        address: SocketAddr,
    },
    /// The endpoint is in use.
    #[error("{socket}: {endpoint} is in use: is another criticd running? choose another with --{socket}")]
    InUse {
        /// Which socket.
        socket: SocketName,
        /// Where it should have been.
        endpoint: Endpoint,
        /// What the system said.
        source: io::Error,
    },
    /// The path of an ipc endpoint belongs to a file that is no socket.
    #[error("{socket}: {path} exists and is not a socket; it is not replaced")]
    NotASocket {
        /// Which socket.
        socket: SocketName,
        /// The file.
        path: PathBuf,
    },
    /// The endpoint could not be bound for another reason.
    #[error("{socket}: {endpoint} cannot be bound: {source}")]
    Bind {
        /// Which socket.
        socket: SocketName,
        /// Where it should have been.
        endpoint: Endpoint,
        /// What the system said.
        source: io::Error,
    },
    /// What the transport needs inside could not be made: its private directory, a thread, a runtime.
    #[error(
        "the transport could not create its {what}: {source}; private files are in {}, which TMPDIR sets",
        std::env::temp_dir().display()
    )]
    Internal {
        /// What was being made.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
}

impl StartError {
    pub(super) fn bind(socket: SocketName, endpoint: &Endpoint, error: BindError) -> Self {
        let endpoint = endpoint.clone();
        match error {
            BindError::Unresolved(source) => Self::Unresolved { socket, endpoint, source },
            BindError::Remote(address) => Self::Remote { socket, endpoint, address },
            BindError::InUse(source) => Self::InUse { socket, endpoint, source },
            BindError::NotASocket(path) => Self::NotASocket { socket, path },
            BindError::Io(source) => Self::Bind { socket, endpoint, source },
        }
    }

    pub(super) fn internal(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Internal { what, source }
    }
}
