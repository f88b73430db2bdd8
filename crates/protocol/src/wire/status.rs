//! What a daemon knows about itself, as one type: the core fills it, `status` carries it, and the dashboard, the metrics and
//! the command line read it.
//!
//! Keys may be added: a reader takes the default of a key that an older daemon does not send, and skips a key that it does not
//! know. `None` travels as nil. `proto/status.md` and `crates/daemon/src/http/page/status.d.ts` are made from these types; after a change
//! `CRITICD_WRITE=1 cargo test --release -p criticd-protocol wire::status` writes them again.

use super::{ErrorCode, StreamPosition, WireError};
use criticd_learner::math::columns::GivenFunction;
use criticd_learner::math::embedding::StateKind;
#[cfg(test)]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Everything that the daemon knows about itself.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Number of this run of the daemon, as in publications: the Unix time of its start in milliseconds. Revisions are of one run.
    pub run: u64,
    /// Number of its process, on its machine and in its container; nil from an older daemon.
    pub pid: Option<u64>,
    /// Its data directory, as an absolute path; nil without a journal.
    pub data_dir: Option<String>,
    /// Seconds since the daemon started.
    pub uptime_s: f64,
    /// When this was said, Unix seconds.
    pub time: f64,
    /// Whether there is a journal. Without one nothing outlives the daemon.
    pub durable: bool,
    /// Why nothing can be stored now; nil while rows are stored.
    pub read_only: Option<String>,
    /// The rows on disk; nil without a journal.
    pub journal: Option<JournalStatus>,
    /// What the start found in the data directory; nil without a journal.
    pub recovered: Option<RecoveredStatus>,
    /// The table that is learned before live rows; nil when there is none, or when it is learned.
    pub warm_start: Option<WarmStartStatus>,
    /// Rows that critics left out since the start because a learner failed on them.
    pub skipped_rows: u64,
    /// Times that the refit thread had to be started again.
    pub refit_restarts: u64,
    /// Times that the threads of the dashboard or of the monitor had to be started again.
    pub http_restarts: u64,
    /// Rows stored, of all streams.
    pub offset: u64,
    /// Rows stored per second, averaged over a few seconds.
    pub rows_per_second: f64,
    /// Rows that came although they were known already.
    pub duplicates: u64,
    /// Rows left out on ingest by their `seq`, since the start.
    pub missing_rows: u64,
    /// Connections of producers that broke since the start, so that rows may be lost: by `reset`, or within a message (`mid_message`).
    pub connections_broken: BTreeMap<String, u64>,
    /// Streams that are told apart.
    pub streams: u64,
    /// The streams that sent something last, at most 32, by name.
    pub recent_streams: BTreeMap<String, StreamPosition>,
    /// The daemon's queues, as of the last second.
    pub queues: QueuesStatus,
    /// Numbers in a state, D; nil before the first row.
    pub state_dim: Option<u64>,
    /// Rewards in a row, H; nil before the first row.
    pub rewards_per_row: Option<u64>,
    /// Rows kept for model selection.
    pub window: WindowStatus,
    /// The memory that the settings allow; nil until D is known.
    pub memory: Option<MemoryStatus>,
    /// Messages refused on ingest, and appends, by error code; not those that their sender has but to send again.
    pub rejected: BTreeMap<String, u64>,
    /// The critics, in the order of the settings.
    pub critics: Vec<CriticStatus>,
    /// The advisors, in the order of the settings.
    pub advisors: Vec<AdvisorStatus>,
    /// The last times that rows were taken back, at most 64, the last one first.
    pub removals: Vec<RemovalStatus>,
}

/// Rows that were taken back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct RemovalStatus {
    /// Offset behind the last row when it was done.
    pub offset: u64,
    /// Unix seconds then.
    pub time: f64,
    /// Rows that were taken back.
    pub rows: u64,
    /// Who asked, in their own words; nil where they did not say.
    pub by: Option<String>,
    /// Why, in their own words; nil where they did not say.
    pub reason: Option<String>,
    /// The critics that had a model then.
    pub critics: Vec<InfluenceStatus>,
}

/// What a critic has of rows that were taken back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct InfluenceStatus {
    /// Name of the critic.
    pub critic: String,
    /// Its first generation behind the removal.
    pub generation: u64,
    /// Whether its sums were without the rows from there on. If not, it is stale: it answers as before until it is learned again.
    pub subtracted: bool,
    /// Its first generation of which kernel and dictionary, too, were chosen without the rows; nil while there is none.
    pub free_generation: Option<u64>,
    /// Offset behind the last row when that took over; nil while it has not.
    pub free_offset: Option<u64>,
}

/// One advisor: decisions for a context, learned from their costs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct AdvisorStatus {
    /// Its name.
    pub name: String,
    /// Names of the variables of a context; empty if they have none.
    pub context_names: Vec<String>,
    /// Names of the numbers of a decision, each of which may be empty.
    pub output_names: Vec<String>,
    /// Decisions so far; the next one gets this number.
    pub decisions: u64,
    /// Decisions that wait for their cost.
    pub waiting: u64,
    /// Decisions that may wait; the oldest is given up for a further one.
    pub waiting_max: u64,
    /// Costs learned.
    pub learned: u64,
    /// Ridge of each number of a decision: as set, or the one that the evidence has chosen.
    pub ridges: Vec<f64>,
    /// Contexts in its dictionary.
    pub dictionary_size: u64,
    /// Contexts that the dictionary may have.
    pub dictionary_max: u64,
    /// Bytes that it takes.
    pub bytes: u64,
}

/// The queues around the core.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct QueuesStatus {
    /// Messages of producers.
    pub ingest: QueueStatus,
    /// Requests that only the core can answer.
    pub calls: QueueStatus,
    /// Messages to subscribers.
    pub publish: QueueStatus,
    /// Evaluations of other policies.
    pub evaluations: EvaluationsStatus,
}

/// Evaluations of other policies that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct EvaluationsStatus {
    /// Those that wait or run.
    pub under_way: u64,
    /// Share of the running one that is done, from 0 to 1.
    pub share: f64,
}

impl QueuesStatus {
    /// Each queue with its name.
    pub fn named(&self) -> [(&'static str, QueueStatus); 3] {
        [("ingest", self.ingest), ("calls", self.calls), ("publish", self.publish)]
    }
}

/// One queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct QueueStatus {
    /// Messages that wait.
    pub waiting: u64,
    /// Messages that the queue holds.
    pub max: u64,
}

