"""PPO's critic and criticd's, side by side, while PPO learns and each update is announced.

    python examples/python/ppo_critics.py --env Pendulum-v1 --announce 10 --minutes 20 --plot ppo.png

starts a daemon of its own and trains PPO at the pace of a simulator. After each update of the policy, every 10 seconds
here, `criticd.sb3.CriticCallback` announces it. At each step both critics say what the state is worth, and later the
return from there is known. The program compares the two in each half minute.

    python examples/python/ppo_critics.py --of runs/*.json --plot ppo.png

puts runs that wrote `--json` into one table and one picture. Needs Stable-Baselines3, and matplotlib for the picture.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import re
import time
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env

import criticd
from criticd.returns import discounted_returns, explained_variance
from criticd.sb3 import CriticCallback

REST = 0.02
"""A return is known if what followed a cut weighs less than this share of a reward."""


class Pace:
    """A number of steps a second, by a clock that stands still while the daemon waits for a processor that others use.

    Linux counts it for each thread. Elsewhere it is the clock of the wall.
    """

    def __init__(self, rate: float, pid: int) -> None:
        self.rate, self.threads = rate, Path(f"/proc/{pid}/task")
        self.due = self.began = time.monotonic()
        self.stood, self.waited = 0.0, self._waited()

    def wait(self, steps: int) -> None:
        """Until this many steps more may be taken."""
        self.due += steps / self.rate
        while (left := self.due + self._stood() - time.monotonic()) > 0:
            time.sleep(left)

    def _stood(self) -> float:
        """Seconds so far, of the thread that waited longest each time."""
        waited = self._waited()
        self.stood += max((seconds - self.waited.get(name, 0.0) for name, seconds in waited.items()), default=0.0)
        self.waited = waited
        return self.stood

    def _waited(self) -> dict[str, float]:
        """Seconds that each thread has waited since it began."""
        found = {}
        for file in self.threads.glob("*/schedstat"):
            with contextlib.suppress(OSError):  # The thread has ended.
                found[file.parent.name] = int(file.read_text().split()[1]) / 1e9
        return found


class Watch(BaseCallback):
    """Writes down what both critics say of each state before it is known what follows."""

    def __init__(self, critic: criticd.Subscriber, pace: Pace) -> None:
        super().__init__()
        self.critic, self.pace = critic, pace
        self.state: Any = None
        self.steps: dict[str, list[Any]] = defaultdict(list)

    def _on_step(self) -> bool:
        heard, normalised = self.locals, self.model.get_vec_normalize_env()
        dones, infos = np.asarray(heard["dones"], bool), heard["infos"]
        cut = dones & np.array([bool(info.get("TimeLimit.truncated", False)) for info in infos])
        rewards, scale, after = heard["rewards"], 1.0, heard["new_obs"]
        if normalised is not None:
            rewards, after = normalised.get_original_reward(), normalised.get_original_obs()
            scale = float(np.sqrt(normalised.ret_rms.var + normalised.epsilon))
        if self.state is not None:
            model = self.critic.latest
            unknown = np.full(len(dones), np.nan)
            self.note(
                criticd=unknown if model is None else model(self.state),
                ppo=scale * np.asarray(heard["values"].detach().cpu().numpy(), float).reshape(-1),
                generation=unknown if model is None else np.full(len(dones), model.generation),
                rewards=np.array(rewards, float),
                terminated=dones & ~cut,
                cut=cut,
                at=np.full(len(dones), self.num_timesteps / self.pace.rate),
            )
        self.state = np.array(after, float)
        self.pace.wait(len(dones))
        return True

    def note(self, **step: Any) -> None:
        """What holds of one step, of each copy."""
        for name, values in step.items():
            self.steps[name].append(values)

    def moments(self, discount: float, seconds: float) -> list[dict[str, float]]:
        """How well both critics foretold the returns, piece by piece of the seconds."""
        seen = {name: np.array(values) for name, values in self.steps.items()}
        cut, zeros = seen["cut"], np.zeros_like(seen["rewards"])
        cut[-1] |= ~seen["terminated"][-1]
        returns = discounted_returns(seen["rewards"], seen["terminated"], cut, zeros, discount)
        known = discounted_returns(zeros, seen["terminated"], cut, zeros + 1, discount) < REST
        moment = np.floor(seen["at"] / seconds)
        found = []
        for number in np.unique(moment):
            rows = known & (moment == number)
            of = {name: values[rows] for name, values in seen.items()} | {"returns": returns[rows]}
            if rows.sum() < 2 or np.isnan(of["criticd"]).all():
                continue
            answered = ~np.isnan(of["criticd"])
            of = {name: values[answered] for name, values in of.items()}
            result = {
                "seconds": float(seconds * (number + 1)),
                "rows": len(of["returns"]),
                "generation": float(of["generation"].max()),
                "zeros": int((of["criticd"] == 0).sum()),
                "mean_return": float(of["returns"].mean()),
                "spread": float(of["returns"].std()),
            }
            for name in ("criticd", "ppo"):
                result[name] = correlation(of[name], of["returns"])
                result[f"{name}_explained"] = explained_variance(of[name], of["returns"])
            found.append(result)
        return found


def telling(run: dict[str, Any]) -> list[dict[str, float]]:
    """The moments at which returns differ by more than a hundredth, so that there is something to foretell."""
    return [moment for moment in run["moments"] if moment["spread"] > 0.01 * abs(moment["mean_return"])]


def correlation(values: Any, returns: Any) -> float:
    """0 where the values are all alike."""
    return float(np.corrcoef(values, returns)[0, 1]) if values.std() > 0 and returns.std() > 0 else 0.0


def train(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train PPO, with both critics watched."""
    # Networks of this size gain nothing from more threads, and the daemon wants a core.
    torch.set_num_threads(1)
    with (
        criticd.Daemon(f"critic.discount={arguments.gamma}", *arguments.set, directory=arguments.directory) as daemon,
        daemon.sender(stream="ppo", reliable=True) as sender,
        daemon.subscriber() as critic,
        daemon.client() as client,
    ):
        envs: Any = make_vec_env(arguments.env, n_envs=arguments.copies, seed=arguments.seed)
        if arguments.normalise:
            from stable_baselines3.common.vec_env import VecNormalize

            envs = VecNormalize(envs, gamma=arguments.gamma)
        agent = PPO(
            "MlpPolicy",
            envs,
            learning_rate=arguments.learning_rate,
            n_steps=max(2, round(arguments.rate * arguments.announce / arguments.copies)),
            batch_size=50,
            gamma=arguments.gamma,
            seed=arguments.seed,
            device="cpu",
        )
        sending = CriticCallback(sender, critic, on_update=client.new_policy)
        watch = Watch(critic, Pace(arguments.rate, daemon.pid))
        agent.learn(round(60 * arguments.minutes * arguments.rate), callback=CallbackList([watch, sending]))
        sender.flush(30)
        status = client.status()["critics"][0]
        return {
            "env": arguments.env,
            "announce": arguments.announce,
            "seed": arguments.seed,
            "announcements": sending.updates,
            "took": time.monotonic() - watch.pace.began,
            "stood": watch.pace.stood,
            "moments": watch.moments(arguments.gamma, arguments.moment),
            "models": status["generation"],
            "events": Counter(re.findall(r"\bevent=(\w+)", daemon.log())),
        }


