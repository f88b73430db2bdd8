//! The other ends of the sockets, for programs that block: each has a thread inside that runs it, but for [`Req`], which works on the
//! caller's.
//!
//! What was found about `zeromq` 0.7 and is heeded here: PUSH and DEALER do not connect again once their connection has
//! gone, so [`Push`] and [`Dealer`] end then and say so; a socket queues 100 000 messages whatever their size, so [`Push`]
//! counts the bytes that have not been written yet; after a socket is closed its queue is still written, but only while
//! its runtime runs.

mod req;

pub use req::Req;

use crate::endpoint::Endpoint;
use bytes::Bytes;
use crossbeam_channel as crossbeam;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use zeromq::{DealerSocket, PushSocket, Socket, SocketOptions, SocketRecv, SocketSend, SubSocket, ZmqError};

/// Messages between a caller and the thread of its socket.
const QUEUE: usize = 64;
/// Bytes that a [`Push`] holds before `send` waits; one larger message is let through alone.
const UNSENT_BYTES_MAX: usize = 1 << 20;
/// What a message counts beside its bytes.
const MESSAGE_BYTES: usize = 64;
/// Received messages that the caller has not read yet.
const UNREAD: usize = 1024;
/// At a close, how often a look is taken whether everything has been written.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// Why there is no connection, or none any more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// No handshake was completed in time.
    #[error("no daemon answers at {0}: is `criticd serve` running?")]
    NoAnswer(Endpoint),
    /// The connection has gone. What was under way may be lost.
    #[error("the connection to {0} is lost, perhaps with pending messages: connect again")]
    Lost(Endpoint),
    /// What was sent could not be written in time; the rest is lost.
    #[error("the daemon at {0} did not accept everything in time; the remaining messages are lost")]
    NotWritten(Endpoint),
    /// What came is not what the socket of a server sends.
    #[error("what listens at {0} does not answer as a REP socket of ZeroMQ does")]
    Foreign(Endpoint),
    /// An answer is longer than it may be.
    #[error("the answer from {endpoint} is longer than the {bytes_max} bytes that it may have")]
    TooLong {
        /// Whose it is.
        endpoint: Endpoint,
        /// Bytes that it may have.
        bytes_max: usize,
    },
    /// A thread or runtime could not be made.
    #[error("cannot connect: {0}")]
    Internal(#[source] io::Error),
}

/// What every client socket has: its thread, and what ends it.
struct Worker {
    endpoint: Endpoint,
    /// Dropped to end the thread at once.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Worker {
    fn lost(&self) -> ConnectionError {
        ConnectionError::Lost(self.endpoint.clone())
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A thread that panicked has said so.
        drop(self.thread.take().map(JoinHandle::join));
    }
}

/// A connected socket and its runtime.
fn connect<S: Socket>(endpoint: &Endpoint, timeout: Duration) -> Result<(Runtime, S), ConnectionError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ConnectionError::Internal)?;
    let socket = runtime.block_on(async {
        let mut options = SocketOptions::default();
        options.connect_timeout(timeout);
        let mut socket = S::with_options(options);
        let outcome = tokio::time::timeout(timeout, socket.connect(&endpoint.to_string())).await;
        match outcome {
            Ok(Ok(())) => Ok(socket),
            // Whatever listens there, or does not: it is no daemon that answers.
            Ok(Err(_)) | Err(_) => Err(ConnectionError::NoAnswer(endpoint.clone())),
        }
    })?;
    Ok((runtime, socket))
}

fn start(
    name: &str,
    endpoint: &Endpoint,
    stop: oneshot::Sender<()>,
    body: impl FnOnce() + Send + 'static,
) -> Result<Worker, ConnectionError> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(body).map_err(ConnectionError::Internal)?;
    Ok(Worker { endpoint: endpoint.clone(), stop: Some(stop), thread: Some(thread) })
}

/// A PUSH socket: messages out, in order, nothing back.
pub struct Push {
    queue: Option<mpsc::Sender<Vec<u8>>>,
    written: crossbeam::Receiver<()>,
    worker: Worker,
}