/// Rows kept for model selection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct WindowStatus {
    /// Rows kept.
    pub rows: u64,
    /// Rows that may be kept.
    pub rows_max: u64,
    /// Bytes that they take.
    pub bytes: u64,
    /// Bytes of one row; nil before the first row.
    pub bytes_per_row: Option<u64>,
}

/// The rows on disk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct JournalStatus {
    /// When the journal is synchronised with the disk: the setting `sync`.
    pub sync: String,
    /// Rows kept.
    pub rows: u64,
    /// Bytes kept.
    pub bytes: u64,
    /// Groups kept: rows that were stored together.
    pub groups: u64,
    /// Offset of the first row kept.
    pub first_offset: u64,
    /// Rows before this offset survive a power cut.
    pub durable_offset: u64,
    /// Seconds that the last commit took.
    pub last_sync_s: f64,
    /// Commits that failed.
    pub failures: u64,
    /// Offset of the newest checkpoint; nil without one.
    pub checkpoint_offset: Option<u64>,
    /// The last checkpoint of this run; nil before it.
    pub checkpoint: Option<CheckpointStatus>,
    /// When the newest checkpoint was written, Unix seconds; nil without one.
    pub checkpoint_time: Option<f64>,
    /// Checkpoints that could not be written.
    pub checkpoint_failures: u64,
    /// Why the last checkpoint could not be written; nil if it was.
    pub checkpoint_failure: Option<String>,
    /// Rows that were taken back and whose bytes are still here: `criticd erase` erases them while the daemon is stopped.
    pub unerased_rows: u64,
    /// When rows were first taken back since the last erasure, of the last 64 removals, Unix seconds; nil where no such row is here.
    pub unerased_since: Option<f64>,
}

/// A checkpoint that was written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct CheckpointStatus {
    /// Rows that it holds the result of.
    pub offset: u64,
    /// Bytes on disk.
    pub bytes: u64,
    /// Seconds that encoding and writing took.
    pub seconds: f64,
    /// When it was written, Unix seconds.
    pub time: f64,
}

/// What the start found in the data directory.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct RecoveredStatus {
    /// Rows found.
    pub offset: u64,
    /// Offset of the checkpoint that was read; nil if none was.
    pub from_checkpoint: Option<u64>,
    /// Rows learned again from the journal.
    pub rows_replayed: u64,
    /// Groups read from the journal.
    pub groups_read: u64,
    /// Bytes of an unfinished commit that were cut off.
    pub torn_bytes: u64,
    /// Why checkpoints were passed over, one text each.
    pub faults: Vec<String>,
    /// Models that the start set aside because other settings are in force now, one text each.
    pub set_aside: Vec<String>,
}

/// A table that is learned before live rows.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct WarmStartStatus {
    /// Rows taken in.
    pub rows: u64,
    /// Rows of the table.
    pub of: u64,
}

/// The memory that the settings allow, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct MemoryStatus {
    /// Bytes of one retained row.
    pub row_bytes: u64,
    /// Bytes of one stream with names as long as the protocol allows; with a journal also those in a checkpoint that is written.
    pub stream_bytes: u64,
    /// Bytes of all retained rows.
    pub window_bytes_max: u64,
    /// Bytes of all streams.
    pub streams_bytes_max: u64,
    /// Bytes of the messages on their way, all as large as they may be.
    pub queues_bytes_max: u64,
    /// Bytes of a rebuild from the journal: the critic, the groups that it reads, and its record; 0 without a journal.
    pub rebuild_bytes_max: u64,
    /// Bytes of all advisors.
    pub advisors_bytes_max: u64,
    /// Bytes of the labels that heads learn from: as they were sent, and beside the retained rows.
    pub labels_bytes_max: u64,
    /// Bytes of window, streams, models, advisors and labels together.
    pub kept_bytes_max: u64,
    /// Bytes of the models, of each critic.
    pub models: Vec<ModelMemoryStatus>,
}

/// The memory that the settings allow the models of one critic, in bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct ModelMemoryStatus {
    /// Name of the critic.
    pub critic: String,
    /// Bytes of one dictionary element of the largest dictionary.
    pub element_bytes: u64,
    /// Bytes of the model with the largest dictionary.
    pub bytes_max: u64,
    /// Bytes of the second model and of those kept, where the world or the policy may change.
    pub beside_bytes_max: u64,
}

/// One critic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct CriticStatus {
    /// Its name.
    pub name: String,
    /// Why it learns no more; nil while it learns.
    pub failed: Option<String>,
    /// Number of the model in use: 0 before the first, one more with every adoption.
    pub generation: u64,
    /// Number of the last publication.
    pub revision: u64,
    /// Rows learned from the stream.
    pub learned: u64,
    /// The setting `discount`, 0 to 1.
    pub discount: f64,
    /// Elements that the dictionary may hold.
    pub dictionary_max: u64,
    /// Rows that a first model needs.
    pub warmup_rows: u64,
    /// The refits.
    pub refit: RefitStatus,
    /// The rebuild from the journal that runs, waits or failed; nil if there is none.
    pub rebuild: Option<RebuildStatus>,
    /// The heads; nil if there are none.
    pub heads: Option<HeadsStatus>,
    /// The alarms of the setting `alarm`, in their order; empty if there are none.
    pub alarms: Vec<AlarmStatus>,
    /// Error of held-out returns that the model in use was adopted with, 1 for a constant; nil if the evidence chose it, and after
    /// a start.
    pub held_out_error: Option<f64>,
    /// For how long adoptions held up the learner.
    pub adoption_pause_ms: PauseStatus,
    /// Counts of what happened to the present model.
    pub counts: CountsStatus,
    /// The actions that it values; nil if it learns values of states.
    pub actions: Option<ActionsStatus>,
    /// (H,), the setting `rewards`: columns of its rewards, from 0.
    pub rewards: Vec<u64>,
    /// (H,), what its rewards are called, by the settings or by who sends rows; empty if that is not known.
    pub reward_names: Vec<String>,
    /// (H,), whether to believe the values of each reward; empty before the daemon has judged the model in use.
    pub trust: Vec<TrustStatus>,
    /// (D,), share of the variance of the first reward's value that hangs on each state variable, over visited states; nil for one
    /// that was not examined. Empty before the daemon has found them.
    pub shares: Vec<Option<f64>>,
    /// The model. Its keys stand among those above once there is one.
    #[serde(flatten)]
    pub model: Option<ModelStatus>,
}

