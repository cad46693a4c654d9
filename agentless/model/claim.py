"""What a node knows of a task: the labels of its container. They are the truth; the controller only remembers.

`agentless.task`, `.owner` and `.gpus` are what other controllers arbitrate by (plain words, readable in `docker ps`);
`agentless.spec` is the whole task as JSON, for `recover`. Changing a label's meaning breaks controllers of older
versions on the same nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field, TypeAdapter

from agentless.errors import AgentlessError
from agentless.model.container import Container
from agentless.model.spec import TaskSpec
from agentless.model.target import parse_target
from agentless.model.task import Assigning, Ended, Outcome, Paused, Placement, Running, Task

TASK = "agentless.task"
OWNER = "agentless.owner"
GPUS = "agentless.gpus"
SPEC = "agentless.spec"


@dataclass(frozen=True, slots=True)
class Claim:
    """The part of the labels that decides who holds a GPU."""

    task: str
    owner: str
    gpu_uuids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Whole:
    """The label `agentless.spec`: what no other label says of the task."""

    target: str
    batch: str
    created_at: Annotated[float, Field(ge=0, lt=1e11)]
    gpus: tuple[int, ...]
    spec: TaskSpec
    cpus: str | None = None
    numa: int | None = None


_WHOLE = TypeAdapter(_Whole)


def claim_of(container: Container) -> Claim | None:
    """The claim of a container of ours, None for any other."""
    task = container.labels.get(TASK)
    if not task:
        return None
    gpus = tuple(uuid for uuid in container.labels.get(GPUS, "").split(",") if uuid)
    return Claim(task, container.labels.get(OWNER, "unknown"), gpus)


def labels_of(task: Task, placement: Placement) -> dict[str, str]:
    """The labels that carry `task` placed at `placement`. Secrets are in it by name only."""
    whole = _Whole(
        str(task.target), task.batch, task.created_at, placement.gpus, task.spec, placement.cpus, placement.numa
    )
    return {
        **task.spec.labels,
        TASK: task.id,
        OWNER: task.owner,
        GPUS: ",".join(placement.gpu_uuids),
        SPEC: _WHOLE.dump_json(whole, exclude_none=True).decode(),
    }


def task_of(container: Container, node: str) -> Task | None:
    """The task that a container carries, None when its labels are not ours or damaged. Times by the node's clock."""
    claim = claim_of(container)
    if claim is None:
        return None
    try:
        return _task(container, claim, node, _WHOLE.validate_json(container.labels[SPEC]))
    except (KeyError, ValueError, AgentlessError):
        return None


def _task(container: Container, claim: Claim, node: str, whole: _Whole) -> Task:
    placement = Placement(node, whole.gpus, claim.gpu_uuids, whole.cpus, whole.numa)
    began = container.started_at or container.created_at or 0.0
    status: Assigning | Running | Paused | Ended
    if container.state == "created":
        status = Assigning(placement, began)
    elif container.state == "paused":
        status = Paused(placement, container.id, began)
    elif container.live:
        status = Running(placement, container.id, began)
    else:
        outcome: Outcome = (
            "completed" if container.exit_code == 0 else "killed_oom" if container.oom_killed else "failed"
        )
        status = Ended(
            outcome, container.finished_at or began, container.exit_code, None, placement, container.id, began
        )
    return Task(
        id=claim.task,
        spec=whole.spec,
        target=parse_target(whole.target),
        batch=whole.batch,
        owner=claim.owner,
        created_at=whole.created_at,
        status=status,
    )
