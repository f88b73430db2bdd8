//! How much memory the settings let the daemon keep: told at the start, in `status` and in metrics.
//!
//! The figures follow from the sizes of what is kept, and tests/memory.rs compares them with what is allocated. Work in
//! passing comes on top: solving for the weights and writing a checkpoint copy a model's matrices for a moment, and a
//! refit needs three matrices of `evidence_rows` squared on each of its threads.

use super::bounds::{CALLS, GROUP_BYTES, LARGE_QUERIES, PAGED_MAX, WAITING};
use super::transport_limits;
use crate::config::{Config, ConfigParts, Limits};
use crate::learner::verification::PAIRS_MAX;
use crate::learner::window::Window;
use crate::learner::{COPIES_MAX, KEPT_MAX, OnNewPolicy, Settings, VarianceKind, watch_bytes, watch_bytes_per_stream};
use crate::math::form::QuadraticForm;
use crate::math::kernel::NoiseModel;
use crate::math::statistics::Chain;
use crate::state::streams::Streams;
use crate::transition::Rows;
use crate::wire::status::{MemoryStatus, ModelMemoryStatus};
use rustix::process::{Resource, getrlimit};

const NUMBER: usize = size_of::<f64>();
/// Numbers of the record of a cut beside those that m, D and H tell.
const CUT: usize = (size_of::<Chain>() + 128) / NUMBER;
/// What a chain has beside its numbers: its entry, its stream's, and where they are found.
const CHAIN_ENTRIES: usize = 2 * (size_of::<Chain>() + 192) + size_of::<u32>();

/// Bytes, at the most that the settings allow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// One retained row.
    pub row: usize,
    /// All retained rows.
    pub window: usize,
    /// One stream: its position, twice, and its chain in every critic.
    pub stream: usize,
    /// All streams.
    pub streams: usize,
    /// Whatever waits: messages on their way in, requests, those that are worked on, and what waits for peers.
    pub queues: usize,
    /// Of each critic, in their order.
    pub models: Vec<ModelFootprint>,
}

/// Bytes of one critic's model with its largest dictionary, and of the snapshots that answer for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelFootprint {
    /// Name of the critic.
    pub critic: String,
    /// Dictionary elements.
    pub elements: usize,
    /// All of it, chains left out.
    pub bytes: usize,
    /// What a change of the world takes beside it: a fork with its chains, the models that are set aside, and copies that may be.
    pub beside: usize,
}

impl ModelFootprint {
    fn of(settings: &Settings, dim: usize, streams_max: usize) -> Self {
        let (m, rewards) = (settings.dictionary_max, settings.rewards.len());
        // S, B and E of the statistics, Cov u, the factor of the dictionary's kernel matrix, that of the system that gives the
        // weights and of the one before, the system with its cut chains and what that is factored in; two halves for what both
        // posteriors were made of, with as many running chains as that is done for.
        let squares = 10 + usize::from(settings.variance == VarianceKind::Clustered);
        // The variance of the snapshot that answers, and of the next one while both are there, as it is and laid out.
        let snapshots = 2;
        let slots = settings.backfill_rows + settings.refresh_rows;
        // Until the dictionary is full the recent rows are kept with what they added to B, which are two vectors, their scores and
        // the cuts behind them, which are two more: a new element needs them. White noise has no traces.
        let white = settings.noise == NoiseModel::White;
        let vectors = if white { 0 } else { 4 + usize::from(settings.variance == VarianceKind::Rows) };
        // Features of recent rows, of the states of one block (at most two for each row) and what they are made in, those of its
        // rows that are scored, and the inverses of the factor's diagonal blocks; beside them the errors of verified returns.
        let columns = (1 + vectors) * slots + 8 * settings.refresh_rows + 4 * dim + 6 * rewards + 8 + 48;
        // The two vectors of a cut grow with the dictionary, by doubling.
        let grown = if white { 0 } else { 2 * slots * (m.next_power_of_two() - m) };
        let rest =
            grown + slots * (3 * dim + 2 * rewards + 4 + CUT) + 8 * settings.refresh_rows * dim + PAIRS_MAX * rewards;
        let model = NUMBER * (m * m * squares + m * columns + rest);
        // A model that is kept for its policy has no snapshot of its own.
        let kept = if settings.on_new_policy == OnNewPolicy::Keep { settings.policies_kept } else { 0 };
        // A model that was set aside has S, B, E, Cov u, the scatter and the factor of the kernel matrix, and no ring.
        let set_aside = NUMBER * (6 * m * m + m * (4 * dim + 3 * rewards + 48));
        let watch = watch_bytes(rewards, dim);
        let beside = match settings.drift_sensitivity.threshold() {
            None => 0,
            Some(_) => {
                let others = KEPT_MAX * (set_aside + watch) + COPIES_MAX * set_aside;
                model + watch + others + streams_max * Self::chain(settings, dim)
            }
        };
        let answers = NUMBER * m * m * snapshots + snapshots * QuadraticForm::bytes(m);
        let bytes = (1 + kept) * (model + watch) + answers;
        Self { critic: settings.name.clone(), elements: m, bytes, beside }
    }

    /// The model's bytes shared among its elements: each takes a row and a column of every matrix.
    pub fn element(&self) -> usize {
        self.bytes.div_ceil(self.elements)
    }

