"""Write the golden messages of this folder with Python's msgpack and msgpack-numpy, independently of the daemon.

    pip install msgpack msgpack-numpy numpy && python make.py

NAME.msgpack is a message, NAME.reading.json says how it reads; snapshot_*.json holds states and what the snapshot of
that name says about them. Files that exist are never changed: this stops if it would make another one of them.
"""

import json
import pathlib

import msgpack
import msgpack_numpy
import numpy as np

HERE = pathlib.Path(__file__).parent


def put(file, data):
    path = HERE / file
    if path.exists() and path.read_bytes() != data:
        raise SystemExit(f"{file} exists and is another one: make a new vector instead")
    path.write_bytes(data)


def put_json(file, value):
    path = HERE / file
    # Another machine adds up in another order.
    if not (path.exists() and alike(json.loads(path.read_text()), value)):
        put(file, (json.dumps(value, indent=1) + "\n").encode())


def alike(a, b):
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(alike(a[key], b[key]) for key in a)
    return a == b or (isinstance(a, float) and isinstance(b, float) and abs(a - b) <= 1e-12 * abs(a) + 1e-13)


def write(name, message):
    put(f"{name}.msgpack", msgpack.packb(message, default=msgpack_numpy.encode))


states = np.array([[0.1, -2.0], [0.3, 1e-9], [-0.5, 1e9]])
rows = {
    "states": states,
    "next_states": states[::-1] * 0.5,
    "rewards": np.array([1.5, -0.25, 0.0]),
    "terminated": np.array([False, True, False]),
    "truncated": np.array([False, False, True]),
    "discounts": np.array([0.9, 1.0, 0.0]),
    "actions": np.array([[0.5, 1.0], [0.25, -1.0], [0.0, 3.0]]),
}
lists = {key: value.tolist() for key, value in rows.items()}

write("transition", {"v": 1, "state": [0.1, -2], "next_state": [0.3, 4], "reward": 1, "terminated": False})
write(
    "transition_numpy_scalars",
    {
        "v": 1,
        "stream": "robot",
        "state": states[0],
        "next_state": states[1],
        "reward": np.float32(1),
        "terminated": np.bool_(False),
        "seq": np.int64(3),
    },
)
write("batch", {"v": 1, "stream": "robot", "session": "7f", "seq": 40, **lists})
write("batch_numpy", {"v": 1, "stream": "robot", "session": "7f", "seq": 40, **rows})
write("piece", {"v": 1, "stream": "robot", "states": states, "rewards": [1, 2]})
write("append", {"v": 1, "id": 9, "op": "append", "stream": "robot", "session": "7f", "seq": 40, **rows})
write("value", {"v": 1, "id": "q", "op": "value", "states": states, "variance": True, "min_offset": 12})
write("value_as_of", {"v": 1, "id": "q", "op": "value", "states": states, "variance": True, "as_of": 1.75e9})
write("snapshot_request", {"v": 1, "id": None, "op": "snapshot", "critic": "default", "variance": True})
write("snapshot_as_of", {"v": 1, "id": 1, "op": "snapshot", "variance": True, "as_of": 120000})

# What most snapshots begin with.
MODEL = {
    "type": "snapshot",
    "critic": "default",
    "generation": 2,
    "revision": 31,
    "offset": 5000,
    "transitions": 4999,
    "time": 1.7e9,
    "discount": 0.99,
    "noise": {"model": "correlated", "variance": 0.01},
}