def table(runs: list[dict[str, Any]]) -> str:
    """A line for each run."""
    lines = [
        "| environment | announced each | seed | announcements | models | moments | correlation: criticd | PPO "
        "| at least PPO's | no more than 0.05 below |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for run in runs:
        found = telling(run)
        own, theirs = (np.array([moment[name] for moment in found]) for name in ("criticd", "ppo"))
        lines.append(
            f"| {run['env']} | {run['announce']:g} s | {run['seed']} | {run['announcements']} "
            f"| {run['models']} | {len(found)} | {own.mean():.3f} | {theirs.mean():.3f} "
            f"| {(own >= theirs).mean():.0%} | {(own >= theirs - 0.05).mean():.0%} |"
        )
    return "\n".join(lines)


def draw(runs: list[dict[str, Any]], path: str) -> None:
    """Correlation of both critics with the returns, a panel for each environment and interval, a line for each seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = sorted({run["env"] for run in runs})
    columns = sorted({run["announce"] for run in runs})
    size = (3.2 * len(columns) + 1, 2.4 * len(rows) + 0.6)
    figure, panels = pyplot.subplots(
        len(rows), len(columns), figsize=size, layout="constrained", squeeze=False, sharex=True, sharey=True
    )
    for run in runs:
        axes = panels[rows.index(run["env"])][columns.index(run["announce"])]
        found = telling(run)
        minutes = [moment["seconds"] / 60 for moment in found]
        for name, label, colour in (("ppo", "PPO's own critic", "tab:orange"), ("criticd", "criticd", "tab:blue")):
            label = label if label not in axes.get_legend_handles_labels()[1] else ""
            axes.plot(minutes, [moment[name] for moment in found], color=colour, linewidth=1, label=label)
        axes.set_title(f"{run['env']}, announced each {run['announce']:g} s", fontsize=9)
    for axes in panels.flat:
        axes.set(ylim=(-0.2, 1.02))
        axes.axhline(0, color="grey", linewidth=0.6)
    for axes in panels[-1]:
        axes.set_xlabel("minutes of training")
    for axes in panels[:, 0]:
        axes.set_ylabel("correlation with returns", fontsize=8)
    figure.legend(*panels[0][0].get_legend_handles_labels(), loc="outside upper right", ncols=2, fontsize=8)
    figure.savefig(path, dpi=100)


def main() -> None:
    """Train or read, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--minutes", type=float, default=20, help="how long to train")
    parser.add_argument("--announce", type=float, default=10, metavar="SECONDS", help="between two updates")
    parser.add_argument("--rate", type=float, default=20, help="steps of all copies together in a second")
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument("--moment", type=float, default=30, metavar="SECONDS", help="which both are judged over")
    parser.add_argument("--gamma", type=float, default=0.95)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--normalise", action="store_true", help="observations and rewards, for PPO alone")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="setting of the daemon")
    parser.add_argument("--directory", help="where the daemon's data and log are to stay")
    parser.add_argument("--json", help="file of the numbers")
    parser.add_argument("--of", nargs="+", metavar="FILE", help="runs of before instead of another one")
    parser.add_argument("--plot", help="file of the picture")
    arguments = parser.parse_args()

    if arguments.of:
        runs = []
        for name in arguments.of:
            with open(name) as file:
                runs.append(json.load(file))
    else:
        runs = [train(arguments)]
    print(table(runs))
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(runs[0], file, indent=1)
    if arguments.plot:
        draw(runs, arguments.plot)


if __name__ == "__main__":
    main()