/// Whether to believe the values of a reward: judged by the returns that came, by refusals, storage and drift.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct TrustStatus {
    /// `good`, `wait` (too few returns), `never` (no return says), `warn` or `bad`.
    pub level: String,
    /// A sign for it, which colours go with: ●, ○, ▲ or ■.
    pub sign: String,
    /// The same in words, without a full stop.
    pub title: String,
    /// Error, coverage and drift, a sentence.
    pub sentence: String,
    /// Why the level is `warn` or `bad`.
    pub reasons: Vec<TrustReason>,
    /// Separate returns that it is judged by; nil before there are enough.
    pub returns: Option<u64>,
    /// Root mean square of return minus prediction, unit of the reward; nil where `returns` is.
    pub error: Option<f64>,
    /// Mean of return minus prediction, unit of the reward; nil where `returns` is.
    pub bias: Option<f64>,
    /// Share of the returns in the 90 % interval that was stated, with the factor on deviations, 0 to 1; nil where `returns` is.
    pub coverage: Option<f64>,
}

/// A reason for care.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct TrustReason {
    /// `warn` or `bad`.
    pub level: String,
    /// `critic`, or `daemon` where it holds for all critics.
    pub of: String,
    /// In words, without a full stop.
    pub text: String,
    /// What to do about it, in sentences.
    pub remedy: String,
}

/// The actions of a critic of action values, and its rows that wait or were left out.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct ActionsStatus {
    /// `discrete` or `box`.
    pub kind: String,
    /// Names of the discrete actions: from the setting or from rows, or their numbers; empty for a box.
    pub names: Vec<String>,
    /// Least of each number of an action; empty if they are discrete.
    pub low: Vec<f64>,
    /// Largest of each number.
    pub high: Vec<f64>,
    /// The setting `successor`: whose action follows a row.
    pub successor: String,
    /// The setting `trace`.
    pub trace: String,
    /// Rows that wait for the action that follows them.
    pub rows_waiting: u64,
    /// Rows that were not learned since nothing named the action that follows them.
    pub rows_unnamed: u64,
    /// Rows of the journal that have none of these actions.
    pub rows_without_action: u64,
    /// What it has learned of where actions lead, or why not; nil without the setting `world`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world: Option<WorldStatus>,
}

/// A model of the transition, which `plan` and `rollout` ask.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct WorldStatus {
    /// Why the last refit since the start made no model; nil where it made one, or none has ended.
    pub refused: Option<String>,
    /// States with actions that it is made of; 0 where there is none, as before the first refit.
    pub elements: u64,
    /// States that it expresses successors in.
    pub successors: u64,
    /// Rows learned, as far as they count.
    pub transitions: f64,
    /// What the latter cannot express of successors, from 0; above 0.5 there is no answer.
    pub lost: Option<f64>,
    /// Mean squared error of predictions up to eight steps ahead for held-out rows, over the variance of what came; nil where there is no
    /// model.
    pub held_out_error: Option<f64>,
}

/// The heads of a critic: predictions that it learns besides its values. This part does not grow with their number.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct HeadsStatus {
    /// How many there are.
    pub count: u64,
    /// Heads that were added at run time and are not in the configuration.
    pub added: u64,
    /// Heads that are not ready: the critic's rebuild learns them, and its `rebuild` has the progress.
    pub learning: u64,
    /// Heads that the model has learned and its newest snapshot lacks: it is not made yet, or they cannot be solved for.
    pub unsolved: u64,
    /// Different discounts and continuations among those that the model has learned.
    pub groups: u64,
    /// Bytes of their statistics.
    pub bytes: u64,
    /// Those that a refit has given a kernel of their own; nil where all share the kernel of the values.
    pub apart: Option<ApartStatus>,
    /// Heads of which enough returns have been compared with their predictions.
    pub verified: u64,
    /// Mean coverage of the verified heads, before the factor, 0 to 1; nil if there are none.
    #[serde(rename = "coverage")]
    pub coverage_before_factor: Option<f64>,
    /// Largest unexplained variance of a verified head, over the variance of its returns; nil where none vary.
    pub unexplained_max: Option<f64>,
    /// Of the verified heads the ten whose coverage is farthest from 0.9.
    pub worst: Vec<VerifiedHead>,
}

/// Heads that have a kernel and a dictionary of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct ApartStatus {
    /// How many there are.
    pub count: u64,
    /// Elements of their dictionary.
    pub dictionary_size: u64,
    /// Bytes of the model that learns them, its statistics among them.
    pub bytes: u64,
}

/// The verified returns of one head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct VerifiedHead {
    /// Its name.
    pub name: String,
    /// Returns that were compared with what had been predicted, 40 to 256: the last ones.
    pub pairs: u64,
    /// Share of them in the 90 % interval as it was predicted, before the factor, 0 to 1.
    #[serde(rename = "coverage")]
    pub coverage_before_factor: f64,
    /// Mean of the returns less the predicted values, in the unit of the return.
    pub bias: f64,
    /// Variance of these differences over the variance of the returns, from 0; nil where returns do not vary.
    pub unexplained: Option<f64>,
    /// What deviations of returns are multiplied by, 0.25 to 4.
    pub factor: f64,
}

/// The refits of a critic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct RefitStatus {
    /// Whether one runs.
    pub running: bool,
    /// Share of its budget that the search of the one that runs has spent, 0 to 1; nil where none runs.
    pub spent: Option<f64>,
    /// Whether a refit or an improvement is due that has not begun.
    pub due: bool,
    /// Offset of the row at which the next one is due; nil if refits run on request only.
    pub next_at: Option<u64>,
    /// Refits started since the start, as are the counts below.
    pub started: u64,
    /// Refits whose model was adopted.
    pub adopted: u64,
    /// Refits whose model was rejected.
    pub rejected: u64,
    /// Refits that found no model.
    pub failed: u64,
    /// How the last one ended; nil before that.
    pub last: Option<LastRefit>,
}

/// A critic that is learned again from the journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct RebuildStatus {
    /// Rows learned so far.
    pub rows: u64,
    /// Rows there are to learn; 0 before that is known.
    pub of: u64,
    /// Why the last rebuild failed; nil if it did not.
    pub failed: Option<String>,
}

/// For how long adoptions held up the learner, of the last adoptions since the start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct PauseStatus {
    /// Pauses measured.
    pub count: u64,
    /// Median, milliseconds; nil before the first, as are the two below.
    pub p50: Option<f64>,
    /// 99 % of the pauses are at most so long, milliseconds.
    pub p99: Option<f64>,
    /// The longest, milliseconds.
    pub max: Option<f64>,
}

