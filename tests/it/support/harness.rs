//! The whole control loop without threads, sockets or a clock of its own: the test turns it by hand.

use super::refits::carry_out;
use criticd::config::Config;
use criticd::daemon::core::{Call, Caller, Core, Now, Output, publication};
use criticd::daemon::ledger::CheckpointDone;
use criticd::daemon::rebuild::{RebuildDone, Rebuilt};
use criticd::daemon::recovery::RecoverError;
use criticd::journal::checkpoint::{Checkpoint, Checkpoints};
use criticd::journal::memory::{Disk, MemoryCheckpoints, MemoryStorage};
use criticd::journal::store::Storage;
use criticd::snapshot::Snapshot;
use criticd::transition::Batch;
use criticd::transport::{Peer, Publication};
use criticd::wire::{self, ArrayForm, HeadForm, Id, Op};
use parking_lot::Mutex;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;

/// Where a clock stands that stands still.
pub(crate) const NOW: Now = Now { uptime: 1.0, unix: 1e9 };

pub(crate) fn config(text: &str) -> Arc<Config> {
    Arc::new(Config::from_toml(text).unwrap_or_else(|e| panic!("{e}")))
}

/// The same with critics that learn values about 0, as they do heads that sum anything but a reward of theirs.
pub(crate) fn about_zero(critics: &str) -> Arc<Config> {
    let mut parts = (**config(critics)).clone();
    parts.critics.iter_mut().for_each(|settings| settings.centred = false);
    Arc::new(Config::new(parts).unwrap())
}

/// Whoever asks.
pub(crate) fn caller() -> Caller {
    Caller { peer: Peer { connection: 1, delimiter: false }, id: Id::nil(), form: ArrayForm::List }
}

/// What becomes of a task that the core hands out to a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handed {
    /// It is carried out at once.
    AtOnce,
    /// It waits in [`Harness::tasks`].
    Waits,
    /// It fails, since it can read nothing.
    Fails,
    /// Nothing is heard of it again.
    Lost,
}

/// How a harness goes about its core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ways {
    /// Where the clock begins, and seconds by which it moves on whenever it is read.
    pub start: Now,
    pub tick: f64,
    /// Whether every turn refreshes the snapshots, or only those in which that is due.
    pub refreshes_always: bool,
    /// Turns before an answer is looked for.
    pub turns: usize,
    pub refits: Handed,
    pub catch_ups: Handed,
    pub checkpoints: Handed,
    pub rebuilds: Handed,
    pub removals: Handed,
}

impl Ways {
    /// The clock stands still, and rebuilds wait until [`Harness::work`] lets them go.
    pub(crate) const STILL: Self = Self {
        start: NOW,
        tick: 0.0,
        refreshes_always: true,
        turns: 1,
        refits: Handed::AtOnce,
        catch_ups: Handed::AtOnce,
        checkpoints: Handed::Lost,
        rebuilds: Handed::Waits,
        removals: Handed::AtOnce,
    };
    /// The clock goes, and snapshots are refreshed when that is due.
    pub(crate) const GOING: Self =
        Self { start: Now { uptime: 0.0, unix: 1e9 }, tick: 0.001, refreshes_always: false, ..Self::STILL };
}

/// A core, and what it says.
pub(crate) struct Harness {
    pub(crate) config: Arc<Config>,
    /// Where a core [`Harness::on`] a disk keeps its journal, and what rebuilds read.
    pub(crate) disk: Arc<Mutex<Disk>>,
    pub(crate) checkpoints: Arc<dyn Checkpoints>,
    pub(crate) core: Core,
    pub(crate) now: Now,
    pub(crate) ways: Ways,
    /// Tasks that wait.
    pub(crate) tasks: VecDeque<Output>,
    /// Rebuilds of a whole critic that came back.
    pub(crate) whole: usize,
    pub(crate) replies: Vec<Value>,
    pub(crate) published: Vec<Publication>,
}

impl Harness {
    /// On an empty disk that survives it, with a clock that stands still.
    pub(crate) fn new(config: Arc<Config>) -> Self {
        Self::on(config, Arc::default(), Arc::new(MemoryCheckpoints::default()), Ways::STILL)
    }