def snapshot(kind, relevance, factors):
    dim, size = 2, 3
    shift, scale = np.array([0.5, -1.0]), np.array([2.0, 0.25])
    dictionary = np.array([[0.0, 0.5], [1.0, -1.5], [-0.75, 2.0]])
    weights = np.array([0.3, -1.2, 2.5])
    # Small enough that every variance is positive.
    c = np.array([[0.2, 0.01, 0.0], [0.01, 0.1, -0.02], [0.0, -0.02, 0.15]])
    v0, b = 1.75, 0.125
    kernel = {"kind": kind, "signal_variance": v0, "bias_variance": b, "relevance": relevance}
    metric = np.diag(relevance)
    if factors is not None:
        kernel["factors"] = factors
        metric = metric + factors.T @ factors
    write(
        f"snapshot_{kind}",
        {
            "v": 1,
            **MODEL,
            "kernel": kernel,
            "inputs": {"dim": dim, "shift": shift, "scale": scale, "names": ["angle", "speed"]},
            "dictionary": dictionary,
            "weights": weights,
            "variance": c,
            "log_evidence": -321.5,
            "score": -0.75,
        },
    )

    def k(x, y):
        return v0 * np.exp(-0.5 * (x - y) @ metric @ (x - y)) + b

    queries = np.array([[0.5, -1.0], [2.5, -1.375], [0.0, 0.0], [-1.0, -0.5]])
    z = (queries - shift) / scale
    km = np.array([[k(d, x) for d in dictionary] for x in z])
    variance = [k(x, x) - row @ c @ row for x, row in zip(z, km)]
    assert len(dictionary) == size and min(variance) > 0
    expected = {"states": queries.tolist(), "mean": (km @ weights).tolist(), "variance": variance}
    put_json(f"snapshot_{kind}.json", expected)


snapshot("isotropic", np.array([0.5, 0.5]), None)
snapshot("ard", np.array([0.5, 0.0]), None)
snapshot("factor", np.array([0.5, 0.25]), np.array([[1.0, -0.5]]))


# ---- how each message reads, and what is wrong with the bad ones
#
# socket: to "ingest" or "control", or from the daemon as "reply" or "publication". reading: the message as JSON, arrays
# as lists, binary data as {"hex": ...}, what is not finite as a string; null if it cannot be read at all. error: what a
# daemon of default settings that has seen nothing says of a bad one. schema: whether criticd.cddl lets it pass.


def plain(value):
    if isinstance(value, (np.ndarray, np.generic)):
        return plain(value.tolist())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return {"hex": value.hex()}
    if isinstance(value, float) and not np.isfinite(value):
        return str(value)
    return value


def read(name, socket, error=None, schema=True):
    data = (HERE / f"{name}.msgpack").read_bytes()
    malformed = error is not None and error["code"] == "malformed"
    reading = None if malformed else plain(msgpack.unpackb(data, object_hook=msgpack_numpy.decode))
    put_json(f"{name}.reading.json", {"socket": socket, "error": error, "schema": schema, "reading": reading})


def good(name, socket, message):
    write(name, {"v": 1, **message})
    read(name, socket)


def bad(name, socket, message, code, field=None, index=None, schema=False):
    if isinstance(message, bytes):
        put(f"{name}.msgpack", message)
    else:
        write(name, message)
    error = {"code": code, "field": field, "index": index}
    read(name, socket, {key: value for key, value in error.items() if value is not None}, schema)


for name in ("transition", "transition_numpy_scalars", "batch", "batch_numpy", "piece"):
    read(name, "ingest")
for name in ("append", "value", "value_as_of", "snapshot_request", "snapshot_as_of"):
    read(name, "control")
for name in ("snapshot_isotropic", "snapshot_ard", "snapshot_factor"):
    read(name, "publication")

