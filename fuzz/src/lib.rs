//! What must hold for any bytes at all: the bodies of the fuzz targets.
//!
//! A target takes the bytes of one input and panics if a promise does not hold. `fuzz_targets/` puts libFuzzer around
//! them (feature `libfuzzer`, which needs a C++ compiler), and `tests/corpora.rs` runs them over the corpora and over changes
//! of these.
//!
//! | target | the bytes are | it promises |
//! | --- | --- | --- |
//! | [`wire`] | a message | decoding never panics and takes memory by the bytes that are there; what is understood is sound, and comes back from its own encoding |
//! | [`gate`] | what a peer sends | how it is cut into pieces changes nothing; what passes is within the limits and would pass again |
//! | [`journal`] | groups of a journal | recovery takes all of them or refuses; a start from a checkpoint in the middle finds the same models and streams bit for bit |
//! | [`checkpoint`] | a file, or the body of one | it is refused, or comes back from its own encoding and can be started from; one that is damaged costs nothing |

use criticd_daemon::daemon::recovery::{RecoverError, Recovered, recover};
use criticd_daemon::journal::checkpoint::{Checkpoint, Checkpoints};
use criticd_daemon::journal::memory::{Disk, MemoryCheckpoints, MemoryStorage};
use criticd_daemon::journal::store::Mark;
use criticd_daemon::journal::{self, Configured, GroupWriter, Record, StoredGroup, TakenRows};
use criticd_daemon::learner::Settings;
use criticd_daemon::snapshot::{Ask, Snapshot};
use criticd_daemon::transition::{Batch, BatchParts, MAGNITUDE_MAX};
use criticd_daemon::transport::inspect::FromPeer;
use criticd_daemon::transport::{self, SocketName};
use criticd_daemon::wire::{self, ArrayForm, ErrorCode, Op, Reply};
use parking_lot::Mutex;
use peak_alloc::PeakAlloc;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, LazyLock, Once};

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Call `work`, which may hold `bytes` of memory more than there are held before. Only for one thread at a time.
fn within<T>(bytes: usize, work: impl FnOnce() -> T) -> T {
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let result = work();
    let most = MEMORY.peak_usage().saturating_sub(before);
    assert!(most <= bytes, "{most} bytes of memory where {bytes} must do");
    result
}

// ---- messages

/// Decode the bytes as every message that the daemon or its clients read.
pub fn wire(data: &[u8]) {
    ingest(data);
    request(data);
    model(data);
    // A map of one empty key takes three bytes, and hundreds as a tree of JSON.
    let _ = within(400 * data.len() + 4096, || wire::to_json(data));
    let _ = within(400 * data.len() + 4096, || wire::decode_reply(data));
    if let Ok(text) = std::str::from_utf8(data) {
        hyperparameters(text);
    }
}

/// What decoding a message to the daemon may take, as `wire` promises it, and some for the text of an error.
fn decoding(data: &[u8]) -> usize {
    20 * data.len() + 4096
}

/// Limits for what was within limits before it was written in another form.
fn no_limits() -> wire::Limits {
    wire::Limits { message_bytes_max: usize::MAX, rows_per_batch_max: usize::MAX, query_rows_max: usize::MAX }
}

fn ingest(data: &[u8]) {
    let limits = wire::Limits::default();
    let decoded = within(decoding(data), || wire::decode_ingest(data, &limits));
    let batch = match decoded {
        Ok(batch) => batch,
        Err(error) => return assert!(error.message.len() < 1024, "{error}"),
    };
    assert!(batch.len() <= limits.rows_per_batch_max);
    sound(&batch);
    let written = wire::encode_ingest(&batch);
    let again = wire::decode_ingest(&written, &no_limits()).expect("what was understood can be said");
    same(&batch, &again);
    assert!(wire::encode_ingest(&again) == written);
    // Wherever a whole message is cut it is no message, and limits are limits.
    let cut = written.iter().map(|&byte| usize::from(byte)).sum::<usize>() % data.len();
    let error = wire::decode_ingest(&data[..cut], &limits).expect_err("it is not whole");
    assert_eq!(error.code, ErrorCode::Malformed, "{error}");
    let tight = wire::Limits { rows_per_batch_max: batch.len() - 1, ..limits };
    assert_eq!(wire::decode_ingest(data, &tight).map_err(|e| e.code), Err(ErrorCode::TooLarge));
    let tight = wire::Limits { message_bytes_max: data.len() - 1, ..limits };
    assert_eq!(wire::decode_ingest(data, &tight).map_err(|e| e.code), Err(ErrorCode::TooLarge));
}

