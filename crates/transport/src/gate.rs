//! What stands in front of the sockets: the public listeners, and for each connection a link that checks and pipes.
//!
//! Two threads, each with a runtime of its own, so that they go on while a socket behind them waits. One serves producers and
//! clients, and the control socket, which never waits for a peer. The other serves subscribers: they all have something to take at
//! the same moment, and requests do not wait for that. `permit.rs` counts what connections cost, and `link.rs` pipes one of them.
//!
//! The gate shakes hands with both sides by itself. To the ROUTERs it introduces every connection under a number of its
//! own, whatever identity the peer has.

#[cfg(feature = "curve")]
use super::curve;
use super::endpoint::{Listener, SocketFile};
use super::link::{Link, socket_types};
use super::permit::{ConnectionPermit, Gate, Reader, Writer};
use super::zmq::{self, spawn};
use super::zmtp::{self, Introduced, Introduction};
use super::{Limits, Phase, Reason, SocketName, StartError};
#[cfg(feature = "curve")]
use crate::access::Rights;
use bytes::BytesMut;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::runtime::Runtime;
use tokio::sync::watch;

/// Pause after a connection could not be accepted: without descriptors the listener stays ready.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A public listener and the path of the socket behind it, for each socket.
pub(super) struct Listeners {
    pub(super) ingest: (Listener, PathBuf),
    pub(super) control: (Listener, PathBuf),
    pub(super) publish: (Listener, PathBuf),
    /// Encrypted ones, and what is behind them.
    #[cfg(feature = "curve")]
    pub(super) curve: Vec<(SocketName, Listener, curve::CurveListener)>,
}

/// Start the gate's two threads. That of producers and clients runs `runtime`, and on it `control`, the control socket.
pub(super) fn start(
    runtime: Runtime,
    control: impl Future<Output = ()> + Send + 'static,
    doors: Listeners,
    gate: &Arc<Gate>,
    phase: &watch::Receiver<Phase>,
    threads: &mut Vec<JoinHandle<()>>,
) -> Result<(), StartError> {
    let plain = [
        (SocketName::Ingest, doors.ingest),
        (SocketName::Control, doors.control),
        (SocketName::Publish, doors.publish),
    ];
    let doors_of_peers = plain.into_iter().map(|(socket, (listener, path))| (socket, listener, Behind::Plain(path)));
    #[cfg(feature = "curve")]
    let doors_of_peers = doors_of_peers
        .chain(doors.curve.into_iter().map(|(socket, listener, front)| (socket, listener, Behind::Curve(front))));
    let (of_subscribers, others): (Vec<_>, Vec<_>) =
        doors_of_peers.partition(|(socket, ..)| *socket == SocketName::Publish);
    threads.push(run("criticd-fan-out", zmq::runtime()?, std::future::ready(()), of_subscribers, gate, phase)?);
    threads.push(run("criticd-gate", runtime, control, others, gate, phase)?);
    Ok(())
}

/// Start a thread that runs `runtime`, with these doors and another task, until the transport is closed.
fn run(
    name: &str,
    runtime: Runtime,
    task: impl Future<Output = ()> + Send + 'static,
    doors: Vec<(SocketName, Listener, Behind)>,
    gate: &Arc<Gate>,
    phase: &watch::Receiver<Phase>,
) -> Result<JoinHandle<()>, StartError> {
    let doors = {
        let _context = runtime.enter();
        let open = |(socket, listener, behind)| Door::open(socket, listener, behind);
        doors.into_iter().map(open).collect::<io::Result<Vec<_>>>().map_err(StartError::internal("public listener"))?
    };
    let (gate, phase) = (Arc::clone(gate), phase.clone());
    spawn(name, move || {
        runtime.block_on(async {
            let mut closed = phase.clone();
            for door in doors {
                tokio::spawn(door.accept_all(Arc::clone(&gate), phase.clone()));
            }
            // A task: the control socket wakes itself without a call to the system then.
            if let Err(ended) = tokio::spawn(task).await {
                std::panic::resume_unwind(ended.into_panic());
            }
            // The other end only goes away with the transport.
            let _ = closed.wait_for(|p| *p == Phase::Closed).await;
        });
        // Dropping the runtime closes every connection.
    })
}

/// A public listener in the gate's runtime.
enum DoorListener {
    Tcp(TcpListener),
    Ipc(UnixListener),
}

/// What connections are piped to.
#[derive(Clone)]
enum Behind {
    /// A socket of the crate, at this path.
    Plain(PathBuf),
    /// One of libzmq's.
    #[cfg(feature = "curve")]
    Curve(curve::CurveListener),
}

/// One socket's public listener, and the way to what is behind it.
struct Door {
    socket: SocketName,
    listener: DoorListener,
    _file: Option<SocketFile>,
    behind: Behind,
}

impl Door {
    fn open(socket: SocketName, listener: Listener, behind: Behind) -> io::Result<Self> {
        let (listener, file) = match listener {
            Listener::Tcp(listener) => (DoorListener::Tcp(TcpListener::from_std(listener)?), None),
            Listener::Ipc(listener, file) => (DoorListener::Ipc(UnixListener::from_std(listener)?), Some(file)),
        };
        Ok(Self { socket, listener, _file: file, behind })
    }