row = {"stream": "robot", "session": "7f", "seq": 3, "state": [0.5, -1], "next_state": [1, 2.5], "reward": -3}
good(
    "transition_full",
    "ingest",
    {
        **row,
        "terminated": True,
        "truncated": False,
        "action": [0.25, 1],
        "discount": 0.5,
        "time": 1.7e9,
        "comment": {"x": [1]},
    },
)
good("transition_rewards", "ingest", {**row, "reward": [1, -0.5], "op": "append"})
good(
    "batch_rewards",
    "ingest",
    {
        "stream": "robot",
        "states": states,
        "next_states": states * 0.5,
        "rewards": np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
        "actions": np.array([0, 2, 1]),
        "times": np.array([1.7e9, 1.7e9, 1.7e9]),
    },
)
policies = {
    "behavior_probs": np.array([0.25, 0.5, 1.75]),
    "target_probs": np.array([0.5, 0.0, 0.35]),
    "next_actions": np.array([[0.25, -1.0], [0.0, 3.0], [1.0, 2.0]]),
    "next_action_probs": np.array([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.1, 0.1, 0.8]]),
}
good("batch_policies", "ingest", {"stream": "robot", "session": "7f", "seq": 40, **rows, **policies})
good(
    "transition_policies",
    "ingest",
    {**row, "action": 1, "behavior_prob": 0.4, "target_prob": 0, "next_action": 2, "next_action_probs": [0.25, 0, 0.75]},
)
good("transition_behavior", "ingest", {**row, "behavior_prob": 2.5})
good("batch_policy", "ingest", {"stream": "robot", "session": "7f", "seq": 40, **rows, **policies, "policy": "stiff"})
good("transition_policy", "ingest", {**row, "policy": "p\u00e9dale 2"})
bad("bad_policy", "ingest", {"v": 1, **row, "policy": ""}, "out_of_range", "policy")
bad("bad_policy_number", "ingest", {"v": 1, **row, "policy": 2}, "wrong_type", "policy")
good("append_transition", "control", {"id": [1, {"a": None}], "op": "append", **row})
good("value_list", "control", {"id": 4, "op": "value", "states": [[1, 2], [3, 4.5]], "critic": "far", "arrays": "list"})
several = {"id": 4, "op": "value", "states": [[1, 2], [3, 4.5]], "critics": ["far", "near"]}
good("value_critics", "control", several)
bad("bad_critics", "control", {"v": 1, **several, "critics": "far"}, "wrong_type", "critics")
good("snapshot_page_request", "control", {"id": 5, "op": "snapshot", "page": 1, "revision": 31})
good("refit", "control", {"id": 6, "op": "refit", "critic": "default", "wait": True})
# Its former name, which daemons accept.
good("optimise", "control", {"id": 6, "op": "optimise", "critic": "default", "wait": True})
good("new_policy", "control", {"id": 6, "op": "new_policy", "critic": "default", "policy": "stiff"})
good("new_policy_of_all", "control", {"id": 6, "op": "new_policy"})
bad("bad_new_policy", "control", {"v": 1, "id": 6, "op": "new_policy", "policy": "p" * 257}, "out_of_range", "policy")
for op in ("status", "streams", "checkpoint", "ping", "hello"):
    good(f"{op}_request", "control", {"id": 7, "op": op})

good("reply_append", "reply", {"id": 9, "ok": True, "accepted": 2, "duplicates": 1, "next_seq": 43, "offset": 1043})
good(
    "reply_value",
    "reply",
    {
        "id": 9,
        "ok": True,
        "mean": np.array([1.5, -2.0]),
        "variance": np.array([0.25, 0.5]),
        "generation": 3,
        "offset": 1043,
    },
)
good(
    "reply_value_rewards",
    "reply",
    {
        "id": 9,
        "ok": True,
        "mean": np.array([[1.5, -2.0], [0.5, 4.0]]),
        "generation": 3,
        "offset": 1043,
    },
)
good(
    "reply_value_list",
    "reply",
    {
        "id": 9,
        "ok": True,
        "mean": [1.5, -2.0],
        "variance": [0.25, 0.5],
        "generation": 3,
        "offset": 1043,
    },
)
good(
    "reply_page",
    "reply",
    {
        "id": 9,
        "ok": True,
        "page": 1,
        "pages": 3,
        "revision": 31,
        "bytes": 1100000,
        "data": bytes(range(8)),
    },
)
good(
    "reply_streams",
    "reply",
    {
        "id": 9,
        "ok": True,
        "streams": {
            "arm": {"session": "", "next_seq": 7, "rows": 7, "last_seen": 1.7e9},
            "robot": {"session": "7f", "next_seq": 43, "rows": 1036, "last_seen": 1.7e9 + 0.5},
        },
    },
)
good("reply_optimise_started", "reply", {"id": 9, "ok": True, "outcome": "started"})
good("reply_optimise_adopted", "reply", {"id": 9, "ok": True, "outcome": "adopted", "generation": 4})
good(
    "reply_optimise_rejected",
    "reply",
    {
        "id": 9,
        "ok": True,
        "outcome": "rejected",
        "generation": 3,
        "reason": "it predicts no better",
    },
)
good("reply_checkpoint", "reply", {"id": 9, "ok": True, "offset": 1043})
good("reply_new_policy", "reply", {"id": 9, "ok": True, "offset": 1043})
good("reply_ping", "reply", {"id": 9, "ok": True, "version": "0.1.0", "uptime_s": 2.5})
good(
    "reply_hello",
    "reply",
    {
        "id": 9,
        "ok": True,
        "protocol": {"min": 1, "max": 1},
        "version": "0.1.0",
        "features": ["hello", "pages"],
        "limits": {
            "message_bytes": 1048576,
            "rows_per_batch": 4096,
            "rows_per_query": 65536,
            "page_bytes": 524288,
            "id_bytes": 256,
        },
        "critics": ["default", "far"],
        "state_dim": 2,
    },
)
good(
    "reply_hello_rewards",
    "reply",
    {
        "id": 9,
        "ok": True,
        "protocol": {"min": 1, "max": 1},
        "version": "0.1.0",
        "features": ["hello", "pages"],
        "limits": {
            "message_bytes": 1048576,
            "rows_per_batch": 4096,
            "rows_per_query": 65536,
            "page_bytes": 524288,
            "id_bytes": 256,
        },
        "critics": ["default", "far"],
        "state_dim": 2,
        "rewards": 3,
    },
)
good("reply_status", "reply", {"id": 9, "ok": True, "durable": False, "offset": 1043, "critics": [{"name": "default"}]})
refusals = {
    "malformed": (None, {"code": "malformed", "message": "the map ends too early"}),
    "out_of_range": (
        9,
        {
            "code": "out_of_range",
            "message": "a discount lies in [0, 1], this one is 2",
            "field": "discounts",
            "index": 1,
        },
    ),
    "sequence_gap": (
        9,
        {
            "code": "sequence_gap",
            "message": "the next row must have seq 12",
            "field": "seq",
            "expected_seq": 12,
        },
    ),
    "overloaded": (
        9,
        {"code": "overloaded", "message": "no room now, try again in 50 ms", "retry_after_ms": 50},
    ),
}
for code, (number, error) in refusals.items():
    good(f"reply_error_{code}", "reply", {"id": number, "ok": False, "error": error})

