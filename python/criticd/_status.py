"""What `status` answers, as types: `proto/status.md` says what each key means. None stands for what is not known.

Daemons add keys, and older ones lack some: at run time these are plain dictionaries with whatever came. The types
below are made from that table, by `CRITICD_WRITE=1 pytest tests/test_status.py` in `python/`.
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


def status_of(reply: Message) -> Status:
    """The reply to `status`, without the keys that every reply has."""
    return cast(Status, {key: value for key, value in reply.items() if key not in ("v", "id", "ok")})


class Status(TypedDict):
    """Everything that the daemon knows about itself."""

    advisors: list[AdvisorStatus]
    connections_broken: dict[str, int]
    critics: list[CriticStatus]
    data_dir: str | None
    duplicates: int
    durable: bool
    http_restarts: int
    journal: JournalStatus | None
    memory: MemoryStatus | None
    missing_rows: int
    offset: int
    pid: int | None
    queues: QueuesStatus
    read_only: str | None
    recent_streams: dict[str, StreamPosition]
    recovered: RecoveredStatus | None
    refit_restarts: int
    rejected: dict[str, int]
    removals: list[RemovalStatus]
    rewards_per_row: int | None
    rows_per_second: float
    run: int
    skipped_rows: int
    state_dim: int | None
    streams: int
    time: float
    uptime_s: float
    version: str
    warm_start: WarmStartStatus | None
    window: WindowStatus


class AdvisorStatus(TypedDict):
    """One advisor: decisions for a context, learned from their costs."""

    bytes: int
    context_names: list[str]
    decisions: int
    dictionary_max: int
    dictionary_size: int
    learned: int
    name: str
    output_names: list[str]
    ridges: list[float]
    waiting: int
    waiting_max: int


_OfCriticStatus = TypedDict("_OfCriticStatus", {"lambda": NotRequired[float | None]})


class CriticStatus(_OfCriticStatus):
    """One critic."""

    actions: ActionsStatus | None
    adoption_pause_ms: PauseStatus
    alarms: list[AlarmStatus]
    bytes: NotRequired[int]
    counts: CountsStatus
    dictionary_max: int
    dictionary_size: NotRequired[int]
    discount: float
    drift: NotRequired[DriftStatus]
    failed: str | None
    generation: int
    heads: HeadsStatus | None
    held_out_error: float | None
    inputs: NotRequired[InputsStatus]
    kernel: NotRequired[KernelStatus]
    learned: int
    log_evidence: NotRequired[float | None]
    name: str
    noise: NotRequired[NoiseStatus]
    policies_kept: NotRequired[list[str]]
    policy: NotRequired[str | None]
    provisional: NotRequired[bool | None]
    rebuild: RebuildStatus | None
    refit: RefitStatus
    returns: NotRequired[ReturnsStatus | None]
    revision: int
    reward_names: list[str]
    rewards: list[int]
    rows_effective: NotRequired[float | None]
    running_chains: NotRequired[int]
    scale_since_adoption: NotRequired[float | None]
    score: NotRequired[float | None]
    score_recent: NotRequired[float | None]
    shares: list[float | None]
    tolerance: NotRequired[float]
    tolerance_to_noise: NotRequired[float]
    transitions: NotRequired[int]
    trust: list[TrustStatus]
    warmup_rows: int


class JournalStatus(TypedDict):
    """The rows on disk."""

    bytes: int
    checkpoint: CheckpointStatus | None
    checkpoint_failure: str | None
    checkpoint_failures: int
    checkpoint_offset: int | None
    checkpoint_time: float | None
    durable_offset: int
    failures: int
    first_offset: int
    groups: int
    last_sync_s: float
    rows: int
    sync: str
    unerased_rows: int
    unerased_since: float | None


class MemoryStatus(TypedDict):
    """The memory that the settings allow, in bytes."""

    advisors_bytes_max: int
    kept_bytes_max: int
    labels_bytes_max: int
    models: list[ModelMemoryStatus]
    queues_bytes_max: int
    rebuild_bytes_max: int
    row_bytes: int
    stream_bytes: int
    streams_bytes_max: int
    window_bytes_max: int


class QueuesStatus(TypedDict):
    """The queues around the core."""

    calls: QueueStatus
    evaluations: EvaluationsStatus
    ingest: QueueStatus
    publish: QueueStatus


class StreamPosition(TypedDict):
    """Where a producer of one stream may go on."""

    last_seen: float
    next_seq: int
    rows: int
    session: str


class RecoveredStatus(TypedDict):
    """What the start found in the data directory."""

    faults: list[str]
    from_checkpoint: int | None
    groups_read: int
    offset: int
    rows_replayed: int
    set_aside: list[str]
    torn_bytes: int


class RemovalStatus(TypedDict):
    """Rows that were taken back."""

    by: str | None
    critics: list[InfluenceStatus]
    offset: int
    reason: str | None
    rows: int
    time: float


class WarmStartStatus(TypedDict):
    """A table that is learned before live rows."""

    of: int
    rows: int


class WindowStatus(TypedDict):
    """Rows kept for model selection."""

    bytes: int
    bytes_per_row: int | None
    rows: int
    rows_max: int


class ActionsStatus(TypedDict):
    """The actions of a critic of action values, and its rows that wait or were left out."""

    high: list[float]
    kind: str
    low: list[float]
    names: list[str]
    rows_unnamed: int
    rows_waiting: int
    rows_without_action: int
    successor: str
    trace: str
    world: NotRequired[WorldStatus | None]


class PauseStatus(TypedDict):
    """For how long adoptions held up the learner, of the last adoptions since the start."""

    count: int
    max: float | None
    p50: float | None
    p99: float | None


class AlarmStatus(TypedDict):
    """An alarm about returns that fall too low, and what has come of it since its settings hold."""

    below: float
    false_alarms: float
    false_share: float | None
    fell: int
    head: str | None
    hits: int
    lead_rows: float | None
    lead_s: float | None
    missed: int
    missing: int
    mistaken: int
    on: int
    raised: int
    stayed: int
    streams: list[str]
    unknown: bool


class CountsStatus(TypedDict):
    """Counts of what happened to the present model."""

    cuts: int
    failed_refreshes: int
    failed_snapshots: int
    novel_when_full: int
    refreshes: int
    terminations: int


class DriftStatus(TypedDict):
    """Changes of the world."""

    alarms: int
    changed_at: int
    forked: bool
    kept_models: list[str]
    last: dict[str, Any] | None
    level: float | None
    sensitivity: str
    threshold: float | None
    tracking: TrackingStatus | None


class HeadsStatus(TypedDict):
    """The heads of a critic: predictions that it learns besides its values."""

    added: int
    apart: ApartStatus | None
    bytes: int
    count: int
    coverage: float | None
    groups: int
    learning: int
    unexplained_max: float | None
    unsolved: int
    verified: int
    worst: list[VerifiedHead]


class InputsStatus(TypedDict):
    """Standardisation of states: the inputs of a snapshot."""

    dim: int
    names: NotRequired[list[str]]
    scale: list[float]
    shift: list[float]


class KernelStatus(TypedDict):
    """Covariance of values: the kernel of a snapshot."""

    bias_variance: float
    column_variances: NotRequired[list[float]]
    columns: NotRequired[list[str]]
    directions: NotRequired[list[list[float]]]
    factors: NotRequired[list[list[float]]]
    kind: str
    kinds: NotRequired[list[str]]
    profile: str
    relevance: float | list[float]
    signal_variance: float
    strengths: NotRequired[list[float]]
    unscaled: NotRequired[bool]


class NoiseStatus(TypedDict):
    """Noise of rewards, as a snapshot has it."""

    model: str
    variance: float


class RebuildStatus(TypedDict):
    """A critic that is learned again from the journal."""

    failed: str | None
    of: int
    rows: int


class RefitStatus(TypedDict):
    """The refits of a critic."""

    adopted: int
    due: bool
    failed: int
    last: dict[str, Any] | None
    next_at: int | None
    rejected: int
    running: bool
    spent: float | None
    started: int


class ReturnsStatus(TypedDict):
    """How well deviations of returns were verified."""

    coverage: float | None
    factor: float
    pairs: int


class TrustStatus(TypedDict):
    """Whether to believe the values of a reward: judged by the returns that came, by refusals, storage and drift."""

    bias: float | None
    coverage: float | None
    error: float | None
    level: str
    reasons: list[TrustReason]
    returns: int | None
    sentence: str
    sign: str
    title: str


class CheckpointStatus(TypedDict):
    """A checkpoint that was written."""

    bytes: int
    offset: int
    seconds: float
    time: float


class ModelMemoryStatus(TypedDict):
    """The memory that the settings allow the models of one critic, in bytes."""

    beside_bytes_max: int
    bytes_max: int
    critic: str
    element_bytes: int


class QueueStatus(TypedDict):
    """One queue."""

    max: int
    waiting: int


class EvaluationsStatus(TypedDict):
    """Evaluations of other policies that were asked for."""

    share: float
    under_way: int


class InfluenceStatus(TypedDict):
    """What a critic has of rows that were taken back."""

    critic: str
    free_generation: int | None
    free_offset: int | None
    generation: int
    subtracted: bool


class WorldStatus(TypedDict):
    """A model of the transition, which `plan` and `rollout` ask."""

    elements: int
    held_out_error: float | None
    lost: float | None
    refused: str | None
    successors: int
    transitions: float


class TrackingStatus(TypedDict):
    """What tracks the stream beside the base."""

    gate: list[float]
    half_life: list[float | None]


class ApartStatus(TypedDict):
    """Heads that have a kernel and a dictionary of their own."""

    bytes: int
    count: int
    dictionary_size: int


class VerifiedHead(TypedDict):
    """The verified returns of one head."""

    bias: float
    coverage: float
    factor: float
    name: str
    pairs: int
    unexplained: float | None


class TrustReason(TypedDict):
    """A reason for care."""

    level: str
    of: str
    remedy: str
    text: str