    fn chain(settings: &Settings, dim: usize) -> usize {
        let clustered = usize::from(settings.variance == VarianceKind::Clustered);
        let rewards = settings.rewards.len();
        let chain = NUMBER * (settings.dictionary_max * (1 + clustered * (1 + rewards)) + rewards + dim);
        chain + CHAIN_ENTRIES + settings.drift_sensitivity.threshold().map_or(0, |_| watch_bytes_per_stream(rewards))
    }
}

/// Bytes of memory that this process may have at most, and what limits it; none if that cannot be found out.
fn available_bytes() -> Option<(u64, &'static str)> {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let installed = read("/proc/meminfo").and_then(|text| {
        let kilobytes = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?.trim().strip_suffix(" kB")?;
        Some(1024 * kilobytes.trim().parse::<u64>().ok()?)
    });
    let group = read("/proc/self/cgroup").and_then(|text| {
        let path = text.lines().find_map(|line| line.strip_prefix("0::"))?.to_owned();
        read(&format!("/sys/fs/cgroup{path}/memory.max"))?.trim().parse().ok()
    });
    let limit = getrlimit(Resource::As).current;
    let limits = [(installed, "the machine"), (group, "the cgroup"), (limit, "ulimit -v")];
    limits.into_iter().filter_map(|(bytes, whose)| Some((bytes?, whose))).min()
}

/// Bytes of requests that wait behind the transport as they came, and of those that have been read.
fn read_bytes(limits: &Limits, rewards: usize) -> usize {
    /// Bytes of memory for each byte of a batch, at most (see `wire`).
    const READ: usize = 20;
    let Limits { message_bytes_max, query_rows_max, .. } = *limits;
    let query = NUMBER * (message_bytes_max + query_rows_max * (2 * rewards + 3));
    let batches = GROUP_BYTES + READ * message_bytes_max;
    CALLS.total_bytes + WAITING.total_bytes + LARGE_QUERIES * query + 2 * batches
}

impl Footprint {
    /// With states (`dim`,) and so many rewards in a row.
    pub fn of(config: &Config, dim: usize, rewards_per_row: usize) -> Self {
        let ConfigParts { window_rows, streams_max, inbox_messages, limits, critics, .. } = &**config;
        let chains: usize = critics.iter().map(|settings| ModelFootprint::chain(settings, dim)).sum();
        // Where it stands, and where it will when all that waits is stored.
        let stream = 2 * Streams::bytes_per_stream(dim) + chains;
        let transport = crate::transport::Settings {
            inbox_messages: *inbox_messages,
            limits: transport_limits(limits),
            ..crate::transport::Settings::default()
        };
        let rewards = critics.iter().map(|settings| settings.rewards.len()).max().unwrap_or(1);
        let largest = critics.iter().map(|settings| settings.dictionary_max).max().unwrap_or(0);
        // A snapshot as lists, the longest of all answers: kept for its pages, and on its way from each thread.
        let snapshot = (NUMBER + 1) * largest * (largest + dim + 2 * rewards + 1);
        let queues = transport.queues_bytes() + read_bytes(limits, rewards) + (PAGED_MAX + 4) * snapshot;
        Self {
            row: Rows::bytes_per_row(dim, rewards_per_row),
            window: Window::bytes_max(dim, rewards_per_row, *window_rows),
            stream,
            streams: stream * streams_max,
            queues,
            models: critics.iter().map(|settings| ModelFootprint::of(settings, dim, *streams_max)).collect(),
        }
    }

    /// What is kept of rows, models and streams; what waits in queues comes and goes.
    pub fn kept(&self) -> usize {
        self.window + self.streams + self.models.iter().map(|model| model.bytes + model.beside).sum::<usize>()
    }

    /// As `status` has it.
    pub fn status(&self) -> MemoryStatus {
        let models = self.models.iter().map(|model| ModelMemoryStatus {
            critic: model.critic.clone(),
            element_bytes: model.element() as u64,
            bytes_max: model.bytes as u64,
            beside_bytes_max: model.beside as u64,
        });
        MemoryStatus {
            row_bytes: self.row as u64,
            stream_bytes: self.stream as u64,
            window_bytes_max: self.window as u64,
            streams_bytes_max: self.streams as u64,
            queues_bytes_max: self.queues as u64,
            kept_bytes_max: self.kept() as u64,
            models: models.collect(),
        }
    }

    /// Log it, and that it is more than there is, if it is.
    pub fn log(&self) {
        let Self { row, window, stream, streams, queues, models } = self;
        log::info!(
            "event=memory row_bytes={row} window_bytes_max={window} stream_bytes={stream} streams_bytes_max={streams} \
             queues_bytes_max={queues} kept_bytes_max={}",
            self.kept()
        );
        let (most, there) = ((self.kept() + self.queues) as u64, available_bytes());
        if let Some((bytes, whose)) = there.filter(|&(bytes, _)| bytes < most) {
            log::warn!(
                "event=memory_may_not_suffice allowed_by_settings={most} allowed_by={whose:?} bytes={bytes} \
                 hint=\"lower window_rows, dictionary_max, streams_max or limits.connections_max\""
            );
        }
        for model in models {
            let ModelFootprint { critic, bytes, beside, .. } = model;
            let element = model.element();
            log::info!(
                "event=memory critic={critic} element_bytes={element} model_bytes_max={bytes} beside_bytes_max={beside}"
            );
        }
    }
}
