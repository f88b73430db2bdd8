//! The way of rows into the daemon's queue: bounded in messages and in bytes, a message of each producer in turn.

use super::Count;
use bytes::Bytes;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded};
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::time::Sleep;

/// Pause while the inbox is full.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// Where messages of producers are put in: bounded in messages and in bytes, which one message may exceed. It keeps their order.
pub(super) struct Inbox {
    queue: Sender<Bytes>,
    held: Arc<Held>,
    /// Beside the queue's capacity.
    messages_max: usize,
    bytes_max: usize,
}

/// What one of those that put messages in has there.
struct Held {
    messages: Count,
    bytes: Count,
    /// The bytes of all that put messages in.
    all: Count,
}

/// A message that counts until its last reader drops it.
struct Counted {
    payload: Vec<u8>,
    held: Arc<Held>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.payload
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.held.count(&self.payload, Count::subtract);
    }
}

impl Held {
    fn count(&self, payload: &[u8], change: fn(&Count, u64)) {
        let bytes = payload.len() as u64;
        change(&self.messages, 1);
        change(&self.bytes, bytes);
        change(&self.all, bytes);
    }
}

impl Inbox {
    /// An inbox for so much, and its other end. What waits in it is counted there.
    pub(super) fn new(messages: usize, bytes_max: usize, counted: Count) -> (Self, Receiver<Bytes>) {
        let (queue, messages) = bounded(messages);
        (Self::part(queue, usize::MAX, bytes_max, counted), messages)
    }

    fn part(queue: Sender<Bytes>, messages_max: usize, bytes_max: usize, all: Count) -> Self {
        let held = Arc::new(Held { messages: Count::default(), bytes: Count::default(), all });
        Self { queue, held, messages_max, bytes_max }
    }

    /// For two that put messages in, each with half of the room, so that neither keeps the other out.
    #[cfg(feature = "curve")]
    pub(super) fn halves(&self) -> [Self; 2] {
        let messages_max = (self.queue.capacity().unwrap_or(usize::MAX) / 2).max(1);
        [(); 2].map(|()| Self::part(self.queue.clone(), messages_max, self.bytes_max / 2, self.held.all.clone()))
    }

    /// Whether a message of so many bytes has no room.
    fn is_full(&self, bytes: usize) -> bool {
        let (messages, before) = (self.held.messages.get(), self.held.bytes.get());
        let too_many = self.queue.is_full() || messages >= self.messages_max as u64;
        too_many || (before > 0 && before + bytes as u64 > self.bytes_max as u64)
    }

    /// Put a message in; it comes back if the inbox is full. What the daemon reads no more is dropped.
    pub(super) fn try_send(&self, payload: Vec<u8>) -> Result<(), Vec<u8>> {
        if self.is_full(payload.len()) {
            return Err(payload);
        }
        self.held.count(&payload, Count::add);
        let message = Bytes::from_owner(Counted { payload, held: Arc::clone(&self.held) });
        self.queue.try_send(message).or_else(|error| match error {
            // The other half was quicker.
            TrySendError::Full(message) => Err(message.to_vec()),
            TrySendError::Disconnected(_) => Ok(()),
        })
    }
}

/// Where plain producers put their messages in. Who finds no room stands in line with one message, and all others behind it: a producer
/// waits for what is in the inbox, and for one message of each other.
pub(super) struct Rows {
    inbox: Inbox,
    line: Mutex<InboxLine>,
}

#[derive(Default)]
struct InboxLine {
    /// By the numbers of their connections.
    waiting: VecDeque<(u64, Waker)>,
    /// Until the first looks for room again.
    pause: Option<Pin<Box<Sleep>>>,
}

impl Rows {
    pub(super) fn new(inbox: Inbox) -> Self {
        Self { inbox, line: Mutex::default() }
    }

    /// Put the producer's message in, if it is its turn and there is room; else it stays, and the task is woken when that may be so.
    pub(super) fn poll_put(&self, producer: u64, row: &mut Option<Vec<u8>>, cx: &mut Context<'_>) -> Poll<()> {
        let Some(payload) = row.take() else { return Poll::Pending };
        let mut line = self.line.lock();
        if line.waiting.front().is_some_and(|(first, _)| *first != producer) {
            *row = Some(payload);
            if line.waiting.iter().all(|(other, _)| *other != producer) {
                line.waiting.push_back((producer, cx.waker().clone()));
            }
            return Poll::Pending;
        }
        let Err(payload) = self.inbox.try_send(payload) else {
            line.leave(producer);
            return Poll::Ready(());
        };
        *row = Some(payload);
        if line.waiting.is_empty() {
            line.waiting.push_back((producer, cx.waker().clone()));
        }
        // The daemon makes room without a word.
        let pause = line.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(FULL_PAUSE)));
        if pause.as_mut().poll(cx).is_ready() {
            line.pause = None;
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    }

    /// The producer has nothing to put in any more.
    pub(super) fn leave(&self, producer: u64) {
        self.line.lock().leave(producer);
    }
}