made = {"critic": "default", "generation": 2, "revision": 32, "offset": 5100}
learned = {
    "transitions": 5099,
    "time": 1.7e9,
    "noise": {"model": "white", "variance": 0.01},
    "kernel": {"kind": "ard", "signal_variance": 1.75, "bias_variance": 0.125, "relevance": np.array([0.5, 0.0])},
    "dictionary_start": 2,
    "dictionary": np.array([[-0.75, 2.0], [0.25, 0.5]]),
    "weights": np.array([0.3, -1.2, 2.5, 0.1]),
}
good("weights", "publication", {"type": "weights", **made, **learned, "log_evidence": -322.5, "score": -0.5})
good(
    "weights_variance",
    "publication",
    {
        "type": "weights",
        **made,
        **learned,
        "variance": np.diag([0.2, 0.1, 0.15, 0.1]),
        "log_evidence": -322.5,
    },
)
good("announcement", "publication", {"type": "announcement", **made, "bytes": 5000000})
good("event", "publication", {"type": "event", "event": "adopted", "time": 1.7e9, "critic": "default", "generation": 3})
good("status", "publication", {"type": "status", "durable": False, "offset": 1043})


def more_snapshots(name, kind, relevance, factors, bias, weights, c, shift, scale):
    """A model and what it says, computed state by state as the protocol writes it down."""
    dictionary = np.array([[0.0, 0.5, 1.0], [1.0, -1.5, 0.0], [-0.75, 2.0, -0.25], [0.5, 0.5, 0.5]])
    v0 = 0.8
    kernel = {"kind": kind, "signal_variance": v0, "bias_variance": bias, "relevance": relevance}
    metric = np.diag(relevance)
    if factors is not None:
        kernel["factors"] = factors
        metric = metric + factors.T @ factors
    message = {
        "type": "snapshot",
        "critic": "far",
        "generation": 1,
        "revision": 1,
        "offset": 400,
        "transitions": 400,
        "time": 1.7e9,
        "discount": 1.0,
        "noise": {"model": "white", "variance": 0.5},
        "kernel": kernel,
        "inputs": {"dim": 3, "shift": shift, "scale": scale},
        "dictionary": dictionary,
        "weights": weights,
    }
    if c is not None:
        message["variance"] = c
    good(f"snapshot_{name}", "publication", {**message, "log_evidence": -12.0})
    queries = np.array([[0.0, 0.0, 0.0], [1.5, -0.5, 2.0], [-3.0, 4.0, 0.25], [100.0, 0.0, 0.0]])
    means, variances = [], []
    for x in queries:
        z = (x - shift) / scale
        k = np.array([v0 * np.exp(-0.5 * (z - d) @ metric @ (z - d)) + bias for d in dictionary])
        means.append((k @ weights).tolist())
        if c is not None:
            variances.append(float(v0 + bias - k @ c @ k))
    assert all(v > 0 for v in variances)
    expected = {"states": queries.tolist(), "mean": means}
    put_json(f"snapshot_{name}.json", {**expected, "variance": variances} if c is not None else expected)