    /// On this disk.
    pub(crate) fn on(
        config: Arc<Config>,
        disk: Arc<Mutex<Disk>>,
        checkpoints: Arc<dyn Checkpoints>,
        ways: Ways,
    ) -> Self {
        let storage = MemoryStorage::on(Arc::clone(&disk));
        let harness = Self::open(config, storage, checkpoints, ways).unwrap_or_else(|e| panic!("{e}"));
        Self { disk, ..harness }
    }

    /// With its journal in `storage`, if it starts there.
    pub(crate) fn open(
        config: Arc<Config>,
        storage: impl Storage + 'static,
        checkpoints: Arc<dyn Checkpoints>,
        ways: Ways,
    ) -> Result<Self, RecoverError> {
        let (start, kept) = (ways.start, Arc::clone(&checkpoints));
        let core = Core::open(Arc::clone(&config), Box::new(storage), kept, start, &mut |_, _| {})?;
        Ok(Self { checkpoints, ..Self::with(config, core, ways) })
    }

    /// Without a journal.
    pub(crate) fn without_journal(config: Arc<Config>, ways: Ways) -> Self {
        let core = Core::new(Arc::clone(&config));
        Self::with(config, core, ways)
    }

    fn with(config: Arc<Config>, core: Core, ways: Ways) -> Self {
        Self {
            config,
            disk: Arc::default(),
            checkpoints: Arc::new(MemoryCheckpoints::default()),
            core,
            now: ways.start,
            ways,
            tasks: VecDeque::new(),
            whole: 0,
            replies: Vec::new(),
            published: Vec::new(),
        }
    }

    /// Crash, and start again.
    pub(crate) fn crash(&mut self) {
        self.tasks.clear();
        let storage = Box::new(MemoryStorage::on(Arc::clone(&self.disk)));
        let (config, checkpoints) = (Arc::clone(&self.config), Arc::clone(&self.checkpoints));
        self.core = Core::open(config, storage, checkpoints, self.now, &mut |_, _| {}).unwrap();
        self.turn();
    }

    /// Crash, and start again with other settings.
    pub(crate) fn restart_with(&mut self, config: Arc<Config>) {
        self.config = config;
        self.crash();
    }

    /// The next moment.
    pub(crate) fn at(&mut self) -> Now {
        self.pass(self.ways.tick);
        self.now
    }

    /// Let so many seconds pass.
    pub(crate) fn pass(&mut self, seconds: f64) {
        self.now = Now { uptime: self.now.uptime + seconds, unix: self.now.unix + seconds };
    }

    pub(crate) fn turn(&mut self) {
        let now = self.at();
        self.core.step(now);
        if self.ways.refreshes_always || self.core.refresh_due(now) {
            self.core.refresh(now, &|| now);
        }
        for output in self.core.take_outputs().collect::<Vec<_>>() {
            self.take(output);
        }
    }

    fn take(&mut self, output: Output) {
        match output {
            Output::Reply(reply) => self.replies.push(wire::to_json(&reply.payload).unwrap()),
            Output::Publish(publication) => self.published.push(publication),
            Output::Event(event) => self.published.push(publication(&event)),
            Output::Status(_) | Output::Garbage(_) => {}
            task => match self.handed(&task) {
                Handed::AtOnce => self.carry_out(task),
                Handed::Waits => self.tasks.push_back(task),
                Handed::Fails => self.fail(task),
                Handed::Lost => {}
            },
        }
    }

    fn handed(&self, task: &Output) -> Handed {
        match task {
            Output::Refit { .. } => self.ways.refits,
            Output::CatchUp { .. } => self.ways.catch_ups,
            Output::Checkpoint(_) => self.ways.checkpoints,
            Output::Remove(_) => self.ways.removals,
            _ => self.ways.rebuilds,
        }
    }

    /// Do what a thread of the daemon would do.
    pub(crate) fn carry_out(&mut self, task: Output) {
        let Some(task) = carry_out(&mut self.core, task) else { return };
        let mut storage = MemoryStorage::on(Arc::clone(&self.disk));
        match task {
            Output::Checkpoint(checkpoint) => self.write(&checkpoint),
            Output::Rebuild(job) => {
                let result = job.run(&mut storage, &|| true).map(Box::new);
                self.rebuilt(job.settings.name.clone(), result);
            }
            Output::Remove(job) => self.core.removal_found(job.run(&mut storage, &|| true).map(Box::new)),
            Output::FollowRebuild(mut rebuilt) => {
                let critic = rebuilt.critic().to_owned();
                let result = rebuilt.follow(&mut storage, &|| true).map(|()| rebuilt);
                self.rebuilt(critic, result);
            }
            _ => unreachable!("it is no task"),
        }
    }

