"""Fleets on a Ray cluster: `pip install ray` beside criticd, or the extra `ray`.

```python
import criticd.ray

fleet = criticd.ray.start(workers=4, directory="/var/lib/criticd-fleet", discount=0.95)
producer = fleet.producer()  # may be passed to tasks and actors
producer.learn(states, rewards, next_states, stream="arm-7")
print(fleet.status())
```

The parts are the parts of `criticd.fleet`, as actors. Ray starts an actor again that has died, and it reads its
journal. So `directory` must be on a disk that outlives the actor and that all nodes share, or each part must be tied to
a node: a worker that Ray starts on another node has no journal there, and its rows are counted as lost.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from criticd._fleet_links import COORDINATOR, Link, Patience, RemoteError, answered, carried_out, request, worker_name
from criticd._protocol import Invalid, Message
from criticd.fleet import Coordinator, Fleet, Worker

try:
    import ray
except ImportError as error:
    raise ImportError("criticd.ray needs Ray (`pip install ray`); criticd.fleet does without it") from error

_THREADS = 8
"""Calls that a part takes at a time; they wait for one another inside."""


class _Actor:
    """A worker or the coordinator as an actor. Ray makes it again after it has died."""

    def __init__(self, name: str, who: str, options: Mapping[str, Any], patience: Patience) -> None:
        directory, settings = Path(options["directory"]) / who, options["settings"]
        self._worker: Worker | None = None
        self._part: Worker | Coordinator
        if who == COORDINATOR:
            links = [_ActorLink(name, worker_name(k), patience.inner()) for k in range(options["workers"])]
            pool_rows, select_rows = options["pool_rows"], options["select_rows"]
            coordinator = Coordinator(
                links, directory, settings, pool_rows=pool_rows, select_rows=select_rows, patience=patience
            )
            coordinator.start()
            self._part = coordinator
        else:
            number, workers = int(who.rpartition("-")[2]), options["workers"]
            self._worker = Worker(number, workers, directory, settings, pool_rows=options["pool_rows"])
            self._worker.start()
            self._part = self._worker

    def carry_out(self, payload: bytes) -> bytes:
        """Answer a request."""
        answer = carried_out(self._part, payload)
        if self._worker is not None and self._worker.broken:
            # What is in memory may be ahead of the disk: a new start reads what is there.
            os._exit(1)
        return answer

    def process(self) -> int:
        """The number of its process."""
        return os.getpid()


class _ActorLink:
    """A link to an actor by its name. Pickles lead to the same one."""

    def __init__(self, name: str, who: str, patience: Patience) -> None:
        self._name, self._who, self._patience = name, who, patience

    def call(self, op: str, **arguments: Any) -> Message:
        """See `criticd.fleet`."""
        return answered(self._who, op, self.asked("carry_out", op, request(op, arguments)))

    def asked(self, method: str, op: str, *arguments: Any, timeout_s: float | None = None) -> Any:
        """What a method of the actor returns."""
        try:
            actor = ray.get_actor(f"{self._name}-{self._who}", namespace=self._name)
            answer = getattr(actor, method).remote(*arguments)
            return ray.get(answer, timeout=self._patience.call_s if timeout_s is None else timeout_s)
        except (ray.exceptions.RayError, ValueError) as error:
            raise RemoteError(self._who, op, f"gives no answer ({type(error).__name__})", away=True) from error


class Actors:
    """The parts of a fleet as actors. Pickles reach the same ones."""

    def __init__(
        self, name: str, actors: Mapping[str, Mapping[str, Any]], options: Mapping[str, Any], patience: Patience
    ) -> None:
        """`actors` are the options of `ray.remote` of each part."""
        self._name, self._actors, self._options, self._patience = name, dict(actors), dict(options), patience
        self._started: dict[str, Any] = {}

    def link(self, who: str) -> Link:
        """See `criticd.fleet.Parts`."""
        return _ActorLink(self._name, who, self._patience)

    def start(self, who: str) -> None:
        """See `criticd.fleet.Parts`."""
        made = ray.remote(_Actor).options(
            name=f"{self._name}-{who}",
            namespace=self._name,
            max_restarts=-1,
            max_concurrency=_THREADS,
            **self._actors[who],
        )
        try:
            # An actor ends when nobody holds it any more.
            self._started[who] = made.remote(self._name, who, self._options, self._patience)
        except ValueError as error:
            # Its name is taken.
            raise RemoteError(who, "start", str(error)) from error
        self.process(who)

    def process(self, who: str) -> int:
        """The number of the process of a part, on its node."""
        link = _ActorLink(self._name, who, self._patience)
        return int(link.asked("process", "start", timeout_s=self._patience.start_s))

    def lives(self, who: str) -> bool:
        """See `criticd.fleet.Parts`: Ray starts again what has died."""
        return who in self._started

    def stop(self) -> None:
        """See `criticd.fleet.Parts`."""
        for handle in list(self._started.values()):
            ray.kill(handle, no_restart=True)
        self._started = {}

    def __getstate__(self) -> tuple[str, Patience]:
        return self._name, self._patience

    def __setstate__(self, state: tuple[str, Patience]) -> None:
        # Who gets it may call the parts, and starts none.
        self._name, self._patience = state
        self._actors, self._options, self._started = {}, {}, {}


def start(
    workers: int,
    *,
    name: str = "criticd",
    directory: str | os.PathLike[str] | None = None,
    actor: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    coordinator: Mapping[str, Any] | None = None,
    **settings: Any,
) -> Fleet:
    """A fleet whose coordinator and workers are actors of the cluster that this program has joined.

    ```python
    fleet = criticd.ray.start(workers=4, discount=0.95)
    ```

    - `name`: of the fleet; two at a time need two. Its actors are called criticd-worker-0, ... and criticd-coordinator.
    - `directory`: where each node keeps journals and epochs; by default a temporary one.
    - `actor`: options of `ray.remote` for the workers, such as `num_cpus=2` or `resources={...}`, or a list with those
      of each. By default they have one core each.
    - `coordinator`: options of `ray.remote` for the coordinator, which has no core of its own by default.
    - `settings`: all else that `Fleet` takes.

    Joins the cluster of the environment, or starts one on this machine, if this program has not. Raises `RemoteError`
    with the part that does not start, such as where the cluster has fewer cores than workers, and `Invalid` where
    `actor` is a list of another length than there are workers.
    """
    each = [actor or {"num_cpus": 1}] * workers if actor is None or isinstance(actor, Mapping) else list(actor)
    if len(each) != workers:
        raise Invalid("actor", f"has options of {len(each)} workers, and there are {workers}")
    actors = {worker_name(k): options for k, options in enumerate(each)}
    actors[COORDINATOR] = {"num_cpus": 0} if coordinator is None else coordinator
    if not ray.is_initialized():
        ray.init(log_to_driver=False)
    return Fleet(workers, directory, parts=partial(Actors, name, actors), **settings)
