"""An agent that learns to act in a Gymnasium environment. It starts a daemon of its own."""

import sys

import gymnasium

from criticd.agent import Agent

with Agent(gymnasium.make("CartPole-v1"), discount=0.995) as agent:
    for episode in agent.run(int(sys.argv[1]) if len(sys.argv) > 1 else 50):
        print(f"episode {episode.number}: {episode.total:.0f}", flush=True)
    agent.snapshot().save("cartpole.model")
