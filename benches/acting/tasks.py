"""Tasks that are measured here, and the line that each seed gets."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

MEAN_OF = 10
LAST = 30


@dataclass(frozen=True)
class Task:
    """Discount of the learner, and the mean return of ten episodes that is the goal."""

    discount: float
    goal: float


# Settings that were tried where episodes terminate: the evidence that a dictionary can carry, with noise of at least a
# twentieth, selects a smooth kernel, and frequent refits let it follow the states that the agent has come to know.
BY_EVIDENCE = (
    'critic.selection="evidence"',
    'critic.evidence="sparse"',
    'critic.kernel_profile="gaussian"',
    "critic.noise_floor=0.05",
    "critic.dictionary_max=200",
    "critic.refit_growth=1.2",
)
TASKS = {
    "Pendulum-v1": Task(0.97, -200.0),
    "CartPole-v1": Task(0.995, 475.0),
    "Acrobot-v1": Task(0.99, -100.0),
    "LunarLander-v3": Task(0.99, 200.0),
}


def reached(returns: list[float], goal: float) -> int | None:
    """First episode, from 1, at which the mean of ten returns is at least `goal`."""
    means = np.convolve(returns, np.ones(MEAN_OF) / MEAN_OF, "valid") if len(returns) >= MEAN_OF else []
    return next((k + MEAN_OF for k, mean in enumerate(means) if mean >= goal), None)


def line(seed: int, returns: list[float], goal: float, seconds: float) -> str:
    """When the goal was reached, the worst of the last 30 returns, the mean of the last ten, and all."""
    worst, mean = min(returns[-LAST:]), np.mean(returns[-MEAN_OF:])
    shown = " ".join(f"{value:.0f}" for value in returns)
    first = reached(returns, goal)
    return f"seed {seed}: reached {first}, worst {worst:.0f}, last ten {mean:.0f}, {seconds:.0f} s: {shown}"


def summary(name: str, all_returns: list[list[float]], goal: float) -> str:
    """On how many seeds the goal was reached, and when."""
    found = sorted(first for returns in all_returns if (first := reached(returns, goal)) is not None)
    tens = sorted(round(float(np.mean(returns[-MEAN_OF:]))) for returns in all_returns)
    return f"{name}: {goal:g} reached on {len(found)} of {len(all_returns)}, at {found}; last ten {tens}"
