"""What the program says of a model is said where it is true and kept back where it is not: tables with planted truths.

Each row of `SENTENCES` is a part of a sentence, a world whose truth makes the program say it, and one in which it must not. The last
test reads the sources: a sentence that has no row here, and none among those that other tests plant, fails it.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from client import BINARY, PATIENCE_S, ROOT, Daemon, pack, when
from conftest import Start

Rows = list[tuple[int, list[float], float]]
EVIDENCE = "--selection evidence"
POINTS = "--episode episode --discount 0 --lambda 1 --hold-out 0 --verbose --out m"
FIT = "--episode episode --discount 0.6 --kernel-profile gaussian --linear-columns never --lambda 0.5 --verbose"
WORLD = "--state x --episode episode --model-successors 40"
JUDGED = "--state x --episode episode --actions discrete:2 --discount 0.9 --budget 1 --folds 2"


def run(folder: Path, command: str, *, refused: bool = False) -> str:
    """All that a command says, in one line for each paragraph's words."""
    found = subprocess.run([BINARY, *command.split()], cwd=folder, capture_output=True, text=True, check=False)
    assert (found.returncode != 0) == refused, found.stderr
    return " ".join((found.stdout + found.stderr).split())


def write(
    path: Path, names: str, rows: Rows, *, ends: bool = False, columns: str = "", more: Callable[[int], str] = str
) -> None:
    """Episodes that are cut, or end, after their last row."""
    lines = [f"episode,{names},reward,terminated,truncated{columns}"]
    for i, (episode, state, reward) in enumerate(rows):
        last = i + 1 == len(rows) or rows[i + 1][0] != episode
        cells = [episode, *state, reward, int(last and ends), int(last and not ends)]
        lines.append(",".join(map(repr, cells)) + ("," + more(i) if columns else ""))
    path.write_text("\n".join(lines) + "\n")


def walks(reward: Callable[[Any, Any], float], episodes: int = 40, length: int = 6, seed: int = 0) -> Rows:
    """A walk in x beside fresh numbers z."""
    random, rows = np.random.default_rng(seed), []
    for episode in range(episodes):
        x, z = random.normal(size=2)
        for _ in range(length):
            rows.append((episode, [float(x), float(z)], float(reward((x, z), random))))
            x, z = 0.8 * x + 0.6 * random.normal(), random.normal()
    return rows


def wave(state: Any, random: Any) -> float:
    return float(np.sin(2 * state[0]) + 0.1 * random.normal())


def fit(
    reward: Callable[[Any, Any], float], options: str, episodes: int = 40, length: int = 6
) -> Callable[[Path], str]:
    def said(folder: Path) -> str:
        write(folder / "t.csv", "x,z", walks(reward, episodes, length))
        return run(folder, f"fit t.csv --state x,z {FIT} {options} --out m")

    return said


def odd(state: str, options: str = "") -> Callable[[Path], str]:
    """A cause x with a copy and a noisy copy; constants, one of them but for 1e-300; and a variable with outliers."""

    def said(folder: Path) -> str:
        random, rows = np.random.default_rng(5), []
        for i, (episode, (x, z), reward) in enumerate(walks(wave)):
            near, wild = x + 0.02 * random.normal(), random.normal() + (1e4 if i in (50, 120) else 0)
            rows.append((episode, [x, z, -2 * x, float(near), 7.0, 1e-300 * z, float(wild)], reward))
        write(folder / "t.csv", "x,z,copy,near,still,faint,wild", rows)
        return run(folder, f"fit t.csv --state {state} {FIT} {EVIDENCE} --hold-out 0 {options} --out m")

    return said


def home(folder: Path) -> str:
    """Each step costs, until x is at home."""
    starts = np.random.default_rng(0).uniform(4, 9, 40)
    rows: Rows = [(episode, [float(x) - t], -1.0) for episode, x in enumerate(starts) for t in range(int(x) + 1)]
    write(folder / "t.csv", "x", rows, ends=True)
    return run(folder, f"fit t.csv --state x {FIT} --out m")


def decay(folder: Path) -> str:
    """Nothing is left to chance but where episodes begin."""
    rows: Rows = []
    for episode, x in enumerate(np.random.default_rng(0).normal(size=40)):
        places = [float(x) * 0.9**t for t in range(6)]
        rows += [(episode, [place], float(np.sin(2 * place))) for place in places]
    write(folder / "t.csv", "x", rows)
    return run(folder, f"fit t.csv --state x {FIT} {EVIDENCE} --hold-out 0 --out m")


def flip(folder: Path) -> str:
    """Rewards turn over halfway, in too few rows for that to be noticed: they look like noise."""
    rows = [(episode, state, reward * (1 if episode < 60 else -1)) for episode, state, reward in walks(wave, 130, 8)]
    write(folder / "t.csv", "x,z", rows)
    return run(folder, f"fit t.csv --state x,z {FIT} {EVIDENCE} --out m")


def given(folder: Path) -> str:
    """Two states cannot represent a wave."""
    write(folder / "t.csv", "x,z", walks(wave))
    (folder / "d.csv").write_text("state_0,state_1\n0,0\n3,3\n")
    return run(folder, f"fit t.csv --state x,z {FIT} {EVIDENCE} --hold-out 0 --dictionary d.csv --out m")


def louder(folder: Path) -> str:
    """Noise grows forty times, and values stay: earlier rows say the more about them."""
    random, rows = np.random.default_rng(0), []
    for episode, state, _ in walks(wave, 400, 20):
        noise = 2.0 if episode >= 240 else 0.05
        rows.append((episode, state[:1], float(np.sin(2 * state[0]) + noise * random.normal())))
    write(folder / "t.csv", "x", rows)
    options = FIT.replace("--lambda 0.5", "--hold-out 0 --budget 2 --dictionary-max 30")
    return run(folder, f"fit t.csv --state x {options} --out m")


