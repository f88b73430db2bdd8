"""Requests to the daemon, one at a time: ask for values, models, positions; append rows; start model selection."""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

import numpy as np
import numpy.typing as npt
import zmq

from criticd import _labels
from criticd._act import Decisions, decisions_of
from criticd._act import request as act_request
from criticd._evaluation import Evaluation, Policy
from criticd._evaluation import requests as evaluation_requests
from criticd._fork import stays, watch
from criticd._protocol import (
    Address,
    Ask,
    CriticdError,
    Hello,
    Malformed,
    Message,
    NoReply,
    Refused,
    Steps,
    Unreachable,
    answer,
    once,
    pack,
    refuse_keywords,
    unpack,
)
from criticd._status import Status, status_of
from criticd._values import checked, numbers
from criticd._what_if import Course, Planned, plan_live, rollout_live
from criticd.keys import Keys
from criticd.snapshot import Snapshot, Values

if TYPE_CHECKING:
    from typing_extensions import Self

_T = TypeVar("_T")

PAGE_ATTEMPTS = 8
"""How often a model that was replaced while its pages were fetched is asked for again."""
STREAMS_PER_REQUEST = 1024
"""Streams that one request may name."""
SILENCE_MS = 6000
"""How long a connection may owe the answer to a heartbeat before it counts as broken."""


@dataclass(frozen=True, eq=False)
class Value(Values):
    """What the daemon says about some states (n, D): `Values`, whose axis of states is always there.

    ```python
    answer = client.value([[0.5]], std=True)
    print(answer.mean, answer.std, answer.generation, answer.offset)
    ```

    `generation` is the model that answered, `offset` the number of rows it had learned, `lambda_` what with. While it
    is `provisional`, model selection has not chosen it yet, and deviations are the prior's. They are None while all
    rewards so far are 0, and before `warmup_rows` rows while all are the same, since these leave open how large
    values are. `generation` is 0 before `warmup_rows` rows.
    """

    generation: int
    offset: int
    lambda_: float = 1.0
    provisional: bool = False


@dataclass(frozen=True)
class Position:
    """Where a stream stands: its newest `session`, the `next_seq` expected there, `rows` learned of all sessions.

    ```python
    print(client.streams()["walker"].rows)
    ```
    """

    session: str
    next_seq: int
    rows: int
    last_seen: float


@dataclass(frozen=True)
class Appended:
    """The result of an append: rows `accepted`, rows known before (`duplicates`), and the next position.

    ```python
    done = client.append(stream="by-hand", session="1", seq=0, state=[0.0], reward=1.0, next_state=[0.5])
    print(done.accepted, done.next_seq)
    ```
    """

    accepted: int
    duplicates: int
    next_seq: int
    offset: int


@dataclass(frozen=True)
class RefitOutcome:
    """The outcome of a refit: "started", "adopted" or "rejected", the last with a `reason`.

    ```python
    found = client.refit(wait=True, timeout_s=600)
    print(found.outcome, found.reason)
    ```
    """

    outcome: str
    generation: int | None
    reason: str | None


Moment = int | float | datetime
"""A moment of the past: the number of rows that had been stored, or a time, Unix seconds or a datetime."""

Selector = Mapping[str, Any]
"""Rows that `Client.remove` is about: `stream`, or `stream` and `session`, or `offsets` or `times` (two numbers)."""


@dataclass(frozen=True)
class Removal:
    """Rows that are taken back, or would be where `dry_run`.

    ```python
    found = client.remove([{"stream": "walker", "session": "run-7"}])
    if found.rows < 1000:
        client.remove([{"stream": "walker", "session": "run-7"}], dry_run=False)
    ```

    `rows` before `offset` were selected, in `chains` chains of `rows_of_chains` rows; `streams` has the rows of each
    stream. `subtracted` says of each critic whether its sums are without them at once; one that is not answers as
    before until it has been learned again. `without_time` rows have no time and no selector matches them;
    `forgotten` offsets are no longer in the journal. `boundary` rows stay whose next state is the state of a row that
    was asked for.
    """

    dry_run: bool
    offset: int
    rows: int
    ranges: list[tuple[int, int]]
    streams: dict[str, int]
    chains: int
    rows_of_chains: int
    without_time: int
    forgotten: int
    boundary: int
    subtracted: dict[str, bool]


def removal_of(reply: Message) -> Removal:
    """The reply to `remove`."""
    keys = ("dry_run", "offset", "rows", "streams", "chains", "rows_of_chains", "without_time", "forgotten")
    ranges = [(int(first), int(end)) for first, end in reply["ranges"]]
    subtracted = {critic["critic"]: bool(critic["subtracted"]) for critic in reply["critics"]}
    found = {key: reply[key] for key in keys}
    return Removal(ranges=ranges, subtracted=subtracted, boundary=reply.get("boundary", 0), **found)


