//! The daemon's side of the plain sockets: public listeners, and for each connection a link that speaks ZMTP.
//!
//! Two threads, each with a runtime of its own. One serves producers and clients. The other serves subscribers: they all have something
//! to take at the same moment, and requests do not wait for that. Neither waits for a peer or for the daemon. `permit.rs` counts what
//! connections cost, `link.rs` serves one of them, and `outward.rs` brings replies and publications to those that they are for.

#[cfg(feature = "curve")]
use super::curve;
use super::endpoint::{Listener, SocketFile};
use super::link::{Behind, Link, socket_types};
use super::outward::{closing, draining};
use super::permit::{ConnectionPermit, Gate, Streams};
use super::zmtp::{self, Scanner, Sent};
use super::{PeerLimits, Phase, Reason, SocketName, StartError, spawn};
#[cfg(feature = "curve")]
use crate::access::Rights;
use bytes::BytesMut;
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

/// Pause after a connection could not be accepted: without descriptors the listener stays ready.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Start a thread of the gate, which serves these doors, and `outward` beside them, until the transport is closed.
pub(super) fn start(
    name: &str,
    outward: impl Future<Output = ()> + Send + 'static,
    doors: Vec<(SocketName, Listener, Inside)>,
    gate: &Arc<Gate>,
    phase: &watch::Receiver<Phase>,
) -> Result<JoinHandle<()>, StartError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(StartError::internal("runtime"))?;
    let doors = {
        let _context = runtime.enter();
        let open = |(socket, listener, inside)| Door::open(socket, listener, inside);
        doors.into_iter().map(open).collect::<io::Result<Vec<_>>>().map_err(StartError::internal("public listener"))?
    };
    let (gate, phase) = (Arc::clone(gate), phase.clone());
    spawn(name, move || {
        runtime.block_on(async {
            let (mut tasks, mut closed) = (JoinSet::new(), phase.clone());
            doors.into_iter().for_each(|door| drop(tasks.spawn(door.accept_all(Arc::clone(&gate), phase.clone()))));
            let outward = tokio::spawn(outward);
            let end = async {
                relay(outward.await);
                // The other end only goes away with the transport.
                let _ = closed.wait_for(|p| matches!(p, Phase::Closed(_))).await;
            };
            let watch = async {
                all_ended(&mut tasks).await;
                std::future::pending::<()>().await;
            };
            tokio::select! { () = end => {}, () = watch => {} }
        });
        // Dropping the runtime closes every connection.
    })
}

/// Wait for the end of all tasks.
async fn all_ended(tasks: &mut JoinSet<()>) {
    while let Some(ended) = tasks.join_next().await {
        relay(ended);
    }
}

/// A panic of a task is one of its thread: the daemon stops then.
fn relay(ended: Result<(), JoinError>) {
    if let Err(ended) = ended
        && let Ok(panic) = ended.try_into_panic()
    {
        std::panic::resume_unwind(panic);
    }
}

/// A public listener in the gate's runtime.
enum DoorListener {
    Tcp(TcpListener),
    Ipc(UnixListener),
}

/// What connections lead to.
#[derive(Clone)]
pub(super) enum Inside {
    Plain(Behind),
    /// One of libzmq's sockets.
    #[cfg(feature = "curve")]
    Curve(curve::CurveListener),
}

/// One socket's public listener, and what is behind it.
struct Door {
    socket: SocketName,
    listener: DoorListener,
    _file: Option<SocketFile>,
    inside: Inside,
}

impl Door {
    fn open(socket: SocketName, listener: Listener, inside: Inside) -> io::Result<Self> {
        let (listener, file) = match listener {
            Listener::Tcp(listener) => (DoorListener::Tcp(TcpListener::from_std(listener)?), None),
            Listener::Ipc(listener, file) => (DoorListener::Ipc(UnixListener::from_std(listener)?), Some(file)),
        };
        Ok(Self { socket, listener, _file: file, inside })
    }

