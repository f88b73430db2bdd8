//! A state written down at the end of a group, so that only what came later has to be applied again.
//!
//! ```text
//! file     "criticd checkpoint\n", version [`VERSION`] u32, length of the body u64, CRC-32 of version and body u32, body (MessagePack)
//! ```
//! A file is written under another name, synced and renamed, and its directory synced: it is there as a whole or not at
//! all. The two newest are kept, so that one that cannot be read costs time and nothing else.

use super::{Configured, format};
use crate::learner::suggest::Advisor;
use crate::learner::{Learner, Settings};
use crate::packed;
use crate::sealed::{Seal, SealError};
use crate::state::labels::LabelSets;
use crate::state::record::{Mark, Origin};
use crate::state::removals::Removals;
use crate::state::streams::Streams;
use crate::state::{Halted, State};
use crate::whole_file;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

pub use super::format::VERSION;

/// Checkpoints that are kept.
pub const KEPT: usize = 2;
/// Models that are kept although they are no longer used.
pub const SET_ASIDE: usize = 16;

const SEAL: Seal = Seal { kind: b"criticd checkpoint\n", version: VERSION };

/// A [`State`] as it is written down: all but its rows, which the journal has.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Checkpoint {
    /// Number of the last group that it has seen.
    pub group: u64,
    /// Checksum of that group.
    pub crc: u32,
    /// Offset behind that group's last row.
    pub offset: u64,
    /// Offset of the oldest row that a start from here needs, for the window.
    #[serde(alias = "needs_from")]
    pub replay_from: u64,
    /// Unix seconds when it was made.
    pub time: f64,
    /// Where its journal begins. Checkpoints of former versions do not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// State dimension and rewards per row, once there was a row.
    pub shape: Option<(usize, usize)>,
    /// Where the streams stand.
    pub streams: Streams,
    /// Settings that the critics have by now.
    pub configured: Option<Configured>,
    /// The critics, in the order of their settings.
    pub learners: Vec<Learner>,
    /// The learners that have failed and learn nothing: in their places are empty ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub halted: Vec<Halted>,
    /// The advisors, in the order of their settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub advisors: Vec<Advisor>,
    /// What heads learn from besides the rows.
    #[serde(default, skip_serializing_if = "LabelSets::is_empty")]
    pub labels: LabelSets,
    /// Rows that were taken back.
    #[serde(default, skip_serializing_if = "Removals::is_empty")]
    pub removals: Removals,
}

/// What a checkpoint says of the rows and settings it has seen; the rest of its file is checked and left unread.
#[derive(Clone, Debug, Deserialize)]
pub struct Noted {
    /// Number of the last group that it has seen.
    pub group: u64,
    /// Checksum of that group.
    pub crc: u32,
    /// State dimension and rewards per row, once there was a row.
    pub shape: Option<(usize, usize)>,
    /// Settings that the critics had by then.
    pub configured: Option<Configured>,
}

impl Noted {
    /// Read the bytes of a file.
    ///
    /// # Errors
    /// If they are damaged, of a newer version, or no checkpoint.
    pub fn of(bytes: &[u8]) -> Result<Self, CheckpointError> {
        let body = SEAL.open(bytes)?;
        packed::read(body).map_err(|e| CheckpointError::Unreadable(e.to_string()))
    }
}

