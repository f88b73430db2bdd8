"""Another policy is judged alike, whether it is an array, a function, an ONNX file or at the end of a socket."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import numpy.typing as npt
import pytest
import zmq
from cddl_verifier import Validator
from conftest import PATIENCE_S, ROOT

from criticd import CriticdError, Invalid, policies
from criticd._evaluation import _over_socket
from criticd._protocol import pack
from criticd.daemon import binary
from criticd.policies import PolicyServer, evaluate

Array = npt.NDArray[np.float64]
SHARPNESS = 1.5
OPTIONS = {"budget": 2, "seed": 3}


def policy(states: Array) -> Array:
    """Goes right the more, the further left it is."""
    right = 1.0 / (1.0 + np.exp(SHARPNESS * states[:, 0] - 1.0))
    return np.stack([1.0 - right, right], axis=1)


def log(episodes: int = 80) -> dict[str, Any]:
    """Three steps each, by a coin; right pays 1 - x."""
    rng = np.random.default_rng(4)
    states, actions, rewards, terminated = [], [], [], []
    for _ in range(episodes):
        at = rng.uniform(-1, 1)
        for step in range(3):
            action = int(rng.integers(2))
            states.append([at])
            actions.append(action)
            rewards.append(action * (1 - at))
            terminated.append(step == 2)
            at += 0.3 * (2 * action - 1)
    count = len(states)
    return {
        "states": np.array(states),
        "actions": np.array(actions),
        "rewards": np.array(rewards),
        "terminated": np.array(terminated),
        "next_states": np.array([*states[1:], states[-1]]),
        "pscore": np.full(count, 0.5),
    }


def onnx_file(path: Path) -> Path:
    from onnx import TensorProto, helper, save

    kind = TensorProto.DOUBLE
    nodes = [
        helper.make_node("Mul", ["states", "slope"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], ["logits"]),
        helper.make_node("Softmax", ["logits"], ["probs"], axis=1),
    ]
    constants = [
        helper.make_tensor("slope", kind, [1, 2], [0.0, -SHARPNESS]),
        helper.make_tensor("shift", kind, [1, 2], [0.0, 1.0]),
    ]
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("states", kind, ["n", 1])],
        [helper.make_tensor_value_info("probs", kind, ["n", 2])],
        constants,
    )
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_one_policy_has_one_value_however_it_is_given(tmp_path: Path) -> None:
    rows = log()
    asked: dict[str, Any] = {"actions": "discrete:2", "discount": 0.9, "options": OPTIONS}
    first = evaluate(rows, policy, **asked)
    assert set(first.estimates) == {"is", "wis", "pdis", "dr", "fqe"} and first.episodes == 80
    assert first.weights is not None and 10 < first.weights.ess < 80 and first.trace_gap is not None
    with PolicyServer(policy) as server:
        over_socket = evaluate(rows, server.endpoint, **asked)
    assert over_socket == first == evaluate(rows, policy(rows["states"]), **asked)
    by_onnx = evaluate(rows, onnx_file(tmp_path / "policy.onnx"), **asked)
    for name, estimate in first.estimates.items():
        assert by_onnx.estimates[name].value == pytest.approx(estimate.value, rel=1e-6)


def test_without_a_policy_probabilities_are_enough() -> None:
    rows = log()
    rows["target_probs"] = policy(rows["states"])[np.arange(len(rows["states"])), rows["actions"]]
    found = evaluate(rows, discount=0.9)
    assert set(found.estimates) == {"is", "wis", "pdis"} and found.trace_gap is None
    refused = evaluate(rows, discount=0.9, options={"ess-min": 1e6})
    assert refused.estimates["wis"].interval is None and refused.refused[0].startswith("no interval")
    assert refused.estimates["wis"].value == found.estimates["wis"].value


def test_what_a_policy_cannot_answer_is_said() -> None:
    rows = log(4)
    with pytest.raises(Invalid, match="must answer 12 states"):
        evaluate(rows, lambda states: np.zeros(3), actions="discrete:2")
    with pytest.raises(Invalid, match=r"policy \(row 0\)"):
        evaluate(rows, lambda states: np.full((len(states), 2), np.nan), actions="discrete:2")
    with pytest.raises(CriticdError, match="row 1: "):
        evaluate(rows, lambda states: np.full((len(states), 2), 0.9), actions="discrete:2")
    with pytest.raises(CriticdError, match="policy: needs actions"):
        evaluate(rows, policy)
    with pytest.raises(CriticdError, match="has not ended within 0 s: allow more with timeout_s"):
        evaluate(rows, policy, actions="discrete:2", timeout_s=0)
    with PolicyServer(lambda states: 1 / np.zeros(0)[0]) as server, pytest.raises(CriticdError, match="IndexError"):
        policies.ask(server.endpoint, rows["states"])


def test_a_silent_policy_is_named() -> None:
    with (
        replying(None) as endpoint,
        pytest.raises(TimeoutError, match=f"no policy at {endpoint} answered within 0.2 s"),
    ):
        _over_socket(endpoint, np.zeros((3, 2)), timeout_s=0.2)


def by_command_line(policy: str, *options: str) -> subprocess.CompletedProcess[str]:
    """`criticd evaluate` by the transitions of rows.npz."""
    words = ["evaluate", "rows.npz", "--actions", "discrete:2", "--budget", "2", "--seed", "3", "--policy", policy]
    return subprocess.run([str(binary()), *words, *options], capture_output=True, text=True, check=False)


@contextlib.contextmanager
def replying(reply: bytes | None) -> Iterator[str]:
    """An endpoint with one reply to whatever is asked, or with none."""
    ended = threading.Event()
    socket: zmq.Socket[bytes]
    with zmq.Context.instance().socket(zmq.REP) as socket:
        socket.setsockopt(zmq.LINGER, 0)
        socket.bind("tcp://127.0.0.1:0")

        def answer() -> None:
            while not ended.is_set():
                if socket.poll(20):
                    socket.recv()
                    if reply is None:
                        ended.wait()
                    else:
                        socket.send(reply)

        thread = threading.Thread(target=answer)
        thread.start()
        yield socket.getsockopt_string(zmq.LAST_ENDPOINT)
        ended.set()
        thread.join()


def test_whatever_a_server_sends_is_refused_in_words() -> None:
    states = np.zeros((3, 2))
    answers: list[Any] = ["text", ["a", "b", "c"], [[1], [1, 2], [3]], [None, 1, 2], {"a": 1}, 1.0, [[[1]]] * 3]
    replies = [pack({"policy": answer}) for answer in answers]
    replies += [pack({"error": error}) for error in (None, "words", 7, {"message": None}, "x" * 5000)]
    replies += [b"", b"hello", msgpack.packb([1]), msgpack.packb({"v": 2})]
    replies += [pack({}), pack({"policy": np.zeros((2, 2))})]
    for reply in replies:
        with replying(reply) as endpoint, pytest.raises(CriticdError) as refused:
            policies.ask(endpoint, states)
        assert 10 < len(str(refused.value)) < 1200
    with pytest.raises(Invalid, match="nowhere://at-all is no endpoint such as"):
        policies.ask("nowhere://at-all", states)
    # It may answer in time and yet otherwise than before.
    with (
        PolicyServer(lambda states: np.zeros((len(states), len(states) % 5))) as server,
        pytest.raises(Invalid, match=r"policy \(row 4096\): answers with 4 numbers, and those before with 1"),
    ):
        policies.ask(server.endpoint, np.zeros((5000, 1)))


def test_the_command_line_asks_a_server_and_judges_as_by_a_file() -> None:
    rows = log()
    np.savez("rows.npz", **rows)
    policies.write_policy("probs.csv", policy(rows["states"]), "discrete:2")
    policies.write_policy("actions.csv", (rows["states"] > 0).astype(float), "discrete:2")
    with PolicyServer(policy) as stochastic, PolicyServer(lambda states: states[:, 0] > 0) as deterministic:
        for file, server in (("probs.csv", stochastic), ("actions.csv", deterministic)):
            by_file, over_socket = by_command_line(file, "--json"), by_command_line(server.endpoint, "--json")
            assert over_socket.returncode == 0, over_socket.stderr
            assert over_socket.stdout == by_file.stdout and '"fqe"' in by_file.stdout


def test_the_command_line_says_what_a_server_answered() -> None:
    rows = log(4)
    np.savez("rows.npz", **rows)
    count = len(rows["states"])
    replies = {
        b"hello": "sent what cannot be read: malformed",
        pack(
            {"policy": np.full((count, 3), 1 / 3)}
        ): "3 numbers in each state, not with 2 probabilities, or the number of",
        pack({"policy": np.full((5, 2), 0.5)}): f"answers {count} states with 5 rows",
        pack({"policy": np.full((count, 2), np.nan)}): "answers state 1 with NaN, which is no finite number",
        pack({"policy": np.full((count, 2), 0.9)}): "row 1: the probabilities of a row sum to 1, these to 1.8",
        pack({"policy": np.full(count, 2.0)}): "row 1: a discrete action is a whole number from 0 to 1, not 2",
        pack({"error": {"message": "ValueError: no net"}}): "failed: ValueError: no net",
        None: f"has not answered in {count} states within 1.0 s: see whether its server runs; --policy-timeout",
    }
    for reply, part in replies.items():
        # One that does reply may be late on a busy machine.
        with replying(reply) as endpoint:
            done = by_command_line(endpoint, "--policy-timeout", "1" if reply is None else f"{PATIENCE_S:.0f}")
        assert done.returncode == 1 and part in done.stderr and endpoint in done.stderr, done.stderr
    nobody = by_command_line("ipc://nobody")
    assert nobody.returncode == 1 and "no policy answers at ipc://nobody: start its server first" in nobody.stderr


def test_an_onnx_file_is_served_for_the_command_line(tmp_path: Path) -> None:
    rows = log()
    np.savez("rows.npz", **rows)
    path = onnx_file(tmp_path / "policy.onnx")
    refused = by_command_line(path.name)
    assert refused.returncode == 2 and "\n  python -m criticd.policies policy.onnx\n" in refused.stderr
    assert "--policy tcp://127.0.0.1:5760" in refused.stderr
    answers = policies.ask(path, rows["states"])
    assert answers == pytest.approx(policy(rows["states"]))
    policies.write_policy("probs.csv", answers, "discrete:2")
    command = [sys.executable, "-m", "criticd.policies", path.name]
    # What runs the tests may ignore Ctrl-C, and a child would inherit that.
    by_hand: dict[str, Any] = {"preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)}
    bind = ["--bind", "tcp://127.0.0.1:0"]
    with subprocess.Popen([*command, *bind], stdout=subprocess.PIPE, text=True, **by_hand) as served:
        try:
            assert served.stdout is not None
            endpoint = served.stdout.readline().split()[-1]
            assert np.array_equal(policies.ask(endpoint, rows["states"]), answers)
            over_socket = by_command_line(endpoint, "--json")
            assert over_socket.returncode == 0, over_socket.stderr
            assert over_socket.stdout == by_command_line("probs.csv", "--json").stdout
            # Two states for a model of one: the runtime's own words.
            with pytest.raises(CriticdError, match="InvalidArgument"):
                policies.ask(endpoint, np.zeros((3, 2)))
            taken = subprocess.run([*command, "--bind", endpoint], capture_output=True, text=True, check=False)
            assert taken.returncode == 1 and "Address already in use" in taken.stderr, taken.stderr
            served.send_signal(signal.SIGINT)
            assert served.wait(PATIENCE_S) == 0
        finally:
            served.kill()
    (tmp_path / "broken.onnx").write_bytes(b"no network")
    broken = subprocess.run([*command[:3], "broken.onnx"], capture_output=True, text=True, check=False)
    assert broken.returncode == 1 and "cannot serve broken.onnx at tcp://127.0.0.1:5760" in broken.stderr


def test_what_is_asked_and_answered_keeps_to_the_schema() -> None:
    schema = Validator(ROOT / "proto" / "criticd.cddl")

    def keeps(message: bytes, rule: str) -> bool:
        return bool(schema.validate(msgpack.unpackb(message, strict_map_key=False), root_type=rule).valid)

    assert keeps(pack({"states": np.zeros((3, 2))}), "to-policy")
    for reply in ({"policy": np.zeros((3, 2))}, {"policy": [0, 1, 1]}, {"error": {"message": "no net"}}):
        assert keeps(pack(reply), "from-policy")
    assert not keeps(pack({"answers": [0]}), "from-policy") and not keeps(pack({}), "to-policy")
