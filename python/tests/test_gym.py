"""What environments do is what the daemon gets: every step once, no reset, the true successor at every end."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import gymnasium
import numpy as np
import pytest
from conftest import CALM, PATIENCE_S, ROOT, Catcher, Start
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv

from criticd import CriticdError, Invalid, Sender
from criticd.gym import StreamedVector, wrap, wrap_vector

STEPS = 20_000


def cartpole_after(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """Where a push leads, from the equations of the cart and pole."""
    x, speed, angle, spin = states.T
    force = np.where(actions == 1, 10.0, -10.0)
    push = (force + 0.05 * spin**2 * np.sin(angle)) / 1.1
    turn = (9.8 * np.sin(angle) - np.cos(angle) * push) / (0.5 * (4.0 / 3.0 - 0.1 * np.cos(angle) ** 2 / 1.1))
    drive = push - 0.05 * turn * np.cos(angle) / 1.1
    return np.stack([x + 0.02 * speed, speed + 0.02 * drive, angle + 0.02 * spin, spin + 0.02 * turn], axis=1)


def cartpoles(mode: AutoresetMode, copies: int, vectorised: str) -> VectorEnv[Any, Any, Any]:
    options = {"autoreset_mode": mode} if vectorised != "vector_entry_point" else {}
    return gymnasium.make_vec("CartPole-v1", copies, vectorization_mode=vectorised, vector_kwargs=options)


def drive(envs: StreamedVector, rows: int, generator: np.random.Generator) -> int:
    """Push at random until enough transitions have happened; how many episodes ended."""
    envs.reset(seed=7)
    ended = 0
    while envs.rows < rows:
        _, _, terminated, truncated, _ = envs.step(generator.integers(2, size=envs.num_envs))
        ends = np.logical_or(terminated, truncated)
        ended += int(ends.sum())
        if envs.mode is AutoresetMode.DISABLED and ends.any():
            envs.reset(options={"reset_mask": ends})
    return ended


KINDS = [(mode, "sync") for mode in AutoresetMode] + [(AutoresetMode.NEXT_STEP, "vector_entry_point")]


@pytest.mark.parametrize(("mode", "vectorised"), KINDS, ids=lambda value: getattr(value, "name", value))
def test_what_a_vector_of_cartpoles_sends_is_physics(catcher: Catcher, mode: AutoresetMode, vectorised: str) -> None:
    envs = cartpoles(mode, 64, vectorised)
    with Sender(catcher.endpoint, stream="pole") as sender:
        streamed = wrap_vector(envs, sender)
        ended = drive(streamed, 5000, np.random.default_rng(1))
        assert sender.flush(PATIENCE_S)
        streams = catcher.rows(streamed.rows)
    assert set(streams) == {f"pole-{number}" for number in range(64)}
    assert sum(len(rows["rewards"]) for rows in streams.values()) == streamed.rows
    ends = 0
    for rows in streams.values():
        # No row leads anywhere but where physics leads, so none is a reset; single precision, hence the tolerance.
        after = cartpole_after(rows["states"], rows["actions"])
        np.testing.assert_allclose(rows["next_states"], after, rtol=0, atol=2e-5)
        assert (rows["rewards"] == 1.0).all()
        # The pole has fallen exactly where it says so.
        fallen = (np.abs(rows["next_states"][:, 2]) > 12 * np.pi / 180) | (np.abs(rows["next_states"][:, 0]) > 2.4)
        assert np.array_equal(fallen, rows["terminated"])
        over = rows["terminated"] | rows["truncated"]
        ends += int(over.sum())
        # Within an episode rows hang together bit for bit, and after its end a new one begins near the middle.
        linked = (rows["next_states"][:-1] == rows["states"][1:]).all(axis=1)
        assert np.array_equal(linked, ~over[:-1])
        assert (np.abs(rows["states"][1:][over[:-1]]) <= 0.05).all()
    assert ends == ended > 100


@pytest.mark.parametrize("mode", AutoresetMode, ids=lambda mode: mode.name)
def test_a_daemon_learns_every_step_of_64_cartpoles(start: Start, mode: AutoresetMode) -> None:
    daemon = start(*CALM)
    envs = cartpoles(mode, 64, "sync")
    with daemon.sender(reliable=True, stream="pole") as sender:
        streamed = wrap_vector(envs, sender)
        ended = drive(streamed, STEPS, np.random.default_rng(2))
        assert sender.flush(PATIENCE_S)
    with daemon.client() as client:
        client.value(np.zeros(4), min_offset=streamed.rows, timeout_s=PATIENCE_S)
        status = client.status()
        assert (status["offset"], status["streams"], status["rejected"]) == (streamed.rows, 64, {})
        assert status["critics"][0]["counts"]["terminations"] == ended
        assert sum(stream.rows for stream in client.streams().values()) == streamed.rows >= STEPS


ENVIRONMENTS = ["CartPole-v1", "Pendulum-v1", "MountainCarContinuous-v0", "HalfCheetah-v5", "Hopper-v5"]
LONG = [pytest.param(name, marks=pytest.mark.long) for name in ENVIRONMENTS[3:]]


@pytest.mark.parametrize("name", [*ENVIRONMENTS[:3], *LONG])
def test_a_daemon_learns_every_step_of_an_environment(start: Start, name: str) -> None:
    daemon = start(*CALM, "critic.dictionary_max=50")
    # The one way of sending and the other, turn and turn about.
    reliable = ENVIRONMENTS.index(name) % 2 == 0
    with daemon.sender(reliable=reliable, queue_rows=1 << 20) as sender:
        env = wrap(gymnasium.make(name), sender, stream=name)
        env.action_space.seed(3)
        env.reset(seed=3)
        episodes = terminations = 0
        for _ in range(STEPS):
            _, _, terminated, truncated, _ = env.step(env.action_space.sample())
            terminations += terminated
            if terminated or truncated:
                episodes += 1
                env.reset()
        assert sender.flush(PATIENCE_S)
        assert env.rows == STEPS and sender.counters.dropped == 0
    with daemon.client() as client:
        client.value(np.zeros(env.observation_space.shape or ()), min_offset=STEPS, timeout_s=PATIENCE_S)
        status = client.status()
    assert (status["offset"], status["rejected"]) == (STEPS, {})
    assert status["critics"][0]["counts"]["terminations"] == terminations
    print(f"\n{name}: {STEPS} steps, {episodes} episodes, {terminations} terminated")


class Switch(gymnasium.Env[Any, Any]):
    """Observations and actions of given spaces, drawn at random; an episode has three steps."""

    def __init__(self, observations: spaces.Space[Any], actions: spaces.Space[Any] | None = None) -> None:
        self.observation_space, self.action_space = observations, actions or spaces.Discrete(2)
        self.seen: list[Any] = []

    def _observe(self) -> Any:
        self.seen.append(self.observation_space.sample())
        return self.seen[-1]

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.steps = 0
        return self._observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        return self._observe(), 1.0, self.steps == 3, False, {}


BOX = spaces.Box(-1.0, 1.0, (2, 3), np.float32)
SPACES = {
    "box": (BOX, spaces.Box(-1.0, 1.0, (2,)), 6, 2),
    "number": (spaces.Box(-1.0, 1.0, ()), spaces.Box(-1.0, 1.0, ()), 1, 0),
    "discrete": (spaces.Discrete(5), spaces.Discrete(3), 5, 0),
    "dict": (spaces.Dict({"a": BOX, "b": spaces.Discrete(2)}), spaces.MultiDiscrete([2, 3]), 8, 2),
    "tuple": (spaces.Tuple((spaces.MultiBinary(3), BOX)), spaces.Dict({"x": spaces.Discrete(2)}), 9, 2),
}


@pytest.mark.parametrize("kind", SPACES)
def test_observations_become_vectors(catcher: Catcher, kind: str) -> None:
    observations, actions, dim, acts = SPACES[kind]
    with Sender(catcher.endpoint) as sender:
        bare = Switch(observations, actions)
        env = wrap(bare, sender)
        env.reset(seed=0)
        taken = [env.action_space.sample() for _ in range(3)]
        for action in taken:
            env.step(action)
        with pytest.raises(CriticdError, match="call reset"):
            env.step(taken[0])
        several = wrap_vector(SyncVectorEnv([lambda: Switch(observations, actions)] * 2), sender, stream="several")
        several.reset(seed=0)
        for _ in range(5):
            several.step(several.action_space.sample())
        assert sender.flush(PATIENCE_S)
        streams = catcher.rows(11)
    assert env.rows == 3 and several.rows == 2 * 4
    rows = streams["default"]
    expected = np.array([np.ravel(seen) if dim in (1, 6) else spaces.flatten(observations, seen) for seen in bare.seen])
    np.testing.assert_array_equal(rows["states"], expected[:3])
    np.testing.assert_array_equal(rows["next_states"], expected[1:4])
    assert rows["states"].shape == (3, dim)
    assert rows["actions"].shape == ((3, acts) if acts else (3,))
    if kind == "discrete":
        assert rows["actions"].tolist() == [int(action) for action in taken]
    assert rows["terminated"].tolist() == [False, False, True]
    for number in range(2):
        several_rows = streams[f"several-{number}"]
        assert (
            several_rows["states"].shape == (4, dim) and several_rows["actions"].shape[1:] == rows["actions"].shape[1:]
        )
        assert several_rows["terminated"].tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    "space", [spaces.Text(5), spaces.Sequence(BOX), spaces.Box(0, 255, (64, 64, 3), np.uint8), spaces.Discrete(5000)]
)
def test_observations_that_are_no_vectors_are_refused(space: spaces.Space[Any]) -> None:
    with Sender("tcp://127.0.0.1:1") as sender:
        with pytest.raises(TypeError, match="TransformObservation"):
            wrap(Switch(space), sender)
        with pytest.raises(TypeError, match="TransformObservation"):
            wrap_vector(SyncVectorEnv([lambda: Switch(space)]), sender)
        sender.close(0.0)


def test_an_environment_that_does_not_say_how_it_resets_is_refused() -> None:
    envs = SyncVectorEnv([lambda: Switch(BOX)])
    envs.metadata = {}
    with Sender("tcp://127.0.0.1:1") as sender, pytest.raises(TypeError, match="autoreset_mode"):
        wrap_vector(envs, sender)


class ResetsItself(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment of somebody's own that resets in the step that ends an episode."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        observed, reward, terminated, truncated, info = self.env.step(action)
        if terminated or truncated:
            observed, info = self.env.reset()
        return observed, reward, terminated, truncated, info


@pytest.mark.parametrize("itself", [gymnasium.wrappers.Autoreset, ResetsItself])
def test_an_environment_that_resets_by_itself_goes_outside(catcher: Catcher, itself: Any) -> None:
    with Sender(catcher.endpoint) as sender:
        inside = wrap(itself(Switch(BOX)), sender)
        inside.reset(seed=0)
        for _ in range(3):
            inside.step(0)
        with pytest.raises(CriticdError, match=r"Autoreset\(wrap\(env, sender\)\)"):
            inside.step(0)
        watched = wrap(Switch(BOX), sender)
        outside = itself(watched)
        outside.reset(seed=0)
        ends = sum(outside.step(0)[2] for _ in range(40))
        resets = ends if itself is gymnasium.wrappers.Autoreset else 0
        assert watched.rows == 40 - resets and ends == 40 // (4 if resets else 3)
        sender.close(0.0)


class Tensor:
    """As much of one of PyTorch's as the recipe uses."""

    def __init__(self, numbers: Any) -> None:
        self.numbers = np.asarray(numbers)

    def detach(self) -> Tensor:
        return self

    cpu = detach

    def numpy(self) -> Any:
        return self.numbers


