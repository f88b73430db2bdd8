// The status of a daemon, made from crates/protocol/src/wire/status.rs by CRITICD_WRITE=1 cargo test --release -p criticd-protocol wire::status.

/** Everything that the daemon knows about itself. */
export interface Status {
  /** The advisors, in the order of the settings. */
  advisors: AdvisorStatus[];
  /** Connections of producers that broke since the start, so that rows may be lost: by `reset`, or within a message (`mid_message`). */
  connections_broken: Record<string, number>;
  /** The critics, in the order of the settings. */
  critics: CriticStatus[];
  /** Its data directory, as an absolute path; nil without a journal. */
  data_dir: string | null;
  /** Rows that came although they were known already. */
  duplicates: number;
  /** Whether there is a journal. Without one nothing outlives the daemon. */
  durable: boolean;
  /** Times that the threads of the dashboard or of the monitor had to be started again. */
  http_restarts: number;
  /** The rows on disk; nil without a journal. */
  journal: JournalStatus | null;
  /** The memory that the settings allow; nil until D is known. */
  memory: MemoryStatus | null;
  /** Rows left out on ingest by their `seq`, since the start. */
  missing_rows: number;
  /** Rows stored, of all streams. */
  offset: number;
  /** Number of its process, on its machine and in its container; nil from an older daemon. */
  pid: number | null;
  /** The daemon's queues, as of the last second. */
  queues: QueuesStatus;
  /** Why nothing can be stored now; nil while rows are stored. */
  read_only: string | null;
  /** The streams that sent something last, at most 32, by name. */
  recent_streams: Record<string, StreamPosition>;
  /** What the start found in the data directory; nil without a journal. */
  recovered: RecoveredStatus | null;
  /** Times that the refit thread had to be started again. */
  refit_restarts: number;
  /** Messages refused on ingest, and appends, by error code; not those that their sender has but to send again. */
  rejected: Record<string, number>;
  /** The last times that rows were taken back, at most 64, the last one first. */
  removals: RemovalStatus[];
  /** Rewards in a row, H; nil before the first row. */
  rewards_per_row: number | null;
  /** Rows stored per second, averaged over a few seconds. */
  rows_per_second: number;
  /** Number of this run of the daemon, as in publications: the Unix time of its start in milliseconds. Revisions are of one run. */
  run: number;
  /** Rows that critics left out since the start because a learner failed on them. */
  skipped_rows: number;
  /** Numbers in a state, D; nil before the first row. */
  state_dim: number | null;
  /** Streams that are told apart. */
  streams: number;
  /** When this was said, Unix seconds. */
  time: number;
  /** Seconds since the daemon started. */
  uptime_s: number;
  /** Version of the program. */
  version: string;
  /** The table that is learned before live rows; nil when there is none, or when it is learned. */
  warm_start: WarmStartStatus | null;
  /** Rows kept for model selection. */
  window: WindowStatus;
}

/** One advisor: decisions for a context, learned from their costs. */
export interface AdvisorStatus {
  /** Bytes that it takes. */
  bytes: number;
  /** Names of the variables of a context; empty if they have none. */
  context_names: string[];
  /** Decisions so far; the next one gets this number. */
  decisions: number;
  /** Contexts that the dictionary may have. */
  dictionary_max: number;
  /** Contexts in its dictionary. */
  dictionary_size: number;
  /** Costs learned. */
  learned: number;
  /** Its name. */
  name: string;
  /** Names of the numbers of a decision, each of which may be empty. */
  output_names: string[];
  /** Ridge of each number of a decision: as set, or the one that the evidence has chosen. */
  ridges: number[];
  /** Decisions that wait for their cost. */
  waiting: number;
  /** Decisions that may wait; the oldest is given up for a further one. */
  waiting_max: number;
}

