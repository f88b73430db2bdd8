//! The connections that may be open at a time: those that have a place, and those beside them.

use parking_lot::Mutex;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::task::AbortHandle;

/// Connections at a time, and connections of one address among them.
const CONNECTIONS: usize = 64;
const CONNECTIONS_PER_ADDRESS: usize = 48;
/// Connections beside them, each for one question about health or metrics. For a further one, one of these gives way, so
/// that silent connections cannot keep a supervisor out. With that number, a supervisor has some milliseconds between its
/// connecting and its asking, even while another program of its machine connects in a loop.
const SPARE: usize = 64;
/// All of these.
pub(super) const PLACES: usize = CONNECTIONS + SPARE;

/// Who has the places.
#[derive(Clone, Default)]
pub(super) struct Places {
    taken: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One of the connections that may be open at a time; given back when this is dropped.
pub(super) struct ConnectionSlot {
    places: Places,
    address: IpAddr,
}

impl Places {
    /// A place for a connection from `address`, if there is one.
    pub(super) fn take(&self, address: IpAddr) -> Option<ConnectionSlot> {
        let mut taken = self.taken.lock();
        let all: usize = taken.values().sum();
        let own = taken.get(&address).copied().unwrap_or(0);
        if all >= CONNECTIONS || own >= CONNECTIONS_PER_ADDRESS {
            return None;
        }
        taken.insert(address, own + 1);
        drop(taken);
        Some(ConnectionSlot { places: self.clone(), address })
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        if let Some(own) = taken.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                taken.remove(&self.address);
            }
        }
    }
}

/// The connections beside those that have a place, the oldest first.
#[derive(Default)]
pub(super) struct Spare {
    connections: Vec<Visitor>,
}

/// A connection that may give way to a further one.
struct Visitor {
    address: IpAddr,
    /// Whether a whole request has come from it.
    asked: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Spare {
    /// Close a connection if there is no room for another one.
    pub(super) fn make_room(&mut self) {
        self.connections.retain(|visitor| !visitor.task.is_finished());
        if self.connections.len() >= SPARE {
            let seen = self.connections.iter().map(|visitor| (visitor.address, visitor.asked.load(Ordering::Relaxed)));
            if let Some(which) = gives_way(&seen.collect::<Vec<_>>()) {
                self.connections.remove(which).task.abort();
            }
        }
    }

    /// A further connection, from `address`, which `task` serves; `asked` becomes true with its request.
    pub(super) fn push(&mut self, address: IpAddr, asked: Arc<AtomicBool>, task: AbortHandle) {
        self.connections.push(Visitor { address, asked, task });
    }
}

/// Which of these gives way, by the address of each and whether it has asked, the oldest first: of the addresses that have
/// the most, the oldest that has not asked, or else the oldest.
fn gives_way(connections: &[(IpAddr, bool)]) -> Option<usize> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    connections.iter().for_each(|(address, _)| *counts.entry(*address).or_default() += 1);
    let most = counts.values().max()?;
    let oldest = |may_have_asked: bool| {
        connections.iter().position(|(address, asked)| counts[address] == *most && (may_have_asked || !asked))
    };
    oldest(false).or_else(|| oldest(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_with_many_connections_gives_way_and_those_that_asked_last() {
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let of = |all: &[(u8, bool)]| {
            gives_way(&all.iter().map(|&(last, asked)| (address(last), asked)).collect::<Vec<_>>())
        };
        assert_eq!(of(&[]), None);
        // A supervisor that has said nothing yet stays while another address has more.
        assert_eq!(of(&[(1, false), (2, true), (2, true)]), Some(1));
        assert_eq!(of(&[(1, false), (2, true), (2, false), (2, false)]), Some(2));
        // Of addresses with equally many, the oldest that has not asked.
        assert_eq!(of(&[(1, true), (2, false), (3, false)]), Some(1));
        assert_eq!(of(&[(1, true), (2, true)]), Some(0));
    }

    #[test]
    fn places_of_an_address_are_bounded_and_given_back() {
        let (places, one, other) = (Places::default(), IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let mut held: Vec<ConnectionSlot> = (0..CONNECTIONS_PER_ADDRESS).map_while(|_| places.take(one)).collect();
        assert_eq!(held.len(), CONNECTIONS_PER_ADDRESS);
        assert!(places.take(one).is_none());
        let others: Vec<ConnectionSlot> = std::iter::from_fn(|| places.take(other)).collect();
        assert_eq!(others.len(), CONNECTIONS - CONNECTIONS_PER_ADDRESS);
        held.pop();
        assert!(places.take(one).is_some());
    }
}
