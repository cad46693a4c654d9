"""One machine under two names, or a GPU that two nodes name: it belongs to the node that had it first.

A mark is what only one node in the world can have: a GPU, by its UUID, or an engine, by its ID and the boot of the
machine that it runs on (machines that are copies of one image may have one engine ID). Who had it first keeps it as
long as it may have it still, so that a node gets nothing by naming what another one has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from agentless.model.nodes.cluster import Observation

_ENGINE = "engine "


def marks(seen: Observation) -> tuple[str, ...]:
    """What a node says of itself that no other can say."""
    found = [reading.uuid for reading in seen.sample.gpus] if seen.sample else []
    if seen.engine and seen.engine.id and seen.host and seen.host.boot:
        found.append(f"{_ENGINE}{seen.engine.id} {seen.host.boot}")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Boot:
    """One boot of a machine: the kernel's id of it, and the GPUs and the engine, by which the machine is known."""

    id: str
    machine: frozenset[str]

    def follows(self, before: Boot) -> bool:
        """Whether the machine was rebooted since; another one may have its address for a while."""
        return self.id != before.id and not self.machine.isdisjoint(before.machine)


def boot_of(seen: Observation) -> Boot | None:
    """The boot that a node is in; None when it does not say, or nothing tells which machine it is."""
    machine = {reading.uuid for reading in seen.sample.gpus} if seen.sample else set()
    machine |= {seen.engine.id} if seen.engine and seen.engine.id else set()
    return Boot(seen.host.boot, frozenset(machine)) if machine and seen.host and seen.host.boot else None


def may_have(seen: Observation, mark: str) -> bool:
    """Whether what a node says of itself leaves it possible that this is its own: who cannot tell has given up nothing.

    A driver that fails for a moment names no GPU, and an engine that is down no ID.
    """
    if mark in marks(seen):
        return True
    if mark.startswith(_ENGINE):
        return not (seen.engine and seen.engine.id and seen.host and seen.host.boot)
    return seen.sample is None or seen.sample.error is not None


def taken(
    node: str, named: Iterable[str], homes: Mapping[str, str], has_still: Callable[[str, str], bool]
) -> dict[str, str]:
    """The marks that are this node's from now on: which nobody had, or whoever had them has them no more.

    `homes` are the nodes by mark, `has_still` says of such a node and the mark whether it may have it still.
    """
    return {
        mark: node for mark in named if mark not in homes or (homes[mark] != node and not has_still(homes[mark], mark))
    }


def twin_words(node: str, seen: Observation, homes: Mapping[str, str]) -> str:
    """That what a node has is another one's, and what to do; empty when it is its own."""
    elsewhere = {mark: homes[mark] for mark in marks(seen) if homes.get(mark, node) != node}
    if not elsewhere:
        return ""
    engines = [home for mark, home in elsewhere.items() if mark.startswith(_ENGINE)]
    others = ", ".join(sorted(set(elsewhere.values())))
    if engines:
        return f"it is the same machine as {engines[0]} (the same engine, since the same boot); remove one of them"
    count = len(elsewhere)
    return f"{count} of its GPUs {'is one' if count == 1 else 'are those'} of {others}; remove the name that is wrong"