    /// Accept connections until the transport takes nothing more from the peers of this socket.
    async fn accept_all(self, gate: Arc<Gate>, mut phase: watch::Receiver<Phase>) {
        let is_over = |p: &Phase| match self.socket {
            SocketName::Ingest | SocketName::Control => *p != Phase::Running,
            SocketName::Publish => p.deadline().is_some(),
        };
        let mut connections = JoinSet::new();
        loop {
            let accepted = tokio::select! {
                _ = phase.wait_for(is_over) => break,
                Some(ended) = connections.join_next() => {
                    relay(ended);
                    continue;
                }
                accepted = self.accept(&gate.limits) => accepted,
            };
            match accepted {
                Ok((streams, address)) => match self.permit(&gate, address) {
                    Ok(seat) => drop(connections.spawn(serve(seat, streams, self.inside.clone(), phase.clone()))),
                    Err(reason) => gate.count_cut(self.socket, 0, address, reason),
                },
                Err(error) => {
                    gate.count_accept_failed(self.socket, &error);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            }
        }
        drop(self);
        all_ended(&mut connections).await;
    }

    async fn accept(&self, limits: &PeerLimits) -> io::Result<(Streams, Option<IpAddr>)> {
        match &self.listener {
            DoorListener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // A connection that is gone already fails here; its link finds out by itself.
                if let Err(error) = prepare(&stream, limits) {
                    log::debug!("event=socket_option_failed socket={} error={error:?}", self.socket);
                }
                let (reader, writer) = stream.into_split();
                Ok(((Box::new(reader), Box::new(writer)), Some(address.ip())))
            }
            DoorListener::Ipc(listener) => {
                let (reader, writer) = listener.accept().await?.0.into_split();
                Ok(((Box::new(reader), Box::new(writer)), None))
            }
        }
    }

    fn permit(&self, gate: &Arc<Gate>, address: Option<IpAddr>) -> Result<ConnectionPermit, Reason> {
        let rights = match &self.inside {
            Inside::Plain(_) => gate.access.rights(address),
            // Its key will tell.
            #[cfg(feature = "curve")]
            Inside::Curve(_) => Rights::ALL,
        };
        ConnectionPermit::take(gate, self.socket, address, rights)
    }
}

fn prepare(stream: &TcpStream, limits: &PeerLimits) -> io::Result<()> {
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
async fn serve(mut seat: ConnectionPermit, mut streams: Streams, inside: Inside, mut phase: watch::Receiver<Phase>) {
    #[cfg_attr(not(feature = "curve"), expect(clippy::infallible_destructuring_match, reason = "there is one kind"))]
    let behind = match inside {
        Inside::Plain(behind) => behind,
        #[cfg(feature = "curve")]
        Inside::Curve(front) => {
            let reason = front.serve(&seat, streams).await;
            reason.into_iter().for_each(|reason| seat.count_cut(reason));
            return;
        }
    };
    let (timeout, is_subscriber) = (seat.gate.limits.handshake_timeout, seat.socket == SocketName::Publish);
    let mut scanner = Scanner::new(&seat.gate.limits, seat.socket);
    let handshake = tokio::time::timeout(timeout, shake_hands(&mut seat, &mut scanner, &mut streams));
    let shaken = tokio::select! {
        shaken = handshake => shaken.unwrap_or(Err(Some(Reason::HandshakeTimeout))),
        () = draining(&mut phase), if !is_subscriber => return,
    };
    let unread = match shaken {
        Ok(unread) => unread,
        Err(reason) => {
            reason.into_iter().for_each(|reason| seat.count_cut(reason));
            return;
        }
    };
    let is_producer = seat.socket == SocketName::Ingest;
    let mut link = Link::new(seat, streams, behind, scanner, unread);
    tokio::select! {
        biased;
        () = link.run() => return,
        () = draining(&mut phase) => {}
    }
    link.stop_taking();
    tokio::select! {
        biased;
        () = link.run() => {}
        // Nobody reads its row.
        () = closing(&mut phase), if is_producer => {}
    }
}

/// Exchange greeting and READY with the peer; gives what it sent beyond its READY. An error without a reason: it left.
async fn shake_hands(
    seat: &mut ConnectionPermit,
    scanner: &mut Scanner,
    (reader, writer): &mut Streams,
) -> Result<BytesMut, Option<Reason>> {
    let (own_type, peer_types) = socket_types(seat.socket);
    // Old and new libzmq both wait for the beginning of ours before they go on.
    writer.write_all(&zmtp::greeting()).await.map_err(|_| None)?;
    loop {
        // A small piece: most of what a peer sends beyond its READY stays in the kernel, and a handshake holds hardly more than it may
        // have.
        let mut chunk = [0; 512];
        let n = reader.read(&mut chunk).await.map_err(|_| None)?;
        if n == 0 {
            return Err(None);
        }
        seat.gate.counters.socket(seat.socket).bytes_in.add(n as u64);
        let mut unread = &chunk[..n];
        while let Some(sent) = scanner.next(&mut unread)? {
            let Sent::Ready(ready) = sent else {
                writer.write_all(&zmtp::ready(own_type)).await.map_err(|_| None)?;
                continue;
            };
            if !peer_types.contains(&&ready.socket_type[..]) {
                return Err(Some(Reason::WrongSocketType));
            }
            seat.claim(ready.identity)?;
            return Ok(unread.into());
        }
    }
}