one, two = np.array([0.5, -1.0, 2.0, 0.25]), np.array([[0.5, 1.0], [-1.0, 0.0], [2.0, 3.0], [0.25, -4.0]])
c = np.array([[0.3, 0.05, 0.0, 0.1], [0.05, 0.2, 0.0, 0.0], [0.0, 0.0, 0.25, 0.0], [0.1, 0.0, 0.0, 0.4]])
zero, unit = np.zeros(3), np.ones(3)
more_snapshots("rewards_isotropic", "isotropic", np.full(3, 0.75), None, 0.0, two, c, zero, unit)
more_snapshots("rewards_ard", "ard", np.array([0.0, 1.0, 0.25]), None, 0.3, two, c, unit, 2 * unit)
more_snapshots(
    "rewards_factor",
    "factor",
    np.array([0.1, 0.0, 0.0]),
    np.array([[1.0, -1.0, 0.5], [0.0, 0.3, 0.0]]),
    0.3,
    two,
    c,
    unit,
    np.array([0.5, 1.0, 4.0]),
)
more_snapshots("means_only", "ard", np.array([0.5, 1.0, 0.25]), None, 0.0, one, None, zero, unit)
more_snapshots("no_bias_factor", "factor", np.zeros(3), np.array([[0.5, 0.5, 0.5]]), 0.0, one, c / 4, zero, unit)


# ---- profiles, and state variables that are not real


def other_kernels(name, kind, profile, kinds, relevance, factors):
    """Squared distances from their definition, state by state."""
    dictionary = np.array([[0.0, 0.5, 1.0], [1.0, -1.5, 0.0], [-0.75, 2.0, 1.0], [0.5, 0.5, 2.0]])
    v0, bias, weights = 0.8, 0.3, np.array([0.5, -1.0, 2.0, 0.25])
    shift, scale = np.array([0.5, 0.0, 0.0]), np.array([2.0, 1.0, 1.0])
    kernel = {"kind": kind, "signal_variance": v0, "bias_variance": bias, "relevance": relevance}
    kernel |= {"profile": profile} if profile != "gaussian" else {}
    kernel |= {"kinds": kinds} if kinds else {}
    kernel |= {"factors": factors} if factors is not None else {}
    message = {
        "type": "snapshot",
        "critic": "default",
        "generation": 1,
        "revision": 1,
        "offset": 400,
        "transitions": 400,
        "time": 1.7e9,
        "discount": 0.9,
        "noise": {"model": "correlated", "variance": 0.5},
        "kernel": kernel,
        "inputs": {"dim": 3, "shift": shift, "scale": scale},
        "dictionary": dictionary,
        "weights": weights,
        "variance": c / 2,
        "log_evidence": -12.0,
    }
    good(f"snapshot_{name}", "publication", message)

    def line(d, x):
        if not kinds or kinds[d] == "real":
            return x[d]
        centre, scale, width = map(float, kinds[d].split(":")[1:])
        return width * np.arcsinh((x[d] - centre) / scale)

    def k(a, b):
        squared = 0.0
        kind_of = dict(enumerate(kinds))
        for d in range(3):
            if kind_of.get(d, "real") == "real":
                squared += relevance[d] * (a[d] - b[d]) ** 2
            elif kind_of[d].startswith("asinh"):
                squared += relevance[d] * (line(d, a) - line(d, b)) ** 2
            elif kind_of[d] == "category":
                squared += relevance[d] * (2.0 if a[d] != b[d] else 0.0)
            else:
                period = float(kind_of[d].split(":")[1])
                squared += relevance[d] * (2 * np.sin(np.pi * (a[d] - b[d]) / period)) ** 2
        for f in [] if factors is None else factors:
            lines = [d for d in range(3) if kind_of.get(d, "real").startswith(("real", "asinh"))]
            squared += sum(f[d] * (line(d, a) - line(d, b)) for d in lines) ** 2
        s = np.sqrt(5 * squared)
        shape = np.exp(-squared / 2) if profile == "gaussian" else (1 + s + s**2 / 3) * np.exp(-s)
        return v0 * shape + bias

    queries = np.array([[0.5, 0.5, 1.0], [1.5, 12.0, 2.0], [-3.0, 4.0, 0.0], [100.0, -0.25, 7.0]])
    means, variances = [], []
    for x in queries:
        z = (x - shift) / scale
        row = np.array([k(z, d) for d in dictionary])
        means.append(float(row @ weights))
        variances.append(float(v0 + bias - row @ (c / 2) @ row))
    assert all(v > 0 for v in variances)
    put_json(f"snapshot_{name}.json", {"states": queries.tolist(), "mean": means, "variance": variances})


