"""What a task has run: how long, on how many GPUs, and of which kind it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agentless.model.tasks.task import Ended, Lost, Paused, Running, Task

HEAD = 3
"""So many words of a command say what it is, like `python train.py --lr` or `python -m train`; the others vary."""

Kind = tuple[str, str, int, tuple[str, ...]]
"""Owner, image, number of GPUs and the first words of the command: tasks of one kind are taken to last equally long."""


@dataclass(frozen=True, slots=True)
class Run:
    """From when until when a task has run (Unix seconds), on how many GPUs, and whether it came to a good end."""

    owner: str
    begin: float
    end: float
    gpus: int
    kind: Kind
    completed: bool


def kind_of(owner: str, image: str | None, gpus: int, command: Sequence[str]) -> Kind:
    """The kind of a task."""
    return owner, image or "", gpus, tuple(command[:HEAD])


def kind_of_task(task: Task) -> Kind:
    """The kind of a task, wherever it is in its life."""
    return kind_of(task.owner, task.spec.image, task.spec.needs.gpus, task.spec.command)


def run_of(task: Task, now: float) -> Run | None:
    """The run that a task has behind it, or is in; None when its container never started."""
    match task.status:
        case Ended(started_at=float() as begin, ended_at=end, placement=placement):
            pass
        case Running(started_at=begin, placement=placement) | Paused(started_at=begin, placement=placement):
            end = now
        case Lost(started_at=float() as begin, placement=placement):
            end = now
        case _:
            return None
    gpus = len(placement.gpu_uuids) if placement else 0
    return Run(task.owner, begin, max(begin, end), gpus, kind_of_task(task), task.state == "completed")
