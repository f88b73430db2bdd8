//! A core on a disk in memory, with the threads of refits and rebuilds as tasks of the test.
#![allow(dead_code, unreachable_pub)] // each test program uses its own part

#[path = "refits.rs"]
mod refits;

use criticd::config::Config;
use criticd::daemon::core::{Call, Caller, Core, Now, Output};
use criticd::daemon::rebuild::{RebuildDone, RebuildJob, Rebuilt};
use criticd::journal::checkpoint::Checkpoints;
use criticd::journal::memory::{Disk, MemoryCheckpoints, MemoryStorage};
use criticd::snapshot::Snapshot;
use criticd::transition::Batch;
use criticd::transport::Peer;
use criticd::wire::{self, ArrayForm, HeadForm, Id, Op};
use parking_lot::Mutex;
use refits::carry_out;
use serde_json::Value;
use std::collections::VecDeque;
use std::sync::Arc;

pub const NOW: Now = Now { uptime: 1.0, unix: 1e9 };

pub fn config(text: &str) -> Arc<Config> {
    Arc::new(Config::from_toml(text).unwrap_or_else(|e| panic!("{e}")))
}

/// A task of the thread of rebuilds.
pub enum Task {
    Run(Box<RebuildJob>),
    Follow(Box<Rebuilt>),
}

/// A core on a disk that survives it; rebuilds wait until they are let go.
pub struct Harness {
    pub config: Arc<Config>,
    pub disk: Arc<Mutex<Disk>>,
    pub checkpoints: Arc<dyn Checkpoints>,
    pub core: Core,
    pub tasks: VecDeque<Task>,
    /// Rebuilds of a whole critic that came back.
    pub whole: usize,
    pub replies: Vec<Value>,
}

impl Harness {
    pub fn new(config: Arc<Config>) -> Self {
        let disk: Arc<Mutex<Disk>> = Arc::default();
        let checkpoints: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
        let core = open(&config, &disk, &checkpoints);
        Self { config, disk, checkpoints, core, tasks: VecDeque::new(), whole: 0, replies: Vec::new() }
    }

    /// Crash, and start again.
    pub fn crash(&mut self) {
        self.tasks.clear();
        self.core = open(&self.config, &self.disk, &self.checkpoints);
        self.turn();
    }

    pub fn turn(&mut self) {
        self.core.step(NOW);
        self.core.refresh(NOW, &|| NOW);
        let outputs: Vec<Output> = self.core.take_outputs().collect();
        for output in outputs {
            let Some(output) = carry_out(&mut self.core, output) else { continue };
            match output {
                Output::Reply(reply) => self.replies.push(wire::to_json(&reply.payload).unwrap()),
                Output::Rebuild(job) => self.tasks.push_back(Task::Run(job)),
                Output::FollowRebuild(rebuilt) => self.tasks.push_back(Task::Follow(rebuilt)),
                _ => {}
            }
        }
    }

    /// Write a checkpoint of all there is.
    pub fn checkpoint(&mut self) {
        self.turn();
        let checkpoint = self.core.checkpoint(NOW);
        self.checkpoints.write(checkpoint.group, &checkpoint.encode()).unwrap();
    }

    /// Carry out one task of the thread of rebuilds; whether there was one.
    pub fn work(&mut self) -> bool {
        let Some(task) = self.tasks.pop_front() else { return false };
        let mut storage = MemoryStorage::on(Arc::clone(&self.disk));
        let (critic, result) = match task {
            Task::Run(job) => (job.settings.name.clone(), job.run(&mut storage, &|| true, &|| true).map(Box::new)),
            Task::Follow(mut rebuilt) => {
                let critic = rebuilt.critic().to_owned();
                (critic, rebuilt.follow(&mut storage, &|| true).map(|()| rebuilt))
            }
        };
        self.whole += usize::from(matches!(result.as_deref(), Ok(Rebuilt::Critic(_))));
        self.core.rebuild_done(RebuildDone { critic, result, seconds: 0.0 });
        self.turn();
        true
    }

    pub fn ingest(&mut self, batch: &Batch) {
        self.core.ingest(&wire::encode_ingest(batch), NOW);
    }

    pub fn learn(&mut self, batches: &[Batch]) {
        for batch in batches {
            self.ingest(batch);
            self.turn();
        }
    }

    /// Ask all in one turn; the replies in the order in which they came.
    pub fn ask_at_once(&mut self, ops: Vec<Op>) -> Vec<Value> {
        for op in ops {
            let caller =
                Caller { peer: Peer { connection: 1, delimiter: false }, id: Id::nil(), form: ArrayForm::List };
            self.core.call(Call { caller, op }, NOW);
        }
        self.turn();
        std::mem::take(&mut self.replies)
    }

    pub fn ask(&mut self, op: Op) -> Value {
        let caller = Caller { peer: Peer { connection: 1, delimiter: false }, id: Id::nil(), form: ArrayForm::List };
        self.core.call(Call { caller, op }, NOW);
        self.turn();
        self.replies.pop().expect("an answer")
    }

    pub fn change(&mut self, add: &[Value], remove: &[String]) -> Value {
        let add = add.iter().map(|head| serde_json::from_value::<HeadForm>(head.clone()).unwrap()).collect();
        self.ask(Op::ChangeHeads { critic: None, add, remove: remove.to_vec(), labels: None })
    }

    pub fn snapshot(&self, critic: usize) -> Arc<Snapshot> {
        self.core.board().get(critic).expect("a model")
    }

    /// Everything that is restored, as bytes, without the time.
    pub fn state(&self) -> Vec<u8> {
        self.core.checkpoint(Now { uptime: 0.0, unix: 0.0 }).encode()
    }
}

pub fn open(config: &Arc<Config>, disk: &Arc<Mutex<Disk>>, checkpoints: &Arc<dyn Checkpoints>) -> Core {
    let storage = Box::new(MemoryStorage::on(Arc::clone(disk)));
    Core::open(Arc::clone(config), storage, Arc::clone(checkpoints), NOW, &mut |_, _| {}).unwrap()
}

pub fn mean_and_variance(snapshot: &Snapshot, name: &str, states: &[f64]) -> Vec<f64> {
    let head = snapshot.position_of_head(name).unwrap_or_else(|| panic!("no {name}"));
    let found = snapshot.evaluate_heads(states, &[head], true).unwrap();
    found.mean.iter().chain(found.variance.as_ref().unwrap()).copied().collect()
}

pub fn assert_close(what: &str, found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let scale = expected.iter().fold(1e-300f64, |s, v| s.max(v.abs()));
    for (a, b) in found.iter().zip(expected) {
        assert!((a - b).abs() <= 1e-9 * scale, "{what}: {a} {b}");
    }
}
