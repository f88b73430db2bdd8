"""The thread behind a `Sender` that waits for no acknowledgement."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import zmq

from criticd._delivery import Batch, Ledger, Link, Thread
from criticd._protocol import Address, pack

log = logging.getLogger("criticd")

_ABSENCE_S = 5.0
"""How long the daemon may be away before a sender that does not wait for it says so."""
_KEEPALIVE = {
    zmq.TCP_KEEPALIVE: 1,
    zmq.TCP_KEEPALIVE_IDLE: 5,
    zmq.TCP_KEEPALIVE_INTVL: 2,
    zmq.TCP_KEEPALIVE_CNT: 5,
}
"""Seconds of silence after which the kernel asks for the other end, seconds between its questions, and how many."""
_LEAST_MS = 100
"""Even a sender whose time is over waits so long to learn whether its socket is empty."""
_AHEAD = 16
"""Messages that the socket holds."""
_BATCH_BYTES = 8192
"""What libzmq has taken from the socket to write it at once, but for a part of the next message."""


class Pushing(Thread):
    """Fire and forget: batches into a PUSH socket, while it is connected.

    `look` is called when rows have gone over a new connection.
    """

    def __init__(
        self,
        ledger: Ledger,
        address: Address,
        batch_rows: int,
        linger_s: float,
        context: Any,
        look: Callable[[], None] | None = None,
    ) -> None:
        super().__init__(ledger, address, batch_rows, linger_s, context)
        self.link: Link | None = None
        self.connections = 0
        self.deadline = float("inf")
        self.look, self.to_look = look, False
        self.away_since: float | None = None
        # Lengths and rows of the last messages: more than can be in libzmq.
        self.last: deque[tuple[int, int]] = deque(maxlen=_AHEAD + _BATCH_BYTES // 64)

    def deliver(self) -> None:
        ledger = self.ledger
        while True:
            self.collect(ledger.queue.get())
            if not ledger.hurry:
                # Rows that come together travel together.
                ledger.wake.wait(self.linger_s)
            ledger.wake.clear()
            more = True
            while more or self.busy:
                more = self.drain()
                for stream in list(self.busy):
                    while stream.pending and (not more or self.ripe(stream)):
                        if not self.push(self.form(stream)):
                            self.abandon()
                            return
                time.sleep(0)
            if ledger.stop and ledger.queue.empty():
                break
        self.close()

    def push(self, batch: Batch) -> bool:
        """Hand a batch to the socket, waiting for room; False if the sender is closed and its time is over."""
        fields = batch.fields()
        time.sleep(0)
        payload = pack(fields)
        while not self.writable():
            if self.ledger.stop and time.monotonic() >= self.deadline:
                self.give_up(batch.stream, batch.rows.count, "lost")
                return False
        assert self.link is not None
        self.link.socket.send(payload)
        self.last.append((len(payload), batch.rows.count))
        stream, rows = batch.stream, batch.rows.count
        stream.handed, stream.reached = stream.handed + rows, batch.end
        self.ledger.counters.sent += rows
        self.ledger.released += rows
        self.finish(stream, rows)
        self.tell()
        if self.to_look and self.look is not None:
            self.to_look = False
            self.look()
        return True

    def writable(self) -> bool:
        """Whether there is room on a connection that stands, after waiting a little.

        Looks for the daemon elsewhere if it has moved.
        """
        link = self.link
        if link is not None:
            stood = link.connected
            if link.stands(0 if stood else 100) and not stood:
                self.ledger.counters.reconnects += self.connections > 0
                self.connections += 1
                self.to_look, self.away_since = True, None
            if link.connected and link.socket.poll(100, zmq.POLLOUT):
                return True
        if link is None or not link.connected:
            self.complain()
        endpoint = self.address.resolve()
        if endpoint is None:
            time.sleep(0.05)
        elif link is None or endpoint != link.endpoint:
            if link is not None:
                link.close()
            socket = self.context.socket(zmq.PUSH)
            socket.setsockopt(zmq.SNDHWM, _AHEAD)
            socket.setsockopt(zmq.RECONNECT_IVL, 50)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
            # No heartbeats: an answer that comes when the sender has closed makes the kernel throw away the rows that
            # it still holds. The kernel's own questions do no such harm.
            for option, value in _KEEPALIVE.items():
                socket.setsockopt(option, value)
            if self.address.keys is not None:
                self.address.keys.use(socket)
            self.link = Link(socket, endpoint)
        return False

    def complain(self) -> None:
        """Say once for each absence of the daemon that rows wait."""
        now = time.monotonic()
        if self.away_since is None:
            self.away_since = now
        elif now - self.away_since >= _ABSENCE_S:
            self.away_since = float("inf")
            log.warning(
                "no connection to %s for %g s, %d rows wait: is `criticd serve` running, and is this its endpoint?",
                self.address,
                _ABSENCE_S,
                self.ledger.held,
            )

    def abandon(self) -> None:
        """Count what is left as lost."""
        while self.drain():
            pass
        for stream in list(self.busy):
            while stream.pending:
                self.give_up(stream, self.form(stream).rows.count, "lost")
        self.close()

    def close(self) -> None:
        linger_ms = max(_LEAST_MS, round(1000 * min(60.0, self.deadline - time.monotonic())))
        if self.link is not None and not self.link.close(linger_ms):
            rows = self.in_doubt()
            self.ledger.counters.sent -= rows
            self.ledger.counters.lost += rows

    def in_doubt(self) -> int:
        """Rows that libzmq may not have sent."""
        rows = taken = 0
        for number, (length, count) in enumerate(reversed(self.last)):
            if taken >= _BATCH_BYTES:
                break
            taken += length if number >= _AHEAD else 0
            rows += count
        return rows
