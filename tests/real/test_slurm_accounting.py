"""Jobs that a real slurmctld has forgotten: their ends are in their folders, and in the database of slurmdbd."""

from __future__ import annotations

import os
import shutil
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
TOLD = "its job was ended by Slurm: cancelled, preempted, or at its time limit"
ENDS = {
    "completed": ("completed", 0, "None"),
    "failed": ("failed", 3, "None"),
    "late": ("failed", 4, "None"),
    "cancelled": ("killed", 1, CANCELLED),
    "deaf": ("killed", 1, CANCELLED),
    "waiting": ("killed", 1, CANCELLED),
}
KNOWN = ENDS | {
    "cancelled": ("failed", 143, TOLD),
    "deaf": ("failed", 1, TOLD),
    "waiting": ("killed", 1, "its job was removed from the queue of its cluster, outside agentless"),
}
"""What is known of them without an accounting."""


def ends(cli: Cli, slurm: Slurm) -> dict[str, tuple[str, int, str]]:
    """How tasks have ended whose jobs have ended while no controller ran, and that Slurm has forgotten since."""
    go = cli.lab.root / "go"
    wait = f"until [ -e {go} ]; do sleep .1; done"
    tasks = {
        "completed": running(cli, "--", "sh", "-c", wait),
        "failed": running(cli, "--", "sh", "-c", f"{wait}; exit 3"),
        "cancelled": running(cli, "--", "sleep", "300"),
        "deaf": running(cli, "--", "sh", "-c", "trap '' TERM; while :; do sleep 1; done"),
    }
    slurm.run("scontrol", "update", "nodename=c1,c2", "state=drain", "reason=fan")
    waits = ("submit", "--secret-env", "TOKEN", "hpc", "--", "sh", "-c")
    tasks |= {name: cli(*waits, "exit $0", "4", TOKEN="hush").out.strip() for name in ("late", "waiting")}
    until(lambda: {cli.task(tasks[name])["state"] for name in ("late", "waiting")} == {"submitted"})
    numbers = {name: number(cli, tasks[name]) for name in ("cancelled", "deaf", "waiting")}
    cli.kill_controller()
    go.touch()
    slurm.run("scancel", *numbers.values())
    slurm.run("scontrol", "update", "nodename=c1,c2", "state=resume")
    until(lambda: not any(jobs(slurm, task) for task in tasks.values()), 200)
    found = {name: end(cli, task) for name, task in tasks.items()}
    folder = cli.lab.nodes["login"].dir / "home" / ".agentless" / "slurm"
    until(lambda: not [*folder.glob("agentless-*/secrets")])
    return found


def test_jobs_that_slurm_has_forgotten_have_the_ends_that_its_accounting_knows(cli: Cli, slurm: Slurm) -> None:
    assert ends(cli, slurm) == ENDS
    cli("controller", "stop")
    shutil.rmtree(cli.state)
    offered = cli("recover", code=None).out
    assert cli("recover", code=None).out == offered  # whoever looks first loses nothing
    cli("recover", "--yes")
    states = [task["state"] for task in cli.get("/v1/tasks", ended=True)]
    assert sorted(states) == sorted(state for state, *_ in ENDS.values())


def test_without_the_accounting_the_folder_says_how_they_ended(cli: Cli, slurm: Slurm) -> None:
    database = int(slurm.run("cat", f"{slurm.completed.parent}/slurmdbd.pid"))
    os.kill(database, signal.SIGSTOP)
    try:
        assert ends(cli, slurm) == KNOWN
    finally:
        os.kill(database, signal.SIGCONT)