/** One critic. */
export interface CriticStatus {
  /** The actions that it values; nil if it learns values of states. */
  actions: ActionsStatus | null;
  /** For how long adoptions held up the learner. */
  adoption_pause_ms: PauseStatus;
  /** The alarms of the setting `alarm`, in their order; empty if there are none. */
  alarms: AlarmStatus[];
  /** Bytes of the model, and of those kept beside it. */
  bytes?: number;
  /** Counts of what happened to the present model. */
  counts: CountsStatus;
  /** Elements that the dictionary may hold. */
  dictionary_max: number;
  /** Elements of the dictionary. A status with this key has a model. */
  dictionary_size?: number;
  /** The setting `discount`, 0 to 1. */
  discount: number;
  /** Changes of the world. */
  drift?: DriftStatus;
  /** Why it learns no more; nil while it learns. */
  failed: string | null;
  /** Number of the model in use: 0 before the first, one more with every adoption. */
  generation: number;
  /** The heads; nil if there are none. */
  heads: HeadsStatus | null;
  /** Error of held-out returns that the model in use was adopted with, 1 for a constant; nil if the evidence chose it, and after a start. */
  held_out_error: number | null;
  /** Standardisation of states. */
  inputs?: InputsStatus;
  /** Covariance of values. */
  kernel?: KernelStatus;
  /** lambda of the returns that the weights are learned from, 0 to 1; nil before the first snapshot. */
  lambda?: number | null;
  /** Rows learned from the stream. */
  learned: number;
  /** Log evidence of the model on the rows that it holds, nats; nil where held-out returns chose it or lambda is below 1. */
  log_evidence?: number | null;
  /** Its name. */
  name: string;
  /** Noise of rewards. */
  noise?: NoiseStatus;
  /** Policies that a model is kept of. */
  policies_kept?: string[];
  /** Policy that acts; nil if it has no name. */
  policy?: string | null;
  /** Whether model selection has not chosen the model yet: its deviations are the prior's. */
  provisional?: boolean | null;
  /** The rebuild from the journal that runs, waits or failed; nil if there is none. */
  rebuild: RebuildStatus | null;
  /** The refits. */
  refit: RefitStatus;
  /** How well deviations of returns were verified; nil where the spread of returns is not known. */
  returns?: ReturnsStatus | null;
  /** Number of the last publication. */
  revision: number;
  /** (H,), what its rewards are called, by the settings or by who sends rows; empty if that is not known. */
  reward_names: string[];
  /** (H,), the setting `rewards`: columns of its rewards, from 0. */
  rewards: number[];
  /** Sum of the weights of these rows; nil if no rows are forgotten. */
  rows_effective?: number | null;
  /** Noise chains that are running. */
  running_chains?: number;
  /** Factor on the kernel's variances since the adoption, tuned row by row. */
  scale_since_adoption?: number | null;
  /** Log score of the predictions since the adoption, nats per row; nil before the first. */
  score?: number | null;
  /** The same over the last rows, nats per row; nil before the first. */
  score_recent?: number | null;
  /** (D,), share of the variance of the first reward's value that hangs on each state variable, over visited states; nil for one that was not examined. Empty before the daemon has found them. */
  shares: (number | null)[];
  /** Tolerance of the dictionary relative to the prior variance. */
  tolerance?: number;
  /** The same tolerance relative to the noise variance. */
  tolerance_to_noise?: number;
  /** Rows that the model's statistics hold. */
  transitions?: number;
  /** (H,), whether to believe the values of each reward; empty before the daemon has judged the model in use. */
  trust: TrustStatus[];
  /** Rows that a first model needs. */
  warmup_rows: number;
}

/** The rows on disk. */
export interface JournalStatus {
  /** Bytes kept. */
  bytes: number;
  /** The last checkpoint of this run; nil before it. */
  checkpoint: CheckpointStatus | null;
  /** Why the last checkpoint could not be written; nil if it was. */
  checkpoint_failure: string | null;
  /** Checkpoints that could not be written. */
  checkpoint_failures: number;
  /** Offset of the newest checkpoint; nil without one. */
  checkpoint_offset: number | null;
  /** When the newest checkpoint was written, Unix seconds; nil without one. */
  checkpoint_time: number | null;
  /** Rows before this offset survive a power cut. */
  durable_offset: number;
  /** Commits that failed. */
  failures: number;
  /** Offset of the first row kept. */
  first_offset: number;
  /** Groups kept: rows that were stored together. */
  groups: number;
  /** Seconds that the last commit took. */
  last_sync_s: number;
  /** Rows kept. */
  rows: number;
  /** When the journal is synchronised with the disk: the setting `sync`. */
  sync: string;
  /** Rows that were taken back and whose bytes are still here: `criticd erase` erases them while the daemon is stopped. */
  unerased_rows: number;
  /** When rows were first taken back since the last erasure, of the last 64 removals, Unix seconds; nil where no such row is here. */
  unerased_since: number | null;
}

