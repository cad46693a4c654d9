"""Which task a container belongs to, and the name of a container whose labels are not trusted.

Anybody can write labels. A container belongs to a known task if it is the container that this task was seen to have, or
if this controller has signed its labels. Only a container with signed labels is adopted as a task that is not known.
"""

from __future__ import annotations

import hashlib
import json

from agentless.model.containers.claim import SPEC, Claim
from agentless.model.containers.container import Container
from agentless.model.containers.job_id import job_number
from agentless.model.tasks.task import container_name
from agentless.model.tasks.task_id import is_task_id

Remembered = tuple[bool, str | None]
"""Of a task: whether it is known, and the id of its container, or None."""


def called(container: Container, claim: Claim, controller: str, remembered: Remembered) -> str:
    """The name of a container on screens and for `stop`: the id of its task, or else its own short id.

    Its own id is used if the label cannot be right: it is no task id, the task has another container, or the container
    claims to be started by this `controller` without a signature. `remembered` is about the task in the label.
    """
    if not is_task_id(claim.task):
        return container.short_id
    known, its = remembered
    if known:
        return claim.task if its == container.id or (its is None and container.signed) else container.short_id
    forged = claim.controller == controller and not container.signed
    return container.short_id if forged else claim.task


def is_adoptable(container: Container, claim: Claim, controller: str) -> bool:
    """Whether a container of an unknown task is adopted automatically as the task in its labels.

    Its name has to be the one of a launch: a container with copied labels cannot have the same name beside it. A job of
    a cluster has only its claim in the list of jobs: its task is read from its script, by `recover`.
    """
    named = container.name == container_name(claim.task)
    whole = job_number(container.id) is None or SPEC in container.labels
    return container.signed and named and whole and claim.controller == controller and is_task_id(claim.task)


def digest(container: Container) -> str:
    """A digest of container and labels, so that `recover` adopts exactly what the user has seen."""
    text = json.dumps([container.id, sorted(container.labels.items())])
    return hashlib.sha256(text.encode()).hexdigest()