def _begin(start: npt.ArrayLike | None) -> Any:
    """States to begin in."""
    return None if start is None else np.atleast_2d(numbers(start, "start"))


def moment(as_of: Moment | None) -> Message:
    """The field of a request about the past: daemons tell offsets from times by their type."""
    if as_of is None:
        return {}
    if isinstance(as_of, datetime):
        return {"as_of": as_of.timestamp()}
    return {"as_of": int(as_of) if isinstance(as_of, (int, np.integer)) else float(as_of)}


def of_then(as_of: Moment | None, asked: Steps[_T]) -> Steps[_T]:
    """Ask a daemon about the past only if it can tell of it: others skip keys that they do not know."""
    if as_of is not None:
        try:
            features = Hello.of((yield Ask("hello", {}))).features
        except Refused as refused:
            if refused.code != "unknown_op":
                raise
            features = frozenset()
        if "as_of" not in features:
            raise CriticdError("this daemon tells nothing of the past: its `hello` lacks the feature `as_of`")
    return (yield from asked)


def model_pages(critic: str | None, variance: bool, head: str | None, as_of: Moment | None = None) -> Steps[Snapshot]:
    """Fetch a model page by page; a head's comes at once.

    All pages belong to one revision. If the daemon has dropped that in between, it starts again.
    """
    fields = {"variance": variance, **optional(critic=critic, head=head), **moment(as_of)}
    if head is not None:
        reply = yield Ask("snapshot", fields)
        if reply.get("head") != head:
            # It skips keys that it does not know.
            raise CriticdError("this daemon cannot give the model of one head")
        return Snapshot.of(reply)
    gone: Refused | None = None
    for _ in range(PAGE_ATTEMPTS):
        reply = yield Ask("snapshot", {**fields, "page": 0})
        data, revision = [reply["data"]], reply["revision"]
        try:
            for page in range(1, reply["pages"]):
                reply = yield Ask("snapshot", {**fields, "page": page, "revision": revision})
                data.append(reply["data"])
        except Refused as refused:
            if refused.code != "not_ready":
                raise
            gone = refused
        else:
            return Snapshot.of(unpack(b"".join(data)))
    assert gone is not None
    raise gone


def position_pages(names: Sequence[str]) -> Steps[dict[str, Position]]:
    """Ask where streams stand: the streams `names`, or all of them, page by page, if there are none."""
    found: dict[str, Position] = {}
    for first in range(0, len(names), STREAMS_PER_REQUEST):
        found |= positions_of((yield Ask("streams", {"names": list(names[first : first + STREAMS_PER_REQUEST])})))
    if names:
        # A daemon that does not know `names` tells of all.
        return {name: found[name] for name in names if name in found}
    fields: Message = {}
    while True:
        reply = yield Ask("streams", fields)
        found |= positions_of(reply)
        if reply.get("next") is None:
            return found
        fields = {"from": reply["next"]}


def value_of(reply: Message) -> Value:
    """The reply to `value`."""
    return Value(
        mean=np.array(reply["mean"]),
        variance=_copy(reply.get("variance")),
        return_variance=_copy(reply.get("return_variance")),
        known=_copy(reply.get("known")),
        extrapolates=_copy(reply.get("extrapolates")),
        generation=reply["generation"],
        offset=reply["offset"],
        lambda_=float(reply.get("lambda", 1.0)),
        provisional=bool(reply.get("provisional", False)),
    )


@dataclass(frozen=True, eq=False)
class HeadValues:
    """What heads say about n states: `mean` (n, H), `variance` (n, H) of it, a column for each of `names`.

    ```python
    told = client.heads([[0.5]], ["energy"])
    print(told.by_name["energy"], told.learning)
    ```

    `return_variance` (n, H), if asked for, is a single return's: 90 % of returns should lie within 1.645 of its
    root. How far that has been verified comes with it: `pairs` (H,) are predictions whose return has come since, 0
    below 40, `coverage` (H,) the share of these returns in the 90 % interval as it was predicted, before deviations
    were rescaled, NaN without pairs. Both are None of an older daemon.
    `learning` has the heads that are not ready, each with the share of the rows that it has learned. `by_name["a"]` is
    the mean of head a at every state (n,). `generation` and `offset` are the ones of the model that answered.
    """

    names: tuple[str, ...]
    mean: npt.NDArray[np.float64]
    variance: npt.NDArray[np.float64] | None
    learning: dict[str, float]
    generation: int
    offset: int
    return_variance: npt.NDArray[np.float64] | None = None
    pairs: npt.NDArray[np.int64] | None = None
    coverage: npt.NDArray[np.float64] | None = None

    @property
    def std(self) -> npt.NDArray[np.float64] | None:
        """The root of the variance (n, H)."""
        return None if self.variance is None else np.sqrt(self.variance)

    @property
    def by_name(self) -> dict[str, npt.NDArray[np.float64]]:
        """The mean of each head at every state (n,)."""
        return {name: self.mean[:, column] for column, name in enumerate(self.names)}


