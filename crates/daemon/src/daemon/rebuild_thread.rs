//! The thread that learns critics again from the journal, which it reads beside the core.

use super::rebuild::{RebuildDone, RebuildJob, Rebuilt};
use crate::journal::store::SqliteStorage;
use crate::panics;
use crossbeam_channel::{Receiver, Sender};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Work of this thread.
pub(super) enum RebuildTask {
    Run(Box<RebuildJob>),
    Follow(Box<Rebuilt>),
}

/// The thread.
pub(super) struct Rebuilds {
    /// Where the journal is.
    pub(super) directory: PathBuf,
    pub(super) tasks: Receiver<RebuildTask>,
    pub(super) done: Sender<RebuildDone>,
    pub(super) stop: Arc<AtomicBool>,
}

impl Rebuilds {
    /// Until the core has ended.
    pub(super) fn run(self) {
        // Learning and answering go before what this thread does. Without that things are only slower.
        if let Err(e) = rustix::process::nice(5) {
            log::debug!("event=priority_unchanged why={e}");
        }
        for task in &self.tasks {
            let started = Instant::now();
            let critic = match &task {
                RebuildTask::Run(job) => job.settings.name.clone(),
                RebuildTask::Follow(rebuilt) => rebuilt.critic().to_owned(),
            };
            // A bug costs this rebuild, not the daemon.
            let result = catch_unwind(AssertUnwindSafe(|| self.work(task)));
            let result = result.unwrap_or_else(|panic| Err(format!("it panicked: {}", panics::message(&*panic))));
            drop(self.done.send(RebuildDone { critic, result, seconds: started.elapsed().as_secs_f64() }));
        }
    }

    fn work(&self, task: RebuildTask) -> Result<Box<Rebuilt>, String> {
        let mut storage = SqliteStorage::open_beside(&self.directory).map_err(|e| e.to_string())?;
        let keep_going = || !self.stop.load(Ordering::Relaxed);
        match task {
            RebuildTask::Run(job) => job.run(&mut storage, &keep_going).map(Box::new),
            RebuildTask::Follow(mut rebuilt) => {
                rebuilt.follow(&mut storage, &keep_going)?;
                Ok(rebuilt)
            }
        }
    }
}