/// Counts of what happened to the present model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct CountsStatus {
    /// Novel states that found the dictionary full.
    pub novel_when_full: u64,
    /// Times that the weights were solved for.
    pub refreshes: u64,
    /// Times that this failed.
    pub failed_refreshes: u64,
    /// Snapshots that could not be made since the start.
    pub failed_snapshots: u64,
    /// Chains that were cut.
    pub cuts: u64,
    /// Chains that ended at a terminal state.
    pub terminations: u64,
}

/// The model of a critic.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct ModelStatus {
    /// Elements of the dictionary. A status with this key has a model.
    pub dictionary_size: u64,
    /// Tolerance of the dictionary relative to the prior variance.
    #[serde(default)]
    pub tolerance: f64,
    /// The same tolerance relative to the noise variance.
    #[serde(default)]
    pub tolerance_to_noise: f64,
    /// Noise chains that are running.
    #[serde(default)]
    pub running_chains: u64,
    /// Rows that the model's statistics hold.
    #[serde(default)]
    pub transitions: u64,
    /// Sum of the weights of these rows; nil if no rows are forgotten.
    #[serde(default)]
    pub rows_effective: Option<f64>,
    /// Bytes of the model, and of those kept beside it.
    #[serde(default)]
    pub bytes: u64,
    /// Policy that acts; nil if it has no name.
    #[serde(default)]
    pub policy: Option<String>,
    /// Policies that a model is kept of.
    #[serde(default)]
    pub policies_kept: Vec<String>,
    /// Log score of the predictions since the adoption, nats per row; nil before the first.
    #[serde(default)]
    pub score: Option<f64>,
    /// The same over the last rows, nats per row; nil before the first.
    #[serde(default)]
    pub score_recent: Option<f64>,
    /// Log evidence of the model on the rows that it holds, nats; nil where held-out returns chose it or lambda is below 1.
    #[serde(default)]
    pub log_evidence: Option<f64>,
    /// Factor on the kernel's variances since the adoption, tuned row by row.
    #[serde(default)]
    pub scale_since_adoption: Option<f64>,
    /// lambda of the returns that the weights are learned from, 0 to 1; nil before the first snapshot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lambda: Option<f64>,
    /// Whether model selection has not chosen the model yet: its deviations are the prior's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provisional: Option<bool>,
    /// How well deviations of returns were verified; nil where the spread of returns is not known.
    #[serde(default)]
    pub returns: Option<ReturnsStatus>,
    /// Changes of the world.
    #[serde(default)]
    pub drift: DriftStatus,
    /// Covariance of values.
    #[serde(default)]
    pub kernel: KernelStatus,
    /// Noise of rewards.
    #[serde(default)]
    pub noise: NoiseStatus,
    /// Standardisation of states.
    #[serde(default)]
    pub inputs: InputsStatus,
}

/// How well deviations of returns were verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct ReturnsStatus {
    /// Factor on deviations of returns; the last refit's below 16 pairs.
    pub factor: f64,
    /// Pairs of prediction and return behind it.
    pub pairs: u64,
    /// Share of these returns in the 90 % interval before the factor, 0 to 1; nil before the first pair.
    #[serde(rename = "coverage")]
    pub coverage_before_factor: Option<f64>,
}

/// An alarm about returns that fall too low, and what has come of it since its settings hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct AlarmStatus {
    /// Name of the head that it is about; nil for the first of the critic's rewards.
    pub head: Option<String>,
    /// Whether the critic has no head of this name: nothing is foretold until it is declared.
    pub unknown: bool,
    /// The setting `below`: what the return is not to fall below.
    pub below: f64,
    /// The setting `false_alarms`, 0.001 to 0.5.
    pub false_alarms: f64,
    /// Returns that are still to stay above before an alarm can be raised; 0 from then on.
    pub missing: u64,
    /// Streams whose alarm is on.
    pub on: u64,
    /// Names of streams whose alarm is on, at most 8.
    pub streams: Vec<String>,
    /// Alarms raised.
    pub raised: u64,
    /// Alarms from whose row on the return fell below.
    pub hits: u64,
    /// Alarms from whose row on the return stayed above.
    pub mistaken: u64,
    /// Returns of rows that were followed, whether an alarm was on or not, and that stayed above.
    pub stayed: u64,
    /// Share of the returns in `stayed` at whose row the alarm was on, 0 to 1; nil before the first.
    pub false_share: Option<f64>,
    /// Followed returns that fell below.
    pub fell: u64,
    /// Returns in `fell` that no alarm foretold before they were below for good.
    pub missed: u64,
    /// Mean rows from the row that raised an alarm to the one since which the return was below, of `hits`; nil before the first.
    pub lead_rows: Option<f64>,
    /// The same as `lead_rows` in seconds, of hits whose rows have times; nil where none has.
    pub lead_s: Option<f64>,
}

/// What tracks the stream beside the base.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct TrackingStatus {
    /// How far the mixture is let in, 0 to 1, of each reward; 0 where the values are the base's.
    pub gate: Vec<f64>,
    /// Half-life, rows, that half of the trackers' weight does not exceed, of each reward; nil where the gate is shut.
    pub half_life: Vec<Option<f64>>,
}

impl TrackingStatus {
    /// The gate that is open farthest, and the half-life behind it; none where all are shut.
    pub fn widest(&self) -> Option<(f64, f64)> {
        let open = self.gate.iter().zip(&self.half_life).filter_map(|(gate, half_life)| Some((*gate, (*half_life)?)));
        open.max_by(|(a, _), (b, _)| a.total_cmp(b))
    }
}

/// Changes of the world.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct DriftStatus {
    /// The setting `drift_sensitivity`.
    pub sensitivity: String,
    /// Evidence of a change in the errors; nil while too little is known.
    pub level: Option<f64>,
    /// Level of an alarm; nil where nothing is watched.
    pub threshold: Option<f64>,
    /// Whether a second model learns beside the first.
    pub forked: bool,
    /// Rows before this offset are of another world or policy. Refits leave them out.
    pub changed_at: u64,
    /// Names of the models that may return.
    pub kept_models: Vec<String>,
    /// Alarms since the start.
    pub alarms: u64,
    /// The last alarm, as the event `drift` has it; nil before it.
    pub last: Option<DriftAlarm>,
    /// What tracks the stream beside the base; nil where nothing is tracked.
    pub tracking: Option<TrackingStatus>,
}