@dataclass(frozen=True)
class ListedHead:
    """A head as `Client.list_heads` has it: its definition (`form`), whether it was `added` at run time.

    ```python
    for name, head in client.list_heads().items():
        print(name, head.form, head.learning)
    ```

    `apart` says that it has not the kernel of the values but the second one.
    `learning` is the share of the rows that it has learned while it is not ready, and then None. The others are there
    once enough returns have been verified: `pairs` of them, `coverage` the share in the predicted 90 % interval, `bias`
    the mean of return less prediction, `unexplained` the variance of that over the variance of the returns, `factor`
    what multiplies deviations of returns. `unsolved` says that it has learned its rows and still has no answer, since
    its equations could not be solved, most often for numbers that are far too large. `first_row` is the offset of the
    first row that it has learned, or learns from while it is not ready; None where that is not known.
    """

    form: dict[str, Any]
    added: bool
    learning: float | None
    pairs: int = 0
    coverage: float | None = None
    bias: float | None = None
    unexplained: float | None = None
    factor: float = 1.0
    apart: bool = False
    unsolved: bool = False
    first_row: int | None = None


VERIFIED = ("pairs", "coverage", "bias", "unexplained", "factor")
"""Keys of a listed head that say how well its returns were predicted."""


def head_values_of(reply: Message) -> HeadValues:
    """The heads in a reply to `value`."""
    found = reply.get("heads")
    if not isinstance(found, dict):
        # It skips keys that it does not know.
        raise CriticdError("this daemon has no heads: its `hello` lacks the feature `heads`")
    try:
        names = tuple(str(name) for name in found["names"])
        count = np.shape(reply["mean"])[0]
        keys = ("mean", "variance", "return_variance")
        matrix = [None if found.get(key) is None else np.reshape(found[key], (count, -1)) for key in keys]
        mean = np.zeros((count, 0)) if matrix[0] is None or not names else np.array(matrix[0], np.float64)
        variance, returns = (None if of is None else np.array(of, np.float64) for of in matrix[1:])
        learning = {str(name): float(share) for name, share in found.get("learning", {}).items()}
        pairs, coverage = found.get("pairs"), found.get("coverage")
        return HeadValues(
            names,
            mean,
            variance,
            learning,
            reply["generation"],
            reply["offset"],
            returns,
            None if pairs is None else np.array(pairs, np.int64).reshape(len(names)),
            None if coverage is None else np.array(coverage, np.float64).reshape(len(names)),
        )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Malformed(f"the heads in the reply to `value` lack something: {error!r}") from error


def head_query(
    states: npt.ArrayLike,
    names: Sequence[str] | None,
    variance: bool,
    returns: bool,
    critic: str | None,
    min_offset: int | None,
) -> Message:
    """The fields of a `value` request for heads."""
    if isinstance(names, str):
        raise TypeError("names is a list of names, or None for all heads")
    fields = query(states, variance, critic, min_offset)
    return fields | optional(returns=returns or None) | {"heads": "all" if names is None else list(names)}


def head_pages(critic: str | None) -> Steps[dict[str, ListedHead]]:
    """List heads, by name."""
    found: dict[str, ListedHead] = {}
    fields: Message = optional(critic=critic)
    while True:
        reply = yield Ask("heads", fields)
        try:
            for head in reply["heads"]:
                found_of_head = ("added", "apart", "unsolved", "learning", "first_row", *VERIFIED)
                form = {key: value for key, value in head.items() if key not in found_of_head}
                said = {key: head[key] for key in ("apart", "unsolved", "first_row", *VERIFIED) if key in head}
                found[form["name"]] = ListedHead(form, bool(head["added"]), head.get("learning"), **said)
        except (AttributeError, KeyError, TypeError) as error:
            raise Malformed(f"the reply to `heads` lacks something: {error!r}") from error
        if reply.get("next") is None:
            return found
        fields = {**optional(critic=critic), "from": reply["next"]}


@dataclass(frozen=True, eq=False)
class Suggestion:
    """A decision of an advisor for one context. `Client.report` teaches the advisor its cost, by `decision_id`.

    ```python
    suggestion = client.suggest([4.2])
    client.report(suggestion, cost=0.3)
    ```

    `decision` (H,) is the one to take: `mean` (H,) with exploration of standard `deviation` (H,), all in the units of
    the setting `outputs`. `learned` is the number of costs that the advisor had learned.
    """

    decision_id: int
    decision: npt.NDArray[np.float64]
    mean: npt.NDArray[np.float64]
    deviation: npt.NDArray[np.float64]
    learned: int


def suggestion_of(reply: Message) -> Suggestion:
    """The reply to `suggest`."""
    try:
        decision, mean, deviation = (np.array(reply[key], np.float64) for key in ("decision", "mean", "deviation"))
        return Suggestion(int(reply["decision_id"]), decision, mean, deviation, int(reply["learned"]))
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"the reply to `suggest` lacks something: {error!r}") from error