/** The memory that the settings allow, in bytes. */
export interface MemoryStatus {
  /** Bytes of all advisors. */
  advisors_bytes_max: number;
  /** Bytes of window, streams, models, advisors and labels together. */
  kept_bytes_max: number;
  /** Bytes of the labels that heads learn from: as they were sent, and beside the retained rows. */
  labels_bytes_max: number;
  /** Bytes of the models, of each critic. */
  models: ModelMemoryStatus[];
  /** Bytes of the messages on their way, all as large as they may be. */
  queues_bytes_max: number;
  /** Bytes of a rebuild from the journal: the critic, the groups that it reads, and its record; 0 without a journal. */
  rebuild_bytes_max: number;
  /** Bytes of one retained row. */
  row_bytes: number;
  /** Bytes of one stream with names as long as the protocol allows; with a journal also those in a checkpoint that is written. */
  stream_bytes: number;
  /** Bytes of all streams. */
  streams_bytes_max: number;
  /** Bytes of all retained rows. */
  window_bytes_max: number;
}

/** The queues around the core. */
export interface QueuesStatus {
  /** Requests that only the core can answer. */
  calls: QueueStatus;
  /** Evaluations of other policies. */
  evaluations: EvaluationsStatus;
  /** Messages of producers. */
  ingest: QueueStatus;
  /** Messages to subscribers. */
  publish: QueueStatus;
}

/** Where a producer of one stream may go on. */
export interface StreamPosition {
  /** Unix seconds when the last row came. */
  last_seen: number;
  /** `seq` of the next row of that session. */
  next_seq: number;
  /** Rows learned from the stream, all sessions. */
  rows: number;
  /** Its newest session. */
  session: string;
}

/** What the start found in the data directory. */
export interface RecoveredStatus {
  /** Why checkpoints were passed over, one text each. */
  faults: string[];
  /** Offset of the checkpoint that was read; nil if none was. */
  from_checkpoint: number | null;
  /** Groups read from the journal. */
  groups_read: number;
  /** Rows found. */
  offset: number;
  /** Rows learned again from the journal. */
  rows_replayed: number;
  /** Models that the start set aside because other settings are in force now, one text each. */
  set_aside: string[];
  /** Bytes of an unfinished commit that were cut off. */
  torn_bytes: number;
}

/** Rows that were taken back. */
export interface RemovalStatus {
  /** Who asked, in their own words; nil where they did not say. */
  by: string | null;
  /** The critics that had a model then. */
  critics: InfluenceStatus[];
  /** Offset behind the last row when it was done. */
  offset: number;
  /** Why, in their own words; nil where they did not say. */
  reason: string | null;
  /** Rows that were taken back. */
  rows: number;
  /** Unix seconds then. */
  time: number;
}

/** A table that is learned before live rows. */
export interface WarmStartStatus {
  /** Rows of the table. */
  of: number;
  /** Rows taken in. */
  rows: number;
}

/** Rows kept for model selection. */
export interface WindowStatus {
  /** Bytes that they take. */
  bytes: number;
  /** Bytes of one row; nil before the first row. */
  bytes_per_row: number | null;
  /** Rows kept. */
  rows: number;
  /** Rows that may be kept. */
  rows_max: number;
}

/** The actions of a critic of action values, and its rows that wait or were left out. */
export interface ActionsStatus {
  /** Largest of each number. */
  high: number[];
  /** `discrete` or `box`. */
  kind: string;
  /** Least of each number of an action; empty if they are discrete. */
  low: number[];
  /** Names of the discrete actions: from the setting or from rows, or their numbers; empty for a box. */
  names: string[];
  /** Rows that were not learned since nothing named the action that follows them. */
  rows_unnamed: number;
  /** Rows that wait for the action that follows them. */
  rows_waiting: number;
  /** Rows of the journal that have none of these actions. */
  rows_without_action: number;
  /** The setting `successor`: whose action follows a row. */
  successor: string;
  /** The setting `trace`. */
  trace: string;
  /** What it has learned of where actions lead, or why not; nil without the setting `world`. */
  world?: WorldStatus | null;
}

/** For how long adoptions held up the learner, of the last adoptions since the start. */
export interface PauseStatus {
  /** Pauses measured. */
  count: number;
  /** The longest, milliseconds. */
  max: number | null;
  /** Median, milliseconds; nil before the first, as are the two below. */
  p50: number | null;
  /** 99 % of the pauses are at most so long, milliseconds. */
  p99: number | null;
}

