"""Gymnasium environments whose every step is sent to the daemon. Needs Gymnasium 1.1 (`pip install gymnasium`).

```python
with Daemon() as daemon, daemon.sender(stream="pole") as sender:
    env = wrap(gymnasium.make("CartPole-v1"), sender)
    env.reset(seed=0)
    env.step(env.action_space.sample())
```

What is learned is exactly what happened: `terminated` and `truncated` are kept apart, the successor of a last step is
the state the episode ended in and not the one after the reset, and a step that merely resets is not learned at all.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import iterate

from criticd._protocol import Array, CriticdError
from criticd._values import flag
from criticd.sender import Sender

Obs = TypeVar("Obs")
Act = TypeVar("Act")

STATE_MAX = 1024
"""Most numbers in a state. More are pixels or the like, in which distance means nothing to a kernel."""


class Flat:
    """Observations, or actions, as vectors of numbers."""

    def __init__(self, space: spaces.Space[Any], action: bool = False) -> None:
        self.space, self.action = space, action
        # Numbers as they are: gymnasium.spaces.utils would make a vector of zeros and a one of a discrete action.
        self.plain = isinstance(space, spaces.Box | spaces.MultiBinary) or (
            action and isinstance(space, spaces.Discrete | spaces.MultiDiscrete)
        )
        what = "actions" if action else "observations"
        if not _numeric(space):
            raise TypeError(
                f"{what} of {space} are no vectors of one length: make such vectors of them first, for instance with "
                "gymnasium.wrappers.TransformObservation"
            )
        size = int(np.prod(space.shape or ())) if self.plain else spaces.utils.flatdim(space)
        if size > STATE_MAX:
            raise TypeError(
                f"{what} of {size} numbers are too many (at most {STATE_MAX}): reduce them to what matters first, for "
                "instance with gymnasium.wrappers.TransformObservation"
            )
        self.size = size

    def one(self, value: Any) -> npt.NDArray[Any]:
        """(D,), or () for a single number as an action."""
        flat = np.asarray(value if self.plain else spaces.utils.flatten(self.space, value))
        return flat if self.action and flat.ndim == 0 else flat.reshape(-1)

    def many(self, values: Any, space: spaces.Space[Any], count: int) -> npt.NDArray[Any]:
        """(n, D), or (n,) for single numbers as actions, from what a vector environment of `space` deals in."""
        if self.plain:
            flat = np.asarray(values)
            return flat if self.action and flat.ndim == 1 else flat.reshape(count, -1)
        return np.stack([self.one(value) for value in iterate(space, values)])


def _numeric(space: spaces.Space[Any]) -> bool:
    """Whether values of the space have a fixed number of numbers. Texts, graphs and sequences do not."""
    if isinstance(space, spaces.Dict):
        return all(_numeric(part) for part in space.values())
    if isinstance(space, spaces.Tuple):
        return all(_numeric(part) for part in space)
    return isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete)


def _names(space: spaces.Space[Any]) -> list[str] | None:
    """What the parts of a dictionary of observations are called, number by number as they are flattened."""
    if not isinstance(space, spaces.Dict) or any(
        isinstance(part, spaces.Dict | spaces.Tuple) for part in space.values()
    ):
        return None
    sizes = {key: spaces.utils.flatdim(part) for key, part in space.items()}
    return [key if size == 1 else f"{key}[{k}]" for key, size in sizes.items() for k in range(size)]


def _action_names(env: Any, space: spaces.Space[Any]) -> list[str] | None:
    """What an environment calls its discrete actions, or the numbers of an action, where it has a name for each."""
    count = Flat(space, action=True).size
    if isinstance(space, spaces.Discrete) and space.start == 0:
        count = int(space.n)
    for of, name in product((env, env.unwrapped), ("action_names", "get_action_meanings")):
        told = getattr(of, name, None)
        try:
            told = told() if callable(told) else told
        except TypeError:
            # It asks for an argument: another thing of that name.
            continue
        # Wrappers change actions, of which the environment inside knows nothing. The daemon takes 256 names at most.
        if isinstance(told, list | tuple) and len({str(name) for name in told} - {""}) == len(told) == count <= 256:
            return [str(name) for name in told]
    return None


def _tell(
    sender: Sender,
    env: Any,
    states: spaces.Space[Any],
    actions: spaces.Space[Any],
    **called: Sequence[str] | None,
) -> None:
    """Let the sender say what the numbers of a step are called, of observations and actions unless it knows."""
    if called["names"] is None and sender.names is None:
        called["names"] = _names(states)
    # Once rows are out nothing can be called otherwise, and the sender would say so.
    if called["action_names"] is None and not sender.action_names and sender._shape is None:
        called["action_names"] = _action_names(env, actions)
    sender.call_numbers(**called)


class Streamed(gymnasium.Wrapper[Obs, Act, Obs, Act]):
    """An environment that passes every step to a sender and otherwise behaves as before. Made by `wrap`.

    `rows` counts the transitions given to the sender. Who knows the probability (or density) with which the next action
    was chosen sets `behavior_prob` before `step`, which sends it; None or NaN says nothing.
    """

    def __init__(self, env: gymnasium.Env[Obs, Act], sender: Sender, stream: str | None = None) -> None:
        super().__init__(env)
        self.sender, self._stream = sender, stream
        self.rows = 0
        self.behavior_prob: float | None = None
        self._states, self._actions = Flat(env.observation_space), Flat(env.action_space, action=True)
        # None while there is no episode.
        self._state: Array | None = None

    @property
    def stream(self) -> str:
        """The stream of its rows: its own, or the sender's, which in a forked process is another."""
        return self.sender.stream if self._stream is None else self._stream

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Obs, dict[str, Any]]:
        """Begin an episode. An unfinished one is neither terminated nor truncated: its continuation is unknown."""
        observed, info = self.env.reset(seed=seed, options=options)
        self._state = self._states.one(observed).astype(np.float64)
        return observed, info

    def step(self, action: Act) -> tuple[Obs, Any, bool, bool, dict[str, Any]]:
        """Take a step and send it. Raises `criticd.Invalid` if the environment yields numbers that are not finite.

        Raises `criticd.CriticdError` without a `reset` before it, since nobody knows then where the step begins.
        """
        if self._state is None:
            raise CriticdError(
                "a step without a reset: the episode is over, or none has begun. An environment that resets by itself "
                "goes outside, gymnasium.wrappers.Autoreset(wrap(env, sender)); otherwise call reset() first"
            )
        probability, self.behavior_prob = self.behavior_prob, None
        observed, reward, terminated, truncated, info = self.env.step(action)
        ends = flag(terminated, "terminated"), flag(truncated, "truncated")
        after = self._states.one(observed).astype(np.float64)
        self.sender.send(
            self._state,
            np.asarray(reward),
            after,
            terminated=ends[0],
            truncated=ends[1],
            action=self._actions.one(action),
            behavior_prob=None if probability is None or np.isnan(probability) else float(probability),
            stream=self.stream,
        )
        self.rows += 1
        self._state = None if any(ends) else after
        return observed, reward, *ends, info


