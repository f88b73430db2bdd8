//! The measurements, each on the code that the daemon runs.

use super::Failure;
use super::workload::{Case, ScratchDirectory};
use crate::client::{Requester, Sender};
use crate::daemon::Daemon;
use crate::daemon::core::{Core, Now};
use crate::journal::checkpoint::Directory;
use crate::journal::store::SqliteStorage;
use crate::snapshot::{Ask, Evaluation, EvaluationScratch as Memory, Evaluator};
use crate::telemetry::{Stage, Stages, thread_seconds};
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Rows after which a dictionary that has not filled up stays as it is.
const WARMUP_ROWS: usize = 1 << 14;
/// States of one batch of queries.
const QUERY_ROWS: usize = 1024;
/// Times that a daemon is left idle and then made to select a model.
const SELECTIONS: u32 = 4;
/// Seconds of queries between two looks whether the model is there.
const SLICE: f64 = 0.005;
/// Seconds of one round of queries in the library.
const ROUND: f64 = 5e-4;
/// How long a daemon on this machine may take for anything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Seconds per row of each stage on one thread, and what a row takes from message to model.
#[derive(Debug)]
pub(super) struct OneThread {
    /// By [`Stage`].
    pub(super) stages: Vec<(Stage, f64)>,
    /// Dictionary elements.
    pub(super) dictionary: usize,
    /// The model at the end, with its variance.
    pub(super) model: Arc<Evaluator>,
}

/// A whole daemon that is sent to as fast as it takes it.
#[derive(Debug)]
pub(super) struct Whole {
    /// Rows learned per second by the clock.
    pub(super) rows_per_second: f64,
    /// Processor seconds per row of each thread of this process, the sender's `bench-sender` and `criticd-push` included.
    pub(super) threads: BTreeMap<String, f64>,
}

/// Time of queries, seconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latency {
    pub(super) median: f64,
    pub(super) p99: f64,
    pub(super) p999: f64,
}

fn clock(started: Instant) -> Now {
    Now { uptime: started.elapsed().as_secs_f64(), unix: 0.0 }
}

/// The core alone, on this thread: messages in, models out, as the daemon's thread does it under load.
pub(super) fn one_thread(
    case: &Case,
    messages: &[Vec<u8>],
    seconds: f64,
    scratch: &ScratchDirectory,
) -> Result<OneThread, Failure> {
    let directory = scratch.empty("core")?;
    let config = Arc::new(case.config(&directory)?);
    let started = Instant::now();
    let now = || clock(started);
    let storage = Box::new(SqliteStorage::open(&directory)?);
    let checkpoints = Arc::new(Directory::new(&directory));
    let mut core = Core::open(Arc::clone(&config), storage, checkpoints, now(), &mut |_, _| {})?;
    let board = core.board();
    let mut messages = messages.iter().cycle();
    let mut round = |stages: &Stages| {
        let since = Instant::now();
        // What the daemon's thread takes at once where enough is waiting.
        while core.waiting_rows() < config.batch_rows_max as u64 {
            core.ingest(messages.next().expect("there is always another"), now());
        }
        let rows = core.waiting_rows();
        let since = stages.passed(Stage::Decode, since, rows);
        let stored = core.commit(now(), &|| now().uptime);
        let since = stages.passed(Stage::Journal, since, rows);
        core.apply(now());
        core.act(now());
        let since = stages.passed(Stage::Learn, since, rows);
        if core.refresh_due(now()) {
            let learned = core.offset() - core.offset_at_refresh();
            core.refresh(now(), &now);
            stages.passed(Stage::Publish, since, learned);
        }
        core.take_outputs();
        if stored { Ok(core.offset()) } else { Err(Failure::new(core.read_only().unwrap_or("nothing can be stored"))) }
    };
    let full = || board.get(0).is_some_and(|snapshot| snapshot.dictionary.nrows() >= case.size);
    let before = Stages::default();
    while !full() && round(&before)? < WARMUP_ROWS as u64 {}
    let (stages, since) = (Stages::default(), Instant::now());
    while since.elapsed().as_secs_f64() < seconds || stages.rows(Stage::Publish) == 0 {
        round(&stages)?;
    }
    let model = board.evaluator(0).ok_or_else(|| Failure::new("the stream has made no model"))?;
    let all = stages.rows(Stage::Decode) as f64;
    // Snapshots are made now and then: their cost is shared by all rows.
    let stages = Stage::ALL.map(|stage| (stage, stages.seconds(stage) / all)).to_vec();
    Ok(OneThread { stages, dictionary: model.snapshot().dictionary.nrows(), model })
}