/** An alarm about returns that fall too low, and what has come of it since its settings hold. */
export interface AlarmStatus {
  /** The setting `below`: what the return is not to fall below. */
  below: number;
  /** The setting `false_alarms`, 0.001 to 0.5. */
  false_alarms: number;
  /** Share of the returns in `stayed` at whose row the alarm was on, 0 to 1; nil before the first. */
  false_share: number | null;
  /** Followed returns that fell below. */
  fell: number;
  /** Name of the head that it is about; nil for the first of the critic's rewards. */
  head: string | null;
  /** Alarms from whose row on the return fell below. */
  hits: number;
  /** Mean rows from the row that raised an alarm to the one since which the return was below, of `hits`; nil before the first. */
  lead_rows: number | null;
  /** The same as `lead_rows` in seconds, of hits whose rows have times; nil where none has. */
  lead_s: number | null;
  /** Returns in `fell` that no alarm foretold before they were below for good. */
  missed: number;
  /** Returns that are still to stay above before an alarm can be raised; 0 from then on. */
  missing: number;
  /** Alarms from whose row on the return stayed above. */
  mistaken: number;
  /** Streams whose alarm is on. */
  on: number;
  /** Alarms raised. */
  raised: number;
  /** Returns of rows that were followed, whether an alarm was on or not, and that stayed above. */
  stayed: number;
  /** Names of streams whose alarm is on, at most 8. */
  streams: string[];
  /** Whether the critic has no head of this name: nothing is foretold until it is declared. */
  unknown: boolean;
}

/** Counts of what happened to the present model. */
export interface CountsStatus {
  /** Chains that were cut. */
  cuts: number;
  /** Times that this failed. */
  failed_refreshes: number;
  /** Snapshots that could not be made since the start. */
  failed_snapshots: number;
  /** Novel states that found the dictionary full. */
  novel_when_full: number;
  /** Times that the weights were solved for. */
  refreshes: number;
  /** Chains that ended at a terminal state. */
  terminations: number;
}

/** Changes of the world. */
export interface DriftStatus {
  /** Alarms since the start. */
  alarms: number;
  /** Rows before this offset are of another world or policy. Refits leave them out. */
  changed_at: number;
  /** Whether a second model learns beside the first. */
  forked: boolean;
  /** Names of the models that may return. */
  kept_models: string[];
  /** The last alarm, as the event `drift` has it; nil before it. */
  last: DriftAlarm | null;
  /** Evidence of a change in the errors; nil while too little is known. */
  level: number | null;
  /** The setting `drift_sensitivity`. */
  sensitivity: string;
  /** Level of an alarm; nil where nothing is watched. */
  threshold: number | null;
  /** What tracks the stream beside the base; nil where nothing is tracked. */
  tracking: TrackingStatus | null;
}

/** The heads of a critic: predictions that it learns besides its values. This part does not grow with their number. */
export interface HeadsStatus {
  /** Heads that were added at run time and are not in the configuration. */
  added: number;
  /** Those that a refit has given a kernel of their own; nil where all share the kernel of the values. */
  apart: ApartStatus | null;
  /** Bytes of their statistics. */
  bytes: number;
  /** How many there are. */
  count: number;
  /** Mean coverage of the verified heads, before the factor, 0 to 1; nil if there are none. */
  coverage: number | null;
  /** Different discounts and continuations among those that the model has learned. */
  groups: number;
  /** Heads that are not ready: the critic's rebuild learns them, and its `rebuild` has the progress. */
  learning: number;
  /** Largest unexplained variance of a verified head, over the variance of its returns; nil where none vary. */
  unexplained_max: number | null;
  /** Heads that the model has learned and its newest snapshot lacks: it is not made yet, or they cannot be solved for. */
  unsolved: number;
  /** Heads of which enough returns have been compared with their predictions. */
  verified: number;
  /** Of the verified heads the ten whose coverage is farthest from 0.9. */
  worst: VerifiedHead[];
}

/** Standardisation of states: the inputs of a snapshot. */
export interface InputsStatus {
  /** Numbers in a state, D. */
  dim: number;
  /** (D,), names of the state variables; left out if they have none. */
  names?: string[] | null;
  /** (D,), unit of the state, positive. */
  scale: number[];
  /** (D,), unit of the state. */
  shift: number[];
}

