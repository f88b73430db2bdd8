"""A value function, evaluated where you are: no daemon, no connection."""

from __future__ import annotations

import html
import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from criticd import _frames, _plot, _program
from criticd._act import Actor, Decisions, single_of, steps_of
from criticd._frames import States, Table
from criticd._head_models import HeadModels
from criticd._kernel import Kernel
from criticd._model import Model, Values
from criticd._output import write_whole
from criticd._protocol import Array, Malformed, Message, pack, unpack
from criticd._spread import ReturnSpread
from criticd._units import split_name
from criticd._values import numbers
from criticd._worst import Worst

__all__ = ["Heads", "Kernel", "Snapshot", "Values"]


@dataclass(frozen=True, eq=False, repr=False)
class Snapshot(Model):
    """The value function of one moment: call it with states.

    ```python
    model = Snapshot.load("walker.model")
    value, deviation = model([[0.0], [0.5]], std=True)
    ```

    `generation` rises with every model that the daemon adopts, `offset` is the number of rows learned,
    `transitions` the number of rows which the model's statistics hold, `time` Unix seconds. `noise_variance` is the
    variance of the rewards' noise, `log_evidence` and `score` say how well the model explains what it has seen.
    `weights` is (m, H) for H rewards, the first q of them of the kernel's `columns`, `dictionary` (m - q, D),
    `covariance` the (m, m) matrix C of the protocol or None, in which case there is no standard deviation to be had.
    `lambda_` in [0, 1] is what the weights were learned with, `returns` how returns scatter, where that is known. While
    it is
    `provisional`, model selection has not chosen it yet. With `actions` it is the value of actions: D counts their
    coordinates too, and `inputs` puts states and actions together. `heads` has the critic's other predictions by
    name. Those that have a kernel and a dictionary of their own are the heads of `branch`, a snapshot without
    values, or None. `reward_names` are the names of the H rewards, a unit in brackets behind the name, as in `"energy
    [J]"`. `table` says how the table was read that it was fitted to. With `tracked` the weights belong to a
    mixture that follows the newest rows. `level` (H,) is added to what the weights say; it is empty for 0. So is
    `mean_function`, what the critic was learned about, a snapshot that says nothing but values; None for 0.
    """

    branch: Snapshot | None = None
    mean_function: Snapshot | None = None

    @property
    def heads(self) -> Heads:
        """The critic's heads by name, each a `Snapshot`: `snapshot.heads["contact"](states)`. It may be empty."""
        return Heads(self)

    def value(self, table: Table) -> Any:
        """What the model says of each row, as a table of the kind of `table`.

        ```python
        values = model.value({"x": [0.0, 0.5]})
        ```

        Its columns are `value`, `std` and `return_std` (standard deviations of the value and of the return to come, in
        the unit of rewards), `known` (share of the signal's prior variance that data removed) and `extrapolates`
        (true where no data are near). What the model cannot say is left out. With several rewards there are `value_0`,
        `value_1`, ... The columns of the state are found by name. A frame of pandas has the index of `table`; an array
        (n, D) or a list gives a dict of arrays.

        Raises `Invalid` as a call does.
        """
        found = self._values(table, True, True, True)
        columns: dict[str, npt.NDArray[Any]] = {}
        for name, values in (
            ("value", found.mean),
            ("std", found.std),
            ("return_std", found.return_std),
            ("known", found.known),
            ("extrapolates", found.extrapolates),
        ):
            if values is None:
                continue
            if np.shape(values) == np.shape(found.mean) and self.weights.shape[1] > 1:
                columns |= {f"{name}_{k}": column for k, column in enumerate(np.atleast_2d(values).T)}
            else:
                columns[name] = np.atleast_1d(values)
        return _frames.like(table, columns)

    def label(self, table: Table, **options: Any) -> Any:
        """Labels of each transition of a table, as a table of its kind: `criticd label` with this model's kernel.

        ```python
        labels = model.label(table)
        ```

        The columns are `episode`, `frame`, `value`, `std`, `advantage`, `return`, `td_error` and `known`, and
        `remaining_time_s` of a dataset of LeRobot where the model was fitted with `remaining_time`. Each episode is
        labelled by a model that has not learned from it, with kernel, noise, lambda and discount of this one. There is
        a row for each transition: rows that only give the next state of the one before have no labels.

        `options` are the options of `criticd label`, with underscores, such as `state`, `reward`, `episode` and
        `terminated`;
        `keep=["task_index"]` copies columns of the table. A model of `fit` reads the table as it read its own, unless
        they say otherwise. A file, a folder or a list of them gives a dict of arrays.

        Raises `Invalid` with the column or the option at fault, FileNotFoundError without the program.
        """
        with tempfile.TemporaryDirectory(prefix="criticd-") as place:
            folder = Path(place)
            model, out = folder / "model.model", folder / "labels.npz"
            words = _program.words_of({**self._reading(), **options}, folder)
            path = _frames.written(table, folder)
            self.save(model)
            given = not path.is_relative_to(folder)
            _program.run("label", path, [*words, f"--model={model}", f"--out={out}"], given=given)
            with np.load(out) as labels:
                return _frames.like(table, dict(labels))

    def to_torch(self) -> Any:
        """The model as a `torch.nn.Module` of 64-bit floats, to be asked and differentiated beside a network.

        It takes raw states (n, D), a tensor of any float, and gives the mean (n,), or (n, H) with several rewards, and
        the standard deviation (n,), None for a snapshot without its variance. Its numbers are buffers: they move with
        `.to(device)`, are saved in `state_dict`, and do not train. Gradients go to the states.

        Raises ImportError without the package torch.
        """
        from criticd import _torch

        return _torch.module(self)

    def act(
        self,
        states: States,
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
    ) -> Decisions:
        """Decisions in raw `states` (n, D), without actions, or one state: the daemon's decisions, without a daemon.

        ```python
        actions = q.act([[0.2, 0.0]]).actions
        ```

        `exploration` is "greedy"; "epsilon_greedy" with `epsilon`; "softmax" with `temperature`, in units of a return;
        "ucb", the largest Q + `beta` deviations; or "thompson": one randomised copy of Q decides for a whole episode.
        Random numbers are hashes of `seed`, `episode` and `step`, one number or one for each state; without `step`
        the states count as steps 0, 1, ... `candidates`
        (k,) or (k, A) are the actions to choose among. Where the deviation of Q is above `unknown_above` the state
        counts as unknown, and `fallback`, if given, is the action.

        Raises `Invalid` for what cannot be asked.
        """
        actor = Actor.new(self, exploration, epsilon=epsilon, temperature=temperature, beta=beta)
        points = self._points(states, self.dim - (0 if self.actions is None else self.actions.width))
        single, points = points.ndim == 1, np.atleast_2d(points)
        given = None
        if candidates is not None:
            here = points[0]
            given = self.inputs(here, np.atleast_1d(numbers(candidates, "candidates")))
            given = actor.of.within("candidates", np.atleast_2d(given)[:, len(here) :])
        places = [
            np.broadcast_to(np.asarray(which, np.int64), len(points))
            for which in (episode, steps_of(step, len(points)))
        ]
        other = None if fallback is None else actor.of.within("fallback", np.atleast_1d(numbers(fallback, "fallback")))
        found = actor.decide(points, int(seed), places[0], places[1], given, unknown_above, other)
        return single_of(found) if single else found

    def __repr__(self) -> str:
        kernel, extras = self.kernel, ""
        if self.provisional:
            extras += ", provisional"
        if self.covariance is None:
            extras += ", without variance"
        return (
            f"<criticd.Snapshot of {self.critic!r}: generation {self.generation}, revision {self.revision}, "
            f"{self.offset} rows, discount {self.discount:g}, {self.dim} state variables, "
            f"{len(self.dictionary)} dictionary states, {kernel.kind} {kernel.profile} kernel{extras}>"
        )

    def _repr_html_(self) -> str:
        """A table for notebooks."""
        facts = {
            "critic": self.critic,
            "generation, revision": f"{self.generation}, {self.revision}" + (" (provisional)" * self.provisional),
            "rows learned": str(self.offset),
            "discount": f"{self.discount:g}",
            "kernel": f"{self.kernel.kind}, {self.kernel.profile}, {len(self.dictionary)} dictionary states",
            "standard deviation before any row": f"{np.sqrt(self.kernel.diagonal):.4g}",
        }
        rows = "".join(f"<tr><th>{key}</th><td>{html.escape(value)}</td></tr>" for key, value in facts.items())
        names = self.names or [f"state {d}" for d in range(self.dim)]
        kinds = self.kernel.kinds or ("real",) * self.dim
        lengths = ["" if np.isnan(length) else f"{length:.4g}" for length in self.lengthscale]
        variables = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{kind}</td><td>{length}</td></tr>"
            for name, kind, length in zip(names, kinds, lengths, strict=True)
        )
        head = "<tr><th>state variable</th><th>kind</th><th>lengthscale</th></tr>"
        return f"<table>{rows}</table><table>{head}{variables}</table>"

    def plot(
        self,
        variables: Sequence[int | str] | None = None,
        *,
        at: npt.ArrayLike | None = None,
        marginal: bool = False,
        visited: npt.ArrayLike | None = None,
        against: Snapshot | None = None,
        error: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        td_error: tuple[npt.ArrayLike, ...] | None = None,
        std: bool = False,
        reward: int | str = 0,
        trajectory: npt.ArrayLike | None = None,
        rewards: npt.ArrayLike | None = None,
        ends: npt.ArrayLike | None = None,
        ax: Any = None,
    ) -> Any:
        """Draw the value over one or two state variables with matplotlib; returns the axes.

        ```python
        model.plot().figure.savefig("walker.png")
        ```

        `variables` are numbers or names; by default the two with the largest relevance, the total Sobol index over the
        states that the model keeps. The others stay at the state `at` (D,), by default the median of those states, and
        the title says where. One variable gives curves with a band of two standard deviations, two a map of the value
        of one `reward` (number or name). Both are hatched where less than three quarters of the value are `known`, or,
        in a snapshot without variance, where it is extrapolated; a provisional one is not. `std` draws the
        standard deviation in place of the value. `marginal` averages the value over the others, as those states have
        them. `visited` are states (n, D) that take the place of those that the model keeps in relevances, medians and
        averages, and below curves: a snapshot does not have the states that its rows visited. `against` is
        another model of the same states: curves show both, a map the value minus the other's, in colours around zero.
        `error` are states (n, D) and the returns (n,) that followed them: a map shows the means of return minus value
        in cells (above zero the values are too low), hatched where no return is known. The ten `worst` states have
        their ranks on it.
        `td_error` are states (n, D), rewards (n,) and next states (n, D): the same picture of reward plus discounted
        next value minus value. A fourth array has the discount (n,) of each row, 0 after a terminal state; without it
        all are the model's. `ax` are axes to draw in.
        `trajectory` are states (n, D) in their order: a line with arrows joins them from start to end, a second panel
        has the value along them with two standard deviations, and a third one `rewards` (n,), if they are given. `ends`
        (n,) says after which rows an episode terminated: lines stop there, and where rewards are given the second panel
        has the discounted return that came, from each row to the end of its episode. `ax` are then an axes object
        for each panel, and all of them are returned, the map's first.
        `snapshot.heads[NAME].plot()` draws a head.
        Raises `Invalid` for what cannot be drawn, ImportError without matplotlib.
        """
        return _plot.draw(
            self,
            variables,
            at,
            ax,
            marginal=marginal,
            visited=visited,
            against=against,
            error=error,
            td_error=td_error,
            std=std,
            reward=reward,
            trajectory=trajectory,
            rewards=rewards,
            ends=ends,
        )

    def worst(
        self,
        *,
        error: tuple[npt.ArrayLike, npt.ArrayLike] | None = None,
        td_error: tuple[npt.ArrayLike, ...] | None = None,
        reward: int | str = 0,
    ) -> list[Worst]:
        """Where this model errs most: at most ten states, the worst first, as the dashboard finds them.

        `error` or `td_error` are as of `plot`, with rows in the order in which they came.
        Each error is a mean over a state and the eleven nearest to it. A state is `no_chance` where that mean is more
        than four of its standard errors. Raises `Invalid` for what does not fit the model.
        """
        return _plot.errors_of(self, error, td_error, reward)

    def shares(self, states: States, seed: int = 0, *, samples: int = 4000, reward: int | str = 0) -> Array:
        """Share (D,) of the variance of V over `states` (n, D) that hangs on each state variable: total Sobol indices.

        ```python
        print(model.shares([[0.0], [0.2], [0.5]]))
        ```

        The relevance that the dashboard and `criticd status` show, from half as many samples. What two variables do
        only together is in the share of both, so that shares may add up to more than 1. A variable without a say has 0.
        It is estimated at `samples` states, drawn from those given, and at as many for each variable; the same `seed`
        gives the same shares. `reward` is a number or a name. `relevance` is something else: how fast V changes. Raises
        `Invalid` for states of another dimension, and for values of actions, whose coordinates do not vary by
        themselves.
        """
        return _plot.shares(self, states, seed, samples, reward)

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write an ONNX model, for runtimes without Python. Replaces the file whole.

        ```python
        model.to_onnx("walker.onnx")
        ```

        Its input `states` is (n, D), raw; its outputs are `mean`, (n,) or (n, H) with several rewards, `std` and
        `known`, (n,), unless the snapshot came without its variance, and `return_std`, shaped like `mean`, where it is
        known how returns scatter. All are 64-bit floats. The file's metadata say what the model is: `critic`,
        `generation`, `revision`, `offset`, `transitions`, `time`, `discount`, `lambda`, `provisional`, and
        `state_names`, joined by commas. It is the file of `criticd export --onnx`. Raises FileNotFoundError without the
        program, and `CriticdError` for what the program refuses, as a noise of 0.
        """
        with tempfile.TemporaryDirectory(prefix="criticd-") as place:
            model, out = Path(place, "value.model"), Path(place, "value.onnx")
            self.save(model)
            _program.run("export", model, ["--onnx", f"--out={out}"], given=False)
            write_whole(path, out.read_bytes())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a MODEL file, which `criticd value`, `criticd inspect` and `load` read. Replaces the file whole.

        ```python
        model.save("walker.model")
        ```
        """
        write_whole(path, pack(self.message()))

    @classmethod
    def load(cls, path: str | os.PathLike[str], head: str | None = None) -> Snapshot:
        """Read a MODEL file: from `save`, `criticd fit --out` or `criticd snapshot`.

        With `head` the value function of that head alone, as `snapshot.heads[head]` is. Raises KeyError if the model
        has no such head.
        """
        try:
            snapshot = cls.of(unpack(Path(path).read_bytes()))
        except Malformed as error:
            raise Malformed(f"{path} is no model as `criticd fit --out` writes one: {error}") from error
        return snapshot if head is None else snapshot.heads[head]


