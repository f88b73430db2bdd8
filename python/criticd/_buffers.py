"""Experience as libraries keep it in memory, as the columns of a table: Stable-Baselines3, d3rlpy, Minari.

They are known by what they have, so that none of them is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from criticd._protocol import Invalid

Columns = dict[str, npt.NDArray[Any]]


def columns_of(buffer: Any) -> Columns | None:
    """Rows of a buffer in the order in which they came, by the names of NPZ tables; None for what is no buffer.

    Raises `Invalid` for a buffer that does not say where episodes terminate.
    """
    if hasattr(buffer, "episode_starts") and hasattr(buffer, "advantages"):
        raise Invalid(
            "table",
            "is a rollout buffer of Stable-Baselines3, which does not say whether an episode terminated or was "
            "truncated: send its steps with criticd.sb3.CriticCallback, or fit a ReplayBuffer",
        )
    if hasattr(buffer, "timeouts") and hasattr(buffer, "dones"):
        return _of_replay(buffer)
    if hasattr(buffer, "iterate_episodes"):
        return _joined(_of_minari(episode) for episode in buffer.iterate_episodes())
    if hasattr(buffer, "episodes") and hasattr(buffer, "transition_count"):
        return _joined(_of_d3rlpy(episode) for episode in buffer.episodes)
    return None


def _flat(values: Any) -> npt.NDArray[Any]:
    """(n, k) of numbers, a dict's in the order of its keys, as Gymnasium flattens them."""
    if isinstance(values, Mapping):
        return np.hstack([_flat(values[key]) for key in sorted(values)])
    if isinstance(values, tuple):
        return np.hstack([_flat(part) for part in values])
    found = np.asarray(values)
    return found.reshape(len(found), -1)


def _single(values: Any) -> npt.NDArray[Any]:
    """Actions: (n,) where there is one number in each."""
    found = _flat(values)
    return found[:, 0] if found.shape[1] == 1 else found


def _joined(episodes: Iterable[Columns]) -> Columns:
    parts = list(episodes)
    if not parts:
        raise Invalid("table", "has no episode")
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _of_replay(buffer: Any) -> Columns:
    """A replay buffer of Stable-Baselines3 (size, copies, ...): each copy of the environment is a stream."""
    size = buffer.buffer_size
    order = np.arange(buffer.pos, buffer.pos + size) % size if buffer.full else np.arange(buffer.pos)
    following = getattr(buffer, "next_observations", None)
    if following is None:
        # Memory is saved: the next observation is the one in the next place, and the newest took the oldest's.
        order = order[1:] if buffer.full else order
    if not len(order):
        raise Invalid("table", "is an empty buffer")
    ahead = (order + 1) % size if following is None else order
    parts = []
    for copy in range(buffer.n_envs):
        truncated = np.asarray(buffer.timeouts)[order, copy].astype(np.bool_)
        done = np.asarray(buffer.dones)[order, copy].astype(np.bool_)
        parts.append(
            {
                "streams": np.full(len(order), f"{copy}"),
                "states": _flat(_at(buffer.observations, order, copy)),
                "actions": _single(_at(buffer.actions, order, copy)),
                "rewards": np.asarray(buffer.rewards)[order, copy].astype(np.float64),
                "next_states": _flat(_at(buffer.observations if following is None else following, ahead, copy)),
                "terminated": done & ~truncated,
                "truncated": truncated,
            }
        )
    return _joined(parts)


def _at(values: Any, order: npt.NDArray[np.intp], copy: int) -> Any:
    if isinstance(values, Mapping):
        return {key: part[order, copy] for key, part in values.items()}
    return values[order, copy]


def _of_minari(episode: Any) -> Columns:
    """An episode of Minari, which has one observation more than actions."""
    states = _flat(episode.observations)
    return {
        "states": states[:-1],
        "actions": _single(episode.actions),
        "rewards": np.asarray(episode.rewards),
        "next_states": states[1:],
        "terminated": np.asarray(episode.terminations, np.bool_),
        "truncated": np.asarray(episode.truncations, np.bool_),
    }


def _of_d3rlpy(episode: Any) -> Columns:
    """An episode of d3rlpy, which lacks the observation after its last one."""
    states = _flat(episode.observations)
    last = np.arange(len(states)) == len(states) - 1
    return {
        "states": states,
        "actions": _single(episode.actions),
        "rewards": np.asarray(episode.rewards).reshape(len(states), -1)[:, 0],
        "terminated": last & bool(episode.terminated),
        "truncated": last & ~np.bool_(episode.terminated),
    }
