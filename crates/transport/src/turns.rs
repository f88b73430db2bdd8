//! Requests that wait: a queue for each peer, taken from in turns, counted in bytes.
//!
//! Addresses have turns, and the connections of an address share its turns: many connections give a client no more of them.
//! A peer's backlog stands behind its own first request only. Each peer has a share of the bytes, and all together have a
//! total; a peer beyond its share is not read until its queue has become shorter. A peer that does not read its answers gets
//! no turn, and the requests of a peer that has left are dropped.

use super::{CONNECTION_BITS, Count, SHORT_BYTES};
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use parking_lot::Mutex;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// What an item counts beside the bytes of its message.
pub const ITEM_BYTES: usize = 256;

/// Bytes that may wait, [`ITEM_BYTES`] for each item included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Of one peer. A peer of which nothing waits may always add one item.
    pub peer_bytes: usize,
    /// Of all peers.
    pub total_bytes: usize,
}

/// The part of a connection's number that is the same for all connections of one address.
fn group_of(peer: u64) -> u64 {
    peer >> CONNECTION_BITS
}

/// A queue for each peer: the end at which items are put in, and the end at which they are taken.
pub fn turns<T>(share: Share) -> (Entrance<T>, Turns<T>) {
    turns_counted(share, Count::default())
}

/// The same, with the bytes that wait counted there.
pub(super) fn turns_counted<T>(share: Share, counted: Count) -> (Entrance<T>, Turns<T>) {
    let (bell, rung) = bounded(1);
    let shared = Arc::new(Shared { share, state: Mutex::new(State { counted, ..State::default() }), bell });
    let turns = Turns { shared: Arc::clone(&shared), rung };
    (Entrance { watch: Watch(Arc::clone(&shared)), _closer: Arc::new(Closer(shared)) }, turns)
}

struct Shared<T> {
    share: Share,
    state: Mutex<State<T>>,
    /// Rung when there may be something to take.
    bell: Sender<()>,
}

struct State<T> {
    queues: HashMap<u64, PeerQueue<T>>,
    /// Addresses of which something waits, the one whose turn is next first.
    order: VecDeque<u64>,
    /// Of each of these its peers of which something waits, in the same way.
    groups: HashMap<u64, VecDeque<u64>>,
    items: usize,
    bytes: usize,
    /// The same for others to read.
    counted: Count,
    /// Peers that get no turn, since they do not read their answers.
    paused: HashSet<u64>,
    /// Peers that wait for room.
    held: HashMap<u64, Waker>,
    /// Peers that have left since this was asked last.
    gone: Vec<u64>,
    closed: bool,
}

impl<T> Default for State<T> {
    fn default() -> Self {
        Self {
            queues: HashMap::new(),
            order: VecDeque::new(),
            groups: HashMap::new(),
            items: 0,
            bytes: 0,
            counted: Count::default(),
            paused: HashSet::new(),
            held: HashMap::new(),
            gone: Vec::new(),
            closed: false,
        }
    }
}

/// What waits of one peer.
struct PeerQueue<T> {
    items: VecDeque<(usize, T)>,
    bytes: usize,
}

impl<T> State<T> {
    fn bytes_of(&self, peer: u64) -> usize {
        self.queues.get(&peer).map_or(0, |waiting| waiting.bytes)
    }

    fn has_room(&self, peer: u64, share: Share) -> bool {
        let own = self.bytes_of(peer);
        own == 0 || (own < share.peer_bytes && self.bytes < share.total_bytes)
    }

    fn put(&mut self, peer: u64, bytes: usize, item: T) {
        let bytes = bytes + ITEM_BYTES;
        let waiting = self.queues.entry(peer).or_insert_with(|| PeerQueue { items: VecDeque::new(), bytes: 0 });
        if waiting.items.is_empty() {
            let peers = self.groups.entry(group_of(peer)).or_default();
            if peers.is_empty() {
                self.order.push_back(group_of(peer));
            }
            peers.push_back(peer);
        }
        waiting.items.push_back((bytes, item));
        waiting.bytes += bytes;
        self.items += 1;
        self.bytes += bytes;
        self.counted.add(bytes as u64);
    }

    /// The first peer, in the order of turns, whose first item is wanted: the place of its address, and its own place there.
    fn find(&self, is_wanted: impl Fn(u64, &T) -> bool) -> Option<(usize, usize)> {
        self.order.iter().enumerate().find_map(|(place, group)| {
            let is_first = |&peer: &u64| is_wanted(peer, &self.queues[&peer].items[0].1);
            self.groups[group].iter().position(is_first).map(|at| (place, at))
        })
    }

