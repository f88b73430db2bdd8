"""Client of criticd, the daemon that learns a value function from a live stream of transitions.

`fit` learns a value function from a table, and `Learner` row by row, both without a daemon:

```python
model = criticd.fit(
    missions, state=["x", "battery"], reward="-cost", episode="mission", terminated="arrived", discount=0.95
)
value, deviation = model(missions, std=True)
```

`Sender` sends experience, `wrap` and `wrap_vector` (in `criticd.gym`) do so for Gymnasium environments; `Subscriber`
keeps the newest `Snapshot` of the value function at hand and tells each `Change` of the world and each `Alarm` before a
failure; `Client` asks and administers; `Daemon` starts a daemon on free ports. `criticd.aio` has the same for asyncio,
`criticd.sb3` a callback for Stable-Baselines3.
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from criticd._act import Decisions
from criticd._delivery import Counters
from criticd._fit import FitReport, Fitted, fit
from criticd._protocol import (
    CriticdError,
    Endpoints,
    Hello,
    Invalid,
    Limits,
    Malformed,
    NoReply,
    Refused,
    Unreachable,
)
from criticd._refusals import Refusal
from criticd._spread import ReturnSpread
from criticd._status import Status
from criticd._tracked import Tracked
from criticd._what_if import Course, Planned, plan, rollout
from criticd.client import Appended, Client, HeadValues, ListedHead, Position, RefitOutcome, Removal, Suggestion, Value
from criticd.daemon import Daemon
from criticd.heads import HeadModels, Heads
from criticd.keys import Keys
from criticd.sender import Full, Sender
from criticd.snapshot import Kernel, Snapshot, Values
from criticd.subscriber import Alarm, Change, Subscriber

__all__ = [
    "Alarm",
    "Appended",
    "Change",
    "Client",
    "Counters",
    "Course",
    "CriticdError",
    "Daemon",
    "Decisions",
    "Endpoints",
    "FitReport",
    "Fitted",
    "Full",
    "HeadModels",
    "HeadValues",
    "Heads",
    "Hello",
    "Invalid",
    "Kernel",
    "Keys",
    "Limits",
    "ListedHead",
    "Malformed",
    "NoReply",
    "Planned",
    "Position",
    "RefitOutcome",
    "Refusal",
    "Refused",
    "Removal",
    "ReturnSpread",
    "Sender",
    "Snapshot",
    "Status",
    "Subscriber",
    "Suggestion",
    "Tracked",
    "Unreachable",
    "Value",
    "Values",
    "__version__",
    "fit",
    "plan",
    "rollout",
]

if TYPE_CHECKING:
    from criticd._merge import merge as merge
    from criticd.agent import Agent as Agent
    from criticd.learner import Learner as Learner


def __getattr__(name: str) -> Any:
    if name == "merge":
        from criticd._merge import merge

        return merge
    # It needs Gymnasium, which nothing else here does.
    if name == "Agent":
        from criticd.agent import Agent

        return Agent
    # It needs the module that the wheel of a platform brings.
    if name == "Learner":
        from criticd.learner import Learner

        return Learner
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


try:
    __version__ = version("criticd")
except PackageNotFoundError:
    # A source tree on the search path, that was not installed.
    __version__ = "0+unknown"
