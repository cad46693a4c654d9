"""The run of a task: how long, on how many GPUs, and its kind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentless.model.containers.job_id import job_number
from agentless.model.tasks.task import Ended, Lost, Paused, Running, Submitted, Task

HEAD = 3
"""The first words of a command that identify its kind, like `python -m train`. Later words vary."""

Kind = tuple[str, str, int, tuple[str, ...]]
"""Owner, image, number of GPUs and first words of the command. Tasks of a kind are expected to last equally long."""


@dataclass(frozen=True, slots=True)
class Run:
    """The begin and end of a run (Unix seconds), its GPUs, whether it succeeded, and whether it was preemptible.

    `away`: it was a job of a cluster.
    """

    owner: str
    begin: float
    end: float
    gpus: int
    kind: Kind
    completed: bool
    lent: bool = False
    away: bool = False


def kind_of(owner: str, image: str | None, gpus: int, command: Sequence[str]) -> Kind:
    """The kind of a task."""
    return owner, image or "", gpus, tuple(command[:HEAD])


def kind_of_task(task: Task) -> Kind:
    """The kind of a task in any state."""
    return kind_of(task.owner, task.spec.image, task.spec.needs.gpus, task.spec.command)


def gpus_held(task: Task) -> int:
    """How many GPUs a task has or had. A cluster does not say which, but a job has as many as it asks for."""
    if job_number(task.container):
        return 0 if isinstance(task.status, Submitted) else task.spec.gpus_of_job
    return len(task.placement.gpu_uuids) if task.placement else 0


def run_of(task: Task, now: float) -> Run | None:
    """The run of an ended or running task. None if its container never started."""
    match task.status:
        case Ended(started_at=float() as begin, ended_at=end):
            pass
        case Running(started_at=begin) | Paused(started_at=begin) | Lost(started_at=float() as begin):
            end = now
        case _:
            return None
    lent = task.spec.terms.preemptible
    done, away = task.state == "completed", job_number(task.container) is not None
    return Run(task.owner, begin, max(begin, end), gpus_held(task), kind_of_task(task), done, lent, away)
