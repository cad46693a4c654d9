"""The lab itself: nodes are real, separate, can fail and be cured, and nothing of them stays behind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.lab import Lab, Node, requirements
from tests.lab.processes import processes

if MISSING := requirements():
    pytest.skip(f"no lab on this machine: {'; '.join(MISSING)}", allow_module_level=True)


@pytest.fixture(scope="module")
def lab() -> Iterator[Lab]:
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        lab.add_nodes({"node1": 2, "node2": 4})
        yield lab


@pytest.fixture
def node(lab: Lab) -> Iterator[Node]:
    yield lab.nodes["node1"]
    lab.reset()


def ssh(lab: Lab, target: str, command: str) -> subprocess.CompletedProcess[str]:
    argv = ["ssh", "-F", f"{lab.home}/.ssh/config", "-o", "ConnectTimeout=2", target, command]
    return subprocess.run(argv, check=False, capture_output=True, text=True, timeout=30, env=lab.env())


def open_session(lab: Lab, target: str, command: str) -> subprocess.Popen[bytes]:
    argv = ["ssh", "-F", f"{lab.home}/.ssh/config", target, command]
    return subprocess.Popen(argv, env=lab.env(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def eventually(condition: Callable[[], object], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def traces(root: Path) -> list[str]:
    """What a machine still shows of a lab: processes, mounts, links, cgroups, users, files."""
    mark = f"AGENTLESS_LAB={root}"
    found = [p.command for p in processes().values() if f"{root}/" in p.command or mark in p.environ]
    found += [line for line in Path("/proc/self/mounts").read_text().splitlines() if str(root) in line]
    found += [line for line in Path("/etc/passwd").read_text().splitlines() if str(root) in line]
    return found + ([str(root)] if root.exists() else [])


def network_traces(name: str) -> list[str]:
    links = [link for link in os.listdir("/sys/class/net") if link == name or link.startswith(f"{name}v")]
    return links + [str(path) for path in Path("/sys/fs/cgroup").glob(f"**/{name}")]


def test_a_session_means_its_node(lab: Lab, node: Node) -> None:
    """`nvidia-smi` and `docker` over SSH show the GPUs and the containers of the node that was asked."""
    node.sh("docker run -d --name only-here lab/busybox sleep 100")
    command = "nvidia-smi -L | wc -l; docker ps --format '{{.Names}}'"
    seen = {name: ssh(lab, name, command).stdout for name in ("node1", "node2")}
    assert seen == {"node1": "2\nonly-here\n", "node2": "4\n"}


def test_a_container_gets_its_gpus(node: Node) -> None:
    """Several devices by UUID reach the container, as with NVIDIA's runtime."""
    devices = ",".join(node.gpu_uuids)
    ran = node.sh(f"""docker run --rm --gpus '"device={devices}"' busybox env""")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert f"NVIDIA_VISIBLE_DEVICES={devices}" in ran.stdout.splitlines()


def test_nodes_have_the_same_image(lab: Lab) -> None:
    """As if they had pulled it from one registry."""
    asked = "docker images --no-trunc --quiet lab/busybox"
    assert lab.nodes["node1"].sh(asked).stdout == lab.nodes["node2"].sh(asked).stdout != ""


def test_nothing_reaches_the_internet(node: Node) -> None:
    """A node has no route out, so a missing image fails at once."""
    done = node.sh("docker pull no-such-image")
    assert done.returncode == 1
    assert "unreachable" in done.stderr


def test_memory_limit_is_real(node: Node) -> None:
    """A container that takes too much is killed. On a busy machine Docker does not always hear why."""
    node.sh("docker run --name big -m 16m busybox sh -c 'a=x; while :; do a=$a$a; done'")
    assert node.sh("docker inspect -f '{{.State.ExitCode}}' big").stdout == "137\n"


def test_gpu_readings_and_faults(lab: Lab, node: Node) -> None:
    """A test decides what nvidia-smi says."""
    query = "nvidia-smi --query-gpu=index,utilization.gpu --format=csv,noheader"
    node.set_gpus([{"utilization.gpu": "97"}, {}, {"utilization.gpu": "[N/A]"}])
    assert ssh(lab, "node1", query).stdout == "0, 97 %\n1, 0 %\n2, [N/A]\n"
    node.set_gpus(0)
    assert ssh(lab, "node1", query).stdout == "No devices were found\n"
    node.fault("exit 9\nUnable to determine the device handle\n")
    failed = ssh(lab, "node1", query)
    assert (failed.returncode, failed.stdout) == (9, "Unable to determine the device handle\n")
    node.fault("hang\n")
    assert ssh(lab, "node1", f"timeout 0.2 {query}").returncode == 124


