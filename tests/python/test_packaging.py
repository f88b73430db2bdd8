"""What packaging/build makes, installed and started as its users do: without a compiler, without a checkout."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from client import BINARY, PACKAGED, PATIENCE_S, ROOT, when
from conftest import Start
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerNeedSection
from elftools.elf.sections import SymbolTableSection

pytestmark = pytest.mark.nightly

PACKAGING = ROOT / "packaging"
VERSION = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change the root file system of a process")


def build(out: Path, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """packaging/build with the program under test."""
    command = [sys.executable, PACKAGING / "build", *arguments, "--binary", PACKAGED, "--out", out]
    done = subprocess.run(command, capture_output=True, text=True, timeout=5 * PATIENCE_S)
    assert not check or done.returncode == 0, done.stderr
    return done


def in_namespaces(script: str, *options: str, **variables: Path | str) -> str:
    """What a shell script prints, in a mount namespace of its own."""
    environment = {**os.environ, **{name: str(value) for name, value in variables.items()}}
    done = subprocess.run(
        ["unshare", "--mount", *options, "sh", "-eu", "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        timeout=5 * PATIENCE_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_runs_where_its_tag_says_without_a_compiler(tmp_path: Path) -> None:
    build(tmp_path, "wheel")
    (wheel,) = tmp_path.glob("*.whl")
    found = re.fullmatch(rf"criticd-{VERSION}-py3-none-manylinux_(\d+)_(\d+)_(\w+)\.whl", wheel.name)
    assert found is not None, wheel.name

    with zipfile.ZipFile(wheel) as archive:
        (entry,) = [entry for entry in archive.infolist() if entry.filename.endswith(".data/scripts/criticd")]
        assert entry.external_attr >> 16 & 0o111 == 0o111
        archive.extract(entry, tmp_path)
    with (tmp_path / entry.filename).open("rb") as file:
        elf = ELFFile(file)
        assert {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}[elf["e_machine"]] == found[3]
        # Nothing for debuggers, but what the loader needs.
        tables = [section.name for section in elf.iter_sections() if isinstance(section, SymbolTableSection)]
        assert tables == [".dynsym"]
        assert not elf.has_dwarf_info(strict=True)
        (needs,) = [section for section in elf.iter_sections() if isinstance(section, GNUVerNeedSection)]
        names = [aux.name for _, versions in needs.iter_versions() for aux in versions]
    wanted = [tuple(map(int, name[6:].split("."))) for name in names if name.startswith("GLIBC_2")]
    # Neither older than what it asks for, nor newer than it need be.
    assert max(wanted)[:2] == (int(found[1]), int(found[2]))

    home = tmp_path / "fresh"
    subprocess.run([sys.executable, "-m", "venv", home], check=True, timeout=5 * PATIENCE_S)
    install = [home / "bin" / "python", "-m", "pip", "--quiet", "install", wheel]
    subprocess.run(install, check=True, timeout=5 * PATIENCE_S)
    # No compiler, no cargo, no checkout: only the environment is in the search path.
    environment = {"PATH": str(home / "bin"), "HOME": str(tmp_path)}

    def run(*command: str) -> str:
        done = subprocess.run(
            command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run(str(home / "bin" / "criticd"), "demo", "pendulum", "--seconds", "3", "--out", "first.png")
    assert (tmp_path / "first.png").read_bytes().startswith(b"\x89PNG")
    program = "import criticd\nwith criticd.Daemon() as daemon, daemon.client() as client:\n    print(client.status()['offset'])"
    assert run(str(home / "bin" / "python"), "-I", "-c", program) == "0\n"


def test_rust_alone_makes_a_wheel_for_this_machine(tmp_path: Path) -> None:
    # A cargo that puts another program of this machine's where that command would put ours.
    tools, target = tmp_path / "tools", tmp_path / "target"
    tools.mkdir()
    place = target / f"{os.uname().machine}-unknown-linux-gnu" / "dist"
    cargo = tools / "cargo"
    cargo.write_text(f'#!/bin/sh\n[ "$1 $2" = "build --locked" ] || exit 3\nmkdir -p {place}\ncp /bin/true {place}/criticd\n')
    cargo.chmod(0o755)
    search = f"{tools}:{Path(sys.executable).parent}:/usr/bin:/bin"
    environment = {**os.environ, "PATH": search, "CARGO_TARGET_DIR": str(target)}
    command = [sys.executable, PACKAGING / "build", "wheel", "--out", tmp_path / "dist"]

    def made(*arguments: str) -> subprocess.CompletedProcess[str]:
        whole = [*command, *arguments]
        return subprocess.run(whole, env=environment, capture_output=True, text=True, timeout=5 * PATIENCE_S)

    assert shutil.which("cargo-zigbuild", path=search) is None
    for arguments in (["--glibc", "2.28"], ["--target", {"x86_64": "aarch64"}.get(os.uname().machine, "x86_64")]):
        refused = made(*arguments)
        assert refused.returncode == 1 and "pip install ziglang cargo-zigbuild" in refused.stderr
    done = made()
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "dist").glob("*.whl")
    assert re.search(r"-manylinux_2_\d+_", wheel.name)


def test_the_tarball_is_whole_and_the_same_each_time(tmp_path: Path) -> None:
    for name in ("one", "two"):
        build(tmp_path / name, "tarball")
    (file,) = (tmp_path / "one").glob("*.tar.gz")
    content = file.read_bytes()
    assert content == (tmp_path / "two" / file.name).read_bytes()
    said = (tmp_path / "one" / f"{file.name}.sha256").read_text()
    assert said == f"{hashlib.sha256(content).hexdigest()}  {file.name}\n"
    # The name is the one that cargo binstall looks for.
    pattern = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["metadata"]["binstall"]
    target = file.name.removeprefix(f"criticd-{VERSION}-").removesuffix(".tar.gz")
    filled = {"{ version }": VERSION, "{ target }": target, "{ bin }": "criticd", "{ binary-ext }": ""}
    for key, value in filled.items():
        pattern = {field: text.replace(key, value) for field, text in pattern.items()}
    assert pattern["pkg-url"].endswith(f"/{file.name}")

    with tarfile.open(file) as archive:
        archive.extractall(tmp_path, filter="data")
    folder = (tmp_path / pattern["bin-dir"]).parent
    program = tmp_path / pattern["bin-dir"]
    help_text = subprocess.run([program, "--help"], capture_output=True, text=True, check=True).stdout
    commands = re.findall(r"^  ([a-z-]+)  ", help_text.split("Usage:")[1].split("Options:")[0], re.MULTILINE)
    assert "serve" in commands
    for command in set(commands) - {"help"}:
        assert (folder / "man" / f"criticd-{command}.1").read_text().startswith(".")
    assert {path.name for path in (folder / "completions").iterdir()} == {"criticd", "_criticd", "criticd.fish"}
    assert (folder / "LICENSE").exists() and (folder / "criticd.service").exists()
    debug = tmp_path / "one" / f"criticd-{VERSION}-{target}.debug"
    # The program names the file with its symbols.
    assert debug.exists() and debug.name.encode() in program.read_bytes()


def test_a_program_for_another_machine_is_refused(tmp_path: Path) -> None:
    other = "aarch64" if os.uname().machine == "x86_64" else "x86_64"
    done = build(tmp_path, "tarball", "--target", other, check=False)
    assert done.returncode == 1 and f"is for {os.uname().machine}, not {other}" in done.stderr
    assert not list(tmp_path.iterdir())


# Changes are kept in the folder `upper`: the machine's own files are only read. Not `inside` starts the daemon, since a
# function in the background has a process of its own, which would get the signal.
OVERLAY = """
mkdir -p "$work/upper" "$work/work" "$work/tree"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" "$work/tree"
mount --bind /dev "$work/tree/dev"
mount -t proc proc "$work/tree/proc"
cp "$deb" "$work/tree/criticd.deb"
inside() { chroot "$work/tree" "$@"; }
"""

INSTALL = """
inside dpkg --force-unsafe-io --install /criticd.deb
inside getent passwd criticd
inside stat --format '%U %G %a' /var/lib/criticd
chroot "$work/tree" setpriv --reuid criticd --regid criticd --clear-groups /usr/bin/criticd serve --config /etc/criticd/criticd.toml \
    --data-dir /var/lib/criticd --ingest tcp://127.0.0.1:0 --control tcp://127.0.0.1:0 --publish tcp://127.0.0.1:0 \
    --http 127.0.0.1:0 &
