"""A real Slurm for the tests of a module, and what they ask of tasks and of their jobs."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.lab.slurm import Slurm, missing
from tests.real.cli import Cli, until


@contextlib.contextmanager
def started(
    nodes: Mapping[str, int],
    partitions: Mapping[str, str],
    settings: Mapping[str, str],
    *,
    accounting: bool = False,
    memory: int | None = None,
    lacks: Sequence[str] = (),
) -> Iterator[Slurm]:
    """A Slurm in a folder of its own. Skips the tests if this machine has none, or `lacks` something else."""
    if absent := [*missing(faketime=False), *lacks]:
        pytest.skip(f"no Slurm on this machine: {'; '.join(absent)}")
    folder = Path(tempfile.mkdtemp(prefix="agl-slurm-"))
    with Slurm(folder, nodes, partitions, settings, accounting=accounting, memory=memory) as slurm:
        yield slurm
    subprocess.run(["rm", "-rf", folder], check=True)


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
