"""Bytes of rows that were taken back from a fleet: out of all its files, and nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_fleet import STATES, life, local, rows, taught, without

from criticd import Invalid
from criticd._fleet_journal import Journal
from criticd._fleet_links import COORDINATOR, worker_name
from criticd._fleet_pool import stable_hash
from criticd.fleet import Coordinator


def test_bytes_of_rows_that_were_taken_back_are_erased(tmp_path: Path) -> None:
    fleet, parts = local(2, tmp_path)
    with fleet:
        taught(fleet, count=60)
        fleet.select()
        taught(fleet, since=60)
        secrets = [life(3)["states"][k].tobytes() for k in (0, 17, 119)]
        secrets += [life(5)["states"][k].tobytes() for k in (11, 62)]

        def places(secret: bytes) -> list[str]:
            return [path.name for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_bytes()]

        assert all(places(secret) for secret in secrets)
        fleet.remove("robot 5", (10, 64))
        assert fleet.remove("robot 3", erase=True) == 120
        assert [places(secret) for secret in secrets] == [[], [], [], [], []]
        assert places(life(5)["states"][64].tobytes()) == ["rows.journal"]
        status, model = fleet.status(), fleet.merge()
        assert status.rows == 12 * 120 - 174
        # Twice writes nothing, and nothing of it is forgotten by a start.
        journals = [tmp_path / name / "rows.journal" for name in ("worker-0", "worker-1")]
        before = [path.stat().st_ino for path in journals]
        assert fleet.remove("robot 5", (20, 40), erase=True) == 0
        assert [path.stat().st_ino for path in journals] == before
        for name in ("worker-0", "worker-1"):
            (tmp_path / name / "rows.new").write_bytes(b"of a rewrite that was killed")
            parts.end(name)
            parts.start(name)
            assert not (tmp_path / name / "rows.new").exists()
        again = fleet.merge()
        assert np.array_equal(again.weights, model.weights)
        assert fleet.status().rows == 12 * 120 - 174
        home = parts.link(worker_name(stable_hash("robot 5") % 2))
        assert home.call("append", stream="robot 5", seq=0, columns=rows(5))["duplicates"] == 120
        # Rows that follow are learned on.
        taught(fleet, count=160, since=120)
        model = fleet.merge()
        assert model.offset == 12 * 160 - 174
        coordinator = parts.parts[COORDINATOR]
        assert isinstance(coordinator, Coordinator)
        epoch = coordinator._epochs[coordinator._present][0]
        expected = without(12, {3: (0, 120), 5: (10, 64)}, epoch, 160)
        assert np.abs(model(STATES) - expected(STATES)).max() < 1e-9
        with pytest.raises(Invalid, match="needs `wait`"):
            fleet.remove("robot 1", wait=False, erase=True)


def test_without_room_for_it_all_stays_as_it_was(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "other")
    journal.append({"stream": "a"})

    def fails() -> Iterator[dict[str, Any]]:
        yield {"stream": "b"}
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        journal.rewrite(fails())
    assert [record["stream"] for _, record in journal.read(journal.start)] == ["a"]
    journal.append({"stream": "c"})
    journal.close()
    assert [path.name for path in (tmp_path / "other").iterdir() if path.name.endswith("new")] == []
