//! Memory is bounded, and known beforehand: what is allocated is compared with what the daemon says of itself.

use criticd::config::{Config, ConfigParts};
use criticd::daemon::core::{Core, Now};
use criticd::daemon::memory::Footprint;
use criticd::daemon::rebuild::{RebuildJob, Rebuilt};
use criticd::journal::checkpoint::Checkpoints;
use criticd::journal::memory::{MemoryCheckpoints, MemoryStorage};
use criticd::learner::mean::Mean;
use criticd::learner::{DriftSensitivity, Settings};
use criticd::math::kernel::{Kernel, Metric};
use criticd::snapshot::{Ask, Evaluation, EvaluationScratch, Snapshot};
use criticd::transition::{Batch, BatchParts};
use criticd::wire;
use nalgebra::DMatrix;
use parking_lot::Mutex;
use peak_alloc::PeakAlloc;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::sync::Arc;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// One test at a time: they count what the whole process has allocated.
static ALONE: Mutex<()> = Mutex::new(());

const DIM: usize = 4;

fn config(change: impl FnOnce(&mut ConfigParts)) -> Arc<Config> {
    let critic = Settings { dictionary_max: 80, tolerance: 1e-6, refit_first_rows: 0, ..Settings::default() };
    let mut parts =
        ConfigParts { journal: false, window_rows: 10_000, critics: vec![critic], ..ConfigParts::default() };
    change(&mut parts);
    Arc::new(Config::new(parts).unwrap())
}

/// Messages of a stream whose states wander through a cloud.
struct Producer {
    rng: ChaCha8Rng,
}

impl Producer {
    fn new() -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(3) }
    }

    fn message(&mut self, stream: &str, rows: usize) -> Vec<u8> {
        let states: Vec<f64> = (0..(rows + 1) * DIM).map(|_| 2.0 * self.rng.random::<f64>() - 1.0).collect();
        message((stream, ""), states, None)
    }

    /// Two rows of a session of a stream.
    fn session(&mut self, stream: &str, session: &str) -> Vec<u8> {
        let states: Vec<f64> = (0..3 * DIM).map(|_| 2.0 * self.rng.random::<f64>() - 1.0).collect();
        message((stream, session), states, None)
    }

    /// Rows between these states (k, D) alone, a chain cut behind each of them.
    fn message_among(&mut self, points: &[f64], rows: usize) -> Vec<u8> {
        let mut point = || {
            let k = self.rng.random_range(0..points.len() / DIM);
            points[k * DIM..(k + 1) * DIM].to_vec()
        };
        message(("robot", ""), (0..=rows).flat_map(|_| point()).collect(), Some(vec![true; rows]))
    }
}

/// Of rows through `states` (n + 1, D).
fn message((stream, session): (&str, &str), mut states: Vec<f64>, truncated: Option<Vec<bool>>) -> Vec<u8> {
    let next_states = states.split_off(states.len() - DIM);
    let next_states = states.iter().skip(DIM).copied().chain(next_states).collect();
    let rewards = states.chunks_exact(DIM).map(|s| s[0].sin() + s[1]).collect();
    let parts = BatchParts {
        stream: stream.to_owned(),
        session: session.to_owned(),
        dim: DIM,
        rewards_per_row: 1,
        states,
        next_states: Some(next_states),
        rewards,
        truncated,
        ..BatchParts::default()
    };
    wire::encode_ingest(&Batch::new(parts).unwrap())
}

/// Take rows in as the daemon's thread does, a round for each message.
fn feed(core: &mut Core, messages: impl Iterator<Item = Vec<u8>>, uptime: &mut f64) {
    for message in messages {
        *uptime += 0.01;
        let now = Now { uptime: *uptime, unix: 1e9 };
        core.ingest(&message, now);
        core.step(now);
        if core.refresh_due(now) {
            core.refresh(now, &|| now);
        }
        core.take_outputs();
    }
}

fn allocated() -> usize {
    ALLOCATED.current_usage()
}