/** Covariance of values: the kernel of a snapshot. */
export interface KernelStatus {
  /** Square of the unit of the value. */
  bias_variance: number;
  /** (q,): prior variances of their coefficients, square of the unit of the value. */
  column_variances?: number[];
  /** Explicit columns (q,), which come before the dictionary: `constant`, `linear:D`, `bounded:D`, `cosine:D` or `sine:D` of state variable D; left out where there are none. */
  columns?: string[];
  /** (D, D), of kind `factor`: unit eigenvectors of Omega, row by row. */
  directions?: number[][] | null;
  /** (k, D), of kind `factor`. */
  factors?: number[][] | null;
  /** `isotropic`, `ard` or `factor`. */
  kind: string;
  /** `real`, `asinh:C:S:W`, `periodic:P` or `category` of each state variable; left out where all are real. */
  kinds?: string[];
  /** `gaussian` or `matern52`. */
  profile: string;
  /** One over the squared lengthscale of each state variable in standardised coordinates, or one number for all. */
  relevance: number | number[];
  /** Square of the unit of the value. */
  signal_variance: number;
  /** (D,), of kind `factor`: the eigenvalues of Omega, the largest first. */
  strengths?: number[] | null;
  /** Whether all rewards have been 0 so far: nothing tells how large values may be, and they have no deviations. */
  unscaled?: boolean;
}

/** Noise of rewards, as a snapshot has it. */
export interface NoiseStatus {
  /** `correlated` or `white`. */
  model: string;
  /** Square of the unit of the reward. */
  variance: number;
}

/** A critic that is learned again from the journal. */
export interface RebuildStatus {
  /** Why the last rebuild failed; nil if it did not. */
  failed: string | null;
  /** Rows there are to learn; 0 before that is known. */
  of: number;
  /** Rows learned so far. */
  rows: number;
}

/** The refits of a critic. */
export interface RefitStatus {
  /** Refits whose model was adopted. */
  adopted: number;
  /** Whether a refit or an improvement is due that has not begun. */
  due: boolean;
  /** Refits that found no model. */
  failed: number;
  /** How the last one ended; nil before that. */
  last: LastRefit | null;
  /** Offset of the row at which the next one is due; nil if refits run on request only. */
  next_at: number | null;
  /** Refits whose model was rejected. */
  rejected: number;
  /** Whether one runs. */
  running: boolean;
  /** Share of its budget that the search of the one that runs has spent, 0 to 1; nil where none runs. */
  spent: number | null;
  /** Refits started since the start, as are the counts below. */
  started: number;
}

/** How well deviations of returns were verified. */
export interface ReturnsStatus {
  /** Share of these returns in the 90 % interval before the factor, 0 to 1; nil before the first pair. */
  coverage: number | null;
  /** Factor on deviations of returns; the last refit's below 16 pairs. */
  factor: number;
  /** Pairs of prediction and return behind it. */
  pairs: number;
}

/** Whether to believe the values of a reward: judged by the returns that came, by refusals, storage and drift. */
export interface TrustStatus {
  /** Mean of return minus prediction, unit of the reward; nil where `returns` is. */
  bias: number | null;
  /** Share of the returns in the 90 % interval that was stated, with the factor on deviations, 0 to 1; nil where `returns` is. */
  coverage: number | null;
  /** Root mean square of return minus prediction, unit of the reward; nil where `returns` is. */
  error: number | null;
  /** `good`, `wait` (too few returns), `never` (no return says), `warn` or `bad`. */
  level: string;
  /** Why the level is `warn` or `bad`. */
  reasons: TrustReason[];
  /** Separate returns that it is judged by; nil before there are enough. */
  returns: number | null;
  /** Error, coverage and drift, a sentence. */
  sentence: string;
  /** A sign for it, which colours go with: ●, ○, ▲ or ■. */
  sign: string;
  /** The same in words, without a full stop. */
  title: string;
}

/** A checkpoint that was written. */
export interface CheckpointStatus {
  /** Bytes on disk. */
  bytes: number;
  /** Rows that it holds the result of. */
  offset: number;
  /** Seconds that encoding and writing took. */
  seconds: number;
  /** When it was written, Unix seconds. */
  time: number;
}

/** The memory that the settings allow the models of one critic, in bytes. */
export interface ModelMemoryStatus {
  /** Bytes of the second model and of those kept, where the world or the policy may change. */
  beside_bytes_max: number;
  /** Bytes of the model with the largest dictionary. */
  bytes_max: number;
  /** Name of the critic. */
  critic: string;
  /** Bytes of one dictionary element of the largest dictionary. */
  element_bytes: number;
}

