//! Programs that send experience, one thread each.

use super::world::World;
use crate::client::{ClientError, Sender};
use crate::sim;
use crate::transport::Endpoint;
use crate::wire;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

/// How often a producer sends.
const TURN: Duration = Duration::from_millis(20);
/// Rows of one message, at most.
const BATCH: u64 = 256;
/// A producer that is further behind its rate, seconds, does not make up for it.
const DEBT_S: f64 = 0.2;
/// States remembered of each stream for the picture.
const RECENT: usize = 150;

#[derive(Default)]
struct ProducersShared {
    stop: AtomicBool,
    sent: AtomicU64,
}

/// All of them.
pub(super) struct Producers {
    shared: Arc<ProducersShared>,
    threads: Vec<JoinHandle<Result<Finished, ClientError>>>,
}

/// What a producer leaves when it stops.
struct Finished {
    sender: Sender,
    recent: Vec<[f64; 2]>,
}

impl Producers {
    pub(super) fn start(
        world: World,
        copies: u64,
        rate: u64,
        ingest: &Endpoint,
        patience: Duration,
    ) -> Result<Self, ClientError> {
        let shared = Arc::new(ProducersShared::default());
        let mut producers = Self { shared, threads: Vec::new() };
        // A daemon that has seen a demo before would take the rows of a session with the same name for known ones.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let session = format!("demo-{}", now.as_nanos());
        for copy in 0..copies {
            let sender = Sender::connect(&ingest.to_string(), patience)?;
            let shared = Arc::clone(&producers.shared);
            let rate = rate as f64 / copies as f64;
            let session = session.clone();
            let run = move || produce(world, copy, &session, rate, sender, &shared);
            let thread = std::thread::Builder::new().name(format!("copy-{copy}")).spawn(run);
            producers.threads.push(thread.map_err(crate::client::ConnectionError::Internal)?);
        }
        Ok(producers)
    }

    /// Rows sent so far.
    pub(super) fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Whether none of them has failed.
    pub(super) fn running(&self) -> bool {
        !self.threads.iter().any(JoinHandle::is_finished)
    }

    /// Stop, and wait until everything has left: rows sent, and the states that came last.
    pub(super) fn finish(mut self, patience: Duration) -> Result<(u64, Vec<[f64; 2]>), ClientError> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let mut recent = Vec::new();
        for thread in self.threads.drain(..) {
            let finished = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            recent.extend(finished.recent);
            finished.sender.close(patience)?;
        }
        Ok((self.shared.sent.load(Ordering::Relaxed), recent))
    }
}

impl Drop for Producers {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
    }
}

/// Step the simulator and send, at `rate` rows per second (0: as fast as the daemon takes them), until told to stop.
fn produce(
    world: World,
    copy: u64,
    session: &str,
    rate: f64,
    sender: Sender,
    shared: &ProducersShared,
) -> Result<Finished, ClientError> {
    let mut simulator = world.simulator(copy);
    let stream = format!("{}-{copy}", world.name());
    let mut recent = std::collections::VecDeque::with_capacity(RECENT);
    let mut owed = 0.0;
    let mut last = Instant::now();
    while !shared.stop.load(Ordering::Relaxed) {
        let rows = if rate == 0.0 {
            BATCH
        } else {
            let now = Instant::now();
            owed = (owed + rate * (now - last).as_secs_f64()).min(rate * DEBT_S + 1.0);
            last = now;
            owed.floor().min(BATCH as f64) as u64
        };
        owed -= rows as f64;
        let steps: Vec<_> = (0..rows).map(|_| simulator()).collect();
        for batch in sim::batches(&stream, session, &steps) {
            sender.send(wire::encode_ingest(&batch))?;
        }
        shared.sent.fetch_add(rows, Ordering::Relaxed);
        for step in &steps {
            if recent.len() == RECENT {
                recent.pop_front();
            }
            recent.push_back([step.state[0], step.state[1]]);
        }
        if rate > 0.0 && owed < BATCH as f64 {
            std::thread::sleep(TURN);
        }
    }
    Ok(Finished { sender, recent: recent.into() })
}
