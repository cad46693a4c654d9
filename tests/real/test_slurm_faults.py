"""Faults of a real Slurm: its daemons, its nodes, its operators; and of the way to it."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentless.engines import launch_script
from agentless.model.containers.claim import TASK
from tests.faults.kill import HOOK
from tests.lab import Lab
from tests.lab.slurm import Slurm, missing
from tests.real.cli import Cli, finish, until

pytestmark = pytest.mark.slow
SETTINGS = {
    "SchedulerParameters": "bf_interval=1,sched_interval=1,sched_min_interval=0",
    "PreemptType": "preempt/partition_prio",
    "PreemptMode": "REQUEUE",
    "KillWait": "1",
    "MessageTimeout": "10",
}
PARTITIONS = {"gpu": "Default=YES State=UP PriorityTier=1", "urgent": "State=UP PriorityTier=9"}


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    """Two nodes with two GPUs; what is in the partition `urgent` preempts what is in the other one."""
    if absent := missing(faketime=False):
        pytest.skip(f"no Slurm on this machine: {'; '.join(absent)}")
    folder = Path(tempfile.mkdtemp(prefix="agl-slurm-"))
    with Slurm(folder, {"c1": 2, "c2": 2}, PARTITIONS, SETTINGS) as slurm:
        yield slurm
    subprocess.run(["rm", "-rf", folder], check=True)


@pytest.fixture(scope="module")
def cli(slurm: Slurm) -> Iterator[Cli]:
    """A person whose inventory has the cluster `hpc`, and whose controller may be told to die before a step."""
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        login = lab.add_node("login", gpus=0, docker=False, namespace=False)
        slurm.give(login)
        cluster = f"host: {login.host}, port: {login.port}, user: root, identity_file: {lab.identity}"
        text = f"version: 1\nclusters:\n  hpc: {{engine: slurm, {cluster}}}\nnodes: {{}}\n"
        cli = Cli(lab, "main", text, PYTHONPATH=str(HOOK), AGENTLESS_FAULTS_STEP=str(lab.root / "step"))
        yield cli
        cli.close()


def state(cli: Cli, task: str) -> str:
    return str(cli.task(task)["state"])


def number(cli: Cli, task: str) -> str:
    return str(cli.task(task)["container"].partition(":")[0])


def jobs(slurm: Slurm, task: str) -> list[str]:
    """The states of all jobs of a task."""
    return slurm.run("squeue", "--noheader", "--states=all", f"--name=agentless-{task}", "--format=%T").split()


def end(cli: Cli, task: str) -> tuple[str, int, str]:
    """State, exit code of `wait`, reason, once it is over."""
    waited = cli("wait", task, code=None)
    return state(cli, task), waited.code, str(cli.task(task)["reason"])


def running(cli: Cli, *words: str) -> str:
    task = cli.submit("hpc", *(words or ("--", "sleep", "300")))
    until(lambda: state(cli, task) == "running")
    return task


def test_tasks_of_a_lost_state_folder_are_found_again_by_the_scripts_of_their_jobs(cli: Cli, slurm: Slurm) -> None:
    runs = running(cli, "--name", "runs", "--", "sleep", "300")
    ended = cli.submit("hpc", "--", "sh", "-c", "exit 5")
    cli("wait", ended, code=5)
    slurm.run("scontrol", "update", "nodename=c1,c2", "state=drain", "reason=fan")
    waits = cli.submit("hpc", "1x", "--", "true")
    until(lambda: "down, drained, or kept for other jobs" in str(cli.task(waits)["reason"]))
    forged = forge(cli.lab.nodes["login"].dir / "home/.agentless/slurm", ended)
    cli("controller", "stop")
    shutil.rmtree(cli.state)
    cli("recover", "--yes")
    tasks = {task["id"]: task for task in cli.get("/v1/tasks", ended=True)}
    assert {key: (task["state"], task["exit_code"]) for key, task in tasks.items()} == {
        runs: ("running", None),
        ended: ("failed", 5),
        waits: ("submitted", None),
    }
    assert (tasks[runs]["name"], tasks[runs]["owner"]) == ("runs", cli.task(waits)["owner"])
    os.chown(forged / "script", 0, 0)  # his own is offered, and a person decides
    assert f"2f{ended[2:]}" in cli("recover", code=None).out
    slurm.run("scontrol", "update", "nodename=c1,c2", "state=resume")
    assert end(cli, waits)[:2] == ("completed", 0)
    cli("kill", runs)
    assert jobs(slurm, runs) == ["CANCELLED"]
    shutil.rmtree(forged)


def forge(folder: Path, task: str) -> Path:
    """A folder like that of this task, with another task in a script that somebody else has written."""
    name = f"2f{task[2:]}"
    forged = Path(shutil.copytree(folder / f"agentless-{task}", folder / f"agentless-{name}"))
    head, packed, rest = (forged / "script").read_text().split("\n", 2)
    labels = {**launch_script.unpacked(packed.removeprefix("# ")), TASK: name}
    (forged / "script").write_text(f"{head}\n# {launch_script.packed(labels)}\n{rest}")
    os.chown(forged / "script", 65534, 65534)
    return forged
