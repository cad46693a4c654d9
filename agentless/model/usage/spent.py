"""The GPU usage of a task: how many GPUs, from when until when, and how busy they were."""

from __future__ import annotations

from dataclasses import dataclass

from agentless.model.tasks.task import Task
from agentless.model.usage.run import run_of


@dataclass(frozen=True, slots=True)
class GpuActivity:
    """How busy the GPUs of a task were: observed GPU-seconds, and the GPU-seconds of full load in them."""

    seen: float = 0.0
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class Spent:
    """GPUs held by a task between two times (Unix seconds). `seen` and `busy` as in `GpuActivity`.

    `lent`: the task was preemptible.
    """

    task: str
    owner: str
    node: str
    batch: str
    gpus: int
    begin: float
    end: float
    seen: float
    busy: float
    lent: bool = False


def spent_of(task: Task, load: GpuActivity, now: float) -> Spent | None:
    """The usage of a task, up to its end or until now. None if its container never started."""
    run = run_of(task, now)
    if run is None:
        return None
    node = task.node or ""
    return Spent(task.id, task.owner, node, task.batch, run.gpus, run.begin, run.end, load.seen, load.busy, run.lent)