/// What [`Batch`] says of itself.
fn sound(batch: &Batch) {
    let within = |numbers: &[f64]| numbers.iter().all(|v| v.abs() <= MAGNITUDE_MAX);
    for i in 0..batch.len() {
        assert!(within(batch.state(i)) && within(batch.next_state(i)) && within(batch.reward(i)), "row {i}");
        assert!(batch.discount(i).is_none_or(|discount| (0.0..=1.0).contains(&discount)), "row {i}");
        assert!(batch.action(i).is_none_or(|action| action.iter().all(|v| v.is_finite())), "row {i}");
        assert!(batch.time(i).is_none_or(f64::is_finite), "row {i}");
        assert!(batch.behavior_prob(i).is_none_or(|prob| prob > 0.0 && prob.is_finite()), "row {i}");
        assert!(batch.target_prob(i).is_none_or(|prob| prob >= 0.0 && prob.is_finite()), "row {i}");
        assert!((0.0..=MAGNITUDE_MAX).contains(&batch.ratio(i)), "row {i}");
        assert!(batch.next_action(i).is_none_or(|action| action.iter().all(|v| v.is_finite())), "row {i}");
        let distribution = |probs: &[f64]| {
            probs.iter().all(|p| (0.0..=1.0).contains(p)) && (probs.iter().sum::<f64>() - 1.0).abs() <= 1e-6
        };
        assert!(batch.next_action_probs(i).is_none_or(distribution), "row {i}");
    }
    assert!((1..=256).contains(&batch.stream().len()) && batch.session().len() <= 256);
    assert!(batch.seq().is_none_or(|seq| seq.checked_add(batch.len() as u64).is_some()));
}

/// The same rows of the same stream.
fn same(a: &Batch, b: &Batch) {
    assert_eq!((a.len(), a.stream(), a.session(), a.seq()), (b.len(), b.stream(), b.session(), b.seq()));
    assert_eq!((a.dim(), a.rewards_per_row()), (b.dim(), b.rewards_per_row()));
    for i in 0..a.len() {
        assert_eq!(a.fingerprint(i), b.fingerprint(i), "row {i}");
        assert_eq!(a.ratio(i).to_bits(), b.ratio(i).to_bits(), "row {i}");
    }
}

fn request(data: &[u8]) {
    let limits = wire::Limits::default();
    let (id, form) = match within(decoding(data), || wire::decode_request(data, &limits)) {
        Ok(request) => {
            operation(&request.op, &limits);
            (request.id, request.arrays)
        }
        Err(refused) => {
            // Whatever came, there is a reply to send.
            let reply = wire::encode_error(&refused.id, &refused.error);
            let head = wire::decode_reply(&reply).expect("a reply");
            assert_eq!(head.outcome.expect_err("a refusal").code, refused.error.code.name());
            assert!(reply.len() < 2048);
            (refused.id, ArrayForm::List)
        }
    };
    assert!(id.as_bytes().len() <= wire::ID_BYTES_MAX);
    let reply = wire::encode_reply(&id, form, &Reply::Checkpoint { offset: 3 });
    assert!(wire::decode_reply(&reply).expect("a reply").outcome.is_ok());
}

fn operation(op: &Op, limits: &wire::Limits) {
    match op {
        Op::Append(batch) => {
            sound(batch);
            let written = wire::encode_append(7, batch);
            match wire::decode_request(&written, &no_limits()).expect("what was understood can be said").op {
                Op::Append(again) => same(batch, &again),
                other => panic!("an append became {other:?}"),
            }
        }
        Op::Value { states, rows, dim, .. } => {
            assert!(*rows > 0 && *dim > 0 && *rows <= limits.query_rows_max && rows * dim == states.len());
        }
        _ => {}
    }
}

fn model(data: &[u8]) {
    static BEFORE: LazyLock<Snapshot> = LazyLock::new(|| {
        let snapshot = wire::decode_snapshot(include_bytes!("../../proto/vectors/snapshot_ard.msgpack"));
        Snapshot { revision: 31, ..snapshot.expect("a golden message") }
    });
    let before = &*BEFORE;
    if let Ok(snapshot) = within(100 * data.len() + 4096, || wire::decode_snapshot(data)) {
        readable(&snapshot);
    }
    // What is kept of the model before is part of the new one.
    if let Ok(Some(after)) = within(100 * data.len() + (64 << 10), || wire::decode_weights(data, before)) {
        readable(&after);
    }
}