daemon=$!
tries=0
until inside criticd status --data-dir /var/lib/criticd >"$work/status" 2>&1; do
    tries=$((tries + 1)); test "$tries" -lt 600; sleep 0.2
done
kill "$daemon"; wait "$daemon"
echo '# changed' >>"$work/tree/etc/criticd/criticd.toml"
inside dpkg --force-unsafe-io --install /criticd.deb
grep '# changed' "$work/tree/etc/criticd/criticd.toml"
inside dpkg --remove criticd
test ! -e "$work/tree/usr/bin/criticd"
test -d "$work/tree/var/lib/criticd" && echo kept
inside dpkg --purge criticd
test ! -e "$work/tree/var/lib/criticd" && test ! -e "$work/tree/etc/criticd/criticd.toml"
inside getent passwd criticd || echo gone
"""


@AS_ROOT
@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="there is no dpkg here")
def test_the_debian_package_installs_runs_and_leaves_nothing(tmp_path: Path) -> None:
    build(tmp_path, "deb")
    (deb,) = tmp_path.glob("*.deb")
    said = in_namespaces(OVERLAY + INSTALL, "--pid", "--fork", "--kill-child", work=tmp_path, deb=deb)
    assert re.search(r"^criticd:x:\d+:\d+:[^:]*:/var/lib/criticd:/usr/sbin/nologin$", said, re.MULTILINE)
    assert "criticd criticd 700\n" in said
    assert said.index("# changed") < said.index("kept") < said.index("gone")


def dockerfile() -> dict[str, Any]:
    """The instructions of the last stage that say how the image is run."""
    text = (PACKAGING / "Dockerfile").read_text().split("FROM scratch")[1]
    found: dict[str, Any] = dict(re.findall(r"^(USER|EXPOSE|STOPSIGNAL) (.*)$", text, re.MULTILINE))
    for key in ("ENTRYPOINT", "CMD", "VOLUME"):
        found[key] = json.loads(re.findall(rf"^{key} (.*)$", text, re.MULTILINE)[0])
    found["HEALTHCHECK"] = json.loads(re.findall(r"^HEALTHCHECK .* CMD (.*)$", text, re.MULTILINE)[0])
    return found


CONTAINER = """
ip link set lo up
ip address add 10.9.9.1/32 dev lo
mount --bind "$root" "$root"
mkdir "$root/proc"
mount -t proc proc "$root/proc"
inside() { chroot --userspec="$user" "$root" "$@"; }
chroot --userspec="$user" "$root" $command &
daemon=$!
tries=0
until inside $health >"$work/status"; do tries=$((tries + 1)); test "$tries" -lt 600; sleep 0.2; done
"$python" -c '
import urllib.request as http
for host in ("127.0.0.1", "10.9.9.1"):
    asked = http.Request(f"http://{host}:5753/metrics", headers={"Host": "criticd:5753"})
    assert b"criticd_build_info" in http.urlopen(asked, timeout=120).read()