/// An alarm: the errors of a critic have changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct DriftAlarm {
    /// Name of the critic.
    pub critic: String,
    /// Rows learned when the alarm was raised.
    pub offset: u64,
    /// Offset of about the first row of the new world.
    pub since: u64,
    /// Column of the reward.
    pub reward: u64,
    /// `higher`, `lower`, or `wider`: the errors scatter more.
    pub statistic: String,
    /// Size of the change, unit of the reward.
    pub size: f64,
    /// Evidence of the change.
    pub level: f64,
    /// State variables that moved with it.
    pub variables: Vec<MovedVariable>,
    /// Names of the few streams that it concerns; empty if it concerns all.
    pub streams: Vec<String>,
}

/// A state variable that moved with the errors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct MovedVariable {
    /// Its index, from 0.
    pub variable: u64,
    /// Its name.
    pub name: String,
    /// `higher`, `lower` or `wider`.
    pub statistic: String,
    /// Offset of about the first row.
    pub since: u64,
    /// Size of the change, standard deviations of the variable.
    pub size: f64,
}

/// Covariance of values: the kernel of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct KernelStatus {
    /// `isotropic`, `ard` or `factor`.
    pub kind: String,
    /// `gaussian` or `matern52`.
    pub profile: String,
    /// Square of the unit of the value.
    pub signal_variance: f64,
    /// Square of the unit of the value.
    pub bias_variance: f64,
    /// `real`, `asinh:C:S:W`, `periodic:P` or `category` of each state variable; left out where all are real.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub kinds: Vec<StateKind>,
    /// One over the squared lengthscale of each state variable in standardised coordinates, or one number for all.
    pub relevance: Relevance,
    /// (k, D), of kind `factor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub factors: Option<Vec<Vec<f64>>>,
    /// (D, D), of kind `factor`: unit eigenvectors of Omega, row by row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directions: Option<Vec<Vec<f64>>>,
    /// (D,), of kind `factor`: the eigenvalues of Omega, the largest first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strengths: Option<Vec<f64>>,
    /// Explicit columns (q,), which come before the dictionary: `constant`, `linear:D`, `bounded:D`, `cosine:D` or `sine:D` of state variable D;
    /// left out where there are none.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(test, schemars(with = "Vec<String>"))]
    pub columns: Vec<GivenFunction>,
    /// (q,): prior variances of their coefficients, square of the unit of the value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub column_variances: Vec<f64>,
    /// Whether all rewards have been 0 so far: nothing tells how large values may be, and they have no deviations.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unscaled: bool,
}

/// One over the squared lengthscale: one number for all state variables, or a number of each.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(untagged)]
pub enum Relevance {
    /// Of an isotropic kernel.
    Common(f64),
    /// (D,)
    Each(Vec<f64>),
}

impl Default for Relevance {
    fn default() -> Self {
        Self::Common(0.0)
    }
}

impl Relevance {
    /// The relevance of a state variable; 0 beyond the last.
    pub fn of(&self, variable: usize) -> f64 {
        match self {
            Self::Common(relevance) => *relevance,
            Self::Each(relevance) => relevance.get(variable).copied().unwrap_or(0.0),
        }
    }
}

/// Noise of rewards, as a snapshot has it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct NoiseStatus {
    /// `correlated` or `white`.
    pub model: String,
    /// Square of the unit of the reward.
    pub variance: f64,
}

/// Standardisation of states: the inputs of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct InputsStatus {
    /// Numbers in a state, D.
    pub dim: u64,
    /// (D,), unit of the state.
    pub shift: Vec<f64>,
    /// (D,), unit of the state, positive.
    pub scale: Vec<f64>,
    /// (D,), names of the state variables; left out if they have none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<Vec<String>>,
}

/// How a refit ended, as the events `adopted` and `refit_rejected` have it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct LastRefit {
    /// `adopted` or `rejected`.
    pub outcome: String,
    /// Name of the critic.
    pub critic: String,
    /// Number of the model in use afterwards.
    pub generation: u64,
    /// Why the model was rejected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Rows learned when the refit ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<u64>,
    /// Seconds that the refit took.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seconds: Option<f64>,
    /// Log score of the model before, on the rows that both models predicted, nats per row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score_before: Option<f64>,
    /// Log score of the adopted model on the same rows, nats per row.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub score_after: Option<f64>,
    /// What the search found. Its keys stand among those above, unless the refit failed.
    #[serde(flatten)]
    pub found: Option<RefitFound>,
}

impl LastRefit {
    /// The model of the refit took over.
    pub const ADOPTED: &str = "adopted";
    /// The model before stays.
    pub const REJECTED: &str = "rejected";

    /// What the search found of the model in use; none of a model that was rejected.
    pub fn adopted(&self) -> Option<&RefitFound> {
        self.found.as_ref().filter(|_| self.outcome == Self::ADOPTED)
    }
}