def suggest_request(context: npt.ArrayLike, advisor: str | None) -> Message:
    """The fields of a `suggest` request."""
    return {"context": np.atleast_1d(numbers(context, "context")), **optional(advisor=advisor)}


def report_request(decision: int | Suggestion, cost: float, advisor: str | None) -> Message:
    """The fields of a `report` request."""
    decision_id = decision.decision_id if isinstance(decision, Suggestion) else int(decision)
    return {"decision_id": decision_id, "cost": float(cost), **optional(advisor=advisor)}


def values_of(reply: Message, critics: Sequence[str]) -> dict[str, Value]:
    """The reply to `value` with `critics`, by name and in their order."""
    answers = reply.get("critics")
    if not isinstance(answers, dict):
        # It skips keys that it does not know.
        raise CriticdError("this daemon answers for one critic at a time: its `hello` lacks the feature `critics`")
    try:
        return {name: value_of(answers[name]) for name in critics}
    except (KeyError, TypeError, ValueError) as error:
        raise Malformed(f"the reply to `value` lacks something: {error!r}") from error


def positions_of(reply: Message) -> dict[str, Position]:
    """The reply to `streams`."""
    try:
        found = reply["streams"].items()
        return {n: Position(p["session"], int(p["next_seq"]), p["rows"], p["last_seen"]) for n, p in found}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise Malformed(f"the reply to `streams` lacks something: {error!r}") from error


def appended_of(reply: Message) -> Appended:
    """The reply to `append`."""
    return Appended(reply["accepted"], reply["duplicates"], reply["next_seq"], reply["offset"])


def offset_of(reply: Message) -> int:
    """The rows before a change, in the reply to it."""
    return int(reply["offset"])


def refit_outcome_of(reply: Message) -> RefitOutcome:
    """The reply to `refit`."""
    return RefitOutcome(reply["outcome"], reply.get("generation"), reply.get("reason"))


def query(
    states: npt.ArrayLike,
    variance: bool,
    critic: str | None,
    min_offset: int | None,
    *,
    returns: bool = False,
    known: bool = False,
    base: bool = False,
    critics: Sequence[str] | None = None,
    actions: npt.ArrayLike | None = None,
) -> Message:
    """The fields of a `value` request."""
    if isinstance(critics, str):
        raise TypeError("critics is a list of names; critic is one name")
    fields: Message = {"states": np.atleast_2d(numbers(states, "states")), "variance": variance}
    fields |= optional(returns=returns or None, known=known or None, base=base or None)
    fields |= {} if actions is None else {"actions": np.atleast_1d(numbers(actions, "actions"))}
    return fields | optional(critic=critic, min_offset=min_offset, critics=None if critics is None else list(critics))


def optional(**fields: Any) -> Message:
    """Those that are not None."""
    return {key: value for key, value in fields.items() if value is not None}


def _copy(value: Any) -> npt.NDArray[Any] | None:
    return None if value is None else np.array(value)


