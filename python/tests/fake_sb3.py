"""As much of Stable-Baselines3 as its callbacks see, for where it is not installed: it would bring PyTorch.

The loops are as in `OnPolicyAlgorithm.collect_rollouts` and `OffPolicyAlgorithm.collect_rollouts`, in the same
order: what a callback finds in its `locals`, when the last observation is replaced, how rewards of steps that a time
limit cut are changed after the callback was called, and how a `DummyVecEnv` reports ends. Values and policies are
arbitrary functions.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np

REAL = importlib.util.find_spec("stable_baselines3") is not None


class Tensor:
    """A number, or many, with the methods by which numbers are got out of a tensor."""

    def __init__(self, values: Any) -> None:
        self.values = np.asarray(values, np.float32)

    def detach(self) -> Tensor:
        return self

    def cpu(self) -> Tensor:
        return self

    def numpy(self) -> Any:
        return self.values


class DummyVecEnv:
    """Copies that are reset where they end."""

    def __init__(self, makers: list[Callable[[], Any]]) -> None:
        self.envs = [make() for make in makers]
        self.num_envs = len(self.envs)
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space

    def reset(self) -> Any:
        return np.stack([env.reset()[0] for env in self.envs])

    def step(self, actions: Any) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        observed, rewards, dones, infos = [], [], [], []
        for env, action in zip(self.envs, actions, strict=True):
            state, reward, terminated, truncated, info = env.step(action)
            info["TimeLimit.truncated"] = truncated and not terminated
            if terminated or truncated:
                info["terminal_observation"] = state
                state, _ = env.reset()
            observed.append(state)
            rewards.append(reward)
            dones.append(terminated or truncated)
            infos.append(info)
        return np.stack(observed), np.array(rewards, np.float32), np.array(dones), infos


class BaseCallback:
    """The methods that algorithms call, and those that a callback overrides."""

    def __init__(self, verbose: int = 0) -> None:
        self.n_calls = self.num_timesteps = 0
        self.verbose = verbose
        self.locals: dict[str, Any] = {}
        self.model: Any = None

    @property
    def training_env(self) -> Any:
        return self.model.get_env()

    @property
    def logger(self) -> Any:
        return self.model.logger

    def init_callback(self, model: Any) -> None:
        self.model = model

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        self.locals = locals_
        self._on_training_start()

    def on_rollout_start(self) -> None:
        self._on_rollout_start()

    def update_locals(self, locals_: dict[str, Any]) -> None:
        self.locals.update(locals_)

    def on_step(self) -> bool:
        self.n_calls += 1
        self.num_timesteps = self.model.num_timesteps
        return self._on_step()

    def on_rollout_end(self) -> None:
        self._on_rollout_end()

    def on_training_end(self) -> None:
        self._on_training_end()

    def _on_training_start(self) -> None: ...
    def _on_rollout_start(self) -> None: ...
    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None: ...
    def _on_training_end(self) -> None: ...


class CallbackList(BaseCallback):
    """Several callbacks, called one after the other."""

    def __init__(self, callbacks: list[BaseCallback]) -> None:
        super().__init__()
        self.callbacks = callbacks

    def init_callback(self, model: Any) -> None:
        super().init_callback(model)
        for callback in self.callbacks:
            callback.init_callback(model)

    def on_training_start(self, locals_: dict[str, Any], globals_: dict[str, Any]) -> None:
        for callback in self.callbacks:
            callback.on_training_start(locals_, globals_)

    def on_rollout_start(self) -> None:
        for callback in self.callbacks:
            callback.on_rollout_start()

    def update_locals(self, locals_: dict[str, Any]) -> None:
        for callback in self.callbacks:
            callback.update_locals(locals_)

    def on_step(self) -> bool:
        results = [callback.on_step() for callback in self.callbacks]
        return all(results)

    def on_rollout_end(self) -> None:
        for callback in self.callbacks:
            callback.on_rollout_end()

    def on_training_end(self) -> None:
        for callback in self.callbacks:
            callback.on_training_end()


def make_vec_env(name: str, n_envs: int = 1, seed: int = 0) -> DummyVecEnv:
    """Copies of a registered environment."""
    envs = DummyVecEnv([lambda: gymnasium.make(name)] * n_envs)
    for number, env in enumerate(envs.envs):
        env.reset(seed=seed + number)
    return envs


class _Logger:
    def __init__(self) -> None:
        self.name_to_value: dict[str, Any] = {}

    def record(self, key: str, value: Any) -> None:
        self.name_to_value[key] = value


class _Policy:
    """Values are a fixed function of the observation."""

    def obs_to_tensor(self, observed: Any) -> tuple[Any, bool]:
        return np.atleast_2d(observed), True

    def predict_values(self, observed: Any) -> Tensor:
        return Tensor(np.tanh(np.asarray(observed).sum(axis=1, keepdims=True)))


class PPO:
    """Collects rollouts as PPO does, and learns nothing."""

    def __init__(
        self, policy: str, env: Any, n_steps: int = 2048, gamma: float = 0.99, seed: int = 0, **_: Any
    ) -> None:
        self.env, self.n_steps, self.gamma = env, n_steps, gamma
        self.policy, self.logger, self.num_timesteps = _Policy(), _Logger(), 0
        self.rollout_buffer = object()
        self._last_obs: Any = None
        env.action_space.seed(seed)

    def get_env(self) -> Any:
        return self.env

    def get_vec_normalize_env(self) -> None:
        return None

    def learn(self, total_timesteps: int, callback: Any) -> PPO:
        callback.init_callback(self)
        self._last_obs = self.env.reset()
        callback.on_training_start(locals(), globals())
        while self.num_timesteps < total_timesteps:
            self._collect(self.env, callback)
        callback.on_training_end()
        return self

    def _collect(self, env: Any, callback: Any) -> None:
        callback.on_rollout_start()
        for _ in range(self.n_steps):
            actions = np.stack([env.action_space.sample() for _ in range(env.num_envs)])
            values = self.policy.predict_values(self._last_obs)
            clipped_actions = actions
            new_obs, rewards, dones, infos = env.step(clipped_actions)
            self.num_timesteps += env.num_envs
            callback.update_locals(locals())
            callback.on_step()
            for idx in np.flatnonzero(dones):
                if infos[idx]["TimeLimit.truncated"]:
                    terminal = self.policy.obs_to_tensor(infos[idx]["terminal_observation"])[0]
                    rewards[idx] += self.gamma * self.policy.predict_values(terminal).numpy()[0, 0]
            self._last_obs = new_obs
        values = self.policy.predict_values(new_obs)
        callback.update_locals(locals())
        callback.on_rollout_end()


class SAC:
    """Collects rollouts of a step each, as off-policy algorithms do: there are no values."""

    def __init__(self, policy: str, env: Any, gamma: float = 0.99, seed: int = 0, **_: Any) -> None:
        self.env, self.gamma, self.num_timesteps = env, gamma, 0
        self.policy, self.logger = _Policy(), _Logger()
        self._last_obs: Any = None
        env.action_space.seed(seed)

    get_env, get_vec_normalize_env = PPO.get_env, PPO.get_vec_normalize_env

    def learn(self, total_timesteps: int, callback: Any) -> SAC:
        callback.init_callback(self)
        self._last_obs = self.env.reset()
        callback.on_training_start(locals(), globals())
        while self.num_timesteps < total_timesteps:
            callback.on_rollout_start()
            actions = np.stack([self.env.action_space.sample() for _ in range(self.env.num_envs)])
            new_obs, rewards, dones, infos = self.env.step(actions)
            self.num_timesteps += self.env.num_envs
            callback.update_locals({"actions": actions, "new_obs": new_obs, "rewards": rewards, "dones": dones})
            callback.update_locals({"infos": infos})
            callback.on_step()
            self._last_obs = new_obs
            callback.on_rollout_end()
        callback.on_training_end()
        return self


def install() -> None:
    """Stand in for the package, unless it is there."""
    if REAL or "stable_baselines3" in sys.modules:
        return
    contents: dict[str, dict[str, Any]] = {
        "stable_baselines3": {"PPO": PPO, "SAC": SAC},
        "stable_baselines3.common": {},
        "stable_baselines3.common.callbacks": {"BaseCallback": BaseCallback, "CallbackList": CallbackList},
        "stable_baselines3.common.env_util": {"make_vec_env": make_vec_env},
        "stable_baselines3.common.vec_env": {"DummyVecEnv": DummyVecEnv},
    }
    for name, things in contents.items():
        module = ModuleType(name)
        module.__dict__.update(things)
        sys.modules[name] = module