'
kill "$daemon"; wait "$daemon"
! inside $health 2>"$work/absent"
"""


@AS_ROOT
def test_the_images_root_runs_without_root_and_without_a_shell(tmp_path: Path) -> None:
    root, said = tmp_path / "rootfs", dockerfile()
    subprocess.run([PACKAGING / "rootfs", PACKAGED, root], check=True, timeout=PATIENCE_S)
    # It is the script that the Dockerfile runs, and everything in it is what the image has.
    assert "RUN /build/rootfs /build/criticd /rootfs" in (PACKAGING / "Dockerfile").read_text()
    programs = {path.name for path in root.rglob("*") if path.is_file() and os.access(path, os.X_OK)}
    assert "criticd" in programs
    assert all(re.search(r"\.so(\.|$)", name) for name in programs - {"criticd"}), programs
    (volume,) = said["VOLUME"]
    owner = (root / volume.lstrip("/")).stat()
    assert said["USER"] == f"{owner.st_uid}:{owner.st_gid}" != "0:0"
    words = {"command": " ".join(said["ENTRYPOINT"] + said["CMD"]), "health": " ".join(said["HEALTHCHECK"])}
    options = ["--pid", "--fork", "--kill-child", "--net"]
    in_namespaces(CONTAINER, *options, work=tmp_path, root=root, user=said["USER"], python=sys.executable, **words)
    assert json.loads((tmp_path / "status").read_text())["offset"] == 0
    # What it learned is on the volume, and nothing was written elsewhere.
    assert list((root / volume.lstrip("/")).iterdir())


def test_the_compose_file_fits_the_image() -> None:
    file = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
    services = file["services"]
    exposed = dockerfile()["EXPOSE"].split()
    assert [port.split(":")[2] for port in services["criticd"]["ports"]] == exposed
    # Ports without an address would be open to the network.
    assert all(port.startswith("127.0.0.1:") for service in services.values() for port in service.get("ports", []))
    mounts = [mount.split(":") for service in services.values() for mount in service["volumes"]]
    for source, *_ in mounts:
        assert (PACKAGING / source).is_file() if source.startswith(".") else source in file["volumes"]
    assert dockerfile()["VOLUME"] == [mount[1] for mount in mounts if mount[0] == "criticd"]
    scraped = yaml.safe_load((PACKAGING / "prometheus.yml").read_text())["scrape_configs"][0]
    host, port = scraped["static_configs"][0]["targets"][0].split(":")
    assert host in services and port in exposed
    settings = tomllib.loads((PACKAGING / "container.toml").read_text())
    assert host in settings["http_hosts"] and settings["http"].endswith(f":{port}")
    # Rules and panels ask by this name.
    assert f'job="{scraped["job_name"]}"' in (ROOT / "examples" / "alerts.yml").read_text()
    source = yaml.safe_load((PACKAGING / "grafana" / "datasource.yml").read_text())["datasources"][0]
    assert source["url"].split("/")[2].split(":")[0] in services


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
def test_prometheus_takes_its_settings(tmp_path: Path) -> None:
    for file in (PACKAGING / "prometheus.yml", ROOT / "examples" / "alerts.yml"):
        shutil.copy(file, tmp_path)
    done = subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_container_settings_are_good() -> None:
    done = subprocess.run([BINARY, "check-config", PACKAGING / "container.toml"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_manifests_are_kubernetes_and_fit_the_image(start: Start) -> None:
    folder = PACKAGING / "kubernetes"
    kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text())
    generated = {made["name"]: made["files"] for made in kustomization["configMapGenerator"]}
    keys = {name: {entry.split("=")[0] for entry in entries} for name, entries in generated.items()}
    for entries in generated.values():
        for entry in entries:
            assert (folder / entry.split("=")[1]).is_file(), entry
    documents = [
        document for name in kustomization["resources"] for document in yaml.safe_load_all((folder / name).read_text())
    ]
    for document in documents:
        kubernetes_validate.validate(document, "1.31", strict=True)
    by_kind: dict[tuple[str, str], Any] = {(found["kind"], found["metadata"]["name"]): found for found in documents}
    for (kind, name), found in by_kind.items():
        if kind in ("Service", "NetworkPolicy"):
            continue
        pod = found["spec"]["template"]
        (container,) = pod["spec"]["containers"]
        service = by_kind["Service", name]["spec"]
        assert service["selector"].items() <= pod["metadata"]["labels"].items()
        assert found["spec"]["selector"]["matchLabels"] == service["selector"]
        ports = {port["name"]: port["containerPort"] for port in container["ports"]}
        assert {port["name"]: port["port"] for port in service["ports"]} == ports
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        claims = {claim["metadata"]["name"] for claim in found["spec"].get("volumeClaimTemplates", [])}
        for mount in container["volumeMounts"]:
            assert mount["name"] in volumes.keys() | claims
            if "subPath" in mount:
                assert mount["subPath"] in keys[volumes[mount["name"]]["configMap"]["name"]]
        assert {volume["configMap"]["name"] for volume in volumes.values() if "configMap" in volume} <= keys.keys()

    policy = by_kind["NetworkPolicy", "criticd"]["spec"]["podSelector"]["matchLabels"]
    assert policy == by_kind["StatefulSet", "criticd"]["spec"]["selector"]["matchLabels"]
    # What is built is what is named.
    (made,) = kustomization["images"]
    assert f"{made['name']}:{made['newTag']}" == f"criticd:{VERSION}"
    assert yaml.safe_load((PACKAGING / "compose.yaml").read_text())["services"]["criticd"]["image"] == f"criticd:{VERSION}"

    pod = by_kind["StatefulSet", "criticd"]["spec"]["template"]["spec"]
    image, container = dockerfile(), pod["containers"][0]
    security = pod["securityContext"]
    assert f"{security['runAsUser']}:{security['runAsGroup']}" == image["USER"]
    assert [str(port["containerPort"]) for port in container["ports"]] == image["EXPOSE"].split()
    assert image["VOLUME"] == [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "data"]
    # The daemon that is tested here answers what the cluster will ask for.
    import urllib.error
    import urllib.request

    daemon = start()
    for probe in ("livenessProbe", "readinessProbe"):
        path = container[probe]["httpGet"]["path"]
        url = f"http://{daemon.endpoints['http']}{path}"

        def is_answered() -> bool:
            """A cluster asks until the answer is 200."""
            try:
                with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:  # noqa: B023
                    return bool(answer.status == 200)
            except urllib.error.HTTPError as error:
                assert error.code == 503, error.read()
                return False

        when(is_answered, probe)


def test_the_manifest_of_a_ray_cluster_has_pods_that_kubernetes_takes() -> None:
    path = PACKAGING / "kubernetes" / "ray" / "cluster.yaml"
    claim, cluster = yaml.safe_load_all(path.read_text())
    kubernetes_validate.validate(claim, "1.31", strict=True)
    # The operator's own schema is not here: these are keys of its version 1.
    assert (cluster["apiVersion"], cluster["kind"]) == ("ray.io/v1", "RayCluster")
    head, (group,) = cluster["spec"]["headGroupSpec"], cluster["spec"]["workerGroupSpecs"]
    assert cluster["spec"].keys() == {"rayVersion", "headGroupSpec", "workerGroupSpecs"}
    assert head.keys() == {"rayStartParams", "template"}
    assert group.keys() == {"groupName", "replicas", "minReplicas", "maxReplicas", "rayStartParams", "template"}
    for part in (head, group):
        assert all(isinstance(value, str) for value in part["rayStartParams"].values())
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **part["template"]}
        kubernetes_validate.validate(pod, "1.31", strict=True)
        (container,) = part["template"]["spec"]["containers"]
        assert container["image"].endswith(cluster["spec"]["rayVersion"])
        (volume,) = part["template"]["spec"]["volumes"]
        assert volume["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
        assert [mount["name"] for mount in container["volumeMounts"]] == [volume["name"]]
