"""The labels of a container, which carry its whole task. They are the truth; the controller only remembers.

Other controllers arbitrate by `agentless.task`, `.owner` and `.gpus` (plain text, readable in `docker ps`). Part of a
GPU is in `.gpus` as `GPU-x_MIG-y`, behind its `GPU-x`; a GPU without any part behind it is held whole. `.cores`,
`.memory` (bytes) and `.exclusive` are set aside on the node, for at most `.limit` seconds. `.numa` is the NUMA node to
which the task is pinned. `.gpu_share` is how many tasks may share each of its GPUs, including itself, and `.gpu_memory`
how many bytes of each are reserved; without both, it has them alone. `.share`: foreign processes are expected on its
GPUs. `.controller` is the state folder that started it. `.signature` decides what a controller may do automatically
because of these labels, see `model/containers/signature`. `agentless.spec` is the whole task as JSON, for `recover`.

The meaning of a label must not change: controllers of older versions may use the same nodes. An empty label counts as
missing.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import Field, TypeAdapter

from agentless.errors import AgentlessError
from agentless.model.containers.container import Container
from agentless.model.images.env import NULL
from agentless.model.nodes.device import PART_NUMBER, devices_of, parents_of
from agentless.model.scheduling.needs import Needs, parse_target
from agentless.model.scheduling.sharing import ALONE, Sharing
from agentless.model.tasks.spec import TaskSpec, check_numbers
from agentless.model.tasks.task import Assigning, Ended, Paused, Placement, Running, Submitted, Task, outcome_of
from agentless.model.text import printable

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
"""The label of a volume: its name. A volume without it is foreign. The label of the owner is the same as for tasks."""


DAMAGED = "(its labels are damaged)"
"""The command shown for a task whose spec cannot be read."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The labels that decide who holds what. `controller` is the id of its state folder.

    `gpu_uuids` are the devices, `parents` for each the GPU that it is a part of, as in `Placement`.

    `memory` is in bytes, `limit` in seconds; None if the label is missing.
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
    parents: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Whole:
    """The label `agentless.spec`: everything that no other label has.

    `target` is the placement; in version 1, it was also the whole request.
    """

    target: str
    batch: str
    created_at: Annotated[float, Field(ge=0, lt=1e11)]
    gpus: tuple[Annotated[int, Field(ge=0, lt=10**6)] | Annotated[str, Field(pattern=f"^{PART_NUMBER.pattern}$")], ...]
    spec: TaskSpec
    cpus: str | None = None
    numa: Annotated[int, Field(ge=0, lt=10**6)] | None = None
    version: int = 1
    vendor: Annotated[str, Field(max_length=64)] | None = None
    preemptions: Annotated[int, Field(ge=0, lt=10**4)] | None = None


_WHOLE = TypeAdapter(_Whole)


def named_task(container: Container) -> str | None:
    """The id of the task that the labels of a container name; None for any other container."""
    return container.labels.get(TASK)


def claim_of(container: Container) -> Claim | None:
    """The claim of a container, None without agentless labels. Labels are untrusted: anybody may have written them.

    A container that was started by hand from a snapshot has these labels, all empty.
    """
    task = named_task(container)
    gpus = devices_of(uuid for uuid in container.labels.get(GPUS, "").split(",") if uuid)
    if task is None or not (task or gpus):
        return None
    labels = container.labels
    numa = labels.get(NUMA, "")
    return Claim(
        task,
        labels.get(OWNER) or "unknown",
        tuple(device.id for device in gpus),
        labels.get(CONTROLLER, ""),
        bool(labels.get(SHARE)),
        _number(labels.get(CORES)),
        _number(labels.get(MEMORY)),
        bool(labels.get(EXCLUSIVE)),
        _number(labels.get(LIMIT)),
        _sharing(labels.get(GPU_SHARE, ""), labels.get(GPU_MEMORY, "")),
        int(numa) if numa and re.fullmatch(r"[0-9]{1,4}", numa) else None,
        parents_of(gpus),
    )


