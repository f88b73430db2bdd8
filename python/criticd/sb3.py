"""Stable-Baselines3: a callback that streams what an agent learns from, and compares its critic with the daemon's.

Needs Stable-Baselines3 2 (`pip install stable-baselines3`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium.vector.utils import batch_space
from stable_baselines3.common.callbacks import BaseCallback

from criticd._protocol import Array, Refused
from criticd.gym import Flat
from criticd.returns import Flags, discounted_returns, explained_variance
from criticd.sender import Sender
from criticd.snapshot import Snapshot
from criticd.subscriber import Subscriber

log = logging.getLogger("criticd")


@dataclass
class _Window:
    """Steps to compare both critics on, each entry of all E copies, and the model of before the first of them."""

    model: Snapshot | None = None
    states: list[Array] = field(default_factory=list)
    successors: list[Array] = field(default_factory=list)
    rewards: list[Array] = field(default_factory=list)
    seen_rewards: list[Array] = field(default_factory=list)
    terminated: list[Flags] = field(default_factory=list)
    truncated: list[Flags] = field(default_factory=list)
    values: list[Array] = field(default_factory=list)
    values_after: list[Array] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return sum(len(rewards) for rewards in self.rewards)


class CriticCallback(BaseCallback):
    """Sends every step of training, and logs how well the agent's critic and the daemon's predict.

    ```python
    agent = PPO("MlpPolicy", "CartPole-v1", gamma=0.99)
    agent.learn(20_000, callback=CriticCallback(sender, critic, on_update=client.new_policy))
    ```

    It works with all algorithms of Stable-Baselines3 and with vector environments. Each copy of the environment is a
    stream: the sender's name and a number. A step that ended an episode leads to the state in which it ended
    (`terminal_observation`), terminated or truncated as the environment said. With `VecNormalize`, states and rewards
    are sent as they were before normalisation.

    - `sender` takes the rows, `critic` has the daemon's newest model. Without `critic` rows are sent and nothing is
      compared.
    - `on_update` is called when an on-policy algorithm (PPO, A2C) has changed its policy, before it acts; for example
      `client.new_policy`, so that the daemon learns the value of the new policy. The rows of the policy before have
      been flushed then. A daemon that does not know the request is not asked again.
    - `window_rows`: rows after which both critics are compared, at the end of a rollout.

    Logged, to TensorBoard for instance, of the states of a window:

    - `criticd/explained_variance` of the daemon's model of before the window; `criticd/explained_variance_sb3` of the
      values that an on-policy agent's critic gave while it acted. Returns are discounted with the agent's `gamma`.
      If a time limit cut an episode, or it is unfinished, each critic adds its own value of the last state.
    - `criticd/std`: the mean standard deviation that the model states. `criticd/disagreement`: the root mean square
      difference of the two critics, in units of reward; with `VecNormalize` it is left out.
    - `criticd/generation`, `criticd/rows`, `criticd/refused`: of the model, rows sent, rows that the daemon refused.
    """

    def __init__(
        self,
        sender: Sender,
        critic: Subscriber | None = None,
        *,
        on_update: Callable[[], object] | None = None,
        window_rows: int = 2048,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        self.sender, self.critic, self.on_update, self.window_rows = sender, critic, on_update, window_rows
        self.streams: list[str] = []
        self.rows = 0
        self.updates = 0
        self._window = _Window()
        self._state: Array | None = None
        self._rollouts = 0
        self._warned = False

    def _on_training_start(self) -> None:
        env = self.training_env
        self._states, self._actions = Flat(env.observation_space), Flat(env.action_space, action=True)
        self._spaces = batch_space(env.observation_space, env.num_envs), batch_space(env.action_space, env.num_envs)
        self._normalise = self.model.get_vec_normalize_env()
        self.streams = [f"{self.sender.stream}-{number}" for number in range(env.num_envs)]
        self._on_policy = hasattr(self.model, "rollout_buffer")
        self._state, self._window, self._rollouts = None, _Window(), 0

    def _on_rollout_start(self) -> None:
        if self._on_policy and self._rollouts and self.on_update is not None:
            self.updates += 1
            self.sender.flush(10.0)
            try:
                self.on_update()
            except Refused as refused:
                if refused.code != "unknown_op":
                    raise
                self.on_update = None
                log.warning("the daemon does not distinguish policies: it learns the value of all of them together")
        self._rollouts += 1
        if not self._window.states and self.critic is not None:
            self._window.model = self.critic.latest
        if self._state is None:
            # The observation before the first step, which no argument of a callback holds.
            observed = self.model._last_obs if self._normalise is None else self._normalise.get_original_obs()
            self._state = self._many(observed)

    def _on_step(self) -> bool:
        heard = self.locals
        dones, infos = np.asarray(heard["dones"], np.bool_), heard["infos"]
        truncated = dones & np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        observed, rewards = heard["new_obs"], heard["rewards"]
        if self._normalise is not None:
            observed, rewards = self._normalise.get_original_obs(), self._normalise.get_original_reward()
        state = self._many(observed)
        after = state
        if dones.any():
            after = state.copy()
            for number in np.flatnonzero(dones):
                final = infos[number]["terminal_observation"]
                if self._normalise is not None:
                    final = self._normalise.unnormalize_obs(final)
                after[number] = self._states.one(final)
        assert self._state is not None
        # A copy: the algorithm adds values to the rewards of steps that a time limit cut.
        gained = np.array(rewards, np.float64)
        self.sender.send_step(
            self.streams,
            self._state,
            gained,
            after,
            terminated=dones & ~truncated,
            truncated=truncated,
            actions=self._actions.many(heard.get("clipped_actions", heard["actions"]), self._spaces[1], len(dones)),
        )
        self.rows += len(dones)
        if self.critic is not None:
            self._remember(after, gained, dones, truncated)
        self._state = state
        return True

    def _on_rollout_end(self) -> None:
        if self.critic is None or self._window.rows < self.window_rows:
            return
        if self._window.model is not None:
            self._compare(self._window.model)
        self._window = _Window(model=self.critic.latest)

    def _remember(self, after: Array, rewards: Array, dones: Flags, truncated: Flags) -> None:
        window, heard = self._window, self.locals
        assert self._state is not None
        window.states.append(self._state)
        window.successors.append(after)
        window.rewards.append(rewards)
        window.terminated.append(dones & ~truncated)
        window.truncated.append(truncated)
        if not self._on_policy:
            return
        window.seen_rewards.append(np.array(heard["rewards"], np.float64))
        window.values.append(_flat(heard["values"]))
        values = np.zeros(len(dones))
        for number in np.flatnonzero(truncated):
            values[number] = self._own(heard["infos"][number]["terminal_observation"])[0]
        window.values_after.append(values)

    def _compare(self, model: Snapshot) -> None:
        window, discount = self._window, float(self.model.gamma)
        if abs(model.discount - discount) > 1e-9 and not self._warned:
            self._warned = True
            log.warning(
                "the daemon's critic discounts with %g, the agent with %g: set critic.discount, or they are two values",
                model.discount,
                discount,
            )
        states, rewards = np.array(window.states), np.array(window.rewards)
        terminated, truncated = np.array(window.terminated), np.array(window.truncated)
        shape, cut = rewards.shape, truncated.copy()
        cut[-1] |= ~terminated[-1]
        after = np.zeros(shape)
        after[cut] = _first(model(np.array(window.successors)[cut]))
        mean, deviation = self._predict(model, states.reshape(-1, states.shape[-1]))
        returns = discounted_returns(rewards, terminated, cut, after, discount)
        record = self.logger.record
        record("criticd/explained_variance", explained_variance(mean, returns.ravel()))
        if deviation is not None:
            record("criticd/std", float(deviation.mean()))
        record("criticd/generation", model.generation)
        record("criticd/rows", self.rows)
        record("criticd/refused", self.sender.counters.refused)
        if not self._on_policy:
            return
        own_after, values = np.array(window.values_after), np.array(window.values)
        goes_on = ~(terminated[-1] | truncated[-1])
        if goes_on.any():
            own_after[-1, goes_on] = self._own(self.locals["new_obs"])[goes_on]
        targets = discounted_returns(np.array(window.seen_rewards), terminated, cut, own_after, discount)
        record("criticd/explained_variance_sb3", explained_variance(values.ravel(), targets.ravel()))
        if self._normalise is None:
            record("criticd/disagreement", float(np.sqrt(np.mean((mean - values.ravel()) ** 2))))

    def _predict(self, model: Snapshot, states: Array) -> tuple[Array, Array | None]:
        if model.covariance is None:
            return _first(model(states)), None
        mean, deviation = model(states, std=True)
        return _first(mean), deviation

    def _own(self, observed: Any) -> Array:
        """The value of observations by the agent's own critic, (n,)."""
        policy = self.model.policy
        tensor, _ = policy.obs_to_tensor(observed)
        return _flat(policy.predict_values(tensor))

    def _many(self, observed: Any) -> Array:
        count = self.training_env.num_envs
        return self._states.many(observed, self._spaces[0], count).astype(np.float64)


def _flat(tensor: Any) -> Array:
    """Numbers of a tensor, (n,)."""
    return np.asarray(tensor.detach().cpu().numpy(), np.float64).reshape(-1)


def _first(values: Array) -> Array:
    """Of several rewards, the values of the first."""
    return values if values.ndim == 1 else values[:, 0]
