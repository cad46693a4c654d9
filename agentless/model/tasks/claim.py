"""What a node knows of a task: the labels of its container. They are the truth; the controller only remembers.

`agentless.task`, `.owner` and `.gpus` are what other controllers arbitrate by (plain words, readable in `docker ps`);
`.cores`, `.memory` (bytes) and `.exclusive` say what else of the node is set aside for it, `.limit` for how many
seconds at most, `.numa` to which NUMA node it is pinned. `.gpu_share` is how many tasks may be on each of its GPUs,
itself included, and `.gpu_memory` how many bytes of each are its own: one without both has them alone. `.share` is that
processes outside agentless are expected on its GPUs, `.controller` which state folder started it. What a controller may
do by itself because of these words is decided by `.signature`, see `model/tasks/signature`.
`agentless.spec` is the whole task as JSON, for `recover`. Changing a label's meaning breaks controllers of older
versions on the same nodes. An empty label is one that is not there.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field, TypeAdapter

from agentless.errors import AgentlessError
from agentless.model.images.env import NULL
from agentless.model.scheduling.needs import Needs, parse_target
from agentless.model.scheduling.sharing import ALONE, Sharing
from agentless.model.tasks.container import Container
from agentless.model.tasks.spec import TaskSpec, check_numbers
from agentless.model.tasks.task import Assigning, Ended, Paused, Placement, Running, Task, outcome_of

TASK = "agentless.task"
OWNER = "agentless.owner"
GPUS = "agentless.gpus"
CONTROLLER = "agentless.controller"
SHARE = "agentless.share"
CORES = "agentless.cores"
MEMORY = "agentless.memory"
EXCLUSIVE = "agentless.exclusive"
LIMIT = "agentless.limit"
NUMA = "agentless.numa"
GPU_SHARE = "agentless.gpu_share"
GPU_MEMORY = "agentless.gpu_memory"
SPEC = "agentless.spec"
VOLUME = "agentless.volume"
"""The label of a volume, which also has that of its owner: its name. Without it a volume is somebody else's."""


DAMAGED = "(its labels are damaged)"
"""The command of a task whose spec cannot be read."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The part of the labels that decides who holds what. `controller` is the id of the state folder it came from.

    `memory` in bytes, `limit` in seconds; None: nothing was said.
    """

    task: str
    owner: str
    gpu_uuids: tuple[str, ...]
    controller: str = ""
    share: bool = False
    cores: float | None = None
    memory: float | None = None
    exclusive: bool = False
    limit: float | None = None
    sharing: Sharing = ALONE
    numa: int | None = None


@dataclass(frozen=True, slots=True)
class _Whole:
    """The label `agentless.spec`: what no other label says of the task.

    `target` is its place; in version 1 that was also all that a task could ask for.
    """

    target: str
    batch: str
    created_at: Annotated[float, Field(ge=0, lt=1e11)]
    gpus: tuple[Annotated[int, Field(ge=0, lt=10**6)], ...]
    spec: TaskSpec
    cpus: str | None = None
    numa: Annotated[int, Field(ge=0, lt=10**6)] | None = None
    version: int = 1
    vendor: Annotated[str, Field(max_length=64)] | None = None


_WHOLE = TypeAdapter(_Whole)


def named_task(container: Container) -> str | None:
    """The id of the task that the labels of a container name; None for any other container."""
    return container.labels.get(TASK)


def claim_of(container: Container) -> Claim | None:
    """The claim of a container of ours, None for any other. Every word of it is whatever somebody wrote into labels."""
    task = container.labels.get(TASK)
    if task is None:
        return None
    gpus = tuple(uuid for uuid in container.labels.get(GPUS, "").split(",") if uuid)
    labels = container.labels
    numa = labels.get(NUMA, "")
    return Claim(
        task,
        labels.get(OWNER) or "unknown",
        gpus,
        labels.get(CONTROLLER, ""),
        bool(labels.get(SHARE)),
        _number(labels.get(CORES)),
        _number(labels.get(MEMORY)),
        bool(labels.get(EXCLUSIVE)),
        _number(labels.get(LIMIT)),
        _sharing(labels.get(GPU_SHARE, ""), labels.get(GPU_MEMORY, "")),
        int(numa) if numa and re.fullmatch(r"[0-9]{1,4}", numa) else None,
    )