#[test]
fn a_full_daemon_takes_what_it_said() {
    let _alone = ALONE.lock();
    // The world seems to change below; what a fork takes is told apart.
    let config = config(|parts| parts.critics[0].drift_sensitivity = DriftSensitivity::Off);
    let said = Footprint::of(&config, DIM, 1);
    let (mut producer, mut uptime) = (Producer::new(), 0.0);
    // The library that multiplies matrices keeps some mebibytes for each thread, whatever is multiplied.
    feed(&mut Core::new(Arc::clone(&config)), (0..100).map(|_| producer.message("robot", 250)), &mut uptime);
    let before = allocated();
    let mut core = Core::new(config);
    let expected = said.window + said.models[0].bytes;
    // The dictionary has room for one more: then the recent rows, each a chain of its own, wait for it.
    let points: Vec<f64> = (0..79 * DIM).map(|_| 2.0 * producer.rng.random::<f64>() - 1.0).collect();
    feed(&mut core, (0..100).map(|_| producer.message_among(&points, 250)), &mut uptime);
    assert_eq!(core.board().get(0).unwrap().dictionary.nrows(), 79);
    let used = allocated() - before;
    // A window forgets a segment at a time, and one snapshot is there between two refreshes.
    assert!(used <= expected + (64 << 10), "{used} bytes are used, {expected} were expected");
    assert!(2 * used >= expected, "{used} bytes are used, {expected} were expected");
    feed(&mut core, (0..100).map(|_| producer.message("robot", 250)), &mut uptime);
    assert_eq!(core.board().get(0).unwrap().dictionary.nrows(), 80, "the dictionary is full");
    let full = allocated() - before;
    assert!(full <= expected + (64 << 10), "{full} bytes are used, {expected} were expected");
    assert_eq!(said.row, core.window().unwrap().bytes() / core.window().unwrap().len().next_multiple_of(4096));
}

#[test]
fn a_mean_function_takes_what_was_said() {
    let _alone = ALONE.lock();
    let taken = |elements: usize| {
        let before = allocated();
        let kernel = Kernel::gaussian(1.0, 0.0, Metric::Isotropic(1.0));
        let dictionary = DMatrix::from_fn(elements, DIM, |i, d| (i * (d + 1)) as f64);
        let simulator = Snapshot::of_value(0.99, kernel, dictionary, DMatrix::from_element(elements, 1, 1.0));
        let mean = Mean::of_model("simulator.model".into(), &simulator).unwrap();
        drop(simulator);
        let config = config(|parts| parts.critics[0].mean = Some(mean));
        let (said, mut producer) = (Footprint::of(&config, DIM, 1).models[0].bytes, Producer::new());
        let mut core = Core::new(config);
        feed(&mut core, (0..8).map(|_| producer.message("robot", 250)), &mut 0.0);
        (allocated() - before, said)
    };
    taken(1);
    let ((few, said_of_few), (many, said_of_many)) = (taken(1), taken(10_000));
    let (more, said) = (many - few, said_of_many - said_of_few);
    // A daemon that has started again may have each model's own.
    assert!(more <= said && 4 * more >= said, "10 000 elements take {more} bytes, {said} were said");
}

#[test]
fn a_stream_takes_what_was_said() {
    let _alone = ALONE.lock();
    let config = config(|_| {});
    let said = Footprint::of(&config, DIM, 1);
    let mut core = Core::new(config);
    let (mut producer, mut uptime) = (Producer::new(), 0.0);
    // The window is full, and rows of further streams push out as many others.
    feed(&mut core, (0..100).map(|_| producer.message("robot", 250)), &mut uptime);
    let before = allocated();
    let count = 250;
    // Names have 256 bytes, the most that the protocol allows, and each stream has had more sessions than are remembered.
    let sessions = (0..count).flat_map(|k| (0..18).map(move |session| (k, session)));
    let messages = sessions.map(|(k, session)| producer.session(&format!("{k:0256}"), &format!("{session:0256}")));
    feed(&mut core, messages, &mut uptime);
    let each = (allocated() - before) / count;
    assert!(
        each <= said.stream && 2 * each >= said.stream,
        "a stream takes {each} bytes, {} were said",
        said.stream as u64
    );
    assert_eq!(core.status(Now { uptime, unix: 1e9 }).memory.unwrap().stream_bytes, said.stream as u64);
}

#[test]
fn rows_without_end_take_no_more_memory() {
    let _alone = ALONE.lock();
    let mut core = Core::new(config(|_| {}));
    let (mut producer, mut uptime) = (Producer::new(), 0.0);
    let mut after = |rows: usize| {
        feed(&mut core, (0..rows / 256).map(|_| producer.message("robot", 256)), &mut uptime);
        let ends = core.offset();
        // At one place within a segment, so that as many rows are there.
        (allocated(), ends)
    };
    let (early, _) = after(1 << 16);
    let (late, rows) = after(1 << 18);
    assert_eq!(rows, (1 << 16) + (1 << 18));
    assert!(late <= early + 4096, "{early} bytes after 65536 rows, {late} after {rows}");
}

