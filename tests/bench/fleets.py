"""What is measured on: real nodes of `tests/lab` or simulated ones, and a controller of its own that serves them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from agentless import paths
from agentless.client.client import Client
from agentless.controller import plugins
from agentless.inventory import inventory
from agentless.model.nodes.node import NodeConfig
from agentless.remote.session import Session
from agentless.remote.transports import SshFiles
from tests.bench.measure import timed
from tests.lab import IMAGE, Lab, Node

AGENTLESS = str(Path(sys.executable).parent / "agentless")
_SIMULATED = "simulated/python:3.12"


@contextlib.contextmanager
def real_nodes(*names: str, docker: bool = True, gpus: int = 2) -> Iterator[Lab]:
    """A lab with nodes of so many GPUs each; without `docker` they are mere sshds on loopback."""
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        lab.add_nodes(dict.fromkeys(names, gpus), docker=docker, namespace=docker)
        yield lab


@contextlib.contextmanager
def simulated_nodes(count: int, gpus: int, *, taken: int = 0) -> Iterator[Path]:
    """The folder of a simulation that runs in a process of its own.

    Somebody else is on the last GPU of the second node: with `taken` 1 that node has one more.
    """
    numbers = [str(gpus + taken * (number == 1)) for number in range(count)]
    root = Path(tempfile.mkdtemp(prefix="agentless-bench-"))
    argv = [sys.executable, "-m", "agentless.demo", str(root / "fleet"), "--nodes", ",".join(numbers)]
    try:
        with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdin
            assert process.stdout
            if not process.stdout.readline().startswith(b"ready"):
                raise RuntimeError("the simulated nodes did not start")
            yield root
            process.stdin.close()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def session_to(lab: Lab, name: str) -> tuple[Session, NodeConfig]:
    """A session of this process to a node of the lab, not connected yet, and the node's configuration."""
    node = inventory.load(lab.inventory).nodes[name]
    files = SshFiles(home=lab.home, known_hosts=Path("/dev/null"))
    return Session(plugins.load("remote.transports", node.connection).make(node, files), node.name), node


def real_env(lab: Lab) -> dict[str, str]:
    """The environment of a user of the lab's nodes."""
    return {**lab.env(), "AGENTLESS_INVENTORY": str(lab.inventory)}


def simulated_env(root: Path, name: str = "main") -> dict[str, str]:
    """The environment of a user of the simulated nodes; another name has a controller of its own."""
    folders = {"XDG_CONFIG_HOME": root / name / "config", "XDG_STATE_HOME": root / name / "state"}
    for folder in folders.values():
        folder.joinpath("agentless").mkdir(parents=True)
    shutil.copy(root / "fleet" / "known_hosts", folders["XDG_CONFIG_HOME"] / "agentless")
    mine = {"AGENTLESS_INVENTORY": str(root / "fleet" / "inventory.yaml"), **{k: str(v) for k, v in folders.items()}}
    return {**os.environ, **mine}


@contextlib.contextmanager
def controller(env: Mapping[str, str]) -> Iterator[Client]:
    """A controller that every node has answered; the client to it stays in this process."""
    try:
        timed([AGENTLESS, "nodes"], env)
        yield Client(paths.state_dir(env), paths.find_inventory(None, env))
    finally:
        timed([AGENTLESS, "controller", "stop"], env)


def request(target: str, *command: str, image: str = _SIMULATED) -> dict[str, object]:
    """What `agentless submit` sends for this."""
    return {"targets": [target], "spec": {"command": command, "image": image}}


def forget(client: Client, task: str) -> None:
    """Wait for the end of a task and remove it with its container."""
    client.get(f"/v1/tasks/{task}/wait")
    client.delete(f"/v1/tasks/{task}")


def end(root: Path, tasks: set[str]) -> None:
    """End the processes of these tasks on simulated nodes, as the machine's own kill would."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            environment = (process / "environ").read_bytes()
        except OSError:
            continue
        if str(root).encode() not in environment:
            continue
        words = dict(word.split(b"=", 1) for word in environment.split(b"\0") if b"=" in word)
        if words.get(b"AGENTLESS_TASK_ID", b"").decode() in tasks:
            os.kill(int(process.name), signal.SIGKILL)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process so far, see proc(5)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def docker_run(node: Node, name: str) -> list[str]:
    """What `agentless submit node::0 -- true` runs on the node, as one would type it: the same without the labels."""
    options = ["--detach", "--pull", "never", "--name", name, "--gpus", f"device={node.gpu_uuids[0]}"]
    variables = {"AGENTLESS_TASK_ID": name, "AGENTLESS_NODE": node.name, "AGENTLESS_GPUS": "0"}
    for key, value in variables.items():
        options += ["--env", f"{key}={value}"]
    return ["docker", "run", *options, "--stop-timeout", "10", IMAGE, "true"]
