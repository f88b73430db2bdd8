"""The learner in this process: no daemon, no socket, no thread but a refit's while it runs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
import numpy.typing as npt

from criticd._act import Decisions
from criticd._frames import States, names_of, states_of
from criticd._output import write_whole
from criticd._protocol import Array, Invalid, Malformed, pack, unpack
from criticd._values import flag, flags, numbers
from criticd.client import RefitOutcome
from criticd.heads import Heads
from criticd.snapshot import Snapshot, Values

if TYPE_CHECKING:
    from typing_extensions import Self

try:
    from criticd import _learner as _learner
except ImportError as error:
    raise ImportError(
        "this criticd was installed without its learner: install the wheel of your platform, or in a checkout run "
        "`cargo build --release --package criticd-python` and copy target/release/lib_learner.so to "
        "python/criticd/_learner.abi3.so"
    ) from error

_KEPT = "learner"
"""Key of a MODEL file under which all of the learner lies. Readers of models leave it alone."""


class Learner:
    """A critic that learns in this process what the daemon learns: call it with states for their values.

    ```python
    learner = Learner(discount=0.95)
    learner.learn(states, rewards, next_states, terminated=terminated)
    value, deviation = learner([[0.0], [0.5]], std=True)
    ```

    `settings` are the settings of a `[[critic]]` in the daemon's configuration, by the same names and with the same
    meaning, such as `dictionary_max=100`, `lambda`, as `**{"lambda": 0.9}`, `heads=[{...}]`, `inputs="state_action"`;
    further
    `state_dim`, `state_names`, `reward_names`, `window_rows`, `refit_threads`, `streams_max` and `streams_idle_rows`.
    `criticd serve --print-config` lists them. None leaves a setting at its default. `discount` is in [0, 1].

    The same rows, in the same blocks, and refits at the same rows, give the daemon's model, bit for bit.

    Refits run in the background, on `refit_threads` threads (by default all cores but one), without the GIL. A call
    after the end of one adopts its model. `learn` and calls hold the GIL. A child that is forked has a whole learner,
    and starts the refit again that ran. Pickles, copies and `save` hold all of it but the refit that runs, which is
    due again there. Where threads use one learner, only one may call it at a time.

    Raises `Invalid` for a setting that is wrong, with its name.
    """

    def __init__(self, *, discount: float = 0.99, **settings: Any) -> None:
        given = {"discount": discount, **settings}
        try:
            text = json.dumps({key: value for key, value in given.items() if value is not None}, default=_plain)
        except (TypeError, ValueError) as error:
            raise Invalid("settings", f"must be numbers, texts, lists and dicts ({error})") from error
        self._begin(_learner.Critic(text))

    def _begin(self, critic: _learner.Critic) -> None:
        self._critic = critic
        self._newest: tuple[tuple[int, int, bool], Snapshot] | None = None

    def learn(
        self,
        states: npt.ArrayLike,
        rewards: npt.ArrayLike,
        next_states: npt.ArrayLike | None = None,
        *,
        terminated: npt.ArrayLike | None = None,
        truncated: npt.ArrayLike | None = None,
        actions: npt.ArrayLike | None = None,
        discounts: npt.ArrayLike | None = None,
        times: npt.ArrayLike | None = None,
        behavior_probs: npt.ArrayLike | None = None,
        target_probs: npt.ArrayLike | None = None,
        next_actions: npt.ArrayLike | None = None,
        next_action_probs: npt.ArrayLike | None = None,
        policy: str | None = None,
        stream: str = "default",
    ) -> None:
        """Learn rows of one stream, all of them or none; start a refit if one is due.

        ```python
        learner.learn(states, rewards, next_states, terminated=terminated, stream="arm")
        ```

        `states` and `next_states` are (n, D), `rewards` (n,) or (n, H), the others (n,), or (n, A) for actions of
        several numbers and (n, C) for `next_action_probs`. Without `next_states` it is a piece of a trajectory, and
        `states` are (n + 1, D). One row may come without the axis of rows: a state (D,) and its reward. Arrays of
        64-bit floats that lie row by row are read where they are; others are copied first.

        With one more axis behind the first, (n, N, D), they are n steps of N environments side by side, whose streams
        are `stream`/0, `stream`/1, ....

        A row goes on where the row before it in its stream ended, unless that `terminated` (nothing can follow) or was
        `truncated` (cut off from outside: its next state still has a value). `discounts` replace the critic's. `times`
        are in seconds. What is said of policies is as in `Sender.send`.

        Raises `Invalid` with the field at fault, and the row where it is one.
        """
        columns: dict[str, Any] = {
            "states": numbers(states, "states"),
            "rewards": numbers(rewards, "rewards"),
            "next_states": _optional(next_states, "next_states"),
            "terminated": _flags(terminated, "terminated"),
            "truncated": _flags(truncated, "truncated"),
            "actions": _optional(actions, "actions"),
            "discounts": _optional(discounts, "discounts"),
            "times": _optional(times, "times"),
            "behavior_probs": _optional(behavior_probs, "behavior_probs"),
            "target_probs": _optional(target_probs, "target_probs"),
            "next_actions": _optional(next_actions, "next_actions"),
            "next_action_probs": _optional(next_action_probs, "next_action_probs"),
            "policy": policy,
        }
        axes = columns["states"].ndim
        if axes != 3:
            self._critic.learn(stream, axes == 1, columns)
            return
        count = columns["states"].shape[1]
        for name, column in columns.items():
            if isinstance(column, np.ndarray) and column.shape[1:2] != (count,):
                raise Invalid(name, f"must be (n, {count}, ...) as the states, is {column.shape}")
        for k in range(count):
            beside = {key: col[:, k] if isinstance(col, np.ndarray) else col for key, col in columns.items()}
            self._critic.learn(f"{stream}/{k}", False, beside)

    @overload
    def __call__(self, states: States, std: Literal[False] = False) -> Array: ...
    @overload
    def __call__(self, states: States, std: Literal[True]) -> tuple[Array, Array]: ...
    @overload
    def __call__(self, states: States, std: bool = False, *, returns: Literal[True], known: bool = False) -> Values: ...
    @overload
    def __call__(self, states: States, std: bool = False, *, returns: bool = False, known: Literal[True]) -> Values: ...
    def __call__(
        self, states: States, std: bool = False, *, returns: bool = False, known: bool = False
    ) -> Array | tuple[Array, Array] | Values:
        """The value of `states`, as a `Snapshot` of this moment has it: see there.

        `states` may have further axes in front, (n, N, D), or be a table with the columns `state_names`. The
        first call after new rows solves for the weights, with `std` for the covariance as well; later ones only
        evaluate.

        Raises `Refused` with code `not_ready` before the first row, `Invalid` for states of another dimension, and
        ValueError for `std` while rewards do not tell how large values may be.
        """
        if returns or known:
            return self.snapshot()(states, std, returns=returns, known=known)  # type: ignore[call-overload, no-any-return]
        # What is no table, at once: this is on the way of every value.
        if isinstance(states, list) or (type(states) is np.ndarray and states.dtype.names is None):
            points = numbers(states, "states")
        else:
            points = states_of(states, self.snapshot(False).names if names_of(states) else None)
        mean, variance = self._critic.value(points, std)
        if std and variance is None:
            raise ValueError("there is no deviation yet: rewards so far do not tell how large values may be")
        if points.ndim == 1:
            # All rewards of one state, or the value alone.
            value = mean if len(mean) > 1 else mean[0]
            return value if variance is None else (value, np.sqrt(variance[0]))
        shape = points.shape[:-1]
        count = points.size // points.shape[-1]
        value = mean.reshape(shape) if mean.size == count else mean.reshape(-1, count).T.reshape(*shape, -1)
        return value if variance is None else (value, np.sqrt(variance).reshape(shape))

    def snapshot(self, variance: bool = True) -> Snapshot:
        """The value function of this moment, which does not change any more. Raises as a call does.

        ```python
        model = learner.snapshot()
        ```
        """
        self._critic.settle()
        key = (self.learned, self.generation, variance)
        if self._newest is None or self._newest[0] != key:
            self._newest = (key, Snapshot.of(unpack(self._critic.snapshot(variance))))
        return self._newest[1]

    @property
    def heads(self) -> Heads:
        """The other predictions by name, `learner.heads["contact"](states)`, as in a `Snapshot` of this moment."""
        return self.snapshot().heads

    def inputs(self, states: States, actions: npt.ArrayLike) -> Array:
        """What a learner of action values is asked about: `learner(learner.inputs(states, actions))` is Q(s, a)."""
        return self.snapshot(variance=False).inputs(states, actions)

    def act(self, states: States, exploration: str = "greedy", **options: Any) -> Decisions:
        """Decisions in raw `states` (n, D), or one state, by `Snapshot.act`, whose `options` these are."""
        return self.snapshot().act(states, exploration, **options)

    def refit(self, *, wait: bool = True) -> RefitOutcome:
        """Select a model by all rows that are kept, behind the refit that runs, if one does.

        ```python
        learner.refit()
        learner.wait()
        ```

        With `wait`, return when its model has been adopted or rejected; other threads may use the learner meanwhile.
        Raises `Refused` with code `not_ready` before `warmup_rows` rows.
        """
        self._critic.request_refit()
        if wait:
            self._critic.wait()
        outcome = self._critic.outcome() if wait else None
        return RefitOutcome("started", None, None) if outcome is None else RefitOutcome(*outcome)

    def wait(self) -> None:
        """Wait until no refit runs, and adopt its model. Other threads may use the learner meanwhile."""
        self._critic.wait()

    @property
    def refitting(self) -> bool:
        """Whether a refit runs or waits, or has ended since the last call, so that the next one adopts its model."""
        return self._critic.refitting

    @property
    def learned(self) -> int:
        """Rows learned."""
        return self._critic.learned

    @property
    def generation(self) -> int:
        """0 before the first model, then 1, and one more with each model that was adopted."""
        return self._critic.generation

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a MODEL file, as `Snapshot.save` does, with all that `load` needs to learn on. Replaces the file whole.

        ```python
        learner.save("arm.model")
        ```

        It holds the rows of the window too; `learner.snapshot().save(path)` writes the model alone.
        """
        write_whole(path, pack({**unpack(self._critic.snapshot(True)), _KEPT: self._critic.written()}))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Learner:
        """The learner that `save` wrote; it goes on bit for bit. Raises `Malformed` for a model without a learner."""
        message = unpack(Path(path).read_bytes())
        if _KEPT not in message:
            raise Malformed(f"{path} has a model and no rows to learn on from: Snapshot.load reads it")
        return cls._read(message[_KEPT])

    @classmethod
    def _read(cls, written: bytes) -> Learner:
        made = cls.__new__(cls)
        made._begin(_learner.Critic.read(written))
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return self._read, (self._critic.written(),)

    def close(self) -> None:
        """Let the refit that runs end without a model, and wait for its threads."""
        self._critic.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<criticd.Learner: generation {self.generation}, {self.learned} rows>"


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"{type(value).__name__} is none of these")


def _optional(value: npt.ArrayLike | None, name: str) -> Array | None:
    return None if value is None else numbers(value, name)


def _flags(value: npt.ArrayLike | None, name: str) -> npt.NDArray[np.bool_] | None:
    """An array of flags of any shape."""
    if value is None:
        return None
    found = np.asarray(value)
    if found.dtype.kind == "b":
        return found
    if found.ndim == 0:
        return np.array(flag(value, name))
    return flags(found.ravel(), name, found.size).reshape(found.shape)