angle = f"periodic:{2 * np.pi!r}"
mixed = ["real", angle, "category"]
other_kernels("matern52_isotropic", "isotropic", "matern52", [], np.full(3, 0.5), None)
other_kernels("matern52_factor", "factor", "matern52", [], np.array([0.5, 0.0, 0.25]), np.array([[1.0, -0.5, 0.25]]))
other_kernels("kinds_ard", "ard", "gaussian", mixed, np.array([0.5, 1.5, 0.75]), None)
other_kernels(
    "matern52_kinds_factor", "factor", "matern52", mixed, np.array([0.5, 1.5, 0.75]), np.array([[1.0, 9.0, 9.0]])
)
bent = ["asinh:-0.5:0.25:0.75", "category", "asinh:1.5:2:1.25"]
other_kernels("bent_factor", "factor", "matern52", bent, np.array([0.5, 1.5, 0.75]), np.array([[1.0, 9.0, -0.5]]))

base = {"v": 1, **row}
table = {"v": 1, "stream": "robot", "states": [[0.5, -1], [1, 2], [3, 4]], "rewards": [1, 2]}


def without(message, key):
    return {name: value for name, value in message.items() if name != key}


bad("bad_not_a_map", "control", msgpack.packb([1, 2]), "malformed")
bad("bad_truncated", "ingest", msgpack.packb(base)[:-3], "malformed")
bad("bad_trailing", "ingest", msgpack.packb(base) + b"\xc0", "malformed")
bad("bad_key_twice", "ingest", b"\x83\xa1v\x01\xa6reward\x01\xa6reward\x02", "malformed", "reward")
bad("bad_key_number", "ingest", msgpack.packb({"v": 1, 7: 7}), "malformed")
bad("bad_version", "control", {"v": 2, "op": "ping"}, "unsupported_version", "v")
bad("bad_no_version", "ingest", without(base, "v"), "missing_field", "v")
bad("bad_op", "control", {"v": 1, "op": "learn"}, "unknown_op", "op")
bad("bad_no_op", "control", {"v": 1}, "missing_field", "op")
bad("bad_no_seq", "control", {"op": "append", **without(base, "seq")}, "missing_field", "seq")
bad("bad_negative_seq", "ingest", {**base, "seq": -1}, "out_of_range", "seq")
bad("bad_no_reward", "ingest", without(base, "reward"), "missing_field", "reward")
bad("bad_state_in_words", "ingest", {**base, "state": "up"}, "wrong_type", "state")
bad("bad_flag_as_number", "ingest", {**base, "terminated": 1}, "wrong_type", "terminated")
bad("bad_stream_name", "ingest", {**base, "stream": ""}, "out_of_range", "stream")
bad(
    "bad_flags_in_tensor",
    "ingest",
    {**table, "terminated": np.array([0, 2], np.uint8).view(np.bool_)},
    "out_of_range",
    "terminated",
    1,
    schema=True,
)
bad("bad_both_forms", "ingest", {**base, "rewards": [1]}, "wrong_shape", "rewards", schema=True)
bad("bad_ragged", "ingest", {**table, "states": [[0.5, -1], [1], [3, 4]]}, "wrong_shape", "states", 1, schema=True)
bad("bad_rows", "ingest", {**table, "rewards": [1, 2, 3, 4]}, "wrong_shape", "states", schema=True)
bad(
    "bad_not_finite",
    "ingest",
    {**table, "states": np.array([[0.5, -1], [np.nan, 2], [3, 4]])},
    "not_finite",
    "states",
    1,
    schema=True,
)
bad("bad_infinite_list", "ingest", {**table, "rewards": [1.0, float("inf")]}, "not_finite", "rewards", 1, schema=True)
bad("bad_large_state", "ingest", {**base, "state": [1e10, 0]}, "out_of_range", "state", 0, schema=True)
bad("bad_discount", "ingest", {**base, "discount": 1.5}, "out_of_range", "discount", 0, schema=True)
bad("bad_behavior_prob", "ingest", {**base, "behavior_prob": 0}, "out_of_range", "behavior_prob", 0, schema=True)
bad("bad_target_probs", "ingest", {**table, "target_probs": [0.5, -0.5]}, "out_of_range", "target_probs", 1, schema=True)
bad(
    "bad_ratio",
    "ingest",
    {**base, "behavior_prob": 1e-12, "target_prob": 1},
    "out_of_range",
    "target_prob",
    0,
    schema=True,
)
bad(
    "bad_next_action",
    "ingest",
    {**base, "action": [1, 2], "next_action": [1]},
    "wrong_shape",
    "next_action",
    schema=True,
)
bad(
    "bad_next_action_probs",
    "ingest",
    {**table, "next_action_probs": np.array([[0.5, 0.5], [0.5, 0.25]])},
    "out_of_range",
    "next_action_probs",
    1,
    schema=True,
)
bad("bad_policies_of_a_batch", "ingest", {**base, "next_actions": [1]}, "wrong_shape", "next_actions", schema=True)
bad(
    "bad_end_within_piece",
    "ingest",
    {**table, "terminated": [True, False]},
    "out_of_range",
    "terminated",
    0,
    schema=True,
)
bad("bad_arrays", "control", {"v": 1, "op": "ping", "arrays": "csv"}, "out_of_range", "arrays")
bad("bad_query", "control", {"v": 1, "op": "value", "states": [0.5, 1]}, "wrong_shape", "states")

