"""A part of a fleet as a process: `python -m criticd._fleet_process OPTIONS`, which `criticd.fleet` starts."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

from criticd._fleet_links import COORDINATOR, Patience, Remote, serve, worker_name
from criticd.fleet import Coordinator, Worker


def _end_with_parent() -> None:
    # Nothing is ever written: it ends with the program that started this one.
    sys.stdin.buffer.read()
    os._exit(0)


def main() -> None:
    """Serve until the program that started this one ends."""
    options = json.loads(sys.argv[1])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    directory, who = Path(options["directory"]), options["who"]
    patience = Patience(**options["patience"])
    if who == COORDINATOR:
        links = [Remote(directory, worker_name(k), patience.inner()) for k in range(options["workers"])]
        coordinator = Coordinator(
            links,
            directory / who,
            options["settings"],
            pool_rows=options["pool_rows"],
            patience=patience,
            select_rows=options["select_rows"],
        )
        coordinator.start()
        serve(directory, who, coordinator, lambda: False)
    else:
        worker = Worker(
            options["number"], options["workers"], directory / who, options["settings"], pool_rows=options["pool_rows"]
        )
        worker.start()
        serve(directory, who, worker, lambda: worker.broken)


if __name__ == "__main__":
    main()
