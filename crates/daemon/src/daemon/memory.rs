//! How much memory the settings let the daemon keep: told at the start, in `status` and in metrics.
//!
//! The figures follow from the sizes of what is kept, and tests/memory.rs compares them with what is allocated. Work in
//! passing comes on top: solving for the weights and writing a checkpoint copy a model's matrices for a moment (what a checkpoint
//! copies of streams is counted), and a refit needs three matrices of `evidence_rows` squared on each of its threads.

use super::bounds::{
    CALLS, EVALUATED_BYTES, EVALUATED_ELEMENTS, EVALUATIONS, GROUP_BYTES, JOURNAL_PIECE, LARGE_QUERIES, PAGED_MAX,
    RECORD_BYTES_MAX, WAITING,
};
use super::rebuild::WINDOW_ROWS;
use super::transport_limits;
use crate::config::{Config, ConfigParts, Limits};
use crate::http::{kept_plans, waiting_bytes};
use crate::learner::act::Decision;
use crate::learner::batch::CANDIDATES;
use crate::learner::heads;
use crate::learner::improve::COPIES;
use crate::learner::mean::Mean;
use crate::learner::suggest::AdvisorSettings;
use crate::learner::tracking::tracking_bytes;
use crate::learner::verification::{PAIRS_MAX, lately_numbers};
use crate::learner::warning::warner_bytes;
use crate::learner::window::{SEGMENT_ROWS, Window};
use crate::learner::{
    COPIES_MAX, ENDINGS_MAX, INPUT_ROWS_MAX, KEPT_MAX, OnNewPolicy, Settings, VarianceKind, watch_bytes,
    watch_bytes_per_stream,
};
use crate::math::form::QuadraticForm;
use crate::math::kernel::NoiseModel;
use crate::math::statistics::{Chain, TRACE_STEP};
use crate::state::labels::{LABEL_BYTES_MAX, LABEL_SETS_MAX};
use crate::state::record::TakenRows;
use crate::state::streams::Streams;
use crate::transition::Rows;
use crate::transport::turns::ITEM_BYTES;
use crate::wire::EVALUATED_MAX;
use crate::wire::status::{MemoryStatus, ModelMemoryStatus};
use crate::world::world_bytes;

use rustix::process::{Resource, getrlimit};

