"""The cluster out of inventory, observations and tasks: which GPU is free, and why the others are not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType

from agentless.model.claim import Claim, claim_of
from agentless.model.cluster import Allocation, Cluster, Gpu, GpuState, Node, NodeState, Observation
from agentless.model.container import Container
from agentless.model.gate import NodeRecord
from agentless.model.gpu import GpuProcess, GpuReading
from agentless.model.node import NodeConfig
from agentless.model.task import Assigning, Placement, Running, Task
from agentless.model.units import format_size
from agentless.rules.gate import gated

STALE_AFTER = 15.0
"""Seconds without a sample after which a connected node is degraded: its GPUs are not known to be idle any more."""


def survey(
    nodes: Mapping[str, NodeConfig],
    observations: Mapping[str, Observation],
    tasks: Iterable[Task],
    now: float,
    records: Mapping[str, NodeRecord] = MappingProxyType({}),
) -> Cluster:
    """Everything known, put together. An unknown reading makes an unknown GPU, never a free one.

    `records` say which nodes are drained, and which GPUs are kept out.
    """
    held: dict[str, dict[str, Allocation]] = defaultdict(dict)
    for task in tasks:
        if task.live and task.placement:
            held[task.placement.node][task.id] = _allocation(task, task.placement)
    return Cluster(
        {
            name: gated(_node(config, observations.get(name, Observation()), held[name], now), records.get(name))
            for name, config in nodes.items()
        }
    )


def _allocation(task: Task, placement: Placement) -> Allocation:
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
    )


def _claimed(container: Container, claim: Claim) -> Allocation:
    return Allocation(
        claim.task,
        claim.owner,
        claim.gpu_uuids,
        claim.cores or 0.0,
        claim.memory or 0.0,
        claim.exclusive,
        container.here(container.started_at or container.created_at),
        claim.limit,
    )


def _node(config: NodeConfig, seen: Observation, held: Mapping[str, Allocation], now: float) -> Node:
    state, reason = _node_state(seen, now)
    allocations = dict(held)
    holders = {uuid: allocation for allocation in held.values() for uuid in allocation.gpu_uuids}
    inside: dict[str, set[str]] = defaultdict(set)
    shared: set[str] = set()
    containers = (seen.engine.containers or ()) if seen.engine else ()
    for container in containers:
        if container.live and (claim := claim_of(container)):
            claimed = allocations.setdefault(claim.task, _claimed(container, claim))
            for uuid in claim.gpu_uuids:
                holders.setdefault(uuid, claimed)
                inside[uuid].add(container.id)
                if claim.share:
                    shared.add(uuid)
    sample = seen.sample
    readings = sample.gpus if sample else ()
    processes: dict[str, list[GpuProcess]] = defaultdict(list)
    for process in (sample.processes or ()) if sample else ():
        processes[process.gpu_uuid].append(process)
    known = sample is not None and sample.processes is not None and state == "online"
    gpus = tuple(
        _gpu(
            config,
            reading,
            holders.get(reading.uuid),
            tuple(processes[reading.uuid]),
            _intruders(processes[reading.uuid], inside[reading.uuid]) if reading.uuid not in shared else (),
            known,
            reason,
        )
        for reading in readings
    )
    starts = [container.here(container.started_at) for container in containers]
    last_start = max(filter(None, (*starts, *(allocation.since for allocation in allocations.values()))), default=0.0)
    return Node(config, state, reason, gpus, seen, tuple(allocations.values()), last_start)


def _node_state(seen: Observation, now: float) -> tuple[NodeState, str]:
    if seen.error is not None:
        return "offline", seen.error
    if seen.sample is None or seen.engine is None:
        return "degraded", "no sample has arrived yet"
    if seen.sample.error is not None and seen.sample.processes is None:
        return "degraded", seen.sample.error
    if seen.sampled_at is not None and now - seen.sampled_at > STALE_AFTER:
        return "degraded", f"its last sample is {now - seen.sampled_at:.0f} s old"
    if seen.engine.error is not None:
        return "degraded", seen.engine.error
    if seen.engine.containers is None:
        return "degraded", "its containers cannot be listed"
    return "online", ""


def _gpu(
    config: NodeConfig,
    reading: GpuReading,
    holder: Allocation | None,
    processes: tuple[GpuProcess, ...],
    intruders: tuple[GpuProcess, ...],
    known: bool,
    node_reason: str,
) -> Gpu:
    state: GpuState
    if reading.index in config.exclude_gpus:
        state, reason = "excluded", "excluded by the inventory"
    elif holder is not None:
        state, reason = "allocated", f"held by {holder}"
        if intruders:
            reason += f", used by {describe(intruders[0])}" + _more(len(intruders) - 1)
    elif not known:
        state, reason = "unknown", node_reason or "its processes cannot be read"
    elif reading.memory_total_mib is None or reading.memory_used_mib is None:
        state, reason = "unknown", "its memory cannot be read"
    elif reading.mig:
        state, reason = "unknown", "it is in MIG mode, and agentless hands out whole GPUs (nvidia-smi -mig 0 ends it)"
    elif reading.compute_mode == "Prohibited":
        state, reason = "unknown", "its compute mode lets nobody compute (nvidia-smi -c DEFAULT changes it)"
    elif processes:
        # Also one in a container of ours: whoever uses a GPU that it does not claim is foreign to it.
        state, reason = "foreign", f"used by {describe(processes[0])}" + _more(len(processes) - 1)
    else:
        state, reason = "free", ""
    return Gpu(reading, state, reason, holder, processes, intruders if state == "allocated" else ())


def _intruders(processes: Iterable[GpuProcess], inside: set[str]) -> tuple[GpuProcess, ...]:
    """Those in none of the containers that hold the GPU; nobody, as long as no container is known that holds it."""
    return tuple(process for process in processes if inside and process.container not in inside)


def describe(process: GpuProcess) -> str:
    """A process outside agentless in words: `bob's process 4711 (python train.py, 2.0 GiB)`."""
    what = (process.command or process.name or "unknown program")[:60]
    memory = "" if process.memory_mib is None else f", {format_size(process.memory_mib << 20)}"
    who = f"{process.user}'s process" if process.user else "process"
    return f"{who} {process.pid} ({what}{memory})"


def _more(count: int) -> str:
    return f" and {count} more" if count > 0 else ""