impl Push {
    /// Connect within `timeout`.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn connect(endpoint: &Endpoint, timeout: Duration) -> Result<Self, ConnectionError> {
        let (runtime, mut socket) = connect::<PushSocket>(endpoint, timeout)?;
        let (queue, mut messages) = mpsc::channel(QUEUE);
        let (stop, mut stopped) = oneshot::channel();
        let (done, written) = crossbeam::bounded(1);
        let worker = start("criticd-push", endpoint, stop, move || {
            runtime.block_on(async {
                tokio::select! {
                    sent = push_all(&mut socket, &mut messages) => {
                        // All senders are gone: the task behind the socket writes its remaining messages and ends.
                        drop((socket, messages));
                        if sent.is_ok() && wait_for_tasks(&mut stopped).await {
                            // Without a listener the result is not needed.
                            let _ = done.send(());
                        }
                    }
                    _ = &mut stopped => {}
                }
            });
        })?;
        Ok(Self { queue: Some(queue), written, worker })
    }

    /// Send a message. Waits while a mebibyte of them has not been written, so a daemon that does not keep up slows the
    /// caller down.
    ///
    /// # Errors
    /// If the connection has gone. Messages sent before may be lost, too.
    pub fn send(&self, message: Vec<u8>) -> Result<(), ConnectionError> {
        let queue = self.queue.as_ref().expect("there is a queue until the socket is closed");
        queue.blocking_send(message).map_err(|_| self.worker.lost())
    }

    /// Wait until everything has been handed to the system, for at most `timeout`, and disconnect. What the daemon has
    /// learned is another matter: ask its `status`.
    ///
    /// # Errors
    /// If it took longer, or the connection has gone.
    pub fn close(mut self, timeout: Duration) -> Result<(), ConnectionError> {
        drop(self.queue.take());
        match self.written.recv_timeout(timeout) {
            Ok(()) => Ok(()),
            Err(crossbeam::RecvTimeoutError::Timeout) => Err(ConnectionError::NotWritten(self.worker.endpoint.clone())),
            Err(crossbeam::RecvTimeoutError::Disconnected) => Err(self.worker.lost()),
        }
    }
}

impl Drop for Push {
    fn drop(&mut self) {
        drop(self.queue.take());
    }
}