const NUMBER: usize = size_of::<f64>();
/// What the allocator takes beside a small list, at most.
const ALLOCATION: usize = 16;
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
    /// One stream: its position, twice, its chain in every critic, and with a journal both in the checkpoint that is written.
    pub stream: usize,
    /// All streams.
    pub streams: usize,
    /// Whatever waits: messages on their way in, requests, those that are worked on, what waits for peers, and for browsers.
    pub queues: usize,
    /// Bytes of a rebuild: the critic that learns again, the groups that it reads, and its record. 0 without a journal.
    pub rebuild: usize,
    /// Of each critic, in their order.
    pub models: Vec<ModelFootprint>,
    /// All advisors with the decisions that wait.
    pub advisors: usize,
    /// The labels that heads learn from.
    pub labels: usize,
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
    fn of(settings: &Settings, (dim, rewards_per_row): (usize, usize), streams_max: usize) -> Self {
        let (m, rewards) = (settings.dictionary_max, settings.rewards.len());
        let dim = dim + settings.action_width();
        let own_rows = match settings.action_width() {
            0 => 0,
            _ => {
                let endings = if settings.improves() { ENDINGS_MAX } else { 0 };
                Window::bytes_max(dim, rewards_per_row, INPUT_ROWS_MAX)
                    + endings * Rows::bytes_per_row(dim, rewards_per_row)
                    + NUMBER * m * (1 + COPIES)
            }
        };
        // S, B and E of the statistics, Cov u, the factor of the dictionary's kernel matrix, the factors of the system that
        // gives the weights and of the one before, the system with its cut chains and the buffer that it is factored in; two halves
        // for what both posteriors were made of, with their running chains.
        let squares = 10 + usize::from(settings.variance == VarianceKind::Clustered);
        // The variance of the snapshot that answers, of the next one while both are there, and of an earlier one that the monitor has not
        // let go of, as it is and laid out.
        let snapshots = 3;
        let slots = settings.backfill_rows + settings.refresh_rows;
        // Until the dictionary is full the recent rows are kept with what they added to B, which are two vectors, their scores and
        // the cuts behind them, which are two more: a new element needs them. White noise has no traces.
        let white = settings.noise == NoiseModel::White;
        let vectors = if white { 0 } else { 4 + usize::from(settings.variance == VarianceKind::Rows) };
        // Features of recent rows, of the states of one block (at most two for each row) and what they are made in, features of the
        // block's rows that are scored, and the inverses of the factor's diagonal blocks; beside them the errors of verified
        // returns.
        let columns = (1 + vectors) * slots + 8 * settings.refresh_rows + 4 * dim + 6 * rewards + 8 + 48;
        // The two vectors of a cut grow with the dictionary, by doubling.
        let grown = if white { 0 } else { 2 * slots * (m.next_power_of_two() - m) };
        // The errors of verified returns, and those that are looked at for drift.
        let verified = PAIRS_MAX * rewards + lately_numbers(rewards, dim);
        let rest = grown + slots * (3 * dim + 2 * rewards + 4 + CUT) + 8 * settings.refresh_rows * dim + verified;
        let row_bytes = Rows::bytes_per_row(dim, rewards);
        let (kernels, heads) = (settings.kernels_max(), &settings.heads);
        let (of_heads, answers_of_heads) = heads::bytes_max(heads, kernels, m, slots, settings.refresh_rows, row_bytes);
        // Heads with a kernel of their own need the factor of their kernel matrix, and room for S, B and E of the values too; and the
        // elements of their dictionary for publication.
        let branch = (kernels - 1) * NUMBER * (m * m * 4 + m * (columns + 2 * dim) + rest);
        let tracking = tracking_bytes(m, dim, rewards).0;
        let model = NUMBER * (m * m * squares + m * columns + rest) + of_heads + branch + tracking;
        // A model that is kept for its policy has no snapshot of its own; one of before answers until there are rows of a warm-up.
        let kept = match settings.on_new_policy {
            OnNewPolicy::Keep => settings.policies_kept + 1,
            OnNewPolicy::Restart => 1,
            OnNewPolicy::Discount => 0,
        };
        // A model that was set aside has S, B, E, Cov u, the scatter and the factor of the kernel matrix, and no ring.
        let set_aside = NUMBER * (6 * m * m + m * (4 * dim + 3 * rewards + 48)) * kernels + of_heads;
        let watch = watch_bytes(rewards, dim);
        let beside = match settings.drift_sensitivity.threshold() {
            None => 0,
            Some(_) => {
                let others = KEPT_MAX * (set_aside + watch) + COPIES_MAX * set_aside;
                let means = 2 * (1 + KEPT_MAX + COPIES_MAX) * NUMBER * mean_numbers(settings);
                model + watch + others + means + streams_max * Self::chain(settings, dim)
            }
        };
        let answers = NUMBER * m * m * snapshots + snapshots * QuadraticForm::bytes(m);
        let answers = answers + answers_of_heads;
        let alarms = settings.alarms.iter().map(warner_bytes).sum::<usize>();
        let world = if settings.world { world_bytes(settings, dim, rewards_per_row) } else { 0 };
        // As it was read and laid out: by the configuration, and by each model that a checkpoint held. Laid out again with each snapshot.
        let mean = NUMBER * mean_numbers(settings);
        let means = (2 + 2 * (1 + kept) + snapshots) * mean;
        let bytes = (1 + kept) * (model + watch) + answers + own_rows + alarms + world + means;
        Self { critic: settings.name.clone(), elements: m, bytes, beside }
    }

    /// The model's bytes shared among its elements: each takes a row and a column of every matrix.
    pub fn element(&self) -> usize {
        self.bytes.div_ceil(self.elements)
    }

    fn chain(settings: &Settings, dim: usize) -> usize {
        let (rewards, dim) = (settings.rewards.len(), dim + settings.action_width());
        // Scores grow by doubling, traces by steps.
        let scores = if settings.variance == VarianceKind::Clustered { 2 * rewards } else { 0 };
        let vectors = settings.dictionary_max * (1 + scores) + TRACE_STEP;
        // The row that waits for the action that follows it.
        let waits = if settings.action_width() > 0 { NUMBER * (3 * dim + rewards) + 256 } else { 0 };
        let chain = waits + NUMBER * (vectors + rewards + dim);
        let kernels = settings.kernels_max();
        let of_heads = heads::bytes_per_stream(&settings.heads, kernels, settings.dictionary_max);
        kernels * chain
            + of_heads
            + tracking_bytes(settings.dictionary_max, dim, rewards).1
            + CHAIN_ENTRIES
            + settings.drift_sensitivity.threshold().map_or(0, |_| watch_bytes_per_stream(rewards))
    }
}

