"""Heads of a running daemon: asked, added, listed, removed, and the same after a kill."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PATIENCE_S, when

from criticd import Client, CriticdError, Daemon, HeadValues, Refused, aio

Start = Callable[..., Daemon]
ROWS = 1000
STATES = np.linspace(0.1, 0.9, 5)[:, None]
GIVEN = '[{ name = "given", cumulant = { kind = "reward", index = 0 }, discount = 0.5, noise_variance = 0.5 }]'
CALM = ("critic.refit_first_rows=0", "critic.refit_score_drop=0", "critic.dictionary_max=20", f"critic.heads={GIVEN}")
LATE: list[dict[str, Any]] = [
    {"name": "late", "cumulant": {"kind": "reward", "index": 0}, "discount": 0.5, "noise_variance": 0.5},
    {"name": "above", "cumulant": {"kind": "event", "index": 0, "above": 0.5}, "discount": 0.9},
]


def send(daemon: Daemon, first: int, rows: int) -> None:
    """Rows of a walk in one episode that goes on."""
    rng = np.random.default_rng(3)
    walk = np.clip(0.5 + np.cumsum(rng.normal(0, 0.05, first + rows + 1)) % 1.0 - 0.25, 0, 1)[:, None]
    with daemon.sender(reliable=True, batch_rows=50) as sender:
        for i in range(first, first + rows):
            sender.send(state=walk[i], next_state=walk[i + 1], reward=float(walk[i, 0]), truncated=i % 97 == 96)
        assert sender.flush(PATIENCE_S)


def learned(client: Client, rows: int) -> HeadValues:
    """The answers of all heads once they are ready and have learned `rows` rows."""
    client.value(STATES, min_offset=rows)
    found: list[HeadValues] = []

    def are_ready() -> bool:
        found[:] = [client.heads(STATES, min_offset=rows)]
        assert all(0 <= share <= 1 for share in (found[0].learning or {}).values())
        return not found[0].learning

    when(are_ready, "heads that have learned")
    return found[0]


def test_heads_are_asked_added_listed_and_removed(start: Start, tmp_path: Path) -> None:
    daemon = start(*CALM)
    send(daemon, 0, ROWS)
    with daemon.client() as client:
        assert "heads" in client.hello().features
        found = learned(client, ROWS)
        assert (found.names, found.mean.shape) == (("given",), (5, 1))
        assert found.variance is not None and (found.variance > 0).all()
        assert client.heads(STATES, variance=False).variance is None
        np.testing.assert_array_equal(client.heads(STATES, ["given"]).by_name["given"], found.mean[:, 0])
        assert client.add_heads(LATE) == ROWS
        later = learned(client, ROWS)
        assert set(later.names) == {"given", "late", "above"}
        # It equals the head of the start, which has the same definition, but for the order of sums: a state far from
        # the others keeps fewer digits.
        np.testing.assert_allclose(later.by_name["late"], later.by_name["given"], rtol=1e-6)
        listed = client.list_heads()
        assert [(name, head.added, head.learning) for name, head in listed.items()] == [
            ("given", False, None),
            ("late", True, None),
            ("above", True, None),
        ]
        assert listed["late"].form == LATE[0]
        status = client.status()["critics"][0]["heads"]
        assert status is not None
        assert (status["count"], status["added"], status["learning"]) == (3, 2, 0)
        refusals: list[tuple[Callable[[], object], str]] = [
            (lambda: client.heads(STATES, ["none"]), "heads"),
            (lambda: client.add_heads([{"name": "x", "cumulant": {"kind": "nothing"}}]), "add"),
            (lambda: client.remove_heads("given"), "remove"),
        ]
        for ask, field in refusals:
            with pytest.raises(Refused) as refused:
                ask()
            assert refused.value.field == field
        with pytest.raises(TypeError):
            client.heads(STATES, "late")

        async def again() -> HeadValues:
            async with aio.Client(daemon.endpoints.control) as other:
                assert list(await other.list_heads()) == ["given", "late", "above"]
                return await other.heads(STATES, ["late"])

        np.testing.assert_array_equal(asyncio.run(again()).mean[:, 0], later.by_name["late"])
        (tmp_path / "states.csv").write_text("state_0\n" + "\n".join(str(s) for s in STATES[:, 0]))
        command = [os.environ["CRITICD_BIN"], "value", daemon.endpoints.control, str(tmp_path / "states.csv")]
        said = subprocess.run([*command, "--head", "late", "--json"], check=True, capture_output=True, text=True)
        np.testing.assert_array_equal(json.loads(said.stdout)["mean"], later.by_name["late"])
        said = subprocess.run([*command, "--json"], check=True, capture_output=True, text=True)
        all_of_them = json.loads(said.stdout)["heads"]
        assert set(all_of_them) == set(later.names)
        for name in later.names:
            np.testing.assert_array_equal(all_of_them[name]["mean"], later.by_name[name])
        table = subprocess.run(
            [os.environ["CRITICD_BIN"], "heads", "list", "--control", daemon.endpoints.control],
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        assert "event 0 above 0.5" in table and "configuration" in table, table
        client.remove_heads("above")
        assert "above" not in learned(client, ROWS).names


def test_a_kill_changes_no_bit_of_a_thousand_heads(start: Start) -> None:
    names = [f"h{k}" for k in range(1000)]
    kinds = [{"kind": "reward", "index": 0}, {"kind": "state", "index": 0}, {"kind": "constant", "value": 1.0}]
    heads = [
        {"name": name, "cumulant": kinds[k % 3], "discount": [0.0, 0.5, 0.9][k // 3 % 3]}
        for k, name in enumerate(names)
    ]
    daemon = start(*CALM)
    send(daemon, 0, ROWS // 2)
    with daemon.client() as client:
        client.add_heads(heads)
        send(daemon, ROWS // 2, ROWS // 2)
        before = learned(client, ROWS)
        assert len(before.names) == 1001
        daemon.restart()
        after = learned(client, ROWS)
    np.testing.assert_array_equal(after.mean, before.mean)
    np.testing.assert_array_equal(after.variance, before.variance)
    assert (after.names, after.offset) == (before.names, ROWS)


def test_a_daemon_that_knows_no_heads_is_told_apart() -> None:
    from criticd.client import head_values_of

    with pytest.raises(CriticdError, match="feature `heads`"):
        head_values_of({"mean": np.zeros(1), "generation": 1, "offset": 3})


def test_answers_say_how_far_they_are_verified() -> None:
    from criticd.client import head_values_of

    heads = {"names": ["near", "far"], "mean": np.zeros((1, 2)), "return_variance": np.ones((1, 2))}
    reply = {"mean": np.zeros(1), "generation": 1, "offset": 3}
    older = head_values_of(reply | {"heads": heads})
    assert older.pairs is None and older.coverage is None
    found = head_values_of(reply | {"heads": heads | {"pairs": [0, 64], "coverage": [np.nan, 0.75]}})
    assert found.pairs is not None and found.coverage is not None
    assert list(found.pairs) == [0, 64] and np.isnan(found.coverage[0]) and found.coverage[1] == 0.75


def test_a_subscriber_follows_one_head(start: Start) -> None:
    daemon = start(*CALM)
    send(daemon, 0, ROWS)
    with daemon.client() as client, daemon.subscriber(head="given") as head:
        first = head.wait(PATIENCE_S, offset=ROWS)
        assert (first.critic, first.discount) == ("default.given", 0.5)
        assert first.noise_variance == pytest.approx(0.5)
        send(daemon, ROWS, ROWS)
        later = head.wait(PATIENCE_S, offset=2 * ROWS)
        assert head.received.snapshots + head.received.weights > 0, head.received
        found = client.heads(STATES, ["given"], returns=True, min_offset=2 * ROWS)
        mean, deviation = later(STATES, std=True)
        np.testing.assert_allclose(mean, found.mean[:, 0], rtol=1e-3, atol=1e-3)
        assert found.std is not None and found.return_variance is not None
        # Between whole models the deviation is the last one's: of half as many rows at worst.
        np.testing.assert_allclose(deviation, found.std[:, 0], rtol=0.5)
        asked = client.snapshot(head="given")
        expected = asked(STATES, std=True, returns=True)
        now = client.heads(STATES, ["given"], returns=True)
        assert now.std is not None and now.return_variance is not None
        assert found.pairs is not None and found.pairs.shape == (1,) and client.heads(STATES).pairs is None
        assert now.pairs is not None and now.coverage is not None and asked.returns is not None
        assert asked.returns.pairs == now.pairs[0]
        assert asked.returns.coverage == (now.coverage[0] if now.pairs[0] else None)
        assert expected.std is not None and expected.return_std is not None
        np.testing.assert_allclose(expected.mean, now.mean[:, 0], rtol=1e-9)
        # A variance is a difference, of which one matrix keeps fewer digits than the spectrum.
        np.testing.assert_allclose(expected.std, now.std[:, 0], rtol=1e-4)
        np.testing.assert_allclose(expected.return_std, np.sqrt(now.return_variance[:, 0]), rtol=1e-6)
        with pytest.raises(Refused, match="no head"):
            client.snapshot(head="none")
        listed = client.list_heads()["given"]
        assert listed.pairs == 0 or listed.coverage is not None


def test_heads_learn_labels_that_come_after_the_rows(start: Start, tmp_path: Path) -> None:
    daemon = start(*CALM)
    send(daemon, 0, ROWS)
    with daemon.client() as client:
        assert "labels" in client.hello().features
        page = client.request("rows", last=1 << 40)
        assert page["next"] == ROWS and len(set(page["stream_names"])) == 1 and page["seqs"] == list(range(ROWS))
        (stream,) = page["stream_names"]
        states, rewards = np.array(page["states"])[:, 0], np.array(page["rewards"])[:, 0]
        values = rewards - 0.5 * states
        # In no order, by stream and seq.
        order = np.random.default_rng(3).permutation(ROWS)
        assert client.send_labels("gentle", values[order], stream=stream, seq=order) == ROWS
        text = {"kind": "expression", "text": "reward - 0.5*state[0]"}
        client.add_heads(
            [
                {"name": "label", "cumulant": {"kind": "label", "name": "gentle"}, "discount": 0.8},
                {"name": "text", "cumulant": text, "discount": 0.8},
            ]
        )
        found = learned(client, ROWS)
        # But for the order of sums, as above.
        np.testing.assert_allclose(found.by_name["label"], found.by_name["text"], rtol=1e-6)
        # The same from a file, by the command; half of the rows have a value there.
        lines = [f"{stream},{seq},{value!r}" for seq, value in enumerate(values.tolist()) if seq < ROWS // 2]
        (tmp_path / "labels.csv").write_text("stream,seq,gentle\n" + "\n".join(lines) + "\n")
        column = {"kind": "column", "file": "labels.csv", "column": "gentle"}
        (tmp_path / "heads.json").write_text(json.dumps([{"name": "half", "cumulant": column, "discount": 0.0}]))
        command = [os.environ["CRITICD_BIN"], "heads", "add", "--control", daemon.endpoints.control]
        said = subprocess.run([*command, str(tmp_path / "heads.json")], check=True, capture_output=True, text=True)
        assert f"{ROWS // 2} of {ROWS} rows have a value" in said.stderr, said.stderr
        before = learned(client, ROWS)
        half = np.where(np.arange(ROWS) < ROWS // 2, values, np.nan)
        assert client.send_labels("half", half, offsets=np.arange(ROWS)) == ROWS // 2
        client.add_heads([{"name": "same", "cumulant": {"kind": "label", "name": "half"}, "discount": 0.0}])
        found = learned(client, ROWS)
        np.testing.assert_array_equal(found.by_name["same"], found.by_name["half"])
        listed = client.list_heads()["half"].form["cumulant"]
        assert listed["kind"] == "label" and listed["name"].startswith("labels.csv gentle "), listed
        with pytest.raises(Refused) as refused:
            client.send_labels("half", values, offsets=np.arange(ROWS))
        assert refused.value.code == "conflict"
        with pytest.raises(ValueError, match="no row with a value"):
            client.send_labels("none", [1.0], stream="nothing of that name", seq=[0])
        (tmp_path / "labels.csv").write_text("stream,seq,gentle\nelsewhere,0,1\n")
        failed = subprocess.run([*command, str(tmp_path / "heads.json")], capture_output=True, text=True)
        assert failed.returncode != 0 and "no stream and seq in it" in failed.stderr, failed.stderr
        answers = learned(client, ROWS)
        daemon.restart()
        after = learned(client, ROWS)
    np.testing.assert_array_equal(after.mean, answers.mean)
    np.testing.assert_array_equal(after.variance, answers.variance)
    # Solved for together with another head.
    np.testing.assert_allclose(before.by_name["half"], after.by_name["half"], rtol=1e-9)