def others(folder: Path) -> str:
    """Robots come whose rewards are others."""
    lines = ["state_0,reward,truncated,stream"]
    rows = walks(wave, 400, 20)
    for i, (episode, (x, _), reward) in enumerate(rows):
        late, last = episode >= 240, i % 20 == 19
        lines.append(f"{x},{reward + 3 * late},{int(last)},{'second' if late else 'first'}")
    (folder / "t.csv").write_text("\n".join(lines) + "\n")
    options = "--discount 0.6 --linear-columns never --hold-out 0 --budget 2 --dictionary-max 30 --verbose"
    return run(folder, f"fit t.csv {options} --out m")


def jolt(folder: Path) -> str:
    rows = walks(wave)
    rows[75] = (*rows[75][:2], 300.0)
    write(folder / "t.csv", "x,z", rows)
    return run(folder, f"fit t.csv --state x,z {FIT} {EVIDENCE} --hold-out 0 --out m")


def swing(state: str) -> Callable[[Path], str]:
    """A damped and shaken swing: where it will be depends on where it is and on its speed."""

    def said(folder: Path) -> str:
        random, rows = np.random.default_rng(3), []
        for episode in range(110):
            y, v = random.uniform(-1, 1, 2)
            for _ in range(26):
                rows.append((episode, [float(y), float(v)], float(y)))
                y, v = y + 0.3 * v, v - 0.3 * y - 0.03 * v + 0.05 * random.normal()
        write(folder / "t.csv", "y,v", rows)
        options = "--episode episode --discount 0.9 --kernel isotropic --linear-columns never --budget 0.5 --hold-out 0"
        return run(folder, f"fit t.csv --state {state} {options} --out m")

    return said


def moods(folder: Path) -> str:
    """Each episode has a level of its own, which no variable shows."""
    levels = np.random.default_rng(1).standard_t(2, 40) * 3
    rows = [(episode, state, reward + float(levels[episode])) for episode, state, reward in walks(wave, length=12)]
    write(folder / "t.csv", "x,z", rows)
    return run(folder, f"fit t.csv --state x,z {FIT} {EVIDENCE} --out m")


def weighted(behaviour: Callable[[int], str], *, refused: bool = False) -> Callable[[Path], str]:
    def said(folder: Path) -> str:
        write(folder / "t.csv", "x,z", walks(wave, 60), columns=",target_prob,behavior_prob", more=behaviour)
        return run(folder, f"fit t.csv --state x,z {FIT} --hold-out 0 --out m", refused=refused)

    return said


def scattered(elements: int) -> Callable[[Path], str]:
    """Waves along both variables: more hills and valleys than twelve states can tell."""

    def said(folder: Path) -> str:
        random = np.random.default_rng(11)
        states = random.uniform(-1, 1, (900, 2)).tolist()
        value = [np.sin(9 * x) * np.cos(9 * z) + 0.1 * random.normal() for x, z in states]
        write(folder / "t.csv", "x,z", [(i, states[i], float(value[i])) for i in range(900)], ends=True)
        options = f"--kernel-profile gaussian --evidence-rows 300 --dictionary-max {elements} {POINTS}"
        return run(folder, f"fit t.csv --state x,z {EVIDENCE} {options}")

    return said


def jumps(folder: Path) -> str:
    """Nothing is left to chance, and the values of neighbours have nothing in common."""
    value = np.random.default_rng(10).uniform(-1, 1, 400)
    rows = "".join(f"{i},{i // 2},{i // 2 + 1},{value[i // 2]},1\n" for i in range(800))
    (folder / "t.csv").write_text("episode,x,next_x,reward,terminated\n" + rows)
    options = f"--next-state next_x --kernel isotropic --linear-columns never --evidence-rows 800 {POINTS}"
    return run(folder, f"fit t.csv --state x {EVIDENCE} {options}")


def scored(most: int) -> Callable[[Path], str]:
    """The evidence of a kernel that was given, through so many states."""

    def said(folder: Path) -> str:
        write(folder / "t.csv", "x,z", walks(wave))
        kernel = '{"kind": "ard", "signal_variance": 1, "bias_variance": 1, "relevance": [1, 0.2]}'
        noise = '{"model": "correlated", "variance": 0.05}'
        (folder / "h.json").write_text(f'{{"kernel": {kernel}, "noise": {noise}}}')
        table = "score t.csv --state x,z --episode episode --discount 0.6"
        return run(folder, f"{table} --hyperparameters h.json --evidence sparse --dictionary-max {most}")

    return said


def trend(line: str) -> Callable[[Path], str]:
    """A value that goes on as a line."""

    def said(folder: Path) -> str:
        write(folder / "t.csv", "x,z", walks(lambda state, random: 3 * state[0] + 0.1 * random.normal()))
        options = f"--episode episode --discount 0.6 --hold-out 0 --linear-columns {line} --verbose --out m"
        return run(folder, f"fit t.csv --state x,z {options}")

    return said


