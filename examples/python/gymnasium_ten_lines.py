"""A Gymnasium environment whose value function is learned while it runs. Start `criticd serve` first."""

import gymnasium

from criticd import Sender, Subscriber
from criticd.gym import wrap

with Sender(stream="pendulum") as sender, Subscriber() as critic:
    env = wrap(gymnasium.make("Pendulum-v1"), sender)
    env.action_space.seed(0)
    state, info = env.reset(seed=0)
    for _ in range(2000):
        state, reward, terminated, truncated, info = env.step(env.action_space.sample())
        if terminated or truncated:
            state, info = env.reset()
    model = critic.wait(60, generation=2)  # the first that was selected; before, only the prior's deviation is known
    print("value of {}: {:.1f} +- {:.1f}".format(state, *model(state, std=True)))
