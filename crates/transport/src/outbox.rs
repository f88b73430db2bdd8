//! Bounded queues from the daemon to the gate's threads, which put each item behind what waits for its peer.

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

/// A bounded queue that a thread of the gate empties: it wakes that thread, and no other stands between.
#[derive(Debug)]
pub struct Outbox<T> {
    queue: mpsc::Sender<T>,
    bytes: Count,
    bytes_max: usize,
}

/// The other end of an [`Outbox`].
pub struct Outgoings<T> {
    queue: mpsc::Receiver<T>,
    bytes: Count,
}

impl<T: Outgoing> Outgoings<T> {
    /// The next item; none when no more can come.
    pub async fn recv(&mut self) -> Option<T> {
        let item = self.queue.recv().await?;
        self.bytes.subtract(item.bytes() as u64);
        Some(item)
    }

    /// The next item, if there is one.
    pub fn try_recv(&mut self) -> Option<T> {
        let item = self.queue.try_recv().ok()?;
        self.bytes.subtract(item.bytes() as u64);
        Some(item)
    }

    /// Refuse further items.
    pub fn close(&mut self) {
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
    pub fn new(capacity: usize, bytes_max: usize) -> (Self, Outgoings<T>) {
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

    /// Bytes that wait.
    pub fn bytes(&self) -> u64 {
        self.bytes.get()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    struct Item(usize);

    impl Outgoing for Item {
        fn bytes(&self) -> usize {
            self.0
        }
    }

    #[test]
    fn what_waits_counts_until_it_is_taken() {
        let (outbox, mut outgoings) = Outbox::new(100, 30);
        [11, 10, 9].into_iter().for_each(|bytes| outbox.try_send(Item(bytes)).unwrap());
        assert_eq!(outgoings.try_recv(), Some(Item(11)));
        assert!(outbox.try_send(Item(20)).is_err(), "19 bytes wait still");
        outbox.try_send(Item(11)).unwrap();
        assert_eq!(outbox.bytes(), 30);
        outgoings.close();
        let taken: Vec<_> = std::iter::from_fn(|| outgoings.try_recv()).collect();
        assert_eq!(taken, [10, 9, 11].map(Item), "also once nothing more can come");
        assert_eq!(outbox.bytes(), 0);
    }
}
