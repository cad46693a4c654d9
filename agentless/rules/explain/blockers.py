"""What keeps a task from a node and may go: tasks, reservations, foreign processes, an unhealthy GPU, a drain."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from agentless.model.nodes.cluster import Allocation, Gpu, Node
from agentless.model.nodes.device import GpuNumber
from agentless.model.scheduling.reservation import Reservation

MOST = 64
"""The most on one node that are considered."""


@dataclass(frozen=True, slots=True)
class Blocker:
    """Something that is in the way. `words` say when it is not any more, `without` is the node without it.

    A `lasting` one stays until somebody sees to it.
    """

    words: str
    without: Callable[[Node], Node]
    lasting: bool = False


def fewest(node: Node, fits: Callable[[Node], bool]) -> list[Blocker] | None:
    """The blockers of which none may stay for a task that `fits` then, taken from those that go first; None: no set."""
    return fewest_of(node, blockers_of(node), fits)


def fewest_of(node: Node, blockers: Iterable[Blocker], fits: Callable[[Node], bool]) -> list[Blocker] | None:
    """Those of these blockers, as `fewest` chooses them."""
    gone = list[Blocker]()
    for blocker in blockers:
        gone.append(blocker)
        if fits(without(node, gone)):
            break
        if len(gone) == MOST:
            return None
    else:
        return None
    for blocker in list(gone):
        fewer = [each for each in gone if each is not blocker]
        if fits(without(node, fewer)):
            gone = fewer
    return gone


def without(node: Node, blockers: Sequence[Blocker]) -> Node:
    """The node when these have gone."""
    for blocker in blockers:
        node = blocker.without(node)
    return node


def without_tasks(node: Node, over: Iterable[Allocation]) -> Node:
    """The node without these tasks."""
    gone = {allocation.task for allocation in over}
    allocations = tuple(each for each in node.allocations if each.task not in gone)
    return replace(node, allocations=allocations, gpus=tuple(_emptied(gpu, gone) for gpu in node.gpus))


def blockers_of(node: Node) -> Iterator[Blocker]:
    """Those that end first come first, and those that somebody has to see to come last."""
    for each in sorted(node.allocations, key=lambda each: (each.ends_at is None, each.ends_at or 0.0, each.task)):
        yield Blocker(f"{each} ends", partial(_without, each))
    for one in node.reservations:
        whose = one.owner or "maintenance"
        yield Blocker(f"the reservation of {one.target} for {whose} ends", partial(_without_reservation, one))
    for gpu in node.gpus:
        place = f"GPU {gpu.reading.number} of {node.name}"
        if gpu.state == "foreign" or gpu.strangers or gpu.intruders:
            which, end = ("process", "ends") if len(gpu.strangers) == 1 else ("processes", "end")
            yield Blocker(f"the foreign {which} on {place} {end}", partial(_with_free, gpu.reading.number))
        elif gpu.state == "unhealthy":
            resumed = f"is healthy again, or resumed (agentless nodes resume {node.name} --gpu {gpu.reading.index})"
            yield Blocker(f"{place} {resumed}", partial(_with_free, gpu.reading.number), lasting=True)
    if node.state == "drained":
        yield Blocker(f"{node.name} is resumed (agentless nodes resume {node.name})", _resumed, lasting=True)


def _without(task: Allocation, node: Node) -> Node:
    return without_tasks(node, [task])


def _without_reservation(reservation: Reservation, node: Node) -> Node:
    return replace(node, reservations=tuple(each for each in node.reservations if each != reservation))


def _resumed(node: Node) -> Node:
    return replace(node, state="online", reason="", drained=False)


def _with_free(number: GpuNumber, node: Node) -> Node:
    return replace(node, gpus=tuple(_free(gpu) if gpu.reading.number == number else gpu for gpu in node.gpus))


def _free(gpu: Gpu) -> Gpu:
    """The GPU without its other users and problems; its tasks stay."""
    alone = replace(gpu, processes=(), strangers=(), intruders=(), closed="")
    if gpu.holders:
        return replace(alone, state="allocated")
    reading = replace(gpu.reading, memory_used_mib=0, memory_free_mib=gpu.reading.memory_total_mib)
    return replace(alone, reading=reading, state="free", reason="")


def _emptied(gpu: Gpu, gone: set[str]) -> Gpu:
    left = tuple(holder for holder in gpu.holders if holder.task not in gone)
    if left == gpu.holders:
        return gpu
    if left or gpu.state != "allocated":
        return replace(gpu, holders=left)
    if gpu.strangers or gpu.closed:
        return replace(gpu, holders=(), state="foreign", reason="its other users stay")
    return _free(replace(gpu, holders=()))