/// It comes back from either form, and evaluates.
fn readable(snapshot: &Snapshot) {
    let wanted = snapshot.variance.is_some();
    let written = wire::encode_snapshot(snapshot, ArrayForm::Tensor, wanted);
    for form in [ArrayForm::Tensor, ArrayForm::List] {
        let bytes = wire::encode_snapshot(snapshot, form, wanted);
        let again = wire::decode_snapshot(&bytes).unwrap_or_else(|e| panic!("what was understood can be said: {e}"));
        assert!(wire::encode_snapshot(&again, ArrayForm::Tensor, wanted) == written, "{form:?}");
    }
    if snapshot.dim() < 64 {
        let states = vec![0.5; 2 * snapshot.dim()];
        let found = snapshot.evaluate(&states, Ask::ALL).expect("states that are finite");
        assert_eq!((found.mean.nrows(), found.variance.is_some()), (2, wanted));
        assert_eq!(found.return_variance.is_some(), wanted && snapshot.returns.is_some());
        let shares = found.known.into_iter().flatten().all(|share| (0.0..=1.0).contains(&share));
        assert!(shares, "what is known is a share");
    }
}

fn hyperparameters(text: &str) {
    let read = within(2000 * text.len() + (64 << 10), || wire::hyperparameters_from_str(text));
    if let Ok(file) = read {
        let json = wire::hyperparameters_to_json(&file.hyperparameters, file.inputs.as_ref()).to_string();
        let again = wire::hyperparameters_from_str(&json).unwrap_or_else(|e| panic!("{json}: {e}"));
        assert_eq!(wire::hyperparameters_to_json(&again.hyperparameters, again.inputs.as_ref()).to_string(), json);
    }
}

// ---- the gate

/// ```text
/// data     what u8, piece u8, bytes
/// what     bits 0, 1: from a peer of ingest, control, publish, 3 means nothing; bit 2: narrow limits; bit 3: behind its
///          handshake already
/// ```
pub fn gate(data: &[u8]) {
    let Some((&[what, piece], bytes)) = data.split_first_chunk() else { return };
    let narrow = transport::PeerLimits {
        message_bytes_max: 400,
        frame_bytes_max: 300,
        parts_max: 3,
        subscriptions_max: 2,
        handshake_bytes_max: 256,
        ..transport::PeerLimits::default()
    };
    let limits = if what & 4 != 0 { narrow } else { transport::PeerLimits::default() };
    let socket = match what & 3 {
        0 => SocketName::Ingest,
        1 => SocketName::Control,
        2 => SocketName::Publish,
        _ => return,
    };
    let read = |pieces: &mut dyn Iterator<Item = &[u8]>| {
        let begin = if what & 8 != 0 { FromPeer::introduced } else { FromPeer::new };
        let (mut peer, mut held, mut outcome) = (begin(socket, &limits), 0, Ok(()));
        for piece in pieces {
            outcome = peer.read(piece);
            held = held.max(peer.held_bytes());
            if outcome.is_err() {
                break;
            }
        }
        (peer, held, outcome)
    };
    let (whole, _, outcome) = read(&mut std::iter::once(bytes));
    let size = usize::from(piece).max(1);
    for size in [1, size] {
        let (cut, held, other) = read(&mut bytes.chunks(size));
        assert_eq!(outcome, other, "in pieces of {size}");
        assert!(cut.passed() == whole.passed() && cut.answers() == whole.answers(), "in pieces of {size}");
        assert_eq!(cut.is_introduced(), whole.is_introduced());
        // A handshake or a command that is not whole, topics, and pongs; vectors may have grown to twice their need. Of a message what
        // has come, and what a short frame says is to come.
        let topics = if socket == SocketName::Publish { limits.subscriptions_max } else { 0 };
        let most = 2 * (limits.handshake_bytes_max + size + 4096 * (topics + 1) + 2048);
        let most = most + bytes.len() + transport::SHORT_BYTES;
        assert!(held <= most, "{held} bytes are held where {most} must do");
    }
    assert!(whole.answers().len() <= 1024 + 32);
    assert!(whole.passed().len() <= bytes.len(), "more comes out than went in");
    // What is taken would be taken again unchanged: frames within the limits, and nothing that is for the gate alone.
    let mut behind = FromPeer::introduced(socket, &limits);
    assert_eq!(behind.read(whole.passed()), Ok(()));
    assert!(behind.passed() == whole.passed() && behind.answers().is_empty());
}

// ---- the journal

