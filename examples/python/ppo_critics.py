"""PPO's critic and criticd's, side by side: how much of the returns each explains while PPO learns.

    python examples/python/ppo_critics.py --env Pendulum-v1 --steps 100000 --plot ppo.png

starts a daemon of its own, trains PPO with `criticd.sb3.CriticCallback`, and stops ten times to run the policy of that
moment afresh. The values that both critics give to the states of these runs are compared with the discounted returns
that followed. Needs Stable-Baselines3, and matplotlib for the picture.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import gymnasium
import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback, CallbackList
from stable_baselines3.common.env_util import make_vec_env

import criticd
from criticd.returns import discounted_returns, explained_variance
from criticd.sb3 import CriticCallback


def rollouts(model: PPO, env: gymnasium.Env[Any, Any], states_wanted: int, limit: int, seed: int) -> tuple[Any, Any]:
    """States (n, D) that the policy visits, and the discounted return that followed each of them (n,).

    After `limit` steps an episode goes on, without its states being counted, until the rest weighs less than 0.001.
    """
    beyond = int(np.ceil(np.log(0.001) / np.log(model.gamma)))
    states: list[Any] = []
    returns: list[Any] = []
    while len(states) < states_wanted:
        observed, _ = env.reset(seed=seed + len(states))
        seen: list[Any] = []
        rewards: list[float] = []
        over = False
        while not over and len(seen) < limit + beyond:
            seen.append(observed)
            action, _ = model.predict(observed, deterministic=False)
            observed, reward, over, _, _ = env.step(action)
            rewards.append(float(reward))
        gained, n = np.array(rewards)[:, None], len(rewards)
        ended, cut = np.zeros((n, 1), bool), np.zeros((n, 1), bool)
        ended[-1], cut[-1] = over, not over
        followed = discounted_returns(gained, ended, cut, np.zeros((n, 1)), model.gamma)[:, 0]
        states += seen[:limit]
        returns += list(followed[:limit])
    return np.array(states), np.array(returns)


class Judge(BaseCallback):
    """Compares both critics with fresh runs, every `every` steps."""

    def __init__(
        self,
        critic: criticd.Subscriber,
        sender: criticd.Sender,
        env: str,
        every: int,
        states: int,
    ) -> None:
        super().__init__()
        self.critic, self.sender, self.every, self.states = (
            critic,
            sender,
            every,
            states,
        )
        spec = gymnasium.spec(env)
        self.limit = spec.max_episode_steps or 1000
        # Without a time limit: what would have followed is part of the value.
        self.env = gymnasium.make(env, max_episode_steps=1_000_000)
        self.found: list[dict[str, float]] = []

    def _on_step(self) -> bool:
        return True

    def _on_rollout_start(self) -> None:
        if self.num_timesteps >= self.every * (len(self.found) + 1):
            self.judge()

    def _on_training_end(self) -> None:
        self.judge()

    def judge(self) -> None:
        """Both critics have learned from all rows so far, and the policy is new to both."""
        self.sender.flush(30)
        snapshot = self.critic.wait(60, offset=self.num_timesteps)
        states, returns = rollouts(self.model, self.env, self.states, self.limit, seed=self.num_timesteps)
        value, deviation = snapshot(states, std=True)
        own = self.model.policy.predict_values(self.model.policy.obs_to_tensor(states.astype(np.float32))[0])
        own = own.detach().cpu().numpy()[:, 0].astype(float)
        measured = {
            "steps": self.num_timesteps,
            "criticd": explained_variance(value, returns),
            "ppo": explained_variance(own, returns),
            "criticd_correlation": float(np.corrcoef(value, returns)[0, 1]),
            "ppo_correlation": float(np.corrcoef(own, returns)[0, 1]),
            "criticd_error": float(np.sqrt(np.mean((value - returns) ** 2))),
            "ppo_error": float(np.sqrt(np.mean((own - returns) ** 2))),
            "returns_spread": float(returns.std()),
            "std": float(deviation.mean()),
            "mean_return": float(returns.mean()),
        }
        self.found.append(measured)
        print(
            f"{measured['steps']:7d} steps: correlation with returns criticd {measured['criticd_correlation']:.2f}, "
            f"PPO {measured['ppo_correlation']:.2f}; explained variance criticd {measured['criticd']:.2f}, "
            f"PPO {measured['ppo']:.2f}; error criticd {measured['criticd_error']:.3g}, "
            f"PPO {measured['ppo_error']:.3g} of a spread of {measured['returns_spread']:.3g}; "
            f"mean return {measured['mean_return']:.1f}",
            flush=True,
        )


def draw(found: list[dict[str, float]], env: str, path: str) -> None:
    """The picture: explained variance of both critics over training."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 3.6), layout="constrained")
    steps = [row["steps"] for row in found]
    for key, name, style in (
        ("criticd", "criticd", "o-"),
        ("ppo", "PPO's own critic", "s--"),
    ):
        # Below -0.25 there is nothing more to see.
        axes.plot(steps, [max(row[key], -0.25) for row in found], style, label=name)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set(
        xlabel="steps of training",
        ylabel="explained variance of returns",
        ylim=(-0.3, 1.02),
        title=f"PPO on {env}",
    )
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)


def main() -> None:
    """Train, judge, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env", default="Pendulum-v1")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--copies", type=int, default=4)
    parser.add_argument(
        "--rollout",
        type=int,
        default=512,
        help="steps of each copy between two updates",
    )
    parser.add_argument("--judgements", type=int, default=10)
    parser.add_argument(
        "--states",
        type=int,
        default=4000,
        help="states of fresh runs at each judgement",
    )
    parser.add_argument("--gamma", type=float, default=0.95)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="setting of the daemon",
    )
    parser.add_argument("--plot", help="file of the picture")
    parser.add_argument("--json", help="file of the numbers")
    arguments = parser.parse_args()

    # Networks of this size gain nothing from more threads, and the daemon wants a core.
    torch.set_num_threads(1)
    settings = [f"critic.discount={arguments.gamma}", *arguments.set]
    with (
        criticd.Daemon(*settings) as daemon,
        daemon.sender(stream="ppo", reliable=True) as sender,
        daemon.subscriber() as critic,
        daemon.client() as client,
    ):
        envs = make_vec_env(arguments.env, n_envs=arguments.copies, seed=arguments.seed)
        model = PPO(
            "MlpPolicy",
            envs,
            learning_rate=arguments.learning_rate,
            n_steps=arguments.rollout,
            gamma=arguments.gamma,
            seed=arguments.seed,
            device="cpu",
        )
        on_update = getattr(client, "new_policy", None)
        judge = Judge(
            critic,
            sender,
            arguments.env,
            arguments.steps // arguments.judgements,
            arguments.states,
        )
        callbacks = CallbackList([CriticCallback(sender, critic, on_update=on_update), judge])
        model.learn(arguments.steps, callback=callbacks)
        if arguments.json:
            with open(arguments.json, "w") as file:
                json.dump(judge.found, file, indent=1)
        if arguments.plot:
            draw(judge.found, arguments.env, arguments.plot)


if __name__ == "__main__":
    main()
