"""How many containers a node may have, and how much may be written on them, before its list of them is not believed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentless.model.tasks.claim import GPUS
from agentless.model.tasks.container import Container

MOST = 5000
"""Containers of ours on a node. The keeper leaves 2,000 that have ended; an engine with more is slow by itself."""
LABELS = 16 << 20
"""Characters of the labels of all of them: 3,000 a container, where a task of a few words has 1,000."""
WORDS = 4096
"""Characters of any other label than the spec: the UUIDs of 64 GPUs are 2,600, and nothing has more of them."""
SPEC = 128 << 10
"""Characters of a spec: as many bytes can be handed to `docker run` as one argument (MAX_ARG_STRLEN in Linux)."""


def too_many(count: int) -> str | None:
    """Why so many containers are too many, None when they are not."""
    if count <= MOST:
        return None
    return (
        f"it has more than {MOST} containers of agentless; on the node, remove those that have ended: "
        "docker container prune --filter label=agentless.task"
    )


def too_long(containers: Iterable[Container]) -> str | None:
    """Why so many words on containers are too many, None when they are not."""
    if sum(len(value) for container in containers for value in container.labels.values()) <= LABELS:
        return None
    return (
        f"the labels of its containers have more than {LABELS >> 20} MiB; on the node, see who writes them: "
        "docker ps --all --filter label=agentless.task"
    )


def excess(containers: Sequence[Container]) -> str | None:
    """Why these containers are more than can be kept track of, None when they are not."""
    return too_many(len(containers)) or too_long(containers)


def endless(containers: Iterable[Container]) -> str | None:
    """That one of them claims what cannot be read to its end, None when all can be."""
    found = next((c for c in containers if c.live and len(c.labels.get(GPUS, "")) >= WORDS), None)
    if found is None:
        return None
    return f"container {found.id[:12]} claims more GPUs than there can be; remove it, or start it without that label"