class Client:
    """A connection to a daemon's control socket.

    ```python
    with Client() as client:
        print(client.value([[0.0], [0.5]], std=True).std)
    ```

    `endpoint` is that socket's, "tcp://127.0.0.1:5751" by default; or give the daemon's `data_dir`, where its endpoints
    are looked up, as they are in CRITICD_DATA_DIR if that is set and nothing is given. With `keys` the connection is
    encrypted. Nothing is sent before the first request. Threads may share a client; their requests then wait for each
    other.

    Requests that do not get an answer within `timeout_s` raise `Unreachable` or `NoReply`, those that the daemon turns
    down `Refused`. A client outlives restarts of the daemon.
    """

    def __init__(
        self,
        endpoint: str | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        timeout_s: float = 5.0,
        keys: Keys | None = None,
        context: zmq.Context[zmq.Socket[bytes]] | None = None,
        **unknown: NoReturn,
    ) -> None:
        refuse_keywords(unknown, {"timeout": "seconds are timeout_s"})
        self.timeout_s = timeout_s
        self._address = Address.of("control", endpoint, data_dir, keys)
        self._context = context or zmq.Context.instance()
        self._socket: zmq.Socket[bytes] | None = None
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        watch(self)

    def __repr__(self) -> str:
        return f"<criticd.Client of {self._address}>"

    def ping(self) -> float:
        """Seconds since the daemon started."""
        return self._ask(once("ping", {}, lambda reply: float(reply["uptime_s"])))

    def hello(self) -> Hello:
        """Versions, features and limits of the daemon, and its critics.

        ```python
        print(client.hello().version)
        ```
        """
        return self._ask(once("hello", {}, Hello.of))

    def status(self) -> Status:
        """Everything that the daemon knows about itself.

        ```python
        print(client.status()["offset"])
        ```
        """
        return self._ask(once("status", {}, status_of))

    def streams(self, *names: str) -> dict[str, Position]:
        """Where each stream stands, by name; of `names` alone, as far as they are known, if any are given.

        ```python
        for name, position in client.streams().items():
            print(name, position.rows)
        ```
        """
        return self._ask(position_pages(names))

    @overload
    def value(
        self,
        states: npt.ArrayLike,
        *,
        std: bool = False,
        variance: bool = False,
        returns: bool = False,
        known: bool = False,
        base: bool = False,
        critic: str | None = None,
        critics: None = None,
        min_offset: int | None = None,
        as_of: Moment | None = None,
        actions: npt.ArrayLike | None = None,
        timeout_s: float | None = None,
    ) -> Value: ...

    @overload
    def value(
        self,
        states: npt.ArrayLike,
        *,
        std: bool = False,
        variance: bool = False,
        returns: bool = False,
        known: bool = False,
        base: bool = False,
        critic: None = None,
        critics: Sequence[str],
        min_offset: int | None = None,
        as_of: Moment | None = None,
        actions: npt.ArrayLike | None = None,
        timeout_s: float | None = None,
    ) -> dict[str, Value]: ...

    def value(
        self,
        states: npt.ArrayLike,
        *,
        std: bool = False,
        variance: bool = False,
        returns: bool = False,
        known: bool = False,
        base: bool = False,
        critic: str | None = None,
        critics: Sequence[str] | None = None,
        min_offset: int | None = None,
        as_of: Moment | None = None,
        actions: npt.ArrayLike | None = None,
        timeout_s: float | None = None,
    ) -> Value | dict[str, Value]:
        """The value of raw `states` (n, D) or (D,), by the daemon's present model.

        ```python
        answer = client.value([[0.0], [0.5]], std=True, min_offset=1)
        ```

        `std` asks for the standard deviation of V, as of a `Snapshot`; `variance`, the key of the protocol, is the same
        question. `returns` asks for the variance of the return to come, `known` for how much of V is known and where it
        is extrapolated. With `min_offset` it answers only when this number of rows has been learned: take the
        `offset` of an `append` there to see its effect. `base` asks for the mean without what tracks the stream: for
        states far from those that the stream visits now.

        `as_of` asks for the answer of then, bit for bit: an offset (int), when this number of rows had been stored, or
        a time, Unix seconds (float) or a datetime. The daemon learns the model of then again, which takes as long as
        its start from the checkpoint before: `timeout_s` must allow for that. Further questions about the same moment
        are fast.

        `critic` names the critic that answers, by default the first. With `critics`, up to 64 names, each of these
        answers, in one request: the result is a dictionary by name. n times the number of critics is at most 65536.

        A critic of action values needs `actions` (n,), or (n, A) of a box, or several actions of one state.
        """
        fields = query(
            states,
            variance or std,
            critic,
            min_offset,
            returns=returns,
            known=known,
            base=base,
            critics=critics,
            actions=actions,
        )
        fields |= moment(as_of)
        if critics is None:
            return self._ask(of_then(as_of, once("value", fields, value_of)), timeout_s)
        return self._ask(of_then(as_of, once("value", fields, lambda reply: values_of(reply, critics))), timeout_s)

    def act(
        self,
        states: npt.ArrayLike,
        exploration: str = "greedy",
        *,
        epsilon: float | None = None,
        temperature: float | None = None,
        beta: float | None = None,
        seed: int = 0,
        episode: npt.ArrayLike = 0,
        step: npt.ArrayLike | None = None,
        candidates: npt.ArrayLike | None = None,
        unknown_above: float | None = None,
        fallback: npt.ArrayLike | None = None,
        critic: str | None = None,
        timeout_s: float | None = None,
    ) -> Decisions:
        """Decisions in raw `states` (n, D), without actions, or one state: see `Snapshot.act`, which needs no daemon.

        `critic` names the critic that decides, by default the first; it must learn action values.
        """
        fields = act_request(
            states,
            exploration,
            epsilon=epsilon,
            temperature=temperature,
            beta=beta,
            seed=seed,
            episode=episode,
            step=step,
            candidates=candidates,
            unknown_above=unknown_above,
            fallback=fallback,
            critic=critic,
        )
        return self._ask(once("act", fields, lambda reply: decisions_of(reply, np.ndim(states) == 1)), timeout_s)

    def evaluate(
        self,
        policy: Policy | None = None,
        *,
        critic: str | None = None,
        rows: int | None = None,
        first: int | None = None,
        rho_max: float | None = None,
        ess_min: float | None = None,
        folds: int | None = None,
        seed: int = 0,
        timeout_s: float = 600.0,
    ) -> Evaluation:
        """Judge another policy by the rows that the daemon's journal retains, while the daemon goes on.

        - `policy`: a function of states (n, D), an ONNX file, the endpoint of a `criticd.policies.PolicyServer`, or its
          answers in the states of the rows as an array: probabilities (n, C) or actions (n,) or (n, A). Without it the
          rows must have been sent with `target_prob`.
        - `rows`: the last ones, 10000 by default and at most 65536; or those from the offset `first` on.
        - `critic`: its rewards, discount and kernel are meant, by default the first critic's. Where it learns action
          values, a Q of the policy is fitted ("fqe", "dr").
        - `rho_max`, `ess_min`, `folds`, `seed`: as options of `criticd evaluate`.

        Episodes that had begun before the first row, or have not ended, are left out if there are others.
        """
        options = optional(rho_max=rho_max, ess_min=ess_min, folds=folds)
        return self._ask(evaluation_requests(policy, rows, first, critic, {"seed": seed, **options}), timeout_s)

    def plan(
        self,
        reward: str | None = None,
        *,
        discount: float | None = None,
        start: npt.ArrayLike | None = None,
        critic: str | None = None,
        timeout_s: float = 60.0,
    ) -> Planned:
        """Plan for a reward that need never have been observed, by a critic with `world = true`.

        ```text
        q = client.plan("(x > 0.7) - 0.1*v^2")
        print(q.document["value"], q.act([0.2, 0.0]).actions)
        ```

        - `reward`: an expression of state variables and actions, known exactly; or the name of a reward of the rows. By
          default the critic's own.
        - `discount`: at least 0, below 1; by default the critic's.
        - `start`: states (n, D) that the plan is valued in; by default those in which the last episodes began.

        Raises `Refused` where too much of the plan lies where no row was.
        """
        options = optional(reward=reward, discount=discount, states=_begin(start), critic=critic)
        return self._ask(plan_live(options), timeout_s)

    def rollout(
        self,
        *,
        steps: int = 20,
        show: Sequence[str] | None = None,
        policy: Snapshot | Policy | None = None,
        reward: str | None = None,
        discount: float | None = None,
        start: npt.ArrayLike | None = None,
        critic: str | None = None,
        timeout_s: float = 60.0,
    ) -> Course:
        """Predict the course of chosen variables by a critic with `world = true`, and what the policy is worth.

        ```text
        course = client.rollout(steps=50, show=["x", "abs(x - 3)"], start=[[0.0, 0.0]])
        print(course.mean["x"][-1], course.reach["x"], course.document["value"]["mean"])
        ```

        - `policy`: who acts: "acted", the default, goes on as the last rows do; "best" takes the best action by the
          critic's values; or a model of action values, a function of states, an ONNX file or an endpoint as in
          `evaluate`. With `reward` it is a plan for that reward.
        - `show`: state variables, or expressions of them; by default the first six variables.
        - `start`: states (n, D) to begin in, of which the course is the mean; by default those in which the last
          episodes began.

        `reach` counts steps up to which predictions for the rows that came later erred by at most half of the spread.
        """
        shown = None if show is None else [show] if isinstance(show, str) else list(show)
        options = optional(show=shown, reward=reward, discount=discount, states=_begin(start), critic=critic)
        return self._ask(rollout_live(policy, {"steps": steps, **options}), timeout_s)

    def heads(
        self,
        states: npt.ArrayLike,
        names: Sequence[str] | None = None,
        *,
        variance: bool = True,
        returns: bool = False,
        critic: str | None = None,
        min_offset: int | None = None,
        timeout_s: float | None = None,
    ) -> HeadValues:
        """Answers of the heads of a critic, all or those of these `names`, for raw `states` (n, D) or (D,).

        ```python
        energy = client.heads([[0.5]], ["energy"]).by_name["energy"]
        ```

        `returns` asks for the variance of a single return, rescaled by live verification. n times the number of heads
        is at most 65536.
        """
        fields = head_query(states, names, variance, returns, critic, min_offset)
        return self._ask(once("value", fields, head_values_of), timeout_s)

    def list_heads(self, critic: str | None = None) -> dict[str, ListedHead]:
        """The heads of a critic by name."""
        return self._ask(head_pages(critic))

    def add_heads(self, heads: Sequence[Message], *, critic: str | None = None) -> int:
        """Add heads to a critic, which learns them from the rows of its model. Returns the rows before the change.

        ```python
        client.add_heads([{"name": "soon", "cumulant": {"kind": "reward", "index": 0}, "discount": 0.5}])
        ```

        Each is a map as under "Heads" of the protocol:
        `{"name": "contact", "cumulant": {"kind": "event", "index": 3, "above": 0.5}, "timescale": 2.0}`.
        """
        return self._ask(once("change_heads", {"add": list(heads), **optional(critic=critic)}, offset_of))

    def send_labels(
        self,
        name: str,
        values: npt.ArrayLike,
        *,
        offsets: npt.ArrayLike | None = None,
        stream: str | Sequence[str] | None = None,
        seq: npt.ArrayLike | None = None,
    ) -> int:
        """Give retained rows values (n,) under a name, for heads with the cumulant `{"kind": "label", "name": name}`.

        The rows are named by their `offsets`, or by `stream` (one, or one for each row; may be left out where there is
        one) and `seq`. Rows that are no longer retained, and values that are NaN, are left out; returns how many labels
        there are. The rows that have none do not count for these heads.
        """
        return self._ask(_labels.requests(name, values, offsets, stream, seq))

    def remove_heads(self, *names: str, critic: str | None = None) -> int:
        """Remove heads that were added. Returns the rows before the change.

        ```python
        client.remove_heads("soon")
        ```
        """
        return self._ask(once("change_heads", {"remove": list(names), **optional(critic=critic)}, offset_of))

    def suggest(
        self, context: npt.ArrayLike, *, advisor: str | None = None, timeout_s: float | None = None
    ) -> Suggestion:
        """A decision of an advisor, by default the first, for a context (D,), or a number where D is 1.

        The decision waits for its cost: `report` it. Every call counts as another decision.
        """
        return self._ask(once("suggest", suggest_request(context, advisor), suggestion_of), timeout_s)

    def report(
        self, decision: int | Suggestion, cost: float, *, advisor: str | None = None, timeout_s: float | None = None
    ) -> int:
        """Teach an advisor the cost, at least 0, of a decision: a `Suggestion` or its `decision_id`.

        Returns the number of costs learned. The daemon learns a cost once and refuses a further report of the decision.
        """
        fields = report_request(decision, cost, advisor)
        return self._ask(once("report", fields, lambda reply: int(reply["learned"])), timeout_s)

    def snapshot(
        self,
        critic: str | None = None,
        *,
        variance: bool = True,
        head: str | None = None,
        as_of: Moment | None = None,
        timeout_s: float | None = None,
    ) -> Snapshot:
        """The current model, fetched in pages. `timeout_s`, by default the client's, applies to each page.

        ```python
        model = client.snapshot()
        then = client.snapshot(as_of=model.offset, timeout_s=600)
        ```

        With `head` the value function of that head alone, as `snapshot.heads[head]` of a model file is. With `as_of`
        the model as it was, bit for bit, as for `value`; its `time` and `revision` are 0.
        """
        return self._ask(of_then(as_of, model_pages(critic, variance, head, as_of)), timeout_s)

    def refit(self, critic: str | None = None, *, wait: bool = False, timeout_s: float | None = None) -> RefitOutcome:
        """Start a refit now. With `wait`, return when it has ended; `timeout_s` must allow for that.

        ```python
        client.refit()
        ```
        """
        return self._ask(once("refit", {"wait": wait, **optional(critic=critic)}, refit_outcome_of), timeout_s)

    optimise = refit  # its former name

    def rebuild(self, critic: str | None = None, *, wait: bool = False, timeout_s: float | None = None) -> RefitOutcome:
        """Learn a critic again from all rows that the journal retains; it answers meanwhile.

        The outcome is as of `refit`. With `wait`, return when the rebuild has ended; `timeout_s` must allow for that.
        A critic that has failed learns again.
        """
        return self._ask(once("rebuild", {"wait": wait, **optional(critic=critic)}, refit_outcome_of), timeout_s)

    def remove(
        self,
        select: Sequence[Selector],
        *,
        dry_run: bool = True,
        boundary: bool = False,
        by: str | None = None,
        reason: str | None = None,
        timeout_s: float | None = None,
    ) -> Removal:
        """Take rows back, or with `dry_run` say which these are: critics go on as if they had never learned them.

        ```python
        print(client.remove([{"stream": "walker", "session": "run-7"}]).ranges)
        ```

        `select` is one union of `{"stream": name}`, `{"stream": name, "session": name}`, `{"offsets": (from, to)}` and
        `{"times": (from, to)}`, Unix seconds. Critics subtract the rows at once and are then learned again; `removals`
        of `status` says from which generation on nothing of them is left. `by` and `reason` are for the status. The row
        before them stays, whose next state is the first of their states, unless `boundary` is set.
        """
        fields: Message = {"select": [dict(one) for one in select], "dry_run": dry_run, "boundary": boundary}
        fields.update(optional(by=by, reason=reason))
        return self._ask(once("remove", fields, removal_of), timeout_s)

    def new_policy(self, policy: str | None = None, *, critic: str | None = None) -> int:
        """Announce that another policy acts from the next row on, named `policy` if given. Returns the rows before it.

        The setting `on_new_policy` of each critic decides the effect; without `critic` it applies to all. Nothing
        changes if that policy acts already. Rows of a `Sender` with `policy` announce the change themselves.
        """
        return self._ask(once("new_policy", optional(policy=policy, critic=critic), offset_of))

    def checkpoint(self) -> int:
        """Make the daemon write a checkpoint and return the number of rows that it covers.

        ```python
        print(client.checkpoint())
        ```
        """
        return self._ask(once("checkpoint", {}, offset_of))

    def append(self, /, *, timeout_s: float | None = None, **rows: Any) -> Appended:
        """One `append` as the protocol has it: `stream`, `session`, `seq` and the keys of a transition or a batch.

        ```python
        client.append(stream="one", session="1", seq=0, state=[0.0], reward=1.0, next_state=[0.5])
        ```

        This is for single rows that must have arrived when it returns; `Sender` does the numbering, and is faster.
        """
        return self._ask(once("append", checked(rows), appended_of), timeout_s)

    def _ask(self, steps: Steps[_T], timeout_s: float | None = None) -> _T:
        """What the steps find; all methods end with this, so that in `criticd.aio` they can wait in another way."""
        try:
            ask = next(steps)
            while True:
                if ask.after_s:
                    time.sleep(ask.after_s)
                try:
                    reply = self.request(ask.op, timeout_s, **ask.fields)
                except Refused as refused:
                    ask = steps.throw(refused)
                else:
                    ask = steps.send(reply)
        except StopIteration as done:
            found: _T = done.value
            return found
        finally:
            steps.close()

    def request(self, op: str, timeout_s: float | None = None, **fields: Any) -> Message:
        """Any operation of the protocol: the reply as it came, arrays as numpy arrays."""
        timeout_s = self.timeout_s if timeout_s is None else timeout_s
        deadline = time.monotonic() + timeout_s
        # One that never came to its turn has sent nothing.
        if not self._lock.acquire(timeout=timeout_s):
            raise NoReply(str(self._address), op, timeout_s)
        try:
            number = next(self._numbers)
            payload = pack({"id": number, "op": op, **fields})
            socket = self._connected(deadline, timeout_s)
            socket.send(payload)
            while socket.poll(_milliseconds(deadline), zmq.POLLIN):
                found, reply = answer(socket.recv())
                # Nil answers a request whose id could not be read: with one request at a time that is this one.
                if found not in (number, None):
                    continue
                if isinstance(reply, Refused):
                    raise reply
                return reply
            # What is still on its way must not be taken for the answer to anything else.
            self._disconnect()
            raise NoReply(str(self._address), op, timeout_s)
        except Malformed:
            self._disconnect()
            raise
        finally:
            self._lock.release()

    def close(self) -> None:
        """Let the connection go. The next request would make a new one."""
        with self._lock:
            self._disconnect()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _connected(self, deadline: float, timeout_s: float) -> zmq.Socket[bytes]:
        """A socket whose connection stands. Replies to former requests are thrown away."""
        while True:
            if self._socket is None:
                endpoint = self._address.resolve()
                if endpoint is not None:
                    self._socket = control_socket(self._context, self._address.keys)
                    self._socket.connect(endpoint)
            # A daemon that came back may have other ports: look again every half second.
            wait = min(deadline, time.monotonic() + (0.5 if self._address.data_dir else timeout_s))
            if self._socket is None:
                time.sleep(max(0.0, min(0.05, wait - time.monotonic())))
            elif self._socket.poll(_milliseconds(wait), zmq.POLLOUT):
                return self._socket
            else:
                self._disconnect()
            if time.monotonic() >= deadline:
                raise Unreachable(str(self._address), timeout_s)

    def _disconnect(self) -> None:
        if self._socket is not None:
            self._socket.close(linger=0)
            self._socket = None

    def __reduce__(self) -> tuple[Any, ...]:
        raise stays(self)

    def _before_fork(self) -> None:
        pass

    def _after_fork(self) -> None:
        """The connection is the parent's: the next request makes another."""
        self._context, self._socket, self._lock = zmq.Context.instance(), None, threading.Lock()


