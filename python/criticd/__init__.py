"""Client of criticd, the daemon that learns a value function from a live stream of transitions.

`Sender` sends experience, `wrap` and `wrap_vector` (in `criticd.gym`) do so for Gymnasium environments; `Subscriber`
keeps the newest `Snapshot` of the value function at hand; `Client` asks and administers. `criticd.aio` has the same
for asyncio, `criticd.testing` starts daemons in tests.
"""

from criticd._delivery import Counters
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
from criticd.client import Appended, Client, Optimised, Position, Value
from criticd.keys import Keys
from criticd.sender import Full, Sender
from criticd.snapshot import Kernel, ReturnSpread, Snapshot, Values
from criticd.subscriber import Subscriber

__all__ = [
    "Appended",
    "Client",
    "Counters",
    "CriticdError",
    "Endpoints",
    "Full",
    "Hello",
    "Invalid",
    "Kernel",
    "Keys",
    "Limits",
    "Malformed",
    "NoReply",
    "Optimised",
    "Position",
    "Refused",
    "ReturnSpread",
    "Sender",
    "Snapshot",
    "Subscriber",
    "Unreachable",
    "Value",
    "Values",
]
