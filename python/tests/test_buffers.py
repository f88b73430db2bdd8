"""Buffers of Stable-Baselines3, d3rlpy and Minari, and LeRobot datasets, as tables for `criticd.fit`.

The first two bring PyTorch: in the gate stand-ins with the same attributes take their places.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pandas as pd
import pytest

import criticd
from criticd import Invalid
from criticd._buffers import columns_of
from criticd.policies import evaluate

KERNEL: dict[str, Any] = {
    "kernel": {"kind": "isotropic", "signal_variance": 4.0, "bias_variance": 1.0, "relevance": [1.0] * 4},
    "noise": {"model": "correlated", "variance": 0.5},
}
AT_ONCE: dict[str, Any] = {"hyperparameters": KERNEL, "no_optimise": True, "discount": 0.9}
STAND_IN_OR_REAL = [pytest.param(False, id="stand-in"), pytest.param(True, id="real", marks=pytest.mark.nightly)]
STATES = np.array([[0.0, 0.0, 0.0, 0.0], [0.1, -0.5, 0.05, 0.5]])


@dataclass
class Episode:
    states: Any
    actions: Any
    rewards: Any
    terminated: bool


def episodes(count: int = 12) -> list[Episode]:
    """Poles that fall, or stand when time is over."""
    env = gymnasium.make("CartPole-v1", max_episode_steps=20)
    env.action_space.seed(0)
    found = []
    for number in range(count):
        states, actions, rewards, over, cut = [env.reset(seed=number)[0]], [], [], False, False
        while not over and not cut:
            actions.append(int(env.action_space.sample()))
            state, reward, over, cut, _ = env.step(actions[-1])
            states.append(state)
            rewards.append(float(reward))
        found.append(Episode(np.array(states, np.float64), np.array(actions), np.array(rewards), over))
    assert {episode.terminated for episode in found} == {False, True}
    return found


def table(recorded: list[Episode]) -> dict[str, Any]:
    """The same as arrays."""
    last = [np.arange(len(each.rewards)) == len(each.rewards) - 1 for each in recorded]
    return {
        "states": np.concatenate([each.states[:-1] for each in recorded]),
        "actions": np.concatenate([each.actions for each in recorded]),
        "rewards": np.concatenate([each.rewards for each in recorded]),
        "next_states": np.concatenate([each.states[1:] for each in recorded]),
        "terminated": np.concatenate([end & each.terminated for end, each in zip(last, recorded, strict=True)]),
        "truncated": np.concatenate([end & (not each.terminated) for end, each in zip(last, recorded, strict=True)]),
    }


def replay_buffer(real: bool, size: int, rows: dict[str, Any], memory: bool = False) -> Any:
    """A buffer of two copies of the environment that has seen these rows, the copies half a turn apart."""
    count = len(rows["rewards"])
    other = {name: np.roll(column, count // 2, axis=0) for name, column in rows.items()}
    if real:
        buffers = pytest.importorskip("stable_baselines3.common.buffers")
        box = gymnasium.spaces.Box(-np.inf, np.inf, (4,), np.float64)
        options = {"optimize_memory_usage": memory, "handle_timeout_termination": not memory, "n_envs": 2}
        made = buffers.ReplayBuffer(2 * size, box, gymnasium.spaces.Discrete(2), **options)
    else:
        shape = (size, 2)
        made = SimpleNamespace(buffer_size=size, n_envs=2, pos=0, full=False, optimize_memory_usage=memory)
        made.observations, made.next_observations = np.zeros((*shape, 4)), None if memory else np.zeros((*shape, 4))
        made.actions, made.rewards = np.zeros((*shape, 1), np.int64), np.zeros(shape, np.float32)
        made.dones, made.timeouts = np.zeros(shape, np.float32), np.zeros(shape, np.float32)
    for k in range(count):
        state, after, action, reward, over, cut = (
            np.array([one[k], two[k]])
            for one, two in (
                (rows[name], other[name])
                for name in ("states", "next_states", "actions", "rewards", "terminated", "truncated")
            )
        )
        if real:
            infos = [{"TimeLimit.truncated": bool(flag)} for flag in cut]
            made.add(state, after, action[:, None], reward, over | cut, infos)
            continue
        at = made.pos
        made.observations[at], made.actions[at, :, 0], made.rewards[at] = state, action, reward
        made.dones[at], made.timeouts[at] = over | cut, cut & (not memory)
        if memory:
            made.observations[(at + 1) % size] = after
        else:
            made.next_observations[at] = after
        made.pos = (at + 1) % size
        made.full |= made.pos == 0
    return made


@pytest.mark.parametrize("real", STAND_IN_OR_REAL)
def test_replay_buffers(real: bool) -> None:
    rows = table(episodes())
    count = len(rows["rewards"])
    for size in (count + 10, count, count - 30):
        found = columns_of(replay_buffer(real, size, rows))
        assert found is not None
        kept = min(size, count)
        first = {name: column[: len(column) // 2] for name, column in found.items()}
        for name, column in rows.items():
            np.testing.assert_array_equal(first[name], column[count - kept :], err_msg=name)
        assert set(first["streams"]) == {"0"} and set(found["streams"]) == {"0", "1"}
    alone = replay_buffer(real, count + 10, rows)
    whole = criticd.fit(alone, **AT_ONCE)
    assert whole.transitions == 2 * count
    assert criticd.fit([alone, alone], **AT_ONCE).transitions == 4 * count
    with pytest.raises(Invalid, match="empty buffer"):
        criticd.fit(replay_buffer(real, 5, {name: column[:0] for name, column in rows.items()}), **AT_ONCE)


@pytest.mark.parametrize("real", STAND_IN_OR_REAL)
def test_replay_buffers_that_save_memory(real: bool) -> None:
    # They do not tell time limits from other ends.
    rows = table([each for each in episodes(20) if each.terminated])
    count = len(rows["rewards"])
    for size in (count + 10, count - 20):
        found = columns_of(replay_buffer(real, size, rows, memory=True))
        assert found is not None
        half = len(found["rewards"]) // 2
        # The newest observation has taken the place of the oldest.
        assert half == (count if size > count else size - 1)
        kept = slice(count - half, count)
        np.testing.assert_array_equal(found["states"][:half], rows["states"][kept])
        goes_on = ~rows["terminated"][kept]
        np.testing.assert_array_equal(found["next_states"][:half][goes_on], rows["next_states"][kept][goes_on])
        np.testing.assert_array_equal(found["terminated"][:half], rows["terminated"][kept])


def test_dictionaries_of_observations_are_laid_out_as_gymnasium_does() -> None:
    rows = table(episodes())
    buffer = replay_buffer(False, len(rows["rewards"]), rows)
    parts = {"speed": buffer.observations[..., 2:], "place": buffer.observations[..., :2]}
    after = {"speed": buffer.next_observations[..., 2:], "place": buffer.next_observations[..., :2]}
    buffer.observations, buffer.next_observations = parts, after
    found = columns_of(buffer)
    assert found is not None
    np.testing.assert_array_equal(found["states"][: len(rows["states"])], rows["states"])


def test_rollout_buffers_are_refused_with_what_to_do() -> None:
    # Rewards of steps that a time limit cut have had values added, and no flag says which.
    buffer = SimpleNamespace(observations=None, episode_starts=None, advantages=None)
    with pytest.raises(Invalid, match=r"rollout buffer .*CriticCallback"):
        criticd.fit(buffer, **AT_ONCE)


@pytest.mark.parametrize("real", STAND_IN_OR_REAL)
def test_datasets_of_d3rlpy(real: bool) -> None:
    recorded = episodes()
    rows = table(recorded)
    if real:
        d3rlpy = pytest.importorskip("d3rlpy")
        dataset = d3rlpy.dataset.MDPDataset(
            rows["states"].astype(np.float32), rows["actions"], rows["rewards"], rows["terminated"], rows["truncated"]
        )
    else:
        parts = [
            SimpleNamespace(
                observations=each.states[:-1].astype(np.float32),
                actions=each.actions[:, None],
                rewards=each.rewards[:, None],
                terminated=each.terminated,
            )
            for each in recorded
        ]
        dataset = SimpleNamespace(episodes=parts, transition_count=len(rows["rewards"]))
    fitted = criticd.fit(dataset, **AT_ONCE)
    given = {name: column for name, column in rows.items() if name != "next_states"}
    given["states"] = given["states"].astype(np.float32)
    assert np.array_equal(fitted(STATES), criticd.fit(given, **AT_ONCE)(STATES))
    # The last row of an episode that was cut has no successor.
    assert fitted.transitions == len(rows["rewards"]) - rows["truncated"].sum()


@pytest.mark.filterwarnings("ignore:.*is set to None:UserWarning")  # what a dataset should say of its authors
def test_datasets_of_minari_are_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari")
    from minari.data_collector import EpisodeBuffer

    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    recorded = episodes()
    buffers = []
    for number, each in enumerate(recorded):
        last = np.arange(len(each.rewards)) == len(each.rewards) - 1
        ends = {"terminations": last & each.terminated, "truncations": last & (not each.terminated)}
        states = each.states.astype(np.float32)
        buffers.append(
            EpisodeBuffer(id=number, observations=states, actions=each.actions, rewards=each.rewards, **ends)
        )
    made = {"dataset_id": "test/poles-v0", "buffer": buffers, "env": gymnasium.make("CartPole-v1")}
    dataset = minari.create_dataset_from_buffers(**made, data_format="hdf5")
    fitted = criticd.fit(dataset, **AT_ONCE)
    assert fitted.transitions == dataset.total_steps
    assert np.array_equal(fitted(STATES), criticd.fit(tmp_path / "test" / "poles-v0", **AT_ONCE)(STATES))
    some = dataset.filter_episodes(lambda episode: len(episode.rewards) > 15)
    assert criticd.fit(some, **AT_ONCE).transitions == some.total_steps < dataset.total_steps
    with pytest.raises(Invalid, match="has no episode"):
        criticd.fit(dataset.filter_episodes(lambda episode: False), **AT_ONCE)
    answers = np.full((dataset.total_steps, 2), 0.5)
    options = {"budget": 1, "dictionary_max": 10, "folds": 2}
    assert evaluate(dataset, answers, actions="discrete:2", options=options).episodes == len(recorded)


def test_directories_of_lerobot(tmp_path: Path) -> None:
    recorded = episodes()
    features = {
        "observation.state": {"dtype": "float32", "shape": [4], "names": None},
        "observation.image": {"dtype": "image", "shape": [3, 4, 4], "names": None},
        "next.reward": {"dtype": "float32", "shape": [1], "names": None},
        "next.done": {"dtype": "bool", "shape": [1], "names": None},
        **{name: {"dtype": "int64", "shape": [1], "names": None} for name in ("episode_index", "frame_index")},
    }
    (tmp_path / "meta").mkdir()
    (tmp_path / "meta" / "info.json").write_text(json.dumps({"codebase_version": "v3.0", "features": features}))
    (tmp_path / "data").mkdir()
    rows = pd.concat(
        pd.DataFrame(
            {
                "observation.state": list(each.states[:-1].astype(np.float32)),
                "observation.image": [{"bytes": b"PNG", "path": None}] * len(each.rewards),
                "next.reward": each.rewards.astype(np.float32),
                "next.done": np.arange(len(each.rewards)) == len(each.rewards) - 1,
                "episode_index": number,
                "frame_index": np.arange(len(each.rewards)),
            }
        )
        for number, each in enumerate(recorded)
    )
    rows.to_parquet(tmp_path / "data" / "file.parquet")
    fitted = criticd.fit(tmp_path, **AT_ONCE, done="terminated")
    for same in (str(tmp_path), rows, SimpleNamespace(hf_dataset=rows), tmp_path / "data" / "file.parquet"):
        assert np.array_equal(criticd.fit(same, **AT_ONCE, done="terminated")(STATES), fitted(STATES))
    assert fitted.transitions == len(rows)
    assert criticd.fit([tmp_path, tmp_path], **AT_ONCE, done="terminated").transitions == 2 * len(rows)
