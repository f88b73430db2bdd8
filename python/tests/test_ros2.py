"""The node of ROS 2: its logic without ROS, and the node itself on a stand-in for rclpy."""

from __future__ import annotations

import runpy
import sys
import types
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, Start, when

NODE = ROOT / "examples" / "ros2" / "critic_node.py"


@pytest.fixture
def example() -> dict[str, Any]:
    return runpy.run_path(str(NODE))


def test_rows_are_made_of_states_and_the_rewards_between_them(example: dict[str, Any]) -> None:
    episodes, row = example["Episodes"](), example["Row"]
    assert episodes.state([0.0]) is None
    episodes.reward(-1.0)
    episodes.reward(-0.5)
    assert episodes.state([1.0]) is None
    episodes.reward(-2.0)
    assert episodes.state([2.0]) == row((0.0,), -1.5, (1.0,))
    # The last step is the one into the last state, with what came with the end.
    episodes.reward(-4.0)
    assert episodes.end(True) == row((1.0,), -6.0, (2.0,), terminated=True)
    # Nothing leads from one episode into the next.
    assert episodes.state([5.0]) is None and episodes.state([6.0]) is None
    assert episodes.end(False) == row((5.0,), 0.0, (6.0,), truncated=True)
    # An episode of one state has no step, and an end without an episode is none.
    assert episodes.state([7.0]) is None and episodes.end(False) is None and episodes.end(True) is None


@dataclass
class Message:
    data: Any = None


def test_the_node_sends_rows_and_publishes_values(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    daemon = start("critic.discount=0.9")
    monkeypatch.setenv("CRITICD_DATA_DIR", str(daemon.data_dir))
    subscriptions: dict[str, Any] = {}
    published: dict[str, list[float]] = {}

    class Node:
        def __init__(self, name: str) -> None:
            self.parameters: dict[str, str] = {}

        def get_fully_qualified_name(self) -> str:
            return "/criticd"

        def declare_parameter(self, name: str, default: str) -> None:
            self.parameters[name] = default

        def get_parameter(self, name: str) -> Any:
            value = types.SimpleNamespace(string_value=self.parameters[name])
            return types.SimpleNamespace(get_parameter_value=lambda: value)

        def create_publisher(self, kind: Any, topic: str, depth: int) -> Any:
            numbers = published.setdefault(topic, [])
            return types.SimpleNamespace(publish=lambda message: numbers.append(message.data))

        def create_subscription(self, kind: Any, topic: str, callback: Any, depth: int) -> None:
            subscriptions[topic] = callback

        def destroy_node(self) -> None:
            pass

    def spin(node: Node) -> None:
        """What a robot would send: 40 episodes of 10 steps, then the same state until its value has come."""
        generator = np.random.default_rng(0)
        for _ in range(40):
            state = generator.uniform(-1, 1)
            subscriptions["state"](Message([state]))
            for _ in range(10):
                subscriptions["reward"](Message(-abs(state)))
                state *= 0.5
                subscriptions["state"](Message([state]))
            subscriptions["episode_end"](Message(False))
        with daemon.client() as client:
            client.value([0.0], min_offset=400)

        def has_come() -> bool:
            subscriptions["state"](Message([0.5]))
            return bool(published["value"])

        when(has_come, "a value")

    rclpy = types.ModuleType("rclpy")
    rclpy.__dict__.update(init=lambda: None, spin=spin, try_shutdown=lambda: None)
    modules = {"rclpy": rclpy, "rclpy.node": types.ModuleType("rclpy.node")}
    modules["rclpy.node"].__dict__["Node"] = Node
    modules["std_msgs"], modules["std_msgs.msg"] = types.ModuleType("std_msgs"), types.ModuleType("std_msgs.msg")
    modules["std_msgs.msg"].__dict__.update(Bool=Message, Float64=Message, Float64MultiArray=Message)
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    runpy.run_path(str(NODE), run_name="__main__")
    assert published["value"][-1] < 0 and published["value_std"][-1] > 0 and 0 <= published["value_known"][-1] <= 1
    with daemon.client() as client:
        assert list(client.streams()) == ["/criticd"]
        counts = client.status()["critics"][0]["counts"]
        assert counts["cuts"] >= 40