    fn write(&mut self, checkpoint: &Checkpoint) {
        let Checkpoint { group, offset, replay_from, .. } = *checkpoint;
        let bytes = checkpoint.encode();
        let result = self.checkpoints.write(group, &bytes).map(|()| bytes.len() as u64).map_err(|e| e.to_string());
        let now = self.at();
        self.core.checkpoint_done(&CheckpointDone { group, offset, replay_from, result, seconds: 0.0 }, now);
    }

    fn rebuilt(&mut self, critic: String, result: Result<Box<Rebuilt>, String>) {
        self.whole += usize::from(matches!(result.as_deref(), Ok(Rebuilt::Critic(_))));
        self.core.rebuild_done(RebuildDone { critic, result, seconds: 0.0 });
    }

    fn fail(&mut self, task: Output) {
        let Output::Rebuild(job) = task else { unreachable!("only what reads the journal") };
        self.rebuilt(job.settings.name.clone(), Err("nothing to read".to_owned()));
    }

    /// Carry out the task that waits for longest; whether there was one.
    pub(crate) fn work(&mut self) -> bool {
        let Some(task) = self.tasks.pop_front() else { return false };
        self.carry_out(task);
        self.turn();
        true
    }

    /// Write a checkpoint of all there is.
    pub(crate) fn checkpoint(&mut self) {
        self.turn();
        let checkpoint = self.core.checkpoint(self.now);
        self.checkpoints.write(checkpoint.group, &checkpoint.encode()).unwrap();
    }

    pub(crate) fn ingest(&mut self, batch: &Batch) {
        let now = self.at();
        self.core.ingest(&wire::encode_ingest(batch), now);
    }

    /// Ingest these one after the other, each in a turn.
    pub(crate) fn learn(&mut self, batches: &[Batch]) {
        for batch in batches {
            self.ingest(batch);
            self.turn();
        }
    }

    /// Hand a request in.
    pub(crate) fn call(&mut self, op: Op) {
        let now = self.at();
        self.core.call(Call { caller: caller(), op }, now);
    }

    /// Ask all in one turn; the replies in the order in which they came.
    pub(crate) fn ask_at_once(&mut self, ops: Vec<Op>) -> Vec<Value> {
        ops.into_iter().for_each(|op| self.call(op));
        self.turn();
        std::mem::take(&mut self.replies)
    }

    pub(crate) fn ask(&mut self, op: Op) -> Value {
        self.call(op);
        (0..self.ways.turns).for_each(|_| self.turn());
        self.replies.pop().expect("an answer")
    }

    pub(crate) fn change(&mut self, add: &[Value], remove: &[String]) -> Value {
        let add = add.iter().map(|head| serde_json::from_value::<HeadForm>(head.clone()).unwrap()).collect();
        self.ask(Op::ChangeHeads { critic: None, add, remove: remove.to_vec(), labels: None })
    }

    /// What was published of this kind of event.
    pub(crate) fn events(&self, kind: &str) -> Vec<Value> {
        let topic = format!("event.{kind}");
        let of_kind = self.published.iter().filter(|publication| *publication.topic == *topic);
        of_kind.map(|publication| wire::to_json(&publication.payload).unwrap()).collect()
    }

    pub(crate) fn snapshot(&self, critic: usize) -> Arc<Snapshot> {
        self.core.board().get(critic).expect("a model")
    }

    /// Everything that is restored, as bytes, without the time.
    pub(crate) fn state(&self) -> Vec<u8> {
        self.core.checkpoint(Now { uptime: 0.0, unix: 0.0 }).encode()
    }
}

pub(crate) fn mean_and_variance(snapshot: &Snapshot, name: &str, states: &[f64]) -> Vec<f64> {
    let head = snapshot.position_of_head(name).unwrap_or_else(|| panic!("no {name}"));
    let found = snapshot.evaluate_heads(states, &[head], true).unwrap();
    found.mean.iter().chain(found.variance.as_ref().unwrap()).copied().collect()
}

pub(crate) fn assert_close(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1e-300f64, |s, v| s.max(v.abs()));
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= 1e-9 * scale, "{what}: {a} {b}");
    }
}
