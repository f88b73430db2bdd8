//! The daemon's messages to systemd, if systemd started it with `Type=notify`.

use sd_notify::NotifyState;
use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Notify systemd.
pub(super) fn notify(states: &[NotifyState<'_>]) {
    let sent = match std::env::var_os("NOTIFY_SOCKET") {
        Some(socket) if socket.as_bytes().starts_with(b"@") => notify_abstract(&socket, states),
        _ => sd_notify::notify(states),
    };
    if let Err(e) = sent {
        log::warn!("event=notify_failed why={:?}", e.to_string());
    }
}

/// Send to a socket that has a name and no file, which the library would look for.
fn notify_abstract(socket: &OsStr, states: &[NotifyState<'_>]) -> io::Result<()> {
    let address = SocketAddr::from_abstract_name(&socket.as_bytes()[1..])?;
    let message: String = states.iter().map(|state| format!("{state}\n")).collect();
    UnixDatagram::unbound()?.send_to_addr(message.as_bytes(), &address).map(drop)
}
