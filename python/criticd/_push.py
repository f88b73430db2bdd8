"""The thread behind a `Sender` that waits for no acknowledgement."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

import zmq

from criticd._delivery import Batch, Ledger, Link, Thread
from criticd._protocol import Address, pack

log = logging.getLogger("criticd")

_ABSENCE_S = 5.0
"""How long the daemon may be away before a sender that does not wait for it says so."""


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
            socket.setsockopt(zmq.SNDHWM, 16)
            socket.setsockopt(zmq.RECONNECT_IVL, 50)
            socket.setsockopt(zmq.RECONNECT_IVL_MAX, 1000)
            socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
            socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 6000)
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
        if self.link is not None:
            self.link.close(max(0, round(1000 * min(60.0, self.deadline - time.monotonic()))))