fn mean_numbers(settings: &Settings) -> usize {
    settings.mean.as_ref().map_or(0, Mean::numbers)
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
fn read_bytes(config: &Config, rewards: usize) -> usize {
    let limits = &config.limits;
    let Limits { message_bytes_max, query_rows_max, .. } = *limits;
    // Mean, variance and what else is asked of the critic, and two numbers of a head.
    let value = NUMBER * (2 * rewards + 5);
    // A decision, and the list of the numbers of its action.
    let spaces = config.critics.iter().filter_map(|critic| Some(critic.action_value.as_ref()?.space.numbers()));
    let decision = spaces.max().map_or(0, |numbers| size_of::<Decision>() + NUMBER * numbers + ALLOCATION);
    let query = NUMBER * message_bytes_max + query_rows_max * value.max(decision);
    CALLS.total_bytes + WAITING.total_bytes + LARGE_QUERIES * query + 2 * batch_bytes(limits)
}

/// Bytes of pages of rows, of evaluations of another policy and of questions about the past, each of which has a thread: what waits as
/// it came, what is read of the journal, and one evaluation. 0 without a journal.
fn evaluation_bytes(config: &Config, critics: &[&Settings], dim: usize, rewards_per_row: usize) -> usize {
    /// Copies of the numbers of its rows: as they were received, their columns, between inputs of Q, the states where Q enters, and
    /// the last two of the rows of all groups of episodes but one.
    const OF_ROWS: usize = 6;
    /// Copies of the answers of the policy.
    const OF_ANSWERS: usize = 6;
    /// What a row takes that came in a message of its own, and what is found out about it.
    const ROW: usize = size_of::<TakenRows>() + 3 * (256 + ALLOCATION) + 16 * ALLOCATION + 16 * NUMBER;
    if !config.journal {
        return 0;
    }
    let message = config.limits.message_bytes_max;
    let read = JOURNAL_PIECE as usize + 2 * batch_bytes(&config.limits);
    let judged = critics.iter().filter(|settings| settings.action_value.is_some());
    let fit = |settings: &&Settings| {
        // Where the dictionary leaves too much open it grows.
        let elements = settings.dictionary_max.max(EVALUATED_ELEMENTS);
        let width = dim + settings.action_width();
        let candidates = NUMBER * CANDIDATES * (elements + 2 * width);
        let grown = Settings { dictionary_max: elements, ..(*settings).clone() };
        // The model, and the copy that looks at the errors of all rows again.
        2 * ModelFootprint::of(&grown, (dim, rewards_per_row), 0).bytes + candidates
    };
    EVALUATIONS * (3 * ITEM_BYTES + 2 * message)
        + 2 * read
        + OF_ROWS * EVALUATED_BYTES
        + EVALUATED_MAX * ROW
        + OF_ANSWERS * NUMBER * message
        + judged.map(fit).max().unwrap_or(0)
}

/// Bytes of one past that is asked for: critics, advisors and labels as they were with the rows of their window, or with the checkpoint that
/// they are read from; and the models that are kept of them. 0 without a journal.
fn past_bytes(config: &Config, models: &[ModelFootprint], streams: usize, window: usize, snapshot: usize) -> usize {
    if !config.journal {
        return 0;
    }
    let critics = models.iter().map(|model| model.bytes + model.beside).sum::<usize>() + streams * config.streams_max;
    let advisors = config.advisors.iter().map(|settings| advisor_bytes(settings, false)).sum::<usize>();
    let read = critics + advisors + label_bytes(config, false);
    // A file has 9 bytes for every 8.
    read + window.max(read / 8 * 9) + models.len() * snapshot + batch_bytes(&config.limits)
}

/// Bytes of a group of rows, and of the last batch of it as it has been read.
fn batch_bytes(limits: &Limits) -> usize {
    /// Bytes of memory for each byte of a batch, at most (see `wire`).
    const READ: usize = 20;
    GROUP_BYTES + READ * limits.message_bytes_max
}

/// Peak bytes of one rebuild, model selection excluded; one runs at a time. `window` are the bytes of the retained rows, which a
/// rebuild keeps while the daemon forgets them.
fn rebuild_bytes(config: &Config, critics: &[&Settings], dim: usize, rewards_per_row: usize, window: usize) -> usize {
    if !config.journal {
        return 0;
    }
    let critic = |settings: &Settings| {
        let ModelFootprint { bytes, beside, .. } =
            ModelFootprint::of(settings, (dim, rewards_per_row), config.streams_max);
        bytes + beside + config.streams_max * ModelFootprint::chain(settings, dim)
    };
    let held = |settings: &Settings| settings.backfill_rows + settings.refresh_rows;
    let rows = critics.iter().copied().map(held).max().unwrap_or(0).max(WINDOW_ROWS);
    // The critic, and its record: a buffer and the database's copy, with 9 bytes for every 8.
    let critic = critics.iter().copied().map(critic).max().unwrap_or(0);
    let record = critic.min(RECORD_BYTES_MAX) / 8 * 9 * 2;
    // The critic that it begins with is there until the record is made. It has learned no row: it has no chains, and no fork.
    let begun = |settings: &Settings| ModelFootprint::of(settings, (dim, rewards_per_row), config.streams_max).bytes;
    let begun = critics.iter().copied().map(begun).max().unwrap_or(0);
    let read = Window::bytes_max(dim, rewards_per_row, rows) + batch_bytes(&config.limits);
    critic + begun.max(record) + window + read
}

/// Bytes of an advisor with its largest dictionary, and of the decisions that wait; with a journal these are once more in the
/// checkpoint that is written, and in its file.
fn advisor_bytes(settings: &AdvisorSettings, journal: bool) -> usize {
    let (dim, outputs) = (settings.lengthscales.len(), settings.outputs.len());
    let model = ModelFootprint::of(&settings.of_model(), (dim, 1), 0);
    // Recent rows carry the decision, which a critic's rows do not.
    let recent = 2 * settings.of_model().backfill_rows * NUMBER * outputs;
    model.bytes + recent + settings.waiting_bytes_max() * if journal { 3 } else { 1 }
}

/// Bytes of the labels that heads learn from, and of their columns beside the retained rows. Lists grow by doubling, and grow as a copy
/// while a checkpoint has them. Where they are `written` they are in the checkpoint's file, whose buffer grows by doubling too.
fn label_bytes(config: &Config, written: bool) -> usize {
    let copies = if written { 6 } else { 3 };
    copies * LABEL_BYTES_MAX + LABEL_SETS_MAX * NUMBER * (config.window_rows + SEGMENT_ROWS)
}

impl Footprint {
    /// With states (`dim`,) and `rewards_per_row` rewards.
    pub fn of(config: &Config, dim: usize, rewards_per_row: usize) -> Self {
        Self::of_critics(config, &config.critics.iter().collect::<Vec<_>>(), dim, rewards_per_row)
    }

    /// The same with the critics as they are now: heads may have come at run time.
    pub(super) fn of_critics(config: &Config, critics: &[&Settings], dim: usize, rewards_per_row: usize) -> Self {
        let ConfigParts { window_rows, streams_max, inbox_messages, limits, .. } = &**config;
        let chains: usize = critics.iter().map(|settings| ModelFootprint::chain(settings, dim)).sum();
        // While a checkpoint is written there are a copy of all streams and the bytes of its file.
        let written = if config.journal { 2 } else { 0 };
        // Where it stands, and where it will when all that waits is stored.
        let stream = (2 + written) * Streams::bytes_per_stream(dim) + (1 + written) * chains;
        let transport = crate::transport::Settings {
            inbox_messages: *inbox_messages,
            limits: transport_limits(limits),
            ..crate::transport::Settings::default()
        };
        let rewards = critics.iter().map(|settings| settings.rewards.len()).max().unwrap_or(1);
        let largest = critics.iter().map(|settings| settings.dictionary_max).max().unwrap_or(0);
        // A snapshot as lists, the longest of all answers: kept for its pages, and on its way from each thread.
        let means = critics.iter().map(|settings| mean_numbers(settings)).max().unwrap_or(0);
        let snapshot = (NUMBER + 1) * (largest * (largest + dim + 2 * rewards + 1) + means);
        let snapshots = 2 * PAGED_MAX + 5 + kept_plans(config);
        let queues = transport.queues_bytes() + read_bytes(config, rewards) + snapshots * snapshot;
        let queues = queues + evaluation_bytes(config, critics, dim, rewards_per_row) + waiting_bytes(config);
        let window = Window::bytes_max(dim, rewards_per_row, *window_rows);
        let models: Vec<ModelFootprint> =
            critics.iter().map(|settings| ModelFootprint::of(settings, (dim, rewards_per_row), *streams_max)).collect();
        let queues = queues + past_bytes(config, &models, Streams::bytes_per_stream(dim) + chains, window, snapshot);
        Self {
            row: Rows::bytes_per_row(dim, rewards_per_row),
            window,
            stream,
            streams: stream * streams_max,
            queues,
            rebuild: rebuild_bytes(config, critics, dim, rewards_per_row, window),
            models,
            advisors: config.advisors.iter().map(|settings| advisor_bytes(settings, config.journal)).sum(),
            labels: label_bytes(config, config.journal),
        }
    }

    /// What is kept of rows, models, advisors, labels and streams; what waits in queues comes and goes.
    pub fn kept(&self) -> usize {
        self.window
            + self.streams
            + self.advisors
            + self.labels
            + self.models.iter().map(|model| model.bytes + model.beside).sum::<usize>()
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
            rebuild_bytes_max: self.rebuild as u64,
            advisors_bytes_max: self.advisors as u64,
            labels_bytes_max: self.labels as u64,
            kept_bytes_max: self.kept() as u64,
            models: models.collect(),
        }
    }

    /// Log it, and that it is more than there is, if it is.
    pub fn log(&self) {
        let Self { row, window, stream, streams, queues, rebuild, models, advisors, labels } = self;
        log::info!(
            "event=memory row_bytes={row} window_bytes_max={window} stream_bytes={stream} streams_bytes_max={streams} \
             queues_bytes_max={queues} rebuild_bytes_max={rebuild} advisors_bytes_max={advisors} labels_bytes_max={labels} kept_bytes_max={}",
            self.kept()
        );
        let (most, there) = ((self.kept() + self.queues + self.rebuild) as u64, available_bytes());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::learner::action::{ActionSpace, ActionValue, Successor, Trace};

    #[test]
    fn a_critic_that_improves_keeps_older_rows_beside_those_of_the_others() {
        let bytes = |successor| {
            let space = ActionSpace::Discrete(2);
            let action_value = Some(ActionValue { space, successor, trace: Trace::OnPolicy });
            ModelFootprint::of(&Settings { action_value, ..Settings::default() }, (3, 1), 1).bytes
        };
        let older = ENDINGS_MAX * Rows::bytes_per_row(5, 1);
        assert_eq!(bytes(Successor::Improve), bytes(Successor::Sarsa) + older);
    }
}
