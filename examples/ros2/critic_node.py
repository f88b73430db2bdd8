"""A node of ROS 2: states and rewards in, rows to criticd, and the value of the present state out.

    criticd serve --set critic.discount=0.99
    python critic_node.py --ros-args -p ingest:=tcp://127.0.0.1:5750

It subscribes to `state` (std_msgs/Float64MultiArray), `reward` (std_msgs/Float64) and `episode_end` (std_msgs/Bool:
true if the episode terminated, false if it was cut off), and publishes `value`, `value_std` and `value_known`
(std_msgs/Float64). Remap the topics: `--ros-args -r state:=/arm/state`. Rewards between two states are summed, and
belong to the step between them.

It never waits for the daemon: rows that find the queue full are dropped and counted, and the value is evaluated here,
from the newest published model. `Episodes` needs no ROS.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from criticd import Sender, Subscriber


@dataclass(frozen=True)
class Row:
    """One step, ready to be sent."""

    state: tuple[float, ...]
    reward: float
    next_state: tuple[float, ...]
    terminated: bool = False
    truncated: bool = False


@dataclass
class Episodes:
    """Makes rows from messages that come one by one.

    A step is held back until the next message says whether the episode ended with it.
    """

    _before: tuple[float, ...] | None = None
    _here: tuple[float, ...] | None = None
    # Of the step from `_before` to `_here`, and of the one that is under way.
    _reward: float = 0.0
    _sum: float = 0.0

    def state(self, values: Any) -> Row | None:
        """Take a state; return the step before the last one, if it is complete."""
        row = self._step()
        self._before, self._here = self._here, tuple(float(value) for value in values)
        self._reward, self._sum = self._sum, 0.0
        return row

    def reward(self, reward: float) -> None:
        """Take a reward: it belongs to the step that is under way."""
        self._sum += float(reward)

    def end(self, terminated: bool) -> Row | None:
        """The episode ended in the last state; return its last step, if there was one."""
        # A reward that came with the end has no later step to belong to.
        self._reward += self._sum
        row = self._step(terminated, not terminated)
        self._before = self._here = None
        self._reward = self._sum = 0.0
        return row

    def _step(self, terminated: bool = False, truncated: bool = False) -> Row | None:
        if self._before is None or self._here is None:
            return None
        return Row(self._before, self._reward, self._here, terminated, truncated)


def main() -> None:
    """Run the node until ROS shuts down."""
    import rclpy
    from rclpy.node import Node
    from std_msgs.msg import Bool, Float64, Float64MultiArray

    rclpy.init()
    node = Node("criticd")
    for name, default in (("ingest", ""), ("publish", ""), ("stream", node.get_fully_qualified_name())):
        node.declare_parameter(name, default)

    def given(name: str) -> str | None:
        return node.get_parameter(name).get_parameter_value().string_value or None

    sender = Sender(given("ingest"), stream=given("stream") or "ros")
    critic = Subscriber(given("publish"))
    outputs = {name: node.create_publisher(Float64, name, 10) for name in ("value", "value_std", "value_known")}
    episodes = Episodes()

    def send(row: Row | None) -> None:
        if row is not None:
            sender.send(row.state, row.reward, row.next_state, terminated=row.terminated, truncated=row.truncated)

    def on_state(message: Any) -> None:
        send(episodes.state(message.data))
        model = critic.latest
        if model is not None and model.dim == len(message.data):
            answer = model([list(message.data)], std=True, known=True)
            for name, numbers in (("value", answer.mean), ("value_std", answer.std), ("value_known", answer.known)):
                if numbers is not None:
                    outputs[name].publish(Float64(data=float(numbers[0])))

    node.create_subscription(Float64MultiArray, "state", on_state, 10)
    node.create_subscription(Float64, "reward", lambda message: episodes.reward(message.data), 10)
    node.create_subscription(Bool, "episode_end", lambda message: send(episodes.end(message.data)), 10)
    try:
        rclpy.spin(node)
    finally:
        sender.close()
        critic.close()
        node.destroy_node()
        rclpy.try_shutdown()


if __name__ == "__main__":
    main()