    /// Take the first item of the peer at this place of the order; its address has its next turn after all others.
    fn take(&mut self, (place, at): (usize, usize)) -> T {
        let group = self.order.remove(place).expect("the place was found in the order");
        let peers = self.groups.get_mut(&group).expect("an address in the order has peers");
        let peer = peers.remove(at).expect("the place was found in the order");
        let waiting = self.queues.get_mut(&peer).expect("something waits of a peer in the order");
        let (bytes, item) = waiting.items.pop_front().expect("something waits of a peer in the order");
        waiting.bytes -= bytes;
        self.items -= 1;
        self.bytes -= bytes;
        self.counted.subtract(bytes as u64);
        if waiting.items.is_empty() {
            self.queues.remove(&peer);
        } else {
            peers.push_back(peer);
        }
        if peers.is_empty() {
            self.groups.remove(&group);
        } else {
            self.order.push_back(group);
        }
        item
    }

    /// Drop what waits of a peer.
    fn drop_of(&mut self, peer: u64) -> Option<PeerQueue<T>> {
        let waiting = self.queues.remove(&peer)?;
        self.bytes -= waiting.bytes;
        self.counted.subtract(waiting.bytes as u64);
        self.items -= waiting.items.len();
        let group = group_of(peer);
        let peers = self.groups.get_mut(&group)?;
        peers.retain(|&known| known != peer);
        if peers.is_empty() {
            self.groups.remove(&group);
            self.order.retain(|&known| known != group);
        }
        Some(waiting)
    }

    /// Those that have waited for room and have some now. Half of a share is to be free, so that a peer is not woken for
    /// each item.
    fn wake(&mut self, share: Share) {
        if self.held.is_empty() {
            return;
        }
        let room = Share { peer_bytes: share.peer_bytes / 2, total_bytes: share.total_bytes };
        let mut held = std::mem::take(&mut self.held);
        held.retain(|&peer, waker| {
            let waits = !self.has_room(peer, room);
            if !waits {
                waker.wake_by_ref();
            }
            waits
        });
        self.held = held;
    }
}

/// What is known of the queues where nothing is put in or taken.
pub struct Watch<T>(Arc<Shared<T>>);

impl<T> Clone for Watch<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Watch<T> {
    /// Whether a peer may add an item.
    pub fn has_room(&self, peer: u64) -> bool {
        self.0.state.lock().has_room(peer, self.0.share)
    }

    /// Ready if a peer may add an item; else its task is woken when it may.
    pub fn poll_room(&self, peer: u64, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.state.lock();
        if state.has_room(peer, self.0.share) {
            return Poll::Ready(());
        }
        state.held.insert(peer, cx.waker().clone());
        Poll::Pending
    }

    /// Whether all peers together have as much waiting as they may.
    pub fn is_full(&self) -> bool {
        self.0.state.lock().bytes >= self.0.share.total_bytes
    }

    /// Give a peer no turn while it does not read its answers.
    pub fn pause(&self, peer: u64, paused: bool) {
        let mut state = self.0.state.lock();
        if paused {
            state.paused.insert(peer);
        } else if state.paused.remove(&peer) {
            drop(state);
            self.ring();
        }
    }

    /// A peer has left: drop what it has asked for.
    pub fn leave(&self, peer: u64) {
        let mut state = self.0.state.lock();
        // Freed when the queues are free again.
        let dropped = state.drop_of(peer);
        state.paused.remove(&peer);
        state.held.remove(&peer);
        state.gone.push(peer);
        state.wake(self.0.share);
        drop(state);
        drop(dropped);
        self.ring();
    }

    fn ring(&self) {
        // One notice in the queue is enough.
        let _ = self.0.bell.try_send(());
    }
}

/// Where items are put in. When all clones have been dropped nothing more can come.
pub struct Entrance<T> {
    watch: Watch<T>,
    _closer: Arc<Closer<T>>,
}

impl<T> Clone for Entrance<T> {
    fn clone(&self) -> Self {
        Self { watch: self.watch.clone(), _closer: Arc::clone(&self._closer) }
    }
}

impl<T> std::ops::Deref for Entrance<T> {
    type Target = Watch<T>;

    fn deref(&self) -> &Watch<T> {
        &self.watch
    }
}

