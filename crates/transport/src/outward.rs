//! What goes out: from the daemon's queues to what waits for each peer, until the transport closes.

use super::backlog::Peers;
use super::permit::Gate;
use super::{Outgoing, Outgoings, Phase, Publication, Reply, SocketName};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// At closing, how often it is looked at whether everything has left.
const SETTLE_INTERVAL: Duration = Duration::from_millis(20);

/// At closing, peers for which something waits are given up when they all take nothing for this long.
const PATIENCE: Duration = Duration::from_secs(1);

/// Wait until no further message may be taken.
pub(super) async fn draining(phase: &mut watch::Receiver<Phase>) {
    // If the other end is gone the transport is, too.
    let _ = phase.wait_for(|p| *p != Phase::Running).await;
}

/// Wait until nothing more is handed over to be sent.
pub(super) async fn closing(phase: &mut watch::Receiver<Phase>) {
    let _ = phase.wait_for(|p| p.deadline().is_some()).await;
}

/// The next item to send; none when all senders are gone, or at closing, when all that was handed over before has been taken.
async fn next<T: Outgoing>(queue: &mut Outgoings<T>, phase: &mut watch::Receiver<Phase>) -> Option<T> {
    tokio::select! {
        biased;
        item = queue.recv() => item,
        () = closing(phase) => {
            // Waiting senders learn that there will be no room.
            queue.close();
            queue.recv().await
        }
    }
}

/// Put replies out until no further can come, then wait until they have left. Those that `elsewhere` does not give back are not for the
/// gate; further ones wait for it.
pub(super) async fn send_replies<F: Future<Output = Option<Reply>>>(
    mut replies: Outgoings<Reply>,
    elsewhere: impl Fn(Reply) -> F,
    clients: Arc<Peers>,
    mut phase: watch::Receiver<Phase>,
    gate: Arc<Gate>,
) {
    while let Some(reply) = next(&mut replies, &mut phase).await {
        if let Some(reply) = elsewhere(reply).await {
            clients.reply(reply, &gate);
        }
    }
    drop(elsewhere);
    settle(SocketName::Control, &phase, &gate).await;
}

/// Put publications out until no further can come, then wait until they have left. `also` is shown each of them.
pub(super) async fn publish(
    mut publications: Outgoings<Publication>,
    also: impl Fn(&Publication),
    subscribers: Arc<Peers>,
    mut phase: watch::Receiver<Phase>,
    gate: Arc<Gate>,
) {
    while let Some(publication) = next(&mut publications, &mut phase).await {
        also(&publication);
        subscribers.publish(&publication);
        gate.counters.publications_sent.add(1);
        // Those who can take it do so before the next one comes.
        tokio::task::yield_now().await;
    }
    drop(also);
    settle(SocketName::Publish, &phase, &gate).await;
}

/// Wait until nothing waits for the peers of `socket`, or closing may take no longer.
async fn settle(socket: SocketName, phase: &watch::Receiver<Phase>, gate: &Gate) {
    let Some(deadline) = phase.borrow().deadline() else { return };
    let counters = gate.counters.socket(socket);
    let mut sent = counters.bytes_out.get();
    // By looks: while this thread stands still those that send may stand still as well.
    let (mut quiet, mut left) = (Duration::ZERO, deadline.saturating_duration_since(Instant::now()));
    while counters.backlog_bytes.get() > 0 && !left.is_zero() && quiet < PATIENCE {
        tokio::time::sleep(SETTLE_INTERVAL).await;
        left = left.saturating_sub(SETTLE_INTERVAL);
        let now = counters.bytes_out.get();
        quiet = if now == sent { quiet + SETTLE_INTERVAL } else { Duration::ZERO };
        sent = now;
    }
}
