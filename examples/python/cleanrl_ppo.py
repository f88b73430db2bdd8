"""A recipe for CleanRL: PPO in one file, in the form of CleanRL's `ppo.py`, and the lines that criticd adds to it.

    criticd serve --set critic.discount=0.99
    python examples/python/cleanrl_ppo.py --total-timesteps 50000

Every line, or block of lines, that belongs to criticd is marked `# criticd`. They send each step to the daemon, or
with --in-process teach a learner in this process, without a daemon. They log the explained variance of the agent's
critic and of criticd's and the difference of the two, and at every eighth rollout the mean standard deviation of
criticd's values along the first environment, to TensorBoard where that is installed. Both critics are judged by the
rewards that followed, and where a rollout or an episode was cut by their own value of the last state. Needs PyTorch.
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from torch import nn, optim
from torch.distributions.categorical import Categorical

from criticd import Learner, Sender, Subscriber  # criticd
from criticd.gym import wrap_vector  # criticd
from criticd.returns import discounted_returns, explained_variance  # criticd


def layer(inputs: int, outputs: int, gain: float = np.sqrt(2)) -> Any:
    """A linear layer with CleanRL's initial weights."""
    made = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(made.weight, gain)
    nn.init.constant_(made.bias, 0.0)
    return made


class Agent(nn.Module):
    """Actor and critic, two networks."""

    def __init__(self, envs: Any) -> None:
        super().__init__()
        size, actions = (
            int(np.prod(envs.single_observation_space.shape)),
            int(envs.single_action_space.n),
        )
        self.critic = nn.Sequential(layer(size, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, 1, 1.0))
        self.actor = nn.Sequential(
            layer(size, 64),
            nn.Tanh(),
            layer(64, 64),
            nn.Tanh(),
            layer(64, actions, 0.01),
        )

    def act(self, x: Any, action: Any = None) -> tuple[Any, Any, Any, Any]:
        """The action, its log probability, the entropy of the policy, and the value."""
        policy = Categorical(logits=self.actor(x))
        action = policy.sample() if action is None else action
        return (
            action,
            policy.log_prob(action),
            policy.entropy(),
            self.critic(x).flatten(),
        )


def writer_to(folder: str) -> Any:
    """TensorBoard's, or None where it is not installed."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(folder)


def estimated_advantages(rewards: Any, values: Any, dones: Any, ahead: Any, discount: float, gae_lambda: float) -> Any:
    """Generalised advantage estimates (n, E). `values` (n, E) are of the states, `dones` and `ahead` of what followed.

    `ahead` (E,) is the value of the states after the last step.
    """
    advantages, last = torch.zeros_like(rewards), torch.zeros_like(ahead)
    for t in reversed(range(len(rewards))):
        goes_on = 1.0 - dones[t]
        delta = rewards[t] + discount * (ahead if t == len(rewards) - 1 else values[t + 1]) * goes_on - values[t]
        advantages[t] = last = delta + discount * gae_lambda * goes_on * last
    return advantages


def learn(agent: Agent, optimizer: Any, obs: Any, actions: Any, logprobs: Any, advantages: Any, returns: Any) -> None:
    """PPO's update: four passes over a rollout (n, ...), in four minibatches each."""
    for _ in range(4):
        for chosen in torch.randperm(len(returns)).chunk(4):
            _, logprob, entropy, value = agent.act(obs[chosen], actions[chosen])
            gain = advantages[chosen]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            ratio = (logprob - logprobs[chosen]).exp()
            policy_loss = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
            value_loss = 0.5 * (value - returns[chosen]).square().mean()
            optimizer.zero_grad()
            (policy_loss - 0.01 * entropy.mean() + 0.5 * value_loss).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()


def compare(  # criticd
    critics: dict[str, Any], obs: Any, afters: Any, rewards: Any, ended: Any, cut: Any, discount: float
) -> dict[str, float]:
    """Explained variance of critics, functions from states (n, D) to values (n,), over a rollout of (n, E) steps."""
    cut = cut.copy()
    cut[-1] |= ~ended[-1]
    states, found, values = obs.reshape(-1, obs.shape[-1]), {}, {}
    for name, critic in critics.items():
        ahead = np.zeros(rewards.shape)
        ahead[cut] = critic(afters[cut])
        followed = discounted_returns(rewards, ended, cut, ahead, discount)
        values[name] = critic(states)
        found[f"explained_variance_{name}"] = explained_variance(values[name], followed.ravel())
    if len(values) == 2:
        first, second = values.values()
        found["disagreement"] = float(np.sqrt(np.mean((first - second) ** 2)))
    return found