impl<T> Entrance<T> {
    /// Put in an item of `bytes` bytes, whether there is room or not: the gate holds a peer back by [`Watch::poll_room`].
    pub fn put(&self, peer: u64, bytes: usize, item: T) {
        self.watch.0.state.lock().put(peer, bytes, item);
        self.ring();
    }

    /// Put it in if there is room for it. A long item must fit within the total.
    ///
    /// # Errors
    /// If there is none, with the item.
    pub fn try_put(&self, peer: u64, bytes: usize, item: T) -> Result<(), T> {
        let mut state = self.watch.0.state.lock();
        let total = self.watch.0.share.total_bytes;
        let fits = bytes <= SHORT_BYTES || state.bytes == 0 || state.bytes + bytes <= total;
        if !fits || !state.has_room(peer, self.watch.0.share) {
            return Err(item);
        }
        state.put(peer, bytes, item);
        drop(state);
        self.ring();
        Ok(())
    }
}

/// Says when it is dropped that nothing more can come.
struct Closer<T>(Arc<Shared<T>>);

impl<T> Drop for Closer<T> {
    fn drop(&mut self) {
        self.0.state.lock().closed = true;
        let _ = self.0.bell.try_send(());
    }
}

/// Where items are taken.
pub struct Turns<T> {
    shared: Arc<Shared<T>>,
    rung: Receiver<()>,
}

impl<T> Clone for Turns<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), rung: self.rung.clone() }
    }
}

impl<T> Turns<T> {
    /// Receives when there may be something to take, or nothing can come any more. One notice may stand for many items:
    /// take until there are none.
    pub fn bell(&self) -> &Receiver<()> {
        &self.rung
    }

    /// The item whose turn it is.
    pub fn next(&self) -> Option<T> {
        self.next_of(|_| true)
    }

    /// The first in the order of turns that is `wanted`; a peer whose first item is not wanted has to wait.
    pub fn next_of(&self, wanted: impl Fn(&T) -> bool) -> Option<T> {
        let mut state = self.shared.state.lock();
        let has_turn = |peer, item: &T| (state.closed || !state.paused.contains(&peer)) && wanted(item);
        let place = state.find(has_turn)?;
        let item = state.take(place);
        state.wake(self.shared.share);
        Some(item)
    }

    /// Put an item that was taken behind the others of its peer.
    pub fn give_back(&self, peer: u64, bytes: usize, item: T) {
        self.shared.state.lock().put(peer, bytes, item);
    }

    /// Peers that have left since this was asked last.
    pub fn take_gone(&self) -> Vec<u64> {
        std::mem::take(&mut self.shared.state.lock().gone)
    }