def terms_of(needs: Needs) -> tuple[str, str, str]:
    """On which terms a claim holds its GPUs, as the values of `.exclusive`, `.gpu_share` and `.gpu_memory`."""
    sharing = needs.sharing
    shares = ("", "") if sharing == ALONE else (str(sharing.limit), str(sharing.floor))
    return ("1" if needs.exclusive else "", *shares)


def labels_of(task: Task, placement: Placement, controller: str) -> dict[str, str]:
    """The labels of a task at its placement. Secrets are included by name only.

    Every possible label is written, empty if it does not apply: an engine merges in the labels of the image, and that
    may have been committed from another task.
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
        preemptions=task.preemptions or None,
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
    """The task in the labels of a container, None without agentless labels. Times are by our clock.

    `task_id` replaces an untrusted id of the label. If the spec cannot be read, or is of a task without a container,
    the task is made from the other labels, since it holds its GPUs.
    """
    claim = claim_of(container)
    if claim is None:
        return None
    try:
        whole = _WHOLE.validate_json(container.labels[SPEC])
        check_numbers(whole.spec)
        if whole.spec.on_node_itself != container.on_node_itself:
            raise ValueError("the container does not match its spec")
        if whole.version == 1:
            # Another controller may have another name for the node.
            whole = replace(whole, spec=replace(whole.spec, needs=replace(parse_target(whole.target), nodes=(node,))))
    except (KeyError, ValueError, AgentlessError):
        created = container.here(container.created_at) or 0.0
        kind = NULL if container.on_node_itself else None
        spec = TaskSpec((DAMAGED,), container=kind, needs=Needs(nodes=(node,)))
        whole = _Whole(node, task_id or claim.task, max(0.0, created), (), spec)
    if not f"{whole.batch}{whole.spec.name or ''}".isprintable():
        name = whole.spec.name and printable(whole.spec.name)
        whole = replace(whole, batch=printable(whole.batch), spec=replace(whole.spec, name=name))
    if whole.spec.traits.comes_back:
        # Unlike its labels, its limits can change while it runs.
        spec = replace(whole.spec, cores=container.cores, memory=container.memory)
        whole = replace(whole, spec=spec)
    return _task(container, replace(claim, task=task_id or claim.task), whole, node, now)


def _sharing(limit: str, floor: str) -> Sharing:
    """Parsed as in the launch script: an invalid label means no sharing."""
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
    placement = Placement(
        node,
        whole.gpus,
        claim.gpu_uuids,
        whole.cpus,
        whole.numa,
        vendor=whole.vendor,
        parents=claim.parents,
        compute_nodes=container.compute_nodes,
    )
    ran = (container.ran or 0.0) if container.over else 0.0
    moment = container.here(container.started_at or container.created_at) or 0.0
    # The clock may have changed, and labels are untrusted: limit times to the present.
    submitted = min(whole.created_at, now)
    began = max(submitted, min(moment, now - ran))
    run = container.started_at
    status: Assigning | Submitted | Running | Paused | Ended
    if container.state == "created":
        status = Assigning(placement, began)
    elif container.state == "queued":
        status = Submitted(placement, container.id, began, container.error, container.here(container.expected_at))
    elif container.state == "paused":
        status = Paused(placement, container.id, began, run)
    elif container.live:
        status = Running(placement, container.id, began, run)
    else:
        by_code = outcome_of(container.exit_code, oom_killed=container.oom_killed)
        agreed = container.outcome != "preempted" or whole.spec.terms.preemptible
        outcome = (container.outcome if agreed else None) or by_code
        why = container.error if container.outcome else None
        if whole.spec.traits.comes_back and outcome != "killed_oom":
            outcome = "stopped"  # it has no end of its own
        status = Ended(
            outcome, max(began, min(now, began + ran)), container.exit_code, why, placement, container.id, began, run
        )
    return Task(
        id=claim.task,
        spec=whole.spec,
        batch=whole.batch,
        owner=claim.owner,
        created_at=submitted,
        status=status,
        signed=container.signed,
        preemptions=whole.preemptions or 0,
    )
