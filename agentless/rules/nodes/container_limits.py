"""Limits on the containers of a node and their labels. A list above them is rejected."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentless.model.containers.claim import GPUS
from agentless.model.containers.container import Container

MOST = 5000
"""Containers of agentless on a node. Retention keeps 2,000 ended ones; with more, the engine itself is slow."""
LABELS = 16 << 20
"""Characters of all labels: 3,000 per container. A task with a short command has 1,000."""
WORDS = 4096
"""Characters of a label other than the spec. The UUIDs of 64 GPUs have 2,600."""
SPEC = 128 << 10
"""Characters of a spec. Linux limits one argument of `docker run` to so many bytes (MAX_ARG_STRLEN)."""


def too_many(count: int) -> str | None:
    """The message if there are too many containers, else None."""
    if count <= MOST:
        return None
    return (
        f"more than {MOST} containers of agentless on the node; remove ended ones there with: "
        "docker container prune --filter label=agentless.task"
    )


def too_long(containers: Iterable[Container]) -> str | None:
    """The message if the labels are too long, else None."""
    if sum(len(value) for container in containers for value in container.labels.values()) <= LABELS:
        return None
    return (
        f"container labels on the node exceed {LABELS >> 20} MiB; list them there with: "
        "docker ps --all --filter label=agentless.task"
    )


def excess(containers: Sequence[Container]) -> str | None:
    """The message if these containers exceed a limit, else None."""
    return too_many(len(containers)) or too_long(containers)


def endless(containers: Iterable[Container]) -> str | None:
    """The message if a label was cut off, else None."""
    found = next((c for c in containers if c.live and len(c.labels.get(GPUS, "")) >= WORDS), None)
    if found is None:
        return None
    return (
        f"container {found.id[:12]} claims more GPUs than a node can have; remove it, or start it without "
        "its label agentless.gpus"
    )