    /// Accept connections until the transport takes nothing more from the peers of this socket.
    async fn accept_all(self, gate: Arc<Gate>, mut phase: watch::Receiver<Phase>) {
        let is_over = |p: &Phase| match self.socket {
            SocketName::Ingest | SocketName::Control => *p != Phase::Running,
            SocketName::Publish => matches!(p, Phase::Closing(_) | Phase::Closed),
        };
        loop {
            let accepted = tokio::select! {
                _ = phase.wait_for(is_over) => return,
                accepted = self.accept(&gate.limits) => accepted,
            };
            match accepted {
                Ok((reader, writer, address)) => self.admit(&gate, &phase, reader, writer, address),
                Err(error) => {
                    gate.count_accept_failed(self.socket, &error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    async fn accept(&self, limits: &Limits) -> io::Result<(Reader, Writer, Option<IpAddr>)> {
        match &self.listener {
            DoorListener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // A connection that is gone already fails here; its link finds out by itself.
                if let Err(error) = prepare(&stream, limits) {
                    log::debug!("event=socket_option_failed socket={} error={error:?}", self.socket);
                }
                let (reader, writer) = stream.into_split();
                Ok((Box::new(reader), Box::new(writer), Some(address.ip())))
            }
            DoorListener::Ipc(listener) => {
                let (reader, writer) = listener.accept().await?.0.into_split();
                Ok((Box::new(reader), Box::new(writer), None))
            }
        }
    }

    fn admit(
        &self,
        gate: &Arc<Gate>,
        phase: &watch::Receiver<Phase>,
        reader: Reader,
        writer: Writer,
        address: Option<IpAddr>,
    ) {
        let rights = match &self.behind {
            Behind::Plain(_) => gate.access.rights(address),
            // Its key will tell.
            #[cfg(feature = "curve")]
            Behind::Curve(_) => Rights::ALL,
        };
        match ConnectionPermit::take(gate, self.socket, address, rights) {
            Ok(seat) => drop(tokio::spawn(serve(seat, reader, writer, self.behind.clone(), phase.clone()))),
            Err(reason) => gate.count_cut(self.socket, 0, address, reason),
        }
    }
}

fn prepare(stream: &TcpStream, limits: &Limits) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(limits.keepalive_idle)
        .with_interval((limits.keepalive_idle / 5).max(Duration::from_secs(1)))
        .with_retries(5);
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&keepalive)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(limits.unconfirmed_timeout))?;
    Ok(())
}

/// One connection, from its greeting to its end.
async fn serve(
    mut seat: ConnectionPermit,
    mut reader: Reader,
    mut writer: Writer,
    behind: Behind,
    phase: watch::Receiver<Phase>,
) {
    #[cfg_attr(not(feature = "curve"), expect(clippy::infallible_destructuring_match, reason = "there is one kind"))]
    let path = match behind {
        Behind::Plain(path) => path,
        #[cfg(feature = "curve")]
        Behind::Curve(front) => {
            let reason = front.serve(&seat, reader, writer).await;
            reason.into_iter().for_each(|reason| seat.count_cut(reason));
            return;
        }
    };
    let timeout = seat.gate.limits.handshake_timeout;
    let handshake = tokio::time::timeout(timeout, shake_hands(&mut seat, &mut reader, &mut writer));
    let read_ahead = match handshake.await.unwrap_or(Err(Some(Reason::HandshakeTimeout))) {
        Ok(read_ahead) => read_ahead,
        Err(reason) => {
            reason.into_iter().for_each(|reason| seat.count_cut(reason));
            return;
        }
    };
    let Ok(inner) = UnixStream::connect(&path).await else {
        if *phase.borrow() == Phase::Running {
            seat.count_cut(Reason::Internal);
        }
        return;
    };
    Link::new(seat, reader, writer, inner, phase).run(&read_ahead).await;
}

/// Exchange greeting and READY with the peer; gives what it sent beyond its READY. An error without a reason: it left.
async fn shake_hands(
    seat: &mut ConnectionPermit,
    reader: &mut Reader,
    writer: &mut Writer,
) -> Result<BytesMut, Option<Reason>> {
    let (own_type, _, peer_types) = socket_types(seat.socket);
    let mut introduction = Introduction::new(&seat.gate.limits);
    let mut bytes = BytesMut::new();
    // Old and new libzmq both wait for the beginning of ours before they go on.
    writer.write_all(&zmtp::greeting(1)).await.map_err(|_| None)?;
    let ready = loop {
        match introduction.take(&mut bytes)? {
            Some(Introduced::Greeting) => writer.write_all(&zmtp::ready(own_type, b"")).await.map_err(|_| None)?,
            Some(Introduced::Ready(ready)) => break ready,
            None => read_more(seat, reader, &mut bytes).await?,
        }
    };
    if !peer_types.contains(&&ready.socket_type[..]) {
        return Err(Some(Reason::WrongSocketType));
    }
    seat.claim(ready.identity)?;
    Ok(bytes)
}

/// Read a small piece: most of what a peer sends beyond its READY stays in the kernel, and a handshake holds hardly more
/// than it may have.
async fn read_more(seat: &ConnectionPermit, reader: &mut Reader, bytes: &mut BytesMut) -> Result<(), Option<Reason>> {
    let mut chunk = [0; 512];
    let n = reader.read(&mut chunk).await.map_err(|_| None)?;
    if n == 0 {
        return Err(None);
    }
    seat.gate.counters.socket(seat.socket).bytes_in.add(n as u64);
    bytes.extend_from_slice(&chunk[..n]);
    Ok(())
}