/// Why a checkpoint cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    /// It cannot be read or written.
    #[error("{0}")]
    File(#[source] io::Error),
    /// Its checksum is wrong, or it is not whole.
    #[error("{0}")]
    Damaged(&'static str),
    /// Its checksum is right, but it cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// It was written by a newer version of the program.
    #[error("it has format version {version}, and this program knows versions up to {VERSION}")]
    Newer {
        /// Version of its format.
        version: u32,
    },
}

impl From<SealError> for CheckpointError {
    fn from(error: SealError) -> Self {
        match error {
            SealError::Damaged(what) => Self::Damaged(what),
            SealError::Newer { version, .. } => Self::Newer { version },
        }
    }
}

impl Checkpoint {
    /// A copy of `state`; `time` is in Unix seconds.
    pub fn of(state: &State, time: f64) -> Self {
        let Mark { id, offset, crc } = state.end();
        Self {
            group: id,
            crc,
            offset,
            replay_from: state.replay_from(),
            time,
            origin: state.origin(),
            shape: state.shape(),
            streams: state.streams().clone(),
            // New critics have begun by now.
            configured: state.configured().map(|configured| Configured { from: 0, ..configured.clone() }),
            learners: state.critics().iter().enumerate().map(|(index, critic)| kept(state, index, critic)).collect(),
            halted: state.halted().to_vec(),
            advisors: state.advisors().to_vec(),
            labels: state.labels().clone(),
            removals: state.removals().clone(),
        }
    }

    /// The state that it is a copy of, without its rows: [`State::refill`] brings those from `replay_from` on.
    pub fn into_state(self, window_rows: usize) -> State {
        let Self {
            group,
            crc,
            offset,
            origin,
            shape,
            streams,
            configured,
            learners,
            halted,
            advisors,
            labels,
            removals,
            ..
        } = self;
        let end = Mark { id: group, offset, crc };
        let state = State::at(end, streams, configured, learners, shape, window_rows);
        let state = state.with_origin(origin).with_halted(halted).with_advisors(advisors);
        state.with_labels(labels).with_removals(removals)
    }

    /// The bytes of its file.
    pub fn encode(&self) -> Vec<u8> {
        Seal { version: self.version(), ..SEAL }
            .close(|out| rmp_serde::encode::write_named(out, self).expect("plain data into memory"))
    }

    /// Oldest version of the format that can say what it holds. Before it went by that, every checkpoint had version 1.
    fn version(&self) -> u32 {
        let of_settings = self.configured.iter().map(|configured| format::of_settings(&configured.critics));
        let of_critics = self.learners.iter().map(format::of_critic);
        let of_rest = [
            (7, !self.removals.is_empty()),
            (6, !self.labels.is_empty()),
            (5, !self.advisors.is_empty() || self.configured.as_ref().is_some_and(|known| !known.advisors.is_empty())),
            (4, !self.halted.is_empty()),
            (3, self.streams.knows_policies()),
        ];
        let of_rest = of_rest.into_iter().filter_map(|(version, is_there)| is_there.then_some(version));
        of_settings.chain(of_critics).chain(of_rest).max().unwrap_or(1)
    }

    /// Read the bytes of a file.
    ///
    /// # Errors
    /// If they are damaged, of a newer version, or hold a state that is not of one piece.
    pub fn decode(bytes: &[u8]) -> Result<Self, CheckpointError> {
        let body = SEAL.open(bytes)?;
        let checkpoint: Self = packed::read(body).map_err(|e| CheckpointError::Unreadable(e.to_string()))?;
        checkpoint.checked()
    }

    /// The same.
    ///
    /// # Errors
    /// If its parts do not fit each other, which a file may contradict.
    pub fn checked(self) -> Result<Self, CheckpointError> {
        let checkpoint = self;
        let settings = checkpoint.configured.iter().flat_map(|configured| &configured.critics);
        if !checkpoint.learners.iter().all(Learner::is_consistent) || !settings.into_iter().all(Settings::are_valid) {
            return Err(CheckpointError::Unreadable("parts of a learner do not fit each other".into()));
        }
        if !checkpoint.advisors.iter().all(Advisor::is_consistent) {
            return Err(CheckpointError::Unreadable("parts of an advisor do not fit each other".into()));
        }
        if !checkpoint.labels.is_consistent() {
            return Err(CheckpointError::Unreadable("labels that cannot be".into()));
        }
        Ok(checkpoint)
    }
}

/// What is kept of a critic: nothing of one that has failed, since a panic may have left anything of its model.
fn kept(state: &State, index: usize, critic: &Learner) -> Learner {
    if !state.is_halted(index) {
        return critic.clone();
    }
    let names = state.configured().and_then(|configured| configured.names.clone());
    Learner::starting_at(critic.settings().clone(), names, state.end().offset).with_added_heads(critic.added_heads())
}

/// Where checkpoints are kept.
pub trait Checkpoints: Send + Sync + fmt::Debug {
    /// The groups behind which there are checkpoints, the newest first.
    ///
    /// # Errors
    /// If that cannot be found out.
    fn list(&self) -> io::Result<Vec<u64>>;

    /// The bytes of the one behind `group`.
    ///
    /// # Errors
    /// If they cannot be read.
    fn read(&self, group: u64) -> io::Result<Vec<u8>>;

    /// Keep these bytes as the checkpoint behind `group`, durably, and forget those before it but for the newest: [`KEPT`] with it. One
    /// behind a later group is of another journal, and stays.
    ///
    /// # Errors
    /// If they cannot be written; what was there before is still there.
    fn write(&self, group: u64, bytes: &[u8]) -> io::Result<()>;

    /// Keep a model that is no longer used, durably: a whole snapshot in the protocol's form, of the critic `critic`, which had
    /// learned the rows before `offset`. The newest [`SET_ASIDE`] of them are kept. Returns what it is called.
    ///
    /// # Errors
    /// If it cannot be written.
    fn set_aside(&self, critic: &str, offset: u64, snapshot: &[u8]) -> io::Result<String>;
}

/// Checkpoints as files of a directory, `checkpoint-<group>`.
#[derive(Clone, Debug)]
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    /// The checkpoints in the directory `path`.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// The file of the checkpoint behind `group`.
    pub fn file(&self, group: u64) -> PathBuf {
        self.path.join(Self::name(group))
    }

    /// The name of that file.
    pub fn name(group: u64) -> String {
        format!("checkpoint-{group:020}")
    }
}

