//! Where a socket is reached.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Longest path of a unix socket in bytes: the kernel's 108 less the final zero.
pub const IPC_PATH_BYTES_MAX: usize = 107;

/// Where a socket is reached, in ZeroMQ's words: `tcp://HOST:PORT` or `ipc://PATH`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A host, by address or name (an IPv6 address without its brackets), and a port, where 0 lets the system choose.
    Tcp {
        /// Address or name.
        host: String,
        /// Port.
        port: u16,
    },
    /// A unix socket at a path of at most [`IPC_PATH_BYTES_MAX`] bytes.
    Ipc(PathBuf),
}

/// Why a text is no endpoint of ours; displays as a sentence that says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not an endpoint: {problem}")]
pub struct EndpointError {
    text: String,
    problem: &'static str,
}

impl FromStr for Endpoint {
    type Err = EndpointError;

    fn from_str(text: &str) -> Result<Self, EndpointError> {
        parse(text).map_err(|problem| EndpointError { text: text.to_owned(), problem })
    }
}

fn parse(text: &str) -> Result<Endpoint, &'static str> {
    match text.split_once("://") {
        Some(("tcp", address)) => parse_tcp(address),
        Some(("ipc", path)) => parse_ipc(path),
        Some(("inproc", _)) => Err("inproc endpoints do not leave the process; use tcp://HOST:PORT or ipc://PATH"),
        Some(_) => Err("the transport must be tcp or ipc"),
        None => Err("write tcp://HOST:PORT or ipc://PATH"),
    }
}

fn parse_tcp(address: &str) -> Result<Endpoint, &'static str> {
    let (host, port) = address.rsplit_once(':').ok_or("the port is missing; write tcp://HOST:PORT")?;
    let is_number = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    let port = port.parse().ok().filter(|_| is_number).ok_or("the port must be a number from 0 to 65535")?;
    let host = match host.strip_prefix('[') {
        Some(inner) => inner.strip_suffix(']').ok_or("the address lacks its closing bracket")?,
        None if host.contains(':') => return Err("an IPv6 address stands in brackets: tcp://[::1]:PORT"),
        None => host,
    };
    match host {
        "" => Err("the host is missing; write tcp://HOST:PORT"),
        "*" => Err("the host must be an address or a name; 0.0.0.0 stands for all interfaces"),
        _ => Ok(Endpoint::Tcp { host: host.to_owned(), port }),
    }
}

fn parse_ipc(path: &str) -> Result<Endpoint, &'static str> {
    match path {
        "" | "*" => Err("write the path of the socket: ipc://PATH"),
        _ if path.starts_with('@') => Err("abstract names are open to every user of the machine; write a path"),
        _ if path.contains('\0') => Err("a path has no zero byte"),
        _ if path.len() > IPC_PATH_BYTES_MAX => Err("the path of a unix socket has at most 107 bytes"),
        _ => Ok(Endpoint::Ipc(path.into())),
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "tcp://[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "tcp://{host}:{port}"),
            Self::Ipc(path) => write!(f, "ipc://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_display_as_they_were_written() {
        for text in ["tcp://127.0.0.1:5750", "tcp://[::1]:0", "tcp://localhost:1", "ipc:///run/criticd/in", "ipc://x"] {
            assert_eq!(text.parse::<Endpoint>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_no_endpoint_is_refused_with_a_reason() {
        let long = format!("ipc:///{}", "x".repeat(IPC_PATH_BYTES_MAX));
        let cases = [
            ("127.0.0.1:5750", "write tcp://HOST:PORT"),
            ("inproc://x", "inproc"),
            ("udp://127.0.0.1:1", "must be tcp or ipc"),
            ("tcp://*:5750", "0.0.0.0"),
            ("tcp://:5750", "host is missing"),
            ("tcp://127.0.0.1", "port is missing"),
            ("tcp://127.0.0.1:", "from 0 to 65535"),
            ("tcp://127.0.0.1:+1", "from 0 to 65535"),
            ("tcp://127.0.0.1:65536", "from 0 to 65535"),
            ("tcp://::1:5750", "brackets"),
            ("tcp://[::1:5750", "closing bracket"),
            ("ipc://", "path of the socket"),
            ("ipc://*", "path of the socket"),
            ("ipc://@name", "abstract"),
            (&long, "107 bytes"),
        ];
        for (text, part) in cases {
            let message = text.parse::<Endpoint>().unwrap_err().to_string();
            assert!(message.contains(part) && message.contains(text), "{message}");
        }
    }
}