/// Rows that the window of a recovery holds.
const WINDOW_ROWS: usize = 256;

/// ```text
/// data     mark u8, where u8, then for each group: fault u8, kinds u8, rows u16, length u16, body
/// mark     0: none is set; else it is behind that group, which need not be there
/// where    behind which group there is a checkpoint, modulo the number of groups
/// fault    what is wrong with the group's header: see `groups`; most values mean nothing
/// ```
pub fn journal(data: &[u8]) {
    aloud(|| {
        let Some((&[mark, at], rest)) = data.split_first_chunk() else { return };
        let (groups, faulty) = groups(rest);
        let known = (mark > 0).then(|| {
            let group = groups.get(usize::from(mark) - 1);
            group.map_or(Mark { id: mark.into(), offset: 0, crc: 0 }, behind)
        });
        let shortened = usize::from(mark) > groups.len();
        let none = MemoryCheckpoints::default();
        let whole = recovered(&groups, known, &none);
        assert!(whole.is_err() || !faulty && !shortened, "a journal with a fault is taken for whole");
        let Ok(whole) = whole else { return };
        // All of it, and the same whenever it is read.
        assert_eq!(whole.state.end(), groups.last().map_or_else(Mark::default, behind));
        assert!(state(&recovered(&groups, known, &none).expect("as before")) == state(&whole));
        if groups.is_empty() || !whole.skipped.is_empty() {
            return;
        }
        // It was whole after each group, and a checkpoint made there gives what its beginning gives; unless rows are left
        // out later that a learner had borne by then, which no daemon writes.
        let count = usize::from(at) % groups.len() + 1;
        let records = groups[count..].iter().flat_map(|group| group.decode().expect("it was read").1);
        let borne = |record| matches!(record, Record::Skipped(q) if q.from < groups[count - 1].end());
        if records.into_iter().any(borne) {
            return;
        }
        let then = recovered(&groups[..count], None, &none).expect("the beginning of what can be read");
        let checkpoints = MemoryCheckpoints::default();
        let checkpoint = Checkpoint::of(&then.state, 1e9);
        checkpoints.write(checkpoint.group, &checkpoint.encode()).expect("into memory");
        let start = recovered(&groups, known, &checkpoints).expect("a start from a checkpoint");
        assert_eq!(start.from_checkpoint, Some(checkpoint.offset), "{:?}", start.faults);
        assert!(state(&start) == state(&whole), "a start behind group {count} finds another state");
    });
}

/// Groups whose checksums are right, but for the faults that are asked for; and whether there is one.
fn groups(mut data: &[u8]) -> (Vec<StoredGroup>, bool) {
    let (mut groups, mut faulty) = (Vec::<StoredGroup>::new(), false);
    while let Some((&[fault, kinds, r0, r1, l0, l1], rest)) = data.split_first_chunk() {
        let (body, rest) = rest.split_at(usize::from(u16::from_le_bytes([l0, l1])).min(rest.len()));
        data = rest;
        let mut group = StoredGroup {
            id: groups.len() as u64 + 1,
            first_offset: groups.last().map_or(0, StoredGroup::end),
            rows: u16::from_le_bytes([r0, r1]).into(),
            kinds: kinds.into(),
            previous_crc: groups.last().map_or(0, |group| group.crc),
            crc: 0,
            version: journal::VERSION,
            body: body.to_vec(),
        };
        faulty |= (1..=5).contains(&fault);
        match fault {
            1 => group.id += 1,
            2 => group.previous_crc ^= 1,
            3 => group.first_offset += 1,
            4 => group.version += 1,
            _ => {}
        }
        group = group.sealed();
        if fault == 5 {
            group.crc ^= 1;
        }
        groups.push(group);
    }
    (groups, faulty)
}

/// The mark that says that a journal is durable up to this group.
fn behind(group: &StoredGroup) -> Mark {
    Mark { id: group.id, offset: group.end(), crc: group.crc }
}

fn recovered(
    groups: &[StoredGroup],
    mark: Option<Mark>,
    checkpoints: &dyn Checkpoints,
) -> Result<Recovered, RecoverError> {
    let disk = Disk { groups: groups.to_vec(), synced: groups.len(), mark, ..Disk::default() };
    let mut storage = MemoryStorage::on(Arc::new(Mutex::new(disk)));
    recover(&mut storage, checkpoints, WINDOW_ROWS, &mut |_, _| {})
}

fn state(found: &Recovered) -> Vec<u8> {
    rmp_serde::to_vec_named(&(found.state.critics(), found.state.streams())).expect("plain data into memory")
}

