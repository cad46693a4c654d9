"""What a node knows of a task: the labels of its container. They are the truth; the controller only remembers.

`agentless.task`, `.owner` and `.gpus` are what other controllers arbitrate by (plain words, readable in `docker ps`);
`agentless.spec` is the whole task as JSON, for `recover`. Changing a label's meaning breaks controllers of older versions on
the same nodes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from agentless.errors import AgentlessError
from agentless.model.container import Container
from agentless.model.spec import Mount, TaskSpec
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


def claim_of(container: Container) -> Claim | None:
    """The claim of a container of ours, None for any other."""
    task = container.labels.get(TASK)
    if not task:
        return None
    gpus = tuple(uuid for uuid in container.labels.get(GPUS, "").split(",") if uuid)
    return Claim(task, container.labels.get(OWNER, "unknown"), gpus)


def labels_of(task: Task, placement: Placement) -> dict[str, str]:
    """The labels that carry `task` placed at `placement`. Secrets are in it by name only."""
    whole = {
        "target": str(task.target),
        "batch": task.batch,
        "created_at": task.created_at,
        "gpus": placement.gpus,
        "cpus": placement.cpus,
        "numa": placement.numa,
        "node": placement.node,
        "spec": {key: value for key, value in asdict(task.spec).items() if value not in (None, (), {}, False)},
    }
    return {
        **task.spec.labels,
        TASK: task.id,
        OWNER: task.owner,
        GPUS: ",".join(placement.gpu_uuids),
        SPEC: json.dumps(whole, separators=(",", ":")),
    }


def task_of(container: Container, node: str) -> Task | None:
    """The task that a container carries, None when its labels are not ours or damaged. Times by the node's clock."""
    claim = claim_of(container)
    if claim is None:
        return None
    try:
        whole = json.loads(container.labels[SPEC])
        return _task(container, claim, node, whole)
    except (KeyError, TypeError, ValueError, AgentlessError):
        return None


def _task(container: Container, claim: Claim, node: str, whole: Mapping[str, object]) -> Task:
    spec = dict(whole["spec"])  # type: ignore[call-overload]
    for key in ("command", "secret_env"):
        spec[key] = tuple(spec.get(key, ()))
    spec["mounts"] = tuple(Mount(**mount) for mount in spec.get("mounts", ()))
    gpus = tuple(int(index) for index in whole["gpus"])  # type: ignore[attr-defined]
    placement = Placement(node, gpus, claim.gpu_uuids, whole["cpus"], whole["numa"])  # type: ignore[arg-type]
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
        spec=TaskSpec(**spec),
        target=parse_target(str(whole["target"])),
        batch=str(whole["batch"]),
        owner=claim.owner,
        created_at=float(whole["created_at"]),  # type: ignore[arg-type]
        status=status,
    )