/// A daemon with all its threads and sockets, and a sender on the same machine.
pub(super) fn whole(
    case: &Case,
    messages: &[Vec<u8>],
    seconds: f64,
    scratch: &ScratchDirectory,
) -> Result<Whole, Failure> {
    with_daemon(case, scratch, "daemon", |daemon| loaded(daemon, case, messages, seconds))
}

/// What is found of a daemon in a directory of this name, which is stopped then.
fn with_daemon<T>(
    case: &Case,
    scratch: &ScratchDirectory,
    name: &str,
    of: impl FnOnce(&Daemon) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let daemon = Daemon::start(case.config(&scratch.empty(name)?)?)?;
    let outcome = of(&daemon);
    daemon.stop();
    outcome
}

fn loaded(daemon: &Daemon, case: &Case, messages: &[Vec<u8>], seconds: f64) -> Result<Whole, Failure> {
    let sender = Sender::connect(&daemon.endpoints.ingest.to_string(), PATIENCE)?;
    let mut requester = Requester::connect(&daemon.endpoints.control.to_string(), PATIENCE)?;
    flooded(&sender, messages, || {
        let mut learned = || -> Result<(f64, u64), Failure> {
            let status = requester.status(PATIENCE)?;
            let Some(critic) = status.critics.first() else { return Ok((0.0, 0)) };
            Ok((critic.learned as f64, critic.model.as_ref().map_or(0, |model| model.dictionary_size)))
        };
        loop {
            let (rows, size) = learned()?;
            if size >= case.size as u64 || rows >= WARMUP_ROWS as f64 {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let (started, spent_before, (rows_before, _)) = (Instant::now(), thread_seconds(), learned()?);
        std::thread::sleep(Duration::from_secs_f64(seconds));
        let rows = learned()?.0 - rows_before;
        let (elapsed, spent) = (started.elapsed().as_secs_f64(), thread_seconds());
        let per_row = |(name, seconds): (String, f64)| {
            let before = spent_before.get(&name).copied().unwrap_or(0.0);
            (name, (seconds - before) / rows)
        };
        let threads = spent.into_iter().map(per_row).filter(|(_, seconds)| *seconds > 0.0).collect();
        Ok(Whole { rows_per_second: rows / elapsed, threads })
    })
}

/// Mean and variance of V: seconds for one state alone, and for each of many.
pub(super) fn library_queries(case: &Case, model: &Evaluator, seconds: f64) -> Result<(f64, f64), Failure> {
    let states = case.states(QUERY_ROWS);
    let mut singles = states.chunks_exact(case.dim).cycle();
    let (mut memory, mut out) = (Memory::default(), Evaluation::default());
    let mut evaluate =
        |states: &[f64]| model.evaluate_into(std::hint::black_box(states), Ask::VARIANCE, &mut memory, &mut out);
    let single = repeat(seconds, 16, || evaluate(singles.next().expect("there is always another")))?;
    let batch = repeat(seconds, 1, || evaluate(&states))?;
    Ok((single, batch / QUERY_ROWS as f64))
}

/// Seconds that one of many calls takes: the median of rounds of [`ROUND`], so that what interrupts a few does not
/// count. The clock is read after every `together` calls.
fn repeat<T, E: std::error::Error>(
    seconds: f64,
    together: u32,
    mut call: impl FnMut() -> Result<T, E>,
) -> Result<f64, Failure> {
    let (started, mut rounds) = (Instant::now(), Vec::new());
    while started.elapsed().as_secs_f64() < seconds {
        let (since, mut count) = (Instant::now(), 0u32);
        let elapsed = loop {
            for _ in 0..together {
                std::hint::black_box(call()?);
            }
            count += together;
            let elapsed = since.elapsed().as_secs_f64();
            if elapsed >= ROUND {
                break elapsed;
            }
        };
        rounds.push(elapsed / f64::from(count));
    }
    rounds.sort_by(f64::total_cmp);
    Ok(rounds[rounds.len() / 2])
}

/// Time from sending a query for one state, mean and variance, until its answer is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueryLatencies {
    /// A daemon that has learned and does nothing else.
    pub(super) idle: Latency,
    /// One that selects a model.
    pub(super) selecting: Latency,
    /// One that learns as fast as it may.
    pub(super) learning: Latency,
}

/// Ask a daemon over tcp in different circumstances, one query after the other.
pub(super) fn socket_queries(
    case: &Case,
    messages: &[Vec<u8>],
    seconds: f64,
    scratch: &ScratchDirectory,
) -> Result<QueryLatencies, Failure> {
    with_daemon(case, scratch, "queries", |daemon| asked(daemon, case, messages, seconds))
}

fn asked(daemon: &Daemon, case: &Case, messages: &[Vec<u8>], seconds: f64) -> Result<QueryLatencies, Failure> {
    let sender = Sender::connect(&daemon.endpoints.ingest.to_string(), PATIENCE)?;
    for message in messages {
        sender.send(message.clone())?;
    }
    let mut requester = Requester::connect(&daemon.endpoints.control.to_string(), PATIENCE)?;
    let states = case.states(1);
    let learned = json!({"states": [states], "min_offset": super::workload::STREAM_ROWS});
    requester.ask("value", learned, PATIENCE)?;
    let (mut idle, mut selecting) = (Vec::new(), Vec::new());
    // In turns, so that whatever else the machine does meets both.
    for _ in 0..SELECTIONS {
        query(&mut requester, &states, seconds / f64::from(SELECTIONS), &mut idle)?;
        let mut left = seconds / f64::from(SELECTIONS);
        while left > 0.0 {
            let since = Instant::now();
            let refit = requester.post("refit", json!({"wait": true}))?;
            while since.elapsed().as_secs_f64() < left && !requester.has_arrived(refit)? {
                query(&mut requester, &states, SLICE, &mut selecting)?;
            }
            left -= since.elapsed().as_secs_f64();
            // Not before it is over is the daemon idle again, or free for the next.
            requester.reply(refit, PATIENCE)?;
        }
    }
    let learning = flooded(&sender, messages, || {
        let mut times = Vec::new();
        query(&mut requester, &states, seconds, &mut times)?;
        Ok(times)
    })?;
    Ok(QueryLatencies { idle: Latency::of(idle), selecting: Latency::of(selecting), learning: Latency::of(learning) })
}

/// Seconds of answers, one query at a time, appended to `times`.
fn query(requester: &mut Requester, state: &[f64], seconds: f64, times: &mut Vec<f64>) -> Result<(), Failure> {
    let started = Instant::now();
    while started.elapsed().as_secs_f64() < seconds {
        let asked = Instant::now();
        let id = requester.post("value", json!({"states": [state], "variance": true}))?;
        requester.reply(id, PATIENCE)?;
        times.push(asked.elapsed().as_secs_f64());
    }
    Ok(())
}

/// What `measure` gives while another thread sends messages as fast as they are taken.
fn flooded<T>(
    sender: &Sender,
    messages: &[Vec<u8>],
    measure: impl FnOnce() -> Result<T, Failure>,
) -> Result<T, Failure> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let push = || {
            let mut messages = messages.iter().cycle();
            while !stop.load(Ordering::Relaxed) {
                let message = messages.next().expect("there is always another").clone();
                // The daemon has stopped early; the measuring side's requests will fail.
                if sender.send(message).is_err() {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("bench-sender".into()).spawn_scoped(scope, push)?;
        let measured = measure();
        stop.store(true, Ordering::Relaxed);
        measured
    })
}

impl Latency {
    fn of(mut times: Vec<f64>) -> Self {
        times.sort_by(f64::total_cmp);
        let quantile = |q: f64| times[((times.len() - 1) as f64 * q).round() as usize];
        Self { median: quantile(0.5), p99: quantile(0.99), p999: quantile(0.999) }
    }
}
