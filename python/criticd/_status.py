"""What `status` answers, as types: `proto/status.md` says what each key means, and a test compares the two.

Daemons add keys, and older ones lack some: at run time these are plain dictionaries with whatever came.
"""

from __future__ import annotations

import sys
from typing import Any, TypedDict, cast

from criticd._protocol import Message

# Type checkers read the annotations at run time too.
if sys.version_info >= (3, 11):
    from typing import NotRequired
else:
    from typing_extensions import NotRequired


class QueueStatus(TypedDict):
    """Messages that wait in a queue, and how many it holds."""

    waiting: int
    max: int


class EvaluationsStatus(TypedDict):
    """Evaluations of other policies: those that wait or run, and the share of the running one that is done."""

    under_way: int
    share: float


class QueuesStatus(TypedDict):
    """The daemon's queues, as of the last second."""

    ingest: QueueStatus
    calls: QueueStatus
    publish: QueueStatus
    evaluations: EvaluationsStatus


class WindowStatus(TypedDict):
    """Rows kept for model selection; `bytes_per_row` is None before the first row."""

    rows: int
    rows_max: int
    bytes: int
    bytes_per_row: int | None


class StreamPosition(TypedDict):
    """Where a stream stands; `last_seen` in Unix seconds."""

    session: str
    next_seq: int
    rows: int
    last_seen: float


class CheckpointStatus(TypedDict):
    """The last checkpoint of this run."""

    offset: int
    bytes: int
    seconds: float
    time: float


class JournalStatus(TypedDict):
    """The rows on disk."""

    sync: str
    rows: int
    bytes: int
    groups: int
    first_offset: int
    durable_offset: int
    last_sync_s: float
    failures: int
    checkpoint_offset: int | None
    checkpoint: CheckpointStatus | None
    checkpoint_time: float | None
    checkpoint_failures: int
    checkpoint_failure: str | None


class RecoveredStatus(TypedDict):
    """What the start found."""

    offset: int
    from_checkpoint: int | None
    rows_replayed: int
    groups_read: int
    torn_bytes: int
    faults: list[str]
    set_aside: list[str]


class WarmStartStatus(TypedDict):
    """A table that is being learned first."""

    rows: int
    of: int


class ModelMemoryStatus(TypedDict):
    """What the settings allow the models of one critic, in bytes."""

    critic: str
    element_bytes: int
    bytes_max: int
    beside_bytes_max: int


class MemoryStatus(TypedDict):
    """What the settings allow, in bytes."""

    row_bytes: int
    stream_bytes: int
    window_bytes_max: int
    streams_bytes_max: int
    queues_bytes_max: int
    rebuild_bytes_max: int
    advisors_bytes_max: int
    labels_bytes_max: int
    kept_bytes_max: int
    models: list[ModelMemoryStatus]


class TrustReason(TypedDict):
    """A reason for care: `level` is "warn" or "bad", `of` is "critic", or "daemon" where it holds for all critics."""

    level: str
    of: str
    text: str
    remedy: str


class TrustStatus(TypedDict):
    """Whether to believe the values of a reward: `level` is "good", "wait", "never", "warn" or "bad"."""

    level: str
    sign: str
    title: str
    sentence: str
    reasons: list[TrustReason]
    returns: int | None
    error: float | None
    bias: float | None
    coverage: float | None


class ActionsStatus(TypedDict):
    """The actions of a critic of action values; `names` are empty for a box, `low` and `high` for discrete actions."""

    kind: str
    names: list[str]
    low: list[float]
    high: list[float]
    successor: str
    trace: str
    rows_waiting: int
    rows_unnamed: int
    rows_without_action: int


class RefitStatus(TypedDict):
    """Searches for hyperparameters: how many, whether one runs, at which row the next is due, and the last one."""

    started: int
    adopted: int
    rejected: int
    failed: int
    running: bool
    due: bool
    next_at: int | None
    last: dict[str, Any] | None


class RebuildStatus(TypedDict):
    """A critic that is learned again from the journal: how far it is, or why it failed."""

    rows: int
    of: int
    failed: str | None


class VerifiedHead(TypedDict):
    """The verified returns of one head."""

    name: str
    pairs: int
    coverage: float
    bias: float
    unexplained: float | None
    factor: float


class ApartStatus(TypedDict):
    """Heads that have a kernel and a dictionary of their own."""

    count: int
    dictionary_size: int
    bytes: int


class HeadsStatus(TypedDict):
    """The heads of a critic: predictions that it learns besides its values."""

    count: int
    added: int
    learning: int
    unsolved: int
    groups: int
    bytes: int
    apart: ApartStatus | None
    verified: int
    coverage: float | None
    unexplained_max: float | None
    worst: list[VerifiedHead]


class InfluenceStatus(TypedDict):
    """What a critic has of rows that were taken back; nothing from `free_generation` on."""

    critic: str
    generation: int
    subtracted: bool
    free_generation: int | None
    free_offset: int | None


class RemovalStatus(TypedDict):
    """Rows that were taken back: by whom, why, and what the critics have of them."""

    offset: int
    time: float
    rows: int
    by: str | None
    reason: str | None
    critics: list[InfluenceStatus]


