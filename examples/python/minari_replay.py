"""A recorded dataset of Minari, episode by episode, acknowledged; killed and started again it goes on where it was.

    python minari_replay.py DATASET         mujoco/hopper/medium-v0, say; needs `pip install "minari[hdf5]"`

Start `criticd serve` first. Without a program between, `criticd replay DIRECTORY` sends the directory of a dataset as
it is, and `criticd serve --warm-start DIRECTORY` learns it before anything else.
"""

from __future__ import annotations

import argparse

import minari
import numpy as np

from criticd import Client, Sender


def main() -> None:
    """Replay, then ask what the states that episodes begin in are worth."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("dataset", help="its name, as `minari list local` has it")
    arguments = parser.parse_args()
    dataset = minari.load_dataset(arguments.dataset)
    with Sender(stream=arguments.dataset, session="replay", resume=True, reliable=True) as sender, Client() as client:
        known, rows, starts = sender.position(), 0, []
        for episode in dataset.iterate_episodes():
            starts.append(episode.observations[0])
            rows += len(episode.rewards)
            # What the daemon has of an episode it does not need again.
            first = max(0, len(episode.rewards) - max(0, rows - known))
            if first == len(episode.rewards):
                continue
            sender.send_trajectory(
                episode.observations[first:],
                episode.rewards[first:],
                actions=episode.actions[first:],
                # A recording that merely stops was cut off: its last state keeps its value.
                terminated=bool(episode.terminations[-1]),
                truncated=not episode.terminations[-1],
            )
        if not sender.flush(600):
            raise SystemExit(f"the daemon does not keep up: {sender.counters}")
        learned = client.streams()[arguments.dataset].rows
        mean = client.value(np.array(starts)).mean.mean()
    print(f"{len(starts)} episodes of {arguments.dataset}: {rows} rows, {known} known before, {learned} learned")
    print(f"where they begin is worth {mean:.2f} on average")


if __name__ == "__main__":
    main()