class Simulator(gymnasium.Env[Any, Any]):
    """Behaves as Isaac Lab's environments: copies in one, tensors, resets in the step that ends an episode."""

    num_envs, device = 4, "cpu"
    single_observation_space = spaces.Dict({"policy": spaces.Box(-9, 9, (2,)), "critic": spaces.Box(-9, 9, (9,))})
    single_action_space = spaces.Box(-1, 1, (1,))

    def __init__(self, tells: bool) -> None:
        self.tells, self.clock, self.extras = tells, np.zeros(4), dict[str, Any]()

    def observe(self) -> dict[str, Tensor]:
        return {"policy": Tensor(np.stack([self.clock, np.arange(4.0)], axis=1)), "critic": Tensor(np.zeros((4, 9)))}

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        self.clock[:] = 0.0
        return self.observe(), self.extras

    def step(self, action: Any) -> Any:
        self.clock += 1.0
        over = self.clock == np.arange(3, 7)
        if self.tells and over.any():
            self.extras["final_obs"] = {key: Tensor(np.array(part.numbers)) for key, part in self.observe().items()}
        self.clock[over] = 0.0
        return self.observe(), Tensor(np.ones(4)), Tensor(np.zeros(4, np.bool_)), Tensor(over), self.extras


@pytest.fixture
def copies(monkeypatch: pytest.MonkeyPatch) -> Any:
    torch: Any = ModuleType("torch")
    torch.as_tensor = lambda numbers, device: numbers
    monkeypatch.setitem(sys.modules, "torch", torch)
    page = (ROOT / "docs" / "recipes" / "simulators.md").read_text()
    made: dict[str, Any] = {}
    exec(page.split("<!-- copies.py -->\n```python\n")[1].split("```")[0], made)
    return made["Copies"]