    /// Items that wait.
    pub fn len(&self) -> usize {
        self.shared.state.lock().items
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that wait.
    pub fn bytes(&self) -> usize {
        self.shared.state.lock().bytes
    }

    /// Whether nothing waits and nothing more can come.
    pub fn is_over(&self) -> bool {
        let state = self.shared.state.lock();
        state.closed && state.items == 0
    }

    /// The next item, waiting for it at most so long.
    ///
    /// # Errors
    /// If none has come, or none can come any more.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        let deadline = Instant::now() + timeout;
        loop {
            if let Some(item) = self.next() {
                return Ok(item);
            }
            if self.is_over() {
                return Err(RecvTimeoutError::Disconnected);
            }
            self.rung.recv_deadline(deadline)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;

    fn share(peer_bytes: usize, total_bytes: usize) -> Share {
        Share { peer_bytes, total_bytes }
    }

    #[test]
    fn a_backlog_stands_before_nothing_of_another_peer() {
        let (entrance, turns) = turns(share(1 << 20, 1 << 20));
        (0..3).for_each(|k| entrance.put(1, 1, (1, k)));
        entrance.put(2, 1, (2, 0));
        assert_eq!(turns.next(), Some((1, 0)));
        assert_eq!(turns.next(), Some((2, 0)));
        entrance.put(3, 1, (3, 0));
        assert_eq!([turns.next(), turns.next(), turns.next()], [Some((1, 1)), Some((3, 0)), Some((1, 2))]);
        assert!(turns.is_empty() && !turns.is_over());
        drop(entrance);
        assert!(turns.is_over());
        assert_eq!(turns.recv_timeout(Duration::ZERO), Err(RecvTimeoutError::Disconnected));
    }

    #[test]
    fn many_connections_of_an_address_share_its_turns() {
        let (entrance, turns) = turns(share(1 << 20, 1 << 20));
        let many = |connection: u64| 7 << CONNECTION_BITS | connection;
        (0..3).for_each(|connection| (0..2).for_each(|k| entrance.put(many(connection), 1, (connection, k))));
        let one = 8 << CONNECTION_BITS;
        (0..3).for_each(|k| entrance.put(one, 1, (9, k)));
        entrance.leave(many(1));
        let order: Vec<_> = std::iter::from_fn(|| turns.next()).collect();
        assert_eq!(order, [(0, 0), (9, 0), (2, 0), (9, 1), (0, 1), (9, 2), (2, 1)]);
        assert!(turns.is_empty() && turns.bytes() == 0);
        (0..2).for_each(|connection| entrance.put(many(connection), 1, (connection, 5)));
        (0..2).for_each(|connection| entrance.leave(many(connection)));
        entrance.put(one, 1, (9, 5));
        assert_eq!((turns.next(), turns.next()), (Some((9, 5)), None));
    }

    #[test]
    fn who_is_beyond_its_share_waits_and_others_do_not() {
        let (entrance, turns) = turns(share(1000, 2000));
        assert_eq!(entrance.try_put(1, 2000, 'a'), Ok(()), "one item is always taken");
        assert_eq!(entrance.try_put(1, 0, 'b'), Err('b'));
        assert_eq!(entrance.try_put(2, 0, 'c'), Ok(()), "nothing of this one waits");
        assert_eq!(entrance.try_put(2, 0, 'd'), Err('d'), "all together have too much");
        assert_eq!((turns.len(), turns.bytes(), entrance.is_full()), (2, 2000 + 2 * ITEM_BYTES, true));
        assert_eq!((turns.next(), turns.next()), (Some('a'), Some('c')));
        assert_eq!(entrance.try_put(1, 0, 'b'), Ok(()));
        assert_eq!(turns.bytes(), ITEM_BYTES);
    }

    #[test]
    fn a_peer_that_waits_for_room_is_woken_when_there_is_some() {
        struct Woken(Mutex<usize>);
        impl Wake for Woken {
            fn wake(self: Arc<Self>) {
                *self.0.lock() += 1;
            }
        }
        let (entrance, turns) = turns(share(4 * ITEM_BYTES, 1 << 20));
        let woken = Arc::new(Woken(Mutex::new(0)));
        let waker = Waker::from(Arc::clone(&woken));
        let mut cx = Context::from_waker(&waker);
        (0..4).for_each(|k| entrance.put(1, 0, k));
        assert!(entrance.poll_room(1, &mut cx).is_pending() && entrance.poll_room(2, &mut cx).is_ready());
        let mut counts = Vec::new();
        while turns.next().is_some() {
            counts.push(*woken.0.lock());
        }
        assert_eq!(counts, [0, 0, 1, 1], "once, when half of the share is free");
    }

    #[test]
    fn what_a_peer_that_has_left_asked_for_is_dropped() {
        let (entrance, turns) = turns(share(1 << 20, 1 << 20));
        (0..3).for_each(|_| entrance.put(1, 10, 1));
        entrance.put(2, 10, 2);
        entrance.leave(1);
        assert_eq!((turns.next(), turns.next(), turns.bytes()), (Some(2), None, 0));
        assert_eq!((turns.take_gone(), turns.take_gone()), (vec![1], vec![]));
    }

    #[test]
    fn who_reads_no_answers_gets_no_turn_until_the_end() {
        let (entrance, turns) = turns(share(1 << 20, 1 << 20));
        entrance.put(1, 0, 1);
        entrance.put(2, 0, 2);
        entrance.pause(1, true);
        assert_eq!((turns.next(), turns.next()), (Some(2), None));
        while turns.bell().try_recv().is_ok() {}
        entrance.pause(1, false);
        assert!(turns.bell().try_recv().is_ok());
        entrance.pause(1, true);
        drop(entrance);
        assert_eq!(turns.next(), Some(1));
        assert!(turns.is_over());
    }

    #[test]
    fn what_is_not_wanted_yet_holds_up_its_own_peer_only() {
        let (entrance, turns) = turns(share(1 << 20, 1 << 20));
        [(1, 100), (1, 1), (2, 2)].into_iter().for_each(|(peer, item)| entrance.put(peer, 0, item));
        assert_eq!(turns.next_of(|&item| item < 10), Some(2));
        assert_eq!(turns.next_of(|&item| item < 10), None);
        let item = turns.next().unwrap();
        turns.give_back(1, 0, item);
        assert_eq!((turns.next(), turns.next()), (Some(1), Some(100)));
    }
}
