"""The daemon asked for the value of each row before it learns it, while a drifting stream arrives.

With all its defaults but the discount. Three paces: `fast`, a block of rows as soon as the one before is learned; a
number of rows a second; and `waiting`, as `fast`, but never ahead of a refit. The last does not depend on how busy the
machine is.
"""

import io
import json
import re
import time
from pathlib import Path

import numpy as np
import ours
import scores
from streams import Stream, file_name, keep

VERSION = 1
"""Of what is kept of a run: raise it with every change of that."""

BLOCK = 16
"""Rows that are asked for at once, and then sent; one where the discount is 0, so that the row before is known."""
LOOK_EVERY = 1000
"""Rows between two looks at held-out states, of streams whose values are known."""
FIT_EVERY = 4000
FRESH_ROWS = 4000
"""After the change, at this interval the model is compared with a fit of this number of rows before."""
FITTED = ("linear/ramp", "linear/bias", "walk/slow")
"""Streams on which it is."""
PATIENCE_S = 1800.0
"""How long rows or a refit are waited for: a machine may be busy."""
EVENT = re.compile(r"event=(\w+) critic=\w+(?:.*? offset=(\d+))?")
NOT_COUNTED = ("memory", "refit_started", "dictionary_full")


class Asked:
    """One stream through one daemon, block after block."""

    def __init__(self, daemon, stream, pace):
        self.daemon, self.stream, self.pace = daemon, stream, pace
        self.client = daemon.client(timeout_s=120.0)
        n = len(stream.rewards)
        self.mean, self.deviation = np.full(n, np.nan), np.full(n, np.nan)
        self.offset, self.selected, self.answered = np.full(n, -1), None, None
        self.began = self.at_500 = None
        self.gates = []

    def critic(self):
        return self.client.status()["critics"][0]

    def gate(self):
        """How far the gate of the trackers is open: 0 where the values are the base's."""
        tracking = self.critic().get("drift", {}).get("tracking")
        return max(tracking["gate"], default=0.0) if tracking else 0.0

    def no_refit(self):
        refit = self.critic()["refit"]
        return not refit["running"] and not refit["due"]

    def wait(self, condition):
        if not ours.wait_until(condition, PATIENCE_S, pause=0.005):
            raise ours.Failed("the daemon did not learn the rows, or end its refit, within half an hour")

    def ask(self, states, learned, **quantities):
        """The answer of a model that has learned `rows` rows, unless rows come at a rate; None before the first."""
        from criticd import Refused

        exact = not isinstance(self.pace, float)
        if exact and self.answered is None:
            self.wait(lambda: self.critic()["learned"] >= learned)
        try:
            given = self.client.value(
                states, min_offset=learned if exact and self.answered is not None else None, **quantities
            )
        except Refused as refused:
            if refused.code != "not_ready":
                raise
            return None
        if self.answered is None:
            self.answered = learned
        if self.selected is None and not given.provisional:
            self.selected = {"row": learned, "seconds": time.monotonic() - (self.at_500 or self.began)}
        return given

    def block(self, part):
        """Ask for the rows of a slice, then send them."""
        given = self.ask(self.stream.states[part], part.start, returns=True)
        if given is not None:
            self.mean[part], self.offset[part] = given.mean, given.offset
            if given.return_std is not None:
                self.deviation[part] = given.return_std
        fields = ("states", "rewards", "next_states", "terminated", "truncated")
        rows = {field: getattr(self.stream, field)[part] for field in fields}
        self.client.append(stream="robot", session="only", seq=part.start, **rows)

    def look(self, row):
        """Error, coverage and width of V at held-out states as they are at this row; None before the first model."""
        given = self.ask((held := self.stream.truth(row))[0], row, variance=True)
        if given is None:
            return None
        of = described(held)
        return {
            "row": row,
            "provisional": bool(given.provisional),
            "error": scores.nrmse(given.mean, of),
            "coverage": scores.covered(given.mean, given.variance, of),
            "width": float(given.std.mean() / of.truth.std()),
        }

    def run(self, looks):
        """All rows; at every 1000th, or 20 times in a shorter series, `looks(row)` is called and the gate noted."""
        n, size = len(self.stream.rewards), 1 if self.stream.discount == 0.0 else BLOCK
        self.began = time.monotonic()
        every = min(LOOK_EVERY, max(n // 20, 1))
        next_look = every
        for start in range(0, n, size):
            if self.pace == "waiting" and self.answered is not None:
                self.wait(self.no_refit)
            if start >= next_look:
                looks(start)
                next_look += every
                self.gates.append(self.gate())
            if self.at_500 is None and start >= 500:
                self.at_500 = time.monotonic()
            self.block(slice(start, min(start + size, n)))
            if isinstance(self.pace, float):
                time.sleep(max(0.0, (start + size) / self.pace - (time.monotonic() - self.began)))
        self.wait(lambda: self.critic()["learned"] >= n)


def described(held):
    """Held-out states with their truth, as `scores` takes them."""
    states, truth, error = held
    nothing = np.zeros(0)
    return Stream(states[:0], nothing, states[:0], nothing, nothing, 0.0, states, truth, error, truth[:, None])


def fresh(binary, stream, row):
    """Error of V of a fit of the last 4000 rows before a row."""
    part, (states, truth, error) = slice(row - FRESH_ROWS, row), stream.truth(row)
    cut = stream.truncated[part].copy()
    cut[-1] |= not stream.terminated[row - 1]
    rows = (stream.states[part], stream.rewards[part], stream.next_states[part], stream.terminated[part], cut)
    recent = Stream(*rows, stream.discount, states, truth, error, truth[:, None])
    return scores.nrmse(np.array(ours.fit(binary, recent, ["--hold-out", "0"])["mean"]), recent)


def events(log):
    """The events of the critic in a daemon's log, and the rows at which they came: {kind: [offset or None, ...]}."""
    found = {}
    for line in log.splitlines():
        match = EVENT.search(line)
        if match and match[1] not in NOT_COUNTED:
            found.setdefault(match[1], []).append(match[2] and int(match[2]))
    return found


def run(binary, name, stream, settings, pace):
    """What was said of each row: arrays `mean`, `deviation` of the return and `offset` (n,), and what happened."""
    from criticd.testing import Daemon

    looks, before = [], ours.processor_seconds()
    with Daemon(f"critic.discount={stream.discount!r}", *settings, program=binary, timeout_s=60.0) as daemon:
        asked = Asked(daemon, stream, pace)

        def look(row):
            if stream.truth is not None and (found := asked.look(row)) is not None:
                looks.append(found)

        try:
            asked.run(look)
            refits = asked.critic()["refit"]
        finally:
            asked.client.close()
        happened = events(daemon.log())
    about = {
        "looks": looks,
        "events": happened,
        "gates": asked.gates,
        "selected": asked.selected,
        "answered": asked.answered,
        "refits": {key: refits[key] for key in ("started", "adopted", "rejected", "failed")},
        "seconds": ours.processor_seconds() - before,
        "elapsed": time.monotonic() - asked.began,
    }
    if name in FITTED:
        for found in looks:
            if found["row"] > stream.change and found["row"] // LOOK_EVERY % (FIT_EVERY // LOOK_EVERY) == 0:
                found["fresh"] = fresh(binary, stream, found["row"])
    return {"mean": asked.mean, "deviation": asked.deviation, "offset": asked.offset}, about


def identity(binary, settings, pace):
    return ours.identity(binary, [VERSION, *settings, pace])


def learn(cache, binary, name, seed, stream, settings, pace):
    """As `run`, kept in the folder `cache`."""
    path = Path(cache) / "asked" / identity(binary, settings, pace) / f"{file_name(name, seed)}.npz"
    if not path.exists():
        arrays, about = run(binary, name, stream, settings, pace)
        kept = io.BytesIO()
        np.savez_compressed(kept, about=np.array(json.dumps(about)), **arrays)
        keep(path, lambda partial: partial.write_bytes(kept.getvalue()))
    with np.load(path) as kept:
        return {key: kept[key] for key in ("mean", "deviation", "offset")}, json.loads(str(kept["about"]))


# ---------------------------------------------------------------------------------------------------------------------
# Figures


def error(said, stream, window):
    """Root mean square error of what was said over the deviation of returns; at discount 0 the mean absolute error."""
    came, said = stream.returns[window], said[window]
    there = ~np.isnan(came) & ~np.isnan(said)
    if not there.any():
        return None
    off = said[there] - came[there]
    if stream.discount == 0.0:
        return float(np.mean(np.abs(off)))
    return float(np.sqrt(np.mean(off**2)) / np.nanstd(came))


def coverages(mean, deviation, stream, horizons):
    """Share of returns in their 90 % interval, in each piece of this number of horizons; the last is at least half full."""
    there = ~np.isnan(stream.returns) & ~np.isnan(deviation)
    hit = (np.abs(mean - stream.returns) <= scores.NINETY * deviation)[there]
    size = round(horizons * stream.horizon)
    pieces = [hit[start : start + size] for start in range(0, len(hit), size)]
    return [float(piece.mean()) for piece in pieces if len(piece) >= size / 2 or (len(pieces) == 1 and len(piece))]


def judged(arrays, about, stream):
    """The figures of one stream."""
    mean, deviation = arrays["mean"], arrays["deviation"]
    said_intervals = np.flatnonzero(~np.isnan(deviation))
    return {
        "errors": [error(mean, stream, window) for window in stream.windows()],
        "from_row_1": error(mean, stream, slice(1, None)),
        "from_row_64": error(mean, stream, slice(64, None)),
        "each_200": coverages(mean, deviation, stream, 200),
        "each_100": coverages(mean, deviation, stream, 100),
        "covered": (coverages(mean, deviation, stream, len(mean)) or [None])[0],
        "first_interval": int(said_intervals[0]) if len(said_intervals) else None,
        "without_answer": float(np.mean(np.isnan(mean))),
        **about,
    }
