"""A fleet on three hosts, whose links are cut: each is a network namespace with a node of Ray and a disk of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import PATIENCE_S, when
from test_fleet import CRITIC, STATES, life, one_learner, part, without

from criticd._fleet_links import COORDINATOR, worker_name
from criticd._fleet_pool import stable_hash
from criticd._protocol import unpack
from criticd.fleet import Fleet, Patience, RemoteError

pytestmark = [pytest.mark.nightly, pytest.mark.long]

HOSTS = ("head", "left", "right")
"""The coordinator and the program that sends are on the first, a worker on each of the others."""
SWITCH = "switch"
PORT = 6379
STREAMS = 12
LIMITS = {"period_ms": 1000, "timeout_ms": 2000, "failure_threshold": 5}
"""When Ray gives a node up."""


def ip(*words: str) -> str:
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


class Hosts:
    """Network namespaces on one bridge, which is in a namespace, too. Each host has a directory for its disk."""

    def __init__(self, label: str, base: Path) -> None:
        self.label, self.base = label, base
        self.rows, self.temporary = base / "rows", base / "ray"

    def space(self, host: str) -> str:
        return f"criticd-{self.label}-{host}"

    def address(self, host: str) -> str:
        return f"10.213.0.{1 + HOSTS.index(host)}"

    def disk(self, host: str) -> Path:
        return self.base / host / "rows"

    def build(self) -> None:
        ip("netns", "add", self.space(SWITCH))
        ip("-n", self.space(SWITCH), "link", "add", "bridge", "type", "bridge")
        ip("-n", self.space(SWITCH), "link", "set", "bridge", "up")
        for host in HOSTS:
            space = self.space(host)
            ip("netns", "add", space)
            ends = ("type", "veth", "peer", "name", "eth0", "netns", space)
            ip("-n", self.space(SWITCH), "link", "add", host, *ends)
            ip("-n", self.space(SWITCH), "link", "set", host, "master", "bridge", "up")
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "address", "add", f"{self.address(host)}/24", "dev", "eth0")
            ip("-n", space, "link", "set", "eth0", "up")
            # What is the same path on every host is a place of its own.
            for own, path in ((self.disk(host), self.rows), (self.base / host / "ray", self.temporary)):
                own.mkdir(parents=True)
                path.mkdir(exist_ok=True)

    def command(self, host: str, *words: str) -> list[str]:
        """What runs there, with its disk in place."""
        places = [str(self.disk(host)), str(self.rows), str(self.base / host / "ray"), str(self.temporary)]
        script = 'mount --bind "$1" "$2" && mount --bind "$3" "$4" && shift 4 && exec "$@"'
        return ["ip", "netns", "exec", self.space(host), "sh", "-c", script, "sh", *places, *words]

    def start(self, host: str) -> None:
        """Start the node of a host."""
        words = ["-m", "ray.scripts.scripts", "start", "--disable-usage-stats", "--object-store-memory=100000000"]
        words += [f"--node-ip-address={self.address(host)}", f"--resources={json.dumps({host: 1})}"]
        if host == HOSTS[0]:
            words += ["--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false"]
            words += [f"--temp-dir={self.temporary}"]
        else:
            words += [f"--address={self.address(HOSTS[0])}:{PORT}", "--num-cpus=1"]
        limits = {f"RAY_health_check_{key}": str(value) for key, value in LIMITS.items()}
        log = self.base / f"{host}.log"
        with log.open("ab") as file:
            command = self.command(host, sys.executable, *words)
            # It leaves its processes behind, which hold what it has been given.
            done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=os.environ | limits)
        assert done.returncode == 0, log.read_text()

    def stop(self, host: str) -> None:
        """Kill all that runs on a host."""
        for pid in ip("netns", "pids", self.space(host)).split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)

    def link(self, host: str, state: str) -> None:
        """Cut the link of a host, or heal it."""
        ip("-n", self.space(SWITCH), "link", "set", host, state)

    def demolish(self) -> None:
        for host in (*HOSTS, SWITCH):
            with contextlib.suppress(subprocess.CalledProcessError):
                self.stop(host)
                ip("netns", "del", self.space(host))


@pytest.fixture
def hosts(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hosts]:
    pytest.importorskip("ray")
    if os.geteuid() != 0:
        pytest.skip("only root makes network namespaces")
    if shutil.which("ip") is None:
        pytest.skip("there is no `ip`: install iproute2")
    # Paths of sockets are short.
    base = Path(tempfile.mkdtemp(prefix="cr"))
    monkeypatch.setenv("HOME", str(base))
    found = Hosts(str(os.getpid()), base)
    try:
        try:
            found.build()
        except (OSError, subprocess.CalledProcessError) as error:
            pytest.skip(f"no network namespaces: {error}")
        yield found
    finally:
        found.demolish()
        shutil.rmtree(base, ignore_errors=True)


def test_rows_count_once_over_hosts_whose_links_are_cut(hosts: Hosts) -> None:
    hosts.start(HOSTS[0])
    command = hosts.command(HOSTS[0], sys.executable, __file__, hosts.label, str(hosts.base))
    done = subprocess.run(command, capture_output=True, text=True)
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


class Drive:
    """What the first host does with the fleet: it sends to each worker with a producer of its own."""

    def __init__(self, fleet: Fleet, hosts: Hosts) -> None:
        self.fleet, self.hosts, self.sent = fleet, hosts, 0
        self.producers = [fleet.producer() for _ in range(2)]
        names = [f"robot {stream}" for stream in range(STREAMS)]
        self.of = [[k for k, name in enumerate(names) if stable_hash(name) % 2 == worker] for worker in range(2)]

    def send(self, end: int, worker: int) -> None:
        for first in range(self.sent, end, 40):
            for stream in self.of[worker]:
                columns = part(life(stream), first, min(first + 40, end))
                learned = self.producers[worker].learn(**columns, stream=f"robot {stream}")
                assert learned == min(first + 40, end)

    def sending(self, end: int, worker: int) -> Callable[[], None]:
        """Send beside what follows; what is returned waits for the end of it."""
        failed: list[BaseException] = []

        def run() -> None:
            try:
                self.send(end, worker)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=run)
        thread.start()

        def wait() -> None:
            thread.join()
            assert not failed, failed

        return wait

    def epoch(self) -> bytes:
        state = unpack((self.hosts.rows / COORDINATOR / "coordinator.state").read_bytes())
        found: bytes = state["epochs"][str(state["present"])]["epoch"]
        return found

    def check(self, what: str, end: int) -> None:
        """All rows before number `end` of every stream are in the model once."""
        self.sent = end
        model = self.fleet.merge()
        status = self.fleet.status()
        assert (status.rows, status.merged, status.lost) == (STREAMS * end, STREAMS * end, 0), status
        off = np.abs(model(STATES) - one_learner(self.epoch(), STREAMS, end)(STATES)).max()
        assert off < 1e-9
        print(f"{what}: {status.merged} of {status.rows} rows, V off by {off:.1e} of one learner", flush=True)


def drive(hosts: Hosts) -> None:
    import ray

    import criticd.ray

    def alive(host: str) -> bool:
        return any(node["Alive"] and host in node["Resources"] for node in ray.nodes())

    for host in HOSTS[1:]:
        hosts.start(host)
    head = hosts.address(HOSTS[0])
    ray.init(address=f"{head}:{PORT}", _node_ip_address=head, log_to_driver=False)
    workers = [{"num_cpus": 1, "resources": {host: 1}} for host in HOSTS[1:]]
    patience = Patience(interval_s=0.2, call_s=3, start_s=PATIENCE_S, rows_s=PATIENCE_S)
    with criticd.ray.start(
        2,
        directory=hosts.rows,
        actor=workers,
        coordinator={"num_cpus": 0, "resources": {HOSTS[0]: 1}},
        select_rows=None,
        patience=patience,
        **CRITIC,
    ) as fleet:
        run = Drive(fleet, hosts)
        mine, far = run.of
        run.send(120, 0)
        run.send(120, 1)
        fleet.select()
        places = {host: sorted(path.name for path in hosts.disk(host).iterdir() if path.is_dir()) for host in HOSTS}
        assert places == {"head": [COORDINATOR], "left": ["worker-0"], "right": ["worker-1"]}
        run.check("three hosts", 120)

        # For a moment: what is under way arrives later, perhaps twice.
        hosts.link("right", "down")
        waits = [run.sending(240, worker) for worker in range(2)]
        with pytest.raises(RemoteError, match="worker-1, position: gives no answer"):
            fleet.parts.link(worker_name(1)).call("position", stream=f"robot {far[0]}")
        hosts.link("right", "up")
        for wait in waits:
            wait()
        run.check("cut for a moment", 240)

        # Until Ray gives the node up: others learn on, and answers come from what the worker has said last.
        hosts.link("right", "down")
        waits = [run.sending(400, worker) for worker in range(2)]
        waits[0]()
        when(lambda: not alive("right"), "Ray to give the node up")
        fleet.merge(wait=False)(STATES)
        status = fleet.status()
        assert status.merged == 400 * len(mine) + 240 * len(far) and status.lost == 0, status
        assert status.workers[0].fault is None and status.workers[1].fault is not None, status
        print(f"cut for long: {status.merged} rows in the model; {status.workers[1].fault}", flush=True)
        hosts.stop("right")
        hosts.link("right", "up")
        hosts.start("right")
        waits[1]()
        run.check("back with its disk", 400)

        # Without its disk.
        hosts.stop("right")
        when(lambda: not alive("right"), "Ray to give the node up")
        shutil.rmtree(hosts.disk("right") / worker_name(1))
        hosts.start("right")
        when(lambda: alive("right") and fleet.status().workers[1].incarnation == 1, "the worker to begin anew")
        model = fleet.merge()
        status = fleet.status()
        lost = 400 * len(far)
        assert (status.lost, status.rows, status.merged) == (lost, 400 * len(mine), 400 * len(mine)), status
        off = np.abs(model(STATES) - without(STREAMS, dict.fromkeys(far, (0, 400)), run.epoch(), 400)(STATES)).max()
        assert off < 1e-9
        print(f"back without it: {status.merged} rows, {lost} rows lost are said, V off by {off:.1e}", flush=True)
    ray.shutdown()


if __name__ == "__main__":
    drive(Hosts(sys.argv[1], Path(sys.argv[2])))