/** One queue. */
export interface QueueStatus {
  /** Messages that the queue holds. */
  max: number;
  /** Messages that wait. */
  waiting: number;
}

/** Evaluations of other policies that were asked for. */
export interface EvaluationsStatus {
  /** Share of the running one that is done, from 0 to 1. */
  share: number;
  /** Those that wait or run. */
  under_way: number;
}

/** What a critic has of rows that were taken back. */
export interface InfluenceStatus {
  /** Name of the critic. */
  critic: string;
  /** Its first generation of which kernel and dictionary, too, were chosen without the rows; nil while there is none. */
  free_generation: number | null;
  /** Offset behind the last row when that took over; nil while it has not. */
  free_offset: number | null;
  /** Its first generation behind the removal. */
  generation: number;
  /** Whether its sums were without the rows from there on. If not, it is stale: it answers as before until it is learned again. */
  subtracted: boolean;
}

/** A model of the transition, which `plan` and `rollout` ask. */
export interface WorldStatus {
  /** States with actions that it is made of; 0 where there is none, as before the first refit. */
  elements: number;
  /** Mean squared error of predictions up to eight steps ahead for held-out rows, over the variance of what came; nil where there is no model. */
  held_out_error: number | null;
  /** What the latter cannot express of successors, from 0; above 0.5 there is no answer. */
  lost: number | null;
  /** Why the last refit since the start made no model; nil where it made one, or none has ended. */
  refused: string | null;
  /** States that it expresses successors in. */
  successors: number;
  /** Rows learned, as far as they count. */
  transitions: number;
}

/** An alarm: the errors of a critic have changed. */
export interface DriftAlarm {
  /** Name of the critic. */
  critic: string;
  /** Evidence of the change. */
  level: number;
  /** Rows learned when the alarm was raised. */
  offset: number;
  /** Column of the reward. */
  reward: number;
  /** Offset of about the first row of the new world. */
  since: number;
  /** Size of the change, unit of the reward. */
  size: number;
  /** `higher`, `lower`, or `wider`: the errors scatter more. */
  statistic: string;
  /** Names of the few streams that it concerns; empty if it concerns all. */
  streams: string[];
  /** State variables that moved with it. */
  variables: MovedVariable[];
}

/** What tracks the stream beside the base. */
export interface TrackingStatus {
  /** How far the mixture is let in, 0 to 1, of each reward; 0 where the values are the base's. */
  gate: number[];
  /** Half-life, rows, that half of the trackers' weight does not exceed, of each reward; nil where the gate is shut. */
  half_life: (number | null)[];
}

/** Heads that have a kernel and a dictionary of their own. */
export interface ApartStatus {
  /** Bytes of the model that learns them, its statistics among them. */
  bytes: number;
  /** How many there are. */
  count: number;
  /** Elements of their dictionary. */
  dictionary_size: number;
}

/** The verified returns of one head. */
export interface VerifiedHead {
  /** Mean of the returns less the predicted values, in the unit of the return. */
  bias: number;
  /** Share of them in the 90 % interval as it was predicted, before the factor, 0 to 1. */
  coverage: number;
  /** What deviations of returns are multiplied by, 0.25 to 4. */
  factor: number;
  /** Its name. */
  name: string;
  /** Returns that were compared with what had been predicted, 40 to 256: the last ones. */
  pairs: number;
  /** Variance of these differences over the variance of the returns, from 0; nil where returns do not vary. */
  unexplained: number | null;
}

