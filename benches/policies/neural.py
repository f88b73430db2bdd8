"""The fitted Q evaluation of d3rlpy, of a policy that is known by its probabilities; `twenty.py --by d3rlpy` calls it.

It is asked as its documentation has it: `DiscreteFQE` with the networks of its defaults, two layers of 256, one thread.
Three things help it. Observations are normalised by the mean and the deviation of the rows. Rewards are multiplied by
1 - discount, so that values are of the size of rewards. A chain that was cut has a row more for where it led, so that no
row is lost. d3rlpy takes policies that are sure of their action; here each batch draws the next actions anew, so that
its targets have the right mean. J is the mean of sum_a pi(a|s) Q(s, a) over the states where chains begin.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import d3rlpy
import numpy as np
import structlog
import torch
from d3rlpy.dataset import Episode, create_infinite_replay_buffer
from d3rlpy.logging import NoopAdapterFactory
from d3rlpy.ope import DiscreteFQE, FQEConfig
from numpy.typing import NDArray

Array = NDArray[np.float64]

LEARNING_RATE = 1e-3
TARGET_UPDATE = 20


class Drawn:
    """What d3rlpy takes for the implementation of an algorithm: draws from a policy in observations (n, D)."""

    def __init__(self, acts: Callable[[Array], Array]) -> None:
        self.acts = acts

    def predict_best_action(self, observations: torch.Tensor) -> torch.Tensor:
        probabilities = torch.as_tensor(self.acts(observations.numpy().astype(float)))
        return torch.multinomial(probabilities, 1)[:, 0]


def episodes(of: dict[str, Array], observed: Callable[[Array], Array]) -> Any:
    """The chains of rows, with observations in the unit of the networks."""
    ends, first = np.flatnonzero(of["ended"] + of["cut"]) + 1, 0
    for end in [*ends, *([] if len(ends) and ends[-1] == len(of["rewards"]) else [len(of["rewards"])])]:
        rows = slice(first, end)
        states, actions, rewards = observed(of["inner"][rows]), of["actions"][rows], of["rewards"][rows]
        terminated = bool(of["ended"][end - 1])
        if not terminated:
            states = np.concatenate([states, observed(of["after"][end - 1 : end])])
            actions, rewards = np.append(actions, 0.0), np.append(rewards, 0.0)
        yield Episode(
            observations=states.astype(np.float32),
            actions=actions.astype(np.int64)[:, None],
            rewards=rewards.astype(np.float32)[:, None],
            terminated=terminated,
        )
        first = end


def value(of: dict[str, Array], acts: Callable[[Array], Array], settings: tuple[float, int]) -> float:
    """J of the policy with the probabilities `acts` (n, A) in observations (n, D), after so many steps of `settings`."""
    discount, steps = settings
    torch.set_num_threads(1)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    d3rlpy.seed(1)
    shift, scale = of["inner"].mean(axis=0), of["inner"].std(axis=0)

    def seen(inputs: Array) -> Array:
        return acts(inputs * scale + shift)

    scaled = {**of, "rewards": of["rewards"] * (1.0 - discount)}
    buffer = create_infinite_replay_buffer(list(episodes(scaled, lambda states: (states - shift) / scale)))
    config = FQEConfig(gamma=discount, learning_rate=LEARNING_RATE, target_update_interval=TARGET_UPDATE)
    fqe = DiscreteFQE(algo=SimpleNamespace(impl=Drawn(seen)), config=config, device="cpu:0")
    fqe.fit(buffer, n_steps=steps, n_steps_per_epoch=steps, logger_adapter=NoopAdapterFactory(), show_progress=False)
    begins = np.concatenate([[True], (of["ended"] + of["cut"])[:-1] > 0])
    states, probabilities = of["inner"][begins], acts(of["inner"][begins])
    inputs = ((states - shift) / scale).astype(np.float32)
    each = [fqe.predict_value(inputs, np.full(len(inputs), a)) for a in range(probabilities.shape[1])]
    return float((np.stack(each, axis=1) * probabilities).sum(axis=1).mean() / (1.0 - discount))