def test_a_process_uses_a_gpu_while_it_lives(node: Node) -> None:
    """Also when its parent has not collected it yet."""
    fields = "gpu_uuid,pid,process_name,used_gpu_memory"
    query = f"nvidia-smi --query-compute-apps={fields} --format=csv,noheader,nounits"
    process = node.add_process(1, ["sleep", "100"], memory_mib=512)
    assert node.sh(query).stdout == f"{node.gpu_uuids[1]}, {node.pid(process)}, sleep, 512\n"
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert node.sh(query).stdout == ""


def test_rc_file_of_sessions_is_the_nodes_own(lab: Lab) -> None:
    """A slow or talkative ~/.bashrc can be had, and the one of the machine's user is never read."""
    lab.add_node("talker", docker=False, bashrc="echo from-rc\n")
    assert ssh(lab, "talker", "echo $HOME").stdout == f"from-rc\n{lab.root}/talker/home\n"
    assert ssh(lab, "node1", "echo $HOME").stdout == f"{lab.root}/node1/home\n"


def test_leftovers_outlive_their_connection(lab: Lab, node: Node) -> None:
    """What a session leaves behind is found, however it has cut itself loose, and on its node only."""
    assert node.leftovers() == []
    session = open_session(lab, "node1", "setsid sleep 87 & exec sleep 88")
    eventually(lambda: {command for _, command in node.leftovers()} == {"sleep 87", "sleep 88"})
    assert lab.nodes["node2"].leftovers() == []
    node.kill_connections()
    assert session.wait(30) == 255
    assert {command for _, command in node.leftovers()} == {"sleep 87", "sleep 88"}
    assert ssh(lab, "node1", "true").returncode == 0
    for pid, _ in node.leftovers():
        os.kill(pid, signal.SIGKILL)


def test_sshd_stops_and_starts(lab: Lab, node: Node) -> None:
    """A stopped sshd refuses, and whoever was connected notices."""
    session = open_session(lab, "node1", "cat; sleep 86")
    eventually(node.leftovers)
    node.stop_sshd()
    assert session.wait(30) == 255
    assert "Connection refused" in ssh(lab, "node1", "true").stderr
    node.start_sshd()
    assert ssh(lab, "node1", "true").returncode == 0
    for pid, _ in node.leftovers():
        os.kill(pid, signal.SIGKILL)


def test_cable_is_pulled_and_plugged(lab: Lab, node: Node) -> None:
    """A connection outlives a short cut without a word; a new one gets no answer meanwhile."""
    session = open_session(lab, "node1", "sleep 1; exit 7")
    eventually(node.leftovers)
    node.cut()
    refused = ssh(lab, "node1", "true")
    assert refused.returncode == 255
    assert session.poll() is None
    node.restore()
    assert session.wait(30) == 7
    assert ssh(lab, "node1", "true").returncode == 0


def test_docker_stops_and_starts(node: Node) -> None:
    """Its containers end with it and are remembered."""
    node.sh("docker run -d --name survivor busybox sleep 100")
    node.stop_docker()
    assert "Cannot connect" in node.sh("docker ps").stderr
    node.start_docker()
    assert node.sh("docker inspect -f '{{.State.Status}}' survivor").stdout == "exited\n"


def test_docker_crashes(node: Node) -> None:
    """As after a power cut, Docker knows of the container that ran and says 255."""
    node.sh("docker run -d --name victim busybox sleep 100")
    node.kill_docker()
    node.start_docker()
    assert node.sh("docker inspect -f '{{.State.Status}} {{.State.ExitCode}}' victim").stdout == "exited 255\n"


def test_host_key_changes(lab: Lab, node: Node) -> None:
    """OpenSSH refuses the new key, and `reset` brings the first one back."""
    first = node.host_public_key
    node.new_host_key()
    assert node.host_public_key != first
    assert "HOST IDENTIFICATION HAS CHANGED" in ssh(lab, "node1", "true").stderr
    node.reset()
    assert node.host_public_key == first
    assert ssh(lab, "node1", "true").returncode == 0


def test_users(lab: Lab) -> None:
    """One may use Docker, the other may not."""
    may = ssh(lab, f"{lab.add_user('a', docker_group=True)}@node1", "id -u; docker ps -q && nvidia-smi -L")
    may_not = ssh(lab, f"{lab.add_user('b')}@node1", "docker ps -q")
    assert (may.returncode, may.stderr) == (0, "")
    assert not may.stdout.startswith("0\n")
    assert "permission denied" in may_not.stderr