/// What the search of a refit found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
pub struct RefitFound {
    /// Why the refit was started. An outcome with this key tells what was found.
    pub trigger: String,
    /// Rows that it looked at.
    #[serde(default)]
    pub rows: u64,
    /// Sum of the weights of the rows of the new model; nil if no rows are forgotten.
    #[serde(default)]
    pub rows_effective: Option<f64>,
    /// `exact` or `sparse`: the evidence that chose the hyperparameters.
    #[serde(default)]
    pub evidence: String,
    /// Rows that this evidence was computed on.
    #[serde(default)]
    pub evidence_rows: u64,
    /// Log evidence of the hyperparameters before, nats; nil if they fail on those rows, or held-out returns chose.
    #[serde(default)]
    pub evidence_before: Option<f64>,
    /// Log evidence of the hyperparameters found, nats, on the same rows and targets.
    #[serde(default)]
    pub evidence_after: Option<f64>,
    /// Exact evidence lost for what the dictionary can carry, nats; nil if only one evidence was used.
    #[serde(default)]
    pub evidence_loss: Option<f64>,
    /// Share of the noise that the targets account for: 1 at an optimum that no bound holds.
    #[serde(default)]
    pub fit_ratio: Option<f64>,
    /// Evaluations of the evidence with its gradient.
    #[serde(default)]
    pub evaluations: u64,
    /// Bounds that hold the optimum, in words.
    #[serde(default)]
    pub active_bounds: Vec<String>,
    /// Whether the budget ended the search.
    #[serde(default)]
    pub out_of_time: bool,
    /// Elements of the new dictionary.
    #[serde(default)]
    pub dictionary_size: u64,
    /// Evidence that the new dictionary may lack, nats.
    #[serde(default)]
    pub trace_gap: Option<f64>,
    /// Tolerance of the new dictionary relative to the prior variance.
    #[serde(default)]
    pub tolerance: Option<f64>,
    /// Rows that the model never learned because the stream was too fast.
    #[serde(default)]
    pub rows_left_out: u64,
    /// Name of the structure that was chosen.
    #[serde(default)]
    pub structure: String,
    /// The structures compared, in the order in which they were tried.
    #[serde(default)]
    pub structures: Vec<StructureFound>,
    /// What each state variable means to the value.
    #[serde(default)]
    pub variables: Vec<VariableFound>,
    /// Directions of a factor model, the strongest first.
    #[serde(default)]
    pub directions: Vec<DirectionFound>,
    /// Evidence lost without each state variable, nats; nil where it could not be computed.
    #[serde(default)]
    pub evidence_drop: Vec<Option<f64>>,
    /// `exact` or `sparse`: the evidence of `evidence_drop`; nil without one.
    #[serde(default)]
    pub evidence_drop_by: Option<String>,
    /// What the kernel makes of each state variable, a sentence each.
    #[serde(default)]
    pub relevance_report: Vec<String>,
    /// What people should know of the search, a sentence each.
    #[serde(default)]
    pub findings: Vec<String>,
    /// Heads whose summed evidence chose the kernel, rewards among them; nil if the rewards alone chose.
    #[serde(default)]
    pub heads: Option<u64>,
    /// Whether two kernels are better than one for all heads; nil where that was not tried.
    #[serde(default)]
    pub split: Option<SplitFound>,
    /// The rule that chose the dictionary; nil where ICD (pivoted incomplete Cholesky) had no rival.
    #[serde(default)]
    pub dictionary: Option<DictionaryFound>,
    /// How held-out returns chose the model, or lambda and ridge alone where there are `heads`; nil if the evidence chose it.
    #[serde(default)]
    pub selection: Option<SelectionFound>,
    /// How the new model did against the model before on rows that chose neither; nil where there was none to compare it with.
    #[serde(default)]
    pub trial: Option<TrialFound>,
    /// Whether the state hides something of what follows; nil where that could not be found out.
    #[serde(default)]
    pub hidden_state: Option<HiddenFound>,
    /// How the sweeps of an improvement ended; nil if actions were not improved.
    #[serde(default)]
    pub improvement: Option<ImprovementFound>,
    /// How the kernels of the model of the transition were chosen; nil where the critic learns none.
    #[serde(default)]
    pub world: Option<WorldFound>,
}

/// How the kernels of a model of the transition were chosen, or why there is none.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct WorldFound {
    /// Why none was made: the model before, if there is one, stays. Without it the rest is known.
    pub refused: Option<String>,
    /// Mean squared error of predictions up to eight steps ahead for held-out rows, over the variance of what came.
    pub held_out_error: Option<f64>,
    /// Largest spectral radius of the model under some policies: well above 1 it makes mass of nothing.
    pub radius: Option<f64>,
    /// Kernels compared.
    pub kernels: u64,
    /// Whether the budget ended before all were.
    pub out_of_time: bool,
}

/// How far values learned from single rewards and values learned from whole returns are apart.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct HiddenFound {
    /// Mean squared difference over what chance makes of it: about 1 where the state says all.
    pub ratio: f64,
    /// Chains looked at.
    pub chains: u64,
    /// Whether there are enough chains, and the ratio is so large that what follows depends on more than the state.
    pub hidden: bool,
}

/// How a new model did against the one before on rows that chose neither.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct TrialFound {
    /// Rows compared, the last ones of the refit.
    pub rows: u64,
    /// By how much the new model errs less, in units of the variance of the targets; if it is below 0 the model before stays.
    pub gain: f64,
    /// Standard error of that.
    pub standard_error: f64,
}

/// The rule that chose a dictionary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct DictionaryFound {
    /// `icd`, `returns`, `omp-td` or `omp-brm`, as in the setting `dictionary_by`.
    pub rule: String,
    /// The rules that were compared; empty where the setting names the rule.
    pub compared: Vec<RuleFound>,
}

/// How a rule did on returns later than the rows that it chose from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct RuleFound {
    /// `icd`, `returns`, `omp-td` or `omp-brm`.
    pub rule: String,
    /// Elements that it chose.
    pub elements: u64,
    /// Squared error of later returns over their variance, averaged over values and heads; nil where no return was complete.
    pub relative_squared_error: Option<f64>,
    /// Standard error of the difference of that from the error of `icd`, over stretches of the rows; nil where one of them is not known.
    pub standard_error: Option<f64>,
}

/// What a second kernel gains for some of the heads.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct SplitFound {
    /// Over one kernel for all, nats for each row and head.
    pub gain: f64,
    /// Heads that the second kernel was given; 0 where one for all stays, as below 0.02 nats.
    pub heads: u64,
}

/// How the sweeps of an improvement ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct ImprovementFound {
    /// Sweeps made.
    pub sweeps: u64,
    /// Whether values hardly changed in the last one.
    pub settled: bool,
    /// Mean change of the best values in the last one, in parts of their range.
    pub change: f64,
    /// Share of the rows whose best next value was beyond what rewards and discount allow, from 0 to 1.
    pub clipped: f64,
}

/// A structure of the covariance that a refit tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct StructureFound {
    /// In words: `isotropic`, `ard without 1, 4`.
    pub name: String,
    /// Best log evidence found, nats.
    pub log_evidence: Option<f64>,
    /// Free hyperparameters.
    pub parameters: u64,
}

/// What a state variable means to the value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct VariableFound {
    /// Its name.
    pub name: String,
    /// `kept` in the kernel, `removed` from it, `constant`, or `copy` of another one.
    pub verdict: String,
    /// Entry of Omega on the diagonal; 0 if the variable is left out.
    pub relevance: f64,
    /// Distance over which the value changes, unit of the variable; nil if it is left out.
    pub lengthscale: Option<f64>,
    /// The same distance in standard deviations of the variable.
    pub lengthscale_in_deviations: Option<f64>,
    /// Evidence lost without the variable and its copies, nats.
    pub evidence_drop: Option<f64>,
}

/// A direction of a factor model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct DirectionFound {
    /// Eigenvalue of Omega.
    pub strength: f64,
    /// (D,), unit eigenvector of Omega.
    pub direction: Vec<f64>,
}