impl Checkpoints for Directory {
    fn list(&self) -> io::Result<Vec<u64>> {
        let mut groups = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            let group: Option<u64> = name.to_str().and_then(|name| name.strip_prefix("checkpoint-")?.parse().ok());
            groups.extend(group);
        }
        groups.sort_unstable_by(|a, b| b.cmp(a));
        Ok(groups)
    }

    fn read(&self, group: u64) -> io::Result<Vec<u8>> {
        fs::read(self.file(group))
    }

    fn write(&self, group: u64, bytes: &[u8]) -> io::Result<()> {
        whole_file::write(&self.file(group), &self.path.join("checkpoint.new"), 0o600, bytes)?;
        for old in self.list()?.into_iter().filter(|&old| old <= group).skip(KEPT) {
            fs::remove_file(self.file(old))?;
        }
        Ok(())
    }

    fn set_aside(&self, critic: &str, offset: u64, snapshot: &[u8]) -> io::Result<String> {
        let directory = self.path.join("set-aside");
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
        let name = format!("{critic}-{offset}.model");
        whole_file::write(&directory.join(&name), &directory.join("model.new"), 0o600, snapshot)?;
        let mut known = Vec::new();
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            known.push((entry.metadata()?.modified()?, entry.path()));
        }
        known.sort_unstable_by(|a, b| b.cmp(a));
        known.iter().skip(SET_ASIDE).try_for_each(|(_, path)| fs::remove_file(path))?;
        Ok(format!("set-aside/{name}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::heads::{Cumulant, Expression, Head, Rate};
    use crate::learner::math::columns::GivenFunction;
    use crate::learner::math::kernel::{Hyperparameters, Kernel, Metric, NoiseModel};
    use crate::learner::model::Model;
    use crate::learner::refit::{self, RefitTrigger};
    use crate::learner::removal::Offsets;
    use crate::learner::snapshot::Inputs;
    use crate::learner::suggest::{AdvisorSettings, Output};
    use crate::learner::transition::Rows;
    use crate::learner::window::Window;
    use crate::learner::{LinearColumns, Verdict};
    use crate::state::record::RemovedRows;

    fn empty(group: u64) -> Checkpoint {
        Checkpoint {
            group,
            crc: 1,
            offset: 7,
            replay_from: 0,
            time: 1e9,
            origin: None,
            shape: Some((2, 1)),
            streams: Streams::new(),
            configured: None,
            learners: vec![Learner::new(crate::learner::Settings::default(), None)],
            halted: Vec::new(),
            advisors: Vec::new(),
            labels: LabelSets::default(),
            removals: Removals::default(),
        }
    }

    #[test]
    fn the_two_newest_are_kept_and_a_changed_byte_is_noticed() {
        let directory = tempfile::tempdir().unwrap();
        let checkpoints = Directory::new(directory.path());
        for group in [3, 20, 100] {
            checkpoints.write(group, &empty(group).encode()).unwrap();
        }
        assert_eq!(checkpoints.list().unwrap(), [100, 20]);
        // Others may be there, of another journal.
        checkpoints.write(50, &empty(50).encode()).unwrap();
        assert_eq!(checkpoints.list().unwrap(), [100, 50, 20]);
        let bytes = checkpoints.read(100).unwrap();
        let read = Checkpoint::decode(&bytes).unwrap();
        assert_eq!((read.group, read.offset, read.learners.len()), (100, 7, 1));
        for at in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[at] ^= 4;
            assert!(matches!(Checkpoint::decode(&changed), Err(CheckpointError::Damaged(_))), "byte {at}");
            assert!(matches!(Checkpoint::decode(&bytes[..at]), Err(CheckpointError::Damaged(_))), "cut at {at}");
        }
    }

    #[test]
    fn a_newer_format_is_told_from_damage() {
        let newer = VERSION + 1;
        let bytes = Seal { version: newer, ..SEAL }.close(|_| {});
        let error = Checkpoint::decode(&bytes).unwrap_err();
        assert!(matches!(error, CheckpointError::Newer { version } if version == newer));
        assert!(error.to_string().contains(&format!("format version {newer}")), "{error}");
    }

    /// A critic with a model that was selected for a chain of 200 rows without linear columns: one without an end, or cut every 20 rows.
    fn selected(goes_on: bool) -> Learner {
        let settings = Settings {
            discount: 0.9,
            dictionary_max: 8,
            linear_columns: LinearColumns::Never,
            search_starts: 1,
            ..Settings::default()
        };
        let (n, state) = (200, |i: usize| (0.7 * i as f64).sin());
        let window = Window::of(&Rows {
            states: (0..n).map(state).collect(),
            next_states: (1..=n).map(state).collect(),
            rewards: (0..n).map(state).collect(),
            discounts: vec![f64::NAN; n],
            ratios: vec![1.0; n],
            streams: vec![0; n],
            terminated: vec![false; n],
            truncated: (0..n).map(|i| !goes_on && i % 20 == 19).collect(),
            starts_chain: (0..n).map(|i| i == 0 || !goes_on && i % 20 == 0).collect(),
            ..Rows::new(1, 1)
        });
        let mut learner = Learner::new(settings, None);
        learner.step(&window);
        let job = learner.refit_job(&window, RefitTrigger::Requested).unwrap();
        let candidate = refit::run(&job, &|| true).unwrap();
        assert!(matches!(learner.try_adopt(candidate, &window), Verdict::Adopted { .. }));
        learner
    }

    /// A critic whose kernel has this column along its only variable.
    fn beside(line: fn(usize) -> GivenFunction) -> Learner {
        let settings = Settings::default();
        let kernel = Kernel::gaussian(1.0, 1.0, Metric::Ard(vec![1.0])).with_linear_columns(1, 1.0, line);
        let hyperparameters = Hyperparameters { kernel, noise: NoiseModel::Correlated, noise_variance: 0.1 };
        let model = Model::new(settings.clone(), Inputs::identity(1), &hyperparameters);
        Learner::with_kernel_of(settings, None, 0, &model)
    }

    #[test]
    fn a_checkpoint_has_the_version_that_can_say_what_it_holds_and_opens_under_version_1() {
        let critic = |settings: Settings| Learner::new(settings, None);
        let head = |cumulant| Head::new("h", cumulant, Rate::Discount(0.5));
        let heads = |cumulant| critic(Settings { heads: vec![head(cumulant)], ..Settings::default() });
        let advisor = AdvisorSettings {
            outputs: vec![Output::new(0.0, 1.0)],
            lengthscales: vec![1.0],
            ..AdvisorSettings::default()
        };
        let square = Expression::parse("state[0]^2").unwrap();
        let label = Cumulant::Label { name: "sold".into(), id: 1 };
        let mut told = Learner::new(Settings::default(), None);
        told.new_policy(0, Some("b"));
        let mut removals = Removals::default();
        let removed = RemovedRows {
            offsets: Offsets::from(2..5),
            starts: Offsets::default(),
            ended: Vec::new(),
            streams: vec![0],
            selectors: Vec::new(),
            by: None,
            reason: None,
        };
        removals.note(&removed, 7, 1e9);
        let each = [
            (1, empty(3)),
            (3, Checkpoint { learners: vec![told], ..empty(3) }),
            (4, Checkpoint { halted: vec![Halted { critic: "default".into(), why: "it failed".into() }], ..empty(3) }),
            (5, Checkpoint { learners: vec![heads(Cumulant::Reward(0))], ..empty(3) }),
            (5, Checkpoint { advisors: vec![Advisor::new(advisor).unwrap()], ..empty(3) }),
            (6, Checkpoint { learners: vec![heads(label)], ..empty(3) }),
            (6, Checkpoint { learners: vec![heads(Cumulant::EventBelow { index: 0, below: 0.5 })], ..empty(3) }),
            (6, Checkpoint { learners: vec![heads(Cumulant::Expression(square))], ..empty(3) }),
            (6, Checkpoint { learners: vec![selected(false)], ..empty(3) }),
            (7, Checkpoint { removals, ..empty(3) }),
            (1, Checkpoint { learners: vec![beside(GivenFunction::Linear)], ..empty(3) }),
            (8, Checkpoint { learners: vec![beside(GivenFunction::Bounded)], ..empty(3) }),
            (8, Checkpoint { learners: vec![selected(true)], ..empty(3) }),
        ];
        for (version, checkpoint) in each {
            let bytes = checkpoint.encode();
            let older = Seal { version: version - 1, ..SEAL };
            assert_eq!(older.open(&bytes), Err(SealError::Newer { version, known: version - 1 }));
            assert_eq!(Checkpoint::decode(&bytes).unwrap().encode(), bytes);
            let of_before = Seal { version: 1, ..SEAL }.close(|out| out.extend(SEAL.open(&bytes).unwrap()));
            assert_eq!(Checkpoint::decode(&of_before).unwrap().encode(), bytes);
        }
    }

    #[test]
    fn models_that_are_set_aside_make_room_for_newer_ones() {
        let directory = tempfile::tempdir().unwrap();
        let checkpoints = Directory::new(directory.path());
        for offset in 0..SET_ASIDE as u64 + 3 {
            let name = checkpoints.set_aside("main", offset, &offset.to_le_bytes()).unwrap();
            assert_eq!(fs::read(directory.path().join(name)).unwrap(), offset.to_le_bytes());
        }
        assert_eq!(fs::read_dir(directory.path().join("set-aside")).unwrap().count(), SET_ASIDE);
        assert!(checkpoints.list().unwrap().is_empty());
    }
}
