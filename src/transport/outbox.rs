//! Bounded queues from the daemon to the threads of the sockets.

use super::Count;
use crossbeam_channel::{SendError, TrySendError};
use std::time::Duration;
use tokio::sync::mpsc;

/// Pause of a sender while an [`Outbox`] is full.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// What an [`Outbox`] holds.
pub trait Outgoing {
    /// Bytes of the message.
    fn bytes(&self) -> usize;
}

/// A bounded queue that a socket's thread empties: it wakes that thread, and no other stands between.
#[derive(Debug)]
pub struct Outbox<T> {
    queue: mpsc::Sender<T>,
    bytes: Count,
    bytes_max: usize,
}

/// The other end of an [`Outbox`].
#[derive(Debug)]
pub(crate) struct Outgoings<T> {
    queue: mpsc::Receiver<T>,
    bytes: Count,
}

impl<T: Outgoing> Outgoings<T> {
    fn taken(&self, item: T) -> T {
        self.bytes.subtract(item.bytes() as u64);
        item
    }

    /// The next item; none when no more can come.
    pub(crate) async fn recv(&mut self) -> Option<T> {
        let item = self.queue.recv().await?;
        Some(self.taken(item))
    }

    /// The next item, if there is one.
    #[cfg(test)]
    pub(crate) fn try_recv(&mut self) -> Option<T> {
        let item = self.queue.try_recv().ok()?;
        Some(self.taken(item))
    }

    /// Refuse further items.
    pub(crate) fn close(&mut self) {
        self.queue.close();
    }
}

impl<T> Clone for Outbox<T> {
    fn clone(&self) -> Self {
        Self { queue: self.queue.clone(), bytes: self.bytes.clone(), bytes_max: self.bytes_max }
    }
}

impl<T: Outgoing> Outbox<T> {
    /// A queue of at most `capacity` items, at least 1, and so many bytes, which one item may exceed; and its other end.
    #[cfg(test)]
    pub(crate) fn new(capacity: usize, bytes_max: usize) -> (Self, Outgoings<T>) {
        Self::counted(capacity, bytes_max, Count::default())
    }

    /// The same, with the bytes that wait in it counted there.
    pub(super) fn counted(capacity: usize, bytes_max: usize, bytes: Count) -> (Self, Outgoings<T>) {
        let (queue, receiver) = mpsc::channel(capacity);
        (Self { queue, bytes: bytes.clone(), bytes_max }, Outgoings { queue: receiver, bytes })
    }

    /// Hand an item over, waiting while the queue is full. Not from within an async runtime.
    ///
    /// # Errors
    /// If the transport has ended, with the item.
    pub fn send(&self, mut item: T) -> Result<(), SendError<T>> {
        loop {
            match self.try_send(item) {
                Ok(()) => return Ok(()),
                Err(TrySendError::Disconnected(item)) => return Err(SendError(item)),
                Err(TrySendError::Full(refused)) => item = refused,
            }
            // The thread at the other end waits for no peer: this is over soon.
            std::thread::sleep(FULL_PAUSE);
        }
    }

    /// Hand an item over, unless the queue is full.
    ///
    /// # Errors
    /// If it is, or the transport has ended, with the item.
    pub fn try_send(&self, item: T) -> Result<(), TrySendError<T>> {
        let (bytes, before) = (item.bytes() as u64, self.bytes.get());
        if before > 0 && before + bytes > self.bytes_max as u64 && !self.queue.is_closed() {
            return Err(TrySendError::Full(item));
        }
        self.bytes.add(bytes);
        self.queue.try_send(item).map_err(|refused| {
            self.bytes.subtract(bytes);
            match refused {
                mpsc::error::TrySendError::Full(item) => TrySendError::Full(item),
                mpsc::error::TrySendError::Closed(item) => TrySendError::Disconnected(item),
            }
        })
    }

    /// Items that wait.
    pub fn len(&self) -> usize {
        self.capacity() - self.queue.capacity()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Items that may wait.
    pub fn capacity(&self) -> usize {
        self.queue.max_capacity()
    }
}
