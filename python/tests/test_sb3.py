"""What Stable-Baselines3 does is sent as it happened, and both critics are judged by the same returns.

Runs with the package where it is installed, and with a stand-in for its loops elsewhere.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import fake_sb3
import gymnasium
import numpy as np
import pytest
from conftest import CALM, PATIENCE_S, Catcher, Start

from criticd import Refused, Sender
from criticd.returns import discounted_returns, explained_variance

fake_sb3.install()

from stable_baselines3 import PPO, SAC  # noqa: E402
from stable_baselines3.common.vec_env import DummyVecEnv  # noqa: E402

from criticd.sb3 import CriticCallback  # noqa: E402


class Counting(gymnasium.Env[Any, Any]):
    """Counts steps: its third episode and every third after it terminates after 5, the others are cut after 7."""

    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (2,), np.float32)

    def __init__(self, number: int, discrete: bool = True) -> None:
        self.number, self.episode, self.step_number = number, 0, 0
        box = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)
        self.action_space = gymnasium.spaces.Discrete(2) if discrete else box

    def _state(self) -> Any:
        return np.array([self.step_number, 10 * self.episode + self.number], np.float32)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.episode, self.step_number = (self.episode + 1) % 10, 0
        return self._state(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.step_number += 1
        terminated = self.episode % 3 == 0 and self.step_number == 5
        return self._state(), float(self.step_number), terminated, self.step_number == 7, {}


def make(algorithm: Any, copies: int = 3, **options: Any) -> Any:
    discrete = algorithm is PPO
    envs = DummyVecEnv([lambda number=number: Counting(number, discrete) for number in range(copies)])
    if algorithm is PPO:
        options = {"n_steps": 50, "batch_size": 50, "n_epochs": 1, **options}
    else:
        options = {"learning_starts": 1000, **options}
    return algorithm("MlpPolicy", envs, gamma=0.9, seed=0, device="cpu", **options)


def check_episodes(rows: dict[str, Any], number: int) -> None:
    """Every row is a step of `Counting`, in order, and its ends are what they were."""
    states, after = rows["states"], rows["next_states"]
    assert np.array_equal(after[:, 0], states[:, 0] + 1) and np.array_equal(after[:, 1], states[:, 1])
    assert np.array_equal(rows["rewards"], after[:, 0]) and (states[:, 1] % 10 == number).all()
    dies = (states[:, 1] // 10) % 3 == 0
    assert np.array_equal(rows["terminated"], dies & (after[:, 0] == 5))
    assert np.array_equal(rows["truncated"], ~dies & (after[:, 0] == 7))
    ended = rows["terminated"] | rows["truncated"]
    assert np.array_equal(states[1:][~ended[:-1]], after[:-1][~ended[:-1]]) and not states[1:][ended[:-1], 0].any()
    assert rows["terminated"].any() and rows["truncated"].any()


@pytest.mark.parametrize("algorithm", [PPO, SAC], ids=["PPO", "SAC"])
def test_every_step_is_sent_as_it_happened(catcher: Catcher, algorithm: Any) -> None:
    with Sender(catcher.endpoint, stream="run") as sender:
        callback = CriticCallback(sender)
        make(algorithm).learn(450, callback=callback)
        assert callback.rows == sender.counters.taken == 450
        assert sender.flush(PATIENCE_S)
        found = catcher.rows(450)
    assert set(found) == set(callback.streams) == {"run-0", "run-1", "run-2"}
    for number in range(3):
        rows = found[f"run-{number}"]
        assert len(rows["states"]) == 150
        check_episodes(rows, number)
        assert set(rows["actions"]) <= {0.0, 1.0} if algorithm is PPO else (np.abs(rows["actions"]) <= 1).all()


def test_both_critics_are_judged_by_returns(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    daemon = start(*CALM, "critic.discount=0.9", "critic.warmup_rows=40")
    with daemon.sender(reliable=True) as sender, daemon.subscriber() as critic, daemon.client() as client:
        seen: list[dict[str, Any]] = []

        class Kept(CriticCallback):
            def _on_rollout_start(self) -> None:
                # So that the model of before the window is known here, and one that has learned all rows so far.
                self.sender.flush(PATIENCE_S)
                if self.rows:
                    critic.wait(PATIENCE_S, offset=self.rows)
                super()._on_rollout_start()
                self._window.model = critic.latest

            def _on_rollout_end(self) -> None:
                window = self._window
                super()._on_rollout_end()
                seen.append({"window": window, "logged": dict(self.logger.name_to_value)})

        callback = Kept(sender, critic, window_rows=100)
        model = make(PPO)
        model.learn(450, callback=callback)
        assert sender.flush(PATIENCE_S) and client.streams()["default-0"].rows == 150
    assert len(seen) == 3 and "criticd/explained_variance" not in seen[0]["logged"]
    window, logged = seen[2]["window"], seen[2]["logged"]
    assert logged["criticd/rows"] == 450 and logged["criticd/refused"] == 0 and logged["criticd/generation"] >= 1
    # Once more, one copy after the other, in plain words.
    values, targets, own_values, own_targets = [], [], [], []
    rewards = np.array(window.rewards)
    for copy in range(3):
        steps = len(rewards)
        ahead = own_ahead = None
        for t in reversed(range(steps)):
            after = window.successors[t][copy]
            if window.terminated[t][copy]:
                ahead = own_ahead = 0.0
            elif window.truncated[t][copy] or ahead is None:
                ahead = float(window.model(after))
                tensor = model.policy.obs_to_tensor(after.astype(np.float32))[0]
                own_ahead = float(model.policy.predict_values(tensor).detach().cpu().numpy()[0, 0])
            assert own_ahead is not None
            # What was added to rewards of steps that were cut is no reward.
            assert rewards[t, copy] == after[0]
            ahead, own_ahead = after[0] + 0.9 * ahead, after[0] + 0.9 * own_ahead
            targets.append(ahead)
            own_targets.append(own_ahead)
            values.append(float(window.model(window.states[t][copy])))
            own_values.append(window.values[t][copy])
    if not fake_sb3.REAL:
        # The real one has learned in between from what its values were then.
        expected = explained_variance(own_values, own_targets)
        assert logged["criticd/explained_variance_sb3"] == pytest.approx(expected, abs=1e-6)
    assert logged["criticd/explained_variance_sb3"] <= 1
    assert logged["criticd/explained_variance"] == pytest.approx(explained_variance(values, targets), abs=1e-9)
    assert logged["criticd/explained_variance"] > 0.3
    difference = np.sqrt(np.mean((np.array(values) - np.array(own_values)) ** 2))
    assert logged["criticd/disagreement"] == pytest.approx(difference, rel=1e-6)
    states = np.array(window.states).reshape(-1, 2)
    assert logged["criticd/std"] == pytest.approx(window.model(states, std=True)[1].mean(), rel=1e-9)
    assert not [record for record in caplog.records if "discounts with" in record.getMessage()]


def test_another_discount_is_noticed(start: Start, caplog: pytest.LogCaptureFixture) -> None:
    daemon = start(*CALM, "critic.discount=0.5", "critic.warmup_rows=40")
    with daemon.sender(reliable=True) as sender, daemon.subscriber() as critic:
        make(PPO).learn(300, callback=CriticCallback(sender))
        sender.flush(PATIENCE_S)
        critic.wait(PATIENCE_S)
        make(PPO).learn(450, callback=CriticCallback(sender, critic, window_rows=100))
    (said,) = [record.getMessage() for record in caplog.records if "discounts with" in record.getMessage()]
    assert "0.5" in said and "0.9" in said and "critic.discount" in said


def test_an_agent_without_values_is_compared_with_returns_alone(start: Start) -> None:
    daemon = start(*CALM, "critic.discount=0.9", "critic.warmup_rows=40")
    with daemon.sender(reliable=True) as sender, daemon.subscriber() as critic:
        make(PPO).learn(300, callback=CriticCallback(sender))
        sender.flush(PATIENCE_S)
        critic.wait(PATIENCE_S)
        agent = make(SAC)
        agent.learn(300, callback=CriticCallback(sender, critic, window_rows=90))
        logged = agent.logger.name_to_value
    assert np.isfinite(logged["criticd/explained_variance"]) and "criticd/explained_variance_sb3" not in logged


def test_new_policies_are_announced(catcher: Catcher, caplog: pytest.LogCaptureFixture) -> None:
    rows_at: list[int] = []
    with Sender(catcher.endpoint) as sender:
        callback = CriticCallback(sender, on_update=lambda: rows_at.append(sender.counters.sent))
        make(PPO).learn(450, callback=callback)
        # Before the second and third rollout, with all rows of the policy before handed over.
        assert rows_at == [150, 300] and callback.updates == 2
        make(SAC).learn(30, callback=callback)
        assert len(rows_at) == 2

        def unknown() -> None:
            rows_at.append(-1)
            raise Refused({"code": "unknown_op", "message": "no such operation"})

        make(PPO).learn(450, callback=CriticCallback(sender, on_update=unknown))
        assert rows_at[2:] == [-1] and "policies" in caplog.text

        def broken() -> None:
            raise Refused({"code": "internal", "message": "no"})

        with pytest.raises(Refused, match="internal"):
            make(PPO).learn(450, callback=CriticCallback(sender, on_update=broken))


def test_returns_and_explained_variance() -> None:
    rewards = np.array([[1.0, 1.0], [2.0, 2.0], [4.0, 4.0]])
    terminated = np.array([[False, False], [True, False], [False, False]])
    cut = np.array([[False, False], [False, True], [True, True]])
    after = np.array([[9.0, 9.0], [9.0, 10.0], [20.0, 30.0]])
    found = discounted_returns(rewards, terminated, cut, after, 0.5)
    np.testing.assert_array_equal(found, [[2.0, 4.5], [2.0, 7.0], [14.0, 19.0]])
    assert explained_variance([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]) == 1
    assert explained_variance([2.0, 2.0, 2.0], [1.0, 2.0, 3.0]) == 0
    assert np.isnan(explained_variance([1.0, 2.0], [3.0, 3.0]))


if fake_sb3.REAL:

    def test_the_readmes_snippet_runs(tmp_path: Path) -> None:
        text = (Path(__file__).resolve().parents[1] / "README.md").read_text()
        (snippet,) = re.findall(r"```python with-sb3\n(.*?)```", text, re.DOTALL)
        subprocess.run([sys.executable, "-c", snippet], cwd=tmp_path, check=True, timeout=5 * PATIENCE_S)

    def test_what_was_normalised_is_sent_as_it_was(catcher: Catcher) -> None:
        from stable_baselines3.common.vec_env import VecNormalize

        envs = VecNormalize(DummyVecEnv([lambda number=number: Counting(number) for number in range(3)]), clip_obs=1e6)
        with Sender(catcher.endpoint, stream="run") as sender:
            agent = PPO("MlpPolicy", envs, n_steps=50, batch_size=50, n_epochs=1, gamma=0.9, seed=0, device="cpu")
            agent.learn(450, callback=CriticCallback(sender))
            assert sender.flush(PATIENCE_S)
            found = catcher.rows(450)
        for number in range(3):
            # Normalised and back: single precision was in between.
            rows = {key: np.round(values.astype(float), 3) for key, values in found[f"run-{number}"].items()}
            check_episodes({**rows, **{key: rows[key] != 0 for key in ("terminated", "truncated")}}, number)
