"""Write the golden messages of this folder with Python's msgpack and msgpack-numpy, independently of the daemon.

    pip install msgpack msgpack-numpy numpy && python make.py

NAME.msgpack is a message; snapshot_*.json holds states and what the snapshot of that name says about them.
"""

import json
import pathlib

import msgpack
import msgpack_numpy
import numpy as np

HERE = pathlib.Path(__file__).parent


def write(name, message):
    (HERE / f"{name}.msgpack").write_bytes(msgpack.packb(message, default=msgpack_numpy.encode))


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
    {"v": 1, "stream": "robot", "state": states[0], "next_state": states[1], "reward": np.float32(1),
     "terminated": np.bool_(False), "seq": np.int64(3)},
)
write("batch", {"v": 1, "stream": "robot", "session": "7f", "seq": 40, **lists})
write("batch_numpy", {"v": 1, "stream": "robot", "session": "7f", "seq": 40, **rows})
write("piece", {"v": 1, "stream": "robot", "states": states, "rewards": [1, 2]})
write("append", {"v": 1, "id": 9, "op": "append", "stream": "robot", "session": "7f", "seq": 40, **rows})
write("value", {"v": 1, "id": "q", "op": "value", "states": states, "variance": True, "min_offset": 12})
write("snapshot_request", {"v": 1, "id": None, "op": "snapshot", "critic": "default", "variance": True})


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
            "v": 1, "type": "snapshot", "critic": "default", "generation": 2, "revision": 31, "offset": 5000,
            "transitions": 4999, "time": 1.7e9, "discount": 0.99, "noise": {"model": "correlated", "variance": 0.01},
            "kernel": kernel, "inputs": {"dim": dim, "shift": shift, "scale": scale, "names": ["angle", "speed"]},
            "dictionary": dictionary, "weights": weights, "variance": c, "log_evidence": -321.5, "score": -0.75,
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
    (HERE / f"snapshot_{kind}.json").write_text(json.dumps(expected, indent=1) + "\n")


snapshot("isotropic", np.array([0.5, 0.5]), None)
snapshot("ard", np.array([0.5, 0.0]), None)
snapshot("factor", np.array([0.5, 0.25]), np.array([[1.0, -0.5]]))