/// A message that makes room once it has been written.
struct CountedMessage {
    bytes: Vec<u8>,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for CountedMessage {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

async fn push_all(socket: &mut PushSocket, messages: &mut mpsc::Receiver<Vec<u8>>) -> Result<(), ZmqError> {
    let room = Arc::new(Semaphore::new(UNSENT_BYTES_MAX));
    let acquire = |bytes: usize| Arc::clone(&room).acquire_many_owned(bytes.min(UNSENT_BYTES_MAX) as u32);
    while let Some(bytes) = messages.recv().await {
        let Ok(permit) = acquire(bytes.len() + MESSAGE_BYTES).await else { unreachable!("it is never closed") };
        socket.send(Bytes::from_owner(CountedMessage { bytes, _room: permit }).into()).await?;
    }
    drop(acquire(UNSENT_BYTES_MAX).await);
    Ok(())
}

/// Whether the tasks of this runtime ended before `stopped`.
async fn wait_for_tasks(stopped: &mut oneshot::Receiver<()>) -> bool {
    let metrics = tokio::runtime::Handle::current().metrics();
    while metrics.num_alive_tasks() > 0 {
        tokio::select! {
            () = tokio::time::sleep(LOOK_INTERVAL) => {}
            _ = &mut *stopped => return false,
        }
    }
    true
}

/// A DEALER socket: requests out, replies in. Dropping it forgets both.
pub struct Dealer {
    requests: mpsc::Sender<Vec<u8>>,
    replies: crossbeam::Receiver<Bytes>,
    worker: Worker,
}

impl Dealer {
    /// Connect within `timeout`.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn connect(endpoint: &Endpoint, timeout: Duration) -> Result<Self, ConnectionError> {
        let (runtime, mut socket) = connect::<DealerSocket>(endpoint, timeout)?;
        let (requests, mut queue) = mpsc::channel::<Vec<u8>>(QUEUE);
        let (arrived, replies) = crossbeam::bounded(UNREAD);
        let (stop, mut stopped) = oneshot::channel();
        let worker = start("criticd-dealer", endpoint, stop, move || {
            runtime.block_on(async {
                let mut events = socket.monitor();
                let (mut send, mut receive) = socket.split();
                loop {
                    let goes_on = tokio::select! {
                        request = queue.recv() => match request {
                            Some(bytes) => send.send(bytes.into()).await.is_ok(),
                            None => false,
                        },
                        // While the caller reads nothing, this thread waits, and TCP slows the daemon.
                        reply = receive.recv() => match reply.map(|message| message.into_vec().pop()) {
                            Ok(Some(payload)) => arrived.send(payload).is_ok(),
                            _ => false,
                        },
                        // The only event after connecting: the connection has gone.
                        _ = events.recv() => false,
                        _ = &mut stopped => false,
                    };
                    if !goes_on {
                        break;
                    }
                }
            });
        })?;
        Ok(Self { requests, replies, worker })
    }

    /// Send a request. More than a thousand unread replies stop requests as well.
    ///
    /// # Errors
    /// If the connection has gone.
    pub fn send(&self, request: Vec<u8>) -> Result<(), ConnectionError> {
        self.requests.blocking_send(request).map_err(|_| self.worker.lost())
    }

    /// The next reply; `None` if none comes within `timeout`.
    ///
    /// # Errors
    /// If the connection has gone.
    pub fn receive(&self, timeout: Duration) -> Result<Option<Bytes>, ConnectionError> {
        receive(&self.replies, timeout).ok_or_else(|| self.worker.lost())
    }
}

/// A SUB socket. It connects again by itself; what is published meanwhile passes it by.
pub struct Subscription {
    messages: crossbeam::Receiver<(String, Bytes)>,
    worker: Worker,
}

impl Subscription {
    /// Connect within `timeout` and subscribe to all topics that start with one of `topics`.
    ///
    /// # Errors
    /// If there is no answer.
    pub fn connect(endpoint: &Endpoint, topics: &[&str], timeout: Duration) -> Result<Self, ConnectionError> {
        let (runtime, mut socket) = connect::<SubSocket>(endpoint, timeout)?;
        let subscribed = runtime.block_on(async {
            for topic in topics {
                socket.subscribe(topic).await?;
            }
            Ok::<(), ZmqError>(())
        });
        subscribed.map_err(|_| ConnectionError::Lost(endpoint.clone()))?;
        let (arrived, messages) = crossbeam::bounded(UNREAD);
        let (stop, mut stopped) = oneshot::channel();
        let worker = start("criticd-sub", endpoint, stop, move || {
            runtime.block_on(async {
                loop {
                    let received = tokio::select! {
                        received = socket.recv() => received,
                        _ = &mut stopped => break,
                    };
                    let Ok(message) = received else {
                        // The connection went; the socket makes another.
                        tokio::task::yield_now().await;
                        continue;
                    };
                    let Ok([topic, payload]) = <[Bytes; 2]>::try_from(message.into_vec()) else { continue };
                    let Ok(topic) = std::str::from_utf8(&topic) else { continue };
                    if arrived.send((topic.to_owned(), payload)).is_err() {
                        break;
                    }
                }
            });
        })?;
        Ok(Self { messages, worker })
    }

    /// The next publication; `None` if none comes within `timeout`.
    ///
    /// # Errors
    /// If the socket's thread has ended.
    pub fn receive(&self, timeout: Duration) -> Result<Option<(String, Bytes)>, ConnectionError> {
        receive(&self.messages, timeout).ok_or_else(|| self.worker.lost())
    }
}

/// `None` if the other end is gone.
fn receive<T>(queue: &crossbeam::Receiver<T>, timeout: Duration) -> Option<Option<T>> {
    match queue.recv_timeout(timeout) {
        Ok(message) => Some(Some(message)),
        Err(crossbeam::RecvTimeoutError::Timeout) => Some(None),
        Err(crossbeam::RecvTimeoutError::Disconnected) => None,
    }
}
