"""Nodes of another Debian release: the engine is that release's, and nothing of them stays behind."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Kind, Lab, SuiteNode, requirements
from tests.lab.roots import is_made, root_of
from tests.lab.test_lab import network_traces, ssh, traces

if MISSING := requirements(podman=True):
    pytest.skip(f"no lab on this machine: {'; '.join(MISSING)}", allow_module_level=True)
if not is_made("sid"):
    pytest.skip("no root of sid yet (make engines makes it)", allow_module_level=True)

CLASSIC, CONTAINERD = "overlay2", "overlayfs"


@pytest.fixture
def lab() -> Iterator[Lab]:
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        yield lab


def gpus_seen(node: SuiteNode, run: str) -> list[str]:
    """The UUIDs that a container sees which `run` starts."""
    done = node.sh(f"{run} busybox env")
    assert done.returncode == 0, done.stderr
    return [line.partition("=")[2] for line in done.stdout.splitlines() if "GPU-" in line]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "store", "login"),
    [
        (Kind(), CLASSIC, "root"),
        (Kind(containerd=True), CONTAINERD, "root"),
        (Kind(rootless=True), CLASSIC, "carol"),
        (Kind(rootless=True, containerd=True), CONTAINERD, "carol"),
        (Kind(cgroup2=True), CLASSIC, "root"),
    ],
)
def test_docker_of_sid(lab: Lab, kind: Kind, store: str, login: str) -> None:
    """Sessions see this engine with this store, and GPUs as its runtime gives them."""
    node = lab.add_suite_node("new", kind)
    seen = ssh(lab, "new", "id -un; docker info --format '{{.ServerVersion}} {{.Driver}} {{.CgroupVersion}}'").stdout
    assert seen.startswith(f"{login}\n28.")
    assert seen.split()[2:] == [store, "2" if kind.cgroup2 else "1"]
    uuid = node.gpu_uuids[1]
    assert gpus_seen(node, f"docker run --rm --gpus device={uuid}") == [uuid]


@pytest.mark.slow
def test_docker_with_nothing_but_cdi(lab: Lab) -> None:
    """It knows the devices of the file, and gives exactly the one that is asked for."""
    node = lab.add_suite_node("cdi", Kind(cdi=True))
    assert gpus_seen(node, f"docker run --rm --device nvidia.com/gpu={node.gpu_uuids[1]}") == [node.gpu_uuids[1]]


@pytest.mark.slow
@pytest.mark.parametrize(("suite", "version"), [("trixie", "5.4"), ("sid", "5.8")])
def test_podman(lab: Lab, suite: str, version: str) -> None:
    """Its CDI file is in the node's own /etc."""
    if not is_made(suite):
        pytest.skip(f"no root of {suite} yet")
    node = lab.add_suite_node("pod", Kind(suite, "podman"))
    assert node.sh("podman --version").stdout.startswith(f"podman version {version}")
    assert gpus_seen(node, f"podman run --rm --device nvidia.com/gpu={node.gpu_uuids[0]}") == [node.gpu_uuids[0]]


def test_close_leaves_nothing_and_the_root_as_it_was() -> None:
    """Not even with containers that run and one that is paused, and what a node writes is its own."""
    lab = Lab(Path(tempfile.mkdtemp(prefix="agl-")))
    node = lab.add_suite_node("new", Kind(containerd=True))
    network = str(lab.network)
    node.sh("docker run -d busybox sleep 100; docker run -d --name paused busybox sleep 99; docker pause paused")
    node.sh("touch /etc/written").check_returncode()
    assert node.sh("docker ps --quiet").stdout.count("\n") == 2
    lab.close()
    assert traces(lab.root) == []
    assert network_traces(network) == []
    assert not root_of("sid").joinpath("etc/written").exists()


def test_a_root_that_is_not_there_can_be_made_or_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without debootstrap there is none."""
    monkeypatch.setenv("AGENTLESS_LAB_ROOTS", str(tmp_path))
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    assert "debootstrap" in requirements(suite="sid")[-1]
