//! Settings that change at random from start to start, over kills and power cuts. A start goes on, or the daemon refuses it, names the
//! setting that the rows contradict, and writes nothing. Some settings open every directory, and no acknowledged row is lost.
//!
//! CRITICD_KILLS=10000 makes more of it than the default of 50. A failure names its seed.

use crate::support::asked;
use crate::support::harness::{caller, config};
use crate::support::worlds::worlds;
use criticd::config::Config;
use criticd::daemon::core::{Call, Core, Now, Output, RefitDone};
use criticd::daemon::ledger::CheckpointDone;
use criticd::daemon::rebuild::RebuildDone;
use criticd::daemon::recovery::{RecoverError, recover};
use criticd::journal::checkpoint::{Checkpoint, Checkpoints};
use criticd::journal::memory::{Disk, MemoryCheckpoints, MemoryStorage};
use criticd::learner::Learner;
use criticd::learner::refit;
use criticd::transition::{Batch, BatchParts};
use criticd::wire::{self, Event, Op};
use parking_lot::Mutex;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;

/// A seed that found a fault: a critic of action values that began after its first rows was another one from a checkpoint.
const FAILED_ONCE: u64 = 220;
/// Numbers of a state, and rewards of a row.
const SHAPE: (usize, usize) = (2, 2);
/// Kills of one directory.
const KILLS: u64 = 25;

/// Settings of a critic and values that each may have; the first is always sound. Some of the others contradict the rows.
const CRITIC: [(&str, &[&str]); 20] = [
    ("rewards", &["[0]", "[1]", "[0, 1]", "[1, 0]", "[2]", "[0, 3]"]),
    ("discount", &["0.9", "0.0", "0.5", "1.0"]),
    ("noise", &["\"correlated\"", "\"white\""]),
    ("variance", &["\"rows\"", "\"model\"", "\"clustered\""]),
    ("kernel", &["\"ard\"", "\"isotropic\"", "\"factor\"", "\"auto\""]),
    ("kernel_profile", &["\"gaussian\"", "\"matern52\""]),
    ("linear_columns", &["\"auto\"", "\"always\"", "\"never\""]),
    (
        "state_kinds",
        &[
            "[]",
            "[\"real\", \"periodic:2\"]",
            "[\"real\", \"real\"]",
            "[\"real\"]",
            "[\"category\", \"real\"]",
            "[\"real\", \"periodic\"]",
        ],
    ),
    ("lambda", &["\"auto\"", "0.0", "0.7", "1.0"]),
    ("rho_max", &["1.0", "inf", "5.0"]),
    ("forgetting", &["\"off\"", "40", "3000"]),
    ("on_new_policy", &["\"restart\"", "\"discount\"", "\"keep\""]),
    ("policies_kept", &["2", "1"]),
    ("selection", &["\"returns\"", "\"evidence\""]),
    ("dictionary_max", &["4", "2", "9"]),
    ("tolerance", &["1e-3", "1e-6", "0.1"]),
    ("backfill_rows", &["10", "40"]),
    ("estimate_scale", &["true", "false"]),
    ("refit_first_rows", &["60", "0", "150"]),
    ("drift_sensitivity", &["\"normal\"", "\"off\"", "\"high\""]),
];
/// What a critic learns, and the settings above that have no say in it. The first learns values of states alone.
const KINDS: [(&str, &[&str]); 9] = [
    ("", &[]),
    ("heads = [{ name = \"energy\", cumulant = { kind = \"reward\", index = 1 }, discount = 0.5 }]", &["noise"]),
    (
        "alarm = [{ below = 0.0, false_alarms = 0.3 }, { head = \"time\", below = 4.0, false_alarms = 0.5 }]\n\
         heads = [{ name = \"energy\", cumulant = { kind = \"reward\", index = 1 }, discount = 0.8 }, \
         { name = \"time\", cumulant = { kind = \"constant\", value = 1.0 }, discount = 0.9 }]",
        &["noise"],
    ),
    ("heads = [{ name = \"far\", cumulant = { kind = \"reward\", index = 7 }, discount = 0.5 }]", &["noise"]),
    ("inputs = \"state_action\"\nactions = 2", &["noise"]),
    ("inputs = \"state_action\"\nactions = [\"left\", \"right\"]\nsuccessor = \"sarsa\"\ntrace = \"tree\"", &["noise"]),
    ("inputs = \"state_action\"\nactions = 3\nsuccessor = \"next_action\"\nworld = true", &["noise"]),
    (
        "inputs = \"state_action\"\nactions = 2\nsuccessor = \"improve\"\nimprove_rows = 20",
        &["noise", "rewards", "lambda", "forgetting", "drift_sensitivity"],
    ),
    (
        "inputs = \"state_action\"\nactions = { low = [0.0], high = [1.0] }\nsuccessor = \"improve\"\nimprove_rows = 60",
        &["noise", "rewards", "lambda", "forgetting", "drift_sensitivity"],
    ),
];
/// The same of the daemon.
const GENERAL: [(&str, &[&str]); 5] = [
    ("window_rows", &["60", "200", "20000"]),
    ("journal_rows_max", &["1000000", "120"]),
    ("streams_max", &["12", "3"]),
    ("checkpoint_rows", &["100", "20"]),
    ("state_dim", &["2", "3"]),
];
const NAMES: [&str; 4] = ["main", "energy", "late", "x"];