// ---- checkpoints

/// ```text
/// data     what u8, bytes
/// what     0: the bytes are a file; else they are the body of one whose header is right
/// ```
/// The checkpoint is put behind the second of three groups of a small journal, whatever group it says.
pub fn checkpoint(data: &[u8]) {
    aloud(|| {
        let Some((&what, bytes)) = data.split_first() else { return };
        let file = if what == 0 { bytes.to_vec() } else { framed(bytes) };
        let Ok(checkpoint) = Checkpoint::decode(&file) else { return };
        let written = checkpoint.encode();
        let again = Checkpoint::decode(&written).expect("what was read can be written");
        assert!(again.encode() == written);

        let groups = &*SMALL_JOURNAL;
        let second = behind(&groups[1]);
        let checkpoint =
            Checkpoint { group: second.id, crc: second.crc, offset: second.offset, replay_from: 0, ..checkpoint };
        let checkpoints = MemoryCheckpoints::default();
        let mut file = checkpoint.encode();
        checkpoints.write(second.id, &file).expect("into memory");
        if let Ok(start) = recovered(groups, None, &checkpoints) {
            assert_eq!((start.state.end(), start.from_checkpoint), (behind(&groups[2]), Some(second.offset)));
            for learner in start.state.critics() {
                // What it says of itself it can say: a value function, or why there is none.
                let snapshot = learner.snapshot(true).ok();
                snapshot
                    .into_iter()
                    .for_each(|snapshot| drop(wire::encode_snapshot(&snapshot, ArrayForm::Tensor, true)));
            }
        }
        // A damaged one is passed over: the journal alone gives what it gives.
        let at = written.iter().map(|&byte| usize::from(byte)).sum::<usize>() % file.len();
        file[at] ^= what | 1;
        assert!(Checkpoint::decode(&file).is_err(), "byte {at}");
        checkpoints.write(second.id, &file).expect("into memory");
        let start = recovered(groups, None, &checkpoints).expect("a start without a checkpoint");
        assert_eq!((start.faults.len(), start.from_checkpoint), (1, None));
        let whole = recovered(groups, None, &MemoryCheckpoints::default()).expect("a small journal");
        assert!(state(&start) == state(&whole));
    });
}

/// A file of a checkpoint with this body.
fn framed(body: &[u8]) -> Vec<u8> {
    let version = journal::checkpoint::VERSION.to_le_bytes();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&version);
    hasher.update(body);
    let (length, crc) = ((body.len() as u64).to_le_bytes(), hasher.finalize().to_le_bytes());
    [b"criticd checkpoint\n", &version[..], &length, &crc, body].concat()
}

/// Settings, and two groups of rows of one stream.
static SMALL_JOURNAL: LazyLock<Vec<StoredGroup>> = LazyLock::new(|| {
    let settings = Settings { dictionary_max: 4, warmup_rows: 6, refresh_rows: 8, ..Settings::default() };
    let mut writer = GroupWriter::default();
    writer.configured(&Configured { critics: vec![settings], names: None, from: 0, ..Configured::default() });
    let mut groups = vec![writer.finish(1, 0, 0, 1e9)];
    for part in 0..2 {
        let states: Vec<f64> = (0..=12).map(|k| (f64::from(12 * part + k) * 0.7).sin()).collect();
        let rows = states.len() - 1;
        let batch = Batch::new(BatchParts {
            stream: "robot".into(),
            seq: Some(part as u64 * rows as u64),
            dim: 1,
            rewards_per_row: 1,
            rewards: states[..rows].iter().map(|x| x * x).collect(),
            states,
            ..BatchParts::default()
        });
        let mut writer = GroupWriter::default();
        let starts_chain = (0..rows).map(|i| part == 0 && i == 0).collect();
        writer.take(&TakenRows { stream: 0, starts_chain, batch: batch.expect("rows that are right") });
        let before = groups.last().expect("the settings");
        groups.push(writer.finish(before.id + 1, before.end(), before.crc, 1e9));
    }
    groups
});

// ---- panics

/// Call `work`. What panics within the program and is caught there is none of our business: only what gets here counts.
fn aloud(work: impl FnOnce()) {
    static LAST: Mutex<String> = Mutex::new(String::new());
    static HOOK: Once = Once::new();
    HOOK.call_once(|| std::panic::set_hook(Box::new(|panic| *LAST.lock() = panic.to_string())));
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        eprintln!("{}", LAST.lock());
        resume_unwind(panic);
    }
}
