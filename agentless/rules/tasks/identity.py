"""Which task a container is, and what one is called whose labels have no right to the id that they give.

Labels are whatever somebody wrote. A container is a task that is remembered when it is the one that this task was seen
to have, or when this controller signed its labels; it is taken in as a task that is not remembered only by a signature.
"""

from __future__ import annotations

import hashlib
import json

from agentless.model.tasks.claim import Claim
from agentless.model.tasks.container import Container
from agentless.model.tasks.task import container_name
from agentless.model.tasks.task_id import is_task_id

Remembered = tuple[bool, str | None]
"""Of a task: whether it is remembered, and the id of its container, None as long as none is known."""


def called(container: Container, claim: Claim, controller: str, remembered: Remembered) -> str:
    """What a container is called on screens and by `stop`: the id of its task, or else its own short id.

    Its own where it cannot be what its label says: that is no id, or is that of a task which has another container, or
    it says that `controller`, this one, has started it, and carries no signature. `remembered` is of the task that it
    claims to be.
    """
    if not is_task_id(claim.task):
        return container.short_id
    known, its = remembered
    if known:
        return claim.task if its == container.id or (its is None and container.signed) else container.short_id
    forged = claim.controller == controller and not container.signed
    return container.short_id if forged else claim.task


def is_adoptable(container: Container, claim: Claim, controller: str) -> bool:
    """Whether a container that nobody remembers is taken in as the task that its labels carry, without being asked.

    Only as the one that a launch has named: a copy of signed labels cannot have that name beside it.
    """
    named = container.name == container_name(claim.task)
    return container.signed and named and claim.controller == controller and is_task_id(claim.task)


def digest(container: Container) -> str:
    """What names a container with exactly these labels, so that what a person has looked at is what is taken in."""
    text = json.dumps([container.id, sorted(container.labels.items())])
    return hashlib.sha256(text.encode()).hexdigest()