def control_socket(context: zmq.Context[zmq.Socket[bytes]], keys: Keys | None) -> zmq.Socket[bytes]:
    """A DEALER, not yet connected."""
    socket = context.socket(zmq.DEALER)
    prepare(socket, keys)
    return socket


def prepare(socket: Any, keys: Keys | None) -> None:
    """Make a socket queue nothing for a daemon that is not there, and notice when it has gone silently."""
    socket.setsockopt(zmq.IMMEDIATE, 1)
    connect_anew(socket, keys)


def connect_anew(socket: Any, keys: Keys | None) -> None:
    """Make a socket notice when the daemon has gone silently, and connect when it is there again."""
    socket.setsockopt(zmq.LINGER, 0)
    socket.setsockopt(zmq.RECONNECT_IVL, 50)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, SILENCE_MS)
    if keys is not None:
        keys.use(socket)


_MONITORS = itertools.count()


def monitor_of(socket: zmq.Socket[bytes], events: int) -> zmq.Socket[bytes]:
    """Where a socket tells of its connections.

    Under an address of its own: pyzmq names it by the socket's descriptor, which the next socket can get while the
    address of the last one is not yet free.
    """
    return socket.get_monitor_socket(events, f"inproc://criticd-monitor-{next(_MONITORS)}")


def _milliseconds(deadline: float) -> int:
    return max(0, round(1000 * (deadline - time.monotonic())))