class AdvisorStatus(TypedDict):
    """An advisor: its decisions, those that wait for their cost, the costs that it has learned."""

    name: str
    context_names: list[str]
    output_names: list[str]
    decisions: int
    waiting: int
    waiting_max: int
    learned: int
    dictionary_size: int
    dictionary_max: int
    bytes: int


class PauseStatus(TypedDict):
    """How long adoptions of a model held up the learner, in milliseconds."""

    count: int
    p50: float | None
    p99: float | None
    max: float | None


class CountsStatus(TypedDict):
    """What has happened to the present model."""

    novel_when_full: int
    refreshes: int
    failed_refreshes: int
    failed_snapshots: int
    cuts: int
    terminations: int


class ReturnsStatus(TypedDict):
    """By which factor deviations of returns are widened, and from how many pairs that is known."""

    factor: float
    pairs: int
    coverage: float | None


class AlarmStatus(TypedDict):
    """An alarm about returns that fall too low, and what has come of it since its settings hold."""

    head: str | None
    unknown: bool
    below: float
    false_alarms: float
    missing: int
    on: int
    streams: list[str]
    raised: int
    hits: int
    mistaken: int
    stayed: int
    false_share: float | None
    fell: int
    missed: int
    lead_rows: float | None
    lead_s: float | None


class TrackingStatus(TypedDict):
    """How far what tracks the stream is let in, of each reward, and its half-life in rows; None where it is not."""

    gate: list[float]
    half_life: list[float | None]


class DriftStatus(TypedDict):
    """How far errors have moved, what makes an alarm of that, and what alarms have led to."""

    sensitivity: str
    level: float | None
    threshold: float | None
    forked: bool
    changed_at: int
    kept_models: list[str]
    alarms: int
    last: dict[str, Any] | None
    tracking: TrackingStatus | None


class NoiseStatus(TypedDict):
    """Noise of rewards."""

    model: str
    variance: float


class KernelStatus(TypedDict):
    """Covariance of values; `relevance` is one number for all state variables, or one of each."""

    kind: str
    profile: str
    signal_variance: float
    bias_variance: float
    relevance: float | list[float]
    kinds: NotRequired[list[str]]
    factors: NotRequired[list[list[float]]]
    directions: NotRequired[list[list[float]]]
    strengths: NotRequired[list[float]]
    columns: NotRequired[list[str]]
    column_variances: NotRequired[list[float]]
    unscaled: NotRequired[bool]


class InputsStatus(TypedDict):
    """Standardisation of states."""

    dim: int
    shift: list[float]
    scale: list[float]
    names: NotRequired[list[str]]


# Written as a call because "lambda" is a word of the language. These keys are there once the critic has a model.
_Model = TypedDict(
    "_Model",
    {
        "dictionary_size": int,
        "tolerance": float,
        "tolerance_to_noise": float,
        "running_chains": int,
        "transitions": int,
        "rows_effective": float | None,
        "bytes": int,
        "policy": str | None,
        "policies_kept": list[str],
        "score": float | None,
        "score_recent": float | None,
        "log_evidence": float | None,
        "scale_since_adoption": float | None,
        "lambda": float,
        "provisional": bool,
        "returns": ReturnsStatus | None,
        "drift": DriftStatus,
        "kernel": KernelStatus,
        "noise": NoiseStatus,
        "inputs": InputsStatus,
    },
    total=False,
)


class CriticStatus(_Model):
    """One critic. The keys of its model, from `dictionary_size` to `inputs`, are missing before the first model."""

    name: str
    failed: str | None
    generation: int
    revision: int
    learned: int
    discount: float
    dictionary_max: int
    warmup_rows: int
    refit: RefitStatus
    rebuild: RebuildStatus | None
    heads: HeadsStatus | None
    alarms: list[AlarmStatus]
    held_out_error: float | None
    adoption_pause_ms: PauseStatus
    counts: CountsStatus
    actions: ActionsStatus | None
    rewards: list[int]
    reward_names: list[str]
    trust: list[TrustStatus]
    shares: list[float | None]


class Status(TypedDict):
    """Everything that the daemon knows about itself. None stands for what is not known yet."""

    version: str
    run: int
    pid: int | None
    data_dir: str | None
    uptime_s: float
    time: float
    durable: bool
    read_only: str | None
    journal: JournalStatus | None
    recovered: RecoveredStatus | None
    warm_start: WarmStartStatus | None
    skipped_rows: int
    missing_rows: int
    connections_broken: dict[str, int]
    refit_restarts: int
    http_restarts: int
    offset: int
    rows_per_second: float
    duplicates: int
    streams: int
    recent_streams: dict[str, StreamPosition]
    queues: QueuesStatus
    state_dim: int | None
    rewards_per_row: int | None
    window: WindowStatus
    memory: MemoryStatus | None
    rejected: dict[str, int]
    critics: list[CriticStatus]
    advisors: list[AdvisorStatus]
    removals: list[RemovalStatus]


def status_of(reply: Message) -> Status:
    """The reply to `status`, without the keys that every reply has."""
    return cast(Status, {key: value for key, value in reply.items() if key not in ("v", "id", "ok")})