def test_a_simulator_that_does_not_tell_where_an_episode_ended_is_refused(catcher: Catcher, copies: Any) -> None:
    with Sender(catcher.endpoint) as sender:
        with pytest.raises(TypeError, match=r"simulators\.md"):
            wrap(Simulator(tells=True), sender)
        envs = wrap_vector(copies(Simulator(tells=False), "policy", AutoresetMode.SAME_STEP), sender)
        envs.reset()
        for _ in range(2):
            envs.step(np.zeros((4, 1)))
        with pytest.raises(KeyError, match=r"copy 0 ended.*compute_final_obs=True"):
            envs.step(np.zeros((4, 1)))
        assert envs.rows == 8
        sender.close(0.0)


def test_a_simulator_that_tells_it_sends_the_states_before_resets(catcher: Catcher, copies: Any) -> None:
    with Sender(catcher.endpoint, stream="sim") as sender:
        envs = wrap_vector(copies(Simulator(tells=True), "policy", AutoresetMode.SAME_STEP), sender)
        envs.reset()
        for _ in range(12):
            envs.step(np.zeros((4, 1)))
        assert sender.flush(PATIENCE_S)
        streams = catcher.rows(48)
    for number in range(4):
        rows = streams[f"sim-{number}"]
        np.testing.assert_array_equal(rows["states"], [[t % (3 + number), number] for t in range(12)])
        np.testing.assert_array_equal(rows["next_states"], [[t % (3 + number) + 1, number] for t in range(12)])
        assert np.flatnonzero(rows["truncated"]).tolist() == [t for t in range(12) if t % (3 + number) == 2 + number]