/// A draw of all settings. The rarer a change, the longer a directory keeps a model.
fn draw(rng: &mut ChaCha8Rng, change: f64) -> String {
    let mut text = String::from("sync = \"always\"\n");
    let put = |text: &mut String, rng: &mut ChaCha8Rng, key: &str, values: &[&str], first: bool| {
        let drawn = if !first && rng.random::<f64>() < change { values.choose(rng).expect("one") } else { &values[0] };
        writeln!(text, "{key} = {drawn}").unwrap();
    };
    for (key, values) in GENERAL {
        // State names would be needed beside it, and rows contradict the other: seldom.
        let is_seldom = key == "state_dim" && rng.random::<f64>() < 0.8;
        put(&mut text, rng, key, values, is_seldom);
    }
    let mut names = NAMES;
    let first = if rng.random::<f64>() < change { rng.random_range(0..NAMES.len()) } else { 0 };
    names.swap(0, first);
    for name in &names[..rng.random_range(1..=3)] {
        write!(text, "[[critic]]\nname = \"{name}\"\nevidence_rows = 20\nrefit_budget_s = 0.01\nsearch_starts = 1\nrefresh_rows = 16\n")
            .unwrap();
        writeln!(text, "warmup_rows = 10\nrefit_rows_max = 90").unwrap();
        let (kind, without) = if rng.random::<f64>() < change { *KINDS.choose(rng).expect("one") } else { KINDS[0] };
        for (key, values) in CRITIC.iter().filter(|(key, _)| !without.contains(key)) {
            put(&mut text, rng, key, values, false);
        }
        writeln!(text, "{kind}").unwrap();
    }
    text
}

/// Counts of events in some worlds.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    kills: u64,
    starts: u64,
    /// Settings that are no settings, and starts refused since the rows contradict them.
    unsound: u64,
    refused: u64,
    rows: u64,
    adoptions: u64,
    rebuilds: u64,
    set_aside: u64,
    failed: u64,
    /// Improvements that were adopted, and starts with heads.
    improvements: u64,
    with_heads: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.kills += other.kills;
        self.starts += other.starts;
        self.unsound += other.unsound;
        self.refused += other.refused;
        self.rows += other.rows;
        self.adoptions += other.adoptions;
        self.rebuilds += other.rebuilds;
        self.set_aside += other.set_aside;
        self.failed += other.failed;
        self.improvements += other.improvements;
        self.with_heads += other.with_heads;
    }

    /// What has to happen and has not.
    fn unseen(&self) -> Vec<&'static str> {
        let counts = [
            ("refused starts", self.refused),
            ("rows", self.rows),
            ("rebuilds", self.rebuilds),
            ("models set aside", self.set_aside),
            ("improvements", self.improvements),
            ("starts with heads", self.with_heads),
        ];
        counts.into_iter().filter(|(_, seen)| *seen == 0).map(|(kind, _)| kind).collect()
    }
}

/// A directory, and the daemon that has it.
struct World {
    rng: ChaCha8Rng,
    disk: Arc<Mutex<Disk>>,
    checkpoints: Arc<MemoryCheckpoints>,
    core: Core,
    now: f64,
    tasks: VecDeque<Output>,
    /// Rows acknowledged, the next number of the stream, and its last state.
    rows: u64,
    state: [f64; 2],
    /// Whether rows have actions.
    acts: bool,
    /// Why the last append was refused, if it was.
    refusal: Option<String>,
    counts: Counts,
}

