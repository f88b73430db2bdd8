"""Write the tables of other programs: `python foreign.py`, with the packages that CELLS names.

Each holds the same nine steps of three episodes of a two-dimensional walk, as its program writes them, by its own writer
where it has one. stable-baselines3, d3rlpy and tianshou import torch, which their writers do not use: an empty module
stands in for it. `truth.csv` says in our own columns what should be read.
"""

import csv
import importlib.abc
import importlib.machinery
import json
import sys
import types
from pathlib import Path
from unittest import mock

import h5py
import numpy as np

CELLS = "numpy h5py pyarrow datasets gymnasium pandas minari; --no-deps: stable-baselines3 d3rlpy tianshou"
HERE = Path(__file__).parent / "foreign"


class Empty(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Any module of torch, and what those import that write nothing, as one that holds whatever is asked for."""

    def find_spec(self, name, path, target=None):
        if name.split(".")[0] in ("torch", "sensai", "overrides", "tensorboard", "matplotlib", "pettingzoo", "gym", "sklearn", "numba"):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec):
        module = types.ModuleType(spec.name)
        module.__path__ = []

        def get(name):
            if name.startswith("__"):
                raise AttributeError(name)
            whole = {"__class_getitem__": classmethod(lambda cls, _: cls), "__init__": lambda *_, **__: None}
            return type(name, (), whole) if name[0].isupper() else mock.MagicMock()

        module.__getattr__ = get
        module.__version__ = module.VERSION = "2.5.0"
        return module

    def exec_module(self, module):
        pass


def walk():
    """Episodes: states (T + 1, 2), actions (T, 1), rewards (T,), whether it terminated."""
    rng = np.random.default_rng(17)
    episodes = []
    for steps, terminated in ((3, True), (4, False), (2, True)):
        states = np.round(rng.normal(size=(steps + 1, 2)), 3).astype(np.float32)
        actions = np.round(rng.normal(size=(steps, 1)), 3).astype(np.float32)
        rewards = np.round(rng.normal(size=steps), 3).astype(np.float32)
        episodes.append((states, actions, rewards, terminated))
    return episodes


def truth(episodes):
    with open(HERE / "truth.csv", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow("state_0 state_1 next_state_0 next_state_1 action reward terminated truncated".split())
        for states, actions, rewards, terminated in episodes:
            for t in range(len(rewards)):
                last = t + 1 == len(rewards)
                numbers = [*states[t], *states[t + 1], *actions[t], rewards[t]]
                flags = [int(last and terminated), int(last and not terminated)]
                out.writerow([repr(float(x)) for x in numbers] + flags)


def steps(episodes):
    """Every step: state, next state, action, reward, terminated, truncated, episode, frame."""
    for e, (states, actions, rewards, terminated) in enumerate(episodes):
        for t in range(len(rewards)):
            last = t + 1 == len(rewards)
            yield states[t], states[t + 1], actions[t], rewards[t], last and terminated, last and not terminated, e, t


def sb3(episodes):
    import gymnasium
    from stable_baselines3.common.buffers import ReplayBuffer

    box = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
    act = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
    count = sum(len(e[2]) for e in episodes)
    buffer = ReplayBuffer(count, box, act, device=mock.MagicMock(), n_envs=1, handle_timeout_termination=True)
    for state, after, action, reward, terminated, truncated, _, _ in steps(episodes):
        done = np.array([terminated or truncated])
        buffer.add(state[None], after[None], action[None], np.array([reward]), done, [{"TimeLimit.truncated": truncated}])
    names = "observations next_observations actions rewards dones timeouts".split()
    np.savez(HERE / "sb3.npz", **{name: getattr(buffer, name) for name in names}, pos=buffer.pos, full=buffer.full)


def d3rlpy(episodes):
    from d3rlpy.dataset.components import Episode
    from d3rlpy.dataset.io import dump

    # A cut episode keeps its last state in a row of its own, whose action and reward mean nothing.
    def episode(states, actions, rewards, terminated):
        if terminated:
            return Episode(states[:-1], actions, rewards[:, None], True)
        return Episode(states, np.vstack([actions, actions[:1]]), np.append(rewards, 0)[:, None], False)

    with open(HERE / "d3rlpy.h5", "w+b") as file:
        dump([episode(*e) for e in episodes], file)


def tianshou(episodes):
    from tianshou.data import Batch, ReplayBuffer

    buffer = ReplayBuffer(size=sum(len(e[2]) for e in episodes) + 4)
    for state, after, action, reward, terminated, truncated, _, _ in steps(episodes):
        buffer.add(Batch(obs=state, act=action, rew=reward, terminated=terminated, truncated=truncated, obs_next=after, info={}))
    buffer.save_hdf5(str(HERE / "tianshou.hdf5"))


def minari_dataset(episodes):
    import gymnasium
    import minari
    import os
    import shutil
    import tempfile

    from minari.data_collector import EpisodeBuffer

    with tempfile.TemporaryDirectory() as directory:
        os.environ["MINARI_DATASETS_PATH"] = directory
        buffers = []
        for states, actions, rewards, terminated in episodes:
            ends = [False] * (len(rewards) - 1)
            buffers.append(
                EpisodeBuffer(
                    observations=list(states),
                    actions=list(actions),
                    rewards=[float(r) for r in rewards],
                    terminations=[*ends, terminated],
                    truncations=[*ends, not terminated],
                )
            )
        box = gymnasium.spaces.Box(-9, 9, (2,), np.float32)
        act = gymnasium.spaces.Box(-9, 9, (1,), np.float32)
        minari.create_dataset_from_buffers("walk-v0", buffers, observation_space=box, action_space=act, data_format="hdf5")
        shutil.copy(next(Path(directory).rglob("main_data.hdf5")), HERE / "minari.hdf5")


def lerobot(episodes):
    """As LeRobotDataset writes an episode: Hugging Face's datasets, with its own features."""
    import datasets

    vector = lambda n: datasets.Sequence(datasets.Value("float32"), length=n)
    features = datasets.Features(
        {
            "observation.state": vector(2),
            "action": vector(1),
            "next.reward": datasets.Value("float32"),
            "next.done": datasets.Value("bool"),
            "timestamp": datasets.Value("float32"),
            "frame_index": datasets.Value("int64"),
            "episode_index": datasets.Value("int64"),
            "index": datasets.Value("int64"),
            "task_index": datasets.Value("int64"),
        }
    )
    rows = {name: [] for name in features}
    for e, (states, actions, rewards, terminated) in enumerate(episodes):
        # A cut episode has a frame more, which is the last one's successor.
        frames = len(rewards) + (0 if terminated else 1)
        for t in range(frames):
            over = t >= len(rewards)
            values = (
                states[t].tolist(),
                (actions[0] if over else actions[t]).tolist(),
                0.0 if over else float(rewards[t]),
                terminated and t + 1 == frames,
                t / 10,
                t,
                e,
                len(rows["index"]),
                0,
            )
            for name, value in zip(features, values):
                rows[name].append(value)
    datasets.Dataset.from_dict(rows, features=features).to_parquet(str(HERE / "lerobot.parquet"))


def rlds(episodes):
    """Arrays of steps as RLDS aligns them: the last step of an episode has an observation alone."""
    names = "observation action reward discount is_first is_last is_terminal".split()
    columns = {name: [] for name in names}
    for states, actions, rewards, terminated in episodes:
        for t in range(len(states)):
            last = t + 1 == len(states)
            action, reward = (np.zeros(1, np.float32), 0.0) if last else (actions[t], rewards[t])
            values = (states[t], action, reward, float(not (last and terminated)), t == 0, last, last and terminated)
            for name, value in zip(names, values):
                columns[name].append(value)
    np.savez_compressed(HERE / "rlds.npz", **{name: np.array(values) for name, values in columns.items()})


def d4rl(episodes):
    all_steps = list(steps(episodes))
    with h5py.File(HERE / "d4rl.hdf5", "w") as file:
        for name, k in (("observations", 0), ("next_observations", 1), ("actions", 2), ("rewards", 3)):
            file[name] = np.array([step[k] for step in all_steps], np.float32)
        for name, k in (("terminals", 4), ("timeouts", 5)):
            file[name] = np.array([step[k] for step in all_steps], bool)
        file["infos/qpos"] = np.zeros((len(all_steps), 3), np.float32)
        file["metadata/algorithm"] = "SAC"


def robomimic(episodes):
    with h5py.File(HERE / "robomimic.hdf5", "w") as file:
        for e, (states, actions, rewards, terminated) in enumerate(episodes):
            demo = file.create_group(f"data/demo_{e}")
            demo["obs/position"], demo["obs/speed"] = states[:-1, :1], states[:-1, 1:]
            demo["next_obs/position"], demo["next_obs/speed"] = states[1:, :1], states[1:, 1:]
            demo["actions"], demo["rewards"] = actions, rewards
            demo["dones"] = np.array([0] * (len(rewards) - 1) + [int(terminated)])


def imitation(episodes):
    """Lines of steps as RLlib and imitation call them."""
    with open(HERE / "steps.jsonl", "w") as file:
        for state, after, action, reward, terminated, truncated, e, t in steps(episodes):
            line = {
                "eps_id": e,
                "t": t,
                "obs": [float(x) for x in state],
                "new_obs": [float(x) for x in after],
                "actions": [float(x) for x in action],
                "rewards": float(reward),
                "terminateds": bool(terminated),
                "truncateds": bool(truncated),
                "infos": {"lap": 1},
            }
            file.write(json.dumps(line) + "\n")


def missions(episodes):
    """A robot's log: mission ids, a cost, times; the rows of missions in turn. And the same as pandas writes Parquet."""
    import pandas

    rows = []
    for e, (states, actions, rewards, terminated) in enumerate(episodes):
        count = len(rewards) + (0 if terminated else 1)
        for t in range(count):
            over = t >= len(rewards)
            rows.append(
                {
                    "mission": f"m{e}",
                    "time": f"2026-01-0{e + 1}T10:00:{t:02}",
                    "x": float(states[t][0]),
                    "battery": float(states[t][1]),
                    "u": 0.0 if over else float(actions[t][0]),
                    "cost": 0.0 if over else -float(rewards[t]),
                    "failed": int(terminated and t + 1 == count),
                    "operator": "ada",
                }
            )
    order = np.random.default_rng(3).permutation(len(rows))
    table = pandas.DataFrame([rows[i] for i in order])
    table.to_csv(HERE / "missions.csv", index=False)
    table.to_parquet(HERE / "missions.parquet")


def main():
    sys.meta_path.append(Empty())
    HERE.mkdir(exist_ok=True)
    episodes = walk()
    for write in (truth, rlds, d4rl, robomimic, imitation, missions, lerobot, sb3, d3rlpy, tianshou, minari_dataset):
        try:
            write(episodes)
        except ImportError as error:
            print(f"{write.__name__}: not written, {error}")


if __name__ == "__main__":
    main()