impl InboxLine {
    fn leave(&mut self, producer: u64) {
        let first = self.waiting.front().map(|(first, _)| *first);
        self.waiting.retain(|(other, _)| *other != producer);
        if first == Some(producer)
            && let Some((_, next)) = self.waiting.front()
        {
            next.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::{Dealer, Push};
    use crate::{Settings, start};

    /// The inbox of these tests holds so many messages.
    const INBOX: usize = 8;

    #[test]
    fn of_a_flood_few_messages_stand_before_those_of_another_producer() {
        let (patience, any_port) = (Duration::from_secs(60), || "tcp://127.0.0.1:0".parse().unwrap());
        let settings = Settings { ingest: any_port(), control: any_port(), publish: any_port(), ..Settings::default() };
        let transport = start(Settings { inbox_messages: INBOX, ..settings }).unwrap();
        let connect = || Push::connect(&transport.endpoints.ingest, patience).unwrap();
        let (slow, flooder) = (connect(), connect());
        let arrived = || transport.counters.ingest.bytes_in.get();
        let next = || transport.ingest.recv_timeout(patience).unwrap()[0];
        // When their first messages have come, nothing of their handshakes is on its way.
        for (producer, name) in [(&slow, 1), (&flooder, 0)] {
            producer.send(vec![name]).unwrap();
            assert_eq!(next(), name);
        }
        // With another handshake the gate has had a turn: of what each has sent, one message stands in line.
        let turn = || drop(Dealer::connect(&transport.endpoints.control, patience).unwrap());
        // So many stand in the flooder's connection, or in the inbox, whenever the other sends.
        let mut taken = 5 * INBOX;
        for _ in 0..5 {
            (0..taken).for_each(|_| flooder.send(vec![0; 1000]).unwrap());
            while !transport.ingest.is_full() {
                std::thread::sleep(Duration::from_millis(1));
            }
            turn();
            let before = arrived();
            slow.send(vec![1]).unwrap();
            while arrived() < before + 3 {
                std::thread::sleep(Duration::from_millis(1));
            }
            turn();
            taken = std::iter::from_fn(|| (next() == 0).then_some(())).count();
            // Those in the inbox, the one that waits for it, and one in turn.
            assert!((INBOX..=INBOX + 4).contains(&taken), "{taken} messages came first");
        }
    }

    #[cfg(feature = "curve")]
    #[test]
    fn who_puts_in_much_leaves_half_of_the_inbox() {
        let (inbox, queue) = Inbox::new(4, 100, Count::default());
        let [one, other] = inbox.halves();
        let is_taken = |inbox: &Inbox, bytes: usize| inbox.try_send(vec![0; bytes]).is_ok();
        assert_eq!([10, 10, 1].map(|bytes| is_taken(&one, bytes)), [true, true, false], "two of four messages");
        assert_eq!([40, 11].map(|bytes| is_taken(&other, bytes)), [true, false], "40 of 50 bytes");
        assert_eq!(inbox.held.all.get(), 60);
        drop(queue.recv().unwrap());
        assert!(is_taken(&one, 1));
    }

    #[cfg(feature = "curve")]
    #[test]
    fn both_halves_together_are_no_more_than_the_inbox() {
        for size in [1, 3] {
            let (inbox, queue) = Inbox::new(size, 100, Count::default());
            let [one, other] = inbox.halves();
            let [first, second] = [&one, &other].map(|half| half.try_send(vec![0; 40]).is_ok());
            assert_eq!((first, second), (true, size > 1), "capacity {size}");
            assert!(one.try_send(vec![0]).is_err());
            queue.try_iter().for_each(drop);
            assert_eq!((inbox.held.all.get(), other.held.messages.get()), (0, 0));
            assert!(other.try_send(vec![0; 40]).is_ok());
        }
    }

    #[test]
    fn who_stands_in_line_puts_in_one_message_in_turn() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        let (inbox, queue) = Inbox::new(1, 100, Count::default());
        let (rows, mut cx) = (Rows::new(inbox), Context::from_waker(Waker::noop()));
        let mut put = |producer: u64, byte| rows.poll_put(producer, &mut Some(vec![byte]), &mut cx).is_ready();
        assert_eq!([(7, 0), (7, 1), (8, 2), (9, 3)].map(|(p, byte)| put(p, byte)), [true, false, false, false]);
        drop(queue.recv().unwrap());
        // There is room, and the others wait for the first.
        assert_eq!([(9, 3), (8, 2), (7, 1), (7, 4)].map(|(p, byte)| put(p, byte)), [false, false, true, false]);
        rows.leave(8);
        drop(queue.recv().unwrap());
        assert_eq!([(7, 4), (9, 3)].map(|(p, byte)| put(p, byte)), [false, true], "one more of it stands behind");
        drop(queue.recv().unwrap());
        assert!(put(7, 4) && rows.line.lock().waiting.is_empty());
    }
}