/** How a refit ended, as the events `adopted` and `refit_rejected` have it. */
export interface LastRefit {
  /** Bounds that hold the optimum, in words. */
  active_bounds?: string[];
  /** Name of the critic. */
  critic: string;
  /** The rule that chose the dictionary; nil where ICD (pivoted incomplete Cholesky) had no rival. */
  dictionary?: DictionaryFound | null;
  /** Elements of the new dictionary. */
  dictionary_size?: number;
  /** Directions of a factor model, the strongest first. */
  directions?: DirectionFound[];
  /** Evaluations of the evidence with its gradient. */
  evaluations?: number;
  /** `exact` or `sparse`: the evidence that chose the hyperparameters. */
  evidence?: string;
  /** Log evidence of the hyperparameters found, nats, on the same rows and targets. */
  evidence_after?: number | null;
  /** Log evidence of the hyperparameters before, nats; nil if they fail on those rows, or held-out returns chose. */
  evidence_before?: number | null;
  /** Evidence lost without each state variable, nats; nil where it could not be computed. */
  evidence_drop?: (number | null)[];
  /** `exact` or `sparse`: the evidence of `evidence_drop`; nil without one. */
  evidence_drop_by?: string | null;
  /** Exact evidence lost for what the dictionary can carry, nats; nil if only one evidence was used. */
  evidence_loss?: number | null;
  /** Rows that this evidence was computed on. */
  evidence_rows?: number;
  /** What people should know of the search, a sentence each. */
  findings?: string[];
  /** Share of the noise that the targets account for: 1 at an optimum that no bound holds. */
  fit_ratio?: number | null;
  /** Number of the model in use afterwards. */
  generation: number;
  /** Heads whose summed evidence chose the kernel, rewards among them; nil if the rewards alone chose. */
  heads?: number | null;
  /** Whether the state hides something of what follows; nil where that could not be found out. */
  hidden_state?: HiddenFound | null;
  /** How the sweeps of an improvement ended; nil if actions were not improved. */
  improvement?: ImprovementFound | null;
  /** Rows learned when the refit ended. */
  offset?: number | null;
  /** Whether the budget ended the search. */
  out_of_time?: boolean;
  /** `adopted` or `rejected`. */
  outcome: string;
  /** Why the model was rejected. */
  reason?: string | null;
  /** What the kernel makes of each state variable, a sentence each. */
  relevance_report?: string[];
  /** Rows that it looked at. */
  rows?: number;
  /** Sum of the weights of the rows of the new model; nil if no rows are forgotten. */
  rows_effective?: number | null;
  /** Rows that the model never learned because the stream was too fast. */
  rows_left_out?: number;
  /** Log score of the adopted model on the same rows, nats per row. */
  score_after?: number | null;
  /** Log score of the model before, on the rows that both models predicted, nats per row. */
  score_before?: number | null;
  /** Seconds that the refit took. */
  seconds?: number | null;
  /** How held-out returns chose the model, or lambda and ridge alone where there are `heads`; nil if the evidence chose it. */
  selection?: SelectionFound | null;
  /** Whether two kernels are better than one for all heads; nil where that was not tried. */
  split?: SplitFound | null;
  /** Name of the structure that was chosen. */
  structure?: string;
  /** The structures compared, in the order in which they were tried. */
  structures?: StructureFound[];
  /** Tolerance of the new dictionary relative to the prior variance. */
  tolerance?: number | null;
  /** Evidence that the new dictionary may lack, nats. */
  trace_gap?: number | null;
  /** How the new model did against the model before on rows that chose neither; nil where there was none to compare it with. */
  trial?: TrialFound | null;
  /** Why the refit was started. An outcome with this key tells what was found. */
  trigger?: string;
  /** What each state variable means to the value. */
  variables?: VariableFound[];
  /** How the kernels of the model of the transition were chosen; nil where the critic learns none. */
  world?: WorldFound | null;
}

/** A reason for care. */
export interface TrustReason {
  /** `warn` or `bad`. */
  level: string;
  /** `critic`, or `daemon` where it holds for all critics. */
  of: string;
  /** What to do about it, in sentences. */
  remedy: string;
  /** In words, without a full stop. */
  text: string;
}

/** A state variable that moved with the errors. */
export interface MovedVariable {
  /** Its name. */
  name: string;
  /** Offset of about the first row. */
  since: number;
  /** Size of the change, standard deviations of the variable. */
  size: number;
  /** `higher`, `lower` or `wider`. */
  statistic: string;
  /** Its index, from 0. */
  variable: number;
}

/** The rule that chose a dictionary. */
export interface DictionaryFound {
  /** The rules that were compared; empty where the setting names the rule. */
  compared: RuleFound[];
  /** `icd`, `returns`, `omp-td` or `omp-brm`, as in the setting `dictionary_by`. */
  rule: string;
}

/** A direction of a factor model. */
export interface DirectionFound {
  /** (D,), unit eigenvector of Omega. */
  direction: number[];
  /** Eigenvalue of Omega. */
  strength: number;
}

/** How far values learned from single rewards and values learned from whole returns are apart. */
export interface HiddenFound {
  /** Chains looked at. */
  chains: number;
  /** Whether there are enough chains, and the ratio is so large that what follows depends on more than the state. */
  hidden: boolean;
  /** Mean squared difference over what chance makes of it: about 1 where the state says all. */
  ratio: number;
}