@pytest.mark.skipif(not shutil.which("sudo"), reason="no sudo (Debian's package sudo)")
def test_sudo_docker_means_the_node(lab: Lab, node: Node) -> None:
    """A user whose engine is `sudo docker` sees the containers of the node."""
    login = lab.add_user("admin", sudo=True)
    node.sh("docker run -d --name only-here busybox sleep 100")
    assert ssh(lab, f"{login}@node1", "sudo docker ps --format '{{.Names}}'").stdout == "only-here\n"


def test_close_leaves_nothing() -> None:
    """Not even when the lab is full of faults, with a paused container and sessions open."""
    root = Path(tempfile.mkdtemp(prefix="agl-"))
    lab = Lab(root)
    one, two = lab.add_nodes({"one": 1, "two": 1})
    other = lab.add_node("three", docker=False, namespace=False)
    network = str(lab.network)
    lab.add_user("a")
    lab.add_silent_server()
    lab.add_closing_server()
    for name in lab.nodes:
        open_session(lab, name, "setsid sleep 85 & sleep 84")
    one.sh("docker run -d --name paused busybox sleep 100; docker pause paused")
    one.sh("docker run -d --network host busybox sleep 99")
    one.add_process(0, ["sleep", "100"])
    eventually(lambda: all(node.leftovers() for node in (one, two, other)))
    one.cut()
    two.stop_sshd()
    two.stop_docker()
    assert traces(root)
    assert network_traces(network)
    lab.close()
    assert traces(root) == []
    assert network_traces(network) == []
    lab.close()


@pytest.mark.slow
@pytest.mark.skipif(bool(requirements(podman=True)), reason="no podman")
def test_close_leaves_nothing_of_podman() -> None:
    """Neither what runs nor what is paused, nor the file that offers GPUs."""
    root = Path(tempfile.mkdtemp(prefix="agl-"))
    lab = Lab(root)
    node = lab.add_podman("pod", gpus=1)
    network = str(lab.network)
    device = f"--device nvidia.com/gpu={node.gpu_uuids[0]}"
    node.sh(f"podman run -d --name paused {device} busybox sleep 100; podman pause paused")
    node.sh("podman run -d busybox sleep 99; podman create busybox true")
    assert node.sh("podman ps --all --quiet").stdout.count("\n") == 3
    assert list(Path("/etc/cdi").glob(f"{network}-*"))
    lab.close()
    assert traces(root) == []
    assert network_traces(network) == []
    assert not list(Path("/etc/cdi").glob(f"{network}-*"))


@pytest.mark.slow
def test_close_leaves_nothing_of_engines_beside_the_nodes_own() -> None:
    """A user's own runs in namespaces of hers."""
    root = Path(tempfile.mkdtemp(prefix="agl-"))
    lab = Lab(root)
    (node,) = lab.add_nodes({"one": 1})
    network = str(lab.network)
    login = lab.add_user("alice")
    for docker in (node.second_engine(lab._shared_network()), node.rootless_engine(login)):
        assert node.sh(f"{docker} run -d busybox sleep 100").returncode == 0
    assert ssh(lab, f"{lab.add_user('b')}@one", f"{docker} ps").returncode != 0
    lab.close()
    assert traces(root) == []
    assert network_traces(network) == []


def test_a_node_sees_its_own_processes_only(lab: Lab, node: Node) -> None:
    """Those of another node and of the machine are none of its."""
    other = lab.nodes["node2"].add_process(0, ["sleep", "4712"])
    mine = node.add_process(0, ["sleep", "4713"])
    seen = ssh(lab, "node1", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '").stdout
    assert ("sleep 4712" in seen, "sleep 4713" in seen) == (False, True)
    assert ssh(lab, "node1", f"cat /proc/{node.pid(mine)}/comm").stdout == "sleep\n"
    assert other.poll() is None


def test_guard_removes_the_lab_of_a_killed_process() -> None:
    """A test run that is killed cannot clean up after itself."""
    root = Path(tempfile.mkdtemp(prefix="agl-"))
    script = (
        "import os, sys, pathlib; from tests.lab import Lab; lab = Lab(pathlib.Path(sys.argv[1]));"
        "lab.add_node('one'); print(lab.network, flush=True); os.kill(os.getpid(), 9)"
    )
    argv = [sys.executable, "-c", script, str(root)]
    ran = subprocess.run(argv, check=False, stdout=subprocess.PIPE, text=True, timeout=30)
    assert ran.returncode == -signal.SIGKILL
    eventually(lambda: not traces(root) and not network_traces(ran.stdout.strip()), 30)