class StreamedVector(VectorWrapper[Any, Any, Any, Any, Any]):
    """A vector environment that passes every step of every copy to a sender. Made by `wrap_vector`.

    `rows` counts the transitions given to the sender, `streams` names the copies' streams. `behavior_probs` (n,) may be
    set before `step`, as `Streamed.behavior_prob`.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any], sender: Sender, stream: str | None = None) -> None:
        super().__init__(envs)
        self.sender = sender
        prefix = sender.stream if stream is None else stream
        self.streams = [f"{prefix}-{number}" for number in range(envs.num_envs)]
        self.rows = 0
        self.behavior_probs: npt.ArrayLike | None = None
        self._states = Flat(envs.single_observation_space)
        self._actions = Flat(envs.single_action_space, action=True)
        mode = envs.metadata.get("autoreset_mode")
        if not isinstance(mode, AutoresetMode):
            raise TypeError(
                f"{envs} does not say how it resets: its metadata must hold `autoreset_mode`, a "
                "gymnasium.vector.AutoresetMode (Gymnasium 1.1 and later set it)"
            )
        self.mode = mode
        self._state: Array | None = None
        # Copies between the end of an episode and their reset: what they yield is no transition.
        self._over = np.zeros(envs.num_envs, np.bool_)

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes, of all copies or of those in `options["reset_mask"]`."""
        # The environment takes the mask out of the options.
        mask = None if options is None else options.get("reset_mask")
        observed, info = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        state = self._flat(observed)
        if mask is None or self._state is None:
            self._state, self._over = state, np.zeros(self.num_envs, np.bool_)
        else:
            self._state[mask], self._over[mask] = state[mask], False
        return observed, info

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step with every copy and send them all in one go. Raises as `Streamed.step` does."""
        if self._state is None:
            raise CriticdError("a step without a reset: call reset() of what wrap_vector() returned, then step()")
        probabilities, self.behavior_probs = self.behavior_probs, None
        observed, rewards, terminated, truncated, info = self.env.step(actions)
        state = self._flat(observed)
        ends = np.logical_or(terminated, truncated)
        after = state
        if self.mode is AutoresetMode.SAME_STEP and ends.any():
            after = state.copy()
            for number in np.flatnonzero(ends):
                after[number] = self._final(info, int(number))
        self._send(after, rewards, terminated, truncated, actions, probabilities)
        if self.mode is not AutoresetMode.SAME_STEP:
            # With NEXT_STEP the next step of these copies is their reset; otherwise the caller must reset them.
            self._over = ends if self.mode is AutoresetMode.NEXT_STEP else self._over | ends
        self._state = state
        return observed, rewards, terminated, truncated, info

    def _send(
        self,
        after: Array,
        rewards: Any,
        terminated: Any,
        truncated: Any,
        actions: Any,
        probabilities: npt.ArrayLike | None,
    ) -> None:
        assert self._state is not None
        acts = self._actions.many(actions, self.env.action_space, self.num_envs)
        columns = [self._state, np.asarray(rewards), after, np.asarray(terminated), np.asarray(truncated), acts]
        said = np.full(self.num_envs, np.nan) if probabilities is None else np.asarray(probabilities, np.float64)
        # All rows of a message have a probability, or none has.
        for known in (True, False):
            happened = ~self._over & (np.isnan(said) != known)
            if happened.any():
                states, gains, ahead, stopped, cut, took = (column[happened] for column in columns)
                streams = [self.streams[number] for number in np.flatnonzero(happened)]
                probs = said[happened] if known else None
                ends = {"terminated": stopped, "truncated": cut}
                self.sender.send_step(streams, states, gains, ahead, **ends, actions=took, behavior_probs=probs)
                self.rows += len(streams)

    def _final(self, info: dict[str, Any], number: int) -> npt.NDArray[Any]:
        final = info.get("final_obs")
        if isinstance(final, dict):
            # A batch of all copies in the form of their observations; Gymnasium's own is one observation for each copy.
            final = list(iterate(self.env.observation_space, final))
        if final is None or final[number] is None:
            raise KeyError(
                f'copy {number} ended, and info["final_obs"] does not say where: without it the successor is unknown. '
                "Let the environment tell it (Isaac Lab: compute_final_obs=True), or reset the copies yourself "
                "(AutoresetMode.DISABLED)"
            )
        return self._states.one(final[number])

    def _flat(self, observed: Any) -> Array:
        return self._states.many(observed, self.env.observation_space, self.num_envs).astype(np.float64)


def wrap(
    env: gymnasium.Env[Obs, Act],
    sender: Sender,
    stream: str | None = None,
    *,
    names: Sequence[str] | None = None,
    reward_names: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
) -> Streamed[Obs, Act]:
    """An environment whose steps are sent by `sender`, as `stream` or as the sender's own.

    `names`: what the numbers of an observation are called, a unit in brackets: `["angle [rad]", "speed [rad/s]"]`; by
    default the sender's names, or the keys of a dictionary of observations. `reward_names` and `action_names` name
    the numbers of a reward and the actions, as for `Sender`; actions have by default the sender's names, or the ones
    that the environment gives as `action_names` or `get_action_meanings`, as Atari games do. () is for none.

    Observations that are boxes become vectors; dictionaries, tuples and discrete ones are flattened as
    `gymnasium.spaces.utils.flatten` does. TypeError for what has no length of its own, or more than 1024 numbers. Put
    wrappers that change observations or rewards inside, those that only watch outside, and those that reset by
    themselves (Autoreset) outside: a step behind the end of an episode raises `criticd.CriticdError`.
    """
    if hasattr(env.unwrapped, "num_envs"):
        raise TypeError(
            f"{env} steps several copies: make a gymnasium.vector.VectorEnv of it for wrap_vector(), as "
            "docs/recipes/simulators.md does in the source"
        )
    called = {"names": names, "reward_names": reward_names, "action_names": action_names}
    _tell(sender, env, env.observation_space, env.action_space, **called)
    return Streamed(env, sender, stream)


def wrap_vector(
    envs: VectorEnv[Any, Any, Any],
    sender: Sender,
    stream: str | None = None,
    *,
    names: Sequence[str] | None = None,
    reward_names: Sequence[str] | None = None,
    action_names: Sequence[str] | None = None,
) -> StreamedVector:
    """A vector environment whose steps are sent by `sender`, each copy as a stream of its own: `stream` and a number.

    `names`, `reward_names` and `action_names` are as for `wrap`.

    All three ways of resetting are understood: with NEXT_STEP the step that resets a copy is not sent, with SAME_STEP
    the last state is taken from `info["final_obs"]`, with DISABLED a copy is not sent until `reset` has been called for
    it. Observations are treated as by `wrap`.
    """
    called = {"names": names, "reward_names": reward_names, "action_names": action_names}
    one = next(iter(getattr(envs.unwrapped, "envs", ())), envs)
    _tell(sender, one, envs.single_observation_space, envs.single_action_space, **called)
    return StreamedVector(envs, sender, stream)