/// How held-out returns chose kernel, lambda and ridge. An error is the mean square error over the variance of the targets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct SelectionFound {
    /// Rows compared.
    pub rows: u64,
    /// Chains, or pieces of long ones, that they stand in.
    pub pieces: u64,
    /// Error of what was chosen.
    pub score: f64,
    /// Error of the model before; nil without one.
    pub present_score: Option<f64>,
    /// By how much the best errs less than the model before.
    pub gain: Option<f64>,
    /// Standard error of that gain over the pieces.
    pub standard_error: Option<f64>,
    /// Whether the model before stays, because nothing gains more than the standard error.
    pub present_stays: bool,
    /// The best of each kernel, the best first.
    pub candidates: Vec<CandidateFound>,
    /// For each lambda the best that the chosen kernel makes of it.
    pub lambdas: Vec<LambdaFound>,
    /// Whether the budget ended before all kernels were tried.
    pub out_of_time: bool,
    /// What people should know, a sentence each.
    pub findings: Vec<String>,
}

/// A kernel at its best.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct CandidateFound {
    /// Where it comes from: `present`, `isotropic 0.3`, `ard 1 x 3.00`.
    pub name: String,
    /// Its best lambda.
    pub lambda: f64,
    /// Its best ridge: noise variance over signal variance.
    pub ridge: f64,
    /// Its error.
    pub score: f64,
    /// Elements of its dictionary.
    pub elements: u64,
}

/// A lambda with the chosen kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(test, derive(JsonSchema))]
#[serde(default)]
pub struct LambdaFound {
    /// The lambda.
    pub lambda: f64,
    /// Its best ridge: noise variance over signal variance.
    pub ridge: f64,
    /// Its error over the best lambda's: 1 for the best.
    pub score: f64,
}

impl Status {
    /// Read a status out of a reply, a publication or `/api/status`; what else these hold is skipped.
    ///
    /// # Errors
    /// `malformed` with the reason, if a key holds something else than `proto/status.md` says.
    pub fn from_json(message: &Value) -> Result<Self, WireError> {
        Self::deserialize(message).map_err(|e| WireError::new(ErrorCode::Malformed, format!("the status: {e}")))
    }