/** How the sweeps of an improvement ended. */
export interface ImprovementFound {
  /** Mean change of the best values in the last one, in parts of their range. */
  change: number;
  /** Share of the rows whose best next value was beyond what rewards and discount allow, from 0 to 1. */
  clipped: number;
  /** Whether values hardly changed in the last one. */
  settled: boolean;
  /** Sweeps made. */
  sweeps: number;
}

/** How held-out returns chose kernel, lambda and ridge. An error is the mean square error over the variance of the targets. */
export interface SelectionFound {
  /** The best of each kernel, the best first. */
  candidates: CandidateFound[];
  /** What people should know, a sentence each. */
  findings: string[];
  /** By how much the best errs less than the model before. */
  gain: number | null;
  /** For each lambda the best that the chosen kernel makes of it. */
  lambdas: LambdaFound[];
  /** Whether the budget ended before all kernels were tried. */
  out_of_time: boolean;
  /** Chains, or pieces of long ones, that they stand in. */
  pieces: number;
  /** Error of the model before; nil without one. */
  present_score: number | null;
  /** Whether the model before stays, because nothing gains more than the standard error. */
  present_stays: boolean;
  /** Rows compared. */
  rows: number;
  /** Error of what was chosen. */
  score: number;
  /** Standard error of that gain over the pieces. */
  standard_error: number | null;
}

/** What a second kernel gains for some of the heads. */
export interface SplitFound {
  /** Over one kernel for all, nats for each row and head. */
  gain: number;
  /** Heads that the second kernel was given; 0 where one for all stays, as below 0.02 nats. */
  heads: number;
}

/** A structure of the covariance that a refit tried. */
export interface StructureFound {
  /** Best log evidence found, nats. */
  log_evidence: number | null;
  /** In words: `isotropic`, `ard without 1, 4`. */
  name: string;
  /** Free hyperparameters. */
  parameters: number;
}

/** How a new model did against the one before on rows that chose neither. */
export interface TrialFound {
  /** By how much the new model errs less, in units of the variance of the targets; if it is below 0 the model before stays. */
  gain: number;
  /** Rows compared, the last ones of the refit. */
  rows: number;
  /** Standard error of that. */
  standard_error: number;
}

/** What a state variable means to the value. */
export interface VariableFound {
  /** Evidence lost without the variable and its copies, nats. */
  evidence_drop: number | null;
  /** Distance over which the value changes, unit of the variable; nil if it is left out. */
  lengthscale: number | null;
  /** The same distance in standard deviations of the variable. */
  lengthscale_in_deviations: number | null;
  /** Its name. */
  name: string;
  /** Entry of Omega on the diagonal; 0 if the variable is left out. */
  relevance: number;
  /** `kept` in the kernel, `removed` from it, `constant`, or `copy` of another one. */
  verdict: string;
}

/** How the kernels of a model of the transition were chosen, or why there is none. */
export interface WorldFound {
  /** Mean squared error of predictions up to eight steps ahead for held-out rows, over the variance of what came. */
  held_out_error: number | null;
  /** Kernels compared. */
  kernels: number;
  /** Whether the budget ended before all were. */
  out_of_time: boolean;
  /** Largest spectral radius of the model under some policies: well above 1 it makes mass of nothing. */
  radius: number | null;
  /** Why none was made: the model before, if there is one, stays. Without it the rest is known. */
  refused: string | null;
}

/** How a rule did on returns later than the rows that it chose from. */
export interface RuleFound {
  /** Elements that it chose. */
  elements: number;
  /** Squared error of later returns over their variance, averaged over values and heads; nil where no return was complete. */
  relative_squared_error: number | null;
  /** `icd`, `returns`, `omp-td` or `omp-brm`. */
  rule: string;
  /** Standard error of the difference of that from the error of `icd`, over stretches of the rows; nil where one of them is not known. */
  standard_error: number | null;
}

/** A kernel at its best. */
export interface CandidateFound {
  /** Elements of its dictionary. */
  elements: number;
  /** Its best lambda. */
  lambda: number;
  /** Where it comes from: `present`, `isotropic 0.3`, `ard 1 x 3.00`. */
  name: string;
  /** Its best ridge: noise variance over signal variance. */
  ridge: number;
  /** Its error. */
  score: number;
}

/** A lambda with the chosen kernel. */
export interface LambdaFound {
  /** The lambda. */
  lambda: number;
  /** Its best ridge: noise variance over signal variance. */
  ridge: number;
  /** Its error over the best lambda's: 1 for the best. */
  score: number;
}