def coins(folder: Path) -> str:
    """A reward of 1 and one of -1 came in each state: what rounding leaves of its value depends on nothing."""
    write(folder / "t.csv", "x", [(i, [float(i // 2)], float(1 - 2 * (i % 2))) for i in range(800)], ends=True)
    return run(folder, f"fit t.csv --state x {EVIDENCE} --linear-columns never {POINTS}")


def places(seen: Callable[[int], int]) -> Callable[[Path], str]:
    """A walk over 24 places of which this is seen."""

    def said(folder: Path) -> str:
        random, rows = np.random.default_rng(15), []
        for episode in range(150):
            at = int(random.integers(24))
            for _ in range(40):
                rows.append((episode, [float(seen(at))], float(at / 9 - 1 + random.uniform(-1, 1))))
                at = min(at + 1, 23) if random.random() < 0.5 else max(at - 1, 0)
        write(folder / "t.csv", "x", rows)
        options = "--episode episode --discount 0.9 --linear-columns never --hold-out 0 --verbose --out m"
        return run(folder, f"fit t.csv --state x {options}")

    return said


def refitted(
    episodes: list[tuple[Any, Any]], critic: str, *, how: str = "truncated", parts: int = 1
) -> Callable[[Path], str]:
    """What a daemon says that learns episodes of states and rewards, the state at the end among them, and refits after each part."""

    def said(folder: Path) -> str:
        states = np.shape(episodes[0][0])[1]
        quiet = "refit_first_rows = 0\nrefit_score_drop = 0\nrefit_budget_s = 60"
        config = f'state_dim = {states}\n[[critic]]\nname = "main"\n{quiet}\n{critic}\n'
        daemon = Daemon(folder / "d", config=config)
        try:
            push, control, seq, out = daemon.push(), daemon.control(), 0, ""
            size = len(episodes) // parts
            for first in range(0, size * parts, size):
                for visited, rewards in episodes[first : first + size]:
                    ends = np.arange(len(rewards)) == len(rewards) - 1
                    batch = {"states": np.array(visited), "rewards": np.array(rewards), how: ends}
                    push.send(pack({"stream": "s", "session": "r", "seq": seq, **batch}))
                    seq += len(rewards)
                control.wait_for_learned(seq)
                control.ask("refit", wait=True, timeout_s=PATIENCE_S)
                last = control.ask("status")["critics"][0]["refit"]["last"]
                out += " ".join(last["findings"]) + " "
            return out + run(folder, f"status --data-dir {folder / 'd' / 'data'}")
        finally:
            daemon.close()

    return said


def points(value: Callable[[float], float]) -> list[tuple[Any, Any]]:
    random = np.random.default_rng(0)
    return [([[x], [x]], [value(x) + 0.01 * random.normal()]) for x in random.uniform(size=600)]


def twofold(head: Callable[[float, float, int], float]) -> Callable[[Path], str]:
    """A value that changes slowly with the state, and three heads that sum these."""
    random, episodes = np.random.default_rng(5), []
    for _ in range(30):
        x, y = random.uniform(-1, 1, 2)
        visited, rewards = [[x, y]], []
        for _ in range(20):
            sums = [np.sin(x + 0.6 * y), *(head(x, y, k) for k in range(1, 4))]
            rewards.append(np.array(sums) + 0.1 * random.normal(size=4))
            x, y = np.clip([x + 0.3 * random.normal(), y + 0.3 * random.normal()], -1, 1)
            visited.append([x, y])
        episodes.append((visited, rewards))
    kernel = 'kernel = "isotropic"\nkernel_profile = "gaussian"\ndictionary_max = 150\nevidence_rows = 150\nsearch_starts = 1'
    each = (f'{{name = "h{k}", cumulant = {{kind = "reward", index = {k}}}, discount = 0.0}}' for k in range(1, 4))
    return refitted(episodes, f"{kernel}\ndiscount = 0.3\nrewards = [0]\nheads = [{', '.join(each)}]")


def again(parts: int) -> Callable[[Path], str]:
    """Refits of rows of one world: the first one selects, and those after it find what there is."""
    random, episodes = np.random.default_rng(0), []
    for _ in range(40):
        x = [random.normal()]
        for _ in range(20):
            x.append(0.8 * x[-1] + 0.5 * random.normal())
        rewards = np.sin(2 * np.array(x[:-1])) + 0.1 * random.normal(size=20)
        episodes.append((np.array(x)[:, None], rewards))
    return refitted(episodes, "discount = 0.5", parts=parts)


def lacking(rows: Rows, options: str = EVIDENCE) -> Callable[[Path], str]:
    """Rows of which nothing can be selected."""

    def said(folder: Path) -> str:
        write(folder / "t.csv", "x", rows)
        return run(folder, f"fit t.csv --state x {FIT} --hold-out 0 {options} --out m", refused=True)

    return said


def judged(
    options: str = "", episodes: int = 150, length: int = 3, acts: float = 0.5, target: float = 0.6, **planted: Any
) -> Callable[[Path], str]:
    """Action 1 was taken with probability `acts`, and the policy that is judged takes it with `target`."""

    def said(folder: Path) -> str:
        random, lines = np.random.default_rng(0), ["episode,x,action,behavior_prob,reward,terminated,truncated"]
        for episode in range(episodes):
            x = random.normal()
            for t in range(length):
                action = int(random.random() < acts)
                prob = planted.get("claimed", acts if action else 1 - acts)
                reward = (
                    float(random.random() < 0.01)
                    if planted.get("rare")
                    else x * (2 * action - 1) + 0.1 * random.normal()
                )
                lines.append(f"{episode},{x},{action},{prob},{reward},{int(t == length - 1)},0")
                x = 0.8 * x + 0.5 * random.normal()
        (folder / "t.csv").write_text("\n".join(lines) + "\n")
        (folder / "p.csv").write_text("prob_0,prob_1\n" + f"{1 - target},{target}\n" * (len(lines) - 1))
        return run(folder, f"evaluate t.csv --policy p.csv {JUDGED} {options}")

    return said


def moved(
    command: str,
    episodes: int = 40,
    length: int = 12,
    *,
    fresh: bool = False,
    noise: float = 0.05,
    model: str = f"{WORLD} --model-elements 60",
) -> Callable[[Path], str]:
    """A place that action 1 raises and action 0 lowers; fresh: a new one in each row."""

    def said(folder: Path) -> str:
        random, lines = np.random.default_rng(0), ["episode,x,action,reward,terminated,truncated"]
        for episode in range(episodes):
            x = random.uniform(-1, 1)
            for t in range(length):
                action = int(x < 0)
                lines.append(f"{episode},{x},{action},{-abs(x)},0,{int(t == length - 1)}")
                step = 0.2 * (2 * action - 1) + noise * random.normal()
                x = random.uniform(-1, 1) if fresh else 0.9 * x + step
        (folder / "t.csv").write_text("\n".join(lines) + "\n")
        return run(folder, f"{command} {model}")

    return said


def driven(command: str, episodes: int, length: int, drift: float) -> Callable[[Path], str]:
    """A place that drifts out of where episodes begin; the policy that is judged pushes it further."""

    def said(folder: Path) -> str:
        random, lines = np.random.default_rng(0), ["episode,x,action,behavior_prob,reward,terminated,truncated"]
        for episode in range(episodes):
            x = random.uniform(-1, 1)
            for t in range(length):
                action = int(random.random() < 0.5)
                lines.append(f"{episode},{x},{action},0.5,{-abs(x)},0,{int(t == length - 1)}")
                x = 0.95 * x + 0.2 * (2 * action - 1) + 0.05 * random.normal() + drift
        (folder / "t.csv").write_text("\n".join(lines) + "\n")
        (folder / "p.csv").write_text("prob_0,prob_1\n" + "0.1,0.9\n" * (episodes * (length - 1)))
        options = f"{WORLD} --model-elements 60 --actions discrete:2 --policy p.csv"
        return run(folder, f"{command} {options}")

    return said


def demo(options: str) -> Callable[[Path], str]:
    def said(folder: Path) -> str:
        return run(folder, f"demo gridworld --copies 1 --rate 2000 --out grid.png {options}")

    return said


def chain(discount: float, options: str) -> Callable[[Path], str]:
    """Five states in a row, each with a feature of its own: V* needs the second, third and fourth."""

    def said(folder: Path) -> str:
        first = -discount - discount**2 - discount**3
        rows = [f"{','.join(map(str, row))},{r},{int(row[4])}" for row, r in zip(np.eye(5), [first, 1, 1, 1, 0])]
        (folder / "t.csv").write_text("\n".join(["a,b,c,d,e,reward,terminated", *rows]) + "\n")
        return run(folder, f"features t.csv --state a,b,c,d,e --discount {discount} {options}")

    return said


def split(frequency: float) -> Callable[[Path], str]:
    """A value that changes slowly with the state, and three heads, which change as fast as this."""

    def said(folder: Path) -> str:
        random, lines = np.random.default_rng(5), ["stream,seq,x,y,reward,truncated"]
        labels = ["stream,seq,one,two,three"]
        for episode in range(30):
            x, y = random.uniform(-1, 1, 2)
            for t in range(20):
                lines.append(f"{episode},{t},{x},{y},{np.sin(x + 0.6 * y) + 0.1 * random.normal()},{int(t == 19)}")
                waves = [np.sin(frequency * x + k) * np.cos(frequency * y - k) + 0.1 * random.normal() for k in range(3)]
                labels.append(f"{episode},{t},{waves[0]},{waves[1]},{waves[2]}")
                x, y = np.clip([x + 0.3 * random.normal(), y + 0.3 * random.normal()], -1, 1)
        (folder / "t.csv").write_text("\n".join(lines) + "\n")
        (folder / "labels.csv").write_text("\n".join(labels) + "\n")
        each = ({"name": name, "discount": 0.0, "cumulant": {"kind": "column", "file": "labels.csv", "column": name}}
                for name in ("one", "two", "three"))
        (folder / "heads.json").write_text(json.dumps(list(each)))
        options = "--kernel isotropic --kernel-profile gaussian --dictionary-max 150 --evidence-rows 150 --hold-out 0"
        table = "fit t.csv --state x,y --discount 0.3 --heads heads.json"
        return run(folder, f"{table} {options} --split fast --out slow")

    return said


Led = Callable[[float, float, float, float], float]


def nothing(own: float, after: float, first: float, target: float) -> float:
    return 0.0


def targets(
    cut: Led, end: Led = nothing, options: str = "--returns returns", *, held: bool = False, **changes: Any
) -> Callable[[Path], str]:
    """Episodes with advantages by GAE, of which every third is cut. What follows an end is made of the value of its row's state, of the
    next one, and of the value and target of the first row of the next episode. held: rewards hold it."""

    def said(folder: Path) -> str:
        random, lines, first, target = np.random.default_rng(0), [], 0.0, 0.0
        for episode in reversed(range(30)):
            length, limit = changes.get("length", 8 + episode % 7), episode % 3 == 0
            x, r = random.normal(size=length + 1), -0.5 + 0.2 * random.normal(size=length)
            v, advantage = -5 + 0.5 * x, 0.0
            for t in reversed(range(length)):
                last = t + 1 == length
                led = 0.9 * ((cut if limit else end)(v[t], v[t + 1], first, target) if last else v[t + 1])
                advantage = r[t] + led - v[t] + (0 if last else 0.9 * 0.95 * advantage)
                given = r[t] + (led if held and limit and last else 0)
                flags = f"{int(last and not limit)},{int(last and limit)}"
                scaled = advantage * changes.get("scale", 1.0)
                lines.append(f"{episode},{x[t]},{x[t + 1]},{given},{flags},{v[t]},{scaled},{advantage + v[t]}")
            first, target = v[0], advantage + v[0]
        header = "episode,x,next_x,r,over,limit,values,advantages,returns"
        (folder / "t.csv").write_text("\n".join([header, *reversed(lines)]) + "\n")
        columns = f"--state x --reward r --episode episode --terminated over --truncated limit {options}"
        discount = changes.get("discount", 0.9)
        values = "" if changes.get("whole") else "--values values"
        refused = changes.get("refused", True)
        return run(folder, f"check-targets t.csv {columns} {values} --discount {discount}", refused=refused)

    return said


JUDGE = "evaluate t.csv --by model --discount 0.9 --budget 1"
BETTER = (
    "fit t.csv --inputs state_action --actions discrete:2 --successor improve --hold-out 0 --budget 1 --dictionary-max 60"
    " --state x --episode episode --out q"
)
QUICK = f"{EVIDENCE} --hold-out 0"
WORLDS: dict[str, Callable[[Path], str]] = {
    "idle z": fit(wave, EVIDENCE),
    "idle z, long": fit(wave, EVIDENCE, 30, 14),
    "z counts": fit(lambda s, r: wave(s, r) + s[1], EVIDENCE, 30, 14),
    "idle z, auto": fit(wave, f"{QUICK} --kernel auto"),
    "noise": fit(lambda s, r: r.normal(), EVIDENCE, 30, 14),
    "one episode": fit(wave, EVIDENCE, 1, 200),
    "exact": decay,
    "way home": home,
    "all rows": fit(wave, f"{QUICK} --evidence sparse"),
    "hurry, evidence": fit(wave, f"{QUICK} --evidence-rows 80 --budget 0.001"),
    "hurry": fit(wave, "--hold-out 0 --budget 0.01"),
    "returns": fit(wave, "--hold-out 0"),
    "given elements": given,
    "louder": louder,
    "other streams": others,
    "few elements": fit(wave, f"{QUICK} --dictionary-max 4"),
    "two directions": fit(wave, f"{QUICK} --kernel factor:2 --budget 60"),
    "two directions, hurry": fit(wave, f"{QUICK} --kernel factor:2 --budget 0.001"),
    "better actions": moved(f"{BETTER} --discount 0.5", 20, model=""),
    "better actions, far ahead": moved(f"{BETTER} --discount 0.9", 20, model=""),
    "better actions, coarsely": moved(
        f"{BETTER} --discount 0.5 --kernel-profile gaussian --tolerance 0.9", 20, model=""
    ),
    "odd": odd("x,z,copy,near,still,faint,wild"),
    "twice": odd("x,copy", "--kernel isotropic"),
    "jolt": jolt,
    "flip": flip,
    "moods": moods,
    "swing without speed": swing("y"),
    "swing": swing("y,v"),
    "unequal weights": weighted(lambda i: "0.9,0.0001" if i % 50 == 0 else "0.0001,0.9"),
    "equal weights": weighted(lambda i: "0.5,0.5"),
    "judged": judged(),
    "judged, few": judged(episodes=60, target=0.99),
    "judged, wrongly": judged(claimed=0.9),
    "judged, rarely paid": judged(rare=True),
    "judged, few rows": judged("--grow-max 0", episodes=10, length=2),
    "judged, coarsely": judged("--dictionary-max 3 --grow-max 0"),
    "judged, never done": judged(acts=0.0, target=0.9),
    "judged twice": judged("--by both --model-elements 60 --model-successors 40", episodes=100),
    "judged far from its rows": driven(JUDGE, 20, 3, 0.5),
    "judged beyond its rows": driven(JUDGE, 60, 8, 0.3),
    "few elements, many hills": scattered(12),
    "many elements, many hills": scattered(300),
    "jumps": jumps,
    "coins": coins,
    "scored by few": scored(4),
    "scored by enough": scored(200),
    "line": trend("always"),
    "no line": trend("never"),
    "hidden": places(lambda at: 6 * (at // 6)),
    "nothing hidden": places(lambda at: at),
    "weights of a billion": weighted(lambda i: "1,1e-9"),
    "no weights": weighted(lambda i: "0,0.5", refused=True),
    "one state": lacking([(0, [1.0], float(i % 3)) for i in range(60)]),
    "one return": lacking([(i // 5, [float(i)], 0.0) for i in range(60)]),
    "four rows": lacking([(0, [float(i)], float(i)) for i in range(4)]),
    "judged where mass grows": driven(JUDGE.replace("0.9", "0.5"), 30, 5, 0.1),
    "wave in a half": refitted(
        points(lambda x: float(np.sin(40 * x) * (1 if x < 0.5 else 0.05))),
        "discount = 0.0\ndictionary_max = 12",
        how="terminated",
    ),
    "wave all over": refitted(
        points(lambda x: float(np.sin(5 * x))), "discount = 0.0\ndictionary_max = 12", how="terminated"
    ),
    "rough heads": twofold(lambda x, y, k: np.sin(6 * x + k) * np.cos(5 * y - k)),
    "smooth heads": twofold(lambda x, y, k: np.sin(x + 0.6 * y + k)),
    "refitted": again(1),
    "refitted again": again(2),
    "plan": moved("plan t.csv --actions discrete:2 --discount 0.9 --out q"),
    "plan, jump": moved(
        "plan t.csv --actions discrete:2 --discount 0.9 --out q --reward=(x>0.5)", model=f"{WORLD} --model-elements 5"
    ),
    "plan, few rows": moved("plan t.csv --actions discrete:2 --discount 0.9 --out q", 3, 5),
    "course": moved("rollout t.csv --steps 4", noise=0.0),
    "course, short": moved("rollout t.csv --steps 6", 200, 3, noise=0.0),
    "course, fresh": moved("rollout t.csv --steps 4", fresh=True),
    "course, beyond its rows": driven("rollout t.csv --steps 6", 60, 8, 0.3),
    "course, few": moved("rollout t.csv --steps 4", 6, 4),
    "demo": demo("--seconds 15"),
    "demo, nothing selected": demo("--seconds 2 --set critic.refit_first_rows=0"),
    "chain": chain(0.65, ""),
    "chain, near": chain(0.5, "--by omp-brm"),
    "chain, one feature": chain(0.65, "--features-max 1"),
    "chain, no feature": chain(0.65, "--by omp-td --beta 0.3"),
    "chain without end": chain(1.0, "--by omp-brm"),
    "fast heads": split(6.0),
    "slow heads": split(0.5),
    "targets": targets(lambda own, after, first, target: after, refused=False),
    "targets, done": targets(nothing),
    "targets, own value": targets(lambda own, *_: own),
    "targets, no end": targets(*2 * [lambda own, after, first, target: target]),
    "targets, behind the reset": targets(lambda own, after, first, target: first),
    "targets, held": targets(lambda own, after, *_: after, held=True, refused=False),
    "targets, success": targets(*2 * [lambda own, after, first, target: after]),
    "targets, success as it is": targets(*2 * [lambda own, *_: own]),
    "targets, whole": targets(lambda own, after, *_: after, whole=True),
    "targets, normalised": targets(
        lambda own, after, *_: after, options="--advantages advantages", scale=3.0
    ),
    "targets, another discount": targets(lambda own, after, *_: after, discount=0.7),
    "targets, single rows": targets(lambda own, after, *_: after, length=1, refused=False),
}

SENTENCES: list[tuple[str, str, str]] = [
    # What `fit` says of its model, with its advice.
    ("prediction error unknown: there are too few episodes to hold one out", "one episode", "idle z"),
    ("predicts the returns of", "idle z", "one episode"),
    ("(mostly the model's own values: episodes are cut long before rewards fade)", "idle z", "idle z, long"),
    ("value-order correlation (VOC), of value and time within an episode:", "way home", "idle z"),
    ("value depends on:", "idle z", "coins"),
    ("value depends on no variable: it is the same in every state", "coins", "idle z"),
    ("could be removed: held-out episodes are predicted as well without", "idle z, long", "z counts"),
    ("the model predicts little: check reward", "noise", "idle z, long"),
    ("the intervals had to be widened much", "moods", "idle z"),
    ("the budget ended the search: a larger --budget", "hurry", "returns"),
    ("what follows depends on more than the state", "swing without speed", "swing"),
    ("; add what is missing to the state, such as a speed", "swing without speed", "swing"),
    ("leaves a trace gap of", "few elements", "idle z"),
    ("the dictionary is full and", "few elements", "idle z"),
    ("a larger --dictionary-max may predict better", "few elements", "idle z"),
    ("and values no longer change", "better actions", "better actions, far ahead"),
    (
        "and values still change: what is written is the mean of the last 5",
        "better actions, far ahead",
        "better actions",
    ),
    ("a smaller --tolerance closes it", "better actions, coarsely", "better actions"),
    ("these intervals were too", "flip", "idle z, long"),
    (": the dictionary is small for this table, see --dictionary-max", "few elements", "idle z"),
    (": the dictionary given is small for this table", "given elements", "few elements"),
    (": the dictionary is coarse for this table", "unequal weights", "equal weights"),
    ("is active: the data call for a value beyond it", "exact", "idle z"),
    (", stopped by --budget", "hurry", "returns"),
    # Findings of a selection.
    ("selected by the exact evidence of", "idle z", "returns"),
    ("selected by the variational bound of all", "all rows", "idle z"),
    ("selected by held-out returns of", "returns", "idle z"),
    ("where other streams begin: all rows were learned", "other streams", "louder"),
    ("but returns since are predicted no better without the rows before", "louder", "returns"),
    (": the budget ended before the bound of all rows", "hurry, evidence", "all rows"),
    ("the budget ended the search: the best result by then won", "hurry", "returns"),
    ("elements miss", "few elements", "idle z"),
    ("the noise estimate is at its floor", "exact", "idle z"),
    ("directions asked for:", "two directions, hurry", "two directions"),
    ("move together (", "odd", "idle z"),
    ("varies by less than", "odd", "idle z"),
    ("has outliers: the middle 98 % of its values set its scale", "odd", "idle z"),
    ("returns have outliers", "jolt", "idle z"),
    ("some state variables are copies of others", "twice", "odd"),
    ("importance ratios differ so much", "unequal weights", "equal weights"),
    ("cannot represent what the data support", "few elements, many hills", "many elements, many hills"),
    ("the evidence collapses: without the floors", "jumps", "exact"),
    ("one-step values (lambda 0) miss", "hidden", "nothing hidden"),
    ("importance ratios average", "weights of a billion", "equal weights"),
    # What a daemon's refit says.
    ("which is full: the squared error of later returns is", "wave in a half", "wave all over"),
    ("kernel selected by the evidence of", "smooth heads", "refitted"),
    (" a kernel of their own, which gains", "rough heads", "smooth heads"),
    ("predicts better, but by no more than the standard error, or than rounding", "refitted again", "refitted"),
    # Of the model itself, and of a kernel that was given.
    (", more would be needed: --dictionary-max", "scored by few", "scored by enough"),
    (", linear columns of variance", "line", "no line"),
    ("targets contain the model's own values", "no line", "many elements, many hills"),
    ("nats, of the rows through the dictionary", "many elements, many hills", "no line"),
    # Why there is no model.
    ("every transition starts in the same state", "one state", "one return"),
    ("all returns are the same: every state is worth the same", "one return", "one state"),
    (" rows, at least", "four rows", "one return"),
    ("rows have a target_prob above 0, at least", "no weights", "equal weights"),
    # What it says of each variable.
    ("z is removed: the evidence does not drop without it", "idle z, auto", "idle z"),
    ("still never changes: its effect cannot be learned", "odd", "idle z"),
    ("copy is removed: it is a copy of", "odd", "twice"),
    ("x: lengthscale", "idle z, long", "one return"),
    ("; without it the evidence drops by", "idle z", "one return"),
    ("; without it the evidence does not drop", "noise", "z counts"),
    ("direction 1: 1.00 x, strength", "two directions", "idle z"),
    # Another policy, judged.
    ("no interval: the episodes are worth", "judged, few", "judged"),
    ("no interval: weights have the mean", "judged, wrongly", "judged"),
    ("no interval of the fitted Q: its dictionary of", "judged, coarsely", "judged"),
    ("rows decide", "judged, few rows", "judged"),
    ("far from everything that was done there", "judged, never done", "judged"),
    ("what was earned is worth", "judged, rarely paid", "judged"),
    ("no estimate of the model:", "judged beyond its rows", "judged twice"),
    ("no interval of the model:", "judged far from its rows", "judged twice"),
    ("fqe and the model share rows", "judged twice", "judged"),
    ("doubt the values; more rows or elements mend it", "judged where mass grows", "judged twice"),
    # Plans and courses.
    ("prefers the plan's action in", "plan", "course"),
    ("the reward jumps, or actions hardly differ", "plan, jump", "plan"),
    ("the plan stands within its bounds, and the model has no deviations", "plan, few rows", "plan"),
    ("the sweeps did not come to rest", "plan, few rows", "plan"),
    ("believe the course no further than its reach", "course, beyond its rows", "course"),
    ("not even one step", "course, fresh", "course"),
    ("not known: too few held-out rows", "course, few", "course"),
    ("no held-out chains are longer", "course, short", "course"),
    # A demo.
    ("; before its first model selection it erred by", "demo", "demo, nothing selected"),
    ("of single returns lie within their 90 % interval", "demo", "demo, nothing selected"),
    # Features.
    (": if V* needs no other features", "chain, near", "chain"),
    (": no theorem says that these are the only ones needed", "chain", "chain, near"),
    (": --features-max ended the choice", "chain, one feature", "chain"),
    (": no feature correlates with the reward", "chain, no feature", "chain"),
    (" from V*, if the next state is certain", "chain", "chain without end"),
    # Heads of a table.
    ("two kernels would gain", "slow heads", "fast heads"),
    ("two kernels gain", "fast heads", "slow heads"),
    # Somebody's targets.
    ("rows inside episodes follow", "targets", "targets, whole"),
    ("rows inside episodes do not follow", "targets, whole", "targets"),
    ("nothing follows, which is right", "targets", "targets, success"),
    ("nothing follows, as if they terminated", "targets, done", "targets, held"),
    ("the target of the next episode follows", "targets, no end", "targets"),
    ("the value of the next episode's first state follows", "targets, behind the reset", "targets"),
    ("the value of the row's own state follows; nothing should", "targets, success as it is", "targets, own value"),
    ("state follows, in the place of the next one's", "targets, own value", "targets"),
    ("and the rewards hold the discounted value already", "targets, held", "targets, done"),
    ("something follows; nothing should", "targets, success", "targets"),
    ("that may be the value of the next state: right", "targets", "targets, done"),
    (". The targets of these rows are off by", "targets, done", "targets"),
    (". If they are lambda-returns, name the values", "targets, whole", "targets, normalised"),
    (". If they were normalised, take those from before", "targets, normalised", "targets, whole"),
    (". Are --discount and the reward those that", "targets, another discount", "targets, normalised"),
    ("no row has a successor in its episode", "targets, single rows", "targets"),
]

PLANTED: dict[str, tuple[str, str]] = {
    # Part of a sentence: the file of the test that plants its truth, and what that test looks for.
    "the world changes about row": ("tests/it/own_table.rs", "the world changes about row"),
    "if the table holds several policies one after the other": ("tests/it/own_table.rs", "the world changes about row"),
    "episodes terminate after exactly": ("tests/it/own_table.rs", "episodes terminate after exactly 6 rows"),
    " comes back to the same after ": ("tests/it/core.rs", "comes back to the same after 7."),
    " yet, which they must go through": ("tests/it/core.rs", "show no period of state_0 yet"),
    "; the written model ranks actions, and what the plan is worth is not known": ("tests/it/plans.rs", "what the plan is worth is not known"),
    ", of this plan by the model that is not projected": ("tests/it/plans.rs", "by the model that is not projected"),
    "none: the projected model has no values": ("tests/it/plans.rs", "none: the projected model has no values"),
    " (ranks of actions, no values)": ("tests/it/plans.rs", "ranks of actions, no values"),
    "the kernel bends what is far from normal: ": ("crates/protocol/src/wire/wording.rs", "price, size; state_kinds"),
    ", which keeps ": ("crates/protocol/src/wire/wording.rs", "keeps 6.30 from before"),
    "truncated rows the next state is": ("tests/it/own_table.rs", "after 29 of 29 truncated rows the next state"),
}
# Where a sentence is made, and what stands there that is none: headings, parts of others, refusals of options, bugs, why a refit has no model.
SAID = {
    "src/commands/fit/report.rs": "others less|^Next|^\\S* ?error of later returns|--verbose shows|half-life|criticd inspect|^held-out error|evaluations on",
    "src/commands/held_out.rs": "held-out episode$",
    "crates/protocol/src/wire/wording.rs": "at its .* bound|^no hyper|^not enough|^the settings|^the rebuilt|^all rows start|^the returns are|^every head|^state_kinds|^correlations of|standard deviations\\)$",
    "src/commands/fit/search.rs": "^importance ratios of|^behavior_prob|^cannot select a model",
    "src/commands/score.rs": "go with --ev|^behavior_prob|names lambda|given as dictionary|selected at|above 5|Next|^computing",
    "crates/learner/src/off_policy.rs": "^a policy is|^columns of",
    "src/commands/evaluate/model.rs": "^--by",
    "src/commands/plan.rs": "^--heads|^--project|^transition|^a discount|^learning|^a plan is|reward of the rows|^--reward|learned from|at the starts|at a bound|from the starts|^the written model$|Next|^--actions|without a plan$",
    "crates/learner/src/world/known.rs": "^$",
    "src/commands/world.rs": "^--critic is for|is for a table: a daemon|^--dry-run|is of a pursuit|^--model-|a share of 0 or more|which express all rows|a row has the discount|^transition|another one continues|states with actions|held-out error|of the variance",
    "src/commands/demo/report.rs": "^[a-z_]+$|^From|^generation|^learning stood|nats on|states of at most|before the first refit|^against|received",
    "src/commands/features.rs": "^--state|^behavior_prob|^width|^the equations|root mean square|^largest",
    "src/commands/fit/with_heads.rs": "^--|^no head|^transition|^nothing to select|more heads|^std",
    "src/commands/check_targets.rs": "^the targets of all rows|^targets are wrong|^\\{of\\}|^no episode|the largest error",
    # What it says of rewards, of the selection and of returns test_status_sentences.py plants: one function says it in both.
    "src/commands/inspect.rs": "Next|^a directory|^a daemon|bytes|^not a model|^has no heads|^no head|^all rewards|^model selection has|^their spread|"
    "^; before that|^deviations times|^\\{kind\\}|transitions, discount|since adoption|learned about$|deviations of returns times",
    # Its {checked} rows are held-out ones above.
    "src/commands/rollout.rs": "^learning|^--|its actions are|of what follows|\\{checked\\}|^value at the starts$",
}
UNCHOSEN = "no refit has chosen this model yet"
TRUST = "crates/daemon/src/monitor/trust.rs"
LITERAL = re.compile(r'//[^\n]*|#\[(?:arg|command)\((?:[^"\]]|"(?:\\.|[^"\\])*")*\)\]|"((?:\\.|[^"\\])*)"', re.DOTALL)


def sentences(path: str) -> list[str]:
    """What stands in quotes in a source outside its tests and options, if it has three words or more beside what it fills in."""
    source = (ROOT / path).read_text().split("#[cfg(test)]\nmod tests")[0]
    found = (re.sub(r"\\\n\s*", "", each) for each in LITERAL.findall(source))
    return [each for each in found if len(re.findall("[A-Za-z]{2,}", re.sub(r"\{[^}]*\}", "", each))) >= 3]


@pytest.mark.parametrize("world", WORLDS)
def test_what_is_true_is_said_and_nothing_else(tmp_path: Path, world: str) -> None:
    said = WORLDS[world](tmp_path)
    missing = [words for words, true_in, _ in SENTENCES if true_in == world and words not in said]
    wrong = [words for words, _, false_in in SENTENCES if false_in == world and words in said]
    assert not missing and not wrong, f"not said: {missing}; said wrongly: {wrong}; all: {said}"


def test_no_status_says_of_a_model_what_was_true_before_it(start: Start) -> None:
    """The monitor judges each second, and a model may come in between."""
    daemon = start(config='state_dim = 1\n[[critic]]\nname = "main"\nrefit_first_rows = 0\nrefit_score_drop = 0\n')
    push, control, seen = daemon.push(), daemon.control(), 0
    when(lambda: control.ask("status")["critics"][0]["trust"], "a judgement before there is a model")
    push.send(pack({"stream": "s", "states": np.sin(np.arange(201.0))[:, None], "rewards": np.cos(np.arange(200.0))}))
    while seen < 3:
        (critic,) = control.ask("status")["critics"]
        if critic["generation"] and critic["trust"]:
            seen += 1
            said = critic["trust"][0]["sentence"]
            assert "There is no model yet" not in said, critic
            assert UNCHOSEN not in said or critic["generation"] == 1, critic
            if critic["generation"] == 1:
                control.ask("refit", wait=True, timeout_s=PATIENCE_S)


def test_every_sentence_of_the_sources_has_its_truth() -> None:
    assert {world for _, *worlds in SENTENCES for world in worlds} == set(WORLDS)
    for words, (path, looked_for) in PLANTED.items():
        assert looked_for in (ROOT / path).read_text(), f"{words}: {path} looks no more for {looked_for}"
    known = [words for words, *_ in SENTENCES] + [*PLANTED]
    parts = [part for words in known for part in (words, re.sub(r"^(z|x|still|copy|direction 1:.*,) ", "", words))]
    unknown = [
        each
        for path, other in SAID.items()
        for each in sentences(path)
        if not re.search(other, each) and not any(part in each for part in parts)
    ]
    # The line of trust has its truths beside it: four words of each sentence, or all where there are fewer.
    tests = (ROOT / TRUST).read_text().split("#[cfg(test)]\nmod tests")[1]
    for each in sentences(TRUST):
        runs = [part.split() for part in re.split(r"\{[^}]*\}", each.replace('\\"', '"'))]
        size = min(4, max(map(len, runs)))
        if not any(" ".join(run[k : k + size]) in tests for run in runs for k in range(len(run) - size + 1)):
            unknown.append(each)
    assert not unknown, "\n".join(unknown)
