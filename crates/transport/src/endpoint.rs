//! How we come to listen at an endpoint.

use criticd_protocol::endpoint::Endpoint;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::{self, Permissions};
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Connections the kernel keeps for us until they are accepted.
const LISTEN_BACKLOG: i32 = 4096;

/// Why an endpoint cannot be bound.
#[derive(Debug)]
pub(super) enum BindError {
    Unresolved(io::Error),
    Remote(SocketAddr),
    InUse(io::Error),
    NotASocket(PathBuf),
    Io(io::Error),
}

impl From<io::Error> for BindError {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::AddrInUse { Self::InUse(error) } else { Self::Io(error) }
    }
}

/// A public listener, not blocking.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Ipc(UnixListener, SocketFile),
}

impl Listener {
    /// Listen at `endpoint`; gives the endpoint with the port that the system chose, if it did.
    pub(super) fn bind(endpoint: &Endpoint, allow_remote: bool) -> Result<(Self, Endpoint), BindError> {
        match endpoint {
            Endpoint::Tcp { host, port } => bind_tcp(host, *port, allow_remote),
            Endpoint::Ipc(path) => {
                remove_stale(path)?;
                let listener = listen_at(path)?;
                Ok((Self::Ipc(listener, SocketFile::at(path)?), endpoint.clone()))
            }
        }
    }
}

fn bind_tcp(host: &str, port: u16, allow_remote: bool) -> Result<(Listener, Endpoint), BindError> {
    let mut addresses: Vec<_> = (host, port).to_socket_addrs().map_err(BindError::Unresolved)?.collect();
    // Most clients try IPv4 first where a name has both.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    if let Some(&remote) = addresses.iter().find(|a| !allow_remote && !a.ip().is_loopback()) {
        return Err(BindError::Remote(remote));
    }
    let listener = TcpListener::bind(&addresses[..])?;
    listener.set_nonblocking(true)?;
    let bound = listener.local_addr()?;
    let endpoint = if port == 0 {
        Endpoint::Tcp { host: host.to_owned(), port: bound.port() }
    } else {
        Endpoint::Tcp { host: host.to_owned(), port }
    };
    Ok((Listener::Tcp(listener), endpoint))
}

/// Remove the socket that a dead process left at `path`; a socket in use stays and is an error.
fn remove_stale(path: &Path) -> Result<(), BindError> {
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error.into()),
        Ok(metadata) if !metadata.file_type().is_socket() => return Err(BindError::NotASocket(path.to_owned())),
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => Err(BindError::InUse(io::ErrorKind::AddrInUse.into())),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            log::info!("event=stale_socket_removed path={}", path.display());
            fs::remove_file(path).map_err(BindError::Io)
        }
        Err(error) => Err(error.into()),
    }
}

/// Listen on a new unix socket that only our own user may connect to.
fn listen_at(path: &Path) -> io::Result<UnixListener> {
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.bind(&SockAddr::unix(path)?)?;
    // No client can connect before the socket listens, so its mode is never too wide.
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    socket.listen(LISTEN_BACKLOG)?;
    socket.set_nonblocking(true)?;
    Ok(UnixListener::from(OwnedFd::from(socket)))
}

/// The file of a unix socket of ours, removed when this is dropped unless another has taken its place.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    device_and_inode: (u64, u64),
}

impl SocketFile {
    fn at(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self { path: path.to_owned(), device_and_inode: (metadata.dev(), metadata.ino()) })
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours = fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.device_and_inode);
        if is_ours {
            // If it stays, the next start finds it unused.
            let _ = fs::remove_file(&self.path);
        }
    }
}