#[test]
fn a_rebuild_takes_what_was_said() {
    let _alone = ALONE.lock();
    let config = config(|parts| (parts.journal, parts.streams_max) = (true, 16));
    let said = Footprint::of(&config, DIM, 1).rebuild;
    let storage = MemoryStorage::on(Arc::default());
    let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
    let now = Now { uptime: 0.0, unix: 1e9 };
    let mut core =
        Core::open(Arc::clone(&config), Box::new(storage.clone()), checkpoints, now, &mut |_, _| {}).unwrap();
    let mut producer = Producer::new();
    feed(&mut core, (0..200).map(|_| producer.message("robot", 250)), &mut 0.0);
    let (settings, window) = (config.critics[0].clone(), core.window().unwrap().clone());
    let (removals, progress) = (criticd::state::removals::Removals::default(), Arc::default());
    let job = RebuildJob { settings, names: None, like: None, late: None, window, removals, progress };
    ALLOCATED.reset_peak_usage();
    let before = ALLOCATED.peak_usage();
    let Ok(Rebuilt::Critic(rebuilt)) = job.run(&mut storage.clone(), &|| true) else { panic!("a critic") };
    assert_eq!((rebuilt.first_row, rebuilt.learner.learned()), (0, 50_000));
    let record = rmp_serde::to_vec_named(&rebuilt.learner).unwrap();
    let rise = ALLOCATED.peak_usage() - before;
    assert!(rise <= said && record.len() * 2 <= said, "a rebuild takes {rise} bytes, {said} were said");
    assert!(20 * rise >= said, "{said} were said for {rise} bytes");
    assert_eq!(core.status(now).memory.unwrap().rebuild_bytes_max, said as u64);
}

#[test]
fn queries_work_in_memory_that_is_kept() {
    let _alone = ALONE.lock();
    let mut core = Core::new(config(|_| {}));
    let mut producer = Producer::new();
    feed(&mut core, (0..10).map(|_| producer.message("robot", 250)), &mut 0.0);
    let model = core.board().evaluator(0).unwrap();
    let states: Vec<f64> = (0..1000 * DIM).map(|_| 2.0 * producer.rng.random::<f64>() - 1.0).collect();
    let (mut scratch, mut out) = (EvaluationScratch::default(), Evaluation::default());
    let mut rise = || {
        ALLOCATED.reset_peak_usage();
        let before = ALLOCATED.peak_usage();
        for states in [&states[..], &states[..DIM], &states[..]] {
            model.evaluate_into(states, Ask::VARIANCE, &mut scratch, &mut out).unwrap();
        }
        ALLOCATED.peak_usage() - before
    };
    // What the harness writes meanwhile is small beside the kernel rows of one block of states.
    let (first, later) = (rise(), rise());
    assert!(first > 30_000 && later < 8_000, "{first} bytes at first, {later} later");
}

#[test]
fn the_streams_of_a_checkpoint_are_counted() {
    let stream = |journal| Footprint::of(&config(|parts| parts.journal = journal), DIM, 1).stream;
    let (without, with) = (stream(false), stream(true));
    assert!(with > 2 * without, "{with} bytes with a journal, {without} without");
}

#[test]
fn what_waits_for_browsers_is_counted() {
    let queues = |http: &str| Footprint::of(&config(|parts| parts.http = http.into()), DIM, 1).queues;
    let of_http = queues("127.0.0.1:0") - queues("off");
    // 128 connections with 96 KiB each, long answers to pages, and to who asks for metrics.
    assert!((128 * (96 << 10) + (8 << 20)..32 << 20).contains(&of_http), "{of_http} bytes");
}

#[test]
fn the_default_settings_fit_into_a_small_machine() {
    let said = Footprint::of(&Config::new(ConfigParts::default()).unwrap(), DIM, 1);
    let (kept, queues, rebuild) = (said.kept(), said.queues, said.rebuild);
    assert!(kept + queues + rebuild < 3_350_000_000, "{kept} kept, {queues} in queues, {rebuild} of a rebuild");
}
