"""An agent improves in an environment from nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from conftest import PATIENCE_S, when
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from criticd import NoReply, Unreachable
from criticd.agent import Agent
from criticd.daemon import Daemon

QUICK = ("critic.dictionary_max=60", "critic.refit_budget_s=1")


class Corridor(gymnasium.Env[Any, Any]):
    """Ten places, and a prize at the right end; each step costs. Going right is best."""

    observation_space = spaces.Box(0.0, 1.0, (1,), np.float32)

    def __init__(self, box: bool = False) -> None:
        self.box = box
        self.action_space = spaces.Box(-1.0, 1.0, (1,), np.float32) if box else spaces.Discrete(2)
        self.at, self.steps = 0.0, 0

    def _observed(self) -> Any:
        return np.array([self.at], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at, self.steps = float(self.np_random.uniform(0.0, 0.5)), 0
        return self._observed(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        move = float(action[0]) if self.box else 2.0 * action - 1.0
        self.at, self.steps = max(0.0, self.at + 0.1 * move), self.steps + 1
        done = self.at >= 1.0
        return self._observed(), 1.0 if done else -0.1, done, not done and self.steps == 40, {}


@pytest.mark.parametrize("box", [False, True])
@pytest.mark.parametrize("exploration", ["epsilon_greedy", "thompson"])
def test_an_agent_learns_to_reach_the_goal(box: bool, exploration: str) -> None:
    # One that has never seen the goal by chance has learned to stand still, for ever: another one tries.
    assert any(learns_to_reach_the_goal(box, exploration) for _ in range(3))


def learns_to_reach_the_goal(box: bool, exploration: str) -> bool:
    """Whether an agent has seen the goal; if it has, it learns to go there."""
    with Agent(Corridor(box), *QUICK, discount=0.95, exploration=exploration) as agent:
        episodes = list(agent.run(14))
        assert [episode.number for episode in episodes] == list(range(14))
        # An exploring agent may miss it now and then. On a busy machine improvements come later.
        deadline = time.monotonic() + PATIENCE_S
        while sorted(episode.steps for episode in episodes[-5:])[2] > 14 and time.monotonic() < deadline:
            episodes += agent.run(14)
        if all(episode.steps == 40 for episode in episodes):
            return False
        assert sorted(episode.steps for episode in episodes[-5:])[2] <= 14, episodes
        assert agent.client.status()["offset"] == sum(episode.steps for episode in episodes)
        model = agent.snapshot()
        (right,) = (model.act(np.array([0.3])).actions,)
        assert np.all(right == 1) if not box else right[0] > 0.5
        return True


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_copies_learn_together(mode: AutoresetMode) -> None:
    envs = SyncVectorEnv([Corridor] * 3, autoreset_mode=mode)
    with Agent(envs, *QUICK, discount=0.95) as agent:
        episodes = list(agent.run(18))
        assert [episode.number for episode in episodes] == list(range(18))
        deadline = time.monotonic() + PATIENCE_S
        while max(episode.steps for episode in episodes[-4:]) > 14 and time.monotonic() < deadline:
            episodes += agent.run(18)
        assert max(episode.steps for episode in episodes[-4:]) <= 14, episodes


def test_demonstrations_are_learned_and_own_exploration_acts() -> None:
    asked = []

    def explore(states: Any, decided: Any, random: np.random.Generator) -> Any:
        asked.append(decided is not None)
        return np.zeros(len(states), np.int64)

    places = np.linspace(0.0, 1.0, 11)[:, np.newaxis]
    with Agent(Corridor(), *QUICK, discount=0.95, explore=explore) as agent:
        for _ in range(4):
            agent.demonstrate(places, np.ones(10), [-0.1] * 9 + [1.0], terminated=True)
            agent.demonstrate(places[5::-1], np.zeros(5), [-0.1] * 5, truncated=True)
        (episode,) = agent.run(1)
        assert episode.steps == 40 and all(asked), "going left, as it was asked to"
        assert agent.snapshot().act(np.array([0.4])).actions == 1


def decided(agent: Agent) -> npt.NDArray[np.int64]:
    """What the agent finds best at each place, once no refit or improvement is under way."""
    deadline = time.monotonic() + PATIENCE_S
    while (refit := agent.client.status()["critics"][0]["refit"])["running"] or refit["due"]:
        assert time.monotonic() < deadline, refit
        time.sleep(0.1)
    places = np.linspace(0.0, 0.9, 10)[:, np.newaxis]
    return np.asarray(agent.snapshot().act(places).actions, np.int64)


def test_the_next_agent_goes_on(tmp_path: Path) -> None:
    asked: dict[str, Any] = {"discount": 0.95, "directory": str(tmp_path)}
    with Agent(Corridor(), *QUICK, **asked) as agent:
        list(agent.run(10))
        deadline = time.monotonic() + PATIENCE_S
        while not (right := decided(agent) == 1).all() and time.monotonic() < deadline:
            list(agent.run(5))
        assert right.all(), right
        rows = agent.client.status()["offset"]
    with Agent(Corridor(), *QUICK, **asked) as agent:
        assert agent.client.status()["offset"] == rows
        # It need not learn anew. Exploring it may miss the goal now and then.
        assert (decided(agent) == 1).all()
        assert min(episode.steps for episode in agent.run(3)) <= 14


def test_spaces_that_cannot_be_acted_in_are_refused() -> None:
    env = Corridor()
    for space in (spaces.Discrete(2, start=1), spaces.Box(-np.inf, np.inf, (1,)), spaces.MultiDiscrete([2, 2])):
        env.action_space = space
        with pytest.raises(TypeError, match="an agent acts with"):
            Agent(env)


def probabilities(agent: Agent) -> npt.NDArray[Any]:
    """The actions of all rows; NaN where none was sent."""
    rows = agent.client.status()["offset"]
    return np.array(agent.client.request("rows", last=rows)["behavior_probs"], np.float64)


def test_rows_say_how_probable_their_actions_were() -> None:
    with Agent(Corridor(), *QUICK, discount=0.95, options={"epsilon": 0.2}) as agent:
        list(agent.run(8))
        said = probabilities(agent)
    assert said[0] == 0.5, "at random before there is a model"
    # The greedy action, and the other one; 0.5 before.
    assert set(np.round(said, 12)) <= {0.5, 0.9, 0.1} and (said == 0.9).any()
    with Agent(Corridor(box=True), *QUICK, wait_s=0) as agent:
        list(agent.run(1))
        agent.sender.flush(PATIENCE_S)
        assert probabilities(agent)[0] == 0.5, "the density of a box from -1 to 1"
    with Agent(Corridor(), *QUICK, wait_s=0, explore=lambda states, *_: np.zeros(len(states), np.int64)) as agent:
        list(agent.run(1))
        agent.sender.flush(PATIENCE_S)
        assert np.isnan(probabilities(agent)).all(), "no probability is known"


def test_copies_say_how_probable_their_actions_were() -> None:
    with Agent(SyncVectorEnv([Corridor] * 3), *QUICK, wait_s=0) as agent:
        list(agent.run(1))
        agent.sender.flush(PATIENCE_S)
        assert (probabilities(agent)[:3] == 0.5).all()


def test_the_agent_waits_until_the_end_of_the_episode_is_swept_over() -> None:
    with Agent(Corridor(), *QUICK, discount=0.95) as agent:
        for episode in agent.run(25):
            refit = agent.client.status()["critics"][0]["refit"]
            assert not refit["due"] and not refit["running"], episode
        # One for nearly each episode, although most have fewer rows than the 20 of `improve_rows`.
        assert refit["adopted"] > 15


@contextmanager
def stopped(daemon: Daemon, seconds: float) -> Iterator[None]:
    """The daemon does nothing for so long, as on a machine that has no time for it."""
    os.kill(daemon.pid, signal.SIGSTOP)
    timer = threading.Timer(seconds, os.kill, (daemon.pid, signal.SIGCONT))
    timer.start()
    try:
        yield
    finally:
        timer.join()


def test_an_agent_waits_for_a_daemon_that_does_not_answer_in_time() -> None:
    with Agent(Corridor(), *QUICK, discount=0.95) as agent:
        list(agent.run(2))
        agent.client.timeout_s = 0.2
        with stopped(agent.daemon, 1.5):
            agent.learn()
        with stopped(agent.daemon, 1.5):
            assert agent.act([[0.5]]).shape == (1,)
        agent.patience_s = 0.3
        # Until it has given up, however long this process is held up.
        os.kill(agent.daemon.pid, signal.SIGSTOP)
        try:
            # The signal is under way when `kill` returns, and the daemon may answer until it has come.
            stat = Path(f"/proc/{agent.daemon.pid}/stat")
            when(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it has stopped")
            with pytest.raises((NoReply, Unreachable)):
                agent.learn()
        finally:
            os.kill(agent.daemon.pid, signal.SIGCONT)


def test_an_agent_does_not_wait_for_a_daemon_that_has_ended() -> None:
    with Agent(Corridor(), *QUICK, discount=0.95) as agent:
        list(agent.run(2))
        agent.client.timeout_s = 0.2
        os.kill(agent.daemon.pid, signal.SIGKILL)
        with pytest.raises((NoReply, Unreachable)):
            agent.act([[0.5]])
