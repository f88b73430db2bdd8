"""The protocol's test messages, held to its schema and to this package."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from cddl_verifier import Validator
from conftest import ROOT

from criticd import CriticdError, Hello, Malformed, Refused, Snapshot
from criticd._delivery import Batch, Stream
from criticd._protocol import answer, pack, unpack
from criticd._rows import Rows
from criticd.client import appended_of, positions_of, query, refit_outcome_of, value_of, values_of

VECTORS = ROOT / "proto" / "vectors"
SUFFIX = ".reading.json"
READINGS = {path.name.removesuffix(SUFFIX): json.loads(path.read_text()) for path in VECTORS.glob("*" + SUFFIX)}
RULES = {"ingest": "to-ingest", "control": "to-control", "reply": "from-control", "publication": "published"}
SCHEMA = Validator(Path(ROOT / "proto" / "criticd.cddl"))


def vector(name: str) -> bytes:
    return (VECTORS / f"{name}.msgpack").read_bytes()


def plain(value: Any) -> Any:
    """As the readings write it."""
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def test_every_vector_has_a_reading() -> None:
    assert set(READINGS) == {path.stem for path in VECTORS.glob("*.msgpack")}
    assert {reading["socket"] for reading in READINGS.values()} == set(RULES)


@pytest.mark.parametrize("name", READINGS)
def test_messages_keep_to_the_schema(name: str) -> None:
    reading = READINGS[name]
    if reading["error"] is not None and reading["error"]["code"] == "malformed":
        # Nothing that a schema could be asked about.
        assert reading["reading"] is None and not reading["schema"]
        return
    message = msgpack.unpackb(vector(name), strict_map_key=False)
    result = SCHEMA.validate(message, root_type=RULES[reading["socket"]])
    assert result.valid == reading["schema"], result.errors
    assert reading["schema"] or reading["error"] is not None


@pytest.mark.parametrize("name", READINGS)
def test_messages_read_here_as_they_say(name: str) -> None:
    reading = READINGS[name]
    if reading["reading"] is None or reading["reading"].get("v") != 1:
        # Some of these are MessagePack, and yet no messages; the package only ever reads what a daemon sends.
        return
    assert plain(unpack(vector(name))) == reading["reading"]


def test_what_the_package_sends_is_what_the_vectors_say() -> None:
    expected = unpack(vector("batch_numpy"))
    columns: tuple[str, ...] = ("states", "rewards", "next_states", "terminated", "truncated", "actions", "discounts")
    columns += ("times",)
    values: list[Any] = [expected.get(key) for key in columns]
    rows = Rows.table(*values)
    batch = Batch(Stream("robot", "7f"), 40, rows)
    assert pack(batch.fields()) == vector("batch_numpy")
    assert pack({"id": 9, "op": "append", **batch.fields()}) == vector("append")
    # So is what rows say of policies.
    expected = unpack(vector("batch_policies"))
    columns += ("behavior_probs", "target_probs", "next_actions", "next_action_probs")
    values = [expected.get(key) for key in columns]
    rows = Rows.table(*values)
    assert pack(Batch(Stream("robot", "7f"), 40, rows).fields()) == vector("batch_policies")
    # A piece of a trajectory is sent as the batch that it stands for.
    piece = unpack(vector("piece"))
    whole = Rows.table(piece["states"], piece["rewards"], None, None, None, None, None, None)
    sent = unpack(pack(Batch(Stream("robot", ""), 0, whole).fields()))
    assert np.array_equal(sent["next_states"], piece["states"][1:]) and np.array_equal(
        sent["rewards"], piece["rewards"]
    )
    one = unpack(vector("transition_full"))
    keys = ("state", "reward", "next_state", "terminated", "truncated", "action", "discount", "time")
    single = unpack(pack(Batch(Stream("robot", "7f"), 3, Rows.single(*(one[key] for key in keys))).fields()))
    names = {"state": "states", "next_state": "next_states", "reward": "rewards", "action": "actions"}
    names |= {"discount": "discounts", "time": "times", "terminated": "terminated", "truncated": "truncated"}
    assert {key: single[plural][0].tolist() for key, plural in names.items()} == {key: one[key] for key in names}
    assert (single["seq"], single["session"], single["stream"]) == (3, "7f", "robot")
    for name in ("transition_policies", "transition_behavior"):
        one = unpack(vector(name))
        values = [
            *(one.get(key) for key in ("state", "reward", "next_state")),
            False,
            False,
            one.get("action"),
            None,
            None,
        ]
        said = [one.get(key) for key in ("behavior_prob", "target_prob", "next_action", "next_action_probs")]
        single = unpack(pack(Batch(Stream("robot", "7f"), 3, Rows.single(*values, *said)).fields()))
        names = {"behavior_prob": "behavior_probs", "target_prob": "target_probs", "next_action": "next_actions"}
        names |= {"next_action_probs": "next_action_probs"}
        assert {key: single[names[key]][0].tolist() for key in names if names[key] in single} == {
            key: value for key, value in zip(names, said, strict=True) if value is not None
        }
    asked = pack({"id": "q", "op": "value", **query(expected["states"], True, None, 12)})
    assert asked == vector("value")
    asked = pack(
        {"id": 4, "op": "value", **query(np.array([[1, 2], [3, 4.5]]), False, None, None, returns=True, known=True)}
    )
    assert plain(unpack(asked)) == READINGS["value_known"]["reading"]
    several = query(np.array([[1, 2], [3, 4.5]]), False, None, None, critics=("far", "near"))
    sent = {key: value for key, value in plain(unpack(pack({"id": 4, "op": "value", **several}))).items() if value}
    assert sent == READINGS["value_critics"]["reading"]


def test_answers_of_several_critics_are_told_apart() -> None:
    reply = answer(vector("reply_value_critics"))[1]
    assert not isinstance(reply, Refused)
    found = values_of(reply, ["near", "far"])
    assert list(found) == ["near", "far"]
    assert (found["near"].mean.tolist(), found["near"].generation) == ([1.0, 0.5], 1)
    assert (found["far"].mean.tolist(), found["far"].lambda_) == ([1.5, -2.0], 0.75)
    with pytest.raises(Malformed, match="middle"):
        values_of(reply, ["middle"])
    # A daemon without the feature answers for its first critic.
    former = answer(vector("reply_value"))[1]
    assert not isinstance(former, Refused)
    with pytest.raises(CriticdError, match="feature `critics`"):
        values_of(former, ["far"])
    with pytest.raises(TypeError, match="list of names"):
        query([[1.0]], False, None, None, critics="far")


def test_replies_become_what_the_package_returns() -> None:
    def reply(name: str) -> Any:
        number, found = answer(vector(f"reply_{name}"))
        assert number == READINGS[f"reply_{name}"]["reading"]["id"]
        return found

    assert vars(appended_of(reply("append"))) == {"accepted": 2, "duplicates": 1, "next_seq": 43, "offset": 1043}
    for name in ("value", "value_list"):
        value = value_of(reply(name))
        assert (
            value.mean.tolist() == [1.5, -2.0] and value.variance is not None and value.variance.tolist() == [0.25, 0.5]
        )
        assert (value.generation, value.offset) == (3, 1043)
        assert (value.known, value.return_variance, value.lambda_, value.provisional) == (None, None, 1.0, False)
    assert value_of(reply("value_rewards")).mean.shape == (2, 2)
    for name in ("value_known", "value_known_list"):
        value = value_of(reply(name))
        assert value.return_std is not None and value.return_std.tolist() == [1.25**0.5, 0.75**0.5]
        assert value.known is not None and value.known.tolist() == [0.875, 0.0]
        assert value.extrapolates is not None and value.extrapolates.tolist() == [False, True]
        assert (value.lambda_, value.provisional) == (0.75, True)
        low, high = value.return_interval()
        np.testing.assert_allclose(high - low, 2 * 1.6448536269514722 * value.return_std)
        with pytest.raises(ValueError, match="not known"):
            value_of(reply("value")).return_interval()
    assert value_of(reply("value_returns")).return_interval(0.5)[0].shape == (2, 2)
    positions = positions_of(reply("streams"))
    assert (positions["robot"].session, positions["robot"].next_seq, positions["arm"].rows) == ("7f", 43, 7)
    outcomes = [refit_outcome_of(reply(f"optimise_{name}")).outcome for name in ("started", "adopted", "rejected")]
    assert outcomes == ["started", "adopted", "rejected"]
    hello = Hello.of(reply("hello"))
    assert (hello.protocol, hello.critics, hello.state_dim) == ((1, 1), ("default", "far"), 2)
    assert hello.limits.rows_per_batch == 4096 and hello.features == {"hello", "pages"}
    refused = reply("error_out_of_range")
    assert isinstance(refused, Refused) and (refused.code, refused.index) == ("out_of_range", 1)
    assert reply("error_overloaded").retry_after_ms == 50 and reply("error_sequence_gap").expected_seq == 12
    assert reply("error_malformed").field is None
    with pytest.raises(Malformed):
        Hello.of(reply("ping"))


@pytest.mark.parametrize("path", sorted(VECTORS.glob("snapshot_*.json")), ids=lambda path: path.stem)
def test_golden_models_say_what_they_must(path: Path) -> None:
    if path.stem.endswith(".reading"):
        return
    expected = json.loads(path.read_text())
    snapshot = Snapshot.of(unpack(vector(path.stem)))
    mean, variance = snapshot.evaluate(expected["states"], variance="variance" in expected)
    np.testing.assert_allclose(np.reshape(mean, np.shape(expected["mean"])), expected["mean"], rtol=0, atol=1e-12)
    if variance is not None:
        np.testing.assert_allclose(variance, expected["variance"], rtol=0, atol=1e-12)
    if snapshot.returns is not None:
        values = snapshot.evaluate(expected["states"], returns=True, known=True)
        for key in ("mean", "variance", "return_variance", "known"):
            found = getattr(values, key)
            assert (found is None) == (key not in expected)
            if found is not None:
                np.testing.assert_allclose(found, expected[key], rtol=0, atol=1e-12)
        assert values.extrapolates is not None and values.extrapolates.tolist() == expected["extrapolates"]
        assert snapshot.lambda_ == 0.8 and snapshot.provisional == path.stem.endswith("provisional")
    # And written again they are the same bytes.
    assert pack(snapshot.message()) == vector(path.stem)


def test_golden_weights_follow_a_golden_model() -> None:
    before = Snapshot.of(unpack(vector("snapshot_ard")))
    after = before.followed_by(unpack(vector("weights")))
    assert after is not None
    assert (after.revision, after.offset, len(after.dictionary)) == (32, 5100, 4)
    # It has grown, and came without its variance.
    assert after.covariance is None
    full = before.followed_by(unpack(vector("weights_variance")))
    assert full is not None and full.covariance is not None and full.score is None
    assert (full.lambda_, full.returns, full.provisional) == (1.0, None, False)
    scattered = before.followed_by(unpack(vector("weights_returns")))
    assert scattered is not None and scattered.returns is not None
    assert (scattered.lambda_, scattered.provisional) == (0.9, True)
    assert (scattered.returns.weights.shape, scattered.returns.factor, scattered.returns.pairs) == ((4, 1), 1.25, 431)
    assert np.array_equal(full(np.zeros(2)), after(np.zeros(2)))
