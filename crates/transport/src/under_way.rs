//! Long messages that are under way: how many bytes they may be, and who begins the next one.
//!
//! Messages of producers stay so until there is room for them in the inbox, which the learner empties.
//!
//! Who finds no room waits, and room is given in the order in which it was asked for. While somebody waits all others wait behind: a
//! stream of long messages, which would take up whatever becomes free, keeps nobody out.

use std::collections::BTreeMap;
use std::task::{Context, Poll, Waker};

/// The long messages that some of the sockets have under way.
#[derive(Default)]
pub(super) struct UnderWay {
    bytes: u64,
    /// Those that wait for room, by their tickets: who came first has the lowest.
    waiting: BTreeMap<u64, Waiting>,
    next_ticket: u64,
    /// The part of the bytes that belongs to whole messages.
    whole_bytes: u64,
}

/// One that waits.
#[derive(Default)]
struct Waiting {
    bytes: u64,
    /// Whether there may be room since it last found none.
    is_called: bool,
    waker: Option<Waker>,
}

/// What one connection has of it.
#[derive(Default)]
pub(super) struct ConnectionShare {
    bytes: u64,
    is_whole: bool,
    /// Its place among those that wait, if it does.
    ticket: Option<u64>,
}

impl ConnectionShare {
    /// Bytes that are counted for it.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether it waits for room.
    pub(super) fn waits(&self) -> bool {
        self.ticket.is_some()
    }
}

impl UnderWay {
    /// Count so many bytes more for a connection, if nobody has asked before it and all are at most `most` then; or if there are none
    /// but its own that are not whole. Else it waits, until it asks again and there is room, or leaves.
    pub(super) fn begin(&mut self, part: &mut ConnectionShare, bytes: u64, most: u64) -> bool {
        let is_next = self.waiting.first_key_value().is_none_or(|(first, _)| part.ticket == Some(*first));
        if is_next && (self.bytes == part.bytes || self.bytes + bytes <= most) {
            self.bytes += bytes;
            part.bytes += bytes;
            // There may be room for the next one as well.
            self.leave(part);
            return true;
        }
        let ticket = *part.ticket.get_or_insert_with(|| {
            self.next_ticket += 1;
            self.next_ticket
        });
        let waiting = self.waiting.entry(ticket).or_default();
        (waiting.bytes, waiting.is_called) = (bytes, false);
        false
    }

    /// Of a connection no more than so many bytes are under way now. Gives how many have gone.
    pub(super) fn end(&mut self, part: &mut ConnectionShare, left: u64) -> u64 {
        let gone = part.bytes.saturating_sub(left);
        if gone > 0 {
            if std::mem::take(&mut part.is_whole) {
                self.whole_bytes -= part.bytes;
            }
            self.bytes -= gone;
            part.bytes = left;
            self.call();
        }
        gone
    }

    /// What a connection has under way is whole, and keeps its room until it is taken.
    pub(super) fn pass(&mut self, part: &mut ConnectionShare) {
        if !part.is_whole {
            part.is_whole = true;
            self.whole_bytes += part.bytes;
        }
    }

    /// A connection waits no longer.
    pub(super) fn leave(&mut self, part: &mut ConnectionShare) {
        if let Some(ticket) = part.ticket.take() {
            self.waiting.remove(&ticket);
            self.call();
        }
    }

    /// Let the first that waits ask again.
    fn call(&mut self) {
        if let Some((_, first)) = self.waiting.iter_mut().next() {
            first.is_called = true;
            if let Some(waker) = first.waker.take() {
                waker.wake();
            }
        }
    }

    /// Ready when one that waits should ask again; its task is woken then.
    pub(super) fn poll_call(&mut self, part: &ConnectionShare, cx: &mut Context<'_>) -> Poll<()> {
        match part.ticket.and_then(|ticket| self.waiting.get_mut(&ticket)) {
            Some(waiting) if waiting.is_called => Poll::Ready(()),
            Some(waiting) => {
                waiting.waker = Some(cx.waker().clone());
                Poll::Pending
            }
            None => Poll::Pending,
        }
    }