# ---- how returns scatter, what is known, and lambda

good(
    "value_known",
    "control",
    {"id": 4, "op": "value", "states": [[1, 2], [3, 4.5]], "variance": False, "returns": True, "known": True},
)
said = {
    "mean": np.array([1.5, -2.0]),
    "variance": np.array([0.25, 0.5]),
    "return_variance": np.array([1.25, 0.75]),
    "known": np.array([0.875, 0.0]),
    "extrapolates": np.array([False, True]),
    "generation": 3,
    "offset": 1043,
    "lambda": 0.75,
    "provisional": True,
}
good("reply_value_known", "reply", {"id": 9, "ok": True, **said})
answers = {"far": said, "near": {"mean": np.array([1.0, 0.5]), "generation": 1, "offset": 1043}}
good("reply_value_critics", "reply", {"id": 9, "ok": True, "critics": answers})
good("reply_value_known_list", "reply", {"id": 9, "ok": True, **plain(said)})
good(
    "reply_value_returns",
    "reply",
    {
        "id": 9,
        "ok": True,
        "mean": np.array([[1.5, -2.0], [0.5, 4.0]]),
        "return_variance": np.array([[1.25, 0.75], [3.0, 2.5]]),
        "generation": 3,
        "offset": 1043,
    },
)
spread = {
    "level": np.array([0.5]),
    "weights": np.array([0.25, -0.5, 1.0, 0.0]),
    "floor": np.array([0.0625]),
    "factor": 1.25,
    "pairs": 431,
}
good(
    "weights_returns",
    "publication",
    {
        "type": "weights",
        **made,
        **learned,
        "log_evidence": -322.5,
        "score": -0.5,
        "lambda": 0.9,
        "returns": spread,
        "provisional": True,
    },
)


