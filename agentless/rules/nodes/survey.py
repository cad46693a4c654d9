"""The cluster, from inventory, observations and tasks: which GPUs are free, and why others are not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from agentless.model.containers.claim import Claim, claim_of
from agentless.model.containers.container import Container
from agentless.model.nodes.cluster import Allocation, Cluster, Gpu, GpuState, Node, NodeState, Observation, Yields
from agentless.model.nodes.gpu import GpuProcess, GpuReading
from agentless.model.nodes.node import NodeConfig
from agentless.model.nodes.node_record import NodeRecord
from agentless.model.scheduling.reservation import Reservation
from agentless.model.tasks.task import Assigning, Placement, Running, Task
from agentless.model.units import format_size
from agentless.rules.nodes.cards import numbered
from agentless.rules.nodes.desktop import sorted_processes, why_unexplained
from agentless.rules.nodes.gpu_access import why_no_container
from agentless.rules.nodes.gpu_exclusion import gated
from agentless.rules.nodes.parts import marked, why_divided, with_parts
from agentless.rules.nodes.slurm_nodes import why_slurm
from agentless.rules.nodes.twins import twin_words
from agentless.rules.nodes.unified import with_memory
from agentless.rules.nodes.unlisted import assumed, vouched_processes, why_unlisted
from agentless.rules.tasks.preemptible import yields_of, yields_of_gangs

STALE_AFTER = 15.0
"""Seconds without a sample after which a connected node is degraded."""


def survey(
    nodes: Mapping[str, NodeConfig],
    observations: Mapping[str, Observation],
    tasks: Iterable[Task],
    now: float,
    records: Mapping[str, NodeRecord] = MappingProxyType({}),
    reservations: Iterable[Reservation] = (),
    called: Callable[[Container, Claim], str] = lambda _, claim: claim.task,
    homes: Mapping[str, str] = MappingProxyType({}),
    lent: Mapping[str, float] = MappingProxyType({}),
) -> Cluster:
    """The current cluster. An unknown reading makes an unknown GPU, never a free one.

    `records` have drained nodes and excluded GPUs. `called` returns the task id of a container. `homes` maps GPUs that
    several nodes report to one node. `lent` are tasks that give way because they leave their GPUs idle, with the time
    from which on they do.
    """
    held: dict[str, dict[str, Allocation]] = defaultdict(dict)
    starting: set[str] = set()
    tasks = list(tasks)
    gangs = yields_of_gangs(tasks)
    for task in tasks:
        if task.live and task.placement:
            yields = gangs.get(task.id) if task.spec.gang else yields_of(task, lent.get(task.id))
            held[task.placement.node][task.id] = _allocation(task, task.placement, yields)
            if isinstance(task.status, Assigning):
                starting.add(task.placement.node)
    reserved: dict[str, list[Reservation]] = defaultdict(list)
    for reservation in sorted(reservations, key=lambda each: (each.begin, each.id)):
        if now < reservation.end:
            reserved[reservation.node].append(reservation)
    return Cluster(
        {
            name: gated(
                _node(
                    config,
                    observations.get(name, Observation()),
                    held[name],
                    now,
                    tuple(reserved[name]),
                    called,
                    homes,
                    starting=name in starting,
                ),
                records.get(name),
            )
            for name, config in nodes.items()
        },
        now,
    )


def without_container(seen: Observation, container: str) -> Observation:
    """The observation of a node without a container, and without its processes on GPUs."""
    engine, sample = seen.engine, seen.sample
    if engine and engine.containers is not None:
        engine = replace(engine, containers=tuple(each for each in engine.containers if each.id != container))
    if sample and sample.processes is not None:
        sample = replace(sample, processes=tuple(each for each in sample.processes if each.container != container))
    return replace(seen, engine=engine, sample=sample)


def _allocation(task: Task, placement: Placement, yields: Yields | None) -> Allocation:
    spec, began = task.spec, None
    match task.status:
        case Running(started_at=moment) | Assigning(since=moment):
            began = moment
    return Allocation(
        task.id,
        task.owner,
        placement.gpu_uuids,
        spec.cores or 0.0,
        spec.memory or 0.0,
        spec.needs.exclusive,
        began,
        spec.ends_within,
        spec.needs.sharing,
        placement.numa,
        placement.parents,
        yields,
    )


def _claimed(container: Container, claim: Claim, task: str) -> Allocation:
    return Allocation(
        task,
        claim.owner,
        claim.gpu_uuids,
        claim.cores or 0.0,
        claim.memory or 0.0,
        claim.exclusive,
        container.here(container.started_at or container.created_at),
        claim.limit,
        claim.sharing,
        claim.numa,
        claim.parents,
    )


def _node(
    config: NodeConfig,
    seen: Observation,
    held: Mapping[str, Allocation],
    now: float,
    reservations: tuple[Reservation, ...],
    called: Callable[[Container, Claim], str],
    homes: Mapping[str, str],
    *,
    starting: bool,
) -> Node:
    state, reason = _node_state(seen, now)
    if state == "online" and (twin := twin_words(config.name, seen, homes)):
        state, reason = "degraded", twin
    if state != "offline" and (slurm := why_slurm(config, seen)):
        state, reason = "degraded", slurm
    broken = seen.broken if state == "online" else None
    trial = broken if broken and now >= broken.again and not starting else None
    if broken:
        state, reason = "degraded", broken.reason
    containers = (seen.engine.containers or ()) if seen.engine else ()
    claims, sample = _Claims(held, containers, called), seen.sample
    processes: dict[str, list[GpuProcess]] = defaultdict(list)
    for process in (sample.processes or ()) if sample else ():
        processes[process.gpu_uuid].append(process)
    known = sample is not None and sample.processes is not None and (state == "online" or trial is not None)
    gpus = with_parts(
        config.name,
        [
            _gpu(
                config,
                reading,
                claims.of(reading),
                tuple(processes[reading.uuid]),
                {**claims.inside[reading.parent or ""], **claims.inside[reading.uuid]},
                reading.uuid in claims.shared,
                known,
                reason,
                homes.get(reading.gpu, config.name),
                why_no_container(config, seen.engine, reading),
            )
            for reading in (with_memory(each, seen) for each in marked(numbered(config, seen), claims.parts))
        ],
        claims.parts,
    )
    allocations = tuple(claims.allocations.values())
    starts = [container.here(container.started_at) for container in containers]
    last_start = max(filter(None, (*starts, *(allocation.since for allocation in allocations))), default=0.0)
    return Node(config, state, reason, gpus, seen, allocations, last_start, reservations, trial=trial)


class _Claims:
    """Who claims a node: the tasks that are `held` there, and its live containers.

    `allocations` are by task; `holders` by GPU and task; `inside` by GPU and container, each with its task. The GPUs
    in `shared` are claimed beside processes of others. `parts` are holders of parts, by the GPU and the part.
    """

    def __init__(
        self,
        held: Mapping[str, Allocation],
        containers: Iterable[Container],
        called: Callable[[Container, Claim], str],
    ) -> None:
        self.allocations = dict(held)
        self.holders: dict[str, dict[str, Allocation]] = defaultdict(dict)
        self.inside: dict[str, dict[str, str]] = defaultdict(dict)
        self.shared: set[str] = set()
        self.parts: dict[str, dict[str, list[Allocation]]] = defaultdict(lambda: defaultdict(list))
        for allocation in held.values():
            for uuid in allocation.gpu_uuids:
                self.holders[uuid][allocation.task] = allocation
        for container in containers:
            if container.live and (claim := claim_of(container)):
                self._add(container, claim, called(container, claim))
        for allocation in self.allocations.values():
            for uuid, gpu in zip(allocation.gpu_uuids, allocation.parents, strict=False):
                if gpu:
                    self.parts[gpu][uuid].append(allocation)

    def of(self, reading: GpuReading) -> tuple[Allocation, ...]:
        """The holders of a GPU: a part of it is held by who has all of it, too, and all of it by who has a part."""
        found = self.holders[reading.uuid]
        if reading.parent is not None:
            found = {**self.holders[reading.parent], **found}
        elif reading.uuid in self.parts and not reading.in_parts:
            parts = self.parts[reading.uuid].values()
            found = {**found, **{one.task: one for several in parts for one in several}}
        return tuple(found.values())

    def _add(self, container: Container, claim: Claim, task: str) -> None:
        claimed = self.allocations.setdefault(task, _claimed(container, claim, task))
        for uuid in claim.gpu_uuids:
            self.holders[uuid].setdefault(task, claimed)
            self.inside[uuid][container.id] = task
            if claim.share:
                self.shared.add(uuid)


def _node_state(seen: Observation, now: float) -> tuple[NodeState, str]:
    if seen.error is not None:
        return "offline", seen.error
    if seen.sample is None or seen.engine is None:
        return "degraded", "no sample yet"
    if seen.sample.error is not None and seen.sample.processes is None:
        return "degraded", seen.sample.error
    if seen.sampled_at is not None and now - seen.sampled_at > STALE_AFTER:
        return "degraded", f"its last sample is {now - seen.sampled_at:.0f} s old"
    if seen.engine.error is not None:
        return "degraded", seen.engine.error
    if seen.engine.containers is None:
        return "degraded", "cannot list its containers"
    return "online", ""


def _gpu(
    config: NodeConfig,
    reading: GpuReading,
    holders: tuple[Allocation, ...],
    processes: tuple[GpuProcess, ...],
    inside: Mapping[str, str],
    beside: bool,
    known: bool,
    node_reason: str,
    home: str,
    no_container: str,
) -> Gpu:
    """The state of a GPU. `inside` are containers that claim it, with their tasks. `beside`: its task shares it."""
    state: GpuState
    desktop, others, too_much = _sorted(config, reading, processes, held=bool(holders))
    outside = tuple(process for process in others if process.container not in inside)
    # Processes of a container that is not listed yet look foreign.
    found = {holder.task for holder in holders}.issubset(inside.values())
    strangers = outside if found else tuple(process for process in outside if process.container is None)
    unknown = _unknown(config, reading, known, node_reason)
    if home != config.name:
        return Gpu(reading, "excluded", f"same GPU as on {home}; counted there", home=home)
    if reading.index in config.exclude_gpus:
        state, reason = "excluded", "excluded by the inventory"
    elif reading.in_parts and not holders:
        state, reason = "partitioned", reading.barred
    elif holders:
        state, reason = "allocated", _held(holders)
        if strangers and found:
            how = "shared with" if beside else "also used by"
            reason += f", {how} {describe(strangers[0])}" + _more(len(strangers) - 1)
    elif unknown:
        state, reason = "unknown", unknown
    elif others:
        # This includes a container of ours that uses a GPU that it does not claim.
        state, reason = "foreign", f"used by {describe(others[0])}" + _more(len(others) - 1)
        reason += f"; {too_much}" if too_much else ""
    elif unexplained := why_unexplained(reading, config.foreign):
        state, reason = "unknown", unexplained
    else:
        state, reason = ("excluded", no_container) if no_container else ("free", "")
    intruders = strangers if state == "allocated" and found and not beside else ()
    closed = unknown or ("its processes are not known yet" if outside and not found else "")
    closed, taken = closed or reading.solo, assumed(reading, config)
    return Gpu(
        reading, state, reason, holders, processes, strangers, intruders, closed,
        no_container=no_container, desktop=desktop, assumed=taken,
    )  # fmt: skip


def _sorted(
    config: NodeConfig, reading: GpuReading, processes: tuple[GpuProcess, ...], *, held: bool
) -> tuple[tuple[GpuProcess, ...], tuple[GpuProcess, ...], str]:
    """The processes of the desktop on a GPU, the others, and why a program of a desktop is among these."""
    if not reading.unlisted:
        return sorted_processes(processes, config.foreign)
    desktop, others = vouched_processes(processes, config.foreign)
    # Their numbers are not those of the node, so nobody knows which of them are the task's own.
    return desktop, () if held else others, ""


def _held(holders: Sequence[Allocation]) -> str:
    least = min(holder.sharing.limit for holder in holders)
    whom = ", ".join(map(str, holders))
    return f"{len(holders)} of {least} shares held by {whom}" if least > 1 else f"held by {whom}"


def _unknown(config: NodeConfig, reading: GpuReading, known: bool, node_reason: str) -> str:
    """Why the state of a GPU is unknown. Empty if it is known."""
    if not known:
        return node_reason or "cannot read its processes"
    if reading.hidden:
        return reading.hidden
    if reading.memory_total_mib is None or reading.memory_used_mib is None:
        return "cannot read its memory"
    return reading.barred or why_divided(reading) or why_unlisted(reading, config)


def describe(process: GpuProcess) -> str:
    """A foreign process in words: `bob's process 4711 (python train.py, 2.0 GiB)`."""
    what = (process.command or process.name or "unknown program")[:60]
    memory = "" if process.memory_mib is None else f", {format_size(process.memory_mib << 20)}"
    who = f"{process.user}'s process" if process.user else "process"
    return f"{who} {process.pid} ({what}{memory})"


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""
