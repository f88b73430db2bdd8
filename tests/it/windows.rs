//! A directory that was recorded with one window is opened with another, from its journal and from a checkpoint before the records
//! that reach back. It opens, and gives the same models bit for bit.

use crate::support::harness::{NOW, caller, config as settings};
use criticd::config::Config;
use criticd::daemon::core::{Call, Core, Output};
use criticd::daemon::rebuild::RebuildDone;
use criticd::journal::checkpoint::Checkpoints;
use criticd::journal::memory::{Disk, MemoryCheckpoints, MemoryStorage};
use criticd::sim::{self, Step, walk::Walk};
use criticd::transition::Batch;
use criticd::wire::{self, Event, Op};
use parking_lot::Mutex;
use std::sync::Arc;

/// The window forgets so many rows at a time.
const SEGMENT: usize = 4096;
const LARGE: usize = 20_000;
const SMALL: usize = 16;

fn config(window_rows: usize, discount: f64) -> Arc<Config> {
    settings(&format!(
        "window_rows = {window_rows}\ncheckpoint_rows = 1000000\n[[critic]]\nname = \"main\"\ndiscount = {discount}\n\
         dictionary_max = 8\nbackfill_rows = 16\nrefresh_rows = 16\nwarmup_rows = 10\nrefit_first_rows = 0\n"
    ))
}

/// A directory in memory, and the rows that come.
struct Place {
    disk: Arc<Mutex<Disk>>,
    checkpoints: Arc<dyn Checkpoints>,
    walk: Walk,
}

impl Place {
    fn new() -> Self {
        Self {
            disk: Arc::default(),
            checkpoints: Arc::new(MemoryCheckpoints::default()),
            walk: Walk::new(1, Some(40), 0.0),
        }
    }

    fn storage(&self) -> MemoryStorage {
        MemoryStorage::on(Arc::clone(&self.disk))
    }

    fn open(&self, config: &Arc<Config>, checkpoints: &Arc<dyn Checkpoints>) -> Core {
        let opened =
            Core::open(Arc::clone(config), Box::new(self.storage()), Arc::clone(checkpoints), NOW, &mut |_, _| {});
        let mut core = opened.unwrap_or_else(|e| panic!("it does not open: {e}"));
        core.step(NOW);
        core
    }

    fn learn(&mut self, core: &mut Core, rows: usize) {
        let steps: Vec<Step> = (0..rows).map(|_| self.walk.step()).collect();
        let messages: Vec<Batch> = steps.chunks(64).flat_map(|part| sim::batches("robot", "", part)).collect();
        for message in messages {
            core.ingest(&wire::encode_ingest(&message), NOW);
            core.step(NOW);
        }
    }

    /// Let the critic be learned again, while `meanwhile` rows come.
    fn rebuild(&mut self, core: &mut Core, meanwhile: usize) {
        core.call(Call { caller: caller(), op: Op::Rebuild { critic: None, wait: false } }, NOW);
        core.step(NOW);
        let mut begun = core.take_outputs().find_map(|output| match output {
            Output::Rebuild(job) => Some(job.run(&mut self.storage(), &|| true).map(Box::new)),
            _ => None,
        });
        self.learn(core, meanwhile);
        let mut is_recorded = false;
        while let Some(result) = begun.take() {
            core.rebuild_done(RebuildDone { critic: "main".into(), result, seconds: 0.0 });
            (0..3).for_each(|_| core.step(NOW));
            for output in core.take_outputs() {
                match output {
                    Output::FollowRebuild(mut rebuilt) => {
                        begun = Some(rebuilt.follow(&mut self.storage(), &|| true).map(|()| rebuilt));
                    }
                    Output::Event(dated) => is_recorded |= matches!(dated.event, Event::Rebuilt { .. }),
                    _ => {}
                }
            }
        }
        assert!(is_recorded, "the critic was not rebuilt");
    }
}

/// What the state holds, but for the window.
fn models(core: &Core) -> Vec<u8> {
    let status = core.status(NOW);
    assert_eq!(status.critics[0].failed, None);
    assert_eq!((status.skipped_rows, status.critics[0].learned), (0, core.offset()));
    rmp_serde::to_vec_named(&core.checkpoint(NOW).learners).unwrap()
}

/// Record with one window all that reaches back, then open with the others.
fn opens_with_any_window(recorded: usize) {
    let mut place = Place::new();
    let mut core = place.open(&config(recorded, 0.9), &place.checkpoints);
    place.learn(&mut core, 3 * SEGMENT - 100);
    let checkpoint = core.checkpoint(NOW);
    let (group, bytes) = (checkpoint.group, checkpoint.encode());
    // The rows that come meanwhile begin in a segment that a small window has forgotten when the critic is recorded.
    place.rebuild(&mut core, 200);
    place.learn(&mut core, 300);
    drop(core);
    // A critic that begins again learns the last rows at once, and the others by its rebuild.
    let mut core = place.open(&config(recorded, 0.5), &place.checkpoints);
    place.learn(&mut core, 100);
    let expected = models(&core);
    drop(core);
    for window_rows in [SMALL, 5000, LARGE] {
        let none: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
        let before: Arc<dyn Checkpoints> = Arc::new(MemoryCheckpoints::default());
        before.write(group, &bytes).unwrap();
        for (checkpoints, from) in [(none, None), (before, Some(3 * SEGMENT as u64 - 100))] {
            let core = place.open(&config(window_rows, 0.5), &checkpoints);
            assert_eq!(core.recovered().unwrap().from_checkpoint, from);
            assert!(models(&core) == expected, "{recorded} rows recorded, {window_rows} opened");
        }
    }
}

#[test]
fn a_directory_of_a_large_window_opens_with_a_small_one() {
    opens_with_any_window(LARGE);
}

#[test]
fn a_directory_of_a_small_window_opens_with_a_large_one() {
    opens_with_any_window(SMALL);
}