class Counted(Switch):
    """Its observations are numbered."""

    def _observe(self) -> Any:
        self.seen.append(len(self.seen) / 100)
        numbers = np.full((2, 3), self.seen[-1], np.float32)
        return numbers if self.observation_space is BOX else {"a": numbers, "b": len(self.seen) % 2}


class AllAtOnce(gymnasium.vector.VectorWrapper[Any, Any, Any, Any, Any]):
    """Tells where copies ended as some environments written in C++ do: for all of them, in the form of observations."""

    def step(self, actions: Any) -> Any:
        observed, rewards, terminated, truncated, info = self.env.step(actions)
        if "final_obs" in info:
            space, ends = self.env.single_observation_space, np.logical_or(terminated, truncated)
            now = list(gymnasium.vector.utils.iterate(self.env.observation_space, observed))
            parts = [final if end else was for final, end, was in zip(info["final_obs"], ends, now, strict=True)]
            out: Any = gymnasium.vector.utils.create_empty_array(space, self.num_envs)
            info["final_obs"] = gymnasium.vector.utils.concatenate(space, parts, out)
        return observed, rewards, terminated, truncated, info


@pytest.mark.parametrize("kind", ["box", "dict"])
def test_every_way_to_reset_and_to_tell_it_sends_the_same_rows(catcher: Catcher, kind: str) -> None:
    with Sender(catcher.endpoint) as sender:
        for mode, once in [*((mode, False) for mode in AutoresetMode), (AutoresetMode.SAME_STEP, True)]:
            bare: VectorEnv[Any, Any, Any] = SyncVectorEnv(
                [lambda: Counted(*SPACES[kind][:2])] * 2, autoreset_mode=mode
            )
            envs = wrap_vector(AllAtOnce(bare) if once else bare, sender, stream=f"{mode.name}{once}")
            envs.reset(seed=3)
            while envs.rows < 24:
                _, _, terminated, truncated, _ = envs.step(envs.action_space.sample())
                ends = np.logical_or(terminated, truncated)
                if mode is AutoresetMode.DISABLED and ends.any():
                    envs.reset(options={"reset_mask": ends})
        assert sender.flush(PATIENCE_S)
        streams = catcher.rows(4 * 24)
    sent = [streams[name] for name in streams if name.endswith("-0")]
    assert len(sent) == 4
    for rows in sent[1:]:
        for key in ("states", "next_states", "rewards", "terminated"):
            np.testing.assert_array_equal(rows[key], sent[0][key])


