"""An agent for Gymnasium environments: it starts a daemon, acts by the daemon's newest model, and sends each row.

```python
import gymnasium
from criticd.agent import Agent

with Agent(gymnasium.make("CartPole-v1"), discount=0.995) as agent:
    for episode in agent.run(60):
        print(episode.number, episode.total)
```

Needs Gymnasium 1.1 (`pip install gymnasium`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv

from criticd._act import Decisions
from criticd._protocol import Array, NoReply, Refused, Unreachable
from criticd.daemon import Daemon
from criticd.gym import Flat, wrap, wrap_vector
from criticd.snapshot import Snapshot

if TYPE_CHECKING:
    from typing_extensions import Self

Explore = Callable[[Array, Decisions | None, np.random.Generator], npt.ArrayLike]
"""Own exploration: actions (n,) or (n, A) from states (n, D) and the model's decisions.

The second argument is None before the first model, the third is the agent's generator.
"""

_Answer = TypeVar("_Answer")

_NAME = "q"
_POLL_S = 0.01


@dataclass(frozen=True, slots=True)
class Episode:
    """An episode that has ended: its number from 0, the sum of its rewards, and its steps."""

    number: int
    total: float
    steps: int


class Agent:
    """Acts in an environment, or in all copies of a vector environment, and learns action values from it.

    - `env`: actions must be `Discrete` from 0, or a bounded `Box`. Observations are flattened as by `criticd.gym.wrap`.
    - `settings`: KEY=VALUE pairs of the daemon's configuration, such as "critic.dictionary_max=200".
    - `discount`: of the daemon's critic.
    - `exploration`: "epsilon_greedy", "thompson", "softmax", "ucb" or "greedy"; `options` has its number, such as
      {"temperature": 0.5}. Without one epsilon falls from 0.1 to 0.01 within 25 episodes.
    - `explore`: chooses the actions instead, see `Explore`.
    - `seed`: of exploration and of the environment's episodes.
    - `directory`: where the daemon keeps its data; with it the next agent there goes on.
    - `daemon`: a daemon that runs already, whose first critic learns action values. `settings`, `discount` and
      `directory` then have no effect.
    - `wait_s`: how long to wait at most, after an episode, for the daemon to improve on it. With 0 the environment
      never waits; on a busy machine the agent then learns from fewer improvements.
    - `patience_s`: for how long the agent repeats a question that a busy daemon does not answer. Then it raises
      `NoReply` or `Unreachable`. If the daemon has ended, it raises at once.

    The daemon ends with the agent, unless it was given. Raises TypeError for spaces that are none of these.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any] | VectorEnv[Any, Any, Any],
        *settings: str,
        discount: float = 0.99,
        exploration: str = "epsilon_greedy",
        options: Mapping[str, Any] | None = None,
        explore: Explore | None = None,
        seed: int = 0,
        directory: str | None = None,
        daemon: Daemon | None = None,
        wait_s: float = 600.0,
        patience_s: float = 120.0,
    ) -> None:
        self._vector = isinstance(env, VectorEnv)
        self.copies = env.num_envs if isinstance(env, VectorEnv) else 1
        observations = env.single_observation_space if isinstance(env, VectorEnv) else env.observation_space
        self._space = env.single_action_space if isinstance(env, VectorEnv) else env.action_space
        self._states = Flat(observations)
        actions = _actions(self._space)
        self.exploration, self._options, self._explore = exploration, dict(options or {}), explore
        self.seed, self.wait_s, self.patience_s = seed, wait_s, patience_s
        self._random = np.random.default_rng(seed)
        self.episodes = 0
        self._demonstrations = 0
        self._own = daemon is None
        self.daemon = daemon or Daemon(*settings, config=_config(actions, discount), directory=directory)
        self.client = self.daemon.client()
        # Rows of two runs are of two sessions: the daemon knows which are new.
        self.sender = self.daemon.sender(reliable=True, stream="agent")
        if isinstance(env, VectorEnv):
            if env.metadata.get("autoreset_mode") is AutoresetMode.DISABLED:
                raise TypeError("an agent needs copies that reset themselves, these have AutoresetMode.DISABLED")
            self._envs: Any = wrap_vector(env, self.sender)
        else:
            self._envs = wrap(env, self.sender)

    @property
    def env(self) -> Any:
        """The environment, whose every step is sent."""
        return self._envs

    def run(self, episodes: int) -> Iterator[Episode]:
        """Act for `episodes` episodes; yield each when it has ended."""
        yield from self._run_copies(episodes) if self._vector else self._run_one(episodes)

    def _run_one(self, episodes: int) -> Iterator[Episode]:
        for _ in range(episodes):
            observed, _ = self._envs.reset(seed=self._episode_seed(self.episodes))
            total, steps, over = 0.0, 0, False
            while not over:
                actions, chances = self._chosen(self._states.one(observed)[np.newaxis], [self.episodes], [steps])
                self._envs.behavior_prob = chances[0]
                observed, reward, terminated, truncated, _ = self._envs.step(self._given(actions[0]))
                total, steps, over = total + float(reward), steps + 1, terminated or truncated
            self.learn()
            yield self._ended(total, steps)

    def _run_copies(self, episodes: int) -> Iterator[Episode]:
        observed, _ = self._envs.reset(seed=self._episode_seed(self.episodes))
        totals, steps = np.zeros(self.copies), np.zeros(self.copies, np.int64)
        numbers = np.arange(self.copies) + self.episodes
        following, ended = int(numbers[-1]) + 1, 0
        resets = np.zeros(self.copies, np.bool_)
        skips = self._envs.mode is AutoresetMode.NEXT_STEP
        while ended < episodes:
            states = self._states.many(observed, self._envs.observation_space, self.copies)
            actions, self._envs.behavior_probs = self._chosen(states, numbers, steps)
            observed, rewards, terminated, truncated, _ = self._envs.step(self._given_all(actions))
            happened = ~resets
            totals[happened] += np.asarray(rewards)[happened]
            steps[happened] += 1
            over = np.logical_or(terminated, truncated) & happened
            for copy in np.flatnonzero(over):
                if ended == episodes:
                    return
                self.learn()
                ended += 1
                yield self._ended(float(totals[copy]), int(steps[copy]))
                totals[copy], steps[copy], numbers[copy] = 0.0, 0, following
                following += 1
            resets = over if skips else np.zeros(self.copies, np.bool_)

    def act(self, states: npt.ArrayLike, episodes: npt.ArrayLike = 0, steps: npt.ArrayLike = 0) -> npt.NDArray[Any]:
        """Actions in states (n, D): numbers (n,), or (n, A). At random before there is a model.

        `episodes` and `steps` (n,) number the decisions: the same numbers give the same decision by the same model.
        """
        return self._chosen(np.atleast_2d(np.asarray(states, np.float64)), episodes, steps)[0]

    def _chosen(
        self, states: Array, episodes: npt.ArrayLike, steps: npt.ArrayLike
    ) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Actions in states (n, D), and the probability or density (n,) of each; NaN where it is not known."""
        count = len(states)
        decided = self._decided(states, episodes, steps)
        if self._explore is not None:
            return np.asarray(self._explore(states, decided, self._random)), np.full(count, np.nan)
        if decided is not None:
            return decided.actions, decided.probability
        if isinstance(self._space, spaces.Discrete):
            choices = int(self._space.n)
            return self._random.integers(choices, size=count), np.full(count, 1.0 / choices)
        assert isinstance(self._space, spaces.Box)
        low, high = self._space.low.ravel().astype(np.float64), self._space.high.ravel().astype(np.float64)
        with np.errstate(divide="ignore", over="ignore", under="ignore"):
            density = 1.0 / np.prod(high - low)
        known = density if 0.0 < density < np.inf else np.nan
        return self._random.uniform(low, high, (count, low.size)), np.full(count, known)

    def _decided(self, states: Array, episodes: npt.ArrayLike, steps: npt.ArrayLike) -> Decisions | None:
        options = dict(self._options)
        if self.exploration == "epsilon_greedy" and "epsilon" not in options:
            options["epsilon"] = 0.1 - 0.09 * min(1.0, self.episodes / 25)
        fields = {"seed": self.seed, "episode": episodes, "step": steps, **options}
        try:
            return self._answered(lambda: self.client.act(states, self.exploration, **fields))
        except Refused as refused:
            # Thompson sampling waits for the first improvement, which brings the copies that it draws from.
            waits = refused.code == "not_ready" or (self.exploration == "thompson" and refused.field == "exploration")
            if not waits:
                raise
            return None

    def demonstrate(
        self,
        states: npt.ArrayLike,
        actions: npt.ArrayLike,
        rewards: npt.ArrayLike,
        *,
        terminated: bool = False,
        truncated: bool = False,
    ) -> None:
        """Learn from a trajectory of another actor: states (T + 1, D), actions (T,) or (T, A) and rewards (T,).

        `terminated` and `truncated` say how its last step ended.
        """
        name = f"demonstration-{self._demonstrations}"
        self._demonstrations += 1
        self.sender.send_trajectory(
            states, rewards, actions=actions, terminated=terminated, truncated=truncated, stream=name
        )
        self.learn()

    def learn(self) -> bool:
        """Wait, for at most `wait_s`, until all rows are learned and no improvement is due. Return whether it is so."""
        if self.wait_s <= 0:
            return False
        self.sender.flush(self.wait_s)
        rows, quiet, deadline = self.sender.counters.acknowledged, 0, time.monotonic() + self.wait_s
        while quiet < 2 and time.monotonic() < deadline:
            status = self._answered(self.client.status)
            critic = status["critics"][0]
            learned = status["offset"] >= rows and critic["learned"] >= rows - self.copies
            refit = critic["refit"]
            # Twice, so that answers come from the model that was adopted last.
            quiet = quiet + 1 if learned and not refit["running"] and not refit["due"] else 0
            time.sleep(_POLL_S)
        return quiet == 2

    def snapshot(self) -> Snapshot:
        """The newest model: `act` without a daemon, `save` and ONNX."""
        return self._answered(self.client.snapshot)

    def _answered(self, ask: Callable[[], _Answer]) -> _Answer:
        """What the daemon answers to a question that may be repeated."""
        deadline = time.monotonic() + self.patience_s
        while True:
            try:
                return ask()
            except (NoReply, Unreachable):
                if time.monotonic() >= deadline or not self.daemon.alive():
                    raise

    def close(self) -> None:
        """Send the remaining rows, and stop the daemon if it is the agent's own."""
        self.sender.close()
        self.client.close()
        if self._own:
            self.daemon.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _episode_seed(self, episode: int) -> int:
        return int(np.random.SeedSequence([self.seed, episode]).generate_state(1)[0])

    def _ended(self, total: float, steps: int) -> Episode:
        episode = Episode(self.episodes, total, steps)
        self.episodes += 1
        return episode

    def _given(self, action: Any) -> Any:
        """An action as the environment takes it."""
        if isinstance(self._space, spaces.Discrete):
            return int(action)
        return np.asarray(action, self._space.dtype).reshape(self._space.shape)

    def _given_all(self, actions: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if isinstance(self._space, spaces.Discrete):
            return actions.astype(np.int64)
        return np.asarray(actions, self._space.dtype).reshape(self.copies, *(self._space.shape or ()))


def _actions(space: spaces.Space[Any]) -> str:
    """The actions of a space, as a configuration file names them."""
    if isinstance(space, spaces.Discrete) and int(space.start) == 0:
        return str(int(space.n))
    if isinstance(space, spaces.Box) and np.isfinite(space.low).all() and np.isfinite(space.high).all():
        low, high = ([float(value) for value in end.ravel()] for end in (space.low, space.high))
        return f"{{ low = {low}, high = {high} }}"
    raise TypeError(f"actions of {space}: an agent acts with Discrete ones from 0, or with a Box that is bounded")


def _config(actions: str, discount: float) -> str:
    # An agent's rows are few: the daemon refits and improves early and often.
    return f"""
[[critic]]
name = "{_NAME}"
inputs = "state_action"
actions = {actions}
successor = "improve"
improve_rows = 20
discount = {discount!r}
refit_first_rows = 128
refit_growth = 1.5
refit_budget_s = 5.0
"""