def return_snapshots(name, weights, c, returns, provisional):
    """A model that knows how returns scatter, and what it says, state by state as the protocol writes it down."""
    dictionary = np.array([[0.0, 0.5], [1.0, -1.5], [-0.75, 2.0], [0.5, 0.5]])
    shift, scale, relevance = np.array([0.5, -1.0]), np.array([2.0, 0.25]), np.array([0.5, 0.75])
    v0, b = 1.75, 0.125
    message = {
        **MODEL,
        "generation": 0 if provisional else 2,
        "kernel": {"kind": "ard", "signal_variance": v0, "bias_variance": b, "relevance": relevance},
        "inputs": {"dim": 2, "shift": shift, "scale": scale},
        "dictionary": dictionary,
        "weights": weights,
    }
    if c is not None:
        message["variance"] = c
    message |= {"log_evidence": -321.5, "lambda": 0.8, "returns": returns}
    good(f"snapshot_{name}", "publication", message | ({"provisional": True} if provisional else {}))
    queries = np.array([[0.5, -1.0], [2.5, -1.375], [0.0, 0.0], [-1.0, -0.5], [3.0, -1.0], [40.0, 3.0]])
    expected = {"states": queries.tolist(), "mean": [], "extrapolates": []}
    if c is not None:
        expected |= {"variance": [], "return_variance": [], "known": []}
    for x in queries:
        z = (x - shift) / scale
        correlation = np.array([np.exp(-0.5 * (z - d) @ np.diag(relevance) @ (z - d)) for d in dictionary])
        k = v0 * correlation + b
        expected["mean"].append((k @ weights).tolist())
        expected["extrapolates"].append(bool(correlation.max() < 0.3))
        if c is not None:
            variance = float(v0 + b - k @ c @ k)
            scatter = np.maximum(returns["floor"], returns["level"] + k @ returns["weights"])
            about = returns["factor"] ** 2 * (variance + scatter)
            expected["variance"].append(variance)
            expected["return_variance"].append(float(about[0]) if weights.ndim == 1 else about.tolist())
            expected["known"].append(max(1 - variance / v0, 0.0))
    assert any(expected["extrapolates"]) and not all(expected["extrapolates"])
    assert all(v > 0 for v in expected.get("variance", ()))
    put_json(f"snapshot_{name}.json", expected)


spreads = {
    "level": np.array([0.5, 0.0]),
    "weights": np.array([[0.25, 0.5], [-0.5, 0.0], [1.0, -1.0], [0.0, 0.75]]),
    "floor": np.array([0.0625, 0.25]),
    "factor": 1.0,
    "pairs": 0,
}
return_snapshots("returns", one, c / 4, spread, False)
return_snapshots("returns_means_only", one, None, spread, False)
return_snapshots("returns_rewards", two, c / 4, spreads, False)
return_snapshots("returns_provisional", one, np.zeros((4, 4)), spread, True)
bad("bad_known", "control", {"v": 1, "op": "value", "states": [[1, 2]], "known": 1}, "wrong_type", "known")


# ---- explicit columns, which stand before the dictionary


def columns_snapshot():
    """A constant, a line and a line that stops beside two states of a dictionary, computed state by state."""
    shift, scale, relevance = np.array([0.5, -1.0]), np.array([2.0, 0.25]), np.array([0.5, 0.75])
    dictionary, v0 = np.array([[0.0, 0.5], [1.0, -1.5]]), 1.75
    variances, weights = np.array([17.5, 1.75, 1.75]), np.array([0.25, -0.5, 0.75, 1.5, -2.0])
    covariance = np.diag([0.04, 0.4, 0.4, 0.2, 0.1]) + 0.002
    kernel = {"kind": "ard", "signal_variance": v0, "bias_variance": 0.0, "relevance": relevance}
    kernel |= {"columns": ["constant", "linear:0", "bounded:1"], "column_variances": variances}
    message = {
        **MODEL,
        "kernel": kernel,
        "inputs": {"dim": 2, "shift": shift, "scale": scale},
        "dictionary": dictionary,
        "weights": weights,
        "variance": covariance,
        "score": -0.75,
    }
    good("snapshot_columns", "publication", message)
    # 4 deviations from the mean, above it and below, are passed.
    queries = np.array([[0.5, -1.0], [2.5, -1.375], [-1.0, 3.0], [40.0, -20.0]])
    expected = {"states": queries.tolist(), "mean": [], "variance": []}
    for x in queries:
        z = (x - shift) / scale
        functions = np.array([1.0, z[0], min(max(z[1], -4.0), 4.0)])
        k = np.append(variances * functions, [v0 * np.exp(-0.5 * (z - d) @ (relevance * (z - d))) for d in dictionary])
        expected["mean"].append(float(k @ weights))
        expected["variance"].append(float(v0 + variances @ functions**2 - k @ covariance @ k))
    assert all(v > 0 for v in expected["variance"])
    put_json("snapshot_columns.json", expected)


columns_snapshot()