class Heads(Mapping[str, "Snapshot"]):
    """The heads of a snapshot by name, each a `Snapshot` of its own, made when it is asked for.

    ```python
    value, deviation = model.heads["energy"]([[0.0], [0.5]], std=True)
    ```

    Its kernel is the critic's times the scale of the head, so that calling, gradients, pictures and ONNX files
    are as of any snapshot. `discount` is the head's, 1 where it has a timescale. Its reward is called like the head,
    with the unit of what it sums, where that is a state variable or a reward.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        kernels = [of for of in (snapshot, snapshot.branch) if of is not None and of.head_models is not None]
        self._snapshot = snapshot
        self._places: dict[str, tuple[Snapshot, HeadModels, int]] = {}
        for of in kernels:
            assert of.head_models is not None
            for place, head in enumerate(of.head_models.declared):
                self._places[str(head["name"])] = (of, of.head_models, place)

    def __repr__(self) -> str:
        return f"<criticd.Heads: {', '.join(self) or 'none'}>"

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def declared(self, name: str) -> Message:
        """What the head predicts, as a file of heads says it. Raises KeyError."""
        _, models, place = self._places[name]
        return dict(models.declared[place])

    def __getitem__(self, name: str) -> Snapshot:
        of, models, place = self._places[name]
        signal, ratio = float(models.signals[place]), float(models.ratios[place])
        kernel = replace(
            of.kernel,
            signal_variance=signal * of.kernel.signal_variance,
            bias_variance=signal * of.kernel.bias_variance,
            column_variances=signal * of.kernel.column_variances,
        )
        covariance = returns = None
        if models.bases:
            noise, flat = np.array([signal * ratio]), np.zeros((of.features, 1))
            pairs, coverage = int(models.pairs[place]), float(models.coverage[place])
            returns = ReturnSpread(
                noise, flat, noise, float(models.factors[place]), pairs, None if np.isnan(coverage) else coverage
            )
            vectors, values = models.bases[models.weightings[place]]
            covariance = (vectors * (values / (values + ratio))) @ vectors.T / signal
        return replace(
            of,
            critic=f"{self._snapshot.critic}.{name}",
            discount=float(models.declared[place].get("discount", 1.0)),
            kernel=kernel,
            level=models.level[place : place + 1],
            noise_variance=signal * ratio,
            weights=models.weights[:, place : place + 1] / signal,
            covariance=covariance,
            log_evidence=None,
            score=None,
            lambda_=1.0,
            returns=returns,
            head_models=None,
            branch=None,
            mean_function=None,
            reward_names=(name + self._unit(models.declared[place]),),
        )

    def _unit(self, head: Mapping[str, Any]) -> str:
        """The unit of the variable or reward that a head sums, as it stands behind its name; else nothing."""
        kind, index = (head.get("cumulant", {}).get(key) for key in ("kind", "index"))
        of = {"state": self._snapshot.names, "next_state": self._snapshot.names, "reward": self._snapshot.reward_names}
        names = of.get(kind) or ()
        known = isinstance(index, int) and index < len(names)
        return names[index][len(split_name(names[index])[0]) :] if known else ""