    /// The same as a JSON object; a number that is not finite is null.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("plain data with string keys")
    }

    /// The critic of this name.
    pub fn critic(&self, name: &str) -> Option<&CriticStatus> {
        self.critics.iter().find(|critic| critic.name == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Event;
    use schemars::generate::SchemaSettings;
    use serde_json::json;
    use std::collections::VecDeque;
    use std::fmt::Write as _;
    use std::path::Path;

    /// The schema of what is sent.
    fn schema_of<T: JsonSchema>() -> Value {
        let schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
        serde_json::to_value(schema).unwrap()
    }

    fn schema() -> Value {
        schema_of::<Status>()
    }

    /// A map on the wire.
    struct Section {
        name: String,
        about: String,
        keys: Vec<Key>,
    }

    struct Key {
        name: String,
        about: String,
        optional: bool,
        schema: Value,
    }

    fn words(schema: &Value) -> String {
        schema["description"].as_str().expect("everything is described").replace('\n', " ")
    }

    /// The name of a map that a schema refers to.
    fn reference(schema: &Value) -> Option<&str> {
        schema["$ref"].as_str()?.strip_prefix("#/$defs/")
    }

    /// The keys of a map.
    fn keys(map: &Value) -> Option<Vec<Key>> {
        let required: Vec<&str> = map["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let of = |(key, schema): (&String, &Value)| Key {
            name: key.clone(),
            about: words(schema),
            optional: !required.contains(&key.as_str()),
            schema: schema.clone(),
        };
        Some(map["properties"].as_object()?.iter().filter(|(_, schema)| schema["const"].is_null()).map(of).collect())
    }

    /// All maps, each before those that it refers to.
    fn sections() -> Vec<Section> {
        let root = schema();
        sections_from("Status", &root, &root)
    }

    fn sections_from(name: &str, map: &Value, root: &Value) -> Vec<Section> {
        let mut sections: Vec<Section> = Vec::new();
        let mut waiting = VecDeque::from([(name.to_owned(), map.clone())]);
        while let Some((name, map)) = waiting.pop_front() {
            let Some(keys) = keys(&map) else { continue };
            if sections.iter().any(|section| section.name == name) {
                continue;
            }
            for key in &keys {
                for found in references(&key.schema) {
                    waiting.push_back((found.clone(), root["$defs"][&found].clone()));
                }
            }
            sections.push(Section { name, about: words(&map), keys });
        }
        sections
    }

    fn references(schema: &Value) -> Vec<String> {
        match schema {
            Value::Object(map) => {
                reference(schema).map(str::to_owned).into_iter().chain(map.values().flat_map(references)).collect()
            }
            Value::Array(items) => items.iter().flat_map(references).collect(),
            _ => Vec::new(),
        }
    }

    /// How a language writes types.
    struct Writer {
        whole: &'static str,
        number: &'static str,
        text: &'static str,
        flag: &'static str,
        nil: &'static str,
        or: &'static str,
        list: fn(&str) -> String,
        by_name: fn(&str) -> String,
        map: fn(&str) -> String,
    }

    const WORDS: Writer = Writer {
        whole: "uint",
        number: "number",
        text: "string",
        flag: "bool",
        nil: "nil",
        or: " or ",
        list: |of| format!("list of {of}"),
        by_name: |of| format!("map from names to {of}"),
        map: |name| format!("[{name}](#{})", name.to_lowercase()),
    };
    const TYPESCRIPT: Writer = Writer {
        whole: "number",
        number: "number",
        text: "string",
        flag: "boolean",
        nil: "null",
        or: " | ",
        list: |of| if of.contains('|') { format!("({of})[]") } else { format!("{of}[]") },
        by_name: |of| format!("Record<string, {of}>"),
        map: str::to_owned,
    };

    impl Writer {
        fn write(&self, schema: &Value, root: &Value) -> String {
            if let Some(name) = reference(schema) {
                let target = &root["$defs"][name];
                return if target["properties"].is_object() { (self.map)(name) } else { self.write(target, root) };
            }
            if let Some(choices) = schema["anyOf"].as_array() {
                return choices.iter().map(|choice| self.write(choice, root)).collect::<Vec<_>>().join(self.or);
            }
            let one = |kind: &str| match kind {
                "integer" => self.whole.to_owned(),
                "number" => self.number.to_owned(),
                "string" => self.text.to_owned(),
                "boolean" => self.flag.to_owned(),
                "null" => self.nil.to_owned(),
                "array" => (self.list)(&self.write(&schema["items"], root)),
                "object" => (self.by_name)(&self.write(&schema["additionalProperties"], root)),
                other => panic!("no word for {other}"),
            };
            match &schema["type"] {
                Value::String(kind) => one(kind),
                Value::Array(kinds) => kinds.iter().map(|k| one(k.as_str().unwrap())).collect::<Vec<_>>().join(self.or),
                other => panic!("no type: {other} in {schema}"),
            }
        }
    }

    const HOW: &str = "`CRITICD_WRITE=1 cargo test --release -p criticd-protocol wire::status`";

    fn table() -> String {
        let root = schema();
        let mut out = format!(
            "# Status\n\nThe map that the daemon sends as the reply to `status`, as the publication `status`, and from \
             `/api/status`.\nKeys may be added. A key with `?` may be left out. nil stands for what is not known.\n\n\
             Made from `crates/protocol/src/wire/status.rs` by {HOW}.\n"
        );
        sections().into_iter().for_each(|section| write_section(&mut out, section, &root));
        out
    }

    fn write_section(out: &mut String, Section { name, about, keys }: Section, root: &Value) {
        write!(out, "\n## {name}\n\n{about}\n\n| key | type | meaning |\n| --- | --- | --- |\n").unwrap();
        for Key { name, about, optional, schema } in keys {
            let mark = if optional { "?" } else { "" };
            writeln!(out, "| `{name}`{mark} | {} | {} |", WORDS.write(&schema, root), about.replace('|', "\\|"))
                .unwrap();
        }
    }

    /// The kinds of events, each with its keys, and the maps in them that the status has not.
    fn events() -> String {
        let root = schema_of::<Event>();
        let of_status: Vec<String> = sections().into_iter().map(|section| section.name).collect();
        let mut out = format!(
            "# Events\n\nWhat the daemon publishes under `event.<kind>`. Each event has `v`, `type` (\"event\"), `event` \
             (its kind) and\n`time` (Unix seconds) beside the keys below. Keys and kinds may be added. nil stands for what is \
             not known.\n\nMade from `crates/protocol/src/wire/events.rs` by {HOW}.\n"
        );
        let mut maps: Vec<Section> = Vec::new();
        for kind in root["oneOf"].as_array().expect("kinds") {
            let (name, about) = (kind["properties"]["event"]["const"].as_str().expect("a tag").to_owned(), words(kind));
            match reference(kind) {
                Some(map) if of_status.iter().any(|name| name == map) => {
                    let link = map.to_lowercase();
                    write!(out, "\n## {name}\n\n{about} It has the keys of [{map}](status.md#{link}).\n").unwrap();
                }
                Some(map) => {
                    write!(out, "\n## {name}\n\n{about} It has the keys of {}.\n", (WORDS.map)(map)).unwrap();
                    maps.extend(sections_from(map, &root["$defs"][map], &root));
                }
                None => {
                    write_section(&mut out, Section { name, about, keys: keys(kind).expect("a map") }, &root);
                }
            }
        }
        maps.dedup_by(|a, b| a.name == b.name);
        maps.into_iter().for_each(|section| write_section(&mut out, section, &root));
        out
    }

    fn types() -> String {
        let root = schema();
        let mut out = format!("// The status of a daemon, made from crates/protocol/src/wire/status.rs by {HOW}.\n")
            .replace('`', "");
        for Section { name, about, keys } in sections() {
            write!(out, "\n/** {about} */\nexport interface {name} {{\n").unwrap();
            for Key { name, about, optional, schema } in keys {
                let mark = if optional { "?" } else { "" };
                writeln!(out, "  /** {about} */\n  {name}{mark}: {};", TYPESCRIPT.write(&schema, &root)).unwrap();
            }
            out += "}\n";
        }
        out
    }

    #[test]
    fn the_files_made_from_these_types_are_up_to_date() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let page = "crates/daemon/src/http/page/status.d.ts";
        for (path, text) in [("proto/status.md", table()), ("proto/events.md", events()), (page, types())] {
            let path = root.join(path);
            if std::env::var_os("CRITICD_WRITE").is_some() {
                std::fs::write(&path, &text).unwrap();
            }
            let found = std::fs::read_to_string(&path).unwrap_or_default();
            assert!(found == text, "{} is out of date: {HOW} writes it", path.display());
        }
    }

    #[test]
    fn keys_are_free_of_those_of_the_envelope() {
        let root = schema();
        for key in ["v", "id", "ok", "type"] {
            assert!(root["properties"].get(key).is_none(), "{key}");
        }
    }

    #[test]
    fn what_is_missing_has_its_default_and_what_is_new_is_skipped() {
        let status = Status::from_json(&json!({"v": 1, "id": 3, "offset": 7, "of_tomorrow": [1], "critics": [
            {"name": "a", "of_tomorrow": 1},
            {"name": "b", "dictionary_size": 3, "kernel": {"relevance": [0.5]}, "refit": {"last": {"outcome": "rejected"}}},
        ]}));
        let status = status.unwrap();
        assert_eq!((status.offset, status.streams, status.critics.len()), (7, 0, 2));
        assert_eq!(status.critic("a").unwrap().model, None);
        let b = status.critic("b").unwrap();
        let model = b.model.as_ref().unwrap();
        assert_eq!((model.dictionary_size, model.kernel.relevance.of(0), model.score), (3, 0.5, None));
        assert_eq!((b.refit.last.as_ref().unwrap().found.as_ref(), b.held_out_error), (None, None));
        let error = Status::from_json(&json!({"offset": "seven"})).unwrap_err();
        assert!(error.message.contains("the status: invalid type: string \"seven\""), "{}", error.message);
    }

    #[test]
    fn a_status_comes_back_as_it_was_sent() {
        let model = ModelStatus { dictionary_size: 2, score: Some(-1.5), lambda: Some(0.5), ..ModelStatus::default() };
        let found =
            RefitFound { trigger: "rows".into(), evidence_drop: vec![None, Some(0.1 + 0.2)], ..RefitFound::default() };
        let last = LastRefit { outcome: LastRefit::ADOPTED.into(), found: Some(found), ..LastRefit::default() };
        let refit = RefitStatus { last: Some(last), ..RefitStatus::default() };
        let critics = vec![
            CriticStatus { name: "a".into(), refit, model: Some(model), ..CriticStatus::default() },
            CriticStatus { name: "b".into(), ..CriticStatus::default() },
        ];
        let status = Status { offset: u64::MAX, critics, ..Status::default() };
        let sent = crate::wire::to_json(&crate::wire::encode_status(&status)).unwrap();
        assert_eq!(Status::from_json(&sent), Ok(status));
    }
}