def terms_of(needs: Needs) -> tuple[str, str, str]:
    """On which terms a claim holds its GPUs, as the values of `.exclusive`, `.gpu_share` and `.gpu_memory`."""
    sharing = needs.sharing
    shares = ("", "") if sharing == ALONE else (str(sharing.limit), str(sharing.floor))
    return ("1" if needs.exclusive else "", *shares)


def labels_of(task: Task, placement: Placement, controller: str) -> dict[str, str]:
    """The labels that carry `task` placed at `placement`. Secrets are in it by name only.

    Each label that a claim can have is there, empty where it does not apply: an engine gives a container the labels of
    its image as well, and an image may have been committed from another task.
    """
    place = Needs(gpus=len(placement.gpus), nodes=(placement.node,), numa=placement.numa, indices=placement.gpus)
    whole = _Whole(
        str(place),
        task.batch,
        task.created_at,
        placement.gpus,
        task.spec,
        placement.cpus,
        placement.numa,
        version=2,
        vendor=placement.vendor,
    )
    spec = task.spec
    words = {CORES: spec.cores, MEMORY: spec.memory, LIMIT: spec.ends_within, NUMA: placement.numa}
    exclusive, gpu_share, gpu_memory = terms_of(spec.needs)
    return {
        **task.spec.labels,
        TASK: task.id,
        OWNER: task.owner,
        GPUS: ",".join(placement.claimed),
        CONTROLLER: controller,
        SHARE: "1" if spec.share else "",
        EXCLUSIVE: exclusive,
        **{key: "" if value is None else f"{value:.15g}" for key, value in words.items()},
        GPU_SHARE: gpu_share,
        GPU_MEMORY: gpu_memory,
        SPEC: _WHOLE.dump_json(whole, exclude_none=True).decode(),
    }


def task_of(container: Container, node: str, now: float, task_id: str | None = None) -> Task | None:
    """The task that a container carries, None when it is none of ours. Times by our clock.

    `task_id` is what it is called where its label has no right to the id that it gives. Of one whose spec cannot be
    read, or says that it is no container, what the other labels say: it holds its GPUs all the same.
    """
    claim = claim_of(container)
    if claim is None:
        return None
    try:
        whole = _WHOLE.validate_json(container.labels[SPEC])
        check_numbers(whole.spec)
        if whole.spec.on_node_itself != container.on_node_itself:
            raise ValueError("what runs it is not what its spec says")
        if whole.version == 1:
            # Who started it may call the node otherwise.
            whole = replace(whole, spec=replace(whole.spec, needs=replace(parse_target(whole.target), nodes=(node,))))
    except (KeyError, ValueError, AgentlessError):
        created = container.here(container.created_at) or 0.0
        kind = NULL if container.on_node_itself else None
        spec = TaskSpec((DAMAGED,), container=kind, needs=Needs(nodes=(node,)))
        whole = _Whole(node, task_id or claim.task, max(0.0, created), (), spec)
    return _task(container, replace(claim, task=task_id or claim.task), whole, node, now)


def _sharing(limit: str, floor: str) -> Sharing:
    """As the launch script reads it: what is not understood shares with none."""
    if not limit or not re.fullmatch(r"[1-9][0-9]{0,2}", limit) or not re.fullmatch(r"[1-9][0-9]{0,14}", floor):
        return ALONE
    return Sharing(int(limit), int(floor))


def _number(text: str | None) -> float | None:
    if not text:
        return None
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 < number < math.inf else None


def _task(container: Container, claim: Claim, whole: _Whole, node: str, now: float) -> Task:
    placement = Placement(node, whole.gpus, claim.gpu_uuids, whole.cpus, whole.numa, vendor=whole.vendor)
    ran = (container.ran or 0.0) if container.over else 0.0
    moment = container.here(container.started_at or container.created_at) or 0.0
    # The clock may have been another one when it started, and labels may say anything: nothing is in the future.
    submitted = min(whole.created_at, now)
    began = max(submitted, min(moment, now - ran))
    run = container.started_at
    status: Assigning | Running | Paused | Ended
    if container.state == "created":
        status = Assigning(placement, began)
    elif container.state == "paused":
        status = Paused(placement, container.id, began, run)
    elif container.live:
        status = Running(placement, container.id, began, run)
    else:
        outcome = outcome_of(container.exit_code, oom_killed=container.oom_killed)
        status = Ended(
            outcome, max(began, min(now, began + ran)), container.exit_code, None, placement, container.id, began, run
        )
    return Task(
        id=claim.task,
        spec=whole.spec,
        batch=whole.batch,
        owner=claim.owner,
        created_at=submitted,
        status=status,
        signed=container.signed,
    )
