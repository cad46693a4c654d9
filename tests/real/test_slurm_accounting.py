"""Jobs that a real slurmctld has forgotten: their ends are in their folders, and in the database of slurmdbd."""

from __future__ import annotations

import os
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab import Lab, accounting
from tests.lab.slurm import Slurm
from tests.real.cli import Cli, until
from tests.real.slurm import end, jobs, number, running, started

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def slurm() -> Iterator[Slurm]:
    settings = {"SchedulerParameters": "bf_interval=1,sched_interval=1", "KillWait": "2", "MinJobAge": "2"}
    nodes, partitions = {"c1": 4, "c2": 4}, {"gpu": "Default=YES State=UP"}
    with started(nodes, partitions, settings, accounting=True, lacks=accounting.missing()) as slurm:
        yield slurm


@pytest.fixture
def cli(slurm: Slurm) -> Iterator[Cli]:
    with Lab(Path(tempfile.mkdtemp(prefix="agl-"))) as lab:
        _, cluster = slurm.login_of(lab)
        cli = Cli(lab, "main", f"version: 1\nclusters:\n  hpc: {{engine: slurm, {cluster}}}\nnodes: {{}}\n")
        yield cli
        cli.close()


CANCELLED = "its job was cancelled on the cluster, outside agentless"
ENDS = {
    "completed": ("completed", 0, "None"),
    "failed": ("failed", 3, "None"),
    "cancelled": ("killed", 1, CANCELLED),
    "deaf": ("killed", 1, CANCELLED),
    "waiting": ("failed", 1, CANCELLED),
}


def test_jobs_that_slurm_has_forgotten_have_the_ends_that_its_accounting_knows(cli: Cli, slurm: Slurm) -> None:
    go = cli.lab.root / "go"
    wait = f"until [ -e {go} ]; do sleep .1; done"
    tasks = {
        "completed": running(cli, "--", "sh", "-c", wait),
        "failed": running(cli, "--", "sh", "-c", f"{wait}; exit 3"),
        "cancelled": running(cli, "--", "sleep", "300"),
        "deaf": running(cli, "--", "sh", "-c", "trap '' TERM; while :; do sleep 1; done"),
    }
    slurm.run("scontrol", "update", "nodename=c1,c2", "state=drain", "reason=fan")
    tasks["waiting"] = cli.submit("hpc", "--", "true")
    until(lambda: cli.task(tasks["waiting"])["state"] == "submitted")
    numbers = {name: number(cli, tasks[name]) for name in ("cancelled", "deaf", "waiting")}
    cli.kill_controller()
    go.touch()
    slurm.run("scancel", *numbers.values())
    until(lambda: not any(jobs(slurm, task) for task in tasks.values()), 200)
    slurm.run("scontrol", "update", "nodename=c1,c2", "state=resume")
    assert {name: end(cli, task) for name, task in tasks.items()} == ENDS


def test_without_the_accounting_the_folder_says_that_slurm_ended_it(cli: Cli, slurm: Slurm) -> None:
    database = int(slurm.run("cat", f"{slurm.completed.parent}/slurmdbd.pid"))
    task = running(cli, "--", "sleep", "300")
    job = number(cli, task)
    cli.kill_controller()
    slurm.run("scancel", job)
    until(lambda: not jobs(slurm, task), 200)
    os.kill(database, signal.SIGSTOP)
    try:
        why = "its job was ended by Slurm: cancelled, preempted, or at its time limit"
        assert end(cli, task) == ("failed", 143, why)
    finally:
        os.kill(database, signal.SIGCONT)