fn open(
    disk: &Arc<Mutex<Disk>>,
    checkpoints: &Arc<MemoryCheckpoints>,
    config: &Arc<Config>,
    now: f64,
) -> Result<Core, RecoverError> {
    let storage = Box::new(MemoryStorage::on(Arc::clone(disk)));
    let checkpoints: Arc<dyn Checkpoints> = checkpoints.clone();
    Core::open(Arc::clone(config), storage, checkpoints, Now { uptime: now, unix: 1e9 + now }, &mut |_, _| {})
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (disk, checkpoints): (Arc<Mutex<Disk>>, Arc<MemoryCheckpoints>) = Default::default();
        let core = open(&disk, &checkpoints, &config(&draw(&mut rng, 0.0)), 0.0).unwrap();
        let (tasks, counts, acts) = (VecDeque::new(), Counts::default(), rng.random::<bool>());
        Self { rng, disk, checkpoints, core, now: 0.0, tasks, rows: 0, state: [0.0; 2], acts, refusal: None, counts }
    }

    fn at(&mut self) -> Now {
        self.now += 0.01;
        Now { uptime: self.now, unix: 1e9 + self.now }
    }

    fn turn(&mut self) {
        let now = self.at();
        self.core.step(now);
        if self.core.refresh_due(now) {
            self.core.refresh(now, &|| now);
        }
        for output in self.core.take_outputs().collect::<Vec<_>>() {
            match output {
                Output::Reply(reply) => {
                    let reply = wire::to_json(&reply.payload).unwrap();
                    if let Some(next) = reply.get("next_seq") {
                        self.rows = next.as_u64().unwrap();
                    }
                    self.refusal = reply.get("error").map(|error| error["message"].to_string());
                }
                Output::Event(dated) => match &dated.event {
                    Event::Adopted(of) => {
                        self.counts.adoptions += 1;
                        let critics = self.core.board();
                        let acts = critics.critic(Some(&of.critic)).is_ok_and(|index| critics.actor(index).is_some());
                        self.counts.improvements += u64::from(acts);
                    }
                    Event::Rebuilt { .. } => self.counts.rebuilds += 1,
                    Event::CriticFailed { .. } => self.counts.failed += 1,
                    _ => {}
                },
                Output::Publish(_) | Output::Garbage(_) | Output::Status(_) => {}
                task => self.tasks.push_back(task),
            }
        }
    }

    /// Finish what has been begun first elsewhere.
    fn land(&mut self) {
        let Some(task) = self.tasks.pop_front() else { return };
        let now = self.at();
        let mut storage = MemoryStorage::on(Arc::clone(&self.disk));
        match task {
            Output::Refit { critic, job, .. } => {
                let result = refit::run(&job, &|| true).map_err(|e| e.to_string());
                self.core.refit_done(RefitDone { critic, result, seconds: 0.0 });
            }
            Output::CatchUp { critic, mut candidate, window } => {
                let result = candidate.catch_up(&window, &|| true).map(|()| *candidate).map_err(|e| e.to_string());
                self.core.refit_done(RefitDone { critic, result, seconds: 0.0 });
            }
            Output::Checkpoint(checkpoint) => {
                let Checkpoint { group, offset, replay_from, .. } = *checkpoint;
                let bytes = checkpoint.encode();
                self.checkpoints.write(group, &bytes).unwrap();
                let result = Ok(bytes.len() as u64);
                self.core.checkpoint_done(&CheckpointDone { group, offset, replay_from, result, seconds: 0.0 }, now);
            }
            Output::Rebuild(job) => {
                let result = job.run(&mut storage, &|| true).map(Box::new);
                self.core.rebuild_done(RebuildDone { critic: job.settings.name.clone(), result, seconds: 0.0 });
            }
            Output::FollowRebuild(mut rebuilt) => {
                let critic = rebuilt.critic().to_owned();
                let result = rebuilt.follow(&mut storage, &|| true).map(|()| rebuilt);
                self.core.rebuild_done(RebuildDone { critic, result, seconds: 0.0 });
            }
            other => unreachable!("{other:?}"),
        }
    }

    fn append(&mut self, config: &Config) {
        let count = self.rng.random_range(1..30);
        let mut states = self.state.to_vec();
        for _ in 0..count {
            self.state = self.state.map(|x| 0.9 * x + self.rng.random::<f64>() - 0.5);
            states.extend(self.state);
        }
        let policy = (self.rng.random::<f64>() < 0.05).then(|| NAMES[self.rng.random_range(0..2)].to_owned());
        let parts = BatchParts {
            stream: "robot".to_owned(),
            seq: Some(self.rows),
            dim: SHAPE.0,
            rewards_per_row: SHAPE.1,
            rewards: states[..2 * count].chunks_exact(2).flat_map(|s| [s[0].sin(), s[1]]).collect(),
            states,
            truncated: Some((0..count).map(|i| i + 1 == count).collect()),
            actions: self.acts.then(|| (0..count).map(|_| f64::from(self.rng.random_range(0..2))).collect()),
            next_actions: self.acts.then(|| vec![1.0; count]),
            policy,
            ..BatchParts::default()
        };
        self.call(Op::Append(Batch::new(parts).unwrap()));
        let expected = self.rows + count as u64;
        self.turn();
        if let Some(why) = &self.refusal {
            // Numbers such as these are no categories, and rows without actions teach no action values.
            let lacks_actions = !self.acts && why.contains("action values");
            assert!(lacks_actions || config.print().contains("category"), "{why}");
        } else {
            assert_eq!(self.rows, expected, "an append is not acknowledged");
        }
    }

    fn call(&mut self, op: Op) {
        let now = self.at();
        self.core.call(Call { caller: caller(), op }, now);
    }

    fn live(&mut self, config: &Config) {
        for _ in 0..self.rng.random_range(0..12) {
            match self.rng.random::<f64>() {
                p if p < 0.6 => self.append(config),
                p if p < 0.9 => self.land(),
                p if p < 0.93 => self.call(Op::Checkpoint),
                p if p < 0.96 => self.call(Op::Refit { critic: None, wait: false }),
                _ => self.call(Op::Rebuild { critic: None, wait: false }),
            }
            self.turn();
        }
    }

    /// The process is killed, or power lost, and the daemon started again: with other settings, or the same.
    fn restart(&mut self, config: &mut Arc<Config>) {
        self.counts.kills += 1;
        self.tasks.clear();
        let kept = self.rng.random_range(0..3);
        self.disk.lock().crash(kept);
        for _ in 0..self.rng.random_range(0..3) {
            let change = [0.05, 0.5][self.rng.random_range(0..2)];
            let text = draw(&mut self.rng, change);
            let drawn = match Config::from_toml(&text) {
                Ok(drawn) => Arc::new(drawn),
                Err(_) => {
                    self.counts.unsound += 1;
                    continue;
                }
            };
            let before = self.disk.lock().groups.len();
            match open(&self.disk, &self.checkpoints, &drawn, self.now) {
                // Killed as soon as it runs, before or after it has recorded its settings; the next ones come.
                Ok(mut core) => {
                    if self.rng.random::<bool>() {
                        core.step(Now { uptime: self.now, unix: 1e9 + self.now });
                    }
                    (*config, self.counts.starts) = (drawn, self.counts.starts + 1);
                }
                Err(RecoverError::Settings(_)) => {
                    assert_eq!(self.disk.lock().groups.len(), before, "a refused start has written");
                    self.counts.refused += 1;
                }
                Err(other) => panic!("these settings do not open it: {other}\n{text}"),
            }
        }
        let opened = open(&self.disk, &self.checkpoints, config, self.now);
        self.counts.with_heads += u64::from(config.critics.iter().any(|critic| !critic.heads.is_empty()));
        self.core = opened.unwrap_or_else(|e| panic!("what opened it before does no more: {e}\n{}", config.print()));
        self.counts.starts += 1;
        assert_eq!(self.core.offset(), self.rows, "acknowledged rows are missing");
        self.turn();
    }

    /// A start gives the same state as the journal from its first group, if the journal still has that.
    fn check(&mut self) {
        self.turn();
        let mut storage = MemoryStorage::on(Arc::clone(&self.disk));
        if self.disk.lock().groups.first().is_none_or(|group| group.id > 1) {
            return;
        }
        let bytes = |learners: &Vec<Learner>| rmp_serde::to_vec_named(learners).unwrap();
        let whole = recover(&mut storage, &MemoryCheckpoints::default(), 20_000, &mut |_, _| {}).unwrap();
        let start = recover(&mut storage, self.checkpoints.as_ref(), 20_000, &mut |_, _| {}).unwrap();
        assert!(bytes(start.state.critics()) == bytes(whole.state.critics()), "a checkpoint gives other models");
        assert_eq!(whole.state.end().offset, self.rows);
    }

    fn run(mut self) -> Counts {
        let mut config = config(&draw(&mut self.rng, 0.0));
        for _ in 0..KILLS {
            self.live(&config);
            self.restart(&mut config);
        }
        self.check();
        self.counts.rows = self.rows;
        self.counts.set_aside = self.checkpoints.aside().len() as u64;
        self.counts
    }
}

/// Run the worlds of these seeds. Gives what happened in them.
fn run(seeds: impl IntoIterator<Item = u64>) -> Counts {
    let (found, failed) = worlds(seeds, |seed| World::new(seed).run());
    assert_eq!(failed, None, "the world of this seed fails");
    let mut counts = Counts::default();
    found.iter().for_each(|of_world| counts.add(of_world));
    counts
}

/// Few kills may leave out a kind of event: then more follow. Those of 250 have them all.
#[test]
fn no_settings_make_a_directory_that_none_open() {
    let mut next = asked("CRITICD_KILLS", 50).div_ceil(KILLS);
    println!("the first {next} seeds, and {FAILED_ONCE}, which has failed once");
    let mut counts = run(std::iter::once(FAILED_ONCE).chain(0..next));
    while !counts.unseen().is_empty() && next < 250 / KILLS {
        counts.add(&run(next..next + 1));
        next += 1;
    }
    println!("{next} seeds: {counts:?}");
    assert_eq!(counts.unseen(), Vec::<&str>::new(), "of these there were none");
}
