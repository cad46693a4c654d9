"""A machine with two names, or a GPU that two nodes report: it belongs to the node that had it first.

A mark identifies something that only one node can have: a GPU by its UUID, or an engine by its ID and the boot of its
machine (machines cloned from one image may share an engine ID). The first node keeps a mark as long as it may still
have it, so a node gains nothing by reporting the mark of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from agentless.model.nodes.cluster import Observation

_ENGINE = "engine "


def marks(seen: Observation) -> tuple[str, ...]:
    """The marks that a node reports."""
    found = [reading.uuid for reading in seen.sample.whole] if seen.sample else []
    if seen.engine and seen.engine.id and seen.host and seen.host.boot:
        found.append(f"{_ENGINE}{seen.engine.id} {seen.host.boot}")
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Boot:
    """A boot of a machine: the kernel's boot id, and the GPUs and engine that identify the machine."""

    id: str
    machine: frozenset[str]

    def follows(self, before: Boot) -> bool:
        """Whether the same machine was rebooted since. Another machine may have its address for a while."""
        return self.id != before.id and not self.machine.isdisjoint(before.machine)


def boot_of(seen: Observation) -> Boot | None:
    """The current boot of a node. None if it is not reported, or nothing identifies the machine."""
    machine = {reading.uuid for reading in seen.sample.whole} if seen.sample else set()
    machine |= {seen.engine.id} if seen.engine and seen.engine.id else set()
    return Boot(seen.host.boot, frozenset(machine)) if machine and seen.host and seen.host.boot else None


def may_have(seen: Observation, mark: str) -> bool:
    """Whether a node may still have a mark. It keeps the mark while it cannot report it.

    A failing driver reports no GPU for a moment, and a stopped engine no ID.
    """
    if mark in marks(seen):
        return True
    if mark.startswith(_ENGINE):
        return not (seen.engine and seen.engine.id and seen.host and seen.host.boot)
    return seen.sample is None or seen.sample.error is not None


def taken(
    node: str, named: Iterable[str], homes: Mapping[str, str], has_still: Callable[[str, str], bool]
) -> dict[str, str]:
    """The marks that this node gets: those that no node had, or that their node has no longer.

    `homes` maps marks to nodes. `has_still` returns whether a node may still have a mark.
    """
    return {
        mark: node for mark in named if mark not in homes or (homes[mark] != node and not has_still(homes[mark], mark))
    }


def twin_words(node: str, seen: Observation, homes: Mapping[str, str]) -> str:
    """The message for a node whose marks belong to another node, with the fix. Empty if they are its own."""
    elsewhere = {mark: homes[mark] for mark in marks(seen) if homes.get(mark, node) != node}
    if not elsewhere:
        return ""
    engines = [home for mark, home in elsewhere.items() if mark.startswith(_ENGINE)]
    others = ", ".join(sorted(set(elsewhere.values())))
    if engines:
        return f"same machine as {engines[0]} (same engine, same boot); remove one of them from the inventory"
    count = len(elsewhere)
    belong = "belongs" if count == 1 else "belong"
    return f"{count} of its GPUs {belong} to {others}; remove the wrong node from the inventory"
