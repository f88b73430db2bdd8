"""A foreign ONNX file cannot stop, fill or crash the program that asks it, nor read its files: it is refused."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import PATIENCE_S, when
from onnx import TensorProto, helper

from criticd import CriticdError, _network, policies
from criticd._network import Network, NoPolicy
from criticd.policies import PolicyServer

DOUBLE = TensorProto.DOUBLE
STATES = np.array([[-1.0], [-2.0], [-3.0]])
# Loading takes part of it.
SOON_S = 5.0


def value(name: str, shape: list[Any] | None, kind: int = DOUBLE) -> Any:
    return helper.make_tensor_value_info(name, kind, shape)


def node(kind: str, inputs: list[str], outputs: list[str], **attributes: Any) -> Any:
    return helper.make_node(kind, inputs, outputs, **attributes)


def constant(name: str, kind: int, shape: list[int], values: Any) -> Any:
    return helper.make_tensor(name, kind, shape, values)


def model(nodes: list[Any], constants: Sequence[Any] = (), **parts: Any) -> Any:
    """A network from `states` (n, 1) to `answer`, where `parts` say nothing else."""
    graph = helper.make_graph(
        nodes,
        "policy",
        parts.pop("inputs", [value("states", ["n", 1])]),
        parts.pop("outputs", [value("answer", None)]),
        constants,
    )
    opsets = [helper.make_opsetid("", parts.pop("opset", 17)), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=parts.pop("ir", 8), **parts)


def looping(body: list[Any], starts: str, kept: str = "go") -> list[Any]:
    """A loop without a number of rounds, as long as `kept` holds, which carries one array."""
    graph = helper.make_graph(
        [*body, node("Identity", [kept], ["goes_on"])],
        "body",
        [value("round", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("carried", None)],
        [value("goes_on", [], TensorProto.BOOL), value("next", None)],
    )
    return [node("Loop", ["", "holds", starts], ["answer"], body=graph)]


HOLDS = constant("holds", TensorProto.BOOL, [], [True])
ENDLESS = looping([node("Identity", ["carried"], ["next"])], "states")
DOUBLING = looping([node("Concat", ["carried", "carried"], ["next"], axis=0)], "states")
IDENTITY = [node("Identity", ["states"], ["answer"])]


def shaped(*shape: int) -> Any:
    return constant("shape", TensorProto.INT64, [len(shape)], list(shape))


def filled(*shape: int) -> Any:
    return model(
        [node("ConstantOfShape", ["shape"], ["full"]), node("Cast", ["full"], ["answer"], to=DOUBLE)], [shaped(*shape)]
    )


def expanded(count: int) -> Any:
    """Known when it runs only: each state `count` times."""
    return model([node("Expand", ["states", "shape"], ["answer"])], [shaped(1, count)])


def elsewhere(location: str, count: int = 8) -> Any:
    """A network whose numbers are in another file."""
    tensor = TensorProto(name="secret", data_type=DOUBLE, dims=[count], data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    return model([node("Add", ["states", "secret"], ["answer"])], [tensor])


def claiming(*dims: int) -> Any:
    """Numbers that say how many they are, and are eight bytes."""
    tensor = TensorProto(name="numbers", data_type=DOUBLE, dims=dims, raw_data=bytes(8))
    return model([node("Add", ["states", "numbers"], ["answer"])], [tensor])


def calls_itself() -> Any:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    again = helper.make_function("own", "F", ["x"], ["y"], [node("F", ["x"], ["y"], domain="own")], opsets)
    return model([node("F", ["states"], ["answer"], domain="own")], functions=[again])


HOSTILE: dict[str, Callable[[], Any]] = {
    "rounds without end": lambda: model(ENDLESS, [HOLDS]),
    "twice as much each round": lambda: model(DOUBLING, [HOLDS]),
    "all memory, when loaded": lambda: filled(1 << 20, 1 << 17),
    "all memory, when run": lambda: expanded(1 << 36),
    "more numbers than memory, claimed": lambda: claiming(1 << 40),
    "a size that overflows": lambda: claiming(1 << 40, 1 << 40),
    "a negative size": lambda: claiming(-8),
    "numbers that are missing": lambda: claiming(1000),
    "a secret by its path": lambda: elsewhere(str(Path("secret").resolve())),
    "a secret beside": lambda: elsewhere("../secret"),
    "a secret through a link": lambda: elsewhere("link"),
    "a file that is missing": lambda: elsewhere("missing"),
    "a device without end": lambda: elsewhere("/dev/zero", 1 << 34),
    "a pipe without an end": lambda: elsewhere("pipe"),
    "one row": lambda: model([node("ReduceMean", ["states"], ["answer"])]),
    "no array": lambda: model([node("SequenceConstruct", ["states"], ["answer"])], outputs=[
        helper.make_tensor_sequence_value_info("answer", DOUBLE, None)]),
    "text": lambda: model([node("Cast", ["states"], ["answer"], to=TensorProto.STRING)], outputs=[
        value("answer", None, TensorProto.STRING)]),
    "three axes": lambda: model([node("Unsqueeze", ["states", "axes"], ["answer"])], [
        constant("axes", TensorProto.INT64, [1], [2])]),
    "a table as wide as asked": lambda: expanded(3000),
    "no number": lambda: model([node("Div", ["states", "zero"], ["answer"])], [constant("zero", DOUBLE, [], [0.0])]),
    "unknown operator": lambda: model([node("Policy", ["states"], ["answer"])]),
    "unknown domain": lambda: model([node("Policy", ["states"], ["answer"], domain="own")]),
    "later version": lambda: model(IDENTITY, opset=9999),
    "later format": lambda: model(IDENTITY, ir=9999),
    "a circle": lambda: model([node("Add", ["states", "answer"], ["a"]), node("Identity", ["a"], ["answer"])]),
    "a function of itself": calls_itself,
    "no input": lambda: model([node("Identity", ["zero"], ["answer"])], [constant("zero", DOUBLE, [], [0])], inputs=[]),
    "two inputs": lambda: model(IDENTITY, inputs=[value("states", ["n", 1]), value("more", ["n", 1])]),
    "whole numbers": lambda: model([node("Cast", ["states"], ["answer"], to=DOUBLE)], inputs=[
        value("states", ["n", 1], TensorProto.INT64)]),
    "other states": lambda: model(IDENTITY, inputs=[value("states", ["n", 7])]),
    "no states at a time but one": lambda: model(IDENTITY, inputs=[value("states", [1, 1])]),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_hostile_network_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "networks"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    # What it may take in earnest may be more than a small machine has.
    monkeypatch.setattr(_network, "MEMORY_BYTES", 1 << 30)
    (tmp_path / "secret").write_bytes(np.full(8, 42.0).tobytes())
    (folder / "link").symlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")
    (folder / "policy.onnx").write_bytes(HOSTILE[kind]().SerializeToString())
    with pytest.raises(CriticdError) as refused, Network(folder / "policy.onnx", SOON_S) as network:
        policies.ask(network, STATES)
    assert len(str(refused.value)) > 20 and "Traceback" not in str(refused.value)


def test_what_is_no_network_is_refused(tmp_path: Path) -> None:
    whole = model(IDENTITY).SerializeToString()
    path = tmp_path / "policy.onnx"
    path.write_bytes(whole)
    assert np.array_equal(policies.ask(path, STATES), STATES)
    for bad in (b"", b"no network", os.urandom(1000), whole[:-1], whole[: len(whole) // 2], whole[:10]):
        path.write_bytes(bad)
        with pytest.raises(CriticdError):
            policies.ask(path, STATES)
    for missing in (tmp_path, tmp_path / "missing.onnx"):
        with pytest.raises(CriticdError, match=missing.name):
            policies.ask(missing, STATES)
    os.mkfifo(tmp_path / "pipe.onnx")
    with pytest.raises(NoPolicy, match=r"has not been loaded within 0\.5 s"):
        Network(tmp_path / "pipe.onnx", 0.5)


def test_a_network_answers_again_after_it_was_stopped(tmp_path: Path) -> None:
    # It turns for ever where a state is positive.
    nodes = [
        node("ReduceMax", ["states"], ["largest"], keepdims=0),
        node("Greater", ["largest", "zero"], ["holds"]),
        *looping([node("Identity", ["carried"], ["next"])], "states"),
    ]
    path = tmp_path / "policy.onnx"
    path.write_bytes(model(nodes, [constant("zero", DOUBLE, [], [0.0])]).SerializeToString())
    with Network(path, PATIENCE_S) as network:
        assert np.array_equal(policies.ask(network, STATES), STATES)
        with pytest.raises(CriticdError, match="InvalidArgument"):
            policies.ask(network, np.zeros((3, 2)))
        assert network._child is not None
        network._child.kill()
        with pytest.raises(CriticdError, match=r"ended \(SIGKILL\) before it had answered 3 states"):
            policies.ask(network, STATES)

        def is_stopped() -> bool:
            with pytest.raises(NoPolicy, match=r"within 5 s, .* give a function") as late:
                policies.ask(network, -STATES)
            # On a busy machine loading may take all of this time.
            return "has not answered 3 states" in str(late.value)

        # The next process has less time.
        network._timeout_s = SOON_S
        when(is_stopped, "an answer without end")
        network._timeout_s = PATIENCE_S
        assert np.array_equal(policies.ask(network, STATES), STATES)
        many = -np.arange(10_000.0)[:, np.newaxis]
        assert np.array_equal(policies.ask(network, many), many)


def test_an_evaluation_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    path.write_bytes(expanded(1 << 36).SerializeToString())
    rows: dict[str, Any] = {
        "states": STATES,
        "actions": [0, 1, 0],
        "rewards": [1.0, 2.0, 3.0],
        "terminated": [False, False, True],
    }
    with pytest.raises(CriticdError, match=r"policy\.onnx has not answered 3 states"):
        policies.evaluate(rows, path, actions="discrete:2")


def test_a_server_outlives_what_its_network_does(tmp_path: Path) -> None:
    path = tmp_path / "policy.onnx"
    path.write_bytes(expanded(1 << 36).SerializeToString())
    with PolicyServer(path) as server:
        for _ in range(2):
            with pytest.raises(CriticdError, match=r"the policy at tcp://.*policy\.onnx has not answered 3 states"):
                policies.ask(server.endpoint, STATES)