def test_copies_that_were_reset_before_they_were_wrapped_send_nothing_in_silence(catcher: Catcher) -> None:
    with Sender(catcher.endpoint) as sender:
        envs = SyncVectorEnv([lambda: Switch(BOX)] * 2)
        envs.reset(seed=0)
        streamed = wrap_vector(envs, sender)
        with pytest.raises(CriticdError, match="a step without a reset"):
            streamed.step(np.zeros(2, np.int64))
        streamed.reset(seed=0)
        streamed.step(np.zeros(2, np.int64))
        assert streamed.rows == 2
        sender.close(0.0)


def test_a_flag_that_is_none_is_named(catcher: Catcher) -> None:
    class Texts(Switch):
        def step(self, action: Any) -> tuple[Any, Any, Any, bool, dict[str, Any]]:
            observed, reward, _, truncated, info = super().step(action)
            return observed, reward, "False", truncated, info

    with Sender(catcher.endpoint) as sender:
        env = wrap(Texts(BOX), sender)
        env.reset(seed=0)
        with pytest.raises(Invalid, match="terminated: must be True, False, 1 or 0, not 'False'"):
            env.step(0)


def test_a_state_that_is_not_finite_is_named(catcher: Catcher) -> None:
    class Broken(Switch):
        def _observe(self) -> Any:
            seen = super()._observe()
            return seen if len(self.seen) < 3 else seen * np.nan

    with Sender(catcher.endpoint) as sender:
        env = wrap(Broken(BOX), sender)
        env.reset(seed=0)
        env.step(0)
        with pytest.raises(Invalid, match="next_state"):
            env.step(0)


