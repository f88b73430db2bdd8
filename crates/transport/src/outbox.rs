//! Bounded queues from the daemon to the threads of the sockets.
//!
//! Those threads take items in turns between peers, as requests are taken: what waits for one peer stands before nothing of another. Short
//! ones go first: a long one is passed on in many pieces, and whoever waits for a short answer is not to wait for the long ones of
//! others. The order of what goes to one peer stays.

use super::turns::{Entrance, Share, Turns, turns};
use super::{Count, SHORT_BYTES};
use crossbeam_channel::{SendError, TrySendError};
use std::time::Duration;
use tokio::sync::mpsc;

/// Pause of a sender while an [`Outbox`] is full.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// Short items that go before a long one, at most.
const SHORT_MAX: usize = 64;

/// What an [`Outbox`] holds.
pub trait Outgoing {
    /// So many of them the other end looks at to choose the next one, at most.
    const CHOICE: usize;

    /// Bytes of the message.
    fn bytes(&self) -> usize;

    /// Whom it is for, by the number of the connection: the same for all that keep their order.
    fn peer(&self) -> u64;
}

/// A bounded queue that a socket's thread empties: it wakes that thread, and no other stands between.
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
    /// Some of what waits, by peer.
    dealt: (Entrance<T>, Turns<T>),
    /// Short items that have been taken since the last long one.
    short: usize,
}

impl<T: Outgoing> Outgoings<T> {
    /// The next item; none when no more can come.
    pub async fn recv(&mut self) -> Option<T> {
        if let Some(item) = self.try_recv() {
            return Some(item);
        }
        let item = self.queue.recv().await?;
        self.deal(item);
        self.try_recv()
    }

    /// The next item, if there is one.
    pub fn try_recv(&mut self) -> Option<T> {
        while self.dealt.1.len() < T::CHOICE
            && let Ok(item) = self.queue.try_recv()
        {
            self.deal(item);
        }
        let is_short = |item: &T| item.bytes() <= SHORT_BYTES;
        let first = (self.short < SHORT_MAX).then(|| self.dealt.1.next_of(is_short)).flatten();
        let item = first.or_else(|| self.dealt.1.next())?;
        self.short = if is_short(&item) { (self.short + 1).min(SHORT_MAX) } else { 0 };
        self.bytes.subtract(item.bytes() as u64);
        Some(item)
    }

    fn deal(&self, item: T) {
        self.dealt.0.put(item.peer(), item.bytes(), item);
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
        // The bytes are bounded here, whoever they are for.
        let dealt = turns(Share { peer_bytes: usize::MAX, total_bytes: usize::MAX });
        let outbox = Self { queue, bytes: bytes.clone(), bytes_max };
        (outbox, Outgoings { queue: receiver, bytes, dealt, short: 0 })
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

    /// Items that wait, but for those that the other end chooses from.
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

    /// For a peer: which of its items, and how long it is.
    #[derive(Debug, PartialEq)]
    struct Item(u64, usize, usize);

    impl Outgoing for Item {
        const CHOICE: usize = 1024;

        fn bytes(&self) -> usize {
            self.2
        }

        fn peer(&self) -> u64 {
            self.0
        }
    }

    fn taken(outgoings: &mut Outgoings<Item>) -> Vec<(u64, usize)> {
        std::iter::from_fn(|| outgoings.try_recv()).map(|Item(peer, number, _)| (peer, number)).collect()
    }

    #[test]
    fn long_answers_to_some_stand_before_nothing_of_others() {
        let (outbox, mut outgoings) = Outbox::new(100, usize::MAX);
        let long = SHORT_BYTES + 1;
        for number in 0..3 {
            [1, 2].into_iter().for_each(|peer| outbox.try_send(Item(peer, number, long)).unwrap());
        }
        outbox.try_send(Item(3, 0, 10)).unwrap();
        outbox.try_send(Item(1, 3, 10)).unwrap();
        assert_eq!(outbox.bytes(), 6 * long as u64 + 20);
        let order = [(3, 0), (1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (1, 3), (2, 2)];
        assert_eq!(taken(&mut outgoings), order, "each keeps its order");
        assert_eq!(outbox.bytes(), 0);
    }

    #[test]
    fn short_answers_without_end_keep_no_long_one_waiting_for_ever() {
        let (outbox, mut outgoings) = Outbox::new(4 * SHORT_MAX, usize::MAX);
        outbox.try_send(Item(1, 0, SHORT_BYTES + 1)).unwrap();
        (0..3 * SHORT_MAX).for_each(|number| outbox.try_send(Item(2, number, 10)).unwrap());
        let order = taken(&mut outgoings);
        assert_eq!(order.iter().position(|&(peer, _)| peer == 1), Some(SHORT_MAX));
        assert!(order.iter().filter(|(peer, _)| *peer == 2).map(|(_, number)| *number).eq(0..3 * SHORT_MAX));
    }

    #[test]
    fn what_waits_to_be_chosen_counts_until_it_is() {
        let (outbox, mut outgoings) = Outbox::new(100, 30);
        (0..3).for_each(|number| outbox.try_send(Item(1, number, 10)).unwrap());
        assert_eq!(outgoings.try_recv(), Some(Item(1, 0, 10)));
        assert!(outbox.try_send(Item(1, 3, 20)).is_err(), "20 bytes wait still");
        outbox.try_send(Item(1, 3, 10)).unwrap();
        outgoings.close();
        assert_eq!(taken(&mut outgoings), [(1, 1), (1, 2), (1, 3)], "also once nothing more can come");
    }
}