def main() -> None:
    """Train, and log both critics."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--env-id", default="CartPole-v1")
    parser.add_argument("--total-timesteps", type=int, default=50_000)
    parser.add_argument("--num-envs", type=int, default=4)
    parser.add_argument("--num-steps", type=int, default=128)
    parser.add_argument("--gamma", type=float, default=0.99)
    parser.add_argument("--gae-lambda", type=float, default=0.95)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", default="runs/criticd")
    parser.add_argument("--in-process", action="store_true", help="learn here, without a daemon")  # criticd
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    # With SAME_STEP every step is a transition, as PPO's buffers have it.
    mode = {"autoreset_mode": gym.vector.AutoresetMode.SAME_STEP}
    envs: Any = gym.make_vec(args.env_id, args.num_envs, vectorization_mode="sync", vector_kwargs=mode)
    if args.in_process:  # criticd
        learner = Learner(discount=args.gamma)
    else:
        sender, subscriber = Sender(stream="cleanrl"), Subscriber()
        envs = wrap_vector(envs, sender)
    writer, agent = writer_to(args.folder), Agent(envs)
    optimizer = optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    shape = (args.num_steps, args.num_envs)
    obs = torch.zeros((*shape, *envs.single_observation_space.shape))
    actions, logprobs, rewards, dones, values = (torch.zeros(shape) for _ in range(5))
    following, _ = envs.reset(seed=args.seed)
    next_obs, next_done = torch.as_tensor(following), torch.zeros(args.num_envs)

    for iteration in range(1, args.total_timesteps // (args.num_envs * args.num_steps) + 1):
        ended, cut, afters = np.zeros(shape, bool), np.zeros(shape, bool), obs.numpy().copy()  # criticd
        # criticd: as old as the agent's critic, which learns after the rollout
        model: Any = subscriber.latest if not args.in_process else learner if learner.learned else None
        for step in range(args.num_steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprobs[step], _, values[step] = agent.act(next_obs)
            actions[step] = action
            following, reward, terminated, truncated, infos = envs.step(action.numpy())
            ended[step], cut[step], afters[step] = terminated, truncated, following  # criticd
            for i in np.flatnonzero(terminated | truncated):  # criticd
                afters[step, i] = infos["final_obs"][i]
            rewards[step] = torch.as_tensor(reward)
            next_obs, next_done = torch.as_tensor(following), torch.as_tensor(terminated | truncated).float()

        with torch.no_grad():
            ahead = agent.critic(next_obs).flatten()
        followed = torch.cat([dones[1:], next_done[None]])
        advantages = estimated_advantages(rewards, values, followed, ahead, args.gamma, args.gae_lambda)
        charts = {}
        with torch.no_grad():  # criticd: before either critic learns from this rollout
            critics: dict[str, Any] = {"agent": lambda x: agent.critic(torch.as_tensor(x)).flatten().numpy()}
            if model is not None:
                critics["criticd"] = model
                if iteration % 8 == 0:  # criticd: deviations of a model that has learned need its covariance first
                    charts["criticd_std"] = model(obs[:, 0].numpy(), std=True)[1].mean()
            charts |= compare(critics, obs.numpy(), afters, rewards.numpy().astype(float), ended, cut, args.gamma)
        if args.in_process:  # criticd
            learner.learn(obs.numpy(), rewards.numpy(), afters, terminated=ended, truncated=cut, stream="cleanrl")
        flat = (part.flatten(0, 1) for part in (obs, actions, logprobs, advantages, advantages + values))
        learn(agent, optimizer, *flat)

        global_step = iteration * args.num_envs * args.num_steps
        for name, number in charts.items():
            if writer is not None:
                writer.add_scalar(f"losses/{name}", number, global_step)
        print(
            global_step,
            " ".join(f"{name} {number:.3f}" for name, number in charts.items()),
            flush=True,
        )

    envs.close()
    if args.in_process:  # criticd
        learner.close()
    else:
        sender.close()
        subscriber.close()


if __name__ == "__main__":
    main()
