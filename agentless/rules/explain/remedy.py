"""Changes that would let a task start on a node now. Each remedy was tried: with it, the task would start there.

Tasks ahead of it in the queue are placed first and keep their promises.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from agentless.model.nodes.cluster import Allocation, Cluster, Node
from agentless.model.scheduling.needs import SLICE_TYPE
from agentless.model.tasks.spec import TaskSpec
from agentless.model.tasks.task import Task
from agentless.model.text import enumerated
from agentless.model.units import GPU_MEMORY, MEMORY, SIZE_UNITS, format_duration, parse_duration, short_duration
from agentless.rules.explain.ahead import Ahead
from agentless.rules.explain.blockers import Blocker, fewest, without_tasks
from agentless.rules.explain.obstacles import obstacles

MOST_ENDS = 64
"""The most tasks of a node that are considered as having to end first."""
MOST_AHEAD = 100
"""With more tasks ahead than this, no remedy is tried: each trial would have to plan all of them."""
LEEWAY = 60.0
"""Seconds that are left for typing a suggested time limit."""
ENDLESS = 1e9
"""The longest possible time limit, in seconds."""


@dataclass(frozen=True, slots=True)
class Remedy:
    """A change in words, and what was tried: the task with this `spec`, or without these on the node."""

    text: str
    spec: TaskSpec | None = None
    ends: tuple[Allocation, ...] = ()
    goes: tuple[Blocker, ...] = ()

    def helps(self, start: float | None) -> bool:
        """Whether it may come before a promised start (Unix seconds): what certainly takes longer helps nobody."""
        over = max((each.ends_at or math.inf for each in self.ends), default=-math.inf)
        return start is None or over == math.inf or over <= start


def remedies(cluster: Cluster, name: str, task: Task, ahead: Ahead | None = None) -> tuple[Remedy, ...]:
    """The changes that let the task start on this node. Empty if it starts already, or nothing helps."""
    trial, node = _Trial(cluster, task, ahead or Ahead()), cluster.nodes[name]
    if len(trial.ahead.tasks) > MOST_AHEAD or trial.succeeds(node, task.spec):
        return ()
    found = dict[str, Remedy]()
    for words, spec in changes(node, task.spec, trial.ahead, trial.now):
        option = words.partition(" ")[0]
        if option not in found and trial.succeeds(node, spec):
            found[option] = Remedy(words, spec)
    return (*found.values(), *_after(node, trial)) or tuple(_otherwise(node, trial))


@dataclass(frozen=True, slots=True)
class _Trial:
    """A task that is to start, and the tasks ahead of it."""

    cluster: Cluster
    task: Task
    ahead: Ahead

    @property
    def now(self) -> float:
        return self.cluster.at

    def succeeds(self, node: Node, spec: TaskSpec) -> bool:
        """Whether the task starts on this node with this spec."""
        if obstacles(node, spec, self.task.owner, self.now):
            return False
        there = replace(self.cluster, nodes={**self.cluster.nodes, node.name: node})
        only = replace(spec, needs=replace(spec.needs, nodes=(node.name,)))
        return self.ahead.leave(there, replace(self.task, spec=only))


def changes(node: Node, spec: TaskSpec, ahead: Ahead, now: float) -> Iterator[tuple[str, TaskSpec]]:
    """Specs with one option changed. Larger values of an option come first."""
    needs = spec.needs
    if needs.indices:
        others = replace(needs, indices=())
        if any(isinstance(number, str) for number in needs.indices):
            others = replace(others, gpu_types=(SLICE_TYPE,))
            yield f"--gpus {needs.gpus} --gpu-type {SLICE_TYPE} (any slice)", replace(spec, needs=others)
            others = replace(others, gpu_types=())
        yield f"--gpus {needs.gpus} (any GPU{'s' * (needs.gpus > 1)})", replace(spec, needs=others)
    else:
        for gpus in range(needs.gpus - 1, 0, -1):
            yield f"--gpus {gpus}", replace(spec, needs=replace(needs, gpus=gpus))
    readings = [gpu.reading for gpu in node.gpus]
    if needs.gpu_memory is not None:
        for words, size in _sizes(reading.memory_unused_mib or 0 for reading in readings):
            if GPU_MEMORY.least <= size < needs.gpu_memory:
                yield f"--gpu-memory {words}", replace(spec, needs=replace(needs, gpu_memory=size))
    if needs.gpu_types:
        for name in sorted({reading.profile or reading.name for reading in readings if reading.name}):
            yield f"--gpu-type {name!r}", replace(spec, needs=replace(needs, gpu_types=(name,)))
    elif needs.gpus == 1 and not needs.indices and any(reading.parent for reading in readings):
        yield f"--gpu-type {SLICE_TYPE} (a slice)", replace(spec, needs=replace(needs, gpu_types=(SLICE_TYPE,)))
    if needs.gpus and not spec.share and needs.gpu_share == 1:
        yield "--share", replace(spec, share=True)
    host = node.observation.host
    if spec.cores and host and host.cores:
        free = math.floor((host.cores - node.cores_set_aside) * 100) / 100  # rounded down
        if 0 < free < spec.cores:
            yield f"--cores {free:g}", replace(spec, cores=free)
    if spec.memory and host and host.memory_mib:
        for words, size in _sizes([host.memory_mib - int(node.memory_set_aside / 2**20 + 1)]):
            if MEMORY.least <= size < spec.memory:
                yield f"--memory {words}", replace(spec, memory=size)
    if needs.exclusive:
        yield "without --exclusive", replace(spec, needs=replace(needs, exclusive=False))
    yield from _limits(node, spec, ahead, now)


def _sizes(all_mib: Iterable[int]) -> Iterator[tuple[str, int]]:
    """Sizes not above these, as text that is easy to type, and in bytes; largest first."""
    for mib in sorted(set(all_mib), reverse=True):
        for unit in ("G", "M"):
            if (count := (mib << 20) // SIZE_UNITS[unit]) > 0:
                yield f"{count}{unit}", count * SIZE_UNITS[unit]
                break


def _limits(node: Node, spec: TaskSpec, ahead: Ahead, now: float) -> Iterator[tuple[str, TaskSpec]]:
    """Time limits with which the task ends before a reservation begins or a task ahead of it starts."""
    terms, promised = spec.terms, [promise.start for _, promise in ahead.on(node)]
    if None in promised and terms.time_limit is None:
        yield "--time-limit of any length", replace(spec, terms=replace(terms, time_limit=ENDLESS))
    begins = {each.begin for each in node.reservations} | {start for start in promised if start is not None}
    grace = spec.stop_grace if terms.signal_before is None else 0.0
    for begin in sorted(begins, reverse=True):
        minutes = (begin - now - grace - LEEWAY) // 60
        if minutes < 1:
            continue
        words = short_duration(minutes * 60)
        limit = parse_duration(words)
        if limit < (terms.time_limit or ENDLESS) and (terms.signal_before or 0.0) < limit:
            yield f"--time-limit {words} or less", replace(spec, terms=replace(terms, time_limit=limit))


def _after(node: Node, trial: _Trial) -> Iterable[Remedy]:
    """The smallest set of tasks whose end is enough, taken from those that end first."""
    spec = trial.task.spec
    soonest = sorted(node.allocations, key=lambda each: (each.ends_at is None, each.ends_at or 0.0, each.task))
    over: list[Allocation] = []
    for allocation in soonest[:MOST_ENDS]:
        over.append(allocation)
        if trial.succeeds(without_tasks(node, over), spec):
            break
    else:
        return
    for allocation in list(over):
        fewer = [each for each in over if each is not allocation]
        if trial.succeeds(without_tasks(node, fewer), spec):
            over = fewer
    left = max((each.ends_at or math.inf for each in over), default=trial.now) - trial.now
    when = "" if left == math.inf else f", within {format_duration(left)}" if left >= 1 else ", any moment now"
    end = "ends" if len(over) == 1 else "end"
    yield Remedy(f"when {', '.join(map(str, over))} {end}{when}", ends=tuple(over))


def _otherwise(node: Node, trial: _Trial) -> Iterable[Remedy]:
    """All that has to go, also what somebody has to see to."""
    if blockers := fewest(node, lambda free: trial.succeeds(free, trial.task.spec)):
        yield Remedy(f"when {enumerated([each.words for each in blockers])}", goes=tuple(blockers))