def test_a_reset_amid_an_episode_begins_another(catcher: Catcher) -> None:
    with Sender(catcher.endpoint) as sender:
        env = wrap(gymnasium.make("Pendulum-v1"), sender)
        for episode in range(3):
            env.reset(seed=episode)
            for _ in range(4):
                env.step(env.action_space.sample())
        assert sender.flush(PATIENCE_S)
        rows = catcher.rows(12)["default"]
    linked = (rows["next_states"][:-1] == rows["states"][1:]).all(axis=1)
    assert np.flatnonzero(~linked).tolist() == [3, 7]
    assert not rows["truncated"].any()
    assert not rows["terminated"].any()


def test_the_probability_of_an_action_is_sent_with_its_step(catcher: Catcher) -> None:
    with Sender(catcher.endpoint, stream="one") as sender:
        env = wrap(gymnasium.make("CartPole-v1"), sender)
        env.reset(seed=1)
        for probability in (0.25, None, float("nan"), 0.75):
            if probability is not None:
                env.behavior_prob = probability
            env.step(0)
        assert sender.flush(PATIENCE_S)
        sent = [batch.get("behavior_probs", [None] * len(batch["rewards"])) for batch in catcher.batches(4)]
    assert [probability for part in sent for probability in part] == [0.25, None, None, 0.75]


def test_copies_say_the_probabilities_that_are_known(catcher: Catcher) -> None:
    with Sender(catcher.endpoint, stream="pole") as sender:
        envs = wrap_vector(cartpoles(AutoresetMode.SAME_STEP, 3, "sync"), sender)
        envs.reset(seed=1)
        envs.behavior_probs = [0.5, np.nan, 1.0]
        envs.step(np.zeros(3, np.int64))
        envs.step(np.zeros(3, np.int64))
        assert sender.flush(PATIENCE_S) and envs.rows == 6
        said: dict[str, list[Any]] = {}
        for batch in catcher.batches(6):
            said.setdefault(batch["stream"], []).extend(batch.get("behavior_probs", [None] * len(batch["rewards"])))
    assert said == {"pole-0": [0.5, None], "pole-1": [None, None], "pole-2": [1.0, None]}


def test_what_is_observed_has_names(catcher: Catcher) -> None:
    class Named(gymnasium.Env[Any, Any]):
        observation_space = spaces.Dict({"speed": spaces.Box(-1, 1, (1,)), "goal": spaces.Box(-1, 1, (2,))})
        action_space = spaces.Discrete(2)

        def get_action_meanings(self) -> list[str]:
            return ["NOOP", "FIRE"]

        def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
            return {"speed": np.zeros(1, np.float32), "goal": np.zeros(2, np.float32)}, {}

        def step(self, action: int) -> Any:
            return {"speed": np.ones(1, np.float32), "goal": np.ones(2, np.float32)}, 0.0, False, False, {}

    told, own = ["goal[0]", "goal[1]", "speed"], ["a", "b", "c"]
    for names, expected, actions in ((None, told, ["NOOP", "FIRE"]), (own, own, None)):
        with Sender(catcher.endpoint, stream=expected[0]) as sender:
            unsaid = None if actions else ()
            env = wrap(Named(), sender, names=names, reward_names=["energy [J]"], action_names=unsaid)
            env.reset()
            env.step(0)
            assert sender.flush(PATIENCE_S)
            (batch,) = catcher.batches(1)
        assert batch["state_names"] == expected
        assert batch["reward_names"] == ["energy [J]"] and batch.get("action_names") == actions
    with Sender(catcher.endpoint, stream="copies") as sender:
        copies = gymnasium.vector.SyncVectorEnv([Named] * 2)
        wrapped = wrap_vector(copies, sender, reward_names=["energy [J]"])
        wrapped.reset()
        wrapped.step(np.zeros(2, np.int64))
        assert sender.flush(PATIENCE_S)
        for batch in catcher.batches(2):
            assert batch["reward_names"] == ["energy [J]"] and batch["action_names"] == ["NOOP", "FIRE"]
