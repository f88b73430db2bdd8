"""Decisions by a model of action values: the same ones, for the same seed, as the daemon's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from criticd._actions import Actions
from criticd._kernel import function_of
from criticd._model import Model
from criticd._protocol import Array, Invalid, Message
from criticd._values import numbers

STEPS = 6
"""Newton steps in a box."""
STARTS = 3
"""Candidates that they start from."""
HALVINGS = 8
"""Times a step is halved before it is given up."""
ROUNDING = 1e-14
"""A step that is expected to gain less than this share of the height changes it by its rounding."""
_MASK = (1 << 64) - 1
_NUMBERS = {"epsilon_greedy": "epsilon", "softmax": "temperature", "ucb": "beta"}


@dataclass(frozen=True, eq=False)
class Decisions:
    """Decisions in n states; for a single state all of them have one axis less.

    ```python
    chosen = q.act([[0.2, 0.0]], "epsilon_greedy", epsilon=0.1)
    print(chosen.actions, chosen.probability)
    ```

    `actions` are whole numbers (n,) where actions are discrete, else (n, A). `mean` (n,) is Q of each, `std` its
    deviation, None without a variance. `probability` (n,) is that with which the step's own randomness takes the
    action, as `behavior_prob` wants it; it is not a number where a box is explored uniformly, and where the fallback
    acts. `unknown` (n,) says where the deviation is above the limit. `copy` (n,) is the randomised copy, of `copies`,
    that has chosen with "thompson", else None. `decision_id` (n,) is a hash of seed, episode, step, model and state.
    """

    actions: npt.NDArray[Any]
    mean: Array
    std: Array | None
    probability: Array
    unknown: npt.NDArray[np.bool_]
    decision_id: npt.NDArray[np.uint64]
    copy: npt.NDArray[np.int64] | None
    copies: int | None
    generation: int
    revision: int
    offset: int


def request(
    states: npt.ArrayLike,
    exploration: str,
    *,
    epsilon: float | None,
    temperature: float | None,
    beta: float | None,
    seed: int,
    episode: npt.ArrayLike,
    step: npt.ArrayLike | None,
    candidates: npt.ArrayLike | None,
    unknown_above: float | None,
    fallback: npt.ArrayLike | None,
    critic: str | None,
) -> Message:
    """The fields of an `act` request."""
    points = np.atleast_2d(numbers(states, "states"))
    fields: Message = {"states": points, "exploration": exploration, "seed": int(seed)}
    for name, given in (("episodes", episode), ("steps", steps_of(step, len(points)))):
        fields[name] = np.broadcast_to(numbers(given, name), len(points)).copy()
    optional = {"epsilon": epsilon, "temperature": temperature, "beta": beta, "unknown_above": unknown_above}
    fields |= {key: float(value) for key, value in optional.items() if value is not None}
    for name, actions in (("candidates", candidates), ("fallback", fallback)):
        if actions is not None:
            fields[name] = np.atleast_1d(numbers(actions, name))
    return fields if critic is None else fields | {"critic": critic}


def steps_of(step: npt.ArrayLike | None, count: int) -> npt.ArrayLike:
    """Numbers of the steps of `count` states: without any the states are decided independently of each other."""
    return np.arange(count) if step is None else step


def decisions_of(reply: Mapping[str, Any], single: bool) -> Decisions:
    """The reply to `act`."""
    actions = np.array(reply["actions"], np.float64)
    std, copy = reply.get("std"), reply.get("copy")
    found = Decisions(
        actions=actions,
        mean=np.array(reply["mean"], np.float64),
        std=None if std is None else np.array(std, np.float64),
        probability=np.array([np.nan if p is None else p for p in reply["probability"]], np.float64),
        unknown=np.array(reply["unknown"], np.bool_),
        decision_id=np.array(reply["decision_id"], np.uint64),
        copy=None if copy is None else np.array(copy, np.int64),
        copies=reply.get("copies"),
        generation=int(reply["generation"]),
        revision=int(reply["revision"]),
        offset=int(reply["offset"]),
    )
    return single_of(found) if single else found


def single_of(found: Decisions) -> Decisions:
    """The decision of one state, without the axis of states."""

    def first(values: Any) -> Any:
        return None if values is None else values[0]

    return replace(
        found,
        actions=first(found.actions),
        mean=first(found.mean),
        std=first(found.std),
        probability=first(found.probability),
        unknown=first(found.unknown),
        decision_id=first(found.decision_id),
        copy=first(found.copy),
    )


def mix(*parts: int) -> int:
    """One number from several: SplitMix64 of each in turn."""
    state = 0
    for part in parts:
        state = _scramble(state ^ _scramble(part & _MASK))
    return state


def _scramble(state: int) -> int:
    z = (state + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


def _hash(state: Array) -> int:
    """One number from the bits of all numbers of a state (D,)."""
    found = 0
    for bits in np.ascontiguousarray(state, np.float64).view(np.uint64).tolist():
        found = mix(found, bits)
    return found


def uniform(number: int) -> float:
    """Uniform in [0, 1), of 53 bits of a hash."""
    return (number >> 11) / (1 << 53)


def candidates(of: Actions) -> Array:
    """Coordinates (C, width) of the actions that are always looked at."""
    if of.count:
        return np.eye(of.count)
    low, high = of.low, of.high
    width = len(low)
    if width == 1:
        return np.array([[low[0] + (high[0] - low[0]) * k / 8.0] for k in range(9)])
    found = []
    if width <= 4:
        found += [[high[d] if corner >> d & 1 else low[d] for d in range(width)] for corner in range(1 << width)]
    root = 1.5
    for _ in range(64):
        root = (1.0 + root) ** (1.0 / (width + 1.0))
    for k in range(16 * width + 1):
        found.append([low[d] + (high[d] - low[d]) * ((0.5 + k * root ** -(d + 1)) % 1.0) for d in range(width)])
    return np.array(found)


@dataclass(frozen=True, eq=False)
class Actor:
    """A model that decides."""

    model: Model
    of: Actions
    exploration: str
    number: float
    """Of the exploration: epsilon, temperature or beta."""

    @classmethod
    def new(cls, model: Model, exploration: str, **numbers: float | None) -> Actor:
        """Raises `Invalid` for an exploration that is not known or not possible."""
        if model.actions is None:
            raise Invalid("actions", "the model is the value of states, not of actions")
        if exploration not in {"greedy", "thompson", *_NUMBERS}:
            raise Invalid("exploration", f"is no way to explore: {exploration!r}")
        name = _NUMBERS.get(exploration)
        number = numbers.get(name) if name else 0.0
        if number is None:
            raise Invalid(str(name), f"{exploration} needs it")
        if exploration == "epsilon_greedy" and not 0 <= number <= 1:
            raise Invalid("epsilon", f"lies in [0, 1], this one is {number}")
        if exploration == "softmax" and not 0 < number < np.inf:
            raise Invalid("temperature", f"must be positive, is {number}")
        if exploration == "ucb" and not 0 <= number < np.inf:
            raise Invalid("beta", f"must not be negative, is {number}")
        if exploration == "thompson" and not model.actions.copies.shape[1]:
            raise Invalid("exploration", "the model carries no randomised copies, which thompson needs")
        if exploration == "ucb" and model.covariance is None:
            raise Invalid("exploration", "the model carries no variance, which ucb needs")
        return cls(model, model.actions, exploration, float(number))

    def decide(
        self,
        states: Array,
        seed: int,
        episodes: npt.NDArray[np.int64],
        steps: npt.NDArray[np.int64],
        given: Array | None,
        unknown_above: float | None,
        fallback: Array | None,
    ) -> Decisions:
        """For states (n, D), among the coordinates `given` (k, width) or all there are."""
        model, width = self.model, self.of.width
        if states.shape[1] != model.dim - width:
            raise Invalid("states", f"must be (n, {model.dim - width}), not {states.shape}")
        inputs, probabilities, copies = [], [], []
        for state, episode, step in zip(states, episodes.tolist(), steps.tolist(), strict=True):
            chosen, probability, copy = self._choose(state, (seed, episode, step), given)
            inputs.append(chosen)
            probabilities.append(probability)
            copies.append(copy)
        points = np.array(inputs)
        means, variances = model.evaluate(points, variance=model.covariance is not None)
        std = None if variances is None else np.sqrt(variances)
        actions: npt.NDArray[Any] = points[:, model.dim - width :]
        if self.of.count:
            actions = actions.argmax(axis=1)
        unknown = np.zeros(len(points), np.bool_)
        if unknown_above is not None:
            if std is None:
                raise Invalid("unknown_above", "the model carries no variance to compare it with")
            unknown = std > unknown_above
        taken: Array = np.array(probabilities, np.float64)
        if fallback is not None:
            actions = actions.astype(np.int64 if self.of.count else np.float64)
            actions[unknown] = int(fallback[0]) if self.of.count else fallback
            taken[unknown] = np.nan
        critic = mix(*model.critic.encode())
        ids = [
            mix(seed, e, s, model.generation, model.offset, critic, _hash(state))
            for e, s, state in zip(episodes.tolist(), steps.tolist(), states, strict=True)
        ]
        thompson = self.exploration == "thompson"
        return Decisions(
            actions=actions,
            mean=means if means.ndim == 1 else means[:, 0],
            std=std,
            probability=taken,
            unknown=unknown,
            decision_id=np.array(ids, np.uint64),
            copy=np.array(copies) if thompson else None,
            copies=self.of.copies.shape[1] if thompson else None,
            generation=model.generation,
            revision=model.revision,
            offset=model.offset,
        )

    def _choose(self, state: Array, when: tuple[int, int, int], given: Array | None) -> tuple[Array, float, int]:
        """An input, the probability of its action, and the copy that has chosen it."""

        def drawn(what: int) -> float:
            return uniform(mix(*when, what))

        seed, episode, _ = when
        actions = candidates(self.of) if given is None else given
        inputs = np.hstack([np.repeat(state[None, :], len(actions), axis=0), actions])
        copy = mix(seed, episode) % max(1, self.of.copies.shape[1])
        weights = self.of.copies[:, copy] if self.exploration == "thompson" else self.model.weights[:, 0]
        score = self._heights(inputs, weights)
        if self.exploration == "ucb":
            mean, variance = self.model.evaluate(inputs)
            assert variance is not None
            score = mean + self.number * np.sqrt(variance)
        best, place, probability = int(np.argmax(score)), int(np.argmax(score)), 1.0
        listed = given is not None or self.of.count > 0
        if self.exploration == "softmax":
            shares = np.exp((score - score.max()) / self.number)
            shares /= shares.sum()
            place = min(int(np.searchsorted(np.cumsum(shares), drawn(0), side="right")), len(shares) - 1)
            probability = float(shares[place])
        elif self.exploration == "epsilon_greedy":
            explores = drawn(0) < self.number
            if listed:
                place = min(int(drawn(1) * len(actions)), len(actions) - 1) if explores else best
                probability = self.number / len(actions) + (1 - self.number if place == best else 0.0)
            else:
                probability = np.nan
                if explores:
                    span = self.of.high - self.of.low
                    number = np.array([drawn(1 + d) for d in range(len(span))])
                    return np.concatenate([state, self.of.low + span * number]), probability, copy
        if place == best and not listed and self.exploration not in {"softmax", "ucb"}:
            return self._climb(inputs, score, weights), probability, copy
        return inputs[place], probability, copy

    def _heights(self, inputs: Array, weights: Array) -> Array:
        model = self.model
        model._check(inputs)
        # The kernel's bias is the same everywhere: without it near ties fall as in the daemon.
        kernel = replace(model.kernel, bias_variance=0.0)
        q = len(kernel.columns)
        found: Array = kernel.of_squares(model._squares(inputs, kernel.project(model.dictionary))) @ weights[q:]
        j, d = self._linear()
        return found + (model.normalised(inputs)[:, d] * kernel.column_variances[j]) @ weights[j]

    def _linear(self) -> tuple[list[int], list[int]]:
        """The columns that are linear in a number of the action, and the numbers of those variables."""
        first = self.model.dim - self.of.width
        found = [(j, function_of(column)[1]) for j, column in enumerate(self.model.kernel.columns)]
        along = [(j, d) for j, d in found if d is not None and d >= first]
        return [j for j, _ in along], [d for _, d in along]

    def _climb(self, inputs: Array, score: Array, weights: Array) -> Array:
        """The highest point that Newton steps reach in the box from the best candidates."""
        best: tuple[float, Array] | None = None
        for start in np.argsort(-score, kind="stable")[:STARTS]:
            point, height = inputs[start], float(self._heights(inputs[start][None], weights)[0])
            for _ in range(STEPS):
                found = self._step(point, height, weights)
                if found is None:
                    break
                height, point = found
            if best is None or height > best[0]:
                best = height, point
        assert best is not None
        return best[1]

    def _step(self, point: Array, height: float, weights: Array) -> tuple[float, Array] | None:
        """A damped Newton step uphill, kept in the box; None where none goes up."""
        first, low, high = self.model.dim - self.of.width, self.of.low, self.of.high
        gradient, hessian = self._slopes(point, weights)
        at = point[first:]
        held = ((at <= low) & (gradient < 0)) | ((at >= high) & (gradient > 0))
        gradient[held] = 0.0
        hessian[held, :] = hessian[:, held] = 0.0
        values, vectors = np.linalg.eigh(hessian)
        curvature = np.maximum(np.abs(values), 1e-9 * np.abs(values).max())
        turned = vectors.T @ gradient
        step = vectors @ np.divide(turned, curvature, out=np.zeros_like(turned), where=curvature > 0)
        if gradient @ step <= ROUNDING * abs(height):
            return None
        for _ in range(HALVINGS):
            reached = np.concatenate([point[:first], np.clip(at + step, low, high)])
            value = float(self._heights(reached[None], weights)[0])
            if value > height:
                return value, reached
            step = 0.5 * step
        return None

    def _slopes(self, point: Array, weights: Array) -> tuple[Array, Array]:
        """Gradient (A,) and Hessian (A, A) of the height by the numbers of the action."""
        model, kernel = self.model, self.model.kernel
        first = model.dim - self.of.width
        basis = kernel.project(model.dictionary)
        z = (point - model.shift) / model.scale
        here = kernel.project(z[None])[0]
        moved = np.repeat(z[None], self.of.width, axis=0)
        moved[:, first:] += np.eye(self.of.width)
        along = ((kernel.project(moved) - here) / model.scale[first:, None]).T
        squared = model._squares(point[None], basis)[0]
        slope, bend = kernel.slopes(squared), kernel.bends(squared)
        rise, given, weights = (here - basis) @ along, weights, weights[len(kernel.columns) :]
        gradient: Array = 2.0 * (weights * slope) @ rise
        hessian: Array = 4.0 * (rise * (weights * bend)[:, None]).T @ rise + along.T @ along * 2.0 * (weights @ slope)
        for j, d in zip(*self._linear(), strict=True):
            gradient[d - first] += given[j] * kernel.column_variances[j] / model.scale[d]
        return gradient, hessian