    /// Whether the first that waits would exceed `most` even when all that is whole has been taken: it needs what others have begun.
    pub(super) fn lacks_room(&self, most: u64) -> bool {
        let begun = self.bytes - self.whole_bytes;
        self.waiting.first_key_value().is_some_and(|(_, first)| begun + first.bytes > most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 100;

    #[test]
    fn a_whole_message_keeps_its_room_until_it_is_taken() {
        let (mut under_way, [mut one, mut other]) = (UnderWay::default(), parts());
        assert!(under_way.begin(&mut one, 60, MOST));
        assert!(!under_way.begin(&mut other, 50, MOST) && under_way.lacks_room(MOST));
        under_way.pass(&mut one);
        // The gate cuts no connection for that: what is whole will be taken.
        assert!(!under_way.begin(&mut other, 50, MOST) && !under_way.lacks_room(MOST));
        assert_eq!((under_way.end(&mut one, 0), under_way.end(&mut one, 0)), (60, 0));
        assert!(under_way.begin(&mut other, 50, MOST) && !under_way.begin(&mut one, 60, MOST));
        assert!(under_way.lacks_room(MOST), "what comes after it is not whole");
        assert_eq!((under_way.bytes, under_way.whole_bytes), (50, 0));
    }

    /// So many connections of which nothing is under way.
    fn parts<const N: usize>() -> [ConnectionShare; N] {
        std::array::from_fn(|_| ConnectionShare::default())
    }

    #[test]
    fn room_is_given_in_the_order_in_which_it_was_asked_for() {
        let (mut all, [mut stream, mut other, mut small]) = (UnderWay::default(), parts());
        assert!(all.begin(&mut stream, 90, MOST) && !all.begin(&mut other, 60, MOST));
        assert!(all.lacks_room(MOST));
        assert!(!all.begin(&mut small, 1, MOST), "another waits already");
        // The next message of the stream comes at once, and stands behind the two.
        assert_eq!(all.end(&mut stream, 0), 90);
        assert!(!all.begin(&mut stream, 90, MOST) && !all.begin(&mut small, 1, MOST), "the first is the other");
        assert!(!all.lacks_room(MOST), "it has room, and has not taken it yet");
        assert!(all.begin(&mut other, 60, MOST) && all.begin(&mut small, 1, MOST));
        assert!(!all.begin(&mut stream, 90, MOST) && all.lacks_room(MOST));
        // One that waits no longer, since it has gone, keeps nobody out.
        all.leave(&mut stream);
        assert!(!stream.waits() && all.begin(&mut small, 2, MOST));
        assert_eq!((other.bytes(), small.bytes(), all.bytes), (60, 3, 63));
    }

    #[test]
    fn a_stream_shares_with_those_that_wait() {
        let (mut all, [mut one, mut other]) = (UnderWay::default(), parts());
        assert!(all.begin(&mut one, 80, MOST) && !all.begin(&mut other, 80, MOST));
        let mut begun = [0, 0];
        for _ in 0..10 {
            for (k, part) in [&mut one, &mut other].into_iter().enumerate() {
                all.end(part, 0);
                begun[k] += u32::from(all.begin(part, 80, MOST));
            }
        }
        assert_eq!(begun, [3, 4], "they take turns");
    }

    #[test]
    fn what_a_connection_has_itself_keeps_it_from_nothing() {
        let (mut all, [mut one, mut other]) = (UnderWay::default(), parts());
        assert!(all.begin(&mut one, 70, MOST) && all.begin(&mut one, 2 * MOST, MOST), "there are none of others");
        assert!(!all.begin(&mut other, 1, MOST));
        all.end(&mut one, 10);
        assert!(all.begin(&mut other, 1, MOST) && !all.begin(&mut one, MOST, MOST));
    }

    #[test]
    fn who_waits_is_called_once_when_room_has_been_given_back() {
        let (mut all, [mut one, mut other]) = (UnderWay::default(), parts());
        let mut cx = Context::from_waker(Waker::noop());
        assert!(all.begin(&mut one, 90, MOST) && !all.begin(&mut other, 60, MOST));
        assert!(all.poll_call(&other, &mut cx).is_pending() && all.poll_call(&one, &mut cx).is_pending());
        all.end(&mut one, 50);
        assert!(all.poll_call(&other, &mut cx).is_ready());
        assert!(!all.begin(&mut other, 60, MOST) && all.poll_call(&other, &mut cx).is_pending(), "still too much");
        all.end(&mut one, 40);
        assert!(all.poll_call(&other, &mut cx).is_ready() && all.begin(&mut other, 60, MOST));
    }
}
